"""Findings as SARIF 2.1.0, the format that code scanning reads: a rule a guideline and one for
memory, a result a finding.
"""

import hashlib
import json
import os
import re
from pathlib import Path
from urllib.parse import quote

from hwdesign import __version__
from hwdesign.advice.case import config_path
from hwdesign.advice.guidelines import GUIDELINES
from hwdesign.advice.report_facts import chapter
from hwdesign.advice.report_words import details, need, title
from hwdesign.models import config

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
LEVELS = {"break": "error", "fail": "error", "warn": "warning"}
HELP = (
    "A warning or a failure by the share of a decode step that a better alternative saves; an "
    "error, too, where an engine refuses a shape or crashes on it."
)
KEYS = {  # subject of a finding -> keys of a config that carry it, the first that is there
    "hidden size": ("hidden_size", "n_embd", "d_model"),
    "vocabulary": ("vocab_size",),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "feed-forward width": ("block_configs", "intermediate_size", "n_inner"),
    "shared expert width": (
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "n_shared_experts",
    ),
    "expert width": ("moe_intermediate_size", "intermediate_size"),
    "query latent": ("q_lora_rank",),
    "latent": ("kv_lora_rank",),
    "Mamba heads": ("mamba_num_heads",),
    "key-value heads": (
        "num_key_value_heads",
        "n_head_kv",
        "num_kv_heads",
        "num_query_groups",
        "num_attention_heads",
        "n_head",
    ),
    "query heads": ("num_attention_heads", "n_head"),
    "recipe": ("quantization_config", "torch_dtype", "dtype"),
}
MEMORY = {
    "id": "hwdesign/0-memory",
    "name": "Memory",
    "shortDescription": {"text": "Weights and cache fit into memory."},
    "fullDescription": {
        "text": "Weights and cache of the load fit into the memory of the fullest GPU."
    },
    "help": {"text": "Take more GPUs, a smaller format, fewer sequences or a shorter context."},
    "defaultConfiguration": {"level": "error"},
    "properties": {"tags": ["hardware", "memory"]},
}
PLANS = {
    "id": "hwdesign/0-plans",
    "name": "Plans",
    "shortDescription": {"text": "The engine runs the plans."},
    "fullDescription": {
        "text": "The engine has options for the plans of attention and the feed-forward part."
    },
    "help": {"text": "Take plans that the engine runs, or say --engine."},
    "defaultConfiguration": {"level": "error"},
    "properties": {"tags": ["hardware", "engine"]},
}
TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?|[{}\[\]]', re.DOTALL)


def sarif(reports, errors=()):
    """Reports as one SARIF log, to be written as JSON.

    `errors` are configs that could not be judged, and why. Notes are notifications, settings are
    properties of the run. Source: OASIS, SARIF 2.1.0 plus errata 01.

    Examples
    --------
    >>> from hwdesign.advice.judge import judge
    >>> [result["level"] for result in sarif([judge("gpt2")])["runs"][0]["results"]]
    ['warning', 'warning']
    """
    notices = [{"level": "error", "message": _message(error)} for error in errors]
    results, settings = [], []
    for report in reports:
        name = " ".join(title(report))
        for note in report.facts["notes"]:
            notices.append({"level": "note", "message": _message(f"{name}: {note}")})
        results += _results(report)
        settings.append(_settings(report.facts))
    driver = {
        "name": "hwdesign",
        "semanticVersion": __version__,
        "rules": [*map(_rule, GUIDELINES.values()), MEMORY, PLANS],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not errors, "toolExecutionNotifications": notices}],
        "columnKind": "utf16CodeUnits",
        "results": results,
        "properties": {"reports": settings},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _settings(facts):
    """The facts of a report without its verdicts, which are the results."""
    loads = [{k: v for k, v in load.items() if k != "verdicts"} for load in facts["loads"]]
    return {**facts, "loads": loads}


def key_lines(text):
    """Where the keys of a config stand: key to its line, from 1 on.

    A key of the nested language model (`hwdesign.models.config.NESTED`) goes before one outside;
    keys of other objects are left out.

    >>> vision = '"vision_config": {"n_embd": 2}'
    >>> language = '"text_config": {"hidden_size": 3}'
    >>> key_lines(f'{{"hidden_size": 1,\\n{vision},\\n{language}}}')["hidden_size"]
    3
    """
    lines, depths, path, key, line, last = {}, {}, [], None, 1, 0
    for token in TOKEN.finditer(text):
        line += text.count("\n", last, token.start())
        last = token.start()
        string, colon = token[1], token[2]
        if colon:
            key = json.loads(string)
            inside_language_model = set(path[1:]) <= set(config.NESTED)
            depth = len(path) if inside_language_model else 0
            if depth > depths.get(key, 0):
                depths[key], lines[key] = depth, line
        elif token[0] in "{[":
            path.append(key)
            key = None
        elif token[0] in "}]":
            path[-1:] = []
    return lines


def _rule(guideline):
    address, about = chapter(guideline.number), f"{guideline.about} {HELP}"
    more = f"Read on: {address}" if address else "Read on in the book."
    linked = f"[Read on]({address})" if address else more
    rule = {
        "id": _rule_id(guideline),
        "name": guideline.slug.title().replace("-", ""),
        "shortDescription": {"text": f"{guideline.title}."},
        "fullDescription": {"text": guideline.about},
        "help": {"text": f"{about} {more}", "markdown": f"{about}\n\n{linked}"},
    }
    if address:
        rule["helpUri"] = address
    rule["defaultConfiguration"] = {"level": "warning"}
    rule["properties"] = {"tags": ["hardware", "performance"]}
    return rule


def _rule_id(guideline):
    return f"hwdesign/{guideline.number}-{guideline.slug}"


def _results(report):
    """The results of one report, as a list."""
    path = config_path(report.source)
    try:
        lines = key_lines(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):  # a parsed config has no file
        lines = {}
    uri = _address(path)
    found = []
    needed = need(report)
    if needed:
        what = f"{' '.join(title(report))}: {needed}."
        result = _located(MEMORY["id"], len(GUIDELINES), "error", what, uri, 1)
        found.append({**result, **_prints(MEMORY["id"], uri)})
    refused = report.facts["engine_refusal"]
    if refused:
        level = "warning" if "engine" in report.defaults else "error"
        what = f"{' '.join(title(report))}: {report.case.engine.title} does not run it: {refused}."
        result = _located(PLANS["id"], len(GUIDELINES) + 1, level, what, uri, 1)
        found.append({**result, **_prints(PLANS["id"], uri)})
    for blame in report.blames:
        if blame.verdict["guideline"] not in report.ignored:
            found.append(_result(report, blame, uri, lines))
    return found


def _address(path):
    """Where a file lies, as a URI: relative below the current folder, else absolute."""
    place = os.path.abspath(path)
    if not Path(place).is_relative_to(Path.cwd()):
        return Path(place).as_uri()
    relative = os.path.relpath(place).replace(os.sep, "/")
    return quote(os.fsencode(relative))


def _result(report, blame, uri, lines):
    """The result of a finding: one for all loads, with the highest cost."""
    guideline, told = GUIDELINES[blame.verdict["guideline"]], blame.finding
    rule, index = _rule_id(guideline), list(GUIDELINES).index(guideline.number)
    keys = KEYS.get(blame.source.subject or blame.source.dimension, ())
    line = next((lines[key] for key in keys if key in lines), 1)
    words = [f"{label}: {words}" for label, words in details(report, blame)]
    what = f"{told['dimension']} {told['value']} on {report.case.device.name}"
    message = f"{what}. {'. '.join(words)}."
    loads = [{"load": load, "cost_share": found["cost_share"]} for load, found in blame.at]
    return {
        **_located(rule, index, LEVELS[told["status"]], message, uri, line),
        **_prints(rule, uri, told["dimension"], told["value"]),
        "properties": {
            "status": told["status"],
            "cost_share": told["cost_share"],
            "loads": loads,
            "fixes": told["fixes"],
        },
    }


def _located(rule, index, level, words, uri, line):
    place = {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}
    said = {"ruleId": rule, "ruleIndex": index, "level": level, "message": _message(words)}
    return {**said, "locations": [{"physicalLocation": place}]}


def _prints(*identity):
    return {
        "partialFingerprints": {
            "hwdesign/v1": hashlib.sha256("\n".join(identity).encode()).hexdigest()[:32]
        }
    }


def _message(words):
    """A message whose braces are no placeholders and whose brackets are no link."""
    return {"text": re.sub(r"[\\\[\]]", r"\\\g<0>", words).replace("{", "{{").replace("}", "}}")}
