"""How tokens spread over the experts of a mixture of experts.

Source: the post, guideline 5 (GEMM-M); the distinct-experts formula is elementary probability.
"""

import numpy as np

from hwdesign._check import dims, positive, scalar_or_array


def expert_tokens(tokens, top_k, num_experts):
    """GEMM-M of one expert under uniform routing: ``tokens * top_k / num_experts``.

    Parameters
    ----------
    tokens : array_like of float
        Tokens in flight over all devices [token], > 0.
    top_k, num_experts : array_like of int
        Experts a token uses, and experts there are.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Mean tokens an expert receives [token]; may be below 1.

    Raises
    ------
    ValueError
        If an argument is not positive or `top_k` exceeds `num_experts`.

    Notes
    -----
    Source: the post, guideline 5.

    Examples
    --------
    >>> float(expert_tokens(256, 8, 256))
    8.0
    """
    (tokens,), (top_k, num_experts) = positive(tokens=tokens), _routing(top_k, num_experts)
    return scalar_or_array(tokens * top_k / num_experts)


def distinct_experts(tokens, top_k, num_experts):
    """Expected number of experts that at least one token uses: ``E * (1 - (1 - k/E)**tokens)``
    under uniform routing.

    Parameters
    ----------
    tokens : array_like of float
        Tokens routed together [token], > 0.
    top_k, num_experts : array_like of int
        Experts a token uses, and experts there are.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Experts whose weights must be read [expert]; at most ``min(num_experts, tokens * top_k)``.
        Skewed routing lowers it.

    Raises
    ------
    ValueError
        If an argument is not positive or `top_k` exceeds `num_experts`.

    Notes
    -----
    Source: a token misses an expert with probability 1 - k/E, independently of the others.

    Examples
    --------
    >>> float(distinct_experts(3, 2, 8)), round(float(distinct_experts(32, 8, 256)), 1)
    (4.625, 163.3)
    """
    (tokens,), (top_k, num_experts) = positive(tokens=tokens), _routing(top_k, num_experts)
    return scalar_or_array(num_experts * (1 - (1 - top_k / num_experts) ** tokens))


def expert_ranks(top_k, num_experts, ep):
    """Expected number of devices that a token's experts lie on, under uniform routing without
    repetition.

    ``ep * (1 - C(E - E/ep, k) / C(E, k))``: a token misses a device when all its experts lie
    elsewhere.

    Parameters
    ----------
    top_k, num_experts : int
        Experts a token uses, and experts there are.
    ep : int
        Devices that hold equal shares of the experts; divides `num_experts`.

    Returns
    -------
    float
        Devices [device], its own included where it holds one of the experts.

    Raises
    ------
    ValueError
        If `ep` does not divide `num_experts` or `top_k` exceeds it.

    Notes
    -----
    Source: hypergeometric distribution.

    Examples
    --------
    >>> round(float(expert_ranks(8, 256, 8)), 2), float(expert_ranks(8, 256, 1))
    (5.29, 1.0)
    """
    top_k, num_experts = _routing(top_k, num_experts)
    (ep,) = dims(ep=ep)
    if (num_experts % ep).any():
        raise ValueError(f"ep must divide num_experts = {num_experts:g}, got {ep:g}")
    drawn = np.arange(int(top_k))
    away = np.maximum(num_experts - num_experts / ep - drawn, 0) / (num_experts - drawn)
    return scalar_or_array(ep * (1 - np.prod(away)))


def _routing(top_k, num_experts):
    top_k, num_experts = dims(top_k=top_k, num_experts=num_experts)
    if (top_k > num_experts).any():
        raise ValueError(
            f"top_k must be <= num_experts, got {np.max(top_k):g} of {np.min(num_experts):g}"
        )
    return top_k, num_experts
