"""Readers of models whose blocks differ by more than windows and experts: other heads in some, two
feed-forward parts in one, experts that compute nothing.

Sources: the `configuration_*.py` and `modeling_*.py` of each model type in transformers 5.24;
LongCat-Flash, arXiv 2509.01322; the configs of Step-3.5-Flash and MiMo-V2-Flash.
"""

from hwdesign.models import reading
from hwdesign.models.blocks import Block, DenseFFN, SelfAttention

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


def _types(read, layers, kinds):
    """Kind of each layer from layer_types, None where that is missing; entries after the last
    layer are those of prediction layers.
    """
    types = read.items("layer_types", str, "layer names")
    if types is None:
        return None
    extra = read.integer("num_nextn_predict_layers", default=0, least=0)
    if len(types) not in (layers, layers + extra) or not set(types) <= set(kinds):
        raise read.complain("layer_types", f"{layers} entries out of {', '.join(kinds)}")
    return types[:layers]


def _zeros_and_ones(read, key, layers):
    """A list of 0 and 1, one a layer, as truth values; None where it is missing or empty."""
    values = read.items(key, int, "zeros and ones") or None
    if values is not None and (len(values) != layers or not set(values) <= {0, 1}):
        raise read.complain(key, f"a list of {layers} zeros and ones")
    return values and [bool(v) for v in values]


def _llama4(read, hidden, kind):
    """Chunked attention, counted as a window of one chunk, in layers with rotary positions; every
    n-th layer has experts and a shared one of the same width.
    """
    layers, bias = reading.layers(read), read.flag("attention_bias")
    read.used.update(("use_qk_norm", "attn_temperature_tuning", "floor_scale", "attn_scale"))
    heads, kv, size = reading.heads(read, hidden)
    chunk = read.optional("attention_chunk_size")
    kinds = _types(read, layers, (FULL, CHUNKED))
    every = read.integer("no_rope_layer_interval")
    rotary = _zeros_and_ones(read, "no_rope_layers", layers)
    rotary = rotary or [bool((i + 1) % every) for i in range(layers)]
    kinds = kinds or [CHUNKED if r and chunk else FULL for r in rotary]
    if CHUNKED in kinds and not chunk:
        raise read.complain("attention_chunk_size", "given, since layer_types names chunks")
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size}
    shape |= {"qkv_bias": bias, "out_bias": bias}
    mixers = {k: SelfAttention(window=chunk if k == CHUNKED else None, **shape) for k in kinds}
    step = read.integer("interleave_moe_layer_step")
    sparse = read.items("moe_layers", int, "layer numbers")
    sparse = range(step - 1, layers, step) if sparse is None else sparse
    if not set(sparse) <= set(range(layers)):
        raise read.complain("moe_layers", f"layer numbers from 0 to {layers - 1}")
    width = read.integer("intermediate_size")
    moe = reading.experts(read, "intermediate_size", shared_width=width)
    dense = DenseFFN(width=read.integer("intermediate_size_mlp"))
    ffns = [moe if i in sparse else dense for i in range(layers)]
    return {"blocks": reading.blocks([mixers[k] for k in kinds], ffns)}


def _mimo(read, hidden, kind):
    """Keys wider than values, and twice the key-value heads and sinks in windows."""
    layers, bias = reading.layers(read), read.flag("attention_bias")
    window = read.integer("sliding_window", "sliding_window_size")
    reading.only(read, {"attention_chunk_size": window, "n_shared_experts": 0})
    read.used.update(("attention_value_scale", "attention_projection_layout"))
    in_window = _zeros_and_ones(read, "hybrid_layer_pattern", layers)
    if in_window is None:
        kinds = _types(read, layers, (FULL, SLIDING))
        if kinds is None:
            raise read.complain("hybrid_layer_pattern", f"a list of {layers} zeros and ones")
        in_window = [k == SLIDING for k in kinds]
    heads, kv, size = reading.heads(read, hidden)
    values = read.integer("v_head_dim")
    full = SelfAttention(
        num_heads=heads,
        num_kv_heads=kv,
        head_dim=size,
        value_dim=values,
        qkv_bias=bias,
        sinks=read.flag("add_full_attention_sink_bias"),
    )
    near = SelfAttention(
        num_heads=read.integer("swa_num_attention_heads", default=heads),
        num_kv_heads=read.integer("swa_num_key_value_heads", default=2 * kv),
        head_dim=read.integer("swa_head_dim", default=size),
        value_dim=read.integer("swa_v_head_dim", default=values),
        qkv_bias=bias,
        sinks=read.flag("add_swa_attention_sink_bias", default=True),
        window=window,
    )
    if near.num_heads % near.num_kv_heads:
        raise read.complain("swa_num_key_value_heads", f"a divisor of {near.num_heads} heads")
    moe = reading.experts(read, router_correction=True)
    dense = DenseFFN(width=read.integer("intermediate_size"))
    sparse = reading.sparse_layers(read, layers, 1)
    mixers = [near if w else full for w in in_window]
    return {"blocks": reading.blocks(mixers, [moe if s else dense for s in sparse])}


def _step(read, hidden, kind):
    """More query heads in windows than in full attention, and a gate for each head."""
    layers = reading.layers(read)
    reading.only(read, {"attention_bias": False, "use_head_wise_attn_gate": True, "use_moe": True})
    reading.only(read, {"mlp_bias": False})
    reading.only(read, {"use_moe_router_bias": True, "moe_every_n_layer": 1})
    read.used.update(("norm_expert_weight", "need_fp32_gate", "zero_centered", "use_rope_layers"))
    read.used.update(("moe_router_scaling_factor", "moe_router_activation"))
    read.used.update(("swiglu_limits", "swiglu_limits_shared", "query_pre_attn_scalar"))
    heads, kv, size = reading.heads(read, hidden)
    near = read.optional("num_sliding_attention_heads")
    if read.raw("attention_other_setting")[1] is not None:
        other = read.inside("attention_other_setting")
        reading.only(other, {"attention_type": SLIDING, "head_dim": size, "true_head_dim": size})
        reading.only(other, {"num_attention_groups": kv})
        said = other.integer("num_attention_heads", default=heads)
        if near not in (None, said):
            raise read.complain(
                "num_sliding_attention_heads", f"{said}, as attention_other_setting"
            )
        near = said
        other.finish(kind)
    near = near or heads
    if near % kv:
        raise read.complain("num_sliding_attention_heads", f"a multiple of {kv} key-value heads")
    kinds = _types(read, layers, (FULL, SLIDING)) or [FULL] * layers
    windows = [str(i) for i, k in enumerate(kinds) if k == SLIDING]
    reading.repeated(read, windows, {"num_attention_heads": near})
    shape = {"num_kv_heads": kv, "head_dim": size}
    shape |= {"qk_norm": "head", "output_gate": "head"}
    window = read.integer("sliding_window") if SLIDING in kinds else None
    read.used.update(("sliding_window", "mtp_layer_types", "mtp_mlp_layer_types"))
    mixers = {
        FULL: SelfAttention(num_heads=heads, **shape),
        SLIDING: SelfAttention(num_heads=near, window=window, **shape),
    }
    shared = read.integer("share_expert_dim", "share_expert_dims")
    reading.only(read, {"n_shared_experts": 1})
    moe = reading.experts(read, shared_width=shared, router_correction=True)
    dense = DenseFFN(width=read.integer("intermediate_size"))
    ffns = [moe if s else dense for s in listed(read, layers)]
    return {"blocks": reading.blocks([mixers[k] for k in kinds], ffns)}


def listed(read, layers):
    """Which layers have experts: those that moe_layers_enum lists; else as in most models."""
    key, listed = read.raw("moe_layers_enum")
    if listed is None:
        return reading.sparse_layers(read, layers, 3)
    words = listed.split(",") if isinstance(listed, str) else listed
    if isinstance(words, list) and words is listed and not all(type(w) is int for w in words):
        words = None
    numbers = {str(i): i for i in range(layers)}
    words = [str(w).strip() for w in words] if isinstance(words, list) else None
    if words is None or not set(words) <= set(numbers):
        accepted = f"layer numbers from 0 to {layers - 1}, separated by commas"
        raise read.complain(key, f"{accepted}, as num_hidden_layers is {layers}")
    return [str(i) in words for i in range(layers)]


def _longcat(read, hidden, kind):
    """Each layer is two blocks of latent attention and a dense part; beside the dense part of the
    first one stand experts, some of which return what they are given.
    """
    layers = reading.layers(read)
    read.used.update(("mla_scale_q_lora", "mla_scale_kv_lora", "routed_scaling_factor"))
    reading.only(read, {"zero_expert_type": "identity", "router_bias": False})
    reading.only(read, {"attention_method": "MLA"})
    mixer = reading.latent_attention(read)
    dense = DenseFFN(width=read.integer("ffn_hidden_size"))
    moe = reading.experts(
        read,
        "expert_ffn_hidden_size",
        shared_width=dense.width,
        router_correction=True,
        zero_experts=read.integer("zero_expert_num", least=0),
    )
    if moe.top_k * moe.num_experts % moe.choices:
        raise read.complain(
            "zero_expert_num", "such that a token uses a whole number of experts on average"
        )
    return {"blocks": (Block(mixer=mixer, ffn=moe), Block(mixer=mixer, ffn=dense)) * layers}


READERS = {
    **dict.fromkeys(("llama4", "llama4_text"), _llama4),
    "mimo_v2_flash": _mimo,
    "step3p5": _step,
    "longcat_flash": _longcat,
}
ALIASES = {"step3p7": "step3p5"}
# What a missing key means in the class of a type.
_LLAMA4 = {
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size_mlp": 16384,
    "interleave_moe_layer_step": 1,
    "no_rope_layer_interval": 4,
    "attention_chunk_size": 8192,
}
DEFAULTS = {
    **dict.fromkeys(("llama4", "llama4_text"), _LLAMA4),
    "mimo_v2_flash": {"num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128},
    "step3p5": {"num_key_value_heads": 8, "head_dim": 128, "share_expert_dim": 1280},
    "longcat_flash": {"zero_expert_num": 256, "q_lora_rank": 1536},
}
GIVEN = {}
