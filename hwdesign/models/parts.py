"""What every part of a model has: its weights, and what a mixer and a feed-forward part must know.

A new kind of block is a subclass of `Mixer` or `FeedForward`, as in `hwdesign.models.blocks`. It
says what it weighs, caches, computes and how it splits; everything else of the package asks it.
"""

import abc
import math
from dataclasses import dataclass, replace

import numpy as np

from hwdesign._check import choice
from hwdesign.formulas.tiling import pad

# Part of a model: (the term of a step's time that its matrices belong to, whether a recipe
# converts them by default). In the order in which a sheet lists them.
PARTS = {
    "embedding": (None, False),
    "attention": ("projections", True),
    "mamba": ("projections", True),
    "ffn": ("ffn", True),
    "experts": ("experts", True),
    "shared experts": ("ffn", True),
    "router": ("ffn", False),
    "residual": ("projections", False),
    "norm": (None, False),
    "head": ("head", False),
}
TERM_OF = {part: term for part, (term, _) in PARTS.items() if term}
QUANTIZED = tuple(part for part, (_, quantized) in PARTS.items() if quantized)
# Sizes of blocks by their names in a machine-readable change, in the order of its schema.
TILE = 128  # what widths of siblings are multiples of [element]
SIZE_NAMES = (
    "query_heads",
    "key_value_heads",
    "query_latent",
    "key_value_latent",
    "mamba_heads",
    "linear_heads",
    "indexer_heads",
    "feed_forward_width",
    "experts",
    "experts_per_token",
    "expert_width",
    "shared_expert_width",
    "expert_latent",
)


class PlanError(ValueError):
    """A plan that cannot run a model: `ways` of `what` do not divide `size` of `part`."""

    def __init__(self, part, size, ways, what):
        super().__init__(f"{what} must divide {part} = {size}, got {ways}")
        self.part, self.size, self.ways, self.what = part, size, ways, what


def divided(part, size, ways, what):
    """One of `ways` equal shares of a size; a `PlanError` where they do not divide it."""
    if size % ways:
        raise PlanError(part, size, ways, what)
    return size // ways


def padded_share(size, ways):
    """One of `ways` equal shares of a dimension that is padded to divide [element]."""
    return int(pad(size, ways)) // ways


@dataclass(frozen=True, kw_only=True)
class Weight:
    """One matrix (n outputs, k inputs) or vector (k = 1, not multiplied as a matrix) of the model.

    `stored` copies exist; one token uses `used` of them. `matmul` says whether a token's pass
    multiplies by it.

    Examples
    --------
    >>> Weight(name="up", part="ffn", n=14336, k=4096).elements
    58720256
    """

    name: str
    part: str
    n: int  # [element]
    k: int = 1  # [element]
    stored: int = 1
    used: int = 1
    matmul: bool = True

    @property
    def elements(self):
        """Elements of one copy [element]."""
        return self.n * self.k


def linear(name, part, n, k, bias=False, *, stored=1, used=1):
    """A matrix of n outputs and k inputs [element], with its bias if it has one."""
    out = [Weight(name=name, part=part, n=n, k=k, stored=stored, used=used)]
    if bias:
        name = f"{name} bias"
        out.append(Weight(name=name, part=part, n=n, stored=stored, used=used, matmul=False))
    return out


def vector(name, part, n):
    """A vector of n elements [element], added or multiplied element by element."""
    return Weight(name=name, part=part, n=n, matmul=False)


def scaled_size(size, factor, multiple):
    """A size times a factor, as the nearest multiple, and at least one of them [element]."""
    return max(multiple, round(size * factor / multiple) * multiple)


def multiples_near(size, multiple):
    """The multiples below and above a size, at least one time, the nearer first, of two equally
    near the larger.

    >>> multiples_near(28, 8), multiples_near(3, 8)
    ([32, 24], [8])
    """
    found = {max(1, size // multiple) * multiple, -(-size // multiple) * multiple}
    return sorted(found, key=lambda count: (abs(count - size), -count))


def heads_near(heads, kv_heads, ways):
    """The two pairs of query and key-value heads nearest to these that spread over so many GPUs, in
    whole groups; of two equally near that with more.

    >>> heads_near(28, 4, 8), heads_near(40, 10, 8), heads_near(41, 41, 8)
    ([(32, 4), (24, 4)], [(40, 8), (40, 4)], [(40, 40), (48, 48)])
    """
    if heads == kv_heads:
        return [(count, count) for count in multiples_near(heads, ways)]
    found = []
    for kv in range(1, 2 * kv_heads + 1):
        if kv % ways == 0 or ways % kv == 0:
            found += [(count, kv) for count in multiples_near(heads, math.lcm(ways, kv))]

    def change(pair):
        return abs(pair[0] / heads - 1) + abs(pair[1] / kv_heads - 1), -pair[0]

    return sorted(found, key=change)[:2]


def even_heads(heads, kv_heads, head_dim, ways, multiple):
    """The next numbers of query heads "down" and "up", as a dict, whose widths over so many GPUs
    are multiples, in whole groups.

    >>> even_heads(40, 8, 80, 2, 128), even_heads(3, 3, 64, 1, 128)
    ({'down': 32, 'up': 48}, {'down': 2, 'up': 4})
    """
    rows = ways * multiple
    unit = math.lcm(rows // math.gcd(rows, head_dim), ways)
    if kv_heads < heads:
        unit = math.lcm(unit, kv_heads)
    least = heads // unit * unit
    found = {"down": least, "up": least + unit * (least < heads)}
    return {way: count for way, count in found.items() if count}


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A width that plans cut: `width` of the field `field`, in `ways` shares on as many GPUs.

    `part` decides the number format, `name` is what a verdict calls it.
    """

    name: str
    field: str
    width: int  # [element]
    ways: int
    part: str


# What engines test: counts that must spread over GPUs, and sides of matrices, of which "input" is
# that of K, "output" that of N, and a "merged output" one of several N that one product makes.
SIDES = (
    "query heads",
    "key-value heads",
    "expert set",
    "vocabulary",
    "input",
    "output",
    "merged output",
    "experts",
)


@dataclass(frozen=True, kw_only=True)
class Side:
    """A count or a side of a matrix as engines test it when they load: `size`, in `ways` shares.

    `kind` is one of `SIDES`, `part` decides the number format, `name` is what a verdict calls it.

    Examples
    --------
    >>> Side(kind="input", name="feed-forward width", size=29568, ways=8, part="ffn").share
    3696.0
    """

    kind: str
    name: str
    size: int  # [element]
    ways: int
    part: str

    def __post_init__(self):
        choice("kind", self.kind, SIDES)

    @property
    def share(self):
        """What one GPU holds [element]; not whole where the ways do not divide the size."""
        return self.size / self.ways


def down_sides(name, size, ways, part, gated):
    """Sides of a feed-forward width [element]: N of the way up, beside its gate or alone, and K of
    the way down.
    """
    up = "merged output" if gated else "output"
    return [Side(kind=kind, name=name, size=size, ways=ways, part=part) for kind in (up, "input")]


def inner_ways(attention, ffn):
    """GPUs that share each matrix of a dense or a shared part: where several groups bring tokens of
    their own, the ranks of an expert set divide among them.
    """
    groups = max(1, attention.dp // ffn.dp)
    owners = 1 if ffn.gather else min(ffn.ep, groups)
    return ffn.tp * ffn.ep // owners


def feed_forward(up, down, part, width, hidden, gated, bias, **copies):
    """The ways up and down of a feed-forward part, as a list of `Weight`."""
    out = linear(
        f"gate and {up}" if gated else up, part, (2 if gated else 1) * width, hidden, bias, **copies
    )
    return out + linear(down, part, hidden, width, bias, **copies)


class Part(abc.ABC):
    """What mixers and feed-forward parts have in common."""

    @property
    @abc.abstractmethod
    def kind(self):
        """Its name on a sheet."""

    @property
    @abc.abstractmethod
    def sizes(self):
        """Its sizes by name, out of `SIZE_NAMES`, as a dict; 0 or None where there is none."""

    @abc.abstractmethod
    def weights(self, hidden):
        """Its weights for a hidden size [element], as a list of `Weight`."""

    @abc.abstractmethod
    def operations(self, run):
        """Adds its operations in one layer to a `hwdesign.models.steps.Run`."""

    @abc.abstractmethod
    def shards(self, attention, ffn):
        """Widths that two plans cut, as a list of `Shard`."""

    def sides(self, attention, ffn):
        """Counts and sides of matrices that engines test, as a list of `Side`; by default none."""
        return []

    @abc.abstractmethod
    def scaled(self, factor, ways):
        """A sibling whose widths are `factor` times these; heads stay divisible by `ways`."""

    def resized(self, shard, multiple):
        """Siblings in which the shares of a shard are multiples of `multiple` [element], by the
        name of the direction: the next one "down" and "up".
        """
        step = multiple * shard.ways
        least = shard.width // step * step
        widths = {"down": least, "up": least if least == shard.width else least + step}
        return {way: replace(self, **{shard.field: w}) for way, w in widths.items() if w}


class Mixer(Part):
    """What mixes tokens: attention or a state-space layer. Each has a count of heads and a window.

    A kind that keeps no cache, or no state, inherits zeros. `module` is what checkpoints call it
    where that is another name than that of attention.
    """

    heads_name, head_ways_name = "query heads", "attention tp"  # in errors and verdicts
    window = None  # most tokens that are kept [token]
    module = None

    @property
    def cache_elements(self):
        """Elements a token leaves in the cache [element]."""
        return 0

    @property
    def caches(self):
        """What a layer keeps of a sequence, as a tuple of (elements a token leaves [element], most
        tokens that are kept [token] or None).
        """
        return ((self.cache_elements, self.window),)

    def kept(self, context, *, share=1.0, reserved=False):
        """Elements that a layer keeps of a sequence of so many tokens [element]: its caches, of
        which `share` is here, each no longer than its window unless pages are `reserved`, and what
        its indexer keeps.
        """
        found = self.indexer_elements * context
        for elements, window in self.caches:
            tokens = context if reserved or not window else np.minimum(context, window)
            found = found + tokens * elements * share
        return found

    @property
    def indexer_elements(self):
        """Elements a token leaves for an indexer, which has a cache of its own [element]."""
        return 0

    def cache_share(self, tp):
        """Share of the cache on each of `tp` GPUs [dimensionless]: all of it unless it has heads of
        its own to split.
        """
        return 1.0

    @property
    def state_elements(self):
        """(state, convolution state) of one sequence, constant in size [element]."""
        return 0, 0

    @property
    def head_counts(self):
        """(query heads, key-value heads)."""
        return self.num_heads, self.num_heads

    def head_ways(self, plan):
        """Ways of a plan that split the heads."""
        return plan.tp

    def sides(self, attention, ffn):
        """The heads."""
        return self.head_sides(attention, "attention")

    def head_sides(self, plan, part):
        """The heads as engines test them, as a list of `Side`."""
        ways = self.head_ways(plan)
        side = Side(
            kind="query heads", name=self.heads_name, size=self.num_heads, ways=ways, part=part
        )
        return [side]

    def heads_near(self, ways):
        """The two siblings whose heads spread over so many GPUs, the nearer first."""
        counts = multiples_near(self.num_heads, ways)
        return [replace(self, num_heads=count) for count in counts]

    def heads_spread(self, ways):
        """Whether the heads spread evenly over so many GPUs, copies of key-value heads allowed."""
        return self.num_heads % ways == 0

    def local_heads(self, plan):
        """Heads on one GPU; a `PlanError` where they do not divide."""
        return divided(self.heads_name, self.num_heads, self.head_ways(plan), self.head_ways_name)


class FeedForward(Part):
    """What works on each token alone. `routed` says whether it picks experts."""

    routed = False

    @property
    def gate(self):
        """Matrices of the way up: 2 with a gate, else 1."""
        return 2 if self.gated else 1
