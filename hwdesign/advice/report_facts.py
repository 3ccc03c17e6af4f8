"""What a report says: the facts of a checklist as one plain object, and the sentences that all
formats for people share.
"""

import functools
import importlib.metadata
import os
import warnings
from dataclasses import dataclass

from hwdesign.advice.case import Case, as_model, plan_text
from hwdesign.advice.checklist import CHAPTERS, TITLES, Checklist, checklist
from hwdesign.advice.report_words import PUZZLES, changes, enough
from hwdesign.advice.safe import visible
from hwdesign.advice.verdict import percent
from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import RECIPES
from hwdesign.models.blocks import DenseFFN, LatentAttention, Mamba2, MoE, SelfAttention
from hwdesign.units import fmt

MARKS = {"ok": "ok", "warn": "WARN", "fail": "FAIL", "not applicable": "n/a", "not modelled": "?"}
SUMMED = ("fail", "warn", "ok", "not applicable", "not modelled")
ORIGIN = {
    "option": "as asked",
    "checkpoint": "the checkpoint's",
    "default": "default, the config names no quantization",
}
SHAPE = {
    "warn": "; a warning for the shape alone",
    "fail": "; a failure since engines refuse the shape",
}
SHARE = {6: "a prompt's time, in which GPUs wait"}
OPTIONS = ("device", "recipe", "attention", "ffn", "batch", "context")
WAYS = {"attention": ("tp", "kvp", "dp", "pp"), "ffn": ("tp", "ep", "dp", "pp", "gather")}
SIZES = {  # of the blocks, by their names in a machine-readable change
    "query_heads": ((SelfAttention, LatentAttention), "num_heads"),
    "key_value_heads": (SelfAttention, "num_kv_heads"),
    "query_latent": (LatentAttention, "q_rank"),
    "key_value_latent": (LatentAttention, "kv_rank"),
    "mamba_heads": (Mamba2, "num_heads"),
    "feed_forward_width": (DenseFFN, "width"),
    "experts": (MoE, "num_experts"),
    "experts_per_token": (MoE, "top_k"),
    "expert_width": (MoE, "width"),
    "shared_expert_width": (MoE, "shared_width"),
}


@dataclass(frozen=True, kw_only=True)
class Report:
    """A checklist with where its model came from.

    `source` is the config as it was given, `recipe_from` "option", "checkpoint" or "default",
    `defaults` the options that nobody gave, `ignored` the guidelines that do not count, `warned`
    what the package warned of meanwhile.

    Examples
    --------
    >>> judge("gpt2").status, judge("gpt2").facts["step_seconds"] > 0
    ('fail', True)
    """

    source: str
    checklist: Checklist
    recipe_from: str
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
        case, used = self.checklist.case, self.facts["memory_bytes"] / 1e9
        used = f"{used:.3g}" if used < 1000 else f"{used:.0f}"
        more = enough(case)
        held = f"; {more.gpus} GPUs hold it: {plan_text(more.attention, more.ffn)}" if more else ""
        return (
            f"needs {used} of {self.facts['capacity_bytes'] / 1e9:.3g} GB on the fullest "
            f"GPU, weights and cache{held}"
        )

    @property
    def title(self):
        """Model, GPUs and what is loudest about them, as (name, rest)."""
        case, fits = self.checklist.case, self.facts["fits"]
        gpus = f"{case.gpus} x " if case.gpus > 1 else ""
        return visible(
            case.model.name
        ), f"on {gpus}{case.device.name}{', DOES NOT FIT' if fits is False else ''}"

    @property
    def loud(self):
        """Labels of the head that nobody may overlook, as a set."""
        return (
            {"step"} if self.checklist.case.refusal else set() if self.facts["fits"] else {"memory"}
        )

    @functools.cached_property
    def facts(self):
        """Everything as plain values whose names carry the unit, see report.schema.json; texts of
        others are made visible.
        """
        case, spent, limits = (
            self.checklist.case,
            self.checklist.case.breakdown,
            self.checklist.limits,
        )
        model = case.model
        sizes = {
            "parameters": model.parameters,
            "layers": len(model.blocks),
            "hidden_size": model.hidden_size,
        }
        notes = [
            *self.warned,
            *([f"uncalibrated: {'; '.join(spent.notes)}"] if spent and spent.notes else []),
        ]
        return {
            "config": visible(self.source, 4096),
            "status": self.status,
            "model": {"name": visible(model.name), **sizes, "vocab_size": model.vocab_size},
            "device": case.device.name,
            "recipe": case.recipe.name,
            "recipe_from": self.recipe_from,
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
            "memory_bytes": spent and float(spent.memory),
            "capacity_bytes": float(case.device.memory_capacity),
            "fits": self.checklist.fits,
            "refusal": case.refusal and visible(case.refusal, 500),
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
        limits = (
            f"warning from {100 * facts['warn_share']:g} %, failure from "
            f"{100 * facts['fail_share']:g} % of the step"
        )
        yield "config", facts["config"]
        size = f"{len(case.model.blocks)} layers, hidden size {case.model.hidden_size}"
        yield "size", f"{fmt(case.model.parameters, ' parameters')}, {size}"
        yield "device", case.device.name + said["device"]
        yield "recipe", f"{case.recipe.name} ({ORIGIN[self.recipe_from]})"
        yield "plans", plan_text(case.attention, case.ffn) + gpus + said["attention"]
        yield (
            "load",
            f"batch {case.batch}{said['batch']}, context {case.context} tokens{said['context']}",
        )
        if case.refusal:
            yield "step", f"THE PLANS CANNOT RUN IT: {facts['refusal']}"
        else:
            used, room = facts["memory_bytes"] / 1e9, facts["capacity_bytes"] / 1e9
            yield "step", f"{fmt(case.seconds, 's')} for one token of each sequence"
            if facts["fits"]:
                yield (
                    "memory",
                    f"{used:.3g} of {room:.3g} GB on the fullest GPU, weights and cache: fits",
                )
            else:
                yield (
                    "memory",
                    f"DOES NOT FIT: {self.need}; the times are those of GPUs with more memory",
                )
        yield "limits", limits + said["limits"]
        if self.ignored:
            yield (
                "ignored",
                f"guideline{'s' * (len(self.ignored) > 1)} "
                f"{', '.join(map(str, self.ignored))}, as asked",
            )
        yield from (("note", note) for note in facts["notes"])

    @property
    def summary(self):
        """Whether it does not fit, and how many verdicts have which status, ignored ones apart, in
        words.
        """
        parts = [] if self.checklist.fits is not False else ["does not fit: FAIL"]
        for ignored in (False, True):
            found = [
                v["status"]
                for v in self.facts["verdicts"]
                if (v["guideline"] in self.ignored) is ignored
            ]
            counts = ", ".join(
                f"{found.count(status)} {status}" for status in SUMMED if status in found
            )
            parts += [f"{'ignored: ' * ignored}{counts}"] if counts else []
        return "; ".join(parts)

    def mark(self, guideline):
        """ " (ignored)" after the words about a guideline that does not count, else nothing."""
        return " (ignored)" if guideline in self.ignored else ""

    def why(self, verdict):
        """The reason of a verdict; why plans cannot run stands in the head."""
        refused = self.facts["refusal"] and verdict["status"] == "not modelled"
        return "the plans cannot run this model" if refused else verdict["reason"]

    def details(self, finding, guideline):
        """A finding's rule, cost, fix and price, as pairs of a label and a text."""
        fix = finding["fix"]
        yield "rule", finding["rule"]
        cost, status = finding["cost_share"], finding["status"]
        shape = cost is not None and cost < self.facts[f"{status}_share"]
        yield (
            "cost",
            "unknown"
            if cost is None
            else f"{percent(cost)} of {SHARE.get(guideline, 'the step')}" + SHAPE[status] * shape,
        )
        yield "fix", fix["text"] if fix else "none found"
        if not fix:
            return
        if changed := changes(fix):
            yield "change", changed
        price = {
            "width": fix["width_share"] or None,
            "parameters": fix["parameters_share"],
            "step": fix["step_share"],
        }
        words = [f"{name} {_signed(share)}" for name, share in price.items() if share is not None]
        words += [f"step {fmt(fix['step_seconds'], 's')}"] if fix["step_share"] is None else []
        worse = [
            f"guideline {w['guideline']} worse: {w['before']} -> {w['after']}"
            for w in fix["worsens"]
        ]
        yield "price", f"{', '.join(words)}; makes {', '.join(worse) or 'no guideline worse'}"
        if (
            guideline in PUZZLES
            and None not in (cost, fix["step_share"])
            and abs(cost + fix["step_share"]) >= 5e-4
        ):
            yield "note", PUZZLES[guideline]
        if new := [
            note
            for note in fix["notes"]
            if note not in getattr(self.checklist.case.breakdown, "notes", ())
        ]:
            yield "note", f"uncalibrated: {'; '.join(new)}"


def judge(source, *, limits=None, ignore=(), **options):
    """The report on a config.

    Parameters
    ----------
    source : str or path or dict
        A config.json, the name of a shipped config, or the parsed config.
    limits : Limits, optional
        From which cost on [dimensionless] a verdict is a warning and a failure.
    ignore : sequence of int
        Guidelines that are judged, but do not count for the status.
    **options
        Fields of `Case`; None stands for its default.

    Returns
    -------
    Report
        The checklist and where each setting came from.

    Raises
    ------
    ValueError
        If a config, a name or a plan is refused, or the plans cannot run the model and no guideline
        says why.

    Examples
    --------
    >>> judge("llama-3.1-8b", device="H100_SXM", recipe="fp8").facts["defaults"]
    ['attention', 'ffn', 'batch', 'context', 'limits']
    """
    given = {name: value for name, value in options.items() if value is not None}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, device = as_model(source), as_device(given.get("device", Case.device))
        recipe_from = (
            "option" if "recipe" in given else "checkpoint" if model.quantization else "default"
        )
        known = [r.name for r in RECIPES.values() if r.math.rate in device.dense_peak]
        if recipe_from == "checkpoint" and model.quantization not in known:
            one = (
                f"one of {', '.join(known)}, for {device.name} does not multiply the "
                "checkpoint's format"
            )
            raise ValueError(f"recipe must be {one}, got {model.quantization!r}")
        found = checklist(Case(**{**given, "model": model, "device": device}), limits)
    case = found.case
    if case.refusal and not found.findings:
        raise ValueError(
            f"plans must be able to run the model, got {plan_text(case.attention, case.ffn)}: "
            f"{case.refusal}"
        )
    source = os.fspath(source) if isinstance(source, str | os.PathLike) else visible(model.name)
    defaults = tuple(
        name
        for name in (*OPTIONS, "limits")
        if name not in given and not (name == "limits" and limits)
    )
    warned = tuple(dict.fromkeys(str(warning.message) for warning in caught))
    told = {
        "recipe_from": recipe_from,
        "defaults": defaults,
        "ignored": tuple(ignore),
        "warned": warned,
    }
    return Report(source=source, checklist=found, **told)


@functools.cache
def chapter(guideline):
    """Address of the chapter about a guideline, on the site that the package's metadata names.

    Parameters
    ----------
    guideline : int
        From 1 to 7.

    Returns
    -------
    str or None
        None where the package is not installed or its metadata name no site.

    Notes
    -----
    Source: "Documentation" of [project.urls] in pyproject.toml.

    Examples
    --------
    >>> (chapter(2) or "notebooks/02_tile_alignment.html").endswith(
    ...     "notebooks/02_tile_alignment.html"
    ... )
    True
    """
    try:
        urls = importlib.metadata.metadata("hwdesign").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        urls = []
    site = dict(url.split(", ", 1) for url in urls).get("Documentation")
    return site and f"{site.rstrip('/')}/notebooks/{CHAPTERS[guideline]}.html"


def _ways(case, part):
    return {way: getattr(getattr(case, part), way) for way in WAYS[part]}


def _verdict(verdict):
    said = {
        "status": verdict.status,
        "reason": visible(verdict.reason, 500),
        "chapter_url": chapter(verdict.guideline),
    }
    found = [_finding(finding) for finding in verdict.findings]
    return {
        "guideline": verdict.guideline,
        "title": TITLES[verdict.guideline],
        **said,
        "findings": found,
    }


def _finding(finding):
    texts = {
        name: visible(getattr(finding, name), 500)
        for name in ("dimension", "value", "rule", "status")
    }
    return {**texts, "cost_share": _plain(finding.cost), "fix": finding.fix and _fix(finding.fix)}


def _fix(fix):
    before, after = _shape(fix.before), _shape(fix.case)
    price = {
        "width_share": fix.width,
        "parameters_share": fix.parameters,
        "step_share": fix.step,
        "step_seconds": fix.case.seconds,
    }
    return {
        "text": visible(fix.text, 500),
        "change": {
            name: {"before": before[name], "after": after[name]}
            for name in before
            if before[name] != after[name]
        },
        **{name: _plain(value) for name, value in price.items()},
        "notes": list(fix.case.breakdown.notes),
        "worsens": [
            dict(zip(("guideline", "before", "after"), worse, strict=True)) for worse in fix.worsens
        ],
    }


def _shape(case):
    """What a fix can change; sizes of blocks as the different values that occur, ascending, their
    order as numbers of kinds.
    """
    model = case.model
    kinds = list(model.block_counts)
    parts = [part for block in model.block_counts for part in (block.mixer, block.ffn)]
    found = {
        name: {getattr(p, key) for p in parts if isinstance(p, kind)}
        for name, (kind, key) in SIZES.items()
    }
    sizes = {
        "hidden_size": model.hidden_size,
        "layers": len(model.blocks),
        "vocab_size": model.vocab_size,
    }
    sizes |= {name: sorted(values - {0, None}) for name, values in found.items()}
    sizes["layer_kinds"] = [kinds.index(block) for block in model.blocks] if kinds[1:] else []
    return {**sizes, "recipe": case.recipe.name, **{part: _ways(case, part) for part in WAYS}}


def _plain(value):
    return None if value is None else float(value) + 0.0  # no -0.0


def _signed(share):
    return (
        f"{100 * share:+.1f} %" if abs(share) >= 5e-4 else "within 0.1 %" if share else "unchanged"
    )
