"""Curves that several chapters draw."""

from hwdesign.lessons import style
from hwdesign.lessons.figures.wide_deep import LOOKS

LINES = ("-", "--", "-.", ":", "-")


def lines(ax, x, curves, *, points=None, markers=True):
    """Draw curves against x, each with its colour, line and marker, and points of the same names as
    crosses.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to draw.
    x : array_like of float, shape (s,)
        Horizontal values, in the unit of the axis.
    curves : mapping of str to array_like, shape (s,)
        Label to values, in the unit of the axis; NaN leaves a gap.
    points : mapping of str to (array_like, array_like), optional
        For some of the labels x and y of other points, drawn as crosses.
    markers : bool
        Whether curves without points get markers.

    Returns
    -------
    matplotlib.axes.Axes
        The same axes, in the units they had.

    Examples
    --------
    >>> len(lines(style.axes(), [1, 2], {"a": [1, 2]}).lines)
    1
    """
    for i, (name, y) in enumerate(curves.items()):
        color, marker = LOOKS[i % len(LOOKS)]
        look = {"marker": marker} if markers and points is None else {}
        ax.plot(x, y, ls=LINES[i % len(LINES)], color=color, lw=1.6, label=name, **look)
        if points and name in points:
            ax.plot(*points[name], "x", color=color, mew=1.8)
    return ax


@style.styled
def line_chart(
    x,
    curves,
    *,
    xlabel,
    ylabel,
    points=None,
    xticks=None,
    yticks=None,
    log="xy",
    level=None,
    legend="best",
    ax=None,
):
    """Curves against x on axes with plain ticks, and points of the same names as crosses.

    Parameters
    ----------
    x : array_like of float, shape (s,)
        Horizontal values, in the unit of the axis.
    curves : mapping of str to array_like, shape (s,)
        Label to values, in the unit of the axis; NaN leaves a gap.
    xlabel, ylabel : str
        Names of the axes with their units.
    points : mapping of str to (array_like, array_like), optional
        For some of the labels x and y of other points.
    xticks, yticks : sequence of float, optional
        Ticks; by default x for the horizontal axis.
    log : str
        Which axes are logarithmic: "xy", "x", "y" or "".
    level : float, optional
        Height of a dotted line, in the unit of the axis.
    legend : str
        Place of the legend.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, labelled.

    Examples
    --------
    >>> line_chart([1, 2], {"a": [1, 2]}, xlabel="stages", ylabel="time [s]").get_ylabel()
    'time [s]'
    """
    ax = lines(ax or style.axes(height=4.0), x, curves, points=points)
    if "x" in log:
        ax.set_xscale("log")
    if "y" in log:
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)
    if level is not None:
        ax.axhline(level, color=style.INK, ls=":", lw=1.2)
    style.plain_ticks(ax.xaxis, x if xticks is None else xticks)
    if yticks is not None:
        style.plain_ticks(ax.yaxis, yticks)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    if len(curves) > 1:
        ax.legend(fontsize=9, loc=legend)
    return ax
