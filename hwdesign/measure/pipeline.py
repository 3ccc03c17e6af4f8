"""A pipeline on the CPU, timed: each stage is a thread with a core and layers of its own; chunks go
from queue to queue.
"""

import json
import os
import queue
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from hwdesign._check import dims, whole
from hwdesign.measure.backends import Backend
from hwdesign.measure.runs import SHAPE, Measurement, Skipped, combine

# What libraries read to know their threads: a stage that took more than one would use the cores of
# the others.
ALONE = {
    f"{name}_THREADS": "1"
    for name in ("OMP_NUM", "OPENBLAS_NUM", "GOTO_NUM", "MKL_NUM", "BLIS_NUM", "VECLIB_MAXIMUM")
}


def measure_pipeline(
    stages=2,
    chunks=(1, 2, 4, 8, 16, 32, 64),
    *,
    tokens=1024,
    hidden=512,
    layers=16,
    rounds=3,
    timeout=120,
):
    """Time a batch on its way through layers in one stage, in even stages, and with half as many
    layers again in the first.

    Parameters
    ----------
    stages : int
        Stages P, at least 2; each is a thread on a core.
    chunks : int or sequence of int
        Numbers of chunks; they divide `tokens`.
    tokens, hidden : int
        Tokens [token] of the whole batch and hidden size [element]; a layer is one product with a
        square FP32 matrix.
    layers : int
        Layers of all stages together: a multiple of P, two each at least.
    rounds : int
        Rounds of all cases, one reading each.
    timeout : float
        Longest time to wait [s].

    Returns
    -------
    list of Measurement or Skipped
        Times from the first start to the last end [s]; the cases are told apart by `stages` and
        `largest`, the layers of the largest stage, in their shape.

    Raises
    ------
    ValueError
        If a number is not whole or below its least, or `chunks` do not divide `tokens` or `stages`
        do not divide `layers`.

    Notes
    -----
    Source: own machine. A process of its own does the work, since libraries read their number of
    threads when they are loaded. Stages share what cores share: caches, memory, the clock, and
    where two "cores" are threads of one, or share one matrix unit, all of its arithmetic; then two
    stages gain little.

    Examples
    --------
    >>> measure_pipeline(2, [3])
    Traceback (most recent call last):
    ...
    ValueError: chunks must be numbers that divide tokens = 1024, got [3]
    """
    stages, tokens, hidden, layers, rounds = whole(
        stages=stages, tokens=tokens, hidden=hidden, layers=layers, rounds=rounds
    )
    parts = np.atleast_1d(*dims(chunks=chunks)).astype(int)
    if not parts.size or (tokens % parts).any():
        raise ValueError(f"chunks must be numbers that divide tokens = {tokens}, got {chunks!r}")
    if stages < 2 or layers % stages or layers < 2 * stages:
        raise ValueError(
            f"stages must be >= 2 and layers 2, 3, ... times as many, got stages {stages} and "
            f"layers {layers}"
        )
    cores = _cores()
    if cores < stages:
        return [
            Skipped(
                operation="pipeline",
                reason=f"{stages} stages need {stages} cores, this machine has {cores}",
            )
        ]
    splits = [
        timed_split(1, layers, layers),
        *(timed_split(stages, layers, n * layers // (2 * stages)) for n in (2, 3)),
    ]
    command = [
        sys.executable,
        "-m",
        "hwdesign.measure.pipeline",
        json.dumps([splits, parts.tolist(), tokens, hidden, rounds]),
    ]
    return _run_alone(command, timeout)


def _cores():
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _run_alone(command, timeout):
    """Measurements that a process of its own prints; why there are none, if there are."""
    try:
        ended = subprocess.run(
            command,
            env=os.environ | ALONE,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return [
            Skipped(operation="pipeline", reason=f"the stages did not finish within {timeout} s")
        ]
    if ended.returncode:
        return [
            Skipped(
                operation="pipeline",
                reason=(ended.stderr.strip().splitlines() or ["no word of why"])[-1],
            )
        ]
    return [Measurement(**row) for row in json.loads(ended.stdout)]


def timed_split(stages, layers, largest):
    """Layers of each stage of a timed pipeline: the first has the most, the others share the rest
    as evenly as they can.

    Parameters
    ----------
    stages, layers, largest : int
        As in the shape of a `Measurement` of a pipeline.

    Returns
    -------
    tuple of int
        Layers of each stage [layer].

    Examples
    --------
    >>> timed_split(2, 16, 12), timed_split(4, 16, 6)
    ((12, 4), (6, 4, 3, 3))
    """
    rest, others = layers - largest, stages - 1
    return (largest, *(rest // others + (i < rest % others) for i in range(others)))


def _inside(splits, chunks, tokens, hidden, rounds):
    """What the process of its own does: time every case once a round, so that the rounds of each
    lie apart.
    """
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((sum(splits[0]), hidden, hidden), np.float32) / np.float32(
        hidden**0.5
    )  # keep the size
    x = rng.standard_normal((tokens, hidden), np.float32)
    wanted = x[:: tokens // max(chunks)].astype(np.float64)  # a row of every chunk
    for weight in weights:
        wanted = wanted @ weight
    _pass(x, weights, wanted, splits[1], 1)  # warms up
    taken = [
        [_pass(x, weights, wanted, split, n) for split in splits for n in chunks]
        for _ in range(rounds)
    ]
    return [combine(each) for each in zip(*taken, strict=True)]


def _pass(x, weights, wanted, split, chunks):
    """One pass, timed, its result checked."""
    both = np.stack(
        [x, np.full_like(x, np.nan)]
    )  # a layer reads one and writes the other: nothing is copied or taken anew
    lines, clock, first = (
        [queue.SimpleQueue() for _ in range(len(split) + 1)],
        [],
        np.cumsum([0, *split]),
    )
    for start in range(0, len(x), len(x) // chunks):
        lines[0].put(slice(start, start + len(x) // chunks))

    def stage(s):
        for _ in range(chunks):
            rows = lines[s].get()
            clock.append(time.perf_counter())
            for i in range(first[s], first[s + 1]):
                np.matmul(
                    both[i % 2, rows], weights[i], out=both[(i + 1) % 2, rows]
                )  # other threads run meanwhile
            lines[s + 1].put(rows)
        clock.append(time.perf_counter())

    with ThreadPoolExecutor(len(split)) as pool:
        list(pool.map(stage, range(len(split))))
    cpu, found = Backend(), both[len(weights) % 2, :: len(x) // len(wanted)]
    return Measurement(
        operation="pipeline",
        precision="fp32",
        seconds=max(clock) - min(clock),
        spread=0.0,
        repeats=1,
        backend=cpu.name,
        shape=dict(
            zip(
                SHAPE["pipeline"],
                (len(split), chunks, *x.shape, len(weights), max(split)),
                strict=True,
            )
        ),
        device=cpu.device,
        software=cpu.software,
        taken_on=time.strftime("%Y-%m-%d"),
        flags=cpu.compare("fp32", found, wanted, np.sqrt((wanted**2).mean())),
    )


if __name__ == "__main__":
    print(json.dumps([vars(m) for m in _inside(*json.loads(sys.argv[1]))], default=dict))
