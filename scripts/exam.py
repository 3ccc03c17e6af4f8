"""The standing exam: published serving points against this model and two public planners, in numbers.

    python scripts/exam.py              # the tables, as text
    python scripts/exam.py --constants  # fits hwdesign/timing/data/served_constants.csv first
    python scripts/exam.py --intervals  # also writes hwdesign/timing/data/intervals.csv

Two constants an engine are fitted on these points, on those of the models in `NAMED`; the points of the others are printed apart.
The answers of the planners are those of `ask_peers.py`.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

from hwdesign.models import config
from hwdesign.timing import served
from hwdesign.timing.estimate import decode_step, prefill_step
from hwdesign.timing.formats import engine_formats
from hwdesign.timing.intervals import engine_seconds
from hwdesign.timing.served import served_points
from hwdesign.timing.silicon import measurements

DATA = Path(__file__).parents[1] / "hwdesign" / "timing" / "data"
OURS, PEERS = "hwdesign", ("aisimulate", "aiconfigurator")
TOOLS = (OURS, *PEERS)
NUMBERS = (*served.GROUP[5:9], *served.LOAD)
KEY = ("model", "device", "framework", "precision", "moe_precision", *served.GROUP[5:], *served.LOAD)
INTERVAL = 0.8  # share of the published times that an interval is to hold
DENSE, MIXTURE = "dense", "experts"
# The models on whose points the two constants of an engine are fitted: what it takes in a step besides its kernels.
NAMED = {
    "vllm": ("llama-3.1-70b", "minimax-m2.5"),
    "sglang": ("deepseek-r1", "llama-3.1-8b"),
    "trtllm": ("deepseek-r1", "llama-3.1-70b"),
}
LEVELS = (1, 4, 16, 64, 256, 1e9)  # limits of the groups by sequences in flight


def keys(rows):
    """One text a point that names it, whatever its times."""
    columns = [[f"{x:g}" if isinstance(x, float) else str(x) for x in rows[name].tolist()] for name in KEY]
    return [",".join(parts) for parts in zip(*columns, strict=True)]


def named_answers(path=DATA / "peers.csv"):
    """{tool: {key: seconds}} of a file of answers; a point that a tool did not answer is absent."""
    found = {tool: {} for tool in PEERS}
    with open(path, newline="", encoding="utf-8") as handle:
        for row in csv.DictReader(handle):
            key = ",".join(f"{float(row[n] or 'nan'):g}" if n in NUMBERS else row[n] for n in KEY)
            for tool in PEERS:
                if row[tool]:
                    found[tool][key] = float(row[tool])
    return found


def exam_points(**equal):
    """Matched points with the answer of each tool [s]: `served_points`, and a column for each tool, NaN where it has none."""
    points = served_points(matched=True, **equal)
    answers = named_answers()
    names = keys(points)
    points[OURS] = points["modelled"]
    for tool in PEERS:
        points[tool] = np.array([answers[tool].get(name, np.nan) for name in names])
    return points


def ratio(points, tool=OURS):
    """Answer of a tool over the published time, minus 1 [dimensionless]."""
    return points[tool] / points["tpot"] - 1


def summary(error):
    """Points, median, mean, 90th percentile, share within 25 %, and median with its sign, of relative errors; shares in %."""
    size = 100 * np.abs(error[~np.isnan(error)])
    signed = 100 * error[~np.isnan(error)]
    if not len(size):
        return {"points": 0}
    return {
        "points": len(size),
        "median": np.median(size),
        "mean": size.mean(),
        "p90": np.quantile(size, 0.9),
        "within 25 %": 100 * (size <= 25).mean(),
        "sign": np.median(signed),
    }


def common(points):
    """True where every tool answers."""
    return np.all([~np.isnan(points[tool]) for tool in TOOLS], axis=0)


def kinds(points):
    """Whether each point's model is dense or has experts."""
    return np.where(np.isnan(points["moe_tp"]), DENSE, MIXTURE)


def spread(log_ratio, models, share=INTERVAL):
    """Least and most of log(published / modelled) that hold a share of the points, each model counting as much as another."""
    weight = 1 / np.array([np.count_nonzero(models == model) for model in models])
    order = np.argsort(log_ratio)
    rank = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    return tuple(np.interp([(1 - share) / 2, (1 + share) / 2], rank, log_ratio[order]).tolist())


def runs(points):
    """Which engine ran which model, as one text a point."""
    return np.array([f"{e} {m}" for e, m in zip(points["framework"].tolist(), points["model"].tolist(), strict=True)])


def interval(points):
    """Least and most of published over modelled times [dimensionless], each run of a model in an engine counting the same.

    One for all engines: those of one engine's other models hold 66 to 95 % of a model's points, these 84 to 85 %.
    """
    return np.exp(spread(-np.log1p(ratio(points)), runs(points)))


def left_out_coverage(points):
    """{engine: share} of the points that lie in the interval from all other models."""
    log_ratio, inside, groups = -np.log1p(ratio(points)), np.zeros(len(points["tpot"]), bool), runs(points)
    for model in np.unique(points["model"]):
        own = points["model"] == model
        low, high = spread(log_ratio[~own], groups[~own])
        inside[own] = (log_ratio[own] >= low) & (log_ratio[own] <= high)
    return {str(e): float(inside[points["framework"] == e].mean()) for e in np.unique(points["framework"])}


def groups(points):
    """(title, values) of every way to group the points: by engine, device, model, sequences in flight, and slice."""
    level = np.digitize(points["concurrency"], LEVELS)
    names = [f"{LEVELS[i - 1]:g} to {LEVELS[i] - 1:g}" if LEVELS[i] < 1e9 else f"from {LEVELS[i - 1]:g}" for i in level]
    columns = {name: points[name] for name in ("framework", "device", "model")} | {"in flight": np.array(names)}
    columns["slice"] = np.array(
        [" ".join(x) for x in zip(*(points[n].tolist() for n in ("model", "device", "framework", "precision")), strict=True)]
    )
    return columns


def least_deviation(columns, values, weights, rounds=60):
    """Coefficients, none below 0, with the least weighted absolute deviation, by reweighted least squares."""
    scale = weights.copy()
    for _ in range(rounds):
        found = np.linalg.lstsq(columns * scale[:, None], values * scale, rcond=None)[0]
        left = np.abs((values - columns @ found) * weights)
        scale = weights / np.sqrt(np.maximum(left, 0.01))
    return np.maximum(found, 0)


def write_constants():
    """Fit and write served_constants.csv: time besides the kernels for each layer and each sequence [s]."""
    points = served_points(matched=True)
    layers = np.array([len(config.load(str(model)).blocks) for model in points["model"]])
    sequences, rows = np.ceil(points["concurrency"] / points["dp"]), []
    besides = np.array([engine_seconds(str(e), n, s) for e, n, s in zip(points["framework"], layers, sequences, strict=True)])
    missing = points["tpot"] - (points["modelled"] - besides)  # the kernels alone
    for engine, models in NAMED.items():
        here = (points["framework"] == engine) & np.isin(points["model"], models)
        columns = np.column_stack([layers, sequences])[here]
        layer, sequence = least_deviation(columns, missing[here], 1 / points["tpot"][here])
        rows.append((engine, f"{layer:.3g}", f"{sequence:.3g}", "s", int(here.sum()), " ".join(models)))
    with open(DATA / "served_constants.csv", "w", newline="", encoding="utf-8") as handle:
        header = ("engine", "layer", "sequence", "unit", "points", "models")
        csv.writer(handle, lineterminator="\n").writerows([header, *rows])


def named(points):
    """True where a point's model is one of those that the constants of its engine were fitted on."""
    pairs = zip(points["framework"].tolist(), points["model"].tolist(), strict=True)
    return np.array([model in NAMED[engine] for engine, model in pairs])
def deployments(rows):
    """(rows served alike, model, device and recipe, keyword arguments) of steps of serving points."""
    found = {}
    for i, key in enumerate(zip(*(rows[name].tolist() for name in served.GROUP), strict=True)):
        found.setdefault(str(key), []).append(i)
    for chosen in found.values():
        one = {name: rows[name][chosen[0]] for name in served.GROUP}
        name, device, framework, precision = (str(one[n]) for n in ("model", "device", "framework", "precision"))
        model, wide = served.served_checkpoint(name, str(one["wide"]))
        recipe, cache = served.point_recipe(name, precision, device), str(one["cache"]) or None
        formats = engine_formats(model, device, framework, recipe=recipe, cache=cache)
        attention, ffn = served.served_plans(one)
        engine = served.engine_of_then(framework, name)
        yield chosen, (model, device, formats.recipe), {"attention": attention, "ffn": ffn, "wide": wide, "engine": engine}


def whole_batches(sequences, ways):
    """Sequences such that each of so many groups of GPUs has as many as another."""
    return np.ceil(sequences / ways) * ways


def first_tokens(points):
    """Modelled time to the first token of each point [s]: the prefill of one prompt, and one decode step of all in flight."""
    seconds, lengths = np.empty(len(points["tpot"])), served.mean_lengths(points)
    for chosen, what, plans in deployments(points):
        ways = plans["attention"].dp * plans["attention"].pp
        prompt, answer = (lengths[name][chosen] for name in ("input_tokens", "output_tokens"))
        prefill = prefill_step(*what, batch=ways, context=prompt, **plans)
        batch = whole_batches(points["concurrency"][chosen], ways)
        decode = decode_step(*what, batch=batch, context=np.ceil(prompt + answer / 2), **plans)
        seconds[chosen] = prefill.seconds + decode.seconds
    return seconds


def disaggregated_points():
    """Points of servers that prefill on other GPUs, one of each kind, with the modelled decode step of one worker at its share of
    the sequences [s]: those of one token a step whose requests do not wait, as in `served_points`. What stays in BF16, and the
    cache, are those of the other points of the same checkpoint and engine.
    """
    rows, beside = measurements("serving_disaggregated"), measurements("serving")
    names = [name for name in rows if name not in ("version", "taken_on", "ttft", "tpot")]
    groups = {}
    for i, key in enumerate(zip(*(rows[name].tolist() for name in names), strict=True)):
        groups.setdefault(key, []).append(i)
    out = {name: np.array([rows[name][g[0]] for g in groups.values()]) for name in names}
    out |= {name: np.array([np.median(rows[name][g]) for g in groups.values()]) for name in ("ttft", "tpot")}
    for name in ("tp", "dp", "moe_tp", "moe_ep"):
        out[name] = out.pop(f"decode_{name}")
    alike = ("model", "framework", "precision")
    told = {key: i for i, key in enumerate(zip(*(beside[name].tolist() for name in alike), strict=True))}
    known = [told[key] for key in zip(*(out[name].tolist() for name in alike), strict=True)]
    out |= {name: beside[name][known] for name in ("moe_precision", "cache", "wide")}
    waiting = out["ttft"] / (out["ttft"] + out["tpot"] * (out["output_tokens"] - 1))
    keep = (out["speculative"] == "") & (waiting <= served.WAITING)
    out = {name: values[keep] for name, values in out.items()}
    out[OURS], lengths = np.empty(int(keep.sum())), served.mean_lengths(out)
    for chosen, what, plans in deployments(out):
        batch = whole_batches(out["concurrency"][chosen] / out["decode_workers"][chosen], plans["attention"].dp)
        context = np.ceil(lengths["input_tokens"][chosen] + lengths["output_tokens"][chosen] / 2)
        out[OURS][chosen] = decode_step(*what, batch=batch, context=context, **plans).seconds
    return out


def blind_points():
    """Columns of blind.csv, written once for models that nobody looked at before: `commit`, what names a point, its published
    time `tpot`, the answer of each tool, and the ends `low` and `high` of the interval [s]; None where it was not run yet.
    """
    path = DATA / "blind.csv"
    if not path.exists():
        return None
    with open(path, newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    texts = ("commit", *(name for name in KEY if name not in NUMBERS))
    columns = {name: [row[name] for row in rows] for name in (*texts, *NUMBERS, "tpot", *TOOLS, "low", "high")}
    return {n: np.array(v if n in texts else [float(x or "nan") for x in v]) for n, v in columns.items()}


def write_intervals(points):
    """Write intervals.csv."""
    low, high = interval(points)
    rows = [(f"{low:.3f}", f"{high:.3f}", len(points["tpot"]), len(set(points["model"].tolist())))]
    with open(DATA / "intervals.csv", "w", newline="", encoding="utf-8") as handle:
        csv.writer(handle, lineterminator="\n").writerows([("low", "high", "points", "models"), *rows])


def main(with_intervals):
    points = exam_points()
    every = common(points)
    for tool in TOOLS:
        print(f"{tool:16}", text(summary(ratio(points, tool)[every])))
    for title, chosen in (("models of the constants", named(points)), ("other models", ~named(points))):
        print(f"{title:24}", text(summary(ratio(points)[every & chosen])))
    for title, values in groups(points).items():
        print()
        for value in np.unique(values):
            for tool in TOOLS:
                print(f"{title:10} {value:48} {tool:15}", text(summary(ratio(points, tool)[every & (values == value)])))
    print("\ncoverage, model left out:", {e: f"{100 * share:.0f} %" for e, share in left_out_coverage(points).items()})
    if with_intervals:
        write_intervals(points)


def text(row):
    """A summary as one line."""
    return "  ".join(f"{name} {value:.1f}" if name != "points" else f"{value:5d}" for name, value in row.items())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--constants", action="store_true", help="fit and write served_constants.csv, and no more")
    parser.add_argument("--intervals", action="store_true", help="write intervals.csv")
    arguments = parser.parse_args()
    write_constants() if arguments.constants else main(arguments.intervals)
