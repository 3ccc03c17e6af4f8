"""Readers of models that differ from their families by a gate, a norm or a mixer: Laguna, A.X-K1,
MiniCPM3, OLMo hybrid, and Ling and Ring with linear attention.

Sources: the `configuration_*.py` and `modeling_*.py` of each model type in transformers 5.24; of
bailing_moe_linear and of bailing_hybrid with lightning attention, which have no class there,
`bailing_moe_linear.py` of vLLM 0.33.0 and the modules of that name of mlx-lm 0.32.2.
"""

from dataclasses import replace

from hwdesign.models import reading
from hwdesign.models.blocks import Block, DenseFFN, SelfAttention
from hwdesign.models.linear import GatedDeltaNet, KimiDelta, LightningAttention

FULL, SLIDING = "full_attention", "sliding_attention"
MIXED = {"linear_attention": False, FULL: True}


def _laguna(read, hidden, kind):
    """A number of query heads for each layer, and a gate for each head or element of the output;
    experts after one dense layer.
    """
    layers, bias = reading.layers(read), read.flag("attention_bias")
    reading.only(read, {"moe_apply_router_weight_on_input": False})
    read.used.update(("moe_routed_scaling_factor", "moe_router_logit_softcapping"))
    key, gating = read.raw("gating")
    gates = {True: "head", "per-head": "head", "per-element": "element"}
    if not isinstance(gating, bool | str) or gating not in gates:
        raise read.complain(key, "true, per-head or per-element")
    heads, kv, size = reading.heads(read, hidden)
    each = read.items("num_attention_heads_per_layer", int, "numbers of heads") or [heads] * layers
    if len(each) != layers or not all(0 < n <= 2_000_000 and n % kv == 0 for n in each):
        accepted = f"{layers} multiples of num_key_value_heads {kv}"
        raise read.complain("num_attention_heads_per_layer", accepted)
    kinds = reading.pattern(read, "layer_types", layers, {FULL: FULL, SLIDING: SLIDING})
    kinds = kinds or [FULL] * layers
    window = read.integer("sliding_window") if SLIDING in kinds else None
    read.used.add("sliding_window")
    shape = {"num_kv_heads": kv, "head_dim": size, "qk_norm": "head", "output_gate": gates[gating]}
    made = {
        pair: SelfAttention(
            num_heads=pair[0], window=window if pair[1] == SLIDING else None, **shape
        )
        for pair in dict.fromkeys(zip(each, kinds, strict=True))
    }
    if bias:
        raise read.complain("attention_bias", "false or absent: nothing else is counted")
    shared = read.integer("shared_expert_intermediate_size", least=0)
    moe = reading.experts(read, shared_width=shared, router_correction=True)
    dense = DenseFFN(width=read.integer("intermediate_size"))
    sparse = reading.sparse_layers(read, layers, 1)
    mixers = [made[pair] for pair in zip(each, kinds, strict=True)]
    return {"blocks": reading.blocks(mixers, [moe if s else dense for s in sparse])}


def _axk1(read, hidden, kind):
    """DeepSeek-V3 with a norm after the experts, and without a correction of the router, which the
    code has and no checkpoint.
    """
    layers, mixer = reading.layers(read), reading.latent_attention(read)
    if mixer.q_rank is None:
        raise read.complain("q_lora_rank", "a whole number")
    shared = read.integer("n_shared_experts", least=0) * read.integer("moe_intermediate_size")
    reading.only(read, {"topk_method": "noaux_tc"})
    sparse = Block(mixer=mixer, ffn=reading.experts(read, shared_width=shared), norms=3)
    dense = Block(mixer=mixer, ffn=DenseFFN(width=read.integer("intermediate_size")))
    return {"blocks": tuple(sparse if s else dense for s in reading.sparse_layers(read, layers, 1))}


def _minicpm3(read, hidden, kind):
    """Latent attention and a dense part."""
    read.used.update(("scale_emb", "scale_depth", "dim_model_base"))
    extra = {}
    if read.raw("v_head_dim")[1] is None:
        heads = read.integer("num_attention_heads")
        if hidden % heads:
            raise read.complain("num_attention_heads", f"a divisor of hidden_size {hidden}")
        extra["v_dim"] = hidden // heads
    mixer = reading.latent_attention(read, **extra)
    ffn = DenseFFN(width=read.integer("intermediate_size"), bias=read.flag("mlp_bias"))
    return {"blocks": (Block(mixer=mixer, ffn=ffn),) * reading.layers(read)}


def _olmo_hybrid(read, hidden, kind):
    """Gated delta nets, and every fourth layer attention with norms over the full width."""
    layers, bias = reading.layers(read), read.flag("attention_bias")
    full = reading.pattern(read, "layer_types", layers, MIXED)
    if full is None:
        full = [i % 4 == 3 for i in range(layers)]
        full[-1] |= not any(full)
    read.used.update(("linear_a_log_max", "linear_a_log_min", "linear_allow_neg_eigval"))
    read.used.update(("linear_dt_init_floor", "linear_dt_max", "linear_dt_min"))
    heads, kv, size = reading.heads(read, hidden)
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size, "qk_norm": "full"}
    attention = SelfAttention(**shape, qkv_bias=bias, out_bias=bias)
    keys = read.integer("linear_num_key_heads", default=heads)
    values = read.integer("linear_num_value_heads", default=heads)
    if values % keys:
        raise read.complain("linear_num_value_heads", f"a multiple of linear_num_key_heads {keys}")
    wide = read.integer("linear_key_head_dim", default=max(1, int(0.75 * hidden / keys)))
    delta = GatedDeltaNet(
        num_heads=values,
        key_heads=keys,
        key_dim=wide,
        head_dim=read.integer("linear_value_head_dim", default=2 * wide),
        conv=read.integer("linear_conv_kernel_dim", default=4),
    )
    ffn = DenseFFN(width=read.integer("intermediate_size"))
    made = {True: Block(mixer=attention, ffn=ffn), False: Block(mixer=delta, ffn=ffn)}
    return {"blocks": tuple(made[f] for f in full)}


def _grouped(read, layers):
    """Which layers have attention: the last one of each group, and those after the last group."""
    size = read.integer("layer_group_size", most=layers)
    whole = layers // size * size
    full = [(i + 1) % size == 0 or i >= whole for i in range(layers)]
    if reading.pattern(read, "layer_types", layers, MIXED) not in (None, full):
        raise read.complain("layer_types", "as layer_group_size says")
    return full


def _bailing_experts(read, bias=False, correction=None):
    """Experts beside a shared one, under the keys of Ling."""
    reading.only(read, {"norm_softmax": False, "moe_router_enable_shared_expert": True})
    reading.only(read, {"use_rmsnorm": True})
    read.used.update(("norm_head", "moe_router_topk_scaling_factor", "rotary_type"))
    read.used.update(("moe_router_enable_routed_scaling", "moe_renormalize", "num_expert_group"))
    width = read.integer("moe_intermediate_size")
    many = read.integer("num_shared_experts", "n_shared_experts", default=1, least=0)
    each = read.integer("moe_shared_expert_intermediate_size", default=width)
    if many > 1 and each != width:
        accepted = f"{width}, since implementations differ for several shared experts"
        raise read.complain("moe_shared_expert_intermediate_size", accepted)
    if correction is None:
        correction = read.flag("moe_router_enable_expert_bias")
    extra = {"router_correction": correction, "shared_width": many * each}
    return reading.experts(read, bias=bias, **extra)


def _bailing_blocks(read, mixers, moe, bias=False):
    dense = DenseFFN(width=read.integer("intermediate_size"), bias=bias)
    sparse = reading.sparse_layers(read, len(mixers))
    return {"blocks": reading.blocks(mixers, [moe if s else dense for s in sparse])}


def _bailing_linear(read, hidden, kind):
    """Lightning attention, and in each group of layers one with attention: grouped-query, or
    latent.
    """
    layers, bias, qkv_bias = reading.layers(read), read.flag("use_bias"), read.flag("use_qkv_bias")
    norm = read.flag("use_qk_norm")
    read.used.update(("group_norm_size", "linear_silu", "linear_rope", "use_linear_silu"))
    full = _grouped(read, layers)
    if kind == "bailing_hybrid":
        heads, size = read.integer("num_attention_heads"), read.integer("head_dim")
        reading.only(read, {"num_key_value_heads": heads})
        attention = replace(reading.latent_attention(read), bias=qkv_bias)
    else:
        heads, kv, size = reading.heads(read, hidden)
        if size * heads != hidden:
            accepted = f"{hidden} / {heads}: implementations differ in where another one holds"
            raise read.complain("head_dim", accepted)
        shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size}
        attention = SelfAttention(
            **shape, qkv_bias=qkv_bias, out_bias=bias, qk_norm="head" if norm else None
        )
    lightning = LightningAttention(
        num_heads=heads, head_dim=size, qk_norm=norm, qkv_bias=qkv_bias, out_bias=bias
    )
    moe = _bailing_experts(read, bias)
    return _bailing_blocks(read, [attention if f else lightning for f in full], moe, bias)


def _bailing_hybrid(read, hidden, kind):
    """Two models of one name: with lightning attention, whose norm has groups, or with Kimi delta
    attention, which has a short convolution.
    """
    old = read.raw("group_norm_size")[1] is not None
    new = read.raw("short_conv_kernel_size")[1] is not None
    if old == new:
        accepted = "given, or short_conv_kernel_size, and not both: they tell two models apart"
        raise read.complain("group_norm_size", accepted)
    if old:
        for key in ("use_qk_norm", "moe_router_enable_expert_bias"):
            read.given(key, "implementations disagree without it")
        return _bailing_linear(read, hidden, kind)
    layers, size = reading.layers(read), read.optional("linear_head_dim")
    if size is None and read.raw("linear_num_heads")[1] is not None:
        raise read.complain("linear_head_dim", "given, since linear_num_heads is")
    size = size or read.integer("head_dim")  # transformers 5 saves another one under this key
    heads, conv = read.integer("num_attention_heads"), read.integer("short_conv_kernel_size")
    reading.only(read, {"linear_num_heads": heads, "linear_conv_kernel_dim": conv})
    reading.only(read, {"tie_word_embeddings": False})
    reading.only(read, {"no_kda_lora": True, "attention_bias": False, "use_bias": False})
    reading.only(read, {"use_qkv_bias": False, "moe_router_enable_expert_bias": True})
    read.used.update(("kda_safe_gate", "kda_lower_bound", "use_qk_norm", "num_mtp_layers"))
    delta = KimiDelta(num_heads=heads, head_dim=size, conv=conv, full_decay=True)
    latent = reading.latent_attention(read, head_gate=True)
    full = reading.pattern(read, "layer_types", layers, MIXED)
    if full is None and layers % read.integer("layer_group_size", most=layers):
        accepted = f"a divisor of num_hidden_layers {layers}, or layer_types given"
        raise read.complain("layer_group_size", accepted)
    full = full or _grouped(read, layers)
    read.used.add("layer_group_size")
    moe = _bailing_experts(read, correction=True)
    return _bailing_blocks(read, [latent if f else delta for f in full], moe)


READERS = {
    "laguna": _laguna,
    "axk1": _axk1,
    "minicpm3": _minicpm3,
    "olmo_hybrid": _olmo_hybrid,
    "bailing_moe_linear": _bailing_linear,
    "bailing_hybrid": _bailing_hybrid,
}
ALIASES = {"AXK1": "axk1"}
# What a missing key means in the class of a type.
DEFAULTS = {
    "laguna": {
        "num_key_value_heads": 8,
        "head_dim": 128,
        "gating": True,
        "sliding_window": 512,
        "shared_expert_intermediate_size": 512,
    },
    "axk1": {"q_lora_rank": 1536, "n_shared_experts": 1},
    "minicpm3": {
        "kv_lora_rank": 256,
        "q_lora_rank": 768,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
        "tie_word_embeddings": True,
    },
}
GIVEN = dict.fromkeys(("use_qk_norm", "moe_router_enable_expert_bias"), ("bailing_moe_linear",))
