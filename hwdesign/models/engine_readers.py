"""Readers of models that engines run and transformers 5.24 has no class for, and of those whose
checkpoint holds adapters.

Sources: the modules of vLLM 0.33.0, SGLang 0.5.23 and mlx-lm 0.32.2 for each model type;
Phi-4-multimodal, arXiv 2503.01743, and its published config.
"""

from hwdesign.models import dense_readers, mixed_readers, reading
from hwdesign.models.blocks import DenseFFN, SelfAttention
from hwdesign.models.parts import Weight, linear

LINEAR = "residual"  # part of matrices outside the blocks


def _plain(read, hidden, kind):
    """A Llama whose keys differ: biases under one key, a norm with a bias, scales without
    weights.
    """
    layers, bias = reading.layers(read), False
    if kind in ("internlm", "internlm2"):
        bias = read.flag("bias")
    if kind == "minicpm":
        reading.only(read, {"num_experts": 0, "attention_bias": False, "mlp_bias": False})
        read.used.update(("scale_emb", "scale_depth", "dim_model_base", "mup_denominator"))
    norm_bias = kind == "orion"  # layer norms
    mixers = reading.attention(read, hidden, layers, kind, qkv_bias=bias, out_bias=bias)
    ffn = DenseFFN(width=read.integer("intermediate_size"))
    blocks = reading.blocks(mixers, [ffn] * layers, norm_bias=norm_bias)
    return {"blocks": blocks, "norm_bias": norm_bias}


def _qwen(read, hidden, kind):
    """The first Qwen: biases of q, k and v alone, and half the width that its config gives."""
    reading.only(read, {"no_bias": True, "tie_word_embeddings": False})
    heads = read.integer("num_attention_heads")
    size = read.integer("kv_channels", default=128)
    if heads * size != hidden:
        raise read.complain("kv_channels", f"{hidden} / {heads}, so that heads fill hidden_size")
    width = read.integer("intermediate_size")
    if width % 2:
        raise read.complain("intermediate_size", "even, since each matrix has half of it")
    read.used.update(("use_dynamic_ntk", "use_logn_attn", "use_flash_attn"))
    mixer = SelfAttention(num_heads=heads, num_kv_heads=heads, head_dim=size, qkv_bias=True)
    ffn, layers = DenseFFN(width=width // 2), reading.layers(read)
    return {"blocks": reading.blocks([mixer] * layers, [ffn] * layers)}


def _chatglm(read, hidden, kind):
    """ChatGLM2 and 3 and the first GLM-4: multi-query groups, and norms of either kind."""
    if read.raw("vocab_size")[1] is None and read.raw("padded_vocab_size")[1] is not None:
        read.values = {**read.values, "vocab_size": read.values["padded_vocab_size"]}
    if read.raw("padded_vocab_size")[1] is not None:
        reading.only(read, {"padded_vocab_size": read.integer("vocab_size")})
    reading.only(read, {"prefix_projection": False, "pre_seq_len": 0})
    read.used.add("apply_residual_connection_post_layernorm")
    heads, kv = read.integer("num_attention_heads"), None
    reading.only(read, {"kv_channels": hidden // heads})
    if read.flag("multi_query_attention"):
        kv = read.integer("multi_query_group_num", most=heads)
    read.used.add("multi_query_group_num")
    kv = kv or heads
    if heads % kv or hidden % heads:
        raise read.complain("multi_query_group_num", f"a divisor of num_attention_heads {heads}")
    bias = read.flag("add_bias_linear")
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": hidden // heads}
    mixer = SelfAttention(**shape, qkv_bias=bias or read.flag("add_qkv_bias"), out_bias=bias)
    ffn = DenseFFN(width=read.integer("ffn_hidden_size"), bias=bias)
    layers, plain = reading.layers(read), read.flag("rmsnorm", default=True)
    return {
        "blocks": reading.blocks([mixer] * layers, [ffn] * layers, norm_bias=not plain),
        "norm_bias": not plain,
        "final_norm": read.flag("post_layer_norm", default=True),
    }


def _hunyuan_large(read, hidden, kind):
    """Experts beside shared ones in each layer; where keys and values are shared, every n-th layer
    makes them.
    """
    from hwdesign.models.shared_cache import SharedKeysAttention

    layers, bias = reading.layers(read), read.flag("attention_bias")
    reading.only(read, {"tie_word_embeddings": True, "mlp_bias": False, "norm_type": "rms"})
    read.used.update(("org_vocab_size", "moe_drop_tokens", "moe_random_routing_dropped_token"))
    read.used.add("position_embedding_xdrope")
    heads, kv, size = reading.heads(read, hidden)
    if size * heads != hidden:
        raise read.complain("head_dim", f"{hidden} / {heads} or absent")
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size}
    shape |= {"qkv_bias": bias, "out_bias": bias}
    shape["qk_norm"] = "head" if read.flag("use_qk_norm") else None
    full, copy = SelfAttention(**shape), SharedKeysAttention(**shape)
    every = read.integer("cla_share_factor", default=2)
    every = every if read.flag("use_cla") else 1
    width = read.integer("intermediate_size")
    reading.only(read, {"moe_intermediate_size": width})
    shared = width * read.integer("num_shared_expert", least=0)
    mixed = read.flag("use_mixed_mlp_moe")
    moe = reading.experts(read, "intermediate_size", shared_width=shared if mixed else 0)
    mixers = [copy if i % every else full for i in range(layers)]
    return {"blocks": reading.blocks(mixers, [moe] * layers)}


def _deepseek_moe(read, hidden, kind):
    """DeepSeekMoE, the first one: plain attention, experts beside shared ones."""
    layers, bias = reading.layers(read), read.flag("attention_bias")
    reading.only(read, {"tie_word_embeddings": False})
    mixers = reading.attention(read, hidden, layers, kind, qkv_bias=bias, out_bias=bias)
    shared = read.integer("n_shared_experts", default=0, least=0)
    moe = reading.experts(read, shared_width=shared * read.integer("moe_intermediate_size"))
    dense = DenseFFN(width=read.integer("intermediate_size"))
    sparse = reading.sparse_layers(read, layers)
    return {"blocks": reading.blocks(mixers, [moe if s else dense for s in sparse])}


def _plamo3(read, hidden, kind):
    """Windows, every n-th layer full, norms of queries and keys, and four norms a block."""
    reading.only(read, {"linear_type": "normal"})
    read.used.update(("image_feature_size", "image_proj_type", "interleaved_sliding_window"))
    if read.raw("sliding_window")[1] is None:
        read.values = {**read.values, "sliding_window": read.integer("window_size", default=2048)}
    read.used.add("window_size")
    period = read.integer("sliding_window_pattern", default=8)
    layers = reading.layers(read)
    mixers = reading.attention(read, hidden, layers, kind, period=period, qk_norm="head")
    ffn = DenseFFN(width=read.integer("intermediate_size"))
    return {"blocks": reading.blocks(mixers, [ffn] * layers, norms=4)}


def _spark(read, hidden, kind):
    """Windows, every fourth layer full, and a gate for each head."""
    reading.only(read, {"headwise_attn_output_gate": True})
    read.used.add("gate_attn_act_mode")  # its activation
    layers, bias = reading.layers(read), read.flag("attention_bias")
    extra = {"qkv_bias": bias, "out_bias": bias, "output_gate": "head"}
    period = 4 if read.raw("layer_types")[1] is None else None
    mixers = reading.attention(read, hidden, layers, kind, period=period, **extra)
    ffn = DenseFFN(width=read.integer("intermediate_size"), bias=read.flag("mlp_bias"))
    return {"blocks": reading.blocks(mixers, [ffn] * layers)}


def _nanbeige(read, hidden, kind):
    """A Llama; its layers may run several times, which is not counted."""
    reading.only(read, {"num_loops": 1, "enable_double_loop_split": False, "loop_share_kv": False})
    if read.raw("loop_loss_weights")[1]:
        raise read.complain("loop_loss_weights", "absent: layers that run again are not counted")
    reading.only(read, {"enable_depth_attention": False})
    return dense_readers.READERS["llama"](read, hidden, "llama")


def _longcat_ngram(read, hidden, kind):
    """LongCat-Flash with tables of n-grams, whose rows are projected and added to the embedding."""
    found = mixed_readers.READERS["longcat_flash"](read, hidden, "longcat_flash")
    reading.only(read, {"tie_word_embeddings": False})
    rows = read.integer("ngram_vocab_size_ratio") * read.integer("vocab_size")
    tables = read.integer("emb_split_num") * (read.integer("emb_neighbor_num", least=2) - 1)
    width = hidden // tables
    if not width:
        raise read.complain("emb_split_num", f"such that {tables} tables share {hidden} elements")
    made = []
    for i in range(tables):  # of an odd number of rows each
        size = {"n": rows + 2 * i + 1, "k": width, "used": 0, "matmul": False}
        made.append(Weight(name="n-gram embedding", part="embedding", **size))
        made += linear("n-gram projection", LINEAR, hidden, width)
    return found | {"closing": tuple(made)}


ADAPTED = ("qkv", "o", "gate_up", "down")  # names of what adapters stand beside


def _phi4(read, hidden, kind):
    """Phi-4 with adapters for images and speech, which no count includes."""
    read.used.update(("embd_layer", "img_processor", "audio_processor", "image_newline"))
    found = dense_readers.READERS["phi3"](read, hidden, "phi3")
    block = found["blocks"][0]
    mixer, width = block.mixer, block.ffn.width
    query, key = mixer.num_heads * mixer.head_dim, mixer.num_kv_heads * mixer.head_dim
    sides = (2 * query + 2 * key + 2 * hidden) + (hidden + 2 * width) + (width + hidden)
    apart = []
    for name in ("vision", "speech"):
        if read.raw(f"{name}_lora")[1] is not None:
            inner = read.inside(f"{name}_lora")
            rank, beside = inner.integer("r", least=0), inner.raw("layer")[1]
            inner.used.update(("dp", "lora_alpha"))
            inner.finish(kind)
            text = f"{name} adapter of rank {rank}"
            if isinstance(beside, str) and all(word in beside for word in ADAPTED):
                text += f" ({rank * sides * len(found['blocks']):,} parameters)"
            apart += [text] if rank else []
    return found | {"apart": tuple(apart)}


READERS = {
    **dict.fromkeys(("internlm", "internlm2", "minicpm", "orion"), _plain),
    "qwen": _qwen,
    "chatglm": _chatglm,
    "hunyuan": _hunyuan_large,
    "deepseek": _deepseek_moe,
    "plamo3": _plamo3,
    "spark2_5": _spark,
    "nanbeige": _nanbeige,
    "longcat_flash_ngram": _longcat_ngram,
    **dict.fromkeys(("phi4_multimodal", "phi4mm"), _phi4),
}
ALIASES = {
    **dict.fromkeys(("aquila", "baichuan", "telechat3", "yi"), "llama"),
    **dict.fromkeys(("keye", "Keye", "KeyeVL1_5"), "qwen3"),
    "dots_ocr": "qwen2",
    "mimo_v2": "mimo_v2_flash",
    "phi3_v": "phi4mm",
}
# What a missing key means in the class of a type.
DEFAULTS = {
    "hunyuan": {"tie_word_embeddings": True},
    "phi4_multimodal": {"num_key_value_heads": 8},
    "plamo3": {"num_key_value_heads": 4, "head_dim": 128, "tie_word_embeddings": True},
    "spark2_5": {"tie_word_embeddings": True},
    "longcat_flash_ngram": {
        "zero_expert_num": 256,
        "ngram_vocab_size_ratio": 78,
        "emb_neighbor_num": 4,
        "emb_split_num": 4,
    },
}
GIVEN = {
    "bias": ("internlm", "internlm2"),
    "tie_word_embeddings": ("minicpm", "keye", "Keye", "KeyeVL1_5", "dots_ocr"),
}
