"""The long tables of the wheel that the book draws: attention, latent attention, MoE layers, collectives; and serving points.

Used by `extract_silicon.py`; each operation names its source table, framework, devices, the rows it takes and its columns.
"""

import csv
import hashlib
import io
import re
import sys
from pathlib import Path

import numpy as np
from silicon_source import DEVICES, SAMPLE, versions_text

CACHE_BITS = {"bfloat16": 16, "fp8": 8}
DRAWN = ("GB300", "B200", "H200", "H100_SXM", "A100_SXM")
ATTENTION = {"head_dim": 128, "window_size": 0, "kernel_source": ("fa3", "trtllm_mha", "flash_attention")}
R1_LAYER = {"hidden_size": 7168, "inter_size": 2048, "topk": 8, "num_experts": 256}
MLA = {"mla_dtype": "bfloat16"}
CUTLASS = {"kernel_source": ("deepgemm", "moe_torch_flow_cutlass"), "moe_dtype": ("fp8_block", "nvfp4")}
GRAPH = {"kernel_source": ("SGLang_CustomAllReduce_graph", "TRTLLM")}
ONE_SIDED = {"kernel_source": "NVLinkOneSided", "op_name": ("alltoall_dispatch", "alltoall_combine")}
BLACKWELL = ("GB300", "GB200", "B200")


def context(rows):
    """Tokens in the cache when the new one is scored [token]."""
    return rows["step"] + 1


def cache_bits(rows):
    """Bits of one cached element [bit]."""
    return np.array([CACHE_BITS[x] for x in rows["kv_cache_dtype"]])


def payload(rows):
    """Bytes each rank contributes [byte]; the tables count two-byte elements."""
    return rows["message_size"] * 2


def library(rows):
    """Who wrote the collective: NCCL or the framework's own all-reduce."""
    name = rows["kernel_source"][0]
    return np.full(len(rows["latency"]), "sglang" if "SGLang" in name else name.lower())


def operation(rows):
    """Name of the collective, hyphenated."""
    return np.char.replace(np.char.replace(rows["op_name"], "alltoall", "all_to_all"), "_", "-")


CACHED = {"batch": "batch_size", "context": "isl", "heads": "num_heads"}
ATTENTION_COLUMNS = CACHED | {"kv_heads": "num_key_value_heads", "cache_bits": cache_bits}
MLA_COLUMNS = CACHED | {"cache_bits": cache_bits, "run": None}
MOE_COLUMNS = {
    "tokens": "num_tokens",
    "tp": "moe_tp_size",
    "ep": "moe_ep_size",
    "precision": "moe_dtype",
    "routing": "distribution",
}
FUSED = {
    "kernel_source": ("sglang_fused_moe_triton", "sglang_flashinfer_trtllm_moe"),
    "moe_ep_size": 1,
    "distribution": "balanced",
}
FUSED |= {"moe_dtype": ("fp8_block", "nvfp4")}
FUSED_COLUMNS = {"tokens": "num_tokens", "tp": "moe_tp_size", "precision": "moe_dtype", "run": None}
COLLECTIVE_COLUMNS = {"library": library, "operation": operation, "ranks": "num_gpus", "bytes": payload}
ALL_TO_ALL_COLUMNS = {"operation": operation, "ep": "moe_ep_size", "tokens": "num_tokens", "precision": "moe_dtype"}
HOPPER = ("H200", "H100_SXM")
NVLINKED, LATENT = (*BLACKWELL, *HOPPER), ("GB300", "B200", *HOPPER)
DECODE = {"context": context}  # prefill sees as many tokens as it reads, decode one more than the cache held

# operation: (family, table, framework, devices, filter, {column: source column or function})
TABLES = {
    "attention_decode": ("attention", "generation_attention", "sglang", DRAWN, ATTENTION, ATTENTION_COLUMNS | DECODE),
    "attention_prefill": ("attention", "context_attention", "sglang", DRAWN, ATTENTION, ATTENTION_COLUMNS),
    "mla_decode": ("mla", "generation_mla", "sglang", LATENT, MLA, MLA_COLUMNS | DECODE),
    "mla_decode_trtllm": ("mla", "generation_mla", "trtllm", HOPPER, MLA | {"kv_cache_dtype": "fp8"}, MLA_COLUMNS | DECODE),
    "mla_prefill": ("mla", "context_mla", "sglang", LATENT, MLA, MLA_COLUMNS),
    "moe": ("moe", "moe", "trtllm", NVLINKED, R1_LAYER | CUTLASS, MOE_COLUMNS),
    "moe_fused": ("moe", "moe", "sglang", NVLINKED, R1_LAYER | FUSED, FUSED_COLUMNS),
    "nccl": ("comm", "nccl", "nccl", NVLINKED, {"nccl_dtype": "half"}, COLLECTIVE_COLUMNS),
    "all_reduce": ("comm", "custom_allreduce", "sglang", NVLINKED, GRAPH, COLLECTIVE_COLUMNS),
    "all_reduce_trtllm": ("comm", "custom_allreduce", "trtllm", NVLINKED, GRAPH, COLLECTIVE_COLUMNS),
    "all_to_all": ("comm", "trtllm_alltoall", "trtllm", ("GB200",), ONE_SIDED, ALL_TO_ALL_COLUMNS),
}
# what names a shape in the tables of a family: its rows come from one version
SHAPES = {
    "attention": ("kv_cache_dtype", "num_heads", "num_key_value_heads"),
    "mla": ("kv_cache_dtype", "num_heads"),
    "moe": ("moe_dtype",),
    "comm": ("nccl_dtype", "op_name", "num_gpus"),
}
AS_CSV = {"nccl": "collectives", "all_reduce": "collectives", "all_reduce_trtllm": "collectives", "all_to_all": "all_to_all"}
TABLE_COLUMNS = ("operation", "device", "framework", "version", "gpu", "rows", "file", "sha256", "source")


def runs(shapes):
    """How often each shape was met before."""
    seen, out = {}, []
    for shape in shapes:
        seen[shape] = seen.get(shape, -1) + 1
        out.append(seen[shape])
    return np.array(out)


def tidy(rows, spec):
    """Columns of the book from the columns of the source, seconds last, sorted by the columns in turn."""
    out = {name: how(rows) if callable(how) else rows[how] for name, how in spec.items() if how}
    if "run" in spec:  # some tables were taken twice: 0 for the first time of a shape, 1 for the second
        out["run"] = runs(zip(*(v.tolist() for v in out.values()), strict=True))
    out = {name: v.astype(np.int64) if v.dtype.kind in "iuf" else v for name, v in out.items()}
    order = np.lexsort(tuple(out.values())[::-1])
    shapes = set(zip(*(v.tolist() for v in out.values()), strict=True))
    if len(shapes) != len(order):
        raise ValueError(f"two rows for one shape in {tuple(spec)}: pick one version or kernel, never a mean")
    return {name: v[order] for name, v in out.items()} | {"seconds": (rows["latency"] * 1e-3).astype(np.float32)[order]}


def packed(table):
    """A long table as the bytes of a compressed npz; whole numbers take the smallest type that holds them."""
    buffer = io.BytesIO()
    small = {k: v.astype(np.min_scalar_type(v.max())) if v.dtype.kind == "i" else v for k, v in table.items()}
    np.savez_compressed(buffer, **small)
    return buffer.getvalue()


def csv_bytes(header, rows):
    """A CSV file as bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([header, *rows])
    return text.getvalue().encode()


# Where a table does not time what engines run: operation, devices, and the rows that are left out. SGLang 0.5.14 turns the whole
# pool of an FP8 cache into BF16 before each latent attention on Hopper, so those times follow the size of the pool, not the
# shape (github.com/sgl-project/sglang/issues/35291, read 2026-12-01); vLLM and TensorRT-LLM run an FP8 kernel there.
LEFT_OUT = {("mla_decode", device): {"kv_cache_dtype": "fp8"} for device in HOPPER}


def measured(source, name, spec, device):
    """(versions, paths, gpu, table) of one operation on one device."""
    family, table, framework, _, wanted, names = spec
    rows = source.rows(device, family, table, framework, SHAPES[family], wanted)
    for column, value in LEFT_OUT.get((name, device), {}).items():
        rows = {key: values[rows[column] != value] for key, values in rows.items()}
    if not len(rows["latency"]):
        raise ValueError(f"no rows of {table} for {device}")
    path, gpu = ("; ".join(sorted(set(rows[column].tolist()))) for column in ("path", "device"))
    return versions_text(rows), path, gpu, tidy(rows, names)


def extract_tables(source, out):
    """Write every long table; returns the rows of `tables.csv`."""
    manifest, gathered = [], {}
    for name, spec in TABLES.items():
        for device in spec[3]:
            version, path, gpu, data = measured(source, name, spec, device)
            entry = [name, device, spec[2], version, gpu, len(data["seconds"])]
            if name in AS_CSV:
                stem, rows = AS_CSV[name], zip(*(v.tolist() for v in data.values()), strict=True)
                lines = ([device, *(f"{x:.6g}" if isinstance(x, float) else x for x in row)] for row in rows)
                gathered.setdefault(stem, [["device", *data]]).extend(lines)
                manifest.append([*entry, f"{stem}.csv", "", path])
            else:
                file, content = f"{name}_{device}.npz", packed(data)
                (out / file).write_bytes(content)
                manifest.append([*entry, file, hashlib.sha256(content).hexdigest(), path])
            print(f"{name} {device}: {entry[-1]} rows of {spec[2]} {version}", file=sys.stderr)
    for stem, lines in gathered.items():
        write_csv(out, f"{stem}.csv", lines[0], lines[1:], manifest)
    return manifest


VERSIONS = ("0.5.14", "0.5.6.post2")
VERSIONS_M = (1, 4, 8, 16, 32, 64, 128, 256, 1024, 8192)


def extract_versions(source, out):
    """Write the GEMMs of two plain layers on H100 in BF16 in both versions of SGLang; returns their rows of `tables.csv`.

    Chapter 3 shows with them how a measurement can mislead: in the older version the weights stayed in the L2 cache.
    """
    shapes = {(n * h, k * h) for h in (2048, 4096) for n, k in ((3, 1), (1, 1), (4, 1), (1, 4))}
    lines, manifest = [], []
    for version, path in source.versions("H100_SXM", "gemm", "gemm", "sglang").items():
        if version not in VERSIONS:
            continue
        table = source.table(path)
        keep = (table["gemm_dtype"] == "bfloat16") & np.isin(table["m"], VERSIONS_M)
        rows = {name: values[keep] for name, values in table.items()}
        found = sorted(zip(*(rows[name].tolist() for name in ("m", "n", "k", "latency")), strict=True))
        taken = [["H100_SXM", "sglang", "bf16", version, m, n, k, f"{t * 1e-3:.6g}"] for m, n, k, t in found if (n, k) in shapes]
        lines += taken
        gpu = str(rows["device"][0])
        manifest.append(["gemm_versions", "H100_SXM", "sglang", version, gpu, len(taken), "gemm_versions.csv", "", path])
    write_csv(
        out, "gemm_versions.csv", ("device", "framework", "precision", "version", "m", "n", "k", "seconds"), lines, manifest
    )
    return manifest


def write_csv(out, file, header, lines, manifest):
    """Write a CSV file and put its checksum into the manifest."""
    content = csv_bytes(header, lines)
    (out / file).write_bytes(content)
    for entry in manifest:
        if entry[6] == file:
            entry[7] = hashlib.sha256(content).hexdigest()


SERVED = {
    "deepseek-ai/DeepSeek-R1": "deepseek-r1",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-r1",
    "deepseek-ai/DeepSeek-V3": "deepseek-r1",  # the rows are called dsr1 and repeat times of R1 to the last digit
    "meta-llama/Llama-3.1-70B": "llama-3.1-70b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "Qwen/Qwen3-32B": "qwen3-32b",
    "nvidia/Qwen3-32B-NVFP4": "qwen3-32b",
    "MiniMaxAI/MiniMax-M2.5": "minimax-m2.5",
    "moonshotai/Kimi-K2.5": "kimi-k2.5",
}
# Models that judge: their points are read once, by `blind.py`, after all else is fixed.
BLIND = {"Qwen/Qwen3.5-397B-A17B": "qwen3.5-397b-a17b", "zhipuai/GLM-5": "glm-5"}
DENSE = ("llama-3.1-70b", "llama-3.1-8b", "qwen3-32b")
OPTIONS = Path(__file__).parents[1] / "hwdesign" / "timing" / "data" / "served_options.csv"
WIDE = ("attention", "mamba", "ffn", "shared experts")  # parts that a checkpoint may leave in BF16
MULTIPLIED = ("2026-04-06.csv", "db-dump/")  # collections that multiply ways wherever ep > 1
# Scripts that split the experts otherwise than the columns say: what the row must be, and its ways of expert parallelism as a
# share of its GPUs ("all" or "none"). Sources: `plan` in served_options.csv.
R1_FP8 = {"model": "deepseek-r1", "framework": "trtllm", "precision": "fp8", "version": ""}
EXPERT_WAYS = (
    ("none", {"model": "kimi-k2.5", "device": "B200", "version": "0.17.0", "precision": "nvfp4"}),
    ("all", {"model": "minimax-m2.5", "device": "H200", "version": "0.18.0"}),
    ("all", {"model": "minimax-m2.5", "device": "B200", "version": "0.17.0"}),
    ("all", {"model": "deepseek-r1", "framework": "sglang", "precision": "nvfp4", "version": ""}),
    ("all", R1_FP8),
    ("all", {"model": "gpt-oss-120b", "framework": "trtllm", "device": "H200"}),
)
# Requests in flight above which a script of 2025-11-02 splits the experts of R1 in NVFP4 by expert, by GPUs and lengths.
R1_NVFP4 = {"model": "deepseek-r1", "framework": "trtllm", "precision": "nvfp4", "version": ""}
R1_NVFP4_EXPERTS = {4: 32, (1024, 1024): 8, (1024, 8192): 16, (8192, 1024): 32}
# Requests in flight above which attention is data parallel, by lengths (None: any other).
ATTENTION_DATA = (
    (R1_NVFP4, {(8192, 1024): 32, None: 255}),
    (R1_FP8 | {"device": "H200"}, {(8192, 1024): 32, None: 64}),
    (R1_FP8 | {"device": "B200"}, {(1024, 1024): 32, None: 64}),
)
SYSTEMS = {folder: device for device, folder in DEVICES.items()}
SERVED_WHAT = ("model", "device", "framework", "version", "precision", "moe_precision")
SERVED_HOW = ("input_tokens", "output_tokens", "concurrency", "tp", "dp", "moe_tp", "moe_ep")
SERVING_COLUMNS = (*SERVED_WHAT, *SERVED_HOW, "cache", "wide", "ttft", "tpot", "taken_on", "speculative")
DUMP = "db-dump/"  # how the source of a row starts that repeats only runs without multi-token prediction (MTP)
# Rows served with MTP, unless the dump repeats them. Source: SemiAnalysisAI/InferenceX, history of
# .github/configs/nvidia-master.yaml, read 2026-11-30: a row carries the image of its recipe and the day on which the recipe last
# changed, and lies in its list of plans and concurrencies. Pull requests 392 (MTP recipes, 2026-01-14), 642, 1488, 1489 and
# 1487 (which image is whose). SGLang: two recipes of one image and day (12ba0ae, 2026-03-25); 24 rows are the points of the one
# with MTP, 13 of them in its list alone; the dump repeats the other recipe's value at each of the 11 shared points. In every
# pair of recipes, also the disaggregated, the dump holds the one without MTP. Unknown: rows of R1 whose recipe is not
# published; one of 2026-01-28 that lies in both lists, at the speed of the plain one; the disaggregated of 2025-12-19.
SPECULATIVE = (
    ("mtp", {"framework": "trtllm", "version": "1.2.0rc6.post3"}),
    ("mtp", {"framework": "trtllm", "version": "1.1.0rc2.post2", "taken_on": "2026-01-14"}),
    ("mtp", {"framework": "trtllm", "version": "1.1.0rc2.post2", "taken_on": "2026-01-28", "dp": 8}),
    ("unknown", {"framework": "trtllm", "version": "1.1.0rc2.post2", "taken_on": "2026-01-28", "model": "deepseek-r1"}),
    ("mtp", {"framework": "sglang", "version": "0.5.9", "device": "B200", "precision": "fp8", "tp": 8}),
    ("unknown", {"model": "deepseek-r1", "framework": "trtllm", "version": "1.3.0rc1"}),
    # Qwen3.5: the recipe of 2026-03-20 with MTP is the only one of this image on four GPUs without expert parallelism
    ("mtp", {"model": "qwen3.5-397b-a17b", "device": "B200", "precision": "fp8", "version": "0.5.9", "tp": 4, "moe_ep": 1}),
)
DISAGGREGATED = ("GB200", "GB300", "B300")  # for R1 and Llama; only the dump says how many workers there were, and not on B300
WORKER = {"workers": "num_workers", "tp": "tp_size", "dp": "attention_dp_size", "moe_tp": "moe_tp_size", "moe_ep": "moe_ep_size"}
PREFILL_COLUMNS, DECODE_COLUMNS = (
    tuple(f"{phase}_{x}" for x in ("workers", "gpus", *list(WORKER)[1:])) for phase in ("prefill", "decode")
)
DISAGGREGATED_COLUMNS = (
    *SERVED_WHAT[:5], *SERVED_HOW[:3], *PREFILL_COLUMNS[:2], *DECODE_COLUMNS, "speculative", "ttft", "tpot", "taken_on"
)  # fmt: skip


def serving_point(row):
    """What the columns and the source of a row say about itself: model, device, engine, formats, load and times [s]."""
    text = row["silicon_data_source"]
    concurrency, taken = (re.search(rf"{name}=([0-9-]{{1,10}})", text) for name in ("silicon_concurrency", "measured"))
    what = [(SERVED | BLIND)[row["model_path"]], SYSTEMS[row["system"]], row["backend"], row["backend_version"]]
    what += [row[name] or "bf16" for name in ("gemm_quant_mode", "moe_quant_mode")]
    seconds = [f"{float(row[name]) * 1e-3:.6g}" for name in ("silicon_ttft_ms", "silicon_tpot_ms")]
    load = {"input_tokens": row["isl"], "output_tokens": row["osl"], "concurrency": concurrency[1] if concurrency else ""}
    return (
        dict(zip(SERVED_WHAT, what, strict=True))
        | load
        | {"ttft": seconds[0], "tpot": seconds[1], "taken_on": taken[1] if taken else ""}
    )


def speculative(point, dumped, source):
    """Label of a serving point: "mtp", "unknown", or "" for one token a step; `dumped`: the times that the dump repeats."""
    if "wip=True" in source:  # of a branch that nobody published
        return "unknown"
    if point["tpot"] not in dumped:
        for label, wanted in SPECULATIVE:
            if fits(point, wanted):
                return label
    return ""


def fits(point, wanted):
    """Whether a point has these values."""
    return all(point[name] == value for name, value in wanted.items())


def real_ways(row, point):
    """(tp, dp, moe_tp, moe_ep) of a server: the columns, put right where its collection multiplied them or its script chose.

    Where experts are spread, the collections in `MULTIPLIED` write the ways of SGLang and TensorRT-LLM as products (tp 16 with
    moe_tp 4 and ep 4 is TP4 EP4 on four GPUs) and those of vLLM as if its expert parallelism came with attention DP (tp 2, dp 2,
    ep 4 is TP2 EP2 on two).
    """
    tp, dp = (int(row[name] or 1) for name in ("tp_size", "attention_dp_size"))
    moe_tp, moe_ep = (int(row[name] or 1) for name in ("moe_tp_size", "moe_ep_size"))
    if moe_ep > 1 and any(name in row["silicon_data_source"] for name in MULTIPLIED):
        if row["backend"] == "vllm":
            moe_ep, gpus, dp = moe_ep // dp, tp, 1
        else:
            gpus = moe_tp
            tp, dp = (1, gpus) if dp > 1 else (gpus, 1)
        moe_tp = gpus // moe_ep
    gpus, flight = tp * dp, int(point["concurrency"] or 0)
    lengths = int(point["input_tokens"]), int(point["output_tokens"])
    for which, wanted in EXPERT_WAYS:
        if fits(point, wanted):
            moe_tp, moe_ep = (1, gpus) if which == "all" else (gpus, 1)
    if fits(point, R1_NVFP4) and flight > R1_NVFP4_EXPERTS.get(4 if gpus == 4 else lengths, np.inf):
        moe_tp, moe_ep = 1, gpus
    for wanted, limits in ATTENTION_DATA:
        if fits(point, wanted) and flight > limits.get(lengths, limits[None]):
            tp, dp = 1, gpus
    if attention_data_minimax(point, lengths, flight) and gpus == 2 and moe_ep == 2:
        tp, dp = 1, 2
    return tp, dp, moe_tp, moe_ep


def attention_data_minimax(point, lengths, flight):
    """Whether a server of MiniMax-M2.5 in NVFP4 ran data-parallel attention: in two recipes, on two GPUs."""
    if (point["model"], point["precision"]) != ("minimax-m2.5", "nvfp4"):
        return False
    recipe = point["device"], point["taken_on"]
    short, long = lengths == (1024, 1024) and flight >= 256, lengths == (8192, 1024) and flight >= 512
    return recipe == ("B200", "2026-04-22") and short or recipe == ("B300", "2026-04-21") and (short or long)


def read_options():
    """Rows of served_options.csv."""
    with open(OPTIONS, newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def named_version(version, text):
    """Whether a text of versions names one, perhaps by its beginning."""
    if not version:
        return "none named" in text
    return any(version.startswith(word) or word.startswith(version) for word in re.split(r"[ ,]+", text) if word)


def options(point, known):
    """Cache and parts left in BF16 of a point, from `read_options`; "" where nobody told."""
    precision = point["precision"].removesuffix("_wo")
    rows = [
        row
        for row in known
        if all(point[name] in row[name].split() for name in ("model", "device", "framework"))
        and precision in row["precision"].split()
    ]
    exact = [row for row in rows if named_version(point["version"], row["version"])] or rows
    found = {(row["cache"], row["wide"]) for row in exact}
    if len(found) > 1:
        what = {name: point[name] for name in SERVED_WHAT}
        raise ValueError(f"two options fit {what}: {found}")
    cache, wide = found.pop() if found else ("", "")
    named = [part.strip() for part in re.sub(r"\(.*?\)", "", wide).split(",")]
    own = [part for part in WIDE if part in named]
    if "output projection is NVFP4" in wide:
        own = ["attention but its output"]
    return {"cache": cache if cache in ("bf16", "fp8") else "", "wide": "; ".join(own)}


def serving_row(row, known):
    """One aggregated serving point by name, or None where its plan cannot be read."""
    point = serving_point(row)
    if not point["concurrency"] or int(row["pp_size"] or 1) > 1 or "0" in (row["tp_size"], row["attention_dp_size"]):
        return None
    asked = int(row["batch_size"] or 0) * int(row["attention_dp_size"] or 1)
    if asked and asked != int(point["concurrency"]):  # of several servers behind one address
        return None
    tp, dp, moe_tp, moe_ep = real_ways(row, point)
    sparse = point["model"] not in DENSE
    if tp * dp > 8 or (sparse and tp * dp != moe_tp * moe_ep):
        return None
    ways = {"moe_tp": moe_tp, "moe_ep": moe_ep} if sparse else {"moe_tp": "", "moe_ep": ""}
    return point | {"tp": tp, "dp": dp} | ways | options(point, known)


def disaggregated_row(row):
    """One point with separate prefill and decode workers by name, or None where nobody says how many there were.

    In the source `attention_dp_size` counts GPUs: the ways of a worker multiply to its GPUs, and those of its experts as well.
    """
    point = serving_point(row)
    for phase in ("prefill", "decode"):
        if not row[f"{phase}_num_workers"]:
            return None
        ways = {name: int(row[f"{phase}_{column}"]) for name, column in WORKER.items()}
        if ways["tp"] * ways["dp"] != ways["moe_tp"] * ways["moe_ep"]:
            return None
        point |= {f"{phase}_{name}": value for name, value in (ways | {"gpus": ways["tp"] * ways["dp"]}).items()}
    return point | {"speculative": "unknown" if (row["backend"], point["taken_on"]) == ("trtllm", "2025-12-19") else ""}


def serving_rows(archive, models=SERVED):
    """Rows of the serving sample of these models, and the times [s] that the dump repeats."""
    rows = [
        row for row in csv.DictReader(io.TextIOWrapper(archive.open(SAMPLE), encoding="utf-8")) if row["model_path"] in models
    ]
    return rows, {serving_point(row)["tpot"] for row in rows if row["silicon_data_source"].startswith(DUMP)}


def serving_points(archive, models=SERVED):
    """The aggregated serving points of these models by name."""
    rows, dumped = serving_rows(archive, models)
    known = read_options()
    return [
        point | {"speculative": speculative(point, dumped, row["silicon_data_source"])}
        for row in rows
        if row["mode"] == "agg" and (point := serving_row(row, known))
    ]


def write_serving(out, name, columns, points):
    """Write serving points, each once; returns their row of `tables.csv`."""
    lines = sorted(
        {tuple(point[column] for column in columns) for point in points}, key=lambda line: [str(x).zfill(9) for x in line]
    )
    entry = [name, "", "", "", "", len(lines), f"{name}.csv", "", SAMPLE]
    write_csv(out, f"{name}.csv", columns, lines, [entry])
    print(f"{name}: {len(lines)} points", file=sys.stderr)
    return entry


def extract_serving(archive, out):
    """Write the serving points of models whose config ships, aggregated and not; returns their rows of `tables.csv`."""
    rows, _ = serving_rows(archive)
    points = serving_points(archive)
    apart = [
        row
        for row in rows
        if row["mode"] == "disagg"
        and row["model_path"].startswith(("deepseek", "meta"))
        and SYSTEMS[row["system"]] in DISAGGREGATED
    ]
    return (
        write_serving(out, "serving", SERVING_COLUMNS, points),
        write_serving(out, "serving_disaggregated", DISAGGREGATED_COLUMNS, [p for row in apart if (p := disaggregated_row(row))]),
    )
