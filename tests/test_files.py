"""Files as people have them: folders, sidecars, formats of parts, cache, heads, drafts, what is left out, slips of the hand."""

import json
import re
import time
from pathlib import Path

import pytest
from conftest import slowness

import hwdesign as hw
from hwdesign.advice.case import as_model, config_path
from hwdesign.models import config, module_rules, quantization_methods

LLAMA = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 8,
         "num_key_value_heads": 2, "vocab_size": 100}  # fmt: skip
MOE = {**LLAMA, "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
SIDECAR = "hf_quant_config.json"


def shipped(name, *without, **changed):
    values = json.loads((Path(config.__file__).parent / "configs" / f"{name}.json").read_text(encoding="utf-8"))
    return {**{key: value for key, value in values.items() if key not in without}, **changed}


def folder(path, values, sidecar=None, name="model"):
    """A folder as `hf download` leaves it."""
    (path / name).mkdir()
    (path / name / "config.json").write_text(json.dumps(values), encoding="utf-8")
    if sidecar is not None:
        said = {"producer": {"name": "modelopt"}, "quantization": sidecar}
        (path / name / SIDECAR).write_text(json.dumps(said), encoding="utf-8")
    return path / name


def gigabytes(model):
    return sum(model.weight_bytes().values()) / 1e9


def stored(model, part):
    return [(recipe.name, share) for recipe, share in model.part_formats(part)]


def quantized(base=LLAMA, **keys):
    return config.load({**base, "quantization_config": keys})


# Published checkpoints: their lists, written out, and their sizes.


def test_a_sidecar_is_read_beside_the_config(tmp_path):
    """nvidia/Qwen3-235B-A22B-NVFP4: its config.json is silent; a runtime's design says "the complete 134 GB model"."""
    left = ["lm_head", *(f"model.layers.{i}.mlp.gate" for i in range(94))]
    said = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": left}
    where = folder(tmp_path, shipped("qwen3-235b-a22b"), said, "Qwen3-235B-A22B-NVFP4")
    matrices = 94 * (2 * 4096 * 8192 + 2 * 4096 * 512 + 128 * 3 * 4096 * 1536)
    rest = 2 * 151936 * 4096 + 94 * (128 * 4096 + 2 * 4096 + 2 * 128) + 4096
    for source in (where, str(where), where / "config.json"):
        model = config.load(source)
        assert model.name == "Qwen3-235B-A22B-NVFP4" and model.parameters == matrices + rest == 235_093_634_560
        assert (model.quantization, model.kv_cache, model.max_positions) == ("nvfp4", "fp8", 40960)
        assert sum(model.weight_bytes().values()) == matrices * 0.5625 + rest * 2
        assert round(gigabytes(model)) == 134
    (where / "config.json").rename(tmp_path / "other.json")
    (where / SIDECAR).rename(tmp_path / f"other.{SIDECAR}")
    assert config.load(tmp_path / "other.json").weight_bytes() == model.weight_bytes()
    (tmp_path / f"other.{SIDECAR}").unlink()
    assert round(gigabytes(config.load(tmp_path / "other.json"))) == 470


def test_a_part_of_which_some_modules_are_kept(tmp_path):
    """nvidia/DeepSeek-V3.1-NVFP4 converts of attention the output projection alone; layer 61 predicts."""
    names = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
    left = ["lm_head", "model.layers.61*", *(f"model.layers.{i}.self_attn.{name}" for i in range(61) for name in names)]
    said = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": left}
    model = config.load(folder(tmp_path, shipped("deepseek-v3", "quantization_config"), said))
    output, others = 7168 * 16384, 7168 * 1536 + 1536 * 24576 + 7168 * 576 + 512 * 32768
    assert stored(model, "attention") == [("nvfp4", output / (output + others)), ("bf16", others / (output + others))]
    assert stored(model, "experts") == stored(model, "ffn") == [("nvfp4", 1.0)] and stored(model, "head") == [("bf16", 1.0)]
    assert model.weight_bytes()["attention"] == pytest.approx(61 * (output * 0.5625 + others * 2), rel=1e-12)
    assert round(gigabytes(model)) == 386  # not 1342


def test_a_part_that_is_kept_in_some_layers(tmp_path):
    """nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4: attention, and the Mamba layer before it, stay in BF16."""
    attention, mamba = (5, 12, 19, 26, 33, 42), (4, 11, 18, 25, 32, 41)
    left = ["lm_head", *(f"backbone.layers.{i}.mixer.{x}_proj" for i in attention for x in "qkvo")]
    left += [f"backbone.layers.{i}.mixer.{x}_proj" for i in mamba for x in ("in", "out")]
    left += [f"backbone.layers.{i}.mixer.conv1d" for i in (0, 2, 4, 7)]
    said = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": left}
    model = config.load(folder(tmp_path, shipped("nemotron-3-nano-30b-a3b"), said))
    assert stored(model, "mamba") == [("nvfp4", 17 / 23), ("bf16", 6 / 23)]  # 23 Mamba layers of one size
    assert stored(model, "attention") == [("bf16", 1.0)] and stored(model, "experts") == [("nvfp4", 1.0)]


def test_a_mixed_checkpoint_names_the_algorithm_of_each_module(tmp_path):
    """As nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4, whose shapes are those of the shipped Nano."""
    pattern, algorithm = shipped("nemotron-3-nano-30b-a3b")["hybrid_override_pattern"], "W4A16_NVFP4"
    layers = {"lm_head": {"quant_algo": algorithm, "group_size": 16}}
    for i, letter in enumerate(pattern):
        if letter == "M":
            layers |= {f"backbone.layers.{i}.mixer.{x}_proj": {"quant_algo": "FP8"} for x in ("in", "out")}
        if letter == "E":
            names = [f"experts.{e}" for e in range(128)] + ["shared_experts"]
            names = [f"backbone.layers.{i}.mixer.{name}.{x}_proj" for name in names for x in ("up", "down")]
            layers |= dict.fromkeys(names, {"quant_algo": algorithm, "group_size": 16})
    left = ["mtp*", "backbone.embeddings", *(f"backbone.layers.5.mixer.{x}_proj" for x in "qkvo")]
    said = {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8", "quantized_layers": layers, "exclude_modules": left}
    model = config.load(folder(tmp_path, shipped("nemotron-3-nano-30b-a3b"), said))
    assert model.quantization == "nvfp4_w4a16" and stored(model, "mamba") == [("fp8", 1.0)]
    assert stored(model, "experts") == stored(model, "shared experts") == stored(model, "head") == [("nvfp4_w4a16", 1.0)]
    assert stored(model, "attention") == [("bf16", 1.0)]
    bytes_ = model.weight_bytes()
    assert bytes_["experts"] == 23 * 128 * 2 * 2688 * 1856 * 0.5625 and bytes_["head"] == 131072 * 2688 * 0.5625
    assert model.weight_bytes("fp8")["head"] == 131072 * 2688 * 2  # another recipe converts what it converts


def test_compressed_tensors_with_regular_expressions():
    """moonshotai/Kimi-K2.5: experts alone in INT4, groups of 32, inside text_config; Unsloth's page says 600 GB of disk."""
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    left = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]
    said = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": left, "kv_cache_scheme": None,
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}}  # fmt: skip
    text = shipped("deepseek-v3", model_type="kimi_k2", vocab_size=163840, num_attention_heads=64, n_routed_experts=384,
                   first_k_dense_replace=1, num_nextn_predict_layers=0, quantization_config=said)  # fmt: skip
    model = config.load({"model_type": "kimi_k25", "text_config": text, "vision_config": {"hidden_size": 1152}})
    experts = 60 * 384 * 3 * 7168 * 2048
    assert model.parameters == 1_026_408_232_448 and model.left_out == ("vision tower",)
    assert sum(model.weight_bytes().values()) == experts * 4.5 / 8 + (1_026_408_232_448 - experts) * 2
    assert gigabytes(model) == pytest.approx(600, rel=0.01)
    assert [stored(model, part) for part in ("attention", "ffn", "shared experts")] == [[("bf16", 1.0)]] * 3


@pytest.mark.parametrize(
    ("method", "bits", "size", "recipe", "bits_each"),
    [("gptq", 4, 128, "w4a16_g128_zp", 4 + 20 / 128), ("awq", 4, 64, "w4a16_g64_zp", 4 + 20 / 64),
     ("gptq", 4, 32, "w4a16_g32_zp", 4 + 20 / 32), ("gptq", 4, -1, "w4a16_row", 4), ("gptq", 8, 128, "w8a16_g128_zp", 8.1875),
     ("awq", 8, 64, "w8a16_g64_zp", 8 + 24 / 64), ("gptq", 8, 32, "w8a16_g32_zp", 8.75), ("gptq", 8, -1, "w8a16_row", 8),
     ("gptq", 2, 16, "w2a16_g16_zp", 2 + 18 / 16), ("gptq", 3, 256, "w3a16_g256_zp", 3 + 19 / 256)],
)  # fmt: skip
def test_integers_in_groups_with_a_scale_of_16_bits_and_a_zero_point(method, bits, size, recipe, bits_each):
    model = quantized(quant_method=method, bits=bits, group_size=size)
    assert model.quantization == recipe
    matrices = 4 * (64 * 96 + 64 * 64 + 3 * 64 * 96)  # qkv 64 + 2 x 16, output, gate, up, down
    assert model.weight_bytes()["attention"] + model.weight_bytes()["ffn"] == matrices * bits_each / 8
    assert hw.recipe(recipe).math is hw.BF16


WEIGHTS = {"num_bits": 8, "type": "float", "strategy": "channel"}


def group(inputs=True, **weights):
    inputs = {"num_bits": weights.get("num_bits", 8), "type": weights.get("type", "float")} if inputs else None
    return {"weights": {**WEIGHTS, **weights}, "input_activations": inputs, "targets": ["Linear"]}


@pytest.mark.parametrize(
    ("said", "recipe"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_algo": "FP8", "producer": {"name": "modelopt"}, "config_groups": {"g": {}}}, "fp8"),  # Qwen3-32B-FP8-Static
        *(({"quant_method": "modelopt", "quant_algo": algo}, recipe) for algo, recipe in quantization_methods.ALGORITHMS.items()),
        ({"config_groups": {"g": group()}}, "fp8"),
        ({"config_groups": {"g": group(inputs=False)}}, "fp8_w8a16"),
        ({"config_groups": {"g": group(strategy="block", block_structure=[128, 128])}}, "fp8_block"),
        ({"config_groups": {"g": group(num_bits=4, strategy="tensor_group", group_size=16)}}, "nvfp4"),
        ({"config_groups": {"g": group(False, num_bits=4, strategy="tensor_group", group_size=16)}}, "nvfp4_w4a16"),
        ({"config_groups": {"g": group(False, num_bits=4, strategy="group", group_size=32)}}, "mxfp4_w4a16"),
        ({"config_groups": {"g": group(type="int")}}, "int8"),
        ({"config_groups": {"g": group(False, type="int")}}, "w8a16_row"),
        ({"config_groups": {"g": group(False, type="int", num_bits=4, strategy="group", group_size=128)}}, "w4a16"),
    ],
)  # fmt: skip
def test_formats_by_name(said, recipe):
    if "config_groups" in said and "quant_algo" not in said:
        said = {"quant_method": "compressed-tensors", **said}
    model = quantized(**said)
    assert model.quantization == recipe and dict(model.formats)["ffn"] == ((recipe, 1.0),)
    assert model.parameters == config.load(LLAMA).parameters


@pytest.mark.parametrize(
    "said",
    [group(num_bits=3), group(num_bits=8, strategy="block", block_structure=[64, 64]),
     {**group(num_bits=4, group_size=16), "input_activations": {"num_bits": 8, "type": "float"}},
     group(False, group_size=8, strategy=None), group(num_bits=5, type="int", strategy="token")],
)  # fmt: skip
def test_groups_in_a_format_that_is_not_known(said):
    model = quantized(quant_method="compressed-tensors", config_groups={"g": said})
    assert model.parameters == config.load(LLAMA).parameters and model.quantization is None
    assert model.bytes_unknown.startswith("quantization_config.config_groups.g.weights in ")
    with pytest.raises(ValueError, match="recipe must be given, since .* not known: quantization_config.config_groups.g.weights"):
        model.weight_bytes()
    assert sum(model.weight_bytes("bf16").values()) == 2 * model.parameters


@pytest.mark.parametrize(
    "weights", [{}, {"num_bits": "8", "type": "int"}, {"num_bits": 8, "type": "fixed"}, {"num_bits": 99, "type": "int"}]
)
def test_groups_that_say_nothing_are_refused(weights):
    with pytest.raises(ValueError, match="config_groups.g.weights' must be an object with num_bits from 1 to 16"):
        quantized(quant_method="compressed-tensors", config_groups={"g": {"weights": weights}})


@pytest.mark.parametrize(
    "keys",
    [{"quant_algo": ["FP8"]}, {"quant_algo": {}}, {"quant_algo": "MIXED_PRECISION", "quantized_layers": {"lm_head": []}},
     {"quant_algo": "MIXED_PRECISION"}, {"quant_algo": "FP8", "ignore": ["re:[[a]"]}, {"quant_algo": "FP8", "ignore": "mlp"}],
)  # fmt: skip
def test_odd_values_are_refused_by_name(keys):
    with pytest.raises(ValueError, match=r"\Aconfig key 'quantization_config.[^\n]* must be [^\n]*\Z"):
        quantized(quant_method="modelopt", **keys)


ATTENTION, FFN = 4 * (64 * 96 + 64 * 64), 4 * 3 * 64 * 96  # elements of LLAMA in four layers


@pytest.mark.parametrize(
    ("entries", "attention", "ffn"),
    [
        ([], 0, 0),
        (["lm_head", "model.embed_tokens", "model.layers.0.input_layernorm", "model.layers.4.eh_proj"], 0, 0),
        (["model.layers.*.self_attn"], 1, 0),
        (["self_attn"], 1, 0),
        (["*.self_attn*", "re:.*mlp.*"], 1, 1),
        (["model.layers.0.self_attn"], 1 / 4, 0),
        (["model.layers.1*"], 1 / 4, 1 / 4),
        (["language_model.model.layers.2.mlp", "re:model\\.layers\\.3\\.mlp\\..*"], 0, 2 / 4),
        (["model.layers.0.self_attn.q_proj"], 64 * 64 * 1 / ATTENTION, 0),
        (["re:.*k_proj", "o_proj"], 4 * (64 * 16 + 64 * 64) / ATTENTION, 0),
        (["model.layers.0.mlp.gate_up_proj"], 0, 2 / 12),
        (["re:.*\\.(?:0|2)\\.mlp\\.down_proj$"], 0, 2 / 12),
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", module_rules.LISTS)
def test_what_is_excluded_is_counted_where_it_is(key, entries, attention, ffn):
    model = quantized(quant_method="fp8", **{key: entries})
    for part, share in (("attention", attention), ("ffn", ffn)):
        assert dict(stored(model, part)).get("bf16", 0) == pytest.approx(share)
        assert sum(dict(stored(model, part)).values()) == pytest.approx(1)
    extra = ATTENTION * attention + FFN * ffn
    assert sum(model.weight_bytes().values()) == pytest.approx(sum(quantized(quant_method="fp8").weight_bytes().values()) + extra)


def test_all_excluded_is_no_quantization():
    model = quantized(quant_method="fp8", ignore=["self_attn", "mlp"])
    assert (model.quantization, model.formats) == (None, ()) and model.weight_bytes() == config.load(LLAMA).weight_bytes()


def test_experts_one_by_one():
    model = quantized(MOE, quant_method="fp8", ignore=["model.layers.0.mlp.experts.1.up_proj", "model.layers.1.mlp.experts"])
    assert dict(stored(model, "experts"))["bf16"] == pytest.approx((1 / 12 + 1) / 4)
    assert stored(quantized(MOE, quant_method="awq", bits=4, group_size=128, modules_to_not_convert=["gate"]), "experts") == [
        ("w4a16_g128_zp", 1.0)
    ]


def test_rules_of_gptqmodel():
    """`dynamic`: after ``-:`` a module is left out, else it has its own bits or group; the first that matches holds."""
    dynamic = {"-:.*self_attn.*": {}, r"+:model\.layers\.0\.mlp": {"bits": 8}, r".*layers\.[01]\.mlp": {"group_size": 32}}
    model = quantized(quant_method="gptq", bits=4, group_size=128, dynamic=dynamic)
    assert stored(model, "attention") == [("bf16", 1.0)]
    assert dict(stored(model, "ffn")) == {"w4a16_g128_zp": 0.5, "w8a16_g128_zp": 0.25, "w4a16_g32_zp": 0.25}


def test_groups_of_modules():
    groups = {"a": {**group(), "targets": ["re:.*self_attn.*"]}, "b": group(num_bits=4, strategy="group", group_size=16)}
    model = quantized(quant_method="compressed-tensors", config_groups=groups, ignore=["lm_head", "model.layers.0.mlp"])
    assert stored(model, "attention") == [("fp8", 1.0)] and stored(model, "ffn") == [("nvfp4", 0.75), ("bf16", 0.25)]
    assert model.quantization == "nvfp4"  # of the most parameters


# Times and verdicts of parts in two formats.


def test_a_part_in_two_formats_takes_the_shares_of_both_times():
    from dataclasses import replace

    plain = config.load("llama-3.1-8b")
    mixed = replace(plain, quantization="fp8", formats=(("attention", (("bf16", 0.75), ("fp8", 0.25))),))
    load = {"device": "H100_SXM", "batch": 16, "context": 1000}
    for ideal in (False, True):
        steps = [hw.decode_step(m, recipe=r, **load, ideal=ideal) for m, r in ((plain, "bf16"), (plain, "fp8"), (mixed, "fp8"))]
        wide, low, both = (step.terms["projections"] for step in steps)
        assert both == pytest.approx(0.75 * wide + 0.25 * low) and steps[1].terms["ffn"] == steps[2].terms["ffn"]
    attention = plain.parameters_by_part()["attention"]
    assert steps[2].memory - steps[1].memory == pytest.approx(0.75 * attention)
    case = hw.Case(model=mixed, device="H100_SXM")
    assert (case.recipe.name, case.low("attention").name, case.low("ffn").name) == ("fp8", "bf16", "fp8")


@pytest.mark.parametrize(
    ("formats", "says"),
    [
        ((("attention", (("bf16", 0.5),)),), "shares that add up to 1"),
        ((("attention", ()),), "shares that add up to 1"),
        ((("norm", (("bf16", 1.0),)),), "formats must be one of attention"),
        ((("ffn", (("fp6", 1.0),)),), "formats must be one of bf16"),
    ],
)
def test_formats_that_cannot_be(formats, says):
    with pytest.raises(ValueError, match=says):
        hw.Model(name="x", hidden_size=64, vocab_size=10, blocks=config.load(LLAMA).blocks, quantization="fp8", formats=formats)
    with pytest.raises(ValueError, match="formats must be empty without quantization"):
        hw.Model(name="x", hidden_size=64, vocab_size=10, blocks=config.load(LLAMA).blocks, formats=(("ffn", (("fp8", 1.0),)),))


# The cache.


@pytest.mark.parametrize(
    ("keys", "cache"),
    [({}, None), ({"kv_cache_scheme": None}, None), ({"kv_cache_scheme": "FP8"}, "fp8"),
     ({"kv_cache_quant_algo": "NVFP4"}, "nvfp4"),
     ({"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}}, "fp8"), ({"kv_cache_dtype": "auto"}, None),
     ({"kv_cache_scheme": {"num_bits": 4, "type": "float"}}, "nvfp4"), ({"kv_cache_dtype": "fp8_e4m3"}, "fp8"),
     ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "int8"), ({"kv_cache_dtype": "bfloat16"}, "bf16")],
)  # fmt: skip
def test_the_format_of_the_cache_that_a_checkpoint_names(keys, cache):
    assert quantized(quant_method="fp8", **keys).kv_cache == cache


def test_the_cache_is_named_once_and_known(tmp_path):
    assert config.load({**LLAMA, "kv_cache_dtype": "fp8"}).kv_cache == "fp8"
    with pytest.raises(ValueError, match="'quantization_config.kv_cache_scheme' must be one of fp8, .* got 'fp3'"):
        quantized(quant_method="fp8", kv_cache_scheme="fp3")
    with pytest.raises(ValueError, match=r"\{'num_bits': 3"):
        quantized(quant_method="fp8", kv_cache_scheme={"num_bits": 3, "type": "float"})
    with pytest.raises(ValueError, match="'kv_cache_dtype' = fp8 and .* = int8 contradict"):
        config.load({**LLAMA, "kv_cache_dtype": "fp8", "quantization_config": {"quant_method": "fp8", "kv_cache_scheme": "int8"}})
    own = {"quant_method": "modelopt", "quant_algo": "FP8"}
    where = folder(tmp_path, {**LLAMA, "quantization_config": own}, {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"})
    assert config.load(where).kv_cache == "fp8"  # only the sidecar says it, as with Qwen3.6-35B-A3B-NVFP4


def test_config_and_sidecar_must_agree(tmp_path):
    own = {"quant_method": "fp8"}
    where = folder(tmp_path, {**LLAMA, "quantization_config": own}, {"quant_algo": "NVFP4"})
    with pytest.raises(ValueError, match="'quantization_config' and hf_quant_config.json must agree .* got fp8 and nvfp4"):
        config.load(where)
    (where / SIDECAR).write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="hf_quant_config.json: quant_method' must be one of fp8, .* got nothing"):
        config.load(where)
    (where / SIDECAR).write_text("[", encoding="utf-8")
    with pytest.raises(ValueError, match="'hf_quant_config.json' must be JSON"):
        config.load(where)


# Heads: what a class of transformers holds. Counts: 32 layers of Llama-3.1-8B and Mistral-7B, without the head.


def test_a_checkpoint_without_a_head(tmp_path):
    """e5-mistral-7b-instruct is a MistralModel; mteb gives Qwen3-Embedding-8B 7,567,295,488 parameters."""
    layer = 4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336 + 2 * 4096
    mistral = {**shipped("llama-3.1-8b"), "model_type": "mistral", "vocab_size": 32000, "sliding_window": 4096}
    model = config.load({**mistral, "architectures": ["MistralModel"]})
    assert model.parameters == 32 * layer + 32000 * 4096 + 4096 == 7_110_660_096
    assert model.active_parameters(include_embedding=False) == 32 * layer + 4096
    assert "no LM head" in hw.sheet_text(model) and "head" not in model.parameters_by_part()
    gemms = hw.step(model, batch=1, context=100).gemms
    assert {gemm.part for gemm in gemms} == {"attention", "ffn"}
    assert hw.decode_step(model, "H100_SXM", "bf16", batch=1, context=100).terms["head"] == 0
    assert all(finding.dimension != "vocabulary" for finding in hw.checklist(hw.Case(model=model, device="H100_SXM")).findings)
    qwen = {"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "head_dim": 128,
            "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 151665, "tie_word_embeddings": False,
            "architectures": ["Qwen3ForCausalLM"]}  # fmt: skip
    where = folder(tmp_path, qwen)
    assert config.load(where).parameters == 8_188_515_328
    (where / config.POOLED).write_text("{}", encoding="utf-8")  # as sentence-transformers writes it
    assert config.load(where).parameters == 7_567_295_488


def test_a_reward_model_has_a_row_for_each_label():
    llama = shipped("llama-3.1-8b", architectures=["LlamaForSequenceClassification"])
    one = config.load({**llama, "id2label": {"0": "LABEL_0"}})
    assert one.parameters == 8_030_261_248 - 128256 * 4096 + 4096 == 7_504_928_768
    assert config.load({**llama, "num_labels": 5}).labels == 5 and config.load(llama).labels == 2
    tied = config.load({**LLAMA, "tie_word_embeddings": True, "architectures": ["LlamaForSequenceClassification"]})
    assert not tied.tied_embeddings and tied.parameters == config.load({**LLAMA, "tie_word_embeddings": True}).parameters + 2 * 64
    assert hw.decode_step(one, "H100_SXM", "bf16", batch=1, context=100).terms["head"] > 0


@pytest.mark.parametrize(
    ("classes", "headed"),
    [(["LlamaForCausalLM"], True), (None, True), ([], True), (["Gemma3ForConditionalGeneration"], True),
     (["GPT2LMHeadModel"], True), (["InternVLChatModel"], True), (["LlamaModel"], False),
     (["Qwen3ForTextEmbedding"], False), (["Qwen2ForRewardModel"], False)],
)  # fmt: skip
def test_which_classes_have_a_head(classes, headed):
    model = config.load({**LLAMA, "architectures": classes})
    assert model.lm_head is headed
    assert model.left_out == (("the head of its task",) if classes == ["Qwen2ForRewardModel"] else ())


@pytest.mark.parametrize("keys", [{"architectures": ["LlamaForCausalLMEagle3"]}, {"draft_vocab_size": 32000},
                                  {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000}])  # fmt: skip
def test_a_draft_is_refused(keys):
    with pytest.raises(ValueError, match=r"config key '(architectures|draft_vocab_size)' must be .*draft") as error:
        config.load({**LLAMA, "num_hidden_layers": 1, **keys})
    assert "\n" not in str(error.value)


# What is left out.


def test_what_is_left_out_is_said():
    """DeepSeek-V3's layer 61 by hand; its README_WEIGHTS.md says 11.5 billion parameters of its own."""
    model = config.load("deepseek-v3")
    mla = 7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * 256 + 128 * 128 * 7168
    layer = mla + 2 * 7168 + 257 * 3 * 7168 * 2048 + 256 * 7168 + 256
    assert layer + 2 * 7168 * 7168 + 3 * 7168 == 11_610_068_224 and abs(11_610_068_224 / 11.5e9 - 1) < 0.01
    assert model.left_out == ("1 prediction layer (11,610,068,224 parameters)",)
    assert hw.sheet(model)["left_out"] == list(model.left_out)
    assert hw.sheet_text(model).endswith("\nleft out: 1 prediction layer (11,610,068,224 parameters)")
    both = {"model_type": "any", "text_config": {**LLAMA, "num_nextn_predict_layers": 2}, "vision_config": {"depth": 3},
            "audio_config": {"n_layer": 3}}  # fmt: skip
    assert config.load(both).left_out == ("2 prediction layers", "vision tower", "audio tower")
    assert config.load(LLAMA).left_out == () and "left out" not in hw.sheet_text(config.load(LLAMA))


def test_the_sheet_says_what_is_stored_otherwise():
    model = quantized(quant_method="fp8", ignore=["model.layers.0.self_attn"], kv_cache_scheme="FP8")
    assert "\nof them attention 75 % fp8 and 25 % bf16\n" in hw.sheet_text(model)
    facts = hw.sheet(model)
    assert facts["checkpoint_formats"] == {"attention": {"fp8": 0.75, "bf16": 0.25}, "ffn": {"fp8": 1.0}}
    assert (facts["kv_cache_format"], facts["max_positions"]) == ("fp8", None)
    assert "of them" not in hw.sheet_text(quantized(quant_method="fp8"))


# Sources.


def test_a_folder_names_the_model(tmp_path, monkeypatch):
    where = folder(tmp_path, LLAMA, name="tiny")
    monkeypatch.chdir(where)
    for source in (where, ".", "config.json"):
        assert config.load(source).name == as_model(source).name == "tiny"
    assert config_path(where) == where / "config.json" == config_path(where / "config.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"there is no file .*empty.config\.json"):
        config.load(tmp_path / "empty")


def test_a_name_of_the_hub_says_how_to_fetch_its_files():
    fetch = """'hf download Qwen/Qwen3-8B --include "*config.json" --local-dir Qwen3-8B'"""
    with pytest.raises(FileNotFoundError, match=re.escape(fetch)):
        config.load("Qwen/Qwen3-8B")
    with pytest.raises(ValueError, match="'hf download Qwen/Qwen3-0.6B .*; did you mean 'qwen3-0.6b'"):
        as_model("Qwen/Qwen3-0.6B")
    for no_name in ("models/x/config.json", "qwen3", "a/b c", "../x", "x/y.json", "-x/y"):
        assert config.fetch_command(no_name) is None


@pytest.mark.alone
def test_a_config_of_15_megabytes_takes_seconds(tmp_path):
    """Each expert of DeepSeek-V3 by name, and a list of patterns."""
    each = [(i, e, x) for i in range(3, 61) for e in range(256) for x in ("gate", "up", "down")]
    names = [f"model.layers.{i}.mlp.experts.{e}.{x}_proj" for i, e, x in each]
    layers = dict.fromkeys(names, {"quant_algo": "NVFP4", "group_size": 16, "note": "x" * 220})
    said = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers,
            "exclude_modules": [f"model.layers.{i}.self_attn*" for i in range(61)]}  # fmt: skip
    where = folder(tmp_path, shipped("deepseek-v3", quantization_config=said))
    assert 14e6 < (where / "config.json").stat().st_size < config.MAX_BYTES
    start = time.process_time()
    assert stored(config.load(where), "experts") == [("nvfp4", 1.0)]
    assert time.process_time() - start < 3 * slowness()  # about 1.2 s


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("re:(a+)+$", "that repeat no group"),
        ("re:[a-z", "that repeat no group"),
        ("re:" + ".*a" * 10**4, "that repeat no group"),
        ("re:" + ".*" * 30 + "z", "fewer names or simpler patterns"),
        ("re:" + "[a-z]?" * 40 + "9", "fewer names or simpler patterns"),
        ("*a" * 10**4, "that repeat no group"),
    ],
    ids=lambda text: text[:20],
)
def test_patterns_that_never_end_are_refused_at_once(entry, says):
    start = time.process_time()
    with pytest.raises(ValueError, match=r"config key 'quantization_config.ignore' must be [^\n]*\Z") as error:
        quantized(quant_method="fp8", ignore=[entry])
    assert says in str(error.value) and len(str(error.value)) < 500 and time.process_time() - start < 1


def test_a_list_that_names_no_module_leaves_the_bytes_unknown():
    model = quantized(quant_method="fp8", ignore=["model.layers.0.self_attm"])
    assert model.parameters == config.load(LLAMA).parameters and (model.quantization, model.formats) == (None, ())
    assert re.fullmatch(r"config key 'quantization_config.ignore' must be names of modules .*, got 'model.layers.0.self_attm'",
                        model.bytes_unknown)  # fmt: skip


# Slips of the hand.


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("num_key_value_haeds", "num_key_value_heads"), ("tie_word_embedings", "tie_word_embeddings"),
     ("slidng_window", "sliding_window"),
     ("max_position_embedding", "max_position_embeddings"), ("attention_bais", "attention_bias"), ("head_dims", "head_dim"),
     ("num_nextn_predict_layer", "num_nextn_predict_layers"), ("quantization_confg", "quantization_config")],
)  # fmt: skip
@pytest.mark.parametrize("value", [4, False, None])
def test_a_misspelt_key_is_refused_with_the_right_one(wrong, right, value):
    values = {key: v for key, v in LLAMA.items() if key != right}
    with pytest.raises(ValueError, match=f"config key '{wrong}' must be a known key: did you mean '{right}'"):
        config.load({**values, wrong: value})
    if right == "num_key_value_heads":
        with pytest.raises(ValueError, match="'num_key_value_haeds' must be absent"):
            config.load({**LLAMA, wrong: 2})  # the right one is there, too


def test_a_misspelt_key_that_is_needed_is_named():
    values = {**{key: value for key, value in LLAMA.items() if key != "hidden_size"}, "hiden_size": 64}
    with pytest.raises(ValueError, match=r"'hidden_size' must be a whole number .* got nothing \(is 'hiden_size' meant\?\)"):
        config.load(values)


@pytest.mark.parametrize("values", [{"max_position_embeddings": 131072}, {"max_position_embeddings": None}, {}])
def test_the_longest_context(values):
    assert config.load({**LLAMA, **values}).max_positions == values.get("max_position_embeddings")
    assert config.load("gpt2").max_positions == 1024
    with pytest.raises(ValueError, match="'max_position_embeddings' must be a whole number"):
        config.load({**LLAMA, "max_position_embeddings": "long"})
