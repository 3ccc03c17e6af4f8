"""Latent attention: what a layer of it weighs, caches and computes. Sources: DeepSeek-V2, arXiv
2405.04434; `modeling_deepseek_v3.py` in transformers.
"""

from dataclasses import dataclass, replace

from hwdesign._check import check_fields, instance
from hwdesign.models.indexer import Indexer, picked, sparse
from hwdesign.models.parts import (
    TILE,
    Mixer,
    Shard,
    Side,
    linear,
    padded_share,
    scaled_size,
    vector,
)


@dataclass(frozen=True, kw_only=True)
class LatentAttention(Mixer):
    """Multi-head latent attention (MLA): one latent and one rotary key a token, shared by all
    heads.

    `q_rank` is None where queries are not compressed, `rope_dim` 0 where a token leaves the latent
    alone. `output_gate` says whether each element of the output has a gate, `head_gate` whether
    each head has one. With an `indexer` a query sees the tokens that it picks; its own queries are
    made from the compressed ones, or from the hidden vector.

    Examples
    --------
    >>> mla = LatentAttention(
    ...     num_heads=128, q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128
    ... )
    >>> mla.cache_elements
    576
    """

    num_heads: int
    q_rank: int | None  # [element]
    kv_rank: int  # [element]
    nope_dim: int  # [element]
    rope_dim: int  # [element]
    v_dim: int  # [element]
    bias: bool = False
    window: int | None = None
    output_gate: bool = False
    indexer: Indexer | None = None
    head_gate: bool = False

    def __post_init__(self):
        sizes = ("num_heads", "q_rank", "kv_rank", "nope_dim", "v_dim", "window")
        flags = ("bias", "output_gate", "head_gate")
        check_fields(
            self, sizes=sizes, counts=("rope_dim",), none=("q_rank", "window"), flags=flags
        )
        instance("indexer", self.indexer, Indexer | None, "an Indexer or None")

    @property
    def kind(self):
        """MLA, with how many tokens its indexer picks."""
        return picked("MLA", self)

    @property
    def indexer_elements(self):
        """Elements a token leaves for the indexer [element]."""
        return self.indexer.cache_elements if self.indexer else 0

    @property
    def gate_size(self):
        """Gates of a head: one for each element, one, or 0."""
        return self.v_dim if self.output_gate else int(self.head_gate)

    @property
    def cache_elements(self):
        """Elements a token leaves in the cache [element]: the latent, once, and the rotary key."""
        return self.kv_rank + self.rope_dim

    @property
    def sizes(self):
        """Heads and the two ranks."""
        return {
            "query_heads": self.num_heads,
            "query_latent": self.q_rank,
            "key_value_latent": self.kv_rank,
            "indexer_heads": self.indexer and self.indexer.num_heads,
        }

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        query, b = self.num_heads * (self.nope_dim + self.rope_dim), self.bias
        out = []
        if self.q_rank is None:
            out += linear("q", "attention", query, hidden)
        else:
            out += linear("q down", "attention", self.q_rank, hidden, b)
            out += linear("q up", "attention", query, self.q_rank)
            out += [vector("q norm", "norm", self.q_rank)]
        out += linear("kv down", "attention", self.kv_rank + self.rope_dim, hidden, b)
        out += linear(
            "kv up", "attention", self.num_heads * (self.nope_dim + self.v_dim), self.kv_rank
        )
        out += [vector("kv norm", "norm", self.kv_rank)]
        if gates := self.num_heads * self.gate_size:
            out += linear("attention gate", "attention", gates, hidden)
        out += self.indexer.weights(hidden, self.q_rank or hidden) if self.indexer else []
        return out + linear("attention output", "attention", hidden, self.num_heads * self.v_dim, b)

    def operations(self, run):
        """Adds projections, scores and the output projection of one layer: absorbed (scores against
        the latent) in decode, expanded in prefill, the latents of cached tokens once more with each
        chunk; where an indexer picks, each query goes to the latents, so those are not.
        """
        heads = self.local_heads(run.plan)
        self._queries(run, heads)
        width = self.kv_rank + self.rope_dim
        run.gemm("kv down", run.tokens, width, run.hidden, "attention")
        output = heads * self.v_dim
        if run.decodes:
            expanded, values = run.tokens, padded_share(output, run.plan.kvp)  # heads merged here
            key, value = self.kv_rank + self.rope_dim, self.kv_rank
        else:
            expanded = run.tokens if self.indexer else run.batch * run.context
            values = output
            key, value = self.nope_dim + self.rope_dim, self.v_dim
        run.gemm("kv up", expanded, heads * self.nope_dim + values, self.kv_rank, "attention")
        if gates := heads * self.gate_size:
            run.gemm("attention gate", run.tokens, gates, run.hidden, "attention")
            run.small(1, run.tokens * output)
        seen = sparse(self, run, self.q_rank or run.hidden, "dsa")
        run.attend(
            heads=heads,
            kv_heads=1,
            key=key,
            value=value,
            cached=self.cache_elements,
            output=output,
            latent=self.cache_elements + self.kv_rank,
            **seen,
        )

    def _queries(self, run, heads):
        width = heads * (self.nope_dim + self.rope_dim)
        if self.q_rank is None:
            run.gemm("q", run.tokens, width, run.hidden, "attention")
        else:
            run.gemm("q down", run.tokens, self.q_rank, run.hidden, "attention")
            run.gemm("q up", run.tokens, width, self.q_rank, "attention")

    def shards(self, attention, ffn):
        """The ranks, which no plan cuts; the rotary part is multiplied together with the queries'
        latent.
        """
        common = {"ways": 1, "part": "attention"}
        found = [Shard(name="latent", field="kv_rank", width=self.kv_rank, **common)]
        if self.q_rank:
            found.append(Shard(name="query latent", field="q_rank", width=self.q_rank, **common))
        return found

    def sides(self, attention, ffn):
        """Heads; the ways down to the latents, and the ways up from them, which heads split."""
        common, ways = {"part": "attention", "name": "query heads"}, attention.tp
        latent, query = {"name": "latent"}, {"name": "query latent"}
        key = self.nope_dim + self.rope_dim
        down = self.kv_rank + self.rope_dim
        found = [
            *self.head_sides(attention, "attention"),
            Side(kind="input", size=self.num_heads * self.v_dim, ways=ways, **common),
            Side(kind="output", size=self.num_heads * key, ways=ways, **common),
            Side(
                kind="output",
                size=self.num_heads * (self.nope_dim + self.v_dim),
                ways=ways,
                **common,
            ),
            Side(kind="output", size=down, ways=1, **common | latent),
            Side(kind="input", size=self.kv_rank, ways=1, **common | latent),
        ]
        if self.q_rank:
            found += [
                Side(kind=kind, size=self.q_rank, ways=1, **common | query)
                for kind in ("input", "output")
            ]
        return found

    def scaled(self, factor, ways):
        """More or fewer heads and another rank of the queries; the cached latent stays."""
        rank = self.q_rank and scaled_size(self.q_rank, factor, TILE)
        return replace(self, num_heads=scaled_size(self.num_heads, factor, ways), q_rank=rank)
