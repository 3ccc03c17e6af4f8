"""Published numbers on wide expert parallelism: exchanges, uneven loads, and services that run on many GPUs.

Source: the CSV files beside this one; each row names its source. Read 2026-11-30.
"""

import functools
from types import MappingProxyType

from hwdesign.catalogue.published import rows as published_rows

TEXT = ("library", "device", "link", "balancer", "per", "name", "phase", "note", "source")


@functools.cache
def exchange_times():
    """Times of a dispatch and of a combine of DeepSeek-R1's layer: 7168 features, 8 experts a token.

    Returns
    -------
    tuple of mapping
        Columns library, device, link, ep [GPU], tokens of each GPU [token], dispatch_bytes and combine_bytes of a copy [byte],
        copies of a token that are counted, dispatch_seconds and combine_seconds [s], dispatch_rate and combine_rate as printed
        [byte/s], source.

    Notes
    -----
    Source: `hwdesign/catalogue/exchange_times.csv`. The printed rates count all copies, those that stay on the GPU among them.

    Examples
    --------
    >>> far = [row for row in exchange_times() if row["library"] == "DeepEP" and row["ep"] == 128]
    >>> far[0]["tokens"], round(far[0]["combine_seconds"] * 1e6)
    (128.0, 369)
    """
    rows = []
    for row in published_rows("exchange_times.csv", TEXT):
        row |= {f"{part}_seconds": row.pop(f"{part}_us") * 1e-6 for part in ("dispatch", "combine")}
        row |= {f"{part}_rate": row.pop(f"{part}_GBps") * 1e9 for part in ("dispatch", "combine")}
        rows.append(MappingProxyType(row))
    return tuple(rows)


@functools.cache
def load_statistics():
    """Tokens that GPUs and expert slots of DeepSeek-R1 received, with and without a balancer: 128 tokens on each GPU.

    Returns
    -------
    tuple of mapping
        Columns balancer ("none" or "EPLB"), ep [GPU], slots, per ("GPU" or "slot"), mean and std [pair of a token and an
        expert], imbalance: largest over mean [dimensionless], means over layers and steps, source.

    Notes
    -----
    Source: `hwdesign/catalogue/load_statistics.csv`, a translation task; printed is the excess, ``max / mean - 1``.

    Examples
    --------
    >>> [round(row["imbalance"], 2) for row in load_statistics() if row["per"] == "GPU" and row["ep"] == 32]
    [2.56, 1.11]
    """
    return tuple(
        MappingProxyType(row | {"imbalance": 1 + row.pop("excess")}) for row in published_rows("load_statistics.csv", TEXT)
    )


@functools.cache
def serving_units():
    """Groups of GPUs that serve DeepSeek-V3 or R1 in FP8 with wide expert parallelism; all let two micro-batches take turns.

    Returns
    -------
    tuple of mapping
        Columns name, phase ("decode" or "prefill"), device, gpus, slots, tokens_per_gpu of a step [token], context [token],
        rate_per_node [token/s for 8 GPUs], note, source. What was not published is NaN. How many tokens a
        sequence makes in a step of the profile is not said; SGLang's authors compare it with a run that simulates several.

    Notes
    -----
    Source: `hwdesign/catalogue/serving_units.csv`; the note says what was derived.

    Examples
    --------
    >>> [(row["gpus"], row["slots"] / row["gpus"]) for row in serving_units() if row["phase"] == "decode"]
    [(144.0, 2.0), (128.0, 2.0), (72.0, 4.0)]
    """
    return tuple(MappingProxyType(row) for row in published_rows("serving_units.csv", TEXT))
