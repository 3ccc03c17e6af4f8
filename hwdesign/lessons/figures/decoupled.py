"""Figures of chapter 7, decoupled attention and feed-forward: who holds what, steps by layout, the
front, where a cut pays.
"""

import numpy as np
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.patches import Patch, Rectangle

from hwdesign._check import whole
from hwdesign.lessons import style
from hwdesign.lessons.figures.charts import lines
from hwdesign.lessons.figures.wide_deep import TERMS

FAMILY = {
    "tensor": ("T", style.ORANGE, "o", "-"),
    "data": ("D", style.BLUE, "s", "--"),
    "cache": ("C", style.GREEN, "^", "-."),
}  # kinds of attention plans: letter in the map, colour, marker, line


def tokens(count):
    """A number of tokens as it is spoken: 8K is 8192.

    Parameters
    ----------
    count : float
        Tokens [token].

    Returns
    -------
    str
        With K or M, binary.

    Notes
    -----
    Source: custom of the field.

    Examples
    --------
    >>> [tokens(n) for n in (1000, 8192, 2**20)]
    ['1000', '8K', '1M']
    """
    for size, letter in ((2**20, "M"), (2**10, "K")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return f"{count:g}"


def _grid(ax, at, rows, columns, held, color, size=0.84):
    """A cell of a drawing: a rectangle of `rows` by `columns` pieces around `at`, with the pieces
    that are held filled.
    """
    width, height = size / columns, size / rows
    left, top = at[0] - size / 2, at[1] + size / 2
    for r in range(rows):
        for c in range(columns):
            face = color if (r, c) in held else style.BACKGROUND
            box = Rectangle(
                (left + c * width, top - (r + 1) * height),
                width,
                height,
                facecolor=face,
                edgecolor=style.GREY,
                lw=0.6,
            )
            ax.add_patch(box)


@style.styled
def layout_drawing(kvp, tp, num_kv_heads, *, ax=None):
    """Who holds what: the cache under tensor parallelism and cut along the sequence, and the
    weights of the other part.

    Parameters
    ----------
    kvp, tp : int
        Pieces of the sequence, and ways of the heads; together the GPUs.
    num_kv_heads : int
        Key-value heads of the model; `tp` divides them.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        A row a part, a column a GPU; no units.

    Raises
    ------
    ValueError
        If `tp` does not divide `num_kv_heads`, or GPUs and heads do not divide one another.

    Notes
    -----
    Source: after Helix, arXiv 2507.07120.

    Examples
    --------
    >>> [t.get_text() for t in layout_drawing(2, 1, 1).texts][:4]
    ['GPU 0', 'all', '1/2', '1/2']
    """
    kvp, tp, num_kv_heads = whole(kvp=kvp, tp=tp, num_kv_heads=num_kv_heads)
    if num_kv_heads % tp:
        raise ValueError(f"tp must divide num_kv_heads = {num_kv_heads}, got {tp}")
    if min(num_kv_heads % (kvp * tp), kvp * tp % num_kv_heads):
        raise ValueError(
            f"kvp * tp and num_kv_heads = {num_kv_heads} must divide one another, got {kvp} * {tp}"
        )
    ax, gpus, share = ax or style.axes(height=3.9), kvp * tp, num_kv_heads // tp
    ways = min(gpus, num_kv_heads)  # heads are split so far, then copied
    names = ("cache,\nheads split", "cache,\nsequence\ncut, too", "feed-\nforward\nweights")
    colors = (FAMILY["tensor"][1], FAMILY["cache"][1], style.INK)
    for g in range(gpus):
        ax.text(g, 3.55, f"GPU {g}", ha="center", fontsize=8)
        group, piece = divmod(g, kvp)
        alone, first = num_kv_heads // ways, g * ways // gpus * (num_kv_heads // ways)
        held = (
            {(first + i, c) for i in range(alone) for c in range(kvp)},
            {(group * share + i, piece) for i in range(share)},
            {(0, g)},
        )
        for y, cells, color, rows, columns in zip(
            (3, 1.75, 0.5),
            held,
            colors,
            (num_kv_heads, num_kv_heads, 1),
            (kvp, kvp, gpus),
            strict=True,
        ):
            _grid(ax, (g, y), rows, columns, cells, color)
            part = rows * columns // len(cells)
            ax.text(g, y - 0.58, f"1/{part}" if part > 1 else "all", ha="center", fontsize=8)
    for y, name in zip((3, 1.75, 0.5), names, strict=True):
        ax.text(-0.72, y, name, ha="right", va="center", fontsize=8.5)
    ax.set_xlim(-2.0, gpus - 0.4)
    ax.set_ylim(-0.25, 3.8)
    ax.axis("off")
    return ax


@style.styled
def layout_bars(labels, panels, *, ax=None):
    """Stacked time of a step by what it is spent on, a bar a layout, a panel a context.

    Parameters
    ----------
    labels : sequence of str, length l
        Layouts.
    panels : mapping of str to sequence of Breakdown, length l
        Title of a panel to the steps [s]; what does not fit into memory is hatched.
    ax : matplotlib.axes.Axes, optional
        Axes whose figure is taken.

    Returns
    -------
    matplotlib.axes.Axes
        The lowest panel; x: layouts, y: time of a step [ms].

    Notes
    -----
    Source: `hwdesign.timing.estimate`.

    Examples
    --------
    >>> from hwdesign.timing.estimate import Breakdown
    >>> b = Breakdown(terms={"attention": 1e-3}, memory=1.0, capacity=2.0)
    >>> layout_bars(["TP 8"], {"128K": [b]}).get_ylabel()
    'time of a step [ms]'
    """
    first = ax or style.axes(height=1.4 + 1.9 * len(panels))
    figure = first.figure
    first.remove()
    rows = np.atleast_1d(figure.subplots(len(panels), 1, sharex=True))
    at = np.arange(len(labels))
    for panel, (title, steps) in zip(rows, panels.items(), strict=True):
        foot = np.zeros(len(labels))
        hatch = ["" if s.feasible else "////" for s in steps]
        for term, color in TERMS.items():
            height = np.array([1e3 * float(s.terms.get(term, 0.0)) for s in steps])
            if height.any():
                panel.bar(
                    at,
                    height,
                    0.66,
                    bottom=foot,
                    color=color,
                    hatch=hatch,
                    edgecolor=style.BACKGROUND,
                    lw=0.3,
                    label=term,
                )
                foot = foot + height
        for x, total in zip(at, foot, strict=True):
            panel.text(x, total, f"{total:.1f}", ha="center", va="bottom", fontsize=8.5)
        panel.set_ylim(0, 1.15 * foot.max())
        panel.set_title(title, fontsize=10, loc="left")
        panel.set_ylabel("time of a step [ms]")
        panel.grid(axis="x", visible=False)
    rows[-1].set_xticks(at, labels, fontsize=8.5)
    drawn = {
        name: bars
        for panel in rows
        for bars, name in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    named = {name: drawn[name] for name in TERMS if name in drawn}
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=3, fontsize=9)
    return rows[-1]


@style.styled
def dominant_map(batch, context, terms, kinds, *, ax=None):
    """What the largest part of the best step is, over batch and context, with a letter for how its
    attention is spread.

    Parameters
    ----------
    batch : sequence of int, length b
        Sequences in flight.
    context : sequence of int, length c
        Tokens that each sees [token].
    terms : array_like of str, shape (b, c)
        Largest term of the step, "" where no layout fits.
    kinds : array_like of str, shape (b, c)
        Kind of the attention plan, see `hwdesign.timing.layouts.attention_kind`.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: context [token], y: batch.

    Notes
    -----
    Source: `hwdesign.timing.layouts`.

    Examples
    --------
    >>> dominant_map([1], [1024, 2048], [["ffn", ""]], [["tensor", ""]]).get_xlabel()
    'context [token]'
    """
    ax, names = ax or style.axes(height=4.6), [*TERMS, ""]
    terms, kinds = np.asarray(terms), np.asarray(kinds)
    shown = np.vectorize(names.index)(terms)
    colors = ListedColormap([*TERMS.values(), style.GRID])
    ax.imshow(shown, cmap=colors, vmin=0, vmax=len(names) - 1, origin="lower", aspect="auto")
    for (i, j), kind in np.ndenumerate(kinds):
        ink = (
            style.BACKGROUND if sum(to_rgb(colors(int(shown[i, j])))) < 1.5 else style.INK
        )  # what can be read on it
        ax.text(
            j,
            i,
            FAMILY[str(kind)][0] if kind else "–",
            ha="center",
            va="center",
            fontsize=10,
            color=ink,
        )
    ax.set_xticks(range(len(context)), [tokens(c) for c in context])
    ax.set_yticks(range(len(batch)), batch)
    ax.grid(visible=False)
    ax.set_xlabel("context [token]")
    ax.set_ylabel("sequences in flight")
    there = [
        Patch(color=color, label=name or "does not fit")
        for name, color in (TERMS | {"": style.GRID}).items()
    ]
    ax.figure.legend(handles=there, loc="outside lower center", ncols=4, fontsize=8.5)
    return ax


@style.styled
def crossings(context, published, modelled, *, ax=None):
    """From which concurrency cutting the cache wins, against the context.

    Parameters
    ----------
    context : array_like of int, shape (s,)
        Tokens of a sequence [token].
    published : array_like of float, shape (s, 2)
        Concurrencies between which the cut began to win; NaN first where it won at the second, the
        least that was tried.
    modelled : mapping of str to array_like, shape (s,)
        Label to concurrencies.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        x: context [token] (log), y: sequences in flight (log).

    Notes
    -----
    Source: `hwdesign.catalogue.decoupled`.

    Examples
    --------
    >>> crossings([1024, 2048], [[8, 16], [float("nan"), 1]], {"a": [12.0, 6.0]}).get_ylabel()
    'sequences in flight'
    """
    ax = lines(ax or style.axes(height=4.0), context, modelled)
    for i, (x, (start, end)) in enumerate(zip(context, published, strict=True)):
        look = {"color": style.INK, "alpha": 0.45}
        if np.isnan(start):
            ax.plot(x, end, "v", ms=9, label="published: wins already with it", **look)
        else:
            ax.plot(
                [x, x],
                [start, end],
                lw=5,
                solid_capstyle="butt",
                label=None if i else "published: between",
                **look,
            )
    ax.set_xscale("log")
    ax.set_yscale("log")
    style.plain_ticks(ax.xaxis, context, [tokens(c) for c in context])
    style.plain_ticks(ax.yaxis, [0.5, 1, 2, 4, 8, 16, 32, 64])
    ax.set_xlabel("context [token]")
    ax.set_ylabel("sequences in flight")
    ax.legend(fontsize=9)
    return ax
