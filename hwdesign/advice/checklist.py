"""The design checklist: seven verdicts for a model on a device, with what each fix makes worse."""

import functools
from dataclasses import dataclass, replace

from hwdesign._check import count, every, instance, listed
from hwdesign.advice.case import Case
from hwdesign.advice.rules import RULES
from hwdesign.advice.safe import visible
from hwdesign.advice.verdict import GUIDELINES, RANK, Limits, Verdict, percent

A_CASE = "a Case, as in Case(model='gpt2')"
LIMITS = "Limits, as in Limits(warn=0.05, fail=0.2)"
TITLES = {
    1: "Near-square matrices, no tiny N or K",
    2: "Dimensions in multiples of 128, better 256 or 512",
    3: "Wide over deep",
    4: "Low precision",
    5: "Wide expert parallelism",
    6: "Regular layer patterns for pipelines",
    7: "Attention and feed-forward part decoupled",
}
CHAPTERS = {
    1: "01_near_square",
    2: "02_tile_alignment",
    3: "03_wide_over_deep",
    4: "04_low_precision",
    5: "05_expert_parallelism",
    6: "06_pipeline_patterns",
    7: "07_decoupled_attention",
}


@dataclass(frozen=True, kw_only=True, repr=False)
class Checklist:
    """Seven verdicts about a case; `print` shows them, one a line.

    Parameters
    ----------
    case : Case
        What was judged.
    limits : Limits
        From which cost on a verdict is a warning and a failure.
    verdicts : tuple of Verdict
        In the order of the guidelines.

    Examples
    --------
    >>> found = checklist(Case(model="gpt2"))
    >>> found, found.status, [v.guideline for v in found.verdicts if v.findings]
    (<Checklist gpt2 on GB300: fail>, 'fail', [2, 4])
    """

    case: Case
    limits: Limits
    verdicts: tuple

    def __post_init__(self):
        instance("case", self.case, Case, A_CASE)
        instance("limits", self.limits, Limits, LIMITS)
        object.__setattr__(self, "verdicts", listed("verdicts", self.verdicts, Verdict, "Verdict"))

    @property
    def fits(self):
        """Whether weights and cache fit into memory; None where the plans cannot run the model."""
        return self.case.breakdown and bool(self.case.breakdown.feasible)

    @property
    def status(self):
        """The worst of the verdicts: "ok", "warn" or "fail"; what does not fit into memory
        fails.
        """
        return self.status_without(())

    def status_without(self, ignored):
        """The status where the verdicts of some guidelines do not count; memory always does."""
        ignored = every("ignored", ignored, lambda name, value: count(name, value, GUIDELINES))
        counted = [v.status for v in self.verdicts if v.guideline not in ignored and RANK[v.status]]
        return "fail" if self.fits is False else max(counted, key=RANK.get, default="ok")

    def __repr__(self):
        return f"<Checklist {self._title}>"

    def __str__(self):
        wide = max(len(v.status) for v in self.verdicts)
        lines = (
            f"{v.guideline} {v.status:<{wide}}  {'; '.join(map(_short, v.findings)) or v.reason}"
            for v in self.verdicts
        )
        return "\n".join([self._title, *lines])

    @property
    def _title(self):
        case, unfit = self.case, ", does not fit" if self.fits is False else ""
        gpus = f"{case.gpus} x " if case.gpus > 1 else ""
        return f"{visible(case.model.name)} on {gpus}{case.device.name}{unfit}: {self.status}"

    @property
    def findings(self):
        """All findings, in the order of the guidelines."""
        return tuple(f for v in self.verdicts for f in v.findings)


def _short(finding):
    cost = "" if finding.cost is None else f", {percent(finding.cost)}"
    return (
        f"{finding.dimension} {finding.value}{cost}: "
        f"{finding.fix.text if finding.fix else 'no fix found'}"
    )


def verdicts(case, limits):
    """The seven verdicts about a case, without what their fixes make worse.

    Parameters
    ----------
    case : Case
        What is judged.
    limits : Limits
        From which cost on a verdict is a warning and a failure [dimensionless].

    Returns
    -------
    tuple of Verdict
        In the order of the guidelines.

    Notes
    -----
    Source: `hwdesign.advice.rules`.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> len(verdicts(Case(model=config.load("gpt2")), Limits()))
    7
    """
    return tuple(rule(case, limits) for rule in RULES.values())


def checklist(case, limits=None):
    """The design checklist of a case.

    Parameters
    ----------
    case : Case
        Model, device, formats, plans and load.
    limits : Limits, optional
        From which cost on a verdict is a warning (by default 5 % of the step) and a failure (20 %)
        [dimensionless].

    Returns
    -------
    Checklist
        Seven verdicts; each fix says which other verdicts it makes worse.

    Raises
    ------
    ValueError
        If `case` is no Case or `limits` no Limits.

    Notes
    -----
    Source: the seven guidelines of the post, whose own closing list names four of them.

    Examples
    --------
    >>> case = Case(model="llama-3.1-8b", device="H100_SXM", batch=256, context=1024)
    >>> [v.status for v in checklist(case).verdicts]
    ['ok', 'ok', 'ok', 'fail', 'not applicable', 'not applicable', 'not applicable']
    """
    instance("case", case, Case, A_CASE)
    instance("limits", limits, Limits | None, LIMITS)
    limits = limits or Limits()
    found = verdicts(case, limits)
    later = functools.cache(lambda fixed: verdicts(fixed, limits))  # two findings may have one fix

    def told(finding):
        if not finding.fix:
            return finding
        pairs = zip(found, later(finding.fix.case), strict=True)
        pairs = [
            (b, a) for b, a in pairs if b.status != "not modelled"
        ]  # what could not be judged did not get worse
        worse = tuple(
            (b.guideline, b.status, a.status) for b, a in pairs if RANK[a.status] > RANK[b.status]
        )
        return replace(finding, fix=replace(finding.fix, worsens=worse))

    done = tuple(replace(v, findings=tuple(told(f) for f in v.findings)) for v in found)
    return Checklist(case=case, limits=limits, verdicts=done)
