"""Collectives of torch.distributed, timed: gloo between processes of this machine, NCCL between its GPUs.

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

import numpy as np

from hwdesign._check import dims
from hwdesign.measure.backends import as_backend
from hwdesign.measure.runs import COLLECTIVES, Measurement, Skipped, combine, load_run, save_run
from hwdesign.measure.timer import time_calls

SIZES = {"gloo": [2**12, 2**18, 2**23], "nccl": [2**14, 2**18, 2**22, 2**26, 2**30]}  # of the whole tensor [byte]
HOW = "start it with: torchrun --nproc-per-node 2 -m hwdesign.measure.collectives"


def measure_collectives(processes=2, sizes=None, *, timeout=120):
    """Time all-reduce, all-gather, reduce-scatter and all-to-all between processes that this call starts.

    Parameters
    ----------
    processes : int
        Ranks, at least 2: on GPUs one each, on a CPU as many as you like.
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
        If there are fewer than 2 processes.

    Notes
    -----
    Source: own machine. Between processes of one CPU nothing leaves memory: the times show latency and bandwidth, not a network.

    Examples
    --------
    >>> measure_collectives(1)
    Traceback (most recent call last):
    ...
    ValueError: processes must be >= 2, got 1
    """
    if processes < 2:
        raise ValueError(f"processes must be >= 2, got {processes}")
    if not _torch():
        return [Skipped(operation="collectives", reason="torch is not installed, or has no torch.distributed")]
    sizes = [int(s) for s in dims(sizes=sizes)[0]] if sizes else []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.json"
        command = [sys.executable, "-m", "hwdesign.measure.collectives", "--json", str(file), "--rendezvous", f"{folder}/meet"]
        command += ["--sizes", *map(str, sizes)] if sizes else []
        rank = {"WORLD_SIZE": str(processes), "OMP_NUM_THREADS": "1", **_loopback()}
        running = []
        try:
            for i in range(processes):
                env = os.environ | rank | {"RANK": str(i), "LOCAL_RANK": str(i)}
                running.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
            said = [p.communicate(timeout=timeout)[1] for p in running]
        except subprocess.TimeoutExpired:
            return [Skipped(operation="collectives", reason=f"the {processes} processes did not finish within {timeout} s")]
        finally:
            for p in running:
                if p.poll() is None:
                    p.kill()
                    p.communicate()
        if not file.is_file():
            last = next((text.strip().splitlines()[-1] for text in said if text.strip()), "no word of why")
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
    parser = argparse.ArgumentParser(prog="python -m hwdesign.measure.collectives", description=f"Times collectives; {HOW}")
    parser.add_argument("--json", metavar="FILE", help="write the run here")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="BYTE", help="sizes of the whole tensor")
    parser.add_argument("--rendezvous", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    world, torch = int(os.environ.get("WORLD_SIZE", "1")), _torch()
    if torch is None or world < 2:
        why = f"it takes at least two processes; {HOW}" if torch else "torch is not installed, or has no torch.distributed"
        print(f"hwdesign.measure.collectives: {why}", file=sys.stderr)
        return 2
    local = int(os.environ.get("LOCAL_RANK", "0"))
    cuda = torch.cuda.is_available() and torch.distributed.is_nccl_available() and torch.cuda.device_count() > local
    if cuda:
        torch.cuda.set_device(local)
    meet = {"init_method": f"file://{chosen.rendezvous}", "rank": int(os.environ["RANK"]), "world_size": world}
    name = "nccl" if cuda else "gloo"
    torch.distributed.init_process_group(name, timeout=datetime.timedelta(seconds=60), **(meet if chosen.rendezvous else {}))
    try:
        taken = measure_group(torch, name, chosen.sizes or SIZES[name])
        if torch.distributed.get_rank() == 0:
            machine = f"{world} x {taken[0].device}" if cuda else f"{world} processes on {taken[0].device}"
            if chosen.json:
                save_run(chosen.json, taken, machine=machine)
            else:
                print(*taken, sep="\n")
    finally:
        torch.distributed.destroy_process_group()
    return 0


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
    Source: own machine. The result of each collective is compared with what the seeds of all ranks give.

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
            except (RuntimeError, NotImplementedError, AttributeError, ValueError) as error:
                found.append(Skipped(operation=f"{operation} {name}", reason=str(error).splitlines()[0]))
                break
    return found


def _round(torch, name, operation, size):
    group, kind = torch.distributed, "cuda" if name == "nccl" else "cpu"
    ranks, rank = group.get_world_size(), group.get_rank()
    share = max(1, math.ceil(size / 4 / ranks))  # FP32 elements a rank
    length = share if operation == "all_gather" else share * ranks
    data = [np.random.default_rng(i).standard_normal(length, dtype=np.float32) for i in range(ranks)]
    mine = torch.from_numpy(data[rank]).to(kind)
    out = torch.empty(share if operation == "reduce_scatter" else share * ranks, device=kind)
    part = slice(rank * share, (rank + 1) * share)
    wanted = {
        "all_reduce": lambda: np.sum(data, 0, dtype=np.float64),
        "all_gather": lambda: np.concatenate(data),
        "reduce_scatter": lambda: np.sum([x[part] for x in data], 0, dtype=np.float64),
        "all_to_all": lambda: np.concatenate([x[part] for x in data]),
    }[operation]()
    gather = getattr(group, "all_gather_single", None) or group.all_gather_into_tensor
    scatter = getattr(group, "reduce_scatter_single", None) or group.reduce_scatter_tensor  # the newer names, where they exist
    call = {
        "all_reduce": lambda: group.all_reduce(out),
        "all_gather": lambda: gather(out, mine),
        "reduce_scatter": lambda: scatter(out, mine),
        "all_to_all": lambda: group.all_to_all_single(out, mine),
    }[operation]
    if operation == "all_reduce":
        out.copy_(mine)
    call()
    flags = () if np.allclose(out.cpu().numpy(), wanted, rtol=1e-4, atol=1e-4) else (
        f"wrong result: the {operation} of rank {rank} differs from the float64 reference; do not use this time",)  # fmt: skip
    out.zero_()  # summed again and again, anything else would overflow

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
        group.all_reduce(slowest, op=group.ReduceOp.MAX)  # so that all ranks agree on the repeats, too
        return float(slowest.cpu().numpy()[0])

    timing = time_calls([call], batch=batch)
    backend = as_backend(f"torch-{kind}")
    return Measurement(
        operation=operation, shape={"nbytes": share * ranks * 4, "ranks": ranks}, precision="fp32", seconds=timing.seconds,
        spread=timing.spread, repeats=timing.repeats, device=backend.device, device_name=backend.device_name, backend=name,
        software=backend.software, taken_on=datetime.date.today().isoformat(), flags=flags,
    )  # fmt: skip


def _torch():
    with contextlib.suppress(ImportError, OSError, RuntimeError):
        torch = importlib.import_module("torch")
        return torch if importlib.import_module("torch.distributed").is_available() else None
    return None


def _loopback():
    """Gloo looks up the host's name, which not every machine knows: name the loopback where it exists."""
    with contextlib.suppress(OSError, AttributeError):
        names = [name for _, name in socket.if_nameindex()]
        return next(({"GLOO_SOCKET_IFNAME": name} for name in ("lo", "lo0") if name in names), {})
    return {}


if __name__ == "__main__":
    sys.exit(main())
