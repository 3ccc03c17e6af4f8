"""The stop-watch: warm up, repeat in small blocks, take the median of each block and the smallest
of these medians.

A median shuts out the odd slow reading; the smallest median shuts out what disturbs a computer for
longer, such as other programs, which only ever add time.

A CPU is timed with the system's counter, with enough calls between two readings that its resolution
does not matter. A GPU is timed by its own events round replays of a CUDA graph that holds all
calls, often enough to last a millisecond when Python starts them, so that neither starting kernels
nor starting the graph counts. Source: the practice of Triton's `do_bench` and NVIDIA's nvbench
(warm-up, many readings, medians or quantiles, cold caches).
"""

import itertools
import math
import statistics
import time
from dataclasses import dataclass

WARM_UP = 3  # units run first and not counted; the fastest of them sets how many make a repeat
LEAST = {"cpu": 2e-4, "cuda": 2e-3}  # shortest time between two readings [s]
GRAPH = (1e-3, 1024)  # time Python would take to start what a graph holds [s]; most turns in it
BLOCK, BLOCKS = 3, (3, 20)  # repeats in a block; fewest and most blocks


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Time of one call.

    Parameters
    ----------
    seconds : float
        The smallest of the medians of the blocks [s].
    spread : float
        From there to the middle one of these medians [s].
    repeats : int
        Readings taken.
    flags : tuple of str
        What a reader must know.

    Examples
    --------
    >>> time_calls([lambda: None]).repeats
    60
    """

    seconds: float  # [s]
    spread: float  # [s]
    repeats: int
    flags: tuple[str, ...] = ()


def time_calls(
    calls, *, torch=None, batch=None, before=lambda: None, budget=0.03, clock=time.perf_counter
):
    """Time of one call, when the calls are made in turn: the smallest median of 3 to 20 blocks of 3
    repeats.

    Parameters
    ----------
    calls : sequence of callable
        The same work on different data, so that no call finds its operands in a cache.
    torch : module, optional
        The torch that drives a CUDA device; without it the calls are timed on the CPU.
    batch : callable, optional
        Own stop-watch: makes a number of calls and returns the time they took [s].
    before : callable
        Called once, before the warm-up: clears the results, so that a check sees what the timed
        calls wrote.
    budget : float
        Time to spend on repeats [s]; 3 blocks are taken at least.
    clock : callable
        Counter of the CPU [s].

    Returns
    -------
    Timing
        Time and spread [s].

    Notes
    -----
    Source: see the head of this module.

    If the calls cannot be captured in a CUDA graph, they are started one by one, and a flag says
    so.

    Examples
    --------
    >>> spans = iter(
    ...     [99, 1, 1] + 20 * [2, 2, 77]
    ... )  # warm-up: 99 s, 1 s, 1 s; then in each block 2 s, 2 s and a slow one
    >>> timing = time_calls([], batch=lambda count: next(spans), budget=1e9)
    >>> timing.seconds, timing.spread, timing.repeats
    (2.0, 0.0, 60)
    """
    if batch is None:
        batch, unit, flags = _on_cuda(calls, torch) if torch else _on_cpu(calls, clock)
    else:
        unit, flags = 1, ()
    before()
    once = max(min(batch(1) for _ in range(WARM_UP)), 1e-9)
    count = math.ceil(LEAST["cuda" if torch else "cpu"] / once)
    blocks = int(min(max(budget / (BLOCK * count * once), BLOCKS[0]), BLOCKS[1]))
    medians = [
        statistics.median(batch(count) / (count * unit) for _ in range(BLOCK))
        for _ in range(blocks)
    ]
    best = min(medians)
    spread = statistics.median(medians) - best
    return Timing(seconds=best, spread=spread, repeats=blocks * BLOCK, flags=flags)


def _on_cpu(calls, clock):
    turn = itertools.cycle(calls)

    def batch(count):
        start = clock()
        for call in itertools.islice(turn, count):
            call()
        return clock() - start

    return batch, 1, ()


def _on_cuda(calls, torch):
    def one_by_one():
        for call in calls:
            call()

    one_by_one()  # outside the graph: libraries choose and load their kernels at the first call
    torch.cuda.synchronize()
    begin = time.perf_counter()
    one_by_one()
    torch.cuda.synchronize()
    turns = min(GRAPH[1], math.ceil(GRAPH[0] / max(time.perf_counter() - begin, 1e-7)))
    replay, flags = one_by_one, ()
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(turns):
                one_by_one()
        replay = graph.replay
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError as error:
        torch.cuda.synchronize()
        turns, first = 1, str(error).split("\n")[0]
        flags = (
            "no CUDA graph: the calls were started one by one, short ones wait for Python "
            f"({first})",
        )
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def batch(count):
        replay()  # keeps the device busy while the timed ones are queued; not counted
        start.record()
        for _ in range(count):
            replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3

    return batch, len(calls) * turns, flags
