"""The shapes of a family that keep to a budget: every combination of useful sizes whose total and
active parameters are near it, the last size solved from the total.

Sizes stand on coarse grids on purpose: a search times each part once, so few different parts make
many designs. Every count is that of the package's own parts, never a second formula: the parameters
of a part are linear in its width, so two widths tell them all.
"""

import functools
from dataclasses import dataclass

import numpy as np

from hwdesign._check import choice
from hwdesign.advice import bands
from hwdesign.advice.design_families import FAMILIES, band, inside
from hwdesign.models.blocks import Block, DenseFFN, MoE, SelfAttention
from hwdesign.models.latent import LatentAttention
from hwdesign.models.linear import GatedDeltaNet
from hwdesign.models.model import Model

TOLERANCE = 0.03  # of total and active parameters
VOCABULARY = 131072  # [element]
HIDDEN_SIZES = (*range(1024, 4096, 256), *range(4096, 8192, 512), *range(8192, 16385, 1024))
HEADS = (8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256)
KV_HEADS = (1, 2, 4, 8, 16)
HEAD_SIZES = (64, 128, 256)  # [element]
EXPERTS = (16, 32, 64, 96, 128, 160, 192, 256, 384, 512)
TOP_K = (1, 2, 4, 6, 8, 10, 12, 16)
QUERY_LATENTS = (768, 1536, 2048)  # [element]
LATENT, ROTARY = 512, 64  # of latent attention [element]
LATENT_HEAD = 128
LINEAR_HEAD, CONVOLUTION = 128, 4
PERIODS = (2, 3, 4, 5, 6, 8)  # every so many layers one has full attention
WIDTH_STEP, EXPERT_STEP = 256, 128  # of the size that is solved [element]
MOST_LAYERS = 160
DENSE_LAYERS = 1  # before the experts, where a family has any
ROUND_POSITIONS = 4096  # [token]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a design, as its config.json has them; what a family lacks is None.

    Parameters
    ----------
    family : str
        One of `FAMILIES`.
    hidden_size, layers, heads, head_size : int
        Hidden size [element], layers, query heads and their size [element].
    kv_heads, query_latent : int or None
        Key-value heads; size that queries are compressed to [element].
    width : int or None
        Feed-forward width of a layer without experts [element].
    experts, experts_per_token, expert_width, shared_width : int or None
        Experts of a layer, those of a token, their width and that of the shared one [element].
    linear_heads, period : int or None
        Value heads of a linear mixer; one layer in so many has full attention.
    vocabulary, positions : int
        Rows of the embedding [element]; longest context [token].

    Examples
    --------
    >>> sizes = {"hidden_size": 4096, "layers": 32, "heads": 32, "head_size": 128, "kv_heads": 8}
    >>> Shape(family="llama", width=14336, vocabulary=128256, **sizes).model.parameters
    8030261248
    """

    family: str
    hidden_size: int
    layers: int
    heads: int
    head_size: int
    kv_heads: int | None = None
    query_latent: int | None = None
    width: int | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    expert_width: int | None = None
    shared_width: int | None = None
    linear_heads: int | None = None
    period: int | None = None
    vocabulary: int = VOCABULARY
    positions: int = 32768

    def __post_init__(self):
        choice("family", self.family, FAMILIES)

    @property
    def config(self):
        """The shape as the dict of a config.json of its family."""
        return _CONFIGS[self.family](self)

    @functools.cached_property
    def model(self):
        """The `Model` that its config reads back as."""
        return Model.from_config(self.config)

    @property
    def ratios(self):
        """Its proportions by name, as a dict; see `hwdesign.advice.bands.ratios`."""
        return bands.ratios(self.model)

    def outside(self):
        """Names of the ratios that lie outside the band of trained models, as a tuple."""
        found = bands.outside(self.model, FAMILIES[self.family].kind)
        return tuple(departure.ratio for departure in found)

    def __str__(self):
        attention = f"{self.heads} heads of {self.head_size}"
        if self.kv_heads:
            attention += f", {self.kv_heads} KV"
        if self.query_latent:
            attention += f", latents {self.query_latent} and {LATENT}"
        if self.linear_heads:
            attention += f", 1 layer in {self.period}, else {self.linear_heads} linear heads"
        feed = f"width {self.width}"
        if self.experts:
            feed = f"{self.experts_per_token} of {self.experts} experts of {self.expert_width}"
            feed += f", shared {self.shared_width}" if self.shared_width else ""
        return f"{self.family} {self.hidden_size} x {self.layers}: {attention}; {feed}"


def _common(shape, model_type, architecture):
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.positions,
    }


def _llama(shape):
    return _common(shape, "llama", "LlamaForCausalLM") | {
        "head_dim": shape.head_size,
        "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.width,
        "mlp_bias": False,
    }


def _experts(shape):
    return {
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.experts_per_token,
        "moe_intermediate_size": shape.expert_width,
        "intermediate_size": shape.experts_per_token * shape.expert_width,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "head_dim": shape.head_size,
        "num_key_value_heads": shape.kv_heads,
    }


def _qwen3_moe(shape):
    return _common(shape, "qwen3_moe", "Qwen3MoeForCausalLM") | _experts(shape)


def _qwen3_next(shape):
    common = _common(shape, "qwen3_next", "Qwen3NextForCausalLM")
    return (
        common
        | _experts(shape)
        | {
            "shared_expert_intermediate_size": shape.shared_width,
            "full_attention_interval": shape.period,
            "linear_num_value_heads": shape.linear_heads,
            "linear_num_key_heads": shape.linear_heads // 2,
            "linear_key_head_dim": LINEAR_HEAD,
            "linear_value_head_dim": LINEAR_HEAD,
            "linear_conv_kernel_dim": CONVOLUTION,
            "partial_rotary_factor": 0.25,
        }
    )


def _deepseek_v3(shape):
    return _common(shape, "deepseek_v3", "DeepseekV3ForCausalLM") | {
        "num_key_value_heads": shape.heads,
        "q_lora_rank": shape.query_latent,
        "kv_lora_rank": LATENT,
        "qk_nope_head_dim": shape.head_size,
        "qk_rope_head_dim": ROTARY,
        "v_head_dim": shape.head_size,
        "n_routed_experts": shape.experts,
        "num_experts_per_tok": shape.experts_per_token,
        "moe_intermediate_size": shape.expert_width,
        "n_shared_experts": 1,
        "intermediate_size": shape.width,
        "first_k_dense_replace": DENSE_LAYERS,
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
    }


_CONFIGS = {
    "llama": _llama,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v3": _deepseek_v3,
    "qwen3_next": _qwen3_next,
}


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What shapes must keep to.

    Parameters
    ----------
    parameters, active : float
        Total, and those that a token uses, the input embedding included [element].
    leave : tuple of str
        Ratios that may lie outside the band of trained models.
    vocabulary, positions : int
        Rows of the embedding [element]; longest context [token].

    Examples
    --------
    >>> Bounds(parameters=8e9, active=8e9).near(8.1e9, 8e9)
    True
    """

    parameters: float
    active: float
    leave: tuple = ()
    vocabulary: int = VOCABULARY
    positions: int = 32768

    def near(self, parameters, active):
        """Whether counts [element], or each of arrays of them, are near enough."""
        total = abs(parameters / self.parameters - 1) <= TOLERANCE
        return total & (abs(active / self.active - 1) <= TOLERANCE)

    def keeps(self, ratio, family, value):
        """Whether a ratio, or each of an array of them, is inside its band or left alone."""
        value = np.asarray(value, float)
        if ratio in self.leave:
            return np.ones(value.shape, bool)
        return np.broadcast_to(inside(value, band(ratio, family)), value.shape)


def mixers(family, hidden, bounds):
    """Mixers of a family for a hidden size, as a list of tuples: attention, linear mixer or None,
    and the period of attention.

    >>> len(mixers("llama", 4096, Bounds(parameters=8e9, active=8e9))) > 3
    True
    """

    def wide(heads, size):
        return bounds.keeps("query_width", family, heads * size / hidden)

    if FAMILIES[family].latent:
        sizes = {"kv_rank": LATENT, "rope_dim": ROTARY}
        sizes |= {"nope_dim": LATENT_HEAD, "v_dim": LATENT_HEAD}
        return [
            (LatentAttention(num_heads=heads, q_rank=rank, **sizes), None, 1)
            for heads in HEADS
            if wide(heads, LATENT_HEAD + ROTARY)
            for rank in QUERY_LATENTS
            if rank <= hidden
        ]
    found = []
    for size in HEAD_SIZES:
        if bounds.keeps("head_size", family, size):
            found += [
                (heads, kv, size)
                for heads in HEADS
                if wide(heads, size)
                for kv in KV_HEADS
                if heads % kv == 0 and bounds.keeps("heads_per_kv", family, heads / kv)
            ]
    attention = [_attention(family, *sizes) for sizes in found]
    if not FAMILIES[family].linear:
        return [(mixer, None, 1) for mixer in attention]
    nets = [_delta(heads) for heads in HEADS if 1 <= heads * LINEAR_HEAD / hidden <= 2]
    periods = [n for n in PERIODS if bounds.keeps("full_attention", family, 1 / n)]
    return [(mixer, net, n) for mixer in attention for net in nets for n in periods]


def _attention(family, heads, kv, size):
    """Attention as the readers of a family make it."""
    more = {} if family == "llama" else {"qk_norm": "head"}
    if family == "qwen3_next":
        more["output_gate"] = "element"
    return SelfAttention(num_heads=heads, num_kv_heads=kv, head_dim=size, **more)


def _delta(heads):
    sizes = {"key_dim": LINEAR_HEAD, "head_dim": LINEAR_HEAD, "conv": CONVOLUTION}
    return GatedDeltaNet(num_heads=heads, key_heads=heads // 2, **sizes)


def feed(family, experts, used, width):
    """The feed-forward part of a family: of experts, those of a token and their width, or without
    experts of a width alone.

    >>> feed("qwen3_moe", 128, 8, 768).kind, feed("llama", None, None, 14336).kind
    ('MoE 8 of 128', 'dense')
    """
    if not experts:
        return DenseFFN(width=width)
    sizes = {"num_experts": experts, "top_k": used, "width": width}
    if family == "qwen3_next":
        sizes |= {"shared_width": width, "shared_gate": True}
    if family == "deepseek_v3":
        sizes |= {"shared_width": width, "router_correction": True}
    return MoE(**sizes)


def first_feed(family, used, width):
    """The feed-forward part of the layers before the experts, None where a family has none: as
    wide as all experts that a token meets.

    >>> first_feed("deepseek_v3", 8, 2048).width
    18432
    """
    return DenseFFN(width=(used + 1) * width) if family == "deepseek_v3" else None


def counted(part, hidden):
    """(stored, used) parameters of a part of a layer [element].

    >>> counted(DenseFFN(width=8), 2)
    (48, 48)
    """
    weights = part.weights(hidden)
    stored = sum(weight.stored * weight.elements for weight in weights)
    return stored, sum(weight.used * weight.elements for weight in weights)


@functools.cache
def _line(family, experts, used, hidden):
    """((stored, used) of no width, (stored, used) of an element of width) of a feed-forward part;
    then the same of that before the experts.
    """
    lines = []
    for make in (lambda w: feed(family, experts, used, w), lambda w: first_feed(family, used, w)):
        if make(128) is None:
            lines.append(((0.0, 0.0), (0.0, 0.0)))
            continue
        one, two = (np.array(counted(make(width), hidden), float) for width in (128, 256))
        lines.append((tuple(2 * one - two), tuple((two - one) / 128)))
    return lines


class Space:
    """All shapes of some families that keep to bounds, as columns of equal length.

    Parameters
    ----------
    families : sequence of str
        Out of `FAMILIES`.
    bounds : Bounds
        Budget and bands.

    Examples
    --------
    >>> space = Space(["llama"], Bounds(parameters=8e9, active=8e9))
    >>> shape = space.shape(0)
    >>> abs(shape.model.parameters / 8e9 - 1) < 0.03
    True
    """

    COLUMNS = (
        "hidden", "layers", "mixer", "linear", "full", "feed", "first", "firsts", "rest",
    )  # fmt: skip

    def __init__(self, families, bounds):
        self.bounds, self.tables = bounds, {name: {} for name in ("mixer", "feed", "rest")}
        self.origin = []  # (family, mixers, experts, used, width) of each shape
        rows = []
        for family in families:
            for hidden in HIDDEN_SIZES:
                rows += self._of(family, hidden)
        table = np.array(rows, dtype=np.int32).reshape(-1, len(self.COLUMNS))
        for name, column in zip(self.COLUMNS, table.T, strict=True):
            setattr(self, name, column)

    def __len__(self):
        return len(self.origin)

    def _place(self, table, key):
        """The place of a part in its table, which it enters when it is new."""
        known = self.tables[table]
        return known.setdefault(key, len(known))

    def _of(self, family, hidden):
        """Rows of the shapes of one hidden size, as a list."""
        layers = self._layers(family, hidden)
        if not len(layers):
            return []
        choices = mixers(family, hidden, self.bounds)
        if not choices:
            return []
        experts = [(None, None)]
        if FAMILIES[family].experts:
            pairs = ((n, k) for n in EXPERTS for k in TOP_K)
            experts = [(n, k) for n, k in pairs if self.bounds.keeps("sparsity", family, n / k)]
        found = []
        for period in dict.fromkeys(mixer[2] for mixer in choices):
            same = [mixer for mixer in choices if mixer[2] == period]
            depths = layers[layers % period == 0]
            if len(depths):
                found += self._solved(family, hidden, same, depths, experts)
        return found

    def _layers(self, family, hidden):
        """Numbers of layers within the band of the aspect, shape (l,)."""
        layers = np.arange(8, MOST_LAYERS + 1)
        return layers[self.bounds.keeps("aspect", family, hidden / layers)]

    def _solved(self, family, hidden, choices, layers, experts):
        """Rows of the shapes of mixers of one period: the width that the total leaves, where it
        exists. Arrays are of mixers, layers and kinds of experts.
        """
        full = layers // choices[0][2]
        held = np.array([[_held(part, hidden) for part in mixer[:2]] for mixer in choices], float)
        mixed = held[:, :1] * full + held[:, 1:] * (layers - full)
        outside = (_outside(hidden, self.bounds.vocabulary) + mixed)[..., None]
        lines = np.array([_line(family, n, k, hidden) for n, k in experts])  # (e, part, 0 or 1, 2)
        firsts = DENSE_LAYERS if first_feed(family, 1, 128) else 0
        constant = (layers - firsts)[:, None, None] * lines[:, 0, 0] + firsts * lines[:, 1, 0]
        slope = (layers - firsts)[:, None, None] * lines[:, 0, 1] + firsts * lines[:, 1, 1]
        room = self.bounds.parameters - outside - constant[..., 0]
        step = EXPERT_STEP if experts[0][0] else WIDTH_STEP
        width = np.round(room / slope[..., 0] / step) * step
        total, active = (outside + constant[..., i] + slope[..., i] * width for i in (0, 1))
        good = (width >= step) & self.bounds.near(total, active)
        used = np.array([k or 1 for _, k in experts])
        for ratio, value in _width_ratios(family, hidden, used, width):
            good &= self.bounds.keeps(ratio, family, value)
        rows = []
        for which, depth, place in zip(*np.nonzero(good), strict=True):
            sizes = (*experts[place], int(width[which, depth, place]))
            rows.append(self._row(family, hidden, choices[which], int(layers[depth]), sizes))
        return rows

    def _row(self, family, hidden, mixer, layers, sizes):
        attention, net, period = mixer
        first = first_feed(family, sizes[1], sizes[2])
        self.origin.append((family, mixer, sizes))
        return (
            hidden,
            layers,
            self._place("mixer", (hidden, attention)),
            self._place("mixer", (hidden, net)) if net else -1,
            layers // period,
            self._place("feed", (hidden, feed(family, *sizes))),
            self._place("feed", (hidden, first)) if first else -1,
            DENSE_LAYERS if first else 0,
            self._place("rest", hidden),
        )

    def shape(self, place):
        """The `Shape` at a place."""
        family, (attention, net, period), (experts, used, width) = self.origin[place]
        latent = isinstance(attention, LatentAttention)
        first = first_feed(family, used, width)
        dense = {"width": first.width if first else width if not experts else None}
        return Shape(
            family=family,
            hidden_size=int(self.hidden[place]),
            layers=int(self.layers[place]),
            heads=attention.num_heads,
            head_size=attention.v_dim if latent else attention.head_dim,
            kv_heads=None if latent else attention.num_kv_heads,
            query_latent=attention.q_rank if latent else None,
            experts=experts,
            experts_per_token=used,
            expert_width=width if experts else None,
            shared_width=width if latent or net else None,
            linear_heads=net.num_heads if net else None,
            period=period if net else None,
            vocabulary=self.bounds.vocabulary,
            positions=self.bounds.positions,
            **dense,
        )


def _width_ratios(family, hidden, used, width):
    """(name, values) of the ratios that a solved width has a part in."""
    if not FAMILIES[family].experts:
        return [("expansion", width / hidden)]
    found = [("granularity", used * width / hidden), ("expert_width", width / hidden)]
    if FAMILIES[family].latent:  # the layer before the experts
        found.append(("expansion", (used + 1) * width / hidden))
    return found


def _held(mixer, hidden):
    """Parameters of a mixer and the two norms of its layer [element]; 0 without a mixer."""
    return counted(Block(mixer=mixer, ffn=None), hidden)[0] if mixer else 0


def _outside(hidden, vocabulary):
    """Parameters outside the layers [element]."""
    block = (Block(mixer=None, ffn=None, norms=0),)
    bare = Model(name="bare", hidden_size=hidden, vocab_size=vocabulary, blocks=block)
    return bare.parameters
