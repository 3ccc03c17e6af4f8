"""The architectures: keys of a config to the blocks of a `Model`, one reader for each family of
`model_type`s.

A reader is called with a `hwdesign.models.config.Reader`, the hidden size and the model type. Where
the code of an architecture and its published configs disagree about what a missing key means, the
key must be given.
"""

import math

from hwdesign.models import (
    dense_readers,
    engine_readers,
    expert_readers,
    further_readers,
    gpt_readers,
    hybrid_readers,
    mixed_readers,
    newer_readers,
    own_kind_readers,
    rarer_readers,
    reading,
    served_readers,
    shared_cache_readers,
    sparse_readers,
    state_readers,
)
from hwdesign.models.blocks import Block, DenseFFN, SelfAttention

# Layers before the experts where no key says it.
FIRST = {"glm4_moe_lite": 1, "mistral4": 0}


def _mixtral(read, hidden, kind):
    moe = reading.experts(read, "intermediate_size")
    return {
        "blocks": tuple(
            Block(mixer=m, ffn=moe)
            for m in reading.attention(read, hidden, reading.layers(read), kind)
        )
    }


def _qwen_moe(read, hidden, kind):
    """Blocks of which some have experts: every n-th (decoder_sparse_step), none of
    mlp_only_layers.
    """
    if kind == "qwen3_moe":
        reading.only(read, {"use_qk_norm": True})
    layers, (bias, out_bias) = reading.layers(read), reading.biases(read, kind)
    norm = "head" if kind == "qwen3_moe" else None
    mixers = reading.attention(
        read, hidden, layers, kind, qkv_bias=bias, out_bias=out_bias, qk_norm=norm
    )
    step = read.integer("decoder_sparse_step", "interleave_moe_layer_step", default=1)
    dense = set(read.items("mlp_only_layers", int, "layer numbers") or [])
    if not dense <= set(range(layers)):
        raise read.complain("mlp_only_layers", f"layer numbers from 0 to {layers - 1}")
    shared = read.integer("shared_expert_intermediate_size", least=0) if kind == "qwen2_moe" else 0
    moe = reading.experts(read, shared_width=shared, shared_gate=bool(shared))
    plain = DenseFFN(width=read.integer("intermediate_size"))
    sparse = [(i + 1) % step == 0 and i not in dense for i in range(layers)]
    return {
        "blocks": tuple(
            Block(mixer=m, ffn=moe if s else plain) for m, s in zip(mixers, sparse, strict=True)
        )
    }


def _gpt_oss(read, hidden, kind):
    bias = read.flag("attention_bias", default=True)
    mixers = reading.attention(
        read, hidden, reading.layers(read), kind, qkv_bias=bias, out_bias=bias, sinks=True
    )
    moe = reading.experts(read, "intermediate_size", bias=True, router_bias=True)
    return {"blocks": tuple(Block(mixer=m, ffn=moe) for m in mixers)}


def _plain_attention(read, hidden):
    """Attention with a key and a value for each head, where use_mla is off."""
    bias = read.flag("attention_bias")
    heads, kv, size = reading.heads(read, hidden)
    unused = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    for key in unused:  # which the class has values for
        read.given(key, "0 or null, since use_mla is false")
    reading.only(read, dict.fromkeys(unused, 0) | {"head_dim": hidden // heads})
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size}
    return SelfAttention(**shape, qkv_bias=bias, out_bias=bias)


def _deepseek(read, hidden, kind):
    layers = reading.layers(read)
    reading.only(read, {"lm_head": True, "rm_head": False})
    if read.flag("use_mla", default=True):
        read.given("q_lora_rank", "a rank, or null where queries are not compressed")
        if read.raw("kv_lora_rank")[1] is None:
            raise read.complain("kv_lora_rank", "a whole number, unless use_mla is false")
        mixer = reading.latent_attention(read)
    else:
        mixer = _plain_attention(read, hidden)
    dense = DenseFFN(width=read.integer("intermediate_size"))
    if read.raw("n_routed_experts", "num_experts", "num_local_experts")[1] is None:
        sparse = (
            "moe_intermediate_size",
            "num_experts_per_tok",
            "n_shared_experts",
            "first_k_dense_replace",
        )
        if any(map(read.values.get, sparse)):
            raise read.complain(
                "n_routed_experts", "a whole number, since other keys describe experts"
            )
        return {"blocks": (Block(mixer=mixer, ffn=dense),) * layers}
    read.given("n_shared_experts", "how many, or null for none")
    shared = read.integer("n_shared_experts", default=0, least=0)
    method = read.raw("topk_method")[1]
    if kind == "mistral4" and method is None:
        method = "greedy"
    if method not in (None, "noaux_tc", "greedy", "group_limited_greedy"):
        raise read.complain("topk_method", "noaux_tc, greedy or group_limited_greedy")
    corrected = method == "noaux_tc" if method else kind in ("deepseek_v3", "glm4_moe_lite")
    moe = reading.experts(
        read,
        router_correction=corrected,
        shared_width=shared * read.integer("moe_intermediate_size"),
    )
    return {
        "blocks": tuple(
            Block(mixer=mixer, ffn=moe if s else dense)
            for s in reading.sparse_layers(read, layers, FIRST.get(kind))
        )
    }


def _nemotron_nas(read, hidden, kind):
    """Blocks of a searched Llama: attention or none and a width of its own in each layer."""
    layers, heads = reading.layers(read), read.integer("num_attention_heads")
    configs = read.items("block_configs", dict, "objects with attention and ffn")
    if configs is None or len(configs) != layers:
        raise read.complain("block_configs", f"a list of {layers} objects, one a layer")
    read.used.update(("num_key_value_heads", "intermediate_size"))  # each block has its own
    size, bias, mlp_bias = (
        reading.head_dim(read, hidden, heads),
        read.flag("attention_bias"),
        read.flag("mlp_bias"),
    )
    blocks = []
    for i in range(layers):
        here = read.inside("block_configs", i)
        attention, feed, mixer, ffn = here.inside("attention"), here.inside("ffn"), None, None
        if not attention.flag("no_op"):
            group = attention.integer("n_heads_in_group", most=heads)
            if heads % group:
                raise attention.complain(
                    "n_heads_in_group", f"a divisor of num_attention_heads {heads}"
                )
            shape = {"num_heads": heads, "num_kv_heads": heads // group, "head_dim": size}
            mixer = SelfAttention(
                **shape, window=attention.optional("window_length"), qkv_bias=bias, out_bias=bias
            )
        if not feed.flag("no_op"):
            mult = feed.raw("ffn_mult")[1]
            if (
                isinstance(mult, bool)
                or not isinstance(mult, int | float)
                or not 0.01 <= mult <= 100
            ):
                raise feed.complain("ffn_mult", "a number from 0.01 to 100")
            ffn = DenseFFN(width=256 * math.ceil(int(2 * mult * hidden / 3) / 256), bias=mlp_bias)
        for part in (attention, feed):
            part.used |= {"n_heads_in_group", "window_length", "ffn_mult"}  # of a part that is none
            part.finish(kind)  # a linear or sparse stand-in, sink tokens: not counted
        here.finish(kind)
        blocks.append(Block(mixer=mixer, ffn=ffn, norms=bool(mixer) + bool(ffn)))
    return {"blocks": tuple(blocks)}


FAMILIES = (
    dense_readers,
    gpt_readers,
    expert_readers,
    mixed_readers,
    sparse_readers,
    state_readers,
    hybrid_readers,
    further_readers,
    shared_cache_readers,
    newer_readers,
    engine_readers,
    served_readers,
    rarer_readers,
    own_kind_readers,
)  # modules with readers, aliases and defaults of their own
# Model types whose blocks are those of another one, key by key.
ALIASES = {
    **dict.fromkeys(("kimi_k2", "kimi_k25", "sarvam_mla", "youtu"), "deepseek_v3"),
    "mistral_large_3": "mistral4",
}
_OWN = {
    **dict.fromkeys(("qwen2_moe", "qwen3_moe"), _qwen_moe),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", *FIRST), _deepseek),
    "mixtral": _mixtral,
    "gpt_oss": _gpt_oss,
    "nemotron-nas": _nemotron_nas,
}
# What a missing key means: model type -> key -> value.
DEFAULTS = {
    "mixtral": {"num_key_value_heads": 8},
    "qwen2_moe": {"num_key_value_heads": 16},
    "qwen3_moe": {"num_key_value_heads": 4},
    "gpt_oss": {"sliding_window": 128, "head_dim": 64, "num_key_value_heads": 8},
    "glm4_moe_lite": {"q_lora_rank": 768, "n_shared_experts": 1},
    "sarvam_mla": {"q_lora_rank": None, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "youtu": {"q_lora_rank": 1536, "tie_word_embeddings": True},
    "mistral4": {"q_lora_rank": 1024, "n_shared_experts": 1},
}
# Keys that must be given -> the model types (of an alias, its own).
READERS, GIVEN = (
    {},
    {
        "first_k_dense_replace": ("mistral_large_3",),
        "tie_word_embeddings": ("kimi_k25",),
    },
)
for family in FAMILIES:
    READERS |= family.READERS
    ALIASES |= family.ALIASES
    DEFAULTS |= family.DEFAULTS
    for key, kinds in family.GIVEN.items():
        GIVEN[key] = (*GIVEN.get(key, ()), *kinds)
READERS |= _OWN
