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
from hwdesign.advice import report_facts, report_sarif, report_words
from hwdesign.advice.case import Case, short_plans
from hwdesign.advice.guidelines import GUIDELINES, Guideline
from hwdesign.advice.judge import judge
from hwdesign.advice.plan_rules import enough
from hwdesign.advice.report import FORMATS, as_object, render
from hwdesign.advice.report import schema as report_schema
from hwdesign.advice.verdict import Finding, Limits, Refusal, Verdict, percent
from hwdesign.cli import main
from hwdesign.models import config
from hwdesign.models.steps import Plan
from hwdesign.safe import code_span, markdown_text, visible
from hwdesign.timing.intervals import engine_seconds, interval_factors

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


def verdicts(report):
    """The facts of its verdicts at its first load."""
    return report.facts["loads"][0]["verdicts"]


def findings(report):
    """Its `Finding`s at its first load, in the order of the guidelines."""
    return report.loads[0].findings


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
    assert len({rule["id"] for rule in rules}) == len(GUIDELINES) + 2
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
    assert "last stage" in [finding.dimension for finding in findings(report)]
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
    assert [v.guideline for v in report.loads[0].verdicts] == list(range(1, 9))
    for form in ("text", "markdown", "html"):
        text = render([report], form)
        for words in ("Whole hands", "fingers are left", "hands", "7.0 % of the fingers"):
            assert words in text, (form, words)
    as_json, log = json.loads(render([report], "json")), render([report], "sarif")
    assert as_json["reports"][0]["loads"][0]["verdicts"][7]["findings"][0]["dimension"] == "hands"
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
    found = [finding for verdict in verdicts(report) for finding in verdict["findings"]]
    assert len(found) == len(findings(report)) == len(report.blames)
    (load,) = report.facts["loads"]
    assert report.worst == report.loads[0].status and load["fits"] is report.loads[0].fits
    assert all(fix["change"] for finding in found for fix in finding["fixes"]), "a fix that changes nothing"
    for form in ("text", "markdown", "html"):
        text = render([report], form)
        assert not re.search(r"-0\.0\b|\bnan\b|\bNone\b", text)
        assert text.count("of the step") >= len([f for f in found if f["cost_share"] is not None]) + 1


def test_facts_are_those_of_the_checklist():
    report = judge("qwen2.5-72b", **FP8, **TP8)
    facts, case, (load,) = report.facts, report.case, report.facts["loads"]
    assert load["step_seconds"] == case.seconds and facts["gpus"] == 8 and load["fits"] is True and facts["refusal"] is None
    assert load["memory_bytes"] == case.breakdown.memory and facts["capacity_bytes"] == case.device.memory_capacity
    assert load["usable_bytes"] == case.breakdown.usable < facts["capacity_bytes"]
    assert facts["model"]["parameters"] == 72_706_203_648 and facts["device"] == "H100_SXM"
    assert facts["model"]["key_value_heads"] == [8] and facts["model"]["experts"] == []
    width = load["verdicts"][1]["findings"][0]
    assert (width["dimension"], width["value"]) == ("feed-forward width", "29568 / 8 = 3696")
    change = {"feed_forward_width": {"before": [29568], "after": [29696]}}
    (fix,) = [fix for fix in width["fixes"] if fix["change"] == change]
    assert (fix["place"], fix["large"]) == ("model", False)
    assert width["status"] == "break" and width["cost_share"] is None  # no engine runs 3696 = 28.9 blocks
    assert fix["width_share"] == pytest.approx(128 / 29568)
    (server,) = [fix for fix in width["fixes"] if fix["place"] == "server"]
    assert server["change"] == {"recipe": {"before": "fp8_block", "after": "fp8"}}  # as many bits, and no blocks
    before = {"tp": 8, "ep": 1, "dp": 1, "pp": 1, "gather": False}
    experts = judge("gpt-oss-120b", **TP8).facts["loads"][0]["verdicts"][4]["findings"][0]["fixes"][0]
    assert experts["place"] == "server" and experts["change"]["ffn"]["before"] == before


def test_a_report_names_formats_and_where_they_come_from():
    report = judge("gpt-oss-120b", device="H200", **TP8)
    facts = report.facts
    told = {key: facts[key] for key in ("recipe", "recipe_stored", "recipe_from", "weight_only", "cache", "cache_from")}
    assert told == {"recipe": "mxfp4_w4a16", "recipe_stored": "mxfp4", "recipe_from": "checkpoint", "weight_only": True,
                    "cache": "bf16", "cache_from": "engine"}  # fmt: skip
    assert facts["engine"] == {"name": "vllm", "version": report.case.engine.version}
    head = dict(report_words.head(report))
    assert head["recipe"] == "mxfp4_w4a16 (the checkpoint's)" and head["cache"] == "bf16 (default of vLLM)"
    assert head["kernel"].startswith("weight-only: MXFP4 weights are expanded to BF16 inside the kernel")
    stands_in = any("recipe mxfp4_w4a16 takes" in note for note in facts["notes"])
    assert ("; a stand-in" in head["kernel"]) is stands_in
    asked = judge("deepseek-r1", device="B200", engine="trtllm", recipe="nvfp4", **TP8)
    assert (asked.facts["cache"], asked.facts["cache_from"], asked.facts["recipe_from"]) == ("fp8", "engine", "option")
    assert dict(report_words.head(asked))["cache"] == "fp8 (default of TensorRT-LLM)"
    assert "kernel" not in dict(report_words.head(asked)) and asked.facts["weight_only"] is False
    other = judge("deepseek-r1", cache="fp8", **TP8)
    assert dict(report_words.head(other))["cache"] == "fp8 (as asked)" and other.facts["cache_from"] == "option"
    assert_valid_json(render([report, asked, other], "json"))


# Where the step goes.


def test_terms_are_the_step_and_have_their_bounds():
    report = judge("deepseek-r1", device="H200", recipe="fp8_block", batch=64, **TP8)
    (load,) = report.facts["loads"]
    terms, seconds = load["terms"], [term["seconds"] for term in load["terms"]]
    assert sum(seconds) == pytest.approx(load["step_seconds"]) and seconds == sorted(seconds, reverse=True)
    assert sum(term["step_share"] for term in terms) == pytest.approx(1)
    for form in ("text", "markdown", "html"):
        text = render([report], form)
        assert all(f"{term['name']}" in text and f", {term['bound']}" in text for term in terms)
    rows = dict(report_words.where(report))
    assert re.fullmatch(r"[0-9.]+ ms, [0-9.]+ %, memory at [0-9]+ %", rows["experts"][0])


@pytest.mark.parametrize(
    ("batch", "context", "term", "bound"),
    [
        (1, 8192, "ffn", "memory"),  # 3 x 4096 x 14336 weights a layer for one row
        (4096, 128, "ffn", "math"),  # above the ridge of 295 FLOP/byte
        (64, 8192, "attention", "memory"),  # grouped queries: 4 FLOP a byte
        (1, 128, "small kernels", "latency"),
    ],
)
def test_bounds_of_terms(batch, context, term, bound):
    report = judge("llama-3.1-8b", device="H100_SXM", recipe="bf16", batch=batch, context=context)
    (found,) = [told for told in report.facts["loads"][0]["terms"] if told["name"] == term]
    assert found["bound"] == bound and found["bound_seconds"] <= found["seconds"]
    if bound == "memory" and term == "ffn":  # weights once at 3.35 TB/s
        assert found["bound_seconds"] == pytest.approx(32 * 3 * 4096 * 14336 * 2 / 3.35e12, rel=0.01)
    if bound == "math":
        assert found["bound_seconds"] == pytest.approx(32 * 3 * 2 * 4096 * 4096 * 14336 / 989.4e12, rel=0.01)


def test_exchanges_of_few_tokens_are_latency_and_of_many_the_link():
    def bound(batch):
        report = judge("llama-3.1-70b", device="H100_SXM", recipe="fp8", batch=batch, context=100, **TP8)
        return {term["name"]: term["bound"] for term in report.facts["loads"][0]["terms"]}["communication"]

    assert (bound(1), bound(8192)) == ("latency", "link")


# Several loads.

LOADS = [(8192, 1024, 64), (1024, 1024, 16), (512, 4096, 512)]


@functools.cache
def loaded():
    return judge("qwen3-30b-a3b", device="H200", attention=Plan(tp=4), ffn=Plan(tp=4), loads=LOADS)


def test_a_load_is_prompt_answer_and_users():
    report = loaded()
    assert_valid_json(render([report], "json"))
    for load, (prompt, answer, users) in zip(report.facts["loads"], LOADS, strict=True):
        assert (load["prompt_tokens"], load["answer_tokens"], load["batch_sequences"]) == (prompt, answer, users)
        assert load["load"] == f"{prompt}/{answer}/{users}" and load["context_tokens"] == prompt + answer // 2
        case = hw.Case(model="qwen3-30b-a3b", device="H200", attention=Plan(tp=4), ffn=Plan(tp=4), batch=users,
                       context=load["context_tokens"], prompt=prompt, answer=answer)  # fmt: skip
        token = load["token_seconds"]
        assert load["step_seconds"] == case.seconds < token == case.token_seconds
        assert load["user_tokens_per_second"] == pytest.approx(1 / token)
        assert load["gpu_tokens_per_second"] == pytest.approx(users / token / 4)
    assert not {"batch", "context"} & set(report.facts["defaults"])
    assert judge("gpt2", loads=[(7, 3, 1)]).facts["loads"][0]["context_tokens"] == 9  # half an answer, rounded up
    assert len(judge("gpt2", loads=[(7, 3, 1), (7, 3, 1)]).loads) == 1


def test_one_table_holds_all_loads():
    report = loaded()
    (name, loads), *rows = report_words.where(report)
    assert (name, loads) == ("load", ["8192/1024/64", "1024/1024/16", "512/4096/512"])
    labels = [label for label, _ in rows]
    assert labels[:5] == ["step", "per token", "tokens/s/user", "tokens/s/GPU", "memory"]
    assert labels[-7:] == [f"{number} {g.short}" for number, g in GUIDELINES.items()]
    for form in ("text", "markdown", "html"):
        text = render([report], form)
        assert all(load in text for load in loads)
    wide, usual, narrow = (render([report], "text", width=width).splitlines() for width in (120, 100, 60))
    assert max(len(line) for line in narrow if "https://" not in line) <= 60
    assert max(len(line) for line in usual if "https://" not in line) <= 100
    heads = [[line.split()[1:] for line in form if re.match("  load  +[0-9]", line)] for form in (wide, usual, narrow)]
    # Columns that find no room stand below the others; those with an interval in a cell are wide.
    assert heads == [[loads], [loads[:2], loads[2:]], [[load] for load in loads]]


def test_a_finding_says_at_which_loads_it_holds():
    report = loaded()
    (blame,) = [blame for blame in report.blames if blame.finding["dimension"] == "expert width"]
    costs = [finding["cost_share"] for _, finding in blame.at]
    assert blame.finding["cost_share"] == costs[0] == max(costs) and len(blame.at) == 3
    told = dict(report_words.details(report, blame))["cost"]
    assert told.count(" at ") == 3 and told.startswith(f"{percent(costs[0])} of the step at {blame.at[0][0]}, ")
    some = judge("llama-3.1-70b", device="H100_SXM", recipe="fp8", loads=[(64, 16, 1), (8192, 1024, 64)], **TP8)
    partly = [blame for blame in some.blames if len(blame.at) == 1]
    for blame in partly:
        other = ({load["load"] for load in some.facts["loads"]} - {blame.at[0][0]}).pop()
        assert f"no finding at {other}" in dict(report_words.details(some, blame))["cost"]
    assert partly


def test_sarif_holds_a_finding_once_for_all_loads():
    report = loaded()
    found = results(report)
    assert len(found) == len(report.blames) < sum(len(load.findings) for load in report.loads)
    for result, blame in zip(found, report.blames, strict=True):
        assert [place["load"] for place in result["properties"]["loads"]] == [load for load, _ in blame.at]
        assert result["properties"]["cost_share"] == blame.finding["cost_share"]
    assert_valid_sarif(render([report], "sarif"))


def test_findings_go_by_breaks_then_cost_and_ignored_ones_last():
    def verdict(guideline, **given):
        finding = Finding(guideline=guideline, dimension="layers", value=str(guideline), rule="r", **given)
        return Verdict(guideline=guideline, status=finding.status, reason="r", findings=(finding,))

    refusal = Refusal(engine="vLLM 0.33.0", says="asserts", source="https://example.org/a_b")
    made = (
        verdict(1, status="warn", cost=0.06),
        verdict(2, status="break", cost=0.0, refused_by=(refusal,)),
        verdict(3, status="fail", cost=0.3),
        verdict(4, status="warn", cost=None),
        verdict(5, status="fail", cost=0.9),
        verdict(6, status="break", cost=0.01),
        Verdict(guideline=7, status="ok", reason="fine"),
    )
    base = judge("gpt2", ignore=(5,))
    report = replace(base, loads=(replace(base.loads[0], verdicts=made),))
    assert [blame.verdict["guideline"] for blame in report.blames] == [6, 2, 3, 1, 4, 5]
    assert report.status == report.worst == "break" and [v["guideline"] for v in report_words.rest(report)] == [7]
    assert report_words.summary(report) == "2 break, 1 fail, 2 warn, 1 ok; ignored: 1 fail; judged 6 of 6"
    for form in ("text", "markdown", "html"):
        text = re.sub(r"<[^>]*>", "", render([report], form))
        assert "BREAK" in text and "vLLM 0.33.0: asserts" in text and "; a break, whatever it costs" in text
    assert 'class="mark break"' in render([report], "html") and "1;35m" in render([report], "text", colour=True)
    levels = [result["level"] for result in results(report)]
    assert levels == ["error", "error", "error", "warning", "warning"]
    assert_valid_json(render([report], "json"))
    assert_valid_sarif(render([report], "sarif"))


def made_of(statuses):
    """A report whose guidelines have these statuses."""
    base = judge("gpt2")
    made = tuple(Verdict(guideline=i, status=status, reason="r") for i, status in enumerate(statuses, 1))
    return replace(base, loads=(replace(base.loads[0], verdicts=made),))


OTHER = "not modelled"


@pytest.mark.parametrize(
    ("statuses", "status", "judged", "says"),
    [
        (["ok"] * 3 + [OTHER] * 4, "not judged", False, "judged 3 of 7"),
        (["ok"] * 3 + [OTHER] * 3 + ["not applicable"], "ok", True, "judged 3 of 6"),
        (["warn"] + [OTHER] * 6, "not judged", False, "judged 1 of 7"),
        (["fail"] + [OTHER] * 6, "fail", False, "judged 1 of 7"),
        (["break"] + [OTHER] * 6, "break", False, "judged 1 of 7"),
        (["not applicable"] * 7, "ok", True, "judged 0 of 0"),
    ],
)
def test_nothing_judged_is_no_success(statuses, status, judged, says):
    report = made_of(statuses)
    assert (report.status, report.judged) == (status, judged)
    assert render([report], "text").splitlines()[-1].endswith(says) and says in render([report], "markdown")
    mark = report_words.MARKS[status]
    assert render([report], "text").splitlines()[0] == f"gpt2 on GB300: {mark}"
    assert_valid_json(render([report], "json"))
    assert render([report, report], "text").splitlines()[-3] == f"2 configs: 2 {status}"


def test_the_worst_load_is_the_report_s():
    base, unknown = judge("gpt2", loads=[(512, 64, 1), (512, 64, 2)]), made_of([OTHER] * 7)
    one = replace(base.loads[0], verdicts=made_of(["warn"] * 7).loads[0].verdicts)
    two = replace(base.loads[1], verdicts=unknown.loads[0].verdicts)
    assert replace(base, loads=(one, two)).status == "not judged"
    assert replace(base, loads=(two, replace(two, verdicts=made_of(["fail"] * 7).loads[0].verdicts))).status == "fail"
    report = replace(base, loads=(one, two))
    assert [load["status"] for load in report.facts["loads"]] == ["warn", "not judged"]
    assert [load["judged_guidelines"] for load in report.facts["loads"]] == [7, 0] and not report.judged


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"loads": [(1, 2)]}, r"loads must be of \(prompt, answer, users\), .* got \(1, 2\)"),
        ({"loads": [(1, 0, 2)]}, "answer must be >= 1, got 0"),
        ({"loads": [(1, 1, 2)], "batch": 3}, "loads and batch exclude each other"),
    ],
)
def test_bad_loads_are_named(given, says):
    with pytest.raises(ValueError, match=says):
        judge("gpt2", **given)


# What is said.


def test_what_nobody_gave_is_said_to_be_a_default():
    alone, given = judge("gpt2"), judge("gpt2", **FP8, **TP8 | {"attention": Plan(tp=4), "ffn": Plan(tp=4)}, batch=8, context=100,
                                        limits=Limits(warn=0.1), cache="fp8", engine="sglang")  # fmt: skip
    names = ["device", "engine", "recipe", "cache", "attention", "ffn", "batch", "context", "limits"]
    assert alone.facts["defaults"] == names and given.facts["defaults"] == []
    assert render([alone], "text").count("(default") == 8
    assert "(default" not in (text := render([given], "text"))
    for part in ("H100_SXM", "fp8_block (as asked)", "--attention tp=4 --ffn tp=4: 4 GPUs", "batch 8, context 100", "from 10 %"):
        assert part in text
    assert [judge(n).facts["recipe_from"] for n in ("gpt2", "gpt-oss-20b")] == ["default", "checkpoint"]
    assert judge("gpt-oss-20b").facts["recipe"] == "mxfp4_w4a16"  # vLLM expands its weights to BF16


def test_notes_and_warnings_reach_the_reader_in_one_line(recwarn):
    report = judge("gpt-oss-20b", device="H100", recipe="w4a16")
    assert not recwarn.list
    device, uncalibrated = report.facts["notes"]
    assert "taking H100_SXM" in device and uncalibrated.startswith("uncalibrated: recipe w4a16 takes the constants of bf16")
    for form in FORMATS:
        assert render([report], form).count("taking H100") == (2 if form == "sarif" else 1), form  # there in the settings, too


def test_a_model_that_does_not_fit_is_said_loudly():
    report = judge("qwen2.5-72b", recipe="fp8")
    small = judge("qwen2.5-72b", device="L4")
    assert report.facts["loads"][0]["fits"] and "DOES NOT FIT" not in render([report], "text")
    for form in ("text", "markdown", "html"):
        assert render([small], form).count("DOES NOT FIT") >= 3
    (load,) = small.facts["loads"]
    assert load["fits"] is small.loads[0].fits is False and small.worst == "fail"
    for form in ("text", "markdown", "html"):
        assert "does not fit; 1 fail" in render([small], form)
    assert render([small], "text").splitlines()[-1].startswith("FAIL: does not fit; 1 fail")
    (result,) = [r for r in results(small) if r["ruleId"] == "hwdesign/0-memory"]
    assert (result["ruleIndex"], result["level"]) == (len(GUIDELINES), "error") and place(result)[1] == 1
    # 72.7 billion parameters and 64 sequences of 8192 tokens in 80 layers of 8 heads of 128, twice, all of 2 bytes
    needed = (72.7 * 2 + 64 * 8192 * 80 * 2 * 8 * 128 * 2 / 1e9).__round__()
    assert result["message"]["text"].startswith(f"qwen2.5-72b on L4, DOES NOT FIT: needs {needed} of the ")
    assert result["message"]["text"].endswith(" GB that vLLM leaves on the fullest GPU, weights and cache.")
    assert_valid_sarif(render([small], "sarif"))


def test_the_load_that_needs_most_is_named_where_one_does_not_fit():
    report = judge("llama-3.1-8b", device="H100_SXM", loads=[(1024, 128, 1), (65536, 128, 64), (8192, 128, 64)])
    assert [load["fits"] for load in report.facts["loads"]] == [True, False, False]
    assert "at 65536/128/64" in report_words.need(report) and "DOES NOT FIT" in report_words.title(report)[1]
    assert len([r for r in results(report) if r["ruleId"] == "hwdesign/0-memory"]) == 1


EIGHT = {"device": "H100_SXM", "recipe": "fp8", "attention": Plan(dp=8), "ffn": Plan(ep=8)}


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("deepseek-r1", {"recipe": "nvfp4"}, "2 GPUs hold it: --attention tp=2 --ffn tp=2"),
        ("qwen2.5-72b", {"device": "H100_SXM"}, "8 GPUs hold it: --attention tp=8 --ffn tp=8"),
        ("deepseek-r1", EIGHT, "16 GPUs hold it: --attention tp=2,dp=8 --ffn ep=16"),
        ("qwen2.5-72b", {"device": "B200", "batch": 256}, "needs 833 of the "),
        ("qwen2.5-72b", {"device": "RTX_4090"}, ""),  # no link
        ("qwen2.5-72b", {"device": "H100_SXM", "batch": 4096}, ""),  # eight key-value heads, copied from there on
    ],
)
def test_the_fewest_gpus_that_hold_a_model_are_named(name, options, says):
    report = judge(name, **options)
    more, need = enough(report.case), report_words.need(report)
    assert says in need and (more is not None) is ("GPUs hold it" in need) is bool(says)
    if says:
        assert more.breakdown.feasible and need in dict(report_words.alarms(report))["memory"]
        half = replace(more, attention=replace(more.attention, tp=more.attention.tp // 2), ffn=_halved(more.ffn))
        assert not half.breakdown.feasible
    assert report_words.need(judge("gpt2")) == report_words.need(judge("gpt2", **TP8)) == ""


def _halved(ffn):
    return replace(ffn, **({"ep": ffn.ep // 2} if ffn.ep > 1 else {"tp": ffn.tp // 2}))


def told(text, **given):
    """The words about a finding with one fix, made up."""
    base = judge("gpt2", **TP8 | {"attention": Plan(tp=4), "ffn": Plan(tp=4)})
    made = {
        "text": text,
        "place": "server",
        "engines": ["vllm", "sglang", "trtllm"],
        "large": False,
        "change": {},
        "width_share": 0.0,
        "parameters_share": 0.0,
        "step_share": -0.1,
        "step_seconds": 1.0,
        "sure": None,
        "expected_shares": None,
        "notes": [],
        "worsens": [],
    }
    finding = {"rule": "r", "status": "warn", "cost_share": 0.1, "refused_by": [], "fixes": [made | given]}
    blame = report_facts.Blame(
        {"guideline": 4, "title": "t", "reason": "w"}, finding, None, (("batch 64, context 8192", finding),)
    )
    return list(report_words.details(base, blame))


def test_a_cost_is_no_saving_and_a_saving_no_cost():
    assert told("x") == [
        ("why", "t - w"),
        ("rule", "r"),
        ("cost", "10.0 % of the step"),
        ("fix", "server: x"),
        ("saves", "step -10.0 %"),
    ]
    grown = told("y", place="model", large=True, step_share=0.2, parameters_share=0.03, width_share=0.04)
    assert grown[3:] == [("fix", "next model, more than 2 % of the parameters: y"),
                         ("adds", "step +20.0 %; width +4.0 %; parameters +3.0 %")]  # fmt: skip
    shrunk = dict(told("z", parameters_share=-0.01))
    assert shrunk["saves"] == "step -10.0 %; parameters -1.0 %" and "adds" not in shrunk
    assert dict(told("z", step_share=1e-5))["adds"] == "step within 0.1 %"
    assert dict(told("z", step_share=None, step_seconds=0.002))["then"] == "step 2 ms"
    worse = [{"guideline": 7, "before": "ok", "after": "break"}, {"guideline": 2, "before": "ok", "after": "warn"}]
    assert dict(told("z", worsens=worse))["worse"] == "guideline 7: ok -> break; guideline 2: ok -> warn"
    text = render([judge("qwen2.5-72b", **FP8, **TP8)], "text")
    assert "price" not in text and "cost   " in text and "saves  " in text


@pytest.mark.parametrize(
    ("engines", "says"),
    [
        (["vllm", "sglang", "trtllm"], "server: p (vLLM, SGLang, TensorRT-LLM run it)"),
        (["vllm"], "server: p (vLLM runs it)"),
        (["sglang"], "server: p (SGLang runs it, vLLM does not)"),
        ([], "server: p (no engine that is known here runs it)"),
    ],
)
def test_who_runs_a_plan_is_told(engines, says):
    change = {"attention": {"before": {}, "after": {}}}
    assert dict(told("p", change=change, engines=engines))["fix"] == says
    assert dict(told("p", engines=engines))["fix"] == "server: p"  # as before, so that it is no question


def test_all_that_a_fix_changes_is_told_where_its_text_names_half():
    sizes = {"hidden_size": (2048, 2688), "layers": (48, 29), "query_heads": ([32], [40]), "expert_width": ([768], [1024])}
    change = {name: dict(zip(("before", "after"), pair, strict=True)) for name, pair in sizes.items()}
    words = "hidden size 2048 -> 2688, layers 48 -> 29, query heads 32 -> 40, expert width 768 -> 1024"
    assert dict(told("29 layers of hidden size 2688", change=change))["change"] == words
    assert "change" not in dict(told("29 layers of hidden size 2688, 40 heads, 1024", change=change))


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
    assert report_words.changes({"text": text, "change": pairs}) == says


def test_a_cost_that_its_fix_does_not_save_is_explained():
    def note(name, guideline, **options):
        report = judge(name, **options)
        (blame, *_) = [blame for blame in report.blames if blame.verdict["guideline"] == guideline]
        return dict(report_words.details(report, blame)).get("note")

    assert note("gpt-oss-120b", 2) == GUIDELINES[2].puzzle
    assert note("gpt2", 2) is None  # as good as equal


def test_ignored_guidelines_are_marked_and_counted_apart():
    base = judge("gpt2", ignore=(2, 3))
    found = Finding(guideline=2, dimension="layers", value="7", rule="r", status="fail", cost=0.5)
    made = [replace(verdict, status="ok", findings=()) for verdict in base.loads[0].verdicts]
    made[1] = replace(made[1], status="fail", findings=(found,))
    made[6] = replace(made[6], status="warn")
    report = replace(base, loads=(replace(base.loads[0], verdicts=made),))
    assert report.status == "warn" and report.loads[0].status == "fail"
    summary = report_words.summary(report)
    assert summary == "1 warn, 4 ok; ignored: 1 fail, 1 ok; judged 5 of 5"
    for form in ("text", "markdown", "html"):
        text = re.sub(r"<[^>]*>", "", render([report], form))
        assert summary in text and text.count("(ignored)") == 2  # a finding, and a verdict without


def test_several_configs_end_in_a_list():
    reports = [judge("gpt2"), judge("qwen2.5-72b", device="L4")]
    assert render(reports, "text", errors=["x.json: no"]).splitlines()[-4:] == [
        "3 configs: 1 fail, 1 warn, 1 bad", "  WARN     gpt2", "  FAIL     qwen2.5-72b, does not fit", "  bad      x.json: no",
    ]  # fmt: skip
    assert render(reports, "markdown", errors=["x.json: no"]).splitlines()[:7] == [
        "3 configs: 1 fail, 1 warn, 1 bad", "", "| | config |", "| :-- | :-- |", "| **WARN** | `gpt2` |",
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
    assert (
        report_words.title(judge("../config.json"))[0] == "mine"
        and report_words.title(judge("../../linked/config.json"))[0] == "linked"
    )
    monkeypatch.chdir(tmp_path / "mine")
    assert report_words.title(judge("config.json"))[0] == "mine" and judge("config.json").facts["config"] == "config.json"


# In Python.


def test_a_checklist_shows_itself():
    found = hw.checklist(hw.Case(model="gpt-oss-120b"))
    assert repr(found) == "<Checklist gpt-oss-120b on GB300: warn>"
    title, *lines = str(found).splitlines()
    assert title == "gpt-oss-120b on GB300: warn" and [int(line[0]) for line in lines] == list(GUIDELINES)
    # The longer of the two multiples of 128 beside 2880 makes the step longer, which no fix of a cost may.
    assert re.match(r"2 warn            hidden size 2880, 0\.[0-9] %: hidden size 2816; expert width 2880, ", lines[1])
    small = hw.checklist(hw.Case(model="qwen2.5-72b", device="L4", recipe="fp8"), Limits(warn=1, fail=1))
    assert repr(small) == "<Checklist qwen2.5-72b on L4, does not fit: fail>" and small.fits is False
    refused = hw.checklist(hw.Case(model="gpt2", **TP8))
    assert refused.fits is None and refused.status == "break" and "8 x GB300: break" in repr(refused)
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
    assert (load := report.facts["loads"][0])["step_seconds"] is None and load["fits"] is None and load["terms"] == []
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


def test_sources_are_named(tmp_path):
    file = tmp_path / "m" / "config.json"
    file.parent.mkdir()
    file.write_text(json.dumps(LLAMA))
    assert judge(file).facts["config"] == str(file) and report_words.title(judge(file))[0] == "m"
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
    assert lines[0].startswith("qwen2.5-72b on 8 x H100_SXM: ") and lines[1].startswith("  load ")
    heads = [line for line in lines if re.match(r"  (ok|WARN|FAIL|BREAK|n/a|\?) +[1-7] ", line)]
    assert len(heads) >= 14 and all(line.index(" ", 2) < 8 and line[8].isdigit() for line in heads)
    assert all(len(line) <= 100 or "https://" in line for line in lines)
    narrow = render(reports, "text", width=60).splitlines()
    assert all(len(line) <= 60 or "https://" in line for line in narrow)


@pytest.mark.parametrize(
    ("form", "marks"),
    [
        ("text", ("  step ", "    cost ", "  ok   ", "  config ")),
        ("markdown", ("| step ", "  - cost: ", "| ok |", "- config: ")),
        ("html", (">step<", "<article>", "without a finding", ">config<")),
    ],
)
def test_settings_stand_after_what_they_led_to(form, marks):
    text = render([judge("qwen2.5-72b", **FP8, **TP8)], form)
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


def test_what_a_fix_makes_worse_is_told():
    report = judge("qwen3-235b-a22b", device="B200", engine="trtllm", recipe="nvfp4", attention=Plan(dp=8), ffn=Plan(tp=8))
    worse = [w for v in verdicts(report) for f in v["findings"] for fix in f["fixes"] for w in fix["worsens"]]
    assert worse
    for form in ("text", "markdown", "html"):
        text = render([report], form).replace("&gt;", ">")
        assert f"guideline {worse[0]['guideline']}: {worse[0]['before']} -> {worse[0]['after']}" in text


def test_unknown_formats_are_refused():
    with pytest.raises(ValueError, match="format must be one of text, markdown, json, sarif, html, got 'xml'"):
        render([], "xml")


@pytest.mark.parametrize(("share", "says"), [(0.0, "0 %"), (1e-9, "<0.1 %"), (5e-4, "0.1 %"), (0.2, "20.0 %")])
def test_costs_in_words(share, says):
    assert math.copysign(1, report_facts.plain(-share)) == (-1 if share else 1)
    assert percent(share) == says


@pytest.mark.parametrize(("share", "says"), [(0.0, "unchanged"), (-1e-4, "within 0.1 %"), (-0.05, "-5.0 %"), (0.001, "+0.1 %")])
def test_changes_as_shares_in_words(share, says):
    assert report_words.signed(share) == says


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
        for result, blame in zip(told, report.blames, strict=True):
            finding = blame.source
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
    assert named - set(report_sarif.KEYS) == {"heads", "ffn plan", "attention plan", "last stage", "cache"}


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
    assert [r["level"] for r in run["results"]] == [report_sarif.LEVELS[b.finding["status"]] for b in report.blames]
    assert run["invocations"][0]["executionSuccessful"] is False
    notice = run["invocations"][0]["toolExecutionNotifications"][0]
    assert notice == {"level": "error", "message": {"text": r"x.json: \[no\] {{config}}"}}
    assert (
        run["properties"]["reports"][0]["device"] == "H100_SXM" and "verdicts" not in run["properties"]["reports"][0]["loads"][0]
    )
    rules = run["tool"]["driver"]["rules"]
    assert rules[0]["id"] == "hwdesign/1-near-square" and rules[6]["id"] == "hwdesign/7-decoupled-attention"
    assert rules[-2]["id"] == "hwdesign/0-memory" and rules[-2]["defaultConfiguration"] == {"level": "error"}
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
        assert all(len(line) <= 100 or "https://" in line for line in text.splitlines())
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
        assert table.tbody.find_all("tr")
    for article in soup.find_all("article"):
        assert re.search(r"Guideline [0-9]+: ", article.h4.get_text()) and article.find("a")["href"].endswith(".html")
    marks = soup.select(".mark")
    assert {m.get_text() for m in marks} >= {"ok", "WARN", "FAIL", "n/a", "?"}


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
    assert (found["version"], len(found["reports"]), found["errors"]) == (2, 2, ["x"])
    assert found["tool"]["name"] == "hwdesign" and Case.batch == found["reports"][0]["loads"][0]["batch_sequences"] == 64


@pytest.mark.parametrize(("engine", "status", "code"), [(None, "warn", 0), ("vllm", "break", 1)])
def test_plans_that_the_engine_does_not_run_are_a_break_where_it_was_named(capsys, engine, status, code):
    """A dense model with data-parallel attention and one sliced feed-forward part: vLLM makes whole copies."""
    words = ["check", "llama-3.1-8b", "--device", "H100_SXM", "--attention", "dp=8", "--ffn", "tp=8"]
    assert main(words + (["--engine", engine] if engine else [])) == code
    assert "VLLM DOES NOT RUN THESE PLANS: data-parallel groups" in capsys.readouterr().out
    plans = {"attention": hw.Plan(dp=8), "ffn": hw.Plan(tp=8)}
    given = {"engine": engine} if engine else {}
    assert judge("llama-3.1-8b", device="H100_SXM", **plans, **given).status == status


def test_times_carry_the_interval_of_served_points():
    report = judge("llama-3.1-8b", device="H200", engine="sglang", loads=[(1024, 1024, 4), (8192, 1024, 64)])
    low, high = interval_factors()
    for load, batch in zip(report.facts["loads"], (4, 64), strict=True):
        besides = engine_seconds("sglang", 32, batch)  # what servers take besides the kernels, a part of each token's time
        for what, served in (("step", load["step_seconds"] + besides), ("token", load["token_seconds"])):
            ends = load[f"{what}_low_seconds"], load[f"{what}_high_seconds"]
            assert ends == pytest.approx((low * served, high * served))
    rows = dict(report_words.where(report))
    for label in ("step", "per token"):
        assert all(re.fullmatch(r"[0-9.]+ ms \(served [0-9.]+ to [0-9.]+\)", cell) for cell in rows[label])
    for form in ("text", "markdown", "html"):
        assert rows["step"][0] in render([report], form).replace("&nbsp;", " ")
    alone = judge("llama-3.1-8b", device="H200").facts["loads"][0]
    assert alone["token_low_seconds"] is alone["token_high_seconds"] is None and alone["step_low_seconds"] < alone["step_seconds"]
    assert_valid_json(render([report], "json"))
