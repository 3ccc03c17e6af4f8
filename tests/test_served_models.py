"""Models that vLLM or SGLang serve without a class in transformers: published sizes, what their kinds of blocks do, and what is
refused. The counts of their readers are held to the engines' module trees in `test_models_2026.py`.
"""

import csv
import json
from pathlib import Path

import pytest

import hwdesign as hw
from hwdesign.models import config
from hwdesign.models.factored import FactoredAttention
from hwdesign.models.jet import DynamicDeltaNet

FILE = Path(__file__).parent / "data" / "class_defaults_more.csv"
CONFIGS = {}
for row in csv.DictReader(FILE.open(encoding="utf-8")):
    if row["model_type"] != "xverse" or "moe_top_k" in row["config"]:
        CONFIGS.setdefault(row["model_type"], json.loads(row["config"]))

# Keys of the published config of Grok-2 beside its sizes.
GROK2 = {"sliding_window_size": -1, "global_attn_every_n": 1, "attn_temperature_len": 1024, "rope_theta": 208533496,
         "original_max_position_embeddings": 8192, "rope_type": "yarn", "scaling_factor": 16.0}  # fmt: skip
TOWERS = {
    "query_num": 64, "image_size": 448, "slice_mode": True, "batch_vision_input": True, "drop_vision_last_layer": False,
    "use_image_id": True, "vision_batch_size": 16, "slice_config": {"max_slice_nums": 9, "patch_size": 14},
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "intermediate_size": 4304, "num_attention_heads": 16},
    "audio_config": {"d_model": 1024, "encoder_layers": 24}, "audio_pool_step": 2, "audio_chunk_length": 1.0,
    "tts_config": {"llm_dim": 3584, "num_hidden_layers": 20}, "stream_input": True, "init_tts": True,
}  # fmt: skip


@pytest.mark.parametrize(("kind", "total", "active", "embedding"), [
    ("step3_text", 316, 38, False),  # Step-3: 316 B of text, 38 B a token, arXiv 2507.19427
    ("xverse", 25.8, 4.2, True),  # XVERSE-MoE-A4.2B, its README
    ("git", 270, 115, True),  # Grok-2 as it was announced
])  # fmt: skip
def test_published_sizes_in_billions(kind, total, active, embedding):
    model, digits = config.load(CONFIGS[kind]), 1 if total < 100 else 0
    assert round(model.parameters / 1e9, digits) == total
    assert round(model.active_parameters(include_embedding=embedding) / 1e9, digits) == active


def test_deepseek_ocr_has_plain_attention():
    """DeepSeek3B-MoE-A570M, arXiv 2510.18234: 3 B, 570 M of them active; ten heads of 128, and no latent."""
    model = config.load({"model_type": "DeepseekOCR", "language_config": CONFIGS["deepseek_v2"]})
    assert model.parameters == 2934734080 and {b.mixer.kind for b in model.blocks} == {"MHA"}
    assert model.active_parameters(include_embedding=False) == pytest.approx(570e6, rel=0.05)
    assert model.kv_bytes_per_token() == 12 * 2 * 10 * 128 * 2
    for key in ("kv_lora_rank", "qk_rope_head_dim", "v_head_dim"):
        with pytest.raises(ValueError, match=f"'{key}' must be 0 or absent"):
            config.load({**CONFIGS["deepseek_v2"], key: 64})


def test_grok_2_is_called_git_and_no_other_git_is_read():
    assert config.load({**CONFIGS["git"], **GROK2}).parameters == 269515497472
    for names in (["GitForCausalLM"], None):
        with pytest.raises(ValueError, match="'architectures' must be \\['Grok1ForCausalLM'\\]"):
            config.load({**CONFIGS["git"], "architectures": names})
    with pytest.raises(ValueError, match="sliding_window_size' must be -1 or absent"):
        config.load({**CONFIGS["git"], **GROK2, "sliding_window_size": 4096})


@pytest.mark.parametrize("kind", ["minicpmv", "minicpmo"])
def test_the_version_says_what_the_text_part_is(kind):
    text = CONFIGS[kind]
    model = config.load({**text, **TOWERS})
    assert model.parameters == config.load(text).parameters and model.left_out == ("vision tower", "audio tower")
    for version in (None, "3.0", 2, True, [2.6]):
        with pytest.raises(ValueError, match="'version' must be one of"):
            config.load({**text, "version": version})


def test_queries_of_a_latent_keep_two_vectors_a_token():
    """Step-3: one key and one value of 256 in each of 61 layers; the way down to the latent is on every GPU."""
    model = config.load(CONFIGS["step3_text"])
    assert model.kv_bytes_per_token() == 61 * 2 * 256 * 2
    mixer = model.blocks[0].mixer
    assert mixer == FactoredAttention(num_heads=64, num_kv_heads=1, head_dim=256, q_rank=2048)
    works = {(w.n, w.k) for w in hw.step(model, batch=1, context=100, attention=hw.Plan(tp=4), ffn=hw.Plan(tp=4)).gemms}
    assert {(2048 + 2 * 256, 7168), (16 * 256, 2048)} <= works
    for changes in ({"qk_norm": "head"}, {"output_gate": "head"}, {"value_dim": 64}, {"value_weight": False}, {"q_rank": 0}):
        with pytest.raises(ValueError, match=next(iter(changes))):
            FactoredAttention(**{"num_heads": 8, "num_kv_heads": 1, "head_dim": 64, "q_rank": 32, **changes})


def test_a_convolution_with_a_kernel_for_each_token_keeps_values_alone():
    model = config.load(CONFIGS["jet_nemotron"])
    mixer = next(b.mixer for b in model.blocks if isinstance(b.mixer, DynamicDeltaNet))
    assert mixer.state_elements == (12 * 96 * 192, 3 * 12 * 192)
    names = {w.name: (w.n, w.k) for w in mixer.weights(1536)}
    assert names["kernel down"] == (2304 // 8, 1536) and names["kernel up"] == (2304 * 4, 288)


@pytest.mark.parametrize(("kind", "change", "says"), [
    ("step1", {"num_attention_groups": 5}, "num_attention_groups' must be a divisor"),
    ("step3_text", {"num_attention_groups": 2}, "num_attention_groups' must be 1"),
    ("grok-1", {"num_attention_heads": 64, "head_dim": None}, "head_dim' must be given"),
    ("PanguEmbedded", {"param_sink_number": 128}, "param_sink_number' must be 0"),
    ("telechat", {"embed_layernorm": True}, "embed_layernorm' must be false"),
    ("telechat", {"intermediate_size": 7}, "intermediate_size' must be absent, 1 or ffn_hidden_size"),
    ("molmo", {"embedding_size": 152192}, "embedding_size' must be vocab_size 152064, or up to 127 more"),
    ("molmo", {"layer_norm_type": "default"}, "layer_norm_type' must be rms"),
    ("molmo", {"intermediate_size": 37889}, "intermediate_size' must be even"),
    ("iquest_q1", {"num_hybrid_layers_block": 20}, "num_hybrid_layers_block' must be such that"),
    ("iquest_q1", {"use_over_encoding": True}, "use_over_encoding' must be false"),
    ("xverse", {"num_experts": None}, "num_experts' must be a whole number"),
    ("nemotron_h_puzzle", {"hybrid_override_pattern": "MMMM"}, "hybrid_override_pattern' must be M\\*EE"),
    ("nemotron_h_puzzle", {"layers_block_type": ["mamba"] * 4}, "layers_block_type' must be those of block_configs"),
    ("nemotron_h_puzzle", {"block_configs": [{"block_type": "conv"}] * 4}, "block_type' must be one of"),
    ("nemotron_h_puzzle", {"block_configs": [{"block_type": "moe", "sparse_width": 3}] * 4}, "sparse_width' must be absent"),
    ("jet_nemotron", {"efficient_attention_config": {}}, "efficient_attention_config' must be an object with jet"),
])  # fmt: skip
def test_what_cannot_be_counted_is_refused_by_name(kind, change, says):
    with pytest.raises(ValueError, match=says):
        config.load({**CONFIGS[kind], **change})
