"""20,000 mutations of real configs, each with a declared outcome: the same counts, other counts by hand, or the error."""

import csv
import json
import math
import random
import re
import time
from pathlib import Path

import pytest

from hwdesign.models import config, hybrid_readers

FOLDER = Path(config.__file__).parent / "configs"


def shipped(name):
    """Language-model part of a shipped config."""
    values = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return values.get("text_config", values)


# What `by_hand` below can count; a new architecture is held by its published integers alone until it has such a route.
BY_HAND = {
    "llama", "phi3", "qwen2", "qwen3", "olmo2", "gemma3_text", "gpt2", "gpt_neox", "mixtral", "gpt_oss", "qwen3_moe",
    "deepseek_v3", "nemotron_h", "nemotron-nas", "minimax_m2", "mimo_v2_flash", "gemma4_text", "llama4_text",
}  # fmt: skip
SHIPPED = {name: values for name in config.names() if (values := shipped(name))["model_type"] in BY_HAND}
# Its list of modules says nothing of the counts here, and is read for longer than all the rest.
SHIPPED["qwen3-235b-a22b-fp8"]["quantization_config"].pop("modules_to_not_convert")
DATA = Path(__file__).parent / "data"


def test_no_architecture_with_an_independent_route_has_lost_its_config():
    assert {values["model_type"] for values in SHIPPED.values()} == BY_HAND and len(SHIPPED) >= 29


# What a missing key means in the classes of transformers 5.24.0, where that is not what a null means.
CLASS = {
    "gemma3_text": {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256},
    "qwen2": {"num_key_value_heads": 32},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128},
    "qwen3_moe": {"num_key_value_heads": 4},
    "mixtral": {"num_key_value_heads": 8},
    "gpt_oss": {"num_key_value_heads": 8, "head_dim": 64},
    "minimax_m2": {"num_key_value_heads": 8, "head_dim": 128},
    "mimo_v2_flash": {"num_key_value_heads": 4, "head_dim": 192},
    "gemma4_text": {"vocab_size": 262144, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256},
    "llama4_text": {"num_key_value_heads": 8, "head_dim": 128},
    "nemotron_h": {"num_key_value_heads": 8, "head_dim": 128},
}


def by_class(c, without=None):
    """What a config comes to by hand when keys are missing: figures, or the key that an error names."""
    known = CLASS.get(c["model_type"], {})
    filled = {**known, **c}
    if without and without not in known:
        return without
    if filled["num_attention_heads"] % (filled.get("num_key_value_heads") or 1) and filled["model_type"] in CLASS:
        return "num_key_value_heads"
    return by_hand(filled)


def figures(values):
    model = config.load(values)
    return model.parameters, int(model.kv_bytes_per_token())


def minimax_by_hand(c, ends, attention, cache):
    """Norms over all heads; every block has experts and a correction for each."""
    h, n, e = c["hidden_size"], c["num_hidden_layers"], c["num_local_experts"]
    size = c.get("head_dim") or h // c["num_attention_heads"]
    norms = size * (c["num_attention_heads"] + (c.get("num_key_value_heads") or c["num_attention_heads"]))
    return ends + n * (attention + norms + e * (h * (3 * c["intermediate_size"] + 1) + 1) + 2 * h), n * cache


def mimo_by_hand(c, ends, attention, cache):
    """Blocks of two kinds of attention, with sinks in windows, and two kinds of feed-forward parts."""
    h, n, heads = c["hidden_size"], c["num_hidden_layers"], c["num_attention_heads"]
    near = sum(c["hybrid_layer_pattern"])
    sparse = n - 1 if c.get("moe_layer_freq") is None else sum(c["moe_layer_freq"])
    total = kept = 0
    for times, start, kv in ((n - near, "", c.get("num_key_value_heads") or heads), (near, "swa_", c["swa_num_key_value_heads"])):
        key, value, count = c.get(start + "head_dim") or h // heads, c[start + "v_head_dim"], c[start + "num_attention_heads"]
        total += times * (h * (count + kv) * (key + value) + (count if start else 0))
        kept += 2 * times * kv * (key + value)
    e = c["n_routed_experts"]
    total += (n - sparse) * 3 * h * c["intermediate_size"] + sparse * e * (h * (3 * c["moe_intermediate_size"] + 1) + 1)
    return ends + total + 2 * n * h, kept


def gemma4_by_hand(c, ends, attention, cache):
    """Every sixth block and the last with heads of 512 and no matrix for values; a dense part beside the experts."""
    h, n, heads, e = c["hidden_size"], c["num_hidden_layers"], c["num_attention_heads"], c["num_experts"]
    size = c.get("head_dim") or h // heads
    far, wide, global_kv = n // 6 + (n % 6 > 0), c["global_head_dim"], c["num_global_key_value_heads"]
    total = (n - far) * (attention + 2 * size) + far * (h * wide * (2 * heads + global_kv) + 2 * wide)
    total += n * (3 * h * c["intermediate_size"] + e * h * (3 * c["moe_intermediate_size"] + 1) + h + e + 7 * h + 1)
    return ends + total, (n - far) * cache + far * 4 * global_kv * wide


def llama4_by_hand(c, ends, attention, cache):
    """Every second block with experts and a shared one."""
    h, n, w = c["hidden_size"], c["num_hidden_layers"], c["intermediate_size"]
    sparse = n // c["interleave_moe_layer_step"]
    moe = c["num_local_experts"] * h * (3 * w + 1) + 3 * h * w
    return ends + n * (attention + 2 * h) + sparse * moe + (n - sparse) * 3 * h * c["intermediate_size_mlp"], n * cache


NEWER_BY_HAND = {"minimax_m2": minimax_by_hand, "mimo_v2_flash": mimo_by_hand, "gemma4_text": gemma4_by_hand,
                 "llama4_text": llama4_by_hand}  # fmt: skip


# The independent route: whole-model polynomials in the sizes of a config, written from the papers, checked on the real models.


def by_hand(c):
    """(parameters, KV bytes a token) of a flat config under its usual keys."""
    kind, vocab, tied = c["model_type"], c["vocab_size"], c.get("tie_word_embeddings")
    if kind == "gpt2":
        h, n, w = c["n_embd"], c["n_layer"], c.get("n_inner") or 4 * c["n_embd"]
        return (vocab + c["n_positions"] + 2) * h + n * (4 * h * h + 2 * h * w + w + 9 * h), 4 * n * h
    h, n, heads = c["hidden_size"], c["num_hidden_layers"], c["num_attention_heads"]
    kv, size, w = c.get("num_key_value_heads") or heads, c.get("head_dim") or h // heads, c.get("intermediate_size")
    tied = "gemma" in kind if tied is None else tied
    ends = vocab * h * (1 if tied else 2) + h
    attention, cache = 2 * h * size * (heads + kv), 4 * kv * size
    if kind == "gpt_neox":
        return ends + h + n * (4 * h * h + 2 * h * w + w + 9 * h), cache * n
    if kind == "mixtral":
        e = c["num_local_experts"]
        return ends + n * (attention + e * h * (3 * w + 1) + 2 * h), cache * n
    if kind == "gpt_oss":
        e = c["num_local_experts"]
        moe = e * (3 * h * w + 2 * w + 2 * h + 1)
        return ends + n * (attention + size * (heads + 2 * kv) + heads + moe + 3 * h), cache * n
    if kind == "qwen3_moe":
        e, w = c["num_experts"], c["moe_intermediate_size"]
        return ends + n * (attention + 2 * size + e * h * (3 * w + 1) + 2 * h), cache * n
    if kind in NEWER_BY_HAND:
        return NEWER_BY_HAND[kind](c, ends, attention, cache)
    if kind == "deepseek_v3":
        q, (r, nope, rope, v) = c["q_lora_rank"], (c[key] for key in MLA)
        queries = (h + heads * (nope + rope) + 1) * q if q else h * heads * (nope + rope)
        latent = queries + h * (r + rope) + r * (heads * (nope + v) + 1) + heads * v * h + 2 * h
        first, e = c["first_k_dense_replace"] or 0, c["n_routed_experts"]
        moe = e * (h + 1) + 3 * h * c["moe_intermediate_size"] * (e + (c["n_shared_experts"] or 0))
        return ends + n * latent + first * 3 * h * w + (n - first) * moe, 2 * n * (r + rope)
    if kind == "nemotron_h":
        inner, state = c["mamba_num_heads"] * c["mamba_head_dim"], 2 * c["n_groups"] * c["ssm_state_size"]
        mamba = h * (3 * inner + state + c["mamba_num_heads"]) + (inner + state) * (c["conv_kernel"] + 1)
        mamba += 3 * c["mamba_num_heads"] + inner
        latent = c.get("moe_latent_size") or 0  # what experts read and write, by one matrix down to it and one up
        moe = 2 * h * latent + c["n_routed_experts"] * (2 * (latent or h) * c["moe_intermediate_size"] + h + 1)
        moe += 2 * h * c["moe_shared_expert_intermediate_size"] * c["n_shared_experts"]
        letters = [c["hybrid_override_pattern"].count(x) for x in "M*E"]
        return ends + n * h + sum(map(math.prod, zip(letters, (mamba, attention, moe), strict=True))), cache * letters[1]
    if kind == "nemotron-nas":
        total, cache = ends, 0
        for block in c["block_configs"]:
            total += h + 3 * h * -(-int(2 * block["ffn"]["ffn_mult"] * h / 3) // 256) * 256
            if group := block["attention"]["n_heads_in_group"]:
                total += h + 2 * h * size * (heads + heads // group)
                cache += 4 * size * heads // group
        return total, cache
    extra = {"qwen2": heads + 2 * kv, "olmo2": heads + kv, "qwen3": 2, "gemma3_text": 2}.get(kind, 0) * size
    return ends + n * (attention + extra + 3 * h * w + (4 if "gemma" in kind else 2) * h), cache * n


@pytest.mark.parametrize("name", SHIPPED)
def test_the_independent_route_agrees_on_the_real_models(name):
    assert by_hand(SHIPPED[name]) == figures(SHIPPED[name])


# The ways to mutate: each takes (random, values) and gives (values, what is expected): figures, or the key an error names.

DENSE = ["hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]
MLA = ["kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"]
SIZES = {
    "gpt2": ["n_embd", "n_layer", "n_head", "n_positions", "vocab_size"],
    "mixtral": [*DENSE, "num_local_experts", "num_experts_per_tok"],
    "gpt_oss": [*DENSE, "num_local_experts"],
    "qwen3_moe": [*DENSE, "num_experts", "num_experts_per_tok", "moe_intermediate_size"],
    "deepseek_v3": [*DENSE, *MLA, "num_experts_per_tok", "moe_intermediate_size"],
    "nemotron_h": [*DENSE[:4], "mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel",
                   "n_routed_experts", "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size",
                   "moe_shared_expert_intermediate_size"],
    "nemotron-nas": DENSE[:4],
    "minimax_m2": [*DENSE, "num_local_experts", "num_experts_per_tok"],
    "mimo_v2_flash": [*DENSE[:3], "intermediate_size", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"],
    "gemma4_text": [*DENSE, "num_experts", "top_k_experts", "moe_intermediate_size"],
    "llama4_text": [*DENSE, "num_local_experts", "num_experts_per_tok"],
}  # fmt: skip
OPTIONAL = ("num_key_value_heads", "head_dim", "q_lora_rank", "n_routed_experts", "n_shared_experts", "moe_latent_size")
PLAIN_DENSE = ("llama", "qwen2", "qwen3", "phi3", "olmo2", "gemma3_text", "gpt_neox", "gpt2")
FAMILIES = [
    ("hidden_size", "n_embd", "d_model"),
    ("num_hidden_layers", "n_layer", "num_layers"),
    ("num_attention_heads", "n_head"),
    ("num_key_value_heads", "n_head_kv", "num_kv_heads"),
    ("num_experts", "num_local_experts", "n_routed_experts"),
    ("num_experts_per_tok", "experts_per_token", "top_k_experts"),
    ("head_dim", "attention_head_dim"),
    ("n_positions", "max_position_embeddings", "n_ctx"),
]
SHAPING = {
    "num_experts_total": 4, "moe_every_n_layers": 2, "q_rank": 8, "mamba_d_state": 16, "ssm_cfg": {"layer": "m"},
    "attn_layer_period": 8, "linear_attn_config": {"x": 1}, "kv_shared_layers": 4, "ffn_dim_multiplier": 1.3,
    "qk_norm_kind": "l2",
    "cross_attention_layers": [3], "hybrid_pattern": "ab", "num_memory_blocks": 4, "index_head_dim": 128, "altup_num_inputs": 4,
    "width_per_layer": 256, "d_ff": 128, "n_kv_heads": 8, "lm_head_bias": True, "layer_scale": [1], "use_moe": True,
    "shared_expert_gate": True, "expert_scale": 1, "compression_config": {"bits": 4},
    "quantization": {"bits": 4}, "rope_head_dim": 8, "attn_output_gate": True, "num_meta_tokens": 128,
}  # fmt: skip
PLAIN = {
    "rope_theta": 1e6, "rope_scaling": {"factor": 8.0}, "rope_parameters": {"rope_type": "default"}, "dtype": "bfloat16",
    "torch_dtype": "float16", "use_cache": True, "cache_implementation": "hybrid", "attention_dropout": 0.1, "resid_pdrop": 0.1,
    "attn_pdrop": 0.1, "hidden_act": "silu", "rms_norm_eps": 1e-5, "initializer_range": 0.02, "router_aux_loss_coef": 0.001,
    "output_router_logits": True, "output_hidden_states": True, "attn_implementation": "sdpa", "_attn_implementation": "eager",
    "_flash_attn_2_enabled": True, "attention_softmax_in_fp32": True, "query_pre_attn_scalar": 168,
    "attn_logit_softcapping": 50.0,
    "num_beams": 1, "num_beam_groups": 1, "num_return_sequences": 1, "no_repeat_ngram_size": 3, "max_batch_size": 8,
    "bos_token_id": 1, "eos_token_id": [1, 2], "image_token_index": 7, "tokenizer_class": "X", "auto_map": {"AutoModel": "x.Y"},
    "moe_aux_loss_coeff": 0.1, "num_nextn_predict_layers": 2, "mtp_hybrid_override_pattern": "*E", "mamba_hidden_act": "silu",
    "vision_config": {"num_hidden_layers": 27, "hidden_size": 1152}, "audio_config": {"n_layer": 3}, "unknown_limit": math.inf,
    "gradient_checkpointing": True, "num_experts_dummy": None, "moe_extra": False, "lora_rank": 0, "pruned_heads": {},
    "num_logits_to_keep": 1, "partial_rotary_factor": 0.5, "pretraining_tp": 2, "chunk_size_feed_forward": 1, "n_group": 4,
    "unsloth_version": "1", "time_step_limit": [0.0, math.inf], "scale_attn_weights": True, "tie_encoder_decoder": False,
}  # fmt: skip


def sizes(c):
    return SIZES.get(c["model_type"], DENSE)


def without(c, key):
    return {k: v for k, v in c.items() if k != key}


def drop(rng, c):
    key = rng.choice([k for k in sizes(c) if k != "n_positions"])
    return without(c, key), by_class(without(c, key), key)


def null(rng, c):
    key = rng.choice([k for k in sizes(c) if k != "n_positions"])
    return {**c, key: None}, key


def drop_what_must_be_said(rng, c):
    """Keys that may be null but not missing, and the number of experts, without which other keys make no sense."""
    keys = {"deepseek_v3": ["q_lora_rank", "n_shared_experts", "first_k_dense_replace", "n_routed_experts"],
            "nemotron_h": ["hybrid_override_pattern"], "nemotron-nas": ["block_configs"],
            "mimo_v2_flash": ["hybrid_layer_pattern"]}.get(c["model_type"])  # fmt: skip
    if not keys:
        return drop(rng, c)
    key = rng.choice(keys)
    return without(c, key), key


def drop_or_null_an_optional_key(rng, c):
    """A null or missing KV head count is that of the query heads; a null rank is no compression; the rest is unchanged."""
    keys = ["num_key_value_heads", "head_dim", "q_lora_rank", "first_k_dense_replace", "attention_bias", "mlp_bias",
            "topk_method", "tie_word_embeddings", "layer_types", "mlp_only_layers", "decoder_sparse_step", "moe_layer_freq",
            "use_conv_bias", "moe_latent_size", "rope_theta", "torch_dtype", "rms_norm_eps", "architectures",
            "max_window_layers"]  # fmt: skip
    keys += ["n_shared_experts"] if c["model_type"] == "deepseek_v3" else []
    key = rng.choice([k for k in keys if k in c])
    changed = {**c, key: None}
    must = ("q_lora_rank", "n_shared_experts", "first_k_dense_replace")
    if key in must or rng.random() < 0.5:
        return changed, by_hand(changed)
    return without(c, key), by_class(without(c, key)) if key in CLASS.get(c["model_type"], {}) else by_hand(changed)


def retype(rng, c):
    key = rng.choice(sizes(c))
    value = c[key]
    wrong = [str(value), float(value), value + 0.5, [value], {"value": value}, True, math.nan, math.inf, -math.inf, "", "many"]
    return {**c, key: rng.choice(wrong)}, key


def retype_a_switch(rng, c):
    switches = [k for k in ("attention_bias", "tie_word_embeddings", "use_conv_bias", "mlp_bias", "use_sliding_window") if k in c]
    key = rng.choice(switches or ["tie_word_embeddings"])
    return {**c, key: rng.choice(["false", 0, 1, 0.0, [], [True], {}])}, key


def out_of_range(rng, c):
    key = rng.choice(sizes(c))
    least = 0 if key == "n_shared_experts" else 1
    return {**c, key: rng.choice([-c[key], least - 1, -1, 10**8, 10**30, -(10**5000), 10**5000])}, key


def scale(rng, c):
    """Twice a size: recomputed, or refused where it no longer fits the rest."""
    kind = c["model_type"]
    optional = [k for k in OPTIONAL if c.get(k)]
    key = rng.choice(list(dict.fromkeys([*sizes(c), *optional])))
    changed = {**c, key: 2 * c[key]}
    lists = ("layer_types", "hybrid_override_pattern", "block_configs", "hybrid_layer_pattern")
    listed = next((k for k in lists if c.get(k)), None)
    if key == "num_hidden_layers" and listed:
        return changed, listed
    if key == "num_key_value_heads" and kind != "deepseek_v3" and c["num_attention_heads"] % changed[key]:
        return changed, key
    if key == "n_positions":
        return changed, "n_ctx"  # the same under another name
    if key == "n_shared_experts" and kind == "nemotron_h":
        return changed, key
    return changed, by_hand(changed)


def rename(rng, c):
    family = rng.choice([f for f in FAMILIES if usable(f, c)])
    key = next(k for k in family if k in c)
    other = rng.choice([k for k in family if k != key])
    return {other if k == key else k: v for k, v in c.items() if k == key or k not in family}, by_hand(c)


def repeat(rng, c):
    family = rng.choice([f for f in FAMILIES if usable(f, c)])
    key = next(k for k in family if k in c)
    return {**c, rng.choice(family): c[key]}, by_hand(c)


def contradict(rng, c):
    family = rng.choice([f for f in FAMILIES if usable(f, c)])
    key = next(k for k in family if k in c)
    other = rng.choice([k for k in family if k != key])
    return {**c, other: c[key] + rng.choice([-1, 1, 64])}, f"{key}' = .*contradict|{other}' = .*contradict"


def usable(family, c):
    kind = c["model_type"]
    if family[0] in ("num_attention_heads", "num_key_value_heads", "head_dim") and kind in ("deepseek_v3", "nemotron-nas"):
        return family[0] == "head_dim" and "head_dim" in c and kind != "deepseek_v3"
    if family[0] == "n_positions" and kind != "gpt2":
        return False
    return any(c.get(k) is not None for k in family)


def add_an_unknown_shaping_key(rng, c):
    key = rng.choice(sorted(SHAPING))
    return {**c, key: SHAPING[key]}, key


def add_a_key_of_another_architecture(rng, c):
    """A MoE, latent or state-space key in a model that reads none."""
    dense = c if c["model_type"] in PLAIN_DENSE else SHIPPED["phi-4"]
    keys = {"num_experts": 8, "num_local_experts": 8, "n_routed_experts": 64, "num_experts_per_tok": 2, "experts_per_token": 2,
            "moe_intermediate_size": 512, "shared_expert_intermediate_size": 99, "n_shared_experts": 1, "moe_layer_freq": 1,
            "first_k_dense_replace": 3, "decoder_sparse_step": 1, "mlp_only_layers": [1], "interleave_moe_layer_step": 2,
            "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
            "hybrid_override_pattern": "M*", "ssm_state_size": 128, "mamba_num_heads": 8, "conv_kernel": 4,
            "block_configs": [{}]}  # fmt: skip
    key = rng.choice(sorted(keys))
    return {**dense, key: keys[key]}, key


def add_a_plain_key(rng, c):
    key = rng.choice([k for k in sorted(PLAIN) if k not in c])
    return {**c, key: PLAIN[key]}, by_hand(c)


def reorder(rng, c):
    return dict(rng.sample(sorted(c.items()), len(c))), by_hand(c)


WAYS = [drop, null, drop_what_must_be_said, drop_or_null_an_optional_key, retype, retype_a_switch, out_of_range, scale, rename,
        repeat, contradict, add_an_unknown_shaping_key, add_a_key_of_another_architecture, add_a_plain_key, reorder]  # fmt: skip


def nested(rng, values):
    """The same model inside a wrapper, with a vision tower beside it; sometimes two levels deep."""
    for _ in range(rng.choice([1, 1, 2])):
        tower = {"vision_config": {"num_hidden_layers": 33, "hidden_size": 7}, "num_hidden_layers": 33, "hidden_size": 1}
        values = {"model_type": "wrapper", **tower, rng.choice(config.NESTED): values}
    return values


def outcome(values):
    """Figures, or the one line of the refusal; anything else is raised."""
    try:
        return figures(values)
    except ValueError as error:
        assert type(error) is ValueError
        return str(error)


@pytest.mark.parametrize("count", [4_000, pytest.param(20_000, marks=pytest.mark.weekly)])
def test_thousands_of_mutations_end_as_declared(count):
    rng, start, seen, wrong = random.Random(3), time.process_time(), {}, []
    for number in range(count):
        way, name = WAYS[number % len(WAYS)], rng.choice(sorted(SHIPPED))
        values, expected = way(rng, SHIPPED[name])
        got = outcome(nested(rng, values) if rng.random() < 0.3 else values)
        if isinstance(expected, str) and isinstance(got, str):
            fine = re.search(expected, got) and "\n" not in got and len(got) < 700
        else:
            fine = got == expected
        wrong += [] if fine else [f"{number}: {way.__name__} of {name}: expected {expected}, got {got}"]
        seen.setdefault(way.__name__, set()).add(type(expected))
    spent = time.process_time() - start
    assert not wrong, f"{len(wrong)} wrong, such as\n" + "\n".join(wrong[:10])
    assert set(seen) == {way.__name__ for way in WAYS} and seen["scale"] == {str, tuple}
    assert spent < 60, f"{spent:.0f} s"  # about 15 s


# Every reader: configs that transformers counted, changed so that they make no sense.

ROWS = list(csv.DictReader((DATA / "class_defaults_2026.csv").open(encoding="utf-8")))
# Sizes that the class of a type does not use, or that say nothing about weights and caches.
ANYWHERE = {"original_max_position_embeddings", "query_pre_attn_scalar", "rotary_dim", "n_group", "num_expert_group",
            "chunk_size", "mamba_chunk_size", "hc_sinkhorn_iters", "num_logits_to_keep", "dim_model_base",
            "layer_group_size"}  # fmt: skip
MLA_KINDS = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "mistral4", "sarvam_mla", "youtu", "axk1", "minicpm3",
             "bailing_hybrid", "glm5_next", "glm5_next_text", "glm_moe_dsa", "hy_v4", "hy_v4_vl", "hy_v4_vl_text", "kimi_k25",
             "kimi_linear", "longcat_flash", "mistral_large4", "mistral_large4_text", "dots3_note_text", "axk2")  # fmt: skip
IDLE = {kind: {"num_key_value_heads", "head_dim"} for kind in MLA_KINDS}
IDLE |= {kind: {"n_positions", "n_ctx"} for kind in ("gptj", "codegen")}
IDLE |= {kind: {"num_experts", "moe_intermediate_size"} for kind in ("gemma4", "gemma4_text")}  # without experts
IDLE |= {"deepseek_v4": {"qk_rope_head_dim"}, "qwen3_next": {"intermediate_size"}, "minimax": {"block_size"}}
IDLE["hunyuan_v1_moe"] = {"num_experts"}  # or a list
IDLE["nemotron_h"] = {key for keys in hybrid_readers.UNUSED.values() for key in keys}  # of a pattern without their letter
# Keys of SHAPING that these types read, with that value or with any.
READ_HERE = {
    "step3p5": {"use_moe"}, "step3p7": {"use_moe"}, "minimax_m3_vl_text": {"use_qk_norm"},
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text"), {"attn_output_gate"}),
    **dict.fromkeys(("kimi_linear", "glm5_next", "glm5_next_text"), {"linear_attn_config"}),
    "nemotron_h": {"time_step_rank"}, "gemma3n_text": {"altup_num_inputs"}, "jamba": {"mamba_d_state", "attn_layer_period"},
    "falcon_h1": {"mamba_d_state"}, "granitemoehybrid": {"mamba_d_state"}, "zamba": {"mamba_d_state"},
    "zamba2": {"mamba_d_state"},
}  # fmt: skip
NONSENSE = {"fewer": -1, "none": 0, "text": "8", "truth": True, "half": 8.5, "list": [8], "huge": 10**30, "nan": math.nan}


def test_nonsense_is_refused_by_name_in_every_reader():
    """Each size of each type, and each unknown key that may change a count."""
    rng, checked = random.Random(5), 0
    for row in ROWS:
        whole, kind = json.loads(row["config"]), row["model_type"]
        nest = next((key for key in config.NESTED if key in whole), None)
        c = whole[nest] if nest else whole
        widths = [k for k, v in c.items() if type(v) is int and re.search("size|dim|hidden|num_|n_", k)]
        changed = {k: rng.choice([v for name, v in NONSENSE.items() if name != "none"]) for k in widths}
        changed = {k: v for k, v in changed.items() if k not in ANYWHERE | IDLE.get(kind, set())}
        unknown = rng.sample(sorted(SHAPING.keys() - c.keys() - READ_HERE.get(kind, set())), 6)
        for key, value in (changed | {key: SHAPING[key] for key in unknown}).items():
            other = {**c, key: value}
            got = outcome({**whole, nest: other} if nest else other)
            assert isinstance(got, str) and key in got and "\n" not in got, (kind, key, value, got)
            checked += 1
    assert checked > 2000
