"""How a checkpoint stores its matrices, by the `quantization_config` that each method writes.

What is malformed or contradicts itself is refused. What is in order, but of a method or a format
whose bytes no config tells, is an `UnknownBytes`: the parameters are counted all the same.

Sources, read 2026-12-01: compressed-tensors 0.20.1 (its preset schemes, and the format that each
is written in), transformers 5.24.0 (bitsandbytes, torchao, FP8), GPTQModel 7.7.0, AutoRound 0.16.1,
Quark 0.13, MLX LM 0.32.2, torchao 0.18.0, the documents of ModelOpt, the loaders of vLLM 0.33.0.
"""

import re

from hwdesign.catalogue.precision import MOST_GROUPED, integer_recipe
from hwdesign.models.compressed_tensors import compressed_tensors
from hwdesign.models.module_rules import (
    LISTS,
    Formats,
    Rules,
    UnknownBytes,
    group_size,
    inside,
    kept,
    unknown,
    whole_bits,
)

ALGORITHMS = {  # quant_algo of ModelOpt -> recipe
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "FP8_PB_WO": "fp8_block_w8a16",
    "FP8_BLOCK_SCALES": "fp8_block_w8a16",
    "MXFP8": "mxfp8",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4_w4a16",
    "W4A16_MXFP4": "mxfp4_w4a16",
    "W4A8_NVFP4_FP8": "nvfp4_w4a8",
    "W4A8_MXFP4_FP8": "mxfp4_w4a8",
    "W4A8_MXFP4_MXFP8": "mxfp4_w4a8",
    "W4A16_AWQ": "w4a16",
    "W4A8_AWQ": "w4afp8",
    "W8A16": "w8a16_row",
    "W8A8_SQ_PER_CHANNEL": "int8",
}
SIZES = {"NVFP4": 16, "MXFP": 32}  # group sizes that belong to the names of algorithms
MLX_MODES = {"mxfp4": "mxfp4_w4a16", "nvfp4": "nvfp4_w4a16", "mxfp8": "mxfp8_w8a16"}
MLX_BITS = (2, 3, 4, 5, 6, 8)
MLX_KEYS = ("group_size", "bits", "mode", "quant_method", "linear_class", "quantize_activations")
# Model types whose routers are no linear layers in MLX LM, and stay in BF16.
MLX_ROUTERS = (
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "dots1",
    "exaone_moe",
    "glm4_moe",
    "glm4_moe_lite",
    "glm_moe_dsa",
    "mimo_v2_flash",
    "mistral4",
    "nemotron_h",
)
TORCHAO = {  # configs that convert linear layers alone -> recipe
    "Int8WeightOnlyConfig": "w8a16_row",
    "Int8DynamicActivationInt8WeightConfig": "int8",
    "Float8WeightOnlyConfig": "fp8_w8a16",
    "Float8DynamicActivationFloat8WeightConfig": "fp8",
    "int8_weight_only": "w8a16_row",
    "int8_dynamic_activation_int8_weight": "int8",
    "float8_weight_only": "fp8_w8a16",
    "float8_dynamic_activation_float8_weight": "fp8",
}
TORCHAO_INT4 = {
    "Int4WeightOnlyConfig": "16",
    "int4_weight_only": "16",
    "Float8DynamicActivationInt4WeightConfig": "fp8",
}
BLOCKS = re.compile(r"(?:[A-Za-z_]\w*\.)*(?:layers|h|blocks)", re.A)


def method_of(quant):
    """What wrote a quantization config: its quant_method, or what its other keys show.

    >>> from hwdesign.models.config import Reader
    >>> method_of(Reader({"bits": 4, "group_size": 64}))
    'mlx'
    """
    inner = inside(quant)
    method = quant.raw("quant_method")[1]
    if method is None and inner.raw("quant_algo")[1] is not None:
        return "modelopt"
    if method is None and {"group_size", "bits"} & set(quant.values) and not _lists(quant):
        return "mlx"
    if method is None and (quant.values.get("load_in_4bit") or quant.values.get("load_in_8bit")):
        return "bitsandbytes"
    if not isinstance(method, str) or not method:
        raise quant.complain("quant_method", f"one of {', '.join(METHODS)}, or another method")
    method = method.lower()
    if method == "fp8" and inner.raw("quant_algo")[1] == "MIXED_PRECISION":
        return "modelopt"
    return {"intel/auto-round": "auto-round", "inc": "auto-round"}.get(method, method)


def _lists(quant):
    return any(key in quant.values for key in LISTS)


def formats_of(quant, kind, *, routed):
    """`Formats` of a quantization config or a sidecar of a model of some type; `routed` says
    whether there are experts.
    """
    method = method_of(quant)
    if method not in METHODS:
        known = ", ".join(METHODS)
        raise unknown(quant, "quant_method", f"is none of those whose bytes are known ({known})")
    if method in LINEAR_ONLY and routed:
        words = "converts linear layers: whether routed experts are such depends on its version"
        raise unknown(quant, "quant_method", words)
    found = METHODS[method](quant)
    return found._replace(router=None) if kind in MLX_ROUTERS else found


def _float8(quant):
    """FP8 of transformers, in tensors, rows or blocks."""
    block = quant.raw("weight_block_size")[1]
    if block in (None, [128, 128]):
        return Formats("fp8_block" if block else "fp8", kept(quant))
    if not isinstance(block, list) or [side for side in block if type(side) is not int]:
        raise quant.complain("weight_block_size", "two whole numbers or absent")
    if block == [1, 32]:
        return Formats("mxfp8", kept(quant))
    raise unknown(quant, "weight_block_size", "is none of [128, 128], [1, 32] and a whole tensor")


def _mxfp4(quant):
    return Formats("mxfp4", kept(quant))


def _mxfp8(quant):
    if quant.raw("weight_block_size")[1] not in (None, [1, 32]):
        raise quant.complain("weight_block_size", "[1, 32] or absent")
    return Formats("mxfp8", kept(quant))


def _modelopt(quant):
    """ModelOpt, in a sidecar or inline; of a mixed checkpoint the algorithm of each module."""
    inner = inside(quant)
    algo = inner.raw("quant_algo")[1]
    if algo != "MIXED_PRECISION":
        return Formats(_algorithm(inner, algo), kept(inner))
    floats = quant.raw("quant_method")[1] == "fp8"
    rest = _float8(quant).rest if floats else "bf16"
    left = () if floats else kept(inner)  # what is no NVFP4 there stays FP8
    listed, rules = inner.inside("quantized_layers"), Rules(inner, "quantized_layers")
    for entry, said in listed.values.items():
        own = said.get("quant_algo") if isinstance(said, dict) else None
        if not isinstance(own, str):
            raise listed.complain(
                entry, f"objects with a quant_algo out of {', '.join(ALGORITHMS)}"
            )
        rules.add(entry, _algorithm(listed.inside(entry), own))
    return Formats(rest, (*left, rules))


def _algorithm(read, algo):
    """Recipe of an algorithm of ModelOpt, with the group size that stands beside it."""
    if not isinstance(algo, str):
        raise read.complain("quant_algo", f"MIXED_PRECISION or one of {', '.join(ALGORITHMS)}")
    recipe = ALGORITHMS.get(algo.upper())
    if recipe is None:
        known = f"MIXED_PRECISION or one of {', '.join(ALGORITHMS)}"
        raise unknown(read, "quant_algo", f"is none of those that are known ({known})")
    size = read.raw("group_size")[1]
    if recipe in ("w4a16", "w4afp8"):
        inputs = "fp8" if recipe == "w4afp8" else "16"
        return integer_recipe(4, group_size(read, "group_size", default=128), inputs)
    for word, right in SIZES.items():
        if word in algo.upper() and size not in (None, right):
            raise read.complain("group_size", f"{right} or absent for {algo}")
    return recipe


def _gptq(quant):
    """GPTQ and AWQ: integers in groups with a packed zero point, symmetric or not."""
    inner = inside(quant)
    bits, size = whole_bits(quant, "bits", "w_bit"), group_size(quant, "group_size", "q_group_size")
    zero = "" if quant.raw("checkpoint_format")[1] == "marlin" else "_zp"
    rest = integer_recipe(bits, size, zero=zero)
    head = rest if quant.flag("lm_head") else None
    rules = (*kept(inner), *_dynamic(quant, bits, size, zero))
    only = quant.raw("modules_in_block_to_quantize")[1]
    if only is None:
        return Formats(rest, rules, head=head)
    named = Rules(quant, "modules_in_block_to_quantize")
    names = only if isinstance(only, list) else [only]
    for entry in [name for group in names for name in (group if type(group) is list else [group])]:
        if not isinstance(entry, str):
            raise quant.complain("modules_in_block_to_quantize", "lists of names of modules")
        named.add(entry, rest)
    return Formats("bf16", (*rules, named), head=head)


def _dynamic(quant, bits, size, zero):
    """Rules of GPTQModel: regular expressions with other bits and groups, or after ``-:`` none."""
    if not quant.raw("dynamic")[1]:
        return ()
    inner, rules = quant.inside("dynamic"), Rules(quant, "dynamic")
    for entry in inner.values:
        if entry.startswith("-:"):
            rules.add(entry.removeprefix("-:"), "bf16", regex=True)
            continue
        own = inner.inside(entry)
        own.values = {"bits": bits, "group_size": -1 if size is None else size, **own.values}
        recipe = integer_recipe(whole_bits(own, "bits"), group_size(own, "group_size"), zero=zero)
        rules.add(entry.removeprefix("+:"), recipe, regex=True)
    return (rules,)


def _auto_round(quant):
    """AutoRound: a scheme for all, and others for single layers."""
    packing = quant.raw("packing_format")[1]
    if packing is not None and not isinstance(packing, str):
        raise quant.complain("packing_format", "text, as auto_round:auto_gptq")
    if packing == "mlx":
        raise unknown(quant, "packing_format", "is read where MLX's own keys stand beside it")
    rest, left = _rounded(quant, {}), kept(quant)
    blocks = quant.raw("block_name_to_quantize", "to_quant_block_names")[1]
    names = blocks.split(",") if isinstance(blocks, str) else blocks
    if not isinstance(names, list | None) or any(not isinstance(n, str) for n in names or []):
        raise quant.complain("block_name_to_quantize", "names of lists of blocks, as model.layers")
    if names and not any(BLOCKS.fullmatch(n.strip()) and "vis" not in n for n in names):
        raise unknown(quant, "block_name_to_quantize", "names no list of layers")
    rules = Rules(quant, "extra_config")
    if quant.raw("extra_config")[1]:
        listed = quant.inside("extra_config")
        for entry in listed.values:
            recipe = _rounded(listed.inside(entry), quant.values)
            plain = re.fullmatch(r"[\w.-]+", entry)
            rules.add(entry, recipe, regex=not plain)
    return Formats(rest, (*left, rules))


def _rounded(read, general):
    """Recipe of a scheme of AutoRound; what it does not say is as in the general one."""
    for key in ("bits", "group_size", "sym", "data_type", "act_bits", "packing_format"):
        if general.get(key) is not None and read.values.get(key) is None:
            read.values = {**read.values, key: general[key]}
    bits = whole_bits(read, "bits", least=1, most=32)
    if bits >= 16:
        return "bf16"
    kind, inputs = read.values.get("data_type") or "int", read.raw("act_bits")[1]
    size = group_size(read, "group_size", default=128)
    if not isinstance(kind, str) or inputs not in (None, 4, 8, 16, 32):
        key = "act_bits" if isinstance(kind, str) else "data_type"
        raise read.complain(key, "4, 8, 16 or absent" if key == "act_bits" else "text, as int")
    alone = inputs in (None, 16, 32)
    if kind.startswith("int") and 2 <= bits <= 8 and alone:
        compressed = "llm_compressor" in (read.values.get("packing_format") or "")
        symmetric = read.flag("sym", default=True)
        return integer_recipe(bits, size, zero="" if compressed and symmetric else "_zp")
    known = {
        ("mx_fp", 4, 32, 4): "mxfp4",
        ("mx_fp", 4, 32, None): "mxfp4_w4a16",
        ("mx_fp", 8, 32, 8): "mxfp8",
        ("mx_fp", 8, 32, None): "mxfp8_w8a16",
        ("nv_fp", 4, 16, 4): "nvfp4",
        ("nv_fp", 4, 16, None): "nvfp4_w4a16",
        ("fp", 8, None, 8): "fp8",
        ("fp", 8, None, None): "fp8_w8a16",
    }
    family = re.match(r"mx_fp|nv_fp|fp|", kind)[0]
    recipe = known.get((family, bits, size, None if alone else inputs))
    if recipe is None:
        raise unknown(
            read, "data_type", f"of {bits} bits in groups of {size or 'a row'} is not known"
        )
    return recipe


def _bitsandbytes(quant):
    """bitsandbytes: linear layers in 4 bits with an FP32 scale for 64, or in 8 bits a row."""
    four, eight = (
        quant.flag(f"load_in_{n}bit", default=quant.flag(f"_load_in_{n}bit")) for n in (4, 8)
    )
    if four == eight:
        both = "both" if four else "neither"
        like = f"true where load_in_8bit is not; {both} is set"
        raise quant.complain("load_in_4bit", like)
    kind = quant.raw("bnb_4bit_quant_type")[1]
    if kind not in (None, "nf4", "fp4"):
        raise quant.complain("bnb_4bit_quant_type", "nf4 or fp4")
    twice = quant.flag("bnb_4bit_use_double_quant")
    left = kept(quant)
    rest = "int8" if eight else "bnb4_dq" if twice else "bnb4"
    listed = quant.raw("llm_int8_skip_modules")[1]
    return Formats(rest, left, head=rest if listed else None)


def _torchao(quant):
    """torchao: one config for all linear layers."""
    said = quant.raw("quant_type")[1]
    if isinstance(said, dict):
        default = quant.inside("quant_type").values.get("default")
        if not isinstance(default, dict) or not isinstance(default.get("_type"), str):
            raise quant.complain("quant_type", "a name, or an object whose default has a _type")
        name, keys = default["_type"], default.get("_data") or {}
    else:
        name, keys = said, quant.raw("quant_type_kwargs")[1] or {}
    if not isinstance(name, str) or not isinstance(keys, dict):
        raise quant.complain("quant_type", "a name, or an object whose default has a _type")
    left = kept(quant)
    if quant.flag("untie_embedding_weights"):
        raise unknown(quant, "untie_embedding_weights", "stores an embedding and a head of its own")
    if name in TORCHAO_INT4:
        size = keys.get("group_size", 128)
        if type(size) is not int or not 1 <= size <= MOST_GROUPED:
            raise quant.complain("quant_type", f"a group_size from 1 to {MOST_GROUPED}")
        rest = integer_recipe(4, size, TORCHAO_INT4[name], "_zp16")
    elif name in TORCHAO and keys.get("group_size") is None:
        rest = TORCHAO[name]
    else:
        raise unknown(quant, "quant_type", "is none of those whose bytes are known")
    both = rest if quant.flag("include_input_output_embeddings") else None
    return Formats(rest, left, head=both, embedding=both)


def _quark(quant):
    """Quark: a scheme for all linear layers, others by type and by name."""
    rest = _quark_scheme(quant.inside("global_quant_config"))
    types = quant.raw("layer_type_quant_config")[1]
    if types:
        listed = quant.inside("layer_type_quant_config")
        if set(listed.values) != {"Linear"}:
            raise unknown(quant, "layer_type_quant_config", "names other types than Linear")
        rest = _quark_scheme(listed.inside("Linear"))
    rules = Rules(quant, "layer_quant_config")
    if quant.raw("layer_quant_config")[1]:
        listed = quant.inside("layer_quant_config")
        for entry in listed.values:
            rules.add(entry, _quark_scheme(listed.inside(entry)))
    return Formats(rest, (*kept(quant), rules), head=rest)


def _quark_scheme(read):
    """Recipe of a scheme of Quark; two steps of quantization store the result of the second."""
    stages = read.raw("weight")[1]
    if stages is None:
        return "bf16"
    steps = stages if isinstance(stages, list) else [stages]
    if not 1 <= len(steps) <= 2 or not all(isinstance(step, dict) for step in steps):
        raise read.complain("weight", "an object, or a list of one or two")
    given = read.raw("input_tensors")[1]
    inputs = given[-1] if isinstance(given, list) and given else given
    inputs = inputs.get("dtype") if isinstance(inputs, dict) else None
    last = steps[-1]
    kind, scheme, size = (last.get(key) for key in ("dtype", "qscheme", "group_size"))
    rows = scheme in ("per_tensor", "per_channel")
    micro = scheme == "per_group" and size == 32 and last.get("scale_format") == "e8m0"
    block = scheme == "per_block" and last.get("block_size") == [128, 128]
    recipe = None
    if kind == "fp8_e4m3" and len(steps) == 1:
        named = "fp8" if rows else "fp8_block" if block else "mxfp8" if micro else ""
        alone = "mxfp8_w8a16" if micro else f"{named}_w8a16"
        recipe = named and {None: alone, kind: named}.get(inputs)
    elif kind == "int8" and rows:
        recipe = {None: "w8a16_row", "int8": "int8"}.get(inputs)
    elif kind == "fp4" and micro:
        recipe = {None: "mxfp4_w4a16", "fp4": "mxfp4", "fp8_e4m3": "mxfp4_w4a8"}.get(inputs)
    elif kind in ("fp6_e2m3", "fp6_e3m2") and micro:
        recipe = {None: "mxfp6_w6a16", "fp8_e4m3": "mxfp6"}.get(inputs)
    elif kind == "int4" and scheme == "per_channel":
        recipe = integer_recipe(4, None, "fp8") if inputs == "fp8_e4m3" else None
        recipe = recipe or (integer_recipe(4, None) if inputs is None else None)
    if not recipe:
        said = f"{kind!s:.40} {scheme!s:.40} with inputs {inputs!s:.40}"
        raise UnknownBytes(f"{read.where}weight in {said} is not known")
    return recipe


def _mlx(quant):
    """MLX: linear layers, embedding, head and routers alike, and others by name."""
    rest = _mlx_scheme(quant)
    rules = Rules(quant, "quantization")
    for entry, said in quant.values.items():
        if entry in MLX_KEYS:
            continue
        if said is not True and not isinstance(said, dict | bool):
            raise quant.complain(entry, "true, false, or an object with bits and group_size")
        own = {"mode": "affine", **said} if isinstance(said, dict) else said
        recipe = rest if own is True else "bf16"
        if isinstance(own, dict):
            inner = quant.inside(entry)
            inner.values = {"group_size": quant.values["group_size"], "bits": 4, **own}
            recipe = _mlx_scheme(inner)
        rules.add(entry, recipe)
    size = quant.values["group_size"]
    return Formats(rest, (rules,), head=rest, embedding=rest, router=rest, divisor=size)


def _mlx_scheme(read):
    bits, size = whole_bits(read, "bits"), group_size(read, "group_size")
    mode = read.raw("mode")[1] or "affine"
    fixed = {"mxfp4": (4, 32), "nvfp4": (4, 16), "mxfp8": (8, 32)}
    if not isinstance(mode, str) or (mode != "affine" and mode not in fixed):
        raise read.complain("mode", f"affine or one of {', '.join(fixed)}")
    if mode in fixed:
        if (bits, size) != fixed[mode]:
            raise read.complain("mode", f"one that takes {bits} bits in groups of {size}")
        return MLX_MODES[mode]
    if bits not in MLX_BITS or size is None:
        key = "group_size" if size is None else "bits"
        raise read.complain(key, "above 0" if size is None else f"one of {MLX_BITS}")
    return integer_recipe(bits, size, zero="_zp16")


METHODS = {
    "fp8": _float8,
    "fbgemm_fp8": _float8,
    "mxfp4": _mxfp4,
    "mxfp8": _mxfp8,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _modelopt,
    "compressed-tensors": compressed_tensors,
    "gptq": _gptq,
    "awq": _gptq,
    "auto-round": _auto_round,
    "bitsandbytes": _bitsandbytes,
    "quark": _quark,
    "torchao": _torchao,
    "mlx": _mlx,
}
# Methods that convert modules of the class Linear: transformers 5 holds routed experts in
# parameters of three dimensions, earlier versions hold a Linear for each.
LINEAR_ONLY = ("bitsandbytes", "torchao")
