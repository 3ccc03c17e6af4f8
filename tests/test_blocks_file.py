"""Files of blocks: what is written is read back equal, the ten-line model by hand, errors by their path, and the way to them."""

import csv
import dataclasses
import importlib
import io
import itertools
import json
import math
import pkgutil
import random
import re
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from conftest import configs_2026

import hwdesign as hw
import hwdesign.models
from hwdesign.cli import main
from hwdesign.models import blocks_file, config, nearest, residual
from hwdesign.models.blocks import Block, DenseFFN, MoE, SelfAttention
from hwdesign.models.blocks_text import blocks_of, blocks_text, folded
from hwdesign.models.compressed import CompressedAttention, SharedEntryAttention
from hwdesign.models.factored import FactoredAttention
from hwdesign.models.indexer import Indexer
from hwdesign.models.jet import DynamicDeltaNet
from hwdesign.models.latent import LatentAttention
from hwdesign.models.linear import GatedDeltaNet, KimiDelta, LightningAttention, Mamba1, ParallelMixers, ShortConvolution
from hwdesign.models.mamba import Mamba2
from hwdesign.models.parts import FeedForward, Mixer, Part, Weight
from hwdesign.models.rarer_blocks import (
    ConvolvedAttention,
    DeepRouterMoE,
    ImageMoE,
    PairedLatentAttention,
    RecurrentUnit,
    RelativeAttention,
    RoutedAttention,
    TwoInputAttention,
    WeighedMoE,
)  # fmt: skip
from hwdesign.models.shared_cache import CrossAttention, SharedCacheAttention, SharedKeysAttention

DATA = Path(__file__).parent / "data"
HYBRID = DATA / "hybrid_30b.json"
CONFIGS = configs_2026()
CLASSES = list(csv.DictReader((DATA / "class_defaults_2026.csv").open(encoding="utf-8")))
KV = {"num_heads": 8, "num_kv_heads": 2, "head_dim": 16}


def run(*words):
    """(exit status, standard output, standard error) of the command line."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        status = main(list(map(str, words)))
    return status, out.getvalue(), err.getvalue()


def refusal(values):
    """The one line with which a config is refused, in little time."""
    start = time.process_time()
    with pytest.raises(ValueError) as error:
        config.load(values)
    text = str(error.value)
    assert type(error.value) is ValueError and "\n" not in text and len(text) < 900, text
    assert time.process_time() - start < 2  # 0.35 for the slowest; a busy machine takes twice as long
    return text


# What is written is read back.


@pytest.mark.parametrize("source", [*config.names(), *CONFIGS.values()], ids=str)
def test_every_config_comes_back_equal_and_is_short(source):
    model = config.load(source)
    lines = blocks_text(model).splitlines()
    assert config.load(json.loads("\n".join(lines))) == model
    assert len(lines) <= 60 and max(map(len, lines)) <= 100


def test_every_reader_comes_back_equal():
    """Each type that transformers counted, with class defaults and with changed sizes."""
    for row in CLASSES:
        model = config.load(json.loads(row["config"]))
        again = config.load(json.loads(blocks_text(model)))
        assert again == model and str(again.parameters) == row["total"], row["model_type"]
    assert len(CLASSES) > 250


def test_known_models_take_few_lines():
    lengths = {name: len(blocks_text(config.load(name)).splitlines()) for name in ("llama-3.1-8b", "deepseek-r1")}
    assert lengths["llama-3.1-8b"] <= 12 and lengths["deepseek-r1"] < 30
    (row, *_) = [row for row in CLASSES if row["model_type"] == "qwen3_next"]
    assert len(blocks_text(config.load(json.loads(row["config"]))).splitlines()) < 40


def test_defaults_are_not_written():
    """GPT-2's file names what differs and nothing else."""
    found = blocks_of(config.load("gpt2"))
    assert list(found) == ["hwdesign_blocks", "name", "hidden_size", "vocab_size", "tied_embeddings", "positions", "norm_bias",
                           "max_positions", "blocks"]  # fmt: skip
    assert list(found["blocks"][0]) == ["times", "mixer", "ffn", "norm_bias"]


# Every kind of block with every field another than its default.

INDEXER = Indexer(num_heads=4, head_dim=8, top_k=16, shared=True, weighted=False, pool=2, averaged=2)
MIXERS = [
    SelfAttention(**KV, window=9, qkv_bias=True, out_bias=True, qk_norm="head", sinks=True, value_dim=24, output_gate="head",
                  indexer=INDEXER),
    SelfAttention(**KV, value_weight=False),
    LatentAttention(num_heads=4, q_rank=24, kv_rank=16, nope_dim=8, rope_dim=4, v_dim=12, bias=True, window=7, output_gate=True,
                    indexer=INDEXER, head_gate=True),
    CompressedAttention(num_heads=4, head_dim=8, q_rank=16, window=5, out_groups=2, out_rank=6, ratio=4, index_heads=3,
                        index_dim=10, top_k=11),
    Mamba2(num_heads=6, head_dim=8, groups=3, state=16, conv=4, bias=True, conv_bias=False, norm=False, out_bias=True),
    Mamba1(num_heads=24, state=16, conv=4, rank=5, bias=True, conv_bias=False, norm=False),
    GatedDeltaNet(num_heads=8, key_heads=4, key_dim=16, head_dim=12, conv=3),
    DynamicDeltaNet(num_heads=8, key_heads=4, key_dim=16, head_dim=12, conv=3, generator=10),
    KimiDelta(num_heads=4, head_dim=16, conv=4, gate_rank=8, full_decay=True),
    LightningAttention(num_heads=4, head_dim=16, qk_norm=True, qkv_bias=True, out_bias=True),
    ShortConvolution(num_heads=64, conv=3, bias=True),
    SharedCacheAttention(**KV, window=9, qkv_bias=True, out_bias=True, qk_norm="full", sinks=True, output_gate="element"),
    SharedCacheAttention(**KV, value_dim=24),
    SharedCacheAttention(**KV, value_weight=False),
    SharedKeysAttention(**KV, value_dim=24),
    SharedKeysAttention(**KV, value_weight=False),
    CrossAttention(**KV, value_weight=False, tokens=40),
    CrossAttention(**KV, value_dim=24, tokens=40),
    SharedKeysAttention(**KV, window=9, qkv_bias=True, out_bias=True, qk_norm="head", sinks=True, output_gate="head"),
    CrossAttention(**KV, qkv_bias=True, out_bias=True, qk_norm="head", sinks=True, tokens=40),
    SharedEntryAttention(num_heads=4, head_dim=8, q_rank=16, window=5, out_groups=2, out_rank=6, ratio=4, index_heads=3,
                         index_dim=10, top_k=11, keeps=True, picks=True),
    FactoredAttention(**KV, q_rank=24, window=9, qkv_bias=True, out_bias=True, sinks=True),
    ParallelMixers(first=SelfAttention(**KV), second=Mamba2(num_heads=6, head_dim=8, groups=3, state=16, conv=4)),
    TwoInputAttention(**KV, window=9, qkv_bias=True, out_bias=True, qk_norm="head", sinks=True, output_gate="head",
                      indexer=INDEXER),
    TwoInputAttention(**KV, value_dim=24),
    TwoInputAttention(**KV, value_weight=False),
    ConvolvedAttention(**KV, window=9, qkv_bias=True, out_bias=True, qk_norm="head", sinks=True, output_gate="head",
                       indexer=INDEXER, conv=2, head_conv=3),
    ConvolvedAttention(**KV, value_dim=24, conv=2, head_conv=3),
    ConvolvedAttention(**KV, value_weight=False, conv=2, head_conv=3),
    RelativeAttention(**KV, window=9, qkv_bias=True, out_bias=True, qk_norm="head", sinks=True, output_gate="head",
                      indexer=INDEXER, conv=2, relative=3, extent=8, out_channels=64),
    RelativeAttention(**KV, value_dim=24, conv=2, relative=3, extent=8, out_channels=64),
    RelativeAttention(**KV, value_weight=False, conv=2, relative=3, extent=8, out_channels=64),
    RoutedAttention(num_heads=4, num_kv_heads=2, head_dim=16, window=9, num_experts=6, top_k=2),
    PairedLatentAttention(num_heads=4, q_rank=24, kv_rank=16, nope_dim=8, rope_dim=4, v_dim=12, bias=True, window=7,
                          indexer=INDEXER),
    RecurrentUnit(num_heads=4, head_dim=16, conv=3),
]  # fmt: skip
FEEDS = [
    DenseFFN(width=48, gated=False, bias=True),
    MoE(num_experts=8, top_k=2, width=24, gated=False, bias=True, shared_width=32, shared_gate=True, router_bias=True,
        router_correction=True, router_scale=True, zero_experts=4, latent=16, latent_norm=True,
        image_correction=True),
    *(kind(num_experts=8, top_k=2, width=24, gated=False, bias=True, shared_width=32, shared_gate=True, router_bias=True,
           router_correction=True, router_scale=True, zero_experts=4, latent=16, latent_norm=True, image_correction=True, **more)
      for kind, more in ((ImageMoE, {"image_width": 12}), (DeepRouterMoE, {"router_width": 10}),
                         (WeighedMoE, {"shared_experts": 2}))),
]  # fmt: skip
INPUTS = residual.PerLayerInputs(width=8)
RESIDUALS = [residual.HyperConnections(streams=3, mixed=False), residual.AttentionResidual(), INPUTS,
             residual.AlternatingUpdates(streams=3, rank=5, inputs=INPUTS),
             residual.Engram(streams=3, rows=50, row_size=6, columns=4, mixed=False),
             residual.LowRankConnections(streams=3, rank=5), residual.GatedNorms(rank=5, gates=1),
             residual.SharedInput(rank=5, width=6, attention_adapters=3)]  # fmt: skip
FIXED = {("SharedCacheAttention", "indexer"), ("SharedKeysAttention", "indexer"),  # what a kind cannot have
         *(("CrossAttention", name) for name in ("window", "indexer", "output_gate")),
         *(("FactoredAttention", n) for n in ("qk_norm", "output_gate", "value_dim", "value_weight", "indexer")),
         *(("PairedLatentAttention", name) for name in ("output_gate", "head_gate")),
         *(("RoutedAttention", field.name) for field in dataclasses.fields(SelfAttention) if field.name != "window")}  # fmt: skip
BLOCKS = [Block(mixer=m, ffn=f, norms=3, norm_bias=True, scalars=2, residual=r, repeated=True)
          for m, f, r in zip(MIXERS, itertools.cycle(FEEDS), itertools.cycle(RESIDUALS), strict=False)]  # fmt: skip
EVERYTHING = hw.Model(
    name="everything", hidden_size=64, vocab_size=100,
    blocks=(*BLOCKS, Block(mixer=None, ffn=FEEDS[1]), Block(mixer=MIXERS[1], ffn=None)),
    positions=32, norm_bias=True, embedding_norm=True, final_norm=False, head_bias=True, labels=3, quantization="nvfp4",
    formats=(("attention", (("bf16", 0.1), ("nvfp4", 0.9))), ("ffn", (("fp8", 1.0),))), kv_cache="fp8", max_positions=4096,
    left_out=("a tower", "1 prediction layer"), embedding_size=32,
    closing=(Weight(name="last", part="residual", n=3, k=4, stored=5, used=2, matmul=False),),
)  # fmt: skip
VARIANTS = [{"lm_head": False}, {"tied_embeddings": True}, {"quant_method": "gptq"},
            {"quantization": None, "formats": (), "bytes_unknown": "nobody says them"}]


def test_the_tables_above_hold_every_kind_and_change_every_field():
    """A new kind or field fails here until it stands above."""
    for base, objects in ((Mixer, MIXERS), (FeedForward, FEEDS), (residual.Residual, RESIDUALS)):
        assert {type(item) for item in objects} == set(blocks_file.kinds(base).values())
    for item in (*MIXERS, *FEEDS, *RESIDUALS, *BLOCKS, INDEXER, EVERYTHING, *EVERYTHING.closing):
        for field in dataclasses.fields(item):
            seen = [getattr(other, field.name) for other in (*MIXERS, *FEEDS, *BLOCKS, item) if type(other) is type(item)]
            seen += [variant[field.name] for variant in VARIANTS if item is EVERYTHING and field.name in variant]
            fixed = (type(item).__name__, field.name) in FIXED
            assert fixed or any(value != field.default for value in seen), f"{type(item).__name__}.{field.name}"


@pytest.mark.parametrize("changes", [{}, *VARIANTS], ids=str)
def test_every_kind_and_field_comes_back(changes):
    model = dataclasses.replace(EVERYTHING, **changes)
    text = blocks_text(model)
    again = config.load(json.loads(text))
    assert again == model and again.parameters == model.parameters and blocks_text(again) == text


def test_a_file_knows_all_kinds_of_the_package():
    """Also where nothing but the reader of files was imported."""
    code = "from hwdesign.models import blocks_file as b; from hwdesign.models.parts import Part; print(*b.kinds(Part))"
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    for module in pkgutil.iter_modules(hwdesign.models.__path__):
        importlib.import_module(f"hwdesign.models.{module.name}")
    waiting, found = [Part], set()
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if dataclasses.is_dataclass(cls) and cls.__module__.startswith("hwdesign."):
            found.add(cls)
    assert set(blocks_file.kinds(Part).values()) == found and len(alone) == len(found) >= 12


def test_what_a_file_cannot_hold_is_refused():
    class Own(DenseFFN):
        """A kind of somebody else."""

    with pytest.raises(ValueError, match=r"\Amodel must have blocks of the kinds of a file of blocks, got [^\n]*Own"):
        blocks_text(hw.Model(name="x", hidden_size=8, vocab_size=8, blocks=(Block(mixer=None, ffn=Own(width=8)),)))
    with pytest.raises(ValueError, match="model must be a Model"):
        blocks_text("gpt2")


# Patterns.


def unfolded(pattern):
    found = []
    for times, inside in pattern:
        found += times * (unfolded(inside) if isinstance(inside, list) else [inside])
    return found


def test_folding_loses_nothing():
    rng = random.Random(1)
    for _ in range(300):
        items = [rng.randrange(3) for _ in range(rng.randrange(1, 7))] * rng.randrange(1, 9)
        items = [rng.randrange(3) for _ in range(rng.randrange(4))] + items + items[: rng.randrange(3)]
        assert unfolded(folded(items)) == items
    assert folded([0] * 32) == [(32, 0)] and folded([0, 0, 0, 1] * 12) == [(12, [(3, 0), (1, 1)])]
    assert folded([2, *[0, 0, 0, 1] * 5]) == [(1, 2), (5, [(3, 0), (1, 1)])]  # not from the first place on that repeats


def test_ten_thousand_layers_are_written_in_time():
    rng, start = random.Random(2), time.process_time()
    kinds = [Block(mixer=None, ffn=DenseFFN(width=8 * i)) for i in (1, 2, 3)]
    for items in ([0] * 10_000, [0, 1] * 5_000, [rng.randrange(3) for _ in range(10_000)]):
        model = hw.Model(name="deep", hidden_size=8, vocab_size=8, blocks=tuple(kinds[i] for i in items))
        assert config.load(json.loads(blocks_text(model))) == model
    assert time.process_time() - start < 20


# The model of the page, by hand: 30 B, gated delta net 3:1 MLA, experts that work on vectors of 1024, 2 prediction layers.

H = 2048
# Queries, keys and values with their convolution; z; a and b; what decays; the norm; the projection out.
DELTA = (2 * 16 * 128 + 4096) * (H + 4) + 4096 * H + 2 * 32 * H + 2 * 32 + 128 + 4096 * H
MLA = H * 768 + 768 + 768 * 32 * (128 + 64) + H * (512 + 64) + 512 + 512 * 32 * (128 + 128) + 32 * 128 * H
EXPERTS = 240 * H + 240 * 3 * 1024 * 768 + 2 * 1024 * H + 3 * 768 * H  # router, experts, down and up again, one shared expert
TOTAL = 2 * 131072 * H + H + 36 * DELTA + 12 * MLA + 48 * (EXPERTS + 2 * H)
AHEAD = 2 * (MLA + EXPERTS + 2 * H + 2 * H * H + 3 * H)  # a block, the projection of state and embedding, three norms


def test_the_invented_model_by_hand():
    model = config.load(HYBRID)
    assert len(HYBRID.read_text(encoding="utf-8").splitlines()) <= 10
    assert model.parameters == TOTAL == 29_622_099_712
    assert model.active_parameters(include_embedding=True) == TOTAL - 48 * 232 * 3 * 1024 * 768 == 3_348_979_456
    assert model.kv_bytes_per_token() == 12 * (512 + 64) * 2
    assert model.state_bytes() == 36 * (32 * 128 * 128 * 4 + 8192 * 3 * 2)
    assert model.left_out == (f"2 prediction layers ({AHEAD:,} parameters)",) and AHEAD == 1_208_179_200
    assert [block.kind for block in model.blocks[:4]] == ["gated delta net + MoE 8 of 240"] * 3 + ["MLA + MoE 8 of 240"]
    assert config.load(json.loads(blocks_text(model))) == model


def test_the_page_shows_this_model(tmp_path, monkeypatch):
    """Its JSON and what show prints, word by word; each of its commands runs."""
    page = (Path(__file__).parents[1] / "book/checking.md").read_text(encoding="utf-8")
    section = page.split("### A model that no reader knows")[1].split("\n## ")[0]
    monkeypatch.chdir(tmp_path)
    (example,), (printed,) = (re.findall(rf"```{kind}\n(.*?)```", section, re.S) for kind in ("json", "text"))
    assert example == HYBRID.read_text(encoding="utf-8")
    Path("hybrid.json").write_text(example, encoding="utf-8")
    assert run("show", "hybrid.json") == (0, printed, "")
    for command in re.search(r"```bash\n(.*?)```", section, re.S)[1].splitlines():
        words, _, file = command.partition(" > ")
        status, out, _ = run(*words.split()[1:])
        assert status == 0
        if file:
            Path(file).write_text(out, encoding="utf-8")
    assert "nothing differs" in out


def test_prediction_layers_are_said_as_a_reader_says_them():
    """DeepSeek-V3 described in blocks says the same words as its config."""
    model = config.load("deepseek-v3")
    values = blocks_of(model)
    (words,) = values.pop("left_out")
    last = {key: value for key, value in values["blocks"][-1].items() if key != "times"}
    assert config.load({**values, "prediction_layers": {"blocks": [last]}}).left_out == (words,) == model.left_out
    both = config.load({**values, "left_out": ["vision tower"], "prediction_layers": {"times": 3, "blocks": [last]}})
    assert both.left_out == ("vision tower", f"3 prediction layers ({3 * 11_610_068_224:,} parameters)")
    closing = {"blocks": [last], "closing": [{"name": "x", "part": "norm", "n": 7, "matmul": False}]}
    assert "(11,610,068,231 parameters)" in config.load({**values, "prediction_layers": closing}).left_out[0]
    assert both.parameters == model.parameters


# The command line.


def test_show_writes_what_show_check_and_diff_read(tmp_path):
    for name in ("llama-3.1-8b", "deepseek-r1", str(HYBRID)):
        status, text, _ = run("show", name, "--format", "blocks")
        file = tmp_path / "mine.json"
        file.write_text(text, encoding="utf-8")
        assert status == 0 and run("show", file) == run("show", name)
        options = ("--device", "H200", "--tp", "4", "--ep", "4")
        mine, own = run("check", file, *options), run("check", name, *options)
        assert mine[0] == own[0] and mine[1].replace(str(file), name).split() == own[1].split()
        status, told, _ = run("diff", name, file, *options)
        assert status == 0 and "model and settings, nothing differs" in told


@pytest.mark.parametrize("form", ["text", "markdown", "json", "sarif", "html"])
def test_check_reads_it_in_every_format(form):
    status, text, errors = run("check", HYBRID, "--device", "H200", "--recipe", "fp8", "--tp", "4", "--ep", "4", "--format", form)
    assert (status, errors) == (0, "") and "hybrid_30b.json" in text
    assert "1,208,179,200 parameters" in text or form == "sarif"


def test_a_name_is_no_order_to_a_terminal(tmp_path):
    values = json.loads(HYBRID.read_text(encoding="utf-8"))
    for name in ("a\x1b[31m", "a\nb", "\u202eb", "x" * 301):
        assert "config key 'name' must be text in one line, got " in refusal({**values, "name": name})
    file = tmp_path / "x.json"
    file.write_text(json.dumps({**values, "name": "::error::here"}), encoding="utf-8")
    assert run("show", file)[1].startswith(r":\x3aerror:\x3ahere")


@pytest.mark.parametrize("name", ["\x00", "\ud800", "\u202e", "\x1b[2J"])
def test_a_name_that_nobody_sees_comes_back_in_escapes(name):
    """Of a config whose name is no text in one line."""
    model = config.load({**json.loads((config.SHIPPED / "gpt2.json").read_text(encoding="utf-8")), "_name_or_path": name})
    text = blocks_text(model)
    assert text.isascii() and config.load(json.loads(text)).parameters == model.parameters


def test_a_folder_names_a_file_without_a_name(tmp_path):
    values = {key: value for key, value in json.loads(HYBRID.read_text(encoding="utf-8")).items() if key != "name"}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/config.json").write_text(json.dumps(values), encoding="utf-8")
    assert config.load(tmp_path / "mine").name == "mine" and config.load(values).name == "model"
    (tmp_path / "mine/hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"\Ahf_quant_config.json must be absent beside a file of blocks, [^\n]*\Z"):
        config.load(tmp_path / "mine")


# What is wrong is said by its path.


def put(*path):
    """The invented model with the last word at the place that the others name."""
    values = json.loads(HYBRID.read_text(encoding="utf-8"))
    *places, key, value = path
    inside = values
    for place in places:
        inside = inside[place]
    inside[key] = value
    return values


EXPERT, ENTRY = ("parts", "experts"), ("blocks", 0, "blocks", 0)
FEED_KINDS = "deep_router_moe, dense_ffn, image_moe, moe, weighed_moe"
FEED_OR = FEED_KINDS.replace(", ", " or ")
WRONG = [
    (put("hwdesign_blocks", 2), "'hwdesign_blocks' must be 1, the version of a file of blocks, got 2"),
    (put("hwdesign_blocks", True), "'hwdesign_blocks' must be 1, the version of a file of blocks, got True"),
    ({"blocks": []}, "'hwdesign_blocks' must be 1, the version of a file of blocks, got nothing"),
    ({"blocks": [], "hwdesign_block": 1}, "got nothing (is 'hwdesign_block' meant?)"),
    ({"hwdesign_blocks": 1}, "'hidden_size' must be a whole number up to 2000000, got nothing"),
    ({"hwdesign_blocks": 1, "hidden_size": 8, "vocab_size": 8}, "'blocks' must be a list of at most 10000, got nothing"),
    (put("hidden_size", "2048"), "'hidden_size' must be a whole number up to 2000000, got '2048'"),
    (put("hidden_size", 2048.0), "'hidden_size' must be a whole number up to 2000000, got 2048.0"),
    (put("hidden_size", True), "'hidden_size' must be a whole number up to 2000000, got True"),
    (put("hidden_size", 0), "'hidden_size' must be >= 1, got 0"),
    (put("hidden_size", 2_000_001), "'hidden_size' must be a whole number up to 2000000, got 2000001"),
    (put("vocab_size", math.nan), "'vocab_size' must be a whole number up to 20000000, got nan"),
    (put("vocab_size", 10**5000), "'vocab_size' must be a whole number up to 20000000, got a int too large to print"),
    (put("max_positions", 10**10), "'max_positions' must be a whole number up to 1000000000 or null, got 10000000000"),
    (put("hiden_size", 2048), "'hiden_size' must be a key of a file of blocks, got 2048; did you mean 'hidden_size'?"),
    (put("model_type", "llama"), "'model_type' must be a key of a file of blocks, which takes parts, prediction_layers, name, "),
    (put("name", 3), "'name' must be text in one line, got 3"),
    (put("tied_embeddings", 1), "'tied_embeddings' must be true or false, got 1"),
    (put("quantization", "fp7"), "'quantization' must be one of bf16, fp8, "),
    (put("kv_cache", "fp3"), "'kv_cache' must be one of "),
    (put("formats", {"ffn": {"bf16": 1.0}}), "'formats' must be empty without quantization, got "),
    (put("formats", []), "'formats' must be an object as "),
    (put("left_out", "x"), "'left_out' must be a list of at most 10000, got 'x'"),
    (put("left_out", ["x", 1]), "'left_out[1]' must be text in one line, got 1"),
    (put("closing", [{"name": "a", "part": "norms", "n": 1}]), "'closing[0].part' must be one of embedding, "),
    (put("closing", [{"name": "a", "part": "norm", "n": -1}]), "'closing[0].n' must be at least 1, got -1"),
    (put(*EXPERT, "kind", "moa"), "'parts.experts.kind' must be one of " + FEED_KINDS + ", got 'moa'; did you mean 'moe'?"),
    (put(*EXPERT, "kind", ["moe"]), "'parts.experts.kind' must be one of " + FEED_KINDS + ", got ['moe']"),
    (put(*EXPERT, "top_k", 241), "'parts.experts.top_k' must be at most the number of experts, got 241"),
    (put(*EXPERT, "topk", 8), "'parts.experts.topk' must be a key of moe, got 8; did you mean 'top_k'?"),
    (put(*EXPERT, "latent", -1), "'parts.experts.latent' must be >= 0, got -1"),
    (put("parts", "delta", "key_heads", 5), "'parts.delta.num_heads' must be a multiple of key_heads 5, got 32"),
    (put("parts", "delta", None), "'parts.delta' must be an object, got None"),
    (put("parts", "mla", "indexer", {"num_heads": 4, "head_dim": 2}), "'parts.mla.indexer.top_k' must be a whole number up to "),
    (put("parts", "mla", "indexer", "delta"), "'parts.mla.indexer' must be a part of kind indexer, got 'delta'"),
    (put("parts", "mla", "indexer", {"num_heads": 4, "head_dim": 2, "top_k": 1, "pool": 0}),
     "'parts.mla.indexer.pool' must be >= 1"),
    (put("parts", "spare", {"kind": "moe"}), "'parts.spare' must be named by a block or absent, got {'kind': 'moe'}"),
    (put("parts", ["delta"]), "'parts' must be an object of at most 10000 parts by names, got ['delta']"),
    (put("parts", 1, {"kind": "moe"}), "'parts' must be an object of at most 10000 parts by names, got {"),
    (put("parts", "mla", 1, 2), "'parts.mla.1' must be a key of latent_attention, which takes kind, num_heads, "),
    (put(*ENTRY, "mixer", "dleta"), "'blocks[0].blocks[0].mixer' must be an object or the name of a part or null, got 'dleta'"),
    (put(*ENTRY, "mixer", "dleta"), "got 'dleta'; did you mean 'delta'?"),
    (put(*ENTRY, "ffn", "mla"), "'blocks[0].blocks[0].ffn' must be a part of kind " + FEED_OR + ", got 'mla'"),
    (put(*ENTRY, "ffn", {"width": 8}), "'blocks[0].blocks[0].ffn.kind' must be one of " + FEED_KINDS + ", got nothing"),
    (put(*ENTRY, "ffn", [8]), "'blocks[0].blocks[0].ffn' must be an object or the name of a part or null, got [8]"),
    (put(*ENTRY, "mixer", {"kind": "self_attention", "num_heads": 8, "num_kv_heads": 3, "head_dim": 8}),
     "'blocks[0].blocks[0].mixer.num_kv_heads' must be a divisor of num_heads, got 3"),
    (put(*ENTRY, "mixer", {"kind": "self_attention", **KV, "qk_norm": "heads"}),
     "'blocks[0].blocks[0].mixer.qk_norm' must be one of head, full, got 'heads'; did you mean 'head'?"),
    (put(*ENTRY, "mixer", {"kind": "mamba2", "num_heads": 8, "head_dim": 8, "groups": 3, "state": 8, "conv": 4}),
     "'blocks[0].blocks[0].mixer.groups' must be a divisor of num_heads, got 3"),
    (put(*ENTRY, "residual", {"kind": "attention_residual", "streams": 4}),
     "'blocks[0].blocks[0].residual.streams' must be a key of "),
    (put(*ENTRY, "mixer", {"kind": "compressed_attention", "num_heads": 4, "head_dim": 8, "q_rank": 16, "out_groups": 2}),
     "'blocks[0].blocks[0].mixer.window' must be a whole number up to 2000000, got nothing"),
    (put(*ENTRY, "norms", -1), "'blocks[0].blocks[0].norms' must be >= 0, got -1"),
    (put(*ENTRY, "norms", 2_000_000), "'blocks[0].blocks[0].norms' must be at most 64, got 2000000"),
    (put(*ENTRY, "times", 0), "'blocks[0].blocks[0].times' must be a whole number from 1 to 10000, got 0"),
    (put(*ENTRY, "times", 1e3), "'blocks[0].blocks[0].times' must be a whole number from 1 to 10000, got 1000.0"),
    (put("blocks", 0, "times", 2501), "'blocks[0]' must be at most 10000 blocks with those before, got "),
    (put("blocks", 0, "mixer", "mla"),
     "'blocks[0].mixer' must be a key of a group of blocks, which takes times, blocks, got 'mla'"),
    (put("blocks", ["delta"]), "'blocks[0]' must be a part of kind block, got 'delta'"),
    (put("blocks", [3]), "'blocks[0]' must be an object or the name of a part, got 3"),
    (put("blocks", []), "'blocks' must be a list of 1 to 10000 blocks, got []"),
    ({"hwdesign_blocks": 1, "hidden_size": 8, "vocab_size": 8, "blocks": [{"mixer": None, "ffn": None}]},
     "'blocks' must be layers of which one has a mixer or an ffn, got [{'mixer': None, 'ffn': None}]"),
    (put("prediction_layers", 2), "'prediction_layers' must be an object with times and blocks, got 2"),
    (put("prediction_layers", {}), "'prediction_layers.blocks' must be a list of 1 to 10000 blocks, got []"),
    (put("prediction_layers", "times", 0), "'prediction_layers.times' must be a whole number from 1 to 10000, got 0"),
    (put("prediction_layers", "layers", 2), "'prediction_layers.layers' must be a key of prediction layers, which takes times, "),
    (put("parts", "mla", {"kind": "parallel_mixers", "first": "mla", "second": "delta"}),
     "'parts.mla' must be no parallel_mixers inside another"),
    (put(1, 2), "config keys must be text, got 1"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "says"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_an_error_names_the_path(values, says):
    text = refusal(values)
    assert says in text and (text.startswith("config key '") or "keys must be text" in text)


def test_a_note_and_a_null_are_no_mistake():
    model = config.load(HYBRID)
    for values in (put("_source", "a drawing"), put("max_positions", None), put("parts", "mla", "indexer", None)):
        assert config.load(values) == model
    assert config.load(put("prediction_layers", None)).left_out == ()


def hostile():
    """Files that would take for ever, or for much memory, as text."""
    start = '{"hwdesign_blocks": 1, "hidden_size": 8, "vocab_size": 8, '
    feed = '{"mixer": null, "ffn": {"kind": "dense_ffn", "width": 8}}'
    yield start + '"blocks": ' + '[{"blocks": ' * 20_000 + "[" + feed + "]" + "}]" * 20_000 + "}"
    yield start + '"blocks": ' + "[" * 100_000
    yield start + '"blocks": ' + '[{"times": 10000, "blocks": ' * 30 + "[" + feed + "]" + "}]" * 30 + "}"
    yield start + '"blocks": [' + ",".join([feed] * 10_001) + "]}"
    both = ", ".join(f'"p{i}": {{"kind": "parallel_mixers", "first": "p{i + 1}", "second": "p{i + 1}"}}' for i in range(60))
    yield start + '"parts": {' + both + '}, "blocks": [{"mixer": "p0", "ffn": null}]}'
    yield start + '"parts": {' + ", ".join(f'"p{i}": {{}}' for i in range(50_000)) + '}, "blocks": [' + feed + "]}"
    yield start + '"parts": {' + ", ".join(f'"p{i}": {{}}' for i in range(9_000)) + '}, "blocks": ["pp"]}'
    yield '{"blocks": [], ' + ", ".join(f'"hwdesign_bl{i}": 1' for i in range(200_000)) + "}"
    yield start + '"blocks": [' + feed + '], "left_out": [' + ",".join(['"x"'] * 20_000) + "]}"
    yield start + '"blocks": [{"mixer": null, "ffn": {"kind": "dense_ffn", "width": ' + "9" * 5000 + "}}]}"
    yield start + '"blocks": [' + feed + '], "' + "k" * 100_000 + '": 1}'
    yield start + '"blocks": [{"mixer": "' + "m" * 100_000 + '", "ffn": null}]}'
    yield start + '"blocks": [' + feed + '], "blocks": [' + feed + ", " + feed + "]}"
    yield start + '"blocks": [' + feed + "], NaN: 1}"


@pytest.mark.parametrize("number", range(len(list(hostile()))))
def test_hostile_files_end_in_one_line(number, tmp_path):
    file, start = tmp_path / "x.json", time.process_time()
    file.write_text(list(hostile())[number], encoding="utf-8")
    status, out, errors = run("show", file)
    assert (status, out, errors.count("\n")) == (2, "", 1) and len(errors) < 1300
    assert re.match("hwdesign: (config key|source must be|'x.json')", errors) and time.process_time() - start < 2


def test_no_value_anywhere_raises_something_else():
    """Each place of a file with everything in it takes odd values, or refuses them by its path."""
    text, refused = blocks_text(EVERYTHING), 0

    def places(value, where=()):
        for key, inside in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*where, key)
            if isinstance(inside, dict | list):
                yield from places(inside, (*where, key))

    odd = (None, True, -1, 0, 3.5, 10**30, math.inf, "", "moe", [], [None], {}, {"kind": "moe"})
    for number, place in enumerate(places(json.loads(text))):
        for value in odd[number % 3 :: 3]:  # of each place a third: its neighbours of the same sort take the others
            values = json.loads(text)
            inside = values
            for key in place[:-1]:
                inside = inside[key]
            inside[place[-1]] = value
            try:
                config.load(values)
            except ValueError as error:
                refused += 1
                assert re.fullmatch("config key '[^\n]+", str(error)) and " must " in str(error), (place, value, str(error))
    assert refused > 1000


# The way to a file: what a refusal of a config says.


def unknown(name, **changed):
    values = json.loads(CONFIGS[name].read_text(encoding="utf-8"))
    values = values.get("text_config", values)
    return refusal({**values, "model_type": "nobody9", **changed})


NEAREST = [
    ("zai-org--GLM-5.1", {"merge_layers": 4}, "reads as glm_moe_dsa apart from: merge_layers; "),
    ("moonshotai--Kimi-K2-Instruct", {}, "its keys read as deepseek_v3; "),
    ("deepseek-ai--DeepSeek-V4-Flash", {"foo_heads": 4, "ffn_bar": 2}, "reads as deepseek_v4 apart from: foo_heads, ffn_bar; "),
    ("google--gemma-4-26B-A4B", {"x_rank": 4}, "reads as gemma4 apart from: x_rank; "),
    ("zai-org--GLM-5.1", {"n_\n::error::": 4}, "reads as glm_moe_dsa apart from: 'n_\\n::error::'; "),
    ("Qwen--Qwen3.5-35B-A3B", {f"n_key_{i}": 1 for i in range(6)}, "n_key_0, n_key_1, n_key_2, n_key_3 and 2 more; "),
    ("Qwen--Qwen3.5-35B-A3B", {f"n_key_{i}": 1 for i in range(7)}, "got 'nobody9'; describe it in blocks: "),
]


@pytest.mark.parametrize(("name", "changed", "says"), NEAREST)
def test_an_unknown_type_names_the_nearest_reader(name, changed, says):
    text = unknown(name, **changed)
    assert says in text and len(text) < 350
    command = re.search(r"describe it in blocks: hwdesign (show [\w.-]+ --format blocks)\Z", text)
    assert run(*command[1].split())[0] == 0


def test_each_type_is_nearest_to_itself_or_to_one_whose_keys_are_the_same():
    """What is named reads the config without the keys that are named."""
    for name in CONFIGS:
        values = json.loads(CONFIGS[name].read_text(encoding="utf-8"))
        values = values.get("text_config", values)
        text = unknown(name, blub_heads=3)
        near, keys = re.search(r"reads as (\w+) apart from: ([\w, ]+);", text).groups()
        assert keys == "blub_heads", (name, text)
        assert config.load({**values, "model_type": near}).parameters


def test_a_misspelt_type_is_the_one_that_is_meant():
    values = json.loads((Path(config.__file__).parent / "configs/qwen2.5-7b.json").read_text(encoding="utf-8"))
    assert "; its keys read as qwen2; " in refusal({**values, "model_type": "qwen_2"})
    assert "; its keys read as mistral; " in refusal({**values, "model_type": "mistrall"})


def test_an_unknown_key_says_the_way_on():
    for name, begin in (("llama-3.1-70b", "llama-3.1-8b"), ("deepseek-r1", "deepseek-v3"), ("gpt2", "gpt2")):
        values = json.loads((Path(config.__file__).parent / f"configs/{name}.json").read_text(encoding="utf-8"))
        text = refusal({**values, "n_blub_heads": 3})
        assert "'n_blub_heads' must be absent: " in text
        assert text.endswith(f", got 3; describe it in blocks: hwdesign show {begin} --format blocks")


def test_each_sort_of_keys_has_a_shipped_config():
    assert set(nearest.SORTS.values()) <= {config_type(name) for name in config.names()}


def config_type(name):
    values = json.loads((Path(config.__file__).parent / f"configs/{name}.json").read_text(encoding="utf-8"))
    return values.get("text_config", values)["model_type"]


def test_what_would_take_long_is_not_tried():
    llama = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8, "vocab_size": 100, "model_type": "nobody9"}
    for values in ({"num_hidden_layers": 10_000}, {"num_hidden_layers": 2, "x": [0] * 5000}, {f"k{i}": 1 for i in range(5000)},
                   {"num_hidden_layers": 2, "layer_types": [[[0] * 1000] * 3] * 3}):  # fmt: skip
        start = time.process_time()
        assert "its keys read" not in refusal({**llama, **values}) and time.process_time() - start < 0.2
    assert "its keys read as llama" in refusal({**llama, "num_hidden_layers": 2})


def test_mixers_side_by_side_are_judged_in_either_order():
    """A fix changes the one whose width it is about, also where the other has a field or a width of that name."""
    narrow = {"kind": "self_attention", "num_heads": 20, "num_kv_heads": 4, "head_dim": 80}
    sizes = {"num_heads": 8, "kv_rank": 128, "nope_dim": 64, "rope_dim": 32, "v_dim": 64}
    latent = {"kind": "latent_attention", "q_rank": 200, **sizes}
    channels = {"kind": "mamba1", "num_heads": 200, "state": 16, "conv": 4, "rank": 8}
    for pair, name in ((narrow, "query heads"), (latent, "query latent")):
        texts = []
        for first, second in ((pair, channels), (channels, pair)):
            mixer = {"kind": "parallel_mixers", "first": first, "second": second}
            block = {"times": 4, "mixer": mixer, "ffn": {"kind": "dense_ffn", "width": 4096}}
            model = config.load({"hwdesign_blocks": 1, "hidden_size": 1024, "vocab_size": 32000, "blocks": [block]})
            found = hw.checklist(hw.Case(model=model, device="H200", recipe="fp8")).findings
            texts.append([fix.text for finding in found if finding.dimension == name for fix in finding.fixes])
        assert texts[0] == texts[1] and texts[0], (name, texts)
