"""Models of 2025 and 2026: every count of their configs equals that of independent oracles, to the last digit.

`data/params_2026.csv`: text part, without prediction layers; its columns `oracle` and `confidence` say who counted and
whether they agree. State in bytes: FP32 matrices, BF16 convolutions; caches BF16.
"""

import csv
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from conftest import config_2026

import hwdesign as hw
from hwdesign.models import config

DATA = Path(__file__).parent / "data"
ROWS = list(csv.DictReader((DATA / "params_2026.csv").open(encoding="utf-8")))


def values(name):
    return json.loads(config_2026(name).read_text(encoding="utf-8"))


def figures(model):
    mixers = [block.mixer for block in model.blocks if block.mixer]
    near = [mixer for mixer in mixers if mixer.window]
    kept = [cache for mixer in mixers for cache in mixer.caches]
    return {
        "total_main": model.parameters,
        "active_incl_embedding": model.active_parameters(include_embedding=True),
        "active_excl_embedding": model.active_parameters(include_embedding=False),
        "kv_bytes_per_token_full_bf16": 2 * sum(elements for elements, window in kept if not window),
        "window_layers": len(near),
        "window": near[0].window if near else None,
        "kv_bytes_per_token_window_bf16": 2 * sum(elements for elements, window in kept if window),
        "indexer_bytes_per_token": model.indexer_bytes_per_token(),
        "state_bytes_per_sequence": int(model.state_bytes()),
    }


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_a_config_equals_its_oracles(row):
    found = figures(config.load(config_2026(row["name"])))
    assert {key: found[key] for key in found if row[key]} == {key: int(row[key]) for key in found if row[key]}


def test_prediction_layers_that_are_left_out_have_their_size():
    """By hand from the draft classes of engines; GLM-5.3-Flash's makes the published 321.3 B with the main part and its tower."""
    told = {row["name"]: " ".join(config.load(config_2026(row["name"])).left_out) for row in ROWS}
    sized = {name: re.search(r"\(([0-9,]+) parameters", words) for name, words in told.items() if "prediction" in words}
    known = {row["name"]: int(row["mtp_params"]) for row in ROWS if sized.get(row["name"])}
    assert known == {name: int(found[1].replace(",", "")) for name, found in sized.items() if found} and len(known) == 18
    assert [name for name, found in sized.items() if not found] == [
        "stepfun-ai--Step-3.7-Flash", "stepfun-ai--Step-3.7-Flash--released-shape", "MiniMaxAI--MiniMax-M3",
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "total", "near", "head"), [
    ("gemma-3-4b-it", 3880263168, 29, (8, 4, 256)),  # cases C10 and C11: quoted class defaults
    ("gemma-3-12b-it", 11766034176, 40, (16, 8, 256)),
])  # fmt: skip
def test_a_sparse_config_takes_the_defaults_of_its_class(name, total, near, head):
    model = config.load(values(name))
    mixers = [block.mixer for block in model.blocks]
    assert model.parameters == total and sum(mixer.window == 1024 for mixer in mixers) == near
    assert {(mixer.num_heads, mixer.num_kv_heads, mixer.head_dim) for mixer in mixers} == {head}


def test_a_quantization_inside_the_text_config_and_one_of_experts_alone():
    kimi = hw.Model.from_config(values("moonshotai--Kimi-K2.5"))
    assert kimi.quantization == "w4a16_g32" and dict(kimi.formats)["experts"] == (("w4a16_g32", 1.0),)
    assert dict(kimi.formats)["attention"] == (("bf16", 1.0),)
    gemma = hw.Model.from_config(values("nvidia--Gemma-4-26B-A4B-NVFP4"))
    assert gemma.quantization == "nvfp4" and dict(gemma.formats)["shared experts"] == (("bf16", 1.0),)


def rows(name):
    return list(csv.DictReader((DATA / name).open(encoding="utf-8")))


MORE = rows("class_defaults_more.csv")


def test_class_defaults_and_changed_ones_equal_the_module_trees():
    """Three configs a type or more, the first with the defaults of its class or the shape of a published model; counted by
    transformers on the meta device, or by mlx-lm and mlx-vlm for types that it has not. The correction of A.X-K1's router,
    which no checkpoint holds, and the towers of Phi-4-multimodal are taken off; the shapes of chatglm were counted as the
    class glm, those of MiniCPM-V and -o as the class of their text part. Rows of vLLM and SGLang: their module trees, built on
    the meta device with layers that hold nothing but their parameters."""
    for row in MORE:
        model = config.load(json.loads(row["config"]))
        assert model.parameters == int(row["total"]), row
        near = sum(bool(block.mixer and block.mixer.window) for block in model.blocks)
        assert row["window_layers"] in ("", str(near)), row
    assert len({row["model_type"] for row in MORE}) == 53


@pytest.mark.parametrize("row", rows("cache_layers_more.csv"), ids=lambda row: row["model_type"])
def test_each_layer_keeps_what_mlx_keeps(row):
    """Elements of a token, the window or 0, and how many layers keep them, in caches that mlx-lm filled; the state of all
    layers, without the numbers of the last tokens that LongCat keeps for its n-grams."""
    mixers = [block.mixer for block in config.load(json.loads(row["config"])).blocks]
    kept = Counter((elements, window or 0) for mixer in mixers for elements, window in mixer.caches if elements)
    assert sorted([*cache, count] for cache, count in kept.items()) == json.loads(row["caches"])
    assert sum(sum(mixer.state_elements) for mixer in mixers) == int(row["state"])


@pytest.mark.parametrize(("row", "name", "layers"), [(MORE[0], 4, 35), (MORE[1], 2, 30)])
def test_gemma_3n_counts_what_a_token_uses(row, name, layers):
    """E4B and E2B are called after what a token uses: of the table of inputs of all layers it reads one row. Of their
    layers 20 keep a cache, 16 of them in a window of 512; the others read those of the last two."""
    model = config.load(json.loads(row["config"]))
    kept = [mixer for mixer in (block.mixer for block in model.blocks) if mixer.cache_elements]
    assert len(model.blocks) == layers and len(kept) == 20 and sum(mixer.window == 512 for mixer in kept) == 16
    used = model.active_parameters(include_embedding=True)
    assert model.parameters - used == 262144 * layers * 256 and round(used / 1e9) == name
    assert model.kv_bytes(100_000) == 2 * 2 * 2 * 256 * (4 * 100_000 + 16 * 512)
    unused = (layers - 20) * (2 * 2048 * 512 + 256)
    assert model.left_out == (f"keys and values of {layers - 20} layers that read the cache of others "
                              f"({unused:,} parameters, if the checkpoint has them)",)  # fmt: skip


def test_adapters_are_named_with_their_parameters():
    """Phi-4-multimodal: 370 M and 460 M beside 3.8 B (arXiv 2503.01743)."""
    text = {"model_type": "phi4mm", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "vocab_size": 200064,
            "num_attention_heads": 24, "num_key_value_heads": 8, "tie_word_embeddings": True}  # fmt: skip
    beside = r"layers.*((self_attn\.(qkv_proj|o_proj))|(mlp\.(gate_up|down)_proj))"
    adapters = {f"{name}_lora": {"r": rank, "layer": beside, "lora_alpha": 512, "dp": 0.0} for name, rank in
                (("vision", 256), ("speech", 320))}  # fmt: skip
    model = config.load(text | adapters)
    assert model.parameters == 3836021760 and model.left_out == (
        "vision adapter of rank 256 (369,098,752 parameters)", "speech adapter of rank 320 (461,373,440 parameters)")  # fmt: skip


def test_an_image_is_kept_once_however_long_the_text():
    """Llama-3.2-11B-Vision: 9.78 B in its text part, 6,404 tokens of an image of four tiles in eight layers."""
    text = {**json.loads(next(row["config"] for row in MORE if row["model_type"] == "mllama_text_model"))}
    vision = {"image_size": 560, "patch_size": 14, "max_num_tiles": 4}
    model = config.load({"model_type": "mllama", "text_config": text, "vision_config": vision})
    assert model.parameters == 9775192080 and model.kv_bytes_per_token() == 32 * 2 * 8 * 128 * 2
    image = 8 * 6404 * 2 * 8 * 128 * 2
    assert model.kv_bytes(1000) - 1000 * model.kv_bytes_per_token() == image == model.kv_bytes(9) - 9 * 131072
    works = [work for work in hw.step(model, batch=2, context=5000).work if work.kind == "cross-attention"]
    assert [work.count for work in works] == [8] and works[0].flops == 2 * 2 * 32 * 2 * 128 * 6404
    assert works[0].cache_elements == 2 * 6404 * 2 * 8 * 128
    assert config.load(text).kv_bytes(1000) == 1000 * 131072  # without an image


LONGCAT = {"hidden_size": 6144, "num_layers": 28, "num_attention_heads": 64, "vocab_size": 131072, "ffn_hidden_size": 12288,
           "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
           "moe_topk": 12, "n_routed_experts": 512, "zero_expert_num": 256, "expert_ffn_hidden_size": 2048}  # fmt: skip


def test_experts_that_compute_nothing():
    """LongCat-Flash: 560 B, 27 B of them active on average (arXiv 2509.01322). Transformers 5.24.0 builds weights for the
    256 experts that compute nothing, too, which no checkpoint holds: 741,053,606,912; mlx-lm 0.32 does not."""
    model = config.load({"model_type": "longcat_flash", **LONGCAT})
    assert model.parameters == 741053606912 - 28 * 256 * 2 * 2048 * 6144
    assert model.active_parameters(include_embedding=False) == pytest.approx(27e9, rel=0.02)
    assert len(model.blocks) == 56 and model.kv_bytes_per_token() == 56 * 576 * 2
    odd = {**LONGCAT, "model_type": "longcat_flash", "zero_expert_num": 100}
    with pytest.raises(ValueError, match="zero_expert_num.*whole number of experts on average, got 100"):
        config.load(odd)


# Shapes of published models with keys as their configs spell them; counted by transformers 5.24.0 on the meta device.
# BLOOM's model card states the same 176,247,271,424.
PUBLISHED = {
    "bloom": (176247271424, {"n_embed": 14336, "num_attention_heads": 112, "n_layer": 70, "vocab_size": 250880,
                             "attention_softmax_in_fp32": True, "offset_alibi": 100}),
    "falcon": (41303293952, {"hidden_size": 8192, "num_attention_heads": 128, "num_hidden_layers": 60, "num_kv_heads": 8,
                             "new_decoder_architecture": True, "vocab_size": 65024}),
    "cohere2": (8028033024, {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
                             "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 256000, "layer_switch": 4,
                             "order_of_interleaved_layers": "local_attn_first", "use_parallel_block": True,
                             "use_gated_activation": True, "sliding_window_pattern": 4}),
    "gemma2": (9241705984, {"hidden_size": 3584, "intermediate_size": 14336, "num_attention_heads": 16,
                            "num_key_value_heads": 8, "num_hidden_layers": 42, "vocab_size": 256000,
                            "sliding_window_size": 4096, "attn_logit_softcapping": 50.0}),
}  # fmt: skip


@pytest.mark.parametrize("kind", PUBLISHED)
def test_published_totals(kind):
    total, sizes = PUBLISHED[kind]
    assert config.load({"model_type": kind, **sizes}).parameters == total


# Totals that their makers or those who loaded them print, in public repositories: Baichuan's README, and counts of loaded
# models. Keys as published configs spell them.
_BAICHUAN = {"model_type": "baichuan", "vocab_size": 64000, "tie_word_embeddings": False, "z_loss_weight": 0}
_INTERNLM2 = {"model_type": "internlm2", "num_key_value_heads": 8, "vocab_size": 92544, "bias": False}
PRINTED = [
    (7000559616, {**_BAICHUAN, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
                  "num_attention_heads": 32}),
    (13264901120, {**_BAICHUAN, "hidden_size": 5120, "intermediate_size": 13696, "num_hidden_layers": 40,
                   "num_attention_heads": 40, "model_max_length": 4096}),
    (6243584000, {"model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696, "num_layers": 28, "kv_channels": 128,
                  "num_attention_heads": 32, "multi_query_attention": True, "multi_query_group_num": 2, "rmsnorm": True,
                  "padded_vocab_size": 65024, "add_bias_linear": False, "add_qkv_bias": True, "post_layer_norm": True}),
    (7721324544, {"model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
                  "num_attention_heads": 32, "kv_channels": 128, "vocab_size": 151936, "no_bias": True}),
    (7737708544, {**_INTERNLM2, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                  "num_attention_heads": 32}),
    (19861149696, {**_INTERNLM2, "hidden_size": 6144, "intermediate_size": 16384, "num_hidden_layers": 48,
                   "num_attention_heads": 48}),
    (2724880896, {"model_type": "minicpm", "hidden_size": 2304, "intermediate_size": 5760, "num_hidden_layers": 40,
                  "num_attention_heads": 36, "num_key_value_heads": 36, "vocab_size": 122753, "tie_word_embeddings": True}),
    (16375728128, {"model_type": "deepseek", "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408,
                   "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16, "n_shared_experts": 2,
                   "n_routed_experts": 64, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "vocab_size": 102400}),
]  # fmt: skip


@pytest.mark.parametrize(("total", "values"), PRINTED, ids=lambda value: value if isinstance(value, int) else value["model_type"])
def test_totals_that_are_printed_for_models_without_a_class(total, values):
    model = config.load(values)
    assert model.parameters == total
    if values["model_type"] == "deepseek":  # printed, too
        assert model.active_parameters(include_embedding=True) == 2828650496


LING = {"model_type": "bailing_moe", "hidden_size": 2048, "intermediate_size": 5120, "moe_intermediate_size": 512,
        "num_experts": 256, "num_shared_experts": 1, "num_attention_heads": 16, "num_experts_per_tok": 8,
        "num_hidden_layers": 20, "num_key_value_heads": 4, "vocab_size": 157184, "first_k_dense_replace": 1, "head_dim": 128,
        "use_bias": False, "use_qkv_bias": False, "use_qk_norm": True, "tie_word_embeddings": False,
        "moe_router_enable_expert_bias": True, "moe_router_enable_shared_expert": True}  # fmt: skip


@pytest.mark.parametrize(("change", "total"), [
    ({}, 16255643392),
    ({"use_qk_norm": False, "moe_router_enable_expert_bias": False, "num_shared_experts": 2, "first_k_dense_replace": 0,
      "moe_intermediate_size": 1408, "num_experts": 64}, 12275238912),
    ({"use_bias": True, "use_qkv_bias": True}, 16270758656),
    ({"moe_shared_expert_intermediate_size": 1024}, 16315412224),
    ({"tie_word_embeddings": True}, 15933730560),
    ({"num_shared_experts": 0}, 16195874560),
])  # fmt: skip
def test_ling_as_mlx_counts_it(change, total):
    """No class in transformers; the module tree of mlx-lm 0.32 with the shape of a 16 B model."""
    assert config.load({**LING, **change}).parameters == total


@pytest.mark.parametrize(("name", "change", "says"), [
    ("google--gemma-4-26B-A4B", {"num_kv_shared_layers": 30}, "num_kv_shared_layers' must be a whole number from 0 to 29"),
    ("google--gemma-4-26B-A4B", {"num_kv_shared_layers": 26}, "num_kv_shared_layers' must be such that a layer of each kind"),
    ("google--gemma-4-26B-A4B", {"per_layer_config": {"5": {"head_dim": 512}}}, "per_layer_config' must be one entry for each"),
    ("google--gemma-4-26B-A4B", {"num_global_key_value_heads": 3}, "num_global_key_value_heads' must be a divisor of 16"),
    ("meta-llama--Llama-4-Maverick-17B-128E-Instruct", {"no_rope_layers": [1, 0]}, "a list of 48 zeros and ones"),
    ("meta-llama--Llama-4-Maverick-17B-128E-Instruct", {"layer_types": ["full_attention"]}, "layer_types' must be 48 entries"),
    ("stepfun-ai--Step-3.7-Flash", {"use_head_wise_attn_gate": False}, "use_head_wise_attn_gate' must be true or absent"),
    ("stepfun-ai--Step-3.7-Flash", {"moe_layers_enum": "3,4,99"}, "moe_layers_enum' must be layer numbers from 0 to 44"),
    ("MiniMaxAI--MiniMax-M2.5", {"qk_norm_type": "per_head"}, "qk_norm_type' must be per_layer or absent"),
    ("MiniMaxAI--MiniMax-M2.5", {"attn_type_list": [0, 1]}, "attn_type_list' must be all ones"),
    ("XiaomiMiMo--MiMo-V2-Flash", {"hybrid_layer_pattern": None}, "hybrid_layer_pattern' must be a list of 48"),
    ("Qwen--Qwen3-VL-30B-A3B-Instruct", {"use_qk_norm": False}, "use_qk_norm' must be true or absent"),
])  # fmt: skip
def test_what_cannot_be_counted_is_refused_by_name(name, change, says):
    changed = values(name)
    inner = changed.get("text_config", changed)
    inner.update(change)
    with pytest.raises(ValueError, match=says):
        config.load(changed)


def test_a_key_on_which_class_and_configs_disagree_must_be_given():
    changed = values("Qwen--Qwen3-VL-30B-A3B-Instruct")
    del changed["tie_word_embeddings"]
    with pytest.raises(ValueError, match="text_config.tie_word_embeddings' must be given"):
        config.load(changed)
