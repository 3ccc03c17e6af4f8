"""Guidelines 5 and 7 as rules: the plans of the experts and of attention against every other plan
on the same GPUs.
"""

from dataclasses import replace

from hwdesign.advice.case import change, plan_text, ways_text
from hwdesign.advice.shapes import first_ffn, has_experts
from hwdesign.advice.verdict import Finding, Fix, Verdict, percent, some


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
    if not has_experts(case.model):
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
    experts = first_ffn(case.model, routed=True)
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
        fixes=some(fix),
    )


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
    if not has_experts(case.model):
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
