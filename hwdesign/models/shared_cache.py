"""Attention that keeps nothing of its own: it reads the keys and values of an earlier layer, or
those of an image.

Sources: `modeling_gemma3n.py`, `modeling_gemma4.py` and `modeling_mllama.py` of transformers 5.24;
`hunyuan.py` of mlx-lm 0.32.2.
"""

from dataclasses import dataclass

from hwdesign._check import check_fields
from hwdesign.models.blocks import SelfAttention
from hwdesign.models.parts import linear, vector


@dataclass(frozen=True, kw_only=True)
class SharedCacheAttention(SelfAttention):
    """Attention to the keys and values that an earlier layer of the same kind has cached: queries
    and an output projection, no cache.

    Examples
    --------
    >>> shared = SharedCacheAttention(num_heads=8, num_kv_heads=2, head_dim=256)
    >>> shared.kind, shared.cache_elements
    ('GQA, cache of an earlier layer', 0)
    """

    def __post_init__(self):
        super().__post_init__()
        if self.indexer:
            raise ValueError(f"indexer must be None with a shared cache, got {self.indexer!r}")

    @property
    def kind(self):
        """As any attention, and whose cache it reads."""
        return f"{super().kind}, cache of an earlier layer"

    @property
    def read_elements(self):
        """Elements of a token that it reads [element]."""
        return self.num_kv_heads * (self.head_dim + self.value_size)

    @property
    def cache_elements(self):
        """None: 0 [element]."""
        return 0

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        query, merged = self.num_heads * self.head_dim, self.num_heads * self.value_size
        out = linear("q", "attention", query, hidden, self.qkv_bias)
        if self.output_gate:
            out += linear("attention gate", "attention", self.gate_width, hidden, self.qkv_bias)
        out += linear("attention output", "attention", hidden, merged, self.out_bias)
        if self.qk_norm:
            out.append(vector("q norm", "norm", self.head_dim if self.qk_norm == "head" else query))
        return out + ([vector("sinks", "attention", self.num_heads)] if self.sinks else [])

    def operations(self, run):
        """Adds the queries, scores against the cache of another layer, and the output projection of
        one layer.
        """
        heads = self.local_heads(run.plan)
        kv_heads = -(-self.num_kv_heads // run.plan.tp)
        key, value = self.head_dim, self.value_size
        width = heads * key + heads * self.gate_width // self.num_heads
        run.gemm("q", run.tokens, width, run.hidden, "attention")
        if self.output_gate:
            run.small(1, run.tokens * heads * value)
        run.attend(
            heads=heads,
            kv_heads=kv_heads,
            key=key,
            value=value,
            cached=kv_heads * (key + value),
            output=heads * value,
            window=self.window,
        )


@dataclass(frozen=True, kw_only=True)
class SharedKeysAttention(SharedCacheAttention):
    """Attention to keys and values that an earlier layer has made, which engines cache once more
    for each layer, as its norm and its rotation follow.

    Examples
    --------
    >>> shared = SharedKeysAttention(num_heads=80, num_kv_heads=8, head_dim=80, qk_norm="head")
    >>> shared.kind, shared.cache_elements
    ('GQA, keys of an earlier layer', 1280)
    """

    @property
    def kind(self):
        """As any attention, and whose keys it reads."""
        return f"{SelfAttention.kind.fget(self)}, keys of an earlier layer"

    @property
    def cache_elements(self):
        """Elements a token leaves in the cache [element]."""
        return self.read_elements

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        key = self.head_dim if self.qk_norm == "head" else self.num_kv_heads * self.head_dim
        return super().weights(hidden) + ([vector("k norm", "norm", key)] if self.qk_norm else [])


@dataclass(frozen=True, kw_only=True)
class CrossAttention(SelfAttention):
    """Attention of text to an image of so many `tokens`: their keys and values are kept, and no
    more with a longer text.

    Keys and values are made of the image alone; their matrix is counted as if each token of text
    were multiplied by it, too, which is a little more than there is.

    Examples
    --------
    >>> cross = CrossAttention(num_heads=32, num_kv_heads=8, head_dim=128, tokens=6404)
    >>> cross.cache_elements, cross.kept(1000) == cross.kept(2000) == 6404 * 2048
    (0, True)
    """

    tokens: int  # [token]
    module = "cross_attn"

    def __post_init__(self):
        super().__post_init__()
        check_fields(self, counts=("tokens",))
        for name in ("window", "indexer", "output_gate"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} must be None in cross-attention")

    @property
    def kind(self):
        """As any attention, and to how many tokens of an image."""
        return f"cross-attention to {self.tokens} image tokens"

    @property
    def cache_elements(self):
        """None a token of text: 0 [element]."""
        return 0

    def kept(self, context, *, share=1.0, reserved=False):
        """Elements of an image that are kept, however long the text [element]."""
        return self.tokens * super().cache_elements * share + 0 * context

    def operations(self, run):
        """Adds the projections, the scores against an image and the output projection of one
        layer.
        """
        heads = self.local_heads(run.plan)
        kv_heads = -(-self.num_kv_heads // run.plan.tp)
        key, value = self.head_dim, self.value_size
        width = (heads + kv_heads) * key + kv_heads * value * self.value_weight
        run.gemm("qkv", run.tokens, width, run.hidden, "attention")
        run.attend(
            heads=heads,
            kv_heads=kv_heads,
            key=key,
            value=value,
            cached=kv_heads * (key + value),
            output=heads * value,
            kind="cross-attention",
            outside=self.tokens,
        )
