"""The design checklist: a verdict of each guideline on a model and a device, with what each fix
makes worse.
"""

import functools
from dataclasses import dataclass, replace

from hwdesign._check import count, every, instance, listed
from hwdesign.advice.case import Case
from hwdesign.advice.guidelines import GUIDELINES
from hwdesign.advice.verdict import RANK, Limits, Verdict, percent, worst
from hwdesign.safe import visible

A_CASE = "a Case, as in Case(model='gpt2')"
LIMITS = "Limits, as in Limits(warn=0.05, fail=0.2)"


def _number(name, value):
    """The number of a guideline."""
    return count(name, value, max(GUIDELINES))


@dataclass(frozen=True, kw_only=True, repr=False)
class Checklist:
    """The verdicts about a case; `print` shows them, one a line.

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
    (<Checklist gpt2 on GB300: warn>, 'warn', [2, 4])
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
        if self.case.breakdown is None:
            return None
        return bool(self.case.breakdown.feasible)

    @property
    def status(self):
        """The worst of the verdicts: "ok", "warn", "fail" or "break"; what does not fit into memory
        fails at least.
        """
        return self.status_without(())

    def status_without(self, ignored):
        """The status where the verdicts of some guidelines do not count; memory always does."""
        ignored = every("ignored", ignored, _number)
        found = ["fail"] if self.fits is False else []
        for verdict in self.verdicts:
            if verdict.guideline not in ignored and RANK[verdict.status] > 0:
                found.append(verdict.status)
        return worst(found)

    def __repr__(self):
        return f"<Checklist {self._title}>"

    def __str__(self):
        wide = max(len(verdict.status) for verdict in self.verdicts)
        lines = [self._title]
        for verdict in self.verdicts:
            told = "; ".join(map(_short, verdict.findings)) or verdict.reason
            lines.append(f"{verdict.guideline} {verdict.status:<{wide}}  {told}")
        return "\n".join(lines)

    @property
    def _title(self):
        where = self.case.device.name
        if self.case.gpus > 1:
            where = f"{self.case.gpus} x {where}"
        if self.fits is False:
            where += ", does not fit"
        return f"{visible(self.case.model.name)} on {where}: {self.status}"

    @property
    def findings(self):
        """All findings, in the order of the guidelines."""
        return tuple(finding for verdict in self.verdicts for finding in verdict.findings)


def _short(finding):
    """A finding in half a line."""
    told = f"{finding.dimension} {finding.value}"
    if finding.cost is not None:
        told += f", {percent(finding.cost)}"
    fix = finding.fix.text if finding.fix else "no fix found"
    return f"{told}: {fix}"


def verdicts(case, limits):
    """The verdicts of all guidelines about a case, without what their fixes make worse.

    >>> len(verdicts(Case(model="gpt2"), Limits())) == len(GUIDELINES)
    True
    """
    return tuple(guideline.judge(case, limits) for guideline in GUIDELINES.values())


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
        A verdict of each guideline; each fix says which other verdicts it makes worse.

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
    ['ok', 'ok', 'ok', 'warn', 'not applicable', 'not applicable', 'not applicable']
    """
    instance("case", case, Case, A_CASE)
    instance("limits", limits, Limits | None, LIMITS)
    limits = limits or Limits()
    before = verdicts(case, limits)
    worsened = functools.cache(functools.partial(_worsened, before, limits))  # of a fixed case
    done = []
    for verdict in before:
        findings = []
        for finding in verdict.findings:
            fixes = []
            for fix in finding.fixes:
                fixes.append(replace(fix, worsens=worsened(fix.case)))
            findings.append(replace(finding, fixes=tuple(fixes)))
        done.append(replace(verdict, findings=tuple(findings)))
    return Checklist(case=case, limits=limits, verdicts=tuple(done))


def _worsened(before, limits, fixed):
    """(guideline, status before, status after) of each verdict that is worse of a fixed case; what
    could not be judged before is not, nor is a break.
    """
    found = []
    for old in before:
        if old.status in ("not modelled", "break"):
            continue
        new = GUIDELINES[old.guideline].judge(fixed, limits)
        if RANK[new.status] > RANK[old.status]:
            found.append((old.guideline, old.status, new.status))
    return tuple(found)
