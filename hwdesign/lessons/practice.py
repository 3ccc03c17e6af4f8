"""Exercises that answer at once: right, or the likely misconception and a hint. Nothing a learner
types stops a notebook.
"""

import math
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Number

import numpy as np
from IPython.display import display

from hwdesign._check import choice
from hwdesign.lessons.exercises import EXERCISES

CLOSE = 0.01  # a misconception is named if the answer is this near its value [dimensionless]
SOLUTION = "The worked solution is folded below the exercise."

_PREFIX = {
    "": 1.0,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "m": 1e-3,
    "µ": 1e-6,
    "u": 1e-6,
    "n": 1e-9,
    "%": 0.01,
}
_NUMBER = re.compile(
    r"\s*([-+]?(?:\d[\d_,]*)?\.?\d+\.?(?:e[-+]?\d+)?|[-+]?inf(?:inity)?)\s*(.*?)\s*", re.I | re.S
)
_MARKS = " \t\n.!'\"`“”‘’()[]"  # what may stand around a word or a number
_SPLITS = (
    r"; ?|,? and |, ",
    " ",
    "[ ,]+",
)  # where several numbers in one text are parted, the surest first
_LOST = (
    "A factor of {} suggests a lost or doubled prefix. Put every number in base units: "
    "byte, FLOP, second."
)
_BINARY = (
    "A factor of {} is that between {} and {}. In this book GB and TB are decimal, 10^9 and 10^12."
)
_SLIPS = {
    "bits for bytes": (8.0, "A factor of 8 is that between bits and bytes."),
    "factor 1000": (1e3, _LOST.format("1000")),
    "factor 10^6": (1e6, _LOST.format("10^6")),
    "factor 10^9": (1e9, _LOST.format("10^9")),
    "factor 10^12": (1e12, _LOST.format("10^12")),
    "factor 1024": (1024.0, _LOST.format("1024")),
    "factor 1024^2": (1024.0**2, _LOST.format("1024^2")),
    "factor 1024^3": (1024.0**3, _LOST.format("1024^3")),
    "MiB for MB": (1.024**2, _BINARY.format("1.049", "MB", "MiB")),
    "GiB for GB": (1.024**3, _BINARY.format("1.074", "GB", "GiB")),
    "TiB for TB": (1.024**4, _BINARY.format("1.100", "TB", "TiB")),
}
_tries = {}  # (exercise, seed) -> marks of the wrong answers so far


class _OtherUnit(ValueError):
    """A number with a unit that the question does not ask for."""


@dataclass(frozen=True)
class Graded:
    """What `grade` found.

    Parameters
    ----------
    right : bool
        Whether the answer is right.
    misconception : str or None
        Name of the mistake that was recognised.
    message : str
        One or two sentences for the learner.
    graded : bool
        False if the answer could not be read or is missing; it does not count as a try.

    Examples
    --------
    >>> grade("1.1", 295).right
    True
    """

    right: bool
    misconception: str | None
    message: str
    graded: bool = True


class Note:
    """A displayed sentence: Markdown in a notebook, plain text elsewhere.

    Examples
    --------
    >>> Note("**Right.** Well read.")
    Right. Well read.
    """

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return re.sub(
            r"\*\*(?=\S)(.+?)(?<=\S)\*\*", r"\1", self.text
        )  # bold text, but no power of a formula

    def _repr_markdown_(self):
        return self.text


def question(exercise, *, seed=None):
    """Display an exercise: the chapter's, or one with other numbers for a seed.

    Parameters
    ----------
    exercise : str
        Number of the exercise, "1.1".
    seed : int or str, optional
        Picks other numbers, the same for the same seed; units stand in the text.

    Raises
    ------
    ValueError
        If there is no such exercise, or the seed is neither a whole number nor text.

    Notes
    -----
    Source: the exercises of the chapters.

    Examples
    --------
    >>> question("1.3")  # doctest: +ELLIPSIS
    Find the 80 % points of $K$ and $N$ on an H200 in FP8 with SGLang, ... within 2 %.
    """
    task, given = _task(exercise, seed)
    display(Note(f"{task.text(**given)}\n\nExpected: {_expected(task)}."))


def answer(exercise, *, seed=None):
    """The right answer of an exercise, computed by the package.

    Parameters
    ----------
    exercise : str
        Number of the exercise.
    seed : int or str, optional
        As in `question`.

    Returns
    -------
    float, tuple of float or str
        Number, numbers [in the unit that the question names] or choice.

    Raises
    ------
    ValueError
        If there is no such exercise, or the seed is neither a whole number nor text.

    Notes
    -----
    Source: the exercises of the chapters.

    Examples
    --------
    >>> [round(size) for size in answer("1.1")]
    [295, 295, 295]
    """
    task, given = _task(exercise, seed)
    return task.solve(**given)


def grade(exercise, answer, seed=None):
    """Verdict on an answer, without display and without counting.

    Parameters
    ----------
    exercise : str
        Number of the exercise.
    answer : object
        Anything; a number may carry its unit as text, several numbers are a tuple, list, array,
        tensor, dict or text [unit as asked].
    seed : int or str, optional
        As in `question`.

    Returns
    -------
    Graded
        Right or not, the misconception if one was recognised, and the message.

    Raises
    ------
    ValueError
        If there is no such exercise, or the seed is neither a whole number nor text; never because
        of the answer.

    Examples
    --------
    >>> grade("1.1", 590).misconception
    'twice'
    """
    task, given = _task(exercise, seed)
    right = task.solve(**given)
    if answer is None:
        return Graded(False, None, f"No answer yet. Expected: {_expected(task)}.", graded=False)
    try:
        found = _choice(task, answer) if task.options else _values(task, answer)
    except _OtherUnit:
        unit = (task.units[:2] or ("a bare number",))[-1]
        return Graded(
            False,
            None,
            f"The question asks for {unit}; what stands behind the number is no such unit.",
            graded=False,
        )
    except Exception:  # whatever a learner's object does when it is looked at
        found = None
    if found is None:
        return Graded(
            False, None, f"This answer cannot be read. Expected: {_expected(task)}.", graded=False
        )
    if task.options:
        return _judge_choice(task, given, found, right)
    return _judge_numbers(task, given, found, right)


def check(exercise, answer, *, seed=None):
    """Display whether an answer is right; if not, the likely misconception, and one more hint at
    each new answer.

    On the static page, where nothing can be typed, it shows nothing.

    Parameters
    ----------
    exercise : str
        Number of the exercise.
    answer : object
        As in `grade` [unit as asked]; None means no answer yet.
    seed : int or str, optional
        As in `question`.

    Raises
    ------
    ValueError
        If there is no such exercise, or the seed is neither a whole number nor text; never because
        of the answer.

    Examples
    --------
    >>> check("1.1", "295 elements")
    Right. Below its minimum a dimension leaves the math units waiting, whatever the other two are.
    """
    verdict = grade(exercise, answer, seed)
    if os.environ.get("HWDESIGN_STATIC") == "1":  # set while the site is built
        return
    key = exercise, None if seed is None else str(seed)
    if verdict.right:
        _tries.pop(key, None)
        display(Note(f"**Right.** {verdict.message}"))
    elif not verdict.graded:
        display(Note(verdict.message))
    else:
        marks = _tries.setdefault(key, [])
        if (mark := _mark(answer)) not in marks:  # a cell that runs again spends no hint
            marks.append(mark)
        display(Note(f"**Not yet.** {verdict.message}{_hint(exercise, len(marks))}"))


def _mark(answer):
    """What tells one answer from another: the start of its repr, or its type where there is
    none.
    """
    try:
        return repr(answer)[:200]
    except Exception:
        return str(type(answer))


def _hint(exercise, tries):
    """Nothing at the first wrong answer, then one hint after the other; the last one names the
    solution.
    """
    ladder = (*EXERCISES[exercise].hints, SOLUTION)
    if tries < 2:
        return ""
    step = min(tries - 1, len(ladder))
    return f"\n\n**Hint {step} of {len(ladder)}.** {ladder[step - 1]}"


def _task(exercise, seed):
    """Exercise and the numbers of its question. Parts of one exercise, "1.1" and "1.1b", get the
    same numbers.
    """
    task = choice("exercise", exercise, EXERCISES)
    if seed is None:
        return task, task.variants[0]
    if isinstance(seed, bool | np.bool_) or not isinstance(seed, int | np.integer | str):
        raise ValueError(f"seed must be a whole number or text, got {seed!r}")
    others = task.variants[1:] or task.variants
    return task, others[zlib.crc32(f"{task.id.rstrip('abcdefgh')}/{seed}".encode()) % len(others)]


def _expected(task):
    """Form of the answer, with the tolerance of a number."""
    return task.asks + (
        f", within {task.tolerance:.0%}".replace("%", " %")
        if task.tolerance and not task.options
        else ""
    )


def _choice(task, answer):
    """The option that was meant, or None."""
    answer = _single(answer)
    if isinstance(answer, bool | np.bool_):
        answer = "yes" if answer else "no"
    if not isinstance(answer, str | int | np.integer):
        return None
    key = re.sub(r" (of )?(them|these|(the )?layers)$", "", str(answer).strip(_MARKS).casefold())
    return next((option for option in task.options if option.casefold() == key), None)


def _values(task, answer):
    """The numbers that were meant, as a tuple, or None. One number stands for all parts where the
    exercise allows it.
    """
    names, answer = task.parts or ("",), _single(answer)
    ways = [[answer] * len(names)] if len(names) == 1 or task.one else []
    if len(names) > 1 and isinstance(answer, str):
        text = " ".join(re.sub(r"[()\[\]{}]", " ", answer).split())
        whole = re.fullmatch(r"\d{1,2}(,\d{3})+", text)  # "8,192" is one number, "512,512" are two
        splits = _SPLITS[:2] if whole else _SPLITS
        ways = [[piece for piece in re.split(split, text) if piece] for split in splits] + ways
    elif isinstance(answer, Mapping):
        keys = (
            {str(key).strip().casefold(): value for key, value in answer.items()}
            if len(answer) == len(names)
            else {}
        )
        ways = [[keys.get(name.casefold()) for name in names]]
    elif len(names) > 1 and isinstance(answer, list | tuple | np.ndarray):
        ways = [answer]
    for many in ways:
        if len(many) == len(names):
            found = tuple(_number(value, task.units) for value in many)
            if None not in found:
                return found
    return None


def _single(answer):
    """An answer out of its box: the only element of a list or an array, the list of a tensor."""
    for _ in range(4):  # not without end: a list may hold itself
        if isinstance(answer, list | tuple) and len(answer) == 1:
            answer = answer[0]
        elif isinstance(answer, np.ndarray):
            answer = answer.item() if answer.size == 1 else answer.ravel()
        elif not isinstance(answer, str | Number) and callable(getattr(answer, "tolist", None)):
            answer = answer.tolist() if math.prod(getattr(answer, "shape", ())) < 100 else None
    return answer


def _number(value, units):
    """A float, or None for what is no number: truth values, complex numbers, NaN, words."""
    value = _single(value)
    if isinstance(value, str):
        return _number_in_text(value, units)
    if isinstance(value, bool | np.bool_ | complex | np.complexfloating) or not isinstance(
        value, Number
    ):
        return None
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        return None
    return None if math.isnan(number) else number


def _number_in_text(text, units):
    """A number with its unit, "48.3 k tokens", "1,024" or "12 µs"; None for other text, an error
    for another unit.
    """
    if len(text.strip()) > 100:
        return None
    if text.strip(_MARKS).casefold() == "never":
        return math.inf
    match = _NUMBER.fullmatch(
        text.rstrip(_MARKS).lstrip(_MARKS.replace(".", ""))
    )  # ".5" keeps its point
    if match is None:
        return None
    digits, unit = match[1].replace("_", ""), match[2]
    thousands = re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+(\.\d*)?(e[-+]?\d+)?", digits, re.I)
    digits = digits.replace(",", "" if thousands else ".")
    if digits.count(".") > 1:
        return None
    for name in ("", *units):
        scale = _PREFIX.get(
            unit[: len(unit) - len(name)].strip()
            if unit.casefold().endswith(name.casefold())
            else None
        )
        if scale is not None:
            return float(digits) * scale
    if re.fullmatch(r"[^\W\d_][^\d_]*", unit):
        raise _OtherUnit(unit)
    return None


def _judge_choice(task, given, found, right):
    if found == right:
        return Graded(True, None, task.why)
    for mistake in task.mistakes:
        if mistake(**given) == found:
            return Graded(False, *_words(mistake))
    return Graded(False, None, "This is another of the choices.")


def _judge_numbers(task, given, found, right):
    right = np.atleast_1d(right).astype(float)
    alike = (lambda values: [task.same(v, **given) for v in values]) if task.same else list
    found, right = alike(found), alike(right)
    good = [_near(f, r, task.tolerance) for f, r in zip(found, right, strict=True)]
    if all(good):
        return Graded(True, None, task.why)
    names = task.parts or ("The number",)
    mixed = "".join(f"{name} is right. " for name, ok in zip(names, good, strict=True) if ok)
    close, best = min(task.tolerance, CLOSE), ((math.inf,), None)
    for name, value, message in _wrong_ways(task, given, right):
        wrong = alike(np.atleast_1d(value).astype(float))
        if all(_near(w, r, task.tolerance) for w, r in zip(wrong, right, strict=True)):
            continue  # the mistake makes no difference here
        told = [_near(f, w, close) for f, w in zip(found, wrong, strict=True)]
        if sorted(wrong) == sorted(right) and any(
            ok and w != r for w, r, ok in zip(wrong, right, good, strict=True)
        ):
            # numbers in another order: nothing is exchanged where one of them stands in its place
            continue
        if all(
            np.logical_or(good, told)
        ):  # the mistake that tells most parts wins, then the nearest
            far = max(
                _distance(f, w) for f, w, ok in zip(found, wrong, good, strict=True) if not ok
            )
            best = min(best, ((told.count(False), far), (name, message)), key=lambda pair: pair[0])
    if best[1]:
        return Graded(False, best[1][0], mixed + best[1][1])
    size = [
        _side(task, name, f, r)
        for name, f, r, ok in zip(names, found, right, good, strict=True)
        if not ok
    ]
    return Graded(False, None, mixed + " ".join(size))


def _wrong_ways(task, given, right):
    """(name, value, message) of the exercise's own mistakes, then of the slips of unit that it
    names.
    """
    for mistake in task.mistakes:
        value = mistake(**given)
        if value is not None:
            name, message = _words(mistake)
            yield name, value, message
    if np.isfinite(right).all():
        for name in task.slips:
            factor, message = _SLIPS[name]
            yield name, np.multiply(right, factor), message
            yield name, np.divide(right, factor), message


def _words(mistake):
    """Name and message of a mistake."""
    return mistake.__name__.strip("_").replace("_", " "), " ".join((mistake.__doc__ or "").split())


def _near(value, target, tolerance):
    return value == target or (
        math.isfinite(target) and abs(value - target) <= tolerance * abs(target) * (1 + 1e-12)
    )


def _distance(value, target):
    return 0.0 if value == target else abs(value / target - 1)


def _side(task, name, value, target):
    if math.isinf(target) and task.endless:
        return task.endless
    side = "too large" if value > target else "too small"
    return f"{name} is {'another one' if task.same else side}."
