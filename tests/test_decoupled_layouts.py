"""Layouts of attention and feed-forward against counts by hand, brute force, single steps and what was published."""

import itertools
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from conftest import is_plain

import hwdesign as hw
from hwdesign import Plan
from hwdesign.formulas.attention import cache_read_bytes
from hwdesign.formulas.cache_parallel import merge_bytes
from hwdesign.formulas.frontier import pareto_front
from hwdesign.models.steps import step
from hwdesign.timing.layouts import attention_kind

pytestmark = pytest.mark.filterwarnings("ignore:uncalibrated:UserWarning")
CONFIGS = sorted(p.stem for p in (Path(hw.__file__).parent / "models" / "configs").glob("*.json"))


@pytest.fixture(scope="module")
def models():
    return {name: hw.Model.from_config(name) for name in CONFIGS}


@pytest.fixture(scope="module")
def r1(models):
    return models["deepseek-r1"]


# Copies -------------------------------------------------------------------------------------------------------------------


def caches(model):
    return [b.mixer for b in model.blocks if b.mixer and b.mixer.cache_elements]


@pytest.mark.parametrize("name", [name for name in CONFIGS if is_plain(name)])
def test_beyond_the_key_value_heads_tensor_parallelism_stores_copies(models, name):
    model, context = models[name], np.array([1, 100_000])
    heads = {getattr(m, "num_kv_heads", 1) for m in caches(model)}
    queries = caches(model)[0].num_heads
    ways = [n for n in range(1, queries + 1) if queries % n == 0]
    held = [np.asarray(model.kv_bytes_per_gpu(context, n, "fp8")) for n in ways]
    read = [step(model, batch=2, context=10**5, attention=Plan(tp=n), ffn=Plan(tp=n)).cache_elements for n in ways]
    flat = [i for i, n in enumerate(ways) if n >= max(heads)]
    assert all(np.array_equal(held[i], held[flat[0]]) for i in flat) and {read[i] for i in flat} == {read[flat[0]]}
    assert all((b <= a).all() for a, b in itertools.pairwise(held)) and sorted(read, reverse=True) == read
    if len(heads) == 1 and hasattr(caches(model)[0], "num_kv_heads"):
        for n, here in zip(ways, held, strict=True):
            kind, copies = hw.head_sharding(queries, max(heads), n)
            once = np.asarray(model.kv_bytes(context, "fp8"))
            if kind == "uneven":  # whole heads only: more than the even share
                assert (n * here >= copies * once).all()
            else:
                assert np.allclose(n * here, copies * once, rtol=1e-12)
    if name.startswith("deepseek"):
        assert all(np.array_equal(h, model.kv_bytes(context, "fp8")) for h in held) and len(set(read)) == 1


@pytest.mark.parametrize(("name", "heads"), [("llama-3.1-70b", 8), ("qwen3-235b-a22b", 4), ("deepseek-r1", 1)])
def test_beyond_the_key_value_heads_attention_takes_as_long(models, name, heads):
    load = {"batch": 8, "context": 2**20}
    for ideal, more, least in ((True, 1e-9, 1 + 1e-9), (False, 0.08, 3)):  # the calibrated one has a fixed time
        first = max(heads, 8)
        times = [
            float(hw.decode_step(models[name], "GB300", "nvfp4", **load, attention=Plan(tp=n), ffn=Plan(tp=n), ideal=ideal)
                  .terms["attention"]) for n in (first, 16, 32, 64)
        ]  # fmt: skip
        assert max(times) / min(times) - 1 < more
        cut = {"attention": Plan(tp=heads, kvp=64 // heads), "ffn": Plan(tp=64)}
        found = hw.decode_step(models[name], "GB300", "nvfp4", **load, **cut, ideal=ideal).terms["attention"]
        assert 1 - 1e-9 < found / (times[0] * heads / 64) < least and found < times[0] / 4


# Steps --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_more_pieces_never_read_or_hold_more(models, name):
    context = 2 ** np.arange(10, 21)
    for tp in (1, 2):
        steps = [
            hw.decode_step(models[name], "GB300", "nvfp4", batch=np.array([1, 8, 300])[:, None], context=context,
                           attention=Plan(tp=tp, kvp=k), ffn=Plan(tp=tp * k)) for k in (1, 2, 4, 8)
        ]  # fmt: skip
        for a, b in itertools.pairwise(steps):
            assert (b.terms["attention"] < a.terms["attention"]).all() and (np.asarray(b.memory) < a.memory).all()
        for s in steps:
            seconds = np.asarray(s.seconds)
            assert (np.diff(seconds, axis=0) > 0).all() and (np.diff(seconds, axis=1) >= 0).all()
            assert (seconds[:, -1] > seconds[:, 0]).all()


def test_what_is_exchanged_does_not_know_the_context(models):
    for name in ("deepseek-r1", "llama-3.1-70b", "nemotron-3-nano-30b-a3b"):
        plans = {"attention": Plan(tp=2, kvp=4), "ffn": Plan(tp=8)}
        found = [step(models[name], batch=3, context=n, **plans).exchanges for n in (1, 4096, 2**20)]
        assert found[0] == found[1] == found[2] and any(x.kind == "combine" and x.ranks == 4 for x in found[0])
        spent = hw.decode_step(models[name], "GB300", "nvfp4", batch=3, context=[1, 2**20], **plans).terms["communication"]
        assert np.ptp(np.broadcast_to(spent, 2)) == 0


@pytest.mark.parametrize(("tp", "kvp"), [(1, 2), (2, 4), (4, 8), (8, 8), (1, 64)])
def test_a_step_exchanges_what_the_formula_sends(models, tp, kvp):
    for name, heads, size in (("deepseek-r1", 128, 512), ("llama-3.1-70b", 64, 128), ("qwen3-235b-a22b", 64, 128)):
        found = step(models[name], batch=5, context=9999, attention=Plan(tp=tp, kvp=kvp), ffn=Plan(tp=tp * kvp)).exchanges
        merges = [x for x in found if x.kind == "combine"]
        assert sum(x.count for x in merges) == len(models[name].blocks) and {x.ranks for x in merges} == {kvp}
        for x in merges:
            assert 2 * x.elements == pytest.approx(merge_bytes(5, heads // tp, size, kvp), rel=1e-12)


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_gathers_never_take_longer_than_sums(ranks):
    sizes = 2.0 ** np.arange(8, 31)
    took = {
        kind: hw.exchange_time(hw.Exchange(kind=kind, elements=sizes, ranks=ranks), "GB300", "nvfp4")
        for kind in ("all-reduce", "all-gather", "reduce-scatter")
    }
    for kind in ("all-gather", "reduce-scatter"):
        assert (took[kind] <= took["all-reduce"]).all() and took[kind][-1] < 0.75 * took["all-reduce"][-1]


def shapes(done):
    return {g.name: (float(g.m), int(g.n), int(g.k), g.count) for g in done.gemms}


def sent(done):
    return sorted((x.kind, float(x.elements), x.ranks, x.count) for x in done.exchanges)


def test_a_helix_step_of_llama_by_hand(models):
    done = step(models["llama-3.1-70b"], batch=8, context=2**20, attention=Plan(tp=2, kvp=4), ffn=Plan(tp=8))
    assert shapes(done) == {  # 32 query heads and 4 key-value heads a GPU, 8 query heads after the merge
        "qkv": (8, 5120, 8192, 80), "attention output": (8, 8192, 1024, 80),
        "up": (8, 7168, 8192, 80), "down": (8, 8192, 3584, 80), "head": (8, 16032, 8192, 1),
    }  # fmt: skip
    assert sent(done) == [("all-reduce", 65536, 8, 80), ("all-reduce", 65536, 8, 80), ("combine", 25344, 4, 80)]
    (work,) = done.work
    assert (work.heads, work.kv_heads, work.context, work.count, work.size) == (32, 4, 2**18, 80, 256)
    assert work.cache_elements == 8 * 2**18 * 1024 and work.flops == 8 * 2**18 * 32 * 512
    assert done.kernels == 80 * (4 + 1 + 3) + 1 + done.small_kernels
    plain = step(models["llama-3.1-70b"], batch=8, context=2**20, attention=Plan(tp=2, dp=4), ffn=Plan(tp=8))
    assert done.small_kernels == plain.small_kernels + 80  # the merge


def test_a_helix_step_of_deepseek_by_hand(r1):
    done = step(r1, batch=8, context=2**20, attention=Plan(tp=2, kvp=4), ffn=Plan(ep=8))
    found = shapes(done)
    assert {name: found[name] for name in ("q down", "q up", "kv down", "kv up", "attention output", "head")} == {
        "q down": (8, 1536, 7168, 58), "q up": (8, 12288, 1536, 58), "kv down": (8, 576, 7168, 58),
        "kv up": (8, 8192 + 2048, 512, 58),  # keys of 64 heads, values of the 16 that are merged here
        "attention output": (8, 7168, 2048, 58), "head": (8, 16160, 7168, 1),
    }  # fmt: skip
    assert sum(g.count for g in done.gemms if g.name == "kv up") == 61
    assert (found["up"], found["down"]) == ((8, 4608, 7168, 3), (8, 7168, 2304, 3))
    assert (found["shared up"], found["shared down"]) == ((8, 512, 7168, 58), (8, 7168, 256, 58))
    merges = [("combine", 8 * 64 * 516 * 0.75, 4, n) for n in (3, 58)]
    assert sent(done) == sorted([("all-reduce", 57344, 8, n) for n in (3, 3, 58, 58)] + merges)  # no tokens travel to experts
    for work in done.work:
        assert (work.heads, work.context, work.latent) == (64, 2**18, 576 + 512) and work.cache_elements == 8 * 2**18 * 576
    (experts,) = done.experts
    assert (experts.local, experts.count, experts.tokens, experts.pairs) == (32, 58, 8, 8)


def test_heads_are_cut_over_pieces_where_there_is_no_cache(models):
    nano = models["nemotron-3-nano-30b-a3b"]  # 64 heads of 64, 8 groups of states of 128, 23 such layers
    found = shapes(step(nano, batch=4, context=2**20, attention=Plan(tp=2, kvp=4), ffn=Plan(tp=8)))
    assert found["mamba in"] == (4, 2 * 512 + 2 * 128 + 8, 2688, 23) and found["mamba out"] == (4, 2688, 512, 23)
    states = [
        step(nano, batch=4, context=2**20, attention=plan, ffn=Plan(tp=8)).state_elements
        for plan in (Plan(tp=2, kvp=4), Plan(tp=1, kvp=8), Plan(tp=8))
    ]
    assert states == [2 * 23 * 4 * 64 * 64 * 128 / 8] * 3
    one, two = (
        hw.decode_step(nano, "GB300", "nvfp4", batch=n, context=2**20, attention=Plan(tp=2, kvp=4), ffn=Plan(tp=8)).memory
        for n in (1, 2)
    )
    assert two - one == pytest.approx(nano.kv_bytes(2**20, "fp8") / 8 + nano.state_bytes() / 8, rel=1e-12)
    wide = Plan(tp=2, kvp=64)
    with pytest.raises(ValueError, match=r"attention tp \* kvp must divide Mamba heads = 64, got 128"):
        step(nano, batch=4, context=2**20, attention=wide, ffn=Plan(tp=128))
    with pytest.raises(ValueError, match=r"attention tp \* kvp must divide Mamba heads = 64, got 3"):
        hw.decode_step(nano, "GB300", "nvfp4", batch=4, context=99, attention=Plan(kvp=3), ffn=Plan(tp=3))


# Layouts ------------------------------------------------------------------------------------------------------------------


def products(n, factors):
    """All ordered factorisations of n, by trying all tuples."""
    return [t for t in itertools.product(range(1, n + 1), repeat=factors) if math.prod(t) == n]


@pytest.mark.parametrize("name", ["deepseek-r1", "llama-3.1-70b", "nemotron-3-nano-30b-a3b", "gpt2"])
@pytest.mark.parametrize("gpus", [1, 2, 6, 8, 12])
def test_layouts_are_all_products_that_the_model_takes(models, name, gpus):
    model = models[name]
    found = hw.layouts(model, gpus)
    assert all(a.gpus == f.gpus == gpus and a.pp == f.pp == f.dp == f.kvp == a.ep == 1 for a, f in found)
    assert len(set(found)) == len(found)
    taken, moe = set(), name in ("deepseek-r1", "nemotron-3-nano-30b-a3b")
    for (t, d, k), (ft, e) in itertools.product(products(gpus, 3), products(gpus, 2)):
        if e > 1 and not moe:
            continue
        for gather in (False, True)[: 1 + (min(d, e) > 1)]:  # who has tokens of their own and experts of their own may gather
            pair = Plan(tp=t, dp=d, kvp=k), Plan(tp=ft, ep=e, gather=gather)
            try:
                hw.decode_step(model, "GB300", "bf16", batch=gpus, context=64, attention=pair[0], ffn=pair[1])
                taken.add(pair)
            except ValueError as error:
                assert "must divide" in str(error) and pair not in found
    assert taken == set(found)


def test_gathered_tokens_meet_whole_experts_without_a_dispatch(r1):
    sent, gathered = (
        hw.step(r1, batch=16, context=1000, attention=Plan(dp=8), ffn=Plan(ep=8, gather=gather)) for gather in (False, True)
    )
    kinds = [{x.kind for x in done.exchanges} for done in (sent, gathered)]
    assert kinds == [{"dispatch", "combine"}, {"all-gather", "reduce-scatter"}]
    assert [x.elements for x in gathered.exchanges] == [16 * 7168] * len(gathered.exchanges)  # all tokens to and from all
    a, b = sent.experts[0], gathered.experts[0]
    assert (a.pairs, a.touched, a.local) == (b.pairs, b.touched, b.local) and b.tokens == 16 > a.tokens  # the same experts
    shared = [[g for g in done.gemms if g.name == "shared down"][0] for done in (sent, gathered)]
    assert [(g.m, g.k) for g in shared] == [(2, 2048), (16, 256)]  # own tokens by whole matrices, or all tokens by slices


def test_groups_and_experts_that_do_not_divide_one_another_are_refused(r1):
    for attention, ffn in ((Plan(dp=3, tp=2), Plan(tp=3, ep=2)), (Plan(dp=2, tp=3), Plan(tp=2, ep=3))):
        with pytest.raises(ValueError, match="must divide"):
            hw.step(r1, batch=6, context=10, attention=attention, ffn=ffn)
    with pytest.raises(ValueError, match="gather must be True or False, got 1"):
        Plan(ep=2, gather=1)


@pytest.mark.parametrize("gpus", [2, 8, 16])
def test_a_cut_never_wins_less_than_the_rule_promises(r1, gpus):
    """(7.9): where the parts that a cut spares take longer to read than an exchange, it wins over every other layout."""
    batch, context = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24]), 2 ** np.arange(13, 21)
    found = hw.decode_sweep(r1, "GB300", "nvfp4", batch=batch[:, None], context=context, gpus=(gpus,))
    cut, rest = (hw.best_steps(found, (found["kinds"] == "cache") == wanted)[1] for wanted in (True, False))
    x = batch[:, None] / gpus
    spared = (np.ceil(x) - x) * context * 576 / 8e12
    swap = hw.Exchange(kind="combine", elements=merge_bytes(1, 128, 512, min(gpus, 8)) / 2, ranks=min(gpus, 8))
    promised = (spared > hw.exchange_time(swap, "GB300", "nvfp4")) & np.isfinite(rest)
    assert promised.sum() >= 4 and (cut < rest)[promised].all()
    assert np.nanmax((rest / cut)[~promised]) < 1.2  # what it misses is small


@pytest.mark.parametrize("power", range(7))
def test_powers_of_two_have_as_many_layouts_as_stars_and_bars(models, power):
    ways = math.comb(power + 2, 2)
    gathered = (ways - power - 1) * power  # attention with groups, experts spread
    assert len(set(hw.layouts(models["deepseek-r1"], 2**power))) == ways * (power + 1) + gathered
    assert len(hw.layouts(models["llama-3.1-70b"], 2**power)) == ways


def test_both_parts_use_the_same_gpus(models):
    for attention, ffn in ((Plan(tp=2, kvp=4), Plan(tp=4)), (Plan(), Plan(ep=2)), (Plan(kvp=2), None)):
        with pytest.raises(ValueError, match=f"attention and ffn must use the same GPUs, got {attention.gpus} and"):
            hw.decode_step(models["deepseek-r1"], "GB300", "nvfp4", batch=1, context=9, attention=attention, ffn=ffn)


def test_kinds_of_attention():
    plans = Plan(), Plan(tp=8), Plan(dp=2), Plan(tp=2, dp=4), Plan(kvp=2), Plan(dp=2, tp=2, kvp=2)
    kinds = [attention_kind(plan) for plan in plans]
    assert kinds == ["tensor", "tensor", "data", "data", "cache", "cache"]


@pytest.mark.parametrize(
    ("gpus", "says"), [(0, "gpus must be >= 1, got 0"), (1.5, "gpus must be a whole number"), ([2], "gpus must be one number")]
)
def test_what_is_no_number_of_gpus_is_refused(models, gpus, says):
    with pytest.raises(ValueError, match=says):
        hw.layouts(models["llama-3.1-8b"], gpus)


@pytest.fixture(scope="module")
def sweep(r1):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        load = {"batch": np.array(BATCH)[:, None], "context": CONTEXT, "engine": "trtllm"}
        return hw.decode_sweep(r1, "GB300", "nvfp4", **load, gpus=(4, 8, 64))


BATCH, CONTEXT = [1, 4, 64, 512], [8192, 131072, 2**20]


def test_a_sweep_has_the_steps_of_every_layout(r1, sweep):
    pairs = [pair for n in (4, 8, 64) for pair in hw.layouts(r1, n)]
    assert sweep["layouts"] == pairs and len(sweep["steps"]) == len(pairs) == 24 + 58 + 322
    assert sweep["seconds"].shape == sweep["feasible"].shape == (len(pairs), 4, 3) and sweep["feasible"].dtype == bool
    assert sweep["gpus"].tolist() == [4] * 24 + [8] * 58 + [64] * 322
    assert sweep["kinds"].tolist() == [attention_kind(a) for a, _ in pairs]
    for i in (0, 17, 30, 57, 100, 253):
        a, f = pairs[i]
        for (x, b), (y, s) in itertools.product(enumerate(BATCH), enumerate(CONTEXT)):
            one = hw.decode_step(r1, "GB300", "nvfp4", batch=b, context=s, attention=a, ffn=f, engine="trtllm")
            assert sweep["seconds"][i, x, y] == pytest.approx(one.seconds, rel=1e-12)
            assert sweep["feasible"][i, x, y] == (one.memory <= hw.device("GB300").memory_capacity)
    assert 0 < sweep["feasible"].mean() < 1


def test_a_sweep_takes_kinds_and_plain_numbers(models):
    llama = models["llama-3.1-8b"]
    for kinds, n in ((("tensor",), 2), (("cache",), 1), (("data", "cache"), 2), (("tensor", "data", "cache"), 4)):
        found = hw.decode_sweep(llama, "H100_SXM", "fp8", batch=3, context=1000, gpus=(1, 2), kinds=kinds)
        assert found["seconds"].shape == found["feasible"].shape == (n,) and set(found["kinds"]) == set(kinds)


def test_unknown_kinds_are_refused(models):
    with pytest.raises(ValueError, match="kinds .*'cahce'"):
        hw.decode_sweep(models["llama-3.1-8b"], "H100_SXM", "fp8", batch=1, context=10, gpus=(1,), kinds=("cahce",))


def test_best_steps_are_the_least_of_what_fits_and_is_allowed():
    rng = np.random.default_rng(5)
    for _ in range(50):
        n, shape = int(rng.integers(1, 7)), tuple(rng.integers(1, 4, rng.integers(0, 3)).tolist())
        seconds, feasible = rng.integers(1, 6, (n, *shape)).astype(float), rng.random((n, *shape)) < 0.6
        allowed = rng.random(n) < 0.7
        where, least = hw.best_steps({"seconds": seconds, "feasible": feasible}, allowed)
        assert np.shape(where) == np.shape(least) == shape
        for at in np.ndindex(*shape):
            ways = [(seconds[i][at], i) for i in range(n) if allowed[i] and feasible[i][at]]
            found = (least[at], where[at])
            assert found == min(ways) if ways else (np.isnan(found[0]) and found[1] == -1)


def beats(a, b):
    return a[0] >= b[0] and a[1] >= b[1] and a != b


def test_the_front_is_what_no_point_beats():
    rng = np.random.default_rng(6)
    for trial in range(300):
        n = int(rng.integers(0, 30))
        points = rng.integers(0, 1 + rng.integers(1, 12), (n, 2)).astype(float)  # ties and equal points
        points[rng.random(points.shape) < 0.15 * (trial % 2)] = np.nan
        if trial % 5 == 0 and n:
            points[0, 0] = np.inf
        there = [(i, tuple(p)) for i, p in enumerate(points.tolist()) if not np.isnan(p).any()]
        wanted = [i for i, p in there if not any(beats(q, p) or (q == p and j < i) for j, q in there)]
        found = pareto_front(points[:, 0], points[:, 1])
        assert found.dtype.kind == "i" and found.tolist() == sorted(wanted, key=lambda i: -points[i, 0]), points
    assert pareto_front([1, 1, 1], [2, 2, 2]).tolist() == [0] and pareto_front([], []).tolist() == []
    assert pareto_front([np.nan], [1.0]).tolist() == [] and pareto_front([np.nan, 3], [1, 1]).tolist() == [1]


@pytest.mark.parametrize("rewards", [([1, 2],), ([1, 2], [1]), ([[1]], [[1]]), (1, 1), ([1], [1], [1]), ()])
def test_a_front_needs_two_lists_of_one_length(rewards):
    with pytest.raises(ValueError, match="rewards must be two lists of one length, got shapes"):
        pareto_front(*rewards)
    with pytest.raises(ValueError, match="rewards must be a number or an array of numbers"):
        pareto_front(["a"], ["b"])


# Published ----------------------------------------------------------------------------------------------------------------


def test_figure_1_of_helix():
    mixer = hw.SelfAttention(num_heads=128, num_kv_heads=8, head_dim=128)
    model = hw.Model(name="Helix", hidden_size=16384, vocab_size=1, blocks=(hw.Block(mixer=mixer, ffn=hw.DenseFFN(width=65536)),))

    def us(attention, ffn):
        done = step(model, batch=8, context=10**6, attention=attention, ffn=ffn)
        weights = sum(g.n * g.k for g in done.gemms if g.name != "head")
        return [round(float(1e6 * n * 0.5 / 8e12), 1) for n in (done.cache_elements, weights)]

    assert us(Plan(tp=8), Plan(tp=8)) == [128.0, 29.6] and us(Plan(tp=64), Plan(tp=64)) == [128.0, 3.9]
    assert us(Plan(tp=8, kvp=8), Plan(tp=64))[0] == 16.0
    assert [float(1e6 * cache_read_bytes(8e6, n, 0.5) / 8e12) for n in (256, 256 / 8)] == [128.0, 16.0]
    assert 1e6 * cache_read_bytes(8e6, 576, 1) / 8e12 == 576.0  # TensorRT-LLM's latent, on any number of GPUs


def test_served_times_of_llama_on_two_four_and_eight_gpus(models):
    load = {"concurrency": 4, "input_tokens": 1024, "output_tokens": 1024}
    for tp, published in ((2, 17.4), (4, 11.8), (8, 9.1)):
        plans = {"attention": Plan(tp=tp), "ffn": Plan(tp=tp)}
        found = hw.time_per_output_token(models["llama-3.1-70b"], "H100_SXM", "fp8", **load, **plans)
        assert abs(1e3 * float(found) / published - 1) < 0.25


def test_the_cut_begins_to_win_where_sglang_saw_it(r1):
    users = np.arange(1, 129)
    for context, (low, high) in {2**15: (8, 16), 2**16: (4, 8), 2**17: (2, 4), 2**18: (1, 2)}.items():  # published: 1 at 256K
        load = {"batch": users, "context": context, "ffn": Plan(ep=8), "engine": "sglang"}
        plain, cut = (
            np.asarray(hw.decode_step(r1, "B200", "nvfp4", **load, attention=p).seconds) for p in (Plan(tp=8), Plan(kvp=8))
        )
        turn = users[cut < plain].min()
        assert low <= turn <= high and (cut[turn - 1 :] < plain[turn - 1 :]).all()  # and it goes on winning


def front_of(sweep, kinds, at):
    """Speeds of users and GPUs on the front at a context."""
    inside = np.isin(sweep["kinds"], kinds)[:, None] & sweep["feasible"][:, :, at]
    user = np.where(inside, 1 / sweep["seconds"][:, :, at], np.nan)
    gpu = user * np.array(BATCH) / sweep["gpus"][:, None]
    keep = pareto_front(user.ravel(), gpu.ravel())
    return user.ravel()[keep], gpu.ravel()[keep]


def test_a_cut_wins_at_a_million_tokens_and_not_at_eight_thousand(sweep):
    plain, every = ([front_of(sweep, kinds, at) for at in (0, 2)] for kinds in (["tensor", "data"], ["tensor", "data", "cache"]))
    assert every[1][0].max() / plain[1][0].max() > 1.4
    assert all(np.array_equal(a, b) for a, b in zip(plain[0], every[0], strict=True))  # no cut is on the front
    tensor, cut = (np.where(sweep["kinds"] == k, sweep["seconds"][:, 0, 0], np.inf).min() for k in ("tensor", "cache"))
    assert cut > tensor
