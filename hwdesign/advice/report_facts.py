"""What a report says: the facts of a checklist as one plain object, and the sentences that all
formats for people share.
"""

import functools
import importlib.metadata
import re
from collections import Counter
from dataclasses import dataclass

from hwdesign.advice.case import enough, plan_text
from hwdesign.advice.checklist import Checklist
from hwdesign.advice.guidelines import GUIDELINES
from hwdesign.advice.safe import visible
from hwdesign.advice.verdict import percent
from hwdesign.models.parts import SIZE_NAMES
from hwdesign.timing.formats import Formats
from hwdesign.units import fmt

MARKS = {
    "ok": "ok",
    "warn": "WARN",
    "fail": "FAIL",
    "break": "BREAK",
    "not applicable": "n/a",
    "not modelled": "?",
}
SUMMED = ("break", "fail", "warn", "ok", "not applicable", "not modelled")
ORIGIN = {
    "option": "as asked",
    "checkpoint": "the checkpoint's",
    "default": "default, the config names no quantization",
}
SHAPE = {
    "warn": "; a warning for the shape alone",
    "fail": "; a failure since engines refuse the shape",
}
LABELS = {"vocab_size": "vocabulary"}
OPTIONS = ("device", "engine", "recipe", "cache", "attention", "ffn", "batch", "context")
WAYS = {"attention": ("tp", "kvp", "dp", "pp"), "ffn": ("tp", "ep", "dp", "pp", "gather")}


@dataclass(frozen=True, kw_only=True)
class Report:
    """A checklist with where its model came from.

    `source` is the config as it was given, `formats` where those of products and cache come from,
    `defaults` the options that nobody gave, `ignored` the guidelines that do not count, `warned`
    what the package warned of meanwhile.

    Examples
    --------
    >>> from hwdesign.advice.judge import judge
    >>> judge("gpt2").status, judge("gpt2").facts["step_seconds"] > 0
    ('fail', True)
    """

    source: str
    checklist: Checklist
    formats: Formats
    defaults: tuple = ()
    ignored: tuple = ()
    warned: tuple = ()

    @property
    def status(self):
        """The worst verdict that counts: "ok", "warn" or "fail"; what does not fit into memory
        fails.
        """
        return self.checklist.status_without(self.ignored)

    @functools.cached_property
    def need(self):
        """What memory a model that does not fit needs, in words; empty where it fits or cannot
        run.
        """
        if self.checklist.fits is not False:
            return ""
        used, room = self.facts["memory_bytes"] / 1e9, self.facts["capacity_bytes"] / 1e9
        shown = f"{used:.3g}" if used < 1000 else f"{used:.0f}"
        need = f"needs {shown} of {room:.3g} GB on the fullest GPU, weights and cache"
        larger = enough(self.checklist.case)
        if larger:
            need += f"; {larger.gpus} GPUs hold it: {plan_text(larger.attention, larger.ffn)}"
        return need

    @property
    def title(self):
        """Model, GPUs and what is loudest about them, as (name, rest)."""
        case = self.checklist.case
        where = case.device.name
        if case.gpus > 1:
            where = f"{case.gpus} x {where}"
        if self.facts["fits"] is False:
            where += ", DOES NOT FIT"
        return visible(case.model.name), f"on {where}"

    @property
    def loud(self):
        """Labels of the head that nobody may overlook, as a set."""
        if self.checklist.case.refusal:
            return {"step"}
        return set() if self.facts["fits"] else {"memory"}

    @functools.cached_property
    def facts(self):
        """Everything as plain values whose names carry the unit, see report.schema.json; texts of
        others are made visible.
        """
        case, limits = self.checklist.case, self.checklist.limits
        model, refusal, memory = case.model, None, None
        notes = list(self.warned)
        if case.refusal:
            refusal = visible(str(case.refusal), 500)
        else:
            memory = float(case.breakdown.memory)
            if case.breakdown.notes:
                notes.append(_uncalibrated(case.breakdown.notes))
        return {
            "config": visible(self.source, 4096),
            "status": self.status,
            "model": {
                "name": visible(model.name),
                "parameters": model.parameters,
                "layers": len(model.blocks),
                "hidden_size": model.hidden_size,
                "vocab_size": model.vocab_size,
            },
            "device": case.device.name,
            "recipe": case.recipe.name,
            "recipe_from": self.formats.recipe_from,
            "cache": case.cache.name,
            "cache_from": self.formats.cache_from,
            "engine": case.engine.name,
            "attention": _ways(case, "attention"),
            "ffn": _ways(case, "ffn"),
            "gpus": case.gpus,
            "batch_sequences": case.batch,
            "context_tokens": case.context,
            "warn_share": limits.warn,
            "fail_share": limits.fail,
            "defaults": list(self.defaults),
            "ignored_guidelines": list(self.ignored),
            "step_seconds": case.seconds,
            "memory_bytes": memory,
            "capacity_bytes": float(case.device.memory_capacity),
            "fits": self.checklist.fits,
            "refusal": refusal,
            "notes": [visible(note, 500) for note in notes],
            "verdicts": [_verdict(verdict) for verdict in self.checklist.verdicts],
        }

    @property
    def head(self):
        """What was judged and how, as pairs of a label and a text."""
        facts, case = self.facts, self.checklist.case
        said = {
            name: " (default)" if name in self.defaults else "" for name in (*OPTIONS, "limits")
        }
        gpus = f": {case.gpus} GPUs" if case.gpus > 1 else ""
        yield "config", facts["config"]
        size = f"{len(case.model.blocks)} layers, hidden size {case.model.hidden_size}"
        yield "size", f"{fmt(case.model.parameters, ' parameters')}, {size}"
        yield "device", case.device.name + said["device"]
        yield "engine", case.engine.title + said["engine"]
        yield "recipe", f"{case.recipe.name} ({ORIGIN[self.formats.recipe_from]})"
        yield "cache", self._cache
        yield "plans", plan_text(case.attention, case.ffn) + gpus + said["attention"]
        load = f"batch {case.batch}{said['batch']}, context {case.context} tokens{said['context']}"
        yield "load", load
        yield from self._step_and_memory()
        warn, fail = 100 * facts["warn_share"], 100 * facts["fail_share"]
        limits = f"warning from {warn:g} %, failure from {fail:g} % of the step"
        yield "limits", limits + said["limits"]
        if self.ignored:
            noun = "guidelines" if len(self.ignored) > 1 else "guideline"
            yield "ignored", f"{noun} {', '.join(map(str, self.ignored))}, as asked"
        for note in facts["notes"]:
            yield "note", note

    @property
    def _cache(self):
        """Format of the cache and where it comes from, in words."""
        case, origin = self.checklist.case, self.formats.cache_from
        if origin == "engine":
            return f"{case.cache.name} (default of {case.engine.label})"
        return f"{case.cache.name} ({ORIGIN[origin]})"

    def _step_and_memory(self):
        facts, case = self.facts, self.checklist.case
        if case.refusal:
            yield "step", f"THE PLANS CANNOT RUN IT: {facts['refusal']}"
            return
        yield "step", f"{fmt(case.seconds, 's')} for one token of each sequence"
        if facts["fits"]:
            used, room = facts["memory_bytes"] / 1e9, facts["capacity_bytes"] / 1e9
            told = f"{used:.3g} of {room:.3g} GB on the fullest GPU, weights and cache: fits"
        else:
            told = f"DOES NOT FIT: {self.need}; the times are those of GPUs with more memory"
        yield "memory", told

    @property
    def summary(self):
        """Whether it does not fit, and how many verdicts have which status, ignored ones apart, in
        words.
        """
        counted, ignored = [], []
        for verdict in self.facts["verdicts"]:
            group = ignored if verdict["guideline"] in self.ignored else counted
            group.append(verdict["status"])
        parts = []
        if self.checklist.fits is False:
            parts.append("does not fit: FAIL")
        if counted:
            parts.append(_counts(counted))
        if ignored:
            parts.append(f"ignored: {_counts(ignored)}")
        return "; ".join(parts)

    def mark(self, guideline):
        """ " (ignored)" after the words about a guideline that does not count, else nothing."""
        return " (ignored)" if guideline in self.ignored else ""

    def why(self, verdict):
        """The reason of a verdict; why plans cannot run stands in the head."""
        if self.facts["refusal"] and verdict["status"] == "not modelled":
            return "the plans cannot run this model"
        return verdict["reason"]

    def details(self, finding, guideline):
        """A finding's rule, cost, fix and price, as pairs of a label and a text."""
        yield "rule", finding["rule"]
        yield "cost", self._cost(finding, guideline)
        fix = finding["fix"]
        if fix is None:
            yield "fix", "none found"
            return
        yield "fix", fix["text"]
        changed = changes(fix)
        if changed:
            yield "change", changed
        yield "price", _price(fix)
        puzzle = GUIDELINES[guideline].puzzle
        known = finding["cost_share"] is not None and fix["step_share"] is not None
        if puzzle and known and abs(finding["cost_share"] + fix["step_share"]) >= 5e-4:
            yield "note", puzzle
        before = self.checklist.case.breakdown
        told = before.notes if before else ()
        new = [note for note in fix["notes"] if note not in told]
        if new:
            yield "note", _uncalibrated(new)

    def _cost(self, finding, guideline):
        share, status = finding["cost_share"], finding["status"]
        if share is None:
            return "unknown"
        told = f"{percent(share)} of {GUIDELINES[guideline].share_of}"
        if share < self.facts[f"{status}_share"]:
            told += SHAPE[status]
        return told


def changes(fix):
    """Each size before and after a fix (as in report.schema.json), plans apart; empty where the
    text of the fix names them all.

    Each number in the text stands for one change, so that equal numbers hide nothing.

    >>> layers = {"before": 48, "after": 29}
    >>> sizes = {"layers": layers, "query_heads": {"before": [32], "after": [40]}}
    >>> changes({"text": "29 layers", "change": sizes})
    'layers 48 -> 29, query heads 32 -> 40'
    >>> changes({"text": "29 layers, 40 heads", "change": sizes})
    ''
    """
    untold = Counter(re.findall(r"\w+", fix["text"]))
    words, all_named = [], True
    for name, change in fix["change"].items():
        if name in ("attention", "ffn", "layer_kinds"):
            continue
        before, after = _as_list(change["before"]), _as_list(change["after"])
        new = Counter(str(value) for value in after if value not in before)
        if not new or not new <= untold:
            all_named = False
        untold -= new
        label = LABELS.get(name, name.replace("_", " "))
        words.append(f"{label} {_values(before)} -> {_values(after)}")
    return "" if all_named else ", ".join(words)


def _as_list(value):
    return value if isinstance(value, list) else [value]


def _values(values):
    return " and ".join(map(str, values)) or "none"


@functools.cache
def chapter(guideline):
    """Address of the chapter about a guideline, on the site that the package's metadata name; None
    where they name none, or the package is not installed.

    >>> address = chapter(2) or "notebooks/02_tile_alignment.html"
    >>> address.endswith("notebooks/02_tile_alignment.html")
    True
    """
    try:
        urls = importlib.metadata.metadata("hwdesign").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for url in urls:
        label, _, address = url.partition(", ")
        if label == "Documentation":
            return f"{address.rstrip('/')}/notebooks/{GUIDELINES[guideline].chapter}.html"
    return None


def _uncalibrated(notes):
    return f"uncalibrated: {'; '.join(notes)}"


def _counts(statuses):
    """How many have which status, in words."""
    told = [f"{statuses.count(status)} {status}" for status in SUMMED if status in statuses]
    return ", ".join(told)


def _price(fix):
    """What a fix adds to width, parameters and step, and which guidelines it makes worse."""
    words = []
    if fix["width_share"]:
        words.append(f"width {_signed(fix['width_share'])}")
    words.append(f"parameters {_signed(fix['parameters_share'])}")
    if fix["step_share"] is None:
        words.append(f"step {fmt(fix['step_seconds'], 's')}")
    else:
        words.append(f"step {_signed(fix['step_share'])}")
    worse = [
        f"guideline {worsened['guideline']} worse: {worsened['before']} -> {worsened['after']}"
        for worsened in fix["worsens"]
    ]
    return f"{', '.join(words)}; makes {', '.join(worse) or 'no guideline worse'}"


def _ways(case, part):
    plan = getattr(case, part)
    return {way: getattr(plan, way) for way in WAYS[part]}


def _verdict(verdict):
    return {
        "guideline": verdict.guideline,
        "title": GUIDELINES[verdict.guideline].title,
        "status": verdict.status,
        "reason": visible(verdict.reason, 500),
        "chapter_url": chapter(verdict.guideline),
        "findings": [_finding(finding) for finding in verdict.findings],
    }


def _finding(finding):
    return {
        "dimension": visible(finding.dimension, 500),
        "value": visible(finding.value, 500),
        "rule": visible(finding.rule, 500),
        "status": finding.status,
        "cost_share": _plain(finding.cost),
        "fix": _fix(finding.fix) if finding.fix else None,
    }


def _fix(fix):
    before, after = _shape(fix.before), _shape(fix.case)
    changed = {}
    for name in before:
        if before[name] != after[name]:
            changed[name] = {"before": before[name], "after": after[name]}
    return {
        "text": visible(fix.text, 500),
        "change": changed,
        "width_share": _plain(fix.width),
        "parameters_share": _plain(fix.parameters),
        "step_share": _plain(fix.step),
        "step_seconds": _plain(fix.case.seconds),
        "notes": list(fix.case.breakdown.notes),
        "worsens": [
            {"guideline": guideline, "before": old, "after": new}
            for guideline, old, new in fix.worsens
        ],
    }


def _shape(case):
    """What a fix can change; sizes of blocks as the different values that occur, ascending, their
    order as numbers of kinds.
    """
    model = case.model
    kinds = list(model.block_counts)
    found = {name: set() for name in SIZE_NAMES}
    for block in model.block_counts:
        for part in block.parts:
            for name, size in part.sizes.items():
                found[name].add(size)
    sizes = {
        "hidden_size": model.hidden_size,
        "layers": len(model.blocks),
        "vocab_size": model.vocab_size,
    }
    sizes |= {name: sorted(values - {0, None}) for name, values in found.items()}
    sizes["layer_kinds"] = [kinds.index(block) for block in model.blocks] if kinds[1:] else []
    return {**sizes, "recipe": case.recipe.name, **{part: _ways(case, part) for part in WAYS}}


def _plain(value):
    """A number as JSON has it, without -0.0."""
    return None if value is None else float(value) + 0.0


def _signed(share):
    if abs(share) >= 5e-4:
        return f"{100 * share:+.1f} %"
    return "within 0.1 %" if share else "unchanged"
