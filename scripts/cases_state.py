"""The recurrences of linear attention with their convolutions, and the mixing of residual streams, in the kernels of the engines.

A row of these tables is one kernel; the time of a layer is that of its convolution plus that of its recurrence. Of Mamba-2 the
tables hold the convolution alone, on every device: nothing is fitted, its state takes the constants of the gated delta net.
"""

import numpy as np
from calibration_cases import SECONDS, Case, every_third, third
from silicon_source import versions_text

from hwdesign.catalogue.device import device as as_device
from hwdesign.models.steps import Scan
from hwdesign.timing import state_kernels
from hwdesign.timing.clock import Clock

KINDS = {"gdn": "linear_attention", "kda": "kda"}  # and the folder of the table
OPERATIONS = ("gdn_decode", "gdn_prefill", "kda_decode", "kda_prefill", "mhc")
DEVICES = ("GB300", "GB200", "B300", "B200", "H200", "H100_SXM")
ENGINES = ("sglang", "trtllm", "vllm")
SIZE, CONV = 128, 4  # of a key and of a value [element], and of the convolution [token]; the same in every row
SHAPE = ("phase", "num_k_heads", "num_v_heads", "batch_size", "seq_len")

# Left out. FlashInfer's decode of SGLang beats the floor of a state in FP32: its state is in BF16, no default.
OTHER_STATE = ("flashinfer_gated_delta_rule_decode",)
# Kimi's older versions time one kernel a graph (no floor below 4 us) and three convolutions in place of one.
OLDER = {"kda": ("0.5.16", "0.27.0")}
# H200 in SGLang was held back: beyond some 10,000 tokens both kernels of prefill are up to 4.9 times slower than on H100, and the
# recurrence of decode, the same kernel in both engines, up to 3 times slower than in vLLM's table.
HELD_BACK = {("gdn_decode", "H200", "sglang"), ("gdn_prefill", "H200", "sglang")}
BF16_STATE = "trtllm"  # its collector gives the kernel a state in BF16

DECODE = SECONDS | {"bandwidth": (0.8, 0.05, 1), "wave": (3e-6, 1e-8, 2e-5)}
PREFILL = {
    "fixed": (2e-5, 3e-7, 1e-4),
    "fill": (1e-5, 1e-9, 1e-4),
    "bandwidth": (0.6, 0.05, 1),
    "chunk": (1e-5, 1e-8, 1e-4),
    "token": (1e-7, 1e-12, 1e-5),
    "start": (5e-6, 1e-9, 1e-4),
    "chain": (1e-6, 1e-9, 2e-5),
}
MIXING = SECONDS | {"bandwidth": (0.8, 0.05, 1)}


def layer_rows(source, kind, device, framework, phase):
    """(columns, versions) of whole layers: key heads, value heads, sequences, tokens of each, and seconds."""
    older = OLDER.get(kind, ())
    but = older if any(v not in older for v in source.versions(device, KINDS[kind], kind, framework)) else ()
    rows = source.rows(device, KINDS[kind], kind, framework, SHAPE, {"phase": [phase]}, but)
    if not len(rows["latency"]):
        return None, ""
    times = {}
    keys = zip(*(rows[name].tolist() for name in SHAPE[1:]), strict=True)
    for key, kernel, latency in zip(keys, rows["kernel_source"].tolist(), rows["latency"].tolist(), strict=True):
        if kernel not in OTHER_STATE:
            times.setdefault(key, ([], []))["conv" not in kernel].append(latency)
    whole = {key: np.median(one) + np.median(other) for key, (one, other) in times.items() if one and other}
    names = ("keys", "heads", "batch", "tokens")
    columns = dict(zip(names, np.array(list(whole), float).T, strict=True))
    columns["seconds"] = np.array(list(whole.values())) * 1e-3
    keep = columns["tokens"] > 1 if phase == "context" else np.ones(len(whole), bool)
    if kind == "kda" and framework == "vllm" and phase == "generation":
        # its first sequence has the state of slot 0, which the kernel takes for an empty one: a sequence alone does nothing
        keep &= columns["batch"] > 1
        columns["batch"] = columns["batch"] - 1
    return {name: values[keep] for name, values in columns.items()}, versions_text(rows)


def state_case(source, kind, device, framework, phase):
    """A recurrence with its convolution; a third of the (sequences, tokens) is held out, in decode of (heads, sequences)."""
    decode = phase == "generation"
    operation = f"{kind}_{'decode' if decode else 'prefill'}"
    if (operation, device, framework) in HELD_BACK:
        return None
    rows, versions = layer_rows(source, kind, device, framework, phase)
    if rows is None:
        return None
    card, element = as_device(device), 2.0 if framework == BF16_STATE else 4.0
    heads, batch, channels = rows["heads"], rows["batch"], (2 * rows["keys"] + rows["heads"]) * SIZE
    work = {
        "state": 2 * batch * heads * SIZE**2,
        "batch": batch,
        "queries": rows["tokens"],
        "heads": heads,
        "ends": 3 * channels + heads * SIZE,
        "kept": (CONV - 1) * channels,
    }
    model = state_kernels.state_decode_seconds if decode else state_kernels.state_prefill_seconds

    def predict(c, rows=slice(None)):
        return model(Scan(**{name: values[rows] for name, values in work.items()}), element, card, c)

    return Case(
        operation=operation,
        device=device,
        precision="bf16" if framework == BF16_STATE else "fp32",
        framework=framework,
        version=versions,
        seconds=rows["seconds"],
        predict=predict,
        bounds=DECODE if decode else PREFILL,
        held=third(heads, batch) if decode else third(batch, rows["tokens"]),
        subsets={"all": np.ones(len(batch), bool)},
        shape=work,
    )


def mixing_case(source, device, framework):
    """Both connections of a layer of four streams, before and after each part; every third token count is held out."""
    wanted = {"op_name": ["pre", "post"], "hc_mult": [4], "num_sites": [2]}
    rows = source.rows(device, "mhc", "mhc_module", framework, ("hidden_size", "num_tokens"), wanted)
    if not len(rows["latency"]):
        return None
    times = {}
    for *key, what, latency in zip(*(rows[n].tolist() for n in ("hidden_size", "num_tokens", "op_name", "latency")), strict=True):
        times.setdefault(tuple(key), {})[what] = latency
    whole = {key: sum(parts.values()) for key, parts in times.items() if len(parts) == 2}
    hidden, tokens = np.array(list(whole), float).T
    seconds = np.array(list(whole.values())) * 1e-3
    card, product = as_device(device), mixing_products(device, framework, hidden, tokens)

    def predict(c, rows=slice(None)):
        ends = 28 * hidden[rows]
        scan = Scan(state=0.0, batch=tokens[rows], ends=ends)
        return product[rows] + state_kernels.mixing_seconds(scan, card, c)

    what = {"operation": "mhc", "device": device, "precision": "", "framework": framework, "version": versions_text(rows)}
    subsets = {"all": np.ones(len(seconds), bool)}
    held, shape = every_third(tokens), {"batch": tokens, "ends": 28 * hidden}
    return Case(**what, seconds=seconds, predict=predict, bounds=MIXING, held=held, subsets=subsets, shape=shape, beside=product)


def mixing_products(device, framework, hidden, tokens):
    """Time of the products that make the numbers of both connections [s], as a step of a model counts them."""
    from hwdesign.models.residual import HyperConnections
    from hwdesign.models.steps import AttentionRun, Plan

    clock, out = Clock(device, "bf16", engine=framework), np.zeros(len(tokens))
    for size in np.unique(hidden):
        of = hidden == size
        run = AttentionRun(int(size), Plan(), tokens[of], tokens[of], np.ones(1))
        HyperConnections(streams=4).operations(run)
        out[of] = sum(clock.gemm(gemm, clock.recipe).seconds for gemm in run.gemms)
    return out


def cases(source):
    """Every case, one after the other."""
    for device in DEVICES:
        for framework in ENGINES:
            for kind in KINDS:
                for phase in ("generation", "context"):
                    case = state_case(source, kind, device, framework, phase)
                    if case is not None:
                        yield case
            case = mixing_case(source, device, framework)
            if case is not None:
                yield case
