"""What served times say beside the kernels: what an engine takes besides, and how far served times
lie from modelled ones.
"""

import csv
import functools
from importlib import resources

INTERVAL_SHARE = 0.8  # of the served times that an interval is to hold


@functools.cache
def _rows(name):
    """Rows of a file of the served points' constants."""
    text = resources.files("hwdesign.timing").joinpath("data", name).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def engine_seconds(engine, layers, sequences):
    """Time that an engine takes in a decode step besides the kernels that are modelled.

    Parameters
    ----------
    engine : str
        "vllm", "sglang" or "trtllm".
    layers : int
        Layers of the model.
    sequences : array_like of float
        Sequences of one data-parallel group.

    Returns
    -------
    float or ndarray of float
        Time [s]; 0 for an engine without served points.

    Raises
    ------
    Nothing.

    Notes
    -----
    Source: two constants an engine, the only ones of the model that were fitted on served points:
    `hwdesign/timing/data/served_constants.csv`, written by `scripts/exam.py --constants`, names the
    models. What nobody timed: the kernels between those of a layer, with their gaps, and the host's
    work for each sequence.

    Examples
    --------
    >>> bool(0 < engine_seconds("vllm", 80, 1) < 1e-3)
    True
    """
    for row in _rows("served_constants.csv"):
        if row["engine"] == engine:
            return float(row["layer"]) * layers + float(row["sequence"]) * sequences
    return 0.0 * sequences


def interval_factors():
    """Least and most that a served time was of the modelled one, for the middle 80 % of the
    published points.

    Returns
    -------
    tuple of float
        Factors on a modelled time [dimensionless].

    Raises
    ------
    Nothing.

    Notes
    -----
    Source: `hwdesign/timing/data/intervals.csv`, written by `scripts/exam.py`: quantiles of
    published over modelled times per output token, each run of a model in an engine counting the
    same. How often such an interval holds the points of a model that it has not seen is on the page
    Exam.

    Examples
    --------
    >>> low, high = interval_factors()
    >>> low < 1 < high
    True
    """
    (row,) = _rows("intervals.csv")
    return float(row["low"]), float(row["high"])
