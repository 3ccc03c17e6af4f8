"""Figures of chapter 6, regular layer patterns and chunked pipelines."""

import itertools

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import Patch

from hwdesign.formulas.pipeline import bubble_overhead
from hwdesign.lessons import style
from hwdesign.lessons.figures.charts import lines
from hwdesign.lessons.figures.wide_deep import LOOKS

KINDS = (
    style.BLUE,
    style.ORANGE,
    style.GREEN,
    style.PURPLE,
    "#9fc4e6",
    "#e0b48c",
    "#9cc9b5",
    "#c3b1d9",
)


def _boxes(left, right, rows, height, colors, edge):
    """Rectangles in one collection, which is drawn many times as fast as single ones."""
    x = np.stack((left, right, right, left), axis=-1)
    y = np.asarray(rows)[:, None] + height / 2 * np.array([-1, -1, 1, 1])
    return PolyCollection(
        np.stack((x, y), axis=-1), facecolors=colors, edgecolors=style.BACKGROUND, linewidths=edge
    )


@style.styled
def gantt(starts, ends, *, end=None, unit="ms", ax=None):
    """What each stage does when: one row a stage, one bar a chunk, white where a stage idles.

    Parameters
    ----------
    starts, ends : array_like of float, shape (C, P)
        When chunks enter and leave the stages [s], of `schedule`.
    end : float, optional
        Right end of the axis [s].
    unit : str
        "ms" or "s", of the axis.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: time, y: stages, the first on top; a number names the chunk.

    Notes
    -----
    Source: Figure 8 of the post.

    Examples
    --------
    >>> gantt([[0.0, 1.0]], [[1.0, 2.0]]).get_xlabel()
    'time [ms]'
    """
    ax, scale = ax or style.axes(height=3.6), {"ms": 1e3, "s": 1.0}[unit]
    starts, ends = scale * np.asarray(starts), scale * np.asarray(ends)
    chunks, stages = starts.shape
    end = ends.max() if end is None else scale * end
    shades = np.linspace(0.35, 1, chunks) if chunks > 1 else [1]
    rows = np.broadcast_to(np.arange(stages), starts.shape).ravel()
    tints = [to_rgba(style.BLUE, shade) for shade in np.repeat(shades, stages)]
    ax.add_collection(_boxes(starts.ravel(), ends.ravel(), rows, 0.86, tints, 0.6))
    for (i, s), start in np.ndenumerate(starts):
        width = ends[i, s] - start
        if width > 0.035 * end and stages <= 16:
            color = "white" if shades[i] > 0.6 else style.INK
            ax.text(
                start + width / 2,
                s,
                str(i + 1),
                ha="center",
                va="center",
                fontsize=8.5,
                color=color,
            )
    ax.axvline(ends.max(), color=style.INK, ls="--", lw=1.2)
    ax.set_xlim(0, 1.02 * end)
    ax.set_ylim(stages - 0.4, -0.6)
    step = max(1, stages // 8)
    ax.set_yticks(range(0, stages, step), [str(s + 1) for s in range(0, stages, step)])
    ax.grid(visible=False)
    ax.set_xlabel(f"time [{unit}]")
    ax.set_ylabel("stage")
    return ax


@style.styled
def bubble_map(stages, chunks, *, ax=None):
    """Time that the bubble adds, in per cent of the ideal time, for numbers of stages and of
    chunks.

    Parameters
    ----------
    stages, chunks : sequence of int
        Rows and columns.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: chunks, y: stages; colour and number: `bubble_overhead` [%].

    Notes
    -----
    Source: `hwdesign.formulas.pipeline`.

    Examples
    --------
    >>> bubble_map([2, 4], [1, 2]).get_xlabel()
    'chunks'
    """
    ax = ax or style.axes(height=4.0)
    value = 100 * bubble_overhead(np.asarray(stages)[:, None], np.asarray(chunks))
    ax.imshow(np.log10(np.maximum(value, 1)), aspect="auto", cmap="cividis", vmin=0, vmax=3.2)
    for (i, j), x in np.ndenumerate(value):
        text, color = f"{x:.0f}" if x >= 1 else f"{x:.1f}", "white" if x < 40 else style.INK
        ax.text(j, i, text, ha="center", va="center", fontsize=9, color=color)
    ax.set_xticks(range(len(chunks)), list(map(str, chunks)))
    ax.set_yticks(range(len(stages)), list(map(str, stages)))
    ax.grid(visible=False)
    ax.set_xlabel("chunks")
    ax.set_ylabel("stages")
    return ax


@style.styled
def chunk_profile(sizes, times, *, ax=None):
    """Chunks of a prompt, one curve a way to cut it: their sizes above, their times below.

    Parameters
    ----------
    sizes : mapping of str to array_like, shape (C,)
        Way to sizes [token].
    times : mapping of str to array_like, shape (C,)
        Way to times [s].
    ax : matplotlib.axes.Axes, optional
        Axes whose figure is taken.

    Returns
    -------
    matplotlib.axes.Axes
        The lower one; x: chunk, y: time [ms].

    Notes
    -----
    Source: `hwdesign.formulas.chunks.chunk_times`.

    Examples
    --------
    >>> chunk_profile({"equal": [2, 2]}, {"equal": [1e-3, 2e-3]}).get_ylabel()
    'time [ms]'
    """
    first = ax or style.axes(height=4.8)
    figure = first.figure
    first.remove()
    above, below = figure.subplots(2, 1, sharex=True)
    for panel, values, scale in ((above, sizes, 1e-3), (below, times, 1e3)):
        for (name, y), (color, mark) in zip(values.items(), itertools.cycle(LOOKS), strict=False):
            panel.plot(
                np.arange(1, len(y) + 1),
                scale * np.asarray(y),
                color=color,
                marker=mark,
                ms=4,
                lw=1.4,
                label=name,
            )
        panel.set_ylim(bottom=0)
    above.set_ylabel("size [1000 token]")
    above.legend(fontsize=9)
    below.set_ylabel("time [ms]")
    below.set_xlabel("chunk, in order")
    return below


@style.styled
def latency_and_rate(stages, seconds, rates, *, published=None, ax=None):
    """Time to the first token above, tokens per second and GPU below, against the stages: Figure 9.

    Parameters
    ----------
    stages : sequence of int, shape (s,)
        Stages of the pipeline.
    seconds : mapping of str to array_like, shape (s,)
        Way to cut the prompt, to times [s].
    rates : mapping of str to array_like, shape (s,)
        Way to rates of one GPU [token/s].
    published : (array_like, array_like), optional
        Stages and times [s] that were published, drawn as crosses.
    ax : matplotlib.axes.Axes, optional
        Axes whose figure is taken.

    Returns
    -------
    matplotlib.axes.Axes
        The lower one; x: stages (log), y: tokens per second of a GPU.

    Notes
    -----
    Source: Figure 9 of the post.

    Examples
    --------
    >>> latency_and_rate([1, 2], {"a": [2, 1]}, {"a": [10, 9]}).get_ylabel()
    'tokens/s of a GPU'
    """
    first = ax or style.axes(height=5.6)
    figure = first.figure
    first.remove()
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    lines(above, stages, seconds)
    lines(below, stages, rates)
    if published:
        above.plot(
            *published, "x", color=style.INK, ms=9, mew=2.2, label="published, simulated there"
        )
    above.set_yscale("log")
    style.plain_ticks(above.yaxis, (2, 4, 8, 16, 32, 64, 128))
    below.set_ylim(bottom=0)
    below.set_xscale("log")
    style.plain_ticks(below.xaxis, stages)
    above.set_ylabel("time to first token [s]")
    below.set_ylabel("tokens/s of a GPU")
    below.set_xlabel("stages")
    above.legend(fontsize=9)
    return below


@style.styled
def layer_strips(strips, *, ax=None):
    """Layers of models as strips whose widths are their times, with the ends of the stages: even
    ones lie on the dotted lines.

    Parameters
    ----------
    strips : mapping of str to (array_like, sequence of str, sequence of int)
        Label to times of the layers [s], their kinds, and the layers of each stage.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: share of the model's time, y: labels.

    Notes
    -----
    Source: `hwdesign.timing.pipeline.block_times`.

    Examples
    --------
    >>> layer_strips({"a": ([1.0, 2.0], ["x", "y"], [1, 1])}).get_xlabel()
    'share of the time [%]'
    """
    ax = ax or style.axes(height=1.6 + 0.62 * len(strips))
    colors = {}
    for row, (times, kinds, split) in enumerate(strips.values()):
        share = 100 * np.asarray(times) / np.sum(times)
        left = np.concatenate(([0], np.cumsum(share)))
        tints = [
            colors.setdefault(kind, KINDS[len(colors) % len(KINDS)])
            for _, kind in zip(share, kinds, strict=True)
        ]
        ax.add_collection(_boxes(left[:-1], left[1:], np.full(len(share), row), 0.55, tints, 0.3))
        for cut in np.cumsum(split)[:-1]:
            ax.plot([left[cut]] * 2, [row - 0.42, row + 0.42], color=style.INK, lw=2)
        for s in range(1, len(split)):
            ax.plot(
                [100 * s / len(split)] * 2, [row - 0.46, row + 0.46], color=style.INK, lw=1, ls=":"
            )
    ax.set_yticks(range(len(strips)), list(strips))
    ax.set_ylim(len(strips) - 0.45, -0.55)
    ax.set_xlim(0, 100)
    ax.grid(visible=False)
    ax.set_xlabel("share of the time [%]")
    handles = [Patch(color=color, label=kind) for kind, color in colors.items()]
    ax.figure.legend(handles=handles, loc="outside upper center", ncols=2, fontsize=8.5)
    return ax
