"""Quantization configs: bytes against what the libraries store and against files, unknown methods, lists, engines, mutations."""

import copy
import json
import math
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import config_2026

import hwdesign as hw
from hwdesign.advice.judge import judge
from hwdesign.advice.report import render, schema
from hwdesign.catalogue.engine import engine
from hwdesign.catalogue.precision import RECIPES, integer_recipe, multiplied
from hwdesign.cli import main
from hwdesign.models import config
from hwdesign.models.quantization_methods import METHODS
from hwdesign.models.sheet import sheet, sheet_text
from hwdesign.timing.formats import engine_formats

STORED = json.loads((Path(__file__).parent / "data" / "quantized_bytes.json").read_text("utf-8"))
LLAMA = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
         "num_key_value_heads": 8, "vocab_size": 1000}  # fmt: skip
MOE = {
    **LLAMA,
    "model_type": "qwen3_moe",
    "head_dim": 64,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
}
# What a matrix has once, or once a row, is not counted per element (`Precision`): names of such tensors in the libraries.
ONCE = {"weight_shape", "weight_global_scale", "input_global_scale", "input_scale", "weight.quant_map", "weight.nested_quant_map",
        "weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4", "weight_format", "g_idx"}  # fmt: skip
A_ROW = {"qzeros", "scales", "weight_scale", "weight_zero_point", "SCB", "scale", "zero_point"}


def quantized(base=LLAMA, **keys):
    return config.load({**base, "quantization_config": keys})


def recipe_of(model, part="ffn"):
    ((form, share),) = model.part_formats(part)
    assert share == 1
    return form.name


# Bytes.


@pytest.mark.parametrize("row", STORED["matrices"], ids=lambda row: f"{row['library']} {row['scheme']}")
def test_a_matrix_takes_the_bytes_that_the_library_stores(row):
    """LLM Compressor, bitsandbytes, torchao, AutoRound, GPTQ, AWQ and MLX, stored by libraries: `scripts/quantized_bytes.py`."""
    form = hw.recipe(recipe_of(quantized(**row["quantization_config"]))).weights
    left_out = ONCE | (set() if form.block else A_ROW)
    stored = sum(size for name, size in row["bytes"].items() if name not in left_out)
    if form.name == "fp8_128x128":  # 2 x 4 blocks: DeepSeek's scales are FP32, those of a BF16 layer here BF16
        stored += 2 * 4 * 2
    assert form.bytes * row["rows"] * row["columns"] == stored
    assert sum(row["bytes"].values()) - stored < 12 * row["rows"]  # what is left out is small


def test_every_preset_scheme_is_in_the_list():
    """compressed-tensors 0.20.1 names 33 schemes; UNQUANTIZED stores nothing of its own."""
    named = {row["scheme"] for row in STORED["matrices"] if row["library"] == "compressed-tensors"}
    assert len({name for name in named if "groups" not in name}) == 32
    for name in sorted(named):
        if "groups" not in name:
            by_name = quantized(quant_method="compressed-tensors", config_groups={name: ["Linear"]}, ignore=["lm_head"])
            rows = [row for row in STORED["matrices"] if row["scheme"] == name]
            assert recipe_of(by_name) == recipe_of(quantized(**rows[0]["quantization_config"]))
    plain = quantized(quant_method="compressed-tensors", config_groups={"UNQUANTIZED": ["Linear"]})
    assert plain.quantization is None and plain.bytes_unknown is None


@pytest.mark.parametrize(
    "row", STORED["models"], ids=lambda row: f"{row['config']['model_type']} {row['config']['quantization']['mode']}"
)
def test_a_whole_model_takes_the_bytes_that_mlx_stores(row):
    """Embedding, head, routers and what a predicate of MLX LM treats apart: to the last byte."""
    values = row["config"]
    model = config.load(values)
    assert sum(model.weight_bytes().values()) == row["bytes"] and model.quant_method == "mlx"
    without = {key: value for key, value in values.items() if "quantization" not in key}
    assert model.parameters == config.load(without).parameters
    only_one = {key: value for key, value in values.items() if key != "quantization_config"}
    assert (
        config.load(only_one).weight_bytes()
        == config.load({**without, "quantization_config": values["quantization"]}).weight_bytes()
    )
    assert config.load({"model_type": "x", "text_config": without, "quantization": values["quantization"]}).weight_bytes() == (
        model.weight_bytes()
    )


@pytest.mark.parametrize(
    "row", STORED["transformers"], ids=lambda row: str(row["config"]["quantization_config"]["llm_int8_skip_modules"])
)
def test_a_whole_model_takes_the_bytes_that_transformers_saves(row):
    """bitsandbytes: the head stays where no list is given, and is converted where a list does not name it."""
    left_out = {"weight.quant_map", "weight.nested_quant_map", "weight_format", "SCB"}
    stored = sum(size for name, size in row["bytes"].items() if name not in left_out and "quant_state" not in name)
    assert sum(config.load(row["config"]).weight_bytes().values()) == stored


QWEN3 = {"model_type": "qwen3", "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True}
ROUND = {"quant_method": "auto-round", "autoround_version": "0.12.3", "sym": True, "iters": 0, "bits": 4}
FILES = [  # sizes of safetensors files as `ls -l` lists them, read 2026-12-01 in public logs of AutoRound runs of May 2026
    (
        {**QWEN3, "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32},
        {**ROUND, "group_size": 128, "data_type": "int", "packing_format": "auto_round:auto_gptq"},
        1062346016 + 825359728 + 778320832,
    ),
    (
        {**QWEN3, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16},
        {**ROUND, "group_size": 32, "data_type": "mx_fp", "act_bits": 4, "packing_format": "auto_round:llm_compressor"},
        1371320192,
    ),
]


@pytest.mark.parametrize(("values", "said", "size"), FILES, ids=["Qwen3-4B W4A16", "Qwen3-1.7B MXFP4"])
def test_files_of_auto_round_are_as_large(values, said, size):
    """A safetensors header says of each tensor its name and place, in about 130 bytes; the rest is weights."""
    model = config.load({**values, "quantization_config": said})
    assert 0 < size - sum(model.weight_bytes().values()) < 8 * 400 * 40  # less than 400 tensors a third of 8 ways


@pytest.mark.parametrize(
    ("said", "bits"),
    [
        ({"quant_method": "gptq", "bits": 2, "group_size": 64}, 2 + (16 + 2) / 64),
        ({"quant_method": "gptq", "bits": 3, "group_size": -1, "desc_act": True}, 3),
        ({"quant_method": "gptq", "bits": 4, "group_size": 1024, "sym": False, "checkpoint_format": "gptq_v2"}, 4 + 20 / 1024),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "marlin"}, 4 + 16 / 128),  # packs no zeros
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": True, "version": "gemv"}, 4 + 20 / 64),
        ({"quant_method": "auto-round", "bits": 2, "group_size": 32, "sym": True}, 2 + 18 / 32),
        ({"quant_method": "intel/auto-round", "bits": 8, "group_size": 128, "sym": False}, 8 + 24 / 128),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 16, "data_type": "nv_fp4_with_static_gs", "act_bits": 4}, 4.5),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, 4 + 32 / 64),
        ({"load_in_4bit": True, "bnb_4bit_use_double_quant": True}, 4 + 8 / 64 + 32 / 64 / 256),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]}, 8),
        ({"quant_method": "mxfp8", "modules_to_not_convert": ["lm_head"]}, 8.25),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": 64}}, 4 + 32 / 64),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {}}}}, 4 + 32 / 128),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 64}, 4 + 16 / 64),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, 4 + 16 / 128),
    ],
    ids=str,
)
def test_bits_of_a_weight_by_hand(said, bits):
    """Bits, scale and zero of a group written out from the layout of each method."""
    model = quantized(**said)
    assert model.bytes_unknown is None and hw.recipe(recipe_of(model)).weights.bytes * 8 == pytest.approx(bits, rel=1e-12)
    assert model.weight_bytes()["head"] == 2 * 512 * 1000 and model.weight_bytes()["embedding"] == 2 * 512 * 1000


MX4 = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "ch_axis": -1, "scale_format": "e8m0", "is_dynamic": False}
FP8 = {"dtype": "fp8_e4m3", "qscheme": "per_channel", "ch_axis": 0, "is_dynamic": False}


@pytest.mark.parametrize(
    ("weight", "inputs", "recipe"),
    [
        (FP8, {**FP8, "is_dynamic": True}, "fp8"),
        ({**FP8, "qscheme": "per_tensor"}, None, "fp8_w8a16"),
        (MX4, None, "mxfp4_w4a16"),
        ({**FP8, "qscheme": "per_block", "block_size": [128, 128]}, FP8, "fp8_block"),
        (MX4, MX4, "mxfp4"),
        (MX4, FP8, "mxfp4_w4a8"),
        ({**MX4, "dtype": "fp6_e3m2"}, None, "mxfp6_w6a16"),
        ({**FP8, "dtype": "int8"}, {**FP8, "dtype": "int8"}, "int8"),
        ([{**FP8, "qscheme": "per_tensor"}, {**FP8, "dtype": "int4"}], FP8, "w4afp8_row"),
    ],
)
def test_schemes_of_quark(weight, inputs, recipe):
    said = {
        "global_quant_config": {"weight": weight, "input_tensors": inputs, "bias": None},
        "exclude": ["lm_head", "*.mlp.gate"],
        "export": {"kv_cache_group": [], "pack_method": "reorder"},
        "layer_quant_config": {},
        "layer_type_quant_config": {},
    }
    model = quantized(quant_method="quark", **said)
    assert recipe_of(model) == recipe_of(model, "attention") == recipe and recipe_of(model, "head") == "bf16"
    by_name = {"*self_attn*": {"weight": FP8, "input_tensors": FP8}, "model.layers.0.mlp.*": {"weight": None}}
    mixed = quantized(quant_method="quark", **{**said, "layer_quant_config": by_name, "exclude": []})
    assert recipe_of(mixed, "attention") == "fp8" and dict(mixed.formats)["ffn"] == ((recipe, 0.75), ("bf16", 0.25))
    assert recipe_of(mixed, "head") == recipe  # nothing leaves it out


def test_the_cache_that_quark_names():
    said = {"quant_method": "quark", "global_quant_config": {"weight": FP8, "input_tensors": FP8}, "exclude": ["lm_head"]}
    outputs = {"weight": FP8, "input_tensors": FP8, "output_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}}
    layers = {"*k_proj": outputs, "*v_proj": outputs}
    export = {"kv_cache_group": ["*k_proj", "*v_proj"], "pack_method": "reorder"}
    assert quantized(**said, layer_quant_config=layers, export=export).kv_cache == "fp8"
    assert quantized(**said, layer_quant_config=layers, export={**export, "kv_cache_group": []}).kv_cache is None
    assert quantized(**said, kv_cache_quant_config={"*k_proj": {"output_tensors": {"dtype": "int8"}}}).kv_cache == "int8"
    with pytest.raises(ValueError, match="kv_cache_quant_config' must be output_tensors of fp8_e4m3 or int8"):
        quantized(**said, kv_cache_quant_config={"*k_proj": {"output_tensors": {"dtype": "fp4"}}})


def test_a_scheme_of_a_group_by_another_rule_and_in_another_format():
    """FP8 by class, MXFP4 by name: each group in its format, as the `mixed-precision` of LLM Compressor."""
    eight = {"num_bits": 8, "type": "float", "strategy": "channel"}
    four = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}
    groups = {
        "group_0": {"targets": ["Linear"], "weights": eight, "input_activations": eight, "format": "float-quantized"},
        "group_1": {
            "targets": ["re:.*mlp.*", "model.layers.0.self_attn.o_proj"],
            "weights": four,
            "format": "mxfp4-pack-quantized",
        },
    }
    said = {"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": groups, "ignore": ["lm_head"]}
    model = quantized(**said)
    assert recipe_of(model) == "mxfp4_w4a16" and dict(model.formats)["attention"] == (("fp8", 15 / 16), ("mxfp4_w4a16", 1 / 16))
    headed = quantized(**{**said, "ignore": []})
    assert recipe_of(headed, "head") == "fp8" and recipe_of(quantized(**{**said, "ignore": ["re:.*lm_head"]}), "head") == "bf16"
    dense = quantized(**{**said, "config_groups": {"g": {**groups["group_0"], "format": "dense"}}})
    assert dense.quantization is None and dense.bytes_unknown is None


def test_lists_of_qwen_as_they_are_published():
    """Qwen3.5-27B: the list of LLM Compressor's pull request about its delta nets, and FP8 beside NVFP4 as Unsloth writes it."""
    values = json.loads(config_2026("Qwen--Qwen3.5-27B").read_text(encoding="utf-8"))
    left = ["lm_head", "mlp.gate$", "embed_tokens$", "shared_expert_gate$", "linear_attn.conv1d$", "linear_attn.in_proj_a$"]
    left += ["linear_attn.in_proj_b$", "norm.*", "A_log$", "dt_bias$"]
    left = ["re:visual.*", "re:model.visual.*", *(f"re:.*{name}" for name in left)]
    said = {"quant_method": "compressed-tensors", "config_groups": {"NVFP4A16": ["Linear"]}, "ignore": left}
    model, delta, full, mlp = config.load({**values, "quantization_config": said}), 48, 16, 3 * 5120 * 17408
    mixers = delta * 5120 * (10240 + 6144 + 6144) + full * 5120 * (8192 + 6144 + 6144)  # all but the two small projections
    assert dict(model.formats)["ffn"] == (("nvfp4_w4a16", 1.0),) and "head" not in dict(model.formats)
    four = mixers + 64 * mlp
    assert sum(model.weight_bytes().values()) == pytest.approx(four * 0.5625 + (model.parameters - four) * 2, rel=1e-12)

    mixer = [r"re:.*self_attn\.(q|k|v|o)_proj$", r"re:.*linear_attn\.(in_proj_qkv|in_proj_z|out_proj)$", "lm_head"]
    last = r"re:.*layers\.(56|57|58|59|60|61|62|63)\.mlp\.(gate|up|down)_proj$"
    eight = {"num_bits": 8, "type": "float", "strategy": "channel"}
    nv = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
    groups = {
        "group_0": {"format": "float-quantized", "targets": [*mixer, last], "weights": eight, "input_activations": eight},
        "group_1": {"format": "nvfp4-pack-quantized", "targets": [r"re:.*mlp\.(gate|up|down)_proj$"], "weights": nv,
                    "input_activations": nv},
    }  # fmt: skip
    said = {**said, "format": "mixed-precision", "config_groups": groups, "ignore": []}
    model = config.load({**values, "quantization_config": said})
    eight, four = mixers + 8 * mlp + 5120 * 248320, 56 * mlp
    by_hand = eight + four * 0.5625 + (model.parameters - eight - four) * 2
    assert sum(model.weight_bytes().values()) == pytest.approx(by_hand, rel=1e-12) and recipe_of(model, "head") == "fp8"


# What is not known.


UNKNOWN = [
    ({"quant_method": name}, f"quant_method {name!r} is none of those")
    for name in ("aqlm", "vptq", "higgs", "spqr", "fp_quant", "hqq", "quanto", "eetq", "sinq", "bitnet", "of the year 2031")
] + [
    ({"quant_method": "modelopt", "quant_algo": "NVFP3"}, "quant_algo 'NVFP3' is none of those that are known"),
    ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "weight_block_size [64, 64] is none of"),
    (
        {"quant_method": "compressed-tensors", "config_groups": {"W4A16": ["Linear"]}, "format": "marlin-24"},
        "format 'marlin-24' packs",
    ),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"W4A16": ["Linear"]},
            "sparsity_config": {"format": "sparse-bitmask"},
        },
        "sparsity_config is given",
    ),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"NVFP4": ["Linear"]},
            "transform_config": {"config_groups": {"R": {}}},
        },
        "transform_config is given",
    ),
    (
        {"quant_method": "compressed-tensors", "config_groups": {"FP8": ["Linear"], "W4A16": ["Linear"]}},
        "names Linear, as another",
    ),
    ({"quant_method": "torchao", "quant_type": "autoquant"}, "quant_type 'autoquant' is none of those"),
    (
        {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "mx6", "qscheme": "per_group"}}},
        "weight in mx6 per_group",
    ),
    ({"quant_method": "auto-round", "bits": 8, "group_size": 128, "data_type": "fp8_gaudi3_sdpa", "act_bits": 8}, "data_type"),
]


@pytest.mark.parametrize(("said", "why"), UNKNOWN, ids=lambda value: str(value)[:60])
def test_parameters_are_counted_where_nobody_can_tell_the_bytes(said, why, tmp_path, capsys):
    model, plain = quantized(**said), config.load(LLAMA)
    assert (model.parameters, model.kv_bytes(8192)) == (plain.parameters, plain.kv_bytes(8192)) and model.quantization is None
    assert why in model.bytes_unknown and "\n" not in model.bytes_unknown
    told, lines = sheet(model), sheet_text(model).splitlines()
    assert told["weight_bytes"] is told["checkpoint_format"] is None and told["weight_bytes_unknown"] == model.bytes_unknown
    assert [line for line in lines if line.startswith("weights")] == [f"weights as stored: not known, {model.bytes_unknown}"]
    same = set(sheet_text(plain).splitlines()) - set(lines)
    assert len(same) == 1 and next(iter(same)).startswith("weights as stored (bf16)")
    for call in (model.weight_bytes, lambda: model.part_formats("ffn"), lambda: hw.Case(model=model, device="H200")):
        with pytest.raises(ValueError, match="recipe must be given") as error:
            call()
        assert model.bytes_unknown in str(error.value)
    assert sum(model.weight_bytes("fp8").values()) == sum(plain.weight_bytes("fp8").values())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "quantization_config": said}), encoding="utf-8")
    assert main(["show", str(path)]) == 0 and main(["check", str(path), "--device", "H200"]) == 2
    assert "recipe must be given (--recipe), since" in capsys.readouterr().err
    assert main(["check", str(path), "--device", "H200", "--recipe", "fp8"]) in (0, 1)
    assert "step" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["bitsandbytes", "torchao"])
def test_experts_of_methods_for_linear_layers_are_not_guessed(method):
    """transformers 5 holds routed experts in one parameter, which these leave as it is; versions before had a layer each."""
    said = {"load_in_4bit": True} if method == "bitsandbytes" else {"quant_type": "int8_weight_only"}
    model = quantized(MOE, quant_method=method, **said)
    assert "whether routed experts are such depends on its version" in model.bytes_unknown
    assert model.parameters == config.load(MOE).parameters


def test_fields_of_a_model_that_contradict_each_other():
    model = quantized(quant_method="fp8")
    with pytest.raises(ValueError, match="bytes_unknown must be None with quantization 'fp8', got 'why'"):
        replace(model, bytes_unknown="why")
    with pytest.raises(ValueError, match="quant_method must be"):
        replace(model, quant_method=3)


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": "yes"}, "load_in_4bit"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "int4"}, "bnb_4bit_quant_type"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "llm_int8_skip_modules": "lm_head"}, "llm_int8_skip_modules"),
        ({"quant_method": "auto-round", "bits": 0, "group_size": 128}, "bits"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": ["lm_head"]}, "extra_config"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "act_bits": 7}, "act_bits"),
        ({"quant_method": "quark"}, "global_quant_config"),
        ({"quant_method": "quark", "global_quant_config": {"weight": [MX4] * 3}}, "global_quant_config.weight"),
        ({"quant_method": "torchao"}, "quant_type"),
        ({"quant_method": "torchao", "quant_type": {"default": "int4"}}, "quant_type"),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": "32"}}, "quant_type"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        ({"quant_method": "compressed-tensors", "config_groups": {"W9A16": ["Linear"]}}, "config_groups.W9A16"),
        ({"quant_method": "compressed-tensors", "config_groups": {"FP8": [3]}}, "config_groups.FP8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"FP8": ["Linear"]}, "format": 8}, "format"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"FP8": ["Linear"]}, "sparsity_config": "2:4"},
            "sparsity_config",
        ),
        ({"group_size": 64, "bits": 7}, "bits"),
        ({"group_size": 64, "bits": 4, "mode": "turbo"}, "mode"),
        ({"group_size": 64, "bits": 4, "mode": "mxfp4"}, "mode"),
        ({"group_size": 64, "bits": 4, "model.layers.0.mlp.up_proj": 3}, "model.layers.0.mlp.up_proj"),
        ({"group_size": 64, "bits": 4, "model.layers.0.mlp.up_proj": {"bits": 99}}, "model.layers.0.mlp.up_proj.bits"),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "modules_in_block_to_quantize": [[3]]},
            "modules_in_block_to_quantize",
        ),
        ({"quant_method": "mxfp8", "weight_block_size": [128, 128]}, "weight_block_size"),
    ],
    ids=lambda value: str(value)[:70],
)
def test_what_is_malformed_is_refused_by_name(said, key):
    with pytest.raises(ValueError, match=r"\Aconfig key [^\n]{10,700}\Z") as error:
        quantized(**said)
    assert f"'quantization_config.{key}' must be " in str(error.value)


def test_two_keys_of_mlx_that_disagree_are_refused():
    with pytest.raises(ValueError, match="config keys 'quantization_config' and 'quantization' contradict each other"):
        config.load(
            {**LLAMA, "quantization": {"bits": 4, "group_size": 64}, "quantization_config": {"bits": 8, "group_size": 64}}
        )


# Lists of modules, and wrappers.


NAMED = {  # a config for each way to name modules, with a place for the name
    "gptq": lambda name: {"bits": 4, "group_size": 128, "modules_to_not_convert": [name]},
    "awq": lambda name: {"bits": 4, "group_size": 128, "modules_to_not_convert": [name]},
    "fp8": lambda name: {"modules_to_not_convert": [name]},
    "fbgemm_fp8": lambda name: {"modules_to_not_convert": [name]},
    "mxfp4": lambda name: {"modules_to_not_convert": [name]},
    "bitsandbytes": lambda name: {"load_in_4bit": True, "llm_int8_skip_modules": [name]},
    "torchao": lambda name: {"quant_type": "int8_weight_only", "modules_to_not_convert": [name]},
    "modelopt": lambda name: {"quant_algo": "NVFP4", "ignore": [name]},
    "compressed-tensors": lambda name: {"config_groups": {"W4A16": ["Linear"]}, "ignore": [name]},
    "quark": lambda name: {"global_quant_config": {"weight": MX4}, "exclude": [f"{name}*"]},
    "auto-round": lambda name: {"bits": 4, "group_size": 128, "extra_config": {name: {"bits": 16, "data_type": "float"}}},
    "mlx": lambda name: {"bits": 4, "group_size": 64, name: False},
}  # fmt: skip


@pytest.mark.parametrize("method", NAMED)
@pytest.mark.parametrize("prefix", ["", "model.", "language_model.model.", "model.language_model."])
@pytest.mark.parametrize("nested", ["plain", "wrapper", "inside"])
def test_a_list_is_read_with_the_prefix_of_a_wrapper(method, prefix, nested):
    """One of four attention layers stays in BF16, whatever stands before its name and wherever the config stands."""
    said = NAMED[method](f"{prefix}layers.1.self_attn")
    said = said if method == "mlx" else {"quant_method": method, **said}
    key = "quantization" if method == "mlx" else "quantization_config"
    values = {
        "plain": {**LLAMA, key: said},
        "wrapper": {"model_type": "x", "text_config": LLAMA, key: said, "vision_config": {"hidden_size": 64}},
        "inside": {"model_type": "x", "text_config": {**LLAMA, key: said}, "vision_config": {"hidden_size": 64}},
    }[nested]
    model = config.load(values)
    assert dict(dict(model.formats)["attention"])["bf16"] == 0.25 and len(dict(model.formats)["ffn"]) == 1
    assert model.quantization not in (None, "bf16") and model.quant_method == method


def test_layers_of_auto_round_and_of_gptq_with_bits_of_their_own():
    said = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True, "block_name_to_quantize": "model.layers",
            "extra_config": {"model.layers.0.self_attn.q_proj": {"bits": 8}, r".*layers\.[12]\.mlp.*": {"bits": 16},
                             "model.layers.3.mlp.up_proj": {"group_size": 32, "sym": False}, "lm_head": {"bits": 8}}}  # fmt: skip
    model = quantized(**said)
    assert dict(dict(model.formats)["attention"]) == {"w4a16_g128_zp": 15 / 16, "w8a16_g128_zp": 1 / 16}
    assert dict(dict(model.formats)["ffn"]) == {"bf16": 6 / 12, "w4a16_g128_zp": 5 / 12, "w4a16_g32_zp": 1 / 12}
    assert recipe_of(model, "head") == "w8a16_g128_zp"
    assert "names no list of layers" in quantized(**{**said, "block_name_to_quantize": "model.visual.blocks"}).bytes_unknown
    only = [["self_attn.k_proj", "self_attn.v_proj"], ["mlp.down_proj"]]
    some = quantized(quant_method="gptq", bits=4, group_size=128, modules_in_block_to_quantize=only, lm_head=True)
    assert (
        dict(dict(some.formats)["attention"]) == {"bf16": 0.5, "w4a16_g128_zp": 0.5}
        and recipe_of(some, "head") == "w4a16_g128_zp"
    )
    assert dict(dict(some.formats)["ffn"])["w4a16_g128_zp"] == pytest.approx(1 / 3)


def test_embeddings_of_torchao_and_of_mlx():
    both = quantized(quant_method="torchao", quant_type="int8_weight_only", include_input_output_embeddings=True)
    assert (
        recipe_of(both, "embedding") == recipe_of(both, "head") == "w8a16_row" and both.weight_bytes()["embedding"] == 512 * 1000
    )
    assert recipe_of(both, "ffn") == "w8a16_row"
    mixed = config.load({**LLAMA, "quantization": {"bits": 4, "group_size": 64, "lm_head": {"bits": 8, "group_size": 32}}})
    assert recipe_of(mixed, "head") == "w8a16_g32_zp16" and recipe_of(mixed, "embedding") == "w4a16_g64_zp16"
    narrow = config.load({**LLAMA, "intermediate_size": 1000, "quantization": {"bits": 4, "group_size": 64}})
    assert dict(dict(narrow.formats)["ffn"]) == {"w4a16_g64_zp16": 2 / 3, "bf16": 1 / 3}  # 1000 inputs make no groups of 64


# Recipes, and the engines that run them.


@pytest.mark.parametrize(
    ("name", "parts", "bits"),
    [
        ("w3a16_g64_zp", (3, 64, "16", "_zp"), 3 + 19 / 64),
        ("W4A16_G128", (4, 128), 4.125),
        ("w8a8_g32_i8", (8, 32, "8", "_i8"), 8.5),
        ("w4afp8_g64", (4, 64, "fp8"), 4.25),
        ("w2a4_row", (2, None, "4", "_zp"), 2),
        ("w5a16_g65536_zp16", (5, 65536, "16", "_zp16"), 5 + 32 / 65536),
        ("w8a8_row", (8, None, "8"), 8),
        ("w2a8_g128_i8", (2, 128, "8", "_i8"), 8.125),
    ],
)
def test_integers_in_groups_go_by_their_name(name, parts, bits):
    form = hw.recipe(name)
    assert hw.recipe(form.name) is form and integer_recipe(*parts[:3], **({"zero": parts[3]} if parts[3:] else {})) == form.name
    assert form.weights.bytes * 8 == pytest.approx(bits, rel=1e-12)


@pytest.mark.parametrize(
    "name", ["w9a16_g64", "w4a16_g0", "w4a16_g65537", "w4a16_g064", "w8a4_row", "w4a16_row_zp", "w4a16_zp", "w4a1", "w٤a16_row"]
)
def test_no_other_name_stands_for_integers(name):
    with pytest.raises(ValueError, match="recipe must be one of bf16, "):
        hw.recipe(name)


def test_every_recipe_without_its_math_is_weight_only_or_refused():
    for form in [*RECIPES.values(), *map(hw.recipe, ("w4a8_g32", "w3a8_g128_zp", "w4afp8_row", "w4a4_g64", "w4a8_g128_i8"))]:
        try:
            alone = multiplied(form, ["bf16"])
        except ValueError as error:
            assert form.name in ("table2", "int8") and "must multiply in a format of the device" in str(error)
            continue
        assert alone.weights == form.weights and alone.math is hw.BF16 and alone.kv_cache is form.kv_cache
    assert multiplied("w4afp8", ["bf16", "fp8"]) is hw.recipe("w4afp8")


@pytest.mark.parametrize(
    "recipe", ["w4a8", "w4afp8", "w3a16_g64_zp", "bnb4_dq", "mxfp6", "nvfp4_w4a8", "w4a8_g128_i8", "w8a16_g64_zp16"]
)
@pytest.mark.parametrize("device", ["A100_SXM", "H200", "B200", "MI300X"])
def test_a_step_in_formats_without_a_table_says_so(recipe, device):
    model = config.load("llama-3.1-8b")
    form = multiplied(recipe, hw.device(device).dense_peak)
    step = hw.decode_step(model, recipe=form, device=device, batch=8, context=1000)
    wide = hw.decode_step(model, recipe="bf16", device=device, batch=8, context=1000)
    assert 0 < step.seconds <= wide.seconds * 1.001 and step.memory < wide.memory
    assert any(f"recipe {form.name} takes the constants of" in note for note in step.notes)


LOADED = [  # method, its config, engines that load it (engines.csv)
    ({"bits": 4, "group_size": 64}, ()),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, ("sglang",)),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128}, ("vllm", "sglang")),
    ({"quant_method": "gptq", "bits": 3, "group_size": 128}, ()),
    ({"quant_method": "auto-round", "bits": 3, "group_size": 128}, ("vllm", "sglang")),
    (
        {"quant_method": "compressed-tensors", "config_groups": {"W4A8": ["Linear"]}, "format": "pack-quantized"},
        ("vllm", "trtllm"),
    ),
    ({"quant_method": "compressed-tensors", "config_groups": {"W4A16": ["Linear"]}}, ("vllm", "sglang", "trtllm")),
    ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, ("vllm",)),
    ({"quant_method": "fp8"}, ("vllm", "sglang", "trtllm")),
]


@pytest.mark.parametrize(("said", "engines"), LOADED, ids=lambda value: str(value)[:60])
def test_an_engine_that_does_not_load_a_checkpoint_gives_no_speed(said, engines):
    model = quantized(**said)
    for name in ("vllm", "sglang", "trtllm"):
        if name in engines:
            assert engine_formats(model, "H200", name).recipe_from == "checkpoint"
            continue
        words = f"{engine(name).title} loads no checkpoint of {model.quant_method} in {model.quantization}"
        with pytest.raises(ValueError, match="recipe must be given") as error:
            engine_formats(model, "H200", name)
        assert words in str(error.value) and engine_formats(model, "H200", name, recipe="fp8").stored == "fp8"


# Mutations.


def real_configs():
    """Quantization configs as they are published and as the libraries write them, each with its model."""
    folder = Path(config.__file__).parent / "configs"
    shipped = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    found = [values for values in shipped if any("quant" in key for key in values)]
    found += [{**LLAMA, "quantization_config": row["quantization_config"]} for row in STORED["matrices"]]
    found += [{k: v for k, v in row["config"].items() if k != "quantization_config"} for row in STORED["models"]]
    found += [row["config"] for row in STORED["transformers"]]
    found += [{**LLAMA, "quantization_config": said} for said, _ in UNKNOWN]
    found += [
        {**LLAMA, "quantization_config": {"quant_method": name, **make("layers.1.self_attn")}} for name, make in NAMED.items()
    ]
    return found


NONSENSE = [
    None,
    True,
    False,
    0,
    -1,
    3,
    4,
    8,
    10**9,
    10**40,
    1.5,
    math.nan,
    math.inf,
    "",
    "fp8",
    "int",
    "group",
    "Linear",
    "lm_head",
    "re:(",
    "re:.*mlp.*",
    "é\n",
    [],
    {},
    ["Linear"],
    [None],
    [[]],
    {"bits": 4},
    {"num_bits": 4, "type": "int"},
    {"": {}},
]


def places(value, path=()):
    """Paths to all values inside a nested one."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, deeper in inner:
        yield from places(deeper, (*path, key))


def mutated(rng, values):
    """A config with one or two changes in what it says of quantization, rarely of the whole."""
    values = copy.deepcopy(values)
    key = rng.choice([key for key in values if key in ("quantization_config", "quantization")])
    for _ in range(rng.choice([1, 1, 2])):
        inside = list(places(values[key]))
        path = (key, *rng.choice(inside if rng.random() < 0.1 else inside[1:] or inside))
        above = values
        for step in path[:-1]:
            above = above[step]
        kind = rng.randrange(4)
        if kind == 0 and len(path) > 1:
            del above[path[-1]]
        elif kind == 1 and isinstance(above, dict):
            above[rng.choice(["bits", "group_size", "quant_method", "ignore", "format", "weights", "mode", "x"])] = rng.choice(
                NONSENSE
            )
        elif kind == 2 and isinstance(above[path[-1]], int):
            above[path[-1]] = rng.choice([0, 1, 2, 3, 5, 16, 96, -1, above[path[-1]] * 2])
        else:
            above[path[-1]] = copy.deepcopy(rng.choice(NONSENSE))
        if key not in values or not isinstance(values[key], dict):
            break
    return values


def test_thousands_of_changed_configs_are_read_counted_or_refused():
    """One line that names a key, finite bytes, or a line that says why they are not known; nothing else, and fast."""
    rng, start, seen = random.Random(25), time.process_time(), {"read": 0, "unknown": 0, "refused": 0}
    configs = real_configs()
    plain = [{k: v for k, v in values.items() if "quant" not in k and k != "expert_dtype"} for values in configs]
    counts = [config.load(values).parameters for values in plain]
    for _ in range(4000):
        place = rng.randrange(len(configs))
        values = mutated(rng, configs[place])
        try:
            model = config.load(values)
        except ValueError as error:
            assert type(error) is ValueError and str(error) and "\n" not in str(error) and len(str(error)) < 1500, values
            seen["refused"] += 1
            continue
        assert model.parameters == counts[place], values
        if model.bytes_unknown:
            assert "\n" not in model.bytes_unknown and len(model.bytes_unknown) < 1500
            seen["unknown"] += 1
            continue
        total = sum(model.weight_bytes().values())
        assert 0.2 * model.parameters < total <= 4.2 * model.parameters, values
        seen["read"] += 1
    assert min(seen.values()) > 300 and time.process_time() - start < 30, seen


def test_the_page_names_the_methods_and_counts_what_was_compared():
    page = (Path(__file__).parents[1] / "book" / "checking.md").read_text(encoding="utf-8")
    for name in METHODS:
        assert f"`{name}`" in page or name.startswith("modelopt_")
    whole = len(STORED["models"]) + len(STORED["transformers"])
    assert f"{len(STORED['matrices'])} matrices, {whole} small models whole" in page


def test_a_report_about_integers_in_groups_keeps_to_its_schema():
    jsonschema = pytest.importorskip("jsonschema")
    values = {**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}}
    told = json.loads(render([judge(values, device="H200")], "json"))
    jsonschema.Draft202012Validator(schema()).validate(told)
    (report,) = told["reports"]
    assert report["recipe"] == report["recipe_stored"] == "w4a16_g32_zp" and report["weight_only"]
    report["recipe"] = "w9a16_g32"
    with pytest.raises(jsonschema.ValidationError, match="w9a16_g32"):
        jsonschema.Draft202012Validator(schema()).validate(told)
