"""The exercise checker: right answers in many forms, misconceptions by name, and nothing a learner types stops a notebook."""

import ast
import itertools
import json
import math
import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from conftest import ROOT

pytest.importorskip("IPython")
import hwdesign as hw
from hwdesign.advice import shapes
from hwdesign.formulas import quantization
from hwdesign.formulas.chunks import best_chunks, equal_time_chunks
from hwdesign.formulas.pipeline import idle_share, schedule
from hwdesign.formulas.quantization import encode
from hwdesign.formulas.roofline import amdahl_speedup
from hwdesign.formulas.routing import routed_tokens
from hwdesign.formulas.tiling import waves
from hwdesign.lessons import practice
from hwdesign.lessons.exercises import EXERCISES, Exercise
from hwdesign.lessons.studies.four_constants import gemm_terms, ideal_constants
from hwdesign.timing.silicon import measurements

SEEDS = (None, 0, 1, 2, 3, 7, 12, "student 31", np.int64(9))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
each = pytest.mark.parametrize("name", EXERCISES)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(practice, "_tries", {})
    monkeypatch.delenv("HWDESIGN_STATIC", raising=False)


def said(capsys, *args, **kwargs):
    """What a check displays in a terminal."""
    assert practice.check(*args, **kwargs) is None
    return capsys.readouterr().out.strip()


def values(task, answer, given):
    """An answer in the form that is compared: a list of numbers, or the option."""
    if isinstance(answer, str):
        return answer
    same = task.same or (lambda value, **_: value)
    return [same(value, **given) for value in np.atleast_1d(answer).astype(float)]


def test_printed_questions_have_the_published_answers():
    assert practice.answer("0.1") == pytest.approx((240, 184 / 8, 8e3 / 184, 24 * 1e3 / 184))
    assert practice.answer("0.2") == pytest.approx((8, 49, 49 / 15.35e-3 / 8))  # 0.15 ms a sequence
    assert practice.answer("0.3") == pytest.approx((1 / 0.61, 1 / 0.82, 1 / 0.73))
    assert practice.answer("0.4") == pytest.approx((1024 / (1 + 2 / 3), 2 / 3, 16 * 1024 / 32))  # 16 answers a second
    assert practice.answer("0.5") == pytest.approx((1112, 792, 16, 256), abs=0.5)
    assert practice.answer("1.1") == pytest.approx([989e12 / 3.35e12] * 3) and practice.answer("1.1b") == "none"
    a, c = (4 + 8 / 16) / 8, 2
    assert practice.answer("1.2") == pytest.approx(a / (2 * 8e12 / 15e15 - a / 7168 - c / 2048), rel=1e-9)
    assert practice.answer("1.4") == (4096, 4096)
    assert practice.answer("2.1") == pytest.approx((15 * 20, 3, 1800 * 5000 / (3 * 148 * 128 * 256)), rel=1e-9)
    assert practice.answer("2.2") == (25 * 16 * 128, 2 * (25 * 16 * 128 - 49954) * 4096)
    assert practice.answer("2.3") == (4, 0)  # 1856 = 4 x 29 x 16 = 14.5 x 128
    assert practice.answer("2.4") == 148 // 20 * 128 and practice.answer("2.5") == 10 * 8 * 128  # 15 x 10 tiles on 152 SMs
    assert practice.answer("3.1") == (4096, 2 * 32, 2 * 32 * 4096 * 2)
    assert practice.answer("3.2") == pytest.approx(6.4e9 * 0.5625 / 8e12 / 20e-6, rel=1e-9)
    assert practice.answer("3.3") == pytest.approx((3.9175e12, 2), rel=1e-3)
    assert practice.answer("3.4") == pytest.approx(1.805, rel=1e-3) and practice.answer("3.5") == 128
    assert practice.answer("4.1") == pytest.approx((40, 1.2)) and practice.answer("4.2") == pytest.approx((100 / 49, 4))
    assert practice.answer("4.3") == pytest.approx((375 / 0.4, 24))  # fs of the pass, fs a weight saves; 24 MB in 3 µs
    two_draws = math.sqrt((841 * 161 + 825 * 177) / 1002**3)  # 840 and 824 of 1000 are right, and one of two more
    assert practice.answer("4.4") == pytest.approx((196 * two_draws, 196 * math.sqrt(40) / 1000))  # 40 of 1000 flip
    assert practice.answer("4.5") == 4
    assert practice.answer("5.1") == pytest.approx((1979 / 4.8 / 2 * 48, 39))  # 206 rows, and an expert sees one token in 48
    experts = 32 * (1 - (31 / 32) ** 24)
    assert practice.answer("5.2") == pytest.approx((experts, experts * 3 * 7168 * 2048 * 0.5625 / 8e6))
    visited = 15 * (1 - math.comb(120, 8) / math.comb(128, 8))  # 15 others, each missed if all 8 experts lie on the rest
    a_token = visited * 4096 * 2.5625
    assert practice.answer("5.3") == pytest.approx((512 * a_token / 1e6, 46 * 660e3 / a_token))
    assert practice.answer("5.4") == pytest.approx((26 / 15, 16 / 15)) and practice.answer("5.5") == 16
    assert practice.answer("6.1") == pytest.approx((9.5, 3 / 19))  # 19 steps of half a second
    last = 15000 * (40e-6 + 1.5e-9 * 112500)  # on average its tokens see the 105,000 before it and half of its own
    begin = (math.sqrt(40e-6**2 + 3e-9 * 15.6 * 7 / 8) - 40e-6) / 1.5e-9
    assert practice.answer("6.2") == pytest.approx(((15.6 + 3 * last) / 4, 3.9 * 11 / 8, 120000 - begin))
    assert practice.answer("6.3") == (18, 47 + 11 * 18) and practice.answer("6.5") == (10, 60)
    assert practice.answer("6.4") == pytest.approx((280 * 16384 * 8192 / 1e9, 8 * 80 * 8192 * 8192 * 16 / 1.15e9))
    assert practice.answer("7.1") == pytest.approx((4, 48 * 2 * 128 * 2 * 262144 / 1e9))  # 16 GPUs, 4 heads
    a, b = 12 * math.exp(-2), 40 * math.exp(-3)
    assert practice.answer("7.2") == pytest.approx((80 + 30 * a + 12 * b) / (1 + a + b))
    sent = 64 * 32 * 264 * 3 / 4  # users, heads of a GPU, bytes of a head, what it does not keep
    assert practice.answer("7.3") == pytest.approx((sent / 1e3, 94 * (25 + sent / 50e3) / 1e3))
    assert practice.answer("7.4") == pytest.approx((240e6 / 192, 3 * 1048576 * 192 / 8e6 - 30))
    assert practice.answer("7.5") == (2, 4)
    assert practice.answer("8.1") == pytest.approx((2.25 / 5.106, (0.734 - 0.507) / 5.106)) and practice.answer("8.1b") == "ok"
    assert practice.answer("8.2") == (19 * 8 * 128, 10 * 8 * 256, (20480 - 18944) * 3 * 3584 * 28)
    assert practice.answer("8.3") == pytest.approx((0.8 * 0.89 * 0.92, 0.72, 0.1))
    assert practice.answer("8.4") == pytest.approx((56, 8, (56 + 8 * 128) / (52 + 10 * 128)))  # in windows of 1024 tokens


def test_80_percent_points_lie_where_the_published_rates_cross():
    grid, (k, n) = hw.gemm_grid("H200", "fp8", "sglang"), practice.answer("1.3")
    x = grid.n[(grid.n >= 128) & (grid.n <= 16384)]
    for point, seconds, other in ((k, grid.at(8192, 10240, x), 10240), (n, grid.at(8192, x, 8192), 8192)):
        share = (2 * 8192 * other * x / seconds) / np.median((2 * 8192 * other * x / seconds)[x >= 6144])
        first = np.flatnonzero(share >= 0.8)[0]
        part = math.log(point / x[first - 1]) / math.log(x[first] / x[first - 1])
        assert share[first - 1] + part * (share[first] - share[first - 1]) == pytest.approx(0.8)


def test_with_a_seed_the_answers_follow_other_numbers():
    assert {practice.answer("1.2", seed=seed) for seed in range(40)} > {math.inf}
    assert {practice.answer("1.1b", seed=seed) for seed in range(40)} == {"none", "some", "all"}
    for variant in EXERCISES["1.1"].variants:  # the text does not say whether the block is gated, and need not
        solve = EXERCISES["1.1b"].solve
        assert solve(**variant) == solve(**variant, gated=True)
        assert EXERCISES["1.1"].solve(**variant)[0] == pytest.approx(EXERCISES["1.1"].solve(**variant)[1])


def test_the_fastest_pair_is_ahead_by_more_than_the_noise():
    for given in EXERCISES["1.4"].variants:
        grid, area = hw.gemm_grid(given["device"], given["precision"], given["engine"]), 2 ** given["power"]
        for m, best in zip((8192, given["few"]), EXERCISES["1.4"].solve(**given), strict=True):
            narrow = [h for h in grid.n if area % h == 0 and area // h in grid.n and h * h <= area]
            seconds = {h: grid.at(m, area // h, h) + grid.at(m, h, area // h) for h in narrow}
            first, second = sorted(seconds, key=seconds.get)[:2]
            assert first == min(best, area // best) and seconds[second] > 1.015 * seconds[first]


def test_published_times_jump_where_the_waves_say():
    for given in EXERCISES["2.4"].variants:
        grid, sms = hw.gemm_grid(given["device"], "nvfp4", "trtllm"), hw.device(given["device"]).sms
        count = waves(grid.m, given["n"], tile_m=128, tile_n=256, sms=sms)
        fits, beyond = grid.m[count == given["rounds"]].max(), grid.m[count == given["rounds"] + 1].min()
        assert fits <= EXERCISES["2.4"].solve(**given) < beyond == grid.m[list(grid.m).index(fits) + 1]
        assert grid.at(beyond, given["n"], 8192) > 1.08 * grid.at(fits, given["n"], 8192)


def test_published_times_of_deep_and_wide():
    assert {EXERCISES["3.5"].solve(**given) for given in EXERCISES["3.5"].variants} == {32, 128, 512}
    for given in EXERCISES["3.5"].variants:
        grid, budget = hw.gemm_grid(given["device"], given["precision"], given["engine"]), given["milliseconds"] * 1e-3
        layer = {512: 1024, 128: 2048, 32: 4096}
        one = {n: sum(grid.at(given["m"], a * h, b * h) for a, b in ((3, 1), (1, 1), (4, 1), (1, 4))) for n, h in layer.items()}
        assert max(n for n in layer if n * one[n] <= budget) == EXERCISES["3.5"].solve(**given)
        assert max(one.values()) <= budget and all(abs(n * one[n] / budget - 1) > 0.08 for n in layer)
        value = EXERCISES["3.5"].mistakes[0](**given)  # a single layer or the bound: both say the deepest
        assert value == (None if EXERCISES["3.5"].solve(**given) == 512 else 512)
    for given in EXERCISES["3.4"].variants:  # the bounds of two models with the same weights differ by the activations alone
        bound = next(m(**given) for m in EXERCISES["3.4"].mistakes if m.__name__ == "_bound_alone")
        assert 1 <= bound < 1.05 < EXERCISES["3.4"].solve(**given)


def test_weights_that_came_faster_than_memory_fit_into_the_l2_cache():
    rows, d = measurements("gemm_versions", "H100_SXM"), hw.H100_SXM
    size = 2 * rows["n"] * rows["k"]
    fast = size / rows["seconds"] > d.memory_bandwidth
    assert fast.any() and (size[fast] < d.l2).all() and set(rows["version"][fast]) == {"0.5.6.post2"}


def test_blocks_by_hand():
    by_hand = {(13.44, 1.25): (40, 1.2), (13.44, 2.3): (80, 2.4), (5.376, 0.7): (60, 0.72), (26.88, 20): (320, 19.2),
               (2.688, 1.1): (176, 1.056), (67.2, 0.8): (5.5, 0.825), (40.32, 11): (120, 10.8),
               (1344, 0.009): (2**-8, 2**-7)}  # fmt: skip
    assert [tuple(given.values()) for given in EXERCISES["4.1"].variants] == list(by_hand)
    for given in EXERCISES["4.1"].variants:
        x = np.zeros((2, 16))
        x[:, 3] = given["largest"], -given["block"]
        stored = encode(x, "nvfp4")
        right = by_hand[tuple(given.values())]
        assert EXERCISES["4.1"].solve(**given) == pytest.approx(right)
        assert (stored.scales[1, 0], -quantization.decode(stored)[1, 3]) == pytest.approx(right)
        assert abs(right[1] / given["block"] - 1) > 0.015  # the number itself is another answer
    assert {value > block for (_, block), (_, value) in by_hand.items()} == {True, False}  # some are cut, some are not


def test_two_gains_are_one_after_the_other():
    for given in EXERCISES["4.2"].variants:
        share, other = given["products"] / 100, given["attention"] / 100
        for gain, right in zip((given["gain"], math.inf), EXERCISES["4.2"].solve(**given), strict=True):
            first = amdahl_speedup(share, gain)
            assert first * amdahl_speedup(other * first, given["cache_gain"]) == pytest.approx(right)


def test_the_pass_pays_from_this_width_on():
    for given in EXERCISES["4.3"].variants:
        d, (right, _), tokens = hw.device(given["device"]), EXERCISES["4.3"].solve(**given), 2**20
        for n, pays in ((math.floor(right), False), (math.ceil(right), True)):
            terms = {}
            for form in ("bf16", given["precision"]):
                ideal = replace(ideal_constants(d, form), quantize_bandwidth=d.memory_bandwidth)
                terms[form] = gemm_terms(tokens, n, tokens, form, ideal)
                math_alone = 2 * tokens * n * tokens / d.peak_flops(form)
                assert terms[form]["longer"] == pytest.approx(math_alone)  # compute-bound, as the question says
            bf16, narrow = (sum(term.values()) for term in terms.values())
            assert (narrow < bf16) == pays


def test_the_fixed_time_pays_from_this_many_weights_on():
    by_hand = {("GB300", "fp8"): 8 * 3, ("GB200", "nvfp4"): 8 * 1.5 / 1.4375, ("B200", "nvfp4"): 7.7 * 4 / 1.4375,
               ("B200", "mxfp4"): 7.7 * 0.8 / 1.46875, ("H200", "fp8"): 4.8 * 2.5, ("RTX_PRO_6000", "nvfp4"): 1.597 * 6 / 1.4375,
               ("MI300X", "fp8"): 5.3 * 5}  # fmt: skip
    assert len(EXERCISES["4.3"].variants) == len(by_hand)
    for given in EXERCISES["4.3"].variants:
        form, fixed, millions = given["precision"], given["microseconds"], EXERCISES["4.3"].solve(**given)[1]
        assert 0.8 <= fixed <= 6 and f"= {fixed:g}$ µs more" in EXERCISES["4.3"].text(**given)
        assert millions == pytest.approx(by_hand[given["device"], form])
        for factor, pays in ((0.99, False), (1.01, True)):
            rows = round(millions * 1e6 * factor / 4096)
            reading = {}
            for name in ("bf16", form):
                terms = gemm_terms(1, rows, 4096, name, ideal_constants(given["device"], name))
                weights = rows * 4096 * hw.precision(name).bytes / hw.device(given["device"]).memory_bandwidth
                reading[name] = terms["longer"]
                assert terms["longer"] == pytest.approx(weights, rel=0.002)  # the weights set the time, as the question says
            assert (reading[form] + fixed * 1e-6 < reading["bf16"]) == pays


def test_mistakes_of_4_3_by_hand():
    given = {"device": "GB200", "precision": "nvfp4", "microseconds": 1.5}  # 8 TB/s, 2.5 and 10 PFLOP/s, 12 MB in 1.5 µs
    found = {practice._words(mistake)[0]: mistake(**given) for mistake in EXERCISES["4.3"].mistakes}
    width, area = 2.5625 / 16e12 / (0.3 / 1e15), 12 / 1.4375  # 1 / 2.5 - 1 / 10 = 0.3
    by_hand = {"only read": (width * 2 / 2.5625, area), "only written": (width * 0.5625 / 2.5625, area),
               "twice": (2 * width, area), "narrow product free": (2.5625 / 16e12 * 2.5e15, area), "another format": (937.5, 12),
               "scales forgotten": (width * 2.5 / 2.5625, 8), "narrow bytes alone": (width, 12 / 0.5625),
               "divided by 2": (width, 6), "ratio for difference": (width, 12 / (2 / 0.5625)),
               "not in millions": (width, area * 1e6), "critical width": (10e15 / 8e12 * 0.5625 / 2, area)}  # fmt: skip
    assert EXERCISES["4.3"].solve(**given) == pytest.approx((width, area)) and set(found) == set(by_hand)
    for name, value in found.items():
        assert value == pytest.approx(by_hand[name]), name


MARGINS = {  # right answers before and after, of so many questions; how many flip
    (84, 82.4, 1000, 4): (840, 824, 40), (71, 66, 200, 9): (142, 132, 18), (62, 61, 500, 8): (310, 305, 40),
    (58, 60.8, 250, 12): (145, 152, 30), (90, 88.5, 4000, 3): (3600, 3540, 120), (80.5, 80.1, 12032, 6): (9686, 9638, 722),
    (76, 72.5, 1319, 7): (1002, 956, 92), (67.3, 66.4, 14042, 10): (9450, 9324, 1404),
}  # fmt: skip


def test_margins_by_hand():
    task, beyond = EXERCISES["4.4"], []
    assert [tuple(given.values()) for given in task.variants[:1]] == list(MARGINS)[:1] and len(task.variants) == len(MARGINS)
    for given in task.variants:
        n, (before, after, flips), right = given["questions"], MARGINS[tuple(given.values())], task.solve(**given)
        assert [before, after, flips] == pytest.approx([given[x] / 100 * n for x in ("before", "after", "flips")], abs=1)
        assert flips >= abs(before - after) and n >= 200
        added = sum((count + 1) * (n - count + 1) for count in (before, after)) / (n + 2) ** 3
        assert right == pytest.approx([196 * math.sqrt(added), 196 * math.sqrt(flips) / n], rel=0.003)
        bare = 196 * math.sqrt((before * (n - before) + after * (n - after)) / n**3)  # (4.8), nothing added
        pairs = 196 * math.sqrt(flips - (before - after) ** 2 / n) / n  # less the square of the change, as some books have it
        for answer in ((bare, right[1]), (right[0], pairs), [value * 2 / 1.96 for value in right]):
            assert practice._judge_numbers(task, given, answer, right).right
        beyond.append(tuple(abs(given["before"] - given["after"]) > margin for margin in right))
        text = task.text(**given)
        assert f"{given['flips']} % of them flip" in text and "few questions; here you may leave them out" in text
    assert beyond[0] == (False, True) and set(beyond) == {(False, False), (False, True), (True, True)}


def test_half_the_flips_go_each_way_without_a_loss():
    given = EXERCISES["4.4"].variants[0]
    n, flips, rng = given["questions"], given["flips"] / 100, np.random.default_rng(1)
    lost, won, _ = rng.multinomial(n, (flips / 2, flips / 2, 1 - flips), 100_000).T
    draws = rng.binomial(n, 0.832, (2, 100_000))
    for difference, margin in zip((draws[0] - draws[1], won - lost), EXERCISES["4.4"].solve(**given), strict=True):
        assert (abs(difference) / n * 100 < margin).mean() == pytest.approx(0.95, abs=0.005)


def test_mistakes_of_4_4_by_hand():
    task = EXERCISES["4.4"]
    given = task.variants[0]  # 84 and 82.4 %, 1000 questions, 4 % flips: 0.367 x 0.367 = 0.1344 and 0.381 x 0.381 = 0.1450
    found = {practice._words(mistake)[0]: mistake(**given) for mistake in task.mistakes}
    by_hand = {"one standard deviation": (1.672, 0.632), "half": (1.639, 0.620), "full width": (6.556, 2.479),
               "one score alone": (2.274, 1.240), "margins added": (4.635, 1.240), "n outside the root": (0.1037, 0.0392),
               "as shares": (0.0328, 0.0124), "flips in per cent": (3.278, 12.40), "root of per cent": (3.278, 0.1240),
               "flips twice": (3.278, 1.753), "change for flips": (3.278, 0.784), "difference itself": (1.6, 1.6),
               "margins exchanged": (1.240, 3.278)}  # fmt: skip
    assert set(found) == set(by_hand)
    for name, value in found.items():
        assert value == pytest.approx(by_hand[name], rel=0.002), name


def test_questions_of_chapter_4_say_what_is_meant():
    for given in EXERCISES["4.1"].variants:
        assert "Use the scales of part 2 (448 and 6)." in EXERCISES["4.1"].text(**given)
    for given in EXERCISES["4.2"].variants:
        assert EXERCISES["4.2"].text(**given).endswith("if the products took no time at all and attention keeps its FP8 cache?")
    for given in EXERCISES["4.3"].variants:
        text = EXERCISES["4.3"].text(**given)
        assert text.index("(a) Beyond which output width") < text.index("(b) At few tokens")
        assert text.endswith("Answer (a) first, then (b).")
    for given in EXERCISES["4.5"].variants:
        text = EXERCISES["4.5"].text(**given)
        call = f'hw.gemm_grid("GB300", "nvfp4", "{given["engine"]}").at({given["m"]}, n, k)'
        assert f"`{call}`" in text and "its own shard" in text and "sum of the four times" in text
        assert eval(call, {"hw": hw, "n": given["hidden"], "k": given["hidden"]}) > 0
        stated, h = re.findall(r"\(\$N = (\d?)H(/t)?\$, \$K = (\d?)H(/t)?\$\)", text), given["hidden"]
        for t in (1, 2, 4, 8):
            sizes = [[int(a or 1) * h // (t if split else 1) for a, split in (x[:2], x[2:])] for x in stated]
            assert sizes == [[3 * h // t, h], [h, h // t], [4 * h // t, h], [h, 4 * h // t]]


def test_published_speeds_of_a_layer_that_is_split():
    published = {("trtllm", 4096, 8192): (2.31, 2.08, 1.55, 1.05), ("sglang", 4096, 8192): (3.00, 2.72, 2.34, 1.85),
                 ("sglang", 4096, 1): (2.09, 1.56, 1.31, 0.92), ("sglang", 4096, 256): (2.06, 1.61, 1.21, 1.07),
                 ("sglang", 4096, 4096): (2.86, 2.63, 2.14, 1.85), ("sglang", 2048, 8192): (2.27, 1.92, 1.57, 1.21),
                 ("trtllm", 4096, 1024): (1.65, 1.27, 0.97, 0.67), ("trtllm", 2048, 8192): (1.50, 1.08, 0.84, 0.58)}  # fmt: skip
    assert {EXERCISES["4.5"].solve(**given) for given in EXERCISES["4.5"].variants} == {1, 2, 4, 8}
    for given in EXERCISES["4.5"].variants:
        engine, h, m, wanted = given.values()
        speeds = published[engine, h, m]
        grids = [hw.gemm_grid("GB300", form, engine) for form in ("bf16", "nvfp4")]
        for t, speed in zip((1, 2, 4, 8), speeds, strict=True):
            shards = (3 * h // t, h), (h, h // t), (4 * h // t, h), (h, 4 * h // t)
            bf16, nvfp4 = (sum(grid.at(m, *shard) for shard in shards) for grid in grids)
            assert bf16 / nvfp4 == pytest.approx(speed, abs=0.006) and abs(speed / wanted - 1) > 0.04
        assert list(speeds) == sorted(speeds, reverse=True)
        assert EXERCISES["4.5"].solve(**given) == 2.0 ** (sum(speed > wanted for speed in speeds) - 1)
        value = EXERCISES["4.5"].mistakes[0](**given)  # the bound and a whole matrix on each GPU: both say the most
        assert speeds[0] > wanted and value == (None if EXERCISES["4.5"].solve(**given) == 8 else 8)


GROUPS = {  # experts, of them used by a token: peak [PFLOP/s], memory [TB/s], bytes of a weight, and the GPUs by hand
    (384, 8): (1.979, 4.8, 1, 39), (128, 8): (15, 8, 0.5625, 44), (128, 4): (10, 8, 0.5625, 38), (64, 6): (4.5, 7.7, 1, 25),
    (256, 8): (5, 8, 1, 32), (512, 10): (1.979, 3.35, 1, 40), (160, 6): (2.6149, 5.3, 1, 42),
}  # fmt: skip


def test_groups_by_hand():
    task = EXERCISES["5.1"]
    assert len(task.variants) == len(GROUPS)
    for given in task.variants:
        peak, memory, size, gpus = GROUPS[given["experts"], given["top_k"]]
        tokens = peak / memory * 1e3 * size / 2 * given["experts"] / given["top_k"]
        assert task.solve(**given) == pytest.approx((tokens, gpus))
        assert (gpus - 1) * given["sequences"] < tokens <= gpus * given["sequences"] and 1 / gpus > 2 * task.tolerance
        text = task.text(**given)
        assert f"{given['top_k']} of {given['experts']} experts" in text and text.endswith("Answer (a) first, then (b).")
        for math_limits, group in ((False, gpus - 1), (True, gpus)):  # what one GPU has to do, counted another way
            one = hw.Experts(tokens=1.0, pairs=given["sequences"] * given["top_k"], touched=given["experts"] / group, local=1,
                             hidden=64, width=64)  # fmt: skip
            d = hw.device(given["device"])
            reading = one.elements * size / d.memory_bandwidth
            assert bool(one.flops / d.peak_flops(given["precision"]) >= reading) is math_limits


def test_experts_that_a_gpu_reads_drawn_at_random():
    task = EXERCISES["5.2"]
    sizes = {"nvfp4": 0.5625, "fp8": 1, "mxfp4": 0.53125}
    speed = {"GB300": 8, "H200": 4.8, "B200": 7.7, "GB200": 8, "H100_SXM": 3.35}
    for given in task.variants:
        drawn = routed_tokens(given["tokens"], given["top_k"], given["experts"], draws=2000, seed=1) > 0
        experts, time = task.solve(**given)
        assert drawn.sum(axis=1).mean() / given["gpus"] == pytest.approx(experts, rel=0.01)
        each = 3 * given["hidden"] * given["width"] * sizes[given["precision"]] / 1e6
        assert time == pytest.approx(experts * each / speed[given["device"]])
        if given["tokens"] * given["top_k"] < given["experts"]:
            assert experts < given["tokens"] * given["top_k"] / given["gpus"]


def test_exchanges_drawn_at_random():
    task, sizes = EXERCISES["5.3"], {"nvfp4": 0.5625, "fp8": 1}
    for given in task.variants:
        rng, gpus = np.random.default_rng(2), given["gpus"]
        experts = np.argsort(rng.random((20_000, given["experts"])), axis=1)[:, : given["top_k"]]
        home = rng.integers(gpus, size=(20_000, 1))
        visits = np.zeros((20_000, gpus), bool)
        np.put_along_axis(visits, experts // (given["experts"] // gpus), True, axis=1)
        np.put_along_axis(visits, home, False, axis=1)
        a_token = visits.sum(axis=1).mean() * given["hidden"] * (sizes[given["precision"]] + 2)
        megabytes, tokens = task.solve(**given)
        assert megabytes == pytest.approx(given["tokens"] * a_token / 1e6, rel=0.01)
        assert tokens == pytest.approx(given["floor"] * given["rate"] * 1e3 / a_token, rel=0.01)
        assert megabytes / given["tokens"] * tokens == pytest.approx(given["floor"] * given["rate"] / 1e3)  # MB in the floor


BALANCED = {  # fullest in order, fullest by the two rules, mean
    (5, 1, 18, 8, 4, 9): (26, 16, 15), (1, 3, 15, 3, 8, 1): (18, 11, 31 / 3), (24, 4, 18, 1, 5, 5): (28, 20, 19),
    (2, 9, 16, 2, 9, 24): (33, 24, 62 / 3), (6, 20, 1, 1, 1, 8): (27, 20, 18.5), (8, 18, 1, 1, 8, 6): (26, 16, 14),
    (3, 6, 16, 3, 24, 18, 5, 5): (42, 21, 20), (5, 6, 1, 3, 4, 15, 8, 9): (19, 13.5, 12.75),
}  # fmt: skip


def all_ends(loads, gpus, slots):
    """Ratios that the two rules can end with, whichever way a tie is broken."""
    counts = {(1,) * len(loads)}
    for _ in range(slots - len(loads)):
        most = {count: max(np.divide(loads, count)) for count in counts}
        counts = {(*c[:i], c[i] + 1, *c[i + 1 :]) for c in counts for i in range(len(loads)) if loads[i] / c[i] == most[c]}
    ends = set()
    for count in counts:
        states = {((0.0, 0),) * gpus}
        for x in sorted(np.repeat(np.divide(loads, count), count).tolist(), reverse=True):
            grown = set()
            for state in states:
                least = min(load for load, held in state if held < slots // gpus)
                for load, held in {(load, held) for load, held in state if held < slots // gpus and load == least}:
                    rest = list(state)
                    rest.remove((load, held))
                    grown.add(tuple(sorted([*rest, (load + x, held + 1)])))
            states = grown
        ends |= {round(max(load for load, _ in state) * gpus / sum(loads), 9) for state in states}
    return ends


def test_balance_by_hand_whichever_way_ties_are_broken():
    task = EXERCISES["5.4"]
    assert [given["loads"] for given in task.variants] == list(BALANCED)
    for given in task.variants:
        first, then, mean = BALANCED[given["loads"]]
        assert sum(given["loads"]) / given["gpus"] == pytest.approx(mean)
        assert task.solve(**given) == pytest.approx((first / mean, then / mean)) and then > 1.02 * mean
        assert list(all_ends(**given)) == pytest.approx([then / mean])
        assert ", ".join(map(str, given["loads"][:-1])) + f" and {given['loads'][-1]}" in task.text(**given)


def test_mistakes_of_5_4_by_hand():
    given = EXERCISES["5.4"].variants[0]  # 5, 1, 18, 8, 4 and 9: 6, 26 and 13 in order; copies 8, 6, 6, 6, 5, 4.5, 4.5, 4, 1
    found = {practice._words(mistake)[0]: mistake(**given) for mistake in EXERCISES["5.4"].mistakes}
    by_hand = {"excess": (11 / 15, 1 / 15), "mean over fullest": (15 / 26, 15 / 16), "fullest over emptiest": (26 / 6, 16 / 13.5),
               "fullest alone": (26, 16), "of the slots": (18 / 7.5, 8 / 5), "packed without copies": (26 / 15, 19 / 15),
               "all copies of one": (26 / 15, 16.5 / 15),  # 9, 8, 5 and 4.5 four times: 9 + 4.5 + 1, 8 + 4.5 + 4, 4.5 + 4.5 + 5
               "one copy each": (26 / 15, 17 / 15),  # 9, 9, 5, 4.5, 4.5, 4, 4, 4, 1: 9 + 4 + 4 is the fullest
               "dealt in turn": (26 / 15, 18.5 / 15)}  # fmt: skip
    assert set(found) == set(by_hand)
    for name, value in found.items():
        assert value == pytest.approx(by_hand[name]), name


RATES = {  # tokens/s of a GPU at most within the limit, in groups of 4 to 64
    ("deepseek-r1", "GB300", 8192, 20): (558, 2008, 3264, 3764, 3901),
    ("deepseek-r1", "GB300", 2048, 15): (277, 403, 2406, 3810, 4148),
    ("deepseek-r1", "GB300", 4096, 12): (93, 90, 88, 167, 417),
    ("deepseek-r1", "GB300", 4096, 30): (4571, 7446, 8381, 8555, 8451),
    ("qwen3-235b-a22b", "GB300", 4096, 14): (716, 1651, 1867, 1791, 1573),
    ("deepseek-r1", "GB200", 16384, 60): (3051, 4093, 4423, 4451, 4429),
    ("qwen3-235b-a22b", "GB300", 8192, 20): (1987, 2504, 2606, 2511, 2352),
}  # fmt: skip


def test_groups_that_meet_a_limit_are_far_from_a_tie():
    task = EXERCISES["5.5"]
    assert {task.solve(**given) for given in task.variants} == {4, 8, 16, 32, 64}
    for given in task.variants:
        *case, wanted = given.values()
        model, device, context, limit = case
        call = re.search(r"`(hw\.decode_step\(.*?\))` gives", task.text(**given))[1]
        names = {"hw": hw, "Plan": hw.Plan, "model": hw.Model.from_config(model), "c": np.arange(1, 3001)}
        found = []
        for group in (4, 8, 16, 32, 64):
            step = eval(call, names | {"G": group})
            good = [i for i in range(3000) if step.seconds[i] <= limit / 1e3 and step.feasible[i]]
            found.append(max((i + 1) / float(step.seconds[i]) for i in good))
            assert 0 < len(good) < 3000  # more sequences than that are too slow or do not fit
        assert found == pytest.approx(RATES[tuple(case)], abs=1)
        assert all(abs(rate / wanted - 1) > 0.05 for rate in found)
        assert task.solve(**given) == next(g for g, rate in zip((4, 8, 16, 32, 64), found, strict=True) if rate > wanted)
        smallest = task.solve
        ways = ({"ideal": True}, {"milliseconds": np.inf}, {"wanted": 0.1})  # what one of the mistakes stands for
        assert {smallest(**given | way) for way in ways} <= {4, smallest(**given)}
    assert task.mistakes[0](**task.variants[5]) == 4  # here memory decides


def test_questions_of_chapter_5_say_what_is_meant():
    for name in ("5.1", "5.2", "5.3", "5.4"):
        for given in EXERCISES[name].variants:
            text = EXERCISES[name].text(**given)
            assert text.index("(a)") < text.index("(b)") and text.endswith("Answer (a) first, then (b).")
    for given in EXERCISES["5.2"].variants:
        text = EXERCISES["5.2"].text(**given)
        assert f"{given['tokens']} tokens in all" in text and ("scales included" in text) == (given["precision"] != "fp8")
    for given in EXERCISES["5.5"].variants:
        text = EXERCISES["5.5"].text(**given)
        assert f"at most {given['milliseconds']} ms" in text and f"at least {given['wanted']} tokens/s" in text


def simulated(times, **options):
    """Time until the last chunk has left the last stage."""
    return schedule(times, **options)[1][-1, -1]


def test_equal_chunks_simulated():
    task = EXERCISES["6.1"]
    for given in task.variants:
        stages, chunks, seconds = given.values()
        each = np.full((chunks, stages), seconds / stages / chunks)
        assert task.solve(**given) == pytest.approx((simulated(each), idle_share(each)))
        assert stages > 2 and chunks + stages < 40  # one step more or less is told from the answer


def test_growing_chunks_token_by_token():
    task = EXERCISES["6.2"]
    for given in task.variants:
        micro, nano, tokens, chunks, stages = given.values()
        run = np.append(0.0, (micro * 1e-6 + nano * 1e-9 * (np.arange(tokens) + 0.5)).cumsum())
        found, shares = [], np.linspace(0, 1, chunks + 1)
        for ends in (tokens * shares, np.interp(run[-1] * shares, run, np.arange(tokens + 1))):
            times = np.diff(np.interp(ends, np.arange(tokens + 1), run))
            found.append(simulated(np.tile(times[:, None] / stages, stages)))
        equal, even, last = task.solve(**given)
        assert (equal, even) == pytest.approx(found) and last == pytest.approx(tokens - ends[-2], rel=1e-5)
        assert abs(last - equal_time_chunks(tokens, chunks, micro * 1e-6, nano * 1e-9)[-1]) <= 1


SPLIT = {  # layers of the stages by hand, and the slowest [ms]
    (6, 6, 8, 3, 6, 3, 6, 3, 3, 3): ((2, 3, 5), 18), (2, 2, 4, 7, 7, 2, 2, 7, 2): ((3, 2, 4), 14),
    (4, 4, 7, 7, 1, 1, 4, 7, 1, 4): ((3, 4, 3), 15), (9, 9, 4, 2, 2, 2, 2, 4): ((1, 2, 5), 13),
    (7, 5, 5, 3, 7, 3, 5, 5, 3): ((2, 3, 4), 16), (2, 2, 8, 2, 2, 3, 8, 8): ((4, 3, 1), 14),
    (8, 8, 2, 2, 2, 2, 8, 2, 1): ((1, 4, 4), 14),
}  # fmt: skip


def test_splits_by_hand():
    task = EXERCISES["6.3"]
    assert [given["costs"] for given in task.variants] == list(SPLIT)
    for given in task.variants:
        costs, chunks = given.values()
        split, slowest = SPLIT[costs]
        times = {}
        for i, j in itertools.combinations(range(1, len(costs)), 2):
            stages = [sum(costs[:i]), sum(costs[i:j]), sum(costs[j:])]
            times[i, j - i, len(costs) - j] = max(stages), simulated(np.tile(np.array(stages, float), (chunks, 1)))
        assert times[split] == min(times.values()) == task.solve(**given) and times[split][0] == slowest
        assert sum(time == times[split] for time in times.values()) == 1  # no other split is as good
        assert ", ".join(map(str, costs[:-1])) + f" and {costs[-1]} ms" in task.text(**given)


def test_mistakes_of_6_3_by_hand():
    given = EXERCISES["6.3"].variants[0]  # 47 ms in all: 12, 17 and 18
    found = {practice._words(mistake)[0]: mistake(**given) for mistake in EXERCISES["6.3"].mistakes}
    slowest = {"equal counts": 6 + 6 + 8 + 3, "filled up to the mean": 3 + 6 + 3 + 6 + 3 + 3, "mean for slowest": 47 / 3,
               "filled beyond the mean": 6 + 6 + 8, "layers in any order": 8 + 6 + 3}  # fmt: skip
    by_hand = {name: (x, 47 + 11 * x) for name, x in slowest.items()}
    by_hand |= {"slowest everywhere": (18, 14 * 18), "other stages left out": (18, 12 * 18), "one beat too many": (18, 263),
                "one after the other": (18, 12 * 47)}  # fmt: skip
    assert set(found) == set(by_hand)
    for name, value in found.items():
        assert value == pytest.approx(by_hand[name]), name


def test_both_ways_are_equally_fast_on_that_link():
    task = EXERCISES["6.4"]
    for given in task.variants:
        layers, hidden, gpus, tokens, chunks, milliseconds = given.values()
        sent, rate = task.solve(**given)
        seconds = milliseconds * 1e-3 / gpus
        pipeline = np.full((chunks, gpus), seconds / chunks)
        assert seconds + sent / rate == pytest.approx(simulated(pipeline))
        handed = 2 * hidden * tokens / chunks / (rate * 1e9)
        assert simulated(pipeline, send=handed) - simulated(pipeline) < 0.01 * sent / rate  # what the question leaves out
        assert rate == pytest.approx(8 * layers * hidden * tokens * chunks / milliseconds / 1e6)  # the GPUs cancel
        assert task.solve(**given | {"gpus": 2 * gpus})[1] == pytest.approx(rate)


def test_pipelines_that_meet_a_limit():
    task = EXERCISES["6.5"]
    for given in task.variants:
        layers, work, fixed, limit = given.values()
        n = np.arange(1, 1001)
        waits = {p: (work + n * fixed * 1e-3) / p * (1 + (p - 1) / n) for p in range(1, layers + 1) if layers % p == 0}
        stages = next(p for p, wait in waits.items() if wait.min() <= limit)
        assert task.solve(**given) == (stages, n[waits[stages].argmin()]) and n[-1] > n[waits[stages].argmin()]
        assert all(abs(wait.min() / limit - 1) > 0.05 for wait in waits.values())
        chunks = int(task.solve(**given)[1])
        assert simulated(np.full((chunks, stages), (work / chunks + fixed * 1e-3) / stages)) == pytest.approx(waits[stages].min())
        assert chunks == pytest.approx(best_chunks(work, fixed * 1e-3, stages), abs=1)
    found = {practice._words(mistake)[0]: mistake(**task.variants[0]) for mistake in task.mistakes}
    assert found["work alone"] == (6, 45) and found["uneven stages"] == (8, 53) and found["fewest chunks"] == (10, 15)
    assert EXERCISES["6.5"].solve(**task.variants[-1])[0] == 61  # a prime number of layers


def test_questions_of_chapter_6_say_what_is_meant():
    for name in ("6.1", "6.3", "6.4", "6.5"):
        for given in EXERCISES[name].variants:
            text = EXERCISES[name].text(**given)
            assert text.index("(a)") < text.index("(b)") and text.endswith("Answer (a) first, then (b).")
    for given in EXERCISES["6.2"].variants:
        assert EXERCISES["6.2"].text(**given).endswith("Answer (a), (b) and (c) in this order.")
    for name in ("6.1", "6.2", "6.3", "6.5"):
        assert "anding " in EXERCISES[name].text(**EXERCISES[name].variants[0])  # a chunk is handed over in no time


def test_logs_token_by_token():
    task, kinds = EXERCISES["0.1"], set()
    for given in task.variants:
        request, times, prompt, users, gpus = given.values()
        gaps = [b - a for a, b in itertools.pairwise(times)]
        first, itl, user, gpu = task.solve(**given)
        assert sorted(times) == list(times) and request < times[0] and first == times[0] - request
        assert first + (len(times) - 1) * itl == pytest.approx(times[-1] - request)  # (0.1)
        assert itl == pytest.approx(sum(gaps) / len(gaps)) and user * itl == pytest.approx(1e3)
        assert gpu * gpus == pytest.approx(user * users)
        assert itl > 1.15 * sorted(gaps)[len(gaps) // 2]  # a long gap is in it
        double = min(gaps) == 0
        assert ("(one step made two of them)" in task.text(**given)) == double and gaps.count(0) <= 1
        assert f"{times[-2]} and {times[-1]} ms" in task.text(**given)
        kinds.add(double)
    assert kinds == {True, False}


def test_a_promise_on_the_line_by_trying_all_batches():
    task = EXERCISES["0.2"]
    for given in task.variants:
        gpus, few, first, many, second, speed = given.values()
        constant, batch, rate = task.solve(**given)
        slope = (first - constant) / few
        steps = {n: constant + n * slope for n in range(1, 1000)}
        assert steps[many] == pytest.approx(second)
        assert batch == max(n for n, step in steps.items() if step * speed <= 1e3) and few < batch < min(many, 60)
        assert rate == pytest.approx(1e3 * batch / steps[int(batch)] / gpus)
        at_promise = (1 - constant * speed / 1e3) * 1e3 / slope / gpus  # (0.4): parts of a sequence count
        assert practice._judge_numbers(task, given, (constant, batch, at_promise), task.solve(**given)).right


def test_two_offers_part_by_part():
    task, better = EXERCISES["0.3"], set()
    for given in task.variants:
        attention, fixed, other_attention, other_fixed, gain, fixed_gain = given.values()
        found = []
        for a, b, ways in ((attention, fixed, 2), (other_attention, other_fixed, 3)):
            times = [a / gain + b, a + b / fixed_gain, a / gain + b / fixed_gain]
            found.append([100 / (100 - a - b + time) for time in times[:ways]])
            assert a + b <= 100
        assert task.solve(**given) == pytest.approx((max(found[0]), max(found[1][:2]), found[1][2]))
        choice = found[0][0] > found[0][1]
        assert choice != (found[1][0] > found[1][1])  # each offer is the better one somewhere
        better.add(choice)
    assert better == {True, False}


def test_pools_that_match_and_racks_of_whole_workers():
    task = EXERCISES["0.4"]
    for given in task.variants:
        prefill, prompts, decode, tokens, answer, rack = given.values()
        total, ratio, whole = task.solve(**given)
        p = 1000.0  # prefill GPUs
        d = p / ratio
        begun, ended = p / prefill * prompts, d / decode * tokens / answer  # prompts and answers a second
        assert begun == pytest.approx(ended) and total == pytest.approx(ended * answer / (p + d))
        made = []
        for p, d in itertools.product(range(1, rack), repeat=2):
            if p * prefill + d * decode <= rack:
                made.append(min(p * prompts * answer, d * tokens))
        assert whole == pytest.approx(max(made) / rack) and whole < 0.97 * total
        assert f"of {prefill} GPU{'s' * (prefill > 1)} takes {prompts:g} prompts" in task.text(**given)
    assert EXERCISES["0.4"].solve(**task.variants[0] | {"rack": 40})[2] == pytest.approx(practice.answer("0.4")[0])


LANDSCAPE = {  # rates of the best at the lower promise, if memory were no limit, and at the higher; its GPUs and batch
    ("qwen3-235b-a22b", 32768): (1112, 1362, 792, 16, 256), ("llama-3.1-70b", 8192): (927, 1061, 557, 8, 64),
    ("phi-4", 8192): (1249, 1387, 1089, 8, 128), ("phi-4", 32768): (347, 371, 241, 16, 32),
    ("gpt-oss-120b", 32768): (2464, 2699, 1963, 16, 512), ("qwen2.5-72b", 8192): (924, 1057, 764, 8, 128),
}  # fmt: skip


def test_candidates_are_far_from_a_tie():
    task = EXERCISES["0.5"]
    assert [(given["model"], given["prompt"]) for given in task.variants] == list(LANDSCAPE)
    for given in task.variants:
        text, low, high = task.text(**given), given["low"], given["high"]
        call = re.search(r"`c = (hw\.decode_candidates\(.*?\))` has", text)[1]
        c = eval(call, {"hw": hw, "np": np, "model": hw.Model.from_config(given["model"])})
        rows = list(zip(*(c[n].tolist() for n in ("user_rate", "gpu_rate", "fits", "gpus", "batch")), strict=True))
        first = max((row for row in rows if row[2] and row[0] >= low), key=lambda row: row[1])
        second = max((row for row in rows if row[2] and row[0] >= high), key=lambda row: row[1])
        wish = max(row[1] for row in rows if row[0] >= low)
        assert (round(first[1]), round(wish), round(second[1]), *second[3:]) == LANDSCAPE[given["model"], given["prompt"]]
        assert task.solve(**given) == pytest.approx((first[1], second[1], *second[3:]))
        for (user, gpu, *_), promise in ((first, low), (second, high)):
            assert user > 1.03 * promise
            assert not any(row[2] and row[1] > gpu and row[0] > 0.97 * promise for row in rows)
        others = [row[1] for row in rows if row[2] and row[0] >= high and row[3:] != second[3:]]
        assert max(others) < 0.98 * second[1] and wish > 1.04 * first[1]
        assert max(row[1] for row in rows if row[2]) == first[1]  # memory decides at the lower promise
        assert f"`model = hw.Model.from_config(\"{given['model']}\")`" in text


def test_mistakes_of_chapter_0_by_hand():
    by_hand = {
        "0.1": {"median for mean": (240, 12, 83.33, 250), "as many gaps as tokens": (240, 184 / 9, 48.91, 146.7),
                "wait counted": (240, 424 / 9, 21.23, 63.68), "steps for tokens": (240, 184 / 7, 38.04, 114.1),
                "time of the clock": (5340, 23, 43.48, 130.4), "prompt counted": (240, 23, 43.48, 130.435 * 209 / 9),
                "gpus forgotten": (240, 23, 43.48, 1043), "users forgotten": (240, 23, 43.48, 43.478 / 8),
                "all for one user": (240, 23, 1043.5, 130.4)},
        "0.2": {"through the origin": (0, 58, 72e3 / 18.8 / 8), "first point for t0": (9.2, 41, 41 / 15.35 / 8e-3),
                "weights for free": (8, 102, 1e3 / 0.15 / 8), "one too many": (8, 50, 50 / 15.5 / 8e-3),
                "end of the line": (8, 49, 1e3 / 0.15 / 8), "rate on a straight line": (8, 58, 58 * 65 / 8),
                "of each gpu": (8, 49 / 8, 399), "rate of all gpus": (8, 49, 49 / 15.35e-3)},
        "0.3": {"speeds averaged": (1.78, 1.72, 1.9), "the other offer": (1 / 0.9325, 1 / 0.91, 1 / 0.73),
                "same offer twice": (1 / 0.61, 1 / 0.91, 1 / 0.73), "part gone": (1 / 0.22, 1 / 0.76, 1 / 0.58),
                "left for saved": (1 / 0.61, 1 / 0.91, 1 / 0.85), "time left": (0.61, 0.82, 0.73),
                "time saved": (0.39, 0.18, 0.27), "gains multiplied": (1 / 0.61, 1 / 0.82, 1 / 0.82 / 0.91),
                "gains added": (1 / 0.61, 1 / 0.82, 1 / 0.82 + 1 / 0.91 - 1)},
        "0.4": {"decode gpus alone": (1024, 2 / 3, 1024), "upside down": (614.4, 1.5, 512), "share for ratio": (614.4, 0.4, 512),
                "workers for gpus": (614.4, 4 / 3, 512), "prefill worker for gpu": (1024 / (1 + 1 / 6), 1 / 6, 512),
                "prompt for each token": (1 / (1 / 1024 + 2 / 3), 1024 * 2 / 3, 512), "mean of the pools": (1280, 2 / 3, 512),
                "parts of workers": (614.4, 2 / 3, 614.4), "idle left out": (614.4, 2 / 3, 16384 / 28)},
        "0.5": {"fits forgotten": (1361.6, 792.48, 16, 256), "fastest user": (8.788, 8.788, 16, 1),
                "promise forgotten": (1111.7, 1111.7, 16, 512), "largest worker": None,  # the best is the largest
                "rate of the worker": (17788, 12680, 16, 256), "promise for rate": (20 * 512 / 16, 48 * 256 / 16, 16, 256),
                "rate of a user": (34.74, 49.53, 16, 256)},
    }  # fmt: skip
    for name, right in by_hand.items():
        given = EXERCISES[name].variants[0]
        found = {practice._words(mistake)[0]: mistake(**given) for mistake in EXERCISES[name].mistakes}
        assert set(found) == set(right)
        for label, value in found.items():
            assert (value is None) == (right[label] is None), label
            assert value is None or value == pytest.approx(right[label], rel=5e-4), label


def test_each_mistake_of_chapter_0_can_be_made_with_some_numbers():
    for task in (EXERCISES[f"0.{i}"] for i in range(1, 6)):
        for mistake in task.mistakes:
            assert sum(mistake(**given) is not None for given in task.variants) >= 3, mistake


def test_questions_of_chapter_0_say_what_is_meant():
    for name in ("0.1", "0.2", "0.3", "0.4", "0.5"):
        for given in EXERCISES[name].variants:
            text, letters = EXERCISES[name].text(**given), "abcd"[: len(EXERCISES[name].parts)]
            assert [text.index(f"({letter})") for letter in letters] == sorted(text.index(f"({letter})") for letter in letters)
            assert text.endswith("in this order.") and "(e)" not in text
    assert "output tokens/s" in EXERCISES["0.1"].text(**EXERCISES["0.1"].variants[0])
    assert "idle ones counted" in EXERCISES["0.4"].text(**EXERCISES["0.4"].variants[0])


def test_copies_head_by_head():
    task, sizes = EXERCISES["7.1"], {"bf16": 2, "fp8": 1}
    for given in task.variants:
        layers, heads, kv_heads, size, ways, tokens, form = given.values()
        group, share = heads // max(kv_heads, 1), heads // ways
        needed = [{query // group for query in range(gpu * share, (gpu + 1) * share)} for gpu in range(ways)]
        holders = {sum(head in kept for kept in needed) for head in range(max(kv_heads, 1))}
        (held,) = {len(kept) for kept in needed}  # all GPUs keep equally many
        a_head = size * (2 if kv_heads else 1) * sizes[form] * layers * tokens
        copies, cache = task.solve(**given)
        assert holders == {copies} and cache == pytest.approx(held * a_head / 1e9)
        assert copies == ways * held / max(kv_heads, 1) and heads % ways == 0
        text = task.text(**given)
        assert ("latent" in text) == (kv_heads == 0) and f"({sizes[form]} byte" in text
    assert {EXERCISES["7.1"].solve(**given)[0] for given in task.variants} >= {1, 4, 8, 16}
    for name, variant in (("qwen3-30b-a3b", 0), ("qwen3-235b-a22b", 1), ("deepseek-r1", 2), ("llama-3.1-70b", 3)):
        given, model = task.variants[variant], hw.Model.from_config(name)
        published = model.kv_bytes_per_gpu(given["tokens"], given["ways"], given["form"])
        assert task.solve(**given)[1] == pytest.approx(published / 1e9)


def test_merges_are_the_softmax_over_all_tokens():
    task = EXERCISES["7.2"]
    for given in task.variants:
        scores, values, plain = [], [], True
        for top, total, output in given["pieces"]:  # as many tokens with equal scores
            scores += [float(top)] * total
            values += [output] * total
            plain &= (total == 0) == math.isinf(top) and total == int(total)
        weights = [math.exp(score) for score in scores]
        right = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
        assert plain and task.solve(**given) == pytest.approx(right)
        assert task.solve(pieces=given["pieces"][::-1]) == pytest.approx(right)
        assert ("sees no token" in task.text(**given)) == (0 in [total for _, total, _ in given["pieces"]])
    assert any(math.isinf(top) for given in task.variants for top, _, _ in given["pieces"])


def test_mistakes_of_7_2_by_hand():
    given = EXERCISES["7.2"].variants[0]  # (6, 1, 80), (4, 12, 30), (3, 40, 12)
    found = {practice._words(mistake)[0]: mistake(**given) for mistake in EXERCISES["7.2"].mistakes}
    e = math.e
    by_hand = {"plain mean": 122 / 3, "sums alone": (80 + 360 + 480) / 53, "largest alone": 80,
               "maxima alone": (80 * e**3 + 30 * e + 12) / (e**3 + e + 1),
               "sign of the difference": (80 + 360 * e**2 + 480 * e**3) / (1 + 12 * e**2 + 40 * e**3),
               "base 2": (80 * 8 + 360 * 2 + 480) / (8 + 24 + 40), "weighted sum": 80 + 360 / e**2 + 480 / e**3,
               "outputs taken for sums": (80 + 30 / e**2 + 12 / e**3) / (1 + 12 / e**2 + 40 / e**3)}  # fmt: skip
    assert set(found) == set(by_hand)
    for name, value in found.items():
        assert value == pytest.approx(by_hand[name]), name


def test_exchanges_counted_in_arrays():
    task = EXERCISES["7.3"]
    for given in task.variants:
        heads, kv_heads, size, ways, pieces, users, tokens, layers, floor, rate = given.values()
        outputs, statistics = np.zeros((users, heads // ways, size), np.float16), np.zeros((users, heads // ways, 2), np.float32)
        shares = [sum(np.array_split(x, pieces, axis=1)[i].nbytes for x in (outputs, statistics)) for i in range(pieces)]
        assert len(set(shares)) == 1  # the heads divide evenly
        kilobytes, time = task.solve(**given)
        assert kilobytes * 1e3 == sum(shares[1:])
        assert time == pytest.approx(layers * (floor * 1e-3 + sum(shares[1:]) / rate / 1e6))
        assert task.solve(**given | {"tokens": 8 * tokens}) == (kilobytes, time)  # the context is not in it
        assert 0.05 < time / (layers * floor * 1e-3) - 1 < 2  # both parts count
        assert f"{pieces * ways} GPUs" in task.text(**given) and ("latent" in task.text(**given)) == (kv_heads == 0)
    assert hw.Model.from_config("deepseek-r1").blocks[0].mixer.kv_rank == task.variants[3]["size"]


def test_a_cut_pays_where_the_two_layers_cross():
    task, sizes = EXERCISES["7.4"], {"bf16": 2, "fp8": 1}
    for given in task.variants:
        kv_heads, size, form, gpus, bandwidth, micro, users, tokens = given.values()
        pieces, a_token = gpus // max(kv_heads, 1), size * (2 if kv_heads else 1) * sizes[form]
        assert gpus % max(kv_heads, 1) == 0 and pieces >= 3 and users * max(kv_heads, 1) < gpus  # (7.8): copies in any layout

        def shorter(flight):  # microseconds; one head or the latent on each GPU, all tokens or those of one piece
            whole = flight * a_token / bandwidth / 1e6  # noqa: B023
            return whole - (whole / pieces + micro)  # noqa: B023

        least, saved = task.solve(**given)
        assert shorter(0.999 * least) < 0 < shorter(1.001 * least)
        assert saved == pytest.approx(shorter(users * tokens)) and saved > 0.5 * micro
        assert "nothing is stored twice" in task.text(**given)


SERVED = {  # most users by tensor parallelism alone, without a cut, with any layout, and if exchanges took no time
    ("deepseek-r1", 8, 1048576, 75): (1, (2, 4), (2, 6)), ("deepseek-r1", 8, 524288, 88): (1, (4, 5), (4, 8)),
    ("qwen3-235b-a22b", 8, 1048576, 57): (3, (4, 5), (6, 6)), ("qwen3-235b-a22b", 16, 1048576, 77): (1, (4, 5), (8, 8)),
    ("llama-3.1-70b", 16, 1048576, 66): (3, (6, 6), (6, 7)), ("llama-3.1-70b", 16, 524288, 116): (2, (4, 4), (6, 6)),
}  # fmt: skip


def test_users_served_are_far_from_a_tie():
    task = EXERCISES["7.5"]
    assert [tuple(given.values()) for given in task.variants] == list(SERVED)
    for given in task.variants:
        model, gpus, context, speed = given.values()
        text = task.text(**given)
        call = re.search(r"`sweep = (hw\.decode_sweep\(.*?\))` has", text)[1]
        sweep = eval(call, {"hw": hw, "np": np, "model": hw.Model.from_config(model)})
        steps = np.where(sweep["feasible"], sweep["seconds"], np.inf)
        quiet = np.where(sweep["feasible"], [s.seconds - s.terms["communication"] for s in sweep["steps"]], np.inf)
        kinds, found = np.array(sweep["kinds"]), []
        uncut, every = kinds != "cache", kinds != ""
        cases = [(steps, kinds == "tensor"), (steps, uncut), (steps, every), (quiet, uncut), (quiet, every)]
        for times, mask in cases:
            good = times[mask].min(axis=0) * speed <= 1
            found.append(int(good.sum()))
            assert good[: good.sum()].all()  # more users are never served faster
        assert (found[0], tuple(found[1:3]), tuple(found[3:])) == SERVED[model, gpus, context, speed]
        assert task.solve(**given) == tuple(found[1:3]) and max(found) < 64
        for mask in (uncut, every):
            assert np.abs(steps[mask].min(axis=0) * speed - 1).min() > 0.02
        assert f'`model = hw.Model.from_config("{model}")`' in text and "`hw.best_steps(sweep, allowed)`" in text


def test_mistakes_of_7_5_by_hand():
    task = EXERCISES["7.5"]
    found = {practice._words(mistake)[0]: mistake(**task.variants[0]) for mistake in task.mistakes}
    # 273.2 GB of 298 may be used; weights take 56.6 and a cache of 36.8 is whole: 8 x 5; 50.6 and four pieces: 2 x 24
    by_hand = {"exchanges left out": (2, 6), "memory alone": (40, 48), "one too many": (3, 5), "tensor parallel alone": (1, 4),
               "cut not tried": (2, 2), "always cut": None, "answers exchanged": (4, 2)}  # fmt: skip
    assert found == by_hand


def test_each_mistake_of_chapter_7_can_be_made_with_some_numbers():
    for task in (EXERCISES[f"7.{i}"] for i in range(1, 6)):
        for mistake in task.mistakes:
            assert any(mistake(**given) is not None for given in task.variants), mistake


def test_questions_of_chapter_7_say_what_is_meant():
    for name in ("7.1", "7.3", "7.4", "7.5"):
        for given in EXERCISES[name].variants:
            text = EXERCISES[name].text(**given)
            assert text.index("(a)") < text.index("(b)") and text.endswith("Answer (a) first, then (b).")
    for given in EXERCISES["7.5"].variants:
        assert f"at least {given['speed']} tokens/s" in EXERCISES["7.5"].text(**given)


def test_costs_and_their_limits_in_milliseconds():
    found = set()
    for given in EXERCISES["8.1"].variants:
        before, scores, after, scores_after, warn, fail = given.values()
        total, cost = EXERCISES["8.1"].solve(**given)
        assert before - total * before == pytest.approx(after)
        assert before - cost * before == pytest.approx(after - scores_after + scores)  # as if scores and cache took as long
        assert 0 < after < before and after - scores_after < before - scores and scores_after < scores
        assert all(abs(100 * cost / limit - 1) > 0.05 for limit in (warn, fail))
        status = "fail" if 100 * cost >= fail else "warn" if 100 * cost >= warn else "ok"
        assert EXERCISES["8.1b"].solve(**given) == status
        found.add(status)
    assert found == {"ok", "warn", "fail"}
    given = EXERCISES["8.1"].variants[0]  # the first is close to a model of this book
    case = hw.Case(model=hw.Model.from_config("qwen3-0.6b"), device="GB300", batch=8, context=32768)
    verdict = hw.checklist(case).verdicts[2]
    cost = float(re.search(r"the depth costs ([0-9.]+) %", verdict.reason)[1])
    assert verdict.status == "ok" and cost == pytest.approx(100 * EXERCISES["8.1"].solve(**given)[1], abs=0.5)
    times = [1e3 * s for s in (case.seconds, case.breakdown.terms["attention"])]
    assert times == pytest.approx(list(given.values())[:2], rel=0.03)


def test_widths_by_going_up_one_by_one():
    rules = {"fp8_128x128": 128, "mxfp4": 32, "nvfp4": 32}
    for given in EXERCISES["8.2"].variants:
        width, hidden, layers, ways, form, tile = given.values()
        engine, tiles = (next(w for w in itertools.count(width) if w % ways == w // ways % m == 0) for m in (rules[form], tile))
        assert EXERCISES["8.2"].solve(**given) == (engine, tiles, sum(3 * hidden * (tiles - width) for _ in range(layers)))
        tiers = hw.width_tiers(width, ways, form)
        assert tiers[f"tile {tile}"].next_width == tiles > width
        assert max(t.next_width for name, t in tiers.items() if name in ("format", "kernel")) == engine <= tiles
    assert {given["form"] for given in EXERCISES["8.2"].variants} == set(rules)
    assert any(EXERCISES["8.2"].solve(**given)[0] == given["width"] for given in EXERCISES["8.2"].variants)


def test_costs_in_a_step_of_a_hundred_milliseconds():
    for given in EXERCISES["8.3"].variants:
        step = 100.0
        for cost in given.values():
            step *= 1 - cost / 100
        independent, left, cost = EXERCISES["8.3"].solve(**given)
        assert independent == pytest.approx(step / 100)
        after = 100 - given["five"]
        assert left == pytest.approx((after - given["seven"]) / 100) and cost == pytest.approx(given["seven"] / after)
        assert cost > 1.05 * given["seven"] / 100 and abs(left / independent - 1) > 0.05
    qwen = hw.Model.from_config("qwen3-235b-a22b-fp8")
    case = hw.Case(model=qwen, device="H200", engine="trtllm", attention=hw.Plan(tp=8), ffn=hw.Plan(tp=8))
    first = {f.guideline: f for f in hw.checklist(case).findings}
    costs = [100 * first[n].cost for n in (5, 1, 7)]
    assert costs == pytest.approx(list(EXERCISES["8.3"].variants[0].values()), abs=3)  # close to the question's
    second = {f.guideline: f for f in hw.checklist(first[5].fix.case).findings}
    assert 1 not in second and 0.05 < second[7].cost < first[7].cost  # another plan is the best one then
    assert second[7].fix.case.seconds / case.seconds == pytest.approx(practice.answer("8.3")[1], rel=0.06)


def test_patterns_by_trying_all_siblings():
    task, ways = EXERCISES["8.4"], set()
    for given in task.variants:
        local, whole, window, stages, tokens = given.values()
        pairs = [(a, b) for a in range(0, 200, stages) for b in range(0, 200, stages)
                 if abs(a - local) < stages and abs(b - whole) < stages]  # fmt: skip
        cache = {pair: pair[0] * window + pair[1] * tokens for pair in [(local, whole), *pairs]}
        best = min(pairs, key=lambda pair: (abs(sum(pair) - local - whole), cache[pair]))
        assert task.solve(**given) == pytest.approx((*best, cache[best] / cache[local, whole]))
        assert len(pairs) in (2, 4) and min(map(min, pairs)) >= stages and window < tokens
        ways.add((np.sign(best[0] - local), np.sign(best[1] - whole)))
        told = {practice._words(mistake)[0]: mistake(**given) for mistake in task.mistakes}
        for label in ("both below", "both above"):  # told only where other pairs change less
            assert told[label] is None or abs(sum(told[label][:2]) - local - whole) > abs(sum(best) - local - whole)
        assert not told["larger cache"] or abs(sum(told["larger cache"][:2]) - local - whole) == abs(sum(best) - local - whole)
        gemma = hw.Model.from_config("gemma-3-27b")  # as many parameters in either kind of layer
        kinds = dict(zip((True, False), gemma.block_counts, strict=True))
        assert [kinds[key].mixer.window for key in (True, False)] == [1024, None]
        model = replace(gemma, blocks=(kinds[True],) * local + (kinds[False],) * whole)
        sibling = shapes.regular(model, stages)
        counts = tuple(sibling.block_counts[kinds[key]] for key in (True, False))
        assert counts in pairs and sum(counts) == sum(best)  # changes as little, whatever its cache
    assert ways >= {(1, -1), (-1, -1), (1, 1), (0, -1)}
    assert [sorted(gemma.block_counts.values()), len(gemma.blocks)] == [[10, 52], 62]


def test_mistakes_of_chapter_8_by_hand():
    by_hand = {
        "8.1": {"attention counted": (0.44066, 0.44066), "attention alone": (0.44066, 2.023 / 5.106),
                "share of the rest": (0.44066, 0.227 / 0.734), "new time below": (2.25 / 2.856, 0.227 / 2.856),
                "gain in speed": (5.106 / 2.856 - 1, 0.734 / 0.507 - 1), "what is left": (0.55934, 0.95554),
                "answers exchanged": (0.044458, 0.44066), "per cent without a sign": (44.066, 4.4458)},
        "8.2": {"ways forgotten": (18944, 18944, 0), "tile of 128": (19456, 19456, 512 * 3 * 3584 * 28),
                "tiles for the engine": None, "bytes for values": None,
                "rounded down": (18432, 18432, -512 * 3 * 3584 * 28), "share of a gpu": (2432, 2560, 462422016),
                "gate forgotten": (19456, 20480, 308281344), "one layer": (19456, 20480, 16515072),
                "of one gpu": (19456, 20480, 57802752), "price of the first": (19456, 20480, 154140672),
                "all columns": (19456, 20480, 20480 * 3 * 3584 * 28)},
        "8.3": {"costs added": (0.61, 0.61, 0.1), "repaired twice": (0.65504, 0.61, 0.1),
                "independent throughout": (0.65504, 0.65504, 0.1), "same share": (0.65504, 0.736, 0.08),
                "seven left out": (0.65504, 0.8, 0.1), "share of the end": (0.65504, 0.72, 8 / 72),
                "shrunk": (0.65504, 0.72, 0.064), "saved for left": (0.34496, 0.28, 0.1),
                "in per cent": (65.504, 72, 10)},
        "8.4": {"larger cache": (48, 16, 2096 / 1332), "both below": (48, 8, 1072 / 1332), "both above": (56, 16, 2104 / 1332),
                "sum alone": (54, 10, 1334 / 1332), "layers of a stage": (7, 1, 1080 / 1332),
                "kinds exchanged": (8, 56, 1080 / 1332), "all cached everywhere": (56, 8, 64 / 62),
                "windows for free": (56, 8, 0.8), "cache saved": (56, 8, 252 / 1332), "upside down": (56, 8, 1332 / 1080)},
    }  # fmt: skip
    for name, right in by_hand.items():
        given = EXERCISES[name].variants[0]
        found = {practice._words(mistake)[0]: mistake(**given) for mistake in EXERCISES[name].mistakes}
        assert set(found) == set(right)
        for label, value in found.items():
            assert value == (right[label] and pytest.approx(right[label], rel=5e-4)), label


def test_each_mistake_of_chapter_8_can_be_made_with_some_numbers():
    for task in (EXERCISES[name] for name in EXERCISES if name.startswith("8.")):
        for mistake in task.mistakes:
            assert sum(mistake(**given) is not None for given in task.variants) >= 3, mistake
    status = EXERCISES["8.1b"]
    for given in status.variants:
        assert {mistake(**given) for mistake in status.mistakes} - {None, status.solve(**given)}


def test_questions_of_chapter_8_say_what_is_meant():
    for name in ("8.1", "8.2", "8.3", "8.4"):
        for given in EXERCISES[name].variants:
            text, letters = EXERCISES[name].text(**given), "abc"[: len(EXERCISES[name].parts)]
            assert [text.index(f"({letter})") for letter in letters] == sorted(text.index(f"({letter})") for letter in letters)
            assert text.endswith(("Answer (a) first, then (b).", "Answer (a), (b) and (c) in this order.")) and "(d)" not in text
    for given in EXERCISES["8.1"].variants:
        for name, keys in (("8.1", list(given)[:4]), ("8.1b", list(given))):
            assert all(f"{given[key]:g}" in EXERCISES[name].text(**given) for key in keys)
    for given in EXERCISES["8.2"].variants:
        told = {"fp8_128x128": "128 x 128", "mxfp4": "each 32 values", "nvfp4": "half a byte a value"}
        assert told[given["form"]] in EXERCISES["8.2"].text(**given)


OWN_NAMES = [name for name in EXERCISES if name[0] in "045678" and name not in ("4.5", "5.5", "8.1b")]


@pytest.mark.parametrize("name", OWN_NAMES)
def test_each_mistake_of_chapters_0_and_4_to_8_has_its_own_name_with_all_numbers(name):
    task = EXERCISES[name]
    for given in task.variants:
        right, told = task.solve(**given), {}
        for mistake in task.mistakes:
            value = mistake(**given)
            if value is not None:
                found = tuple(np.atleast_1d(value).astype(float))
                told[practice._words(mistake)[0]] = practice._judge_numbers(task, given, found, right).misconception
        assert len(told) >= 4 and all(label == found for label, found in told.items()), (given, told)


SAID = [
    ("0.1", (240, 23, 43.5, 130), None), ("0.1", "240 ms, 23 ms, 43.5 tokens/s, 130 tokens/s", None),
    ("0.1", (240, 12, 83, 250), "median for mean"), ("0.1", (240, 20.4, 48.9, 147), "as many gaps as tokens"),
    ("0.1", (240, 47.1, 21.2, 63.7), "wait counted"), ("0.1", (240, 23, 21.2, 63.7), "wait counted"),
    ("0.1", (240, 26.3, 38, 114), "steps for tokens"), ("0.1", (5340, 23, 43.5, 130), "time of the clock"),
    ("0.1", (240, 23, 43.5, 3029), "prompt counted"), ("0.1", (240, 23, 43.5, 1043), "gpus forgotten"),
    ("0.1", (240, 23, 43.5, 5.43), "users forgotten"), ("0.1", (240, 23, 1043, 130), "all for one user"),
    ("0.1", (0.24, 0.023, 43.5, 130), "factor 1000"), ("0.1", (240, 23, 0.0435, 0.13), "factor 1000"),
    ("0.2", (8, 49, 399), None), ("0.2", "8 ms, 49 sequences, 399 tokens/s", None), ("0.2", (8, 49.2, 400), None),
    ("0.2", (0, 58, 479), "through the origin"), ("0.2", (9.2, 41, 334), "first point for t0"),
    ("0.2", (8, 102, 833), "weights for free"), ("0.2", (8, 50, 403), "one too many"), ("0.2", (8, 49, 833), "end of the line"),
    ("0.2", (8, 58, 471), "rate on a straight line"), ("0.2", (8, 6.15, 399), "of each gpu"),
    ("0.2", (8, 49, 3192), "rate of all gpus"), ("0.2", (0.008, 49, 399), "factor 1000"),
    ("0.3", (1.64, 1.22, 1.37), None), ("0.3", "1.64x, 1.22x and 1.37x", None), ("0.3", (1.78, 1.72, 1.9), "speeds averaged"),
    ("0.3", (1.07, 1.1, 1.37), "the other offer"), ("0.3", (1.64, 1.1, 1.37), "same offer twice"),
    ("0.3", (4.55, 1.32, 1.72), "part gone"), ("0.3", (1.64, 1.1, 1.18), "left for saved"),
    ("0.3", (0.61, 0.82, 0.73), "time left"), ("0.3", ("39 %", "18 %", "27 %"), "time saved"),
    ("0.3", (1.64, 1.22, 1.34), "gains multiplied"), ("0.3", (1.64, 1.22, 1.318), "gains added"),
    ("0.4", (614, 0.667, 512), None), ("0.4", "614 tokens/s, 0.667, 512 tokens/s", None),
    ("0.4", (1024, 0.667, 1024), "decode gpus alone"), ("0.4", (1024, 0.667, 512), "decode gpus alone"),
    ("0.4", (614, 1.5, 512), "upside down"), ("0.4", (614, 0.4, 512), "share for ratio"),
    ("0.4", (614, 1.33, 512), "workers for gpus"), ("0.4", (878, 0.167, 512), "prefill worker for gpu"),
    ("0.4", (1.5, 683, 512), "prompt for each token"), ("0.4", (1280, 0.667, 512), "mean of the pools"),
    ("0.4", (614, 0.667, 614), "parts of workers"), ("0.4", (614, 0.667, 585), "idle left out"),
    ("0.5", (1112, 792, 16, 256), None), ("0.5", "1,112 tokens/s; 792 tokens/s; 16 GPUs; 256 sequences", None),
    ("0.5", (1362, 792, 16, 256), "fits forgotten"), ("0.5", (8.79, 8.79, 16, 1), "fastest user"),
    ("0.5", (1112, 1112, 16, 512), "promise forgotten"),
    ("0.5", (17788, 12680, 16, 256), "rate of the worker"), ("0.5", (640, 768, 16, 256), "promise for rate"),
    ("0.5", (34.7, 49.5, 16, 256), "rate of a user"),
    ("4.1", "40 and 1.2", None), ("4.1", (40, 1.25), "number kept"), ("4.1", (44, 1.32), "rounded to the farther"),
    ("4.1", (41.67, 1.2), "scale not rounded"), ("4.1", (64, 1.28), "4 for 6"),
    ("4.2", ("2.04x", "400 %"), None), ("4.2", (2.2, "never"), "gains averaged"), ("4.2", (1.5625, 2.5), "attention as before"),
    ("4.2", (1.74, 2.68), "speed ups added"), ("4.2", (1.04, 3), "how much faster"),
    ("4.3", (938, 24), None), ("4.3", "0.9375 k and 24 million weights", None), ("4.3", "938 elements, 24 million", None),
    ("4.3", (480, 24), "another format"), ("4.3", (480, 16.7), "another format"), ("4.3", (625, 24), "only read"),
    ("4.3", (469, 24), "narrow product free"), ("4.3", (938, 12), "divided by 2"), ("4.3", (938, 24e6), "not in millions"),
    ("4.3", "938, 24 M", "not in millions"),
    ("4.4", (3.28, 1.24), None), ("4.4", "3.3 points and 1.24 points", None), ("4.4", "3.28 pp, 1.24 pp", None),
    ("4.4", ("3.28 %", "1.24 %"), "as shares"), ("4.4", (3.28, 0.0124), "as shares"),
    ("4.4", (1.67, 0.63), "one standard deviation"), ("4.4", (3.28, 0.124), "root of per cent"),
    ("4.4", (3.28, 12.4), "flips in per cent"), ("4.4", (2.27, 1.24), "one score alone"),
    ("4.4", (3.28, 1.6), "difference itself"), ("4.4", (1.24, 3.28), "margins exchanged"),
    ("4.4", (3.28, 0.62), "half"), ("4.4", (3.28, 0.78), "change for flips"),
    ("4.5", "4 GPUs", None), ("4.5", 8, "bound or whole matrices"),
    ("4.5", 2, "all along n"), ("4.5", 1, "each alone"),
    ("5.1", (9895, 39), None), ("5.1", "9.9 k tokens and 39 GPUs", None), ("5.1", (9888, 39), None), ("5.1", (206, 1), "dense"),
    ("5.1", (9895, 38), "rounded down"), ("5.1", (79160, 310), "one expert a token"), ("5.1", (19790, 78), "ridge for rows"),
    ("5.1", (4.3, 1), "share inverted"), ("5.1", (9895, 9895), "one sequence a gpu"),
    ("5.2", (17.1, 52.8), None), ("5.2", "17 experts, 53 µs", None), ("5.2", (17.06, 52.84e-6), "factor 10^6"),
    ("5.2", (32, 99), "all experts"), ("5.2", (24, 74.3), "all different"), ("5.2", (136.5, 423), "whole group"),
    ("5.2", (17.1, 423), "whole group"), ("5.2", (2.9, 9), "tokens of one gpu"), ("5.2", (17.1, 35.2), "two matrices"),
    ("5.2", (17.1, 47), "scales forgotten"),
    ("5.3", (33.2, 468), None), ("5.3", "33 MB and 468 tokens", None), ("5.3", (43, 362), "copy for each expert"),
    ("5.3", (40.3, 386), "experts never meet"), ("5.3", (35.4, 438), "own gpu counted"), ("5.3", (80.6, 193), "to every gpu"),
    ("5.3", (51.9, 300), "both in bf16"), ("5.3", (25.9, 599), "combine alone"), ("5.3", (532, 7484), "of the group"),
    ("5.4", (1.73, 1.07), None), ("5.4", (26 / 15, 16 / 15), None), ("5.4", "1.73x and 1.07x", None),
    ("5.4", (0.733, 0.0667), "excess"),
    ("5.4", (0.577, 0.9375), "mean over fullest"), ("5.4", (1.73, 1.27), "packed without copies"),
    ("5.4", (1.73, 1.1), "all copies of one"), ("5.4", (26, 16), "fullest alone"), ("5.4", (2.4, 1.6), "of the slots"),
    ("5.5", "16 GPUs", None), ("5.5", 8, "exchanges left out"), ("5.5", 4, "bound or one condition"),
    ("5.5", 32, "twice as many"),
    ("6.1", (9.5, 0.158), None), ("6.1", "9.5 s, 15.8 %", None), ("6.1", ("9500 ms", "15.8 %"), None),
    ("6.1", (9.5, 0.1875), "overhead for share"), ("6.1", (8, 0), "no bubble"), ("6.1", (10, 0.2), "one step too many"),
    ("6.1", (11, 0.273), "filled and drained"), ("6.1", (38, 0.158), "all layers in a step"),
    ("6.1", (32, 0.75), "one chunk at a time"), ("6.1", (9.5, 15.8), "per cent without a sign"),
    ("6.1", (9500, 0.158), "factor 1000"),
    ("6.2", (6.25, 5.36, 9149), None), ("6.2", "6.25 s, 5.36 s and 9149 tokens", None),
    ("6.2", (5.36, 5.36, 9149), "mean chunk"), ("6.2", (6.375, 5.36, 9149), "all the prompt for the last"),
    ("6.2", (6.12, 5.36, 9149), "own chunk not seen"), ("6.2", (10.85, 9.075, 8522), "attention twice"),
    ("6.2", (1.65, 1.65, 15000), "attention left out"), ("6.2", (6.25, 5.36, 15000), "equal size for last"),
    ("6.2", (6.25, 5.36, 30876), "first for last"), ("6.2", (6.25, 5.36, 7750), "attention alone"),
    ("6.2", (3.9, 3.9, 9149), "bubble left out"),
    ("6.3", (18, 245), None), ("6.3", "18 ms and 245 ms", None), ("6.3", (23, 300), "equal counts"),
    ("6.3", (15.7, 219), "mean for slowest"), ("6.3", (20, 267), "filled beyond the mean"),
    ("6.3", (24, 311), "filled up to the mean"), ("6.3", (17, 234), "layers in any order"),
    ("6.3", (18, 216), "other stages left out"), ("6.3", (18, 252), "slowest everywhere"),
    ("6.3", (17, 245), "layers in any order"),
    ("6.4", (37.6, 598), None), ("6.4", "37.6 GB, 598 GB/s", None), ("6.4", (18.8, 299), "half of the bytes"),
    ("6.4", (42.9, 683), "full ring"), ("6.4", (301, 4780), "of all gpus"), ("6.4", (0.00459, 598), "one token"),
    ("6.4", (37.6, 74.7), "bubble of one gpu"), ("6.4", (37.6, 859), "share for overhead"),
    ("6.4", (37.6, 181.9), "all time for the sums"), ("6.4", (0.134, 2.13), "handed over"), ("6.4", (37600, 598), "factor 1000"),
    ("6.5", (10, 60), None), ("6.5", "10 GPUs, 60 chunks", None), ("6.5", (10, 61), None), ("6.5", (6, 45), "work alone"),
    ("6.5", (8, 53), "uneven stages"), ("6.5", (12, 66), "too many"), ("6.5", (10, 15), "fewest chunks"),
    ("6.5", (10, 63.2), "all stages wait"), ("6.5", (10, 20), "stages forgotten"), ("6.5", (10, 3600), "root forgotten"),
    ("7.1", (4, 6.44), None), ("7.1", "4 GPUs, 6.44 GB", None), ("7.1", "4 copies and 6.4 GB", None),
    ("7.1", (1, 1.61), "divided evenly"), ("7.1", (4, 1.61), "divided evenly"), ("7.1", (16, 25.8), "all heads"),
    ("7.1", (1, 12.9), "query heads"), ("7.1", (8, 6.44), "group for copies"),
    ("7.1", (4, 3.22), "half of the bytes"), ("7.1", (4, 12.9), "twice the bytes"), ("7.1", (4, 0.134), "one layer"),
    ("7.1", (4, 103), "of all gpus"), ("7.1", (4, 6440), "factor 1000"),
    ("7.2", 33.07, None), ("7.2", "33.1", None), ("7.2", 40.7, "plain mean"), ("7.2", 17.4, "sums alone"),
    ("7.2", 71.4, "maxima alone"), ("7.2", 80, "largest alone"), ("7.2", 13.86, "sign of the difference"),
    ("7.2", 25.6, "base 2"), ("7.2", 152.6, "weighted sum"),
    ("7.2", 18.34, "outputs taken for sums"),
    ("7.3", (405.5, 3.11), None), ("7.3", "406 kB and 3.11 ms", None), ("7.3", (393.2, 3.09), "statistics forgotten"),
    ("7.3", (540.7, 3.37), "own share sent"), ("7.3", (135.2, 2.6), "one receiver"), ("7.3", (811, 3.87), "all query heads"),
    ("7.3", (25.3, 2.4), "key value heads"), ("7.3", (798.7, 3.85), "outputs in fp32"), ("7.3", (6.336, 2.36), "one user"),
    ("7.3", (405.5, 0.0331), "exchange of one layer"), ("7.3", (405.5, 0.762), "bytes alone"),
    ("7.3", (405.5, 2.35), "floor alone"), ("7.3", (53.15e6, 99925), "context counted"), ("7.3", (405504, 3.11), "factor 1000"),
    ("7.4", (1.25e6, 45.5), None), ("7.4", "1.25 M tokens and 45.5 µs", None), ("7.4", "1,250,000 and 45.5", None),
    ("7.4", (937500, 70.7), "all is saved"), ("7.4", (3.75e6, -4.83), "left for saved"), ("7.4", (1e6, 64.4), "gpus for pieces"),
    ("7.4", (312500, 272), "all heads read"), ("7.4", (5e6, -11.1), "no copies"), ("7.4", (2.5e6, 7.75), "half of a token"),
    ("7.4", (416667, 45.5), "tokens of each"), ("7.4", (1.25e6, 75.5), "exchange for free"),
    ("7.4", (1.25e6, 55.2), "time of the cut"),
    ("7.5", (2, 4), None), ("7.5", "2 users, 4 users", None), ("7.5", (2, 6), "exchanges left out"),
    ("7.5", (1, 4), "tensor parallel alone"), ("7.5", (2, 2), "cut not tried"), ("7.5", (3, 5), "one too many"),
    ("7.5", (40, 48), "memory alone"), ("7.5", (4, 2), "answers exchanged"), ("7.5", (2, 5), "one too many"),
    ("8.1", (0.441, 0.0445), None), ("8.1", "44.1 % and 4.4 %", None), ("8.1", ("44 %", "4.4 %"), None),
    ("8.1", (0.441, 0.441), "attention counted"), ("8.1", (0.441, 0.396), "attention alone"),
    ("8.1", (0.441, 0.309), "share of the rest"), ("8.1", (0.788, 0.0795), "new time below"),
    ("8.1", (0.441, 0.0795), "new time below"), ("8.1", (0.788, 0.448), "gain in speed"),
    ("8.1", (0.559, 0.956), "what is left"), ("8.1", (44.1, 4.45), "per cent without a sign"),
    ("8.1", (0.0445, 0.441), "answers exchanged"),
    ("8.1b", "ok", None), ("8.1b", "OK.", None), ("8.1b", "fail", "judged with attention"),
    ("8.1b", "warn", "judged without attention"),
    ("8.2", (19456, 20480, 462422016), None), ("8.2", "19,456, 20,480 and 462,422,016", None),
    ("8.2", "19456 columns, 20480 columns, 462422016 parameters", None), ("8.2", (18944, 18944, 0), "ways forgotten"),
    ("8.2", (19456, 19456, 154140672), "tile of 128"), ("8.2", (18432, 18432, -154140672), "rounded down"),
    ("8.2", (2432, 2560, 462422016), "share of a gpu"), ("8.2", (19456, 20480, 308281344), "gate forgotten"),
    ("8.2", (19456, 20480, 16515072), "one layer"), ("8.2", (19456, 20480, 57802752), "of one gpu"),
    ("8.2", (19456, 20480, 154140672), "price of the first"), ("8.2", (19456, 20480, 6165626880), "all columns"),
    ("8.3", (0.655, 0.72, 0.1), None), ("8.3", "65.5 %, 72 % and 10 %", None), ("8.3", (0.61, 0.72, 0.1), "costs added"),
    ("8.3", (0.61, 0.61, 0.1), "costs added"), ("8.3", (0.655, 0.61, 0.1), "repaired twice"),
    ("8.3", (0.655, 0.655, 0.1), "independent throughout"), ("8.3", (0.655, 0.736, 0.08), "same share"),
    ("8.3", (0.655, 0.736, 0.1), "same share"), ("8.3", (0.655, 0.72, 0.08), "same share"),
    ("8.3", (0.655, 0.8, 0.1), "seven left out"), ("8.3", (0.655, 0.72, 0.1111), "share of the end"),
    ("8.3", (0.655, 0.72, 0.064), "shrunk"), ("8.3", (0.345, 0.28, 0.1), "saved for left"),
    ("8.3", (65.5, 72, 10), "in per cent"),
    ("8.4", (56, 8, 0.811), None), ("8.4", "56 layers, 8 layers, 81 %", None), ("8.4", (48, 16, 1.574), "larger cache"),
    ("8.4", (48, 8, 0.805), "both below"), ("8.4", (56, 16, 1.58), "both above"), ("8.4", (54, 10, 1), "sum alone"),
    ("8.4", (7, 1, 0.811), "layers of a stage"), ("8.4", (8, 56, 0.811), "kinds exchanged"),
    ("8.4", (56, 8, 1.032), "all cached everywhere"), ("8.4", (56, 8, 0.8), "windows for free"),
    ("8.4", (56, 8, 0.189), "cache saved"), ("8.4", (56, 8, 1.233), "upside down"),
]  # fmt: skip


@pytest.mark.parametrize("name, answer, misconception", SAID)
def test_answers_of_chapters_0_and_4_to_8(name, answer, misconception):
    verdict = practice.grade(name, answer)
    assert verdict.right is (misconception is None) and verdict.misconception == misconception


@pytest.mark.parametrize("name", [name for name in EXERCISES if name[0] in "02345678" and not EXERCISES[name].options])
def test_no_mistake_of_chapters_0_and_2_to_8_leads_to_the_right_answer(name):
    task = EXERCISES[name]
    for given in task.variants:
        right = np.atleast_1d(task.solve(**given))
        for value in (mistake(**given) for mistake in task.mistakes):
            assert value is None or not np.allclose(np.atleast_1d(value), right, rtol=task.tolerance, atol=0), (given, value)


@each
def test_every_exercise_has_mistakes_hints_and_words(name):
    task = EXERCISES[name]
    assert task.id == name and len(task.hints) >= 2 and task.why.endswith(".")
    assert len({practice._words(m)[0] for m in task.mistakes}) == len(task.mistakes) >= 2
    messages = [practice._words(m)[1] for m in task.mistakes] + list(task.hints) + [task.why, practice.SOLUTION]
    messages += [message for _, message in practice._SLIPS.values()] + [task.endless or task.why]
    for text in messages:
        assert (
            text.endswith((".", "?"))
            and "!" not in text
            and not re.search(r"\bsimpl[ey]|\bjust\b|\bobvious|\bwrong\b", text, re.I)
        )
        assert 20 < len(text) < 240, text
    default = task.variants[0]
    found = {practice.grade(name, mistake(**default)).misconception for mistake in task.mistakes}
    assert len(found - {None}) >= 2


@each
def test_every_variant_can_be_asked_solved_and_told_from_its_mistakes(name):
    task = EXERCISES[name]
    texts = [task.text(**given) for given in task.variants]
    if not name[-1].isalpha():
        assert len(set(texts)) == len(texts) > 3
    for given in task.variants:
        right, seen = task.solve(**given), []
        assert isinstance(right, str) or not np.isnan(right).any()
        for mistake in task.mistakes:
            value = mistake(**given)
            if value is not None:
                seen.append(values(task, value, given))
        assert any(v != values(task, right, given) for v in seen)


@each
@pytest.mark.parametrize("seed", SEEDS, ids=str)
def test_right_and_mistaken_answers_at_many_seeds(name, seed):
    task, given = practice._task(name, seed)
    right = practice.answer(name, seed=seed)
    verdict = practice.grade(name, right, seed)
    assert verdict == practice.Graded(True, None, task.why)
    claimed = {}
    for mistake in task.mistakes:
        value = mistake(**given)
        if value is None:
            continue
        verdict, (label, message) = practice.grade(name, value, seed), practice._words(mistake)
        if verdict.right:  # the mistake makes no difference with these numbers
            if not task.options:
                pairs = zip(values(task, value, given), values(task, right, given), strict=True)
                assert all(practice._near(*pair, task.tolerance) for pair in pairs)
            continue
        if verdict.misconception != label:  # another mistake leads to the same value
            same = claimed[verdict.misconception]
            assert same == value or values(task, same, given) == pytest.approx(values(task, value, given), rel=practice.CLOSE)
        else:
            assert verdict.message.endswith(message)
            claimed[label] = value


def rounded(value):
    """A number as it is typed: whole, a small one to two digits, a tiny one to three."""
    return round(value, 2 if value > 0.1 else 3) if 0 < value < 10 else round(value)


@each
def test_right_numbers_in_every_form(name):
    right, options = practice.answer(name), EXERCISES[name].options
    if options:
        forms = [
            right,
            right.upper(),
            f" ({right}) ",
            f'"{right}!"',
            f"“{right}”",
            f"{right} of them",
            f"{right} layers",
            [right],
            np.str_(right),
            np.array(right),
            np.array([right]),
        ]
    elif isinstance(right, float):
        forms = [right, rounded(right), np.float32(right), np.float64(right), np.array(right), [right], (right,)]
        forms += [np.array([right]), Decimal(right), Fraction(right), str(right), f"{right:.6g}", f" {right:,.1f} "]
        forms += [f"{right:.5e}", f'"{right}"', f"“{right:.1f}”", f"{right:.1f}!", f"({right}).", f"{right / 1e3:.4f} K"]
        forms += [f"{right:.1f} {unit}" for unit in EXERCISES[name].units] + [f"{right / 1e3:.4f} k {EXERCISES[name].units[0]}"]
    else:
        forms = [right, list(right), np.array(right), np.array(right, np.float32), np.array([right]).T, [right]]
        forms += [tuple(map(kind, right)) for kind in (rounded, Decimal, Fraction, np.float32, np.array, str)]
        forms += [dict(zip(EXERCISES[name].parts, right, strict=True)), str(right)]
        forms += [mark.join(map(str, right)) for mark in (", ", ",", " ", "; ", ";", " and ", ",  ", "\n")]
        forms += [
            f"{{{','.join(map(str, right))}}}",
            f"[{' '.join(map(str, right))}]",
            f"({', '.join(map(str, right))}) {EXERCISES[name].units[1]}.",
        ]
        forms += [right[0]] if len(set(right)) == 1 else []
    for form in forms:
        assert practice.grade(name, form).right, form


class Hostile:
    def __getattribute__(self, name):
        raise RuntimeError("no")

    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = None


LOOP = []
LOOP.append(LOOP)
NONSENSE = [
    "blue", "", "2 3 4 5 6", "1,2,3,4,5", "nan", b"295", [], (), {}, {"a": 1}, {1, 2}, float("nan"), [float("nan")] * 3, 3j, True,
    [None] * 3, np.zeros(3_000_000), np.array([]), np.array(["x", "y"]), [[1, 2], [3]], 10**400, ["a", "b", "c"], object(),
    Hostile(), LOOP, print, hw.GB300, np.datetime64("2026-01-01"), range(3), lambda: 1, type, Decimal("NaN"), Decimal("sNaN"),
    ..., "x" * 10**6, {i: i for i in range(3)}, "48364" + 95 * " " + "GB", 10**6 * "1 ", 10**6 * "; ",
]  # fmt: skip


@each
@pytest.mark.parametrize("which", range(len(NONSENSE)))
def test_nonsense_gets_a_kind_sentence(capsys, name, which):
    text = said(capsys, name, NONSENSE[which])
    assert text == f"This answer cannot be read. Expected: {practice._expected(EXERCISES[name])}."
    assert practice._tries == {}


@each
def test_no_answer_yet(capsys, name):
    assert said(capsys, name, None) == f"No answer yet. Expected: {practice._expected(EXERCISES[name])}."


def test_hints_come_one_at_a_time(capsys):
    hints = EXERCISES["1.2"].hints
    texts = [said(capsys, "1.2", 3 + i) for i in range(6)]
    assert texts[0] == "Not yet. The number is too small."
    for step, hint in enumerate((*hints, practice.SOLUTION, practice.SOLUTION), 1):
        assert texts[step].endswith(f"Hint {min(step, 4)} of 4. {hint}")
    assert said(capsys, "1.2", 8) == texts[-1]
    assert "Hint" not in said(capsys, "1.2", 3, seed=1)  # another question, another count
    assert said(capsys, "1.2", practice.answer("1.2")).startswith("Right. ")
    assert "Hint" not in said(capsys, "1.2", 3)  # a right answer ends the count
    text = said(capsys, "1.2", 527)
    assert text.startswith("Not yet. This is M_min") and "Hint 1 of 4." in text


def test_a_cell_that_runs_again_spends_no_hint(capsys):
    for seed in (4, "4", np.int64(4)):  # one question
        assert "Hint" not in said(capsys, "1.1", [1, 2, 3], seed=seed)
    assert "Hint 1 of 3." in said(capsys, "1.1", "1, 2, 4", seed="4")
    assert "Hint 1 of 3." in said(capsys, "1.1", [1, 2, 3], seed=4)
    assert set(practice._tries) == {("1.1", "4")}

    class Shy(float):
        def __repr__(self):
            raise RuntimeError("no")

    assert [said(capsys, "1.2", Shy(i)) for i in (3, 4)] == ["Not yet. The number is too small."] * 2
    assert len(practice._mark("x" * 10**6)) == 200


def test_a_note_is_markdown_in_a_notebook():
    assert practice.Note("**Right.** a")._repr_markdown_() == "**Right.** a"


@pytest.mark.parametrize("factor", [1.0199, 0.9801, 1.0201, 0.9799, 1.02, 0.98, -1])
def test_tolerance_is_two_percent(factor):
    right = 0.98 <= factor <= 1.02
    assert practice.grade("1.1", 989 / 3.35 * factor).right is right
    assert practice.grade("1.2", practice.answer("1.2") * factor).right is right


def test_widths_are_exact_and_either_of_the_pair_names_it():
    assert practice.grade("1.4", 4096).right and not practice.grade("1.4", 4097).right
    seed = next(seed for seed in range(99) if len(set(practice.answer("1.4", seed=seed))) == 2)
    given = practice._task("1.4", seed)[1]
    assert practice.grade("1.4", [2 ** given["power"] / h for h in practice.answer("1.4", seed=seed)], seed).right
    for h in (0, -4096, math.inf, 1e-320):
        assert not practice.grade("1.4", h).right


SLIPS = [
    (8, "bits for bytes"), (1e3, "factor 1000"), (1e6, "factor 10^6"), (1e9, "factor 10^9"), (1e12, "factor 10^12"),
    (1024, "factor 1024"), (2**20, "factor 1024^2"), (2**30, "factor 1024^3"),
    (1.048576, "MiB for MB"), (1.073741824, "GiB for GB"), (1.099511627776, "TiB for TB"),
]  # fmt: skip


@pytest.mark.parametrize("factor, label", SLIPS)
def test_slips_of_unit_are_recognised_where_the_exercise_names_them(monkeypatch, factor, label):
    words = {"text": str, "asks": "bytes", "mistakes": (), "hints": (), "why": "It fits.", "units": ("byte", "bytes")}
    task = Exercise(id="9.1", variants=({},), solve=lambda: 80e9, slips=tuple(practice._SLIPS), **words)
    monkeypatch.setitem(EXERCISES, "9.1", task)
    assert practice.grade("9.1", "80 GB").graded is False and practice.grade("9.1", "80 Gbytes").right
    for value in (80e9 * factor, 80e9 / factor):
        assert practice.grade("9.1", value).misconception == label
    monkeypatch.setitem(EXERCISES, "9.1", replace(task, slips=()))
    assert practice.grade("9.1", 80e9 * factor) == practice.Graded(False, None, "The number is too large.")


def test_slips_of_chapter_1():
    assert {label: factor for factor, label in SLIPS} == pytest.approx({key: slip[0] for key, slip in practice._SLIPS.items()})
    assert all(not re.search("1024|iB", slip) for task in EXERCISES.values() for slip in task.slips)
    assert EXERCISES["1.3"].slips == EXERCISES["1.4"].slips == ()
    for name, task in EXERCISES.items():
        for slip in task.slips:
            factor, right = practice._SLIPS[slip][0], np.array(practice.answer(name))
            assert {practice.grade(name, value).misconception for value in (right * factor, right / factor)} == {slip}
    for share in (0.91, 0.93, 0.95, 1.049, 1.074, 1.1):  # some percent off is no slip of unit
        side = "too small" if share < 1 else "too large"
        assert practice.grade("1.1", 989 / 3.35 * share).message == " ".join(f"{p} is {side}." for p in EXERCISES["1.1"].parts)


def test_the_infinite_answer_is_right_only_where_it_is():
    seed = next(seed for seed in range(99) if practice.answer("1.2", seed=seed) == math.inf)
    for answer in ("never", "Never ", "never.", "Never!", '"never"', "“never”", "inf", math.inf, np.inf):
        assert practice.grade("1.2", answer, seed).right
        assert practice.grade("1.2", answer).misconception == "never"
    for answer in (0, 1e6, 1e9, -math.inf, 10**300):
        verdict = practice.grade("1.2", answer, seed)
        assert not verdict.right and verdict.message == EXERCISES["1.2"].endless
    assert practice.grade("1.2", practice.EXERCISES["1.2"].mistakes[0](**practice._task("1.2", seed)[1]), seed).misconception


def test_parts_are_judged_one_by_one():
    k, n = practice.answer("1.3")
    assert practice.grade("1.3", (k, 5 * n)).message == "K is right. N is too large."
    assert practice.grade("1.3", (0.2 * k, 5 * n)).message == "K is too small. N is too large."
    assert practice.grade("1.3", k).graded is False
    trtllm = EXERCISES["1.3"].mistakes[1](**EXERCISES["1.3"].variants[0])
    assert practice.grade("1.3", (k, trtllm[1])).message.startswith("K is right. These are the points of another engine")


def test_one_number_may_stand_for_all_parts():
    seed = next(seed for seed in range(99) if len(set(practice.answer("1.4", seed=seed))) == 2)
    for width in practice.answer("1.4", seed=seed):
        verdict = practice.grade("1.4", width, seed)
        assert verdict.graded and " is right. " in verdict.message and verdict.misconception != "token counts exchanged"
    seed = next(seed for seed in range(99) if practice._task("1.1", seed)[1]["recipe"] == "fp8")
    m, _, k = practice.answer("1.1", seed=seed)
    verdict = practice.grade("1.1", m, seed)
    assert verdict.misconception == "outputs like inputs" and verdict.message.startswith("M_min is right. N_min is right. ")
    assert practice.grade("1.1", k, seed).misconception == "inputs like outputs"
    assert practice.grade("1.1", (1.015 * m, k, m), seed).misconception == "n and k exchanged"


def test_the_two_token_counts_exchanged():
    seed = next(s for s in range(99) if practice._task("1.4", s)[1]["power"] == 26)
    assert practice.grade("1.4", (8192, 4096), seed).misconception == "token counts exchanged"
    verdict = practice.grade("1.4", (2048, 8192))  # the two sizes of one pair, of the right product
    assert verdict.misconception is None and verdict.message.count("is another one.") == 2


@pytest.mark.parametrize("name", ["1.1", "1.2", "1.3", "1.4"])
@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_tensors_are_read(name, kind):
    torch = pytest.importorskip("torch")
    right = torch.tensor(practice.answer(name), dtype=getattr(torch, kind))
    forms = [right, right.reshape(-1, 1), right.reshape(1, -1), right.clone().requires_grad_()]
    forms += [list(right), tuple(right)] if right.ndim else [[right]]
    for form in forms:
        assert practice.grade(name, form).right, form
    assert not practice.grade(name, torch.zeros(3_000_000)).graded


def test_several_numbers_in_one_text():
    one, two = EXERCISES["1.4"], EXERCISES["1.3"]
    texts = {"4,096": (4096, 4096), "4096 elements": (4096, 4096), "8,192 elements": (8192, 8192), "512,512": (512, 512),
             "4,096 and 1,024": (4096, 1024), "4 k, 1 k": (4000, 1000), "787,67 1307,59": (787.67, 1307.59),
             "1" + 10**6 * " " + "2": (1, 2)}  # fmt: skip
    for text, numbers in texts.items():
        assert practice._values(one, text) == pytest.approx(numbers)
    assert practice._values(two, "788,1308 ") == (788, 1308) and practice._values(two, "1,308") is None
    assert practice.grade("1.1", "1,2,3").graded and not practice.grade("1.1", "1,2,3").right


def test_another_unit_is_named():
    for name, answer, unit in (("1.1", "295 FLOP/byte", "elements"), ("1.1", ["295 FLOP/byte"] * 3, "elements"),
                               ("1.4", "4096 bytes, 4096 bytes", "elements"), ("1.2", "12 parsecs", "tokens")):  # fmt: skip
        verdict = practice.grade(name, answer)
        assert not verdict.graded and verdict.message.startswith(f"The question asks for {unit}; ")


def test_numbers_in_text():
    units = ("token", "tokens")
    texts = {"48.3 k tokens": 48300, "1,024": 1024, "12,5": 12.5, "1_000 Tokens": 1000, "3M": 3e6, "-2e3": -2000, "80 %": 0.8,
             "48.3 K": 48300, "12 µtoken": 12e-6, ".5": 0.5, "7.": 7, "1,234,567.5 tokens": 1234567.5}  # fmt: skip
    for text, number in texts.items():
        assert practice._number(text, units) == pytest.approx(number)
    for text in ("tokens", "--3", "3 4", "0x10", "1,2,3", "", "."):
        assert practice._number(text, units) is None
    for text in ("48 GB", "1e", "295 FLOP/byte"):
        with pytest.raises(practice._OtherUnit):
            practice._number(text, units)


def test_a_yes_or_no_may_be_a_truth_value():
    task = replace(EXERCISES["1.1b"], options=("yes", "no"))
    assert [practice._choice(task, answer) for answer in (True, np.False_, [True], 1.0)] == ["yes", "no", "yes", None]


@pytest.mark.parametrize("call", [practice.check, practice.grade])
def test_an_unknown_exercise_is_refused_with_the_known_ones(call):
    for wrong in ("1.5", "11", 1.1, None, ["1.1"]):
        with pytest.raises(ValueError, match=r"exercise must be one of 0\.1, .*, 1\.1, 1\.1b, 1\.2, 1\.3, 1\.4"):
            call(wrong, 1)
    with pytest.raises(ValueError, match=r"did you mean '1\.2'"):
        call("1.22", 1)


@pytest.mark.parametrize("seed", [1.5, [1], True])
def test_a_seed_is_a_whole_number_or_text(seed):
    with pytest.raises(ValueError, match="seed must be a whole number or text, got"):
        practice.question("1.1", seed=seed)


def test_the_same_seed_gives_the_same_question_to_all_parts(capsys):
    for seed in range(20):
        given = {practice._task(name, seed)[1]["device"] for name in ("1.1", "1.1b")}
        assert len(given) == 1 and practice._task("1.1", seed)[1] is practice._task("1.1", str(seed))[1]
        assert practice._task("1.1", seed)[1] is not EXERCISES["1.1"].variants[0]
    practice.question("1.1", seed=3)
    assert practice._task("1.1", 3)[1]["device"].replace("_", " ") in capsys.readouterr().out


def test_the_static_page_shows_nothing_and_still_knows_its_exercises(capsys, monkeypatch):
    monkeypatch.setenv("HWDESIGN_STATIC", "1")
    for answer in (None, 295, 3, "blue"):
        assert said(capsys, "1.1", answer) == ""
    with pytest.raises(ValueError, match="exercise must be one of"):
        practice.check("9.9", 1)


def cells(path):
    return json.loads(path.read_text("utf8"))["cells"]


def calls(path, tag, function):
    """First arguments of `practice.<function>` in the cells with a tag."""
    sources = ["".join(c["source"]) for c in cells(path) if tag in c["metadata"].get("tags", [])]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [node.args[0].value for node in nodes if ast.unparse(node.func) == f"practice.{function}"]


def test_notebooks_and_registry_hold_the_same_exercises():
    for function, tag in (("check", "exercise"), ("grade", "solution")):
        found = [name for path in NOTEBOOKS for name in calls(path, tag, function)]
        assert sorted(found) == sorted(EXERCISES)


def test_notebooks_print_the_questions_of_the_registry():
    prose = ["".join(c["source"]) for path in NOTEBOOKS for c in cells(path) if c["cell_type"] == "markdown"]
    prose = " ".join(" ".join(prose).split())
    for name, task in EXERCISES.items():
        assert " ".join(task.text(**task.variants[0]).split()) in prose, name


@pytest.mark.parametrize(
    "chapter, start, before",
    [
        (1, "ex", ["ridge", "critical", "break-even", "sweeps", "sweeps-2"]),
        *((chapter, f"ex{chapter}", []) for chapter in (0, *range(2, 9))),
    ],
)
def test_solutions_are_right(capsys, chapter, start, before):
    path = next((ROOT / "notebooks").glob(f"{chapter:02}_*.ipynb"))
    asked = [name for name in EXERCISES if name.startswith(f"{chapter}.")]
    numbers = [name.split(".")[1] for name in asked if name[-1].isdigit()]
    needed = ["imports", *before, *(f"{start}{i}-{part}" for i in numbers for part in ("stub", "solution"))]
    scope, sources = {}, {c["id"]: "".join(c["source"]) for c in cells(path)}
    for cell in needed:
        exec(compile(sources[cell], cell, "exec"), scope)  # each solution asserts that the checker agrees
    assert capsys.readouterr().out.count("No answer yet.") == len(asked)


def test_plain_text_keeps_the_powers_of_a_formula():
    assert repr(practice.Note("**Right.** `2 ** n`, then **two words**")) == "Right. `2 ** n`, then two words"
