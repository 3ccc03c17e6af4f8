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
# Types that transformers 5.24.0 has no class for: what else they were counted against.
WITHOUT_CLASS = {
    "bailing_moe": "mlx-lm 0.32",
    "bailing_moe_v2": "blocks of bailing_moe in vLLM 0.33",
    "deepseek_ref": "deepseek_v4 under the names of SGLang",
    "kimi_k2": "deepseek_v3, the class its config names",
    "kimi_k3": "mlx-lm 0.32",
    "mimo": "mlx-lm 0.32",
    "minimax_m1": "minimax in vLLM",
    "minimax_m3": "the text part of minimax_m3_vl",
    "minimax_text_01": "minimax in vLLM",
    "mistral_large_3": "DeepSeek-V3 without router corrections in vLLM 0.33",
    "nemotron-nas": "mlx-lm 0.32",
}
EXPLAINED = {"longcat_flash", "hy_v3", "nemotron_h"}


def test_the_table_holds_every_type_and_none_differs():
    kinds = [row["model_type"] for row in TABLE]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) | set(WITHOUT_CLASS) == {*READERS, *ALIASES} and not set(kinds) & set(WITHOUT_CLASS)
    for row in TABLE:
        assert row["differ"] == "0" and int(row["configs"]) >= 24 and int(row["equal"]) > 0, row
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
        near = sum(bool(block.mixer and block.mixer.window) for block in model.blocks)
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
