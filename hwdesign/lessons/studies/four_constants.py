"""Four physical constants that turn the roofline into the time a library reaches, and their fit on
measured shapes.

The bound says ``max(math, memory)``. A library adds, in this order: it reaches a share of the peak
rate and of the bandwidth; it hides only part of the shorter term behind the longer one; it starts,
synchronizes and drains (a fixed time); and in low precision it first quantizes its BF16 inputs, one
more pass over A.
"""

from dataclasses import dataclass, replace

import numpy as np

from hwdesign._check import numbers, positive, same_shape, scalar_or_array
from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import BF16
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.formulas import roofline
from hwdesign.timing.calibration import fit


@dataclass(frozen=True, kw_only=True)
class GemmConstants:
    """What a device, precision and library reach on large GEMMs.

    Parameters
    ----------
    peak_flops : float
        Reachable math rate [FLOP/s].
    bandwidth : float
        Reachable bandwidth of operands and results [byte/s].
    serial : float
        Share of the shorter of math and memory that is *not* hidden behind the longer
        [dimensionless]: 0 is the roofline's full overlap, 1 is one after the other; above 1 the
        shorter costs more than alone.
    fixed : float
        Time of a GEMM that does nothing [s].
    quantize_bandwidth : float
        Bandwidth of the pass that quantizes A [byte/s]; ``inf`` where there is none.

    Examples
    --------
    >>> ideal_constants("GB300", "table2").serial
    0.0
    """

    peak_flops: float  # [FLOP/s]
    bandwidth: float  # [byte/s]
    serial: float = 0.0  # [dimensionless]
    fixed: float = 0.0  # [s]
    quantize_bandwidth: float = np.inf  # [byte/s]

    def __post_init__(self):
        positive(
            peak_flops=self.peak_flops,
            bandwidth=self.bandwidth,
            quantize_bandwidth=self.quantize_bandwidth,
        )
        for name in ("serial", "fixed"):
            if not numbers(name, getattr(self, name)) >= 0:
                raise ValueError(f"{name} must be >= 0, got {getattr(self, name)}")


def ideal_constants(device, recipe):
    """The constants of the plain roofline: dense peak, datasheet bandwidth, full overlap, nothing
    fixed.

    Parameters
    ----------
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats; `recipe.math` sets the peak.

    Returns
    -------
    GemmConstants
        Rates [FLOP/s, byte/s].

    Raises
    ------
    ValueError
        If the device has no peak for the format.

    Notes
    -----
    Source: the device catalogue.

    Examples
    --------
    >>> ideal_constants("GB300", "nvfp4").peak_flops / 1e15
    15.0
    """
    device, recipe = as_device(device), as_recipe(recipe)
    return GemmConstants(
        peak_flops=device.peak_flops(recipe.math), bandwidth=device.memory_bandwidth
    )


def gemm_terms(m, n, k, recipe, constants):
    """Terms of a GEMM's time: the longer of math and memory, the unhidden part of the shorter,
    fixed time, quantization.

    Parameters
    ----------
    m, n, k : array_like of int, broadcastable
        Dimensions [element], all >= 1.
    recipe : str or Recipe
        Formats of the operands.
    constants : GemmConstants
        Reachable rates.

    Returns
    -------
    dict of str to ndarray
        ``longer``, ``unhidden``, ``fixed``, ``quantize`` [s]; the time is their sum.

    Raises
    ------
    ValueError
        If a dimension is below 1 or not whole.

    Notes
    -----
    Source: the model at the head of this module.

    Examples
    --------
    >>> terms = gemm_terms(8192, 10240, 512, "nvfp4", ideal_constants("GB300", "nvfp4"))
    >>> round(float(sum(terms.values())) * 1e6, 1)
    21.6
    """
    recipe = as_recipe(recipe)
    math = roofline.gemm_flops(m, n, k) / constants.peak_flops
    memory = roofline.gemm_bytes(m, n, k, **recipe.operand_bytes) / constants.bandwidth
    a = recipe.activations.bytes
    pass_bytes = roofline.gemm_write_bytes(m, k, c=BF16.bytes + a) if a < BF16.bytes else 0.0
    return {
        "longer": np.maximum(math, memory),
        "unhidden": constants.serial * np.minimum(math, memory),
        "fixed": np.full(np.shape(math), constants.fixed)[()],
        "quantize": pass_bytes / constants.quantize_bandwidth + 0 * math,
    }


def gemm_seconds(m, n, k, recipe, constants):
    """Modelled time of a GEMM: the sum of `gemm_terms`.

    Parameters
    ----------
    m, n, k : array_like of int, broadcastable
        Dimensions [element], all >= 1.
    recipe : str or Recipe
        Formats of the operands.
    constants : GemmConstants
        Reachable rates.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Time [s].

    Raises
    ------
    ValueError
        If a dimension is below 1 or not whole.

    Notes
    -----
    Source: the model at the head of this module.

    Examples
    --------
    >>> round(
    ...     float(gemm_seconds(256, 8192, 512, "table2", ideal_constants("GB300", "table2"))) * 1e6,
    ...     3,
    ... )
    0.566
    """
    return scalar_or_array(sum(gemm_terms(m, n, k, recipe, constants).values()))


def fit_gemm_constants(m, n, k, seconds, device, recipe, *, steps=200):
    """Constants that fit measured times best: least squares of the log error, by damped
    Gauss-Newton steps.

    Parameters
    ----------
    m, n, k : array_like of int, shape (s,)
        Measured shapes [element].
    seconds : array_like of float, shape (s,)
        Measured times [s]; NaN is skipped.
    device : str or Device
        Accelerator; its datasheet bandwidth is that of the quantization pass, which is not fitted.
    recipe : str or Recipe
        Formats of the operands.
    steps : int
        Most steps to take.

    Returns
    -------
    GemmConstants
        Four fitted constants: rates [FLOP/s, byte/s] at or below the datasheet's, serial share,
        fixed time [s].

    Raises
    ------
    ValueError
        If fewer than eight shapes carry a time, a time is not positive and finite, or the shapes do
        not broadcast.

    Notes
    -----
    Source: Levenberg 1944, Marquardt 1963; deterministic, starts from the datasheet.

    Examples
    --------
    >>> n, k = (x.ravel() for x in np.meshgrid(2 ** np.arange(7, 14), 2 ** np.arange(7, 14)))
    >>> truth = replace(ideal_constants("GB300", "bf16"), serial=0.4, fixed=5e-6)
    >>> found = fit_gemm_constants(
    ...     8192, n, k, gemm_seconds(8192, n, k, "bf16", truth), "GB300", "bf16"
    ... )
    >>> round(found.peak_flops / 1e15, 3), round(found.serial, 3), round(found.fixed * 1e6, 2)
    (2.5, 0.4, 5.0)
    """
    device, recipe = as_device(device), as_recipe(recipe)
    m, n, k, seconds = same_shape(m=m, n=n, k=k, seconds=numbers("seconds", seconds))
    measured = ~np.isnan(seconds)
    if measured.sum() < 8:
        raise ValueError(f"seconds must hold at least 8 measured times, got {measured.sum()}")
    m, n, k = m[measured], n[measured], k[measured]
    (seconds,) = positive(seconds=seconds[measured])
    if np.isinf(seconds).any() or not numbers("steps", steps) >= 1:
        raise ValueError(
            f"seconds must be finite and steps >= 1, got up to {seconds.max():g} s and {steps} "
            "steps"
        )
    start = replace(ideal_constants(device, recipe), quantize_bandwidth=device.memory_bandwidth)

    def constants(c):
        rates = {
            "peak_flops": c["peak"] * start.peak_flops,
            "bandwidth": c["bandwidth"] * start.bandwidth,
        }
        return replace(start, **rates, serial=c["serial"], fixed=c["fixed"])

    # No library beats the datasheet, so the two rates stay at or below it; the other two are free.
    bounds = {
        "peak": (0.5, 1e-5, 1),
        "bandwidth": (0.5, 1e-5, 1),
        "serial": (0.3, 1e-5, 1e5),
        "fixed": (5e-6, 1e-10, 1),
    }
    return constants(
        fit(
            lambda c: gemm_seconds(m, n, k, recipe, constants(c)), seconds, bounds, steps=int(steps)
        )
    )
