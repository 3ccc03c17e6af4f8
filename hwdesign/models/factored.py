"""Attention whose queries come through a space that all heads share.

Sources: Step-3, arXiv 2507.19427, and `step3_text.py` of vLLM 0.33.0.
"""

from dataclasses import dataclass, replace

from hwdesign._check import check_fields
from hwdesign.models.blocks import SelfAttention
from hwdesign.models.parts import TILE, Mixer, Shard, Side, linear, scaled_size, vector


@dataclass(frozen=True, kw_only=True)
class FactoredAttention(SelfAttention):
    """Attention with few large key-value heads, whose queries are made of a normed latent of
    `q_rank`: multi-matrix factorization attention (MFA). No plan cuts the way down to the latent.

    Examples
    --------
    >>> mfa = FactoredAttention(num_heads=64, num_kv_heads=1, head_dim=256, q_rank=2048)
    >>> mfa.kind, mfa.cache_elements
    ('MFA', 512)
    """

    q_rank: int  # [element]

    def __post_init__(self):
        super().__post_init__()
        check_fields(self, sizes=("q_rank",))
        for name in ("qk_norm", "output_gate", "value_dim", "indexer"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} must be None with queries of a latent")
        if not self.value_weight:
            raise ValueError("value_weight must be true with queries of a latent, got false")

    @property
    def kind(self):
        """MFA, with the window if there is one."""
        return f"MFA, window {self.window}" if self.window else "MFA"

    @property
    def sizes(self):
        """Heads and the rank of the queries."""
        return super().sizes | {"query_latent": self.q_rank}

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        width, key = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        out = linear("qkv", "attention", self.q_rank + 2 * key, hidden, self.qkv_bias)
        out += linear("q up", "attention", width, self.q_rank)
        out += linear("attention output", "attention", hidden, width, self.out_bias)
        out.append(vector("q norm", "norm", self.q_rank))
        return out + ([vector("sinks", "attention", self.num_heads)] if self.sinks else [])

    def operations(self, run):
        """Adds projections, scores and the output projection of one layer."""
        heads = self.local_heads(run.plan)
        kv_heads, key = -(-self.num_kv_heads // run.plan.tp), self.head_dim
        run.gemm("qkv", run.tokens, self.q_rank + 2 * kv_heads * key, run.hidden, "attention")
        run.gemm("q up", run.tokens, heads * key, self.q_rank, "attention")
        run.attend(
            heads=heads,
            kv_heads=kv_heads,
            key=key,
            value=key,
            cached=2 * kv_heads * key,
            output=heads * key,
            window=self.window,
        )

    def shards(self, attention, ffn):
        """The query heads' width, and the latent, which no plan cuts."""
        latent = {"name": "query latent", "field": "q_rank", "ways": 1, "part": "attention"}
        return [*super().shards(attention, ffn), Shard(width=self.q_rank, **latent)]

    def sides(self, attention, ffn):
        """Those of any attention, and both sides of the latent."""
        latent = {"name": "query latent", "size": self.q_rank, "ways": 1, "part": "attention"}
        found = [Side(kind=kind, **latent) for kind in ("input", "output")]
        return [*super().sides(attention, ffn), *found]

    def resized(self, shard, multiple):
        """Another number of heads, or another rank."""
        kind = Mixer if shard.field == "q_rank" else SelfAttention
        return kind.resized(self, shard, multiple)

    def scaled(self, factor, ways):
        """More or fewer query heads and another rank of the queries."""
        rank = scaled_size(self.q_rank, factor, TILE)
        return replace(super().scaled(factor, ways), q_rank=rank)
