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
