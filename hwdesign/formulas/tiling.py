"""Dimensions against the sizes hardware works in: padding, tiles, waves.

Source: NVIDIA, "Matrix multiplication background user's guide" (tile and wave quantization).
"""

import numpy as np

from hwdesign._check import dims, numbers, same_shape, scalar_or_array, whole


def pad(size, multiple):
    """The smallest multiple of `multiple` that is at least `size`:
    ``ceil(size / multiple) * multiple``.

    Parameters
    ----------
    size : array_like of int
        Dimension [element], >= 0.
    multiple : array_like of int
        What it must be a multiple of [element], >= 1.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Padded dimension [element]; 0 stays 0, and padding twice changes nothing.

    Raises
    ------
    ValueError
        If the size is negative or not whole, or the multiple is below 1.

    Examples
    --------
    >>> float(pad(50257, 64)), float(pad(0, 64))
    (50304.0, 0.0)
    """
    (multiple,), size = dims(multiple=multiple), numbers("size", size)
    bad = ~((size >= 0) & (size == np.floor(size)) & np.isfinite(size))
    if bad.any():
        raise ValueError(f"size must be a whole number >= 0, got {size[bad].flat[0]:g}")
    return scalar_or_array(np.ceil(size / multiple) * multiple)


def tile_efficiency(m, n, *, tile_m, tile_n):
    """Share of the launched tiles that holds outputs:
    ``m * n / (pad(m, tile_m) * pad(n, tile_n))``.

    Parameters
    ----------
    m, n : array_like of int, broadcastable
        Output dimensions [element], >= 1.
    tile_m, tile_n : int
        Tile [element].

    Returns
    -------
    float or ndarray of float, broadcast shape
        Efficiency [dimensionless], at most 1, and 1 exactly where both dimensions are multiples.

    Raises
    ------
    ValueError
        If a dimension is below 1.

    Notes
    -----
    Source: NVIDIA, matrix multiplication guide, tile quantization.

    Examples
    --------
    >>> round(float(tile_efficiency(512, 4097, tile_m=128, tile_n=512)), 3)
    0.889
    """
    m, n, tile_m, tile_n = dims(m=m, n=n, tile_m=tile_m, tile_n=tile_n)
    return scalar_or_array(m * n / (pad(m, tile_m) * pad(n, tile_n)))


def waves(m, n, *, tile_m, tile_n, sms):
    """Rounds of tiles: ``ceil(tiles / sms)``, each SM taking one tile a round.

    Parameters
    ----------
    m, n : array_like of int, broadcastable
        Output dimensions [element], >= 1.
    tile_m, tile_n : int
        Tile [element].
    sms : int
        Processors of the device [SM].

    Returns
    -------
    float or ndarray of float, broadcast shape
        Waves [dimensionless].

    Raises
    ------
    ValueError
        If an argument is below 1.

    Notes
    -----
    Source: NVIDIA, matrix multiplication guide, wave quantization.

    Examples
    --------
    >>> [float(waves(n, n, tile_m=256, tile_n=128, sms=108)) for n in (1792, 1793)]
    [1.0, 2.0]
    """
    m, n, tile_m, tile_n, sms = dims(m=m, n=n, tile_m=tile_m, tile_n=tile_n, sms=sms)
    return scalar_or_array(np.ceil(np.ceil(m / tile_m) * np.ceil(n / tile_n) / sms))


def wave_efficiency(m, n, *, tile_m, tile_n, sms):
    """Share of the slots of all waves that runs a tile: ``tiles / (waves * sms)``.

    Parameters
    ----------
    m, n : array_like of int, broadcastable
        Output dimensions [element], >= 1.
    tile_m, tile_n : int
        Tile [element].
    sms : int
        Processors of the device [SM].

    Returns
    -------
    float or ndarray of float, broadcast shape
        Efficiency [dimensionless], at most 1.

    Raises
    ------
    ValueError
        If an argument is below 1.

    Notes
    -----
    Source: NVIDIA, matrix multiplication guide, wave quantization.

    Examples
    --------
    >>> [
    ...     round(float(wave_efficiency(n, n, tile_m=256, tile_n=128, sms=108)), 3)
    ...     for n in (1792, 1793)
    ... ]
    [0.907, 0.556]
    """
    m, n, tile_m, tile_n, sms = dims(m=m, n=n, tile_m=tile_m, tile_n=tile_n, sms=sms)
    tiles = np.ceil(m / tile_m) * np.ceil(n / tile_n)
    return scalar_or_array(tiles / (np.ceil(tiles / sms) * sms))


def cluster_efficiency(n, *, tile, cluster, idle):
    """Share of the time spent on outputs where tiles of `tile` columns run in clusters of `cluster`
    columns.

    ``n / (filled + idle * (pad(n, cluster) - filled))`` with ``filled = pad(n, tile)``: a tile that
    is only partly filled costs as much as a full one; a tile of the last cluster without any output
    costs the share `idle` of that.

    Parameters
    ----------
    n : array_like of int
        Columns of the output [element], >= 1.
    tile, cluster : int
        Columns of a tile and of a cluster [element]; `cluster` is a multiple of `tile`.
    idle : array_like of float
        Cost of a reserved tile without outputs, as a share of a full one [dimensionless], between 0
        and 1: at 0 only the period of the tile is left, at 1 only that of the cluster.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Efficiency [dimensionless], at most 1, and 1 at multiples of `cluster`.

    Raises
    ------
    ValueError
        If a size is below 1, `cluster` is no multiple of `tile`, or `idle` is not between 0 and 1.

    Notes
    -----
    Source: the effective tiles of guideline 2 of the post, 2 x 128 for clusterMMA and 2 x 256 for
    the CGA; `idle` is this book's.

    Examples
    --------
    >>> cluster_efficiency([1024, 1280, 1281], tile=256, cluster=512, idle=0.5).round(3).tolist()
    [1.0, 0.909, 0.834]
    """
    n, tile, cluster = dims(n=n, tile=tile, cluster=cluster)
    n, tile, cluster, idle = same_shape(n=n, tile=tile, cluster=cluster, idle=numbers("idle", idle))
    if (left := cluster % tile > 0).any():
        raise ValueError(
            f"cluster must be a multiple of tile = {tile[left][0]:g}, got {cluster[left][0]:g}"
        )
    if not ((idle >= 0) & (idle <= 1)).all():
        raise ValueError(f"idle must be >= 0 and <= 1, got {idle}")
    filled = pad(n, tile)
    return scalar_or_array(
        n / (filled + idle * (pad(n, cluster) - filled))
    )  # exactly 1 where nothing is left over


def head_sharding(num_heads, num_kv_heads, ways):
    """How query and key-value heads spread over tensor-parallel ways: (class, copies of each
    key-value head).

    Parameters
    ----------
    num_heads, num_kv_heads : int
        Query heads and key-value heads.
    ways : int
        Tensor-parallel ways.

    Returns
    -------
    tuple of (str, float)
        "clean": both divide evenly; "replicated": query heads divide and key-value heads are copied
        evenly; "uneven": query heads divide, key-value heads do not spread evenly; "impossible":
        query heads do not divide. Copies [dimensionless].

    Raises
    ------
    ValueError
        If a number is below 1.

    Notes
    -----
    Source: vLLM issue 11797; transformers issue 48307.

    Examples
    --------
    >>> [head_sharding(28, 4, ways) for ways in (4, 8, 28, 7)]
    [('clean', 1.0), ('impossible', 2.0), ('replicated', 7.0), ('uneven', 1.75)]
    """
    num_heads, num_kv_heads, ways = whole(num_heads=num_heads, num_kv_heads=num_kv_heads, ways=ways)
    copies = max(1.0, ways / num_kv_heads)
    if num_heads % ways:
        return "impossible", copies
    if num_kv_heads % ways == 0:
        return "clean", copies
    return ("replicated" if ways % num_kv_heads == 0 else "uneven"), copies
