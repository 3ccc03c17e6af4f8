"""How far served times lay from modelled ones: the interval that goes with a modelled step."""

import csv
import functools
from importlib import resources

INTERVAL_SHARE = 0.8  # of the served times that an interval is to hold


@functools.cache
def _factors():
    """{engine: (low, high)} of `data/intervals.csv`."""
    text = resources.files("hwdesign.timing").joinpath("data", "intervals.csv")
    rows = csv.DictReader(text.read_text(encoding="utf-8").splitlines())
    return {row["engine"]: (float(row["low"]), float(row["high"])) for row in rows}


def interval_factors(engine):
    """Least and most that a served time was of the modelled one, for the middle 80 % of the
    published points of an engine.

    Parameters
    ----------
    engine : str
        "vllm", "sglang" or "trtllm".

    Returns
    -------
    tuple of float, or None
        Factors on a modelled time [dimensionless]; None for an engine without served points.

    Raises
    ------
    Nothing.

    Notes
    -----
    Source: `hwdesign/timing/data/intervals.csv`, written by `scripts/exam.py`: quantiles of
    published over modelled times per output token, each model counting as much as another. How
    often such an interval holds the points of a model that it has not seen is on the page Exam.

    Examples
    --------
    >>> low, high = interval_factors("vllm")
    >>> low < 1 < high
    True
    """
    return _factors().get(engine)
