"""Guidelines 5 and 7 as rules: the plans of the experts and of attention against every other plan
on the same GPUs.
"""

import itertools
from dataclasses import dataclass, replace

from hwdesign.advice.breaks import (
    breaks,
    broken,
    loading_engines,
    loads,
    nearest_ways,
    refused_by,
)
from hwdesign.advice.case import change, plan_text, ways_text
from hwdesign.advice.shapes import first_ffn, has_experts
from hwdesign.advice.verdict import Finding, Fix, Verdict, percent, some
from hwdesign.advice.widths import nearest_cases
from hwdesign.catalogue.engine import engine as as_engine
from hwdesign.models.parts import FeedForward, multiples_near

DOUBLINGS = 6  # of the GPUs that are tried to hold a model


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
    pairs = [(a, ffn) for a, ffn in case.layouts() if a == case.attention]
    if case.refusal:
        return _experts_left_over(case, pairs)
    experts = first_ffn(case.model, routed=True)
    rows = case.batch * experts.used / experts.num_experts
    reason = (
        f"each expert sees {rows:.3g} of {case.batch} tokens; ep = {case.ffn.ep}, "
        f"tp = {case.ffn.tp}{_wider_ep(case, limits)}"
    )
    return _against(case, pairs, reason, _Asked(part="ffn", noun="the experts"), limits)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """Which plan is compared: the field of a case, and what it spreads in words."""

    part: str
    noun: str


def _against(case, pairs, reason, asked, limits):
    """The verdict of a plan against others: the fastest that the case's engine runs, else, as a
    warning, the fastest that another one runs. What no engine runs is told and no more.
    """
    refused = broken(case).items()
    despite = {(s.kind, s.name) for s, rules in refused if any(breaks(case, r) for r in rules)}
    own, other, fastest = _fastest(case, pairs, despite)
    if not loading_engines(case):  # the shapes are judged elsewhere; a plan must be run by somebody
        own, other = (new if new and loading_engines(new) else None for new in (own, other))
    cost = own and case.gain(own)
    status, best, runs = limits.grade(cost), own, case.engine.label
    if status == "ok" and other and case.gain(other) >= limits.warn:
        cost, status, best = case.gain(other), "warn", other
        runs = _labels(loading_engines(other), "or")
    if status != "ok":
        reason += f"; another plan of {asked.noun} saves {percent(cost)}"
    reason += _untold(case, best if status != "ok" else None, other, fastest, limits)
    if status == "ok":
        return Verdict.of(reason)
    rule = f"the fastest plan of {asked.noun} on these GPUs with {runs}"
    finding = Finding(
        dimension=f"{asked.part} plan",
        value=ways_text(getattr(case, asked.part)),
        rule=rule,
        status=status,
        cost=cost,
        fixes=(_plan_fix(best, case),),
    )
    return Verdict.of(reason, [finding])


def _fastest(case, pairs, despite=()):
    """The fastest cases under these plans: that which the case's own engine runs, that which any
    engine runs, that which nobody need run; None where there is none. What is refused anyway does
    not count.
    """
    own = other = fastest = None
    for new in case.ranked(pairs):
        fastest = fastest or new
        if other is None and loading_engines(new, despite):
            other = new
        if loads(new, despite=despite):
            own = new
            break
    return own, other, fastest


def _untold(case, best, other, fastest, limits):
    """What faster plans would save that the case's engine or no engine runs, in words; nothing
    where it is little more than what is offered.
    """
    told, saved = "", case.gain(best) if best else 0.0
    if other and other is not best and case.gain(other) - saved >= limits.warn:
        saved = case.gain(other)
        engines = _labels(loading_engines(other))
        told += (
            f"; {engines} would save {percent(saved)} with {plan_text(other.attention, other.ffn)}"
        )
    if fastest and case.gain(fastest) - max(saved, 0.0) >= limits.warn:
        told += f"; a plan that no named engine runs would save {percent(case.gain(fastest))}"
    return told


def _labels(names, last="and"):
    """Engines in words."""
    return f" {last} ".join(as_engine(name).label for name in names)


def _plan_fix(new, case, more=""):
    """The fix by other plans."""
    return Fix(text=plan_text(new.attention, new.ffn) + more, case=new, before=case)


def _experts_left_over(case, pairs):
    """The verdict where the GPUs of ep do not divide the experts: a break where the case's engine
    refuses that; no time is known of it where it does not.
    """
    refused = {side: rules for side, rules in broken(case).items() if side.kind == "expert set"}
    breaking = any(breaks(case, rule) for rules in refused.values() for rule in rules)
    own, other, fastest = _fastest(case, pairs)
    new = own or other or fastest
    near = nearest_ways(case, "expert set", case.ffn.ep)
    finding = Finding(
        dimension="ffn plan",
        value=ways_text(case.ffn),
        rule="the GPUs of ep divide the experts",
        status="break" if breaking else "warn",
        fixes=some(new and _plan_fix(new, case, near), _other_experts(case)),
        refused_by=refused_by(case, refused),
    )
    uneven = (
        "" if breaking else f"; {case.engine.label} gives some GPUs one more, which is not timed"
    )
    return Verdict.of(f"{case.refusal}{uneven}", [finding])


def expert_cases(case):
    """The case with the nearest and the second nearest count of experts that the GPUs of ep divide,
    as a list; without those that are another model.

    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.models.steps import Plan
    >>> case = Case(model="mixtral-8x7b", attention=Plan(dp=3), ffn=Plan(ep=3))
    >>> [new.model.blocks[0].ffn.num_experts for new in expert_cases(case)]
    [9]
    """

    def near(part):
        if not (isinstance(part, FeedForward) and part.routed):
            return []
        counts = multiples_near(part.num_experts, case.ffn.ep)
        return [replace(part, num_experts=n) for n in counts if n >= part.top_k]

    return nearest_cases(case, near)


def _other_experts(case):
    """The fix by the nearest counts of experts that the GPUs of ep divide; None without any."""
    found = expert_cases(case)
    if not found:
        return None
    told = [first_ffn(new.model, routed=True).num_experts for new in found]
    also = f" (or {told[1]})" if told[1:] else ""
    return Fix(text=f"{told[0]} experts{also}", case=found[0], before=case)


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
    noun = "copies" if copies > 1 else "copy"
    reason = f"{copies:.3g} {noun} of each token's cache"
    return _against(
        case, _same_ffn(case), reason, _Asked(part="attention", noun="attention"), limits
    )


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
    """How many GPUs hold the same part of the cache, at most over the kinds of layers."""
    most = 1.0
    for block in case.model.block_counts:
        if block.mixer and block.mixer.cache_elements:
            heads = getattr(block.mixer, "num_kv_heads", 1)
            most = max(most, case.attention.tp / heads)
    return most


WORTH = 1.5  # times the tokens of a GPU from which fewer GPUs are worth a word


def enough(case):
    """A plan over more GPUs that holds a model which does not fit, and that the engine runs.

    Ways of attention are doubled, tensor parallel else, with experts, data parallel, and with them
    what the feed-forward part is cut by, else the ways in which experts are spread. The first
    number of GPUs that holds the model is taken, up to 64 times those of the case; None where there
    is none.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> enough(Case(model="deepseek-r1", recipe="nvfp4")).gpus
    2
    """
    inner, outer = ["ep" if case.ffn.ep > case.ffn.tp else "tp"], ["tp"]
    if has_experts(case.model):
        inner, outer = dict.fromkeys([*inner, "ep"]), ["tp", "dp"]
    for doubled in range(1, DOUBLINGS + 1):
        for more, less in itertools.product(outer, inner):
            try:
                new = replace(
                    case,
                    attention=_more(case.attention, more, doubled),
                    ffn=_more(case.ffn, less, doubled),
                )
            except ValueError:  # a device without a link
                return None
            if new.breakdown and new.breakdown.feasible and loads(new):
                return new
    return None


def _more(plan, way, doubled):
    """A plan with more ways of a kind, doubled so many times."""
    return replace(plan, **{way: getattr(plan, way) * 2**doubled})


def fewer_gpus(case):
    """How many of the GPUs would each give the most tokens, and how many times those of now.

    Parameters
    ----------
    case : Case
        Its plans are halved as long as they can be: groups of data first, then pieces of the cache,
        then ways of tensor parallelism.

    Returns
    -------
    tuple of (int, float) or None
        GPUs, and tokens per second of each against those of each today [dimensionless]; None where
        it is less than 1.5 times, nothing fits, or the plans cannot run.

    Notes
    -----
    The load stays the same, so that the step of fewer GPUs is longer. Source: the time model.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.models.steps import Plan
    >>> plans = {"attention": Plan(tp=8), "ffn": Plan(tp=8)}
    >>> gpus, times = fewer_gpus(Case(model="gpt-oss-20b", **plans))
    >>> gpus, times > 2
    (1, True)
    """
    if case.refusal or not case.breakdown.feasible:
        return None
    best, most = None, WORTH
    new = _halved(case)
    while new:
        if not new.refusal and new.breakdown.feasible and loads(new):
            times = case.seconds * case.gpus / (new.seconds * new.gpus)
            if times > most:
                best, most = (new.gpus, times), times
        new = _halved(new)
    return best


def _halved(case):
    """The same kind of plans over half as many GPUs; None where they are odd."""
    ways = {}
    for part, order in (("attention", ("dp", "kvp", "tp")), ("ffn", ("dp", "ep", "tp"))):
        plan = getattr(case, part)
        way = next((way for way in order if getattr(plan, way) % 2 == 0), None)
        if way is None:
            return None
        ways[part] = replace(plan, **{way: getattr(plan, way) // 2})
    return replace(case, **ways)
