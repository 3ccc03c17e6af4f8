"""Arguments to float64 arrays; errors that name the argument, its value and what would be accepted."""

import difflib

import numpy as np


def dims(**named):
    """Named dimensions [element] as float64 arrays, each a whole number >= 1 (lists, ints and arrays accepted).

    Float64 on purpose: in int64, ``2 * n**3`` at ``n = 2**22`` wraps round to 0 without a word.
    """
    out = []
    for name, value in named.items():
        array = _numbers(name, value)
        if not (array >= 1).all():
            raise ValueError(f"{name} must be >= 1, got {_first(array, ~(array >= 1))}")
        if not (array == np.floor(array)).all() or np.isinf(array).any():
            bad = (array != np.floor(array)) | np.isinf(array)
            raise ValueError(f"{name} must be a whole number, got {_first(array, bad)}")
        out.append(array)
    return out


def positive(**named):
    """Named quantities as float64 arrays, each > 0 and not NaN; infinity is accepted (it is a limit, not a mistake)."""
    out = []
    for name, value in named.items():
        array = _numbers(name, value)
        if not (array > 0).all():
            raise ValueError(f"{name} must be > 0, got {_first(array, ~(array > 0))}")
        out.append(array)
    return out


def choice(name, value, known):
    """`known[value]`, or an error that lists the names that exist and the nearest one."""
    if value in known:
        return known[value]
    near = difflib.get_close_matches(str(value), [str(k) for k in known], n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{name} must be one of {', '.join(map(str, known))}, got {value!r}{hint}")


def scalar_or_array(array):
    """Scalar in, scalar out: a 0-d result becomes a NumPy float, everything else stays an array."""
    return np.asarray(array)[()]


def _numbers(name, value):
    if isinstance(value, str | bytes | bool) or value is None:
        raise ValueError(f"{name} must be a number or an array of numbers, got {value!r}")
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or an array of numbers, got {value!r}") from None


def _first(array, bad):
    return f"{np.asarray(array)[bad].flat[0]:g}"
