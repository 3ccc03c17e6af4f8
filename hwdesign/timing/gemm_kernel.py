"""The calibrated time of a GEMM: the best tile of a fixed menu on the SMs, against the memory, with
eight fitted constants.

1. On the chip. A tile of tm x tn outputs takes, for each element of K, the longest of its
multiplications at the reachable
   rate of an SM, of reading its operands from the L2 cache into the SM, and of one step of its
   chain. Its main loop takes K times that. Tiles come in waves of one an SM; a share `balance` of
   the empty places of the last wave is filled. A BF16 GEMM with fewer tiles than SMs may split K
   into parts, whose sums then pass through the L2 cache.
2. Off the chip. A, B and C cross the memory once; what of an operand exceeds its share of the L2
cache is read again for every
   further block of outputs that is in flight (one tile an SM, as square as can be). FP4 kernels
   write C after the main loop, all others while the next tile is worked on.
3. Both overlap: ``(on**overlap + off**overlap) ** (1 / overlap)``; 1 is one after the other,
infinity the roofline. 4. The kernel starts and drains in `fixed`; low-precision inputs are first
quantized from BF16, in one more pass over A.
"""

import numpy as np

from hwdesign._check import dims, positive, same_shape, scalar_or_array
from hwdesign.catalogue.precision import BF16

TILES = (
    (256, 128),
    (128, 256),
    (128, 128),
    (128, 64),
    (64, 128),
    (64, 64),
)  # outputs of one tile [element]; not fitted
# share of the L2 cache that an operand can keep: these caches are two halves with a copy each; not
# fitted
ROOM = 0.5
SIDE = 128  # of a tile, for the block of outputs in flight [element]; not fitted
LATE = (
    1.0  # size of an element of A below which C is written after the main loop [byte]; not fitted
)
CHUNK = 1 << 12  # shapes worked on at a time, so that the arrays stay in the cache of the CPU


def gemm_kernel_terms(m, n, k, device, recipe, c):
    """Terms of the calibrated time of ``C[m, n] = A[m, k] @ B[k, n]``; they add up.

    Parameters
    ----------
    m : array_like of float
        Rows [element], > 0; a mean over experts need not be whole.
    n, k : array_like of int, broadcastable
        Columns and inner dimension [element], >= 1.
    device : Device
        Dense peak, bandwidth, SMs and L2.
    recipe : Recipe
        Formats of the operands.
    c : mapping of str to float
        peak and bandwidth, shares of the datasheet's; feed, rate at which all SMs together take
        operands from the L2 cache, in units of the memory bandwidth; fixed [s]; overlap and balance
        [dimensionless]. With BF16 activations: wave, time of a wave beside its main loop [s], and
        split, the shortest part of K [element]. With quantized activations: chain, least time a
        tile takes for an element of K [s], and quantize, share of the bandwidth.

    Returns
    -------
    dict of str to ndarray
        ``math``, ``tiles`` (on the chip, besides the multiplications), ``memory``, ``fixed``,
        ``quantize`` [s].

    Raises
    ------
    ValueError
        If a dimension is out of range.

    Notes
    -----
    Source: the model at the head of this module. Of two things that overlap, the longer counts
    whole and the shorter only with what sticks out.

    Examples
    --------
    >>> from hwdesign.catalogue.device import device
    >>> from hwdesign.catalogue.precision import recipe
    >>> from hwdesign.timing.calibration import constants
    >>> fitted = constants("gemm", "H100_SXM", "bf16")
    >>> terms = gemm_kernel_terms(16, 8192, 8192, device("H100_SXM"), recipe("bf16"), fitted)
    >>> max(terms, key=terms.get)
    'memory'
    """
    (m,), (n, k) = positive(m=m), dims(n=n, k=k)
    m, n, k = same_shape(m=m, n=n, k=k)
    size, bandwidth = recipe.operand_bytes, c["bandwidth"] * device.memory_bandwidth
    on = _on_chip(m, n, k, device, recipe, c)
    a, b = m * k * size["a"], n * k * size["b"]
    room, block = ROOM * (device.l2 or np.inf), SIDE * np.sqrt(device.sms or 132)
    again = np.maximum(a - room, 0) * np.maximum(n / block - 1, 0) + np.maximum(
        b - room, 0
    ) * np.maximum(m / block - 1, 0)
    store, late = m * n * size["c"] / bandwidth, size["a"] < LATE
    off = (a + b + again) / bandwidth + (0 if late else store)
    longer, shorter = np.maximum(on, off), np.minimum(on, off)
    out = longer * (
        (1 + (shorter / longer) ** c["overlap"]) ** (1 / c["overlap"]) - 1
    )  # what of the shorter sticks out
    seen = np.where(on >= off, on, out)
    math = 2 * m * n * k / (c["peak"] * device.peak_flops(recipe.math))
    pass_bytes = m * k * (BF16.bytes + size["a"]) if "quantize" in c else 0 * on
    return {
        "math": seen * math / on,
        "tiles": seen * (1 - math / on),
        "memory": np.where(on >= off, out, off) + (store if late else 0),
        "fixed": np.broadcast_to(c["fixed"], on.shape)[()],
        "quantize": pass_bytes / (c.get("quantize", 1) * device.memory_bandwidth),
    }


def gemm_kernel_seconds(m, n, k, device, recipe, c):
    """Calibrated time of ``C[m, n] = A[m, k] @ B[k, n]``: the sum of `gemm_kernel_terms`.

    Parameters
    ----------
    m : array_like of float
        Rows [element], > 0.
    n, k : array_like of int, broadcastable
        Columns and inner dimension [element], >= 1.
    device : Device
        Dense peak, bandwidth, SMs and L2.
    recipe : Recipe
        Formats of the operands.
    c : mapping of str to float
        Constants, as for `gemm_kernel_terms`.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Time [s].

    Raises
    ------
    ValueError
        If a dimension is out of range.

    Notes
    -----
    Source: the model at the head of this module.

    Examples
    --------
    >>> from hwdesign.catalogue.device import device
    >>> from hwdesign.catalogue.precision import recipe
    >>> ideal = {"peak": 1, "bandwidth": 1, "balance": 1, "fixed": 0, "wave": 0}
    >>> ideal |= {"feed": 1e9, "overlap": 1e3, "split": 1e9}
    >>> shape = 8192, 8192, 8192
    >>> seconds = gemm_kernel_seconds(*shape, device("GB300"), recipe("bf16"), ideal)
    >>> round(float(seconds) * 1e6)
    440
    """
    (m,), (n, k) = positive(m=m), dims(n=n, k=k)
    m, n, k = same_shape(m=m, n=n, k=k)
    if m.size <= CHUNK:
        return scalar_or_array(sum(gemm_kernel_terms(m, n, k, device, recipe, c).values()))
    parts = [slice(i, i + CHUNK) for i in range(0, m.size, CHUNK)]
    flat = [x.ravel() for x in (m, n, k)]
    pieces = [
        sum(gemm_kernel_terms(*(x[part] for x in flat), device, recipe, c).values())
        for part in parts
    ]
    return np.concatenate(pieces).reshape(m.shape)


def _on_chip(m, n, k, device, recipe, c):
    """Time of the main loops with the fastest tile [s]."""
    sms, size = device.sms or 132, recipe.operand_bytes
    for_flop = sms / (c["peak"] * device.peak_flops(recipe.math))
    for_byte = sms / (c["feed"] * device.memory_bandwidth)
    tm, tn = np.array(TILES, float).T.reshape(2, len(TILES), *[1] * m.ndim)  # all at once
    tiles = np.ceil(m / tm) * np.ceil(n / tn) / sms
    read = (np.minimum(tm, m) * size["a"] + tn * size["b"]) * for_byte
    step = np.maximum(read, np.maximum(2 * tm * tn * for_flop, c.get("chain", 0)))
    waves = np.maximum(c["balance"] * tiles + (1 - c["balance"]) * np.ceil(tiles), 1)
    loops = waves * (k * step + c.get("wave", 0))
    if "split" in c:
        # parts of K on idle SMs; their sums pass through the L2 cache in FP32, written and read
        parts = np.maximum(np.minimum(np.floor(1 / tiles), k / c["split"]), 1)
        sums = np.where(parts > 1, parts * m * n * 8 * for_byte / sms + c["wave"], 0)
        loops = np.minimum(loops, waves * (k * step / parts + c["wave"]) + sums)
    return loops.min(axis=0)
