"""Numbers in few bits: elements with block scales, and the error they leave.

An element is a small float (or integer) of few bits. A block of neighbours shares a scale, and
NVFP4 has one more for the whole tensor; ``element * scale * tensor scale`` is the number. All is
computed in float64; what is stored is exact in its format.

Sources: OCP Microscaling Formats (MX) 1.0 (E2M1, E8M0, MXFP4, MXFP8); OCP 8-bit Floating Point 1.0
(E4M3); NVIDIA, "Introducing NVFP4" (2025) and arXiv 2509.25149 (NVFP4); DeepSeek-V3, arXiv
2412.19437 (FP8 blocks). Read 2026-11-30.
"""

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from hwdesign._check import choice, finite, numbers, whole
from hwdesign.formulas.number_formats import ELEMENTS, ROUND, cast, codes


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """How a tensor is stored in few bits: the element, the block that shares a scale, and how the
    scale is chosen.

    Parameters
    ----------
    name : str
        Name as in the catalogue of number formats.
    element, scale : str
        Names in `ELEMENTS` of the element and of the scale.
    block : tuple of int, optional
        Rows and columns that share a scale [element]; None for the whole tensor. A row runs along
        K, over which a GEMM sums.
    reach : float
        Element value that the largest magnitude of a block is scaled to, before the scale is
        rounded.
    rounding : str
        Of the scale: "nearest", "down" or "up".
    tensor_scale : bool
        Whether the whole tensor has an FP32 scale besides, which takes the largest block scale to
        the largest of its format.

    Examples
    --------
    >>> SCHEMES["nvfp4"].bytes, SCHEMES["mxfp4"].bytes
    (0.5625, 0.53125)
    """

    name: str
    element: str
    scale: str
    block: tuple[int, int] | None = None  # [element]
    reach: float
    rounding: str = "nearest"
    tensor_scale: bool = False

    def __post_init__(self):
        for name in ("element", "scale"):
            choice(name, getattr(self, name), ELEMENTS)
        choice("rounding", self.rounding, ROUND)
        reach = numbers("reach", self.reach)
        if reach.ndim or not 0 < reach < np.inf:
            raise ValueError(f"reach must be one number > 0 and finite, got {self.reach!r}")
        object.__setattr__(self, "reach", float(reach))
        if self.block is not None:
            sides = tuple(self.block) if isinstance(self.block, tuple | list) else (self.block,)
            if len(sides) != 2:
                raise ValueError(
                    "block must be two whole numbers, rows and columns, or None, got "
                    f"{self.block!r}"
                )
            object.__setattr__(
                self, "block", tuple(whole(**{"block rows": sides[0], "block columns": sides[1]}))
            )

    @property
    def bytes(self):
        """Stored size of an element, its share of the block scale included [byte]; one scale a
        tensor is not counted.
        """
        share = ELEMENTS[self.scale].bits / (self.block[0] * self.block[1]) if self.block else 0
        return (ELEMENTS[self.element].bits + share) / 8


def _scheme(name, element, scale, block, reach, **given):
    return Scheme(name=name, element=element, scale=scale, block=block, reach=reach, **given)


# The MX formats divide by the largest power of two of the element, 4 and 256, and round down; so
# some blocks saturate.
SCHEMES = MappingProxyType(
    {
        s.name: s
        for s in (
            _scheme("nvfp4", "e2m1", "e4m3", (1, 16), 6.0, tensor_scale=True),
            _scheme("mxfp4", "e2m1", "e8m0", (1, 32), 4.0, rounding="down"),
            _scheme("mxfp8", "e4m3", "e8m0", (1, 32), 256.0, rounding="down"),
            _scheme("fp8", "e4m3", "fp32", None, 448.0),
            _scheme("fp8_1x128", "e4m3", "fp32", (1, 128), 448.0),
            _scheme("fp8_128x128", "e4m3", "fp32", (128, 128), 448.0),
            _scheme("int4_g128", "int4", "fp16", (1, 128), 7.0),
        )
    }
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoded:
    """A tensor in few bits.

    Parameters
    ----------
    scheme : Scheme
        Formats.
    elements : ndarray of float, shape of the tensor
        Values of the element format, before any scale.
    scales : ndarray of float
        Block scales, one a block; a single number where the whole tensor shares one.
    tensor_scale : float
        Scale of the whole tensor; 1 where the scheme has none.

    Examples
    --------
    >>> encode([3.0] * 16, "nvfp4").codes.tolist() == [7] * 16
    True
    """

    scheme: Scheme
    elements: np.ndarray
    scales: np.ndarray
    tensor_scale: float = 1.0

    @property
    def codes(self):
        """Bit patterns of the elements, one a byte (uint8)."""
        return codes(self.elements, self.scheme.element)

    @property
    def nbytes(self):
        """Stored size, block scales and tensor scale included [byte]."""
        scales = self.scales.size * ELEMENTS[self.scheme.scale].bits
        return (
            self.elements.size * ELEMENTS[self.scheme.element].bits
            + scales
            + 32 * self.scheme.tensor_scale
        ) / 8


def encode(x, scheme, *, scales=None, tensor_scale=None):
    """A tensor in few bits: scales from the largest magnitude of each block, then the nearest
    elements.

    Parameters
    ----------
    x : array_like of float, shape (..., rows, columns)
        Finite numbers within FP32; columns run along K. The last two axes must be multiples of the
        block's sides.
    scheme : str, Precision or Scheme
        One of `SCHEMES`, or your own.
    scales : array_like of float, optional
        Block scales to use, as from calibration; by default from `x`.
    tensor_scale : float, optional
        Scale of the tensor to use, rounded to FP32; by default from `x`. If it is too small for
        `x`, block scales become the largest of their format, and numbers are cut: `saturated` says
        which.

    Returns
    -------
    Encoded
        Elements and scales; `decode` gives the numbers back, `saturated` says which were out of
        reach.

    Raises
    ------
    ValueError
        If `x` is empty, holds NaN, infinity or more than the scales can reach, its shape does not
        fit the block, or a given scale is not of its format.

    Notes
    -----
    Source: the head of this module. A scale that would round to zero becomes the smallest of its
    format, so a block of zeros has one as well.

    Examples
    --------
    >>> half = encode([[0.5] * 8 + [6.0] * 8], "nvfp4")
    >>> half.elements[0, ::8].tolist(), half.scales.tolist(), half.nbytes
    ([0.5, 6.0], [[448.0]], 13.0)
    """
    if not isinstance(scheme, Scheme):
        scheme = choice("scheme", getattr(scheme, "name", scheme), SCHEMES, normal=str.lower)
    x, largest_scale = finite("x", x), ELEMENTS[scheme.scale].largest
    if not x.size:
        raise ValueError(f"x must hold at least one number, got shape {x.shape}")
    top = min(
        ELEMENTS["fp32"].largest, np.inf if scheme.tensor_scale else scheme.reach * largest_scale
    )
    if scales is None and np.abs(x).max() > top:
        raise ValueError(
            f"x must hold numbers of at most {top:.4g} for {scheme.name}, got {np.abs(x).max():g}"
        )
    largest, tensor_scale = _block_max(x, scheme.block), _tensor_scale(x, scheme, tensor_scale)
    if scales is None:
        scales = cast(
            largest / (scheme.reach * tensor_scale), scheme.scale, rounding=scheme.rounding
        )
        scales = np.maximum(scales, ELEMENTS[scheme.scale].smallest)
    scales = _scale("scales", scales, scheme.scale, largest.shape)
    elements = np.asarray(cast(x / (_spread(scales, scheme.block) * tensor_scale), scheme.element))
    return Encoded(scheme=scheme, elements=elements, scales=scales, tensor_scale=tensor_scale)


def decode(encoded):
    """The numbers that an encoded tensor stands for: ``element * scale * tensor scale``.

    Parameters
    ----------
    encoded : Encoded
        From `encode`.

    Returns
    -------
    ndarray of float
        Numbers [unit of what was encoded], in the shape of the tensor.

    Raises
    ------
    ValueError
        If it is something else.

    Notes
    -----
    Source: the head of this module.

    Examples
    --------
    >>> decode(encode([[1.0, -6.0] * 16], "mxfp4"))[0, :2].tolist()
    [1.0, -6.0]
    """
    _stored(encoded)
    return encoded.elements * _spread(encoded.scales, encoded.scheme.block) * encoded.tensor_scale


def saturated(x, encoded):
    """Which numbers lie beyond the largest that their block can hold, because its scale was rounded
    down or given.

    Parameters
    ----------
    x : array_like of float
        What was encoded.
    encoded : Encoded
        From `encode`.

    Returns
    -------
    ndarray of bool, shape of x
        True where the magnitude was cut [dimensionless]; what FP32 rounding of a scale cuts, a few
        parts in 10^7, is not counted.

    Raises
    ------
    ValueError
        If the shapes differ, `x` holds NaN or infinity, or `encoded` is something else.

    Examples
    --------
    >>> x = [[7.0] * 32]
    >>> int(saturated(x, encode(x, "mxfp4")).sum())
    32
    """
    x, scheme = finite("x", x), _stored(encoded).scheme
    if x.shape != encoded.elements.shape:
        raise ValueError(
            f"x must have the shape of what was encoded, {encoded.elements.shape}, got {x.shape}"
        )
    reach = ELEMENTS[scheme.element].largest * encoded.tensor_scale * (1 + 2.0**-21)
    return np.abs(x) > reach * _spread(encoded.scales, scheme.block)


def sqnr(x, stored):
    """Signal to quantization noise ratio: ``10 log10(sum of x^2 / sum of (x - stored)^2)``.

    Parameters
    ----------
    x, stored : array_like of float, same shape
        The numbers and what is left of them.

    Returns
    -------
    float
        Ratio [dB]: 20 dB is an error of a tenth (root mean square), 6.02 dB halve it. Infinite
        where nothing was lost.

    Raises
    ------
    ValueError
        If the shapes differ, all of `x` is zero, or a number is not finite.

    Examples
    --------
    >>> round(sqnr([1.0, 1.0], [1.1, 0.9]), 1)
    20.0
    """
    x, stored = finite("x", x), finite("stored", stored)
    if x.shape != stored.shape:
        raise ValueError(f"x and stored must have one shape, got {x.shape} and {stored.shape}")
    if not x.any():
        raise ValueError(f"x must hold a number other than 0, got {x.size} numbers")
    lost = x - stored
    return _decibel(x) - _decibel(lost) if lost.any() else float("inf")


def _decibel(x):
    """Sum of squares [dB], for numbers whose squares would not fit into float64 as well."""
    unit = np.abs(x).max()
    return float(20 * np.log10(unit) + 10 * np.log10(((x / unit) ** 2).sum()))


def _stored(encoded):
    if not isinstance(encoded, Encoded):
        raise ValueError(f"encoded must come from `encode`, got {type(encoded).__name__}")
    return encoded


def _block_max(x, block):
    """Largest magnitude of each block."""
    if block is None:
        return np.abs(x).max()
    rows, columns = block
    if x.ndim == 0 or x.shape[-1] % columns or (rows > 1 and (x.ndim < 2 or x.shape[-2] % rows)):
        raise ValueError(
            f"x must have sides that are multiples of the block {rows} x {columns}, got shape "
            f"{x.shape}"
        )
    if rows == 1:
        return np.abs(x).reshape(*x.shape[:-1], -1, columns).max(-1)
    return np.abs(x).reshape(*x.shape[:-2], x.shape[-2] // rows, rows, -1, columns).max((-3, -1))


def _spread(scales, block):
    """Block scales repeated over their blocks."""
    if block is None:
        return scales
    wide = np.repeat(scales, block[1], axis=-1)
    return wide if block[0] == 1 else np.repeat(wide, block[0], axis=-2)


def _tensor_scale(x, scheme, given):
    """Scale of the whole tensor, in FP32; 1 where the scheme has none."""
    if not scheme.tensor_scale:
        if given is not None:
            raise ValueError(
                f"tensor_scale must be left out for {scheme.name}, which has none, got {given}"
            )
        return 1.0
    if given is None:
        found = cast(np.abs(x).max() / (ELEMENTS[scheme.scale].largest * scheme.reach), "fp32")
        return max(float(found), ELEMENTS["fp32"].smallest)
    given = finite("tensor_scale", given)
    if (given > ELEMENTS["fp32"].largest).any():
        raise ValueError(
            f"tensor_scale must be at most {ELEMENTS['fp32'].largest:.4g} (FP32), got "
            f"{given.max():g}"
        )
    return float(_scale("tensor_scale", cast(given, "fp32"), "fp32", ()))


def _scale(name, value, element, shape):
    """Given scales, checked."""
    value = finite(name, value)
    if value.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {value.shape}")
    bad = ~(value > 0) | (cast(np.abs(value), element) != np.abs(value))
    if bad.any():
        raise ValueError(
            f"{name} must hold positive values of {element}, got {value[bad].flat[0]:g}"
        )
    return value
