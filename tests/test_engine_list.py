"""What of the text-generation architectures that engines list is read: `scripts/engine_architectures.csv`.

vLLM: all of `_TEXT_GENERATION_MODELS` of its registry. SGLang: the classes that its model files register, without those that it
lists as multimodal, drafts for speculative decoding, classifiers, reward and embedding models, and stand-ins for transformers,
torch and MindSpore. The model types of a class are those of transformers 5.24.0, or of its config class or published config.
"""

import csv
from pathlib import Path

import pytest

from hwdesign.models.architectures import ALIASES, READERS

LIST = Path(__file__).parent.parent / "scripts" / "engine_architectures.csv"
ROWS = list(csv.DictReader(LIST.open(encoding="utf-8")))
READ = {*READERS, *ALIASES}


def test_each_architecture_stands_once_with_its_version():
    names = [(row["engine"], row["architecture"]) for row in ROWS]
    assert len(names) == len(set(names))
    assert {(row["engine"], row["version"]) for row in ROWS} == {("vLLM", "0.33.0"), ("SGLang", "0.5.23")}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['engine']} {row['architecture']}")
def test_what_is_called_read_is_read_and_nothing_else(row):
    types = set(row["model_types"].split())
    if row["status"] == "read":
        assert types and types <= READ
    else:
        assert row["status"] and not types & READ, f"{types & READ} are read: say so in {LIST.name}"


@pytest.mark.parametrize(("engine", "count", "read"), [("vLLM", 124, 113), ("SGLang", 124, 112)])
def test_most_of_the_list_is_read_and_the_changelog_says_how_much(engine, count, read):
    found = [row["status"] == "read" for row in ROWS if row["engine"] == engine]
    assert (len(found), sum(found)) == (count, read)
    assert "list, 113 and 112 are read" in (LIST.parent.parent / "CHANGELOG.md").read_text(encoding="utf-8")
