"""The designs of the page From verdict to design: one budget on two machines, stored as a table.

    python scripts/worked_designs.py [--out scripts/worked_designs.csv]

A row is a design of the front, or the published model beside it, at one speed of a user: the one of which a GPU makes most.
Takes some minutes; a test times every row anew from its config, plans and formats.
"""

import argparse
import csv
import json
from pathlib import Path

import retrodict

from hwdesign.advice.case import ways_text
from hwdesign.advice.designing import design
from hwdesign.models import config

OUT = Path(__file__).with_name("worked_designs.csv")
BUDGET = {"parameters": 30e9, "active": 3e9, "context": 32768, "tpot": 0.02}
MACHINES = (("H200", 8), ("GB300", 72))
SPEEDS = (50, 100, 200, 400)  # tokens per second of a user; the first is what the target of 20 ms asks for
PUBLISHED = "qwen3-30b-a3b"
COLUMNS = (
    "device", "gpus", "speed", "name", "prompt", "answer", "recipe", "cache", "attention", "ffn", "batch", "user_rate",
    "gpu_rate", "low", "high", "joules", "binds", "triples", "config",
)  # fmt: skip


def row(front, speed, point):
    """A row of the table; a published model has no config here."""
    low, high = point.interval(point.gpu_rate)
    joules = "" if point.joules is None else f"{point.joules:.4g}"
    where = front.setting
    return [
        where.device.name, where.gpus, speed, PUBLISHED if point.known else str(point.shape), where.prompt, where.answer,
        point.recipe.name, point.recipe.kv_cache.name, ways_text(point.attention), ways_text(point.ffn), point.batch,
        f"{point.user_rate:.5g}", f"{point.gpu_rate:.5g}", f"{low:.5g}", f"{high:.5g}", joules, point.binding_text,
        front.triples, "" if point.known else json.dumps(point.shape.config),
    ]  # fmt: skip


def rows(device, gpus):
    """Rows of one machine: at each speed the best design, and the published model."""
    (front,) = design(**BUDGET, device=device, gpus=gpus).fronts
    model = config.load(PUBLISHED)
    for speed in SPEEDS:
        fast = [point for point in front.points if point.user_rate >= speed]
        if fast:
            yield row(front, speed, max(fast, key=lambda point: point.gpu_rate))
        served = retrodict.served_at(model, front.setting, speed)
        if served:
            yield row(front, speed, served)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args()
    with chosen.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for device, gpus in MACHINES:
            print(f"{gpus} x {device}", flush=True)
            writer.writerows(rows(device, gpus))


if __name__ == "__main__":
    main()
