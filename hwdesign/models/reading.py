"""What readers of architectures share: keys to heads, windows, attention and experts."""

from hwdesign.models.blocks import Block, MoE, SelfAttention
from hwdesign.models.latent import LatentAttention

GEMMA = ("gemma3", "gemma3_text")
PERIOD = {  # every n-th layer is full where nothing else is said
    **dict.fromkeys(("gemma2", "vaultgemma"), 2),
    **dict.fromkeys(GEMMA, 6),
    "gpt_oss": 2,
    "cohere2": 4,
    "olmo3": 4,
    **dict.fromkeys(("exaone4", "exaone_moe"), 4),
}
# No window unless use_sliding_window is true.
# No window before layer max_window_layers.
STARTING = ("qwen2", "qwen3", "dots1")
SWITCHED = ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "smollm3")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
TOP_K = (
    "num_experts_per_tok",
    "experts_per_token",
    "top_k_experts",
    "num_experts_per_token",
    "moe_k",
    "moe_topk",
    "moe_top_k",
)
# Most layers and rows of the vocabulary, of any other size or count, and of a context [token].
LIMITS = {"num_hidden_layers": 10_000, "vocab_size": 20_000_000}
LIMIT = 2_000_000
LONGEST = 10**9
# Keys under which a config of several parts holds its language model.
BLOCKS_KEY = "hwdesign_blocks"  # what marks a file of blocks
NESTED = ("text_config", "language_config", "llm_config", "thinker_config")
MULTIPLIERS = (
    "embedding_multiplier",
    "residual_multiplier",
    "attention_multiplier",
    "logits_scaling",
)


def refusal(text, *keys):
    """A `ValueError` about a config that says which keys stand in the way."""
    error = ValueError(text)
    error.keys = keys
    return error


def said(read, bias):
    """Whether there is a bias: itself, or the keys that say it and what holds without them."""
    return bias if isinstance(bias, bool) else read.flag(*bias[:-1], default=bias[-1])


def only(read, values):
    """Refuse keys with another value than the one that is counted; missing or null is that one."""
    for key, value in values.items():
        given = read.raw(key)[1]
        if given is not None and (type(given) is not type(value) or given != value):
            shown = str(value).lower() if isinstance(value, bool) else value
            raise read.complain(key, f"{shown} or absent: nothing else is counted")


def layers(read):
    """How many layers there are."""
    return read.integer("num_hidden_layers", "n_layer", "num_layers", "n_layers")


def heads(read, hidden, multi_query=False):
    """(query heads, key-value heads, head size): null KV heads mean as many as query heads, a null
    head size H / heads.
    """
    heads = read.integer("num_attention_heads", "n_head", "n_heads")
    kv = read.optional(
        "num_key_value_heads",
        "n_head_kv",
        "num_kv_heads",
        "num_query_groups",
        "num_attention_groups",
    )
    if read.flag("multi_query", default=multi_query):
        if kv not in (None, 1):
            raise read.complain("num_key_value_heads", "1 or absent, since multi_query is on")
        kv = 1
    elif multi_query and kv not in (None, heads):
        raise read.complain("num_key_value_heads", f"{heads} or absent, without multi_query")
    kv = kv or heads
    if heads % kv:
        raise read.complain("num_key_value_heads", f"a divisor of num_attention_heads {heads}")
    return heads, kv, head_dim(read, hidden, heads)


def head_dim(read, hidden, heads):
    """Head size [element]: a key, or H / heads."""
    size = read.optional("head_dim", "attention_head_dim")
    if size is None and hidden % heads:
        raise read.complain(
            "head_dim",
            f"given, since hidden_size {hidden} is not a multiple of num_attention_heads {heads}",
        )
    return size or hidden // heads


def windows(read, layers, kind, period=None):
    """Window of each layer [token] or None, from layer_types, a pattern (every n-th layer is full),
    or one window for all.
    """
    switched = read.flag("use_sliding_window", default=kind not in SWITCHED)
    window = read.integer("sliding_window", "sliding_window_size", default=0, least=int(switched))
    window = window if window and switched else None
    types = read.items("layer_types", str, "layer names")
    period = period or _period(read, kind, window)
    first = read.integer(
        "max_window_layers", default=28, least=0
    )  # Qwen: the layers before it see everything
    if types is not None:
        known = {"full_attention": None, "sliding_attention": window}
        if len(types) != layers or not set(types) <= set(known):
            raise read.complain("layer_types", f"{layers} entries out of {', '.join(known)}")
        if "sliding_attention" in types and window is None:
            raise read.complain("sliding_window", "given, since layer_types names sliding layers")
        full = [t == "full_attention" for t in types]
        if period and kind != "afmoe" and full != [(i + 1) % period == 0 for i in range(layers)]:
            raise read.complain(
                "sliding_window_pattern", "absent, since layer_types says otherwise"
            )
        return [known[t] for t in types]
    period = period or (PERIOD.get(kind) if window or not kind.startswith("exaone") else None)
    if period and window is None:
        raise read.complain(
            "sliding_window", f"a whole number, since only each layer {period} has full attention"
        )
    if period:
        return [None if (i + 1) % period == 0 else window for i in range(layers)]
    if window and kind in ("qwen2_moe", "smollm3"):
        raise read.complain("layer_types", "given, since use_sliding_window is on")
    return [window if i >= first or kind not in STARTING else None for i in range(layers)]


def _period(read, kind, window):
    """How many layers after one with full attention the next one comes, where a key says it."""
    keys = "sliding_window_pattern", "_sliding_window_pattern"
    if read.values.get("layer_types") is not None:  # what made them, kept by the class of Gemma-3
        read.used.add(keys[1])
        keys = keys[:1]
    key, value = read.raw(*keys)
    if not kind.startswith("exaone"):
        return read.optional(*keys)
    if window is None:
        return None
    if isinstance(value, str):  # L for a layer with a window, G for a full one
        if not value or value != "L" * (len(value) - 1) + "G":
            raise read.complain(key, "a whole number, or letters L before one G")
        return len(value)
    return read.optional(*keys)


def attention(read, hidden, layers, kind, *, period=None, **extra):
    """Attention of each layer, with its window, as a list."""
    query, kv, size = heads(read, hidden)
    found = windows(read, layers, kind, period)
    shape = {"num_heads": query, "num_kv_heads": kv, "head_dim": size, **extra}
    made = {window: SelfAttention(window=window, **shape) for window in dict.fromkeys(found)}
    return [made[window] for window in found]


def blocks(mixers, ffns, **extra):
    """Blocks of mixers and feed-forward parts as a tuple; each different pair is made once."""
    pairs = list(zip(mixers, ffns, strict=True))
    made = {}
    for mixer, ffn in pairs:
        if (id(mixer), id(ffn)) not in made:
            made[id(mixer), id(ffn)] = Block(mixer=mixer, ffn=ffn, **extra)
    return tuple(made[id(mixer), id(ffn)] for mixer, ffn in pairs)


def divisor(read, whole, what, *keys, default=None):
    """A whole number under some keys that divides another one; `what` says in words which."""
    value = read.integer(*keys, default=default)
    if whole % value:
        raise read.complain(keys[0], f"a divisor of {what} {whole}")
    return value


def experts(read, width_key="moe_intermediate_size", **extra):
    """A mixture of experts under the usual keys; `extra` are further fields."""
    count = read.integer(*EXPERTS)
    top_k = read.integer(*TOP_K, most=count + extra.get("zero_experts", 0))
    return MoE(num_experts=count, top_k=top_k, width=read.integer(width_key), **extra)


def biases(read, kind):
    """(bias of q, k and v, bias of the output) of a mixture of experts of Qwen."""
    if kind == "qwen2_moe":
        return read.flag("qkv_bias", "attention_bias", default=True), False
    bias = read.flag("attention_bias")
    return bias, bias


def sparse_layers(read, layers, first=None):
    """Which layers have experts: those that mlp_layer_types calls sparse; else after
    first_k_dense_replace, every moe_layer_freq-th, or where that is a list of 0 and 1.

    `first` is the class's first_k_dense_replace; None where the key must be given.
    """
    types = read.items("mlp_layer_types", str, "layer names")
    key, freq = read.raw("moe_layer_freq")
    if types is None and first is None and not isinstance(freq, list):
        read.given("first_k_dense_replace", "how many layers come before the experts")
    before = 0 if isinstance(freq, list) else first or 0
    before = read.integer("first_k_dense_replace", default=before, least=0, most=layers)
    if types is not None:
        if len(types) != layers or not set(types) <= {"dense", "sparse"}:
            raise read.complain("mlp_layer_types", f"{layers} entries out of dense and sparse")
        return [t == "sparse" for t in types]
    if isinstance(freq, list):
        if len(freq) != layers or not set(map(repr, freq)) <= {"0", "1"}:
            raise read.complain(key, f"a whole number or a list of {layers} zeros and ones")
        return [bool(f) and i >= before for i, f in enumerate(freq)]
    every = read.integer("moe_layer_freq", default=1)
    return [i >= before and i % every == 0 for i in range(layers)]


def latent_attention(read, **extra):
    """Latent attention under the keys of DeepSeek; `extra` are further fields, or take the place of
    a key.
    """
    read.used.update(("num_key_value_heads", "head_dim"))  # say nothing about sizes
    fields = {
        "num_heads": ("num_attention_heads",),
        "kv_rank": ("kv_lora_rank",),
        "nope_dim": ("qk_nope_head_dim",),
        "rope_dim": ("qk_rope_head_dim",),
        "v_dim": ("v_head_dim",),
    }
    sizes = {name: read.integer(*keys) for name, keys in fields.items() if name not in extra}
    key = [sizes.get(name, extra.get(name)) for name in ("nope_dim", "rope_dim")]
    only(read, {"qk_head_dim": sum(key)})
    q_rank = read.optional("q_lora_rank")
    return LatentAttention(q_rank=q_rank, bias=read.flag("attention_bias"), **sizes, **extra)


def repeated(read, layers, values):
    """Refuse a per_layer_config, in which transformers 5 saves again what differs in some layers,
    unless it holds these values in these layers, or is missing or empty.
    """
    if not read.raw("per_layer_config")[1]:
        return
    each = read.inside("per_layer_config")
    if sorted(key.lstrip("0") or "0" for key in each.values) != sorted(layers):
        raise read.complain("per_layer_config", "one entry for each layer that differs")
    for key in each.values:
        here = each.inside(key)
        only(here, values)
        here.finish(read.values.get("model_type"))


def pattern(read, key, count, known):
    """What each layer is, from a list of names, or None where the key is missing.

    `known` are the names, and what each stands for.
    """
    names = read.items(key, str, "names of layers")
    if names is None:
        return None
    if len(names) != count or not set(names) <= set(known):
        raise read.complain(key, f"{count} entries out of {', '.join(known)}")
    return [known[name] for name in names]


def prediction_parameters(hidden, *blocks, closing=()):
    """Parameters of a prediction layer [element]: blocks, the projection of a hidden state and an
    embedding, three norms and what follows; embedding and head are shared.
    """
    weights = [weight for block in blocks for weight in block.weights(hidden)]
    counted = sum(w.stored * w.elements for w in (*weights, *closing))
    return counted + 2 * hidden**2 + 3 * hidden
