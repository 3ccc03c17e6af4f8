"""Layers and the four-constant model: Table 1, an independent count of FLOP, and recovery of known constants."""

import copy
from dataclasses import replace

import numpy as np
import pytest

import hwdesign as hw
from hwdesign.lessons.studies.four_constants import (
    GemmConstants,
    fit_gemm_constants,
    gemm_seconds,
    gemm_terms,
    ideal_constants,
)
from hwdesign.models.layers import transformer_gemms
from hwdesign.timing.silicon import saturation_point, slices


def test_table_1():
    shapes = [(g.name, g.m, g.n, g.k) for g in transformer_gemms(7, hidden_size=8192, intermediate_size=28672)]
    assert shapes == [
        ("qkv", 7, 3 * 8192, 8192),
        ("attention output", 7, 8192, 8192),
        ("up", 7, 28672, 8192),
        ("down", 7, 8192, 28672),
    ]


def test_grouped_queries_and_a_gate():
    heads = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
    gemms = transformer_gemms(1, hidden_size=4096, intermediate_size=14336, gated=True, **heads)
    assert [(g.n, g.k) for g in gemms] == [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]
    # Llama-3.1-8B, 8,030,261,248 parameters: 32 blocks, embedding and head, norms.
    assert 32 * (sum(g.weights for g in gemms) + 2 * 4096) + 2 * 128256 * 4096 + 4096 == 8_030_261_248


def test_heads_need_not_fill_the_hidden_size():
    # Qwen3-0.6B: hidden 1024, 16 heads and 8 key-value heads of 128, so the attention output has K = 2048.
    gemms = transformer_gemms(1, hidden_size=1024, intermediate_size=3072, num_heads=16, num_kv_heads=8, head_dim=128)
    assert [(g.n, g.k) for g in gemms[:2]] == [(4096, 1024), (1024, 2048)]


def test_flop_count_of_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed: the independent FLOP count is skipped")
    from torch.utils.flop_counter import FlopCounterMode

    for gemm in transformer_gemms(
        3, hidden_size=64, intermediate_size=96, num_heads=4, num_kv_heads=2, head_dim=16, gated=True
    ):
        layer = torch.nn.Linear(int(gemm.k), int(gemm.n), bias=False, device="meta")
        with FlopCounterMode(display=False) as counter:
            layer(torch.empty(int(gemm.m), int(gemm.k), device="meta"))
        assert counter.get_total_flops() == gemm.flops
        assert sum(p.numel() for p in layer.parameters()) == gemm.weights


def test_count_multiplies_and_arrays_are_welcome():
    gemm = hw.Gemm(name="x", m=np.array([1, 2]), n=4, k=8, count=3)
    assert gemm.flops.tolist() == [192, 384] and gemm.weights == 96
    assert gemm.bytes("bf16").tolist() == [3 * 2 * (8 + 32 + 4), 3 * 2 * (16 + 32 + 8)]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: transformer_gemms(1, hidden_size=0, intermediate_size=8), "hidden_size must be >= 1, got 0"),
        (lambda: transformer_gemms(0, hidden_size=8, intermediate_size=8), "tokens must be >= 1, got 0"),
        (lambda: transformer_gemms(1, hidden_size=8, intermediate_size=8, num_heads=2), "must be given together"),
        (lambda: hw.Gemm(name="x", m=1, n=1.5, k=1), "n must be a whole number, got 1.5"),
        (lambda: hw.Gemm(name="x", m=1, n=1, k=1, count=0), "count must be > 0, got 0"),
        (lambda: transformer_gemms(1, hidden_size=8, intermediate_size=8, gated="false"), "gated must be True or False"),
        (
            lambda: transformer_gemms(1, hidden_size=8, intermediate_size=8, num_heads=7, num_kv_heads=2, head_dim=1),
            "num_heads must be a multiple of num_kv_heads, got 7 and 2",
        ),
        (lambda: GemmConstants(peak_flops=0, bandwidth=1), "peak_flops must be > 0, got 0"),
        (lambda: GemmConstants(peak_flops=1, bandwidth=None), "bandwidth must be a number"),
        (lambda: GemmConstants(peak_flops=1, bandwidth=1, serial=-5), "serial must be >= 0, got -5"),
        (lambda: fit_gemm_constants(1, 1, 1, None, "GB300", "bf16"), "seconds must be a number"),
        (lambda: fit_gemm_constants(1, 1, 1, [np.inf] * 8, "GB300", "bf16"), "seconds must be finite"),
        (lambda: fit_gemm_constants(1, 1, 1, [1e-6] * 8, "GB300", "bf16", steps=-1), "steps >= 1"),
        (lambda: fit_gemm_constants([1, 2], 1, 1, [1e-6] * 8, "GB300", "bf16"), "must broadcast against each other"),
        (lambda: fit_gemm_constants(1, 1, 1, [1e-6] * 7, "GB300", "bf16"), "at least 8 measured times, got 7"),
        (lambda: fit_gemm_constants(1, 1, 1, [0.0] * 8, "GB300", "bf16"), "seconds must be > 0, got 0"),
        (lambda: ideal_constants("A100_SXM", "nvfp4"), "A100_SXM has a dense peak for"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises(ValueError, match="must") as error:
        call()
    assert says in str(error.value)


GRID = [x.ravel() for x in np.meshgrid(2 ** np.arange(7, 15), 2 ** np.arange(7, 15))]


def test_ideal_constants_give_the_roofline_bound():
    size = hw.recipe("nvfp4").operand_bytes
    flops, moved = hw.gemm_flops(8192, *GRID), hw.gemm_bytes(8192, *GRID, **size)
    bound = hw.bound_time(flops, moved, peak_flops=15e15, bandwidth=8e12)
    assert np.allclose(gemm_seconds(8192, *GRID, "nvfp4", ideal_constants("GB300", "nvfp4")), bound)


def test_each_term_by_hand():
    constants = GemmConstants(peak_flops=1e15, bandwidth=1e12, serial=0.5, fixed=1e-5, quantize_bandwidth=2e12)
    terms = gemm_terms(1000, 1000, 1000, "fp8", constants)
    math, memory = 2e-6, (1e6 + 1e6 + 2e6) / 1e12
    assert terms["longer"] == pytest.approx(memory) and terms["unhidden"] == pytest.approx(0.5 * math)
    assert terms["fixed"] == 1e-5 and terms["quantize"] == pytest.approx(1e6 * (2 + 1) / 2e12)
    for recipe in ("bf16", copy.deepcopy(hw.recipe("bf16"))):  # a copy has no pass to pay for either
        assert gemm_terms(1000, 1000, 1000, recipe, constants)["quantize"] == 0
    assert gemm_seconds(1000, 1000, 1000, "fp8", constants) == pytest.approx(sum(terms.values()))


@pytest.mark.parametrize("recipe", ["bf16", "fp8", "nvfp4"])
def test_fit_recovers_known_constants_under_noise(recipe):
    start = ideal_constants("GB300", recipe)
    truth = replace(start, peak_flops=0.6 * start.peak_flops, bandwidth=5e12, serial=0.4, fixed=8e-6, quantize_bandwidth=8e12)
    noise = np.exp(np.random.default_rng(1).normal(0, 0.02, GRID[0].size))
    found = fit_gemm_constants(8192, *GRID, gemm_seconds(8192, *GRID, recipe, truth) * noise, "GB300", recipe)
    assert found.peak_flops == pytest.approx(truth.peak_flops, rel=0.03)
    assert found.bandwidth == pytest.approx(truth.bandwidth, rel=0.06)
    assert found.fixed == pytest.approx(truth.fixed, rel=0.06) and found.serial == pytest.approx(0.4, abs=0.06)
    assert found.quantize_bandwidth == 8e12


@pytest.mark.parametrize("row", slices(), ids=lambda r: r["file"])
def test_no_fit_beats_the_datasheet(row):
    grid, device = hw.gemm_grid(row["device"], row["precision"], row["framework"]), hw.device(row["device"])
    n, k = np.meshgrid(grid.n[grid.n >= 128], grid.k[grid.k >= 128], indexing="ij")
    found = fit_gemm_constants(8192, n, k, grid.at(8192, n, k), device, row["precision"])
    ideal = ideal_constants(device, row["precision"])
    assert 0.05 < found.peak_flops / ideal.peak_flops <= 1.0000001 and 0.05 < found.bandwidth / ideal.bandwidth <= 1.0000001
    error = abs(gemm_seconds(8192, n, k, row["precision"], found) / grid.at(8192, n, k) - 1)
    assert np.nanmean(error) < 0.25


def test_model_predicts_the_unseen_sweeps_of_figure_4():
    grid = hw.gemm_grid("GB300", "nvfp4", "trtllm")
    x = grid.n[(grid.n >= 128) & (grid.n <= 16384)]
    n, k = np.meshgrid(x, x, indexing="ij")
    unseen, seconds = (n == 10240) | (k == 8192), grid.at(8192, n, k)
    fitted = fit_gemm_constants(8192, n, k, np.where(unseen, np.nan, seconds), "GB300", "nvfp4")
    error = abs(gemm_seconds(8192, n, k, "nvfp4", fitted) / seconds - 1)[unseen]
    assert np.nanmean(error) < 0.07
    rate = hw.gemm_flops(8192, 10240, x) / gemm_seconds(8192, 10240, x, "nvfp4", fitted)
    assert saturation_point(x, rate) == pytest.approx(3477, rel=0.02)
