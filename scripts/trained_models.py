"""Count the models of `trained_models.csv` from their configs and write `hwdesign/advice/bands.csv`.

    python scripts/trained_models.py

The list beside this script is written by hand: name, config, the day it was read, and whether verdicts and chapters compare the
model. All else comes from the config: sizes as `hwdesign.advice.bands.sizes` counts them, and the source from its `_source`
key. The same configs give the same bytes. Configs that are written from descriptions must not be listed.
"""

import csv
import io
import json
from pathlib import Path

from hwdesign.advice.bands import family_of, sizes
from hwdesign.models import config

ROOT = Path(__file__).parents[1]
LISTED = Path(__file__).with_name("trained_models.csv")
OUT = ROOT / "hwdesign" / "advice" / "bands.csv"
COLUMNS = (
    "model",
    "family",
    "layers",
    "depth",
    "hidden_size",
    "parameters",
    "experts",
    "experts_per_token",
    "expert_width",
    "expert_latent",
    "shared_expert_width",
    "dense_width",
    "query_heads",
    "key_value_heads",
    "head_size",
    "full_attention_layers",
    "verdicts",
    "book",
    "source",
    "read",
)
DESCRIBED = "written from the public description"  # how the source of a config begins that is no published file


def listed():
    """Rows of the list, as dicts."""
    return list(csv.DictReader(LISTED.read_text(encoding="utf-8").splitlines()))


def counted(row):
    """A row of the table for a row of the list, as a dict."""
    path = ROOT / row["config"]
    source = json.loads(path.read_text(encoding="utf-8")).get("_source", "")
    if not source or source.startswith(DESCRIBED):
        raise ValueError(f"config of {row['model']} must be a published one with a _source, got {source!r}")
    model = config.load(path)
    found = {name: row[name] for name in ("model", "verdicts", "book", "read")}
    return found | sizes(model) | {"family": family_of(model), "source": source}


def table(rows):
    """The bytes of the table."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(counted(row) for row in rows)
    return out.getvalue().encode("utf-8")


if __name__ == "__main__":
    OUT.write_bytes(table(listed()))
