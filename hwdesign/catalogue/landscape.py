"""Published limits, fronts, planners' run times and gains of disaggregation in the serving of language models.

Source: `landscape.csv`; each row names its source. Read 2026-11-30.
"""

import functools
from types import MappingProxyType

from hwdesign.catalogue.published import rows

TEXT = ("kind", "system", "model", "device", "precision", "speculative", "counts", "over", "note", "source")


@functools.cache
def serving_landscape():
    """What was published on the trade of throughput against latency, one number or pair of numbers a row.

    Returns
    -------
    tuple of mapping
        Columns `kind`, `system`, `model`, `device`, `precision`, `speculative` ("", "mtp" or "unknown"), `input_tokens` and
        `output_tokens` (nominal lengths [token]), `gpus`, `user_rate` [token/s], `token_seconds` (time per output token [s], if
        the source gives that; `user_rate` is then its inverse), `gpu_rate` [token/s of a GPU] as published, `counts` (what it
        counts: "output", "input" or "total", which is both), `over` (the GPUs that share it: "all", "decode" or "prefill"),
        `concurrency`, `seconds` [s], `low` and `high`, `note`, `source`. What was not published is NaN or "". By `kind`:

        - "limit": `seconds` until the first token and `token_seconds`, both at most;
        - "front": a point of a front, `gpu_rate` at `user_rate`; where a range of user rates was published it is `low` to `high`;
        - "planner": `seconds` that a search for deployments took, of `gpus` GPUs at most;
        - "disaggregation": gain, `low` to `high`, of prefill and decode apart over both together; "up to" has a `high` alone;
        - "matching": share, `low` to `high`, of the rate-matched throughput that is reached end to end.

    Notes
    -----
    Source: `hwdesign/catalogue/landscape.csv`. A total rate of prompts of I and answers of O tokens holds O / (I + O) of output.

    Examples
    --------
    >>> [round(row["user_rate"], 1) for row in serving_landscape() if row["kind"] == "limit" and row["model"] == "DeepSeek-R1"]
    [12.5, 66.7]
    """
    return tuple(
        MappingProxyType(row if row["token_seconds"] != row["token_seconds"] else row | {"user_rate": 1 / row["token_seconds"]})
        for row in rows("landscape.csv", TEXT)
    )
