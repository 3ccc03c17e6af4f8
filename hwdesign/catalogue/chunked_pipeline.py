"""Published times and speed-ups of chunked pipelines.

Source: `chunked_pipeline.csv`; each row names its source. Read 2026-11-30.
"""

import functools
from types import MappingProxyType

from hwdesign.catalogue.published import rows

TEXT = ("model", "device", "cut", "quantity", "note", "source")


@functools.cache
def chunked_prefills():
    """Prompts of long contexts that pass a pipeline in chunks, as SGLang's authors timed them on H20 and GB300 GPUs.

    Returns
    -------
    tuple of mapping
        Columns model, device, tp and pp (GPUs of a stage, stages), cut ("fixed", "dynamic", "none" or "" where it is not said),
        first (tokens of the first chunk [token]), smooth [dimensionless], tokens of the prompt [token], quantity ("seconds" until
        the first token, "speedup" over one stage, or "kernel", seconds of attention in one layer), value, note, source. What was
        not published is NaN.

    Notes
    -----
    Source: `hwdesign/catalogue/chunked_pipeline.csv`.

    Examples
    --------
    >>> [row["value"] for row in chunked_prefills() if row["model"].startswith("Qwen") and row["quantity"] == "seconds"]
    [10.54, 32.68, 114.33, 420.91, 55.5]
    """
    return tuple(MappingProxyType(row) for row in rows("chunked_pipeline.csv", TEXT))
