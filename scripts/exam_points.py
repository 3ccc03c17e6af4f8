"""The points of the exam, without their times: what `ask_peers.py` asks the planners for.

    python scripts/exam_points.py POINTS.csv

Writes the matched plain decode points of `hwdesign.timing.served`, one a row: what names the point, the mean lengths of its
requests [token] and the format of the cache that its engine takes, so that every tool is asked for the same. `cache` and `wide`
are "" where nobody told; `asked_cache` is then what the engine does by default.
"""

import argparse
import csv
import math

from hwdesign.timing.formats import engine_formats
from hwdesign.timing.served import GROUP, LOAD, mean_lengths, point_recipe, served_checkpoint, served_points

KEY = (*GROUP, *LOAD)
MEANS = ("mean_input_tokens", "mean_output_tokens")
COLUMNS = (*KEY, *MEANS, "asked_cache")


def exam_points(**equal):
    """Rows of the list, sorted; numbers as int, "" where a dense model has no plan of experts."""
    return point_rows(served_points(matched=True, **equal))


def point_rows(points):
    """Rows of a list of points, sorted."""
    columns = [points[name].tolist() for name in KEY] + [values.tolist() for values in mean_lengths(points).values()]
    rows = {tuple(x if isinstance(x, str) else whole(x) for x in row) for row in zip(*columns, strict=True)}
    return [(*row, asked_cache(dict(zip(KEY, row, strict=False)))) for row in sorted(rows, key=in_order)]


def in_order(row):
    """Sort key of a row: numbers as numbers."""
    return [str(x).zfill(9) for x in row]


def whole(number):
    """A number of the table as int; "" for NaN."""
    return "" if math.isnan(number) else int(number)


def asked_cache(point):
    """Format of the cache of a point: its own, else its engine's."""
    served, _ = served_checkpoint(point["model"], point["wide"])
    recipe = point_recipe(point["model"], point["precision"])
    formats = engine_formats(served, point["device"], point["framework"], recipe=recipe, cache=point["cache"] or None)
    return formats.recipe.kv_cache.name


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", help="file to write")
    with open(parser.parse_args().points, "w", newline="", encoding="utf-8") as handle:
        csv.writer(handle, lineterminator="\n").writerows([COLUMNS, *exam_points()])
