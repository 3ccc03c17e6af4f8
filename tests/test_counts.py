"""Counts: every shipped model equals its published integers to the last digit; caches, bytes, siblings; a second counter."""

import csv
import json
import time
from dataclasses import fields, replace
from pathlib import Path

import pytest
from conftest import SHIPPED_AS
from hypothesis import given, settings
from hypothesis import strategies as st

import hwdesign as hw
from hwdesign.models import config
from hwdesign.models.model import same_parameters

PUBLISHED = list(csv.DictReader((Path(__file__).parent / "data" / "published_params.csv").open(encoding="utf-8")))
GIB = 2**30


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda r: r["model"])
def test_counts_equal_the_published_ones_to_the_last_digit(row):
    model = config.load(row["model"])
    assert model.parameters == int(row["parameters"])
    assert model.active_parameters(include_embedding=True) == int(row["active_with_input_embedding"])
    assert model.active_parameters(include_embedding=False) == int(row["active_without_input_embedding"])
    assert model.kv_bytes_per_token("bf16") == int(row["kv_bytes_per_token_bf16"])
    assert sum(model.parameters_by_part().values()) == model.parameters
    assert sum(model.parameters_by_part(active=True).values()) == int(row["active_with_input_embedding"])


def test_every_shipped_config_has_a_published_row_and_is_read_in_50_ms():
    rows = {r["model"] for r in PUBLISHED}
    assert all(r[key] for r in PUBLISHED for key in r)
    held = {row["name"] for row in csv.DictReader((Path(__file__).parent / "data" / "params_2026.csv").open(encoding="utf-8"))}
    assert set(SHIPPED_AS) <= held  # test_models_2026 counts these
    assert set(config.names()) == rows | set(SHIPPED_AS.values()) | {"qwen3-235b-a22b-fp8"}  # the same weights in another format
    for name in config.names():
        spent = []
        for _ in range(3):
            start = time.process_time()  # others may keep the machine busy
            model = config.load(name)
            counted = model.parameters, model.active_parameters(include_embedding=True), model.kv_bytes_per_token()
            spent.append(time.process_time() - start)
        assert all(counted) and min(spent) < 0.05, f"{name}: {min(spent):.3f} s"
    assert config.load("qwen3-235b-a22b-fp8").parameters == config.load("qwen3-235b-a22b").parameters


def test_gated_ffn_and_grouped_queries():
    model = config.load("llama-3.1-8b")  # vllm-fit issue 20 counted two matrices, or as many KV heads as query heads
    assert sum(w.elements for w in model.weights if w.name == "gate and up") == 32 * 2 * 14336 * 4096
    block = model.blocks[0]
    plain = replace(model, blocks=(replace(block, ffn=replace(block.ffn, gated=False)),) * 32)
    many = replace(model, blocks=(replace(block, mixer=replace(block.mixer, num_kv_heads=32)),) * 32)
    assert (plain.parameters, many.parameters) == (6_151_213_056, 8_835_567_616) and model.parameters == 8_030_261_248


def test_full_width_qk_norm_follows_the_key_value_heads():
    # OLMo-core pull 477: 64 layers, width 5120, 8 KV heads of 128; k_norm counted at 5120 gives 262,144 too many.
    mixer = hw.SelfAttention(num_heads=40, num_kv_heads=8, head_dim=128, qk_norm="full")
    sizes = {w.name: w.elements for w in mixer.weights(5120) if w.part == "norm"}
    assert sizes == {"q norm": 5120, "k norm": 1024} and 64 * (5120 - sizes["k norm"]) == 262_144
    head = replace(mixer, qk_norm="head")
    assert [w.elements for w in head.weights(5120) if w.part == "norm"] == [128, 128]


def test_an_explicit_head_size_wins():
    values = {"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
              "vocab_size": 151936, "num_attention_heads": 16, "num_key_value_heads": 8, "tie_word_embeddings": True}  # fmt: skip
    model = config.load({**values, "head_dim": 128})  # LMCache issue 688
    assert (model.parameters, model.kv_bytes_per_token()) == (596_049_920, 114_688)
    assert config.load(values).kv_bytes_per_token() == 114_688  # the default of the class
    assert config.load({**values, "head_dim": None}).kv_bytes_per_token() == 57_344


def test_latent_attention_and_what_is_left_out():
    model = config.load("deepseek-v3")
    corrections = [w for w in model.weights if w.name == "router correction"]
    assert sum(w.elements for w in corrections) == 58 * 256 == 14_848  # counted; multi-token-prediction layers are not
    assert len(model.blocks) == 61 and [b.ffn.kind for b in model.blocks[2:4]] == ["dense", "MoE 8 of 256"]
    # LMCache pull 694: the latent stands once, with its 64 rotary dimensions; expanded keys and values would take 4,997,120.
    assert model.kv_bytes_per_token() == 61 * (512 + 64) * 2 == 70_272
    assert 61 * 128 * (192 + 128) * 2 == 4_997_120
    # gguf-parser-go issue 8: 65,536 tokens at 4 bits are 18.0 MiB a layer and 1.0723 GiB in all; no scale in that figure.
    assert model.kv_bytes(65_536, "bf16") / 4 / 61 == 18 * 2**20
    assert round(model.kv_bytes(65_536, "bf16") / 4 / GIB, 4) == 1.0723


def test_both_conventions_of_active_parameters():
    small, large = config.load("gpt-oss-20b"), config.load("gpt-oss-120b")
    assert [m.active_parameters(include_embedding=False) for m in (small, large)] == [3_608_307_264, 5_132_849_472]
    assert [m.active_parameters(include_embedding=True) for m in (small, large)] == [4_187_440_704, 5_711_982_912]
    with pytest.raises(TypeError):
        small.active_parameters()  # the convention has no default


@pytest.mark.parametrize(
    ("name", "experts_and_router", "attention", "embeddings", "total"),
    [("gpt-oss-120b", 114.71, 0.96, 1.16, 116.83), ("gpt-oss-20b", 19.12, 0.64, 1.16, 20.91)],
)
def test_parts_of_gpt_oss_equal_its_model_card(name, experts_and_router, attention, embeddings, total):
    parts = config.load(name).parameters_by_part()  # table 1 of the card, in billions
    assert round((parts["experts"] + parts["router"]) / 1e9, 2) == experts_and_router
    assert round(parts["attention"] / 1e9, 2) == attention
    assert round((parts["embedding"] + parts["head"]) / 1e9, 2) == embeddings
    assert round(sum(parts.values()) / 1e9, 2) == total


def test_width_of_the_experts():
    model = config.load("qwen3-30b-a3b")  # Linear-MoE pull 17: intermediate 6144 is not the expert's width 768
    assert {b.ffn.width for b in model.blocks} == {768}
    assert (model.parameters, model.active_parameters(include_embedding=True)) == (30_532_122_624, 3_353_032_704)
    assert {b.ffn.width for b in config.load("mixtral-8x7b").blocks} == {14336}  # where intermediate_size is


def test_experts_without_a_gate_between_mamba_layers():
    model = config.load("nemotron-3-nano-30b-a3b")  # NeMo RL pull 3309
    assert model.parameters_by_part()["experts"] == 23 * 128 * 2 * 2688 * 1856 == 29_374_808_064
    kinds = [b.kind for b in model.blocks]
    assert [kinds.count(k) for k in ("Mamba-2", "GQA", "MoE 6 of 128")] == [23, 6, 23]
    # huggingface.js pull 2323: packed 4-bit storage shows 17.8e9 elements; parameters are counted from the config.
    assert round(model.parameters / 1e9, 2) == 31.58
    ssm, conv = 23 * 64 * 64 * 128, 23 * (4096 + 2 * 8 * 128) * 3
    assert model.state_bytes() == 4 * ssm + 2 * conv and model.state_bytes(ssm="bf16") == 2 * (ssm + conv)
    assert config.load("llama-3.1-8b").state_bytes() == 0


def test_blocks_that_differ_from_layer_to_layer():
    model = config.load("llama-3.3-nemotron-super-49b")
    assert sum(b.mixer is not None for b in model.blocks) == 49 and len(model.blocks) == 80
    assert len({b.ffn.width for b in model.blocks}) > 3
    assert (model.parameters, model.kv_bytes_per_token()) == (49_867_145_216, 200_704)


def test_padded_vocabulary():
    gpt2 = config.load("gpt2")  # LLMs-from-scratch pull 582: 50,304 rows hold 50,257 tokens
    assert gpt2.parameters == 124_439_808 and replace(gpt2, vocab_size=50_304).parameters == 124_475_904


def test_one_and_all_experts():
    model = config.load("mixtral-8x7b")  # maxtext pull 678: work scales with the active experts
    stored, used = model.parameters_by_part()["experts"], model.parameters_by_part(active=True)["experts"]
    assert used / stored == 2 / 8 and stored == 32 * 8 * 3 * 4096 * 14336
    assert model.matmul_parameters == 12_748_853_248 - 65 * 4096  # without the norms


def test_cache_of_published_models():
    llama2 = hw.Block(mixer=hw.SelfAttention(num_heads=32, num_kv_heads=32, head_dim=128), ffn=hw.DenseFFN(width=11008))
    model = hw.Model(name="llama-2-7b", hidden_size=4096, vocab_size=32000, blocks=(llama2,) * 32)
    assert model.parameters == 6_738_415_616 and model.kv_bytes_per_token("fp16") == 524_288  # vllm-fit issue 2
    gpt2 = config.load("gpt2")
    assert gpt2.kv_bytes(8192, "fp16") == 301_989_888  # mlxcel issue 927
    santacoder = {"model_type": "gpt_bigcode", "n_layer": 24, "n_head": 16, "n_embd": 2048, "n_positions": 2048,
                  "vocab_size": 49280, "multi_query": True}  # fmt: skip
    assert config.load(santacoder).kv_bytes(8192, "fp16") == 100_663_296
    neox = config.load("gpt-neox-20b")  # no key for KV heads at all
    assert (neox.parameters, neox.kv_bytes_per_token()) == (20_554_567_680, 1_081_344)


def test_what_the_model_needs_and_what_an_engine_reserves():
    model = config.load("gpt-oss-120b")  # hf-mem issue 60
    assert model.kv_bytes_per_token() == 73_728 and round(5.38 * GIB / 73_728, -3) == 78_000
    assert model.kv_bytes(131_072) == 4_836_556_800 and model.kv_bytes(131_072, reserved=True) == 9_663_676_416
    gemma = config.load("gemma-3-27b")  # gpustack issue 2101: not 139 GB
    assert sum(b.mixer.window is None for b in gemma.blocks) == 10 and len(gemma.blocks) == 62
    assert round(gemma.kv_bytes(131_072) / GIB, 3) == 10.406 and gemma.kv_bytes(131_072, reserved=True) == 62 * GIB
    assert gemma.kv_bytes(1024) == gemma.kv_bytes(1024, reserved=True)  # no window is full yet


def test_cache_on_each_gpu():
    latent, llama = config.load("deepseek-v3"), config.load("llama-3.1-70b")  # tt-xla issue 5861
    assert {latent.kv_bytes_per_gpu(1, tp) for tp in (1, 2, 8, 64)} == {70_272}
    assert [llama.kv_bytes_per_gpu(1, tp) for tp in (1, 8, 16)] == [327_680, 40_960, 40_960]
    # 25 layers with 8 key-value heads of 256, 5 with 2 of 512: one head of each on every one of eight GPUs.
    assert config.load("gemma-4-26b-a4b").kv_bytes_per_gpu(1, 8) == 25 * 2 * 256 * 2 + 5 * 2 * 512 * 2


MODELS = {name: config.load(name) for name in config.names()}
anyone, context, gpus = st.sampled_from(sorted(MODELS)), st.integers(1, 10**6), st.integers(1, 256)


@given(anyone, context, gpus)
def test_gpus_together_hold_at_least_one_cache(name, tokens, tp):
    model = MODELS[name]
    whole, share = model.kv_bytes(tokens), model.kv_bytes_per_gpu(tokens, tp)
    assert tp * share >= whole * (1 - 1e-12) and share <= whole * (1 + 1e-12)
    assert model.kv_bytes_per_gpu(tokens, tp + 1) <= share * (1 + 1e-12)
    kv = {getattr(b.mixer, "num_kv_heads", None) for b in model.blocks if b.mixer and b.mixer.cache_elements}
    if kv == {None}:
        assert share == whole
    elif len(kv) == 1 and tp % max(kv) == 0:  # one head a GPU, replicated where there are more GPUs than heads
        indexer = tokens * model.indexer_bytes_per_token()  # its keys are on every GPU
        assert (share - indexer) * max(kv) == pytest.approx(whole - indexer)


@given(anyone, context, context)
def test_a_longer_context_never_takes_less_and_pages_never_less_than_needed(name, first, second):
    model, (short, long) = MODELS[name], sorted((first, second))
    assert model.kv_bytes(short) <= model.kv_bytes(long)
    each = model.kv_bytes_per_token() + model.indexer_bytes_per_token()
    assert model.kv_bytes(long) <= model.kv_bytes(long, reserved=True) == pytest.approx(long * each)
    assert model.kv_bytes(long, "fp8") == model.kv_bytes(long, "bf16") / 2


def test_weight_bytes_of_an_fp8_block_checkpoint():
    model = config.load("deepseek-v3")
    bytes_, parts = model.weight_bytes(), model.parameters_by_part()
    # One FP8 byte an element and an FP32 scale for each 128 x 128 block; 58 layers of 256 experts of 3 x 7168 x 2048.
    experts = 58 * 256 * 3 * 7168 * 2048
    assert bytes_["experts"] == experts + experts / 128**2 * 4
    assert bytes_["shared experts"] * 256 == bytes_["experts"] and bytes_["embedding"] == bytes_["head"] == 2 * 129280 * 7168
    assert bytes_["norm"] == 2 * parts["norm"] and bytes_["router"] == 2 * parts["router"]
    assert sum(model.weight_bytes("bf16").values()) == 2 * model.parameters


@pytest.mark.parametrize(("name", "gib"), [("gpt-oss-120b", 60.8), ("gpt-oss-20b", 12.8)])
def test_weight_bytes_of_an_mxfp4_checkpoint_equal_its_model_card(name, gib):
    model = config.load(name)
    assert model.part_formats("attention") == ((hw.recipe("bf16"), 1.0),)
    assert round(sum(model.weight_bytes().values()) / GIB, 1) == gib
    assert model.weight_bytes()["attention"] == 2 * model.parameters_by_part()["attention"]
    as_if = model.weight_bytes("nvfp4")["attention"]  # another recipe converts it
    assert 0.28 < as_if / model.weight_bytes()["attention"] < 0.29


def test_weight_bytes_with_block_scales():
    model = config.load("llama-3.1-8b")
    linear = 32 * (6144 * 4096 + 4096 * 4096 + 3 * 14336 * 4096)
    rest = 8_030_261_248 - linear
    for recipe, size in (("nvfp4", 0.5625), ("mxfp4", 0.53125), ("fp8", 1.0), ("bf16", 2.0), ("w4a16", 0.515625)):
        assert sum(model.weight_bytes(recipe).values()) == linear * size + rest * 2  # aiconfigurator pull 391: not 0.5
    given = {**_values("llama-3.1-8b"), "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    assert config.load(given).weight_bytes() == model.weight_bytes("nvfp4")  # inference-sim issue 1563: never silent BF16


def test_units_of_a_size():
    assert round(45 * GIB / 1e9, 1) == 48.3 and round(83e9 / GIB, 1) == 77.3  # hf-mem issue 33, torchtune pull 1348
    assert hw.units.fmt(float(45 * GIB), "byte") == "48.3 GB"


def _values(name):
    return json.loads((Path(config.__file__).parent / "configs" / f"{name}.json").read_text(encoding="utf-8"))


# Siblings.


@given(st.integers(1, 200), st.sampled_from(["llama-3.1-8b", "llama-3.1-70b", "qwen2.5-72b", "olmo-2-7b"]))
def test_a_sibling_keeps_the_parameters_of_its_blocks(layers, name):
    model = MODELS[name]
    sibling = same_parameters(model, layers=layers)
    blocks = [sum(w.stored * w.elements for b in m.blocks for w in b.weights(m.hidden_size)) for m in (model, sibling)]
    mixer, old = sibling.blocks[0].mixer, model.blocks[0].mixer
    assert len(sibling.blocks) == layers and sibling.hidden_size % 128 == 0 and sibling.vocab_size == model.vocab_size
    assert mixer.head_dim == old.head_dim and mixer.num_heads * old.num_kv_heads == mixer.num_kv_heads * old.num_heads
    wider = (len(model.blocks) / layers) ** 0.5
    step = 0.5 / old.num_kv_heads / wider + 64 / model.hidden_size / wider  # rounding to whole heads
    assert abs(blocks[1] / blocks[0] - 1) < 2.5 * step + 0.01
    assert same_parameters(model, layers=len(model.blocks)).blocks == model.blocks


@pytest.mark.parametrize("name", ["deepseek-v3", "gemma-3-27b", "nemotron-3-nano-30b-a3b", "mixtral-8x7b"])
def test_a_model_without_equal_dense_blocks_has_no_sibling(name):
    with pytest.raises(ValueError, match="model must have equal blocks of self-attention and a dense FFN"):
        same_parameters(MODELS[name], layers=8)
    with pytest.raises(ValueError, match="layers must be >= 1, got 0"):
        same_parameters(MODELS["gpt2"], layers=0)


# A change of 5 % in any size must change a published count.


def nearly(part, name, value):
    """A block's part with a size 5 % larger; where heads or groups must divide each other, with the least multiple that does."""
    for size in (-(-value * 21 // 20), 2 * value, 3 * value):
        try:
            return replace(part, **{name: size})
        except ValueError as error:
            assert "multiple of" in str(error) or "divide" in str(error)
    raise AssertionError(f"{name} = {value} has no larger size that fits")


@pytest.mark.parametrize("name", config.names())
def test_a_change_of_5_percent_in_any_size_changes_the_count(name):
    model = MODELS[name]
    base = model.parameters, model.active_parameters(include_embedding=True), model.kv_bytes(10**6)

    def figures(changed):
        return changed.parameters, changed.active_parameters(include_embedding=True), changed.kv_bytes(10**6)

    def scores(changed):
        return hw.step(changed, batch=1, context=10**6).attention_flops

    for size in ("hidden_size", "vocab_size"):
        assert figures(replace(model, **{size: getattr(model, size) * 21 // 20})) != base
    for block, number in {b: i for i, b in enumerate(model.blocks)}.items():
        for side in ("mixer", "ffn"):
            part = getattr(block, side)
            for f in fields(part) if part else ():
                value = getattr(part, f.name)
                if isinstance(value, int) and not isinstance(value, bool) and value:
                    new = replace(block, **{side: nearly(part, f.name, value)})
                    changed = replace(model, blocks=(*model.blocks[:number], new, *model.blocks[number + 1 :]))
                    noticed = figures(changed) != base or scores(changed) != scores(model)  # the tokens an indexer picks
                    assert noticed, f"{side}.{f.name} x 1.05 passes unnoticed"


# A second counter: modules of torch, built by hand.

small = st.integers(1, 6)


def _torch_llama(torch, c):
    nn, h, q, kv = torch.nn, c["hidden_size"], c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    layer = lambda: nn.ModuleList(  # noqa: E731
        [nn.Linear(h, q, c["attention_bias"]), nn.Linear(h, kv, c["attention_bias"]), nn.Linear(h, kv, c["attention_bias"]),
         nn.Linear(q, h, c["attention_bias"]), nn.Linear(h, c["intermediate_size"], c["mlp_bias"]),
         nn.Linear(h, c["intermediate_size"], c["mlp_bias"]), nn.Linear(c["intermediate_size"], h, c["mlp_bias"]),
         nn.RMSNorm(h), nn.RMSNorm(h)])  # fmt: skip
    embedding, head = nn.Embedding(c["vocab_size"], h), nn.Linear(h, c["vocab_size"], bias=False)
    if c["tie_word_embeddings"]:
        head.weight = embedding.weight
    return nn.ModuleList([embedding, *(layer() for _ in range(c["num_hidden_layers"])), nn.RMSNorm(h), head])


def _torch_gpt2(torch, c):
    nn, h = torch.nn, c["n_embd"]
    embedding, head = nn.Embedding(c["vocab_size"], h), nn.Linear(h, c["vocab_size"], bias=False)
    head.weight = embedding.weight
    blocks = [nn.TransformerEncoderLayer(h, c["n_head"], c["n_inner"] or 4 * h) for _ in range(c["n_layer"])]
    return nn.ModuleList([embedding, nn.Embedding(c["n_positions"], h), *blocks, nn.LayerNorm(h), head])


@settings(deadline=None)  # torch loads in the first of them
@given(small, small, small, small, small, small, st.booleans(), st.booleans(), st.booleans())
def test_torch_counts_the_same_for_small_models(heads, groups, size, hidden, width, layers, tied, bias, mlp_bias):
    torch = pytest.importorskip("torch", reason="torch is not installed: the second counter is skipped")
    llama = {"model_type": "llama", "hidden_size": 8 * hidden, "intermediate_size": 7 * width, "num_hidden_layers": layers,
             "num_attention_heads": heads * groups, "num_key_value_heads": heads, "head_dim": 2 * size, "vocab_size": 97,
             "attention_bias": bias, "mlp_bias": mlp_bias, "tie_word_embeddings": tied}  # fmt: skip
    gpt2 = {"model_type": "gpt2", "n_embd": 4 * heads * hidden, "n_layer": layers, "n_head": heads, "vocab_size": 97,
            "n_inner": None if tied else 5 * width, "n_positions": 16 * size}  # fmt: skip
    for values, build in ((llama, _torch_llama), (gpt2, _torch_gpt2)):
        with torch.device("meta"):
            counted = sum(p.numel() for p in build(torch, values).parameters())
        assert config.load(values).parameters == counted
