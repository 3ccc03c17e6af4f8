"""SI constants and the one function that scales numbers for people.

Inside the package every quantity is float64 in SI base units: second, byte, FLOP, byte/second,
FLOP/second. Prefixes are decimal. The binary unit has a name of its own (`GIB`), so GB and GiB are
never mixed.
"""

import math

KILO, MEGA, GIGA, TERA, PETA = 1e3, 1e6, 1e9, 1e12, 1e15
MILLI, MICRO, NANO = 1e-3, 1e-6, 1e-9
GIB = 2.0**30

_PREFIXES = (
    (PETA, "P"),
    (TERA, "T"),
    (GIGA, "G"),
    (MEGA, "M"),
    (KILO, "k"),
    (1.0, ""),
    (MILLI, "m"),
    (MICRO, "µ"),
    (NANO, "n"),
)


def fmt(value, unit, *, digits=3):
    """A quantity as text, with the decimal prefix that keeps the number between 1 and 1000.

    Parameters
    ----------
    value : float
        Quantity in the base unit.
    unit : str
        Base unit, for example ``"s"``, ``"byte"``, ``"FLOP/s"``. ``"FLOP/byte"`` and ``""`` take no
        prefix.
    digits : int
        Significant digits, at least 1.

    Returns
    -------
    str
        Number, space, prefixed unit.

    Raises
    ------
    ValueError
        If `digits` is below 1.

    Notes
    -----
    Source: prefixes of the International System of Units (BIPM brochure, 9th edition).

    Examples
    --------
    >>> fmt(15e15, "FLOP/s"), fmt(8e12, "byte/s"), fmt(2.33e-5, "s"), fmt(1875, "FLOP/byte")
    ('15 PFLOP/s', '8 TB/s', '23.3 µs', '1875 FLOP/byte')
    """
    if digits < 1:
        raise ValueError(f"digits must be >= 1, got {digits}")
    value = float(value)
    short = unit.replace("byte", "B") if unit in ("byte", "byte/s") else unit
    if unit in ("", "FLOP/byte") or value == 0 or not math.isfinite(value):
        return f"{_round(value, max(digits, 4))} {short}".strip()
    size = abs(
        float(f"{value:.{digits - 1}e}")
    )  # round first, so that 999.6 becomes 1 k and not 1000
    scale, prefix = next(((s, p) for s, p in _PREFIXES if size >= s), _PREFIXES[-1])
    return f"{_round(value / scale, digits)} {prefix}{short}".strip()


def _round(value, digits):
    """Plain decimal text with `digits` significant digits and no trailing zeros after the point."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
