"""How unevenly tokens meet experts and devices: routing drawn by a seeded simulation, and where
experts are placed.

A placement is an array of expert numbers, one row a device, one column a slot. An expert may stand
in several slots: it then has copies, which share its tokens.

Source: elementary probability; DeepSeek's balancer (deepseek-ai/EPLB, commit d52c72d) for the two
greedy rules, in our words.
"""

import numpy as np

from hwdesign._check import finite, numbers, scalar_or_array, whole

CHUNK = 4096  # tokens drawn at once, which bounds the memory


def zipf_shares(num_experts, exponent):
    """Popularity of experts by Zipf's law: the share of the one of rank r is proportional to
    ``r**-exponent``.

    Parameters
    ----------
    num_experts : int
        Experts.
    exponent : float
        0 is uniform, 1 the classical law [dimensionless], >= 0.

    Returns
    -------
    ndarray of float, shape (num_experts,)
        Shares [dimensionless] from the most to the least popular; their sum is 1.

    Raises
    ------
    ValueError
        If `num_experts` is below 1 or not whole, or the exponent negative or not finite.

    Notes
    -----
    Source: G. K. Zipf, "Human Behavior and the Principle of Least Effort", 1949.

    Examples
    --------
    >>> (11 * zipf_shares(3, 1)).round(9).tolist()
    [6.0, 3.0, 2.0]
    """
    (num_experts,) = whole(num_experts=num_experts)
    exponent = finite("exponent", exponent)
    if exponent.ndim or exponent < 0:
        raise ValueError(f"exponent must be one number >= 0, got {exponent}")
    weight = np.arange(1.0, num_experts + 1) ** -exponent
    return weight / weight.sum()


def routed_tokens(tokens, top_k, num_experts, *, exponent=0.0, draws=1, seed=0):
    """Tokens that each expert receives, drawn at random: a token takes `top_k` different experts,
    popular ones more often.

    Parameters
    ----------
    tokens : int
        Tokens routed together [token].
    top_k, num_experts : int
        Experts a token uses, and experts there are.
    exponent : float
        Of `zipf_shares`; 0 is uniform routing.
    draws : int
        How often the whole batch is drawn.
    seed : int
        Of the random generator.

    Returns
    -------
    ndarray of int, shape (draws, num_experts)
        Tokens an expert receives [token], the most popular expert first; a row sums to
        ``tokens * top_k``.

    Raises
    ------
    ValueError
        If a number is below 1 or not whole, or `top_k` exceeds `num_experts`.

    Notes
    -----
    A token takes one expert after the other, each with a chance proportional to its share of those
    that are left. That is a race: expert e arrives after an exponential time of rate `share[e]`,
    and the first `top_k` win. Tokens choose independently, which those of one real batch do not
    quite. Source: P. Efraimidis, P. Spirakis, "Weighted random sampling with a reservoir", 2006.

    Examples
    --------
    >>> routed_tokens(4, 2, 8, draws=3).sum(axis=1).tolist()
    [8, 8, 8]
    """
    tokens, top_k, num_experts, draws = whole(
        tokens=tokens, top_k=top_k, num_experts=num_experts, draws=draws
    )
    if top_k > num_experts:
        raise ValueError(f"top_k must be <= num_experts = {num_experts}, got {top_k}")
    rng, late = (
        np.random.default_rng(seed),
        (1 / zipf_shares(num_experts, exponent)).astype(np.float32),
    )
    counts = np.zeros((draws, num_experts), dtype=np.int64)
    for row in counts:
        for start in range(0, tokens, CHUNK):
            race = (
                rng.standard_exponential(
                    (min(CHUNK, tokens - start), num_experts), dtype=np.float32
                )
                * late
            )
            chosen = np.argpartition(race, top_k - 1, axis=1)[:, :top_k]
            row += np.bincount(chosen.ravel(), minlength=num_experts)
    return counts


def imbalance(loads):
    """Load of the fullest over the mean: ``max / mean`` along the last axis.

    Parameters
    ----------
    loads : array_like of float, shape (..., n)
        Loads of n experts or devices [any unit], >= 0 and not all 0.

    Returns
    -------
    float or ndarray of float, shape (...)
        Ratio [dimensionless], >= 1. Where all wait for the last it is how much longer the work
        takes than with equal loads.

    Raises
    ------
    ValueError
        If a load is negative or not finite, or all loads of a row are 0.

    Notes
    -----
    Source: definition. TensorRT-LLM prints ``(max - mean) / mean``, SGLang and vLLM ``mean / max``.

    Examples
    --------
    >>> float(imbalance([4, 2, 2, 0]))
    2.0
    """
    loads = finite("loads", loads)
    if not loads.ndim or (loads < 0).any() or not (loads.sum(axis=-1) > 0).all():
        raise ValueError(f"loads must be a list of numbers >= 0 with a positive sum, got {loads}")
    return scalar_or_array(loads.max(axis=-1) / loads.mean(axis=-1))


def even_placement(num_experts, devices, *, seed=None):
    """Equal numbers of experts on each device, without copies.

    Parameters
    ----------
    num_experts : int
        Experts.
    devices : int
        Devices; divides `num_experts`.
    seed : int, optional
        Shuffles the experts first; without it they keep their order.

    Returns
    -------
    ndarray of int, shape (devices, num_experts / devices)
        Expert in each slot [dimensionless].

    Raises
    ------
    ValueError
        If `devices` does not divide `num_experts`.

    Notes
    -----
    Source: what engines do by default. The most popular experts have neighbouring numbers only in
    our simulation, so shuffle them where popularity differs.

    Examples
    --------
    >>> even_placement(6, 3).tolist()
    [[0, 1], [2, 3], [4, 5]]
    """
    num_experts, devices = whole(num_experts=num_experts, devices=devices)
    if num_experts % devices:
        raise ValueError(f"devices must divide num_experts = {num_experts}, got {devices}")
    order = (
        np.arange(num_experts)
        if seed is None
        else np.random.default_rng(seed).permutation(num_experts)
    )
    return order.reshape(devices, -1)


def balanced_placement(loads, devices, *, slots=None):
    """Copies for the hottest experts, and all of them spread so that devices are loaded alike: two
    greedy rules.

    First: a spare slot goes to the expert with the largest load a copy, again and again. Then: from
    the hottest copy down, each goes to the device with the least load that still has a free slot.

    Parameters
    ----------
    loads : array_like of float, shape (experts,)
        Load that is expected of each expert [any unit], >= 0.
    devices : int
        Devices; divides `slots`.
    slots : int, optional
        Slots of all devices, at least one an expert; by default as many as experts.

    Returns
    -------
    ndarray of int, shape (devices, slots / devices)
        Expert in each slot [dimensionless]; copies of one expert may share a device.

    Raises
    ------
    ValueError
        If the loads are no list of numbers >= 0, there are fewer slots than experts, or `devices`
        does not divide `slots`.

    Notes
    -----
    The first rule makes the largest load a copy as small as it can be; the second is a heuristic.
    Source: deepseek-ai/EPLB (commit d52c72d), its global policy.

    Examples
    --------
    >>> balanced_placement([6, 2, 1], 2, slots=4).tolist()
    [[0, 1], [0, 2]]
    """
    loads = finite("loads", loads)
    if loads.ndim != 1 or not loads.size:
        raise ValueError(
            f"loads must be a list of numbers >= 0, got shape {loads.shape}; sum over the "
            "draws first"
        )
    if (loads < 0).any():
        raise ValueError(f"loads must be a list of numbers >= 0, got {loads.min():g}")
    devices, slots = whole(devices=devices, slots=loads.size if slots is None else slots)
    if slots < loads.size or slots % devices:
        raise ValueError(
            f"slots must be at least {loads.size} and a multiple of devices = {devices}, got "
            f"{slots}"
        )
    copies = np.ones(loads.size, dtype=np.int64)
    for _ in range(slots - loads.size):
        copies[np.argmax(loads / copies)] += 1
    experts = np.repeat(np.arange(loads.size), copies)
    each, rows = (loads / copies)[experts], [[] for _ in range(devices)]
    load, room = np.zeros(devices), slots // devices
    for i in np.argsort(-each, kind="stable"):
        free = [len(row) < room for row in rows]
        best = int(np.argmin(np.where(free, load, np.inf)))
        rows[best].append(int(experts[i]))
        load[best] += each[i]
    return np.array(rows)


def device_loads(tokens, placement):
    """Pairs of a token and an expert that each device works on; copies of an expert share its
    tokens equally.

    Parameters
    ----------
    tokens : array_like of float, shape (..., experts)
        Tokens an expert receives [token], from `routed_tokens`.
    placement : array_like of int, shape (devices, slots)
        Expert in each slot.

    Returns
    -------
    ndarray of float, shape (..., devices)
        Pairs [dimensionless]; they sum to those of all experts.

    Raises
    ------
    ValueError
        If the placement names an expert that is not there or leaves one out.

    Examples
    --------
    >>> device_loads([6, 2, 1], [[0, 1], [0, 2]]).tolist()
    [5.0, 4.0]
    """
    tokens, placement, copies = _placed(tokens, placement)
    return (tokens / copies)[..., placement].sum(axis=-1)


def touched_slots(tokens, placement, *, spread=True):
    """Slots of each device that at least one token visits, so that their weights must be read.

    Parameters
    ----------
    tokens : array_like of int, shape (..., experts)
        Tokens an expert receives [token], from `routed_tokens`.
    placement : array_like of int, shape (devices, slots)
        Expert in each slot.
    spread : bool
        Whether tokens of an expert go to all its copies in turn (loads are even), or to the first
        alone (few weights are read).

    Returns
    -------
    ndarray of int, shape (..., devices)
        Slots [dimensionless].

    Raises
    ------
    ValueError
        If the placement names an expert that is not there or leaves one out.

    Notes
    -----
    Source: definition; arXiv 2512.09277 for the two ways to send tokens to copies.

    Examples
    --------
    >>> (
    ...     touched_slots([6, 0, 1], [[0, 1], [0, 2]]).tolist(),
    ...     touched_slots([6, 0, 1], [[0, 1], [0, 2]], spread=False).tolist(),
    ... )
    ([1, 2], [1, 1])
    """
    tokens, placement, copies = _placed(tokens, placement)
    order = np.zeros(
        placement.size, dtype=np.int64
    )  # a slot's number among the copies of its expert
    by_expert = np.argsort(placement.ravel(), kind="stable")
    order[by_expert] = np.arange(placement.size) - np.repeat(np.cumsum(copies) - copies, copies)
    visited = np.minimum(tokens, copies if spread else 1)[..., placement]
    return (order.reshape(placement.shape) < visited).sum(axis=-1)


def _placed(tokens, placement):
    """Tokens, placement as whole numbers, and the copies of each expert."""
    tokens, placement = finite("tokens", tokens), numbers("placement", placement)
    if not tokens.ndim or (tokens < 0).any():
        raise ValueError(f"tokens must be a list of numbers >= 0, got {tokens}")
    known = placement.ndim == 2 and np.isin(placement, np.arange(tokens.shape[-1])).all()
    copies = (
        np.bincount(placement.ravel().astype(np.int64), minlength=tokens.shape[-1])
        if known
        else np.zeros(1)
    )
    if not (copies > 0).all():
        raise ValueError(
            f"placement must be a table that holds each of the {tokens.shape[-1]} experts, got "
            f"{placement}"
        )
    return tokens, placement.astype(np.int64), copies
