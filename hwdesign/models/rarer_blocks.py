"""Parts of few models: attention that takes in two vectors, whose queries are routed or that
convolves what it compares, latent attention with a gate beside its queries, a gated linear
recurrence, and experts with a second set for images or a router of several layers.

Sources: Zamba, arXiv 2405.16712; JetMoE, arXiv 2404.07413; compressed convolutional attention,
arXiv 2510.04476; Griffin, arXiv 2402.19427; `modeling_zamba.py`, `modeling_jetmoe.py`,
`modeling_zaya.py`, `modeling_axk2.py`, `modeling_recurrent_gemma.py` and
`modeling_ernie4_5_vl_moe.py` of transformers 5.24.
"""

from dataclasses import dataclass, replace

from hwdesign._check import check_fields
from hwdesign.formulas.experts import distinct_experts
from hwdesign.formulas.tiling import pad
from hwdesign.models.blocks import MoE, SelfAttention
from hwdesign.models.indexer import picked
from hwdesign.models.latent import LatentAttention
from hwdesign.models.linear import StateMixer
from hwdesign.models.parts import Weight, feed_forward, linear, vector


@dataclass(frozen=True, kw_only=True)
class TwoInputAttention(SelfAttention):
    """Attention whose queries, keys and values are made from the hidden vector and the embedding
    side by side.

    Examples
    --------
    >>> mixer = TwoInputAttention(num_heads=8, num_kv_heads=8, head_dim=16)
    >>> [w.k for w in mixer.weights(64)]
    [128, 128]
    """

    @property
    def kind(self):
        """Its name."""
        return "two-input attention"

    def taken(self, hidden):
        """Twice the hidden size [element]."""
        return 2 * hidden


@dataclass(frozen=True, kw_only=True)
class RoutedAttention(SelfAttention):
    """Attention whose queries and outputs are those of experts: a router picks `top_k` of
    `num_experts`, each of which makes a query for each key-value head.

    Examples
    --------
    >>> shape = {"num_heads": 8, "num_kv_heads": 4, "head_dim": 16}
    >>> RoutedAttention(**shape, num_experts=6, top_k=2).kind
    'routed attention 2 of 6'
    """

    num_experts: int
    top_k: int

    def __post_init__(self):
        super().__post_init__()
        check_fields(self, sizes=("num_experts", "top_k"))
        if self.num_heads != self.num_kv_heads * self.top_k:
            many = self.num_kv_heads * self.top_k
            raise ValueError(
                f"num_heads must be num_kv_heads * top_k = {many}, got {self.num_heads}"
            )
        plain = SelfAttention(
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            window=self.window,
        )
        for name in vars(plain):
            if getattr(self, name) != getattr(plain, name):
                got = getattr(self, name)
                raise ValueError(
                    f"{name} must be {getattr(plain, name)} of routed heads, got {got!r}"
                )

    @property
    def kind(self):
        """Its name, with its top-k and number of experts."""
        return f"routed attention {self.top_k} of {self.num_experts}"

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        part, width = "attention", self.num_kv_heads * self.head_dim
        copies = {"stored": self.num_experts, "used": self.top_k}
        out = linear("router", "router", self.num_experts, hidden)
        out += linear("kv", part, 2 * width, hidden)
        out += linear("expert q", part, width, hidden, **copies)
        return out + linear("expert output", part, hidden, width, **copies)

    def operations(self, run):
        """Adds router, projections, scores and the output of one layer; each GPU has a share of
        the heads of every expert.
        """
        heads, kv = self.local_heads(run.plan), -(-self.num_kv_heads // run.plan.tp)
        width, part = kv * self.head_dim, "attention"
        touched = distinct_experts(run.tokens, self.top_k, self.num_experts)
        rows = run.tokens * self.top_k / touched
        run.gemm("router", run.tokens, self.num_experts, run.hidden, "router")
        run.gemm("kv", run.tokens, 2 * width, run.hidden, part)
        run.gemm("expert q", rows, width, run.hidden, part, touched)
        run.attend(
            heads=heads,
            kv_heads=kv,
            key=self.head_dim,
            value=self.head_dim,
            cached=2 * width,
            window=self.window,
        )
        run.gemm("expert output", rows, run.hidden, width, part, touched)
        run.hold(part, 2 * (self.num_experts - touched) * width * run.hidden)
        run.exchange("all-reduce", run.tokens * run.hidden, run.plan.tp * run.plan.kvp)

    def heads_near(self, ways):
        """None: heads follow from the experts."""
        return []

    def scaled(self, factor, ways):
        """Itself: heads follow from the experts."""
        return self

    def _next_heads(self, ways, multiple):
        return {}

    def resized(self, shard, multiple):
        """None."""
        return {}


@dataclass(frozen=True, kw_only=True)
class ConvolvedAttention(SelfAttention):
    """Attention whose queries and keys pass two short convolutions, one of each channel over `conv`
    tokens and one within each head over `head_conv`; half of each value is that of the token
    before.

    Examples
    --------
    >>> shape = {"num_heads": 8, "num_kv_heads": 2, "head_dim": 128}
    >>> ConvolvedAttention(**shape, conv=2, head_conv=2).state_elements
    (0, 2688)
    """

    conv: int  # [token]
    head_conv: int  # [token]

    def __post_init__(self):
        super().__post_init__()
        check_fields(self, sizes=("conv", "head_conv"))

    @property
    def kind(self):
        """Its name, with the window if there is one."""
        name = "convolved attention"
        return f"{name}, window {self.window}" if self.window else name

    @property
    def channels(self):
        """Width of queries and keys [element]."""
        return (self.num_heads + self.num_kv_heads) * self.head_dim

    @property
    def state_elements(self):
        """(nothing, what the convolutions and the values of the next token need) [element]."""
        before = self.num_kv_heads * self.value_size // 2
        return 0, self.channels * (self.conv + self.head_conv - 2) + before

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        part, width = "attention", self.channels
        taps = {"convolution": self.conv, "head convolution": self.head_conv * self.head_dim}
        out = super().weights(hidden)
        for name, k in taps.items():
            out.append(Weight(name=name, part=part, n=width, k=k, matmul=False))
            out.append(vector(f"{name} bias", part, width))
        return [*out, vector("key scale", part, self.num_kv_heads)]

    def operations(self, run):
        """Adds the projections, the convolutions, the scores and the output of one layer."""
        super().operations(run)
        run.small(2, run.tokens * self.channels // run.plan.tp)


@dataclass(frozen=True, kw_only=True)
class RelativeAttention(SelfAttention):
    """Attention whose scores get a bias by distance, up to an `extent` of tokens: each head makes
    `relative` numbers that mix as many learned profiles. Keys and values pass a short convolution
    over `conv` tokens, as do the outputs of both parts of the block, of `out_channels` each. FLOP
    of the bias are not counted, like those of rotary positions.

    Examples
    --------
    >>> shape = {"num_heads": 8, "num_kv_heads": 2, "head_dim": 64}
    >>> mixer = RelativeAttention(**shape, conv=4, relative=16, extent=1024, out_channels=512)
    >>> mixer.state_elements
    (0, 3840)
    """

    conv: int  # [token]
    relative: int  # [element]
    extent: int  # [token]
    out_channels: int  # [element]

    def __post_init__(self):
        super().__post_init__()
        check_fields(self, sizes=("conv", "relative", "extent", "out_channels"))

    @property
    def kind(self):
        """Its name, with the window if there is one."""
        name = "relative attention"
        return f"{name}, window {self.window}" if self.window else name

    @property
    def channels(self):
        """Channels of all four convolutions [element]."""
        return self.num_kv_heads * (self.head_dim + self.value_size) + 2 * self.out_channels

    @property
    def state_elements(self):
        """(nothing, what the convolutions of the next token need) [element]."""
        return 0, self.channels * (self.conv - 1)

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        part = "attention"
        out = super().weights(hidden)
        out += linear("relative", part, self.num_heads * self.relative, hidden)
        for name, n, k in (
            ("relative profiles", self.extent, self.relative),
            ("convolutions", self.channels, self.conv),
        ):
            out.append(Weight(name=name, part=part, n=n, k=k, matmul=False))
        return out

    def operations(self, run):
        """Adds the projections, the biases, the convolutions, the scores and the output of one
        layer.
        """
        super().operations(run)
        part, heads = "attention", self.local_heads(run.plan)
        run.gemm("relative", run.tokens, heads * self.relative, run.hidden, part)
        run.small(1, run.tokens * heads * self.extent)
        run.small(1, run.tokens * self.channels)


@dataclass(frozen=True, kw_only=True)
class PairedLatentAttention(LatentAttention):
    """Latent attention in which one matrix makes the queries and a gate for each element of the
    output, from the compressed query before and after its norm.

    Examples
    --------
    >>> mixer = PairedLatentAttention(
    ...     num_heads=4, q_rank=16, kv_rank=8, nope_dim=8, rope_dim=4, v_dim=8
    ... )
    >>> next(w.n for w in mixer.weights(64) if w.name == "q up")
    80
    """

    def __post_init__(self):
        super().__post_init__()
        if self.q_rank is None or self.output_gate or self.head_gate:
            raise ValueError(
                "q_rank must be given, and output_gate and head_gate False, of paired latent "
                f"attention, got {self.q_rank}, {self.output_gate} and {self.head_gate}"
            )

    @property
    def kind(self):
        """Paired MLA, with how many tokens its indexer picks."""
        return picked("paired MLA", self)

    @property
    def paired_dim(self):
        """Elements of a query and of a gate of one head [element]."""
        return self.nope_dim + self.rope_dim + self.v_dim

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        up = {"n": self.num_heads * self.paired_dim, "k": 2 * self.q_rank}
        found = super().weights(hidden)
        return [replace(weight, **up) if weight.name == "q up" else weight for weight in found]

    def _queries(self, run, heads):
        run.gemm("q down", run.tokens, self.q_rank, run.hidden, "attention")
        run.gemm("q up", run.tokens, heads * self.paired_dim, 2 * self.q_rank, "attention")
        run.small(1, run.tokens * heads * self.v_dim)


@dataclass(frozen=True, kw_only=True)
class RecurrentUnit(StateMixer):
    """A real-gated linear recurrent unit (RG-LRU) after a short convolution, beside a gate: one
    number of state a channel; within each of `num_heads` heads of `head_dim` channels two matrices
    make its gates.

    Examples
    --------
    >>> RecurrentUnit(num_heads=10, head_dim=256, conv=4).state_elements
    (2560, 7680)
    """

    num_heads: int
    head_dim: int  # [element]
    conv: int  # [token]
    kind, module = "RG-LRU", "temporal_block"
    heads_name = "recurrent heads"

    def __post_init__(self):
        check_fields(self, sizes=("num_heads", "head_dim", "conv"))

    @property
    def state_elements(self):
        """(state, convolution) of one sequence [element]."""
        return self.inner, self.inner * (self.conv - 1)

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        part, inner = self.part, self.inner
        out = linear("linear in", part, 2 * inner, hidden, True)
        out.append(Weight(name="convolution", part=part, n=inner, k=self.conv, matmul=False))
        out.append(vector("convolution bias", part, inner))
        out += linear("linear gates", part, 2 * inner, self.head_dim, True)
        out.append(vector("A", part, inner))
        return out + linear("linear out", part, hidden, inner, True)

    def operations(self, run):
        """Adds the projections, the gates and the recurrence of one layer."""
        inner = self.local_heads(run.plan) * self.head_dim
        run.gemm("linear in", run.tokens, 2 * inner, run.hidden, self.part)
        run.gemm("linear gates", run.tokens, 2 * inner, self.head_dim, self.part)
        self._finish(run, 4 * self.inner)  # decay, input and its scale, sum


@dataclass(frozen=True, kw_only=True)
class ImageMoE(MoE):
    """A mixture of experts in which tokens of images have a router and as many experts of their
    own, of `image_width`, which tokens of text do not use.

    Examples
    --------
    >>> moe = ImageMoE(num_experts=4, top_k=1, width=32, image_width=16)
    >>> sum(w.stored * w.elements for w in moe.weights(8)), sum(w.used for w in moe.weights(8))
    (4672, 3)
    """

    image_width: int  # [element]

    def __post_init__(self):
        super().__post_init__()
        check_fields(self, sizes=("image_width",))

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        names = "image expert up", "image expert down", "experts"
        shape = (self.image_width, hidden, self.gated, self.bias)
        out = super().weights(hidden)
        out += feed_forward(*names, *shape, stored=self.num_experts, used=0)
        return out + [replace(weight, used=0) for weight in self.router_weights(hidden)]

    def operations(self, run):
        """Adds the operations on tokens of text; what those of images use is held."""
        super().operations(run)
        width = int(pad(self.image_width, run.plan.tp)) // run.plan.tp
        local = self.num_experts // run.plan.ep
        run.hold("experts", local * (self.gate + 1) * width * run.hidden)
        run.hold("router", self.choices * run.hidden)


@dataclass(frozen=True, kw_only=True)
class DeepRouterMoE(MoE):
    """A mixture of experts whose router works on vectors of `router_width`: a projection, a norm,
    two layers with biases and the choice.

    Examples
    --------
    >>> moe = DeepRouterMoE(num_experts=4, top_k=1, width=32, router_width=16)
    >>> [w.elements for w in moe.router_weights(8)]
    [128, 16, 16, 256, 16, 256, 16, 64]
    """

    router_width: int  # [element]

    def __post_init__(self):
        super().__post_init__()
        check_fields(self, sizes=("router_width",))

    def router_weights(self, hidden):
        """Weights of the router, as a list."""
        width = self.router_width
        out = linear("router down", "router", width, hidden, True)
        out.append(vector("router norm", "norm", width))
        out += 2 * linear("router layer", "router", width, width, True)
        return out + super().router_weights(width)

    def router_operations(self, run):
        """Adds the products of the router."""
        width = self.router_width
        run.gemm("router down", run.mine, width, run.hidden, "router")
        run.gemm("router layer", run.mine, width, width, "router", 2.0)
        run.gemm("router", run.mine, self.choices, width, "router")


@dataclass(frozen=True, kw_only=True)
class WeighedMoE(MoE):
    """A mixture of experts whose router also weighs each of its `shared_experts`, and one number
    scales all of its weights.

    Examples
    --------
    >>> moe = WeighedMoE(num_experts=4, top_k=1, width=32, shared_width=64, shared_experts=2)
    >>> [w.n for w in moe.router_weights(8)]
    [6, 1]
    """

    shared_experts: int

    def __post_init__(self):
        super().__post_init__()
        check_fields(self, sizes=("shared_experts",))

    def router_weights(self, hidden):
        """Weights of the router, as a list."""
        rows = self.choices + self.shared_experts
        found = super().router_weights(hidden)
        found = [replace(w, n=rows) if w.name == "router" else w for w in found]
        return [*found, vector("router scale of all", "router", 1)]

    def router_operations(self, run):
        """Adds the product of the router."""
        rows = self.choices + self.shared_experts
        run.gemm("router", run.mine, rows, run.hidden, "router")
