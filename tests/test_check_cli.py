"""``hwdesign check``: exit codes, one line for bad input, settings that are said, terminals, files and logs of every kind."""

import argparse
import io
import json
import os
import re
import subprocess
import sys

import pytest
from conftest import slowness

import hwdesign as hw
from hwdesign import cli
from hwdesign.advice import report
from hwdesign.advice.case import Case
from hwdesign.advice.guidelines import GUIDELINES
from hwdesign.advice.verdict import Limits, Verdict
from hwdesign.models import config
from hwdesign.safe import visible

OK = ["llama-3.1-70b", "--device", "H100_SXM", "--recipe", "fp8", "--cache", "fp8", "--tp", "8", "--pp", "2"]
WARN = ["gemma-3-27b", "--device", "H100_SXM", "--recipe", "fp8", "--tp", "8"]
FAIL = ["qwen2.5-72b", "--device", "H100_SXM", "--recipe", "fp8_block", "--tp", "8"]
LLAMA = {"model_type": "llama", "hidden_size": 1088, "intermediate_size": 4096, "num_hidden_layers": 4, "vocab_size": 32000,
         "num_attention_heads": 17, "head_dim": 64, "num_key_value_heads": 17}  # fmt: skip
PROGRAM = [sys.executable, "-c", "import sys; from hwdesign.cli import main; sys.exit(main())"]


def check(*words):
    """Exit status, also where argparse leaves by itself."""
    try:
        return cli.main(["check", *map(str, words)])
    except SystemExit as left:
        return left.code


def run(*words, **environment):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHON", "NO_COLOR", "FORCE_COLOR"))}
    if path := os.environ.get("PYTHONPATH"):
        env["PYTHONPATH"] = path
    return subprocess.run([*PROGRAM, *words], capture_output=True, env=env | environment, timeout=60, check=False)


# Exit codes.


@pytest.mark.parametrize(("words", "codes"), [(OK, (0, 0, 0)), (WARN, (0, 1, 0)), (FAIL, (1, 1, 0))], ids=["ok", "warn", "fail"])
def test_exit_code_is_what_fail_on_says(capsys, words, codes):
    assert tuple(check(*words, "--fail-on", level) for level in ("fail", "warn", "never")) == codes
    assert check(*words) == codes[0]  # fail is the default
    out, err = capsys.readouterr()
    assert err == "" and out.count(f"{words[0]} on ") == 4


def judged_as(monkeypatch, statuses):
    """Every check then has these verdicts."""
    made = tuple(Verdict(guideline=i, status=status, reason="r") for i, status in enumerate(statuses, 1))
    monkeypatch.setattr(
        "hwdesign.advice.judge.checklist", lambda case, limits: hw.Checklist(case=case, limits=Limits(), verdicts=made)
    )


OTHER = "not modelled"


@pytest.mark.parametrize(
    ("statuses", "codes"),
    [
        (["ok"] * 3 + [OTHER] * 4, (3, 3, 0)),
        (["ok"] * 4 + [OTHER] * 3, (0, 0, 0)),
        (["warn"] + [OTHER] * 6, (3, 1, 0)),
        (["fail"] + [OTHER] * 6, (1, 1, 0)),
        (["break"] + ["ok"] * 6, (1, 1, 0)),
    ],
)
def test_exit_code_3_where_too_little_was_judged(capsys, monkeypatch, statuses, codes):
    judged_as(monkeypatch, statuses)
    assert tuple(check("gpt2", "--fail-on", level) for level in ("fail", "warn", "never")) == codes
    judged = 7 - statuses.count(OTHER)
    assert f"; judged {judged} of 7\n" in capsys.readouterr().out
    assert check("gpt2", "none.json") == 2


def test_limits_move_the_verdict(capsys):
    words = ["gpt-oss-120b", "--fail-on", "fail"]  # 2880 is no multiple of 128, whatever little that costs
    assert (check(*words), check(*words, "--warn-at", "0.001", "--fail-at", "0.001")) == (0, 1)
    assert "warning from 0.001 %, failure from 0.001 % of the step" in capsys.readouterr().out


def test_several_configs_are_judged_and_each_bad_one_is_told(capsys, tmp_path):
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "good.json").write_text(json.dumps(LLAMA))
    words = ["--fail-on", "never", "gpt2", tmp_path / "bad.json", tmp_path / "good.json", tmp_path / "none.json"]
    assert check(*words) == 2
    out, err = capsys.readouterr()
    bad, none = err.splitlines()
    assert bad == f"hwdesign: {tmp_path}/bad.json: 'bad.json' must be JSON, got an error at line 1: Expecting property name " \
                  "enclosed in double quotes"  # fmt: skip
    assert none.startswith(f"hwdesign: {tmp_path}/none.json: model must be a model's folder, the path of its config.json or ")
    assert out.startswith("gpt2 on GB300: WARN\n") and "\ngood on GB300: " in out and "\n4 configs: 2 warn, 2 bad\n" in out
    for form in ("markdown", "json", "sarif", "html"):
        assert check("--format", form, *words) == 2
        out, err = capsys.readouterr()
        assert len(err.splitlines()) == 2 and "bad.json: &#x27;bad.json" in out.replace(
            "bad.json: 'bad.json", "bad.json: &#x27;bad.json"
        )


def test_all_configs_bad(capsys, tmp_path):
    for form in report.FORMATS:
        assert check("none.json", "--format", form, "--output", tmp_path / form) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1
        assert (tmp_path / form).exists() is (form != "text")
        assert form == "text" or "there is no file" in (tmp_path / form).read_text()
    assert json.loads((tmp_path / "sarif").read_text())["runs"][0]["invocations"][0]["executionSuccessful"] is False


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "the following arguments are required: CONFIG (see hwdesign check --help)"),
        (["gpt2", "--format", "xml"], "argument --format: invalid choice: 'xml' (choose from "),
        (["gpt2", "--batch", "0"], "argument --batch: must be a whole number from 1 to 999999999, got '0'"),
        (["gpt2", "--batch", "-1"], "argument --batch: "),
        (["gpt2", "--context", "1e3"], "argument --context: must be a whole number from 1 to 999999999, got '1e3'"),
        (["gpt2", "--tp", "2.5"], "argument --tp: must be a whole number from 1 to 999999999, got '2.5'"),
        (["gpt2", "--tp", "٣"], "argument --tp: must be a whole number from 1 to 999999999, got '٣'"),
        (["gpt2", "--warn-at", "nan"], "argument --warn-at: must be per cent, above 0 and up to 100, got 'nan'"),
        (["gpt2", "--fail-at", "101"], "argument --fail-at: must be per cent, above 0 and up to 100, got '101'"),
        (["gpt2", "--warn-at", "0"], "argument --warn-at: must be per cent, above 0 and up to 100, got '0'"),
        (["gpt2", "--warn-at", "30"], "--warn-at must be at most --fail-at, got 30 % and 20 % (the default)"),
        (["gpt2", "--fail-at", "3"], "--warn-at must be at most --fail-at, got 5 % (the default) and 3 %"),
        (["gpt2", "--device", "H1000"], "device must be one of A100_SXM, "),
        (["gpt2", "--recipe", "fp5"], "recipe must be one of bf16, fp8, fp8_block, nvfp4, mxfp4, w4a16, "),
        (["gpt2", "--tp", "8", "--ffn", "tp=8"], "--tp and --ffn exclude each other: give both plans in full, or "),
        (["gpt2", "--ep", "8", "--attention", "tp=8", "--ffn", "tp=8"], "--ep and --attention exclude each other"),
        (["gpt2", "--attention", "tp=8"], "--attention and --ffn must be given together, got only --attention tp=8"),
        (["gpt2", "--attention", "", "--ffn", "tp=8"], "--attention must be ways like tp=8,kvp=4 out of "),
        (["gpt2", "--attention", "tp=8,kvp=0", "--ffn", "tp=8"], "--attention must give whole numbers from 1 to 99999"),
        (["gpt2", "--attention", "tp=8", "--ffn", "tp=4"],
         "gpt2: attention and ffn must use the same GPUs, got 8 and 4: --attention tp=8 --ffn tp=4\n"),
        (["gpt2", "--attention", "ep=2", "--ffn", "tp=2"], "gpt2: attention takes tp, kvp, dp, pp and ffn tp, ep, dp, pp"),
        (["gpt2", "--ep", "3"], "ep must divide the 1 GPU of tp x kvp x dp, got 3: add --tp 3 or --dp 3\n"),
        (["gpt2", "--tp", "4", "--dp", "3", "--ep", "8"],
         "ep must divide the 12 GPUs of tp x kvp x dp, got 8: take --tp 8 or --dp 6\n"),
        (["gpt2", "--pp", "13"], "gpt2: pp must be <= the 12 layers of gpt2, got 13"),
        (["gpt2", "--device", "MI300X", "--recipe", "table2"], "gpt2: recipe must multiply in a format of the device ("),
        (["gpt2", "--cache", "fp5"], "cache must be one of fp32, tf32, bf16, "),
        (["gpt2", "--engine", "tgi"], "engine must be one of vllm, sglang, trtllm, got 'tgi'"),
        (["gpt2", "--load", "8192/1024"], "argument --load: must be prompt/answer/users, three whole numbers from 1 to 999999999 "
         "as in 8192/1024/64, got '8192/1024' "),
        (["gpt2", "--load", "1/0/1"], "argument --load: must be prompt/answer/users, "),
        (["gpt2", "--load", "1/1/1/1"], "argument --load: must be prompt/answer/users, "),
        (["gpt2", "--load", "1/1/1", "--batch", "2"], "--load and --batch exclude each other: --load gives prompt, "),
        (["gpt2", "--load", "1/1/1", "--context", "2"], "--load and --context exclude each other: "),
        (["gpt2", "--output", "no/such/x.txt"], "--output must lie in a folder that exists, got no/such/x.txt"),
        (["gpt2", "--output", "."], "--output must be a file that can be written, got .: Is a directory"),
        (["gpt2", "--dev", "GB300"], "unrecognized arguments: --dev GB300"),
        (["gpt3"],
         "gpt3: model must be a model's folder, the path of its config.json or a shipped name: there is no file 'gpt3'; did you "
         "mean 'gpt2'?"),
        ([""], ": model must be a model's folder, the path of its config.json or a shipped name: there is no file ''; hwdesign "
         "show --help lists"),
        (["Qwen/Qwen3-8B"], "Qwen/Qwen3-8B: model must be a model's folder, the path of its config.json or a shipped name: there "
         "is no file 'Qwen/Qwen3-8B'; fetch a model of the Hugging Face hub with 'hf download Qwen/Qwen3-8B --include "),
    ],
    ids=lambda x: " ".join(x)[:40] if isinstance(x, list) else "",
)  # fmt: skip
def test_bad_input_is_told_in_one_line(capsys, words, says):
    assert check(*words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith(f"hwdesign: {says}"), err


@pytest.mark.parametrize("words", [["x"], ["show"], ["show", "a", "b"], ["measure", "--fast"], []])
def test_every_command_refuses_in_one_line(capsys, words):
    with pytest.raises(SystemExit) as left:
        cli.main(words)
    out, err = capsys.readouterr()
    assert left.value.code == 2 and out == "" and err.count("\n") == 1 and " --help)" in err


@pytest.mark.parametrize(
    "name", ["\x1b[31m\x07", "a\u202eb\u2066", "::error::x\n::error::y", "a\0b", "\ud800", "x" * 10_000, "\u3164"]
)
def test_hostile_arguments_reach_no_terminal(capsys, tmp_path, name):
    options = [["--device", name], ["--recipe", name], ["--ffn", name], ["--batch", name], ["--format", name], [f"--{name}"]]
    options += [["--attention", f"tp={name}", "--ffn", "tp=1"], ["--output", tmp_path / name / "x"]]
    for words in ([name], *(["gpt2", *option] for option in options)):
        assert check(*words) == 2
        out, err = capsys.readouterr()
        line = err.removesuffix("\n")
        assert out == "" and line.startswith("hwdesign: ") and len(line) < 1200 and visible(line, 2000) == line
    assert cli.main(["show", name]) == 2
    line = capsys.readouterr().err.removesuffix("\n")
    assert visible(line, 2000) == line


@pytest.mark.parametrize("form", report.FORMATS)
@pytest.mark.parametrize(
    "name", ["</script><b>", "\x1b]8;;https:x\x07y", "\u202e::error::", "a|b`c\n[d](e)", "@everyone"], ids=range(5)
)
def test_hostile_folders(capsys, tmp_path, monkeypatch, name, form):
    folder = tmp_path / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    assert check(f"{name}/config.json", "--format", form, "--fail-on", "never") == 0
    out, err = capsys.readouterr()
    assert err == "" and all(c == "\n" or (c.isprintable() and visible(c) == c) for c in out)
    assert not any(line.lstrip().startswith("::") for line in out.splitlines())
    if form == "json":
        assert json.loads(out)["reports"][0]["config"] == visible(f"{name}/config.json")
    if form == "html":
        assert "<b>" not in out and "<script" not in out


# Several loads, and what differs.


def test_loads_are_told_in_the_order_given(capsys):
    assert check("llama-3.1-8b", "--load", "512/64/2", "--load", "64/512/1", "--fail-on", "never", "--format", "json") == 0
    (report,) = json.loads(capsys.readouterr().out)["reports"]
    assert [(x["prompt_tokens"], x["answer_tokens"], x["batch_sequences"]) for x in report["loads"]] == [
        (512, 64, 2),
        (64, 512, 1),
    ]


def diff(*words):
    try:
        return cli.main(["diff", *map(str, words)])
    except SystemExit as left:
        return left.code


@pytest.fixture
def two_reports(tmp_path, capsys):
    paths = tmp_path / "a.json", tmp_path / "b.json"
    for name, path in zip(("llama-3.1-70b", "qwen2.5-72b"), paths, strict=True):
        assert check(name, *FAIL[1:], "--fail-on", "never", "--format", "json", "--output", path) == 0
    assert capsys.readouterr().out == ""
    return paths


def test_diff_of_two_configs_and_of_their_reports_say_the_same(capsys, two_reports):
    told = []
    for words in (["llama-3.1-70b", "qwen2.5-72b", *FAIL[1:]], two_reports, [two_reports[0], "qwen2.5-72b", *FAIL[1:]]):
        assert diff(*words) == 0
        told.append(capsys.readouterr().out)
        assert diff(*words, "--fail-on", "worse") == 1  # 29568 / 8 cuts a block of scales
        capsys.readouterr()
    assert told[0] == told[1] == told[2]
    assert "  feed forward width  28672 -> 29568\n" in told[0] and "  vocabulary          128256 -> 152064\n" in told[0]
    assert "  parameters          70,553,706,496 -> 72,706,203,648\n" in told[0]
    assert "  2 multiples of 128  ok -> BREAK\n" in told[0]  # no cost: it does not load
    assert re.search(r"  step .* ms  \(\+[0-9.]+ %\)", told[0])
    assert diff(*reversed(two_reports), "--fail-on", "worse") == 0


def test_diff_as_json_and_markdown(capsys, two_reports):
    assert diff(*two_reports, "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["worse"] is True and found["settings"][0] == {"name": "parameters", "before": 70553706496, "after": 72706203648}
    (load,) = found["loads"]
    (width,) = [verdict for verdict in load["verdicts"] if verdict["guideline"] == 2]
    assert (width["before"]["status"], width["after"]["status"]) == ("ok", "break")
    assert diff(*two_reports, "--format", "markdown") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "### `llama-3.1-70b` and `qwen2.5-72b`" and "| vocabulary | 128256 | 152064 |  |" in lines


def test_diff_of_other_settings_and_loads(capsys, tmp_path):
    for name, words in (
        ("a", ["--load", "512/64/2", "--load", "64/64/1"]),
        ("b", ["--load", "64/64/1", "--tp", "2", "--cache", "fp8"]),
    ):
        check("llama-3.1-8b", *words, "--format", "json", "--output", tmp_path / name)
    assert diff(tmp_path / "a", tmp_path / "b") == 0
    out = capsys.readouterr().out
    for words in (
        "  cache      bf16 -> fp8\n",
        "  gpus       1 -> 2\n",
        "  attention  tp=1 -> tp=2\n",
        "\n512/64/2: only in A\n",
        "64/64/1: ",
    ):
        assert words in out
    assert diff("gpt2", "gpt2", "--fail-on", "worse") == 0
    assert capsys.readouterr().out.count("nothing differs") == 2


def broken(path, change):
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts))
    return path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: f.update(version=1), "A must be a report of version 2, got 1: write it anew with check --format json"),
        (lambda f: f.update(reports=[]), "A must hold one report, got 0: check one config a file"),
        (lambda f: f.update(reports=f["reports"] * 2), "A must hold one report, got 2: "),
        (
            lambda f: f["reports"][0].pop("loads"),
            "A must be a report as check --format json writes it, got one where this is missing",
        ),
        (lambda f: f["reports"][0]["loads"][0].update(step_seconds="x"), "A must be a report as check "),
        (lambda f: f["reports"][0]["loads"][0].update(step_seconds=float("nan")), "A must be a report as check "),
        (lambda f: f["reports"][0]["loads"][0].update(verdicts=[{}]), "A must be a report as check "),
        (lambda f: f["reports"][0].update(model=[]), "A must be a report as check "),
        (lambda f: f["reports"][0]["loads"][0]["verdicts"][0].update(status="\x1b[31m"), "A must be a report as check "),
        (lambda f: f.update(reports=[3]), "A must be a report as check "),
    ],
)
def test_bad_reports_are_told_in_one_line(capsys, two_reports, change, says):
    assert diff(broken(two_reports[0], change), two_reports[1]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith(f"hwdesign: {says}") and "\x1b" not in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["gpt2"], "the following arguments are required: B (see hwdesign diff --help)"),
        (
            ["gpt2", "gpt3"],
            "model must be a model's folder, the path of its config.json or a shipped name: there is no file 'gpt3'; did you "
            "mean 'gpt2'?",
        ),
        (["gpt2", "gpt2", "--format", "html"], "argument --format: invalid choice: 'html' (choose from "),
        (["gpt2", "gpt2", "--load", "x"], "argument --load: must be prompt/answer/users, "),
        (["gpt2", "gpt2", "--device", "H1000"], "device must be one of A100_SXM, "),
    ],
)
def test_bad_words_for_diff_are_told_in_one_line(capsys, words, says):
    assert diff(*words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith(f"hwdesign: {says}")


def test_options_of_diff_are_for_configs(capsys, two_reports):
    assert diff(*two_reports, "--tp", "8") == 2
    assert "got two reports and attention, ffn" in capsys.readouterr().err


def test_hostile_reports_reach_no_terminal(capsys, two_reports):
    def names(facts):
        (report,) = facts["reports"]
        report["config"], report["device"] = "\x1b[31m", "a\u202eb\n::error::c"
        report["loads"][0]["load"] = "::x\x07"

    broken(two_reports[0], names)
    for form in ("text", "markdown", "json"):
        assert diff(*two_reports, "--format", form) == 0
        out = capsys.readouterr().out
        assert all(c == "\n" or (c.isprintable() and visible(c) == c) for c in out)
        assert not any(line.lstrip().startswith("::") for line in out.splitlines())


# What is said and shown.


def test_help_teaches():
    done = run("check", "--help", COLUMNS="100")
    text = done.stdout.decode()
    assert done.returncode == 0 and max(map(len, text.splitlines())) <= 100
    for word in (
        "verdicts",
        "WARN",
        "n/a",
        "A cost is the share",
        "BREAK",
        "where the step goes",
        "examples",
        "exit codes",
        "read on",
        *cli.WAYS,
        *report.FORMATS,
    ):
        assert word in text
    flat = " ".join(text.split())
    assert f"{hw.device_names()[-1]} ({Case.device})" in flat
    assert f"over all GPUs ({Case.batch})" in flat and f"sees ({Case.context})" in flat
    assert f"is a warning ({100 * Limits.warn:g})" in flat and f"is a failure ({100 * Limits.fail:g})" in flat
    examples = re.findall(r"^  hwdesign (check (?:deepseek|config).*)$", text, re.M)
    assert len(examples) == 4
    for example in examples:
        assert check(*example.split()[1:]) in (0, 1, 2)  # 2: there is no config.json here
    assert "check" in run("--help").stdout.decode()


def test_formats_are_those_of_the_report():
    assert cli.CHOICES[0][1] == report.FORMATS


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (["--tp", "8"], ["--attention", "tp=8", "--ffn", "tp=8"]),
        (["--tp", "8", "--ep", "8"], ["--attention", "tp=8", "--ffn", "ep=8"]),
        (["--tp", "2", "--kvp", "2", "--dp", "2", "--ep", "4", "--pp", "2"],
         ["--attention", "tp=2,kvp=2,dp=2", "--ffn", "tp=2,ep=4", "--pp", "2"]),
        (["--dp", "2"], ["--attention", "dp=2", "--ffn", "dp=2"]),
    ],
    ids=str,
)  # fmt: skip
def test_short_ways_and_long_plans_agree(capsys, short, long):
    outs = []
    for words in (short, long):
        assert check("deepseek-r1", "--format", "json", "--fail-on", "never", *words) == 0
        outs.append(json.loads(capsys.readouterr().out)["reports"][0])
    assert outs[0] == outs[1] and outs[0]["attention"]["pp"] == outs[0]["ffn"]["pp"]
    assert not {"attention", "ffn"} & set(outs[0]["defaults"])


def test_options_may_stand_before_and_after(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-odd.json").write_text(json.dumps(LLAMA))
    assert check("--tp", "1", "--fail-on", "never", "gpt2", "phi-4") == 0
    assert check("gpt2", "phi-4", "--fail-on", "never") == 0
    assert check("--fail-on", "never", "--", "-odd.json") == 0
    assert check("gpt2", "--tp", "1", "phi-4", "--fail-on", "never", "--", "-odd.json") == 0
    assert capsys.readouterr().out.count(" on GB300: ") == 8
    assert cli.main(["show", "--format", "json", "gpt2"]) == cli.main(["show", "--", "-odd.json"]) == 0


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("wish", "terminal", "environment", "coloured"),
    [
        ("auto", True, {"TERM": "xterm"}, True),
        ("auto", False, {"TERM": "xterm"}, False),
        ("auto", True, {"TERM": "dumb"}, False),
        ("auto", True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        ("auto", True, {"TERM": "xterm", "NO_COLOR": ""}, True),
        ("auto", False, {"FORCE_COLOR": "1"}, True),
        ("auto", False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("auto", False, {"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        ("auto", True, {"FORCE_COLOR": "0", "TERM": "xterm"}, False),
        ("always", False, {"NO_COLOR": "1", "TERM": "dumb"}, True),
        ("never", True, {"FORCE_COLOR": "1", "TERM": "xterm"}, False),
    ],
)
def test_colour(monkeypatch, wish, terminal, environment, coloured):
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Terminal() if terminal else io.StringIO())
    assert check("gpt2", "--color", wish) == 0
    assert ("\x1b[" in sys.stdout.getvalue()) is coloured
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert check("gpt2", "--color", wish, "--format", "json") == 0
    assert "\x1b" not in sys.stdout.getvalue()


@pytest.mark.parametrize(("columns", "longest"), [("200", 100), ("80", 80), ("20", 60)])
def test_width_is_that_of_the_terminal_up_to_a_hundred(capsys, monkeypatch, columns, longest):
    monkeypatch.setenv("COLUMNS", columns)
    check("qwen3-235b-a22b", "--tp", "8")
    lines = [line for line in capsys.readouterr().out.splitlines() if "https://" not in line]
    assert longest - 12 < max(map(len, lines)) <= longest


def test_warnings_are_notes_and_no_trace(capsys):
    assert check("gpt2", "--device", "H100", "--fail-on", "never") == 0
    out, err = capsys.readouterr()
    assert err == "" and "note     device 'H100' does not name a form factor: taking H100_SXM" in out


# Where it goes.


@pytest.mark.parametrize("form", report.FORMATS)
def test_output_holds_what_would_be_printed(capsys, tmp_path, form):
    assert check("gpt2", "--format", form, "--output", tmp_path / "report") == 0
    out, err = capsys.readouterr()
    written = (tmp_path / "report").read_bytes()
    assert out == err == "" and written.endswith(b"\n") and b"\r" not in written and b"\x1b" not in written
    assert check("gpt2", "--format", form) == 0
    assert capsys.readouterr().out == written.decode()


@pytest.mark.parametrize(
    ("environment", "unit"),
    [
        ({"PYTHONIOENCODING": "ascii"}, b" us ("),
        ({"PYTHONIOENCODING": "cp1252"}, b" \xb5s ("),
        ({"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, b" us ("),
        ({"PYTHONIOENCODING": "utf-8"}, b" \xc2\xb5s ("),
    ],
    ids=["ascii", "cp1252", "LANG=C", "utf-8"],
)
def test_streams_that_cannot_show_everything(tmp_path, environment, unit):
    folder = tmp_path / "名前"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    done = run("check", os.fsencode(folder / "config.json"), b"n\xff.json", "--fail-on", "never", "--batch", "1", **environment)
    assert done.returncode == 2 and unit in done.stdout and done.stderr.count(b"\n") == 1 and b"Traceback" not in done.stderr
    for form in report.FORMATS:
        assert run("check", os.fsencode(folder / "config.json"), "--format", form, **environment).returncode in (0, 1)


READ = [["check", "deepseek-r1", "--format", "json"], ["check", "--help"], ["show", "gpt2"], ["--version"], ["show", "--help"]]


@pytest.mark.parametrize("words", READ, ids=" ".join)
def test_a_reader_who_leaves_early_is_no_error(words):
    process = subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=60) in (0, 1) and err == b""
    process.stderr.close()


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.parametrize("words", READ, ids=" ".join)
def test_closed_streams(words):
    told = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *PROGRAM, *words], stderr=subprocess.PIPE, timeout=60, check=False)
    assert told.returncode in (0, 1) and told.stderr == b""
    done = subprocess.run(
        ["sh", "-c", '"$@" 2>&-', "sh", *PROGRAM, "check", "none"], stdout=subprocess.PIPE, timeout=60, check=False
    )
    assert done.returncode == 2 and done.stdout == b""


def test_output_spares_the_config_and_what_a_link_leads_to(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = json.dumps(LLAMA)
    (tmp_path / "x.json").write_text(text)
    os.link("x.json", "same.json")
    os.symlink("x.json", "link.json")
    os.symlink("nowhere", "dangling")
    for words, says in (
        (["x.json", "--output", "x.json"], "no config that is read, got x.json"),
        (["x.json", "--output", f"../{tmp_path.name}/x.json"], "no config that is read"),
        (["none.json", "x.json", "--output", "same.json"], "no config that is read, got same.json"),
        (["link.json", "--output", "x.json"], "no config that is read, got x.json"),
        (["gpt2", "--output", config.SHIPPED / "gpt2.json"], "no config that is read"),
        (["gpt2", "--output", "link.json"], "no symbolic link, got link.json"),
        (["gpt2", "--output", "dangling"], "no symbolic link, got dangling"),
    ):
        assert check(*words) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith(f"hwdesign: --output must be {says}") and err.count("\n") == 1
    assert (tmp_path / "x.json").read_text() == text and not (tmp_path / "nowhere").exists()
    assert check("gpt2", "--output", "x.json") == 0  # another file may be replaced
    assert check("gpt2", "--output", "-") == 0 and capsys.readouterr().out.startswith("gpt2 on GB300: WARN")
    assert not (tmp_path / "-").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_told():
    done = run("check", "gpt2", "--output", "/dev/full")
    assert done.returncode == 2 and done.stderr.startswith(
        b"hwdesign: --output must be a file that can be written, got /dev/full"
    )


LOADS = ["--load", "8192/1024/64", "--load", "1024/1024/16", "--load", "1024/8192/256"]


@pytest.mark.alone
@pytest.mark.parametrize("words", [[], LOADS], ids=["one load", "three loads"])
def test_it_takes_less_than_a_second_with_python_s_start(words):
    resource = pytest.importorskip("resource", reason="no resource usage of processes here")
    limit = slowness()  # 1 s on the machine of the limits

    def seconds():  # of the processor: a busy machine is no fault of the code
        used = [resource.getrusage(resource.RUSAGE_CHILDREN)]
        assert run("check", "deepseek-r1", "--tp", "8", "--ep", "8", "--fail-on", "never", *words).returncode == 0
        used.append(resource.getrusage(resource.RUSAGE_CHILDREN))
        before, after = (u.ru_utime + u.ru_stime for u in used)
        return after - before

    assert min(seconds() for _ in range(3)) < limit


def test_it_needs_numpy_alone():
    run_it = "import sys; from hwdesign.cli import main; main(['check', 'gpt2', '--format', '{}'])"
    code = run_it + "; print(*sys.modules, file=sys.stderr)"
    for form in ("text", "sarif"):
        done = subprocess.run([sys.executable, "-c", code.format(form)], capture_output=True, text=True, check=True)
        loaded = {name.split(".")[0] for name in done.stderr.split()}
        assert not {"matplotlib", "torch", "IPython", "jsonschema", "scipy", "pandas"} & loaded


def test_types_are_argparse_s():
    for parse, bad in ((cli._whole, "x"), (cli._share, "x")):
        with pytest.raises(argparse.ArgumentTypeError):
            parse(bad)
    assert cli._whole("12") == 12 and cli._share("2.5") == 0.025


def test_an_ignored_guideline_is_judged_and_does_not_count(capsys):
    words = ["phi-4", "--tp", "8", "--recipe", "nvfp4"]  # ten key-value heads, a cache in BF16
    assert (check(*words), check(*words, "--ignore", "2")) == (1, 0)
    capsys.readouterr()
    check(*words, "--ignore", "7,2,4", "--format", "json")
    report = json.loads(capsys.readouterr().out)["reports"][0]
    assert report["ignored_guidelines"] == [2, 4, 7] and report["status"] == "ok"
    assert [v["status"] for v in report["loads"][0]["verdicts"] if v["guideline"] in (2, 4, 7)] == ["break", "warn", "ok"]
    check(*words, "--ignore", "2,4,7", "--format", "sarif")
    assert json.loads(capsys.readouterr().out)["runs"][0]["results"] == []


@pytest.mark.parametrize("bad", ["0", str(len(GUIDELINES) + 1), "2;5", "two", "2,", "٣", "02"])
def test_what_to_ignore_is_numbers_of_guidelines(capsys, bad):
    assert check("gpt2", "--ignore", bad) == 2
    told = capsys.readouterr().err
    assert "--ignore" in told and repr(bad) in told and told.count("\n") == 1


def test_what_does_not_fit_fails_whatever_the_verdicts(capsys):
    words = ["deepseek-r1", "--recipe", "nvfp4"]
    assert check(*words, "--ignore", "1,2,3,4,5,6,7") == 1
    assert "DOES NOT FIT" in capsys.readouterr().out
    assert check(*words, "--fail-on", "never") == 0
