"""Bands of trained models and published experiments: hand-known integers, sources, and what is said without evidence."""

import csv
import datetime
import re
from dataclasses import fields, replace
from fractions import Fraction
from itertools import product

import pytest
import trained_models
from conftest import ROOT

from hwdesign.advice import bands, shapes
from hwdesign.advice.bands import FAMILIES, RATIOS, family_of, outside, ratio_band, ratios, sizes
from hwdesign.advice.evidence import (
    TOPICS,
    TRAITS,
    Ablation,
    ExchangeRate,
    ablations,
    evidence_for,
    exchange_rate,
    traits,
)
from hwdesign.models import config
from hwdesign.models.blocks import Block, DenseFFN, MoE, SelfAttention
from hwdesign.models.latent import LatentAttention
from hwdesign.models.linear import GatedDeltaNet, ParallelMixers
from hwdesign.models.model import Model
from hwdesign.models.shared_cache import SharedCacheAttention

BANDS = ROOT / "hwdesign" / "advice" / "bands.csv"
ROWS = {row.id: row for row in ablations(unverified=True)}

# Published integers, typed from the cards and configs of the vendors: ratios as fractions of them.
PUBLISHED = {
    "llama-3.1-70b": {
        "aspect": (8192, 80),
        "expansion": (28672, 8192),
        "head_size": (128, 1),
        "heads_per_kv": (64, 8),
        "query_width": (64 * 128, 8192),
        "full_attention": (80, 80),
    },
    "deepseek-r1": {
        "aspect": (7168, 61),
        "expansion": (18432, 7168),
        "granularity": (8 * 2048, 7168),
        "expert_width": (2048, 7168),
        "sparsity": (256, 8),
        "head_size": (128 + 64, 1),
        "query_width": (128 * 192, 7168),
        "full_attention": (61, 61),
        "shared_expert": (2048, 2048),
    },
    "qwen3-235b-a22b": {
        "aspect": (4096, 94),
        "granularity": (8 * 1536, 4096),
        "expert_width": (1536, 4096),
        "sparsity": (128, 8),
        "head_size": (128, 1),
        "heads_per_kv": (64, 4),
        "query_width": (64 * 128, 4096),
        "full_attention": (94, 94),
        "shared_expert": (0, 1536),
    },
    "mixtral-8x7b": {
        "aspect": (4096, 32),
        "granularity": (2 * 14336, 4096),
        "expert_width": (14336, 4096),
        "sparsity": (8, 2),
        "head_size": (128, 1),
        "heads_per_kv": (32, 8),
        "query_width": (1, 1),
        "full_attention": (32, 32),
        "shared_expert": (0, 14336),
    },
    "gpt-oss-120b": {
        "aspect": (2880, 36),
        "granularity": (4 * 2880, 2880),
        "expert_width": (1, 1),
        "sparsity": (128, 4),
        "head_size": (64, 1),
        "heads_per_kv": (64, 8),
        "query_width": (64 * 64, 2880),
        "full_attention": (18, 36),
        "shared_expert": (0, 2880),
    },
    # 23 Mamba-2, 6 attention and 23 expert layers; shared experts of 3712 beside experts of 1856
    "nemotron-3-nano-30b-a3b": {
        "aspect": (2688, 29),
        "granularity": (6 * 1856, 2688),
        "expert_width": (1856, 2688),
        "sparsity": (128, 6),
        "head_size": (128, 1),
        "heads_per_kv": (32, 2),
        "query_width": (32 * 128, 2688),
        "full_attention": (6, 29),
        "shared_expert": (3712, 1856),
    },
    "gemma-3-27b": {
        "aspect": (5376, 62),
        "expansion": (21504, 5376),
        "head_size": (128, 1),
        "heads_per_kv": (32, 16),
        "query_width": (32 * 128, 5376),
        "full_attention": (10, 62),
    },
    "qwen3.5-397b-a17b": {
        "aspect": (4096, 60),
        "granularity": (10 * 1024, 4096),
        "expert_width": (1024, 4096),
        "sparsity": (512, 10),
        "head_size": (256, 1),
        "heads_per_kv": (32, 2),
        "query_width": (32 * 256, 4096),
        "full_attention": (15, 60),
        "shared_expert": (1024, 1024),
    },
    # experts of 2688 in a latent of 1024 beside a hidden size of 4096; 40 Mamba-2 and 8 attention layers
    "nemotron-3-super-120b-a12b": {
        "aspect": (4096, 48),
        "granularity": (22 * 2688 * 1024, 4096 * 4096),
        "expert_width": (2688, 1024),
        "sparsity": (512, 22),
        "head_size": (128, 1),
        "heads_per_kv": (32, 2),
        "query_width": (32 * 128, 4096),
        "full_attention": (8, 48),
        "shared_expert": (5376, 2688),
    },
}
# The ends of every band, typed by hand as fractions of published integers.
ENDS = {
    "dense": {
        "aspect": ((1024, 28), (6144, 44)),
        "expansion": ((11008, 4096), (32768, 5120)),
        "head_size": ((64, 1), (128, 1)),
        "heads_per_kv": ((64, 64), (64, 8)),
        "query_width": ((32 * 128, 5376), (16 * 128, 1024)),
        "full_attention": ((10, 62), (1, 1)),
    },
    "moe_gqa": {
        "aspect": ((2048, 48), (4096, 32)),
        "expansion": ((12288, 6144), (16384, 4096)),
        "granularity": ((8192, 5120), (2 * 14336, 4096)),
        "expert_width": ((704, 2816), (14336, 4096)),
        "sparsity": ((8, 2), (128, 1)),
        "head_size": ((64, 1), (512, 1)),
        "heads_per_kv": ((32, 8), (64, 4)),
        "query_width": ((32 * 128, 4096), (64 * 192, 4096)),
        "full_attention": ((5, 30), (1, 1)),
        "shared_expert": ((0, 2880), (2112, 704)),
    },
    "moe_mla": {
        "aspect": ((2048, 47), (7168, 61)),
        "expansion": ((12288, 6144), (10240, 2048)),
        "granularity": ((8 * 2048, 7168), (4 * 1536, 2048)),
        "expert_width": ((2048, 7168), (1536, 2048)),
        "sparsity": ((64, 4), (384, 8)),
        "head_size": ((192, 1), (256, 1)),
        "query_width": ((64 * 192, 7168), (128 * 192, 7168)),
        "full_attention": ((1, 1), (1, 1)),
        "shared_expert": ((1, 1), (1, 1)),
    },
    "hybrid": {
        "aspect": ((2048, 48), (8192, 64)),
        "expansion": ((12288, 4096), (33792, 7168)),
        "granularity": ((8 * 512, 2048), (6 * 1856, 2688)),
        "expert_width": ((512, 2048), (2688, 1024)),
        "sparsity": ((128, 6), (896, 16)),
        "head_size": ((128, 1), (256, 1)),
        "heads_per_kv": ((24, 4), (32, 2)),
        "query_width": ((32 * 128, 4096), (64 * 256, 4096)),
        "full_attention": ((10, 64), (24, 93)),
        "shared_expert": ((1, 1), (3712, 1856)),
    },
}
SHAPES = {"dense": 16, "moe_gqa": 15, "moe_mla": 4, "hybrid": 10}


def value(pair):
    return float(Fraction(*pair))


def named(name):
    """A listed model, by the config that the list names."""
    row = next(row for row in trained_models.listed() if row["model"] == name)
    return config.load(ROOT / row["config"])


# Bands --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_ratios_of_published_models_are_those_of_their_integers(name):
    assert ratios(config.load(name)) == {ratio: value(pair) for ratio, pair in PUBLISHED[name].items()}
    assert list(PUBLISHED[name]) == [ratio for ratio in RATIOS if ratio in PUBLISHED[name]]


@pytest.mark.parametrize(("family", "ratio"), list(product(FAMILIES, RATIOS)))
def test_a_band_ends_where_published_integers_do(family, ratio):
    if ratio not in ENDS[family]:
        with pytest.raises(ValueError, match=rf"^ratio must be one that trained models of {family} have: aspect.*got '{ratio}'"):
            ratio_band(ratio, family)
        return
    band = ratio_band(ratio, family)
    assert (band.least, band.most) == tuple(map(value, ENDS[family][ratio]))
    for name, end in ((band.least_model, band.least), (band.most_model, band.most)):
        assert ratios(named(name))[ratio] == end and family_of(named(name)) == family
    assert 4 <= band.count <= SHAPES[family] and (ratio != "aspect" or band.count == SHAPES[family])


def test_bands_of_large_models_are_those_that_verdicts_use():
    """The dense band of guideline 3 is that of seven billion parameters on, of the models that it compares."""
    low, high = shapes.aspect_band()
    band = ratio_band("aspect", "dense", above=7e9)
    assert (low, high) == (5376 / 62, 6144 / 44) and (band.least, band.most) == (5120 / 64, high)  # Gemma 3, NeoX; Qwen3-32B
    assert ratio_band("aspect", "moe_gqa").least == shapes.aspect_band(experts=True)[0]
    small, gpt2 = ratio_band("aspect", "dense", above=124439807), 124439808  # more parameters than `above`, not as many
    assert small.count == SHAPES["dense"] and ratio_band("aspect", "dense", above=gpt2).count == SHAPES["dense"] - 1
    with pytest.raises(ValueError, match="^above must leave a model of dense, got 1e"):
        ratio_band("aspect", "dense", above=1e15)


def test_every_model_of_the_table_lies_in_the_band_of_its_family():
    for row in shapes.known_models():
        if row["family"] in FAMILIES:
            for name, x in bands._ratios(row).items():
                band = ratio_band(name, row["family"])
                assert band.least <= x <= band.most
    assert sum(row["family"] == "other" for row in shapes.known_models()) == 1  # DeepSeek-V4: compressed attention


def test_what_leaves_a_band_says_by_how_much():
    llama = config.load("llama-3.1-70b")
    assert outside(llama) == ()
    (one,) = outside(replace(llama, blocks=llama.blocks[:40]))
    assert one.ratio == "aspect" and one.value == 8192 / 40 and one.by == pytest.approx(8192 / 40 / (6144 / 44) - 1)
    assert one.text == "aspect 205 is 47 % above 140, the most of 16 shapes (gpt-neox-20b)"
    (two,) = outside(replace(llama, blocks=llama.blocks * 3))
    assert two.by == pytest.approx(8192 / 240 / (1024 / 28) - 1) and two.by < 0 and "below 36.6, the least of" in two.text
    found = {d.ratio: d for d in outside(config.load("deepseek-r1"), "dense")}
    assert found["sparsity"].band is None and found["sparsity"].by is None and found["head_size"].by == 0.5
    assert found["sparsity"].text == "sparsity 32: no trained model of the family has it"


def test_families_of_models():
    found = {name: family_of(config.load(name)) for name in ("gpt2", "gpt-oss-20b", "glm-5", "qwen3.5-27b", "deepseek-v4-flash")}
    assert list(found.values()) == ["dense", "moe_gqa", "moe_mla", "hybrid", "other"]
    with pytest.raises(ValueError, match="^family must be one of dense, moe_gqa, moe_mla, hybrid, got 'other'"):
        outside(config.load("deepseek-v4-flash"))
    mixer = SelfAttention(num_heads=8, num_kv_heads=2, head_dim=64)
    linear = GatedDeltaNet(num_heads=8, key_heads=4, key_dim=64, head_dim=64, conv=4)
    both = Block(mixer=ParallelMixers(first=mixer, second=linear), ffn=DenseFFN(width=1024))
    model = Model(name="beside", hidden_size=512, vocab_size=1000, blocks=(both,) * 4)
    assert family_of(model) == "hybrid" and ratios(model)["full_attention"] == 1 and ratios(model)["heads_per_kv"] == 4
    latent = LatentAttention(num_heads=8, q_rank=None, kv_rank=64, nope_dim=32, rope_dim=16, v_dim=32)
    model = replace(model, blocks=(Block(mixer=latent, ffn=DenseFFN(width=1024)),))
    assert family_of(model) == "other" and ratios(model)["head_size"] == 48


# The table of models ------------------------------------------------------------------------------------------------------


def test_the_script_writes_the_table_byte_for_byte():
    assert trained_models.table(trained_models.listed()) == BANDS.read_bytes()


def test_every_model_has_a_source_and_a_date():
    rows = list(csv.DictReader(BANDS.read_text(encoding="utf-8").splitlines()))
    assert len(rows) >= 40 and len({row["model"] for row in rows}) == len(rows)
    for row in rows:
        assert row["source"] and not row["source"].startswith("written from"), row["model"]
        assert datetime.date(2026, 11, 1) <= datetime.date.fromisoformat(row["read"]) <= datetime.date.today()
        assert row["family"] in (*FAMILIES, "other") and row["verdicts"] in ("yes", "") and row["book"] <= row["verdicts"]


def test_a_model_without_a_source_or_from_a_description_is_refused(tmp_path):
    row = trained_models.listed()[0]
    described = {**row, "config": "tests/data/configs_2026/gemma-3-4b-it.json"}  # written by hand from a description
    with pytest.raises(ValueError, match="must be a published one with a _source, got 'written from the public description"):
        trained_models.counted(described)
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama"}', encoding="utf-8")
    with pytest.raises(ValueError, match="with a _source, got ''"):
        trained_models.counted({**row, "config": str(path)})


def test_a_row_that_is_added_moves_no_verdict():
    assert len(shapes.trained_models()) == 31 and len(shapes.known_models()) > 50
    assert {row["model"] for row in shapes.compared_models()} <= {row["model"] for row in shapes.trained_models()}


def test_sizes_of_mixed_layers_are_those_of_most_of_them():
    found = sizes(config.load("llama-3.3-nemotron-super-49b"))  # a width of its own in many layers, attention in 49
    assert (found["dense_width"], found["full_attention_layers"], found["depth"]) == (28672, 49, 80)
    step = sizes(named("step-3.7-flash"))  # 64 heads where a layer sees all tokens, 96 where it has a window
    assert (step["query_heads"], step["full_attention_layers"]) == (64, 12)


# Published experiments ----------------------------------------------------------------------------------------------------


def test_every_experiment_says_where_it_was_read():
    assert len(ROWS) == len(ablations(unverified=True)) >= 25 and {row.topic for row in ROWS.values()} == set(TOPICS)
    for row in ROWS.values():
        assert row.source.startswith("https://") and re.fullmatch(r"20\d\d(-\d\d)?", row.date) and row.who and row.where
        assert datetime.date(2026, 12, 1) <= datetime.date.fromisoformat(row.read) <= datetime.date.today()
        assert (row.effect is None) == (row.unit == "")
        assert row.least_parameters is None or 1e6 < row.least_parameters <= row.most_parameters < 1e12
        if "arxiv.org" in row.source:  # the number of an article begins with its year and month
            year, month = re.search(r"/abs/(\d\d)(\d\d)\.", row.source).groups()
            assert row.date == f"20{year}-{month}"


@pytest.mark.parametrize("name", ["source", "date", "who", "where", "read", "change", "unit"])
def test_a_number_without_its_source_is_refused(name):
    good = {field.name: getattr(ROWS["vocabulary-3b"], field.name) for field in fields(Ablation)}
    with pytest.raises(ValueError, match=f"^{name} must be given in row 'vocabulary-3b'"):
        Ablation(**good | {name: ""})


@pytest.mark.parametrize("name", ["status", "trait", "topic", "outcome", "direction"])
def test_an_unknown_name_in_a_row_is_refused(name):
    good = {field.name: getattr(ROWS["vocabulary-3b"], field.name) for field in fields(Ablation)}
    for wrong in ("", "certain", None):
        with pytest.raises(ValueError, match=f"^{name} must be one of"):
            Ablation(**good | {name: wrong})


def test_contradictions_refer_to_rows_that_contradict():
    pairs = {(row.id, other) for row in ROWS.values() for other in row.contradicts}
    assert len(pairs) >= 20 and all((b, a) in pairs for a, b in pairs)
    for a, b in pairs:
        first, second = ROWS[a], ROWS[b]
        assert first.trait == second.trait and first.outcome_for("up") != second.outcome_for("up"), (a, b)
    together = {(row.id, other) for row in ROWS.values() for other in row.agrees_with}
    assert all((b, a) in together and (a, b) not in pairs for a, b in together)
    for a, b in together:
        assert ROWS[a].trait == ROWS[b].trait and {ROWS[a].outcome_for("up"), ROWS[b].outcome_for("up")} != {"better", "worse"}
    topics = {ROWS[a].topic for a, _ in pairs}
    assert topics >= {"depth and width", "granularity", "sparsity", "shared experts", "hybrids", "windows"}


def test_what_nobody_could_read_is_never_quoted_by_default():
    hidden = {row.id for row in ROWS.values() if row.status == "not verified"}
    assert hidden and not hidden & {row.id for row in ablations()}
    assert {row.id for row in ablations("hybrids", unverified=True)} - {row.id for row in ablations("hybrids")} == {"jamba-ratio"}
    before = config.load("qwen3.5-27b")
    kept = [b for b in before.blocks if isinstance(b.mixer, GatedDeltaNet)]
    after = replace(before, blocks=before.blocks + tuple(kept[:16]))
    for unverified in (False, True):
        found = next(e for e in evidence_for(before, after, unverified=unverified) if e.trait == "linear_layers")
        assert ("jamba-ratio" in {row.id for row in found.rows}) == unverified


# What experiments say of a change -----------------------------------------------------------------------------------------


def test_no_change_needs_no_evidence():
    llama = config.load("llama-3.1-8b")
    assert evidence_for(llama, llama) == ()


def test_a_wider_model_meets_experiments_for_and_against():
    llama = config.load("llama-3.1-8b")
    changed = {e.trait: e for e in evidence_for(llama, replace(llama, blocks=llama.blocks[:24]))}
    wider = changed["aspect"]
    assert (wider.before, wider.after, wider.direction) == (128.0, 4096 / 24, "up")
    assert {row.id for row in wider.rows} == {row.id for row in ablations("depth and width")}
    # up: Kaplan and Bian the same, Levine both, Fahim better; those for depth read backwards
    assert wider.outcomes == {"better": 1, "worse": 4, "same": 2, "mixed": 1}
    deeper = next(e for e in evidence_for(llama, replace(llama, blocks=llama.blocks * 2)) if e.trait == "aspect")
    assert deeper.direction == "down" and deeper.outcomes == {"better": 4, "worse": 1, "same": 2, "mixed": 1}
    assert deeper.says == "down, 8 published: 4 better, 1 worse, 2 same, 1 mixed" and deeper.extrapolated is None
    assert set(changed) == {"aspect"}


def test_each_trait_is_seen_where_it_changes():
    mixer = SelfAttention(num_heads=16, num_kv_heads=4, head_dim=64)
    plain = Model(name="plain", hidden_size=1024, vocab_size=32000, blocks=(Block(mixer=mixer, ffn=DenseFFN(width=4096)),) * 8)

    def with_mixer(other, layers=4):
        return replace(plain, blocks=plain.blocks[layers:] + tuple(replace(b, mixer=other) for b in plain.blocks[:layers]))

    def moe(**more):
        ffn = MoE(**{"num_experts": 64, "top_k": 4, "width": 512} | more)
        return replace(plain, blocks=tuple(replace(b, ffn=ffn) for b in plain.blocks))

    def seen(before, after):
        return {e.trait: (e.before, e.after) for e in evidence_for(before, after)}

    shared = SharedCacheAttention(num_heads=16, num_kv_heads=4, head_dim=64)
    linear = GatedDeltaNet(num_heads=16, key_heads=8, key_dim=64, head_dim=64, conv=4)
    assert seen(plain, with_mixer(shared)) == {"shared_cache": (0, 0.5)}
    assert seen(plain, with_mixer(linear)) == {"full_attention": (1, 0.5), "linear_layers": (0, 0.5)}
    windowed = {"full_attention": (1, 0.5), "window_layers": (0, 0.5), "window": (None, 128)}
    assert seen(plain, with_mixer(replace(mixer, window=128))) == windowed
    assert seen(plain, replace(plain, vocab_size=64000)) == {"vocabulary": (32000, 64000)}
    assert seen(plain, replace(plain, quantization="fp8")) == {"weight_bits": (16, 8)}
    assert seen(plain, with_mixer(replace(mixer, num_kv_heads=1), 8)) == {"heads_per_kv": (4, 16)}
    assert seen(plain, with_mixer(replace(mixer, head_dim=128), 8)) == {"head_size": (64, 128), "query_width": (1, 2)}
    assert seen(moe(), moe(num_experts=128)) == {"sparsity": (16, 32)}
    assert seen(moe(), moe(num_experts=128, top_k=8, width=256)) == {"expert_width": (0.5, 0.25)}
    assert seen(moe(), moe(shared_width=512)) == {"shared_expert": (0, 1)}
    assert seen(moe(), moe(latent=512, width=1024)) == {"expert_width": (0.5, 2), "expert_latent": (1, 0.5)}
    assert set(seen(plain, moe())) == {"expansion", "granularity", "expert_width", "sparsity", "shared_expert", "expert_latent"}


def test_where_nothing_was_published_it_says_so():
    r1 = config.load("deepseek-r1")
    ffn = replace(r1.blocks[-1].ffn, num_experts=512, top_k=16)  # twice the width a token uses, the same sparsity
    found = evidence_for(r1, replace(r1, blocks=tuple(replace(b, ffn=ffn) if b.routed else b for b in r1.blocks)))
    assert [(e.trait, e.says) for e in found] == [("granularity", "no evidence")]
    dense = replace(r1, blocks=(r1.blocks[0],) * 61)  # experts vanish
    found = {e.trait: e for e in evidence_for(r1, dense)}
    assert found["sparsity"].after is None and found["sparsity"].direction is None and found["sparsity"].says == "no evidence"
    assert found["sparsity"].outcomes == {} and found["sparsity"].extrapolated is None
    assert {row.trait for row in ROWS.values()} < set(TRAITS)


def test_where_no_experiment_says_a_size_none_is_compared():
    llama = config.load("llama-3.1-70b")
    mixer = replace(llama.blocks[0].mixer, num_heads=128, num_kv_heads=16)
    (found,) = evidence_for(llama, replace(llama, blocks=tuple(replace(block, mixer=mixer) for block in llama.blocks)))
    assert (found.trait, found.before, found.after, found.extrapolated) == ("query_width", 1, 2, None)
    assert found.says == "up, 2 published: 1 better, 1 same" and all(row.most_parameters is None for row in found.rows)


def test_a_model_larger_than_all_that_were_trained_is_named_so():
    kimi = config.load("kimi-k2.5")
    (found,) = (e for e in evidence_for(kimi, replace(kimi, vocab_size=2 * kimi.vocab_size)) if e.trait == "vocabulary")
    after = 1026408232448 + 2 * 163840 * 7168  # embedding and head, each of the double size
    assert found.parameters == after and found.extrapolated == pytest.approx(after / 3e9)
    assert found.says == "up, 2 published: 2 better; the model is 3.4e+02 times the largest of them"


# What an architect would pay ----------------------------------------------------------------------------------------------


def test_an_exchange_rate_is_read_and_weighs_a_change():
    rate = exchange_rate(" depth = 0.5 ")
    assert rate == ExchangeRate(what="depth", rate=0.5)
    assert rate.worth(80, 88) == pytest.approx(0.05) and rate.worth(80, 40) == -0.25 and exchange_rate("sparsity=0").rate == 0
    for before, after, name in ((0, 1, "before"), (1, -1, "after")):
        with pytest.raises(ValueError, match=f"^{name} must be > 0"):
            rate.worth(before, after)


@pytest.mark.parametrize("price", ["", "depth", "depth:0.5", "width=0.5", "=0.5", "DEPTH=1", None, 0.5, ["depth=1"]])
def test_a_price_of_another_form_is_refused(price):
    with pytest.raises(ValueError, match="^price must be (text|a name, an equals sign and a number)"):
        exchange_rate(price)


@pytest.mark.parametrize("number", ["", "x", "-0.1", "nan", "inf", "5%", "0.5=1", "1e999"])
def test_a_price_without_a_fair_number_is_refused(number):
    with pytest.raises(ValueError, match="^price must be a share of step time that is finite and >= 0 for a share of depth, got"):
        exchange_rate(f"depth={number}")


@pytest.mark.parametrize("call", [sizes, ratios, traits, family_of, outside])
@pytest.mark.parametrize("wrong", [None, "gpt2", 3, [], float("nan")])
def test_what_is_no_model_is_refused(call, wrong):
    with pytest.raises(ValueError, match="^model must be a Model, got"):
        call(wrong)


@pytest.mark.parametrize("name", ["before", "after"])
def test_a_change_is_between_two_models(name):
    gpt2 = config.load("gpt2")
    with pytest.raises(ValueError, match=f"^{name} must be a Model, got 'gpt2'"):
        evidence_for(**{"before": gpt2, "after": gpt2} | {name: "gpt2"})


@pytest.mark.parametrize(("call", "name"), [
    (lambda x: ratio_band(x, "dense"), "ratio"), (lambda x: ratio_band("aspect", x), "family"), (ablations, "topic"),
    (lambda x: ratio_band("aspect", "dense", above=x), "above"), (lambda x: ablations(unverified=x), "unverified"),
])  # fmt: skip
def test_an_unknown_name_is_refused_by_name(call, name):
    for wrong in ("nonsense", [], object(), float("nan"), 1j):
        with pytest.raises(ValueError, match=f"^{name} must be"):
            call(wrong)
