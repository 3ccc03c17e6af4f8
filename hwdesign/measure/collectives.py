"""Collectives of torch.distributed, timed: gloo between processes of this machine, NCCL between its
GPUs.

Run on GPUs, or on a CPU with any number of processes::

    torchrun --nproc-per-node 2 -m hwdesign.measure.collectives --json run.json
"""

import argparse
import contextlib
import datetime
import importlib
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hwdesign._check import count, dims, shown, single
from hwdesign.measure.backends import as_backend
from hwdesign.measure.runs import COLLECTIVES, Measurement, Skipped, combine, load_run, save_run
from hwdesign.measure.timer import time_calls

SIZES = {
    "gloo": [2**12, 2**18, 2**23],
    "nccl": [2**14, 2**18, 2**22, 2**26, 2**30],
}  # of the whole tensor [byte]
MOST_PROCESSES = 1024
HOW = "start it with: torchrun --nproc-per-node 2 -m hwdesign.measure.collectives"


def measure_collectives(processes=2, sizes=None, *, timeout=120):
    """Time all-reduce, all-gather, reduce-scatter and all-to-all between processes that this call
    starts.

    Parameters
    ----------
    processes : int
        Ranks, at least 2 and at most 1024: on GPUs one each, on a CPU as many as you like.
    sizes : sequence of int, optional
        Sizes of the whole tensor [byte]; rounded up to a whole number of FP32 elements a rank.
    timeout : float
        Longest time to wait [s].

    Returns
    -------
    list of Measurement or Skipped
        Times [s]; `bandwidth` is the bytes a rank sends over the time [byte/s].

    Raises
    ------
    ValueError
        If there are fewer than 2 processes, or `processes` or `sizes` is not valid.

    Notes
    -----
    Source: own machine. Between processes of one CPU nothing leaves memory: the times show latency
    and bandwidth, not a network.

    Examples
    --------
    >>> measure_collectives(1)
    Traceback (most recent call last):
    ...
    ValueError: processes must be >= 2, got 1
    """
    processes = count("processes", processes, MOST_PROCESSES)
    if processes < 2:
        raise ValueError(f"processes must be >= 2, got {processes}")
    words = dims(sizes=[] if sizes is None else sizes)[0]
    if words.ndim != 1:
        raise ValueError(f"sizes must be a list of numbers, got {shown(sizes)}")
    if single("timeout", timeout) <= 0:
        raise ValueError(f"timeout must be > 0, got {timeout}")
    if not _torch():
        return [
            Skipped(
                operation="collectives",
                reason="torch is not installed, or has no torch.distributed",
            )
        ]
    return _shared(processes, words, timeout)


def _shared(processes, words, timeout):
    """Measurements of so many processes that this one starts; why there are none, if there are."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "run.json"
        command = [
            sys.executable,
            "-m",
            "hwdesign.measure.collectives",
            "--json",
            str(file),
            "--rendezvous",
            f"{folder}/meet",
        ]
        command += ["--sizes", *(f"{size:.0f}" for size in words)] if len(words) else []
        rank = {
            "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(processes),
            "OMP_NUM_THREADS": "1",
            **_loopback(),
        }
        said = [Path(folder) / f"{i}.txt" for i in range(processes)]
        running, end = [], time.monotonic() + timeout
        try:
            for i in range(processes):
                env = os.environ | rank | {"RANK": str(i), "LOCAL_RANK": str(i)}
                with said[i].open("wb") as errors:
                    running.append(
                        subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=errors)
                    )
            for p in running:
                p.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            return [
                Skipped(
                    operation="collectives",
                    reason=f"the {processes} processes did not finish within {timeout} s",
                )
            ]
        finally:
            for p in running:
                if p.poll() is None:
                    p.kill()
                    p.wait()
        if not file.is_file():
            texts = (f.read_text(encoding="utf-8", errors="replace").strip() for f in said)
            last = next((text.splitlines()[-1] for text in texts if text), "no word of why")
            return [Skipped(operation="collectives", reason=last)]
        run = load_run(file)
    return [*run.measurements, *run.skipped]


def main(arguments=None):
    """Time the collectives as one rank of several; rank 0 prints or writes the run.

    Parameters
    ----------
    arguments : list of str, optional
        Words of the command line.

    Returns
    -------
    int
        Exit status [dimensionless]: 0, or 2 with one line of why on standard error.

    Notes
    -----
    Source: torchrun sets RANK, WORLD_SIZE and LOCAL_RANK.

    Examples
    --------
    >>> main([]) if "WORLD_SIZE" not in os.environ else 2
    2
    """
    parser = argparse.ArgumentParser(
        prog="python -m hwdesign.measure.collectives", description=f"Times collectives; {HOW}"
    )
    parser.add_argument("--json", metavar="FILE", help="write the run here")
    parser.add_argument(
        "--sizes", type=int, nargs="+", metavar="BYTE", help="sizes of the whole tensor"
    )
    parser.add_argument("--rendezvous", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    world, torch = int(os.environ.get("WORLD_SIZE", "1")), _torch()
    if torch is None or world < 2:
        why = (
            f"it takes at least two processes; {HOW}"
            if torch
            else "torch is not installed, or has no torch.distributed"
        )
        print(f"hwdesign.measure.collectives: {why}", file=sys.stderr)
        return 2
    name, group, options = _backend_name(torch, os.environ), torch.distributed, {}
    kind = "cuda" if name == "nccl" else "cpu"
    if kind == "cuda":
        options["device_id"] = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(options["device_id"])
    if chosen.rendezvous:
        store = group.FileStore(chosen.rendezvous, world)
        options |= {"store": store, "rank": int(os.environ["RANK"]), "world_size": world}
    group.init_process_group(name, timeout=datetime.timedelta(seconds=60), **options)
    try:
        taken = measure_group(torch, name, chosen.sizes or SIZES[name])
        if group.get_rank() == 0:
            machine = (
                f"{world} {'x' if kind == 'cuda' else 'processes on'} "
                f"{as_backend(f'torch-{kind}').device}"
            )
            if chosen.json:
                save_run(chosen.json, taken, machine=machine)
            else:
                print(*taken, sep="\n")
    finally:
        group.destroy_process_group()
    return 0


def _backend_name(torch, env):
    """NCCL where each rank of this machine has a GPU of its own, else gloo: the same answer on each
    of them.
    """
    ranks = int(env.get("LOCAL_WORLD_SIZE", env["WORLD_SIZE"]))
    nccl = (
        torch.cuda.is_available()
        and torch.distributed.is_nccl_available()
        and torch.cuda.device_count() >= ranks
    )
    return "nccl" if nccl else "gloo"


def measure_group(torch, name, sizes, *, rounds=5):
    """Time the collectives of the process group this rank is in; every rank must call it.

    Parameters
    ----------
    torch : module
        An imported torch with an initialised process group.
    name : str
        "gloo" or "nccl".
    sizes : sequence of int
        Sizes of the whole tensor [byte].
    rounds : int
        Rounds of repeats.

    Returns
    -------
    list of Measurement or Skipped
        Times [s], the largest over the ranks.

    Notes
    -----
    Source: own machine. Ranks send whole numbers, so that what each must receive is known exactly;
    a rank that received anything else flags the time on all of them.

    Examples
    --------
    >>> measure_group(None, "gloo", [])
    []
    """
    found = []
    for operation in COLLECTIVES:
        for size in sizes:
            try:
                found.append(combine([_round(torch, name, operation, size) for _ in range(rounds)]))
            except (RuntimeError, MemoryError) as error:
                reason = str(error).strip().split("\n")[0] or "out of memory"
                found.append(Skipped(operation=f"{operation} {name}", reason=reason))
                break
    return found


def _timed_by_all(torch, kind, call):
    """Time of a collective that all ranks agree on, so that they agree on the repeats, too."""
    group = torch.distributed

    def batch(count):
        group.barrier()
        if kind == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        if kind == "cuda":
            torch.cuda.synchronize()
        slowest = torch.tensor([time.perf_counter() - start], device=kind)
        group.all_reduce(slowest, op=group.ReduceOp.MAX)
        return slowest.item()

    return time_calls([call], batch=batch)


def _round(torch, name, operation, size):
    group, kind = torch.distributed, "cuda" if name == "nccl" else "cpu"
    ranks, rank = group.get_world_size(), group.get_rank()
    share = max(1, math.ceil(size / 4 / ranks))  # FP32 elements a rank
    length = share if operation == "all_gather" else share * ranks
    i = torch.arange(share * ranks, device=kind)

    def number(j, r):
        return (j % 97 + r).float()  # sums of them are exact

    mine = number(i[:length], rank)
    out = torch.empty(share if operation == "reduce_scatter" else share * ranks, device=kind)
    part = slice(rank * share, (rank + 1) * share)
    wanted = {
        "all_reduce": lambda: sum(number(i, r) for r in range(ranks)),
        "all_gather": lambda: number(i % share, i // share),
        "reduce_scatter": lambda: sum(number(i[part], r) for r in range(ranks)),
        "all_to_all": lambda: number(i % share + rank * share, i // share),
    }[operation]()
    # the newer names, where they exist
    gather = getattr(group, "all_gather_single", None) or group.all_gather_into_tensor
    scatter = getattr(group, "reduce_scatter_single", None) or group.reduce_scatter_tensor
    call = {
        "all_reduce": lambda: group.all_reduce(out),
        "all_gather": lambda: gather(out, mine),
        "reduce_scatter": lambda: scatter(out, mine),
        "all_to_all": lambda: group.all_to_all_single(out, mine),
    }[operation]
    if operation == "all_reduce":
        out.copy_(mine)
    call()
    bad = torch.tensor([0.0 if torch.equal(out, wanted) else 1.0], device=kind)
    group.all_reduce(bad, op=group.ReduceOp.MAX)
    flags = (
        "wrong result: what at least one rank received differs from what was sent; do not use "
        "this time",
    ) * int(bad.item())
    out.zero_()  # summed again and again, anything else would overflow

    timing = _timed_by_all(torch, kind, call)
    backend = as_backend(f"torch-{kind}")
    return Measurement(
        operation=operation,
        shape={"nbytes": share * ranks * 4, "ranks": ranks},
        precision="fp32",
        seconds=timing.seconds,
        spread=timing.spread,
        repeats=timing.repeats,
        device=backend.device,
        device_name=backend.device_name,
        backend=name,
        software=backend.software,
        taken_on=datetime.date.today().isoformat(),
        flags=flags,
    )


def _torch():
    with contextlib.suppress(ImportError, OSError, RuntimeError):
        torch = importlib.import_module("torch")
        return torch if importlib.import_module("torch.distributed").is_available() else None
    return None


def _loopback():
    """Gloo looks up the host's name, which not every machine knows: name the loopback where it
    exists.
    """
    with contextlib.suppress(OSError, AttributeError):
        names = [name for _, name in socket.if_nameindex()]
        return next(({"GLOO_SOCKET_IFNAME": name} for name in ("lo", "lo0") if name in names), {})
    return {}


if __name__ == "__main__":
    sys.exit(main())
