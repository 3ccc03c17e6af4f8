"""Published gains, losses and times of caches that are cut along the sequence.

Source: `decoupled.csv`; each row names its source. Read 2026-11-30.
"""

import functools
from types import MappingProxyType

from hwdesign.catalogue.published import rows

TEXT = ("system", "model", "device", "quantity", "note", "source")


@functools.cache
def cache_cuts():
    """What was published on cutting the cache of each sequence over GPUs.

    Returns
    -------
    tuple of mapping
        Columns system, model, device, ways (pieces), quantity with its unit, context [token], concurrency, before (without the
        cut) and after (with it), note, source. For "crossing" the two are the concurrencies between which the cut begins to win.
        What was not published is NaN.

    Notes
    -----
    Source: `hwdesign/catalogue/decoupled.csv`.

    Examples
    --------
    >>> [row["after"] for row in cache_cuts() if row["quantity"] == "interactivity" and row["model"] == "DeepSeek-R1"]
    [1.5, 1.8]
    """
    return tuple(MappingProxyType(row) for row in rows("decoupled.csv", TEXT))
