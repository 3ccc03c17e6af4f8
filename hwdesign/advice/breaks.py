"""Which engines refuse to load a model under its plans, or crash on it: one rule a row of
`refusals.csv`, each with its source and the date it was read.

A rule tests one kind of `Side`: the share of it that a GPU holds must be a multiple. That is data;
what is cut, and how, the parts of the model say. Nothing here looks at time.
"""

import csv
import functools
from dataclasses import dataclass, replace
from importlib import resources

from hwdesign._check import check_fields, choice
from hwdesign.catalogue.engine import engine as as_engine
from hwdesign.catalogue.engine import engine_names
from hwdesign.catalogue.precision import PRECISIONS
from hwdesign.models.engine_plans import engine_plan_refusal
from hwdesign.models.parts import SIDES, Side
from hwdesign.models.steps import Plan

GROUPED = "int4_g32"  # a format in groups, for which `refusals.csv` says what holds for any group
SPLITS = ("any", "split", "whole")  # which sides a rule tests: those in several shares, or in one


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """That an engine does not load a shape, or crashes on it.

    Parameters
    ----------
    engine : str
        Label and version.
    says : str
        What it says or does, in words.
    source : str
        Where that is read: an address.

    Examples
    --------
    >>> Refusal(engine="vLLM 0.33.0", says="asserts", source="https://example.org").engine
    'vLLM 0.33.0'
    """

    engine: str
    says: str
    source: str

    def __post_init__(self):
        check_fields(self, texts=("engine", "says", "source"))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What an engine tests: a row of `refusals.csv`.

    Parameters
    ----------
    engine, version : str
        Name of the engine, and its versions; empty for that of `engines.csv`.
    side, split : str
        Which kind of side it tests, one of `SIDES`; "split" ones, "whole" ones or "any".
    formats, devices : tuple of str
        Formats of the weights and devices on which it does; empty for all.
    padded, multiple : int
        What the size is padded to first, and of what a share must be a multiple [element].
    says, source, accessed : str
        What it says or does, where that is read, and when.

    Examples
    --------
    >>> rules()[0].engine, rules()[0].side, rules()[0].multiple
    ('vllm', 'query heads', 1)
    """

    engine: str
    version: str = ""
    side: str
    split: str
    formats: tuple = ()
    devices: tuple = ()
    padded: int = 1  # [element]
    multiple: int  # [element]
    says: str
    source: str
    accessed: str

    def __post_init__(self):
        choice("engine", self.engine, engine_names())
        choice("side", self.side, SIDES)
        choice("split", self.split, SPLITS)

    def refuses(self, side, form, device):
        """Whether it refuses a side of weights in a format, by name, on a device, by name."""
        if side.kind != self.side or self.split == ("whole" if side.ways > 1 else "split"):
            return False
        if self.formats and form not in self.formats:
            return False
        if self.devices and device not in self.devices:
            return False
        return self._padded(side) / side.ways % self.multiple > 0

    def _padded(self, side):
        """The size of a side after the engine's padding [element]."""
        return -(-side.size // self.padded) * self.padded

    def refusal(self, side):
        """The refusal of a side, in the engine's words where it has some."""
        engine = as_engine(self.engine)
        sizes = {"size": side.size, "ways": side.ways, "share": f"{side.share:g}"}
        return Refusal(
            engine=f"{engine.label} {self.version}" if self.version else engine.title,
            says=self.says.format(**sizes, padded=self._padded(side), multiple=self.multiple),
            source=self.source,
        )


@functools.cache
def rules():
    """All rules of `refusals.csv`, as a tuple.

    >>> sorted({rule.engine for rule in rules()})
    ['sglang', 'trtllm', 'vllm']
    """
    text = resources.files("hwdesign.advice").joinpath("refusals.csv").read_text(encoding="utf-8")
    return tuple(rule for row in csv.DictReader(text.splitlines()) for rule in _rules(row))


def _rules(row):
    """A row of the table as a list: one rule, or one for each format where the multiple is that of
    its block.
    """
    formats, multiple = tuple(row["formats"].split()), row["multiple"]
    common = {
        **row,
        "devices": tuple(row["devices"].split()),
        "padded": int(row["padded"] or 1),
    }
    if multiple != "block":
        return [Rule(**{**common, "formats": formats, "multiple": int(multiple)})]
    found = []
    for form in formats:
        block = PRECISIONS[form].block[-1]
        found.append(Rule(**{**common, "formats": (form,), "multiple": block}))
    return found


def rules_about(form):
    """Name of a format as `refusals.csv` has it, and the rules that may be about it, as a tuple.

    What stands beside a scale changes no rule, and what holds for groups of 32 holds for groups of
    any other size, of integers of any bits.

    >>> from hwdesign.catalogue.precision import recipe
    >>> name, found = rules_about(recipe("w3a16_g256_zp").weights)
    >>> name, sorted({rule.multiple for rule in found if name in rule.formats})
    ('int3_g256', [256])
    """
    name = form.name.partition("_zp")[0].removesuffix("_i8")
    if name in PRECISIONS or not name.startswith("int") or not form.block:
        return name, rules()
    alike = [rule for rule in rules() if rule.formats == (GROUPED,)]
    own = (replace(rule, formats=(name,), multiple=form.block[-1]) for rule in alike)
    return name, (*rules(), *own)


def sides(case):
    """What engines test of a case.

    Parameters
    ----------
    case : Case
        Model and plans.

    Returns
    -------
    list of Side
        Each once; sizes in [element].

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> [side.name for side in sides(Case(model="gpt2"))][:3]
    ['hidden size', 'hidden size', 'vocabulary']
    """
    model, attention = case.model, case.attention
    size, part = model.hidden_size, lowered_part(case)
    ways = attention.tp * attention.kvp
    found = [
        Side(kind="input", name="hidden size", size=size, ways=1, part=part),
        Side(kind="output", name="hidden size", size=size, ways=1, part=part),
        Side(kind="vocabulary", name="vocabulary", size=model.vocab_size, ways=ways, part="head"),
    ]
    for block in model.block_counts:
        for each in block.parts:
            found += each.sides(attention, case.ffn)
    return list(dict.fromkeys(found))


def lowered_part(case):
    """The first part of a model in less than 16 bits, else the head.

    >>> from hwdesign.advice.case import Case
    >>> lowered_part(Case(model="gpt2")), lowered_part(Case(model="gpt2", recipe="fp8"))
    ('head', 'attention')
    """
    counted = case.model.parameters_by_part()
    return next((part for part in counted if case.low(part).bits < 16), "head")


def broken(case):
    """What is refused of a case, and by which rules.

    Parameters
    ----------
    case : Case
        Model, formats, device and plans.

    Returns
    -------
    dict of Side to list of Rule
        Without sides that nobody refuses; multiples in [element].

    Notes
    -----
    Source: `refusals.csv`, one source a row.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.models.steps import Plan
    >>> eight = {"attention": Plan(tp=8), "ffn": Plan(tp=8)}
    >>> for side, rules in broken(Case(model="qwen2.5-7b", **eight)).items():
    ...     print(side.kind, side.size, [rule.engine for rule in rules])
    query heads 28 ['vllm', 'sglang', 'trtllm']
    """
    found = {}
    for side in sides(case):
        form, tests = rules_about(case.low(side.part))
        refused = [rule for rule in tests if rule.refuses(side, form, case.device.name)]
        if refused:
            found[side] = refused
    return found


def breaks(case, rule):
    """Whether a rule is one of the case's own engine, in its version."""
    return rule.engine == case.engine.name and not rule.version


def refused_by(case, broken_rules):
    """The refusals of some sides: one of each engine and version, the case's own engine first.

    Parameters
    ----------
    case : Case
        Whose engine comes first.
    broken_rules : dict of Side to list of Rule
        As `broken` gives them.

    Returns
    -------
    tuple of Refusal
        In words; each names its engine.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.models.steps import Plan
    >>> case = Case(model="qwen2.5-7b", engine="sglang", attention=Plan(tp=8), ffn=Plan(tp=8))
    >>> refused_by(case, broken(case))[0].says
    'asserts: total_num_heads % attn_tp_size == 0'
    """
    found = {}
    pairs = [(side, rule) for side, refused in broken_rules.items() for rule in refused]
    for side, rule in sorted(pairs, key=lambda pair: not breaks(case, pair[1])):
        found.setdefault((rule.engine, rule.version), rule.refusal(side))
    return tuple(found.values())


def loads(case, engine=None, despite=()):
    """Whether an engine runs a case's plans and takes its shapes.

    Parameters
    ----------
    case : Case
        Model, formats, device and plans.
    engine : str or Engine, optional
        By default the case's own.
    despite : collection of (str, str)
        Kinds and names of sides that are not looked at [dimensionless].

    Returns
    -------
    bool
        True if nothing is refused.

    Notes
    -----
    Source: `refusals.csv`; `hwdesign.models.engine_plans`.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> loads(Case(model="llama-3.1-8b"))
    True
    """
    engine = as_engine(engine or case.engine)
    if engine_plan_refusal(engine, case.model, case.attention, case.ffn):
        return False
    forms, device = {}, case.device.name
    for side in sides(case):
        if side.part not in forms:
            form, tests = rules_about(case.low(side.part))
            own = [rule for rule in tests if rule.engine == engine.name and not rule.version]
            forms[side.part] = form, own
        form, own = forms[side.part]
        refused = any(rule.refuses(side, form, device) for rule in own)
        if refused and (side.kind, side.name) not in despite:
            return False
    return True


def loading_engines(case, despite=()):
    """Names of the engines that run a case, but for sides as in `loads`.

    >>> from hwdesign.advice.case import Case
    >>> loading_engines(Case(model="llama-3.1-8b"))
    ('vllm', 'sglang', 'trtllm')
    """
    return tuple(name for name in engine_names() if loads(case, name, despite))


def nearest_ways(case, kind, ways):
    """The nearest numbers of GPUs, below and above, on which the case's engine runs the model with
    its heads or its experts spread, in words; nothing where there is none up to twice as many.

    Parameters
    ----------
    case : Case
        Its model is looked at.
    kind : str
        "expert set" for the ways of ep, "query heads" for those of attention.
    ways : int
        Those that are refused.

    Returns
    -------
    str
        Numbers of GPUs [GPU].

    Notes
    -----
    Source: `refusals.csv`, by `loads`.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> nearest_ways(Case(model="phi-4"), "query heads", 8)
    '; nearest: tp=2'
    """
    name = "ep" if kind == "expert set" else "tp"
    near = []
    for count in (range(ways - 1, 0, -1), range(ways + 1, 2 * ways + 1)):
        near += [n for n in count if _spread(case, kind, n)][:1]
    return f"; nearest: {' or '.join(f'{name}={n}' for n in near)}" if near else ""


def _spread(case, kind, ways):
    """Whether the case's engine runs the model on so many GPUs: of tensor parallelism, or with the
    experts spread over them.
    """
    attention = Plan(tp=ways, pp=case.attention.pp)
    ffn = Plan(ep=ways, pp=case.ffn.pp) if kind == "expert set" else attention
    new = replace(case, attention=attention, ffn=ffn)
    return new.refusal is None and loads(new)
