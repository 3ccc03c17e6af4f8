"""Record names, number formats and shapes of checkpoints for tests/test_proof.py.

The module trees are those of transformers and mlx-lm, built without memory (meta device, lazy arrays), and written as their
libraries save them: experts one by one, as hubs hold them. What a library cannot build here (packed formats, the prediction layer
of DeepSeek) is made from the tree by the rules of the format, named in each function. Run it where both libraries are installed:

    python scripts/record_checkpoints.py tests/data/checkpoints

With --tried instead of a folder nothing is written: every config of the package and of its tests, and the class defaults of every
architecture that is read, are built and held against their counts; what is not equal is printed.
"""

import copy
import json
import math
import re
import sys
from collections import defaultdict
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.core_model_loading import revert_weight_conversion

ROOT = Path(__file__).resolve().parents[1]
SHIPPED, OTHERS = ROOT / "hwdesign/models/configs", ROOT / "tests/data/configs_2026"
NAMES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.float16: "F16", torch.int64: "I64"}
LINEAR = re.compile(r"layers\.\d+\..*(?:proj|fc\d|w[123])\.weight$")


def read(name):
    folder = SHIPPED if (SHIPPED / f"{name}.json").is_file() else OTHERS
    values = json.loads((folder / f"{name}.json").read_text("utf-8"))
    return {key: value for key, value in values.items() if key != "_source"}


def tree(values, auto=AutoModelForCausalLM):
    """{name: (dtype, shape)} of a model as transformers saves it, in BF16; a tied head is not saved."""
    values = copy.deepcopy(values)
    for key in ("quantization_config", "auto_map", "torch_dtype", "dtype"):
        values.pop(key, None)
    config = AutoConfig.for_model(**values)
    with torch.device("meta"):
        model = auto.from_config(config, dtype=torch.bfloat16)
    saved = revert_weight_conversion(model, model.state_dict())
    inner = values.get("text_config", values)
    tied = inner.get("tie_word_embeddings", values.get("tie_word_embeddings", getattr(config, "tie_word_embeddings", False)))
    kept = {name: ten for name, ten in saved.items() if not (tied and name.endswith("lm_head.weight"))}
    return {name: (NAMES[ten.dtype], tuple(ten.shape)) for name, ten in sorted(kept.items())}


def packed(tensors, rule, chosen=LINEAR):
    """The same with some matrices stored as `rule(module, out, in)` says, which gives {name: (dtype, shape)}."""
    found = {}
    for name, (dtype, shape) in tensors.items():
        if chosen.search(name) and len(shape) == 2:
            found.update(rule(name.removesuffix(".weight"), *shape))
        else:
            found[name] = (dtype, shape)
    return found


def fp8_blocks(module, rows, columns):
    scales = (-(-rows // 128), -(-columns // 128))
    return {f"{module}.weight": ("F8_E4M3", (rows, columns)), f"{module}.weight_scale_inv": ("F32", scales)}


def awq(module, rows, columns):  # AutoAWQ, GEMM version: [in, out / 8]
    return {
        f"{module}.qweight": ("I32", (columns, rows // 8)), f"{module}.qzeros": ("I32", (columns // 128, rows // 8)),
        f"{module}.scales": ("F16", (columns // 128, rows)),
    }  # fmt: skip


def gptq(module, rows, columns):  # GPTQModel: [in / 8, out]
    return {
        f"{module}.qweight": ("I32", (columns // 8, rows)), f"{module}.qzeros": ("I32", (columns // 128, rows // 8)),
        f"{module}.scales": ("F16", (columns // 128, rows)), f"{module}.g_idx": ("I32", (columns,)),
    }  # fmt: skip


def nvfp4(module, rows, columns):  # ModelOpt's export for Hugging Face
    found = {
        f"{module}.weight": ("U8", (rows, columns // 2)), f"{module}.weight_scale": ("F8_E4M3", (rows, columns // 16)),
        f"{module}.weight_scale_2": ("F32", ()), f"{module}.input_scale": ("F32", ()),
    }  # fmt: skip
    if module.endswith(("k_proj", "v_proj")):
        found[f"{module}.{module[-6]}_scale"] = ("F32", ())
    return found


def int4(module, rows, columns):  # compressed-tensors, pack-quantized, groups of 32
    return {
        f"{module}.weight_packed": ("I32", (rows, columns // 8)), f"{module}.weight_scale": ("BF16", (rows, columns // 32)),
        f"{module}.weight_shape": ("I64", (2,)),
    }  # fmt: skip


def nf4(module, rows, columns):  # bitsandbytes with double quantization
    blocks = rows * columns // 64
    weight = f"{module}.weight"
    return {
        weight: ("U8", (rows * columns // 2, 1)), f"{weight}.absmax": ("U8", (blocks,)),
        f"{weight}.quant_map": ("F32", (16,)), f"{weight}.nested_absmax": ("F32", (-(-blocks // 256),)),
        f"{weight}.nested_quant_map": ("F32", (256,)), f"{weight}.quant_state.bitsandbytes__nf4": ("U8", (90,)),
    }  # fmt: skip


def mxfp4_experts(tensors):
    """gpt-oss as OpenAI published it: [experts, out, in / 32, 16] bytes and their scales."""
    found = {}
    for name, (dtype, shape) in tensors.items():
        if name.endswith(("gate_up_proj", "down_proj")):  # the tree has [experts, in, out]
            experts, inputs, outputs = shape
            found[f"{name}_blocks"] = ("U8", (experts, outputs, inputs // 32, 16))
            found[f"{name}_scales"] = ("U8", (experts, outputs, inputs // 32))
        else:
            found[name] = (dtype, shape)
    return found


def deepseek(values):
    """DeepSeek-R1 as published: FP8 in blocks, and layer 61 for prediction, which holds embedding and head once more."""
    plain = tree(values)
    last, hidden, vocab = values["num_hidden_layers"] - 1, values["hidden_size"], values["vocab_size"]
    for name, form in list(plain.items()):
        if f"layers.{last}." in name:
            plain[name.replace(f"layers.{last}.", f"layers.{last + 1}.")] = form
    more = f"model.layers.{last + 1}."
    plain |= {f"{more}{name}.weight": ("BF16", (hidden,)) for name in ("enorm", "hnorm", "shared_head.norm")}
    plain[f"{more}eh_proj.weight"] = ("BF16", (hidden, 2 * hidden))
    for name in ("embed_tokens", "shared_head.head"):
        plain[f"{more}{name}.weight"] = ("BF16", (vocab, hidden))
    return packed(plain, fp8_blocks, re.compile(r"layers\.\d+\.(?!eh_).*proj\w*\.weight$"))


def kimi(values):
    """Kimi-K2.5 as published: a prefix before the text model, INT4 in the routed experts, a tower and a projector in part."""
    text = tree(values["text_config"] | {"model_type": "deepseek_v3"})
    text = packed(text, int4, re.compile(r"mlp\.experts\.\d+\.\w+\.weight$"))
    found = {f"language_model.{name}": form for name, form in text.items()}
    for block in range(27):
        found[f"vision_tower.encoder.blocks.{block}.wqkv.weight"] = ("BF16", (3456, 1152))
        found[f"vision_tower.encoder.blocks.{block}.wo.weight"] = ("BF16", (1152, 1152))
    return found | {"mm_projector.proj.0.weight": ("BF16", (4608, 4608)), "mm_projector.pre_norm.weight": ("BF16", (1152,))}


def deepseek_v4(values):
    """DeepSeek-V4 as published: no prefix, FP4 experts two a byte (int8) and FP8 elsewhere, scales of both in E8M0."""
    found = {}
    for name, (dtype, shape) in tree(values).items():
        name, module = name.removeprefix("model."), name.removeprefix("model.").removesuffix(".weight")
        if re.search(r"ffn\.experts\.\d+\.w", name):
            found[name] = ("I8", (shape[0], shape[1] // 2))
            found[f"{module}.scale"] = ("F8_E8M0", (shape[0], shape[1] // 32))
        elif re.search(r"attn\.(wq_a|wq_b|wkv|wo_a|wo_b|indexer\.wq_b)\.weight|shared_experts\.w", name):
            found[name] = ("F8_E4M3", shape)
            found[f"{module}.scale"] = ("F8_E8M0", (-(-shape[0] // 128), -(-shape[1] // 128)))
        else:
            found[name] = (dtype, shape)
    return found


def gpt2(values):
    """GPT-2 as published: no prefix, and the causal mask of each layer as a buffer."""
    found = {name.removeprefix("transformer."): ("F32", shape) for name, (_, shape) in tree(values).items()}
    found |= {f"h.{layer}.attn.bias": ("F32", (1, 1, 1024, 1024)) for layer in range(12)}
    return found


def mlx(values, bits=4, group=64):
    """mlx-lm's own tree after its own quantization; nothing of it is computed."""
    import mlx.nn as nn
    from mlx.utils import tree_flatten
    from mlx_lm.utils import _get_classes

    made, arguments = _get_classes(values)
    model = made(arguments.from_dict(values))
    nn.quantize(model, group_size=group, bits=bits)
    kinds = {"mlx.core.uint32": "U32", "mlx.core.float32": "BF16"}
    return {name: (kinds[str(ten.dtype)], tuple(ten.shape)) for name, ten in tree_flatten(model.parameters())}


def fold(tensors):
    """Names with ranges instead of numbers, as {pattern: [dtype, shape]}."""
    groups = defaultdict(list)
    for name, (dtype, shape) in tensors.items():
        words = re.split(r"(?<=\.)(\d+)(?=\.)", name)
        groups[tuple(words[::2]), dtype, shape].append(tuple(map(int, words[1::2])))
    found = {}
    for (words, dtype, shape), numbers in groups.items():
        for ranges in boxes(numbers):
            said = "".join(a + b for a, b in zip(words, [*(f"{{{x}}}" for x in ranges), ""], strict=True))
            found[said] = [dtype, list(shape)]
    return found


def boxes(numbers):
    """Tuples of numbers as ranges: all of the last ones that some of the first ones share."""
    if not numbers[0]:
        return [()]
    tails = defaultdict(list)
    for first, *rest in sorted(numbers):
        tails[first].append(tuple(rest))
    shared = defaultdict(list)
    for first, rest in tails.items():
        shared[tuple(boxes(rest))].append(first)
    return [(ranges(firsts), *tail) for tails, firsts in shared.items() for tail in tails]


def ranges(numbers):
    runs = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}-{b}" for a, b in runs)


GROUPS = {"bits": 4, "group_size": 128}
CACHE = {"kv_cache_scheme": {"type": "float", "num_bits": 8}}
ALGO = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"], **CACHE}
LIST = {  # name -> (config, what is added to it, what its checkpoint holds, where that is from)
    "llama-3.1-8b": ("llama-3.1-8b", {}, tree, ""),
    "gpt2": ("gpt2", {}, gpt2, ", names and masks of the published file"),
    "gpt-oss-20b": ("gpt-oss-20b", {}, lambda v: mxfp4_experts(tree(v)), ", experts as published: MXFP4 in blocks of 32"),
    "deepseek-r1": ("deepseek-r1", {}, deepseek, ", FP8 and layer 61 as published"),
    "deepseek-v4-flash": ("deepseek-v4-flash", {}, deepseek_v4, ", FP4, FP8 and names as published"),
    "kimi-k2.5": ("kimi-k2.5", {}, kimi, ", INT4 experts and prefix as published; the tower in part"),
    "qwen3-30b-a3b": ("qwen3-30b-a3b", {}, tree, ""),
    "qwen3-0.6b-awq": (
        "qwen3-0.6b", {"quant_method": "awq", **GROUPS}, lambda v: packed(tree(v), awq), ", packed as AutoAWQ does"),
    "qwen3-0.6b-gptq": (
        "qwen3-0.6b", {"quant_method": "gptq", **GROUPS}, lambda v: packed(tree(v), gptq), ", packed as GPTQModel does"),
    "qwen3-0.6b-nvfp4": ("qwen3-0.6b", ALGO, lambda v: packed(tree(v), nvfp4), ", packed as ModelOpt does"),
    "qwen3-0.6b-nf4": ("qwen3-0.6b", {}, lambda v: packed(tree(v), nf4), ", packed as bitsandbytes does"),
    "qwen3-0.6b-mlx": ("qwen3-0.6b", {"bits": 4, "group_size": 64}, mlx, ""),
    "gemma-3-4b": ("gemma-3-4b-it", {}, lambda v: tree(v, AutoModelForImageTextToText), ""),
    "nemotron-3-nano": ("nemotron-3-nano-30b-a3b", {}, tree, ""),
    "qwen3-next-80b-a3b": (None, {}, tree, ""),
}  # fmt: skip


def tried():
    """Print what is not equal among all configs, and all class defaults, that transformers builds."""
    from hwdesign.models import config
    from hwdesign.models.architectures import ALIASES, READERS

    configs = {path.stem: read(path.stem) for path in [*SHIPPED.glob("*.json"), *OTHERS.glob("*.json")]}
    kinds = {}
    for kind in sorted({*READERS, *ALIASES}):
        try:
            kinds[kind] = AutoConfig.for_model(kind).to_dict() | {"model_type": kind}
        except ValueError:
            print(kind, "is not in transformers")
    for what, values in (("configs", configs), ("class defaults", kinds)):
        found = [held(name, one, config.load) for name, one in sorted(values.items())]
        built = len(found) - found.count(None)
        print(f"{what}: {found.count(True)} of {built} equal weight by weight, {found.count(None)} not built or read")


def held(name, values, load):
    """Whether the module tree of a config is equal to its count, None where one of the two cannot be had."""
    from hwdesign.models.proof import compare
    from hwdesign.models.safetensors import BITS, Checkpoint, Tensor

    built = values | ({"model_type": "deepseek_v3"} if values["model_type"] == "kimi_k2" else {})
    why = []
    for auto in (AutoModelForCausalLM, AutoModelForImageTextToText):
        try:
            saved, model = tree(built, auto), load(values)
            break
        except Exception as error:
            why.append(" ".join(str(error).split())[:100])
    else:
        print(f"{name}: {why[0]}")
        return None
    tensors = {n: Tensor(d, s, math.prod(s) * BITS[d] // 8) for n, (d, s) in saved.items()}
    proof = compare(model, Checkpoint(tensors, 1))
    equal = proof.equal and "weight by weight" in proof.lines[1]
    if not equal:
        print(f"{name}:", *proof.lines[1:5], sep="\n    ")
    return equal


def main(folder):
    folder.mkdir(exist_ok=True)
    for name, (config, more, made, how) in LIST.items():
        values = read(config) if config else transformers.Qwen3NextConfig().to_dict()
        values["model_type"] = values.get("model_type", "qwen3_next")
        source = f"transformers {transformers.__version__}"
        if made is mlx:
            import mlx_lm

            source = f"mlx-lm {mlx_lm.__version__}"
        tensors = made(values)
        found = {"source": f"module tree of {source}{how}", "config": config or values, "quantization": more}
        found["tensors"] = fold(tensors)
        (folder / f"{name}.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
        print(name, len(tensors), "tensors,", len(found["tensors"]), "lines")


if __name__ == "__main__":
    tried() if sys.argv[1] == "--tried" else main(Path(sys.argv[1]))
