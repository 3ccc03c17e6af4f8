"""What a number of few bits can hold, and the nearest such number.

Sources: OCP Microscaling Formats (MX) 1.0 (E2M1, E8M0); OCP 8-bit Floating Point 1.0 (E4M3); IEEE
754-2019 (FP16, FP32). Read 2026-11-30.
"""

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from hwdesign._check import choice, finite, scalar_or_array

ROUND = {
    "nearest": np.rint,
    "down": np.floor,
    "up": np.ceil,
}  # of a magnitude in steps; rint takes ties to even


@dataclass(frozen=True, kw_only=True)
class Element:
    """What one number of few bits can hold: the multiples of a step, which doubles from binade to
    binade.

    Parameters
    ----------
    name : str
        Name of the element format.
    bits : int
        Size [bit], sign included.
    mantissa_bits : int
        Bits of the mantissa that are stored [bit].
    exponents : (int, int)
        Smallest and largest exponent of a normal number; below the smallest the step stays
        (subnormals).
    largest : float
        Largest magnitude [dimensionless].
    signed : bool
        Whether it has a sign.
    zero : bool
        Whether it holds zero and subnormals.

    Examples
    --------
    >>> ELEMENTS["e2m1"].values.tolist()
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    """

    name: str
    bits: int  # [bit]
    mantissa_bits: int  # [bit]
    exponents: tuple[int, int]
    largest: float
    signed: bool = True
    zero: bool = True

    @property
    def smallest(self):
        """Smallest magnitude above zero."""
        return 2.0 ** (self.exponents[0] - (self.mantissa_bits if self.zero else 0))

    @property
    def values(self):
        """Every magnitude it can hold, ascending; the index is the code without its sign."""
        low, high = self.exponents
        steps = np.arange(2**self.mantissa_bits if self.zero else 0)
        binades = (
            np.arange(2**self.mantissa_bits, 2 ** (self.mantissa_bits + 1))
            * 2.0 ** (e - self.mantissa_bits)
            for e in range(low, high + 1)
        )
        found = np.concatenate([steps * 2.0 ** (low - self.mantissa_bits), *binades])
        return found[found <= self.largest]


def _element(name, bits, mantissa_bits, low, high, largest, **given):
    return Element(
        name=name,
        bits=bits,
        mantissa_bits=mantissa_bits,
        exponents=(low, high),
        largest=largest,
        **given,
    )


# INT4 is a float without binades: one step of 1 up to 7. FP16 and FP32 hold scales.
ELEMENTS = MappingProxyType(
    {
        e.name: e
        for e in (
            _element("e2m1", 4, 1, 0, 2, 6.0),
            _element("int4", 4, 3, 3, 2, 7.0),
            _element("e4m3", 8, 3, -6, 8, 448.0),
            _element("e8m0", 8, 0, -127, 127, 2.0**127, signed=False, zero=False),
            _element("fp16", 16, 10, -14, 15, 65504.0),
            _element("fp32", 32, 23, -126, 127, float(np.finfo(np.float32).max)),
        )
    }
)


def cast(x, element, *, rounding="nearest"):
    """Values of a small format: nearest, ties to even, what is too large becomes the largest.

    A plain cast in hardware or in a library need not saturate: for E4M3 some give NaN from 465 on.
    Here nothing is lost so.

    Parameters
    ----------
    x : array_like of float
        Finite numbers.
    element : str
        One of `ELEMENTS`.
    rounding : str
        "nearest", or "down" and "up" in magnitude.

    Returns
    -------
    float or ndarray of float, shape of x
        Values that the format holds [unit of x].

    Raises
    ------
    ValueError
        If a number is NaN or infinite, or negative for a format without sign, or a name is unknown.

    Notes
    -----
    Source: OCP MX 1.0, OCP 8-bit Floating Point 1.0, IEEE 754-2019.

    Examples
    --------
    >>> cast([0.25, 2.5, 5.0, -7.0], "e2m1").tolist()
    [0.0, 2.0, 4.0, -6.0]
    >>> float(cast(465, "e4m3")), float(cast(1.5, "e8m0"))
    (448.0, 2.0)
    """
    form, round_to = (
        choice("element", element, ELEMENTS, normal=str.lower),
        choice("rounding", rounding, ROUND),
    )
    x = finite("x", x)
    if not form.signed and (x < 0).any():
        raise ValueError(f"x must be >= 0 for {form.name}, got {x[x < 0].flat[0]:g}")
    size, step = _steps(x, form)
    size = np.minimum(round_to(size / step) * step, form.largest)
    return scalar_or_array(np.copysign(size if form.zero else np.maximum(size, form.smallest), x))


def codes(x, element):
    """Bit patterns of values that a small format holds; the sign is the highest bit, INT4 is in
    two's complement.

    Parameters
    ----------
    x : array_like of float
        Values of the format, from `cast`.
    element : str
        One of `ELEMENTS` with at most 8 bits.

    Returns
    -------
    ndarray of uint8, shape of x
        Codes [dimensionless].

    Raises
    ------
    ValueError
        If a value is not one of the format's, or the format has more than 8 bits.

    Notes
    -----
    Source: OCP MX 1.0, OCP 8-bit Floating Point 1.0.

    Examples
    --------
    >>> codes([0.5, 6.0, -6.0], "e2m1").tolist(), codes([448.0], "e4m3").tolist()
    ([1, 7, 15], [126])
    """
    form, x = choice("element", element, ELEMENTS, normal=str.lower), finite("x", x)
    if form.bits > 8:
        raise ValueError(f"element must have at most 8 bits, got {element} with {form.bits}")
    if (cast(x, element) != x).any():
        raise ValueError(
            f"x must hold values of {element}, got {x[cast(x, element) != x].flat[0]:g}"
        )
    if form.name == "int4":
        return x.astype(np.int8).view(np.uint8) & np.uint8(15)
    size, step = _steps(x, form)
    low, binade = form.exponents[0], np.round(np.log2(step)).astype(int) + form.mantissa_bits
    magnitude = (binade - low) * 2**form.mantissa_bits + (size / step).astype(int) - (not form.zero)
    return (magnitude + (np.signbit(x) * 2 ** (form.bits - 1) if form.signed else 0)).astype(
        np.uint8
    )


def _steps(x, form):
    """Magnitudes and the step of the format at each."""
    size = np.abs(x)
    exponent = np.maximum(
        np.where(size, np.frexp(size)[1] - 1, form.exponents[0]), form.exponents[0]
    )  # of zero: the lowest
    return size, np.ldexp(1.0, exponent - form.mantissa_bits)
