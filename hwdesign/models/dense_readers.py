"""Readers of models with attention and a dense feed-forward part in every block.

Sources: the `configuration_*.py` and `modeling_*.py` of each model type in transformers 5.24.
"""

from typing import NamedTuple

from hwdesign.models import reading
from hwdesign.models.blocks import DenseFFN
from hwdesign.models.reading import GEMMA


class Style(NamedTuple):
    """What a block of a model type has beyond its sizes; a bias is a bool, or the keys that say it
    and what holds without them.
    """

    norms: int = 2
    qk_norm: str | None = None
    qkv_bias: bool | tuple = False
    out_bias: bool | tuple = False
    ffn_bias: bool | tuple = False
    gated: bool = True
    norm_bias: bool = False
    sinks: bool = False
    scalars: int = 0


ATTENTION = ("attention_bias", False)
FFN = ("mlp_bias", False)
LLAMA = Style(qkv_bias=ATTENTION, out_bias=ATTENTION, ffn_bias=FFN)
PLAIN = Style(qkv_bias=ATTENTION, out_bias=ATTENTION)
USE = ("use_bias", False)
ALL = ("use_bias", True)
GLM = Style(qkv_bias=("attention_bias", True))
STYLES = {
    "llama": LLAMA,
    "mistral": Style(),
    "ministral3": Style(),
    "qwen2": Style(qkv_bias=("qkv_bias", "attention_bias", True)),
    "qwen3": PLAIN._replace(qk_norm="head"),
    "phi3": Style(),
    "olmo": PLAIN._replace(norms=0),
    "olmo2": PLAIN._replace(qk_norm="full"),
    "olmo3": PLAIN._replace(qk_norm="full"),
    "gemma": PLAIN,
    "gemma2": PLAIN._replace(norms=4),
    **dict.fromkeys(GEMMA, PLAIN._replace(norms=4, qk_norm="head")),
    "glm": GLM,
    "glm4": GLM._replace(norms=4),
    "glm4v_text": Style(norms=4, qkv_bias=True),
    "seed_oss": Style(
        qkv_bias=("attention_bias", True), out_bias=("attention_out_bias", False), ffn_bias=FFN
    ),
    "smollm3": LLAMA,
    "exaone4": Style(qk_norm="head"),
    "granite": LLAMA,
    "cohere": PLAIN._replace(norms=1),
    "cohere2": PLAIN._replace(norms=1),
    "starcoder2": Style(qkv_bias=ALL, out_bias=ALL, ffn_bias=ALL, gated=False, norm_bias=True),
    "nemotron": LLAMA._replace(gated=False, norm_bias=True),
    "stablelm": Style(qkv_bias=("use_qkv_bias", False), norm_bias=True),
    "ernie4_5": Style(qkv_bias=USE, out_bias=USE, ffn_bias=USE),
    "hunyuan_v1_dense": PLAIN._replace(qk_norm="head"),
    "arcee": LLAMA._replace(gated=False),
    **dict.fromkeys(("exaone", "internlm3", "iquestcoder"), LLAMA),
    "cwm": Style(ffn_bias=FFN),
    "granite_swa": LLAMA._replace(sinks=True),
    "hyperclovax": LLAMA,
    "vaultgemma": PLAIN,
    # Two numbers of its activation in each layer.
    "apertus": PLAIN._replace(qk_norm="head", gated=False, scalars=2),
    "jais2": Style(
        qkv_bias=("attention_bias", True),
        out_bias=("attention_bias", True),
        ffn_bias=("mlp_bias", True),
        gated=False,
        norm_bias=True,
    ),
}
# Keys that change no count of these types.
UNCOUNTED = {
    **dict.fromkeys(("granite", "granite_swa", "hyperclovax"), reading.MULTIPLIERS),
    "smollm3": ("no_rope_layers", "no_rope_layer_interval"),
    "cohere2": ("layer_switch",),
    "hunyuan_v1_dense": ("cla_share_factor", "dense_list", "org_vocab_size", "num_media_embeds"),
}
# Where only one value of a key is counted: type -> key -> that value.
ONLY = {
    "qwen2": {"qkv_bias": True, "attention_bias": True},
    "hunyuan_v1_dense": {
        "use_qk_norm": True,
        "use_cla": False,
        "mlp_bias": False,
        "norm_type": "rms",
    },
    "starcoder2": {"norm_type": "layer_norm", "mlp_type": "default"},
    "cohere2": {
        "use_parallel_block": True,
        "order_of_interleaved_layers": "local_attn_first",
        "use_qk_norm": False,
    },
    **dict.fromkeys(("arcee", "nemotron", "jais2"), {"hidden_act": "relu2"}),
    "apertus": {"hidden_act": "xielu", "mlp_bias": False, "post_norm": False, "qk_norm": True},
    "internlm3": {"bias": False, "qkv_bias": False},
    "cwm": {"attention_bias": False},
    "exaone4": {"attention_bias": False},
    "glm4v_text": {"attention_bias": True},
    **dict.fromkeys(("gemma", "gemma2", *GEMMA), {"use_bidirectional_attention": False}),
}


def _dense(read, hidden, kind):
    style = STYLES[kind]
    reading.only(read, ONLY.get(kind, {}))
    read.used.update(UNCOUNTED.get(kind, ()))
    qk_norm, norms = style.qk_norm, style.norms
    if kind in ("cohere", "stablelm") and read.flag("use_qk_norm", "qk_layernorm"):
        qk_norm = "full"  # one norm of the head size for each head
    if kind == "stablelm" and read.flag("use_parallel_residual"):
        norms = 1
    if kind == "hyperclovax" and read.flag("use_post_norm", default=True):
        norms = 4
    mixers = reading.attention(
        read,
        hidden,
        reading.layers(read),
        kind,
        qkv_bias=reading.said(read, style.qkv_bias),
        out_bias=reading.said(read, style.out_bias),
        qk_norm=qk_norm,
        sinks=style.sinks,
    )
    ffn = DenseFFN(
        width=read.integer("intermediate_size"),
        gated=style.gated,
        bias=reading.said(read, style.ffn_bias),
    )
    made = {"norms": norms, "norm_bias": style.norm_bias, "scalars": style.scalars}
    return {
        "blocks": reading.blocks(mixers, [ffn] * len(mixers), **made),
        "norm_bias": style.norm_bias,
        "final_norm": kind != "olmo",  # whose norms have no weights
    }


READERS = dict.fromkeys(STYLES, _dense)
ALIASES = {"mimo": "qwen2", "qwen2_vl": "qwen2", "qwen2_vl_text": "qwen2", "qwen2_5_vl": "qwen2",
           "qwen2_5_vl_text": "qwen2", "qwen3_vl": "qwen3", "qwen3_vl_text": "qwen3",
           "glm4v": "glm4v_text"}  # fmt: skip
# What a missing key means in the class of a type.
DEFAULTS = {
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {"num_key_value_heads": 32},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128},
    "ministral3": {"num_key_value_heads": 8, "head_dim": 128},
    **dict.fromkeys(
        ("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"),
        {"num_key_value_heads": 8, "max_window_layers": 80},
    ),
    "gemma": {"num_key_value_heads": 16, "head_dim": 256, "tie_word_embeddings": True},
    "gemma2": {
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
    },
    # The official configs of the 4B and 12B models leave these out.
    **dict.fromkeys(
        GEMMA,
        {
            "vocab_size": 262208,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "sliding_window": 4096,
            "tie_word_embeddings": True,
        },
    ),
    "glm": {"num_key_value_heads": 2, "head_dim": 128},
    "glm4": {"num_key_value_heads": 2, "head_dim": 128},
    "glm4v_text": {"num_key_value_heads": 2},
    "seed_oss": {"num_key_value_heads": 8, "head_dim": 128},
    "smollm3": {"num_key_value_heads": 4, "tie_word_embeddings": True},
    "exaone4": {"num_key_value_heads": 32, "sliding_window": 4096},
    "cohere": {"tie_word_embeddings": True},
    "cohere2": {"sliding_window": 4096, "tie_word_embeddings": True},
    "olmo3": {"sliding_window": 4096},
    **dict.fromkeys(("cwm", "iquestcoder"), {"num_key_value_heads": 8, "head_dim": 128}),
    "exaone": {"num_key_value_heads": 8},
    "internlm3": {"num_key_value_heads": 2, "head_dim": 128},
    "granite_swa": {"num_key_value_heads": 4, "sliding_window": 128, "tie_word_embeddings": True},
    "vaultgemma": {
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
    },
    "starcoder2": {"num_key_value_heads": 2, "tie_word_embeddings": True},
    "stablelm": {"num_key_value_heads": 32},
    "ernie4_5": {"num_key_value_heads": 2, "head_dim": 128, "tie_word_embeddings": True},
}
# Keys that a type must give, since its class and its published configs disagree.
GIVEN = {
    "tie_word_embeddings": (
        "qwen2_vl",
        "qwen2_vl_text",
        "qwen2_5_vl",
        "qwen2_5_vl_text",
        "qwen3_vl",
        "qwen3_vl_text",
        "glm4v",
        "glm4v_text",
    ),
    "layer_types": ("cwm", "granite_swa"),
}
