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
from hwdesign.advice.checklist import CHAPTERS, TITLES
from hwdesign.advice.report_facts import chapter
from hwdesign.models import config

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
LEVELS = {"fail": "error", "warn": "warning"}
RULES = {
    1: "A product of matrices is fastest when N and K are near each other and neither is tiny: "
    "no narrow experts, no "
    "feed-forward width far above the hidden size.",
    2: "Widths are multiples of 128 after the split over GPUs, no scale block or row is cut, "
    "and the heads divide.",
    3: "At the same number of parameters a wider model with fewer layers needs fewer and "
    "larger operations.",
    4: "The lowest precision that the device multiplies moves fewer bytes and multiplies "
    "faster; what it costs in accuracy is "
    "not judged here.",
    5: "Experts spread whole over many GPUs see more tokens each than experts that are cut.",
    6: "Layers that fall into equal stages keep every GPU of a pipeline busy.",
    7: "Attention and the feed-forward part may be spread over the same GPUs in different "
    "ways, so that the cache is not copied.",
}
HELP = (
    "A warning or a failure by the share of a decode step that a better alternative saves, "
    "or where a split breaks a rule."
)
KEYS = {  # dimension -> keys of a config that carry it, the first that is there
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
TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?|[{}\[\]]', re.DOTALL)


def sarif(reports, errors=()):
    """Reports as one SARIF log.

    Parameters
    ----------
    reports : sequence of Report
        What to tell.
    errors : sequence of str
        Configs that could not be read, and why.

    Returns
    -------
    dict
        To be written as JSON.

    Notes
    -----
    Notes are notifications, settings are properties of the run.
    Source: OASIS, SARIF 2.1.0 plus errata 01.

    Examples
    --------
    >>> from hwdesign.advice.report_facts import judge
    >>> [result["level"] for result in sarif([judge("gpt2")])["runs"][0]["results"]]
    ['warning', 'error']
    """
    told = [("error", error) for error in errors]
    for report in reports:
        name = " ".join(report.title)
        told += [("note", f"{name}: {note}") for note in report.facts["notes"]]
    notices = [{"level": level, "message": _message(words)} for level, words in told]
    run = {
        "tool": {
            "driver": {
                "name": "hwdesign",
                "semanticVersion": __version__,
                "rules": [*map(_rule, TITLES), MEMORY],
            }
        },
        "invocations": [{"executionSuccessful": not errors, "toolExecutionNotifications": notices}],
        "columnKind": "utf16CodeUnits",
        "results": [result for report in reports for result in _results(report)],
        "properties": {
            "reports": [
                {k: v for k, v in report.facts.items() if k != "verdicts"} for report in reports
            ]
        },
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def key_lines(text):
    """Where the keys of a config stand.

    Parameters
    ----------
    text : str
        JSON.

    Returns
    -------
    dict of str to int
        Key to its line, from 1 on; a key of the nested language model goes before one outside, keys
        of other objects are left out.

    Notes
    -----
    Source: `hwdesign.models.config.NESTED`.

    Examples
    --------
    >>> vision = '"vision_config": {"n_embd": 2}'
    >>> language = '"text_config": {"hidden_size": 3}'
    >>> key_lines(f'{{"hidden_size": 1,\\n{vision},\\n{language}}}')["hidden_size"]
    3
    """
    found, path, key, line, last = {}, [], None, 1, 0
    for token in TOKEN.finditer(text):
        line, last = line + text.count("\n", last, token.start()), token.start()
        if token[2]:
            key = json.loads(token[1])
            depth = len(path) if set(path[1:]) <= set(config.NESTED) else 0
            if depth > found.get(key, (0, 0))[0]:
                found[key] = depth, line
        elif token[0] in "{[":
            path.append(key)
            key = None
        elif token[0] in "}]":
            path[-1:] = []
    return {key: line for key, (_, line) in found.items()}


def _rule(guideline):
    address, about = chapter(guideline), f"{RULES[guideline]} {HELP}"
    more = f"Read on: {address}" if address else "Read on in the book."
    link = {"helpUri": address} if address else {}
    return {
        "id": _rule_id(guideline),
        "name": "".join(word.title() for word in CHAPTERS[guideline].split("_")[1:]),
        "shortDescription": {"text": f"{TITLES[guideline]}."},
        "fullDescription": {"text": RULES[guideline]},
        "help": {
            "text": f"{about} {more}",
            "markdown": f"{about}\n\n{f'[Read on]({address})' if address else more}",
        },
        **link,
        "defaultConfiguration": {"level": "warning"},
        "properties": {"tags": ["hardware", "performance"]},
    }


def _rule_id(guideline):
    return f"hwdesign/{guideline}-{CHAPTERS[guideline][3:].replace('_', '-')}"


def _results(report):
    path = config_path(report.source)
    try:
        lines = key_lines(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):  # a parsed config has no file
        lines = {}
    place = os.path.abspath(path)
    uri = os.path.relpath(place) if Path(place).is_relative_to(Path.cwd()) else Path(place).as_uri()
    uri = uri if uri.startswith("file:") else quote(os.fsencode(uri.replace(os.sep, "/")))
    if report.need:
        what = f"{' '.join(report.title)}: {report.need}."
        yield {
            **_located(MEMORY["id"], len(TITLES), "error", what, uri, 1),
            **_prints(MEMORY["id"], uri),
        }
    for verdict in report.facts["verdicts"]:
        for finding in verdict["findings"] if verdict["guideline"] not in report.ignored else ():
            yield _result(report, verdict["guideline"], finding, uri, lines)


def _result(report, guideline, finding, uri, lines):
    what = f"{finding['dimension']} {finding['value']}"
    keys = next((KEYS[name] for name in KEYS if name in what), ())
    line = next((lines[key] for key in keys if key in lines), 1)
    words = ". ".join(f"{label}: {words}" for label, words in report.details(finding, guideline))
    told = f"{what} on {report.checklist.case.device.name}. {words}."
    return {
        **_located(_rule_id(guideline), guideline - 1, LEVELS[finding["status"]], told, uri, line),
        **_prints(_rule_id(guideline), uri, finding["dimension"], finding["value"]),
        "properties": {"cost_share": finding["cost_share"], "fix": finding["fix"]},
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
