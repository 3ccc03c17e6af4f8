"""Sliders of chapter 6: chunks, stages, and layers that do not divide, each as a chart of what
every stage does when.
"""

import numpy as np

from hwdesign.formulas.chunks import chunk_times, equal_time_chunks
from hwdesign.formulas.pipeline import bubble_share, idle_share, schedule, stage_layers
from hwdesign.lessons.explore import Explorer, Frame
from hwdesign.lessons.figures.pipeline import gantt

CHUNKS = (1, 2, 4, 8, 16, 32)
STAGES = (2, 4, 8, 16)
LAYERS = (32, 33, 34, 35, 61, 62)
WORK = 1.0  # time of the whole prompt in one stage [s]


def _frame(times, end, head):
    """A chart of some times [s] (chunks, stages), whose text ends in the time and the idle
    share.
    """
    starts, ends = schedule(times)
    idle = float(idle_share(times))
    text = f"{head}: done after {ends[-1, -1]:.3f} s; the stages idle {idle:.0%} of the time."
    ax = gantt(starts, ends, end=end, unit="s")
    alt = f"Stages from top to bottom, time [s] to the right, a bar a chunk. {text}"
    return Frame(ax=ax, alt=alt, text=text, data={"seconds": float(ends[-1, -1]), "idle": idle})


def explore_chunks(chunks=CHUNKS, *, stages=4):
    """Slider over the number of equal chunks: what four stages do when.

    Parameters
    ----------
    chunks : sequence of int
        Numbers of chunks.
    stages : int
        Stages of the pipeline.

    Returns
    -------
    Explorer
        Frame data: seconds [s] and idle share [dimensionless] of a prompt that takes 1 s in one
        stage.

    Notes
    -----
    Source: `hwdesign.formulas.pipeline`.

    Examples
    --------
    >>> explore_chunks((1, 2))
    <Explorer chunks: chunks of the prompt over 1 to 2>
    """

    def draw(i):
        return _frame(
            np.full((chunks[i], stages), WORK / chunks[i] / stages),
            WORK,
            f"{chunks[i]} chunks, {stages} stages",
        )

    caption = (
        f"A prompt that takes one second in one stage, in {stages} equal stages. Dashed: "
        "the last chunk is done."
    )
    return Explorer(
        "chunks",
        "chunks of the prompt",
        list(map(str, chunks)),
        draw,
        caption=caption,
        kinds=["modelled"],
    )


def explore_stages(stages=STAGES, *, chunks=16, growth=16.0):
    """Slider over the number of stages, with chunks that attention makes dearer along the prompt,
    equal or shrinking.

    Parameters
    ----------
    stages : sequence of int
        Numbers of stages; each is shown with equal chunks and with chunks of equal time.
    chunks : int
        Chunks of the prompt.
    growth : float
        Time of attention of the last token over the rest of its time [dimensionless].

    Returns
    -------
    Explorer
        Frame data: seconds [s] and idle share [dimensionless] of a prompt that takes 1 s in one
        stage.

    Notes
    -----
    Source: `hwdesign.formulas.pipeline`.

    Examples
    --------
    >>> explore_stages((2, 4))
    <Explorer stages: stages over 2, equal chunks to 4, equal times>
    """
    tokens = 2**17
    linear = WORK / tokens / (1 + growth / 2)
    costs = linear, growth * linear / tokens
    equal = np.diff(np.round(np.linspace(0, tokens, chunks + 1)))
    cuts = {"equal chunks": equal, "equal times": equal_time_chunks(tokens, chunks, *costs)}
    places = [(p, name) for p in stages for name in cuts]

    def draw(i):
        p, name = places[i]
        times = chunk_times(cuts[name], *costs)[:, None] / p
        least = float(bubble_share(p, chunks))
        return _frame(
            np.repeat(times, p, axis=1),
            WORK,
            f"{p} stages, {name} (idle share of equal times: {least:.0%})",
        )

    caption = (
        f"A prompt that takes one second in one stage, in {chunks} chunks; the last "
        f"token spends {growth:g} times as long "
    )
    caption += "on attention as on the rest."
    return Explorer(
        "stages",
        "stages",
        [f"{p}, {name}" for p, name in places],
        draw,
        caption=caption,
        kinds=["modelled"],
    )


def explore_balance(layers=LAYERS, *, stages=4, chunks=8):
    """Slider over the number of equal layers: what does not divide leaves stages idle.

    Parameters
    ----------
    layers : sequence of int
        Numbers of layers.
    stages, chunks : int
        Stages of the pipeline and chunks of the prompt.

    Returns
    -------
    Explorer
        Frame data: seconds [s] and idle share [dimensionless] of a prompt that takes 1 s in one
        stage.

    Notes
    -----
    Source: `hwdesign.formulas.pipeline`.

    Examples
    --------
    >>> explore_balance((4, 5), stages=2)
    <Explorer balance: layers over 4 to 5>
    """

    def timed(count):
        split = stage_layers(count, stages)
        return split, np.tile(WORK / count / chunks * np.array(split), (chunks, 1))

    end = 1.05 * max(schedule(timed(count)[1])[1].max() for count in layers)

    def draw(i):
        split, times = timed(layers[i])
        return _frame(times, end, f"{layers[i]} layers as {', '.join(map(str, split))}")

    caption = (
        f"A prompt that takes one second in one stage, {chunks} equal chunks, {stages} stages."
    )
    return Explorer(
        "balance", "layers", list(map(str, layers)), draw, caption=caption, kinds=["modelled"]
    )
