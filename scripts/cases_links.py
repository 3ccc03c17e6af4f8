"""Exchanges between GPUs, in the kernels of the engines.

All-reduce: replays of a CUDA graph of five exchanges of BF16 tensors, in the kernel that the engine chooses by itself at that
size and number of ranks; `message_size` counts elements. The same tables without a graph time the host and stay out. All-gather
and reduce-scatter: NCCL's own benchmark. Dispatch and combine: TensorRT-LLM's one-sided all-to-all on GB200, and DeepEP in
SGLang inside one host.

Left out:
- SGLang 0.5.6.post2, and of L40S SGLang 0.5.9: their rows name TensorRT-LLM.
- L40S: two sockets, whose rates fall to a tenth from 2 to 8 ranks; a link of one rate does not describe it.
- NCCL 2.30.7: 60 rows of all-reduce alone; 2.23 to 2.27 but for the ranks that no newer version times.
- The all-to-all of vLLM 0.24.0 and TensorRT-LLM 1.3.0rc11 (`moe_a2a`): timed without a graph. DeepEP's dispatch of one token
  takes 47 to 81 us there and 13 to 21 us in SGLang's table, neighbouring sizes differ by up to two, so most of it is the host.
- The two-sided all-to-all of TensorRT-LLM, which it does not take where the one-sided one runs.
- DeepEP over several hosts (H100, H200; SGLang 0.5.6.post2): crosses InfiniBand.
- DeepEP with one or two experts a token (Llama 4, Mixtral): of 8 or 16 experts one GPU receives most, and bytes sent do not
  say so.
- DeepEP for many tokens with another number of SMs than the 20 that it takes by default.
"""

import numpy as np
from calibration_cases import Case, every_third, third
from silicon_source import SERVED_VERSIONS, versions_text

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.formulas.collectives import remote_copies
from hwdesign.timing import kernels
from hwdesign.timing.calibration import constants

DEEPEP = {"low latency": ("wideep_deepep_ll", "_avg_t_us"), "high throughput": ("wideep_deepep_normal", "_transmit_us")}
PHASES = ("dispatch", "combine")
OPERATIONS = ("all-reduce", "ring", *PHASES, *(f"{phase} {kernel}" for phase in PHASES for kernel in DEEPEP))

RACKS = ("GB300", "GB200")  # hosts of four GPUs
HOSTS = ("B300", "B200", "H200", "H100_SXM")  # hosts of eight; as the racks, their switches sum
UNSWITCHED = ("A100_SXM", "RTX_PRO_6000")
LIBRARIES = {"trtllm": "TensorRT-LLM", "sglang": "SGLang", "vllm": "vLLM"}
RELABELLED = ("0.5.6.post2",)
ROW = ("num_gpus", "message_size")

LINK = {"latency": (3e-6, 1e-7, 1e-4), "bandwidth": (0.7, 0.05, 1)}
ALL_REDUCE = LINK | {"doubling": (5e-7, 1e-8, 1e-5), "second": (5e-6, 1e-8, 1e-4), "near": (1, 0.3, 2)}
SWITCHED = {"switched": (0.8, 0.3, 2)}
BEYOND = {"far": (1e-5, 1e-7, 1e-4), "step": (1e-6, 1e-8, 1e-5)}
# vLLM to 0.24 on Blackwell, as its table shows: one shot ends below 256 KiB of 8 ranks, two start with 1 MiB. Between them a
# library takes 26 us, longer than either; the model stays at the time of 1 MiB, since its times grow with the size.
REACH = {"reach": (2.0**21,) * 3}
RING = LINK | {"step": (1e-6, 1e-8, 1e-5), "fill": (1e-5, 1e-8, 1e-3)}
ALL_TO_ALL = LINK | {"doubling": (2e-6, 1e-8, 1e-5)}
ONE_SIDED = {"kernel_source": "NVLinkOneSided", "moe_dtype": "nvfp4", "moe_ep_size": [4, 8, 16, 32]}
SMS = 20
FEWEST = 4  # experts a token
DECODE = (2**12, 2**20)  # bytes of an all-reduce in decode, which count twice
SERVED_ON = ("GB300", "GB200", "B300", "B200", "H200", "H100_SXM")  # devices of the serving sample
BLACKWELL = SERVED_ON[:4]
STARTS = ({}, {"second": 1e-6}, {"second": 2e-5})


def joined(*pieces):
    """Rows of several tables one after the other."""
    names = [name for name in pieces[0] if all(name in piece for piece in pieces)]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in names}


def link_case(operation, device, framework, rows, seconds, nbytes, ranks, model, bounds, held, subsets=None, **more):
    """A case whose model is one of bytes and ranks on the device's link."""
    nbytes, ranks, link = nbytes.astype(float), ranks.astype(float), as_device(device).link_bandwidth
    return Case(
        operation=operation,
        device=device,
        precision="",
        framework=framework,
        version=versions_text(rows),
        seconds=seconds,
        predict=lambda c, rows=slice(None): model(nbytes[rows], ranks[rows], link, c),
        bounds=bounds,
        held=held,
        subsets={"all": np.ones(len(nbytes), bool)} | (subsets or {}),
        shape={"bytes": nbytes, "ranks": ranks},
        **more,
    )


def all_reduce_case(source, device, engine, but=RELABELLED):
    """An engine's all-reduce; every third size is held out."""
    label, (engine, upto) = engine, SERVED_VERSIONS.get(engine, (engine, None))
    wanted = {"backend": f"{engine}_graph", "allreduce_dtype": "bfloat16"}

    def taken(card):
        return source.rows(card, "comm", "custom_allreduce", engine, ROW, wanted, but, upto)

    rows = taken(device)
    if device == "GB200" and engine == "vllm":  # timed inside a tray only; beyond it lies the same link as GB300's
        other = taken("GB300")
        rows = joined(rows, {name: column[other["num_gpus"] > kernels.TRAY] for name, column in other.items()})
    ranks, nbytes, seconds = rows["num_gpus"], 2 * rows["message_size"], rows["latency"] * 1e-3
    bounds = ALL_REDUCE | ({} if device in UNSWITCHED else SWITCHED)
    if device in RACKS and engine != "trtllm":
        bounds = bounds | BEYOND
    if (device, engine) == ("B200", "vllm") or (upto and device in BLACKWELL):
        bounds = bounds | BEYOND | REACH
    few, held = (nbytes >= DECODE[0]) & (nbytes <= DECODE[1]), every_third(nbytes)
    more = {"subsets": {"decode": few}, "starts": STARTS, "weights": np.where(few, 2.0, 1.0)}
    model = kernels.all_reduce_seconds
    return link_case("all-reduce", device, label, rows, seconds, nbytes, ranks, model, bounds, held, **more)


def ring_case(source, device):
    """NCCL's all-gather and reduce-scatter; every third size is held out."""
    wanted = {"nccl_dtype": "half", "op_name": ["all_gather", "reduce_scatter"]}
    rows = source.rows(device, "comm", "nccl", "nccl", ("op_name", *ROW), wanted, ("2.30.7",))
    nbytes, seconds = 2 * rows["message_size"], rows["latency"] * 1e-3
    held = every_third(nbytes)
    return link_case("ring", device, "nccl", rows, seconds, nbytes, rows["num_gpus"], kernels.ring_seconds, RING, held)


def one_sided_case(source, phase):
    """TensorRT-LLM's all-to-all of R1's layer over GB200s of one rack; every third token count is held out."""
    rows = source.rows(
        "GB200",
        "comm",
        "trtllm_alltoall",
        "trtllm",
        ("moe_ep_size", "num_tokens"),
        ONE_SIDED | {"op_name": f"alltoall_{phase}"},
    )
    element = 2.0 if phase == "combine" else as_recipe("nvfp4").activations.bytes
    nbytes = rows["num_tokens"] * copies(rows["topk"], rows["num_experts"], rows["moe_ep_size"], True) * rows["hidden_size"]
    held, model = every_third(rows["num_tokens"]), kernels.all_to_all_seconds
    seconds, ranks = rows["latency"] * 1e-3, rows["moe_ep_size"]
    return link_case(phase, "GB200", "trtllm", rows, seconds, nbytes * element, ranks, model, ALL_TO_ALL, held)


def copies(top_k, experts, ep, balanced):
    """Copies of a token that leave its GPU, for each row."""
    rows = zip(top_k, experts, ep, strict=True)
    return np.array([float(remote_copies(int(k), int(e), int(n), balanced=balanced)) for k, e, n in rows])


def deepep_case(source, phase, kernel, device):
    """DeepEP inside a host; a third of the layers (width, experts, experts a token) is held out whole.

    The dispatch sends FP8 with a scale for each 128 elements. One number of ranks is timed, so in a rack the growth with them is
    that of the one-sided all-to-all.
    """
    table, column = DEEPEP[kernel]
    version, path = next(iter(source.versions(device, "comm", table, "sglang").items()))
    rows = source.table(path)
    keep = (rows["node_num"] == 1) & (rows.get(f"{phase}_sms", SMS) == SMS) & (rows["num_topk"] >= FEWEST)
    rows = {name: values[keep] for name, values in rows.items()}
    ep = np.full(int(keep.sum()), 4 if device in RACKS else 8)
    layer = rows["hidden_size"], rows["num_experts"], rows["num_topk"]
    element = 2.0 if phase == "combine" else as_recipe("fp8_block").activations.bytes
    nbytes = rows["num_token"] * copies(rows["num_topk"], rows["num_experts"], ep, False) * rows["hidden_size"] * element
    bounds = LINK
    if device in RACKS:
        growth = constants(phase, "GB200", "", "trtllm")["doubling"]
        bounds = LINK | {"doubling": (growth, growth, growth)}
    rows["version"] = np.full(len(ep), version)
    seconds, model = rows[phase + column] * 1e-6, kernels.all_to_all_seconds
    return link_case(f"{phase} {kernel}", device, "sglang", rows, seconds, nbytes, ep, model, bounds, third(*layer))


def cases(source):
    """Every case, one after the other."""
    for device in (*RACKS, *HOSTS, *UNSWITCHED):
        for engine in LIBRARIES:
            yield all_reduce_case(source, device, engine)
    for device in SERVED_ON:
        for label in SERVED_VERSIONS:
            yield all_reduce_case(source, device, label)
    for device in (*RACKS, *HOSTS, *UNSWITCHED):
        yield ring_case(source, device)
    for phase in PHASES:
        yield one_sided_case(source, phase)
    for phase in PHASES:
        for kernel in DEEPEP:
            for device in (*RACKS, *HOSTS):
                yield deepep_case(source, phase, kernel, device)
