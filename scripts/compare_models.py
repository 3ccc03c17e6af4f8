"""Other public packages that give the time of a GEMM on a GPU nobody needs to own, on the shapes that our model had held out.

    pip install . nvidia-matmul-heuristics==0.1.0.27     # one package at a time, each in an environment of its own
    python scripts/compare_models.py                     # adds its rows to scripts/other_models.csv

Also known: torchao==0.18.0 (with torch), genz-llm==0.0.16, mlsysim==0.3.0. A package that is not installed is skipped and
keeps its rows. Each is asked as its documentation says, with its defaults; where that is harsh or generous, the column says so.
On slices with quantized inputs the published times hold one more pass over A than these packages mean to model.
"""

import csv
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
from calibration_cases import gemm_case

FILE = Path(__file__).with_name("other_models.csv")
SLICES = (
    ("H100_SXM", "bf16"),
    ("H100_SXM", "fp8"),
    ("A100_SXM", "bf16"),
    ("B200", "bf16"),
    ("GB300", "bf16"),
    ("GB300", "nvfp4"),
)
COLUMNS = ("package", "version", "device", "precision", "large", "all", "model")
SHAPES = 2000  # a subset, drawn with a fixed seed: some packages take milliseconds for one shape


def matmul_heuristics(device, precision):
    """NVIDIA's analytic model of its kernels; the best of eight configurations, block scales not modelled."""
    import nvMatmulHeuristics as heuristics

    gpus = {"H100_SXM": "H100_SXM", "A100_SXM": "A100_SXM_80GB", "B200": "B200", "GB300": "GB300_NVL"}
    code = {"bf16": "TST", "fp8": "QQTST", "nvfp4": "OOTST"}[precision]
    layout = heuristics.NvMatmulHeuristicsMatmulLayout.NT_ROW_MAJOR
    tool = heuristics.NvMatmulHeuristicsInterfaceEx(
        backend=heuristics.NvMatmulHeuristicsTarget.GENERIC,
        gpu=heuristics.NvMatmulHeuristicsNvidiaGpu[gpus[device]],
        flags=heuristics.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
    )
    tool.loadInternalDiscoverySet(layout, code)

    def seconds(m, n, k):
        found = tool.get(tool.makeNvMatmulHeuristicsProblem(m, n, k, layout), 8, precision=code)
        return min(configuration["runtime"] for configuration in found)

    return seconds


def torchao(device, precision):
    """A roofline with reachable shares of peak (0.78 or 0.82) and bandwidth (0.92 or 0.84), at least 2 µs."""
    import sympy
    import torch
    from torchao.testing.training.roofline_utils import get_individual_gemm_time_sympy

    gpu = {"H100_SXM": "NVIDIA H100", "B200": "NVIDIA B200", "GB300": "NVIDIA B300 SXM6 AC"}[device]
    dtype, recipe = {
        "bf16": (torch.bfloat16, None),
        "fp8": (torch.float8_e4m3fn, None),
        "nvfp4": (torch.float4_e2m1fn_x2, "nvfp4"),
    }[precision]
    m, k, n = sympy.symbols("M K N", positive=True)
    time = sympy.lambdify((m, n, k), get_individual_gemm_time_sympy(m, k, n, dtype, recipe, gpu), "numpy")
    return lambda m, n, k: float(time(float(m), float(n), float(k)))


def genz(device, precision):
    """A roofline of datasheet numbers, efficiency 1."""
    from GenZ.operators import GEMM
    from GenZ.system import System
    from GenZ.unit import Unit
    from Systems.system_configs import system_configs

    chip = system_configs[{"H100_SXM": "H100_GPU", "A100_SXM": "A100_80GB_GPU"}[device]]
    rates = {"flops": chip["Flops"], "offchip_mem_bw": chip["Memory_BW"], "off_chip_mem_size": chip["Memory_size"] * 1024}
    system = System(unit=Unit(), **rates, bits=precision)

    def seconds(m, n, k):  # its dimensions: batch, rows of the weights, tokens, inner
        return GEMM(["gemm", 1, n, m, k, 1, 1, 3], (1, 1, 1)).get_roofline(system, Unit())["Latency (msec)"] * 1e-3

    return seconds


def mlsysim(device, precision):
    """A roofline, half of the peak by default, and 20 µs for each operation: meant for steps, harsh on one GEMM."""
    from mlsysim import Engine, Hardware
    from mlsysim.core.units import ureg
    from mlsysim.models.types import Workload

    node = getattr(Hardware.Cloud, {"H100_SXM": "H100", "A100_SXM": "A100", "B200": "B200"}[device])
    kind, size = {"bf16": ("fp16", 2), "fp8": ("fp8", 1)}[precision]

    def seconds(m, n, k):  # the GEMM as one sample, whose bytes are those of A, B and C; it adds a tenth for activations
        elements = (size * (m * k + n * k) + 2 * m * n) / size / 1.1
        work = Workload(
            name="gemm", architecture="GEMM", parameters=elements * ureg.count, inference_flops=2 * m * n * k * ureg.flop
        )
        return Engine.solve(work, node, batch_size=1, precision=kind).latency.to("s").magnitude

    return seconds


ADAPTERS = {"nvidia-matmul-heuristics": matmul_heuristics, "torchao": torchao, "genz-llm": genz, "mlsysim": mlsysim}


def error(case, seconds, subset):
    """Mean absolute error [%] on some of the held-out shapes of a subset."""
    rows = np.flatnonzero(case.held & subset)
    rows = np.sort(np.random.default_rng(0).choice(rows, min(SHAPES, len(rows)), replace=False))
    shapes = zip(*(case.shape[x][rows].astype(int).tolist() for x in "mnk"), strict=True)
    predicted = np.array([seconds(*shape) for shape in shapes])
    return f"{100 * np.mean(np.abs(predicted / case.seconds[rows] - 1)):.0f}"


def rows(package):
    """Rows of one package, or none where it is not installed or does not know a device or format."""
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        return
    for device, precision in SLICES:
        try:
            seconds = ADAPTERS[package](device, precision)
        except (KeyError, AttributeError) as unknown:
            print(f"{package}: no {device} {precision} ({unknown})", file=sys.stderr)
            continue
        case = gemm_case(device, precision, "sglang")
        errors = [error(case, seconds, case.subsets[name]) for name in ("large", "all")]
        print(f"{package} {version} {device} {precision}: {' / '.join(errors)} %", file=sys.stderr)
        yield dict(zip(COLUMNS, (package, version, device, precision, *errors, ADAPTERS[package].__doc__), strict=True))


def main():
    known = list(csv.DictReader(FILE.open(encoding="utf-8"))) if FILE.exists() else []
    for package in ADAPTERS:
        fresh = list(rows(package))
        if fresh:
            known = [row for row in known if row["package"] != package] + fresh
    known.sort(key=lambda row: (list(ADAPTERS).index(row["package"]), SLICES.index((row["device"], row["precision"]))))
    with FILE.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(known)


if __name__ == "__main__":
    main()
