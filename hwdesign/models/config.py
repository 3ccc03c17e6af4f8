"""A Hugging Face `config.json` as a `Model`, or an error that names the key, its value and what would be accepted.

A reader takes the keys it understands and marks them. What is left and looks as if it changed a count (an expert, head,
rank, layer, window, ... key) is refused: a number nobody read is a number silently guessed. No code of a model repository
is run; the file is parsed as JSON and nothing else.
"""

import json
import math
import re
from importlib import resources
from pathlib import Path

from hwdesign.models.model import Block, DenseFFN, LatentAttention, Mamba2, Model, MoE, SelfAttention

MAX_BYTES = 8_000_000  # a config is some kilobytes
NESTED = ("text_config", "language_config", "llm_config", "thinker_config")
# Words of keys that never change a count: positions, training, tokens, numerics, switches of an implementation.
HARMLESS = set(
    "rope rotary rotate initializer initial dropout drop token tokens id eps epsilon scale scaling scalar scored scoring loss aux "
    "coef torch dtype transformers cache logits chunk act activation theta time residual pretraining auto name architectures "
    "task position positions ctx context prob limit kernels implementation softcapping cap factor image vision audio gradient "
    "return output problem classifier reorder upcast source temperature alpha beta bos eos pad pct base range seed version".split()
)
HARMLESS_KEYS = {"n_group", "topk_group", "ep_size", "max_window_layers", "norm_topk_prob", "use_mamba_kernels"}
SHAPING = re.compile(
    "expert|moe|lora|rank|head|hidden|intermediate|layer|window|mamba|ssm|conv|block|pattern|mlp|ffn|^n_|^num_|dim|kv|vocab|"
    "embd|inner|state|shared|sparse|sliding|attention|attn|quant|bias|tie|group|expand|mult|step|nextn|mtp|norm|width|depth|"
    "size|router|gate|linear|qk|adapter|memory|index",
    re.I,
)
LIMITS = {"num_hidden_layers": 10_000, "vocab_size": 20_000_000}
LIMIT = 2_000_000  # of any other size or count


class Reader:
    """A config dict that remembers which keys were read; every complaint names key, value and what is accepted."""

    def __init__(self, values, where=""):
        self.values, self.where, self.used = values, where, {"model_type", "architectures"}

    def complain(self, key, accepted):
        """A `ValueError` about a key."""
        value = repr(self.values.get(key, "missing"))
        return ValueError(f"config key {self.where + key!r} must be {accepted}, got {value[:200]}")

    def raw(self, *keys):
        """(key, value) of the first alias that is present and not null; two aliases that disagree are refused."""
        self.used.update(keys)
        found = [(k, self.values[k]) for k in keys if self.values.get(k) is not None]
        if len({json.dumps(v, sort_keys=True, default=str) for _, v in found}) > 1:
            names = " and ".join(f"{self.where + k!r} = {str(v)[:60]}" for k, v in found)
            raise ValueError(f"config keys {names} contradict each other: give one of them, or the same value")
        return found[0] if found else (keys[0], None)

    def integer(self, *keys, default=None, least=1, most=None):
        """A whole number under any of its aliases; missing or null gives the default, or an error without one."""
        key, value = self.raw(*keys)
        if value is None:
            if default is None:
                raise self.complain(key, f"a whole number (also known as {', '.join(keys)})" if keys[1:] else "a whole number")
            return default
        most = most or LIMITS.get(keys[0], LIMIT)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.complain(key, f"a whole number from {least} to {most}")
        return value

    def optional(self, *keys):
        """A whole number, or None where the key is missing or null."""
        return self.integer(*keys) if self.raw(*keys)[1] is not None else None

    def flag(self, *keys, default=False):
        """True or false; missing or null gives the default."""
        key, value = self.raw(*keys)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.complain(key, "true or false")
        return value

    def items(self, key, kind, what):
        """A list whose entries are of a kind; missing or null gives None."""
        value = self.raw(key)[1]
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(v, kind) and not isinstance(v, bool) for v in value):
            raise self.complain(key, f"a list of {what}")
        return value

    def mapping(self, key):
        """An object; missing or null gives None."""
        value = self.raw(key)[1]
        if value is not None and not isinstance(value, dict):
            raise self.complain(key, "an object")
        return value

    def finish(self, kind):
        """Refuse what was not read and looks as if it changed a count; null and false switch nothing on."""
        left = [k for k in self.values if k not in self.used and self.values[k] not in (None, False, [], {})]
        for key in left:
            harmless = key in HARMLESS_KEYS or HARMLESS & set(re.split(r"[_\W]+", key.lower()))
            if SHAPING.search(key) and not harmless:
                raise self.complain(key, f"absent: the reader of {kind!r} does not know this key, and it may change the counts")


def load(source):
    """Model of a Hugging Face config.

    Parameters
    ----------
    source : dict, str or path
        The parsed config, the path of a JSON file, or the name of a config that ships with the package (`names()`).

    Returns
    -------
    Model
        Counts in [element], caches in [byte].

    Raises
    ------
    ValueError
        If the file is no config or a key is not understood, contradictory or out of range; one line that names it.
    FileNotFoundError
        If there is neither a file nor a shipped config of that name.

    Notes
    -----
    Source: the `configuration_*.py` and `modeling_*.py` of each architecture in transformers, or the paper of the model.

    Examples
    --------
    >>> load("llama-3.1-8b").parameters
    8030261248
    """
    if isinstance(source, dict):
        return _model(source, str(source.get("_name_or_path") or source.get("model_type") or "model"))
    if isinstance(source, str) and source in names():
        text = resources.files("hwdesign.models").joinpath("configs", f"{source}.json").read_text(encoding="utf-8")
        return _model(_parse(text, source), source)
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"source must be a config.json or one of {', '.join(names())}; there is no file {str(source)!r}")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path.name} must be at most {MAX_BYTES} bytes, as a config is; got {path.stat().st_size}")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} must be UTF-8 text, got byte 0x{error.object[error.start]:02x} at {error.start}") from None
    name = path.parent.name if path.stem == "config" and path.parent.name else path.stem
    return _model(_parse(text, path.name), name)


def names():
    """Names of the configs that ship with the package.

    Returns
    -------
    tuple of str
        Names (no unit), sorted; each config says in `_source` where it is from.

    Notes
    -----
    Source: the key `_source` of each file.

    Examples
    --------
    >>> len(names()), names()[0]
    (20, 'deepseek-r1')
    """
    folder = resources.files("hwdesign.models").joinpath("configs")
    return tuple(sorted(f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json")))


def _parse(text, name):
    def pairs(found):
        out = {}
        for key, value in found:
            if key in out and out[key] != value:
                raise ValueError(f"{name}: key {key!r} stands twice with different values")
            out[key] = value
        return out

    try:
        value = json.loads(text, object_pairs_hook=pairs)  # Infinity and NaN are read; no size may be one
    except json.JSONDecodeError as error:
        raise ValueError(f"{name} must be JSON, got an error at line {error.lineno}: {error.msg}") from None
    except RecursionError:
        raise ValueError(f"{name} must be a config, got JSON nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"{name} must hold a JSON object, got a {type(value).__name__}")
    return value


def _model(values, name):
    outer = {k: v for k, v in values.items() if k not in NESTED}
    where = ""
    for _ in range(3):  # thinker_config holds a text_config
        nest = [k for k in NESTED if isinstance(values.get(k), dict)]
        if len(nest) > 1:
            raise ValueError(f"config must nest one language model, got {' and '.join(nest)}")
        if not nest:
            break
        where, values = where + nest[0] + ".", values[nest[0]]
    odd = [k for k, v in values.items() if isinstance(v, dict) and "num_hidden_layers" in v and k not in NESTED]
    if odd and "num_hidden_layers" not in values and "n_layer" not in values:
        raise ValueError(f"config key {odd[0]!r} must be one of {', '.join(NESTED)} to hold the language model")
    read = Reader(values, where)
    kind = values.get("model_type") or outer.get("model_type")
    if not isinstance(kind, str) or kind not in READERS:
        raise ValueError(f"config key 'model_type' must be one of {', '.join(READERS)}, got {str(kind)[:80]!r}")
    tied = outer.get("tie_word_embeddings") if where and values.get("tie_word_embeddings") is None else None
    quantization, kept = _quantization(read if values.get("quantization_config") is not None else Reader(outer))
    read.used.add("quantization_config")
    common = {
        "name": name,
        "hidden_size": read.integer("hidden_size", "n_embd", "d_model"),
        "vocab_size": read.integer("vocab_size"),
        "tied_embeddings": read.flag("tie_word_embeddings", default=tied if isinstance(tied, bool) else kind in TIED),
        "quantization": quantization,
        "unquantized": kept,
    }
    specific = READERS[kind](read, common["hidden_size"], kind)
    read.used.update(("num_nextn_predict_layers", "max_position_embeddings"))  # extra prediction layers are left out
    read.finish(kind)
    return Model(**common, **specific)


def _quantization(read):
    config = read.mapping("quantization_config")
    if config is None:
        return None, ()
    quant = Reader(config, "quantization_config.")
    method = config.get("quant_method")
    inner = quant.mapping("quantization") or {}
    algo = config.get("quant_algo") or inner.get("quant_algo")
    kept = json.dumps(config.get("modules_to_not_convert") or config.get("ignore") or [])
    unquantized = tuple(part for part, sign in (("attention", "self_attn"),) if sign in kept)
    if method == "fp8":
        block = config.get("weight_block_size")
        if block not in (None, [128, 128]):
            raise quant.complain("weight_block_size", "[128, 128] or absent")
        return ("fp8_block" if block else "fp8"), unquantized
    if method == "mxfp4":
        return "mxfp4", unquantized
    if method == "modelopt" and algo in ("NVFP4", "FP8"):
        return algo.lower(), unquantized
    if method in ("awq", "gptq"):
        if config.get("bits") != 4 or config.get("group_size") != 128:
            raise quant.complain("bits" if config.get("bits") != 4 else "group_size", "4 bits in groups of 128")
        return "w4a16", unquantized
    accepted = "fp8, mxfp4, modelopt (quant_algo NVFP4 or FP8), awq or gptq (4 bits, groups of 128)"
    raise quant.complain("quant_algo" if method == "modelopt" else "quant_method", accepted)


def _heads(read, hidden):
    """(query heads, key-value heads, head size): null KV heads mean as many as query heads, a null head size H / heads."""
    heads = read.integer("num_attention_heads", "n_head")
    kv = read.integer("num_key_value_heads", "n_head_kv", default=heads)
    if read.flag("multi_query"):
        kv = 1
    size = read.optional("head_dim", "attention_head_dim")
    if size is None and hidden % heads:
        raise read.complain("head_dim", f"given, since hidden_size {hidden} is not a multiple of num_attention_heads {heads}")
    if heads % kv:
        raise read.complain("num_key_value_heads", f"a divisor of num_attention_heads {heads}")
    return heads, kv, size or hidden // heads


def _layers(read):
    return read.integer("num_hidden_layers", "n_layer", "num_layers")


def _windows(read, layers, kind):
    """Window of each layer [token] or None, from layer_types, a pattern (every n-th layer is full), or one window for all."""
    window = read.optional("sliding_window")
    read.used.add("use_sliding_window")
    types = read.items("layer_types", str, "layer names")
    period = read.optional("sliding_window_pattern", "_sliding_window_pattern") or PERIOD.get(kind)
    if types is not None:
        known = {"full_attention": None, "sliding_attention": window}
        if len(types) != layers or not set(types) <= set(known):
            raise read.complain("layer_types", f"{layers} entries out of {', '.join(known)}")
        if "sliding_attention" in types and window is None:
            raise read.complain("sliding_window", "given, since layer_types names sliding layers")
        return [known[t] for t in types]
    if period and (window is not None or kind not in PERIOD):
        if window is None:
            raise read.complain("sliding_window", "given, since there is a sliding_window_pattern")
        return [None if (i + 1) % period == 0 else window for i in range(layers)]
    if window is None or not read.flag("use_sliding_window", default=True):
        return [None] * layers
    first = read.integer("max_window_layers", default=0, least=0)  # Qwen: the layers before it see everything
    return [window if i >= first else None for i in range(layers)]


def _attention(read, hidden, layers, kind=None, **extra):
    heads, kv, size = _heads(read, hidden)
    windows = _windows(read, layers, kind)
    return [SelfAttention(num_heads=heads, num_kv_heads=kv, head_dim=size, window=w, **extra) for w in windows]


def _experts(read, width_keys=("moe_intermediate_size",), **extra):
    experts = read.integer("num_experts", "num_local_experts", "n_routed_experts")
    top_k = read.integer("num_experts_per_tok", "experts_per_token", "top_k_experts", most=experts)
    return MoE(num_experts=experts, top_k=top_k, width=read.integer(*width_keys), **extra)


def _llama(read, hidden, kind):
    layers, bias = _layers(read), read.flag("attention_bias", default=kind == "qwen2")
    out_bias = bias and kind != "qwen2"
    norm = {"qwen3": "head", "qwen3_moe": "head", "olmo2": "full", "gemma3_text": "head", "gemma3": "head"}.get(kind)
    mixers = _attention(read, hidden, layers, kind, qkv_bias=bias, out_bias=out_bias, qk_norm=norm)
    ffn = DenseFFN(width=read.integer("intermediate_size"), bias=read.flag("mlp_bias"))
    return {"blocks": tuple(Block(mixer=m, ffn=ffn, norms=4 if kind in ("gemma3", "gemma3_text") else 2) for m in mixers)}


def _sparse(read, hidden, kind):
    """Blocks of which some have experts: every n-th (decoder_sparse_step), none of mlp_only_layers."""
    layers, bias = _layers(read), read.flag("attention_bias", default=kind == "qwen2_moe")
    norm = "head" if kind == "qwen3_moe" else None
    mixers = _attention(read, hidden, layers, kind, qkv_bias=bias, out_bias=bias and kind != "qwen2_moe", qk_norm=norm)
    step = read.integer("decoder_sparse_step", "interleave_moe_layer_step", default=1)
    dense = set(read.items("mlp_only_layers", int, "layer numbers") or [])
    if not dense <= set(range(layers)):
        raise read.complain("mlp_only_layers", f"layer numbers from 0 to {layers - 1}")
    keys = ("intermediate_size",) if kind == "mixtral" else ("moe_intermediate_size",)
    shared = read.integer("shared_expert_intermediate_size", default=0, least=0)
    moe = _experts(read, keys, shared_width=shared, shared_gate=bool(shared))
    plain = moe if kind == "mixtral" else DenseFFN(width=read.integer("intermediate_size"))
    sparse = [(i + 1) % step == 0 and i not in dense for i in range(layers)]
    return {"blocks": tuple(Block(mixer=m, ffn=moe if s else plain) for m, s in zip(mixers, sparse, strict=True))}


def _gpt_oss(read, hidden, kind):
    bias = read.flag("attention_bias", default=True)
    mixers = _attention(read, hidden, _layers(read), kind, qkv_bias=bias, out_bias=bias, sinks=True)
    moe = _experts(read, ("intermediate_size",), bias=True, router_bias=True)
    return {"blocks": tuple(Block(mixer=m, ffn=moe) for m in mixers)}


def _gpt2(read, hidden, kind):
    mixers = _attention(read, hidden, _layers(read), qkv_bias=True, out_bias=True)
    ffn = DenseFFN(width=read.integer("n_inner", "intermediate_size", default=4 * hidden), gated=False, bias=True)
    positions = read.integer("n_positions", "max_position_embeddings", "n_ctx")
    return {"blocks": tuple(Block(mixer=m, ffn=ffn, norm_bias=True) for m in mixers), "positions": positions, "norm_bias": True}


def _gpt_neox(read, hidden, kind):
    bias = read.flag("attention_bias", default=True)
    mixers = _attention(read, hidden, _layers(read), qkv_bias=bias, out_bias=bias)
    ffn = DenseFFN(width=read.integer("intermediate_size"), gated=False, bias=True)
    return {"blocks": tuple(Block(mixer=m, ffn=ffn, norm_bias=True) for m in mixers), "norm_bias": True}


def _deepseek(read, hidden, kind):
    layers, heads = _layers(read), read.integer("num_attention_heads")
    read.used.update(("num_key_value_heads", "head_dim", "qk_head_dim"))  # follow from the ranks
    mixer = LatentAttention(
        num_heads=heads,
        q_rank=read.optional("q_lora_rank"),
        kv_rank=read.integer("kv_lora_rank"),
        nope_dim=read.integer("qk_nope_head_dim"),
        rope_dim=read.integer("qk_rope_head_dim"),
        v_dim=read.integer("v_head_dim"),
        bias=read.flag("attention_bias"),
    )
    dense = DenseFFN(width=read.integer("intermediate_size"), bias=read.flag("mlp_bias"))
    if read.raw("n_routed_experts", "num_experts", "num_local_experts")[1] is None:
        return {"blocks": (Block(mixer=mixer, ffn=dense),) * layers}
    shared = read.integer("n_shared_experts", "num_shared_experts", default=0, least=0)
    width = read.integer("moe_intermediate_size")
    method = read.raw("topk_method")[1]
    if method not in (None, "noaux_tc", "greedy", "group_limited_greedy"):
        raise read.complain("topk_method", "noaux_tc, greedy or group_limited_greedy")
    corrected = method == "noaux_tc" if method else kind == "deepseek_v3"
    moe = _experts(read, shared_width=shared * width, router_correction=corrected)
    sparse = _sparse_layers(read, layers)
    return {"blocks": tuple(Block(mixer=mixer, ffn=moe if s else dense) for s in sparse)}


def _sparse_layers(read, layers):
    """Which layers have experts: after first_k_dense_replace, every moe_layer_freq-th, or where that is a list of 0 and 1."""
    first = read.integer("first_k_dense_replace", default=0, least=0, most=layers)
    key, freq = read.raw("moe_layer_freq")
    if isinstance(freq, list):
        if len(freq) != layers or not set(map(str, freq)) <= {"0", "1"}:
            raise read.complain(key, f"a whole number or a list of {layers} zeros and ones")
        return [bool(f) and i >= first for i, f in enumerate(freq)]
    every = read.integer("moe_layer_freq", default=1)
    return [i >= first and i % every == 0 for i in range(layers)]


def _nemotron_h(read, hidden, kind):
    """Blocks by the letters of a pattern: M Mamba-2, * attention, - dense, E experts; one norm each."""
    pattern = read.raw("hybrid_override_pattern")[1]
    layers = _layers(read)
    if not isinstance(pattern, str) or not pattern or set(pattern) - set("M*-E") or len(pattern) != layers:
        raise read.complain("hybrid_override_pattern", f"{layers} letters out of M * - E")
    act = read.raw("mlp_hidden_act")[1] or "relu2"
    if act not in ("relu2", "silu"):
        raise read.complain("mlp_hidden_act", "relu2 (two matrices) or silu (gated)")
    gated, bias = act == "silu", read.flag("mlp_bias")
    read.used.update(("expand", "chunk_size", "use_bias", "use_conv_bias", "intermediate_size", "n_shared_experts"))
    made = {}
    if "*" in pattern:
        attention = read.flag("attention_bias")
        made["*"] = (_attention(read, hidden, 1, qkv_bias=attention, out_bias=attention)[0], None)
    if "M" in pattern:
        mamba = Mamba2(
            num_heads=read.integer("mamba_num_heads"),
            head_dim=read.integer("mamba_head_dim"),
            groups=read.integer("n_groups"),
            state=read.integer("ssm_state_size"),
            conv=read.integer("conv_kernel"),
            bias=read.flag("mamba_proj_bias"),
            conv_bias=read.flag("use_conv_bias", default=True),
        )
        made["M"] = (mamba, None)
    if "-" in pattern:
        made["-"] = (None, DenseFFN(width=read.integer("intermediate_size"), gated=gated, bias=bias))
    if "E" in pattern:
        shared = read.integer("n_shared_experts", default=0, least=0)
        shared *= read.integer("moe_shared_expert_intermediate_size", default=0, least=0)
        made["E"] = (None, _experts(read, gated=gated, bias=bias, shared_width=shared, router_correction=True))
    for keys in (("num_attention_heads", "num_key_value_heads", "head_dim", "attention_bias", "sliding_window"),
                 ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel", "mamba_proj_bias"),
                 ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "moe_shared_expert_intermediate_size")):  # fmt: skip
        read.used.update(keys)  # sizes of a kind that the pattern does not use
    return {"blocks": tuple(Block(mixer=made[c][0], ffn=made[c][1], norms=1) for c in pattern)}


def _nemotron_nas(read, hidden, kind):
    """Blocks of a searched Llama: attention or none and a width of its own in each layer."""
    layers, heads = _layers(read), read.integer("num_attention_heads")
    configs = read.items("block_configs", dict, "objects with attention and ffn")
    if configs is None or len(configs) != layers:
        raise read.complain("block_configs", f"a list of {layers} objects, one a layer")
    read.used.update(("num_key_value_heads", "intermediate_size", "head_dim"))
    size = read.optional("head_dim") or hidden // heads
    bias, mlp_bias = read.flag("attention_bias"), read.flag("mlp_bias")
    blocks = []
    for i, block in enumerate(configs):
        mixer = ffn = None
        here = Reader(block, f"block_configs[{i}].")
        attention = Reader(here.mapping("attention") or {}, f"block_configs[{i}].attention.")
        feed = Reader(here.mapping("ffn") or {}, f"block_configs[{i}].ffn.")
        for part in (attention, feed):
            if part.flag("replace_with_linear") or part.values.get("sparsify"):
                raise part.complain("replace_with_linear", "false: a linear or sparse stand-in is not counted yet")
        if not attention.flag("no_op"):
            group = attention.integer("n_heads_in_group", most=heads)
            if heads % group:
                raise attention.complain("n_heads_in_group", f"a divisor of num_attention_heads {heads}")
            window = attention.optional("window_length")
            shape = {"num_heads": heads, "num_kv_heads": heads // group, "head_dim": size, "window": window}
            mixer = SelfAttention(**shape, qkv_bias=bias, out_bias=bias)
        if not feed.flag("no_op"):
            mult = feed.values.get("ffn_mult")
            if isinstance(mult, bool) or not isinstance(mult, int | float) or not 0 < mult <= 100 or not math.isfinite(mult):
                raise feed.complain("ffn_mult", "a number above 0 and up to 100")
            ffn = DenseFFN(width=-(-int(2 * mult * hidden / 3) // 256) * 256, bias=mlp_bias)
        blocks.append(Block(mixer=mixer, ffn=ffn, norms=bool(mixer) + bool(ffn)))
    return {"blocks": tuple(blocks)}


READERS = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "phi3", "olmo2", "gemma3", "gemma3_text"), _llama),
    **dict.fromkeys(("mixtral", "qwen2_moe", "qwen3_moe"), _sparse),
    "gpt_oss": _gpt_oss,
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt2,
    "gpt_neox": _gpt_neox,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "nemotron_h": _nemotron_h,
    "nemotron-nas": _nemotron_nas,
}
PERIOD = {"gemma3": 6, "gemma3_text": 6, "gpt_oss": 2}  # every n-th layer is full where nothing else is said
TIED = ("gpt2", "gpt_bigcode", "gemma3", "gemma3_text")  # where a missing tie_word_embeddings means true
