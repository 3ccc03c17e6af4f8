"""How well the calibrated model meets the published times: error over shapes, a switch of kernels,
served against modelled.
"""

import itertools

import numpy as np

from hwdesign.lessons import style

BOUNDS = (0, 4, 8, 12, 16, 24, 32)  # steps of the error's colours [%]


@style.styled
def error_maps(panels, *, columns=3):
    """Small maps of the model's error over tokens and weights, one a slice, with one scale of
    colours.

    Parameters
    ----------
    panels : list of (str, array_like, array_like, array_like)
        Title, lower ends of the token bins [element], lower ends of the bins of N K [element], mean
        absolute error [%] with one row a bin of N K; NaN where nothing was measured. `None` leaves
        a place empty.
    columns : int
        Maps side by side.

    Returns
    -------
    matplotlib.axes.Axes
        The first map; x: tokens M, y: weights N K, colour: error [%].

    Examples
    --------
    >>> error_maps(
    ...     [("GB300 bf16", [1, 16], [2**20, 2**22], [[5, 4], [6, 3]]), None], columns=2
    ... ).get_title()
    'GB300 bf16'
    """
    from matplotlib.colors import BoundaryNorm

    rows = -(-len(panels) // columns)
    first = style.axes(width=1.9 * columns, height=1.5 * rows + 0.9)
    figure = first.figure
    first.remove()
    grid = figure.subplots(rows, columns, squeeze=False)
    norm = BoundaryNorm(BOUNDS, 256, extend="max")
    for ax, panel in zip(
        grid.ravel(), panels + [None] * (rows * columns - len(panels)), strict=True
    ):
        if panel is None:
            ax.set_visible(False)
            continue
        title, m, area, error = panel
        picture = ax.imshow(
            np.asarray(error, float),
            origin="lower",
            aspect="auto",
            cmap="cividis_r",
            norm=norm,
            interpolation="nearest",
        )
        ax.set_title(title, fontsize=9.5)
        ax.grid(visible=False)
        for axis, values in ((ax.xaxis, m), (ax.yaxis, area)):
            some = range(0, len(values), max(1, len(values) // 4))
            labels = [f"$2^{{{round(np.log2(values[i]))}}}$" for i in some]
            axis.set_ticks(list(some), labels, fontsize=8.5)
    shown = [ax for ax in grid.ravel() if ax.get_visible()]
    figure.supxlabel("tokens M [element]", fontsize=10.5)
    figure.supylabel("weights N K [element]", fontsize=10.5)
    figure.colorbar(
        picture,
        ax=shown,
        location="top",
        shrink=0.8,
        aspect=40,
        pad=0.01,
        label="mean absolute error, held out [%]",
    )
    return shown[0]


@style.styled
def kernel_switch(m, lines, *, ax=None):
    """Measured and modelled time of one pair N, K over the tokens: where a library switches
    kernels, the model cannot follow.

    Parameters
    ----------
    m : array_like of int, shape (s,)
        Tokens [element].
    lines : dict of str to (array_like, array_like)
        Label to measured and modelled times [s], NaN where not measured.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: tokens M [element], y: time [µs], both logarithmic.

    Examples
    --------
    >>> kernel_switch([512, 513], {"fp8_block": ([178e-6, 88e-6], [1e-4, 1e-4])}).get_ylabel()
    'time [µs]'
    """
    ax = ax or style.axes()
    m = np.asarray(m)
    for (label, (measured, modelled)), color in zip(
        lines.items(), itertools.cycle((style.ORANGE, style.BLUE, style.GREEN))
    ):
        ax.loglog(m, np.asarray(modelled) * 1e6, color=color, label=f"{label}, modelled")
        ax.loglog(
            m, np.asarray(measured) * 1e6, "x", color=color, mew=1.6, label=f"{label}, published"
        )
    style.plain_ticks(ax.xaxis, [2**i for i in range(5, 14, 2)])
    style.plain_ticks(ax.yaxis, (20, 50, 100, 200, 500, 1000))
    ax.set_xlabel("tokens M [element]")
    ax.set_ylabel("time [µs]")
    ax.legend()
    return ax


@style.styled
def served_times(groups, *, ax=None):
    """Time per output token of served models, modelled against published.

    Parameters
    ----------
    groups : dict of str to (array_like, array_like)
        Model to published and modelled times [s].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: published time [ms], y: modelled time [ms], both logarithmic.

    Examples
    --------
    >>> served_times({"Llama-3.1-70B": ([17e-3], [17e-3])}).get_xlabel()
    'published time per output token [ms]'
    """
    ax = ax or style.axes(height=4.6)
    ends = np.array([1.5, 300])
    ax.fill_between(ends, ends * 0.75, ends * 1.25, color=style.GRID, lw=0, label="within 25 %")
    ax.loglog(ends, ends, color=style.GREY, lw=1)
    looks = zip(
        "ovs^D", (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.INK), strict=True
    )
    for (label, (published, modelled)), (marker, color) in zip(
        groups.items(), itertools.cycle(looks)
    ):
        look = {
            "ms": 3.2,
            "alpha": 0.45,
            "color": color,
            "mew": 0,
            "label": label,
            "rasterized": True,
        }
        ax.loglog(np.asarray(published) * 1e3, np.asarray(modelled) * 1e3, marker, **look)
    for axis in (ax.xaxis, ax.yaxis):
        style.plain_ticks(axis, (2, 5, 10, 20, 50, 100, 200))
    ax.set_xlim(ends)
    ax.set_ylim(ends)
    ax.set_xlabel("published time per output token [ms]")
    ax.set_ylabel("modelled time per output token [ms]")
    ax.legend(markerscale=2)
    return ax
