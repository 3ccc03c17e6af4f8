"""What may clear a finding: the models and the settings of a server that come into question, before
anything is said of their times.
"""

import math
from dataclasses import replace

from hwdesign.advice import shapes
from hwdesign.advice.breaks import broken
from hwdesign.advice.plan_rules import expert_cases
from hwdesign.advice.report_facts import sizes
from hwdesign.advice.rules import SQUARER
from hwdesign.advice.verdict import MOST
from hwdesign.advice.widths import checked_widths, head_cases, resized
from hwdesign.models.parts import TILE

SERVER = ("attention", "ffn", "recipe", "cache", "split")  # fields of a case that a server sets
COMPENSATING = ("feed-forward width", "expert width")  # what makes up for parameters elsewhere
MOST_KINDS = 4  # of layers of which more or fewer are tried
LONGEST_PERIOD = 64  # of a pattern that goes on [layer]
EXPERTS = 8  # of which their number stays a multiple
MOST_MADE_UP = 0.1  # by which a width or the experts may change to make up for parameters
ASPECTS = (1.0, 1.05, 1.1)  # of the least hidden size over layers, of which siblings are tried
SIBLINGS = 4  # of siblings, each made from the one before
DIMENSIONS = {  # what may be kept -> sizes that must not move
    "heads": ("query_heads", "mamba_heads", "linear_heads", "indexer_heads"),
    "kv_heads": ("key_value_heads", "key_value_latent"),
    "layers": ("layers", "layer_kinds"),
    "hidden": ("hidden_size",),
    "width": (
        "feed_forward_width",
        "expert_width",
        "shared_expert_width",
        "query_latent",
        "expert_latent",
    ),
    "experts": ("experts", "experts_per_token"),
    "vocabulary": ("vocab_size",),
}


def server_changes(finding):
    """Settings of the server that may clear a finding, as a list of fields of a case.

    Parameters
    ----------
    finding : Finding
        Of a checklist.

    Returns
    -------
    list of dict
        One for each of its fixes that leaves the model; splits in [layer].

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.checklist import checklist
    >>> found = checklist(Case(model="llama-3.1-8b", device="H100_SXM")).findings[0]
    >>> [changes["recipe"].name for changes in server_changes(found)]
    ['fp8']
    """
    found = []
    for fix in finding.fixes:
        if fix.place == "server":
            old, new = fix.before, fix.case
            found.append({n: getattr(new, n) for n in SERVER if getattr(new, n) != getattr(old, n)})
    return found


def model_siblings(case, finding):
    """Models that may clear a finding under the plans of a case.

    Parameters
    ----------
    case : Case
        What was judged.
    finding : Finding
        Of its checklist.

    Returns
    -------
    list of Model
        Each once: those of the finding's fixes, and its neighbours; sizes in [element].

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.advice.checklist import checklist
    >>> case = Case(model="gpt2")
    >>> [model.vocab_size for model in model_siblings(case, checklist(case).findings[0])]
    [50304]
    """
    plans = case.attention, case.ffn
    found = [
        fix.case.model
        for fix in finding.fixes
        if fix.place == "model" and (fix.case.attention, fix.case.ffn) == plans
    ]
    if finding.dimension == "heads" and finding.guideline == 2:
        found += [new.model for new in head_cases(case)]
    elif finding.dimension == "ffn plan" and case.refusal:
        found += [new.model for new in expert_cases(case)]
    elif finding.guideline == 3:
        low, _ = shapes.aspect_band(shapes.has_experts(case.model))
        ways = case.attention.tp * case.attention.kvp
        found += [shapes.wider(case.model, low * more, ways=ways) for more in ASPECTS]
    elif finding.guideline == 1:
        found += _chain(case.model, SQUARER[finding.dimension])
    elif finding.guideline == 6:
        found += layer_siblings(case.model, case.attention.pp)
    elif finding.guideline == 2:
        found += _widths(case, finding)
    return [model for model in dict.fromkeys(found) if model != case.model]


def _chain(model, sibling):
    """Sibling after sibling, as a list."""
    found = []
    while len(found) < SIBLINGS and (model := sibling(model)):
        found.append(model)
    return found


def _widths(case, finding):
    """Models in which the width that is blamed is a multiple of what tiles or an engine want."""
    refused, found = broken(case), []
    for shard in checked_widths(case):
        if (shard.name, str(shard.width)) != (finding.dimension, finding.value.split()[0]):
            continue
        wanted = {TILE}
        for side, rules in refused.items():
            if (side.name, side.size) == (shard.name, shard.width):
                least = max(rule.multiple for rule in rules)
                wanted |= {least, math.lcm(TILE, side.ways // shard.ways)}
        for multiple in sorted(wanted):
            found += resized(case, shard, multiple)
    return found


def layer_siblings(model, stages):
    """Models whose layers so many stages divide.

    Parameters
    ----------
    model : Model
        Where to start.
    stages : int
        Pipeline stages.

    Returns
    -------
    list of Model
        With more or fewer layers at the end or of one kind, the pattern as it is; with rare kinds
        turned into the usual one; and with equal stages. Sizes in [element] stay but for the last.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> found = layer_siblings(config.load("deepseek-r1"), 4)
    >>> sorted({len(model.blocks) for model in found})
    [60, 64]
    """
    found = []
    for base in dict.fromkeys((model, _without_rare(model, stages), shapes.alike(model))):
        blocks = base.blocks
        for count in {len(blocks) // stages * stages, -(-len(blocks) // stages) * stages} - {0}:
            patterns = [_ended(blocks, count)]
            kinds = sorted(base.block_counts, key=lambda kind: -base.block_counts[kind])
            patterns += [_of_kind(blocks, count, kind) for kind in kinds[:MOST_KINDS]]
            found += [replace(base, blocks=pattern) for pattern in patterns if pattern]
        found.append(shapes.regular(base, stages))
    near = [new for new in found if abs(new.parameters / model.parameters - 1) <= MOST]
    return list(dict.fromkeys(near))


def _without_rare(model, stages):
    """A model in which kinds of blocks that not every stage can have are the commonest kind."""
    usual = max(model.block_counts, key=model.block_counts.get)

    def change(block):
        return usual if model.block_counts[block] < stages else block

    return shapes.mapped(model, change)


def _ended(blocks, count):
    """So many blocks: the first of them, or all and on by the period of their pattern."""
    if count <= len(blocks):
        return blocks[:count]
    half = len(blocks) // 2
    for period in range(1, min(LONGEST_PERIOD, half) + 1):
        places = range(half, len(blocks))
        if all(blocks[place] == blocks[place - period] for place in places):
            more = list(blocks)
            while len(more) < count:
                more.append(more[-period])
            return tuple(more)
    return None


def _of_kind(blocks, count, kind):
    """So many blocks by more or fewer of one kind, at its end; None where none of it is left."""
    places = [place for place, block in enumerate(blocks) if block == kind]
    fewer = len(blocks) - count
    if fewer >= len(places):
        return None
    if fewer > 0:
        gone = set(places[-fewer:])
        return tuple(block for place, block in enumerate(blocks) if place not in gone)
    last = places[-1] + 1
    return (*blocks[:last], *(kind,) * -fewer, *blocks[last:])


def compensated(case, model, original, dimension):
    """Siblings whose parameters are brought near to a number again by a feed-forward or expert
    width, in whole tiles on each GPU, or by the number of experts, which the GPUs divide.

    Parameters
    ----------
    case : Case
        Whose plans cut the widths.
    model : Model
        The sibling.
    original : int
        Parameters to come near to [element].
    dimension : str
        What the sibling cures, which is left as it is.

    Returns
    -------
    list of Model
        The next below and above for each of these, without changes of more than a tenth; widths in
        [element].

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> case = Case(model="gpt-oss-20b")
    >>> smaller = replace(case.model, hidden_size=2816)
    >>> made = compensated(case, smaller, case.model.parameters, "hidden size")
    >>> [(new.blocks[0].ffn.width, new.blocks[0].ffn.num_experts) for new in made]
    [(2944, 32), (3072, 32)]
    """
    found = []
    for name in COMPENSATING:
        shards = {
            shard
            for block in model.block_counts
            for part in block.parts
            for shard in part.shards(case.attention, case.ffn)
            if shard.name == name
        }
        if name == dimension or len(shards) != 1:
            continue
        (shard,) = shards
        step = TILE * shard.ways
        slope = (_wide(case, model, shard, shard.width + step).parameters - model.parameters) / step
        wanted = shard.width + (original - model.parameters) / slope
        least = int(wanted // step) * step
        for width in (least, least + step):
            if 0 < abs(width / shard.width - 1) <= MOST_MADE_UP:
                found.append(_wide(case, model, shard, width))
    return found + _fewer_experts(case, model, original)


def _fewer_experts(case, model, original):
    """Siblings with other numbers of experts, which the GPUs divide, whose parameters are near to a
    number, as a list.
    """
    counts = {block.ffn.num_experts for block in model.block_counts if block.routed}
    if len(counts) != 1:
        return []
    (count,), step = counts, math.lcm(EXPERTS, case.ffn.ep)
    slope = _experts(model, count + 1).parameters - model.parameters
    wanted = count + (original - model.parameters) / slope
    least = int(wanted // step) * step
    return [
        _experts(model, number)
        for number in (least, least + step)
        if 0 < abs(number / count - 1) <= MOST_MADE_UP
    ]


def _experts(model, count):
    """A model with another number of experts."""

    def change(block):
        if not block.routed:
            return block
        return replace(block, ffn=replace(block.ffn, num_experts=count))

    return shapes.mapped(model, change)


def _wide(case, model, shard, width):
    """A model with another width where a shard is."""

    def change(block):
        if block.ffn and shard in block.ffn.shards(case.attention, case.ffn):
            return replace(block, ffn=replace(block.ffn, **{shard.field: width}))
        return block

    return shapes.mapped(model, change)


def moved(model, sibling):
    """Names of `DIMENSIONS` that differ between two models, as a list.

    >>> from hwdesign.models import config
    >>> moved(config.load("gpt2"), replace(config.load("gpt2"), vocab_size=50304))
    ['vocabulary']
    """
    old, new = sizes(model), sizes(sibling)
    found = [name for name, keys in DIMENSIONS.items() if any(old[key] != new[key] for key in keys)]
    if head_sizes(model) != head_sizes(sibling) and "heads" not in found:
        found.insert(0, "heads")
    return found


def head_sizes(model):
    """Sizes of heads that occur in a model, ascending, as a list [element].

    >>> from hwdesign.models import config
    >>> head_sizes(config.load("gpt2"))
    [64]
    """
    found = set()
    for block in model.block_counts:
        for mixer in getattr(block.mixer, "both", (block.mixer,)):
            found.add(getattr(mixer, "head_dim", None))
    return sorted(found - {None})


def distance(model, sibling):
    """How far a sibling is from a model: the logarithms of all sizes that changed, added up, and of
    the parameters [dimensionless].

    >>> from hwdesign.models import config
    >>> model = config.load("gpt2")
    >>> distance(model, replace(model, hidden_size=1536)) > distance(model, model) == 0
    True
    """
    old = sizes(model) | {"head_size": head_sizes(model)}
    new = sizes(sibling) | {"head_size": head_sizes(sibling)}
    far = abs(math.log(sibling.parameters / model.parameters))
    for name in old:
        if name != "layer_kinds" and old[name] != new[name]:
            before, after = _listed(old[name]), _listed(new[name])
            far += abs(len(before) - len(after))
            far += sum(abs(math.log(b / a)) for a, b in zip(before, after, strict=False))
    return far


def _listed(value):
    return value if isinstance(value, list) else [value]
