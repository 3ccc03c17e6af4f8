"""Public reports of 2025 and 2026, one test a case: the product as its user runs it, held to the value that the report or a count
by hand gives. `data/cases_2026.csv` has the address of each, its right value and how that is known.

Cases are argued where they stand: C06, C08, C09, C21 and C31. The first four tell of engines that could not load shares of 192
or 96 columns; vLLM 0.33.0 loads them, so there they cost time and are no break, and the engines that still refuse are named.
"""

import csv
import json
from pathlib import Path

import pytest
from conftest import configs_2026

import hwdesign as hw
from hwdesign import cli
from hwdesign.models import config

DATA = Path(__file__).parent / "data"
CASES = {row["id"]: row for row in csv.DictReader((DATA / "cases_2026.csv").open(encoding="utf-8"))}
NEWER = configs_2026()
GIB, MIB = 2**30, 2**20


def shipped(name, **changed):
    values = json.loads((Path(config.__file__).parent / "configs" / f"{name}.json").read_text(encoding="utf-8"))
    return {**{key: value for key, value in values.items() if key != "quantization_config"}, **changed}


@pytest.fixture
def show(capsys):
    """The sheet of a model, or the one line of its refusal."""

    def run(source, text=False):
        code = cli.main(["show", str(source), *([] if text else ["--format", "json"])])
        told = capsys.readouterr()
        if code:
            assert code == 2 and told.err.count("\n") == 1 and not told.out
            return told.err
        return told.out if text else json.loads(told.out)

    return run


@pytest.fixture
def check(capsys):
    """(exit status, report) of `hwdesign check`."""

    def run(*words):
        code = cli.main(["check", *map(str, words), "--format", "json"])
        return code, json.loads(capsys.readouterr().out)["reports"][0]

    return run


@pytest.fixture
def folder(tmp_path):
    """A folder as a download leaves it, with a sidecar of ModelOpt where one is given."""

    def make(values, excluded=None):
        where = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        where.mkdir()
        (where / "config.json").write_text(json.dumps(values), encoding="utf-8")
        if excluded:
            said = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": excluded}
            told = {"producer": {"name": "modelopt"}, "quantization": said}
            (where / "hf_quant_config.json").write_text(json.dumps(told), encoding="utf-8")
        return where

    return make


def found(report, guideline, dimension):
    (load,) = report["loads"]
    return next(f for f in load["verdicts"][guideline - 1]["findings"] if f["dimension"] == dimension)


def engines(finding):
    return [refusal["engine"].split()[0] for refusal in finding["refused_by"]]


def test_every_case_has_its_test_and_its_address():
    tests = {name.split("_")[1].upper() for name in globals() if name.startswith("test_c") and name[6:8].isdigit()}
    assert set(CASES) == tests and len(CASES) == 22
    assert all(row["url"].startswith("https://github.com/") and row["right"] and row["known"] for row in CASES.values())


def test_c01_a_quantization_that_only_the_sidecar_names(show, check, folder):
    gates = [f"model.layers.{i}.mlp.gate" for i in range(94)]
    sheet = show(folder(shipped("qwen3-235b-a22b"), ["lm_head", *gates]))
    assert sheet["checkpoint_format"] == "nvfp4" and round(sheet["weight_bytes"] / 1e9) == 134
    names = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
    kept = ["lm_head", "model.layers.61*", *(f"model.layers.{i}.self_attn.{name}" for i in range(61) for name in names)]
    where = folder(shipped("deepseek-v3"), kept)
    assert 380e9 < show(where)["weight_bytes"] < 400e9  # not 1342
    _, report = check(where, "--device", "B200", "--tp", "8")
    assert (report["recipe"], report["recipe_from"]) == ("nvfp4", "checkpoint")
    assert not [f for f in report["loads"][0]["verdicts"][3]["findings"] if f["dimension"] == "recipe"]


def test_c02_mxfp4_where_nothing_multiplies_it(check, show):
    """65.97 GiB in the engine's log are these weights with what it pads; 60.8 GiB without."""
    assert show("gpt-oss-120b")["weight_bytes"] == 65_248_815_744 and round(65_248_815_744 / GIB, 1) == 60.8
    code, report = check("gpt-oss-120b", "--device", "H100_SXM", "--batch", "1")
    assert code == 0 and report["weight_only"] and report["loads"][0]["fits"] and report["status"] == "warn"
    assert report["loads"][0]["usable_bytes"] - report["loads"][0]["memory_bytes"] < 13e9  # little is left for the cache
    for device in ("H200", "A100_SXM", "MI300X", "L40S"):
        assert check("gpt-oss-120b", "--device", device, "--tp", "2", "--batch", "1")[0] == 0
    fixes = [fix["text"] for v in report["loads"][0]["verdicts"] for f in v["findings"] for fix in f["fixes"]]
    assert fixes and "recipe" not in " ".join(fixes)


@pytest.mark.parametrize(("name", "total"), [
    ("MiniMaxAI--MiniMax-M2.5", 228_689_764_864), ("deepseek-ai--DeepSeek-V3.2", 671_877_944_064),
    ("moonshotai--Kimi-K2.5", 1_026_408_232_448), ("zai-org--GLM-5-FP8", 743_911_218_432), ("gpt-oss-120b", 116_829_156_672),
])  # fmt: skip
def test_c03_what_one_provider_serves(show, name, total):
    """Counted by transformers 5.24.0 and mlx-lm 0.32.2."""
    assert show(NEWER.get(name, name))["parameters"] == total


def test_c04_the_cache_at_full_context():
    """"62.00 GiB KV cache is needed", "48.66 GiB" hold 205,728 tokens, whole blocks of 16 and what an engine keeps for itself."""
    model = config.load(NEWER["Qwen--Qwen3-Coder-480B-A35B-Instruct"])
    assert model.parameters == 480_154_875_392 and model.max_positions == 262_144
    assert model.kv_bytes(262_144) == 62 * GIB == 62 * 2 * 8 * 128 * 2 * 262_144
    assert int(48.66 * GIB // model.kv_bytes_per_token()) // 16 * 16 == pytest.approx(205_728, abs=16)


def test_c06_awq_groups_of_128(check, folder):
    """Argued: TP4 and TP8 failed in the report, since 768 / 4 is 1.5 groups. vLLM 0.33.0 halves groups (`moe_wna16.py`): the
    share is named with its cost."""
    quant = {"bits": 4, "group_size": 128, "quant_method": "awq", "version": "gemm", "zero_point": True}
    where = folder(shipped("qwen3-30b-a3b", quantization_config={**quant, "modules_to_not_convert": ["gate"]}))
    on = ("--device", "H100_SXM", "--batch", "8", "--fail-on", "never")
    for tp, value in ((1, None), (2, None), (4, "768 / 4 = 192"), (8, "768 / 8 = 96")):
        report = check(where, *on, "--tp", tp)[1]
        assert report["recipe"].startswith("w4a16") and report["status"] != "break"
        told = [f["value"] for f in report["loads"][0]["verdicts"][1]["findings"]]
        assert told == ([value] if value else [])
    for tp in (3, 5, 6, 7):
        code, report = check(where, *on[:2], "--tp", tp)
        assert code == 1 and found(report, 2, "heads")["status"] == "break"
        assert found(report, 2, "heads")["value"] == f"32 query heads over {tp} GPUs"


def test_c08_blocks_of_128_at_tp4(check):
    """Argued: it crashed before the pull request of 2026 and loads since; `ep` in place of `tp` avoids it, and is the fix."""
    words = ("qwen3-30b-a3b", "--device", "H100_SXM", "--recipe", "fp8_block")
    share = found(check(*words, "--tp", "4")[1], 2, "expert width")
    assert (share["value"], share["status"], engines(share)) == ("768 / 4 = 192", "warn", ["SGLang", "TensorRT-LLM"])
    assert any("ep=4" in fix["text"] for fix in share["fixes"])
    assert check(*words, "--tp", "4", "--ep", "4")[1]["loads"][0]["verdicts"][1]["findings"] == []
    code, report = check(*words, "--tp", "4", "--engine", "sglang")
    assert code == 1 and found(report, 2, "expert width")["status"] == "break"


@pytest.mark.parametrize(("name", "recipe", "ways"), [
    ("qwen3-235b-a22b-fp8", "fp8_block", {2: None, 4: None, 8: "1536 / 8 = 192"}),
    ("qwen3-30b-a3b", "fp8_block", {2: None, 4: "768 / 4 = 192"}),
])  # fmt: skip
def test_c09_which_ways_run_the_fp8_checkpoints(check, name, recipe, ways):
    """Argued as C08: what the reporter's vLLM could not run, SGLang refuses in the version of the table."""
    for tp, value in ways.items():
        code, report = check(name, "--device", "H200", "--recipe", recipe, "--tp", tp, "--engine", "sglang", "--fail-on", "never")
        told = [(f["value"], f["status"]) for f in report["loads"][0]["verdicts"][1]["findings"]]
        assert code == 0 and told == ([(value, "break")] if value else [])


def test_c10_a_config_that_leaves_out_what_its_class_says(show):
    sheet = show(NEWER["gemma-3-12b-it"])
    assert sheet["parameters"] == 11_766_034_176 and sheet["left_out"] == ["vision tower"]
    assert sum(block["count"] for block in sheet["blocks"] if "window 1024" in block["kind"]) == 40


def test_c11_heads_that_a_config_leaves_out(show):
    sheet = show(NEWER["gemma-3-4b-it"])
    assert sheet["parameters"] == 3_880_263_168 and sheet["heads"] == [{"query": 8, "key_value": 4}]
    assert {block.mixer.head_dim for block in config.load(NEWER["gemma-3-4b-it"]).blocks} == {256}


@pytest.mark.parametrize(("name", "stages"), [("deepseek-v3", "15, 15, 16, 15"), ("qwen3-235b-a22b", "23, 24, 24, 23")])
def test_c13_where_vllm_puts_the_odd_layers(check, name, stages):
    report = check(name, "--device", "H200", "--pp", "4", "--fail-on", "never")[1]
    assert found(report, 6, "layers")["value"].endswith(f"in stages of {stages}")


def test_c14_a_62nd_layer(show):
    """The checkpoint's layer 61 also holds copies of embedding and head, 2 x 129280 x 7168, no parameters of its own."""
    sheet = show("deepseek-r1")
    assert sheet["parameters"] == 671_026_419_200
    assert sheet["left_out"] == ["1 prediction layer (11,610,068,224 parameters)"]
    assert 11_610_068_224 + 2 * 129_280 * 7_168 == 13_463_426_304
    assert round((671_026_419_200 + 13_463_426_304) / 1e9, 2) == 684.49
    assert show("deepseek-r1", text=True).endswith("left out: 1 prediction layer (11,610,068,224 parameters)\n")


def test_c15_layers_with_a_window():
    """9216 MiB for two sequences are 18 full layers; the others keep 128 tokens each, 4.5 MiB."""
    model = config.load("gpt-oss-120b")
    assert model.kv_bytes(131_072) == 9216 / 2 * MIB + 18 * 128 * 2 * 8 * 64 * 2


def test_c17_fourteen_gpus(check):
    code, report = check("deepseek-v3", "--device", "H100_SXM", "--tp", "14")
    heads = found(report, 2, "heads")
    assert code == 1 and (heads["value"], heads["status"]) == ("128 query heads over 14 GPUs", "break") and 128 % 14


def test_c18_ways_that_28_heads_allow(check):
    """R1-Distill-Qwen-7B has the shape of Qwen2.5-7B."""
    code, report = check("qwen2.5-7b", "--device", "H100_SXM", "--tp", "8")
    heads = found(report, 2, "heads")
    assert code == 1 and (heads["value"], heads["status"]) == ("28 query heads over 8 GPUs", "break")
    assert "tp=4" in heads["fixes"][0]["text"]
    valid = [ways for ways in range(1, 29) if not [f for f in _heads(check, ways) if "query heads" in f["value"]]]
    assert valid == [1, 2, 4, 7, 14, 28]


def _heads(check, ways):
    report = check("qwen2.5-7b", "--device", "GB300", "--tp", ways, "--batch", "1", "--fail-on", "never")[1]
    return [f for f in report["loads"][0]["verdicts"][1]["findings"] if f["dimension"] == "heads"]


def test_c21_minimax_over_eight(check, show):
    """Argued as C08: vLLM 0.33.0 refines the blocks of experts; SGLang and TensorRT-LLM refuse 192."""
    file = NEWER["MiniMaxAI--MiniMax-M2.5"]
    assert show(file)["parameters"] == 228_689_764_864 and show(file)["checkpoint_format"] == "fp8_block"
    share = found(check(file, "--device", "H200", "--tp", "8")[1], 2, "expert width")
    assert (share["value"], share["status"], engines(share)) == ("1536 / 8 = 192", "warn", ["SGLang", "TensorRT-LLM"])
    code, report = check(file, "--device", "H200", "--tp", "8", "--engine", "sglang")
    assert code == 1 and found(report, 2, "expert width")["status"] == "break"


def test_c23_a_hybrid_at_long_context(show):
    """16 of 64 layers keep keys and values; the engine allocated 16.00 GiB."""
    model = config.load(NEWER["Qwen--Qwen3.5-27B"])
    assert show(NEWER["Qwen--Qwen3.5-27B"])["kv_bytes_per_token_bf16"] == 65_536
    assert model.kv_bytes(262_144) == 16 * GIB


def test_c24_layers_with_a_constant_state(show):
    sheet = show(NEWER["moonshotai--Kimi-K3"])
    assert sheet["kv_bytes_per_token_bf16"] == 24 * 576 * 2 == 27_648
    assert sum(block["count"] for block in sheet["blocks"] if "MLA" in block["kind"]) == 24


def test_c25_a_quantization_inside_the_text_config(show):
    sheet = show(NEWER["moonshotai--Kimi-K2.5"])
    assert sheet["parameters"] == 1_026_408_232_448 and sheet["checkpoint_format"] == "w4a16_g32"


ULTRA = {"model_type": "nemotron_h", "hidden_size": 8192, "vocab_size": 131072, "num_attention_heads": 64, "head_dim": 128,
         "num_key_value_heads": 2, "mamba_head_dim": 64, "mamba_num_heads": 256, "n_groups": 8, "ssm_state_size": 128,
         "conv_kernel": 4, "expand": 2, "chunk_size": 128, "intermediate_size": 5120, "moe_intermediate_size": 5120,
         "moe_latent_size": 2048, "moe_shared_expert_intermediate_size": 10240, "n_routed_experts": 512, "n_shared_experts": 1,
         "num_experts_per_tok": 22, "use_conv_bias": True, "use_bias": False, "mlp_bias": False, "attention_bias": False,
         "tie_word_embeddings": False, "mtp_layers_block_type": ["attention", "moe"], "num_nextn_predict_layers": 1}  # fmt: skip


def test_c26_nemotron_without_a_number_of_layers(show, folder):
    """The 550 B model (nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16_config.json of the wheel aiconfigurator-core 0.12.0) and
    the one of 30 B, whose configs list their layers and do not count them."""
    runs = "MEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
    words = {"M": "mamba", "E": "moe", "*": "attention"}
    sheet = show(folder({**ULTRA, "layers_block_type": [words[letter] for letter in runs]}))
    assert sheet["parameters"] == 549_308_993_536 and len(runs) == 108
    assert show(NEWER["nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"])["parameters"] == 31_577_940_288


@pytest.mark.parametrize(("tp", "rows"), [(4, 2576), (8, 1288), (16, 772)])
def test_c28_fewer_groups_than_gpus(tp, rows):
    """Of 8 groups each of 16 GPUs has one: 2 x 4096 / 16 + 2 x 1 x 128 + 64 / 16."""
    step = hw.step(config.load("nemotron-3-nano-30b-a3b"), batch=1, context=100, attention=hw.Plan(tp=tp), ffn=hw.Plan(tp=tp))
    (gemm,) = [gemm for gemm in step.gemms if gemm.name == "mamba in"]
    assert gemm.n == rows and 772 == 2 * 4096 // 16 + 2 * 128 + 64 // 16


EMBEDDING = {"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "head_dim": 128,
             "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 151665, "tie_word_embeddings": False,
             "architectures": ["Qwen3ForCausalLM"]}  # fmt: skip


def test_c31_checkpoints_without_a_head(show, folder):
    """Argued: the config of Qwen3-Embedding-8B itself names a class with a head; what says that it has none is the file of
    sentence-transformers beside it."""
    mistral = shipped("llama-3.1-8b", model_type="mistral", vocab_size=32000, sliding_window=4096, architectures=["MistralModel"])
    assert show(folder(mistral))["parameters"] == 7_110_660_096
    reward = shipped("llama-3.1-8b", architectures=["LlamaForSequenceClassification"], id2label={"0": "LABEL_0"})
    assert show(folder(reward))["parameters"] == 7_504_928_768
    where = folder(EMBEDDING)
    (where / "config_sentence_transformers.json").write_text("{}", encoding="utf-8")
    assert show(where)["parameters"] == 7_567_295_488


@pytest.mark.parametrize("keys", [{}, {"draft_vocab_size": 32000}])
def test_c32_a_draft_is_no_model(show, folder, keys):
    draft = shipped("llama-3.1-8b", num_hidden_layers=1, architectures=["LlamaForCausalLMEagle3"], **keys)
    assert "draft for speculative decoding" in show(folder(draft))
