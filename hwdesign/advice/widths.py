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
WHY = {
    "format": "whole scale blocks",
    "kernel": "rows in pieces of 16 bytes",
    "tile 128": "full tiles",
}
BETTER = ("tile 256", "tile 512")  # worth having, but no rule


def multiples(case, limits):
    """Guideline 2: widths in multiples of 128 after the split, scale blocks and rows not cut, heads
    that divide.

    Parameters
    ----------
    case : Case
        What is judged.
    limits : Limits
        From which cost on [dimensionless].

    Returns
    -------
    Verdict
        A finding for each width, vocabulary or head count that breaks a tier of `width_tiers`.

    Notes
    -----
    The cost is what the width's part of the step would save if each parameter took the time that it
    takes at the next good width. A vocabulary, which is looked at as a whole, and experts in four
    bits are never a failure: engines pad both. Not looked at: the rotary part of a latent, which
    engines multiply together with the queries' latent. Source: chapter 2.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.verdict import Limits
    >>> from hwdesign.models import config
    >>> verdict = multiples(Case(model=config.load("gpt2")), Limits())
    >>> verdict.status, verdict.findings[0].fix.text
    ('warn', 'vocabulary 50304')
    """
    found = _heads(case)
    if case.refusal:
        return Verdict.of(2, case.refusal, found) if found else Verdict.cannot(2, case)
    passed = []
    for name, width, ways, part in _widths(case):
        tiers = width_tiers(width, ways, case.low(part))
        passed += [t.multiple for t in tiers.values() if t.ok][-1:]
        if broken := [t for t in tiers.values() if not t.ok and t.name not in BETTER]:
            found.append(_finding(case, name, broken, limits))
    whole = all(finding.dimension == "heads" for finding in found)
    reason = (
        f"all shares of widths are multiples of {min(passed)}"
        if whole
        else "some shares are no multiples of 128"
    )
    reason = (
        f"heads do not spread evenly; {reason}"
        if found and found[0].dimension == "heads"
        else reason
    )
    return Verdict.of(2, reason, found)


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
    width, ways, first = broken[0].width, broken[0].ways, broken[0]
    padded = name == "vocabulary" or (
        name == "expert width" and case.low("experts").bits == 4 and case.recipe.math.bits == 4
    )
    least = "warn" if padded or first.name.startswith("tile") else "fail"
    good = broken[-1].next_width  # of the strictest rule, tile 128
    model = _resized(case.model, name, width, good, ways)
    new = change(case, model=model)
    cost, text = new and _waste(case, new, name), f"{name} {good}"
    if name == "query heads":
        heads = next(
            now.mixer
            for old, now in zip(case.model.blocks, model.blocks, strict=True)
            if old != now
        )
        good, text = heads.num_heads * heads.head_dim, f"{heads.num_heads} query heads"
    fix = new and Fix(text=text, case=new, before=case, width=good / width - 1)
    if name == "expert width" and ways > 1:
        fix = _less_cut(case, width, good) or fix
    value = f"{width} / {ways} = {first.local:g}" if ways > 1 else str(width)
    rule = (
        f"multiples of {first.multiple}{f' on each of {ways} GPUs' if ways > 1 else ''}, "
        f"for {WHY[first.name]}"
    )
    return Finding(
        guideline=2,
        dimension=name,
        value=value,
        rule=rule,
        status=limits.grade(cost, least),
        cost=cost,
        fix=fix,
    )


def _less_cut(case, width, most):
    """The fix that cuts experts into fewer pieces and so widens them least; None where none stays
    below `most`.
    """
    good = {}
    for attention, ffn in case.layouts():
        tile = width_tiers(width, ffn.tp, case.low("experts"))["tile 128"]
        if attention == case.attention and tile.next_width < most:
            good.setdefault(tile.next_width, []).append((attention, ffn))
    for wide, pairs in sorted(good.items()):
        new = replace(case, model=_resized(case.model, "expert width", width, wide, 1)).fastest(
            pairs
        )
        if new and (new.breakdown.feasible or not case.breakdown.feasible):
            text = (
                f"{f'expert width {wide}, ' if wide > width else ''}experts less cut: "
                f"{plan_text(new.attention, new.ffn)}"
            )
            return Fix(text=text, case=new, before=case, width=wide / width - 1)
    return None


def _waste(case, new, name):
    """Share of the step that is saved if each parameter takes the time that it takes at the new
    width [dimensionless].
    """
    every = {"hidden size": tuple(PARTS), "vocabulary": ("head",), "query heads": ("projections",)}
    saved = 0.0
    for term in every.get(name) or (CARRIED[name][3],):
        before, after = (_carried(c.model, term) for c in (case, new))
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
        queries = f"{mixer.num_heads} {'Mamba' if isinstance(mixer, Mamba2) else 'query'} heads"
        if mixer.num_heads % ways:
            value, rule = f"{queries} over {ways} GPUs", "the GPUs divide the heads"
        else:
            value, rule = (
                f"{mixer.num_kv_heads} key-value heads over {ways} GPUs",
                "one divides the other",
            )
        fix = new and Fix(text=plan_text(new.attention, new.ffn), case=new, before=case)
        return [
            Finding(guideline=2, dimension="heads", value=value, rule=rule, status="fail", fix=fix)
        ]
    return []


def _shards(mixer, ways):
    """Whether the heads of a mixer spread evenly; a latent is copied."""
    if not isinstance(mixer, SelfAttention):
        return mixer is None or mixer.num_heads % ways == 0
    return head_sharding(mixer.num_heads, mixer.num_kv_heads, ways)[0] in ("clean", "replicated")
