"""Draws settings of shapes that nobody has built and asks a public planner for the time per output token of each.

    python scripts/unbuilt_shapes.py list tests/data/unbuilt_shapes.csv

The list holds no time. Each row is a draw of one seeded sequence (`draw`, its number) whose shape has 3 to 400 billion
parameters and which fits on its GPUs by the package's own count; the first `LISTED` of them are written. Sizes lie on grids
that kernels like, and their ratios inside what trained models have (`hwdesign/models/configs`).
"""

import argparse
import csv
import math
import random

SEED = 20261201
LISTED, WANTED = 200, 100
SHAPE = ("kind", "hidden_size", "layers", "heads", "kv_heads", "width", "experts", "top_k")
SETTING = ("device", "engine", "recipe", "tp", "moe_tp", "moe_ep", "users", "prompt", "answer")
COLUMNS = ("draw", *SHAPE, *SETTING, "cache")
ANSWER = ("seconds", "refusal")
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
    """Write the rows with empty answers."""
    with open(path, "w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, (*COLUMNS, *ANSWER), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read(path):
    """Rows of the file, their numbers as int."""
    with open(path, newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    return [{name: int(value) if value.isdigit() else value for name, value in row.items()} for row in rows]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("list",))
    parser.add_argument("path", help="CSV file of the settings and their answers")
    arguments = parser.parse_args()
    write(arguments.path, settings())
