"""Published serving points: labels against the benchmark's own lists, merging, what waits, plans, and the error of the model."""

import hashlib
from collections import Counter
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest

import hwdesign as hw
from hwdesign.models import config
from hwdesign.timing.formats import engine_formats
from hwdesign.timing.served import KEY, engine_of_then, mean_lengths, point_recipe, served_checkpoint, served_plans, served_points
from hwdesign.timing.silicon import measurements, tables

DATA = resources.files("hwdesign.timing").joinpath("data")
INFERENCEX = {"llama-3.1-70b", "gpt-oss-120b", "deepseek-r1", "minimax-m2.5", "kimi-k2.5"}
SHORT, LONG, PROMPT = (1024, 1024), (1024, 8192), (8192, 1024)  # tokens in and out


def doubling(low, high):
    return [low * 2**i for i in range((high // low).bit_length())]


# Recipes with multi-token prediction, DeepSeek-R1 in FP8 on 8 GPUs: lengths to (dp, moe_ep, concurrencies).
# Source: SemiAnalysisAI/InferenceX, .github/configs/nvidia-master.yaml at commits 12ba0ae (2026-03-25), 5d51707 (2026-02-05) and
# bf34567 (2026-01-14), read 2026-11-30.
WITH_MTP = {
    ("B200", "sglang", "0.5.9"): {load: [(1, 1, doubling(4, 512))] for load in (SHORT, LONG, PROMPT)},
    ("B200", "trtllm", "1.2.0rc6.post3"): {
        SHORT: [(1, 1, doubling(4, 128)), (8, 8, [256])],
        LONG: [(1, 1, doubling(4, 64)), (8, 8, [128, 256])],
        PROMPT: [(1, 1, doubling(4, 256))],
    },
    ("H200", "trtllm", "1.1.0rc2.post2"): {
        SHORT: [(1, 8, doubling(4, 64)), (8, 8, [128, 256])],
        LONG: [(1, 8, doubling(4, 128)), (8, 8, [256])],
        PROMPT: [(1, 8, doubling(4, 32)), (8, 8, [64, 128, 256])],
    },
}


def records(**equal):
    rows = measurements("serving", **equal)
    return [dict(zip(rows, values, strict=True)) for values in zip(*(v.tolist() for v in rows.values()), strict=True)]


@pytest.mark.parametrize("run", WITH_MTP, ids=" ".join)
def test_points_with_multi_token_prediction_are_exactly_those_of_the_recipe(run):
    device, framework, version = run
    rows = records(device=device, model="deepseek-r1", precision="fp8", framework=framework, version=version, speculative="mtp")
    found = Counter((int(r["input_tokens"]), int(r["output_tokens"]), r["dp"], r["moe_ep"], r["concurrency"]) for r in rows)
    listed = {(*load, dp, ep, n) for load, plans in WITH_MTP[run].items() for dp, ep, many in plans for n in many}
    twice = {key for key, times in found.items() if times > 1}  # one run on two dates
    assert set(found) == listed and len(listed) in (21, 24)
    assert twice == ({(*LONG, 8, 8, 256)} if device == "H200" else set()) and len(rows) == len(listed) + len(twice)
    assert all(r["tp"] * r["dp"] == 8 for r in rows)


def test_each_point_is_there_once_and_the_labels_count():
    rows = measurements("serving")
    every = list(zip(*(values.tolist() for values in rows.values()), strict=True))
    assert len(every) == len(set(map(str, every))) == 2530
    assert Counter(rows["speculative"].tolist()) == {"": 2315, "mtp": 123, "unknown": 92}
    assert set(rows["model"][rows["speculative"] != ""]) == {"deepseek-r1", "minimax-m2.5", "kimi-k2.5"}
    assert "deepseek-v3" not in rows["model"]
    assert set(rows["speculative"][rows["version"] == "1.2.0rc6.post3"]) == {"mtp"}
    assert set(rows["speculative"][rows["version"] == "1.2.0rc6.post2"]) == {""}


def test_one_key_with_and_without_prediction():
    rows = records(device="B200", model="deepseek-r1", precision="fp8", tp=8, framework="trtllm", concurrency=4)
    rows = {r["speculative"]: r for r in rows if r["version"] > "1.2" and (r["input_tokens"], r["output_tokens"]) == SHORT}
    assert [round(1e3 * rows[label]["tpot"], 2) for label in ("", "mtp")] == [10.30, 5.38]
    assert rows[""]["tpot"] / rows["mtp"]["tpot"] == pytest.approx(1.91, abs=0.01)
    both = served_points(model="deepseek-r1", device="B200", framework="sglang", precision="fp8", tp=8, moe_ep=1, concurrency=4)
    plain, fast = (sorted(both["tpot"][both["speculative"] == label]) for label in ("", "mtp"))
    assert len(plain) == len(fast) == 3 and all(np.array(fast) < 0.8 * np.array(plain))


def test_repeated_points_are_one_with_their_median():
    rows, points = measurements("serving"), served_points()
    assert points["runs"].sum() == len(rows["tpot"]) and len(points["tpot"]) == 2276
    assert Counter(points["runs"].tolist()) == {1: 2064, 2: 179, 3: 24, 4: 9}
    i = int(np.argmax(points["runs"]))
    same = np.all([rows[name].astype(str) == str(points[name][i]) for name in KEY], axis=0)
    assert same.sum() == 4 and points["tpot"][i] == np.median(rows["tpot"][same])
    keys = list(zip(*(points[name].tolist() for name in KEY), strict=True))
    assert len(set(map(str, keys))) == len(keys)


def test_waiting_points_are_left_out():
    kind = {"model": "llama-3.1-70b", "device": "H200", "precision": "fp8", "tp": 1, "input_tokens": 8192}
    queued = served_points(**kind, concurrency=128)
    assert queued["ttft"] == pytest.approx([127.8], abs=0.05) and queued["waiting"] > 0.6 and not queued["matched"].any()
    assert queued["modelled"].item() > 0.15 and queued["tpot"].item() < 0.1  # it decoded a batch that was far smaller
    assert served_points(**kind, concurrency=4)["matched"].all()
    points = served_points(matched=True)
    assert points["waiting"].max() <= 0.1 and set(points["speculative"]) == {""}
    decoding = points["concurrency"] * (1 - points["waiting"])  # Little's law
    assert (decoding >= 0.9 * points["concurrency"]).all()


def test_error_of_the_speed_of_a_user_on_the_matched_points():
    points = served_points(matched=True)
    error = points["tpot"] / points["modelled"] - 1  # of tokens/s/user
    assert len(error) == 1741 and np.median(np.abs(error)) < 0.10 and abs(np.median(error)) < 0.05
    assert np.mean(np.abs(error) < 0.3) > 0.9
    for model in set(points["model"]):
        assert np.median(np.abs(error[points["model"] == model])) < (0.25 if model == "qwen3-32b" else 0.15), model
    hidden = served_points(speculative="mtp")
    assert np.median(hidden["tpot"] / hidden["modelled"] - 1) < -0.22  # taken for plain, it would look like a slow model


def test_lengths_are_the_mean_ones_where_the_benchmark_draws_them():
    kind = {"model": "llama-3.1-70b", "device": "H100_SXM", "tp": 2, "concurrency": 4}
    plan, model = hw.Plan(tp=2), config.load("llama-3.1-70b")
    recipe = engine_formats(model, "H100_SXM", "vllm", recipe="fp8", cache="fp8").recipe
    load = {"concurrency": 4, "input_tokens": 922, "output_tokens": 922}
    by_hand = hw.time_per_output_token(model, "H100_SXM", recipe, **load, attention=plan, ffn=plan, engine=engine_of_then("vllm"))
    assert served_points(**kind, input_tokens=1024, output_tokens=1024)["modelled"].item() == pytest.approx(float(by_hand))
    drawn = served_points(input_tokens=[1024, 8192], output_tokens=[1024, 8192])
    assert set(drawn["model"]) == INFERENCEX | {"qwen3-32b"}  # 15 points of another benchmark have such lengths, too


def test_plans_and_formats_of_a_row():
    attention, ffn = served_plans({"tp": 1, "dp": 8, "moe_tp": 2, "moe_ep": 4})
    assert (attention.dp, ffn.tp, ffn.ep) == (8, 2, 4)
    dense = served_plans({"tp": 4, "dp": 1, "moe_tp": float("nan"), "moe_ep": float("nan")})
    assert dense[0] == dense[1] == hw.Plan(tp=4)


@pytest.mark.parametrize(
    ("model", "device", "engine", "recipe", "runs_in", "cache", "cache_from"),
    [
        ("llama-3.1-70b", "B200", "trtllm", "fp8", "fp8", "fp8", "engine"),
        ("llama-3.1-70b", "B200", "vllm", "fp8", "fp8", "bf16", "engine"),
        ("llama-3.1-70b", "B200", "sglang", "fp8", "fp8", "bf16", "engine"),
        ("deepseek-r1", "B200", "trtllm", point_recipe("deepseek-r1", "fp8"), "fp8_block", "bf16", "engine"),
        ("deepseek-r1", "B200", "trtllm", "nvfp4", "nvfp4", "fp8", "engine"),
        ("deepseek-r1", "H200", "sglang", "nvfp4", "nvfp4_w4a16", "bf16", "engine"),
        ("gpt-oss-120b", "H200", "vllm", None, "mxfp4_w4a16", "bf16", "engine"),
        ("gpt-oss-120b", "B200", "vllm", None, "mxfp4_w4a16", "bf16", "engine"),
        ("gpt-oss-120b", "B200", "trtllm", None, "mxfp4_w4a8", "bf16", "engine"),
        ("llama-3.1-8b", "A100_SXM", "vllm", "fp8_block", "fp8_block_w8a16", "bf16", "engine"),
    ],
)
def test_formats_are_those_that_engines_run(model, device, engine, recipe, runs_in, cache, cache_from):
    """Source: the engines' code of 2026-11, named in engines.csv."""
    found = engine_formats(config.load(model), device, engine, recipe=recipe)
    assert (found.recipe.name, found.recipe.kv_cache.name, found.cache_from) == (runs_in, cache, cache_from)
    asked = engine_formats(config.load(model), device, engine, recipe=recipe, cache="fp8")
    assert (asked.recipe.kv_cache.name, asked.cache_from) == ("fp8", "option")
    named = engine_formats(replace(config.load(model), kv_cache="fp8", quantization=found.stored), device, engine)
    assert (named.recipe.kv_cache.name, named.cache_from) == ("fp8", "checkpoint")


def test_a_format_without_any_kernel_is_refused():
    with pytest.raises(ValueError, match="recipe must multiply in a format of the device"):
        engine_formats(config.load("gpt2"), "T4", "vllm", recipe="bf16")


def point_case(points, i, then=False):
    """What a user of the checker would ask about a serving point."""
    one = {name: values[i] for name, values in points.items()}
    attention, ffn = served_plans(one)
    prompt, answer = (int(values[i]) for values in mean_lengths(points).values())
    return hw.Case(
        model=served_checkpoint(str(one["model"]), str(one["wide"]))[0],
        device=str(one["device"]),
        engine=engine_of_then(str(one["framework"])) if then else str(one["framework"]),
        recipe=point_recipe(str(one["model"]), str(one["precision"]), str(one["device"])),
        cache=str(one["cache"]) or None,
        attention=attention,
        ffn=ffn,
        batch=int(one["concurrency"]),
        context=prompt + -(-answer // 2),
        prompt=prompt,
        answer=answer,
    )


def test_the_checker_agrees_with_the_matched_points():
    """By the path of `check --load`: its defaults for everything that a point does not name."""
    points = served_points(matched=True)
    told = np.array([point_case(points, i).token_seconds for i in range(len(points["tpot"]))])
    error = np.abs(told / points["tpot"] - 1)
    assert len(error) == 1741 and np.median(error) < 0.11 and np.mean(error) < 0.15
    r1 = (points["model"] == "deepseek-r1") & (points["device"] == "H200")
    assert r1.sum() == 30 and np.median(error[r1]) < 0.20
    plain = [i for i, wide in enumerate(points["wide"]) if not wide or "but" in wide][::5]
    then = [point_case(points, i, then=True).token_seconds for i in plain]
    assert len(plain) > 200 and then == pytest.approx(points["modelled"][plain], rel=1e-9)


def test_r1_on_h200_is_what_servers_show():
    """8192 and 1024 tokens, 64 users, tensor parallel over 8: SGLang 50.2 ms, TensorRT-LLM 48.3 ms in the serving points."""
    eight = hw.Plan(tp=8)
    load = {"batch": 64, "context": 7834, "prompt": 7373, "answer": 922}  # the benchmark's mean lengths
    case = hw.Case(model="deepseek-r1", device="H200", attention=eight, ffn=eight, **load)
    assert case.cache.name == "bf16" and 1 < case.token_seconds / 50.2e-3 < 1.35
    # An FP8 cache is read by the kernel that engines run, which is no slower than that of a BF16 cache.
    low = replace(case, cache="fp8")
    assert 0.8 * case.seconds < low.seconds < case.seconds


def test_an_unknown_column_is_refused_and_a_result_can_be_changed():
    with pytest.raises(ValueError, match="must be one of .*matched"):
        served_points(colour="red")
    served_points()["tpot"][0] = 0
    assert (served_points()["tpot"] > 0).all()


# Disaggregated ------------------------------------------------------------------------------------------------------------


def test_disaggregated_points_have_whole_workers_in_one_rack():
    rows = measurements("serving_disaggregated")
    assert Counter(zip(rows["device"].tolist(), rows["precision"].tolist(), strict=True)) == {
        ("GB200", "fp8"): 33, ("GB200", "nvfp4"): 51, ("GB300", "fp8"): 30, ("GB300", "nvfp4"): 29}  # fmt: skip
    assert set(rows["model"]) == {"deepseek-r1"} and Counter(rows["speculative"].tolist()) == {"": 128, "unknown": 15}
    assert np.array_equal(rows["decode_gpus"], rows["decode_tp"] * rows["decode_dp"])
    assert np.array_equal(rows["decode_gpus"], rows["decode_moe_tp"] * rows["decode_moe_ep"])
    gpus = rows["prefill_workers"] * rows["prefill_gpus"] + rows["decode_workers"] * rows["decode_gpus"]
    assert gpus.min() >= 8 and gpus.max() <= 72
    every = list(zip(*(values.tolist() for values in rows.values()), strict=True))
    assert len(every) == len(set(every)) == 143


def test_a_disaggregated_point_is_the_plain_one_of_its_recipe():
    # InferenceX, dsr1-fp4-gb300-dynamo-trt at 3eb1b77 (2026-02-03), without speculation: one prefill worker of 2 GPUs, four
    # decode workers of 8 with tensor parallel attention and whole experts; the recipe with it takes 3.57 ms at the same key
    kind = {"precision": "nvfp4", "framework": "trtllm", "input_tokens": 1024, "output_tokens": 1024, "concurrency": 12}
    row = {name: values.item() for name, values in measurements("serving_disaggregated", "GB300", **kind).items()}
    assert [row[f"decode_{x}"] for x in ("workers", "gpus", "tp", "dp", "moe_tp", "moe_ep")] == [4, 8, 8, 1, 1, 8]
    assert (row["prefill_workers"], row["prefill_gpus"], row["speculative"]) == (1, 2, "")
    assert row["tpot"] == pytest.approx(6.49e-3, abs=5e-6) and row["ttft"] == pytest.approx(0.344, abs=1e-3)


@pytest.mark.parametrize("table", ["serving", "serving_disaggregated"])
def test_the_files_are_those_of_the_manifest(table):
    entry = next(row for row in tables() if row["file"] == f"{table}.csv")
    assert hashlib.sha256(DATA.joinpath(entry["file"]).read_bytes()).hexdigest() == entry["sha256"]
    assert int(entry["rows"]) == len(measurements(table)["tpot"])
