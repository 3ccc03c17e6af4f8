"""Figure of chapter 6, a pipeline on the reader's own processor."""

from hwdesign.lessons import style
from hwdesign.lessons.figures.charts import lines


@style.styled
def own_pipeline(chunks, measured, predicted, *, ax=None):
    """Time of a batch in a pipeline against the chunks it is cut into: lines of the model and
    crosses of measured times.

    Parameters
    ----------
    chunks : array_like of int, shape (s,)
        Numbers of chunks of the predictions.
    measured : mapping of str to (array_like, array_like)
        For some of the labels numbers of chunks and measured times [s], as of
        `hwdesign.lessons.live.pipelines_of`.
    predicted : mapping of str to array_like, shape (s,)
        Label to predicted times [s], as of `hwdesign.lessons.live.pipelines_predicted`.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: chunks (log), y: time [ms].

    Raises
    ------
    ValueError
        If something was measured under a label that has no prediction.

    Notes
    -----
    Source: `hwdesign.measure.pipeline`.

    Examples
    --------
    >>> own_pipeline(
    ...     [1, 2], {"2 stages": ([1, 2], [0.1, 0.08])}, {"2 stages": [0.1, 0.075]}
    ... ).get_ylabel()
    'time [ms]'
    """
    lost = [name for name in measured if name not in predicted]
    if lost:
        raise ValueError(
            f"measured must hold only labels of predicted ({', '.join(predicted)}), got "
            f"{', '.join(lost)}"
        )
    curves = {name: [1e3 * t for t in seconds] for name, seconds in predicted.items()}
    points = {name: (x, [1e3 * t for t in seconds]) for name, (x, seconds) in measured.items()}
    ax = lines(ax or style.axes(height=3.8), chunks, curves, points=points)
    ax.plot([], [], "x", color=style.INK, mew=1.8, label="measured")
    ax.set_xscale("log", base=2)
    style.plain_ticks(ax.xaxis, chunks)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("chunks")
    ax.set_ylabel("time [ms]")
    ax.legend(fontsize=9)
    return ax
