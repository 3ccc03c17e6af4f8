"""GEMMs of the engines, by device and format.

Left out, with the reason in `LEFT_OUT` and `EAGER`: what was timed on weights that hold one value, and without CUDA graphs.
TensorRT-LLM's FP8 rows find the scale of the activations anew at each call and then quantize them in a kernel of their own. No
served checkpoint in FP8 per tensor asks for the first, its scales are static; and with static scales the engine quantizes inside
the kernel before (norm, all-reduce with norm, activation, attention). Its tables `computescale` and `scale_matrix` say how long
both take, and they are subtracted. Its module of Qwen3 has plain norms (tensorrt_llm/_torch/models/modeling_qwen3.py, commit
010bb95fbad3, read 2026-12-01): the constants labelled `trtllm-plain` keep the quantization.
"""

import numpy as np
from calibration_cases import Case, third
from silicon_source import DEVICES, FRAMEWORKS, SERVED_VERSIONS, versions_text

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.timing.gemm_kernel import gemm_kernel_seconds

OPERATIONS = ("gemm",)
FORMATS = {"bf16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
SHAPE = ("gemm_dtype", "n", "k")
PLAIN = "trtllm-plain"  # of models whose module fuses no quantization
LEAST = 512  # outputs and inputs from which on a GEMM is calibrated [element]

# vLLM's collector leaves BF16 weights as they are allocated and fills FP8 ones with 0.01 (collector/vllm/collect_gemm.py of
# ai-dynamo/aiconfigurator, commit 095f58a, read 2026-12-01). A tensor core that multiplies one value draws less power and clocks
# higher: in 0.31.0 BF16 still reaches 94 to 97 % of the peak on GB300, H200 and H100, where the other engines' tables, most of
# them of the same cuBLAS kernels, reach 74 to 87 %; bound by memory the tables agree within 2 %.
LEFT_OUT = {("vllm", "bf16"): "weights of one value", ("vllm", "fp8"): "weights of one value"}
# Versions whose rows were timed without CUDA graphs: no row takes less than 148 us, where 0.25.0 and 0.31.0 start at 5 to 9 us.
EAGER = {("vllm", "fp8_block"): ("0.24.0", "0.27.1")}

GEMM = {
    "peak": (0.7, 0.05, 1),
    "bandwidth": (0.85, 0.3, 1),
    "feed": (4, 1, 15),
    "fixed": (3e-6, 3e-7, 2e-5),
    "overlap": (2, 1, 8),
    "balance": (0.5, 0.02, 1),
}
GEMM_BF16 = GEMM | {"wave": (1e-6, 1e-8, 1e-5), "split": (6000, 128, 65536)}
GEMM_QUANTIZED = GEMM | {"chain": (5e-10, 1e-11, 3e-9), "quantize": (0.6, 0.05, 1)}


def gemm_rows(source, device, precision, framework):
    """Rows of one slice; none where it is left out."""
    framework, upto = SERVED_VERSIONS.get(framework, ("trtllm" if framework == PLAIN else framework, None))
    left_out = (framework, precision) in LEFT_OUT or precision == "nvfp4" and "fp4" not in as_device(device).dense_peak
    wanted = {"gemm_dtype": FORMATS[precision] if not left_out else ""}
    return source.rows(device, "gemm", "gemm", framework, SHAPE, wanted, EAGER.get((framework, precision), ()), upto)


def quantization_seconds(source, device, m, k, tables=("computescale", "scale_matrix")):
    """Time that TensorRT-LLM takes to find the scale of activations of m x k and to quantize them [s]; NaN where not timed."""
    total = np.zeros(len(m))
    for table in tables:
        rows = source.rows(device, "quantize", table, "trtllm", ("m", "k"))
        known = dict(zip(zip(rows["m"].tolist(), rows["k"].tolist(), strict=True), rows["latency"].tolist(), strict=True))
        total += np.array([known.get(key, np.nan) for key in zip(m.tolist(), k.tolist(), strict=True)]) * 1e-3
    return total


def gemm_case(source, device, precision, framework):
    """GEMM times with n and k of 512 and more; a third of the (n, k) pairs is held out whole, with all their m.

    None where nothing was timed, or what was is left out.
    """
    rows, card, recipe = gemm_rows(source, device, precision, framework), as_device(device), as_recipe(precision)
    if not len(rows["latency"]):
        return None
    m, n, k = (rows[name] for name in "mnk")
    seconds, quantized = rows["latency"] * 1e-3, recipe.activations.bytes < 2
    if (framework, precision) == ("trtllm", "fp8"):
        seconds, quantized = seconds - quantization_seconds(source, device, m, k), False
    if framework == PLAIN:
        seconds = seconds - quantization_seconds(source, device, m, k, ("computescale",))
    keep = (n >= LEAST) & (k >= LEAST) & (seconds > 0)
    m, n, k, seconds = (x[keep].astype(float) for x in (m, n, k, seconds))
    large = (m >= 256) & (n >= 1024) & (k >= 1024)
    low = recipe.activations.bytes < 2
    bounds = GEMM_QUANTIZED if low else GEMM_BF16
    if low and not quantized:
        bounds = {name: limits for name, limits in bounds.items() if name != "quantize"}
    return Case(
        operation="gemm",
        device=device,
        precision=precision,
        framework=framework,
        version=versions_text({"version": rows["version"][keep]}),
        seconds=seconds,
        predict=lambda c, rows=slice(None): gemm_kernel_seconds(m[rows], n[rows], k[rows], card, recipe, c),
        bounds=bounds,
        starts=({}, {"overlap": 1.3, "peak": 0.5, "chain": 1.5e-9})
        if low
        else ({"split": 8000, "wave": 2e-7}, {"split": 1000, "wave": 2.5e-6}),
        held=third(n, k),
        subsets={"large": large, "decode": m <= 256, "all": np.ones(m.shape, bool)},
        weights=np.where(large, 2.0, 1.0),
        shape={"m": m, "n": n, "k": k},
    )


def cases(source):
    """Every case, one after the other; older versions of an engine where they are not the newest themselves."""
    for device in DEVICES:
        for framework in (*FRAMEWORKS, *SERVED_VERSIONS):
            for precision in FORMATS:
                case = gemm_case(source, device, precision, framework)
                if framework in SERVED_VERSIONS and case:
                    newest = gemm_rows(source, device, precision, SERVED_VERSIONS[framework][0])
                    if case.version == versions_text(newest):
                        continue
                if case:
                    yield case
        if as_device(device).dense_peak.get("fp8"):
            yield gemm_case(source, device, "fp8", PLAIN)
