"""Lesson tools: figures that read in both themes, alt texts, tables, and a slider that works with and without a kernel."""

import base64
import io
import json
import re

import numpy as np
import pytest

pytest.importorskip("matplotlib")
import matplotlib
from PIL import Image

import hwdesign as hw
from hwdesign.lessons import figures, style, tables
from hwdesign.lessons.explore import Explorer, Frame
from hwdesign.lessons.show import Shown, badge, figure_html, svg_uri, webp_uri
from hwdesign.measure.runs import load_run, shipped_runs

ALT = "time [s] against size [element], 3 points"


def picture(uri):
    return Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1])))


def test_figures_are_opaque_and_leave_no_trace_in_matplotlib():
    before = dict(matplotlib.rcParams)
    ax = figures.roofline("GB300", "nvfp4", {"A": 474.0}, measured={"B": (474.0, 1e15)})
    assert picture(webp_uri(ax)).convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)
    assert b"fill: #ffffff" in base64.b64decode(svg_uri(ax).split(",")[1])[:2000]
    assert dict(matplotlib.rcParams) == before


def test_equal_figures_give_equal_bytes():
    a, b = (figures.saturation_ladder({"bound": 821.0}, 3477.0, xlabel="K") for _ in range(2))
    assert svg_uri(a) == svg_uri(b) and webp_uri(a) == webp_uri(b)


def test_ink_is_readable_on_the_background():
    def luminance(color):
        rgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(rgb <= 0.03928, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    for color in (style.INK, style.GREY, style.BLUE, style.ORANGE, style.GREEN, style.PURPLE):
        contrast = (luminance(style.BACKGROUND) + 0.05) / (luminance(color) + 0.05)
        assert contrast >= 4.5, (color, contrast)


def test_figures_draw_what_they_are_given():
    x = np.array([128.0, 1024.0, 8192.0])
    ax = figures.dimension_sweep(
        x, {"sglang": 1e15 * x}, modelled={"bound": 2e15 * x}, sustained={"sglang": (512, 1e15)}, xlabel="K"
    )
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    assert np.array_equal(lines["bound"], 2 * x) and np.array_equal(lines["SGLang"], x)
    assert ax.lines[-1].get_xdata() == [512] and ax.lines[-1].get_ydata() == [1.0]
    ladder = figures.saturation_ladder({"a": 821.0, "b": 1643.0}, 3477.0, xlabel="K")
    assert ladder.lines[1].get_xdata().tolist() == [821.0, 1643.0] and ladder.lines[2].get_xdata() == [3477.0]
    assert {t.get_text() for t in ladder.texts} == {"821", "1643", "3477"}
    budget = figures.byte_budget({"x": (256, 8192, 512)}, {"a": 0.5625, "b": 0.5625, "c": 1.0}, 1875)
    assert sum(bar.get_width() for bar in budget.patches) == pytest.approx(1000 * 4_530_176 / 2_147_483_648)
    assert budget.lines[0].get_xdata()[0] == pytest.approx(1000 / 1875)
    aspect = figures.time_by_aspect([0.25, 4], {"sglang": [2e-5, 1e-5]}, bound=[1e-6, 2e-6])
    assert [t.get_text() for t in aspect.get_xticklabels()] == ["1/4", "4"]
    assert [np.round(line.get_ydata(), 9).tolist() for line in aspect.lines] == [[1, 2], [20, 10]]
    pair = figures.pair_cost(np.array([1, 4]), {"plain": np.array([1.0, 1.25])}, measured={"m": ([1, 4], [1, 1.2])})
    assert [np.array(line.get_ydata()).tolist() for line in pair.lines] == [[1.0, 1.25], [1.0], [1, 1.2]]
    roof = figures.roofline("GB300", "nvfp4", {"A": 474.0}, measured={"B": (474.0, 1e15)})
    assert roof.lines[0].get_ydata().max() == 15 and roof.lines[1].get_xdata()[0] == 1875
    assert roof.lines[2].get_ydata()[0] == pytest.approx(474 * 8e12 / 1e15) and roof.lines[3].get_ydata() == [1.0]
    dots = figures.ridges([hw.GB300, hw.T4])
    assert [np.round(line.get_xdata()).tolist()[0] for line in dots.lines] == [312, 625, 1875]
    assert round(dots.lines[0].get_xdata()[1]) == 203  # a T4 has FP16 alone


def test_a_figure_needs_an_alt_text_with_a_number(monkeypatch):
    assert f'alt="{ALT}"' in figure_html(style.axes(), alt=ALT, caption="c", kinds=["modelled"])
    for alt in ("short 1", "a long description without any figure in it"):
        with pytest.raises(ValueError, match="alt must describe"):
            figure_html(style.axes(), alt=alt, caption="c")
    with pytest.raises(ValueError, match="kind must be one of modelled, published, measured"):
        badge("guessed")
    monkeypatch.delenv("HWDESIGN_STATIC", raising=False)
    bundle = Shown("<b>", style.axes(), ALT)._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "image/png"} and bundle["image/png"][:4] == b"\x89PNG"
    monkeypatch.setenv("HWDESIGN_STATIC", "1")  # the site takes the HTML
    assert set(Shown("<b>", style.axes(), ALT)._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_markup_in_text_is_escaped():
    assert "<script>" not in tables.Table(["<script>"], [["<script>"]], caption="<script>")._repr_html_()
    assert '"><script>' not in figure_html(style.axes(), alt='"><script> alt text 123', caption="")


def test_tables_say_when_a_row_does_not_fit():
    with pytest.raises(ValueError, match="rows must have 2 cells each, got 1"):
        tables.Table(["a", "b"], [["1"]], caption="x")
    with pytest.raises(ValueError, match="header must name every column, got"):
        tables.Table(["a", ""], [[1, 2]], caption="")


def test_table_2_equals_the_post():
    times = np.array([tables.table2_times(m, 8192, 512, "GB300", "table2") for m in (256, 2048, 16384)]) * 1e6
    assert np.allclose(times, [[0.14, 0.30, 0.26], [1.15, 0.37, 2.10], [9.16, 0.885, 16.78]], atol=0.005)
    assert tables.table1(7, 8192, 28672).rows[2] == ["up", "7", "28672", "8192"]


def demo(n=3):
    def draw(i):
        return Frame(ax=style.axes(), alt=f"alt {i}", text=f"text {i}", data={"value": i})

    return Explorer("demo", "size", [f"K = {i}" for i in range(n)], draw, caption="c", kinds=["modelled"])


def test_a_slider_carries_its_frames_on_the_page(monkeypatch):
    monkeypatch.setenv("HWDESIGN_STATIC", "1")
    bundle = demo()._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    frames = json.loads(re.search(r'class="hw-frames">(.*?)</script>', bundle["text/html"], re.S)[1])
    assert [f["value"] for f in frames] == ["K = 0", "K = 1", "K = 2"] and [f["data"]["value"] for f in frames] == [0, 1, 2]
    assert all(picture(f["src"]).size[0] > 800 for f in frames)
    assert 'aria-valuetext="K = 0"' in bundle["text/html"] and "works on this page without a kernel" in bundle["text/html"]


def test_the_numbers_of_a_slider_are_valid_json_where_some_are_missing(monkeypatch):
    monkeypatch.setenv("HWDESIGN_STATIC", "1")

    def draw(i):
        return Frame(ax=style.axes(), alt=f"alt {i}", text="", data={"seconds": [1.5, float("nan")], "end": (float("inf"), i)})

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    page = Explorer("demo", "size", ["1", "2"], draw, caption="c")._repr_mimebundle_()["text/html"]
    frames = json.loads(re.search(r'class="hw-frames">(.*?)</script>', page, re.S)[1], parse_constant=refuse)
    assert [f["data"] for f in frames] == [{"seconds": [1.5, None], "end": [None, i]} for i in (0, 1)]


def test_a_slider_is_live_in_a_kernel(monkeypatch):
    pytest.importorskip("ipywidgets")
    monkeypatch.delenv("HWDESIGN_STATIC", raising=False)
    assert "application/vnd.jupyter.widget-view+json" in demo()._repr_mimebundle_()
    box = demo().widget()
    shown, slider = box.children
    assert "text 0" in shown.value
    slider.value = 2
    assert "text 2" in shown.value and "alt 2" in shown.value


def test_a_page_holds_at_most_24_frames_a_slider():
    for n in (1, 25):
        with pytest.raises(ValueError, match=f"values must hold 2 to 24 positions, got {n}"):
            demo(n)


def test_slider_numbers_come_from_the_data():
    k = 512
    data = figures.explore_k(sizes=(k, 1024)).draw(0).data
    assert data["measured"]["trtllm"] == hw.gemm_grid("GB300", "nvfp4", "trtllm").at(8192, 10240, k)
    assert data["bound"] == pytest.approx((8192 * 10240 * 2 + (8192 + 10240) * k * 0.5625) / 8e12)
    frame = figures.explore_tokens(tokens=(16, 8192)).draw(0)
    assert np.round(np.array(frame.data["measured"]["sglang"]) * 1e6, 1).tolist() == [39.1, 13.7, 10.7, 9.8, 9.8]
    assert "16384 x 4096 (9.78 µs)" in frame.text


def test_a_build_shows_the_stored_run_and_a_kernel_measures(monkeypatch):
    from hwdesign.lessons import live
    from hwdesign.measure.backends import as_backend

    monkeypatch.setenv("HWDESIGN_STATIC", "1")
    assert live.machine_sweeps().machine == load_run(shipped_runs()[0]).machine
    monkeypatch.delenv("HWDESIGN_STATIC")
    monkeypatch.setattr(live, "as_backend", lambda: as_backend("numpy"))
    monkeypatch.setitem(live.SIZES, "cpu", {"m": 16, "n": 32, "k": 32, "sweep": [16, 32], "copy": [4096]})
    run = live.machine_sweeps()
    assert [m.shape["k"] for m in live.sweep_of(run, "k")] == [16, 32] == [m.shape["n"] for m in live.sweep_of(run, "n")]
    assert all(m.backend == "numpy" and m.source == "own machine" for m in run.measurements) and run.select("copy")
    with pytest.raises(ValueError, match="axis must be 'k' or 'n', got 'm'"):
        live.sweep_of(run, "m")
