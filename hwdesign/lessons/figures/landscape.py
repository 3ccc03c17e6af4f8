"""Figures of chapter 0: the timeline of an answer, fronts, shares of a step, what each lever
brings.
"""

import matplotlib as mpl
import numpy as np

from hwdesign.lessons import style
from hwdesign.lessons.figures.charts import LINES
from hwdesign.lessons.figures.wide_deep import LOOKS, TERMS
from hwdesign.lessons.studies.levers import deployment, lever_states

BLOCKS = {"your prompt": style.BLUE, "decode step": style.GREEN, "another prompt": style.ORANGE}


@style.styled
def timeline(blocks, *, unit="ms", ax=None):
    """What GPUs do for a user and others, and when the user sees tokens.

    Parameters
    ----------
    blocks : sequence of (str, float)
        In order: "your prompt", "decode step" or "another prompt", and its time [s]. The user gets
        a token at the end of the prompt and of every decode step after it.
    unit : str
        "ms" or "s".
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: time since the request [ms or s].

    Examples
    --------
    >>> timeline([("your prompt", 0.1), ("decode step", 0.01)]).get_xlabel()
    'time since the request [ms]'
    """
    ax, scale = ax or style.axes(height=2.9), {"ms": 1e3, "s": 1.0}[unit]
    form = ".0f" if unit == "ms" else ".3g"
    ends = scale * np.cumsum([seconds for _, seconds in blocks])
    starts = np.concatenate(([0.0], ends[:-1]))
    named = set()
    for (kind, _), start, end in zip(blocks, starts, ends, strict=True):
        look = {"color": BLOCKS[kind], "edgecolor": style.BACKGROUND, "lw": 0.8}
        ax.barh(1, end - start, 0.5, left=start, label=None if kind in named else kind, **look)
        named.add(kind)
    first = next(i for i, (kind, _) in enumerate(blocks) if kind == "your prompt")
    seen = [
        ends[i] for i, (kind, _) in enumerate(blocks) if i >= first and kind != "another prompt"
    ]
    ax.plot(seen, np.zeros(len(seen)), "|", color=style.INK, ms=16, mew=2, label="token")
    gaps = np.diff(seen)
    ax.annotate(
        "",
        (0, -0.55),
        (seen[0], -0.55),
        arrowprops={"arrowstyle": "<->", "color": style.GREY, "lw": 1.2},
    )
    marked = {seen[0] / 2: f"first-token latency {seen[0]:{form}}"}
    for at in dict.fromkeys(int(find(gaps)) for find in (np.argmin, np.argmax) if gaps.size):
        marked[seen[at] + gaps[at] / 2] = f"{gaps[at]:{form}}"
    for middle, text in marked.items():
        ax.text(middle, -0.62, text, ha="center", va="top", fontsize=9, color=style.GREY)
    ax.set_yticks([1, 0], ["GPUs", "you"])
    ax.set_ylim(-1.1, 1.5)
    ax.set_xlim(0, ends[-1] * 1.02)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"time since the request [{unit}]")
    ax.legend(fontsize=9, loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=4)
    return ax


@style.styled
def fronts(
    lines,
    *,
    points=None,
    cloud=None,
    limits=None,
    graded=False,
    logarithmic=True,
    steps=True,
    ax=None,
):
    """Pareto fronts of tokens per second and GPU against tokens per second and user, as staircases.

    Parameters
    ----------
    lines : mapping of str to (array_like, array_like)
        Label to tokens per second of a user and of a GPU [token/s], by falling first.
    points : mapping of str to (array_like, array_like), optional
        Label to points drawn as crosses [token/s].
    cloud : (array_like, array_like), optional
        Points drawn small and grey: what was searched [token/s].
    limits : mapping of str to float, optional
        Label to a rate of a user, a dotted line [token/s].
    graded : bool
        Whether the lines form a sequence, from pale to dark.
    logarithmic : bool
        Whether the vertical axis is.
    steps : bool
        Whether points are joined by a staircase, as nothing lies between them, or by lines.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: tokens/s of a user, y: tokens/s of a GPU.

    Notes
    -----
    Source: Figure 1 of the post.

    Examples
    --------
    >>> fronts({"a": ([10, 5], [1, 2])}, cloud=([1], [1]), limits={"read": 7}).get_xlabel()
    'tokens/s of a user'
    """
    ax = ax or style.axes(height=4.4)
    if cloud is not None:
        ax.plot(*cloud, ".", color=style.GREY, ms=2, alpha=0.25, mew=0, rasterized=True)
    shades = mpl.colormaps["YlGnBu"](np.linspace(0.35, 1.0, len(lines)))
    for i, (name, (user, gpu)) in enumerate(lines.items()):
        color, marker = (shades[i], None) if graded else LOOKS[i % len(LOOKS)]
        if steps:
            user, gpu = np.append(user, 0.0), np.append(gpu, gpu[-1])
        line = "-" if graded else LINES[i % len(LINES)]
        look = {
            "color": color,
            "ls": line,
            "marker": marker,
            "ms": 3.5,
            "lw": 1.8,
            "markevery": slice(0, len(user) - steps),
        }
        ax.plot(user, gpu, drawstyle="steps-post" if steps else "default", label=name, **look)
    for i, (name, (user, gpu)) in enumerate((points or {}).items()):
        ax.plot(
            user,
            gpu,
            "x+1234"[i % 6],
            color=LOOKS[::-1][i % len(LOOKS)][0],
            ms=8,
            mew=1.6,
            label=name,
        )
    if logarithmic:
        ax.set_yscale("log")
        style.decade_ticks(ax.yaxis)
    else:
        ax.set_ylim(bottom=0)
    for name, rate in (limits or {}).items():
        ax.axvline(rate, color=style.GREY, ls=":", lw=1.2)
        ax.annotate(
            name,
            (rate, 0.02),
            xycoords=("data", "axes fraction"),
            rotation=90,
            ha="right",
            va="bottom",
            fontsize=8.5,
            color=style.GREY,
        )
    ax.set_xlim(left=0)
    ax.set_xlabel("tokens/s of a user")
    ax.set_ylabel("tokens/s of a GPU")
    ax.legend(fontsize=8.5, loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2)
    return ax


@style.styled
def share_bars(labels, breakdowns, *, ax=None):
    """Where the time of steps goes, each bar as long as the others.

    Parameters
    ----------
    labels : sequence of str
        Steps, from top to bottom.
    breakdowns : sequence of Breakdown
        Of one step each.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: share of the step [%], y: steps.

    Notes
    -----
    Source: Figure 2 of the post; `hwdesign.timing.estimate`.

    Examples
    --------
    >>> from hwdesign.timing.estimate import Breakdown
    >>> share_bars(["a"], [Breakdown(terms={"ffn": 1e-3}, memory=1.0, capacity=2.0)]).get_xlabel()
    'share of a step [%]'
    """
    ax = ax or style.axes(height=1.5 + 0.5 * len(labels))
    at, foot = np.arange(len(labels))[::-1], np.zeros(len(labels))
    for term, color in TERMS.items():
        width = np.array(
            [100 * float(b.share(term)) if term in b.terms else 0.0 for b in breakdowns]
        )
        if not width.any():
            continue
        bars = ax.barh(at, width, 0.68, left=foot, color=color, label=term)
        shown = [f"{w:.0f}" if w >= 5 else "" for w in width]
        dark = sum(mpl.colors.to_rgb(color)) < 1.5
        ax.bar_label(
            bars,
            shown,
            label_type="center",
            fontsize=9,
            color=style.BACKGROUND if dark else style.INK,
        )
        foot = foot + width
    ax.set_yticks(at, labels)
    ax.set_xlim(0, 100)
    ax.grid(visible=False)
    ax.set_xlabel("share of a step [%]")
    ax.figure.legend(
        *ax.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9
    )
    return ax


@style.styled
def lever_bars(gains, *, ax=None):
    """By what each lever multiplies the area under the front.

    Parameters
    ----------
    gains : mapping of str to mapping of str to float
        Label of a series to lever to factor [dimensionless].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: factor (log), y: levers.

    Examples
    --------
    >>> lever_bars({"short": {"a": 1.2, "b": 2.0}}).get_xlabel()
    'area under the front, with / without'
    """
    names = list(next(iter(gains.values())))
    ax = ax or style.axes(height=1.3 + 0.42 * len(names))
    at, thick = np.arange(len(names))[::-1], 0.8 / len(gains)
    for i, (label, values) in enumerate(gains.items()):
        row = at + 0.4 - thick * (i + 0.5)
        bars = ax.barh(
            row,
            [values[n] - 1 for n in names],
            0.9 * thick,
            left=1,
            color=(style.BLUE, style.ORANGE)[i % 2],
            label=label,
        )
        ax.bar_label(bars, [f"{values[n]:.2f}" for n in names], fontsize=8.5, padding=3)
    ax.set_xscale("log")
    top = max(x for values in gains.values() for x in values.values())
    ax.set_xlim(0.97, top * 1.25)
    style.plain_ticks(ax.xaxis, [t for t in (1, 1.5, 2, 3, 5, 10) if t <= top * 1.25])
    ax.set_yticks(at, names)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("area under the front, with / without")
    ax.legend(fontsize=9, loc="lower right")
    return ax


def opening(workload="short"):
    """Seven levers push the front of DeepSeek-R1 outwards.

    Parameters
    ----------
    workload : str
        "short" or "long", see `hwdesign.lessons.studies.levers`.

    Returns
    -------
    matplotlib.axes.Axes
        x: tokens/s of a user, y: tokens/s of a GPU.

    Notes
    -----
    Source: `hwdesign.lessons.studies.levers`.

    Examples
    --------
    >>> len(opening().lines)
    8
    """
    lines = {}
    for i, (name, settings) in enumerate(lever_states().items()):
        found = deployment(settings, workload)
        rates = (found["candidates"][rate][found["front"]] for rate in ("user_rate", "total_rate"))
        lines[f"{i} {name}" if i else "against all seven guidelines"] = tuple(rates)
    return fronts(lines, graded=True)
