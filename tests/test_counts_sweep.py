"""What `scripts/compare_counts.py` found when it counted every model type on the module trees of transformers: its table is
complete and free of differences, and a sample of its configs is read again here, without transformers.
"""

import csv
import json
from pathlib import Path

import pytest

from hwdesign.models import config
from hwdesign.models.architectures import ALIASES, READERS

HERE = Path(__file__).parent
TABLE = list(csv.DictReader((HERE.parent / "scripts" / "counts_against_transformers.csv").open(encoding="utf-8")))
SAMPLE = list(csv.DictReader((HERE / "data" / "class_defaults_2026.csv").open(encoding="utf-8")))
MORE = {row["model_type"] for row in csv.DictReader((HERE / "data" / "class_defaults_more.csv").open(encoding="utf-8"))}
# Readers of types that transformers 5.24.0 cannot build and that have no rows of another oracle there: what else holds them.
OTHERWISE = {
    "gemma3n": "its text part, gemma3n_text; the tower needs a further package",
    "minimax_m3": "its text part inside minimax_m3_vl",
    "nemotron-nas": "published shapes, params_2026.csv, and mlx-lm 0.32",
    "phi4mm": "phi4_multimodal under the name of its repository",
}
EXPLAINED = {"axk1", "longcat_flash", "hy_v3", "nemotron_h", "gpt_neo", "dory"}


def test_the_table_holds_every_type_and_none_differs():
    kinds = [row["model_type"] for row in TABLE]
    assert len(kinds) == len(set(kinds))
    held = {*kinds, *MORE, *OTHERWISE}
    assert set(kinds) <= {*READERS, *ALIASES} and not set(kinds) & set(OTHERWISE)
    assert [kind for kind in (*READERS, *ALIASES) if kind not in held and ALIASES.get(kind) not in held] == []
    for row in TABLE:
        assert row["differ"] == "0" and int(row["configs"]) == 25 and int(row["equal"]) > 0, row
        assert (row["transformers"], row["torch"]) == ("5.24.0", "2.13.0"), row
    assert {row["model_type"] for row in TABLE if row["explanation"]} == EXPLAINED
    assert sum(int(row["equal"]) for row in TABLE) > 10 * sum(int(row["refused"]) for row in TABLE)


def test_a_sample_equals_the_module_trees():
    """Up to five configs a type, the first with the defaults of its class, a few layers in the others; total with the buffers
    that hold router corrections and layer scales."""
    assert {row["model_type"] for row in SAMPLE} == {row["model_type"] for row in TABLE}
    for row in SAMPLE:
        model = config.load(json.loads(row["config"]))
        assert model.parameters == int(row["total"]), row
        mixers = [block.mixer for block in model.blocks if block.mixer and block.mixer.window]
        near = sum(any(elements for elements, _ in mixer.caches) for mixer in mixers)  # not those that read another's
        assert row["window_layers"] in ("", str(near)), row


@pytest.mark.parametrize("kind", ["llama", "jamba", "falcon_h1", "lfm2", "sarvam_moe", "longcat_flash"])
def test_a_missing_key_means_what_the_class_says(kind):
    """Without the key the class's default holds, which the sweep compared on the module trees."""
    row = next(row for row in SAMPLE if row["model_type"] == kind)
    values = json.loads(row["config"])
    for key in ("num_key_value_heads", "head_dim", "q_lora_rank"):
        rest = {k: v for k, v in values.items() if k != key}
        try:
            model = config.load(rest)
        except ValueError as error:
            assert key in str(error)
        else:
            assert model.parameters == int(row["total"]), (kind, key)


LING = {"model_type": "bailing_moe", "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32, "vocab_size": 100,
        "num_experts": 8, "num_attention_heads": 4, "num_experts_per_tok": 2, "num_hidden_layers": 2, "use_qk_norm": True,
        "first_k_dense_replace": 1, "use_bias": True, "use_qkv_bias": True}  # fmt: skip
LATENT = {"model_type": "deepseek_v3", "hidden_size": 64, "intermediate_size": 96, "vocab_size": 100, "num_attention_heads": 4,
          "num_hidden_layers": 2, "q_lora_rank": None, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
          "v_head_dim": 8}  # fmt: skip


@pytest.mark.parametrize(("values", "change", "says"), [
    (LING, {"use_qkv_bias": False}, "use_qkv_bias' must be true, as use_bias is: vLLM and mlx-lm disagree"),
    (LING, {"use_rmsnorm": False}, "use_rmsnorm' must be true or absent"),
    (LATENT, {"qk_head_dim": 16}, "qk_head_dim' must be 12 or absent"),
])  # fmt: skip
def test_a_key_that_says_otherwise_is_refused(values, change, says):
    config.load(values)
    with pytest.raises(ValueError, match=says):
        config.load({**values, **change})


STEP = {"model_type": "step3p5", "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32, "vocab_size": 100,
        "n_routed_experts": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "num_sliding_attention_heads": 8,
        "num_experts_per_tok": 2, "num_hidden_layers": 2, "head_dim": 16, "share_expert_dim": 32, "sliding_window": 16,
        "mlp_layer_types": ["dense", "sparse"], "layer_types": ["full_attention", "sliding_attention"]}  # fmt: skip


def test_what_transformers_saves_again_for_some_layers_must_agree():
    again = {**STEP, "per_layer_config": {"1": {"num_attention_heads": 8}}}
    assert config.load(again).parameters == config.load(STEP).parameters
    for wrong in ({"0": {"num_attention_heads": 8}}, {"1": {"num_attention_heads": 4}}, {"1": {"moe_width": 3}}):
        with pytest.raises(ValueError, match=r"per_layer_config|num_attention_heads|moe_width"):
            config.load({**STEP, "per_layer_config": wrong})
