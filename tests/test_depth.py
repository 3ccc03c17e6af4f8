"""Chapter 3: siblings of equal parameters, published times of their layers, kernels counted by hand, figures, sliders, live."""

import dataclasses
import re

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from matplotlib.colors import to_rgb
from stub_torch import stub

import hwdesign as hw
from hwdesign.lessons import figures, live
from hwdesign.lessons.figures.wide_deep import LOOKS, TERMS
from hwdesign.lessons.show import webp_uri
from hwdesign.lessons.studies.depth import LAYERS, layer_gemm_seconds, siblings
from hwdesign.measure import suite
from hwdesign.measure.backends import TorchBackend, as_backend
from hwdesign.measure.runs import Skipped, load_run, shipped_runs
from hwdesign.models import config
from hwdesign.models.blocks import Block, DenseFFN, MoE, SelfAttention
from hwdesign.models.model import same_parameters
from hwdesign.timing.silicon import measurements
from hwdesign.timing.spent import TERMS as SPENT

OLD, NEW = "0.5.6.post2", "0.5.14"  # versions of SGLang
# N and K of the four GEMMs of a plain layer, by hand: queries, keys and values; attention output; up; down.
NARROW = [(6144, 2048), (2048, 2048), (8192, 2048), (2048, 8192)]
WIDE = [(12288, 4096), (4096, 4096), (16384, 4096), (4096, 16384)]
PLAIN = {512: 2048, 1024: 512, 2048: 128, 4096: 32}  # width to layers of 6.4 billion weights


def layer(h):
    """N and K of the four GEMMs of a layer of width h."""
    return [(h + h + h, h), (h, h), (h + h + h + h, h), (h, h + h + h + h)]


def looped(grid, m, shapes, layers):
    """Time of all layers [s], GEMM after GEMM."""
    seconds = 0.0
    for _ in range(layers):
        for n, k in shapes:
            seconds += float(grid.at(m, n, k))
    return seconds


# Siblings -----------------------------------------------------------------------------------------------------------------


def test_siblings_of_llama_have_the_widths_counted_by_hand():
    found = siblings(layers=(8, 32, 128))
    told = {}
    for n, model in found.items():
        (block,) = set(model.blocks)
        told[n] = (len(model.blocks), model.hidden_size, block.mixer.num_heads, block.mixer.num_kv_heads, block.ffn.width)
    assert told == {8: (8, 8192, 64, 16, 28672), 32: (32, 4096, 32, 8, 14336), 128: (128, 2048, 16, 4, 7168)}
    assert [type(n) for n in siblings(layers=np.array([8, 16]))] == [int, int]


@pytest.mark.parametrize("base", ["llama-3.1-8b", "llama-3.1-70b"])
def test_siblings_keep_the_parameters_of_the_blocks(base):
    def blocks(model):
        parts = model.parameters_by_part()
        return parts["attention"] + parts["ffn"]

    original = hw.Model.from_config(base)
    found = siblings(base)
    assert list(found) == list(LAYERS) == [8, 16, 32, 64, 128, 256]
    for n, model in found.items():
        assert len(model.blocks) == n and abs(blocks(model) / blocks(original) - 1) < 0.03, n
        assert model.vocab_size == original.vocab_size
    assert blocks(hw.Model.from_config("llama-3.1-8b")) == 32 * 4096 * (6144 + 4096 + 3 * 14336)
    widths = [model.hidden_size for model in found.values()]
    assert widths == sorted(set(widths), reverse=True)  # the deeper, the narrower


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ({"base": "qwen3-235b-a22b"}, r"model must have equal blocks .* got \['GQA \+ MoE 8 of 128'\]"),
        ({"base": "deepseek-r1"}, "model must have equal blocks"),
        ({"layers": (8, 0)}, "layers must be >= 1, got 0"),
        ({"layers": (10**6,)}, "layers must leave a width of at least one head, got 1000000"),
    ],
)
def test_what_has_no_siblings_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        siblings(**call)


# Published times of a layer -----------------------------------------------------------------------------------------------


def deep_and_wide(m, *key):
    grid = hw.gemm_grid(*key)
    return 128 * layer_gemm_seconds(grid, m, 2048), 32 * layer_gemm_seconds(grid, m, 4096)


def test_published_milliseconds_of_128_layers_of_2048_and_32_of_4096():
    deep, wide = deep_and_wide([1, 256, 8192], "GB300", "nvfp4", "trtllm")
    assert np.round(1e3 * deep, 2).tolist() == [5.93, 7.17, 40.87]
    assert np.round(1e3 * wide, 2).tolist() == [2.5, 2.86, 24.95]


@pytest.mark.parametrize(
    ("key", "ratios"),
    [
        (("GB300", "nvfp4", "trtllm"), {1: 2.37, 256: 2.51, 8192: 1.64}),
        (("GB300", "bf16", "sglang"), {1: 1.57, 8192: 1.06}),
        (("H100_SXM", "bf16", "sglang"), {1: 1.31, 16: 1.40, 8192: 0.90}),
    ],
)
def test_published_ratios_of_deep_to_wide(key, ratios):
    found = {}
    for m in ratios:
        deep, wide = deep_and_wide(m, *key)
        found[m] = round(float(deep / wide), 2)
    assert found == ratios


def test_a_layer_is_the_four_gemms_listed_by_hand_and_an_array_is_a_loop():
    for key in (("GB300", "nvfp4", "trtllm"), ("H100_SXM", "bf16", "sglang")):
        grid = hw.gemm_grid(*key)
        for h, shapes in ((2048, NARROW), (4096, WIDE)):
            found = layer_gemm_seconds(grid, [1, 16, 8192], h)
            assert found.tolist() == pytest.approx([looped(grid, m, shapes, 1) for m in (1, 16, 8192)], rel=1e-6)
            assert found.tolist() == [float(layer_gemm_seconds(grid, m, h)) for m in (1, 16, 8192)]
            assert np.shape(layer_gemm_seconds(grid, 1, h)) == ()


@pytest.mark.parametrize(("m", "h", "says"), [(1, 3000, "got 9000; nearest are 8192 and 10240"), (18, 2048, "got 18")])
def test_a_layer_off_the_grid_is_refused_by_its_size(m, h, says):
    with pytest.raises(ValueError, match=f"must be a size of GB300 bf16.*{says}"):
        layer_gemm_seconds(hw.gemm_grid("GB300", "bf16", "sglang"), m, h)


def test_square_layers_of_one_token_on_two_devices():
    new, old = (hw.gemm_grid(device, "bf16", "sglang") for device in ("GB300", "H100_SXM"))
    small = [round(float(grid.at(1, 2048, 2048)) * 1e6, 1) for grid in (new, old)]
    assert small == [6.2, 7.6]  # 1.23 times as fast, with 2.4 times the bandwidth
    assert round(float(old.at(1, 8192, 8192) / new.at(1, 8192, 8192)), 2) == 2.08


TOKENS = [1, 4, 16, 64, 256, 512, 1024, 2048, 4096, 8192]


# The rows of TensorRT-LLM's FP8 hold passes that a server with fixed scales does not run, and the model leaves out.
@pytest.mark.parametrize(
    ("key", "low", "high"),
    [
        (("GB300", "nvfp4", "trtllm"), -0.08, 0.13), (("GB300", "nvfp4", "sglang"), -0.08, 0.1),
        (("GB300", "bf16", "sglang"), -0.09, 0.09), (("H200", "fp8", "trtllm"), -0.3, -0.17),
        (("H100_SXM", "bf16", "sglang"), -0.16, 0.12),
    ],
)  # fmt: skip
def test_the_model_tells_how_much_longer_the_deep_one_takes(key, low, high):
    device, precision, framework = key
    times = {}
    for name, shapes, layers in (("deep", NARROW, 128), ("wide", WIDE, 32)):
        times[name] = sum(layers * hw.gemm_time(TOKENS, n, k, device, precision, framework=framework) for n, k in shapes)
    deep, wide = deep_and_wide(TOKENS, *key)
    off = (times["deep"] / times["wide"]) / (deep / wide) - 1
    assert ((low < off) & (off < high)).all(), dict(zip(TOKENS, off.round(3).tolist(), strict=True))


# Two versions of one engine -----------------------------------------------------------------------------------------------


def test_both_versions_hold_each_shape_once():
    rows = measurements("gemm_versions", "H100_SXM")
    assert {column: set(rows[column].tolist()) for column in ("device", "framework", "precision", "version")} == {
        "device": {"H100_SXM"}, "framework": {"sglang"}, "precision": {"bf16"}, "version": {OLD, NEW}
    }  # fmt: skip
    taken = list(zip(rows["version"].tolist(), *(rows[x].astype(int).tolist() for x in "mnk"), strict=True))
    tokens = (1, 4, 8, 16, 32, 64, 128, 256, 1024, 8192)
    wanted = {(version, m, *shape) for version in (OLD, NEW) for m in tokens for shape in NARROW + WIDE}
    assert len(taken) == 160 == len(wanted) and set(taken) == wanted
    assert (rows["seconds"] > 1e-6).all() and (rows["seconds"] < 1e-2).all()


def test_the_newer_version_is_near_the_shipped_grid_which_is_newer_still():
    grid, apart = hw.gemm_grid("H100_SXM", "bf16", "sglang"), {}
    for version in (OLD, NEW):
        rows = measurements("gemm_versions", "H100_SXM", version=version)
        apart[version] = np.abs(rows["seconds"] / grid.at(*(rows[x].astype(int) for x in "mnk")) - 1)
    assert grid.version == "0.5.20" and len(apart[NEW]) == 80
    assert np.median(apart[NEW]) < 0.04 and apart[NEW].max() < 0.2
    assert np.median(apart[OLD]) > 0.13 and apart[OLD].max() > 0.45


def test_in_the_older_version_three_shapes_came_faster_than_memory_can():
    rates = {}
    for version in (OLD, NEW):
        rows = measurements("gemm_versions", "H100_SXM", version=version)
        rates[version] = {
            (int(m), int(n), int(k)): 2 * n * k / t for m, n, k, t in zip(*(rows[x] for x in (*"mnk", "seconds")), strict=True)
        }
    fast = {shape[1:]: round(rate / 1e12, 2) for shape, rate in rates[OLD].items() if shape[0] == 16 and rate > 3.35e12}
    assert fast == {(8192, 2048): 4.25, (4096, 4096): 3.44, (6144, 2048): 3.38}
    assert max(rates[NEW].values()) < 3.35e12 == hw.H100_SXM.memory_bandwidth


@pytest.mark.parametrize(("version", "ratio"), [(OLD, 0.83), (NEW, 1.37)])
def test_the_version_decides_whether_deep_or_wide_is_faster(version, ratio):
    rows = measurements("gemm_versions", "H100_SXM", version=version, m=16)
    at = {(int(n), int(k)): t for n, k, t in zip(rows["n"], rows["k"], rows["seconds"], strict=True)}
    assert round(128 * sum(at[s] for s in NARROW) / (32 * sum(at[s] for s in WIDE)), 2) == ratio


# Kernels of a step --------------------------------------------------------------------------------------------------------

ATTENTION = SelfAttention(num_heads=8, num_kv_heads=2, head_dim=16)
DENSE = Block(mixer=ATTENTION, ffn=DenseFFN(width=512))
ROUTED = Block(mixer=ATTENTION, ffn=MoE(num_experts=8, top_k=2, width=64))
SHARED = Block(mixer=ATTENTION, ffn=MoE(num_experts=8, top_k=2, width=64, shared_width=64))
ENDS = ["embedding", "final norm", "head", "sampling"]
ATTENDED = ["norm", "qkv", "rotation and write of the cache", "attention", "attention output", "norm"]
FED = ["up", "activation", "down"]
CHOSEN = ["router", "choice", "experts up", "experts down"]


@pytest.mark.parametrize(
    ("blocks", "plans", "kernels"),
    [
        ([DENSE] * 2, {}, 2 * [*ATTENDED, *FED]),
        ([DENSE] * 2, {"tp": 2}, 2 * [*ATTENDED, "all-reduce", *FED, "all-reduce"]),
        ([ROUTED] * 2, {}, 2 * [*ATTENDED, *CHOSEN]),
        ([ROUTED] * 5, {}, 5 * [*ATTENDED, *CHOSEN]),
        ([SHARED], {}, [*ATTENDED, *CHOSEN, *FED]),
        ([DENSE, ROUTED, ROUTED], {}, [*ATTENDED, *FED, *2 * [*ATTENDED, *CHOSEN]]),
        ([ROUTED] * 2, {"tp": 2}, 2 * [*ATTENDED, "all-reduce", *CHOSEN, "all-reduce"]),
    ],
    ids=["dense", "dense-tp2", "experts", "experts-5", "shared", "mixed", "experts-tp2"],
)
def test_kernels_are_those_listed_by_hand(blocks, plans, kernels):
    model = hw.Model(name="toy", hidden_size=128, vocab_size=1024, blocks=tuple(blocks))
    plan = hw.Plan(**plans)
    for batch in (1, 64, np.array([1, 64])):  # how many sequences run does not matter
        found = hw.step(model, batch=batch, context=100, attention=plan, ffn=plan).kernels
        assert type(found) is int and found == len(kernels) + len(ENDS)


def test_experts_on_two_gpus_exchange_their_tokens_twice():
    model = hw.Model(name="toy", hidden_size=128, vocab_size=1024, blocks=(ROUTED,) * 2)
    done = hw.step(model, batch=64, context=100, attention=hw.Plan(dp=2), ffn=hw.Plan(ep=2))
    assert done.kernels == len(2 * [*ATTENDED, *CHOSEN, "dispatch", "combine"]) + len(ENDS)


def test_four_times_the_layers_start_four_times_the_kernels():
    found = {n: hw.step(m, batch=1, context=256).kernels for n, m in siblings(layers=(8, 32, 128)).items()}
    assert found == {8: 76, 32: 292, 128: 1156}  # nine a layer, four at the ends


# Figures ------------------------------------------------------------------------------------------------------------------


def breakdown(**terms):
    return hw.Breakdown(terms={name.replace("_", " "): 1e-3 * t for name, t in terms.items()}, memory=1.0, capacity=2.0)


STEPS = [
    breakdown(projections=1.0, attention=2.0, ffn=4.0, experts=0.0, head=0.5, communication=0.0, small_kernels=8.0),
    breakdown(projections=3.0, attention=0.0, ffn=5.0, experts=0.0, head=0.25, communication=0.0, small_kernels=0.0),
]


def stacked(ax):
    """Bars of each model from the floor up: term, foot and height."""
    bars = [[] for _ in ax.containers[0].patches]
    for container in ax.containers:
        for x, patch in enumerate(container.patches):
            assert patch.get_x() + patch.get_width() / 2 == pytest.approx(x)
            bars[x].append((container.get_label(), patch.get_y(), patch.get_height()))
    return bars


def test_bars_of_terms_stand_on_each_other_and_reach_the_time_of_the_step():
    ax = figures.stacked_terms(["a", "b"], STEPS, ideal=[5e-3, 7e-3], top=0.02)
    for bars, total, step in zip(stacked(ax), (15.5, 8.25), STEPS, strict=True):
        top = 0.0
        for term, foot, height in bars:
            assert foot == pytest.approx(top) and height == pytest.approx(1e3 * step.terms[term])
            top += height
        assert top == pytest.approx(total) == pytest.approx(1e3 * step.seconds)
    (marks,) = ax.lines
    assert marks.get_xdata().tolist() == [0, 1] and marks.get_ydata().tolist() == pytest.approx([5, 7])
    assert marks.get_marker() == "_" and marks.get_linestyle() == "None" and ax.get_ylim() == (0, 20)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["a", "b"]
    told = [t.get_text() for t in ax.get_legend().get_texts()]
    assert set(told) == {"projections", "attention", "ffn", "head", "small kernels", "plain bound"} and len(told) == 6
    assert not figures.stacked_terms(["a", "b"], STEPS).lines


def test_what_takes_no_time_has_no_bar_and_every_term_of_a_step_has_a_colour():
    ax = figures.stacked_terms(["b"], STEPS[1:])
    assert {c.get_label() for c in ax.containers} == {"projections", "ffn", "head"}
    assert set(TERMS) == set(SPENT) and len(set(map(to_rgb, TERMS.values()))) == len(TERMS)
    every = dict.fromkeys(SPENT, 1e-3)
    ax = figures.stacked_terms(["all"], [hw.Breakdown(terms=every, memory=1.0, capacity=2.0)])
    assert len(ax.containers) == 7 and sum(h for *_, h in stacked(ax)[0]) == pytest.approx(7)
    for container in ax.containers:
        assert container.patches[0].get_facecolor()[:3] == to_rgb(TERMS[container.get_label()])


def test_ratios_are_crosses_where_published_and_lines_where_modelled():
    published, modelled = {"x": [2.0, 1.5, 1.0], "y": [0.9, 1.0, 1.1]}, {"y": [0.8, 1.2, 1.3], "x": [2.2, 1.4, 0.7]}
    ax = figures.depth_ratio([1, 64, 4096], published, modelled)
    one, lines = ax.lines[-1], ax.lines[:-1]
    assert len(lines) == 4 and one.get_ydata() == [1, 1] and one.get_linestyle() == "--"
    for name, (cross, line) in zip("xy", (lines[:2], lines[2:]), strict=True):
        assert (cross.get_marker(), cross.get_linestyle(), cross.get_label()) == ("x", "None", name)
        assert (line.get_marker(), line.get_linestyle()) == ("None", "-") and line.get_color() == cross.get_color()
        assert list(cross.get_ydata()) == published[name] and list(line.get_ydata()) == modelled[name]
        assert list(cross.get_xdata()) == list(line.get_xdata()) == [1, 64, 4096]
    assert lines[0].get_color() != lines[2].get_color()
    assert ax.get_xscale() == "log" and ax.get_ylim()[0] == 0 < 2.2 < ax.get_ylim()[1]


def test_times_by_width_are_microseconds_with_the_bound_below():
    ax = figures.time_by_hidden([512, 1024], {"a": [2e-6, 4e-6], "b": [3e-6, 5e-6]}, {"b": [2e-7, 9e-7], "a": [1e-7, 4e-7]})
    told = {line.get_label(): line for line in ax.lines}
    assert {name: line.get_ydata().round(6).tolist() for name, line in told.items()} == {
        "a": [2, 4], "a, bound": [0.1, 0.4], "b": [3, 5], "b, bound": [0.2, 0.9]
    }  # fmt: skip
    assert all(list(line.get_xdata()) == [512, 1024] for line in ax.lines)
    assert [told[x].get_marker() for x in ("a", "b", "a, bound", "b, bound")] == ["x", "x", "None", "None"]
    assert [told[x].get_linestyle() for x in ("a", "b", "a, bound", "b, bound")] == ["None", "None", "-", "-"]
    assert told["a"].get_color() == told["a, bound"].get_color() != told["b"].get_color() == told["b, bound"].get_color()
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [t.get_text() for t in ax.get_xticklabels()] == ["512", "1024"]


def test_bandwidths_stand_beside_the_line_of_the_memory():
    rates = {"old": [4e12, 1e12, 2e12], "new": [2e12, 0.5e12, 1e12]}
    ax = figures.implied_bandwidth(["p", "q", "r"], rates, limit=3.35e12)
    old, new, limit = ax.lines
    assert old.get_xdata().tolist() == pytest.approx([4, 1, 2]) and new.get_xdata().tolist() == pytest.approx([2, 0.5, 1])
    assert old.get_ydata().tolist() == new.get_ydata().tolist() == [0, 1, 2] == ax.get_yticks().tolist()
    assert [t.get_text() for t in ax.get_yticklabels()] == ["p", "q", "r"] and ax.get_ylim() == (2.5, -0.5)  # the first on top
    assert limit.get_xdata() == pytest.approx([3.35] * 2) and limit.get_linestyle() == "--"
    assert (old.get_label(), new.get_label()) == ("old", "new") and old.get_color() != new.get_color()
    assert old.get_marker() != new.get_marker() and ax.get_xlim()[0] == 0 and ax.get_xlim()[1] > 4
    assert [(t.get_text(), t.xy[0]) for t in ax.texts] == [("memory", pytest.approx(3.35))]
    low = figures.implied_bandwidth(["p"], {"new": [1e12]}, limit=3.35e12)
    assert low.get_xlim()[0] == 0 and low.get_xlim()[1] > 3.35  # the limit is seen even where nothing comes near


def test_the_map_of_aspects_holds_its_models_its_band_and_its_budgets():
    models = {"a": (4096, 32, "dense"), "b": (7168, 61, "experts"), "c": (2688, 52, "hybrid"), "d": (8192, 80, "dense")}
    ax = figures.aspect_map(models)
    marks, dotted = ([x for x in ax.lines if x.get_linestyle() == look] for look in ("None", ":"))
    points = {x.get_label(): list(zip(x.get_xdata(), x.get_ydata(), strict=True)) for x in marks}
    assert points == {"dense": [(4096, 32), (8192, 80)], "experts": [(7168, 61)], "hybrid": [(2688, 52)]}
    assert len({(x.get_color(), x.get_marker()) for x in marks}) == 3
    (band,) = ax.collections
    (path,) = band.get_paths()
    inside = {layers: bool(path.contains_point((4096, layers))) for layers in (31, 33, 64, 127, 129)}
    assert inside == {31: False, 33: True, 64: True, 127: True, 129: False} and band.get_label() == "H/L from 32 to 128"
    for line, budget in zip(dotted, (1e9, 1e10, 1e11), strict=True):
        for h, layers in zip(line.get_xdata(), line.get_ydata(), strict=True):
            assert 12 * layers * h * h == pytest.approx(budget)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    other = figures.aspect_map({"a": (4096, 32, "dense")}, aspects=(64.2, 102.4), budgets=(2e9,))
    assert other.collections[0].get_label() == "H/L from 64 to 102" and [t.get_text() for t in other.texts] == ["2 B"]
    assert {t.get_text() for t in other.get_legend().get_texts()} == {"H/L from 64 to 102", "dense"}


def test_each_budget_is_named_on_its_line_within_the_map():
    ax = figures.aspect_map({"a": (4096, 32, "dense")})
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    for text, budget, name in zip(ax.texts, (1e9, 1e10, 1e11), ("1 B", "10 B", "100 B"), strict=True):
        h, layers = text.xy
        assert text.get_text() == name and 12 * layers * h * h == pytest.approx(budget)
        assert left < h < right and low < layers < high, name  # what lies outside is not drawn


def test_every_shipped_config_lies_within_the_map():
    for name in config.names():
        model = hw.Model.from_config(name)
        ax = figures.aspect_map({name: (model.hidden_size, len(model.blocks), "dense")})
        (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
        assert left < model.hidden_size < right and low < len(model.blocks) < high, name


def test_own_siblings_are_relative_to_the_widest():
    found = {1: {(16, 64): 6.0, (32, 16): 3.0, (64, 4): 2.0}, 16: {(16, 64): 4.0, (32, 16): 5.0, (64, 4): 8.0}}
    ax = figures.own_siblings(found)
    one, sixteen, line = ax.lines
    assert one.get_ydata().tolist() == [3, 1.5, 1] and sixteen.get_ydata().tolist() == [0.5, 0.625, 1]
    assert list(one.get_xdata()) == list(sixteen.get_xdata()) == [0, 1, 2] == ax.get_xticks().tolist()
    assert (one.get_label(), sixteen.get_label()) == ("1 token", "16 tokens") and one.get_color() != sixteen.get_color()
    assert [t.get_text() for t in ax.get_xticklabels()] == ["16 wide,\n64 layers", "32 wide,\n16 layers", "64 wide,\n4 layers"]
    assert line.get_ydata() == [1, 1] and line.get_linestyle() == "--" and ax.get_ylim()[0] == 0


def test_no_series_is_left_out_in_silence():
    names = [f"series {i}" for i in range(len(LOOKS) + 2)]
    two = {name: [1.0, 2.0] for name in names}
    for draw, wanted in (
        (lambda: figures.depth_ratio([1, 2], two, two), names),
        (lambda: figures.time_by_hidden([1, 2], two, two), [*names, *(f"{name}, bound" for name in names)]),
        (lambda: figures.implied_bandwidth(["a", "b"], two, limit=1.0), names),
        (
            lambda: figures.own_siblings({m: {(16, 4): 2.0, (32, 1): 1.0} for m in range(2, len(names) + 2)}),
            [f"{m} tokens" for m in range(2, len(names) + 2)],
        ),
    ):
        assert sorted(t.get_text() for t in draw().get_legend().get_texts()) == sorted(wanted)


@pytest.mark.parametrize(
    ("draw", "x", "y"),
    [
        (lambda: figures.stacked_terms(["a", "b"], STEPS), "", "time of a step [ms]"),
        (
            lambda: figures.depth_ratio([1, 8192], {"a": [2.0, 1.0]}, {"a": [2.1, 1.1]}),
            "tokens M [element]",
            "time, deep / wide [dimensionless]",
        ),
        (
            lambda: figures.time_by_hidden([1024, 2048], {"a": [1e-6, 2e-6]}, {"a": [1e-7, 4e-7]}),
            "width N = K [element]",
            "time [µs]",
        ),
        (
            lambda: figures.implied_bandwidth(["2048 x 2048"], {"old": [4e12], "new": [2e12]}, limit=3.35e12),
            "bytes of the weights / time [TB/s]",
            "",
        ),
        (lambda: figures.aspect_map({"a": (4096, 32, "dense")}), "hidden size H [element]", "layers L"),
        (lambda: figures.own_siblings({1: {(256, 16): 2.0, (512, 4): 1.0}}), "sibling", "time [widest = 1]"),
    ],
)
def test_axes_name_quantity_and_unit(draw, x, y):
    ax = draw()
    assert (ax.get_xlabel(), ax.get_ylabel()) == (x, y)
    for label, ticks in ((x, ax.get_xticklabels()), (y, ax.get_yticklabels())):
        assert label[:1] == label[:1].lower() and (label or all(t.get_text() for t in ticks))  # the ticks are names then
    assert ax.get_title() == "" and webp_uri(ax) == webp_uri(draw())


# Sliders ------------------------------------------------------------------------------------------------------------------


def test_the_slider_over_sequences_shows_the_steps_of_the_siblings():
    explorer = figures.explore_layers()
    assert explorer.values == ["1", "16", "64", "256", "1024", "4096"]
    base = hw.Model.from_config("llama-3.1-8b")
    widths = {256: 1408, 128: 2048, 64: 2944, 32: 4096, 16: 5760, 8: 8192}
    for i, batch in enumerate((1, 16, 64, 256, 1024, 4096)):
        frame = explorer.draw(i)
        steps, bounds = [], []
        for n in widths:
            model = same_parameters(base, layers=n)
            steps.append(hw.decode_step(model, "GB300", "nvfp4", batch=batch, context=256))
            bounds.append(float(hw.decode_step(model, "GB300", "nvfp4", batch=batch, context=256, ideal=True).seconds))
        seconds = [float(step.seconds) for step in steps]
        assert frame.data["batch"] == batch and list(frame.data["seconds"]) == [str(n) for n in widths]
        assert list(frame.data["seconds"].values()) == pytest.approx(seconds, rel=1e-9)
        assert [sum(h for *_, h in bars) for bars in stacked(frame.ax)] == pytest.approx([1e3 * t for t in seconds])
        (marks,) = frame.ax.lines
        assert marks.get_ydata().tolist() == pytest.approx([1e3 * t for t in bounds])
        assert all(b < t for b, t in zip(bounds, seconds, strict=True))
        assert [t.get_text() for t in frame.ax.get_xticklabels()] == [f"{n} x\n{h}" for n, h in widths.items()]
        assert frame.ax.get_xlabel() == "layers x hidden size"
        (factor,) = re.findall(r"a factor of ([0-9.]+)\.", frame.text)
        assert float(factor) == pytest.approx(seconds[0] / seconds[-1], abs=0.0501)
        assert frame.text.startswith(f"{batch} sequence{'s' * (batch > 1)}: ") and "with 256 layers" in frame.text
        told = re.findall(r"Attention takes (\d+)% of the deepest and (\d+)% of the widest\.", frame.text)
        parts = [100 * float(step.terms["attention"] / sum(step.terms.values())) for step in (steps[0], steps[-1])]
        assert [float(x) for x in told[0]] == pytest.approx(parts, abs=0.51) and frame.text in frame.alt


def test_the_slider_over_sequences_takes_other_machines_and_layers():
    frame = figures.explore_layers("H100_SXM", "fp8", context=1000, layers=(32, 128), batches=(4, 16)).draw(1)
    model = same_parameters(hw.Model.from_config("llama-3.1-8b"), layers=128)
    step = hw.decode_step(model, "H100_SXM", "fp8", batch=16, context=1000)
    assert list(frame.data["seconds"]) == ["128", "32"] and frame.data["batch"] == 16
    assert frame.data["seconds"]["128"] == pytest.approx(float(step.seconds))


def test_the_slider_over_tokens_shows_the_published_times():
    explorer = figures.explore_depth()
    frames = [explorer.draw(i) for i in range(len(explorer.values))]
    assert [f"M = {f.data['m']}" for f in frames] == explorer.values
    names = {
        "GB300 NVFP4, TensorRT-LLM": ("GB300", "nvfp4", "trtllm"),
        "GB300 BF16, SGLang": ("GB300", "bf16", "sglang"),
        "H100 BF16, SGLang": ("H100_SXM", "bf16", "sglang"),
    }
    for frame in frames:
        m, lines = frame.data["m"], {line.get_label(): line for line in frame.ax.lines}
        assert list(frame.data["seconds"]) == list(names) and set(names) < set(lines)
        for name, key in names.items():
            grid, by_hand = hw.gemm_grid(*key), []
            for h, layers in PLAIN.items():
                by_hand.append(layers * looped(grid, m, layer(h), 1))
            assert frame.data["seconds"][name] == pytest.approx(by_hand, rel=1e-6)
            assert lines[name].get_ydata() == pytest.approx([t / by_hand[-1] for t in by_hand], rel=1e-6)
        assert frame.text in frame.alt and f"M = {m}: 128 layers of 2048 against 32 of 4096" in frame.text
        assert [t.get_text() for t in frame.ax.get_xticklabels()] == ["2048 x\n512", "512 x\n1024", "128 x\n2048", "32 x\n4096"]
    assert {f.ax.get_ylim() for f in frames} == {frames[0].ax.get_ylim()}  # nothing jumps as the slider moves
    assert frames[0].ax.get_ylim()[1] > max(max(line.get_ydata()) for f in frames for line in f.ax.lines)
    told = {f.data["m"]: f.text for f in frames}
    assert told[1].endswith("TensorRT-LLM 2.37; GB300 BF16, SGLang 1.57; H100 BF16, SGLang 1.31.")
    assert "H100 BF16, SGLang 1.40." in told[16] and "TensorRT-LLM 2.51;" in told[256] and "H100 BF16, SGLang 0.90." in told[8192]
    assert {12 * h * h * layers for h, layers in PLAIN.items()} == {6442450944}


@pytest.mark.parametrize("framework", [["sglang"], ["sglang", "trtllm"], ["sglang", "trtllm", "vllm"]])
def test_the_slider_over_tokens_takes_any_number_of_slices(framework):
    slices = [("GB300", "nvfp4", name) for name in framework] + [("B200", "bf16", "sglang")] * (len(framework) == 3)
    frame = figures.explore_depth(slices, tokens=(1, 8192)).draw(1)
    assert len(frame.data["seconds"]) == len(slices) == len(frame.ax.get_legend().get_texts())


def test_the_sliders_of_the_chapter_are_light_and_say_what_they_show():
    explorers = {"modelled": figures.explore_layers(), "published": figures.explore_depth()}
    assert sum(len(e.values) for e in explorers.values()) <= 24 and len({e.name for e in explorers.values()}) == 2
    for kind, e in explorers.items():
        frame = e.draw(0)
        assert e.kinds == (kind,) and len(frame.alt) > 60 and re.search(r"\[[^\]]+\]", frame.alt)
        assert re.search(r"\[[^\]]+\]$", frame.ax.get_ylabel()) and frame.ax.get_xlabel().islower()


# Live ---------------------------------------------------------------------------------------------------------------------

SHAPES = [(48, 16), (16, 16), (64, 16), (16, 64), (96, 32), (32, 32), (128, 32), (32, 128)]  # N and K, by hand


@pytest.mark.parametrize("h", [16, 256, 1000, 4096])
def test_the_gemms_of_a_layer_hold_twelve_squares(h):
    assert sum(n * k for n, k in suite.layer_gemm_shapes(h)) == 12 * h * h
    assert suite.layer_gemm_shapes(4096) == WIDE and suite.layer_gemm_shapes(2048) == NARROW


def test_the_suite_measures_layers_that_grow_by_twos():
    for kind, tokens in (("cpu", {1, 16, 256}), ("cuda", {1, 16, 256, 8192})):
        pairs = suite.SIZES[kind]["layer"]
        widths = sorted({h for _, h in pairs})
        assert {m for m, _ in pairs} == tokens and len(widths) == 3 and set(pairs) == {(m, h) for m in tokens for h in widths}
        assert [b / a for a, b in zip(widths, widths[1:], strict=False)] == [2, 2]
    labels = {quick: list(suite.cases("numpy", quick=quick)) for quick in (False, True)}
    wanted = [f"gemm fp32 {m} x {n} x {k}" for m in (1, 16, 256) for h in (256, 512, 1024) for n, k in layer(h)]
    assert len(wanted) == 36 and all(labels[False].count(x) == 1 for x in wanted)
    assert not [x for x in wanted if x in labels[True] and " 1 x " in x]


def test_the_stored_run_holds_the_siblings(monkeypatch):
    monkeypatch.setenv("HWDESIGN_STATIC", "1")
    run = live.layer_gemms()
    assert run.machine == load_run(shipped_runs()[0]).machine == live.layer_gemms(stored=True).machine
    found = live.siblings_of(run)
    assert {m: list(times) for m, times in found.items()} == dict.fromkeys((1, 16, 256), [(256, 64), (512, 16), (1024, 4)])
    for m, times in found.items():
        for (h, layers), seconds in times.items():
            by_hand = 0.0
            for n, k in layer(h):
                (one,) = [x for x in run.select("gemm", precision="fp32") if tuple(x.shape.values()) == (m, n, k)]
                by_hand += layers * one.seconds
            assert seconds == pytest.approx(by_hand) and layers * h * h == 4 * 1024**2
    assert figures.own_siblings(found).lines[0].get_ydata()[-1] == 1


def test_a_kernel_measures_the_gemms_of_its_layers(small, capsys):
    small(as_backend("numpy"))
    run = live.layer_gemms()
    assert [(m.operation, m.precision, *m.shape.values()) for m in run.measurements] == [("gemm", "fp32", 2, *s) for s in SHAPES]
    assert run.skipped == () and all(m.backend == "numpy" and m.source == "own machine" for m in run.measurements)
    assert "8 of 8: 2 x 32 x 128" in capsys.readouterr().err
    timed = dataclasses.replace(
        run, measurements=tuple(dataclasses.replace(m, seconds=s) for m, s in zip(run.measurements, range(1, 9), strict=True))
    )
    assert live.siblings_of(timed) == {2: {(16, 16): 16 * (1 + 2 + 3 + 4), (32, 4): 4 * (5 + 6 + 7 + 8)}}
    assert list(live.siblings_of(timed)[2]) == [(16, 16), (32, 4)]  # the widest last
    with pytest.raises(ValueError, match="rounds must be >= 1, got 0"):
        live.layer_gemms(rounds=0)


@pytest.mark.parametrize(("capability", "precision"), [((9, 0), "bf16"), ((7, 5), "fp16")])
def test_a_gpu_measures_its_layers_in_one_format(small, capability, precision):
    small(TorchBackend(stub(capability=capability, l2=2**18), "cuda"))
    run = live.layer_gemms()
    assert {(m.backend, m.precision) for m in run.measurements} == {("torch-cuda", precision)} and len(run.measurements) == 8
    assert list(live.siblings_of(run)[2]) == [(16, 16), (32, 4)]


def test_siblings_are_summed_in_one_format_whatever_else_a_run_holds(small):
    small(as_backend("numpy"))
    run = live.layer_gemms()
    slow = [dataclasses.replace(m, precision="fp64", seconds=1.0) for m in run.measurements]
    others = [dataclasses.replace(m, backend="torch-cpu", software={**m.software, "torch": "2"}, seconds=1.0)
              for m in run.measurements]  # fmt: skip
    for mixed in ((*slow, *run.measurements), (*run.measurements, *slow, *others)):
        assert live.siblings_of(dataclasses.replace(run, measurements=mixed)) == live.siblings_of(run)


def test_a_run_without_the_gemms_of_a_layer_is_refused_by_name(small):
    small(as_backend("numpy"))
    run = live.layer_gemms()
    kept = tuple(m for m in run.measurements if (m.shape["n"], m.shape["k"]) not in ((16, 64), (48, 16)))
    with pytest.raises(ValueError, match="run must hold the GEMMs of a layer, got none of 2 x 48 x 16, 2 x 16 x 64 on") as error:
        live.siblings_of(dataclasses.replace(run, measurements=kept))
    assert run.machine in str(error.value) and "record it again" in str(error.value)
    with pytest.raises(ValueError, match="run must hold the GEMMs of a layer"):
        live.siblings_of(dataclasses.replace(run, measurements=()))


def test_where_no_layer_can_be_timed_the_reason_is_told(small, monkeypatch):
    small(as_backend("numpy"))
    monkeypatch.setattr(live, "measure_gemm", lambda *a, **k: Skipped(operation="gemm fp32", reason="out of memory"))
    with pytest.raises(RuntimeError, match="nothing could be timed: gemm fp32: skipped, out of memory"):
        live.layer_gemms()
