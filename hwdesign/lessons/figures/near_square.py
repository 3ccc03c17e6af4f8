"""Figures of chapter 1, near-square matrices."""

import itertools

import numpy as np

from hwdesign.lessons import style
from hwdesign.models.steps import step

TICKS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)


@style.styled
def byte_budget(shapes, recipe_bytes, ridge, *, ax=None):
    """Bytes per FLOP that each operand costs, stacked, against what the ridge allows.

    Parameters
    ----------
    shapes : mapping of str to (float, float, float)
        Label to (m, n, k) [element].
    recipe_bytes : mapping of str to float
        Element sizes a, b, c [byte].
    ridge : float
        Ridge [FLOP/byte].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: traffic per work [byte/kFLOP], y: shapes.

    Notes
    -----
    Source: the identity 1/intensity = (a/n + b/m + c/k)/2.

    Examples
    --------
    >>> byte_budget(
    ...     {"x": (256, 8192, 512)}, {"a": 0.5625, "b": 0.5625, "c": 1.0}, 1875
    ... ).get_xlabel()
    'traffic per work [byte/kFLOP]'
    """
    ax = ax or style.axes(height=0.75 + 0.5 * len(shapes) + 0.6)
    labels, (m, n, k) = list(shapes), np.array(list(shapes.values()), dtype=float).T
    parts = {
        "read inputs A: a/2N": (recipe_bytes["a"] / n, style.BLUE),
        "read weights B: b/2M": (recipe_bytes["b"] / m, style.GREEN),
        "write outputs C: c/2K": (recipe_bytes["c"] / k, style.ORANGE),
    }
    left, rows = np.zeros(len(labels)), np.arange(len(labels))[::-1]
    for name, (cost, color) in parts.items():
        ax.barh(rows, 500 * cost, left=left, height=0.55, color=color, label=name)
        left = left + 500 * cost
    ax.axvline(1e3 / ridge, color=style.INK, ls="--", lw=1.4)
    ax.annotate(
        "budget at the ridge",
        (1e3 / ridge, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(4, -2),
        textcoords="offset points",
        fontsize=9,
        va="bottom",
    )
    ax.set_yticks(rows, labels)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("traffic per work [byte/kFLOP]")
    ax.legend(loc="lower right")
    return ax


@style.styled
def dimension_sweep(
    x, measured, *, modelled=None, calibrated=None, sustained=None, marks=None, xlabel, ax=None
):
    """Throughput against one swept dimension: crosses measured, lines modelled.

    Parameters
    ----------
    x : array_like of float, shape (s,)
        Swept dimension [element].
    measured : mapping of str to array_like, shape (s,)
        Framework to rate [FLOP/s].
    modelled : mapping of str to array_like, shape (s,), optional
        Label to rate [FLOP/s].
    calibrated : mapping of str to array_like, shape (s,), optional
        Framework to the calibrated model's rate [FLOP/s], a line in the framework's colour.
    sustained : mapping of str to (float, float), optional
        Framework to (saturation point [element], 80 % of the sustained rate [FLOP/s]), drawn as a
        ring.
    marks : mapping of str to float, optional
        Label to a dimension [element] drawn as a dotted line.
    xlabel : str
        What is swept.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: dimension [element] (log), y: rate [PFLOP/s].

    Examples
    --------
    >>> dimension_sweep([128, 256], {"sglang": [1e15, 2e15]}, xlabel="K").get_ylabel()
    'throughput [PFLOP/s]'
    """
    ax = ax or style.axes(height=3.9)
    for i, (label, rate) in enumerate((modelled or {}).items()):
        ax.plot(
            x,
            np.asarray(rate) / 1e15,
            color=(style.INK, style.GREY, style.PURPLE)[i % 3],
            ls=("-", "--", "-.")[i % 3],
            lw=1.4,
            label=label,
        )
    for name, rate in (calibrated or {}).items():
        ax.plot(x, np.asarray(rate) / 1e15, color=style.FRAMEWORK[name][0], lw=1.1, alpha=0.8)
    for name, rate in measured.items():
        color, label = style.FRAMEWORK[name]
        ax.plot(x, np.asarray(rate) / 1e15, "x", color=color, mew=1.6, label=label)
    for name, (at, rate) in (sustained or {}).items():
        ax.plot(at, rate / 1e15, "o", mfc="none", ms=10, color=style.FRAMEWORK[name][0])
    for label, at in (marks or {}).items():
        ax.axvline(at, color=style.GREY, ls=":", lw=1.2)
        ax.annotate(
            label,
            (at, 0.72),
            xycoords=("data", "axes fraction"),
            xytext=(-3, 0),
            textcoords="offset points",
            rotation=90,
            ha="right",
            va="bottom",
            fontsize=9,
            color=style.GREY,
        )
    ax.set_xscale("log")
    style.plain_ticks(ax.xaxis, TICKS)
    ax.set_ylim(bottom=0)
    ax.set_xlabel(f"{xlabel} [element]")
    ax.set_ylabel("throughput [PFLOP/s]")
    ax.legend(loc="center right", fontsize=9)
    return ax


@style.styled
def saturation_ladder(rungs, measured, *, xlabel, ax=None):
    """How the 80 % point moves as terms are added to the bound, one rung a term, down to the
    measured value.

    Parameters
    ----------
    rungs : mapping of str to float
        Term to the 80 % point with all terms so far [element].
    measured : float
        80 % point of the data [element].
    xlabel : str
        What is swept.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: 80 % point [element] (log), y: terms.

    Examples
    --------
    >>> saturation_ladder({"bound": 821.0, "BF16 out": 1643.0}, 3477.0, xlabel="K").get_xlabel()
    'K at 80 % of the sustained rate [element]'
    """
    ax = ax or style.axes(height=0.9 + 0.4 * (len(rungs) + 1))
    names, values = [*rungs, "published times"], np.array([*rungs.values(), measured])
    rows = np.arange(len(names))[::-1]
    ax.step(values[:-1], rows[:-1], where="post", color=style.GREY, lw=1)
    ax.plot(values[:-1], rows[:-1], "o", color=style.BLUE)
    ax.plot(values[-1], rows[-1], "x", color=style.ORANGE, mew=2.2, ms=8)
    ax.axvline(measured, color=style.ORANGE, ls=":", lw=1)
    for value, row in zip(values, rows, strict=True):
        ax.annotate(
            f"{value:.0f}",
            (value, row),
            xytext=(9, 5),
            textcoords="offset points",
            fontsize=9.5,
            bbox=style.PLATE,
        )
    ax.set_yticks(rows, names)
    ax.set_xscale("log")
    style.plain_ticks(ax.xaxis, (128, 256, 512, 1024, 2048, 4096))
    ax.set_xlim(values.min() / 1.3, values.max() * 1.6)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"{xlabel} at 80 % of the sustained rate [element]")
    return ax


@style.styled
def time_by_aspect(aspect, series, *, bound=None, ax=None):
    """Time of GEMMs of one weight count against their aspect N/K, on log axes.

    Parameters
    ----------
    aspect : array_like of float, shape (s,)
        N / K [dimensionless].
    series : mapping of str to array_like, shape (s,)
        Framework to measured time [s].
    bound : array_like of float, shape (s,), optional
        Roofline bound [s].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: N/K (log), y: time [µs] (log).

    Examples
    --------
    >>> time_by_aspect([0.25, 4], {"sglang": [2e-5, 1e-5]}).get_ylabel()
    'time [µs]'
    """
    ax = ax or style.axes(height=3.6)
    if bound is not None:
        ax.loglog(aspect, np.asarray(bound) * 1e6, color=style.INK, lw=1.4, label="roofline bound")
    for name, seconds in series.items():
        color, label = style.FRAMEWORK[name]
        ax.loglog(aspect, np.asarray(seconds) * 1e6, "x:", color=color, mew=2, lw=0.8, label=label)
    style.plain_ticks(ax.xaxis, aspect, [f"{a:g}" if a >= 1 else f"1/{1 / a:g}" for a in aspect])
    ax.set_xlabel("aspect N/K of the weight matrix [dimensionless]")
    ax.set_ylabel("time [µs]")
    ax.legend(fontsize=9)
    return ax


@style.styled
def pair_cost(ratio, curves, *, measured=None, ax=None):
    """Cost of an FFN pair relative to its best shape, against H/H' at a fixed number of weights.

    Parameters
    ----------
    ratio : array_like of float, shape (s,)
        H / H' [dimensionless].
    curves : mapping of str to array_like, shape (s,)
        Label to modelled relative cost [dimensionless].
    measured : mapping of str to (array_like, array_like), optional
        Label to (ratio, relative time) [dimensionless].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: H/H' (log), y: relative cost.

    Examples
    --------
    >>> pair_cost([1, 4], {"plain": [1.0, 1.25]}).get_ylabel()
    'relative cost [best shape = 1]'
    """
    ax = ax or style.axes(height=3.6)
    for (label, cost), color in zip(
        curves.items(), itertools.cycle((style.INK, style.PURPLE)), strict=False
    ):
        ax.semilogx(ratio, cost, color=color, label=label)
        best = int(np.argmin(cost))
        ax.plot(ratio[best], cost[best], "o", color=color)
    for (label, (at, cost)), color in zip(
        (measured or {}).items(),
        itertools.cycle((style.ORANGE, style.BLUE, style.GREEN)),
        strict=False,
    ):
        ax.semilogx(at, cost, "x", color=color, mew=2, ms=7, label=label)
    style.plain_ticks(
        ax.xaxis,
        [2.0**i for i in range(-4, 5)],
        ["1/16", "1/8", "1/4", "1/2", "1", "2", "4", "8", "16"],
    )
    ax.set_xlabel("H/H' [dimensionless]")
    ax.set_ylabel("relative cost [best shape = 1]")
    ax.legend(fontsize=9)
    return ax


@style.styled
def layer_shapes(models, *, least=None, eighty=None, ax=None):
    """Output and reduction dimension of every linear layer of some models, against the sizes that
    are large enough.

    Parameters
    ----------
    models : sequence of Model
        Models to draw, each in a colour of its own.
    least : (float, float), optional
        Least (K, N) by the roofline [element], drawn as a dashed corner.
    eighty : (float, float), optional
        (K, N) [element] where published times reach 80 %, drawn as a dotted corner.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: K [element] (log), y: N [element] (log).

    Notes
    -----
    Source: `hwdesign.models.steps.step`.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> layer_shapes([config.load("qwen3-0.6b")]).get_xlabel()
    'reduction dimension K [element]'
    """
    ax = ax or style.axes(height=4.8)
    for model, color, marker in zip(
        models, itertools.cycle((style.BLUE, style.ORANGE, style.GREEN)), itertools.cycle("os^")
    ):
        shapes = sorted({(g.k, g.n) for g in step(model, batch=1, context=1).gemms})
        ax.plot(*zip(*shapes, strict=True), marker, color=color, label=model.name, alpha=0.85)
    for corner, ls, label in (
        (least, "--", "least, roofline"),
        (eighty, ":", "80 % of published times"),
    ):
        if corner:
            ax.plot(
                [corner[0], corner[0], 3e5],
                [3e5, corner[1], corner[1]],
                ls=ls,
                color=style.GREY,
                lw=1.3,
                label=label,
            )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ticks = (64, 256, 1024, 4096, 16384, 65536)
    style.plain_ticks(ax.xaxis, ticks)
    style.plain_ticks(ax.yaxis, (*ticks, 262144))
    ax.set_xlim(200, 90000)
    ax.set_ylim(90, 300000)
    ax.set_xlabel("reduction dimension K [element]")
    ax.set_ylabel("output dimension N [element]")
    ax.legend(fontsize=9, loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2)
    return ax


@style.styled
def own_sweeps(sweeps, bounds, marks, *, ax=None):
    """Throughput of one machine against K and against N: crosses measured, lines the bound of the
    machine's own roofs.

    Parameters
    ----------
    sweeps : dict of str to (array_like, array_like)
        "K" and "N" to sizes [element] and measured rates [FLOP/s].
    bounds : dict of str to array_like
        The same keys to the bound at those sizes [FLOP/s].
    marks : dict of str to float
        The same keys to the size that reaches 80 % of the sustained rate [element], drawn as a
        dotted line.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: dimension [element] (log), y: rate [GFLOP/s], or [TFLOP/s] from 10 TFLOP/s on.

    Examples
    --------
    >>> own_sweeps({"K": ([64, 128], [1e11, 2e11])}, {"K": [2e11, 3e11]}, {"K": 100.0}).get_ylabel()
    'throughput [GFLOP/s]'
    """
    ax = ax or style.axes(height=3.6)
    top = max(np.nanmax(rate) for _, rate in sweeps.values())
    scale, unit = (1e12, "TFLOP/s") if top >= 1e13 else (1e9, "GFLOP/s")
    for (name, (size, rate)), color in zip(
        sweeps.items(), itertools.cycle((style.BLUE, style.ORANGE))
    ):
        ax.plot(
            size,
            np.asarray(bounds[name]) / scale,
            color=color,
            lw=1.3,
            label=f"{name} swept, bound",
        )
        ax.plot(
            size,
            np.asarray(rate) / scale,
            "x",
            color=color,
            mew=1.8,
            label=f"{name} swept, measured",
        )
        ax.axvline(marks[name], color=color, ls=":", lw=1.1)
    sizes = sorted({int(x) for size, _ in sweeps.values() for x in size})
    ax.set_xscale("log")
    style.plain_ticks(ax.xaxis, sizes[:: max(1, len(sizes) // 7)])
    ax.set_ylim(bottom=0)
    ax.set_xlabel("swept dimension [element]")
    ax.set_ylabel(f"throughput [{unit}]")
    ax.legend(fontsize=9)
    return ax
