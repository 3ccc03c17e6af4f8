"""Models against checkpoints: module trees of other libraries and published indexes, each broken on purpose; hostile files."""

import functools
import http.server
import itertools
import json
import math
import os
import random
import re
import threading
import time
from pathlib import Path

import pytest
from conftest import config_2026

from hwdesign.cli import main
from hwdesign.models import config
from hwdesign.models.proof import compare, prove, runs_of
from hwdesign.models.safetensors import BITS, Checkpoint, Tensor, read_checkpoint, read_header, read_index

DATA = Path(__file__).parent / "data"
CHECKPOINTS = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted((DATA / "checkpoints").glob("*.json"))}
INDEXES = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted((DATA / "indexes").glob("*.json"))}
# Parameters of the text models, tied heads once: published_params.csv, params_2026.csv; of Qwen3-Next and nano the module tree.
PARAMETERS = {
    "llama-3.1-8b": 8_030_261_248, "gpt2": 124_439_808, "gpt-oss-20b": 20_914_757_184, "deepseek-r1": 671_026_419_200,
    "kimi-k2.5": 1_026_408_232_448, "deepseek-v4-flash": 284_332_240_471, "qwen3-30b-a3b": 30_532_122_624,
    "gemma-3-4b": 3_880_263_168,
    "nemotron-3-nano": 31_577_940_288, "qwen3-next-80b-a3b": 79_674_391_296,
    **dict.fromkeys((f"qwen3-0.6b-{how}" for how in ("awq", "gptq", "nvfp4", "nf4", "mlx")), 596_049_920),
}  # fmt: skip
# Bytes of all tensors as the published indexes say (total_size), of GPT-2 as its file has them: read in public repositories.
PUBLISHED_BYTES = {
    "llama-3.1-8b": 16_060_522_496, "gpt-oss-20b": 13_761_264_768, "gemma-3-4b": 8_600_158_944,
    "qwen3-30b-a3b": 61_064_245_248, "gpt2": 548_090_880,
}  # fmt: skip
LARGE = ("kimi-k2.5", "deepseek-r1", "deepseek-v4-flash", "qwen3-next-80b-a3b")
by_name = pytest.mark.parametrize("name", sorted(CHECKPOINTS))
LARGEST = [pytest.param(name, marks=pytest.mark.weekly) if name == "kimi-k2.5" else name for name in sorted(CHECKPOINTS)]


def names(pattern):
    """Names that a pattern with ranges like {0-3,7-7} stands for."""
    words = re.split(r"\{([\d,-]+)\}", pattern)
    runs = [[range(int(a), int(b) + 1) for a, b in re.findall(r"(\d+)-(\d+)", text)] for text in words[1::2]]
    for numbers in itertools.product(*(itertools.chain(*run) for run in runs)):
        yield "".join(a + str(b) for a, b in zip(words[::2], [*numbers, ""], strict=True))


def tensor(dtype, shape):
    return Tensor(dtype, tuple(shape), math.prod(shape) * BITS[dtype] // 8)


@functools.cache
def _tensors(name):
    return {n: tensor(*form) for pattern, form in CHECKPOINTS[name]["tensors"].items() for n in names(pattern)}


def tensors(name):
    return dict(_tensors(name))


def written_config(name, folder):
    """(argument of `show`, parsed config) of a checkpoint; keys of a quantization that no reader takes here stand apart."""
    said = CHECKPOINTS[name]
    if isinstance(said["config"], str):
        shipped = config_2026(said["config"])
        shipped = shipped if shipped.is_file() else DATA.parents[1] / f"hwdesign/models/configs/{said['config']}.json"
        values = json.loads(shipped.read_text("utf-8"))
    else:
        values = said["config"]
    if "quant_method" in said["quantization"]:
        values = values | {"quantization_config": said["quantization"]}
    path = folder / "config.json"
    path.write_text(json.dumps(values), "utf-8")
    return path, values | ({} if "quant_method" in said["quantization"] else {"quantization": said["quantization"]})


def write(path, found):
    """A file with the headers of tensors, and as long as with the tensors themselves."""
    at, header = 0, {}
    for name, one in found.items():
        header[name] = {"dtype": one.dtype, "shape": one.shape, "data_offsets": [at, at + one.bytes]}
        at += one.bytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)


def write_shards(folder, found, count, metadata=None):
    places = {name: f"model-{i % count + 1:05}-of-{count:05}.safetensors" for i, name in enumerate(found)}
    for file in set(places.values()):
        write(folder / file, {name: one for name, one in found.items() if places[name] == file})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": metadata or {}, "weight_map": places}), "utf-8")
    return index


def compared(name, found, tmp_path):
    path, values = written_config(name, tmp_path)
    return compare(config.load(path), Checkpoint(found, 1), values)


@pytest.mark.parametrize("name", LARGEST)
def test_a_checkpoint_is_equal_to_the_last_parameter(name, tmp_path, capsys):
    found = tensors(name)
    if name in PUBLISHED_BYTES:
        assert sum(one.bytes for one in found.values()) == PUBLISHED_BYTES[name]
    path, values = written_config(name, tmp_path)
    write_shards(tmp_path, found, 3)
    if name.endswith("mlx"):  # the command has the same words from the config
        told = str(prove(config.load(path), tmp_path, values))
    else:
        assert main(["show", str(path), "--weights", str(tmp_path)]) == 0
        told = capsys.readouterr().out
    assert f"  equal to the last parameter: {PARAMETERS[name]:,}, weight by weight\n" in told
    assert f"weights: 3 files, {len(found):,} tensors" in told
    assert re.search(r"by the sheet \([+-]\d+\.\d\d%\)", told)


WORDS = {
    "deepseek-r1": "prediction layers: 11,610,068,224 parameters, and 2 x 926,679,040 of embeddings and heads; "
    "the sheet leaves out 11,610,068,224, the same",
    "gpt2": "no parameters: 12 buffers (rotary frequencies, masks), as h.0.attn.bias",
    "gemma-3-4b": "towers and projectors: 419,816,304 parameters in 439 tensors",
    "qwen3-0.6b-gptq": "no parameters: 588 scales",
    "deepseek-v4-flash": "no parameters: 3 tables of whole numbers, as layers.0.ffn.gate.tid2eid",
}


@pytest.mark.parametrize("name", WORDS)
def test_what_no_count_includes_is_told_in_words(name, tmp_path):
    assert WORDS[name] in str(compared(name, tensors(name), tmp_path))


@pytest.mark.parametrize(
    ("name", "most"), [("deepseek-r1", 0.001), ("qwen3-0.6b-gptq", 0.02), ("qwen3-0.6b-awq", 0.02), ("kimi-k2.5", 0.001),
                       ("gpt-oss-20b", 1e-9), ("llama-3.1-8b", 1e-9), ("nemotron-3-nano", 0.001)]
)  # fmt: skip
def test_bytes_are_those_of_the_sheet(name, most, tmp_path):
    path, _ = written_config(name, tmp_path)
    said = sum(config.load(path).weight_bytes().values())
    assert compared(name, tensors(name), tmp_path).figures["bytes"] == pytest.approx(said, rel=most)


def breakable(found, rng, count):
    """Names of tensors of the text model, each kind of name as likely as another."""
    kinds = {}
    for name, one in found.items():
        words = r"vision|mm_projector|multi_modal|layers\.61\.|scale|zeros|absmax|quant_|g_idx|_shape$|attn\.bias|biases|blocks$"
        if not re.search(words, name) and one.dtype in ("BF16", "F32", "F8_E4M3") and one.shape:
            kinds.setdefault(re.sub(r"\.\d+\.", ".#.", name), []).append(name)
    return [rng.choice(kinds[rng.choice(sorted(kinds))]) for _ in range(count)]


WEIGHTS = {"embed": "embedding", "wte": "embedding", "wpe": "positions", "norm": "final norm", "ln_f": "final norm"}
WEIGHTS["lm_head"] = "lm_head"


def named(name, difference):
    """Whether a difference names a tensor, or outside the layers, where it is alone, the weight that lacks it."""
    alone = next((weight for word, weight in WEIGHTS.items() if word in name and ".layers." not in name), None)
    return name in difference or (alone is not None and f"'{alone}" in difference)


@by_name
@pytest.mark.parametrize("how", ["missing", "one row more", "besides"])
def test_one_odd_tensor_is_named_and_nothing_else(name, how, tmp_path):
    found, rng = tensors(name), random.Random(f"{name} {how}")
    for chosen in breakable(_tensors(name), rng, 1 if name in LARGE else 6):
        broken = dict(found)
        if how == "missing":
            del broken[chosen]
        elif how == "besides":
            chosen = f"{chosen.rpartition('.')[0]}.surprise"
            broken[chosen] = tensor("BF16", (rng.choice((1, 64, 2048)),))
        else:
            first, *rest = found[chosen].shape
            broken[chosen] = tensor(found[chosen].dtype, (first + 1, *rest))
        proof = compared(name, broken, tmp_path)
        assert not proof.equal
        (difference,) = proof.figures["differences"]
        assert named(chosen, difference), (chosen, difference)
        assert "NOT equal: the files hold " in proof.lines[1]


@by_name
def test_a_missing_layer_is_named(name, tmp_path):
    found = tensors(name)
    layer = re.compile(r"(?:^|language_model\.model\.|model\.|backbone\.)(?:layers|h)\.7\.")
    broken = {n: one for n, one in found.items() if not layer.search(n)}
    assert len(broken) < len(found)
    proof = compared(name, broken, tmp_path)
    (difference,) = proof.figures["differences"]
    assert difference.startswith("layer 7: no tensor in the files, ") and not proof.equal


@pytest.mark.parametrize("by", ["headers", "names"])
def test_a_layer_more_than_the_config_has_is_no_prediction_layer(by, tmp_path):
    values = json.loads((DATA.parents[1] / "hwdesign/models/configs/llama-3.1-8b.json").read_text("utf-8"))
    model = config.load(values | {"num_hidden_layers": 31})
    found = _tensors("llama-3.1-8b")
    index = Checkpoint({}, 1, index=dict.fromkeys(found, "x.safetensors"))
    proof = compare(model, Checkpoint(found, 1) if by == "headers" else index)
    assert not proof.equal
    size = " (218,112,000 parameters)" if by == "headers" else ""
    assert proof.figures["differences"] == [f"layer 31: in the files, not in the model{size}"]


@pytest.mark.parametrize(
    ("name", "pattern", "said"),
    [
        ("gpt2", r"attn\.c_attn\.bias", "layers 0-11: weight 'qkv bias' [2304] has no tensor (2,304 parameters)"),
        ("llama-3.1-8b", r"self_attn\.v_proj", "layers 0-31: weight 'qkv' [6144, 4096] has 25,165,824 parameters, in "),
        ("qwen3-30b-a3b", r"k_norm", "layers 0-47: weight 'k norm' [128] has no tensor (128 parameters)"),
        ("qwen3-30b-a3b", r"mlp\.experts\.\d+\.down", "layers 0-47: weight 'expert down' [2048, 768] x 128 has no tensor"),
        ("gpt-oss-20b", r"layers\.\d*[02468]\..*sinks", "layers 0, 2, 4, 6, 8, 10, 12, 14 and 4 more runs: weight 'sinks' [64]"),
        ("deepseek-r1", r"e_score_correction_bias", "layers 3-60: weight 'router correction' [256] has no tensor"),
    ],
)  # fmt: skip
def test_what_every_layer_lacks_is_named_as_a_weight(name, pattern, said, tmp_path):
    broken = {n: one for n, one in tensors(name).items() if not re.search(pattern, n)}
    (difference,) = compared(name, broken, tmp_path).figures["differences"]
    assert difference.startswith(said)


def test_awq_holds_as_many_bytes_as_a_published_index_says(tmp_path):
    """An AWQ checkpoint of DeepSeek-R1 in groups of 64: total_size of the index in github.com/kvcache-ai/sglang_awq at 1e697f1.

    The prediction layer was added to it later.
    """
    found = {}
    for name, one in tensors("deepseek-r1").items():
        if ".layers.61." in name or name.endswith("_inv"):
            continue
        if one.dtype != "F8_E4M3":
            found[name] = tensor("BF16", one.shape)
            continue
        (rows, columns), before = one.shape, name.removesuffix("weight")
        found[f"{before}qweight"] = tensor("I32", (columns, rows // 8))
        found[f"{before}qzeros"] = tensor("I32", (columns // 64, rows // 8))
        found[f"{before}scales"] = tensor("F16", (columns // 64, rows))
    assert sum(one.bytes for one in found.values()) == 364_589_799_936
    assert compared("deepseek-r1", found, tmp_path).equal


def test_one_expert_of_many_is_named(tmp_path):
    found = tensors("kimi-k2.5")
    name = "language_model.model.layers.30.mlp.experts.211.up_proj"
    del found[f"{name}.weight_packed"]
    (difference,) = compared("kimi-k2.5", found, tmp_path).figures["differences"]
    assert difference == f"{name}.weight [2048, 7168]: not in the files, other layers have it"


def test_many_differences_are_cut_and_counted(tmp_path):
    found = tensors("llama-3.1-8b")
    for layer in range(15):
        found[f"model.layers.{layer}.self_attn.odd{layer}"] = tensor("BF16", (3,))
    proof = compared("llama-3.1-8b", found, tmp_path)
    assert len(proof.figures["differences"]) == 15 and "  and 5 more" in proof.lines
    assert sum("odd" in line for line in proof.lines) == 10


def test_layers_with_one_difference_share_a_line(tmp_path):
    found = tensors("llama-3.1-8b")
    for layer in (3, 4, 5, 9):
        found[f"model.layers.{layer}.self_attn.q_proj.bias"] = tensor("BF16", (4096,))
    (difference,) = compared("llama-3.1-8b", found, tmp_path).figures["differences"]
    assert difference == (
        "model.layers.[3-5, 9].self_attn.q_proj.bias [4096]: in the files, not in the model nor in other layers"
    )
    assert runs_of([1]) == "1" and runs_of([2, 1, 4]) == "1-2, 4"


def test_a_sum_that_hides_two_faults_is_no_equality(tmp_path):
    found = tensors("llama-3.1-8b")
    del found["model.layers.8.input_layernorm.weight"]
    found["model.layers.8.self_attn.o_proj.bias"] = tensor("BF16", (4096,))
    proof = compared("llama-3.1-8b", found, tmp_path)
    assert not proof.equal and len(proof.figures["differences"]) == 2


def test_a_second_stack_of_layers_hides_nothing(tmp_path):
    found = tensors("gpt2")
    found |= {f"other.h.{layer}.ln_1.weight": tensor("F32", (768,)) for layer in range(2)}
    proof = compared("gpt2", found, tmp_path)
    assert proof.figures["parameters"] == 124_439_808 + 2 * 768
    assert [line.split(": ")[1].split(" [")[0] for line in proof.figures["differences"]] == [
        "other.h.0.ln_1.weight", "other.h.1.ln_1.weight"]  # fmt: skip


def test_hostile_numbers_of_tensors_take_seconds(tmp_path):
    found = tensors("gpt2")
    found |= {f"h.{i % 12}.attn.c_proj{i}.weight": tensor("F32", (i % 7 + 1,)) for i in range(60_000)}
    found |= {f"odd{i}.weight": tensor("F32", (i % 7 + 1,)) for i in range(60_000)}
    start = time.perf_counter()
    assert not compared("gpt2", found, tmp_path).equal
    assert time.perf_counter() - start < 20


def test_a_tied_head_stored_once_more_is_no_difference(tmp_path):
    found = tensors("gemma-3-4b") | {"language_model.lm_head.weight": tensor("BF16", (262208, 2560))}
    proof = compared("gemma-3-4b", found, tmp_path)
    assert proof.equal and "the head language_model.lm_head.weight is the embedding, stored once more" in str(proof)


def test_experts_in_one_tensor_are_those_one_by_one(tmp_path):
    found = {n: one for n, one in tensors("qwen3-30b-a3b").items() if ".experts." not in n}
    for layer in range(48):
        before = f"model.layers.{layer}.mlp.experts"
        found[f"{before}.gate_up_proj"] = tensor("BF16", (128, 1536, 2048))
        found[f"{before}.down_proj"] = tensor("BF16", (128, 2048, 768))
    assert compared("qwen3-30b-a3b", found, tmp_path).equal


@pytest.mark.parametrize(
    ("name", "leaf", "kind"),
    [("bitmask", "U8", "sparse compressed-tensors"), ("codebooks", "F16", "AQLM"), ("W_q", "U8", "HQQ"),
     ("trellis", "I16", "EXL3"), ("_weight_qdata", "I8", "torchao")],
)  # fmt: skip
def test_unknown_packings_are_refused_by_name(name, leaf, kind, tmp_path):
    found = tensors("gpt2") | {f"h.0.mlp.c_fc.{name}": tensor(leaf, (8, 8))}
    with pytest.raises(ValueError, match=rf"in a format that is unpacked here, got 'h\.0\.mlp\.c_fc\.{name}': {kind} is not"):
        compared("gpt2", found, tmp_path)


@pytest.mark.parametrize(
    ("name", "leaf", "shape"),
    [("qwen3-0.6b-awq", "mlp.up_proj.qweight", (1024, 383)), ("qwen3-0.6b-gptq", "mlp.up_proj.qweight", (129, 3071)),
     ("qwen3-0.6b-gptq", "mlp.up_proj.scales", (8,)), ("qwen3-0.6b-mlx", "mlp.up_proj.weight", (3072, 127)),
     ("kimi-k2.5", "mlp.experts.0.up_proj.weight_packed", (2048, 895))],
)  # fmt: skip
def test_packed_matrices_must_fit_their_scales(name, leaf, shape, tmp_path):
    found = tensors(name)
    chosen = next(n for n in found if n.endswith(f"layers.5.{leaf}"))
    found[chosen] = tensor(found[chosen].dtype, shape)
    with pytest.raises(ValueError, match=re.escape(chosen.rpartition(".")[0])):
        compared(name, found, tmp_path)


def test_mlx_without_bits_in_the_config_is_refused():
    with pytest.raises(ValueError, match="bits and group_size that the config does not give"):
        compare(config.load("qwen3-0.6b"), Checkpoint(tensors("qwen3-0.6b-mlx"), 1))


@pytest.mark.parametrize("bits", [2, 3, 4, 6, 8])
def test_mlx_modules_may_have_bits_of_their_own(bits):
    found = tensors("qwen3-0.6b-mlx")
    name = "model.layers.3.mlp.up_proj"
    found[f"{name}.weight"] = tensor("U32", (3072, 1024 * bits // 32))
    said = {"bits": 4, "group_size": 64, name: {"bits": bits, "group_size": 64}}
    assert compare(config.load("qwen3-0.6b"), Checkpoint(found, 1), {"quantization": said}).equal


def test_fp4_experts_of_deepseek_v4_are_two_a_byte():
    from hwdesign.models.packed import unpack

    found = {"a.w1.weight": tensor("I8", (2048, 2048)), "a.w1.scale": tensor("F8_E8M0", (2048, 128)),
             "b.weight": tensor("I8", (64, 64)), "b.SCB": tensor("F32", (64,)), "c.scale": tensor("F32", (7,))}  # fmt: skip
    parameters, others = unpack(found)
    shapes = {name: p.shape for name, p in parameters.items()}
    assert shapes == {"a.w1.weight": (2048, 4096), "b.weight": (64, 64), "c.scale": (7,)}
    assert others == {"a.w1.scale": "scale", "b.SCB": "scale"}


# Indexes


def index_of(name, folder):
    said = INDEXES[name]
    files = [f"model-{i + 1:05}-of-{said['files']:05}.safetensors" for i in range(said["files"])]
    every = [n for pattern in said["names"] for n in names(pattern)]
    (folder / "config.json").write_text(json.dumps(said["config"]), "utf-8")
    index = {"metadata": said["metadata"], "weight_map": {n: files[i % len(files)] for i, n in enumerate(every)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    return folder / "config.json", folder / "model.safetensors.index.json"


BYTES = {
    "devstral-small": "bytes agree: 2 for each of 23,572,403,200 parameters are 47,144,806,400",
    "qwen3.5-25b-reap": "bytes agree: 2 for each of 25,091,371,648 parameters are 50,182,743,296",
    "wizardlm-2-8x22b": "bytes agree: 2 for each of 140,620,634,112 parameters are 281,241,268,224",
    "qwen3-1.7b": "bytes agree: 2 for each of 1,720,574,976 parameters are 3,441,149,952",
    "falcon-180b": "2 for each of 178,557,088,768 parameters and the head once more are 359,045,130,240",
    "medgemma-27b": "bytes agree: 54,864,813,280 by the index, 54,018,692,608 by the sheet (+1.57%); "
    "the rest is for towers, whose size no index tells",
}


@pytest.mark.parametrize("name", sorted(INDEXES))
def test_published_indexes_agree_in_names_and_bytes(name, tmp_path, capsys):
    path, index = index_of(name, tmp_path)
    for weights in (index, tmp_path):
        assert main(["show", str(path), "--weights", str(weights)]) == 0
        told = capsys.readouterr().out
        assert "  names agree\n" in told and BYTES[name] in told and " of it not there\n" in told
        assert "this proves less than the headers of the files" in told


@pytest.mark.parametrize("name", sorted(INDEXES))
def test_a_broken_index_names_what_is_odd(name, tmp_path):
    path, index = index_of(name, tmp_path)
    said, rng = json.loads(index.read_text("utf-8")), random.Random(name)
    layered = [n for n in said["weight_map"] if re.search(r"(?<!encoder\.)(?:layers|h)\.\d+\.", n) and "vision" not in n]
    for _ in range(4):
        chosen = rng.choice(layered)
        broken = {n: file for n, file in said["weight_map"].items() if n != chosen}
        index.write_text(json.dumps(said | {"weight_map": broken}), "utf-8")
        proof = prove(config.load(path), index)
        assert not proof.equal and proof.figures["differences"] == [f"{chosen}: not in the files, other layers have it"]
    for total in (10**9, said["metadata"]["total_size"] * 5):
        index.write_text(json.dumps(said | {"metadata": {"total_size": total}}), "utf-8")
        proof = prove(config.load(path), index)
        assert not proof.equal and not proof.figures["differences"] and "  bytes DIFFER: " in str(proof)


@by_name
def test_the_names_of_every_checkpoint_agree(name, tmp_path):
    found = _tensors(name)
    size = sum(one.bytes for one in found.values() if one.dtype != "F32" or name != "gpt2" or len(one.shape) < 3)
    index = Checkpoint({}, 1, index=dict.fromkeys(found, "x.safetensors"), total_size=size)
    path, _ = written_config(name, tmp_path)
    proof = compare(config.load(path), index)
    assert proof.figures["differences"] == []
    assert proof.equal == (not name.endswith(("nf4", "mlx")))  # of these the config here does not say the format


def test_an_index_of_other_experts_or_without_a_head_differs(tmp_path):
    path, index = index_of("wizardlm-2-8x22b", tmp_path)
    said = json.loads(index.read_text("utf-8"))
    fewer = {n: f for n, f in said["weight_map"].items() if ".experts.7." not in n and n != "lm_head.weight"}
    index.write_text(json.dumps({"weight_map": fewer}), "utf-8")
    proof = prove(config.load(path), index)
    assert proof.figures["differences"] == [
        "layers 0-55: 7 experts are named, the config means 8",
        "lm_head: not named, though the config means a separate head",
    ]
    assert "the index gives no total_size" in str(proof)


def test_missing_shards_fall_back_to_the_index(tmp_path, capsys):
    found = tensors("llama-3.1-8b")
    write_shards(tmp_path, found, 4, {"total_size": 16_060_522_496})
    (tmp_path / "model-00002-of-00004.safetensors").unlink()
    (tmp_path / "model-00003-of-00004.safetensors").unlink()
    assert main(["show", "llama-3.1-8b", "--weights", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "an index of 4 files, 291 tensors; 2 files of it not there" in told and "names agree" in told
    assert "bytes agree: 2 for each of 8,030,261,248 parameters are 16,060,522,496" in told


# The command


def test_the_command_says_not_equal_with_1_and_the_json_holds_the_figures(tmp_path, capsys):
    found = tensors("gpt2")
    del found["h.3.ln_1.bias"]
    write(tmp_path / "model.safetensors", found)
    assert main(["show", "gpt2", "--weights", str(tmp_path / "model.safetensors")]) == 1
    assert "  h.3.ln_1.bias [768]: not in the files, other layers have it\n" in capsys.readouterr().out
    assert main(["show", "gpt2", "--format", "json", "--weights", str(tmp_path)]) == 1
    figures = json.loads(capsys.readouterr().out)["weights"]
    assert figures["proof"] == "headers" and not figures["equal"] and figures["parameters"] == 124_439_808 - 768
    assert main(["show", "llama-3.1-8b", "--weights", str(tmp_path)]) == 1
    assert "NOT equal" in capsys.readouterr().out


def test_names_from_a_stranger_reach_no_terminal(tmp_path, capsys):
    found = tensors("gpt2") | {"h.3.\x1b[31m\n::error::x": tensor("F32", (1,))}
    write(tmp_path / "model.safetensors", found)
    assert main(["show", "gpt2", "--weights", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "\x1b" not in told and "::error" not in told and r"h.3.\x1b[31m" in told


def test_bytes_that_the_sheet_does_not_know_are_not_compared(tmp_path, monkeypatch):
    def unknown(model, recipe=None):
        raise ValueError("recipe must be given")

    monkeypatch.setattr("hwdesign.models.model.Model.weight_bytes", unknown)
    proof = compared("gpt2", tensors("gpt2"), tmp_path)
    assert proof.equal and "497.76 MB in the files, not known to the sheet" in str(proof)
    path, index = index_of("devstral-small", tmp_path)
    assert prove(config.load(path), index).equal


def test_links_are_followed_as_the_hubs_cache_has_them(tmp_path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    write(tmp_path / "blobs/0a1b", tensors("gpt2"))
    (tmp_path / "snapshot/model.safetensors").symlink_to("../blobs/0a1b")
    assert prove(config.load("gpt2"), tmp_path / "snapshot").equal


@pytest.mark.alone
def test_two_hundred_headers_take_less_than_a_second(tmp_path):
    write_shards(tmp_path, tensors("qwen3-30b-a3b"), 200)
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        assert len(read_checkpoint(tmp_path).tensors) == 18_867
        best = min(best, time.perf_counter() - start)
    assert best < 1


def test_the_pages_way_to_headers_works(tmp_path):
    found = tensors("gpt2")
    write(tmp_path / "whole.safetensors", found)

    class Ranges(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            with open(tmp_path / "whole.safetensors", "rb") as file:
                file.seek(first)
                text = file.read(last + 1 - first)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{(tmp_path / 'whole.safetensors').stat().st_size}")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args):
            pass

    page = (Path(__file__).parents[1] / "book/checking.md").read_text("utf-8").split("## Proof from the checkpoint")[1]
    code = {}
    exec(re.search(r"```python\n(.*?)```", page, re.S)[1], code)
    with http.server.HTTPServer(("127.0.0.1", 0), Ranges) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        code["fetch_header"](f"http://127.0.0.1:{server.server_port}/x", tmp_path / "x.safetensors")
        server.shutdown()
    assert prove(config.load("gpt2"), tmp_path / "x.safetensors").equal


def test_the_pages_words_are_those_of_the_command(tmp_path, capsys):
    page = (Path(__file__).parents[1] / "book/checking.md").read_text("utf-8").split("## Proof from the checkpoint")[1]
    right, wrong = re.findall(r"```text\n(.*?)```", page, re.S)[:2]
    found = tensors("llama-3.1-8b")
    write_shards(tmp_path, found, 4)
    assert main(["show", "llama-3.1-8b", "--weights", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith(right)
    del found["model.layers.7.input_layernorm.weight"]
    write_shards(tmp_path, found, 4)
    assert main(["show", "llama-3.1-8b", "--weights", str(tmp_path)]) == 1
    assert wrong in capsys.readouterr().out


# Hostile files


def raw(path, text, data=0, length=None):
    text = text if isinstance(text, bytes) else json.dumps(text).encode()
    with open(path, "wb") as file:
        file.write((len(text) if length is None else length).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + data)


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"a": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


TWICE = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
HOSTILE = {
    "empty": (b"", 0, None, "a length of"),
    "beyond the file": (entry(), 8, 10**6, r"a length of 1,000,000 in \d+ bytes"),
    "a length of 2**63": (entry(), 8, 2**63, "a length of 9,223"),
    "no JSON": (b"{no json at all", 8, None, "JSON, got "),
    "no object": ([1, 2], 8, None, r"a JSON object, got \[1, 2\]"),
    "no UTF-8": (b"\xff\xfe{}", 0, None, "JSON, got "),
    "nested": (b"[" * 100_000 + b"]" * 100_000, 0, None, "JSON, got "),
    "long number": (b'{"a":' + b"9" * 6000 + b"}", 0, None, "JSON, got "),
    "not a number": (b'{"a": NaN}', 0, None, "NaN is no number"),
    "key twice": (TWICE, 8, None, "key 'a' twice"),
    "inner key twice": (b'{"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8, None, "key 'dtype' twice"),
    "long name": ({"a" * 1001: entry()["a"]}, 8, None, "names of at most 1000 letters"),
    "no entry": ({"a": 5}, 8, None, "dtype, shape and data_offsets for 'a', got 5"),
    "a key more": ({"a": entry()["a"] | {"b": 1}}, 8, None, "dtype, shape and data_offsets"),
    "unknown dtype": (entry("F31"), 8, None, "got 'F31'"),
    "dtype a list": (entry(["F32"]), 8, None, r"got \['F32'\]"),
    "negative shape": (entry(shape=(-2,)), 8, None, "a shape of whole numbers"),
    "true in a shape": (entry(shape=(True, 2)), 8, None, "a shape of whole numbers"),
    "huge shape": (entry(shape=(2**62, 2**62, 2**62)), 8, None, "the bytes of F32"),
    "huge number": (entry(shape=(2**70,)), 8, None, "a shape of whole numbers"),
    "many dimensions": (entry(shape=(1,) * 1000), 8, None, "a shape of whole numbers"),
    "negative offsets": (entry(offsets=(-8, 0)), 8, None, "begin and end in bytes"),
    "offsets turned round": (entry(offsets=(8, 0)), 8, None, "begin and end in bytes"),
    "three offsets": (entry(offsets=(0, 4, 8)), 8, None, "begin and end in bytes"),
    "shape against bytes": (entry(shape=(3,)), 8, None, r"the bytes of F32 \[3\] for 'a', got 8"),
    "out of the file": (entry(shape=(4,), offsets=(0, 16)), 8, None, "16 bytes of tensors"),
    "more than the tensors": (entry(), 9, None, "8 bytes of tensors, as its header says, got 9"),
    "a hole": (entry(offsets=(4, 12)), 12, None, "one at byte 4, not 0"),
    "overlapping": (entry() | {"b": entry(offsets=(4, 12))["a"]}, 12, None, "one at byte 4, not 8"),
}  # fmt: skip


@pytest.mark.parametrize("how", HOSTILE)
def test_hostile_headers_are_refused_in_one_line(how, tmp_path, capsys):
    text, data, length, said = HOSTILE[how]
    path = tmp_path / "x.safetensors"
    raw(path, text, data, length)
    with pytest.raises(ValueError, match=f"^(file|header of) 'x.safetensors' must be .*{said}"):
        read_header(path)
    assert main(["show", "gpt2", "--weights", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and re.match("hwdesign: (file|header of) 'x.safetensors' must be ", err)


def test_a_header_above_100_mb_is_not_read(tmp_path):
    raw(tmp_path / "x.safetensors", b"{}", 200_000_000, 100_000_001)
    with pytest.raises(ValueError, match="a header of at most 100,000,000 bytes, got 100,000,001"):
        read_header(tmp_path / "x.safetensors")


def test_a_valid_header_with_metadata_spaces_and_empty_tensors_is_read(tmp_path):
    said = {"__metadata__": {"format": "pt"}} | entry() | {"b": {"dtype": "BF16", "shape": [0, 3], "data_offsets": [8, 8]}}
    raw(tmp_path / "x.safetensors", json.dumps(said).encode() + b"   ", 8)
    assert read_header(tmp_path / "x.safetensors") == {"a": Tensor("F32", (2,), 8), "b": Tensor("BF16", (0, 3), 0)}


@pytest.mark.parametrize(
    ("file", "said"),
    [("../../etc/passwd", "in its own folder"), ("/etc/passwd", "in its own folder"), ("..", "in its own folder"),
     ("a/b.safetensors", "in its own folder"), ("..\\b.safetensors", "in its own folder"), ("C:b.safetensors", "in its own"),
     ("model.bin", "in its own folder"), ("", "in its own folder"), (7, "in its own folder"), ("a\0.safetensors", "in its own")],
)  # fmt: skip
def test_an_index_names_files_of_its_own_folder_alone(file, said, tmp_path, capsys):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": file}}), "utf-8")
    with pytest.raises(ValueError, match=f"^index 'model.safetensors.index.json' must be .*{said}"):
        read_index(index)
    assert main(["show", "gpt2", "--weights", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "must be JSON"), ("[]", "must be a JSON object"), ("{}", "with a weight_map"),
     ('{"weight_map": {}}', "with a weight_map"), ('{"weight_map": [1]}', "with a weight_map"),
     ('{"weight_map": {"a": "x.safetensors", "a": "x.safetensors"}}', "key 'a' twice"),
     ('{"metadata": {"total_size": -1}, "weight_map": {"a": "x.safetensors"}}', "a whole number as total_size, got -1"),
     ('{"metadata": {"total_size": "much"}, "weight_map": {"a": "x.safetensors"}}', "got 'much'"),
     ('{"metadata": {"total_size": 1e999}, "weight_map": {"a": "x.safetensors"}}', "got inf")],
)  # fmt: skip
def test_odd_indexes_are_refused(text, said, tmp_path):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=re.escape(said)):
        read_index(index)


def test_totals_may_be_floats_and_metadata_odd(tmp_path):
    index = tmp_path / "i.json"
    index.write_text('{"metadata": {"total_size": 8.0, "total_parameters": "2"}, "weight_map": {"a": "x.safetensors"}}', "utf-8")
    found = read_index(index)
    assert (found.total_size, found.total_parameters, found.files, found.index) == (8, 2, 1, {"a": "x.safetensors"})
    index.write_text('{"metadata": 5, "weight_map": {"a": "x.safetensors"}}', "utf-8")
    assert read_index(index).total_size is None


def test_index_and_files_must_not_contradict_each_other(tmp_path):
    raw(tmp_path / "x.safetensors", entry(), 8)
    raw(tmp_path / "y.safetensors", entry(), 8)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "x.safetensors", "b": "x.safetensors"}}', "utf-8")
    with pytest.raises(ValueError, match="got 'b', which is not in 'x.safetensors'"):
        read_checkpoint(tmp_path)
    index.unlink()
    with pytest.raises(ValueError, match="each tensor once, got 'a' also in 'y.safetensors'"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("kind", ["nothing", "an empty folder", "two indexes", "a pipe", "a dangling link", "a NUL"])
def test_what_is_no_checkpoint_is_refused_in_one_line(kind, tmp_path, capsys):
    path = tmp_path / "x.safetensors"
    if kind == "an empty folder":
        path = tmp_path
    elif kind == "two indexes":
        path = tmp_path
        for name in "ab":
            (tmp_path / f"{name}.safetensors.index.json").write_text("{}", "utf-8")
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a dangling link":
        path.symlink_to("nowhere")
    elif kind == "a NUL":
        path = "x\0.safetensors"
    assert main(["show", "gpt2", "--weights", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "must be" in err
