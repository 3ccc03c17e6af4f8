"""Where ten published models lie against the front of their own budget, as a table.

    python scripts/retrodict.py [--out scripts/retrodiction.csv] [--only deepseek-r1]

For each model the search gets its parameters, its active ones, its vocabulary and its family; the model and the designs serve
the same load on the same GPUs, each under its best plans and formats. A row says, for a user who asks for so many tokens per
second, what a GPU makes of the model and of the best design of the front, with the interval that holds 80 % of published
points, and which term of the step differs most at the batch of the design. The times are modelled; how well a design would
answer nothing here knows. Takes about half a minute a model.
"""

import argparse
import csv
from dataclasses import replace
from pathlib import Path

from hwdesign.advice.designing import _batches, _compared, design
from hwdesign.models import config

OUT = Path(__file__).with_name("retrodiction.csv")
MODELS = {  # family of the designs that are searched
    "llama-3.1-8b": "llama", "qwen3-32b": "llama", "llama-3.1-70b": "llama", "qwen2.5-72b": "llama",
    "qwen3-30b-a3b": "qwen3_moe", "glm-4.5-air": "qwen3_moe", "qwen3-235b-a22b": "qwen3_moe", "minimax-m2.5": "qwen3_moe",
    "deepseek-r1": "deepseek_v3", "qwen3-next-80b-a3b": "qwen3_next",
}  # fmt: skip
DEVICE, GPUS, LOAD = "H200", 8, (8192, 1024)
SPEEDS = (25, 50, 100)  # tokens per second of a user
COLUMNS = (
    "model", "user_rate", "model_rate", "model_low", "model_high", "design_rate", "design_low", "design_high", "share", "term",
    "term_model", "term_design", "model_deployment", "design", "design_deployment",
)  # fmt: skip


def budget(model):
    """What the search is given of a model."""
    return {
        "parameters": model.parameters,
        "active": model.active_parameters(include_embedding=True),
        "vocabulary": model.vocab_size,
    }


def largest_difference(model, best):
    """The term of a decode step that differs most between a model and a design, each under its own plans at the design's
    batch, with both times of it [s].
    """
    mine, other = (replace(point.case, batch=best.batch).breakdown.terms for point in (model, best))
    name = max(mine, key=lambda term: abs(float(mine[term]) - float(other[term])))
    return name, float(mine[name]), float(other[name])


def served_at(model, setting, speed):
    """The point at which a GPU makes most tokens of a model for users of a speed; None where it is never so fast."""
    return _compared(model, replace(setting, tpot=1 / speed), _batches(None, setting.gpus))


def rows(name, family):
    """A row for each speed that both reach."""
    model = config.load(name)
    found = design(**budget(model), family=family, device=DEVICE, gpus=GPUS, load=LOAD, tpot=1 / min(SPEEDS))
    (front,) = found.fronts
    for speed in SPEEDS:
        served = served_at(model, front.setting, speed)
        fast = [point for point in front.points if point.user_rate >= speed]
        if served is None or not fast:
            continue
        best = max(fast, key=lambda point: point.gpu_rate)
        ends = [f"{end:.1f}" for point in (served, best) for end in point.interval(point.gpu_rate)]
        term, mine, other = largest_difference(served, best)
        yield [
            name, speed, f"{served.gpu_rate:.1f}", *ends[:2], f"{best.gpu_rate:.1f}", *ends[2:],
            f"{served.gpu_rate / best.gpu_rate:.3f}", term, f"{mine:.4g}", f"{other:.4g}",
            f"{served.formats}; {served.plans}; batch {served.batch}", str(best.shape),
            f"{best.formats}; {best.plans}; batch {best.batch}",
        ]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--only", nargs="*", choices=MODELS, default=list(MODELS))
    chosen = parser.parse_args()
    with chosen.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for name in chosen.only:
            print(name, flush=True)
            writer.writerows(rows(name, MODELS[name]))


if __name__ == "__main__":
    main()
