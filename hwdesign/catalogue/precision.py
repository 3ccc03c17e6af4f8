"""Number formats as they are stored and multiplied, and recipes that assign them to the parts of a
model.

Sources: IEEE 754-2019 (binary32, binary16); OCP 8-bit Floating Point Specification 1.0; OCP
Microscaling Formats (MX) 1.0 for MXFP8 and MXFP4; NVIDIA, "Introducing NVFP4" (2025) for NVFP4;
DeepSeek-V3 technical report (2024) for the FP32 scales of 1 x 128 and 128 x 128 blocks. Read
2026-11-29.
"""

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
    scale_bits : int
        Bits of one block scale [bit].
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
    scale_bits: int = 0  # [bit]
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


def _grouped(bits, size):
    """Integers with an FP16 scale for each group of a row."""
    name, label = f"int{bits}_g{size}", f"INT{bits} g{size}"
    return Precision(
        name=name, label=label, bits=bits, block=(1, size), scale_bits=16, rate=f"int{bits}"
    )


INT4_G32, INT4_G64, INT4_G128 = (_grouped(4, size) for size in (32, 64, 128))
INT8_G32, INT8_G64, INT8_G128 = (_grouped(8, size) for size in (32, 64, 128))

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
    )
}


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
    name = f"{form.name}_w{form.weights.bits}a16"
    if name not in RECIPES or "bf16" not in device_peaks:
        raise ValueError(
            f"recipe must multiply in a format of the device ({', '.join(device_peaks)}), or store "
            f"weights that engines expand to BF16, got {form.name!r}"
        )
    return replace(RECIPES[name], kv_cache=form.kv_cache)


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
        "w4a16" (INT4 in groups of 128) and the others of `RECIPES` whose names end in a16, or in
        the size of a group.

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
    return choice(name, value, RECIPES, normal=str.lower)
