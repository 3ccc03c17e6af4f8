"""Pipelines: layers split over stages, and a prompt or a batch that flows through them in chunks.

A stage works on one chunk at a time, in order; a chunk enters a stage when the stage before has handed it over. What is called a
chunk here is a micro-batch where a batch is cut instead of a prompt.

Source: Y. Huang et al., "GPipe", arXiv 1811.06965, and D. Narayanan et al., arXiv 2104.04473, for the two ways to count a bubble;
Z. Li et al., "TeraPipe", arXiv 2102.07988, for chunks of one sequence that shrink.
"""

import numpy as np

from hwdesign._check import dims, finite, numbers, positive, same_shape, scalar_or_array, whole


def bubble_share(stages, chunks):
    """Share of the whole time that a stage idles, equal stages and equal chunks: ``(P - 1) / (C + P - 1)``.

    Parameters
    ----------
    stages, chunks : array_like of int, broadcastable
        Stages P of the pipeline and chunks C that pass it, all >= 1.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Idle time over all time [dimensionless], 0 to 1.

    Raises
    ------
    ValueError
        If a number is below 1 or not whole.

    Notes
    -----
    Source: GPipe, arXiv 1811.06965, section 2.3. Megatron-LM counts by ideal time instead: `bubble_overhead`.

    Examples
    --------
    >>> round(float(bubble_share(4, 4)), 4)
    0.4286
    """
    stages, chunks = _counts(stages, chunks)
    return scalar_or_array((stages - 1) / (chunks + stages - 1))


def bubble_overhead(stages, chunks):
    """Idle time over the time of a pipeline that is never idle, equal stages and equal chunks: ``(P - 1) / C``.

    Parameters
    ----------
    stages, chunks : array_like of int, broadcastable
        Stages P of the pipeline and chunks C that pass it, all >= 1.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Idle time over ideal time [dimensionless], >= 0; above 1 where there are fewer chunks than idle stages.

    Raises
    ------
    ValueError
        If a number is below 1 or not whole.

    Notes
    -----
    Source: Megatron-LM, arXiv 2104.04473, section 2.2. As a share of the whole time: `bubble_share`.

    Examples
    --------
    >>> float(bubble_overhead(4, 4))
    0.75
    """
    stages, chunks = _counts(stages, chunks)
    return scalar_or_array((stages - 1) / chunks)


def pipeline_time(stage_times, chunks):
    """Time until the last of equal chunks has left the last stage: ``sum(stage_times) + (C - 1) max(stage_times)``.

    Parameters
    ----------
    stage_times : array_like of float, shape (..., P)
        Time of one chunk in each stage [s], >= 0.
    chunks : array_like of int, broadcastable to (...)
        Chunks C, >= 1.

    Returns
    -------
    float or ndarray of float, shape (...)
        Time [s].

    Raises
    ------
    ValueError
        If there is no stage, a time is negative or not finite, or `chunks` is below 1 or not whole.

    Notes
    -----
    The first chunk passes all stages; from then on the slowest stage sets the beat. Handing over takes no time.
    Source: elementary; `schedule` gives the same by simulation.

    Examples
    --------
    >>> float(pipeline_time([1, 2, 1], 3))
    8.0
    """
    stage_times, (chunks,) = _times("stage_times", stage_times, 1), dims(chunks=chunks)
    total, longest, chunks = same_shape(stage_times=stage_times.sum(-1), longest=stage_times.max(-1), chunks=chunks)
    return scalar_or_array(total + (chunks - 1) * longest)


def schedule(times, *, send=0.0):
    """When each chunk enters and leaves each stage, for any times.

    Parameters
    ----------
    times : array_like of float, shape (..., C, P)
        Time of each of C chunks in each of P stages [s], >= 0.
    send : array_like of float, broadcastable to (..., C)
        Time from the end of a chunk in a stage until the next stage has it [s]; the stage works on meanwhile.

    Returns
    -------
    tuple of ndarray of float, each of shape (..., C, P)
        Starts and ends [s], the first start at 0. The time of the whole is the last of the ends.

    Raises
    ------
    ValueError
        If there is no chunk or no stage, or a time is negative or not finite.

    Notes
    -----
    A chunk starts as soon as its stage is free and the stage before has handed it over. Chunks stay in order.
    Source: elementary.

    Examples
    --------
    >>> schedule([[1, 2], [3, 1]])[1].tolist()
    [[1.0, 3.0], [4.0, 5.0]]
    """
    times = _times("times", times, 2)
    send = finite("send", send)
    if send.size and send.min() < 0:
        raise ValueError(f"send must be >= 0, got {send.min():g}")
    try:
        delay = np.broadcast_to(send, times.shape[:-1])
    except ValueError:
        raise ValueError(f"send must fit times without their stages, {times.shape[:-1]}, got shape {send.shape}") from None
    starts, ends, ready = np.zeros_like(times), np.zeros_like(times), np.zeros(times.shape[:-1])
    for s in range(times.shape[-1]):
        busy = np.cumsum(times[..., s], axis=-1)  # a chunk ends after all work since the last time that its stage was idle
        done = busy + np.maximum.accumulate(ready - (busy - times[..., s]), axis=-1)
        starts[..., s] = np.maximum(ready, np.concatenate((np.zeros_like(done[..., :1]), done[..., :-1]), axis=-1))
        ends[..., s] = starts[..., s] + times[..., s]
        ready = ends[..., s] + delay
    return starts, ends


def idle_share(times, *, send=0.0):
    """Share of all stages' time, from the first start to the last end, in which they do not work.

    Parameters
    ----------
    times : array_like of float, shape (..., C, P)
        Time of each chunk in each stage [s], >= 0, not all 0.
    send : array_like of float, broadcastable to (..., C)
        Time to hand a chunk over [s].

    Returns
    -------
    float or ndarray of float, shape (...)
        Share [dimensionless]; `bubble_share` where all times are equal.

    Raises
    ------
    ValueError
        As for `schedule`, or if all times are 0.

    Notes
    -----
    Source: `schedule`.

    Examples
    --------
    >>> round(float(idle_share([[1] * 4] * 4)), 4)
    0.4286
    """
    times = _times("times", times, 2)
    whole_time = schedule(times, send=send)[1][..., -1, -1]
    if not np.all(times.max((-1, -2)) > 0):
        raise ValueError("times must not all be 0, got 0")
    return scalar_or_array(1 - times.sum((-1, -2)) / (times.shape[-1] * whole_time))


def chunk_times(sizes, linear, quadratic):
    """Time of each chunk of a prompt under causal attention, all layers together: ``a c + b c (before + c / 2)``.

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
        Times [s]. With equal chunks the i-th takes ``a c + b c^2 (i - 1/2)``; all together take ``a S + b S^2 / 2``.

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
    return linear * sizes + quadratic * sizes * (np.cumsum(sizes, axis=-1) - sizes / 2)


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
        Sizes [token], whole, each >= 1; they sum to `tokens`. Rounding leaves times unequal by that of a unit.

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
    ends = 2 * done / (linear + np.sqrt(linear**2 + 2 * quadratic * done))  # the root, also where quadratic is 0
    ends = np.append(np.round(ends[:-1] / multiple) * multiple, tokens)
    sizes = np.diff(ends).astype(np.int64)
    if sizes.min() < 1:
        units = f"{tokens} tokens in multiples of {multiple}"
        raise ValueError(f"chunks must leave every chunk at least one token, got {chunks} for {units}")
    return sizes


def best_chunks(work, fixed, stages):
    """Number of equal chunks that finishes first if each chunk costs a fixed time besides its share: ``sqrt((P - 1) W / f)``.

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
    """Sizes of chunks as SGLang's dynamic chunking cuts them: each is to take as long as the first one, but only in part.

    With x tokens done and d the solution of ``(a + b x) d + b d^2 / 2 = a c + b c^2 / 2``, the next chunk is
    ``c + smooth (d - c)``, at least c / 4, rounded down to a `multiple`; the first is c itself.

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
    Source: SGLang team, *Pipeline Parallelism in SGLang*, 2026-01-15, and its documentation (multiples of 64).

    Examples
    --------
    >>> smoothed_chunks(1024, 512, 1.0, 0.01, 1.0).tolist()
    [512, 192, 192, 128]
    """
    tokens, first, multiple = whole(tokens=tokens, first=first, multiple=multiple)
    linear, quadratic = _coefficients(linear, quadratic)
    smooth = _single("smooth", smooth)
    if not 0 <= smooth <= 1:
        raise ValueError(f"smooth must be from 0 to 1, got {smooth:g}")
    if multiple > first:
        raise ValueError(f"multiple must be <= first = {first}, got {multiple}")
    sizes, done, cost = [min(first, tokens)], min(first, tokens), linear * first + quadratic * first**2 / 2
    while done < tokens:
        price = linear + quadratic * done
        equal = 2 * cost / (price + np.sqrt(price**2 + 2 * quadratic * cost))
        size = max(first + smooth * (equal - first), first / 4) * (1 + 1e-9)  # what is a multiple but for rounding stays one
        sizes.append(min(max(int(size) // multiple, 1) * multiple, tokens - done))
        done += sizes[-1]
    return np.array(sizes)


def fit_chunk_costs(tokens, seconds, split, cut, *, rounds=60):
    """The two costs of `chunk_times` that describe measured times of prompts in a pipeline.

    Least squares of the relative errors. A time is a sum along the longest chain of the schedule, so it is linear in both costs.

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
        Rounds of the iteration: which chain is the longest, and where a prompt is cut, depend on the costs.

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
        raise ValueError(f"tokens and seconds must be lists of equal length with two different lengths, {got}")
    share = share / share.sum()
    costs = np.linalg.lstsq(np.column_stack((tokens, tokens**2 / 2)), seconds / share.max(), rcond=None)[0]
    costs = np.array([max(costs[0], 1e-3 * seconds[0] / tokens[0]), max(costs[1], 0.0)])
    for _ in range(rounds):
        rows = [_chain(np.asarray(cut(int(n), *costs), dtype=float), costs, share) for n in tokens]
        best = np.linalg.lstsq(np.array(rows) / seconds[:, None], np.ones(seconds.size), rcond=None)[0]
        costs = np.array([(costs[0] + best[0]) / 2, max((costs[1] + best[1]) / 2, 0.0)])
        if costs[0] <= 0:
            raise ValueError(f"seconds must allow a positive linear cost, got {costs[0]:.3g} s/token for chunks cut that way")
    if best[1] < 0 and not costs[1] and abs(best[1]) * tokens.max() > 1e-9 * costs[0]:
        raise ValueError(f"seconds must allow a quadratic cost >= 0, got {best[1]:.3g} s/token^2 for chunks cut that way")
    return float(costs[0]), float(costs[1])


def _chain(sizes, costs, share):
    """What the linear and the quadratic cost are multiplied with along the longest chain [token], [token^2]."""
    parts = np.array([sizes, sizes * (np.cumsum(sizes) - sizes / 2)])
    ends = schedule((costs @ parts)[:, None] * share)[1]
    i, s = ends.shape[0] - 1, ends.shape[1] - 1
    found = parts[:, i] * share[s]
    while i or s:  # back to whatever ended last
        i, s = (i - 1, s) if s == 0 or (i and ends[i - 1, s] >= ends[i, s - 1]) else (i, s - 1)
        found = found + parts[:, i] * share[s]
    return found


def split_layers(costs, stages, *, first=0.0, last=0.0):
    """The contiguous split of unequal layers whose dearest stage is cheapest.

    Parameters
    ----------
    costs : array_like of float, shape (n,)
        Cost of each layer in order [any unit], >= 0.
    stages : int
        Stages, at most n; each gets at least one layer.
    first, last : float
        What the first and the last stage cost besides [same unit]: the embedding and the head.

    Returns
    -------
    tuple of int
        Layers of each stage [layer]; they sum to n. Of the splits whose largest stage is smallest it is the most even one (least
        sum of squares), and of those the one with more layers in front.

    Raises
    ------
    ValueError
        If there are fewer layers than stages, or a cost is negative or not finite.

    Notes
    -----
    Dynamic programming over (layers placed, stages filled), twice: for the largest stage, then for the sum of squares below it.
    With equal chunks the sum of the stages is fixed, so the split with the smallest maximum has the least `pipeline_time`.
    Source: the linear partition problem, e.g. S. Skiena, "The Algorithm Design Manual".

    Examples
    --------
    >>> split_layers([1] * 61, 4), split_layers([1, 1, 1, 5], 2)
    ((16, 15, 15, 15), (3, 1))
    """
    costs, (stages,) = finite("costs", costs), whole(stages=stages)
    if costs.ndim != 1 or costs.size < stages:
        raise ValueError(f"costs must list at least stages = {stages} layers, got shape {costs.shape}")
    first, last = _single("first", first), _single("last", last)
    for name, value in (("costs", costs.min()), ("first", first), ("last", last)):
        if value < 0:
            raise ValueError(f"{name} must be >= 0, got {value:g}")
    total = costs.sum() + first + last or 1.0
    if not np.isfinite(total):
        raise ValueError("costs must have a sum below 1.8e308, got a larger one")
    sums, first, last = np.concatenate(([0.0], np.cumsum(costs / total))), first / total, last / total

    def stage(s, i):
        """Cost of stage s if it begins with layer i, for every end behind it."""
        return sums[i + 1 :] - sums[i] + first * (s == 0) + last * (s == stages - 1)

    largest = _fill(stage, costs.size, stages, np.maximum)[0]
    counts = _fill(lambda s, i: _squares(stage(s, i), largest), costs.size, stages, np.add)[1]
    return tuple(counts)


SAME = 1e-12  # shares that differ by less are equal: sums of floats differ in the last digits


def _squares(cost, largest):
    return np.where(cost <= largest + SAME, cost**2, np.inf)


def _fill(stage, n, stages, join):
    """Least joined value of all stages, and the layers of each; of equal values the one with most layers in front."""
    best, take = np.full((stages + 1, n + 1), np.inf), np.zeros((stages, n + 1), dtype=int)
    best[stages, n] = 0.0
    for s in reversed(range(stages)):
        for i in range(n):
            value = join(stage(s, i), best[s + 1, i + 1 :])
            best[s, i] = value.min()
            take[s, i] = np.flatnonzero(value <= best[s, i] + SAME)[-1] + 1
    counts = []
    for s in range(stages):
        counts.append(int(take[s, sum(counts)]))
    return best[0, 0], counts


def _counts(stages, chunks):
    stages, chunks = dims(stages=stages, chunks=chunks)
    return same_shape(stages=stages, chunks=chunks)


def _single(name, value):
    """One finite number."""
    array = finite(name, value)
    if array.ndim:
        raise ValueError(f"{name} must be one number, got {value!r}")
    return float(array)


def _coefficients(linear, quadratic):
    linear, quadratic = _single("linear", linear), _single("quadratic", quadratic)
    positive(linear=linear)
    if quadratic < 0:
        raise ValueError(f"quadratic must be >= 0, got {quadratic:g}")
    return linear, quadratic


def _times(name, value, least):
    """Times >= 0 [s] with at least `least` axes, none of them empty."""
    value = finite(name, numbers(name, value))
    if value.ndim < least or not value.size:
        axes = "an axis of stages" if least == 1 else "axes of chunks and of stages"
        raise ValueError(f"{name} must have {axes}, none of them empty, got shape {value.shape}")
    if value.min() < 0:
        raise ValueError(f"{name} must be >= 0, got {value.min():g}")
    return value
