"""Chapter 2's figures draw what was counted one by one, its sliders say what a loop finds, its live sweeps time this machine."""

import dataclasses
import re

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from stub_torch import stub

import hwdesign as hw
from hwdesign.lessons import figures, live, style
from hwdesign.lessons.figures.tile_alignment import TIERS, WAVES
from hwdesign.lessons.show import webp_uri
from hwdesign.lessons.studies.staircase import Staircase
from hwdesign.measure import suite
from hwdesign.measure.backends import TorchBackend, as_backend
from hwdesign.measure.runs import Skipped, load_run, shipped_runs

TILE = {"tile_m": 128, "tile_n": 256}
FIT = Staircase(fixed=1e-5, per_row=1e-9, per_wave=1e-5, tile=(128, 256), sms=4, error=0.0)
LINE = Staircase(fixed=2e-5, per_row=2e-9, per_wave=0.0, tile=None, sms=None, error=0.0)


def efficiency(m, n, tile_m, tile_n, sms):
    """Outputs over the places of all waves, and tiles and waves, by placing tile after tile."""
    tiles = waves = free = 0
    for _ in range(0, m, tile_m):
        for _ in range(0, n, tile_n):
            waves, free = (waves + 1, sms) if not free else (waves, free)
            tiles, free = tiles + 1, free - 1
    return m * n / (waves * sms * tile_m * tile_n), tiles, waves


# Figures ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n", "hatched"), [(300, 700, 2), (256, 700, 1), (300, 768, 1), (256, 512, 0), (1, 1, 2)])
def test_a_tile_map_paints_each_tile_once_and_hatches_the_padding_alone(m, n, hatched):
    ax = figures.tile_map(m, n, **TILE, sms=4)
    down, across = (m + 127) // 128 * 128, (n + 255) // 256 * 256
    painted, padded = np.zeros((down, across), int), np.zeros((down, across), int)
    tiles = [p for p in ax.patches if p.get_fill() and not p.get_hatch()]
    strips = [p for p in ax.patches if p.get_hatch()]
    for canvas, patches in ((painted, tiles), (padded, strips)):
        for patch in patches:
            x, y, width, height = patch.get_x(), patch.get_y(), patch.get_width(), patch.get_height()
            assert x >= 0 and y >= 0 and x + width <= across and y + height <= down
            canvas[y : y + height, x : x + width] += 1
    assert (painted == 1).all() and {(p.get_width(), p.get_height()) for p in tiles} == {(256, 128)}
    outside = np.ones((down, across), int)
    outside[:m, :n] = 0
    assert (padded == outside).all() and len(strips) == hatched
    (outline,) = [p for p in ax.patches if not p.get_fill()]
    assert (outline.get_x(), outline.get_y(), outline.get_width(), outline.get_height()) == (0, 0, n, m)
    assert len(tiles) == efficiency(m, n, 128, 256, 4)[1]


def test_a_tile_map_colours_its_waves_in_order():
    ax = figures.tile_map(300, 700, **TILE, sms=4)
    tiles = ax.patches[:9]
    rows = [(p.get_y(), p.get_x()) for p in tiles]
    assert rows == [(y, x) for y in (0, 128, 256) for x in (0, 256, 512)]
    assert [p.get_facecolor()[:3] for p in tiles] == [to_rgb(WAVES[w]) for w in (0, 0, 0, 0, 1, 1, 1, 1, 2)]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["wave 1", "wave 2", "wave 3", "padding"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # rows run downwards
    assert ax.get_xticks().tolist() == [0, 256, 512, 768] and ax.get_yticks().tolist() == [0, 128, 256, 384]
    wide = figures.tile_map(300, 700, **TILE, sms=4, span=(384, 1024))
    assert wide.get_xlim()[1] > 1024 > ax.get_xlim()[1] > 768


def test_fine_steps_mark_both_periods():
    n = np.arange(1024, 2305, 32)
    ax = figures.fine_steps(n, shares=(0.0, 0.5, 1.0))
    labels = [line.get_label() for line in ax.lines]
    assert labels == [*(f"an idle tile costs {x}" for x in ("0", "0.5", "1")), "multiple of 512", "odd multiple of 256"]
    assert all(line.get_xdata().tolist() == n.tolist() for line in ax.lines[:3])
    (_, half, _, even, odd) = ax.lines
    assert [line.get_linestyle() for line in ax.lines[:3]] == [":", "-", "--"] and half.get_color() == style.BLUE
    assert figures.fine_steps(n, shares=(1.0,)).lines[0].get_linestyle() == "-"
    assert even.get_xdata().tolist() == [1024, 1536, 2048] and even.get_ydata().tolist() == [1, 1, 1]
    assert odd.get_xdata().tolist() == [1280, 1792, 2304]
    assert odd.get_ydata().tolist() == [1280 / 1408, 1792 / 1920, 2304 / 2432]
    at = [line.get_ydata()[n.tolist().index(1312)] for line in ax.lines[:3]]  # 32 columns into the sixth tile
    assert at == pytest.approx([1312 / 1536] * 3)
    assert [line.get_ydata()[n.tolist().index(1280)] for line in ax.lines[:3]] == pytest.approx([1, 1280 / 1408, 1280 / 1536])


def test_processor_strip_and_efficiency_map_hold_the_efficiency_of_each_output():
    n, m, counts = np.array([1000, 1256, 1512]), np.array([300, 428]), {"A": 4, "B": 7, "C": 9}
    ax = figures.processor_strip(counts, n, m=300, **TILE)
    (image,) = ax.images
    by_hand = [[efficiency(300, x, 128, 256, sms)[0] for x in n] for sms in counts.values()]
    assert np.allclose(image.get_array(), by_hand, rtol=1e-12) and image.origin == "upper"
    assert image.get_extent() == [872, 1640, 2.5, -0.5] and image.get_clim() == (0.5, 1)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["A", "B", "C"]
    ax = figures.efficiency_map(7, m, n, **TILE)
    (image,) = ax.images
    assert np.allclose(image.get_array(), [[efficiency(y, x, 128, 256, 7)[0] for x in n] for y in m], rtol=1e-12)
    assert image.get_extent() == [872, 1640, 236, 492] and image.origin == "lower"


def test_a_shard_map_names_the_size_and_the_rule_of_each_shard():
    dimensions = {"expert": (1856, "nvfp4"), "width": (2880, "bf16"), "ffn": (29568, "int4_g128"), "wide": (8192, "bf16")}
    ax = figures.shard_map(dimensions, (1, 2, 3, 64))
    cells = [p for p in ax.patches if isinstance(p, Rectangle)]
    assert len(cells) == len(ax.texts) == 4 * 4
    told = [[t.get_text().split("\n") for t in ax.texts if t.get_position()[1] == row] for row in range(4)]
    assert told == [
        [["1856", "kernel"], ["928", "kernel"], ["uneven"], ["29", "block cut"]],
        [["2880", "kernel"], ["1440", "kernel"], ["960", "kernel"], ["45", "whole"]],
        [["29568", "128"], ["14784", "block cut"], ["9856", "128"], ["462", "block cut"]],
        [["8192", "512"], ["4096", "512"], ["uneven"], ["128", "128"]],
    ]
    colour = {label: to_rgb(color) for color, label in TIERS.values()}
    for cell, text in zip(cells, ax.texts, strict=True):
        x, y = text.get_position()
        assert (cell.get_x(), cell.get_y(), cell.get_width(), cell.get_height()) == (x - 0.5, y - 0.5, 1, 1)
        assert cell.get_facecolor()[:3] == colour[text.get_text().split("\n")[-1]]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "2", "3", "64"]
    assert [t.get_text() for t in ax.get_yticklabels()] == list(dimensions)


def test_every_tier_has_a_label_that_is_readable_on_its_colour():
    def luminance(color):
        rgb = np.array(to_rgb(color))
        return np.where(rgb <= 0.03928, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    cases = {"uneven": (7, 2), "cut": (24, 1), "whole": (7, 1), "format": (16, 1), "kernel": (32, 1),
             "tile 128": (128, 1), "tile 256": (256, 1), "tile 512": (512, 1)}  # fmt: skip
    assert set(cases) == set(TIERS)
    for tier, (width, ways) in cases.items():
        ax = figures.shard_map({"a": (width, "bf16" if tier == "whole" else "nvfp4")}, (ways,))
        (text,), (cell,) = ax.texts, ax.patches
        assert text.get_text().split("\n")[-1] == TIERS[tier][1]
        light, dark = sorted((luminance(text.get_color()), luminance(cell.get_facecolor()[:3])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, tier


def test_cliffs_are_filled_at_multiples_and_open_elsewhere():
    m = [96, 128, 192, 256, 320]
    ax = figures.cliffs(m, {"one": [0.01, 0.3, 0.02, 0.2, 0.0], "two": [0.0, 0.1, 0.0, -0.05, 0.0]}, multiple=128)
    assert len(ax.lines) == 4
    for name, growth, (full, hollow) in (
        ("one", [1, 30, 2, 20, 0], ax.lines[:2]),
        ("two", [0, 10, 0, -5, 0], ax.lines[2:]),
    ):
        assert full.get_xdata().tolist() == [128, 256] and full.get_ydata().tolist() == pytest.approx([growth[1], growth[3]])
        assert hollow.get_xdata().tolist() == [96, 192, 320]
        assert hollow.get_ydata().tolist() == pytest.approx([growth[0], growth[2], growth[4]])
        assert full.get_markerfacecolor() == full.get_color() == hollow.get_color()
        assert hollow.get_markerfacecolor() == "white" and full.get_label() == name
    assert ax.lines[0].get_color() != ax.lines[2].get_color()
    other = figures.cliffs(m, {"one": [0.0] * 5}, multiple=64)
    assert other.lines[0].get_xdata().tolist() == [128, 192, 256, 320]


def test_a_staircase_is_drawn_with_its_line_and_the_published_times():
    m = [128, 512, 1024]
    ax = figures.staircase(m, [2e-5, 3e-5, 4e-5], FIT, 512, line=LINE)
    stairs, line, marks = ax.lines
    assert marks.get_xdata().tolist() == m and marks.get_ydata().tolist() == pytest.approx([20, 30, 40])
    assert stairs.get_xdata().tolist() == list(range(128, 1025))
    at = dict(zip(stairs.get_xdata().tolist(), stairs.get_ydata().tolist(), strict=True))
    assert [at[x] for x in (128, 256, 257, 1024)] == pytest.approx([20.128, 20.256, 30.257, 51.024])  # 2 tiles a row block, 4 SMs
    assert line.get_ydata()[[0, -1]].tolist() == pytest.approx([20.256, 22.048])
    assert [t.get_text() for t in ax.get_xticklabels()] == ["512", "1024"] and ax.get_ylim()[0] == 0
    assert len(figures.staircase(m, [2e-5, 3e-5, 4e-5], FIT, 512).lines) == 2
    *_, round_sizes, one_more = figures.staircase([512, 513], [3e-5, 4e-5], FIT, 512).lines
    assert round_sizes.get_xdata().tolist() == [512] and one_more.get_xdata().tolist() == [513]


def test_processor_counts_and_odd_blocks_draw_what_they_are_given():
    ax = figures.processor_count([147, 148], {"B200": [0.02, 0.01], "GB300": [0.03, 0.04]}, catalogue={"B200": 148, "GB300": 152})
    b200, at, gb300, other = ax.lines
    assert b200.get_ydata().tolist() == [2, 1] and gb300.get_ydata().tolist() == [3, 4] and b200.get_label() == "B200"
    assert set(at.get_xdata()) == {148} and set(other.get_xdata()) == {152} and at.get_color() == b200.get_color()
    shares = {("GB300 BF16", "sglang"): 0.1, ("GB300 NVFP4", "sglang"): -0.2, ("GB300 NVFP4", "trtllm"): 0.9}
    ax = figures.odd_blocks(shares)
    marks = {line.get_label(): line for line in ax.lines if line.get_marker() == "x"}
    assert {name: (list(x.get_xdata()), np.round(x.get_ydata(), 2).tolist()) for name, x in marks.items()} == {
        "SGLang": ([0.1, -0.2], [0, 1]), "TensorRT-LLM": ([0.9], [0.82])
    }  # fmt: skip
    assert [t.get_text() for t in ax.get_yticklabels()] == ["GB300 BF16", "GB300 NVFP4"]


def test_no_device_is_left_out_in_silence():
    names = [f"device {i}" for i in range(6)]
    for draw in (
        lambda: figures.processor_count([1, 2], {name: [0.1, 0.2] for name in names}),
        lambda: figures.own_steps({n: ([16, 20], [1.0, 2.0]) for n in names}, blocks=dict.fromkeys(names, 16)),
        lambda: figures.cliffs([128], {name: [0.1] for name in names}),
    ):
        told = {t.get_text().lower() for t in draw().get_legend().get_texts()}
        assert set(names) <= told


def test_own_steps_mark_exactly_the_multiples_of_the_block():
    n = np.arange(256, 385, 4)
    rates = {"bf16": np.linspace(1, 2, 33), "fp32": np.linspace(8, 4, 33)}
    ax = figures.own_steps({name: (n, rate) for name, rate in rates.items()}, blocks={"bf16": 32, "fp32": 16})
    assert len(ax.lines) == 6
    for name, marked, (points, on, line) in (
        ("bf16", [256, 288, 320, 352, 384], ax.lines[:3]),
        ("fp32", [256, 272, 288, 304, 320, 336, 352, 368, 384], ax.lines[3:]),
    ):
        assert points.get_label() == name.upper() and points.get_xdata().tolist() == n.tolist() == line.get_xdata().tolist()
        assert points.get_ydata().max() == 1 and np.allclose(points.get_ydata(), rates[name] / rates[name].max())
        assert on.get_xdata().tolist() == marked and on.get_label() == f"multiples of {marked[1] - marked[0]}"
        assert on.get_ydata().tolist() == [points.get_ydata()[n.tolist().index(x)] for x in marked]


@pytest.mark.parametrize(
    ("draw", "x", "y"),
    [
        (lambda: figures.tile_map(300, 700, **TILE, sms=4), "output column n [element]", "output row m [element]"),
        (lambda: figures.fine_steps(range(512, 1537, 16)), "N [element]", "throughput [share of the best]"),
        (lambda: figures.processor_strip({"A": 4}, [256, 512], m=128, **TILE), "N [element]", ""),
        (lambda: figures.efficiency_map(4, [128, 256], [256, 512], **TILE), "N [element]", "M [element]"),
        (lambda: figures.shard_map({"a": (1856, "nvfp4")}, (1, 2)), "tensor-parallel ways", ""),
        (lambda: figures.cliffs([96, 128], {"a": [0.0, 0.3]}), "rows m before the step [element]", "time of one more row [%]"),
        (lambda: figures.staircase([128, 256], [2e-5, 2e-5], FIT, 512), "M [element]", "time [µs]"),
        (
            lambda: figures.processor_count([1, 2], {"a": [0.1, 0.2]}),
            "assumed number of processors [SM]",
            "error of the staircase [%]",
        ),
        (lambda: figures.odd_blocks({("a", "sglang"): 0.1}), "extra time at odd multiples [share of 256 rows]", ""),
        (lambda: figures.own_steps({"a": ([16, 20], [2, 1])}, blocks={"a": 16}), "N [element]", "rate [share of the best]"),
    ],
)
def test_axes_name_quantity_and_unit(draw, x, y):
    ax = draw()
    assert (ax.get_xlabel(), ax.get_ylabel()) == (x, y)
    assert y or all(t.get_text() for t in ax.get_yticklabels())  # the ticks are names then
    assert ax.get_title() == "" and webp_uri(ax) == webp_uri(draw())


# Sliders ------------------------------------------------------------------------------------------------------------------


def test_the_tile_slider_counts_tiles_and_waves():
    explorer = figures.explore_tiles()
    frames = [explorer.draw(i) for i in range(len(explorer.values))]
    assert [f.data["n"] for f in frames] == [int(v.removeprefix("N = ")) for v in explorer.values]
    for frame in frames:
        share, tiles, waves = efficiency(1088, frame.data["n"], 128, 256, 152)
        assert (frame.data["tiles"], frame.data["waves"]) == (tiles, waves)
        assert frame.data["efficiency"] == pytest.approx(share, rel=1e-12)
        assert f"N = {frame.data['n']}: {tiles} tiles, {waves} wave{'s' * (waves > 1)} of 152." in frame.text
        assert f"together {share:.1%}" in frame.text and frame.text in frame.alt
        assert sum(p.get_fill() and not p.get_hatch() for p in frame.ax.patches) == tiles
        assert len(frame.ax.get_legend().get_texts()) == waves + 1
    assert {f.ax.get_xlim() for f in frames} == {frames[-1].ax.get_xlim()}  # nothing jumps as the slider moves
    by_n = {f.data["n"]: f.data for f in frames}
    assert [by_n[n]["tiles"] for n in (4096, 4097, 5120)] == [9 * 16, 9 * 17, 9 * 20]
    assert [by_n[n]["waves"] for n in (4096, 4097, 5120)] == [1, 2, 2]
    assert figures.explore_tiles(m=128, sizes=(256, 257), sms=1).draw(1).data["waves"] == 2


def test_the_processor_slider_counts_good_outputs_and_the_last_column_of_a_wave():
    explorer = figures.explore_processors()
    frames = [explorer.draw(i) for i in range(len(explorer.values))]
    assert [f.data["sms"] for f in frames] == [108, 132, 148, 152, 160]
    sold = {"A100": "A100_SXM", "H100": "H100_SXM", "B200": "B200", "GB300": "GB300"}
    assert [figures.PROCESSORS[name] for name in sold] == [hw.device(name).sms for name in sold.values()]
    outputs = [(m, n) for m in range(128, 4097, 64) for n in range(1024, 8193, 64)]
    for frame in frames:
        sms = frame.data["sms"]
        above = exactly = 0
        for m, n in outputs:
            places = -(-(-(-m // 128) * -(-n // 256)) // sms) * sms * 128 * 256
            above, exactly = above + (10 * m * n > 9 * places), exactly + (10 * m * n == 9 * places)
        good = frame.data["good"] * len(outputs)
        assert above - 1e-6 <= good <= above + exactly + 1e-6  # what lies on 0.9 itself may be rounded below it
        assert exactly < 0.005 * len(outputs)
        last = max(n for n in range(256, 8193, 256) if efficiency(1024, n, 128, 256, sms)[2] == 1)
        assert efficiency(1024, last + 1, 128, 256, sms)[2] == 2
        assert f"{frame.data['good']:.0%} of these outputs" in frame.text and frame.text.endswith(f"reaches to N = {last}.")
        assert frame.ax.images[0].get_array().shape == (63, 113)


def test_the_processor_slider_is_right_for_tiles_that_do_not_divide_1024():
    frame = figures.explore_processors({"a": 10, "b": 20}, tile_m=192, tile_n=128).draw(0)
    last = max(n for n in range(128, 2049, 128) if efficiency(1024, n, 192, 128, 10)[2] == 1)
    assert last == 128 and frame.text.endswith(f"reaches to N = {last}.")  # six rows of tiles: one column of them in a wave


def test_the_sliders_of_a_chapter_are_light_and_say_what_they_show():
    explorers = [figures.explore_tiles(), figures.explore_processors()]
    assert sum(len(e.values) for e in explorers) <= 24 and len({e.name for e in explorers}) == 2
    for e in explorers:
        assert re.search(r"\[[^\]]+\]$", e.control) and e.kinds == ("modelled",)
        alt = e.draw(0).alt
        assert len(alt) > 60 and re.search(r"\d", alt) and "[element]" in alt


# Live ---------------------------------------------------------------------------------------------------------------------

def test_the_stored_run_holds_n_in_fine_steps(monkeypatch):
    monkeypatch.setenv("HWDESIGN_STATIC", "1")
    run = live.fine_sweeps()
    assert run.machine == load_run(shipped_runs()[0]).machine == live.fine_sweeps(stored=True).machine
    found = live.fine_of(run)
    assert set(found) == {"bf16", "fp32"}
    for precision, sweep in found.items():
        assert [m.shape["n"] for m in sweep] == list(range(256, 385, 4)) and len(sweep) == 33
        assert {(m.precision, m.shape["m"], m.shape["k"]) for m in sweep} == {(precision, 512, 512)}
        assert not [m.flags for m in sweep if any(f.startswith(("impossible", "wrong")) for f in m.flags)]


def test_a_kernel_measures_n_in_fine_steps(small, capsys):
    small(as_backend("numpy"))
    run = live.fine_sweeps(rounds=1)
    assert [(m.operation, m.precision, *m.shape.values()) for m in run.measurements] == [
        ("gemm", "fp32", 16, 16, 32), ("gemm", "fp32", 16, 20, 32)
    ]  # fmt: skip
    assert run.skipped == () and all(m.backend == "numpy" and m.source == "own machine" for m in run.measurements)
    assert {p: [m.shape["n"] for m in sweep] for p, sweep in live.fine_of(run).items()} == {"fp32": [16, 20]}
    assert "2 of 2: 16 x 20 x 32" in capsys.readouterr().err
    with pytest.raises(ValueError, match="rounds must be >= 1, got 0"):
        live.fine_sweeps(rounds=0)


@pytest.mark.parametrize(("capability", "precision"), [((9, 0), "bf16"), ((7, 5), "fp16")])
def test_a_gpu_is_swept_in_one_format(small, capability, precision):
    small(TorchBackend(stub(capability=capability, l2=2**18), "cuda"))
    run = live.fine_sweeps(rounds=1)
    assert [(m.backend, m.precision, m.shape["n"]) for m in run.measurements] == [("torch-cuda", precision, n) for n in (16, 20)]
    assert list(live.fine_of(run)) == [precision]


def test_torch_on_a_cpu_is_swept_in_both_formats(small):
    pytest.importorskip("torch", reason="torch is not installed")
    small(as_backend("torch-cpu"))
    found = live.fine_of(live.fine_sweeps(rounds=1))
    assert {p: [m.shape["n"] for m in sweep] for p, sweep in found.items()} == {"bf16": [16, 20], "fp32": [16, 20]}


def test_where_nothing_can_be_timed_the_reason_is_told(small, monkeypatch):
    small(as_backend("numpy"))
    monkeypatch.setattr(live, "measure_gemm", lambda *a, **k: Skipped(operation="gemm fp32", reason="out of memory"))
    for sweeps in (live.fine_sweeps, live.machine_sweeps):
        with pytest.raises(RuntimeError, match="nothing could be timed: gemm fp32: skipped, out of memory"):
            sweeps(rounds=1)


def test_machine_sweeps_need_a_copy(small, monkeypatch):
    small(as_backend("numpy"))
    monkeypatch.setattr(live, "measure_copy", lambda *a, **k: Skipped(operation="copy", reason="no memory"))
    with pytest.raises(RuntimeError, match="nothing could be timed: copy: skipped, no memory"):
        live.machine_sweeps()


def test_fine_steps_are_picked_from_among_other_gemms_and_put_in_order(small):
    small(as_backend("numpy"))
    taken = {m.shape["n"]: m for m in live.fine_sweeps(rounds=1).measurements}

    def resized(n, m=16, k=32):
        return dataclasses.replace(taken[n], shape={"m": m, "n": n, "k": k})

    mixed = [resized(20), resized(16, m=32), resized(16), resized(20, k=64)]
    run = dataclasses.replace(live.fine_sweeps(rounds=1), measurements=tuple(mixed))
    assert live.fine_of(run) == {"fp32": [mixed[2], mixed[0]]}


def test_a_run_without_fine_steps_is_refused():
    run = load_run(shipped_runs()[0])
    one_less = tuple(m for m in run.measurements if m.operation != "gemm" or (m.precision, m.shape["n"]) != ("bf16", 260))
    assert len(one_less) == len(run.measurements) - 1
    assert set(live.fine_of(dataclasses.replace(run, measurements=one_less))) == {"fp32"}
    none = tuple(m for m in run.measurements if m.operation != "gemm" or m.shape["n"] != 260)
    gemms = sum(m.operation == "gemm" for m in none)
    with pytest.raises(ValueError, match=f"run must hold N in fine steps, got none in {gemms} GEMMs") as error:
        live.fine_of(dataclasses.replace(run, measurements=none))
    assert run.machine in str(error.value) and "record it again" in str(error.value)


def test_the_suite_measures_n_in_fine_steps():
    cpu, cuda = list(suite.SIZES["cpu"]["fine"]), list(suite.SIZES["cuda"]["fine"])
    assert (cpu[0], cpu[-1], len(cpu)) == (256, 384, 33) and sum(n % 16 == 0 for n in cpu) == 9
    assert (cuda[0], cuda[-1], len(cuda)) == (4096, 5120, 33) and [n for n in cuda if n % 512 == 256] == [4352, 4864]
    assert all(n % 32 == 0 for n in cuda)  # what NVFP4 kernels take
    labels = {quick: list(suite.cases("numpy", quick=quick)) for quick in (False, True)}
    wanted = [f"gemm fp32 512 x {n} x 512" for n in cpu]
    assert set(wanted) <= set(labels[False]) and all(labels[False].count(x) == 1 for x in wanted)
    assert not [x for x in wanted if x in labels[True]]
