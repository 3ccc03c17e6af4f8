"""Reports of the design checklist: formats valid against their schemas, hostile names harmless in each, HTML for everyone."""

import functools
import importlib.metadata
import json
import math
import re
import tomllib
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import unquote

import pytest
from conftest import ROOT

import hwdesign as hw
from hwdesign.advice import report_facts, report_sarif
from hwdesign.advice.case import Case, enough, short_plans
from hwdesign.advice.guidelines import GUIDELINES, Guideline
from hwdesign.advice.judge import judge
from hwdesign.advice.report import FORMATS, as_object, render
from hwdesign.advice.report import schema as report_schema
from hwdesign.advice.safe import code_span, markdown_text, visible
from hwdesign.advice.verdict import Finding, Limits, Verdict, percent
from hwdesign.cli import main
from hwdesign.models import config
from hwdesign.models.steps import Plan

ADVICE = ROOT / "hwdesign" / "advice"
LLAMA = {"model_type": "llama", "hidden_size": 1088, "intermediate_size": 4096, "num_hidden_layers": 4, "vocab_size": 32000,
         "num_attention_heads": 17, "head_dim": 64, "num_key_value_heads": 17}  # fmt: skip
TP8, FP8 = dict(zip(("attention", "ffn"), short_plans(tp=8), strict=True)), {"device": "H100_SXM", "recipe": "fp8_block"}
EP8 = dict(zip(("attention", "ffn"), short_plans(tp=8, ep=8), strict=True))
HOSTILE = {
    "script": "</script><script>alert(1)</script>",
    "style": "</style><img src=x onerror=alert(1)>",
    "quotes": "\"'><b onclick='x'>",
    "colour": "\x1b[31mred\x1b[0m",
    "clear": "\x1b[2J\x9b2J\x08\x08\x7f",
    "osc8": "\x1b]8;;https://example.org\x07click\x1b]8;;\x07",
    "bidi": "safe\u202egnp.exe\u2066\u200f",
    "unseen": "a\u034f\u115f\u3164\ufe0f\u180b\u17b4\uffa0\u200b\U000e0041\U000e0101b",
    "command": "::error::x",
    "command inside": "x ::set-output name=a::b ##[error]y " * 3,
    "vso": "##vso[task.x]y ###vso[a] ##teamcity[b] ####",
    "table": "a | b |\n| c | d |\r\n\n# heading\n\n- item",
    "mention": "@everyone @org/team #1 GH-1 owner/repo#2",
    "link": "[x](javascript:alert(1)) ![y](https://example.org/y.png) <https://example.org> https://example.org www.example.org",
    "backslash": "\\[a\\](b) \\",
    "entity": "&lt;b&gt; &#60;i&#62; ${PATH} {0} {{1}} $title %s",
    "emphasis": "*a* _b_ ~~c~~ **d** `e` $f$",
    "ticks": "` `` ``` ```` `````",
    "only ticks": "`" * 50,
    "spaces": "   ",
    "long": "A" * 10_000,
    "long words": "word " * 2_000,
    "surrogate": "a\ud800b\udcffc",
    "nul": "a\0b",
    "separators": "a\u2028b\u2029c\x85d\x0be",
    "emoji": "\U0001f600\u200d\U0001f468",
}
hostile = pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)


@functools.cache
def named(name):
    """A report with findings about a model of this name, which is also its config, and an error about it."""
    return judge({**LLAMA, "_name_or_path": name}, **FP8)


def rendered(name, form):
    return render([named(name), named(name)], form, errors=[visible(f"{name}: no config", 1000)])


@functools.cache
def schema(path, kind):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    return getattr(jsonschema, kind)(json.loads(Path(path).read_text(encoding="utf-8")))


def assert_valid_json(text):
    schema(ADVICE / "report.schema.json", "Draft202012Validator").validate(json.loads(text))


def assert_valid_sarif(text):
    """The schema, and what it does not see: rules that exist, messages whose braces and brackets are no syntax."""
    log = json.loads(text)
    schema(ROOT / "tests" / "data" / "sarif-schema-2.1.0.json", "Draft4Validator").validate(log)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(GUIDELINES) + 1
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] and result["level"] in ("warning", "error")
        (location,) = result["locations"]
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"(file:///)?[A-Za-z0-9._~%/-]+", uri) and "\\" not in uri
        assert location["physicalLocation"]["region"]["startLine"] >= 1
        assert list(result["partialFingerprints"]) == ["hwdesign/v1"]
    for message in [r["message"] for r in run["results"]] + [
        n["message"] for n in run["invocations"][0]["toolExecutionNotifications"]
    ]:
        text = message["text"]
        assert not re.search(r"(?<!\\)(\\\\)*[\[\]]", text), "a bracket that could be a link"
        assert not re.search("[{}]", text.replace("{{", "").replace("}}", "")), "a brace that could be a placeholder"


# Facts.


def test_schema_is_a_schema():
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    jsonschema.Draft202012Validator.check_schema(json.loads((ADVICE / "report.schema.json").read_text(encoding="utf-8")))


def test_schema_is_what_the_table_of_guidelines_makes_of_it():
    text = (ADVICE / "report.schema.json").read_text(encoding="utf-8")
    assert text == json.dumps(report_schema(), indent=1) + "\n", "run: python scripts/generate_pages.py"


def test_a_stage_that_is_long_by_its_head_is_valid_too():
    report = judge("gpt2", device="GB200", recipe="nvfp4", context=128, attention=Plan(pp=4), ffn=Plan(pp=4))
    assert "last stage" in [finding.dimension for finding in report.checklist.findings]
    assert_valid_json(render([report], "json"))


def test_an_eighth_guideline_is_an_entry_of_one_table(monkeypatch, capsys):
    """In every format, in the schema and among what may be ignored."""

    def even(case, limits):
        if len(case.model.blocks) % 5 == 0:
            return Verdict.of("a whole number of hands")
        found = Finding(dimension="hands", value="12", rule="fives", status="warn", cost=0.07, subject="layers")
        return Verdict.of("fingers are left", [found])

    entry = {"chapter": "08_whole_hands", "title": "Whole hands", "short": "hands", "about": "Layers come in fives."}
    toy = Guideline(number=8, rule=even, blames=("hands",), share_of="the fingers", **entry)
    monkeypatch.setitem(GUIDELINES, 8, toy)
    report = judge("gpt2")
    assert [v.guideline for v in report.checklist.verdicts] == list(range(1, 9))
    for form in ("text", "markdown", "html"):
        text = render([report], form)
        for words in ("Whole hands", "fingers are left", "hands", "7.0 % of the fingers"):
            assert words in text, (form, words)
    assert "<caption>Eight guidelines</caption>" in render([report], "html")
    as_json, log = json.loads(render([report], "json")), render([report], "sarif")
    assert as_json["reports"][0]["verdicts"][7]["findings"][0]["dimension"] == "hands"
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    jsonschema.Draft202012Validator(report_schema()).validate(as_json)
    assert_valid_sarif(log)
    (result,) = [r for r in results(report) if r["ruleId"] == "hwdesign/8-whole-hands"]
    lines = (ROOT / "hwdesign" / "models" / "configs" / "gpt2.json").read_text(encoding="utf-8").splitlines()
    assert result["ruleIndex"] == 7 and '"n_layer"' in lines[place(result)[1] - 1]
    assert main(["check", "gpt2", "--ignore", "2,4,8", "--format", "json"]) == 0
    ignored = json.loads(capsys.readouterr().out)
    assert ignored["reports"][0]["ignored_guidelines"] == [2, 4, 8] and ignored["reports"][0]["status"] == "ok"
    jsonschema.Draft202012Validator(report_schema()).validate(ignored)


@pytest.mark.parametrize("options", [{}, {"device": "H100_SXM", "recipe": "fp8", **TP8}], ids=["defaults", "H100 fp8 tp 8"])
@pytest.mark.parametrize("name", config.names())
def test_json_and_sarif_of_every_shipped_config_are_valid(name, options):
    report = judge(name, **options)
    assert_valid_json(render([report], "json"))
    assert_valid_sarif(render([report], "sarif"))
    found = [finding for verdict in report.facts["verdicts"] for finding in verdict["findings"]]
    assert len(found) == len(report.checklist.findings)
    assert report.status == report.checklist.status and report.facts["fits"] is report.checklist.fits
    assert all(finding["fix"] is None or finding["fix"]["change"] for finding in found), "a fix that changes nothing"
    for form in ("text", "markdown", "html"):
        text = render([report], form)
        assert not re.search(r"-0\.0\b|\bnan\b|\bNone\b", text)
        assert text.count("of the step") >= len(found)


def test_facts_are_those_of_the_checklist():
    report = judge("qwen2.5-72b", **FP8, **TP8)
    facts, case = report.facts, report.checklist.case
    assert facts["step_seconds"] == case.seconds and facts["gpus"] == 8 and facts["fits"] is True and facts["refusal"] is None
    assert facts["memory_bytes"] == case.breakdown.memory and facts["capacity_bytes"] == 80e9
    assert facts["model"]["parameters"] == 72_706_203_648 and facts["device"] == "H100_SXM"
    width = facts["verdicts"][1]["findings"][0]
    assert (width["dimension"], width["value"], width["status"]) == ("feed-forward width", "29568 / 8 = 3696", "fail")
    assert width["fix"]["change"] == {"feed_forward_width": {"before": [29568], "after": [29696]}}
    assert 0 < width["cost_share"] < 0.001 and width["fix"]["width_share"] == pytest.approx(128 / 29568)
    plan = facts["verdicts"][6]["findings"][0]["fix"]["change"]
    assert list(plan) == ["attention"] and plan["attention"]["before"] == {"tp": 8, "kvp": 1, "dp": 1, "pp": 1}


def test_what_nobody_gave_is_said_to_be_a_default():
    alone, given = judge("gpt2"), judge("gpt2", **FP8, **TP8 | {"attention": Plan(tp=4), "ffn": Plan(tp=4)}, batch=8, context=100,
                                        limits=Limits(warn=0.1))  # fmt: skip
    assert alone.facts["defaults"] == ["device", "recipe", "attention", "ffn", "batch", "context", "limits"]
    assert render([alone], "text").count("(default") == 6 and given.facts["defaults"] == []
    assert "(default" not in (text := render([given], "text"))
    for part in ("H100_SXM", "fp8_block (as asked)", "--attention tp=4 --ffn tp=4: 4 GPUs", "batch 8, context 100", "from 10 %"):
        assert part in text
    assert [judge(n).facts["recipe_from"] for n in ("gpt2", "gpt-oss-20b")] == ["default", "checkpoint"]
    assert judge("gpt-oss-20b").facts["recipe"] == "mxfp4"


def test_notes_and_warnings_reach_the_reader_in_one_line(recwarn):
    report = judge("gpt-oss-20b", device="H100", recipe="w4a16")
    assert not recwarn.list
    device, uncalibrated = report.facts["notes"]
    assert "taking H100_SXM" in device and uncalibrated.startswith("uncalibrated: recipe w4a16 takes the constants of bf16; ")
    for form in FORMATS:
        assert render([report], form).count("taking H100") == (2 if form == "sarif" else 1), form  # there in the settings, too


def test_a_model_that_does_not_fit_is_said_loudly():
    report = judge("qwen2.5-72b", recipe="fp8")
    small = judge("qwen2.5-72b", device="L4")
    assert report.facts["fits"] and "DOES NOT FIT" not in render([report], "text")
    for form in ("text", "markdown", "html"):
        assert render([small], form).count("DOES NOT FIT") >= 2
    assert small.facts["fits"] is small.checklist.fits is False and small.checklist.status == "fail"
    for form in ("text", "markdown", "html"):
        assert "does not fit: FAIL; 1 fail, 3 ok, 3 not applicable" in render([small], form)
    (result,) = [r for r in results(small) if r["ruleId"] == "hwdesign/0-memory"]
    assert (result["ruleIndex"], result["level"]) == (len(GUIDELINES), "error") and place(result)[1] == 1
    assert result["message"]["text"] == (
        "qwen2.5-72b on L4, DOES NOT FIT: needs 317 of 24 GB on the fullest GPU, weights and cache."
    )
    assert_valid_sarif(render([small], "sarif"))


EIGHT = {"device": "H100_SXM", "recipe": "fp8", "attention": Plan(dp=8), "ffn": Plan(ep=8)}


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("deepseek-r1", {"recipe": "nvfp4"}, "2 GPUs hold it: --attention tp=2 --ffn tp=2"),
        ("qwen2.5-72b", {"device": "H100_SXM"}, "4 GPUs hold it: --attention tp=4 --ffn tp=4"),
        ("deepseek-r1", EIGHT, "16 GPUs hold it: --attention tp=2,dp=8 --ffn ep=16"),
        ("qwen2.5-72b", {"device": "B200", "batch": 512}, "needs 1520 of 180 GB"),
        ("qwen2.5-72b", {"device": "RTX_4090"}, ""),  # no link
        ("qwen2.5-72b", {"device": "H100_SXM", "batch": 4096}, ""),  # eight key-value heads, copied from there on
    ],
)
def test_the_fewest_gpus_that_hold_a_model_are_named(name, options, says):
    report = judge(name, **options)
    more = enough(report.checklist.case)
    assert says in report.need and (more is not None) is ("GPUs hold it" in report.need) is bool(says)
    if says:
        assert more.breakdown.feasible and report.need in dict(report.head)["memory"]
        half = replace(more, attention=replace(more.attention, tp=more.attention.tp // 2), ffn=_halved(more.ffn))
        assert not half.breakdown.feasible
    assert judge("gpt2").need == judge("gpt2", **TP8).need == ""


def _halved(ffn):
    return replace(ffn, **({"ep": ffn.ep // 2} if ffn.ep > 1 else {"tp": ffn.tp // 2}))


def test_all_that_a_fix_changes_is_told_where_its_text_names_half():
    (finding,) = judge("qwen3-30b-a3b", **EP8).facts["verdicts"][2]["findings"]
    assert finding["fix"]["text"] == "29 layers of hidden size 2688"
    words = "hidden size 2048 -> 2688, layers 48 -> 29, query heads 32 -> 40, expert width 768 -> 1024"
    for form in ("text", "markdown", "html"):
        assert words in render([judge("qwen3-30b-a3b", **EP8)], form).replace("&gt;", ">")
    assert f"change: {words}" in results(judge("qwen3-30b-a3b", **EP8))[0]["message"]["text"]
    width = judge("qwen2.5-72b", **FP8, **TP8)
    assert [[label for label, _ in width.details(f, 2)] for f in width.facts["verdicts"][1]["findings"]] == [
        ["rule", "cost", "fix", "price", "note"]
    ]


@pytest.mark.parametrize(
    ("text", "change", "says"),
    [
        ("recipe fp8", {"recipe": ("bf16", "fp8"), "attention": (1, 2)}, ""),
        ("29 layers", {"layers": (48, 29), "query_heads": ([32], [29])}, "layers 48 -> 29, query heads 32 -> 29"),
        ("width 8", {"expert_width": ([4, 7], [7, 8])}, ""),
        ("wider", {"expert_width": ([4, 7], [8])}, "expert width 4 and 7 -> 8"),
        ("no width 7", {"expert_width": ([4, 7], [7])}, "expert width 4 and 7 -> 7"),
        ("none", {"experts": ([8], []), "vocab_size": (5, 6)}, "experts 8 -> none, vocabulary 5 -> 6"),
        ("12 layers", {"layer_kinds": ([0, 1], [1, 0]), "layers": (10, 12)}, ""),
    ],
)
def test_changes_in_words(text, change, says):
    pairs = {name: dict(zip(("before", "after"), pair, strict=True)) for name, pair in change.items()}
    assert report_facts.changes({"text": text, "change": pairs}) == says


def test_a_cost_that_is_no_price_is_explained():
    def note(name, guideline, **options):
        report = judge(name, **options)
        return dict(report.details(report.facts["verdicts"][guideline - 1]["findings"][0], guideline)).get("note")

    assert note("qwen3-30b-a3b", 3, **EP8) == GUIDELINES[3].puzzle
    assert note("gpt-oss-120b", 2) == GUIDELINES[2].puzzle
    assert note("gpt2", 2) is note("gpt2", 4) is None  # as good as equal, and equal


def test_ignored_guidelines_are_marked_and_counted_apart():
    report = judge("qwen3-30b-a3b", ignore=(4, 5), **EP8)
    assert report.status == "warn" and report.checklist.status == "fail"
    assert report.summary == "2 warn, 2 ok, 1 not applicable; ignored: 1 fail, 1 ok"
    for form in ("text", "markdown", "html"):
        text = re.sub(r"<[^>]*>", "", render([report], form))
        assert report.summary in text and text.count("(ignored)") == 3  # two verdicts, one finding


def test_several_configs_end_in_a_list():
    reports = [judge("gpt2"), judge("qwen2.5-72b", device="L4")]
    assert render(reports, "text", errors=["x.json: no"]).splitlines()[-4:] == [
        "3 configs: 2 fail, 1 not judged", "  FAIL     gpt2", "  FAIL     qwen2.5-72b, does not fit", "  bad      x.json: no",
    ]  # fmt: skip
    assert render(reports, "markdown", errors=["x.json: no"]).splitlines()[:7] == [
        "3 configs: 2 fail, 1 not judged", "", "| | config |", "| :-- | :-- |", "| **FAIL** | `gpt2` |",
        "| **FAIL** | `qwen2.5-72b`, does not fit |", "| **bad** | `x.json: no` |",
    ]  # fmt: skip
    assert "config |" not in render(reports[:1], "markdown") and "configs" not in render(reports[:1], "text")


def test_a_config_in_the_current_folder_bears_the_folder_s_name(tmp_path, monkeypatch):
    (tmp_path / "mine" / "below").mkdir(parents=True)
    (tmp_path / "mine" / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "blob").write_text(json.dumps(LLAMA))
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "config.json").symlink_to(tmp_path / "blob")
    monkeypatch.chdir(tmp_path / "mine" / "below")
    assert judge("../config.json").title[0] == "mine" and judge("../../linked/config.json").title[0] == "linked"
    monkeypatch.chdir(tmp_path / "mine")
    assert judge("config.json").title[0] == "mine" and judge("config.json").facts["config"] == "config.json"


# In Python.


def test_a_checklist_shows_itself():
    found = hw.checklist(hw.Case(model="gpt-oss-120b"))
    assert repr(found) == "<Checklist gpt-oss-120b on GB300: warn>"
    title, *lines = str(found).splitlines()
    assert title == "gpt-oss-120b on GB300: warn" and [int(line[0]) for line in lines] == list(GUIDELINES)
    assert lines[1].startswith("2 warn            hidden size 2880, 0.4 %: hidden size 2944; expert width 2880, ")
    small = hw.checklist(hw.Case(model="qwen2.5-72b", device="L4", recipe="fp8"), Limits(warn=1, fail=1))
    assert repr(small) == "<Checklist qwen2.5-72b on L4, does not fit: fail>" and small.fits is False
    refused = hw.checklist(hw.Case(model="gpt2", **TP8))
    assert refused.fits is None and refused.status == "fail" and "8 x GB300: fail" in repr(refused)
    ugly = hw.checklist(hw.Case(model={**LLAMA, "_name_or_path": "\x1b[31m"}))
    assert "\x1b" not in repr(ugly) + str(ugly)


def test_a_case_takes_a_model_by_name_or_path(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    for source in (tmp_path / "config.json", str(tmp_path / "config.json")):
        assert hw.Case(model=source).model.name == tmp_path.name
    assert hw.Case(model="gpt2") == hw.Case(model=hw.Model.from_config("gpt2"))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: hw.checklist("gpt2"), r"case must be a Case, as in Case\(model='gpt2'\), got 'gpt2'"),
        (lambda: hw.checklist(hw.Case(model="gpt2"), 0.1), "limits must be Limits, .* got 0.1"),
        (lambda: hw.Case(model=3), "model must be a Model, the path of a config.json or a shipped name, got 3"),
        (lambda: hw.Case(model="gpt3"), "model must be a model's folder, the path .* no file 'gpt3'; did you mean 'gpt2'"),
        (lambda: hw.Case(model="gpt2", ffn="tp=8"), r"ffn must be a Plan, as in Plan\(tp=8\), got 'tp=8'"),
        (lambda: hw.Case(model="gpt2", ffn=Plan(tp=2)), "must use the same GPUs, got 1 and 2: --attention tp=1 --ffn tp=2$"),
    ],
)
def test_wrong_types_are_named(call, says):
    with pytest.raises(ValueError, match=says) as error:
        call()
    assert "\n" not in str(error.value)


def test_plans_that_cannot_run_are_a_finding_or_refused(monkeypatch):
    report = judge("gpt2", **TP8)
    assert report.facts["step_seconds"] is None and report.facts["fits"] is None
    for form in ("text", "markdown", "html"):
        assert render([report], form).count("must divide") == 2  # in the head and in the verdict that it is about
    for form, check in (("json", assert_valid_json), ("sarif", assert_valid_sarif)):
        check(render([report], form))
    monkeypatch.setattr(
        "hwdesign.advice.judge.checklist", lambda case, limits: hw.Checklist(case=case, limits=Limits(), verdicts=())
    )
    with pytest.raises(
        ValueError, match="plans must be able to run the model, got --attention tp=8 --ffn tp=8: attention tp must"
    ):
        judge("gpt2", **TP8)


def test_a_checkpoint_that_the_device_cannot_multiply_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match="recipe must be one of bf16, fp8, fp8_block, w4a16, .* for H100_SXM .* got 'mxfp4'"):
        judge("gpt-oss-20b", device="H100_SXM")
    assert judge("gpt-oss-20b", device="H100_SXM", recipe="fp8").facts["recipe_from"] == "option"


def test_sources_are_named(tmp_path):
    file = tmp_path / "m" / "config.json"
    file.parent.mkdir()
    file.write_text(json.dumps(LLAMA))
    assert judge(file).facts["config"] == str(file) and judge(file).title[0] == "m"
    assert judge(LLAMA).facts["config"] == "llama"


def test_the_site_has_one_home(monkeypatch):
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    texts = [p.read_text(encoding="utf-8") for p in ADVICE.iterdir() if p.is_file()] + [(ROOT / "hwdesign/cli.py").read_text()]
    assert urls["Documentation"].startswith("https://") and not any("github.io" in text for text in texts)
    fake = importlib.metadata.PathDistribution(Path("/nowhere")).metadata
    fake["Project-URL"] = "Repository, https://example.org/r"
    monkeypatch.setattr(importlib.metadata, "metadata", lambda name: fake)
    report_facts.chapter.cache_clear()
    assert report_facts.chapter(1) is None
    for form in FORMATS:  # without an address all else stands
        text = render([judge("gpt2")], form)
        assert "notebooks/" not in text and GUIDELINES[1].title in text
    fake["Project-URL"] = "Documentation, https://example.org/book/"
    report_facts.chapter.cache_clear()
    for guideline in GUIDELINES:
        page = report_facts.chapter(guideline).removeprefix("https://example.org/book/").removesuffix(".html")
        assert (ROOT / f"{page}.ipynb").is_file()
    report = judge("gpt2")
    for form in FORMATS:
        assert "https://example.org/book/notebooks/02_tile_alignment.html" in render([report], form), form
    assert_valid_json(render([report], "json"))
    assert_valid_sarif(render([report], "sarif"))

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "metadata", missing)
    report_facts.chapter.cache_clear()
    assert report_facts.chapter(1) is None
    report_facts.chapter.cache_clear()


def test_data_files_ship_with_the_package():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["hwdesign.advice"]
    data = [p.name for p in ADVICE.iterdir() if p.is_file() and p.suffix != ".py"]
    assert data and all(any(fnmatch(name, pattern) for pattern in patterns) for name in data)


# Text.


def test_text_reads_without_colour_and_says_the_same_with_it():
    reports = [judge("qwen2.5-72b", **FP8, **TP8), judge("qwen3-235b-a22b", **TP8)]
    plain, coloured = render(reports, "text"), render(reports, "text", colour=True)
    assert "\x1b" not in plain and re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain != coloured
    lines = plain.splitlines()
    assert lines[0] == "qwen2.5-72b on 8 x H100_SXM: FAIL"
    assert [line.split()[0] for line in lines[11:20] if re.match(r"  [\w/?]+ +[1-7] ", line)] == [
        "ok",
        "FAIL",
        "ok",
        "ok",
        "n/a",
        "n/a",
        "WARN",
    ]
    assert "    cost   <0.1 % of the step; a failure since engines refuse the shape" in lines
    assert "    price  width +0.4 %, parameters +0.3 %, step +0.1 %; makes no guideline worse" in lines
    assert "FAIL: 1 fail, 1 warn, 3 ok, 2 not applicable" in lines and "2 configs: 2 fail" in lines
    assert all(len(line) <= 100 for line in lines)
    narrow = render(reports, "text", width=60).splitlines()
    assert all(len(line) <= 60 or "https://" in line for line in narrow)


def test_what_a_fix_makes_worse_is_told():
    report = judge("qwen3-235b-a22b", device="B200", recipe="nvfp4", attention=Plan(dp=8), ffn=Plan(tp=8))
    worse = [w for v in report.facts["verdicts"] for f in v["findings"] for w in f["fix"]["worsens"]]
    assert worse
    for form in ("text", "markdown", "html"):
        text = render([report], form).replace("&gt;", ">")
        assert f"guideline {worse[0]['guideline']} worse: {worse[0]['before']} -> {worse[0]['after']}" in text


def test_unknown_formats_are_refused():
    with pytest.raises(ValueError, match="format must be one of text, markdown, json, sarif, html, got 'xml'"):
        render([], "xml")


@pytest.mark.parametrize(("share", "says"), [(0.0, "0 %"), (1e-9, "<0.1 %"), (5e-4, "0.1 %"), (0.2, "20.0 %")])
def test_costs_in_words(share, says):
    assert math.copysign(1, report_facts._plain(-share)) == (-1 if share else 1)
    assert percent(share) == says


@pytest.mark.parametrize(("share", "says"), [(0.0, "unchanged"), (-1e-4, "within 0.1 %"), (-0.05, "-5.0 %"), (0.001, "+0.1 %")])
def test_prices_in_words(share, says):
    assert report_facts._signed(share) == says


# SARIF.


def results(report, errors=()):
    return report_sarif.sarif([report], errors)["runs"][0]["results"]


def place(result):
    place = result["locations"][0]["physicalLocation"]
    return place["artifactLocation"]["uri"], place["region"]["startLine"]


def test_sarif_points_at_the_key_that_carries_the_dimension(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "a b%é"
    folder.mkdir()
    values = {"architectures": ["X"], "vision_config": {"hidden_size": 7, "vocab_size": 1}, "vocab_size": 5,
              "text_config": {**LLAMA, "vocab_size": 32001}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(values, indent=2))
    lines = (folder / "config.json").read_text().splitlines()
    found = results(judge("a b%é/config.json", **FP8))
    assert {place(r)[0] for r in found} == {"a%20b%25%C3%A9/config.json"}
    seen = {r["message"]["text"].split(" on ")[0].rstrip("0123456789 /="): lines[place(r)[1] - 1].strip() for r in found}
    assert seen["hidden size"] == '"hidden_size": 1088,' and seen["vocabulary"] == '"vocab_size": 32001,'
    outside = place(results(judge(str(Path("..") / tmp_path.name / "a b%é" / "config.json")))[0])[0]
    assert outside == "a%20b%25%C3%A9/config.json"
    monkeypatch.chdir(folder)
    monkeypatch.chdir(Path(folder.root))
    assert place(results(judge(str(folder / "config.json")))[0])[0].endswith("/a%20b%25%C3%A9/config.json")


def test_sarif_of_a_shipped_model_points_at_its_config(monkeypatch):
    monkeypatch.chdir(ROOT)
    for name in ("gpt2", "qwen3-235b-a22b", "llama-3.3-nemotron-super-49b", "deepseek-r1"):
        text = (ROOT / "hwdesign" / "models" / "configs" / f"{name}.json").read_text().splitlines()
        report = judge(name, attention=Plan(tp=4, pp=4), ffn=Plan(tp=4, pp=4))
        told = [result for result in results(report) if result["ruleId"] != "hwdesign/0-memory"]
        for result, finding in zip(told, report.checklist.findings, strict=True):
            uri, line = place(result)
            assert uri == f"hwdesign/models/configs/{name}.json"
            keys = report_sarif.KEYS.get(finding.subject or finding.dimension, ())
            named = any(f'"{key}"' in text[line - 1] for key in keys)
            assert named if keys and finding.dimension != "recipe" else line == 1 or named


@pytest.mark.parametrize(
    ("name", "ways", "value", "key"),
    [
        ("qwen2.5-7b", {"tp": 8}, "28 query heads over 8 GPUs", "num_attention_heads"),
        ("phi-4", {"tp": 8}, "10 key-value heads over 8 GPUs", "num_key_value_heads"),
        ("nemotron-3-nano-30b-a3b", {"tp": 2, "kvp": 3}, "64 Mamba heads over 6 GPUs", "mamba_num_heads"),
    ],
)
def test_sarif_points_at_the_heads_that_do_not_divide(name, ways, value, key):
    plans = dict(zip(("attention", "ffn"), short_plans(**ways), strict=True))
    (result,) = [r for r in results(judge(name, **plans)) if r["message"]["text"].startswith(f"heads {value}")]
    text = (ROOT / "hwdesign" / "models" / "configs" / f"{name}.json").read_text(encoding="utf-8")
    assert f'"{key}"' in text.splitlines()[place(result)[1] - 1]


def test_every_dimension_has_keys_or_is_no_key():
    named = {dimension for number in range(1, 8) for dimension in GUIDELINES[number].blames}
    assert named - set(report_sarif.KEYS) == {"heads", "ffn plan", "attention plan", "last stage"}


def test_sarif_of_a_file_outside_the_working_folder_has_an_absolute_address(tmp_path, monkeypatch):
    (tmp_path / "x.json").write_text(json.dumps(LLAMA))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    uri, _ = place(results(judge("../x.json"))[0])
    assert unquote(uri) == (tmp_path / "x.json").as_uri()


def test_fingerprints_tell_findings_apart_and_outlive_unrelated_edits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def prints(values, name="config.json"):
        Path(name).write_text(json.dumps(values))
        return [r["partialFingerprints"]["hwdesign/v1"] for r in results(judge(name, **FP8))]

    first = prints(LLAMA)
    assert len(set(first)) == len(first) > 1
    assert prints({"torch_dtype": "bfloat16", **LLAMA, "rope_theta": 1.0}) == first
    assert not set(prints(LLAMA, "other.json")) & set(first)
    assert prints({**LLAMA, "vocab_size": 32001}) != first
    shipped = [
        r["partialFingerprints"]["hwdesign/v1"]
        for n in config.names()
        for r in results(judge(n, device="H100_SXM", recipe="fp8"))
    ]
    assert len(set(shipped)) == len(shipped)


def test_sarif_carries_levels_settings_and_what_was_not_judged():
    report = judge("gpt2", **{**FP8, "recipe": "fp8"})
    log = report_sarif.sarif([report], ["x.json: [no] {config}"])
    run = log["runs"][0]
    assert [r["level"] for r in run["results"]] == [report_sarif.LEVELS[f.status] for f in report.checklist.findings]
    assert run["invocations"][0]["executionSuccessful"] is False
    notice = run["invocations"][0]["toolExecutionNotifications"][0]
    assert notice == {"level": "error", "message": {"text": r"x.json: \[no\] {{config}}"}}
    assert run["properties"]["reports"][0]["device"] == "H100_SXM" and "verdicts" not in run["properties"]["reports"][0]
    rules = run["tool"]["driver"]["rules"]
    assert rules[0]["id"] == "hwdesign/1-near-square" and rules[6]["id"] == "hwdesign/7-decoupled-attention"
    assert rules[-1]["id"] == "hwdesign/0-memory" and rules[-1]["defaultConfiguration"] == {"level": "error"}
    assert all({"shortDescription", "fullDescription", "help", "defaultConfiguration"} <= set(rule) for rule in rules)
    assert "security-severity" not in json.dumps(log) and "primaryLocationLineHash" not in json.dumps(log)
    assert report_sarif.sarif([report])["runs"][0]["invocations"][0]["executionSuccessful"] is True


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('{"a": 1,\r\n "b": {"a": 2},\n"a": 1}', {"a": 1, "b": 2}),
        ('{"llm_config":\n{"a": 2},\n"a": 1}', {"llm_config": 1, "a": 2}),
        ('{"a\\"b": "}{",\n"\\u0063": [{"d": 1}],\n"e": "x: y"}', {'a"b': 1, "c": 2, "e": 3}),
        ("", {}),
    ],
)
def test_lines_of_keys(text, lines):
    assert report_sarif.key_lines(text) == lines


def test_lines_of_many_keys_take_no_time():
    text = json.dumps({f"key_{i}": [i] for i in range(60_000)}, indent=0)
    assert report_sarif.key_lines(text)["key_59999"] == 2 + 59_999 * 3


# Hostile strings.


@hostile
def test_text_and_logs_obey_nothing(name):
    for colour in (False, True):
        text = render([named(name)], "text", colour=colour)
        text = re.sub(r"\x1b\[[0-9;]*m", "", text) if colour else text
        assert all(c == "\n" or (c.isprintable() and visible(c) == c) for c in text)
        assert not any(line.lstrip().startswith("::") or "##" in line for line in text.splitlines())
        assert all(len(line) <= 100 for line in text.splitlines())
        assert len(text.splitlines()) <= len(render([named("x")], "text").splitlines()) + 3


@hostile
def test_json_and_sarif_stay_valid(name):
    assert_valid_json(rendered(name, "json"))
    assert_valid_sarif(rendered(name, "sarif"))
    for form in ("json", "sarif", "html"):
        assert (text := rendered(name, form)).isascii() and "\x1b" not in text
    said = json.loads(rendered(name, "json"))
    assert not re.search("[\ud800-\udfff]", json.dumps(said, ensure_ascii=False))


@hostile
def test_html_has_the_same_elements_as_with_a_harmless_name(name):
    bs4 = pytest.importorskip("bs4", reason="beautifulsoup4 is not installed")

    def elements(text):
        return [(tag.name, sorted(tag.attrs)) for tag in bs4.BeautifulSoup(text, "html.parser").find_all()]

    page = rendered(name, "html")
    assert elements(page) == elements(rendered("harmless", "html"))
    soup = bs4.BeautifulSoup(page, "html.parser")
    assert soup.h2.get_text().startswith(visible(name) + " on H100_SXM") and soup.title.get_text().count(" on H100_SXM") == 2


@hostile
@pytest.mark.parametrize("tags", [False, True], ids=["tags escaped", "tags kept"])
def test_markdown_has_the_same_elements_as_with_a_harmless_name(name, tags):
    markdown_it = pytest.importorskip("markdown_it", reason="markdown-it-py is not installed")
    pytest.importorskip("linkify_it", reason="linkify-it-py is not installed")
    parser = markdown_it.MarkdownIt("gfm-like", {"html": tags})

    def elements(text):
        tokens = [t for token in parser.parse(text) for t in (token, *(token.children or ()))]
        assert not any(t.type in ("html_block", "html_inline", "image") for t in tokens)
        assert not any("@" in t.content or "::" in t.content for t in tokens if t.type == "text"), "a mention or a command"
        return [(t.type, t.tag, t.attrs.get("href")) for t in tokens if t.type != "text"]

    text = rendered(name, "markdown")
    assert elements(text) == elements(rendered("harmless", "markdown"))
    assert not any(line.lstrip().startswith("::") for line in text.splitlines())


@hostile
def test_text_inside_words_of_the_package_stays_text(name):
    """A reason may come to hold a name one day, and a name may come into a table."""
    markdown_it = pytest.importorskip("markdown_it", reason="markdown-it-py is not installed")
    parser = markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table")
    for cell in (markdown_text(name), code_span(name)):
        tokens = parser.parse(f"| a | b |\n| - | - |\n| x{cell} | last |")
        inside = [t for token in tokens for t in token.children or ()]
        assert {t.type for t in inside} <= {"text", "text_special", "code_inline"}
        assert not any("@" in t.content for t in inside if t.type != "code_inline")
        cells = [after.content for t, after in zip(tokens, tokens[1:], strict=False) if t.type == "td_open"]
        assert len(cells) == 2 and cells[1] == "last"


def test_what_is_seen():
    fillers = [*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]
    for code in (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x200B, 0x2060, 0x2800, 0x3164, 0xFEFF, 0xFFA0, *fillers):
        assert visible(chr(code)) == (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    assert visible("plain text, é and 漢字") == "plain text, é and 漢字"
    assert visible("\x1b\u202e\U000e0001\ud800\n\xa0") == r"\x1b\u202e\U000e0001\ud800\x0a\xa0"
    assert visible("a" * 81) == "a" * 80 + "... (81 characters)" and visible("a" * 80) == "a" * 80
    assert visible(visible("::x\x1b")) == visible("::x\x1b") == r":\x3ax\x1b"
    assert len(visible("\x1b" * 80)) < 110
    assert code_span("a") == "`a`" and code_span("`a``") == "``` `a`` ```" and code_span("") == "` `"


# The page in a browser.


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    reports = [
        judge("qwen2.5-72b", **FP8, **TP8),
        judge("gpt2", **TP8),
        judge("qwen2.5-72b", device="L4"),
        named(HOSTILE["long"]),
    ]
    path.write_text(render(reports, "html", errors=["x.json: no config"]), encoding="utf-8")
    return path


def test_page_stands_alone(page_file):
    bs4 = pytest.importorskip("bs4", reason="beautifulsoup4 is not installed")
    soup = bs4.BeautifulSoup(page_file.read_text(), "html.parser")
    assert soup.html["lang"] == "en" and soup.title.get_text().startswith("hwdesign check: qwen2.5-72b on 8 x H100_SXM")
    assert not soup.find_all(["script", "img", "link", "iframe", "object"]) and not soup.find_all(src=True)
    policy = soup.find("meta", attrs={"http-equiv": "Content-Security-Policy"})["content"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'") and "url(" not in soup.style.get_text()
    levels = [int(tag.name[1]) for tag in soup.find_all(re.compile("^h[1-6]$"))]
    assert levels.count(1) == 1 == levels[0] and all(b <= a + 1 for a, b in zip(levels, levels[1:], strict=False))
    for table in soup.find_all("table"):
        assert table.caption and all(th.get("scope") in ("col", "row") for th in table.find_all("th"))
        assert len(table.tbody.find_all("tr")) == len(GUIDELINES)
    for article in soup.find_all("article"):
        assert re.search(r"Guideline [0-9]+: ", article.h4.get_text()) and article.find("a")["href"].endswith(".html")
    marks = soup.select(".mark")
    assert {m.get_text() for m in marks} == {"ok", "WARN", "FAIL", "n/a", "?"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_page_is_for_everyone(browser, page_file, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    asked, wrong = [], []
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: wrong.append(message.text))
    page.goto(page_file.as_uri())
    assert asked == [page_file.as_uri()] and wrong == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    lines = page.eval_on_selector_all("thead th:first-child", "all => all.map(th => th.getClientRects()[0].height)")
    assert max(lines) < 40, "the word Verdict in pieces"
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark is (scheme == "dark")
    found = axe.Axe().run(page).response["violations"]
    assert [f"{rule['id']}: {node['html'][:160]}" for rule in found for node in rule["nodes"]] == []
    page.emulate_media(media="print", color_scheme=scheme)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.close()


def test_one_object_holds_all():
    found = as_object([judge("gpt2"), judge("gpt2", batch=1)], ["x"])
    assert (found["version"], len(found["reports"]), found["errors"]) == (1, 2, ["x"])
    assert found["tool"]["name"] == "hwdesign" and Case.batch == found["reports"][0]["batch_sequences"] == 64
