"""The kinds of blocks: attention, dense feed-forward parts, experts, and the block that holds a
mixer and a feed-forward part.

Every parameter belongs to one `Weight`. Names are those of Hugging Face configs. Sources: the
`modeling_*.py` of each architecture in transformers.
"""

from dataclasses import dataclass, replace

import numpy as np

from hwdesign._check import check_fields, choice, instance
from hwdesign.formulas.collectives import remote_copies
from hwdesign.formulas.experts import distinct_experts, expert_ranks
from hwdesign.formulas.tiling import head_sharding
from hwdesign.models.indexer import Indexer, picked, sparse
from hwdesign.models.parts import (
    SIZE_NAMES,
    TILE,
    FeedForward,
    Mixer,
    Shard,
    Side,
    divided,
    down_sides,
    even_heads,
    feed_forward,
    heads_near,
    inner_ways,
    linear,
    padded_share,
    scaled_size,
    vector,
)
from hwdesign.models.residual import Residual


@dataclass(frozen=True, kw_only=True)
class SelfAttention(Mixer):
    """Multi-head, grouped-query (fewer key-value heads) or multi-query (one) attention, full or in
    a sliding window.

    `qk_norm` is None, "head" (one norm of head_dim for q, one for k) or "full" (over the full width
    of q and of k). `output_gate` is None, "element" (one gate for each element of the output) or
    "head". `value_dim` is the size of a value where it is not that of a key. Without `value_weight`
    the matrix of the keys makes the values, too; both are cached. With an `indexer` a query sees
    the tokens that it picks.

    Examples
    --------
    >>> SelfAttention(num_heads=32, num_kv_heads=8, head_dim=128).kind
    'GQA'
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int  # [element]
    window: int | None = None  # [token]
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: str | None = None
    sinks: bool = False
    value_dim: int | None = None  # [element]
    output_gate: str | None = None
    value_weight: bool = True
    indexer: Indexer | None = None

    def __post_init__(self):
        sizes = ("num_heads", "num_kv_heads", "head_dim", "window", "value_dim")
        flags = ("qkv_bias", "out_bias", "sinks", "value_weight")
        check_fields(self, sizes=sizes, none=("window", "value_dim"), flags=flags)
        instance("indexer", self.indexer, Indexer | None, "an Indexer or None")
        if self.qk_norm is not None:
            choice("qk_norm", self.qk_norm, ("head", "full"))
        if self.output_gate is not None:
            choice("output_gate", self.output_gate, ("element", "head"))
        if self.value_dim is not None and not self.value_weight:
            raise ValueError(f"value_dim must be None without value_weight, got {self.value_dim}")

    @property
    def value_size(self):
        """Size of a value [element]."""
        return self.value_dim or self.head_dim

    @property
    def gate_width(self):
        """Rows of the output gate [element], 0 without one."""
        if self.output_gate is None:
            return 0
        return self.num_heads * (self.value_size if self.output_gate == "element" else 1)

    @property
    def kind(self):
        """MHA, GQA or MQA, with the window if there is one."""
        name = "GQA"
        if self.num_kv_heads == self.num_heads:
            name = "MHA"
        elif self.num_kv_heads == 1:
            name = "MQA"
        name += f", window {self.window}" if self.window else ""
        return picked(name, self)

    @property
    def indexer_elements(self):
        """Elements a token leaves for the indexer [element]."""
        return self.indexer.cache_elements if self.indexer else 0

    @property
    def cache_elements(self):
        """Elements a token leaves in the cache [element]: a key and a value for each key-value
        head.
        """
        return self.num_kv_heads * (self.head_dim + self.value_size)

    def cache_share(self, tp):
        """Share of the cache on each of `tp` GPUs [dimensionless]: key-value heads are divided
        until one is left; beyond that they are copied.
        """
        return -(-self.num_kv_heads // tp) / self.num_kv_heads

    @property
    def head_counts(self):
        """(query heads, key-value heads)."""
        return self.num_heads, self.num_kv_heads

    def heads_spread(self, ways):
        """Whether the heads spread evenly, copies of key-value heads allowed."""
        found, _ = head_sharding(self.num_heads, self.num_kv_heads, ways)
        return found in ("clean", "replicated")

    @property
    def sizes(self):
        """Query and key-value heads, and those of the indexer."""
        heads = {"query_heads": self.num_heads, "key_value_heads": self.num_kv_heads}
        return heads | {"indexer_heads": self.indexer and self.indexer.num_heads}

    def taken(self, hidden):
        """Width of what queries, keys and values are made from, for a hidden size [element]."""
        return hidden

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        query, key = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        value = self.num_kv_heads * self.value_size if self.value_weight else 0
        taken, bias = self.taken(hidden), self.qkv_bias
        out = linear("qkv", "attention", query + key + value, taken, bias)
        if self.output_gate:
            out += linear("attention gate", "attention", self.gate_width, taken, bias)
        out += self.indexer.weights(hidden, hidden) if self.indexer else []
        merged = self.num_heads * self.value_size
        out += linear("attention output", "attention", hidden, merged, self.out_bias)
        if self.qk_norm:
            sizes = (self.head_dim, self.head_dim) if self.qk_norm == "head" else (query, key)
            out += [vector(f"{name} norm", "norm", n) for name, n in zip("qk", sizes, strict=True)]
        return out + ([vector("sinks", "attention", self.num_heads)] if self.sinks else [])

    def operations(self, run):
        """Adds projections, scores and the output projection of one layer."""
        heads = self.local_heads(run.plan)
        kv_heads = -(-self.num_kv_heads // run.plan.tp)
        key, value = self.head_dim, self.value_size
        width = (heads + kv_heads) * key + kv_heads * value * self.value_weight
        width += heads * self.gate_width // self.num_heads
        run.gemm("qkv", run.tokens, width, self.taken(run.hidden), "attention")
        if self.output_gate:
            run.small(1, run.tokens * heads * value)
        if self.qk_norm == "full":  # the GPUs add up sums of squares, two in FP32 a token
            run.exchange("all-reduce", 4 * run.tokens, run.plan.tp)
            run.small(2, run.tokens * (heads + kv_heads) * key)
        seen = sparse(self, run, run.hidden, "msa")
        sizes = {"heads": heads, "kv_heads": kv_heads, "key": key, "value": value}
        sizes |= {"cached": kv_heads * (key + value), "output": heads * value}
        run.attend(**sizes, **seen)

    def shards(self, attention, ffn):
        """The query heads' width."""
        width = self.num_heads * self.head_dim
        return [
            Shard(
                name="query heads",
                field="num_heads",
                width=width,
                ways=attention.tp,
                part="attention",
            )
        ]

    def sides(self, attention, ffn):
        """Heads; their width as K of the output projection and, with keys and values, as N."""
        common = {"name": "query heads", "part": "attention"}
        width, ways = self.num_heads * self.head_dim, attention.tp
        copied = min(ways, self.num_kv_heads)  # at least one key-value head on each GPU
        found = [
            *self.head_sides(attention, "attention"),
            Side(kind="input", size=self.num_heads * self.value_size, ways=ways, **common),
            Side(kind="merged output", size=width, ways=ways, **common),
        ]
        common["name"] = "heads"
        for size in dict.fromkeys((self.head_dim, self.value_size)):
            size *= self.num_kv_heads
            found.append(Side(kind="merged output", size=size, ways=copied, **common))
        return found

    def head_sides(self, plan, part):
        """Query heads, and key-value heads, of which or of the GPUs one divides the other."""
        few, many = sorted((self.num_kv_heads, self.head_ways(plan)))
        kind = "key-value heads"
        keys = Side(kind=kind, name=kind, size=many, ways=few, part=part)
        return [*super().head_sides(plan, part), keys]

    def heads_near(self, ways):
        """The two siblings whose heads spread over so many GPUs, the nearer first: groups of query
        heads stay whole, and key-value heads change where they do not spread.
        """
        found = heads_near(self.num_heads, self.num_kv_heads, ways)
        return [replace(self, num_heads=heads, num_kv_heads=kv) for heads, kv in found]

    def resized(self, shard, multiple):
        """The same attention with the next numbers of query heads whose shares are multiples, and
        with heads of 128 of about the same width; heads come in whole groups.
        """
        found = self._next_heads(shard.ways, multiple)
        if self.head_dim % TILE:
            wide = max(1, round(self.head_dim / TILE)) * TILE
            heads = max(1, round(self.num_heads * self.head_dim / wide))
            kv = heads if self.num_kv_heads == self.num_heads else self.num_kv_heads
            other = replace(self, head_dim=wide, num_heads=heads, num_kv_heads=kv)
            found["wider heads"] = other._next_heads(shard.ways, multiple)["up"]
        return found

    def _next_heads(self, ways, multiple):
        """By the names of the directions, siblings whose width over so many GPUs is a multiple."""
        kv = self.num_kv_heads
        found = even_heads(self.num_heads, kv, self.head_dim, ways, multiple)
        alone = kv == self.num_heads
        return {
            way: replace(self, num_heads=heads, num_kv_heads=heads if alone else kv)
            for way, heads in found.items()
        }

    def scaled(self, factor, ways):
        """More or fewer query heads; key-value heads stay where they are shared."""
        if self.num_kv_heads < self.num_heads:
            unit = int(np.lcm(self.num_kv_heads, ways))
            return replace(self, num_heads=scaled_size(self.num_heads, factor, unit))
        heads = scaled_size(self.num_heads, factor, ways)
        return replace(self, num_heads=heads, num_kv_heads=heads)


@dataclass(frozen=True, kw_only=True)
class DenseFFN(FeedForward):
    """A feed-forward block: up and down, with a gate beside up if `gated`.

    Examples
    --------
    >>> [w.n for w in DenseFFN(width=14336).weights(4096)]
    [28672, 4096]
    """

    width: int  # [element]
    gated: bool = True
    bias: bool = False

    def __post_init__(self):
        check_fields(self, sizes=("width",), flags=("gated", "bias"))

    @property
    def kind(self):
        """dense."""
        return "dense"

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        return feed_forward("up", "down", "ffn", self.width, hidden, self.gated, self.bias)

    @property
    def sizes(self):
        """Its width."""
        return {"feed_forward_width": self.width}

    def operations(self, run):
        """Adds the two products of one layer."""
        width = padded_share(self.width, run.ways)
        run.gemm("up", run.mine, self.gate * width, run.hidden, "ffn")
        run.gemm("down", run.mine, run.hidden, width, "ffn")
        run.small(1, run.mine * width)  # activation

    def shards(self, attention, ffn):
        """Its width."""
        ways = inner_ways(attention, ffn)
        return [
            Shard(name="feed-forward width", field="width", width=self.width, ways=ways, part="ffn")
        ]

    def sides(self, attention, ffn):
        """Both sides of its width."""
        ways = inner_ways(attention, ffn)
        return down_sides("feed-forward width", self.width, ways, "ffn", self.gated)

    def scaled(self, factor, ways):
        """Another width."""
        return replace(self, width=scaled_size(self.width, factor, TILE))


@dataclass(frozen=True, kw_only=True)
class MoE(FeedForward):
    """A mixture of experts: a router picks `top_k` of `num_experts`; shared experts see every
    token.

    `shared_width` is the summed width of the shared experts; `router_correction` adds one bias an
    expert that only steers the choice, `router_scale` a factor for each input and each expert.
    Of `zero_experts`, which the router knows and nothing computes, a token takes its even share.
    With a `latent` the routed experts work on vectors of that size, made from the hidden ones and
    turned back into them; `latent_norm` is a norm of them. `image_correction` is a second
    correction of the router, for tokens of images.

    Examples
    --------
    >>> MoE(num_experts=8, top_k=2, width=14336).kind
    'MoE 2 of 8'
    """

    num_experts: int
    top_k: int
    width: int  # [element]
    gated: bool = True
    bias: bool = False
    shared_width: int = 0  # [element]
    shared_gate: bool = False
    router_bias: bool = False
    router_correction: bool = False
    router_scale: bool = False
    zero_experts: int = 0
    latent: int = 0  # [element]
    latent_norm: bool = False
    image_correction: bool = False

    routed = True

    def __post_init__(self):
        sizes = ("num_experts", "top_k", "width")
        counts = ("shared_width", "zero_experts", "latent")
        flags = ("gated", "bias", "shared_gate", "router_bias", "router_correction", "router_scale")
        flags = (*flags, "latent_norm", "image_correction")
        check_fields(self, sizes=sizes, counts=counts, flags=flags)

    @property
    def choices(self):
        """Rows of the router: experts, and those that compute nothing."""
        return self.num_experts + self.zero_experts

    @property
    def used(self):
        """Experts that a token uses, on average where some compute nothing, rounded up."""
        return -(-self.top_k * self.num_experts // self.choices)

    @property
    def kind(self):
        """MoE with its top-k and number of experts."""
        zero = f" + {self.zero_experts} zero-computation experts" if self.zero_experts else ""
        return f"MoE {self.top_k} of {self.num_experts}{zero}"

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        out = self.router_weights(hidden)
        if self.image_correction:
            out.append(vector("router correction of images", "router", self.choices))
        if self.router_scale:
            out += [vector("router scale", "router", hidden)]
            out += [vector("expert scale", "router", self.num_experts)]
        copies = {"stored": self.num_experts, "used": self.used}
        shape, inside = (self.gated, self.bias), self.latent or hidden
        names = "expert up", "expert down", "experts"
        out += feed_forward(*names, self.width, inside, *shape, **copies)
        if self.latent:
            out += linear("latent down", "shared experts", self.latent, hidden)
            out += linear("latent up", "shared experts", hidden, self.latent)
            out += [vector("latent norm", "norm", self.latent)] if self.latent_norm else []
        if self.shared_width:
            names = "shared up", "shared down", "shared experts"
            out += feed_forward(*names, self.shared_width, hidden, *shape)
        return out + (
            linear("shared gate", "shared experts", 1, hidden) if self.shared_gate else []
        )

    def router_weights(self, hidden):
        """Weights of the router, as a list."""
        out = linear("router", "router", self.choices, hidden, self.router_bias)
        if self.router_correction:
            out.append(vector("router correction", "router", self.choices))
        return out

    @property
    def sizes(self):
        """How many experts there are, a token uses, and their widths."""
        return {
            "experts": self.num_experts,
            "experts_per_token": self.used,
            "expert_width": self.width,
            "shared_expert_width": self.shared_width,
            "expert_latent": self.latent,
        }

    def operations(self, run):
        """Adds router, routed experts with their dispatch and combine, and shared experts."""
        ep = run.plan.ep
        local = divided("experts", self.num_experts, ep, "ffn ep")
        width = padded_share(self.width, run.plan.tp)
        touched = distinct_experts(run.here, self.used, self.num_experts) * local / self.num_experts
        pairs = run.here * self.used / ep
        ranks = expert_ranks(self.used, self.num_experts, ep)
        arrive = run.here if run.owners == 1 else run.here * ranks / ep
        self.router_operations(run)
        inside = self.latent or run.hidden
        if self.latent:
            run.gemm("latent down", run.mine, self.latent, run.hidden, "shared experts")
            run.gemm("latent up", run.mine, run.hidden, self.latent, "shared experts")
        rows, up = pairs / touched, self.gate * width
        run.gemm("expert up", rows, up, inside, "experts", touched)
        run.gemm("expert down", rows, inside, width, "experts", touched)
        run.route(
            tokens=arrive,
            pairs=pairs,
            touched=touched,
            local=local,
            hidden=inside,
            width=width,
            gate=self.gate,
            slots=arrive * self.used,
        )
        run.small(1, run.mine * self.choices)  # choice of the experts
        self._shared(run)
        if run.owners > 1:
            copies = remote_copies(self.used, self.num_experts, ep)
            sent = run.here / ep * copies * inside
            run.exchange("dispatch", sent, ep)
            run.exchange("combine", sent, ep)

    def router_operations(self, run):
        """Adds the products of the router."""
        run.gemm("router", run.mine, self.choices, run.hidden, "router")

    def _shared(self, run):
        if self.shared_width:
            width = padded_share(self.shared_width, run.ways)
            run.gemm("shared up", run.mine, self.gate * width, run.hidden, "shared experts")
            run.gemm("shared down", run.mine, run.hidden, width, "shared experts")
            run.small(1, run.mine * width)  # activation
        if self.shared_gate:
            run.gemm("shared gate", run.mine, 1, run.hidden, "shared experts")

    def shards(self, attention, ffn):
        """The widths of routed and of shared experts."""
        found = [
            Shard(name="expert width", field="width", width=self.width, ways=ffn.tp, part="experts")
        ]
        if self.shared_width:
            ways = inner_ways(attention, ffn)
            found.append(
                Shard(
                    name="shared expert width",
                    field="shared_width",
                    width=self.shared_width,
                    ways=ways,
                    part="shared experts",
                )
            )
        return found

    def sides(self, attention, ffn):
        """The experts as a set, their width, and both sides of that of shared experts."""
        common = {"part": "experts"}
        found = [
            Side(kind="expert set", name="experts", size=self.num_experts, ways=ffn.ep, **common),
            Side(kind="experts", name="expert width", size=self.width, ways=ffn.tp, **common),
        ]
        if self.shared_width:
            name, part, ways = "shared expert width", "shared experts", inner_ways(attention, ffn)
            found += down_sides(name, self.shared_width, ways, part, self.gated)
        return found

    def scaled(self, factor, ways):
        """Other widths of the same number of experts."""
        shared = self.shared_width and scaled_size(self.shared_width, factor, TILE)
        return replace(self, width=scaled_size(self.width, factor, TILE), shared_width=shared)


@dataclass(frozen=True, kw_only=True)
class Block:
    """One layer: a mixer (attention, Mamba-2 or None), a feed-forward part or None, and its norms;
    `residual` is what joins it to the others where that is more than a sum. A `repeated` block runs
    once more with the weights of an earlier one, which are stored there.

    Examples
    --------
    >>> Block(mixer=None, ffn=DenseFFN(width=8), norms=1).kind
    'dense'
    """

    mixer: Mixer | None
    ffn: FeedForward | None
    norms: int = 2
    norm_bias: bool = False
    scalars: int = 0  # numbers that scale the output of the layer
    residual: Residual | None = None
    repeated: bool = False

    def __post_init__(self):
        kinds = "HyperConnections, AttentionResidual or None"
        instance("residual", self.residual, Residual | None, kinds)
        instance("mixer", self.mixer, Mixer | None, "a Mixer, as SelfAttention, or None")
        instance("ffn", self.ffn, FeedForward | None, "a FeedForward, as DenseFFN, or None")
        check_fields(self, counts=("norms", "scalars"), flags=("norm_bias", "repeated"))
        for part in self.parts:
            for name in part.sizes:
                choice("size", name, SIZE_NAMES)

    @property
    def parts(self):
        """Mixer and feed-forward part, without what is absent."""
        return tuple(part for part in (self.mixer, self.ffn) if part)

    @property
    def routed(self):
        """Whether it has experts."""
        return self.ffn is not None and self.ffn.routed

    @property
    def kind(self):
        """Mixer and feed-forward part in words, what is absent left out."""
        return " + ".join(part.kind for part in self.parts) or "nothing"

    def weights(self, hidden):
        """Weights of the block for a hidden size [element]."""
        out = [w for part in self.parts for w in part.weights(hidden)]
        out += self.residual.weights(hidden) if self.residual else []
        out += [vector("layer scalar", "norm", self.scalars)] if self.scalars else []
        out += [vector("norm", "norm", hidden * (2 if self.norm_bias else 1))] * self.norms
        return [replace(weight, stored=0) for weight in out] if self.repeated else out
