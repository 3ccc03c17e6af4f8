"""Draws settings of shapes that nobody has built and asks a public planner for the time per output token of each.

    python scripts/unbuilt_shapes.py list tests/data/unbuilt_shapes.csv
    python -m venv B && B/bin/pip install --pre aisimulate==0.13.0.dev202610270000000085
    B/bin/python scripts/unbuilt_shapes.py ask tests/data/unbuilt_shapes.csv
    B/bin/python scripts/unbuilt_shapes.py again tests/data/unbuilt_shapes.csv

`list` needs the package and writes no time. Each row is a draw of one seeded sequence (`draw`, its number) whose shape has 3 to
400 billion parameters and which fits on its GPUs by the package's own count; the first `LISTED` of them were committed before
anything was asked. Sizes lie on grids that kernels like, and their ratios inside what trained models have
(`hwdesign/models/configs`).

`ask` needs the planner alone, in an environment of its own. It goes down the list until `WANTED` rows are answered and drops
the rest. The answers that ship are those of aisimulate 0.13.0.dev202610270000000085 of 2026-12-01. The question is that of
`ask_peers.py` (`cli_estimate`, mode "agg", newest tables of device and engine), but in database mode HYBRID: measured rows where
there are any, else the planner's own extrapolation, since its default mode refuses experts whose shape is not in its tables. The
shape is given as a folder with a config.json, the formats of products and cache by name. Beside the time per output token stand
the planner's step without prompts (`step`; empty where prompts are in all of its steps), by what it is spent on, and the share
of that step which does not come from measured rows alone (`extrapolated`). Where it answers nothing, its own words stand in
`refusal`. All of the first hundred rows were answered.

`again` was written after the answers had been compared, to see why some differ, and changes none of them. It asks two kinds of
rows without what the planner charges and this package does not, and stores the time in `plain`: experts under Mixtral's name,
which has no norms of queries and keys, and dense FP8 in TensorRT-LLM with scales of the inputs that the checkpoint holds
(`fp8_static`) instead of scales made in each step (`fp8`).
"""

import argparse
import csv
import importlib.metadata
import json
import logging
import math
import random
import sys
import tempfile
from pathlib import Path

from ask_peers import CACHES, FORMATS, SYSTEMS, TOOLS, refusal

SEED = 20261201
LISTED, WANTED = 200, 100
SHAPE = ("kind", "hidden_size", "layers", "heads", "kv_heads", "width", "experts", "top_k")
SETTING = ("device", "engine", "recipe", "tp", "moe_tp", "moe_ep", "users", "prompt", "answer")
COLUMNS = ("draw", *SHAPE, *SETTING, "cache")
PARTS = ("gemms", "attention", "moe", "exchanges", "other")  # of the planner's decode step [s]
ANSWER = ("seconds", "step", *PARTS, "extrapolated", "tables", "refusal", "plain")
DEVICES = (("H200",), ("B200",), ("GB300", "B300"))
ENGINES = ("vllm", "sglang", "trtllm")
USERS = (4, 8, 16, 32, 64, 128, 256)
LOADS = ((1024, 1024), (8192, 1024), (1024, 8192), (4096, 1024), (2048, 512), (1024, 256))  # lengths of the exam [token]
HEAD = 128
GROUPS = range(4, 17)  # query heads of a key-value head
# Least and most of trained models: hidden size to layers, width of all heads to hidden size, and the width of the
# feed-forward part, or of one expert, to the hidden size.
DENSE = {"hidden": (2048, 16384), "aspect": (75, 140), "heads": (0.75, 1.6), "width": (2.67, 6.4)}
MOE = {"hidden": (2048, 7168), "aspect": (43, 118), "heads": (1, 3), "width": (0.25, 0.75)}
ACTIVE = (2, 4.2)  # width of all experts of a token to the hidden size
SPARSITY = (8, 52)  # experts to those of a token
LAYERS = (24, 128)
PARAMETERS = (3e9, 400e9)
VOCABULARY = {"dense": 128256, "moe": 151936}


def pick(rng, options):
    """One of the options; None of none."""
    return options[int(rng.random() * len(options))] if options else None


def within(least, most, step):
    """Multiples of a step between two ends."""
    return range(math.ceil(least / step) * step, math.floor(most / step) * step + 1, step)


def shape(rng, kind, ratios):
    """Sizes of a shape, by the names of `SHAPE`; None stands for a size that has no choice."""
    low, high = ratios["hidden"]
    hidden = round(low * (high / low) ** rng.random() / 512) * 512
    wide, deep = (hidden / ratio for ratio in ratios["aspect"])
    layers = pick(rng, range(max(LAYERS[0], math.ceil(deep)), min(LAYERS[1], math.floor(wide)) + 1))
    kv_heads = pick(rng, (4, 8))
    heads = within(*(ratio * hidden / HEAD for ratio in ratios["heads"]), kv_heads)
    heads = pick(rng, [count for count in heads if count // kv_heads in GROUPS])
    experts, top_k = "", ""
    widths = within(*(ratio * hidden for ratio in ratios["width"]), 128)
    if kind == "moe":
        experts = pick(rng, range(64, 385, 32))
        top_k = pick(rng, [top for top in range(4, 17) if SPARSITY[0] <= experts / top <= SPARSITY[1]])
        widths = [width for width in widths if ACTIVE[0] <= top_k * width / hidden <= ACTIVE[1]]
    return dict(zip(SHAPE, (kind, hidden, layers, heads, kv_heads, pick(rng, widths), experts, top_k), strict=True))


def setting(rng, kind):
    """What a shape runs on and under which load, by the names of `SETTING`."""
    device, engine = pick(rng, pick(rng, DEVICES)), pick(rng, ENGINES)
    recipe = pick(rng, ("bf16", "fp8" if kind == "dense" else "fp8_block"))
    tp = pick(rng, (1, 2, 4, 8))
    ways = pick(rng, ((tp, 1), (1, tp))) if kind == "moe" else ("", "")
    return dict(zip(SETTING, (device, engine, recipe, tp, *ways, pick(rng, USERS), *pick(rng, LOADS)), strict=True))


def divides(row):
    """Whether every size has a choice and the ways divide what they split: heads, experts, and a width into multiples of 64,
    of 128 in blocks.
    """
    if None in row.values() or row["heads"] % row["tp"]:
        return False
    ways = row["tp"] if row["kind"] == "dense" else row["moe_tp"]
    least = 128 if row["recipe"] == "fp8_block" else 64
    return row["width"] % (ways * least) == 0 and (row["kind"] == "dense" or row["experts"] % row["moe_ep"] == 0)


def proposals(seed=SEED):
    """The sequence of draws without end, each with its number; those whose sizes do not divide are left out."""
    rng = random.Random(seed)
    number = 0
    while True:
        kind = pick(rng, ("dense", "dense", "moe", "moe", "moe"))  # fewer with experts divide and fit
        row = {"draw": number, **shape(rng, kind, DENSE if kind == "dense" else MOE), **setting(rng, kind)}
        if divides(row):
            yield row
        number += 1


def model_config(row):
    """The config.json of a shape, as a dict: Llama's where it is dense, Qwen3's with experts."""
    values = {
        "hidden_size": row["hidden_size"],
        "num_hidden_layers": row["layers"],
        "num_attention_heads": row["heads"],
        "num_key_value_heads": row["kv_heads"],
        "head_dim": HEAD,
        "hidden_act": "silu",
        "attention_bias": False,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": VOCABULARY[row["kind"]],
    }
    if row["kind"] == "dense":
        own = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "intermediate_size": row["width"]}
        return values | own | {"mlp_bias": False}
    return values | {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "intermediate_size": 3 * row["hidden_size"],  # of layers without experts, of which there are none
        "moe_intermediate_size": row["width"],
        "num_experts": row["experts"],
        "num_experts_per_tok": row["top_k"],
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "sliding_window": None,
        "use_sliding_window": False,
    }


def served(row):
    """What the package's functions take for a row: the model, the recipe that runs, and the two plans."""
    from hwdesign.models import config
    from hwdesign.models.steps import Plan
    from hwdesign.timing.formats import engine_formats

    model = config.load(model_config(row))
    recipe = engine_formats(model, row["device"], row["engine"], recipe=row["recipe"]).recipe
    attention = Plan(tp=row["tp"])
    ffn = attention if row["kind"] == "dense" else Plan(tp=row["moe_tp"], ep=row["moe_ep"])
    return model, recipe, {"attention": attention, "ffn": ffn}


def modelled_seconds(rows):
    """Our time per output token of each row, in the kernels of the engines of today, as a list [s]."""
    from hwdesign.timing.serving import time_per_output_token

    seconds = []
    for row in rows:
        model, recipe, plans = served(row)
        load = {"concurrency": row["users"], "input_tokens": row["prompt"], "output_tokens": row["answer"]}
        seconds.append(float(time_per_output_token(model, row["device"], recipe, **load, **plans, engine=row["engine"])))
    return seconds


def fits(row):
    """Whether a row has a size that is asked for, its engine runs it, and all its requests fit when they are longest."""
    from hwdesign.models.engine_plans import engine_plan_refusal
    from hwdesign.timing.estimate import decode_step

    model, recipe, plans = served(row)
    if not PARAMETERS[0] <= model.parameters <= PARAMETERS[1]:
        return False
    if engine_plan_refusal(row["engine"], model, *plans.values()):
        return False
    load = {"batch": row["users"], "context": row["prompt"] + row["answer"]}
    return bool(decode_step(model, row["device"], recipe, **load, **plans, engine=row["engine"]).feasible)


def settings():
    """The list: draws that fit, in their order."""
    found = []
    for row in proposals():
        if fits(row):
            _, recipe, _ = served(row)
            found.append(row | {"cache": recipe.kv_cache.name})
        if len(found) == LISTED:
            return found


def write(path, rows):
    """Write the rows; what they do not hold stays empty."""
    with open(path, "w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, (*COLUMNS, *ANSWER), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read(path):
    """Rows of the file, their numbers as int."""
    with open(path, newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    return [{name: int(value) if value.isdigit() else value for name, value in row.items()} for row in rows]


def part(operation):
    """Which of `PARTS` an operation of the planner belongs to, by its name."""
    words = operation.split("_")
    if "dispatch" in words or "ar" in words or "p2p" in words:
        return "exchanges"
    if "gemm" in words:
        return "gemms"
    return next((name for name in ("attention", "moe") if name in words), "other")


def question(row, folder):
    """Arguments of the planner's call for a row whose config.json lies in a folder, but for the version of the tables."""
    weights = FORMATS[row["recipe"]]
    return {
        "model_path": str(folder),
        "system_name": SYSTEMS[row["device"]],
        "mode": "agg",
        "database_mode": "HYBRID",
        "backend_name": row["engine"],
        "isl": row["prompt"],
        "osl": row["answer"],
        "batch_size": row["users"],
        "tp_size": row["tp"],
        "moe_tp_size": row["moe_tp"] or None,
        "moe_ep_size": row["moe_ep"] or None,
        "gemm_quant_mode": weights,
        "moe_quant_mode": weights if row["kind"] == "moe" else None,
        "kvcache_quant_mode": CACHES[row["cache"]],
    }


def estimate(row, config, **changed):
    """The planner's estimate for a row with a config, and the version of its tables."""
    from aisimulate.legacy_cli.api import cli_estimate
    from aisimulate.sdk.perf_database import get_latest_database_version

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
        asked = question(row, folder) | changed
        tables = get_latest_database_version(system=asked["system_name"], backend=asked["backend_name"])
        return cli_estimate(**asked, backend_version=tables), tables


def answer(row):
    """What the planner answers, by the names of `ANSWER`."""
    try:
        found, tables = estimate(row, model_config(row))
    except Exception as error:  # whatever it raises, the row stays without an answer
        return {"refusal": refusal(error)}
    return {"seconds": f"{found.tpot * 1e-3:.5g}", "tables": tables} | decoding(found)


def plain(row):
    """The planner's time without norms of queries and keys and without scales made at run time; empty where it has neither."""
    config = model_config(row)
    if row["kind"] == "moe":
        names = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
        sizes = {"num_local_experts": row["experts"], "intermediate_size": row["width"]}
        found, _ = estimate(row, config | names | sizes)
    elif (row["engine"], row["recipe"]) == ("trtllm", "fp8"):
        found, _ = estimate(row, config, gemm_quant_mode="fp8_static")
    else:
        return ""
    return f"{found.tpot * 1e-3:.5g}"


def decoding(found):
    """The planner's step without prompts, by the names of `ANSWER`; empty where prompts are in all of its steps."""
    spent, source = (parts.get("genonly_step", {}) for parts in (found.per_ops_data, found.per_ops_source))
    step = sum(spent.values())  # [ms]
    if not step:
        return {}
    seconds = dict.fromkeys(PARTS, 0.0)
    for operation, taken in spent.items():
        seconds[part(operation)] += taken * 1e-3
    texts = {name: f"{value:.5g}" for name, value in ({"step": step * 1e-3} | seconds).items()}
    beyond = sum(taken for operation, taken in spent.items() if source[operation] != "silicon")
    return texts | {"extrapolated": f"{beyond / step:.3f}"}


def need_planner():
    """Stop unless the planner has the version of the stored answers."""
    if importlib.metadata.version("aisimulate") != TOOLS["aisimulate"][0]:
        raise SystemExit(f"aisimulate must be {TOOLS['aisimulate'][0]}, the version of the stored answers")
    logging.disable(logging.WARNING)


def again(rows):
    """The answered rows as they are, with `plain`."""
    need_planner()
    return [row | {"plain": plain(row)} for row in rows]


def ask(rows):
    """The rows with answers, up to the one that makes `WANTED`."""
    need_planner()
    done = []
    for row in rows:
        done.append({name: row[name] for name in COLUMNS} | answer(row))
        answered = sum("seconds" in found for found in done)
        print(row["draw"], done[-1].get("seconds") or done[-1]["refusal"], file=sys.stderr)
        if answered == WANTED:
            return done
    raise SystemExit(f"only {answered} of {len(rows)} rows were answered")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("list", "ask", "again"))
    parser.add_argument("path", help="CSV file of the settings and their answers")
    arguments = parser.parse_args()
    if arguments.do == "list":
        write(arguments.path, settings())
    else:
        write(arguments.path, {"ask": ask, "again": again}[arguments.do](read(arguments.path)))
