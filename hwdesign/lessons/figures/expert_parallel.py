"""Figures of chapter 5, wide expert parallelism: rows of an expert, memory, loads, what a wider
group gains.
"""

import itertools

import numpy as np

from hwdesign.lessons import style
from hwdesign.lessons.figures.charts import lines
from hwdesign.lessons.figures.wide_deep import LOOKS


@style.styled
def expert_rows(gpus, rows, least=None, *, ax=None):
    """Rows of an expert's matrices (GEMM-M) against the GPUs, one line a model.

    Parameters
    ----------
    gpus : array_like of float, shape (s,)
        GPUs of a group.
    rows : mapping of str to array_like, shape (s,)
        Model to rows [element].
    least : float, optional
        Rows at which the products become compute-bound [element], a dashed line.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: GPUs (log), y: rows of an expert [element] (log).

    Notes
    -----
    Source: the post, guideline 5.

    Examples
    --------
    >>> expert_rows([1, 2], {"a": [8, 16]}, 527).get_ylabel()
    'rows of an expert [element]'
    """
    ax = lines(ax or style.axes(height=3.9), gpus, rows)
    ax.set_xscale("log")
    ax.set_yscale("log")
    if least:
        ax.axhline(least, color=style.INK, ls="--", lw=1.2)
        ax.annotate(
            f"weights no longer the limit: {least:.0f}",
            (gpus[0], least),
            xytext=(2, 4),
            textcoords="offset points",
            fontsize=9,
        )
    style.plain_ticks(ax.xaxis, gpus)
    style.plain_ticks(ax.yaxis, [1, 4, 16, 64, 256, 1024, 4096, 16384])
    ax.set_xlabel("GPUs")
    ax.set_ylabel("rows of an expert [element]")
    ax.legend(fontsize=9)
    return ax


@style.styled
def touched_share(tokens, curves, points=None, *, ax=None):
    """Share of the experts that a batch uses, against its tokens.

    Parameters
    ----------
    tokens : array_like of float, shape (s,)
        Tokens routed together [token].
    curves : mapping of str to array_like, shape (s,)
        Model to the share by the formula [dimensionless].
    points : mapping of str to (array_like, array_like), optional
        Model to tokens and shares that were simulated, drawn as crosses.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: tokens (log), y: share of the experts.

    Notes
    -----
    Source: `hwdesign.formulas.experts.distinct_experts`.

    Examples
    --------
    >>> touched_share([1, 2], {"a": [0.1, 0.2]}).get_ylabel()
    'experts in use [share]'
    """
    ax = lines(ax or style.axes(height=3.8), tokens, curves, points=points, markers=False)
    ax.set_xscale("log")
    style.plain_ticks(ax.xaxis, (1, 2, 4, 8, 16, 32, 64, 128, 256))
    ax.set_ylim(0, 1.03)
    ax.set_xlabel("tokens of the group [token]")
    ax.set_ylabel("experts in use [share]")
    ax.legend(fontsize=9)
    return ax


@style.styled
def memory_loop(widths, loops, least, *, ax=None):
    """The memory loop in three pictures, one below the other: weights of a GPU, sequences it can
    hold, rows of an expert.

    Parameters
    ----------
    widths : sequence of int, shape (s,)
        GPUs over which the experts are spread.
    loops : mapping of str to (array_like, array_like, array_like), shapes (s,)
        Device to weights over the memory that may be used [dimensionless], sequences of a GPU
        and rows of an expert [element]; the last two are NaN where the weights do not fit.
    least : mapping of str to float
        Device, of at most two, to the rows at which experts become compute-bound [element].
    ax : matplotlib.axes.Axes, optional
        Axes whose figure is taken.

    Returns
    -------
    matplotlib.axes.Axes
        The last one; x: GPUs (log), y: rows of an expert [element] (log).

    Notes
    -----
    Source: `hwdesign.timing.estimate`, its memory.

    Examples
    --------
    >>> memory_loop([8, 16], {"a": ([0.5, 0.3], [10, 20], [2, 8])}, {"a": 100}).get_ylabel()
    'rows of\\nan expert'
    """
    first = ax or style.axes(height=6.2)
    figure = first.figure
    first.remove()
    panels = figure.subplots(3, 1, sharex=True)
    for panel, part, label in zip(
        panels,
        range(3),
        ("weights /\nmemory", "sequences\nof a GPU", "rows of\nan expert"),
        strict=True,
    ):
        lines(panel, widths, {name: loop[part] for name, loop in loops.items()})
        panel.set_xscale("log")
        panel.set_ylabel(label)
    panels[0].axhline(1, color=style.INK, ls="--", lw=1.2)
    panels[0].set_ylim(bottom=0)
    panels[1].set_ylim(bottom=0)
    panels[0].legend(fontsize=9)
    panels[2].set_yscale("log")
    sides = ((widths[-1], "right"), (widths[0], "left"))
    for (name, value), (color, _), (x, side) in zip(least.items(), LOOKS, sides, strict=False):
        panels[2].axhline(value, color=color, ls=":", lw=1.2)
        place = {
            "xytext": (0, 3),
            "textcoords": "offset points",
            "fontsize": 8.5,
            "color": color,
            "ha": side,
        }
        panels[2].annotate(f"{value:.0f} ({name.split(',')[0]})", (x, value), **place)
    style.plain_ticks(panels[2].xaxis, widths)
    style.plain_ticks(panels[2].yaxis, (16, 64, 256, 1024, 4096))
    panels[2].set_xlabel("GPUs that share the experts")
    return panels[2]


@style.styled
def rates_by_width(widths, rates, *, ax=None):
    """Tokens per second and GPU against the width of expert parallelism, one line a limit on the
    time of a step.

    Parameters
    ----------
    widths : sequence of int, shape (s,)
        GPUs that share the experts.
    rates : mapping of str to array_like, shape (s,)
        Limit to the best rate within it [token/s]; NaN where no batch meets it.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: GPUs (log), y: tokens per second and GPU.

    Notes
    -----
    Source: `hwdesign.timing.estimate`.

    Examples
    --------
    >>> rates_by_width([8, 16], {"20 ms": [1000, 2000]}).get_ylabel()
    'tokens/s of a GPU'
    """
    ax = lines(ax or style.axes(height=3.9), widths, rates)
    ax.set_xscale("log")
    style.plain_ticks(ax.xaxis, widths)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("GPUs that share the experts")
    ax.set_ylabel("tokens/s of a GPU")
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": len(rates)}
    ax.legend(fontsize=9, title="limit on the time between tokens", title_fontsize=9, **above)
    return ax


@style.styled
def layout_times(batch, times, *, ax=None):
    """Time of a decode step against the sequences in flight, one line a layout.

    Parameters
    ----------
    batch : array_like of int, shape (s,)
        Sequences of all GPUs.
    times : mapping of str to array_like, shape (s,)
        Layout to time [s]; NaN where it does not fit.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: sequences (log), y: time of a step [ms] (log).

    Notes
    -----
    Source: `hwdesign.timing.estimate`.

    Examples
    --------
    >>> layout_times([1, 2], {"TP": [1e-3, 2e-3]}).get_ylabel()
    'time of a step [ms]'
    """
    ax = lines(
        ax or style.axes(height=3.9),
        batch,
        {name: 1e3 * np.asarray(t) for name, t in times.items()},
    )
    ax.set_xscale("log")
    ax.set_yscale("log")
    style.plain_ticks(ax.xaxis, batch[::2])
    style.plain_ticks(ax.yaxis, (5, 10, 20, 40, 80))
    ax.set_xlabel("sequences of all GPUs")
    ax.set_ylabel("time of a step [ms]")
    ax.legend(fontsize=9)
    return ax


@style.styled
def uneven_loads(tokens, bands, *, published=None, top=None, ax=None):
    """Fullest GPU over the mean against the tokens routed together: mean of many draws, and the
    middle nine tenths of them.

    Parameters
    ----------
    tokens : array_like of int, shape (s,)
        Tokens of the group [token].
    bands : mapping of str to array_like, shape (s, draws)
        Label to max / mean of each draw [dimensionless].
    published : (float, float, str), optional
        Tokens, ratio and name of a published value, drawn as a cross.
    top : float, optional
        Upper end of the axis.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: tokens (log), y: load of the fullest GPU [mean = 1].

    Notes
    -----
    Source: `hwdesign.formulas.routing`.

    Examples
    --------
    >>> uneven_loads([1, 2], {"a": [[1, 2], [1, 3]]}).get_ylabel()
    'load of the fullest GPU [mean = 1]'
    """
    ax = lines(
        ax or style.axes(height=4.1),
        tokens,
        {name: np.mean(draws, axis=1) for name, draws in bands.items()},
    )
    for (color, _), draws in zip(itertools.cycle(LOOKS), bands.values(), strict=False):
        ax.fill_between(
            tokens, *np.quantile(draws, (0.05, 0.95), axis=1), color=color, alpha=0.15, lw=0
        )
    if published:
        ax.plot(*published[:2], "x", color=style.INK, ms=10, mew=2.4, label=published[2])
    ax.set_xscale("log")
    style.plain_ticks(ax.xaxis, tokens)
    ax.set_ylim(0.9, top)
    ax.set_xlabel("tokens of the group [token]")
    ax.set_ylabel("load of the fullest GPU [mean = 1]")
    ax.legend(fontsize=9)
    return ax
