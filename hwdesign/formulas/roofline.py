"""The roofline of a matrix multiplication (GEMM), ``C[m, n] = A[m, k] @ B[k, n]``.

A holds the inputs, B the weights, C the outputs; `a`, `b`, `c` are the stored sizes of one element
of each [byte]. Dimensions broadcast against each other like the arguments of a NumPy ufunc.

One identity carries the room. Divide the bytes by the FLOP and every dimension pays for exactly one
operand::

    1 / intensity = (a / n + b / m + c / k) / 2

Reading A is shared by the n columns of B, reading B by the m rows of A, writing C by the k steps of
the sum. The smallest of n/a, m/b and k/c therefore sets the ceiling. Source: S. Williams, A.
Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM 52(4), 2009.
"""

import numpy as np

from hwdesign._check import dims, numbers, positive, same_shape, scalar_or_array


def gemm_flops(m, n, k):
    """FLOP of a GEMM: ``2 * m * n * k``, one multiplication and one addition per inner step.

    Parameters
    ----------
    m, n, k : array_like of int, broadcastable
        Dimensions [element], all >= 1: tokens, output features, input features.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Operations [FLOP]; half that many multiply-adds (MAC).

    Raises
    ------
    ValueError
        If a dimension is below 1 or not whole; the message names it.

    Notes
    -----
    Source: definition; the factor 2 is the convention of every vendor peak in the catalogue.

    Examples
    --------
    >>> float(gemm_flops(1024, 1024, 1024))
    2147483648.0
    """
    m, n, k = dims(m=m, n=n, k=k)
    return scalar_or_array(2 * m * n * k)


def gemm_read_bytes(m, n, k, *, a, b):
    """Bytes a GEMM must read: ``m*k*a + k*n*b``, each operand once.

    Parameters
    ----------
    m, n, k : array_like of int, broadcastable
        Dimensions [element], all >= 1.
    a, b : float
        Stored size of one element of A and of B [byte], block scales included.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Bytes read [byte], a lower bound: each operand crosses the memory bus once.

    Raises
    ------
    ValueError
        If a dimension is below 1 or an element size is not positive.

    Examples
    --------
    >>> float(gemm_read_bytes(256, 8192, 512, a=0.5625, b=0.5625))
    2433024.0
    """
    m, n, k = dims(m=m, n=n, k=k)
    a, b = positive(a=a, b=b)
    return scalar_or_array(m * k * a + k * n * b)


def gemm_write_bytes(m, n, *, c):
    """Bytes a GEMM must write: ``m*n*c``.

    Parameters
    ----------
    m, n : array_like of int, broadcastable
        Dimensions [element], all >= 1.
    c : float
        Stored size of one element of C [byte].

    Returns
    -------
    float or ndarray of float, broadcast shape
        Bytes written [byte], a lower bound.

    Raises
    ------
    ValueError
        If a dimension is below 1 or the element size is not positive.

    Examples
    --------
    >>> float(gemm_write_bytes(256, 8192, c=1.0))
    2097152.0
    """
    m, n = dims(m=m, n=n)
    (c,) = positive(c=c)
    return scalar_or_array(m * n * c)


def gemm_bytes(m, n, k, *, a, b, c):
    """Bytes a GEMM must move through memory: ``m*k*a + k*n*b + m*n*c``.

    Parameters
    ----------
    m, n, k : array_like of int, broadcastable
        Dimensions [element], all >= 1.
    a, b, c : float
        Stored size of one element of A, B, C [byte], block scales included.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Bytes read plus bytes written [byte], a lower bound.

    Raises
    ------
    ValueError
        If a dimension is below 1 or an element size is not positive.

    Examples
    --------
    >>> float(gemm_bytes(256, 8192, 512, a=0.5625, b=0.5625, c=1.0))
    4530176.0
    """
    m, n, k = dims(m=m, n=n, k=k)
    a, b, c = positive(a=a, b=b, c=c)
    return scalar_or_array(m * k * a + k * n * b + m * n * c)


def intensity(flops, moved):
    """Arithmetic intensity: operations per byte moved, ``flops / moved``.

    Parameters
    ----------
    flops : array_like of float
        Operations [FLOP], > 0.
    moved : array_like of float
        Bytes moved [byte], > 0.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Intensity [FLOP/byte].

    Raises
    ------
    ValueError
        If an argument is not positive.

    Notes
    -----
    Source: Williams, Waterman, Patterson 2009.

    Examples
    --------
    >>> shape = 256, 8192, 512
    >>> found = intensity(gemm_flops(*shape), gemm_bytes(*shape, a=0.5625, b=0.5625, c=1.0))
    >>> round(float(found))
    474
    """
    flops, moved = positive(flops=flops, moved=moved)
    return scalar_or_array(flops / moved)


def gemm_intensity(m, n, k, *, a, b, c):
    """Intensity of a GEMM by the harmonic identity ``2 / (a/n + b/m + c/k)``; a dimension may be
    infinite.

    Parameters
    ----------
    m, n, k : array_like of float, broadcastable
        Dimensions [element], > 0; ``np.inf`` gives the limit in that dimension.
    a, b, c : float
        Stored size of one element of A, B, C [byte].

    Returns
    -------
    float or ndarray of float, broadcast shape
        Intensity [FLOP/byte].

    Raises
    ------
    ValueError
        If an argument is not positive.

    Notes
    -----
    Source: the identity at the head of this module.

    Examples
    --------
    >>> round(float(gemm_intensity(np.inf, 8192, 512, a=0.5625, b=0.5625, c=1.0)))
    989
    """
    m, n, k, a, b, c = positive(m=m, n=n, k=k, a=a, b=b, c=c)
    with np.errstate(divide="ignore"):
        return scalar_or_array(2 / (a / n + b / m + c / k))


def ridge(peak_flops, bandwidth):
    """Intensity at which the memory roof meets the math roof: ``peak_flops / bandwidth``.

    Parameters
    ----------
    peak_flops : array_like of float
        Dense peak rate [FLOP/s].
    bandwidth : array_like of float
        Memory bandwidth [byte/s].

    Returns
    -------
    float or ndarray of float, broadcast shape
        Ridge [FLOP/byte].

    Raises
    ------
    ValueError
        If an argument is not positive.

    Notes
    -----
    Source: Williams, Waterman, Patterson 2009.

    Examples
    --------
    >>> float(ridge(15e15, 8e12))
    1875.0
    """
    peak_flops, bandwidth = positive(peak_flops=peak_flops, bandwidth=bandwidth)
    return scalar_or_array(peak_flops / bandwidth)


def attainable_flops(flop_per_byte, *, peak_flops, bandwidth):
    """The roofline itself: ``min(peak_flops, flop_per_byte * bandwidth)``.

    Parameters
    ----------
    flop_per_byte : array_like of float
        Arithmetic intensity [FLOP/byte].
    peak_flops, bandwidth : array_like of float
        Dense peak rate [FLOP/s] and memory bandwidth [byte/s].

    Returns
    -------
    float or ndarray of float, broadcast shape
        Highest rate the two roofs allow [FLOP/s].

    Raises
    ------
    ValueError
        If an argument is not positive.

    Notes
    -----
    Source: Williams, Waterman, Patterson 2009.

    Examples
    --------
    >>> float(attainable_flops(989, peak_flops=15e15, bandwidth=8e12)) / 1e15
    7.912
    """
    flop_per_byte, peak, band = positive(
        flop_per_byte=flop_per_byte, peak_flops=peak_flops, bandwidth=bandwidth
    )
    return scalar_or_array(np.minimum(peak, flop_per_byte * band))


def bound_time(flops, moved, *, peak_flops, bandwidth):
    """Shortest time the roofline allows: ``max(flops / peak_flops, moved / bandwidth)``.

    Parameters
    ----------
    flops, moved : array_like of float
        Operations [FLOP] and bytes moved [byte], both > 0.
    peak_flops, bandwidth : array_like of float
        Dense peak rate [FLOP/s] and memory bandwidth [byte/s].

    Returns
    -------
    float or ndarray of float, broadcast shape
        Lower bound of the time [s]: math and memory overlap completely.

    Raises
    ------
    ValueError
        If an argument is not positive.

    Notes
    -----
    Source: Williams, Waterman, Patterson 2009.

    Examples
    --------
    >>> work = gemm_flops(256, 8192, 512)
    >>> seconds = bound_time(work, 4530176.0, peak_flops=15e15, bandwidth=8e12)
    >>> round(float(seconds) * 1e6, 3)
    0.566
    """
    flops, moved = positive(flops=flops, moved=moved)
    peak, band = positive(peak_flops=peak_flops, bandwidth=bandwidth)
    return scalar_or_array(np.maximum(flops / peak, moved / band))


def critical_dimension(ridge_point, element_bytes):
    """Smallest dimension that can reach the ridge when the other two are infinite:
    ``ridge_point * element_bytes / 2``.

    The dimension pays for one operand (see the module's identity): m for the weights B, n for the
    inputs A, k for the outputs C. Below this size no choice of the other two makes the GEMM
    compute-bound.

    Parameters
    ----------
    ridge_point : array_like of float
        Ridge [FLOP/byte].
    element_bytes : array_like of float
        Stored size of one element of the operand this dimension pays for [byte].

    Returns
    -------
    float or ndarray of float, broadcast shape
        Critical dimension [element].

    Raises
    ------
    ValueError
        If an argument is not positive.

    Notes
    -----
    Source: the identity with the other two terms at zero.

    Examples
    --------
    >>> float(critical_dimension(1875.0, 0.5625)), float(critical_dimension(1875.0, 1.0))
    (527.34375, 937.5)
    """
    ridge_point, element_bytes = positive(ridge_point=ridge_point, element_bytes=element_bytes)
    return scalar_or_array(ridge_point * element_bytes / 2)


def break_even_k(m, n, *, ridge_point, a, b, c):
    """Reduction dimension at which a GEMM reaches the ridge: ``c / (2/ridge_point - a/n - b/m)``.

    Parameters
    ----------
    m, n : array_like of float, broadcastable
        Dimensions [element], > 0; ``np.inf`` is accepted.
    ridge_point : float
        Ridge [FLOP/byte].
    a, b, c : float
        Stored size of one element of A, B, C [byte].

    Returns
    -------
    float or ndarray of float, broadcast shape
        Break-even k [element]; ``inf`` where m or n is so small that no k is large enough.

    Raises
    ------
    ValueError
        If an argument is not positive.

    Notes
    -----
    Source: the module's identity solved for k.

    Examples
    --------
    >>> round(float(break_even_k(np.inf, 8192, ridge_point=1875.0, a=0.5625, b=0.5625, c=1.0)))
    1002
    >>> float(break_even_k(256, 8192, ridge_point=1875.0, a=0.5625, b=0.5625, c=1.0))
    inf
    """
    m, n, ridge_point, a, b, c = positive(m=m, n=n, ridge_point=ridge_point, a=a, b=b, c=c)
    room = 2 / ridge_point - a / n - b / m  # what is left of the byte budget per FLOP for writing C
    with np.errstate(divide="ignore"):
        return scalar_or_array(np.where(room > 0, c / np.where(room > 0, room, 1.0), np.inf))


def break_even_n(wide_peak, narrow_peak, *, bandwidth, moved):
    """Output width beyond which a faster format pays for one more pass over the inputs, when math
    sets the time.

    ``moved / (2 * bandwidth) / (1 / wide_peak - 1 / narrow_peak)``: the pass moves `m k moved`
    bytes, the product saves `2 m n k (1 / wide_peak - 1 / narrow_peak)`; m and k cancel.

    Parameters
    ----------
    wide_peak, narrow_peak : array_like of float
        Dense peak rates of the two formats [FLOP/s], the second higher.
    bandwidth : array_like of float
        Memory bandwidth [byte/s].
    moved : array_like of float
        Bytes the pass reads and writes for each element of the inputs [byte].

    Returns
    -------
    float or ndarray of float, broadcast shape
        Width n [element]. It holds where both products are compute-bound.

    Raises
    ------
    ValueError
        If an argument is not positive or the second peak not higher.

    Notes
    -----
    Source: the two times set equal.

    Examples
    --------
    >>> round(float(break_even_n(2.5e15, 15e15, bandwidth=8e12, moved=2.5625)))
    480
    """
    wide, narrow, bandwidth, moved = positive(
        wide_peak=wide_peak, narrow_peak=narrow_peak, bandwidth=bandwidth, moved=moved
    )
    if (narrow <= wide).any():
        raise ValueError(
            f"narrow_peak must be above wide_peak, got {np.min(narrow):g} and {np.max(wide):g}"
        )
    return scalar_or_array(moved / (2 * bandwidth) / (1 / wide - 1 / narrow))


def break_even_area(extra_seconds, *, bandwidth, wide_bytes, narrow_bytes):
    """Weights beyond which a smaller format pays for a longer fixed time, when reading the weights
    sets the time.

    ``extra_seconds * bandwidth / (wide_bytes - narrow_bytes)``

    Parameters
    ----------
    extra_seconds : array_like of float
        Fixed time that the narrow product takes more [s].
    bandwidth : array_like of float
        Memory bandwidth [byte/s].
    wide_bytes, narrow_bytes : array_like of float
        Stored size of a weight in the two formats [byte], the second smaller.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Number of weights n k [element].

    Raises
    ------
    ValueError
        If an argument is not positive or the second size not smaller.

    Notes
    -----
    Source: the two times set equal.

    Examples
    --------
    >>> float(break_even_area(1e-6, bandwidth=8e12, wide_bytes=2.0, narrow_bytes=1.0))
    8000000.0
    """
    extra, bandwidth = positive(extra_seconds=extra_seconds, bandwidth=bandwidth)
    wide, narrow = positive(wide_bytes=wide_bytes, narrow_bytes=narrow_bytes)
    if (narrow >= wide).any():
        raise ValueError(
            f"narrow_bytes must be below wide_bytes, got {np.max(narrow):g} and {np.min(wide):g}"
        )
    return scalar_or_array(extra * bandwidth / (wide - narrow))


def amdahl_speedup(share, gain):
    """Speed-up of a whole when only a share of its time gets faster:
    ``1 / (1 - share + share / gain)``.

    Parameters
    ----------
    share : array_like of float
        Share of the time that gets faster [dimensionless], between 0 and 1.
    gain : array_like of float
        How many times as fast that share gets [dimensionless], > 0; infinity gives the limit
        ``1 / (1 - share)``.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Time before over time after [dimensionless].

    Raises
    ------
    ValueError
        If a share is not between 0 and 1 or a gain not positive.

    Notes
    -----
    Source: G. Amdahl, AFIPS Spring Joint Computer Conference, 1967.

    Examples
    --------
    >>> float(amdahl_speedup(0.5, 2.0)), float(amdahl_speedup(0.75, np.inf))
    (1.3333333333333333, 4.0)
    """
    share, gain = same_shape(share=numbers("share", share), gain=positive(gain=gain)[0])
    if not ((share >= 0) & (share <= 1)).all():
        raise ValueError(
            f"share must be between 0 and 1, got {share[~((share >= 0) & (share <= 1))].flat[0]:g}"
        )
    with np.errstate(divide="ignore"):
        return scalar_or_array(1 / (1 - share + share / gain))
