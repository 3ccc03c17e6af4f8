"""Published numbers that the chapters lay beside the model: scores, exchanges, chunked prefills,
cut caches, served fronts.

Each function reads one CSV file beside this module, whose rows name their sources. Read 2026-11-29
and 2026-11-30.
"""

import csv
import functools
from importlib import resources
from types import MappingProxyType

from hwdesign._check import choice

# Columns of each file that are no numbers.
TEXT = {
    "benchmarks.csv": ("model", "benchmark", "format", "source", "questions_source"),
    "chunked_pipeline.csv": ("model", "device", "cut", "quantity", "note", "source"),
    "decoupled.csv": ("system", "model", "device", "quantity", "note", "source"),
    "exchange_times.csv": ("library", "device", "link", "source"),
    "load_statistics.csv": ("balancer", "per", "source"),
    "serving_units.csv": ("device", "name", "phase", "note", "source"),
    "landscape.csv": (
        "kind",
        "system",
        "model",
        "device",
        "precision",
        "speculative",
        "counts",
        "over",
        "note",
        "source",
    ),
}


def rows(file):
    """Rows of one of these tables.

    Parameters
    ----------
    file : str
        Name of a CSV file of the catalogue.

    Yields
    ------
    dict
        Column to value: numbers as floats in the units of the file, NaN where there is none; "same"
        as the source repeats the one above.

    Examples
    --------
    >>> next(rows("chunked_pipeline.csv"))["tokens"]
    131072.0
    """
    source, text = "", choice("file", file, TEXT)
    content = resources.files("hwdesign.catalogue").joinpath(file).read_text(encoding="utf-8")
    for row in csv.DictReader(content.splitlines()):
        source = source if row["source"] == "same" else row["source"]
        yield {
            key: value if key in text else float(value or "nan") for key, value in row.items()
        } | {"source": source}


@functools.cache
def benchmark_scores():
    """Scores of models in a narrow format beside those in a wide one.

    Returns
    -------
    tuple of mapping
        Columns model, benchmark, wide and narrow (formats), before and after [%], questions (NaN
        where unknown), source.

    Notes
    -----
    Source: `hwdesign/catalogue/benchmarks.csv`.

    Examples
    --------
    >>> first = benchmark_scores()[0]
    >>> first["benchmark"], first["before"], first["after"]
    ('MMLU-Pro', 85.0, 84.2)
    """
    pairs = {}
    for row in rows("benchmarks.csv"):
        pairs.setdefault((row["model"], row["benchmark"]), []).append(row)
    return tuple(_score_pair(wide, narrow) for wide, narrow in pairs.values())


def _score_pair(wide, narrow):
    """Two rows about one model and benchmark, as one."""
    pair = {key: wide[key] for key in ("model", "benchmark", "questions", "source")}
    pair |= {"wide": wide["format"], "narrow": narrow["format"]}
    pair |= {"before": wide["score"], "after": narrow["score"]}
    return MappingProxyType(pair)


@functools.cache
def score_changes(wide, narrow):
    """What scores lost or won from one format to another, by the benchmark of most questions of
    each model.

    Parameters
    ----------
    wide, narrow : str
        Formats of the file, as "bf16" and "nvfp4".

    Returns
    -------
    tuple of (str, str, float)
        Model, benchmark and change [percentage points], in the order of the file; empty where none
        was published.

    Notes
    -----
    Source: `benchmark_scores`. Chapter 4 says how large a change must be to mean anything.

    Examples
    --------
    >>> [(model, name, round(change, 2)) for model, name, change in score_changes("fp8", "nvfp4")]
    [('DeepSeek-R1-0528', 'MMLU-Pro', -0.8), ('12B hybrid pretrained in NVFP4', 'MMLU-Pro', -0.04)]
    """
    most = {}
    for pair in benchmark_scores():
        if (pair["wide"], pair["narrow"]) == (wide, narrow) and pair["questions"] > 0:
            most[pair["model"]] = max(most.get(pair["model"], pair), pair, key=_questions)
    return tuple((m, pair["benchmark"], pair["after"] - pair["before"]) for m, pair in most.items())


def _questions(pair):
    return pair["questions"]


@functools.cache
def chunked_prefills():
    """Prompts of long contexts that pass a pipeline in chunks, as SGLang's authors timed them on
    H20 and GB300 GPUs.

    Returns
    -------
    tuple of mapping
        Columns model, device, tp and pp (GPUs of a stage, stages), cut ("fixed", "dynamic", "none"
        or "" where it is not said), first (tokens of the first chunk [token]), smooth
        [dimensionless], tokens of the prompt [token], quantity ("seconds" until the first token,
        "speedup" over one stage, or "kernel", seconds of attention in one layer), value, note,
        source. What was not published is NaN.

    Notes
    -----
    Source: `hwdesign/catalogue/chunked_pipeline.csv`.

    Examples
    --------
    >>> [
    ...     row["value"]
    ...     for row in chunked_prefills()
    ...     if row["model"].startswith("Qwen") and row["quantity"] == "seconds"
    ... ]
    [10.54, 32.68, 114.33, 420.91, 55.5]
    """
    return tuple(MappingProxyType(row) for row in rows("chunked_pipeline.csv"))


@functools.cache
def cache_cuts():
    """What was published on cutting the cache of each sequence over GPUs.

    Returns
    -------
    tuple of mapping
        Columns system, model, device, ways (pieces), quantity with its unit, context [token],
        concurrency, before (without the cut) and after (with it), note, source. For "crossing" the
        two are the concurrencies between which the cut begins to win. What was not published is
        NaN.

    Notes
    -----
    Source: `hwdesign/catalogue/decoupled.csv`.

    Examples
    --------
    >>> [
    ...     row["after"]
    ...     for row in cache_cuts()
    ...     if row["quantity"] == "interactivity" and row["model"] == "DeepSeek-R1"
    ... ]
    [1.5, 1.8]
    """
    return tuple(MappingProxyType(row) for row in rows("decoupled.csv"))


@functools.cache
def exchange_times():
    """Times of a dispatch and of a combine of DeepSeek-R1's layer: 7168 features, 8 experts a
    token.

    Returns
    -------
    tuple of mapping
        Columns library, device, link, ep [GPU], tokens of each GPU [token], dispatch_bytes and
        combine_bytes of a copy [byte], copies of a token that are counted, dispatch_seconds and
        combine_seconds [s], dispatch_rate and combine_rate as printed [byte/s], source.

    Notes
    -----
    Source: `hwdesign/catalogue/exchange_times.csv`. The printed rates count all copies, those that
    stay on the GPU among them.

    Examples
    --------
    >>> far = [row for row in exchange_times() if row["library"] == "DeepEP" and row["ep"] == 128]
    >>> far[0]["tokens"], round(far[0]["combine_seconds"] * 1e6)
    (128.0, 369)
    """
    found = []
    for row in rows("exchange_times.csv"):
        row |= {f"{part}_seconds": row.pop(f"{part}_us") * 1e-6 for part in ("dispatch", "combine")}
        row |= {f"{part}_rate": row.pop(f"{part}_GBps") * 1e9 for part in ("dispatch", "combine")}
        found.append(MappingProxyType(row))
    return tuple(found)


@functools.cache
def load_statistics():
    """Tokens that GPUs and expert slots of DeepSeek-R1 received, with and without a balancer: 128
    tokens on each GPU.

    Returns
    -------
    tuple of mapping
        Columns balancer ("none" or "EPLB"), ep [GPU], slots, per ("GPU" or "slot"), mean and std
        [pair of a token and an expert], imbalance: largest over mean [dimensionless], means over
        layers and steps, source.

    Notes
    -----
    Source: `hwdesign/catalogue/load_statistics.csv`, a translation task; printed is the excess,
    ``max / mean - 1``.

    Examples
    --------
    >>> [
    ...     round(row["imbalance"], 2)
    ...     for row in load_statistics()
    ...     if row["per"] == "GPU" and row["ep"] == 32
    ... ]
    [2.56, 1.11]
    """
    return tuple(
        MappingProxyType(row | {"imbalance": 1 + row.pop("excess")})
        for row in rows("load_statistics.csv")
    )


@functools.cache
def serving_units():
    """Groups of GPUs that serve DeepSeek-V3 or R1 in FP8 with wide expert parallelism; all let two
    micro-batches take turns.

    Returns
    -------
    tuple of mapping
        Columns name, phase ("decode" or "prefill"), device, gpus, slots, tokens_per_gpu of a step
        [token], context [token], rate_per_node [token/s for 8 GPUs], note, source. What was not
        published is NaN. How many tokens a sequence makes in a step of the profile is not said;
        SGLang's authors compare it with a run that simulates several.

    Notes
    -----
    Source: `hwdesign/catalogue/serving_units.csv`; the note says what was derived.

    Examples
    --------
    >>> [
    ...     (row["gpus"], row["slots"] / row["gpus"])
    ...     for row in serving_units()
    ...     if row["phase"] == "decode"
    ... ]
    [(144.0, 2.0), (128.0, 2.0), (72.0, 4.0)]
    """
    return tuple(MappingProxyType(row) for row in rows("serving_units.csv"))


@functools.cache
def serving_landscape():
    """What was published on the trade of throughput against latency, one number or pair of numbers
    a row.

    Returns
    -------
    tuple of mapping
        Columns `kind`, `system`, `model`, `device`, `precision`, `speculative` ("", "mtp" or
        "unknown"), `input_tokens` and `output_tokens` (nominal lengths [token]), `gpus`,
        `user_rate` [token/s], `token_seconds` (time per output token [s], if the source gives that;
        `user_rate` is then its inverse), `gpu_rate` [token/s of a GPU] as published, `counts` (what
        it counts: "output", "input" or "total", which is both), `over` (the GPUs that share it:
        "all", "decode" or "prefill"), `concurrency`, `seconds` [s], `low` and `high`, `note`,
        `source`. What was not published is NaN or "". By `kind`:

        - "limit": `seconds` until the first token and `token_seconds`, both at most;
        - "front": a point of a front, `gpu_rate` at `user_rate`; where a range of user rates was
          published it is `low` to `high`;
        - "planner": `seconds` that a search for deployments took, of `gpus` GPUs at most;
        - "disaggregation": gain, `low` to `high`, of prefill and decode apart over both together;
          "up to" has a `high` alone;
        - "matching": share, `low` to `high`, of the rate-matched throughput that is reached end to
          end.

    Notes
    -----
    Source: `hwdesign/catalogue/landscape.csv`. A total rate of prompts of I and answers of O tokens
    holds O / (I + O) of output.

    Examples
    --------
    >>> [
    ...     round(row["user_rate"], 1)
    ...     for row in serving_landscape()
    ...     if row["kind"] == "limit" and row["model"] == "DeepSeek-R1"
    ... ]
    [12.5, 66.7]
    """
    return tuple(
        MappingProxyType(
            row
            if row["token_seconds"] != row["token_seconds"]
            else row | {"user_rate": 1 / row["token_seconds"]}
        )
        for row in rows("landscape.csv")
    )
