"""Energy of kernels and steps: the model of power, its constants, how readings became power, other devices, the report."""

import csv
import dataclasses
from importlib import resources

import cases_energy as measured
import fit_energy
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import hwdesign as hw
from hwdesign.cli import main
from hwdesign.models import config
from hwdesign.models.steps import Plan
from hwdesign.timing.energy import MEASURED, energy_constants, energy_note, watts
from hwdesign.timing.estimate import Breakdown, decode_step, prefill_step

LLAMA, R1 = config.load("llama-3.1-8b"), config.load("deepseek-r1")
EIGHT = {"attention": Plan(tp=8), "ffn": Plan(tp=8)}
FORMS = ("bf16", "fp8", "fp8_block", "nvfp4")


def shipped(name):
    text = resources.files("hwdesign.timing").joinpath("data", name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def test_constants_are_physical():
    c = {form: energy_constants("B200", form) for form in FORMS}
    assert c["bf16"]["idle"] == 244 and c["bf16"]["limit"] == 1000
    assert 8e-11 < c["bf16"]["byte"] < 1.6e-10  # 10 to 20 pJ/bit, with the way over the chip
    flop = [c[form]["flop"] for form in FORMS]
    assert flop == sorted(flop, reverse=True)
    assert 1.4 < flop[0] / flop[1] < 2.6 and 1.4 < flop[1] / flop[3] < 2.6  # half the bits, about half the energy
    assert 64 < c["bf16"]["tile"] <= 128 and 8 < energy_constants("B200", small=True)["tile"] < 32


def test_held_out_errors_reach_the_target():
    errors = {(r["operation"], r["precision"], r["subset"]): float(r["mape"]) for r in shipped("energy_accuracy.csv")}
    for kind in ("gemm", "experts"):
        for form in FORMS:
            assert errors[f"energy {kind}", form, "all"] < (18 if form == "nvfp4" else 12)
    assert errors["energy gemm", "fp8_block", "few rows"] > 30  # 20 rows whose start nobody knows: said, not hidden
    assert all(r["version"] == "1.3.0rc20" and int(r["held_out"]) > 0 for r in shipped("energy_accuracy.csv"))


@given(
    flops=st.floats(0, 1e13), nbytes=st.floats(0, 1e10), seconds=st.floats(1e-6, 1e-1), rows=st.floats(0.5, 1e5),
    form=st.sampled_from(FORMS), device=st.sampled_from(("B200", "GB300", "H100_SXM", "A100_SXM")),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_power_stays_between_idle_and_limit_and_grows_with_work(flops, nbytes, seconds, rows, form, device):
    c = energy_constants(device, form)
    power = watts(flops, nbytes, seconds, rows, c)
    assert c["idle"] <= power <= c["limit"] * (1 + 1e-12)
    assert watts(2 * flops, 2 * nbytes, seconds, rows, c) >= power * (1 - 1e-12)
    assert watts(flops, nbytes, seconds, rows / 2, c) >= power * (1 - 1e-12)


def test_power_far_below_the_limit_is_the_sum_of_its_parts():
    c = energy_constants("B200", "fp8")
    assert watts(1e9, 1e7, 1e-3, 1e3, c) == pytest.approx(c["idle"] + (1e7 * c["byte"] + 1e9 * c["flop"]) / 1e-3, rel=1e-3)


def test_readings_are_recognized_by_their_fraction():
    rng = np.random.default_rng(1)
    for n in (1, 2, 7, 11, 12):
        power = np.array([np.mean(np.round(rng.uniform(250e3, 1000e3, n))) / 1e3 for _ in range(200)])
        found = measured.readings(power)
        assert (n % found == 0).all() and (found == n).mean() >= {1: 1, 2: 0.4, 7: 0.8, 11: 0.85, 12: 0.25}[n]


def test_reach_is_that_of_a_mean_over_the_second_before():
    count, before = np.array([1, 11, 11, 40]), np.array([0.0, 0.0, 1.0, 0.0])
    assert measured.reach(count, before) == pytest.approx([0, 0.5, 1, (4.5 + 30) / 40])
    # five rows of the table: NVFP4 GEMMs of 0.9 to 76 ms near the limit, after an idle second, read 664 to 895 W
    times, counts = (0.9049e-3, 7.0246e-3, 17.936e-3, 36.551e-3, 75.801e-3), (12, 13, 13, 12, 11)
    for seconds, n, reading in zip(times, counts, (664.12, 687.15, 709.71, 767.89, 894.75), strict=True):
        reached = measured.reach(np.array([n]), np.array([7 * seconds]))[0]
        power = measured.START + (reading - measured.START) / reached
        assert 0.93 < power / measured.LIMIT < measured.ABOVE, (seconds, power)


def test_an_agreeing_run_before_is_of_the_same_weights():
    form, n, k = np.array(["bf16"] * 4), np.array([1, 1, 1, 2]), np.ones(4)
    assert measured._agrees(form, n, k, np.array([900.0, 910.0, 700.0, 701.0])).tolist() == [False, True, False, False]


@pytest.mark.parametrize("recipe", ["bf16", "fp8", "nvfp4"])
def test_energy_of_a_step_is_the_sum_of_its_terms(recipe):
    step = decode_step(R1, "B200", recipe, batch=[1, 64], context=2048, **EIGHT)
    assert set(step.energy_terms) <= set(step.terms)
    assert step.energy == pytest.approx(sum(step.energy_terms.values())) and step.energy.shape == (2,)
    for name, joules in step.energy_terms.items():
        assert (joules >= 244 * step.terms[name] * 0.999).all() and (joules <= 1000 * step.terms[name] * 1.001).all(), name
    one = decode_step(R1, "B200", recipe, batch=64, context=2048, **EIGHT)
    assert one.energy == pytest.approx(step.energy[1])
    assert step.joules_per_token([1, 64], 8) == pytest.approx(8 * step.energy / [1, 64])


def test_energy_of_one_gpu_by_hand():
    step = decode_step(LLAMA, "B200", "bf16", batch=4, context=1000)
    gemms = step.terms["projections"] + step.terms["ffn"] + step.terms["head"]
    spent = sum(step.energy_terms[name] for name in ("projections", "ffn", "head"))
    c = energy_constants("B200", "bf16")
    weights = LLAMA.matmul_parameters
    flops = 2 * weights * c["tile"]  # four rows in a tile
    assert spent == pytest.approx(watts(flops, 2 * weights, gemms, 1e9, c) * gemms, rel=0.05)


def test_prefill_has_energy_too():
    short, long = (prefill_step(LLAMA, "B200", "fp8", batch=1, context=n).energy for n in (2048, 8192))
    assert 3.5 < long / short < 6 and short / 2048 < decode_step(LLAMA, "B200", "fp8", batch=1, context=2048).energy / 20


def test_more_bits_take_more_joules_at_many_tokens():
    joules = [decode_step(LLAMA, "B200", r, batch=64, context=2048, engine="trtllm").energy for r in ("bf16", "fp8", "nvfp4")]
    assert joules[0] > joules[1] > joules[2]


def test_other_devices_are_scaled_and_say_so():
    assert energy_note(MEASURED) == "" and decode_step(LLAMA, "B200", "bf16", batch=1, context=100).energy_note == ""
    for device in ("GB300", "H100_SXM", "A100_SXM"):
        step = decode_step(LLAMA, device, "bf16", batch=1, context=100)
        assert step.energy_note == "energy scaled from B200: not measured" and step.energy > 0
        assert step.energy <= hw.device(device).power_limit * step.seconds
    b200, gb300, h100 = (energy_constants(d, "fp8") for d in ("B200", "GB300", "H100_SXM"))
    assert gb300 == b200 | {"limit": 1400}
    assert h100["limit"] == 700 and h100["idle"] == pytest.approx(0.7 * 244)
    assert h100["byte"] == pytest.approx(b200["byte"] * 0.7 * 7.7 / 3.35)
    assert h100["flop"] == pytest.approx(b200["flop"] * 0.7 * 4.5 / 1.979)


def test_without_a_limit_or_in_the_plain_bound_there_is_no_energy_and_a_reason():
    step = decode_step(LLAMA, "MI300X", "bf16", batch=1, context=100)
    assert step.energy is None and step.energy_terms is None and step.joules_per_token(1) is None
    assert step.energy_note == "no energy: no power limit of MI300X in the catalogue"
    with pytest.raises(ValueError, match=r"power_limit \[W\] for its energy, got MI300X without one"):
        energy_constants("MI300X")
    ideal = decode_step(LLAMA, "B200", "bf16", batch=1, context=100, ideal=True)
    assert ideal.energy is None and ideal.energy_note == "the plain bound has no power"
    bare = Breakdown(terms={"ffn": 1e-3}, memory=1e9, capacity=1e11)
    assert bare.energy is None and "only terms" in bare.energy_note


def test_a_device_of_ones_own_gets_energy_with_a_limit():
    mine = dataclasses.replace(hw.device("H100_SXM"), name="mine", power_limit=500.0)
    assert decode_step(LLAMA, mine, "bf16", batch=1, context=100).energy_note == "energy scaled from B200: not measured"
    with pytest.raises(ValueError, match="power_limit"):
        dataclasses.replace(mine, power_limit=-1)


def test_bad_input_is_named():
    step = decode_step(LLAMA, "B200", "bf16", batch=1, context=100)
    with pytest.raises(ValueError, match="tokens"):
        step.joules_per_token(0)
    with pytest.raises(ValueError, match="gpus"):
        step.joules_per_token(1, 0)
    with pytest.raises(ValueError, match="joules"):
        Breakdown(terms={"ffn": 1e-3}, memory=1e9, capacity=1e11, joules=3.0)


def test_energy_costs_nothing_until_it_is_asked_for():
    step = decode_step(LLAMA, "B200", "bf16", batch=1, context=100)
    assert "terms" not in vars(step.joules)
    assert step.energy > 0 and "terms" in vars(step.joules)


def test_report_shows_joules_and_marks_scaled_ones(capsys):
    def told(device):
        assert main(["check", "llama-3.1-8b", "--device", device, "--fail-on", "never"]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [line.split(None, 1)[1] for line in lines if line.split()[:1] == ["energy/token"]]

    assert told("B200")[0].endswith("J") and told("H100_SXM")[0].endswith("J scaled from B200")
    assert told("MI300X") == []


def test_nvfp4_at_few_tokens_takes_half_of_bf16_and_no_third():
    """Published readings give 3.1: those of NVFP4 were taken before the kernel showed in them."""
    n, k = (x.ravel() for x in np.meshgrid([4096, 8192, 16384, 65536], [4096, 8192, 16384], indexing="ij"))
    clock = {form: hw.gemm_time(16, n, k, "B200", form, framework="trtllm") for form in ("bf16", "nvfp4")}
    joules = {}
    for form, seconds in clock.items():
        size = 2.0 if form == "bf16" else 0.5625
        power = watts(2 * 16.0 * n * k, size * n * k, seconds, 16, energy_constants("B200", form))
        joules[form] = power * seconds
    assert 1.3 < np.median(joules["bf16"] / joules["nvfp4"]) < 2.6


def test_the_fit_predicts_with_the_shipped_constants():
    c = {row["constant"]: float(row["value"]) for row in shipped("energy.csv") if not row["precision"]}
    c |= {row["precision"]: float(row["value"]) for row in shipped("energy.csv") if row["precision"]}
    rows = {"form": np.array(["nvfp4", "bf16"]), "kind": np.array(["gemm", "experts"]), "flops": np.array([1e9, 1e9])}
    rows |= {"bytes": np.array([1e7, 1e7]), "seconds": np.array([1e-5, 1e-5]), "rows": np.array([16.0, 16.0])}
    told = [watts(1e9, 1e7, 1e-5, 16.0, energy_constants("B200", f, small=s)) for f, s in (("nvfp4", False), ("bf16", True))]
    assert fit_energy.predicted(c, rows) == pytest.approx(told)
