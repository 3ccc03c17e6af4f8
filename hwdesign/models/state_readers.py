"""Readers of models in which most layers keep a state instead of a cache: delta rules and lightning
attention.
"""

from dataclasses import replace

from hwdesign.models import reading
from hwdesign.models.blocks import Block, DenseFFN, MoE, SelfAttention
from hwdesign.models.linear import GatedDeltaNet, KimiDelta, LightningAttention
from hwdesign.models.residual import AttentionResidual, HyperConnections
from hwdesign.models.sparse_readers import deepseek_experts, indexers

MIXED = {"linear_attention": False, "full_attention": True}


MINIMAX_SCALES = [
    f"{part}_{which}{end}"
    for part, end in (
        ("full_attn", "_factor"),
        ("linear_attn", "_factor"),
        ("mlp", "_factor"),
        ("layernorm_full_attention", ""),
        ("layernorm_linear_attention", ""),
        ("layernorm_mlp", ""),
    )
    for which in ("alpha", "beta")
]


def _qwen_next(read, hidden, kind):
    """Three gated delta nets, then attention with an output gate; dense or experts of which one is
    shared.
    """
    layers = reading.layers(read)
    reading.only(read, {"attn_output_gate": True})
    read.used.add("output_gate_type")  # its activation
    bias, heads = read.flag("attention_bias"), read.integer("num_attention_heads")
    attention = SelfAttention(
        num_heads=heads,
        num_kv_heads=reading.divisor(read, heads, "num_attention_heads", "num_key_value_heads"),
        head_dim=read.integer("head_dim", default=256),
        qkv_bias=bias,
        out_bias=bias,
        qk_norm="head",
        output_gate="element",
    )
    delta = delta_net(read)
    full = _intervals(read, layers)
    feeds = _qwen_feeds(read, layers, kind)
    return {
        "blocks": tuple(
            Block(mixer=attention if f else delta, ffn=feed)
            for f, feed in zip(full, feeds, strict=True)
        ),
        "prediction": reading.prediction_parameters(hidden, Block(mixer=attention, ffn=feeds[-1])),
    }


def delta_net(read):
    """A gated delta net under the keys of Qwen."""
    keys = read.integer("linear_num_key_heads", default=16)
    values = read.integer("linear_num_value_heads", default=32)
    if values % keys:
        raise read.complain("linear_num_value_heads", f"a multiple of linear_num_key_heads {keys}")
    return GatedDeltaNet(
        num_heads=values,
        key_heads=keys,
        key_dim=read.integer("linear_key_head_dim", default=128),
        head_dim=read.integer("linear_value_head_dim", default=128),
        conv=read.integer("linear_conv_kernel_dim", default=4),
    )


def _intervals(read, layers):
    """Which layers have attention: those of layer_types, else every n-th."""
    types = reading.pattern(read, "layer_types", layers, MIXED)
    every = read.integer("full_attention_interval", default=4)
    said = [(i + 1) % every == 0 for i in range(layers)]
    if types is not None and "full_attention_interval" in read.values and types != said:
        raise read.complain("full_attention_interval", "absent, since layer_types says otherwise")
    return said if types is None else types


def _qwen_feeds(read, layers, kind):
    """The feed-forward part of each layer, as a list."""
    if kind == "qwen3_5":
        return [DenseFFN(width=read.integer("intermediate_size"))] * layers
    shared = read.integer("shared_expert_intermediate_size", default=512)
    moe = reading.experts(read, shared_width=shared, shared_gate=True)
    dense = set(read.items("mlp_only_layers", int, "layer numbers") or [])
    if kind == "qwen3_5_moe":
        if dense:
            raise read.complain("mlp_only_layers", "empty: each layer has experts")
        reading.only(read, {"decoder_sparse_step": 1})
        read.used.add("intermediate_size")  # no layer has it
        return [moe] * layers
    if not dense <= set(range(layers)):
        raise read.complain("mlp_only_layers", f"layer numbers from 0 to {layers - 1}")
    step = read.integer("decoder_sparse_step", default=1)
    sparse = [(i + 1) % step == 0 and i not in dense for i in range(layers)]
    read.used.add("intermediate_size")
    if all(sparse):
        return [moe] * layers
    plain = DenseFFN(width=read.integer("intermediate_size"))
    return [moe if s else plain for s in sparse]


def _kimi_linear(read, hidden, kind):
    """Kimi delta attention, and every fourth layer latent attention without positions."""
    layers = reading.layers(read)
    full, delta = _kimi_mixers(read, layers, first=1)
    reading.only(read, {"tie_word_embeddings": False})
    gate = read.flag("mla_use_output_gate")
    reading.only(read, {"mla_use_nope": True})
    latent = reading.latent_attention(read, output_gate=gate)
    dense = DenseFFN(width=read.integer("intermediate_size"))
    sizes = {"latent": read.optional("routed_expert_hidden_size") or 0}
    if sizes["latent"]:
        sizes["latent_norm"] = read.flag("latent_moe_use_norm")
    moe = _kimi_experts(read, **sizes)
    sparse = reading.sparse_layers(read, layers, first=1)
    residual = AttentionResidual() if read.optional("attn_res_block_size") else None
    found = {
        "blocks": tuple(
            Block(mixer=latent if f else delta, ffn=moe if s else dense, residual=residual)
            for f, s in zip(full, sparse, strict=True)
        )
    }
    return found | ({"closing": residual.head(hidden)} if residual else {})


def _kimi_experts(read, **extra):
    reading.only(read, {"topk_method": "noaux_tc"})
    read.used.update(("num_expert_group", "use_grouped_topk", "moe_renormalize"))
    count = read.integer("num_experts", "num_local_experts", "n_routed_experts")
    top_k = read.integer("num_experts_per_token", "num_experts_per_tok", most=count)
    shared = read.integer("num_shared_experts", "n_shared_experts", default=1, least=0)
    width = read.integer("moe_intermediate_size")
    shape = {"num_experts": count, "top_k": top_k, "width": width}
    return MoE(**shape, shared_width=shared * width, router_correction=True, **extra)


def _kimi_mixers(read, layers, first):
    """(which layers have attention, the mixer of the others); the layers of the lists of
    linear_attn_config count from `first`.
    """
    known = MIXED | dict.fromkeys(("indexed_attention", "deepseek_sparse_attention"), True)
    types = reading.pattern(read, "layer_types", layers, known)
    inner, listed = None, None
    if read.raw("linear_attn_config")[1] is not None:
        inner = read.inside("linear_attn_config")
        listed = _listed(inner, layers, first)
    if types is not None and listed is not None and types != listed:
        raise read.complain("layer_types", "as linear_attn_config says")
    full = listed if types is None else types
    if full is None:
        raise read.complain("layer_types", "given: which layers have which attention")
    sizes = {
        "num_heads": ("linear_num_heads", "num_heads"),
        "head_dim": ("linear_head_dim", "head_dim"),
        "conv": ("linear_conv_kernel_dim", "short_conv_kernel_size"),
    }
    found = {}
    for name, (outside, inside) in sizes.items():
        here, there = read.optional(outside), inner and inner.optional(inside)
        if here and there and here != there:
            raise read.complain(outside, f"{there}, as linear_attn_config says")
        found[name] = here or there or read.integer(outside)
    low = True
    read.used.add("linear_lower_bound")
    if inner:
        low = not inner.flag("use_full_rank_gate")
        inner.used.update(("gate_lower_bound", "safe_gate"))
        inner.finish("kimi_linear")
    return full, KimiDelta(**found, gate_rank=found["head_dim"] if low else None)


def _listed(inner, layers, first):
    """Which layers have attention by two lists that name each layer once; None without them."""
    numbers = {
        key: inner.items(key, int, "layer numbers") for key in ("full_attn_layers", "kda_layers")
    }
    if not any(numbers.values()):
        return None
    full, delta = (numbers[key] or [] for key in numbers)
    if sorted([*full, *delta]) != list(range(first, first + layers)):
        like = f"with kda_layers each layer from {first} to {first + layers - 1} once"
        raise inner.complain("full_attn_layers", like)
    return [i + first in set(full) for i in range(layers)]


def _glm5_next(read, hidden, kind):
    """Kimi delta attention, sparse latent attention without positions, and hyper-connections."""
    layers = reading.layers(read)
    reading.only(read, {"mhc": True})
    full, delta = _kimi_mixers(read, layers, first=0)
    latent = reading.latent_attention(read, rope_dim=_no_rope(read))
    if latent.q_rank is None:
        raise read.complain("q_lora_rank", "a whole number, since the indexer takes it")
    found = indexers(read, layers, kind)
    mixers = [
        replace(latent, indexer=index) if f else delta for f, index in zip(full, found, strict=True)
    ]
    streams = HyperConnections(streams=read.integer("hc_mult", default=4))
    moe, dense = deepseek_experts(read), DenseFFN(width=read.integer("intermediate_size"))
    sparse = reading.sparse_layers(read, layers, first=3)
    index = replace(found[0], shared=False)  # a prediction layer keeps its own, and one stream
    further = Block(mixer=replace(latent, indexer=index), ffn=moe)
    return {
        "blocks": tuple(
            Block(mixer=m, ffn=moe if s else dense, residual=streams)
            for m, s in zip(mixers, sparse, strict=True)
        ),
        "prediction": reading.prediction_parameters(hidden, further),
    }


def _no_rope(read):
    return read.integer("qk_rope_head_dim", default=0, least=0, most=0)


def _minimax(read, hidden, kind):
    """Lightning attention, and attention in some layers; experts everywhere."""
    layers = reading.layers(read)
    full = reading.pattern(read, "layer_types", layers, MIXED)
    if read.raw("attn_type_list")[1] is not None:
        listed = read.items("attn_type_list", int, "zeros and ones")
        if len(listed) != layers or not set(listed) <= {0, 1}:
            raise read.complain("attn_type_list", f"a list of {layers} zeros and ones")
        said = [bool(value) for value in listed]
        if full not in (None, said):
            raise read.complain("attn_type_list", "absent, since layer_types says otherwise")
        full = said
    if full is None:
        raise read.complain("layer_types", "given: which layers have which attention")
    heads, kv, size = reading.heads(read, hidden)
    reading.only(read, {"shared_intermediate_size": 0})
    read.used.update(("block_size", "postnorm", "shared_moe_mode", "attention_type", "rotary_dim"))
    read.used.update(MINIMAX_SCALES)
    window = read.optional("sliding_window")
    attention = SelfAttention(num_heads=heads, num_kv_heads=kv, head_dim=size, window=window)
    lightning = LightningAttention(num_heads=heads, head_dim=size)
    moe = reading.experts(read, "intermediate_size")
    return {"blocks": tuple(Block(mixer=attention if f else lightning, ffn=moe) for f in full)}


ALIASES = {
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5_moe",
    "kimi_k3": "kimi_linear",
    "glm5_next_text": "glm5_next",
    "minimax_text_01": "minimax",
    "minimax_m1": "minimax",
}
READERS = {
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_moe"), _qwen_next),
    "kimi_linear": _kimi_linear,
    "glm5_next": _glm5_next,
    "minimax": _minimax,
}
DEFAULTS, GIVEN = {"minimax": {"num_key_value_heads": 8}}, {}
