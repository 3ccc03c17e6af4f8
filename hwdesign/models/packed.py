"""Parameters of a checkpoint whose matrices are packed: which tensors hold parameters and how many,
which are their scales, and which are tables and buffers that no count includes.

The formats are those of AutoAWQ and GPTQModel (`qweight`), compressed-tensors (`weight_packed`),
FP8 (`weight_scale_inv`, `weight_scale`), MXFP4 of gpt-oss (`_blocks`), NVFP4 of ModelOpt (two
elements a byte with `weight_scale`), bitsandbytes (`absmax`, `SCB`), the FP4 experts of DeepSeek-V4
(two elements a byte with an E8M0 `scale`) and MLX (`weight` as uint32 with `scales`). A tensor of
another format is refused by its name.
"""

import functools
import math
import re
from typing import NamedTuple

from hwdesign._check import shown

# Last words of names that only formats have which are not unpacked here.
REFUSED = {
    "bitmask": "sparse compressed-tensors",
    "compressed": "sparse compressed-tensors",
    "scale_packed": "Marlin 2:4",
    "codebooks": "AQLM",
    "codes": "AQLM",
    "W_q": "HQQ",
    "q_weight": "EXL2",
    "trellis": "EXL3",
    "centroids": "VPTQ",
    "B_24": "Marlin 2:4",
}
TORCHAO = re.compile(r"_qdata$|_packed_weight$|tensor_impl")
SCALES = re.compile(
    r"(?:^|[._])(?:(?:weight|input|output|activation|input_activation|[qkv]|prob_output|"
    r"weight_global|input_global|pre_quant)_scale(?:_inv|_ub|_\d)?|"
    r"(?:weight|input|output|[kv])_zero_point|"
    r"weight_g_idx|weight_shape|g_idx|qzeros|SCB|weight_format|absmax|quant_map|nested_absmax|"
    r"nested_quant_map|bitsandbytes__\w+|wscale|ascale|scales|biases)$"
)
STACKED = re.compile(r"_(?:scales?|bias_scale|scale_inv|scale_\d|blocks)$")
BUFFERS = re.compile(
    r"(?:inv_freq|masked_bias|position_ids|num_batches_tracked|(?:cos|sin)_cached|freqs_cis|"
    r"slope_rate|(?:query|key|diagonal)_decay)$"
)
LOW = ("U8", "I8", "F4", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
TABLES = ("BOOL", "U8", "U16", "I16", "U32", "I32", "U64", "I64", "C64", "F8_E8M0")
PACKED_BITS, GROUPS = (2, 3, 4, 5, 6, 8), (16, 32, 64, 128)
WORDS = ("num_bits", "bits", "w_bit")
WIDTHS = ("weights", "quantization", "quantization_config")  # where a config gives them


class Parameter(NamedTuple):
    """A tensor of parameters as the model sees it; a 4-bit one of bitsandbytes has no shape."""

    shape: tuple[int, ...]  # [element]
    stored: str  # name of the tensor that holds it

    @property
    def elements(self):
        """How many parameters [element]."""
        return math.prod(self.shape)


def unpack(tensors, config=None):
    """Parameters of a checkpoint, and what else is in it.

    Parameters
    ----------
    tensors : dict of str to Tensor
        As `hwdesign.models.safetensors.read_checkpoint` has them.
    config : dict, optional
        The parsed config.json, of which only numbers of bits and sizes of groups are read.

    Returns
    -------
    (dict of str to Parameter, dict of str to str)
        Parameters by name, where a packed matrix has the name it would have unpacked; and for every
        other tensor "scale", "buffer" or "table".

    Raises
    ------
    ValueError
        If a tensor is packed in a way that is not known.
    """
    given = list(_widths(config or {}))
    found, others = {}, {}
    for name, tensor in tensors.items():
        if said := _other(name, tensor, tensors):
            others[name] = said
            continue
        plain, shape = _logical(name, tensor, tensors, given)
        if plain in found:
            raise ValueError(f"weights must hold each matrix once, got {shown(name)} besides")
        found[plain] = Parameter(shape, name)
    return found, others


def _other(name, tensor, tensors):
    """What a tensor is that holds no parameters; None where it holds some."""
    above, _, leaf = name.rpartition(".")
    kind, stem = _leaf(leaf)
    if kind in ("scale", "buffer"):
        return kind
    if kind:
        raise ValueError(
            f"weights must be in a format that is unpacked here, got {shown(name)}: {kind} is not"
        )
    mask = leaf == "bias" and len(tensor.shape) > 2 and "att" in above
    if mask or name.endswith(("act_fn.beta", "act_fn.eps")):  # of GPT-2, of xIELU
        return "buffer"
    weight = tensors.get(f"{above}.weight")
    if leaf == "scale" and weight is not None and weight.dtype in LOW:
        return "scale"
    if stem != leaf:
        whole = name[: len(name) - len(leaf)] + stem
        matrix = tensors.get(whole) or tensors.get(f"{whole}_blocks")
        if matrix and matrix.dtype in LOW:
            return "scale"
    table = tensor.dtype in TABLES and not _packed(name, tensor, tensors)
    return "table" if table else None


@functools.lru_cache(10_000)
def _leaf(leaf):
    """What the last word of a name says: "scale", "buffer", a format that is not unpacked or None;
    and the matrix that it would be the scale of.
    """
    stem = leaf if leaf.endswith("_blocks") else STACKED.sub("", leaf)
    if leaf in REFUSED or TORCHAO.search(leaf):
        return REFUSED.get(leaf, "torchao"), stem
    if BUFFERS.search(leaf):
        return "buffer", stem
    return "scale" if SCALES.search(leaf) else None, stem


def is_scale(name, names):
    """Whether a name among others is that of a scale or a buffer, as far as names tell."""
    above, _, leaf = name.rpartition(".")
    kind, stem = _leaf(leaf)
    if kind in ("scale", "buffer"):
        return True
    if leaf == "scale":
        return f"{above}.weight" in names
    whole = name[: len(name) - len(leaf)] + stem
    return stem != leaf and (whole in names or f"{whole}_blocks" in names)


def _packed(name, tensor, tensors):
    """Whether a tensor of integers holds parameters."""
    above, _, leaf = name.rpartition(".")
    if leaf in ("qweight", "weight_packed") or name.endswith("_blocks"):
        return True
    if tensor.dtype == "U32":
        return leaf == "weight" and f"{above}.scales" in tensors
    if tensor.dtype == "U8":
        return bool(_scale(name, tensors)) or f"{name}.absmax" in tensors
    return tensor.dtype == "I8"


def _scale(name, tensors):
    """The scale of each block of a matrix; None where there is none."""
    above = name.removesuffix(".weight")
    names = (f"{name}_scale", f"{name}_weight_scale", f"{above}.scale", f"{name}_scale_inv")
    return next((tensors[other] for other in names if other in tensors), None)


def _logical(name, tensor, tensors, given):
    """(name, shape) of the parameters that a tensor holds."""
    above, _, leaf = name.rpartition(".")
    shape = tensor.shape
    if leaf == "qweight":
        return f"{above}.weight", _integers(name, tensor, tensors)
    if name.endswith("_blocks") and tensor.dtype == "U8" and len(shape) > 2:
        return name.removesuffix("_blocks"), (*shape[:-2], shape[-2] * shape[-1] * 2)
    if leaf == "weight_packed":
        if tensor.dtype == "U8":
            return f"{above}.weight", _doubled(name, shape)
        scale = tensors.get(f"{above}.weight_scale")
        return f"{above}.weight", _words(above, name, shape, scale, given)
    if tensor.dtype == "U32":
        return name, _words(above, name, shape, tensors[f"{above}.scales"], given)
    if tensor.dtype == "U8" and f"{name}.absmax" in tensors:
        return name, (2 * tensor.elements,)
    scale = _scale(name, tensors)
    narrow = tensor.dtype == "I8" and scale is not None and scale.dtype in ("F8_E8M0", "U8")
    return name, _doubled(name, shape) if tensor.dtype == "U8" or narrow else shape


def _doubled(name, shape):
    """Shape of a matrix of which two elements are in a byte."""
    if not shape:
        raise ValueError(f"weights must be packed along a dimension, got none in {shown(name)}")
    return (*shape[:-1], 2 * shape[-1])


def _integers(name, tensor, tensors):
    """[inputs, outputs] of a matrix of AWQ or GPTQ: scales and zero points tell the bits."""
    above = name.removesuffix("qweight")
    scales, zeros = tensors.get(f"{above}scales"), tensors.get(f"{above}qzeros")
    shapes = [t.shape for t in (tensor, scales, zeros) if t and len(t.shape) == 2]
    if len(shapes) < 3 or not scales.shape[1]:
        raise ValueError(
            f"weights must have scales and qzeros beside {shown(name)}, all of two dimensions"
        )
    (rows, columns), outputs = tensor.shape, scales.shape[1]
    bits = 32 * zeros.shape[1] / outputs
    if bits in PACKED_BITS and columns == outputs and 32 * rows % bits == 0:
        return int(32 * rows // bits), outputs
    if bits in PACKED_BITS and columns == zeros.shape[1]:
        return rows, outputs
    raise ValueError(
        f"weights must fit their scales and qzeros, got {shown(name)} {list(tensor.shape)} with "
        f"{list(scales.shape)} and {list(zeros.shape)}"
    )


def _words(above, name, shape, scale, given):
    """Shape of a matrix that is packed into words of 32 bits along its inputs."""
    if len(shape) < 2 or scale is None or not scale.shape:
        raise ValueError(f"weights must have scales beside {shown(name)}, of two dimensions")
    groups, words = scale.shape[-1], shape[-1]
    own = [width for key, width in given if key == above or above.endswith(f".{key}")]
    options = own or [width for key, width in given if key in WIDTHS]
    options = options or [(bits, group) for bits in PACKED_BITS for group in GROUPS]
    fits = {
        words * 32 // bits
        for bits, group in options
        if words * 32 % bits == 0
        and (words * 32 // bits == groups * group if group else groups == 1)
    }
    if len(fits) != 1:
        known = " or ".join(f"{bits} bits in groups of {group}" for bits, group in options)
        said = known if len(options) < 4 else "bits and group_size that the config does not give"
        raise ValueError(
            f"weights must be packed as the config says, got {shown(name)} {list(shape)} with "
            f"scales {list(scale.shape)} for {said}"
        )
    return (*shape[:-1], fits.pop())


def _widths(values, key="", depth=0):
    """(key, (bits, size of a group)) of every object in a config that gives bits; 0: no groups."""
    bits = next((values[word] for word in WORDS if type(values.get(word)) is int), None)
    group = values.get("group_size", values.get("q_group_size"))
    if bits in PACKED_BITS and depth:
        yield key, (bits, group if type(group) is int and group > 0 else 0)
    for name, inner in values.items():
        if isinstance(inner, dict) and depth < 6:
            yield from _widths(inner, str(name), depth + 1)
