"""One figure style for the whole book: opaque background, colour-blind safe ink, no global state of
matplotlib touched.
"""

import functools
import itertools

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

INK, GREY, GRID = "#1f2933", "#5a6572", "#e3e8ee"
BLUE, ORANGE, GREEN, PURPLE = "#0b5fa5", "#b34a06", "#1b7f5c", "#7a4fa3"
BACKGROUND = "#ffffff"
PLATE = {
    "facecolor": BACKGROUND,
    "edgecolor": "none",
    "pad": 0.8,
}  # behind a label that a line may cross
FORMAT = {
    "BF16": (INK, "v", "-"),
    "FP8": (GREEN, "s", "--"),
    "INT4": (BLUE, "o", ":"),
    "MXFP4": (PURPLE, "D", "-."),
    "NVFP4": (ORANGE, "^", "-"),
}  # how a number format looks in all figures: colour, marker, line
FRAMEWORK = {
    "trtllm": (BLUE, "TensorRT-LLM"),
    "sglang": (ORANGE, "SGLang"),
    "vllm": (GREEN, "vLLM"),
}

RC = {
    "font.size": 10.5,
    "font.family": "DejaVu Sans",
    "axes.labelsize": 10.5,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.facecolor": BACKGROUND,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": BACKGROUND,
    "savefig.facecolor": BACKGROUND,
    "grid.color": GRID,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.hashsalt": "hwdesign",  # equal figures give equal bytes
}


ENGINE = {
    name: (color, marker, line)
    for (color, name), marker, line in zip(FRAMEWORK.values(), "os^", ("--", "-", ":"), strict=True)
}


def looks(labels):
    """How number formats and engines are drawn: each as in all figures, by the name that begins its
    label; others in turn.

    Parameters
    ----------
    labels : sequence of str
        Labels of lines.

    Returns
    -------
    dict of str to tuple of str
        Label to colour, marker and line style.

    Examples
    --------
    >>> looks(["NVFP4 (E2M1)", "SGLang", "mine", "yours"])["NVFP4 (E2M1)"]
    ('#b34a06', '^', '-')
    """
    known, others = {**FORMAT, **ENGINE}, itertools.cycle(FORMAT.values())
    return {
        label: next((known[name] for name in known if label.startswith(name)), None) or next(others)
        for label in labels
    }


def styled(function):
    """Decorator: run a figure function under the book's style, without leaving a trace in
    matplotlib's settings.
    """

    @functools.wraps(function)
    def inside(*args, **kwargs):
        with rc_context(RC):
            return function(*args, **kwargs)

    return inside


@styled
def axes(*, width=6.0, height=3.7):
    """New axes in a figure of their own; readable at phone width because the figure is narrow and
    the type large.

    Parameters
    ----------
    width, height : float
        Size of the figure [inch].

    Returns
    -------
    matplotlib.axes.Axes
        Empty axes in the book's style; lengths in inches.

    Examples
    --------
    >>> axes().figure.get_facecolor()
    (1.0, 1.0, 1.0, 1.0)
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def plain_ticks(axis, ticks, labels=None):
    """Ticks at these values alone, as plain numbers or as `labels`; a logarithmic axis loses its
    minor ticks.
    """
    axis.set_ticks(list(ticks), labels or [f"{t:g}" for t in ticks])
    axis.set_minor_locator(NullLocator())


def decade_ticks(axis):
    """Plain ticks at 1, 2 and 5 times powers of ten, those within the limits of a logarithmic axis.

    Parameters
    ----------
    axis : matplotlib.axis.Axis
        With its limits set, in the unit of the axis.

    Examples
    --------
    >>> ax = axes()
    >>> _ = ax.set_yscale("log"), ax.set_ylim(0.9, 21)
    >>> decade_ticks(ax.yaxis)
    >>> [t.get_text() for t in ax.get_yticklabels()]
    ['1', '2', '5', '10', '20']
    """
    low, high = axis.get_view_interval()
    plain_ticks(
        axis, [d * 10.0**e for e in range(-3, 10) for d in (1, 2, 5) if low <= d * 10.0**e <= high]
    )
