"""Figures of chapter 4, low precision: what the formats gain."""

import itertools

import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Rectangle

from hwdesign.lessons import style


@style.styled
def format_roofs(m, rates, critical, *, ax=None):
    """The rooflines of several formats against the tokens of one layer.

    Parameters
    ----------
    m : array_like of int, shape (s,)
        Tokens [element].
    rates : mapping of str to array_like, shape (s,)
        Format to attainable rate [FLOP/s].
    critical : mapping of str to float
        Format to the tokens at which it reaches its peak [element]; the mark stands at the next
        point of `m`.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: tokens [element] (log), y: attainable rate [PFLOP/s] (log).

    Notes
    -----
    Source: Williams, Waterman, Patterson 2009.

    Examples
    --------
    >>> format_roofs([1, 2], {"a": [1e15, 2e15]}, {"a": 2}).get_xlabel()
    'tokens M [element]'
    """
    ax = ax or style.axes(height=4.0)
    looks = style.looks(rates)
    for name, rate in rates.items():
        color, marker, line = looks[name]
        bend = [int(np.searchsorted(m, critical[name]))] if name in critical else []
        ax.loglog(
            m,
            np.asarray(rate) / 1e15,
            color=color,
            ls=line,
            lw=1.8,
            marker=marker,
            markevery=bend,
            ms=8,
            label=name,
        )
    style.plain_ticks(ax.xaxis, [1, 4, 16, 64, 256, 1024, 4096, 16384])
    style.plain_ticks(ax.yaxis, [0.01, 0.1, 1, 10])
    ax.set_xlabel("tokens M [element]")
    ax.set_ylabel("attainable rate [PFLOP/s]")
    ax.legend(fontsize=9)
    return ax


@style.styled
def speedup_lines(
    m, curves, *, points=None, top=None, xlabel="tokens M [element]", ticks=None, ax=None
):
    """Speed against BF16, one line a format.

    Parameters
    ----------
    m : array_like of float, shape (s,)
        Tokens, or another dimension [element].
    curves : mapping of str to array_like, shape (s,)
        Format to BF16's time over its time [dimensionless].
    points : (array_like, mapping of str to array_like), optional
        Other sizes [element], and published speeds at them for some of the labels, drawn as
        crosses.
    top : float, optional
        Upper end of the axis.
    xlabel : str
        What is varied, with unit.
    ticks : sequence of float, optional
        Ticks of x.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: as told (log), y: speed [BF16 = 1].

    Examples
    --------
    >>> speedup_lines([1, 2], {"NVFP4": [3.5, 3.5]}).get_ylabel()
    'speed [BF16 = 1]'
    """
    ax = ax or style.axes(height=3.8)
    looks = style.looks([*curves, *(points[1] if points else ())])
    for name, speed in curves.items():
        color, _, line = looks[name]
        ax.semilogx(m, speed, color=color, ls=line, lw=1.6, label=name)
    for (name, speed), cross in zip(points[1].items() if points else (), itertools.cycle("x+1")):
        ax.semilogx(
            points[0], speed, cross, color=looks[name][0], mew=1.9, ms=7, label=f"{name}, published"
        )
    ax.axhline(1, color=style.INK, ls="--", lw=1)
    style.plain_ticks(ax.xaxis, ticks or [1, 4, 16, 64, 256, 1024, 4096, 16384])
    ax.set_ylim(0, top)
    ax.set_xlabel(xlabel)
    ax.set_ylabel("speed [BF16 = 1]")
    ax.legend(fontsize=9)
    return ax


# Slower than BF16 in orange, faster in blue; the darker, the further from 1.
_SLOWER, _FASTER = (
    ("#8f3a04", "#c96a2b", "#eebd9a"),
    ("#e4eef8", "#b5d3ee", "#7db0dd", "#3f86c4", "#0b5fa5", "#073d6b"),
)
EDGES = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)  # of the colours


@style.styled
def speedup_map(n, k, speed, *, rule=None, label="speed of NVFP4 [BF16 = 1]", ax=None):
    """Speed against BF16 over the shapes of the weights; a dot marks what is slower, and a line
    runs around it.

    Parameters
    ----------
    n, k : array_like of int, shapes (s,) and (t,)
        Columns and inner dimension [element].
    speed : array_like of float, shape (s, t)
        BF16's time over the other [dimensionless]; NaN is hatched.
    rule : array_like of bool, shape (s, t), optional
        Where a rule expects the other to be faster; its border is dashed.
    label : str
        Of the colour bar.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: K [element], y: N [element], one square a shape.

    Examples
    --------
    >>> speedup_map([128, 256], [128, 256], [[0.5, 1.0], [1.5, 2.0]]).get_xlabel()
    'K [element]'
    """
    ax = ax or style.axes(height=4.7)
    speed = np.ma.masked_invalid(np.asarray(speed, float))
    colors = ListedColormap([*_SLOWER, *_FASTER])
    places, norm = (np.arange(len(x) + 1) for x in (k, n)), BoundaryNorm(EDGES, colors.N)
    ax.set_facecolor(style.GRID)
    mesh = ax.pcolormesh(*places, speed, cmap=colors, norm=norm, rasterized=True)
    slow = speed.filled(9) < 1
    ax.plot(*(np.argwhere(slow)[:, ::-1] + 0.5).T, ".", color=style.INK, ms=2.5, rasterized=True)
    ax.plot(*_border(slow).T, color=style.INK, lw=2)
    if rule is not None:
        ax.plot(*_border(np.asarray(rule)).T, color=style.GREEN, lw=2.4, ls=(0, (2, 1.2)))
    for i, j in np.argwhere(speed.mask & np.ones_like(slow)):
        ax.add_patch(Rectangle((j, i), 1, 1, hatch="////", fill=False, ec=style.GREY, lw=0))
    wanted = (128, 512, 1024, 2048, 4096, 8192, 16384, 65536)
    for axis, values in ((ax.xaxis, list(k)), (ax.yaxis, list(n))):
        places = [(values.index(v) + 0.5, f"{v}") for v in wanted if v in values]
        axis.set_ticks([p for p, _ in places], [text for _, text in places])
    ax.tick_params(axis="x", rotation=45)
    ax.grid(visible=False)
    ax.set_xlabel("K [element]")
    ax.set_ylabel("N [element]")
    bar = ax.figure.colorbar(mesh, ax=ax, shrink=0.9, ticks=EDGES[1:-1])
    bar.set_label(label)
    bar.ax.set_yticklabels([f"{e:g}" for e in EDGES[1:-1]])
    return ax


def _border(inside):
    """Line around a region of squares: places of its pieces, kept apart by NaN; shape (3 p, 2)."""
    wide = np.pad(inside, 1, mode="edge")
    across, down = (
        np.argwhere(np.diff(wide[:, 1:-1], axis=0)),
        np.argwhere(np.diff(wide[1:-1], axis=1)),
    )
    pieces = [((j, i), (j + 1, i), (np.nan, np.nan)) for i, j in across] + [
        ((j, i), (j, i + 1), (np.nan, np.nan)) for i, j in down
    ]
    return np.array(pieces, float).reshape(-1, 2)


@style.styled
def waterfall(before, after, *, names=("BF16", "NVFP4"), ax=None):
    """From the time of a step in one format to that in another, term by term.

    Parameters
    ----------
    before, after : mapping of str to float
        Term to time [s]; the same keys.
    names : (str, str)
        The two formats.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: terms, y: time [ms].

    Examples
    --------
    >>> waterfall({"ffn": 2e-3}, {"ffn": 1e-3}).get_ylabel()
    'time of a step [ms]'
    """
    ax = ax or style.axes(height=4.0)
    terms = [t for t in before if before[t] or after[t]]
    level, total = 1e3 * sum(before.values()), 1e3 * sum(after.values())
    ax.bar(0, level, 0.62, color=style.GREY)
    ax.annotate(f"{level:.1f}", (0, level), ha="center", va="bottom")
    for place, term in enumerate(terms, 1):
        step = 1e3 * (after[term] - before[term])
        ax.plot([place - 0.69, place + 0.31], [level, level], color=style.GREY, lw=1)
        ax.bar(place, step, 0.62, bottom=level, color=style.GREEN if step < 0 else style.ORANGE)
        ax.annotate(
            f"{step:+.1f}" if abs(step) > 0.05 else "0",
            (place, max(level, level + step)),
            ha="center",
            va="bottom",
        )
        level += step
    last = len(terms) + 1
    ax.plot([last - 0.69, last + 0.31], [level, level], color=style.GREY, lw=1)
    ax.bar(last, total, 0.62, color=style.BLUE)
    ax.annotate(f"{total:.1f}", (last, total), ha="center", va="bottom")
    labels = [names[0], *(term.replace(" ", "\n") for term in terms), names[1]]
    ax.set_xticks(range(last + 1), labels, fontsize=8.5)
    ax.grid(axis="x", visible=False)
    ax.set_ylabel("time of a step [ms]")
    return ax


@style.styled
def peak_and_best(rows, *, ax=None):
    """Figure 6: dense peak by device and format, and the best published GEMM.

    Parameters
    ----------
    rows : sequence of (str, float, mapping of str to float)
        Label, peak [FLOP/s], engine to best rate [FLOP/s], from top to bottom.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: rate [PFLOP/s], y: device and format.

    Notes
    -----
    Source: the device catalogue; `hwdesign.timing.silicon`.

    Examples
    --------
    >>> peak_and_best([("GB300 NVFP4", 15e15, {"sglang": 6e15})]).get_xlabel()
    'rate [PFLOP/s]'
    """
    ax = ax or style.axes(height=1.2 + 0.42 * len(rows))
    told = set()
    for row, (_, peak, best) in enumerate(rows):
        ax.barh(
            row,
            peak / 1e15,
            0.62,
            color=style.GRID,
            edgecolor=style.GREY,
            label=None if row else "dense peak",
        )
        for engine, rate in best.items():
            color, name = style.FRAMEWORK[engine]
            ax.plot(
                rate / 1e15,
                row,
                "x",
                color=color,
                mew=2.2,
                ms=8,
                label=None if engine in told else name,
            )
            told.add(engine)
        ax.annotate(
            f"{max(best.values()) / peak:.0%}",
            (peak / 1e15, row),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
        )
    ax.set_yticks(range(len(rows)), [label for label, *_ in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(0, 1.12 * max(peak for _, peak, _ in rows) / 1e15)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("rate [PFLOP/s]")
    ax.legend(fontsize=9, loc="lower right")
    return ax
