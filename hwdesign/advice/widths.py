"""Guideline 2 as a rule: which widths and head counts of a model do the plans cut badly, and which
of them do engines refuse?
"""

import math
from dataclasses import replace

from hwdesign.advice.breaks import (
    breaks,
    broken,
    loading_engines,
    loads,
    lowered_part,
    nearest_ways,
    refused_by,
)
from hwdesign.advice.case import change, plan_text
from hwdesign.advice.shapes import mapped
from hwdesign.advice.verdict import SLOWER, Finding, Fix, Verdict, close, some
from hwdesign.models.parts import QUANTIZED, TERM_OF, Mixer, Shard
from hwdesign.models.sharding import width_tiers

MODEL_FIELDS = ("hidden_size", "vocab_size")
WIDTH_TERMS = ("ffn", "experts", "projections", "head")  # that the hidden size is in
COUNTS = ("query heads", "key-value heads")  # sides that are heads and no widths
TILE = "tile 128"
BLOCKLESS = {  # recipes of as many bits whose scales have no blocks
    "fp8_block": "fp8",
    "fp8_block_w8a16": "fp8_w8a16",
}


def multiples(case, limits):
    """Guideline 2: widths in multiples of 128 after the split, nothing that engines refuse, and
    heads that divide.

    A finding for each width, vocabulary or head count whose shares are no multiples of 128 or which
    a named engine refuses: a break where that is the case's own engine. The cost of the others is
    what the width's part of the step would save if each parameter took the time that it takes at
    the nearest good width. Source: chapter 2; `refusals.csv` for what engines refuse.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.verdict import Limits
    >>> from hwdesign.models import config
    >>> verdict = multiples(Case(model=config.load("gpt2")), Limits())
    >>> verdict.status, verdict.findings[0].fix.text
    ('warn', 'vocabulary 50304')
    """
    refused = broken(case)
    about_heads = _heads(case, refused)
    if case.refusal:
        return Verdict.of(str(case.refusal), about_heads) if about_heads else Verdict.cannot(case)
    about_widths, passed = [], []
    for shard in checked_widths(case):
        tiers = width_tiers(shard.width, shard.ways).values()
        passed += [tier.multiple for tier in tiers if tier.ok][-1:]
        mine = {side: rules for side, rules in refused.items() if _about(side, shard)}
        if mine or not _tile(shard).ok:
            about_widths.append(_finding(case, shard, mine, limits))
        for side in mine:
            del refused[side]
    about_widths += _alone(case, refused)
    if any(finding.refused_by for finding in about_widths):
        reason = "engines refuse some shares"
    elif about_widths:
        reason = "some shares are no multiples of 128"
    else:
        reason = f"all shares of widths are multiples of {min(passed)}"
    if about_heads:
        reason = f"heads do not spread evenly; {reason}"
    return Verdict.of(reason, about_heads + about_widths)


def _tile(shard):
    return width_tiers(shard.width, shard.ways)[TILE]


def _about(side, shard):
    """Whether a refused side is one of a width."""
    return side.kind not in COUNTS and (side.name, side.size) == (shard.name, shard.width)


def checked_widths(case):
    """The widths of a model that are checked, as a list of `Shard`, each once [element].

    >>> from hwdesign.advice.case import Case
    >>> [(shard.name, shard.width) for shard in checked_widths(Case(model="gpt2"))][:2]
    [('hidden size', 768), ('vocabulary', 50257)]
    """
    model, part = case.model, lowered_part(case)
    hidden = Shard(
        name="hidden size", field="hidden_size", width=model.hidden_size, ways=1, part=part
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


def _finding(case, shard, refused, limits):
    """What is said of a width whose shares are no multiples of 128, or refused."""
    rules = [rule for rules in refused.values() for rule in rules if breaks(case, rule)]
    side = next(iter(refused), shard)  # a vocabulary is refused in shares, though judged as a whole
    need = max((rule.multiple for rule in rules), default=128)
    ways = side.ways if rules else shard.ways
    step = math.lcm(128, ways // shard.ways)
    near = _siblings(case, shard, step)
    cost = None if rules or not near else _waste(case, near[0], shard)
    near = _close(case, near) or _close(case, _siblings(case, shard, need))
    fixes = _on_server(case, shard, bool(rules)), _in_model(case, near, shard, bool(rules))
    return Finding(
        dimension=shard.name,
        value=_value(shard.width, ways),
        rule=_rule(need, ways, "whole scale blocks" if rules else "full tiles"),
        status=limits.grade(cost, "break" if rules else "warn"),
        cost=cost,
        fixes=some(*fixes),
        refused_by=refused_by(case, refused),
    )


def _close(case, siblings):
    """Those that are no other models."""
    return [new for new in siblings if close(case.model, new.model)]


def _value(size, ways):
    """A size and its share in words."""
    return f"{size} / {ways} = {size / ways:g}" if ways > 1 else str(size)


def _rule(multiple, ways, why):
    """What a share must be a multiple of, in words."""
    if multiple == 1:
        return f"the {ways} GPUs divide it"
    each = f" on each of {ways} GPUs" if ways > 1 else ""
    return f"multiples of {multiple}{each}, for {why}"


def _siblings(case, shard, multiple):
    """The case with each sibling that runs and whose shares are multiples, the nearest first, of
    two equally near the larger.
    """
    found = []
    for model in resized(case, shard, multiple):
        if new := change(case, model=model):
            found.append((_moved(case, new, shard), -model.parameters, new))
    return [new for *_, new in sorted(found, key=lambda item: item[:2])]


def _moved(case, new, shard):
    """By how much a width differs in another case [element]."""
    return abs(_new_width(case, new.model, shard) - shard.width)


def resized(case, shard, multiple):
    """Models in which the shares of a width are multiples [element], as a list; a vocabulary only
    grows, and query heads come in whole groups.

    >>> from hwdesign.advice.case import Case
    >>> case = Case(model="gpt2")
    >>> vocabulary = checked_widths(case)[1]
    >>> [model.vocab_size for model in resized(case, vocabulary, 128)]
    [50304]
    """
    model = case.model
    if shard.field in MODEL_FIELDS:
        up = -(-shard.width // multiple) * multiple
        widths = {up} if shard.field == "vocab_size" else {up, shard.width // multiple * multiple}
        return [replace(model, **{shard.field: width}) for width in widths - {0, shard.width}]
    ways = dict.fromkeys(
        way
        for block in model.block_counts
        for part in block.parts
        if shard in part.shards(case.attention, case.ffn)
        for way in part.resized(shard, multiple)
    )
    found = []
    for way in ways:

        def other(part, way=way):
            if part is None or shard not in part.shards(case.attention, case.ffn):
                return part
            return part.resized(shard, multiple).get(way, part)

        def change_block(block, other=other):
            return replace(block, mixer=other(block.mixer), ffn=other(block.ffn))

        found.append(mapped(model, change_block))
    return [new for new in found if new != model]


def _new_width(case, model, shard):
    """The width of a shard in a sibling [element]."""
    if shard.field in MODEL_FIELDS:
        return getattr(model, shard.field)
    for before, after in zip(case.model.blocks, model.blocks, strict=True):
        for old, new in zip(before.parts, after.parts, strict=True):
            places = old.shards(case.attention, case.ffn)
            if shard in places and old != new:
                return new.shards(case.attention, case.ffn)[places.index(shard)].width
    return shard.width


def _in_model(case, near, shard, breaking):
    """The fix by the nearest width: of a break whatever it costs, of a cost if the step gets no
    slower; experts also where plans that cut them less need less of a change.
    """
    found = list(near)
    if shard.part == "experts" and shard.ways > 1:
        found += _less_cut_and_wider(case, shard)
        found.sort(key=lambda new: _moved(case, new, shard))
    fits = [new for new in found if breaking or new.seconds <= _slowest(case)]
    if not fits:
        return None
    new = fits[0]
    width = _new_width(case, new.model, shard)
    text = f"{shard.name} {width}"
    if shard.name == "query heads":
        old, mixer = _changed_mixer(case.model, new.model)
        text = f"{mixer.num_heads} query heads"
        text += f" of {mixer.head_dim}" if mixer.head_dim != old.head_dim else ""
    if new.ffn != case.ffn:
        text += f", experts less cut: {plan_text(new.attention, new.ffn)}"
    return Fix(text=text, case=new, before=case, width=width / shard.width - 1)


def _changed_mixer(old, new):
    """The first mixer that is another one in a sibling, before and after; of two side by side the
    one that is.
    """
    pairs = zip(old.blocks, new.blocks, strict=True)
    changed = next((before.mixer, after.mixer) for before, after in pairs if before != after)
    both = [getattr(mixer, "both", (mixer,)) for mixer in changed]
    return next(pair for pair in zip(*both, strict=True) if pair[0] != pair[1])


def _less_cut_and_wider(case, shard):
    """Cases with the nearest good width of experts under plans that cut them less, as a list."""
    found = []
    for ways in sorted({ffn.tp for _, ffn in case.layouts() if ffn.tp < shard.ways}):
        less = replace(shard, ways=ways)
        if _tile(less).ok:
            continue
        pairs = [p for p in case.layouts() if p[0] == case.attention and p[1].tp == ways]
        for new in filter(loads, case.ranked(pairs)):
            found += _close(case, _siblings(new, less, 128))[:1]
            break
    return [new for new in found if loads(new)]


def _on_server(case, shard, breaking):
    """The fix by plans that cut a width less, or, of a break, by a format without blocks; None
    where there is none that an engine runs, or where the fix of a cost makes the step slower.
    """
    experts = shard.part == "experts"
    if not (breaking or experts and shard.ways > 1):
        return None
    pairs = [(a, f) for a, f in case.layouts() if a == case.attention] if experts else case.copies()
    runs = [new for new in case.ranked(pairs) if breaking or _whole_tiles(new, shard)]
    found = [next(filter(loads, runs), None) or next(filter(loading_engines, runs), None)]
    recipe = BLOCKLESS.get(case.recipe.name) if breaking else None
    if recipe:
        found.append(change(case, recipe=recipe))
    found = [new for new in some(*found) if breaking or new.seconds <= _slowest(case)]
    if not found:
        return None
    new = min(found, key=lambda new: (not loads(new), new.seconds))
    what = "experts" if experts else shard.name
    text = f"{what} less cut: {plan_text(new.attention, new.ffn)}"
    return Fix(
        text=text if new.recipe == case.recipe else f"recipe {recipe}", case=new, before=case
    )


def _slowest(case):
    """What a step may take after the fix of a cost [s]."""
    return case.seconds * (1 + SLOWER)


def _whole_tiles(case, shard):
    """Whether a width of another case is cut into shares of whole tiles."""
    same = shard.name, shard.width
    mine = [other for other in checked_widths(case) if (other.name, other.width) == same]
    return all(_tile(other).ok for other in mine)


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
    return sum(counts.get(part, 0) for part in behind) or model.vocab_size * model.embedding_width


def _alone(case, refused):
    """Findings about refused sides that are no width of guideline 2's own, as a list."""
    found = []
    for side, rules in refused.items():
        if side.kind in (*COUNTS, "expert set"):
            continue
        need = max(rule.multiple for rule in rules)
        breaking = any(breaks(case, rule) for rule in rules)
        finding = Finding(
            dimension=side.name if side.part != "mamba" else "heads",
            subject="key-value heads" if side.name == "heads" else side.name,
            value=_value(side.size, side.ways),
            rule=_rule(need, side.ways, "whole scale blocks"),
            status="break" if breaking else "warn",
            refused_by=refused_by(case, {side: rules}),
        )
        found.append(finding)
    return found


def _heads(case, refused):
    """A finding about the first head count that the plans do not spread evenly, as a list."""
    plan = case.attention
    for mixer in dict.fromkeys(b.mixer for b in case.model.block_counts if b.mixer):
        ways = mixer.head_ways(plan)
        if not mixer.heads_spread(ways):
            mine = {side: rules for side, rules in refused.items() if side.kind in COUNTS}
            return [_head_finding(case, mixer, ways, mine)]
    return []


def _head_finding(case, mixer, ways, refused):
    heads, kv_heads = mixer.head_counts
    subject, rule = mixer.heads_name, "the GPUs divide the heads"
    if heads % ways == 0:
        subject, heads, rule = "key-value heads", kv_heads, "one divides the other"
    breaking = any(breaks(case, rule) for rules in refused.values() for rule in rules)
    return Finding(
        dimension="heads",
        value=f"{heads} {subject} over {ways} GPUs",
        rule=rule,
        status="break" if breaking else "warn",
        fixes=some(_other_plans(case), _other_heads(case)),
        refused_by=refused_by(case, refused),
        subject=subject,
    )


def _other_plans(case):
    """The fix by the fastest plans on the same GPUs that an engine runs, the case's own first, with
    the nearest numbers of GPUs that heads spread over; None where nothing fits.
    """
    pairs = [*case.copies(), *case.layouts()]
    spread = [pair for pair in pairs if _all_heads_spread(case.model, pair[0])]
    ranked = list(case.ranked(spread))
    own = next(filter(loads, ranked), None)
    new = own or next(filter(loading_engines, ranked), None) or next(iter(ranked), None)
    if new is None:
        return None
    text = plan_text(new.attention, new.ffn)
    text += nearest_ways(case, "query heads", case.attention.tp)
    return Fix(text=text, case=new, before=case)


def _all_heads_spread(model, plan):
    mixers = [block.mixer for block in model.block_counts if block.mixer]
    return all(mixer.heads_spread(mixer.head_ways(plan)) for mixer in mixers)


def head_cases(case):
    """The case with the nearest and the second nearest heads that spread over the GPUs, as a list;
    without those that are another model.

    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.models.steps import Plan
    >>> case = Case(model="qwen2.5-7b", attention=Plan(tp=8), ffn=Plan(tp=8))
    >>> [new.model.blocks[0].mixer.num_heads for new in head_cases(case)]
    [32, 24]
    """

    def near(part):
        if not isinstance(part, Mixer) or part.heads_spread(part.head_ways(case.attention)):
            return []
        return part.heads_near(part.head_ways(case.attention))

    return nearest_cases(case, near)


def _other_heads(case):
    """The fix by the nearest heads that spread over the GPUs; None where that is another model."""
    found = head_cases(case)
    if not found:
        return None
    told = [_head_text(case.model, new.model) for new in found]
    also = f" (or {told[1]})" if told[1:] else ""
    return Fix(text=told[0] + also, case=found[0], before=case)


def nearest_cases(case, near):
    """The case with the nearest and the second nearest sibling that runs and is no other model.

    Parameters
    ----------
    case : Case
        Where to start.
    near : callable
        From a mixer or a feed-forward part to what it may become, the nearest first; to nothing
        where it stays.

    Returns
    -------
    list of Case
        At most two; sizes in [element].

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> nearest_cases(Case(model="gpt2"), lambda part: [])
    []
    """
    found = []
    for place in (0, 1):
        choices = {}
        for block in case.model.block_counts:
            for part in block.parts:
                choices[part] = near(part)[place : place + 1] or [part]

        def change_block(block, choices=choices):
            mixer, ffn = (part and choices[part][0] for part in (block.mixer, block.ffn))
            return replace(block, mixer=mixer, ffn=ffn)

        model = mapped(case.model, change_block)
        new = change(case, model=model) if model != case.model else None
        if new and close(case.model, model):
            found.append(new)
    return found


def _head_text(model, sibling):
    """The heads of a sibling in words, key-value heads where they changed."""
    old, mixer = _changed_mixer(model, sibling)
    heads, kv_heads = mixer.head_counts
    words = []
    if heads != old.head_counts[0]:
        words.append(f"{heads} {mixer.heads_name}")
    if kv_heads != old.head_counts[1] and kv_heads != heads:
        words.append(f"{kv_heads} key-value heads")
    return " with ".join(words)
