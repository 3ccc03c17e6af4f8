"""The roofline of a device, with GEMMs on it; used by several chapters."""

import numpy as np

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import precision as as_precision
from hwdesign.formulas.roofline import attainable_flops
from hwdesign.lessons import style


@style.styled
def roofline(device, precision, modelled, *, measured=None, limits=(50, 20000), ax=None):
    """Attainable rate against arithmetic intensity on log axes, with modelled GEMMs on the roof and
    measured ones below.

    Parameters
    ----------
    device : str or Device
        Accelerator.
    precision : str or Precision
        Number format of the math.
    modelled : mapping of str to float
        Label to intensity [FLOP/byte]; the marker sits on the roof.
    measured : mapping of str to (float, float), optional
        Label to (intensity [FLOP/byte], rate [FLOP/s]); a cross.
    limits : (float, float)
        Range of the intensity axis [FLOP/byte].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: intensity [FLOP/byte], y: rate [PFLOP/s].

    Raises
    ------
    ValueError
        If the device has no peak for the format.

    Notes
    -----
    Source: Williams, Waterman, Patterson 2009.

    Examples
    --------
    >>> roofline("GB300", "nvfp4", {"A": 474.0}).get_xlabel()
    'arithmetic intensity [FLOP/byte]'
    """
    device, precision = as_device(device), as_precision(precision)
    ax = ax or style.axes()
    peak, ridge = device.peak_flops(precision), device.ridge(precision)
    roofs = {"peak_flops": peak, "bandwidth": device.memory_bandwidth}
    x = np.geomspace(*limits, 200)
    ax.loglog(x, attainable_flops(x, **roofs) / 1e15, color=style.INK)
    ax.axvline(ridge, color=style.GREY, lw=1, ls=":")
    ax.annotate(
        f"ridge {ridge:.0f}",
        (ridge, 0.12),
        xycoords=("data", "axes fraction"),
        xytext=(5, 0),
        textcoords="offset points",
        color=style.GREY,
    )
    for i, (label, at) in enumerate(modelled.items()):
        ax.plot(at, attainable_flops(at, **roofs) / 1e15, "o", color=style.BLUE, zorder=3)
        place = (
            {"xytext": (-8, 5), "ha": "right"} if i % 2 == 0 else {"xytext": (8, -12), "ha": "left"}
        )
        here = (at, attainable_flops(at, **roofs) / 1e15)
        ax.annotate(
            label, here, textcoords="offset points", fontsize=9.5, bbox=style.PLATE, **place
        )
    for i, (label, (at, rate)) in enumerate((measured or {}).items()):
        color = {name: color for color, name in style.FRAMEWORK.values()}.get(label, style.ORANGE)
        ax.plot(at, rate / 1e15, "x", color=color, mew=2, zorder=3)
        below = {
            "xytext": (8, -4 - 9 * (i % 2)),
            "textcoords": "offset points",
            "fontsize": 9.5,
            "bbox": style.PLATE,
        }
        ax.annotate(label, (at, rate / 1e15), **below)
    ax.set_xlabel("arithmetic intensity [FLOP/byte]")
    ax.set_ylabel(f"{precision.label} rate [PFLOP/s]")
    return ax


@style.styled
def ridges(devices, *, ax=None):
    """Ridge points of devices by number format, on a logarithmic axis.

    Parameters
    ----------
    devices : sequence of Device
        Accelerators, drawn from top to bottom.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: ridge [FLOP/byte] (log), y: device.

    Notes
    -----
    Source: the device catalogue.

    Examples
    --------
    >>> ridges([as_device("GB300")]).get_xlabel()
    'ridge point [FLOP/byte]'
    """
    ax = ax or style.axes(height=1.1 + 0.29 * len(devices))
    rows = np.arange(len(devices))[::-1]
    looks = {
        "BF16 or FP16": ("bf16", "fp16", style.BLUE, "o"),
        "FP8": ("fp8", "", style.GREEN, "s"),
        "FP4": ("fp4", "", style.ORANGE, "^"),
    }
    for label, (first, second, color, marker) in looks.items():
        peaks = [d.dense_peak.get(first, d.dense_peak.get(second, np.nan)) for d in devices]
        ax.plot(
            [p / d.memory_bandwidth for p, d in zip(peaks, devices, strict=True)],
            rows,
            marker,
            color=color,
            label=label,
        )
    ax.set_yticks(rows, [d.name.replace("_", " ") for d in devices])
    ax.set_xscale("log")
    style.plain_ticks(ax.xaxis, (100, 200, 500, 1000, 2000))
    ax.set_xlabel("ridge point [FLOP/byte]")
    ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3)
    return ax
