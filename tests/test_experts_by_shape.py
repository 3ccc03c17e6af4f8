"""Times of layers of experts, fitted over every published shape, engine by engine."""

import csv
from importlib import resources

import numpy as np
import pytest

import hwdesign as hw
from hwdesign import Experts
from hwdesign.timing import calibration, kernels
from hwdesign.timing.clock import EXPERT_ENGINES, EXPERT_RECIPES, Clock

ROWS = resources.files("hwdesign.timing").joinpath("data", "accuracy.csv").read_text(encoding="utf-8").splitlines()
TOLD = {(r["device"], r["precision"], r["framework"], r["subset"]): r for r in csv.DictReader(ROWS) if r["operation"] == "moe"}
MOST = {  # of the median error on layers that no fit saw [%]: all rows, and at most 256 tokens on a GPU
    ("GB300", "nvfp4", "trtllm"): (7, 7), ("GB300", "nvfp4", "sglang"): (9, 8), ("GB300", "nvfp4", "vllm"): (8.5, 7),
    ("B200", "nvfp4", "trtllm"): (12.5, 14), ("B200", "nvfp4", "sglang"): (9.5, 10), ("B200", "nvfp4", "vllm"): (10, 9),
    ("GB300", "fp8_block", "trtllm"): (5, 5), ("GB300", "fp8_block", "sglang"): (8.5, 7),
    ("GB300", "fp8_block", "vllm"): (5.5, 4), ("B200", "fp8_block", "trtllm"): (5.5, 5),
    ("B200", "fp8_block", "sglang"): (9, 7), ("B200", "fp8_block", "vllm"): (8, 6),
    ("H200", "fp8_block", "trtllm"): (4.5, 4), ("H200", "fp8_block", "sglang"): (5.5, 5.5),
    ("H200", "fp8_block", "vllm"): (7, 8), ("H100_SXM", "fp8_block", "sglang"): (5, 4.5),
}  # fmt: skip
ALL = sorted({key[:3] for key in TOLD})


@pytest.mark.parametrize("key", MOST, ids=" ".join)
def test_layers_that_no_fit_saw_are_predicted_within_the_printed_error(key):
    assert all(float(TOLD[*key, subset]["median"]) < most for subset, most in zip(("all", "decode"), MOST[key], strict=True))
    told = TOLD[*key, "all"]
    assert int(told["held_out"]) > 1000 and calibration.held_out_error("moe", *key) == float(told["mape"]) / 100


@pytest.mark.parametrize("key", ALL, ids=" ".join)
def test_constants_are_at_most_eight_and_shares_at_most_one(key):
    c = calibration.constants("moe", *key)
    assert c.measured and len(c) <= 8
    assert 0 < c["bandwidth"] <= 1 and 0 < c["rate"] <= 1
    assert all(c[name] < 5 for name in ("pairs", "tokens", "slots") if name in c and key[0] in ("GB300", "B200", "H200"))
    assert c["fixed"] + 8 * c.get("doubling", 0) < 2e-4  # at 256 tokens


def layer(tokens, *, ep=1, tp=1, hidden=4096, width=1536, top_k=8, number=128):
    pairs = tokens * top_k / ep
    return Experts(tokens=tokens, pairs=pairs, touched=np.minimum(number, tokens * top_k) / ep, local=number / ep, hidden=hidden,
                   width=width / tp, slots=tokens * top_k)  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "device", "precision", "tp", "ep", "told"),
    [  # Qwen3-235B's layer, balanced routing; published for 16 and 64 tokens [us]
        ("vllm", "H200", "fp8_block", 4, 1, (174, 195)),
        ("sglang", "H200", "fp8_block", 4, 1, (170, 188)),
        ("trtllm", "H200", "fp8_block", 4, 1, (204, 217)),
        ("vllm", "B200", "fp8_block", 4, 1, (118, 122)),
        ("trtllm", "B200", "fp8_block", 1, 8, (84, 85)),
        ("sglang", "GB300", "nvfp4", 8, 1, (52, 55)),
        ("vllm", "GB300", "nvfp4", 1, 8, (44, 48)),
    ],
)
def test_a_layer_takes_what_its_engine_was_timed_at(engine, device, precision, tp, ep, told):
    found = hw.expert_time(layer(np.array([16.0, 64.0]), tp=tp, ep=ep), device, precision, engine=engine)
    assert found * 1e6 == pytest.approx(told, rel=0.25)


@pytest.mark.parametrize(
    ("engine", "device", "recipe", "form"),
    [
        ("vllm", "B200", "mxfp4", "mxfp4_w4a16"),
        ("sglang", "B200", "mxfp4", "mxfp4_w4a8"),
        ("trtllm", "GB300", "mxfp4", "mxfp4_w4a8"),
        ("vllm", "H200", "mxfp4_w4a16", "mxfp4_w4a16"),
        ("sglang", "H200", "w4a16_g32", "w4a16"),
        ("vllm", "B200", "w4a16", "w4a16"),
        ("sglang", "B200", "fp8", "fp8_block"),
        ("trtllm", "B200", "fp8", "fp8"),
        ("vllm", "H200", "nvfp4_w4a16", "mxfp4_w4a16"),
    ],
)
def test_a_format_takes_the_constants_of_the_kernel_that_the_engine_runs(engine, device, recipe, form):
    clock = Clock(device, recipe, engine=engine)
    run, name, _ = clock.expert_form(hw.recipe(recipe))
    assert name == form and run.math.rate in clock.device.dense_peak
    found = calibration.constants("moe", device, form, engine=engine)
    assert (found.framework, found.precision, found.device) == (engine, form, device)
    timed = clock.experts(layer(64.0), hw.recipe(recipe))
    size = run.operand_bytes
    by_hand = kernels.expert_seconds(layer(64.0), size["b"], size["a"], clock.device, clock.device.peak_flops(run.math), found)
    assert timed.seconds == by_hand


def test_one_constant_at_a_time():
    device, off = hw.device("H200"), {"fixed": 0.0, "bandwidth": np.inf, "rate": np.inf}
    e = Experts(tokens=15.0, pairs=30.0, touched=8.0, local=10, hidden=100, width=50, slots=60.0)

    def seconds(**c):
        return float(kernels.expert_seconds(e, 1.0, 1.0, device, 1e15, off | c))

    assert seconds(doubling=1e-6) == pytest.approx(4e-6) and seconds(chain=1e-9) == pytest.approx(150e-9)
    assert seconds(slots=0.5) == pytest.approx(60 * 100 * 2 / (0.5 * device.memory_bandwidth))
    once = seconds(bandwidth=1)
    assert seconds(bandwidth=1, many=0.5) == pytest.approx(1.5 * once)  # 15 tokens for 10 experts
    hot = kernels.expert_seconds(e, 1.0, 1.0, device, 1e15, off | {"bandwidth": 1}, cold=0.0)
    assert float(hot) == pytest.approx(once * device.memory_bandwidth / (kernels.L2_RATE * device.sms))


def test_every_engine_and_format_has_constants_on_every_device():
    for device in ("GB300", "B200", "H200", "H100_SXM", "A100_SXM", "RTX_4090", "MI300X"):
        for engine in EXPERT_ENGINES:
            for form in (*EXPERT_RECIPES, "w4a16"):
                assert calibration.constants("moe", device, form, engine=engine)["fixed"] > 0
