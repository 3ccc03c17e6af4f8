"""Readers of models with attention and a mixture of experts in some or all blocks.

Sources: the `configuration_*.py` and `modeling_*.py` of each model type in transformers 5.24; of
bailing_moe, which has no class there, those of vLLM and mlx-lm.
"""

from typing import NamedTuple

from hwdesign.models import reading
from hwdesign.models.blocks import Block, DenseFFN, MoE, SelfAttention


class Style(NamedTuple):
    """What a block of a model type has beyond its sizes; a bias as in `reading.said`."""

    qkv_bias: bool | tuple = False
    out_bias: bool | tuple = False
    qk_norm: str | None = None
    width: str = "moe_intermediate_size"  # key of the width of an expert
    shared: str | None = None  # key of how many shared experts there are
    correction: bool = True
    first: int | None = 0  # blocks before the experts where no key says it
    norm_bias: bool = False


ATTENTION = ("attention_bias", False)
WIDTH = "intermediate_size"
STYLES = {
    "glm4_moe": Style(qkv_bias=ATTENTION, shared="n_shared_experts", first=1),
    "glm4v_moe_text": Style(qkv_bias=("attention_bias", True), shared="n_shared_experts", first=1),
    "solar_open": Style(qkv_bias=ATTENTION, shared="n_shared_experts"),
    "hy_v3": Style(ATTENTION, ATTENTION, "head", shared="num_shared_experts", first=1),
    "dots1": Style(ATTENTION, ATTENTION, "head", shared="n_shared_experts"),
    "exaone_moe": Style(qk_norm="head", shared="num_shared_experts", first=1),
    "minimax_m2": Style(qk_norm="full", width=WIDTH),
    "olmoe": Style(ATTENTION, ATTENTION, "full", WIDTH, correction=False),
    "flex_olmo": Style(ATTENTION, ATTENTION, "full", WIDTH, correction=False),
    "phimoe": Style(ATTENTION, ATTENTION, width=WIDTH, correction=False, norm_bias=True),
    "mellum": Style(ATTENTION, ATTENTION, "head", correction=False),
    "granitemoe": Style(ATTENTION, ATTENTION, width=WIDTH, correction=False),
    "granitemoeshared": Style(ATTENTION, ATTENTION, width=WIDTH, correction=False),
    "hunyuan_v1_moe": Style(ATTENTION, ATTENTION, "head", WIDTH, correction=False),
}
# Keys that change no count of these types.
UNCOUNTED = {
    "minimax_m2": (
        "rotary_dim",
        "layernorm_full_attention_beta",
        "layernorm_linear_attention_beta",
        "layernorm_mlp_beta",
        "mlp_intermediate_size",
    ),
    "granitemoe": reading.MULTIPLIERS,
    "granitemoeshared": reading.MULTIPLIERS,
    "hunyuan_v1_moe": ("cla_share_factor", "dense_list", "org_vocab_size", "num_media_embeds"),
    "solar_open": ("first_k_dense_replace",),
    "hy_v3": ("enable_moe_fp32_combine", "enable_lm_head_fp32"),
    "mellum": ("mtp_layer_types", "mtp_mlp_layer_types"),
}
# Where only one value of a key is counted: type -> key -> that value.
ONLY = {
    "minimax_m2": {
        "use_qk_norm": True,
        "qk_norm_type": "per_layer",
        "use_routing_bias": True,
        "shared_intermediate_size": 0,
        "attention_bias": False,
    },
    "hunyuan_v1_moe": {
        "norm_type": "rms",
        "use_qk_norm": True,
        "use_cla": False,
        "use_mla": False,
        "mlp_bias": False,
        "moe_layer_num_skipped": 0,
        "use_mixed_mlp_moe": True,
    },
    "hy_v3": {"mlp_bias": False, "qk_norm": True, "moe_router_enable_expert_bias": True},
    "solar_open": {"use_qk_norm": False},
    "exaone_moe": {"attention_bias": False},
}


def _experts(read, hidden, kind):
    style, layers = STYLES[kind], reading.layers(read)
    reading.only(read, ONLY.get(kind, {}))
    read.used.update(UNCOUNTED.get(kind, ()))
    qk_norm = style.qk_norm
    if kind == "glm4_moe":
        qk_norm = "head" if read.flag("use_qk_norm") else None
    mixers = reading.attention(
        read,
        hidden,
        layers,
        kind,
        qkv_bias=reading.said(read, style.qkv_bias),
        out_bias=reading.said(read, style.out_bias),
        qk_norm=qk_norm,
    )
    width = read.integer(style.width)
    shared = width * read.integer(style.shared, least=0) if style.shared else 0
    if kind == "granitemoeshared":
        shared = read.integer("shared_intermediate_size", least=0)
    if kind == "hunyuan_v1_moe":
        shared = width
        _uniform(read, {"moe_intermediate_size": width, "num_shared_expert": 1})
    reading.only(read, {"expert_hidden_dim": width})
    moe = reading.experts(
        read, style.width, shared_width=shared, router_correction=style.correction
    )
    sparse = [True] * layers
    if style.width != WIDTH and kind != "solar_open":
        sparse = reading.sparse_layers(read, layers, style.first)
    inner = read.optional("intermediate_size")
    if inner is None and not all(sparse):
        raise read.complain("intermediate_size", "a whole number")
    dense = inner and DenseFFN(width=inner)
    extra = {"norm_bias": style.norm_bias}
    if kind == "phimoe":
        extra["head_bias"] = read.flag("lm_head_bias")
    return {
        "blocks": reading.blocks(
            mixers, [moe if s else dense for s in sparse], norm_bias=style.norm_bias
        ),
        **extra,
    }


def _uniform(read, values):
    """Refuse numbers, or lists of one a layer, of which one is not the value that is counted."""
    for key, value in values.items():
        given = read.raw(key)[1]
        each = given if isinstance(given, list) else [given]
        if any(v not in (None, value) for v in each):
            raise read.complain(key, f"{value} in each layer, or absent: nothing else is counted")


def _minimax(read, hidden, kind):
    kinds = read.items("attn_type_list", int, "ones")
    if kinds is not None and set(kinds) - {1}:
        raise read.complain("attn_type_list", "all ones: only full attention is counted")
    return _experts(read, hidden, kind)


def _hunyuan(read, hidden, kind):
    """Experts whose numbers stand in lists, one entry a layer, all alike."""
    for key in ("moe_topk", "num_experts"):
        value = read.values.get(key)
        if isinstance(value, list) and value and all(v == value[0] for v in value):
            read.values = {**read.values, key: value[0]}
    return _experts(read, hidden, kind)


def _ernie(read, hidden, kind):
    """Experts in every n-th block between two."""
    layers = reading.layers(read)
    reading.only(read, {"use_bias": False, "moe_use_aux_free": True})
    read.used.update(("moe_capacity", "moe_gate", "moe_norm_min"))
    first = read.integer("moe_layer_start_index", least=0)
    last = read.integer("moe_layer_end_index", least=-1)
    last = layers - 1 if last == -1 else last
    every = read.integer("moe_layer_interval")
    width = read.integer("moe_intermediate_size")
    shared = width * read.integer("moe_num_shared_experts", least=0)
    moe = reading.experts(read, shared_width=shared, router_correction=True)
    dense = DenseFFN(width=read.integer("intermediate_size"))
    sparse = [first <= i <= last and (i + 1) % every == 0 for i in range(layers)]
    mixers = reading.attention(read, hidden, layers, kind)
    return {"blocks": reading.blocks(mixers, [moe if s else dense for s in sparse])}


def _dbrx(read, hidden, kind):
    """Sizes in two objects, one of attention and one of experts."""
    attention, feed = read.inside("attn_config"), read.inside("ffn_config")
    heads = read.integer("n_heads", "num_attention_heads")
    kv = attention.integer("kv_n_heads")
    if heads % kv or hidden % heads:
        raise attention.complain("kv_n_heads", f"a divisor of n_heads {heads}, and that of d_model")
    mixer = SelfAttention(num_heads=heads, num_kv_heads=kv, head_dim=hidden // heads)
    count = feed.integer("moe_num_experts")
    moe = MoE(
        num_experts=count,
        top_k=feed.integer("moe_top_k", most=count),
        width=feed.integer("ffn_hidden_size"),
    )
    reading.only(feed, {"hidden_size": hidden})
    reading.only(read, {"num_key_value_heads": kv})
    feed.used.update(("moe_jitter_eps", "moe_loss_weight", "moe_normalize_expert_weights"))
    attention.used.add("clip_qkv")
    attention.finish(kind)
    feed.finish(kind)
    return {"blocks": (Block(mixer=mixer, ffn=moe),) * reading.layers(read)}


def _bailing(read, hidden, kind):
    """Ling and Ring: a dense block or more, then experts beside shared ones."""
    layers, bias = reading.layers(read), read.flag("use_bias")
    reading.only(read, {"norm_softmax": False, "moe_router_enable_shared_expert": True})
    reading.only(read, {"use_rmsnorm": True})
    read.used.update(("norm_head", "moe_router_topk_scaling_factor", "rotary_type"))
    qkv_bias = read.flag("use_qkv_bias")
    if bias and not qkv_bias:
        raise read.complain("use_qkv_bias", "true, as use_bias is: vLLM and mlx-lm disagree")
    norm = "head" if read.flag("use_qk_norm") else None
    mixers = reading.attention(
        read,
        hidden,
        layers,
        kind,
        qkv_bias=qkv_bias,
        out_bias=bias,
        qk_norm=norm,
    )
    width = read.integer("moe_intermediate_size")
    each = read.integer("moe_shared_expert_intermediate_size", default=width)
    moe = reading.experts(
        read,
        bias=bias,
        router_correction=read.flag("moe_router_enable_expert_bias"),
        shared_width=each * read.integer("num_shared_experts", default=0, least=0),
    )
    dense = DenseFFN(width=read.integer("intermediate_size"), bias=bias)
    sparse = reading.sparse_layers(read, layers)
    return {"blocks": reading.blocks(mixers, [moe if s else dense for s in sparse])}


def _afmoe(read, hidden, kind):
    """Gated attention in windows, every n-th block full, and four norms a block."""
    layers = reading.layers(read)
    reading.only(read, {"attention_bias": False})
    read.used.update(("mup_enabled", "route_scale", "load_balance_coeff"))
    read.used.update(("num_expert_groups", "num_limited_groups"))
    period = read.integer("global_attn_every_n_layers")
    mixers = reading.attention(
        read,
        hidden,
        layers,
        kind,
        period=period,
        qk_norm="head",
        output_gate="element",
    )
    shared = read.integer("num_shared_experts", least=0) * read.integer("moe_intermediate_size")
    moe = reading.experts(read, shared_width=shared, router_correction=True)
    first = read.integer("num_dense_layers", least=0, most=layers)
    dense = DenseFFN(width=read.integer("intermediate_size"))
    ffns = [dense] * first + [moe] * (layers - first)
    return {"blocks": reading.blocks(mixers, ffns, norms=4)}


READERS = {
    **dict.fromkeys(STYLES, _experts),
    "minimax_m2": _minimax,
    "hunyuan_v1_moe": _hunyuan,
    "ernie4_5_moe": _ernie,
    "dbrx": _dbrx,
    "bailing_moe": _bailing,
    "afmoe": _afmoe,
}
ALIASES = {
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_omni_moe_text": "qwen3_moe",
    "glm4v_moe": "glm4v_moe_text",
    "sarvam_moe": "glm4_moe",
    "bailing_moe_v2": "bailing_moe",
}
# What a missing key means in the class of a type.
DEFAULTS = {
    **dict.fromkeys(("qwen3_vl_moe", "qwen3_vl_moe_text"), {"num_key_value_heads": 16}),
    "glm4_moe": {"num_key_value_heads": 8, "n_shared_experts": 1},
    "glm4v_moe_text": {"num_key_value_heads": 8, "n_shared_experts": 1},
    "solar_open": {"num_key_value_heads": 8, "n_shared_experts": 1, "head_dim": 128},
    "hy_v3": {"num_key_value_heads": 8, "num_shared_experts": 1, "head_dim": 128},
    "dots1": {"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 62},
    "exaone_moe": {"num_key_value_heads": 32, "num_shared_experts": 1, "sliding_window": 4096},
    "minimax_m2": {"num_key_value_heads": 8, "head_dim": 128},
    "mellum": {"num_key_value_heads": 4, "head_dim": 128},
    "sarvam_moe": {"num_key_value_heads": 4, "head_dim": 64, "use_qk_norm": True},
    "phimoe": {"num_key_value_heads": 8},
    "granitemoeshared": {"shared_intermediate_size": 0},
    "ernie4_5_moe": {
        "num_key_value_heads": 4,
        "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1,
        "moe_layer_end_index": -1,
        "moe_layer_interval": 1,
        "tie_word_embeddings": True,
    },
    "afmoe": {
        "head_dim": 128,
        "num_shared_experts": 2,
        "num_dense_layers": 1,
        "global_attn_every_n_layers": 4,
        "sliding_window": 1024,
    },
}
GIVEN = {
    "tie_word_embeddings": ("qwen3_vl_moe", "qwen3_vl_moe_text"),
    "use_qk_norm": ("bailing_moe", "bailing_moe_v2"),
    "layer_types": ("mellum",),
}
