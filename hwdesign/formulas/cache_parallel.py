"""Attention over a cache that is cut along the sequence: partial results, their exact merge, what
is exchanged for it.

Sources: M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", arXiv 1805.02867
(partial softmax); T. Dao et al., Flash-Decoding, 2023 (pieces of a sequence); N. Bhatia et al.,
Helix Parallelism, arXiv 2507.07120 (over GPUs).
"""

import numpy as np

from hwdesign._check import dims, numbers, positive, same_shape, scalar_or_array

STATISTICS_BYTES = 8.0  # maximum and sum of a row, in FP32 [byte]


def partial_attention(scores, values):
    """Attention over one piece of a sequence: what the merge needs to know of it.

    Parameters
    ----------
    scores : array_like of float, shape (..., q, s)
        Scores of q queries with the s keys of the piece; -inf hides a key [dimensionless].
    values : array_like of float, shape (..., s, d)
        Values of the piece [dimensionless].

    Returns
    -------
    tuple of ndarray, shapes (..., q), (..., q), (..., q, d)
        Largest score, sum of ``exp(score - largest)``, and the mean of the values under these
        weights [dimensionless]. A row that sees no key has -inf, 0 and zeros. FP32 stays FP32; sums
        run in FP64.

    Raises
    ------
    ValueError
        If the shapes do not fit or a score is NaN or +inf.

    Notes
    -----
    Source: Milakov and Gimelshein 2018.

    Examples
    --------
    >>> top, total, output = partial_attention([[0.0, np.log(3)]], [[1.0], [5.0]])
    >>> bool(abs(total[0] - 4 / 3) < 1e-12), output.round(12).tolist()
    (True, [[4.0]])
    """
    scores, values = _real("scores", scores), _real("values", values)
    if not (
        scores.ndim >= 2 <= values.ndim
        and scores.shape[-1] == values.shape[-2]
        and _broadcast(scores, values)
    ):
        raise ValueError(
            f"scores and values must be (..., q, s) and (..., s, d), got shapes {scores.shape} "
            f"and {values.shape}"
        )
    if np.isnan(scores).any() or np.isposinf(scores).any():
        raise ValueError("scores must be finite or -inf, got NaN or +inf")
    top = scores.max(axis=-1, initial=-np.inf)
    weights = np.exp(scores - _safe(top)[..., None]).astype(np.float64)
    total = weights.sum(axis=-1)
    output = (weights @ values) / np.where(total > 0, total, 1)[..., None]
    return top, total.astype(scores.dtype), output.astype(scores.dtype)


def merge_partials(tops, totals, outputs):
    """Attention over the whole sequence from that over its pieces, exactly.

    Each piece weighs ``total * exp(top - largest top)``; the output is the mean of the outputs
    under these weights.

    Parameters
    ----------
    tops, totals : array_like of float, shape (p, ..., q)
        Largest score and sum of each of p pieces, from `partial_attention` [dimensionless].
    outputs : array_like of float, shape (p, ..., q, d)
        Their outputs [dimensionless].

    Returns
    -------
    tuple of ndarray, shapes (..., q), (..., q), (..., q, d)
        The same three of the whole, so that merges can be merged [dimensionless].

    Raises
    ------
    ValueError
        If the shapes do not fit or a number is out of range.

    Notes
    -----
    A row that no piece sees gives -inf, 0 and zeros, not NaN.
    Source: Flash-Decoding; Helix, arXiv 2507.07120.

    Examples
    --------
    >>> merge_partials([[0.0], [np.log(2)]], [[1.0], [1.0]], [[[0.0]], [[3.0]]])[2].round(
    ...     12
    ... ).tolist()
    [[2.0]]
    """
    tops, totals, outputs = _real("tops", tops), _real("totals", totals), _real("outputs", outputs)
    if (
        tops.ndim < 1
        or not len(tops)
        or tops.shape != totals.shape
        or outputs.shape[:-1] != tops.shape
    ):
        shapes = f"{tops.shape}, {totals.shape} and {outputs.shape}"
        raise ValueError(
            "tops, totals and outputs must be (p, ..., q), (p, ..., q) and (p, ..., q, d), "
            f"got shapes {shapes}"
        )
    if np.isnan(tops).any() or np.isposinf(tops).any() or not (totals >= 0).all():
        raise ValueError(
            "tops must be finite or -inf and totals >= 0, got NaN, +inf or a negative total"
        )
    top = tops.max(axis=0)
    weights = (totals * np.exp(tops - _safe(top))).astype(np.float64)
    total = weights.sum(axis=0)
    output = (weights[..., None] * outputs).sum(axis=0) / np.where(total > 0, total, 1)[..., None]
    return top, total.astype(totals.dtype), output.astype(outputs.dtype)


def _real(name, value):
    """Real numbers as an array; FP32 stays, everything else becomes FP64."""
    return value if getattr(value, "dtype", None) == np.float32 else numbers(name, value)


def _broadcast(scores, values):
    """Whether the axes in front of the last two fit."""
    return all(
        1 in pair or pair[0] == pair[1]
        for pair in zip(scores.shape[-3::-1], values.shape[-3::-1], strict=False)
    )


def _safe(top):
    """The largest score, 0 where every score is -inf: ``-inf - -inf`` is NaN."""
    return np.where(np.isneginf(top), 0, top).astype(top.dtype)


def merge_bytes(tokens, num_heads, value_size, kvp, element_bytes=2.0):
    """Bytes that one GPU sends in one layer so that each of `kvp` GPUs can merge its share of the
    heads.

    ``tokens * num_heads * (value_size * element_bytes + 8) * (1 - 1 / kvp)``: its partial output of
    each head and two FP32 numbers, all but the share it merges itself. The context is not in it.

    Parameters
    ----------
    tokens : array_like of float
        New tokens, one a sequence in decode [token], > 0.
    num_heads : array_like of int
        Query heads of the GPU.
    value_size : array_like of int
        Size of a head's output: ``head_dim``, or the rank of a latent [element].
    kvp : array_like of int
        GPUs that hold pieces of the sequence.
    element_bytes : array_like of float
        Size of an element of an output [byte], > 0.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Bytes sent [byte].

    Raises
    ------
    ValueError
        If a number is out of range.

    Notes
    -----
    Source: N. Bhatia et al., Helix Parallelism, arXiv 2507.07120.

    Examples
    --------
    >>> float(merge_bytes(1, 128, 512, 8))
    115584.0
    """
    (tokens,), (element_bytes,) = positive(tokens=tokens), positive(element_bytes=element_bytes)
    num_heads, value_size, kvp = dims(num_heads=num_heads, value_size=value_size, kvp=kvp)
    same_shape(
        tokens=tokens,
        num_heads=num_heads,
        value_size=value_size,
        kvp=kvp,
        element_bytes=element_bytes,
    )
    return scalar_or_array(
        tokens * num_heads * (value_size * element_bytes + STATISTICS_BYTES) * (1 - 1 / kvp)
    )


def break_even_tokens(exchange, cache_bytes, bandwidth, kvp):
    """Cached tokens of all sequences together from which cutting the cache saves more time than the
    exchange costs.

    ``exchange * bandwidth / (cache_bytes * (1 - 1 / kvp))``, in one layer.

    Parameters
    ----------
    exchange : array_like of float
        Time of the exchange in one layer [s], > 0.
    cache_bytes : array_like of float
        Bytes that a cached token takes in one layer on a GPU which does not cut [byte], > 0.
    bandwidth : array_like of float
        At which the cache is read [byte/s], > 0.
    kvp : array_like of int
        Pieces, >= 2.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Batch times context [token].

    Raises
    ------
    ValueError
        If a number is out of range.

    Notes
    -----
    Source: the bytes of `cache_read_bytes`, with and without the cut.

    Examples
    --------
    >>> round(float(break_even_tokens(35e-6, 576, 8e12, 8)))
    555556
    """
    exchange, cache_bytes, bandwidth = positive(
        exchange=exchange, cache_bytes=cache_bytes, bandwidth=bandwidth
    )
    (kvp,) = dims(kvp=kvp)
    if (kvp < 2).any():
        raise ValueError(f"kvp must be >= 2, got {np.min(kvp):g}")
    same_shape(exchange=exchange, cache_bytes=cache_bytes, bandwidth=bandwidth, kvp=kvp)
    return scalar_or_array(exchange * bandwidth / (cache_bytes * (1 - 1 / kvp)))
