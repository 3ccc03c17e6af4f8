"""20,000 mutations over every model type that is read, readers and aliases alike, each with a declared outcome.

A mutation ends in an error of one line that names the mutated key or one that the change contradicts, in the same figures where
the key is declared to change nothing, or in other figures where another value makes sense. Nothing else may be raised, and no
size may be ignored. What a missing key means is held to the class defaults of transformers 5.24.0, the first config of each type
in `data/class_defaults_2026.csv`.
"""

import csv
import json
import math
import random
import re
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from test_config_mutations import PLAIN, SHAPING

from hwdesign.models import config
from hwdesign.models.architectures import ALIASES, READERS

DATA = Path(__file__).parent / "data"
KINDS = sorted({*READERS, *ALIASES})
COUNT, SECONDS = 20_000, 60

# Types without a class in transformers 5.24.0.
OWN = {
    "bailing_moe": {
        "hidden_size": 2048, "intermediate_size": 5120, "moe_intermediate_size": 512, "num_experts": 32, "num_shared_experts": 1,
        "num_attention_heads": 16, "num_experts_per_tok": 8, "num_hidden_layers": 6, "num_key_value_heads": 4, "head_dim": 128,
        "vocab_size": 157184, "first_k_dense_replace": 1, "use_bias": False, "use_qkv_bias": False, "use_qk_norm": True,
        "tie_word_embeddings": False, "moe_router_enable_expert_bias": True, "moe_router_enable_shared_expert": True,
    },
    "longcat_flash": {
        "hidden_size": 6144, "num_layers": 6, "num_attention_heads": 64, "vocab_size": 131072, "ffn_hidden_size": 12288,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "moe_topk": 12, "n_routed_experts": 512, "zero_expert_num": 256, "expert_ffn_hidden_size": 2048,
    },
    "deepseek_v2": {
        "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 6, "vocab_size": 102400,
        "num_attention_heads": 16, "num_key_value_heads": 16, "n_routed_experts": 64, "n_shared_experts": 2, "moe_layer_freq": 1,
        "num_experts_per_tok": 6, "first_k_dense_replace": 1, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "topk_method": "greedy", "tie_word_embeddings": False,
    },
    "nemotron-nas": {
        "hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 3, "vocab_size": 32000, "tie_word_embeddings": False,
        "block_configs": [
            {"attention": {"n_heads_in_group": 4, "no_op": False}, "ffn": {"ffn_mult": 2.5, "no_op": False}},
            {"attention": {"n_heads_in_group": None, "no_op": True}, "ffn": {"ffn_mult": 1.5, "no_op": False}},
            {"attention": {"n_heads_in_group": 8, "no_op": False}, "ffn": {"ffn_mult": None, "no_op": True}},
        ],
    },
}  # fmt: skip
GIVEN = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl"), {"tie_word_embeddings": False}), "mistral_large_3": {"first_k_dense_replace": 0},
}  # fmt: skip


def bases():
    """Model type -> its configs: those that transformers counted, or those of a type with the same reader."""
    found = defaultdict(list)
    for row in csv.DictReader((DATA / "class_defaults_2026.csv").open(encoding="utf-8")):
        found[row["model_type"]].append(json.loads(row["config"]))
    for kind, values in OWN.items():
        found[kind].append({**values, "model_type": kind})
    for kind in set(KINDS) - set(found):
        reader = ALIASES.get(kind, kind)
        like = [k for k in found if READERS[ALIASES.get(k, k)] is READERS[reader] and (k == reader or _fits(kind, found[k][0]))]
        like = sorted(like, key=lambda k: (k != reader, k.removesuffix("_text") != kind, k))
        if like:
            found[kind] = [{**values, **GIVEN.get(kind, {}), "model_type": kind} for values in found[like[0]]]
    return dict(found)


def _fits(kind, values):
    return not isinstance(outcome({**values, **GIVEN.get(kind, {}), "model_type": kind}), str)


def outcome(values):
    """Figures of a config, or the one line of its refusal; anything else is raised."""
    try:
        model = config.load(values)
    except ValueError as error:
        assert type(error) is ValueError or type(error).__module__.startswith("hwdesign"), type(error)
        return str(error)
    counts = model.parameters, int(model.active_parameters(include_embedding=True)), len(model.blocks)
    kinds = frozenset({id(block): block for block in model.blocks}.values())
    return *counts, int(model.kv_bytes(70_000)), int(model.state_bytes()), model.left_out, model.max_positions, kinds


BASES = bases()
FIRST = {kind: configs[0] for kind, configs in BASES.items()}
# Keys of numbers that change no count here, by what they are.
NONSENSE = (-1, -(10**30), 10**30, 10**5000, 8.5, math.nan, math.inf, "8", "many", ["8"], [None], [[1], {}], {"8": 8}, {"a": [1]})
OFF = ("", [], {})


class Mutation:
    """A changed config, the keys that an error may name, and what else may come of it: "same" or "other" figures."""

    def __init__(self, values, names, allowed):
        self.values, self.names, self.allowed = values, names, allowed


def size(key, value):
    """Whether a key holds a size or a number of things."""
    return type(value) is int and bool(re.search("size|dim|hidden|num_|n_|layers|heads|rank|experts|inner|width|kernel|groups", key))


def nonsense(rng, kind, c):
    """A value that no key could mean: refused by its key, or the key is none that is read."""
    key = rng.choice([k for k in c if k != "model_type"])
    return Mutation({**c, key: rng.choice(NONSENSE)}, {key}, {"same"})


def other_size(rng, kind, c):
    """Another number: other figures, or an error of it or of what it must fit to."""
    key = rng.choice([k for k, v in c.items() if size(k, v)])
    value = rng.choice([c[key] + 1, 2 * c[key], 3 * c[key], max(1, c[key] // 2), c[key] + 64])
    return Mutation({**c, key: value}, {key, *RELATED}, {"other"})


def zero(rng, kind, c):
    key = rng.choice([k for k, v in c.items() if size(k, v)])
    return Mutation({**c, key: 0}, {key, *RELATED}, {"other"})


RELATED = ()
