"""Prose pages: generated ones are fresh, examples in them run, and they say what they must."""

import csv
import doctest
import functools
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BOOK = ROOT / "book"


def generator():
    spec = importlib.util.spec_from_file_location("generate_pages", ROOT / "scripts" / "generate_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["hardware", "accuracy", "exam", "your_machine", "gallery", "blocks", "designing", "api"])
def test_generated_pages_are_fresh(page):
    fresh = generator().PAGES[page]()
    assert (BOOK / f"{page}.md").read_text(encoding="utf-8") == fresh, "run: python scripts/generate_pages.py"


@pytest.mark.parametrize("page", sorted(BOOK.glob("*.md")) + [ROOT / "README.md"], ids=lambda p: p.stem)
def test_examples_in_pages_run(page):
    if page.stem == "api":
        pytest.skip("its examples are the docstrings', which run as doctests of the package")
    failed, _ = doctest.testfile(str(page), module_relative=False)
    assert failed == 0


def test_the_report_on_the_page_about_checking_is_what_the_command_prints(capsys, monkeypatch):
    from hwdesign.cli import main

    monkeypatch.setenv("COLUMNS", "100")
    (shown,) = re.findall(r"```console\n\$ hwdesign (.*?)\n(.*?)```", (BOOK / "checking.md").read_text(encoding="utf-8"), re.S)
    assert main(shown[0].split()) == 1 and capsys.readouterr().out == shown[1]


def test_options_on_the_page_about_checking_are_those_of_the_command(capsys):
    from hwdesign.cli import main

    with pytest.raises(SystemExit):
        main(["check", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    table = (BOOK / "checking.md").read_text(encoding="utf-8").split("| option |")[1].split("\n\n")[0]
    told = set(re.findall(r"`(--[a-z-]+)", table))
    assert told <= known and known - told == {"--help", "--color", "--json"}  # the last is one of hwdesign measure


def test_api_page_lists_every_public_function_and_class():
    import inspect

    import hwdesign

    text = (BOOK / "api.md").read_text(encoding="utf-8")
    names = [n for n in hwdesign._HOME if inspect.isfunction(getattr(hwdesign, n)) or inspect.isclass(getattr(hwdesign, n))]
    assert set(names) == set(re.findall(r"^### (\w+)$", text, re.M))


def test_catalogue_page_shows_every_row_with_its_source():
    from hwdesign.catalogue.device import device_names, rows

    text = (BOOK / "hardware.md").read_text(encoding="utf-8")
    sections = dict(zip(device_names(), text.split("\n### ")[1:], strict=True))
    for row in rows():
        assert f"{row['source']}; read {row['accessed']}" in sections[row["device"]]
    for name, section in sections.items():
        lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
        assert len(lines) == sum(row["device"] == name for row in rows())
    assert "24.2%" in text and "48.5%" in text  # the MFU of fms-fsdp issue 89 against both peaks


def test_preface_states_the_three_words():
    text = (BOOK / "preface.md").read_text(encoding="utf-8")
    for word in ("modelled", "published", "measured"):
        assert f"\n{word}\n: " in text


def test_published_points_of_cut_experts_are_as_many_as_the_page_says():
    from hwdesign.timing.silicon import measurements

    points = measurements("serving", model="gpt-oss-120b", moe_tp=8)
    assert f"holds {len(points['tpot'])} points of gpt-oss-120b" in (BOOK / "checking.md").read_text(encoding="utf-8")


def test_what_breaks_on_the_page_about_checking_are_rules_of_the_table():
    from hwdesign.advice.breaks import rules
    from hwdesign.models.parts import Side

    text = (BOOK / "checking.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if re.match(r"\| (vLLM|SGLang|TensorRT)", line)]
    kinds = {"query heads": "query heads", "key-value heads": "key-value heads", "vocabulary, after padding to 64": "vocabulary",
             "inputs of a matrix": "input", "width of experts": "experts", "number of experts": "expert set"}  # fmt: skip
    forms = {"any": (), "FP8": ("fp8_128x128",), "NVFP4": ("nvfp4",), "INT4": ("int4_g128",), "BF16": ("bf16",)}
    table = (ROOT / "hwdesign" / "advice" / "refusals.csv").read_text(encoding="utf-8")
    rows = len(list(csv.DictReader(table.splitlines())))
    assert len(lines) > 10 and f"`hwdesign/advice/refusals.csv`, {rows} rows of them" in text
    for line in lines:
        engine, what, form, need, source = (cell.strip() for cell in line.split("|")[1:-1])
        side = Side(kind=kinds[what], name="", size=1, ways=1, part="ffn")
        about = (side.kind, forms[form.split(",")[0]], source.partition("]")[2])
        found = [rule for rule in rules() if (rule.side, rule.formats, f"({rule.source})") == about]
        (rule,) = (rule for rule in found if rule.refusal(side).engine == engine)
        assert need.startswith("whole" if rule.multiple == 1 else f"a multiple of {rule.multiple}")
        assert ("Blackwell" in form) == bool(rule.devices) and (rule.padded == 64) == ("64" in what)


def test_the_hook_on_the_page_about_checking_is_of_this_version():
    import hwdesign

    assert f"    rev: v{hwdesign.__version__}\n" in (BOOK / "checking.md").read_text(encoding="utf-8")


def exam_page():
    return generator().exam


def test_a_slice_that_is_far_off_must_have_a_cause(monkeypatch):
    page = exam_page()
    worst = next(iter(page.high_slices()))
    monkeypatch.delitem(page.CAUSES, worst)
    with pytest.raises(ValueError, match=f"must have a cause .* got none of {' '.join(worst)}"):
        page.high_slices()


def test_the_blind_part_prints_what_falls_with_its_commit(monkeypatch, tmp_path):
    page = exam_page()
    ruler = functools.partial(page.ruled, generator().table)
    monkeypatch.setattr(page.exam, "DATA", tmp_path)
    assert "was **not run yet**" in page.blind_section(ruler)
    columns = ("commit", *page.exam.KEY, "tpot", *page.exam.TOOLS, "low", "high")
    same = dict.fromkeys(columns, "1") | {"commit": "0123abc", "model": "phi-4", "aiconfigurator": ""}
    rows = [{"tpot": "0.01", "hwdesign": "0.011", "aisimulate": "0.02", "low": "0.009", "high": "0.012"},
            {"tpot": "0.02", "hwdesign": "0.022", "aisimulate": "0.02", "low": "0.021", "high": "0.023"}]  # fmt: skip
    with open(tmp_path / "blind.csv", "w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, columns)
        writer.writeheader()
        writer.writerows(same | row for row in rows)
    text = page.blind_section(ruler)
    assert "commit `0123abc`" in text
    assert "| phi-4 | hwdesign | 2 | 10 | 10 | 10 | 100 | +10 | 50 |" in text
    assert "| phi-4 | aisimulate | 2 | 50 | 50 | 90 | 50 | +50 | – |" in text
    assert "| phi-4 | aiconfigurator | 0 | – |" in text


def test_the_exam_says_when_another_tool_is_level_or_ahead_over_all_points():
    page = exam_page()
    errors = {tool: {"median": median, "mean": 11.0} for tool, median in zip(page.exam.TOOLS, (7.74, 7.70, 9.0), strict=True)}
    assert "aisimulate has 7.7 % (mean 11.0 %), this model 7.7 % (mean 11.0 %)." in page.level_sentence(errors)
    assert "aiconfigurator" not in page.level_sentence(errors)
    errors["aisimulate"]["median"] = 7.8
    assert page.level_sentence(errors) == "Over all points no other tool has as low a median."
    medians = dict(zip(page.exam.TOOLS, (11.6, 7.7, 10.4), strict=True))
    assert "both planners have the lower median: 7.7 % (aisimulate) and 10.4 % (aiconfigurator) against 11.6 %." in (
        page.apart_sentence(medians)
    )
    assert "another tool has the lower median: 10.4 % (aiconfigurator)" in page.apart_sentence(medians | {"aisimulate": 12})
    assert "no other tool" in page.apart_sentence(dict.fromkeys(page.exam.TOOLS, 9.0))


def test_the_exam_says_first_where_another_tool_is_better():
    text = (BOOK / "exam.md").read_text(encoding="utf-8")
    assert text.index("## Where another tool is better") == text.index("\n## ") + 1
