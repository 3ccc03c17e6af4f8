"""Chapter 5: the published numbers it rests on, times of experts and exchanges, facts on trial, live times, figures, sliders."""

import dataclasses
import re
import warnings

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from matplotlib.colors import to_rgb

import hwdesign as hw
from hwdesign import Exchange, Experts, Plan
from hwdesign.catalogue.published import exchange_times, load_statistics, serving_units
from hwdesign.formulas.experts import expert_tokens
from hwdesign.formulas.roofline import critical_dimension
from hwdesign.formulas.routing import balanced_placement, even_placement, imbalance, routed_tokens
from hwdesign.lessons import figures, live, live_parallel, style
from hwdesign.lessons.figures.charts import lines
from hwdesign.lessons.figures.expert_parallel_sliders import EXPONENTS, SPARE, TOKENS, WIDTHS
from hwdesign.lessons.show import webp_uri
from hwdesign.lessons.studies.samples import power_law_tokens
from hwdesign.measure.runs import Skipped, load_run, shipped_runs
from hwdesign.models import config
from hwdesign.timing.calibration import constants, held_out_error
from hwdesign.timing.kernels import expert_seconds
from hwdesign.timing.silicon import measurements

EP = (1, 2, 4, 8, 16, 32, 64, 128, 256)
HIDDEN, WIDTH, GATED = 7168, 2048, 3  # DeepSeek-R1's experts: two matrices up, one down


# Memory -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("device", "form", "mib", "engine", "held"), [
    ("H200", "fp8_block", 143771, "vllm", {4: 0, 8: 128, 64: 376}),
    ("GB300", "nvfp4", 284208, "vllm", {4: 1170, 8: 1489, 64: 1768}),
    ("H200", "fp8_block", 143771, "sglang", {4: 0, 8: 117, 64: 365}),
    ("H200", "fp8_block", 143771, "trtllm", {4: 0, 8: 152, 64: 376}),
])  # fmt: skip
def test_sequences_of_a_gpu_are_what_its_engine_leaves_over_the_cache_of_one(device, form, mib, engine, held):
    """(5.3): attention on each GPU, the experts shared; 92 % of what the driver reports less 0.943 GB, or the others' rules."""
    r1, memory = config.load("deepseek-r1"), mib * 2**20
    recipe = hw.recipe(form) if form == "nvfp4" else dataclasses.replace(hw.recipe(form), kv_cache=hw.BF16)
    cache, weights = 4096 * 61 * 576 * recipe.kv_cache.bytes, r1.weight_bytes(form)
    assert hw.device(device).memory_capacity == memory
    for g, most in held.items():
        mine = sum(weights.values()) - (1 - 1 / g) * weights["experts"]
        room = {"vllm": 0.92 * memory - 943e6 - mine, "sglang": memory - 16_055_795_712 - mine,
                "trtllm": 0.9 * (memory - 943e6 - mine)}[engine]  # fmt: skip
        c = np.arange(1, 2049)
        step = hw.decode_step(r1, device, recipe, batch=c * g, context=4096, attention=Plan(dp=g), ffn=Plan(ep=g), engine=engine)
        assert step.feasible.sum() == most and step.feasible[:most].all()
        assert 0 <= max(room, 0) / cache - most < 6  # what the activations of a step take
        if most:
            live = step.activations[most - 1] * (0.9 if engine == "trtllm" else 1)
            assert most <= (room - live) / cache < most + 1


# The catalogue ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("library", "rows", "within"), [("TensorRT-LLM", 48, 0.005), ("DeepEP", 6, 0.025)])
def test_published_rates_of_exchanges_are_bytes_over_time(library, rows, within):
    found = [x for x in exchange_times() if x["library"] == library]
    assert len(found) == rows == len({(x["ep"], x["tokens"]) for x in found})
    for x in found:
        for kind in ("dispatch", "combine"):
            nbytes = x["tokens"] * x["copies"] * x[f"{kind}_bytes"]
            assert x[f"{kind}_rate"] * x[f"{kind}_seconds"] == pytest.approx(nbytes, rel=within)
            assert 10e-6 < x[f"{kind}_seconds"] < 1e-3


def test_exchanges_are_those_of_deepseek_r1():
    found = {(x["library"], x["ep"], x["tokens"]): x for x in exchange_times()}
    assert len(found) == len(exchange_times()) == 54 and {x["copies"] for x in found.values()} == {8}
    assert {x["combine_bytes"] for x in found.values()} == {HIDDEN * 2}
    # DeepEP dispatches FP8 with a scale of 4 bytes for each 128 features, and a header of 16 bytes.
    sent = {library: x["dispatch_bytes"] for (library, *_), x in found.items()}
    assert sent == {"DeepEP": HIDDEN + HIDDEN // 128 * 4 + 16, "TensorRT-LLM": HIDDEN * 2}
    assert {(g, t) for library, g, t in found if library == "DeepEP"} == {(g, 128) for g in EP[3:]}
    assert {(g, t) for library, g, t in found if library != "DeepEP"} == {(g, 2**i) for g in EP[3:7] for i in range(12)}
    far = found["DeepEP", 128, 128]
    assert (round(far["dispatch_seconds"] * 1e6), round(far["combine_seconds"] * 1e6)) == (192, 369)
    assert (far["dispatch_rate"], far["combine_rate"]) == (39e9, 39e9)
    with pytest.raises(TypeError):
        far["ep"] = 1


def test_no_exchange_is_faster_than_its_link():
    for x in exchange_times():
        (printed,) = re.findall(r"(\d+) GB/s a GPU", x["link"])
        # Copies that stay on the GPU, and over InfiniBand those that stay in the server, are counted but not sent.
        away = 1 - (1 if x["library"] == "TensorRT-LLM" else 8) / x["ep"]
        for kind in ("dispatch", "combine"):
            assert x[f"{kind}_rate"] * away <= float(printed) * 1e9


def test_load_statistics_add_up():
    found = {(x["balancer"], x["ep"], x["per"]): x for x in load_statistics()}
    assert len(found) == len(load_statistics()) == 6
    assert [x["imbalance"] for x in found.values()] == pytest.approx([2.564, 11.948, 1.109, 2.792, 1.115, 2.791])
    for (balancer, ep, per), x in found.items():
        assert x["slots"] == {"none": 256, "EPLB": 288}[balancer] and x["slots"] % ep == 0
        pairs = 128 * ep * 8  # 128 tokens on each GPU, 4096 on 32, each with 8 experts
        assert x["mean"] == round(pairs / (ep if per == "GPU" else x["slots"]))
        assert 0 < x["std"] < x["mean"] * (x["imbalance"] - 1) and x["mean"] * x["imbalance"] < 128 * ep * 8
    assert [x["mean"] for (_, ep, per), x in found.items() if per == "slot"] == [128, 114, 128]


def test_serving_units_are_whole_and_only_one_lacks_a_number():
    found = {(x["name"], x["phase"]): x for x in serving_units()}
    assert len(found) == len(serving_units()) == 7
    for x in found.values():
        assert x["gpus"] % 8 == 0 and x["slots"] % x["gpus"] == 0 and x["slots"] >= 256 and x["rate_per_node"] > 0
        assert x["device"] in ("H800", "H100_SXM")
    unknown = {key: [n for n, v in x.items() if isinstance(v, float) and np.isnan(v)] for key, x in found.items()}
    assert {key: names for key, names in unknown.items() if names} == {
        ("DeepSeek service", "prefill"): ["tokens_per_gpu", "context"]
    }
    decode = found["DeepSeek service", "decode"]  # 1850 tokens/s of a GPU at 20 to 22 for each user
    assert decode["rate_per_node"] == 8 * 1850 and 1850 / 22 < decode["tokens_per_gpu"] < 1850 / 20
    assert [x["rate_per_node"] for (_, phase), x in found.items() if phase == "prefill"] == [73700, 62713, 50302, 59337]
    assert pytest.approx(1 - 0.56, abs=0.01) == 32206 / 73700  # without the tokens that came from the cache


@pytest.mark.parametrize("table", [exchange_times, load_statistics, serving_units], ids=lambda t: t.__name__)
def test_each_row_names_its_source_with_its_state(table):
    assert table() is table() and isinstance(table(), tuple)  # read once, and nobody can change it
    for row in table():
        assert "same" not in row["source"] and re.search(r"@[0-9a-f]{7}\b", row["source"])
        assert all(isinstance(value, str | float) for value in row.values())


# Times of experts ---------------------------------------------------------------------------------------------------------


def published(tokens, routing="balanced", device="GB300", precision="nvfp4"):
    """Published times of the layer on one of EP GPUs [s], by EP."""
    rows = measurements("moe", device, precision=precision, tokens=tokens, tp=1, routing=routing)
    return np.array([rows["seconds"][rows["ep"] == g].item() for g in EP])


def round_robin(tokens, ep):
    """What a GPU has to do when the experts of all tokens are dealt out in turn."""
    pairs = 8.0 * np.asarray(tokens)
    return Experts(tokens=np.asarray(tokens, float), pairs=np.maximum(pairs / ep, 1),
                   touched=np.maximum(np.minimum(pairs, 256) / ep, 1), local=256 / ep, hidden=HIDDEN, width=WIDTH)  # fmt: skip


def grouped(work, device, precision):
    """Time in TensorRT-LLM's own kernels [s], where a step may take FlashInfer's."""
    card, recipe, size = hw.device(device), hw.recipe(precision), hw.recipe(precision).operand_bytes
    c = constants("moe", device, precision, "trtllm")
    return expert_seconds(work, size["b"], size["a"], card, card.peak_flops(recipe.math), c)


@pytest.mark.parametrize(("device", "precision"), [("GB300", "nvfp4"), ("GB300", "fp8_block"), ("H200", "fp8_block")])
def test_layers_of_experts_agree_with_the_published_within_the_held_out_error(device, precision):
    """R1's layer, which the constants of TensorRT-LLM may or may not have seen: they are fitted over 17 layers and more."""
    rows = measurements("moe", device, precision=precision, tp=1, routing="balanced")
    work = round_robin(rows["tokens"], rows["ep"])
    modelled, told = grouped(work, device, precision), held_out_error("moe", device, precision, "trtllm")
    error = np.abs(modelled / rows["seconds"] - 1)
    assert len(error) == 27 * 9 and error.mean() < told < 0.1
    by_width = [error[rows["ep"] == g].mean() for g in EP]
    assert max(by_width) < 0.14
    step = hw.expert_time(work, device, precision, engine="trtllm")  # on Blackwell the faster of its own kernels and FlashInfer's
    other = hw.expert_time(work, device, precision, engine="sglang")
    assert np.array_equal(step, np.minimum(modelled, other) if device == "GB300" else modelled)


@pytest.mark.parametrize(("device", "precision"), [("GB300", "nvfp4"), ("B200", "fp8_block"), ("H200", "fp8_block")])
def test_each_engine_has_kernels_of_its_own(device, precision):
    rows = measurements("moe_fused", device, precision=precision, run=0, tp=1)  # SGLang's, whose router touches half of them
    rows = {name: values[rows["tokens"] <= 128] for name, values in rows.items()}
    half = Experts(tokens=rows["tokens"], pairs=8 * rows["tokens"], touched=np.minimum(128, 4 * rows["tokens"] + 4), local=256,
                   hidden=HIDDEN, width=WIDTH)  # fmt: skip
    each = {name: hw.expert_time(half, device, precision, engine=name) for name in ("sglang", "trtllm", "vllm")}
    each["grouped"] = grouped(half, device, precision)
    error = {name: np.abs(t / rows["seconds"] - 1).mean() for name, t in each.items()}
    assert error["sglang"] < 0.13 and error["sglang"] < error["grouped"] and error["sglang"] <= error["trtllm"]
    assert np.array_equal(hw.expert_time(half, device, precision), each["vllm"])


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("name", ["touched", "pairs", "tokens", "slots"])
def test_more_work_takes_no_less_time(engine, name):
    base = {"tokens": 512.0, "pairs": 128.0, "touched": 16.0, "local": 32, "hidden": HIDDEN, "width": WIDTH}
    grown = Experts(**base | {name: np.geomspace(1, 4096 if name != "touched" else 32, 30)})
    time = hw.expert_time(grown, "GB300", "nvfp4", engine=engine)
    assert (np.diff(time) >= 0).all()
    assert (time[-1] > 1.01 * time[0]) == (name != "slots" or engine != "vllm")  # TensorRT-LLM: FlashInfer's, as SGLang


def test_an_expert_that_is_touched_is_read_at_no_more_than_the_bandwidth():
    base = {"tokens": 32.0, "pairs": 32.0, "local": 32, "hidden": HIDDEN, "width": WIDTH}
    one = GATED * HIDDEN * WIDTH * 0.5625 / 8e12  # 3.1 µs on a GB300 in NVFP4
    time = hw.expert_time(Experts(**base, touched=np.array([4.0, 32.0])), "GB300", "nvfp4", engine="trtllm")
    assert 28 * one < time[1] - time[0] < 1.4 * 28 * one
    assert hw.expert_time(Experts(**base, touched=4.0, count=58), "GB300", "nvfp4", engine="trtllm") == time[0]
    wide = hw.expert_time(Experts(**base, touched=32.0), "GB300", "fp8_block", engine="trtllm")
    assert 1.3 < wide / time[1] < 1 / 0.5625


def test_what_cannot_be_timed_is_refused():
    work = Experts(tokens=1.0, pairs=1.0, touched=1.0, local=1, hidden=128, width=128)
    with pytest.raises(ValueError, match="engine must be one of vllm, sglang, trtllm, got 'sglan'; did you mean 'sglang'"):
        hw.expert_time(work, "GB300", "nvfp4", engine="sglan")
    with pytest.raises(ValueError, match="precision must be one H200 has a dense peak for .* got 'nvfp4'"):
        hw.expert_time(work, "H200", "nvfp4")
    with pytest.raises(ValueError, match="device must be one of"):
        hw.expert_time(work, "GB301", "nvfp4")
    with pytest.warns(UserWarning, match="uncalibrated on H100_PCIE: .*moe takes the constants of H100_SXM fp8_block"):
        hw.expert_time(work, "H100_PCIE", "fp8_block")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hw.expert_time(work, "H200", "fp8_block")  # measured


# Times of exchanges -------------------------------------------------------------------------------------------------------


def exchange(kind, tokens, ep):
    """One exchange of R1's layer, routed round-robin: a token goes to min(EP, 8) GPUs, one of EP times its own among them."""
    return Exchange(kind=kind, elements=np.asarray(tokens, float) * min(ep, 8) * (1 - 1 / ep) * HIDDEN, ranks=ep)


@pytest.mark.parametrize("kind", ["dispatch", "combine"])
@pytest.mark.parametrize("ep", [4, 8, 16, 32])
def test_exchanges_agree_with_the_published(kind, ep):
    rows = measurements("all_to_all", "GB200", operation=f"all-to-all-{kind}", ep=ep)
    modelled = hw.exchange_time(exchange(kind, rows["tokens"], ep), "GB200", "nvfp4")
    error = np.abs(modelled / rows["seconds"] - 1)
    assert len(error) > 25 and error.mean() < 0.1 and error.max() < 0.2


def test_all_reduces_and_exchanges_cross_where_they_were_published_to():
    tokens = np.geomspace(8, 8192, 400)  # of four GPUs
    reduce = 2 * hw.exchange_time(Exchange(kind="all-reduce", elements=tokens * HIDDEN, ranks=4), "GB200", "nvfp4")
    both = sum(hw.exchange_time(exchange(kind, tokens / 4, 4), "GB200", "nvfp4") for kind in ("dispatch", "combine"))
    told = measurements("collectives", "GB200", library="trtllm", operation="all-reduce", ranks=4)
    a2a = [measurements("all_to_all", "GB200", operation=f"all-to-all-{kind}", ep=4) for kind in ("dispatch", "combine")]
    assert np.array_equal(a2a[0]["tokens"], a2a[1]["tokens"])
    points = ((told["bytes"] / (2 * HIDDEN), 2 * told["seconds"]), (4 * a2a[0]["tokens"], sum(x["seconds"] for x in a2a)))
    theirs = [np.exp(np.interp(np.log(tokens), *np.log(np.array(xy)[:, np.argsort(xy[0])]))) for xy in points]

    def crossing(first, second):
        slower = first > second
        assert not slower[0] and slower[-1] and np.count_nonzero(np.diff(slower)) == 1
        return tokens[np.argmax(slower)]

    assert 1 / 1.5 < crossing(reduce, both) / crossing(*theirs) < 1.5


def test_the_plain_bound_is_bytes_over_the_link():
    # 900 GB/s one way on a GB200; a dispatch in NVFP4 has 0.5625 byte an element, everything else 2.
    wanted = {"dispatch": 0.5625, "combine": 2, "send": 2, "all-gather": 1.75, "reduce-scatter": 1.75, "all-reduce": 3.5}
    for kind, nbytes in wanted.items():
        x = Exchange(kind=kind, elements=np.array([9e6, 9e8]), ranks=8, count=58)
        ideal = hw.exchange_time(x, "GB200", "nvfp4", ideal=True)
        assert ideal == pytest.approx(np.array([1e-5, 1e-3]) * nbytes)
        assert (hw.exchange_time(x, "GB200", "nvfp4") > ideal).all()
    in_bf16 = hw.exchange_time(Exchange(kind="dispatch", elements=9e6, ranks=8), "GB200", "bf16", ideal=True)
    assert in_bf16 == pytest.approx(2e-5) and np.ndim(in_bf16) == 0


def test_a_group_wider_than_the_link_is_told():
    wide = Exchange(kind="all-reduce", elements=1e5, ranks=16)
    with pytest.warns(UserWarning, match="on H200: all-reduce over 16 GPUs is timed as if the link joined them; it joins 8$"):
        hw.exchange_time(wide, "H200", "fp8_block")
    with pytest.warns(UserWarning, match="all-reduce over 73 GPUs is timed as if the link joined them; it joins 72$"):
        hw.exchange_time(dataclasses.replace(wide, ranks=73), "GB300", "nvfp4")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hw.exchange_time(dataclasses.replace(wide, ranks=8), "H200", "fp8_block")
        hw.exchange_time(dataclasses.replace(wide, ranks=72), "GB300", "nvfp4")

    def notes(device, recipe, gpus):
        plans = {"attention": Plan(dp=gpus), "ffn": Plan(ep=gpus)}
        step = hw.decode_step(config.load("deepseek-r1"), device, recipe, batch=gpus, context=1024, **plans)
        assert step.calibrated == (not step.notes) and all(f"uncalibrated: {note}" in str(step) for note in step.notes[:1])
        return [note for note in step.notes if "link" in note]

    assert notes("H200", "fp8_block", 16) == [
        f"{kind} over 16 GPUs is timed as if the link joined them; it joins 8" for kind in ("dispatch", "combine")
    ]
    assert notes("H200", "fp8_block", 8) == notes("GB300", "nvfp4", 64) == []
    assert len(notes("GB300", "nvfp4", 128)) == 2


@pytest.mark.parametrize(
    ("kind", "device", "says"),
    [
        ("dispatch", "RTX_5090", "device must have a link to share a model over 4 GPUs, got RTX_5090 without one"),
        ("disptch", "GB200", "'disptch'; did you mean 'dispatch'"),
        ("dispatch", "GB201", "device must be one of"),
    ],
)
def test_what_cannot_be_exchanged_is_refused(kind, device, says):
    with pytest.raises(ValueError, match=says):
        hw.exchange_time(Exchange(kind=kind, elements=1e5, ranks=4), device, "bf16")


# On trial -----------------------------------------------------------------------------------------------------------------


def test_published_uneven_routing_is_faster_with_few_tokens_and_slower_with_many():
    times = {(t, routing): published(t, routing) for t in (128, 2048) for routing in ("balanced", "power_law_1.2")}
    told = [[round(float(times[128, r][EP.index(g)]) * 1e6, 1) for g in (1, 64)] for r in ("balanced", "power_law_1.2")]
    assert told == [[1026.5, 48.1], [844.8, 61.5]]
    few, many = (times[t, "power_law_1.2"] / times[t, "balanced"] for t in (128, 2048))
    assert (few[:6] < 0.9).all() and (many[3:8] > 1.15).all()


def test_in_fp8_the_price_of_skew_grows_with_the_width_and_in_nvfp4_it_jumps():
    def falls(device, precision):
        both = ("power_law_1.2", "balanced")
        ratios = [np.divide(*(published(t, r, device, precision) for r in both)) for t in (128, 2048, 8192)]
        assert all(x[6] > 1.3 for x in ratios[1:])  # at 64 GPUs
        if precision == "fp8_block":
            assert (ratios[0] < 1.15).all() and all(x[-1] > 1.5 * x[0] for x in ratios[1:])
        return max((x[:-1] / x[1:]).max() for x in ratios)

    assert max(falls(device, "fp8_block") for device in ("GB300", "GB200", "H200")) < 1.06
    assert max(falls(device, "nvfp4") for device in ("GB300", "GB200")) > 1.5


def r1_step(batch, context, attention, ffn, **more):
    more |= {"attention": Plan(**attention), "ffn": Plan(**ffn)}
    return hw.decode_step(config.load("deepseek-r1"), "GB300", "nvfp4", batch=batch, context=context, **more)


def test_tensor_parallelism_wins_with_few_sequences_and_a_wide_group_with_many():
    few = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024])
    wide, sliced = r1_step(few, 2048, {"dp": 8}, {"ep": 8}), r1_step(few, 2048, {"tp": 8}, {"tp": 8})
    ratio = wide.seconds / sliced.seconds
    assert wide.feasible.all() and sliced.feasible.all() and (np.diff(ratio) < 0).all()
    assert ratio[0] > 1.1 and (ratio[:5] > 1).all() and (ratio[7:] < 1).all() and ratio[-1] < 0.6
    one = (r1_step(1, 2048, {x: 8}, {y: 8}, engine="trtllm").seconds for x, y in (("dp", "ep"), ("tp", "tp")))
    assert np.divide(*one) > 1.5  # whose all-reduce spans trays


def test_a_wide_group_makes_more_tokens_within_a_tight_limit_and_no_more_within_a_loose_one():
    c = np.unique(np.geomspace(1, 2048, 240).round())
    steps = {g: r1_step(c * g, 4096, {"dp": g}, {"ep": g}) for g in (8, 64)}

    def rate(g, limit):
        return (c / steps[g].seconds)[(steps[g].seconds <= limit) & steps[g].feasible].max()

    gain = [rate(64, limit) / rate(8, limit) for limit in (0.015, 0.020, 0.033, 0.100)]
    assert gain[0] > gain[1] > 1.5 and 1 < gain[2] < 1.5 and 0.8 < gain[3] <= 1
    assert rate(64, 0.020) < rate(64, 0.100)
    at32 = {g: r1_step(32 * g, 4096, {"dp": g}, {"ep": g}).terms for g in (16, 64)}
    assert at32[16]["experts"] > at32[16]["communication"] and at32[64]["experts"] < at32[64]["communication"]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_a_step_takes_the_kernels_of_its_engine(engine):
    model = config.load("deepseek-r1")
    for each in ({"attention": Plan(dp=8), "ffn": Plan(ep=8)}, {"attention": Plan(tp=8), "ffn": Plan(tp=8)}):
        (work,) = hw.step(model, batch=64, context=1024, **each).experts
        b = hw.decode_step(model, "GB300", "nvfp4", batch=64, context=1024, engine=engine, **each)
        assert work.count == 58
        assert b.terms["experts"] == pytest.approx(58 * hw.expert_time(work, "GB300", "nvfp4", engine=engine))
        if engine == "trtllm":  # its own kernels are the slower ones
            assert 1.1 * b.terms["experts"] < 58 * grouped(work, "GB300", "nvfp4")


def test_an_expert_of_r1_sees_enough_rows_from_66_gpus_on():
    least = 15e15 / 8e12 * 0.5625 / 2  # the ridge of a GB300 in NVFP4, times half the bytes of a weight
    assert round(least) == 527 and critical_dimension(hw.GB300.ridge("nvfp4"), hw.NVFP4.bytes) == pytest.approx(least)
    assert expert_tokens(65 * 256, 8, 256) < least < expert_tokens(66 * 256, 8, 256)


# Loads as the published rows draw them ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "top_k", "num_experts"), [(1, 8, 256), (16, 8, 256), (128, 8, 256), (2048, 8, 256), (5, 4, 4)]
)
@pytest.mark.parametrize("exponent", [1.01, 1.2])
def test_power_law_tokens_sum_up_and_no_expert_gets_one_twice(tokens, top_k, num_experts, exponent):
    drawn = power_law_tokens(tokens, top_k, num_experts, exponent, draws=40)
    assert drawn.shape == (40, num_experts) and drawn.dtype.kind == "i" and set(drawn.sum(axis=1)) == {tokens * top_k}
    assert drawn.min() >= 0 and drawn.max() <= tokens
    again, other = (power_law_tokens(tokens, top_k, num_experts, exponent, draws=40, seed=s) for s in (0, 1))
    assert top_k == num_experts or len({tuple(row) for row in drawn.tolist()}) == 40
    assert np.array_equal(drawn, again) and (np.array_equal(drawn, other) == (top_k == num_experts))
    assert top_k < num_experts or (drawn == tokens).all()


@pytest.mark.parametrize("tokens", [1, 8, 32, 128])
def test_no_expert_is_favoured_by_its_number(tokens):
    drawn = power_law_tokens(tokens, 8, 256, 1.2, draws=400).reshape(400, 8, 32)  # the experts of 8 GPUs
    for each in (drawn.sum(axis=2), (drawn > 0).sum(axis=2)):  # loads, experts in use
        assert np.abs(each.mean(axis=0) / each.mean() - 1).max() < 4.5 * each.std() / each.mean() / np.sqrt(400)


def test_power_law_routing_uses_the_share_of_experts_that_explains_the_published_time():
    drawn = power_law_tokens(128, 8, 256, 1.2, draws=300)
    share = (drawn > 0).mean()
    assert share == pytest.approx(0.82, abs=0.01)
    assert share == pytest.approx(published(128, "power_law_1.2")[0] / published(128)[0], abs=0.02)
    assert imbalance(drawn).mean() > imbalance(power_law_tokens(128, 8, 256, 0.3, draws=300)).mean()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ((0, 8, 256, 1.2), "tokens must be >= 1, got 0"),
        ((4, 2.5, 8, 1.2), "top_k must be a whole number, got 2.5"),
        ((4, 9, 8, 1.2), "top_k must be <= num_experts = 8, got 9"),
        ((4, 2, 8, 1), "exponent must not be 1, got 1"),
        ((4, 2, 8, np.nan), "exponent must be finite, got nan"),
    ],
)
def test_power_law_tokens_refuse_what_makes_no_sense(call, says):
    with pytest.raises(ValueError, match=says):
        power_law_tokens(*call)
    with pytest.raises(ValueError, match="draws must be >= 1, got 0"):
        power_law_tokens(4, 2, 8, 1.2, draws=0)


# Live ---------------------------------------------------------------------------------------------------------------------


def collectives(run):
    return [m for m in run.measurements if m.operation in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")]


@pytest.fixture
def timed(monkeypatch):
    """What is timed live, in a notebook's mode; returns the numbers of processes that were asked for."""
    monkeypatch.delenv("HWDESIGN_STATIC", raising=False)
    asked = []

    def give(*found):
        monkeypatch.setattr(live_parallel, "measure_collectives", lambda processes: asked.append(processes) or list(found))
        return asked

    return give


def test_while_the_site_is_built_the_stored_exchanges_are_shown(monkeypatch):
    monkeypatch.setattr(live_parallel, "measure_collectives", lambda processes: pytest.fail("timed"))
    monkeypatch.setenv("HWDESIGN_STATIC", "1")
    assert live.exchanges() == live.exchanges(stored=True) == load_run(shipped_runs()[0])
    found = live.exchanges_of(live.exchanges())
    assert sorted(found) == ["all_gather", "all_reduce", "all_to_all", "reduce_scatter"]
    for each in found.values():
        assert [m.shape["nbytes"] for m in each] == [2**12, 2**18, 2**23] and each[-1].seconds > each[0].seconds > 0


def test_a_kernel_times_exchanges_between_two_processes(timed, capsys):
    old = load_run(shipped_runs()[0])
    mine = [dataclasses.replace(m, device="my machine") for m in collectives(old)[:4]]
    gone = Skipped(operation="all_to_all", reason="gloo has none")
    asked = timed(mine[0], gone, *mine[1:])
    run = live.exchanges()
    assert asked == [2] and run.machine == "my machine" and run.measurements == tuple(mine) and run.skipped == (gone,)
    said = capsys.readouterr()
    assert said.out == "" and "two processes" in said.err
    assert live.exchanges(stored=False).machine == "my machine" and asked == [2, 2]


def test_where_no_exchange_can_be_timed_the_stored_ones_are_shown_and_said_to_be(timed, capsys):
    timed(Skipped(operation="collectives", reason="torch is not installed"))
    run = live.exchanges()
    assert run == load_run(shipped_runs()[0])
    (line,) = capsys.readouterr().out.splitlines()
    assert "torch is not installed" in line and run.machine in line and "stored run" in line


def test_exchanges_are_put_in_order_and_a_run_without_any_is_refused():
    run = load_run(shipped_runs()[0])
    backwards = dataclasses.replace(run, measurements=run.measurements[::-1])
    found = live.exchanges_of(backwards)
    assert found == live.exchanges_of(run) and sum(map(len, found.values())) == len(collectives(run)) == 12
    assert all(m.operation == name for name, each in found.items() for m in each)
    others = tuple(m for m in run.measurements if m not in collectives(run))
    with pytest.raises(ValueError, match=f"run must hold collectives, got none of {len(others)} measurements of ") as error:
        live.exchanges_of(dataclasses.replace(run, measurements=others))
    assert run.machine in str(error.value)


# Figures ------------------------------------------------------------------------------------------------------------------

NAN = float("nan")


def curves(ax):
    """Points of the lines that have a label."""
    return {line.get_label(): np.column_stack(line.get_data()).tolist() for line in ax.lines if line.get_label()[0] != "_"}


def legend(ax):
    return [t.get_text() for t in ax.get_legend().get_texts()]


def told(axis):
    return [t.get_text() for t in axis.get_ticklabels()]


def level(ax, dashes="--"):
    """Heights of the level lines."""
    heights = (line.get_ydata() for line in ax.lines if line.get_linestyle() == dashes)
    return [y[0] for y in heights if len(y) == 2 and y[0] == y[1]]


def test_lines_have_a_look_each_and_crosses_of_their_colour():
    ax = lines(style.axes(), [1, 2, 3], {"a": [4, NAN, 6], "b": [7, 8, 9]}, points={"b": ([1, 2], [70, 80])})
    a, b, crosses = ax.lines
    assert a.get_xdata().tolist() == [1, 2, 3] and b.get_ydata().tolist() == [7, 8, 9]
    assert a.get_ydata()[0] == 4 and np.isnan(a.get_ydata()[1])  # a gap
    assert a.get_color() != b.get_color() == crosses.get_color() and a.get_linestyle() != b.get_linestyle()
    assert (crosses.get_xdata().tolist(), crosses.get_ydata().tolist(), crosses.get_marker()) == ([1, 2], [70, 80], "x")
    assert a.get_marker() == "None" and lines(style.axes(), [1], {"a": [1]}).lines[0].get_marker() != "None"
    many = lines(style.axes(), [1, 2], {str(i): [i, i] for i in range(5)}).lines
    assert len({x.get_color() for x in many}) == 5 == len({x.get_marker() for x in many})


def test_rows_of_an_expert_are_drawn_with_the_line_of_the_bound():
    rows = {"a": [8, 16, 32], "b": [1, 2, 4]}
    ax = figures.expert_rows([1, 2, 4], rows, 527.3)
    assert curves(ax) == {name: [[x, y] for x, y in zip([1, 2, 4], ys, strict=True)] for name, ys in rows.items()}
    assert level(ax) == [527.3] and legend(ax) == ["a", "b"]
    assert [t.get_text() for t in ax.texts] == ["weights no longer the limit: 527"]
    assert (ax.get_xscale(), ax.get_yscale(), told(ax.xaxis)) == ("log", "log", ["1", "2", "4"])
    plain = figures.expert_rows([1, 2], {"a": [1, 2]})
    assert not level(plain) and not plain.texts and plain.get_xlabel() == "GPUs"


def test_shares_of_experts_are_lines_and_simulated_crosses():
    ax = figures.touched_share([1, 2, 4], {"a": [0.1, 0.2, 0.4], "b": [0.5, 0.7, 0.9]}, {"b": ([1, 4], [0.51, 0.88])})
    assert [y for _, y in curves(ax)["a"]] == [0.1, 0.2, 0.4] and [y for _, y in curves(ax)["b"]] == [0.5, 0.7, 0.9]
    (cross,) = [line for line in ax.lines if line.get_marker() == "x"]
    assert np.column_stack(cross.get_data()).tolist() == [[1, 0.51], [4, 0.88]]
    assert ax.get_ylim()[0] == 0 and ax.get_ylim()[1] > 1 and legend(ax) == ["a", "b"]


def test_the_memory_loop_has_three_pictures_and_no_point_where_nothing_fits():
    loops = {"H200, FP8": ([1.4, 0.6], [NAN, 30], [NAN, 8]), "GB300, NVFP4": ([0.4, 0.2], [50, 60], [12, 30])}
    last = figures.memory_loop([4, 8], loops, {"H200, FP8": 205.8, "GB300, NVFP4": 527.3})
    panels = last.figure.axes
    assert len(panels) == 3 and panels[2] is last and all(panel.get_xscale() == "log" for panel in panels)
    for part, panel in enumerate(panels):
        assert np.array_equal([line.get_ydata() for line in panel.lines[:2]], [x[part] for x in loops.values()], equal_nan=True)
        assert all(line.get_xdata().tolist() == [4, 8] for line in panel.lines[:2])
    assert level(panels[0]) == [1] and level(last, ":") == [205.8, 527.3] and legend(panels[0]) == list(loops)
    assert [t.get_text() for t in last.texts] == ["206 (H200)", "527 (GB300)"]
    own, bound = ({line.get_color() for line in last.lines[i::2]} for i in (0, 1))
    assert len(own) == len(bound) == 1 and own != bound  # each bound has the colour of its device
    assert [panel.get_ylabel().split("\n")[0] for panel in panels] == ["weights /", "sequences", "rows of"]


def test_rates_keep_a_gap_where_no_batch_is_fast_enough():
    ax = figures.rates_by_width([4, 8, 16], {"15 ms": [NAN, 400, 900], "100 ms": [5000, 6000, 5500]})
    a, b = ax.lines
    assert np.array_equal(a.get_ydata(), [NAN, 400, 900], equal_nan=True) and b.get_ydata().tolist() == [5000, 6000, 5500]
    assert legend(ax) == ["15 ms", "100 ms"] and ax.get_ylim()[0] == 0 and told(ax.xaxis) == ["4", "8", "16"]
    assert ax.get_legend().get_title().get_text() == "limit on the time between tokens"


def test_layouts_are_drawn_in_milliseconds():
    ax = figures.layout_times([1, 2, 4], {"TP 8": [0.009, 0.010, 0.011], "DP 8": [0.012, NAN, 0.014]})
    tp, dp = (line.get_ydata() for line in ax.lines)
    assert np.allclose(tp, [9, 10, 11]) and np.allclose(dp, [12, NAN, 14], equal_nan=True) and legend(ax) == ["TP 8", "DP 8"]


def test_uneven_loads_are_a_mean_and_the_middle_nine_tenths():
    draws = np.arange(101.0)
    bands = {"a": [1 + draws / 100, 2 + draws / 100], "b": [3 + draws / 50, 4 + draws / 50]}
    ax = figures.uneven_loads([32, 128], bands, published=(128, 2.56, "published, R1"), top=7)
    a, b, cross = ax.lines
    assert a.get_ydata() == pytest.approx([1.5, 2.5]) and b.get_ydata() == pytest.approx([4, 5])
    assert (cross.get_xdata().tolist(), cross.get_ydata().tolist(), cross.get_marker()) == ([128], [2.56], "x")
    for band, line, ends in zip(ax.collections, (a, b), ([[1.05, 1.95], [2.05, 2.95]], [[3.1, 4.9], [4.1, 5.9]]), strict=True):
        at = band.get_paths()[0].vertices
        found = [[at[at[:, 0] == x, 1].min(), at[at[:, 0] == x, 1].max()] for x in (32, 128)]
        assert np.allclose(found, ends) and np.allclose(band.get_facecolor()[0][:3], to_rgb(line.get_color()))
    assert legend(ax) == ["a", "b", "published, R1"] and ax.get_ylim()[1] == 7
    assert len(figures.uneven_loads([1, 2], {"a": [[1, 2], [1, 3]]}).lines) == 1


def test_exchanges_are_drawn_in_microseconds():
    modelled = {"EP 8": [1e-5, 2e-5], "EP 32": [3e-5, NAN]}
    ax = figures.exchange_lines([1, 2], modelled, {"EP 32": ([1, 4], [3.1e-5, 4e-5])}, xlabel="x [y]")
    a, b, cross = ax.lines
    assert np.allclose(a.get_ydata(), [10, 20]) and np.allclose(b.get_ydata(), [30, NAN], equal_nan=True)
    assert np.allclose(np.column_stack(cross.get_data()), [[1, 31], [4, 40]]) and cross.get_color() == b.get_color()
    assert legend(ax) == ["EP 8", "EP 32"] and ax.get_xlabel() == "x [y]"
    assert len(figures.exchange_lines([1, 2], {"EP 8": [1e-5, 2e-5]}).lines) == 1


def test_a_layer_by_width_has_published_crosses_on_modelled_lines():
    ax = figures.layer_by_width([1, 8, 64], {"a": [1e-3, 2e-4, 5e-5]}, {"a": [1.1e-3, 1.9e-4, 6e-5]})
    line, cross = ax.lines
    assert np.allclose(line.get_ydata(), [1100, 190, 60]) and np.allclose(cross.get_ydata(), [1000, 200, 50])
    assert cross.get_marker() == "x" and line.get_xdata().tolist() == cross.get_xdata().tolist() == [1, 8, 64]
    assert told(ax.xaxis) == ["1", "8", "64"] and ax.get_xlim()[0] < 1 and ax.get_xlim()[1] > 64


def test_the_price_of_skew_is_drawn_against_one():
    ax = figures.skew_ratio([1, 8], {"128 tokens": [0.8, 0.9], "2048 tokens": [1.1, NAN]}, {"2048 tokens": [1.05, 1.2]})
    few, many, modelled, _ = ax.lines
    assert few.get_ydata().tolist() == [0.8, 0.9] and np.array_equal(many.get_ydata(), [1.1, NAN], equal_nan=True)
    assert modelled.get_ydata().tolist() == [1.05, 1.2] and modelled.get_linestyle() == ":"
    assert modelled.get_color() == many.get_color() != few.get_color() and level(ax) == [1]
    assert legend(ax) == ["128 tokens", "2048 tokens"]


def test_services_have_a_bracket_and_a_cross_each():
    ax = figures.unit_brackets([("one", 0.030, 0.050, 0.040, 0.033), ("two", 0.035, 0.070, 0.055, 0.041)])
    assert [x for b in ax.patches for x in (b.get_x(), b.get_x() + b.get_width())] == pytest.approx([30, 50, 35, 70])
    assert [x[0] for line in ax.lines if line.get_marker() == "x" for x in line.get_data()] == pytest.approx([40, 0, 55, 1])
    halves = [line for line in ax.lines if line.get_marker() == "None"]
    assert [list(line.get_xdata()) for line in halves] == [pytest.approx([33, 33]), pytest.approx([41, 41])]
    assert [np.mean(line.get_ydata()) for line in halves] == pytest.approx([0, 1])
    assert [b.get_y() + b.get_height() / 2 for b in ax.patches] == pytest.approx([0, 1]) and told(ax.yaxis) == ["one", "two"]
    assert sorted(legend(ax)) == ["model: all to none hidden", "published", "two half batches"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]


def test_own_exchanges_are_marks_with_their_line():
    found = {"all_reduce": [(4096, 2e-4), (2**20, 3e-3)], "all_to_all": [(2048, 1e-4), (2**19, 1e-3)]}
    ax = figures.own_exchanges(found, {"all_to_all": (1e-4, 1e9)})
    reduce, a2a, fit = ax.lines
    assert np.allclose(np.column_stack(reduce.get_data()), [[4096, 200], [2**20, 3000]])
    assert np.allclose(np.column_stack(a2a.get_data()), [[2048, 100], [2**19, 1000]])
    assert legend(ax) == ["all-reduce", "all-to-all"]
    assert fit.get_color() == a2a.get_color() != reduce.get_color() and fit.get_xdata()[[0, -1]] == pytest.approx([2048, 2**19])
    assert fit.get_ydata()[[0, -1]] == pytest.approx([102.048, 624.288])
    low, high = ax.get_ylim()
    assert all(low <= float(t) <= high for t in told(ax.yaxis)) and len(told(ax.yaxis)) >= 3


def test_no_curve_is_left_out_in_silence():
    names = [f"curve {i}" for i in range(7)]
    for draw in (
        lambda: figures.skew_ratio([1, 2], {n: [1, 2] for n in names}),
        lambda: figures.own_exchanges({n: [(1024, 1e-4), (2048, 2e-4)] for n in names}),
        lambda: figures.expert_rows([1, 2], {n: [1, 2] for n in names}),
        lambda: figures.uneven_loads([1, 2], {n: [[1, 2], [1, 3]] for n in names}),
    ):
        ax = draw()
        assert set(names) <= set(legend(ax)) and len(ax.collections) in (0, 7)


@pytest.mark.parametrize(
    ("draw", "x", "y"),
    [
        (lambda: figures.expert_rows([1, 2], {"a": [1, 2]}, 5), "GPUs", "rows of an expert [element]"),
        (lambda: figures.touched_share([1, 2], {"a": [0.1, 0.2]}), "tokens of the group [token]", "experts in use [share]"),
        (
            lambda: figures.memory_loop([4, 8], {"a": ([0.5, 0.4], [3, 4], [20, 80])}, {"a": 90}),
            "GPUs that share the experts",
            "rows of\nan expert",
        ),
        (lambda: figures.rates_by_width([4, 8], {"a": [1, 2]}), "GPUs that share the experts", "tokens/s of a GPU"),
        (lambda: figures.layout_times([1, 2], {"a": [0.01, 0.02]}), "sequences of all GPUs", "time of a step [ms]"),
        (
            lambda: figures.uneven_loads([1, 2], {"a": [[1, 2], [1, 3]]}),
            "tokens of the group [token]",
            "load of the fullest GPU [mean = 1]",
        ),
        (lambda: figures.exchange_lines([1, 2], {"a": [1e-5, 2e-5]}), "tokens of each GPU [token]", "time [µs]"),
        (
            lambda: figures.layer_by_width([1, 2], {"a": [1e-3, 1e-4]}, {"a": [1e-3, 1e-4]}),
            "GPUs that share the experts",
            "time [µs]",
        ),
        (lambda: figures.skew_ratio([1, 2], {"a": [1, 2]}), "GPUs that share the experts", "time [balanced routing = 1]"),
        (lambda: figures.unit_brackets([("a", 0.03, 0.05, 0.04, 0.035)]), "time of a step [ms]", ""),
        (lambda: figures.own_exchanges({"a": [(1024, 1e-4), (2048, 2e-4)]}), "bytes sent by a rank [byte]", "time [µs]"),
    ],
)
def test_axes_name_quantity_and_unit(draw, x, y):
    ax = draw()
    assert (ax.get_xlabel(), ax.get_ylabel()) == (x, y) and ax.get_title() == ""
    assert webp_uri(ax) == webp_uri(draw())


# Sliders ------------------------------------------------------------------------------------------------------------------


def test_the_width_slider_shows_the_terms_of_a_step():
    explorer = figures.explore_width()
    assert explorer.values == [str(g) for g in WIDTHS] == ["4", "8", "16", "32", "64"]
    for i, g in enumerate(WIDTHS):
        frame, step = explorer.draw(i), r1_step(np.array(TOKENS) * g, 4096, {"dp": g}, {"ep": g})
        assert frame.data["ep"] == g and frame.data["tokens"] == list(TOKENS)
        assert frame.data["seconds"] == pytest.approx(step.seconds.tolist(), rel=1e-12)
        spent = {p.get_label(): p.get_paths()[0].vertices for p in frame.ax.collections}
        for label, at in spent.items():  # each band is as high as its term
            high = [np.ptp(at[np.isclose(at[:, 0], t), 1]) for t in TOKENS]
            assert high == pytest.approx((1e3 * step.terms[label]).tolist(), rel=1e-6)
        top = max(at[:, 1].max() for at in spent.values())
        assert top == pytest.approx(1e3 * step.seconds.max()) and top < frame.ax.get_ylim()[1]
        for t in (32, 256):
            j = TOKENS.index(t)
            assert f"{t} sequences {step.seconds[j] * 1e3:.1f} ms, experts {step.share('experts')[j]:.0%}" in frame.text
            assert f"communication {step.share('communication')[j]:.0%}" in frame.text
        assert frame.text.startswith(f"{g} GPUs: ") and frame.text in frame.alt
    few = figures.explore_width(widths=(8, 16), tokens=(1, 4)).draw(0)
    assert "4 sequences" in few.text and len(few.data["seconds"]) == 2


def bars(frame):
    return np.array([p.get_height() for p in frame.ax.patches])


def test_the_skew_slider_shows_the_loads_of_even_placements():
    explorer = figures.explore_skew()
    frames = [explorer.draw(i) for i in range(len(explorer.values))]
    place = even_placement(256, 32, seed=2)
    for frame, exponent in zip(frames, EXPONENTS, strict=True):
        counts = routed_tokens(4096, 8, 256, exponent=exponent, seed=5)[0]
        loads = np.sort(counts[place].sum(axis=1))[::-1] / 1024  # a GPU has 4096 x 8 / 32 pairs on average
        assert bars(frame) == pytest.approx(loads) and frame.data["exponent"] == exponent and level(frame.ax) == [1]
        assert frame.data["imbalance"] == pytest.approx(loads[0]) and frame.data["experts"] == pytest.approx(counts.max() / 128)
        assert frame.text in frame.alt and frame.text.startswith(
            f"Exponent {exponent:g}: the fullest GPU has {loads[0]:.2f} times the mean, the emptiest {loads[-1]:.2f};"
        )
        assert f"{counts.max() / 128:.1f} times the mean expert" in frame.text
        assert loads[0] < frame.ax.get_ylim()[1] and frame.ax.get_ylim() == frames[0].ax.get_ylim()
    found = [frame.data["imbalance"] for frame in frames]
    assert found[0] < 1.2 and found == sorted(found) and found[-1] > 2


def test_the_copies_slider_shows_what_spare_slots_repair():
    explorer = figures.explore_copies()
    frames = [explorer.draw(i) for i in range(len(explorer.values))]
    assert explorer.values == ["no balancer", "0", "32", "64", "96"]
    now = routed_tokens(4096, 8, 256, exponent=0.67, seed=5)[0]
    seen = routed_tokens(4096, 8, 256, exponent=0.67, draws=4, seed=6).sum(axis=0)  # other tokens
    for frame, extra in zip(frames, SPARE, strict=True):
        slots = 256 + (extra or 0)
        place = even_placement(256, 32, seed=2) if extra is None else balanced_placement(seen, 32, slots=slots)
        copies = np.bincount(place.ravel())
        loads = np.sort((now / copies)[place].sum(axis=1))[::-1] / 1024
        assert bars(frame) == pytest.approx(loads)
        assert frame.data == {"slots": slots, "imbalance": pytest.approx(loads[0]), "copies": copies.max()}
        assert f"the fullest GPU has {loads[0]:.2f} times the mean, the emptiest {loads[-1]:.2f}" in frame.text
        assert ("one copy." if copies.max() == 1 else f"{copies.max()} copies.") in frame.text and frame.text in frame.alt
        assert extra is None or frame.text.startswith(f"{extra} spare slots, {slots // 32} on each GPU")
        assert loads[0] < frame.ax.get_ylim()[1] and frame.ax.get_ylim() == frames[0].ax.get_ylim()
    assert frames[0].text.startswith("Experts at random") and frames[0].data["imbalance"] > 2 > 1.2 > frames[2].data["imbalance"]


def test_the_sliders_of_the_chapter_are_light_and_say_what_they_show():
    explorers = [figures.explore_width(), figures.explore_skew(), figures.explore_copies()]
    assert sum(len(e.values) for e in explorers) <= 24 and len({e.name for e in explorers}) == 3
    for e in explorers:
        alt = e.draw(0).alt
        assert len(alt) > 60 and re.search(r"\d", alt) and re.search(r"\[[^\]]+\]", alt)
        assert e.kinds == ("modelled",) and re.search(r"\d", e.caption)
