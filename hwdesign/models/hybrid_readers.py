"""Readers of hybrids: Mamba or short convolutions in most layers, attention in the others."""

import math

from hwdesign.models import reading
from hwdesign.models.blocks import Block, DenseFFN, MoE, SelfAttention
from hwdesign.models.linear import Mamba1, ParallelMixers, ShortConvolution
from hwdesign.models.mamba import Mamba2

MAMBA_NAMES = {
    "mamba": False,
    "linear_attention": False,
    "attention": True,
    "full_attention": True,
}
LETTERS = {  # names of blocks that stand for the letters of a pattern
    "mamba": "M",
    "linear_attention": "M",
    "attention": "*",
    "full_attention": "*",
    "mlp": "-",
    "moe": "E",
}
UNUSED = {  # sizes of a kind of block that a pattern of letters may do without
    "*": (
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "attention_head_dim",
        "attention_bias",
        "sliding_window",
    ),
    "M": (
        "mamba_num_heads",
        "mamba_head_dim",
        "n_groups",
        "ssm_state_size",
        "conv_kernel",
        "use_bias",
        "mamba_proj_bias",
        "use_conv_bias",
    ),
    "E": (
        "n_routed_experts",
        "num_experts_per_tok",
        "n_shared_experts",
        "moe_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "moe_latent_size",
    ),
}


FALCON_SCALES = (
    "attention_in_multiplier",
    "attention_out_multiplier",
    "embedding_multiplier",
    "key_multiplier",
    "lm_head_multiplier",
    "mlp_expansion_factor",
    "mlp_multipliers",
    "ssm_in_multiplier",
    "ssm_multipliers",
    "ssm_out_multiplier",
)


def _nemotron_h(read, hidden, kind):
    """Blocks by the letters of a pattern: M Mamba-2, * attention, - dense, E experts; one norm
    each.
    """
    pattern = _letters(read)
    reading.only(read, {"tie_word_embeddings": False})
    reading.only(read, {"attention_bias": False})
    if read.raw("mlp_hidden_act")[1] not in (None, "relu2"):
        raise read.complain("mlp_hidden_act", "relu2, whose two matrices are counted")
    ffn = {"gated": False, "bias": read.flag("mlp_bias")}
    if ffn["bias"] and "E" in pattern:
        raise read.complain("mlp_bias", "false: implementations differ in whether experts have it")
    # the mixer's width is heads x head size
    read.used.update(("expand", "chunk_size", "intermediate_size", "time_step_rank"))
    made = {}
    if "*" in pattern:
        made["*"] = reading.attention(read, hidden, 1, kind)[0], None
    if "M" in pattern:
        made["M"] = _mamba(read), None
    if "-" in pattern:
        made["-"] = None, DenseFFN(width=read.integer("intermediate_size"), **ffn)
    if "E" in pattern:
        shared = read.integer("n_shared_experts", least=0, most=1)
        shared *= read.integer("moe_shared_expert_intermediate_size") if shared else 0
        latent = read.optional("moe_latent_size") or 0
        extra = {"shared_width": shared, "latent": latent, "router_correction": True}
        made["E"] = None, reading.experts(read, **ffn, **extra)
    for letter, keys in UNUSED.items():
        read.used.update(keys if letter not in pattern else ())
    blocks = {c: Block(mixer=made[c][0], ffn=made[c][1], norms=1) for c in made}
    found = {"blocks": tuple(blocks[c] for c in pattern)}
    if {"*", "E"} <= set(blocks) and _predicts(read) == "*E":
        found["prediction"] = reading.prediction_parameters(hidden, blocks["*"], blocks["E"])
    return found


def _predicts(read):
    """Letters of a prediction layer, None where they are not understood."""
    given = read.raw("mtp_hybrid_override_pattern")[1]
    names = read.raw("mtp_layers_block_type")[1]
    if given is None and isinstance(names, list):
        given = "".join(LETTERS.get(name, "?") if isinstance(name, str) else "?" for name in names)
    return given


def _letters(read):
    """The pattern of letters, spelt out or as a list of names; the names say how many layers there
    are where nothing else does.
    """
    spelt = [
        read.items(key, str, "names of blocks") for key in ("layers_block_type", "layer_types")
    ]
    count = read.optional("num_hidden_layers", "n_layer", "num_layers")
    given = read.raw("hybrid_override_pattern")[1]
    found = [] if given is None else [given]
    for key, names in zip(("layers_block_type", "layer_types"), spelt, strict=True):
        if names is not None:
            if not names or not set(names) <= set(LETTERS) or count not in (None, len(names)):
                many = f"{count or 'some'} names out of {', '.join(LETTERS)}"
                raise read.complain(key, many)
            found.append("".join(LETTERS[name] for name in names))
    if not found or spelt == [None, None]:
        count = count or reading.layers(read)
        pattern = given
        if (
            not isinstance(pattern, str)
            or not pattern
            or set(pattern) - set("M*-E")
            or len(pattern) != count
        ):
            like = f"{count} letters out of M * - E"
            raise read.complain("hybrid_override_pattern", like)
    if found[1:] and found[0] != found[1]:
        raise read.complain("layers_block_type", "as the other key that names the blocks says")
    return found[0]


def _mamba(read):
    bias = read.flag("use_bias")
    reading.only(read, {"mamba_proj_bias": bias})  # which no implementation reads
    heads = read.integer("mamba_num_heads")
    return Mamba2(
        num_heads=heads,
        head_dim=read.integer("mamba_head_dim"),
        groups=reading.divisor(read, heads, "mamba_num_heads", "n_groups"),
        state=read.integer("ssm_state_size"),
        conv=read.integer("conv_kernel"),
        bias=bias,
        conv_bias=read.flag("use_conv_bias", default=True),
    )


def _mamba_keys(read, hidden, inner=None, **extra):
    """Mamba-2 under the keys of Bamba, Granite and Falcon-H1."""
    read.used.update(("mamba_chunk_size", "mamba_norm_before_gate", "mamba_expand"))
    inner = inner or read.integer("mamba_expand", default=2) * hidden
    heads = read.integer("mamba_n_heads", default=128)
    size = read.raw("mamba_d_head")[1]
    if inner % heads:
        raise read.complain("mamba_n_heads", f"a divisor of the width {inner}")
    if size not in (None, "auto") and read.integer("mamba_d_head") * heads != inner:
        raise read.complain("mamba_d_head", f"{inner // heads}, since the width is {inner}")
    bias = read.flag("mamba_proj_bias")
    return Mamba2(
        num_heads=heads,
        head_dim=inner // heads,
        groups=reading.divisor(read, heads, "mamba_n_heads", "mamba_n_groups", default=1),
        state=read.integer("mamba_d_state", default=256),
        conv=read.integer("mamba_d_conv", default=4),
        bias=bias,
        conv_bias=read.flag("mamba_conv_bias", default=True),
        **extra,
    )


def _plain_attention(read, hidden, norm=None):
    heads, kv, size = reading.heads(read, hidden)
    bias = read.flag("attention_bias")
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size, "qk_norm": norm}
    return SelfAttention(**shape, qkv_bias=bias, out_bias=bias)


def _falcon_h1(read, hidden, kind):
    """Attention and Mamba-2 side by side in each layer."""
    layers = reading.layers(read)
    read.used.update(FALCON_SCALES)
    reading.only(read, {"mamba_use_mlp": True})
    reading.pattern(read, "layers_block_type", layers, {"hybrid": None})
    reading.pattern(read, "layer_types", layers, {"hybrid": None})
    width = read.raw("mamba_d_ssm")
    inner = read.optional("mamba_d_ssm")
    if width[1] is None and "mamba_d_ssm" not in read.values:
        inner = 1024
    norm = read.flag("mamba_rms_norm")
    out = read.flag("projectors_bias")
    mamba = _mamba_keys(read, hidden, inner, norm=norm, out_bias=out)
    mixer = ParallelMixers(first=_plain_attention(read, hidden), second=mamba)
    ffn = DenseFFN(width=read.integer("intermediate_size"), bias=read.flag("mlp_bias"))
    return {"blocks": (Block(mixer=mixer, ffn=ffn),) * layers}


def _bamba(read, hidden, kind):
    """Mamba-2, and attention in some layers."""
    layers = reading.layers(read)
    chosen = read.items("attn_layer_indices", int, "layer numbers")
    read.used.update(("attn_rotary_emb", "z_loss_coefficient"))
    full = reading.pattern(read, "layers_block_type", layers, MAMBA_NAMES)
    full = full or reading.pattern(read, "layer_types", layers, MAMBA_NAMES)
    if chosen is not None:
        if not set(chosen) <= set(range(layers)):
            raise read.complain("attn_layer_indices", f"layer numbers from 0 to {layers - 1}")
        said = [i in chosen for i in range(layers)]
        if full not in (None, said):
            raise read.complain("attn_layer_indices", "as layers_block_type says")
        full = said
    if full is None:
        read.given("attn_layer_indices", "which layers have attention, null for none")
        full = [False] * layers
    ffn = DenseFFN(width=read.integer("intermediate_size"), bias=read.flag("mlp_bias"))
    mamba = _mamba_keys(read, hidden)
    attention = _plain_attention(read, hidden)
    return {"blocks": tuple(Block(mixer=attention if f else mamba, ffn=ffn) for f in full)}


def _granite_hybrid(read, hidden, kind):
    """Mamba-2, and attention in some layers; experts beside a shared one, or that alone."""
    layers = reading.layers(read)
    read.used.update((*reading.MULTIPLIERS, "init_method", "normalization_function"))
    full = reading.pattern(read, "layer_types", layers, MAMBA_NAMES)
    again = reading.pattern(read, "layers_block_type", layers, MAMBA_NAMES)
    full = again if full is None else full
    if full is None:
        raise read.complain("layer_types", "given: which layers have attention")
    shared = read.integer("shared_intermediate_size", default=1024)
    if read.integer("num_local_experts", "num_experts", default=8, least=0):
        top_k = read.integer("num_experts_per_tok", default=2)
        count = read.integer("num_local_experts", "num_experts", default=8)
        if top_k > count:
            raise read.complain("num_experts_per_tok", f"at most {count}")
        width = read.integer("intermediate_size")
        ffn = MoE(num_experts=count, top_k=top_k, width=width, shared_width=shared)
    else:
        read.used.update(("intermediate_size", "num_experts_per_tok"))
        ffn = DenseFFN(width=shared)
    needed = {False: _mamba_keys, True: _plain_attention}
    made = {kind: needed[kind](read, hidden) for kind in (False, True)}
    return {"blocks": tuple(Block(mixer=made[f], ffn=ffn) for f in full)}


def _jamba(read, hidden, kind):
    """Mamba-1, attention every eighth layer, experts every second."""
    layers = reading.layers(read)
    reading.only(read, {"mamba_inner_layernorms": True})
    read.used.update(("use_mamba_kernels", "use_mambapy", "use_associative_scan"))

    def every(what, period, offset):
        period = read.integer(f"{what}_layer_period", default=period)
        key = f"{what}_layer_offset"
        offset = read.integer(key, default=offset, least=0, most=period - 1)
        if offset >= period:
            raise read.complain(key, f"a whole number from 0 to {period - 1}")
        return [i % period == offset for i in range(layers)]

    full, sparse = every("attn", 8, 4), every("expert", 2, 1)
    for key in ("layers_block_type", "layer_types"):
        if reading.pattern(read, key, layers, MAMBA_NAMES) not in (None, full):
            raise read.complain(key, "as attn_layer_period and attn_layer_offset say")
    rank = read.raw("mamba_dt_rank")[1]
    rank = -(-hidden // 16) if rank in (None, "auto") else read.integer("mamba_dt_rank")
    mamba = Mamba1(
        num_heads=read.integer("mamba_expand", default=2) * hidden,
        state=read.integer("mamba_d_state", default=16),
        conv=read.integer("mamba_d_conv", default=4),
        rank=rank,
        bias=read.flag("mamba_proj_bias"),
        conv_bias=read.flag("mamba_conv_bias", default=True),
    )
    heads, kv, size = reading.heads(read, hidden)
    attention = SelfAttention(num_heads=heads, num_kv_heads=kv, head_dim=size)
    dense = DenseFFN(width=read.integer("intermediate_size"))
    moe = dense
    if read.integer("num_experts") > 1:
        moe = reading.experts(read, "intermediate_size")
    read.used.add("num_experts_per_tok")
    return {
        "blocks": tuple(
            Block(mixer=attention if f else mamba, ffn=moe if s else dense)
            for f, s in zip(full, sparse, strict=True)
        )
    }


LFM_UNUSED = (
    "block_dim",
    "block_mlp_init_scale",
    "block_norm_eps",
    "block_out_init_scale",
    "block_use_swiglu",
    "block_use_xavier_init",
    "conv_dim",
    "conv_dim_out",
    "conv_use_xavier_init",
    "num_heads",
    "use_pos_enc",
)


def _lfm2(read, hidden, kind):
    """Gated short convolutions, and attention in some layers."""
    layers = reading.layers(read)
    read.used.update(LFM_UNUSED)
    full = reading.pattern(read, "layer_types", layers, {"conv": False, "full_attention": True})
    chosen = read.items("full_attn_idxs", int, "layer numbers")
    if chosen is not None:
        said = [i in chosen for i in range(layers)]
        if full not in (None, said):
            raise read.complain("full_attn_idxs", "as layer_types says")
        full = said
    if full is None:
        raise read.complain("layer_types", "given: which layers have attention")
    attention = _plain_attention(read, hidden, norm="head")
    conv = ShortConvolution(
        num_heads=hidden,
        conv=read.integer("conv_L_cache", default=3),
        bias=read.flag("conv_bias"),
    )
    if kind == "lfm2":
        feeds = [DenseFFN(width=_lfm_width(read))] * layers
    else:
        dense = DenseFFN(width=read.integer("intermediate_size"))
        moe = reading.experts(read, router_correction=read.flag("use_expert_bias", default=True))
        first = read.integer("num_dense_layers", default=2, least=0)
        feeds = [dense if i < first else moe for i in range(layers)]
    return {
        "blocks": tuple(
            Block(mixer=attention if f else conv, ffn=feed)
            for f, feed in zip(full, feeds, strict=True)
        )
    }


def _lfm_width(read):
    """Feed-forward width: two thirds of what is given, times a factor, rounded up."""
    width = read.integer("block_ff_dim", default=read.optional("intermediate_size"))
    adjusted = read.flag("block_auto_adjust_ff_dim", default=True)
    multiple = read.integer("block_multiple_of", default=256)
    factor = read.raw("block_ffn_dim_multiplier")[1]
    given = "block_ffn_dim_multiplier" in read.values
    if factor is not None and (
        isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= 100
    ):
        raise read.complain("block_ffn_dim_multiplier", "a number above 0, at most 100")
    if not adjusted:
        return width
    width = int(2 * width / 3)
    if factor is None and given:
        return width
    return multiple * math.ceil(int((1.0 if factor is None else factor) * width) / multiple)


READERS = {
    "nemotron_h": _nemotron_h,
    "falcon_h1": _falcon_h1,
    "bamba": _bamba,
    "granitemoehybrid": _granite_hybrid,
    "jamba": _jamba,
    **dict.fromkeys(("lfm2", "lfm2_moe"), _lfm2),
}
ALIASES, GIVEN = {}, {}
_LFM2 = {"num_key_value_heads": 8, "tie_word_embeddings": True}
DEFAULTS = {
    **dict.fromkeys(("lfm2", "lfm2_moe"), _LFM2),
    **dict.fromkeys(("falcon_h1", "bamba", "jamba"), {"num_key_value_heads": 8}),
    "nemotron_h": {"num_key_value_heads": 8, "head_dim": 128},
}
