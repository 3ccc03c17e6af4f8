"""Sliders of chapter 4: how strong the outliers are, how large a block is, how many tokens there
are.
"""

from dataclasses import replace

import numpy as np

from hwdesign.formulas.quantization import SCHEMES, decode, encode, sqnr
from hwdesign.lessons import style
from hwdesign.lessons.explore import Explorer, Frame
from hwdesign.lessons.figures.low_precision import error_lines
from hwdesign.lessons.figures.low_precision_speed import speedup_map
from hwdesign.lessons.studies.samples import SPREAD, outlier_channels, samples
from hwdesign.timing.silicon import gemm_grid

STRENGTHS = (1, 10, 30, 100, 300)
BLOCKS = (8, 16, 32, 64, 128, 256)
TOKENS = (1, 64, 1024, 2048, 8192, 32768)
NV, MX = "NVFP4 (E2M1, E4M3 scale)", "MXFP4 (E2M1, E8M0 scale)"
GRIDS = {"FP8 (E4M3)": "fp8_1x128", NV: "nvfp4", MX: "mxfp4", "INT4": "int4_g128"}
DEFINED = ((NV, 16), (MX, 32), ("INT4", 128), ("FP8 (E4M3)", 128))


def ordinary_sqnr(x, scheme, blocks=BLOCKS):
    """Signal to noise of the ordinary numbers of a matrix with outlier channels, by block size.

    Parameters
    ----------
    x : ndarray of float, shape (rows, columns)
        From `samples`.
    scheme : str
        One of `SCHEMES`; its block is replaced.
    blocks : sequence of int
        Columns of a block [element].

    Returns
    -------
    list of float
        Ratio [dB] over all columns but the outlier channels.

    Notes
    -----
    Source: `hwdesign.formulas.quantization.sqnr`.

    Examples
    --------
    >>> [round(v) for v in ordinary_sqnr(samples("Gaussian"), "nvfp4", (16, 128))]
    [20, 19]
    """
    ordinary = ~outlier_channels(x.shape[1])
    stored = (decode(encode(x, replace(SCHEMES[scheme], block=(1, size)))) for size in blocks)
    return [sqnr(x[:, ordinary], y[:, ordinary]) for y in stored]


def explore_outliers(strengths=STRENGTHS, blocks=BLOCKS):
    """Slider over the strength of the outlier channels: signal to noise of the others against the
    block size.

    Parameters
    ----------
    strengths : sequence of float
        Size of the outlier channels [times the others].
    blocks : sequence of int
        Columns of a block [element].

    Returns
    -------
    Explorer
        Frame data: strength, blocks [element], ratio [dB] by format.

    Notes
    -----
    Source: `hwdesign.formulas.quantization`, `hwdesign.lessons.studies.samples`.

    Examples
    --------
    >>> explore_outliers(strengths=(1, 10), blocks=(16, 32))
    <Explorer outliers: outlier channels, times the others over 1 to 10>
    """

    @style.styled
    def draw(i):
        x = samples("outlier channels", strength=strengths[i])
        curves = {name: ordinary_sqnr(x, scheme, blocks) for name, scheme in GRIDS.items()}
        shown = [(name, at) for name, at in DEFINED if at in blocks]
        ax = error_lines(blocks, curves, xlabel="block [element]", marks=shown, top=37)
        told = "; ".join(
            f"{name} at {at}: {curves[name][list(blocks).index(at)]:.1f} dB" for name, at in shown
        )
        text = f"Each 128th channel {strengths[i]:g} times as large: {told}."
        alt = (
            "Signal to noise [dB] of the ordinary channels against the block [element], "
            f"logarithmic. {text}"
        )
        return Frame(
            ax=ax,
            alt=alt,
            text=text,
            data={"strength": float(strengths[i]), "blocks": list(blocks), "ratio": curves},
        )

    caption = (
        "What is left of the ordinary channels when each 128th is an outlier. Rings: the block "
        "sizes of NVFP4, MXFP4, INT4 g128 "
        "and FP8 1x128."
    )
    values = [f"{s:g}" for s in strengths]
    return Explorer(
        "outliers",
        "outlier channels, times the others",
        values,
        draw,
        caption=caption,
        kinds=["modelled"],
    )


def _outlier_row(before, after, at, size):
    """A row of numbers [standard deviations] before and after, and the block of the outlier at a
    place; returns the axes.
    """
    ax, places, first = style.axes(height=3.6), range(len(before)), at // size * size
    span = {"color": style.GRID, "alpha": 0.8, "lw": 0}
    ax.axvspan(first - 0.5, first + size - 0.5, label="block of the outlier", **span)
    ax.vlines(places, before, after, color=style.GREY, lw=1)
    ax.plot(places, before, "o", color=style.BLUE, mfc="none", ms=4, label="before")
    ax.plot(places, after, "_", color=style.ORANGE, ms=7, mew=2, label="after")
    ax.set_ylim(-3.2, 3.2)
    ax.set_xlabel("place in the row")
    ax.set_ylabel("value [standard deviations]")
    ax.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=3)
    return ax


def explore_block(sizes=BLOCKS[:4], *, columns=64, at=20, strength=12.0):
    """Slider over the block size: a row of numbers with one outlier, before and after.

    Parameters
    ----------
    sizes : sequence of int
        Columns of a block [element]; each must divide `columns`.
    columns : int
        Numbers in the row [element].
    at : int
        Place of the outlier.
    strength : float
        Its size [standard deviations of the others].

    Returns
    -------
    Explorer
        Frame data: block [element], zeros (count), ratio of the others [dB].

    Notes
    -----
    Source: `hwdesign.formulas.quantization`.

    Examples
    --------
    >>> explore_block(sizes=(16, 32))
    <Explorer block: block size [element] over 16 to 32>
    """
    x = np.random.default_rng(4).standard_normal((1, columns)) * SPREAD
    x[0, at] = strength * SPREAD
    others = np.arange(columns) != at

    @style.styled
    def draw(i):
        y = decode(encode(x, replace(SCHEMES["nvfp4"], block=(1, sizes[i]))))[0]
        ax = _outlier_row(x[0] / SPREAD, y / SPREAD, at, sizes[i])
        arrow = {"arrowstyle": "->", "color": style.INK}
        ax.annotate(f"{strength:g}", (at, 3.1), xytext=(at, 2.4), ha="center", arrowprops=arrow)
        zeros, ratio = int((y[others] == 0).sum()), sqnr(x[0, others], y[others])
        text = (
            f"Blocks of {sizes[i]}: {zeros} of the {columns - 1} other numbers become zero, "
            f"and {ratio:.1f} dB are left of them."
        )
        alt = (
            f"{columns} numbers [standard deviations] against their place, one of them "
            f"{strength:g}, before and after. {text}"
        )
        return Frame(
            ax=ax, alt=alt, text=text, data={"block": int(sizes[i]), "zeros": zeros, "ratio": ratio}
        )

    caption = (
        "A row of Gaussian numbers with one outlier, in E2M1 with an E4M3 scale for each block."
    )
    return Explorer(
        "block",
        "block size [element]",
        list(map(str, sizes)),
        draw,
        caption=caption,
        kinds=["modelled"],
    )


def explore_speedup(device="GB300", framework="sglang", *, tokens=TOKENS, least=512):
    """Slider over the tokens: where NVFP4 is faster than BF16, and where it is slower.

    Parameters
    ----------
    device, framework : str
        Measured slices in both formats.
    tokens : sequence of int
        M [element], on the grids.
    least : int
        Smallest N and K that are drawn [element].

    Returns
    -------
    Explorer
        Frame data: m [element], median speed [BF16 = 1], share of the shapes that are slower.

    Raises
    ------
    ValueError
        If a slice or a size was not measured.

    Notes
    -----
    Source: `hwdesign.timing.silicon`.

    Examples
    --------
    >>> explore_speedup(tokens=(1, 8192))
    <Explorer speedup: tokens M [element] over M = 1 to M = 8192>
    """
    high, low = (gemm_grid(device, name, framework) for name in ("bf16", "nvfp4"))
    n, k = low.n[low.n >= least], low.k[low.k >= least]

    @style.styled
    def draw(i):
        m = tokens[i]
        speed = high.at(m, n[:, None], k[None]) / low.at(m, n[:, None], k[None])
        known = speed[np.isfinite(speed)]
        slower = float((known < 1).mean())
        text = (
            f"M = {m}: NVFP4 is {np.median(known):.2f} times as fast as BF16 in the median, "
            f"{known.max():.2f} times at best and "
            f"slower on {slower:.0%} of the {known.size} shapes."
        )
        alt = f"Speed of NVFP4 [BF16 = 1] by N and K [element]. {text}"
        data = {"m": int(m), "median": float(np.median(known)), "slower": slower}
        return Frame(ax=speedup_map(n, k, speed), alt=alt, text=text, data=data)

    name = style.FRAMEWORK[framework][1]
    caption = (
        f"{device}, {name}: time in BF16 over time in NVFP4, quantizing of the inputs "
        "included. A dot: slower than BF16; "
        "hatched: not published."
    )
    return Explorer(
        "speedup",
        "tokens M [element]",
        [f"M = {m}" for m in tokens],
        draw,
        caption=caption,
        kinds=["published"],
    )
