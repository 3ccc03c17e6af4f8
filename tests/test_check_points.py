"""`hwdesign check` as its users run it, with its defaults: a value from elsewhere for each thing that it once said wrongly."""

import json
from pathlib import Path

import pytest

import hwdesign as hw
from hwdesign import cli
from hwdesign.advice.verdict import MARKED, MOST, SLOWER
from hwdesign.models import config

MOE = {"model_type": "qwen3_moe", "hidden_size": 4096, "intermediate_size": 8192, "moe_intermediate_size": 2048,
       "num_hidden_layers": 4, "vocab_size": 128256, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
       "num_experts": 180, "num_experts_per_tok": 6}  # fmt: skip


@pytest.fixture
def check(capsys):
    """The exit status, and the report or, of ``text``, its lines."""

    def run(*words, text=False):
        words = [*map(str, words), *([] if text else ["--format", "json"])]
        code, out = cli.main(["check", *words]), capsys.readouterr().out
        return code, out.splitlines() if text else json.loads(out)["reports"][0]

    return run


def findings(report, guideline):
    (load,) = report["loads"]
    return {f["dimension"]: f for f in load["verdicts"][guideline - 1]["findings"]}


def seconds(report, term):
    return {t["name"]: t["seconds"] for t in report["loads"][0]["terms"]}[term]


R1 = ("deepseek-r1", "--device", "H200", "--tp", "8")


def test_1_the_commonest_deployment_of_r1(check):
    """Servers took 50.2 (SGLang) and 48.3 ms a token, prefill included; a step of 97.8 ms was what an FP8 cache made of it."""
    code, report = check(*R1, "--fail-on", "fail")
    assert (code, report["cache"], report["cache_from"]) == (0, "bf16", "engine") and report["status"] == "warn"
    assert 36e-3 < report["loads"][0]["step_seconds"] < 48e-3
    _, lines = check(*R1, text=True)
    assert "  cache    bf16 (default of vLLM)" in lines and "  recipe   fp8_block (the checkpoint's)" in lines
    for engine, recipe, cache in (("trtllm", "fp8_block", "bf16"), ("trtllm", "fp8", "fp8"), ("sglang", "fp8", "bf16")):
        assert check("llama-3.1-8b", "--device", "H200", "--engine", engine, "--recipe", recipe)[1]["cache"] == cache


@pytest.mark.parametrize(("name", "products"), [("olmo-2-7b", 0.0), ("gpt-neox-20b", 0.029)])
def test_2_a_cache_is_not_blamed_on_the_products(check, name, products):
    """64 x 8192 tokens of gpt-neox-20b, 2 x 6144 x 44 elements each, over 8 GPUs at 8 TB/s: 8.9 ms in BF16, 4.4 less in FP8."""
    _, report = check(name, "--tp", "8")
    found = findings(report, 4)
    assert set(found) == {"cache"} and found["cache"]["status"] == "warn" and products < 0.05
    saved = found["cache"]["cost_share"] * report["loads"][0]["step_seconds"]
    model = config.load(name)
    elements = 2 * sum(b.mixer.num_kv_heads * b.mixer.head_dim for b in model.blocks)
    assert saved == pytest.approx(64 * 8192 * elements / 8 / 8e12, rel=0.25)


def test_3_weights_in_four_bits_are_served_where_nothing_multiplies_them(check):
    """OpenAI's model card: a checkpoint of 60.8 GiB, which fits into one GPU of 80 GB; Ampere has no FP8, and FP8 weights run."""
    _, report = check("gpt-oss-120b", "--device", "H100_SXM", "--batch", "1", "--context", "1")
    (load,) = report["loads"]
    assert load["fits"] and load["memory_bytes"] == pytest.approx(60.8 * 2**30, rel=0.01)
    assert report["weight_only"] and (report["recipe"], report["recipe_stored"]) == ("mxfp4_w4a16", "mxfp4")
    _, lines = check("gpt-oss-120b", "--device", "H100_SXM", text=True)
    (kernel,) = [line for line in lines if line.startswith("  kernel ")]
    assert kernel.startswith("  kernel   weight-only: MXFP4 weights are expanded to BF16 inside the kernel")
    for device, recipe in (("A100_SXM", "fp8"), ("H200", "nvfp4")):
        told = check("llama-3.1-8b", "--device", device, "--recipe", recipe)[1]
        assert told["weight_only"] and told["recipe_stored"] == recipe


def test_4_latents_in_fp8_are_read_by_the_kernel_that_engines_run(check):
    """TensorRT-LLM's tables on the H200, 16 heads a GPU: 4412 GB/s of a BF16 cache, 3024 of an FP8 one, so 1.37 times as fast."""
    wide, narrow = (seconds(check(*R1, "--cache", cache)[1], "attention") for cache in ("bf16", "fp8"))
    assert wide / narrow == pytest.approx(1.37, rel=0.05)
    read = 64 * 8192 * 576 * 61
    assert wide == pytest.approx(2 * read / 4412e9, rel=0.25) and narrow == pytest.approx(read / 3024e9, rel=0.25)


def test_5_the_prompt_of_the_load_decides_how_long_stages_wait(check):
    """Chapter 6: 1.15 of the mean in the slowest of 16 stages of gemma-3-27b at 131,072 tokens, so 13 % of waiting."""
    words = ("gemma-3-27b", "--device", "H100_SXM", "--recipe", "fp8", "--engine", "trtllm", "--pp", "16", "--batch", "8")
    _, report = check(*words, "--context", "131072")
    assert findings(report, 6)["layers"]["cost_share"] == pytest.approx(1 - 1 / 1.15, abs=0.005)
    reason = report["loads"][0]["verdicts"][5]["reason"]
    assert "in prefill" in reason and "in decode" in reason


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "qwen3-235b-a22b", "gpt-oss-120b", "nemotron-3-nano-30b-a3b"])
def test_6_mixtures_of_experts_are_no_dense_models(check, name):
    """All four were trained, and lie below the 87 of dense models or not."""
    assert check(name, "--tp", "4")[1]["loads"][0]["verdicts"][2]["status"] == "ok"


@pytest.mark.parametrize(
    ("name", "words", "heads"),
    [("qwen2.5-7b", ("--tp", "8"), "32 query heads"), ("phi-4", ("--tp", "8"), "8 key-value heads")],
)
def test_7_both_fixes_of_heads_that_do_not_divide(check, name, words, heads):
    """28 query heads over 8 GPUs, 10 key-value heads over 8: other plans that engines have, or other heads."""
    found = findings(check(name, *words)[1], 2)["heads"]
    server, model = found["fixes"]
    assert (server["place"], model["place"]) == ("server", "model") and heads in model["text"]
    assert set(server["engines"]) == set(model["engines"]) == {"vllm", "sglang", "trtllm"} and found["status"] == "break"


@pytest.mark.parametrize("name", config.names())
def test_7_fixes_keep_their_bounds(check, name):
    for verdict in check(name, "--tp", "8")[1]["loads"][0]["verdicts"]:
        for finding in verdict["findings"]:
            for fix in finding["fixes"]:
                assert abs(fix["parameters_share"]) <= MOST == 0.15
                assert fix["large"] is (abs(fix["parameters_share"]) > MARKED == 0.02)
                assert finding["status"] == "break" or fix["step_share"] <= SLOWER == 0.001
                assert fix["place"] == "model" or not set(fix["change"]) - {"attention", "ffn", "recipe", "cache"}


def test_8_nothing_judged_is_no_success(check, tmp_path):
    """Of 180 experts vLLM gives some of 8 GPUs one more: no refusal, and no time."""
    (tmp_path / "config.json").write_text(json.dumps(MOE))
    words = (tmp_path, "--tp", "8", "--ep", "8")
    code, lines = check(*words, text=True)
    assert code == 3 and lines[-1] == "?: 1 warn, 1 not applicable, 5 not modelled; judged 1 of 6"
    code, report = check(*words)
    assert code == 3 and report["status"] == "not judged"
    assert (report["loads"][0]["judged_guidelines"], report["loads"][0]["applicable_guidelines"]) == (1, 6)
    code, report = check(*words, "--engine", "sglang")
    assert (code, report["status"]) == (1, "break")
    assert [fix["text"] for fix in findings(report, 5)["ffn plan"]["fixes"]][1] == "184 experts (or 176)"


@pytest.mark.parametrize(
    ("engine", "device", "mebibytes", "share"),
    [
        # gpu_memory_utilization 0.92 of the whole, less what CUDA and NCCL hold: 0.9 GB
        ("vllm", "H200", 143771, 0.92 - 943e6 / (143771 * 2**20)),
        ("vllm", "H100_SXM", 81559, 0.92 - 943e6 / (81559 * 2**20)),
        # mem_fraction_static as its source works it out for tp = 8
        ("sglang", "H200", 143771, 0.893),
        ("sglang", "H100_SXM", 81559, 0.812),
        ("sglang", "B200", 183359, 0.849),
    ],
)
def test_9_what_engines_keep_of_what_devices_report(check, engine, device, mebibytes, share):
    _, report = check("llama-3.1-8b", "--device", device, "--engine", engine, "--tp", "8")
    assert report["capacity_bytes"] == mebibytes * 2**20
    assert report["loads"][0]["usable_bytes"] / report["capacity_bytes"] == pytest.approx(share, abs=0.001)


def test_9_tensorrt_llm_keeps_a_tenth_of_what_the_weights_leave(check):
    """free_gpu_memory_fraction 0.9: 64 GB of a cache on an H200 take 64 / 0.9 besides the weights of 16 GB."""
    model, case = config.load("llama-3.1-8b"), {"device": "H200", "engine": "trtllm", "context": 8192}
    weights, cache = sum(model.weight_bytes().values()), model.kv_bytes(8192)
    most = 0.9 * (143771 * 2**20 - 943e6 - weights) / cache
    held = [hw.Case(model=model, batch=batch, **case).breakdown.feasible for batch in (int(0.98 * most), int(1.02 * most))]
    assert held == [True, False]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("qwen2.5-7b", "--tp", "8"), "break"),  # 28 heads: an error at start
        (("qwen2.5-72b", "--device", "H200", "--recipe", "fp8_block", "--tp", "8"), "break"),  # 3696 is no multiple of 128
        (("qwen2.5-72b", "--device", "H200", "--recipe", "fp8", "--tp", "8"), "warn"),  # slower tiles, and no more
        (("qwen3-235b-a22b-fp8", "--device", "H200", "--tp", "8"), "warn"),  # 192 of an expert: vLLM refines its blocks
        (("qwen3-235b-a22b-fp8", "--device", "H200", "--tp", "8", "--engine", "sglang"), "break"),
        (("qwen3-235b-a22b-fp8", "--device", "H200", "--tp", "4"), "ok"),  # 384 = 3 x 128
    ],
)
def test_10_what_engines_refuse_is_no_slow_shape(check, words, status):
    code, report = check(*words)
    assert report["loads"][0]["verdicts"][1]["status"] == status and (report["status"] == "break") == (status == "break")
    assert code == 1 or status != "break"
    for finding in findings(report, 2).values():
        if finding["status"] == "break":
            assert finding["cost_share"] is None and finding["refused_by"][0]["source_url"].startswith("https://")


LOADS = ("--load", "8192/1024/64", "--load", "1024/1024/16")


def test_11_a_report_is_for_deciding(check):
    _, lines = check("llama-3.1-8b", "--tp", "8", *LOADS, text=True)
    (head,) = [line for line in lines if line.startswith("  load  ")][:1]
    assert head.split() == ["load", "8192/1024/64", "1024/1024/16"]
    starts = ("  attention", "  WARN", "  ok", "  config")
    order = [next(i for i, line in enumerate(lines) if line.startswith(start)) for start in starts]
    assert order == sorted(order)
    notes = [line for line in lines if line.startswith("  note     GPUs wasted at 8192/1024/64: on ")]
    assert len(notes) == 1  # 8 GB of weights on 8 GPUs of 298 GB
    _, lines = check("llama-3.1-8b", "--context", "131073", "--batch", "1", text=True)
    assert "  note     context 131073 is beyond the 131072 tokens that the config names as the longest" in lines
    assert not any("beyond" in line for line in check("llama-3.1-8b", "--context", "131072", "--batch", "1", text=True)[1])


def test_11_what_servers_show_of_a_gain_stands_beside_it(check):
    """Only of what a server can change, and in words where most published pairs do not even show its sign."""
    for verdict in check("gpt-neox-20b", "--tp", "8")[1]["loads"][0]["verdicts"]:
        for fix in (fix for finding in verdict["findings"] for fix in finding["fixes"]):
            server = fix["place"] == "server" and fix["step_share"] < 0 and "cache" not in fix["change"]
            assert (fix["sure"] is not None) == server
            if fix["expected_shares"]:
                low, high = fix["expected_shares"]
                assert fix["sure"] and 0 < low < high <= 1 and low < -fix["step_share"]  # chapter 8


def test_12_files_as_people_have_them(check, tmp_path, capsys):
    """nvidia/Qwen3-235B-A22B-NVFP4: 134 GB, of which its config.json says nothing; over two GPUs 67 GB each."""
    folder = tmp_path / "Qwen3-235B-A22B-NVFP4"
    folder.mkdir()
    values = json.loads((Path(config.__file__).parent / "configs" / "qwen3-235b-a22b.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(values))
    kept = ["lm_head", *(f"model.layers.{i}.mlp.gate" for i in range(94))]
    said = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": kept}
    (folder / "hf_quant_config.json").write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": said}))
    for source in (folder, folder / "config.json"):
        _, report = check(source, "--tp", "2", "--batch", "1", "--context", "1")
        assert report["model"]["name"] == "Qwen3-235B-A22B-NVFP4"
        told = [report[key] for key in ("recipe", "recipe_from", "cache", "cache_from")]
        assert told == ["nvfp4", "checkpoint", "fp8", "checkpoint"]
        assert report["loads"][0]["memory_bytes"] == pytest.approx(134e9 / 2, rel=0.01)
    values["num_key_value_haeds"] = values.pop("num_key_value_heads")
    (folder / "config.json").write_text(json.dumps(values))
    slips = {folder: "did you mean 'num_key_value_heads'", "Qwen/Qwen3-8B": "'hf download Qwen/Qwen3-8B --include"}
    for source, says in slips.items():
        assert cli.main(["check", str(source)]) == 2
        err = capsys.readouterr().err
        assert says in err and err.count("\n") == 1
