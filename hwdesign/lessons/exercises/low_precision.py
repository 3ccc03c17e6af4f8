"""The exercises of chapter 4. As in chapter 1, the numbers of a question are typed and everything
else is computed.
"""

import numpy as np

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import BF16
from hwdesign.catalogue.precision import precision as as_precision
from hwdesign.formulas.number_formats import ELEMENTS, cast
from hwdesign.formulas.roofline import break_even_area, break_even_n
from hwdesign.lessons.exercises.base import (
    ELEMENT,
    ENGINE,
    Exercise,
    unless,
    variants,
    with_article,
)
from hwdesign.lessons.studies.four_constants import gemm_seconds, ideal_constants
from hwdesign.lessons.studies.scores import NORMAL_95, difference_margin
from hwdesign.models.layers import transformer_gemms
from hwdesign.timing.silicon import gemm_grid
from hwdesign.units import fmt

# 4.1
# --------------------------------------------------------------------------------------------------

TOP, REACH = ELEMENTS["e4m3"].largest, ELEMENTS["e2m1"].largest  # 448 and 6
# The last block is so small that its scale is among the subnormals of E4M3, and its largest element
# is 4.
_NUMBERS_1 = variants(
    "largest block",
    (13.44, 1.25),
    (13.44, 2.3),
    (5.376, 0.7),
    (26.88, 20),
    (2.688, 1.1),
    (67.2, 0.8),
    (40.32, 11),
    (1344, 0.009),
)


def _text_block(largest, block):
    return (
        f"A tensor is stored in NVFP4. Its largest magnitude is {largest:g}, and that of one "
        f"of its blocks is {block:g}. Use the "
        "scales of part 2 (448 and 6). Which block scale is stored (E4M3, three bits of "
        "mantissa), and which value does the "
        "largest number of the block have when it is read back, with all scales?"
    )


def _e4m3(x, rounding="nearest"):
    return max(float(cast(x, "e4m3", rounding=rounding)), ELEMENTS["e4m3"].smallest)


def _block(largest, block, *, tensor=TOP * REACH, reach=REACH, rounded=_e4m3):
    """(block scale, largest number as it is read back); the keywords stand in for the right
    ones.
    """
    scale = rounded(block * tensor / largest / reach)
    step = scale * largest / tensor
    return scale, float(cast(block / step, "e2m1")) * step


def _scale_not_rounded(**given):
    """The block scale seems not to be rounded. It is stored in E4M3, with three bits of
    mantissa.
    """
    return _block(**given, rounded=float)


def _power_of_two(**given):
    """This scale is a power of two, rounded down, as MXFP4 takes it. E4M3 has seven values between
    two powers of two.
    """
    value = _block(**given, rounded=lambda x: float(cast(x, "e8m0", rounding="down")))
    return unless(_rounded_to_the_farther(**given), value)


def _rounded_to_the_farther(**given):
    """The block scale seems to be rounded to the farther neighbour. E4M3 takes the nearest, even if
    that cuts a number.
    """
    up, down = (_block(**given, rounded=lambda x, way=way: _e4m3(x, way)) for way in ("up", "down"))
    return down if up == _block(**given) else up


def _tensor_scale_left_out(largest, **given):
    """The tensor scale seems to be missing. It takes the largest block scale of the tensor to 448,
    the largest of E4M3.
    """
    return _block(largest, **given, tensor=largest)


def _448_left_out(**given):
    """The tensor scale seems to lack its 448. It is the largest of the tensor over 448 x 6."""
    return _block(**given, tensor=REACH)


def _4_for_6(**given):
    """The largest number of the block seems to be taken to 4, as MXFP4 does it. In NVFP4 it becomes
    6.
    """
    return unless(_block(**given), _block(**given, reach=4))


def _number_kept(block, **given):
    """This is the number as it was. What is read back is its element, an E2M1 value, times both
    scales.
    """
    return _block(block=block, **given)[0], float(block)


_MISTAKES_1 = (
    _scale_not_rounded,
    _power_of_two,
    _rounded_to_the_farther,
    _tensor_scale_left_out,
    _448_left_out,
    _4_for_6,
    _number_kept,
)
_BLOCK = Exercise(
    id="4.1",
    variants=_NUMBERS_1,
    text=_text_block,
    solve=_block,
    parts=("Block scale", "Largest number"),
    units=("number", "numbers"),
    asks="two numbers (block scale, largest number read back)",
    tolerance=0.01,
    why="The scale has a rounding error of its own, so even the largest number of a block "
    "moves by a few percent.",
    hints=(
        "Two scales, one after the other: what is the tensor scale, and which scale does the "
        "block ask for?",
        "Tensor scale: largest over 448 x 6. Block scale: the block's largest over 6 tensor "
        "scales, rounded by "
        '`cast(x, "e4m3")`. Then round the element with `cast(x, "e2m1")` and multiply by both.',
    ),
    mistakes=_MISTAKES_1,
)


# 4.2 ----------------------------------------------------------------------------------------------

_NUMBERS_2 = variants(
    "products gain attention cache_gain",
    (60, 2.5, 30, 2),
    (75, 3, 15, 1.5),
    (50, 3.5, 40, 2),
    (80, 2, 10, 1.8),
    (40, 3, 50, 1.6),
    (70, 2.4, 20, 1.6),
    (45, 3, 45, 1.8),
)


def _text_step(products, gain, attention, cache_gain):
    return (
        f"In a decode step the matrix products take {products} % of the time, and a narrow "
        f"format makes them {gain:g} times as "
        f"fast. Attention takes {attention} % and gets {cache_gain:g} times as fast with an "
        "FP8 cache. The rest stays as it is. "
        "How many times as fast is the whole step? And how many times at most, if the products "
        "took no time at all and "
        "attention keeps its FP8 cache?"
    )


def _step(products, gain, attention, cache_gain, *, rest=1.0):
    """(speed-up, its limit) [dimensionless]; `rest` stands in for the time that is left of the
    rest.
    """
    left = attention / 100 / cache_gain + rest * (1 - (products + attention) / 100)
    return 1 / (products / 100 / gain + left), 1 / left


def _attention_as_before(**given):
    """Attention seems to stay as it was. Its share gets faster, too."""
    return _step(**given | {"cache_gain": 1})


def _attention_as_before_in_the_limit(**given):
    """In the limit attention seems to stay as it was. The products take no time there, and
    attention is still faster.
    """
    return _step(**given)[0], _attention_as_before(**given)[1]


def _rest_forgotten(**given):
    """The rest seems to be missing. What gets no faster keeps its share of the old time."""
    return _step(**given, rest=0.0)


def _gains_averaged(products, gain, attention, cache_gain):
    """This is the mean of the gains, weighted by the old shares. What adds up is the time that is
    left of each share.
    """
    return (products * gain + attention * cache_gain + 100 - products - attention) / 100, np.inf


def _speed_ups_multiplied(**given):
    """The two speed-ups seem to be multiplied. Each share is one of the old step, so add up what is
    left of the old time.
    """
    return tuple(value * _step(**given | {"gain": 1})[0] for value in _attention_as_before(**given))


def _speed_ups_added(**given):
    """The two gains seem to be added, as percentages. Add up the times that are left, and take the
    quotient at the end.
    """
    return tuple(
        value + _step(**given | {"gain": 1})[0] - 1 for value in _attention_as_before(**given)
    )


def _how_much_faster(**given):
    """This is how much faster it gets. The question asks how many times as fast, which is 1
    more.
    """
    return tuple(value - 1 for value in _step(**given))


_MISTAKES_2 = (
    _attention_as_before,
    _attention_as_before_in_the_limit,
    _rest_forgotten,
    _gains_averaged,
    _speed_ups_multiplied,
    _speed_ups_added,
    _how_much_faster,
)
_STEP = Exercise(
    id="4.2",
    variants=_NUMBERS_2,
    text=_text_step,
    solve=_step,
    parts=("Speed-up", "Limit"),
    units=("time", "times", "x"),
    asks="two numbers (speed-up of the step, its limit)",
    why="What a format does not touch sets the end, however fast the rest becomes.",
    hints=(
        "Let the old step take 100 ms. How many are left of each part?",
        "Divide each share by its gain, add the rest, and take one over the sum. In the limit "
        "the products add nothing.",
    ),
    mistakes=_MISTAKES_2,
)


# 4.3 ----------------------------------------------------------------------------------------------

OTHER_FORMAT = {"fp8": "nvfp4", "nvfp4": "fp8", "mxfp4": "fp8"}
# Each width lies where both products can be compute-bound.
_NUMBERS_3 = variants(
    "device precision microseconds",
    ("GB300", "fp8", 3),
    ("GB200", "nvfp4", 1.5),
    ("B200", "nvfp4", 4),
    ("B200", "mxfp4", 0.8),
    ("H200", "fp8", 2.5),
    ("RTX_PRO_6000", "nvfp4", 6),
    ("MI300X", "fp8", 5),
)


def _text_least(device, precision, microseconds):
    d, label = as_device(device), as_precision(precision).label
    wide, narrow = (fmt(d.peak_flops(name), "FLOP/s", digits=4) for name in (BF16, precision))
    memory = fmt(d.memory_bandwidth, "byte/s", digits=4)
    return (
        f"On {with_article(device)} ({memory}; dense peaks of {wide} in BF16, {narrow} in {label}) "
        f"inputs arrive in BF16. A pass of its own quantizes them to {label}: it reads each "
        "element once and writes it once. "
        f"(a) Beyond which output width $N$ is {label} faster than BF16, pass included, if "
        "both products are compute-bound? "
        "(b) At few tokens reading the weights sets the time, and the product with its pass "
        "takes a fixed time of "
        rf"$\Delta\tau = {microseconds:g}$ µs more in {label} than in BF16. Beyond how many "
        "weights $NK$, in millions, is "
        f"{label} faster there? Answer (a) first, then (b)."
    )


def _least(device, precision, microseconds):
    """(least N of (4.5) [element], least N K of (4.6) [million])."""
    d, form = as_device(device), as_precision(precision)
    memory, moved = d.memory_bandwidth, BF16.bytes + form.bytes
    width = break_even_n(d.peak_flops(BF16), d.peak_flops(form), bandwidth=memory, moved=moved)
    area = break_even_area(
        microseconds * 1e-6, bandwidth=memory, wide_bytes=BF16.bytes, narrow_bytes=form.bytes
    )
    return float(width), float(area) / 1e6


def _times(width=1.0, area=1.0, **given):
    """The right answer, each part times a factor, or None where that changes nothing."""
    right = _least(**given)
    return unless(right, (right[0] * width, right[1] * area))


def _only_read(precision, **given):
    """The pass seems to read only. It also writes each element, in the narrow format."""
    return _times(2 / (2 + as_precision(precision).bytes), precision=precision, **given)


def _only_written(precision, **given):
    """The pass seems to write only. It also reads each element, in BF16."""
    return _times(1 - 2 / (2 + as_precision(precision).bytes), precision=precision, **given)


def _narrow_product_free(device, precision, **given):
    """The narrow product seems to take no time. What pays for the pass is the difference of the two
    products' times.
    """
    d = as_device(device)
    return _times(
        1 - d.peak_flops(BF16) / d.peak_flops(precision),
        device=device,
        precision=precision,
        **given,
    )


def _twice(**given):
    """The width is twice the answer. A product has 2 M N K FLOP, so each element of the input takes
    2 N of them.
    """
    return _times(2, **given)


def _critical_width(**given):
    """This is the critical dimension of chapter 1, where the product turns compute-bound. Here a
    pass is to be paid for.
    """
    ridge, b = (
        as_device(given["device"]).ridge(given["precision"]),
        as_precision(given["precision"]).bytes,
    )
    return unless(_only_written(**given), (ridge * b / 2, _least(**given)[1]), 0.01)


def _another_format(device, precision, microseconds):
    """This is for another format. Peak and bytes must both be those of the format that the question
    names.
    """
    other = OTHER_FORMAT[precision]
    return (
        _least(device, other, microseconds)
        if as_precision(other).rate in as_device(device).dense_peak
        else None
    )


def _scales_forgotten(precision, **given):
    """The block scales seem to be left out. The pass writes them, and they are read with the
    weights.
    """
    b, bare = as_precision(precision).bytes, as_precision(precision).bits / 8
    return _times((2 + bare) / (2 + b), (2 - b) / (2 - bare), precision=precision, **given)


def _narrow_bytes_alone(precision, **given):
    """In N K, the narrow format's bytes seem to be the divisor. A weight saves its 2 bytes in BF16
    less those.
    """
    return _times(area=2 / as_precision(precision).bytes - 1, precision=precision, **given)


def _divided_by_2(precision, **given):
    """In N K, the divisor seems to be 2: the bytes of BF16, or a ratio. A weight saves the
    difference of its bytes.
    """
    return _times(area=1 - as_precision(precision).bytes / 2, precision=precision, **given)


def _ratio_for_difference(precision, **given):
    """In N K, the divisor seems to be the ratio of the bytes. A weight saves their difference."""
    b = as_precision(precision).bytes
    return (
        _times(area=(2 - b) * b / 2, precision=precision, **given) if b < 1 else None
    )  # at 1 it is _divided_by_2


def _not_in_millions(**given):
    """N K seems to be off by a million. It is asked for in millions, so 3000000 is 3. And 1 µs is
    10^-6 s.
    """
    return _times(area=1e6, **given)


_MISTAKES_3 = (
    _only_read,
    _only_written,
    _narrow_product_free,
    _twice,
    _critical_width,
    _another_format,
    _scales_forgotten,
    _narrow_bytes_alone,
    _divided_by_2,
    _ratio_for_difference,
    _not_in_millions,
)
_LEAST = Exercise(
    id="4.3",
    variants=_NUMBERS_3,
    text=_text_least,
    solve=_least,
    parts=("Width", "Weight count"),
    units=(*ELEMENT, "weight", "weights", "million", "million weights"),
    slips=("bits for bytes", "factor 1000", "factor 10^6"),
    asks="two numbers: (a) a width in elements, (b) weights in millions",
    tolerance=0.01,
    why="A product that is too small is faster in BF16: at many tokens for want of width, at "
    "few for want of weights.",
    hints=(
        "Each time set what the narrow format costs equal to what it saves. Which factors do "
        "both sides share?",
        "Many tokens: M K (2 + a) / W against 2 M N K (1 / P_wide - 1 / P_narrow). Few: the "
        "fixed time against "
        "N K (b_wide - b_narrow) / W.",
    ),
    mistakes=_MISTAKES_3,
)


# 4.4 ----------------------------------------------------------------------------------------------

# So many questions that the added answers change less than 1 %.
_NUMBERS_4 = variants(
    "before after questions flips",
    (84, 82.4, 1000, 4),
    (80.5, 80.1, 12032, 6),
    (71, 66, 200, 9),
    (62, 61, 500, 8),
    (76, 72.5, 1319, 7),
    (58, 60.8, 250, 12),
    (90, 88.5, 4000, 3),
    (67.3, 66.4, 14042, 10),
)


def _text_noise(before, after, questions, flips):
    return (
        f"A model scores {before:g} % before and {after:g} % in a narrow format, on "
        f"{questions} questions. What is the 95 % "
        "margin of the difference, in percentage points, if each format had its own draw of "
        "questions? And what is it if the "
        f"same questions were asked and {flips:g} % of them flip (right in one format, wrong "
        "in the other)? The answers added to "
        "each count in (4.8) matter only for few questions; here you may leave them out."
    )


def _noise(before, after, questions, flips, *, draws=1.0, pairs=1.0):
    """(margin with a draw for each format, margin with the same questions) [percentage point], each
    times a factor.
    """
    own, same = (
        float(difference_margin(before, after, questions, flipped=share))
        for share in (None, flips / 100)
    )
    return own * draws, same * pairs


def _one_standard_deviation(**given):
    """This is one standard deviation. Chance stays within 1.96 of them 95 % of the time."""
    return _noise(draws=1 / NORMAL_95, pairs=1 / NORMAL_95, **given)


def _half(**given):
    """This is half the margin. The 1.96 standard deviations lie on each side, so nothing is divided
    by 2.
    """
    return _noise(draws=1 / 2, pairs=1 / 2, **given)


def _full_width(**given):
    """This is twice the margin, the whole width of the interval. The margin is what lies on one
    side.
    """
    return _noise(draws=2, pairs=2, **given)


def _one_score_alone(**given):
    """The first margin seems to be that of one score. Both scores are drawn, so add the variance of
    the second.
    """
    return _noise(**given | {"after": given["before"]}, draws=0.5**0.5)


def _margins_added(before, after, **given):
    """The first margin seems to be the sum of the margins of the two scores. Variances add up, and
    their root comes last.
    """
    one, other = (_noise(score, score, **given, draws=0.5**0.5) for score in (before, after))
    return one[0] + other[0], one[1]


def _n_outside_the_root(questions, **given):
    """The number of questions seems to stand outside the root. Four times as many questions halve a
    margin.
    """
    return _noise(draws=questions**-0.5, pairs=questions**-0.5, questions=questions, **given)


def _as_shares(**given):
    """This is a share, or a number with a % sign behind it. Points are asked for: a share of 0.03
    is 3 points, typed as 3.
    """
    return _noise(draws=1 / 100, pairs=1 / 100, **given)


def _flips_in_per_cent(**given):
    """In the second margin the flips seem to be in per cent under the root, as 4 and not as
    0.04.
    """
    return _noise(pairs=10, **given)


def _root_of_per_cent(**given):
    """The second margin seems to be the root of per cent. Take the root of a share first, and turn
    that into points.
    """
    return _noise(pairs=1 / 10, **given)


def _flips_twice(**given):
    """The flips seem to be counted twice. Their share has both directions in it already, and each
    question flips once.
    """
    return _noise(pairs=2**0.5, **given)


def _change_for_flips(before, after, flips, **given):
    """In the second margin the change of the score seems to stand for the flips. Flips in both
    directions add noise.
    """
    return _noise(
        pairs=(abs(before - after) / flips) ** 0.5, before=before, after=after, flips=flips, **given
    )


def _difference_itself(before, after, **_):
    """This is the difference of the scores. The margin says how large chance alone makes it."""
    return abs(before - after), abs(before - after)


def _margins_exchanged(**given):
    """The two margins seem to be exchanged. Two draws are noisier than the same questions asked
    twice.
    """
    return _noise(**given)[::-1]


_MISTAKES_4 = (
    _one_standard_deviation,
    _half,
    _full_width,
    _one_score_alone,
    _margins_added,
    _n_outside_the_root,
    _as_shares,
    _flips_in_per_cent,
    _root_of_per_cent,
    _flips_twice,
    _change_for_flips,
    _difference_itself,
    _margins_exchanged,
)
_NOISE = Exercise(
    id="4.4",
    variants=_NUMBERS_4,
    text=_text_noise,
    solve=_noise,
    parts=("Two-draw margin", "Paired margin"),
    units=("point", "points", "percentage point", "percentage points", "pp"),
    asks="two numbers in percentage points (own draws, same questions)",
    tolerance=0.03,  # 2 for 1.96 is right, too
    why="Asked the same questions, and with the flips counted, two formats can show a loss "
    "that two draws would hide.",
    hints=(
        "An answer is right or not: what is its variance, if a share u is right? What is that "
        "of the difference of two scores?",
        "Own draws: 1.96 times the root of (u (1 - u) + v (1 - v)) / n. Same questions, d of "
        "them flip: 1.96 times the root of "
        "d / n. All are shares, and 100 times a share is in points. `difference_margin` has both.",
    ),
    mistakes=_MISTAKES_4,
)


# 4.5 ----------------------------------------------------------------------------------------------

OTHER_ENGINE = {"sglang": "trtllm", "trtllm": "sglang"}
_NUMBERS_5 = variants(
    "engine hidden m wanted",
    ("trtllm", 4096, 8192, 1.4),
    ("sglang", 4096, 8192, 2.0),
    ("sglang", 4096, 1, 1.2),
    ("sglang", 4096, 256, 1.3),
    ("sglang", 4096, 4096, 1.3),
    ("sglang", 2048, 8192, 1.3),
    ("trtllm", 4096, 1024, 1.2),
    ("trtllm", 2048, 8192, 1.2),
)


def _text_design(engine, hidden, m, wanted):
    return (
        f"A plain layer with $H = {hidden}$ is split over $t$ = 1, 2, 4 or 8 GB300 by tensor "
        "parallelism. Each GPU multiplies "
        "its own shard of four products: QKV ($N = 3H/t$, $K = H$), the attention output ($N = "
        "H$, $K = H/t$), the up-projection "
        "($N = 4H/t$, $K = H$) and the down-projection ($N = H$, $K = 4H/t$). Take their "
        "published times, with "
        f'{ENGINE[engine]} at $M = {m}$: `hw.gemm_grid("GB300", "nvfp4", "{engine}").at({m}, '
        "n, k)` is the time of one shard in "
        'NVFP4, and with "bf16" that in BF16. On how many GPUs at most is the sum of the four '
        "times in BF16 at least "
        f"{wanted:g} times their sum in NVFP4?"
    )


def _shards(hidden, ways, along_k=("attention output", "down")):
    """(N, K) of one GPU [element], for each of the four products."""
    layer = transformer_gemms(1, hidden_size=hidden, intermediate_size=4 * hidden)
    return [
        (int(g.n), int(g.k) // ways) if g.name in along_k else (int(g.n) // ways, int(g.k))
        for g in layer
    ]


def _published(engine, precision, m, n, k):
    return float(gemm_grid("GB300", precision, engine).at(m, n, k))


def _bound(engine, precision, m, n, k):
    return float(gemm_seconds(m, n, k, precision, ideal_constants("GB300", precision)))


def _most(
    engine,
    hidden,
    m,
    wanted,
    *,
    seconds=_published,
    speed=lambda wide, narrow: sum(wide) / sum(narrow),
    **split,
):
    """Most GPUs at which NVFP4 is fast enough, None where it never is; the keywords stand in for
    the right way.
    """
    fast = []
    for ways in (1, 2, 4, 8):
        times = [
            [seconds(engine, form, m, n, k) for n, k in _shards(hidden, ways, **split)]
            for form in ("bf16", "nvfp4")
        ]
        fast += [float(ways)] if speed(*times) >= wanted else []
    return max(fast, default=None)


def _wrong(way, **given):
    return unless(_most(**given), _most(**given | way))


def _bound_or_whole_matrices(**given):
    """The published speed falls short here. Three slips may lead to this number: the bound in place
    of published times, the
    times of whole matrices in place of shards, or another engine."""
    return _wrong({"seconds": _bound}, **given)


def _another_engine(engine, **given):
    """With another engine this would be right. Look at the last argument of `hw.gemm_grid`."""
    return _wrong({"engine": OTHER_ENGINE[engine]}, engine=engine, **given)


def _each_alone(**given):
    """Up to here each of the four products is fast enough by itself. The four together are asked:
    add up their times first.
    """
    return _wrong({"speed": lambda wide, narrow: min(np.divide(wide, narrow))}, **given)


def _all_along_n(**given):
    """With all four split along N this would be right. Attention output and down-projection keep N
    = H, and their K shrinks.
    """
    return _wrong({"along_k": ()}, **given)


def _half_as_many(**given):
    """This many are fast enough. So are twice as many, and the question asks for the most."""
    return _most(**given) / 2 if _most(**given) > 1 else None


def _twice_as_many(**given):
    """On this many GPUs NVFP4 falls short. Half as many are the most that reach it."""
    return _most(**given) * 2 if _most(**given) < 8 else None


_DESIGN = Exercise(
    id="4.5",
    variants=_NUMBERS_5,
    text=_text_design,
    solve=_most,
    units=("GPU", "GPUs", "way", "ways"),
    asks="a number of GPUs",
    tolerance=0.0,
    why="Splitting makes products small, and small products gain little from a narrow format.",
    hints=(
        "Put t = 1, 2, 4 and 8 into the four shapes, and take the time of each in both formats.",
        "For each number of GPUs sum the times of the four shards in both formats, and divide "
        "the BF16 sum by the NVFP4 sum.",
    ),
    mistakes=(
        _bound_or_whole_matrices,
        _another_engine,
        _each_alone,
        _all_along_n,
        _half_as_many,
        _twice_as_many,
    ),
)

EXERCISES = (_BLOCK, _STEP, _LEAST, _NOISE, _DESIGN)
