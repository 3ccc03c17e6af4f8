"""What is not beaten by anything else: the Pareto front of two rewards, the area under it, and two
pools in step.
"""

import numpy as np

from hwdesign._check import numbers, positive, scalar_or_array, whole


def pareto_front(*rewards):
    """Which points no other point beats: the Pareto front where every reward is to be large.

    Parameters
    ----------
    *rewards : array_like of float, shape (n,)
        Two rewards of each point, in any unit; NaN takes a point out.

    Returns
    -------
    ndarray of int
        Indices of the front, by falling first reward.

    Raises
    ------
    ValueError
        If there are not two rewards of one length.

    Notes
    -----
    A point is beaten by one that is at least as good in both rewards and better in one; of equal
    points the first stays. Source: definition.

    Examples
    --------
    >>> pareto_front([1, 2, 3, 2], [9, 5, 1, 4]).tolist()
    [2, 1, 0]
    """
    if (
        len(rewards) != 2
        or np.shape(rewards[0]) != np.shape(rewards[1])
        or np.ndim(rewards[0]) != 1
    ):
        raise ValueError(
            f"rewards must be two lists of one length, got shapes {[np.shape(r) for r in rewards]}"
        )
    first, second = (numbers("rewards", r) for r in rewards)
    order = np.lexsort((-second, -first))
    order = order[~(np.isnan(first) | np.isnan(second))[order]]
    best = (
        np.concatenate(([-np.inf], np.maximum.accumulate(second[order])[:-1]))
        if order.size
        else order
    )
    return order[second[order] > best]


def area_under(*rewards, between=(0.0, np.inf)):
    """Area under the Pareto front of some points, as a staircase: every point gives all that is
    worse than it, too.

    Parameters
    ----------
    *rewards : array_like of float, shape (n,)
        Two rewards of each point, >= 0, in any units; NaN takes a point out.
    between : tuple of (float, float)
        Range of the first reward to look at, in its unit.

    Returns
    -------
    float
        Area in the product of the units; 0 without a point.

    Raises
    ------
    ValueError
        If there are not two rewards of one length, one is negative, or the range does not rise from
        a number >= 0.

    Notes
    -----
    With a range from 0 to infinity it is the hypervolume of the front with the origin as reference.
    Source: Zitzler and Thiele 1998, "Multiobjective optimization using evolutionary algorithms".

    Examples
    --------
    >>> area_under([1, 2, 3], [9, 5, 1]), area_under([1, 2, 3], [9, 5, 1], between=(1.5, 2.5))
    (15.0, 3.0)
    """
    keep = pareto_front(*rewards)
    least = min(
        (np.nanmin(r) for r in map(np.asarray, rewards) if not np.isnan(r).all()), default=0.0
    )
    first, second = (numbers("rewards", r)[keep][::-1] for r in rewards)
    low, high = between
    if not 0 <= low < high:
        raise ValueError(f"between must be two rising numbers >= 0, got {between}")
    if least < 0:
        raise ValueError(f"rewards must be >= 0, got {least:g}")
    ends = np.clip(np.concatenate(([0.0], first)), low, high)
    return float(np.sum(np.diff(ends)[second > 0] * second[second > 0]))


def matched_rate(decode_rate, prefill_seconds, output_tokens):
    """Output tokens per second and GPU, of prefill and decode GPUs together, if neither pool waits
    for the other.

    Parameters
    ----------
    decode_rate : array_like of float
        Output tokens per second and *decode* GPU [token/s].
    prefill_seconds : array_like of float, broadcastable
        GPU seconds of one prompt's prefill [s].
    output_tokens : array_like of float, broadcastable
        Tokens of an answer [token].

    Returns
    -------
    float or ndarray of float, broadcast shape
        ``1 / (1 / decode_rate + prefill_seconds / output_tokens)`` [token/s].

    Raises
    ------
    ValueError
        If a number is not positive.

    Notes
    -----
    GPU seconds of a token add up: those of its decode step and its share of the prompt's. Source:
    TensorRT-LLM, blog 5, "Disaggregated Serving in TensorRT LLM" (rate matching with any ratio of
    the pools).

    Examples
    --------
    >>> round(float(matched_rate(1000.0, 2.0, 1000)), 1)
    333.3
    """
    decode_rate, prefill_seconds, output_tokens = positive(
        decode_rate=decode_rate, prefill_seconds=prefill_seconds, output_tokens=output_tokens
    )
    return scalar_or_array(1 / (1 / decode_rate + prefill_seconds / output_tokens))


def whole_workers(prefill, decode, gpus):
    """Whole numbers of prefill and decode workers that serve most requests per second and GPU.

    Parameters
    ----------
    prefill, decode : tuple of (float, int)
        Requests per second [1/s] and GPUs of one worker of each pool.
    gpus : int
        Most GPUs to use.

    Returns
    -------
    tuple of (int, int, float)
        Prefill workers, decode workers, requests per second and GPU in use [1/s].

    Raises
    ------
    ValueError
        If a number is out of range or one worker of each does not fit into `gpus`.

    Notes
    -----
    The slower pool sets the rate. Of equal rates the smallest number of GPUs is taken.

    Examples
    --------
    >>> whole_workers((2.0, 4), (1.0, 8), 24)
    (1, 2, 0.1)
    """
    (gpus,) = whole(gpus=gpus)
    rates = positive(prefill=prefill[0], decode=decode[0])
    sizes = whole(prefill=prefill[1], decode=decode[1])
    if sum(sizes) > gpus:
        raise ValueError(f"gpus must be >= {sum(sizes)} for one worker of each, got {gpus}")
    p, d = np.meshgrid(
        np.arange(1, gpus // sizes[0] + 1), np.arange(1, gpus // sizes[1] + 1), indexing="ij"
    )
    used = p * sizes[0] + d * sizes[1]
    rate = np.where(used <= gpus, np.minimum(p * rates[0], d * rates[1]) / used, -np.inf)
    best = np.lexsort((used.ravel(), -np.round(rate.ravel() / rate.max(), 12)))[0]
    return int(p.flat[best]), int(d.flat[best]), float(rate.flat[best])
