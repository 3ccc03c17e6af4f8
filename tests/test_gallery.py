"""The gallery: forty rows with the numbers of independent oracles, pictures with whole bars, colours seen on both grounds."""

import csv
import re
from pathlib import Path

import gallery_page as gallery
import pytest
from conftest import SHIPPED_AS

from hwdesign.models import config

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
ROWS = {row["name"]: row for row in csv.DictReader((DATA / "params_2026.csv").open(encoding="utf-8"))}
PUBLISHED = {row["model"]: row for row in csv.DictReader((DATA / "published_params.csv").open(encoding="utf-8"))}
LISTED = {given["name"]: given for given in gallery.listed()}


def cells(name):
    return gallery.row(config.load(name), LISTED[name]["providers"])


def test_forty_models_that_ship_by_the_providers_of_their_family():
    assert len(gallery.listed()) == len(LISTED) == 40 and set(LISTED) <= set(config.names())
    offered = [int(given["providers"] or 0) for given in gallery.listed()]
    assert offered == sorted(offered, reverse=True) and offered[0] == 67 and all(0 <= n <= 149 for n in offered)
    assert all(given["vendor"] for given in gallery.listed())
    families = {(given["family"], given["providers"]) for given in gallery.listed() if given["family"]}
    assert len(families) == len({family for family, _ in families})  # a family has one number


@pytest.mark.parametrize("name", LISTED)
def test_a_row_holds_the_numbers_of_its_oracles(name):
    _, total, kv, grows, state, active, _ = (cell.replace(",", "").replace("–", "0") for cell in cells(name))
    if name in PUBLISHED:
        row = PUBLISHED[name]
        held = row["parameters"], row["kv_bytes_per_token_bf16"], row["active_with_input_embedding"]
    else:
        row = ROWS[next(there for there, shipped in SHIPPED_AS.items() if shipped == name)]
        full, near = int(row["kv_bytes_per_token_full_bf16"]), int(row["kv_bytes_per_token_window_bf16"] or 0)
        held = row["total_main"], str(full + near), row["active_incl_embedding"]
        assert int(grows) == full + int(row["indexer_bytes_per_token"] or 0)
        assert state == (row["state_bytes_per_sequence"] or "0")
    assert (total, kv) == held[:2] and float(active) == pytest.approx(int(held[2]) / 1e9, abs=0.005)


def test_what_a_long_sequence_adds_by_hand():
    assert config.load("gpt-oss-120b").growth_bytes_per_token() == 18 * 2 * 8 * 64 * 2  # 18 of 36 layers have no window
    assert config.load("gemma-3-27b").growth_bytes_per_token() == 10 * 2 * 16 * 128 * 2
    assert config.load("deepseek-v3.2").growth_bytes_per_token() == 61 * (576 + 128) * 2  # latent, and the indexer's key
    assert config.load("mistral-7b").growth_bytes_per_token() == 32 * 2 * 8 * 128 * 2


def test_models_said_to_have_the_same_counts_have_them():
    checked = 0
    for name, given in LISTED.items():
        for other in filter(None, given["same"].split("; ")):
            for row in (row for key, row in ROWS.items() if re.search(rf"--(?:NVIDIA-)?{re.escape(other)}(?![.0-9])", key)):
                assert int(row["total_main"]) == config.load(name).parameters, (name, other)
                checked += 1
    assert checked >= 8


@pytest.mark.parametrize("name", LISTED)
def test_a_picture_is_fresh_and_its_bars_are_whole(name):
    model = config.load(name)
    picture = gallery.strip(model)
    there = (ROOT / "book" / "gallery" / f"{name}.svg").read_text(encoding="utf-8")
    assert there == picture, "run: python scripts/generate_pages.py"
    bars = [tuple(map(float, bar)) for bar in re.findall(r'x="([\d.]+)" y="(\d+)" width="([\d.]+)"', picture)]
    for top in (0, 14):
        widths = [wide for _, y, wide in bars if y == top]
        assert sum(widths) == pytest.approx(240, abs=0.1) and len(widths) >= 4
    assert sum(gallery.parts(model).values()) == model.parameters
    used = model.active_parameters(include_embedding=True)
    assert sum(gallery.parts(model, active=True).values()) == used


def test_no_picture_is_left_of_a_model_that_went():
    assert {path.stem for path in (ROOT / "book" / "gallery").iterdir()} == set(LISTED)


def test_linear_attention_stands_apart_by_hand():
    # Qwen3-Next: q, k, v; gate z; b and a; convolution; A and dt; output. In 36 of 48 layers; the norm counts as a norm.
    layer = (2048 + 2048 + 4096) * 2048 + 4096 * 2048 + 2 * 32 * 2048 + 8192 * 4 + 2 * 32 + 2048 * 4096
    assert gallery.parts(config.load("qwen3-next-80b-a3b"))["linear attention"] == 36 * layer
    assert "linear attention" not in gallery.parts(config.load("nemotron-3-nano-30b-a3b"))


def light(color):
    """Relative luminance of WCAG."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_are_seen_on_both_grounds():
    css = (ROOT / "site_assets" / "hwdesign.css").read_text(encoding="utf-8")
    white, dark = re.findall(r"--hw-ground: (#[0-9a-f]{6})", css)
    assert len(set(gallery.COLORS.values())) == len(gallery.COLORS)
    for color in gallery.COLORS.values():
        assert (light(white) + 0.05) / (light(color) + 0.05) >= 3, color
        assert (light(color) + 0.05) / (light(dark) + 0.05) >= 3, color
