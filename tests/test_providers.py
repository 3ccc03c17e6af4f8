"""How much of what providers serve is read: families of `data/providers_2026.csv` whose model types are all proven.

The file says how many of 2,544 entries of open-weight models of 149 providers belong to which family: models.dev, July 2026,
by patterns of their names, so approximate; the model types of each family were added by hand. A model type counts as proven
where a config of it, in one of the other files, loads with the count of an independent oracle, to the last digit.
"""

import csv
import json
from pathlib import Path

import pytest

from hwdesign.models import config

DATA = Path(__file__).parent / "data"


def rows(name):
    return list(csv.DictReader((DATA / name).open(encoding="utf-8")))


def published():
    """(model types, config, count) of configs of published models."""
    for row in rows("params_2026.csv"):
        file = DATA / "configs_2026" / f"{row['name']}.json"
        yield row["model_type"].split(" / "), file, row["total_main"]
    for row in rows("published_params.csv"):
        values = json.loads((Path(config.__file__).parent / "configs" / f"{row['model']}.json").read_text(encoding="utf-8"))
        yield [v["model_type"] for v in (values, values.get("text_config", {})) if "model_type" in v], values, row["parameters"]


def classes():
    """The same of configs with the defaults of a class, or changed ones."""
    for name in ("class_defaults_2026.csv", "class_defaults_more.csv"):
        for row in rows(name):
            yield [row["model_type"]], json.loads(row["config"]), row["total"]


def proven(found):
    """Model types of which each config is read with the oracle's count."""
    good = {}
    for kinds, source, total in found:
        equal = config.load(source).parameters == int(total)
        for kind in kinds:
            good[kind] = good.get(kind, True) and equal
    return {kind for kind, held in good.items() if held}


def share(known):
    """Entries of families whose model types are all known, and the families that are not."""
    families = rows("providers_2026.csv")
    held = [row for row in families if set(row["model_types"].split()) <= known]
    return sum(int(row["entries"]) for row in held), {row["family"] for row in families if row not in held}


@pytest.fixture(scope="module")
def known():
    return proven(published()), proven(classes())


def test_the_file_holds_every_entry_once():
    families = rows("providers_2026.csv")
    assert sum(int(row["entries"]) for row in families) == 2544 and len({row["family"] for row in families}) == 58


def test_at_least_92_percent_are_read_and_97_with_types_that_are_counted_as_another_class(known):
    """All of them; 98.6 % without the two types whose oracle is another class of the same shapes, 68.4 % by configs of
    published models alone."""
    by_config, by_class = known
    assert share(by_config | by_class) == (2544, set())
    own, without = share((by_config | by_class) - {"chatglm", "mistral_large_3"})
    assert without == {"GLM-4-9B/32B/Z1", "Mistral-Large-3 (675B)"} and own == 2544 - 22 - 14 > 0.92 * 2544
    assert share(by_config)[0] == 1739
