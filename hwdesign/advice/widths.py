"""Guideline 2 as a rule: which widths and head counts of a model do the plans cut badly?"""

from dataclasses import replace

import numpy as np

from hwdesign.advice.case import change, plan_text
from hwdesign.advice.shapes import mapped
from hwdesign.advice.verdict import Finding, Fix, Verdict
from hwdesign.models.blocks import DenseFFN, LatentAttention, Mamba2, MoE, SelfAttention
from hwdesign.models.sharding import head_sharding, width_tiers

# What carries the width, under which name; the part of the model that decides its format, and the
# term of the step it is in.
CARRIED = {
    "feed-forward width": (DenseFFN, "width", "ffn", "ffn"),
    "expert width": (MoE, "width", "experts", "experts"),
    "shared expert width": (MoE, "shared_width", "shared experts", "ffn"),
    "latent": (LatentAttention, "kv_rank", "attention", "projections"),
    "query latent": (LatentAttention, "q_rank", "attention", "projections"),
}
PARTS = {
    "ffn": ("ffn", "shared experts"),
    "experts": ("experts",),
    "projections": ("attention", "mamba"),
    "head": ("head",),
}
TERMS = {  # of the step that a width is in, for those that no part of a block carries
    "hidden size": tuple(PARTS),
    "vocabulary": ("head",),
    "query heads": ("projections",),
}
WHY = {
    "format": "whole scale blocks",
    "kernel": "rows in pieces of 16 bytes",
    "tile 128": "full tiles",
}
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
    for name, width, ways, part in _widths(case):
        tiers = width_tiers(width, ways, case.low(part)).values()
        kept = [tier.multiple for tier in tiers if tier.ok]
        broken = [tier for tier in tiers if not tier.ok and tier.name not in BETTER]
        passed += kept[-1:]
        if broken:
            about_widths.append(_finding(case, name, broken, limits))
    if about_widths:
        reason = "some shares are no multiples of 128"
    else:
        reason = f"all shares of widths are multiples of {min(passed)}"
    if about_heads:
        reason = f"heads do not spread evenly; {reason}"
    return Verdict.of(reason, about_heads + about_widths)


def _widths(case):
    """(name, width, ways, part) of what is checked, each once."""
    model, ffn, attention = case.model, case.ffn, case.attention
    low = next(
        (
            part
            for part in model.parameters_by_part()
            if part in model.low_precision_parts(case.recipe)
        ),
        "head",
    )
    out = [("hidden size", model.hidden_size, 1, low), ("vocabulary", model.vocab_size, 1, "head")]
    owners = (
        1 if ffn.gather else min(ffn.ep, max(1, attention.dp // ffn.dp))
    )  # groups that bring their own tokens
    inside = ffn.tp * ffn.ep // owners
    ways = {"feed-forward width": inside, "expert width": ffn.tp, "shared expert width": inside}
    for block in model.block_counts:
        for name, (kind, key, part, _) in CARRIED.items():
            if width := next(
                (getattr(x, key) for x in (block.mixer, block.ffn) if isinstance(x, kind)), None
            ):
                out.append((name, width, ways.get(name, 1), part))
        if isinstance(mixer := block.mixer, SelfAttention):
            out.append(("query heads", mixer.num_heads * mixer.head_dim, attention.tp, "attention"))
    return list(dict.fromkeys(out))


def _finding(case, name, broken, limits):
    """The finding about a width, given the rules that it breaks from the loosest to the
    strictest.
    """
    first, strictest = broken[0], broken[-1]
    width, ways, good = first.width, first.ways, strictest.next_width
    model = _resized(case.model, name, width, good, ways)
    new = change(case, model=model)
    text = f"{name} {good}"
    if name == "query heads":
        mixer = _first_change(case.model, model).mixer
        good, text = mixer.num_heads * mixer.head_dim, f"{mixer.num_heads} query heads"
    cost, fix = None, None
    if new:
        cost = _waste(case, new, name)
        fix = Fix(text=text, case=new, before=case, width=good / width - 1)
    if name == "expert width" and ways > 1:
        fix = _less_cut(case, width, good) or fix
    value, where = str(width), ""
    if ways > 1:
        value, where = f"{width} / {ways} = {first.local:g}", f" on each of {ways} GPUs"
    tile_alone = first.name.startswith("tile")
    return Finding(
        dimension=name,
        value=value,
        rule=f"multiples of {first.multiple}{where}, for {WHY[first.name]}",
        status=limits.grade(cost, "warn" if tile_alone or _is_padded(case, name) else "fail"),
        cost=cost,
        fix=fix,
    )


def _is_padded(case, name):
    """Whether engines pad what is cut badly, instead of refusing it."""
    four_bits = case.low("experts").bits == 4 and case.recipe.math.bits == 4
    return name == "vocabulary" or (name == "expert width" and four_bits)


def _first_change(before, after):
    """The first block of a model that differs from that of another."""
    pairs = zip(before.blocks, after.blocks, strict=True)
    return next(new for old, new in pairs if old != new)


def _less_cut(case, width, most):
    """The fix that cuts experts into fewer pieces and so widens them least; None where none stays
    below `most`.
    """
    plans_by_width = {}
    for attention, ffn in case.layouts():
        tile = width_tiers(width, ffn.tp, case.low("experts"))["tile 128"]
        if attention == case.attention and tile.next_width < most:
            plans_by_width.setdefault(tile.next_width, []).append((attention, ffn))
    for wide in sorted(plans_by_width):
        wider = replace(case, model=_resized(case.model, "expert width", width, wide, 1))
        new = wider.fastest(plans_by_width[wide])
        if new and (new.breakdown.feasible or not case.breakdown.feasible):
            text = f"experts less cut: {plan_text(new.attention, new.ffn)}"
            if wide > width:
                text = f"expert width {wide}, {text}"
            return Fix(text=text, case=new, before=case, width=wide / width - 1)
    return None


def _waste(case, new, name):
    """Share of the step that is saved if each parameter takes the time that it takes at the new
    width [dimensionless].
    """
    terms = TERMS[name] if name in TERMS else (CARRIED[name][3],)
    saved = 0.0
    for term in terms:
        before, after = _carried(case.model, term), _carried(new.model, term)
        saved += case.breakdown.terms[term] - new.breakdown.terms[term] * before / after
    return max(0.0, float(saved / case.seconds))


def _carried(model, term):
    """Parameters behind a term of the step; a head that is the embedding counts by its rows."""
    parts = model.parameters_by_part()
    return sum(parts.get(part, 0) for part in PARTS[term]) or model.vocab_size * model.hidden_size


def _resized(model, name, old, new, ways):
    """The model with another width; query heads come in whole groups."""
    if name in ("hidden size", "vocabulary"):
        return replace(
            model, **{name.replace(" ", "_") if name == "hidden size" else "vocab_size": new}
        )
    kind, key, *_ = CARRIED.get(name, (None, None))

    def resize(block):
        parts = {"mixer": block.mixer, "ffn": block.ffn}
        for place, part in parts.items():
            if kind and isinstance(part, kind) and getattr(part, key) == old:
                parts[place] = replace(part, **{key: new})
            if (
                name == "query heads"
                and isinstance(part, SelfAttention)
                and part.num_heads * part.head_dim == old
            ):
                parts[place] = _more_heads(part, ways)
        return replace(block, **parts)

    return mapped(model, resize)


def _more_heads(mixer, ways):
    """The same attention with the next number of query heads whose shares are multiples of 128."""
    unit = ways * 128 // int(np.gcd(ways * 128, mixer.head_dim))
    alone = mixer.num_kv_heads == mixer.num_heads
    unit = int(np.lcm.reduce([unit, ways, *([] if alone else [mixer.num_kv_heads])]))
    heads = -(-mixer.num_heads // unit) * unit
    return replace(mixer, num_heads=heads, num_kv_heads=heads if alone else mixer.num_kv_heads)


def _heads(case):
    """A finding about the first head count that the plans cannot split, as a list."""
    plan = case.attention
    for mixer in dict.fromkeys(b.mixer for b in case.model.block_counts if b.mixer):
        ways = plan.tp * plan.kvp if isinstance(mixer, Mamba2) else plan.tp
        if _shards(mixer, ways):
            continue
        new = case.fastest(
            [
                (a, f)
                for a, f in case.layouts()
                if all(_shards(b.mixer, a.tp) for b in case.model.block_counts)
            ]
        )
        subject = "Mamba heads" if isinstance(mixer, Mamba2) else "query heads"
        heads, rule = mixer.num_heads, "the GPUs divide the heads"
        if heads % ways == 0:
            subject, heads, rule = "key-value heads", mixer.num_kv_heads, "one divides the other"
        fix = new and Fix(text=plan_text(new.attention, new.ffn), case=new, before=case)
        found = Finding(
            dimension="heads",
            value=f"{heads} {subject} over {ways} GPUs",
            rule=rule,
            status="fail",
            fix=fix,
            subject=subject,
        )
        return [found]
    return []


def _shards(mixer, ways):
    """Whether the heads of a mixer spread evenly; a latent is copied."""
    if not isinstance(mixer, SelfAttention):
        return mixer is None or mixer.num_heads % ways == 0
    return head_sharding(mixer.num_heads, mixer.num_kv_heads, ways)[0] in ("clean", "replicated")
