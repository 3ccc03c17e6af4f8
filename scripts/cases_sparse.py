"""Attention that does not see all keys, in the modules of the engines: DSA of DeepSeek-V3.2 and GLM-5, CSA and HCA of
DeepSeek-V4, MSA of MiniMax-M3.

A row is a whole module: products with weights, norms, rotation, indexer, choice and attention, on one rank's heads. Its products
take the times that a step of the package's model has, by the constants of the engine; what is left is fitted. The scores of most
of these rows are all equal (dummy weights), which a choice by radix likes least: in the tables of the kernel alone, equal scores
take twice as long as scores that favour the last tokens (GLM-5), and 3 to 16 times in the two kernels of DeepSeek-V4.
"""

import numpy as np
from calibration_cases import Case, third
from silicon_source import versions_text

from hwdesign.catalogue.device import device as as_device
from hwdesign.models import config
from hwdesign.models.compressed import CompressedAttention
from hwdesign.models.steps import AttentionRun, Plan, Work
from hwdesign.timing import sparse_kernels
from hwdesign.timing.clock import Clock

KINDS = ("dsa", "csa", "hca", "msa")
FOLDERS = {"msa": "msa"}  # of the tables; the others' is sparse_attention
OPERATIONS = tuple(f"{kind}_{phase}" for kind in KINDS for phase in ("decode", "prefill"))
DEVICES = ("GB300", "GB200", "B300", "B200", "H200", "H100_SXM")
ENGINES = ("sglang", "trtllm", "vllm")
SHAPE = ("model", "op_name", "gemm_type", "kv_cache_dtype", "num_heads", "batch_size", "isl", "step")
FIELDS = ("cache_elements", "batch", "context", "queries", "heads", "size", "latent", "top", "beside", "every")  # of a `Work`
MOST = 4000  # rows of a case: of larger tables every second, third, ...

FORMS = {"fp8": ("fp8", "fp8_e4m3"), "bf16": ("bfloat16",)}  # of the cache, and how the tables call them
RECIPES = {"fp8_block": "fp8_block", "bfloat16": "bf16"}  # of the products
V32 = "deepseek-ai/DeepSeek-V3.2"

# Left out.
HOST = {("msa", "trtllm", "context")}  # 4 to 24 ms, whatever the size: the host's time
AT_TOP = 2048  # TensorRT-LLM with as many tokens as are picked: twice the time of one more or less token, for another kernel
NO_GRAPH = {True: 1024, False: 512}  # SGLang captures no graph of so many sequences (by FP4): those rows are eager
EAGER = 2  # SGLang's prefill is eager: rows below so many times the time of its smallest are the host's in part
# with fewer heads vLLM before Blackwell prefills an FP8 cache of DSA with its decode kernel, whose rate is another, and
# TensorRT-LLM decodes MSA with one that is up to 8 times slower
FEW_HEADS = 32

INDEX = {
    "index": (0.7, 0.002, 1),
    "pick": (1e-10, 1e-13, 1e-8),
    "row": (1e-6, 1e-10, 1e-4),
    "start": (5e-6, 1e-9, 1e-4),
}
ATTEND = {"fixed": (2e-5, 1e-7, 3e-4), "gather": (0.6, 0.02, 1), "rate": (0.5, 0.01, 1)}
DECODE = {
    "dsa": INDEX | ATTEND,
    "csa": INDEX | ATTEND,
    "hca": ATTEND | {name: INDEX[name] for name in ("pick", "row")},
    "msa": INDEX | ATTEND,
}
SCORE = {
    "score": (0.5, 0.01, 1),
    "pick": (0.3, 0.005, 2),
    "row": (1e-6, 1e-9, 1e-4),
    "start": (1e-5, 1e-9, 1e-4),
}
SPREAD = ATTEND | {"token": (1e-8, 1e-12, 1e-6), "gather": (0.6, 0.02, 10)}
PREFILL = {"dsa": SCORE | SPREAD, "csa": SCORE | SPREAD, "hca": SPREAD, "msa": SCORE | SPREAD}
UNTIL = {("csa_decode", "sglang"): 32000, ("csa_prefill", "vllm"): 4096}  # entries from which on another kernel chooses
# SGLang gathers the keys of all sequences and cleans a matrix of their scores (a part of it: the share is above 1), beside which
# row and start are not found
CLEANS = {("dsa_prefill", "sglang"): {"clean": (0.5, 0.02, 20), "keys": (0.1, 0.001, 1)}}


def v4(model):
    """(hidden size, shape) of a DeepSeek-V4 layer."""
    pro = "Pro" in model
    shape = {"num_heads": 128 if pro else 64, "q_rank": 1536 if pro else 1024, "out_groups": 16 if pro else 8}
    return 7168 if pro else 4096, shape | {"head_dim": 512, "window": 128, "out_rank": 1024}


def mixer(kind, model):
    """(hidden size, mixer) of a layer that was timed."""
    if kind == "msa":
        whole = config.load("minimax-m3")
        return whole.hidden_size, whole.blocks[-1].mixer
    if kind == "dsa":
        whole = config.load("deepseek-v3.2" if model == V32 else "glm-5")
        return whole.hidden_size, whole.blocks[-1].mixer
    hidden, shape = v4(model)
    if kind == "hca":
        return hidden, CompressedAttention(**shape, ratio=128)
    found = {"ratio": 4, "index_heads": 64, "index_dim": 128, "top_k": 1024 if "Pro" in model else 512}
    return hidden, CompressedAttention(**shape, **found)


def module_rows(source, kind, device, framework, phase, form):
    """Columns of the rows of one format; of length 0 where none was timed."""
    table = f"dsv4_{kind}_{phase}_module" if kind in ("csa", "hca") else f"{kind}_{phase}_module"
    gemms = ["bfloat16"] if kind == "msa" or (form == "bf16" and framework != "sglang") else ["fp8_block"]
    wanted = {"kv_cache_dtype": FORMS[form], "gemm_type": gemms, "op_name": [table]}
    rows = source.rows(device, FOLDERS.get(kind, "sparse_attention"), table, framework, SHAPE, wanted)
    if not len(rows["latency"]):
        return rows
    keep = kept_rows(rows, kind, framework, phase, form, "fp4" in as_device(device).dense_peak)
    found = np.flatnonzero(keep)
    found = found[:: -(-len(found) // MOST)] if len(found) else found
    return {name: values[found] for name, values in rows.items()}


def kept_rows(rows, kind, framework, phase, form, fp4):
    """Which rows are fitted: those that are no prefill of one token, and not left out above."""
    heads, decode, total = rows["num_heads"], phase == "generation", rows["isl"] + rows["step"]
    keep = rows["step"] > 1 if decode and kind in ("dsa", "msa") else decode | (rows["isl"] > 1)
    if kind in ("dsa", "msa"):
        most = np.where(rows["model"] == V32, 128, 64)
        keep &= (heads >= 8) & (most % heads == 0)  # others are no rank of the model
        if framework == "sglang":
            keep &= rows["batch_size"] < NO_GRAPH[fp4] if decode else not_eager(rows, total, AT_TOP if kind == "dsa" else 0)
    if kind == "dsa" and not decode and framework == "vllm" and form == "fp8" and not fp4:
        keep &= heads >= FEW_HEADS
    if kind == "msa" and framework == "trtllm":
        keep &= heads >= FEW_HEADS
    if kind == "dsa" and decode and framework == "trtllm":
        keep &= rows["step"] != AT_TOP
    return keep


def not_eager(rows, total, least):
    """Which rows of SGLang's prefill take longer than the host does, and have at least so many tokens: with no more than are
    picked it expands the latents of DSA and sees all of them, which is no sparse attention."""
    few = (rows["batch_size"] * rows["isl"] <= 64) & (total > least)
    return (total > least) & (rows["latency"] > EAGER * np.median(rows["latency"][few]))


def works(kind, rows, decode, framework):
    """(indexer, attention, products [s]) as functions of rows to take, from the operations of the package's model."""
    load = {"batch": rows["batch_size"].astype(float), "new": rows["isl"].astype(float)}
    after = int(kind != "dsa" and decode)  # these tables count the tokens before the new one
    load["context"] = rows["step"] + (after if decode else rows["isl"])
    parts, products = [{}, {}], np.zeros(len(load["batch"]))
    groups = list(zip(rows["model"].tolist(), rows["num_heads"].tolist(), rows["gemm_type"].tolist(), strict=True))
    for group in sorted(set(groups)):
        of = np.array([one == group for one in groups])
        hidden, found = mixer(kind, group[0])
        run = AttentionRun(hidden, Plan(tp=found.num_heads // group[1]), *(load[n][of] for n in ("batch", "context", "new")))
        found.operations(run)
        clock = Clock(rows["card"], RECIPES[group[2]], engine=framework)
        # SGLang's rows take the latents of queries and keys as given
        given = ("q down", "kv down") if kind == "dsa" and framework == "sglang" else ()
        products[of] = sum(clock.gemm(gemm, clock.recipe).seconds for gemm in run.gemms if gemm.name not in given)
        timed = [work for work in run.work if work.kernel != "inside"]
        for part, work in zip(parts[2 - len(timed) :], timed, strict=True):
            for name in FIELDS:
                part.setdefault(name, np.zeros(len(of)))[of] = getattr(work, name)
    return (*(taken(part) for part in parts), products)


def taken(part):
    """A function from rows to take to a `Work` of them; None where there is no such work."""
    one = {name: values[0] for name, values in part.items() if np.ptp(values) == 0}
    many = {name: values for name, values in part.items() if name not in one}
    one |= {"flops": 0.0, "kv_heads": 1}
    return (lambda rows: Work(**one, **{name: values[rows] for name, values in many.items()})) if part else None


def columns(prefix, part, count):
    """Fields of a part's `Work` as columns, named after it; none where there is no such work."""
    if not part:
        return {}
    work = vars(part(slice(None)))
    return {f"{prefix} {name}": np.broadcast_to(work[name], count) for name in FIELDS}


def module_case(source, kind, device, framework, phase, form):
    """A module of one format; a third of the (sequences, tokens, cached tokens) is held out whole, over all heads and models."""
    if (kind, framework, phase) in HOST:
        return None
    rows = module_rows(source, kind, device, framework, phase, form)
    if len(rows["latency"]) < 30:
        return None
    decode = phase == "generation"
    card, operation = as_device(device), f"{kind}_{'decode' if decode else 'prefill'}"
    index, attend, products = works(kind, rows | {"card": device}, decode, framework)
    element, peak = (1.0, card.peak_flops("fp8")) if form == "fp8" else (2.0, card.peak_flops("bf16"))
    models = (sparse_kernels.index_decode_seconds, sparse_kernels.sparse_decode_seconds)
    if not decode:
        models = (sparse_kernels.index_prefill_seconds, sparse_kernels.sparse_prefill_seconds)

    def predict(c, rows=slice(None)):
        seconds = products[rows] + models[1](attend(rows), element, card, peak, c)
        return seconds + models[0](index(rows), card, c) if index else seconds

    bounds = (DECODE if decode else PREFILL)[kind]
    if (operation, framework) in UNTIL:
        bounds = bounds | {"until": (UNTIL[operation, framework],) * 3}
    if (operation, framework) in CLEANS:
        bounds = {name: one for name, one in bounds.items() if name not in ("row", "start")} | CLEANS[operation, framework]
    sizes = rows["batch_size"], rows["isl"], rows["step"]
    return Case(
        operation=operation,
        device=device,
        precision=form,
        framework=framework,
        version=versions_text(rows),
        seconds=rows["latency"] * 1e-3,
        predict=predict,
        bounds=bounds,
        held=third(*sizes),
        subsets={"all": np.ones(len(products), bool)},
        shape=columns("index", index, len(products)) | columns("attend", attend, len(products)),
        beside=products,
    )


def cases(source):
    """Every case, one after the other."""
    for kind in KINDS:
        for device in DEVICES:
            for framework in ENGINES:
                for phase in ("generation", "context"):
                    for form in ("fp8",) if kind in ("csa", "hca") else FORMS:
                        case = module_case(source, kind, device, framework, phase, form)
                        if case is not None:
                            yield case
