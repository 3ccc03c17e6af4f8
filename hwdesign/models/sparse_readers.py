"""Readers of models whose attention picks the tokens that it reads: DeepSeek-V3.2, V4 and V4.1,
GLM-5 and MiniMax-M3.

Sources: the `configuration_*.py` and `modeling_*.py` of each model type in transformers 5.24; of
DeepSeek-V4.1, which has no class there, the modules of mlx-vlm 0.7.10.
"""

from dataclasses import replace

from hwdesign.models import reading
from hwdesign.models.blocks import Block, DenseFFN, SelfAttention
from hwdesign.models.indexer import Indexer
from hwdesign.models.residual import Engram, HyperConnections

INDEX_HEADS = {"deepseek_v32": 64}  # where index_n_heads is missing; 32 elsewhere
V4_LAYERS = {
    "sliding_attention": 0,
    "compressed_sparse_attention": 4,
    "heavily_compressed_attention": 128,
}
V4_NAMES = {rate: name for name, rate in V4_LAYERS.items()}


def indexers(read, layers, kind):
    """The indexer of each layer, as a list."""
    index = Indexer(
        num_heads=read.integer("index_n_heads", default=INDEX_HEADS.get(kind, 32)),
        head_dim=read.integer("index_head_dim", default=128),
        top_k=read.integer("index_topk", default=2048),
        pool=_pool(read) if kind.startswith("glm5") else 1,
    )
    if kind == "deepseek_v32":
        return [index] * layers
    return [replace(index, shared=shared) for shared in _shared_indexers(read, layers)]


def _pool(read):
    read.used.add("index_kpool_always_select_tail")
    reading.only(read, {"index_kpool_compress": True})
    return read.integer("index_kpool")  # 16 in the code, 4 in the model


def _shared_indexers(read, layers):
    """Which layers take the choice of an earlier one, as a list."""
    known = {"full": False, "shared": True}
    read.used.update(("index_skip_topk_offset", "index_share_for_mtp_iteration"))
    key, text = read.raw("index_topk_pattern")
    frequency = read.integer("index_topk_freq", default=1, least=0)
    types = reading.pattern(read, "indexer_types", layers, known)
    if isinstance(text, str) and len(text) == layers and not set(text) - set("FS"):
        text = ["shared" if letter == "S" else "full" for letter in text]
    if text is not None:
        if not isinstance(text, list) or len(text) != layers or not set(map(str, text)) <= {*known}:
            raise read.complain(key, f"{layers} letters F or S, or a list of full and shared")
        said = [known[name] for name in text]
        if types not in (None, said):
            raise read.complain(key, "absent, since indexer_types says otherwise")
        types = said
    if types is None and frequency > 1:
        raise read.complain("indexer_types", "given, since index_topk_freq is above 1")
    types = types or [False] * layers
    if types[0]:
        raise read.complain("indexer_types", "full in the first layer")
    return types


def _sparse_deepseek(read, hidden, kind):
    """Latent attention whose indexer picks the tokens; experts after some dense layers."""
    layers = reading.layers(read)
    known = dict.fromkeys(("indexed_attention", "deepseek_sparse_attention"))
    reading.pattern(read, "layer_types", layers, known)
    latent = reading.latent_attention(read)
    if latent.q_rank is None:
        raise read.complain("q_lora_rank", "a whole number, since the indexer takes it")
    mixers = [replace(latent, indexer=index) for index in indexers(read, layers, kind)]
    moe, dense = deepseek_experts(read), DenseFFN(width=read.integer("intermediate_size"))
    sparse = reading.sparse_layers(read, layers, first=3)
    return {
        "blocks": tuple(
            Block(mixer=m, ffn=moe if s else dense) for m, s in zip(mixers, sparse, strict=True)
        ),
        "prediction": reading.prediction_parameters(hidden, Block(mixer=mixers[0], ffn=moe)),
    }


def deepseek_experts(read, **extra):
    """Experts with a router correction and shared experts of the same width."""
    reading.only(read, {"topk_method": "noaux_tc"})
    shared = read.integer("n_shared_experts", "num_shared_experts", default=1, least=0)
    width = read.integer("moe_intermediate_size")
    return reading.experts(read, router_correction=True, shared_width=shared * width, **extra)


def _minimax_m3(read, hidden, kind):
    """Attention over blocks of keys that an indexer picks; a shared expert beside the others."""
    layers = reading.layers(read)
    reading.only(read, {"attention_output_gate": False})
    reading.only(read, {"use_qk_norm": True})
    reading.only(read, {"qk_norm_type": "per_head"})
    reading.only(read, {"use_routing_bias": True})
    read.used.update(("use_gemma_norm", "num_mtp_modules"))
    heads = read.integer("num_attention_heads")
    shape = {
        "num_heads": heads,
        "num_kv_heads": reading.divisor(read, heads, "num_attention_heads", "num_key_value_heads"),
        "head_dim": read.integer("head_dim", default=128),
        "qk_norm": "head",
    }
    picks, index = _block_index(read, layers)
    moe = reading.experts(
        read,
        "intermediate_size",
        router_correction=True,
        shared_width=_shared_width(read),
    )
    dense = DenseFFN(width=read.integer("dense_intermediate_size", default=12288))
    sparse = reading.sparse_layers(read, layers, first=0)
    full, picked = SelfAttention(**shape), SelfAttention(**shape, indexer=index)
    return {
        "blocks": tuple(
            Block(mixer=picked if p else full, ffn=moe if s else dense)
            for p, s in zip(picks, sparse, strict=True)
        )
    }


def _shared_width(read):
    if read.integer("n_shared_experts", default=1, least=0) != 1:
        raise read.complain("n_shared_experts", "1 or absent")
    read.integer("intermediate_size", "moe_intermediate_size")  # two names of one width
    return read.integer("shared_intermediate_size", default=3072)


def _block_index(read, layers):
    """(which layers pick blocks of keys, their indexer)."""
    known = {"full_attention": False, "minimax_m3_sparse": True}
    picks = reading.pattern(read, "layer_types", layers, known)
    names = ("index_n_heads", "index_head_dim", "index_block_size", "index_topk_blocks")
    old = ("sparse_num_index_heads", "sparse_index_dim", "sparse_block_size", "sparse_topk_blocks")
    sizes = dict(zip(names, (4, 128, 128, 16), strict=True))
    read.used.add("index_local_blocks")  # of the blocks that are picked anyway
    if read.raw("sparse_attention_config")[1] is not None:
        inner = read.inside("sparse_attention_config")
        reading.only(inner, {"use_sparse_attention": True})
        said = _switches(inner, "sparse_attention_freq", layers)
        if picks is not None and said is not None and picks != said:
            raise read.complain("layer_types", "as sparse_attention_freq says")
        picks = said if picks is None else picks
        without = _switches(inner, "sparse_disable_index_value", layers)
        if without and picks and not all(w or not p for w, p in zip(without, picks, strict=True)):
            raise inner.complain("sparse_disable_index_value", "1 in each layer that picks blocks")
        inner.used.update(("sparse_init_block", "sparse_local_block", "sparse_score_type"))
        for name, key in zip(names, old, strict=True):
            sizes[name] = inner.integer(key, default=sizes[name])
        inner.finish("minimax_m3")
    for name in names:
        sizes[name] = read.integer(name, default=sizes[name])
    if picks is None:
        raise read.complain("sparse_attention_config", "given: which layers pick blocks of keys")
    heads, size, block, blocks = sizes.values()
    index = Indexer(num_heads=heads, head_dim=size, top_k=block * blocks, weighted=False)
    return picks, index


def _switches(read, key, layers):
    """A list of zeros and ones, one a layer, as a list of truth values; None without it."""
    values = read.raw(key)[1]
    if values is None:
        return None
    if (
        not isinstance(values, list)
        or len(values) != layers
        or not set(map(repr, values)) <= {"0", "1"}
    ):
        raise read.complain(key, f"a list of {layers} zeros and ones")
    return [value == 1 for value in values]


def _deepseek_v4(read, hidden, kind):
    """Compressed attention and hyper-connections; the first layers route by a table of tokens."""
    from hwdesign.models.compressed import CompressedAttention

    layers = reading.layers(read)
    reading.only(read, {"num_key_value_heads": 1})
    reading.only(read, {"n_shared_experts": 1})
    reading.only(read, {"mlp_bias": False})
    shape = _entry_shape(read)
    index = {
        "index_heads": read.integer("index_n_heads", default=64),
        "index_dim": read.integer("index_head_dim", default=128),
        "top_k": read.integer("index_topk", default=512),
    }
    made = {
        "sliding_attention": lambda ratio: CompressedAttention(**shape),
        "compressed_sparse_attention": lambda r: CompressedAttention(**shape, **index, ratio=r),
        "heavily_compressed_attention": lambda r: CompressedAttention(**shape, ratio=r),
    }
    mixers = [made[name](ratio) for name, ratio in _ratios(read, layers)]
    streams = HyperConnections(streams=read.integer("hc_mult", default=4))
    routed = deepseek_experts(read)
    table = replace(routed, router_correction=False)
    closing = streams.head(hidden)
    ahead = Block(mixer=CompressedAttention(**shape), ffn=routed, residual=streams)
    return {
        "blocks": tuple(
            Block(mixer=m, ffn=table if t else routed, residual=streams)
            for m, t in zip(mixers, _tables(read, layers), strict=True)
        ),
        "closing": closing,
        "prediction": reading.prediction_parameters(hidden, ahead, closing=closing),
    }


def _entry_shape(read):
    """Sizes of attention with one entry for all heads."""
    read.used.add("qk_rope_head_dim")
    shape = {
        "num_heads": read.integer("num_attention_heads"),
        "head_dim": read.integer("head_dim", default=512),
        "q_rank": read.integer("q_lora_rank"),
        "window": read.integer("sliding_window", default=128),
        "out_groups": read.integer("o_groups"),
        "out_rank": read.integer("o_lora_rank"),
    }
    if shape["num_heads"] % shape["out_groups"]:
        raise read.complain("o_groups", f"a divisor of num_attention_heads {shape['num_heads']}")
    return shape


def _ratios(read, layers):
    """(kind, tokens that one entry stands for) of each layer, as a list."""
    names = {name: name for name in V4_LAYERS}
    types = reading.pattern(read, "layer_types", layers, names)
    rates = dict(V4_LAYERS)
    if read.raw("compress_rates")[1] is not None:
        inner = read.inside("compress_rates")
        for name in list(rates)[1:]:
            rates[name] = inner.integer(name, default=rates[name])
        inner.finish("deepseek_v4")
    ratios = read.items("compress_ratios", int, "whole numbers")
    if ratios is not None:  # one more for each prediction layer
        least = read.integer("num_nextn_predict_layers", default=0, least=0)
        if not layers <= len(ratios) <= layers + least or not set(ratios) <= set(V4_NAMES):
            raise read.complain("compress_ratios", f"{layers} or {layers + least} of 0, 4, 128")
        said = [V4_NAMES[ratio] for ratio in ratios[:layers]]
        if types not in (None, said):
            raise read.complain("compress_ratios", "absent, since layer_types says otherwise")
        types = said
    if types is None:
        raise read.complain("compress_ratios", "given: how each layer compresses its cache")
    return [(name, rates[name]) for name in types]


def _tables(read, layers):
    """Which layers route by a table of tokens, as a list."""
    types = reading.pattern(read, "mlp_layer_types", layers, {"hash_moe": True, "moe": False})
    if types is not None and read.raw("num_hash_layers")[1] is None:
        return types
    first = read.integer("num_hash_layers", default=3, least=0)
    said = [i < first for i in range(layers)]
    if types not in (None, said):
        raise read.complain("num_hash_layers", "absent, since mlp_layer_types says otherwise")
    return said


def _numbers(read, key, most):
    """Different layer numbers under a key, as a set."""
    found = read.items(key, int, "layer numbers")
    if found is None or not set(found) <= set(range(most)) or len(set(found)) != len(found):
        raise read.complain(key, f"different layer numbers from 0 to {most - 1}")
    return set(found)


DRAFT_KEYS = (  # of the draft and of how entries are chosen
    "candidate_source_layer_id",
    "candidate_topk_blocks",
    "candidate_block_size",
    "engram_pad_token_id",
    "engram_compressed_vocab_size",
    "engram_vocab_size",
)


def _deepseek_v41(read, hidden, kind):
    """Compressed attention whose entries few layers keep and few choose from, hyper-connections,
    and tables of n-grams in some layers.
    """
    layers = reading.layers(read)
    reading.only(read, {"num_key_value_heads": 1, "n_shared_experts": 1, "attention_bias": False})
    reading.only(read, {"tie_word_embeddings": False})
    read.used.update((*DRAFT_KEYS, *(key for key in read.values if key.startswith("dspark_"))))
    moe = deepseek_experts(read, image_correction=True)
    streams = read.integer("hc_mult", default=4)
    plain, tables = HyperConnections(streams=streams), _engrams(read, layers, streams)
    blocks = tuple(
        Block(mixer=mixer, ffn=moe, residual=tables.get(i, plain))
        for i, mixer in enumerate(_shared_entries(read, layers))
    )
    more = len(read.values["compress_ratios"]) - layers
    named = read.values.get("num_nextn_predict_layers")
    apart = (f"{more} prediction layer{'s' if more > 1 else ''}",) if more and not named else ()
    return {"blocks": blocks, "apart": apart}


def _shared_entries(read, layers):
    """Attention of each layer, as a list: which compress, keep entries and choose among them."""
    from hwdesign.models.compressed import SharedEntryAttention

    ratios = read.items("compress_ratios", int, "whole numbers")
    if ratios is None or len(ratios) < layers or not all(0 <= r <= 2_000_000 for r in ratios):
        accepted = f"{layers} whole numbers, one a layer, before those of prediction layers"
        raise read.complain("compress_ratios", accepted)
    keeps, picks = (
        _numbers(read, key, layers) for key in ("kv_source_layer_ids", "index_source_layer_ids")
    )
    shape = _entry_shape(read)
    index = {
        "index_heads": read.integer("index_n_heads"),
        "index_dim": read.integer("index_head_dim"),
        "top_k": read.integer("index_topk"),
    }
    found = []
    for i, ratio in enumerate(ratios[:layers]):
        if (i in keeps or i in picks) and not ratio:
            raise read.complain("compress_ratios", f"above 0 in layer {i}, which has entries")
        extra = {**index, "ratio": ratio, "keeps": i in keeps, "picks": i in picks}
        found.append(SharedEntryAttention(**shape, **(extra if ratio else {})))
    return [{mixer: mixer for mixer in found}[mixer] for mixer in found]


def _engrams(read, layers, streams):
    """Connections of the layers with tables of n-grams, by the number of the layer."""
    chosen = read.items("engram_layer_ids", int, "layer numbers") or []
    if not chosen:
        return {}
    rows = read.items("engram_num_embeddings", int, "numbers of rows")
    _numbers(read, "engram_layer_ids", layers)
    if rows is None or len(rows) != len(chosen) or not all(1 <= r <= 10**11 for r in rows):
        raise read.complain("engram_num_embeddings", f"{len(chosen)} numbers of rows")
    shape = {
        "row_size": read.integer("engram_head_dim"),
        "columns": (read.integer("engram_max_ngram_size", least=2) - 1)
        * read.integer("engram_n_heads"),
    }
    return {i: Engram(streams=streams, rows=r, **shape) for i, r in zip(chosen, rows, strict=True)}


ALIASES = {"deepseek_ref": "deepseek_v4", "minimax_m3_vl_text": "minimax_m3"}
ALIASES |= {"minimax_m3_vl": "minimax_m3", "deepseek_v41_text": "deepseek_v41"}
DEFAULTS, GIVEN = {}, {}
READERS = {
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), _sparse_deepseek),
    "minimax_m3": _minimax_m3,
    "deepseek_v4": _deepseek_v4,
    "deepseek_v41": _deepseek_v41,
}
