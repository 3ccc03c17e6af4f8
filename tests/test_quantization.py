"""Few bits: every value, tie and neighbour against ml_dtypes and NumPy, whole encoders against slow ones, what is cut counted."""

import csv
import re
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_formats import E2M1, E4M3, slow_mxfp4, slow_nvfp4

import hwdesign as hw
from hwdesign.formulas.number_formats import ELEMENTS, cast, codes
from hwdesign.formulas.quantization import SCHEMES, Scheme, decode, encode, saturated, sqnr

VECTORS = list(csv.DictReader((Path(__file__).parent / "data" / "fp_format_vectors.csv").read_text("utf-8").splitlines()))
DTYPES = {"e2m1": ml_dtypes.float4_e2m1fn, "e4m3": ml_dtypes.float8_e4m3fn, "e8m0": ml_dtypes.float8_e8m0fnu}
LARGEST = {"e2m1": 6.0, "e4m3": 448.0, "e8m0": 2.0**127}
every_scheme = pytest.mark.parametrize("name", SCHEMES)


def held(name):
    """Every value that ml_dtypes knows of a format, by its bits, without NaN."""
    bits = np.arange(16 if name == "e2m1" else 256, dtype=np.uint8)
    values = bits.view(DTYPES[name]).astype(np.float64)
    return bits[np.isfinite(values)], values[np.isfinite(values)]


def plain(x, name):
    """The cast of ml_dtypes, which does not saturate."""
    return np.asarray(x, np.float32).astype(DTYPES[name])


def around(values):
    """Values, the midpoints between them, and the FP32 numbers on both sides of either."""
    values = np.unique(np.asarray(values, np.float32))
    points = np.concatenate([values, values[:-1] + np.diff(values) / 2])
    return np.concatenate([points, *(np.nextafter(points, np.float32(to)) for to in (-np.inf, np.inf))])


def scattered(seed, count=200_000, low=-150, high=127.9):
    """FP32 numbers of both signs over all magnitudes, subnormal ones as well."""
    rng = np.random.default_rng(seed)
    return (rng.choice([-1, 1], count) * 2.0 ** rng.uniform(low, high, count)).astype(np.float32)


# Elements, bit for bit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DTYPES)
def test_a_format_holds_the_values_of_ml_dtypes_under_the_same_codes(name):
    bits, values = held(name)
    assert ELEMENTS[name].values.tolist() == sorted(set(np.abs(values).tolist()))
    assert ELEMENTS[name].largest == LARGEST[name] and ELEMENTS[name].smallest == min(v for v in np.abs(values) if v)
    assert (cast(values, name) == values).all() and (codes(values, name) == bits).all()  # minus zero as well


@pytest.mark.parametrize("name", DTYPES)
def test_a_cast_is_that_of_ml_dtypes_after_clamping(name):
    x = np.concatenate([around(held(name)[1]), scattered(1), scattered(2, low=-12, high=9)])
    x = np.concatenate([x, -x]) if name != "e8m0" else np.abs(x)[np.abs(x) > 1.5 * 2.0**-127]  # below: the next test
    wanted = plain(np.clip(x, -LARGEST[name], LARGEST[name]), name)
    found = cast(x, name)
    assert np.array_equal(found, wanted.astype(np.float64))
    assert np.array_equal(codes(found, name), wanted.view(np.uint8))  # bits, so the sign of a zero, too
    reached, all_of_them = np.unique(found), np.unique(held(name)[1])  # of E8M0 all but the smallest
    assert np.array_equal(reached, all_of_them[1:] if name == "e8m0" else all_of_them)


def test_ml_dtypes_does_not_round_to_the_smallest_power_of_two_and_ours_does():
    x = np.array([1.0, 1.25, 1.49, 1.5, 1.75]) * 2.0**-127  # subnormal in FP32, where ml_dtypes 0.6.0 rounds up throughout
    assert (plain(x, "e8m0").astype(float) * 2.0**127).tolist() == [1, 2, 2, 2, 2]
    assert (cast(x, "e8m0") * 2.0**127).tolist() == [1, 1, 1, 2, 2]
    assert cast([0.0, 1e-45, 2.0**-128], "e8m0").tolist() == [2.0**-127] * 3 and cast(1e300, "e8m0") == 2.0**127


@pytest.mark.parametrize(("name", "largest"), [("fp16", 65504.0), ("fp32", float(np.finfo(np.float32).max))])
def test_a_cast_to_wider_formats_is_that_of_numpy(name, largest):
    x = np.random.default_rng(3).uniform(1, 2, 200_000) * 2.0 ** np.random.default_rng(4).integers(-160, 127, 200_000)
    dtype = {"fp16": np.float16, "fp32": np.float32}[name]
    held_by_it = np.ldexp(1 + np.arange(2048) / 2048, -14 if name == "fp16" else -126).astype(dtype).astype(float)
    ties = held_by_it + np.spacing(held_by_it.astype(dtype)).astype(float) / 2
    beside = np.nextafter(ties, 0), np.nextafter(ties, np.inf)
    x = np.concatenate([x, ties, *beside, np.arange(5000) * 2.0**-152, [largest, 1e-45]])
    wanted = np.minimum(x, largest).astype(dtype).astype(float)
    assert np.array_equal(cast(x, name), wanted) and np.array_equal(cast(-x, name), -wanted)
    assert cast(1e300, name) == largest and cast(-1e300, name) == -largest


def test_int4_rounds_to_even_between_minus_7_and_7():
    x = np.concatenate([np.linspace(-9, 9, 3601), around(np.arange(-9, 10))])
    wanted = [int(np.clip(round(float(v)), -7, 7)) for v in x]  # Python rounds ties to even
    assert cast(x, "int4").tolist() == wanted
    assert np.array_equal(codes(cast(x, "int4"), "int4"), np.array(wanted).astype(ml_dtypes.int4).view(np.uint8) & 15)
    assert codes([-1, -7, 7, 0], "int4").tolist() == [15, 9, 7, 0]  # two's complement


@pytest.mark.parametrize("name", ["e2m1", "e4m3", "e8m0", "int4"])
def test_float64_neighbours_of_a_midpoint_part_ways(name):
    values = ELEMENTS[name].values
    middle = (values[1:] + values[:-1]) / 2
    assert np.array_equal(cast(np.nextafter(middle, 0), name), values[:-1])
    assert np.array_equal(cast(np.nextafter(middle, np.inf), name), values[1:])
    even = np.where(np.arange(len(middle)) % 2 == 0, values[:-1], values[1:])  # the code, and so its last bit
    assert np.array_equal(cast(middle, name), values[1:] if name == "e8m0" else even)


@pytest.mark.parametrize("name", ELEMENTS)
def test_down_and_up_are_the_neighbours_in_magnitude(name):
    bits = {"fp16": 10, "fp32": 23}.get(name)
    values = np.ldexp(2**bits + np.arange(1000), -bits) if bits else ELEMENTS[name].values
    for share in (0.01, 0.5, 0.99):
        between = values[:-1] + share * np.diff(values)
        for sign in (1, -1) if ELEMENTS[name].signed else (1,):
            assert np.array_equal(cast(sign * between, name, rounding="down"), sign * values[:-1])
            assert np.array_equal(cast(sign * between, name, rounding="up"), sign * values[1:])


@pytest.mark.parametrize("row", VECTORS, ids=lambda r: f"{r['format']}-{r['input']}")
def test_published_vectors(row):
    name = {"E2M1": "e2m1", "E4M3FN": "e4m3", "E8M0": "e8m0"}[row["format"]]
    x, expected = float(row["input"]), float(row["expected"])
    assert row["source"]
    if np.isnan(expected):
        assert "NO saturation in plain cast: clamp to 448 first" in row["kind"]
        assert np.isnan(float(plain(x, name))) and cast(x, name) == 448
        return
    assert cast(x, name) == expected
    if name != "e8m0":
        assert cast(-x, name) == -expected


def test_a_plain_cast_loses_what_ours_keeps_or_refuses():
    assert np.isnan(plain([465, 1e9, np.inf], "e4m3").astype(float)).all() and plain(464, "e4m3") == 448
    assert cast([465, 1e9], "e4m3").tolist() == [448, 448]
    # A flaw of ml_dtypes 0.6.0: E2M1 has neither NaN nor infinity, and it makes ordinary numbers of them without a word.
    assert np.isfinite(plain([np.nan, np.inf, -np.inf], "e2m1").astype(float)).all()
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match="x must be finite"):
            cast([1.0, bad], "e2m1")


# Encoders against slow ones -----------------------------------------------------------------------------------------------


def rough(seed, shape, spread=3.0):
    """Random FP32 numbers whose blocks differ in size, with zeros and some ties in them."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 2.0 ** rng.normal(0, spread, (*shape[:-1], 1))
    x[rng.random(shape) < 0.05] = 0
    whole = rng.random(shape) < 0.3
    x[whole] = np.round(4 * x[whole]) / 4
    return x.astype(np.float32).astype(float)


@pytest.mark.parametrize("seed", range(6))
def test_nvfp4_and_mxfp4_are_those_of_a_slow_encoder(seed):
    x = rough(seed, (6, 64), spread=seed)
    elements, scales, tensor_scale = slow_nvfp4(x.tolist())
    found = encode(x, "nvfp4")
    assert (found.elements.tolist(), found.scales.tolist(), found.tensor_scale) == (elements, scales, tensor_scale)
    elements, scales = slow_mxfp4(x.tolist())
    found = encode(x, "mxfp4")
    assert (found.elements.tolist(), found.scales.tolist(), found.tensor_scale) == (elements, scales, 1.0)


@pytest.mark.parametrize(("name", "reach", "scale"), [("fp8_1x128", 448, np.float32), ("int4_g128", 7, np.float16)])
def test_rows_in_blocks_are_those_of_a_slow_encoder(name, reach, scale):
    x = rough(7, (3, 256))
    found = encode(x, name)
    for i in range(3):
        for j in range(2):
            block = x[i, 128 * j : 128 * (j + 1)]
            assert found.scales[i, j] == (s := float(scale(max(map(abs, block)) / reach)))
            for element, number in zip(found.elements[i, 128 * j :], block, strict=False):
                wanted = round(number / s) if name == "int4_g128" else plain(np.clip(number / s, -448, 448), "e4m3")
                assert element == float(np.clip(float(wanted), -reach, reach))


def test_mxfp8_divides_by_256_and_rounds_the_scale_down():
    x = rough(8, (4, 64))
    found = encode(x, "mxfp8")
    for i in range(4):
        for j in range(2):
            block = x[i, 32 * j : 32 * (j + 1)]
            scale = 2.0 ** (np.floor(np.log2(np.abs(block).max())) - 8)
            assert found.scales[i, j] == scale
            wanted = plain(np.clip(block / scale, -448, 448), "e4m3").astype(float)
            assert np.array_equal(found.elements[i, 32 * j : 32 * (j + 1)], wanted)


def test_square_blocks_are_those_of_a_loop():
    x = np.random.default_rng(9).standard_normal((2, 256, 384)) * np.arange(1, 385)
    found = encode(x, "fp8_128x128")
    assert found.scales.shape == (2, 2, 3)
    for t, i, j in np.ndindex(2, 2, 3):
        rows, columns = slice(128 * i, 128 * (i + 1)), slice(128 * j, 128 * (j + 1))
        alone = encode(x[t, rows, columns], "fp8")
        assert found.scales[t, i, j] == alone.scales == np.float32(np.abs(x[t, rows, columns]).max() / 448)
        assert np.array_equal(found.elements[t, rows, columns], alone.elements)
        assert np.array_equal(decode(found)[t, rows, columns], alone.elements * float(alone.scales))


@every_scheme
def test_one_two_and_three_dimensions_give_the_same_numbers(name):
    x = rough(10, (2, 128, 128))
    scale = {"tensor_scale": encode(x, name).tensor_scale} if name == "nvfp4" else {}
    scale |= {"scales": encode(x, name).scales} if name == "fp8" else {}
    deep = encode(x, name, **scale)
    assert deep.elements.shape == x.shape == decode(deep).shape
    for i in range(2):
        assert np.array_equal(encode(x[i], name, **scale).elements, deep.elements[i])
    if name != "fp8_128x128":
        assert np.array_equal(encode(x[1, 5], name, **scale).elements, deep.elements[1, 5])
        assert encode(x[1, 5], name).codes.shape == (128,)


# Properties ---------------------------------------------------------------------------------------------------------------

seeds = st.integers(0, 2**32 - 1)
POWERS = {"int4_g128": 8}  # FP16 scales leave less room
SIGNED = {name: [*E[::-1], *(-np.array(E))] for name, E in (("e2m1", E2M1), ("e4m3", E4M3), ("int4", range(8)))}
TOP = {"e2m1": 6, "e4m3": 448, "int4": 7}


def spread_over(e):
    """Block scales repeated over the blocks, and the tensor scale, by counting places."""
    rows, columns = e.scheme.block or e.elements.shape[-2:]
    scales = np.broadcast_to(e.scales, (1, 1)) if e.scheme.block is None else e.scales
    at = np.ix_(*(np.arange(n) // side for n, side in zip(e.elements.shape, (rows, columns), strict=True)))
    return scales[at] * e.tensor_scale


@given(seeds, st.sampled_from(list(SCHEMES)))
def test_numbers_on_the_grid_of_given_scales_come_back(seed, name):
    rng, scheme = np.random.default_rng(seed), SCHEMES[name]
    wanted = {"e4m3": E4M3[1:], "e8m0": 2.0 ** np.arange(-60, 60), "fp16": 2.0 ** np.arange(-24, 15), "fp32": [1e-3, 3e-38, 7e5]}
    side = (128, 128) if scheme.block is None else scheme.block
    shape = () if scheme.block is None else (256 // side[0], 256 // side[1])
    scales = rng.choice(wanted[scheme.scale], shape).astype(np.float32).astype(float)
    given_scales = {"scales": scales} | ({"tensor_scale": float(np.float32(rng.random() + 1e-9))} if scheme.tensor_scale else {})
    elements = rng.choice(SIGNED[scheme.element], (256, 256))
    blank = encode(np.zeros((256, 256)), name, **given_scales)
    x = elements * spread_over(blank)
    again = encode(x, name, **given_scales)
    assert np.array_equal(decode(again), x) and np.array_equal(again.elements, elements) and not saturated(x, again).any()
    assert np.array_equal(again.scales, scales) and again.tensor_scale == given_scales.get("tensor_scale", 1.0)


@given(seeds, st.sampled_from(list(SCHEMES)), st.integers(-60, 60))
def test_signs_are_kept_and_powers_of_two_go_to_the_scales(seed, name, power):
    x = rough(seed, (128, 128), spread=1.0)
    x[:, ::16] = np.random.default_rng(seed).uniform(0.5, 8, (128, 8))  # every block well within its format
    e, other = encode(x, name), encode(-x, name)
    assert np.array_equal(other.elements, -e.elements) and np.array_equal(other.scales, e.scales)
    limit = POWERS.get(name, 60)
    factor = 2.0 ** max(-limit, min(limit, power))
    scaled = encode(x * factor, name)
    assert np.array_equal(scaled.codes, e.codes) and np.array_equal(decode(scaled), decode(e) * factor)
    if name == "nvfp4":
        assert scaled.tensor_scale == e.tensor_scale * factor and np.array_equal(scaled.scales, e.scales)
    else:
        assert scaled.tensor_scale == 1 and np.array_equal(scaled.scales, e.scales * factor)


@given(seeds, st.sampled_from(list(SCHEMES)), st.floats(0, 6))
def test_what_is_not_saturated_lies_within_half_a_step(seed, name, spread):
    x, scheme = rough(seed, (128, 128), spread=spread), SCHEMES[name]
    x *= min(1, 4e5 / np.abs(x).max()) if name == "int4_g128" else 1  # within what FP16 scales reach
    e = encode(x, name)
    grid, stored = spread_over(e), decode(e)
    # What the scales would reach without rounding to FP32: what lies beyond that is cut.
    exact = grid / e.tensor_scale * (np.abs(x).max() / 2688) if scheme.tensor_scale else grid
    ratio = np.abs(x) / (TOP[scheme.element] * exact)
    beyond, clear = (ratio > 1) & (scheme.scale != "fp32"), np.abs(ratio - 1) > 2.0**-20
    assert np.array_equal(saturated(x, e)[clear], beyond[clear]) and (ratio[~beyond] < 1 + 1e-6).all()
    beyond &= clear
    assert np.array_equal(np.abs(e.elements[beyond]), np.full(beyond.sum(), TOP[scheme.element]))
    ratio = np.abs(x / grid)
    if scheme.element == "int4":
        step = np.ones_like(ratio)
    else:  # mantissa bits, and the exponent of the smallest normal number
        bits, low = (1, 0) if scheme.element == "e2m1" else (3, -6)
        step = 2.0 ** (np.floor(np.log2(np.maximum(ratio, 2.0**low))) - bits)
    inside = ~beyond
    assert (np.abs(x - stored) <= (step / 2 + 1e-12) * grid)[inside].all()
    if scheme.rounding == "nearest":  # then the largest is cut little, unless its scale is the largest there is
        cut = (np.abs(x - stored) / np.maximum(np.abs(x), 1e-99))[beyond & (grid < 65504)]
        assert (cut <= 1 / 3 + 1e-12).all()


@given(seeds)
def test_mxfp4_cuts_what_lies_above_six_scales_and_by_a_quarter_at_most(seed):
    x = rough(seed, (8, 64))
    e = encode(x, "mxfp4")
    count = 0
    for row, scales in zip(x, e.scales, strict=True):
        for j, number in enumerate(row):
            count += abs(number) > 6 * scales[j // 32]
    beyond = saturated(x, e)
    assert beyond.sum() == count
    assert (np.abs(decode(e)[beyond]) > 0.75 * np.abs(x[beyond])).all()  # the largest is below eight scales
    up = replace(SCHEMES["mxfp4"], reach=6.0, rounding="up")
    assert not saturated(x, encode(x, up)).any()


def test_mxfp4_cuts_seven_and_keeps_six():
    for largest, kept, count in ((6.0, 6.0, 0), (7.0, 6.0, 1), (7.99, 6.0, 1), (8.0, 8.0, 0)):
        x = np.array([largest] + [1.0] * 31)
        e = encode(x, "mxfp4")
        assert decode(e)[0] == kept and saturated(x, e).sum() == count


@given(seeds, st.floats(0, 2))
def test_nvfp4_cuts_a_seventeenth_at_most(seed, spread):
    x = rough(seed, (8, 64), spread=spread)
    e = encode(x, "nvfp4")
    beyond = saturated(x, e)
    normal = np.repeat(e.scales, 16, -1) >= 2.0**-6  # the scale has its three bits of mantissa
    cut = 1 - np.abs(decode(e)[beyond] / x[beyond])
    assert (cut[normal[beyond]] <= 1 / 17 + 1e-12).all() and (cut <= 1 / 3 + 1e-12).all()


def test_the_worst_cut_of_nvfp4_is_a_seventeenth_and_a_third_where_the_scale_is_subnormal():
    top = 2688.0  # the tensor scale is 1
    for wanted, stored, worst in ((1.0625, 1.0, 1 / 17), (2.0**-9 * 1.499, 2.0**-9, 0.333)):
        x = np.zeros((2, 16))
        x[0, 0], x[1, 0] = top, 6 * wanted
        e = encode(x, "nvfp4")
        assert e.tensor_scale == 1 and e.scales.tolist() == [[448.0], [stored]]
        assert 1 - decode(e)[1, 0] / x[1, 0] == pytest.approx(worst, abs=1e-3) and saturated(x, e).sum() == 1


# Ends of the range --------------------------------------------------------------------------------------------------------


@every_scheme
def test_zeros_stay_zeros_and_have_a_scale(name):
    x = np.zeros((128, 256))
    e = encode(x, name)
    assert (decode(e) == 0).all() and (e.scales > 0).all() and e.tensor_scale > 0 and not e.codes.any()
    assert not saturated(x, e).any() and np.isfinite(e.scales).all()
    x[:, :128] = 3.0  # zero blocks beside others
    e = encode(x, name)
    assert decode(e)[:, :128] == pytest.approx(3, rel=1 / 17) and (decode(e)[:, 128:] == 0).all() and (e.scales > 0).all()


@every_scheme
def test_subnormal_numbers_and_the_largest_of_fp32_have_codes(name):
    largest = float(np.finfo(np.float32).max)
    for value in (
        (1e-45, 1e-40, 2.0**-126, 1e-30, 4e5) if name == "int4_g128" else (1e-45, 1e-40, 2.0**-126, 1e-30, 1e30, largest)
    ):
        x = np.full((128, 128), value)
        x[::2] *= -1
        e = encode(x.astype(np.float32), name)
        stored = decode(e)
        assert np.isfinite(stored).all() and (np.sign(stored) * np.sign(x) >= 0).all() and e.codes.shape == x.shape
        wide = SCHEMES[name].scale in ("fp32", "e8m0") or name == "nvfp4"
        tiny = {"mxfp4": 2.0**-126, "mxfp8": 2.0**-126}.get(name, 1e-45)  # a power of two below 2^-127 has no code in E8M0
        if wide and value >= tiny:
            cut = 0.25 if SCHEMES[name].rounding == "down" else 1 / 16
            assert np.abs(stored / x.astype(np.float32).astype(float) - 1).max() <= cut
        else:
            assert np.abs(stored).max() <= 2 * value


def test_what_the_scales_cannot_reach_is_refused_to_the_last_bit():
    for name, top in (
        ("int4_g128", 7 * 65504),
        ("nvfp4", float(np.finfo(np.float32).max)),
        ("fp8", float(np.finfo(np.float32).max)),
    ):
        x = np.zeros(128)
        x[5] = -top
        assert decode(encode(x, name))[5] == pytest.approx(-top, rel=1e-6)
        x[5] = -np.nextafter(top, np.inf)
        with pytest.raises(ValueError, match=rf"x must hold numbers of at most {re.escape(f'{top:.4g}')} for {name}, got "):
            encode(x, name)
    own = Scheme(name="own", element="e2m1", scale="e4m3", block=(1, 2), reach=6.0)  # without a scale of the tensor
    assert decode(encode([2688.0, 1.0], own)).tolist() == [2688, 0]
    with pytest.raises(ValueError, match="x must hold numbers of at most 2688 for own, got 2689"):
        encode([2689.0, 1.0], own)


def test_given_scales_cut_what_they_do_not_reach_and_it_is_told():
    x = np.array([2.0, -12.0, 12.5, -1e9] * 8)
    for name, fixed in (("nvfp4", {"scales": [2.0, 2.0], "tensor_scale": 1.0}), ("mxfp4", {"scales": [2.0]})):
        e = encode(x, name, **fixed)
        assert decode(e).tolist() == [2, -12, 12, -12] * 8 and saturated(x, e).tolist() == [False, False, True, True] * 8
    assert saturated(np.full(128, 5e5), encode(np.full(128, 5e5), "int4_g128", scales=[65504.0])).all()


def test_a_tensor_scale_too_small_for_its_tensor_makes_the_largest_block_scales_and_cuts():
    x = np.concatenate([np.full(16, 5000.0), np.full(16, -2688.0), np.full(16, 312.0)])
    e = encode(x, "nvfp4", tensor_scale=1.0)
    assert e.scales.tolist() == [448, 448, 52] and e.tensor_scale == 1  # the first wants 833
    assert decode(e)[::16].tolist() == [2688, -2688, 312]
    assert saturated(x, e)[::16].tolist() == [True, False, False]


def test_a_given_tensor_scale_is_rounded_to_fp32():
    x = rough(13, (4, 64))
    e, same = encode(x, "nvfp4", tensor_scale=0.1), encode(x, "nvfp4", tensor_scale=float(np.float32(0.1)))
    assert e.tensor_scale == same.tensor_scale == 13421773 / 2**27 != 0.1 and type(e.tensor_scale) is float
    assert np.array_equal(e.elements, same.elements) and np.array_equal(e.scales, same.scales)
    found = encode(x, "nvfp4", tensor_scale=np.abs(x).max() / 2688)  # a scale from calibration, in float64
    assert np.array_equal(decode(found), decode(encode(x, "nvfp4")))


@pytest.mark.parametrize("name", ["fp8", "fp8_1x128", "fp8_128x128", "nvfp4"])
def test_what_rounding_a_scale_to_fp32_cuts_is_not_counted(name):
    cut = 0
    for seed in range(20):
        x = np.random.default_rng(seed).uniform(0.1, 1, (128, 128))
        x[:, ::16] = 1.7 + seed / 100  # the largest of each block
        e = encode(x, name)
        cut += (np.abs(x) > TOP[e.scheme.element] * spread_over(e)).sum()
        assert not saturated(x, e).any()
    assert cut > 0  # a few parts in 10^8, half the time


def test_what_lies_a_millionth_beyond_is_counted():
    scales = {"fp8": {"scales": 1.0}, "nvfp4": {"scales": [1.0], "tensor_scale": 1.0}, "mxfp4": {"scales": [1.0]}}
    for name, fixed in scales.items():
        x = TOP[SCHEMES[name].element] * (1 + np.array([-1e-6, 0, 1e-7, 1e-6, -1e-3, 1e-3] + [0] * 26))
        x = x[:16] if name == "nvfp4" else x
        x[::2] *= -1
        assert saturated(x, encode(x, name, **fixed)).tolist()[:8] == [False, False, False, True, False, True, False, False]


def test_a_small_block_beside_a_large_one_is_lost_in_nvfp4_alone():
    x = np.ones((1, 64))
    x[0, 32:] = 1e-7  # the smallest step is a quarter million times smaller than 448 x 6
    assert (decode(encode(x, "nvfp4"))[0, 32:] == 0).all()
    assert decode(encode(x, "mxfp4"))[0, 32:] == pytest.approx(1e-7, rel=0.25)


@every_scheme
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_by_name_and_counted(name, bad):
    x = np.ones((128, 128))
    x[3, 5] = x[7, 7] = bad
    with pytest.raises(ValueError, match=rf"x must be finite, got {bad} \(2 of 16384\)"):
        encode(x, name)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: encode(np.ones(17), "nvfp4"), r"x must have sides that are multiples of the block 1 x 16, got shape \(17,\)"),
        (lambda: encode(np.ones((2, 48)), "mxfp4"), r"multiples of the block 1 x 32, got shape \(2, 48\)"),
        (lambda: encode(np.ones((64, 128)), "fp8_128x128"), r"multiples of the block 128 x 128, got shape \(64, 128\)"),
        (lambda: encode(np.ones(128), "fp8_128x128"), r"128 x 128, got shape \(128,\)"),
        (lambda: encode(1.0, "nvfp4"), r"1 x 16, got shape \(\)"),
        (lambda: encode([], "fp8"), r"x must hold at least one number, got shape \(0,\)"),
        (lambda: encode(np.ones((3, 0)), "nvfp4"), r"x must hold at least one number, got shape \(3, 0\)"),
        (lambda: encode([1e39] * 16, "nvfp4"), r"x must hold numbers of at most 3.403e\+38 for nvfp4, got 1e\+39"),
        (lambda: encode([-1e30] * 128, "int4_g128"), r"x must hold numbers of at most 4.585e\+05 for int4_g128, got 1e\+30"),
        (lambda: encode(["1"] * 16, "nvfp4"), "x must be a number or an array of numbers"),
        (lambda: encode(np.ones(16), "nvfp5"), "scheme must be one of nvfp4, .* did you mean 'nvfp4'"),
        (lambda: encode(np.ones(16), hw.BF16), "scheme must be one of nvfp4, .* got 'bf16'"),
        (lambda: encode(np.ones(16), None), "scheme must be one of nvfp4, .* got None"),
        (lambda: encode(np.ones(32), "nvfp4", scales=[1.0]), r"scales must have shape \(2,\), got \(1,\)"),
        (lambda: encode(np.ones(16), "nvfp4", scales=1.0), r"scales must have shape \(1,\), got \(\)"),
        (lambda: encode(np.ones(48), "nvfp4", scales=[1, 0.3, 448]), "scales must hold positive values of e4m3, got 0.3"),
        (lambda: encode(np.ones(16), "nvfp4", scales=[0.0]), "scales must hold positive values of e4m3"),
        (lambda: encode(np.ones(16), "nvfp4", scales=[-1.0]), "scales must hold positive values of e4m3"),
        (lambda: encode(np.ones(32), "mxfp4", scales=[3.0]), "scales must hold positive values of e8m0, got 3"),
        (lambda: encode(np.ones(32), "mxfp4", scales=[np.nan]), "scales must be finite, got nan"),
        (lambda: encode(np.ones(128), "int4_g128", scales=[1e6]), "scales must hold positive values of fp16, got 1e"),
        (lambda: encode(np.ones(16), "nvfp4", tensor_scale=0.0), "tensor_scale must hold positive values of fp32, got 0"),
        (lambda: encode(np.ones(16), "nvfp4", tensor_scale=-0.1), "tensor_scale must hold positive values of fp32, got -0.1"),
        (lambda: encode(np.ones(16), "nvfp4", tensor_scale=1e-60), "tensor_scale must hold positive values of fp32"),
        (
            lambda: encode(np.ones(16), "nvfp4", tensor_scale=1e39),
            r"tensor_scale must be at most 3.403e\+38 \(FP32\), got 1e\+39",
        ),
        (lambda: encode(np.ones(16), "nvfp4", tensor_scale=np.nan), "tensor_scale must be finite, got nan"),
        (lambda: encode(np.ones(16), "nvfp4", tensor_scale=np.inf), "tensor_scale must be finite, got inf"),
        (lambda: encode(np.ones(16), "nvfp4", tensor_scale="1"), "tensor_scale must be a number"),
        (lambda: encode(np.ones(16), "nvfp4", tensor_scale=[1.0]), r"tensor_scale must have shape \(\), got \(1,\)"),
        (lambda: encode(np.ones(32), "mxfp4", tensor_scale=1.0), "tensor_scale must be left out for mxfp4, which has none"),
        (lambda: encode(np.ones(4), "fp8", tensor_scale=2.0), "tensor_scale must be left out for fp8"),
        (lambda: saturated(np.ones(32), encode(np.ones(16), "nvfp4")), r"the shape of what was encoded, \(16,\), got \(32,\)"),
        (lambda: saturated(np.ones(16), np.ones(16)), "encoded must come from `encode`, got ndarray"),
        (lambda: decode([1.0] * 16), "encoded must come from `encode`, got list"),
        (lambda: decode("nvfp4"), "encoded must come from `encode`, got str"),
        (lambda: cast(1.0, "e3m2"), "element must be one of e2m1, int4"),
        (lambda: cast(1.0, "e2m1", rounding="away"), "rounding must be one of nearest, down, up, got 'away'"),
        (lambda: cast([1.0, -2.0], "E8M0"), "x must be >= 0 for e8m0, got -2"),
        (lambda: codes([0.3], "e2m1"), "x must hold values of e2m1, got 0.3"),
        (lambda: codes([0.0], "e8m0"), "x must hold values of e8m0, got 0"),
        (lambda: codes([1.0], "fp16"), "element must have at most 8 bits, got fp16 with 16"),
        (lambda: replace(SCHEMES["nvfp4"], element="e9"), "element must be one of"),
        (lambda: replace(SCHEMES["nvfp4"], scale="e9"), "scale must be one of"),
        (lambda: replace(SCHEMES["nvfp4"], rounding="out"), "rounding must be one of"),
        (lambda: replace(SCHEMES["nvfp4"], block=(16,)), r"block must be two whole numbers, rows and columns, .* got \(16,\)"),
        (lambda: replace(SCHEMES["nvfp4"], block=16), "block must be two whole numbers, rows and columns, or None, got 16"),
        (lambda: replace(SCHEMES["nvfp4"], block="16"), "block must be two whole numbers, rows and columns, or None, got '16'"),
        (lambda: replace(SCHEMES["nvfp4"], block=(1, 2, 3)), r"block must be two whole numbers, .* got \(1, 2, 3\)"),
        (lambda: replace(SCHEMES["nvfp4"], block=(0, 16)), "block rows must be >= 1, got 0"),
        (lambda: replace(SCHEMES["nvfp4"], block=(1, 2.5)), "block columns must be a whole number, got 2.5"),
        (lambda: replace(SCHEMES["nvfp4"], block=(True, 16)), "block rows must be a number"),
        (lambda: replace(SCHEMES["nvfp4"], block=(1, [16, 32])), r"block columns must be one number, got \[16, 32\]"),
        *(
            (lambda reach=reach: replace(SCHEMES["nvfp4"], reach=reach), "reach must be one number > 0 and finite, got ")
            for reach in (0, -6.0, np.nan, np.inf, [6.0], [4.0, 6.0])
        ),
        (lambda: replace(SCHEMES["nvfp4"], reach="6"), "reach must be a number or an array of numbers, got '6'"),
        (lambda: sqnr([1.0, 2.0], [1.0]), r"x and stored must have one shape, got \(2,\) and \(1,\)"),
        (lambda: sqnr([0.0, 0.0], [1.0, 0.0]), "x must hold a number other than 0, got 2 numbers"),
        (lambda: sqnr([], []), "x must hold a number other than 0, got 0 numbers"),
        (lambda: sqnr([1.0], [np.nan]), "stored must be finite"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()


# Sizes, ratio, time -------------------------------------------------------------------------------------------------------


@every_scheme
def test_sizes_are_those_of_the_catalogue(name):
    form, scheme = hw.precision(name), SCHEMES[name]
    assert (scheme.bytes, ELEMENTS[scheme.element].bits, scheme.block or ()) == (form.bytes, form.bits, form.block)
    assert scheme.block is None or ELEMENTS[scheme.scale].bits == form.scale_bits


@pytest.mark.parametrize(
    ("name", "nbytes"),
    [
        ("nvfp4", 256 * 512 // 2 + 256 * 32 + 4), ("mxfp4", 256 * 512 // 2 + 256 * 16), ("mxfp8", 256 * 512 + 256 * 16),
        ("fp8", 256 * 512 + 4), ("fp8_1x128", 256 * 512 + 256 * 4 * 4), ("fp8_128x128", 256 * 512 + 2 * 4 * 4),
        ("int4_g128", 256 * 512 // 2 + 256 * 4 * 2),
    ],
)  # fmt: skip
def test_bytes_counted_by_hand(name, nbytes):
    assert encode(np.ones((256, 512)), name).nbytes == nbytes


def test_an_own_scheme_takes_any_block():
    own = Scheme(name="own", element="int4", scale="e4m3", block=(2, 3), reach=7.0)
    x = np.arange(24.0).reshape(4, 6) - 11
    e = encode(x, own)
    assert e.scales.shape == (2, 2) and e.nbytes == 12 + 4 and own.bytes == (4 + 8 / 6) / 8
    assert e.scales.tolist() == [[float(plain(v / 7, "e4m3")) for v in row] for row in ([11, 8], [9, 12])]
    assert np.array_equal(encode(x[None], own).elements, e.elements[None])


def test_the_sides_of_a_block_may_be_any_whole_numbers():
    own = Scheme(name="own", element="int4", scale="e4m3", block=[np.int64(2), np.uint8(3)], reach=Fraction(7))
    assert own.block == (2, 3) and [type(side) for side in own.block] == [int, int] and type(own.reach) is float
    assert own == Scheme(name="own", element="int4", scale="e4m3", block=(2.0, 3), reach=7) and len({own, replace(own)}) == 1
    assert np.array_equal(encode(np.ones((4, 6)), own).scales, np.full((2, 2), 0.140625))  # 1 / 7 lies next to 9 / 64


@every_scheme
def test_a_scheme_goes_by_its_name_its_number_format_or_itself(name):
    x = rough(14, (128, 128))
    wanted = encode(x, name)
    for scheme in (name.upper(), hw.precision(name), SCHEMES[name]):
        found = encode(x, scheme)
        assert found.scheme is SCHEMES[name] and np.array_equal(found.codes, wanted.codes)


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_may_be_written_in_upper_case(name):
    x = np.abs(rough(15, (1000,)))
    assert np.array_equal(cast(x, name.upper()), cast(x, name)) and cast(1.0, name.title()) == 1
    if ELEMENTS[name].bits <= 8:
        assert np.array_equal(codes(cast(x, name), name.upper()), codes(cast(x, name), name))


def test_encoded_tensors_are_themselves_alone_and_one_number_is_a_tensor():
    e, same = (encode(np.ones(16), "nvfp4") for _ in range(2))
    assert e == e and e != same and len({e, same, e}) == 2  # arrays have no single truth to compare by
    one = encode(3.0, "fp8")
    assert isinstance(one.elements, np.ndarray) and one.elements.shape == one.codes.shape == () and one.nbytes == 1 + 4
    assert decode(one) == pytest.approx(3, rel=1e-7) and one.elements == 448 and not saturated(3.0, one)


@pytest.mark.parametrize(
    ("x", "stored", "decibel"),
    [
        ([3, 4], [3, 5], 10 * np.log10(25)), ([1, 1], [1.1, 0.9], 20), ([2], [0], 0), ([1, 1], [3, 3], -20 * np.log10(2)),
        ([1e-45] * 2, [0, 1e-45], 10 * np.log10(2)), ([1, 2], [1, 2], np.inf),
        ([1e300] * 2, [0, 1e300], 10 * np.log10(2)), ([5e-324, 0], [0, 0], 0), ([1e300, 1], [1e300, 0], 6000),
        ([3e38, 1e-45], [3e38, 0], 20 * np.log10(3e83)), ([1e-200], [1e200], -8000), ([1e300, 2], [1e300, 2], np.inf),
        ([3, 1.75], [3 - 2**-51, 1.75 - 2**-52], 10 * np.log10((144 + 49) / 16 / (5 * 2**-104))),
    ],
)  # fmt: skip
def test_known_ratios(x, stored, decibel):
    assert sqnr(np.array(x, float), np.array(stored, float)) == pytest.approx(decibel)


def test_a_fine_uniform_grid_has_six_decibel_a_bit():
    x = np.random.default_rng(11).uniform(-1, 1, 100_000)
    found = [sqnr(x, np.round(x * 2**bits) / 2**bits) for bits in (6, 7, 8)]
    assert np.diff(found) == pytest.approx(20 * np.log10(2), abs=0.05)
    assert found[0] == pytest.approx(20 * np.log10(2**7), abs=0.05)  # power 1/3 over step^2 / 12


@every_scheme
def test_a_million_numbers_in_half_a_second(name):
    x, spent = np.random.default_rng(12).standard_normal((1024, 1024)), []
    for _ in range(3):
        start = time.perf_counter()
        encode(x, name)
        spent.append(time.perf_counter() - start)
    assert min(spent) < 0.5, f"{min(spent):.2f} s"
