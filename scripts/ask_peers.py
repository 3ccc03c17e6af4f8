"""Asks two public planners for the time per output token at every point of a list.

    python scripts/exam_points.py POINTS.csv
    python -m venv A && A/bin/pip install aiconfigurator==0.12.0
    python -m venv B && B/bin/pip install --pre aisimulate==0.13.0.dev202610270000000085
    A/bin/python scripts/ask_peers.py POINTS.csv hwdesign/timing/data/peers.csv --tool aiconfigurator
    B/bin/python scripts/ask_peers.py POINTS.csv hwdesign/timing/data/peers.csv --tool aisimulate

Each tool lives in an environment of its own and is never a dependency; this file needs nothing else, and the list holds no
published time. The answers that ship were asked on 2026-12-01, those of static FP8 again on that day
(`--products fp8_static`).

The same question for every point, by the tool's documented call for one deployment (`cli_estimate`; in aisimulate its
compatibility interface):

- mode "agg": one server prefills and decodes, and the tool mixes the two into its time per output token by its own model;
- measured tables only (database mode SILICON, the default), the newest version that it has for device and engine;
- batch: the sequences in flight of one rank, which is the concurrency over the ways of data parallelism;
- the mean lengths of prompts and answers, and the cache format, of the list;
- formats of the products as the point says. FP8 of a model with experts is in blocks of 128 x 128, as in its checkpoint. Where
  the checkpoint leaves the attention in BF16 (`wide`), or has only the experts in INT4 or MXFP4, everything outside of the
  experts is asked in BF16: the tools know two formats, that of the experts and that of the rest. gpt-oss has MXFP4 experts,
  with MXFP8 activations on Blackwell in TensorRT-LLM;
- FP8 per tensor as the checkpoint that was served has it. Both tools have two modes: `fp8` makes the scales of the activations
  in each step and pays for it, `fp8_static` finds them in the checkpoint. Their own code (`_infer_quant_modes_from_raw_config`)
  takes `fp8_static` for every FP8 checkpoint that is not in blocks and does not say that its activations are dynamic, whatever
  the engine, and both have its tables for all three engines on H100, H200 and B200. So what `STATIC` names is asked as
  `fp8_static`, by its checkpoint in `served_options.csv`, not by which answer is nearer. Nobody tells which checkpoint of
  Qwen3-32B TensorRT-LLM ran; the tools' own one in FP8 that is not in blocks is static. The sample's column says `fp8` for all,
  also where it names a static checkpoint. Asked as `fp8`, which they first were, these points take 2 to 51 % longer, 11 % in the
  median. Of what else the tools take from such a checkpoint only attention in the prefill differs (FP8 in TensorRT-LLM): by at
  most 0.6 % at nine points tried.

Where a tool answers nothing (a shape that is not in its tables, a model that by its count does not fit), its own words stand
in the column beside.
"""

import argparse
import csv
import functools
import importlib
import importlib.metadata
import logging
import re
import sys
from pathlib import Path

TOOLS = {  # version, package of the call
    "aiconfigurator": ("0.12.0", "aiconfigurator.cli.api"),
    "aisimulate": ("0.13.0.dev202610270000000085", "aisimulate.legacy_cli.api"),
}
KEY = (
    "model", "device", "framework", "precision", "moe_precision", "tp", "dp", "moe_tp", "moe_ep", "cache", "wide",
    "concurrency", "input_tokens", "output_tokens",
)  # fmt: skip
ANSWERS = tuple(column for tool in TOOLS for column in (tool, f"{tool}_refusal"))
SYSTEMS = {
    "A100_SXM": "a100_sxm",
    "H100_SXM": "h100_sxm",
    "H200": "h200_sxm",
    "B200": "b200_sxm",
    "B300": "b300_sxm",
    "GB200": "gb200",
    "GB300": "gb300",
}
MODELS = {
    "deepseek-r1": "deepseek-ai/DeepSeek-R1",
    "glm-5": "zai-org/GLM-5",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "kimi-k2.5": "moonshotai/Kimi-K2.5",
    "llama-3.1-70b": "meta-llama/Meta-Llama-3.1-70B",
    "llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B",
    "minimax-m2.5": "MiniMaxAI/MiniMax-M2.5",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "qwen3.5-397b-a17b": "Qwen/Qwen3.5-397B-A17B",
}
FORMATS = {"bf16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "int4_wo": "int4_wo"}
CACHES = {"bf16": "bfloat16", "fp8": "fp8"}
STATIC = {  # model and engine whose FP8 checkpoint holds the scales of the activations
    ("llama-3.1-70b", "trtllm"): "nvidia/Llama-3.3-70B-Instruct-FP8",
    ("llama-3.1-70b", "vllm"): "nvidia/Llama-3.3-70B-Instruct-FP8",
    ("llama-3.1-8b", "vllm"): "nvidia/Llama-3.1-8B-Instruct-FP8",
    ("qwen3-32b", "trtllm"): "Qwen/Qwen3-32B-FP8-Static-PerTensor",
}
BLACKWELL = ("B200", "B300", "GB200", "GB300")


def quantization(point):
    """Formats of the matrices outside of the experts and of the experts (None: has none), by the tools' names."""
    if point["model"].startswith("gpt-oss"):
        eight = point["framework"] == "trtllm" and point["device"] in BLACKWELL
        return "bfloat16", "w4a8_mxfp4_mxfp8" if eight else "w4a16_mxfp4"
    weights = FORMATS[point["precision"]]
    if not point["moe_tp"]:
        static = weights == "fp8" and (point["model"], point["framework"]) in STATIC
        return "fp8_static" if static else weights, None
    weights = "fp8_block" if weights == "fp8" else weights
    attention_wide = "attention" in point["wide"].split("; ")
    return "bfloat16" if attention_wide or weights == "int4_wo" else weights, weights


def question(point):
    """Arguments of the call for a point, but for the version of the tables."""
    gemm, experts = quantization(point)
    ways = {name: int(point[name]) for name in ("tp", "dp", "moe_tp", "moe_ep") if point[name]}
    return {
        "model_path": MODELS[point["model"]],
        "system_name": SYSTEMS[point["device"]],
        "mode": "agg",
        "backend_name": point["framework"],
        "isl": int(point["mean_input_tokens"]),
        "osl": int(point["mean_output_tokens"]),
        "batch_size": max(1, int(point["concurrency"]) // ways["dp"]),
        "tp_size": ways["tp"],
        "attention_dp_size": ways["dp"],
        "moe_tp_size": ways.get("moe_tp"),
        "moe_ep_size": ways.get("moe_ep"),
        "gemm_quant_mode": gemm,
        "moe_quant_mode": experts,
        "kvcache_quant_mode": CACHES[point["asked_cache"]],
    }


def refusal(error):
    """What a tool says where it does not answer: its first sentence, without the device or the row looked for."""
    words = re.sub(r"\s+", " ", str(error)).removeprefix("perf database error: ")
    return f"{type(error).__name__}: {re.split(r' {| on system |[.] ', words)[0][:160]}"


def asker(tool):
    """The function that gives (seconds, refusal) of a point, one of them empty."""
    version, package = TOOLS[tool]
    found = importlib.metadata.version(tool)
    if found != version:
        raise SystemExit(f"{tool} must be {version}, the version of the stored answers, got {found}")
    interface, database = importlib.import_module(package), importlib.import_module(f"{tool}.sdk.perf_database")

    @functools.cache
    def newest(system, framework):
        found = database.get_latest_database_version(system=system, backend=framework)
        print(f"{tool}: tables of {framework} on {system}: {found}", file=sys.stderr)
        return found

    def ask(point):
        asked = question(point)
        try:
            tables = newest(asked["system_name"], asked["backend_name"])
            answer = interface.cli_estimate(**asked, backend_version=tables)
        except Exception as error:  # whatever it raises, the point stays without an answer
            return "", refusal(error)
        return f"{float(answer.tpot) * 1e-3:.5g}", ""

    return ask


def table(path):
    """Rows of a CSV file."""
    with open(path, newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def named(row):
    """What names a point, as one tuple."""
    return tuple(row[name] for name in KEY)


def main(points, answers, tool, products):
    before = {named(row): row for row in table(answers)} if Path(answers).exists() else {}
    ask, rows = asker(tool), []
    logging.disable(logging.WARNING)
    for point in table(points):
        kept = before.get(named(point), {})
        again = products in (None, quantization(point)[0])
        seconds, reason = ask(point) if again else (kept[tool], kept[f"{tool}_refusal"])
        row = {name: kept.get(name, "") for name in ANSWERS} | {tool: seconds, f"{tool}_refusal": reason}
        rows.append({name: point[name] for name in KEY} | row)
    with open(answers, "w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, (*KEY, *ANSWERS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{tool}: {sum(bool(row[tool]) for row in rows)} of {len(rows)} points answered", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", help="list of points, as exam_points.py writes it")
    parser.add_argument("answers", help="CSV file whose columns of the tool are written; the other tool's stay")
    parser.add_argument("--tool", choices=TOOLS, required=True)
    parser.add_argument("--products", help="ask only what is asked in this format outside of the experts; the rest stays")
    main(**vars(parser.parse_args()))
