"""Six of the guidelines as rules, each from a case and limits to a verdict without a number;
guideline 2 has a file of its own.
"""

from dataclasses import replace

import numpy as np

from hwdesign.advice import shapes
from hwdesign.advice.case import change, plan_text, ways_text
from hwdesign.advice.verdict import MOST, Finding, Fix, Verdict, percent
from hwdesign.formulas.pipeline import split_layers, stage_layers
from hwdesign.models.steps import step
from hwdesign.timing.pipeline import block_times

CHUNK = 8192  # tokens of the prompt that guideline 6 times [token]
SQUARER = {  # dimension -> the sibling in which it is nearer to square
    "expert width": shapes.merged_experts,
    "feed-forward width": shapes.squarer,
}
LOWER = {"fp8": "fp8", "nvfp4": "fp4"}  # recipe -> the rate that a device needs for it


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


def _shape_finding(case, new, dimension, limits):
    routed = dimension == "expert width"
    old, now = _first_ffn(case.model, routed), _first_ffn(new.model, routed)
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
        fix=Fix(text=text, case=new, before=case),
    )


def _first_ffn(model, routed):
    """The first feed-forward part of a model that has experts, or the first that has none."""
    return next(b.ffn for b in model.blocks if b.ffn and b.ffn.routed == routed)


def wide_over_deep(case, limits):
    """Guideline 3: hidden size over layers not below the band of shipped dense models, against a
    wider sibling.

    Blames the number of layers. Scores and cache are taken out of the cost: a sibling with fewer
    layers also has a smaller cache, which is another change. What depth is worth for quality no
    time model knows. Source: chapter 3.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.verdict import Limits
    >>> from hwdesign.models import config
    >>> wide_over_deep(Case(model=config.load("llama-3.1-8b")), Limits()).reason
    'hidden size over layers is 128; shipped dense models of 7 billion parameters on: 87 to 140'
    """
    if case.refusal:
        return Verdict.cannot(case)
    model = case.model
    low, high = shapes.aspect_band()
    aspect = model.hidden_size / shapes.depth(model)
    reason = (
        f"hidden size over layers is {aspect:.0f}; shipped dense models of 7 billion "
        f"parameters on: {low:.0f} to {high:.0f}"
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
        fix = Fix(text=text, case=new, before=case, width=more)
    finding = Finding(
        dimension="layers",
        value=str(len(model.blocks)),
        rule=f"hidden size over layers at least {low:.0f}",
        status=status,
        cost=cost,
        fix=fix,
    )
    return Verdict.of(reason, [finding])


def _besides_scores(case):
    """Time of the step without the scores of attention [s]."""
    return case.seconds - float(case.breakdown.terms["attention"])


def low_precision(case, limits):
    """Guideline 4: the lowest precision that the device multiplies, against the one in use.

    Blames the recipe. FP8 and NVFP4 are tried where the device has them, INT4 weights where it has
    neither. What a format costs in accuracy no time model knows; chapter 4 lays published scores
    beside it. Source: chapter 4.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.verdict import Limits
    >>> from hwdesign.models import config
    >>> case = Case(model=config.load("llama-3.1-8b"), device="H100_SXM")
    >>> low_precision(case, Limits()).findings[0].fix.text
    'recipe fp8'
    """
    if case.refusal:
        return Verdict.cannot(case)
    now = case.recipe
    reason = f"{now.name} on {case.device.name}"
    if (kept := case.low("attention")) != now.weights:
        share = percent(case.breakdown.share("projections"))
        reason += f"; the checkpoint keeps attention in {kept.label}, {share} of the step"
    lower = _lower_recipes(case)
    if not lower:
        return Verdict.of(f"{reason}; the device multiplies nothing lower")
    best = min(lower, key=lambda new: new.seconds)
    cost = case.gain(best)
    status = limits.grade(cost)
    if status == "ok":
        told = f"save {percent(cost)}" if cost > 0 else f"add {percent(-cost)}"
        return Verdict.of(f"{reason}; {best.recipe.name} would {told}")
    finding = Finding(
        dimension="recipe",
        value=now.name,
        rule="the lowest precision that the device multiplies",
        status=status,
        cost=cost,
        fix=Fix(text=f"recipe {best.recipe.name}", case=best, before=case),
    )
    return Verdict.of(f"{reason}; {best.recipe.name} saves {percent(cost)}", [finding])


def _lower_recipes(case):
    """The case in each lower recipe that the device multiplies, as a list."""
    names = [name for name, rate in LOWER.items() if rate in case.device.dense_peak]
    found = []
    for name in names or ["w4a16"]:
        new = change(case, recipe=name)
        if new and _bits(new.recipe) < _bits(case.recipe):
            found.append(new)
    return found


def _bits(recipe):
    return recipe.weights.bits + recipe.math.bits


def wide_experts(case, limits):
    """Guideline 5: experts spread whole over the GPUs, against every other plan of them on the same
    GPUs.

    Blames the feed-forward plan; "not applicable" without experts or with one GPU. Routing is
    uniform. Source: chapter 5.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.verdict import Limits
    >>> from hwdesign.models import config
    >>> wide_experts(Case(model=config.load("llama-3.1-8b")), Limits()).status
    'not applicable'
    """
    if not _has_experts(case.model):
        return Verdict.not_applicable("a dense model has no experts")
    if case.gpus == case.attention.pp:
        return Verdict.not_applicable("one GPU holds all experts of a layer")
    if case.refusal and case.refusal.part != "experts":
        return Verdict.cannot(case)
    best = case.fastest([(a, ffn) for a, ffn in case.layouts() if a == case.attention])
    if case.refusal:
        rule = "the GPUs of ep divide the experts"
        finding = _plan_finding(case, best, "ffn", rule, "warn", None)
        return Verdict.of(str(case.refusal), [finding])
    experts = _first_ffn(case.model, routed=True)
    rows = case.batch * experts.top_k / experts.num_experts
    reason = (
        f"each expert sees {rows:.3g} of {case.batch} tokens; ep = {case.ffn.ep}, "
        f"tp = {case.ffn.tp}{_wider_ep(case, limits)}"
    )
    cost = case.gain(best) if best else None
    status = limits.grade(cost)
    if status == "ok":
        return Verdict.of(reason)
    rule = "the fastest plan of the experts on these GPUs"
    finding = _plan_finding(case, best, "ffn", rule, status, cost)
    return Verdict.of(f"{reason}; another plan saves {percent(cost)}", [finding])


def _has_experts(model):
    return any(block.routed for block in model.block_counts)


def _wider_ep(case, limits):
    """What more GPUs at the same load of each would do, in words; nothing where it is little."""
    room = (case.device.link_domain or 1) * case.attention.pp // case.gpus
    if room < 2 or case.ffn.ep == 1:
        return ""
    times = 2 ** (room.bit_length() - 1)  # the largest power of two that there is room for
    new = change(
        case,
        batch=case.batch * times,
        attention=replace(case.attention, dp=case.attention.dp * times),
        ffn=replace(case.ffn, ep=case.ffn.ep * times),
    )
    if new is None or case.gain(new) < limits.warn:
        return ""
    return (
        f"; over {new.gpus} GPUs with as many tokens on each, the step would take "
        f"{percent(case.gain(new))} less"
    )


def _plan_finding(case, best, part, rule, status, cost):
    """That a part's plan is not the best, which may be None."""
    fix = None
    if best:
        fix = Fix(text=plan_text(best.attention, best.ffn), case=best, before=case)
    return Finding(
        dimension=f"{part} plan",
        value=ways_text(getattr(case, part)),
        rule=rule,
        status=status,
        cost=cost,
        fix=fix,
    )


def regular_layers(case, limits):
    """Guideline 6: layers that fall into equal pipeline stages; the cost is what GPUs wait for the
    slowest stage in prefill of the case's `context`.

    Blames the layers; "not applicable" without stages. Stages hold equally many layers, cut as vLLM
    cuts; the free way out, other cuts, is named in the reason. Timed is the first chunk of a
    prompt. Stages are blamed only if equal ones would wait less, which the head in the last one can
    prevent. Source: chapter 6.

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
    split = stage_layers(len(model.blocks), stages, extra="middle")
    times, rest = _block_times(case)
    cost = _idle(times, rest, split)
    unequal, sibling = _unequal(case, split, cost)
    status = limits.grade(cost, "warn" if unequal else "ok")
    shown = split if stages <= 8 else dict.fromkeys(split)
    told = f"{len(model.blocks)} in stages of {', '.join(map(str, shown))}"
    kinds = len(model.block_counts)
    alike = f"{kinds} kinds of layers" if kinds > 1 else "all alike"
    reason = f"layers: {told}; {alike}; GPUs wait {percent(cost)} of the time"
    if status == "ok":
        return Verdict.of(reason)
    reason += _free_cuts(times, rest, stages, cost)
    if unequal:
        dimension, value, rule = "layers", told, "every stage holds the same layers"
    else:
        dimension, value = "last stage", f"the head besides {split[-1]} layers"
        rule = "every stage takes the same time"
    finding = Finding(
        dimension=dimension,
        value=value,
        rule=rule,
        status=status,
        cost=cost,
        fix=_equal_stages(case, sibling) if unequal and sibling else None,
        subject="layers",
    )
    return Verdict.of(reason, [finding])


def _unequal(case, split, cost):
    """Whether stages differ although equal ones would wait less than `cost`, and the sibling with
    equal stages; None where there is none that runs.
    """
    if len(set(shapes.stage_blocks(case.model, split))) == 1:
        return False, None
    new = change(case, model=shapes.regular(case.model, case.attention.pp))
    if new is None:
        return True, None
    equal_split = stage_layers(len(new.model.blocks), case.attention.pp, extra="middle")
    equal = _idle(*_block_times(new), equal_split)
    # The last of the equal stages, which has the head besides, can be longer still.
    return equal < cost - 1e-9, new


def _equal_stages(case, new):
    """The fix by a sibling with equal stages; None where it is another model."""
    if not _near(case.model, new.model):
        return None
    counts = ", ".join(f"{n} x {block.kind}" for block, n in new.model.block_counts.items())
    text = f"{len(new.model.blocks)} layers in {case.attention.pp} equal stages: {counts}"
    return Fix(text=text, case=new, before=case)


def _free_cuts(times, rest, stages, cost):
    """Which other cuts between the same layers would wait less than `cost`, in words."""
    cuts = split_layers(times, stages, last=rest)
    left = _idle(times, rest, cuts)
    if left >= cost:
        return ""
    places = ", ".join(map(str, np.cumsum(cuts)[:-1]))
    return f"; cuts after layers {places} are free and leave {percent(left)}"


def _block_times(case):
    """Time of each block in the first chunk of a prompt, and of what is besides them [s]."""
    return block_times(
        case.model,
        case.device,
        case.recipe,
        context=min(CHUNK, case.context),
        attention=replace(case.attention, pp=1),
        ffn=replace(case.ffn, pp=1),
        batch=case.attention.dp,
    )


def _idle(times, rest, split):
    """Share of the time that GPUs wait for the slowest stage [dimensionless]."""
    stages = np.array([part.sum() for part in np.split(times, np.cumsum(split)[:-1])])
    stages[-1] += rest
    return float(1 - stages.mean() / stages.max())


def decoupled(case, limits):
    """Guideline 7: attention spread in its own way, against every other attention plan on the same
    GPUs.

    Blames the attention plan; "not applicable" on one GPU. Source: chapter 7.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.verdict import Limits
    >>> from hwdesign.models import config
    >>> decoupled(Case(model=config.load("llama-3.1-8b")), Limits()).status
    'not applicable'
    """
    if case.gpus == case.attention.pp:
        return Verdict.not_applicable("one GPU: attention and feed-forward part share it")
    if case.refusal:
        return Verdict.cannot(case)
    copies = _copies(case)
    noun = "GPUs" if copies > 1 else "GPU"
    reason = f"each token's cache lies on {copies:.3g} {noun}"
    best = case.fastest(_same_ffn(case))
    cost = case.gain(best) if best else None
    status = limits.grade(cost)
    if status == "ok":
        return Verdict.of(reason)
    rule = "the fastest plan of attention on these GPUs"
    finding = _plan_finding(case, best, "attention", rule, status, cost)
    return Verdict.of(f"{reason}; another plan of attention saves {percent(cost)}", [finding])


def _same_ffn(case):
    """Pairs of plans with this feed-forward plan; whole copies of a dense model, which no layout
    has, are compared with all.
    """
    pairs = case.layouts()
    if case.ffn.dp == 1:
        same = (case.ffn.tp, case.ffn.ep)
        return [(attention, ffn) for attention, ffn in pairs if (ffn.tp, ffn.ep) == same]
    if not _has_experts(case.model):
        return pairs
    plans = dict.fromkeys(attention for attention, _ in pairs)
    return [(plan, case.ffn) for plan in plans if change(case, attention=plan)]


def _copies(case):
    """GPUs that hold the same part of the cache, at most over the kinds of layers."""
    most = 1.0
    for block in case.model.block_counts:
        if block.mixer and block.mixer.cache_elements:
            heads = getattr(block.mixer, "num_kv_heads", 1)
            most = max(most, case.attention.tp / heads)
    return most
