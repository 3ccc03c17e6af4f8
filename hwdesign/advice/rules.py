"""Six of the seven guidelines as rules, each from a case to a verdict; guideline 2 has a file of
its own.
"""

from dataclasses import replace

import numpy as np

from hwdesign.advice import shapes
from hwdesign.advice.case import change, plan_text
from hwdesign.advice.verdict import MOST, Finding, Fix, Verdict, percent
from hwdesign.advice.widths import multiples
from hwdesign.formulas.pipeline import split_layers, stage_layers
from hwdesign.models.blocks import DenseFFN, MoE
from hwdesign.models.steps import step
from hwdesign.timing.pipeline import block_times

CHUNK = 8192  # tokens of the prompt that guideline 6 times [token]


def near_square(case, limits):
    """Guideline 1: near-square products, no tiny N or K, against siblings of the same parameters.

    Parameters
    ----------
    case : Case
        What is judged.
    limits : Limits
        From which cost on [dimensionless].

    Returns
    -------
    Verdict
        Blames experts narrower than the hidden size, or a dense feed-forward width that is not
        within four times of it.

    Notes
    -----
    A width is blamed as long as the next sibling saves at least as much as a warning takes. That
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
        return Verdict.cannot(1, case)
    done = step(
        case.model, batch=case.batch, context=case.context, attention=case.attention, ffn=case.ffn
    )
    products = [
        g for g in done.gemms if g.part not in ("router", "head") and g.n > 1
    ]  # a gate has N = 1
    least = min(products, key=lambda g: min(g.n, g.k))
    reason = f"smallest side on a GPU: {least.name}, N = {least.n:.0f}, K = {least.k:.0f}"
    for dimension, sibling in (
        ("expert width", shapes.merged_experts),
        ("feed-forward width", shapes.squarer),
    ):
        last = case
        while (
            (model := _near(case.model, sibling(last.model)))
            and (new := change(last, model=model))
            and last.gain(new) >= limits.warn
        ):
            last = new
        if last is not case:
            return Verdict.of(1, reason, [_shape_finding(case, last, dimension, limits)])
    return Verdict.of(1, reason)


def _near(model, sibling):
    """A sibling of about as many parameters, else None."""
    return sibling if sibling and abs(sibling.parameters / model.parameters - 1) <= MOST else None


def _shape_finding(case, new, dimension, limits):
    kind = MoE if dimension == "expert width" else DenseFFN
    old, now = (next(b.ffn for b in c.model.blocks if isinstance(b.ffn, kind)) for c in (case, new))
    text = f"hidden size {new.model.hidden_size} with feed-forward width {now.width}"
    if kind is MoE:
        text = f"{now.num_experts} experts of width {now.width}, {now.top_k} of them for a token"
    cost, rule = case.gain(new), f"near the hidden size {case.model.hidden_size}"
    return Finding(
        guideline=1,
        dimension=dimension,
        value=str(old.width),
        rule=rule,
        status=limits.grade(cost),
        cost=cost,
        fix=Fix(text=text, case=new, before=case),
    )


def wide_over_deep(case, limits):
    """Guideline 3: hidden size over layers not below the band of shipped dense models, against a
    wider sibling.

    Parameters
    ----------
    case : Case
        What is judged.
    limits : Limits
        From which cost on [dimensionless].

    Returns
    -------
    Verdict
        Blames the number of layers.

    Notes
    -----
    Scores and cache are taken out of the cost: a sibling with fewer layers also has a smaller
    cache, which is another change. What depth is worth for quality no time model knows. Source:
    chapter 3.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.verdict import Limits
    >>> from hwdesign.models import config
    >>> wide_over_deep(Case(model=config.load("llama-3.1-8b")), Limits()).reason
    'hidden size over layers is 128; shipped dense models of 7 billion parameters on: 87 to 140'
    """
    if case.refusal:
        return Verdict.cannot(3, case)
    model, (low, high) = case.model, shapes.aspect_band()
    aspect = model.hidden_size / shapes.depth(model)
    reason = (
        f"hidden size over layers is {aspect:.0f}; shipped dense models of 7 billion "
        f"parameters on: {low:.0f} to {high:.0f}"
    )
    if aspect >= low:
        return Verdict.of(3, reason)
    new = change(case, model=shapes.wider(model, low, ways=case.attention.tp * case.attention.kvp))
    if not new or new.model.hidden_size / shapes.depth(new.model) < low:
        return Verdict(
            guideline=3,
            status="not modelled",
            reason=f"{reason}; a wider sibling does not run under these plans",
        )
    rest, less = (c.seconds - float(c.breakdown.terms["attention"]) for c in (case, new))
    cost, wide = max(0.0, (rest - less) / case.seconds), new.model
    if (status := limits.grade(cost)) == "ok":
        return Verdict.of(3, f"{reason}; the depth costs {percent(cost)} of the step")
    text, price = (
        f"{len(wide.blocks)} layers of hidden size {wide.hidden_size}",
        wide.hidden_size / model.hidden_size - 1,
    )
    fix = Fix(text=text, case=new, before=case, width=price) if _near(model, wide) else None
    rule = f"hidden size over layers at least {low:.0f}"
    finding = Finding(
        guideline=3,
        dimension="layers",
        value=str(len(model.blocks)),
        rule=rule,
        status=status,
        cost=cost,
        fix=fix,
    )
    return Verdict.of(3, reason, [finding])


def low_precision(case, limits):
    """Guideline 4: the lowest precision that the device multiplies, against the one in use.

    Parameters
    ----------
    case : Case
        What is judged.
    limits : Limits
        From which cost on [dimensionless].

    Returns
    -------
    Verdict
        Blames the recipe. FP8 and NVFP4 are tried where the device has them, INT4 weights where it
        has neither.

    Notes
    -----
    What a format costs in accuracy no time model knows; chapter 4 lays published scores beside it.
    Source: chapter 4.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.verdict import Limits
    >>> from hwdesign.models import config
    >>> low_precision(
    ...     Case(model=config.load("llama-3.1-8b"), device="H100_SXM"), Limits()
    ... ).findings[0].fix.text
    'recipe fp8'
    """
    if case.refusal:
        return Verdict.cannot(4, case)
    peaks, now = case.device.dense_peak, case.recipe
    names = [name for name, rate in (("fp8", "fp8"), ("nvfp4", "fp4")) if rate in peaks] or [
        "w4a16"
    ]
    tried = [
        new
        for name in names
        if (new := change(case, recipe=name)) and _bits(new.recipe) < _bits(now)
    ]
    reason = f"{now.name} on {case.device.name}"
    if "attention" not in case.model.low_precision_parts(now):
        reason += (
            "; the checkpoint keeps attention in BF16, "
            f"{percent(case.breakdown.share('projections'))} of the step"
        )
    if not tried:
        return Verdict.of(4, f"{reason}; the device multiplies nothing lower")
    best = min(tried, key=lambda new: new.seconds)
    cost = case.gain(best)
    if (status := limits.grade(cost)) == "ok":
        return Verdict.of(
            4,
            f"{reason}; {best.recipe.name} would "
            f"{f'save {percent(cost)}' if cost > 0 else f'add {percent(-cost)}'}",
        )
    reason += f"; {best.recipe.name} saves {percent(cost)}"
    fix = Fix(text=f"recipe {best.recipe.name}", case=best, before=case)
    rule = "the lowest precision that the device multiplies"
    finding = Finding(
        guideline=4,
        dimension="recipe",
        value=now.name,
        rule=rule,
        status=status,
        cost=cost,
        fix=fix,
    )
    return Verdict.of(4, reason, [finding])


def _bits(recipe):
    return recipe.weights.bits + recipe.math.bits


def wide_experts(case, limits):
    """Guideline 5: experts spread whole over the GPUs, against every other plan of them on the same
    GPUs.

    Parameters
    ----------
    case : Case
        What is judged.
    limits : Limits
        From which cost on [dimensionless].

    Returns
    -------
    Verdict
        Blames the feed-forward plan; "not applicable" without experts or with one GPU.

    Notes
    -----
    Routing is uniform.
    Source: chapter 5.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.verdict import Limits
    >>> from hwdesign.models import config
    >>> wide_experts(Case(model=config.load("llama-3.1-8b")), Limits()).status
    'not applicable'
    """
    experts = next((b.ffn for b in case.model.block_counts if isinstance(b.ffn, MoE)), None)
    if experts is None:
        return Verdict(guideline=5, status="not applicable", reason="a dense model has no experts")
    if case.gpus == case.attention.pp:
        return Verdict(
            guideline=5, status="not applicable", reason="one GPU holds all experts of a layer"
        )
    refused = bool(case.refusal) and "experts" in case.refusal
    if case.refusal and not refused:
        return Verdict.cannot(5, case)
    plan, rows = case.ffn, case.batch * experts.top_k / experts.num_experts
    reason = (
        case.refusal
        or f"each expert sees {rows:.3g} of {case.batch} tokens; ep = {plan.ep}, tp = {plan.tp}"
    )
    reason += _wider_ep(case, limits)
    best = case.fastest([(a, f) for a, f in case.layouts() if a == case.attention])
    cost = case.gain(best) if best and not refused else None
    if (status := limits.grade(cost, "warn" if refused else "ok")) == "ok":
        return Verdict.of(5, reason)
    reason += "" if refused else f"; another plan saves {percent(cost)}"
    rule = (
        "the GPUs of ep divide the experts"
        if refused
        else "the fastest plan of the experts on these GPUs"
    )
    return Verdict.of(5, reason, [_plan_finding(5, case, best, "ffn", rule, status, cost)])


def _wider_ep(case, limits):
    """What more GPUs at the same load of each would do, in words; nothing where it is little."""
    room = (case.device.link_domain or 1) * case.attention.pp // case.gpus
    times = 2 ** (room.bit_length() - 1) if room else 1
    if times < 2 or case.ffn.ep == 1 or case.refusal:
        return ""
    plans = {
        "attention": replace(case.attention, dp=case.attention.dp * times),
        "ffn": replace(case.ffn, ep=case.ffn.ep * times),
    }
    new = change(case, batch=case.batch * times, **plans)
    if not new or case.gain(new) < limits.warn:
        return ""
    return (
        f"; over {new.gpus} GPUs with as many tokens on each, the step would take "
        f"{percent(case.gain(new))} less"
    )


def _plan_finding(guideline, case, best, part, rule, status, cost):
    value = plan_text(case.attention, case.ffn).partition(f"--{part} ")[2].partition(" ")[0]
    fix = best and Fix(text=plan_text(best.attention, best.ffn), case=best, before=case)
    return Finding(
        guideline=guideline,
        dimension=f"{part} plan",
        value=value,
        rule=rule,
        status=status,
        cost=cost,
        fix=fix,
    )


def regular_layers(case, limits):
    """Guideline 6: layers that fall into equal pipeline stages; the cost is what GPUs wait for the
    slowest stage in prefill.

    Parameters
    ----------
    case : Case
        What is judged; its `context` is the prompt.
    limits : Limits
        From which cost on [dimensionless].

    Returns
    -------
    Verdict
        Blames the layers; "not applicable" without stages.

    Notes
    -----
    Stages hold equally many layers, cut as vLLM cuts; the free way out, other cuts, is named
    in the reason. Timed is the first chunk of a prompt. Stages are blamed only if equal ones would
    wait less, which the head in the last one can prevent. Source: chapter 6.

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
        return Verdict(guideline=6, status="not applicable", reason="no pipeline: pp = 1")
    if case.refusal:
        return Verdict.cannot(6, case)
    split = stage_layers(len(model.blocks), stages, extra="middle")
    times, rest = _block_times(case)
    cost = _idle(times, rest, split)
    unequal, new = len(set(shapes.stage_blocks(model, split))) > 1, None
    if unequal and (new := change(case, model=shapes.regular(model, stages))):
        equal_split = stage_layers(len(new.model.blocks), stages, extra="middle")
        equal = _idle(*_block_times(new), equal_split)
        unequal = (
            equal < cost - 1e-9
        )  # else the last of the equal stages, which has the head besides, is longer still
    kinds = len(model.block_counts)
    told = (
        f"{len(model.blocks)} in stages of "
        f"{', '.join(map(str, split if stages <= 8 else dict.fromkeys(split)))}"
    )
    reason = (
        f"layers: {told}; {f'{kinds} kinds of layers' if kinds > 1 else 'all alike'}; "
        f"GPUs wait {percent(cost)} of the time"
    )
    if (status := limits.grade(cost, "warn" if unequal else "ok")) == "ok":
        return Verdict.of(6, reason)
    cuts = split_layers(times, stages, last=rest)
    if (left := _idle(times, rest, cuts)) < cost:
        reason += (
            f"; cuts after layers {', '.join(map(str, np.cumsum(cuts)[:-1]))} are free "
            f"and leave {percent(left)}"
        )
    found = {"guideline": 6, "status": status, "cost": cost}
    if not unequal:
        value, rule = f"the head besides {split[-1]} layers", "every stage takes the same time"
        return Verdict.of(
            6, reason, [Finding(dimension="last stage", value=value, rule=rule, **found)]
        )
    counts = ", ".join(f"{n} x {block.kind}" for block, n in new.model.block_counts.items())
    text = f"{len(new.model.blocks)} layers in {stages} equal stages: {counts}"
    fix = Fix(text=text, case=new, before=case) if _near(model, new.model) else None
    rule = "every stage holds the same layers"
    return Verdict.of(
        6, reason, [Finding(dimension="layers", value=told, rule=rule, fix=fix, **found)]
    )


def _block_times(case):
    plans = {
        "attention": replace(case.attention, pp=1),
        "ffn": replace(case.ffn, pp=1),
        "batch": case.attention.dp,
    }
    return block_times(
        case.model, case.device, case.recipe, context=min(CHUNK, case.context), **plans
    )


def _idle(times, rest, split):
    """Share of the time that GPUs wait for the slowest stage [dimensionless]."""
    stages = np.array([part.sum() for part in np.split(times, np.cumsum(split)[:-1])])
    stages[-1] += rest
    return float(1 - stages.mean() / stages.max())


def decoupled(case, limits):
    """Guideline 7: attention spread in its own way, against every other attention plan on the same
    GPUs.

    Parameters
    ----------
    case : Case
        What is judged.
    limits : Limits
        From which cost on [dimensionless].

    Returns
    -------
    Verdict
        Blames the attention plan; "not applicable" on one GPU.

    Notes
    -----
    Source: chapter 7.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.verdict import Limits
    >>> from hwdesign.models import config
    >>> decoupled(Case(model=config.load("llama-3.1-8b")), Limits()).status
    'not applicable'
    """
    if case.gpus == case.attention.pp:
        return Verdict(
            guideline=7,
            status="not applicable",
            reason="one GPU: attention and feed-forward part share it",
        )
    if case.refusal:
        return Verdict.cannot(7, case)
    copies = _copies(case)
    reason = f"each token's cache lies on {copies:.3g} GPU{'s' if copies > 1 else ''}"
    best = case.fastest(_same_ffn(case))
    cost = case.gain(best) if best else None
    if (status := limits.grade(cost)) == "ok":
        return Verdict.of(7, reason)
    reason += f"; another plan of attention saves {percent(cost)}"
    rule = "the fastest plan of attention on these GPUs"
    return Verdict.of(7, reason, [_plan_finding(7, case, best, "attention", rule, status, cost)])


def _same_ffn(case):
    """Pairs of plans with this feed-forward plan; whole copies of a dense model, which no layout
    has, are compared with all.
    """
    pairs, copies = case.layouts(), case.ffn.dp > 1
    if copies and any(isinstance(b.ffn, MoE) for b in case.model.block_counts):
        each = [(a, case.ffn) for a in dict.fromkeys(a for a, _ in pairs)]
        return [(a, f) for a, f in each if change(case, attention=a)]
    return [(a, f) for a, f in pairs if copies or (f.tp, f.ep) == (case.ffn.tp, case.ffn.ep)]


def _copies(case):
    """GPUs that hold the same part of the cache, at most over the kinds of layers."""
    kv = [
        getattr(b.mixer, "num_kv_heads", 1)
        for b in case.model.block_counts
        if b.mixer and b.mixer.cache_elements
    ]
    return max((max(1.0, case.attention.tp / n) for n in kv), default=1.0)


RULES = {
    1: near_square,
    2: multiples,
    3: wide_over_deep,
    4: low_precision,
    5: wide_experts,
    6: regular_layers,
    7: decoupled,
}
