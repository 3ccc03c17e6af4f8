"""What is calibrated: each case is a slice of a published table, a model of its times, and the part that is held out.

Used by `fit_calibration.py`, the Accuracy page and the tests, so that the error that is printed is computed in one place.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.formulas.collectives import remote_copies
from hwdesign.models.steps import Experts, Work
from hwdesign.timing import kernels
from hwdesign.timing.gemm_kernel import gemm_kernel_seconds
from hwdesign.timing.silicon import gemm_grid, measurements, slices, tables

SEED = 0
HELD_EP = (4, 16, 64, 256)
HIDDEN, WIDTH, TOP_K, EXPERTS = 7168, 2048, 8, 256  # the layer of DeepSeek-R1 that the MoE tables hold

# Bounds: start, lowest, highest. Shares of the datasheet's rates stop at 1.
SECONDS = {"fixed": (8e-6, 3e-7, 5e-5)}
GEMM = {
    "peak": (0.7, 0.05, 1),
    "bandwidth": (0.85, 0.3, 1),
    "feed": (4, 1, 15),
    "fixed": (3e-6, 3e-7, 2e-5),
    "overlap": (2, 1, 8),
    "balance": (0.5, 0.02, 1),
}
GEMM_BF16 = GEMM | {"wave": (1e-6, 1e-8, 1e-5), "split": (6000, 128, 65536)}
GEMM_QUANTIZED = GEMM | {"chain": (5e-10, 1e-11, 3e-9), "quantize": (0.6, 0.05, 1)}
DECODE = SECONDS | {
    "bandwidth": (0.8, 0.02, 1),
    "l2": (2, 1, 12),
    "wave": (2e-6, 1e-8, 2e-5),
    "row": (1e-8, 1e-11, 1e-6),
    "chain": (5e-7, 1e-9, 2e-5),
}
PREFILL = SECONDS | {"rate": (0.5, 0.02, 1), "tile": (1e-6, 1e-9, 2e-5), "chain": (1, 0.01, 20), "bandwidth": (0.7, 0.05, 1)}
MOE = SECONDS | {
    "bandwidth": (0.8, 0.1, 1),
    "rate": (0.5, 0.02, 1),
    "pairs": (0.4, 0.01, 1),
    "tokens": (0.5, 0.01, 2),
    "local": (3e-7, 1e-10, 1e-5),
    "touched": (3e-7, 1e-10, 1e-5),
}
FUSED = {name: MOE[name] for name in ("fixed", "bandwidth", "rate", "touched")} | {"pairs": (0.7, 0.01, 5)}
LINK = {"latency": (5e-6, 1e-7, 1e-4), "bandwidth": (0.7, 0.05, 1)}
ALL_REDUCE = LINK | {"doubling": (5e-7, 1e-8, 1e-5), "second": (5e-6, 1e-8, 1e-4)}
RING = LINK | {"step": (1e-6, 1e-8, 1e-5)}
ALL_TO_ALL = LINK | {"doubling": (2e-6, 1e-8, 1e-5)}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One calibration: where the times come from, the model, its constants' bounds, and which times are held out."""

    operation: str
    device: str
    precision: str
    framework: str
    version: str
    seconds: np.ndarray  # [s]
    predict: Callable  # from constants, and rows to take, to seconds
    bounds: dict
    held: np.ndarray
    subsets: dict
    starts: tuple = ({},)
    weights: np.ndarray | float = 1.0
    shape: dict = field(default_factory=dict)

    @property
    def label(self):
        """Operation, device, precision and framework, for messages."""
        return " ".join(x for x in (self.operation, self.device, self.precision, self.framework, self.version) if x)

    def error(self, constants, rows=slice(None)):
        """Relative error of the model: modelled over measured, minus 1 [dimensionless]."""
        return self.predict(constants, rows) / self.seconds[rows] - 1


def third(*keys):
    """True where the combination of keys is among the third that is held out whole; the seed is fixed."""
    rows = np.stack([np.asarray(key, float) for key in keys], axis=1)
    groups, index = np.unique(rows, axis=0, return_inverse=True)
    order = np.random.default_rng(SEED).permutation(len(groups))
    return np.isin(index.ravel(), order[: round(len(groups) / 3)])


def every_third(key):
    """True where the key is the third, sixth, ... of its sorted values."""
    return np.isin(key, np.unique(key)[2::3])


def version_of(operation, device):
    """(framework, version) of a long table."""
    return next((r["framework"], r["version"]) for r in tables() if (r["operation"], r["device"]) == (operation, device))


def gemm_case(device, precision, framework):
    """GEMM times with n and k of 512 and more; a third of the (n, k) pairs is held out whole, with all their m."""
    grid, card, recipe = gemm_grid(device, precision, framework), as_device(device), as_recipe(precision)
    m, n, k = np.meshgrid(*(a.astype(float) for a in (grid.m, grid.n, grid.k)), indexing="ij")
    keep = ~np.isnan(grid.seconds) & (n >= 512) & (k >= 512)
    m, n, k, seconds = m[keep], n[keep], k[keep], grid.seconds[keep].astype(float)
    large = (m >= 256) & (n >= 1024) & (k >= 1024)
    quantized = recipe.activations.bytes < 2
    return Case(
        operation="gemm",
        device=device,
        precision=precision,
        framework=framework,
        version=grid.version,
        seconds=seconds,
        predict=lambda c, rows=slice(None): gemm_kernel_seconds(m[rows], n[rows], k[rows], card, recipe, c),
        bounds=GEMM_QUANTIZED if quantized else GEMM_BF16,
        starts=({}, {"overlap": 1.3, "peak": 0.5, "chain": 1.5e-9})
        if quantized
        else ({"split": 8000, "wave": 2e-7}, {"split": 1000, "wave": 2.5e-6}),
        held=third(n, k),
        subsets={"large": large, "all": np.ones(m.shape, bool)},
        weights=np.where(large, 2.0, 1.0),
        shape={"m": m, "n": n, "k": k},
    )


def attention_case(operation, device, precision):
    """Attention of one layer; a third of the (query heads, key-value heads) pairs is held out, for MLA of (batch, context)."""
    bits = 16 if precision == "bf16" else 8
    table = operation
    if not (measurements(operation, device)["cache_bits"] == bits).any():
        table = f"{operation}_trtllm"
    rows = measurements(table, device, cache_bits=bits)
    if "run" in rows:
        rows = {name: values[rows["run"] == 0] for name, values in rows.items()}
    card, latent, decode = as_device(device), operation.startswith("mla"), operation.endswith("decode")
    b, s, heads = rows["batch"], rows["context"], rows["heads"]
    kv = np.ones_like(heads) if latent else rows["kv_heads"]
    size = 256 if not latent else 1088 if decode else 320
    work = {
        "flops": 2 * b * s * heads * size,
        "cache_elements": b * s * (576 if latent else 2 * kv * 128),
        "batch": b,
        "context": s,
        "heads": heads,
        "kv_heads": kv,
        "queries": np.ones_like(s) if decode else s,
    }
    element, peak = (2.0, card.peak_flops("bf16")) if precision == "bf16" else (1.0, card.peak_flops("fp8"))
    model = kernels.decode_attention_seconds if decode else kernels.prefill_attention_seconds

    def predict(c, rows=slice(None)):
        part = {name: values[rows] for name, values in work.items()}
        return model(Work(**part, size=size, latent=1088 if latent else 0), element, card, peak, c)

    framework, version = version_of(table, device)
    return Case(
        operation=operation,
        device=device,
        precision=precision,
        framework=framework,
        version=version,
        seconds=rows["seconds"].astype(float),
        predict=predict,
        bounds=DECODE if decode else PREFILL,
        starts=({}, {"bandwidth": 0.1, "l2": 1.2}) if decode else ({}, {"rate": 0.15}),
        held=third(b, s) if latent else third(heads, kv),
        subsets={"all": np.ones(len(b), bool)},
        shape=rows,
    )


def experts_case(operation, precision, device, rows, layer, **what):
    """A layer of routed experts: `layer` holds the arguments of `Experts` that follow the rows."""
    card, recipe = as_device(device), as_recipe(precision)
    sizes, peak = recipe.operand_bytes, card.peak_flops(recipe.math)

    def predict(c, rows=slice(None)):
        part = Experts(**{name: np.broadcast_to(values, len(seconds))[rows] for name, values in layer.items()}, hidden=HIDDEN)
        return kernels.expert_seconds(part, sizes["b"], sizes["a"], card, peak, c)

    seconds, (framework, version) = rows["seconds"].astype(float), version_of(operation, device)
    named = {"operation": operation, "device": device, "precision": precision, "framework": framework, "version": version}
    return Case(**named, seconds=seconds, predict=predict, shape=rows, **what)


def moe_case(device, precision):
    """Routed experts of DeepSeek-R1's layer, balanced routing; the EP widths 4, 16, 64 and 256 are held out whole."""
    rows = measurements("moe", device, precision=precision, routing="balanced")
    tokens, ep = rows["tokens"], rows["ep"]
    layer = {
        "tokens": tokens,
        "pairs": np.maximum(TOP_K * tokens / ep, 1),
        "touched": np.maximum(np.minimum(EXPERTS, TOP_K * tokens) / ep, 1),  # round-robin: none twice before all had one
        "local": EXPERTS / ep,
        "width": WIDTH / rows["tp"],
    }
    subsets = {"tp 1": rows["tp"] == 1, "all": np.ones(len(ep), bool)}
    return experts_case("moe", precision, device, rows, layer, bounds=MOE, held=np.isin(ep, HELD_EP), subsets=subsets)


def fused_case(device, precision):
    """The same layer in SGLang's fused kernels, all experts on one rank; every third token count is held out.

    These rows beat the memory's floor if all experts are read that round-robin routing would touch. They read as if a token took
    four new experts each time, out of half of them (the model's router limits a token to half of its groups): that is inferred.
    """
    rows = measurements("moe_fused", device, precision=precision, run=0)
    tokens = rows["tokens"]
    layer = {
        "tokens": tokens,
        "pairs": TOP_K * tokens,
        "touched": np.minimum(EXPERTS / 2, 4 * tokens + 4),
        "local": EXPERTS,
        "width": WIDTH / rows["tp"],
    }
    subsets = {"all": np.ones(len(tokens), bool)}
    return experts_case("moe_fused", precision, device, rows, layer, bounds=FUSED, held=every_third(tokens), subsets=subsets)


def link_case(operation, device):
    """Collectives inside an NVLink domain; every third size is held out, for the all-to-all every third token count."""
    card = as_device(device)
    if operation == "all-reduce":
        rows, model, bounds = measurements("collectives", device, library="trtllm"), kernels.all_reduce_seconds, ALL_REDUCE
        framework, version = version_of("all_reduce_trtllm", device)
    elif operation == "ring":
        rows = measurements("collectives", device, library="nccl", operation=["all-gather", "reduce-scatter"])
        model, bounds, (framework, version) = kernels.ring_seconds, RING, version_of("nccl", device)
    else:
        rows = measurements("all_to_all", device, operation=f"all-to-all-{operation}", ep=[4, 8, 16, 32])
        framework, version = version_of("all_to_all", device)
        copies = np.array([float(remote_copies(TOP_K, EXPERTS, int(ep), balanced=True)) for ep in rows["ep"]])
        element = 2.0 if operation == "combine" else as_recipe("nvfp4").activations.bytes
        rows = rows | {"bytes": rows["tokens"] * copies * HIDDEN * element, "ranks": rows["ep"]}
        model, bounds = kernels.all_to_all_seconds, ALL_TO_ALL
    nbytes, ranks = rows["bytes"], rows["ranks"]
    return Case(
        operation=operation,
        device=device,
        precision="",
        framework=framework,
        version=version,
        seconds=rows["seconds"].astype(float),
        predict=lambda c, rows=slice(None): model(nbytes[rows], ranks[rows], card.link_bandwidth, c),
        bounds=bounds,
        held=every_third(rows.get("tokens", nbytes)),
        subsets={"all": np.ones(len(nbytes), bool)},
        shape=rows,
    )


def cases():
    """Every case, one after the other."""
    for row in slices():
        yield gemm_case(row["device"], row["precision"], row["framework"])
    for operation in ("attention_decode", "attention_prefill", "mla_decode", "mla_prefill"):
        for row in tables():
            if row["operation"] == operation:
                for precision in ("bf16", "fp8") if row["device"] != "A100_SXM" else ("bf16",):
                    yield attention_case(operation, row["device"], precision)
    for row in tables():
        for operation, case in (("moe", moe_case), ("moe_fused", fused_case)):
            if row["operation"] == operation:
                for precision in np.unique(measurements(operation, row["device"])["precision"]):
                    yield case(row["device"], str(precision))
    for operation in ("all-reduce", "ring"):
        for row in tables():
            if row["operation"] == "nccl":
                yield link_case(operation, row["device"])
    for operation in ("dispatch", "combine"):
        yield link_case(operation, "GB200")
