"""The roofline of the reader's own machine: roofs and GEMMs, all measured."""

import itertools

import numpy as np

from hwdesign.catalogue.precision import PRECISIONS
from hwdesign.formulas.roofline import attainable_flops
from hwdesign.lessons import style
from hwdesign.measure.suite import summary
from hwdesign.units import fmt

COLORS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE)


@style.styled
def machine_roofline(measurements, *, ax=None):
    """Measured roofs of a machine, and its measured GEMMs below them.

    Parameters
    ----------
    measurements : sequence of Measurement or Skipped
        Of one machine: at least a copy and a GEMM. The copies give the memory roof, the fastest
        GEMM of a format its math roof.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: intensity [FLOP/byte], y: rate [GFLOP/s], or [TFLOP/s] from 10 TFLOP/s on.

    Raises
    ------
    ValueError
        If no copy or no GEMM was measured.

    Notes
    -----
    Source: Williams, Waterman, Patterson 2009.

    Examples
    --------
    >>> from hwdesign.measure.runs import load_run, shipped_runs
    >>> machine_roofline(load_run(shipped_runs()[0]).measurements).get_xlabel()
    'arithmetic intensity [FLOP/byte]'
    """
    found = summary(measurements)
    if not found["bandwidth"] or not found["rate"]:
        raise ValueError(
            "measurements must hold a copy and a GEMM that can be trusted, got "
            + ("no copy" if found["rate"] else "no GEMM")
        )
    gemms = [
        m for m in measurements if getattr(m, "operation", "") == "gemm" and hasattr(m, "seconds")
    ]
    ax = ax or style.axes()
    x = np.array([m.flops / m.nbytes for m in gemms])
    top = max(found["rate"].values())
    scale, unit = (1e12, "TFLOP/s") if top >= 1e13 else (1e9, "GFLOP/s")
    line = np.geomspace(x.min() / 4, max(x.max(), max(found["ridge"].values())) * 2, 200)
    for (name, peak), color in zip(found["rate"].items(), itertools.cycle(COLORS)):
        ax.loglog(
            line,
            attainable_flops(line, peak_flops=peak, bandwidth=found["bandwidth"]) / scale,
            color=color,
        )
        mine = [m for m in gemms if m.precision == name]
        label = (
            f"{PRECISIONS[name].label if name in PRECISIONS else name.upper()}, ridge "
            f"{found['ridge'][name]:.0f} FLOP/byte"
        )
        at, rate = [m.flops / m.nbytes for m in mine], [m.rate / scale for m in mine]
        ax.plot(at, rate, "x", color=color, mew=1.5, label=label, zorder=3)
    ax.annotate(
        f"copy {fmt(found['bandwidth'], 'byte/s')}",
        (line[12], line[12] * found["bandwidth"] / scale),
        xytext=(8, -4),
        textcoords="offset points",
        ha="left",
        va="top",
        color=style.GREY,
        fontsize=9.5,
        bbox=style.PLATE,
    )
    for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        style.plain_ticks(axis, _ticks(low, high))
    ax.set_xlabel("arithmetic intensity [FLOP/byte]")
    ax.set_ylabel(f"GEMM rate [{unit}]")
    ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2)
    return ax


def _ticks(low, high):
    """1, 2, 5 a decade; fewer where there are many decades."""
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [s * 10.0**e for e in range(-6, 10) for s in steps if low <= s * 10.0**e <= high]
        if len(ticks) <= 9:
            break
    return ticks
