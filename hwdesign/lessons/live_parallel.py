"""What the notebooks measure of several processors, and of a cache: live in a reader's kernel, the
stored run on the site.
"""

import os
import sys

import numpy as np

from hwdesign.formulas.pipeline import pipeline_time
from hwdesign.measure.attention import measure_attention
from hwdesign.measure.backends import as_backend
from hwdesign.measure.collectives import measure_collectives
from hwdesign.measure.pipeline import measure_pipeline, timed_split
from hwdesign.measure.runs import COLLECTIVES, Measurement, Run, load_run, shipped_runs

FIRST = {"torch-cuda": "bf16", "torch-cpu": "fp32", "numpy": "fp32"}  # format of a backend's sweeps


def shows_stored(stored):
    """Whether to show the run that ships: as asked, else only while the site is built.

    Parameters
    ----------
    stored : bool or None
        What was asked for.

    Returns
    -------
    bool

    Notes
    -----
    Source: the environment variable HWDESIGN_STATIC, which the build sets to 1.

    Examples
    --------
    >>> shows_stored(True)
    True
    """
    return os.environ.get("HWDESIGN_STATIC") == "1" if stored is None else stored


def first_format(backend):
    """Number format in which a backend is timed first.

    Parameters
    ----------
    backend : Backend
        One that is available.

    Returns
    -------
    str
        Its name.

    Examples
    --------
    >>> from hwdesign.measure.backends import as_backend
    >>> first_format(as_backend("numpy"))
    'fp32'
    """
    precision = FIRST[backend.name]
    return precision if precision in backend.precisions else "fp16"


def exchanges(*, stored=None):
    """All-reduce, all-gather, reduce-scatter and all-to-all between two processes of a machine, or
    between two of its GPUs.

    Parameters
    ----------
    stored : bool, optional
        Whether to return the run that ships; by default only while the site is built.

    Returns
    -------
    Run
        Measurements [s]; `exchanges_of` sorts them. Where nothing can be timed (without PyTorch) it
        is the stored run, and a line says so.

    Notes
    -----
    Source: the reader's machine, or `scripts/record_measurements.py` for the stored run.

    Examples
    --------
    >>> sorted(exchanges_of(exchanges(stored=True)))
    ['all_gather', 'all_reduce', 'all_to_all', 'reduce_scatter']
    """
    if shows_stored(stored):
        return load_run(shipped_runs()[0])
    print("timing collectives between two processes, some 15 s", file=sys.stderr, flush=True)
    return _or_stored(measure_collectives(2))


def exchanges_of(run):
    """The collectives of a run by operation.

    Parameters
    ----------
    run : Run
        From `exchanges`.

    Returns
    -------
    dict of str to list of Measurement
        Operation to times [s] with the tensor growing.

    Raises
    ------
    ValueError
        If the run holds none.

    Notes
    -----
    Source: `hwdesign.measure.collectives`.

    Examples
    --------
    >>> [m.shape["ranks"] for m in exchanges_of(exchanges(stored=True))["all_to_all"]]
    [2, 2, 2]
    """
    found = {}
    for m in run.measurements:
        if m.operation in COLLECTIVES:
            found.setdefault(m.operation, []).append(m)
    if not found:
        raise ValueError(
            f"run must hold collectives, got none of {len(run.measurements)} measurements of "
            f"{run.machine}"
        )
    return {name: sorted(each, key=lambda m: m.shape["nbytes"]) for name, each in found.items()}


def cache_reads(*, stored=None):
    """Attention of one new token over 4096 cached ones, in which a device does little but read its
    cache.

    Parameters
    ----------
    stored : bool, optional
        Whether to return what the run that ships has; by default only while the site is built.

    Returns
    -------
    Measurement
        Time [s]; its `bandwidth` is the rate at which the cache was read [byte/s]. Where nothing
        can be timed it is the stored one, and a line says so.

    Notes
    -----
    Source: the reader's machine, or `scripts/record_measurements.py` for the stored run.

    Examples
    --------
    >>> cache_reads(stored=True).shape["context"]
    4096
    """
    if shows_stored(stored):
        run = load_run(shipped_runs()[0])
    else:
        backend = as_backend(None)
        run = _or_stored(
            [measure_attention(1, 4096, 32, 8, precision=first_format(backend), backend=backend)]
        )
    return next(
        m for m in run.measurements if m.operation == "attention_decode" and m.shape["batch"] == 1
    )


def pipelines(*, stored=None):
    """A batch on its way through layers on a machine's processor, cut into ever more chunks: in one
    stage and in two.

    Parameters
    ----------
    stored : bool, optional
        Whether to return the run that ships; by default only while the site is built.

    Returns
    -------
    Run
        Measurements [s]; `pipelines_of` sorts them. Where nothing can be timed (on one core) it is
        the stored run, and a line says so.

    Notes
    -----
    Source: the reader's machine, or `scripts/record_measurements.py` for the stored run.

    Examples
    --------
    >>> list(pipelines_of(pipelines(stored=True)))
    ['1 stage: 16 layers', '2 stages: 8 + 8 layers', '2 stages: 12 + 4 layers']
    """
    if shows_stored(stored):
        return load_run(shipped_runs()[0])
    print("timing a pipeline of two threads, some 6 s", file=sys.stderr, flush=True)
    return _or_stored(measure_pipeline(2))


def pipelines_of(run):
    """The pipelines of a run by their stages.

    Parameters
    ----------
    run : Run
        From `pipelines`.

    Returns
    -------
    dict of str to (ndarray of float, ndarray of float)
        Label to numbers of chunks, increasing, and times [s]: one stage, even stages, uneven
        stages.

    Raises
    ------
    ValueError
        If the run holds none.

    Notes
    -----
    Source: `hwdesign.measure.pipeline`.

    Examples
    --------
    >>> pipelines_of(pipelines(stored=True))["1 stage: 16 layers"][0].tolist()
    [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]
    """
    return {
        _label(split): tuple(np.array(sorted(times.items())).T)
        for split, times in _pipelines(run).items()
    }


def pipelines_predicted(run):
    """What `pipelines_of` should hold if stages did not disturb each other and handing over took no
    time.

    Parameters
    ----------
    run : Run
        From `pipelines`; it must hold one stage with the same chunks.

    Returns
    -------
    dict of str to ndarray of float
        Label to times [s]: a chunk takes each stage the time it takes in one stage of all layers,
        by the stage's share of them.

    Raises
    ------
    ValueError
        If the run holds no pipelines, or lacks the one stage.

    Notes
    -----
    Source: `hwdesign.formulas.pipeline.pipeline_time`.

    Examples
    --------
    >>> found, wanted = (
    ...     f(pipelines(stored=True))["2 stages: 8 + 8 layers"]
    ...     for f in (pipelines_of, pipelines_predicted)
    ... )
    >>> bool((abs(found[1] / wanted - 1) < 0.2).all())
    True
    """
    found, wanted = _pipelines(run), {}
    for split, times in found.items():
        one = found.get((sum(split),), {})
        lost = sorted(set(times) - set(one))
        if lost:
            raise ValueError(
                f"run must hold {_label((sum(split),))} in {lost} chunks, got none on {run.machine}"
            )
        share = np.array(split) / sum(split)
        wanted[_label(split)] = np.array(
            [pipeline_time(one[c] / c * share, c) for c in sorted(times)]
        )
    return wanted


def _pipelines(run):
    """Layers of each stage to chunks to time [s]."""
    found = {}
    for m in run.measurements:
        if m.operation == "pipeline":
            split = timed_split(*(m.shape[x] for x in ("stages", "layers", "largest")))
            found.setdefault(split, {})[m.shape["chunks"]] = m.seconds
    if not found:
        raise ValueError(
            f"run must hold pipelines, got none in {len(run.measurements)} measurements of "
            f"{run.machine}"
        )
    return dict(sorted(found.items(), key=lambda item: (len(item[0]), max(item[0]))))


def _label(split):
    return (
        f"{len(split)} stage{'s' if len(split) > 1 else ''}: {' + '.join(map(str, split))} layers"
    )


def _or_stored(found):
    """A run of what was timed, or the stored one and a line of why."""
    taken = tuple(x for x in found if isinstance(x, Measurement))
    skipped = tuple(x for x in found if not isinstance(x, Measurement))
    if not taken:
        run = load_run(shipped_runs()[0])
        print(
            f"nothing could be timed here ({'; '.join(map(str, skipped))}): the stored run of "
            f"{run.machine} instead"
        )
        return run
    return Run(machine=taken[0].device, measurements=taken, skipped=skipped)
