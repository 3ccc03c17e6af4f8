"""The stored answers of two planners belong to the points of the exam, and the list of points holds no time."""

import csv
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import ask_peers  # noqa: E402
import exam_points  # noqa: E402


def stored():
    with open(ROOT / "hwdesign/timing/data/peers.csv", newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def test_every_point_was_asked_for_and_no_other():
    asked = [tuple(str(x) for x in row[: len(exam_points.KEY)]) for row in exam_points.exam_points()]
    assert exam_points.KEY == ask_peers.KEY
    assert [ask_peers.named(row) for row in stored()] == asked


def test_a_tool_answers_or_says_why_not():
    for row in stored():
        for tool in ask_peers.TOOLS:
            assert bool(row[tool]) != bool(row[f"{tool}_refusal"])
            assert not row[tool] or 1e-3 < float(row[tool]) < 1


def test_the_list_holds_no_time():
    assert not {"ttft", "tpot", "modelled"} & set(exam_points.COLUMNS)


def test_questions_name_the_formats_of_the_point():
    point = dict(zip(exam_points.COLUMNS, exam_points.exam_points(model="kimi-k2.5", precision="int4_wo")[0], strict=True))
    asked = ask_peers.question({name: str(x) for name, x in point.items()})
    assert (asked["gemm_quant_mode"], asked["moe_quant_mode"], asked["isl"]) == ("bfloat16", "int4_wo", 922)
    per_rank = ask_peers.question(
        {name: str(x) for name, x in (point | {"dp": 2, "concurrency": 8, "precision": "fp8", "wide": ""}).items()}
    )
    assert (per_rank["batch_size"], per_rank["gemm_quant_mode"], per_rank["moe_quant_mode"]) == (4, "fp8_block", "fp8_block")


def test_fp8_per_tensor_is_asked_as_the_served_checkpoint_has_it():
    """Every dense FP8 slice names its checkpoint in served_options.csv, and it holds the scales of its activations."""
    with open(ROOT / "hwdesign/timing/data/served_options.csv", newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    told = {(row["model"], row["device"], row["framework"], row["precision"]): row["checkpoint"] for row in rows}
    slices = {(r["model"], r["device"], r["framework"]) for r in stored() if r["precision"] == "fp8" and not r["moe_tp"]}
    assert {(model, framework) for model, _, framework in slices} == set(ask_peers.STATIC)
    for model, device, framework in slices:
        assert ask_peers.STATIC[model, framework].split("/")[-1] in told[model, device, framework, "fp8"]


def test_a_point_is_asked_as_static_by_its_model_and_engine():
    point = {"model": "llama-3.1-70b", "framework": "trtllm", "device": "H200", "precision": "fp8", "moe_tp": "", "wide": ""}
    assert ask_peers.quantization(point) == ("fp8_static", None)
    assert ask_peers.quantization(point | {"framework": "sglang"}) == ("fp8", None)  # no such checkpoint is known
    assert ask_peers.quantization(point | {"precision": "nvfp4"}) == ("nvfp4", None)
    assert ask_peers.quantization(point | {"model": "minimax-m2.5", "moe_tp": "4"}) == ("fp8_block", "fp8_block")


def test_a_static_answer_is_the_time_without_making_scales():
    """Two points asked both ways by hand: as `fp8` aisimulate said 28.18 and 19.10 ms."""
    names = ("model", "framework", "device", "tp", "concurrency", "input_tokens", "output_tokens")
    found = {tuple(row[name] for name in names): row for row in stored() if row["precision"] == "fp8"}
    llama = found["llama-3.1-70b", "trtllm", "B200", "1", "16", "8192", "1024"]
    qwen = found["qwen3-32b", "trtllm", "H100_SXM", "8", "32", "2048", "128"]
    assert (llama["aisimulate"], qwen["aisimulate"], qwen["aiconfigurator"]) == ("0.024597", "0.016573", "0.014883")
