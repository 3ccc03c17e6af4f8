"""Times of blocks and of stages, latent attention in chunks, and the published numbers of chapter 6."""

import csv
import dataclasses
import re
import warnings
from importlib import resources

import numpy as np
import pytest

import hwdesign as hw
from hwdesign import Exchange, Plan
from hwdesign.catalogue.published import chunked_prefills, rows
from hwdesign.formulas.pipeline import schedule
from hwdesign.models.steps import step
from hwdesign.timing.pipeline import block_times, stage_times

# Kinds of blocks in each: dense, MoE, hybrid, latent with dense layers in front, windowed.
MODELS = {"llama-3.1-8b": 1, "qwen3-30b-a3b": 1, "nemotron-3-nano-30b-a3b": 3, "deepseek-r1": 2, "gemma-3-27b": 2}
EIGHT = {"attention": Plan(tp=8), "ffn": Plan(tp=8)}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    found = hw.Model.from_config(request.param)
    assert len(set(found.blocks)) == MODELS[request.param]
    return found


# Blocks -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ideal", [True, False])
def test_blocks_and_the_rest_sum_to_a_prefill_step(model, ideal):
    context, cached, batch = np.array([512, 4096, 8192]), np.array([0, 0, 6000]), np.array([[1], [4]])
    blocks, rest = block_times(model, "H200", "fp8", context=context, cached=cached, batch=batch, ideal=ideal)
    done = hw.prefill_step(model, "H200", "fp8", batch=batch, context=context, cached=cached, ideal=ideal)
    assert blocks.shape == (len(model.blocks), 2, 3) and blocks.min() > 0
    assert np.allclose(blocks.sum(axis=0) + rest, done.seconds, rtol=1e-12, atol=0)
    for i, block in enumerate(model.blocks):  # equal blocks, equal times
        assert np.array_equal(blocks[i], blocks[model.blocks.index(block)])


@pytest.mark.parametrize("ideal", [True, False])
def test_with_all_but_one_token_cached_they_sum_to_a_decode_step(model, ideal):
    for context, batch in ((1, 1), (4096, 8), (32768, 64)):
        blocks, rest = block_times(model, "H200", "fp8", context=context, cached=context - 1, batch=batch, ideal=ideal)
        done = hw.decode_step(model, "H200", "fp8", batch=batch, context=context, ideal=ideal)
        assert blocks.shape == (len(model.blocks),) and np.ndim(rest) == 0
        assert blocks.sum() + rest == pytest.approx(done.seconds, rel=1e-12)


def test_options_reach_the_step():
    r1 = hw.Model.from_config("deepseek-r1")
    spread = {"attention": Plan(dp=32), "ffn": Plan(ep=32)}
    for options in (EIGHT, spread, EIGHT | {"wide": ("attention",)}, spread | {"engine": "sglang"}):
        gpus = options["attention"].gpus
        blocks, rest = block_times(r1, "GB300", "nvfp4", context=4096, batch=gpus, **options)
        done = hw.prefill_step(r1, "GB300", "nvfp4", batch=gpus, context=4096, **options)
        assert blocks.sum() + rest == pytest.approx(done.seconds, rel=1e-12)
        alone = block_times(r1, "GB300", "nvfp4", context=4096, batch=gpus)[0]
        assert not np.isclose(alone.sum(), blocks.sum(), rtol=1e-3)


def test_an_ideal_block_is_the_sum_of_its_products():
    llama = hw.Model.from_config("llama-3.1-8b")
    context, batch = 8192, 2
    tokens = batch * context
    blocks, rest = block_times(llama, "H200", "fp8", context=context, batch=batch, ideal=True)
    products = [(6144, 4096), (4096, 4096), (2 * 14336, 4096), (4096, 14336)]
    each = sum(hw.gemm_time(tokens, n, k, "H200", "fp8", ideal=True) for n, k in products)
    pairs = batch * context * (context + 1) / 2  # of a token and one that it sees
    peak = hw.device("H200").peak_flops("fp8")  # the cache is in FP8, too
    assert blocks == pytest.approx(np.full(32, each + 4 * 4096 * pairs / peak), rel=1e-9)
    assert rest == pytest.approx(hw.gemm_time(batch, 128256, 4096, "H200", "bf16", ideal=True), rel=1e-9)


def test_blocks_of_one_kind_outweigh_those_of_another():
    gemma, nano = hw.Model.from_config("gemma-3-27b"), hw.Model.from_config("nemotron-3-nano-30b-a3b")
    blocks = block_times(gemma, "H200", "bf16", context=32768, ideal=True)[0]
    windowed = np.array([bool(block.mixer.window) for block in gemma.blocks])
    assert windowed.sum() == 52 and blocks[~windowed].min() > 1.2 * blocks[windowed].max()
    kinds = {block.kind: seconds for block, seconds in zip(nano.blocks, block_times(nano, "H200", "fp8", context=131072,
             cached=131072 - 4096, ideal=True)[0], strict=True)}  # fmt: skip
    assert max(kinds, key=kinds.get) == "GQA" and len(kinds) == 3


def test_dense_layers_of_deepseek_r1_weigh_as_much_as_those_with_experts():
    r1 = hw.Model.from_config("deepseek-r1")
    dense, routed = r1.blocks[0], r1.blocks[3]
    assert r1.blocks.count(dense) == 3 and r1.blocks.count(routed) == 58 and r1.blocks[:3] == (dense,) * 3
    assert dense.ffn.width == 18432 == 9 * 2048 == (routed.ffn.top_k + 1) * routed.ffn.width

    def used(block):
        return sum(w.used * w.elements for w in block.weights(r1.hidden_size) if w.matmul)

    assert used(dense) < used(routed) < 1.01 * used(dense)
    blocks = block_times(r1, "H200", "fp8_block", context=32768, ideal=True)[0]
    assert blocks[3] == pytest.approx(blocks[0], rel=0.01) and blocks[3] > blocks[0]


# Stages -------------------------------------------------------------------------------------------------------------------

SIZES = [3000, 2048, 1000, 1]
ENDS = [3000, 5048, 6048, 6049]


@pytest.mark.parametrize("ideal", [True, False])
def test_stages_sum_to_a_prefill_step_for_each_chunk(model, ideal):
    n = len(model.blocks)
    split = [n // 3, 1, n - n // 3 - 1]
    times, send = stage_times(model, "H200", "fp8", sizes=SIZES, split=split, batch=2, ideal=ideal)
    done = hw.prefill_step(model, "H200", "fp8", batch=2, context=ENDS, cached=np.subtract(ENDS, SIZES), ideal=ideal)
    assert times.shape == (4, 3) and send.shape == (4,)
    assert np.allclose(times.sum(axis=1), done.seconds, rtol=1e-12, atol=0)


def test_each_stage_is_a_model_of_its_layers(model):
    n = len(model.blocks)
    split = [n // 4, n - n // 4 - 2, 2]
    times, _ = stage_times(model, "H200", "fp8", sizes=SIZES, split=split)
    cached = np.subtract(ENDS, SIZES)
    whole = hw.prefill_step(model, "H200", "fp8", batch=1, context=ENDS, cached=cached).seconds
    ends = np.cumsum([0, *split])
    rest = block_times(model, "H200", "fp8", context=ENDS, cached=cached)[1]
    for s in range(3):
        part = dataclasses.replace(model, blocks=model.blocks[ends[s] : ends[s + 1]])
        alone = hw.prefill_step(part, "H200", "fp8", batch=1, context=ENDS, cached=cached).seconds
        assert np.allclose(times[:, s], alone - (0 if s == 2 else rest), rtol=1e-9, atol=1e-12 * whole.max())


def test_one_stage_hands_nothing_over_and_needs_no_link():
    llama = hw.Model.from_config("llama-3.1-8b")
    times, send = stage_times(llama, "RTX_5090", "fp8", sizes=SIZES, split=[32], ideal=True)
    assert times.shape == (4, 1) and send.tolist() == [0] * 4
    with pytest.raises(ValueError, match="device must have a link .* RTX_5090 without one"):
        stage_times(llama, "RTX_5090", "fp8", sizes=SIZES, split=[16, 16], ideal=True)


def test_handing_over_takes_the_hidden_vectors_of_the_fullest_gpu():
    llama, link = hw.Model.from_config("llama-3.1-8b"), hw.device("H200").link_bandwidth
    split = [8, 8, 8, 8]
    one = stage_times(llama, "H200", "fp8", sizes=SIZES, split=split, ideal=True)[1]
    assert one == pytest.approx(np.array(SIZES) * 4096 * 2 / link)  # BF16
    eight = stage_times(llama, "H200", "fp8", sizes=SIZES, split=split, ideal=True, **EIGHT)[1]
    assert eight == pytest.approx(one / 8)
    plans = {"attention": Plan(dp=2), "ffn": Plan(tp=2)}
    five = stage_times(llama, "H200", "fp8", sizes=SIZES, split=split, batch=5, ideal=True, **plans)[1]
    assert five == pytest.approx(3 * one)  # three sequences on one, two on the other
    timed = stage_times(llama, "H200", "fp8", sizes=SIZES, split=split, batch=5, **plans)[1]
    handed = Exchange(kind="send", elements=3.0 * np.array(SIZES) * 4096, ranks=2)
    assert np.array_equal(timed, hw.exchange_time(handed, "H200", "fp8")) and (timed > five).all()


def test_a_pipeline_of_stages_ends_where_its_schedule_says():
    llama = hw.Model.from_config("llama-3.1-8b")
    times, send = stage_times(llama, "H200", "fp8", sizes=[1024] * 16, split=[9, 8, 8, 7])
    whole = hw.prefill_step(llama, "H200", "fp8", batch=1, context=16384).seconds
    last = schedule(times, send=send)[1][-1, -1]
    assert whole / 4 < last < 0.6 * whole and last > times[:, 0].sum() + times[-1, 1:].sum() + 3 * send[-1] - 1e-12


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"split": [16, 15]}, r"split must sum to the 32 layers of .*, got 31 for \[16, 15\]"),
        ({"split": [16, 8, 9]}, r"split must sum to the 32 layers of .*, got 33 for"),
        ({"split": [32, 0]}, r"split\[1\] must be >= 1, got 0"),
        ({"split": [15.5, 16.5]}, r"split\[0\] must be a whole number, got 15.5"),
        ({"split": [[16], 16]}, r"split\[0\] must be one number, got \[16\]"),
        ({"sizes": [512, 0]}, "sizes must be >= 1, got 0"),
        ({"sizes": [512, 0.5]}, "sizes must be >= 1, got 0.5"),
        ({"sizes": [512, 1.5]}, "sizes must be a whole number, got 1.5"),
        ({"batch": 0}, "batch must be >= 1, got 0"),
        ({"attention": Plan(pp=2), "ffn": Plan(pp=2)}, "attention and ffn must be plans of one stage, pp = 1, got pp = 2 and 2"),
        ({"attention": Plan(pp=2)}, "attention and ffn must be plans of one stage, pp = 1, got pp = 2 and 1"),
        ({"ffn": Plan(pp=4)}, "attention and ffn must be plans of one stage, pp = 1, got pp = 1 and 4"),
        ({"attention": Plan(tp=2)}, "attention and ffn must use the same GPUs, got 2 and 1"),
        ({"attention": Plan(tp=3), "ffn": Plan(tp=3)}, "attention tp must divide query heads = 32, got 3"),
        ({"wide": ("atention",)}, "'atention'; did you mean 'attention'"),
    ],
)
def test_what_is_no_pipeline_is_refused(options, says):
    llama = hw.Model.from_config("llama-3.1-8b")
    with pytest.raises(ValueError, match=says):
        stage_times(llama, "H200", "fp8", **{"sizes": [512, 512], "split": [16, 16]} | options)


def test_what_is_no_step_is_refused():
    llama = hw.Model.from_config("llama-3.1-8b")
    with pytest.raises(ValueError, match="cached must be below context, got 512 and 512"):
        block_times(llama, "H200", "fp8", context=512, cached=512)
    with pytest.raises(ValueError, match="device must be one of"):
        block_times(llama, "H201", "fp8", context=512)
    with pytest.raises(ValueError, match="precision must be one H200 has a dense peak for"):
        block_times(llama, "H200", "nvfp4", context=512)


# Latent attention in chunks -----------------------------------------------------------------------------------------------


def rows_of(model, name, **options):
    (found,) = {np.asarray(g.m).tobytes(): g.m for g in step(model, **options).gemms if g.name == name}.values()
    return found


def test_each_chunk_expands_the_latents_of_all_cached_tokens():
    r1 = hw.Model.from_config("deepseek-r1")
    chunk = {"batch": 2, "context": 8192, "new_tokens": 2048}
    assert rows_of(r1, "kv up", **chunk) == 2 * 8192
    assert {rows_of(r1, name, **chunk) for name in ("kv down", "q down", "q up", "attention output")} == {2 * 2048}
    assert rows_of(r1, "kv up", batch=2, context=8192, new_tokens=8192) == 2 * 8192
    many = rows_of(r1, "kv up", batch=1, context=np.array([1024, 2048, 3072]), new_tokens=1024)
    assert many.tolist() == [1024, 2048, 3072]
    spread = {"attention": Plan(dp=2), "ffn": Plan(ep=2)}
    assert rows_of(r1, "kv up", batch=3, context=8192, new_tokens=2048, **spread) == 2 * 8192  # of three sequences


def test_a_decode_step_expands_none():
    r1 = hw.Model.from_config("deepseek-r1")
    for batch in (1, 64):
        assert rows_of(r1, "kv up", batch=batch, context=8192) == rows_of(r1, "kv down", batch=batch, context=8192) == batch
    assert step(r1, batch=64, context=8192).gemm_flops == pytest.approx(2 * 64 * r1.matmul_parameters, rel=1e-12)


@pytest.mark.parametrize("name", ["deepseek-r1", "deepseek-v3"])
def test_whole_prompts_cost_two_flop_a_parameter_and_chunks_what_they_expand_again(name):
    model = hw.Model.from_config(name)
    head = model.vocab_size * model.hidden_size
    mixer = model.blocks[0].mixer
    latent = sum(b.mixer.num_heads * (b.mixer.nope_dim + b.mixer.v_dim) * b.mixer.kv_rank for b in model.blocks)
    assert mixer.num_heads * (mixer.nope_dim + mixer.v_dim) == 128 * 256 and latent == 61 * 128 * 256 * 512
    for batch, context in ((1, 1000), (3, 4096)):
        whole = step(model, batch=batch, context=context, new_tokens=context).gemm_flops
        wanted = 2 * batch * ((model.matmul_parameters - head) * context + head)
        assert whole == pytest.approx(wanted, rel=1e-12)
        new = context // 4
        chunk = step(model, batch=batch, context=context, new_tokens=new).gemm_flops
        once = 2 * batch * ((model.matmul_parameters - head) * new + head)
        assert chunk - once == pytest.approx(2 * batch * latent * (context - new), rel=1e-9)


def test_models_without_a_latent_do_not_care_what_is_cached():
    llama = hw.Model.from_config("llama-3.1-8b")
    flops = step(llama, batch=1, context=np.array([1000, 8000]), new_tokens=1000).gemm_flops
    assert flops == pytest.approx(2 * (1000 * (llama.matmul_parameters - 128256 * 4096) + 128256 * 4096), rel=1e-12)


def test_more_chunks_of_a_latent_prompt_take_more_projections():
    r1, totals = hw.Model.from_config("deepseek-r1"), {}
    for chunks in (1, 2, 8):
        size = 16384 // chunks
        ends = size * np.arange(1, chunks + 1)
        done = hw.prefill_step(r1, "H200", "fp8_block", batch=1, context=ends, cached=ends - size, ideal=True)
        totals[chunks] = done.terms["projections"].sum()
        once = stage_times(r1, "H200", "fp8_block", sizes=[size] * chunks, split=[61], ideal=True)[0]
        assert np.allclose(once[:, 0], done.seconds, rtol=1e-12)
    latent = 2 * 61 * 128 * 256 * 512 / hw.device("H200").peak_flops("fp8")  # of a token [s]
    for chunks in (2, 8):
        again = 16384 * (chunks - 1) / 2  # tokens that are expanded once more
        assert totals[chunks] - totals[1] == pytest.approx(latent * again, rel=1e-6)


# The catalogue ------------------------------------------------------------------------------------------------------------

QWEN, DEEPSEEK = "Qwen3-235B-A22B-FP8", "DeepSeek-V3.1"


def values(model, quantity):
    found = [x for x in chunked_prefills() if (x["model"], x["quantity"]) == (model, quantity)]
    return {(x["tp"], x["pp"], x["cut"], x["first"] if x["first"] > 0 else 0, x["tokens"]): x["value"] for x in found}


def test_published_times_of_chunked_prompts_are_as_printed():
    assert values(QWEN, "seconds") == {
        (4, 8, "", 0, 2**17): 10.54, (4, 8, "", 0, 2**18): 32.68, (4, 8, "", 0, 2**19): 114.33, (4, 8, "", 0, 2**20): 420.91,
        (4, 1, "", 0, 2**17): 55.5,
    }  # fmt: skip
    assert values(DEEPSEEK, "seconds") == {(8, 1, "", 0, 2**17): 48.5, (8, 4, "", 0, 2**17): 15.5}
    short = [[seconds for key, seconds in values(name, "seconds").items() if key[-1] == 2**17] for name in (QWEN, DEEPSEEK)]
    saved = [1 - min(pair) / max(pair) for pair in short]
    assert saved == pytest.approx([0.811, 0.679], abs=2e-3)  # printed: 81.1 and 67.9 %


def test_published_speedups_are_as_printed_or_follow_from_what_is():
    assert values(DEEPSEEK, "speedup") == {
        (8, 4, "dynamic", 12288, 2**17): 3.31, (8, 4, "fixed", 4096, 2**17): 3.20, (8, 4, "fixed", 12288, 2**17): 3.007,
        (32, 1, "fixed", 12288, 2**17): 2.54,
    }  # fmt: skip
    assert values(QWEN, "speedup") == {(4, 8, "dynamic", 18432, 2**17): 6.14, (4, 8, "fixed", 6144, 2**17): 5.568}
    said = {(x["model"], x["cut"], x["first"], x["pp"]): x["value"] for x in chunked_prefills()}
    fixed = said[DEEPSEEK, "fixed", 12288, 4], said[QWEN, "fixed", 6144, 8]
    assert fixed == pytest.approx((2.54 * 1.184, 8 * 0.696), abs=5e-4)
    dynamic = said[DEEPSEEK, "dynamic", 12288, 4], said[QWEN, "dynamic", 18432, 8]
    assert dynamic[0] / 2.54 == pytest.approx(1.305, abs=4e-3)  # printed: 30.5 %
    assert np.divide(dynamic, (4, 8)) == pytest.approx((0.828, 0.769), abs=2e-3)  # printed: 82.8 and 76.9 %
    smooth = {x["first"]: x["smooth"] for x in chunked_prefills() if x["cut"] == "dynamic" and x["device"] == "H20"}
    assert smooth == {12288: 0.65, 18432: 0.8}


def test_rows_are_whole_and_only_how_a_prompt_was_cut_is_unknown():
    found = chunked_prefills()
    assert len(found) == 18 and found is chunked_prefills() and isinstance(found, tuple)
    wanted = {"model", "device", "tp", "pp", "cut", "first", "smooth", "tokens", "quantity", "value", "note", "source"}
    for x in found:
        assert set(x) == wanted and all(isinstance(value, str | float) for value in x.values())
        assert np.log2(x["tokens"]).is_integer() and 2**17 <= x["tokens"] <= 2**20 and x["note"]
        if x["device"] != "H20":
            assert x["device"] in ("GB300", "GB200") and x["quantity"] in ("seconds", "kernel") and 0.2 < x["value"] < 20
            assert "2026-02-19-gb300-longctx.md" in x["source"]
            continue
        assert x["model"] in (QWEN, DEEPSEEK) and x["quantity"] in ("seconds", "speedup")
        assert x["tp"] * x["pp"] in (4, 8, 32)
        assert 0 < x["value"] < 500 and (x["quantity"] == "seconds" or 1 < x["value"] < x["tp"] * x["pp"] / 4)
        assert {n for n, v in x.items() if v != v} == {"": {"first", "smooth"}, "fixed": {"smooth"}, "dynamic": set()}[x["cut"]]
        assert (x["quantity"] == "seconds") == (x["cut"] == "")
        assert re.search(r"lm-sys/lm-sys.github.io@0d43c00, blog/2026-01-15-chunked-pipeline.md", x["source"])
    with pytest.raises(TypeError):
        found[0]["value"] = 1


def test_longer_prompts_take_more_than_their_share():
    seconds = list(values(QWEN, "seconds").values())[:4]
    assert all(2 < b / a < 4 for a, b in zip(seconds, seconds[1:], strict=False))  # between linear and quadratic


def test_rows_of_a_table_read_numbers_and_repeat_sources():
    text = resources.files("hwdesign.catalogue").joinpath("chunked_pipeline.csv").read_text(encoding="utf-8")
    plain = list(csv.DictReader(text.splitlines()))
    found = list(rows("chunked_pipeline.csv"))
    assert len(found) == len(plain) == 18 and plain[1]["source"] == "same" != found[1]["source"] == plain[0]["source"]
    for read, row in zip(found, plain, strict=True):
        assert list(read) == list(row)
        for key in ("model", "device", "cut", "quantity", "note"):
            assert read[key] == row[key]
        for key in ("tp", "pp", "first", "smooth", "tokens", "value"):
            assert read[key] == float(row[key]) if row[key] else np.isnan(read[key])
    with pytest.raises(ValueError, match="file must be one of .*did you mean 'chunked_pipeline.csv'"):
        list(rows("chunked_pipelines.csv"))


def test_measured_devices_and_formats_give_no_warning():
    llama = hw.Model.from_config("llama-3.1-8b")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stage_times(llama, "H200", "fp8", sizes=[512], split=[16, 16])
        block_times(llama, "H200", "fp8", context=512)


@pytest.mark.parametrize("device", ["GB300", "H100_SXM"])
@pytest.mark.parametrize("name", ["deepseek-r1", "llama-3.1-70b"])
def test_chunks_of_attention_add_up_to_the_whole_where_they_fill_the_gpu(device, name):
    model, whole = hw.Model.from_config(name), 262144
    recipe = "nvfp4" if device == "GB300" else "fp8"
    one = hw.prefill_step(model, device, recipe, batch=1, context=whole).terms["attention"]
    for c, most in ((65536, 1.01), (8192, 1.05), (1024, 1.3)):
        ends = np.arange(c, whole + 1, c)
        parts = hw.prefill_step(model, device, recipe, batch=1, context=ends, cached=ends - c).terms["attention"].sum()
        assert 0.99 < parts / one < most, (c, parts / one)  # a chunk of few tiles leaves a last wave, never more than one
