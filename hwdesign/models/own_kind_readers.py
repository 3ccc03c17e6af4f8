"""Readers of models with a kind of part of their own: recurrences, shared blocks, routed or
convolved attention, gated norms, experts for images.

Sources: the `configuration_*.py` and `modeling_*.py` of each model type in transformers 5.24.

Blocks of few models are imported where a reader makes them: `show` starts faster without.
"""

from dataclasses import replace

from hwdesign.models import reading
from hwdesign.models.blocks import Block, DenseFFN, SelfAttention
from hwdesign.models.indexer import Indexer
from hwdesign.models.linear import Mamba1
from hwdesign.models.mamba import Mamba2
from hwdesign.models.parts import vector
from hwdesign.models.rarer_readers import FULL, INDEXED, divided, unquantized
from hwdesign.models.residual import GatedNorms, LowRankConnections, SharedInput
from hwdesign.models.sparse_readers import deepseek_experts, indexers
from hwdesign.models.state_readers import delta_net


def _recurrent_gemma(read, hidden, kind):
    """Recurrences, and attention in windows in the layers that a pattern names."""
    from hwdesign.models.rarer_blocks import RecurrentUnit

    layers = reading.layers(read)
    read.used.update(("final_w_init_variance_scale", "w_init_variance_scale"))
    heads, size = divided(read, hidden, "num_attention_heads")
    reading.only(read, {"head_dim": size})
    kv = read.optional("num_key_value_heads") or heads
    if heads % kv:
        raise read.complain("num_key_value_heads", f"a divisor of num_attention_heads {heads}")
    inner = read.integer("lru_width", default=hidden)
    if inner % heads:
        raise read.complain("lru_width", f"a multiple of num_attention_heads {heads}")
    conv = read.integer("conv1d_width", default=4)
    window = read.integer("attention_window_size", "sliding_window", default=2048)
    known = {
        "recurrent": RecurrentUnit(num_heads=heads, head_dim=inner // heads, conv=conv),
        "attention": SelfAttention(
            num_heads=heads,
            num_kv_heads=kv,
            head_dim=size,
            window=window,
            qkv_bias=read.flag("attention_bias"),
            out_bias=True,
        ),
    }
    names = read.items("block_types", str, "names of blocks")
    names = ["recurrent", "recurrent", "attention"] if names is None else names
    if not names or not set(names) <= set(known) or 100 * len(names) < layers:
        raise read.complain("block_types", f"names out of {', '.join(known)}")
    mixers = [known[names[i % len(names)]] for i in range(layers)]
    width = read.integer("intermediate_size", least=2) // 2
    return {"blocks": reading.blocks(mixers, [DenseFFN(width=width, bias=True)] * layers)}


def _jetmoe(read, hidden, kind):
    """Experts of queries and outputs, and experts; a bias after each of the two."""
    from hwdesign.models.rarer_blocks import RoutedAttention

    layers, kv = reading.layers(read), read.integer("num_key_value_heads", default=16)
    size = read.integer("kv_channels", "head_dim", default=128)
    moe = reading.experts(read, "intermediate_size")
    heads = kv * moe.top_k
    reading.only(read, {"num_attention_heads": heads})
    mixer = RoutedAttention(
        num_heads=heads,
        num_kv_heads=kv,
        head_dim=size,
        num_experts=moe.num_experts,
        top_k=moe.top_k,
    )
    return {"blocks": (Block(mixer=mixer, ffn=moe, scalars=2 * hidden),) * layers}


def _zaya(read, hidden, kind):
    """Attention over convolved queries and keys; a router of several layers, which may pick
    nothing, and takes in what that of the layer before made; scales and biases of both residuals.
    """
    from hwdesign.models.rarer_blocks import ConvolvedAttention, DeepRouterMoE

    layers = reading.layers(read)
    reading.only(read, {"num_experts_per_tok": 1})
    heads, kv, size = reading.heads(read, hidden)
    if kv * size % 2:
        raise read.complain("head_dim", "such that its product with key-value heads is even")
    bias = read.flag("attention_bias")
    full = ConvolvedAttention(
        num_heads=heads,
        num_kv_heads=kv,
        head_dim=size,
        qkv_bias=bias,
        out_bias=bias,
        conv=read.integer("cca_time0", default=2),
        head_conv=read.integer("cca_time1", default=2),
    )
    window = read.optional("sliding_window")
    names = read.items("layer_types", str, "names of layers") or ["hybrid"] * layers
    if len(names) != layers or not set(names) <= {"hybrid", "hybrid_sliding"}:
        raise read.complain("layer_types", f"{layers} entries out of hybrid, hybrid_sliding")
    if "hybrid_sliding" in names and window is None:
        raise read.complain("sliding_window", "given, since layer_types names sliding layers")
    mixers = {"hybrid": full, "hybrid_sliding": replace(full, window=window)}
    width = read.integer("router_hidden_size", default=256)
    moe = DeepRouterMoE(
        num_experts=read.integer("num_experts"),
        top_k=1,
        width=read.integer("moe_intermediate_size"),
        router_width=width,
        router_correction=True,
        zero_experts=1,
    )
    blocks = [
        Block(mixer=mixers[name], ffn=moe, scalars=8 * hidden + (width if i else 0))
        for i, name in enumerate(names)
    ]
    closing = (vector("input scale", "norm", hidden), vector("input bias", "norm", hidden))
    headed = read.flag("lm_head_bias")
    return {"blocks": tuple(blocks), "closing": closing, "head_bias": headed}


def _axk2(read, hidden, kind):
    """Latent attention with an indexer and a gate made beside its queries; gated norms."""
    from hwdesign.models.rarer_blocks import PairedLatentAttention

    layers = reading.layers(read)
    reading.pattern(read, "layer_types", layers, dict.fromkeys((INDEXED,)))
    latent = reading.latent_attention(read)
    if latent.q_rank is None:
        raise read.complain("q_lora_rank", "a whole number: queries are compressed")
    mixer = PairedLatentAttention(**vars(latent) | {"indexer": indexers(read, layers, kind)[0]})
    rank = read.integer("gated_norm_rank", default=16)
    moe, dense = deepseek_experts(read), DenseFFN(width=read.integer("intermediate_size"))
    sparse = Block(mixer=mixer, ffn=moe, residual=GatedNorms(rank=rank))
    plain = Block(mixer=mixer, ffn=dense, residual=GatedNorms(rank=rank, gates=1))
    which = reading.sparse_layers(read, layers, first=1)
    return {"blocks": tuple(sparse if s else plain for s in which)}


def _ernie_vl(read, hidden, kind):
    """Experts for tokens of text and, of another width, for those of images; shared experts of the
    first width.
    """
    from hwdesign.models.rarer_blocks import ImageMoE

    layers = reading.layers(read)
    heads, kv, size = reading.heads(read, hidden)
    reading.only(read, {"use_bias": False})
    read.used.add("moe_norm_min")
    mixer = SelfAttention(num_heads=heads, num_kv_heads=kv, head_dim=size)
    widths = read.items("moe_intermediate_size", int, "two widths, for text and images")
    accepted = "a list of two widths, for text and images"
    if widths is None or len(widths) != 2 or not all(1 <= w <= reading.LIMIT for w in widths):
        raise read.complain("moe_intermediate_size", accepted)
    count = read.integer("moe_num_experts", "num_experts")
    moe = ImageMoE(
        num_experts=count,
        top_k=read.integer("moe_k", "num_experts_per_tok", most=count),
        width=widths[0],
        image_width=widths[1],
        shared_width=widths[0] * read.integer("moe_num_shared_experts", default=2, least=0),
        router_correction=True,
    )
    dense = DenseFFN(width=read.integer("intermediate_size"))
    sparse = reading.sparse_layers(read, layers, first=1)
    return {"blocks": reading.blocks([mixer] * layers, [moe if s else dense for s in sparse])}


HYBRID = {
    "linear_attention": False,
    "mamba": False,
    "m": False,
    "hybrid": True,
    "g": True,
}


def _zamba(read, hidden, kind):
    """Mamba, and before some of its layers one shared block of attention over the hidden vector and
    the embedding; Zamba2 has Mamba-2, one or several shared blocks in turn, and adapters.
    """
    unquantized(read, "a shared block")
    reading.only(read, {"tie_word_embeddings": True})  # else each layer has a block of its own
    layers = reading.layers(read)
    shared = reading.pattern(read, "layers_block_type", layers, HYBRID)
    if shared is None:
        shared = reading.pattern(read, "layer_types", layers, HYBRID)
    if shared is None:
        raise read.complain("layers_block_type", "given: where the shared block runs")
    mixer, inputs, blocks = _ZAMBAS[kind](read, hidden)
    reading.only(read, {"hybrid_layer_ids": [i for i, s in enumerate(shared) if s]})
    plain = Block(mixer=mixer, ffn=None, norms=1)
    after = Block(mixer=mixer, ffn=None, norms=1, residual=inputs)
    found, times = [], 0
    for s in shared:
        if s:
            block = blocks[times % len(blocks)]
            found.append(block if times < len(blocks) else replace(block, repeated=True))
            times += 1
        found.append(after if s else plain)
    return {"blocks": tuple(found)}


def _shared_block(read, hidden, width, bias=False):
    """A block of attention over two vectors; its first norm is twice as wide as the second."""
    from hwdesign.models.rarer_blocks import TwoInputAttention

    heads = read.integer("num_attention_heads")
    kv = read.integer("num_key_value_heads", default=heads)
    if heads % kv:
        raise read.complain("num_key_value_heads", f"a divisor of num_attention_heads {heads}")
    reading.only(read, {"attention_hidden_size": 2 * hidden})
    size = read.integer("attention_head_dim", "head_dim", default=2 * hidden // heads)
    mixer = TwoInputAttention(num_heads=heads, num_kv_heads=kv, head_dim=size)
    return Block(mixer=mixer, ffn=DenseFFN(width=width, bias=bias), norms=3)


def _zamba1(read, hidden):
    inner = read.integer("mamba_expand", default=2) * hidden
    reading.divisor(read, inner, "the width", "n_mamba_heads", default=2)
    read.integer("attn_layer_period", default=6)  # layers_block_type says the same
    read.integer("attn_layer_offset", default=4, least=0)
    read.used.add("use_mamba_kernels")
    read.used.update(("use_associative_scan", "num_logits_to_keep", "hidden_mamba_act"))
    rank = read.raw("mamba_dt_rank")[1]
    rank = -(-hidden // 16) if rank in (None, "auto") else read.integer("mamba_dt_rank")
    state = read.integer("mamba_d_state", default=16)
    mixer = Mamba1(
        num_heads=inner,
        state=state,
        conv=read.integer("mamba_d_conv", default=4),
        rank=rank,
        bias=read.flag("mamba_proj_bias"),
        conv_bias=read.flag("mamba_conv_bias", default=True),
        norm=False,
    )
    block = _shared_block(read, hidden, read.integer("intermediate_size"))
    return mixer, SharedInput(), (block,)


def _zamba2(read, hidden):
    inner = read.integer("mamba_expand", default=2) * hidden
    heads = reading.divisor(read, inner, "the width", "n_mamba_heads", default=8)
    bias = read.flag("add_bias_linear")
    reading.only(read, {"mamba_headdim": inner // heads})
    read.used.update(("use_mem_eff_path", "use_mem_rope", "use_long_context", "chunk_size"))
    read.used.add("num_logits_to_keep")
    for key in ("kv_channels", "num_query_groups"):
        read.optional(key)
    mixer = Mamba2(
        num_heads=heads,
        head_dim=inner // heads,
        groups=reading.divisor(read, heads, "n_mamba_heads", "mamba_ngroups", default=1),
        state=read.integer("mamba_d_state", default=64),
        conv=read.integer("mamba_d_conv", default=4),
        bias=bias,
    )
    reading.only(read, {"use_conv_bias": True})  # which transformers does not read
    width = read.integer("intermediate_size", default=4 * hidden)
    adapters = 3 * read.flag("use_shared_attention_adapter")
    rank = read.integer("adapter_rank", default=128)
    inputs = SharedInput(rank=rank, width=2 * width, attention_adapters=adapters)
    block = _shared_block(read, hidden, width, bias)
    return mixer, inputs, (block,) * read.integer("num_mem_blocks", default=1, most=100)


_ZAMBAS = {"zamba": _zamba1, "zamba2": _zamba2}


NGRAMS = (  # of the layers with tables of n-grams
    "heads_per_ngram",
    "make_ngram_vocab_size_divisible_by",
    "ngram_size",
    "ngram_vocab_size_base",
    "ple_conv_kernel_size",
    "ple_embed_dim",
    "split_ngram_parts",
)


def _qwen4(read, hidden, kind):
    """Gated delta nets, and attention to tokens that an indexer picks by averages of keys;
    hyper-connections of a low rank instead of norms.
    """
    layers = reading.layers(read)
    if read.raw("ple_layer_ids")[1]:
        raise read.complain("ple_layer_ids", "empty: tables of n-grams are not counted here")
    for key in NGRAMS:
        read.integer(key, default=1, most=10**9)
    read.used.update(("number_of_conv_states", "output_gate_type"))
    heads, kv, size = reading.heads(read, hidden)
    bias = read.flag("attention_bias")
    reading.only(read, {"indexer_kv_heads": 1})
    ratio = read.integer("indexer_compress_ratio")
    budget = read.integer("indexer_budget")
    if budget % ratio:
        raise read.complain("indexer_budget", f"a multiple of indexer_compress_ratio {ratio}")
    index = Indexer(
        num_heads=read.integer("indexer_n_heads"),
        head_dim=read.integer("indexer_head_dim"),
        top_k=budget,
        weighted=False,
        averaged=ratio,
    )
    attention = SelfAttention(
        num_heads=heads,
        num_kv_heads=kv,
        head_dim=size,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm="head",
        output_gate="element",
        indexer=index,
    )
    known = {"linear_attention": delta_net(read), INDEXED: attention, FULL: attention}
    mixers = reading.pattern(read, "layer_types", layers, known)
    every = read.integer("full_attention_interval", default=4)
    if mixers is None:
        names = [INDEXED if (i + 1) % every == 0 else "linear_attention" for i in range(layers)]
        mixers = [known[name] for name in names]
    shared = read.integer("shared_expert_intermediate_size", default=512)
    moe = reading.experts(read, shared_width=shared, shared_gate=True)
    streams = LowRankConnections(
        streams=read.integer("hc_count", default=4, least=2),
        rank=read.integer("hc_lowrank", default=320),
    )
    made = {"norms": 0, "residual": streams}
    blocks = reading.blocks(mixers, [moe] * layers, **made)
    return {"blocks": blocks, "final_norm": False, "closing": streams.head(hidden)}


INKLING = {"hybrid": False, "hybrid_sliding": True}


def _inkling(read, hidden, kind):
    """Attention with learned biases by distance, in windows and in full, and short convolutions
    behind each part; a router that weighs the shared experts, too.
    """
    from hwdesign.models.rarer_blocks import WeighedMoE

    layers = reading.layers(read)
    reading.only(read, {"shared_expert_sink": True})
    read.used.update(("number_of_conv_states", "logits_mup_width_multiplier", "route_scale"))
    read.used.update(("log_scaling_alpha", "log_scaling_n_floor", "mtp_local_layer_ids"))
    read.used.update(("chain_hidden_post_norm", "mtp_hidden_states_first", "rms_norm_eps_moe_gate"))
    mixers = {near: _inkling_mixer(read, hidden, near) for near in (False, True)}
    near = reading.pattern(read, "layer_types", layers, INKLING)
    listed = read.items("local_layer_ids", int, "layer numbers")
    if near is None:
        near = [(i + 1) % 6 > 0 if listed is None else i in listed for i in range(layers)]
    width = read.integer("intermediate_size")
    inner, wide = read.optional("moe_intermediate_size"), read.optional("dense_intermediate_size")
    if wide:  # then the other key is the width of an expert
        inner, width = width, wide
    many = read.integer("n_shared_experts", default=2)
    count = read.integer("n_routed_experts", "num_experts", "num_local_experts")
    moe = WeighedMoE(
        num_experts=count,
        top_k=read.integer("num_experts_per_tok", most=count),
        width=inner or 3072,
        shared_width=many * (inner or 3072),
        shared_experts=many,
        router_correction=True,  # which has no number for shared experts
    )
    first = read.integer("dense_mlp_idx", default=0, least=0)
    sparse = reading.pattern(read, "mlp_layer_types", layers, {"dense": False, "sparse": True})
    sparse = [i >= first for i in range(layers)] if sparse is None else sparse
    dense = DenseFFN(width=width)
    # One number scales a dense part.
    blocks = [
        Block(mixer=mixers[n], ffn=moe) if s else Block(mixer=mixers[n], ffn=dense, scalars=1)
        for n, s in zip(near, sparse, strict=True)
    ]
    read.optional("unpadded_vocab_size")  # the head has the other rows, too
    return {"blocks": tuple(blocks), "embedding_norm": True}


def _inkling_mixer(read, hidden, near):
    """Attention of the layers with a window or of the others."""
    from hwdesign.models.rarer_blocks import RelativeAttention

    start = "swa_" if near else ""
    heads = read.integer(f"{start}num_attention_heads", default=64)
    kv = read.integer(f"{start}num_key_value_heads", default=16 if near else 8)
    if heads % kv:
        raise read.complain(f"{start}num_key_value_heads", f"a divisor of {heads} heads")
    window = read.integer("sliding_window_size", "sliding_window", default=512)
    extent = read.integer("rel_extent", default=1024)
    return RelativeAttention(
        num_heads=heads,
        num_kv_heads=kv,
        head_dim=read.integer(f"{start}head_dim", default=128),
        window=window if near else None,
        qk_norm="head",
        conv=read.integer("conv_kernel_size", "sconv_kernel_size", default=4),
        relative=read.integer("d_rel", default=16),
        extent=window if near else extent,
        out_channels=hidden,
    )


READERS = {
    "inkling_text": _inkling,
    "recurrent_gemma": _recurrent_gemma,
    "jetmoe": _jetmoe,
    "zaya": _zaya,
    "axk2": _axk2,
    "ernie4_5_vl_moe_text": _ernie_vl,
    **dict.fromkeys(_ZAMBAS, _zamba),
    "qwen4_exp_text": _qwen4,
}
ALIASES = {"ernie4_5_vl_moe": "ernie4_5_vl_moe_text", "qwen4_exp": "qwen4_exp_text"}
_TIED = {"tie_word_embeddings": True}
# What a missing key means in the class of a type.
DEFAULTS = {
    **dict.fromkeys(("recurrent_gemma", "jetmoe", "zamba2"), _TIED),
    "zamba": {"num_key_value_heads": 16, **_TIED},
    "ernie4_5_vl_moe_text": {"num_key_value_heads": 4, **_TIED},
    "zaya": {"num_key_value_heads": 2, "head_dim": 128, **_TIED},
    "qwen4_exp_text": {"num_key_value_heads": 2, "head_dim": 256},
    "axk2": {"index_n_heads": 16, "q_lora_rank": 384},
}
GIVEN = {}
