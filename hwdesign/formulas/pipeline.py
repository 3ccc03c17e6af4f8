"""Pipelines: layers split over stages, and a prompt or a batch that flows through them in chunks.

A stage works on one chunk at a time, in order; a chunk enters a stage when the stage before has
handed it over. What is called a chunk here is a micro-batch where a batch is cut instead of a
prompt.

Source: Y. Huang et al., "GPipe", arXiv 1811.06965, and D. Narayanan et al., arXiv 2104.04473, for
the two ways to count a bubble.
"""

import numpy as np

from hwdesign._check import (
    choice,
    dims,
    finite,
    numbers,
    same_shape,
    scalar_or_array,
    single,
    whole,
)


def bubble_share(stages, chunks):
    """Share of the whole time that a stage idles, equal stages and equal chunks:
    ``(P - 1) / (C + P - 1)``.

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
    Source: GPipe, arXiv 1811.06965, section 2.3. Megatron-LM counts by ideal time instead:
    `bubble_overhead`.

    Examples
    --------
    >>> round(float(bubble_share(4, 4)), 4)
    0.4286
    """
    stages, chunks = _counts(stages, chunks)
    return scalar_or_array((stages - 1) / (chunks + stages - 1))


def bubble_overhead(stages, chunks):
    """Idle time over the time of a pipeline that is never idle, equal stages and equal chunks:
    ``(P - 1) / C``.

    Parameters
    ----------
    stages, chunks : array_like of int, broadcastable
        Stages P of the pipeline and chunks C that pass it, all >= 1.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Idle time over ideal time [dimensionless], >= 0; above 1 where there are fewer chunks than
        idle stages.

    Raises
    ------
    ValueError
        If a number is below 1 or not whole.

    Notes
    -----
    Source: Megatron-LM, arXiv 2104.04473, section 2.2. As a share of the whole time:
    `bubble_share`.

    Examples
    --------
    >>> float(bubble_overhead(4, 4))
    0.75
    """
    stages, chunks = _counts(stages, chunks)
    return scalar_or_array((stages - 1) / chunks)


def pipeline_time(stage_times, chunks):
    """Time until the last of equal chunks has left the last stage:
    ``sum(stage_times) + (C - 1) max(stage_times)``.

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
    The first chunk passes all stages; from then on the slowest stage sets the beat. Handing over
    takes no time. Source: elementary; `schedule` gives the same by simulation.

    Examples
    --------
    >>> float(pipeline_time([1, 2, 1], 3))
    8.0
    """
    stage_times, (chunks,) = _times("stage_times", stage_times, 1), dims(chunks=chunks)
    total, longest, chunks = same_shape(
        stage_times=stage_times.sum(-1), longest=stage_times.max(-1), chunks=chunks
    )
    return scalar_or_array(total + (chunks - 1) * longest)


def schedule(times, *, send=0.0):
    """When each chunk enters and leaves each stage, for any times.

    Parameters
    ----------
    times : array_like of float, shape (..., C, P)
        Time of each of C chunks in each of P stages [s], >= 0.
    send : array_like of float, broadcastable to (..., C)
        Time from the end of a chunk in a stage until the next stage has it [s]; the stage works on
        meanwhile.

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
    A chunk starts as soon as its stage is free and the stage before has handed it over. Chunks stay
    in order. Source: elementary.

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
        raise ValueError(
            f"send must fit times without their stages, {times.shape[:-1]}, got shape {send.shape}"
        ) from None
    starts, ends, ready = np.zeros_like(times), np.zeros_like(times), np.zeros(times.shape[:-1])
    for s in range(times.shape[-1]):
        busy = np.cumsum(
            times[..., s], axis=-1
        )  # a chunk ends after all work since the last time that its stage was idle
        done = busy + np.maximum.accumulate(ready - (busy - times[..., s]), axis=-1)
        starts[..., s] = np.maximum(
            ready, np.concatenate((np.zeros_like(done[..., :1]), done[..., :-1]), axis=-1)
        )
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


MOST_STAGES = 100_000  # of a pipeline, whose layers are listed one by one
EXTRA = ("first", "middle", "last")  # where engines put layers that do not divide


def stage_layers(layers, pp, *, extra="first"):
    """Layers of each pipeline stage when a model is cut into equally many, as far as that divides.

    Parameters
    ----------
    layers, pp : int
        Layers of the model and pipeline stages, ``pp <= layers`` and at most 100,000.
    extra : str
        Which stages take one more where it does not divide: the "first" (TensorRT-LLM), the "last"
        (SGLang), or the "middle" ones, counted from the last but one forwards (vLLM), since the
        first stage also embeds and the last one has the head.

    Returns
    -------
    tuple of int
        Layers a stage [layer]; they sum to `layers` and differ by at most one.

    Raises
    ------
    ValueError
        If a number is below 1, there are more stages than layers, or `extra` is another word.

    Notes
    -----
    Source: TensorRT-LLM, tensorrt_llm/mapping.py; vLLM, vllm/distributed/utils.py, get_pp_indices;
    SGLang's function of the same name. Megatron-LM issue 1304: rounding down dropped two of 30
    layers.

    Examples
    --------
    >>> stage_layers(30, 4), stage_layers(61, 4), stage_layers(61, 4, extra="middle")
    ((8, 8, 7, 7), (16, 15, 15, 15), (15, 15, 16, 15))
    """
    layers, pp = whole(layers=layers, pp=pp)
    if pp > layers:
        raise ValueError(f"pp must be <= layers = {layers}, got {pp}")
    extra = choice("extra", extra, EXTRA)
    each, left = divmod(layers, pp)
    if pp > MOST_STAGES:
        raise ValueError(f"pp must be <= {MOST_STAGES}, got {pp}")
    start = {"first": 0, "middle": pp - 1 - left, "last": pp - left}[extra]
    return tuple(each + (start <= stage < start + left) for stage in range(pp))


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
        Layers of each stage [layer]; they sum to n. Of the splits whose largest stage is smallest
        it is the most even one (least sum of squares), and of those the one with more layers in
        front.

    Raises
    ------
    ValueError
        If there are fewer layers than stages, or a cost is negative or not finite.

    Notes
    -----
    Dynamic programming over (layers placed, stages filled), twice: for the largest stage, then for
    the sum of squares below it. With equal chunks the sum of the stages is fixed, so the split with
    the smallest maximum has the least `pipeline_time`. Source: the linear partition problem, e.g.
    S. Skiena, "The Algorithm Design Manual".

    Examples
    --------
    >>> split_layers([1] * 61, 4), split_layers([1, 1, 1, 5], 2)
    ((16, 15, 15, 15), (3, 1))
    """
    costs, (stages,) = finite("costs", costs), whole(stages=stages)
    if costs.ndim != 1 or costs.size < stages:
        raise ValueError(
            f"costs must list at least stages = {stages} layers, got shape {costs.shape}"
        )
    first, last = single("first", first), single("last", last)
    for name, value in (("costs", costs.min()), ("first", first), ("last", last)):
        if value < 0:
            raise ValueError(f"{name} must be >= 0, got {value:g}")
    total = costs.sum() + first + last or 1.0
    if not np.isfinite(total):
        raise ValueError("costs must have a sum below 1.8e308, got a larger one")
    sums, first, last = (
        np.concatenate(([0.0], np.cumsum(costs / total))),
        first / total,
        last / total,
    )

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
    """Least joined value of all stages, and the layers of each; of equal values the one with most
    layers in front.
    """
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


def _times(name, value, least):
    """Times >= 0 [s] with at least `least` axes, none of them empty."""
    value = finite(name, numbers(name, value))
    if value.ndim < least or not value.size:
        axes = "an axis of stages" if least == 1 else "axes of chunks and of stages"
        raise ValueError(f"{name} must have {axes}, none of them empty, got shape {value.shape}")
    if value.min() < 0:
        raise ValueError(f"{name} must be >= 0, got {value.min():g}")
    return value
