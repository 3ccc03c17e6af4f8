"""Published measurements: the chapter's numbers read back, the slices, the files, and their extraction."""

import hashlib
import importlib.util
import os
import zipfile
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import silicon_source

import hwdesign as hw
from hwdesign.lessons.studies.four_constants import gemm_seconds, ideal_constants
from hwdesign.timing.silicon import saturation_point, slices, sustained

DATA = resources.files("hwdesign.timing").joinpath("data")


def microseconds(precision, framework, *shape, device="GB300"):
    return np.round(hw.gemm_grid(device, precision, framework).at(*shape) * 1e6, 1)


def sweeps(precision, framework):
    grid = hw.gemm_grid("GB300", precision, framework)
    x = grid.n[(grid.n >= 128) & (grid.n <= 16384)]
    return x, hw.gemm_flops(8192, 10240, x) / grid.at(8192, 10240, x), hw.gemm_flops(8192, x, 8192) / grid.at(8192, x, 8192)


@pytest.mark.parametrize(
    ("precision", "framework", "k", "n"),
    [
        ("nvfp4", "trtllm", 3477, 3811),
        ("nvfp4", "sglang", 2453, 3581),
        ("nvfp4", "vllm", 2743, 3396),
        ("bf16", "trtllm", 412, 413),
        ("bf16", "sglang", 483, 452),
        ("fp8_block", "trtllm", 1210, 2641),
        ("fp8_block", "sglang", 1064, 2155),
    ],
)
def test_80_percent_points_of_figure_4(precision, framework, k, n):
    x, k_rate, n_rate = sweeps(precision, framework)
    assert saturation_point(x, k_rate) == pytest.approx(k, rel=0.02)
    assert saturation_point(x, n_rate) == pytest.approx(n, rel=0.02)


def test_square_pair_is_fastest_in_nvfp4_and_does_not_matter_in_bf16():
    pair = {
        (p, f): np.round([microseconds(p, f, 8192, hp, h) + microseconds(p, f, 8192, h, hp) for h, hp in
                          ((4096, 4096), (8192, 2048), (16384, 1024))], 0).tolist()
        for p, f in (("nvfp4", "sglang"), ("nvfp4", "trtllm"), ("bf16", "sglang"))
    }  # fmt: skip
    assert pair["nvfp4", "sglang"] == [112, 127, 170]
    assert np.allclose(pair["nvfp4", "trtllm"], [176, 196, 272], atol=1)
    assert np.allclose(pair["bf16", "sglang"], [282, 296, 307], atol=1)


def test_few_tokens_prefer_large_n():
    n, k = np.array([16384, 8192, 4096, 65536, 1024]), np.array([4096, 8192, 16384, 1024, 65536])
    assert microseconds("nvfp4", "sglang", 16, n, k).tolist() == [9.8, 10.7, 13.7, 9.8, 39.1]


def test_four_times_the_flop_for_free():
    assert microseconds("nvfp4", "trtllm", 8192, 10240, np.array([128, 256, 512, 1024])).round().tolist() == [101, 100, 98, 109]


def test_h100_does_not_care():
    n, k = np.array([16384, 8192, 4096, 65536, 1024]), np.array([4096, 8192, 16384, 1024, 65536])
    t = microseconds("bf16", "sglang", 8192, n, k, device="H100_SXM")
    assert (t.min().round(), t.max().round()) == (1523, 1656)


def test_splitting_over_eight_gpus_at_few_tokens():
    shapes = ((8192, 8192), (1024, 8192), (8192, 1024))  # whole, an eighth of N, an eighth of K
    assert [float(microseconds("nvfp4", "sglang", 16, *shape)) for shape in shapes] == [10.7, 7.3, 4.2]
    whole, by_n, by_k = (hw.gemm_grid("GB300", "nvfp4").at(16, *shape) for shape in shapes)
    assert (round(whole / by_n, 2), round(whole / by_k, 2)) == (1.48, 2.57)


def test_default_framework_is_the_first_that_has_the_slice():
    assert hw.gemm_grid("GB300", "nvfp4").framework == "sglang"
    assert hw.gemm_grid(hw.GB300, hw.NVFP4).framework == "sglang"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: hw.gemm_grid("H100_SXM", "nvfp4"), "bf16/sglang, fp8/sglang"),
        (lambda: hw.gemm_grid("GB300", "bf16", "vllm"), "nvfp4/vllm), got bf16/vllm"),
        (lambda: hw.gemm_grid("L4", "bf16"), "measured devices are GB300, B200, H200, H100_SXM, A100_SXM"),
        (lambda: hw.gemm_grid("GB300", "nvfp4").at(8192, 9728, 8192), "got 9728; nearest are 8192 and 10240"),
        (lambda: hw.gemm_grid("GB300", "nvfp4").at([1, 18], 128, 128), "got 18; nearest are 16 and 17"),
        (lambda: hw.gemm_grid("GB300", "nvfp4", ["sglang"]), "framework must be one of sglang, trtllm, vllm, got ['sglang']"),
        (lambda: hw.gemm_grid("GB300", "nvfp4").at("1", 128, 128), "m must be a number or an array of numbers, got '1'"),
        (lambda: hw.gemm_grid("GB300", "nvfp4").at(None, 128, 128), "m must be a number"),
        (lambda: hw.gemm_grid("GB300", "nvfp4").at([1, 2], [128, 256, 512], 128), "m, n, k must broadcast against each other"),
        (lambda: saturation_point([8192, 128], [2, 1]), "x must increase, got [8192.0, 128.0]"),
        (lambda: saturation_point([128, 8192], [1]), "x and rate must be two lists of one length"),
        (lambda: saturation_point([128, 8192], None), "rate must be a number"),
        (lambda: saturation_point([128, 8192], [1, 2], share="0.8"), "share must be a number"),
        (lambda: sustained([], []), "x must have a measured point between 6144 and 16384, got none"),
        (lambda: saturation_point([1, 2], [1, 2], share=0), "share must be > 0 and <= 1, got 0"),
        (lambda: sustained([1, 2], [1, 2]), "x must have a measured point between 6144 and 16384, got 1 to 2"),
    ],
)
def test_what_was_not_measured_is_refused_and_the_measured_named(call, says):
    with pytest.raises(ValueError, match="must") as error:
        call()
    assert says in str(error.value)


def test_shapes_without_a_measurement_are_nan():
    grid = hw.gemm_grid("GB300", "nvfp4", "trtllm")
    assert np.isnan(grid.seconds).sum() == 74 * 20 * 20 - 29488


@pytest.mark.parametrize("row", slices(), ids=lambda r: r["file"])
def test_every_file_is_the_one_of_the_manifest_and_plausible(row):
    data = DATA.joinpath(row["file"]).read_bytes()
    assert hashlib.sha256(data).hexdigest() == row["sha256"]
    grid = hw.gemm_grid(row["device"], row["precision"], row["framework"])
    assert np.isfinite(grid.seconds).sum() == int(row["rows"]) and grid.seconds.dtype == np.float32
    # No shape with a working set above 4 x L2 may beat the bound: that would be a mistake in units or rows.
    m, n, k = np.meshgrid(grid.m, grid.n, grid.k, indexing="ij")
    recipe, device = hw.recipe(row["precision"]), hw.device(row["device"])
    moved = hw.gemm_bytes(m, n, k, **recipe.operand_bytes)
    bound = gemm_seconds(m, n, k, recipe, ideal_constants(device, recipe))
    cold = (moved > 4 * (device.l2 or 126e6)) & np.isfinite(grid.seconds)
    assert (grid.seconds[cold] > bound[cold]).all()


def test_all_slices_of_the_issue_are_there():
    have = {(r["device"], r["framework"], r["precision"]) for r in slices()}
    blackwell = {
        (d, f, p) for d in ("GB300", "B200") for f in ("sglang", "trtllm") for p in ("bf16", "fp8", "fp8_block", "nvfp4")
    }
    hopper = {(d, f, p) for d in ("H200", "H100_SXM") for f in ("sglang", "trtllm") for p in ("bf16", "fp8", "fp8_block")}
    assert have == blackwell | hopper | {("A100_SXM", f, "bf16") for f in ("sglang", "trtllm")} | {("GB300", "vllm", "nvfp4")}


def test_the_grid_is_shared_and_read_only():
    with pytest.raises(ValueError, match="read-only"):
        hw.gemm_grid("GB300", "nvfp4").seconds[0, 0, 0] = 1


def extract():
    path = Path(__file__).parents[1] / "scripts" / "extract_silicon.py"
    spec = importlib.util.spec_from_file_location("extract_silicon", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_extraction_takes_the_newest_version_and_never_a_mean(tmp_path):
    e = extract()
    with zipfile.ZipFile(tmp_path / "wheel.whl", "w") as wheel:
        for version in ("0.5.9", "0.5.14", "0.5.6.post2", "0.5.15.dev3"):
            wheel.writestr(f"{silicon_source.ROOT}/h100_sxm/gemm/sglang/{version}/gemm_perf.parquet", b"")
    found = silicon_source.Source(tmp_path / "wheel.whl").versions("H100_SXM", "gemm", "gemm", "sglang")
    assert list(found) == ["0.5.14", "0.5.9", "0.5.6.post2"] and found["0.5.14"].split("/")[-2] == "0.5.14"
    assert max(["1.3.0rc20", "1.3.0", "1.3.0rc3"], key=silicon_source.version_key) == "1.3.0"
    with pytest.raises(ValueError, match="two rows for one shape"):
        e.grid([1, 1], [2, 2], [3, 3], [1e-6, 2e-6])


def test_extraction_gives_the_same_bytes_from_the_same_rows():
    e = extract()
    grid = hw.gemm_grid("A100_SXM", "bf16", "trtllm")
    m, n, k = (x.ravel() for x in np.meshgrid(grid.m, grid.n, grid.k, indexing="ij"))
    milliseconds = 1e3 * grid.seconds.ravel().astype(float)
    rows = np.flatnonzero(~np.isnan(milliseconds))
    shuffled = np.random.default_rng(0).permutation(rows)  # the order of the rows must not matter
    first, again = (e.grid(m[r], n[r], k[r], milliseconds[r]) for r in (rows, shuffled))
    assert e.npz_bytes(*first) == e.npz_bytes(*again)
    assert np.allclose(first[1], grid.seconds, rtol=1e-6, equal_nan=True) and first[1].dtype == np.float32


@pytest.mark.skipif(
    "HWDESIGN_WHEEL" not in os.environ, reason="set HWDESIGN_WHEEL to the aisimulate wheel to re-extract"
)
def test_extraction_of_the_wheel_gives_the_shipped_bytes(tmp_path):
    extract().main(os.environ["HWDESIGN_WHEEL"], tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == DATA.joinpath(path.name).read_bytes(), path.name
