"""Parameters of every model type that is read, counted again on the module trees of transformers, which needs no weights:

    pip install . transformers==5.24.0 torch==2.13.0     # in an environment of its own; the CPU build of torch does
    python scripts/compare_counts.py                     # some minutes on one core; --types llama,qwen3 for some

For each type 25 configs: the defaults of its class and seeded changes of all keys that may change a weight (sizes, heads,
experts, windows, patterns of layers, biases, norms, ...), a few layers each. Each config is read in three spellings: with all
keys, as transformers saves it, and short of some keys that have the default of the class; two configs of each type also without
each such key in turn. Tied matrices are counted once; buffers that a checkpoint stores (`BUFFERS`) count as parameters. Windows
are those of the caches that transformers makes. A wrapper of a language model and towers is built with its towers, which are
left out of the count.

Outcomes of a reading: equal; incomplete, where a key that is left out must be given; refused by hwdesign, with the message;
differs. A change that transformers cannot build is drawn again and counted. Writes scripts/counts_against_transformers.csv, one
row a type, and with `--sample 5` five configs of each for tests/test_counts_sweep.py, which reads them without transformers. Ends
with an error if anything differs that `EXPLAINED` does not name.

    python scripts/compare_counts.py --keys              # some seconds

writes tests/data/class_keys_2026.csv instead, the same bytes each time: what a missing key means to the class of each type (of
its text part, for a wrapper), before the class works out anything from it. tests/test_reader_mutations.py holds readers to it.
"""

import argparse
import collections
import csv
import dataclasses
import json
import os
import random
import re
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import (  # noqa: E402
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMultimodalLM,
    DynamicCache,
    PreTrainedConfig,
)
from transformers.initialization import no_init_weights  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES  # noqa: E402

from hwdesign.models import config as hw  # noqa: E402
from hwdesign.models import reading as hw_reading  # noqa: E402
from hwdesign.models.architectures import ALIASES, READERS  # noqa: E402

HERE = Path(__file__).parent
TABLE = HERE / "counts_against_transformers.csv"
SAMPLE = HERE.parent / "tests" / "data" / "class_defaults_2026.csv"
KEYS = SAMPLE.with_name("class_keys_2026.csv")
OUTCOMES = ("configs", "equal", "incomplete", "refused", "differ")
COLUMNS = ("model_type", "transformers", "torch", *OUTCOMES, "failed_there", "keys_changed", "refusal", "explanation")
BUFFERS = {  # what transformers registers as buffers and checkpoints store as tensors, name -> what it is
    "e_score_correction_bias": "router correction",
    "expert_bias": "router correction",
    "balancing_biases": "router correction",
    "layer_scalar": "scale of a layer",
}
CONSTANTS = {  # buffers that hold constants or integers, which are no parameters
    "beta", "eps", "slope_rate", "key_decay", "diagonal_decay", "query_decay", "tid2eid", "embed_scale",
}  # fmt: skip
TRIES = 30  # draws for one config before it is given up
SKIPPED = re.compile(  # keys without a part in any weight: tokens, rope, numerics, training, output
    "_id$|_ids$|token_id|^rope|_rope_theta|rope_scaling|rope_theta|eps|dropout|pdrop|_drop$|_act|act_fn|activation|initializer|"
    "init_|use_cache|(?<!n_)output_|return_dict|aux_loss|jitter|z_loss|pretraining_tp|softcap|scor|dtype|time_step_(?!rank)|label|summary|"
    "torch|attn_implementation|problem_type|chunk_size_feed_forward|is_encoder|use_mamba_kernels|multiplier|_alpha|_beta|"
    "capacity|upcast|vision|audio|image|video|per_layer_config"
)
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV = ("num_key_value_heads", "n_head_kv", "num_kv_heads")
HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed")
SIZES = (*LAYERS, *HEADS, *KV, *HIDDEN)
TOWERS = ("vision_config", "audio_config", "encoder_config")
DEPTHS = ("depth", "num_hidden_layers", "num_layers", "layers", "encoder_layers", "n_layers", "num_heads_layers")
# A list of kinds of layers may also hold these.
KINDS = (("full_attention", "sliding_attention"), ("dense", "sparse"))
FIRST = ("first_k_dense_replace", "num_dense_layers", "num_hash_layers")  # how many layers come before the experts
# Type -> key -> values that are drawn, where the class takes no other or ignores the key.
CHOICES = {  # a function gets the draw, and what is drawn so far
    "gpt_bigcode": {"num_key_value_heads": ()},  # follows from multi_query
    "deepseek_v4": {"num_key_value_heads": (1,), "n_shared_experts": (1,)},
    "gemma4": {"hidden_size_per_layer_input": (0,), "num_kv_shared_layers": (0,)},
    "gemma4_text": {"hidden_size_per_layer_input": (0,), "num_kv_shared_layers": (0,)},
    "longcat_flash": {"n_routed_experts": (16,), "zero_expert_num": (0, 8, 16, 48), "moe_topk": (4, 8)},
    "dbrx": {"num_key_value_heads": ()},  # follows from attn_config
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe"), {"head_dim": (16, 32, 64)}),
    **dict.fromkeys(("hunyuan_vl", "hunyuan_vl_text", "ministral"), {"head_dim": (16, 32, 64)}),
    **dict.fromkeys(("mamba", "falcon_mamba"), {"intermediate_size": ()}),  # follows from expand
    "mamba2": {
        "expand": (1, 2), "head_dim": (16, 32), "n_groups": (1, 2, 4), "hidden_size": (128, 256),
        "num_heads": lambda draw, found: found["expand"] * found["hidden_size"] // found["head_dim"],
    },
    "helium": {"head_dim": lambda draw, found: found["hidden_size"] // found["num_attention_heads"]},
    "mpt": {"expansion_ratio": ()},  # which its class does not read
    "lfm2_moe": {"layer_types": lambda draw, found: [draw.rng.choice(("conv", "full_attention")) for _ in range(draw.layers)]},
    **dict.fromkeys(
        ("mllama", "mllama_text_model"),
        {"cross_attention_layers": lambda draw, found: sorted(draw.rng.sample(range(draw.layers), draw.rng.randint(1, 2)))},
    ),
    "gemma3n_text": {
        "intermediate_size": lambda draw, found: [draw.rng.choice((64, 96)) for _ in range(draw.layers)],
        "activation_sparsity_pattern": lambda draw, found: [0.0] * draw.layers,
        "num_kv_shared_layers": (0, 1),
    },
    **dict.fromkeys(("glm5_next", "glm5_next_text"), {"qk_rope_head_dim": (), "head_dim": (), "qk_head_dim": ()}),
    "gpt_neo": {
        "num_heads": lambda draw, found: draw.heads, "attention_layers": (), "num_hidden_layers": (),
        "attention_types": lambda draw, found: [[["global"], 1], [["local"], draw.layers - 1]],
    },
    "chameleon": {"vocabulary_map": ({"<image>": 4},), "vq_config": ()},
    "mistral_large4": {"kv_source_layers": (), "qk_head_dim": (), "head_dim": ()},
    "dots3_note_text": {"head_dim": (), "q_lora_rank": (64, 96)},
    "recurrent_gemma": {
        "lru_width": lambda draw, found: draw.heads * draw.rng.choice((16, 24, 32)), "head_dim": (),
        "block_types": lambda draw, found: [draw.rng.choice(("recurrent", "attention")) for _ in range(draw.rng.randint(1, 4))],
    },
    "jetmoe": {"num_attention_heads": ()},
    "zaya": {
        "num_experts_per_tok": (), "sliding_window": (8, 128),
        "layer_types": lambda draw, found: [draw.rng.choice(("hybrid", "hybrid_sliding")) for _ in range(draw.layers)],
    },
    "inkling_text": {
        "swa_num_attention_heads": lambda draw, found: draw.heads, "local_layer_ids": (), "number_of_conv_states": (),
        "num_mtp_layers": (), "mtp_local_layer_ids": (), "unpadded_vocab_size": (300, 512), "n_shared_experts": (1, 2, 3),
        "swa_num_key_value_heads": lambda draw, found: draw.rng.choice((1, draw.heads // 2, draw.heads)),
        "layer_types": lambda draw, found: [draw.rng.choice(("hybrid", "hybrid_sliding")) for _ in range(draw.layers)],
    },
    **dict.fromkeys(
        ("granite_docling", "granite_docling_text"),  # whose tower ends in the hidden size
        {"hidden_size": (), "num_attention_heads": (4, 8, 16, 32), "num_key_value_heads": (1, 2, 4)},
    ),
    "axk2": {"head_dim": (), "qk_head_dim": ()},
    **dict.fromkeys(
        ("ernie4_5_vl_moe", "ernie4_5_vl_moe_text"),
        {
            "moe_intermediate_size": lambda draw, found: [draw.rng.choice((32, 64, 96)), draw.rng.choice((32, 64))],
            "moe_num_experts": (8, 16, 32), "moe_k": (1, 2, 4), "hidden_size": lambda draw, found: 128 * draw.heads,
        },
    ),
    "zamba": {
        "tie_word_embeddings": (),
        "layers_block_type": lambda draw, found: [draw.rng.choice(("linear_attention", "hybrid")) for _ in range(draw.layers)],
        "attention_hidden_size": lambda draw, found: 2 * found["hidden_size"],
        "attention_head_dim": lambda draw, found: 2 * found["hidden_size"] // draw.heads,
    },
    **dict.fromkeys(
        ("qwen4_exp", "qwen4_exp_text"),
        {
            "ple_layer_ids": (), "indexer_kv_heads": (1,), "indexer_n_heads": (2, 4, 8), "indexer_head_dim": (256, 512),
            "indexer_budget": (64, 128), "indexer_compress_ratio": (4, 8), "number_of_conv_states": (), "hc_count": (2, 3, 4, 5),
        },
    ),
    "zamba2": {
        "layers_block_type": lambda draw, found: [draw.rng.choice(("linear_attention", "hybrid")) for _ in range(draw.layers)],
        **dict.fromkeys(("attention_hidden_size", "attention_head_dim", "mamba_headdim", "kv_channels"), ()),
        **dict.fromkeys(("num_query_groups", "hybrid_layer_ids"), ()),
        "n_mamba_heads": (2, 4, 8), "num_mem_blocks": (1, 2), "tie_word_embeddings": (), "mamba_ngroups": (1, 2),
    },
    **dict.fromkeys(
        ("deepseek_ocr2", "deepseek_ocr2_text"),
        {
            "mlp_layer_types": lambda draw, found: [draw.rng.choice(("dense", "sparse")) for _ in range(draw.layers)],
            "num_experts_per_tok": (1, 2, 4), "head_dim": (),
        },
    ),
    "hrm_text": {
        "num_layers_per_stack": (), "H_cycles": (1, 2, 3), "L_cycles": (1, 2, 3, 4), "L_bp_cycles": (),
        "num_hidden_layers": lambda draw, found: draw.layers,
    },
    "dory": {
        "n_input_layers": lambda draw, found: draw.rng.randint(0, draw.layers // 2),
        "n_output_layers": lambda draw, found: draw.rng.randint(0, draw.layers // 2),
        "n_recurrent_layers": lambda draw, found: draw.layers - found["n_input_layers"] - found["n_output_layers"],
        "layer_types": lambda draw, found: [
            draw.rng.choice(("full_attention", "sliding_attention")) for _ in range(draw.layers)
        ],
    },
    "dots1": {"n_shared_experts": (0, 1, 2)},
    **dict.fromkeys(("minimax", "qwen3_vl_moe", "qwen3_vl_moe_text", "qwen3_omni_moe_text"), {"sliding_window": ()}),
}
# Types that are not built -> why.
UNBUILT = {
    "gemma3n": "its tower needs a further package; gemma3n_text is its text part",
    "git": "another model of this name: Grok-2's config says so too, and is told by its architecture",
}
# Type -> why the windows of its caches are not compared.
WINDOWS = {
    "nemotron_h": "vLLM and SGLang apply sliding_window, transformers does not",
    "gpt_neo": "transformers keeps all tokens in its caches and masks those outside a window",
    "dory": "transformers adds the caches of further loops when it runs",
}
# Type of a text part -> (type of a wrapper that does not say what its part is, the key that it stands under).
WRAPPERS = {"voxtral_realtime_text": ("voxtral_realtime", "text_config")}


def _zero_experts(cfg):
    return 2 * cfg.zero_expert_num * cfg.expert_ffn_hidden_size * cfg.hidden_size * cfg.num_layers


def _corrections(cfg):
    return cfg.n_routed_experts * sum(kind == "sparse" for kind in cfg.mlp_layer_types)


def _unshared(cfg):
    sparse = sum(kind == "sparse" for kind in cfg.mlp_layer_types)
    return 3 * cfg.hidden_size * cfg.intermediate_size * sparse * (cfg.num_shared_experts == 0)


# Type -> (why it differs, parameters that transformers has beyond a checkpoint, of a config).
EXPLAINED = {
    "axk1": ("corrections of its router, which no checkpoint holds", _corrections),
    "longcat_flash": ("weights of experts that compute nothing, which no checkpoint holds", _zero_experts),
    "hy_v3": ("without shared experts the class builds one as wide as a dense part; vLLM builds none", _unshared),
}


def text_of(cfg):
    """The config of the language model inside a config."""
    return cfg.get_text_config(decoder=True)


def plain(cfg):
    """A config as JSON writes it, without what every class has."""
    shared = set(PreTrainedConfig().to_dict()) - {"model_type"}
    values = json.loads(cfg.to_json_string(use_diff=False))
    return {k: v for k, v in values.items() if k not in shared and k != "transformers_version"}


class Case:
    """How configs of a model type are made, built and written."""

    def __init__(self, kind):
        self.kind = kind
        self.outer, self.key = kind, None
        self.cls = CONFIG_MAPPING[kind]
        base = self.cls()
        inner = text_of(base)
        if inner is not base:
            self.key = next(k for k, v in vars(base).items() if v is inner)
        elif kind not in transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            self.outer, self.key = wrapper_of(kind)
            self.cls = CONFIG_MAPPING[self.outer]
        self.default = plain(text_of(self.cls()) if self.key else base)
        self.named = self.key and kind != self.outer  # whether the text part is called by its own type

    def make(self, changes):
        """A config with changes of its language model."""
        if not self.key:
            return self.cls(**changes)
        base = self.cls()
        tied = changes.get("tie_word_embeddings", bool(getattr(base, "tie_word_embeddings", False)))
        tied = {"tie_word_embeddings": tied} if changes else {}
        inner = {"model_type": self.default["model_type"], **changes, **tied}
        small = {}
        for tower in TOWERS:
            there = getattr(base, tower, None)
            if there is not None and hasattr(there, "to_dict"):
                known = there.to_dict()
                short = {k: 1 for k in DEPTHS if isinstance(known.get(k), int) and not isinstance(known.get(k), bool)}
                small[tower] = {"model_type": there.model_type, **short}
        if self.outer == "muse_spark":  # its towers list their layers and fit the text part
            small = {"audio_config": {"out_hidden_size": inner.get("hidden_size", self.default["hidden_size"])}}
        if self.outer == "molmo2":  # whose adapter names layers of its tower
            small = {}
        if self.outer == "granite4_vision":
            small |= {"deepstack_layer_map": [], "downsample_rate": "4/8"}
        return self.cls(**{self.key: inner}, **small, **tied)

    def spellings(self, cfg, rng):
        """The config in three spellings: all keys, as saved, and short of some that have the class's default."""
        found = {name: json.loads(cfg.to_json_string(use_diff=name == "saved")) for name in ("all", "saved")}
        for values in found.values():
            self.name(values)
        short = json.loads(json.dumps(found["saved"]))
        inside, default = short[self.key] if self.key else short, self.default
        for key in [k for k, v in inside.items() if k in default and k != "model_type" and v == default[k]]:
            if rng.random() < 0.5:
                del inside[key]
        return found | {"short": short}

    def doubled(self):
        """Changes that leave most keys at the default of the class, and hidden size and heads in another ratio."""
        found = {k: 4 * self.default[k] for k in HIDDEN if self.default.get(k)}
        found |= {k: 2 * self.default[k] for k in HEADS if self.default.get(k)}
        return found

    def trimmed(self, values):
        """The config without towers, and without keys of tokens, numerics and positions."""
        plain = {"model_type", "tie_word_embeddings", self.key}
        inside = values[self.key] if self.key else values
        kept = {k: v for k, v in inside.items() if k in self.default and (k in plain or not SKIPPED.search(k))}
        kept |= {k: inside[k] for k in inside if k == "model_type"}
        return {k: v for k, v in values.items() if k in plain} | {self.key: kept} if self.key else kept

    def without(self, values):
        """The config without one key that has the default of the class, for each such key."""
        inside = values[self.key] if self.key else values
        for key in [k for k, v in inside.items() if k in self.default and k != "model_type" and v == self.default[k]]:
            rest = {k: v for k, v in inside.items() if k != key}
            yield key, {**values, self.key: rest} if self.key else rest

    def name(self, values):
        """Calls the text part by the type that is tried, and lets one key say whether matrices are tied."""
        values.setdefault("model_type", self.outer)
        if self.key:
            inside = values[self.key]
            inside["model_type"] = self.kind
            if not self.named:
                del inside["model_type"]


def wrapper_of(kind):
    """(type whose config holds a text part of a type, the key that it stands under); without one itself and None."""
    if kind in WRAPPERS:
        return WRAPPERS[kind]
    for outer in (kind.removesuffix("_text"), *CONFIG_MAPPING_NAMES):
        if outer in CONFIG_MAPPING_NAMES:
            for key, sub in getattr(CONFIG_MAPPING[outer], "sub_configs", {}).items():
                if getattr(sub, "model_type", None) == kind and key in hw.NESTED:
                    return outer, key
    return kind, None


def build(cfg):
    """(parameters, tied ones once, with the buffers of checkpoints; other buffers that are stored) of a config."""
    if cfg.model_type == "dbrx":  # its class asks for what its config has lost
        cfg.attn_config.rope_theta = 10000.0
    with no_init_weights(), torch.device("meta"):
        autos = (AutoModelForCausalLM, AutoModelForMultimodalLM, AutoModelForImageTextToText)
        auto = next((auto for auto in autos if type(cfg) in auto._model_mapping), AutoModelForCausalLM)
        model = auto.from_config(cfg)
    model.tie_weights()
    words = ("language_model", "text_", "lm_head")
    towers = any(re.search(r"language_model\.|text_layers\.|text_model\.", name) for name, _ in model.named_parameters())

    def inside(name):
        return not re.search("embed_tokens_extend|vqmodel", name) and (not towers or any(word in name for word in words))

    seen, total, other = set(), 0, set()
    for name, weight in model.named_parameters():
        if inside(name) and id(weight) not in seen:
            seen.add(id(weight))
            total += weight.numel()
    stored = set(model.state_dict())
    for name, buffer in model.named_buffers():
        last = name.rpartition(".")[2]
        if inside(name) and last in BUFFERS:
            total += buffer.numel()
        elif inside(name) and name in stored:
            other.add(last)
    return total, other


def windows_there(cfg):
    """Window [token] -> how many layers have it, by the caches that transformers makes."""
    found = collections.Counter()
    for layer in DynamicCache(config=cfg).layers:
        if getattr(layer, "is_sliding", False):
            found[layer.sliding_window] += 1
    return found


def windows_here(model):
    """Window [token] -> how many layers keep a cache of it, by hwdesign."""
    mixers = [block.mixer for block in model.blocks if block.mixer and block.mixer.window]
    return collections.Counter(mixer.window for mixer in mixers if any(elements for elements, _ in mixer.caches))


def depth_of(values):
    return next((values[k] for k in LAYERS if isinstance(values.get(k), int)), None)


class Draw:
    """Changes of a class's defaults, drawn with a seed."""

    def __init__(self, rng, kind, default, avoided):
        self.rng, self.kind, self.default, self.avoided = rng, kind, default, avoided
        self.old = depth_of(default)
        self.layers = rng.randint(2, 8)
        self.heads = rng.choice((4, 6, 8, 12, 16))
        self.size = rng.choice((16, 24, 32, 64))

    def skeleton(self):
        """Layers, heads and the hidden size, which must suit each other."""
        found, rng = {}, self.rng
        for keys, value in (
            (LAYERS, self.layers),
            (HEADS, self.heads),
            (KV, rng.choice([n for n in range(1, self.heads + 1) if self.heads % n == 0])),
            (HIDDEN, self.heads * self.size * rng.choice((1, 1, 2))),
        ):
            found |= {k: value for k in keys if k in self.default}
        found |= dict.fromkeys((k for k in self.default if k in hw_reading.EXPERTS), rng.choice((8, 16, 24, 32)))
        found |= {k: rng.randint(1, 4) for k in self.default if k in hw_reading.TOP_K}
        if "linear_num_key_heads" in self.default:
            keys = rng.choice((2, 4, 8))
            found |= {"linear_num_key_heads": keys, "linear_num_value_heads": keys * rng.choice((1, 2, 4))}
        found |= {k: rng.randint(0, self.layers) for k in FIRST if self.default.get(k) is not None}
        for key, values in CHOICES.get(self.kind, {}).items():
            found.pop(key, None)
            if callable(values):
                found[key] = values(self, found)
            elif values:
                found[key] = rng.choice(values)
        if self.default.get("pad_token_id") is not None:
            found["pad_token_id"] = 0  # within each vocabulary that is drawn
        return found

    def change(self, key, value):
        """Another value of a key, or None where there is nothing to change."""
        rng = self.rng
        if isinstance(value, bool):
            return not value
        if isinstance(value, list):
            return self.list(key, value)
        if isinstance(value, dict):
            if not value or any("rope" in k for k in value):
                return None
            inner = {k: self.change(k, v) for k, v in value.items() if not SKIPPED.search(k)}
            keep = {k: v for k, v in value.items() if k not in set(PreTrainedConfig().to_dict()) | {"model_type"}}
            return keep | {k: v for k, v in inner.items() if v is not None and rng.random() < 0.5}
        if isinstance(value, float):
            return rng.choice((0.5, 1.0, 1.5, 2.0)) * value if re.search("mult|ratio|expand", key) else None
        if isinstance(value, int):
            return self.integer(key, value)
        if value is None:
            return self.nothing(key)
        return None

    def integer(self, key, value):
        rng = self.rng
        if key in KV or re.search("key_value_heads|kv_heads|kv_n_heads|num_ln_in", key):
            return rng.choice([n for n in range(1, self.heads + 1) if self.heads % n == 0])
        if "vocab" in key:
            return rng.choice((512, 1000, 1536))
        if "position" in key or "max_seq" in key:
            return rng.choice((512, 1024, 2050))
        if key == "o_groups":
            return rng.choice([n for n in range(1, self.heads + 1) if self.heads % n == 0])
        if key == "head_dim" or key.endswith("_head_dim"):
            return rng.choice((16, 32, 48, 64, 96)) if value else None
        if value >= 64:
            return rng.choice((32, 48, 64, 96, 128, 160, 256))
        if value >= 8:
            return rng.choice((value // 2, value * 2, value + 8))
        if value < 0:
            return rng.randint(2, 4)
        return rng.randint(0 if re.search("shared|nextn|first|start|dense", key) else 1, max(4, 2 * value))

    def nothing(self, key):
        rng = self.rng
        if re.search("indices|idxs", key):
            return sorted(rng.sample(range(self.layers), rng.randint(0, self.layers)))
        if re.search("_types|pattern|layers", key):
            return None
        if re.search("heads|num_kv|n_head", key):
            return rng.choice([n for n in range(1, self.heads + 1) if self.heads % n == 0])
        if "window" in key:
            return rng.choice((8, 16, 128))
        if re.search("head_dim|rank|dim|size|width|inner|latent", key):
            return rng.choice((32, 64, 96))
        if re.search("^num_|^n_|step|freq|interval", key):
            return rng.randint(1, 2)
        return None

    def list(self, key, value):
        rng = self.rng
        if value and all(isinstance(v, str) for v in value) and (len(value) == self.old or "layer" in key):
            names = set(value)
            for kinds in KINDS if "sliding_window" in self.default or "mlp" in key else ():
                if names & set(kinds) and rng.random() < 0.7:
                    names |= set(kinds)
            made = [rng.choice(sorted(names)) for _ in range(self.layers)]
            if "indexer" in key:
                made = ["full", *(rng.choice(("full", "shared")) for _ in made[1:])]
            return made
        if value and all(isinstance(v, int) for v in value) and len(value) == self.old and set(value) <= {0, 1}:
            return [rng.randint(0, 1) for _ in range(self.layers)]
        if all(isinstance(v, int) for v in value):
            return sorted(rng.sample(range(self.layers), rng.randint(0, self.layers)))
        return None

    def changes(self, forced, share):
        """Changes of some keys, those that are forced among them."""
        found = self.skeleton()
        fixed = set(found) | set(CHOICES.get(self.kind, ()))
        patterned = any("window_pattern" in key for key in self.default)
        for key, value in self.default.items():
            if key in fixed or SKIPPED.search(key) or key == "model_type":
                continue
            along = isinstance(value, list) and len(value) == self.old  # follows the number of layers
            chance = 0 if key in self.avoided else share if not along else 0.1 if patterned else 0.6
            if key in forced or self.rng.random() < chance:
                new = self.change(key, value)
                if new is not None:
                    found[key] = new
        if "sliding_attention" in (found.get("layer_types") or ()):  # no layer without its window
            for key in ("sliding_window", "use_sliding_window"):
                if key in self.default and not found.get(key, self.default[key]):
                    found[key] = self.rng.choice((8, 16, 128)) if key == "sliding_window" else True
        return {k: v for k, v in found.items() if k == "vocab_size" or v != self.default.get(k)}


def judge(spelling, values, total, near):
    """(outcome, what is said) of hwdesign's reading of a config."""
    try:
        model = hw.load(values)
    except ValueError as error:
        missing = spelling not in ("all", "saved") and "got nothing" in str(error)
        return "incomplete" if missing else "refused", str(error)
    if model.parameters != total:
        return "differ", f"{spelling}: {model.parameters} here, {total} there ({model.parameters - total:+d})"
    if near is not None and windows_here(model) != near:
        return "differ", f"{spelling}: windows {dict(windows_here(model))} here, {dict(near)} there"
    return "equal", ""


def sweep(kind, count, seed):
    """Row of a type, what differs, and configs for the tests."""
    case, rng = Case(kind), random.Random(f"{kind} {seed}")
    outcomes, refusals, differ, sample = collections.Counter(), collections.Counter(), [], []
    pool = [k for k in case.default if not SKIPPED.search(k) and k != "model_type"]
    examples, covered, failed, others, why = [], set(), 0, set(), ""
    avoided = set()  # keys whose change was refused: changed again when it is their turn
    for i in range(count):
        for attempt in range(TRIES):
            forced = pool[i::count] if len(pool) >= count else [pool[i % len(pool)]]
            draw = Draw(rng, kind, case.default, avoided)
            changes = draw.changes(() if attempt > TRIES // 2 else forced, 0.4 / (1 + attempt))
            if attempt == 0 and i < 2:
                changes = case.doubled() if i else {}
            try:
                cfg = case.make(changes)
                total, other = build(cfg)
                break
            except Exception as error:  # whatever a class raises about a config
                failed += 1
                why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:100]
        else:
            continue
        others |= other
        reason, extra = EXPLAINED.get(kind, ("", None))
        if extra:
            total -= extra(text_of(cfg))
        try:
            near = None if kind in WINDOWS else windows_there(cfg)
        except (AttributeError, KeyError):  # a kind of layer that its caches do not know
            near = None
        results = {}
        spelt = case.spellings(cfg, rng)
        for spelling, values in spelt.items():
            outcome, said = judge(spelling, values, total, near)
            results[spelling] = outcome
            outcomes[outcome] += 1
            if outcome == "differ":
                differ.append((said, json.dumps(changes)))
            elif outcome == "refused":
                refusals[re.sub(r"got .*", "", said)[:110]] += 1
                if refusals[re.sub(r"got .*", "", said)[:110]] == 1:
                    examples.append((said, json.dumps(changes)))
                key = re.search(r"'(?:[\w.]*\.)?(\w+)'", said)
                avoided |= {k for k in changes if key and k.strip("_") == key[1].strip("_")} - set(SIZES)
        outcomes["configs"] += 1
        for key, values in case.without(spelt["saved"]) if i < 2 else ():
            outcome, said = judge(f"without {key}", values, total, near)
            outcomes[outcome] += 1
            if outcome == "differ":
                differ.append((said, json.dumps(changes)))
        if "equal" in results.values():
            covered |= set(changes)
            chosen = "short" if results["short"] == "equal" and i else "saved"
            if results[chosen] == "equal":
                sample.append((kind, total, sum(near.values()) if near is not None else "", case.trimmed(spelt[chosen])))
    row = {
        "model_type": kind,
        "transformers": transformers.__version__,
        "torch": torch.__version__.split("+")[0],
        **{name: outcomes[name] for name in OUTCOMES},
        "failed_there": failed,
        "keys_changed": f"{len(covered & set(pool))} of {len(pool)}",
        "refusal": "; ".join(f"{n} x {text}" for text, n in refusals.most_common(1)),
        "explanation": EXPLAINED.get(kind, ("",))[0] or WINDOWS.get(kind, ""),
    }
    notes = {"refusals": refusals, "left": sorted(set(pool) - covered), "buffers": others, "why": why, "examples": examples}
    if others - CONSTANTS:
        differ.append((f"buffers that nobody knows: {', '.join(sorted(others - CONSTANTS))}", ""))
    return row, differ, sample, notes


def kinds_there():
    """Model types that hwdesign reads and transformers knows."""
    return [kind for kind in (*READERS, *ALIASES) if kind in CONFIG_MAPPING_NAMES and kind not in UNBUILT]


def write(path, columns, rows):
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def class_keys(kind):
    """Key -> what its class says where it is missing, of the keys that may change a weight, a cache or a context."""
    case = Case(kind)
    cls = type(text_of(case.cls())) if case.key else case.cls
    fields = {f.name: f for f in dataclasses.fields(cls)}
    found = {}
    for name in fields.keys() - {f.name for f in dataclasses.fields(PreTrainedConfig)}:
        value = fields[name].default_factory() if fields[name].default is dataclasses.MISSING else fields[name].default
        if not SKIPPED.search(name) and not hasattr(value, "to_dict"):
            found[name] = value
    for alias, name in cls.attribute_map.items():
        if name in found:
            found.setdefault(alias, found[name])
    if case.key and kind == case.outer:  # whether matrices are tied is the wrapper's to say
        found.pop("tie_word_embeddings", None)
        if isinstance(tied := getattr(case.cls, "tie_word_embeddings", None), bool):
            found["tie_word_embeddings"] = tied
    return dict(sorted(found.items()))


def write_keys():
    oracle = f"transformers {transformers.__version__}"
    columns = ("model_type", "defaults", "oracle")
    rows = [dict(zip(columns, (kind, json.dumps(class_keys(kind)), oracle), strict=True)) for kind in sorted(kinds_there())]
    write(KEYS, columns, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", help="only these, separated by commas; the table is not written")
    parser.add_argument("--configs", type=int, default=25, help="how many configs a type")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=0, help="how many configs a type to keep for the tests")
    parser.add_argument("--keys", action="store_true", help="only write what a missing key means to each class")
    parser.add_argument("--verbose", action="store_true", help="all refusals and keys that were never changed")
    given = parser.parse_args()
    if given.keys:
        return write_keys()
    kinds = given.types.split(",") if given.types else kinds_there()
    rows, kept, bad, start = [], [], 0, time.time()
    for done, kind in enumerate(kinds, 1):
        row, differ, sample, notes = sweep(kind, given.configs, given.seed)
        rows.append(row)
        kept += sample[: given.sample]
        bad += len(differ)
        said = ", ".join(f"{row[name]} {name}" for name in (*OUTCOMES[1:], "failed_there"))
        print(f"{done}/{len(kinds)} {time.time() - start:.0f} s {kind}: {said}, keys {row['keys_changed']}", flush=True)
        for said, changes in differ[:3]:
            print(f"  DIFFERS {said}\n    {changes}", flush=True)
        if given.verbose:
            for text, times in notes["refusals"].most_common():
                print(f"  refused {times} x {text}")
            for said, changes in notes["examples"] if len(kinds) < 6 else ():
                print(f"  {said}\n    {changes}")
            print(f"  never changed: {', '.join(notes['left'])}; buffers: {', '.join(notes['buffers'])}; fails: {notes['why']}")
    totals = {c: sum(row[c] for row in rows) for c in (*OUTCOMES, "failed_there")}
    print(f"{len(rows)} types: {totals}")
    if not given.types:
        write(TABLE, COLUMNS, rows)
        if given.sample:
            columns = ("model_type", "total", "window_layers", "config", "oracle")
            oracle = f"transformers {transformers.__version__}"
            write(SAMPLE, columns, [dict(zip(columns, (k, t, n, json.dumps(c), oracle), strict=True)) for k, t, n, c in kept])
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
