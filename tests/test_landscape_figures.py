"""Figures of chapter 0: what is drawn is what was given. The slider: pictures, numbers and sentences agree with single steps."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from matplotlib import cbook
from matplotlib.colors import to_hex

import hwdesign as hw
from hwdesign.formulas.frontier import area_under, pareto_front
from hwdesign.lessons import figures, style
from hwdesign.lessons.figures.wide_deep import TERMS
from hwdesign.lessons.show import webp_uri
from hwdesign.lessons.studies import levers
from hwdesign.models import config
from hwdesign.timing.estimate import Breakdown

ROOT = Path(__file__).resolve().parents[1]


def ticks(axis):
    return [t.get_text() for t in axis.get_ticklabels()]


def legend(box):
    return [t.get_text() for t in box.get_texts()]


def curves(ax):
    return {line.get_label(): np.array(line.get_data(), float) for line in ax.lines if not line.get_label().startswith("_")}


# Timeline -----------------------------------------------------------------------------------------------------------------

BLOCKS = [("another prompt", 0.02), ("decode step", 0.005), ("your prompt", 0.1), ("decode step", 0.01), ("another prompt", 0.05),
          ("decode step", 0.01), ("decode step", 0.02)]  # fmt: skip
SEEN = [0.125, 0.135, 0.195, 0.215]  # when tokens come [s]: the step before the own prompt is somebody else's


@pytest.mark.parametrize(("unit", "scale"), [("ms", 1e3), ("s", 1.0)])
def test_the_timeline_draws_every_block_and_every_token(unit, scale):
    ax = figures.timeline(BLOCKS, unit=unit)
    bars = sorted(ax.patches, key=lambda p: p.get_x())
    assert [p.get_width() for p in bars] == pytest.approx([scale * seconds for _, seconds in BLOCKS])
    ends = scale * np.cumsum([seconds for _, seconds in BLOCKS])
    assert [p.get_x() + p.get_width() for p in bars] == pytest.approx(ends.tolist()) and bars[0].get_x() == 0
    look = {kind: {to_hex(p.get_facecolor()) for p, (k, _) in zip(bars, BLOCKS, strict=True) if k == kind} for kind, _ in BLOCKS}
    assert {len(colors) for colors in look.values()} == {1} and len(set.union(*look.values())) == 3
    (tokens,) = ax.lines
    assert tokens.get_xdata() == pytest.approx(scale * np.array(SEEN)) and set(tokens.get_ydata()) == {0}
    assert legend(ax.get_legend()).count("token") == 1 and sorted(legend(ax.get_legend())) == sorted([*look, "token"])
    named = dict(zip(legend(ax.get_legend()), ax.get_legend().legend_handles, strict=True))
    assert all({to_hex(named[kind].get_facecolor())} == colors for kind, colors in look.items())
    assert (ticks(ax.yaxis), ax.get_yticks().tolist()) == (["GPUs", "you"], [1, 0])
    assert ax.get_xlabel() == f"time since the request [{unit}]"
    assert ax.get_xlim()[0] == 0 and ends[-1] < ax.get_xlim()[1] < 1.1 * ends[-1]


def notes(ax):
    return sorted((t.get_position()[0], t.get_text()) for t in ax.texts if t.get_text())


def test_the_timeline_names_the_first_token_and_the_shortest_and_longest_gap():
    at, said = zip(*notes(figures.timeline(BLOCKS)), strict=True)
    assert at == pytest.approx((62.5, 130, 165)) and said == ("first-token latency 125", "10", "60")
    arrow = next(t for t in figures.timeline(BLOCKS).texts if not t.get_text())
    assert sorted((arrow.xy[0], arrow.get_position()[0])) == pytest.approx([0, 125]) and arrow.xy[1] == arrow.get_position()[1]
    at, said = zip(*notes(figures.timeline([("your prompt", 0.03), ("decode step", 0.02), ("decode step", 0.02)])), strict=True)
    assert said == ("first-token latency 30", "20") and at == pytest.approx((15, 40))  # equal gaps: one number
    alone = figures.timeline([("your prompt", 0.03)])
    assert [text for _, text in notes(alone)] == ["first-token latency 30"] and list(alone.lines[0].get_xdata()) == [30]


def test_gaps_below_a_second_are_not_rounded_away():
    ax = figures.timeline([("your prompt", 1.25), ("decode step", 0.05), ("decode step", 0.2)], unit="s")
    said = [text.removeprefix("first-token latency ") for _, text in notes(ax)]
    assert [float(x) for x in said] == pytest.approx([1.25, 0.05, 0.2], rel=0.05)


@pytest.mark.parametrize("bad", [{"unit": "us"}, {"blocks": [("nap", 1.0)]}])
def test_a_timeline_of_something_else_is_refused(bad):
    with pytest.raises((KeyError, ValueError)):
        figures.timeline(**({"blocks": BLOCKS} | bad))


# Fronts -------------------------------------------------------------------------------------------------------------------

FRONTS = {"a": ([30, 20, 10], [1, 4, 8]), "b": (np.array([25.0, 5.0]), np.array([2.0, 90.0])), "c": ([7], [3])}


def height(line, at):
    """Where a line is drawn, at an abscissa off its corners."""
    assert line.get_drawstyle() == "steps-post"
    x, y = cbook.pts_to_poststep(*np.array(line.get_data(), float))
    found = {float(y[i]) for i in range(len(x) - 1) if min(x[i], x[i + 1]) < at < max(x[i], x[i + 1])}
    return found.pop() if len(found) == 1 else found


def test_a_staircase_holds_to_the_right_up_to_its_point():
    ax = figures.fronts(FRONTS)
    lines = {line.get_label(): line for line in ax.lines}
    assert list(lines) == list(FRONTS) == legend(ax.get_legend())
    for name, (user, gpu) in FRONTS.items():
        drawn = np.array(lines[name].get_data(), float)
        assert np.array_equal(drawn[:, : len(user)], [user, gpu])
        for at in np.arange(0.25, 31, 0.5):  # who wants `at` gets the best of what is at least as fast
            reach = [g for u, g in zip(user, gpu, strict=True) if u >= at]
            assert height(lines[name], at) == (max(reach) if reach else set()), (name, at)
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "log") and ax.get_xlim()[0] == 0
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("tokens/s of a user", "tokens/s of a GPU")
    assert ticks(ax.yaxis) == ["1", "2", "5", "10", "20", "50", "100"]
    for look in ("get_color", "get_marker"):
        assert len({getattr(line, look)() for line in ax.lines}) == 3


def test_the_area_under_the_drawn_staircase_is_the_area_under_the_front():
    rng = np.random.default_rng(4)
    x, y = rng.random((2, 50)) * 100
    keep = pareto_front(x, y)
    (line,) = figures.fronts({"front": (x[keep], y[keep])}).lines
    across, up = cbook.pts_to_poststep(*np.array(line.get_data()))
    assert -np.sum(np.diff(across) * (up[1:] + up[:-1]) / 2) == pytest.approx(area_under(x, y), rel=1e-12)


def marked(line):
    """Data points at which a marker is drawn."""
    every, points = line.get_markevery(), list(zip(*(np.array(d, float).tolist() for d in line.get_data()), strict=True))
    if every is None or line.get_marker() == "None":
        return points if every is None and line.get_marker() != "None" else []
    return points[every] if isinstance(every, slice) else [points[i] for i in np.arange(len(points))[list(every)]]


def test_markers_are_at_points_that_exist():
    for line in figures.fronts(FRONTS).lines:
        user, gpu = FRONTS[line.get_label()]
        assert marked(line) == list(zip(map(float, user), map(float, gpu), strict=True))


def test_fronts_can_be_plain_lines_on_a_plain_axis():
    ax = figures.fronts(FRONTS, steps=False, logarithmic=False)
    assert all(np.array_equal(drawn, FRONTS[name]) for name, drawn in curves(ax).items()) and len(ax.lines) == 3
    assert {line.get_drawstyle() for line in ax.lines} == {"default"} and ax.get_yscale() == "linear" and ax.get_ylim()[0] == 0


def test_points_clouds_and_limits_are_drawn_beside_the_fronts():
    points = {"served": ([12, 14.0], np.array([3, 2])), "other": ([9], [9])}
    cloud = np.array([1.0, 2, 3]), np.array([5, 50, 1.0])
    ax = figures.fronts(FRONTS, points=points, cloud=cloud, limits={"reading": 7, "listening": 3.5})
    drawn = curves(ax)
    assert list(drawn) == [*FRONTS, *points] == legend(ax.get_legend())
    assert all(np.array_equal(drawn[name], pair) for name, pair in points.items())
    lines = {line.get_label(): line for line in ax.lines}
    assert all(lines[name].get_linestyle() == "None" for name in points)
    assert len({(lines[name].get_marker(), lines[name].get_color()) for name in [*FRONTS, *points]}) == 5
    others = [line for line in ax.lines if line.get_label().startswith("_")]
    assert np.array_equal(others[0].get_data(), cloud) and others[0].get_linestyle() == "None"
    assert [list(line.get_xdata()) for line in others[1:]] == [[7, 7], [3.5, 3.5]]
    assert {line.get_linestyle() for line in others[1:]} == {":"} and np.array_equal(others[1].get_ydata(), [0, 1])
    assert [(t.get_text(), t.xy[0]) for t in ax.texts] == [("reading", 7), ("listening", 3.5)]
    assert ax.get_ylim()[0] < 1 and ax.get_ylim()[1] > 90  # on the way up, too


def test_graded_fronts_go_from_pale_to_dark():
    ax = figures.fronts({str(i): ([9, 1], [1, i + 2]) for i in range(6)}, graded=True)
    light = [sum(line.get_color()[:3]) for line in ax.lines]
    assert light == sorted(light, reverse=True) and len(set(light)) == 6 and {line.get_marker() for line in ax.lines} == {"None"}


# Bars ---------------------------------------------------------------------------------------------------------------------


def broken(**terms):
    return Breakdown(terms={"projections": 0.0, **terms}, memory=1.0, capacity=2.0)


STEPS = [broken(attention=3e-3, ffn=1e-3), broken(projections=1e-3, head=1e-3, experts=0.04e-3, communication=1.96e-3),
         broken(ffn=7.0)]  # fmt: skip


def test_share_bars_add_up_to_a_hundred():
    ax = figures.share_bars(["first", "second", "third"], STEPS)
    assert dict(zip(ticks(ax.yaxis), ax.get_yticks().tolist(), strict=True)) == {"first": 2, "second": 1, "third": 0}
    wanted = [{"ffn": 25, "attention": 75}, {"projections": 25, "experts": 1, "head": 25, "communication": 49}, {"ffn": 100}]
    for at, shares in zip((2, 1, 0), wanted, strict=True):
        parts = [p for p in ax.patches if abs(p.get_y() + p.get_height() / 2 - at) < 0.01 and p.get_width() > 0]
        assert sum(p.get_width() for p in parts) == pytest.approx(100, abs=1e-9)
        found = {to_hex(p.get_facecolor()): p.get_width() for p in parts}
        assert found == pytest.approx({TERMS[name]: share for name, share in shares.items()})
        assert [p.get_x() for p in parts] == pytest.approx([0, *np.cumsum([p.get_width() for p in parts])[:-1]])  # end to end
    said = [t.get_text() for t in ax.texts if t.get_text()]
    assert sorted(said, key=int) == ["25", "25", "25", "49", "75", "100"]  # no number where there is no room for it
    (box,) = ax.figure.legends
    assert set(legend(box)) == {"projections", "ffn", "experts", "attention", "head", "communication"}
    colors = {name: to_hex(p.get_facecolor()) for name, p in zip(legend(box), box.legend_handles, strict=True)}
    assert colors == {name: TERMS[name] for name in legend(box)}
    assert ax.get_xlim() == (0, 100) and ax.get_xlabel() == "share of a step [%]"


def test_share_bars_of_a_modelled_step_are_its_terms():
    step = hw.decode_step(config.load("llama-3.1-8b"), "H100_SXM", "fp8", batch=8, context=4096)
    ax = figures.share_bars(["one"], [step])
    found = {to_hex(p.get_facecolor()): p.get_width() / 100 * float(step.seconds) for p in ax.patches}
    assert found == pytest.approx({TERMS[name]: float(t) for name, t in step.terms.items() if t})


GAINS = {"short": {"a": 1.2, "b": 3.0, "c": 1.0}, "long": {"a": 1.05, "b": 2.0, "c": 1.5}}


def test_lever_bars_begin_at_one_and_end_at_their_factor():
    ax = figures.lever_bars(GAINS)
    rows = dict(zip(ticks(ax.yaxis), ax.get_yticks().tolist(), strict=True))
    assert rows == {"a": 2, "b": 1, "c": 0} and ax.get_xscale() == "log" and len(ax.patches) == 6
    box = ax.get_legend()
    handles = dict(zip(legend(box), (to_hex(p.get_facecolor()) for p in box.get_patches()), strict=True))
    assert list(handles) == list(GAINS) and len(set(handles.values())) == 2
    for label, values in GAINS.items():
        for name, factor in values.items():
            (bar,) = [p for p in ax.patches if to_hex(p.get_facecolor()) == handles[label]
                      and abs(p.get_y() + p.get_height() / 2 - rows[name]) < 0.5]  # fmt: skip
            assert bar.get_x() == 1 and bar.get_x() + bar.get_width() == pytest.approx(factor)
    ends = sorted((p.get_y(), p.get_y() + p.get_height()) for p in ax.patches)
    assert all(a[1] <= b[0] + 1e-9 for a, b in zip(ends, ends[1:], strict=False))  # bars do not cover one another
    said = [float(t.get_text()) for t in ax.texts]  # in the order of the bars
    assert said == pytest.approx([p.get_x() + p.get_width() for p in ax.patches], rel=0.005)
    assert ticks(ax.xaxis) == ["1", "1.5", "2", "3"] and ax.get_xlim()[1] > 3 and ax.get_xlim()[0] < 1
    assert ax.get_xlabel() == "area under the front, with / without"


@pytest.mark.parametrize("load", ["short", "long"])
def test_the_opening_draws_the_front_of_each_state(monkeypatch, load):
    states, asked = list(levers.lever_states().values()), []

    def deployment(settings, workload):
        asked.append((settings, workload))
        n = len(asked)
        rates = {"user_rate": np.array([1.0, 5, 10]) * n, "total_rate": np.array([9.0, 3, 2]) * n}
        return {"candidates": rates, "front": np.array([2, 0])}

    monkeypatch.setattr("hwdesign.lessons.figures.landscape.deployment", deployment)
    ax = figures.opening(load)
    assert asked == [(state, load) for state in states]
    for n, line in enumerate(ax.lines, 1):
        assert np.array_equal(np.array(line.get_data())[:, :2], [[10 * n, n], [2 * n, 9 * n]])
    said = legend(ax.get_legend())
    assert said == ["against all seven guidelines", *(f"{i} {name}" for i, name in enumerate(levers.LEVERS, 1))]
    light = [sum(line.get_color()[:3]) for line in ax.lines]
    assert light == sorted(light, reverse=True) and len(set(light)) == 8  # a sequence


# All figures --------------------------------------------------------------------------------------------------------------

DRAW = {
    "timeline": (figures.timeline, (BLOCKS,)),
    "fronts": (figures.fronts, (FRONTS,)),
    "share_bars": (figures.share_bars, (["a", "b", "c"], STEPS)),
    "lever_bars": (figures.lever_bars, (GAINS,)),
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


# The slider ---------------------------------------------------------------------------------------------------------------


MOST = int(re.search(r"up to (\d+) positions are taken, evenly", figures.explore_front.__doc__)[1])


@pytest.fixture(scope="module")
def walk():
    """Candidates of Llama on Hoppers, their front, and the steps on it."""
    model = config.load("llama-3.1-70b")
    load = {"gpus": (2, 4, 8), "batch": [1, 2, 4, 8, 16, 32, 64, 128, 256], "input_tokens": 1000, "output_tokens": 200}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = hw.decode_candidates(model, "H100_SXM", "fp8", **load)
        user = np.where(found["fits"], found["user_rate"], np.nan)
        front = pareto_front(user, found["gpu_rate"])
        steps = {int(i): hw.decode_step(model, "H100_SXM", "fp8", batch=int(found["batch"][i]), context=1100,
                                        attention=found["attention"][i], ffn=found["ffn"][i]) for i in front}  # fmt: skip
    return found, front, steps


def test_the_slider_walks_along_the_front(walk):
    found, front, steps = walk
    explorer = figures.explore_front(found, front, steps)
    frames = [explorer.draw(i) for i in range(len(explorer.values))]
    assert explorer.name == "front" and explorer.kinds == ("modelled",) and 2 < len(frames) == min(MOST, len(front))
    rates = np.array([[f.data["user_rate"], f.data["gpu_rate"]] for f in frames])
    assert (np.diff(rates[:, 0]) < 0).all() and (np.diff(rates[:, 1]) > 0).all()
    assert rates[0, 0] == found["user_rate"][front].max() and rates[-1, 1] == found["gpu_rate"][front].max()  # both ends
    whole = {i: (found["user_rate"][i], found["gpu_rate"][i]) for i in front}
    for value, frame in zip(explorer.values, frames, strict=True):
        (i,) = [i for i in front if whole[i] == (frame.data["user_rate"], frame.data["gpu_rate"])]
        batch, gpus = int(found["batch"][i]), int(found["gpus"][i])
        assert value == f"{batch} on {gpus} GPUs" and (frame.data["batch"], frame.data["gpus"]) == (batch, gpus)
        shares = {name: float(term) / float(steps[i].seconds) for name, term in steps[i].terms.items()}
        assert {name: frame.data[name] for name in shares} == pytest.approx(shares) and sum(shares.values()) == pytest.approx(1)
        assert set(frame.data) == {"user_rate", "gpu_rate", "batch", "gpus", *shares}
        assert frame.data["user_rate"] == pytest.approx(1 / steps[i].seconds)
        seen = f"A user sees {frame.data['user_rate']:.3g} tokens/s, a GPU makes {frame.data['gpu_rate']:.3g}."
        assert frame.text == f"{hw.candidate_text(found, i)}. {seen}" and frame.text in frame.alt
        largest = max(shares, key=shares.get)
        assert f"Largest part of a step: {largest}, {shares[largest]:.0%}." in frame.alt
        above, below = frame.ax.figure.axes
        line, dot = above.lines
        assert np.array_equal(np.array(line.get_data())[:, : len(front)], [found[r][front] for r in ("user_rate", "gpu_rate")])
        assert (*dot.get_xdata(), *dot.get_ydata()) == whole[i] and dot.get_marker() == "o" and frame.ax is above
        drawn = {to_hex(p.get_facecolor()): p.get_width() / 100 for p in below.patches if p.get_width() > 0}
        assert drawn == pytest.approx({TERMS[name]: share for name, share in shares.items() if share})
        assert (above.get_xlim(), above.get_ylim()) == (frames[0].ax.get_xlim(), frames[0].ax.get_ylim())
    some = [frames[i] for i in (0, -1)]
    assert len({webp_uri(f.ax) for f in some}) == 2 and len({f.alt for f in frames}) == len(frames)


@pytest.mark.parametrize("n", [2, 5, MOST, MOST + 1, 2 * MOST - 1, 40])
def test_the_slider_takes_as_many_places_of_a_front_as_it_says(n):
    found = {"user_rate": np.arange(n, 0, -1.0), "gpu_rate": np.arange(1.0, n + 1), "batch": np.arange(1, n + 1),
             "gpus": np.ones(n, int)}  # fmt: skip
    explorer = figures.explore_front(found, np.arange(n), {})
    batch = [int(value.split()[0]) for value in explorer.values]
    assert len(batch) == min(MOST, n) and (batch[0], batch[-1]) == (1, n) and explorer.values[0] == "1 on 1 GPU"
    steps = np.diff(batch)
    assert steps.min() >= 1 and steps.max() - steps.min() <= 1  # evenly


def test_a_front_of_one_point_has_no_slider(walk):
    with pytest.raises(ValueError, match="values must hold 2 to 24 positions, got 1"):
        figures.explore_front(walk[0], walk[1][:1], walk[2])


def test_the_opening_picture_has_the_numbers_that_are_told_of_it():
    ends = [(line.get_ydata().max(), line.get_xdata().max()) for line in figures.opening().lines]
    told = [f"from {ends[i][0]:.0f}{word} to {ends[i][1]:.0f}" for i, word in ((0, " of a GPU"), (-1, ""))]
    for page in ("README.md", "book/preface.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert all(sentence in text for sentence in told), page
