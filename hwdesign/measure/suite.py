"""The list of measurements that describes a machine, and a few numbers that sum it up.

The whole list is walked through several times, so the rounds of one measurement lie seconds apart
and its spread shows what else the machine was doing. Sweeps follow Figure 4 of the post: K at fixed
M and N, then N at fixed M and K.
"""

import contextlib
import functools
import os
import time
from dataclasses import replace

from hwdesign._check import flag, shown, single
from hwdesign.formulas.roofline import ridge
from hwdesign.measure.attention import measure_attention
from hwdesign.measure.backends import as_backend
from hwdesign.measure.gemm import flag_slow_paths, measure_copy, measure_gemm, measure_launch
from hwdesign.measure.runs import Skipped, combine, trusted
from hwdesign.units import fmt

# Sizes: M, N and K of the sweeps; N in fine steps at the same M and K; tokens and area of the
# shapes of equal area; tokens and
# hidden sizes of the four GEMMs of a layer; shapes in which formats are compared; squares; copies;
# batches and contexts.
SIZES = {
    "cuda": {
        "m": 8192,
        "n": 10240,
        "k": 8192,
        "sweep": [2**i for i in range(7, 15)] + [3 * 2**i for i in range(7, 13)],
        "fine": range(4096, 5121, 32),
        "tokens": [16, 64],
        "area": 2**26,
        "aspect": range(-3, 4),
        "layer": [(m, h) for m in (1, 16, 256, 8192) for h in (1024, 2048, 4096)],
        "formats": {p: [(16, 8192, 8192), (8192, 8192, 8192)] for p in ("fp8", "nvfp4")},
        "square": [256, 512, 1024, 2048, 4096, 8192, 16384],
        "copy": [2**20, 2**24, 2**28],
        "attention": [(1, 32768), (16, 8192), (64, 8192)],
    },
    "cpu": {
        "m": 512,
        "n": 640,
        "k": 512,
        "sweep": [2**i for i in range(6, 13)],
        "fine": range(256, 385, 4),
        "tokens": [16],
        "area": 2**22,
        "aspect": range(-2, 3),
        "layer": [(m, h) for m in (1, 16, 256) for h in (256, 512, 1024)],
        # FP8 is slow on a CPU
        "formats": {"fp16": [(16, 512, 512), (512, 1024, 1024)], "fp8": [(16, 512, 512)]},
        "square": [384, 768, 1024, 1536],
        "copy": [2**20, 2**24],
        "attention": [(1, 4096), (4, 4096)],
    },
}
NONE = {"fine": [], "layer": [], "formats": {}, "tokens": []}
QUICK = {
    "cuda": {
        "sweep": [512, 2048, 8192],
        "square": [1024, 4096, 8192],
        "copy": [2**28],
        "attention": [(16, 8192)],
        **NONE,
    },
    "cpu": {
        "sweep": [128, 512],
        "square": [384, 1024],
        "copy": [2**24],
        "attention": [(1, 4096)],
        **NONE,
    },
}
PASSES = (3, 9)  # fewest and most
LIMIT = {
    "cuda": 240.0,
    "cpu": 40.0,
}  # after the third pass, no pass begins that would end later [s]
EXTRA = {"torch-cpu": ("fp16", "fp8")}  # formats that only the comparison of formats takes
FORMATS = {
    "torch-cuda": ("bf16", "fp8", "nvfp4"),
    "torch-cpu": ("bf16", "fp32"),
    "numpy": ("fp32", "fp64"),
}


def cases(backend, *, quick=False):
    """What to measure: labels and functions, each without arguments but `rounds`.

    Parameters
    ----------
    backend : str or Backend
        One of `available()`.
    quick : bool
        A short list.

    Returns
    -------
    dict of str to callable
        Each returns a `Measurement` [s] or `Skipped`.

    Notes
    -----
    Source: Figure 4 of the post for the sweeps; sizes for a CPU are scaled down.

    Examples
    --------
    >>> list(cases("numpy", quick=True))[0]
    'launch'
    """
    backend = as_backend(backend)
    s = SIZES[backend.kind] | (QUICK[backend.kind] if quick else {})
    formats = FORMATS[backend.name]
    if "bf16" in backend.missing and backend.kind == "cuda":
        formats = ("bf16", "fp16", *formats[1:])  # the reason why not, then what an older GPU has
    first = next((p for p in formats if p in backend.precisions), "fp32")
    found = {"launch": functools.partial(measure_launch, backend)}
    for elements in s["copy"]:
        found[f"copy {elements}"] = functools.partial(measure_copy, elements, backend)
    shapes = [(s["m"], s["n"], k) for k in s["sweep"]] + [
        (s["m"], n, s["k"]) for n in (*s["sweep"], *s["fine"])
    ]
    shapes += [(x, x, x) for x in s["square"]]
    shapes += [(m, n, k) for m, h in s["layer"] for n, k in layer_gemm_shapes(h)]
    side = int(s["area"] ** 0.5)
    shapes += [shape for those in s["formats"].values() for shape in those]
    shapes += [
        (m, int(side * 2.0**i), int(side / 2.0**i)) for m in s["tokens"] for i in s["aspect"]
    ]
    for precision in (*formats, *EXTRA.get(backend.name, ())):
        if precision not in backend.precisions:
            reason = backend.missing.get(precision, f"{backend.name} has no {precision}")
            found[f"gemm {precision}"] = functools.partial(_skipped, f"gemm {precision}", reason)
            continue
        for m, n, k in dict.fromkeys(
            shapes if precision in formats else s["formats"].get(precision, ())
        ):
            found[f"gemm {precision} {m} x {n} x {k}"] = functools.partial(
                measure_gemm, m, n, k, precision, backend
            )
    for batch, context in s["attention"]:
        found[f"attention {batch} x {context}"] = functools.partial(
            measure_attention, batch, context, 32, 8, 128, first, backend
        )
    return found


def layer_gemm_shapes(hidden):
    """The four GEMMs of a plain layer with multi-head attention: QKV, attention output, up, down.

    Parameters
    ----------
    hidden : int
        Hidden size H; the feed-forward width is 4 H [element].

    Returns
    -------
    list of (int, int)
        N and K [element]; together 12 H^2 weights.

    Notes
    -----
    Source: Table 1 of the post.

    Examples
    --------
    >>> sum(n * k for n, k in layer_gemm_shapes(2048)) == 12 * 2048**2
    True
    """
    return [(3 * hidden, hidden), (hidden, hidden), (4 * hidden, hidden), (hidden, 4 * hidden)]


def _skipped(operation, reason, rounds=1):
    return Skipped(operation=operation, reason=reason)


def run_suite(backend=None, *, quick=False, limit=None, progress=None):
    """Measure the whole list, several times over.

    Parameters
    ----------
    backend : str or Backend, optional
        One of `available()`; by default the fastest.
    quick : bool
        A short list.
    limit : float, optional
        Time to spend [s]: the list is walked through 3 to 9 times; after the third pass, no pass
        begins that would end later. By default 40 s on a CPU, 240 s on a GPU, a quarter for the
        quick list.
    progress : callable, optional
        Called with a line of text before each step.

    Returns
    -------
    list of Measurement or Skipped
        Times [s] and spreads over the passes, flagged where they cannot be trusted.

    Raises
    ------
    ValueError
        If the backend is not here or `limit` is negative.

    Notes
    -----
    Source: own machine.

    Examples
    --------
    >>> run_suite("brain")
    Traceback (most recent call last):
    ...
    ValueError: backend must be one of ...
    """
    backend, quick = as_backend(backend), flag("quick", quick)
    if limit is not None and single("limit", limit) < 0:
        raise ValueError(f"limit must be >= 0, got {limit}")
    if progress is not None and not callable(progress):
        raise ValueError(f"progress must be a function of a line of text, got {shown(progress)}")
    todo, taken, start, others = cases(backend, quick=quick), {}, time.monotonic(), _others()
    limit = LIMIT[backend.kind] / (4 if quick else 1) if limit is None else limit
    for i in range(PASSES[1]):
        spent = time.monotonic() - start
        if i >= PASSES[0] and spent * (i + 1) / i > limit:
            break
        for j, (label, measure) in enumerate(todo.items()):
            if progress:
                progress(f"pass {i + 1}, {j + 1} of {len(todo)}: {label}")
            if not isinstance(taken.get(label), Skipped):  # what failed once is not tried again
                result = measure(rounds=1)
                taken[label] = (
                    result if isinstance(result, Skipped) else [*taken.get(label, ()), result]
                )
    backend.release()
    share = (_others() - others) / (time.monotonic() - start) / (os.cpu_count() or 1)
    found = flag_slow_paths([t if isinstance(t, Skipped) else combine(t) for t in taken.values()])
    if backend.kind == "cuda" or share < 0.05:
        return found
    note = (
        f"disturbed: other programs took {100 * share:.0f} % of the processor while this was timed"
    )
    return [m if isinstance(m, Skipped) else replace(m, flags=(*m.flags, note)) for m in found]


def _others():
    """Processor time that other programs took since the start of the machine [s]; 0 where nobody
    says.
    """
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/stat", encoding="utf-8") as file:
            user, nice, system, _, _, irq, soft, steal = (
                int(x) for x in file.readline().split()[1:9]
            )
        return (user + nice + system + irq + soft + steal) / os.sysconf(
            "SC_CLK_TCK"
        ) - time.process_time()
    return 0.0


def summary(measurements):
    """What the measurements say about the machine: bandwidth, best rates, ridges, launch floor.

    Parameters
    ----------
    measurements : sequence of Measurement or Skipped
        Those with a flag "impossible" or "wrong result" are left out.

    Returns
    -------
    dict
        "bandwidth" [byte/s], "launch" [s], "rate" and "ridge": format to best GEMM rate [FLOP/s]
        and to ridge [FLOP/byte]; None or empty where nothing was measured.

    Notes
    -----
    Source: own machine; the best of the medians.

    Examples
    --------
    >>> summary([])
    {'bandwidth': None, 'launch': None, 'rate': {}, 'ridge': {}}
    """
    good = trusted(measurements)
    bandwidth = max((m.bandwidth for m in good if m.operation == "copy"), default=None)
    rates = {}
    for m in good:
        if m.operation == "gemm":
            rates[m.precision] = max(rates.get(m.precision, 0.0), m.rate)
    return {
        "bandwidth": bandwidth,
        "launch": min((m.seconds for m in good if m.operation == "launch"), default=None),
        "rate": rates,
        "ridge": {name: float(ridge(rate, bandwidth)) for name, rate in rates.items()}
        if bandwidth
        else {},
    }


def summary_lines(found, flags):
    """What all measurements say together, line by line, with units.

    Parameters
    ----------
    found : dict
        From `summary`.
    flags : iterable of str
        Flags of the measurements.

    Yields
    ------
    str
        A line.

    Examples
    --------
    >>> print(*summary_lines(summary([]), ()), sep="\\n")
    <BLANKLINE>
    ± is the way from the best round, which is shown, to the worst
    """
    yield ""
    if found["bandwidth"]:
        yield f"bandwidth of a copy {fmt(found['bandwidth'], 'byte/s')}"
    for name, rate in found["rate"].items():
        yield f"best {name} GEMM {fmt(rate, 'FLOP/s')}"
    if found["ridge"]:
        ridges = [f"{name} {fmt(ridge, 'FLOP/byte')}" for name, ridge in found["ridge"].items()]
        yield f"ridge: {', '.join(ridges)}"
    if found["launch"]:
        yield f"shortest kernel {fmt(found['launch'], 's')}"
    yield "± is the way from the best round, which is shown, to the worst"
    for told in flags:
        if told.startswith("disturbed"):
            yield f"{told}: close them and measure again"
