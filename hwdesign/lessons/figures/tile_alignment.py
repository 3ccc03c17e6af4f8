"""Figures of chapter 2 that the tile model draws: the tiles of an output, Figure 5, waves by number
of processors, shards.
"""

import itertools

import numpy as np
from matplotlib.patches import Patch, Rectangle

from hwdesign.formulas.tiling import cluster_efficiency, pad, tile_efficiency, wave_efficiency
from hwdesign.lessons import style
from hwdesign.models.sharding import best_tier

WAVES = ("#a9c9ea", "#f2c79a", "#a8dcc5", "#d6bfe6")  # light, so that the padding shows on them
TIERS = {
    "uneven": ("#6b1f12", "uneven"),
    "cut": (style.ORANGE, "block cut"),
    "whole": ("#f1c9a5", "whole"),
    "format": ("#f9e4cf", "format"),
    "kernel": ("#eef1f4", "kernel"),
    "tile 128": ("#cfe2f3", "128"),
    "tile 256": ("#7fb0dc", "256"),
    "tile 512": (style.BLUE, "512"),
}  # tier -> colour, label


@style.styled
def tile_map(m, n, *, tile_m, tile_n, sms, span=None, ax=None):
    """The tiles that an output matrix is cut into, coloured by wave, with the padded part hatched.

    Parameters
    ----------
    m, n : int
        Rows and columns of the output [element].
    tile_m, tile_n : int
        Tile [element].
    sms : int
        Processors: so many tiles make a wave [SM].
    span : (int, int), optional
        Rows and columns that the axes show [element]; by default those of the padded output.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: columns n [element], y: rows m [element], downwards.

    Notes
    -----
    Source: NVIDIA, matrix multiplication guide, tile and wave quantization.

    Examples
    --------
    >>> tile_map(257, 512, tile_m=256, tile_n=128, sms=4).get_xlabel()
    'output column n [element]'
    """
    ax = ax or style.axes(height=3.9)
    rows, columns = int(pad(m, tile_m)), int(pad(n, tile_n))
    corners = itertools.product(range(0, rows, tile_m), range(0, columns, tile_n))
    wave = 0
    for i, (top, left) in enumerate(corners):
        wave = i // sms
        ax.add_patch(
            Rectangle(
                (left, top), tile_n, tile_m, facecolor=WAVES[wave % 4], edgecolor="white", lw=0.9
            )
        )
    hatch = {"facecolor": "none", "edgecolor": style.GREY, "hatch": "////", "lw": 0}
    for corner, width, height in (((n, 0), columns - n, rows), ((0, m), n, rows - m)):
        if width and height:
            ax.add_patch(Rectangle(corner, width, height, **hatch))
    ax.add_patch(Rectangle((0, 0), n, m, fill=False, edgecolor=style.INK, lw=1.6))
    down, across = span or (rows, columns)
    if 0.5 < down / across < 2:
        ax.set_aspect("equal")
    ax.set_xlim(-0.01 * across, 1.01 * across)
    ax.set_ylim(1.02 * down, -0.02 * down)
    for axis, tile, end, most in ((ax.xaxis, tile_n, across, 5), (ax.yaxis, tile_m, down, 8)):
        style.plain_ticks(axis, range(0, int(end) + 1, tile * -(-int(end) // (most * tile))))
    ax.grid(visible=False)
    ax.set_xlabel("output column n [element]")
    ax.set_ylabel("output row m [element]")
    keys = [Patch(facecolor=WAVES[w % 4], label=f"wave {w + 1}") for w in range(wave + 1)]
    if (rows, columns) != (m, n):
        keys.append(Patch(**hatch, label="padding"))
    ax.legend(
        handles=keys,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=min(len(keys), 5),
        fontsize=9,
    )
    return ax


@style.styled
def fine_steps(n, *, tile=256, cluster=512, shares=(0.0, 0.5, 1.0), ax=None):
    """Figure 5 from the model: efficiency against N in fine steps, for several costs of a reserved
    tile without outputs.

    Parameters
    ----------
    n : array_like of int, shape (s,)
        Columns [element], increasing.
    tile, cluster : int
        Columns of a tile and of a cluster [element].
    shares : sequence of float
        Costs of an idle tile, as shares of a full one [dimensionless]; the middle one gets the
        marks.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: N [element], y: throughput as a share of the best.

    Notes
    -----
    Source: `hwdesign.formulas.tiling.cluster_efficiency`.

    Examples
    --------
    >>> fine_steps(range(512, 1537, 16)).get_ylabel()
    'throughput [share of the best]'
    """
    ax = ax or style.axes(height=3.9)
    n, middle = np.asarray(n), shares[len(shares) // 2]
    for share in shares:
        color, lw, ls = (
            (style.BLUE, 1.9, "-")
            if share == middle
            else (style.GREY, 1.2, ":" if share < middle else "--")
        )
        value = cluster_efficiency(n, tile=tile, cluster=cluster, idle=share)
        ax.plot(n, value, ls=ls, color=color, lw=lw, label=f"an idle tile costs {share:g}")
    for at, marker, label in (
        (n % cluster == 0, "o", f"multiple of {cluster}"),
        ((n % tile == 0) & (n % cluster != 0), "D", f"odd multiple of {tile}"),
    ):
        value = cluster_efficiency(n[at], tile=tile, cluster=cluster, idle=middle)
        ax.plot(
            n[at],
            value,
            marker,
            color=style.BLUE,
            mfc="white" if marker == "D" else style.BLUE,
            label=label,
        )
    style.plain_ticks(ax.xaxis, n[n % cluster == 0])
    ax.set_ylim(0.62, 1.03)
    ax.set_xlabel("N [element]")
    ax.set_ylabel("throughput [share of the best]")
    ax.legend(fontsize=9, loc="lower right", ncols=2)
    return ax


@style.styled
def processor_strip(sms, n, *, m, tile_m, tile_n, ax=None):
    """Tile times wave efficiency against N, one row a number of processors.

    Parameters
    ----------
    sms : mapping of str to int
        Label to processors [SM].
    n : array_like of int, shape (s,)
        Columns [element], evenly spaced.
    m : int
        Rows [element].
    tile_m, tile_n : int
        Tile [element].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: N [element], y: devices; colour: efficiency.

    Notes
    -----
    Source: `hwdesign.formulas.tiling`.

    Examples
    --------
    >>> processor_strip({"A100": 108}, [1024, 1152], m=2048, tile_m=128, tile_n=256).get_xlabel()
    'N [element]'
    """
    ax = ax or style.axes(height=1.3 + 0.42 * len(sms))
    n = np.asarray(n)
    counts = np.array(list(sms.values()))[:, None]
    value = tile_efficiency(m, n, tile_m=tile_m, tile_n=tile_n) * wave_efficiency(
        m, n, tile_m=tile_m, tile_n=tile_n, sms=counts
    )
    half = (n[1] - n[0]) / 2
    image = ax.imshow(
        value,
        aspect="auto",
        cmap="cividis",
        vmin=0.5,
        vmax=1,
        interpolation="nearest",
        extent=(n[0] - half, n[-1] + half, len(sms) - 0.5, -0.5),
    )
    ax.set_yticks(range(len(sms)), list(sms))
    style.plain_ticks(ax.xaxis, n[n % 1024 == 0])
    ax.grid(visible=False)
    ax.set_xlabel("N [element]")
    ax.figure.colorbar(image, ax=ax, label="efficiency", extend="min", pad=0.02)
    return ax


@style.styled
def efficiency_map(sms, m, n, *, tile_m, tile_n, ax=None):
    """Tile times wave efficiency of outputs of m rows and n columns.

    Parameters
    ----------
    sms : int
        Processors [SM].
    m, n : array_like of int, shape (r,) and (s,)
        Rows and columns [element], evenly spaced.
    tile_m, tile_n : int
        Tile [element].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: N [element], y: M [element]; colour: efficiency.

    Notes
    -----
    Source: `hwdesign.formulas.tiling`.

    Examples
    --------
    >>> efficiency_map(108, [128, 256], [256, 512], tile_m=128, tile_n=256).get_ylabel()
    'M [element]'
    """
    ax = ax or style.axes(height=4.2)
    m, n = np.asarray(m), np.asarray(n)
    tile = {"tile_m": tile_m, "tile_n": tile_n}
    value = tile_efficiency(m[:, None], n, **tile) * wave_efficiency(m[:, None], n, **tile, sms=sms)
    x, y = (n[1] - n[0]) / 2, (m[1] - m[0]) / 2
    image = ax.imshow(
        value,
        origin="lower",
        aspect="auto",
        cmap="cividis",
        vmin=0.5,
        vmax=1,
        interpolation="nearest",
        extent=(n[0] - x, n[-1] + x, m[0] - y, m[-1] + y),
    )
    ax.grid(visible=False)
    ax.set_xlabel("N [element]")
    ax.set_ylabel("M [element]")
    ax.figure.colorbar(image, ax=ax, label="efficiency", extend="min", pad=0.02)
    return ax


@style.styled
def shard_map(dimensions, ways, *, ax=None):
    """The strictest rule that the shards of some dimensions keep, by tensor-parallel ways.

    Parameters
    ----------
    dimensions : mapping of str to (int, str)
        Label to width [element] and format of the weights.
    ways : sequence of int
        Tensor-parallel ways.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: ways, y: dimensions; each cell names the size of a shard [element] and the rule.

    Notes
    -----
    Source: `hwdesign.models.sharding.best_tier`.

    Examples
    --------
    >>> shard_map({"width": (1856, "nvfp4")}, (1, 2)).get_xlabel()
    'tensor-parallel ways'
    """
    ax = ax or style.axes(width=6.4, height=1.0 + 0.5 * len(dimensions))
    for row, (width, precision) in enumerate(dimensions.values()):
        for column, by in enumerate(ways):
            color, label = TIERS[best_tier(width, by, precision)]
            ax.add_patch(
                Rectangle(
                    (column - 0.5, row - 0.5), 1, 1, facecolor=color, edgecolor="white", lw=1.5
                )
            )
            ink = "white" if color in (style.BLUE, style.ORANGE, TIERS["uneven"][0]) else style.INK
            told = label if width % by else f"{int(width) // by}\n{label}"
            ax.text(column, row, told, ha="center", va="center", fontsize=8.5, color=ink)
    ax.set_xlim(-0.5, len(ways) - 0.5)
    ax.set_ylim(len(dimensions) - 0.5, -0.5)
    ax.set_xticks(range(len(ways)), [str(by) for by in ways])
    ax.set_yticks(range(len(dimensions)), list(dimensions))
    ax.grid(visible=False)
    ax.set_xlabel("tensor-parallel ways")
    return ax
