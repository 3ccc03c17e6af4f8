"""Figures of the last chapter: verdicts of many models, costs of one, pairs of published servers,
and a walk of changes.
"""

import itertools

import numpy as np
from matplotlib.patches import Rectangle

from hwdesign.advice.checklist import checklist
from hwdesign.lessons import style
from hwdesign.lessons.explore import Explorer, Frame
from hwdesign.lessons.studies.verdicts import SHORT, WORDS, verdict_cost

FILLS = {
    "ok": ("#dcefe6", style.GREEN),
    "warn": ("#fbe6c8", "#7a4a00"),
    "fail": ("#f6d0c8", "#8c1d0a"),
    "break": ("#e9d8f2", "#5b1a73"),
    "not applicable": ("#eef1f4", style.GREY),
    "not modelled": ("#ffffff", style.GREY),
}


@style.styled
def verdict_map(found, *, ax=None):
    """Verdicts of many models: a row a model, a column a guideline, the cost in each cell.

    Parameters
    ----------
    found : mapping of str to sequence of Verdict
        Name to its seven verdicts, from top to bottom.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: guidelines, y: models; cells hold the verdict and its cost [per cent of a step], with a c
        where it is that of the cache.

    Notes
    -----
    Source: `hwdesign.advice.checklist`.

    Examples
    --------
    >>> from hwdesign.lessons.studies.verdicts import gallery
    >>> len(verdict_map(gallery(["gpt2", "llama-3.1-8b"])).texts)
    14
    """
    ax = ax or style.axes(height=1.2 + 0.42 * len(found))  # two lines a cell: readable on a phone
    for row, verdicts in enumerate(found.values()):
        for column, verdict in enumerate(verdicts):
            face, ink = FILLS[verdict.status]
            ax.add_patch(_cell(column, row, face))
            text = WORDS.get(verdict.status, verdict.status)
            if priced := [f for f in verdict.findings if f.cost is not None]:
                dearest = max(priced, key=lambda f: f.cost)
                mark = " c" if dearest.dimension == "cache" else ""
                text += f"\n{100 * dearest.cost:.0f}{mark}"
            weight = "bold" if verdict.status in ("fail", "break") else "normal"
            ax.text(
                column,
                row,
                text,
                ha="center",
                va="center",
                fontsize=9.5,
                color=ink,
                weight=weight,
                linespacing=1.0,
            )
    ax.set_xlim(-0.5, len(SHORT) - 0.5)
    ax.set_ylim(len(found) - 0.5, -0.5)
    heads = [f"{n}\n" + name.replace("-", "-\n").replace(" ", "\n") for n, name in SHORT.items()]
    ax.set_xticks(range(len(SHORT)), heads, fontsize=8.5)
    ax.xaxis.tick_top()
    ax.set_yticks(range(len(found)), list(found), fontsize=9)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    return ax


def _cell(column, row, face):
    return Rectangle((column - 0.47, row - 0.44), 0.94, 0.88, facecolor=face, edgecolor="none")


@style.styled
def cost_bars(found, *, most=None, ax=None):
    """Cost of each guideline in one checklist, with its verdict.

    Parameters
    ----------
    found : Checklist
        Seven verdicts.
    most : float, optional
        End of the axis [per cent].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: cost [per cent of the step], y: guidelines; dotted lines at the limits.

    Notes
    -----
    Source: `hwdesign.advice.checklist`.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.models import config
    >>> cost_bars(checklist(Case(model=config.load("gpt2")))).get_xlabel()
    'cost [% of the step]'
    """
    ax = ax or style.axes(height=3.4)
    for row, verdict in enumerate(found.verdicts):
        known = verdict_cost(verdict)
        cost = 100 * (known or 0.0)
        face, ink = FILLS[verdict.status]
        ax.barh(
            row,
            cost,
            0.62,
            color=ink,
            hatch="//" if verdict.status == "warn" else None,
            edgecolor=face,
        )
        ax.annotate(
            WORDS.get(verdict.status, verdict.status)
            + ("" if verdict_cost(verdict) is None else f"  {cost:.1f}"),
            (cost, row),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=ink,
        )
    for limit in (found.limits.warn, found.limits.fail):
        ax.axvline(100 * limit, color=style.GREY, ls=":", lw=1.2)
    ax.set_yticks(range(len(SHORT)), [f"{n} {name}" for n, name in SHORT.items()])
    ax.set_ylim(len(SHORT) - 0.4, -0.6)
    ax.set_xlim(0, most or max(25, *(120 * (verdict_cost(v) or 0) for v in found.verdicts)))
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("cost [% of the step]")
    return ax


@style.styled
def pair_scatter(series, *, ax=None):
    """Ratios of two published servers against the same two by the model.

    Parameters
    ----------
    series : mapping of str to (array_like, array_like)
        Label to modelled and published ratio, second over first [dimensionless].
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: modelled ratio, y: published ratio; a cross a pair, the diagonal, and lines at 1.

    Notes
    -----
    Source: `hwdesign.lessons.studies.verdicts.served_pairs`.

    Examples
    --------
    >>> pair_scatter({"R1": ([0.8], [0.9])}).get_xlabel()
    'time of the second over the first, modelled'
    """
    ax = ax or style.axes(height=4.2)
    both = np.concatenate([np.ravel(values) for pair in series.values() for values in pair])
    low, high = min(0.75, both.min()) - 0.03, max(1.1, both.max()) + 0.05
    ax.fill_between([low, 1], 1, high, color="#f6d0c8", alpha=0.5, lw=0)
    ax.plot([low, high], [low, high], color=style.GREY, lw=1)
    ax.axhline(1, color=style.GREY, ls="--", lw=1)
    looks = zip((style.BLUE, style.ORANGE, style.GREEN, style.PURPLE), "x+1*", strict=True)
    for (label, (modelled, published)), (color, marker) in zip(series.items(), looks, strict=False):
        ax.plot(modelled, published, marker, color=color, ms=7, mew=1.6, label=label)
    ax.set_xlim(low, 1.02)
    ax.set_ylim(low, high)
    ax.text(low + 0.01, high - 0.02, "wrong sign", va="top", fontsize=9, color="#8c1d0a")
    ax.set_xlabel("time of the second over the first, modelled")
    ax.set_ylabel("the same, published")
    ax.legend(fontsize=9, loc="lower right")
    return ax


@style.styled
def change_steps(seconds, *, split=None, ax=None):
    """Time of a step after one change after the other.

    Parameters
    ----------
    seconds : mapping of str to float
        Label of the change to the time after it [s]; the first is the start.
    split : int, optional
        How many of the changes, the start counted, touch the deployment alone; the others change
        the model.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: time of the step [ms], y: changes.

    Examples
    --------
    >>> change_steps({"start": 2e-3, "less": 1e-3}).get_xlabel()
    'time of a step [ms]'
    """
    ax = ax or style.axes(height=1.2 + 0.42 * len(seconds))
    times = 1e3 * np.array(list(seconds.values()))
    split = len(times) if split is None else split
    colors = [style.GREY, *[style.BLUE] * (split - 1), *[style.ORANGE] * (len(times) - split)]
    bars = ax.barh(range(len(times)), times, 0.62, color=colors)
    changed = [""] + [f"  ({now / before - 1:+.0%})" for before, now in itertools.pairwise(times)]
    ax.bar_label(
        bars,
        [f"{time:.1f}{change}" for time, change in zip(times, changed, strict=True)],
        fontsize=9,
        padding=4,
    )
    ax.set_yticks(range(len(times)), list(seconds))
    ax.set_ylim(len(times) - 0.4, -0.6)
    ax.set_xlim(0, 1.25 * times.max())
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("time of a step [ms]")
    return ax


def explore_load(cases):
    """Slider over the load of a deployment: the seven verdicts and their costs.

    Parameters
    ----------
    cases : sequence of Case
        The same deployment at rising numbers of sequences.

    Returns
    -------
    Explorer
        Frame data: batch, and the cost of each guideline by its number, as a share of the step
        [dimensionless].

    Notes
    -----
    Source: `hwdesign.advice.checklist`.

    Examples
    --------
    >>> from hwdesign.advice.case import Case
    >>> from hwdesign.models import config
    >>> explore_load([Case(model=config.load("gpt2"), batch=batch) for batch in (1, 64)])
    <Explorer load: sequences in flight over 1 to 64>
    """
    found = [checklist(case) for case in cases]
    most = max(25, *(115 * (verdict_cost(v) or 0) for each in found for v in each.verdicts))

    def draw(i):
        verdicts, case = found[i].verdicts, found[i].case
        told = [
            f"{v.guideline} {v.status} {100 * verdict_cost(v):.1f} %"
            for v in verdicts
            if verdict_cost(v) is not None
        ]
        seen = (
            f"{case.batch} sequence{'s' * (case.batch > 1)} in flight, "
            f"{1e3 * case.seconds:.3g} ms a step"
        )
        text = f"{seen}. {'; '.join(told) or 'No finding'}."
        alt = f"Cost of each guideline in per cent of the step, as bars. {text}"
        data = {"batch": case.batch} | {str(v.guideline): verdict_cost(v) for v in verdicts}
        return Frame(ax=cost_bars(found[i], most=most), alt=alt, text=text, data=data)

    caption = (
        "Cost of each guideline against its fix. Dotted: the limits of a warning and of a failure."
    )
    return Explorer(
        "load",
        "sequences in flight",
        [case.batch for case in cases],
        draw,
        caption=caption,
        kinds=["modelled"],
    )
