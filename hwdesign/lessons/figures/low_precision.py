"""Figures of chapter 4, low precision: what the formats hold and what they lose."""

import numpy as np

from hwdesign.formulas.number_formats import ELEMENTS, cast
from hwdesign.lessons import style


@style.styled
def number_lines(rows, *, marks=(), ax=None):
    """Number lines of small formats: each value a tick, above zero, and where some numbers go.

    Parameters
    ----------
    rows : mapping of str to (str, float)
        Label to an element format and what its values are multiplied by.
    marks : sequence of float
        Numbers to round, drawn as arrows to the value they take.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: value [dimensionless], y: format.

    Notes
    -----
    Source: `hwdesign.formulas.quantization`.

    Examples
    --------
    >>> number_lines({"E2M1": ("e2m1", 1.0)}).get_xlabel()
    'value [dimensionless]'
    """
    ax = ax or style.axes(height=0.9 + 0.8 * len(rows))
    for row, (name, scale) in zip(range(len(rows))[::-1], rows.values(), strict=True):
        values, color = (
            ELEMENTS[name].values * scale,
            (style.BLUE, style.ORANGE, style.GREEN)[row % 3],
        )
        ax.plot(
            [0, values[-1]], [row, row], color=style.GRID, lw=5, solid_capstyle="round", zorder=1
        )
        ax.plot(values, np.full(len(values), row), "|", color=color, ms=20, mew=2.2, zorder=2)
        for value in values:
            ax.annotate(
                f"{value:.3g}",
                (value, row),
                xytext=(0, -20),
                textcoords="offset points",
                ha="center",
                fontsize=8.5,
            )
        for mark in marks:
            to = float(cast(mark / scale, name)) * scale
            arrow = {"arrowstyle": "->", "color": style.GREY, "lw": 1.2}
            ax.annotate("", (to, row + 0.02), (mark, row + 0.42), arrowprops=arrow)
            ax.annotate(
                f"{mark:g}",
                (mark, row + 0.42),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=8.5,
            )
    ax.set_yticks(range(len(rows))[::-1], rows)
    ax.set_ylim(-0.75, len(rows) - 0.35)
    ax.grid(visible=False)
    ax.set_xlabel("value [dimensionless]")
    return ax


@style.styled
def block_picture(x, stored, *, name, ax=None):
    """One block of numbers before and after.

    Parameters
    ----------
    x, stored : array_like of float, shape (block,)
        Numbers and what is stored of them.
    name : str
        Name of the format.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: place in the block, y: value.

    Examples
    --------
    >>> block_picture([0.1, 0.2], [0.1, 0.25], name="NVFP4").get_xlabel()
    'place in the block'
    """
    ax = ax or style.axes(height=3.3)
    place = np.arange(len(x))
    ax.vlines(place, x, stored, color=style.GREY, lw=1.2)
    ax.plot(place, x, "o", color=style.BLUE, mfc="none", mew=1.6, label="before")
    ax.plot(place, stored, "_", color=style.ORANGE, ms=13, mew=2.4, label=name)
    for level in np.unique(np.abs(stored)):
        for sign in (-1, 1):
            ax.axhline(sign * level, color=style.GREY, lw=0.5, ls=":", zorder=0)
    ax.grid(visible=False)
    ax.set_xticks(place)
    ax.set_xlabel("place in the block")
    ax.set_ylabel("value [dimensionless]")
    ax.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=2)
    return ax


@style.styled
def error_lines(x, curves, *, xlabel, marks=(), top=None, ax=None):
    """Signal to noise against a size, one line a format.

    Parameters
    ----------
    x : array_like of float, shape (s,)
        Sizes.
    curves : mapping of str to array_like, shape (s,)
        Format to ratio [dB].
    xlabel : str
        What is varied, with unit.
    marks : sequence of (str, float)
        Formats as they are defined: label of the curve and its x; drawn as a ring.
    top : float, optional
        Upper end of the axis [dB].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: as told (log), y: signal to noise [dB].

    Notes
    -----
    Source: `hwdesign.formulas.quantization.sqnr`.

    Examples
    --------
    >>> error_lines([16, 32], {"NVFP4": [20.0, 19.0]}, xlabel="block [element]").get_ylabel()
    'signal to noise [dB]'
    """
    ax = ax or style.axes(height=3.8)
    looks = style.looks(curves)
    for name, ratio in curves.items():
        color, marker, line = looks[name]
        ax.semilogx(x, ratio, color=color, marker=marker, ls=line, lw=1.4, ms=4.5, label=name)
    for name, at in marks:
        ax.plot(
            at,
            np.interp(np.log(at), np.log(x), curves[name]),
            "o",
            mfc="none",
            mec=style.INK,
            ms=13,
            mew=1.4,
        )
    style.plain_ticks(ax.xaxis, x)
    ax.set_ylim(0, top)
    ax.set_xlabel(xlabel)
    ax.set_ylabel("signal to noise [dB]")
    ax.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=2)
    return ax


@style.styled
def score_differences(rows, *, ax=None):
    """Differences of benchmark scores with their margins; orange where the bar does not reach zero.

    Parameters
    ----------
    rows : sequence of (str, float, float)
        Label, difference and margin [percentage points], from top to bottom; a NaN margin draws no
        bar.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: difference [percentage points], y: benchmark.

    Notes
    -----
    Source: `hwdesign.lessons.studies.scores`.

    Examples
    --------
    >>> score_differences([("MMLU-Pro", -0.8, 0.9)]).get_xlabel()
    'NVFP4 minus before [percentage points]'
    """
    ax = ax or style.axes(height=1.2 + 0.38 * len(rows))
    for row, (_, difference, margin) in enumerate(rows):
        known, clear = np.isfinite(margin), abs(difference) > margin
        color, marker = (style.ORANGE, "s") if clear else (style.BLUE, "o")
        if known:
            ax.plot(
                [difference - margin, difference + margin],
                [row, row],
                color=color,
                lw=2,
                solid_capstyle="butt",
            )
        ax.plot(difference, row, marker, color=color, mfc=color if known else "none")
    ax.axvline(0, color=style.INK, ls="--", lw=1)
    ax.set_yticks(range(len(rows)), [label for label, *_ in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlabel("NVFP4 minus before [percentage points]")
    return ax


@style.styled
def own_formats(found, *, ax=None):
    """Time of a GEMM in every format of a machine, relative to the widest, by shape.

    Parameters
    ----------
    found : mapping of (int, int, int) to mapping of str to Measurement
        Shape to format to measurement, from `live.formats_of`.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: speed [widest format = 1] (log), y: shape and format.

    Examples
    --------
    >>> from hwdesign.lessons import live
    >>> own_formats(live.formats_of(live.format_gemms(stored=True))).get_xlabel()
    'speed [widest format = 1]'
    """
    bars = [
        (
            f"{' x '.join(map(str, shape))}, {name.upper()}",
            first.seconds / m.seconds,
            any(flag.startswith("suspect") for flag in m.flags),
        )
        for shape, formats in found.items()
        for first in [next(iter(formats.values()))]
        for name, m in formats.items()
    ]
    ax = ax or style.axes(height=1.3 + 0.36 * len(bars))
    for row, (_, speed, suspect) in enumerate(bars):
        ax.plot([1, speed], [row, row], color=style.GRID, lw=3, zorder=1)
        ax.plot(speed, row, "x", color=style.ORANGE if suspect else style.BLUE, mew=2.2, ms=8)
        text = f"{speed:.2g}" + (", suspect" if suspect else "")
        near_right = speed > 0.3
        place = {
            "xytext": (8 if not near_right or not suspect else -8, 0),
            "textcoords": "offset points",
            "va": "center",
        }
        ax.annotate(
            text,
            (speed, row),
            ha="right" if near_right and suspect else "left",
            fontsize=9,
            **place,
        )
    ax.axvline(1, color=style.INK, ls="--", lw=1)
    ax.set_xscale("log")
    low, high = min(speed for _, speed, _ in bars), max(speed for _, speed, _ in bars)
    ax.set_xlim(low / 2.5, high * 2.5)
    ax.set_yticks(range(len(bars)), [label for label, *_ in bars])
    ax.set_ylim(len(bars) - 0.4, -0.6)
    style.plain_ticks(
        ax.xaxis, [t for t in (1e-4, 1e-3, 1e-2, 0.1, 1, 2, 5, 10) if low / 2.5 < t < high * 2.5]
    )
    ax.set_xlabel("speed [widest format = 1]")
    return ax
