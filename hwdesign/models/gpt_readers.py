"""Readers of GPT-2 and its kin: biases, norms with biases, no gate.

Sources: the `configuration_*.py` and `modeling_*.py` of each model type in transformers 5.24.
"""

from hwdesign.models import reading
from hwdesign.models.blocks import Block, DenseFFN, SelfAttention
from hwdesign.models.parts import linear


def _gpt(read, hidden, kind):
    """Blocks of GPT-2 and its kin: biases everywhere, no gate; learned positions but for GPT-NeoX,
    which rotates.
    """
    neox = kind == "gpt_neox"
    heads, kv, size = reading.heads(read, hidden, multi_query=kind == "gpt_bigcode")
    bias = read.flag("attention_bias", default=True) if neox else True
    mixer = SelfAttention(
        num_heads=heads, num_kv_heads=kv, head_dim=size, qkv_bias=bias, out_bias=bias
    )
    width = read.integer("intermediate_size", "n_inner", default=None if neox else 4 * hidden)
    block = Block(mixer=mixer, ffn=DenseFFN(width=width, gated=False, bias=True), norm_bias=True)
    positions = 0 if neox else read.integer("n_positions", "max_position_embeddings", "n_ctx")
    return {"blocks": (block,) * reading.layers(read), "positions": positions, "norm_bias": True}


def _made(read, mixer, width, *, bias=True, norms=2, scalars=0, **fields):
    """Equal blocks of attention and a part without a gate."""
    ffn = DenseFFN(width=width, gated=False, bias=bias)
    block = Block(mixer=mixer, ffn=ffn, norms=norms, norm_bias=True, scalars=scalars)
    return {"blocks": (block,) * reading.layers(read), "norm_bias": True, **fields}


def _bloom(read, hidden, kind):
    """A norm after the embedding; positions are slopes of the scores, without weights."""
    reading.only(read, {"n_inner": 4 * hidden})
    read.used.add("apply_residual_connection_post_layernorm")
    heads, kv, size = reading.heads(read, hidden)
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size}
    mixer = SelfAttention(**shape, qkv_bias=True, out_bias=True)
    return _made(read, mixer, 4 * hidden, embedding_norm=True)


def _falcon(read, hidden, kind):
    """Attention and feed-forward part side by side, after one norm or one each."""
    bias, new = read.flag("bias"), read.flag("new_decoder_architecture")
    read.used.add("alibi")
    heads, size = read.integer("num_attention_heads", "n_head"), None
    if hidden % heads:
        raise read.complain("num_attention_heads", f"a divisor of hidden_size {hidden}")
    size = hidden // heads
    several = not read.flag("multi_query", default=True) or new
    kv = read.integer("num_kv_heads", "n_head_kv", default=heads)
    kv = kv if several else 1
    if heads % kv or (several and not new and kv != heads):
        raise read.complain("num_kv_heads", f"a divisor of num_attention_heads {heads}, or that")
    both = read.optional("num_ln_in_parallel_attn") or (2 if new else 1)
    if both > 2:
        raise read.complain("num_ln_in_parallel_attn", "1 or 2")
    norms = both if read.flag("parallel_attn", default=True) else 2
    mixer = SelfAttention(
        num_heads=heads, num_kv_heads=kv, head_dim=size, qkv_bias=bias, out_bias=bias
    )
    width = read.integer("ffn_hidden_size", default=4 * hidden)
    return _made(read, mixer, width, bias=bias, norms=norms)


def _gptj(read, hidden, kind):
    """Attention without and a feed-forward part with biases, after one norm."""
    heads, kv, size = reading.heads(read, hidden)
    mixer = SelfAttention(num_heads=heads, num_kv_heads=kv, head_dim=size)
    width = read.integer("n_inner", default=4 * hidden)
    read.used.add("rotary_dim")
    return _made(read, mixer, width, norms=1, head_bias=True)


def _opt(read, hidden, kind):
    """Learned positions, two rows more than the context is long; embeddings narrower than the
    hidden size, as those of OPT-350m, are projected to it and back.
    """
    before = read.flag("do_layer_norm_before", default=True)
    ends = not read.flag("_remove_final_layer_norm") and before
    reading.only(read, {"layer_norm_elementwise_affine": True})
    narrow = read.integer("word_embed_proj_dim", default=hidden)
    bias = read.flag("enable_bias", default=True)
    heads, kv, size = reading.heads(read, hidden)
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size}
    mixer = SelfAttention(**shape, qkv_bias=bias, out_bias=bias)
    positions = read.integer("max_position_embeddings") + 2
    fields = {"positions": positions, "final_norm": ends}
    if narrow != hidden:
        closing = linear("projection in", "residual", hidden, narrow)
        closing += linear("projection out", "residual", narrow, hidden)
        fields |= {"embedding_size": narrow, "closing": tuple(closing)}
    return _made(read, mixer, read.integer("ffn_dim"), bias=bias, **fields)


def _phi(read, hidden, kind):
    """Attention and feed-forward part side by side, after one norm."""
    normed = read.flag("qk_layernorm")
    heads, kv, size = reading.heads(read, hidden)
    shape = {"num_heads": heads, "num_kv_heads": kv, "head_dim": size}
    norm = "head" if normed else None
    mixer = SelfAttention(**shape, qkv_bias=True, out_bias=True, qk_norm=norm)
    width = read.integer("intermediate_size", "n_inner")
    biases = 2 * size * normed  # of the norms of queries and keys
    return _made(read, mixer, width, norms=1, scalars=biases, head_bias=True)


READERS = {
    **dict.fromkeys(("gpt2", "gpt_bigcode", "gpt_neox"), _gpt),
    "bloom": _bloom,
    "falcon": _falcon,
    "gptj": _gptj,
    "opt": _opt,
    "phi": _phi,
}
ALIASES = {"codegen": "gptj"}
_TIED = {"tie_word_embeddings": True}
DEFAULTS = dict.fromkeys(("gpt2", "gpt_bigcode", "bloom", "falcon", "opt"), _TIED)
GIVEN = {}
