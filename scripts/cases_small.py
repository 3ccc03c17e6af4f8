"""Small kernels: what one that works element by element takes inside a CUDA graph, by engine.

vLLM and TensorRT-LLM: the table `scale_matrix`, one kernel that reads BF16 activations and writes them in FP8 with a scale that
is known, replayed five at a time. SGLang: its fastest GEMMs, which hardly do anything; the operation of the same name there is
four of torch's kernels and no kernel of SGLang. The activations' quantization itself belongs to the low-precision GEMMs, whose
rows include it. Left out: that table on RTX PRO 6000 and L40S, whose L2 cache is four to ten times as fast as the memory, so
that no one rate describes it.
"""

import numpy as np
from calibration_cases import Case, every_third
from silicon_source import versions_text

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import BF16
from hwdesign.timing.kernels import small_seconds

OPERATIONS = ("small kernel",)
DEVICES = ("GB300", "GB200", "B300", "B200", "H200", "H100_SXM", "A100_SXM", "RTX_PRO_6000", "L40S")
WIDTHS = (1024, 16384)  # of activations
HOT = ("RTX_PRO_6000", "L40S")
TINY, FASTEST = 256, 32  # most features in and out of a GEMM that does almost nothing; how many of those
BYTES = 3.0  # an element read in BF16 and written in FP8
FIXED = {"fixed": (2e-6, 3e-7, 5e-5)}
MOVED = {"bandwidth": (0.7, 0.1, 1)}


def small_case(device, engine, rows, nbytes, bounds):
    """One kernel a row; every third token count is held out."""
    card, seconds = as_device(device), rows["latency"] * 1e-3
    return Case(
        operation="small kernel",
        device=device,
        precision="",
        framework=engine,
        version=versions_text(rows),
        seconds=seconds,
        predict=lambda c, rows=slice(None): small_seconds(np.ones(len(nbytes))[rows], nbytes[rows], card, c),
        bounds=bounds,
        held=every_third(rows["m"]),
        subsets={"all": np.ones(len(nbytes), bool)},
        shape={"small_kernels": np.ones(len(nbytes)), "small_elements": nbytes / BF16.bytes},
    )


def fastest_gemms(source, device):
    """The 32 fastest of SGLang's BF16 GEMMs; single ones may be a misreading of the clock."""
    wanted = {"n": np.arange(TINY + 1), "k": np.arange(TINY + 1), "gemm_dtype": "bfloat16"}
    rows = source.rows(device, "gemm", "gemm", "sglang", tuple("mnk"), wanted, ("0.5.6.post2",))
    order = np.argsort(rows["latency"], kind="stable")[:FASTEST]
    return {name: values[order] for name, values in rows.items()}


def cases(source):
    """Every case, one after the other."""
    for device in DEVICES:
        rows = fastest_gemms(source, device)
        if len(rows["latency"]):
            yield small_case(device, "sglang", rows, np.zeros(len(rows["latency"])), FIXED)
        for engine in () if device in HOT else ("trtllm", "vllm"):
            rows = source.rows(device, "quantize", "scale_matrix", engine, ("m", "k"))
            keep = (rows["k"] >= WIDTHS[0]) & (rows["k"] <= WIDTHS[1])
            rows = {name: values[keep] for name, values in rows.items()}
            if len(rows["latency"]):
                nbytes = BYTES * rows["m"] * rows["k"]
                yield small_case(device, engine, rows, nbytes, FIXED | MOVED)
