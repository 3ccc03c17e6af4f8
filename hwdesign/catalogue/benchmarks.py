"""Published scores of models in two number formats, and how large a difference must be to mean anything.

Source: `benchmarks.csv`; each row names it. Read 2026-11-29 and 2026-11-30. An empty number of questions was not published.
"""

import csv
import functools
from importlib import resources
from types import MappingProxyType

import numpy as np

from hwdesign._check import numbers, positive, scalar_or_array

NORMAL_95 = 1.96  # two-sided 95 % of a normal distribution, in standard deviations


@functools.cache
def benchmark_scores():
    """Scores of models in a narrow format beside those in a wide one.

    Returns
    -------
    tuple of mapping
        Columns model, benchmark, wide and narrow (formats), before and after [%], questions (NaN where unknown), source.

    Notes
    -----
    Source: `hwdesign/catalogue/benchmarks.csv`.

    Examples
    --------
    >>> first = benchmark_scores()[0]
    >>> first["benchmark"], first["before"], first["after"]
    ('MMLU-Pro', 85.0, 84.2)
    """
    text = resources.files("hwdesign.catalogue").joinpath("benchmarks.csv").read_text(encoding="utf-8")
    pairs, source = {}, ""
    for row in csv.DictReader(text.splitlines()):
        source = source if row["source"] == "same" else row["source"]
        pairs.setdefault((row["model"], row["benchmark"]), []).append(row | {"source": source})
    return tuple(
        MappingProxyType({
            "model": model, "benchmark": benchmark, "wide": wide["format"], "narrow": narrow["format"],
            "before": float(wide["score"]), "after": float(narrow["score"]), "questions": float(wide["questions"] or "nan"),
            "source": wide["source"],
        })
        for (model, benchmark), (wide, narrow) in pairs.items()
    )  # fmt: skip


def difference_margin(before, after, questions):
    """Half the width of the 95 % interval of a difference of two scores, for two independent draws of questions.

    ``1.96 sqrt((p (1 - p) + q (1 - q)) / questions)`` with the scores p and q as shares.

    Parameters
    ----------
    before, after : array_like of float
        Scores [%].
    questions : array_like of float
        Number of questions; NaN gives NaN.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Margin [percentage points]. Both formats answer the same questions, so the true margin is smaller if they mostly agree;
        how much, only the answers themselves would tell. Averaging over several runs makes it smaller too.

    Raises
    ------
    ValueError
        If a score is not between 0 and 100.

    Notes
    -----
    Source: normal approximation of two binomial shares; poor for a few dozen questions near 100 %.

    Examples
    --------
    >>> round(float(difference_margin(85, 84.2, 12032)), 2), round(float(difference_margin(89, 91.3, 30)), 0)
    (0.91, 15.0)
    """
    p, q = (numbers(name, value) / 100 for name, value in (("before", before), ("after", after)))
    for name, value in (("before", p), ("after", q)):
        if not ((value >= 0) & (value <= 1)).all():
            raise ValueError(f"{name} must be between 0 and 100, got {100 * value[~((value >= 0) & (value <= 1))].flat[0]:g}")
    questions = numbers("questions", questions)
    positive(questions=questions[~np.isnan(questions)])
    return scalar_or_array(100 * NORMAL_95 * np.sqrt((p * (1 - p) + q * (1 - q)) / questions))
