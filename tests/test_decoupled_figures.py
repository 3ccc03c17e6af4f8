"""Figures of chapter 7: what is drawn is what was given. Sliders: pictures, numbers and sentences agree with brute force."""

import itertools
import warnings
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from matplotlib.colors import to_hex

import hwdesign as hw
from hwdesign.lessons import figures, style
from hwdesign.lessons.figures.wide_deep import TERMS
from hwdesign.lessons.show import webp_uri
from hwdesign.timing.estimate import Breakdown
from hwdesign.timing.layouts import attention_kind


def ticks(axis):
    return [t.get_text() for t in axis.get_ticklabels()]


def legend(box):
    return [t.get_text() for t in box.get_texts()]


def curves(ax):
    return {line.get_label(): np.array(line.get_data()) for line in ax.lines if not line.get_label().startswith("_")}


# Who holds what -----------------------------------------------------------------------------------------------------------

PARTS = {"heads split": 3, "cut": 1.75, "weights": 0.5}  # where the three rows are drawn


def held(ax, rows, columns):
    """GPU to its filled cells (row, column) of each part, and the colour of each part."""
    found, colors = ({part: {} for part in PARTS}, {part: set() for part in PARTS})
    for box in ax.patches:
        x, y = box.get_x() + box.get_width() / 2, box.get_y() + box.get_height() / 2
        gpu, part = round(x), min(PARTS, key=lambda name: abs(PARTS[name] - y))
        row, column = (PARTS[part] + 0.42 - y) / box.get_height() - 0.5, (x - gpu + 0.42) / box.get_width() - 0.5
        assert np.allclose([row, column], np.round([row, column]), atol=1e-6)
        assert 0 <= round(row) < rows[part] and 0 <= round(column) < columns[part]
        assert box.get_width() == pytest.approx(0.84 / columns[part]) and box.get_height() == pytest.approx(0.84 / rows[part])
        if to_hex(box.get_facecolor()) != style.BACKGROUND:
            found[part].setdefault(gpu, []).append((round(row), round(column)))
            colors[part].add(to_hex(box.get_facecolor()))
    return found, colors


def shares(ax):
    """Part and GPU to the share that is written below."""
    found = {}
    for t in ax.texts:
        (x, y), text = t.get_position(), t.get_text()
        if text == "all" or text.startswith("1/"):
            part = min(PARTS, key=lambda name: abs(PARTS[name] - 0.58 - y))
            found[part, round(x)] = Fraction(1) if text == "all" else Fraction(text)
    return found


LAYOUTS = [(4, 2, 2), (4, 1, 1), (2, 4, 8), (2, 8, 8), (1, 1, 1), (3, 2, 2), (2, 2, 8), (1, 2, 4)]  # the last two: no copies


@pytest.mark.parametrize(("kvp", "tp", "heads"), LAYOUTS)
def test_the_drawing_shows_what_each_gpu_holds(kvp, tp, heads):
    ax, gpus = figures.layout_drawing(kvp, tp, heads), kvp * tp
    rows = {"heads split": heads, "cut": heads, "weights": 1}
    columns = {"heads split": kvp, "cut": kvp, "weights": gpus}
    (found, colors), written = held(ax, rows, columns), shares(ax)
    every = set(itertools.product(range(heads), range(kvp)))
    assert len(ax.patches) == gpus * (2 * len(every) + gpus) and len(written) == 3 * gpus
    assert all(len(c) == 1 for c in colors.values()) and len(set.union(*colors.values())) == 3
    for part, cells in found.items():
        assert sorted(cells) == list(range(gpus)) and all(len(set(c)) == len(c) for c in cells.values())
        for gpu, mine in cells.items():
            assert written[part, gpu] == Fraction(len(mine), rows[part] * columns[part])
    assert sorted(c for mine in found["cut"].values() for c in mine) == sorted(every)  # every piece of the cache once
    assert sorted(c for mine in found["weights"].values() for c in mine) == [(0, c) for c in range(gpus)]
    assert all(len({column for _, column in mine}) == 1 for mine in found["cut"].values())  # one piece a GPU
    copies = [c for mine in found["heads split"].values() for c in mine]
    assert {copies.count(c) for c in every} == {max(1, gpus // heads)}
    for mine in found["heads split"].values():  # whole heads, with all their tokens
        assert len({row for row, _ in mine}) == max(1, heads // gpus) and len(mine) == kvp * max(1, heads // gpus)
    names = [t.get_text() for t in ax.texts]
    assert [n.split("\n")[0] for n in names[-3:]] == ["cache,", "cache,", "feed-"]
    assert [n for n in names if n.startswith("GPU")] == [f"GPU {g}" for g in range(gpus)]
    assert ax.get_xlim()[1] >= gpus - 1 + 0.42 and not ax.axison


@pytest.mark.parametrize(("tp", "heads"), [(3, 8), (16, 8), (2, 1)])
def test_ways_that_do_not_divide_the_heads_are_refused(tp, heads):
    with pytest.raises(ValueError, match=f"tp must divide num_kv_heads = {heads}, got {tp}"):
        figures.layout_drawing(2, tp, heads)


# Bars ---------------------------------------------------------------------------------------------------------------------


def broken(memory=1.0, **terms):
    return Breakdown(terms={"projections": 0.0, "attention": 0.0, **terms}, memory=memory, capacity=2.0)


PANELS = {
    "128K": [broken(attention=1e-3, ffn=2e-3, communication=1e-3), broken(3.0, attention=9e-3, ffn=1e-3)],
    "1M": [broken(projections=1e-3, attention=3e-3), broken(attention=2e-3, head=0.5e-3)],
}


def test_bars_are_stacked_terms_and_hatched_where_they_do_not_fit():
    last = figures.layout_bars(["TP\n8", "KVP\n8"], PANELS)
    panels = sorted(last.figure.axes, key=lambda ax: -ax.get_position().y0)
    assert len(panels) == 2 and panels[-1] is last and ticks(last.xaxis) == ["TP\n8", "KVP\n8"]
    for ax, (title, steps) in zip(panels, PANELS.items(), strict=True):
        assert ax.get_title(loc="left") == title and ax.get_ylim()[0] == 0 and ax.get_ylabel() == "time of a step [ms]"
        for x, step in enumerate(steps):
            parts = [p for p in ax.patches if abs(p.get_x() + p.get_width() / 2 - x) < 0.01 and p.get_height() > 0]
            wanted = [(TERMS[n], 1e3 * step.terms[n]) for n in TERMS if step.terms.get(n)]
            assert [to_hex(p.get_facecolor()) for p in parts] == [c for c, _ in wanted]
            assert [p.get_height() for p in parts] == pytest.approx([h for _, h in wanted])
            assert [p.get_y() for p in parts] == pytest.approx([0, *np.cumsum([h for _, h in wanted])[:-1]])
            assert {p.get_hatch() or "" for p in parts} == {"" if step.feasible else "////"}
        labels = {round(t.get_position()[0]): t for t in ax.texts}
        assert [labels[x].get_text() for x in (0, 1)] == [f"{1e3 * s.seconds:.1f}" for s in steps]
        assert [labels[x].get_position()[1] for x in (0, 1)] == pytest.approx([1e3 * float(s.seconds) for s in steps])
        assert max(1e3 * s.seconds for s in steps) < 0.95 * ax.get_ylim()[1]  # and room for the number


def test_the_legend_of_the_bars_names_every_colour_that_is_drawn():
    last = figures.layout_bars(["a", "b"], PANELS)
    drawn = {to_hex(p.get_facecolor()) for ax in last.figure.axes for p in ax.patches if p.get_height() > 0}
    (box,) = last.figure.legends
    assert {TERMS[name] for name in legend(box)} == drawn and len(set(legend(box))) == len(legend(box))


def test_one_panel_will_do():
    below = figures.layout_bars(["a"], {"8K": [broken(attention=1e-3)]})
    assert below.figure.axes == [below] and legend(below.figure.legends[0]) == ["attention"]


# Maps ---------------------------------------------------------------------------------------------------------------------


def cell_colors(ax):
    (image,) = ax.images
    return np.vectorize(to_hex, signature="(n)->()")(image.cmap(image.norm(image.get_array())))


def letters(ax):
    found = {(t.get_position()[1], t.get_position()[0]): t.get_text() for t in ax.texts}
    return [[found[i, j] for j in range(1 + max(j for _, j in found))] for i in range(1 + max(i for i, _ in found))]


def test_the_map_shows_the_largest_terms_and_the_kinds():
    terms = [["experts", "attention", ""], ["communication", "small kernels", "head"]]
    kinds = [["tensor", "cache", ""], ["data", "tensor", "cache"]]
    ax = figures.dominant_map([1, 64], [8192, 2**19, 2**21], terms, kinds)
    wanted = [[TERMS.get(t, style.GRID) for t in row] for row in terms]
    assert cell_colors(ax).tolist() == wanted and ax.images[0].origin == "lower"
    assert letters(ax) == [["T", "C", "–"], ["D", "T", "C"]]
    assert ticks(ax.xaxis) == ["8K", "512K", "2M"] and ticks(ax.yaxis) == ["1", "64"]
    (box,) = ax.figure.legends
    names = dict(zip(legend(box), (to_hex(p.get_facecolor()) for p in box.get_patches()), strict=True))
    assert names == TERMS | {"does not fit": style.GRID}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("context [token]", "sequences in flight")


@pytest.mark.parametrize("name", TERMS)
def test_every_term_has_its_colour_in_the_map(name):
    ax = figures.dominant_map([1], [1024], [[name]], [["data"]])
    assert cell_colors(ax).tolist() == [[TERMS[name]]]
    assert legend(ax.figure.legends[0]) == [*TERMS, "does not fit"]  # as in every frame


# Fronts and crossings -----------------------------------------------------------------------------------------------------


def test_crossings_are_bars_between_numbers_of_users():
    context, published = [2**15, 2**16, 2**18], [[8, 16], [4, 8], [np.nan, 1]]
    modelled = {"NVFP4": [15, 8, 1], "FP8": np.array([12.0, 6, 1])}
    ax = figures.crossings(context, published, modelled)
    drawn = curves(ax)
    assert list(drawn) == ["NVFP4", "FP8", "published: between", "published: wins already with it"] == legend(ax.get_legend())
    assert all(np.array_equal(drawn[name], [context, y]) for name, y in modelled.items())
    bars = [np.array(line.get_data()).tolist() for line in ax.lines[2:]]
    assert bars == [[[2**15] * 2, [8, 16]], [[2**16] * 2, [4, 8]], [[2**18], [1]]]
    assert [line.get_marker() for line in ax.lines[2:]] == ["None", "None", "v"]  # at once: an arrow down
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log") and ticks(ax.xaxis) == ["32K", "64K", "256K"]
    assert ax.get_ylim()[0] <= 1 and ax.get_ylim()[1] >= 16 and set(map(float, ticks(ax.yaxis))) >= {1, 2, 4, 8, 16}


def test_charts_can_have_a_level_and_a_legend_in_its_place():
    plain = figures.line_chart([1, 2], {"a": [1, 2], "b": [2, 3]}, xlabel="x", ylabel="y")
    ax = figures.line_chart([1, 2], {"a": [1, 2], "b": [2, 3]}, xlabel="x", ylabel="y", level=1.5, legend="upper left")
    assert len(ax.lines) == len(plain.lines) + 1 == 3 and list(ax.lines[-1].get_ydata()) == [1.5, 1.5]
    assert ax.lines[-1].get_linestyle() == ":" and legend(ax.get_legend()) == ["a", "b"]
    assert (ax.get_legend()._loc, plain.get_legend()._loc) == (2, 0)


# All figures --------------------------------------------------------------------------------------------------------------

DRAW = {
    "layout_drawing": (figures.layout_drawing, (2, 2, 2)),
    "layout_bars": (figures.layout_bars, (["a", "b"], PANELS)),
    "dominant_map": (figures.dominant_map, ([1, 2], [1024, 2048], np.array([["ffn", ""]] * 2), np.array([["data", ""]] * 2))),
    "crossings": (figures.crossings, ([1024, 2048], np.array([[np.nan, 8], [2, 4]]), {"a": np.array([3.0, 2])})),
}


@pytest.mark.parametrize("name", DRAW)
def test_figures_leave_what_they_are_given_and_draw_it_the_same_way_again(name):
    draw, given = DRAW[name]
    before = repr(given)
    first, second = (webp_uri(draw(*given)) for _ in range(2))
    assert first == second and repr(given) == before
    ax = style.axes()
    figure = ax.figure
    assert draw(*given, ax=ax).figure is figure


# Sliders ------------------------------------------------------------------------------------------------------------------

BATCH, CONTEXT, COUNTS = np.array([1, 4, 16, 64, 256]), 2 ** np.arange(13, 21), (2, 8, 16)
NAMES = {"tensor": "tensor parallel", "data": "data parallel", "cache": "cache parallel"}


@pytest.fixture(scope="module")
def sweep():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        load = {"batch": BATCH[:, None], "context": CONTEXT, "gpus": COUNTS}
        return hw.decode_sweep(hw.Model.from_config("deepseek-r1"), "GB300", "nvfp4", **load)


def fastest(sweep, at, wanted):
    """Index and time of the fastest layout that fits and is wanted, one by one."""
    ways = [(sweep["seconds"][i][at], i) for i in range(len(sweep["layouts"])) if wanted(i) and sweep["feasible"][i][at]]
    return min(ways) if ways else (np.nan, None)


def frames_of(explorer):
    return [explorer.draw(i) for i in range(len(explorer.values))]


def test_the_slider_of_gpus_shows_the_fastest_step_of_each_cell(sweep):
    explorer = figures.explore_gpus(sweep, BATCH, CONTEXT)
    frames = frames_of(explorer)
    assert explorer.values == ["2", "8", "16"] and explorer.name == "gpus" and explorer.kinds == ("modelled",)
    empty = 0
    for gpus, frame in zip(COUNTS, frames, strict=True):
        seconds, kinds, terms = (np.full((5, 8), fill, object) for fill in (np.nan, "", ""))
        for at in np.ndindex(5, 8):
            seconds[at], i = fastest(sweep, at, lambda i, gpus=gpus: sweep["layouts"][i][0].gpus == gpus)
            if i is not None:
                kinds[at] = attention_kind(sweep["layouts"][i][0])
                spent = {name: float(np.broadcast_to(x, (5, 8))[at]) for name, x in sweep["steps"][i].terms.items()}
                assert sum(spent.values()) == pytest.approx(seconds[at])
                terms[at] = max(spent, key=spent.get)
        share = {kind: float((kinds == kind).mean()) for kind in (*NAMES, "")}
        assert np.array_equal(np.array(frame.data.pop("seconds")), seconds.astype(float), equal_nan=True)
        assert frame.data == share
        said = [f"{NAMES.get(kind, 'nothing fits')} in {x:.0%}" for kind, x in share.items() if x]
        assert frame.text == f"{gpus} GPUs: {', '.join(said)} of the fields." and frame.text in frame.alt
        assert cell_colors(frame.ax).tolist() == [[TERMS.get(t, style.GRID) for t in row] for row in terms]
        assert letters(frame.ax) == [[{"": "–"}.get(k, k[:1].upper()) for k in row] for row in kinds]
        for name in TERMS:
            part = (terms == name).mean()
            assert (f"{name} in {part:.0%}" in frame.alt) == (part > 0)
        assert ticks(frame.ax.xaxis)[-2:] == ["512K", "1M"] and ticks(frame.ax.yaxis) == list(map(str, BATCH))
        empty += share[""]
    assert empty > 0 and len({webp_uri(f.ax) for f in frames}) == len({f.alt for f in frames}) == len(frames)


def test_the_slider_of_gpus_looks_at_these_gpus_alone(sweep):
    slower = sweep | {"seconds": sweep["seconds"] * np.where(sweep["gpus"] > 8, 100, 1)[:, None, None]}
    eight, sixteen = (np.array(figures.explore_gpus(slower, BATCH, CONTEXT).draw(i).data["seconds"]) for i in (1, 2))
    assert np.nanmin(sixteen) > np.nanmin(eight)
    least = np.where(sweep["feasible"], sweep["seconds"], np.inf)[sweep["gpus"] == 16].min(axis=0)
    assert np.allclose(sixteen, np.where(np.isinf(least), np.nan, 100 * least), equal_nan=True)


def test_the_slider_of_sequences_shows_the_fastest_step_of_each_kind(sweep):
    explorer = figures.explore_batch(sweep, BATCH, CONTEXT)
    frames = frames_of(explorer)
    assert explorer.values == list(map(str, BATCH)) and explorer.name == "batch" and explorer.kinds == ("modelled",)
    labels, cut = ["8K", "16K", "32K", "64K", "128K", "256K", "512K", "1M"], {}
    for i, (n, frame) in enumerate(zip(BATCH, frames, strict=True)):
        wanted = {
            kind: [fastest(sweep, (i, j), lambda x, kind=kind: sweep["kinds"][x] == kind)[0] for j in range(8)] for kind in NAMES
        }
        assert list(frame.data) == list(NAMES) and np.allclose(list(frame.data.values()), list(wanted.values()), equal_nan=True)
        drawn = curves(frame.ax)
        assert list(drawn) == list(NAMES.values())
        for kind, y in wanted.items():
            assert np.allclose(drawn[NAMES[kind]], [CONTEXT, 1e3 * np.array(y)], equal_nan=True)
        won = [j for j in range(8) if wanted["cache"][j] < np.fmin(wanted["tensor"][j], np.fmin(wanted["data"][j], np.inf))]
        said = f"cutting is fastest from {labels[won[0]]} to {labels[won[-1]]}" if won else "cutting is nowhere fastest"
        assert won == list(range(won[0], won[-1] + 1)) if won else True  # or the sentence would not be true
        assert frame.text == f"{n} sequence{'s' if n > 1 else ''}: {said}." and frame.text in frame.alt
        assert frame.ax.get_ylim() == frames[0].ax.get_ylim() and ticks(frame.ax.xaxis) == labels
        low, high = frame.ax.get_ylim()
        there = 1e3 * np.array(list(wanted.values()))
        assert low < np.nanmin(there) and np.nanmax(there) < high
        cut[n] = won
    assert cut[1] and len({webp_uri(f.ax) for f in frames}) == len({f.alt for f in frames}) == len(frames)


def test_where_no_cell_fits_the_sliders_say_so():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        load = {"batch": BATCH[:, None], "context": CONTEXT}
        r1 = hw.Model.from_config("deepseek-r1")
        found = hw.decode_sweep(r1, "GB300", "nvfp4", **load, gpus=(1, 2))
        nothing = hw.decode_sweep(r1, "GB300", "nvfp4", **load, gpus=(1,))
    frame = figures.explore_gpus(found, BATCH, CONTEXT).draw(0)
    assert frame.text == "1 GPU: nothing fits in 100% of the fields." and " is ." not in frame.alt
    assert "nowhere" in figures.explore_batch(nothing, BATCH, CONTEXT).draw(0).text
