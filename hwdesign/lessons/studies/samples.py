"""Random numbers shaped like the weights and activations of a model: Gaussian, with heavy tails,
with outlier channels.
"""

import numpy as np

from hwdesign._check import choice, finite, positive, whole

KINDS = ("Gaussian", "heavy tails", "outlier channels")
EVERY = 128  # one channel in so many is an outlier
SPREAD = 0.02  # standard deviation of the ordinary numbers


def samples(kind, *, rows=128, columns=2048, strength=20.0, seed=0):
    """A matrix of random numbers; columns are channels and run along K.

    Parameters
    ----------
    kind : str
        "Gaussian"; "heavy tails", Student's t with 4 degrees of freedom; or "outlier channels",
        Gaussian with each 128th column `strength` times as large.
    rows, columns : int
        Shape [element].
    strength : float
        Size of the outlier channels [times the others].
    seed : int
        Of the generator.

    Returns
    -------
    ndarray of float, shape (rows, columns)
        Numbers [dimensionless].

    Raises
    ------
    ValueError
        If the kind is unknown, a side below 1 or the strength not positive.

    Notes
    -----
    Source: own choice. Weights of trained layers are close to normal; activations have outlier
    channels (arXiv 2208.07339).

    Examples
    --------
    >>> x = samples("outlier channels", rows=4, columns=256, strength=50)
    >>> x.shape, np.flatnonzero(np.abs(x).max(0) > 0.2).tolist()
    ((4, 256), [64, 192])
    """
    choice("kind", kind, KINDS)
    (rows, columns), (strength,) = whole(rows=rows, columns=columns), positive(strength=strength)
    draw = np.random.default_rng(seed)
    if kind == "heavy tails":
        return SPREAD * draw.standard_t(4, (rows, columns)) / np.sqrt(2)  # its variance is 2
    x = SPREAD * draw.standard_normal((rows, columns))
    if kind == "outlier channels":
        x[:, outlier_channels(columns)] *= strength
    return x


def outlier_channels(columns):
    """Which columns are outliers in `samples`.

    Parameters
    ----------
    columns : int
        Columns of the matrix [element].

    Returns
    -------
    ndarray of bool, shape (columns,)
        True for each 128th, from the middle of the first 128 on [dimensionless].

    Notes
    -----
    Source: own choice.

    Examples
    --------
    >>> np.flatnonzero(outlier_channels(256)).tolist()
    [64, 192]
    """
    return np.arange(columns) % EVERY == EVERY // 2


def power_law_tokens(tokens, top_k, num_experts, exponent, *, draws=100, seed=0):
    """Tokens of each expert as the published "power law" rows of a layer of experts draw them.

    Loads come from a density proportional to ``x**-exponent``, between 1 and 0.8 `tokens` (between
    0.01 and 2 where there are no more pairs than experts). They are scaled to ``tokens * top_k``,
    rounded and cut at `tokens`; what is missing goes to the smallest loads, what is too much is
    taken from the largest.

    Parameters
    ----------
    tokens : int
        Tokens routed together [token].
    top_k, num_experts : int
        Experts a token uses, and experts there are.
    exponent : float
        Of the density [dimensionless], not 1: not that of Zipf's law, which is over ranks.
    draws, seed : int
        How often, and of the random generator.

    Returns
    -------
    ndarray of int, shape (draws, num_experts)
        Tokens an expert receives [token], in no order.

    Raises
    ------
    ValueError
        If a number is below 1 or not whole, `top_k` exceeds `num_experts`, or the exponent is 1 or
        not finite.

    Notes
    -----
    Source: ai-dynamo/aiconfigurator, commit 006afd7, collector/helper.py, in our words.

    Examples
    --------
    >>> power_law_tokens(128, 8, 256, 1.2, draws=2).sum(axis=1).tolist()
    [1024, 1024]
    """
    tokens, top_k, num_experts, draws = whole(
        tokens=tokens, top_k=top_k, num_experts=num_experts, draws=draws
    )
    if top_k > num_experts:
        raise ValueError(f"top_k must be <= num_experts = {num_experts}, got {top_k}")
    if finite("exponent", exponent) == 1:
        raise ValueError("exponent must not be 1, got 1")
    rng, total = np.random.default_rng(seed), tokens * top_k
    low, high = (1, 0.8 * tokens) if total > num_experts else (0.01, 2)
    ends = np.array([low, high]) ** (1 - exponent)
    loads = (ends[0] + rng.random((draws, num_experts)) * (ends[1] - ends[0])) ** (
        1 / (1 - exponent)
    )
    counts = np.minimum(np.round(loads / loads.sum(axis=1, keepdims=True) * total), tokens).astype(
        np.int64
    )
    for row in counts:
        while (left := total - row.sum()) > 0:
            row[np.argmin(row)] += 1
        for _ in range(-left):
            row[np.argmax(row)] -= 1
    return rng.permuted(counts, axis=1)  # what rounding left went to the first of equal experts
