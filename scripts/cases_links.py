"""Exchanges between GPUs, in the kernels of the engines."""

import numpy as np
from calibration_cases import Case, every_third, version_of

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.formulas.collectives import remote_copies
from hwdesign.timing import kernels
from hwdesign.timing.silicon import measurements, tables

OPERATIONS = ("all-reduce", "ring", "dispatch", "combine")
HIDDEN, TOP_K, EXPERTS = 7168, 8, 256  # the layer of DeepSeek-R1 that the tables of the all-to-all hold

LINK = {"latency": (5e-6, 1e-7, 1e-4), "bandwidth": (0.7, 0.05, 1)}
ALL_REDUCE = LINK | {"doubling": (5e-7, 1e-8, 1e-5), "second": (5e-6, 1e-8, 1e-4)}
RING = LINK | {"step": (1e-6, 1e-8, 1e-5)}
ALL_TO_ALL = LINK | {"doubling": (2e-6, 1e-8, 1e-5)}


def link_case(operation, device):
    """Collectives inside an NVLink domain; every third size is held out, for the all-to-all every third token count."""
    card = as_device(device)
    if operation == "all-reduce":
        rows, model, bounds = measurements("collectives", device, library="trtllm"), kernels.all_reduce_seconds, ALL_REDUCE
        framework, version = version_of("all_reduce_trtllm", device)
    elif operation == "ring":
        rows = measurements("collectives", device, library="nccl", operation=["all-gather", "reduce-scatter"])
        model, bounds, (framework, version) = kernels.ring_seconds, RING, version_of("nccl", device)
    else:
        rows = measurements("all_to_all", device, operation=f"all-to-all-{operation}", ep=[4, 8, 16, 32])
        framework, version = version_of("all_to_all", device)
        copies = np.array([float(remote_copies(TOP_K, EXPERTS, int(ep), balanced=True)) for ep in rows["ep"]])
        element = 2.0 if operation == "combine" else as_recipe("nvfp4").activations.bytes
        rows = rows | {"bytes": rows["tokens"] * copies * HIDDEN * element, "ranks": rows["ep"]}
        model, bounds = kernels.all_to_all_seconds, ALL_TO_ALL
    nbytes, ranks = rows["bytes"], rows["ranks"]
    return Case(
        operation=operation,
        device=device,
        precision="",
        framework=framework,
        version=version,
        seconds=rows["seconds"].astype(float),
        predict=lambda c, rows=slice(None): model(nbytes[rows], ranks[rows], card.link_bandwidth, c),
        bounds=bounds,
        held=every_third(rows.get("tokens", nbytes)),
        subsets={"all": np.ones(len(nbytes), bool)},
        shape=rows,
    )


def cases(source):
    """Every case, one after the other."""
    for operation in ("all-reduce", "ring"):
        for row in tables():
            if row["operation"] == "nccl":
                yield link_case(operation, row["device"])
    for operation in ("dispatch", "combine"):
        yield link_case(operation, "GB200")
