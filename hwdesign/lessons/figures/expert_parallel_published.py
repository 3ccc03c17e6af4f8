"""Figures of chapter 5, wide expert parallelism: published and measured exchanges and layers of
experts.
"""

import itertools

import numpy as np

from hwdesign.lessons import style
from hwdesign.lessons.figures.charts import lines
from hwdesign.lessons.figures.wide_deep import LOOKS


@style.styled
def exchange_lines(tokens, curves, points=None, *, xlabel="tokens of each GPU [token]", ax=None):
    """Time of exchanges against the tokens: lines of the model and crosses of published values.

    Parameters
    ----------
    tokens : array_like of float, shape (s,)
        Tokens [token].
    curves : mapping of str to array_like, shape (s,)
        Label to modelled time [s].
    points : mapping of str to (array_like, array_like), optional
        For some of the labels tokens and published times [s].
    xlabel : str
        What is varied.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: tokens (log), y: time [µs] (log).

    Notes
    -----
    Source: `hwdesign.timing.kernels`.

    Examples
    --------
    >>> exchange_lines([1, 2], {"EP 8": [1e-5, 2e-5]}).get_ylabel()
    'time [µs]'
    """
    micro = {name: 1e6 * np.asarray(t) for name, t in curves.items()}
    marks = points and {name: (x, 1e6 * np.asarray(t)) for name, (x, t) in points.items()}
    ax = lines(ax or style.axes(height=3.9), tokens, micro, points=marks, markers=False)
    ax.set_xscale("log")
    ax.set_yscale("log")
    for axis, limits, ticks in (
        (ax.xaxis, ax.get_xlim(), [4.0**e for e in range(8)]),
        (ax.yaxis, ax.get_ylim(), [d * 10.0**e for e in range(5) for d in (1, 2, 5)]),
    ):
        style.plain_ticks(axis, [x for x in ticks if limits[0] <= x <= limits[1]])
    ax.set_xlabel(xlabel)
    ax.set_ylabel("time [µs]")
    ax.legend(fontsize=9)
    return ax


@style.styled
def layer_by_width(widths, published, modelled, *, ax=None):
    """Time of a layer of experts on one GPU against how many GPUs share them, one line a number of
    tokens.

    Parameters
    ----------
    widths : sequence of int, shape (s,)
        GPUs that share the experts.
    published, modelled : mapping of str to array_like, shape (s,)
        Label to time [s]; the same keys.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: GPUs (log), y: time [µs] (log).

    Notes
    -----
    Source: `hwdesign.timing.silicon`.

    Examples
    --------
    >>> layer_by_width([1, 2], {"a": [1e-3, 1e-4]}, {"a": [1e-3, 1e-4]}).get_xlabel()
    'GPUs that share the experts'
    """
    ax = exchange_lines(
        widths, modelled, {name: (widths, times) for name, times in published.items()}, ax=ax
    )
    style.plain_ticks(ax.xaxis, widths)
    ax.set_xlim(widths[0] / 1.15, widths[-1] * 1.15)
    ax.set_ylim(20, None)
    ax.set_xlabel("GPUs that share the experts")
    return ax


@style.styled
def skew_ratio(widths, published, modelled=None, *, ax=None):
    """Time of a layer under uneven routing over that under even routing, against the width; below 1
    uneven is faster.

    Parameters
    ----------
    widths : sequence of int, shape (s,)
        GPUs that share the experts.
    published : mapping of str to array_like, shape (s,)
        Label to ratio [dimensionless], marks joined by thin lines.
    modelled : mapping of str to array_like, optional
        The same by the model, dotted.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: GPUs (log), y: time [balanced routing = 1].

    Notes
    -----
    Source: `hwdesign.timing.silicon`.

    Examples
    --------
    >>> skew_ratio([1, 2], {"128 tokens": [0.8, 1.2]}).get_ylabel()
    'time [balanced routing = 1]'
    """
    ax = ax or style.axes(height=4.0)
    for (name, ratio), (color, marker) in zip(
        published.items(), itertools.cycle(LOOKS), strict=False
    ):
        ax.plot(widths, ratio, marker, ls="-", color=color, lw=1.2, label=name)
        if modelled and name in modelled:
            ax.plot(widths, modelled[name], ls=":", color=color, lw=1.6)
    ax.axhline(1, color=style.INK, ls="--", lw=1.2)
    ax.set_xscale("log")
    style.plain_ticks(ax.xaxis, widths)
    ax.set_xlabel("GPUs that share the experts")
    ax.set_ylabel("time [balanced routing = 1]")
    ax.legend(fontsize=9)
    return ax


@style.styled
def unit_brackets(rows, *, ax=None):
    """Published times of a decode step of whole services, each with a bracket of the model.

    Parameters
    ----------
    rows : sequence of (str, float, float, float, float)
        Label, time with exchanges hidden, time with none hidden, published time, time in two half
        batches [s].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: time of a step [ms], y: services.

    Examples
    --------
    >>> unit_brackets([("a", 0.03, 0.05, 0.04, 0.035)]).get_xlabel()
    'time of a step [ms]'
    """
    ax = ax or style.axes(height=0.8 + 0.75 * len(rows))
    for i, (_, least, most, found, halves) in enumerate(rows):
        bar = {
            "color": style.BLUE,
            "alpha": 0.35,
            "label": "model: all to none hidden" if i == 0 else None,
        }
        ax.barh(i, 1e3 * (most - least), 0.45, left=1e3 * least, **bar)
        ax.plot(
            [1e3 * halves] * 2,
            [i - 0.3, i + 0.3],
            color=style.INK,
            lw=2.2,
            label="two half batches" if i == 0 else None,
        )
        ax.plot(
            1e3 * found,
            i,
            "x",
            color=style.ORANGE,
            ms=10,
            mew=2.4,
            label="published" if i == 0 else None,
        )
    ax.set_yticks(range(len(rows)), [row[0] for row in rows])
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("time of a step [ms]")
    ax.legend(fontsize=9, loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=3)
    return ax


@style.styled
def own_exchanges(found, fits=None, *, ax=None):
    """Time of collectives between processes of one machine against their bytes.

    Parameters
    ----------
    found : mapping of str to sequence of (float, float)
        Operation to bytes that a rank sends [byte] and time [s].
    fits : mapping of str to (float, float), optional
        Operation to latency [s] and bandwidth [byte/s] of its line.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: bytes sent by a rank (log), y: time [µs] (log).

    Notes
    -----
    Source: `hwdesign.measure.collectives`.

    Examples
    --------
    >>> own_exchanges({"all_to_all": [(1024, 1e-4), (4096, 2e-4)]}).get_ylabel()
    'time [µs]'
    """
    ax = ax or style.axes(height=3.8)
    for (name, points), (color, marker) in zip(found.items(), itertools.cycle(LOOKS), strict=False):
        nbytes, seconds = np.array(points).T
        ax.plot(nbytes, 1e6 * seconds, marker, color=color, label=name.replace("_", "-"))
        if fits and name in fits:
            x = np.geomspace(nbytes.min(), nbytes.max(), 60)
            ax.plot(x, 1e6 * (fits[name][0] + x / fits[name][1]), color=color, lw=1.2)
    ax.set_xscale("log")
    ax.set_yscale("log")
    style.decade_ticks(ax.yaxis)
    ax.set_xlabel("bytes sent by a rank [byte]")
    ax.set_ylabel("time [µs]")
    ax.legend(fontsize=9)
    return ax
