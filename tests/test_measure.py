"""The measuring room: stop-watch on a fake clock, CUDA branches on a stub, real timings of this machine, files, refusals."""

import dataclasses
import json
import math
import os
import re
import subprocess
import sys
import types
import weakref
from pathlib import Path

import numpy as np
import pytest
from stub_torch import RATES, OutOfMemoryError, stub

import hwdesign as hw
from hwdesign import cli
from hwdesign.measure import backends, collectives, machine, suite
from hwdesign.measure.backends import Backend, TorchBackend, available
from hwdesign.measure.collectives import _backend_name, measure_collectives
from hwdesign.measure.gemm import flag_slow_paths, measure_launch
from hwdesign.measure.machine import catalogue_name
from hwdesign.measure.runs import Measurement, Skipped, combine, judged
from hwdesign.measure.suite import summary, summary_lines
from hwdesign.measure.timer import time_calls

ROOT = Path(hw.__file__).parents[1]
SOFTWARE = {"python": "3.11", "torch": "2.9", "numpy": "2.0"}


def taken(operation="gemm", seconds=1e-3, precision="bf16", device="NVIDIA H200", **other):
    """A measurement made up for a test."""
    shapes = {"gemm": {"m": 512, "n": 512, "k": 512}, "copy": {"elements": 2**22}, "launch": {"elements": 16},
              "attention_decode": {"batch": 1, "context": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128}}  # fmt: skip
    fixed = {"spread": 0.0, "repeats": 9, "backend": "torch-cuda", "software": SOFTWARE, "taken_on": "2026-01-31"}
    named = {"device": device, "device_name": catalogue_name(device), "shape": shapes.get(operation)}
    return Measurement(operation=operation, seconds=seconds, precision=precision, **(fixed | named | other))


def gpu(**properties):
    """A backend on a stub: a small cache keeps the test quick."""
    return TorchBackend(stub(**({"device": "NVIDIA Test GPU", "l2": 2**18} | properties)), "cuda")


@pytest.fixture
def small_cache(monkeypatch):
    """NumPy and torch on the CPU, with a cache that is quickly exceeded."""
    monkeypatch.setattr(machine, "cpu_cache", lambda: (2.0**22, "set by the test"))
    monkeypatch.setattr(Backend, "arenas", {})
    return available()


# The stop-watch -----------------------------------------------------------------------------------------------------------


def test_warm_up_is_not_counted_and_medians_are_used():
    now, calls = [0.0], []

    def call():
        calls.append(1)
        slow = len(calls) <= 3 or len(calls) % 3 == 0  # the warm-up, and one of each three repeats
        now[0] += 50.0 if slow else 2.0

    timing = time_calls([call], budget=1e9, clock=lambda: now[0])
    assert (timing.seconds, timing.spread) == (2.0, 0.0)
    assert timing.repeats == 60 and len(calls) == 3 + 60


def test_short_calls_are_made_many_times_between_two_readings():
    now, calls = [0.0], []

    def call():
        calls.append(1)
        now[0] += 1e-6

    timing = time_calls([call], clock=lambda: round(now[0] / 1e-4) * 1e-4 + 1e-6 * (now[0] < 1e-5))  # a coarse clock
    assert len(calls) >= 200 * timing.repeats and timing.repeats == 60


def test_calls_take_their_turn():
    order = []
    time_calls([lambda: order.append(0), lambda: order.append(1), lambda: order.append(2)])
    assert order[:7] == [0, 1, 2, 0, 1, 2, 0]


def test_rounds_are_combined_to_the_best_and_the_way_to_the_worst():
    m = taken(seconds=2e-3)
    both = combine([dataclasses.replace(m, seconds=s) for s in (5e-3, 2e-3, 3e-3)])
    assert both.seconds == 2e-3 and both.spread == pytest.approx(3e-3) and both.repeats == 27


# CUDA, on a stub ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp8", "nvfp4", "fp32"])
def test_gemm_on_cuda_is_timed_by_events_and_its_result_checked(precision):
    backend = gpu(capability=(10, 0), floor=1e-9)
    m = hw.measure_gemm(64, 96, 128, precision, backend, rounds=2)
    rate = RATES[backend.dtypes[precision].name]
    size = {"nvfp4": 0.5, "fp8": 1, "bf16": 2, "fp16": 2, "fp32": 4}[precision]
    moved = (64 * 128 + 96 * 128) * size + 64 * 96 * max(2, size)
    assert m.seconds == pytest.approx(max(2 * 64 * 96 * 128 / rate, moved / 4e12), rel=1e-9)
    assert m.flags == () and m.backend == "torch-cuda" and m.device == "NVIDIA Test GPU" and m.device_name is None
    assert m.software["cuda"] == "99.9" and "driver" in m.software and m.spread < 1e-12
    assert "replay" in backend.torch.log and "capture" in backend.torch.log


def test_without_a_graph_events_time_single_calls_and_a_flag_says_so():
    backend = gpu(graphs=False)
    m = hw.measure_gemm(64, 64, 64, "bf16", backend, rounds=2)
    assert m.seconds == pytest.approx(2e-6) and "replay" not in backend.torch.log
    assert m.flags == ("no CUDA graph: the calls were started one by one, short ones wait for Python "
                       "(operation not permitted when stream is capturing)",)  # fmt: skip


@pytest.mark.parametrize("measure", [
    lambda gpu: hw.measure_gemm(64, 64, 64, "bf16", gpu, rounds=1), lambda gpu: measure_launch(gpu, rounds=1),
    lambda gpu: hw.measure_copy(2**12, gpu, rounds=1), lambda gpu: hw.measure_attention(2, 64, 8, 2, 32, "bf16", gpu, rounds=1),
])  # fmt: skip
def test_a_replay_that_does_nothing_is_found(measure):
    assert measure(gpu()).flags == ()
    assert measure(gpu(idle=True)).flags[0].startswith("wrong result: ")


@pytest.mark.parametrize("graphs", [True, False])
def test_the_shortest_kernel_is_not_the_time_python_takes_to_replay(graphs):
    assert measure_launch(gpu(graphs=graphs), rounds=1).seconds == pytest.approx(2e-6)
    assert hw.measure_gemm(16, 16, 16, "bf16", gpu(graphs=graphs), rounds=1, rotate=False).seconds == pytest.approx(2e-6)


def test_the_current_device_is_meant_and_what_torch_reserved_is_free():
    backend = gpu(device="NVIDIA H200", index=3, memory=1e9, reserved=5e8)
    assert backend.device == "NVIDIA H200" and backend.free() == 1.5e9


def test_memory_returns_after_a_failure():
    backend, seen = gpu(fails={"bfloat16": OutOfMemoryError("CUDA out of memory.")}), []
    gemm = backend.gemm
    backend.gemm = lambda precision, a, w, out: seen.append(weakref.ref(a)) or gemm(precision, a, w, out)
    backend.release = lambda: seen.append([ref() for ref in seen])
    hw.measure_gemm(64, 64, 64, "bf16", backend, rounds=1)
    assert seen[-1] and not any(seen[-1])  # nothing holds the operands when the memory is given back


def test_the_arenas_together_exceed_the_cache_four_times():
    backend = gpu(l2=2**20)
    backend.operands("bf16", [(256, 256), (256, 256)], [(256, 256)])
    sizes = {bits: len(flat) for bits, (flat, _) in backend.arenas.items()}
    assert 4 * 2**20 <= sum(sizes.values()) < 6 * 2**20 and sizes["bf16"] == pytest.approx(2 * sizes["output"], rel=0.1)


def test_the_working_set_exceeds_four_times_the_cache():
    backend = gpu(l2=2**20)
    sets, flags = backend.operands("bf16", [(64, 64), (64, 64)], [(64, 64)])
    assert flags == () and len(sets) == math.ceil(4 * 2**20 / (3 * 64 * 64 * 2))
    starts = {array.raw.__array_interface__["data"][0] for arrays in sets for array in arrays}
    assert len(starts) == 3 * len(sets)  # no two operands share memory
    first, second = (backend.operands("bf16", [(8, 8)], [(8, 8)])[0][0][0] for _ in range(2))
    assert not np.shares_memory(first.raw, second.raw)  # the next measurement does not start where the last one was


def test_data_is_random_and_differs_between_operands():
    for precision in ("bf16", "fp8", "nvfp4", "fp32"):
        backend = gpu(capability=(10, 0))
        (a, b, _), *_ = backend.operands(precision, [(64, 64), (64, 64)], [(64, 64)])[0]
        x, y = backend.double(a, precision), backend.double(b, precision)
        assert np.unique(x).size > (8 if precision == "nvfp4" else 50) and not np.array_equal(x, y) and np.isfinite(x).all()
    cpu = TorchBackend(stub(), "cpu")
    for precision in ("fp16", "fp8"):
        (a, b, _), *_ = cpu.operands(precision, [(64, 64), (64, 64)], [(64, 64)], rotate=False)[0]
        x, y = cpu.double(a, precision), cpu.double(b, precision)
        assert np.unique(x).size > 50 and not np.array_equal(x, y) and x.std() == pytest.approx(1, rel=0.1)
    assert gpu().double(gpu().operands("fp16", [(64, 64)], [(64, 64)])[0][0][0], "fp16").std() == pytest.approx(1, rel=0.1)


def test_a_cache_is_known_from_the_catalogue_the_device_or_assumed():
    assert (gpu(device="NVIDIA H200").cache, gpu(device="NVIDIA H200").cache_from) == (hw.H200.l2, "catalogue")
    assert (gpu().cache, gpu().cache_from) == (2**18, "told by the device")
    assert (gpu(l2=None).cache, gpu(l2=None).cache_from) == (2**27, "assumed, unknown")


def test_too_small_a_working_set_is_said():
    m = hw.measure_copy(2**22, gpu(device="NVIDIA GeForce RTX 4090", bandwidth=3.868e12, floor=1e-6), rounds=1, rotate=False)
    size, fast = m.flags
    assert size == "working set: 33.6 MB is less than 4 x the cache of 75.5 MB (catalogue): the time may be too good"
    assert fast.startswith("impossible: 3.87 TB/s is above the 1.01 TB/s of the datasheet of RTX_4090")  # nvbench pull 207
    assert hw.measure_copy(2**22, gpu(device="NVIDIA GeForce RTX 4090", bandwidth=0.9e12), rounds=1).flags == ()
    tight = hw.measure_copy(2**16, gpu(memory=12e6, l2=2**21), rounds=1)
    assert tight.flags[0].startswith("working set: 2.62 MB is less than 4 x the cache of 2.1 MB (told by the device)")


def test_out_of_memory_is_one_line_and_the_rest_goes_on():
    backend = gpu(memory=50e6)
    big = hw.measure_gemm(8192, 8192, 8192, "bf16", backend)
    assert str(big) == "gemm bf16: skipped, out of memory: it needs 805 MB, 50 MB are free"
    assert isinstance(hw.measure_gemm(64, 64, 64, "bf16", backend, rounds=1), Measurement)
    thrown = hw.measure_gemm(64, 64, 64, "bf16", gpu(fails={"bfloat16": OutOfMemoryError("CUDA out of memory.\nmore")}))
    assert str(thrown) == "gemm bf16: skipped, CUDA out of memory."


def test_old_gpus_and_old_torch_say_what_is_missing():
    t4 = gpu(device="Tesla T4", capability=(7, 5), formats=())
    assert t4.device_name == "T4" and t4.precisions == ("fp16", "fp32")
    said = str(hw.measure_gemm(64, 64, 64, "bf16", t4))
    assert said == "gemm bf16: skipped, bf16 needs compute capability 8.0, this GPU has 7.5"
    h200 = gpu(device="NVIDIA H200")
    assert h200.missing["nvfp4"] == "nvfp4 needs compute capability 10.0 (Blackwell), this GPU has 9.0"
    assert h200.precisions == ("bf16", "fp16", "fp8", "fp32")
    b200 = gpu(device="NVIDIA B200", capability=(10, 0), formats=("fp8",))
    assert b200.missing["nvfp4"] == "torch 9.9.9+stub has no nvfp4 matrix multiplication"
    assert gpu(scaled_mm=False).missing["fp8"] == "torch 9.9.9+stub has no fp8 matrix multiplication"
    refused = gpu(capability=(10, 0), fails={"float4_e2m1fn_x2": NotImplementedError("no kernel for this\nbacktrace")})
    assert str(hw.measure_gemm(64, 64, 64, "nvfp4", refused)) == "gemm nvfp4: skipped, no kernel for this"
    other = gpu(fails={"float8_e4m3fn": TypeError("_scaled_mm() got an unexpected argument"), "bfloat16": TypeError("a bug")})
    assert str(hw.measure_gemm(64, 64, 64, "fp8", other)) == "gemm fp8: skipped, _scaled_mm() got an unexpected argument"
    with pytest.raises(TypeError, match="a bug"):
        hw.measure_gemm(64, 64, 64, "bf16", other)


@pytest.mark.parametrize(
    ("wide", "narrow", "seconds", "said"),
    [("fp32", "fp16", 1e-3, "fp16 runs at 1 times the speed of fp32"), ("bf16", "fp8", 0.5, "0.002 times the speed of bf16"),
     ("fp32", "bf16", 9.5e-4, "1.05 times"), ("fp32", "fp16", 9e-4, None), ("fp8", "nvfp4", 1e-3, "nvfp4 runs at 1 times")],
)  # fmt: skip
def test_each_format_is_judged_against_the_next_wider_one(wide, narrow, seconds, said):
    long = {"m": 512, "n": 512, "k": 4096}
    flags = flag_slow_paths([taken(precision=wide, shape=long), taken(seconds=seconds, precision=narrow, shape=long)])[1].flags
    assert said in flags[0] if said else flags == ()
    assert flag_slow_paths([taken(seconds=seconds, precision=narrow, shape=long)])[0].flags == ()  # nothing to compare it with


def test_torch_on_a_cpu_says_what_it_multiplies():
    backend = TorchBackend(stub(), "cpu")
    assert backend.precisions == ("fp32", "bf16", "fp16", "fp8")
    assert backend.missing == {"fp64": "torch is timed in fp32 and below", "nvfp4": "torch multiplies no nvfp4 on a CPU"}
    for old in (stub(formats=()), stub(scaled_mm=False)):
        backend = TorchBackend(old, "cpu")
        assert backend.precisions == ("fp32", "bf16", "fp16")
        said = str(hw.measure_gemm(16, 16, 16, "fp8", backend))
        assert said == "gemm fp8: skipped, torch 9.9.9+stub has no fp8 matrix multiplication"


def test_more_than_the_peak_is_impossible():
    l4 = gpu(device="NVIDIA L4", rates={"bfloat16": 5e14}, floor=1e-9, bandwidth=1e15)
    m = hw.measure_gemm(256, 256, 256, "bf16", l4, rounds=1, rotate=False)
    assert any(re.match(r"impossible: 500 TFLOP/s is above the dense bf16 peak of L4, 121 TFLOP/s", flag) for flag in m.flags)
    assert summary([m])["rate"] == {}
    cube = {"m": 8192, "n": 8192, "k": 8192}
    for headroom, flags in ((1.14, 0), (1.16, 1)):  # on the 989 TFLOP/s of an H200 at its boost clock
        assert len(judged(taken(seconds=2 * 8192**3 / (headroom * 9.89e14), shape=cube)).flags) == flags
        for operation, sent in (("all_reduce", 1.0), ("all_gather", 7 / 8)):  # a switch that reduces: all is sent once
            shape, seconds = {"nbytes": 2**30, "ranks": 8}, sent * 2**30 / (headroom * hw.H200.link_bandwidth)
            m = taken(operation, seconds, "fp32", shape=shape, backend="nccl")
            assert len(judged(m).flags) == flags


@pytest.mark.parametrize("fault", ["wrong", "dead"])
@pytest.mark.parametrize("precision", ["bf16", "fp8", "nvfp4"])
def test_a_wrong_result_is_found(precision, fault):
    m = hw.measure_gemm(64, 64, 64, precision, gpu(capability=(10, 0), **{fault: True}), rounds=1)
    assert m.flags[0].startswith("wrong result: ") and "do not use this time" in m.flags[0]
    assert summary([m])["rate"] == {}


def test_wrong_attention_is_found():
    assert hw.measure_attention(2, 64, 8, 2, 32, "bf16", gpu(), rounds=1).flags == ()
    assert hw.measure_attention(2, 64, 8, 2, 32, "bf16", gpu(wrong=True), rounds=1).flags[0].startswith("wrong result")


def test_a_silent_fallback_is_suspected():
    slow = gpu(rates={"float8_e4m3fn": 6.3e14}, floor=1e-9, bandwidth=1e15)
    fair = gpu(floor=1e-9, bandwidth=1e15)
    for backend, flagged in ((slow, True), (fair, False)):
        found = [hw.measure_gemm(2048, 2048, 2048, p, backend, rounds=1, rotate=False) for p in ("bf16", "fp8")]
        bf16, fp8 = flag_slow_paths(found)
        assert not any("suspect" in f for f in bf16.flags)
        assert ("suspect slower path: fp8 runs at 1.05 times the speed of bf16 on this shape" in fp8.flags) == flagged


def test_what_a_lower_precision_cannot_speed_up_is_not_suspected():
    shape = {"m": 8192, "n": 8192, "k": 128}  # writes dominate: 134 of 138 MB, against 138 MB in BF16
    found = flag_slow_paths([taken(shape=shape), taken(shape=shape, precision="fp8")])
    assert found[1].flags == ()
    slow = taken("attention_decode", 1e-3)
    assert flag_slow_paths([taken("copy", 1e-5), slow])[1].flags[0].startswith("suspect slower path: it moves 16.8 GB/s")


def test_the_whole_list_runs_on_a_gpu(monkeypatch):
    small = {"m": 64, "n": 64, "k": 64, "sweep": [64, 128], "fine": [80], "layer": [(16, 32)], "tokens": [16], "area": 2**12,
             "formats": {"fp8": [(48, 96, 32)], "nvfp4": [(48, 96, 32)]}, "aspect": [0], "square": [64], "copy": [2**12],
             "attention": [(1, 64)]}  # fmt: skip
    monkeypatch.setitem(suite.SIZES, "cuda", small)
    steps = []
    found = suite.run_suite(gpu(), limit=0, progress=steps.append)
    names = {f"{m.operation} {m.precision}" for m in found if isinstance(m, Measurement)}
    assert names == {"launch fp32", "copy fp32", "gemm bf16", "gemm fp8", "attention_decode bf16"}
    assert [str(s) for s in found if isinstance(s, Skipped)] == [
        "gemm nvfp4: skipped, nvfp4 needs compute capability 10.0 (Blackwell), this GPU has 9.0"
    ]
    assert steps[0].startswith("pass 1, 1 of ") and sum("launch" in s for s in steps) == 3
    compared = [m.precision for m in found if isinstance(m, Measurement) and m.shape == {"m": 48, "n": 96, "k": 32}]
    assert compared == ["bf16", "fp8"]
    old = suite.run_suite(gpu(capability=(7, 5)), limit=0)
    assert {m.precision for m in old if getattr(m, "operation", "") == "gemm" and isinstance(m, Measurement)} == {"fp16"}
    assert sum(isinstance(m, Skipped) for m in old) == 3


def test_on_a_cpu_fp16_and_fp8_are_only_compared():
    backend = TorchBackend(stub(), "cpu")
    labels = {quick: list(suite.cases(backend, quick=quick)) for quick in (False, True)}
    narrow = [x for x in labels[False] if x.startswith(("gemm fp16", "gemm fp8"))]
    assert narrow == ["gemm fp16 16 x 512 x 512", "gemm fp16 512 x 1024 x 1024", "gemm fp8 16 x 512 x 512"]
    for shape in ("16 x 512 x 512", "512 x 1024 x 1024"):
        assert all(labels[False].count(f"gemm {p} {shape}") == 1 for p in ("bf16", "fp32"))
    assert {x.split()[1] for x in labels[True] if x.startswith("gemm")} == {"bf16", "fp32"}
    assert {x.split()[1] for x in suite.cases("numpy") if x.startswith("gemm")} == {"fp32", "fp64"}


def test_on_a_gpu_formats_are_compared_at_few_tokens_and_at_many():
    labels = list(suite.cases(gpu(capability=(10, 0))))
    wanted = [f"gemm {p} {m} x 8192 x 8192" for p in ("bf16", "fp8", "nvfp4") for m in (16, 8192)]
    assert all(labels.count(x) == 1 for x in wanted)
    assert not [x for x in suite.cases(gpu(capability=(10, 0)), quick=True) if " 16 x 8192 x 8192" in x]


def test_available_lists_the_stub_and_survives_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", stub())
    assert list(available()) == ["torch-cuda", "torch-cpu", "numpy"] and available()["torch-cuda"].device_name == "H200"
    monkeypatch.setitem(sys.modules, "torch", None)  # an import of it fails
    assert list(available()) == ["numpy"]
    assert str(measure_collectives(2)[0]) == "collectives: skipped, torch is not installed, or has no torch.distributed"


@pytest.mark.parametrize(
    ("reported", "name"),
    [("NVIDIA H200", "H200"), ("NVIDIA H100 80GB HBM3", "H100_SXM"), ("NVIDIA H100 PCIe", "H100_PCIE"), ("NVIDIA H100 NVL", None),
     ("NVIDIA A100-SXM4-80GB", "A100_SXM"), ("NVIDIA A100-SXM4-40GB", None), ("NVIDIA GB300", "GB300"), ("Tesla T4", "T4"),
     ("NVIDIA GeForce RTX 4090", "RTX_4090"), ("NVIDIA GeForce RTX 4090 Laptop GPU", None), ("AMD Instinct MI300X", "MI300X"),
     ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None), ("NVIDIA L40S", "L40S"), ("NVIDIA L40", None)],
)  # fmt: skip
def test_devices_are_recognised_only_where_the_numbers_hold(reported, name):
    assert catalogue_name(reported) == name


# This machine -------------------------------------------------------------------------------------------------------------


PAIRS = [("numpy", "fp32"), ("numpy", "fp64"), *(("torch-cpu", p) for p in ("fp32", "bf16", "fp16"))]


@pytest.mark.parametrize(("name", "precision"), PAIRS)
def test_this_machine_gives_plausible_numbers(small_cache, name, precision):
    if name not in small_cache:
        pytest.skip("torch is not installed")
    backend = small_cache[name]
    m = hw.measure_gemm(256, 256, 256, precision, backend, rounds=3)
    assert m.flags == () and 1e8 < m.rate < 1e14 and m.repeats >= 27
    attention = hw.measure_attention(2, 128, 8, 2, 64, precision, backend, rounds=1)
    size = {"fp32": 4, "fp64": 8, "bf16": 2, "fp16": 2}[precision]
    assert attention.flags == () and attention.nbytes == 2 * (2 * 2 * 64 * 128 + 2 * 8 * 64) * size
    if precision == "fp32":
        copy = hw.measure_copy(2**20, backend, rounds=3)
        assert copy.flags == () and 1e8 < copy.bandwidth < 1e13
        assert measure_launch(backend, rounds=1).seconds < 1e-3


def test_a_wrong_result_is_found_on_this_machine(small_cache, monkeypatch):
    backend = small_cache["numpy"]
    monkeypatch.setattr(backend, "gemm", lambda precision, a, w, out: lambda: np.multiply(np.matmul(a, w.T), 1.001, out=out))
    assert hw.measure_gemm(128, 128, 128, "fp64", backend, rounds=1).flags[0].startswith("wrong result: ")


def test_fp8_on_this_cpu_is_right_and_timed(small_cache):
    if "torch-cpu" not in small_cache:
        pytest.skip("torch is not installed")
    m = hw.measure_gemm(16, 64, 64, "fp8", small_cache["torch-cpu"], rounds=1)
    if isinstance(m, Skipped):
        pytest.skip(str(m))
    assert not [flag for flag in m.flags if flag.startswith("wrong")] and 1e-7 < m.seconds < 1
    assert m.nbytes == 16 * 64 + 64 * 64 + 2 * 16 * 64  # outputs are BF16


def test_fp8_layout_is_what_a_real_torch_takes(small_cache):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    backend = small_cache["torch-cpu"]
    a, w = (torch.randn(32, 64).to(torch.float8_e4m3fn) for _ in range(2))
    out = torch.empty(32, 32, dtype=torch.bfloat16)
    try:
        backend.gemm("fp8", a, w, out)()
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"this torch multiplies no fp8 on a CPU: {str(error).splitlines()[0]}")
    assert torch.allclose(out.float(), a.float() @ w.float().t(), rtol=0.02, atol=0.1)


def test_cache_of_this_cpu(tmp_path, monkeypatch):
    for cpu, level, size, shared in ((0, 2, "512K", "0"), (0, 3, "32768K", "0-3"), (1, 3, "32768K", "0-3"), (4, 3, "32M", "4-7")):
        folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{level}"
        folder.mkdir(parents=True)
        for file, text in (("level", level), ("size", size), ("shared_cpu_list", shared)):
            (folder / file).write_text(f"{text}\n")
    assert machine.cpu_cache(tmp_path) == (2 * 2.0**25, "told by the system")
    assert machine.cpu_cache(tmp_path / "none") == (2.0**26, "assumed, unknown")
    size = tmp_path / "cpu4" / "cache" / "index3" / "size"
    for text, found in (("32768", 2.0**25), ("", 2.0**25), ("1G", 2.0**28)):  # a slice of a large machine holds less of its cache
        size.write_text(text)
        monkeypatch.setattr(machine.os, "cpu_count", lambda: 4)
        assert machine.cpu_cache(tmp_path) == (found, f"told by the system{', capped' * (text == '1G')}")
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 8)
    assert machine.cpu_cache(tmp_path) == (2.0**30 + 2.0**25, "told by the system")


def test_a_mac_names_its_processor(monkeypatch):
    monkeypatch.setattr(machine.sys, "platform", "darwin")
    monkeypatch.setattr(machine, "said", lambda *command: "Apple M2 Pro\n")
    assert machine.cpu_name().startswith("Apple M2 Pro, ")


def test_memory_that_a_container_leaves(tmp_path):
    plain = machine.cpu_free(tmp_path)
    (tmp_path / "memory").mkdir()
    for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        for texts, free in (("max", 0), None), (("3000000", "1000000"), 2e6), (("1000", "3000"), 0.0), (("3000", ""), None):
            for file, text in zip((limit, used), texts, strict=True):
                (tmp_path / file).write_text(f"{text}\n")
            assert machine.cpu_free(tmp_path) == free if free is not None else machine.cpu_free(tmp_path) > plain / 2
        (tmp_path / limit).unlink()


def test_collectives_of_two_processes():
    pytest.importorskip("torch", reason="torch is not installed")
    found = measure_collectives(2, sizes=[4096], timeout=100)
    assert all(isinstance(m, Measurement) for m in found), [str(m) for m in found]
    assert [m.operation for m in found] == ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
    assert all(m.flags == () and m.backend == "gloo" and m.shape["ranks"] == 2 and 1e-6 < m.seconds < 1 for m in found)
    assert [m.nbytes for m in found] == [4096, 2048, 2048, 2048]  # NCCL's factors 2 (n - 1) / n and (n - 1) / n


@pytest.mark.parametrize(("count", "names"), [(0, ["gloo", "gloo"]), (1, ["gloo", "nccl"]), (2, ["nccl", "nccl"])])
def test_all_ranks_choose_the_same_backend(count, names):
    cuda = types.SimpleNamespace(is_available=lambda: count > 0, device_count=lambda: count)
    torch = types.SimpleNamespace(cuda=cuda, distributed=types.SimpleNamespace(is_nccl_available=lambda: True))
    alone = {"WORLD_SIZE": "2", "LOCAL_RANK": "0"}  # two ranks here; then two machines with a rank each
    assert [_backend_name(torch, env) for env in (alone, alone | {"LOCAL_WORLD_SIZE": "1"})] == names
    torch.distributed.is_nccl_available = lambda: False
    assert _backend_name(torch, alone) == "gloo"


def test_a_wrong_collective_of_one_rank_is_flagged_on_all(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    code = """
import sys, torch
from hwdesign.measure import collectives
rank, group = int(sys.argv[1]), torch.distributed
group.init_process_group("gloo", store=group.FileStore(sys.argv[2], 2), rank=rank, world_size=2)
collectives.COLLECTIVES, right = ("all_to_all",), group.all_to_all_single
group.all_to_all_single = lambda out, mine: (right(out, mine), out.add_(rank))
print(*collectives.measure_group(torch, "gloo", [64], rounds=1)[0].flags)
"""
    env = os.environ | collectives._loopback()
    command = [sys.executable, "-c", code]
    ranks = [
        subprocess.Popen([*command, str(i), str(tmp_path / "meet")], stdout=subprocess.PIPE, text=True, env=env) for i in (0, 1)
    ]
    assert all(p.communicate(timeout=60)[0].startswith("wrong result: what at least one rank") for p in ranks)


def test_collectives_say_how_to_start_them():
    done = subprocess.run([sys.executable, "-m", "hwdesign.measure.collectives"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "torchrun --nproc-per-node 2 -m hwdesign.measure.collectives" in done.stderr or "torch is not installed" in done.stderr


# Files --------------------------------------------------------------------------------------------------------------------


def test_a_run_comes_back_as_it_was(tmp_path):
    mixed = [taken(flags=("suspect slower path: x",)), taken("copy", 1e-4, "fp32"), taken("launch", 2e-6, "fp32", "NVIDIA L4")]
    hw.save_run(tmp_path / "run.json", [*mixed, Skipped(operation="gemm nvfp4", reason="why")], machine="one H200")
    run = hw.load_run(tmp_path / "run.json")
    assert run.machine == "one H200" and run.measurements == tuple(mixed) and run.skipped[0].reason == "why"
    assert run.select("gemm", precision="bf16", m=512) == (mixed[0],) and run.select("gemm", m=3) == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"software": None}, "measurement 1 (gemm): lacks software: a time without them cannot be compared with any other"),
        ({"device": ""}, "lacks device"),
        ({"taken_on": None}, "lacks taken_on"),
        ({"taken_on": "yesterday"}, "taken_on must be an ISO date such as '2026-01-31', got 'yesterday'"),
        ({"software": {"python": "3.11"}}, "software must name the version of torch"),
        ({"seconds": 0.0}, "seconds must be > 0, got 0.0"),
        ({"seconds": float("nan")}, "seconds must be > 0, got nan"),
        ({"spread": -1.0}, "spread must be >= 0"),
        ({"operation": "gem"}, "got 'gem' with m, n, k"),
        ({"precision": "bf61"}, "did you mean 'bf16'?"),
        ({"shape": {"m": 1}}, "operation and shape must be one of gemm: m, n, k;"),
    ],
)
def test_the_loader_refuses_by_name(tmp_path, change, says):
    file = tmp_path / "run.json"
    hw.save_run(file, [taken()], machine="one H200")
    data = json.loads(file.read_text())
    data["measurements"][0] |= change
    file.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=r"^run\.json: measurement 1") as error:
        hw.load_run(file)
    assert says in str(error.value)


def test_what_is_no_run_is_refused(tmp_path):
    for text in ("{}", "[]", "nonsense", '{"format": "hwdesign run 1", "machine": "x", "measurements": []}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(ValueError, match="bad.json: not a run of this package"):
            hw.load_run(tmp_path / "bad.json")
    with pytest.raises(ValueError, match="path must be a file or one of run_"):
        hw.load_run(tmp_path / "none.json")
    with pytest.raises(ValueError, match="at least one Measurement, got none"):
        hw.save_run(tmp_path / "x.json", [Skipped(operation="a", reason="b")], machine="x")


@pytest.mark.parametrize("name", hw.shipped_runs())
def test_shipped_runs_are_complete_and_name_no_host(name):
    run = hw.load_run(name)
    assert len(run.select("gemm")) > 20 and run.select("copy") and run.select("launch") and run.select("attention_decode")
    assert not [f for m in run.measurements for f in m.flags if f.startswith(("impossible", "wrong"))]
    text = (ROOT / "hwdesign" / "measure" / "data" / f"{name}.json").read_text(encoding="utf-8")
    assert not re.search(r"/home|/work|/root|/tmp|\.local", text)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: hw.measure_gemm(0, 1, 1), "m must be >= 1, got 0"),
        (lambda: hw.measure_gemm(1, 8, 16, "fp8", "numpy"), "n and k must be multiples of 16 for fp8, got n = 8, k = 16"),
        (lambda: hw.measure_gemm(1, 1, 1, "fp32", "nunpy"), "did you mean 'numpy'?"),
        (lambda: hw.measure_gemm(8, 8, [8, 16]), "k must be one number, got [8, 16]"),
        (lambda: hw.measure_gemm(8, 8, 8, "fp32", "numpy", rounds=0), "rounds must be >= 1, got 0"),
        (lambda: hw.measure_gemm(8, 8, 8, "bf61", "numpy"), "did you mean 'bf16'?"),
        (lambda: measure_collectives("2"), "processes must be a number or an array of numbers, got '2'"),
        (lambda: measure_collectives(2.5), "processes must be a whole number, got 2.5"),
        (lambda: measure_collectives(2, sizes=5), "sizes must be a list of numbers, got 5"),
        (lambda: hw.load_run(None), "path must be a file or one of run_"),
        (lambda: hw.measure_attention(1, 1, 3, 2), "kv_heads must divide heads = 3, got 2"),
        (lambda: hw.measure_attention(1, 1, 2, 1, precision="fp8"), "must be one of fp64, fp32, bf16, fp16 for attention"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises(ValueError, match="must") as error:
        call()
    assert says in str(error.value)


def test_a_format_that_is_not_here_is_skipped_with_its_reason():
    assert str(hw.measure_gemm(16, 16, 16, "fp8", "numpy")) == "gemm fp8: skipped, NumPy multiplies fp32 and fp64"
    assert hw.measure_gemm(16, 16, 16, "int8", "numpy").reason == "numpy has no int8"


# Command line -------------------------------------------------------------------------------------------------------------


def test_the_summary_names_no_ridge_where_nothing_was_measured():
    lines = list(summary_lines(summary([]), set()))
    assert not any("ridge" in line for line in lines)


def test_measure_on_the_command_line(tmp_path, capsys, monkeypatch, small_cache):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.setattr(backends, "_known", lambda: small_cache)
    monkeypatch.setattr(suite, "PASSES", (1, 2))
    run, picture = tmp_path / "run.json", tmp_path / "roof.svg"
    assert cli.main(["measure", "--quick", "--no-torch", "--json", str(run), "--picture", str(picture)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("numpy on ") and "best fp32 GEMM" in said and "ridge: fp32" in said and said.count("\ngemm ") == 12
    assert len(hw.load_run(run).select("gemm")) == 12
    assert "arithmetic intensity" in picture.read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--picture", "x.gif"], "--picture must end in .svg or .png, got x.gif"),
        (["--json", "no/where.json"], "--json must lie in a folder"),
    ],
)
def test_measure_refuses_before_it_measures(words, says, capsys):
    assert cli.main(["measure", *words]) == 2
    said = capsys.readouterr()
    assert said.out == "" and says in said.err and said.err.count("\n") == 1


def test_the_picture_needs_a_copy_and_a_gemm():
    figures = pytest.importorskip("hwdesign.lessons.figures.machine", reason="matplotlib is not installed")
    with pytest.raises(ValueError, match="got no copy"):
        figures.machine_roofline([taken()])
    ax = figures.machine_roofline([taken(seconds=4e-7), taken("copy", 1e-5, "fp32")])
    assert ax.get_ylabel() == "GEMM rate [TFLOP/s]" and len(ax.lines) == 2
