"""Bytes a GPU sends in a collective, and the time by latency and bandwidth.

Sources: R. Hockney, "The communication challenge for MPP", 1994 (latency and bandwidth, alpha and
beta); P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms", 2009 (the ring); the
performance notes of NCCL's test suite (factors).
"""

from hwdesign._check import dims, numbers, positive, scalar_or_array
from hwdesign.formulas.experts import expert_ranks


def transfer_time(nbytes, latency, bandwidth):
    """Time of a message: ``latency + nbytes / bandwidth`` (alpha and beta).

    Parameters
    ----------
    nbytes : array_like of float
        Bytes sent [byte], >= 0.
    latency : array_like of float
        Time of an empty message [s], >= 0.
    bandwidth : array_like of float
        One way [byte/s], > 0.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Time [s].

    Raises
    ------
    ValueError
        If a size or latency is negative or the bandwidth is not positive.

    Notes
    -----
    Source: Hockney 1994.

    Examples
    --------
    >>> round(float(transfer_time(1e6, 2e-6, 500e9)) * 1e6, 2)
    4.0
    """
    nbytes, latency, (bandwidth,) = (
        numbers("nbytes", nbytes),
        numbers("latency", latency),
        positive(bandwidth=bandwidth),
    )
    if not (nbytes >= 0).all() or not (latency >= 0).all():
        raise ValueError(f"nbytes and latency must be >= 0, got {nbytes} and {latency}")
    return scalar_or_array(latency + nbytes / bandwidth)


def all_gather_bytes(nbytes, ranks):
    """Bytes each rank sends to gather a tensor that is spread over all:
    ``nbytes * (ranks - 1) / ranks``.

    A reduce-scatter sends as many.

    Parameters
    ----------
    nbytes : array_like of float
        Size of the whole tensor [byte], > 0.
    ranks : array_like of int
        Ranks that hold equal parts of it.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Bytes sent by one rank [byte].

    Raises
    ------
    ValueError
        If the size is not positive or `ranks` is below 1.

    Notes
    -----
    Source: Patarasuk and Yuan 2009; NCCL's factor (n - 1) / n.

    Examples
    --------
    >>> float(all_gather_bytes(800.0, 8))
    700.0
    """
    (nbytes,), (ranks,) = positive(nbytes=nbytes), dims(ranks=ranks)
    return scalar_or_array(nbytes * (ranks - 1) / ranks)


def all_reduce_bytes(nbytes, ranks):
    """Bytes each rank sends to sum a tensor over all ranks: ``2 * nbytes * (ranks - 1) / ranks``.

    The least there is: a reduce-scatter, then an all-gather. It hardly grows with the number of
    ranks.

    Parameters
    ----------
    nbytes : array_like of float
        Size of the tensor, the same on every rank [byte], > 0.
    ranks : array_like of int
        Ranks.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Bytes sent by one rank [byte].

    Raises
    ------
    ValueError
        If the size is not positive or `ranks` is below 1.

    Notes
    -----
    Source: Patarasuk and Yuan 2009; NCCL's factor 2 (n - 1) / n.

    Examples
    --------
    >>> float(all_reduce_bytes(800.0, 8))
    1400.0
    """
    return 2 * all_gather_bytes(nbytes, ranks)


def one_shot_bytes(nbytes, ranks):
    """Bytes each rank sends when it gives its whole tensor to every other one:
    ``nbytes * (ranks - 1)``.

    More bytes than the ring and one exchange instead of two, so it wins for small tensors: decode.

    Parameters
    ----------
    nbytes : array_like of float
        Size of the tensor, the same on every rank [byte], > 0.
    ranks : array_like of int
        Ranks.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Bytes sent by one rank [byte].

    Raises
    ------
    ValueError
        If the size is not positive or `ranks` is below 1.

    Notes
    -----
    Source: definition; the one-shot kernels of the inference libraries work so.

    Examples
    --------
    >>> float(one_shot_bytes(800.0, 8))
    5600.0
    """
    (nbytes,), (ranks,) = positive(nbytes=nbytes), dims(ranks=ranks)
    return scalar_or_array(nbytes * (ranks - 1))


def remote_copies(top_k, num_experts, ep, *, balanced=False):
    """Copies of a token that leave its GPU in a dispatch: one for each *other* GPU that holds one
    of its experts.

    Uniform routing: `expert_ranks` ``* (1 - 1 / ep)``. Balanced (round-robin) routing spreads the
    experts of a token over as many GPUs as it can: ``min(ep, top_k) * (1 - 1 / ep)``.

    Parameters
    ----------
    top_k, num_experts : int
        Experts a token uses, and experts there are.
    ep : int
        GPUs that hold equal shares of the experts; divides `num_experts`.
    balanced : bool
        Whether routing is round-robin, as in published measurements.

    Returns
    -------
    float
        Copies sent for each token [dimensionless].

    Raises
    ------
    ValueError
        If `ep` does not divide `num_experts` or `top_k` exceeds it.

    Notes
    -----
    Source: hypergeometric distribution; a token goes to a GPU once, whatever number of its experts
    live there.

    Examples
    --------
    >>> round(float(remote_copies(8, 256, 8)), 2), float(remote_copies(8, 256, 8, balanced=True))
    (4.63, 7.0)
    """
    ranks = expert_ranks(top_k, num_experts, ep)
    return scalar_or_array((min(ep, top_k) if balanced else ranks) * (1 - 1 / ep))
