"""Times of 100 shapes that nobody has built beside a planner's extrapolation.

The list was drawn by a seed and committed before anything was asked; `scripts/unbuilt_shapes.py` says how, and which version
answered on 2026-12-01. All of the first 100 rows were answered. The aim was 80 of them inside our 80 % interval; 78 are, so the
aim is missed. The answers lie 9 % from ours in the median, 14 % in the mean, and 1 % above ours with sign in the median. Inside
are 85 % of the dense rows and 73 % of those with experts.

Fifteen of the 22 outside lie above, and two charges of the planner that we do not make explain most of those. It adds at least
26 µs a layer for norms of queries and keys, an estimate and no measured row; we count nothing for norms of single heads. And
dense FP8 in TensorRT-LLM was asked for with scales made in each step, where we take the checkpoint's. Asked without the two, 85
are inside. Of the 15 outside then, 13 lie below: most with SGLang, where we count more for prompts and for the engine. Experts
in FP8 blocks differ most: only 58 % of them are inside as asked. The tests hold floors a little below these figures.
"""

import functools
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from hwdesign.models import config
from hwdesign.timing.intervals import interval_factors

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import unbuilt_shapes  # noqa: E402

ROWS = unbuilt_shapes.read(ROOT / "tests/data/unbuilt_shapes.csv")
DENSE = np.array([row["kind"] == "dense" for row in ROWS])


@functools.cache
def modelled():
    """Our time of each row [s], in the kernels of the engines of today."""
    return np.array(unbuilt_shapes.modelled_seconds(ROWS))


def ratios(*columns):
    """The planner's time over ours, from the first of the columns that has one."""
    return np.array([float(next(row[name] for name in columns if row[name])) for row in ROWS]) / modelled()


def inside(ratio):
    low, high = interval_factors()
    return (ratio >= low) & (ratio <= high)


def test_each_row_is_its_draw_of_the_seeded_sequence():
    last = ROWS[-1]["draw"]
    drawn = {row["draw"]: row for row in itertools.takewhile(lambda row: row["draw"] <= last, unbuilt_shapes.proposals())}
    numbers = [row["draw"] for row in ROWS]
    assert numbers == sorted(set(numbers))
    for row in ROWS:
        assert {name: row[name] for name in unbuilt_shapes.COLUMNS} == drawn[row["draw"]] | {"cache": row["cache"]}


def test_rows_fit_by_our_count():
    assert np.mean([unbuilt_shapes.fits(row) for row in ROWS]) >= 0.95  # all did when they were drawn


def test_nobody_built_them():
    built = {(model.hidden_size, len(model.blocks), model.parameters) for model in map(config.load, config.names())}
    shapes = {(row["hidden_size"], row["layers"], unbuilt_shapes.served(row)[0].parameters) for row in ROWS}
    assert len(shapes) == len(ROWS) and not shapes & built


def test_a_hundred_rows_are_answered_and_others_say_why_not():
    assert sum(bool(row["seconds"]) for row in ROWS) == unbuilt_shapes.WANTED
    assert all(bool(row["seconds"]) != bool(row["refusal"]) for row in ROWS)


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_questions_name_formats_and_ways(kind):
    row = next(row for row in ROWS if row["kind"] == kind)
    asked = unbuilt_shapes.question(row, "folder")
    assert asked["database_mode"] == "HYBRID"
    assert (asked["moe_quant_mode"] is None) == (asked["moe_ep_size"] is None) == (kind == "dense")


def test_the_parts_of_a_step_add_up():
    for row in ROWS:
        if row["step"]:
            parts = sum(float(row[name]) for name in unbuilt_shapes.PARTS)
            assert parts == pytest.approx(float(row["step"]), rel=1e-3)


def test_78_of_100_answers_lie_in_our_interval():
    found = inside(ratios("seconds"))
    assert found.mean() >= 0.75
    assert found[DENSE].mean() >= 0.80
    assert found[~DENSE].mean() >= 0.68


def test_answers_lie_9_per_cent_from_ours_in_the_median():
    off = ratios("seconds") - 1
    assert np.median(abs(off)) <= 0.10
    assert np.mean(abs(off)) <= 0.15
    assert abs(np.median(off)) <= 0.03


def test_without_two_charges_of_the_planner_85_lie_in_it():
    assert inside(ratios("plain", "seconds")).mean() >= 0.82
