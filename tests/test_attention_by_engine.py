"""Attention engine by engine: each constant of a kernel alone, what a window reads, and the errors that ship."""

from importlib import resources

import numpy as np
import pytest

import hwdesign as hw
from hwdesign.models.steps import Work
from hwdesign.timing import kernels
from hwdesign.timing.calibration import constants

H100, B200 = hw.device("H100_SXM"), hw.device("B200")  # 132 and 148 SMs
FREE = {"fixed": 0.0, "bandwidth": 1e30, "wave": 0.0, "row": 0.0}  # a decode kernel that takes no time
SWIFT = {"fixed": 0.0, "rate": 1e30, "tile": 0.0, "chain": 0.0, "bandwidth": 1e30}
ACCURACY = [
    line.split(",") for line in resources.files("hwdesign.timing").joinpath("data/accuracy.csv").read_text().splitlines()[1:]
]
OURS = [row for row in ACCURACY if row[0].split("_")[0] in ("attention", "mla")]


def decode(device=H100, batch=1, context=128.0, heads=1, kv_heads=1, size=256, window=None, pieces=1, latent=0, **c):
    cached = batch * context * kv_heads * size
    shape = {"batch": batch, "context": context, "heads": heads, "kv_heads": kv_heads, "size": size}
    work = Work(flops=0.0, cache_elements=cached, window=window, pieces=pieces, latent=latent, **shape)
    ends = 2.0 * batch * heads * size / device.memory_bandwidth
    return float(kernels.decode_attention_seconds(work, 2.0, device, 1e30, FREE | c)) - ends


def prefill(device=B200, batch=1, queries=128.0, context=None, heads=1, kv_heads=1, size=256, window=None, latent=0, **c):
    context = context or queries
    shape = {"batch": batch, "context": context, "queries": queries, "heads": heads, "kv_heads": kv_heads, "size": size}
    work = Work(flops=0.0, cache_elements=0.0, window=window, latent=latent, **shape)
    return float(kernels.prefill_attention_seconds(work, 2.0, device, 1e30, SWIFT | c))


def test_decode_starts_rounds_rows_blocks_and_merges_as_a_hand_counts_them():
    assert decode(fixed=3.0) == pytest.approx(3)
    assert [round(decode(batch=n, wave=1.0)) for n in (132, 133, 264, 265)] == [0, 1, 1, 2]
    assert [round(decode(heads=n, row=1.0)) for n in (1, 8, 128)] == [1, 8, 128]
    assert round(decode(heads=128, latent=1088, row=1.0)) == 64  # two tiles of 64 rows on two SMs
    assert [round(decode(batch=132, context=128.0 * n, step=1.0)) for n in (1, 8)] == [1, 8]  # none to split for
    assert round(decode(batch=132, size=512, step=1.0), 6) == 2  # a block of twice the bytes
    assert [round(decode(context=128.0 * n, merge=1.0)) for n in (1, 2, 8, 1024)] == [0, 1, 3, 7]  # 132 pieces at most
    assert [round(decode(batch=66, context=1024.0, step=1.0, **c)) for c in ({}, {"fill": 2})] == [4, 4]
    assert decode(batch=66, context=1024.0, wave=1.0, fill=4) == pytest.approx(3)  # four rounds of pieces


def test_a_window_is_read_in_blocks_of_which_some_lie_beyond_it():
    full, short = (decode(batch=256, context=c, bandwidth=1.0) for c in (256.0, 128.0))
    assert decode(batch=256, context=128.0, window=128, edge=128.0, bandwidth=1.0) == pytest.approx(full)
    assert decode(batch=256, context=128.0, window=129, edge=128.0, bandwidth=1.0) == pytest.approx(short)  # not yet full
    assert decode(batch=256, context=128.0, edge=128.0, bandwidth=1.0) == pytest.approx(short)  # no window
    half = decode(batch=256, context=64.0, window=128, edge=128.0, pieces=2, bandwidth=1.0)  # of two GPUs
    assert half == pytest.approx(full / 2)


def test_prefill_counts_the_blocks_behind_each_tile():
    sms = B200.sms
    tiles = [prefill(batch=sms, queries=128.0 * n, softmax=1.0) for n in (1, 2, 8)]
    assert tiles == pytest.approx([1, 3, 36])  # 1 + 2 + ... + n
    assert prefill(batch=sms, queries=128.0 * 64, window=128, softmax=1.0) == pytest.approx(2 * 64, rel=0.02)
    grown = prefill(batch=sms, queries=128.0 * 64, window=128 * 16, softmax=1.0)  # 16 tiles still grow, 48 do not
    assert grown == pytest.approx(48 * 17 + 16 * 9, rel=0.01)
    assert prefill(batch=sms, queries=1024.0, window=128, softmax=1.0, mask=2.0) == pytest.approx(
        2 * prefill(batch=sms, queries=1024.0, window=128, softmax=1.0)
    )
    assert prefill(batch=sms, softmax=3.0, rate=0.25 * 2 * 128 * 128 * 256 * sms / 1e30) == pytest.approx(5)  # 3, 4: 5


def test_heads_of_a_group_share_a_tile_only_where_the_kernel_packs_them():
    given = {"batch": 132, "queries": 16.0, "heads": 8, "kv_heads": 1, "tile": 1.0}
    assert prefill(H100, **given) == pytest.approx(1)
    assert prefill(H100, **given, alone=1) == pytest.approx(8)
    latent = {"batch": 132, "queries": 128.0, "latent": 1088, "size": 320, "rate": 2 * 128 * 128 * 132 / 1e30}
    assert [prefill(H100, **latent, **c) for c in ({}, {"alone": 1})] == pytest.approx([1088, 320])  # expanded


def test_new_keys_and_values_are_written_at_a_rate_of_their_own():
    slow = prefill(batch=4, queries=1024.0, kv_heads=2, heads=2, write=0.5)
    assert slow == pytest.approx(4 * 1024 * 2 * 256 * (2 + 2) / (0.5 * B200.memory_bandwidth))


def test_every_engine_has_constants_of_its_own_and_no_more_than_eight():
    for operation, cards in (("attention", ("GB300", "GB200", "B300", "B200", "H200", "H100_SXM")), ("mla", ("B200", "H200"))):
        for card in cards:
            for engine in ("sglang", "trtllm", "vllm")[: 2 if operation == "mla" else 3]:
                for phase in ("decode", "prefill"):
                    c = constants(f"{operation}_{phase}", card, "bf16", engine=engine)
                    assert (c.framework, c.measured) == (engine, True) and len(c) <= 8
    assert constants("mla_decode", "H200", "fp8", engine="sglang").framework == "trtllm"  # SGLang's turns the cache into BF16


def test_held_out_errors_stay_within_limits():
    """Medians [%] of what no fit saw: whole (heads, key-value heads, head size), and (batch, context) of latents."""
    slices = [row for row in OURS if row[5] == "all"]
    assert len(slices) > 90 and {row[3] for row in slices} == {"sglang", "trtllm", "vllm"}
    for operation, device, precision, engine, _, _, count, mean, median, _ in slices:
        hopper_xqa = engine == "trtllm" and device in ("H200", "H100_SXM") and operation == "attention_decode"
        limit = 20 if device == "A100_SXM" else 13 if hopper_xqa else 10
        assert int(count) > 100 and float(median) < limit, (operation, device, precision, engine, mean, median)
    by_engine = {e: np.median([float(r[8]) for r in slices if r[3] == e]) for e in ("sglang", "trtllm", "vllm")}
    assert max(by_engine.values()) < 7
