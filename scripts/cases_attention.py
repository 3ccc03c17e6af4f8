"""Attention and latent attention of three engines, in decode and in prefill, over head sizes and windows.

A row is one layer in a CUDA graph of its own, replayed, with the write of the new keys and values. Its floor holds the gap
between two graphs, which a whole model in one graph does not pay: `gap` measures it, and the constants that ship are without it.
"""

import functools
from dataclasses import dataclass, replace

import numpy as np
from calibration_cases import SECONDS, Case, third
from silicon_source import DEVICES, versions_text

from hwdesign.catalogue.device import device as as_device
from hwdesign.formulas.attention import attention_flops
from hwdesign.models.steps import Work
from hwdesign.timing import kernels

OPERATIONS = ("attention_decode", "attention_prefill", "mla_decode", "mla_prefill")
ENGINES = ("sglang", "trtllm", "vllm")
HOPPER = ("H200", "H100_SXM")

DECODE = SECONDS | {
    "bandwidth": (0.8, 0.02, 1),
    "wave": (2e-6, 1e-8, 2e-5),
    "row": (1e-8, 1e-11, 1e-6),
    "merge": (8e-7, 1e-9, 2e-5),
}
STEP, L2 = {"step": (5e-7, 1e-9, 2e-5)}, {"l2": (2, 1, 12)}
EDGE, FILL = {"edge": (128, 1, 512)}, {"fill": (4, 1, 32)}
PREFILL = SECONDS | {
    "rate": (0.5, 0.02, 1),
    "tile": (1e-6, 1e-9, 2e-5),
    "chain": (1, 0.01, 20),
    "bandwidth": (0.7, 0.05, 1),
    "softmax": (6e-7, 1e-9, 5e-6),
}
WRITE, MASK, ALONE = {"write": (0.5, 0.02, 2)}, {"mask": (1.3, 1, 8)}, {"alone": (1, 1, 1)}
SMALL_N, SMALL_K = [32, 64, 128, 256, 512, 768, 1024], [32, 64, 128, 256, 512]  # of products that take no time but their start
MOST = 3000  # rows of a table that a fit sees; all that are held out are measured

# The kernel that an engine takes by itself. Others were timed for one model alone: Triton and FlashInfer in SGLang on Blackwell
# (Qwen3.5, MiMo, Nemotron-H), Triton in SGLang on Hopper and FlashInfer in TensorRT-LLM (Gemma 4), FlashAttention 4 in vLLM on
# Hopper (heads of 512), Triton in vLLM on Blackwell (an FP8 cache of heads of 192). Names of one kernel change over the versions.
KERNELS = {
    "sglang": ("fa3", "trtllm_mha", "flash_attention"),
    "trtllm": ("torch_flow",),
    "vllm": (
        "vllm_flash_attn_fa3",
        "vllm_flash_attn",
        "vllm_flashinfer_trtllmprefill",
        "vllm_flashinfer_trtllmdecode",
        "vllm_flashinfer_flashinfertrtllmapidecode",
    ),
}
MOST_TO_A_HEAD = 32  # beyond so many query heads TensorRT-LLM reads the cache for each of them: no served model has that
# L40S and RTX PRO 6000 have kernels of another kind (FlashInfer and Triton), which this model misses by 20 to 38 % in the mean.
FITTED = tuple(name for name in DEVICES if name not in ("L40S", "RTX_PRO_6000"))
LEFT_OUT = {  # and why
    ("attention_decode", "trtllm", "A100_SXM"): "beats the bandwidth of the datasheet by 1.7",
    ("mla_decode", "trtllm", "A100_SXM"): "reads at 12 to 23 % of the bandwidth; missed by 27 % in the mean",
    ("mla_prefill", "trtllm", "A100_SXM"): "as in decode, of a version of 2025",
}


@dataclass(frozen=True)
class Slice:
    """Rows of one kernel: what was timed, as arrays, and how."""

    operation: str
    device: str
    precision: str
    engine: str
    rows: dict

    @property
    def decode(self):
        """Whether each sequence gets one token."""
        return self.operation.endswith("decode")

    @property
    def latent(self):
        """Whether the attention is on a latent."""
        return self.operation.startswith("mla")


def names(decode, latent, device):
    """Columns that name what was timed."""
    shape = ("batch_size", "isl", "step", "num_heads", "kv_cache_dtype")
    if latent:
        return shape
    more = ("num_key_value_heads", "head_dim", *(() if decode else ("attn_dtype",)))
    return shape + more + (() if device == "A100_SXM" else ("window_size",))  # its tables are older than windows


def slice_of(source, operation, device, precision, engine):
    """The rows of a slice; None where there are none or they are left out."""
    decode, latent = operation.endswith("decode"), operation.startswith("mla")
    if (operation, engine, device) in LEFT_OUT:
        return None
    wanted = {"kv_cache_dtype": "bfloat16" if precision == "bf16" else "fp8"}
    if not latent:
        wanted["kernel_source"] = list(KERNELS[engine])
        if not decode and precision == "fp8" and engine != "vllm":  # vLLM's rows name the format of the input
            wanted["attn_dtype"] = "fp8"
    family, table = ("mla", "mla") if latent else ("attention", "attention")
    table = f"{'generation' if decode else 'context'}_{table}"
    found = source.rows(device, family, table, engine, names(decode, latent, device), wanted)
    if not len(found["latency"]):
        return None
    rows = {
        "batch": found["batch_size"].astype(float),
        "context": (found["isl"] + found["step"]).astype(float),
        "heads": found["num_heads"].astype(float),
        "seconds": found["latency"].astype(float) / 1e3,
        "version": found["version"],
    }
    ones = np.ones(len(rows["batch"]))
    rows["kv_heads"] = ones if latent else found["num_key_value_heads"].astype(float)
    rows["head_size"] = ones * 576 if latent else found["head_dim"].astype(float)
    rows["window"] = (ones * 0 if latent else found.get("window_size", ones * 0)).astype(int)
    keep = sound(operation, device, precision, engine, rows)
    rows = {name: values[keep] for name, values in rows.items()}
    return Slice(operation, device, precision, engine, rows) if len(rows["batch"]) > 100 else None


def sound(operation, device, precision, engine, rows):
    """Rows that are measurements of what they say, of the kernel that the rest of the slice has."""
    group, size, window = rows["heads"] / rows["kv_heads"], rows["head_size"], rows["window"]
    keep = np.ones(len(group), bool)
    if operation == "attention_prefill":
        keep &= rows["context"] > 1  # one token is decode
    if operation == "mla_decode" and engine == "sglang" and precision == "fp8" and device in HOPPER:
        keep &= False  # each step turns the whole cache into BF16 first
    if operation.startswith("mla"):
        return keep
    keep &= size != 192  # MiMo: keys of 192 and values of 128, some 5 us slower from the start; vLLM times 192 for both
    if engine == "sglang" and "fp4" in as_device(device).dense_peak:
        keep &= (window != 8192) | (rows["context"] <= 8192)  # Llama 4's chunks: the rows take the time of the whole cache
    if operation == "attention_decode" and engine == "trtllm":
        keep &= group <= MOST_TO_A_HEAD
        if device in HOPPER:
            keep &= group > 1  # a head of its own: the kernel of CUDA cores, not the one that packs query heads
            keep &= (size != 64) | (precision == "bf16")  # timed with sinks, for which it leaves its kernel of an FP8 cache
    return keep


def work_of(part):
    """Fields of `Work` of a slice's rows, but for the window."""
    rows, decode, latent = part.rows, part.decode, part.latent
    batch, context, window = rows["batch"], rows["context"], np.where(rows["window"] > 0, rows["window"], np.inf)
    size = 2 * rows["head_size"] if not latent else np.full_like(batch, 1088 if decode else 320)
    seen = np.minimum(context, window) if decode else context
    within = np.minimum(context, window)
    scores = seen if decode else within * (within + 1) / 2 + (context - within) * within
    if not decode and not rows["window"].any():
        scores = attention_flops(context, context, 1, 1, causal=True) / 4
    return {
        "flops": 2 * batch * rows["heads"] * size * scores,
        "cache_elements": batch * seen * (576 if latent else rows["kv_heads"] * size),
        "batch": batch,
        "context": seen,
        "heads": rows["heads"],
        "kv_heads": rows["kv_heads"],
        "queries": np.ones_like(context) if decode else context,
        "size": size,
    }


def bounds_of(part):
    """Constants of a slice and their bounds: what its kernel has."""
    hopper, engine = "fp4" not in as_device(part.device).dense_peak, part.engine
    if not part.decode:
        alone = ALONE if engine == "trtllm" and hopper else {}
        if part.latent:
            return {name: PREFILL[name] for name in PREFILL if name != "softmax"} | alone
        write = WRITE if engine == "vllm" or (engine == "sglang" and hopper) else {}
        return PREFILL | write | alone | (MASK if alone and part.rows["window"].any() else {})
    if part.latent:
        return DECODE | L2
    if not hopper:
        return DECODE | STEP | (L2 if as_device(part.device).l2 else {})
    return DECODE | STEP | (EDGE if part.rows["window"].any() else {}) | (FILL if engine == "trtllm" else {})


@functools.cache
def gap(source, device):
    """Time between two graphs that are replayed one after the other [s]: what one product alone in a graph takes beyond one of
    six of the same size, in the median over the engines. 0 for A100, whose tables are older than the collector that was read.
    """
    if device == "A100_SXM":
        return 0.0
    found = []
    for engine in ENGINES:
        few = {"bmm_dtype": "bfloat16", "num_heads": [1, 2, 4, 8], "num_tokens": [1, 2, 4, 8, 16]}
        alone = source.rows(device, "mla_bmm", "mla_bmm", engine, tuple(few), few)
        small = {"gemm_dtype": "bfloat16", "m": [1, 2, 4, 8, 16], "n": SMALL_N, "k": SMALL_K}
        one_of_six = source.rows(device, "gemm", "gemm", engine, tuple(small), small)
        if len(alone["latency"]) and len(one_of_six["latency"]):
            found.append(6 / 5 * (np.median(alone["latency"]) - np.median(one_of_six["latency"])) / 1e3)
    return float(np.median(found)) if found else 0.0


def split(part):
    """The slice with at most `MOST` rows that are not held out, evenly; and which are: shapes, for MLA (batch, context)."""
    rows = part.rows
    keys = ("batch", "context") if part.latent else ("heads", "kv_heads", "head_size")
    held = third(*(rows[name] for name in keys))
    train = np.flatnonzero(~held)
    keep = np.sort(np.concatenate([np.flatnonzero(held), train[:: -(-len(train) // MOST)]]))
    return replace(part, rows={name: values[keep] for name, values in rows.items()}), held[keep]


def subsets_of(part, held):
    """Rows of each head size without a window, and of those with one: where some are held out, and some are not."""
    size, window, heads = (part.rows[name] for name in ("head_size", "window", "heads"))
    if part.latent:
        found = {f"{few} heads": heads == few for few in (16, 128)}
    else:
        found = {f"head {int(one)}": (size == one) & (window == 0) for one in np.unique(size)} | {"window": window > 0}
    some = {name: rows for name, rows in found.items() if 0 < np.sum(rows & held) < np.sum(rows)}
    return {"all": np.ones(len(size), bool)} | some


def attention_case(source, operation, device, precision, engine):
    """Attention of a layer; a third of the (heads, key-value heads, head size) is held out whole, for MLA of (batch, context)."""
    part = slice_of(source, operation, device, precision, engine)
    if part is None:
        return None
    part, held = split(part)
    card, work, rows = as_device(device), work_of(part), part.rows
    low = precision == "fp8" and "fp8" in card.dense_peak
    element, peak = (1.0 if precision == "fp8" else 2.0), card.peak_flops("fp8" if low else "bf16")
    model = kernels.decode_attention_seconds if part.decode else kernels.prefill_attention_seconds
    latent, window, between = (1088 if part.latent else 0), rows["window"], gap(source, device)

    def predict(c, taken=slice(None)):
        taken = np.arange(len(window))[taken]
        out = np.empty(len(taken))
        for one in np.unique(window):
            here = window[taken] == one
            some = {name: values[taken[here]] for name, values in work.items()}
            out[here] = model(Work(**some, latent=latent, window=int(one) or None), element, card, peak, c)
        return out + between

    return Case(
        operation=operation,
        device=device,
        precision=precision,
        framework=engine,
        version=versions_text(rows),
        seconds=rows["seconds"],
        predict=predict,
        bounds=bounds_of(part),
        starts=({}, {"bandwidth": 0.3}) if part.decode else ({}, {"rate": 0.15}),
        held=held,
        # the size that most models have counts twice where the table has few rows of others
        weights=np.where((engine == "sglang") & (rows["head_size"] == 128), 2.0, 1.0),
        subsets=subsets_of(part, held),
        shape=work | {"window": window, "latent": np.full(len(window), latent)},
        beside=between,
    )


def cases(source):
    """Every case, one after the other."""
    for operation in OPERATIONS:
        for device in FITTED:
            for engine in ENGINES:
                for precision in ("bf16", "fp8"):
                    if case := attention_case(source, operation, device, precision, engine):
                        yield case
