"""Designs of a budget: sums of parts against whole models, the front against each triple by itself, what the command takes."""

import itertools
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from conftest import slowness

import hwdesign as hw
from hwdesign import Model, Plan
from hwdesign.advice import bands, design_command, design_space
from hwdesign.advice.breaks import loads
from hwdesign.advice.case import Case
from hwdesign.advice.design_families import FAMILIES
from hwdesign.advice.design_front import plain
from hwdesign.advice.design_search import Front, Search, Setting, plan_pairs
from hwdesign.advice.design_space import Bounds, Shape, Space
from hwdesign.catalogue.device import device
from hwdesign.catalogue.engine import engine
from hwdesign.cli import main
from hwdesign.models import config
from hwdesign.models.steps import plan_refusal
from hwdesign.timing.part_times import PartTimes

pytestmark = pytest.mark.filterwarnings("ignore:uncalibrated:UserWarning")
BATCHES = [1, 3, 8, 50, 300, 1000]
PROMPT, ANSWER = 4000, 300
PLANS = [
    (Plan(), Plan()), (Plan(tp=8), Plan(tp=8)), (Plan(dp=4, tp=2), Plan(ep=8)), (Plan(dp=4, tp=2), Plan(ep=8, gather=True)),
    (Plan(dp=4, tp=2), Plan(tp=2, dp=4)), (Plan(dp=2, kvp=2), Plan(tp=4)), (Plan(dp=4), Plan(ep=2, dp=2)),
]  # fmt: skip
SHAPES = {
    "llama": {"kv_heads": 4, "width": 7168},
    "qwen3_moe": {"kv_heads": 4, "experts": 64, "experts_per_token": 4, "expert_width": 896},
    "deepseek_v3": {"query_latent": 768, "experts": 64, "experts_per_token": 4, "expert_width": 896, "shared_width": 896,
                    "width": 4480},
    "qwen3_next": {"kv_heads": 2, "experts": 64, "experts_per_token": 4, "expert_width": 896, "shared_width": 896,
                   "linear_heads": 16, "period": 4},
}  # fmt: skip


def whole(family):
    """A model of a family, of sizes that no published one has."""
    sizes = {"hidden_size": 2304, "layers": 12, "heads": 16, "head_size": 128}
    return Shape(family=family, **sizes, **SHAPES[family]).model


MODELS = [*(whole(family) for family in FAMILIES), *(plain(config.load(name)) for name in ("gpt2", "gpt-oss-20b", "deepseek-v3"))]


@pytest.mark.parametrize("name", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("where", ["H200", "GB300"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_parts_add_up_to_the_served_model(model, where, name):
    """Time per output token, prompt alone, memory and whether it fits, as one call for the whole model gives them."""
    recipes = ("bf16", "fp8") if where == "H200" else ("fp8_block", "nvfp4")
    times, seen = PartTimes(where, prompt=PROMPT, answer=ANSWER, batches=BATCHES, engine=name), 0
    for (attention, ffn), recipe in itertools.product(PLANS, recipes):
        if plan_refusal(model, attention, ffn):
            continue
        seen += 1
        plans = {"attention": attention, "ffn": ffn, "engine": name}
        found = times.model(model, attention, ffn, recipe)
        load = {"concurrency": BATCHES, "input_tokens": PROMPT, "output_tokens": ANSWER}
        np.testing.assert_allclose(found.token[0], hw.time_per_output_token(model, where, recipe, **load, **plans), rtol=1e-9)
        alone = hw.prefill_step(model, where, recipe, batch=attention.dp, context=PROMPT, **plans)
        np.testing.assert_allclose(found.first[0, 0], alone.seconds, rtol=1e-9)
        batch = np.ceil(np.array(BATCHES) / attention.dp) * attention.dp
        step = hw.decode_step(model, where, recipe, batch=batch, context=PROMPT + ANSWER // 2, **plans)
        np.testing.assert_allclose(found.memory[0], step.memory, rtol=1e-9)
        both = replace(step, activations=np.maximum(step.activations, alone.activations))
        assert found.fits[0].tolist() == both.feasible.tolist()
    assert seen >= 4


def small(monkeypatch, hidden, heads):
    """Grids of few sizes."""
    monkeypatch.setattr(design_space, "HIDDEN_SIZES", hidden)
    monkeypatch.setattr(design_space, "HEADS", heads)
    monkeypatch.setattr(design_space, "EXPERTS", (16, 32))
    monkeypatch.setattr(design_space, "TOP_K", (2, 4))
    monkeypatch.setattr(design_space, "QUERY_LATENTS", (768,))
    monkeypatch.setattr(design_space, "KV_HEADS", (2, 8))


def one_by_one(space, setting, batches):
    """Tokens of a user and of a GPU of each triple at each batch that keeps to the targets; the best of each shape; triples."""
    points, best, triples = [], np.zeros(len(space)), 0
    load = {"input_tokens": setting.prompt, "output_tokens": setting.answer}
    for place in range(len(space)):
        model = space.shape(place).model
        pairs = plan_pairs(setting.gpus, any(block.routed for block in model.blocks))
        for (attention, ffn), recipe in itertools.product(pairs, setting.recipes):
            plans = {"attention": attention, "ffn": ffn, "engine": setting.engine}
            if plan_refusal(model, attention, ffn):
                continue
            if not loads(Case(model=model, device=setting.device, recipe=recipe, cache=recipe.kv_cache, **plans)):
                continue
            triples += 1
            where = model, setting.device, recipe
            token = hw.time_per_output_token(*where, concurrency=batches, **load, **plans)
            alone = hw.prefill_step(*where, batch=attention.dp, context=setting.prompt, **plans)
            full = np.ceil(batches / attention.dp) * attention.dp
            step = hw.decode_step(*where, batch=full, context=setting.context, **plans)
            step = replace(step, activations=np.maximum(step.activations, alone.activations))
            good = (token <= setting.tpot) & (alone.seconds <= setting.ttft) & step.feasible
            rates = batches[good] / token[good] / setting.gpus
            best[place] = max(best[place], rates.max(initial=0.0))
            points += zip((1 / token[good]).tolist(), rates.tolist(), strict=True)
    return points, best, triples


def undominated(points):
    """Those that no other beats in one rate and equals in the other, the fastest for a user first."""
    points = sorted(set(points), reverse=True)
    return [p for p in points if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in points)]


def compared(space, where, batches):
    """Search and one-by-one agree on a space: front, best of each shape, number of triples, which is returned."""
    search = Search(space, where, batches)
    for _ in search.run():
        pass
    points, best, triples = one_by_one(space, where, batches)
    assert search.triples == triples
    np.testing.assert_allclose(search.best, best, rtol=1e-9)
    expected = np.array(undominated([(round(u, 9), round(g, 9)) for u, g in points]))
    assert len(expected) > 1
    np.testing.assert_allclose(search.front.user, expected[:, 0], rtol=1e-8)
    np.testing.assert_allclose(search.front.gpu, expected[:, 1], rtol=1e-8)
    return triples


def setting(where="H200", gpus=4, name="vllm", **more):
    load = {"prompt": 8000, "answer": 500, "tpot": 0.01, "ttft": 0.5} | more
    return Setting(device=device(where), engine=engine(name), gpus=gpus, **load)


@pytest.mark.parametrize(
    ("family", "where", "name", "budget"),
    [
        ("llama", "H200", "vllm", 3e9),
        ("qwen3_moe", "GB300", "vllm", 5e9),
        ("deepseek_v3", "H200", "sglang", 5e9),
        ("qwen3_next", "H200", "trtllm", 5e9),
    ],
)
def test_the_front_is_that_of_each_triple_one_by_one(family, where, name, budget, monkeypatch):
    small(monkeypatch, (2048,), (16,))
    active = budget if family == "llama" else 1.5e9
    leave = tuple(bands.RATIOS)
    space = Space([family], Bounds(parameters=budget, active=active, leave=leave))
    cut(space, 2)
    triples = compared(space, setting(where, 2, name), np.array([1, 4, 16, 64, 256]))
    assert triples >= 10


def cut(space, most):
    """A space without shapes beyond some, spread evenly."""
    places = np.unique(np.linspace(0, len(space) - 1, most).astype(int))
    for name in space.COLUMNS:
        setattr(space, name, getattr(space, name)[places])
    space.origin = [space.origin[place] for place in places]


@pytest.mark.weekly
def test_the_front_is_that_of_five_thousand_triples_one_by_one():
    space = Space(["qwen3_moe", "qwen3_next", "deepseek_v3"], Bounds(parameters=30e9, active=3e9))
    cut(space, 40)
    where = setting("H200", 8, prompt=32256, answer=1024, tpot=0.02)
    triples = compared(space, where, np.unique(np.geomspace(1, 4096, 40).astype(int)))
    print(f"{triples} triples")
    assert triples >= 5000


@pytest.fixture(scope="module")
def found():
    """The designs of a small budget."""
    budget = {"parameters": 8e9, "active": 1.5e9, "device": "H200", "gpus": 4, "family": "qwen3_moe"}
    with pytest.MonkeyPatch.context() as monkeypatch:
        small(monkeypatch, (1536, 2048, 2304), (16, 32))
        return hw.design(**budget, load=(8000, 500), tpot=0.01, ttft=0.3, batches=[1, 4, 16, 64, 256])


def test_each_design_on_the_front_is_within_budget_bands_and_targets(found):
    assert len(found.points) > 3
    for number, point in enumerate(found.points, 1):
        model = Model.from_config(json.loads(found.config(number)))
        assert model == point.model
        assert abs(model.parameters / 8e9 - 1) <= 0.03
        assert abs(model.active_parameters(include_embedding=True) / 1.5e9 - 1) <= 0.03
        assert bands.outside(model, "moe_gqa") == () and bands.family_of(model) == "moe_gqa"
        assert point.token_seconds <= 0.01 and point.first_seconds <= 0.3
        assert point.case.breakdown.feasible and loads(point.case) and point.case.recipe == point.recipe
        assert point.case.token_seconds == pytest.approx(point.token_seconds, rel=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_shape_reads_back_as_the_parts_that_were_timed(family):
    active = 8e9 if family == "llama" else 1.2e9
    space = Space([family], Bounds(parameters=8e9, active=active))
    assert len(space) > 3
    for place in np.unique(np.linspace(0, len(space) - 1, 12).astype(int)):
        shape = space.shape(place)
        model, hidden = shape.model, shape.hidden_size
        mixers = {m for (h, m), i in space.tables["mixer"].items() if i in (space.mixer[place], space.linear[place])}
        feeds = {f for (h, f), i in space.tables["feed"].items() if i in (space.feed[place], space.first[place])}
        assert {b.mixer for b in model.blocks} == mixers and {b.ffn for b in model.blocks} == feeds
        assert (hidden, len(model.blocks)) == (space.hidden[place], space.layers[place])
        attention = next(m for (_, m), i in space.tables["mixer"].items() if i == space.mixer[place])
        assert sum(b.mixer == attention for b in model.blocks) == space.full[place]
        assert shape.outside() == () and abs(model.parameters / 8e9 - 1) <= 0.03
        assert abs(model.active_parameters(include_embedding=True) / active - 1) <= 0.03


def test_a_band_is_left_by_name_alone_and_the_design_says_so():
    bounds = {"parameters": 8e9, "active": 1.2e9}
    kept, left = (Space(["qwen3_moe"], Bounds(**bounds, leave=names)) for names in ((), ("aspect",)))
    assert len(left) > len(kept)
    outside = {left.shape(place).outside() for place in range(0, len(left), 29)}
    assert outside == {(), ("aspect",)}


def test_points_that_come_in_any_order_make_the_same_front():
    rng = np.random.default_rng(0)
    rates = rng.integers(1, 40, size=(500, 2)).astype(float)
    front = Front()
    for part in np.array_split(np.arange(500), 7):
        front.add(rates[part, 0], rates[part, 1], part[:, None])
    assert list(zip(front.user, front.gpu, strict=True)) == undominated(map(tuple, rates.tolist()))
    np.testing.assert_array_equal(rates[front.keys[:, 0]], np.stack([front.user, front.gpu], axis=1))


def test_what_is_least_bad_in_two_settings_loses_least_where_it_loses_most(monkeypatch):
    small(monkeypatch, (1024, 1536), (8, 16))
    batches = np.array([1, 8, 64])
    found = hw.design(parameters=1e9, device=["H200", "GB300"], gpus=1, load=(4000, 300), tpot=0.01, batches=batches)
    space = Space(["llama"], Bounds(parameters=1e9, active=1e9, positions=8192))
    best = np.array([one_by_one(space, front.setting, batches)[1] for front in found.fronts])
    losses = (1 - best / best.max(axis=1, keepdims=True)).max(axis=0)
    points, told = found.least_bad[0]
    assert max(told) == pytest.approx(losses.min(), abs=1e-9)
    assert [point.setting.device.name for point in points] == ["H200", "GB300"]
    for point, loss, most in zip(points, told, best.max(axis=1), strict=True):
        assert point.gpu_rate == pytest.approx(most * (1 - loss), rel=1e-9)
    assert "least bad in all settings" in str(found) and found.pick(len(found.points)).shape


def test_an_interrupt_keeps_what_was_found(monkeypatch):
    small(monkeypatch, (2048, 2304), (16,))

    def stop(share):
        if share > 0.4:
            raise KeyboardInterrupt

    budget = {"parameters": 3e9, "device": "H200", "gpus": 4, "load": (1000, 100), "tpot": 0.01, "batches": [1, 16]}
    whole, part = hw.design(**budget), hw.design(**budget, progress=stop)
    assert whole.complete and not part.complete and 0.4 < part.fronts[0].share < 1
    assert 0 < part.fronts[0].triples < whole.fronts[0].triples and part.points
    assert "stopped at" in str(part) and "stopped at" not in str(whole)
    two = hw.design(**budget | {"device": ["H200", "GB300"]}, progress=stop)
    assert len(two.fronts) == 1 and not two.complete and not two.least_bad


def told(found):
    """An SVG picture as its elements by name."""
    return [each.tag.split("}")[1] for each in ElementTree.fromstring(found.fronts[0].svg()).iter()]


def test_the_result_is_text_table_and_picture(found):
    text, page = str(found), found._repr_html_()
    assert repr(found).startswith(f"<Designs {len(found.points)} on 4 x H200")
    assert text.count("guideline that binds") == len(found.fronts[0].shown())
    assert told(found).count("circle") == len(found.points)
    assert page.count("<tr>") == 1 + len(found.fronts[0].shown()) and "<svg" in page
    first = found.points[0]
    low, high = first.interval(first.user_rate)
    assert low < first.user_rate < high and f"user {first.user_rate:.0f} ({low:.0f} to {high:.0f})" in text
    assert first.joules == pytest.approx(float(first.case.breakdown.energy) * 4 / first.batch)


def test_a_published_model_is_a_cross(monkeypatch):
    small(monkeypatch, (4096,), (32,))
    budget = {"parameters": 8e9, "device": "H200", "gpus": 1, "load": (1000, 100), "tpot": 0.05, "batches": [1, 32]}
    found = hw.design(**budget, compare="llama-3.1-8b")
    (point,) = found.fronts[0].compared
    served = {"concurrency": point.batch, "input_tokens": 1000, "output_tokens": 100}
    seconds = hw.time_per_output_token(config.load("llama-3.1-8b"), "H200", point.recipe, **served)
    assert point.gpu_rate == pytest.approx(point.batch / seconds)
    assert "llama-3.1-8b" in found.fronts[0].svg() and "  x  user" in str(found)


def test_experiments_on_the_way_from_a_published_model_are_quoted(monkeypatch):
    small(monkeypatch, (3584,), (24,))
    budget = {"parameters": 8e9, "device": "H200", "gpus": 1, "load": (1000, 100), "tpot": 0.05, "batches": [1, 32]}
    found = hw.design(**budget, compare="llama-3.1-8b")
    (front,) = found.fronts
    (known,) = front.compared
    place, said = front.said_of(known)
    best = front.points[place]
    assert best.user_rate >= known.user_rate
    assert all(p.gpu_rate <= best.gpu_rate for p in front.points if p.user_rate >= known.user_rate)
    aspect = f"aspect 128 -> {3584 / best.shape.layers:.3g}: up, "
    assert any(line.startswith(aspect) for line in said)
    text, page = str(found), found._repr_html_()
    assert f"from it to {place + 1}:" in text and aspect in text and aspect.replace(">", "&gt;") in page
    assert "how well a design answers no time model knows" in text


COMMAND = ["design", "--parameters", "1.5B", "--context", "2000", "--device", "H200", "--gpus", "1", "--tpot", "5ms"]


def test_the_command_prints_the_front_and_writes_a_design(tmp_path, capsys, monkeypatch):
    small(monkeypatch, (2048,), (16,))
    path = tmp_path / "design.json"
    assert main([*COMMAND, "--output", str(path), "--pick", "2"]) == 0
    out = capsys.readouterr().out
    assert "  1  user" in out and "modelled; in brackets" in out
    assert abs(config.load(path).parameters / 1.5e9 - 1) <= 0.03
    assert main(["check", str(path), "--device", "H200", "--fail-on", "never"]) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--parameters", "thirty"], "--parameters: must be a number of parameters, as 30e9 or 30B, got 'thirty'"),
        (["--active", "-1"], "--active"),
        (["--active", "2B"], "active must be at most parameters = 1.5e+09, got 2e+09"),
        (["--tpot", "20"], "--tpot: must be a time above 0 with its unit, us, ms or s, as in 20ms, got '20'"),
        (["--tpot", "0ms"], "got '0ms'"),
        (["--ttft", "1min"], "--ttft: must be a time"),
        (["--context", "0"], "--context: must be a whole number from 1 to 999999999, got '0'"),
        (["--context", "100"], "context must be"),
        (["--load", "8000"], "--load: must be prompt/answer"),
        (["--load", "8000/100"], "load must be empty where context is given"),
        (["--gpus", "many"], "--gpus: must be a whole number"),
        (["--gpus", "5000"], "gpus must be"),
        (["--device", "H2000"], "device must be one of"),
        (["--family", "gpt2"], "family must be one of llama, qwen3_moe, deepseek_v3, qwen3_next, got 'gpt2'"),
        (["--family", "qwen3_moe"], "family must be one of llama with this budget, got 'qwen3_moe', which needs active below"),
        (["--engine", "none"], "engine must be one of vllm, sglang, trtllm"),
        (["--leave", "depth"], "--leave: must be names out of aspect"),
        (["--vocabulary", "0"], "--vocabulary"),
        (["--compare", "no-such"], "compare must name models"),
        (["--pick", "1"], "--output and --pick must be given together"),
        (["--output", "no/such/folder/x.json", "--pick", "1"], "--output must lie in a folder that exists"),
        (["--parameters", "1000"], "parameters and active must be those of some shape of llama"),
    ],
)  # fmt: skip
def test_the_command_says_what_it_takes(words, told, capsys):
    try:
        status = main([*COMMAND, *words])
    except SystemExit as left:
        status = left.code
    out, err = capsys.readouterr()
    assert status == 2 and out == "" and err.count("\n") == 1
    assert told in err


def test_the_help_names_every_family_ratio_and_unit(capsys):
    with pytest.raises(SystemExit) as left:
        main(["design", "--help"])
    told = capsys.readouterr().out
    assert left.value.code == 0
    assert all(name in told for name in (*FAMILIES, *bands.RATIOS, "20ms", "30B", "--pick", "Ctrl-C"))


def test_targets_that_nothing_meets_are_told_with_the_fastest(capsys, monkeypatch):
    small(monkeypatch, (2048,), (16,))
    assert main([*COMMAND[:-1], "10us"]) == 1
    assert "no triple makes a token within 10 µs: the fastest that fits takes" in capsys.readouterr().out.replace("us:", "µs:")


def test_ctrl_c_prints_what_was_found(capsys, monkeypatch):
    small(monkeypatch, (2048,), (16,))
    class Stop:
        def __call__(self, share):
            raise KeyboardInterrupt

        def done(self):
            pass

    monkeypatch.setattr(design_command, "Progress", Stop)
    assert main([*COMMAND, "--gpus", "2"]) == 130
    assert "stopped at" in capsys.readouterr().out


def test_progress_is_told_on_standard_error_once_it_takes_long(capsys, monkeypatch):
    small(monkeypatch, (2048,), (16,))
    assert main(COMMAND) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(design_command, "PATIENCE", 0.0)
    monkeypatch.setattr(design_command, "OFTEN", 0.0)
    assert main(COMMAND) == 0
    out, err = capsys.readouterr()
    assert "searched 100 %" in err and "searched" not in out


LONG = """
import resource, time
import hwdesign as hw

start = time.perf_counter()
budget = {"parameters": 30e9, "active": 3e9, "device": "H200", "family": "qwen3_next"}
(front,) = hw.design(**budget, context=32768, tpot=0.02).fronts
spent = time.perf_counter() - start, time.process_time()
print(front.triples, *spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.alone
def test_a_hundred_thousand_triples_take_less_than_15_seconds_and_a_gigabyte():
    """Of the processor, the import included: one thread takes no longer where nothing else runs."""
    done = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, check=True)
    triples, seconds, processor, memory = map(float, done.stdout.split())
    told = f"{seconds:.1f} s, {processor:.1f} s of the processor, {memory / 1e6:.0f} MB"
    print(f"{triples:.0f} triples, each at 40 batches: {told}")
    assert triples >= 100_000 and processor < 15 * slowness() and memory < 1e9
