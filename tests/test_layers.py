"""Operations of a step, sharding, tiles, experts and attention: identities, published cases, and errors by name."""

import json
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hwdesign as hw
from hwdesign import cli
from hwdesign.formulas.attention import attention_flops, cache_read_bytes
from hwdesign.formulas.experts import distinct_experts, expert_ranks, expert_tokens
from hwdesign.formulas.tiling import waves
from hwdesign.models import config

# Where a query sees all tokens or a window of them; the kinds that pick tokens are held in test_new_kinds.
PLAIN = [name for name in config.names() if not config.load(name).indexer_bytes_per_token()]


@pytest.mark.parametrize("name", PLAIN)
def test_flop_of_a_token_is_twice_its_matrix_parameters_and_attention(name):
    model = config.load(name)
    step = hw.step(model, batch=1, context=4096)
    assert step.gemm_flops == pytest.approx(2 * model.matmul_parameters, rel=1e-12)
    by_hand = 0
    for mixer in (b.mixer for b in model.blocks if b.mixer and hasattr(b.mixer, "kind")):
        seen = min(4096, mixer.window or 4096)
        if isinstance(mixer, hw.SelfAttention):
            by_hand += 2 * seen * mixer.num_heads * (mixer.head_dim + (mixer.value_dim or mixer.head_dim))
        elif isinstance(mixer, hw.LatentAttention):
            by_hand += 2 * seen * mixer.num_heads * (2 * mixer.kv_rank + mixer.rope_dim)
    assert step.attention_flops == pytest.approx(by_hand, rel=1e-12)


def test_matrix_parameters_are_the_active_ones_without_vectors_and_lookups():
    model = config.load("mixtral-8x7b")  # no biases, untied: all but norms and the embedding
    norms = (2 * 32 + 1) * 4096
    assert model.matmul_parameters == 12_748_853_248 - norms  # published active count without the input embedding


def test_moe_work_scales_with_active_experts():
    model = config.load("mixtral-8x7b")
    experts = sum(g.flops for g in hw.step(model, batch=1, context=1).gemms if g.name.startswith("expert"))
    assert experts == pytest.approx(2 * 32 * 2 * 3 * 4096 * 14336)  # 2 of 8 experts, 3 matrices, 32 layers; maxtext pull 678


@pytest.mark.parametrize(("attention", "ffn"), [({"dp": 32}, {"ep": 32}), ({"dp": 8}, {"ep": 8}), ({"dp": 4}, {"dp": 4})])
def test_work_over_all_gpus_is_the_work_of_one(attention, ffn):
    model = config.load("deepseek-r1")
    step = hw.step(model, batch=256, context=4096, attention=hw.Plan(**attention), ffn=hw.Plan(**ffn))
    gpus = hw.Plan(**attention).gpus
    assert step.gemm_flops * gpus == pytest.approx(2 * 256 * model.matmul_parameters, rel=1e-12)


def test_tensor_parallel_work_of_a_dense_model_divides():
    model = config.load("llama-3.1-70b")
    step = hw.step(model, batch=16, context=100, attention=hw.Plan(tp=8), ffn=hw.Plan(tp=8))
    assert step.gemm_flops * 8 == pytest.approx(2 * 16 * model.matmul_parameters, rel=1e-12)
    reduces = [e for e in step.exchanges if e.kind == "all-reduce"]
    assert sum(e.count for e in reduces) == 2 * 80 and {e.elements for e in reduces} == {16 * 8192.0}
    wide = hw.step(model, batch=16, context=100, attention=hw.Plan(tp=16), ffn=hw.Plan(tp=16))
    assert next(g.n for g in wide.gemms if g.name == "qkv") == (4 + 2) * 128  # one of 8 key-value heads, copied twice


def test_cache_reads_match_the_cache():
    for name in config.names():
        model = config.load(name)
        step = hw.step(model, batch=3, context=2000)
        assert step.cache_elements * 2 == pytest.approx(3 * model.kv_bytes(2000)), name


def test_prefill_is_causal_and_the_head_sees_one_token_a_sequence():
    model = config.load("llama-3.1-8b")
    step = hw.step(model, batch=2, context=1000, new_tokens=1000)
    head = next(g for g in step.gemms if g.name == "head")
    assert (head.m, head.n) == (2, 128256)
    assert step.attention_flops == pytest.approx(2 * 32 * 4 * 32 * 128 * 1000 * 1001 / 2)


def test_a_gemm_that_was_never_timed_is_still_bytes_and_flop():
    gemm = hw.Gemm(name="expert", m=0.5, n=4096, k=7168, count=3.2)
    assert gemm.flops == pytest.approx(2 * 3.2 * 0.5 * 4096 * 7168) and gemm.weights == pytest.approx(3.2 * 4096 * 7168)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: hw.step(config.load("llama-3.1-8b"), batch=1, context=1, attention=hw.Plan(tp=8)), "same GPUs, got 8 and 1"),
        (
            lambda: hw.step(config.load("qwen2.5-7b"), batch=1, context=1, attention=hw.Plan(tp=8), ffn=hw.Plan(tp=8)),
            "attention tp must divide query heads = 28, got 8",
        ),
        (
            lambda: hw.step(config.load("mixtral-8x7b"), batch=1, context=1, attention=hw.Plan(dp=3), ffn=hw.Plan(ep=3)),
            "ffn ep must divide experts = 8, got 3",
        ),
        (lambda: hw.step(config.load("llama-3.1-8b"), batch=0, context=1), "batch must be >= 1, got 0"),
        (lambda: hw.Plan(tp=0), "tp must be >= 1, got 0"),
        (lambda: attention_flops(5, 4, 1, 1), "queries must be <= context, got 5 queries in a context of 4"),
        (lambda: attention_flops(4, 4, 1, 1, window=2), "window must come with causal=True, got 2"),
        (lambda: attention_flops(4, 4, 1, 1, causal=True, window=0), "window must be >= 1, got 0"),
        (lambda: cache_read_bytes(0, 1, 1), "context must be >= 1, got 0"),
        (lambda: cache_read_bytes(1, -1, 1), "must be >= 0, got -1"),
        (lambda: expert_tokens(1, 9, 8), "top_k must be <= num_experts, got 9 of 8"),
        (lambda: distinct_experts(0, 2, 8), "tokens must be > 0, got 0"),
        (lambda: expert_ranks(2, 8, 3), "ep must divide num_experts = 8, got 3"),
        (lambda: hw.pad(-1, 8), "size must be a whole number >= 0, got -1"),
        (lambda: hw.pad(1, 0), "multiple must be >= 1, got 0"),
        (lambda: hw.good_ways(8, "bf16", tier="format"), "tier must be one of kernel, tile 128, tile 256, tile 512, got"),
        (lambda: hw.width_tiers(0, 1), "width must be >= 1, got 0"),
        (lambda: hw.head_sharding(8, 0, 1), "num_kv_heads must be >= 1, got 0"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises(ValueError, match="must") as error:
        call()
    assert says in str(error.value)


# Experts and attention ----------------------------------------------------------------------------------------------------


def test_published_expert_numbers():
    assert distinct_experts(3, 2, 8) == 4.625  # inference-sim issue 764; the bound min(E, k T) would be 6
    assert np.round(distinct_experts(np.array([32, 128]), 8, 256), 1).tolist() == [163.3, 251.6]
    assert expert_tokens(32, 8, 256) == 1  # vLLM issue 28887: 8 x H200 at concurrency 32
    assert expert_tokens(527 * 32, 8, 256) == 527


def test_distinct_experts_agree_with_simulation():
    rng = np.random.default_rng(3)
    draws = [len({e for _ in range(32) for e in rng.choice(256, 8, replace=False)}) for _ in range(300)]
    assert np.mean(draws) == pytest.approx(distinct_experts(32, 8, 256), rel=0.01)
    ranks = [len({e // 32 for e in rng.choice(256, 8, replace=False)}) for _ in range(3000)]
    assert np.mean(ranks) == pytest.approx(expert_ranks(8, 256, 8), rel=0.01)


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 64), st.integers(1, 256))
def test_causal_attention_is_a_sum_over_queries(queries, before, heads, size):
    by_hand = sum(4 * (before + i) * heads * size for i in range(1, queries + 1))
    assert attention_flops(queries, before + queries, heads, size, causal=True) == pytest.approx(by_hand, rel=1e-12)


@given(st.integers(1, 300), st.integers(0, 300), st.integers(1, 400))
def test_a_window_limits_each_query(queries, before, window):
    by_hand = sum(4 * min(before + i, window) for i in range(1, queries + 1))
    assert attention_flops(queries, before + queries, 1, 1, causal=True, window=window) == pytest.approx(by_hand, rel=1e-12)


def test_prefill_of_a_windowed_layer_is_linear_in_the_prompt():
    model = config.load("gpt-oss-20b")  # 12 layers see 128 tokens, 12 see everything
    work = hw.step(model, batch=1, context=8192, new_tokens=8192).work
    windowed, full = sorted({w.flops for w in work})
    assert windowed == pytest.approx(4 * 64 * 64 * (8192 * 128 - 128 * 127 / 2))
    assert full == pytest.approx(4 * 64 * 64 * 8192 * 8193 / 2)


# Tiles --------------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 5000))
def test_padding_is_idempotent_and_smallest(size, multiple):
    padded = hw.pad(size, multiple)
    assert padded % multiple == 0 and size <= padded < size + multiple
    assert hw.pad(padded, multiple) == padded and hw.pad(0, multiple) == 0


def test_published_paddings():
    sizes = [(49954, 16, 49968), (49954, 256, 50176), (32001, 64, 32064), (50257, 64, 50304), (50257, 128, 50304)]
    assert all(hw.pad(size, multiple) == want for size, multiple, want in sizes)  # vLLM issue 578
    assert (hw.pad(50257, 64) - 50257) * 768 == 36_096  # rows of GPT-2
    gpt2 = hw.step(config.load("gpt2"), batch=1, context=1, attention=hw.Plan(tp=4), ffn=hw.Plan(tp=4))
    head = next(g for g in gpt2.gemms if g.name == "head")
    assert head.n == 12565 == hw.pad(50257, 4) / 4  # that of a vocabulary that does not divide


@given(st.integers(1, 20000), st.integers(1, 20000), st.sampled_from([64, 128, 256]), st.sampled_from([128, 256, 512]))
def test_efficiencies_are_at_most_one_and_one_at_multiples(m, n, tile_m, tile_n):
    tile = {"tile_m": tile_m, "tile_n": tile_n}
    efficiency = hw.tile_efficiency(m, n, **tile)
    assert 0 < efficiency <= 1 and (efficiency == 1) == (m % tile_m == 0 and n % tile_n == 0)
    assert 0 < hw.wave_efficiency(m, n, **tile, sms=132) <= 1


def test_a100_waves():
    tile = {"tile_m": 256, "tile_n": 128, "sms": 108}
    assert [float(waves(n, n, **tile)) for n in (1792, 1793)] == [1, 2]
    assert np.round([hw.wave_efficiency(n, n, **tile) for n in (1792, 1793)], 3).tolist() == [0.907, 0.556]
    assert round(hw.tile_efficiency(1793, 1793, tile_m=256, tile_n=128), 3) == 0.818
    assert round(hw.tile_efficiency(512, 4097, tile_m=128, tile_n=512), 3) == 0.889


# Sharding -----------------------------------------------------------------------------------------------------------------


def test_qwen_width_29568_does_not_shard_and_29696_does():
    assert hw.good_ways(29568) == (1, 3, 7) and hw.good_ways(29696) == (1, 2, 4, 8)  # Qwen3 issue 578
    tier = hw.width_tiers(29568, 2, "int4_g128")["format"]
    assert (tier.local, tier.remainder, tier.ok) == (14784, 64, False)  # vLLM issue 13640: 14784 = 115.5 x 128
    tier = hw.width_tiers(29568, 8)["tile 128"]
    assert tier.next_width == 29696 and round(tier.extra, 4) == 0.0043
    model = config.load("qwen2.5-72b")
    assert round(tier.extra_parameters(3 * 8192 * 80) / model.parameters, 4) == 0.0035
    assert str(tier) == "tile 128: 29568 / 8 = 3696: remainder 112, next width 29696 (+0.43%)"


def test_fp8_blocks_under_tensor_parallelism():
    blocks = {"precision": "fp8_128x128", "tier": "format"}
    assert hw.good_ways(1536, **blocks) == (1, 2, 3, 4, 6) and hw.good_ways(768, **blocks) == (1, 2, 3, 6)  # vLLM issue 17569
    assert hw.width_tiers(1536, 8, "fp8_128x128")["format"].remainder == 64
    shared = hw.width_tiers(512, 8, "fp8_128x128")["format"]  # vLLM pull 52915: a shard smaller than a block
    assert not shared.ok and shared.local == 64 and shared.next_width == 1024


def test_nvfp4_tiers_are_reported_apart():
    good = {tier: hw.good_ways(1856, "nvfp4", tier=tier) for tier in ("format", "kernel", "tile 128")}
    assert {t: tuple(w for w in ways if w in (1, 2, 4, 8)) for t, ways in good.items()} == {
        "format": (1, 2, 4), "kernel": (1, 2), "tile 128": ()
    }  # vLLM issue 49949 and pull 31099  # fmt: skip


def test_head_classes():
    classes = {ways: hw.head_sharding(28, 4, ways)[0] for ways in range(1, 29)}
    whole = {ways for ways, kind in classes.items() if kind != "impossible"}
    assert whole == {1, 2, 4, 7, 14, 28}  # vLLM issue 11797
    assert {w for w, kind in classes.items() if kind == "clean"} == {1, 2, 4} and classes[28] == "replicated"
    assert hw.head_sharding(32, 4, 8) == ("replicated", 2.0)  # transformers issue 48307: two copies, said before running


def test_pipeline_stages_lose_no_layer():
    assert hw.stage_layers(30, 4) == (8, 8, 7, 7) and hw.stage_layers(10, 3) == (
        4,
        3,
        3,
    )  # Megatron-LM issue 1304; mlx-lm issue 1688
    assert hw.stage_layers(126, 16) == (8,) * 14 + (7,) * 2


@given(st.integers(1, 500), st.integers(1, 64))
def test_stages_sum_and_differ_by_at_most_one(layers, pp):
    if pp > layers:
        with pytest.raises(ValueError, match=f"pp must be <= layers = {layers}, got {pp}"):
            hw.stage_layers(layers, pp)
    else:
        stages = hw.stage_layers(layers, pp)
        assert sum(stages) == layers and len(stages) == pp and max(stages) - min(stages) <= 1


# Command line -------------------------------------------------------------------------------------------------------------


def test_show_prints_the_sheet(capsys):
    assert cli.main(["show", "deepseek-r1"]) == 0
    text = capsys.readouterr().out
    assert "671,026,419,200" in text and "36,625,618,432" in text and "70,272 byte" in text and "58 x MLA + MoE 8 of 256" in text


def test_show_as_json(capsys):
    assert cli.main(["show", "gpt-oss-120b", "--format", "json"]) == 0
    sheet = json.loads(capsys.readouterr().out)
    assert sheet["parameters"] == 116_829_156_672 == sum(sheet["parameters_by_part"].values())
    assert sheet["active_parameters_without_input_embedding"] == 5_132_849_472 and sheet["checkpoint_format"] == "mxfp4"


def test_show_refuses_in_one_line(capsys, tmp_path):
    bad = tmp_path / "config.json"
    bad.write_text('{"model_type": "llama"}')
    for path in (str(bad), str(tmp_path / "none.json"), str(tmp_path)):
        assert cli.main(["show", path]) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith("hwdesign: ") and said.err.count("\n") == 1


@pytest.mark.parametrize("name", config.names())
def test_every_sheet_is_complete_and_quick(name):
    start = time.perf_counter()
    text = hw.sheet_text(config.load(name))
    assert time.perf_counter() - start < 1 and f"{config.load(name).parameters:,}" in text
