"""What compressed-tensors writes into a config, and so every scheme of LLM Compressor: groups of
modules with bits, type and strategy, and the format that says how they are packed.

Sources: compressed-tensors 0.20.1, its preset schemes and `compressors/format.py`, which decides
how each is written. Read 2026-12-01.
"""

import re

from hwdesign.catalogue.precision import integer_recipe
from hwdesign.models.module_rules import (
    Formats,
    Rules,
    UnknownBytes,
    group_size,
    inside,
    kept,
    unknown,
)

PRESETS = {  # schemes of compressed-tensors that are no integers in groups -> recipe
    "UNQUANTIZED": "bf16",
    "W8A8": "int8",
    "INT8": "int8",
    "FP8": "fp8",
    "FP8_DYNAMIC": "fp8",
    "FP8_BLOCK": "fp8_block",
    "NVFP4A16": "nvfp4_w4a16",
    "NVFP4": "nvfp4",
    "MXFP4A16": "mxfp4_w4a16",
    "MXFP4": "mxfp4",
    "MXFP4XFP8": "mxfp4_w4a8",
    "MXFP6A16": "mxfp6_w6a16",
    "MXFP6A8": "mxfp6",
    "MXFP8A16": "mxfp8_w8a16",
    "MXFP8": "mxfp8",
}
PACKED, BYTES = "pack-quantized", ("int-quantized", "naive-quantized")
COMPRESSED = (  # formats whose bytes follow from bits and groups alone
    PACKED,
    *BYTES,
    "float-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp6-pack-quantized",
    "mxfp8-quantized",
    "mixed-precision",
)


def compressed_tensors(quant):
    """`Formats` of a config: groups of modules, and what is ignored."""
    inner = inside(quant)
    for key in ("sparsity_config", "transform_config", "moe_sparsity_config"):
        said = inner.raw(key)[1]
        if said is not None and not isinstance(said, dict):
            raise inner.complain(key, "an object")
        if said and (key != "sparsity_config" or said.get("format") not in (None, "dense")):
            raise UnknownBytes(f"{inner.where}{key} is given: it changes what is stored")
    listed, rules, rest = inner.inside("config_groups"), Rules(inner, "config_groups"), "bf16"
    general, embedding = _stored_as(inner, None), None
    for name, said in listed.values.items():
        if isinstance(said, list):  # the name of a preset, and its targets
            recipe, targets = _preset(listed, name, general), listed.items(name, str, "names")
        else:
            group = listed.inside(name)
            recipe = _group(group, _stored_as(group, general))
            targets = group.items("targets", str, "names of modules") or ["Linear"]
        for target in targets:
            if target == "Linear":
                rest = recipe
            elif target == "Embedding":
                embedding = recipe
            else:
                rules.add(target, recipe)
    return Formats(rest, (*kept(inner), rules), head=rest, embedding=embedding)


def _stored_as(read, general):
    """The format that a group is written in, None where nobody says it."""
    said = read.raw("format")[1]
    if said is None:
        return general
    if not isinstance(said, str):
        raise read.complain("format", f"one of {', '.join(COMPRESSED)}")
    if said not in (*COMPRESSED, "dense"):
        raise unknown(read, "format", "packs in a way that its config does not tell in bytes")
    return said


def _preset(listed, name, stored):
    """Recipe of a scheme that is only named."""
    name = name.upper()
    if name in PRESETS:
        return "bf16" if stored == "dense" else PRESETS[name]
    if found := re.fullmatch(r"W([2-8])A(4|8|16|FP8)(_ASYM)?", name):
        bits, inputs, zero = int(found[1]), found[2].lower(), "_zp" if found[3] else ""
        return _in_groups(bits, 128, inputs, zero, stored)
    known = f"{', '.join(PRESETS)} and the like, as W4A16"
    raise listed.complain(name, f"an object, or the targets of a scheme out of {known}")


def _in_groups(bits, size, inputs, zero, stored):
    """Recipe of integers as they are written: packed, or each in a byte of its own, which is how
    the library writes those whose inputs are converted, too.
    """
    if stored == "dense":
        return "bf16"
    packed = stored == PACKED or (stored not in BYTES and inputs == "16")
    if packed or bits == 8:
        return integer_recipe(bits, size, inputs, zero)
    if zero:
        raise UnknownBytes(f"integers of {bits} bits in bytes with zero points are not known")
    return integer_recipe(bits, size, inputs, "_i8")


def _group(group, stored):
    """Recipe of a group: the format of its weights, and whether its inputs are converted, too."""
    if "weights" in group.values and group.values["weights"] is None:
        return "bf16"  # inputs or outputs alone
    weights = group.inside("weights")
    bits, kind = weights.raw("num_bits")[1], weights.raw("type")[1]
    size, strategy = weights.raw("group_size")[1], weights.raw("strategy")[1]
    if type(bits) is not int or not 1 <= bits <= 16 or kind not in ("int", "float"):
        raise group.complain(
            "weights", "an object with num_bits from 1 to 16 and type int or float"
        )
    if strategy is not None and not isinstance(strategy, str):
        raise weights.complain("strategy", "text, as group")
    size = None if size is None else group_size(weights, "group_size")
    alone = group.raw("input_activations")[1] is None
    inputs = None if alone else group.inside("input_activations")
    taken = None if alone else (inputs.raw("num_bits")[1], inputs.raw("type")[1] or kind)
    if kind == "int":
        recipe = _integers_of(weights, bits, size, strategy, taken, stored)
    else:
        recipe = _floats_of(weights, bits, size, strategy, taken)
        recipe = "bf16" if recipe and stored == "dense" else recipe
    if recipe is None:
        with_inputs = "" if alone else f" with inputs in {taken[0]!s:.20} bits of {taken[1]!s:.20}"
        said = f"{bits} bits of {kind}, {strategy or 'no strategy'}, groups of {size}{with_inputs}"
        raise UnknownBytes(f"{group.where}weights in {said} are not known")
    return recipe


def _integers_of(weights, bits, size, strategy, taken, stored):
    size = None if strategy in ("tensor", "channel") else size
    if strategy in ("group", "tensor_group") and size is None:
        raise weights.complain("group_size", "given for the strategy group")
    named = {None: "16", (4, "int"): "4", (8, "int"): "8", (8, "float"): "fp8"}
    inputs = named.get(taken)
    if strategy not in (None, "tensor", "channel", "group") or not 2 <= bits <= 8 or not inputs:
        return None
    if inputs == "4" and bits > 4:
        return None
    zero = "" if weights.flag("symmetric", default=True) else "_zp"
    return _in_groups(bits, size, inputs, zero, stored)


def _floats_of(weights, bits, size, strategy, taken):
    alone, alike = taken is None, taken in (None, (bits, "float"))
    block = weights.raw("block_structure")[1]
    grouped = strategy in (None, "group", "tensor_group")
    if bits == 8 and strategy == "block" and alike and block in (None, [128, 128], "128x128"):
        return "fp8_block_w8a16" if alone else "fp8_block"
    if bits == 8 and grouped and size == 32 and alike:
        return "mxfp8_w8a16" if alone else "mxfp8"
    if bits == 8 and (strategy in ("tensor", "channel") or (strategy is None and size is None)):
        return ("fp8_w8a16" if alone else "fp8") if alike else None
    if bits == 4 and grouped and size in (16, 32) and alike:
        return ("nvfp4" if size == 16 else "mxfp4") + ("_w4a16" if alone else "")
    if bits == 4 and grouped and size == 32 and taken == (8, "float"):
        return "mxfp4_w4a8"
    if bits == 6 and grouped and size == 32:
        return {None: "mxfp6_w6a16", (8, "float"): "mxfp6"}.get(taken)
    return None
