"""The exercises of chapter 1. Nothing is typed that the package can compute: an exercise holds the
numbers of its question (the
first variant is the one that the chapter prints) and functions of them.
"""

import math

import numpy as np

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.formulas.roofline import critical_dimension, gemm_flops, gemm_intensity
from hwdesign.lessons.exercises.base import ELEMENT, ENGINE, Exercise, variants, with_article
from hwdesign.lessons.studies.four_constants import gemm_seconds, ideal_constants
from hwdesign.models.blocks import MoE
from hwdesign.models.layers import transformer_gemms
from hwdesign.models.model import Model
from hwdesign.timing.silicon import gemm_grid, saturation_point, sustained
from hwdesign.units import fmt

# 1.1
# --------------------------------------------------------------------------------------------------

_NUMBERS_1 = variants(
    "device recipe tokens hidden inner",
    ("H100_SXM", "bf16", 256, 4096, 14336),
    ("H200", "bf16", 256, 4096, 14336),
    ("A100_SXM", "bf16", 128, 8192, 28672),
    ("H100_SXM", "fp8", 352, 4096, 14336),
    ("H200", "fp8", 512, 4096, 14336),
    ("B200", "fp8", 384, 8192, 28672),
    ("GB300", "fp8", 256, 8192, 28672),
    ("MI300X", "fp8", 512, 8192, 28672),
)


def _setting(device, recipe):
    formats = {"bf16": "in BF16", "fp8": "with inputs and weights in FP8 and outputs in BF16"}
    return f"on {with_article(device)} {formats[recipe]}"


def _text_minima(device, recipe, **_):
    d = as_device(device)
    peak = fmt(d.peak_flops(as_recipe(recipe).math), "FLOP/s", digits=4)
    rates = f"({peak} dense, {fmt(d.memory_bandwidth, 'byte/s')})"
    minima = r"$M_{\min}$, $N_{\min}$ and $K_{\min}$"
    return f"Without running anything: what are {minima} {_setting(device, recipe)} {rates}?"


def _ridge(device, recipe, **_):
    return as_device(device).ridge(as_recipe(recipe).math)


def _minima(device, recipe, ridge=None, sizes=(), **_):
    """(M, N, K) by equation (1.5) [element]; `ridge` and `sizes` stand in for the right ones."""
    size = as_recipe(recipe).operand_bytes | dict(sizes)
    return tuple(
        float(critical_dimension(ridge or _ridge(device, recipe), size[operand]))
        for operand in "bac"
    )


def _twice(**given):
    """This is twice the answer. Three slips lead here: the factor 1/2 of (1.5) left out,
    multiply-adds counted for FLOP, or a
    peak twice too high (the sparse one, or that of a format with half the bits)."""
    return tuple(2 * size for size in _minima(**given))


def _half(**given):
    """This is half the answer. Look at the bytes of one element, and at the format that the peak
    belongs to.
    """
    return tuple(size / 2 for size in _minima(**given))


def _ridge_upside_down(**given):
    """The ridge seems to be upside down: it is FLOP per byte, the math rate over the bandwidth."""
    return _minima(**given, ridge=1 / _ridge(**given))


def _outputs_like_inputs(recipe, **given):
    """The outputs seem to have the size of the inputs. They are BF16, 2 bytes, and K pays for
    them.
    """
    return _minima(recipe=recipe, **given, sizes={"c": as_recipe(recipe).activations.bytes})


def _inputs_like_outputs(recipe, **given):
    """Inputs and weights seem to have the size of the outputs. M pays for weights and N for inputs,
    in their own format.
    """
    return _minima(
        recipe=recipe, **given, sizes=dict.fromkeys("ab", as_recipe(recipe).operand_bytes["c"])
    )


def _n_and_k_exchanged(**given):
    """N and K seem to be exchanged: N pays for the inputs, K for the outputs."""
    m, n, k = _minima(**given)
    return m, k, n


def _pcie_card(device, recipe, **_):
    """These are the minima of the PCIe card. The SXM module has another peak and another
    bandwidth.
    """
    return _minima("H100_PCIE", recipe) if device == "H100_SXM" else None


_MINIMA = Exercise(
    id="1.1",
    variants=_NUMBERS_1,
    text=_text_minima,
    solve=_minima,
    parts=("M_min", "N_min", "K_min"),
    one=True,
    units=ELEMENT,
    slips=("bits for bytes", "factor 1000", "factor 10^6", "factor 10^9", "factor 10^12"),
    asks="three numbers (M_min, N_min, K_min) in elements, or one number if all three are equal",
    why="Below its minimum a dimension leaves the math units waiting, whatever the other two are.",
    hints=(
        "Equation (1.5): half the ridge, times the bytes of one element of the matrix that the "
        "dimension pays for.",
        "M pays for the weights, N for the inputs, K for the outputs. The ridge is the dense "
        "peak over the bandwidth.",
    ),
    mistakes=(
        _twice,
        _half,
        _ridge_upside_down,
        _outputs_like_inputs,
        _inputs_like_outputs,
        _n_and_k_exchanged,
        _pcie_card,
    ),
)


def _text_layers(device, recipe, tokens, hidden, inner):
    return (
        f"Which layers of a model with $H = {hidden}$, $H' = {inner}$ and 8 key-value heads of "
        "128 features can be "
        f"compute-bound at {tokens} tokens {_setting(device, recipe)}: none, some or all?"
    )


def _layers(device, recipe, tokens, hidden, inner, gated=False, times=1):
    """How many of the four layers reach the ridge: "none", "some" or "all"."""
    heads = {"num_heads": hidden // 128, "num_kv_heads": 8, "head_dim": 128}
    gemms = transformer_gemms(1, hidden_size=hidden, intermediate_size=inner, gated=gated, **heads)
    reached = [
        gemm_intensity(tokens, g.n, g.k, **as_recipe(recipe).operand_bytes)
        >= times * _ridge(device, recipe)
        for g in gemms
    ]
    return "all" if all(reached) else "some" if any(reached) else "none"


def _tokens_below_the_minimum(device, recipe, tokens, **_):
    """Look at the number of tokens first: for which layers does it differ?"""
    return "some" if tokens < _minima(device, recipe)[0] else None


def _each_dimension_alone(device, recipe, tokens, hidden, **_):
    """Each dimension is above its own minimum, but (1.4) adds the three terms. Near a minimum the
    sum decides.
    """
    return "all" if np.all(np.array([tokens, hidden, hidden]) >= _minima(device, recipe)) else None


def _ridge_twice_too_high(**given):
    """That would be right with a ridge twice as high. Look at the peak: dense, and of the format of
    the inputs.
    """
    return _layers(**given, times=2)


def _tokens_left_out(**given):
    """That would be right with endless tokens. Each layer also needs its M."""
    return _layers(**given | {"tokens": math.inf})


_LAYERS = Exercise(
    id="1.1b",
    variants=_NUMBERS_1,
    text=_text_layers,
    solve=_layers,
    options=("none", "some", "all"),
    asks='"none", "some" or "all"',
    why="The number of tokens is the same for all layers, so it is the first of the three "
    "dimensions to look at.",
    hints=(
        "Compare the number of tokens with M_min first: it is one dimension of every layer.",
        "If M is large enough, put M, N and K of each layer into (1.4) and compare the "
        "intensity with the ridge.",
    ),
    mistakes=(
        _tokens_below_the_minimum,
        _each_dimension_alone,
        _tokens_left_out,
        _ridge_twice_too_high,
    ),
)


# 1.2 ----------------------------------------------------------------------------------------------

_NUMBERS_2 = variants(
    "model device recipe",
    ("DeepSeek-R1", "GB300", "nvfp4"),
    ("DeepSeek-R1", "B200", "nvfp4"),
    ("Qwen3-235B-A22B", "H100_SXM", "fp8"),
    ("Qwen3-235B-A22B", "GB300", "nvfp4"),
    ("Qwen3-30B-A3B", "H200", "fp8"),
    ("gpt-oss-120b", "GB300", "nvfp4"),
    ("Mixtral-8x7B", "GB300", "nvfp4"),
)


def _expert(model):
    """(H, mixture of experts) of a model: width of the model [element] and the layer that
    routes.
    """
    found = Model.from_config(model.lower())
    return found.hidden_size, next(
        block.ffn for block in found.blocks if isinstance(block.ffn, MoE)
    )


def _text_expert(model, device, recipe):
    hidden, ffn = _expert(model)
    label = as_recipe(recipe).weights.label
    return (
        f"In {model}, each expert's down-projection maps $H' = {ffn.width}$ features to $H = "
        f"{hidden}$. Weights and inputs are "
        f"{label}, outputs BF16, on {with_article(device)}. Can it ever be compute-bound? "
        "If so, how many tokens must one expert receive?"
    )


def _tokens(model, device, recipe, turned=0, **sizes):
    """Equation (1.4) at the ridge, solved for M; infinite where no M is enough. `turned`: matrices
    on the way up, 0 for down.
    """
    hidden, ffn = _expert(model)
    n, k = (turned * ffn.width, hidden) if turned else (hidden, ffn.width)
    size = as_recipe(recipe).operand_bytes | sizes
    room = 2 / _ridge(device, recipe) - size["a"] / n - size["c"] / k
    return float(size["b"] / room) if room > 0 else math.inf


def _outputs_of_one_byte(**given):
    """The outputs seem to take 1 byte. They are BF16, 2 bytes."""
    return _tokens(**given, c=1.0)


def _scales_left_out(recipe, **given):
    """The block scales seem to be missing. One 8-bit scale for 16 values of 4 bits makes 0.5625
    byte, not 0.5.
    """
    bare = as_recipe(recipe).weights.bits / 8
    return _tokens(recipe=recipe, **given, a=bare, b=bare)


def _weights_alone(model, **given):
    """This is M_min, with N and K endless. Inputs and outputs take their part of the budget
    first.
    """
    return _minima(**given)[0]


def _expert_turned(model, **given):
    """N and K seem to be exchanged. The down-projection puts out H features and sums over H', so K
    = H'.
    """
    return _tokens(model, **given, turned=1)


def _up_projection(model, **given):
    """This is the up-projection with the gate beside it, N = 2H' and K = H. The question asks for
    the way down.
    """
    return _tokens(model, **given, turned=2)


def _inputs_left_out(**given):
    """The term a/N of the inputs seems to be missing. It may be small, but so is the room that is
    left.
    """
    return _tokens(**given, a=0.0)


def _outputs_left_out(**given):
    """The term c/K of the outputs seems to be missing. Writing takes its part of the budget too."""
    return _tokens(**given, c=0.0)


def _tokens_of_the_batch(model, **given):
    """This is the whole batch. The question asks for the tokens that one expert receives."""
    ffn = _expert(model)[1]
    return _tokens(model, **given) * ffn.num_experts / ffn.top_k


def _never(**_):
    """There is a number that is enough. Look at 2/I - a/N - c/K: the dense peak leaves it above
    zero.
    """
    return math.inf


_EXPERT = Exercise(
    id="1.2",
    variants=_NUMBERS_2,
    text=_text_expert,
    solve=_tokens,
    units=("token", "tokens"),
    slips=("factor 1000",),
    endless="Put it into (1.4): which terms does a larger M not touch?",
    asks='a number of tokens, or "never" if no number of tokens is enough',
    why="An expert sees only its share of the batch, so a narrow H' asks for batches that few "
    "services have.",
    hints=(
        "Set (1.4) to the ridge, 2/I = a/N + b/M + c/K, with N = H and K = H', and solve for M.",
        "a and b include the share of the block scales, if the format has any; the outputs "
        "have their own size c.",
        "The room 2/I - a/N - c/K is a small difference of nearly equal numbers: keep all digits. "
        "If it is not above zero, the answer is never.",
    ),
    mistakes=(
        _outputs_of_one_byte,
        _scales_left_out,
        _weights_alone,
        _expert_turned,
        _up_projection,
        _inputs_left_out,
        _outputs_left_out,
        _tokens_of_the_batch,
        _never,
    ),
)


# 1.3 ----------------------------------------------------------------------------------------------

_NUMBERS_3 = variants(
    "device precision engine",
    ("H200", "fp8", "sglang"),
    ("H200", "fp8", "trtllm"),
    ("H100_SXM", "fp8", "sglang"),
    ("B200", "fp8", "sglang"),
    ("B200", "nvfp4", "sglang"),
    ("B200", "nvfp4", "trtllm"),
)


def _text_points(device, precision, engine):
    return (
        f"Find the 80 % points of $K$ and $N$ on {with_article(device)} in {precision.upper()} "
        f"with {ENGINE[engine]}, "
        "at the sizes of Figure 4. Predict first: will they be larger or smaller than on a "
        "GB300 in NVFP4?"
    )


def _points(device, precision, engine, point=saturation_point):
    """(K, N) where the two sweeps of Figure 4 reach 80 % of the sustained rate; `point` stands in
    for the rule.
    """
    grid = gemm_grid(device, precision, engine)
    x = grid.n[(grid.n >= 128) & (grid.n <= 16384)]
    k_rate, n_rate = (
        gemm_flops(8192, 10240, x) / grid.at(8192, 10240, x),
        gemm_flops(8192, x, 8192) / grid.at(8192, x, 8192),
    )
    return float(point(x, k_rate)), float(point(x, n_rate))


def _sweeps_exchanged(**given):
    """K and N seem to be exchanged: the first number is that of the sweep over K."""
    return _points(**given)[::-1]


def _other_engine(device, precision, engine):
    """These are the points of another engine on the same device. Look at the last argument of
    `hw.gemm_grid`.
    """
    return _points(device, precision, "trtllm" if engine == "sglang" else "sglang")


def _block_scales(device, precision, engine):
    """These are the points of "fp8_block". The question asks for "fp8", with one scale for the
    whole matrix.
    """
    return _points(device, "fp8_block", engine) if precision == "fp8" else None


def _device_of_the_chapter(engine, **_):
    """These are the points of the chapter, GB300 in NVFP4. The rates of the new grid are still
    missing.
    """
    return _points("GB300", "nvfp4", engine)


def _largest_rate(**given):
    """This is 80 % of the largest rate. The rule takes the sustained rate, the median from 6144 to
    16384.
    """
    return _points(
        **given,
        point=lambda x, rate: saturation_point(
            x, rate, share=0.8 * np.nanmax(rate) / sustained(x, rate)
        ),
    )


def _size_of_the_table(**given):
    """This is the first size of the table above 80 %. The rule interpolates on the logarithmic
    axis.
    """
    return _points(**given, point=lambda x, rate: x[np.argmax(rate >= 0.8 * sustained(x, rate))])


def _bound_of_the_sizes(device, precision, **_):
    """These are the least sizes by (1.5). The question is where the published times reach 80 %."""
    return _minima(device, precision)[:0:-1]


_POINTS = Exercise(
    id="1.3",
    variants=_NUMBERS_3,
    text=_text_points,
    solve=_points,
    parts=("K", "N"),
    units=ELEMENT,
    asks="two numbers (K, N) in elements",
    why="The sizes that are enough belong to a device, a format and an engine: a model is "
    "shaped for what will serve it.",
    hints=(
        "Take the cell of the two sweeps of Figure 4 and put another grid into it; "
        "`saturation_point` applies the rule.",
        "K: M = 8192, N = 10240, K swept. N: M = 8192, K = 8192, N swept. The rate is FLOP "
        "over time, sizes 128 to 16384.",
    ),
    mistakes=(
        _sweeps_exchanged,
        _other_engine,
        _block_scales,
        _device_of_the_chapter,
        _largest_rate,
        _size_of_the_table,
        _bound_of_the_sizes,
    ),
)


# 1.4 ----------------------------------------------------------------------------------------------

_NUMBERS_4 = variants(
    "device precision engine power few",
    ("GB300", "nvfp4", "sglang", 24, 16),
    ("GB300", "nvfp4", "trtllm", 22, 16),
    ("B200", "nvfp4", "sglang", 24, 16),
    ("B200", "nvfp4", "sglang", 22, 64),
    ("B200", "nvfp4", "sglang", 26, 256),
    ("B200", "fp8", "sglang", 24, 64),
    ("H100_SXM", "fp8", "sglang", 22, 16),
)


def _text_width(device, precision, engine, power, few):
    setting = f"in {precision.upper()} on {device.replace('_', ' ')} with {ENGINE[engine]}"
    return (
        f"You have {2 * 2**power / 1e6:.1f} million weights for the two matrices of a plain "
        "feed-forward pair "
        f"($HH' = 2^{{{power}}}$) and serve it {setting}. Among the widths of the tables, "
        "which $H$ is fastest at 8192 tokens? "
        f"Which at {few}? Does one choice serve both?"
    )


def _width(device, precision, engine, power, few, *, pick=np.nanargmin, down=1, time=None):
    """H of the fastest pair at 8192 and at few tokens [element], H H' = 2**power; the keywords
    change the search.
    """
    grid, area = gemm_grid(device, precision, engine), 2**power
    h = np.array([size for size in grid.n if area % size == 0 and area // size in grid.n])
    time = time or grid.at
    pairs = (time(m, area // h, h) + down * time(m, h, area // h) for m in (8192, few))
    return tuple(float(h[pick(seconds)]) for seconds in pairs)


def _same_pair(h, power, **_):
    """H and H' name the same pair: the two GEMMs trade places and the time stays."""
    return min(h, 2**power / h) if 0 < h < math.inf else h


def _one_layer(**given):
    """This H makes the up-projection alone fastest. The down-projection has to be paid too: add the
    two times.
    """
    return _width(**given, down=0)


def _slowest(**given):
    """This is the slowest pair of the table, not the fastest."""
    return _width(**given, pick=np.nanargmax)


def _smallest_bound(device, precision, **given):
    """This has the smallest bound. The question asks for the published times, which include what
    the bound hides.
    """
    ideal = ideal_constants(device, precision)
    return _width(
        device, precision, **given, time=lambda m, n, k: gemm_seconds(m, n, k, precision, ideal)
    )


def _token_counts_exchanged(**given):
    """The two token counts seem to be exchanged: the first number belongs to 8192 tokens."""
    return _width(**given)[::-1]


_WIDTH = Exercise(
    id="1.4",
    variants=_NUMBERS_4,
    text=_text_width,
    solve=_width,
    parts=("H at many tokens", "H at few tokens"),
    one=True,
    units=ELEMENT,
    asks="two widths (H at 8192 tokens, H at the few), or one number if it serves both",
    tolerance=0.0,
    same=_same_pair,
    why="In a pair, one layer's N is the other's K, so a pair that is wide one way is narrow "
    "the other way.",
    hints=(
        "The pair takes the sum of two times: N = H', K = H on the way up and N = H, K = H' on "
        "the way down.",
        "Only widths whose partner 2^p / H is a size of the table can be looked up. Take the "
        "smallest sum for each token count.",
    ),
    mistakes=(_one_layer, _slowest, _token_counts_exchanged, _smallest_bound),
)

EXERCISES = (_MINIMA, _LAYERS, _EXPERT, _POINTS, _WIDTH)
