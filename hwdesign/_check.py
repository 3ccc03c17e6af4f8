"""Arguments to float64 arrays; errors that name the argument, its value and what would be
accepted.
"""

from collections.abc import Mapping
from numbers import Number

import numpy as np

PLAIN = (int, float, np.float64)  # numbers that need no look at their kind
EXACT = 2**53  # up to here float64 holds every whole number


def dims(**named):
    """Named dimensions [element] as float64 arrays, each a whole number >= 1 (lists, ints and
    arrays accepted).

    Float64 on purpose: in int64, ``2 * n**3`` at ``n = 2**22`` wraps round to 0 without a word.
    """
    out = []
    for name, value in named.items():
        if type(value) is np.ndarray and not value.ndim:
            value = value[()]
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


def vector(name, value):
    """A named list of whole numbers >= 1, or one of them, as a float64 array with one axis."""
    (array,) = dims(**{name: value})
    if array.ndim > 1 or not array.size:
        raise ValueError(f"{name} must be a number or a list of numbers, got {shown(value)}")
    return np.atleast_1d(array)


def whole(**named):
    """Named single whole numbers >= 1 as ints; a list is refused."""
    return [count(name, value) for name, value in named.items()]


def count(name, value, most=EXACT, *, least=1):
    """A named single whole number from `least` to `most`, as an int."""
    if type(value) is int and least <= value <= most:
        return value
    array = numbers(name, value)
    if array.ndim:
        raise ValueError(f"{name} must be one number, got {shown(value)}")
    number = float(array)
    if not number >= least:
        raise ValueError(f"{name} must be >= {least}, got {number:g}")
    if not number.is_integer():
        raise ValueError(f"{name} must be a whole number, got {number:g}")
    if number > most:
        raise ValueError(f"{name} must be <= {most}, got {number:.16g}")
    return int(number)


def positive(**named):
    """Named quantities as float64 arrays, each > 0 and not NaN; infinity is accepted (it is a
    limit, not a mistake).
    """
    out = []
    for name, value in named.items():
        if type(value) is np.ndarray and not value.ndim:
            value = value[()]
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
        raise ValueError(f"{name} must be one number, got {shown(value)}")
    return float(array)


def flag(name, value):
    """A named truth value; nothing else stands for one."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def text(name, value):
    """A named text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text, got {shown(value)}")
    return value


def instance(name, value, kind, like):
    """A named object of a class; `like` says in words what is accepted."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {like}, got {shown(value)}")
    return value


def listed(name, values, kind, like):
    """A named list, or anything else that can be walked through, of objects of a class; as a
    tuple.
    """
    found = _walked(values)
    if found is None or not all(issubclass(of, kind) for of in set(map(type, found))):
        raise ValueError(f"{name} must be a list of {like}, got {shown(values)}")
    return found


def every(name, values, one):
    """What `one` makes of the name and each of its values, as a tuple; one may stand alone."""
    found = _walked(values)
    return tuple(one(name, value) for value in ((values,) if found is None else found))


def members(name, values, known):
    """Names out of `known` as a tuple; one of them may stand alone."""
    return every(name, values, lambda name, value: choice(name, value, known))


def _walked(values):
    """What an object holds as a tuple, None where it holds nothing; a text is one thing."""
    if isinstance(values, str | bytes):
        return None
    try:
        return tuple(values)
    except TypeError:
        return None


def check_fields(target, *, none=(), **kinds):
    """Fields of a frozen dataclass, by their kind in `FIELDS`; those in `none` may be None."""
    for kind, names in kinds.items():
        check = FIELDS[kind]
        for name in names:
            value = getattr(target, name)
            if value is None and name in none:
                continue
            checked = check(name, value)
            if checked is not value:
                object.__setattr__(target, name, checked)


def _sizes(name, value):
    """Whole numbers >= 1; an array stays one, for formulas that walk through several sizes."""
    if type(value) is int and 1 <= value <= EXACT:
        return value
    (array,) = dims(**{name: value})
    return array if array.ndim else count(name, value)


def _quantity(name, value):
    if type(value) in PLAIN and 0 < value < EXACT:
        return value
    (array,) = positive(**{name: value})
    return array if array.ndim else value


def _amount(name, value):
    if type(value) in PLAIN and 0 <= value < EXACT:
        return value
    array = numbers(name, value)
    if array.size and not (array.min() >= 0 and array.max() < np.inf):
        bad = ~((array >= 0) & (array < np.inf))
        raise ValueError(f"{name} must be >= 0 and finite, got {_first(array, bad)}")
    return array if array.ndim else value


FIELDS = {
    "whole": count,
    "counts": lambda name, value: count(name, value, least=0),
    "sizes": _sizes,
    "positive": _quantity,
    "amounts": _amount,
    "single": single,
    "flags": flag,
    "texts": text,
}


def choice(name, value, known, *, normal=str):
    """What `known` has under `value`, or the value itself where `known` only lists names.

    An error lists the names that exist and the nearest one.
    """
    key = normal(value) if isinstance(value, str) else value
    if isinstance(key, str) and key in known:
        return known[key] if isinstance(known, Mapping) else key
    likely = key[:40] if isinstance(key, str) else ""
    import difflib  # takes a millisecond, and only an error needs it

    near = difflib.get_close_matches(likely, [str(k) for k in known], n=1, cutoff=0.5)
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
    text = " ".join(text.split()) if "\n" in text else text  # an array stands on several lines
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


def must_fit(**named):
    """Refuse named arrays that do not broadcast; numbers fit everything."""
    if len({value.shape for value in named.values() if value.ndim}) > 1:
        same_shape(**named)


def numbers(name, value):
    """A named argument as a float64 array: whole or real numbers only, no text, truth values, dates
    or complex numbers.
    """
    if type(value) is np.ndarray and value.dtype.char == "d":  # most of them are this already
        return value
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
    return ValueError(f"{name} must be a number or an array of numbers, got {shown(value)}")


def scalar_or_array(array):
    """Scalar in, scalar out: a 0-d result becomes a NumPy float, everything else stays an array."""
    return np.asarray(array)[()]


def _first(array, bad):
    return f"{np.asarray(array)[bad].flat[0]:g}"
