"""What a guideline says about a case: verdicts with their findings, fixes and costs.

A cost is never a guess: it is the step's time against that of a real alternative, a sibling of the
model or another plan on the same GPUs, by `decode_step`; for the widths of guideline 2 in time for
a parameter. Status by cost is "warn" and "fail" from two limits on. Where a structure is broken (a
tile, a pattern of layers) it is "warn" at least. Where the case's engine refuses to load a shape or
crashes on it (a scale block that is cut, heads that do not divide) it is a "break", which is worse
than any cost.
"""

from dataclasses import dataclass, field

from hwdesign._check import check_fields, choice, count, instance, listed, single
from hwdesign.advice.breaks import Refusal, loading_engines
from hwdesign.advice.case import Case

RANK = {"not applicable": 0, "not modelled": 0, "ok": 0, "warn": 1, "fail": 2, "break": 3}
STATUSES = tuple(RANK)
MOST_GUIDELINES = 99
MOST = 0.15  # change of the parameters beyond which a sibling is another model, and no fix
MARKED = 0.02  # change of the parameters above which a fix is marked as a large one
SLOWER = 0.001  # what the fix of a cost may add to the step


def percent(share):
    """A share in words: per cent with one decimal.

    >>> percent(0.274), percent(1e-5), percent(0)
    ('27.4 %', '<0.1 %', '0 %')
    """
    if share >= 5e-4:
        return f"{100 * share:.1f} %"
    return "<0.1 %" if share else "0 %"


def worst(statuses):
    """The worst of some statuses, "ok" if there are none.

    >>> worst(["ok", "fail", "warn"]), worst([])
    ('fail', 'ok')
    """
    return max(statuses, key=RANK.get, default="ok")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Shares of the step's time from which a cost is a warning and a failure.

    Parameters
    ----------
    warn, fail : float
        ``0 < warn <= fail <= 1`` [dimensionless].

    Raises
    ------
    ValueError
        If they are no such shares.

    Examples
    --------
    >>> Limits().grade(0.06), Limits(warn=0.1).grade(0.06), Limits().grade(None, "warn")
    ('warn', 'ok', 'warn')
    """

    warn: float = 0.05
    fail: float = 0.20

    def __post_init__(self):
        warn = single("warn", self.warn)
        fail = single("fail", self.fail)
        if not 0 < warn <= fail <= 1:
            raise ValueError(
                f"warn and fail must be shares with 0 < warn <= fail <= 1, got {warn:g} and "
                f"{fail:g}"
            )

    def grade(self, cost, least="ok"):
        """Status of a cost, or `least` if that is worse."""
        choice("least", least, STATUSES)
        cost = None if cost is None else single("cost", cost)
        if cost is None or cost < self.warn:
            by_cost = "ok"
        elif cost < self.fail:
            by_cost = "warn"
        else:
            by_cost = "fail"
        return worst([by_cost, least])


@dataclass(frozen=True, kw_only=True)
class Fix:
    """What would remove a finding: in words, as a case, with its price.

    Parameters
    ----------
    text : str
        What to change.
    case, before : Case
        The case after it, and the one that was judged.
    width : float
        What it adds to the width that is blamed, as a share [dimensionless].
    worsens : tuple of (int, str, str)
        Guidelines whose verdict gets worse by it, each with the status before and after.

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
    def place(self):
        """Where it is made: on the "server", by its plans and formats, or in the next "model"."""
        return "server" if self.case.model == self.before.model else "model"

    @property
    def engines(self):
        """Names of the engines that run its plans and take its shapes, as a tuple."""
        return loading_engines(self.case)

    @property
    def large(self):
        """Whether it changes the parameters by more than 2 %."""
        return abs(self.parameters) > MARKED

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


def close(model, sibling):
    """Whether a sibling has about the parameters of a model: more apart, it is another model.

    >>> from hwdesign.models import config
    >>> close(config.load("gpt2"), config.load("gpt2")), close(config.load("gpt2"), None)
    (True, False)
    """
    return bool(sibling) and abs(sibling.parameters / model.parameters - 1) <= MOST


def some(*fixes):
    """Those of some fixes that there are, as a tuple.

    >>> some(None, None)
    ()
    """
    return tuple(fix for fix in fixes if fix is not None)


def _number(guideline):
    """The number of a guideline, None before the table of guidelines gives it."""
    if guideline is not None:
        count("guideline", guideline, MOST_GUIDELINES)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A dimension or plan that breaks a rule.

    Parameters
    ----------
    guideline : int, optional
        Number of the guideline, which the table of guidelines gives.
    dimension : str
        What is blamed: one of the names that the guideline lists.
    value, rule : str
        What it is and what it should be, in words.
    status : str
        "warn", "fail" or "break".
    cost : float, optional
        Share of the step that a real alternative saves [dimensionless]; None if unknown.
    fixes : tuple of Fix
        What would remove it, the first choice first; empty where nothing does.
    refused_by : tuple of Refusal
        Engines that do not load it or crash, the case's own first. It is a "break" if that is
        among them; else they are named and nothing more.
    subject : str, optional
        Which keys of a config it speaks of, by a name in `hwdesign.advice.report_sarif.KEYS`; by
        default `dimension`.

    Examples
    --------
    >>> Finding(dimension="vocabulary", value="50257", rule="tile 128", status="warn").cost is None
    True
    """

    guideline: int | None = None
    dimension: str
    value: str
    rule: str
    status: str
    cost: float | None = None
    fixes: tuple = ()
    refused_by: tuple = ()
    subject: str | None = None

    def __post_init__(self):
        texts, absent = ("dimension", "value", "rule", "subject"), ("cost", "subject")
        check_fields(self, texts=texts, single=("cost",), none=absent)
        _number(self.guideline)
        choice("status", self.status, STATUSES)
        object.__setattr__(self, "fixes", listed("fixes", self.fixes, Fix, "Fix"))
        refused = listed("refused_by", self.refused_by, Refusal, "Refusal")
        object.__setattr__(self, "refused_by", refused)

    @property
    def fix(self):
        """The first choice among its fixes, None without any."""
        return self.fixes[0] if self.fixes else None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one guideline says about a case.

    Parameters
    ----------
    guideline : int, optional
        Number of the guideline, which the table of guidelines gives.
    status : str
        "ok", "warn", "fail", "break", "not applicable" or "not modelled".
    reason : str
        Why, in a sentence.
    findings : tuple of Finding
        What is blamed.

    Examples
    --------
    >>> Verdict(status="not applicable", reason="no experts").findings
    ()
    """

    guideline: int | None = None
    status: str
    reason: str
    findings: tuple = ()

    def __post_init__(self):
        check_fields(self, texts=("reason",))
        _number(self.guideline)
        choice("status", self.status, STATUSES)
        object.__setattr__(self, "findings", listed("findings", self.findings, Finding, "Finding"))

    @classmethod
    def of(cls, reason, findings=()):
        """The verdict of the worst finding, "ok" without any."""
        status = worst([finding.status for finding in findings])
        return cls(status=status, reason=reason, findings=tuple(findings))

    @classmethod
    def not_applicable(cls, reason):
        """That the guideline has nothing to say."""
        return cls(status="not applicable", reason=reason)

    @classmethod
    def cannot(cls, case):
        """That nothing can be said, since the plans cannot run the model."""
        reason = f"the plans cannot run this model: {case.refusal}"
        return cls(status="not modelled", reason=reason)
