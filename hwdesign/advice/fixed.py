"""What was done to clear the findings of a checklist, what it costs and what is left."""

import functools
import html
import re
from collections import Counter
from dataclasses import dataclass, replace

from hwdesign._check import instance, listed
from hwdesign.advice.alternatives import head_sizes
from hwdesign.advice.case import Case, plan_text, ways_text
from hwdesign.advice.checklist import LIMITS, checklist
from hwdesign.advice.evidence import evidence_lines
from hwdesign.advice.report_facts import changed, load_name
from hwdesign.advice.report_words import MARKS, signed, size_label
from hwdesign.advice.verdict import RANK, Finding, Limits, percent, worst
from hwdesign.safe import visible
from hwdesign.units import fmt

ORIGINAL, TRAIL, PROVENANCE = "original_parameters", "changes", "_hwdesign"  # keys of a config


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change that clears a finding, with its price.

    Parameters
    ----------
    finding : Finding
        What it clears.
    what : str
        Sizes or plans before and after.
    before, after : tuple of Case
        One a load.
    worsens : tuple of (int, str, str)
        Guidelines whose verdict gets worse by it at some load, each with the status before and
        after.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> finding = Finding(dimension="recipe", value="bf16", rule="lower", status="warn", cost=0.1)
    >>> cases = (Case(model="gpt2"),)
    >>> Change(finding=finding, what="nothing", before=cases, after=cases).steps
    (0.0,)
    """

    finding: Finding
    what: str
    before: tuple
    after: tuple
    worsens: tuple = ()

    @property
    def guideline(self):
        """Number of the guideline that asked for it."""
        return self.finding.guideline

    @property
    def parameters(self):
        """Parameters that it adds, as a share [dimensionless]."""
        return self.after[0].model.parameters / self.before[0].model.parameters - 1

    @property
    def steps(self):
        """What it adds to the step at each load, as shares [dimensionless]; None where one of the
        two cannot be timed.
        """
        return tuple(
            None if None in (old.seconds, new.seconds) else new.seconds / old.seconds - 1
            for old, new in zip(self.before, self.after, strict=True)
        )

    @property
    def intervals(self):
        """Where the middle 80 % of served points lay around such steps after it, at each load, as
        (least, most) [s]; None where that is not known.
        """
        return tuple(case.breakdown and case.breakdown.interval for case in self.after)

    @property
    def why(self):
        """What it clears, in words."""
        finding = self.finding
        told = f"guideline {finding.guideline} {MARKS[finding.status]}, {finding.dimension} "
        told += finding.value
        if finding.refused_by:
            return f"{told}: {finding.refused_by[0].engine} {finding.refused_by[0].says}"
        cost = "" if finding.cost is None else f", which costs {percent(finding.cost)}"
        return f"{told}{cost}: {finding.rule}"

    @property
    def price(self):
        """Parameters and steps that it adds, and what it makes worse, in words."""
        told = [f"parameters {signed(self.parameters)}"] if self.parameters else []
        for new, share in zip(self.after, self.steps, strict=True):
            where = f" at {load_name(new)}" if self.after[1:] else ""
            step = (
                f"{_timed(new)}, before it could not be timed" if share is None else signed(share)
            )
            told.append(f"step {step}{where}")
        told += [f"guideline {number}: {old} -> {new}" for number, old, new in self.worsens]
        return "; ".join(told)


@dataclass(frozen=True, kw_only=True)
class Left:
    """A finding that is left, and why; where that is the budget, by how much it is exceeded.

    Examples
    --------
    >>> finding = Finding(dimension="recipe", value="bf16", rule="lower", status="warn")
    >>> Left(finding=finding, why="no fix is known").beyond is None
    True
    """

    finding: Finding
    why: str
    beyond: float | None = None  # share of the parameters [dimensionless]


@dataclass(frozen=True, kw_only=True, repr=False)
class Fixed:
    """A model or its server after the smallest changes that clear its findings; `print` shows it.

    Parameters
    ----------
    started, cases : tuple of Case
        Before and after the changes, one a load.
    limits : Limits
        From which cost on a verdict is a warning and a failure.
    changes : tuple of Change
        In the order in which they were made.
    left : tuple of Left
        Findings that stay, each with the reason.
    config : dict or None
        The config after the changes, with what was done under "_hwdesign"; None without one.
    added : tuple of str
        Keys of that which the config did not have, besides that one.
    original : int
        Parameters that the budget counts from [element].
    server_only : bool
        Whether only the server's settings were changed.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> cases = (Case(model="llama-3.1-8b"),)
    >>> fixed = Fixed(started=cases, cases=cases, limits=Limits(), original=8030261248)
    >>> fixed.parameters, fixed.before[0].status, fixed
    (8030261248, 'warn', <Fixed llama-3.1-8b: no changes>)
    """

    started: tuple
    cases: tuple
    limits: Limits
    changes: tuple = ()
    left: tuple = ()
    config: dict | None = None
    added: tuple = ()
    original: int  # [element]
    server_only: bool = False

    def __post_init__(self):
        kinds = {"started": Case, "cases": Case, "changes": Change, "left": Left, "added": str}
        for name, kind in kinds.items():
            found = listed(name, getattr(self, name), kind, kind.__name__)
            object.__setattr__(self, name, found)
        instance("limits", self.limits, Limits, LIMITS)

    @functools.cached_property
    def before(self):
        """The checklists before the changes, one a load, as a tuple."""
        return tuple(checklist(case, self.limits) for case in self.started)

    @functools.cached_property
    def after(self):
        """The checklists after the changes, one a load, as a tuple."""
        if self.cases == self.started:
            return self.before
        return tuple(checklist(case, self.limits) for case in self.cases)

    @property
    def parameters(self):
        """Parameters of the model after the changes [element]."""
        return self.cases[0].model.parameters

    @property
    def cleared(self):
        """Findings that were changed for and are gone, without those that are only eased, as a
        tuple.
        """
        there = {(left.finding.guideline, left.finding.dimension) for left in self.left}
        found = [change.finding for change in self.changes]
        return tuple(f for f in found if (f.guideline, f.dimension) not in there)

    @property
    def status(self):
        """The worst status of what is left."""
        return worst([left.finding.status for left in self.left])

    @property
    def options(self):
        """Settings of the server that changed, as the command line takes them; empty where none
        did.
        """
        old, new, words = self.started[0], self.cases[0], []
        if (old.attention, old.ffn) != (new.attention, new.ffn):
            plans = plan_text(new.attention, new.ffn)
            words.append("--tp 1" if plans == "one GPU" else plans)
        if old.recipe.name != new.recipe.name:
            words.append(f"--recipe {new.recipe.name}")
        if old.cache != new.cache:
            words.append(f"--cache {new.cache.name}")
        return " ".join(words)

    def __repr__(self):
        return f"<Fixed {visible(self.cases[0].model.name)}: {_counted(self.changes, 'change')}>"

    def __str__(self):
        lines = [self._title]
        for heading, rows in self.sections():
            lines.append(f"\n{heading}")
            for label, words in rows:
                lines.append(f"  {label}")
                lines += [f"    {word}" for word in words]
        return "\n".join(lines)

    def _repr_html_(self):
        parts = [f"<p><b>{html.escape(self._title)}</b></p>"]
        for heading, rows in self.sections():
            items = []
            for label, words in rows:
                told = "".join(f"<br>{html.escape(word)}" for word in words)
                items.append(f"<li><b>{html.escape(label)}</b>{told}</li>")
            parts.append(f"<p>{html.escape(heading)}</p><ul>{''.join(items)}</ul>")
        return "".join(parts)

    @property
    def _title(self):
        case = self.started[0]
        where = f"{case.gpus} x {case.device.name}" if case.gpus > 1 else case.device.name
        told = f"{_counted(self.changes, 'change')}, {_counted(self.left, 'finding')} left"
        return f"{visible(case.model.name)} on {where}: {told}"

    def sections(self):
        """What is told, as pairs of a heading and rows, each of a label and lines of text."""
        if self.changes:
            rows = [(c.what, (visible(c.why, 500), c.price)) for c in self.changes]
            yield "changed", rows
        loads = zip(self.started, self.cases, strict=True)
        yield "decode step", [self._step(*pair) for pair in loads]
        if self.added:
            told = "new in this config: check that what trains and serves it reads them"
            yield "keys", [(", ".join(self.added), (told,))]
        if self.server_only and self.options:
            yield "options that changed", [(self.options, ())]
        if self.left:
            yield "left", [(left_label(left.finding), (left.why,)) for left in self.left]
        said = evidence_lines(self.started[0].model, self.cases[0].model)
        if said:
            yield "published experiments on such changes", [(line, ()) for line in said]
        if self.parameters != self.original:
            told = f"{self.original / 1e9:.4g} -> {self.parameters / 1e9:.4g} billion"
            share = signed(self.parameters / self.original - 1)
            yield "parameters", [(f"{told} ({share} of the original)", ())]

    def _step(self, old, new):
        """A load: the step before and after, and where servers lie around such ones."""
        words = [_timed(old)] if old == new else [_timed(old), _timed(new)]
        told = " -> ".join(words)
        if old != new and None not in (old.seconds, new.seconds):
            told += f" ({signed(new.seconds / old.seconds - 1)})"
        fits = new.breakdown is None or new.breakdown.feasible
        unfit = "" if fits else " DOES NOT FIT into memory"
        return f"{load_name(old)}: {told}{unfit}", ()


def _counted(things, noun):
    """How many there are, in words."""
    return f"{len(things) or 'no'} {noun}{'' if len(things) == 1 else 's'}"


def left_label(finding):
    """A finding in a line: its status, guideline, dimension, value and cost.

    >>> left_label(Finding(guideline=4, dimension="recipe", value="bf16", rule="", status="warn"))
    'WARN 4 recipe bf16'
    """
    told = f"{MARKS[finding.status]} {finding.guideline} {finding.dimension} {finding.value}"
    return visible(told if finding.cost is None else f"{told}, {percent(finding.cost)}", 300)


def _timed(case):
    """The step of a case and its interval on servers, in words."""
    if case.seconds is None:
        return "cannot be timed"
    told = fmt(case.seconds, "s")
    if case.breakdown.interval is None:
        return told
    low, high = (fmt(float(end), "s") for end in case.breakdown.interval)
    return f"{told} (served {low} to {high})"


def change_words(before, after):
    """What differs between two cases, in words.

    >>> from hwdesign.advice.case import Case
    >>> change_words(Case(model="gpt2"), Case(model="gpt2", recipe="fp8"))
    'recipe bf16 -> fp8'
    """
    told = []
    for name, pair in changed(before, after).items():
        if name in ("attention", "ffn"):
            plans = [ways_text(replace(getattr(case, name), pp=1)) for case in (before, after)]
            told.append(f"{name} plan {plans[0]} -> {plans[1]}")
        elif name == "layer_kinds":
            told += _kinds(before.model, after.model)
        else:
            told.append(f"{_label(name)} {_values(pair['before'], pair['after'])}")
    sizes = [head_sizes(case.model) for case in (before, after)]
    if sizes[0] != sizes[1]:
        told.append(f"head size {_values(*sizes)}")
    if before.split != after.split and after.split:
        stages = f"stages of {', '.join(map(str, after.split))} layers"
        option, label = after.engine.cut_option, after.engine.label
        told.append(f"{stages} ({option} of {label})" if option else stages)
    return ", ".join(told) or "the order of the layers"


def _kinds(old, new):
    """How many layers of each kind there were and are, in words, as a list."""
    counted, told = [Counter(), Counter()], []
    for model, counts in zip((old, new), counted, strict=True):
        for block, times in model.block_counts.items():
            counts[re.sub(r"MoE \d+ of \d+", "MoE", block.kind)] += times
    for kind in {**counted[0], **counted[1]}:
        counts = [found[kind] for found in counted]
        if counts[0] != counts[1]:
            told.append(f"layers of {kind} {counts[0]} -> {counts[1]}")
    return told


def _label(name):
    """A size in words, with the field's hyphens."""
    label = size_label(name).replace("feed forward", "feed-forward")
    return label.replace("key value", "key-value")


def _values(before, after):
    """One size before and after, or of all that occur those that went and those that came."""
    if not isinstance(before, list):
        return f"{before} -> {after}"
    gone = [value for value in before if value not in after]
    new = [value for value in after if value not in before]
    return f"{' and '.join(map(str, gone)) or 'none'} -> {' and '.join(map(str, new)) or 'none'}"


def badness(finding):
    """By which findings are ordered: breaks first, then by cost."""
    return -RANK[finding.status], -(finding.cost or 0.0)
