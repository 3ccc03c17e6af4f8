"""What an exercise is: its question, how its answer is computed, and the mistakes that are easy to
make.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """A question whose answer the package computes.

    Parameters
    ----------
    id : str
        Chapter, point, number; a letter for a second part with the same numbers, "1.1b".
    variants : tuple of mapping
        Numbers of the question. The first is the chapter's; a seed picks among the others.
    text, solve : callable
        Numbers to the question [Markdown] and to the answer: a number, a tuple of numbers or one of
        `options`.
    asks : str
        Form of the answer, as the end of the sentence "Expected: ...".
    mistakes : tuple of callable
        Numbers to the answer of a wrong way, None where it cannot be gone. The docstring is what
        the learner reads, the name of the function is the name of the mistake.
    hints : tuple of str
        From gentle to plain.
    why : str
        One sentence on why the answer matters.
    parts : tuple of str
        Names of the numbers, where there are several.
    one : bool
        Whether a single number may stand for all parts; it is then judged part by part.
    options : tuple of str
        The choices, where the answer is not a number.
    units : tuple of str
        Names of the unit that may stand behind a number; the first two are those of one and of
        many.
    slips : tuple of str
        Names of the slips of unit in `practice` that can occur here.
    endless : str
        What is said to a finite number where no number is enough.
    tolerance : float
        Largest relative error that counts as right [dimensionless].
    same : callable, optional
        Maps answers that mean the same to one number.

    Examples
    --------
    >>> from hwdesign.lessons.exercises import EXERCISES
    >>> EXERCISES["1.4"].solve(**EXERCISES["1.4"].variants[0])
    (4096.0, 4096.0)
    """

    id: str
    variants: tuple[Mapping, ...]
    text: Callable
    solve: Callable
    asks: str
    mistakes: tuple[Callable, ...]
    hints: tuple[str, ...]
    why: str
    parts: tuple[str, ...] = ()
    one: bool = False
    options: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    slips: tuple[str, ...] = ()
    endless: str = ""
    tolerance: float = 0.02
    same: Callable | None = None


ELEMENT = ("element", "elements", "feature", "features")
ENGINE = {"sglang": "SGLang", "trtllm": "TensorRT-LLM", "vllm": "vLLM"}


def with_article(device):
    """A device's name with its article, for the text of a question.

    Parameters
    ----------
    device : str
        Catalogue name.

    Returns
    -------
    str
        "an H100 SXM".

    Notes
    -----
    Source: how the names are spoken.

    Examples
    --------
    >>> with_article("H100_SXM"), with_article("GB300")
    ('an H100 SXM', 'a GB300')
    """
    return ("an " if device[0] in "AHLMR" else "a ") + device.replace("_", " ")


def unless(right, value, tolerance=0.0):
    """The answer of a mistake, or None where it makes no difference.

    Parameters
    ----------
    right, value : float or tuple of float
        Right answer and answer of the mistake, in one unit.
    tolerance : float
        Largest relative difference that is none [dimensionless].

    Returns
    -------
    float, tuple of float or None
        `value`, in its unit.

    Notes
    -----
    Source: the exercises of the chapters.

    Examples
    --------
    >>> unless(4.0, 4.0), unless((4.0, 0.0), (0.0, 4.0))
    (None, (0.0, 4.0))
    """
    return None if value is None or np.allclose(value, right, rtol=tolerance, atol=0) else value


def variants(names, *rows):
    """Numbers of a question, one mapping a variant.

    Parameters
    ----------
    names : str
        Names, separated by blanks; each value has the unit that the question gives it.
    *rows : tuple
        Values in that order; the first row is what the chapter prints.

    Returns
    -------
    tuple of dict
        Name to value.

    Notes
    -----
    Source: the exercises of the chapters.

    Examples
    --------
    >>> variants("m n", (1, 2), (3, 4))
    ({'m': 1, 'n': 2}, {'m': 3, 'n': 4})
    """
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)
