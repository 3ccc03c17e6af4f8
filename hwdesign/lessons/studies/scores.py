"""Published scores of models in two number formats, and how large a difference must be to mean
anything.

Source: `benchmarks.csv`; each row names it. Read 2026-11-29 and 2026-11-30. An empty number of
questions was not published.
"""

import numpy as np

from hwdesign._check import numbers, positive, same_shape, scalar_or_array

NORMAL_95 = 1.96  # two-sided 95 % of a normal distribution, in standard deviations


def difference_margin(before, after, questions, *, flipped=None):
    """Half the width of the 95 % interval of a difference of two scores.

    ``1.96 sqrt((u (1 - u) + v (1 - v)) / (questions + 2))`` with the scores as shares u and v, one
    right and one wrong answer added to each, as if each format had its own draw of questions; with
    `flipped`, ``1.96 sqrt(flipped / questions)``.

    Parameters
    ----------
    before, after : array_like of float
        Scores [%].
    questions : array_like of float
        Number of questions; NaN gives NaN.
    flipped : array_like of float, optional
        Share of the questions that one format answers rightly and the other wrongly
        [dimensionless].

    Returns
    -------
    float or ndarray of float, broadcast shape
        Margin [percentage points]. Both formats answer the same questions, so the first is too wide
        where they mostly agree. It is for one run of each; means of several runs vary less.

    Raises
    ------
    ValueError
        If a score is not between 0 and 100, `flipped` not between 0 and 1, or `questions` not
        positive.

    Notes
    -----
    Source: A. Agresti, B. Caffo, The American Statistician 54, 2000, for two draws; Q. McNemar,
    Psychometrika 12, 1947, else.

    Examples
    --------
    >>> (
    ...     round(float(difference_margin(85, 84.2, 12032)), 2),
    ...     round(float(difference_margin(89, 91.3, 30)), 0),
    ... )
    (0.91, 16.0)
    >>> round(float(difference_margin(85, 84.2, 12032, flipped=0.05)), 2)
    0.4
    """
    questions = numbers("questions", questions)
    positive(questions=questions[~np.isnan(questions)])
    given = {
        "before": _within("before", before, 100),
        "after": _within("after", after, 100),
        "questions": questions,
    }
    if flipped is not None:
        *_, n, flipped = same_shape(**given, flipped=_within("flipped", flipped, 1))
        return scalar_or_array(100 * NORMAL_95 * np.sqrt(flipped / n))
    u, v, n = same_shape(**given)
    u, v = ((share / 100 * n + 1) / (n + 2) for share in (u, v))
    return scalar_or_array(100 * NORMAL_95 * np.sqrt((u * (1 - u) + v * (1 - v)) / (n + 2)))


def _within(name, value, top):
    value = numbers(name, value)
    if not ((value >= 0) & (value <= top)).all():
        raise ValueError(
            f"{name} must be between 0 and {top}, got "
            f"{value[~((value >= 0) & (value <= top))].flat[0]:g}"
        )
    return value
