"""A prompt in chunks: their times under causal attention, and where to cut.

Source: Z. Li et al., "TeraPipe", arXiv 2102.07988, for chunks of one sequence that shrink.
"""

import numpy as np

from hwdesign._check import dims, finite, positive, same_shape, scalar_or_array, single, whole
from hwdesign.formulas.pipeline import schedule


def chunk_times(sizes, linear, quadratic):
    """Time of each chunk of a prompt under causal attention, all layers together:
    ``a c + b c (before + c / 2)``.

    Parameters
    ----------
    sizes : array_like of float, shape (..., C)
        Tokens of each chunk [token], in order, > 0.
    linear : float
        Time a of one token apart from what it sees before it [s/token], > 0.
    quadratic : float
        Time b of a pair of a token and one that it sees [s/token^2], >= 0.

    Returns
    -------
    ndarray of float, shape (..., C)
        Times [s]. With equal chunks the i-th takes ``a c + b c^2 (i - 1/2)``; all together take
        ``a S + b S^2 / 2``.

    Raises
    ------
    ValueError
        If a size or `linear` is not above 0, or `quadratic` is negative.

    Notes
    -----
    Source: causal attention: a token at position x sees about x tokens.

    Examples
    --------
    >>> chunk_times([10, 10], 1.0, 0.1).tolist()
    [15.0, 25.0]
    """
    (sizes,) = positive(sizes=finite("sizes", sizes))
    linear, quadratic = _coefficients(linear, quadratic)
    if sizes.ndim < 1:
        raise ValueError(f"sizes must be a list of sizes, got {sizes}")
    tokens, pairs = _parts(sizes)
    return linear * tokens + quadratic * pairs


def equal_time_chunks(tokens, chunks, linear, quadratic, *, multiple=1):
    """Sizes of chunks that take equal times under causal attention: they shrink along the prompt.

    The first i chunks hold the x tokens with ``a x + b x^2 / 2 = (i / C) (a S + b S^2 / 2)``.

    Parameters
    ----------
    tokens : int
        Tokens S of the prompt [token].
    chunks : int
        Chunks C, at most `tokens`.
    linear : float
        Time a of one token apart from what it sees before it [s/token], > 0.
    quadratic : float
        Time b of a pair of a token and one that it sees [s/token^2], >= 0.
    multiple : int
        Unit in which chunks end [token]; the last takes what is left.

    Returns
    -------
    ndarray of int, shape (chunks,)
        Sizes [token], whole, each >= 1; they sum to `tokens`. Rounding leaves times unequal by that
        of a unit.

    Raises
    ------
    ValueError
        If a number is out of range, or rounding would leave a chunk without a token.

    Notes
    -----
    Source: the quadratic equation; SGLang's dynamic chunking solves one for each chunk in turn.

    Examples
    --------
    >>> equal_time_chunks(100, 4, 1.0, 0.0).tolist(), equal_time_chunks(100, 4, 1.0, 1.0).tolist()
    ([25, 25, 25, 25], [50, 20, 16, 14])
    """
    tokens, chunks, multiple = whole(tokens=tokens, chunks=chunks, multiple=multiple)
    linear, quadratic = _coefficients(linear, quadratic)
    if chunks > tokens:
        raise ValueError(f"chunks must be <= tokens = {tokens}, got {chunks}")
    done = np.arange(chunks + 1) / chunks * (linear * tokens + quadratic * tokens**2 / 2)
    ends = _tokens_in(done, linear, quadratic)
    ends = np.append(np.round(ends[:-1] / multiple) * multiple, tokens)
    sizes = np.diff(ends).astype(np.int64)
    if sizes.min() < 1:
        units = f"{tokens} tokens in multiples of {multiple}"
        raise ValueError(
            f"chunks must leave every chunk at least one token, got {chunks} for {units}"
        )
    return sizes


def best_chunks(work, fixed, stages):
    """Number of equal chunks that finishes first if each chunk costs a fixed time besides its
    share: ``sqrt((P - 1) W / f)``.

    Parameters
    ----------
    work : array_like of float
        Time W of the whole prompt in all stages, without what a chunk costs besides [s], > 0.
    fixed : array_like of float, broadcastable
        Time f that each chunk costs besides, in all stages together [s], > 0.
    stages : array_like of int, broadcastable
        Stages P, >= 1.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Chunks [dimensionless], at least 1, not rounded.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    The least of ``(W + C f) / P (1 + (P - 1) / C)`` over C.
    Source: elementary.

    Examples
    --------
    >>> float(best_chunks(7.0, 0.01, 8))
    70.0
    """
    work, fixed = positive(work=work, fixed=fixed)
    (stages,) = dims(stages=stages)
    work, fixed, stages = same_shape(work=work, fixed=fixed, stages=stages)
    return scalar_or_array(np.maximum(1.0, np.sqrt((stages - 1) * work / fixed)))


def smoothed_chunks(tokens, first, linear, quadratic, smooth=0.75, *, multiple=64):
    """Sizes of chunks as SGLang's dynamic chunking cuts them: each is to take as long as the first
    one, but only in part.

    With x tokens done and d the solution of ``(a + b x) d + b d^2 / 2 = a c + b c^2 / 2``, the next
    chunk is ``c + smooth (d - c)``, at least c / 4, rounded down to a `multiple`; the first is c
    itself.

    Parameters
    ----------
    tokens, first : int
        Tokens of the prompt, and c, those of the first chunk [token].
    linear, quadratic : float
        Costs a [s/token] and b [s/token^2], of `chunk_times`.
    smooth : float
        How far to follow the equation [dimensionless], 0 (equal chunks) to 1.
    multiple : int
        Unit of a chunk [token], at most `first`.

    Returns
    -------
    ndarray of int, shape (C,)
        Sizes [token]; they sum to `tokens`, the last takes what is left.

    Raises
    ------
    ValueError
        If a number is out of range.

    Notes
    -----
    Source: SGLang team, *Pipeline Parallelism in SGLang*, 2026-01-15, and its documentation
    (multiples of 64).

    Examples
    --------
    >>> smoothed_chunks(1024, 512, 1.0, 0.01, 1.0).tolist()
    [512, 192, 192, 128]
    """
    tokens, first, multiple = whole(tokens=tokens, first=first, multiple=multiple)
    linear, quadratic = _coefficients(linear, quadratic)
    smooth = single("smooth", smooth)
    if not 0 <= smooth <= 1:
        raise ValueError(f"smooth must be from 0 to 1, got {smooth:g}")
    if multiple > first:
        raise ValueError(f"multiple must be <= first = {first}, got {multiple}")
    sizes, done, cost = (
        [min(first, tokens)],
        min(first, tokens),
        linear * first + quadratic * first**2 / 2,
    )
    while done < tokens:
        price = linear + quadratic * done
        equal = _tokens_in(cost, price, quadratic)
        size = max(first + smooth * (equal - first), first / 4) * (
            1 + 1e-9
        )  # what is a multiple but for rounding stays one
        sizes.append(min(max(int(size) // multiple, 1) * multiple, tokens - done))
        done += sizes[-1]
    return np.array(sizes)


def fit_chunk_costs(tokens, seconds, split, cut, *, rounds=60):
    """The two costs of `chunk_times` that describe measured times of prompts in a pipeline.

    Least squares of the relative errors. A time is a sum along the longest chain of the schedule,
    so it is linear in both costs.

    Parameters
    ----------
    tokens : sequence of int, shape (n,)
        Lengths of the prompts [token], at least two different ones.
    seconds : sequence of float, shape (n,)
        Their times [s], > 0.
    split : sequence of float, shape (P,)
        Layers of each stage [layer], or other numbers in proportion to its time.
    cut : callable
        ``cut(tokens, linear, quadratic)`` returns the sizes of the chunks of a prompt [token].
    rounds : int
        Rounds of the iteration: which chain is the longest, and where a prompt is cut, depend on
        the costs.

    Returns
    -------
    tuple of float
        Linear [s/token] and quadratic [s/token^2] cost.

    Raises
    ------
    ValueError
        If the lists do not fit, or no positive linear cost describes the times.

    Notes
    -----
    Source: least squares.

    Examples
    --------
    >>> a, b = fit_chunk_costs([10, 20], [15.0, 40.0], [1], lambda n, a, b: [n])
    >>> round(a, 6), round(b, 6)
    (1.0, 0.1)
    """
    (tokens,), (seconds,) = dims(tokens=tokens), positive(seconds=finite("seconds", seconds))
    (share,) = positive(split=finite("split", split))
    if share.ndim != 1:
        raise ValueError(f"split must be a list of numbers, one a stage, got {split!r}")
    if tokens.ndim != 1 or tokens.shape != seconds.shape or len(set(tokens)) < 2:
        got = f"got {tokens} and {seconds}"
        raise ValueError(
            f"tokens and seconds must be lists of equal length with two different lengths, {got}"
        )
    share = share / share.sum()
    costs = np.linalg.lstsq(
        np.column_stack((tokens, tokens**2 / 2)), seconds / share.max(), rcond=None
    )[0]
    costs = np.array([max(costs[0], 1e-3 * seconds[0] / tokens[0]), max(costs[1], 0.0)])
    for _ in range(rounds):
        rows = [_chain(np.asarray(cut(int(n), *costs), dtype=float), costs, share) for n in tokens]
        best = np.linalg.lstsq(
            np.array(rows) / seconds[:, None], np.ones(seconds.size), rcond=None
        )[0]
        costs = np.array([(costs[0] + best[0]) / 2, max((costs[1] + best[1]) / 2, 0.0)])
        if costs[0] <= 0:
            raise ValueError(
                f"seconds must allow a positive linear cost, got {costs[0]:.3g} s/token for "
                "chunks cut that way"
            )
    if best[1] < 0 and not costs[1] and abs(best[1]) * tokens.max() > 1e-9 * costs[0]:
        raise ValueError(
            f"seconds must allow a quadratic cost >= 0, got {best[1]:.3g} s/token^2 for chunks "
            "cut that way"
        )
    return float(costs[0]), float(costs[1])


def _chain(sizes, costs, share):
    """What the linear and the quadratic cost are multiplied with along the longest chain [token],
    [token^2].
    """
    parts = np.array(_parts(sizes))
    ends = schedule((costs @ parts)[:, None] * share)[1]
    i, s = ends.shape[0] - 1, ends.shape[1] - 1
    found = parts[:, i] * share[s]
    while i or s:  # back to whatever ended last
        i, s = (i - 1, s) if s == 0 or (i and ends[i - 1, s] >= ends[i, s - 1]) else (i, s - 1)
        found = found + parts[:, i] * share[s]
    return found


def _coefficients(linear, quadratic):
    linear, quadratic = single("linear", linear), single("quadratic", quadratic)
    positive(linear=linear)
    if quadratic < 0:
        raise ValueError(f"quadratic must be >= 0, got {quadratic:g}")
    return linear, quadratic


def _parts(sizes):
    """Tokens of each chunk [token], and pairs of one of them and a token that it sees [token^2]."""
    return sizes, sizes * (np.cumsum(sizes, axis=-1) - sizes / 2)


def _tokens_in(seconds, linear, quadratic):
    """The x of ``linear x + quadratic x^2 / 2 = seconds`` [token]; in this form also where
    `quadratic` is 0.
    """
    return 2 * seconds / (linear + np.sqrt(linear**2 + 2 * quadratic * seconds))
