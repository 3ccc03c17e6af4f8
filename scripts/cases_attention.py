"""Attention and latent attention of the engines, in decode and in prefill."""

import numpy as np
from calibration_cases import SECONDS, Case, third, version_of

from hwdesign.catalogue.device import device as as_device
from hwdesign.models.steps import Work
from hwdesign.timing import kernels
from hwdesign.timing.silicon import measurements, tables

OPERATIONS = ("attention_decode", "attention_prefill", "mla_decode", "mla_prefill")

DECODE = SECONDS | {
    "bandwidth": (0.8, 0.02, 1),
    "l2": (2, 1, 12),
    "wave": (2e-6, 1e-8, 2e-5),
    "row": (1e-8, 1e-11, 1e-6),
    "chain": (5e-7, 1e-9, 2e-5),
}
PREFILL = SECONDS | {"rate": (0.5, 0.02, 1), "tile": (1e-6, 1e-9, 2e-5), "chain": (1, 0.01, 20), "bandwidth": (0.7, 0.05, 1)}


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


def cases(source):
    """Every case, one after the other."""
    for operation in OPERATIONS:
        for row in tables():
            if row["operation"] == operation:
                for precision in ("bf16", "fp8") if row["device"] != "A100_SXM" else ("bf16",):
                    yield attention_case(operation, row["device"], precision)
