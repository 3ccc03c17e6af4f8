"""Readers of rarer models: older ones, text parts of models that see or hear, and models whose
layers run several times.

Sources: the `configuration_*.py` and `modeling_*.py` of each model type in transformers 5.24.
"""

from dataclasses import replace

from hwdesign.models import reading
from hwdesign.models.blocks import Block, DenseFFN, SelfAttention
from hwdesign.models.parts import Weight, linear, vector
from hwdesign.models.sparse_readers import indexers

FULL, SLIDING, INDEXED = "full_attention", "sliding_attention", "indexed_attention"


def unquantized(read, what):
    """Refuse a quantized checkpoint whose layers are counted otherwise than its modules."""
    for key in ("quantization_config", "quantization"):
        if read.raw(key)[1] is not None:
            raise read.complain(key, f"absent: no checkpoint says how it counts {what}")


def divided(read, hidden, *keys):
    """(heads, head size) where all heads are as wide as the hidden size."""
    heads = read.integer(*keys)
    if hidden % heads:
        raise read.complain(keys[0], f"a divisor of the hidden size {hidden}")
    return heads, hidden // heads


def _gpt_neo(read, hidden, kind):
    """Full attention and windows in turn; a bias of the output alone."""
    layers = read.integer("num_layers", "num_hidden_layers")
    heads, size = divided(read, hidden, "num_heads", "num_attention_heads")
    window = read.integer("window_size", default=256)
    shape = {"num_heads": heads, "num_kv_heads": heads, "head_dim": size, "out_bias": True}
    known = {
        "global": SelfAttention(**shape),
        "local": SelfAttention(**shape, window=window),
    }
    mixers = reading.pattern(read, "attention_layers", layers, known)
    again = _neo_types(read, layers, known)
    if mixers is not None and again is not None and mixers != again:
        raise read.complain("attention_layers", "as attention_types says")
    if mixers is None and again is None:
        raise read.complain("attention_types", "given: which layers have a window")
    width = read.integer("intermediate_size", default=4 * hidden)
    ffn = DenseFFN(width=width, gated=False, bias=True)
    blocks = reading.blocks(mixers or again, [ffn] * layers, norm_bias=True)
    positions = read.integer("max_position_embeddings")
    return {"blocks": blocks, "norm_bias": True, "positions": positions}


def _neo_types(read, layers, known):
    """Attention of each layer from pairs of a list of names and how often it comes; None without
    them.
    """
    key, pairs = read.raw("attention_types")
    if pairs is None:
        return None
    error = read.complain(key, f"pairs of names and a number that make {layers} layers")
    found = []
    if not isinstance(pairs, list):
        raise error
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], list):
            raise error
        names, times = pair
        fits = type(times) is int and 0 <= times <= layers and len(names) <= layers
        if not fits or any(name not in ("global", "local") for name in names):
            raise error
        found += [known[name] for name in names] * times
    if len(found) != layers:
        raise error
    return found


def _neox_japanese(read, hidden, kind):
    """No biases but one after the attention of the last layer."""
    layers = reading.layers(read)
    read.used.add("is_decoder")
    heads, size = divided(read, hidden, "num_attention_heads")
    mixer = SelfAttention(num_heads=heads, num_kv_heads=heads, head_dim=size)
    last = replace(mixer, out_bias=True)
    width = read.integer("intermediate_multiple_size", default=4) * hidden
    ffns = [DenseFFN(width=width, gated=False)] * layers
    blocks = reading.blocks([mixer] * (layers - 1) + [last], ffns, norm_bias=True)
    return {"blocks": blocks, "norm_bias": True}


def _ctrl(read, hidden, kind):
    """Biases everywhere; positions are constants."""
    heads, size = divided(read, hidden, "n_head", "num_attention_heads")
    shape = {"num_heads": heads, "num_kv_heads": heads, "head_dim": size}
    mixer = SelfAttention(**shape, qkv_bias=True, out_bias=True)
    ffn = DenseFFN(width=read.integer("dff"), gated=False, bias=True)
    read.optional("n_positions")
    block = Block(mixer=mixer, ffn=ffn, norm_bias=True)
    layers = reading.layers(read)
    return {"blocks": (block,) * layers, "norm_bias": True, "head_bias": True}


def _modernbert(read, hidden, kind):
    """A decoder of ModernBERT: windows of half of local_attention in most layers, no norm before
    the first one, a projection and a norm before the head.
    """
    layers = reading.layers(read)
    heads, size = divided(read, hidden, "num_attention_heads")
    bias, mlp_bias = read.flag("attention_bias"), read.flag("mlp_bias")
    window = read.integer("local_attention", default=128, least=2) // 2
    reading.only(read, {"sliding_window": window})
    shape = {"num_heads": heads, "num_kv_heads": heads, "head_dim": size}
    full = SelfAttention(**shape, qkv_bias=bias, out_bias=bias)
    near = replace(full, window=window)
    mixers = reading.pattern(read, "layer_types", layers, {FULL: full, SLIDING: near})
    every = read.integer("global_attn_every_n_layers", default=3)
    mixers = mixers or [near if i % every else full for i in range(layers)]
    ffn = DenseFFN(width=read.integer("intermediate_size"), bias=mlp_bias)
    normed = read.flag("norm_bias")
    made = {"norm_bias": normed}
    first = Block(mixer=mixers[0], ffn=ffn, norms=1, **made)  # after the norm of the embedding
    rest = reading.blocks(mixers[1:], [ffn] * (layers - 1), **made)
    closing = linear("head projection", "head", hidden, hidden, read.flag("classifier_bias"))
    closing.append(vector("head norm", "norm", hidden * (1 + normed)))
    return {
        "blocks": (first, *rest),
        "closing": tuple(closing),
        "norm_bias": normed,
        "embedding_norm": True,
        "head_bias": read.flag("decoder_bias", default=True),
    }


def _deepseek_ocr2(read, hidden, kind):
    """Attention without a latent, and experts beside shared ones in some layers."""
    layers = reading.layers(read)
    reading.only(read, {"topk_method": "greedy"})
    heads, kv, size = reading.heads(read, hidden)
    bias, mlp_bias = read.flag("attention_bias"), read.flag("mlp_bias")
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size}
    mixer = SelfAttention(**shape, qkv_bias=bias, out_bias=bias)
    width = read.integer("moe_intermediate_size")
    shared = width * read.integer("n_shared_experts", default=2, least=0)
    moe = reading.experts(read, shared_width=shared)
    if mlp_bias:
        raise read.complain("mlp_bias", "false: experts have none")
    dense = DenseFFN(width=read.integer("intermediate_size"))
    sparse = reading.sparse_layers(read, layers)
    return {"blocks": reading.blocks([mixer] * layers, [moe if s else dense for s in sparse])}


def _chameleon(read, hidden, kind):
    """Norms with biases over all queries and all keys."""
    layers = reading.layers(read)
    read.used.update(("swin_norm", "vq_config", "vocabulary_map"))
    read.optional("model_parallel_size")
    heads, size = divided(read, hidden, "num_attention_heads")
    reading.only(read, {"head_dim": size})
    kv = read.optional("num_key_value_heads") or heads
    if heads % kv:
        raise read.complain("num_key_value_heads", f"a divisor of num_attention_heads {heads}")
    bias, mlp_bias = read.flag("attention_bias"), read.flag("mlp_bias")
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size, "qk_norm": "full"}
    mixer = SelfAttention(**shape, qkv_bias=bias, out_bias=bias)
    ffn = DenseFFN(width=read.integer("intermediate_size"), bias=mlp_bias)
    block = Block(mixer=mixer, ffn=ffn, scalars=(heads + kv) * size)
    return {"blocks": (block,) * layers, "apart": ("image tokenizer",)}


def _molmo2(read, hidden, kind):
    """Rows of the embedding for tokens of images, and norms of queries and keys."""
    layers = reading.layers(read)
    reading.only(read, {"tie_word_embeddings": False})  # what the class builds at all times
    heads, kv, size = reading.heads(read, hidden)
    named = read.raw("qk_norm_type")[1]
    norms = {None: "head", "qwen3": "head", "olmo": "full"}
    if not isinstance(named, str | None) or named not in norms:
        raise read.complain("qk_norm_type", "qwen3 or olmo")
    read.used.update(("rope_scaling_layers", "norm_after"))
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size}
    bias = read.flag("attention_bias", "qkv_bias")
    mixer = SelfAttention(**shape, qk_norm=norms[named], qkv_bias=bias)
    block = Block(mixer=mixer, ffn=DenseFFN(width=read.integer("intermediate_size")))
    rows = read.integer("additional_vocab_size", default=128, least=0)
    shape = {"part": "embedding", "n": rows, "k": hidden, "used": 0, "matmul": False}
    more = (Weight(name="further embedding", **shape),) if rows else ()
    return {"blocks": (block,) * layers, "closing": more}


VOXTRAL_RANK = 32  # of the scale that the delay of the speech makes, which no key says


def _voxtral_realtime(read, hidden, kind):
    """Attention in a window; the delay of the speech scales each layer, by two small matrices that
    see no token.
    """
    layers = reading.layers(read)
    mixers = reading.attention(read, hidden, layers, kind)
    ffn = DenseFFN(width=read.integer("intermediate_size"))
    scalars = 2 * VOXTRAL_RANK * hidden
    return {"blocks": reading.blocks(mixers, [ffn] * layers, scalars=scalars)}


def _mistral_large4(read, hidden, kind):
    """Latent attention whose queries are not compressed, with an indexer that normalizes what it
    makes its own from; every fourth layer has no positions.
    """
    layers = reading.layers(read)
    reading.only(read, {"head_dim": read.integer("qk_rope_head_dim"), "q_lora_rank": None})
    reading.pattern(read, "layer_types", layers, dict.fromkeys((INDEXED,)))
    if read.items("kv_source_layers", int, "layer numbers") not in (None, list(range(layers))):
        accepted = "absent, or each layer's own number: shared latents are not counted"
        raise read.complain("kv_source_layers", accepted)
    rope = reading.latent_attention(read)
    plain = replace(rope, nope_dim=rope.nope_dim + rope.rope_dim, rope_dim=0)
    moe = reading.experts(read, shared_width=_shared(read, "moe_intermediate_size"))
    dense = DenseFFN(width=read.integer("intermediate_size"))
    sparse = reading.sparse_layers(read, layers, first=1)
    found = []
    rotary, indexes = _rotary(read, layers), indexers(read, layers, kind)
    for rotates, index, s in zip(rotary, indexes, sparse, strict=True):
        mixer = replace(rope if rotates else plain, indexer=index)
        # A scale and a bias for each head; of an indexer also a norm of what it takes in.
        scalars = 2 * rope.num_heads
        scalars += 0 if index.shared else 2 * (hidden + index.num_heads)
        found.append(Block(mixer=mixer, ffn=moe if s else dense, scalars=scalars))
    closing = (vector("rotary scale", "attention", rope.rope_dim // 2),)
    return {"blocks": tuple(found), "closing": closing}


def _shared(read, width):
    """Width of all shared experts together."""
    return read.integer("n_shared_experts", default=1, least=0) * read.integer(width)


def _rotary(read, layers):
    """Which layers have positions: no_rope_layers, which holds 1 where there are, or all but every
    fourth.
    """
    flags = read.items("no_rope_layers", int, "zeros and ones")
    every = read.integer("no_rope_layer_interval", default=4)
    if flags is None:
        return [bool((i + 1) % every) for i in range(layers)]
    if len(flags) < layers or not set(flags) <= {0, 1}:
        raise read.complain("no_rope_layers", f"at least {layers} zeros and ones")
    return [flag == 1 for flag in flags[:layers]]


DOTS_SIZES = (
    "num_attention_heads",
    "num_key_value_heads",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "head_dim",
)


def _dots3_note(read, hidden, kind):
    """Latent attention with an indexer, and latent attention of other sizes in windows; a gate for
    each head and a norm of the rotary key.
    """
    layers = reading.layers(read)
    reading.only(read, {"mlp_bias": False, "use_sliding_window": True, "use_dsa": True})
    kinds = reading.pattern(read, "layer_types", layers, {k: k for k in (INDEXED, SLIDING, FULL)})
    if kinds is None:
        raise read.complain("layer_types", "given: which layers have a window")
    full = reading.latent_attention(read, head_gate=True)
    if full.q_rank is None:
        raise read.complain("q_lora_rank", "a whole number: queries are compressed")
    index = indexers(read, layers, kind)[0]
    mixers = {FULL: full, INDEXED: replace(full, indexer=index)}
    if SLIDING in kinds:
        near = _dots_near(read, full, [str(i) for i, k in enumerate(kinds) if k == SLIDING])
        window = read.integer("sliding_window", "sliding_window_size", default=512)
        mixers[SLIDING] = replace(near, window=window)
    read.used.update(("sliding_window", "sliding_window_size", "per_layer_config"))
    read.used.update(key for key in read.values if key.startswith("swa_"))
    keys = "shared_experts_intermediate_size", "moe_shared_expert_intermediate_size"
    wide = read.integer(*keys, default=1536)
    many = read.integer("n_shared_experts", default=1, least=0)
    moe = reading.experts(read, shared_width=many * wide, router_correction=True)
    dense = DenseFFN(width=read.integer("intermediate_size"))
    sparse = reading.sparse_layers(read, layers, first=1)
    pairs = zip((mixers[k] for k in kinds), sparse, strict=True)
    blocks = tuple(Block(mixer=m, ffn=moe if s else dense, scalars=m.rope_dim) for m, s in pairs)
    return {"blocks": blocks}


def _dots_near(read, full, near):
    """Latent attention of the layers with a window, from per_layer_config or from keys that begin
    with swa_; `near` are the numbers of those layers.
    """
    sizes = {
        "num_attention_heads": full.num_heads,
        "q_lora_rank": full.q_rank,
        "kv_lora_rank": full.kv_rank,
        "qk_nope_head_dim": full.nope_dim,
        "qk_rope_head_dim": full.rope_dim,
        "v_head_dim": full.v_dim,
    }
    if read.raw("per_layer_config")[1]:
        each = read.inside("per_layer_config")
        if sorted(key.lstrip("0") or "0" for key in each.values) != sorted(near):
            raise read.complain("per_layer_config", "one entry for each layer with a window")
        found = []
        for key in each.values:
            here = each.inside(key)
            found.append({name: here.integer(name, default=size) for name, size in sizes.items()})
            here.used.update(("num_key_value_heads", "head_dim"))
            here.finish("dots3_note_text")
        if any(entry != found[0] for entry in found):
            raise read.complain("per_layer_config", "the same in each layer with a window")
        sizes = found[0]
    else:
        default = dict(zip(sizes, (64, 1024, 1024, 192, None, 128), strict=True))
        whole = read.integer("swa_head_dim", default=256)
        nope = read.integer("swa_qk_nope_head_dim", default=192)
        default["qk_rope_head_dim"] = max(1, whole - nope)
        sizes = {key: read.integer(f"swa_{key}", default=size) for key, size in default.items()}
    names = ("num_heads", "q_rank", "kv_rank", "nope_dim", "rope_dim", "v_dim")
    return replace(full, **dict(zip(names, sizes.values(), strict=True)))


def _hrm_text(read, hidden, kind):
    """Two stacks of layers without weights in their norms: the low one runs L_cycles times, then
    the high one once, and all of this H_cycles times.
    """
    unquantized(read, "layers that run several times")
    low, high = read.integer("L_cycles", default=3), read.integer("H_cycles", default=2)
    if "num_layers_per_stack" not in read.values:
        accepted = "given: num_hidden_layers / (H_cycles * (L_cycles + 1))"
        raise read.complain("num_layers_per_stack", accepted)
    stack = read.integer("num_layers_per_stack", most=100)
    total = read.integer("num_hidden_layers", default=stack * high * (low + 1))
    if total != stack * high * (low + 1):
        accepted = f"{stack * high * (low + 1)}: num_layers_per_stack * H_cycles * (L_cycles + 1)"
        raise read.complain("num_hidden_layers", accepted)
    read.used.update(("L_bp_cycles", "embedding_scale", "prefix_lm"))
    heads, size = divided(read, hidden, "num_attention_heads")
    size = read.integer("head_dim", default=128)
    bias = read.flag("attention_bias")
    shape = {"num_heads": heads, "num_kv_heads": heads, "head_dim": size}
    mixer = SelfAttention(**shape, qkv_bias=bias, out_bias=bias, output_gate="element")
    ffn = DenseFFN(width=read.integer("intermediate_size"), bias=read.flag("mlp_bias"))
    block = Block(mixer=mixer, ffn=ffn, norms=0)
    again = replace(block, repeated=True)
    first = (block,) * stack + (again,) * stack * (low - 1) + (block,) * stack
    blocks = first + (again,) * (total - len(first))
    closing = (vector("initial state", "residual", hidden),)
    return {"blocks": blocks, "final_norm": False, "closing": closing}


def _dory(read, hidden, kind):
    """Layers without norms' weights and with scales, of which those in the middle run several
    times; a released config counts attention and feed-forward part of a layer as two.
    """
    unquantized(read, "layers that run several times")
    reading.only(read, {"recurrent_kv_cache_mode": "per_loop"})
    count = reading.layers(read)
    key = "layer_types"
    names = read.items(key, str, "names of layers")
    accepted = f"{count} entries out of {FULL}, {SLIDING} and, in every second place, mlp"
    if names is None or len(names) != count or not set(names) <= {FULL, SLIDING, "mlp"}:
        raise read.complain(key, accepted)
    parts = 2 if "mlp" in names else 1
    if parts == 2 and (count % 2 or set(names[1::2]) != {"mlp"} or "mlp" in names[::2]):
        raise read.complain(key, accepted)
    names = names[::parts]
    before, after = (_halved(read, f"n_{where}_layers", parts) for where in ("input", "output"))
    loops = read.integer("n_recurrent_loops", default=2)
    middle = len(names) - before - after
    if middle < 0 or _halved(read, "n_recurrent_layers", parts, middle) != middle:
        accepted = "such that it makes num_hidden_layers with those before and after"
        raise read.complain("n_recurrent_layers", accepted)
    heads, kv, size = reading.heads(read, hidden)
    reading.only(read, {"attention_bias": False})
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size, "output_gate": "element"}
    full = SelfAttention(**shape)
    known = {FULL: full}
    if SLIDING in names:
        known[SLIDING] = replace(full, window=read.integer("sliding_window", default=1024))
    read.used.add("sliding_window")
    width = read.integer("intermediate_size")
    ffn = DenseFFN(width=width, bias=read.flag("mlp_bias"))
    # Scales of queries with keys and of gates, of both ways up, and of both residuals.
    scalars = 2 * heads * size + 2 * width + 2 * hidden
    made = {"norms": 0, "scalars": scalars}
    once = reading.blocks([known[name] for name in names], [ffn] * len(names), **made)
    inside = once[before : before + middle]
    again = tuple(replace(block, repeated=True) for block in inside) * (loops - 1)
    blocks = once[: before + middle] + again + once[before + middle :]
    closing = (vector("head scale", "head", read.integer("vocab_size")),)
    return {"blocks": blocks, "final_norm": False, "closing": closing}


def _halved(read, key, parts, default=None):
    """A number of layers that counts so many parts of each."""
    value = read.integer(key, default=None if default is None else default * parts, least=0)
    if value % parts:
        raise read.complain(key, "even, since layer_types names attention and mlp")
    return value // parts


READERS = {
    "gpt_neo": _gpt_neo,
    "gpt_neox_japanese": _neox_japanese,
    "ctrl": _ctrl,
    "modernbert-decoder": _modernbert,
    "deepseek_ocr2_text": _deepseek_ocr2,
    "chameleon": _chameleon,
    "molmo2_text": _molmo2,
    "voxtral_realtime_text": _voxtral_realtime,
    "mistral_large4_text": _mistral_large4,
    "dots3_note_text": _dots3_note,
    "hrm_text": _hrm_text,
    "dory": _dory,
}
ALIASES = {
    "mistral_large4": "mistral_large4_text",
    "deepseek_ocr2": "deepseek_ocr2_text",
    "molmo2": "molmo2_text",
    "voxtral_realtime": "voxtral_realtime_text",
    **dict.fromkeys(("granite4_vision", "granite4_vision_text"), "granite"),
    **dict.fromkeys(("granite_docling", "granite_docling_text"), "granite"),
}
_TIED = {"tie_word_embeddings": True}
_DOCLING = {"num_key_value_heads": 4, **_TIED}
# What a missing key means in the class of a type.
DEFAULTS = {
    **dict.fromkeys(("gpt_neo", "gpt_neox_japanese", "ctrl", "modernbert-decoder"), _TIED),
    **dict.fromkeys(("granite_docling", "granite_docling_text"), _DOCLING),
    "molmo2_text": {"num_key_value_heads": 8, "head_dim": 128},
    "voxtral_realtime_text": {
        "num_key_value_heads": 8,
        "head_dim": 128,
        **_TIED,
    },
    "dots3_note_text": {"index_n_heads": 64, "q_lora_rank": 1024},
    "dory": {"num_key_value_heads": 4, "head_dim": 256},
}
GIVEN = {"sliding_window": ("voxtral_realtime", "voxtral_realtime_text")}
