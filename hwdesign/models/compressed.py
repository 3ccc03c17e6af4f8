"""Compressed sparse attention of DeepSeek-V4: each layer keeps a short window of tokens and, in
most layers, one entry for each 4 or 128 of them.

Sources: `modeling_deepseek_v4.py` of transformers 5.24, and DeepSeek's published configs; for
layers that share entries, DeepSeek-V4.1 as mlx-vlm 0.7.10 builds it.
"""

import math
from dataclasses import dataclass, replace

from hwdesign._check import check_fields
from hwdesign.models.parts import (
    Mixer,
    Shard,
    Side,
    divided,
    linear,
    multiples_near,
    scaled_size,
    vector,
)

WINDOWED = "sliding attention"


@dataclass(frozen=True, kw_only=True)
class CompressedAttention(Mixer):
    """Attention with one entry that is key and value for all heads: those of the last `window`
    tokens, and with a `ratio` one for each `ratio` tokens before.

    With `index_heads` (and a ratio) an indexer picks `top_k` of those entries, which are then made
    of two overlapping runs of tokens. The output goes through `out_groups` blocks of `out_rank`
    each.

    Examples
    --------
    >>> CompressedAttention(
    ...     num_heads=64,
    ...     head_dim=512,
    ...     q_rank=1024,
    ...     window=128,
    ...     out_groups=8,
    ...     out_rank=1024,
    ...     ratio=4,
    ... ).cache_elements
    640
    """

    num_heads: int
    head_dim: int  # [element]
    q_rank: int  # [element]
    window: int  # [token]
    out_groups: int
    out_rank: int  # [element]
    ratio: int = 0  # [token]
    index_heads: int = 0
    index_dim: int = 0  # [element]
    top_k: int = 0

    def __post_init__(self):
        sizes = ("num_heads", "head_dim", "q_rank", "window", "out_groups", "out_rank")
        counts = ("ratio", "index_heads", "index_dim", "top_k")
        check_fields(self, sizes=sizes, counts=counts)
        if self.num_heads % self.out_groups:
            raise ValueError(
                f"out_groups must divide num_heads {self.num_heads}, got {self.out_groups}"
            )
        if self.index_heads and not (self.ratio and self.index_dim and self.top_k):
            raise ValueError("index_heads must come with ratio, index_dim and top_k, got 0 of one")

    @property
    def kind(self):
        """Its window, and how it compresses what is before."""
        if not self.ratio:
            return f"shared-entry attention, window {self.window}"
        name = f"compressed attention {self.ratio}:1"
        return f"{name}, top {self.top_k}" if self.index_heads else name

    @property
    def kernel(self):
        """Fitted kernel of its attention."""
        return "csa" if self.index_heads else "hca"

    @property
    def runs(self):
        """Entries that are made at a time, one of which overlaps the run before."""
        return 2 if self.index_heads else 1

    @property
    def caches(self):
        """The window, and the compressed entries of all tokens."""
        return (self.head_dim, self.window), (self._each(self.head_dim), None)

    @property
    def cache_elements(self):
        """Elements a token leaves in the cache [element], while the window is not full."""
        return sum(elements for elements, _ in self.caches)

    @property
    def indexer_elements(self):
        """Elements a token leaves for the indexer [element]."""
        return self._each(self.index_dim) if self.index_heads else 0

    def _each(self, elements):
        """A token's share of a compressed entry [element]."""
        if not self.ratio:
            return 0
        return elements / self.ratio if elements % self.ratio else elements // self.ratio

    @property
    def sizes(self):
        """Heads and the rank of the queries."""
        return {
            "query_heads": self.num_heads,
            "query_latent": self.q_rank,
            "indexer_heads": self.index_heads,
        }

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        part, size, heads = "attention", self.head_dim, self.num_heads
        out = linear("q down", part, self.q_rank, hidden)
        out += linear("q up", part, heads * size, self.q_rank)
        out += [vector("q norm", "norm", self.q_rank)]
        out += linear("kv", part, size, hidden) + [vector("kv norm", "norm", size)]
        out += [vector("sinks", part, heads)]
        out += self._compressors(hidden)
        groups, rank = self.out_groups, self.out_rank
        out += linear("output down", part, groups * rank, heads * size // groups)
        return out + linear("attention output", part, hidden, groups * rank)

    def _compressors(self, hidden):
        """Weights that make the entries of many tokens, and those of the indexer."""
        out, part = [], "attention"
        if self.ratio:
            out += self._compressor("compressor", self.head_dim, hidden)
        if self.index_heads:
            out += self._compressor("indexer compressor", self.index_dim, hidden)
            out += linear("indexer q", part, self.index_heads * self.index_dim, self.q_rank)
            out += linear("indexer weights", part, self.index_heads, hidden)
        return out

    def _compressor(self, name, size, hidden):
        width = self.runs * size
        out = linear(f"{name} kv", "attention", width, hidden)
        out += linear(f"{name} gate", "attention", width, hidden)
        bias = vector(f"{name} bias", "attention", self.ratio * width)
        return [*out, bias, vector(f"{name} norm", "norm", size)]

    def operations(self, run):
        """Adds the projections, the indexer, the scores of window and compressed entries and the
        output projection of one layer; the single entry is on every GPU.
        """
        part, size, heads = "attention", self.head_dim, self.local_heads(run.plan)
        ways = run.plan.tp
        groups = divided("output groups", self.out_groups, ways, "attention tp")
        run.gemm("q and kv", run.tokens, self.q_rank + size, run.hidden, part)
        run.gemm("q up", run.tokens, heads * size, self.q_rank, part)
        self._compress(run)
        shape = {"heads": heads, "kv_heads": 1, "key": size, "value": size, "cached": size}
        self._attend(run, shape | {"kind": "compressed attention"})
        inside = heads * size // groups  # of each group; one kernel does them all
        run.gemm("output down", run.tokens, groups * self.out_rank, inside, part)
        run.gemm("attention output", run.tokens, run.hidden, groups * self.out_rank, part)
        run.exchange("all-reduce", run.tokens * run.hidden, ways * run.plan.kvp)

    def _attend(self, run, shape):
        """Scores of the window and of the entries, which are one kernel."""
        kernel, top = self.kernel, self.top_k
        if not self.ratio:
            run.attend(window=self.window, kernel=kernel, top=self.window, **shape)
            return
        run.attend(window=self.window, kernel=kernel and "inside", **shape)
        found = {"kernel": kernel, "top": top, "beside": self.window, "every": self.ratio}
        run.attend(window=top * self.ratio or None, **found, **shape)

    def _compress(self, run):
        part = "attention"
        if self.ratio:
            width = 2 * self.runs * self.head_dim
            run.gemm("compressor", run.tokens, width, run.hidden, part)
        if self.index_heads:
            width = 2 * self.runs * self.index_dim + self.index_heads
            run.gemm("indexer", run.tokens, width, run.hidden, part)
            queries = self.index_heads * self.index_dim
            run.gemm("indexer q", run.tokens, queries, self.q_rank, part)
            shape = {"heads": self.index_heads, "size": self.index_dim, "cached": self.index_dim}
            kernel = self.kernel and f"{self.kernel} index"
            run.score(kind="an indexer", every=self.ratio, kernel=kernel, top=self.top_k, **shape)

    def shards(self, attention, ffn):
        """The rank of the queries, which no plan cuts."""
        common = {"ways": 1, "part": "attention"}
        return [Shard(name="query latent", field="q_rank", width=self.q_rank, **common)]

    def sides(self, attention, ffn):
        """Heads, their width as N of the way up, and the groups of the output."""
        common = {"part": "attention", "ways": attention.tp}
        heads, groups = self.num_heads * self.head_dim, self.out_groups * self.out_rank
        return [
            *self.head_sides(attention, "attention"),
            Side(kind="output", name="query heads", size=heads, **common),
            Side(kind="input", name="output groups", size=groups, **common),
        ]

    def heads_spread(self, ways):
        """Whether heads and groups of the output spread evenly."""
        return self.num_heads % ways == 0 and self.out_groups % ways == 0

    def heads_near(self, ways):
        """The two siblings whose heads and groups of the output spread over so many GPUs."""
        groups = multiples_near(self.out_groups, ways)[0]
        counts = multiples_near(self.num_heads, math.lcm(groups, ways))
        return [replace(self, num_heads=count, out_groups=groups) for count in counts]

    def scaled(self, factor, ways):
        """More or fewer heads, in whole groups; the entry stays."""
        unit = self.out_groups * ways
        return replace(self, num_heads=scaled_size(self.num_heads, factor, unit))


@dataclass(frozen=True, kw_only=True)
class SharedEntryAttention(CompressedAttention):
    """Compressed attention in which few layers make and keep the entries (`keeps`) that all layers
    up to the next such one read, and few choose among them (`picks`).

    Scores of all entries are counted where a layer chooses, also where a config narrows them down.

    Examples
    --------
    >>> shape = {"num_heads": 64, "head_dim": 512, "q_rank": 1280, "window": 128, "out_groups": 8}
    >>> index = {"index_heads": 32, "index_dim": 128, "top_k": 512}
    >>> one = SharedEntryAttention(**shape, **index, out_rank=1024, ratio=2, keeps=True, picks=True)
    >>> one.caches, replace(one, keeps=False).caches
    (((512, 128), (256, None)), ((512, 128), (0, None)))
    """

    keeps: bool = False
    picks: bool = False
    kernel = ""  # none was fitted

    def __post_init__(self):
        super().__post_init__()
        check_fields(self, flags=("keeps", "picks"))
        if (self.keeps or self.picks) and not self.index_heads:
            raise ValueError("keeps and picks must come with ratio and index_heads, got none")

    @property
    def kind(self):
        """Its window, how entries are compressed, and whose they are."""
        if not self.ratio:
            return super().kind
        owner = "own entries" if self.keeps else "entries of an earlier layer"
        return f"compressed attention {self.ratio}:1, {owner}, top {self.top_k}"

    @property
    def caches(self):
        """The window, and the compressed entries where it keeps them."""
        return (self.head_dim, self.window), (self.keeps * self._each(self.head_dim), None)

    @property
    def indexer_elements(self):
        """Elements a token leaves for the indexer [element]."""
        return self._each(self.index_dim) if self.keeps and self.picks else 0

    def _compressors(self, hidden):
        out, part, size, wide = [], "attention", self.head_dim, self.index_dim
        if self.keeps:
            out += linear("compressor kv", part, size, hidden)
            out += linear("compressor gate", part, size, hidden) if self.ratio > 1 else []
            out += [vector("compressor norm", "norm", size)]
        if self.picks:
            out += linear("indexer q", part, self.index_heads * wide, self.q_rank)
            out += linear("indexer weights", part, self.index_heads, hidden)
        if self.keeps and self.picks:
            out += linear("indexer k", part, wide, size) + [vector("indexer norm", "norm", wide)]
        return out

    def _compress(self, run):
        part, size, wide = "attention", self.head_dim, self.index_dim
        if self.keeps:
            width = size * (1 + (self.ratio > 1))
            run.gemm("compressor", run.tokens, width, run.hidden, part)
        if self.picks:
            run.gemm("indexer weights", run.tokens, self.index_heads, run.hidden, part)
            run.gemm("indexer q", run.tokens, self.index_heads * wide, self.q_rank, part)
            if self.keeps:
                run.gemm("indexer k", run.tokens, wide, size, part)
            shape = {"heads": self.index_heads, "size": wide, "cached": wide}
            run.score(kind="an indexer", every=self.ratio, **shape)
