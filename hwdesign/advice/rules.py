"""Guidelines 1, 3, 4 and 6 as rules, each from a case and limits to a verdict without a number;
2 is in `widths`, 5 and 7 are in `plan_rules`.
"""

import functools
from dataclasses import fields, replace

import numpy as np

from hwdesign.advice import shapes
from hwdesign.advice.case import change
from hwdesign.advice.verdict import MOST, SLOWER, Finding, Fix, Verdict, percent, some
from hwdesign.catalogue.precision import FP8, PRECISIONS, RECIPES
from hwdesign.catalogue.published import score_changes
from hwdesign.formulas.pipeline import split_layers, stage_layers
from hwdesign.models.steps import step
from hwdesign.timing.pipeline import block_times

CHUNK = 8192  # tokens of a prompt that pass a pipeline at a time [token], as in chapter 6
MOST_CHUNKS = 1024  # of a prompt; a longer one has larger chunks
SQUARER = {  # dimension -> the sibling in which it is nearer to square
    "expert width": shapes.merged_experts,
    "feed-forward width": shapes.squarer,
}
LOWER = {"fp8": "fp8", "nvfp4": "fp4"}  # recipe -> the rate that a device needs for it
# Recipes whose inputs a checkpoint is made for; nothing that a server chooses.
CALIBRATED_WITH = ("w4a8", "w4afp8", "nvfp4_w4a8", "mxfp6")
STORED = "w4a16"  # the recipe whose weights alone are in few bits, which every device runs


def near_square(case, limits):
    """Guideline 1: near-square products, no tiny N or K, against siblings of the same parameters.

    Blames experts narrower than the hidden size, or a dense feed-forward width that is not within
    four times of it, as long as the next sibling saves at least as much as a warning takes. That
    finer experts may answer better no time model knows. Source: chapter 1.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.verdict import Limits
    >>> from hwdesign.models import config
    >>> near_square(Case(model=config.load("llama-3.1-8b"), device="H100_SXM"), Limits()).status
    'ok'
    """
    if case.refusal:
        return Verdict.cannot(case)
    done = step(
        case.model, batch=case.batch, context=case.context, attention=case.attention, ffn=case.ffn
    )
    products = [
        product
        for product in done.gemms
        if product.part not in ("router", "head") and product.n > 1  # a gate has N = 1
    ]
    least = min(products, key=lambda product: min(product.n, product.k))
    reason = f"smallest side on a GPU: {least.name}, N = {least.n:.0f}, K = {least.k:.0f}"
    for dimension, sibling in SQUARER.items():
        best = _last_that_helps(case, sibling, limits)
        if best is not case:
            return Verdict.of(reason, [_shape_finding(case, best, dimension, limits)])
    return Verdict.of(reason)


def _last_that_helps(case, sibling, limits):
    """Sibling after sibling, as long as each saves what a warning takes; else the case itself."""
    last = case
    while True:
        model = _near(case.model, sibling(last.model))
        new = change(last, model=model) if model else None
        if new is None or last.gain(new) < limits.warn:
            return last
        last = new


def _near(model, sibling):
    """A sibling of about as many parameters, else None."""
    if sibling and abs(sibling.parameters / model.parameters - 1) <= MOST:
        return sibling
    return None


def _no_slower(fix):
    """A fix that does not slow the step, else None: a cost is no reason for another cost."""
    return fix if fix.step <= SLOWER else None


def _shape_finding(case, new, dimension, limits):
    routed = dimension == "expert width"
    old, now = shapes.first_ffn(case.model, routed), shapes.first_ffn(new.model, routed)
    if routed:
        text = f"{now.num_experts} experts of width {now.width}, {now.top_k} of them for a token"
    else:
        text = f"hidden size {new.model.hidden_size} with feed-forward width {now.width}"
    cost = case.gain(new)
    return Finding(
        dimension=dimension,
        value=str(old.width),
        rule=f"near the hidden size {case.model.hidden_size}",
        status=limits.grade(cost),
        cost=cost,
        fixes=some(Fix(text=text, case=new, before=case)),
    )


def wide_over_deep(case, limits):
    """Guideline 3: hidden size over layers not below that of trained models, dense ones or mixtures
    of experts as the model is, against a wider sibling.

    Blames the number of layers. Scores and cache are taken out of the cost: a sibling with fewer
    layers also has a smaller cache, which is another change. What depth is worth for quality no
    time model knows. Source: chapter 3.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.verdict import Limits
    >>> from hwdesign.models import config
    >>> wide_over_deep(Case(model=config.load("qwen3-30b-a3b")), Limits()).reason
    'hidden size 2048 over 48 layers is 43; trained mixtures of experts: 43 to 128'
    """
    if case.refusal:
        return Verdict.cannot(case)
    model, experts = case.model, shapes.has_experts(case.model)
    low, high = shapes.aspect_band(experts)
    aspect = model.hidden_size / shapes.depth(model)
    trained = "mixtures of experts" if experts else "dense models of 7 billion parameters on"
    reason = (
        f"hidden size {model.hidden_size} over {_layers(model)} is {aspect:.0f}; trained "
        f"{trained}: {low:.0f} to {high:.0f}"
    )
    if aspect >= low:
        return Verdict.of(reason)
    new = change(case, model=shapes.wider(model, low, ways=case.attention.tp * case.attention.kvp))
    if new is None or new.model.hidden_size / shapes.depth(new.model) < low:
        reason += "; a wider sibling does not run under these plans"
        return Verdict(status="not modelled", reason=reason)
    cost = max(0.0, (_besides_scores(case) - _besides_scores(new)) / case.seconds)
    status = limits.grade(cost)
    if status == "ok":
        return Verdict.of(f"{reason}; the depth costs {percent(cost)} of the step")
    wide, fix = new.model, None
    if _near(model, wide):
        text = f"{len(wide.blocks)} layers of hidden size {wide.hidden_size}"
        more = wide.hidden_size / model.hidden_size - 1
        fix = _no_slower(Fix(text=text, case=new, before=case, width=more))
    finding = Finding(
        dimension="layers",
        value=_layers(model).removesuffix(" layers"),
        rule=f"hidden size over layers at least {low:.0f}",
        status=status,
        cost=cost,
        fixes=some(fix),
    )
    return Verdict.of(reason, [finding])


def _layers(model):
    """Layers of a model as `shapes.depth` counts them, in words."""
    depth, blocks = shapes.depth(model), len(model.blocks)
    if depth == blocks:
        return f"{depth} layers"
    return f"{depth} layers of a mixer and a feed-forward part ({blocks} in the config)"


def _besides_scores(case):
    """Time of the step without the scores of attention [s]."""
    return case.seconds - float(case.breakdown.terms["attention"])


def low_precision(case, limits):
    """Guideline 4: the lowest precision that the device multiplies, against the one in use, and a
    cache in FP8; each alone, so that neither is blamed for the other.

    Blames the recipe or the cache. FP8 and NVFP4 are tried where the device has them, INT4 weights
    where it has neither; where it has FP8 alone the reason says what they would save, by a
    stand-in. The cache's format is the server's to choose and is warned of at most. What a format
    costs in accuracy no time model knows: published scores are laid beside. Source: chapter 4.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.verdict import Limits
    >>> from hwdesign.models import config
    >>> case = Case(model=config.load("llama-3.1-8b"), device="H100_SXM")
    >>> [finding.fix.text for finding in low_precision(case, Limits()).findings]
    ['recipe fp8', 'cache fp8']
    """
    if case.refusal:
        return Verdict.cannot(case)
    now = case.recipe
    reason = f"{now.name} on {case.device.name}"
    if now.weight_only:
        bits = now.weights.bits
        reason += (
            f"; weights of {bits} bits are expanded to BF16 in the kernel (Marlin or Triton), "
            f"timed as a BF16 kernel that reads {bits}-bit weights"
        )
        if any(f"recipe {now.name} takes" in note for note in case.breakdown.notes):
            reason += ": a stand-in, no table times it"
    if (kept := case.low("attention")) != now.weights:
        share = percent(case.breakdown.share("projections"))
        reason += f"; the checkpoint keeps attention in {kept.label}, {share} of the step"
    found = [_lower_products(case, limits), _lower_cache(case, limits)]
    told = [reason, *(text for text, _ in found if text)]
    return Verdict.of("; ".join(told), [finding for _, finding in found if finding])


def _lower_products(case, limits):
    """What a lower recipe would bring, in words, and a finding if that is much."""
    lower = _lower_recipes(case)
    best = min(lower, key=lambda new: new.seconds, default=None)
    stored = _stored(case, best, limits)
    if best is None:
        return f"the device multiplies nothing lower{stored}", None
    cost, name = case.gain(best), best.recipe.name
    status = limits.grade(cost)
    if status == "ok":
        return f"{name} would {_told(cost)}{stored}", None
    rule = "the lowest precision that the device multiplies"
    if best.recipe.weight_only:
        rule = "weights of fewer bits, expanded to BF16 in the kernel"
    finding = Finding(
        dimension="recipe",
        value=case.recipe.name,
        rule=rule,
        status=status,
        cost=cost,
        fixes=some(Fix(text=f"recipe {name}", case=best, before=case)),
    )
    return f"{name} saves {percent(cost)}{_scores(case.recipe, best.recipe)}{stored}", finding


def _told(gain):
    return f"save {percent(gain)}" if gain > 0 else f"add {percent(-gain)}"


def _lower_recipes(case):
    """The case in each lower recipe that the device multiplies, as a list; weights of four bits
    stay as they are stored.
    """
    rates, weights = case.device.dense_peak, case.recipe.weights
    if weights.bits <= PRECISIONS["int4"].bits:
        same = [form for form in RECIPES.values() if form.weights == weights]
        same = [form for form in same if form.name not in CALIBRATED_WITH]
        names = [form.name for form in same if form.math.rate in rates]
    else:
        names = [name for name, rate in LOWER.items() if rate in rates] or [STORED]
    found = []
    for name in names:
        new = change(case, recipe=name)
        if new and _bits(new.recipe) < _bits(case.recipe):
            found.append(new)
    return found


def _bits(recipe):
    return recipe.weights.bits + recipe.math.bits


def _stored(case, best, limits):
    """What weights alone in four bits would save beyond the best multiplied format, in words;
    nothing where it is little, or the device multiplies four bits or no eight.
    """
    rates = case.device.dense_peak
    if LOWER["nvfp4"] in rates or LOWER["fp8"] not in rates:
        return ""
    new = change(case, recipe=STORED)
    if new is None or new.recipe.weights.bits >= case.recipe.weights.bits:
        return ""
    gain = case.gain(new)
    if gain < limits.warn or (best and best.seconds <= new.seconds):
        return ""
    return (
        f"; weights alone in four bits ({STORED}) would save {percent(gain)}, by a BF16 kernel as "
        "a stand-in: no table times it"
    )


def _scores(wide, narrow):
    """Published changes of scores from one recipe to another, in words."""
    if wide.weight_only or narrow.weight_only:
        return ""
    wide, narrow = (form.weights.name.partition("_")[0] for form in (wide, narrow))
    scores = score_changes(wide, narrow)
    if not scores:
        return f" (no published score from {wide} to {narrow} in chapter 4)"
    told = []
    for model, name, points in scores:
        points = round(points, 1) + 0.0  # no minus before a zero
        told.append(f"{points:+.1f} points of {name} in {model.replace(',', '')}")
    return f" (published, {wide} to {narrow}: {', '.join(told)})"


def _lower_cache(case, limits):
    """What a cache in FP8 would bring, in words, and a finding if that is much; nothing where it
    has no more bits, or the device multiplies no FP8.
    """
    if case.cache.bits <= FP8.bits or LOWER["fp8"] not in case.device.dense_peak:
        return "", None
    new = change(case, cache=FP8)
    cost = case.gain(new)
    told = f"a cache in {FP8.name} would {_told(cost)}"
    if limits.grade(cost) == "ok":
        return told, None
    text = f"cache {FP8.name}"
    if new.cache_option:
        text += f" with {new.cache_option}"
    finding = Finding(
        dimension="cache",
        value=case.cache.name,
        rule=f"{FP8.bits} bits, if the answers allow it: a setting of the server, which is no part "
        "of the model",
        status="warn",
        cost=cost,
        fixes=some(Fix(text=text, case=new, before=case)),
    )
    return told, finding


def regular_layers(case, limits):
    """Guideline 6: layers that fall into equal pipeline stages; the cost is what GPUs wait for the
    slowest stage, in prefill of the case's prompt or in a decode step, whichever is more.

    Blames the layers, or the head in the last stage where equal ones would wait more than half as
    long; "not applicable" without stages. Stages hold equally many layers, cut as the engine cuts,
    if the case has no `split`. A prompt passes in chunks; the waits are those of all of them
    together. Source: chapter 6.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.verdict import Limits
    >>> from hwdesign.models import config
    >>> regular_layers(Case(model=config.load("llama-3.1-8b")), Limits()).status
    'not applicable'
    """
    stages, model = case.attention.pp, case.model
    if stages == 1:
        return Verdict.not_applicable("no pipeline: pp = 1")
    if case.refusal:
        return Verdict.cannot(case)
    split, uses = _split(case), _stage_uses(case)
    waits = _waits(uses, split)
    shown = split if stages <= 8 else dict.fromkeys(split)
    told = f"{len(model.blocks)} in stages of {', '.join(map(str, shown))}"
    kinds = len(model.block_counts)
    reason = (
        f"layers: {told}; {f'{kinds} kinds of layers' if kinds > 1 else 'all alike'}; GPUs wait "
        f"{percent(waits['prefill'])} of the time in prefill, {percent(waits['decode'])} in decode"
    )
    graded, sibling = _graded(case, split, waits, limits)
    if not graded:
        return Verdict.of(reason)
    cuts, after = _best_cut(uses, stages)
    cut_fix, most, left = None, max(waits.values()), max(after.values())
    if left < most and percent(left) != percent(most):
        reason += f"; cut by time into {', '.join(map(str, cuts))} they wait {percent(left)}"
        helps = limits.grade(left) == "ok" or most - left >= limits.warn
        cut_fix = _cut_fix(case, cuts) if helps else None
    values = {"layers": told, "last stage": f"the head besides {split[-1]} layers"}
    equal_fix = {"layers": _equal_stages(case, sibling)}
    shorter = {
        dimension: max(after[use] for use in blamed) < cost
        for dimension, (_, cost, blamed) in graded.items()
    }
    findings = [
        Finding(
            dimension=dimension,
            value=values[dimension],
            rule=STAGES[dimension],
            status=status,
            cost=cost,
            fixes=some(cut_fix if shorter[dimension] else None, equal_fix.get(dimension)),
            subject="layers",
        )
        for dimension, (status, cost, _) in graded.items()
    ]
    return Verdict.of(reason, findings)


STAGES = {
    "layers": "every stage holds the same layers",
    "last stage": "every stage takes the same time",
}


def _split(case):
    """Layers of each stage."""
    if case.split is not None:
        return case.split
    extra = case.engine.extra_layers
    return stage_layers(len(case.model.blocks), case.attention.pp, extra=extra)


def _graded(case, split, waits, limits):
    """What is blamed, each with its status, the longest wait that it causes and the uses where it
    is to blame, as a dict; and the sibling with equal stages, None without one.

    That is the layers where equal stages would wait half as long at most, else the head in the last
    stage. Stages that differ are warned of whatever they cost, if nobody chose them.
    """
    sibling, blamed = None, dict.fromkeys(waits, "last stage")
    if len(set(shapes.stage_blocks(case.model, split))) > 1:
        sibling = _regular(case)
        equal = _waits(_stage_uses(sibling), _split(sibling)) if sibling else {}
        for use, wait in waits.items():
            if equal.get(use, 0.0) <= wait / 2:
                blamed[use] = "layers"
    graded = {}
    for dimension in dict.fromkeys(blamed.values()):
        uses = [use for use in waits if blamed[use] == dimension]
        cost = max(waits[use] for use in uses)
        least = "warn" if dimension == "layers" and case.split is None else "ok"
        status = limits.grade(cost, least)
        if status != "ok":
            graded[dimension] = status, cost, uses
    return graded, sibling


def _regular(case):
    """The case with equal stages, by the sibling that changes the parameters least; None where it
    does not run.
    """
    model, stages = case.model, case.attention.pp
    siblings = [shapes.regular(base, stages) for base in (model, shapes.alike(model))]
    return change(case, model=min(siblings, key=lambda new: _off(model, new)))


def _off(model, sibling):
    return abs(sibling.parameters / model.parameters - 1)


def _equal_stages(case, new):
    """The fix by a sibling with equal stages; None where it is another model or slower."""
    if new is None or not _near(case.model, new.model):
        return None
    kinds = [block.kind for block in new.model.block_counts]
    counts = []
    for block, n in new.model.block_counts.items():
        wide = f" {block.ffn.width}" if kinds.count(block.kind) > 1 and block.ffn else ""
        counts.append(f"{n} x {block.kind}{wide}")
    text = f"{len(new.model.blocks)} layers in {case.attention.pp} equal stages: "
    return _no_slower(Fix(text=text + ", ".join(counts), case=new, before=case))


def _cut_fix(case, cuts):
    """The fix by other cuts between the same layers."""
    text = f"stages of {', '.join(map(str, cuts))} layers"
    if case.engine.cut_option:
        text += f" ({case.engine.cut_option} of {case.engine.label})"
    return Fix(text=text, case=replace(case, split=cuts), before=case)


def _best_cut(uses, stages):
    """The cut that is best for all uses together, each scaled to one, and the wait that it leaves
    in each.
    """
    totals = {use: times.sum() + rest for use, (times, rest) in uses.items()}
    times = sum(times / totals[use] for use, (times, _) in uses.items())
    rest = sum(rest / totals[use] for use, (_, rest) in uses.items())
    cuts = split_layers(times, stages, last=rest)
    return cuts, _waits(uses, cuts)


def _stage_uses(case):
    """Of a prompt and of a decode step: time of each block, and of what is besides them [s]."""
    size = CHUNK * -(-case.prompt // (CHUNK * MOST_CHUNKS))
    starts = range(0, case.prompt, size)
    chunks = tuple((start, min(start + size, case.prompt)) for start in starts)
    step_batch = -(-case.batch // case.attention.pp)  # a batch is cut into as many as stages
    return {
        "prefill": _block_times(case, chunks, case.attention.dp),
        "decode": _block_times(case, ((case.context - 1, case.context),), step_batch),
    }


def _block_times(case, chunks, batch):
    """Time of each block over all these chunks, each from its first token to its last, and of what
    is besides them [s].
    """
    attention, ffn = replace(case.attention, pp=1), replace(case.ffn, pp=1)
    names = (field.name for field in fields(case.model) if field.name != "blocks")
    outside = tuple(getattr(case.model, name) for name in names)
    known = _known(outside, case.device, case.recipe, case.engine, attention, ffn, chunks, batch)
    missing = tuple(block for block in case.model.block_counts if block not in known)
    if missing:
        cached, context = np.array(chunks).T
        load = {"context": context, "cached": cached, "batch": batch, "engine": case.engine}
        model, plans = replace(case.model, blocks=missing), {"attention": attention, "ffn": ffn}
        times, rest = block_times(model, case.device, case.recipe, **load, **plans)
        known.update(zip(missing, times.sum(axis=1), strict=True))
        known.setdefault("rest", float(np.sum(rest)))
    return np.array([known[block] for block in case.model.blocks]), known["rest"]


@functools.lru_cache(maxsize=256)
def _known(outside, device, recipe, engine, attention, ffn, chunks, batch):
    """What is known of single blocks, for all siblings of a model: block to time [s], and "rest";
    most fixes change one kind of blocks.
    """
    return {}


def _waits(uses, split):
    """Share of the time that GPUs wait for the slowest stage in each use [dimensionless]."""
    waits = {}
    for use, (times, rest) in uses.items():
        stages = np.array([part.sum() for part in np.split(times, np.cumsum(split)[:-1])])
        stages[-1] += rest
        waits[use] = float(1 - stages.mean() / stages.max())
    return waits
