"""What differs between two reports: settings and sizes, times and verdicts at each load."""

import json
import math
from pathlib import Path

from hwdesign._check import choice, instance, whole
from hwdesign.advice.guidelines import GUIDELINES
from hwdesign.advice.judge import judge
from hwdesign.advice.report import VERSION, as_object
from hwdesign.advice.report_facts import REPORT_STATUSES
from hwdesign.advice.report_words import MARKS, VISIBLE, signed, size_label
from hwdesign.advice.verdict import RANK, STATUSES, percent
from hwdesign.models import config
from hwdesign.safe import code_span, markdown_text, visible
from hwdesign.units import fmt

FORMATS = ("text", "markdown", "json")
LARGEST = 16_000_000  # of a file that is read as a report [byte]
NUMBERS = {  # of a load, and their units
    "step_seconds": "s",
    "token_seconds": "s",
    "user_tokens_per_second": "token/s",
    "gpu_tokens_per_second": "token/s",
    "memory_bytes": "byte",
}
NAMES = {
    "step_seconds": "step",
    "token_seconds": "per token",
    "user_tokens_per_second": "of a user",
    "gpu_tokens_per_second": "of a GPU",
    "memory_bytes": "memory",
}
PLAIN = ("device", "recipe", "cache", "gpus")


def difference(before, after, **options):
    """What differs between two configs or reports, as a plain object.

    Parameters
    ----------
    before, after : str or path
        A config, judged with the options, or a report that ``check --format json`` wrote.
    **options
        As for `hwdesign.advice.judge.judge`; None and () stand for none.

    Returns
    -------
    dict
        `before`, `after`: names of the configs; `settings`: pairs that differ; `loads`: for each
        load of both what differs there, times [s] and memory [byte]; `only_before`, `only_after`:
        other loads; `worse`: whether a verdict or the memory got worse.

    Raises
    ------
    ValueError
        If a config is refused, a report is not readable, or options meet two reports.

    Notes
    -----
    Source: the JSON reports, see report.schema.json.

    Examples
    --------
    >>> found = difference("gpt2", "phi-4")
    >>> found["settings"][1]
    {'name': 'layers', 'before': 12, 'after': 40}
    """
    given = {name: value for name, value in options.items() if value not in (None, ())}
    written = [_written(name, source) for name, source in (("A", before), ("B", after))]
    if given and None not in written:
        raise ValueError(
            "A or B must be a config where options say how to judge it, got two reports and "
            f"{', '.join(given)}"
        )
    sides = []
    for name, source, facts in zip("AB", (before, after), written, strict=True):
        sides.append(_side(name, facts or as_object([judge(source, **given)])["reports"][0]))
    return _compared(*sides)


def _written(name, source):
    """The facts of the one report in a file, None where the file is no report."""
    path = Path(source)
    if source in config.names() or not path.is_file() or path.stat().st_size > LARGEST:
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError):  # a config says better what is wrong with it
        return None
    if not isinstance(found, dict) or not {"tool", "reports"} <= set(found):
        return None
    version, reports = found.get("version"), found["reports"]
    if version != VERSION:
        raise ValueError(
            f"{name} must be a report of version {VERSION}, got {visible(repr(version))}: write it "
            "anew with check --format json"
        )
    if not isinstance(reports, list) or len(reports) != 1:
        count = len(reports) if isinstance(reports, list) else "none"
        raise ValueError(f"{name} must hold one report, got {count}: check one config a file")
    return reports[0]


def _side(name, facts):
    """What is compared of a report, as values of known types."""
    try:
        model = instance("model", facts["model"], dict, "an object")
        sizes = {key: _value(size) for key, size in model.items() if key != "name"}
        plain = {key: _value(facts[key]) for key in PLAIN}
        engine = " ".join(_value(facts["engine"][key]) for key in ("name", "version"))
        plans = {part: _plan(facts[part]) for part in ("attention", "ffn")}
        loads = {_value(load["load"]): _load(load) for load in facts["loads"]}
        settings = {**sizes, **plain, "engine": engine, **plans}
        return {"config": _value(facts["config"]), "settings": settings, "loads": loads}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a report as check --format json writes it, got one where this is "
            f"missing or wrong: {visible(str(error), 200)}"
        ) from None


def _value(value):
    """A text, a whole number or a list of them."""
    if isinstance(value, list):
        return [_value(one) for one in value]
    if isinstance(value, str):
        return visible(value, 4096)
    return whole(number=value)[0]


def _plan(plan):
    """The ways of a plan above one, in words."""
    ways = [f"{visible(way)}={int(ways)}" for way, ways in plan.items() if int(ways) > 1]
    if plan.get("gather"):
        ways.append("gather")
    return ",".join(ways) or "tp=1"


def _load(load):
    numbers = {key: _number(load[key]) for key in NUMBERS}
    terms = {_value(term["name"]): _number(term["seconds"]) for term in load["terms"]}
    verdicts = {}
    for verdict in load["verdicts"]:
        costs = [_number(finding["cost_share"]) for finding in verdict["findings"]]
        status = choice("status", verdict["status"], STATUSES)
        cost = max((cost for cost in costs if cost is not None), default=None)
        number = verdict["guideline"]
        if number not in GUIDELINES:
            raise ValueError(f"guideline must be one of {', '.join(map(str, GUIDELINES))}")
        verdicts[number] = {"status": status, "cost_share": cost}
    status = choice("status", load["status"], REPORT_STATUSES)
    fits = load["fits"] is not False
    return {
        "status": status,
        "fits": fits,
        "numbers": numbers,
        "terms": terms,
        "verdicts": verdicts,
    }


def _number(value):
    """A finite number or None."""
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a number must be finite, got {number}")
    return number


def _compared(before, after):
    """The difference of two sides."""
    old, new = before["loads"], after["loads"]
    both = [name for name in old if name in new]
    loads = [_compared_load(name, old[name], new[name]) for name in both]
    return {
        "version": 1,
        "before": before["config"],
        "after": after["config"],
        "settings": _pairs(before["settings"], after["settings"]),
        "loads": loads,
        "only_before": [name for name in old if name not in new],
        "only_after": [name for name in new if name not in old],
        "worse": any(load["worse"] for load in loads),
    }


def _pairs(before, after):
    """Values that differ, in the order of the first, as a list."""
    found = []
    for name in {**before, **after}:
        pair = before.get(name), after.get(name)
        if pair[0] != pair[1]:
            found.append({"name": name, "before": pair[0], "after": pair[1]})
    return found


def _moved(before, after):
    """Pairs of numbers that differ by what can be seen, as a list."""
    found = []
    for pair in _pairs(before, after):
        old, new = pair["before"], pair["after"]
        if not old or not new or abs(new / old - 1) >= VISIBLE:
            found.append(pair)
    return found


def _compared_load(name, before, after):
    """What differs at one load."""
    verdicts, worse = [], before["fits"] and not after["fits"]
    for number, new in after["verdicts"].items():
        old = before["verdicts"].get(number, {"status": "not modelled", "cost_share": None})
        if old["status"] != "not modelled" and RANK[new["status"]] > RANK[old["status"]]:
            worse = True
        moved = abs((new["cost_share"] or 0.0) - (old["cost_share"] or 0.0)) >= VISIBLE
        if old["status"] != new["status"] or moved:
            verdicts.append({"guideline": number, "before": old, "after": new})
    return {
        "load": name,
        "status": {"before": before["status"], "after": after["status"]},
        "numbers": _moved(before["numbers"], after["numbers"]),
        "terms_seconds": _moved(before["terms"], after["terms"]),
        "verdicts": verdicts,
        "worse": bool(worse),
    }


def render_difference(found, form):
    """What `difference` found, in one of `FORMATS`.

    >>> print(render_difference(difference("gpt2", "gpt2"), "text").splitlines()[-1])
    batch 64, context 8192: WARN, nothing differs
    """
    choice("format", form, FORMATS)
    if form == "json":
        return json.dumps(found, indent=1, allow_nan=False) + "\n"
    lines = _markdown(found) if form == "markdown" else _text(found)
    return "\n".join(lines) + "\n"


def _sections(found):
    """What differs as pairs of a heading and rows, each of a label, before, after and change."""
    rows = [
        (size_label(pair["name"]), _words(pair["before"]), _words(pair["after"]), "")
        for pair in found["settings"]
    ]
    yield f"model and settings{'' if rows else ', nothing differs'}", rows
    for load in found["loads"]:
        rows = [_timed(NAMES[p["name"]], p, NUMBERS[p["name"]]) for p in load["numbers"]]
        rows += [_timed(pair["name"], pair, "s") for pair in load["terms_seconds"]]
        for verdict in load["verdicts"]:
            label = f"{verdict['guideline']} {GUIDELINES[verdict['guideline']].short}"
            old, new = (_verdict(verdict[side]) for side in ("before", "after"))
            rows.append((label, old, new, ""))
        marks = [MARKS[load["status"][side]] for side in ("before", "after")]
        told = " -> ".join(dict.fromkeys(marks))
        yield f"{load['load']}: {told}{'' if rows else ', nothing differs'}", rows
    for side, letter in (("only_before", "A"), ("only_after", "B")):
        for load in found[side]:
            yield f"{load}: only in {letter}", []


def _words(value):
    if isinstance(value, list):
        return " and ".join(map(str, value)) or "none"
    if isinstance(value, int):
        return f"{value:,}" if value >= 1_000_000 else str(value)
    return "none" if value is None else value


def _timed(label, pair, unit):
    """A row of two numbers with the change as a share."""
    old, new = pair["before"], pair["after"]
    words = ["none" if value is None else fmt(value, unit) for value in (old, new)]
    return label, *words, signed(new / old - 1) if old and new else ""


def _verdict(verdict):
    told = MARKS[verdict["status"]]
    cost = verdict["cost_share"]
    return told if cost is None else f"{told}, cost {percent(cost)}"


def _text(found):
    yield f"A  {found['before']}"
    yield f"B  {found['after']}"
    for heading, rows in _sections(found):
        yield f"\n{heading}"
        wide = max((len(row[0]) for row in rows), default=0)
        for label, old, new, change in rows:
            yield f"  {label:<{wide}}  {old} -> {new}{f'  ({change})' if change else ''}"


def _markdown(found):
    yield f"### {code_span(found['before'])} and {code_span(found['after'])}"
    for heading, rows in _sections(found):
        yield f"\n{markdown_text(heading)}"
        if rows:
            yield "\n| | A | B | change |\n| :-- | :-- | :-- | :-- |"
        for row in rows:
            yield f"| {' | '.join(map(markdown_text, row))} |"
