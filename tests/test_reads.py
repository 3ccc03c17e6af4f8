"""What pages say about the configs that are read is so: how many model types, and that every other one is refused by name."""

import csv
import json
import re

import pytest
from conftest import ROOT, configs_2026

from hwdesign.models import config
from hwdesign.models.architectures import ALIASES, READERS

TYPES = sorted({*READERS, *ALIASES})
SAID = ("README.md", "CHANGELOG.md", "book/preface.md", "book/quick_start.md", "book/checking.md", "book/not_modelled.md",
        "notebooks/08_design_checklist.ipynb")  # fmt: skip
PAGES = [*sorted((ROOT / "book").glob("*.md")), *sorted((ROOT / "notebooks").glob("*.ipynb")), ROOT / "README.md",
         ROOT / "CONTRIBUTING.md", ROOT / "pyproject.toml", ROOT / "CITATION.cff",
         *sorted((ROOT / "hwdesign").rglob("*.py")), *sorted((ROOT / "hwdesign").rglob("*.txt"))]  # fmt: skip
TOO_MUCH = re.compile(r"\b(any|arbitrary)\s+`*config|\b(every|all|each)\s+`*config\.json|\b(any|every|all) Hugging Face", re.I)


def text(path):
    """Words of a page; of a notebook those of its cells."""
    words = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        words = "\n\n".join("".join(cell["source"]) for cell in json.loads(words)["cells"])
    return words


@pytest.mark.parametrize("page", SAID)
def test_a_page_says_how_many_model_types_are_read(page):
    said = re.findall(r"(\d+) model types", text(ROOT / page).split("\n## 0.2.0")[0])
    assert said, f"{page} must say '{len(TYPES)} model types'"
    assert set(said) == {str(len(TYPES))}, f"{page} says {', '.join(said)} model types; {len(TYPES)} are read"


@pytest.mark.parametrize("page", ["README.md", "book/checking.md"])
def test_a_page_says_how_many_types_are_counted_against_transformers(page):
    table = list(csv.DictReader((ROOT / "scripts" / "counts_against_transformers.csv").open(encoding="utf-8")))
    (said,) = re.findall(r"(\d+) of (?:these|the) types are counted against the module trees of transformers", text(ROOT / page))
    assert int(said) == len(table)


def test_no_other_page_counts_them():
    """A page with the number is listed, so that nobody misses it where a reader is added."""
    counted = {path.relative_to(ROOT).as_posix() for path in PAGES if re.search(r"\b\d+ model types", text(path))}
    assert counted <= set(SAID)


def test_no_page_promises_to_read_every_config():
    found = [f"{path.name}: {match[0]}" for path in PAGES for match in TOO_MUCH.finditer(text(path))]
    assert not found


def test_every_type_that_is_counted_has_a_reader_and_any_other_is_refused_by_its_name():
    for kind in TYPES:
        try:  # its reader is found, and asks for the sizes, or takes those of the class
            config.load({"model_type": kind})
        except ValueError as error:
            assert "model_type" not in str(error), kind
    for kind in ("bert", "t5", "whisper", "llama5", "", "LLAMA", "qwenn"):
        with pytest.raises(ValueError, match=rf"'model_type' must be one of the {len(TYPES)} model types") as error:
            config.load({"model_type": kind, "hidden_size": 64})
        assert repr(kind) in str(error.value) and "\n" not in str(error.value)


def test_the_glossary_has_the_kinds_of_blocks_that_a_sheet_prints():
    data = ROOT / "tests" / "data"
    rows = csv.DictReader((data / "class_defaults_2026.csv").open(encoding="utf-8"))
    configs = [json.loads(row["config"]) for row in rows] + list(configs_2026().values())
    parts = {part for source in configs for block in config.load(source).blocks for part in block.kind.split(" + ")}
    parts = {kind for part in parts for kind in part.split(" beside ")}
    kinds = {re.sub(r"^\d+ |,? (window|top|cache|to|\d).*", "", kind) for kind in parts} - {"dense"}
    page = (ROOT / "book" / "glossary.md").read_text(encoding="utf-8")
    assert len(kinds) > 12 and not [kind for kind in sorted(kinds) if f"\n\n{kind}\n  " not in page]
    terms = re.findall(r"\n\n(\S.*)\n  ", page)
    assert terms == sorted(terms, key=str.lower) and {"hyper-connections", "latent experts", "prediction layer"} <= set(terms)
