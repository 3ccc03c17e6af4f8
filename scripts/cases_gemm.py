"""GEMMs of the engines, by device and format."""

import numpy as np
from calibration_cases import Case, third

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.timing.gemm_kernel import gemm_kernel_seconds
from hwdesign.timing.silicon import gemm_grid, slices

OPERATIONS = ("gemm",)

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


def gemm_case(device, precision, framework):
    """GEMM times with n and k of 512 and more; a third of the (n, k) pairs is held out whole, with all their m."""
    grid, card, recipe = gemm_grid(device, precision, framework), as_device(device), as_recipe(precision)
    m, n, k = np.meshgrid(*(a.astype(float) for a in (grid.m, grid.n, grid.k)), indexing="ij")
    keep = ~np.isnan(grid.seconds) & (n >= 512) & (k >= 512)
    m, n, k, seconds = m[keep], n[keep], k[keep], grid.seconds[keep].astype(float)
    large = (m >= 256) & (n >= 1024) & (k >= 1024)
    quantized = recipe.activations.bytes < 2
    return Case(
        operation="gemm",
        device=device,
        precision=precision,
        framework=framework,
        version=grid.version,
        seconds=seconds,
        predict=lambda c, rows=slice(None): gemm_kernel_seconds(m[rows], n[rows], k[rows], card, recipe, c),
        bounds=GEMM_QUANTIZED if quantized else GEMM_BF16,
        starts=({}, {"overlap": 1.3, "peak": 0.5, "chain": 1.5e-9})
        if quantized
        else ({"split": 8000, "wave": 2e-7}, {"split": 1000, "wave": 2.5e-6}),
        held=third(n, k),
        subsets={"large": large, "all": np.ones(m.shape, bool)},
        weights=np.where(large, 2.0, 1.0),
        shape={"m": m, "n": n, "k": k},
    )


def cases(source):
    """Every case, one after the other."""
    for row in slices():
        yield gemm_case(row["device"], row["precision"], row["framework"])
