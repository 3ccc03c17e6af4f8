"""What every part of a model has: its weights, and what a mixer and a feed-forward part must know.

A new kind of block is a subclass of `Mixer` or `FeedForward` in `hwdesign.models.blocks`. It says
what it weighs, caches, computes and how it splits; everything else of the package asks it.
"""

import abc
from dataclasses import dataclass, replace

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
    "norm": (None, False),
    "head": ("head", False),
}
TERM_OF = {part: term for part, (term, _) in PARTS.items() if term}
QUANTIZED = tuple(part for part, (_, quantized) in PARTS.items() if quantized)
# Sizes of blocks by their names in a machine-readable change, in the order of its schema.
SIZE_NAMES = (
    "query_heads",
    "key_value_heads",
    "query_latent",
    "key_value_latent",
    "mamba_heads",
    "feed_forward_width",
    "experts",
    "experts_per_token",
    "expert_width",
    "shared_expert_width",
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

    @abc.abstractmethod
    def scaled(self, factor, ways):
        """A sibling whose widths are `factor` times these; heads stay divisible by `ways`."""

    def resized(self, shard, width):
        """A sibling in which a shard's width is another one [element], or the next that it can
        have.
        """
        return replace(self, **{shard.field: width})


class Mixer(Part):
    """What mixes tokens: attention or a state-space layer. Each has a count of heads and a window.

    A kind that keeps no cache, or no state, inherits zeros.
    """

    heads_name, head_ways_name = "query heads", "attention tp"  # in errors and verdicts
    window = None  # most tokens that a query sees [token]

    @property
    def cache_elements(self):
        """Elements a token leaves in the cache [element]."""
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
