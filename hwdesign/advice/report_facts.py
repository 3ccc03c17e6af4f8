"""What a report says, as one plain object: the facts of the checklists of all loads."""

import functools
import importlib.metadata
import math
from dataclasses import dataclass
from typing import NamedTuple

from hwdesign._check import listed
from hwdesign.advice.checklist import Checklist
from hwdesign.advice.guidelines import GUIDELINES
from hwdesign.advice.plan_rules import fewer_gpus
from hwdesign.advice.verdict import RANK, worst
from hwdesign.models.parts import SIZE_NAMES
from hwdesign.safe import visible
from hwdesign.timing.bounds import term_bounds
from hwdesign.timing.formats import Formats
from hwdesign.timing.served import expected_gain, sure_gain

NOT_JUDGED = "not judged"  # status of a report about whose model too little could be said
REPORT_STATUSES = ("ok", "warn", NOT_JUDGED, "fail", "break")  # the worst last
OPTIONS = ("device", "engine", "recipe", "cache", "attention", "ffn", "batch", "context")
WAYS = {"attention": ("tp", "kvp", "dp", "pp"), "ffn": ("tp", "ep", "dp", "pp", "gather")}


class Blame(NamedTuple):
    """A finding with the loads at which it holds.

    `verdict` and `finding` are plain facts where it is worst, `source` the `Finding` itself, and
    `at` is a tuple of (name of a load, facts of the finding there), the worst first.
    """

    verdict: dict
    finding: dict
    source: object
    at: tuple


@dataclass(frozen=True, kw_only=True)
class Report:
    """The checklists of a model at one or several loads, with where its settings came from.

    `source` is the config as it was given, `loads` a `Checklist` for each load, `formats` where
    those of products and cache come from, `defaults` the options that nobody gave, `ignored` the
    guidelines that do not count, `warned` what the package warned of meanwhile.

    Examples
    --------
    >>> from hwdesign.advice.judge import judge
    >>> report = judge("gpt2", loads=[(512, 128, 8), (512, 128, 64)])
    >>> [load["load"] for load in report.facts["loads"]]
    ['512/128/8', '512/128/64']
    """

    source: str
    loads: tuple
    formats: Formats
    defaults: tuple = ()
    ignored: tuple = ()
    warned: tuple = ()

    def __post_init__(self):
        object.__setattr__(self, "loads", listed("loads", self.loads, Checklist, "Checklist"))

    @property
    def case(self):
        """The case of the first load: model, device, engine, formats and plans are those of all."""
        return self.loads[0].case

    @property
    def worst(self):
        """The worst verdict that counts, at any load: "ok", "warn", "fail" or "break"; what does
        not fit into memory fails, and plans that an engine which was named does not run break.
        """
        return worst([self._worst(found) for found in self.loads])

    def _worst(self, found):
        """The worst of one load."""
        status = found.status_without(self.ignored)
        if not found.case.engine_refusal:
            return status
        return worst([status, "warn" if "engine" in self.defaults else "break"])

    @property
    def judged(self):
        """Whether at least half of the guidelines that apply and count could be judged at each
        load.
        """
        return all(map(self._judged, self.loads))

    def _judged(self, found):
        judged, applicable = self._counts(found)
        return 2 * judged >= applicable

    def _counts(self, found):
        """How many guidelines were judged at a load, and how many apply and count."""
        statuses = [v.status for v in found.verdicts if v.guideline not in self.ignored]
        applicable = [status for status in statuses if status != "not applicable"]
        return len(applicable) - applicable.count("not modelled"), len(applicable)

    @property
    def status(self):
        """The worst status of all loads: that of the worst verdict, or "not judged" where less than
        half could be judged and nothing worse than a warning was found.
        """
        return max(map(self._status, self.loads), key=REPORT_STATUSES.index)

    def _status(self, found):
        status = self._worst(found)
        if RANK[status] < RANK["fail"] and not self._judged(found):
            return NOT_JUDGED
        return status

    @functools.cached_property
    def facts(self):
        """Everything as plain values whose names carry the unit, see report.schema.json; texts of
        others are made visible.
        """
        case, limits = self.case, self.loads[0].limits
        recipe = case.recipe
        return {
            "config": visible(self.source, 4096),
            "status": self.status,
            "model": _model(case.model),
            "device": case.device.name,
            "engine": {"name": case.engine.name, "version": case.engine.version},
            "recipe": recipe.name,
            "recipe_from": self.formats.recipe_from,
            "recipe_stored": self.formats.stored,
            "weight_only": recipe.weight_only,
            "cache": case.cache.name,
            "cache_from": self.formats.cache_from,
            "attention": _ways(case, "attention"),
            "ffn": _ways(case, "ffn"),
            "gpus": case.gpus,
            "capacity_bytes": float(case.device.memory_capacity),
            "warn_share": limits.warn,
            "fail_share": limits.fail,
            "defaults": list(self.defaults),
            "ignored_guidelines": list(self.ignored),
            "refusal": visible(str(case.refusal), 500) if case.refusal else None,
            "engine_refusal": case.engine_refusal,
            "notes": [visible(note, 500) for note in self._notes()],
            "loads": [self._load(found) for found in self.loads],
        }

    def _notes(self):
        """What the package warned of, and whose constants stand in for others."""
        yield from self.warned
        model, longest = self.case.model, max(_longest(found.case) for found in self.loads)
        if model.left_out:
            yield f"left out of all counts: {'; '.join(model.left_out)}"
        if model.max_positions and longest > model.max_positions:
            yield (
                f"context {longest} is beyond the {model.max_positions} tokens that the config "
                "names as the longest"
            )
        few = min(found.case.batch for found in self.loads)
        stages = self.case.attention.pp
        if few < stages:
            yield f"{few} sequences are fewer than the {stages} stages: some stages have no work"
        option = self.case.cache_option
        if option:
            yield f"the time of attention on a cache in fp8 is that of {option}, not of the default"
        for found in self.loads:
            fewer = fewer_gpus(found.case)
            if fewer:
                gpus, times = fewer
                told = f"GPUs wasted at {load_name(found.case)}"
                yield f"{told}: on {gpus} of them each would give {times:.1f} times the tokens"
        borrowed = {}
        for found in self.loads:
            if found.case.breakdown:
                borrowed |= dict.fromkeys(found.case.breakdown.notes)
        if borrowed:
            yield uncalibrated(borrowed)

    def _load(self, found):
        """The facts of one load."""
        case, (judged, applicable) = found.case, self._counts(found)
        memory, usable = None, None
        if case.breakdown:
            memory, usable = float(case.breakdown.memory), float(case.breakdown.usable)
        token, served = case.token_seconds, case.answer is not None
        return {
            "load": load_name(case),
            "batch_sequences": case.batch,
            "context_tokens": case.context,
            "prompt_tokens": case.prompt if served else None,
            "answer_tokens": case.answer,
            "status": self._status(found),
            "judged_guidelines": judged,
            "applicable_guidelines": applicable,
            "step_seconds": case.seconds,
            **_interval("step", case.breakdown and case.breakdown.interval),
            "token_seconds": token,
            **_interval("token", case.token_interval),
            "user_tokens_per_second": 1 / token if token else None,
            "gpu_tokens_per_second": case.batch / token / case.gpus if token else None,
            **_energy(case),
            "terms": _terms(case),
            "memory_bytes": memory,
            "usable_bytes": usable,
            "fits": found.fits,
            "verdicts": [_verdict(verdict) for verdict in found.verdicts],
        }

    @functools.cached_property
    def blames(self):
        """All findings, each once with its loads, as a list: breaks first, then by cost, and at the
        end those that do not count.
        """
        groups = {}
        for found, load in zip(self.loads, self.facts["loads"], strict=True):
            for verdict, told in zip(found.verdicts, load["verdicts"], strict=True):
                for source, finding in zip(verdict.findings, told["findings"], strict=True):
                    key = (verdict.guideline, finding["dimension"], finding["value"])
                    at = (load["load"], finding, told, source)
                    groups.setdefault(key, []).append(at)
        blames = []
        for places in groups.values():
            places.sort(key=lambda place: _badness(place[1]))
            _, finding, verdict, source = places[0]
            at = tuple(place[:2] for place in places)
            blames.append(Blame(verdict=verdict, finding=finding, source=source, at=at))
        return sorted(blames, key=self._order)

    def _order(self, blame):
        ignored = blame.verdict["guideline"] in self.ignored
        return ignored, blame.finding["status"] != "break", *_badness(blame.finding)[1:]

    @functools.cached_property
    def verdicts(self):
        """The facts of each guideline's verdict at the load where it is worst, as a list; one that
        could not be judged goes before "ok".
        """
        by_load = [load["verdicts"] for load in self.facts["loads"]]
        return [
            max(found, key=lambda v: (RANK[v["status"]], v["status"] == "not modelled"))
            for found in zip(*by_load, strict=True)
        ]


def _badness(finding):
    """By which findings are sorted: the worst status first, then the highest cost."""
    cost = finding["cost_share"]
    return -RANK[finding["status"]], math.inf if cost is None else -cost


def load_name(case):
    """A load in words: prompt, answer and users, or batch and context.

    >>> from hwdesign.advice.case import Case
    >>> load_name(Case(model="gpt2")), load_name(Case(model="gpt2", prompt=512, answer=64, batch=2))
    ('batch 64, context 8192', '512/64/2')
    """
    if case.answer is None:
        return f"batch {case.batch}, context {case.context}"
    return f"{case.prompt}/{case.answer}/{case.batch}"


def uncalibrated(notes):
    """That constants are taken from another device or format, as one note."""
    return f"uncalibrated: {'; '.join(notes)}"


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


def _model(model):
    return {
        "name": visible(model.name),
        "parameters": model.parameters,
        **{name: size for name, size in sizes(model).items() if name != "layer_kinds"},
    }


def _longest(case):
    """Tokens of a sequence at its end [token]."""
    return case.context if case.answer is None else case.prompt + case.answer


def _terms(case):
    """Each term of the step that takes time, the longest first, with its share and what bounds
    it.
    """
    if case.breakdown is None:
        return []
    load = {"batch": case.batch, "context": case.context, "engine": case.engine}
    plans = {"attention": case.attention, "ffn": case.ffn}
    terms = case.breakdown.terms
    bounds = term_bounds(terms, case.model, case.device, case.recipe, **load, **plans)
    found = []
    for name, bound in sorted(bounds.items(), key=lambda item: -terms[item[0]]):
        found.append(
            {
                "name": name,
                "seconds": float(terms[name]),
                "step_share": float(case.breakdown.share(name)),
                "bound": bound.name,
                "bound_seconds": bound.seconds,
            }
        )
    return found


def _interval(what, found):
    """Least and most of a time on servers [s]; None where no server was compared."""
    low, high = map(float, found) if found else (None, None)
    return {f"{what}_low_seconds": low, f"{what}_high_seconds": high}


def _energy(case):
    """Energy of a token of the decode step, of all GPUs, and what must be said about it."""
    if case.breakdown is None:
        return {"token_joules": None, "energy_note": ""}
    joules = case.breakdown.joules_per_token(case.batch, case.gpus)
    found = None if joules is None else float(joules)
    return {"token_joules": found, "energy_note": case.breakdown.energy_note}


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
        "cost_share": plain(finding.cost),
        "refused_by": [
            {
                "engine": visible(refusal.engine, 500),
                "says": visible(refusal.says, 500),
                "source_url": visible(refusal.source, 500),
            }
            for refusal in finding.refused_by
        ],
        "fixes": [_fix(fix) for fix in finding.fixes],
    }


def _fix(fix):
    gain, differ = _served_gain(fix)
    expected = expected_gain(gain, differ) if differ else None
    return {
        "text": visible(fix.text, 500),
        "place": fix.place,
        "engines": list(fix.engines),
        "large": fix.large,
        "change": changed(fix.before, fix.case),
        "width_share": plain(fix.width),
        "parameters_share": plain(fix.parameters),
        "step_share": plain(fix.step),
        "step_seconds": plain(fix.case.seconds),
        "sure": bool(sure_gain(gain)) if differ else None,
        "expected_shares": expected and [plain(share) for share in expected],
        "notes": list(fix.case.breakdown.notes),
        "worsens": [
            {"guideline": guideline, "before": old, "after": new}
            for guideline, old, new in fix.worsens
        ],
    }


def changed(before, after):
    """What two cases differ in: sizes, formats and plans, as a dict of pairs.

    >>> from hwdesign.advice.case import Case
    >>> changed(Case(model="gpt2"), Case(model="gpt2", recipe="fp8"))
    {'recipe': {'before': 'bf16', 'after': 'fp8'}}
    """
    old, new, found = _shape(before), _shape(after), {}
    for name in old:
        if old[name] != new[name]:
            found[name] = {"before": old[name], "after": new[name]}
    return found


def _served_gain(fix):
    """What a fix saves and the kind of pairs of servers that differ in as much; None where nothing
    is saved or no such pair was published: for another model, another cache, two changes at once.
    """
    before, after = fix.before, fix.case
    if fix.place != "server" or fix.step is None or fix.step >= 0 or after.cache != before.cache:
        return None, None
    plan = (after.attention, after.ffn) != (before.attention, before.ffn)
    form = after.recipe != before.recipe
    if plan == form:
        return None, None
    return -fix.step, "plan" if plan else "format"


def _shape(case):
    """What a fix can change: sizes, formats and plans."""
    formats = {"recipe": case.recipe.name, "cache": case.cache.name}
    return {**sizes(case.model), **formats, **{part: _ways(case, part) for part in WAYS}}


def sizes(model):
    """Sizes of a model, as a dict; those of blocks as the different values that occur, ascending,
    their order as numbers of kinds.

    >>> from hwdesign.models import config
    >>> found = sizes(config.load("gpt2"))
    >>> found["layers"], found["feed_forward_width"]
    (12, [3072])
    """
    kinds = list(model.block_counts)
    found = {name: set() for name in SIZE_NAMES}
    for block in model.block_counts:
        for part in block.parts:
            for name, size in part.sizes.items():
                found[name].add(size)
    told = {
        "layers": len(model.blocks),
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
    }
    told |= {name: sorted(values - {0, None}) for name, values in found.items()}
    told["layer_kinds"] = [kinds.index(block) for block in model.blocks] if kinds[1:] else []
    return told


def plain(value):
    """A number as JSON has it, without -0.0.

    >>> plain(-0.0), plain(None)
    (0.0, None)
    """
    return None if value is None else float(value) + 0.0
