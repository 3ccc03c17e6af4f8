"""The points of the exam, without their times: what `ask_peers.py` asks the planners for.

    python scripts/exam_points.py POINTS.csv

Writes the matched plain decode points of `hwdesign.timing.served`, one a row: what names the point, the mean lengths of its
requests [token] and the format of the cache that its engine takes, so that every tool is asked for the same.
"""

import argparse
import csv
import math

from hwdesign.models import config
from hwdesign.timing.formats import engine_formats
from hwdesign.timing.served import GROUP, LOAD, mean_lengths, point_recipe, served_points

TEXTS = GROUP[:5]
KEY = (*GROUP, *LOAD)
MEANS = ("mean_input_tokens", "mean_output_tokens")
COLUMNS = (*KEY, *MEANS, "cache")


def exam_points(**equal):
    """Rows of the list, sorted; numbers as int, "" where a dense model has no plan of experts."""
    points = served_points(matched=True, **equal)
    lengths = mean_lengths(points)
    columns = [points[name].tolist() for name in KEY] + [values.tolist() for values in lengths.values()]
    rows = {tuple(x if isinstance(x, str) else whole(x) for x in row) for row in zip(*columns, strict=True)}
    return [(*row, cache_format(*row[:4])) for row in sorted(rows, key=lambda row: [str(x).zfill(9) for x in row])]


def whole(number):
    """A number of the table as int; "" for NaN."""
    return "" if math.isnan(number) else int(number)


def cache_format(model, device, framework, precision):
    """Format of the cache of a point."""
    formats = engine_formats(config.load(model), device, framework, recipe=point_recipe(model, precision))
    return formats.recipe.kv_cache.name


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", help="file to write")
    with open(parser.parse_args().points, "w", newline="", encoding="utf-8") as handle:
        csv.writer(handle, lineterminator="\n").writerows([COLUMNS, *exam_points()])
