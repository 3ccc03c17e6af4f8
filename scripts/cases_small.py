"""Small kernels: what one that works element by element takes inside a CUDA graph, by engine.

vLLM and TensorRT-LLM: the table `scale_matrix`, one kernel that reads BF16 activations and writes them in FP8 with a scale that
is known, replayed five at a time. SGLang: its smallest GEMMs, which hardly do anything; the operation of the same name there is
four of torch's kernels and no kernel of SGLang. The activations' quantization itself belongs to the low-precision GEMMs, whose
rows include it.
"""

import numpy as np
from calibration_cases import Case, every_third
from silicon_source import versions_text

from hwdesign.catalogue.device import device as as_device
from hwdesign.timing.kernels import small_seconds

OPERATIONS = ("small kernel",)
DEVICES = ("GB300", "GB200", "B300", "B200", "H200", "H100_SXM", "A100_SXM", "RTX_PRO_6000", "L40S")
WIDTHS = (1024, 16384)  # of activations
TINY = (16, 64, 64)  # most m, n, k of a GEMM that does almost nothing
BYTES = 3.0  # an element read in BF16 and written in FP8
FIXED = {"fixed": (2e-6, 3e-7, 5e-5)}
MOVED = {"bandwidth": (0.7, 0.1, 1), "l2": (2, 1, 12)}


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
        shape={"m": rows["m"].astype(float), "k": rows["k"].astype(float)},
    )


def tiny_gemms(source, device):
    """SGLang's BF16 GEMMs with at most 16 tokens and 64 features in and out."""
    wanted = {name: np.arange(1, most + 1) for name, most in zip("mnk", TINY, strict=True)}
    return source.rows(device, "gemm", "gemm", "sglang", tuple("mnk"), wanted | {"gemm_dtype": "bfloat16"}, ("0.5.6.post2",))


def cases(source):
    """Every case, one after the other."""
    for device in DEVICES:
        rows = tiny_gemms(source, device)
        if len(rows["latency"]):
            yield small_case(device, "sglang", rows, np.zeros(len(rows["latency"])), FIXED)
        for engine in ("trtllm", "vllm"):
            rows = source.rows(device, "quantize", "scale_matrix", engine, ("m", "k"))
            keep = (rows["k"] >= WIDTHS[0]) & (rows["k"] <= WIDTHS[1])
            rows = {name: values[keep] for name, values in rows.items()}
            if len(rows["latency"]):
                nbytes = BYTES * rows["m"] * rows["k"]
                yield small_case(device, engine, rows, nbytes, FIXED | MOVED)
