"""Sliders of chapter 1: K on the roofline, and shapes of one area as the tokens grow."""

import numpy as np

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import precision as as_precision
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.formulas.roofline import gemm_flops, gemm_intensity
from hwdesign.lessons import style
from hwdesign.lessons.explore import Explorer, Frame
from hwdesign.lessons.figures.near_square import time_by_aspect
from hwdesign.lessons.figures.roofline import roofline
from hwdesign.lessons.studies.four_constants import gemm_seconds, ideal_constants
from hwdesign.timing.silicon import gemm_grid
from hwdesign.units import fmt

EXPLORED_K = (128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
EXPLORED_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 8192)
SAME_AREA = (
    (1024, 65536),
    (4096, 16384),
    (8192, 8192),
    (16384, 4096),
    (65536, 1024),
)  # N, K; 67 M weights each


def explore_k(device="GB300", precision="nvfp4", *, m=8192, n=10240, sizes=EXPLORED_K):
    """Slider over the reduction dimension: the GEMM on the roofline, modelled and measured.

    Parameters
    ----------
    device, precision : str
        A measured slice; the recipe has the name of the precision.
    m, n : int
        Fixed dimensions [element], on the measured grid.
    sizes : sequence of int
        Reduction dimensions K [element], on the measured grid.

    Returns
    -------
    Explorer
        Frame data: k [element], bound and measured times [s] by framework, intensity [FLOP/byte].

    Raises
    ------
    ValueError
        If a size was not measured.

    Notes
    -----
    Source: `hwdesign.timing.silicon`.

    Examples
    --------
    >>> explore_k(sizes=(512, 1024))
    <Explorer reduction-dimension: reduction dimension K [element] over K = 512 to K = 1024>
    """
    grids = {name: gemm_grid(device, precision, name) for name in ("sglang", "trtllm")}
    ideal = ideal_constants(device, precision)
    size = as_recipe(precision).operand_bytes

    def draw(i):
        k = sizes[i]
        work = gemm_flops(m, n, k)
        at = float(gemm_intensity(m, n, k, **size))
        bound = float(gemm_seconds(m, n, k, precision, ideal))
        seconds = {name: float(grid.at(m, n, k)) for name, grid in grids.items()}
        points = {style.FRAMEWORK[name][1]: (at, work / t) for name, t in seconds.items()}
        ax = roofline(
            device, precision, {f"bound, K = {k}": at}, measured=points, limits=(30, 6000)
        )
        ax.set_ylim(0.1, 30)  # the same axes in all frames
        side = "memory-bound" if at < as_device(device).ridge(precision) else "compute-bound"
        told = ", ".join(f"{style.FRAMEWORK[name][1]} {fmt(t, 's')}" for name, t in seconds.items())
        text = f"K = {k}: {at:.0f} FLOP/byte, {side}. Bound {fmt(bound, 's')}; published {told}."
        alt = f"Rate [PFLOP/s] against arithmetic intensity [FLOP/byte], both logarithmic. {text}"
        return Frame(
            ax=ax,
            alt=alt,
            text=text,
            data={"k": int(k), "intensity": at, "bound": bound, "measured": seconds},
        )

    caption = (
        f"One GEMM with M = {m}, N = {n} on {as_device(device).name} in "
        f"{as_precision(precision).label}, BF16 output, as K grows."
    )
    return Explorer(
        "reduction-dimension",
        "reduction dimension K [element]",
        [f"K = {k}" for k in sizes],
        draw,
        caption=caption,
        kinds=["modelled", "published"],
    )


def explore_tokens(device="GB300", precision="nvfp4", *, tokens=EXPLORED_TOKENS, shapes=SAME_AREA):
    """Slider over the token count: time of weight matrices with the same number of weights, from
    flat to tall.

    Parameters
    ----------
    device, precision : str
        A measured slice; the recipe has the name of the precision.
    tokens : sequence of int
        M [element], on the measured grid.
    shapes : sequence of (int, int)
        (N, K) [element], on the measured grid, equal products.

    Returns
    -------
    Explorer
        Frame data: m [element], bound and measured times [s], one per shape.

    Raises
    ------
    ValueError
        If a size was not measured.

    Notes
    -----
    Source: `hwdesign.timing.silicon`.

    Examples
    --------
    >>> explore_tokens(tokens=(16, 8192))
    <Explorer same-area: tokens M [element] over M = 16 to M = 8192>
    """
    grids = {name: gemm_grid(device, precision, name) for name in ("sglang", "trtllm")}
    ideal = ideal_constants(device, precision)
    n, k = np.array(shapes).T
    everything = [grid.at(max(tokens), n, k) for grid in grids.values()] + [
        gemm_seconds(1, n, k, precision, ideal)
    ]
    limits = (
        0.7e6 * np.nanmin(everything),
        1.4e6 * np.nanmax(everything),
    )  # [µs], the same axes in all frames

    def draw(i):
        m = tokens[i]
        seconds = {name: grid.at(m, n, k) for name, grid in grids.items()}
        bound = gemm_seconds(m, n, k, precision, ideal)
        best = {name: int(np.nanargmin(t)) for name, t in seconds.items()}
        told = ", ".join(
            f"{style.FRAMEWORK[name][1]} {n[b]} x {k[b]} ({fmt(seconds[name][b], 's')})"
            for name, b in best.items()
        )
        low = int(np.argmin(bound))
        text = (
            f"M = {m}: fastest N x K: {told}; lowest bound: {n[low]} x {k[low]} "
            f"({fmt(bound[low], 's')})."
        )
        alt = (
            f"Time [µs] against aspect N/K, both logarithmic, {len(n)} shapes of "
            f"{fmt(n[0] * k[0], '')} weights. {text}"
        )
        ax = time_by_aspect(n / k, seconds, bound=bound)
        ax.set_ylim(*limits)
        data = {
            "m": int(m),
            "bound": bound.tolist(),
            "measured": {name: t.tolist() for name, t in seconds.items()},
        }
        return Frame(ax=ax, alt=alt, text=text, data=data)

    what = f"{as_device(device).name} in {as_precision(precision).label}"
    caption = (
        f"Weight matrices of equal size, {what}, BF16 output, from tall (N/K small) to "
        "flat (N/K large)."
    )
    return Explorer(
        "same-area",
        "tokens M [element]",
        [f"M = {m}" for m in tokens],
        draw,
        caption=caption,
        kinds=["modelled", "published"],
    )
