"""The exercises of chapter 3. As in chapter 1, the numbers of a question are typed and everything
else is computed.
"""

import numpy as np

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import BF16
from hwdesign.catalogue.precision import precision as as_precision
from hwdesign.lessons.exercises.base import ENGINE, Exercise, unless, variants, with_article
from hwdesign.lessons.studies.depth import layer_gemm_seconds
from hwdesign.lessons.studies.four_constants import gemm_seconds, ideal_constants
from hwdesign.models.blocks import Block, DenseFFN, SelfAttention
from hwdesign.models.layers import transformer_gemms
from hwdesign.models.model import Model, same_parameters
from hwdesign.timing.silicon import gemm_grid, measurements
from hwdesign.units import fmt

# 3.1
# --------------------------------------------------------------------------------------------------

_NUMBERS_1 = variants(
    "layers hidden ratio",
    (128, 2048, 4),
    (144, 1024, 9),
    (512, 1024, 16),
    (72, 2560, 9),
    (96, 1536, 16),
    (80, 4096, 4),
    (36, 1280, 9),
    (64, 2560, 16),
)
SHARE = {4: "a quarter", 9: "a ninth", 16: "a sixteenth"}


def _text_sibling(layers, hidden, ratio):
    return (
        f"A plain model has {layers} layers of hidden size $H = {hidden}$ with multi-head "
        "attention (each head has its own keys "
        "and values) and a feed-forward width of $4H$, so its layers hold $P = 12 L H^2$ "
        "parameters. It is rebuilt with "
        f"{SHARE[ratio]} of the layers and the same parameters. What is the new hidden size, "
        "how many all-reduces does a step "
        "need under tensor parallelism (two a layer), and how many bytes does the KV cache "
        "take per token in BF16?"
    )


def _model(layers, hidden, ratio=1):
    """The plain model, or its sibling with fewer layers."""
    heads = hidden // 128
    block = Block(
        mixer=SelfAttention(num_heads=heads, num_kv_heads=heads, head_dim=128),
        ffn=DenseFFN(width=4 * hidden, gated=False),
    )
    plain = Model(name="plain", hidden_size=hidden, vocab_size=32000, blocks=(block,) * layers)
    return same_parameters(plain, layers=layers // ratio)


def _sibling(layers, hidden, ratio, *, width=1, reduces=2, cache=1):
    """(hidden size, all-reduces, KV cache of a token [byte]); the keywords stand in for the right
    factors.
    """
    model = _model(layers, hidden, ratio)
    return (
        float(width * model.hidden_size),
        float(reduces * len(model.blocks)),
        cache * model.kv_bytes_per_token("bf16"),
    )


def _by_the_ratio(ratio, **given):
    """The width seems to grow by the ratio itself. Parameters grow with the square of H, so H grows
    by the root.
    """
    return _sibling(ratio=ratio, **given, width=ratio**0.5, cache=ratio**0.5)


def _one_a_layer(**given):
    """This counts one all-reduce a layer. There are two: after the attention output and after the
    down-projection.
    """
    return _sibling(**given, reduces=1)


def _one_a_gemm(**given):
    """This counts an exchange after each of the four GEMMs. QKV and the up-projection need none:
    two a layer are left.
    """
    return _sibling(**given, reduces=4)


def _old_exchanges(ratio, **given):
    """These are the all-reduces of the deep model. Their number follows the layers."""
    return _sibling(ratio=ratio, **given, reduces=2 * ratio)


def _half_a_cache(**given):
    """The KV cache is half of what it takes. Each head keeps keys and values, and each number in
    BF16 takes 2 bytes.
    """
    return _sibling(**given, cache=0.5)


def _old_cache(ratio, **given):
    """The KV cache seems to be unchanged. It holds 2 L H numbers a token, and L shrinks faster than
    H grows.
    """
    return _sibling(ratio=ratio, **given, cache=ratio**0.5)


def _single_cache(layers, ratio, **given):
    """This is the KV cache of one layer. Every layer keeps its own."""
    return _sibling(layers=layers, ratio=ratio, **given, cache=ratio / layers)


def _kib_for_kb(**given):
    """The KV cache seems to be in KiB, 1024 byte. In this book kB is decimal, 10^3 byte."""
    return _sibling(**given, cache=1 / 1.024)


_SIBLING = Exercise(
    id="3.1",
    variants=_NUMBERS_1,
    text=_text_sibling,
    solve=_sibling,
    parts=("Hidden size", "All-reduce count", "KV cache"),
    units=("byte", "bytes", "B", "element", "elements", "all-reduce", "all-reduces"),
    slips=("bits for bytes", "factor 1000", "factor 10^6"),
    asks="three numbers (hidden size in elements, all-reduces, KV cache in bytes), bytes as "
    '3000000 or "3 MB"',
    tolerance=0.01,
    why="With fewer layers, exchanges shrink with the layers and the KV cache with their root, "
    "at the same parameters.",
    hints=(
        "The product of L and the square of H stays. What does H do when L shrinks?",
        "H grows by the root of the ratio. Of the new L and H, all-reduces: 2 L. KV cache: 2 L "
        "H numbers of 2 bytes.",
    ),
    mistakes=(
        _by_the_ratio,
        _one_a_layer,
        _one_a_gemm,
        _old_exchanges,
        _half_a_cache,
        _old_cache,
        _single_cache,
        _kib_for_kb,
    ),
)


# 3.2 ----------------------------------------------------------------------------------------------

_NUMBERS_2 = variants(
    "billions precision device microseconds",
    (6.4, "nvfp4", "GB300", 20),
    (6.4, "bf16", "H100_SXM", 20),
    (8, "fp8", "H200", 20),
    (8, "nvfp4", "GB300", 10),
    (70, "nvfp4", "B200", 50),
    (30, "mxfp4", "B200", 40),
    (13, "bf16", "A100_SXM", 60),
    (8, "fp8", "MI300X", 25),
)
NEIGHBOUR = {
    "GB300": "B200",
    "B200": "GB300",
    "H200": "H100_SXM",
    "H100_SXM": "H200",
    "A100_SXM": "H100_SXM",
    "MI300X": "H200",
}


def _text_depth(billions, precision, device, microseconds):
    d = as_device(device)
    return (
        f"A model has $P = {billions:g}$ billion weights in {as_precision(precision).label}. "
        "Reading them once on "
        f"{with_article(device)} ({fmt(d.memory_bandwidth, 'byte/s', digits=4)}) takes $Pb/W$. "
        "Each layer also costs a fixed "
        rf"time $\tau = {microseconds}$ µs for launches and exchanges, whatever its width. "
        "At which number of layers is the "
        "fixed time of all layers equal to the time of reading?"
    )


def _depth(billions, precision, device, microseconds, *, size=None):
    """Layers whose fixed time equals the reading of all weights; `size` stands in for the bytes of
    a weight.
    """
    reading = (
        billions
        * 1e9
        * (size or as_precision(precision).bytes)
        / as_device(device).memory_bandwidth
    )
    return reading / (microseconds * 1e-6)


def _scales_left_out(precision, **given):
    """The block scales seem to be missing. They are read too: an NVFP4 weight takes 0.5625 byte, an
    MXFP4 weight 0.53125.
    """
    form = as_precision(precision)
    return _depth(precision=precision, **given, size=form.bits / 8) if form.block else None


def _weights_in_bf16(precision, **given):
    """The weights seem to be in BF16. Take the bytes of the format that the question names."""
    return (
        None
        if as_precision(precision) is BF16
        else _depth(precision=precision, **given, size=BF16.bytes)
    )


def _time_per_gemm(**given):
    """The fixed time seems to be charged four times a layer, once a GEMM. Here it is that of a
    whole layer.
    """
    return _depth(**given) / 4


def _bandwidth_of_another(device, **given):
    """The bandwidth seems to be that of another device. `hw.device(name).memory_bandwidth` has the
    one asked for.
    """
    return _depth(device=NEIGHBOUR[device], **given)


def _twice_as_deep(**given):
    """This is twice the answer. At this depth the fixed time is two thirds of the step; asked is
    where it is half.
    """
    return 2 * _depth(**given)


def _upside_down(**given):
    """The quotient seems to be upside down: reading over the fixed time of one layer, not the
    reverse.
    """
    return 1 / _depth(**given)


_DEPTH = Exercise(
    id="3.2",
    variants=_NUMBERS_2,
    text=_text_depth,
    solve=_depth,
    units=("layer", "layers"),
    slips=("bits for bytes", "factor 1000", "factor 10^6", "factor 10^9"),
    asks="a number of layers",
    tolerance=0.03,  # a whole number of layers counts as right
    why="Beyond this depth, a step with few tokens spends more time on its layers than on "
    "reading its weights.",
    hints=(
        "Write both times as functions of the number of layers L. One of them does not depend "
        "on it.",
        "Reading: P b / W, with b in bytes and block scales included. Fixed: L times tau. Set "
        "them equal.",
    ),
    mistakes=(
        _scales_left_out,
        _weights_in_bf16,
        _time_per_gemm,
        _bandwidth_of_another,
        _twice_as_deep,
        _upside_down,
    ),
)


# 3.3 ----------------------------------------------------------------------------------------------

VERSIONS = {"older": "0.5.6.post2", "newer": "0.5.14"}
OTHER_VERSION = {"older": "newer", "newer": "older"}
_NUMBERS_3 = variants(
    "version m",
    ("older", 32),
    ("older", 16),
    ("older", 8),
    ("older", 4),
    ("older", 64),
    ("newer", 16),
    ("newer", 64),
)


def _text_measured(version, m):
    older, newer = VERSIONS.values()
    memory = fmt(as_device("H100_SXM").memory_bandwidth, "byte/s")
    return (
        '`measurements("gemm_versions", "H100_SXM")` holds the published times of the same '
        "BF16 GEMMs in two versions of "
        f"SGLang, {older} and {newer}. If all weights came from memory, its bandwidth was at "
        "least $2nk$ bytes over the time. "
        f"What is the highest bandwidth that the {version} version implies at $m = {m}$, and "
        "how many of its shapes at this $m$ "
        f"imply more than the {memory} of the memory?"
    )


def _weight_bytes(m, n, k):
    return BF16.bytes * n * k


def _measured(version, m, *, moved=_weight_bytes, pick=np.argmax):
    """(highest implied bandwidth [byte/s], shapes above the memory's); the keywords stand in for
    the right way.
    """
    rows = measurements("gemm_versions", "H100_SXM", version=VERSIONS[version], m=m)
    rate = moved(rows["m"], rows["n"], rows["k"]) / rows["seconds"]
    return float(rate[pick(rate)]), float((rate > as_device("H100_SXM").memory_bandwidth).sum())


def _bits_counted(**given):
    """This is 8 times the bytes. A byte has 8 bits; at 8 tokens, FLOP are 8 times the bytes too."""
    return _measured(**given, moved=lambda m, n, k: 8 * _weight_bytes(m, n, k))


def _flop_counted(**given):
    """This seems to be FLOP over time, 2 m n k. Bandwidth counts bytes, 2 for each weight, whatever
    m is.
    """
    return _measured(**given, moved=lambda m, n, k: 2 * m * n * k)


def _inputs_and_outputs(**given):
    """These are the bytes of inputs and outputs. The weights have n k elements, and at few tokens
    they are almost all bytes.
    """
    return _measured(**given, moved=lambda m, n, k: BF16.bytes * m * (n + k))


def _all_operands(**given):
    """Inputs and outputs seem to be counted too. The question asks for the weights alone, which is
    the safer bound.
    """
    value = _measured(**given, moved=lambda m, n, k: BF16.bytes * (n * k + m * (n + k)))
    return unless(_measured(**given), value, 0.02)


def _version_exchanged(version, **given):
    """These are the numbers of the other version. The column `version` tells them apart."""
    return _measured(OTHER_VERSION[version], **given)


def _lowest(**given):
    """This is the lowest bandwidth, that of the shortest time. The smallest matrix has too few
    bytes to be fast.
    """
    return _measured(**given, pick=np.argmin)


def _unit_left_out(**given):
    """The bandwidth seems to be in TB/s. Write the unit behind it, as "2 TB/s", or put all of it in
    byte/s.
    """
    rate, count = _measured(**given)
    return rate / 1e12, count


_MEASURED = Exercise(
    id="3.3",
    variants=_NUMBERS_3,
    text=_text_measured,
    solve=_measured,
    parts=("Bandwidth", "Shape count"),
    units=("B/s", "byte/s", "bytes/s", "shape", "shapes"),
    slips=("factor 1000", "factor 10^6", "factor 10^9"),
    asks='two numbers (bandwidth, shapes), the bandwidth as 2e12 or "2 TB/s"',
    why="No memory is faster than its bandwidth, so one division shows which times did not "
    "read all weights from memory.",
    hints=(
        "Pick the rows of one version and one m. Each row has n, k and the seconds.",
        "The bytes of the weights are 2 n k. Divide by `seconds`, take the largest, and count "
        "those above "
        "`hw.H100_SXM.memory_bandwidth`.",
    ),
    mistakes=(
        _bits_counted,
        _flop_counted,
        _inputs_and_outputs,
        _all_operands,
        _version_exchanged,
        _lowest,
        _unit_left_out,
    ),
)


# 3.4 ----------------------------------------------------------------------------------------------

PLAIN = (
    (1024, 512),
    (2048, 128),
    (4096, 32),
)  # H [element] and L of 12 L H^2 = 6.44 billion weights
OTHER_ENGINE = {"sglang": "trtllm", "trtllm": "sglang", "vllm": "sglang"}
_NUMBERS_4 = variants(
    "device precision engine m",
    ("H200", "fp8", "sglang", 1),
    ("H200", "fp8", "trtllm", 1),
    ("GB300", "nvfp4", "sglang", 16),
    ("GB300", "nvfp4", "vllm", 64),
    ("B200", "nvfp4", "sglang", 64),
    ("B200", "fp8", "trtllm", 4),
    ("H100_SXM", "bf16", "sglang", 1),
    ("H200", "bf16", "sglang", 1024),
)


def _setting(device, precision, engine):
    return f"on {with_article(device)} in {precision.upper()} with {ENGINE[engine]}"


def _text_ratio(m, **given):
    (narrow, deep), (wide, few) = PLAIN[1:]
    return (
        "Take the published times of the four GEMMs of a plain layer, `layer_gemm_seconds`, "
        f"{_setting(**given)} at "
        f"$M = {m}$. How many times as long as {few} layers of $H = {wide}$ do {deep} layers "
        f"of $H = {narrow}$ take?"
    )


def _published(device, precision, engine, m):
    """Seconds of all layers of each plain model, by layers."""
    grid = gemm_grid(device, precision, engine)
    return {layers: layers * float(layer_gemm_seconds(grid, m, hidden)) for hidden, layers in PLAIN}


def _bound(device, precision, engine, m):
    """The same from peak and bandwidth, without anything that takes a fixed time."""
    ideal = ideal_constants(device, precision)
    gemms = {
        layers: transformer_gemms(1, hidden_size=h, intermediate_size=4 * h) for h, layers in PLAIN
    }
    return {
        n: n * sum(float(gemm_seconds(m, int(g.n), int(g.k), precision, ideal)) for g in gemms[n])
        for n in gemms
    }


def _ratio(*, seconds=_published, deep=128, wide=32, **given):
    """Time of the deep model over that of the wide one; the keywords stand in for the right
    ones.
    """
    found = seconds(**given)
    return found[deep] / found[wide]


def _single_layers(**given):
    """This compares one layer with one layer. The models have 128 and 32 of them."""
    return _ratio(**given) * 32 / 128


def _turned(**given):
    """The quotient seems to be turned: the deep model over the wide one."""
    return _ratio(**given, deep=32, wide=128)


def _other_engine(engine, **given):
    """These are the times of another engine. Look at the last argument of `hw.gemm_grid`."""
    return unless(
        _ratio(engine=engine, **given), _ratio(engine=OTHER_ENGINE[engine], **given), 0.02
    )


def _bound_alone(**given):
    """This is near the ratio of the bounds, about 1. Weights and FLOP are the same; asked is the
    ratio of published times.
    """
    return _ratio(**given, seconds=_bound)


def _deepest(**given):
    """This is the ratio of the 512 layers of 1024. The question takes the 128 layers of 2048."""
    return _ratio(**given, deep=512)


def _how_much_longer(**given):
    """This is how much longer it takes. The question asks how many times as long, which is 1
    more.
    """
    return _ratio(**given) - 1


_RATIO = Exercise(
    id="3.4",
    variants=_NUMBERS_4,
    text=_text_ratio,
    solve=_ratio,
    units=("time", "times", "x"),
    asks="a ratio of two times, deep over wide",
    why="The two models have the same weights and the same FLOP, so all beyond 1 is the price "
    "of depth.",
    hints=(
        "`hw.gemm_grid` has the times of a device, a format and an engine. "
        "`layer_gemm_seconds(grid, m, hidden)` adds up those of one layer.",
        "Multiply each layer by its number of layers, then divide: 128 of 2048 over 32 of 4096.",
    ),
    mistakes=(_single_layers, _turned, _other_engine, _bound_alone, _deepest, _how_much_longer),
)


# 3.5 ----------------------------------------------------------------------------------------------

_NUMBERS_5 = variants(
    "device precision engine m milliseconds",
    ("GB300", "nvfp4", "sglang", 16, 4),
    ("GB300", "nvfp4", "trtllm", 16, 4),
    ("GB300", "bf16", "sglang", 64, 10),
    ("B200", "nvfp4", "sglang", 1, 5),
    ("H200", "fp8", "sglang", 1, 15),
    ("H200", "fp8", "trtllm", 16, 6),
    ("H100_SXM", "bf16", "sglang", 64, 8),
    ("A100_SXM", "bf16", "trtllm", 1, 10),
)


def _text_design(m, milliseconds, **given):
    *shapes, last = (f"{layers} layers of {hidden}" for hidden, layers in PLAIN)
    hidden, layers = PLAIN[0]
    return (
        rf"A plain model with $12 L H^2 = {12 * layers * hidden**2 / 1e9:.2f} \times 10^9$ "
        "weights in "
        "its layers can have "
        f"{', '.join(shapes)} or {last}. You want the deepest whose four GEMMs, over all "
        f"layers, take at most {milliseconds} ms "
        f"by the published times {_setting(**given)} at $M = {m}$. How many layers does it have?"
    )


def _layers(milliseconds, *, seconds=_published, pick=max, **given):
    """Layers of the deepest model within the budget; `seconds` and `pick` stand in for the right
    ones.
    """
    return float(
        pick(layers for layers, time in seconds(**given).items() if time <= milliseconds * 1e-3)
    )


def _one_layer_or_bound(**given):
    """This model takes longer. Two slips lead here: the time of a single layer, or the bound in
    place of published times.
    """
    return unless(_layers(**given), _layers(**given, seconds=_bound))


def _fastest(**given):
    """This is the fastest. The budget allows a deeper one."""
    return unless(_layers(**given), _layers(**given, pick=min))


def _next_deeper(**given):
    """This one is over the budget. The time of all its layers must stay within it."""
    deeper = [layers for _, layers in PLAIN if layers > _layers(**given)]
    return float(min(deeper)) if deeper else None


def _hidden_size(**given):
    """This is the hidden size. The question asks for the number of layers."""
    return float(next(hidden for hidden, layers in PLAIN if layers == _layers(**given)))


_DESIGN = Exercise(
    id="3.5",
    variants=_NUMBERS_5,
    text=_text_design,
    solve=_layers,
    units=("layer", "layers"),
    asks="a number of layers",
    tolerance=0.0,
    why="Depth is bought with time, so a time budget sets how deep a model of given size can "
    "be on given hardware.",
    hints=(
        "Compute the time of each of the three over all its layers. Is the bound of any help here?",
        "`layers * layer_gemm_seconds(grid, m, hidden)` for each of the three; of those within "
        "budget, take the most layers.",
    ),
    mistakes=(_one_layer_or_bound, _fastest, _next_deeper, _hidden_size),
)

EXERCISES = (_SIBLING, _DEPTH, _MEASURED, _RATIO, _DESIGN)
