"""Kinds with states, indexers, compressed caches and latent experts: what a step multiplies, keeps and says of itself."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import config_2026

import hwdesign as hw
from hwdesign.models import config
from hwdesign.models.blocks import Block, DenseFFN
from hwdesign.models.compressed import CompressedAttention, SharedEntryAttention
from hwdesign.models.indexer import Indexer
from hwdesign.models.linear import GatedDeltaNet, ParallelMixers
from hwdesign.models.rarer_blocks import PairedLatentAttention, RoutedAttention
from hwdesign.models.residual import AlternatingUpdates
from hwdesign.models.shared_cache import CrossAttention, SharedCacheAttention

DATA = Path(__file__).parent / "data"
KINDS = {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "deepseek_v32", "glm_moe_dsa", "nemotron_h", "kimi_linear", "minimax",
         "minimax_m3_vl_text", "deepseek_v4", "falcon_h1", "bamba", "granitemoehybrid", "jamba", "lfm2", "lfm2_moe",
         "glm5_next_text", "gemma3n_text", "gemma4_text", "mllama_text_model", "bailing_hybrid", "bailing_moe_linear",
         "olmo_hybrid", "laguna", "deepseek_v41", "longcat_flash_ngram", "step3_text", "jet_nemotron",
         "recurrent_gemma", "jetmoe", "zaya", "axk2", "zamba",
         "zamba2", "ernie4_5_vl_moe_text", "qwen4_exp_text", "inkling_text", "hrm_text", "dory", "mistral_large4", "molmo2_text",
         "dots3_note_text", "modernbert-decoder"}  # fmt: skip
FILES = ("class_defaults_2026.csv", "class_defaults_more.csv")
ROWS = [row for name in FILES for row in csv.DictReader((DATA / name).open(encoding="utf-8")) if row["model_type"] in KINDS]
FIRST = [row for i, row in enumerate(ROWS) if i == 0 or ROWS[i - 1]["model_type"] != row["model_type"]]


def shown(name):
    return config.load(config_2026(name))


@pytest.mark.parametrize("row", FIRST, ids=lambda row: row["model_type"])
def test_a_token_is_multiplied_by_each_matrix_once_and_each_gpu_holds_its_share(row):
    model = config.load(json.loads(row["config"]))
    done = hw.step(model, batch=1, context=5000)
    assert done.gemm_flops == pytest.approx(2 * model.matmul_parameters, rel=1e-12)
    one = hw.decode_step(model, "B200", "bf16", batch=8, context=4096)
    two = hw.decode_step(model, "B200", "bf16", batch=8, context=4096, attention=hw.Plan(tp=2), ffn=hw.Plan(tp=2))
    assert one.memory / 2 <= two.memory <= one.memory
    weights = sum(model.weight_bytes("bf16").values()) + 8 * (model.kv_bytes(4096) + model.state_bytes())
    assert one.memory == pytest.approx(weights, rel=1e-9)


@pytest.mark.parametrize("row", FIRST, ids=lambda row: row["model_type"])
def test_it_is_judged_and_its_siblings_are_of_its_kind(row):
    model = config.load(json.loads(row["config"]))
    plan = hw.Plan(tp=2)
    found = hw.checklist(hw.Case(model=model, device="B200", attention=plan, ffn=plan, batch=8))
    assert all(verdict.status != "not modelled" for verdict in found.verdicts)
    for mixer in {block.mixer for block in model.blocks if block.mixer}:
        assert type(mixer.scaled(1.5, 2)) is type(mixer) and all(type(m) is type(mixer) for m in mixer.heads_near(6))
        assert mixer.heads_spread(1) and {side.part for side in mixer.sides(plan, plan)} <= {"attention", "mamba"}


@pytest.mark.parametrize(("model_type", "said"), [
    ("deepseek_v41", "compressed attention has no table"),
    ("minimax", "lightning attention has no table"),
    ("jamba", "Mamba-1 has no table"),
])  # fmt: skip
def test_a_kind_without_a_table_says_so(model_type, said):
    model = config.load(json.loads(next(row["config"] for row in ROWS if row["model_type"] == model_type)))
    step = hw.decode_step(model, "B200", "fp8", batch=8, context=8192)
    assert not step.calibrated and any(note.startswith(said) for note in step.notes)
    assert f"uncalibrated: {said}" in str(step)
    ideal = hw.decode_step(model, "B200", "fp8", batch=8, context=8192, ideal=True)
    assert ideal.notes == () and ideal.seconds < step.seconds


def test_sparse_attention_scores_all_tokens_and_reads_the_best():
    model = shown("deepseek-ai--DeepSeek-V3.2")
    done = hw.step(model, batch=2, context=65536)
    by_kind = {work.kind: work for work in done.work}
    scores, read = by_kind["an indexer"], by_kind["sparse attention"]
    assert scores.flops == 2 * 2 * 64 * 128 * 65536 and scores.cache_elements == 2 * 65536 * 128
    assert read.flops == 2 * 2 * 128 * (576 + 512) * 2048 and read.cache_elements == 2 * 2048 * 576
    short = {work.kind: work for work in hw.step(model, batch=1, context=1000).work}
    assert short["sparse attention"].cache_elements == 1000 * 576  # no more than there are


def test_layers_that_share_an_index_have_neither_weights_nor_cache():
    five, three = shown("zai-org--GLM-5.1"), shown("zai-org--GLM-5.3")
    indexer = 32 * 128 * 2048 + 128 * 6144 + 2 * 128 + 32 * 6144
    assert five.parameters - three.parameters == 57 * indexer
    assert (five.indexer_bytes_per_token(), three.indexer_bytes_per_token()) == (78 * 256, 21 * 256)
    assert five.kv_bytes(1000) - five.kv_bytes_per_token() * 1000 == 78 * 256 * 1000
    assert "indexer cache a token (BF16): 5,376 byte" in hw.sheet_text(three)
    works = [work.count for work in hw.step(three, batch=1, context=9000).work if work.kind == "an indexer"]
    assert sum(works) == 21


def test_compressed_caches_keep_a_window_and_one_entry_for_each_run_of_tokens():
    model = shown("deepseek-ai--DeepSeek-V4-Flash")
    context = 2**20
    window, entries = 43 * 512 * 2 * 128, (21 * 512 / 4 + 20 * 512 / 128) * 2 * context
    assert model.kv_bytes(context) == window + entries + 21 * 128 / 4 * 2 * context
    assert sum(model.weight_bytes().values()) == pytest.approx(156e9, rel=0.01)  # experts in FP4, the rest in FP8
    assert dict(model.formats)["experts"] == (("mxfp4_w4a8", 1.0),)
    works = hw.step(model, batch=1, context=context).work
    assert sum(work.count * work.cache_elements for work in works if work.size == 1024) == pytest.approx(
        43 * 128 * 512 + 21 * 512 * 512 + 20 * context / 128 * 512
    )
    refused = hw.Plan(tp=16)
    with pytest.raises(ValueError, match="attention tp must divide output groups = 8, got 16"):
        hw.step(model, batch=1, context=10, attention=refused, ffn=hw.Plan(ep=16))


def test_latent_experts_work_on_the_latent_and_send_it():
    model = shown("nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8")
    plans = {"attention": hw.Plan(dp=8), "ffn": hw.Plan(ep=8)}
    done = hw.step(model, batch=64, context=100, **plans)
    assert {work.hidden for work in done.experts} == {1024}
    dispatch = next(x for x in done.exchanges if x.kind == "dispatch")
    wide = replace(model, blocks=tuple(replace(b, ffn=b.ffn and replace(b.ffn, latent=0)) for b in model.blocks))
    assert next(x for x in hw.step(wide, batch=64, context=100, **plans).exchanges if x.kind == "dispatch").elements == 4 * (
        dispatch.elements
    )


def test_each_stage_hands_on_all_residual_streams():
    model = shown("deepseek-ai--DeepSeek-V4-Flash")
    plan = hw.Plan(pp=2)
    load = {"batch": 8, "context": 4096, "attention": plan, "ffn": plan, "ideal": True}
    four, one = (
        hw.decode_step(m, "B200", "fp8", **load)
        for m in (model, replace(model, blocks=tuple(replace(b, residual=None) for b in model.blocks), closing=()))
    )
    sent = 4 * 4096 * 2 / hw.device("B200").link_bandwidth
    assert four.terms["communication"] - one.terms["communication"] == pytest.approx(3 * sent)
    assert model.streams == 4 and hw.Model.from_config("gpt2").streams == 1


def test_key_heads_limit_the_ways_of_a_delta_net():
    net = GatedDeltaNet(num_heads=128, key_heads=16, key_dim=128, head_dim=128, conv=4)
    assert net.heads_spread(16) and not net.heads_spread(32)
    model = shown("Qwen--Qwen3.8-2.4T-A95B")
    with pytest.raises(ValueError, match="attention tp \\* kvp must divide linear key heads = 16, got 32"):
        hw.step(model, batch=1, context=10, attention=hw.Plan(tp=32), ffn=hw.Plan(ep=32))


@pytest.mark.parametrize(("make", "said"), [
    (lambda: GatedDeltaNet(num_heads=30, key_heads=16, key_dim=8, head_dim=8, conv=4), "multiple of key_heads 16"),
    (lambda: PairedLatentAttention(num_heads=8, q_rank=None, kv_rank=8, nope_dim=8, rope_dim=0, v_dim=8),
     "q_rank must be given"),
    (lambda: RoutedAttention(num_heads=8, num_kv_heads=2, head_dim=8, num_experts=8, top_k=2), "num_kv_heads \\* top_k = 4"),
    (lambda: RoutedAttention(num_heads=4, num_kv_heads=2, head_dim=8, num_experts=8, top_k=2, sinks=True), "sinks must be"),
    (lambda: CompressedAttention(num_heads=8, head_dim=8, q_rank=8, window=8, out_groups=3, out_rank=8), "out_groups must"),
    (lambda: CompressedAttention(num_heads=8, head_dim=8, q_rank=8, window=8, out_groups=2, out_rank=8, index_heads=2),
     "index_heads must come with ratio"),
    (lambda: ParallelMixers(first="attention", second=None), "first must be a Mixer"),
    (lambda: CrossAttention(num_heads=8, num_kv_heads=2, head_dim=8, tokens=9, window=4), "window must be None in cross"),
    (lambda: SharedCacheAttention(num_heads=8, num_kv_heads=2, head_dim=8, indexer=Indexer(num_heads=2, head_dim=8, top_k=8)),
     "indexer must be None with a shared cache"),
    (lambda: SharedEntryAttention(num_heads=8, head_dim=8, q_rank=8, window=8, out_groups=2, out_rank=8, keeps=True),
     "keeps and picks must come with ratio and index_heads"),
    (lambda: AlternatingUpdates(streams=4, rank=8, inputs=4), "inputs must be PerLayerInputs or None"),
    (lambda: hw.Block(mixer=None, ffn=None, residual=4), "residual must be HyperConnections, AttentionResidual or None"),
])  # fmt: skip
def test_shapes_that_do_not_fit_are_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize(("name", "layers", "parameters"), [
    ("Qwen--Qwen3.5-27B", 1, 424_699_392),
    ("Qwen--Qwen3.5-397B-A17B", 1, 6_595_568_128),  # published
    ("Qwen--Qwen3.8-2.4T-A95B", 1, 26_378_027_520),
    ("deepseek-ai--DeepSeek-V3.2", 1, 11_624_027_648),
    ("zai-org--GLM-5.3", 1, 9_952_920_576),  # published
    ("deepseek-ai--DeepSeek-V4-Flash", 1, 6_610_048_891),  # published
    ("nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8", 1, 2_942_325_248),
])  # fmt: skip
def test_a_prediction_layer_is_named_with_its_parameters(name, layers, parameters):
    """Sums from SGLang's draft classes, without the copies of embedding and head."""
    assert f"{layers} prediction layer ({layers * parameters:,} parameters)" in shown(name).left_out


def test_a_prediction_layer_of_a_list_is_no_layer_of_the_model():
    """`mtp.layers.0*` names the draft, not layer 0, in NVIDIA's checkpoint of Qwen3.6."""
    model = shown("nvidia--Qwen3.6-35B-A3B-NVFP4")
    assert model.quantization == "nvfp4_w4a16" and {"experts", "attention"} <= set(dict(model.formats))


def rows_of(kind):
    return [config.load(json.loads(row["config"])) for row in ROWS if row["model_type"] == kind]


def test_a_prompt_may_be_longer_than_an_image():
    """Each of 8,000 tokens sees the 1,601 of an image of one tile: 2 FLOP a number of keys and values, 4 heads of 16."""
    shape = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 16}
    block = Block(mixer=CrossAttention(**shape, tokens=1601), ffn=DenseFFN(width=64))
    model = hw.Model(name="seeing", hidden_size=64, vocab_size=128, blocks=(block,))
    done = hw.step(model, batch=3, context=8000, new_tokens=8000)
    assert [work.flops for work in done.work] == [3 * 8000 * 1601 * 4 * 2 * (16 + 16)]
    assert [work.context for work in done.work] == [1601]


def test_layers_that_share_a_cache_read_it_and_keep_nothing():
    model = rows_of("gemma3n_text")[0]  # E4B: 15 of 35 layers share, 7 of 35 are full
    done = hw.step(model, batch=2, context=5000)
    assert sum(work.count for work in done.work) == 35
    token = 2 * 2 * 256
    assert sum(work.count * work.cache_elements for work in done.work) == 2 * token * (7 * 5000 + 28 * 512)
    assert model.kv_bytes(5000) == 2 * token * (4 * 5000 + 16 * 512)
    names = [(gemm.name, gemm.count) for gemm in done.gemms if gemm.name in ("q", "qkv")]
    assert sum(count for name, count in names if name == "q") == 15 and sum(count for _, count in names) == 35
    assert model.streams == 4  # residual streams that a stage hands on


def test_tables_take_memory_and_no_time_and_are_cut_like_the_embedding():
    model = rows_of("gemma3n_text")[0]
    table = 262144 * 35 * 256
    bare = replace(model, closing=tuple(weight for weight in model.closing if weight.elements != table))
    assert model.parameters - bare.parameters == table
    for tp in (1, 2):
        plan = hw.Plan(tp=tp)
        load = {"batch": 4, "context": 1000, "attention": plan, "ffn": plan}
        full, less = (hw.decode_step(m, "B200", "bf16", **load) for m in (model, bare))
        assert full.memory - less.memory == pytest.approx(2 * table / tp) and full.seconds == less.seconds


def test_few_layers_keep_entries_and_few_choose_among_them():
    model = rows_of("deepseek_v41")[0]
    context = 2**20
    entries = (3 * 512 / 2 + 512) * 2 * context
    assert model.kv_bytes(context) == 40 * 512 * 2 * 128 + entries + (3 * 128 / 2 + 128) * 2 * context
    works = hw.step(model, batch=1, context=context).work
    scores = [work for work in works if work.kind == "an indexer"]
    assert sum(work.count for work in scores) == 8
    assert sum(work.count for work in works if work.kind == "compressed attention") == 40 + 38
    engrams = [block for block in model.blocks if type(block.residual).__name__ == "Engram"]
    assert len(engrams) == 2 and sum(block.residual.rows for block in engrams) * 256 == 196_613_849_600
