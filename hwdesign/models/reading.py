"""What readers of architectures share: keys to heads, windows, attention and experts."""

from hwdesign.models.blocks import MoE, SelfAttention

GEMMA = ("gemma3", "gemma3_text")
PERIOD = {
    **dict.fromkeys(GEMMA, 6),
    "gpt_oss": 2,
}  # every n-th layer is full where nothing else is said
WINDOW = {
    **dict.fromkeys(GEMMA, 4096),
    "gpt_oss": 128,
    "mistral": 4096,
}  # where sliding_window is missing; null is none
SWITCHED = (
    "qwen2",
    "qwen3",
    "qwen2_moe",
    "qwen3_moe",
)  # no window unless use_sliding_window is true


def layers(read):
    """How many layers there are."""
    return read.integer("num_hidden_layers", "n_layer", "num_layers")


def heads(read, hidden, multi_query=False):
    """(query heads, key-value heads, head size): null KV heads mean as many as query heads, a null
    head size H / heads.
    """
    heads = read.integer("num_attention_heads", "n_head")
    kv = read.optional("num_key_value_heads", "n_head_kv", "num_kv_heads", "num_query_groups")
    if read.flag("multi_query", default=multi_query):
        if kv not in (None, 1):
            raise read.complain("num_key_value_heads", "1 or absent, since multi_query is on")
        kv = 1
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


def windows(read, layers, kind):
    """Window of each layer [token] or None, from layer_types, a pattern (every n-th layer is full),
    or one window for all.
    """
    switched = read.flag("use_sliding_window", default=kind not in SWITCHED)
    missing = WINDOW.get(kind, 0) if "sliding_window" not in read.values else 0
    window = read.integer("sliding_window", default=missing, least=int(switched))
    window = window if window and switched else None
    types = read.items("layer_types", str, "layer names")
    period = read.optional("sliding_window_pattern", "_sliding_window_pattern")
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
        if period and full != [(i + 1) % period == 0 for i in range(layers)]:
            raise read.complain(
                "sliding_window_pattern", "absent, since layer_types says otherwise"
            )
        return [known[t] for t in types]
    period = period or PERIOD.get(kind)
    if period and window is None:
        raise read.complain(
            "sliding_window", f"a whole number, since only each layer {period} has full attention"
        )
    if period:
        return [None if (i + 1) % period == 0 else window for i in range(layers)]
    if window and kind == "qwen2_moe":
        raise read.complain("layer_types", "given, since use_sliding_window is on")
    return [window if i >= first or kind not in ("qwen2", "qwen3") else None for i in range(layers)]


def attention(read, hidden, layers, kind, **extra):
    """Attention of each layer, with its window, as a list."""
    query, kv, size = heads(read, hidden)
    return [
        SelfAttention(num_heads=query, num_kv_heads=kv, head_dim=size, window=w, **extra)
        for w in windows(read, layers, kind)
    ]


def experts(read, width_key="moe_intermediate_size", **extra):
    """A mixture of experts under the usual keys; `extra` are further fields."""
    count = read.integer("num_experts", "num_local_experts", "n_routed_experts")
    top_k = read.integer("num_experts_per_tok", "experts_per_token", "top_k_experts", most=count)
    return MoE(num_experts=count, top_k=top_k, width=read.integer(width_key), **extra)


def biases(read, kind):
    """(bias of q, k and v, bias of the output): implied by the type in Qwen2, a key elsewhere."""
    if kind not in ("qwen2", "qwen2_moe"):
        bias = kind not in ("mistral", "phi3") and read.flag(
            "attention_bias"
        )  # those two never have one
        return bias, bias
    bias = read.flag("qkv_bias", "attention_bias", default=True)
    if kind == "qwen2" and not bias:
        raise read.complain("attention_bias", "true or absent: q, k and v of qwen2 have a bias")
    return bias, False


def sparse_layers(read, layers):
    """Which layers have experts: after first_k_dense_replace, every moe_layer_freq-th, or where
    that is a list of 0 and 1.
    """
    key, freq = read.raw("moe_layer_freq")
    if not isinstance(freq, list):
        read.given("first_k_dense_replace", "how many layers come before the experts")
    first = read.integer("first_k_dense_replace", default=0, least=0, most=layers)
    if isinstance(freq, list):
        if len(freq) != layers or not set(map(repr, freq)) <= {"0", "1"}:
            raise read.complain(key, f"a whole number or a list of {layers} zeros and ones")
        return [bool(f) and i >= first for i, f in enumerate(freq)]
    every = read.integer("moe_layer_freq", default=1)
    return [i >= first and i % every == 0 for i in range(layers)]
