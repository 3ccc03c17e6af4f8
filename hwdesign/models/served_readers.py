"""Readers of models that vLLM or SGLang serve and transformers 5.24 has no class for.

Sources: the modules of vLLM 0.33.0 and SGLang 0.5.23 for each model type, and the configuration
classes that stand in public repositories beside them.
"""

import json

from hwdesign.models import (
    dense_readers,
    engine_readers,
    hybrid_readers,
    mixed_readers,
    reading,
)
from hwdesign.models.blocks import Block, DenseFFN, SelfAttention
from hwdesign.models.parts import Weight

LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
PATTERNS = ("block_configs", "layers_block_type", "layer_types", *LAYERS)

SCALES = (
    *("attn_output_multiplier", "max_attn_value", "embedding_multiplier_scale"),
    *("output_multiplier_scale", "final_logit_softcapping", "attn_temperature_len"),
    *("router_logit_softcapping", "attn_logit_softcapping", "replicate_lm_head"),
)  # of Grok: numbers that multiply, and how its weights are kept


def _step1(read, hidden, kind):
    """A Llama with groups of heads and slopes instead of positions."""
    layers, bias = reading.layers(read), read.flag("attention_bias")
    heads = read.integer("num_attention_heads")
    reading.divisor(read, heads, "num_attention_heads", "num_attention_groups")
    if hidden % heads:
        raise read.complain("num_attention_heads", f"a divisor of hidden_size {hidden}")
    reading.only(read, {"head_dim": hidden // heads})
    read.used.add("max_seq_len")
    mixers = reading.attention(read, hidden, layers, kind, qkv_bias=bias, out_bias=bias)
    ffn = DenseFFN(width=read.integer("intermediate_size"), bias=read.flag("mlp_bias"))
    return {"blocks": reading.blocks(mixers, [ffn] * layers)}


def _step3(read, hidden, kind):
    """Queries of a latent that all heads share, one key-value head; experts beside a shared one."""
    from hwdesign.models.factored import FactoredAttention

    layers = reading.layers(read)
    reading.only(read, {"num_attention_groups": 1, "tie_word_embeddings": False})
    reading.only(read, {"num_key_value_heads": 1, "attention_bias": False})
    read.used.update(("max_seq_len", "max_position_embedding", "norm_expert_weight"))
    heads, size = read.integer("num_attention_heads"), read.integer("head_dim")
    rank = read.integer("share_q_dim")
    mixer = FactoredAttention(num_heads=heads, num_kv_heads=1, head_dim=size, q_rank=rank)
    moe = reading.experts(read, shared_width=read.integer("share_expert_dim"))
    dense = DenseFFN(width=read.integer("intermediate_size"))
    sparse = mixed_readers.listed(read, layers)
    return {"blocks": reading.blocks([mixer] * layers, [moe if s else dense for s in sparse])}


def _grok(read, hidden, kind):
    """Experts in each block and four norms; Grok-2, whose config calls itself git, has a dense part
    beside the experts.
    """
    if kind == "git" and "Grok1ForCausalLM" not in (
        read.items("architectures", str, "names") or ()
    ):
        raise read.complain("architectures", "['Grok1ForCausalLM'], the only one of this type")
    layers = reading.layers(read)
    reading.only(read, {"sliding_window_size": -1, "global_attn_every_n": 1})
    reading.only(read, {"attention_bias": False})
    read.used.update(SCALES)
    heads, kv, size = reading.heads(read, hidden)
    if read.raw("head_dim")[1] is None and size != 128:
        raise read.complain("head_dim", "given: engines take 128 where it is missing")
    width_key = "intermediate_size"
    if read.raw("moe_intermediate_size")[1] is not None:
        width_key = "moe_intermediate_size"
    beside = read.integer("intermediate_size") if read.flag("residual_moe") else 0
    moe = reading.experts(read, width_key, shared_width=beside)
    read.used.add("intermediate_size")
    mixer = SelfAttention(num_heads=heads, num_kv_heads=kv, head_dim=size)
    return {"blocks": (Block(mixer=mixer, ffn=moe, norms=4),) * layers}


def _pangu(read, hidden, kind):
    """openPangu Embedded: a Llama with biases in its attention."""
    layers, bias = reading.layers(read), read.flag("attention_bias", "bias")
    reading.only(read, {"is_causal": True, "param_sink_number": 0})
    shape = {"qkv_bias": read.flag("qkv_bias", default=bias), "out_bias": bias}
    mixers = reading.attention(read, hidden, layers, kind, **shape)
    ffn = DenseFFN(width=read.integer("intermediate_size"), bias=read.flag("mlp_bias"))
    return {"blocks": reading.blocks(mixers, [ffn] * layers, norms=_sandwich(read))}


def _sandwich(read):
    """Norms of a block: four where what a part returns is normed, too."""
    return 4 if read.flag("sandwich_norm") else 2


def _pangu_ultra(read, hidden, kind):
    """openPangu Ultra: latent attention, experts beside shared ones."""
    layers = reading.layers(read)
    reading.only(read, {"attention_bias": False, "mlp_bias": False, "is_causal": True})
    mixer = reading.latent_attention(read)
    corrected = read.flag("router_enable_expert_bias")
    width = read.integer("moe_intermediate_size")
    shared = width * read.integer("n_shared_experts", default=0, least=0)
    moe = reading.experts(read, shared_width=shared, router_correction=corrected)
    dense = DenseFFN(width=read.integer("intermediate_size"))
    sparse, norms = reading.sparse_layers(read, layers), _sandwich(read)
    ffns = [moe if s else dense for s in sparse]
    return {"blocks": reading.blocks([mixer] * layers, ffns, norms=norms)}


def _telechat(read, hidden, kind):
    """A Llama with a bias in what leaves the attention and the feed-forward part, nowhere else."""
    layers = reading.layers(read)
    reading.only(read, {"embed_layernorm": False})
    reading.only(read, {"apply_residual_connection_post_layernorm": False})
    width = read.integer("ffn_hidden_size")
    if read.raw("intermediate_size")[1] not in (None, 1, width):  # 1 in the class of TeleChat
        raise read.complain("intermediate_size", f"absent, 1 or ffn_hidden_size {width}")
    read.used.add("training_seqlen")
    mixers = reading.attention(read, hidden, layers, kind, out_bias=True)
    ffn = DenseFFN(width=width)
    return {"blocks": reading.blocks(mixers, [ffn] * layers, scalars=hidden)}  # the last bias


def _param2(read, hidden, kind):
    """Experts beside shared ones after some dense blocks."""
    layers = reading.layers(read)
    read.used.add("max_window_layers")  # of windows that it has not
    reading.only(read, {"sliding_window": 0, "use_sliding_window": False})
    shape = {"qkv_bias": read.flag("use_qkv_bias"), "out_bias": read.flag("use_bias")}
    shape["qk_norm"] = "head" if read.flag("use_qk_norm") else None
    heads, kv, size = reading.heads(read, hidden)
    mixer = SelfAttention(num_heads=heads, num_kv_heads=kv, head_dim=size, **shape)
    shared = read.integer("num_shared_experts", least=0)
    total = shared * read.integer("moe_intermediate_size")
    if shared:
        total = read.integer("moe_shared_expert_intermediate_size", default=total)
    corrected = read.flag("moe_router_enable_expert_bias", default=True)
    moe = reading.experts(read, shared_width=total, router_correction=corrected)
    dense = DenseFFN(width=read.integer("intermediate_size"))
    sparse = reading.sparse_layers(read, layers, first=1)
    return {"blocks": reading.blocks([mixer] * layers, [moe if s else dense for s in sparse])}


Q1_LISTS = ("first_layers_types", "hybrid_layers_types_block", "last_layers_types")


def _q1_types(read, layers):
    """Names of the layers of IQuest Q1: some, a group several times, and some more."""
    known, lists = ("full_attention", "sliding_attention"), []
    for key in Q1_LISTS:
        names = read.items(key, str, "names of layers")
        if names is None or not set(names) <= set(known):
            raise read.complain(key, f"a list out of {', '.join(known)}")
        lists.append(names)
    first, group, last = lists
    names = first + group * read.integer("num_hybrid_layers_block", least=0) + last
    if not read.flag("use_hybrid_layers", default=True):
        names = ["full_attention"] * layers
    if len(names) != layers:
        accepted = f"such that it and {', '.join(Q1_LISTS)} name num_hidden_layers {layers}"
        raise read.complain("num_hybrid_layers_block", accepted)
    read.used.update(("layer_types", "hybrid_layer_pattern"))  # made of the keys above
    if not read.flag("use_sliding_window", default=True):
        return ["full_attention"] * layers
    return names


def _iquest_q1(read, hidden, kind):
    """Attention in windows and in full with a key of its own that takes no value; experts."""
    layers = reading.layers(read)
    reading.only(read, {"attention_bias": False, "use_over_encoding": False})
    read.used.update(("attn_out_scale", "ffn_out_scale", "first_layer_attn_out_scale"))
    read.used.update(("first_layer_ffn_out_scale", "enable_lm_head_fp32", "no_rope_layers"))
    heads, kv, size = reading.heads(read, hidden)
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size, "qk_norm": "head"}
    names, window = _q1_types(read, layers), None
    if "sliding_attention" in names:
        window = read.integer("sliding_window")
    read.used.add("sliding_window")
    full, near = SelfAttention(**shape), SelfAttention(**shape, window=window)
    moe = reading.experts(read, "intermediate_size")
    dense = set(read.items("mlp_only_layers", int, "layer numbers") or [])
    if not dense <= set(range(layers)):
        raise read.complain("mlp_only_layers", f"layer numbers from 0 to {layers - 1}")
    plain = DenseFFN(width=read.integer("dense_intermediate_size"))
    sink = kv * size if read.flag("enable_sink_attention", default=True) else 0
    blocks = []
    for i, name in enumerate(names):  # only the first one norms what its feed-forward part returns
        parts = {"mixer": full if name == "full_attention" else near}
        parts["ffn"] = plain if i in dense else moe
        blocks.append(Block(**parts, norms=3 if i else 4, scalars=sink))
    return {"blocks": tuple(blocks)}


TEXT = {  # (model type, version) -> the type of its text part
    ("minicpmv", "2.0"): "minicpm",
    **dict.fromkeys((("minicpmv", "2.5"), ("minicpmv", "4.0")), "llama"),
    **dict.fromkeys((("minicpmv", "2.6"), ("minicpmo", "2.6")), "qwen2"),
    **dict.fromkeys((("minicpmv", "4.5"), ("minicpmo", "4.5")), "qwen3"),
}
SEEN = (
    *("query_num", "image_size", "patch_size", "slice_mode", "slice_config", "batch_vision_input"),
    *("drop_vision_last_layer", "use_image_id", "vision_batch_size", "max_slice_nums"),
    *("scale_resolution", "audio_pool_step", "audio_chunk_length", "stream_input", "init_tts"),
)  # what a MiniCPM that sees or hears makes of images and sound


def _minicpm_v(read, hidden, kind):
    """A text part whose keys stand beside those of the towers; the version says of which type."""
    version = read.raw("version")[1]
    shown = str(version) if isinstance(version, str | float) else None
    text = TEXT.get((kind, shown))
    if text is None:
        known = ", ".join(v for k, v in TEXT if k == kind)
        raise read.complain("version", f"one of {known}, since it says what the text part is")
    read.used.update(SEEN)
    read.defaults = {**dense_readers.DEFAULTS, **engine_readers.DEFAULTS}.get(text, {})
    if text == "minicpm":
        read.given("tie_word_embeddings", "class and published configs disagree without it")
    reader = {**dense_readers.READERS, **engine_readers.READERS}[text]
    return reader(read, hidden, text)


def _molmo(read, hidden, kind):
    """The first Molmo: half the width that its config gives, and rows for tokens of images, which
    the head has not.
    """
    words = read.integer("vocab_size")
    rows = read.integer("embedding_size", default=words)
    if not 0 <= rows - words < 128:
        raise read.complain("embedding_size", f"vocab_size {words}, or up to 127 more")
    read.values = {**read.values, "vocab_size": rows}
    reading.only(read, {"layer_norm_type": "rms", "weight_tying": False})
    reading.only(read, {"tie_word_embeddings": False})
    read.used.update(("norm_after", "use_position_ids"))  # where the norms stand
    width = read.integer("intermediate_size")
    if width % 2:
        raise read.complain("intermediate_size", "even, since each matrix has half of it")
    heads, kv, size = reading.heads(read, hidden)
    reading.only(read, {"head_dim": hidden // heads})
    norm = "full" if read.flag("attention_layer_norm") else None
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size, "qk_norm": norm}
    mixer = SelfAttention(**shape, qkv_bias=read.flag("qkv_bias"))
    layers, ffn = reading.layers(read), DenseFFN(width=width // 2)
    added = {"part": "embedding", "n": 128, "k": hidden, "used": 0, "matmul": False}
    return {
        "blocks": reading.blocks([mixer] * layers, [ffn] * layers),
        "closing": (Weight(name="embedding of image tokens", **added),),
        "apart": ("vision tower",),
    }


def _xverse(read, hidden, kind):
    """A Llama, or one with experts of that width beside shared ones in each block."""
    if read.raw("num_experts")[1] is None:
        if any(map(read.values.get, ("moe_top_k", "num_shared_experts"))):
            raise read.complain("num_experts", "a whole number, since other keys describe experts")
        return dense_readers.READERS["llama"](read, hidden, "llama")
    layers = reading.layers(read)
    reading.only(read, {"attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False})
    mixers = reading.attention(read, hidden, layers, kind)
    shared = read.integer("num_shared_experts", default=0, least=0)
    width = read.integer("intermediate_size")
    moe = reading.experts(read, "intermediate_size", shared_width=shared * width)
    return {"blocks": reading.blocks(mixers, [moe] * layers)}


def _puzzle(read, hidden, kind):
    """Blocks of Nemotron-H, of which each may have sizes of its own."""
    configs, layers = read.items("block_configs", dict, "objects"), read.optional(*LAYERS)
    if not configs or layers not in (None, len(configs)):
        raise read.complain("block_configs", "a list of objects, one a layer")
    made, blocks, letters = {}, [], ""
    for i, given in enumerate(configs):
        own = read.inside("block_configs", i)
        letter = hybrid_readers.LETTERS.get(str(own.raw("block_type")[1]))
        if letter is None:
            raise own.complain("block_type", f"one of {', '.join(hybrid_readers.LETTERS)}")
        key = json.dumps(given, sort_keys=True)
        if key not in made:
            merged = {k: v for k, v in read.values.items() if k not in PATTERNS} | own.values
            merged |= {"hybrid_override_pattern": letter, "num_hidden_layers": 1}
            inner = type(read)(merged, own.where, read.defaults)
            made[key] = hybrid_readers.READERS["nemotron_h"](inner, hidden, "nemotron_h")["blocks"]
            own.used |= inner.used
            own.finish(kind)
            read.used |= inner.used
        blocks += made[key]
        letters += letter
    reading.only(read, {"hybrid_override_pattern": letters})
    for key in ("layers_block_type", "layer_types"):
        names = read.items(key, str, "names of blocks")
        if names and "".join(hybrid_readers.LETTERS.get(name, "?") for name in names) != letters:
            raise read.complain(key, "those of block_configs, or absent")
    return {"blocks": tuple(blocks)}


def _jet_nemotron(read, hidden, kind):
    """Delta nets whose convolutions have a kernel for each token, windows and full attention."""
    layers, parts = reading.layers(read), read.inside("efficient_attention_config")
    heads, kv, size = reading.heads(read, hidden)
    reading.only(read, {"head_dim": hidden // heads})
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size, "qkv_bias": True}
    known = {"attn": SelfAttention(**shape)}
    if parts.raw("swa")[1] is not None:
        near = parts.inside("swa")
        known["swa"] = SelfAttention(**shape, window=near.integer("window_size"))
        near.finish(kind)
    if parts.raw("jet")[1] is not None:
        known["jet"] = _jet(parts.inside("jet"), kind)
    names = read.items("layer_types", str, "names of layers")
    if names is None:
        raise read.complain("layer_types", "a list out of attn, swa, jet")
    if missing := {"swa", "jet"} & set(names) - set(known):
        accepted = f"an object with {min(missing)}, since layer_types names it"
        raise read.complain("efficient_attention_config", accepted)
    mixers = reading.pattern(read, "layer_types", layers, known)
    parts.finish(kind)
    ffn = DenseFFN(width=read.integer("intermediate_size"))
    return {"blocks": reading.blocks(mixers, [ffn] * layers)}


def _jet(read, kind):
    """The delta net that an object of its sizes describes."""
    from hwdesign.models.jet import DynamicDeltaNet

    heads, size, wide = read.integer("num_heads"), read.integer("head_dim"), read.raw("expand_v")[1]
    if isinstance(wide, bool) or not isinstance(wide, int | float) or not 0.01 <= wide <= 100:
        raise read.complain("expand_v", "a number from 0.01 to 100")
    value = max(1, int(size * wide))
    reduction = read.integer("dconv_generator_reduction", most=heads * value)
    shape = {"num_heads": heads, "key_heads": heads, "key_dim": size, "head_dim": value}
    read.used.update(("mode", "norm_eps", "dconv_implementation"))
    conv = read.integer("conv_size")
    read.finish(kind)
    return DynamicDeltaNet(**shape, conv=conv, generator=heads * value // reduction)


READERS = {
    "step1": _step1,
    "step3_text": _step3,
    **dict.fromkeys(("grok-1", "git"), _grok),
    "PanguEmbedded": _pangu,
    "pangu_ultra_moe": _pangu_ultra,
    "telechat": _telechat,
    "param2moe": _param2,
    "iquest_q1": _iquest_q1,
    **dict.fromkeys(("minicpmv", "minicpmo"), _minicpm_v),
    "molmo": _molmo,
    "xverse": _xverse,
    "nemotron_h_puzzle": _puzzle,
    "jet_nemotron": _jet_nemotron,
}
ALIASES = {}
# What a missing key means in the class of a type.
DEFAULTS = {
    "param2moe": {"num_shared_experts": 1},
    "git": {"tie_word_embeddings": False},
}
GIVEN = {
    "tie_word_embeddings": ("step1", "grok-1", "telechat", "jet_nemotron"),
    "num_key_value_heads": ("grok-1", "git", "param2moe", "iquest_q1", "nemotron_h_puzzle"),
    "head_dim": ("param2moe", "iquest_q1", "nemotron_h_puzzle"),
    "bias": ("PanguEmbedded",),
    **dict.fromkeys(("embedding_size", "qkv_bias", "attention_layer_norm"), ("molmo",)),
    "use_qk_norm": ("param2moe",),
    "sandwich_norm": ("pangu_ultra_moe",),
    "q_lora_rank": ("pangu_ultra_moe",),
    "moe_layers_enum": ("step3_text",),
    "mlp_only_layers": ("iquest_q1",),
    "layer_types": ("jet_nemotron",),
    **dict.fromkeys((*Q1_LISTS, "num_hybrid_layers_block"), ("iquest_q1",)),
    "enable_sink_attention": ("iquest_q1",),
}
