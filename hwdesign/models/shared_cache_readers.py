"""Readers of models in which some layers keep no cache of their own, and of those with inputs of
each layer's own: Gemma-3n, Gemma-4 and Llama-3.2-Vision.

Sources: the `configuration_*.py` and `modeling_*.py` of each model type in transformers 5.24.
"""

from dataclasses import fields, replace

from hwdesign.models import reading
from hwdesign.models.blocks import Block, DenseFFN, SelfAttention
from hwdesign.models.parts import Weight
from hwdesign.models.residual import AlternatingUpdates, PerLayerInputs

FULL, SLIDING = "full_attention", "sliding_attention"
IMAGE_LAYERS = [3, 8, 13, 18, 23, 28, 33, 38]  # where no key says which layers see an image


def _kinds(read, layers, every):
    """Kind of each layer from layer_types; without it each `every`-th is full."""
    known = {FULL: FULL, SLIDING: SLIDING}
    kinds = reading.pattern(read, "layer_types", layers, known)
    return kinds or [SLIDING if (i + 1) % every else FULL for i in range(layers)]


def _sharing(read, kinds, mixers):
    """(the mixer of each layer, how many read the cache of an earlier one): the last
    num_kv_shared_layers do.
    """
    layers = len(kinds)
    shared = read.integer("num_kv_shared_layers", default=0, least=0, most=layers - 1)
    first = layers - shared
    if shared and set(kinds) != set(kinds[:first]):
        accepted = "such that a layer of each kind before those that share keeps its cache"
        raise read.complain("num_kv_shared_layers", accepted)
    copies = {kind: _without_cache(mixer) for kind, mixer in mixers.items()}
    return [mixers[kind] for kind in kinds[:first]] + [copies[k] for k in kinds[first:]], first


def _without_cache(mixer):
    from hwdesign.models.shared_cache import SharedCacheAttention

    return SharedCacheAttention(
        **{field.name: getattr(mixer, field.name) for field in fields(SelfAttention)}
    )


def _unused(mixers, kinds, first, hidden):
    """What checkpoints may hold of the layers that share: keys and values that nothing reads."""
    count = 0
    for kind in kinds[first:]:
        mixer = mixers[kind]
        whole, part = (
            sum(w.elements for w in m.weights(hidden)) for m in (mixer, _without_cache(mixer))
        )
        count += whole - part
    if not count:
        return ()
    many = f"{len(kinds) - first} layers that read the cache of others"
    return (f"keys and values of {many} ({count:,} parameters, if the checkpoint has them)",)


def _inputs(read, hidden, layers):
    """(inputs of each layer's own, the weights outside the blocks that make them)."""
    width = read.integer("hidden_size_per_layer_input", least=0)
    rows = read.integer("vocab_size_per_layer_input")
    if not width:
        return None, ()
    inputs = PerLayerInputs(width=width)
    return inputs, inputs.tables(hidden, layers, rows)


def _gemma4(read, hidden, kind):
    """Windows and full attention with heads of their own; where there are experts, a dense part
    beside them; in the small models inputs of each layer's own, and layers that share a cache.
    """
    layers = reading.layers(read)
    if read.raw("use_bidirectional_attention")[1] not in (None, False, "vision"):
        raise read.complain("use_bidirectional_attention", "vision or absent")
    kinds = _kinds(read, layers, 6)
    kinds[-1] = FULL
    mixers = _gemma4_mixers(read, hidden, kinds)
    inputs, closing = _inputs(read, hidden, layers)
    each, first = _sharing(read, kinds, mixers)
    width = read.integer("intermediate_size")
    wide = width * (2 if read.flag("use_double_wide_mlp") else 1)
    feeds, norms = {w: DenseFFN(width=w) for w in (width, wide)}, 4
    if read.flag("enable_moe_block"):
        norms = 7
        for w in feeds:
            feeds[w] = reading.experts(read, shared_width=w, router_scale=True)
    read.used.update((*reading.EXPERTS, *reading.TOP_K, "moe_intermediate_size"))
    ffns = [feeds[width]] * first + [feeds[wide]] * (layers - first)
    return {
        "blocks": reading.blocks(each, ffns, norms=norms, scalars=1, residual=inputs),
        "closing": closing,
        "apart": _unused(mixers, kinds, first, hidden),
    }


def _gemma4_mixers(read, hidden, kinds):
    """Attention in a window and full attention by kind."""
    heads, kv, size = reading.heads(read, hidden)
    same, bias = read.flag("attention_k_eq_v"), read.flag("attention_bias")
    wide = read.integer("global_head_dim")
    many = read.optional("num_global_key_value_heads")
    many = many if same and many else kv
    if read.raw("per_layer_config")[1] is not None:
        wide, many = _overrides(read, kinds, size, kv)
    if heads % many:
        raise read.complain("num_global_key_value_heads", f"a divisor of {heads} heads")
    shared = {"num_heads": heads, "qkv_bias": bias, "out_bias": bias, "qk_norm": "head"}
    full = {"num_kv_heads": many, "head_dim": wide, "value_weight": not same}
    near = {"num_kv_heads": kv, "head_dim": size, "window": read.integer("sliding_window")}
    return {FULL: SelfAttention(**full, **shared), SLIDING: SelfAttention(**near, **shared)}


def _overrides(read, kinds, size, kv):
    """(head size, key-value heads) of full attention as transformers 5 saves them: an entry for
    each such layer, where they are not those of the others.
    """
    full = [str(i) for i, kind in enumerate(kinds) if kind == FULL]
    each = read.inside("per_layer_config")
    if sorted(key.lstrip("0") or "0" for key in each.values) not in ([], sorted(full)):
        raise read.complain("per_layer_config", "one entry for each layer with full attention")
    found = set()
    for key in each.values:
        here = each.inside(key)
        sizes = here.integer("head_dim", default=size)
        found.add((sizes, here.integer("num_key_value_heads", default=kv)))
        here.finish("gemma4")
    if len(found) > 1:
        raise read.complain("per_layer_config", "the same in each layer with full attention")
    return found.pop() if found else (size, kv)


def _gemma3n(read, hidden, kind):
    """Alternating updates, inputs of each layer's own, layers that share a cache, and a width for
    each feed-forward part.
    """
    layers = reading.layers(read)
    read.used.update(("activation_sparsity_pattern", "altup_active_idx", "altup_coef_clip"))
    read.used.update(("altup_correct_scale", "altup_lr_multiplier"))
    kinds, bias = _kinds(read, layers, 5), read.flag("attention_bias")
    heads, kv, size = reading.heads(read, hidden)
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size, "qk_norm": "head"}
    full = SelfAttention(**shape, qkv_bias=bias, out_bias=bias)
    mixers = {FULL: full, SLIDING: replace(full, window=read.integer("sliding_window"))}
    each, first = _sharing(read, kinds, mixers)
    inputs, closing = _inputs(read, hidden, layers)
    if inputs is None:
        raise read.complain("hidden_size_per_layer_input", "a whole number from 1")
    updates = AlternatingUpdates(
        streams=read.integer("altup_num_inputs"), rank=read.integer("laurel_rank"), inputs=inputs
    )
    ffns = [DenseFFN(width=w) for w in _widths(read, layers)]
    ffns = [{f: f for f in ffns}[f] for f in ffns]
    return {
        "blocks": reading.blocks(each, ffns, norms=4, residual=updates),
        "closing": (*closing, *updates.head(hidden)),
        "apart": _unused(mixers, kinds, first, hidden),
    }


def _widths(read, layers):
    """Feed-forward width of each layer [element], from one number or one a layer."""
    if not isinstance(read.raw("intermediate_size")[1], list):
        return [read.integer("intermediate_size")] * layers
    widths = read.items("intermediate_size", int, "widths")
    if len(widths) != layers or not all(1 <= width <= 2_000_000 for width in widths):
        raise read.complain("intermediate_size", f"a whole number, or {layers} of them")
    return widths


def _mllama(read, hidden, kind):
    """Self-attention, and in some layers attention to an image; eight rows more in the embedding
    than in the head.
    """
    from hwdesign.models.shared_cache import CrossAttention

    layers = reading.layers(read)
    reading.only(read, {"tie_word_embeddings": False})
    chosen = read.items("cross_attention_layers", int, "layer numbers")
    chosen = IMAGE_LAYERS if chosen is None else chosen
    if not set(chosen) <= set(range(layers)) or len(set(chosen)) != len(chosen):
        raise read.complain("cross_attention_layers", f"layer numbers from 0 to {layers - 1}")
    heads, kv, size = reading.heads(read, hidden)
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size}
    ffn = DenseFFN(width=read.integer("intermediate_size"))
    plain = Block(mixer=SelfAttention(**shape), ffn=ffn)
    cross = CrossAttention(**shape, qk_norm="head", tokens=_image_tokens(read))
    cross = Block(mixer=cross, ffn=ffn, scalars=2)
    more = Weight(name="embedding of images", part="embedding", n=8, k=hidden, matmul=False)
    return {
        "blocks": tuple(cross if i in chosen else plain for i in range(layers)),
        "closing": (more,),
    }


def _image_tokens(read):
    """Tokens of one image of the most tiles, by the vision_config beside the text; 0 without
    one.
    """
    if read.outer is None or not isinstance(read.outer.values.get("vision_config"), dict):
        return 0
    vision = read.outer.inside("vision_config")
    side = vision.integer("image_size", default=448) // vision.integer("patch_size", default=14)
    return vision.integer("max_num_tiles", default=4) * (side**2 + 1)


READERS = {
    **dict.fromkeys(("gemma4", "gemma4_text"), _gemma4),
    "gemma3n": _gemma3n,
    "mllama": _mllama,
}
ALIASES = {"gemma3n_text": "gemma3n", "mllama_text_model": "mllama"}
# What a missing key means in the class of a type.
_GEMMA4 = {
    "vocab_size": 262144,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "global_head_dim": 512,
    "sliding_window": 512,
    "hidden_size_per_layer_input": 256,
    "vocab_size_per_layer_input": 262144,
    "tie_word_embeddings": True,
}
DEFAULTS = {
    **dict.fromkeys(("gemma4", "gemma4_text"), _GEMMA4),
    "gemma3n": {
        "vocab_size": 262400,
        "hidden_size": 2048,
        "intermediate_size": 16384,
        "num_hidden_layers": 35,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "sliding_window": 512,
        "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262144,
        "altup_num_inputs": 4,
        "num_kv_shared_layers": 15,
        "laurel_rank": 64,
        "tie_word_embeddings": True,
    },
    "mllama": {"num_key_value_heads": 8},
}
GIVEN = {}
