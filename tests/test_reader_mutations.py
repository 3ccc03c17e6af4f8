"""20,000 mutations over every model type that is read, readers and aliases alike, each with a declared outcome.

A mutation ends in an error of one line that names the mutated key or one that it contradicts, in the same model where the key is
declared to change nothing, or in another model where another value makes sense. Nothing else may be raised, and no size may be
ignored. What a missing key means is held to the class attributes of transformers 5.24.0 (`data/class_keys_2026.csv`).
"""

import csv
import json
import math
import random
import re
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import configs_2026
from test_config_mutations import PLAIN, SHAPING

from hwdesign.models import config
from hwdesign.models.architectures import ALIASES, DEFAULTS, READERS
from hwdesign.models.blocks import DenseFFN, MoE, SelfAttention
from hwdesign.models.blocks_text import blocks_text
from hwdesign.models.compressed import CompressedAttention
from hwdesign.models.indexer import Indexer
from hwdesign.models.latent import LatentAttention
from hwdesign.models.linear import GatedDeltaNet, KimiDelta, LightningAttention, Mamba1, ShortConvolution
from hwdesign.models.mamba import Mamba2

DATA = Path(__file__).parent / "data"
KINDS = sorted({*READERS, *ALIASES})
COUNT, SECONDS = 20_000, 60  # of the processor
EACH = 3  # configs of a type from each file
LONGEST = 700  # characters of an error

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
        "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 6,
        "vocab_size": 102400, "num_attention_heads": 16, "num_key_value_heads": 16, "n_routed_experts": 64, "moe_layer_freq": 1,
        "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "kv_lora_rank": 512, "q_lora_rank": None,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "topk_method": "greedy", "tie_word_embeddings": False,
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


def flat(outer):
    """Config of a language model: what stands in a wrapper, under the type and the tying of the wrapper where it has none."""
    nest = next((key for key in config.NESTED if key in outer), None)
    if nest:
        return {k: v for k, v in outer.items() if k in ("model_type", "tie_word_embeddings")} | flat(outer[nest])
    return {k: v for k, v in outer.items() if k not in ("vision_config", "audio_config")}  # named by the sheet as left out


def bases():
    """Model type -> its configs: those with counts by others, or those of a type with the same reader."""
    found = defaultdict(list)
    for name in ("class_defaults_2026.csv", "class_defaults_more.csv"):
        rows = defaultdict(list)
        for row in csv.DictReader((DATA / name).open(encoding="utf-8")):
            rows[row["model_type"]].append(row["config"])
        for kind in sorted(rows.keys() & KINDS):
            found[kind] += [{**flat(json.loads(text)), "model_type": kind} for text in rows[kind][:EACH]]
    for file in configs_2026().values():
        values = flat(json.loads(file.read_text(encoding="utf-8")))
        left = {"_source", "auto_map"} | (set() if "expert_dtype" in values else {"quantization_config"})
        found[values["model_type"]].append({k: v for k, v in values.items() if k not in left})
    for kind, values in OWN.items():
        found[kind].append({**values, "model_type": kind})
    for kind in sorted(set(KINDS) - set(found)):
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
CLASS = {
    row["model_type"]: json.loads(row["defaults"])
    for row in csv.DictReader((DATA / "class_keys_2026.csv").open(encoding="utf-8"))
}
MINIMAX = ("minimax_m3", "minimax_m3_vl", "minimax_m3_vl_text")
ATTENTION = (SelfAttention, LatentAttention, CompressedAttention)
# Sizes of parts that the model of a config may be without -> the parts; they change nothing then.
LACKING = {
    "n_routed_experts|num_(local_)?experts|(moe_)?num_experts(_per_tok)?|moe_intermediate_size|(moe_)?(n|num)_shared_experts|"
    "(moe_)?shared_expert_intermediate_size|moe_topk|moe_k": (MoE,),
    "(prefix_)?dense_intermediate_size|intermediate_size_mlp": (DenseFFN,), "num_attention_heads": ATTENTION,
    "num_key_value_heads|head_dim": (SelfAttention, CompressedAttention, LightningAttention),
    "kv_lora_rank|q_lora_rank|qk_(nope|rope)_head_dim|v_head_dim": (LatentAttention, CompressedAttention, SelfAttention),
    "linear_.*": (GatedDeltaNet, KimiDelta, LightningAttention), "index_.*": (Indexer, CompressedAttention),
    "num_sliding_attention_heads|max_window_layers|sliding_window": ("window",), "conv_L_cache": (ShortConvolution,),
}  # fmt: skip
# Keys that change nothing where a list says the same thing layer by layer.
LISTED = {
    "max_window_layers": "layer_types", "global_attn_every_n_layers": "layer_types", "layer_group_size": "layer_types",
    **dict.fromkeys(("sliding_window_pattern", "_sliding_window_pattern", "prefix_dense_sliding_window_pattern"), "layer_types"),
    "first_k_dense_replace": "mlp_layer_types", "num_attention_heads": "num_attention_heads_per_layer",
}  # fmt: skip
# Keys that change nothing, in the types named: the head of latent attention is the sum of its two parts; a rotary part lies
# within the head; positions that rotate; the only width of LFM2 is `block_ff_dim`; a norm in groups is as wide as without; Falcon
# looks at `num_kv_heads` in its newer blocks, and at the number of norms where both parts stand side by side; Hunyuan adds
# shared experts if `use_mixed_mlp_moe` is on; which layers rotate, and which of each eight of Jamba attend; shared experts of
# MiniMax-M3 where all its layers are dense; norms of Llama 4 have no weights, and Ling
# with Kimi delta attention has none; Falcon-H1 and Nemotron-H give the width of Mamba, or its heads, by itself.
IDLE = {
    "qk_head_dim": {"glm_moe_dsa"}, "qk_rope_head_dim": {"deepseek_ref", "deepseek_v4", "deepseek_v41", "deepseek_v41_text"},
    "n_positions": {"codegen", "ctrl", "gptj"}, "n_ctx": {"codegen"}, "vocab_size_per_layer_input": {"gemma4", "gemma4_text"},
    "attn_res_block_size": {"kimi_k3", "kimi_linear"}, "num_kv_heads": {"falcon"}, "num_ln_in_parallel_attn": {"falcon"},
    "intermediate_size": {"axk2", "deepseek_ocr2", "deepseek_ocr2_text", "dots3_note_text", "ernie4_5_vl_moe",
        "ernie4_5_vl_moe_text", "inkling_text", "lfm2", "mistral_large4", "mistral_large4_text", "zamba", "zamba2"},
    "group_norm_size": {"bailing_moe_linear"}, "num_shared_expert": {"hunyuan"}, "no_rope_layers": {"smollm3"},
    "attn_layer_offset": {"jamba", "zamba"}, "attn_layer_period": {"jamba", "zamba"},
    "shared_intermediate_size": {"minimax_m3", "minimax_m3_vl", "minimax_m3_vl_text"},
    "use_qk_norm": {"bailing_hybrid", "llama4", "llama4_text"}, "mamba_expand": {"falcon_h1"}, "expand": {"nemotron_h"},
    "num_key_value_heads": {"axk2", "dots3_note_text", "inkling_text", "mistral_large4", "mistral_large4_text"},
    "head_dim": {"axk2", "dots3_note_text", "inkling_text"}, "ple_conv_kernel_size": {"qwen4_exp", "qwen4_exp_text"},
    "ple_embed_dim": {"qwen4_exp", "qwen4_exp_text"}, "num_query_groups": {"zamba2"}, "n_mamba_heads": {"zamba"},
    "conv1d_width": {"recurrent_gemma"}, "lru_width": {"recurrent_gemma"}, "model_parallel_size": {"chameleon"},
    "number_of_conv_states": {"inkling_text", "qwen4_exp", "qwen4_exp_text"}, "unpadded_vocab_size": {"inkling_text"},
    "shared_experts_intermediate_size": {"dots3_note_text"},
    "moe_intermediate_size": {"dots3_note_text", "inkling_text"}, "num_attention_heads": {"inkling_text"},
}  # fmt: skip
# What an error about a key may name in its place: what it must fit to, or what would say the same.
RELATED = {
    "num_hidden_layers": {"layer_types", "block_configs", "attn_layer_indices", "mlp_layer_types", "layers_block_type",
                          "compress_ratios", "full_attn_layers", "sparse_attention_freq", "hybrid_override_pattern",
                          "cross_attention_layers", "first_k_dense_replace", "hybrid_layer_pattern", "indexer_types",
                          "kv_source_layer_ids", "kv_source_layers", "mlp_only_layers", "n_recurrent_layers", "no_rope_layers",
                          "num_attention_heads_per_layer", "num_layers_per_stack"},
    "num_nextn_predict_layers": {"compress_ratios"}, "routed_expert_hidden_size": {"latent_moe_use_norm"},
    "num_experts": {"num_experts_per_tok"}, "num_local_experts": {"intermediate_size", "num_experts_per_tok"},
    "n_routed_experts": {"num_experts_per_tok", "zero_expert_num"}, "n_embd": {"head_dim", "n_head"},
    "n_head": {"head_dim", "n_embd"},
    "num_attention_heads": {"head_dim", "hidden_size", "kv_channels", "linear_num_heads", "lru_width",
        "num_key_value_heads", "swa_num_key_value_heads"},
    "hidden_size": {"attention_hidden_size", "head_dim", "intermediate_size", "kv_channels", "lru_width", "mamba_d_head",
        "mamba_headdim", "mamba_n_heads", "multi_query_group_num", "n_mamba_heads", "num_attention_heads", "num_heads",
        "word_embed_proj_dim"}, "mamba_n_heads": {"mamba_d_head"},
    "mamba_expand": {"mamba_d_head", "mamba_headdim", "n_mamba_heads"}, "expand": {"intermediate_size", "num_heads"},
    "head_dim": {"num_heads"}, "qk_nope_head_dim": {"qk_head_dim"}, "qk_rope_head_dim": {"head_dim", "qk_head_dim"},
    "vocab_size": {"padded_vocab_size"}, "short_conv_kernel_size": {"linear_conv_kernel_dim"},
    "use_bias": {"mamba_proj_bias"},
    "engram_layer_ids": {"engram_num_embeddings"}, "n_shared_experts": {"moe_shared_expert_intermediate_size"},
    "num_layers": {"attention_layers", "attention_types"}, "attention_types": {"attention_layers"},
    "attention_layers": {"attention_types"}, "n_input_layers": {"n_recurrent_layers"},
    "n_output_layers": {"n_recurrent_layers"}, "num_layers_per_stack": {"num_hidden_layers"},
    "H_cycles": {"num_hidden_layers"}, "L_cycles": {"num_hidden_layers"}, "local_attention": {"sliding_window"},
    "n_mamba_heads": {"mamba_headdim", "mamba_ngroups"}, "num_heads": {"hidden_size"},
    "mlp_layer_types": {"first_k_dense_replace"}, "indexer_compress_ratio": {"indexer_budget"}, "moe_num_experts": {"moe_k"},
    "attn_layer_period": {"attn_layer_offset"}, "mamba_d_ssm": {"mamba_d_head"},
    "num_key_value_heads": {"swa_num_key_value_heads", "num_attention_groups", "num_attention_heads"},
    "num_experts_per_tok": {"num_attention_heads"}, "swa_num_attention_heads": {"swa_num_key_value_heads"},
    "layer_types": {"hybrid_layer_pattern", "compress_ratios", "sparse_attention_config", "moe_layer_freq", "mlp_layer_types",
                    "attn_type_list", "per_layer_config", "layer_group_size"},
    "layers_block_type": {"num_hidden_layers", "hybrid_override_pattern"}, "intermediate_size": {"block_ff_dim"},
    "enable_moe_block": {"num_experts"}, "linear_attn_config": {"layer_types"}, "use_sliding_window": {"sliding_window"},
}  # fmt: skip
# Missing, they make no other count: what is left out, and the longest context, are not known then.
UNKNOWN = {"max_position_embeddings", "n_positions", "num_nextn_predict_layers"}
# Lists and objects that change no count; the blocks of a prediction layer may change what is said to be left out.
LOOSE = {"rope_scaling", "rope_parameters", "architectures", "mtp_layers_block_type", "mtp_hybrid_override_pattern",
         "eos_token_id", "label2id", "id2label", "time_step_limit", "vocabulary_map", "L_bp_cycles", "vq_config"}  # fmt: skip
SWITCHED = {  # switches of weights -> the parts that have them
    "conv_bias": (ShortConvolution, Mamba1, Mamba2), "^attention_bias|qkv_bias|_out_bias": ATTENTION, "mlp_bias": (DenseFFN, MoE),
    "tie_word": (object,), "qk_norm": (object,),
}  # fmt: skip
NO_LAYERS = {"attn_layer_indices"}  # must be given, null for none
TOGETHER = {"use_bias": "mamba_proj_bias", "mamba_proj_bias": "use_bias", "sliding_window": "sliding_window_size"}  # one thing
NONSENSE = (-1, -(10**30), 10**30, 10**5000, 8.5, math.nan, math.inf, "8", "many", ["8"], [None], [[1], {}], {"8": 8}, {"a": [1]})
FAMILIES = (
    ("hidden_size", "n_embd", "d_model"), ("num_hidden_layers", "n_layer", "num_layers"), ("vocab_size", "n_vocab"),
    ("num_attention_heads", "n_head", "n_heads"), ("num_key_value_heads", "n_head_kv", "num_kv_heads"),
    ("intermediate_size", "ffn_hidden_size"), ("num_experts", "num_local_experts", "n_routed_experts"),
    ("num_experts_per_tok", "experts_per_token", "top_k_experts"), ("head_dim", "attention_head_dim"),
    ("tie_word_embeddings", "tie_embedding"),
)  # fmt: skip
READ_HERE = {  # keys of SHAPING that these readers know
    **dict.fromkeys(("step3p5", "step3p7"), {"use_moe"}), **dict.fromkeys(MINIMAX, {"index_head_dim"}),
    **dict.fromkeys([k for k in KINDS if k.startswith(("qwen3_next", "qwen3_5"))], {"attn_output_gate"}),
    **dict.fromkeys(("kimi_linear", "kimi_k3", "glm5_next", "glm5_next_text"), {"linear_attn_config"}),
    **dict.fromkeys(("gemma3n", "gemma3n_text"), {"altup_num_inputs"}), "jamba": {"mamba_d_state", "attn_layer_period"},
    **dict.fromkeys(("bamba", "falcon_h1", "granitemoehybrid"), {"mamba_d_state"}),
}  # fmt: skip
# Numbers in real configs that change no count: tokens, beams, groups that experts are picked from, training, prediction layers.
NO_SIZE = re.compile(
    "token|_id$|beam|length|ngram|ep_size|n_group$|topk_group|expert_group|return_seq|sequences|time_step|sinkhorn|mtp|chunk|hash|"
    "rotary_dim|logits|init_block|local_block|query_pre_attn|dim_model_base|original_max|^block_size|candidate_block|alibi|pdrop"
)  # fmt: skip
TOWERS = {"num_nextn_predict_layers", "vision_config", "audio_config"}  # named by the sheet as left out
ADDED = {key: value for key, value in PLAIN.items() if key not in {*TOWERS, "hidden_act", "lora_rank"}}


@dataclass
class Mutation:
    """A changed config, and what may come of it.

    `names`: keys of which an error must name one; none: no error. `allowed`: "same", the model of the config before, or "other".
    `like`: a config that means the same, whose outcome is the only one besides an error by name.
    """

    values: dict
    names: set
    allowed: tuple = ()
    like: dict | None = None


def size(key, value):
    """Whether a key holds a size or a number of things."""
    words = "size|dim|hidden|num_|n_|layers|heads|rank|experts|inner|width|kernel|groups|conv|state|latent|expand|window|mult$"
    return type(value) is int and bool(re.search(words, key)) and not NO_SIZE.search(key)


def pick(rng, c, fits=lambda key, value: True):
    """A key of a config other than its type, or None."""
    return rng.choice([k for k, v in c.items() if k != "model_type" and fits(k, v)] or [None])


def without(c, key):
    return {k: v for k, v in c.items() if k != key}


def about(key):
    return {key} | RELATED.get(key, set())


def parts(c):
    """Types of the parts that the model of a config is made of, and "window" where one has a window."""
    found = set()
    todo = [part for block in outcome(c)[-1] for part in (block.mixer, block.ffn)]
    for part in todo:
        todo += [inner for name in ("first", "second", "indexer") if (inner := getattr(part, name, None))]
        found |= {*type(part).__mro__} | ({"window"} if getattr(part, "window", None) else set())
    return found


PARTS = {id(c): parts(c) for configs in BASES.values() for c in configs}


def idle(kind, key, c):
    """Whether a key of a config changes nothing."""
    if not size(key, c[key]) or kind in IDLE.get(key, ()) or key in UNKNOWN or c.get(LISTED.get(key)):
        return True
    apart = key == "intermediate_size" and any("moe_intermediate" in k or k == "block_ff_dim" for k in c)
    needed = [DenseFFN] if apart else next((made for keys, made in LACKING.items() if re.fullmatch(keys, key)), [object])
    if key == "intermediate_size" and {"intermediate_size_mlp", "dense_intermediate_size"} & c.keys():  # the width of experts
        needed = [MoE]
    return not PARTS[id(c)] & set(needed)


def nonsense(rng, kind, c):
    key = pick(rng, c)
    allowed = ("same", "other") if key in LOOSE else ("same",) if idle(kind, key, c) else ()
    return Mutation({**c, key: rng.choice(NONSENSE)}, {key}, allowed)


def another_size(rng, kind, c):
    key = pick(rng, c, size)
    return resized(kind, c, key, rng.choice([c[key] + 1, 2 * c[key], 3 * c[key], c[key] // 2, c[key] + 64, 0]))


def resized(kind, c, key, value):
    same = ("same",) if value == c[key] or idle(kind, key, c) else ()
    return Mutation({**c, key: value}, about(key), ("other", *same))


def drop(rng, kind, c):
    return dropped(kind, c, pick(rng, c))


def dropped(kind, c, key):
    """Without a key: what its class says."""
    if key not in CLASS.get(kind, {}) or key in UNKNOWN or TOGETHER.get(key) in c or c.get(LISTED.get(key)):
        return Mutation(without(c, key), about(key), ("same", "other"))
    return Mutation(without(c, key), about(key), like={**c, key: CLASS[kind][key]})


def null(rng, kind, c):
    return nulled(kind, c, pick(rng, c))


def nulled(kind, c, key):
    """Null, which means what a missing key does where the class has null for it."""
    if CLASS.get(kind, {}).get(key, 0) is None and key not in UNKNOWN | NO_LAYERS:
        return Mutation({**c, key: None}, about(key), like=without(c, key))
    return Mutation({**c, key: None}, about(key), ("same", "other"))


def switch(rng, kind, c):
    """A switch the other way round, or what is none."""
    key = pick(rng, c, lambda key, value: type(value) is bool)
    if key is None:
        return null(rng, kind, c)
    value = rng.choice([not c[key], "false", "true", [True], 2.0, 7, {"on": True}])
    return Mutation({**c, key: value}, about(key), ("same", "other") if value is (not c[key]) else ("same",))


def entry(rng, kind, c):
    """A wrong entry in a list or an object."""
    key = pick(rng, c, lambda key, value: bool(value) and isinstance(value, list | dict))
    if key is None:
        return nonsense(rng, kind, c)
    bad = rng.choice([7.5, "nonsense", {"a": 1}, -1, 10**12, [[1]], True])
    if isinstance(c[key], list):
        fine = ("same", "other") if key in LOOSE else ("same",) if kind in IDLE.get(key, ()) else ()
        i = rng.randrange(len(c[key]))
        return Mutation({**c, key: [*c[key][:i], bad, *c[key][i + 1 :]]}, {key}, fine)
    inner = rng.choice(sorted(c[key]))
    loose = key in LOOSE or key == "quantization_config"  # whose modules have groups of their own, see test_quantization.py
    fine = ("same",) if loose or type(c[key][inner]) is not int or NO_SIZE.search(inner) else ()
    return Mutation({**c, key: {**c[key], inner: bad}}, {key, inner}, fine)


def length(rng, kind, c):
    """A list too long, too short, turned round or of another thing."""
    key = pick(rng, c, lambda key, value: bool(value) and isinstance(value, list))
    if key is None:
        return wrap(rng, kind, c)
    value = rng.choice([c[key][:-1], c[key] + c[key][-1:], c[key][::-1], 2 * c[key], {"0": c[key]}, [c[key]]])
    fine = ("same", "other") if isinstance(value, list) or key in LOOSE else ("same",) if kind in IDLE.get(key, ()) else ()
    return Mutation({**c, key: value}, about(key), fine)


def slip(rng, kind, c):
    """A key with letters exchanged, left out or doubled."""
    key = pick(rng, c, lambda key, value: len(key) > 5)
    i = rng.randrange(1, len(key) - 1)
    wrong = rng.choice([key[:i] + key[i + 1] + key[i] + key[i + 2 :], key[:i] + key[i + 1 :], key[:i] + key[i] + key[i:]])
    if wrong in c:
        return reorder(rng, kind, c)
    return Mutation({wrong if k == key else k: v for k, v in c.items()}, {wrong} | about(key), ("same",))


def contradict(rng, kind, c):
    """The same thing under two names, with two values."""
    said = [(family, [k for k in family if c.get(k)]) for family in FAMILIES]
    known = [(family, keys[0]) for family, keys in said if len(keys) == 1 and type(c[keys[0]]) in (int, bool)]
    family, key = rng.choice(known)
    other = rng.choice([k for k in family if k != key])
    value = False if c[key] is True else c[key] + rng.choice([1, 64])
    names = {other} | ({key} if value is False else set())
    return Mutation({**c, other: value}, names, ("same",) if value is False and other not in c else ())


def unknown(rng, kind, c):
    """A key that nobody knows and that may change a count."""
    key = rng.choice(sorted(SHAPING.keys() - c.keys() - READ_HERE.get(kind, set())))
    return Mutation({**c, key: SHAPING[key]}, {key})


def plain(rng, kind, c):
    key = rng.choice(sorted(ADDED.keys() - c.keys()))
    return Mutation({**c, key: ADDED[key]}, set(), ("same",))


def wrap(rng, kind, c):
    """In the config of a model with towers; its type inside or outside."""
    nest = rng.choice(config.NESTED)
    if rng.random() < 0.5:
        return Mutation({"model_type": kind, nest: without(c, "model_type")}, set(), ("same",))
    wrapper = {"model_type": "wrapper", "vision_tower": {"num_hidden_layers": 3, "hidden_size": 9}, "hidden_size": 5}
    return Mutation({**wrapper, nest: c}, set(), ("same",))


def wrong_nest(rng, kind, c):
    """Twice, under a key that nobody knows, or as a list."""
    twice = {"model_type": "wrapper", "text_config": c, "llm_config": c}
    elsewhere = {"model_type": kind, "model_config": without(c, "model_type")}
    values = rng.choice([twice, elsewhere, {"model_type": kind, "text_config": [c]}])
    return Mutation(values, {"text_config", "model_config", "hidden_size"})


def reorder(rng, kind, c):
    return Mutation(dict(rng.sample(sorted(c.items()), len(c))), set(), ("same",))


WAYS = (nonsense, another_size, drop, null, switch, entry, length, slip, contradict, unknown, plain, wrap, wrong_nest, reorder,
        nonsense, another_size, drop, entry, slip)  # fmt: skip


def named(text, names):
    """Whether an error is one line that names one of some keys."""
    keys = "|".join(map(re.escape, names))
    return "\n" not in text and len(text) < LONGEST and bool(names) and bool(re.search(rf"(?<!\w)({keys})(?!\w)", text))


def wrong(mutation, before):
    """What is wrong with the outcome of a mutation, or None."""
    got = outcome(mutation.values)
    if isinstance(got, str):
        return None if named(got, mutation.names) else f"error {got!r}"
    if mutation.like is not None:
        expected = outcome(mutation.like)
        return None if got == expected else f"{got[:5]}, and with what its class says {expected[:5]}"
    found = "same" if got == before else "other"
    return None if found in mutation.allowed else f"{found} model {got[:5]}"


def problems(kinds, count, seed=7):
    """Mutations that end as nothing declares, and how often each way was tried of each type."""
    rng, found, tried = random.Random(seed), [], defaultdict(set)
    before = {kind: [outcome(c) for c in BASES[kind]] for kind in kinds}
    for number in range(count):
        kind, way = kinds[number % len(kinds)], WAYS[number // len(kinds) % len(WAYS)]
        i = rng.randrange(len(BASES[kind]))
        mutation = way(rng, kind, BASES[kind][i])
        tried[kind].add(way)
        try:
            odd = wrong(mutation, before[kind][i])
        except Exception as error:
            odd = f"raised {error!r}"
        if odd:
            changed = {k: config._shown(v) for k, v in mutation.values.items() if BASES[kind][i].get(k, k) is not v}
            found.append(f"{way.__name__} of {kind}: {str(changed)[:200]}: {odd[:300]}")
    return found, tried


def test_every_model_type_that_is_read_has_configs_to_mutate():
    """A new type needs rows in class_defaults_2026.csv or class_defaults_more.csv, or sizes in OWN where nobody counted it."""
    assert set(KINDS) <= set(BASES) and not [kind for kind in KINDS if any(isinstance(outcome(c), str) for c in BASES[kind])]


@pytest.mark.parametrize("count", [5_000, pytest.param(COUNT, marks=pytest.mark.weekly)])
def test_thousands_of_mutations_of_all_readers_end_as_declared(count):
    start = time.process_time()
    found, tried = problems(KINDS, count)
    spent = time.process_time() - start
    assert not found, f"{len(found)} of {count} undeclared, such as\n" + "\n".join(found[:10])
    assert set(tried) == set(KINDS) and all(ways == set(WAYS) for ways in tried.values())
    assert spent < SECONDS, f"{spent:.0f} s"  # about 10 s


def of_each_key(kind, c):
    """Each key of a config missing, null, twice as large or the other way round."""
    for key, value in c.items():
        if key != "model_type":
            yield key, dropped(kind, c, key)
            yield key, nulled(kind, c, key)
            if size(key, value):
                yield key, resized(kind, c, key, 2 * value)
            if type(value) is bool and (made := next((made for word, made in SWITCHED.items() if re.search(word, key)), None)):
                fine = kind in IDLE.get(key, ()) or not PARTS[id(c)] & set(made)
                yield key, Mutation({**c, key: not value}, about(key), ("same", "other") if fine else ("other",))


def faults(kinds):
    found = []
    for kind in kinds:
        for c in BASES[kind][::2]:  # the one between is the first with other heads
            before = outcome(c)
            found += [f"{kind}: {key}: {odd}" for key, m in of_each_key(kind, c) if (odd := wrong(m, before))]
    return found


@pytest.mark.parametrize("part", [slice(None, None, 4), pytest.param(slice(None), marks=pytest.mark.weekly)], ids=["quarter", "all"])
def test_each_key_of_each_config_ends_as_declared(part):
    """A draw may miss the one key that one reader does not look at."""
    found = faults(KINDS[part])
    assert not found, f"{len(found)} undeclared, such as\n" + "\n".join(found[:10])


@pytest.mark.parametrize("number", [3, 7])
def test_heads_and_groups_that_a_reader_takes_fit_together(number):
    """A file of blocks checks what divides what, with a code of its own."""
    taken = 0
    for kind in KINDS:
        c = BASES[kind][0]
        for key in [k for k, v in c.items() if type(v) is int and re.search("head|group", k) and not idle(kind, k, c)]:
            if not isinstance(outcome({**c, key: number}), str):
                text = blocks_text(config.load({**c, key: number}))
                assert not isinstance(said := outcome(json.loads(text)), str), (kind, key, said)
                taken += 1
    assert taken > 50


# Faults of readers that these mutations have found.

HELIUM = {"model_type": "helium", "hidden_size": 2560, "num_attention_heads": 40, "head_dim": 64, "num_hidden_layers": 2,
          "vocab_size": 512, "intermediate_size": 64}  # fmt: skip
FLINT = {"model_type": "flint", "hidden_size": 128, "num_attention_heads": 32, "num_hidden_layers": 4, "vocab_size": 512,
         "intermediate_size": 96, "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2,
         "shared_expert_intermediate_size": 48,
         "layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention"]}  # fmt: skip


@pytest.mark.parametrize(("values", "parameters"), [  # of the module trees of transformers 5.24.0
    (HELIUM, 42_938_880),  # 20 key-value heads, not as many as query heads
    (FLINT, 5_161_216), ({**FLINT, "mlp_only_layers": None}, 5_161_216),  # the first two layers are dense
], ids=["helium", "flint", "null"])  # fmt: skip
def test_a_missing_key_means_what_its_class_says(values, parameters):
    assert config.load(values).parameters == parameters


@pytest.mark.parametrize(("kind", "change", "said"), [
    ("lfm3", {"layer_types": None}, "'layer_types' must be a list: class and published configs"),  # was a TypeError
    ("beam", {"layer_types": None}, "'layer_types' must be a list"),  # a window everywhere
    ("cohere2_moe", {"mlp_layer_types": None}, "'mlp_layer_types' must be a list"),
    ("hy_v4", {"indexer_types": None}, "'indexer_types' must be a list"),
    ("llama4_text", {"moe_layers": [1, -1]}, "'moe_layers' must be layer numbers from 0 to"),  # a dense layer too many
    ("openai-gpt", {"n_head": 7}, "'n_head' must be a divisor of the hidden size"),  # a key that the config does not have
    ("chatglm", {"num_layers": 0}, "'num_layers' must be a whole number"),
    *((kind, {"num_key_value_heads": 3}, "'num_key_value_heads' must be a divisor of num_attention_heads")  # 3 divides no 64
      for kind in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "minimax_m3_vl_text")),
], ids=lambda value: value if isinstance(value, str) and " " not in value else "")  # fmt: skip
def test_what_no_class_would_take_is_refused(kind, change, said):
    c = next(c for c in BASES[kind] if set(change) <= set(c) or kind == "llama4_text")
    assert said in outcome({**c, **change})


@pytest.mark.parametrize(("kind", "key"), [("kimi_k25", "tie_word_embeddings"), ("qwen2_5_omni_text", "num_key_value_heads")])
def test_what_another_class_says_is_not_taken_for_a_type_that_must_say_it(kind, key):
    """As many heads as its relative has by default, which its own class has not."""
    c = without({**BASES[kind][0], "num_attention_heads": 128, "head_dim": 128}, key)
    assert f"'{key}' must be given" in outcome(c) and not isinstance(outcome({**c, key: 4 if "num" in key else False}), str)


def test_two_letters_exchanged_in_a_short_key_are_seen():
    c = BASES["laguna"][0]
    said = outcome({**without(c, "gating"), "gatign": c.get("gating", "per-head")})
    assert "'gatign' must be a known key: did you mean 'gating'" in said


# Faults put into one reader, or into what all of them share: each is found.

MISTRAL = READERS["mistral"]


def brittle(read, hidden, kind):
    read.values["head_dim"] % 2  # a KeyError where it is missing, a TypeError where it is text
    return MISTRAL(read, hidden, kind)


def fixed(read, hidden, kind):
    read.integer("intermediate_size")
    read.values = {**read.values, "intermediate_size": 14336}
    return MISTRAL(read, hidden, kind)


def coercing(read, hidden, kind):
    read.values = {k: int(v) if isinstance(v, str) and v.isdigit() else v for k, v in read.values.items()}
    return MISTRAL(read, hidden, kind)


def swallowing(read, hidden, kind):
    read.used |= read.values.keys()
    return MISTRAL(read, hidden, kind)


@pytest.mark.parametrize("fault", [brittle, fixed, coercing, swallowing])
def test_a_faulty_reader_is_found(monkeypatch, fault):
    assert not problems(["mistral"], 400)[0]
    monkeypatch.setitem(READERS, "mistral", fault)
    assert problems(["mistral"], 400)[0]


@pytest.mark.parametrize("fault", [
    lambda patch: patch.setitem(DEFAULTS, "mistral", {}),
    lambda patch: patch.setattr(config.Reader, "finish", lambda self, kind: None),
    lambda patch: patch.setattr(config.Reader, "optional", lambda self, *keys: self.raw(*keys)[1]),
    lambda patch: patch.setattr(config.Reader, "complain", lambda self, key, accepted: ValueError(f"bad config: {accepted}")),
], ids=["defaults", "finish", "optional", "complain"])  # fmt: skip
def test_a_fault_of_all_readers_is_found(monkeypatch, fault):
    fault(monkeypatch)
    assert problems(["mistral"], 400)[0]
