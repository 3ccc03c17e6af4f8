"""Measured power of kernels on B200, as far as the readings tell it.

The tables of TensorRT-LLM 1.3.0rc20 hold one number of watts a row: the mean of what the driver reported every 100 ms while the
kernel ran. That is not the power of the kernel:

- The driver reports the mean of the second before each reading (NVML, nvmlDeviceGetPowerUsage, Ampere and newer).
- Readings start with the run, and a run is short: 3000 starts at most, a second at most. A kernel of 20 us is read once, after
  0.06 s; what is read is what the GPU did before.
- With the same power throughout, a run that starts on an idle GPU reads `start + reach (power - start)`. `reach` is the mean over
  the readings of the share of the second before them in which the kernel ran: about 0.5 for a run of a second.

So a large GEMM at the limit of 1000 W reads 630 W after an idle second and 985 W after a busy one. Used here are:

- GEMMs: runs long enough (`reach` >= 0.25) whose number of readings is certain. A mean of n readings of whole milliwatts is a
  multiple of 1 mW / n, so n is known up to a factor. Readings that an idle start can give are taken to have started idle, and
  the power is solved for; readings near the limit are the power itself; what lies between started neither idle nor busy.
- GEMMs of at most 64 rows whose weights exceed the L2 cache: the collector keeps those for all m and hardly stops between runs.
  Where the run before read the same within 5 % and an idle start is impossible, the reading is the power.
- Experts: the token counts of a layer ran one after the other on one GPU. Where three runs in a row fill a second and two
  readings in a row agree within 5 %, the reading is the power.

Left out: attention (cases of all sizes follow each other in no order, so that nobody knows the start), modules and small kernels
(too short), experts with unequal loads (the loads are not in the table) and in the min-latency kernels, all-reduce (20 to 40 %
of a second each, on constant data).
"""

import numpy as np
from calibration_cases import third

from hwdesign.catalogue.precision import recipe as as_recipe

DEVICE, FRAMEWORK, VERSION = "B200", "trtllm", "1.3.0rc20"  # the only tables with power
LIMIT = 1000.0  # [W], `power_limit` of the tables
IDLE = 244.0  # [W]: all-reduces up to 64 KiB, one reading each, on a GPU that had done nothing
START = 250.0  # [W]: what the first reading shows after the preparation of a case: IDLE and a few kernels
PERIOD, RUNS, PREPARED = 0.1, 3000, 7  # [s] between readings; most runs; runs before the first reading (dry, eager, graph)
L2 = 126 * 2**20  # [byte]: weights are copied until they exceed it, five times at most
BANDWIDTH = 7.7e12  # [byte/s]: rows above it did not read what they say
LEAST_REACH, NEAR, ABOVE, SETTLED, FEW = 0.25, 0.9, 1.03, 0.05, 64
NARROW = 512  # [element]: as in the fit of the times; tiles of narrower products are mostly padding
HOST = 6e-4  # [s] that the host takes to start a layer of experts: it sets how long a run lasts
FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
STORED = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5}  # [byte] as the collector counts
KERNELS = ("moe_torch_flow_cutlass", "deepgemm")


def readings(power):
    """Smallest number of readings of whole milliwatts that have this mean [W]."""
    found = np.zeros(len(power), int)
    for n in range(60, 0, -1):
        total = 1e3 * n * power
        found[np.abs(total - np.round(total)) < 1e-3 * np.sqrt(n)] = n
    return found


def reach(count, before):
    """Share of the second before a reading in which the kernel ran, mean over the readings: they are `PERIOD` apart, the first
    `before` seconds after the start.
    """
    at = PERIOD * np.arange(count.max())
    shares = np.minimum(1, before[:, None] + at)
    return np.where(np.arange(len(at)) < count[:, None], shares, 0).sum(1) / count


def _table(source, name):
    return source.table(source.versions(DEVICE, name, name, FRAMEWORK)[VERSION])


def gemm_rows(source):
    """GEMMs whose power the reading tells: columns as arrays."""
    rows = _table(source, "gemm")
    rows = _only(rows, rows["power"] > 0)
    form = np.array([FORMATS[name] for name in rows["gemm_dtype"].tolist()])
    m, n, k = (rows[x].astype(float) for x in "mnk")
    seconds, power = rows["latency"] * 1e-3, rows["power"]
    stored = np.array([STORED[name] for name in form])
    copies = np.clip(np.ceil(L2 / (n * k * stored)), 1, 5)
    once = copies * seconds
    count = readings(power)
    run = np.minimum(RUNS * once, np.maximum(1.15, 6 * once))
    certain = 2 * count > np.floor(run / PERIOD) + 1
    reached = reach(count, PREPARED * once)
    idle = power <= START + (ABOVE * LIMIT - START) * reached
    busy = ~idle & (power >= NEAR * LIMIT)
    long = certain & (reached >= LEAST_REACH)
    kept = (copies == 1) & (form != "fp8_block")  # whose scales are arranged anew before each run
    few = (m <= FEW) & kept & ~idle & ~long & _agrees(form, n, k, power)
    size = np.array([as_recipe(name).weights.bytes for name in form])
    quantized = np.where(form == "bf16", 0, m * k * (2 + size))  # a pass of its own over the inputs
    found = {
        "kind": np.full(len(m), "gemm"),
        "form": form,
        "flops": 2 * m * n * k,
        "bytes": (m * k + n * k) * size + 2 * m * n + quantized,
        "rows": m,
        "seconds": seconds,
        "power": np.where(idle & long, START + (power - START) / reached, power),
        "reading": power,
        "held": third(n, k),
        "m": m,
        "n": n,
        "k": k,
    }
    wide = (n >= NARROW) & (k >= NARROW)
    return _only(found, wide & (long & (idle | busy) | few))


def _agrees(form, n, k, power):
    """Where the run before, of the same weights, read the same within 5 %: so did the second before this run."""
    same = (form[1:] == form[:-1]) & (n[1:] == n[:-1]) & (k[1:] == k[:-1])
    agrees = np.zeros(len(power), bool)
    agrees[1:] = same & (np.abs(np.log(power[1:] / power[:-1])) < SETTLED)
    return agrees


def expert_rows(source):
    """Layers of experts at balanced load whose readings have settled: columns as arrays."""
    shape = ("moe_dtype", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
    rows = _table(source, "moe")
    place = np.arange(len(rows["latency"]))
    keep = (rows["distribution"] == "balanced") & np.isin(rows["kernel_source"], KERNELS)
    keep &= np.isin(rows["moe_dtype"], list(FORMATS))
    rows, place = _only(rows, keep), place[keep]
    form = np.array([FORMATS[name] for name in rows["moe_dtype"].tolist()])
    keys = np.stack([np.unique(rows[name], return_inverse=True)[1] for name in shape])
    order = np.lexsort((rows["num_tokens"], *keys[::-1]))
    rows, form, keys, place = _only(rows, order), form[order], keys[:, order], place[order]
    seconds, power = rows["latency"] * 1e-3, rows["power"]
    h, w, top, experts, tp, ep, tokens = (rows[name].astype(float) for name in (*shape[1:], "num_tokens"))
    size = np.array([as_recipe(name).weights.bytes for name in form])
    pairs = np.maximum(top * tokens / ep, 1)
    touched = np.maximum(np.minimum(experts, top * tokens) / ep, 1)
    w = w / tp
    moved = touched * 3 * h * w * size + pairs * (h * (2 + size) + 4 * w + w * (2 + size) + 4 * h)
    found = {
        "kind": np.full(len(h), "experts"),
        "form": form,
        "flops": 6 * pairs * h * w,
        "bytes": moved,
        "rows": np.maximum(pairs / touched, 1),
        "seconds": seconds,
        "power": power,
        "reading": power,
        "held": third(h, rows["inter_size"], top, experts),
    }
    return _only(found, _settled(keys, place, seconds, power) & (moved / seconds < BANDWIDTH))


def _settled(keys, place, seconds, power):
    """Where three runs of a layer in a row fill a second and the last two readings agree."""
    run = np.minimum(RUNS * seconds, np.minimum(1, seconds / HOST))
    settled = np.zeros(len(power), bool)
    same = (keys[:, 2:] == keys[:, 1:-1]).all(0) & (keys[:, 2:] == keys[:, :-2]).all(0)
    measured = (power[2:] > 0) & (power[1:-1] > 0) & (power[:-2] > 0)
    filled = run[2:] + run[1:-1] + run[:-2] >= 1
    with np.errstate(divide="ignore", invalid="ignore"):
        agree = np.abs(np.log(power[2:] / power[1:-1])) < SETTLED
    near = np.abs(place[2:] - place[1:-1]) < 200  # rows stand in the order in which they ended
    settled[2:] = same & measured & filled & agree & near
    return settled


def _only(rows, keep):
    return {name: values[keep] for name, values in rows.items()}


def rows(source):
    """Rows of both tables; `weight` gives each table and format the same say, and GEMMs of few rows as much as the rest."""
    gemm, experts = gemm_rows(source), expert_rows(source)
    both = {name: np.concatenate([gemm[name], experts[name]]) for name in experts}
    few = (both["kind"] == "gemm") & (both["rows"] <= FEW) & (both["form"] != "fp8_block")
    groups = np.char.add(np.char.add(both["kind"], both["form"]), np.where(few, "few", ""))
    names, index, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return both | {"weight": len(groups) / len(names) / counts[index]}
