"""A 5 % change of any formula must make an anchored check fail. The checks here hold published or hand-counted numbers only."""

import dataclasses
import inspect
import re

import numpy as np
import pytest

from hwdesign.formulas import (
    attention,
    cache_parallel,
    chunks,
    collectives,
    experts,
    frontier,
    number_formats,
    pipeline,
    quantization,
    roofline,
    routing,
    tiling,
)
from hwdesign.lessons.studies import four_constants as gemm
from hwdesign.lessons.studies import samples
from hwdesign.lessons.studies import scores as benchmarks
from hwdesign.models import config
from hwdesign.models.steps import Exchange, Experts, Plan
from hwdesign.timing import estimate, search, silicon
from hwdesign.timing.silicon import measurements

A4 = {"a": 0.5625, "b": 0.5625}
IDEAL = gemm.GemmConstants(peak_flops=15e15, bandwidth=8e12)
LATE = [[1, 2], [3, 1], [1, 1]]  # three chunks in two stages
LINK = Exchange(kind="combine", elements=9e6, ranks=8)
PIECES = [[0], [np.log(3)]], [[2], [2]], [[[1]], [[5]]]  # weights 1 and 3


PATHS = {"recipe": ["fp8"], "gpus": [8], "batch": [64], "attention": [Plan(dp=8)], "ffn": [Plan(ep=8, gather=True)]}


def llama_candidates():
    """Memory of Llama-3.1-8B in BF16 with one sequence of 1050 tokens, and what the columns make of each other."""
    load = {"gpus": 1, "batch": [1], "input_tokens": 1000, "output_tokens": 100}
    found = search.decode_candidates(config.load("llama-3.1-8b"), "H100_SXM", "bf16", **load)
    user, rate, seconds = (found[name][0] for name in ("user_rate", "gpu_rate", "seconds"))
    return [found["memory"][0], user * seconds, rate / user, found["context"][0]]


def llama_workers():
    """GPUs and stages of all workers of one and two stages of one and two GPUs."""
    found = search.prefill_workers(config.load("llama-3.1-8b"), "H100_SXM", "fp8", tokens=8192, gpus=(1, 2), stages=(1, 2))
    return [*found["gpus"], *found["stages"]]


def published_layers():
    """Whether modelled over published times of DeepSeek-R1's layer on H200s have a mean within 2.5 % of 1."""
    rows = measurements("moe", "H200", precision="fp8_block", tp=1, routing="balanced")
    pairs, ep = 8 * rows["tokens"], rows["ep"]
    work = Experts(tokens=rows["tokens"], pairs=np.maximum(pairs / ep, 1), touched=np.maximum(np.minimum(pairs, 256) / ep, 1),
                   local=256 / ep, hidden=7168, width=2048, slots=pairs)  # fmt: skip
    return np.abs((estimate.expert_time(work, "H200", "fp8_block", engine="trtllm") / rows["seconds"]).mean() - 1) < 0.025


# function -> (call, published or hand-counted value)
ANCHORS = {
    (roofline, "gemm_flops"): (lambda: roofline.gemm_flops(1024, 1024, 1024), 2_147_483_648),
    (roofline, "gemm_read_bytes"): (lambda: roofline.gemm_read_bytes(256, 8192, 512, **A4), 2_433_024),
    (roofline, "gemm_write_bytes"): (lambda: roofline.gemm_write_bytes(256, 8192, c=1), 2_097_152),
    (roofline, "gemm_bytes"): (lambda: roofline.gemm_bytes(256, 8192, 512, **A4, c=1), 4_530_176),
    (roofline, "intensity"): (lambda: roofline.intensity(2_147_483_648, 4_530_176).round(), 474),
    (roofline, "gemm_intensity"): (lambda: roofline.gemm_intensity(np.inf, 8192, 512, **A4, c=1).round(), 989),
    (roofline, "ridge"): (lambda: roofline.ridge(15e15, 8e12), 1875),
    (roofline, "attainable_flops"): (
        lambda: roofline.attainable_flops([100, 1e9], peak_flops=15e15, bandwidth=8e12),
        [8e14, 15e15],
    ),
    (roofline, "bound_time"): (lambda: roofline.bound_time([15e15, 1], [1, 16e12], peak_flops=15e15, bandwidth=8e12), [1, 2]),
    (roofline, "critical_dimension"): (lambda: roofline.critical_dimension(1875, 0.5625).round(), 527),
    (roofline, "break_even_k"): (lambda: roofline.break_even_k(np.inf, 8192, ridge_point=1875, **A4, c=1).round(), 1002),
    (roofline, "break_even_n"): (lambda: roofline.break_even_n(2.5e15, 15e15, bandwidth=8e12, moved=2.5625).round(), 480),
    (roofline, "break_even_area"): (
        lambda: roofline.break_even_area(1e-6, bandwidth=8e12, wide_bytes=2, narrow_bytes=[1, 0.4]),
        [8e6, 5e6],
    ),
    (roofline, "amdahl_speedup"): (lambda: roofline.amdahl_speedup([0.5, 0.75], [2, np.inf]), [4 / 3, 4]),
    (attention, "attention_flops"): (lambda: attention.attention_flops([4, 4], [4, 8], 1, 1, causal=True), [40, 104]),
    (attention, "cache_read_bytes"): (lambda: attention.cache_read_bytes(1000, 576, 2), 1_152_000),
    (collectives, "transfer_time"): (lambda: collectives.transfer_time([0, 450e9], 2e-6, 450e9), [2e-6, 1.000002]),
    (collectives, "all_gather_bytes"): (lambda: collectives.all_gather_bytes(8, 8), 7),  # NCCL's factor (n - 1) / n
    (collectives, "all_reduce_bytes"): (lambda: collectives.all_reduce_bytes(8, 8), 14),  # NCCL's factor 2 (n - 1) / n
    (collectives, "one_shot_bytes"): (lambda: collectives.one_shot_bytes(8, 8), 56),
    (collectives, "remote_copies"): (
        lambda: [collectives.remote_copies(8, 256, ep, balanced=True) for ep in (2, 4, 8, 16, 32)],
        [1, 3, 7, 7.5, 7.75],
    ),
    (experts, "expert_tokens"): (lambda: experts.expert_tokens(32, 8, 256), 1),
    (experts, "distinct_experts"): (lambda: experts.distinct_experts(3, 2, 8), 4.625),
    (experts, "expert_ranks"): (lambda: experts.expert_ranks(1, 8, 4), 1),
    (routing, "zipf_shares"): (lambda: 11 * routing.zipf_shares(3, 1), [6, 3, 2]),
    (routing, "routed_tokens"): (lambda: routing.routed_tokens(7, 3, 3), [[7, 7, 7]]),
    (routing, "imbalance"): (lambda: routing.imbalance([[4, 2, 2, 0], [3, 1, 1, 3]]), [2, 1.5]),
    (routing, "even_placement"): (lambda: routing.even_placement(6, 3), [[0, 1], [2, 3], [4, 5]]),
    (routing, "balanced_placement"): (lambda: routing.balanced_placement([6, 2, 1], 2, slots=4), [[0, 1], [0, 2]]),
    (routing, "device_loads"): (lambda: routing.device_loads([165, 39, 4], [[0, 1], [0, 2]]), [121.5, 86.5]),  # EPLB's README
    (routing, "touched_slots"): (lambda: routing.touched_slots([6, 0, 1], [[0, 1], [0, 2]]), [1, 2]),
    (samples, "power_law_tokens"): (lambda: samples.power_law_tokens(5, 4, 4, 1.2, draws=1), [[5, 5, 5, 5]]),
    (estimate, "exchange_time"): (lambda: estimate.exchange_time(LINK, "GB200", "nvfp4", ideal=True), 2e-5),  # 18 MB, 900 GB/s
    (estimate, "expert_time"): (published_layers, True),
    (tiling, "pad"): (lambda: tiling.pad(50257, 64), 50_304),
    (tiling, "tile_efficiency"): (lambda: np.round(tiling.tile_efficiency(512, 4097, tile_m=128, tile_n=512), 3), 0.889),
    (tiling, "head_sharding"): (lambda: tiling.head_sharding(28, 4, 28)[1], 7),  # vLLM issue 11797
    (tiling, "waves"): (lambda: tiling.waves(1793, 1793, tile_m=256, tile_n=128, sms=108), 2),
    (tiling, "wave_efficiency"): (
        lambda: np.round(tiling.wave_efficiency(1792, 1792, tile_m=256, tile_n=128, sms=108), 3),
        0.907,
    ),
    (tiling, "cluster_efficiency"): (  # 1280 columns are five tiles; the sixth idles at half price
        lambda: tiling.cluster_efficiency([1024, 1280], tile=256, cluster=512, idle=0.5),
        [1, 1280 / 1408],
    ),
    (number_formats, "cast"): (lambda: number_formats.cast([2.5, 5.01, 7], "e2m1"), [2, 6, 6]),
    (number_formats, "codes"): (lambda: number_formats.codes([448, -448], "e4m3"), [0b0_1111_110, 0b1_1111_110]),
    (quantization, "encode"): (lambda: quantization.encode([2688] + [3] * 31, "nvfp4").scales, [448, 0.5]),
    (quantization, "decode"): (lambda: quantization.decode(quantization.encode([7] * 32, "mxfp4")), [6] * 32),
    (quantization, "saturated"): (lambda: quantization.saturated([7] * 32, quantization.encode([7] * 32, "mxfp4")), [1] * 32),
    (quantization, "sqnr"): (lambda: quantization.sqnr([10, 10], [9, 11]), 20),
    (benchmarks, "difference_margin"): (  # 1.96 x 50 / 98 each, of 9602 + 2 questions; 1.96 x 50 / 49
        lambda: [benchmarks.difference_margin(50, 50, 9602), benchmarks.difference_margin(80, 79, 2401, flipped=0.25)],
        [np.sqrt(2), 2],
    ),
    (silicon, "sustained"): (lambda: silicon.sustained([6144, 8192, 16384], [1, 2, 9]), 2),
    (silicon, "saturation_point"): (lambda: np.round(silicon.saturation_point([128, 1024, 8192], [1, 6, 10])), 2896),
    (gemm, "gemm_seconds"): (lambda: gemm.gemm_seconds(16384, 8192, 512, "table2", IDEAL) * 8e12, 141_295_616),
    (pipeline, "bubble_share"): (lambda: 7 * pipeline.bubble_share(4, 4), 3),
    (pipeline, "bubble_overhead"): (lambda: pipeline.bubble_overhead(4, 4), 0.75),
    (pipeline, "pipeline_time"): (lambda: pipeline.pipeline_time([1, 2, 1], 3), 8),
    (pipeline, "schedule"): (lambda: pipeline.schedule(LATE, send=[0.5, 0, 2])[1], [[1, 3.5], [4, 5], [5, 8]]),
    (pipeline, "idle_share"): (lambda: pipeline.idle_share(LATE, send=[0.5, 0, 2]), 7 / 16),
    (chunks, "chunk_times"): (lambda: chunks.chunk_times([10, 10], 1.0, 0.1), [15, 25]),
    (chunks, "equal_time_chunks"): (lambda: chunks.equal_time_chunks(100, 4, 1.0, 1.0), [50, 20, 16, 14]),
    (chunks, "best_chunks"): (lambda: chunks.best_chunks(7.0, 0.01, 8), 70),
    (chunks, "smoothed_chunks"): (lambda: chunks.smoothed_chunks(1024, 512, 1.0, 0.01, 1.0), [512, 192, 192, 128]),
    (chunks, "fit_chunk_costs"): (lambda: chunks.fit_chunk_costs([10, 20], [15.0, 40.0], [1], lambda n, a, b: [n]), [1, 0.1]),
    (pipeline, "stage_layers"): (lambda: pipeline.stage_layers(61, 4, extra="middle"), [15, 15, 16, 15]),  # vLLM's get_pp_indices
    (pipeline, "split_layers"): (lambda: pipeline.split_layers([1] * 30, 4), [8, 8, 7, 7]),  # Megatron-LM issue 1304
    (cache_parallel, "partial_attention"): (  # weights 1 and 3; largest score, sum, mean
        lambda: np.hstack([x.ravel() for x in cache_parallel.partial_attention([[0, np.log(3)]], [[1], [5]])]),
        [np.log(3), 4 / 3, 4],
    ),
    (cache_parallel, "merge_partials"): (
        lambda: np.hstack([x.ravel() for x in cache_parallel.merge_partials(*PIECES)]),
        [np.log(3), 8 / 3, 4],
    ),
    (cache_parallel, "merge_bytes"): (lambda: cache_parallel.merge_bytes(1, 128, 512, [4, 8, 64]), [99_072, 115_584, 130_032]),
    (frontier, "pareto_front"): (lambda: frontier.pareto_front([1, 2, 3, 2], [9, 5, 1, 4]), [2, 1, 0]),
    (frontier, "area_under"): (  # 9 + 5 + 1 squares; half of two of them
        lambda: [frontier.area_under([1, 2, 3, 2], [9, 5, 1, 4], between=x) for x in ((0, np.inf), (1.5, 2.5))],
        [15, 3],
    ),
    (frontier, "matched_rate"): (lambda: frontier.matched_rate([1000, 500], 2, [1000, 500]), [1000 / 3, 500 / 3]),
    (frontier, "whole_workers"): (lambda: np.hstack(frontier.whole_workers((2.0, 4), (1.0, 8), 24)), [1, 2, 0.1]),
    (search, "decode_candidates"): (  # published parameters, 128 KiB a token, a hidden vector, input and output of the head
        llama_candidates,
        [2 * 8_030_261_248 + 1050 * 131_072 + 2 * 4096 + 2 * (4096 + 128_256), 1, 1, 1050],
    ),
    (search, "candidate_text"): (
        lambda: search.candidate_text(PATHS, 0) == "fp8, 8 GPUs, batch 64: attention dp 8, ffn ep 8 gather",
        True,
    ),
    (search, "prefill_workers"): (llama_workers, [1, 2, 2, 4, 2, 4, 1, 2, 1, 2, 1, 2]),  # tensor parallel; data parallel
    (cache_parallel, "break_even_tokens"): (lambda: cache_parallel.break_even_tokens(35e-6, 576, 8e12, 8).round(), 555_556),
}


def holds(call, value):
    return np.allclose(call(), value, rtol=1e-9)


def off(found, factor):
    """A result off by a factor; of an encoded tensor, its scales; of several, each; of a text, the numbers in it."""
    if isinstance(found, dict):
        return {name: off(x, factor) if x.dtype.kind in "if" else x for name, x in found.items()}
    if isinstance(found, str):
        return re.sub(r"\d+", lambda number: f"{int(number[0]) * factor:g}", found)
    if isinstance(found, tuple):
        return tuple(off(x, factor) for x in found)
    return dataclasses.replace(found, scales=found.scales * factor) if dataclasses.is_dataclass(found) else found * factor


@pytest.mark.parametrize("target", ANCHORS, ids=lambda t: t[1])
def test_anchor_holds_and_breaks_when_the_formula_is_off_by_5_percent(target, monkeypatch):
    module, name = target
    call, value = ANCHORS[target]
    assert holds(call, value)
    honest = getattr(module, name)
    for factor in (0.95, 1.05):
        monkeypatch.setattr(module, name, lambda *a, factor=factor, **k: off(honest(*a, **k), factor))
        assert not holds(call, value), f"{name} x {factor} passes unnoticed"


ROOMS = [attention, collectives, experts, number_formats, quantization, roofline, routing, tiling, pipeline, chunks]
ROOMS += [cache_parallel, frontier, search]


@pytest.mark.parametrize("room", ROOMS, ids=lambda m: m.__name__)
def test_every_public_formula_has_an_anchor(room):
    own = {n: x for n, x in vars(room).items() if not n.startswith("_") and getattr(x, "__module__", "") == room.__name__}
    public = {name for name, x in own.items() if not inspect.isclass(x)}
    assert public == {name for module, name in ANCHORS if module is room}
