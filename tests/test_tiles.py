"""Tiles, waves, clusters, widths near a wish, and staircases: single tiles placed in a loop, scans, and published times."""

import csv
from bisect import bisect_left, bisect_right
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hwdesign as hw
from hwdesign.formulas import tiling
from hwdesign.formulas.tiling import cluster_efficiency
from hwdesign.lessons.studies.staircase import Staircase, fit_staircase
from hwdesign.models.sharding import Neighbours, Tier, best_tier
from hwdesign.timing.silicon import slices

# Counted from the rows of aisimulate 0.13.0.dev202610270000000085, without the package's reader: median and 90th percentile of
# t(m + 1) / t(m)
# over the shapes with N x K >= 2^24 that were measured at both sizes.
CLIFFS = list(csv.DictReader((Path(__file__).parent / "data" / "tile_cliffs.csv").open(encoding="utf-8")))
SLICES = list(dict.fromkeys((r["device"], r["precision"], r["framework"]) for r in CLIFFS))


def placed(m, n, tile_m, tile_n, sms):
    """Tiles, waves, outputs within the tiles and places left over in the last wave, by placing one tile after another."""
    tiles = waves = outputs = free = 0
    for top in range(0, m, tile_m):
        for left in range(0, n, tile_n):
            if not free:
                waves, free = waves + 1, sms
            tiles, free = tiles + 1, free - 1
            outputs += (min(top + tile_m, m) - top) * (min(left + tile_n, n) - left)
    return tiles, waves, outputs, free


def walked(n, tile, cluster, idle):
    """Efficiency of clusters, exactly, by walking from tile to tile: full price with outputs, `idle` of it without."""
    cost = Fraction(0)
    for first in range(0, n, cluster):
        for left in range(first, first + cluster, tile):
            cost += tile if left < n else Fraction(idle) * tile
    return n / cost


# Tiles and waves ----------------------------------------------------------------------------------------------------------


@given(*(st.integers(1, 400) for _ in "mn"), *(st.integers(16, 90) for _ in "mn"), st.integers(1, 30))
def test_tiles_and_waves_are_those_placed_one_by_one(m, n, tile_m, tile_n, sms):
    tiles, waves, outputs, free = placed(m, n, tile_m, tile_n, sms)
    tile = {"tile_m": tile_m, "tile_n": tile_n}
    assert tiling.waves(m, n, **tile, sms=sms) == waves and outputs == m * n
    assert tiling.waves(m, n, **tile, sms=1) == tiles
    assert hw.tile_efficiency(m, n, **tile) == pytest.approx(outputs / (tiles * tile_m * tile_n), rel=1e-12)
    assert hw.wave_efficiency(m, n, **tile, sms=sms) == pytest.approx(tiles / (tiles + free), rel=1e-12)


def test_one_column_more_starts_a_second_wave_on_an_a100():
    tile = {"tile_m": 256, "tile_n": 128, "sms": 108}  # NVIDIA, matrix multiplication guide
    assert tiling.waves(2304, 1536, **(tile | {"sms": 1})) == 108
    assert tiling.waves(2304, [1536, 1537], **tile).tolist() == [1, 2]
    assert hw.wave_efficiency(2304, [1536, 1537], **tile).tolist() == [1, 117 / 216]


def test_waves_of_3584_tiles_on_blackwell():
    tile = {"tile_m": 128, "tile_n": 256}  # stas00/ml-engineering 744d01e
    assert [float(tiling.waves(8192, 14336, **tile, sms=sms)) for sms in (1, 148, 152)] == [3584, 25, 24]


# Clusters -----------------------------------------------------------------------------------------------------------------

tile_sizes = st.sampled_from([1, 16, 96, 128, 256])


@given(st.integers(1, 6000), tile_sizes, st.integers(1, 5), st.floats(0, 1))
def test_a_cluster_costs_what_its_tiles_cost(n, tile, tiles, idle):
    found = cluster_efficiency(n, tile=tile, cluster=tile * tiles, idle=idle)
    assert found == pytest.approx(float(walked(n, tile, tile * tiles, idle)), rel=1e-12)


@given(st.integers(1, 6000), tile_sizes, st.integers(1, 5), st.floats(1e-3, 1))
@example(512, 256, 2, 0.3)
@example(1536, 256, 2, 0.3)
@example(3072, 256, 2, 0.1)
def test_efficiency_is_never_above_one_and_one_only_at_multiples_of_the_cluster(n, tile, tiles, idle):
    cluster = tile * tiles
    for columns in (n, n * cluster):
        found = cluster_efficiency(columns, tile=tile, cluster=cluster, idle=idle)
        assert 0 < found <= 1 and (found == 1) == (columns % cluster == 0)


@pytest.mark.parametrize("idle", [0.1, 0.2, 0.3, 0.45, 0.7])
def test_multiples_of_the_cluster_are_exactly_one_whatever_an_idle_tile_costs(idle):
    assert set(cluster_efficiency(np.arange(512, 2**16, 512), tile=256, cluster=512, idle=idle).tolist()) == {1.0}


@given(st.integers(1, 4000), st.sampled_from([64, 100, 256]), st.integers(1, 4))
def test_at_its_ends_one_period_is_left(n, tile, tiles):
    shape = {"tile": tile, "cluster": tile * tiles}
    whole = sum(tile for _ in range(0, n, tile)), sum(tile * tiles for _ in range(0, n, tile * tiles))
    assert [float(cluster_efficiency(n, **shape, idle=idle)) for idle in (0, 1)] == [n / x for x in whole]
    assert cluster_efficiency(n, **shape, idle=0) == hw.tile_efficiency(1, n, tile_m=1, tile_n=tile)


def test_figure_5_has_its_maxima_at_multiples_of_256_and_512():
    n = np.arange(255, 4098)
    value = cluster_efficiency(n, tile=256, cluster=512, idle=0.5)
    top = (value[1:-1] > value[:-2]) & (value[1:-1] > value[2:])
    at, peak = n[1:-1][top], value[1:-1][top]
    assert at.tolist() == list(range(256, 4097, 256))
    assert peak[1::2].tolist() == [1.0] * 8
    odd = peak[::2]
    assert (odd < 1).all() and (np.diff(odd) > 0).all()
    assert odd[:3].tolist() == [256 / 384, 768 / 896, 1280 / 1408]  # the outputs, and half a tile of 256 that idles
    assert (np.diff(value)[(n[:-1] % 256) != 0] > 0).all()  # within a tile each column more is for free


def test_an_array_is_a_loop_over_numbers():
    n, idle = np.array([1, 255, 256, 257, 512, 513, 1281])[:, None], np.array([0, 0.25, 1.0])
    table = cluster_efficiency(n, tile=256, cluster=512, idle=idle)
    assert table.shape == (7, 3)
    assert table.tolist() == [[float(cluster_efficiency(x, tile=256, cluster=512, idle=i)) for i in idle] for x in n[:, 0]]
    assert np.shape(cluster_efficiency(1280, tile=256, cluster=512, idle=0.5)) == ()


# Widths -------------------------------------------------------------------------------------------------------------------

MULTIPLES = {
    "bf16": {"kernel": 8},  # 16 bytes
    "fp8": {"kernel": 16},
    "mxfp4": {"format": 32},
    "nvfp4": {"format": 16, "kernel": 32},
    "fp8_128x128": {"format": 128},
    "int4_g128": {"format": 128},
}
TILES = {"tile 128": 128, "tile 256": 256, "tile 512": 512}


@pytest.mark.parametrize("ways", [1, 2, 3, 8])
@pytest.mark.parametrize("precision", MULTIPLES)
def test_widths_near_a_wish_are_those_that_a_scan_finds(precision, ways):
    rules = MULTIPLES[precision] | TILES
    good = {name: [w for w in range(1, 13000) if w % ways == 0 and (w // ways) % x == 0] for name, x in rules.items()}
    for wish in range(1, 6001, 7):
        found = hw.widths_near(wish, ways, precision)
        assert list(found) == list(rules)
        for name, near in found.items():
            below, above = bisect_right(good[name], wish), bisect_left(good[name], wish)
            lower, upper = good[name][below - 1] if below else None, good[name][above]
            assert (near.lower, near.upper) == (lower, upper), (wish, name)
            assert near.prices == (lower and pytest.approx(lower / wish - 1), pytest.approx(upper / wish - 1))
            assert near.nearest == (lower if lower and wish - lower <= upper - wish else upper)


def test_widths_near_11000_for_eight_gpus_in_nvfp4():
    found = hw.widths_near(11000, 8, "nvfp4")  # 85 x 128, 86 x 128; 42 x 256, 43 x 256; 10 x 1024, 11 x 1024; ...
    assert {name: (x.lower, x.upper, x.nearest) for name, x in found.items()} == {
        "format": (10880, 11008, 11008),
        "kernel": (10752, 11008, 11008),
        "tile 128": (10240, 11264, 11264),
        "tile 256": (10240, 12288, 10240),
        "tile 512": (8192, 12288, 12288),
    }
    assert [x.step for x in found.values()] == [128, 256, 1024, 2048, 4096]
    assert [round(p, 4) for p in found["tile 512"].prices] == [-0.2553, 0.1171]


def test_published_widths():
    near = hw.widths_near(29568, 8)["tile 128"]
    assert (near.lower, near.upper, near.nearest) == (28672, 29696, 29696)  # Qwen3 issue 578
    assert hw.widths_near(29568, 8, "int4_g128")["format"] == near
    assert str(near) == "multiples of 128 x 8 = 1024: 28672 (-3.03%) or 29696 (+0.43%)"


def test_a_wish_that_is_met_or_too_small_or_halfway():
    met, small = hw.widths_near(2048, 8)["tile 128"], hw.widths_near(1000, 8)["tile 128"]
    assert (met.lower, met.upper, met.nearest, met.prices) == (2048, 2048, 2048, (0, 0))
    assert str(met) == "multiples of 128 x 8 = 1024: 2048 (+0.00%)"
    assert (small.lower, small.upper, small.nearest) == (None, 1024, 1024) and small.prices == (None, pytest.approx(0.024))
    assert str(small) == "multiples of 128 x 8 = 1024: 1024 (+2.40%)"
    assert hw.widths_near(1536, 8)["tile 128"].nearest == 1024  # of two equally near, the lower


@pytest.mark.parametrize(
    ("width", "precision", "tiers"),
    [  # each by hand: the share of a GPU over 16, 32, 128, 256, 512
        (1856, "nvfp4", {1: "kernel", 2: "kernel", 4: "format", 8: "cut", 3: "uneven"}),  # vLLM issue 49949: 1856 = 29 x 64
        (1536, "fp8_128x128", {1: "tile 512", 2: "tile 256", 3: "tile 512", 4: "tile 128", 6: "tile 256", 8: "cut", 5: "uneven"}),
        (2880, "bf16", {1: "kernel", 4: "kernel", 8: "kernel", 64: "whole", 7: "uneven"}),  # 22.5 x 128; 2880 / 64 = 45
        (2880, "nvfp4", {1: "kernel", 2: "kernel", 4: "format", 8: "cut"}),  # 1440 = 45 x 32, 720 = 45 x 16, 360 = 22.5 x 16
        (50257, "bf16", {1: "whole", 2: "uneven", 29: "whole"}),  # 29 x 1733
        (50257, "nvfp4", {1: "cut", 2: "uneven"}),
        (50304, "bf16", {1: "tile 128", 3: "tile 128", 2: "kernel", 16: "kernel", 32: "whole"}),  # 393 x 128; 1572 = 196.5 x 8
        (29568, "int4_g128", {1: "tile 128", 2: "cut", 3: "tile 128", 7: "tile 128", 8: "cut", 5: "uneven"}),  # 231 x 128
        (29696, "int4_g128", {1: "tile 512", 2: "tile 512", 4: "tile 256", 8: "tile 128", 16: "cut"}),  # 58 x 512
        (8192, "bf16", {1: "tile 512", 16: "tile 512", 32: "tile 256", 64: "tile 128", 128: "kernel", 2048: "whole"}),
    ],
)
def test_the_strictest_tier_of_known_widths(width, precision, tiers):
    assert {ways: best_tier(width, ways, precision) for ways in tiers} == tiers


# Staircases ---------------------------------------------------------------------------------------------------------------

TILE, SMS = (128, 256), 40
TRUE = {"fixed": 4e-6, "per_row": 3e-9, "per_wave": 5e-6}


def synthetic(noise=0.0):
    m, n = np.meshgrid(np.arange(100, 4200, 130), [1024, 2560, 5000])
    m, n = m.ravel(), n.ravel()
    waves = np.array([placed(*shape, *TILE, SMS)[1] for shape in zip(m.tolist(), n.tolist(), strict=True)])
    seconds = TRUE["fixed"] + TRUE["per_row"] * m + TRUE["per_wave"] * waves
    return m, n, seconds * (1 + noise * np.random.default_rng(5).standard_normal(len(m)))


def test_a_staircase_is_recovered_from_its_times():
    m, n, seconds = synthetic()
    fit = fit_staircase(m, n, seconds, tile=TILE, sms=SMS)
    assert {name: getattr(fit, name) for name in TRUE} == pytest.approx(TRUE, rel=1e-9) and fit.error < 1e-12
    assert np.allclose(fit.seconds(m, n), seconds, rtol=1e-12)
    assert (fit.tile, fit.sms) == (TILE, SMS)
    by_hand = 4e-6 + 3e-9 * 129 + 2 * 5e-6  # 2 x 21 tiles on 40 processors
    assert fit.seconds(129, 5121) == pytest.approx(by_hand, rel=1e-9) and np.shape(fit.seconds(129, 5121)) == ()
    assert fit.seconds(129, [5120, 5121]).tolist() == pytest.approx([by_hand - 5e-6, by_hand], rel=1e-9)


def test_one_percent_of_noise_moves_a_staircase_little():
    m, n, seconds = synthetic(noise=0.01)
    fit = fit_staircase(m, n, seconds, tile=TILE, sms=SMS)
    assert {name: getattr(fit, name) for name in TRUE} == pytest.approx(TRUE, rel=0.05)
    assert 0.008 < fit.error < 0.012
    others = [fit_staircase(m, n, seconds, tile=TILE, sms=sms).error for sms in (SMS - 4, SMS + 4)]
    assert min(others) > 2 * fit.error


def test_the_fit_is_the_best_in_relative_error():
    m, n, seconds = synthetic(noise=0.05)
    fit = fit_staircase(m, n, seconds, tile=TILE, sms=SMS)

    def error(staircase):
        return np.sqrt(np.mean((staircase.seconds(m, n) / seconds - 1) ** 2))

    assert fit.error == pytest.approx(error(fit), rel=1e-9)
    for name in TRUE:
        for factor in (0.98, 1.02):
            moved = {x: getattr(fit, x) * (factor if x == name else 1) for x in TRUE}
            assert error(Staircase(**moved, tile=TILE, sms=SMS, error=0.0)) > fit.error


def test_times_that_are_missing_are_skipped():
    m, n, seconds = synthetic(noise=0.01)
    gone = np.arange(len(m)) % 3 == 0
    fit = fit_staircase(m, n, np.where(gone, np.nan, seconds), tile=TILE, sms=SMS)
    assert fit == fit_staircase(m[~gone], n[~gone], seconds[~gone], tile=TILE, sms=SMS)
    assert fit != fit_staircase(m, n, seconds, tile=TILE, sms=SMS)


def test_without_a_tile_a_line_is_left():
    m = np.array([128, 300, 512, 1024])
    line = fit_staircase(m, 4096, 2e-6 + 3e-9 * m)
    assert (line.fixed, line.per_row, line.per_wave) == pytest.approx((2e-6, 3e-9, 0), rel=1e-9)
    assert line.tile is None and line.sms is None and line.error < 1e-12
    assert line.seconds([1000, 2000], 1).tolist() == pytest.approx([5e-6, 8e-6], rel=1e-9)


def test_times_of_a_line_broadcast_as_those_of_a_staircase():
    line = Staircase(fixed=1.0, per_row=0.5, per_wave=0.0, tile=None, sms=None, error=0.0)
    stairs = Staircase(fixed=1.0, per_row=0.5, per_wave=0.0, tile=(128, 256), sms=10, error=0.0)
    assert np.shape(stairs.seconds(4, [256, 512])) == (2,) == np.shape(line.seconds(4, [256, 512]))


@pytest.mark.parametrize(("device", "n"), [(d, n) for d in ("GB300", "B200") for n in (3584, 4096, 8192)])
def test_published_times_are_a_staircase_and_no_line(device, n):
    grid = hw.gemm_grid(device, "nvfp4", "trtllm")
    m = grid.m[(grid.m >= 128) & (grid.m <= 4353)]
    seconds = grid.at(m, n, 8192)
    assert len(m) == 42
    assert fit_staircase(m, n, seconds, tile=(128, 256), sms=hw.device(device).sms).error < 0.02
    assert fit_staircase(m, n, seconds).error > 0.04


@pytest.mark.parametrize(("device", "sms"), [("GB300", 152), ("B200", 148)])
def test_published_times_tell_how_many_processors_there_are(device, sms):
    assert hw.device(device).sms == sms
    grid = hw.gemm_grid(device, "nvfp4", "trtllm")
    m = grid.m[(grid.m >= 128) & (grid.m <= 4353)]
    columns = (3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 16384)
    times = {n: grid.at(m, n, 8192) for n in columns}
    error = {
        x: np.mean([fit_staircase(m, n, t, tile=(128, 256), sms=x).error for n, t in times.items()]) for x in range(100, 201)
    }
    assert abs(min(error, key=error.get) - sms) <= 1


# Published cliffs ---------------------------------------------------------------------------------------------------------


def test_the_cliffs_cover_the_slices_that_ship():
    ship = {(s["device"], s["precision"], s["framework"]) for s in slices()}
    assert ship - set(SLICES) == {("A100_SXM", "bf16", "trtllm")} and len(CLIFFS) == 18 * len(SLICES) == 540


@pytest.mark.parametrize("key", SLICES, ids="/".join)
def test_growth_of_time_by_one_row_is_as_counted(key):
    grid = hw.gemm_grid(*key)
    n, k = (x.ravel() for x in np.meshgrid(grid.n, grid.k, indexing="ij"))
    large = n * k >= 2**24
    for row in (r for r in CLIFFS if (r["device"], r["precision"], r["framework"]) == key):
        growth = grid.at(int(row["m"]) + 1, n[large], k[large]) / grid.at(int(row["m"]), n[large], k[large])
        growth = growth[~np.isnan(growth)]
        assert len(growth) == int(row["shapes"]), row
        assert np.median(growth) == pytest.approx(float(row["median"]), abs=2e-4), row
        assert np.quantile(growth, 0.9) == pytest.approx(float(row["p90"]), abs=2e-4), row


# Errors -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: cluster_efficiency(0, tile=256, cluster=512, idle=0.5), "n must be >= 1, got 0"),
        (lambda: cluster_efficiency(1.5, tile=256, cluster=512, idle=0.5), "n must be a whole number, got 1.5"),
        (lambda: cluster_efficiency(1, tile=0, cluster=512, idle=0.5), "tile must be >= 1, got 0"),
        (lambda: cluster_efficiency(1, tile=256, cluster=0, idle=0.5), "cluster must be >= 1, got 0"),
        (lambda: cluster_efficiency(1, tile=256, cluster=384, idle=0.5), "cluster must be a multiple of tile = 256, got 384"),
        (lambda: cluster_efficiency(1, tile=512, cluster=256, idle=0.5), "cluster must be a multiple of tile = 512, got 256"),
        (lambda: cluster_efficiency(1, tile=256, cluster=512, idle=-0.1), "idle must be >= 0 and <= 1, got -0.1"),
        (lambda: cluster_efficiency(1, tile=256, cluster=512, idle=1.1), "idle must be >= 0 and <= 1, got 1.1"),
        (lambda: cluster_efficiency(1, tile=256, cluster=512, idle=np.nan), "idle must be >= 0 and <= 1, got nan"),
        (lambda: cluster_efficiency(1, tile=256, cluster=512, idle="half"), "idle must be a number"),
        (lambda: hw.widths_near(0, 8), "wish must be >= 1, got 0"),
        (lambda: hw.widths_near(11000, 0), "ways must be >= 1, got 0"),
        (lambda: hw.widths_near(11000, 8, "nvfp5"), "did you mean 'nvfp4'?"),
        (lambda: best_tier(0, 8), "width must be >= 1, got 0"),
        (lambda: best_tier(8, 0), "ways must be >= 1, got 0"),
        (lambda: best_tier([8, 16], 1), "width must be one number, got [8, 16]"),
        (lambda: hw.good_ways(8, most=0), "most must be >= 1, got 0"),
        (lambda: Neighbours(wish=0, ways=8, multiple=128), "wish must be >= 1, got 0"),
        (lambda: Neighbours(wish=100.5, ways=8, multiple=128), "wish must be a whole number, got 100.5"),
        (lambda: Tier(name="x", width=-128, ways=1, multiple=128), "width must be >= 1, got -128"),
        (lambda: fit_staircase([1, 2, 3, 4], 1, [1, 2, 3, 4], tile=128, sms=9), "tile must be two whole numbers"),
        (lambda: fit_staircase([1, 2, 3, 4], 1, [1, 2, 3, 4], tile=(8, 8, 1), sms=9), "tile must be two whole numbers"),
        (lambda: fit_staircase([1, 2, 3, 4], 1, [1, 2, 3, np.inf]), "seconds must be finite"),
        (lambda: fit_staircase([8] * 5, 1, [1, 2, 3, 4, 5]), "m and n must tell rows and waves apart"),
        (lambda: fit_staircase([1, 2, 3, 4], 256, [1, 2, 3, 4], tile=TILE, sms=9), "m and n must tell rows and waves apart"),
        (lambda: cluster_efficiency([1, 2, 3], tile=1, cluster=1, idle=[0.1, 0.2]), "must broadcast against each other"),
        (lambda: best_tier(8, 1, "nvfp5"), "did you mean 'nvfp4'?"),
        (lambda: fit_staircase([1, 2, 3, 4], 1, [1, 2, 3, 4], tile=TILE), "must be given together, got tile = (128, 256)"),
        (lambda: fit_staircase([1, 2, 3, 4], 1, [1, 2, 3, 4], sms=9), "tile and sms must be given together, got tile = None"),
        (lambda: fit_staircase([1, 2, 3, 4], 1, [1, 2, np.nan, 4]), "seconds must hold at least 4 measured times, got 3"),
        (lambda: fit_staircase([1, 2, 3, 4], 1, [1, 2, 0, 4]), "seconds must be > 0, got 0"),
        (lambda: fit_staircase([1, 2, 3, 4], 1, ["1", "x", "3", "4"]), "seconds must be a number"),
        (lambda: fit_staircase([1, 2, 0, 4], 1, [1, 2, 3, 4]), "m must be >= 1, got 0"),
        (lambda: fit_staircase([1, 2, 3, 4], -1, [1, 2, 3, 4]), "n must be >= 1, got -1"),
        (lambda: fit_staircase([1, 2, 3], 1, [1, 2, 3, 4]), "m, n, seconds must broadcast against each other"),
        (lambda: fit_staircase([1, 2, 3, 4], 1, [1, 2, 3, 4], tile=(0, 256), sms=9), "tile_m must be >= 1, got 0"),
        (lambda: fit_staircase([1, 2, 3, 4], 1, [1, 2, 3, 4], tile=TILE, sms=0), "sms must be >= 1, got 0"),
        (lambda: fit_staircase([1, 2, 3, 4], 1, [1, 2, 3, 4]).seconds(0, 1), "m must be >= 1, got 0"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises(ValueError, match="must") as error:
        call()
    assert says in str(error.value)
