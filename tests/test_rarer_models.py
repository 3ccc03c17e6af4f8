"""Rarer models: blocks that run several times, a narrow embedding, experts for images, recurrences; counts by hand and against
the module trees of transformers 5.24.0, whose totals are those of `class_defaults_2026.csv`."""

import csv
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

import hwdesign as hw
from hwdesign.models import config
from hwdesign.models.own_kind_readers import READERS as OWN
from hwdesign.models.proof import compare
from hwdesign.models.rarer_readers import READERS as RARER

DATA = Path(__file__).parent / "data"
ROWS = list(csv.DictReader((DATA / "class_defaults_2026.csv").open(encoding="utf-8")))
# Types of transformers 5.24.0 that no reader knows.
REFUSED = ("doge", "unlimited_ocr_text", "diffusion_gemma_text", "inkling2_text", "cohere_compass_text")
OPT_350M = {
    "model_type": "opt", "hidden_size": 1024, "word_embed_proj_dim": 512, "num_hidden_layers": 24, "num_attention_heads": 16,
    "ffn_dim": 4096, "max_position_embeddings": 2048, "vocab_size": 50272, "do_layer_norm_before": False,
}  # fmt: skip


def first(kind):
    """The config with the defaults of the class of a type."""
    return json.loads(next(row["config"] for row in ROWS if row["model_type"] == kind))


def test_opt_350m_projects_a_narrow_embedding():
    model = config.load(OPT_350M)
    assert model.parameters == 331_196_416  # the module tree of transformers 5.24.0 for this config
    assert model.embedding_width == 512 and not model.final_norm
    head = 50272 * 512
    layer = 4 * (1024 * 1024 + 1024) + 2 * 1024 * 4096 + 4096 + 1024 + 4 * 1024
    assert model.parameters == head + 2050 * 1024 + 2 * 512 * 1024 + 24 * layer
    assert hw.step(model, batch=1, context=9).gemm_flops == 2 * model.matmul_parameters


def test_a_shared_block_is_stored_once_and_used_at_each_place():
    model = config.load(first("zamba"))
    h = 3712
    shared = 3 * (2 * h) ** 2 + 2 * h * h + 3 * h * 14848 + 3 * h
    assert Counter(block.repeated for block in model.blocks) == {False: 77, True: 12}
    assert model.active_parameters(include_embedding=True) - model.parameters == 12 * shared
    assert model.kv_bytes_per_token() == 13 * 2 * 16 * 464 * 2
    assert hw.step(model, batch=1, context=9).gemm_flops == pytest.approx(2 * model.matmul_parameters)


def test_stacks_that_run_again_have_caches_of_their_own():
    model = config.load(first("hrm_text"))
    stack = 16 * (5 * 1536 * 1536 + 3 * 1536 * 4096)
    assert model.parameters == 2 * stack + 2 * 151808 * 1536 + 1536
    assert model.active_parameters(include_embedding=True) == 8 * stack + 2 * 151808 * 1536 + 1536
    assert model.kv_bytes_per_token() == 128 * 2 * 1536 * 2
    assert [block.repeated for block in model.blocks] == [False] * 16 + [True] * 32 + [False] * 16 + [True] * 64
    assert sum(model.weight_bytes("bf16").values()) == 2 * model.parameters


def test_files_are_not_held_against_layers_that_run_again():
    found = SimpleNamespace(tensors={}, names=())
    with pytest.raises(ValueError, match=r"\Amodel must have layers that run once, [^\n]* got 96 blocks that run again\Z"):
        compare(config.load(first("hrm_text")), found)


def test_experts_for_images_are_stored_and_no_token_of_text_uses_them():
    model = config.load(first("ernie4_5_vl_moe_text"))
    images = 27 * (64 * 3 * 2560 * 512 + 64 * 2560 + 64)
    text = 27 * (64 - 6) * 3 * 2560 * 1536
    assert model.parameters - model.active_parameters(include_embedding=True) == images + text


def test_a_recurrence_keeps_one_number_a_channel():
    model = config.load(first("recurrent_gemma"))
    assert model.state_bytes() == 18 * (2560 * 4 + 2560 * 3 * 2)
    assert model.kv_bytes_per_token() == 8 * 2 * 10 * 256 * 2
    assert {block.mixer.window for block in model.blocks} == {None, 2048}


def test_every_second_layer_of_gpt_neo_has_a_window():
    model = config.load(first("gpt_neo"))
    assert [block.mixer.window for block in model.blocks] == [None, 256] * 12
    assert model.parameters == 1_315_575_808  # the module tree with the defaults of the class


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_counted_is_refused_by_name(kind):
    assert kind not in {*RARER, *OWN}
    with pytest.raises(ValueError, match=f"'model_type' must be one of [^\\n]*{kind}"):
        config.load({"model_type": kind, "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100})


@pytest.mark.parametrize(("kind", "changes", "said"), [
    ("dory", {"recurrent_kv_cache_mode": "last_loop"}, "recurrent_kv_cache_mode"),
    ("dory", {"n_input_layers": 3}, "n_input_layers"),
    ("dory", {"layer_types": ["mlp"] * 72}, "layer_types"),
    ("hrm_text", {"num_layers_per_stack": 128}, "num_layers_per_stack"),
    ("hrm_text", {"num_hidden_layers": 16}, "num_hidden_layers"),
    ("hrm_text", {"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
    ("zamba", {"tie_word_embeddings": False}, "tie_word_embeddings"),
    ("zamba2", {"use_conv_bias": False}, "use_conv_bias"),
    ("mistral_large4", {"kv_source_layers": [0] * 72}, "kv_source_layers"),
    ("qwen4_exp_text", {"ple_layer_ids": [1]}, "ple_layer_ids"),
    ("zaya", {"num_experts_per_tok": 2}, "num_experts_per_tok"),
    ("jetmoe", {"num_attention_heads": 5}, "num_attention_heads"),
    ("gpt_neo", {"attention_types": [[["global"], 3]]}, "attention_types"),
    ("recurrent_gemma", {"block_types": ["attention", "mamba"]}, "block_types"),
    ("recurrent_gemma", {"lru_width": 2561}, "lru_width"),
    ("ernie4_5_vl_moe_text", {"moe_intermediate_size": [8]}, "moe_intermediate_size"),
    ("chameleon", {"num_key_value_heads": 5}, "num_key_value_heads"),
    ("molmo2_text", {"qk_norm_type": "gemma"}, "qk_norm_type"),
    ("inkling_text", {"shared_expert_sink": False}, "shared_expert_sink"),
    ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
])  # fmt: skip
def test_a_key_that_says_otherwise_is_named(kind, changes, said):
    values = first(kind)
    inside = values.get("text_config", values)
    with pytest.raises(ValueError, match=f"\\Aconfig key '(text_config.)?{said}' must be [^\\n]*\\Z"):
        config.load({**values, "text_config": {**inside, **changes}} if inside is not values else {**values, **changes})
