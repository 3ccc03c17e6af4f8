"""Figures of chapter 6: what is drawn is what was given. Sliders: pictures, numbers and sentences agree."""

import re

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from matplotlib.colors import to_hex

import hwdesign as hw
from hwdesign.formulas.pipeline import schedule, split_layers
from hwdesign.lessons import figures, style
from hwdesign.lessons.figures.pipeline_sliders import CHUNKS, LAYERS, STAGES
from hwdesign.lessons.show import webp_uri
from hwdesign.timing.pipeline import block_times

STARTS = np.array([[0.0, 1.0, 3.5], [1.0, 3.0, 4.0], [4.0, 6.0, 7.25]])
ENDS = np.array([[1.0, 3.0, 4.0], [3.0, 4.0, 4.01], [6.0, 7.0, 8.0]])


def bars(ax):
    """(row, left end, right end) of each bar."""
    boxes = [path.get_extents() for c in ax.collections for path in c.get_paths()]
    return np.array([((b.y0 + b.y1) / 2, b.x0, b.x1) for b in boxes])


def tints(ax):
    """Colour of each bar, with its opacity."""
    return np.concatenate([c.get_facecolors() for c in ax.collections])


def sequence(ax):
    """Texts in the axes as (x, y, text)."""
    return [(*t.get_position(), t.get_text()) for t in ax.texts]


def legend(box):
    return [t.get_text() for t in box.get_texts()]


def curves(ax):
    """Label to x and y of the lines that have one."""
    return {line.get_label(): np.array(line.get_data()).tolist() for line in ax.lines if not line.get_label().startswith("_")}


def crosses(ax):
    return [(np.array(line.get_data()).tolist(), to_hex(line.get_color())) for line in ax.lines if line.get_marker() == "x"]


def ticks(axis):
    return [t.get_text() for t in axis.get_ticklabels()]


# Charts of what each stage does -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "scale"), [("ms", 1e3), ("s", 1.0)])
def test_a_chart_has_a_bar_from_each_start_to_each_end(unit, scale):
    ax = figures.gantt(STARTS, ENDS, unit=unit)
    wanted = [(s, scale * STARTS[i, s], scale * ENDS[i, s]) for i in range(3) for s in range(3)]
    assert np.allclose(bars(ax), wanted, rtol=1e-12)
    named = [(scale * (STARTS[i, s] + ENDS[i, s]) / 2, s, str(i + 1)) for i in range(3) for s in range(3) if (i, s) != (1, 2)]
    found = sequence(ax)
    assert [t[2] for t in found] == [t[2] for t in named]  # no number where a bar is too narrow for one
    assert np.allclose([t[:2] for t in found], [t[:2] for t in named])
    (last,) = ax.lines
    assert list(last.get_xdata()) == [8 * scale] * 2 and last.get_linestyle() == "--"
    assert ax.get_xlim() == pytest.approx((0, 1.02 * 8 * scale)) and ax.get_xlabel() == f"time [{unit}]"
    assert ax.get_ylabel() == "stage" and ticks(ax.yaxis) == ["1", "2", "3"] and list(ax.get_yticks()) == [0, 1, 2]
    assert ax.get_ylim()[0] > 2.43 and ax.get_ylim()[1] < -0.43  # the first stage on top, no bar cut off
    fade = tints(ax)[:, 3].reshape(3, 3)
    assert (np.ptp(fade, axis=1) == 0).all() and (np.diff(fade[:, 0]) > 0).all() and fade[2, 0] == 1
    assert {to_hex(color) for color in tints(ax)} == {style.BLUE}


def test_charts_with_one_end_can_be_compared():
    ax = figures.gantt(STARTS, ENDS, end=20.0)
    assert ax.get_xlim()[1] == pytest.approx(20.4e3) and ax.lines[0].get_xdata()[0] == 8000
    assert len(ax.texts) < len(figures.gantt(STARTS, ENDS).texts)  # bars are narrower now
    given = style.axes()
    assert figures.gantt([[0.0]], [[1.0]], ax=given) is given and len(bars(given)) == 1
    with pytest.raises(KeyError):
        figures.gantt(STARTS, ENDS, unit="min")


def test_a_chart_of_many_stages_has_no_numbers_and_few_ticks():
    starts, ends = schedule(np.ones((2, 24)))
    ax = figures.gantt(starts, ends)
    assert len(bars(ax)) == 48 and not ax.texts and ticks(ax.yaxis) == ["1", "4", "7", "10", "13", "16", "19", "22"]
    sixteen = figures.gantt(*schedule(np.ones((2, 16))))
    assert len(sixteen.texts) == 32 and ticks(sixteen.yaxis) == ["1", "3", "5", "7", "9", "11", "13", "15"]


def test_the_map_of_the_bubble_shows_idle_over_working_time():
    stages, chunks = [1, 2, 4, 8], [1, 3, 32, 200]
    ax = figures.bubble_map(stages, chunks)
    found = {(y, x): text for x, y, text in sequence(ax)}
    assert len(found) == 16
    for (i, j), text in found.items():
        idle = 100 * (stages[i] - 1) / chunks[j]
        assert float(text) == pytest.approx(idle, abs=0.5 if idle >= 1 else 0.05)
    assert found[3, 2] == "22" and found[2, 1] == "100" and found[1, 3] == "0.5" and found[0, 0] == "0.0"
    assert ticks(ax.xaxis) == ["1", "3", "32", "200"] and ticks(ax.yaxis) == ["1", "2", "4", "8"]
    shade = ax.images[0].get_array()
    assert shade.shape == (4, 4) and (np.diff(shade, axis=0) >= 0).all() and (np.diff(shade, axis=1) <= 0).all()
    assert shade[3, 0] == pytest.approx(np.log10(700)) and shade.max() <= ax.images[0].norm.vmax
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("chunks", "stages")


# Curves -------------------------------------------------------------------------------------------------------------------


def test_profiles_show_sizes_in_thousands_and_times_in_milliseconds():
    sizes = {"equal": [4096, 4096, 4096], "shrinking": np.array([8192, 2048, 1024, 1024])}
    times = {"equal": [1e-3, 2e-3, 3e-3], "shrinking": np.array([2e-3, 2.5e-3, 2e-3, 2.25e-3])}
    below = figures.chunk_profile(sizes, times)
    above = next(ax for ax in below.figure.axes if ax is not below)
    assert len(below.figure.axes) == 2 and above.get_position().y0 > below.get_position().y0
    for ax, values, scale in ((above, sizes, 1e-3), (below, times, 1e3)):
        drawn = curves(ax)
        assert list(drawn) == ["equal", "shrinking"] and ax.get_ylim()[0] == 0
        for name, y in values.items():
            assert drawn[name][0] == list(range(1, len(y) + 1)) and drawn[name][1] == pytest.approx(scale * np.array(y))
    assert above.get_ylabel() == "size [1000 token]" and below.get_ylabel() == "time [ms]"
    assert below.get_xlabel() == "chunk, in order" and legend(above.get_legend()) == ["equal", "shrinking"]
    assert [a.get_color() for a in above.lines] == [b.get_color() for b in below.lines] != [above.lines[0].get_color()] * 2


def test_no_way_to_cut_is_left_out_in_silence():
    names = [f"way {i}" for i in range(5)]
    below = figures.chunk_profile({n: [2, 1] for n in names}, {n: [1, 2] for n in names})
    assert [list(curves(ax)) for ax in below.figure.axes] == [names, names]


def test_curves_and_crosses_are_where_they_were_given():
    x, given = [1, 2, 4, 8], {"a": [8, 4, 2, 1], "b": np.array([3.0, np.nan, 5, 6])}
    points = {"b": ([2, 4], [3.5, 4.5])}
    ax = figures.line_chart(x, given, xlabel="stages", ylabel="time [s]", points=points, yticks=[1, 5])
    drawn = curves(ax)
    assert list(drawn) == ["a", "b"] and drawn["a"] == [x, [8, 4, 2, 1]]
    assert drawn["b"][0] == x and np.array_equal(drawn["b"][1], given["b"], equal_nan=True)
    (cross,) = crosses(ax)
    b = next(line for line in ax.lines if line.get_label() == "b")
    assert cross == ([[2, 4], [3.5, 4.5]], to_hex(b.get_color())) and len(ax.lines) == 3
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log") and (ax.get_xlabel(), ax.get_ylabel()) == ("stages", "time [s]")
    assert ticks(ax.xaxis) == ["1", "2", "4", "8"] and ticks(ax.yaxis) == ["1", "5"] and legend(ax.get_legend()) == ["a", "b"]


@pytest.mark.parametrize(("log", "scales"), [("xy", ("log", "log")), ("x", ("log", "linear")), ("y", ("linear", "log")),
                                             ("", ("linear", "linear"))])  # fmt: skip
def test_axes_are_logarithmic_where_they_are_told_to_be(log, scales):
    ax = figures.line_chart([1, 2], {"a": [1, 2]}, xlabel="x", ylabel="y", log=log, xticks=[1, 1.5])
    assert (ax.get_xscale(), ax.get_yscale()) == scales and ax.get_legend() is None and ticks(ax.xaxis) == ["1", "1.5"]
    assert (ax.get_ylim()[0] == 0) == (scales[1] == "linear")


def test_latency_lies_above_the_rate():
    stages = [1, 2, 4]
    seconds, rates = {"fixed": [40, 22, 13], "dynamic": [40, 21, 11]}, {"fixed": [900, 800, 700], "dynamic": [900, 850, 820]}
    below = figures.latency_and_rate(stages, seconds, rates, published=([1, 4], [48.5, 15.5]))
    above = next(ax for ax in below.figure.axes if ax is not below)
    assert len(below.figure.axes) == 2 and above.get_position().y0 > below.get_position().y0
    assert curves(below) == {name: [stages, y] for name, y in rates.items()}
    found = curves(above)
    assert {name: found[name] for name in seconds} == {name: [stages, y] for name, y in seconds.items()}
    assert crosses(above) == [([[1, 4], [48.5, 15.5]], style.INK)] and crosses(below) == []
    assert legend(above.get_legend()) == ["fixed", "dynamic", "published, simulated there"]
    assert (above.get_yscale(), below.get_yscale(), below.get_xscale()) == ("log", "linear", "log") and below.get_ylim()[0] == 0
    assert (above.get_ylabel(), below.get_ylabel()) == ("time to first token [s]", "tokens/s of a GPU")
    assert below.get_xlabel() == "stages" and ticks(below.xaxis) == ["1", "2", "4"]
    plain = figures.latency_and_rate(stages, seconds, rates).figure.axes
    assert [crosses(ax) for ax in plain] == [[], []] and legend(plain[0].get_legend()) == ["fixed", "dynamic"]


# Strips -------------------------------------------------------------------------------------------------------------------

STRIPS = {
    "a": ([1.0, 1.0, 2.0, 4.0], ["dense", "dense", "MoE", "GQA"], [3, 1]),
    "b": (np.array([3.0, 1.0, 1.0]), ["GQA", "Mamba-2", "GQA"], [1, 1, 1]),
}


def test_strips_are_shares_of_the_time_with_cuts_where_stages_end():
    ax = figures.layer_strips(STRIPS)
    wanted = [(0, 0, 12.5), (0, 12.5, 25), (0, 25, 50), (0, 50, 100), (1, 0, 60), (1, 60, 80), (1, 80, 100)]
    assert np.allclose(bars(ax), wanted)
    lines = {"-": [], ":": []}
    for line in ax.lines:
        (x, same), (low, high) = line.get_data()
        assert x == same
        lines[line.get_linestyle()].append((round((low + high) / 2, 9), round(x, 9)))
    assert lines["-"] == [(0, 50), (1, 60), (1, 80)]  # ends of the stages
    assert lines[":"] == [(0, 50), (1, round(100 / 3, 9)), (1, round(200 / 3, 9))]  # even ones
    assert ticks(ax.yaxis) == ["a", "b"] and ax.get_xlim() == (0, 100) and ax.get_xlabel() == "share of the time [%]"
    assert ax.get_ylim()[0] > 1.46 - 0.02 and ax.get_ylim()[1] < -0.46  # the first on top
    (box,) = ax.figure.legends
    kinds = dict(zip(legend(box), (to_hex(p.get_facecolor()) for p in box.get_patches()), strict=True))
    assert list(kinds) == ["dense", "MoE", "GQA", "Mamba-2"] and len(set(kinds.values())) == 4
    colors = [to_hex(color) for color in tints(ax)]
    assert colors == [kinds[k] for _, names, _ in STRIPS.values() for k in names]


def test_strips_of_models_are_their_block_times():
    nano = hw.Model.from_config("nemotron-3-nano-30b-a3b")
    blocks = block_times(nano, "H200", "fp8", context=65536, cached=65536 - 4096, ideal=True)[0]
    split = split_layers(blocks, 4)
    ax = figures.layer_strips({"nano": (blocks, [b.kind for b in nano.blocks], split)})
    assert len(bars(ax)) == 52 and bars(ax)[-1, 2] == pytest.approx(100)
    cut = [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "-"]
    shares = np.diff([0, *cut, 100]) / 100
    assert shares == pytest.approx([part.sum() / blocks.sum() for part in np.split(blocks, np.cumsum(split)[:-1])])
    assert shares.max() < 0.3 and sorted(legend(ax.figure.legends[0])) == sorted({b.kind for b in nano.blocks})


# All figures --------------------------------------------------------------------------------------------------------------

DRAW = {
    "gantt": lambda: (figures.gantt, (STARTS.copy(), ENDS.copy())),
    "bubble_map": lambda: (figures.bubble_map, (np.array([2, 4]), np.array([1, 2]))),
    "chunk_profile": lambda: (figures.chunk_profile, ({"a": np.array([2.0, 2])}, {"a": np.array([1e-3, 2e-3])})),
    "line_chart": lambda: (
        lambda x, y: figures.line_chart(x, y, xlabel="x", ylabel="y"), (np.array([1, 2]), {"a": np.array([1.0, 2])})),
    "latency_and_rate": lambda: (
        lambda x, a, b: figures.latency_and_rate(x, a, b, published=(x, a["w"])),
        (np.array([1, 2]), {"w": np.array([2.0, 4])}, {"w": np.array([3.0, 5])})),
    "layer_strips": lambda: (figures.layer_strips, ({"a": (np.array([1.0, 2]), ["x", "y"], np.array([1, 1]))},)),
}  # fmt: skip


def flat(value):
    """All numbers and names in nested arguments."""
    if isinstance(value, dict):
        return [flat(v) for v in value.items()]
    return [flat(v) for v in value] if isinstance(value, tuple | list) else np.asarray(value).tolist()


@pytest.mark.parametrize("name", DRAW)
def test_figures_leave_what_they_are_given_and_draw_it_the_same_way_again(name):
    draw, given = DRAW[name]()
    before = flat(given)
    ax = draw(*given)
    assert flat(given) == before and ax.get_title() == "" and ax.get_xlabel()
    assert webp_uri(ax) == webp_uri(draw(*given))


# Sliders ------------------------------------------------------------------------------------------------------------------


def frames_of(explorer):
    return [explorer.draw(i) for i in range(len(explorer.values))]


def check(frame, times):
    """A frame against times [s] of all chunks in all stages: bars, sentence and numbers; returns when it is done."""
    starts, ends = schedule(times)
    chunks, stages = times.shape
    wanted = [(s, starts[i, s], ends[i, s]) for i in range(chunks) for s in range(stages)]
    assert np.allclose(bars(frame.ax), wanted, rtol=1e-9, atol=1e-12)
    seconds = ends.max()
    idle = 1 - times.sum() / (stages * seconds)
    assert frame.data == {"seconds": pytest.approx(seconds), "idle": pytest.approx(idle, abs=1e-9)}
    assert frame.text.endswith(f": done after {seconds:.3f} s; the stages idle {idle:.0%} of the time.")
    assert frame.text in frame.alt and "time [s]" in frame.alt and frame.ax.get_xlabel() == "time [s]"
    assert times.sum() == pytest.approx(1)  # a prompt that takes one second
    assert frame.ax.get_xlim()[1] >= seconds  # no bar is cut off
    return seconds


def test_the_slider_of_chunks_shows_the_bubble_shrink():
    explorer = figures.explore_chunks()
    frames = frames_of(explorer)
    assert explorer.values == ["1", "2", "4", "8", "16", "32"] == [str(c) for c in CHUNKS]
    for c, frame in zip(CHUNKS, frames, strict=True):
        assert check(frame, np.full((c, 4), 1 / (4 * c))) == pytest.approx((c + 3) / (4 * c), rel=1e-12)
        assert frame.data["idle"] == pytest.approx(3 / (c + 3), abs=1e-12)
        assert frame.text.startswith(f"{c} chunks, 4 stages: ") and frame.ax.get_xlim() == frames[0].ax.get_xlim()
    assert frames[2].text.endswith("done after 0.438 s; the stages idle 43% of the time.")
    assert frames_of(figures.explore_chunks((3, 5), stages=7))[1].data["seconds"] == pytest.approx(11 / 35)


def test_the_slider_of_stages_shows_equal_chunks_and_chunks_of_equal_time():
    explorer = figures.explore_stages()
    frames = frames_of(explorer)
    assert explorer.values == [f"{p}, {cut}" for p in (2, 4, 8, 16) for cut in ("equal chunks", "equal times")]
    a = 1 / 2**17 / 9  # the last token spends 16 times as long on attention, the mean one 8 times
    whole = np.cumsum(np.ones(2**17))
    price = a * (1 + 16 * (whole - 0.5) / 2**17)
    assert price.sum() == pytest.approx(1) and price[-1] == pytest.approx(17 * a, rel=1e-4)
    for k, p in enumerate(STAGES):
        each = price.reshape(16, -1).sum(axis=1)
        seconds = check(frames[2 * k], np.repeat(each[:, None] / p, p, axis=1))
        assert seconds == pytest.approx((1 + (p - 1) * each[-1]) / p, rel=1e-9)
        shrunk = frames[2 * k + 1]
        width = bars(shrunk.ax).reshape(16, p, 3)
        times = width[..., 2] - width[..., 1]
        assert np.ptp(times) < 2 * price[-1] / p  # rounding of a token at either end
        assert check(shrunk, times) == pytest.approx((1 + (p - 1) / 16) / p, rel=1e-3)
        for frame, cut in ((frames[2 * k], "equal chunks"), (shrunk, "equal times")):
            assert frame.text.startswith(f"{p} stages, {cut} (idle share of equal times: {(p - 1) / (15 + p):.0%})")
        assert shrunk.data["seconds"] < frames[2 * k].data["seconds"] and shrunk.data["idle"] < frames[2 * k].data["idle"]
    assert [f.data["seconds"] for f in frames[1::2]] == sorted((f.data["seconds"] for f in frames[1::2]), reverse=True)


def test_the_slider_of_layers_shows_what_does_not_divide():
    explorer = figures.explore_balance()
    frames = frames_of(explorer)
    assert explorer.values == [str(n) for n in LAYERS] == ["32", "33", "34", "35", "61", "62"]
    for n, frame in zip(LAYERS, frames, strict=True):
        split = [len(part) for part in np.array_split(range(n), 4)]
        seconds = check(frame, np.tile(np.array(split) / n / 8, (8, 1)))
        assert seconds == pytest.approx((1 + 7 * -(-n // 4) / n) / 8, rel=1e-12)
        assert frame.text.startswith(f"{n} layers as {', '.join(map(str, split))}: ")
        assert frame.ax.get_xlim() == frames[0].ax.get_xlim()
    worst = max(range(6), key=lambda i: frames[i].data["idle"])
    assert LAYERS[worst] == 33 and frames[1].text.startswith("33 layers as 9, 8, 8, 8: ")


def test_no_bar_of_other_layers_and_stages_is_cut_off():
    for explorer in (figures.explore_balance((4, 5), stages=2), figures.explore_balance((8, 9), chunks=1)):
        for frame in frames_of(explorer):
            assert bars(frame.ax)[:, 2].max() <= frame.ax.get_xlim()[1] + 1e-12, frame.text


def test_chunks_that_do_not_divide_the_prompt_hold_all_of_it():
    for frame in frames_of(figures.explore_stages((2,), chunks=12)):
        width = bars(frame.ax)
        assert (width[:, 2] - width[:, 1]).sum() == pytest.approx(1, rel=1e-9), frame.text


def test_the_sliders_of_the_chapter_are_light_and_say_what_they_show():
    explorers = [figures.explore_chunks(), figures.explore_stages(), figures.explore_balance()]
    assert [len(e.values) for e in explorers] == [6, 8, 6] and len({e.name for e in explorers}) == 3
    for e in explorers:
        frames = frames_of(e)
        assert len({f.text for f in frames}) == len({f.alt for f in frames}) == len(frames)
        assert e.kinds == ("modelled",) and re.search(r"\d|one second", e.caption) and "one second" in e.caption
        for frame in frames:
            assert len(frame.alt) > 60 and re.search(r"\[s\]", frame.alt)
        assert len({webp_uri(f.ax) for f in frames}) == len(frames)
    captions = [e.caption for e in explorers]
    assert "in 4 equal stages" in captions[0] and "16 chunks" in captions[1] and "spends 16 times as long" in captions[1]
    assert "8 equal chunks, 4 stages" in captions[2]
    assert "in 7 equal stages" in figures.explore_chunks((1, 2), stages=7).caption
