"""The parts of a model and their weights: attention, Mamba-2, feed-forward, experts, and the block
that holds them.

Every parameter belongs to one `Weight`: a matrix or vector with its shape, how often it is stored,
and how often one token uses it. Names are those of Hugging Face configs. Sources: the
`modeling_*.py` of each architecture in transformers; DeepSeek-V2, arXiv 2405.04434, for latent
attention; Mamba-2, arXiv 2405.21060.
"""

from dataclasses import dataclass

from hwdesign._check import check_fields, choice, instance


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


def _linear(name, part, n, k, bias=False, *, stored=1, used=1):
    out = [Weight(name=name, part=part, n=n, k=k, stored=stored, used=used)]
    if bias:
        out.append(
            Weight(name=f"{name} bias", part=part, n=n, stored=stored, used=used, matmul=False)
        )
    return out


def vector(name, part, n):
    """A vector of n elements [element], added or multiplied element by element."""
    return Weight(name=name, part=part, n=n, matmul=False)


@dataclass(frozen=True, kw_only=True)
class SelfAttention:
    """Multi-head, grouped-query (fewer key-value heads) or multi-query (one) attention, full or in
    a sliding window.

    `qk_norm` is None, "head" (one norm of head_dim for q, one for k) or "full" (over the full width
    of q and of k).

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

    def __post_init__(self):
        sizes = ("num_heads", "num_kv_heads", "head_dim", "window")
        check_fields(self, sizes=sizes, none=("window",), flags=("qkv_bias", "out_bias", "sinks"))
        if self.qk_norm is not None:
            choice("qk_norm", self.qk_norm, ("head", "full"))

    @property
    def kind(self):
        """MHA, GQA or MQA, with the window if there is one."""
        name = (
            "MHA"
            if self.num_kv_heads == self.num_heads
            else "MQA"
            if self.num_kv_heads == 1
            else "GQA"
        )
        return f"{name}, window {self.window}" if self.window else name

    @property
    def cache_elements(self):
        """Elements a token leaves in the cache [element]: a key and a value for each key-value
        head.
        """
        return 2 * self.num_kv_heads * self.head_dim

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        query, key_value = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        out = _linear("qkv", "attention", query + 2 * key_value, hidden, self.qkv_bias)
        out += _linear("attention output", "attention", hidden, query, self.out_bias)
        if self.qk_norm:
            sizes = (self.head_dim, self.head_dim) if self.qk_norm == "head" else (query, key_value)
            out += [vector(f"{name} norm", "norm", n) for name, n in zip("qk", sizes, strict=True)]
        return out + ([vector("sinks", "attention", self.num_heads)] if self.sinks else [])


@dataclass(frozen=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (MLA): one latent and one rotary key a token, shared by all
    heads.

    `q_rank` is None where queries are not compressed.

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

    def __post_init__(self):
        sizes = ("num_heads", "q_rank", "kv_rank", "nope_dim", "rope_dim", "v_dim", "window")
        check_fields(self, sizes=sizes, none=("q_rank", "window"), flags=("bias",))

    @property
    def kind(self):
        """MLA."""
        return "MLA"

    @property
    def cache_elements(self):
        """Elements a token leaves in the cache [element]: the latent, once, and the rotary key."""
        return self.kv_rank + self.rope_dim

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        query, b = self.num_heads * (self.nope_dim + self.rope_dim), self.bias
        out = []
        if self.q_rank is None:
            out += _linear("q", "attention", query, hidden)
        else:
            out += _linear("q down", "attention", self.q_rank, hidden, b)
            out += _linear("q up", "attention", query, self.q_rank)
            out += [vector("q norm", "norm", self.q_rank)]
        out += _linear("kv down", "attention", self.kv_rank + self.rope_dim, hidden, b)
        out += _linear(
            "kv up", "attention", self.num_heads * (self.nope_dim + self.v_dim), self.kv_rank
        )
        out += [vector("kv norm", "norm", self.kv_rank)]
        return out + _linear(
            "attention output", "attention", hidden, self.num_heads * self.v_dim, b
        )


@dataclass(frozen=True, kw_only=True)
class Mamba2:
    """A Mamba-2 state-space mixer: no cache that grows, but a state of constant size a sequence.

    Examples
    --------
    >>> Mamba2(num_heads=64, head_dim=64, groups=8, state=128, conv=4).inner
    4096
    """

    num_heads: int
    head_dim: int  # [element]
    groups: int
    state: int  # [element]
    conv: int  # [token]
    bias: bool = False
    conv_bias: bool = True
    window: int | None = None

    def __post_init__(self):
        sizes = ("num_heads", "head_dim", "groups", "state", "conv", "window")
        check_fields(self, sizes=sizes, none=("window",), flags=("bias", "conv_bias"))

    @property
    def kind(self):
        """Mamba-2."""
        return "Mamba-2"

    @property
    def inner(self):
        """Width of the mixer, heads x head size [element]."""
        return self.num_heads * self.head_dim

    @property
    def conv_width(self):
        """Channels of the short convolution [element]: the inner width and the two group
        projections.
        """
        return self.inner + 2 * self.groups * self.state

    @property
    def cache_elements(self):
        """Elements a token adds to the cache [element]: none."""
        return 0

    @property
    def state_elements(self):
        """(SSM state, convolution state) of one sequence [element]."""
        return self.num_heads * self.head_dim * self.state, self.conv_width * (self.conv - 1)

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        out = _linear(
            "mamba in", "mamba", self.inner + self.conv_width + self.num_heads, hidden, self.bias
        )
        out += [
            Weight(
                name="mamba convolution", part="mamba", n=self.conv_width, k=self.conv, matmul=False
            )
        ]
        out += [vector("convolution bias", "mamba", self.conv_width)] if self.conv_bias else []
        out += [vector(name, "mamba", self.num_heads) for name in ("A", "D", "dt bias")]
        out += [vector("mamba norm", "norm", self.inner)]
        return out + _linear("mamba out", "mamba", hidden, self.inner, self.bias)


@dataclass(frozen=True, kw_only=True)
class DenseFFN:
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
        return _ffn("up", "down", "ffn", self.width, hidden, self.gated, self.bias)


def _ffn(up, down, part, width, hidden, gated, bias, **copies):
    out = _linear(
        f"gate and {up}" if gated else up, part, (2 if gated else 1) * width, hidden, bias, **copies
    )
    return out + _linear(down, part, hidden, width, bias, **copies)


@dataclass(frozen=True, kw_only=True)
class MoE:
    """A mixture of experts: a router picks `top_k` of `num_experts`; shared experts see every
    token.

    `shared_width` is the summed width of the shared experts; `router_correction` adds one bias an
    expert that only steers the choice.

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

    def __post_init__(self):
        sizes, counts = ("num_experts", "top_k", "width"), ("shared_width",)
        flags = ("gated", "bias", "shared_gate", "router_bias", "router_correction")
        check_fields(self, sizes=sizes, counts=counts, flags=flags)

    @property
    def kind(self):
        """MoE with its top-k and number of experts."""
        return f"MoE {self.top_k} of {self.num_experts}"

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        out = _linear("router", "router", self.num_experts, hidden, self.router_bias)
        out += (
            [vector("router correction", "router", self.num_experts)]
            if self.router_correction
            else []
        )
        copies = {"stored": self.num_experts, "used": self.top_k}
        out += _ffn(
            "expert up",
            "expert down",
            "experts",
            self.width,
            hidden,
            self.gated,
            self.bias,
            **copies,
        )
        if self.shared_width:
            out += _ffn(
                "shared up",
                "shared down",
                "shared experts",
                self.shared_width,
                hidden,
                self.gated,
                self.bias,
            )
        return out + (
            _linear("shared gate", "shared experts", 1, hidden) if self.shared_gate else []
        )


@dataclass(frozen=True, kw_only=True)
class Block:
    """One layer: a mixer (attention, Mamba-2 or None), a feed-forward part or None, and its norms.

    Examples
    --------
    >>> Block(mixer=None, ffn=DenseFFN(width=8), norms=1).kind
    'dense'
    """

    mixer: SelfAttention | LatentAttention | Mamba2 | None
    ffn: DenseFFN | MoE | None
    norms: int = 2
    norm_bias: bool = False

    def __post_init__(self):
        mixers, parts = SelfAttention | LatentAttention | Mamba2 | None, DenseFFN | MoE | None
        instance("mixer", self.mixer, mixers, "SelfAttention, LatentAttention, Mamba2 or None")
        instance("ffn", self.ffn, parts, "DenseFFN, MoE or None")
        check_fields(self, counts=("norms",), flags=("norm_bias",))

    @property
    def kind(self):
        """Mixer and feed-forward part in words, what is absent left out."""
        return " + ".join(part.kind for part in (self.mixer, self.ffn) if part) or "nothing"

    def weights(self, hidden):
        """Weights of the block for a hidden size [element]."""
        out = [w for part in (self.mixer, self.ffn) if part for w in part.weights(hidden)]
        return out + [vector("norm", "norm", hidden * (2 if self.norm_bias else 1))] * self.norms
