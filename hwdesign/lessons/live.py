"""What the notebooks measure: live in a reader's kernel, the stored run while the site is built."""

import sys
from dataclasses import replace

from hwdesign.lessons.live_parallel import (
    FIRST,
    cache_reads,
    exchanges,
    exchanges_of,
    first_format,
    pipelines,
    pipelines_of,
    pipelines_predicted,
    shows_stored,
)
from hwdesign.measure.backends import as_backend
from hwdesign.measure.gemm import flag_slow_paths, measure_copy, measure_gemm
from hwdesign.measure.runs import ELEMENT_BYTES, Measurement, Run, load_run, shipped_runs
from hwdesign.measure.suite import SIZES, layer_gemm_shapes

__all__ = [
    "cache_reads",
    "exchanges",
    "exchanges_of",
    "fine_of",
    "fine_sweeps",
    "format_gemms",
    "formats_of",
    "layer_gemms",
    "machine_sweeps",
    "pipelines",
    "pipelines_of",
    "pipelines_predicted",
    "siblings_of",
    "sweep_of",
]


def machine_sweeps(*, rounds=1, stored=None):
    """Figure 4 on a machine: GEMMs with K swept at fixed M and N, then N at fixed M and K, and two
    copies.

    Parameters
    ----------
    rounds : int
        Rounds of each measurement; a live run takes some seconds.
    stored : bool, optional
        Whether to return the run that ships; by default only while the site is built.

    Returns
    -------
    Run
        Measurements [s] of one format.

    Raises
    ------
    ValueError
        If `rounds` is below 1.
    RuntimeError
        If no copy or no GEMM could be timed; the message says why.

    Notes
    -----
    Source: the reader's machine, or `scripts/record_measurements.py` for the stored run.

    Examples
    --------
    >>> {m.operation for m in machine_sweeps(stored=True).measurements} >= {"gemm", "copy"}
    True
    """
    if shows_stored(stored):
        return load_run(shipped_runs()[0])
    backend = as_backend()
    sizes = SIZES[backend.kind]
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    shapes = [(m, n, x) for x in sizes["sweep"]] + [(m, x, k) for x in sizes["sweep"]]
    copies = [measure_copy(elements, backend=backend, rounds=rounds) for elements in sizes["copy"]]
    return _timed(backend, [(*shape, first_format(backend)) for shape in shapes], copies, rounds)


def fine_sweeps(*, rounds=2, stored=None):
    """Figure 5 on a machine: GEMMs with N swept in fine steps at fixed M and K, in each format that
    shows the machine's blocks.

    Parameters
    ----------
    rounds : int
        Rounds of each measurement; a live run takes some seconds.
    stored : bool, optional
        Whether to return the run that ships; by default only while the site is built.

    Returns
    -------
    Run
        Measurements [s]; `fine_of` picks the sweeps.

    Raises
    ------
    ValueError
        If `rounds` is below 1.
    RuntimeError
        If no GEMM could be timed; the message says why.

    Notes
    -----
    Source: the reader's machine, or `scripts/record_measurements.py` for the stored run.

    Examples
    --------
    >>> sorted(fine_of(fine_sweeps(stored=True)))
    ['bf16', 'fp32']
    """
    if shows_stored(stored):
        return load_run(shipped_runs()[0])
    backend = as_backend()
    sizes = SIZES[backend.kind]
    formats = [
        p
        for p in ("bf16", "fp32")
        if p in backend.precisions and (p == "bf16" or backend.kind == "cpu")
    ]
    shapes = [
        (sizes["m"], n, sizes["k"], p)
        for p in formats or [first_format(backend)]
        for n in sizes["fine"]
    ]
    return _timed(backend, shapes, [], rounds)


def layer_gemms(*, rounds=1, stored=None):
    """The four GEMMs of a layer on a machine, for hidden sizes that grow by twos, at a few numbers
    of tokens.

    Parameters
    ----------
    rounds : int
        Rounds of each measurement; a live run takes some seconds.
    stored : bool, optional
        Whether to return the run that ships; by default only while the site is built.

    Returns
    -------
    Run
        Measurements [s] of one format; `siblings_of` sums them up.

    Raises
    ------
    ValueError
        If `rounds` is below 1.
    RuntimeError
        If no GEMM could be timed; the message says why.

    Notes
    -----
    Source: the reader's machine, or `scripts/record_measurements.py` for the stored run.

    Examples
    --------
    >>> sorted(siblings_of(layer_gemms(stored=True)))
    [1, 16, 256]
    """
    if shows_stored(stored):
        return load_run(shipped_runs()[0])
    backend = as_backend()
    shapes = [
        (m, n, k, first_format(backend))
        for m, h in SIZES[backend.kind]["layer"]
        for n, k in layer_gemm_shapes(h)
    ]
    return _timed(backend, shapes, [], rounds)


def format_gemms(*, rounds=2, stored=None):
    """GEMMs of a few shapes in every format that a machine multiplies, from wide to narrow.

    Parameters
    ----------
    rounds : int
        Rounds of each measurement; a live run takes some seconds.
    stored : bool, optional
        Whether to return the run that ships; by default only while the site is built.

    Returns
    -------
    Run
        Measurements [s], flagged where a narrow format is hardly faster than a wide one;
        `formats_of` sorts them.

    Raises
    ------
    ValueError
        If `rounds` is below 1.
    RuntimeError
        If no GEMM could be timed; the message says why.

    Notes
    -----
    Source: the reader's machine, or `scripts/record_measurements.py` for the stored run.

    Examples
    --------
    >>> sorted(formats_of(format_gemms(stored=True)))[0]
    (16, 512, 512)
    """
    if shows_stored(stored):
        return load_run(shipped_runs()[0])
    backend = as_backend()
    formats, wanted = SIZES[backend.kind]["formats"], []
    wide = (
        ("fp64", "fp32")
        if backend.name == "numpy"
        else ("fp32", "bf16" if "bf16" in backend.precisions else "fp16")
    )
    for shape in dict.fromkeys(shape for shapes in formats.values() for shape in shapes):
        narrow = [p for p, shapes in formats.items() if shape in shapes and backend.name != "numpy"]
        wanted += [(*shape, p) for p in dict.fromkeys((*wide, *narrow))]
    run = _timed(backend, wanted, [], rounds)
    return replace(run, measurements=tuple(flag_slow_paths(run.measurements)))


def _timed(backend, shapes, found, rounds):
    """A run of these GEMMs, after the copies that were found already."""
    needed = {"gemm", "copy"} if found else {"gemm"}
    for i, (*shape, precision) in enumerate(shapes):
        print(
            f"\r{i + 1} of {len(shapes)}: {' x '.join(map(str, shape))}      ",
            end="",
            file=sys.stderr,
            flush=True,
        )
        found.append(measure_gemm(*shape, precision, backend, rounds=rounds))
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr, flush=True)
    backend.release()
    taken = tuple(x for x in found if isinstance(x, Measurement))
    skipped = tuple(x for x in found if not isinstance(x, Measurement))
    if not needed <= {x.operation for x in taken}:
        raise RuntimeError("nothing could be timed: " + "; ".join(map(str, skipped)))
    return Run(machine=backend.device, measurements=taken, skipped=skipped)


def _sizes(backend):
    """The sizes that the suite measures with a backend."""
    return SIZES["cuda" if backend == "torch-cuda" else "cpu"]


def _gemms(run, needed, *, every=False):
    """The GEMMs of a run in the backend of its sweeps, in their format or in every one, with their
    sizes.
    """
    gemms = [m for m in run.measurements if m.operation == "gemm"]
    if not gemms:
        raise ValueError(
            f"run must hold {needed}, got none of {len(run.measurements)} measurements of "
            f"{run.machine}"
        )
    backend = gemms[0].backend
    formats = [m.precision for m in gemms if m.backend == backend]
    precision = FIRST[backend] if FIRST[backend] in formats else formats[0]
    return [
        m for m in gemms if m.backend == backend and (every or m.precision == precision)
    ], _sizes(backend)


def sweep_of(run, axis):
    """The GEMMs of a run that form the sweep of one dimension, in order.

    Parameters
    ----------
    run : Run
        From `machine_sweeps`.
    axis : str
        "k" or "n".

    Returns
    -------
    list of Measurement
        With the swept dimension [element] increasing, the other two fixed.

    Raises
    ------
    ValueError
        If the axis is neither, or the run holds no sweep of it.

    Notes
    -----
    Source: the sizes of `hwdesign.measure.suite`.

    Examples
    --------
    >>> sizes = [m.shape["k"] for m in sweep_of(machine_sweeps(stored=True), "k")]
    >>> sizes == sorted(sizes) and len(sizes) > 4
    True
    """
    if axis not in ("k", "n"):
        raise ValueError(f"axis must be 'k' or 'n', got {axis!r}")
    wanted, sizes = _gemms(run, "GEMMs")
    fixed = {name: sizes[name] for name in "mnk" if name != axis}
    chosen = {
        m.shape[axis]: m for m in wanted if all(m.shape[x] == value for x, value in fixed.items())
    }
    return [chosen[size] for size in sorted(chosen) if size in sizes["sweep"]]


def fine_of(run):
    """The sweeps over N in fine steps of a run, by format.

    Parameters
    ----------
    run : Run
        From `fine_sweeps`.

    Returns
    -------
    dict of str to list of Measurement
        Format to GEMMs with N [element] increasing.

    Raises
    ------
    ValueError
        If the run holds no such sweep.

    Notes
    -----
    Source: the sizes of `hwdesign.measure.suite`.

    Examples
    --------
    >>> [m.shape["n"] for m in fine_of(fine_sweeps(stored=True))["bf16"]][:3]
    [256, 260, 264]
    """
    gemms = [m for m in run.measurements if m.operation == "gemm"]
    found = {}
    for backend, precision in dict.fromkeys((m.backend, m.precision) for m in gemms):
        sizes = _sizes(backend)
        fixed = (backend, precision, sizes["m"], sizes["k"])
        wanted = [m for m in gemms if (m.backend, m.precision, m.shape["m"], m.shape["k"]) == fixed]
        chosen = {m.shape["n"]: m for m in wanted if m.shape["n"] in sizes["fine"]}
        if len(chosen) == len(sizes["fine"]):
            found.setdefault(precision, [chosen[n] for n in sorted(chosen)])
    if not found:
        raise ValueError(
            f"run must hold N in fine steps, got none in {len(gemms)} GEMMs of {run.machine}; "
            "record it again"
        )
    return found


def formats_of(run):
    """The GEMMs of a run by shape and format.

    Parameters
    ----------
    run : Run
        From `format_gemms`.

    Returns
    -------
    dict of (int, int, int) to dict of str to Measurement
        M, N, K [element] to format to measurement, from many bits to few.

    Raises
    ------
    ValueError
        If the run holds none of the shapes.

    Notes
    -----
    Source: the sizes of `hwdesign.measure.suite`.

    Examples
    --------
    >>> list(formats_of(format_gemms(stored=True))[16, 512, 512])
    ['fp32', 'bf16', 'fp16', 'fp8']
    """
    gemms, sizes = _gemms(run, "GEMMs", every=True)
    found = {}
    for shape in dict.fromkeys(shape for shapes in sizes["formats"].values() for shape in shapes):
        taken = {m.precision: m for m in gemms if tuple(m.shape[x] for x in "mnk") == shape}
        if taken:
            found[shape] = {p: taken[p] for p in sorted(taken, key=lambda p: -ELEMENT_BYTES[p])}
    if not found:
        raise ValueError(
            f"run must hold GEMMs in several formats, got none on {run.machine}; record it again"
        )
    return found


def siblings_of(run):
    """Time of all layers of models with equal parameters, from narrow and deep to wide and shallow,
    by number of tokens.

    Parameters
    ----------
    run : Run
        From `layer_gemms`.

    Returns
    -------
    dict of int to dict of (int, int) to float
        Tokens to (hidden size [element], layers) to the time of the four GEMMs of every layer [s].
        The widest sibling has the fewest layers, four; halving the width takes four times as many.

    Raises
    ------
    ValueError
        If the run lacks one of the GEMMs, or holds none.

    Notes
    -----
    Source: P = 12 L H^2.

    Examples
    --------
    >>> list(siblings_of(layer_gemms(stored=True))[1])
    [(256, 64), (512, 16), (1024, 4)]
    """
    gemms, sizes = _gemms(run, "the GEMMs of a layer")
    times = {tuple(m.shape[x] for x in "mnk"): m.seconds for m in gemms}
    widest, found = max(h for _, h in sizes["layer"]), {}
    for m, h in sizes["layer"]:
        layers = 4 * (widest // h) ** 2
        lost = [f"{m} x {n} x {k}" for n, k in layer_gemm_shapes(h) if (m, n, k) not in times]
        if lost:
            raise ValueError(
                f"run must hold the GEMMs of a layer, got none of {', '.join(lost)} on "
                f"{run.machine}; record it again"
            )
        found.setdefault(m, {})[h, layers] = layers * sum(
            times[m, n, k] for n, k in layer_gemm_shapes(h)
        )
    return found
