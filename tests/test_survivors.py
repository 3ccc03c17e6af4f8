"""Right values where mutants of the library once went unnoticed: borders, ties, limits."""

import dataclasses
import itertools
import json
import math
from importlib import resources

import numpy as np
import pytest
from conftest import fastest

import hwdesign as hw
from hwdesign import cli, safe
from hwdesign.advice import report_text, shapes
from hwdesign.advice.judge import judge
from hwdesign.formulas import (
    attention,
    cache_parallel,
    chunks,
    collectives,
    pipeline,
    quantization,
    routing,
    tiling,
)
from hwdesign.models import blocks, config
from hwdesign.models.layers import transformer_gemms
from hwdesign.models.model import same_parameters
from hwdesign.models.steps import Experts, Work, step
from hwdesign.timing import calibration, kernels, layouts, served, silicon
from hwdesign.timing.formats import engine_formats
from hwdesign.timing.gemm_kernel import gemm_kernel_seconds, gemm_kernel_terms
from hwdesign.timing.pipeline import block_times

NAN, INF = np.nan, np.inf

# Borders: the last value that is taken, and what it gives; the first that is refused. ----------


@pytest.mark.parametrize(("call", "value"), [
    (lambda: collectives.transfer_time(0, 0, 1e9), 0),
    (lambda: routing.zipf_shares(4, 0), [0.25] * 4),
    (lambda: routing.imbalance([4, 0]), 2),
    (lambda: routing.balanced_placement([0, 0], 2), [[0], [1]]),
    (lambda: routing.touched_slots([0, 1], [[0, 1]]), [1]),
    (lambda: attention.attention_flops(3, 3, 1, 1, causal=True), 4 * 6),  # 1 + 2 + 3 pairs
    (lambda: attention.cache_read_bytes(5, 0, 2), 0),
    (lambda: attention.cache_read_bytes(5, 2, 0), 0),
    (lambda: chunks.chunk_times([2, 2], 1, 0), [2, 2]),
    (lambda: chunks.equal_time_chunks(3, 3, 1, 0), [1, 1, 1]),
    (lambda: chunks.equal_time_chunks(64, 4, 1, 0, multiple=16), [16] * 4),
    (lambda: chunks.smoothed_chunks(128, 64, 1, 1, 0), [64, 64]),  # no smoothing: all equal
    (lambda: chunks.smoothed_chunks(32, 64, 1, 1), [32]),  # a prompt shorter than the first chunk
    (lambda: pipeline.schedule([[1, 1]], send=0)[1], [[1, 2]]),
    (lambda: pipeline.split_layers([1, 1], 2), [1, 1]),
    (lambda: pipeline.split_layers([0, 0, 0], 2), [2, 1]),
    (lambda: pipeline.idle_share([[1, 0]]), 0.5),
    (lambda: cache_parallel.merge_partials([[-INF]], [[0]], [[[3.0]]])[2], [[0]]),
    (lambda: cache_parallel.break_even_tokens(1, 1, 8, 2), 16),
    (lambda: cache_parallel.merge_bytes(1, 1, 4, 1), 0),
    (lambda: tiling.pad(0, 8), 0),
    (lambda: tiling.cluster_efficiency(1, tile=1, cluster=2, idle=0), 1),
    (lambda: tiling.cluster_efficiency(1, tile=1, cluster=2, idle=1), 0.5),
])  # fmt: skip
def test_the_last_value_that_is_taken(call, value):
    assert np.allclose(call(), value, rtol=1e-12)


@pytest.mark.parametrize(("call", "says"), [
    (lambda: collectives.transfer_time([1, -1], 0, 1e9), "nbytes"),
    (lambda: collectives.transfer_time(1, [0, -1e-9], 1e9), "latency"),
    (lambda: routing.zipf_shares(4, -0.1), "exponent"),
    (lambda: routing.zipf_shares(4, [1, 1]), "exponent"),
    (lambda: routing.routed_tokens(1, 4, 3), "top_k must be <= num_experts = 3, got 4"),
    (lambda: routing.imbalance([[1, 1], [0, 0]]), "loads"),
    (lambda: routing.imbalance([2, -1]), "loads"),
    (lambda: routing.even_placement(7, 2), "devices must divide"),
    (lambda: routing.balanced_placement([1, -1], 2), "loads"),
    (lambda: routing.balanced_placement([1, 1], 2, slots=1), "slots"),
    (lambda: routing.balanced_placement([1, 1], 2, slots=3), "slots"),
    (lambda: routing.touched_slots([1, -1], [[0, 1]]), "tokens"),
    (lambda: routing.device_loads([1, 1], [[0, 2]]), "placement"),
    (lambda: routing.device_loads([1, 1], [[0, 0]]), "placement"),
    (lambda: routing.device_loads([1], [0]), "placement"),
    (lambda: attention.attention_flops([3, 4], [3, 3], 1, 1), "queries must be <= context"),
    (lambda: attention.attention_flops(1, 3, 1, 1, window=2), "causal"),
    (lambda: attention.cache_read_bytes(5, [1, -1], 2), "cache_elements"),
    (lambda: attention.cache_read_bytes(5, 1, [1, -1]), "element_bytes"),
    (lambda: chunks.chunk_times([2, 2], 1, -1e-9), "quadratic"),
    (lambda: chunks.chunk_times(2, 1, 1), "sizes must be a list"),
    (lambda: chunks.equal_time_chunks(3, 4, 1, 0), "chunks must be <= tokens = 3, got 4"),
    (lambda: chunks.equal_time_chunks(64, 4, 1, 0, multiple=64), "chunks must leave every chunk"),
    (lambda: chunks.smoothed_chunks(128, 64, 1, 1, -0.01), "smooth"),
    (lambda: chunks.smoothed_chunks(128, 64, 1, 1, 1.01), "smooth"),
    (lambda: chunks.smoothed_chunks(128, 63, 1, 1), "multiple must be <= first = 63"),
    (lambda: chunks.fit_chunk_costs([10, 10], [1, 1], [1], lambda n, a, b: [n]), "two different"),
    (lambda: pipeline.schedule([[1, 1]], send=-1e-9), "send"),
    (lambda: pipeline.idle_share([[0, 0]]), "times must not all be 0"),
    (lambda: pipeline.split_layers([1, 1], 3), "costs must list at least stages = 3"),
    (lambda: pipeline.split_layers([1, -1], 1), "costs must be >= 0"),
    (lambda: pipeline.split_layers([1], 1, last=-1), "last must be >= 0"),
    (lambda: cache_parallel.merge_partials([[0]], [[-1]], [[[1]]]), "negative"),
    (lambda: cache_parallel.merge_partials([[NAN]], [[1]], [[[1]]]), "tops"),
    (lambda: cache_parallel.partial_attention([[0, NAN]], [[1], [1]]), "scores"),
    (lambda: cache_parallel.partial_attention([[0, INF]], [[1], [1]]), "scores"),
    (lambda: cache_parallel.partial_attention([[0, 1]], [[1], [1], [1]]), "scores and values"),
    (lambda: cache_parallel.break_even_tokens(1, 1, 8, [2, 1]), "kvp must be >= 2, got 1"),
    (lambda: tiling.pad([1, -1], 8), "size"),
    (lambda: tiling.pad(1.5, 8), "size"),
    (lambda: tiling.pad(INF, 8), "size"),
    (lambda: tiling.cluster_efficiency(1, tile=2, cluster=3, idle=0), "cluster must be a multiple"),
    (lambda: tiling.cluster_efficiency(1, tile=1, cluster=2, idle=1.1), "idle"),
    (lambda: tiling.cluster_efficiency(1, tile=1, cluster=2, idle=-0.1), "idle"),
    (lambda: prefill(cached=100), "cached must be below context, got 100 and 100"),
])  # fmt: skip
def test_the_first_value_that_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def prefill(**more):
    """A prefill step of a small model."""
    return hw.prefill_step(config.load("gpt2"), "A100_SXM", "bf16", batch=1, context=100, **more)


def test_a_prompt_may_be_cached_up_to_its_last_token():
    given = {"batch": 1, "context": 100}
    decode = hw.decode_step(config.load("gpt2"), "A100_SXM", "bf16", **given)
    assert prefill(cached=99).terms == decode.terms


# Formulas. --------------------------------------------------------------------------------------


def test_a_number_saturates_beyond_the_largest_of_its_block_and_not_at_it():
    encoded = quantization.encode([6.0] + [0.0] * 15, "nvfp4")
    reach = 6 * encoded.scales[0] * encoded.tensor_scale  # 6 is the largest of E2M1
    x = np.zeros((3, 16))
    x[:, 0] = np.array([1, 1 + 2**-21, 1 + 2**-20]) * reach
    found = [quantization.saturated(row, encoded)[0] for row in x]
    assert found == [False, False, True]


def test_costs_that_differ_by_rounding_alone_are_cut_as_equal_ones():
    costs = np.full(30, 0.1)
    costs[::3] += 1e-17
    assert pipeline.split_layers(costs, 4) == (8, 8, 7, 7)
    assert pipeline.split_layers([0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2], 2) == (2, 2)


def test_pairs_in_a_window_are_those_of_a_mask():
    for queries, context, window in ((1, 9, 4), (5, 9, 4), (9, 9, 4), (3, 9, 100), (4, 5, 1)):
        rows, columns = np.mgrid[context - queries : context, :context]
        mask = (columns <= rows) & (columns > rows - window)
        found = attention.attention_flops(queries, context, 2, 3, 5, causal=True, window=window)
        assert found == 2 * mask.sum() * 2 * (3 + 5)


# Steps. -----------------------------------------------------------------------------------------


def test_a_stage_hands_on_a_hidden_vector_a_token_and_the_last_one_a_token():
    model, plan = config.load("llama-3.1-8b"), hw.Plan(tp=2, pp=4)
    given = {"batch": 64, "context": 1000, "ideal": True}
    staged = hw.decode_step(model, "H100_SXM", "bf16", attention=plan, ffn=plan, **given)
    plan = hw.Plan(tp=2)
    given["batch"] = 16
    whole = hw.decode_step(model, "H100_SXM", "bf16", attention=plan, ffn=plan, **given)
    sent = 3 * 16 * 4096 / 2 * 2 + 16 * 2  # three hand-overs of half a vector each in BF16
    more = staged.terms["communication"] - whole.terms["communication"]
    assert more == pytest.approx(sent / 450e9)
    for term in ("projections", "attention", "ffn", "head"):
        assert staged.terms[term] == pytest.approx(whole.terms[term])


def test_the_fullest_gpu_of_uneven_groups_has_one_sequence_more():
    plans = {"attention": hw.Plan(dp=4), "ffn": hw.Plan(tp=4)}
    found = step(config.load("llama-3.1-8b"), batch=9, context=100, **plans)
    rows = {gemm.name: gemm.m for gemm in found.gemms}
    assert rows["qkv"] == rows["head"] == 3 and rows["up"] == 9


def test_tokens_that_arrive_at_the_experts_of_a_gpu():
    model, ffn = config.load("deepseek-r1"), hw.Plan(ep=8)
    spread = step(model, batch=64, context=100, attention=hw.Plan(dp=8), ffn=ffn).experts[0]
    shared = step(model, batch=64, context=100, attention=hw.Plan(tp=8), ffn=ffn).experts[0]
    gathered = dataclasses.replace(ffn, gather=True)
    every = step(model, batch=64, context=100, attention=hw.Plan(dp=8), ffn=gathered).experts[0]
    # a token comes unless all its 8 experts are among the 224 of other GPUs
    arrive = 64 * (1 - math.comb(224, 8) / math.comb(256, 8))
    assert spread.tokens == pytest.approx(arrive)
    assert shared.tokens == every.tokens == 64  # they are here already
    for found in (spread, shared, every):
        assert (found.local, found.width, found.count) == (32, 2048, 58)
        assert found.pairs == pytest.approx(64)  # 64 x 8 over 8 GPUs
        assert found.touched == pytest.approx(32 * (1 - (1 - 8 / 256) ** 64))


# The checker. -----------------------------------------------------------------------------------


def test_the_fastest_plans_fit_where_any_do():
    """Two stages of two GPUs hold 141 GB in BF16; one GPU would be faster, but does not."""
    llama, one, two = config.load("llama-3.1-70b"), hw.Plan(), hw.Plan(pp=2)
    given = {"model": llama, "device": "H100_SXM", "recipe": "bf16", "batch": 1, "context": 100}
    unable = hw.Case(**given, attention=hw.Plan(tp=3), ffn=hw.Plan(tp=3))  # 64 heads
    staged = hw.Case(**given, attention=two, ffn=two)
    alone = hw.Case(**given)
    assert staged.breakdown.feasible and not alone.breakdown.feasible
    assert alone.seconds < staged.seconds and unable.seconds is None
    both = [(two, two), (one, one)]
    assert fastest(unable, both).attention == two  # one of them fits
    assert fastest(unable, both[1:]).attention == one  # none does
    assert fastest(staged, both).attention == two and fastest(staged, both[1:]) is None
    assert fastest(alone, both).attention == one  # it does not fit itself


def test_what_a_wider_model_of_fewer_layers_adds():
    llama = config.load("llama-3.1-8b")
    deep = dataclasses.replace(llama, name="deep", blocks=llama.blocks * 3)
    case = hw.Case(model=deep, device="GB300", batch=4, context=1024)
    found = hw.checklist(case, hw.Limits(warn=0.01)).verdicts[2].findings[0]
    assert (found.dimension, found.value, found.status) == ("layers", "96", "warn")
    # 96 (42.7 / 87)^(2/3) = 59 layers; 4096 sqrt(96 / 59) = 5225, up to a multiple of 128
    assert found.fix.text == "59 layers of hidden size 5248"
    assert found.fix.width == 5248 / 4096 - 1
    new = found.fix.case
    rest = [c.seconds - c.breakdown.terms["attention"] for c in (case, new)]
    assert found.cost == pytest.approx((rest[0] - rest[1]) / case.seconds, rel=1e-12)
    assert abs(found.fix.parameters) < 0.02 and found.fix.step < -found.cost  # a smaller cache, too


@pytest.mark.parametrize(("options", "lines"), [
    (["gpt2", "--device", "A100_SXM"], [
        "gpt2 on A100_SXM: WARN",
        "  size     124 M parameters, 12 layers, hidden size 768",
        "  device   A100_SXM",
        "  recipe   bf16 (default, the config names no quantization)",
        "  plans    one GPU (default)",
        "  load     batch 64 (default), context 8192 tokens (default)",
        "  ok    1  Near-square matrices, no tiny N or K - smallest side on a GPU: qkv, N = 2304,"
        " K = 768",
        "  n/a   6  Regular layer patterns for pipelines - no pipeline: pp = 1",
        "WARN: 1 warn, 3 ok, 3 not applicable; judged 4 of 4",
    ]),
    (["llama-3.1-8b", "--tp", "2", "--device", "H100_SXM", "--context", "100"], [
        "llama-3.1-8b on 2 x H100_SXM: WARN",
        "  device   H100_SXM",
        "  plans    --attention tp=2 --ffn tp=2: 2 GPUs",
        "  load     batch 64 (default), context 100 tokens",
        "  limits   warning from 5 %, failure from 20 % of the step (default)",
        "  ok    7  Attention and feed-forward part decoupled - 1 copy of each token's cache",
        "WARN: 1 warn, 4 ok, 2 not applicable; judged 5 of 5",
    ]),
    (["deepseek-r1", "--tp", "8", "--device", "H200"], [
        "  load           batch 64, context 8192",
        "  WARN  7  attention plan: tp=8",
        "  recipe   fp8_block (the checkpoint's)",
        "  cache    bf16 (default of vLLM)",
    ]),
])  # fmt: skip
def test_lines_of_a_report(options, lines, capsys):
    cli.main(["check", *options])
    said = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line not in said] == []


# Kernels: all constants but one are off, so that the one can be seen alone. -------------------

H100 = hw.device("H100_SXM")  # 132 SMs, 3.35 TB/s, 50 MB of L2
OFF = {"fixed": 0, "bandwidth": INF, "l2": 1, "wave": 0, "row": 0, "chain": 0, "rate": INF}
OFF |= {"tile": 0, "pairs": INF, "tokens": INF, "local": 0, "touched": 0}


def work(**given):
    """Attention of one head, of no work but what is given."""
    size = {"flops": 0.0, "cache_elements": 0.0, "batch": 1, "context": 128, "size": 256}
    return Work(**size | {"heads": 1, "kv_heads": 1} | given)


def decode(given, **constants):
    """Time of a decode kernel beyond that of its queries and outputs, which are small."""
    found = kernels.decode_attention_seconds(work(**given), 2.0, H100, INF, OFF | constants)
    return round(float(found), 6)


def test_one_constant_of_decode_attention_at_a_time():
    assert decode({}, fixed=3) == 3
    rounds = [
        decode({"batch": n, "kv_heads": 2, "heads": 8}, wave=1) for n in (1, 66, 67, 132, 133)
    ]
    assert rounds == [0, 0, 1, 1, 2]  # two heads a sequence on 132 SMs: rounds after the first
    rows = [decode({"batch": n, "kv_heads": 2, "heads": 8}, row=1) for n in (1, 66, 67)]
    assert rows == [4, 4, 8]  # a group of four query heads in each round
    assert [decode({"context": n}, merge=1) for n in (128, 256, 1024)] == [0, 1, 3]
    read = {"batch": 133, "cache_elements": 3 * 3.35e12 / 2}
    assert decode(read, bandwidth=1, wave=4) == round((3**3 + 4**3) ** (1 / 3), 6)
    flops = kernels.decode_attention_seconds(work(flops=6.0), 2.0, H100, 2.0, OFF)
    assert float(flops) == pytest.approx(3)


def test_a_cache_is_read_from_memory_or_from_l2():
    big, small = ({"cache_elements": n} for n in (3.35e12, 1e6))
    assert decode(big, bandwidth=0.5) == 4  # twice 3.35e12 byte at half of 3.35 TB/s
    hot = []
    for faster in (1, 4):
        constants = OFF | {"bandwidth": 1, "l2": faster}
        hot.append(kernels.decode_attention_seconds(work(**small), 2.0, H100, INF, constants))
    ends = 2 * 256 / H100.memory_bandwidth  # queries and outputs of a head
    assert [t - ends for t in hot] == pytest.approx([2e6 / 3.35e12, 2e6 / 3.35e12 / 4], rel=1e-6)
    assert kernels.cold_share(0.72 * H100.l2, H100) == pytest.approx(0.5)
    assert kernels.cold_share(1.44 * H100.l2, H100) == pytest.approx(256 / 257)


def prefill_kernel(device, given, peak=INF, **constants):
    """Time of a prefill kernel without its memory."""
    found = kernels.prefill_attention_seconds(work(**given), 2.0, device, peak, OFF | constants)
    return round(float(found), 6)


def test_tiles_of_prefill_attention():
    given = {"heads": 8, "kv_heads": 2, "queries": 64.0, "batch": 33}
    assert prefill_kernel(H100, given, fixed=3) == 3
    # four query heads share a tile: 4 x 64 rows are two tiles for each of two heads, times 33
    assert prefill_kernel(H100, given, tile=1) == 1
    b200 = hw.device("B200")  # a tile a head: eight tiles a sequence
    assert prefill_kernel(b200, given, tile=1) == round(33 * 8 / b200.sms, 6)
    # 132 SMs at 132 x 2 x 128 x 128 x 256 FLOP/s: one tile against 128 keys takes a second
    peak = 132 * 2.0 * 128 * 128 * 256
    one = {"batch": 132, "queries": 128.0, "context": 128}
    assert prefill_kernel(H100, one, peak, rate=1) == 1
    assert prefill_kernel(H100, one, peak, rate=0.5) == 2
    two = {"batch": 132, "queries": 256.0, "context": 256}  # tiles of one and of two blocks
    assert prefill_kernel(H100, two, peak, rate=1) == 2 * 1.5 + 0
    assert prefill_kernel(H100, two | {"context": 512}, peak, rate=1) == 2 * 3.5  # three and four
    window = {"batch": 132, "queries": 128.0, "context": 1280, "window": 128}
    assert prefill_kernel(H100, window, peak, rate=1) == 2  # its own block and the one before
    half = {"batch": 66, "queries": 128.0, "context": 1280}  # 66 tiles: the last wave is half full
    assert prefill_kernel(H100, half, peak, rate=1) == 0.5 * 10 + 0.5 * 9


def test_prefill_attention_reads_queries_and_cache_and_writes_outputs():
    given = {"batch": 2, "queries": 10.0, "heads": 4, "context": 10, "cache_elements": 1000.0}
    found = kernels.prefill_attention_seconds(
        work(**given), 1.0, H100, INF, OFF | {"bandwidth": 0.5}
    )
    nbytes = 2 * 10 * 4 * 256 * 2 + 1000  # BF16; the cache in FP8
    assert float(found) == pytest.approx(nbytes / 3.35e12 / 0.5)


def experts(given, weight=1.0, activation=1.0, peak=INF, **constants):
    """Time of a layer of experts of hidden size 100 and width 10."""
    size = {"tokens": 0.0, "pairs": 0.0, "touched": 0.0, "local": 0, "hidden": 100, "width": 10}
    e = Experts(**size | given)
    found = kernels.expert_seconds(e, weight, activation, H100, peak, OFF | constants)
    return float(found) * 3.35e12


def test_one_constant_of_experts_at_a_time():
    assert experts({"touched": 7.0}, weight=0.5, bandwidth=0.5) == pytest.approx(7 * 3 * 1000)
    # a pair: gathered in BF16 and written in FP8; gate and up written in BF16; their product read
    # in BF16 and written in FP8; the output written and read in BF16
    pair = 100 * (2 + 1) + 2 * 10 * 2 + 10 * (2 + 1) + 100 * (2 + 2)
    assert experts({"pairs": 5.0}, pairs=1) == pytest.approx(5 * pair)
    assert experts({"tokens": 5.0}, tokens=0.5) == pytest.approx(5 * 100 * (2 + 2 + 1) / 0.5)
    assert experts({"local": 5}, local=1 / 3.35e12) == pytest.approx(5)
    assert experts({"touched": 5.0}, touched=1 / 3.35e12) == pytest.approx(5)
    assert experts({}, fixed=1 / 3.35e12) == pytest.approx(1)
    math = experts({"pairs": 5.0}, peak=3.35e12, rate=0.5)
    assert math == pytest.approx(2 * 5 * 3 * 1000 / 0.5)
    both = experts({"pairs": 2.0, "touched": 3.0}, peak=3.35e12, rate=1, bandwidth=1)
    assert both == pytest.approx(np.hypot(2 * 2 * 3000, 3 * 3000))


def test_one_constant_of_exchanges_at_a_time():
    off = {"latency": 0, "doubling": 0, "second": INF, "bandwidth": 1, "step": 0}
    reduce, ring = kernels.all_reduce_seconds, kernels.ring_seconds
    every = kernels.all_to_all_seconds
    assert reduce(8.0, 8, 2.0, off) == 8 * 7 / 2  # one shot: all to seven others
    assert reduce(8.0, 8, 2.0, off | {"second": 0}) == 2 * 8 * 7 / 8 / 2  # scatter, gather
    assert reduce(1e-30, 8, 2.0, off | {"latency": 5, "doubling": 1}) == 5 + 3
    assert reduce(8.0, 8, 2.0, off | {"second": 10}) == 17  # 10 and 7 beat 28
    assert ring(8.0, 8, 2.0, off | {"latency": 5, "step": 1}) == 5 + 7 + 8 * 7 / 8 / 2
    assert ring(8.0, 8, 2.0, off | {"bandwidth": 0.5}) == 7
    assert every(8.0, 8, 2.0, off | {"latency": 5, "doubling": 1, "bandwidth": 0.5}) == 5 + 3 + 8


def test_small_kernels_take_a_fixed_time_each_and_that_of_their_bytes():
    llama, bandwidth = config.load("llama-3.1-8b"), 3.35e12
    five, ten = (hw.decode_step(llama, "H100_SXM", "bf16", batch=n, context=100) for n in (5, 10))
    a_sequence = 32 * (2 * 4096 + 48 * 128 + 14336) + 2 * 4096 + 128256  # elements, read, written
    spent = [b.terms["small kernels"] for b in (five, ten)]
    assert spent[1] - spent[0] == pytest.approx(5 * 2 * 2 * a_sequence / bandwidth)
    fixed = spent[0] - 5 * 2 * 2 * a_sequence / bandwidth
    assert 1e-6 < fixed / 131 < 5e-6  # microseconds for each of 131 kernels


# Fits and tables. -------------------------------------------------------------------------------


def scaled(c):
    """A model of two times with one constant."""
    return c["a"] * np.array([1.0, 2.0])


def test_a_fit_takes_as_many_times_as_constants_all_of_them_finite():
    bounds = {"a": (1, 0.1, 10)}
    assert calibration.fit(scaled, [3, 6], bounds)["a"] == pytest.approx(3)
    assert calibration.fit(lambda c: c["a"], [3], bounds)["a"] == pytest.approx(3)
    assert calibration.fit(scaled, [300, 600], bounds)["a"] == pytest.approx(10)  # its bound
    for seconds, given in (([3, INF], {}), ([INF, INF], {}), ([], {}), ([3, 6], {"steps": 0})):
        with pytest.raises(ValueError, match="seconds must be finite|zero-size"):
            calibration.fit(scaled, seconds, bounds, **given)


def test_saturation_point_at_the_first_points():
    assert silicon.saturation_point([7000, 8000], [5, 5]) == 7000
    assert silicon.saturation_point([100, 10000], [1, 10], share=0.55) == pytest.approx(1000)
    assert silicon.saturation_point([100, 10000], [1, 10], share=1) == pytest.approx(10000)
    assert silicon.saturation_point([6144, 16385], [1, 9]) == 6144  # what lies beyond is not seen
    assert silicon.saturation_point([6143, 16384], [9, 1]) == 6143  # 0.8 of the second
    assert silicon.sustained([6143, 6144, 16384, 16385], [9, 1, 3, 9]) == 2  # both ends count


# Configs: what a missing key means, as `transformers` has it. -----------------------------------


def without_keys(name, *keys, **more):
    """Model of a shipped config, some keys left out and some set."""
    path = resources.files("hwdesign.models").joinpath(f"configs/{name}.json")
    values = json.loads(path.read_text())
    values = values.get("text_config", values) | more
    return config.load({key: value for key, value in values.items() if key not in keys})


def windows(model):
    """Window of each layer."""
    return [block.mixer.window for block in model.blocks]


def test_windows_of_configs_that_leave_them_out():
    gemma = without_keys("gemma-3-27b", "sliding_window", "sliding_window_pattern", "layer_types")
    assert windows(gemma) == [None if (i + 1) % 6 == 0 else 4096 for i in range(62)]
    oss = without_keys("gpt-oss-20b", "sliding_window", "layer_types")
    assert windows(oss) == [128, None] * 12
    mistral = without_keys("llama-3.1-8b", "rope_scaling", model_type="mistral")
    assert windows(mistral) == [4096] * 32
    mistral = without_keys("llama-3.1-8b", model_type="mistral", sliding_window=None)
    assert windows(mistral) == [None] * 32
    qwen = without_keys(
        "qwen2.5-72b", "max_window_layers", use_sliding_window=True, sliding_window=1024
    )
    assert windows(qwen) == [None] * 28 + [1024] * 52


TIED = {"gpt2": True, "gemma-3-27b": True, "llama-3.1-8b": False, "gpt-oss-20b": False}


@pytest.mark.parametrize(("name", "tied"), TIED.items())
def test_embeddings_of_configs_that_do_not_say(name, tied):
    assert without_keys(name, "tie_word_embeddings").tied_embeddings is tied


# The GEMM kernel: of its constants, too, one or two at a time. ----------------------------------

IDLE = {"peak": INF, "bandwidth": INF, "feed": INF, "fixed": 0, "overlap": 1e3, "balance": 0}
IDLE |= {"wave": 1e-9, "split": 1e9}
SM = 989e12 / 132  # FLOP/s of an SM in BF16


def gemm(m, n, k, recipe="bf16", **constants):
    """Time of a GEMM on an H100 [s]; what no constant speaks of takes none."""
    c = IDLE | constants
    return float(gemm_kernel_seconds(m, n, k, H100, hw.recipe(recipe), c))


@pytest.mark.parametrize(("m", "n", "tile"), [
    (256 * 132, 128, 256 * 128),
    (128, 256 * 132, 128 * 256),
    (128 * 132, 128, 128 * 128),
    (128 * 132, 64, 128 * 64),
    (64, 128 * 132, 64 * 128),
    (64 * 132, 64, 64 * 64),
    (1, 1, 64 * 64),  # no tile is smaller
])  # fmt: skip
def test_a_wave_of_one_tile_on_each_sm(m, n, tile):
    assert gemm(m, n, 1000, peak=1) == pytest.approx(1000 * 2 * tile / SM + 1e-9, rel=1e-9)
    assert gemm(m, n, 1000, peak=0.5) == pytest.approx(1000 * 2 * tile / SM * 2 + 1e-9, rel=1e-9)


@pytest.mark.parametrize(("balance", "waves"), [(0, 2), (0.5, 1.75), (1, 1.5)])
def test_places_of_the_last_wave_are_filled_by_a_share(balance, waves):
    found = gemm(64 * 198, 64, 10**6, peak=1, balance=balance, wave=0)  # 198 tiles on 132 SMs
    assert found == pytest.approx(waves * 10**6 * 2 * 64 * 64 / SM)


def test_idle_sms_split_the_inner_dimension():
    whole = gemm(64, 64, 1024, wave=0, peak=1)
    assert whole == pytest.approx(1024 * 2 * 64 * 64 / SM)
    four = gemm(64, 64, 1024, split=256, wave=1e-12, peak=1)
    assert four == pytest.approx(whole / 4 + 2e-12)  # a wave, and the sums after it
    sums = gemm(64, 64, 1024, split=256, wave=1e-12, peak=1, feed=1e3) - four
    assert sums == pytest.approx(4 * 64 * 64 * 8 / (1e3 * 3.35e12))  # FP32, written and read
    assert gemm(64 * 132, 64, 1024, split=256, wave=0, peak=1) == pytest.approx(whole)  # none idle


def test_operands_are_fed_to_the_sms():
    fed = gemm(64, 64, 1000, feed=2)  # 64 rows of A and 64 columns of B, two byte each
    assert fed == pytest.approx(1000 * (64 + 64) * 2 * 132 / (2 * 3.35e12) + 1e-9)
    few = gemm(16, 64, 1000, feed=2)  # rows that are not there are not read
    assert few == pytest.approx(1000 * (16 + 64) * 2 * 132 / (2 * 3.35e12) + 1e-9)
    chain = gemm(64, 64, 1000, "fp8", chain=1e-6, wave=0)
    assert chain == pytest.approx(1e-3)


def test_operands_beyond_their_share_of_l2_are_read_again():
    m, n, k = 16384, 8192, 4096
    small = gemm(1024, 1024, 1024, bandwidth=0.5)  # three matrices of two megabytes
    assert small == pytest.approx(3 * 2 * 1024**2 / (0.5 * 3.35e12), rel=1e-3)
    a, b, c, room = 2 * m * k, 2 * n * k, 2 * m * n, H100.l2 / 2
    side = 128 * math.sqrt(132)  # of the block of outputs in flight
    again = (a - room) * (n / side - 1) + (b - room) * (m / side - 1)
    assert gemm(m, n, k, bandwidth=1) == pytest.approx((a + b + c + again) / 3.35e12, rel=1e-3)


def test_what_overlaps_and_what_does_not():
    math_alone = gemm(64 * 132, 64, 10**4, peak=1, wave=0)
    memory = gemm(64 * 132, 64, 10**4, bandwidth=1, wave=1e-30)
    both = gemm(64 * 132, 64, 10**4, bandwidth=memory / math_alone, peak=1, wave=0, overlap=2)
    assert both == pytest.approx(math.sqrt(2) * math_alone)
    assert gemm(64, 64, 64, fixed=3) == pytest.approx(3)
    quantized = gemm(1000, 64, 1000, "fp8", quantize=0.5, wave=1e-30)
    assert quantized == pytest.approx(1000 * 1000 * (2 + 1) / (0.5 * 3.35e12))  # BF16 in, FP8 out


def test_a_list_of_many_gemms_is_each_of_them():
    c = IDLE | {"peak": 0.7, "bandwidth": 0.8, "feed": 3}
    m = np.arange(1, (1 << 14) + 3)
    found = gemm_kernel_seconds(m, 4096, 512, H100, hw.recipe("bf16"), c)
    for i in (0, 1, (1 << 14) - 1, 1 << 14, len(m) - 1):
        alone = gemm_kernel_seconds(m[i], 4096, 512, H100, hw.recipe("bf16"), c)
        assert found[i] == pytest.approx(alone, rel=1e-12)
    assert found.shape == m.shape


def test_a_sibling_keeps_at_least_one_head():
    llama = config.load("llama-3.1-8b")  # 32 layers, 8 key-value heads, 32 heads of 128
    deep = same_parameters(llama, layers=8000)  # factor sqrt(32 / 8000) = 0.063: 8 heads are 0.506
    mixer = deep.blocks[0].mixer
    assert (mixer.num_kv_heads, mixer.num_heads, deep.hidden_size) == (1, 4, 256)
    with pytest.raises(ValueError, match="layers must leave a width of at least one head, got 9"):
        same_parameters(llama, layers=9600)  # 0.46 heads, though two head sizes of hidden size
    assert same_parameters(llama, layers=32).blocks == llama.blocks


WIDER = {"tp=4,ep=2": "tp=8,ep=2", "tp=2,ep=4": "tp=2,ep=8"}


@pytest.mark.parametrize(("before", "after"), WIDER.items())
def test_what_would_hold_a_model_has_more_of_the_wider_way(before, after, capsys):
    options = ["--device", "H100_SXM", "--engine", "sglang", "--attention", "tp=8", "--ffn", before]
    cli.main(["check", "deepseek-r1", *options, "--batch", "16"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"16 GPUs hold it: --attention tp=16 --ffn {after};" in said


# The checker and its siblings --------------------------------------------------------------------


def dense(width, heads=8, kv_heads=8, layers=1, hidden=1024):
    mixer = hw.SelfAttention(num_heads=heads, num_kv_heads=kv_heads, head_dim=128)
    block = hw.Block(mixer=mixer, ffn=hw.DenseFFN(width=width))
    return hw.Model(name="toy", hidden_size=hidden, vocab_size=32000, blocks=(block,) * layers)


def test_a_report_is_a_hundred_columns_wide_if_nothing_is_said():
    lines = report_text.text([judge("gpt2")]).splitlines()
    assert 90 < max(len(line) for line in lines if "https://" not in line) <= 100


def test_routers_and_heads_are_no_product_of_guideline_1():
    def told(plan):
        case = hw.Case(model="mixtral-8x7b", device="GB300", attention=plan, ffn=plan)
        return hw.checklist(case).verdicts[0].reason

    # The router's N = 8 would be less than 4096 / 8 columns of heads, and than 48 heads of 128.
    assert told(hw.Plan(tp=8)) == "smallest side on a GPU: attention output, N = 4096, K = 512"
    assert told(hw.Plan()) == "smallest side on a GPU: qkv, N = 6144, K = 4096"


def test_up_to_eight_stages_are_told_one_by_one():
    def told(pp):
        plan = hw.Plan(pp=pp)
        case = hw.Case(model="deepseek-r1", recipe="nvfp4", attention=plan, ffn=plan)
        return hw.checklist(case).verdicts[5].reason

    assert "61 in stages of 7, 7, 8, 8, 8, 8, 8, 7;" in told(8)  # vLLM's cut: the last but one first
    assert "61 in stages of 6, 7;" in told(9)


def test_experts_are_merged_only_where_every_kind_of_layer_can():
    mixer = hw.SelfAttention(num_heads=8, num_kv_heads=8, head_dim=128)
    even, odd = hw.MoE(num_experts=8, top_k=4, width=256), hw.MoE(num_experts=8, top_k=1, width=256)
    kinds = [hw.Block(mixer=mixer, ffn=ffn) for ffn in (even, odd)]
    both = hw.Model(name="both", hidden_size=1024, vocab_size=32000, blocks=tuple(kinds))
    assert shapes.merged_experts(both) is None
    one = dataclasses.replace(both, blocks=(kinds[0],))
    assert shapes.merged_experts(one).blocks[0].ffn == hw.MoE(num_experts=4, top_k=2, width=512)


def test_a_wider_sibling_may_have_any_number_of_heads_on_one_gpu():
    deep = dense(4096, heads=5, kv_heads=5, layers=64, hidden=640)
    wide = shapes.wider(deep, 25)
    assert wide.blocks[0].mixer.num_heads == round(5 * math.sqrt(64 / len(wide.blocks)))
    assert wide.blocks[0].mixer.num_heads % 2 == 1  # 7 heads; two ways would round them to 6 or 8
    even = shapes.wider(deep, 25, ways=2)
    assert even.blocks[0].mixer.num_heads % 2 == 0


@pytest.mark.parametrize(("aspect", "layers"), [(112, 74), (134, 65)])
def test_of_layers_of_many_kinds_no_more_go_than_must(aspect, layers):
    mixed = config.load("llama-3.3-nemotron-super-49b")  # 80 blocks of 8 kinds, thinned in proportion
    new = shapes.wider(mixed, aspect)
    assert len(new.blocks) == layers and new.hidden_size / shapes.depth(new) >= aspect
    more = shapes._thinned(mixed, layers + 1)  # one layer more would not reach it
    hidden = math.ceil(8192 * math.sqrt(80 / len(more)) / 128) * 128
    assert hidden / shapes.depth(dataclasses.replace(mixed, blocks=more)) < aspect


@pytest.mark.parametrize("aspect", [41, 59, 73, 101])
def test_a_wider_sibling_has_no_fewer_layers_than_it_must(aspect):
    deep = dense(8192, heads=16, kv_heads=16, layers=80, hidden=2048)

    def reached(layers):  # hidden size grows with the root of what the layers lose, in steps of 128
        return math.ceil(2048 * math.sqrt(80 / layers) / 128) * 128 / layers

    start = int(80 * (2048 / 80 / aspect) ** (2 / 3))
    most = max(layers for layers in range(1, start + 1) if reached(layers) >= aspect)
    assert len(shapes.wider(deep, aspect).blocks) == most


WIDTHS = (1000, 1100, 3000, 3300, 3700, 4100, 4600, 5200, 6100, 7300, 8900, 9700)


def test_of_many_kinds_of_layers_the_ten_heaviest_are_rounded_either_way():
    counts = [5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19]
    mixer = hw.SelfAttention(num_heads=8, num_kv_heads=8, head_dim=128)
    kinds = [hw.Block(mixer=mixer, ffn=hw.DenseFFN(width=WIDTHS[i])) for i in range(12)]
    layers = tuple(kind for kind, n in zip(kinds, counts, strict=True) for _ in range(n))
    model = hw.Model(name="many", hidden_size=1024, vocab_size=32000, blocks=layers)
    new = shapes.regular(model, 4)
    weight = [4 * 1024 * 1024 + 3 * 1024 * width + 2 * 1024 for width in WIDTHS]
    nearest = [[4, 8], [4, 8], [8, 4], [8, 12], [8, 12], [12, 8], [12, 16], [16, 12], [16, 12]]
    nearest += [[16, 20], [16, 20], [20, 16]]  # 6, 10, 14, 18: the lower of two equally near
    least = None  # the two lightest kinds take the nearer multiple, the ten heaviest the better
    for choice in itertools.product((0, 1), repeat=10):
        taken = [nearest[0][0], nearest[1][0]]
        taken += [pair[i] for pair, i in zip(nearest[2:], choice, strict=True)]
        more = [n - count for n, count in zip(taken, counts, strict=True)]
        off = abs(sum(n * w for n, w in zip(more, weight, strict=True)))
        key = off, sum(map(abs, more))
        least = min(least or (key, taken), (key, taken))
    assert [new.block_counts[kind] for kind in kinds] == least[1]


def test_a_fix_is_shown_without_its_cases():
    case = hw.Case(model="gpt2")
    shown = repr(hw.Fix(text="nothing", case=case, before=case))
    assert shown == "Fix(text='nothing', width=0.0, worsens=())"


def test_one_bad_value_among_good_ones_is_refused():
    with pytest.raises(ValueError, match="tops must be finite"):
        cache_parallel.merge_partials([[INF], [0.0]], [[1.0], [1.0]], [[[1.0]], [[1.0]]])
    with pytest.raises(ValueError, match="num_heads must be a multiple of num_kv_heads"):
        transformer_gemms(
            1, hidden_size=64, intermediate_size=64, num_heads=[32, 33], num_kv_heads=8, head_dim=8
        )


def test_one_key_of_experts_without_their_number_is_refused():
    file = resources.files("hwdesign.models").joinpath("configs", "deepseek-r1.json")
    r1 = json.loads(file.read_text(encoding="utf-8"))
    for key in ("n_routed_experts", "num_experts_per_tok", "n_shared_experts"):
        r1.pop(key)
    r1["first_k_dense_replace"] = 0
    with pytest.raises(ValueError, match="'n_routed_experts' must be a whole number, since other"):
        config.load(r1)  # moe_intermediate_size is left


def test_a_sheet_says_what_an_engine_reserves_only_where_a_window_needs_less():
    reserve = "if an engine reserves the full context in every layer"
    assert reserve in hw.sheet_text(config.load("gemma-3-27b"))
    assert reserve not in hw.sheet_text(config.load("llama-3.1-8b"))


def test_stages_that_hand_on_to_each_other_need_a_link_of_two():
    pair = dataclasses.replace(hw.device("H100_SXM"), link_domain=2)
    plan, llama = hw.Plan(pp=2), config.load("llama-3.1-8b")
    load = {"batch": 2, "context": 1000, "attention": plan, "ffn": plan}
    assert hw.decode_step(llama, pair, "bf16", **load).notes == ()
    wide = hw.Plan(tp=4)
    notes = hw.decode_step(llama, pair, "bf16", **load | {"attention": wide, "ffn": wide}).notes
    assert notes == ("all-reduce over 4 GPUs is timed as if the link joined them; it joins 2",)


def test_of_a_gemm_that_math_bounds_the_multiplications_are_the_time_at_the_reachable_peak():
    c = IDLE | {"peak": 0.5, "wave": 1e-30}
    terms = gemm_kernel_terms(8192, 4096, 16384, H100, hw.recipe("bf16"), c)
    assert terms["math"] == pytest.approx(2 * 8192 * 4096 * 16384 / (0.5 * 989e12))
    assert 0 <= terms["tiles"] < 0.05 * terms["math"]  # what the last wave leaves idle


def test_a_device_without_a_count_of_sms_is_timed_as_one_of_132():
    card = hw.device("H100_PCIE")
    assert card.sms is None
    c = calibration.constants("gemm", "H100_SXM", "bf16")
    shape = 65536, 65536, 4096  # operands far beyond the L2 are read again, block by block
    fast = {**c, "feed": 1e9, "peak": 1e9}
    told = gemm_kernel_seconds(*shape, card, hw.recipe("bf16"), fast)
    known = dataclasses.replace(card, sms=132)
    of_known = gemm_kernel_seconds(*shape, known, hw.recipe("bf16"), fast)
    assert of_known == pytest.approx(told, rel=1e-12)


def test_a_sweep_may_have_as_many_steps_as_it_says(monkeypatch):
    llama = config.load("llama-3.1-8b")
    sweep = {"batch": [1, 2], "context": 1000, "gpus": [1]}
    monkeypatch.setattr(layouts, "MOST_STEPS", 2)  # one layout of two points
    assert layouts.decode_sweep(llama, "H100_SXM", "fp8", **sweep)["seconds"].shape == (1, 2)
    monkeypatch.setattr(layouts, "MOST_STEPS", 1)
    with pytest.raises(ValueError, match="must make at most 1 steps, got 1 layouts of 2 points"):
        layouts.decode_sweep(llama, "H100_SXM", "fp8", **sweep)


def test_lengths_that_are_drawn_below_the_nominal_count_at_nine_tenths():
    points = served.served_points(model="deepseek-r1", device="B200", framework="sglang", tp=8)
    for sent, answered in ((1024, 8192), (8192, 1024), (1024, 1024)):
        here = (points["input_tokens"] == sent) & (points["output_tokens"] == answered)
        here &= (points["moe_tp"] == 8) & (points["precision"] == "fp8")
        (i,) = np.flatnonzero(here)[:1]
        load = {"concurrency": points["concurrency"][i], "input_tokens": round(0.9 * sent)}
        load |= {"output_tokens": round(0.9 * answered)}
        attention, ffn = served.served_plans({name: points[name][i] for name in served.GROUP})
        r1 = config.load("deepseek-r1")
        cache = str(points["cache"][i]) or None
        recipe = engine_formats(r1, "B200", "sglang", recipe="fp8_block", cache=cache).recipe
        plans = {"attention": attention, "ffn": ffn, "engine": served.engine_of_then("sglang", "deepseek-r1")}
        alone = hw.time_per_output_token(r1, "B200", recipe, **load, **plans)
        assert points["modelled"][i] == pytest.approx(float(alone), rel=1e-12)


# A second sample ---------------------------------------------------------------------------------


def test_texts_of_markdown_are_cut_after_500_characters():
    assert safe.markdown_text("a" * 500) == "a" * 500
    assert "(501 characters)" in safe.markdown_text("a" * 501).replace("\\", "")


def test_a_flat_layer_among_square_ones_is_made_squarer():
    mixer = hw.SelfAttention(num_heads=8, num_kv_heads=8, head_dim=128)
    layers = [hw.Block(mixer=mixer, ffn=hw.DenseFFN(width=width)) for width in (2048, 8192)]
    model = hw.Model(name="two", hidden_size=1024, vocab_size=32000, blocks=tuple(layers))
    assert shapes.squarer(model).hidden_size == 2048  # 8192 is eight times 1024, 2048 twice


def test_stages_are_timed_with_one_prompt_in_each_group():
    attention, ffn = hw.Plan(dp=2, pp=2), hw.Plan(tp=2, pp=2)
    case = hw.Case(model="deepseek-r1", device="H200", recipe="fp8", attention=attention, ffn=ffn)
    inside = {"attention": hw.Plan(dp=2), "ffn": hw.Plan(tp=2), "batch": 2}
    times, rest = block_times(case.model, "H200", case.recipe, context=8192, **inside)
    stages = np.array([times[:31].sum(), times[31:].sum() + rest])  # vLLM's cut of 61 in two
    waits = 100 * (1 - stages.mean() / stages.max())
    assert f"GPUs wait {waits:.1f} %" in hw.checklist(case).verdicts[5].reason


def test_a_head_that_is_the_embedding_counts_by_its_rows():
    case = hw.Case(model="gpt2", device="H100_SXM")
    (found,) = [f for f in hw.checklist(case).findings if f.dimension == "vocabulary"]
    before, after = case.breakdown.terms["head"], found.fix.case.breakdown.terms["head"]
    assert found.cost == pytest.approx(max(0, before - after * 50257 / 50304) / case.seconds)


def test_sizes_that_a_reader_cannot_take_are_named():
    folder = resources.files("hwdesign.models").joinpath("configs")
    nano = json.loads(folder.joinpath("nemotron-3-nano-30b-a3b.json").read_text(encoding="utf-8"))
    with pytest.raises(ValueError, match="'n_shared_experts' must be a whole number from 0 to 1"):
        config.load(nano | {"n_shared_experts": 2})
    name = "llama-3.3-nemotron-super-49b.json"
    searched = json.loads(folder.joinpath(name).read_text(encoding="utf-8"))
    searched["block_configs"][0]["ffn"]["ffn_mult"] = "2.5"
    with pytest.raises(ValueError, match=r"ffn_mult' must be a number from 0.01 to 100, got '2.5'"):
        config.load(searched)


def test_ranks_of_experts_divide_among_groups_that_bring_tokens():
    assert blocks.inner_ways(hw.Plan(dp=4), hw.Plan(ep=4)) == 1  # each rank has its own tokens
    assert blocks.inner_ways(hw.Plan(dp=4), hw.Plan(ep=4, gather=True)) == 4  # all have all
    ways = blocks.inner_ways(hw.Plan(dp=2, tp=2), hw.Plan(ep=4))
    assert ways == 2 and isinstance(ways, int)  # as a report prints it


def test_a_pattern_of_more_than_twelve_runs_is_summed():
    mixer = hw.SelfAttention(num_heads=8, num_kv_heads=8, head_dim=128)
    pair = [hw.Block(mixer=mixer, ffn=hw.DenseFFN(width=1024)), hw.Block(mixer=None, ffn=None)]

    def told(runs):
        layers = tuple(pair[i % 2] for i in range(runs))
        model = hw.Model(name="runs", hidden_size=1024, vocab_size=32000, blocks=layers)
        return hw.sheet_text(model).splitlines()[-1]

    assert "runs)" not in told(12) and "7 x MHA + dense, 6 x nothing (in 13 runs)" in told(13)


def test_a_stage_holds_the_residual_stream_of_its_micro_batch():
    llama, plan = config.load("llama-3.1-8b"), hw.Plan(pp=2)
    load = {"batch": 64, "context": 1000, "attention": plan, "ffn": plan}
    held = hw.decode_step(llama, "H200", "bf16", **load).activations
    live = step(llama, batch=32, context=1000).live_elements  # 64 sequences in two micro-batches
    assert held == 32 * 4096 * 2 + 2 * live


def test_nothing_is_quantized_in_bf16():
    c = calibration.constants("gemm", "H100_SXM", "bf16")
    assert gemm_kernel_terms(64, 4096, 4096, H100, hw.recipe("bf16"), c)["quantize"] == 0


def test_served_points_take_a_device_by_any_of_its_names():
    points = served.served_points(model="llama-3.1-70b", device="h100 sxm")
    assert len(points["tpot"]) and set(points["device"]) == {"H100_SXM"}


def test_states_of_several_kinds_of_layers_add_up():
    two = [hw.Mamba2(num_heads=8, head_dim=64, groups=8, state=n, conv=4) for n in (64, 128)]
    layers = tuple(hw.Block(mixer=mixer, ffn=None, norms=1) for mixer in two)
    model = hw.Model(name="states", hidden_size=1024, vocab_size=32000, blocks=layers)
    done = step(model, batch=3, context=10)
    assert done.state_elements == 2 * 3 * 8 * 64 * (64 + 128)  # read and written


def test_a_pipeline_of_single_gpus_has_no_experts_to_spread():
    plan = hw.Plan(pp=4)
    case = hw.Case(model="mixtral-8x7b", device="H200", attention=plan, ffn=plan)
    verdict = hw.checklist(case).verdicts[4]
    assert verdict.status == "not applicable" and "one GPU holds all experts" in verdict.reason


def test_a_model_that_fits_is_told_in_no_loud_colour():
    lines = report_text.text([judge("gpt2")], colour=True).splitlines()
    (memory,) = [line for line in lines if line.startswith("  memory ")]
    assert "\x1b" not in memory
