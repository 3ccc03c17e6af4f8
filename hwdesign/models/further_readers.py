"""Readers of further models made of known blocks: text parts of models that see or hear, models
with attention in windows and gates, and older ones.

Sources: the `configuration_*.py` and `modeling_*.py` of each model type in transformers 5.24.
"""

from dataclasses import replace

from hwdesign.models import reading
from hwdesign.models.blocks import Block, DenseFFN, SelfAttention
from hwdesign.models.dense_readers import ATTENTION, FFN, PLAIN, Style
from hwdesign.models.linear import Mamba1, ShortConvolution
from hwdesign.models.mamba import Mamba2
from hwdesign.models.residual import HyperConnections
from hwdesign.models.sparse_readers import deepseek_experts, indexers
from hwdesign.models.state_readers import delta_net

STYLES = {
    **dict.fromkeys(("ministral", "emu3_text_model"), Style()),
    "glm_ocr_text": Style(norms=4),
    "helium": Style(qkv_bias=ATTENTION, ffn_bias=FFN),
    "cosmos3_edge_text": PLAIN._replace(ffn_bias=FFN, gated=False),
    "muse_glimmer_text": Style(norms=4),  # whose norms of queries and keys have no weights
    "nanochat": PLAIN._replace(norms=0, gated=False),
    "bitnet": PLAIN._replace(norms=3),  # one of them before the projection out
    # Two numbers of its activation in each layer.
    "apertus1p5_text": PLAIN._replace(qk_norm="head", gated=False, scalars=2),
    "diffllama": PLAIN,
    "persimmon": Style(qkv_bias=True, out_bias=True, ffn_bias=True, gated=False, norm_bias=True),
}
# Where only one value of a key is counted: type -> key -> that value.
ONLY = {
    **dict.fromkeys(("muse_glimmer_text", "beam", "lfm3"), {"attention_bias": False}),
    "muse_spark_text": {"attention_bias": False, "tie_word_embeddings": False},
    "nanochat": {"hidden_act": "relu2"},
    "cosmos3_edge_text": {"hidden_act": "relu2", "tie_word_embeddings": False},
    "persimmon": {"hidden_act": "relu2"},
    "apertus1p5_text": {"hidden_act": "xielu"},
    "aria_text": {"mlp_bias": False},
}
FLINT_DENSE = [0, 1]  # layers of flint without experts where nothing else is said
MUSE = ("layer_rope_theta", "qk_scale_factor", "output_multiplier", "residual_gate_temperature")


def _dense(read, hidden, kind):
    style, layers = STYLES[kind], reading.layers(read)
    reading.only(read, ONLY.get(kind, {}))
    read.used.update(MUSE)
    qk_norm, width = style.qk_norm, read.integer("intermediate_size")
    normed = kind == "persimmon" and read.flag("qk_layernorm", default=True)
    mixers = reading.attention(
        read,
        hidden,
        layers,
        kind,
        qkv_bias=reading.said(read, style.qkv_bias),
        out_bias=reading.said(read, style.out_bias),
        qk_norm="head" if normed else qk_norm,
        output_gate="element" if kind == "muse_glimmer_text" else None,
    )
    size = mixers[0].head_dim
    if kind == "helium" and mixers[0].num_heads * size != hidden:
        raise read.complain("head_dim", f"hidden_size {hidden} / num_attention_heads")
    scalars = {
        "bitnet": width,  # the norm inside the feed-forward part
        "diffllama": 4 * size,  # how the second half of the heads is subtracted
        "persimmon": 2 * size * normed,  # biases of the norms of queries and keys
    }
    if kind == "apertus1p5_text":
        reading.only(read, {"output_vocab_size": read.integer("vocab_size")})
    ffn = DenseFFN(width=width, gated=style.gated, bias=reading.said(read, style.ffn_bias))
    made = {"norms": style.norms, "norm_bias": style.norm_bias}
    made["scalars"] = scalars.get(kind, style.scalars)
    return {
        "blocks": reading.blocks(mixers, [ffn] * layers, **made),
        "norm_bias": style.norm_bias,
        "final_norm": kind != "nanochat",  # whose norms have no weights
    }


def _granite(read, hidden, kind):
    """Granite with experts, windows and sinks; a shared expert where it has a width."""
    read.used.update((*reading.MULTIPLIERS, "layer_rope_theta"))
    bias, layers = read.flag("attention_bias"), reading.layers(read)
    shape = {"qkv_bias": bias, "out_bias": bias, "sinks": True}
    mixers = reading.attention(read, hidden, layers, kind, **shape)
    shared = read.integer("shared_intermediate_size", least=0)
    moe = reading.experts(read, "intermediate_size", shared_width=shared)
    return {"blocks": reading.blocks(mixers, [moe] * layers)}


def _cohere_moe(read, hidden, kind):
    """Attention beside experts after one norm; the first blocks may be dense."""
    bias, layers = read.flag("attention_bias"), reading.layers(read)
    mixers = reading.attention(read, hidden, layers, kind, qkv_bias=bias, out_bias=bias)
    read.used.update(("prefix_dense_sliding_window_pattern", "sliding_window_pattern"))
    read.used.update(("shared_expert_combination_strategy", "expert_selection_fn"))
    width = read.integer("intermediate_size")
    shared = width * read.integer("num_shared_experts", least=0)
    moe = reading.experts(read, "intermediate_size", shared_width=shared)
    dense = DenseFFN(width=read.integer("prefix_dense_intermediate_size", default=width))
    sparse = reading.sparse_layers(read, layers, first=0)
    return {"blocks": reading.blocks(mixers, [moe if s else dense for s in sparse], norms=1)}


def _aria(read, hidden, kind):
    """Attention and experts beside shared ones of the same width."""
    reading.only(read, ONLY.get(kind, {}))
    bias, layers = read.flag("attention_bias"), reading.layers(read)
    mixers = reading.attention(read, hidden, layers, kind, qkv_bias=bias, out_bias=bias)
    shared = read.integer("intermediate_size") * read.integer("moe_num_shared_experts", least=0)
    moe = reading.experts(read, "intermediate_size", shared_width=shared)
    return {"blocks": reading.blocks(mixers, [moe] * layers)}


def _beam(read, hidden, kind):
    """Gated attention in windows and four norms a block; experts after some dense blocks."""
    layers = reading.layers(read)
    reading.only(read, ONLY[kind])
    shape = {"qk_norm": "head", "output_gate": "element"}
    mixers = reading.attention(read, hidden, layers, kind, **shape)
    moe = reading.experts(read, router_correction=True)
    dense = DenseFFN(width=read.integer("intermediate_size"))
    sparse = reading.sparse_layers(read, layers, first=3)
    ffns = [moe if s else dense for s in sparse]
    # The gates share a bias for each head.
    scalars = mixers[0].num_heads
    return {"blocks": reading.blocks(mixers, ffns, norms=4, scalars=scalars)}


def _windowed_experts(read, hidden, kind):
    """Attention in windows; experts beside a shared one."""
    layers = reading.layers(read)
    bias = read.flag("attention_bias") if kind == "flint" else False
    shape = {"qkv_bias": bias, "out_bias": bias, "qk_norm": "head", "sinks": kind == "flint"}
    mixers = reading.attention(read, hidden, layers, kind, **shape)
    shared = read.integer("shared_expert_intermediate_size", least=0)
    moe = reading.experts(read, shared_width=shared, router_correction=kind == "kolibri1")
    if kind == "kolibri1":
        return {"blocks": reading.blocks(mixers, [moe] * layers, norms=4)}
    dense = read.items("mlp_only_layers", int, "layer numbers")
    dense = set(FLINT_DENSE if dense is None else dense)  # null as a missing key
    if not dense <= set(range(layers)):
        raise read.complain("mlp_only_layers", f"layer numbers from 0 to {layers - 1}")
    step = read.integer("decoder_sparse_step", default=1)
    plain = DenseFFN(width=read.integer("intermediate_size"))
    sparse = [(i + 1) % step == 0 and i not in dense for i in range(layers)]
    return {"blocks": reading.blocks(mixers, [moe if s else plain for s in sparse])}


def _muse_spark(read, hidden, kind):
    """Gated attention in windows; experts in a space of their own; a gate in each residual."""
    layers = reading.layers(read)
    reading.only(read, ONLY[kind])
    read.used.update(MUSE)
    mixers = reading.attention(read, hidden, layers, kind, output_gate="element")
    inner = read.integer("moe_hidden_size")
    extra = {"latent": inner, "latent_norm": True, "router_correction": True}
    moe = reading.experts(read, **extra)
    dense = DenseFFN(width=read.integer("intermediate_size"))
    gates = 2 * hidden
    blocks = []
    for mixer, s in zip(mixers, reading.sparse_layers(read, layers, first=0), strict=True):
        # A norm of what the experts return, too.
        scalars = gates + inner * s
        blocks.append(Block(mixer=mixer, ffn=moe if s else dense, norms=3, scalars=scalars))
    return {"blocks": tuple(blocks)}


def _hy_v4(read, hidden, kind):
    """Gated latent attention with sinks, whose indexer picks the tokens, and hyper-connections that
    do not mix their streams.
    """
    layers = reading.layers(read)
    known = dict.fromkeys(("indexed_attention",))
    reading.pattern(read, "layer_types", layers, known)
    read.used.add("hc_magnitude")
    latent = reading.latent_attention(read, output_gate=True)
    if latent.q_rank is None:
        raise read.complain("q_lora_rank", "a whole number, since the indexer takes it")
    streams = HyperConnections(streams=read.integer("hc_mult"), mixed=False)
    moe, dense = deepseek_experts(read), DenseFFN(width=read.integer("intermediate_size"))
    sparse = reading.sparse_layers(read, layers, first=1)
    made = {"residual": streams, "scalars": latent.num_heads}  # a sink for each head
    mixers = [replace(latent, indexer=index) for index in indexers(read, layers, kind)]
    pairs = zip(mixers, sparse, strict=True)
    blocks = tuple(Block(mixer=m, ffn=moe if s else dense, **made) for m, s in pairs)
    return {"blocks": blocks, "closing": streams.head(hidden)}


def _lara(read, hidden, kind):
    """Gated delta nets, attention in windows and in full; experts beside a shared one."""
    layers, bias = reading.layers(read), read.flag("attention_bias")
    heads, kv, size = reading.heads(read, hidden)
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size, "qk_norm": "head"}
    shape |= {"qkv_bias": bias, "out_bias": bias}
    known = {
        "linear_attention": delta_net(read),
        "full_attention": SelfAttention(**shape),
        "sliding_attention": SelfAttention(**shape, window=read.integer("sliding_window")),
    }
    mixers = reading.pattern(read, "layer_types", layers, known)
    shared = read.integer("shared_expert_intermediate_size", least=0)
    moe = reading.experts(read, shared_width=shared)
    return {"blocks": reading.blocks(mixers, [moe] * layers)}


def _lfm3(read, hidden, kind):
    """Gated short convolutions, attention in windows and in full, with a gate for each head."""
    layers = reading.layers(read)
    reading.only(read, ONLY[kind])
    heads, kv, size = reading.heads(read, hidden)
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size, "qk_norm": "head"}
    shape["output_gate"] = "head" if read.flag("use_attention_gate", default=True) else None
    conv = {"conv": read.integer("conv_L_cache", default=7), "bias": read.flag("conv_bias")}
    known = {
        "conv": ShortConvolution(num_heads=hidden, **conv),
        "full_attention": SelfAttention(**shape),
        "sliding_attention": SelfAttention(**shape, window=read.integer("sliding_window")),
    }
    mixers = reading.pattern(read, "layer_types", layers, known)
    ffn = DenseFFN(width=read.integer("intermediate_size"))
    norms = 4 if read.flag("use_sandwich_norm", default=True) else 2
    return {"blocks": reading.blocks(mixers, [ffn] * layers, norms=norms)}


def _mamba(read, hidden, kind):
    """Mamba and nothing else."""
    read.used.update(("use_mambapy", "use_associative_scan", "mixer_rms_eps", "chunk_size"))
    state = read.integer("state_size")
    conv, inner = read.integer("conv_kernel"), read.integer("expand") * hidden
    bias = {"bias": read.flag("use_bias"), "conv_bias": read.flag("use_conv_bias", default=True)}
    if kind == "mamba2":
        read.used.add("time_step_rank")
        heads, size = read.integer("num_heads"), read.integer("head_dim")
        if heads * size != inner:
            raise read.complain("num_heads", f"{inner} / {size}, the width over the head size")
        groups = reading.divisor(read, heads, "num_heads", "n_groups")
        shape = {"num_heads": heads, "head_dim": size, "groups": groups}
        mixer = Mamba2(state=state, conv=conv, **shape, **bias)
    else:
        reading.only(read, {"intermediate_size": inner})
        rank = read.raw("time_step_rank")[1]
        rank = -(-hidden // 16) if rank in (None, "auto") else read.integer("time_step_rank")
        mixer = Mamba1(num_heads=inner, state=state, conv=conv, rank=rank, norm=False, **bias)
    return {"blocks": (Block(mixer=mixer, ffn=None, norms=1),) * reading.layers(read)}


def _mpt(read, hidden, kind):
    """Attention without biases or learned positions."""
    reading.only(read, {"no_bias": True, "expansion_ratio": 4})  # which transformers does not read
    read.used.update(("learned_pos_emb", "embedding_fraction", "norm_type"))
    heads = read.integer("n_heads")
    if hidden % heads:
        raise read.complain("n_heads", f"a divisor of d_model {hidden}")
    if read.raw("attn_config")[1] is not None:
        inner = read.inside("attn_config")
        reading.only(inner, {"attn_type": "multihead_attention", "qk_ln": False, "alibi": True})
        reading.only(inner, {"prefix_lm": False})
        inner.used.update(("attn_impl", "attn_uses_sequence_id", "alibi_bias_max", "clip_qkv"))
        inner.finish(kind)
    mixer = SelfAttention(num_heads=heads, num_kv_heads=heads, head_dim=hidden // heads)
    ffn = DenseFFN(width=4 * hidden, gated=False)
    return {"blocks": (Block(mixer=mixer, ffn=ffn),) * reading.layers(read)}


def _older(read, hidden, kind):
    """Blocks with biases everywhere and no gate."""
    read.used.update(("scale_embedding", "layerdrop", "activation_dropout"))
    names = "num_attention_heads", "n_head", "attention_heads"
    heads = read.integer(*names)
    if hidden % heads:
        raise read.complain(read.raw(*names)[0], f"a divisor of the hidden size {hidden}")
    shape = {"num_heads": heads, "num_kv_heads": heads, "head_dim": hidden // heads}
    mixer = SelfAttention(**shape, qkv_bias=True, out_bias=True)
    width = 4 * hidden
    if kind != "openai-gpt":
        width = read.integer("intermediate_size", "ffn_dim")
    block = Block(mixer=mixer, ffn=DenseFFN(width=width, gated=False, bias=True), norm_bias=True)
    found = {"blocks": (block,) * reading.layers(read), "norm_bias": True}
    if kind == "openai-gpt":
        found |= {"final_norm": False, "positions": read.integer("n_positions")}
    if kind == "biogpt":
        found["positions"] = read.integer("max_position_embeddings") + 2
    return found


READERS = {
    **dict.fromkeys(STYLES, _dense),
    "granitemoe_swa": _granite,
    "cohere2_moe": _cohere_moe,
    "aria_text": _aria,
    "beam": _beam,
    **dict.fromkeys(("flint", "kolibri1"), _windowed_experts),
    "muse_spark_text": _muse_spark,
    "lara_mini": _lara,
    **dict.fromkeys(("hy_v4", "hy_v4_vl_text"), _hy_v4),
    "lfm3": _lfm3,
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba"), _mamba),
    "mpt": _mpt,
    **dict.fromkeys(("openai-gpt", "biogpt", "xglm"), _older),
}
ALIASES = {
    "glm_ocr": "glm_ocr_text",
    "muse_glimmer": "muse_glimmer_text",
    "muse_spark": "muse_spark_text",
    "cosmos3_edge": "cosmos3_edge_text",
    "apertus1p5": "apertus1p5_text",
    "aria": "aria_text",
    "hy_v4_vl": "hy_v4_vl_text",
    "emu3": "emu3_text_model",
    "hunyuan_vl": "hunyuan_v1_dense",
    "hunyuan_vl_text": "hunyuan_v1_dense",
    "paddleocr_vl": "ernie4_5",
    "paddleocr_vl_text": "ernie4_5",
    "qwen2_5_omni_text": "qwen2",
    "gemma4_unified": "gemma4",
    "gemma4_unified_text": "gemma4_text",
    "gpt-sw3": "gpt2",
}
_MAMBA = {"conv_kernel": 4, "expand": 2}
_TIED = {"tie_word_embeddings": True}
_UNIFIED = {"hidden_size_per_layer_input": 0, "sliding_window": 1024}
# What a missing key means in the class of a type.
DEFAULTS = {
    "ministral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "emu3_text_model": {"num_key_value_heads": 8},
    "glm_ocr_text": {"num_key_value_heads": 8},
    "helium": {"num_key_value_heads": 20, "head_dim": 128},
    "cosmos3_edge_text": {"num_key_value_heads": 8, "head_dim": 128},
    "muse_glimmer_text": {"num_key_value_heads": 2, "head_dim": 128, "sliding_window": 2048},
    "muse_spark_text": {"num_key_value_heads": 16, "head_dim": 64, "sliding_window": 2048},
    "bitnet": {"num_key_value_heads": 5},
    "cohere2_moe": {"head_dim": 128, "num_shared_experts": 0, "sliding_window": 4096, **_TIED},
    "granitemoe_swa": {"shared_intermediate_size": 0, "sliding_window": 128},
    "aria_text": {"moe_num_shared_experts": 2},
    "beam": {"num_key_value_heads": 8, "head_dim": 128, "sliding_window": 512},
    "flint": {
        "num_key_value_heads": 4,
        "head_dim": 128,
        "sliding_window": 513,
        "mlp_only_layers": FLINT_DENSE,
    },
    "kolibri1": {"num_key_value_heads": 4, "head_dim": 128, "sliding_window": 513},
    "lara_mini": {
        "num_key_value_heads": 4,
        "head_dim": 128,
        "sliding_window": 512,
        "linear_num_key_heads": 8,
        "linear_num_value_heads": 16,
        **_TIED,
    },
    "lfm3": {"num_key_value_heads": 4, "head_dim": 128, "sliding_window": 256, **_TIED},
    "hy_v4": {"index_n_heads": 16, "hc_mult": 4, "q_lora_rank": 1536},
    "hy_v4_vl_text": {"index_n_heads": 32, "hc_mult": 4, "q_lora_rank": 2048},
    "paddleocr_vl_text": {"num_key_value_heads": 2, "head_dim": 128, **_TIED},
    **dict.fromkeys(("hunyuan_vl", "hunyuan_vl_text"), _TIED),
    **dict.fromkeys(("gemma4_unified", "gemma4_unified_text"), _UNIFIED),
    **dict.fromkeys(("mpt", "biogpt", "xglm", "openai-gpt"), _TIED),
    **dict.fromkeys(("mamba", "falcon_mamba"), {"state_size": 16, **_MAMBA, **_TIED}),
    "mamba2": {"state_size": 128, "n_groups": 8, "head_dim": 64, **_MAMBA},
}
GIVEN = {
    "tie_word_embeddings": ("glm_ocr", "glm_ocr_text", "qwen2_5_omni_text"),
    "num_key_value_heads": ("qwen2_5_omni_text",),
    "layer_types": (
        *("muse_glimmer", "muse_glimmer_text", "muse_spark", "muse_spark_text", "cohere2_moe"),
        *("granitemoe_swa", "beam", "flint", "kolibri1", "lara_mini", "lfm3"),
    ),
    "indexer_types": ("hy_v4", "hy_v4_vl", "hy_v4_vl_text"),
    "mlp_layer_types": ("cohere2_moe",),
    "time_step_rank": ("mamba", "falcon_mamba"),
}
