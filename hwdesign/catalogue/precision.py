"""Number formats as they are stored and multiplied, and recipes that assign them to the parts of a
model.

Sources: IEEE 754-2019 (binary32, binary16); OCP 8-bit Floating Point Specification 1.0; OCP
Microscaling Formats (MX) 1.0 for MXFP8 and MXFP4; NVIDIA, "Introducing NVFP4" (2025) for NVFP4;
DeepSeek-V3 technical report (2024) for the FP32 scales of 1 x 128 and 128 x 128 blocks. Read
2026-11-29. What integers in groups keep beside the elements: compressed-tensors 0.20.1,
bitsandbytes 0.50.2 and MLX 0.32.4, by storing matrices with them. Read 2026-12-01.
"""

import functools
import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from hwdesign._check import check_fields, choice, instance, listed, positive, shown


@dataclass(frozen=True, kw_only=True)
class Precision:
    """A number format: element, block scale, and the tensor-core rate it runs at.

    Parameters
    ----------
    name : str
        Name in the catalogue, lower case.
    label : str
        Name as it is printed.
    bits : int
        Bits of one element [bit].
    block : tuple of int
        Shape of the block that shares one scale [element]; empty for a format without block scales.
    scale_bits : float
        Bits of one block scale, of its zero point and of a scale of scales [bit].
    rate : str
        The row of the device catalogue whose peak its multiplications reach.

    Notes
    -----
    A scale per tensor (NVFP4 has one in FP32) is 4 bytes for the whole tensor and is not counted
    per element.

    Examples
    --------
    >>> NVFP4.bytes, MXFP4.bytes, MXFP8.bytes
    (0.5625, 0.53125, 1.03125)
    """

    name: str
    label: str
    bits: int  # [bit]
    block: tuple[int, ...] = ()  # [element]
    scale_bits: float = 0  # [bit]
    rate: str

    def __post_init__(self):
        texts = ("name", "label", "rate")
        check_fields(self, texts=texts, positive=("bits",), amounts=("scale_bits",))
        sides = listed("block", self.block, int | float, "numbers, as in (1, 16)")
        positive(block=sides)
        object.__setattr__(self, "block", sides)

    @property
    def block_size(self):
        """Elements that share one scale [element]; 1 without block scales."""
        size = 1
        for side in self.block:
            size *= side
        return size

    @property
    def bytes(self):
        """Stored size of one element, its share of the block scale included [byte]."""
        return (self.bits + (self.scale_bits / self.block_size if self.block else 0)) / 8


FP32 = Precision(name="fp32", label="FP32", bits=32, rate="fp32")
TF32 = Precision(
    name="tf32", label="TF32", bits=32, rate="tf32"
)  # stored as FP32, multiplied with 10 mantissa bits
BF16 = Precision(name="bf16", label="BF16", bits=16, rate="bf16")
FP16 = Precision(name="fp16", label="FP16", bits=16, rate="fp16")
FP8 = Precision(name="fp8", label="FP8", bits=8, rate="fp8")
FP8_1X128 = Precision(
    name="fp8_1x128", label="FP8 1x128", bits=8, block=(1, 128), scale_bits=32, rate="fp8"
)
FP8_128X128 = Precision(
    name="fp8_128x128", label="FP8 128x128", bits=8, block=(128, 128), scale_bits=32, rate="fp8"
)
MXFP8 = Precision(name="mxfp8", label="MXFP8", bits=8, block=(1, 32), scale_bits=8, rate="fp8")
MXFP4 = Precision(name="mxfp4", label="MXFP4", bits=4, block=(1, 32), scale_bits=8, rate="fp4")
NVFP4 = Precision(name="nvfp4", label="NVFP4", bits=4, block=(1, 16), scale_bits=8, rate="fp4")
INT8 = Precision(name="int8", label="INT8", bits=8, rate="int8")  # a scale for each row
INT4 = Precision(name="int4", label="INT4", bits=4, rate="int4")  # a scale for each row


INTEGER_BITS = range(2, 9)  # [bit]
MOST_GROUPED = 65536  # elements of a group [element]
# What may follow the size of a group: its name -> how a zero is kept beside the scale.
ZEROS = {
    "": "a scale alone",
    "_zp": "a zero point in as many bits as an element",
    "_zp16": "a zero point or bias in 16 bits",
    "_i8": "each element in a byte of its own",
}


@functools.cache
def _grouped(bits, size, zero=""):
    """Integers with a scale of 16 bits for each group of a row, and a zero point where one is kept;
    without a size one scale a row, which is not counted per element.
    """
    name = f"int{bits}{f'_g{size}' if size else ''}{zero}"
    label = f"INT{bits}{f' g{size}' if size else ''}{f' ({ZEROS[zero]})' if zero else ''}"
    scale = 16 + {"_zp": bits, "_zp16": 16}.get(zero, 0) if size else 0
    return Precision(
        name=name,
        label=label,
        bits=8 if zero == "_i8" else bits,
        block=(1, size) if size else (),
        scale_bits=scale,
        rate=f"int{bits}",
    )


INT4_G32, INT4_G64, INT4_G128 = (_grouped(4, size) for size in (32, 64, 128))
INT8_G32, INT8_G64, INT8_G128 = (_grouped(8, size) for size in (32, 64, 128))
# bitsandbytes in 4 bits (NF4 or FP4): an FP32 scale a block of 64, or with double quantization one
# of 8 bits, and one of FP32 for 256 of those.
BNB4 = Precision(name="bnb4", label="4 bit g64", bits=4, block=(1, 64), scale_bits=32, rate="int4")
BNB4_DQ = replace(BNB4, name="bnb4_dq", label="4 bit g64 twice", scale_bits=8 + 32 / 256)
MXFP6 = Precision(name="mxfp6", label="MXFP6", bits=6, block=(1, 32), scale_bits=8, rate="fp8")

PRECISIONS = {
    p.name: p
    for p in (
        FP32,
        TF32,
        BF16,
        FP16,
        FP8,
        FP8_1X128,
        FP8_128X128,
        MXFP8,
        MXFP4,
        NVFP4,
        INT8,
        INT8_G32,
        INT8_G64,
        INT8_G128,
        INT4,
        INT4_G32,
        INT4_G64,
        INT4_G128,
    )
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Which format each part of a model takes.

    Parameters
    ----------
    name : str
        Name of the recipe.
    weights, activations, outputs, kv_cache : Precision
        Formats of the GEMM operands B, A, C and of the KV cache.
    math : Precision
        The format whose rate the tensor cores run at.

    Examples
    --------
    >>> recipe("table2").outputs.name, recipe("nvfp4").outputs.name
    ('fp8', 'bf16')
    """

    name: str
    weights: Precision
    activations: Precision
    outputs: Precision
    kv_cache: Precision
    math: Precision

    def __post_init__(self):
        check_fields(self, texts=("name",))
        for part in ("weights", "activations", "outputs", "kv_cache", "math"):
            instance(part, getattr(self, part), Precision, "a Precision, as precision('fp8')")

    @property
    def operand_bytes(self):
        """Element sizes as keywords of the roofline formulas: a (inputs), b (weights), c (outputs)
        [byte].
        """
        return {"a": self.activations.bytes, "b": self.weights.bytes, "c": self.outputs.bytes}

    @property
    def weight_only(self):
        """Whether weights alone are in few bits: the kernel expands them to 16 and more."""
        return self.weights.bits < 16 <= self.math.bits


def _recipe(name, weights, activations, outputs, kv_cache, math):
    return Recipe(
        name=name,
        weights=weights,
        activations=activations,
        outputs=outputs,
        kv_cache=kv_cache,
        math=math,
    )


RECIPES = {
    r.name: r
    for r in (
        _recipe("bf16", BF16, BF16, BF16, BF16, BF16),
        _recipe("fp8", FP8, FP8, BF16, FP8, FP8),
        _recipe("fp8_block", FP8_128X128, FP8_1X128, BF16, FP8, FP8),
        _recipe("nvfp4", NVFP4, NVFP4, BF16, FP8, NVFP4),
        _recipe("mxfp4", MXFP4, MXFP4, BF16, FP8, MXFP4),
        _recipe("w4a16", INT4_G128, BF16, BF16, BF16, BF16),
        _recipe("mxfp4_w4a8", MXFP4, MXFP8, BF16, FP8, MXFP8),
        _recipe("table2", NVFP4, NVFP4, FP8, FP8, NVFP4),
        _recipe("mxfp8", MXFP8, MXFP8, BF16, FP8, MXFP8),
        _recipe("int8", INT8, INT8, BF16, BF16, INT8),
        # Weights alone are stored low, and multiplied in BF16.
        _recipe("fp8_w8a16", FP8, BF16, BF16, BF16, BF16),
        _recipe("fp8_block_w8a16", FP8_128X128, BF16, BF16, BF16, BF16),
        _recipe("nvfp4_w4a16", NVFP4, BF16, BF16, BF16, BF16),
        _recipe("mxfp4_w4a16", MXFP4, BF16, BF16, BF16, BF16),
        _recipe("w4a16_g32", INT4_G32, BF16, BF16, BF16, BF16),
        _recipe("w4a16_g64", INT4_G64, BF16, BF16, BF16, BF16),
        _recipe("w4a16_row", INT4, BF16, BF16, BF16, BF16),
        _recipe("w8a16_g32", INT8_G32, BF16, BF16, BF16, BF16),
        _recipe("w8a16_g64", INT8_G64, BF16, BF16, BF16, BF16),
        _recipe("w8a16_g128", INT8_G128, BF16, BF16, BF16, BF16),
        _recipe("w8a16_row", INT8, BF16, BF16, BF16, BF16),
        _recipe("mxfp8_w8a16", MXFP8, BF16, BF16, BF16, BF16),
        _recipe("mxfp6_w6a16", MXFP6, BF16, BF16, BF16, BF16),
        _recipe("bnb4", BNB4, BF16, BF16, BF16, BF16),
        _recipe("bnb4_dq", BNB4_DQ, BF16, BF16, BF16, BF16),
        # Weights of fewer bits than the inputs they are multiplied with.
        _recipe("w4a8", INT4_G128, INT8, BF16, BF16, INT8),
        _recipe("w4afp8", INT4_G128, FP8, BF16, FP8, FP8),
        _recipe("nvfp4_w4a8", NVFP4, FP8, BF16, FP8, FP8),
        _recipe("mxfp6", MXFP6, MXFP8, BF16, FP8, MXFP8),
    )
}
# Integers in groups go by the bits of weights and inputs, the size of a group and what is kept
# beside a scale, as in w3a16_g64_zp; a group over the whole row is called row.
INTEGERS = re.compile(r"w([2-8])a(4|8|16|fp8)(?:_g([1-9]\d{0,5})|_row)(_zp16|_zp|_i8)?", re.A)
INPUTS = {"4": INT4, "8": INT8, "16": BF16, "fp8": FP8}
SHORT = {"w4a16_g128": "w4a16", "w4a8_g128": "w4a8", "w4afp8_g128": "w4afp8", "w8a8_row": "int8"}


def integer_recipe(bits, size, inputs="16", zero=""):
    """Name of the recipe of integers in groups.

    Parameters
    ----------
    bits : int
        Bits of a weight [bit], 2 to 8.
    size : int or None
        Elements that share a scale [element]; None for a whole row.
    inputs : str
        Bits of the inputs [bit]: "16", "8" and "4" (integers), or "fp8".
    zero : str
        What is kept besides, as in `ZEROS`.

    Returns
    -------
    str
        A name that `recipe` takes; weights and inputs are in [byte per element].

    Raises
    ------
    ValueError
        If there is no such recipe.

    Notes
    -----
    Source: see the head of this module.

    Examples
    --------
    >>> integer_recipe(4, 128), integer_recipe(3, 64, zero="_zp"), integer_recipe(8, None, "8")
    ('w4a16', 'w3a16_g64_zp', 'int8')
    """
    zero = "" if zero.startswith("_zp") and not size else zero
    name = f"w{bits}a{inputs}_{f'g{size}' if size else 'row'}{zero}"
    return named_recipe("recipe", SHORT.get(name, name)).name


@functools.cache
def _integers(name):
    """The recipe that a name of the form `INTEGERS` stands for, None for another name."""
    found = INTEGERS.fullmatch(name)
    if not found or int(found[3] or 0) > MOST_GROUPED or (found[2] == "4" < found[1]):
        return None
    if not found[3] and (found[4] or "").startswith("_zp"):
        return None
    name = SHORT.get(name, name)
    if name in RECIPES:
        return RECIPES[name]
    weights = _grouped(int(found[1]), int(found[3] or 0), found[4] or "")
    inputs = INPUTS[found[2]]
    cache = FP8 if inputs is FP8 else BF16
    return _recipe(name, weights, inputs, BF16, cache, inputs)


def _weight_only(form):
    """The same weights, multiplied in BF16; None where engines have no such kernel."""
    full = {short: name for name, short in SHORT.items()}.get(form.name, form.name)
    if form.name not in ("int8", "bf16") and (found := INTEGERS.fullmatch(full)):
        return _integers(full.replace(f"a{found[2]}", "a16", 1))
    name = form.name.partition("_w4a8")[0]
    return RECIPES.get(f"{name}_w{form.weights.bits}a16")


def multiplied(recipe, device_peaks):
    """The recipe as a device runs it: itself, or weight-only where the device has no tensor cores
    for its math: engines then expand the stored weights to BF16 inside the kernel.

    Parameters
    ----------
    recipe : str or Recipe
        What the checkpoint stores.
    device_peaks : collection of str
        Rates that the device has, as the keys of `Device.dense_peak` [FLOP/s].

    Returns
    -------
    Recipe
        With the same weights and cache [byte per element].

    Raises
    ------
    ValueError
        If the device has neither its rate nor BF16.

    Notes
    -----
    Source: vLLM's Marlin kernels for FP8, MXFP4 and NVFP4 weights on devices without that math.

    Examples
    --------
    >>> multiplied("mxfp4", ["bf16", "fp8"]).name, multiplied("fp8", ["bf16", "fp8"]).name
    ('mxfp4_w4a16', 'fp8')
    """
    form = named_recipe("recipe", recipe)
    if isinstance(device_peaks, str) or not isinstance(device_peaks, Collection):
        raise ValueError(f"device_peaks must be a collection of rates, got {shown(device_peaks)}")
    if form.math.rate in device_peaks:
        return form
    alone = _weight_only(form)
    if alone is None or "bf16" not in device_peaks:
        raise ValueError(
            f"recipe must multiply in a format of the device ({', '.join(device_peaks)}), or store "
            f"weights that engines expand to BF16, got {form.name!r}"
        )
    return replace(alone, kv_cache=form.kv_cache)


def precision(precision):
    """Number format by name; a `Precision` is returned as it is.

    Parameters
    ----------
    precision : str or Precision
        Name as in `PRECISIONS`, upper or lower case.

    Returns
    -------
    Precision
        The format; its sizes are in [bit] and [byte].

    Raises
    ------
    ValueError
        If the name is unknown; the message lists the known ones.

    Notes
    -----
    Source: see the head of this module.

    Examples
    --------
    >>> precision("NVFP4").bytes
    0.5625
    """
    return named_precision("precision", precision)


def named_precision(name, value):
    """A format that an argument of another name gives.

    >>> named_precision("conv", "bf16").bytes
    2.0
    """
    if isinstance(value, Precision):
        return value
    return choice(name, value, PRECISIONS, normal=str.lower)


def recipe(recipe):
    """Recipe by name; a `Recipe` is returned as it is.

    Parameters
    ----------
    recipe : str or Recipe
        "bf16", "fp8", "fp8_block", "nvfp4", "mxfp4", "mxfp8", "int8", "table2"; weights alone low:
        "w4a16" (INT4 in groups of 128) and the others of `RECIPES` whose names end in a16; and any
        integers in groups by the form of `INTEGERS`, as "w3a16_g64_zp".

    Returns
    -------
    Recipe
        The formats of weights, activations, outputs and KV cache [byte per element], and the math
        rate.

    Raises
    ------
    ValueError
        If the name is unknown; the message lists the known ones.

    Notes
    -----
    Source: see the head of this module.

    "table2" is the published Table 2: NVFP4 in, FP8 out. In all others the outputs are BF16, as
    inference engines write.

    Examples
    --------
    >>> recipe("nvfp4").operand_bytes
    {'a': 0.5625, 'b': 0.5625, 'c': 2.0}
    """
    return named_recipe("recipe", recipe)


def named_recipe(name, value):
    """A recipe that an argument of another name gives.

    >>> named_recipe("recipes", "fp8").name
    'fp8'
    """
    if isinstance(value, Recipe):
        return value
    if isinstance(value, str) and (found := _integers(value.strip().lower())):
        return found
    return choice(name, value, RECIPES, normal=str.lower)
