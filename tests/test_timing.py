"""Times of kernels and steps: a bound by hand, published anchors, held-out errors, the fit, and what is refused."""

import hashlib
import json
import timeit
from collections import Counter
from importlib import resources
from math import ceil, comb, inf

import calibration_cases
import numpy as np
import pytest
from fit_calibration import fitted
from serving_error import served

import hwdesign as hw
from hwdesign.models import config
from hwdesign.timing import calibration, kernels

DATA = resources.files("hwdesign.timing").joinpath("data")
PRESETS = resources.files("hwdesign.models").joinpath("configs")


def step(name="llama-3.1-70b", card="H100_SXM", form="fp8", batch=4, context=1536, attention=None, ffn=None, **more):
    plans = {"attention": hw.Plan(**(attention or {})), "ffn": hw.Plan(**(attention if ffn is None else ffn) or {})}
    return hw.decode_step(config.load(name), card, form, batch=batch, context=context, **plans, **more)


def layers(c):
    """(mixer, FFN) of each layer from the raw config; a number is the window of grouped-query attention."""
    kind, count = c["model_type"], c["num_hidden_layers"]
    if kind == "nemotron_h":
        return [{"M": ("mamba", None), "*": (inf, None), "E": (None, "moe")}[x] for x in c["hybrid_override_pattern"]]
    if kind == "deepseek_v3":
        return [("mla", "dense" if i < c["first_k_dense_replace"] else "moe") for i in range(count)]
    period, ffn = (
        {"gpt_oss": 2, "gemma3_text": 6}.get(kind, 1),
        "moe" if {"num_experts", "num_local_experts"} & set(c) else "dense",
    )
    return [(c["sliding_window"] if (i + 1) % period else inf, ffn) for i in range(count)]


def hand_bound(name, card, form, batch, context, plan, ffn):
    """Sum over operations of max(FLOP / dense peak, bytes / bandwidth), and what is sent over the link's bandwidth [s]."""
    c = json.loads(PRESETS.joinpath(f"{name}.json").read_text())
    c, device, recipe, bf16 = c.get("text_config", c), hw.device(card), hw.recipe(form), hw.recipe("bf16")
    tp, dp, kvp, pp, ftp, ep, fdp = (
        *(plan.get(x, 1) for x in ("tp", "dp", "kvp", "pp")),
        *(ffn.get(x, 1) for x in ("tp", "ep", "dp")),
    )
    h, rate, link, cached = c["hidden_size"], device.memory_bandwidth, device.link_bandwidth, recipe.kv_cache
    every = ceil(batch / pp)  # tokens of a micro-batch over all GPUs of a stage
    t, own = every / dp, bf16 if (name[:7], form) == ("gpt-oss", "mxfp4") else recipe  # its own checkpoint: attention in BF16

    def op(flop, nbytes, math):
        return max(flop / device.peak_flops(math), nbytes / rate)

    def gemm(m, n, k, r=recipe):
        size = r.operand_bytes
        return op(2 * m * n * k, m * k * size["a"] + n * k * size["b"] + m * n * size["c"], r.math)

    def reduce(tokens, ranks, rounds=2):
        return rounds * (ranks - 1) / ranks * tokens * h * 2 / link if ranks > 1 else 0

    def mix(kind):
        if kind == "mamba":
            heads, state = c["mamba_num_heads"] // tp, c["ssm_state_size"]
            inner, groups = heads * c["mamba_head_dim"], max(1, c["n_groups"] // tp)
            projections = gemm(t, 2 * (inner + groups * state) + heads, h, own) + gemm(t, h, inner, own)
            return projections + 2 * t * inner * state * 4 / rate + reduce(t, tp)  # state in FP32, read and written
        heads, seen = c["num_attention_heads"] // tp, context
        if kind == "mla":
            rank, rope, nope, v = (c[x] for x in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
            shapes = [(c["q_lora_rank"], h), (heads * (nope + rope), c["q_lora_rank"]), (rank + rope, h)]
            shapes, scores, kept, out = [*shapes, (heads * (nope + v), rank)], 2 * rank + rope, rank + rope, heads * v
        else:
            size, kv, seen = (
                c.get("head_dim", h // c["num_attention_heads"]),
                ceil(c["num_key_value_heads"] / tp),
                min(seen, kind),
            )
            shapes, scores, kept, out = [((heads + 2 * kv) * size, h)], 2 * size, 2 * kv * size, heads * size
        total = op(
            2 * t * heads * seen * scores / kvp, t * seen * kept * cached.bytes / kvp, cached if cached.bits == 8 else "bf16"
        )
        total += t * out * (1 - 1 / kvp) * 2 / link if kvp > 1 else 0
        return total + sum(gemm(t, n, k, own) for n, k in [*shapes, (h, out // kvp)]) + reduce(t, tp * kvp)

    def feed(kind):
        groups = dp // fdp  # with tokens of their own, among the ep * ftp GPUs that share a set of experts
        owners, here = min(groups, ep), every / fdp
        mine, ways, gathered, gate = here / owners, ftp * ep // owners, groups // owners, 1 if "mamba_num_heads" in c else 2
        total = reduce(mine, gathered, 1) + reduce(mine, ways, 1 if gathered > 1 else 2)

        def pair(m, width):
            return gemm(m, gate * width, h) + gemm(m, h, width)

        if kind == "dense":
            return total + pair(mine, ceil(c["intermediate_size"] / ways))
        experts = next(c[x] for x in ("num_experts", "n_routed_experts", "num_local_experts") if x in c)
        k, width = c["num_experts_per_tok"], c.get("moe_intermediate_size", c["intermediate_size"])
        touched = experts / ep * (1 - (1 - k / experts) ** here)
        total += gemm(mine, experts, h, bf16) + touched * pair(here * k / ep / touched, width // ftp)
        if c.get("n_shared_experts"):
            total += pair(mine, ceil(c.get("moe_shared_expert_intermediate_size", width) / ways))
        others = (ep - 1) * (1 - comb(experts - experts // ep, k) / comb(experts, k))
        return total + (here / ep * others * h * (recipe.activations.bytes + 2) / link if owners > 1 else 0)

    total = gemm(t, ceil(c["vocab_size"] / tp), h, bf16) + (pp * t * h / tp * 2 / link if pp > 1 else 0)
    return total + sum(n * ((mix(a) if a else 0) + (feed(b) if b else 0)) for (a, b), n in Counter(layers(c)).items())


CASES = [
    ("llama-3.1-8b", "H200", "bf16", 64, 8192, {}, {}),
    ("llama-3.1-8b", "RTX_5090", "nvfp4", 1, 1, {}, {}),
    ("llama-3.1-70b", "B200", "fp8_block", 33, 30000, {"tp": 16}, {"tp": 16}),  # 8 key-value heads: two GPUs hold each
    ("llama-3.1-70b", "GB300", "nvfp4", 8, 10**6, {"tp": 8, "kvp": 8}, {"tp": 64}),
    ("llama-3.1-70b", "GB200", "table2", 101, 4096, {"tp": 4, "pp": 2}, {"tp": 4, "pp": 2}),
    ("llama-3.1-70b", "MI300X", "bf16", 64, 4096, {"tp": 2, "dp": 4}, {"tp": 2, "dp": 4}),
    ("deepseek-r1", "GB300", "nvfp4", 256, 4096, {"tp": 8}, {"tp": 8}),  # the latent on every GPU
    ("deepseek-r1", "GB300", "nvfp4", 16384, 4096, {"dp": 64}, {"ep": 64}),
    ("deepseek-r1", "H200", "fp8_block", 1, 100, {"tp": 8}, {"ep": 8}),
    ("deepseek-r1", "H200", "fp8_block", 512, 8192, {"dp": 2, "tp": 8}, {"ep": 16}),
    ("deepseek-r1", "B200", "fp8_block", 512, 8192, {"dp": 8}, {"tp": 2, "ep": 4}),
    ("deepseek-r1", "GB300", "nvfp4", 32, 10**6, {"kvp": 16}, {"ep": 16}),
    ("deepseek-r1", "GB300", "fp8", 1000, 5000, {"dp": 8, "pp": 2}, {"ep": 8, "pp": 2}),
    ("gpt-oss-120b", "H100_SXM", "bf16", 64, 100, {"tp": 8}, {"ep": 8}),
    ("gpt-oss-120b", "GB300", "mxfp4", 64, 8192, {"dp": 8}, {"ep": 8}),
    ("gemma-3-27b", "A100_SXM", "bf16", 16, 100_000, {"tp": 4}, {"tp": 4}),
    ("qwen3-0.6b", "A100_SXM", "bf16", 256, 1000, {}, {}),
    ("qwen3-30b-a3b", "B200", "fp8", 128, 4096, {"dp": 4}, {"ep": 4}),
    ("qwen3-235b-a22b", "H200", "fp8_block", 64, 4096, {"tp": 8}, {"tp": 8}),
    ("mixtral-8x7b", "H100_SXM", "fp8", 32, 2048, {"tp": 2, "dp": 2}, {"tp": 2, "dp": 2}),
    ("nemotron-3-nano-30b-a3b", "GB300", "nvfp4", 64, 8192, {"tp": 4}, {"ep": 4}),  # two key-value heads, eight groups
    ("nemotron-3-nano-30b-a3b", "GB300", "bf16", 512, 100_000, {"dp": 8}, {"ep": 8}),
]
BATCHES, CONTEXTS = np.array([1, 2, 7, 16, 64, 65, 128, 300, 1024, 8192])[:, None], np.array([[1, 100, 129, 1025, 8192, 10**6]])


@pytest.mark.parametrize("case", CASES, ids=lambda c: " ".join(map(str, c)))
def test_ideal_step_is_the_bound_by_hand(case):
    assert step(*case, ideal=True).seconds == pytest.approx(hand_bound(*case), rel=1e-12)


@pytest.mark.parametrize("case", CASES, ids=lambda c: " ".join(map(str, c)))
def test_terms_sum_and_times_grow_and_no_step_beats_its_bound(case):
    real, bound = (step(*case[:3], BATCHES, CONTEXTS, *case[5:], ideal=ideal) for ideal in (False, True))
    for b in (real, bound):
        assert b.seconds.shape == (10, 6) and np.allclose(sum(b.terms.values()), b.seconds, rtol=1e-14)
        assert all((np.diff(b.seconds, axis=axis) >= -1e-12 * b.seconds.max()).all() for axis in (0, 1))
    assert (real.seconds >= bound.seconds).all()
    for i, j in ((0, 0), (4, 3), (9, 5)):
        one = step(*case[:3], int(BATCHES[i, 0]), int(CONTEXTS[0, j]), *case[5:])
        assert np.ndim(one.seconds) == np.ndim(one.memory) == 0 and one.seconds == pytest.approx(real.seconds[i, j], rel=1e-12)
        assert all(one.terms[t] == pytest.approx(np.broadcast_to(real.terms[t], (10, 6))[i, j], rel=1e-12) for t in one.terms)


def test_llama_70b_never_fits_one_h100_and_fits_eight_up_to_the_last_byte():
    assert not step(form="bf16", batch=1, context=1).feasible  # 141 GB of weights
    weights, sequence = (70_553_706_496 + 7 * 161 * 8192) * 2 / 8, 8192 * 2 * 128 * 80 * 2  # norms everywhere; one KV head each
    most = int((80e9 - weights) // sequence)
    b = step(form="bf16", batch=np.array([1, most, most + 1]), context=8192, attention={"tp": 8})
    assert b.feasible.tolist() == [True, True, False] and b.memory[0] == pytest.approx(weights + sequence, rel=1e-12)


@pytest.mark.parametrize(("tp", "kvp"), [(2, 1), (16, 1), (8, 8)])
def test_memory_counts_copied_heads_and_a_shared_output_projection(tp, kvp):
    kv, q, ways = max(1, 8 // tp), 64 // tp, tp * kvp
    weights = 2 * 8192 * (80 * ((q + 2 * kv + q / kvp) * 128 + 3 * 28672 / ways + 2) + 2 * 128256 / tp + 1)
    b = step("llama-3.1-70b", "H200", "bf16", 1, 1000, {"tp": tp, "kvp": kvp}, {"tp": ways})
    assert b.memory == pytest.approx(weights + 1000 * 2 * kv * 128 * 80 * 2 / kvp, rel=1e-9)


def test_memory_counts_down_projections_to_latents_on_every_gpu():
    mixer = (1536 + 576) * 7168 + 1536 + 512 + 2 * 7168 + 128 * (192 * 1536 + 256 * 512 + 128 * 7168) // 8  # norms among them
    sparse, dense = 257 * 3 * 2048 * 7168 // 8 + 256 * 7168 + 256, 3 * 18432 * 7168 // 8
    weights = 61 * mixer + 58 * sparse + 3 * dense + 2 * 129280 * 7168 // 8 + 7168
    b = step("deepseek-r1", "H200", "bf16", 1, 1000, {"tp": 8}, {"ep": 8})
    assert b.memory == pytest.approx(2 * weights + 1000 * 61 * 576 * 2, rel=1e-9)


def test_memory_of_the_fullest_gpu_rounds_sequences_up():
    nine, sixteen = (step("llama-3.1-8b", batch=b, attention={"dp": 8}).memory for b in (9, 16))
    assert nine == sixteen


def test_only_measured_devices_are_calibrated():
    assert step(attention={"tp": 8}).calibrated and not step(ideal=True).calibrated
    for card, form in (("RTX_5090", "nvfp4"), ("MI300X", "bf16"), ("L40S", "fp8"), ("H100_SXM", "w4a16")):
        b = step("llama-3.1-8b", card, form)
        assert not b.calibrated and any(note.startswith(("gemm takes", "recipe w4a16 takes")) for note in b.notes)


@pytest.mark.parametrize("card", [name for name in hw.device_names() if hw.device(name).link_bandwidth and name != "T4"])
def test_every_device_with_a_link_runs_experts_over_eight(card):
    assert step("qwen3-30b-a3b", card, "bf16", attention={"dp": 8}, ffn={"ep": 8}).seconds > 0


def test_published_steps_within_a_quarter():
    for tp, published in ((2, 17.4), (4, 11.8), (8, 9.1)):  # Llama-3.1-70B in FP8 on H100, vLLM
        assert step(attention={"tp": tp}).seconds * 1e3 == pytest.approx(published, rel=0.25)
    assert step(*CASES[0]).seconds * 1e3 == pytest.approx(20.7, rel=0.25)
    assert step(*CASES[0], ideal=True).seconds * 1e3 == pytest.approx(17.4, rel=0.02)


def test_serving_sample_within_20_percent_and_35_for_each_model_and_device():
    error, where = (
        np.abs(served()["modelled"] / served()["tpot"] - 1),
        list(zip(served()["model"], served()["device"], strict=True)),
    )
    medians = [np.median(error[[at == key for at in where]]) for key, n in Counter(where).items() if n >= 20]
    assert np.median(error) < 0.20 and len(medians) == 14 and max(medians) < 0.35


def test_stages_of_a_server_prefill_different_prompts_at_once():
    run = {"model": config.load("llama-3.1-8b"), "device": "H100_SXM", "recipe": "fp8"}
    run |= {"attention": hw.Plan(pp=2), "ffn": hw.Plan(pp=2)}
    prefill, decode = hw.prefill_step(**run, batch=2, context=4096).seconds, hw.decode_step(**run, batch=64, context=4160).seconds
    token = hw.time_per_output_token(**run, concurrency=64, input_tokens=4096, output_tokens=128)
    assert token == pytest.approx(decode + 63 / 128 * prefill / 2)  # `prefill`: one of the two prompts passes both stages


# Calibration --------------------------------------------------------------------------------------------------------------

CALIBRATED = {(c.operation, c.device, c.precision, c.framework): c for c in calibration_cases.cases()}
ACCURACY = [line.split(",") for line in DATA.joinpath("accuracy.csv").read_text().splitlines()[1:]]


@pytest.mark.parametrize("key", CALIBRATED, ids=" ".join)
def test_shipped_constants_give_the_shipped_error_and_stay_in_bounds(key):
    case, c, rows = CALIBRATED[key], calibration.constants(*key), [row for row in ACCURACY if row[:4] == list(key)]
    assert c.measured and set(c) == set(case.bounds) and len(c) <= 8 and [row[5] for row in rows] == list(case.subsets)
    assert all(low * 0.999 <= c[name] <= high * 1.001 for name, (_, low, high) in case.bounds.items())
    assert all(c[share] <= 1 for share in ("peak", "bandwidth", "quantize", "rate") if share in c)
    for (*_, count, mean, median, _), subset in zip(rows, case.subsets.values(), strict=True):
        held = case.held & subset
        error = 100 * np.abs(case.predict(c, held) / case.seconds[held] - 1)
        assert 0 < held.sum() == int(count) < subset.sum()
        assert (error.mean(), np.median(error)) == pytest.approx((float(mean), float(median)), abs=0.02)


LIMITS = {
    "gemm GB300 bf16 sglang large": 6, "gemm A100_SXM bf16 sglang large": 6, "gemm H100_SXM bf16 sglang large": 7,
    "gemm GB300 bf16 sglang all": 9, "gemm A100_SXM bf16 sglang all": 9, "gemm H100_SXM bf16 sglang all": 9,
    "gemm GB300 fp8_block sglang large": 8, "gemm GB300 fp8_block sglang all": 11, "gemm GB300 nvfp4 sglang large": 9,
    "gemm GB300 nvfp4 sglang all": 12, "gemm B200 nvfp4 sglang large": 11, "dispatch GB200  trtllm all": 7,
    "combine GB200  trtllm all": 7, "attention_decode GB300 bf16 sglang all": 15, "attention_decode GB300 fp8 sglang all": 15,
    "attention_decode H100_SXM bf16 sglang all": 15, "attention_decode H100_SXM fp8 sglang all": 15,
    **{f"moe {x} fp8_block trtllm {s}": 6 for x in ("GB300", "GB200", "B200", "H200", "H100_SXM") for s in ("tp 1", "all")},
}  # fmt: skip


def test_held_out_errors_are_small():
    mean = {" ".join((*row[:4], row[5])): float(row[7]) for row in ACCURACY}
    assert {name: mean[name] for name, limit in LIMITS.items() if mean[name] > limit} == {}


def test_pairs_of_n_and_k_are_held_out_whole():
    case = CALIBRATED["gemm", "GB300", "bf16", "sglang"]
    pairs = [set(zip(case.shape["n"][rows], case.shape["k"][rows], strict=True)) for rows in (case.held, ~case.held)]
    assert pairs[0] and not pairs[0] & pairs[1] and len(pairs[0]) == round(len(pairs[0] | pairs[1]) / 3)


@pytest.mark.parametrize("key", [("moe", "H100_SXM", "fp8_block", "trtllm"), ("dispatch", "GB200", "", "trtllm")])
def test_refitting_gives_the_shipped_constants(key):
    assert fitted(CALIBRATED[key]) == pytest.approx(dict(calibration.constants(*key)), rel=0.01)


def test_fit_recovers_constants_keeps_to_bounds_and_with_a_scale_resists_outliers():
    rng, true, free = np.random.default_rng(0), {"a": 0.5, "b": 2, "c": 3}, dict.fromkeys("abc", (1, 0.01, 10))
    x, y = 10 ** rng.uniform(-2, 2, (2, 600))
    seconds = (0.5 + np.hypot(2 * x, 3 * y)) * np.exp(rng.normal(0, 0.02, 600))
    model = lambda c: c["a"] + np.hypot(c["b"] * x, c["c"] * y)  # noqa: E731
    assert calibration.fit(model, seconds, free) == pytest.approx(true, rel=0.02)
    limited = calibration.fit(model, seconds, free | {"b": (0.5, 0.1, 1), "c": (5, 4, 9)})
    assert (limited["b"], limited["c"]) == pytest.approx((1, 4))
    seconds = np.where(rng.random(600) < 0.1, 3, 1) * seconds
    assert calibration.fit(model, seconds, free, scale=0.03) == pytest.approx(true, rel=0.02)
    assert calibration.fit(model, seconds, free)["b"] > 1.08 * 2


# Collectives, kernels, tables, speed --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_ring_of_chunks_sends_the_bytes_of_an_all_reduce(ranks):
    data = np.random.default_rng(0).integers(0, 100, (ranks, ranks, 5))  # rank, chunk, element of 2 bytes
    held, sent = data.copy(), np.zeros(ranks)
    for turn in range(2 * (ranks - 1)):  # reduce-scatter, then all-gather
        for r, packet in [(r, held[r, (r - turn) % ranks].copy()) for r in range(ranks)]:
            there, sent[r] = ((r + 1) % ranks, (r - turn) % ranks), sent[r] + 2 * packet.size
            held[there] = packet + (held[there] if turn < ranks - 1 else 0)
    assert (held == data.sum(0)).all() and (sent == hw.all_reduce_bytes(2.0 * ranks * 5, ranks)).all()


@pytest.mark.parametrize(("top_k", "experts", "ep"), [(8, 256, 8), (8, 256, 64), (4, 128, 4), (6, 128, 128)])
def test_remote_copies_equal_a_draw_of_experts(top_k, experts, ep):
    rng = np.random.default_rng(0)
    chosen, home = rng.random((20000, experts)).argpartition(top_k)[:, :top_k] // (experts // ep), rng.integers(0, ep, 20000)
    copies = np.mean([len(set(ranks) - {own}) for ranks, own in zip(chosen.tolist(), home.tolist(), strict=True)])
    assert copies == pytest.approx(hw.remote_copies(top_k, experts, ep), rel=0.01)


def test_cold_share_goes_from_nothing_to_all():
    share = kernels.cold_share(np.array([0, 1e-6, 0.36, 0.72, 1.44, 1e3, inf]) * hw.H100_SXM.l2, hw.H100_SXM)
    assert share[0] == 0 and share[2] < 0.005 and share[3] == 0.5 and share[4] > 0.995 and (share[-2:] == 1).all()
    assert (np.diff(share) >= 0).all()


@pytest.mark.parametrize("card", ["A100_SXM", "H100_SXM", "H100_PCIE", "GB200", "GB300", "MI300X", "RTX_4090"])
def test_every_kernel_takes_a_positive_time(card):
    rng, device = np.random.default_rng(0), hw.device(card)
    (a, b, c, d), (h, ranks) = np.round(10 ** rng.uniform(0, 6, (4, 1000))), rng.integers(2, 73, (2, 1000))
    work = {"flops": a * b * h, "cache_elements": 256 * a * b, "batch": a, "context": b, "heads": h, "kv_heads": 1, "size": 256}
    experts = hw.Experts(tokens=a, pairs=8 * a, touched=np.minimum(a, h), local=h, hidden=b, width=c)
    times = {"gemm": hw.gemm_time(a, b, c, card, "bf16")}
    for name in ("moe", "moe_fused"):
        given = calibration.constants(name, card, "fp8_block")
        times[name] = kernels.expert_seconds(experts, 1, 1, device, device.peak_flops("bf16"), given)
    for name in ("attention_decode", "mla_decode", "attention_prefill", "mla_prefill"):
        run = hw.Work(**work, latent=1088 * (name[0] == "m"), queries=1 if name.endswith("decode") else np.minimum(b, d))
        model = kernels.decode_attention_seconds if name.endswith("decode") else kernels.prefill_attention_seconds
        times[name] = model(run, 2, device, device.peak_flops("bf16"), calibration.constants(name, card, "bf16"))
    for name, model in (("all-reduce", "all_reduce"), ("ring", "ring"), ("dispatch", "all_to_all"), ("combine", "all_to_all")):
        times[name] = getattr(kernels, f"{model}_seconds")(a, ranks, 1e11, calibration.constants(name, card, ""))
    assert {name for name, t in times.items() if t.shape != (1000,) or not ((t > 0) & np.isfinite(t)).all()} == set()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: step(attention={"tp": 8}, ffn={"tp": 4}), "attention and ffn must use the same GPUs, got 8 and 4"),
        (lambda: step(attention={"tp": 2, "pp": 2}, ffn={"tp": 4}), "attention and ffn must have the same stages"),
        (lambda: step(attention={"tp": 128}), "attention tp must divide query heads = 64, got 128"),
        (lambda: step("deepseek-r1", attention={"dp": 24}, ffn={"ep": 24}), "ffn ep must divide experts = 256, got 24"),
        (lambda: step(card="RTX_5090", attention={"tp": 2}), "device must have a link .* got RTX_5090 without one"),
        (lambda: step(card="A100_SXM"), "(recipe|precision) must be one A100_SXM has a dense peak for .* got 'fp8'"),
        (lambda: step(batch=0), "batch must be >= 1, got 0"),
        (lambda: step(context=1.5), "context must be a whole number, got 1.5"),
        (lambda: step(framework="tgi"), "framework must be one of sglang, trtllm, vllm, got 'tgi'"),
        (lambda: hw.measurements("gemm"), "table must be one of .*attention_decode.* got 'gemm'"),
        (lambda: hw.measurements("moe"), "device must be one of GB300, .* for moe, got None"),
        (lambda: hw.measurements("mla_decode", "A100_SXM"), "device must be one of GB300, .* for mla_decode, got 'A100_SXM'"),
        (lambda: hw.measurements("moe", "GB300", top_k=8), "column must be one of .*tokens.* got 'top_k'"),
        (lambda: calibration.constants("softmax", "GB300", "bf16"), "operation must be one of .* got 'softmax'"),
        (lambda: calibration.constants("moe", "GB300", "bf16", "nccl"), "framework must be one of trtllm, got 'nccl'"),
    ],
)
def test_wrong_arguments_are_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.parametrize("file", {row["file"]: None for row in hw.tables()})
def test_tables_are_the_files_they_were(file):
    rows = [row for row in hw.tables() if row["file"] == file]
    assert {row["sha256"] for row in rows} == {hashlib.sha256(DATA.joinpath(file).read_bytes()).hexdigest()}
    own = file.endswith(".npz")  # one file for each device
    table = file.removesuffix(f"_{rows[0]['device']}.npz") if own else file.removesuffix(".csv")
    columns = hw.measurements(table, rows[0]["device"] if own else None)
    assert {len(values) for values in columns.values()} == {sum(int(row["rows"]) for row in rows)}
    assert 0 < columns["tpot" if table == "serving" else "seconds"].min() < 0.1


def test_a_million_gemms_take_under_two_seconds():
    m, n, k = np.random.default_rng(0).integers(1, 20000, (3, 10**6))
    assert min(timeit.repeat(lambda: hw.gemm_time(m, n, k, "GB300", "bf16"), number=1, repeat=3)) < 2


@pytest.mark.parametrize(("name", "plans"), [("llama-3.1-70b", [{"tp": 8}]), ("deepseek-r1", [{"dp": 8}, {"ep": 8}])])
def test_a_thousand_steps_take_under_50_milliseconds(name, plans):
    batch, context = np.arange(1, 26)[:, None] * 16, np.arange(1, 41)[None] * 1000
    for shape in ((batch, context), np.broadcast_arrays(batch, context)):
        assert min(timeit.repeat(lambda s=shape: step(name, "H200", "fp8", *s, *plans), number=1, repeat=3)) < 0.05
