"""Chapter 4: scores and their margins, samples, figures, sliders, formats timed live, and the published times it rests on."""

import dataclasses
import re

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("matplotlib")
from matplotlib.colors import to_rgb
from slow_formats import E2M1, slow_nvfp4
from stub_torch import stub

import hwdesign as hw
from hwdesign.catalogue.published import benchmark_scores
from hwdesign.formulas.roofline import break_even_n, critical_dimension
from hwdesign.lessons import figures, live, style
from hwdesign.lessons.figures.low_precision_sliders import DEFINED, GRIDS
from hwdesign.lessons.show import webp_uri
from hwdesign.lessons.studies.samples import KINDS, outlier_channels, samples
from hwdesign.lessons.studies.scores import difference_margin
from hwdesign.measure.backends import TorchBackend, as_backend
from hwdesign.measure.runs import Skipped, load_run, shipped_runs

ENGINES = ("sglang", "trtllm")


# Scores -------------------------------------------------------------------------------------------------------------------


def test_scores_are_the_published_ones_each_with_its_source():
    found = benchmark_scores()
    told = {(x["model"].removesuffix(" hybrid pretrained in NVFP4"), x["benchmark"]): (x["before"], x["after"]) for x in found}
    assert len(found) == len(told) == 14
    assert told == {
        ("DeepSeek-R1-0528", "MMLU-Pro"): (85, 84.2), ("DeepSeek-R1-0528", "GPQA Diamond"): (81, 80),
        ("DeepSeek-R1-0528", "LiveCodeBench"): (77, 76.3), ("DeepSeek-R1-0528", "SciCode"): (40, 40.1),
        ("DeepSeek-R1-0528", "MATH-500"): (98, 98.1), ("DeepSeek-R1-0528", "AIME 2024"): (89, 91.3),
        ("Qwen3.6-35B-A3B", "MMLU-Pro"): (85.6, 85), ("Qwen3.6-35B-A3B", "GPQA Diamond"): (84.9, 84.8),
        ("Qwen3.6-35B-A3B", "AIME 2025"): (89.2, 88.8), ("12B", "MMLU-Pro"): (62.62, 62.58),
        ("Llama-3.1-8B, rounded", "MMLU"): (72.8, 67), ("Llama-3.1-8B, rounded", "GSM8K"): (85.1, 77.4),
        ("Llama-3.1-8B, retrained", "MMLU"): (72.8, 68.9), ("Llama-3.1-8B, retrained", "GSM8K"): (85.1, 81.6),
    }  # fmt: skip
    assert {x["model"].split("-")[0] for x in found if x["wide"] == "bf16"} == {"Qwen3.6", "Llama"}
    assert {x["wide"] for x in found} == {"bf16", "fp8"} and {x["narrow"] for x in found} == {"nvfp4"}
    sources = {x["model"]: x["source"] for x in found}
    assert "model card" in sources["DeepSeek-R1-0528"] and "Artificial Analysis" in sources["DeepSeek-R1-0528"]
    assert "model card" in sources["Qwen3.6-35B-A3B"] and "arXiv 2509.25149" in sources["12B hybrid pretrained in NVFP4"]
    for way, how in (("rounded", "round to nearest"), ("retrained", "quantization-aware training")):
        assert re.search(rf"model card \(an excerpt\); {how}$", sources[f"Llama-3.1-8B, {way}"])
    assert all(x["source"] == sources[x["model"]] for x in found)  # none says "same"
    with pytest.raises(TypeError):
        found[0]["after"] = 99.0


def test_questions_are_counted_or_unknown():
    counted = {x["benchmark"]: x["questions"] for x in benchmark_scores()}
    assert np.isnan(counted.pop("LiveCodeBench"))
    assert counted == {
        "MMLU-Pro": 12032, "GPQA Diamond": 198, "SciCode": 338, "MATH-500": 500, "AIME 2024": 30, "AIME 2025": 30,
        "MMLU": 14042, "GSM8K": 1319,
    }  # fmt: skip
    for x in benchmark_scores():
        if x["questions"] == 30:  # one run of 30 questions gives multiples of a thirtieth; these are means of several
            assert round(x["before"] * 30 / 100) * 100 / 30 != pytest.approx(x["before"], abs=0.02)


@pytest.mark.parametrize(("before", "after", "questions"), [(85, 84.2, 12032), (81, 80, 198), (62.6, 50, 500), (30, 70, 1000)])
def test_nineteen_of_twenty_drawn_differences_lie_within_the_margin(before, after, questions):
    rng, draws = np.random.default_rng(0), 200_000
    scores = [100 * rng.binomial(questions, share / 100, draws) / questions for share in (before, after)]
    difference = scores[1] - scores[0]
    margin = difference_margin(before, after, questions)
    assert margin == pytest.approx(1.96 * difference.std(), rel=0.01)
    assert (np.abs(difference - (after - before)) <= margin).mean() == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize(
    ("shares", "questions"),
    [((98, 98), 500), ((89, 95), 30), ((89, 89), 30), ((60, 95), 30), ((99, 90), 100), ((99.5, 99.5), 30), ((50, 50), 10)],
)
def test_the_margin_of_scores_as_drawn_holds_for_few_questions_and_near_100_percent(shares, questions):
    draws = np.random.default_rng(1).binomial(questions, np.divide(shares, 100)[:, None], (2, 100_000))
    before, after = 100 * draws / questions
    off, margin = after - before - (shares[1] - shares[0]), difference_margin(before, after, questions)
    assert (np.abs(off) <= margin).mean() >= (0.93 if questions >= 30 else 0.88)
    added = 100 * (draws + 1) / (questions + 2)  # with the two answers the middle moves too: the published interval
    assert (np.abs(added[1] - added[0] - (shares[1] - shares[0])) <= margin).mean() >= 0.945
    assert difference_margin(100, 100, questions) > 0  # where a normal interval of the scores has no width


@pytest.mark.parametrize(("flipped", "change", "questions"), [(0.05, 0, 12032), (0.05, -0.008, 12032), (0.3, 0.01, 500)])
def test_the_margin_of_pairs_is_what_pairs_draw(flipped, change, questions):
    lost, gained = (flipped - change) / 2, (flipped + change) / 2  # the rest is right in both formats, or wrong in both
    drawn = np.random.default_rng(2).multinomial(questions, [lost, gained, 0.8 - lost, 0.2 - gained], 200_000)
    difference = 100 * (drawn[:, 1] - drawn[:, 0]) / questions
    margin = difference_margin(80, 80 + 100 * change, questions, flipped=flipped)
    assert margin == pytest.approx(1.96 * difference.std(), rel=0.01)
    assert (np.abs(difference - 100 * change) <= margin).mean() == pytest.approx(0.95, abs=0.01)
    assert margin < difference_margin(80, 80 + 100 * change, questions)


def test_margins_by_hand():
    assert difference_margin(50, 50, 9602) == pytest.approx(np.sqrt(2))  # 1.96 x 50 / 98 for one score of 9602 + 2
    assert difference_margin(90, 80, 98) == pytest.approx(19.6 * np.sqrt(0.2599))  # 0.892 and 0.794 of 100
    assert difference_margin(100, 0, 10) == pytest.approx(196 * np.sqrt(22 / 144 / 12))  # 11 and 1 of 12, so not 0
    assert difference_margin(85, 84.2, 10**4, flipped=0.04) == pytest.approx(0.392)  # 1.96 x 0.2 / 100
    assert np.isnan(difference_margin(80, 81, np.nan)) and np.isnan(difference_margin(80, 81, np.nan, flipped=0.1))
    assert difference_margin(80, 80, 100, flipped=0) == 0
    # Answers of independent draws differ on u (1 - v) + v (1 - u) of the questions: then both margins are the same.
    assert difference_margin(80, 80, 10**8, flipped=0.32) == pytest.approx(difference_margin(80, 80, 10**8))
    wide = difference_margin([50, 90], [50, 80], [[98], [398]])
    assert wide.shape == (2, 2) and wide[0, 0] == pytest.approx(2 * wide[1, 0]) == pytest.approx(9.8 * np.sqrt(2))
    assert np.ndim(difference_margin(1, 2, 3)) == 0
    assert difference_margin(50, 50, [100, 400], flipped=[[0.25], [0.01]]) == pytest.approx(
        np.array([[9.8, 4.9], [1.96, 0.98]])
    )


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ((50, 50, 10, 1.5), "flipped must be between 0 and 1, got 1.5"),
        ((50, 50, 10, [0.1, -0.1]), "flipped must be between 0 and 1, got -0.1"),
        ((50, 50, 10, np.nan), "flipped must be between 0 and 1, got nan"),
        ((50, 50, 10, "many"), "flipped must be a number"),
        (([1, 2], 50, [1, 2, 3]), r"before, after, questions must broadcast .* before \(2,\), after \(\), questions \(3,\)"),
        ((50, 50, [1, 2], [0, 0, 0]), r"questions, flipped must broadcast .* questions \(2,\), flipped \(3,\)"),
        ((101, 50, 10), "before must be between 0 and 100, got 101"),
        ((50, [50, -1], 10), "after must be between 0 and 100, got -1"),
        ((np.nan, 50, 10), "before must be between 0 and 100, got nan"),
        ((50, 50, 0), "questions must be > 0, got 0"),
        (("a", 50, 1), "before must be a number"),
    ],
)
def test_what_is_no_score_is_refused(call, says):
    scores, more = call[:3], call[3:]
    with pytest.raises(ValueError, match=says):
        difference_margin(*scores, **dict(zip(["flipped"], more, strict=False)))


def test_no_difference_of_a_large_model_exceeds_its_margin_and_each_of_a_small_one_does():
    found = {
        (x["model"], x["benchmark"]): abs(x["after"] - x["before"])
        / difference_margin(x["before"], x["after"], x["questions"])
        for x in benchmark_scores()
        if not np.isnan(x["questions"])
    }
    beyond = {key for key, ratio in found.items() if ratio > 1}
    assert beyond == {(f"Llama-3.1-8B, {way}", on) for way in ("rounded", "retrained") for on in ("MMLU", "GSM8K")}
    assert len(found) == 13 and max(found[key] for key in set(found) - beyond) < 0.9 and min(found[key] for key in beyond) > 1.2


def test_two_large_models_together_lose_more_than_their_margin():
    pair = [x for x in benchmark_scores() if x["benchmark"] == "MMLU-Pro" and x["model"].startswith(("DeepSeek", "Qwen"))]
    lost = np.mean([x["after"] - x["before"] for x in pair])
    margins = [difference_margin(x["before"], x["after"], x["questions"]) for x in pair]
    together = np.hypot(*margins) / 2  # of the mean of two independent differences
    assert len(pair) == 2 and (round(lost, 2), round(together, 2)) == (-0.7, 0.64)
    assert together == pytest.approx(difference_margin(85.3, 84.6, 2 * 12032), rel=1e-3)  # as one model on twice the questions
    assert all(abs(x["after"] - x["before"]) < margin for x, margin in zip(pair, margins, strict=True))


def test_training_in_the_narrow_format_wins_back_a_third_to_a_half():
    after = {(x["model"].split()[-1], x["benchmark"]): (x["before"], x["after"], x["questions"]) for x in benchmark_scores()}
    back = {}
    for on in ("MMLU", "GSM8K"):
        (before, rounded, n), (_, retrained, _) = after["rounded", on], after["retrained", on]
        assert retrained - rounded > difference_margin(rounded, retrained, n)
        back[on] = round((retrained - rounded) / (before - rounded), 2)
    assert back == {"MMLU": 0.33, "GSM8K": 0.55}


# Samples ------------------------------------------------------------------------------------------------------------------


def test_samples_have_one_spread_and_the_tails_they_are_named_after():
    beyond = {}
    for kind in KINDS:
        x = samples(kind)
        assert x.shape == (128, 2048) and np.array_equal(x, samples(kind)) and not np.array_equal(x, samples(kind, seed=1))
        ordinary = x[:, ~outlier_channels(2048)]
        assert ordinary.std() == pytest.approx(0.02, rel=0.03) and abs(ordinary.mean()) < 2e-4
        beyond[kind] = (np.abs(ordinary) > 5 * 0.02).mean()
    assert beyond["Gaussian"] < 1e-5 and beyond["outlier channels"] < 1e-5
    assert beyond["heavy tails"] == pytest.approx(0.0021, rel=0.1)  # Student's t with 4 degrees beyond 5 sqrt(2), from a table


def test_outlier_channels_are_each_128th_and_as_strong_as_told():
    plain, strong = samples("Gaussian", columns=512), samples("outlier channels", columns=512, strength=50)
    assert np.flatnonzero(outlier_channels(512)).tolist() == [64, 192, 320, 448]
    for j in range(512):
        assert np.allclose(strong[:, j], (50 if j in (64, 192, 320, 448) else 1) * plain[:, j], rtol=1e-12)
    assert np.array_equal(samples("outlier channels", columns=512, strength=1), plain)
    assert outlier_channels(64).sum() == 0 and samples("outlier channels", rows=2, columns=1).shape == (2, 1)


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        ("Gausian", {}, "kind must be one of Gaussian, heavy tails, outlier channels, got 'Gausian'; did you mean 'Gaussian'"),
        ("Gaussian", {"rows": 0}, "rows must be >= 1, got 0"),
        ("Gaussian", {"columns": 2.5}, "columns must be a whole number, got 2.5"),
        ("outlier channels", {"strength": 0}, "strength must be > 0, got 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(kind, change, says):
    with pytest.raises(ValueError, match=says):
        samples(kind, **change)


# Published times ----------------------------------------------------------------------------------------------------------


def speed(m, n, k, engine, form="nvfp4"):
    wide, narrow = (hw.gemm_grid("GB300", name, engine) for name in ("bf16", form))
    return wide.at(m, n, k) / narrow.at(m, n, k)


def best(device, form, engine):
    """Rate of the fastest GEMM of a slice [FLOP/s]."""
    grid = hw.gemm_grid(device, form, engine)
    return max(
        2.0 * m * n * k / t
        for m, plane in zip(grid.m, grid.seconds.astype(float), strict=True)
        for n, line in zip(grid.n, plane, strict=True)
        for k, t in zip(grid.k, line, strict=True)
        if t == t
    )


def test_published_answer_to_the_question_is_that_it_gets_slower():
    assert [round(float(speed(16, 8192, 512, e)), 2) for e in ENGINES] == [0.69, 0.35]


@pytest.mark.parametrize(
    ("engine", "side", "low", "high"),
    [
        ("sglang", 1024, 0.7, 1.3), ("sglang", 4096, 1.3, 2.5), ("sglang", 8192, 2.1, 3.2), ("sglang", 16384, 3.2, 3.9),
        ("trtllm", 1024, 0.3, 0.6), ("trtllm", 4096, 0.6, 1.8), ("trtllm", 8192, 1.2, 2.6), ("trtllm", 16384, 2.1, 2.4),
    ],
)  # fmt: skip
def test_published_speeds_of_square_weights(engine, side, low, high):
    found = [float(speed(m, side, side, engine)) for m in (1, 16, 128, 1024, 8192)]
    assert (round(min(found), 1), round(max(found), 1)) == (low, high)


def test_the_layer_of_table_2_is_slower_in_nvfp4_at_every_size_in_one_engine_and_at_few_tokens_in_the_other():
    sizes = hw.gemm_grid("GB300", "nvfp4", "trtllm").m
    assert (sizes[0], sizes[-1], len(sizes)) == (1, 32768, 74)
    slow = speed(sizes, 8192, 512, "trtllm")
    assert (round(float(slow.min()), 2), round(float(slow.max()), 2)) == (0.33, 0.72)
    other = speed(sizes, 8192, 512, "sglang")
    assert (other[sizes <= 768] < 1).all() and (other[sizes >= 1536] > 1).all()
    times = {e: [round(float(hw.gemm_grid("GB300", p, e).at(8192, 8192, 512)) * 1e6) for p in ("nvfp4", "bf16")] for e in ENGINES}
    assert times == {"trtllm": [66, 44], "sglang": [29, 43]}


@pytest.mark.parametrize(("engine", "percent", "slower"), [("sglang", 7, 19), ("trtllm", 59, 151)])
def test_at_one_token_a_share_of_the_large_shapes_is_slower(engine, percent, slower):
    sides = [int(n) for n in hw.gemm_grid("GB300", "nvfp4", engine).n if n >= 1024]
    found = [float(speed(1, n, k, engine)) for n in sides for k in sides]
    known = [x for x in found if x == x]
    assert (len(sides), len(known), sum(x < 1 for x in known)) == (16, 255, slower) and round(100 * slower / 255) == percent


def test_best_published_rates():
    found = {(d, p, e): best(d, p, e) for d, p, e in (
        ("GB300", "nvfp4", "trtllm"), ("GB300", "bf16", "trtllm"), ("GB300", "nvfp4", "sglang"), ("B200", "nvfp4", "sglang"),
        ("GB300", "nvfp4", "vllm"),
    )}  # fmt: skip
    assert [round(x / 1e15, 2) for x in found.values()] == [6.46, 2.11, 7.94, 5.11, 7.72]
    assert round(found["GB300", "nvfp4", "sglang"] / found["B200", "nvfp4", "sglang"], 2) == 1.55
    peaks = [hw.device(d).peak_flops("nvfp4") for d in ("GB300", "B200")]
    assert [x / 1e15 for x in peaks] == [15, 9] and round(7.94 / 15, 2) == 0.53


def test_quantizing_the_inputs_pays_from_480_columns_on():
    # 2.5625 byte an element at 8 TB/s against 2 FLOP at 2.5 and at 15 PFLOP/s: 320.3 fs = N x (0.8 - 0.1333) fs
    gb300 = hw.GB300
    assert (gb300.memory_bandwidth, gb300.peak_flops("bf16"), gb300.peak_flops("nvfp4")) == (8e12, 2.5e15, 15e15)
    m, k = 8192, 8192

    def gain(n):
        """Time of the product in BF16, less that in NVFP4 and that of the pass [s]."""
        flops = hw.gemm_flops(m, n, k)
        return flops / gb300.peak_flops("bf16") - flops / gb300.peak_flops("nvfp4") - m * k * (2 + hw.NVFP4.bytes) / 8e12

    assert gain(480) < 0 < gain(481) and round(320.3125 / (0.8 - 0.8 / 6), 2) == 480.47
    found = break_even_n(
        gb300.peak_flops("bf16"), gb300.peak_flops("nvfp4"), bandwidth=gb300.memory_bandwidth, moved=2 + hw.NVFP4.bytes
    )
    assert round(float(found), 2) == 480.47


def test_most_that_a_format_gains_on_a_gb300():
    gb300 = hw.GB300
    assert round(hw.BF16.bytes / hw.NVFP4.bytes, 2) == 3.56 and gb300.peak_flops("nvfp4") / gb300.peak_flops("bf16") == 6
    assert hw.B200.peak_flops("nvfp4") / hw.B200.peak_flops("bf16") == 4
    assert [round(critical_dimension(gb300.ridge(p), hw.precision(p).bytes), 1) for p in ("nvfp4", "bf16")] == [527.3, 312.5]


# Figures ------------------------------------------------------------------------------------------------------------------


def arrows(ax):
    """Foot and tip of each arrow of a figure."""
    return [(t.xyann, t.xy) for t in ax.texts if getattr(t, "arrow_patch", None)]


def test_number_lines_hold_each_value_and_arrows_go_where_numbers_are_rounded_to():
    marks = (0.2, 0.75, 2.5, 2.6, 5.0, 5.2)
    ax = figures.number_lines({"E2M1": ("e2m1", 1.0), "INT4": ("int4", 0.5)}, marks=marks)
    ticks = {line.get_ydata()[0]: line for line in ax.lines if line.get_marker() == "|"}
    assert ticks[1].get_xdata().tolist() == E2M1 and ticks[0].get_xdata().tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["E2M1", "INT4"] and ax.get_yticks().tolist() == [1, 0]
    assert ticks[0].get_color() != ticks[1].get_color()
    tips = {row: {foot[0]: tip[0] for foot, tip in arrows(ax) if round(tip[1]) == row} for row in (0, 1)}
    assert tips[1] == {0.2: 0, 0.75: 1, 2.5: 2, 2.6: 3, 5.0: 4, 5.2: 6}  # ties go to the even mantissa
    assert tips[0] == {0.2: 0, 0.75: 1, 2.5: 2.5, 2.6: 2.5, 5.0: 3.5, 5.2: 3.5}
    told = [t.get_text() for t in ax.texts]
    assert all(told.count(f"{m:g}") >= 2 for m in marks) and {"0.5", "1.5", "6", "3.5"} <= set(told)
    assert not arrows(figures.number_lines({"E2M1": ("e2m1", 1.0)}))


def test_a_block_is_drawn_before_and_after_with_the_values_it_uses():
    x, stored = np.array([0.1, -0.9, 2.2]), np.array([0.0, -1.0, 2.0])
    ax = figures.block_picture(x, stored, name="NVFP4")
    (stems,) = ax.collections
    assert np.array(stems.get_segments()).tolist() == [[[i, x[i]], [i, stored[i]]] for i in range(3)]
    before, after = ax.lines[:2]
    assert before.get_ydata().tolist() == x.tolist() and after.get_ydata().tolist() == stored.tolist()
    assert (before.get_label(), after.get_label()) == ("before", "NVFP4") and before.get_color() != after.get_color()
    assert sorted({line.get_ydata()[0] for line in ax.lines[2:]}) == [-2, -1, 0, 1, 2]


def test_error_lines_have_a_ring_on_the_curve_they_mark():
    curves = {"a": [30.0, 20.0, 10.0], "b": [9.0, 8.0, 7.0]}
    ax = figures.error_lines([16, 32, 64], curves, xlabel="block [element]", marks=[("a", 32), ("b", 64)], top=40)
    *lines, one, two = ax.lines
    assert {line.get_label(): line.get_ydata().tolist() for line in lines} == curves
    assert all(line.get_xdata().tolist() == [16, 32, 64] for line in lines) and lines[0].get_color() != lines[1].get_color()
    assert [(float(r.get_xdata()[0]), float(r.get_ydata()[0])) for r in (one, two)] == [(32, pytest.approx(20)), (64, 7)]
    assert one.get_markerfacecolor() == "none" and ax.get_ylim() == (0, 40) and ax.get_xscale() == "log"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["16", "32", "64"]


def test_score_differences_have_bars_where_a_margin_is_known():
    ax = figures.score_differences([("one", -0.8, 0.9), ("two", 0.5, np.nan), ("three", 2.3, 15.0)])
    (zero,) = [line for line in ax.lines if line.get_linestyle() == "--"]
    bars = {line.get_ydata()[0]: list(line.get_xdata()) for line in ax.lines if line.get_marker() == "None" and line is not zero}
    assert list(zero.get_xdata()) == [0, 0]
    assert bars[0] == pytest.approx([-1.7, 0.1]) and bars[2] == pytest.approx([-12.7, 17.3]) and 1 not in bars
    points = [line for line in ax.lines if line.get_marker() == "o"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in points] == [(-0.8, 0), (0.5, 1), (2.3, 2)]
    assert [line.get_markerfacecolor() == "none" for line in points] == [False, True, False]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["one", "two", "three"] and ax.get_ylim()[0] > ax.get_ylim()[1]


def test_roofs_of_formats_are_marked_where_they_meet_their_peak():
    m = np.array([1, 16, 256, 4096])
    rates = {"a": [1e13, 1.6e14, 2e15, 2e15], "b": [2e13, 3.2e14, 5.12e15, 8e15]}
    ax = figures.format_roofs(m, rates, {"a": 256})
    a, b = ax.lines
    assert np.allclose([a.get_ydata(), b.get_ydata()], [[0.01, 0.16, 2, 2], [0.02, 0.32, 5.12, 8]])
    assert [m[i] for i in a.get_markevery()] == [256] and a.get_marker() not in ("", "None") and b.get_markevery() == []
    assert a.get_color() != b.get_color() and a.get_linestyle() != b.get_linestyle()
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_speeds_are_lines_with_crosses_of_their_colour_and_the_line_of_no_difference():
    ax = figures.speedup_lines(
        [1, 16], {"x": [2.0, 3.0], "y": [0.5, 1.5]}, points=([1, 4], {"y": [0.6, 0.7]}), top=4, ticks=[1, 16]
    )
    x, y, cross, one = ax.lines
    assert (x.get_label(), list(x.get_ydata()), list(y.get_ydata())) == ("x", [2, 3], [0.5, 1.5])
    assert (list(cross.get_xdata()), list(cross.get_ydata()), cross.get_marker()) == ([1, 4], [0.6, 0.7], "x")
    assert cross.get_color() == y.get_color() != x.get_color() and cross.get_linestyle() == "None"
    assert list(one.get_ydata()) == [1, 1] and one.get_linestyle() == "--" and ax.get_ylim() == (0, 4)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "16"]
    assert figures.speedup_lines([1, 2], {"a": [1, 2]}).get_xlabel() == "tokens M [element]"


SPEED = np.array([[0.4, 0.9, 1.0, 1.2], [0.7, 1.1, np.nan, 0.8], [2.4, 3.5, 0.99, 1.6]])


def pieces(line):
    """The straight pieces of a line that is interrupted by blanks."""
    points, found = np.column_stack([line.get_xdata(), line.get_ydata()]), set()
    for a, b in zip(points, points[1:], strict=False):
        if np.isfinite([a, b]).all():
            found.add(frozenset([tuple(map(float, a)), tuple(map(float, b))]))
    return found


def test_the_border_of_a_speed_map_runs_between_slower_and_faster():
    ax = figures.speedup_map([128, 512, 1000], [128, 512, 1024, 3000], SPEED)
    wanted = set()
    for i in range(3):
        for j in range(4):
            slow = SPEED[i, j] < 1
            if j < 3 and slow != (SPEED[i, j + 1] < 1):
                wanted.add(frozenset([(j + 1.0, float(i)), (j + 1.0, i + 1.0)]))
            if i < 2 and slow != (SPEED[i + 1, j] < 1):
                wanted.add(frozenset([(float(j), i + 1.0), (j + 1.0, i + 1.0)]))
    dots, border = ax.lines
    assert pieces(border) == wanted and len(wanted) == 10
    slow = {(j + 0.5, i + 0.5) for i in range(3) for j in range(4) if SPEED[i, j] < 1}
    assert set(zip(dots.get_xdata(), dots.get_ydata(), strict=True)) == slow and dots.get_linestyle() == "None"
    (unknown,) = ax.patches
    assert (*unknown.get_xy(), unknown.get_hatch()) == (2, 1, "////")  # the NaN
    assert not any(map(pieces, figures.speedup_map([128, 256], [128, 256], [[2.0, 2.0], [1.0, 3.0]]).lines))
    assert not pieces(figures.speedup_map([128, 256], [128, 256], np.full((2, 2), 0.5)).lines[1])
    ruled = figures.speedup_map([128, 256], [128, 256], np.full((2, 2), 2.0), rule=[[False, False], [True, True]])
    assert pieces(ruled.lines[2]) == {frozenset([(0.0, 1.0), (1.0, 1.0)]), frozenset([(1.0, 1.0), (2.0, 1.0)])}
    assert ruled.lines[2].get_linestyle() == "--"


def test_a_speed_map_is_orange_where_slower_and_blue_where_faster_the_darker_the_further():
    ax = figures.speedup_map([128, 512, 1000], [128, 512, 1024, 3000], SPEED)
    (mesh,) = ax.collections
    assert np.array_equal(np.ma.filled(mesh.get_array().reshape(3, 4), -1), np.nan_to_num(SPEED, nan=-1))  # unknown: blank
    colors = {v: mesh.cmap(mesh.norm(v))[:3] for v in (0.2, 0.6, 0.9, 0.999, 1.0, 1.3, 1.7, 2.2, 2.7, 3.5)}
    for value, (red, _, blue) in colors.items():
        assert (red > blue) == (value < 1), value
    light = [sum(c) for c in colors.values()]
    assert light[0] < light[1] < light[2] == light[3] and all(a > b for a, b in zip(light[4:], light[5:], strict=False))
    assert [(p, t.get_text()) for p, t in zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)] == [
        (0.5, "128"), (1.5, "512"), (2.5, "1024")
    ]  # fmt: skip
    assert [t.get_text() for t in ax.get_yticklabels()] == ["128", "512"]
    assert "[BF16 = 1]" in ax.figure.axes[1].get_ylabel()


def test_a_waterfall_steps_from_the_old_time_to_the_new():
    before = {"ffn": 8e-3, "small kernels": 1e-3, "experts": 0.0, "attention": 3e-3}
    after = before | {"ffn": 4e-3, "small kernels": 1.5e-3}
    ax = figures.waterfall(before, after, names=("old", "new"))
    bars = [(p.get_x() + p.get_width() / 2, p.get_y(), p.get_height()) for p in ax.patches]
    assert np.allclose(bars, [(0, 0, 12), (1, 12, -4), (2, 8, 0.5), (3, 8.5, 0), (4, 0, 8.5)])
    colors = [p.get_facecolor()[:3] for p in ax.patches]
    assert colors[:3] + colors[4:] == list(map(to_rgb, (style.GREY, style.GREEN, style.ORANGE, style.BLUE)))
    assert [t.get_text() for t in ax.texts] == ["12.0", "-4.0", "+0.5", "0", "8.5"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["old", "ffn", "small\nkernels", "attention", "new"]
    levels = [(list(line.get_ydata()), line.get_xdata()[0]) for line in ax.lines]
    assert np.allclose([y for y, _ in levels], [[12, 12], [12 - 4] * 2, [8.5] * 2, [8.5] * 2]) and len(levels) == 4


def test_peaks_are_bars_and_what_is_reached_crosses():
    rows = [("GB300 NVFP4", 15e15, {"sglang": 6e15, "trtllm": 6.6e15}), ("H100 BF16", 1e15, {"trtllm": 0.8e15})]
    ax = figures.peak_and_best(rows)
    assert [(p.get_y() + p.get_height() / 2, p.get_width()) for p in ax.patches] == [(0, 15), (pytest.approx(1), 1)]
    crosses = [(line.get_xdata()[0], line.get_ydata()[0], line.get_color()) for line in ax.lines]
    assert crosses == [(6, 0, style.ORANGE), (6.6, 0, style.BLUE), (0.8, 1, style.BLUE)]
    assert [t.get_text() for t in ax.texts] == ["44%", "80%"]
    assert sorted(t.get_text() for t in ax.get_legend().get_texts()) == ["SGLang", "TensorRT-LLM", "dense peak"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["GB300 NVFP4", "H100 BF16"] and ax.get_ylim()[0] > ax.get_ylim()[1]


def test_own_formats_are_relative_to_the_widest_and_suspects_are_orange():
    (first,) = load_run(shipped_runs()[0]).select("gemm", precision="fp32", m=16, n=512, k=512)
    timed = {
        p: dataclasses.replace(first, precision=p, seconds=s, flags=(f,) if f else ())
        for p, s, f in (("fp32", 4e-3, ""), ("bf16", 2e-3, ""), ("fp8", 2.0, "suspect slower path: x"))
    }
    ax = figures.own_formats({(16, 512, 512): timed, (2, 4, 8): {"fp64": timed["fp32"], "fp32": timed["bf16"]}})
    marks = [line for line in ax.lines if line.get_marker() == "x"]
    assert [float(line.get_xdata()[0]) for line in marks] == pytest.approx([1, 2, 0.002, 1, 2])
    assert [line.get_color() == style.ORANGE for line in marks] == [False, False, True, False, False]
    assert [t.get_text() for t in ax.texts] == ["1", "2", "0.002, suspect", "1", "2"]
    assert [t.get_text() for t in ax.get_yticklabels()] == [
        "16 x 512 x 512, FP32", "16 x 512 x 512, BF16", "16 x 512 x 512, FP8", "2 x 4 x 8, FP64", "2 x 4 x 8, FP32"
    ]  # fmt: skip
    assert ax.get_xscale() == "log" and ax.get_xlim()[0] < 0.002 and ax.get_xlim()[1] > 2


def test_no_format_is_left_out_in_silence():
    names = [f"format {i}" for i in range(8)]
    two = {name: [1.0, 2.0] for name in names}
    for draw in (
        lambda: figures.format_roofs([1, 2], {name: [1e15, 2e15] for name in names}, dict.fromkeys(names, 2)),
        lambda: figures.speedup_lines([1, 2], two, points=([1], {name: [1.0] for name in names})),
        lambda: figures.error_lines([16, 32], two, xlabel="block [element]", marks=[(name, 16) for name in names]),
    ):
        shown = [t.get_text() for t in draw().get_legend().get_texts()]
        assert shown[:8] == names and shown[8:] in ([], [f"{name}, published" for name in names])


@pytest.mark.parametrize(
    ("draw", "x", "y"),
    [
        (lambda: figures.number_lines({"E2M1": ("e2m1", 1.0)}, marks=[2.5]), "value [dimensionless]", ""),
        (lambda: figures.block_picture([0.1], [0.0], name="a"), "place in the block", "value [dimensionless]"),
        (lambda: figures.error_lines([8, 16], {"a": [2, 1]}, xlabel="block [byte]"), "block [byte]", "signal to noise [dB]"),
        (lambda: figures.score_differences([("a", 1.0, 2.0)]), "NVFP4 minus before [percentage points]", ""),
        (lambda: figures.own_formats(live.formats_of(live.format_gemms(stored=True))), "speed [widest format = 1]", ""),
        (lambda: figures.format_roofs([1, 2], {"a": [1e15, 2e15]}, {}), "tokens M [element]", "attainable rate [PFLOP/s]"),
        (lambda: figures.speedup_lines([1, 2], {"a": [1, 2]}, xlabel="N [element]"), "N [element]", "speed [BF16 = 1]"),
        (lambda: figures.speedup_map([1, 2], [1, 2], [[0.5, 1], [1, 2]]), "K [element]", "N [element]"),
        (lambda: figures.waterfall({"a": 2e-3}, {"a": 1e-3}), "", "time of a step [ms]"),
        (lambda: figures.peak_and_best([("a", 1e15, {"sglang": 5e14})]), "rate [PFLOP/s]", ""),
    ],
)
def test_axes_name_quantity_and_unit(draw, x, y):
    ax = draw()
    assert (ax.get_xlabel(), ax.get_ylabel()) == (x, y)
    for label, ticks in ((x, ax.get_xticklabels()), (y, ax.get_yticklabels())):
        assert label or all(t.get_text() for t in ticks)  # the ticks are names then
    assert ax.get_title() == "" and webp_uri(ax) == webp_uri(draw())


# Sliders ------------------------------------------------------------------------------------------------------------------


def ratio_of_ordinary(x, label, size):
    """Signal to noise [dB] of all but the outlier channels, with the casts of ml_dtypes and NumPy."""
    form = label.split()[0]
    element, scale = {"FP8": ("E4M3", "FP32"), "INT4": ("INT4", "FP16")}.get(form) or re.findall(r"(\w+), (\w+) scale", label)[0]
    top = {"E2M1": 6, "E4M3": 448, "INT4": 7}[element]
    blocks = x.reshape(len(x), -1, size)
    largest = np.abs(blocks).max(-1, keepdims=True)
    if scale == "E8M0":
        scales = 2.0 ** (np.floor(np.log2(largest)) - 2)
    elif scale == "E4M3":
        tensor = float(np.float32(np.abs(x).max() / 2688))
        small = np.maximum((largest / 6 / tensor).astype(ml_dtypes.float8_e4m3fn).astype(float), 2.0**-9)
        scales = small * tensor
    else:
        scales = (largest / top).astype({"FP32": np.float32, "FP16": np.float16}[scale]).astype(float)
    kind = {"E2M1": ml_dtypes.float4_e2m1fn, "E4M3": ml_dtypes.float8_e4m3fn}.get(element)
    scaled = np.clip(blocks / scales, -top, top)
    stored = (np.rint(scaled) if kind is None else scaled.astype(kind).astype(float)) * scales
    keep = np.arange(x.shape[1]) % 128 != 64
    lost = (blocks - stored).reshape(x.shape)[:, keep]
    return 10 * np.log10((x[:, keep] ** 2).sum() / (lost**2).sum())


def test_the_slider_over_outliers_shows_what_other_casts_find():
    explorer = figures.explore_outliers(blocks=(8, 16, 32, 128))
    for i in (0, len(explorer.values) - 1):
        frame = explorer.draw(i)
        strength, blocks = frame.data["strength"], frame.data["blocks"]
        assert f"{strength:g}" == explorer.values[i]
        x = samples("Gaussian") * np.where(np.arange(2048) % 128 == 64, strength, 1)
        lines = {line.get_label(): line for line in frame.ax.lines}
        assert set(frame.data["ratio"]) == set(GRIDS) and set(GRIDS) < set(lines)
        for label, found in frame.data["ratio"].items():
            assert found == pytest.approx([ratio_of_ordinary(x, label, size) for size in blocks], abs=1e-3)
            assert lines[label].get_ydata().tolist() == found and lines[label].get_xdata().tolist() == blocks
        for label, at in DEFINED:
            assert f"{label} at {at}: {frame.data['ratio'][label][blocks.index(at)]:.1f} dB" in frame.text
        assert f"Each 128th channel {strength:g} times as large" in frame.text and frame.text in frame.alt
    nv, mx = "NVFP4 (E2M1, E4M3 scale)", "MXFP4 (E2M1, E8M0 scale)"
    assert frame.data["ratio"][nv][blocks.index(16)] == pytest.approx(10 * np.log10(127 / 15), abs=0.6)
    assert dict(DEFINED) == {nv: 16, mx: 32, "INT4": 128, "FP8 (E4M3)": 128}


def test_the_slider_over_blocks_shows_what_a_slow_encoder_stores():
    explorer = figures.explore_block()
    frames = [explorer.draw(i) for i in range(len(explorer.values))]
    for frame, value in zip(frames, explorer.values, strict=True):
        lines = {line.get_label(): np.asarray(line.get_ydata()) for line in frame.ax.lines}
        x, size = 0.02 * lines["before"], frame.data["block"]
        assert len(x) == 64 and str(size) == value and lines["before"][20] == pytest.approx(12)
        elements, scales, tensor_scale = slow_nvfp4([x.tolist()], size)
        stored = np.array(elements[0]) * np.repeat(scales[0], size) * tensor_scale
        assert 0.02 * lines["after"] == pytest.approx(stored, rel=1e-9)
        rest = [j for j in range(64) if j != 20]
        assert frame.data["zeros"] == sum(stored[j] == 0 for j in rest)
        noise = sum((x[j] - stored[j]) ** 2 for j in rest)
        assert frame.data["ratio"] == pytest.approx(10 * np.log10(sum(x[j] ** 2 for j in rest) / noise))
        assert f"Blocks of {size}: {frame.data['zeros']} of the 63 other numbers become zero" in frame.text
        (block,) = frame.ax.patches
        assert (block.get_x(), block.get_width()) == (20 // size * size - 0.5, size) and frame.text in frame.alt
    zeros = [f.data["zeros"] for f in frames]
    assert zeros == sorted(zeros) and zeros[0] < zeros[-1]


def test_the_slider_over_tokens_shows_the_published_times():
    explorer = figures.explore_speedup()
    wide, narrow = (hw.gemm_grid("GB300", p, "sglang") for p in ("bf16", "nvfp4"))
    sides = [int(n) for n in narrow.n if n >= 512]
    for i, value in enumerate(explorer.values):
        frame = explorer.draw(i)
        m = frame.data["m"]
        row = wide.m.tolist().index(m)
        found = [
            [float(a) / float(b) for a, b in zip(t[-len(sides) :], s[-len(sides) :], strict=True)]
            for t, s in zip(wide.seconds[row][-len(sides) :], narrow.seconds[row][-len(sides) :], strict=True)
        ]
        known = sorted(x for line in found for x in line if x == x)
        slower = sum(x < 1 for x in known) / len(known)
        assert value == f"M = {m}" and frame.data["median"] == pytest.approx(known[len(known) // 2]) and len(known) % 2 == 1
        assert frame.data["slower"] == pytest.approx(slower)
        values = frame.ax.collections[0].get_array().reshape(len(sides), len(sides))
        assert np.allclose(np.ma.filled(values, -1), np.nan_to_num(found, nan=-1))
        assert f"{known[-1]:.2f} times at best and slower on {slower:.0%} of the {len(known)} shapes" in frame.text
        assert frame.text in frame.alt
    other = figures.explore_speedup("B200", "trtllm", tokens=(1, 8192), least=4096).draw(1)
    assert other.data["m"] == 8192 and other.ax.collections[0].get_array().size < len(sides) ** 2
    with pytest.raises(ValueError, match="precision and framework must be a measured slice of H200"):
        figures.explore_speedup("H200")


def test_the_sliders_of_the_chapter_are_light_and_say_what_they_show():
    explorers = {
        "modelled": [figures.explore_outliers(), figures.explore_block()], "published": [figures.explore_speedup()],
    }  # fmt: skip
    every = [e for group in explorers.values() for e in group]
    assert sum(len(e.values) for e in every) <= 24 and len({e.name for e in every}) == 3
    for kind, group in explorers.items():
        for e in group:
            frame = e.draw(0)
            assert e.kinds == (kind,) and len(frame.alt) > 60 and re.search(r"\[[^\]]+\]", frame.alt) and e.caption
            assert frame.ax.get_xlabel() and frame.ax.get_ylabel()


# Live ---------------------------------------------------------------------------------------------------------------------

FIRST, SECOND = (2, 96, 64), (16, 32, 32)  # the shapes of the fixture


def by_shape(run):
    return {shape: list(formats) for shape, formats in live.formats_of(run).items()}


def test_the_stored_run_holds_every_format_of_a_cpu(monkeypatch):
    monkeypatch.setenv("HWDESIGN_STATIC", "1")
    run = live.format_gemms()
    assert run.machine == load_run(shipped_runs()[0]).machine == live.format_gemms(stored=True).machine
    found = live.formats_of(run)
    assert by_shape(run) == {(16, 512, 512): ["fp32", "bf16", "fp16", "fp8"], (512, 1024, 1024): ["fp32", "bf16", "fp16"]}
    for shape, formats in found.items():
        for precision, m in formats.items():
            assert (m.precision, *m.shape.values()) == (precision, *shape) and m.backend == "torch-cpu"
            assert not [f for f in m.flags if f.startswith(("impossible", "wrong"))]
    slow = found[16, 512, 512]["fp8"]
    assert (
        slow.flags[0].startswith("suspect slower path: fp8 runs at 0.00")
        and slow.seconds > 100 * found[16, 512, 512]["fp32"].seconds
    )


def test_a_kernel_with_numpy_measures_two_formats(small, capsys):
    small(as_backend("numpy"))
    run = live.format_gemms()
    assert by_shape(run) == {FIRST: ["fp64", "fp32"], SECOND: ["fp64", "fp32"]} and run.skipped == ()
    assert all(m.backend == "numpy" and m.source == "own machine" for m in run.measurements)
    assert "4 of 4: 16 x 32 x 32" in capsys.readouterr().err
    with pytest.raises(ValueError, match="rounds must be >= 1, got 0"):
        live.format_gemms(rounds=0)


def test_a_kernel_with_torch_measures_four(small):
    pytest.importorskip("torch", reason="torch is not installed")
    small(as_backend("torch-cpu"))
    run = live.format_gemms()
    wanted = {FIRST: ["fp32", "bf16", "fp16", "fp8"], SECOND: ["fp32", "bf16", "fp16"]}
    if run.skipped:
        pytest.skip("; ".join(map(str, run.skipped)))
    assert by_shape(run) == wanted and not [f for m in run.measurements for f in m.flags if f.startswith("wrong")]


@pytest.mark.parametrize(
    ("capability", "formats", "skipped"),
    [
        ((10, 0), ["fp32", "bf16", "fp8", "nvfp4"], []),
        ((9, 0), ["fp32", "bf16", "fp8"], ["nvfp4"]),
        ((8, 0), ["fp32", "bf16"], ["fp8", "nvfp4"]),
        ((7, 5), ["fp32", "fp16"], ["fp8", "nvfp4"]),
    ],
)
def test_a_gpu_measures_what_it_multiplies_and_names_the_rest(small, capability, formats, skipped):
    small(TorchBackend(stub(device="NVIDIA Test GPU", capability=capability, l2=2**18), "cuda"))
    run = live.format_gemms()
    assert by_shape(run) == {FIRST: formats, SECOND: formats} and {m.backend for m in run.measurements} == {"torch-cuda"}
    assert [s.operation for s in run.skipped] == 2 * [f"gemm {p}" for p in skipped]
    assert all("needs compute capability" in s.reason for s in run.skipped)


def test_what_is_no_faster_than_the_next_wider_format_is_suspect(small):
    alike = stub(device="NVIDIA Test GPU", capability=(10, 0), l2=2**18, floor=1e-4)  # every kernel takes as long
    small(TorchBackend(alike, "cuda"))
    formats = live.formats_of(live.format_gemms())[FIRST]
    assert {p: [f.split(" on ")[0] for f in m.flags] for p, m in formats.items()} == {
        "fp32": [], "bf16": ["suspect slower path: bf16 runs at 1 times the speed of fp32"],
        "fp8": ["suspect slower path: fp8 runs at 1 times the speed of bf16"],
        "nvfp4": ["suspect slower path: nvfp4 runs at 1 times the speed of fp8"],
    }  # fmt: skip


def test_formats_are_picked_by_shape_and_backend_whatever_else_a_run_holds(small):
    small(as_backend("numpy"))
    run = live.format_gemms()
    odd = dataclasses.replace(run.measurements[0], shape={"m": 3, "n": 96, "k": 64})
    other = [
        dataclasses.replace(m, backend="torch-cpu", software={**m.software, "torch": "2"}, precision="bf16")
        for m in run.measurements
    ]
    mixed = dataclasses.replace(run, measurements=(odd, *run.measurements[::-1], *other))
    assert live.formats_of(mixed) == live.formats_of(run)
    some = dataclasses.replace(run, measurements=tuple(m for m in run.measurements if m.shape["m"] == 2))
    assert by_shape(some) == {FIRST: ["fp64", "fp32"]}
    with pytest.raises(ValueError, match="run must hold GEMMs in several formats, got none on") as error:
        live.formats_of(dataclasses.replace(run, measurements=(odd,)))
    assert run.machine in str(error.value) and "record it again" in str(error.value)
    with pytest.raises(ValueError, match="run must hold GEMMs, got none of 0 measurements"):
        live.formats_of(dataclasses.replace(run, measurements=()))


def test_where_no_format_can_be_timed_the_reason_is_told(small, monkeypatch):
    small(as_backend("numpy"))
    monkeypatch.setattr(live, "measure_gemm", lambda *a, **k: Skipped(operation="gemm fp32", reason="out of memory"))
    with pytest.raises(RuntimeError, match="nothing could be timed: gemm fp32: skipped, out of memory"):
        live.format_gemms()
