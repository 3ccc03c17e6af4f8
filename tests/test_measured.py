"""Devices of a file, and constants fitted on runs: by hand, on published times, on the shipped run, labelled, refused."""

import dataclasses
import json
import math
import pickle
import time

import numpy as np
import pytest

import hwdesign as hw
from hwdesign.cli import main
from hwdesign.measure.constants import GEMM, measured_device
from hwdesign.measure.runs import Measurement, Run
from hwdesign.models.steps import Exchange
from hwdesign.timing.calibration import constants
from hwdesign.timing.gemm_kernel import gemm_kernel_seconds
from hwdesign.timing.silicon import gemm_grid

PEAK, BANDWIDTH = 2e14, 1.5e12
MINE = hw.Device(name="mine", form_factor="PCIe", dense_peak={"bf16": PEAK}, memory_bandwidth=BANDWIDTH, memory_capacity=48e9,
                 sms=142, l2=96e6, link_bandwidth=64e9)  # fmt: skip
SHIPPED = "run_cpu_intel_xeon_processor_2_cores"
SHEET = {"name": "a CPU", "form_factor": "server", "dense_peak": {"bf16": 1.3e12}, "memory_bandwidth": 2.4e10,
         "memory_capacity": 48e9, "sms": 2, "link_bandwidth": 1e10}  # fmt: skip
CPU = hw.Device(**SHEET)
OPERATIONS = [("gemm", "bf16"), ("gemm", "fp8"), ("attention_decode", "bf16"), ("mla_prefill", "fp8"), ("moe", "fp8_block"),
              ("moe", "bf16"), ("all-reduce", ""), ("ring", ""), ("small kernel", "")]  # fmt: skip


def taken(operation="gemm", seconds=1e-3, **changes):
    shape = {k: changes.pop(k) for k in ("m", "n", "k", "elements", "nbytes", "ranks") if k in changes}
    given = {"precision": "bf16", "spread": 0.0, "repeats": 5, "device": "My Card", "backend": "torch-cuda",
             "taken_on": "2026-11-30", "software": {"python": "3.11", "torch": "2.13"}}  # fmt: skip
    return Measurement(operation=operation, shape=shape, seconds=float(seconds), **given | changes)


def run_of(*measurements):
    return Run(machine="my desk", measurements=measurements)


def by_hand(m, n, k):
    """A card that reaches 60 % of its math and 70 % of its memory, and takes 3 us besides [s]."""
    return 3e-6 + max(2 * m * n * k / (0.6 * PEAK), 2 * (m * n + n * k + m * k) / (0.7 * BANDWIDTH))


def gemms(seconds=by_hand, **more):
    sizes = [(m, n, k) for m in (1, 16, 256, 8192) for n, k in ((4096, 4096), (1024, 8192), (12288, 4096), (16384, 2048))]
    return [taken(m=m, n=n, k=k, seconds=seconds(m, n, k), **more) for m, n, k in sizes]


def test_a_device_without_tables_takes_the_first_measured_one_of_its_kind():
    low = dataclasses.replace(MINE, dense_peak={"bf16": PEAK, "fp4": 4 * PEAK})
    for operation, form in OPERATIONS:
        assert constants(operation, MINE, form).device == "H100_SXM"
        assert constants(operation, low, form).device == "B200"
        for card, place in (("RTX_5090", "B200"), ("L4", "H100_SXM"), ("MI300X", "H100_SXM")):
            assert constants(operation, card, form).device == place
    assert constants("gemm", MINE, "bf16").notes == (
        "gemm takes the constants of H100_SXM bf16",
        "mine has no table, H100_SXM is the first measured device without FP4",
    )
    assert constants("dispatch", MINE, "").notes[1] == "mine has no table, GB200 has the nearest"
    assert constants("gemm", low, "nvfp4").notes[1] == "mine has no table, B200 is the first measured device with FP4"
    assert constants("gemm", "L4", "bf16").notes == ("gemm takes the constants of H100_SXM bf16",)
    assert constants("gemm", "H100_SXM", "bf16").notes == ()


@pytest.mark.parametrize("size", [(1, 8192, 8192), (16, 28672, 8192), (16, 4096, 14336), (4096, 6144, 6144), (8192, 8192, 8192)])
def test_a_gemm_that_the_run_lacks_takes_the_time_worked_out_by_hand(size):
    card = measured_device(MINE, run_of(*gemms()))
    seconds = gemm_kernel_seconds(*size, card, hw.recipe("bf16"), constants("gemm", card, "bf16"))
    assert seconds == pytest.approx(by_hand(*size), rel=0.08)
    stand_in = gemm_kernel_seconds(*size, MINE, hw.recipe("bf16"), constants("gemm", MINE, "bf16"))
    assert abs(stand_in / by_hand(*size) - 1) > 0.1


def test_on_published_times_of_an_a100_a_fit_beats_the_stand_in_and_plain_shares_do_not():
    card = dataclasses.replace(hw.A100_SXM, name="mine", reported_name=None)
    grid = gemm_grid("A100_SXM", "bf16")
    m, n, k = np.meshgrid(*(axis.astype(float) for axis in (grid.m, grid.n, grid.k)), indexing="ij")
    known = ~np.isnan(grid.seconds) & (n >= 512) & (k >= 512)
    m, n, k, seconds = m[known], n[known], k[known], grid.seconds[known]
    timed = np.flatnonzero(np.isin(m, (1, 16, 256, 8192)) & (n >= 1024) & (k >= 1024))
    some = np.random.default_rng(0).permutation(timed)[:40]
    mine = measured_device(card, run_of(*(taken(m=int(m[i]), n=int(n[i]), k=int(k[i]), seconds=seconds[i]) for i in some)))

    def error(c):
        return np.abs(gemm_kernel_seconds(m, n, k, card, hw.recipe("bf16"), c) / seconds - 1).mean()

    stand_in = dict(constants("gemm", card, "bf16"))
    rate = (2 * m * n * k / seconds).max() / card.peak_flops("bf16")
    shares = stand_in | {"peak": min(rate, 1.15), "bandwidth": 0.9, "fixed": 2e-6}
    assert [round(100 * error(c)) for c in (constants("gemm", mine, "bf16"), stand_in, shares)] == [11, 13, 23]


def test_the_shipped_run_gives_its_machine_times_that_the_stand_in_misses():
    run, mine = hw.load_run(SHIPPED), measured_device(CPU, SHIPPED)
    measured = run.select("gemm", precision="bf16")
    sizes = [np.array([m.shape[x] for m in measured]) for x in "mnk"]
    seconds = np.array([m.seconds for m in measured])

    def error(card):
        modelled = gemm_kernel_seconds(*sizes, card, hw.recipe("bf16"), constants("gemm", card, "bf16"))
        return np.abs(modelled / seconds - 1).mean()

    fitted, stand_in = error(mine), error(CPU)
    assert len(measured) == 90 and fitted < 0.25 < 0.45 < stand_in
    for kind in ("all_reduce", "all_gather"):
        for m in run.select(kind):
            exchange = Exchange(kind=kind.replace("_", "-"), elements=m.shape["nbytes"] / 2, ranks=2)
            with pytest.warns(UserWarning, match="from the run of 2026-11-30 on Intel"):
                modelled = hw.exchange_time(exchange, mine, "bf16")
            assert abs(math.log(modelled / m.seconds)) < (0.1 if kind == "all_reduce" else 0.6)
    assert constants("small kernel", mine, "")["fixed"] == min(m.seconds for m in run.select("launch"))


def test_one_gemm_of_the_shipped_machine_by_hand():
    """256 x 512 x 2048 in BF16: four tiles of 256 x 128 outputs, two after the other on each of two cores."""
    mine = measured_device(CPU, SHIPPED)
    c = constants("gemm", mine, "bf16")
    step = max(2 * 256 * 128 / (c["peak"] * 1.3e12 / 2), (256 + 128) * 2 / (c["feed"] * 2.4e10 / 2))  # math, operands
    on = 2 * (2048 * step + c["wave"])
    off = 2 * (256 * 2048 + 2048 * 512 + 256 * 512) / (c["bandwidth"] * 2.4e10)
    hand = c["fixed"] + (on ** c["overlap"] + off ** c["overlap"]) ** (1 / c["overlap"])
    with pytest.warns(UserWarning, match="gemm takes peak, bandwidth, fixed from the run of 2026-11-30 on Intel"):
        modelled = hw.gemm_time(256, 512, 2048, mine, "bf16")
    assert modelled == pytest.approx(hand, rel=1e-6)
    (measured,) = hw.load_run(SHIPPED).select("gemm", precision="bf16", m=256, n=512, k=2048)
    assert modelled == pytest.approx(measured.seconds, rel=0.2)


def test_what_comes_from_a_run_and_what_does_not_is_said():
    launch = taken("launch", 2e-6, elements=16, precision="fp32")
    reduced = [taken("all_reduce", 1e-5 + nbytes / 32e9, nbytes=nbytes, ranks=2) for nbytes in (2**12, 2**20, 2**28)]
    mine = measured_device(MINE, run_of(*gemms(), launch), run_of(*reduced))
    assert constants("gemm", mine, "bf16").notes == (
        "gemm takes peak, bandwidth, fixed from the run of 2026-11-30 on my desk, the rest from H100_SXM bf16",
    )
    assert constants("small kernel", mine, "").notes == ("small kernel takes fixed from the run of 2026-11-30 on my desk",)
    assert constants("all-reduce", mine, "").notes == (
        "all-reduce takes latency, bandwidth from the run of 2026-11-30 on my desk, the rest from H100_SXM",
    )
    for operation, form in (("attention_decode", "bf16"), ("gemm", "fp8"), ("ring", "")):  # not in the run
        assert constants(operation, mine, form) == constants(operation, MINE, form)
    assert constants("gemm", mine, "bf16")["feed"] == constants("gemm", MINE, "bf16")["feed"]
    assert all(0.999 * low <= constants("gemm", mine, "bf16")[name] <= 1.001 * high for name, (low, high) in GEMM.items())
    assert not constants("gemm", mine, "bf16").measured
    assert pickle.loads(pickle.dumps(mine)) == mine != MINE and hash(mine) == hash(MINE)
    exchange = Exchange(kind="all-reduce", elements=2**27, ranks=2)
    with pytest.warns(UserWarning, match="my desk"):
        assert hw.exchange_time(exchange, mine, "bf16") == pytest.approx(1e-5 + 2**28 / 32e9, rel=0.02)


def test_a_table_that_is_asked_for_by_its_framework_is_taken_as_it_is():
    mine = measured_device("H200", run_of(*gemms(device="NVIDIA H200")))
    assert not constants("gemm", mine, "bf16").measured and constants("gemm", mine, "bf16", "trtllm").measured


def test_a_run_on_a_device_of_the_catalogue_takes_the_place_of_its_tables():
    named = {"device": "NVIDIA H200", "device_name": "H200"}
    run = run_of(*gemms(lambda m, n, k: 2 * hw.gemm_time(m, n, k, "H200", "bf16"), **named))
    mine = measured_device(None, run)
    assert mine.name == "H200" and dataclasses.replace(mine, measured={}) == hw.H200
    for size in ((1, 8192, 8192), (4096, 6144, 6144)):
        with pytest.warns(UserWarning, match="from the run of 2026-11-30 on my desk, the rest from H200 bf16"):
            assert hw.gemm_time(*size, mine, "bf16") == pytest.approx(2 * hw.gemm_time(*size, "H200", "bf16"), rel=0.1)


def test_fp8_operands_are_timed_without_their_quantization():
    card = dataclasses.replace(MINE, dense_peak={"bf16": PEAK, "fp8": 2 * PEAK})
    mine = measured_device(card, run_of(*gemms(lambda m, n, k: by_hand(m, n, k) / 1.5, precision="fp8")))
    c = constants("gemm", mine, "fp8")
    bare = {name: value for name, value in c.items() if name != "quantize"}
    size = 256, 8192, 4096
    times = [gemm_kernel_seconds(*size, mine, hw.recipe("fp8"), x) for x in (bare, c)]
    assert times[0] == pytest.approx(by_hand(*size) / 1.5, rel=0.15)
    assert times[1] - times[0] == pytest.approx(256 * 4096 * 3 / (c["quantize"] * BANDWIDTH))  # one pass, BF16 in and FP8 out


WRONG = {"flags": ("wrong result: zeros",)}


@pytest.mark.parametrize(
    ("device", "runs", "says"),
    [
        (MINE, [], "runs must be at least one file of hwdesign measure, got none"),
        (MINE, [7], "runs must be a Run, a file of hwdesign measure or a shipped name, got 7"),
        (MINE, ["none.json"], "runs must be files of hwdesign measure: path must be a file or one of"),
        (None, [SHIPPED], "device must be named or be a JSON file, .*got None for Intel"),
        ("H200", [SHIPPED], "got H200"),
        (hw.H200, [run_of(*gemms(device="NVIDIA H100 PCIe", device_name="H100_PCIE"))], "measured, 'H100_PCIE', got H200"),
        (dataclasses.replace(MINE, reported_name="Your Card"), [run_of(*gemms())], "measured, 'My Card', got mine"),
        (MINE, [run_of(*gemms(**WRONG))], "runs must time GEMMs in bf16, .*got none of them from my desk"),
        (MINE, [run_of(*gemms()[:3])], "runs must time GEMMs"),
        (MINE, [run_of(taken("copy", 1e-6, elements=2**20, precision="fp32"))], "memory_bandwidth of mine .* at least the 8.39e"),
        (MINE, [run_of(*gemms(lambda m, n, k: 2 * m * n * k / 1.2 / PEAK))], "dense_peak of mine in bf16 must be at least 2.09e"),
    ],
)
def test_runs_that_cannot_stand_in_are_refused(device, runs, says):
    with pytest.raises(ValueError, match=says):
        measured_device(device, *runs)


def check(capsys, *words):
    code = main(["check", *words])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_check_takes_a_device_file_and_runs(tmp_path, capsys):
    file = tmp_path / "my.json"
    file.write_text(json.dumps(SHEET), encoding="utf-8")
    start = time.process_time()
    runs = ("--measured", SHIPPED, "--measured", SHIPPED)
    code, out, err = check(capsys, "qwen3-0.6b", "--device", str(file), *runs, "--format", "json")
    assert time.process_time() - start < 1 and err == "" and code in (0, 1)
    (report,) = json.loads(out)["reports"]
    assert report["device"] == "a CPU" and report["capacity_bytes"] == 48e9
    (note,) = report["notes"]
    assert "gemm takes peak, bandwidth, fixed from the run of 2026-11-30 on Intel(R) Xeon(R) Processor, 2 cores, the rest" in note
    code, out, _ = check(capsys, "qwen3-0.6b", "--device", str(file), "--format", "json")
    (bare,) = json.loads(out)["reports"]
    assert bare["notes"][0].startswith("uncalibrated: gemm takes the constants of H100_SXM bf16; a CPU has no table, H100_SXM is")
    assert bare["loads"][0]["step_seconds"] < report["loads"][0]["step_seconds"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--device", "none.json"), "hwdesign: device must be a name or a JSON file that can be read, got 'none.json'"),
        (("--measured", "none.json"), "hwdesign: runs must be files of hwdesign measure: path must be a file or one of"),
        (("--measured", SHIPPED), "hwdesign: device must be named or be a JSON file"),
        (("--device", "GB300", "--measured", SHIPPED), "hwdesign: device must be the one that was measured"),
    ],
)
def test_check_refuses_bad_devices_and_runs_in_one_line(words, says, capsys):
    code, out, err = check(capsys, "gpt2", *words)
    assert code == 2 and out == "" and err.startswith(says) and err.count("\n") == 1
