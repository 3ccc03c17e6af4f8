"""Guideline 2 as a rule: which widths and head counts of a model do the plans cut badly?"""

from dataclasses import replace

from hwdesign.advice.case import change, plan_text
from hwdesign.advice.shapes import mapped
from hwdesign.advice.verdict import Finding, Fix, Verdict, some
from hwdesign.models.parts import QUANTIZED, TERM_OF, Shard
from hwdesign.models.sharding import width_tiers

WHY = {
    "format": "whole scale blocks",
    "kernel": "rows in pieces of 16 bytes",
    "tile 128": "full tiles",
}
MODEL_FIELDS = ("hidden_size", "vocab_size")
WIDTH_TERMS = ("ffn", "experts", "projections", "head")  # that the hidden size is in
BETTER = ("tile 256", "tile 512")  # worth having, but no rule


def multiples(case, limits):
    """Guideline 2: widths in multiples of 128 after the split, scale blocks and rows not cut, heads
    that divide.

    A finding for each width, vocabulary or head count that breaks a tier of `width_tiers`. The cost
    is what the width's part of the step would save if each parameter took the time that it takes at
    the next good width. A vocabulary, which is looked at as a whole, and experts in four bits are
    never a failure: engines pad both. Not looked at: the rotary part of a latent, which engines
    multiply together with the queries' latent. Source: chapter 2.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.verdict import Limits
    >>> from hwdesign.models import config
    >>> verdict = multiples(Case(model=config.load("gpt2")), Limits())
    >>> verdict.status, verdict.findings[0].fix.text
    ('warn', 'vocabulary 50304')
    """
    about_heads = _heads(case)
    if case.refusal:
        return Verdict.of(str(case.refusal), about_heads) if about_heads else Verdict.cannot(case)
    about_widths, passed = [], []
    for shard in _widths(case):
        tiers = width_tiers(shard.width, shard.ways, case.low(shard.part)).values()
        kept = [tier.multiple for tier in tiers if tier.ok]
        broken = [tier for tier in tiers if not tier.ok and tier.name not in BETTER]
        passed += kept[-1:]
        if broken:
            about_widths.append(_finding(case, shard, broken, limits))
    if about_widths:
        reason = "some shares are no multiples of 128"
    else:
        reason = f"all shares of widths are multiples of {min(passed)}"
    if about_heads:
        reason = f"heads do not spread evenly; {reason}"
    return Verdict.of(reason, about_heads + about_widths)


def _widths(case):
    """What is checked, as a list of `Shard`, each once."""
    model = case.model
    form = case.recipe.weights
    low = [part for part in QUANTIZED if case.low(part) == form]
    first = next((part for part in model.parameters_by_part() if part in low), "head")
    hidden = Shard(
        name="hidden size", field="hidden_size", width=model.hidden_size, ways=1, part=first
    )
    vocabulary = Shard(
        name="vocabulary", field="vocab_size", width=model.vocab_size, ways=1, part="head"
    )
    found = [hidden, vocabulary] if model.lm_head else [hidden]
    for block in model.block_counts:
        for part in (block.ffn, block.mixer):
            if part:
                found += part.shards(case.attention, case.ffn)
    return list(dict.fromkeys(found))


def _finding(case, shard, broken, limits):
    """What is said of a width whose shares break these tiers, the strictest rule last."""
    first, good = broken[0], broken[-1].next_width
    model = _resized(case, shard, good)
    new = change(case, model=model)
    cost = new and _waste(case, new, shard)
    text = f"{shard.name} {good}"
    if shard.name == "query heads":
        heads = _first_changed_mixer(case.model, model)
        good, text = heads.num_heads * heads.head_dim, f"{heads.num_heads} query heads"
    fix = new and Fix(text=text, case=new, before=case, width=good / shard.width - 1)
    value, each = str(shard.width), ""
    if shard.ways > 1:
        value = f"{shard.width} / {shard.ways} = {first.local:g}"
        each = f" on each of {shard.ways} GPUs"
        if shard.part == "experts":
            fix = _less_cut(case, shard, good) or fix
    least = "warn" if _padded(case, shard) or first.name.startswith("tile") else "fail"
    return Finding(
        dimension=shard.name,
        value=value,
        rule=f"multiples of {first.multiple}{each}, for {WHY[first.name]}",
        status=limits.grade(cost, least),
        cost=cost,
        fixes=some(fix),
    )


def _padded(case, shard):
    """Whether engines pad this width: a vocabulary, and experts in four bits."""
    if shard.part == "experts":
        return case.low("experts").bits == 4 and case.recipe.math.bits == 4
    return shard.name == "vocabulary"


def _first_changed_mixer(old, new):
    pairs = zip(old.blocks, new.blocks, strict=True)
    return next(after.mixer for before, after in pairs if before != after)


def _less_cut(case, shard, most):
    """The fix that cuts experts into fewer pieces and so widens them least; None where none stays
    below `most`.
    """
    good = {}
    for attention, ffn in case.layouts():
        tile = width_tiers(shard.width, ffn.tp, case.low("experts"))["tile 128"]
        if attention == case.attention and tile.next_width < most:
            good.setdefault(tile.next_width, []).append((attention, ffn))
    for width, pairs in sorted(good.items()):
        new = replace(case, model=_resized(case, shard, width)).fastest(pairs)
        if new and (new.breakdown.feasible or not case.breakdown.feasible):
            wider = f"expert width {width}, " if width > shard.width else ""
            text = f"{wider}experts less cut: {plan_text(new.attention, new.ffn)}"
            return Fix(text=text, case=new, before=case, width=width / shard.width - 1)
    return None


def _waste(case, new, shard):
    """Share of the step that is saved if each parameter takes the time that it takes at the new
    width [dimensionless].
    """
    terms = WIDTH_TERMS if shard.field == "hidden_size" else (TERM_OF[shard.part],)
    saved = 0.0
    for term in terms:
        before, after = _carried(case.model, term), _carried(new.model, term)
        saved += case.breakdown.terms[term] - new.breakdown.terms[term] * before / after
    return max(0.0, float(saved / case.seconds))


def _carried(model, term):
    """Parameters behind a term of the step; a head that is the embedding counts by its rows."""
    counts = model.parameters_by_part()
    behind = (part for part in TERM_OF if TERM_OF[part] == term and part in (*QUANTIZED, "head"))
    return sum(counts.get(part, 0) for part in behind) or model.vocab_size * model.hidden_size


def _resized(case, shard, width):
    """The model with another width; query heads come in whole groups."""
    if shard.field in MODEL_FIELDS:
        return replace(case.model, **{shard.field: width})

    def other(part):
        mine = part is not None and shard in part.shards(case.attention, case.ffn)
        return part.resized(shard, width) if mine else part

    def change_block(block):
        return replace(block, mixer=other(block.mixer), ffn=other(block.ffn))

    return mapped(case.model, change_block)


def _heads(case):
    """A finding about the first head count that the plans cannot split, as a list."""
    plan = case.attention
    for mixer in dict.fromkeys(b.mixer for b in case.model.block_counts if b.mixer):
        ways = mixer.head_ways(plan)
        if not mixer.heads_spread(ways):
            return [_head_finding(case, mixer, ways)]
    return []


def _head_finding(case, mixer, ways):
    spread = [pair for pair in case.layouts() if _all_heads_spread(case.model, pair[0])]
    new = case.fastest(spread)
    heads, kv_heads = mixer.head_counts
    subject, rule = mixer.heads_name, "the GPUs divide the heads"
    if heads % ways == 0:
        subject, heads, rule = "key-value heads", kv_heads, "one divides the other"
    return Finding(
        dimension="heads",
        value=f"{heads} {subject} over {ways} GPUs",
        rule=rule,
        status="fail",
        fixes=some(new and Fix(text=plan_text(new.attention, new.ffn), case=new, before=case)),
        subject=subject,
    )


def _all_heads_spread(model, plan):
    mixers = [block.mixer for block in model.block_counts if block.mixer]
    return all(mixer.heads_spread(mixer.head_ways(plan)) for mixer in mixers)
