"""Published numbers of serving: each row has a dated source and the columns of its kind; anchors as their sources print them."""

import math
import re
from collections import Counter

import pytest

from hwdesign.catalogue.published import serving_landscape

DATED = re.compile(r"\b20\d\d-\d\d\b|@[0-9a-f]{7}\b")
NEEDS = {
    "limit": ("seconds", "token_seconds", "user_rate"),
    "front": ("gpu_rate",),
    "planner": ("seconds",),
    "disaggregation": ("high",),
    "matching": ("low", "high"),
}


def chosen(kind, **columns):
    columns = {"kind": kind} | columns
    return [row for row in serving_landscape() if all(row[key] == value for key, value in columns.items())]


def test_kinds():
    assert Counter(row["kind"] for row in serving_landscape()) == {
        "limit": 6,
        "front": 89,
        "planner": 11,
        "disaggregation": 10,
        "matching": 1,
    }


@pytest.mark.parametrize("row", serving_landscape())
def test_row(row):
    assert DATED.search(row["source"])
    assert row["system"]
    assert all(row[column] > 0 for column in NEEDS[row["kind"]])
    assert not row["low"] > row["high"]
    assert row["speculative"] in ("", "mtp", "unknown")
    if row["kind"] == "front":
        assert row["counts"] in ("output", "input", "total") and row["over"] in ("all", "decode", "prefill")
    else:
        assert row["counts"] == row["over"] == ""
    assert row["counts"] != "total" or row["input_tokens"] + row["output_tokens"] > 0  # without them it could not be converted


def test_no_number_twice():
    words = ("note", "source")
    numbers = [str([value for key, value in row.items() if key not in words]) for row in serving_landscape()]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize(
    ("model", "system", "first", "rate"),
    [
        ("Llama-2-70B", "interactive", 0.45, 25),
        ("Llama-3.1-405B", "server", 6, 5.7),
        ("DeepSeek-R1", "server", 2, 12.5),
        ("DeepSeek-R1", "interactive", 1.5, 66.7),
    ],
)
def test_limits(model, system, first, rate):
    (row,) = chosen("limit", model=model, system=f"MLPerf {system}")
    assert (row["seconds"], round(row["user_rate"], 1)) == (first, rate)


@pytest.mark.parametrize(
    ("columns", "rate"),
    [
        ({"device": "GB300", "input_tokens": 131072, "user_rate": 23}, 226.2),
        ({"device": "GB300", "input_tokens": 131072, "user_rate": 43, "speculative": "mtp"}, 224.2),
        ({"device": "GB300", "precision": "FP4", "user_rate": 71}, 11951.3),
        ({"device": "GB200", "gpus": 4, "output_tokens": 1024, "input_tokens": 1024}, 6924),
        ({"device": "H100", "model": "Llama-3.3-70B", "input_tokens": 1000}, 2209),
        ({"device": "B200", "concurrency": 7168}, 5393.2755),
        ({"device": "H800", "over": "decode"}, 14800 / 8),
        ({"device": "H800", "over": "prefill"}, 73700 / 8),
        ({"device": "Ascend 910C", "user_rate": 1 / 0.015}, 538),
    ],
)
def test_fronts(columns, rate):
    (row,) = chosen("front", **columns)
    assert row["gpu_rate"] == rate


def test_totals():
    """At prompts of 8K and answers of 1K a ninth is output: less than the published maximum of the same device and format."""
    columns = {"device": "B200", "precision": "FP4", "input_tokens": 8192}
    (most,) = chosen("front", model="DeepSeek-R1-0528", **columns)
    points = chosen("front", model="DeepSeek-R1", **columns)
    assert (len(points), most["gpu_rate"]) == (3, 1168)
    assert all(row["counts"] == "total" and row["gpu_rate"] / 9 < most["gpu_rate"] for row in points)


def test_planners():
    seconds = [row["seconds"] for row in chosen("planner")]
    assert {63.3, 38.7, 6.5, 1.92, 30, 3600} < set(seconds)
    assert max(seconds) == 12 * 3600 + 6 * 60 + 56


def test_gains():
    gains = [(row["low"], row["high"]) for row in chosen("disaggregation", input_tokens=4400)]
    assert gains == [(1.4, 1.8), (1.6, 2.5)]
    assert [row["high"] for row in chosen("disaggregation", system="DistServe")] == [4.48, 7.4]
    assert "second hand" in chosen("disaggregation", high=7.4)[0]["note"]
    assert [(row["low"], row["high"]) for row in chosen("matching")] == [(0.75, 1)]
    assert math.isnan(chosen("disaggregation", system="Splitwise", high=1.4)[0]["low"])
