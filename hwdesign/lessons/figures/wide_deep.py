"""Figures of chapter 3, wide over deep."""

import itertools

import numpy as np

from hwdesign.lessons import style

TERMS = {
    "projections": style.BLUE,
    "ffn": "#6ba3d6",
    "experts": "#9fc4e6",
    "attention": style.GREEN,
    "head": style.GREY,
    "communication": style.PURPLE,
    "small kernels": style.ORANGE,
}  # of a breakdown, to colours
LOOKS = (
    (style.ORANGE, "o"),
    (style.BLUE, "s"),
    (style.GREEN, "^"),
    (style.PURPLE, "D"),
    (style.INK, "v"),
)


@style.styled
def stacked_terms(labels, breakdowns, *, ideal=None, top=None, ax=None):
    """Time of a step by what it is spent on, one bar a model.

    Parameters
    ----------
    labels : sequence of str
        Models.
    breakdowns : sequence of Breakdown
        Their steps [s].
    ideal : sequence of float, optional
        Plain bounds [s], drawn as dashes.
    top : float, optional
        Upper end of the axis [s].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: models, y: time [ms].

    Notes
    -----
    Source: `hwdesign.timing.estimate`.

    Examples
    --------
    >>> from hwdesign.timing.estimate import Breakdown
    >>> stacked_terms(
    ...     ["a"], [Breakdown(terms={"ffn": 1e-3}, memory=1.0, capacity=2.0)]
    ... ).get_ylabel()
    'time of a step [ms]'
    """
    ax = ax or style.axes(height=3.9)
    at, foot = np.arange(len(labels)), np.zeros(len(labels))
    for term, color in TERMS.items():
        height = np.array([1e3 * float(b.terms.get(term, 0.0)) for b in breakdowns])
        if height.any():
            ax.bar(at, height, 0.62, bottom=foot, color=color, label=term)
            foot = foot + height
    if ideal is not None:
        ax.plot(
            at, 1e3 * np.asarray(ideal), "_", color=style.INK, ms=30, mew=2, label="plain bound"
        )
    ax.set_xticks(at, labels)
    ax.grid(axis="x", visible=False)
    if top:
        ax.set_ylim(0, 1e3 * top)
    ax.set_ylabel("time of a step [ms]")
    ax.legend(fontsize=9)
    return ax


@style.styled
def depth_ratio(m, published, modelled, *, ax=None):
    """How much longer the deep sibling takes than the wide one, against the tokens.

    Parameters
    ----------
    m : array_like of int, shape (s,)
        Tokens [element].
    published, modelled : mapping of str to array_like, shape (s,)
        Slice to time of the deep model over time of the wide one [dimensionless]; the same keys.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: tokens [element] (log), y: ratio.

    Examples
    --------
    >>> depth_ratio([1, 8192], {"a": [2.0, 1.0]}, {"a": [2.1, 1.1]}).get_ylabel()
    'time, deep / wide [dimensionless]'
    """
    ax = ax or style.axes(height=4.1)
    for (name, ratio), (color, _) in zip(published.items(), itertools.cycle(LOOKS)):
        ax.semilogx(m, ratio, "x", color=color, mew=1.8, label=name)
        ax.semilogx(m, modelled[name], color=color, lw=1.1)
    ax.axhline(1, color=style.INK, lw=1, ls="--")
    style.plain_ticks(ax.xaxis, [1, 4, 16, 64, 256, 1024, 4096])
    ax.set_ylim(bottom=0)
    ax.set_xlabel("tokens M [element]")
    ax.set_ylabel("time, deep / wide [dimensionless]")
    ax.legend(fontsize=9)
    return ax


@style.styled
def time_by_hidden(h, published, bounds, *, ax=None):
    """Time of one square layer against its width: where a faster device begins to show.

    Parameters
    ----------
    h : array_like of int, shape (s,)
        Width, N = K [element].
    published, bounds : mapping of str to array_like, shape (s,)
        Device to published times and to bounds [s]; the same keys.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: width [element] (log), y: time [µs] (log).

    Examples
    --------
    >>> time_by_hidden([1024, 2048], {"a": [1e-6, 2e-6]}, {"a": [1e-7, 4e-7]}).get_xlabel()
    'width N = K [element]'
    """
    ax = ax or style.axes(height=3.8)
    for (name, seconds), (color, _) in zip(published.items(), itertools.cycle(LOOKS)):
        ax.loglog(h, 1e6 * np.asarray(seconds), "x", color=color, mew=1.8, label=name)
        ax.loglog(h, 1e6 * np.asarray(bounds[name]), color=color, lw=1.1, label=f"{name}, bound")
    style.plain_ticks(ax.xaxis, h)
    style.plain_ticks(ax.yaxis, [0.1, 1, 10, 100])
    ax.set_xlabel("width N = K [element]")
    ax.set_ylabel("time [µs]")
    ax.legend(fontsize=9)
    return ax


@style.styled
def implied_bandwidth(labels, rates, *, limit, ax=None):
    """Bandwidth at which weights must have come, by shape and version, against what the memory can.

    Parameters
    ----------
    labels : sequence of str
        Shapes.
    rates : mapping of str to array_like, shape (len(labels),)
        Version to bytes of the weights over time [byte/s].
    limit : float
        Bandwidth of the memory [byte/s].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: bandwidth [TB/s], y: shapes.

    Examples
    --------
    >>> implied_bandwidth(
    ...     ["2048 x 2048"], {"old": [4e12], "new": [2e12]}, limit=3.35e12
    ... ).get_xlabel()
    'bytes of the weights / time [TB/s]'
    """
    ax = ax or style.axes(height=1.4 + 0.34 * len(labels))
    rows = np.arange(len(labels))
    for (name, rate), (color, marker) in zip(rates.items(), itertools.cycle(LOOKS)):
        ax.plot(
            np.asarray(rate) / 1e12,
            rows,
            marker,
            color=color,
            label=name,
            mfc="none",
            ms=8,
            mew=1.6,
        )
    ax.axvline(limit / 1e12, color=style.INK, ls="--", lw=1.3)
    ax.annotate(
        "memory",
        (limit / 1e12, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(4, -2),
        textcoords="offset points",
        fontsize=9,
        va="bottom",
    )
    ax.set_yticks(rows, labels)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.set_xlim(left=0)
    ax.set_xlabel("bytes of the weights / time [TB/s]")
    ax.legend(fontsize=9, loc="lower left")
    return ax


@style.styled
def aspect_map(models, *, aspects=(32, 128), budgets=(1e9, 1e10, 1e11), ax=None):
    """Layers against hidden size of some models, with lines of equal parameters and of equal aspect
    H / L.

    Parameters
    ----------
    models : mapping of str to (int, int, str)
        Name to hidden size [element], layers and kind ("dense", "experts", "hybrid").
    aspects : (float, float)
        Band of H / L to shade [dimensionless].
    budgets : sequence of float
        Weights 12 L H^2 of the dotted lines [element].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: hidden size [element] (log), y: layers (log).

    Notes
    -----
    Source: the configs that ship with the package.

    Examples
    --------
    >>> aspect_map({"a": (4096, 32, "dense")}).get_xlabel()
    'hidden size H [element]'
    """
    ax = ax or style.axes(height=4.8)
    h = np.geomspace(600, 14000, 50)
    band = f"H/L from {aspects[0]:.0f} to {aspects[1]:.0f}"
    ax.fill_between(
        h, h / aspects[1], h / aspects[0], color=style.GRID, alpha=0.8, lw=0, label=band
    )
    for budget in budgets:
        ax.plot(h, budget / (12 * h**2), ":", color=style.GREY, lw=1)
        at = next(
            layers for layers in (13, 60, 115, 1e9) if budget / (12 * layers) < 12000**2
        )  # where the line is in sight
        place = {"ha": "center", "fontsize": 8.5, "color": style.GREY, "bbox": style.PLATE}
        ax.annotate(f"{budget / 1e9:g} B", (np.sqrt(budget / 12 / at), at), **place)
    for kind, (color, marker) in zip(("dense", "experts", "hybrid"), LOOKS, strict=False):
        at = [(width, layers) for width, layers, what in models.values() if what == kind]
        if at:
            ax.plot(*zip(*at, strict=True), marker, color=color, label=kind, alpha=0.85)
    ax.set_xscale("log")
    ax.set_yscale("log")
    style.plain_ticks(ax.xaxis, (1024, 2048, 4096, 8192))
    style.plain_ticks(ax.yaxis, (12, 16, 24, 32, 48, 64, 96, 128))
    ax.set_xlim(650, 13500)
    ax.set_ylim(11, 140)
    ax.set_xlabel("hidden size H [element]")
    ax.set_ylabel("layers L")
    ax.legend(fontsize=9, loc="upper left")
    return ax


@style.styled
def own_siblings(found, *, ax=None):
    """Time of siblings of equal parameters on one machine, relative to the widest, by number of
    tokens.

    Parameters
    ----------
    found : mapping of int to mapping of (int, int) to float
        Tokens to (hidden size, layers) to time [s], from `live.siblings_of`.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: hidden size and layers, y: time [widest = 1].

    Examples
    --------
    >>> own_siblings({1: {(256, 16): 2.0, (512, 4): 1.0}}).get_ylabel()
    'time [widest = 1]'
    """
    ax = ax or style.axes(height=3.6)
    names = [f"{h} wide,\n{layers} layers" for h, layers in next(iter(found.values()))]
    for (m, times), (color, _) in zip(found.items(), itertools.cycle(LOOKS)):
        seconds = np.array(list(times.values()))
        ax.plot(
            range(len(names)),
            seconds / seconds[-1],
            "x-",
            color=color,
            lw=0.8,
            mew=1.8,
            label=f"{m} token{'s' if m > 1 else ''}",
        )
    ax.axhline(1, color=style.INK, lw=1, ls="--")
    ax.set_xticks(range(len(names)), names)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("time [widest = 1]")
    ax.set_xlabel("sibling")
    ax.legend(fontsize=9)
    return ax
