"""Arguments to float64 arrays; errors that name the argument, its value and what would be
accepted.
"""

import difflib
from collections.abc import Mapping
from numbers import Number

import numpy as np

PLAIN = (int, float, np.float64)  # numbers that need no look at their kind


def dims(**named):
    """Named dimensions [element] as float64 arrays, each a whole number >= 1 (lists, ints and
    arrays accepted).

    Float64 on purpose: in int64, ``2 * n**3`` at ``n = 2**22`` wraps round to 0 without a word.
    """
    out = []
    for name, value in named.items():
        if (
            type(value) in PLAIN and 1 <= value < 2**53 and value % 1 == 0
        ):  # most of them, and a search asks a million times
            out.append(np.asarray(float(value)))
            continue
        array = numbers(name, value)
        if array.size and not array.min() >= 1:  # also where the smallest is NaN
            raise ValueError(f"{name} must be >= 1, got {_first(array, ~(array >= 1))}")
        if array.size and (np.isinf(array.max()) or not (array == np.floor(array)).all()):
            raise ValueError(
                f"{name} must be a whole number, got "
                f"{_first(array, (array != np.floor(array)) | np.isinf(array))}"
            )
        out.append(array)
    return out


def whole(**named):
    """Named single whole numbers >= 1 as ints; a list is refused."""
    arrays = dims(**named)
    for (name, value), array in zip(named.items(), arrays, strict=True):
        if array.ndim:
            raise ValueError(f"{name} must be one number, got {value!r}")
    return [int(array) for array in arrays]


def positive(**named):
    """Named quantities as float64 arrays, each > 0 and not NaN; infinity is accepted (it is a
    limit, not a mistake).
    """
    out = []
    for name, value in named.items():
        if type(value) in PLAIN and 0 < value < 2**53:
            out.append(np.asarray(float(value)))
            continue
        array = numbers(name, value)
        if array.size and not array.min() > 0:
            raise ValueError(f"{name} must be > 0, got {_first(array, ~(array > 0))}")
        out.append(array)
    return out


def finite(name, value):
    """A named argument as a float64 array without NaN and infinity."""
    array = numbers(name, value)
    bad = ~np.isfinite(array)
    if bad.any():
        raise ValueError(
            f"{name} must be finite, got {array[bad].flat[0]} ({bad.sum()} of {array.size})"
        )
    return array


def single(name, value):
    """A named argument as one finite float; a list is refused."""
    array = finite(name, value)
    if array.ndim:
        raise ValueError(f"{name} must be one number, got {value!r}")
    return float(array)


def choice(name, value, known, *, normal=str):
    """What `known` has under `value`, or the value itself where `known` only lists names.

    An error lists the names that exist and the nearest one.
    """
    key = normal(value) if isinstance(value, str) else value
    if isinstance(key, str) and key in known:
        return known[key] if isinstance(known, Mapping) else key
    near = difflib.get_close_matches(str(key), [str(k) for k in known], n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(
        f"{name} must be one of {', '.join(map(str, known))}, got {shown(value)}{hint}"
    )


def shown(value, most=80):
    """A value as an error message shows it: its repr, cut where it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits or of brackets
        return f"a {type(value).__name__} too large to print"
    return text if len(text) <= most else f"{text[: most - 20]} ... ({len(text)} characters)"


def same_shape(**named):
    """Named arrays broadcast against each other; the error lists the shapes that do not fit."""
    try:
        return np.broadcast_arrays(*named.values())
    except ValueError:
        shapes = ", ".join(f"{name} {np.shape(value)}" for name, value in named.items())
        raise ValueError(
            f"{', '.join(named)} must broadcast against each other, got shapes {shapes}"
        ) from None


def numbers(name, value):
    """A named argument as a float64 array: whole or real numbers only, no text, truth values, dates
    or complex numbers.
    """
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list
        raise _no_number(name, value) from None
    if array.dtype.kind == "O" and all(
        isinstance(x, Number) and not isinstance(x, complex | bool) for x in array.flat
    ):
        try:
            return array.astype(np.float64)
        except OverflowError:
            raise ValueError(f"{name} must be below 1.8e308, got a larger number") from None
    if array.dtype.kind not in "iuf":
        raise _no_number(name, value)
    return array.astype(np.float64, copy=False)


def _no_number(name, value):
    return ValueError(f"{name} must be a number or an array of numbers, got {value!r}")


def scalar_or_array(array):
    """Scalar in, scalar out: a 0-d result becomes a NumPy float, everything else stays an array."""
    return np.asarray(array)[()]


def _first(array, bad):
    return f"{np.asarray(array)[bad].flat[0]:g}"
