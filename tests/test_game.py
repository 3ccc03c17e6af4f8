"""The design game against counts by hand, single steps, staircases by hand and 1,000 random designs (10,000 weekly)."""

import itertools
import json
import time
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import slowness

import hwdesign as hw
from hwdesign import Plan
from hwdesign.catalogue.engine import engine
from hwdesign.formulas.frontier import area_under, matched_rate
from hwdesign.formulas.pipeline import schedule
from hwdesign.lessons.studies import game
from hwdesign.lessons.studies.game import BATCHES, BUDGET, GRID, GUIDELINES, HINTS, START, Design
from hwdesign.models import config
from hwdesign.timing.pipeline import stage_times

pytestmark = pytest.mark.filterwarnings("ignore:uncalibrated:UserWarning")
KERNELS = "what kernels of the recipe take"
OTHERS = ("recipe", "order", "attention", "ffn", "stages")


@pytest.fixture(scope="module")
def timed():
    """The reference, found with nothing remembered, and the time of one core that it takes [s]."""
    for remembered in (game._step, game._clock, game._prefill, game._decode, game._multiple, game.shipped_bands, game.reference):
        remembered.cache_clear()
    start = time.process_time()
    return game.reference(), time.process_time() - start


@pytest.fixture(scope="module")
def best(timed):
    return timed[0]


@pytest.fixture(scope="module")
def some():
    return game.random_designs(400, seed=7)


def drawn(n, seed):
    """Designs of the whole grid, feasible or not."""
    rng = np.random.default_rng(seed)
    return [Design(**{name: values[rng.integers(len(values))] for name, values in GRID.items()}) for _ in range(n)]


# Designs and limits -------------------------------------------------------------------------------------------------------


def test_the_model_has_the_layers_that_the_design_says():
    design = replace(START, layers=10)
    for order, full in (("repeated", "x...x...x."), ("full first", "xxx......."), ("full last", ".......xxx")):
        model = replace(design, order=order).model
        assert "".join("." if b.mixer.window else "x" for b in model.blocks) == full
        assert {b.mixer.window for b in model.blocks} == {None, 1024}
    ffn, mixer = model.blocks[0].ffn, model.blocks[0].mixer
    assert (ffn.num_experts, ffn.top_k, ffn.width, ffn.gated) == (512, 16, 512, True) and not ffn.shared_width
    assert (mixer.num_heads, mixer.num_kv_heads, mixer.head_dim) == (24, 4, 128)
    assert (model.hidden_size, model.vocab_size, model.tied_embeddings) == (3000, 131072, False)
    assert [replace(design, stages=n).prefill_plan for n in (1, 2, 4)] == [Plan(tp=4), Plan(tp=2), Plan(tp=1)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layers": 2.5}, "layers must be a whole number"),
        ({"heads": 0}, "heads must be >= 1"),
        ({"recipe": "fp4"}, "recipe must be one of bf16, fp8, nvfp4"),
        ({"order": "mixed"}, "order must be one of repeated, full first, full last"),
        ({"stages": 3}, "stages must be one of 1, 2, 4, got 3"),
        ({"attention": Plan(tp=4)}, "attention must be a Plan whose tp, dp, kvp make up 8 GPUs"),
        ({"attention": Plan(tp=4, ep=2)}, "attention must be a Plan whose tp, dp, kvp"),
        ({"ffn": Plan(tp=8, pp=2)}, "ffn must be a Plan whose tp, dp, ep make up 8 GPUs"),
        ({"ffn": Plan(ep=4, kvp=2)}, "ffn must be a Plan whose tp, dp, ep"),
        ({"ffn": "tp 8"}, "ffn must be a Plan"),
    ],
)
def test_what_is_no_design_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        replace(START, **change)


def test_bands_are_those_of_the_shipped_configs():
    folder = Path(hw.__file__).parent / "models" / "configs"
    raw = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}
    bands = game.shipped_bands()
    small, wide, mixture = raw["qwen3-0.6b"], raw["gpt-neox-20b"], raw["mixtral-8x7b"]
    ends = [c["hidden_size"] / c["num_hidden_layers"] for c in (small, wide)]
    assert bands["aspect"] == tuple(ends) and len(raw) == len(config.names()) >= 20
    assert bands["spread"][1] == mixture["num_experts_per_tok"] * mixture["intermediate_size"] / mixture["hidden_size"] == 7
    assert bands["sparsity"] == (mixture["num_local_experts"] / 2, raw["deepseek-v3"]["n_routed_experts"] / 8)


def expected(design):
    """Quantities whose limit a design misses, by counts of its model and by trying its plans."""
    model, bands, low = design.model, game.shipped_bands(), {"bf16": 8, "fp8": 16, "nvfp4": 32}[design.recipe]
    out, active = Counter(), design.top_k * design.expert_width
    out["parameters in billions"] += not 110 <= model.parameters / 1e9 <= 120
    out["active parameters in billions"] += not model.active_parameters(include_embedding=False) / 1e9 >= 5
    out["hidden size over layers"] += not bands["aspect"][0] <= design.hidden_size / design.layers <= bands["aspect"][1]
    out["width of a token's experts over hidden size"] += not bands["spread"][0] <= active / design.hidden_size <= 7
    out["experts over experts of a token"] += not 4 <= design.experts / design.top_k <= 32
    out["width of all query heads"] += design.heads * 128 < design.hidden_size
    out["query heads"] += sum(design.heads % n > 0 for n in (design.kv_heads, design.attention.tp, 4 // design.stages))
    out["experts"] += design.experts % design.ffn.ep > 0
    out["dp of attention"] += design.attention.dp % design.ffn.dp > 0
    out["hidden size"] += design.hidden_size % low > 0
    out["expert width"] += sum(design.expert_width % (low * n) > 0 for n in (design.ffn.tp, 4 // design.stages))
    return +out


def test_limits_agree_with_counts_of_the_model():
    seen = Counter()
    for design in drawn(300, seed=1):
        found = Counter(sentence.split(" must ")[0] for sentence in game.refusals(design))
        assert found == expected(design), design
        seen += found
    assert len(seen) == 11  # all that are counted above


@pytest.mark.parametrize(
    ("change", "quantity", "got"),
    [
        ({"expert_width": 1024}, "parameters in billions must be 110 to 120", "got 228.4"),
        ({"top_k": 15}, "active parameters in billions must be at least 5", "got 4.817"),
        ({"layers": 96}, "hidden size over layers must be 36.57 to 139.6", "got 31.25"),
        ({"top_k": 64}, "width of a token's experts over hidden size must be 2.286 to 7", "got 10.92"),
        ({"top_k": 12}, "experts over experts of a token must be 4 to 32", "got 42.67"),
        ({"top_k": 2}, "experts of a token must be at least 4", "got 2"),
        ({"kv_heads": 2}, "key-value heads must be at least 4", "got 2"),
        ({"heads": 20}, "width of all query heads must be at least 3000", "got 2560"),
        ({"heads": 28}, "query heads must be a multiple of 8 (tp of attention)", "got 28"),
        ({"heads": 26}, "query heads must be a multiple of 4 (the key-value heads)", "got 26"),
        ({"experts": 508, "ffn": Plan(ep=8)}, "experts must be a multiple of 8 (ep of ffn)", "got 508"),
        ({"ffn": Plan(tp=4, dp=2)}, "dp of attention must be a multiple of 2 (dp of ffn)", "got 1"),
        ({"recipe": "nvfp4"}, f"hidden size must be a multiple of 32 ({KERNELS})", "got 3000"),
        ({"recipe": "fp8"}, f"hidden size must be a multiple of 16 ({KERNELS})", "got 3000"),
        ({"expert_width": 520}, f"expert width must be a multiple of 64 ({KERNELS}, times tp of ffn)", "got 520"),
        ({"expert_width": 520}, f"expert width must be a multiple of 32 ({KERNELS}, times tp of prefill)", "got 520"),
        ({"layers": 80, "experts": 336, "expert_width": 448}, "time to the first token must be at most 1 s", "got 1.11 s"),
    ],
)  # fmt: skip
def test_each_refusal_names_its_quantity_its_value_and_what_is_allowed(change, quantity, got):
    found = game.refusals(replace(START, **change))
    assert [s for s in found if s.startswith(f"{quantity}, {got}")], found
    with pytest.raises(ValueError, match="must be"):
        game.score(replace(START, **change))


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"user_rate": 5e3}, "tokens per second of a user, at a batch that fits, must be at least 5000, got 246"),
        ({"engine": replace(engine("vllm"), memory_share=0.05)},
         "tokens per second of a user, at a batch that fits, must be at least 25, got 0"),
        ({"first_token": 0.5}, "time to the first token must be at most 0.5 s, got 0.702 s"),
    ],
)  # fmt: skip
def test_service_is_refused_by_its_budget(monkeypatch, budget, said):
    assert game.refusals(START) == []
    monkeypatch.setattr(game, "BUDGET", replace(BUDGET, **budget))
    assert game.refusals(START) == [said]
    with pytest.raises(ValueError, match="must be at (least|most)"):
        game.front(START)


def test_weights_of_every_model_fit_into_a_prefill_worker():
    most = BUDGET.parameters[1] * 1e9 * 2 / game.PREFILL_GPUS  # in BF16, on each GPU [byte]
    assert most < 0.3 * hw.GB300.memory_capacity


# Scores -------------------------------------------------------------------------------------------------------------------


def by_single_steps(design):
    """Score from one decode step a batch, stages of the whole model and a staircase by hand."""
    context, points = 65536 + 4096 / 2, []
    times, sends = stage_times(
        design.model, "GB300", design.recipe, sizes=[8192] * 8, split=hw.stage_layers(design.layers, design.stages),
        attention=design.prefill_plan, ffn=design.prefill_plan, engine="trtllm",
    )  # fmt: skip
    ends = np.zeros((len(times) + 1, design.stages + 1))
    for c, p in itertools.product(range(len(times)), range(design.stages)):  # a chunk waits for its hand-over and for the stage
        arrival = ends[c + 1, p] + (sends[c] if p else 0)
        ends[c + 1, p + 1] = max(arrival, ends[c, p + 1]) + times[c, p]
    seconds = max(times.sum(axis=0)) * 4
    for batch in BATCHES.tolist():
        step = hw.decode_step(
            design.model, "GB300", design.recipe, batch=batch, context=context, attention=design.attention, ffn=design.ffn,
            engine="trtllm",
        )  # fmt: skip
        held = step.memory - step.cache + step.activations
        if step.cache <= 0.9 * (step.capacity - 943e6 - held):
            points.append((1 / step.seconds, 1 / (step.seconds * 8 / batch + seconds / 4096)))
    area = height = last = 0.0
    for user, rate in sorted((p for p in points if p[0] >= 25), reverse=True):
        area += (last - user) * height
        height, last = max(height, rate), user
    return area + (last - 25) * height, ends[-1, -1], seconds


@pytest.mark.parametrize("index", [0, 1, 2, 3, 4, 5, None])
def test_scores_agree_with_single_steps_of_the_whole_model(some, best, index):
    design = best if index is None else (START, *some)[index]
    area, first, seconds = by_single_steps(design)
    points = game.front(design)
    assert game.score(design) == pytest.approx(area, rel=1e-9)
    assert points["first_token"] == pytest.approx(first, rel=1e-3)  # beside the schedule's own hand-over
    assert points["prefill_seconds"] == pytest.approx(seconds, rel=1e-9)


def test_first_tokens_are_those_of_the_schedule(some):
    for design in some[:5]:
        plan = {"attention": design.prefill_plan, "ffn": design.prefill_plan, "engine": "trtllm"}
        split = hw.stage_layers(design.layers, design.stages)
        times, sends = stage_times(design.model, "GB300", design.recipe, sizes=[8192] * 8, split=split, **plan)
        assert game.front(design)["first_token"] == pytest.approx(schedule(times, send=sends)[1][-1, -1], rel=1e-9)


def test_the_order_of_layers_changes_prefill_alone(best):
    found = {order: game.front(replace(best, order=order)) for order in GRID["order"]}
    assert len({f["prefill_seconds"] for f in found.values()}) == 3
    assert all(np.array_equal(f["user_rate"], found["repeated"]["user_rate"]) for f in found.values())
    alone = {order: game.front(replace(best, order=order, stages=1))["prefill_seconds"] for order in GRID["order"]}
    assert max(alone.values()) == pytest.approx(min(alone.values()), rel=1e-12)


def test_a_better_point_never_lowers_the_area(some):
    rng = np.random.default_rng(3)
    for design in some[:20]:
        points = game.front(design)
        user, rate = points["user_rate"], points["total_rate"]
        area = area_under(user, rate, between=(BUDGET.user_rate, np.inf))
        assert area == game.score(design) > 0
        for _ in range(20):
            up, faster = rng.integers(len(user)), 1 + rng.exponential(0.2, 2)
            x, y = user.copy(), rate.copy()
            x[up], y[up] = x[up] * faster[0], y[up] * faster[1]
            assert area_under(x, y, between=(BUDGET.user_rate, np.inf)) >= area * (1 - 1e-12)
        cheaper = matched_rate(points["batch"] * user / 8, points["prefill_seconds"] / 2, 4096)
        assert area_under(user, cheaper, between=(BUDGET.user_rate, np.inf)) > area


def test_batches_that_do_not_fit_do_not_count(best, monkeypatch):
    wide = game.front(best)["batch"]
    monkeypatch.setattr(game, "BUDGET", replace(BUDGET, engine=replace(engine("vllm"), memory_share=0.3)))
    narrow = game.front(best)["batch"]
    assert 0 < len(narrow) < len(wide) and np.array_equal(narrow, wide[: len(narrow)])


# Random designs -----------------------------------------------------------------------------------------------------------


def test_random_designs_are_feasible_of_the_grid_and_the_same_for_a_seed(some):
    assert game.random_designs(5, seed=7) == some[:5] and game.random_designs(5, seed=8) != some[:5]
    for design in some:
        assert game.refusals(design) == [] and not expected(design)
        assert all(getattr(design, name) in values for name, values in GRID.items())
    assert all(100 < sum(d.order == order for d in some) < 167 for order in GRID["order"])  # hardly any limit looks at it
    for name in (*OTHERS, "kv_heads", "top_k"):
        assert {getattr(d, name) for d in some} == set(GRID[name]), name
    assert sum(d.hidden_size % 128 > 0 or d.expert_width % 128 > 0 for d in some) > 20  # awkward
    assert sum(d.hidden_size / d.layers < 50 for d in some) > 20 and sum(d.expert_width < d.hidden_size / 4 for d in some) > 20
    with pytest.raises(ValueError, match="n must be"):
        game.random_designs(0, seed=1)


@pytest.mark.parametrize("thousands", [1, pytest.param(10, marks=pytest.mark.weekly)])
def test_no_random_design_beats_the_reference(best, thousands):
    most, count, scores = game.score(best), 0, []
    for seed in range(thousands):  # a thousand at a time, so that their steps are still remembered
        designs = game.random_designs(1000, seed=100 + seed)
        count += len(set(designs))
        scores += map(game.score, designs)
    assert count > 999 * thousands and len(scores) == 1000 * thousands
    assert max(scores) < most and 0.3 < max(scores) / most < 0.9 and np.median(scores) < 0.1 * most


# The search ---------------------------------------------------------------------------------------------------------------


@pytest.mark.alone
def test_the_reference_is_found_within_eight_seconds(timed):
    assert timed[1] < 8 * slowness()  # 5 where nothing else runs


def test_no_other_value_of_a_coordinate_is_better_with_any_expert_width(best):
    most, tried = game.score(best), 0
    for name in GRID:
        for value, width in itertools.product(GRID[name], GRID["expert_width"]):
            other = replace(best, **({name: value} | ({} if name == "expert_width" else {"expert_width": width})))
            if name in OTHERS and width != best.expert_width:
                continue
            if not game.refusals(other):
                tried += 1
                assert game.score(other) <= most, other
    assert tried > 100


def test_improve_keeps_what_it_is_told_and_never_gets_worse(some):
    for design, keep in zip(some[:3], (("recipe", "layers"), ("attention", "ffn", "stages"), ("expert_width",)), strict=True):
        better = game.improve(design, keep)
        assert all(getattr(better, name) == getattr(design, name) for name in keep)
        assert game.score(better) >= game.score(design) and game.refusals(better) == []
    with pytest.raises(ValueError, match="keep must be one of"):
        game.improve(START, ["depth"])


def test_other_starts_end_at_the_reference(best, some):
    for start in (min(some, key=game.score), max(some, key=game.score)):
        assert game.score(game.improve(start)) == pytest.approx(game.score(best), rel=1e-12)


# Guidelines ---------------------------------------------------------------------------------------------------------------


def test_the_start_is_feasible_and_bad(best):
    assert game.refusals(START) == [] and game.score(START) < game.score(best) / 3


def test_hints_are_seven_and_keep_the_numbers_to_themselves(best):
    assert len(GUIDELINES) == len(HINTS) == 7 and list(HINTS) == list(GUIDELINES)
    named = [name for names, _ in GUIDELINES.values() for name in names]
    assert sorted([*named, "expert_width"]) == sorted(GRID)
    numbers = {str(getattr(best, name)) for name in game.SIZES} - {"4"}
    assert not any(number in hint.split() for number in numbers for hint in HINTS.values())


def test_a_design_by_the_hints_reaches_nine_tenths_of_the_reference(best):
    """As wide as Llama, Mixtral and Qwen2.5: 128 elements of hidden size a layer; experts as few as the budget allows."""
    hand = Design(
        hidden_size=12 * 256, layers=24, heads=24, kv_heads=4, experts=96, top_k=4, expert_width=20 * 256, recipe="nvfp4",
        order="repeated", attention=Plan(tp=4, dp=2), ffn=Plan(ep=8, gather=True), stages=4,
    )  # fmt: skip
    assert 0.9 * game.score(best) <= game.score(hand) < game.score(best)


def test_the_walk_takes_one_guideline_at_a_time(best):
    steps = game.walk()
    assert [name for name, _, _ in steps] == ["start", *GUIDELINES]
    assert steps[0][1] == START and steps[-1][1] == best
    for (_, before, _), (name, after, score) in itertools.pairwise(steps):
        changed = {n for n in GRID if getattr(before, n) != getattr(after, n)}
        assert changed <= {*GUIDELINES[name][0], "expert_width"} and changed & set(GUIDELINES[name][0])
        assert game.refusals(after) == [] and score == game.score(after)
    gains = {name: b / a for (_, _, a), (name, _, b) in itertools.pairwise(steps)}
    little = {"multiples for kernels", "wide expert parallelism"}
    assert all(gain > 1.1 for name, gain in gains.items() if name not in little) and 1 < gains["wide expert parallelism"] < 1.05
    assert 0.95 < gains["multiples for kernels"] < 1.01  # alone it brings nothing,
    without = game.refusals(replace(steps[4][1], hidden_size=START.hidden_size))  # but NVFP4 needs it
    assert without[-1] == f"hidden size must be a multiple of 32 ({KERNELS}), got 3000"
    with pytest.raises(ValueError, match="experts must be a multiple of 8"):
        game.walk(replace(best, experts=100))


def test_each_guideline_broken_lowers_the_score(best):
    found = game.broken(best)
    assert list(found) == list(GUIDELINES)
    shares = {name: game.score(design) / game.score(best) for name, design in found.items()}
    assert all(share < 0.97 for share in shares.values()) and sorted(shares.values())[-2] < 0.95, shares
    assert shares["wide, not deep"] < 0.5 and shares["NVFP4"] < 0.4 and shares["multiples for kernels"] < 0.4
    assert max(shares, key=shares.get) == "wide expert parallelism"
    assert found["multiples for kernels"].recipe == "bf16"  # no format below takes 3000
    deep = found["wide, not deep"]
    assert deep.layers == 2 * best.layers and 110 <= deep.model.parameters / 1e9 <= 120


def test_what_the_search_thinks_of_the_guidelines(best):
    """What the chapter says of the reference: where it keeps to them and where it does not."""
    assert best.recipe == "nvfp4" and best.order == "repeated" and best.stages == 4
    assert best.attention.tp == best.kv_heads == 4 and best.attention.dp == 2  # the cache is not copied
    assert best.ffn == Plan(ep=8, gather=True) and best.top_k == BUDGET.top_k
    assert best.hidden_size % 256 == best.expert_width % 256 == 0 and 1 < best.expert_width / best.hidden_size < 2
    assert best.hidden_size / best.layers == game.shipped_bands()["aspect"][1]
    assert best.layers % 16  # four stages of whole patterns would need 16 layers or 32
    plan = best.prefill_plan
    times, _ = stage_times(best.model, "GB300", best.recipe, sizes=[8192] * 8, split=hw.stage_layers(best.layers, 4),
                              attention=plan, ffn=plan)  # fmt: skip
    assert 1.1 < times.sum(axis=0).max() / times.sum(axis=0).mean() < 1.2
    regular = game.improve(game._fitted(vars(best) | {"layers": 32}, ("layers",), ("layers",)), keep=("layers",))
    assert game.score(regular) < 0.7 * game.score(best)
    # a width that is no multiple of 128, but that kernels take, costs nothing: 2880 is 22.5 x 128
    awkward = game._fitted(vars(best) | {"hidden_size": 2880, "layers": 24}, (), ())
    aligned = game._fitted(vars(best) | {"layers": 24}, (), ())
    assert abs(game.score(awkward) / game.score(aligned) - 1) < 0.01


def test_no_warning_reaches_the_reader(best):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        game._step.cache_clear()
        game._clock.cache_clear()
        assert game.score(replace(best, recipe="fp8")) > 0
