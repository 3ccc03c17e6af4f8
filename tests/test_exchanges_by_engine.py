"""Exchanges and small kernels take the constants of the engine that runs them."""

import csv
from importlib import resources

import numpy as np
import pytest

import hwdesign as hw
from hwdesign.models.steps import Exchange, Step
from hwdesign.timing import kernels
from hwdesign.timing.calibration import constants
from hwdesign.timing.clock import Clock

ENGINES = ("sglang", "trtllm", "vllm")
RACKS, HOSTS = ("GB300", "GB200"), ("B300", "B200", "H200", "H100_SXM")
INF = float("inf")


def accuracy():
    text = resources.files("hwdesign.timing").joinpath("data", "accuracy.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def seconds(card, engine, kind="all-reduce", elements=7168.0, ranks=8, recipe="bf16"):
    exchange = Exchange(kind=kind, elements=elements, ranks=ranks)
    return float(Clock(card, recipe, engine=engine).exchange(exchange, hw.recipe(recipe)).seconds)


@pytest.mark.parametrize("card", [*RACKS, *HOSTS, "A100_SXM", "RTX_PRO_6000"])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_has_an_all_reduce_of_its_own(card, engine):
    found = constants("all-reduce", card, "", engine)
    assert found.measured and found.framework == engine and len(found) <= 9
    assert found["bandwidth"] * max(1, found.get("near", 1)) <= 1
    assert Clock(card, "bf16", engine=engine).constants("all-reduce")[0] == found


def test_without_an_engine_the_all_reduce_is_the_one_that_spans_a_rack():
    for ranks in (2, 8, 16):
        assert seconds("GB300", None, ranks=ranks) == seconds("GB300", "trtllm", ranks=ranks)
    assert seconds("GB300", "sglang") > 3 * seconds("GB300", "trtllm")  # a library's, beyond a tray
    assert seconds("GB300", "sglang", ranks=4) < seconds("GB300", "trtllm", ranks=4)


@pytest.mark.parametrize("card", [*RACKS, *HOSTS])
@pytest.mark.parametrize("engine", ENGINES)
def test_no_all_reduce_beats_a_tensor_sent_once(card, engine):
    elements, link = np.logspace(2, 9, 40), hw.device(card).link_bandwidth
    for ranks in (2, 4, 8):
        exchange = Exchange(kind="all-reduce", elements=elements, ranks=ranks)
        timed = Clock(card, "bf16", engine=engine).exchange(exchange, hw.recipe("bf16"))
        assert (timed.seconds > 2 * elements / link).all() and timed.seconds.shape == (40,)


def test_vllm_on_b200_pays_for_a_mebibyte_where_one_shot_ends():
    before, inside, after = (seconds("B200", "vllm", elements=n * 2**10 / 2) for n in (128, 256, 1024))
    assert before == pytest.approx(9.4e-6, rel=0.05) and inside == seconds("B200", "vllm", elements=2**18)
    assert inside == pytest.approx(after, rel=1e-3) and after == pytest.approx(17.2e-6, rel=0.15)  # published: 9.4, 26.1, 17.2 us


def test_one_constant_of_the_new_ones_at_a_time():
    off = {"latency": 0, "doubling": 0, "second": 0, "bandwidth": 1, "step": 0, "far": 0}
    reduce, only = kernels.all_reduce_seconds, {"latency": 0, "doubling": 0, "bandwidth": 1}
    assert reduce(8.0, 8, 2.0, only | {"second": INF, "near": 2}) == 8 * 7 / 2 / 2
    assert reduce(8.0, 8, 2.0, only | {"second": 0, "switched": 2}) == 8 / 2 / 2
    assert reduce(8.0, 8, 2.0, only | {"second": 0, "switched": 0.1}) == 2 * 7 / 2  # two shots are faster
    assert reduce(8.0, 8, 2.0, off | {"far": 5, "step": 1}) == 5 + 7 + 7
    assert reduce(8.0, 4, 2.0, off | {"far": 5, "step": 1}) == 2 * 8 * 3 / 4 / 2  # inside a tray
    gap = off | {"far": 5, "step": 1, "reach": 32.0}
    assert reduce(np.array([4.0, 8.0, 16.0, 32.0]), 4, 2.0, gap).tolist() == [6, 12, 12, 24]
    assert reduce(8.0, 4, 2.0, gap | {"far": 1}) == 1 + 3 + 6  # a library's
    ring = kernels.ring_seconds(8.0, 8, 2.0, off | {"fill": 14.0})
    assert ring == 3.5 + 7  # 3.5 s on the wire, the root of 14 x 3.5
    assert kernels.all_to_all_seconds(8.0, 8, 2.0, {"latency": 1, "bandwidth": 1}) == 5


def test_the_best_number_of_pieces_leaves_a_root():
    piece, wire = 1e-6, 4e-4
    n = np.arange(1, 1000)
    best = ((n + 1) * (piece + wire / n)).min()
    assert kernels.pipelined_seconds(wire, piece, 1.0, 4 * piece) == pytest.approx(best, rel=1e-3)


def test_a_send_is_a_ring_of_one_step():
    ring, link = constants("ring", "B200", ""), 900e9
    wire = 2 * 1e6 / (ring["bandwidth"] * link)
    expected = ring["latency"] + wire + np.sqrt(ring["fill"] * wire)
    assert seconds("B200", "vllm", "send", 1e6, 2) == pytest.approx(expected)


def test_deepep_is_the_faster_of_its_two_kernels_and_only_of_the_engines_that_take_it():
    for phase in ("dispatch", "combine"):
        few, many = (seconds("H200", "sglang", phase, n * 4.63 * 7168.0) for n in (1, 1e5))
        for found, kernel in ((few, "low latency"), (many, "high throughput")):
            c = constants(f"{phase} {kernel}", "H200", "", "sglang")
            n = 1 if kernel == "low latency" else 1e5
            assert found == pytest.approx(kernels.all_to_all_seconds(n * 4.63 * 7168 * 2, 8, 450e9, c))
        assert seconds("H200", "vllm", phase) == seconds("H200", "sglang", phase)
        assert seconds("GB200", "vllm", phase) == seconds("GB200", "trtllm", phase) == seconds("GB200", None, phase)
        assert seconds("GB200", "sglang", phase, ranks=64) > seconds("GB200", "sglang", phase, ranks=4)


def test_small_kernels_by_engine():
    def timed(card, engine, kernels=1, elements=0.0):
        return float(Clock(card, "bf16", engine=engine).small(Step(small_kernels=kernels, small_elements=elements)).seconds)

    for card in (*RACKS, *HOSTS):
        times = {engine: timed(card, engine) for engine in ENGINES}
        assert all(1e-6 < t < 3e-6 for t in times.values()) and len(set(times.values())) == 3
    h100, c = hw.device("H100_SXM"), constants("small kernel", "H100_SXM", "", "vllm")
    moved = timed("H100_SXM", "vllm", 2, 1e9) - timed("H100_SXM", "vllm", 2)
    assert moved == pytest.approx(2e9 / (c["bandwidth"] * h100.memory_bandwidth))
    assert timed("H100_SXM", "vllm", 0) == 0


def test_held_out_errors():
    rows = [r for r in accuracy() if r["subset"] == "all"]
    rows = [r for r in rows if r["device"] in (*RACKS, *HOSTS)]
    mean = {op: [float(r["mape"]) for r in rows if r["operation"] == op] for op in {r["operation"] for r in rows}}
    assert np.median(mean["all-reduce"]) < 7.5 and max(mean["all-reduce"]) < 15
    assert max(mean["ring"]) < 10  # a ring without pieces: 13 to 16
    assert max(mean["dispatch"] + mean["combine"]) < 6 and max(mean["small kernel"]) < 18
    assert max(mean["dispatch low latency"]) < 10 and max(mean["combine high throughput"]) < 16
    decode = [r for r in accuracy() if (r["operation"], r["subset"]) == ("all-reduce", "decode") and r["device"] in HOSTS]
    decode = [float(r["mape"]) for r in decode if r["framework"] in ENGINES]  # of the newest versions
    assert len(decode) == 12 and np.median(decode) < 5
