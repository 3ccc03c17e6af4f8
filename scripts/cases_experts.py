"""A layer of routed experts, in the kernels of each engine, over every shape that the tables hold.

What a rank was given follows from how the collector deals tokens out: slot j of token t goes to expert `t + j ceil(E / k)`
modulo E, and of EP ranks the first is timed, with all tokens. Rows of balanced routing alone are read: of the others, drawn anew
for each row from a power law, nobody knows what each expert got. An engine keeps all tokens on the rank, and its kernel leaves
out the pairs of experts elsewhere.
"""

import functools

import numpy as np
from calibration_cases import Case, third
from silicon_source import DEVICES, FRAMEWORKS, versions_text

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.models.steps import Experts
from hwdesign.timing import kernels

OPERATIONS = ("moe",)
FORMS = {  # names of the tables, and of the recipes whose sizes and rate they have
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
    "w4a16_mxfp4": "mxfp4_w4a16",
    "w4a8_mxfp4_mxfp8": "mxfp4_w4a8",
    "int4_wo": "w4a16_g32",
}
PRECISIONS = {"w4a16_g32": "w4a16"}  # groups of 32, taken for groups of any size
BLACKWELL = ("GB300", "B200", "GB200", "B300")
# Kernels that are left out, by engine and device, with the reason.
RARE = {
    # a mode that must be asked for, timed with a router that confines each token to half of the groups of experts
    ("trtllm", True): ("min_latency",),
    # of models for which the engine does not take TensorRT-LLM's kernels: another kernel, which a shape does not tell
    ("sglang", True): ("fused_moe_triton",),
    # BF16 of Nemotron alone, five times as long as its bytes
    ("sglang", False): ("flashinfer_cutlass", "situ_as_silu"),
    # one or two shapes each; `vllm_fused_moe` and `marlin_int4` are versions below 0.24, with other kernels
    ("vllm", True): ("cutlass", "triton_tritonexperts", "vllm_fused_moe", "marlin_int4", "situ_as_silu"),
    ("vllm", False): ("vllm_fused_moe", "marlin_int4", "situ_as_silu"),  # the last with another activation than the model's
}
# 47 % off on plans held out: its times follow neither bytes nor operations; 99 rows of EP 1 alone
NO_FIT = {("sglang", "L40S", "w4a16_mxfp4"), ("sglang", "RTX_PRO_6000", "w4a16_mxfp4")}
# DeepSeek-V4 in TensorRT-LLM: with EP > 1 half or twice the time of the next token count
SWINGS = ("trtllm", "w4a8_mxfp4_mxfp8", 2880)  # engine, format, and the hidden size that is left
SHAPE = ("hidden_size", "inter_size", "topk", "num_experts")
GROUPED = (7168, 2048, 8, 256)  # DeepSeek-R1: vLLM and SGLang take its router, which confines a token to half of the groups
UNGATED = ((1024, 2688, 22, 512), (2048, 5120, 22, 512), (2688, 1856, 6, 128), (4096, 2688, 22, 512), (8192, 5120, 22, 512))
NARROWEST = 64  # narrower slices of an expert are padded
ECHO = 0.85  # EP 2 over EP 1 at the most tokens, above which the rank was timed with the pairs of the others, too
FEW = 5  # shapes below which plans (shape, EP, TP) are held out whole, not shapes
DECODE = 256  # tokens on a rank up to which a row counts as decode
SAMPLE = 1500  # times that a fit sees

BOUNDS = {  # a layer starts five kernels or more
    "fixed": (1.5e-5, 5e-6, 2e-4),
    "doubling": (1e-6, 1e-9, 1e-5),
    "chain": (1e-9, 1e-13, 5e-8),
    "bandwidth": (0.85, 0.1, 1),
    "rate": (0.5, 0.02, 1),
    "pairs": (0.5, 0.01, 5),
    "tokens": (0.5, 0.01, 5),
    "slots": (0.5, 0.01, 5),
    "local": (1e-7, 1e-10, 1e-5),
    "touched": (1e-7, 1e-10, 1e-5),
    "many": (0.3, 1e-3, 3),
}
# Constants of each engine: TensorRT-LLM keeps lists of the experts that live here, SGLang sums zeros of those elsewhere.
TAKEN = {
    "trtllm": ("fixed", "chain", "bandwidth", "rate", "pairs", "tokens", "local", "touched"),
    "vllm": ("fixed", "doubling", "chain", "bandwidth", "rate", "pairs", "tokens", "touched"),
    "sglang": ("fixed", "doubling", "chain", "bandwidth", "rate", "pairs", "slots", "touched"),
}
UNTUNED = ("bf16", "mxfp4_w4a16")  # formats for which SGLang has few tuned configurations of its Triton kernel


def fused(engine, device, form):
    """Whether the kernel keeps the pairs on the chip as far as a fit can see: their share of bandwidth has no limit."""
    new = device in BLACKWELL
    if engine == "vllm":
        return form == "bf16" or device == "L40S" or (form == "fp8_block" and new)
    return (form == "fp8_block" or not new) if engine == "sglang" else (form == "mxfp4_w4a16" and new)


def to_bf16(values):
    """Numbers rounded to BF16."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


@functools.cache
def dealt(tokens, experts, top_k, ep, bf16=False):
    """(pairs, experts touched) of the first of `ep` ranks under the collector's balanced routing.

    Fewer tokens than `ceil(E / k)` are spread by a division, in BF16 where that is the default format, as in vLLM: above 256
    every other expert is then never chosen.
    """
    stride = -(-experts // top_k)

    def count(start, rounded=np.floor):
        chosen = rounded(start[:, None] + np.arange(top_k) * stride) % experts
        return np.bincount(chosen.ravel().astype(int), minlength=experts)

    if tokens < stride:
        spread = np.arange(tokens) * stride / tokens
        first = count(to_bf16(spread), to_bf16) if bf16 else count(spread)
    else:  # every `experts` tokens it starts again
        first = tokens // experts * count(np.arange(experts)) + count(np.arange(tokens % experts))
    here = first[: experts // ep]
    return here.sum(), (here > 0).sum()


def kept_rows(rows, engine, device):
    """Which rows time what an engine runs by itself."""
    rare = RARE.get((engine, device in BLACKWELL), ())
    keep = np.array([not any(name in source for name in rare) for source in rows["kernel_source"]], bool)
    if engine == SWINGS[0]:
        keep &= (rows["moe_dtype"] != SWINGS[1]) | (rows["hidden_size"] == SWINGS[2])
    return keep & (rows["inter_size"] / rows["moe_tp_size"] >= NARROWEST)


def without_echoes(rows, shape, engine):
    """Which rows of EP > 1 hold the pairs of the rank alone.

    SGLang's plain Triton kernel gets the pairs of experts elsewhere, too, all for the first expert; and a router of groups, where
    all experts tie, sends every token to the first groups, on the first ranks. Either way EP 2 takes as long as EP 1.
    """
    keep, ep = np.ones(len(shape), bool), rows["moe_ep_size"]
    most = (rows["moe_tp_size"] == 1) & (rows["num_tokens"] == rows["num_tokens"].max())
    for one in np.unique(shape):
        here = shape == one
        times = [rows["latency"][here & most & (ep == g)] for g in (1, 2)]
        alike = all(map(len, times)) and times[1][0] > ECHO * times[0][0]
        grouped = engine != "trtllm" and tuple(rows[name][here][0] for name in SHAPE) == GROUPED
        if alike or grouped:
            keep &= ~(here & (ep > 1))
        if grouped:  # besides its own half, each token takes the same four: beyond 128 tokens these last longest
            keep &= ~(here & (rows["num_tokens"] > GROUPED[3] // 2))
    return keep


def experts_case(rows, engine, device, precision):
    """The case of one device, format and engine; a third of the shapes is held out whole."""
    card, form = as_device(device), as_recipe(FORMS[precision])
    sizes, peak, sides = form.operand_bytes, card.peak_flops(form.math), [rows[name] for name in SHAPE]
    hidden, inter, top_k, number = sides
    tokens, ep = rows["num_tokens"], rows["moe_ep_size"]
    rounded = [engine == "vllm"] * len(tokens)
    given = zip(*(x.tolist() for x in (tokens, number, top_k, ep)), rounded, strict=True)
    pairs, touched = np.array([dealt(*row) for row in given]).T
    shapes = list(zip(*(name.tolist() for name in sides), strict=True))
    if engine != "trtllm":  # a token takes four new experts, out of half of them, and four that all take
        grouped = np.array([shape == GROUPED for shape in shapes])
        touched = np.where(grouped, np.minimum(GROUPED[3] / 2, 4 * tokens + 4), touched)
    layer = {
        "tokens": tokens,
        "pairs": pairs,
        "touched": touched,
        "local": number / ep,
        "slots": tokens * top_k,
        "hidden": hidden,
        "width": inter / rows["moe_tp_size"],
        "gate": np.where([shape in UNGATED for shape in shapes], 1, 2),
    }
    layer = {name: values.astype(float) for name, values in layer.items()}
    cold = kernels.cold_share(Experts(**layer).elements * sizes["b"], card)

    def predict(c, rows=slice(None)):
        part = Experts(**{name: values[rows] for name, values in layer.items()})
        return kernels.expert_seconds(part, sizes["b"], sizes["a"], card, peak, c, cold=cold[rows])

    few = len(set(shapes)) < FEW
    held = third(*sides, ep, rows["moe_tp_size"]) if few else third(*sides)
    alone = len(set(layer["width"].tolist())) == 1  # of one width: what an expert costs is what its bytes cost
    left = {"chain", "touched", "local"} if alone else set()
    left |= {"pairs"} if fused(engine, device, form.name) else set()
    triton = engine == "sglang" and device not in BLACKWELL and form.name in UNTUNED
    more = ("many",) if triton else ("doubling",) if alone else ()
    names = [name for name in (*TAKEN[engine], *more) if name not in left]
    everything, decode = np.ones(len(tokens), bool), tokens <= DECODE
    subsets = {"all": everything, "decode": decode, "ep 1": ep == 1, "decode ep 1": decode & (ep == 1)}
    subsets = {name: rows for name, rows in subsets.items() if (rows & held).any() and (rows & ~held).any()}
    return Case(
        operation="moe",
        device=device,
        precision=PRECISIONS.get(form.name, form.name),
        framework=engine,
        version=versions_text(rows),
        seconds=rows["latency"] / 1e3,
        predict=predict,
        bounds={name: BOUNDS[name] for name in names},
        held=held,
        subsets=subsets,
        shape=layer,
        weights=sampled(held, SAMPLE),
    )


def sampled(held, most):
    """Weights of the times: 1 for a sample of those that are not held out, drawn with a fixed seed, 0 for the rest."""
    train = np.random.default_rng(0).permutation(np.flatnonzero(~held))[:most]
    return np.isin(np.arange(len(held)), train).astype(float)


def cases(source):
    """Every case, one after the other."""
    for engine in FRAMEWORKS:
        for device in DEVICES:
            wanted = {"distribution": "balanced", "moe_dtype": tuple(FORMS)}
            rows = source.rows(device, "moe", "moe", engine, ("moe_dtype", *SHAPE), wanted)
            if not len(rows["latency"]):
                continue
            keep = kept_rows(rows, engine, device)
            rows = {name: values[keep] for name, values in rows.items()}
            for precision in FORMS:
                here = rows["moe_dtype"] == precision
                part = {name: values[here] for name, values in rows.items()}
                if here.any() and (engine, device, precision) not in NO_FIT:
                    shape = np.unique(np.stack([part[name] for name in SHAPE], 1), axis=0, return_inverse=True)[1].ravel()
                    keep = without_echoes(part, shape, engine)
                    part = {name: values[keep] for name, values in part.items()}
                    yield experts_case(part, engine, device, precision)
