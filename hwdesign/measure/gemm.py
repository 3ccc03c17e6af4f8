"""GEMMs, copies and the shortest kernel, timed on this machine, each result checked against
float64.
"""

from dataclasses import replace

import numpy as np

from hwdesign._check import choice, whole
from hwdesign.measure.backends import as_backend
from hwdesign.measure.runs import ELEMENT_BYTES, Measurement
from hwdesign.units import fmt

PATCH = 8  # rows and columns of a sampled patch of outputs
GAIN = 1.1  # a lower precision must be this much faster where work or bytes halve
LOWER = {
    "fp8": ("bf16", "fp16"),
    "nvfp4": ("fp8", "bf16"),
    "bf16": ("fp32",),
    "fp16": ("fp32",),
    "fp32": ("fp64",),
}
MULTIPLE = {"fp8": 16, "nvfp4": 32}  # of n and k, which these kernels demand


def measure_gemm(m, n, k, precision="bf16", backend=None, *, rounds=5, rotate=True):
    """Time ``C[m, n] = A[m, k] @ W[n, k].T`` on this machine.

    Parameters
    ----------
    m, n, k : int
        Tokens, output features, input features [element].
    precision : str
        "bf16", "fp16", "fp8" (a scale per tensor, outputs BF16) or "nvfp4" with torch on CUDA,
        "fp32", "bf16", "fp16" or "fp8" with torch on a CPU, "fp32" or "fp64" with NumPy.
    backend : str or Backend, optional
        One of `available()`; by default the fastest.
    rounds : int
        Rounds of 9 to 60 repeats, at most 1000; the best one counts, see `runs.combine`.
    rotate : bool
        Whether each call finds its operands in memory; False leaves them in the cache if they fit,
        and a flag says so.

    Returns
    -------
    Measurement or Skipped
        Time and spread [s]; or the reason why there is none.

    Raises
    ------
    ValueError
        If a dimension or the backend is not valid.

    Notes
    -----
    Source: own machine. Outputs are sampled in patches of 8 x 8 and compared with float64.

    Examples
    --------
    >>> taken = measure_gemm(64, 64, 64, "fp32", "numpy", rounds=1, rotate=False)
    >>> taken.flops, taken.seconds > 0
    (524288.0, True)
    """
    m, n, k = whole(m=m, n=n, k=k)
    choice("precision", precision, ELEMENT_BYTES)
    backend, multiple = as_backend(backend), MULTIPLE.get(precision, 1)
    if n % multiple or k % multiple:
        raise ValueError(
            f"n and k must be multiples of {multiple} for {precision}, got n = {n}, k = {k}"
        )

    def check(a, w, out):
        corners = [(0, 0), (max(m - PATCH, 0), max(n - PATCH, 0)), (m // 3, 2 * n // 3)]
        rows = [(slice(i, i + PATCH), slice(j, j + PATCH)) for i, j in corners]
        flags = []
        for i, j in rows:
            x, y = backend.double(a[i], precision), backend.double(w[j], precision)
            found = backend.double(out[i, j], "bf16")
            flags += backend.compare(precision, found, x @ y.T, np.sqrt((x * x) @ (y * y).T))
        return flags[:1]

    return backend.measure(
        "gemm",
        {"m": m, "n": n, "k": k},
        precision,
        inputs=[(m, k), (n, k)],
        outputs=[(m, n)],
        call=lambda a, w, out: backend.gemm(precision, a, w, out),
        check=check,
        rounds=rounds,
        rotate=rotate,
    )


def measure_copy(elements, backend=None, *, rounds=5, rotate=True):
    """Time a copy from memory to memory: the bandwidth a kernel can reach, bytes read plus bytes
    written.

    Parameters
    ----------
    elements : int
        FP32 numbers to copy [element].
    backend : str or Backend, optional
        One of `available()`; by default the fastest.
    rounds : int
        Rounds of 9 to 60 repeats, at most 1000; the best one counts, see `runs.combine`.
    rotate : bool
        Whether each call finds its source in memory; False leaves it in the cache if it fits, and a
        flag says so.

    Returns
    -------
    Measurement or Skipped
        Time and spread [s]; `bandwidth` [byte/s].

    Raises
    ------
    ValueError
        If `elements` or the backend is not valid.

    Notes
    -----
    Source: own machine.

    Examples
    --------
    >>> taken = measure_copy(2**16, "numpy", rounds=1, rotate=False)
    >>> taken.nbytes, taken.flags[0][:11]
    (524288.0, 'working set')
    """
    return _copy("copy", elements, backend, rounds, rotate)


def measure_launch(backend=None, *, rounds=5):
    """Time the shortest kernel, a copy of 16 numbers: no operation takes less.

    Parameters
    ----------
    backend : str or Backend, optional
        One of `available()`; by default the fastest.
    rounds : int
        Rounds of 9 to 60 repeats, at most 1000; the best one counts, see `runs.combine`.

    Returns
    -------
    Measurement or Skipped
        Time and spread [s].

    Raises
    ------
    ValueError
        If the backend is not here.

    Notes
    -----
    Source: own machine. On CUDA within a graph, so without the time Python takes to start a kernel.

    Examples
    --------
    >>> measure_launch("numpy", rounds=1).seconds < 1e-3
    True
    """
    return _copy("launch", 16, backend, rounds, False)


def _copy(operation, elements, backend, rounds, rotate):
    shape, backend = tuple(whole(elements=elements)), as_backend(backend)

    def check(x, out):
        ends = (slice(0, 64), slice(-64, None))
        pairs = [(backend.double(out[e], "bf16"), backend.double(x[e], "bf16")) for e in ends]
        return next(
            filter(None, (backend.compare("fp64", found, wanted, 0.0) for found, wanted in pairs)),
            (),
        )

    return backend.measure(
        operation,
        {"elements": shape[0]},
        "fp32",
        inputs=[shape],
        outputs=[shape],
        call=backend.copy,
        check=check,
        rounds=rounds,
        rotate=rotate,
    )


def flag_slow_paths(measurements):
    """The measurements, flagged where a lower precision is hardly faster: a library may have fallen
    back without a word.

    Parameters
    ----------
    measurements : sequence of Measurement or Skipped
        Times [s] of one machine.

    Returns
    -------
    list
        The same, with "suspect slower path: ..." where a GEMM in a lower precision is less than 10
        % faster than the same GEMM in the next higher one, although its work or its bytes allow 1.3
        times and more; and where attention reaches less than a fifth of the bandwidth of the
        copies.

    Notes
    -----
    Source: own choice of thresholds. GEMMs below 20 µs are not judged: starting them takes as long
    as their work.

    Examples
    --------
    >>> flag_slow_paths([])
    []
    """
    taken = [m for m in measurements if isinstance(m, Measurement)]
    times = {(m.backend, m.precision, *m.shape.values()): m for m in taken if m.operation == "gemm"}
    best = {}
    for m in taken:
        if m.operation == "copy":
            best[m.backend] = max(best.get(m.backend, 0.0), m.bandwidth)
    return [_suspected(m, times, best.get(getattr(m, "backend", None), 0.0)) for m in measurements]


def _suspected(m, times, bandwidth):
    flag = ""
    if isinstance(m, Measurement) and m.operation == "gemm":
        others = (times.get((m.backend, p, *m.shape.values())) for p in LOWER.get(m.precision, ()))
        other = next(filter(None, others), None)
        if (
            other
            and m.seconds > 2e-5
            and min(2.0, other.nbytes / m.nbytes) > 1.3
            and other.seconds < GAIN * m.seconds
        ):
            gain = other.seconds / m.seconds
            flag = (
                f"suspect slower path: {m.precision} runs at {gain:.3g} times the speed of "
                f"{other.precision} on this shape"
            )
    elif (
        isinstance(m, Measurement)
        and m.operation == "attention_decode"
        and m.bandwidth < bandwidth / 5
    ):
        flag = (
            f"suspect slower path: it moves {fmt(m.bandwidth, 'byte/s')}, a copy "
            f"{fmt(bandwidth, 'byte/s')}"
        )
    return replace(m, flags=(*m.flags, flag)) if flag else m
