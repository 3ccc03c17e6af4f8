"""Formulas: published integers, independent oracles, limits, and errors that name the argument."""

import time
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwdesign import units
from hwdesign.formulas import roofline as r

dimension = st.integers(1, 2**22)
size = st.sampled_from([0.5625, 0.53125, 1.0, 1.03125, 2.0, 4.0])


def test_published_intensities_of_table_2():
    m = np.array([256, 2048, 16384])
    flops, moved = r.gemm_flops(m, 8192, 512), r.gemm_bytes(m, 8192, 512, a=0.5625, b=0.5625, c=1.0)
    assert np.round(r.intensity(flops, moved)).tolist() == [474, 871, 973]
    assert round(r.gemm_intensity(np.inf, 8192, 512, a=0.5625, b=0.5625, c=1.0)) == 989


def test_published_times_of_table_2():
    m = np.array([256, 2048, 16384])
    assert np.round(r.gemm_flops(m, 8192, 512) / 15e15 * 1e6, 2).tolist() == [0.14, 1.15, 9.16]
    read = r.gemm_read_bytes(m, 8192, 512, a=0.5625, b=0.5625) / 8e12 * 1e6
    assert np.round(read, 3).tolist() == [0.304, 0.369, 0.885]  # the post prints 0.89
    assert np.round(r.gemm_write_bytes(m, 8192, c=1.0) / 8e12 * 1e6, 1).tolist() == [0.3, 2.1, 16.8]


def test_half_a_byte_per_nvfp4_element_would_not_give_table_2():
    read = r.gemm_read_bytes(np.array([256, 2048, 16384]), 8192, 512, a=0.5, b=0.5) / 8e12 * 1e6
    assert np.round(read, 2).tolist() == [0.27, 0.33, 0.79]


def test_ridge_and_break_even_of_the_chapter():
    assert r.ridge(15e15, 8e12) == 1875
    assert round(r.break_even_k(np.inf, 8192, ridge_point=1875, a=0.5625, b=0.5625, c=1.0)) == 1002
    assert round(r.break_even_k(np.inf, 8192, ridge_point=1875, a=0.5625, b=0.5625, c=2.0)) == 2004
    assert round(r.critical_dimension(1875, 0.5625)) == 527


def test_flop_is_two_per_multiply_add():
    assert r.gemm_flops(1024, 1024, 1024) == 2_147_483_648  # fvcore issue 69: 1,073,741,824 multiply-adds


def test_no_integer_overflow():
    n = 2**22
    assert r.gemm_flops(n, n, n) == 2.0**67
    assert r.gemm_flops(np.int64(n), np.array([n]), n)[0] == 2.0**67


@given(dimension, dimension, dimension, size, size, size)
def test_identity_agrees_with_counting(m, n, k, a, b, c):
    counted = r.intensity(r.gemm_flops(m, n, k), r.gemm_bytes(m, n, k, a=a, b=b, c=c))
    assert np.isclose(counted, r.gemm_intensity(m, n, k, a=a, b=b, c=c), rtol=1e-12)
    assert counted <= 2 * min(n / a, m / b, k / c)


@given(dimension, dimension, size, size, size, st.floats(10, 5000))
def test_break_even_lies_on_the_ridge(m, n, a, b, c, ridge_point):
    k = r.break_even_k(m, n, ridge_point=ridge_point, a=a, b=b, c=c)
    if np.isfinite(k):
        assert np.isclose(r.gemm_intensity(m, n, k, a=a, b=b, c=c), ridge_point, rtol=1e-6)
    else:
        assert r.gemm_intensity(m, n, 1e30, a=a, b=b, c=c) <= ridge_point * (1 + 1e-12)


@given(dimension, dimension, dimension)
def test_more_of_any_dimension_never_lowers_the_intensity(m, n, k):
    at = {"a": 0.5625, "b": 0.5625, "c": 2.0}
    base = r.gemm_intensity(m, n, k, **at)
    assert all(r.gemm_intensity(*shape, **at) >= base for shape in ((m + 1, n, k), (m, n + 1, k), (m, n, k + 1)))


def test_arrays_equal_loops_and_scalars_stay_scalars():
    m, n = np.array([1, 7, 4096])[:, None], np.array([128, 8192])[None, :]
    array = r.gemm_bytes(m, n, 512, a=1, b=2, c=4)
    loop = [[r.gemm_bytes(int(i), int(j), 512, a=1, b=2, c=4) for j in n[0]] for i in m[:, 0]]
    assert array.shape == (3, 2) and (array == loop).all()
    assert np.ndim(r.gemm_flops(1, 2, 3)) == 0 and isinstance(r.gemm_flops(1, 2, 3), float)
    assert r.gemm_flops([1, 2], 3, 4).tolist() == [24, 48] and r.gemm_flops([], 1, 1).shape == (0,)
    assert r.gemm_flops(Fraction(6, 2), Decimal(2), 2**100) == 12 * 2.0**100  # any real number that is whole


def test_attainable_rate_and_bound_are_the_two_roofs():
    roofs = {"peak_flops": 15e15, "bandwidth": 8e12}
    assert r.attainable_flops(100, **roofs) == 8e14 and r.attainable_flops(1e5, **roofs) == 15e15
    assert r.bound_time(15e15, 1, **roofs) == 1 and r.bound_time(1, 8e12, **roofs) == 1
    flops, moved = r.gemm_flops(64, 8192, 512), r.gemm_bytes(64, 8192, 512, a=1, b=1, c=1)
    assert np.isclose(flops / r.bound_time(flops, moved, **roofs), r.attainable_flops(flops / moved, **roofs))


def test_columns_from_which_a_pass_over_the_inputs_pays():
    gb300 = r.break_even_n(2.5e15, 15e15, bandwidth=8e12, moved=2.5625)
    assert round(float(gb300)) == 480  # 320.3 fs a number of the inputs, of which a column takes 0.8 fs, then 0.1333
    # A tenth of a millisecond a number; a column takes 2 us, then 1 us: 100 columns. Nothing, at an endless rate: 50.
    assert r.break_even_n(1e6, [2e6, np.inf], bandwidth=1e4, moved=1) == pytest.approx([100, 50])
    assert r.break_even_n(1e6, 2e6, bandwidth=1e4, moved=[1, 2, np.inf]) == pytest.approx([100, 200, np.inf])


PASSES = {  # peaks of the two formats, bandwidth, bytes read and written
    "GB300, NVFP4": (2.5e15, 15e15, 8e12, "2.5625"), "B200, NVFP4": (2.25e15, 9e15, 8e12, "2.5625"),
    "H100, FP8": (989e12, 1979e12, 3.35e12, "3"), "a slow memory": (1e12, 3e12, 1e9, "6"),
}  # fmt: skip


@pytest.mark.parametrize("case", PASSES.values(), ids=PASSES)
def test_no_narrower_product_pays_for_its_pass_when_math_sets_the_time(case):
    wide, narrow, bandwidth, moved = map(Fraction, case)

    def gain(m, n, k):
        """Time of the wide product, less that of the narrow one and of the pass over its inputs [s]."""
        return 2 * m * n * k / wide - 2 * m * n * k / narrow - m * k * moved / bandwidth

    for m, k in ((1, 1), (8, 37), (4096, 512)):
        first = next(n for n in range(1, 50_000) if gain(m, n, k) > 0)
        assert first - 1 <= r.break_even_n(*map(float, case[:2]), bandwidth=case[2], moved=float(moved)) < first


@pytest.mark.parametrize(("case", "size", "columns"), [("H100, FP8", 1, 886), ("GB300, NVFP4", 0.5625, 489)])
def test_where_the_narrow_product_waits_for_memory_the_pass_pays_later(case, size, columns):
    wide, narrow, bandwidth, moved = PASSES[case]
    m = k = 2.0**40  # so large that weights and results count for nothing
    n = np.arange(1.0, 2000)
    flops = r.gemm_flops(m, n, k)
    before = r.bound_time(flops, m * k * 2, peak_flops=wide, bandwidth=bandwidth)
    after = r.bound_time(flops, m * k * size, peak_flops=narrow, bandwidth=bandwidth) + m * k * float(moved) / bandwidth
    assert n[before > after][0] == columns
    by_math = r.break_even_n(wide, narrow, bandwidth=bandwidth, moved=float(moved))
    # FP8 on H100 is compute-bound from 295 columns on; NVFP4 on GB300 from 527, so 480 is 2 % too early there
    assert (by_math > r.critical_dimension(narrow / bandwidth, size)) == (np.ceil(by_math) == columns)


def test_weights_from_which_a_smaller_format_pays_for_a_longer_start():
    assert r.break_even_area(1e-6, bandwidth=8e12, wide_bytes=2.0, narrow_bytes=1.0) == 8e6  # 8 MB more in a microsecond
    assert r.break_even_area(5.75e-6, bandwidth=8e12, wide_bytes=2, narrow_bytes=0.5625) == pytest.approx(32e6)
    assert r.break_even_area([1, 2], bandwidth=[[10], [np.inf]], wide_bytes=2, narrow_bytes=1).tolist() == [
        [10, 20],
        [np.inf] * 2,
    ]
    start, later = Fraction("4.1e-6"), Fraction("6.4e-6")  # fixed time in BF16 and in NVFP4
    first = next(
        n for n in range(1, 20_000) if later + Fraction(9, 16) * n * n / 8 / 10**12 < start + Fraction(2) * n * n / 8 / 10**12
    )
    found = r.break_even_area(float(later - start), bandwidth=8e12, wide_bytes=2, narrow_bytes=0.5625)
    assert (first - 1) ** 2 <= found < first**2 and first == 3578


def test_published_limit_of_amdahl():
    assert r.amdahl_speedup(0.5, 2) == 4 / 3
    assert r.amdahl_speedup([0.5, 0.75, 0.95], np.inf) == pytest.approx([2, 4, 20])  # a twentieth stays: at most 20 times
    assert r.amdahl_speedup([0, 0.3, 1], 1).tolist() == [1, 1, 1]
    assert r.amdahl_speedup(1, 6) == 6 and r.amdahl_speedup(0, 6) == 1 and r.amdahl_speedup(1, np.inf) == np.inf
    assert np.shape(r.amdahl_speedup([[0.1], [0.2]], [1, 2, 3])) == (2, 3) and np.ndim(r.amdahl_speedup(0.1, 2)) == 0


@given(st.floats(0, 1), st.floats(0.01, 100), st.floats(0, 1), st.floats(0.01, 100))
def test_amdahl_is_the_sum_of_two_times_and_grows_with_share_and_gain(share, gain, more, faster):
    found = r.amdahl_speedup(share, gain)
    fast = Fraction(share) / Fraction(gain)
    assert found == pytest.approx(float(1 / (1 - Fraction(share) + fast)), rel=1e-12)
    assert min(1, gain) * (1 - 1e-12) <= found <= max(1, gain) * (1 + 1e-12)
    larger = r.amdahl_speedup(max(share, more), gain)
    assert larger >= found * (1 - 1e-12) if gain >= 1 else larger <= found * (1 + 1e-12)
    assert r.amdahl_speedup(share, max(gain, faster)) >= found * (1 - 1e-12)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: r.amdahl_speedup(1.01, 2), "share must be between 0 and 1, got 1.01"),
        (lambda: r.amdahl_speedup([0.5, -0.1], 2), "share must be between 0 and 1, got -0.1"),
        (lambda: r.amdahl_speedup(float("nan"), 2), "share must be between 0 and 1, got nan"),
        (lambda: r.amdahl_speedup("half", 2), "share must be a number"),
        (lambda: r.amdahl_speedup(0.5, 0), "gain must be > 0, got 0"),
        (lambda: r.amdahl_speedup(0.5, [2, -3]), "gain must be > 0, got -3"),
        (
            lambda: r.amdahl_speedup([0.1, 0.2], [1, 2, 3]),
            "share, gain must broadcast against each other, got shapes share (2,), gain (3,)",
        ),
        (lambda: r.break_even_n(2, 2, bandwidth=1, moved=1), "narrow_peak must be above wide_peak, got 2 and 2"),
        (lambda: r.break_even_n([1, 3], 2, bandwidth=1, moved=1), "narrow_peak must be above wide_peak, got 2 and 3"),
        (lambda: r.break_even_n(0, 2, bandwidth=1, moved=1), "wide_peak must be > 0, got 0"),
        (lambda: r.break_even_n(1, float("nan"), bandwidth=1, moved=1), "narrow_peak must be > 0, got nan"),
        (lambda: r.break_even_n(1, 2, bandwidth=-1, moved=1), "bandwidth must be > 0, got -1"),
        (lambda: r.break_even_n(1, 2, bandwidth=1, moved="a"), "moved must be a number"),
        (lambda: r.break_even_area(0, bandwidth=1, wide_bytes=2, narrow_bytes=1), "extra_seconds must be > 0, got 0"),
        (lambda: r.break_even_area(1, bandwidth=0, wide_bytes=2, narrow_bytes=1), "bandwidth must be > 0, got 0"),
        (lambda: r.break_even_area(1, bandwidth=1, wide_bytes=2, narrow_bytes=0), "narrow_bytes must be > 0, got 0"),
        (
            lambda: r.break_even_area(1, bandwidth=1, wide_bytes=1, narrow_bytes=1),
            "narrow_bytes must be below wide_bytes, got 1 and 1",
        ),
        (lambda: r.break_even_area(1, bandwidth=1, wide_bytes=[2, 1], narrow_bytes=1.5), "below wide_bytes, got 1.5 and 1"),
        (lambda: r.gemm_flops(1, 1, 0), "k must be >= 1, got 0"),
        (lambda: r.gemm_flops(1, [8, -3], 1), "n must be >= 1, got -3"),
        (lambda: r.gemm_flops(2.5, 1, 1), "m must be a whole number, got 2.5"),
        (lambda: r.gemm_flops(float("nan"), 1, 1), "m must be >= 1, got nan"),
        (lambda: r.gemm_flops(float("inf"), 1, 1), "m must be a whole number, got inf"),
        (lambda: r.gemm_flops("8", 1, 1), "m must be a number or an array of numbers, got '8'"),
        (lambda: r.gemm_flops(None, 1, 1), "m must be a number"),
        (lambda: r.gemm_flops(True, 1, 1), "m must be a number"),
        (lambda: r.gemm_flops([True, False], 1, 1), "m must be a number"),
        (lambda: r.gemm_flops(["3", "4"], 1, 1), "m must be a number or an array of numbers, got ['3', '4']"),
        (lambda: r.gemm_flops(np.array("8"), 1, 1), "m must be a number"),
        (lambda: r.gemm_flops(b"8", 1, 1), "m must be a number"),
        (lambda: r.gemm_flops(1 + 2j, 1, 1), "m must be a number"),
        (lambda: r.gemm_flops(np.datetime64("2026-01-01"), 1, 1), "m must be a number"),
        (lambda: r.gemm_flops([[1, 2], [3]], 1, 1), "m must be a number"),
        (lambda: r.gemm_flops(object(), 1, 1), "m must be a number"),
        (lambda: r.gemm_flops(10**400, 1, 1), "m must be below 1.8e308"),
        (lambda: r.gemm_bytes(1, 1, 1, a=0, b=1, c=1), "a must be > 0, got 0"),
        (lambda: r.gemm_write_bytes(1, 1, c=-1), "c must be > 0, got -1"),
        (lambda: r.ridge(1e15, 0), "bandwidth must be > 0, got 0"),
        (lambda: r.critical_dimension(-1, 1), "ridge_point must be > 0, got -1"),
        (lambda: units.fmt(1, "s", digits=0), "digits must be >= 1, got 0"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises(ValueError, match="must b") as error:
        call()
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (999.96, "s", "1 ks"),
        (1e-3, "s", "1 ms"),
        (0, "s", "0 s"),
        (-2.5e12, "byte/s", "-2.5 TB/s"),
        (1875, "FLOP/byte", "1875 FLOP/byte"),
        (float("inf"), "s", "inf s"),
        (2.33e-5, "s", "23.3 µs"),
        (80e9, "byte", "80 GB"),
    ],
)
def test_fmt_scales_once(value, unit, text):
    assert units.fmt(value, unit) == text


def test_gib_is_not_gb():
    assert units.fmt(45 * units.GIB, "byte") == "48.3 GB"  # hf-mem issue 33: a 48 GB card holds 45 GiB
    assert round(83e9 / units.GIB, 1) == 77.3  # torchtune pull 1348


@pytest.mark.alone
def test_ten_million_shapes_in_two_seconds():
    shapes = np.random.default_rng(0).integers(1, 2**15, (3, 10_000_000)).astype(float)
    start = time.process_time()
    flops = r.gemm_flops(*shapes)
    moved = r.gemm_bytes(*shapes, a=0.5625, b=0.5625, c=2.0)
    bound = r.bound_time(flops, moved, peak_flops=15e15, bandwidth=8e12)
    spent = time.process_time() - start
    assert bound.shape == (10_000_000,) and spent < 2, f"{spent:.2f} s"
