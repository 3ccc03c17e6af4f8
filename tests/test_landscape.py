"""Search, fronts and levers against counts by hand, enumeration in fractions, single steps and published integers."""

import dataclasses
import functools
import itertools
import math
import re
import time
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from conftest import is_plain
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import hwdesign as hw
from hwdesign import Plan
from hwdesign.catalogue.engine import Engine
from hwdesign.formulas.frontier import area_under, matched_rate, pareto_front, whole_workers
from hwdesign.formulas.pipeline import schedule
from hwdesign.formulas.roofline import amdahl_speedup
from hwdesign.lessons.studies import levers
from hwdesign.models.steps import Gemm, Scan, Step, attention_part, feed_forward_part, same_gpus
from hwdesign.timing.estimate import decode_steps, prefill_steps
from hwdesign.timing.intervals import engine_seconds
from hwdesign.timing.layouts import attention_kind
from hwdesign.timing.pipeline import stage_times

pytestmark = pytest.mark.filterwarnings("ignore:uncalibrated:UserWarning")
CONFIGS = sorted(p.stem for p in (Path(hw.__file__).parent / "models" / "configs").glob("*.json"))
COUNTS = (1, 2, 4, 8, 16, 32, 64, 72)
LONG = {"input_tokens": 131072, "output_tokens": 8192}
# What vLLM leaves of a memory as the driver reports it: 92 % less what CUDA and NCCL take [byte]
VLLM = {"H100_SXM": 0.92 * 81559 * 2**20 - 943e6, "GB300": 0.92 * 284208 * 2**20 - 943e6}


@pytest.fixture(scope="module")
def models():
    return {name: hw.Model.from_config(name) for name in CONFIGS}


@pytest.fixture(scope="module")
def r1(models):
    return models["deepseek-r1"]


@pytest.fixture(scope="module")
def searches(r1):
    """The same search three times, with its processor time [s]."""
    found = []
    for _ in range(3):
        start = time.process_time()
        one = hw.decode_candidates(r1, "GB300", "nvfp4", gpus=COUNTS, batch=levers.BATCHES, **LONG)
        found.append((time.process_time() - start, one))
    return found


@pytest.fixture(scope="module")
def long_candidates(searches):
    return searches[0][1]


# Area under a front -------------------------------------------------------------------------------------------------------

POINTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=12)
FLOATS = st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e3)), min_size=1, max_size=20)


def area(points, **between):
    x, y = np.array(points, float).reshape(-1, 2).T
    return area_under(x, y, **between)


@given(POINTS, st.integers(0, 12), st.integers(1, 14))
def test_the_area_of_whole_numbers_is_a_count_of_squares(points, low, wide):
    squares = {(i, j) for x, y in points for i in range(x) for j in range(y)}
    assert area(points) == len(squares)
    assert area(points, between=(low, low + wide)) == sum(low <= i < low + wide for i, _ in squares)


@given(POINTS.filter(lambda p: len(p) <= 8))
def test_the_area_is_the_union_of_rectangles_by_inclusion_and_exclusion(points):
    total = 0
    for n in range(1, len(points) + 1):
        for some in itertools.combinations(points, n):
            total -= (-1) ** n * min(x for x, _ in some) * min(y for _, y in some)
    assert area(points) == total


@pytest.mark.parametrize("between", [(0.0, np.inf), (0.2, 0.65), (0.5, 3.0), (0.0, 0.1)])
def test_the_area_is_the_integral_of_the_staircase(between):
    rng, cells = np.random.default_rng(1), 200_000
    for n in (1, 3, 40):
        x, y = rng.random((2, n))
        low, high = between[0], min(between[1], 1.0)
        grid = low + (np.arange(cells) + 0.5) * (high - low) / cells
        height = np.zeros(cells)
        for a, b in zip(x, y, strict=True):  # each point gives all that is slower, too
            height = np.where(grid <= a, np.maximum(height, b), height)
        found = area_under(x, y, between=between)
        assert found == pytest.approx(height.mean() * (high - low), abs=2 * n / cells)
    assert area_under(x, y) > 0.5


@given(FLOATS, st.lists(st.floats(1e-3, 2e3), min_size=1, max_size=4, unique=True))
def test_areas_of_neighbouring_bands_add_up(points, cuts):
    ends = [0.0, *sorted(cuts), np.inf]
    parts = [area(points, between=band) for band in itertools.pairwise(ends)]
    assert min(parts) >= 0 and sum(parts) == pytest.approx(area(points), rel=1e-9, abs=1e-9)
    assert area(points, between=(2e3, 3e3)) == 0  # beyond all points


@given(FLOATS, st.floats(0, 1), st.floats(0, 1), st.randoms())
def test_beaten_points_and_gaps_and_order_change_no_area(points, a, b, random):
    x, y = random.choice(points)
    more = [*points, (a * x, b * y), (np.nan, 5.0), (1e6, np.nan), (x, y)]
    random.shuffle(more)
    assert area(more) == pytest.approx(area(points), rel=1e-12)


@given(FLOATS, st.floats(0, 1500), st.floats(0, 1500))
def test_a_point_more_never_takes_area_away(points, x, y):
    before, after = area(points), area([*points, (x, y)])
    assert max(before, x * y) - 1e-6 <= after <= before + x * y + 1e-6
    if x > max(p[0] for p in points) + 1 and y > 1:  # the fastest of all
        assert after > before


@given(FLOATS, st.floats(0.01, 100), st.floats(0.01, 100))
def test_the_area_scales_with_both_units_and_knows_no_first_axis(points, a, b):
    assert area([(a * x, b * y) for x, y in points]) == pytest.approx(a * b * area(points), rel=1e-9, abs=1e-9)
    assert area([(y, x) for x, y in points]) == pytest.approx(area(points), rel=1e-9, abs=1e-9)


def test_no_point_has_no_area():
    assert area_under([], []) == area_under([np.nan], [1.0]) == 0 and isinstance(area_under([2], [3]), float)


@pytest.mark.parametrize("between", [(2, 1), (1, 1), (-1, 3), (np.nan, 2), (0, np.nan), (np.inf, np.inf)])
def test_a_band_must_rise_from_a_number_that_is_not_negative(between):
    with pytest.raises(ValueError, match="between must be two rising numbers >= 0, got"):
        area_under([1, 2], [2, 1], between=between)


@pytest.mark.parametrize("rewards", [([-1], [2]), ([1, 2], [3, -2]), ([-3, 1], [5, 1])])
def test_negative_rewards_are_refused(rewards):
    with pytest.raises(ValueError, match="rewards must be >= 0, got -"):
        area_under(*rewards)
    with pytest.raises(ValueError, match="rewards must be two lists of one length"):
        area_under(rewards[0], [1, 2, 3])


def test_negative_rewards_are_refused_even_where_they_are_beaten():
    with pytest.raises(ValueError, match="rewards must be >= 0, got -1"):
        area_under([1, -1], [1, -1])


def test_an_unlimited_reward_beside_nothing_adds_nothing():
    assert area_under([2, np.inf], [3, 0]) == 6 and area_under([np.inf], [1]) == np.inf


# Two pools ----------------------------------------------------------------------------------------------------------------

RATES = st.fractions(min_value=Fraction(1, 12), max_value=20, max_denominator=12)


@given(RATES, RATES, st.integers(1, 50))
@settings(max_examples=60)
def test_the_matched_rate_is_what_no_number_of_gpus_beats(rate, seconds, answer):
    """p prefill and d decode GPUs serve what the slower pool gives; one ratio serves most."""

    def served(p, d):
        return min(d * rate, p / seconds * answer) / (p + d)

    found = matched_rate(float(rate), float(seconds), answer)
    ratio = rate * seconds / answer  # p / d where both pools are as fast
    assert found == pytest.approx(float(served(ratio.numerator, ratio.denominator)), rel=1e-12)
    assert all(served(p, d) <= found * (1 + 1e-12) for p in range(1, 9) for d in range(1, 9))


def test_the_matched_rate_has_limits_and_refuses_what_is_not_positive():
    assert matched_rate(7.0, 1e-300, 1) == 7.0 and matched_rate(np.inf, 4.0, 8) == 2.0
    assert matched_rate([1.0, 2.0], [[1.0], [2.0]], 2).shape == (2, 2)
    for bad in ({"decode_rate": 0}, {"prefill_seconds": -1}, {"output_tokens": 0}):
        (name,) = bad
        with pytest.raises(ValueError, match=f"{name} must be > 0"):
            matched_rate(**({"decode_rate": 1.0, "prefill_seconds": 1.0, "output_tokens": 1} | bad))


POOL = st.tuples(RATES, st.integers(1, 8))


@given(POOL, POOL, st.integers(0, 40))
@settings(max_examples=80)
def test_whole_workers_are_the_best_of_all_that_fit(prefill, decode, spare):
    (r, a), (s, b) = prefill, decode
    gpus = a + b + spare
    ways = [(p, d) for p in range(1, gpus + 1) for d in range(1, gpus + 1) if p * a + d * b <= gpus]
    rate = {(p, d): min(p * r, d * s) / (p * a + d * b) for p, d in ways}
    least = min(p * a + d * b for p, d in ways if rate[p, d] == max(rate.values()))
    p, d, found = whole_workers((float(r), a), (float(s), b), gpus)
    assert (p, d) in rate and rate[p, d] == max(rate.values()) and p * a + d * b == least
    assert found == pytest.approx(float(max(rate.values())), rel=1e-12)
    # a request is a "token" of a one-token answer: what fractions of workers would serve
    limit = float(matched_rate(float(s / b), float(a / r), 1))
    assert found <= limit * (1 + 1e-12)
    assert whole_workers((float(r), a), (float(s), b), gpus + 1)[2] >= found * (1 - 1e-12)
    ratio = Fraction(s, r)  # p : d where neither waits
    if ratio.numerator * a + ratio.denominator * b <= gpus:
        assert found == pytest.approx(limit, rel=1e-12)


@pytest.mark.parametrize("pools", [((2.0, 4), (1.1, 8)), ((0.37, 1), (math.pi, 8)), ((9.0, 2), (math.e, 3))])
def test_many_gpus_come_near_the_matched_rate(pools):
    (r, a), (s, b) = pools
    limit = 1 / (a / r + b / s)
    gaps = [1 - whole_workers(*pools, n)[2] / limit for n in (12, 100, 1500)]
    assert gaps[0] >= gaps[1] >= gaps[2] >= -1e-12 and gaps[2] < 0.004 and gaps[0] > 0.004


def test_slow_workers_are_matched_like_fast_ones():
    for scale in (1e-13, 1.0, 1e13):
        p, d, rate = whole_workers((2.0 * scale, 4), (1.0 * scale, 8), 24)
        assert (p, d) == (1, 2) and rate == pytest.approx(0.1 * scale)


def test_pools_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="gpus must be >= 12 for one worker of each, got 11"):
        whole_workers((1.0, 4), (1.0, 8), 11)
    assert whole_workers((1.0, 4), (3.0, 8), 12) == (1, 1, 1 / 12)
    for bad, says in ((((0.0, 1), (1.0, 1), 9), "prefill must be > 0"), (((1.0, 1), (1.0, 0), 9), "decode must be >= 1"),
                      (((1.0, 1), (1.0, 1), 9.5), "gpus must be a whole number")):  # fmt: skip
        with pytest.raises(ValueError, match=says):
            whole_workers(*bad)


# Candidates of decode -----------------------------------------------------------------------------------------------------


def row(found, i):
    return {name: values[i] for name, values in found.items()}


def plans_of(one):
    return {"attention": one["attention"], "ffn": one["ffn"]}


@pytest.mark.parametrize(
    ("name", "device", "recipes", "gpus", "wide"),
    [("deepseek-r1", "GB300", ["nvfp4", "fp8_block"], (1, 8, 72), ()), ("llama-3.1-70b", "H100_SXM", ["bf16", "fp8"], (2, 8), ()),
     ("nemotron-3-nano-30b-a3b", "B200", hw.recipe("fp8"), 4, ()), ("deepseek-r1", "B200", "nvfp4", 8, ("attention", "ffn"))],
)  # fmt: skip
def test_every_candidate_is_a_step(models, name, device, recipes, gpus, wide):
    model, batch = models[name], [1, 3, 64, 1500]
    found = hw.decode_candidates(model, device, recipes, gpus=gpus, batch=batch, input_tokens=9000, output_tokens=1001, wide=wide)
    pairs = [(n, pair) for n in np.atleast_1d(gpus).tolist() for pair in hw.layouts(model, n)]
    forms = recipes if isinstance(recipes, list) else [recipes]
    every = [(hw.recipe(form), *pair, n, b) for form in forms for n, pair in pairs for b in batch]
    rows = zip(*(found[c] for c in ("recipe", "attention", "ffn", "gpus", "batch")), strict=True)
    assert list(rows) == every and len(every) == len(pairs) * len(batch) * len(forms)  # each once, in order
    assert {len(values) for values in found.values()} == {len(every)} and found["fits"].dtype == bool
    assert set(found) == {"recipe", "attention", "ffn", "gpus", "batch", "context", "seconds", "user_rate", "gpu_rate", "memory",
                          "fits"}  # fmt: skip
    capacity = hw.device(device).memory_capacity
    for i in np.random.default_rng(2).choice(len(every), 25, replace=False):
        one = row(found, i)
        load = {"batch": int(one["batch"]), "context": 9501, "wide": wide}
        step = hw.decode_step(model, device, one["recipe"], **load, **plans_of(one))
        assert one["context"] == 9501 and one["seconds"] == pytest.approx(float(step.seconds), rel=1e-12)
        assert one["memory"] == pytest.approx(step.memory + step.activations, rel=1e-12)
        assert one["fits"] == (one["memory"] <= 0.92 * capacity - 943e6)
        assert 1 / one["user_rate"] == pytest.approx(one["seconds"], rel=1e-12)
        assert one["gpu_rate"] * one["gpus"] * one["seconds"] == pytest.approx(one["batch"], rel=1e-12)
    assert found["fits"].any() and (name.startswith("nemotron") or not found["fits"].all())


def dense_bytes(model, form, one):
    """Weights, cache and activations of a dense grouped-query model on one GPU, added by hand [byte]."""
    form, a, f = hw.recipe(form), one["attention"], one["ffn"]
    block, hidden, layers = model.blocks[0], model.hidden_size, len(model.blocks)
    heads, kv, size, width = block.mixer.num_heads, block.mixer.num_kv_heads, block.mixer.head_dim, block.ffn.width
    same, here, batch = a.tp * a.kvp, math.ceil(one["batch"] / a.dp), one["batch"]
    qkv, out = (heads + 2 * kv) // a.tp * size, heads // a.tp * size // a.kvp
    up, rows = 2 * width // f.tp, math.ceil(model.vocab_size / same)
    matrices = layers * hidden * (qkv + out + up + up // 2) * form.weights.bytes
    wide = (layers * 2 * hidden + hidden + 2 * rows * hidden) * 2  # norms, embedding and head
    if a == Plan() == f:
        assert matrices + wide == sum(model.weight_bytes(form.name).values())
    cache = here * model.kv_bytes(one["context"], form.kv_cache) / same
    live = [*(here * (hidden + n) for n in (qkv, out, rows)), batch * (hidden + up), batch * (up // 2 + hidden)]
    return matrices + wide + cache + (here * hidden + max(live)) * 2


@pytest.mark.parametrize(("name", "device"), [("llama-3.1-70b", "H100_SXM"), ("llama-3.1-8b", "H100_SXM")])
def test_what_fits_was_added_by_hand(models, name, device):
    load = {"gpus": (1, 2, 4, 8), "batch": [1, 7, 64, 200, 900], "input_tokens": 8192, "output_tokens": 1024}
    found = hw.decode_candidates(models[name], device, ["bf16", "fp8"], **load)
    hand = np.array([dense_bytes(models[name], found["recipe"][i], row(found, i)) for i in range(len(found["fits"]))])
    assert found["memory"] == pytest.approx(hand, rel=1e-12)
    assert np.array_equal(found["fits"], hand <= VLLM[device]) and 0.1 < found["fits"].mean() < 0.9
    for share in (1.0, 0.5, 0.01):
        keeps = Engine(name="own", label="own", version="1", memory_share=share)
        fewer = hw.decode_candidates(models[name], device, ["bf16", "fp8"], engine=keeps, **load)["fits"]
        assert np.array_equal(fewer, hand <= share * 81559 * 2**20)
    assert not fewer.any()  # 0.9 GB hold no model
    half = Engine(name="half", label="half", version="1", memory_share=1.0, cache_share=0.5)
    cache = [row(found, i)["batch"] / found["attention"][i].dp for i in range(len(hand))]
    cache = np.ceil(cache) * 8704 * models[name].kv_bytes_per_token()  # in BF16
    cache *= np.array([form.kv_cache.bytes / 2 for form in found["recipe"]])
    cache /= np.array([a.tp * a.kvp for a in found["attention"]])
    fewer = hw.decode_candidates(models[name], device, ["bf16", "fp8"], engine=half, **load)["fits"]
    assert np.array_equal(fewer, hand + cache <= 81559 * 2**20)  # as much is free again as the cache takes


@pytest.mark.alone
def test_the_search_is_wide_and_quick(r1, searches, long_candidates):
    layouts = sum(len(hw.layouts(r1, n)) for n in COUNTS)
    batches = levers.BATCHES.tolist()
    assert len(long_candidates["fits"]) == len(batches) * layouts >= 10_000
    assert batches == sorted(set(batches)) and (batches[0], batches[-1]) == (1, 65536)
    assert set(2 ** np.arange(15)) < set(batches) and max(b / a for a, b in itertools.pairwise(batches[3:])) < 1.5
    assert min(seconds for seconds, _ in searches) < 2  # 0.45 s on two cores of a Xeon


def test_the_front_is_fit_to_run_and_can_be_found_again(r1, searches, long_candidates):
    again, fronts = searches[-1][1], []
    for found in (long_candidates, again):
        there = np.flatnonzero(found["fits"])
        fronts.append(there[pareto_front(found["user_rate"][there], found["gpu_rate"][there])])
    front = fronts[0]
    assert np.array_equal(*fronts) and len(front) > 20
    assert all(np.array_equal(long_candidates[c][front], again[c][front]) for c in ("user_rate", "gpu_rate", "memory"))
    assert (np.diff(long_candidates["user_rate"][front]) < 0).all() and (np.diff(long_candidates["gpu_rate"][front]) > 0).all()
    beaten = long_candidates["fits"].copy()
    beaten[front] = False
    for i in front:
        one = row(long_candidates, i)
        step = hw.decode_step(r1, "GB300", "nvfp4", batch=int(one["batch"]), context=131072 + 4096, **plans_of(one))
        assert step.feasible and step.memory + step.activations <= VLLM["GB300"]
        assert one["user_rate"] == pytest.approx(1 / step.seconds, rel=1e-12)
        better = (long_candidates["user_rate"] > one["user_rate"]) & (long_candidates["gpu_rate"] > one["gpu_rate"])
        assert not (better & beaten).any()
    assert not long_candidates["fits"].all()


def read(text):
    """Formats, GPUs, batch and plans from the words of a candidate."""
    head, attention, ffn = re.fullmatch(r"(.*): attention (.*), ffn (.*)", text).groups()
    name, gpus, batch = re.fullmatch(r"(\S+), (\d+) GPUs?, batch (\d+)", head).groups()
    ways = [dict(zip(w[::2], map(int, w[1::2]), strict=True)) for w in (attention.split(), ffn.removesuffix(" gather").split())]
    return name, int(gpus), int(batch), Plan(**ways[0]), Plan(**ways[1], gather=ffn.endswith(" gather"))


def test_the_words_of_a_candidate_are_enough_to_run_it_again(long_candidates):
    for i in range(0, len(long_candidates["fits"]), 7):
        one = row(long_candidates, i)
        wanted = ("nvfp4", one["gpus"], one["batch"], one["attention"], one["ffn"])
        assert read(hw.candidate_text(long_candidates, i)) == wanted
    assert {"GPU," in hw.candidate_text(long_candidates, i) for i in (0, -1)} == {True, False}


def test_kinds_are_left_out_of_the_search(models):
    load = {"gpus": (1, 4), "batch": [1, 8], "input_tokens": 99, "output_tokens": 9}
    for kinds in (("tensor",), ("data", "cache"), "cache"):
        found = hw.decode_candidates(models["llama-3.1-8b"], "H100_SXM", "fp8", kinds=kinds, **load)
        assert {attention_kind(p) for p in found["attention"]} == set(np.atleast_1d(kinds).tolist())
    for bad, says in (({"kinds": ("date",)}, "kinds .*'date'"), ({"engine": "tgi"}, "engine must be one of"),
                      ({"batch": [0]}, "batch must be >= 1"), ({"output_tokens": [1, 2]}, "output_tokens must be one number"),
                      ({"recipes": ["fp9"]}, "recipes must be one of"), ({"gpus": (0,)}, "gpus must be >= 1")):  # fmt: skip
        with pytest.raises(ValueError, match=says):
            hw.decode_candidates(models["llama-3.1-8b"], "H100_SXM", **({"recipes": "fp8"} | load | bad))


@pytest.mark.parametrize("together", [False, True])
def test_no_layout_gives_no_candidate(models, together):
    load = {"gpus": 1, "batch": [1, 8], "input_tokens": 99, "output_tokens": 9, "kinds": ("cache",)}
    found = hw.decode_candidates(models["llama-3.1-8b"], "H100_SXM", "fp8", together=together, **load)
    assert {len(values) for values in found.values()} == {0}


@pytest.mark.parametrize(("name", "device", "form"), [("deepseek-r1", "GB300", "nvfp4"), ("llama-3.1-70b", "H100_SXM", "fp8")])
def test_prefill_on_the_same_gpus_is_that_of_a_server(models, name, device, form):
    """SGLang prefills in steps of its own; what it takes besides its kernels is known from servers alone."""
    load = {"gpus": (4, 8), "batch": [8, 24, 160], "input_tokens": 8192, "output_tokens": 1000, "engine": "sglang"}
    apart, found = (hw.decode_candidates(models[name], device, form, together=x, **load) for x in (False, True))
    assert (found["seconds"] > apart["seconds"]).all() and len(found["fits"]) == len(apart["fits"])
    assert not (found["fits"] & ~apart["fits"]).any()
    for i in np.random.default_rng(3).choice(len(found["fits"]), 30, replace=False):
        one = row(found, i)
        server = {"input_tokens": 8192, "output_tokens": 1000, "engine": "sglang", **plans_of(one)}
        served = hw.time_per_output_token(models[name], device, form, concurrency=int(one["batch"]), **server)
        served -= engine_seconds("sglang", len(models[name].blocks), one["batch"] / one["attention"].dp)
        assert one["batch"] % one["attention"].dp == 0 and one["seconds"] == pytest.approx(float(served), rel=1e-12)
        assert one["gpu_rate"] == pytest.approx(one["batch"] / served / one["gpus"], rel=1e-12)


def test_prefill_on_the_same_gpus_needs_its_room_beside_the_cache(r1):
    """The activations of a prompt and the cache of all other sequences are there at the same time."""
    found = hw.decode_candidates(r1, "GB300", "nvfp4", gpus=8, batch=[45, 64, 91, 128], together=True, **LONG)
    first = functools.cache(lambda a, f: hw.prefill_step(r1, "GB300", "nvfp4", batch=a.dp, context=131072, attention=a, ffn=f))
    held = []
    for i in np.flatnonzero(found["fits"]):
        one = row(found, i)
        decode = hw.decode_step(r1, "GB300", "nvfp4", batch=int(one["batch"]), context=int(one["context"]), **plans_of(one))
        held.append(decode.memory + first(one["attention"], one["ffn"]).activations)
    assert held and max(held) <= VLLM["GB300"]


# Prefill workers ----------------------------------------------------------------------------------------------------------


def one_way(pair):
    a, f = pair
    return sum(n > 1 for n in (a.tp, a.dp, a.kvp)) <= 1 and a.kvp == 1 and sum(n > 1 for n in (f.tp, f.ep)) <= 1 and not f.gather


@pytest.mark.parametrize(("name", "form"), [("deepseek-r1", "nvfp4"), ("llama-3.1-8b", "fp8")])
def test_one_stage_and_one_chunk_are_a_prefill_step(models, name, form):
    model = models[name]
    found = hw.prefill_workers(model, "GB300", form, tokens=6000, gpus=(1, 2, 8))
    pairs = [pair for n in (1, 2, 8) for pair in hw.layouts(model, n) if one_way(pair)]
    assert list(zip(found["attention"], found["ffn"], strict=True)) == pairs and len(pairs) >= 5
    for i, (a, f) in enumerate(pairs):
        step = hw.prefill_step(model, "GB300", form, batch=a.dp, context=6000, attention=a, ffn=f)
        assert found["first_token"][i] == pytest.approx(float(step.seconds), rel=1e-9)
        assert found["gpu_seconds"][i] == pytest.approx(float(step.seconds) * a.gpus / a.dp, rel=1e-9)  # dp prompts at a time
        assert found["gpus"][i] == a.gpus and found["stages"][i] == 1
        assert found["fits"][i] == (step.memory + step.activations <= VLLM["GB300"])


@pytest.mark.parametrize(("name", "stages"), [("llama-3.1-8b", (2, 4, 8)), ("deepseek-r1", (1, 4))])
def test_pipelines_are_scheduled_chunk_by_chunk(models, name, stages):
    model = models[name]
    found = hw.prefill_workers(model, "GB300", "nvfp4", tokens=20_000, gpus=(2,), stages=stages, chunk=8192)
    sizes = [8192, 8192, 20_000 - 2 * 8192]
    for i in range(len(found["fits"])):
        one, p = row(found, i), int(found["stages"][i])
        split = hw.stage_layers(len(model.blocks), p)
        load = {"sizes": sizes, "split": split, "batch": one["attention"].dp, **plans_of(one)}
        times, sent = stage_times(model, "GB300", "nvfp4", **load)
        ends = [0.0] * p  # of the last chunk in each stage
        for chunk, send in zip(times, sent, strict=True):
            ready = 0.0
            for stage in range(p):
                ends[stage] = max(ends[stage], ready) + chunk[stage]
                ready = ends[stage] + (send if stage < p - 1 else 0)
        assert one["first_token"] == pytest.approx(ends[-1], rel=1e-9) and one["gpus"] == 2 * p
        assert one["first_token"] == pytest.approx(schedule(times, send=sent)[1][-1, -1], rel=1e-9)
        slowest = max(sum(chunk[stage] for chunk in times) for stage in range(p))  # takes a prompt, and then the next
        assert one["gpu_seconds"] == pytest.approx(slowest * 2 * p / one["attention"].dp, rel=1e-9)
        assert one["gpu_seconds"] >= times.sum() * 2 / one["attention"].dp * (1 - 1e-9)  # with equal stages as much as with one
    assert found["stages"].tolist() == list(stages) * (len(found["fits"]) // len(stages))


def test_stages_share_the_weights_and_not_the_activations(models):
    model, tokens = models["llama-3.1-8b"], 8192
    matrices, cache = 2 * 8030261248, tokens * 32 * 2 * 8 * 128 * 2
    room = 8192 * (4096 + 4096 + 28672) * 2  # residual stream, input and output of the way up
    for p in (1, 2, 4):
        need = (matrices + cache) / p + room
        for spare in (-1000, 1000):
            small = dataclasses.replace(hw.device("H100_SXM"), memory_capacity=(need + 943e6 + spare) / 0.92)
            found = hw.prefill_workers(model, small, "bf16", tokens=tokens, gpus=(1,), stages=(p,))
            assert found["fits"].tolist() == [spare > 0]
            tenth = cache / p / 0.9  # TensorRT-LLM gives the cache nine tenths of what the rest leaves
            small = dataclasses.replace(small, memory_capacity=2 * 8030261248 / p + room + 943e6 + tenth + spare)
            found = hw.prefill_workers(model, small, "bf16", tokens=tokens, gpus=(1,), stages=(p,), engine="trtllm")
            assert found["fits"].tolist() == [spare > 0]


def test_a_short_rest_of_a_prompt_does_not_make_room_for_the_chunks_before_it(models):
    model, tokens = models["llama-3.1-8b"], 8192 + 8
    need = 2 * 8030261248 + tokens * 131072 + 8192 * (4096 + 4096 + 28672) * 2
    small = dataclasses.replace(hw.device("H100_SXM"), memory_capacity=(need + 943e6 - 1e6) / 0.92)
    assert hw.prefill_workers(model, small, "bf16", tokens=tokens, gpus=(1,))["fits"].tolist() == [False]


def test_one_gpu_needs_no_link(models):
    found = hw.prefill_workers(models["llama-3.1-8b"], "RTX_4090", "fp8", tokens=8192, gpus=(1,))
    step = hw.prefill_step(models["llama-3.1-8b"], "RTX_4090", "fp8", batch=1, context=8192)
    assert found["first_token"] == pytest.approx([float(step.seconds)], rel=1e-9)


@pytest.mark.parametrize(
    ("bad", "says"),
    [({"tokens": 0}, "tokens must be >= 1"), ({"chunk": 0}, "chunk must be >= 1"),
     ({"stages": 33}, "stages must be <= the 32 layers"), ({"gpus": (0,)}, "gpus must be >= 1"),
     ({"tokens": [1, 2]}, "tokens must be one number"), ({"engine": 0.9}, "engine must")],
)  # fmt: skip
def test_what_is_no_prefill_worker_is_refused(models, bad, says):
    with pytest.raises(ValueError, match=says):
        hw.prefill_workers(models["llama-3.1-8b"], "H100_SXM", "fp8", **({"tokens": 100, "gpus": (1,)} | bad))


# Two parts of a step ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_blocks_are_counted_once_each(models, name):
    counts = models[name].block_counts
    assert counts == {block: sum(b == block for b in models[name].blocks) for block in models[name].blocks}
    assert list(counts) == list(dict.fromkeys(models[name].blocks))


@pytest.mark.parametrize("name", CONFIGS)
def test_one_gpu_multiplies_each_parameter_once(models, name):
    for batch in (1, 5, 300):
        load = {"batch": batch, "context": 777}
        a, f = attention_part(models[name], Plan(), **load), feed_forward_part(models[name], Plan(), 1, **load)
        assert a.gemm_flops + f.gemm_flops == pytest.approx(2 * batch * models[name].matmul_parameters, rel=1e-12)
        assert {g.part for g in a.gemms} <= {"attention", "mamba", "head", "residual"} and not a.experts and f.cache_elements == 0
        assert {g.part for g in f.gemms} <= {"ffn", "experts", "shared experts", "router", "residual"} and not f.work


def copies(gemm, model, a, f, groups):
    """How many GPUs multiply the same token by the same part of a matrix."""
    same = a.tp * a.kvp
    shared = f.gpus // (1 if f.gather else min(f.ep, groups))  # GPUs with the same tokens in the feed-forward part
    return {"q down": same, "kv down": same, "q up": a.kvp, "q": a.kvp, "qkv": a.kvp, "router": shared,
            "shared gate": shared}.get(gemm.name, 1)  # fmt: skip


@pytest.mark.parametrize("name", [name for name in CONFIGS if is_plain(name)])
def test_all_gpus_together_multiply_each_parameter_once_and_what_is_copied_more_often(models, name):
    model, batch, rng = models[name], 48, np.random.default_rng(7)
    alone = {}
    for block, count in model.block_counts.items():
        for w in block.weights(model.hidden_size):
            if w.matmul:
                key = w.name.removeprefix("gate and ")
                alone[key] = alone.get(key, 0) + count * w.used * w.n * w.k
    alone["head"] = model.vocab_size * model.hidden_size
    pairs = [pair for n in (2, 4, 6, 8, 16) for pair in hw.layouts(model, n) if 48 % pair[0].dp == 0]
    for i in rng.choice(len(pairs), min(len(pairs), 25), replace=False):
        a, f = pairs[i]
        done = hw.step(model, batch=batch, context=99, attention=a, ffn=f)
        outer, inner = (
            attention_part(model, a, batch=batch, context=99),
            feed_forward_part(model, f, a.dp, batch=batch, context=99),
        )
        assert (done.gemms, done.exchanges) == (outer.gemms + inner.gemms, outer.exchanges + inner.exchanges)
        found, wanted = {}, {}
        for g in done.gemms:
            found[g.name] = found.get(g.name, 0.0) + a.gpus * float(g.flops)
            wanted[g.name] = 2 * batch * alone[g.name] * copies(g, model, a, f, a.dp)
        for mla in (b.mixer for b in model.blocks[:1] if hasattr(b.mixer, "kv_rank")):  # keys of all heads in every piece
            keys = sum(n for b, n in model.block_counts.items()) * mla.num_heads * mla.nope_dim * mla.kv_rank
            wanted["kv up"] += 2 * batch * keys * (a.kvp - 1)
        whole = {"qkv"} if any(getattr(b.mixer, "num_kv_heads", a.tp) % a.tp for b in model.blocks) else set()
        whole |= {"mamba in"} if any(getattr(b.mixer, "groups", a.gpus) % (a.tp * a.kvp) for b in model.blocks) else set()
        assert set(found) == set(wanted) == set(alone)
        for what in found:
            if what in whole:  # key-value heads and groups of states are copied
                assert wanted[what] < found[what] < a.gpus * wanted[what]
            else:  # or padded, by less than one column a GPU
                assert 1 - 1e-12 <= found[what] / wanted[what] <= (1.02 if what != "shared gate" else 1 + 1e-12), (what, a, f)
                exact = model.vocab_size % (a.tp * a.kvp) == 0 if what == "head" else what in ("q down", "kv down", "router")
                assert not exact or found[what] == pytest.approx(wanted[what], rel=1e-12)


@pytest.mark.parametrize("name", ["deepseek-r1", "llama-3.1-70b", "nemotron-3-nano-30b-a3b", "gpt-oss-120b"])
def test_the_feed_forward_part_knows_of_attention_its_groups_alone(models, name):
    pairs, load = hw.layouts(models[name], 8), {"batch": 40, "context": 5000}
    same = [(p, q) for p, q in itertools.combinations(pairs, 2) if p[1] == q[1] and p[0].dp == q[0].dp]
    assert len(same) >= 3
    for p, q in same[:40]:
        one, two = (hw.step(models[name], attention=a, ffn=f, **load) for a, f in (p, q))
        fed = [[g for g in s.gemms if g.part not in ("attention", "mamba", "head")] for s in (one, two)]
        assert fed[0] == fed[1] and one.experts == two.experts and fed[0]


def test_steps_add_up_and_hold_the_largest_operation():
    gemms = [Gemm(name=n, m=m, n=2, k=3, count=4) for n, m in (("a", 5), ("b", [1, 7]))]
    one = Step(gemms=gemms[:1], small_kernels=2, small_elements=8.0, scans=[Scan(state=1.5)])
    experts = [hw.Experts(tokens=2.0, pairs=4.0, touched=1.0, local=8, hidden=3, width=2)]
    two = Step(gemms=gemms[1:], experts=experts, small_kernels=5)
    both = one + two
    assert both.gemms == gemms and both.experts == two.experts and (one.gemms, two.gemms) == (gemms[:1], gemms[1:])
    assert (both.small_kernels, both.small_elements, both.state_elements) == (7, 8.0, 1.5)
    assert one.live_elements == 25 and two.live_elements.tolist() == [34, 35]  # 2 x 3 + 4 x (4 + 3) for the experts
    assert both.live_elements.tolist() == [34, 35] and Step().live_elements == 0


def test_plans_that_are_missing_are_one_gpu():
    assert same_gpus(None, None) == (Plan(), Plan()) and same_gpus(Plan(tp=2), Plan(ep=2)) == (Plan(tp=2), Plan(ep=2))
    with pytest.raises(ValueError, match="must use the same GPUs, got 2 and 1"):
        same_gpus(Plan(tp=2), None)
    with pytest.raises(ValueError, match="must have the same stages, got pp = 2 and 1"):
        same_gpus(Plan(pp=2), Plan(tp=2))


def equal(one, two):
    assert one.notes == two.notes and one.capacity == two.capacity and one.ideal == two.ideal
    assert list(one.terms) == list(two.terms)
    numbers = [[b.memory, b.activations, b.seconds, *b.terms.values()] for b in (one, two)]
    for x, y in zip(*numbers, strict=True):
        assert np.array_equal(x, y) and np.shape(x) == np.shape(y)


@pytest.mark.parametrize("name", CONFIGS)
def test_steps_that_share_parts_are_those_alone(models, name):
    model, rng = models[name], np.random.default_rng(8)
    pairs = [pair for n in (1, 4) for pair in hw.layouts(model, n)]
    pairs += [(Plan(tp=2, pp=2), Plan(tp=2, pp=2)), (Plan(dp=2, pp=2), Plan(tp=2, pp=2)), (Plan(pp=4), Plan(pp=4))]
    pairs = [pairs[i] for i in rng.permutation(len(pairs))]
    load = {"batch": np.array([1, 6, 50])[:, None], "context": np.array([100, 70_000])}
    decode = decode_steps(model, "H200", "fp8", pairs, **load)
    prefill = prefill_steps(model, "H200", "fp8", pairs, context=np.array([100, 5000]))
    assert len(decode) == len(prefill) == len(pairs)
    for i in rng.choice(len(pairs), min(len(pairs), 7), replace=False):
        plans = dict(zip(("attention", "ffn"), pairs[i], strict=True))
        equal(decode[i], hw.decode_step(model, "H200", "fp8", **load, **plans))
        batch = pairs[i][0].dp * pairs[i][0].pp
        equal(prefill[i], hw.prefill_step(model, "H200", "fp8", batch=batch, context=[100, 5000], **plans))


def test_a_step_notes_once_what_either_part_took_from_elsewhere(r1):
    plans = {"attention": Plan(dp=4, kvp=2), "ffn": Plan(ep=8)}
    notes = hw.decode_step(r1, "GB300", "mxfp4", batch=8, context=4096, **plans).notes
    assert len(set(notes)) == len(notes)
    for what in ("recipe mxfp4", "combine", "dispatch"):  # both parts, both parts, experts alone
        assert sum(note.startswith(what) for note in notes) == 1
    assert not hw.decode_step(r1, "GB300", "nvfp4", batch=8, context=4096).notes


def test_prefill_steps_take_a_list_of_contexts(models):
    (found,) = prefill_steps(models["llama-3.1-8b"], "H200", "fp8", [(Plan(), Plan())], context=[100, 5000])
    equal(found, hw.prefill_step(models["llama-3.1-8b"], "H200", "fp8", batch=1, context=[100, 5000]))


# Memory -------------------------------------------------------------------------------------------------------------------


def test_activations_of_a_prefill_by_hand(models, r1):
    llama = models["llama-3.1-8b"]
    one = hw.prefill_step(llama, "H100_SXM", "bf16", batch=1, context=8192)
    assert one.activations == 2 * 8192 * 4096 + 2 * 8192 * (4096 + 2 * 14336) == 603_979_776  # stream; the way up, gate and all
    assert one.memory == 2 * 8030261248 + 8192 * 131072  # the published 128 KiB a token
    two = hw.prefill_step(llama, "H100_SXM", "bf16", batch=1, context=8192, attention=Plan(tp=2), ffn=Plan(tp=2))
    assert two.activations == 2 * 8192 * 4096 + 2 * 8192 * (4096 + 14336)
    last = hw.prefill_step(llama, "H100_SXM", "bf16", batch=1, context=8192, cached=8191)
    assert last.activations == 2 * 4096 + 2 * (4096 + 128256)  # a token alone: the head is larger than all
    # eight experts of 256 for each of 8192 tokens: their input once, gate and up, and their outputs
    moe = hw.prefill_step(r1, "GB300", "nvfp4", batch=1, context=8192)
    assert moe.activations == 2 * 8192 * 7168 + 2 * (8192 * 7168 + 65536 * (2 * 2048 + 7168)) == 1_711_276_032
    many = hw.decode_step(llama, "H100_SXM", "bf16", batch=[1, 64], context=1000)
    assert many.activations.tolist() == [272_896, 64 * 272_896]
    formats = [hw.decode_step(llama, "H100_SXM", form, batch=1, context=99).activations for form in ("bf16", "fp8")]
    assert formats[0] == formats[1]  # held in BF16 whatever is multiplied


def test_the_fullest_gpu_holds_a_whole_prompt(models):
    """One prompt over two groups: one of them has all of it."""
    spread = {"attention": Plan(dp=2), "ffn": Plan(tp=2)}
    one, two = (hw.prefill_step(models["llama-3.1-8b"], "H100_SXM", "fp8", batch=n, context=8192, **spread) for n in (1, 2))
    stream, qkv, up = 8192 * 4096 * 2, 8192 * (4096 + 6144) * 2, 8192 * (4096 + 14336) * 2
    assert two.activations == stream + 2 * up and one.activations == stream + max(qkv, up)


@pytest.mark.parametrize("name", CONFIGS)
def test_one_gpu_holds_all_weights_and_the_cache(models, name):
    model = models[name]
    for form in ("bf16", "fp8"):
        done = hw.decode_step(model, "GB300", form, batch=3, context=5000)
        held = 3 * (model.kv_bytes(5000, hw.recipe(form).kv_cache) + model.state_bytes())
        assert done.memory == pytest.approx(sum(model.weight_bytes(form).values()) + held, rel=1e-12)


@given(st.floats(1, 3e11), st.floats(0, 1e11), st.floats(0.01, 1))
def test_without_an_engine_everything_may_be_used_and_with_one_its_share(memory, activations, share):
    step = hw.Breakdown(terms={"ffn": 1.0}, memory=memory, activations=activations, capacity=2e11)
    assert step.feasible == (memory + activations <= 2e11)
    part = dataclasses.replace(step, engine=Engine(name="own", label="own", version="1", memory_share=share))
    assume(abs(memory + activations - share * 2e11) > 1.0)
    assert part.feasible == (memory + activations <= share * 2e11)


def test_feasible_looks_at_each_batch():
    sizes = {"memory": np.array([60.0, 89.0, 90.0, 101.0]), "activations": 1.0, "capacity": 100.0}
    most = Engine(name="own", label="own", version="1", memory_share=0.9)
    assert hw.Breakdown(terms={"ffn": 1.0}, **sizes).feasible.tolist() == [True, True, True, False]
    assert hw.Breakdown(terms={"ffn": 1.0}, engine=most, **sizes).feasible.tolist() == [True, True, False, False]


def test_all_of_a_step_has_the_shape_of_its_load(models):
    load = {"batch": [[1], [3]], "context": [[900], [700]], "cached": [0, 100, 200]}
    step = hw.prefill_step(models["llama-3.1-8b"], "H100_SXM", "fp8", **load)
    found = step.seconds, step.memory, step.cache, step.activations, step.usable, step.feasible
    assert {np.shape(x) for x in found} == {(2, 3)}
    assert step.memory[1, 0] - step.memory[0, 0] == step.cache[1, 0] - step.cache[0, 0] == (3 * 700 - 900) * 65536


# Levers -------------------------------------------------------------------------------------------------------------------

NAMES = ["near-square experts", "a multiple of 512", "wide, not deep", "NVFP4", "wide expert parallelism", "pipelined prefill",
         "cut cache"]  # fmt: skip
STATES = {  # experts, width, top-k, hidden, copies, heads, latent, recipe, most GPUs, data, cache, stages; parameters by hand
    "none": (1024, 512, 32, 3600, 2, 64, 288, "fp8_block", 8, False, False, 1, 668_777_418_576),
    NAMES[0]: (256, 2048, 8, 3600, 2, 64, 288, "fp8_block", 8, False, False, 1, 668_456_612_688),
    NAMES[1]: (256, 2048, 8, 3584, 2, 64, 288, "fp8_block", 8, False, False, 1, 665_496_498_176),
    NAMES[2]: (256, 2048, 8, 7168, 1, 128, 576, "fp8_block", 8, False, False, 1, 671_026_419_200),  # published
    NAMES[3]: (256, 2048, 8, 7168, 1, 128, 576, "nvfp4", 8, False, False, 1, 671_026_419_200),
    NAMES[4]: (256, 2048, 8, 7168, 1, 128, 576, "nvfp4", 64, True, False, 1, 671_026_419_200),
    NAMES[5]: (256, 2048, 8, 7168, 1, 128, 576, "nvfp4", 64, True, False, 8, 671_026_419_200),
    NAMES[6]: (256, 2048, 8, 7168, 1, 128, 576, "nvfp4", 64, True, True, 8, 671_026_419_200),
}


def by_hand(experts, width, hidden, copies, heads, latent, used=None):
    """Parameters of R1 in another shape (3 of 61 layers dense, 8/9 of a latent rotate not), or those with `used` experts."""
    low, rope = latent * 8 // 9, latent // 9
    attention = hidden * (1536 + latent) + 1536 * heads * (128 + rope) + low * heads * (128 + 128) + heads * 128 * hidden
    vectors = 1536 + low + 2 * hidden
    sparse = (used or experts) * 3 * hidden * width + experts * (hidden + 1) + 3 * hidden * 2048  # router, its correction, shared
    layers = 61 * (attention + vectors) + 3 * 3 * hidden * 18432 + 58 * sparse
    return copies * layers + 2 * 129280 * hidden + hidden


@pytest.mark.parametrize("name", STATES)
def test_settings_of_each_lever_and_the_parameters_of_the_model(name):
    state = levers.lever_states()[name]
    experts, width, top_k, hidden, copies, heads, latent, recipe, gpus, data, cache, stages, parameters = STATES[name]
    assert state == {"experts": experts, "width": width, "top_k": top_k, "hidden": hidden, "copies": copies, "heads": heads,
                     "latent": latent, "recipe": recipe, "data": data, "cache": cache,
                     "gpus": (1, 2, 4, 8, 16, 32, 64) if gpus == 64 else (8,),
                     "stages": (1, 2, 4, 8) if stages == 8 else (1,)}  # fmt: skip
    model = levers.shaped(state)
    assert model.parameters == by_hand(experts, width, hidden, copies, heads, latent) == parameters
    assert model.kv_bytes_per_token("fp8") == 61 * 576 == 70272 / 2  # published, in BF16: no state has another cache
    assert len(model.blocks) == 61 * copies and model.hidden_size == hidden
    active = model.active_parameters(include_embedding=True)
    assert active == by_hand(experts, width, hidden, copies, heads, latent, used=top_k)
    assert (active == 37_552_297_472) == (hidden == 7168)  # published
    assert abs(parameters / 671_026_419_200 - 1) < 0.01  # siblings of one size


def test_the_levers_end_at_deepseek_r1(r1):
    states = levers.lever_states()
    assert list(states) == ["none", *NAMES] and levers.shaped(states["cut cache"]) == r1 != levers.shaped(states["none"])
    assert levers.START["experts"] == 1024 and levers.lever_states()["none"] is not levers.START  # nothing was overwritten


@pytest.mark.parametrize("name", NAMES)
def test_a_lever_can_be_left_out(name):
    every, fewer = levers.lever_states(), levers.lever_states(without=name)
    assert list(fewer) == [n for n in every if n != name]
    before, last = list(every)[list(every).index(name) - 1], list(fewer.values())[-1]
    changed = {key for key, value in every["cut cache"].items() if last[key] != value}
    touched = {key for key in levers.START if every[before][key] != every[name][key]}
    if name == "a multiple of 512":  # the next but one sets the hidden size anew
        assert changed == set() and touched == {"hidden"}
    else:
        assert changed == touched and all(last[key] == every[before][key] for key in touched)


def test_an_unknown_lever_is_refused():
    with pytest.raises(ValueError, match="without"):
        levers.lever_states(without="cut cash")
    with pytest.raises(ValueError, match="workload must be one of short, long, got 'middle'"):
        levers.deployment(levers.START, "middle")


@pytest.fixture(scope="module")
def deployments():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return {load: {name: levers.deployment(state, load) for name, state in levers.lever_states().items()}
                for load in ("short", "long")}  # fmt: skip


@pytest.mark.parametrize(("load", "low", "high"), [("short", 7.6, 9.4), ("long", 6.8, 8.4)])
def test_seven_levers_multiply_the_area(r1, long_candidates, deployments, load, low, high):
    found = deployments[load]
    areas = [d["area"] for d in found.values()]
    factors = [b / a for a, b in itertools.pairwise(areas)]
    assert all(f > 0.999 for f in factors) and low < math.prod(factors) < high
    assert max(factors[:2]) < 1.02  # then wide layers, four bits against blocks of FP8, wide parallelism
    assert factors[2:5] == pytest.approx({"short": (1.55, 1.79, 2.95), "long": (1.78, 1.25, 2.80)}[load], rel=0.05)
    # the ends once more, without the settings of the levers
    prompt, answer, limit = {"short": (8192, 1024, 1.0), "long": (131072, 8192, 5.0)}[load]
    assert levers.WORKLOADS[load] == (prompt, answer, limit)
    workers = hw.prefill_workers(r1, "GB300", "nvfp4", tokens=prompt, gpus=(1, 2, 4, 8), stages=(1, 2, 4, 8))
    allowed = [c for c, t, fit in zip(workers["gpu_seconds"], workers["first_token"], workers["fits"], strict=True)
               if fit and t <= limit]  # fmt: skip
    every = long_candidates
    if load == "short":
        lengths = {"input_tokens": prompt, "output_tokens": answer}
        every = hw.decode_candidates(r1, "GB300", "nvfp4", gpus=COUNTS[:-1], batch=levers.BATCHES, **lengths)
    columns = (every[name] for name in ("user_rate", "gpu_rate", "fits", "gpus"))
    points = [(u, 1 / (1 / g + min(allowed) / answer)) for u, g, fits, n in zip(*columns, strict=True) if fits and n <= 64]
    total, best, last = 0.0, 0.0, None
    for user, rate in sorted(points, reverse=True):  # from the right: the height never falls
        total += 0.0 if last is None else (last - user) * best
        best, last = max(best, rate), user
    assert areas[-1] == pytest.approx(total + last * best, rel=1e-9)
    assert math.prod(factors) == pytest.approx((total + last * best) / found["none"]["area"], rel=1e-9)


@pytest.mark.parametrize("load", ["short", "long"])
def test_deployments_use_what_their_levers_allow(deployments, load):
    limit = levers.WORKLOADS[load][2]
    for (name, found), state in zip(deployments[load].items(), levers.lever_states().values(), strict=True):
        c, worker = found["candidates"], found["prefill"]
        assert {r.name for r in c["recipe"]} == {state["recipe"]} and set(c["gpus"]) <= set(state["gpus"]) and c["fits"].all()
        kinds = {attention_kind(p) for p in c["attention"]}
        assert kinds == {"tensor"} | ({"data"} if state["data"] else set()) | ({"cache"} if state["cache"] else set()), name
        assert worker["fits"] and worker["first_token"] <= limit and worker["stages"] in state["stages"]
        assert worker["attention"].gpus in (1, 2, 4, 8) and worker["gpus"] == worker["attention"].gpus * worker["stages"]
        seconds = 1 / c["gpu_rate"] + worker["gpu_seconds"] / levers.WORKLOADS[load][1]  # GPU seconds of a token
        assert c["total_rate"] * seconds == pytest.approx(np.ones(len(seconds)), rel=1e-12)
        user, rate = (c[r][found["front"]] for r in ("user_rate", "total_rate"))
        assert (np.diff(user) < 0).all() and (np.diff(rate) > 0).all()
        assert user[0] == c["user_rate"].max() and rate[-1] == c["total_rate"].max()


def test_a_first_token_that_comes_too_late_is_an_error():
    state = levers.lever_states()["NVFP4"]
    workers = hw.prefill_workers(levers.shaped(state), "GB300", "nvfp4", tokens=8192, gpus=(1, 2, 4, 8))
    least = workers["first_token"][workers["fits"]].min()
    found = levers.deployment(state, (8192, 1024, least * 1.0001))
    assert found["prefill"]["first_token"] == least and found["area"] > 0
    with pytest.raises(ValueError, match=rf"first token must be allowed {least:.2f} s, got 0.01 s"):
        levers.deployment(state, (8192, 1024, 0.01))


def test_the_error_speaks_of_workers_that_fit(monkeypatch):
    def full(*given, honest=levers.prefill_workers, **more):
        workers = honest(*given, **more)
        return workers | {"fits": workers["first_token"] > np.median(workers["first_token"])}  # the fast ones have no room

    monkeypatch.setattr(levers, "prefill_workers", full)
    state, tokens = levers.lever_states()["NVFP4"], 8191  # a length that no other test remembers
    workers = full(levers.shaped(state), "GB300", "nvfp4", tokens=tokens, gpus=(1, 2, 4, 8))
    least = workers["first_token"][workers["fits"]].min()
    with pytest.raises(ValueError, match=rf"first token must be allowed {least:.2f} s, got 0.01 s"):
        levers.deployment(state, (tokens, 1024, 0.01))


# Regimes ------------------------------------------------------------------------------------------------------------------


def test_amdahl_where_attention_takes_77_percent():
    for share, published in ((Fraction(77, 100), "1.63"), (Fraction(23, 100), "1.13")):  # attention or all else twice as fast
        assert f"{float(amdahl_speedup(float(share), 2)):.2f}" == published == f"{float(1 / (1 - share + share / 2)):.2f}"


def test_long_context_and_throughput_spend_their_time_in_attention(r1, long_candidates):
    c = long_candidates
    there = np.flatnonzero(c["fits"] & (c["user_rate"] >= 20))
    best = row(c, there[c["gpu_rate"][there].argmax()])
    assert 26 < best["batch"] / best["gpus"] < 28 and best["user_rate"] >= 20
    step = hw.decode_step(r1, "GB300", "nvfp4", batch=int(best["batch"]), context=131072 + 4096, **plans_of(best))
    share = float(step.share("attention"))
    assert 0.70 < share < 0.76 and max(step.terms, key=step.terms.get) == "attention"
    faster = float(step.seconds) - float(step.terms["attention"]) / 2
    assert abs(float(step.seconds) / faster - 1.63) < 0.06 and abs(1 / (1 - (1 - share) / 2) - 1.13) < 0.03
    short = hw.decode_candidates(r1, "GB300", "nvfp4", gpus=COUNTS, batch=levers.BATCHES, input_tokens=8192, output_tokens=1024)
    shares = []
    for found in (c, short):  # and the fastest answers: shares of attention are smaller
        one = row(found, np.where(found["fits"], found["user_rate"], 0).argmax())
        done = hw.decode_step(r1, "GB300", "nvfp4", batch=int(one["batch"]), context=int(one["context"]), **plans_of(one))
        shares.append(float(done.share("attention")))
    assert shares[1] < shares[0] < share - 0.3
