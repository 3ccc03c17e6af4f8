"""The points of the models that judge, read once after all else is fixed, and printed as they fall.

    python scripts/blind.py WHEEL --points POINTS.csv   # what `ask_peers.py` asks the planners for: no times
    python scripts/blind.py WHEEL --answers ANSWERS.csv # writes hwdesign/timing/data/blind.csv and prints the exam

Nothing of the model, of the plans, of the formats, of the rules of matching or of telling drafted tokens may be chosen by these
points; `commit` in the file is the one they were run at.
"""

import argparse
import csv
import subprocess
import zipfile
from pathlib import Path

import numpy as np
from exam import KEY, OURS, PEERS, keys, named_answers, ratio, summary, text
from exam_points import COLUMNS, point_rows
from silicon_tables import BLIND, SERVING_COLUMNS, serving_points

from hwdesign.timing.intervals import interval_factors
from hwdesign.timing.served import compared

OUT = Path(__file__).parents[1] / "hwdesign" / "timing" / "data" / "blind.csv"
TEXTS = ("model", "device", "framework", "version", "precision", "moe_precision", "cache", "wide", "taken_on", "speculative")


def blind_points(wheel):
    """Matched points of the models that judge, as of `served_points`, with the modelled time."""
    with zipfile.ZipFile(wheel) as archive:
        found = serving_points(archive, BLIND)
    lines = sorted({tuple(str(point[name]) for name in SERVING_COLUMNS) for point in found})
    columns = dict(zip(SERVING_COLUMNS, zip(*lines, strict=True), strict=True))
    rows = {
        name: np.array(values) if name in TEXTS else np.array([float(x or "nan") for x in values])
        for name, values in columns.items()
    }
    points = compared(rows)
    return {name: values[points["matched"]] for name, values in points.items()}


def write_points(points, path):
    """Write the list for the planners, without times."""
    with open(path, "w", newline="", encoding="utf-8") as handle:
        csv.writer(handle, lineterminator="\n").writerows([COLUMNS, *point_rows(points)])


def main(points, answers):
    """Write blind.csv and print errors and coverage."""
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    low, high = interval_factors()
    points[OURS] = points["modelled"]
    given, names = named_answers(answers), keys(points)
    for tool in PEERS:
        points[tool] = np.array([given[tool].get(name, np.nan) for name in names])
    columns = (*KEY, "tpot", OURS, *PEERS)
    lines = []
    for row in zip(*(points[name].tolist() for name in columns), strict=True):
        cells = ["" if x != x else x if isinstance(x, str) else f"{x:.6g}" for x in row]
        lines.append((commit, *cells, f"{row[-3] * low:.6g}", f"{row[-3] * high:.6g}"))
    with open(OUT, "w", newline="", encoding="utf-8") as handle:
        csv.writer(handle, lineterminator="\n").writerows([("commit", *columns, "low", "high"), *sorted(lines)])
    inside = (points["tpot"] >= low * points[OURS]) & (points["tpot"] <= high * points[OURS])
    for model in (*np.unique(points["model"]), ""):
        here = (points["model"] == model) | (model == "")
        for tool in (OURS, *PEERS):
            print(f"{model or 'all':20} {tool:15}", text(summary(ratio(points, tool)[here])))
        print(f"{model or 'all':20} in the interval: {100 * inside[here].mean():.0f} %")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", help="the wheel of the tables")
    parser.add_argument("--points", help="list for the planners to write")
    parser.add_argument("--answers", help="their answers")
    arguments = parser.parse_args()
    found = blind_points(arguments.wheel)
    if arguments.points:
        write_points(found, arguments.points)
    if arguments.answers:
        main(found, arguments.answers)
