"""Sliders of chapter 7: what dominates with more GPUs, and which layout is best as the context
grows.
"""

import numpy as np

from hwdesign.lessons import style
from hwdesign.lessons.explore import Explorer, Frame
from hwdesign.lessons.figures.charts import line_chart
from hwdesign.lessons.figures.decoupled import FAMILY, dominant_map, tokens
from hwdesign.timing.layouts import best_steps

SENTENCE = {
    "tensor": "tensor parallel",
    "data": "data parallel",
    "cache": "cache parallel",
    "": "nothing fits",
}


def explore_gpus(sweep, batch, context):
    """Slider over the GPUs: the largest part of the fastest step over batch and context, and how
    its attention is spread.

    Parameters
    ----------
    sweep : dict
        From `hwdesign.timing.layouts.decode_sweep`, over batch (a column) and context (a row).
    batch, context : array_like of int
        Sequences in flight; tokens that each sees [token].

    Returns
    -------
    Explorer
        Frame data: seconds [s] of each batch and context, NaN where nothing fits, and the shares of
        the kinds [dimensionless].

    Notes
    -----
    Source: `hwdesign.timing.layouts`.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> from hwdesign.timing.layouts import decode_sweep
    >>> m, b, s = config.load("llama-3.1-8b"), np.array([1, 8]), np.array([1024, 8192])
    >>> explore_gpus(
    ...     decode_sweep(m, "H100_SXM", "fp8", batch=b[:, None], context=s, gpus=(1, 2)), b, s
    ... )
    <Explorer gpus: GPUs over 1 to 2>
    """
    batch, context = np.asarray(batch).tolist(), np.asarray(context).tolist()
    counts = sorted(set(sweep["gpus"].tolist()))
    names = np.array([*sweep["steps"][0].terms, ""])
    parts = [np.array(list(step.terms.values())).argmax(axis=0) for step in sweep["steps"]]

    def draw(i):
        chosen, seconds = best_steps(sweep, sweep["gpus"] == counts[i])
        kinds, terms = np.full(chosen.shape, "", "U8"), np.full(chosen.shape, len(names) - 1)
        for at, layout in np.ndenumerate(chosen):
            if layout >= 0:
                kinds[at], terms[at] = sweep["kinds"][layout], parts[layout][at]
        share = {kind: float((kinds == kind).mean()) for kind in (*FAMILY, "")}
        text = f"{counts[i]} GPU{'s' * (counts[i] > 1)}: " + ", ".join(
            f"{SENTENCE[k]} in {share[k]:.0%}" for k in share if share[k]
        )
        ax = dominant_map(batch, context, names[terms], kinds)
        large = [
            f"{n} in {(names[terms] == n).mean():.0%}"
            for n in names[:-1]
            if (names[terms] == n).any()
        ]
        alt = (
            f"Map of batch against context. {text} of the fields. The largest part of a step "
            f"is {', '.join(large) or 'none'}."
        )
        return Frame(
            ax=ax,
            alt=alt,
            text=text + " of the fields.",
            data={"seconds": seconds.tolist(), **share},
        )

    caption = (
        "Colour: the largest part of the fastest step. Letter: its attention is tensor "
        "(T), data (D) or cache (C) parallel."
    )
    return Explorer(
        "gpus", "GPUs", list(map(str, counts)), draw, caption=caption, kinds=["modelled"]
    )


def explore_batch(sweep, batch, context):
    """Slider over the sequences in flight: time of the fastest step of each kind of layout against
    the context.

    Parameters
    ----------
    sweep : dict
        From `hwdesign.timing.layouts.decode_sweep`, over batch (a column) and context (a row).
    batch, context : array_like of int
        Sequences in flight; tokens that each sees [token].

    Returns
    -------
    Explorer
        Frame data: seconds [s] of each kind against the context, NaN where nothing fits.

    Notes
    -----
    Source: `hwdesign.timing.layouts`.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> from hwdesign.timing.layouts import decode_sweep
    >>> m, b, s = config.load("llama-3.1-8b"), np.array([1, 8]), np.array([1024, 8192])
    >>> explore_batch(
    ...     decode_sweep(m, "H100_SXM", "fp8", batch=b[:, None], context=s, gpus=(1, 2)), b, s
    ... )
    <Explorer batch: sequences in flight over 1 to 8>
    """
    batch, context = np.asarray(batch).tolist(), np.asarray(context).tolist()
    best = {kind: 1e3 * best_steps(sweep, sweep["kinds"] == kind)[1] for kind in FAMILY}
    every = np.array(list(best.values()))
    some = every[np.isfinite(every)] if np.isfinite(every).any() else np.ones(1)
    ends = 0.8 * some.min(), 1.25 * some.max()
    labels = [tokens(c) for c in context]

    def draw(i):
        curves = {SENTENCE[kind]: times[i] for kind, times in best.items()}
        ax = line_chart(
            context,
            curves,
            xlabel="context [token]",
            ylabel="time of a step [ms]",
            legend="upper left",
        )
        for drawn, (_, color, marker, line) in zip(ax.lines, FAMILY.values(), strict=True):
            drawn.set(color=color, marker=marker, linestyle=line)
        ax.legend(fontsize=9, loc="upper left")
        ax.set_ylim(*ends)
        style.decade_ticks(ax.yaxis)
        style.plain_ticks(ax.xaxis, context, labels)
        times = np.nan_to_num(every[:, i], nan=np.inf)
        first = times.argmin(axis=0)
        cut = np.flatnonzero((first == 2) & np.isfinite(times[2]))
        from_here = (
            f"cutting is fastest from {labels[cut[0]]} to {labels[cut[-1]]}"
            if cut.size
            else "cutting is nowhere fastest"
        )
        text = f"{batch[i]} sequence{'s' * (batch[i] > 1)}: {from_here}."
        alt = (
            "Time of the fastest step against the context, one line a way to spread "
            f"attention. {text}"
        )
        data = {kind: (times[i] / 1e3).tolist() for kind, times in best.items()}
        return Frame(ax=ax, alt=alt, text=text, data=data)

    caption = (
        f"The fastest layout of each kind on at most {sweep['gpus'].max()} GPUs. A line "
        "ends where nothing fits."
    )
    return Explorer(
        "batch",
        "sequences in flight",
        list(map(str, batch)),
        draw,
        caption=caption,
        kinds=["modelled"],
    )
