"""What a guideline says about a case: verdicts with their findings, fixes and costs.

A cost is never a guess: it is the step's time against that of a real alternative, a sibling of the
model or another plan on the same GPUs, by `decode_step`; for the widths of guideline 2 in time for
a parameter. Status by cost is "warn" and "fail" from two limits on. Where a structure is broken (a
tile, a pattern of layers) it is "warn" at least, and where an engine refuses (a scale block or a
row that is cut, heads that do not divide) "fail".
"""

from dataclasses import dataclass, field

from hwdesign._check import check_fields, choice, count, instance, listed, single
from hwdesign.advice.case import Case

STATUSES = ("not applicable", "not modelled", "ok", "warn", "fail")
MOST = 0.15  # change of the parameters beyond which a sibling is another model, and no fix
RANK = dict(zip(STATUSES, (0, 0, 0, 1, 2), strict=True))
GUIDELINES = 7


def percent(share):
    """A share in words.

    Parameters
    ----------
    share : float
        Between 0 and 1 [dimensionless].

    Returns
    -------
    str
        Per cent with one decimal, no unit but the sign.

    Examples
    --------
    >>> percent(0.274), percent(1e-5), percent(0)
    ('27.4 %', '<0.1 %', '0 %')
    """
    return f"{100 * share:.1f} %" if share >= 5e-4 else "<0.1 %" if share else "0 %"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Shares of the step's time from which a cost is a warning and a failure [dimensionless].

    Examples
    --------
    >>> Limits().grade(0.06), Limits(warn=0.1).grade(0.06), Limits().grade(None, "warn")
    ('warn', 'ok', 'warn')
    """

    warn: float = 0.05
    fail: float = 0.20

    def __post_init__(self):
        warn, fail = (single(name, getattr(self, name)) for name in ("warn", "fail"))
        if not 0 < warn <= fail <= 1:
            raise ValueError(
                f"warn and fail must be shares with 0 < warn <= fail <= 1, got {warn:g} and "
                f"{fail:g}"
            )

    def grade(self, cost, least="ok"):
        """Status of a cost, or `least` if that is worse."""
        choice("least", least, STATUSES)
        cost = None if cost is None else single("cost", cost)
        by_cost = (
            "ok" if cost is None or cost < self.warn else "warn" if cost < self.fail else "fail"
        )
        return max(by_cost, least, key=RANK.get)


@dataclass(frozen=True, kw_only=True)
class Fix:
    """What would remove a finding: in words, as a case, with its price.

    `text` says what to change, `case` is the case after it; `width` and `parameters` are what it
    adds, as shares [dimensionless]; `worsens` lists (guideline, status before, status after) of
    what gets worse by it.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> case = Case(model=config.load("gpt2"))
    >>> Fix(text="nothing", case=case, before=case).parameters
    0.0
    """

    text: str
    case: Case = field(repr=False)
    before: Case = field(repr=False)
    width: float = 0.0
    worsens: tuple = ()

    def __post_init__(self):
        check_fields(self, texts=("text",), single=("width",))
        for name in ("case", "before"):
            instance(name, getattr(self, name), Case, "a Case, as in Case(model='gpt2')")
        like = "(guideline, status before, status after)"
        object.__setattr__(self, "worsens", listed("worsens", self.worsens, tuple, like))

    @property
    def parameters(self):
        """Parameters that it adds, as a share [dimensionless]."""
        return self.case.model.parameters / self.before.model.parameters - 1

    @property
    def step(self):
        """What it adds to the time of the step, as a share [dimensionless]; None where one of the
        two cannot be timed.
        """
        if self.case.seconds is None or self.before.seconds is None:
            return None
        return self.case.seconds / self.before.seconds - 1


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A dimension or plan that breaks a rule, its cost as a share of the step [dimensionless], None
    if unknown, and the fix.

    Examples
    --------
    >>> Finding(
    ...     guideline=2, dimension="vocabulary", value="50257", rule="tile 128", status="warn"
    ... ).cost is None
    True
    """

    guideline: int
    dimension: str
    value: str
    rule: str
    status: str
    cost: float | None = None
    fix: Fix | None = None

    def __post_init__(self):
        texts = ("dimension", "value", "rule")
        check_fields(self, texts=texts, single=("cost",), none=("cost",))
        count("guideline", self.guideline, GUIDELINES)
        choice("status", self.status, STATUSES)
        instance("fix", self.fix, Fix | None, "a Fix or None")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one guideline says about a case: status, the reason in a sentence, and the findings.

    Examples
    --------
    >>> Verdict(guideline=5, status="not applicable", reason="no experts").findings
    ()
    """

    guideline: int
    status: str
    reason: str
    findings: tuple = ()

    def __post_init__(self):
        check_fields(self, texts=("reason",))
        count("guideline", self.guideline, GUIDELINES)
        choice("status", self.status, STATUSES)
        object.__setattr__(self, "findings", listed("findings", self.findings, Finding, "Finding"))

    @classmethod
    def of(cls, guideline, reason, findings=()):
        """The verdict of the worst finding, "ok" without any."""
        status = max((f.status for f in findings), key=RANK.get, default="ok")
        return cls(guideline=guideline, status=status, reason=reason, findings=tuple(findings))

    @classmethod
    def cannot(cls, guideline, case):
        """That nothing can be said, since the plans cannot run the model."""
        return cls(
            guideline=guideline,
            status="not modelled",
            reason=f"the plans cannot run this model: {case.refusal}",
        )
