"""Times of attention that does not see all keys: an indexer that scores every entry, the choice of
the best, and attention over those, with the tokens of a window beside them where there is one.

As in `hwdesign.timing.kernels`, each function takes the `Work` of `hwdesign.models.steps`, a device
and a mapping of fitted constants. An entry is a token of DeepSeek-V3.2 or a run of 4 or 128 tokens
of DeepSeek-V4. The tables time whole modules: the times here are what is left beside the products
with weights, so the constant `fixed` holds norms, rotations, quantization and the write of the
cache.
"""

import numpy as np

from hwdesign.catalogue.precision import FP32

SCALES = 4  # beside an FP8 key of an indexer [byte]
LOGIT = 8  # a score is written and read in FP32 [byte]
TILE = 64  # query rows that the kernels before Blackwell multiply at least


def seen_entries(queries, context, most):
    """Entries that the queries of a sequence see, all queries together.

    Parameters
    ----------
    queries, context : array_like of float
        New tokens, and tokens that the last of them sees [token]; or entries.
    most : float
        Most that a query sees.

    Returns
    -------
    float or ndarray of float
        Pairs of a query and an entry.

    Notes
    -----
    Source: causal, so that the last query sees the whole context and each one before it one less.

    Examples
    --------
    >>> float(seen_entries(4, 6, 100)), float(seen_entries(4, 6, 5))
    (18.0, 17.0)
    """

    def upto(n):
        """Of all queries up to the n-th, the first of which sees one."""
        few = np.minimum(n, most)
        return few * (few + 1) / 2 + np.where(n > few, (n - few) * np.minimum(most, n), 0)

    return upto(context) - upto(context - queries)


def index_decode_seconds(work, device, c):
    """Time of the scores and the choice for one new token a sequence:
    ``keys + (pick entries + row) rounds + start``.

    Keys are read in FP8 and scores written and read. A sequence is chosen from on one SM, so
    sequences come in rounds. Where there are no more entries than are picked, there is no choice
    and no start.

    Parameters
    ----------
    work : Work
        Of the indexer, in a step with one new token.
    device : Device
        Bandwidth and SMs.
    c : mapping of str to float
        index, share of the bandwidth; pick, time of an entry [s]; row, of a sequence [s]; start of
        the choice [s]; until, entries from which on an engine chooses without that start [entry].

    Returns
    -------
    float or ndarray of float
        Time of one layer [s].

    Notes
    -----
    Source: form and constants fitted on the tables of SGLang, vLLM and TensorRT-LLM, in which all
    scores are equal; see the page Accuracy.

    Examples
    --------
    >>> from hwdesign.catalogue.device import device
    >>> from hwdesign.models.steps import Work
    >>> w = Work(flops=0, cache_elements=0, batch=64, context=65536, heads=64, kv_heads=1, size=128)
    >>> ideal = {"index": 1, "pick": 0, "row": 0, "start": 0}
    >>> round(float(index_decode_seconds(w, device("GB300"), ideal)) * 1e6, 1)
    73.4
    """
    keys = work.batch * work.context * (work.size + SCALES + LOGIT)
    rounds = np.ceil(work.batch / (device.sms or 132))
    chooses = (work.context >= work.top) & (work.context < c.get("until", np.inf))
    pick = (c["pick"] * work.context + c["row"]) * rounds
    return keys / (c["index"] * device.memory_bandwidth) + pick + c["start"] * chooses


def index_prefill_seconds(work, device, c):
    """Time of the scores and the choice for many new tokens a sequence:
    ``math + scores + row queries + start``.

    Math is in FP8; each score is written and read once. A query that has more entries than it picks
    takes an SM its time. An engine that cleans a matrix of scores beforehand writes one of all
    queries by the entries of all sequences, whose keys it gathers first.

    Parameters
    ----------
    work : Work
        Of the indexer, in a step with many new tokens.
    device : Device
        Dense peak of FP8, bandwidth and SMs.
    c : mapping of str to float
        score, share of the peak; pick, share of the bandwidth; row, time that a query takes an SM
        [s], and start of the choice [s], where they take any; clean and keys, shares of the
        bandwidth, where an engine does so (above 1 where it cleans a part); until, entries from
        which on it chooses without row and start [entry].

    Returns
    -------
    float or ndarray of float
        Time of one layer [s].

    Notes
    -----
    Source: form and constants fitted on the tables of SGLang, vLLM and TensorRT-LLM, in which all
    scores are equal; see the page Accuracy.

    Examples
    --------
    >>> from hwdesign.catalogue.device import device
    >>> from hwdesign.models.steps import Work
    >>> size = {"batch": 1, "context": 8192, "queries": 8192, "heads": 64, "kv_heads": 1}
    >>> w = Work(flops=0, cache_elements=0, size=128, **size)
    >>> ideal = {"score": 1, "pick": 1, "row": 0, "start": 0}
    >>> round(float(index_prefill_seconds(w, device("GB300"), ideal)) * 1e6)
    144
    """
    tokens = work.context * work.every
    pairs = work.batch * seen_entries(work.queries, tokens, np.inf) / work.every
    peak = device.peak_flops("fp8" if "fp8" in device.dense_peak else "bf16")
    math = 2 * pairs * work.heads * work.size / (c["score"] * peak)
    scores = pairs * LOGIT / (c["pick"] * device.memory_bandwidth)
    last = np.minimum(tokens, c.get("until", np.inf) * work.every)
    first = np.maximum(tokens - work.queries, work.top * work.every)
    rows = work.batch * np.maximum(last - first, 0)
    whole = work.batch * work.queries * work.batch * work.context * FP32.bytes
    scores = scores + whole / (c.get("clean", np.inf) * device.memory_bandwidth)
    keys = 2 * work.batch * work.context * (work.size + SCALES)
    scores = scores + keys / (c.get("keys", np.inf) * device.memory_bandwidth)
    row = c.get("row", 0) * rows / (device.sms or 132)
    return math + scores + row + c.get("start", 0) * (rows > 0)


def _tile_rows(work, device):
    """Query rows that are multiplied: FlashMLA before Blackwell fills a tile."""
    return work.heads if "fp4" in device.dense_peak else np.maximum(work.heads, TILE)


def _entry_bytes(work, element_bytes):
    """Size of an entry of the cache [byte]."""
    return work.cache_elements / (work.batch * work.context) * element_bytes


def _head_size(work):
    """A key plus a value, against the latent where there is one [element]."""
    return work.latent or work.size


def sparse_decode_seconds(work, element_bytes, device, peak_flops, c):
    """Time of scores and values over picked entries for one new token a sequence:
    ``fixed + row rounds + root of squares(memory, math)``.

    Memory: each sequence gathers its entries. Math is done for as many entries as may be picked,
    also where there are fewer.

    Parameters
    ----------
    work : Work
        Of a step with one new token, with a `kernel`.
    element_bytes : float
        Size of a cached element [byte].
    device : Device
        Bandwidth and SMs.
    peak_flops : float
        Dense peak of the format that is multiplied [FLOP/s].
    c : mapping of str to float
        fixed [s]; gather, share of the bandwidth; rate, share of the peak; without an indexer also
        pick, time of an entry of the longest sequence [s], and row, time of a sequence [s].

    Returns
    -------
    float or ndarray of float
        Time of one layer, beside its products with weights [s].

    Notes
    -----
    Source: form and constants fitted on the tables of SGLang, vLLM and TensorRT-LLM; see the page
    Accuracy.

    Examples
    --------
    >>> from hwdesign.catalogue.device import device
    >>> from hwdesign.models.steps import Work
    >>> size = {"heads": 16, "kv_heads": 1, "size": 1088, "top": 2048}
    >>> w = Work(flops=0, cache_elements=64 * 4096 * 576, batch=64, context=4096, **size)
    >>> ideal = {"fixed": 0, "gather": 1, "rate": 1}
    >>> round(float(sparse_decode_seconds(w, 1.0, device("GB300"), 5e15, ideal)) * 1e6, 1)
    9.5
    """
    window = np.minimum(work.context * work.every, work.beside)
    if np.any(work.top):
        entries, slots = np.minimum(work.context, work.top) + window, work.top + work.beside
        alone = 0.0
    else:
        entries = work.context + window
        slots = np.maximum(entries, work.beside)
        rounds = np.ceil(work.batch / (device.sms or 132))
        alone = c["pick"] * work.context + c["row"] * rounds
    size = _entry_bytes(work, element_bytes)
    memory = work.batch * entries * size / (c["gather"] * device.memory_bandwidth)
    math = 2 * work.batch * _tile_rows(work, device) * slots * _head_size(work)
    return (
        c["fixed"] + alone + np.sqrt(np.square(memory) + np.square(math / (c["rate"] * peak_flops)))
    )


def sparse_prefill_seconds(work, element_bytes, device, peak_flops, c):
    """Time of scores and values over picked entries for many new tokens a sequence:
    ``fixed + token queries + memory + math``.

    Each query gathers its entries, and is multiplied by as many as may be picked.

    Parameters
    ----------
    work : Work
        Of a step with many new tokens, with a `kernel`.
    element_bytes : float
        Size of a cached element [byte].
    device : Device
        Bandwidth.
    peak_flops : float
        Dense peak of the format that is multiplied [FLOP/s].
    c : mapping of str to float
        fixed [s]; token, time of a new token [s]; gather, share of the bandwidth, above 1 where
        entries are gathered from the L2 cache; rate, share of the peak.

    Returns
    -------
    float or ndarray of float
        Time of one layer, beside its products with weights [s].

    Notes
    -----
    Source: form and constants fitted on the tables of SGLang, vLLM and TensorRT-LLM; see the page
    Accuracy.

    Examples
    --------
    >>> from hwdesign.catalogue.device import device
    >>> from hwdesign.models.steps import Work
    >>> size = {"heads": 16, "kv_heads": 1, "size": 320, "latent": 1088, "top": 2048}
    >>> load = {"batch": 1, "context": 8192, "queries": 8192}
    >>> w = Work(flops=0, cache_elements=8192 * 576, **size, **load)
    >>> ideal = {"fixed": 0, "token": 0, "gather": 1, "rate": 1}
    >>> round(float(sparse_prefill_seconds(w, 1.0, device("GB300"), 5e15, ideal)) * 1e6)
    1174
    """
    tokens = work.context * work.every
    most = work.top * work.every if np.any(work.top) else np.inf
    picked = seen_entries(work.queries, tokens, most) / work.every
    window = seen_entries(work.queries, tokens, work.beside)
    seen = work.batch * (picked + window)
    slots = work.batch * work.queries * (work.top + work.beside) if np.any(work.top) else seen
    math = 2 * _tile_rows(work, device) * slots * _head_size(work) / (c["rate"] * peak_flops)
    size = _entry_bytes(work, element_bytes)
    memory = seen * size / (c["gather"] * device.memory_bandwidth)
    return c["fixed"] + c["token"] * work.batch * work.queries + memory + math
