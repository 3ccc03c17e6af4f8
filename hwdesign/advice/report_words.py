"""The words of a report that all formats for people share: its head, its table of loads, and what
is said of a finding.
"""

import re
from collections import Counter

from hwdesign.advice.case import plan_text
from hwdesign.advice.guidelines import GUIDELINES
from hwdesign.advice.plan_rules import enough
from hwdesign.advice.report_facts import NOT_JUDGED, OPTIONS, uncalibrated
from hwdesign.advice.verdict import MARKED, percent
from hwdesign.catalogue.engine import engine as as_engine
from hwdesign.safe import visible
from hwdesign.timing.served import SURE_GAIN
from hwdesign.units import fmt

MARKS = {
    "ok": "ok",
    "warn": "WARN",
    "fail": "FAIL",
    "break": "BREAK",
    "not applicable": "n/a",
    "not modelled": "?",
    NOT_JUDGED: "?",
}
SUMMED = ("break", "fail", "warn", "ok", "not applicable", "not modelled")
ORIGIN = {
    "option": "as asked",
    "checkpoint": "the checkpoint's",
    "default": "default, the config names no quantization",
}
SHAPE = {
    "warn": "; a warning for the shape alone",
    "fail": "; a failure for the shape alone",
    "break": "; a break, whatever it costs",
}
PLACES = {"server": "server", "model": "next model"}
LABELS = {"vocab_size": "vocabulary"}
VISIBLE = 5e-4  # a share below it is within 0.1 %


def title(report):
    """Model, GPUs and what is loudest about them, as (name, rest)."""
    case = report.case
    where = case.device.name
    if case.gpus > 1:
        where = f"{case.gpus} x {where}"
    if unfit(report):
        where += ", DOES NOT FIT"
    return visible(case.model.name), f"on {where}"


def unfit(report):
    """The checklist of the load that needs the most memory, None where all loads fit."""
    found = [found for found in report.loads if found.fits is False]
    return max(found, key=lambda f: float(f.case.breakdown.memory), default=None)


def need(report):
    """What memory a model that does not fit needs, in words; empty where it fits or cannot run."""
    found = unfit(report)
    if not found:
        return ""
    case = found.case
    load = report.facts["loads"][report.loads.index(found)]
    told = f"needs {_amount(load['memory_bytes'])} of the {_amount(load['usable_bytes'])} GB"
    told += f" that {case.engine.label} leaves on the fullest GPU, weights and cache"
    if len(report.loads) > 1:
        told += f", at {load['load']}"
    larger = enough(case)
    if larger:
        told += f"; {larger.gpus} GPUs hold it: {plan_text(larger.attention, larger.ffn)}"
    return told


def alarms(report):
    """What nobody may overlook, before all else, as pairs of a label and a text."""
    refusal, needed = report.facts["refusal"], need(report)
    if refusal:
        yield "step", f"THE PLANS CANNOT RUN IT: {refusal}"
    if report.facts["engine_refusal"]:
        label = report.case.engine.label
        yield (
            "engine",
            f"{label.upper()} DOES NOT RUN THESE PLANS: {report.facts['engine_refusal']}",
        )
    if needed:
        yield "memory", f"DOES NOT FIT: {needed}; the times are those of GPUs with more memory"


def where(report):
    """Where the step goes: a table with a column for each load, as a list of rows, each a label and
    its cells; empty where the plans cannot run.
    """
    loads = report.facts["loads"]
    if report.facts["refusal"]:
        return []
    rows = [
        ("load", [load["load"] for load in loads]),
        ("step", [_served(load, "step") for load in loads]),
    ]
    if loads[0]["token_seconds"] is not None:
        rows += [
            ("per token", [_served(load, "token") for load in loads]),
            ("tokens/s/user", [_three(load["user_tokens_per_second"]) for load in loads]),
            ("tokens/s/GPU", [_three(load["gpu_tokens_per_second"]) for load in loads]),
        ]
    rows.append(("memory", [_memory(load) for load in loads]))
    if loads[0]["token_joules"] is not None:
        rows.append(("energy/token", [_energy(load) for load in loads]))
    names = dict.fromkeys(term["name"] for load in loads for term in load["terms"])
    near = len(loads) == 1
    rows += [(name, [_term(load, name, near) for load in loads]) for name in names]
    if len(loads) > 1:
        for number, guideline in GUIDELINES.items():
            found = [load["verdicts"][list(GUIDELINES).index(number)] for load in loads]
            label = f"{number} {guideline.short}{mark(report, number)}"
            rows.append((label, [MARKS[verdict["status"]] for verdict in found]))
    return rows


def _term(load, name, near):
    """A term at a load: time, share of the step, what bounds it and how near that bound is."""
    for term in load["terms"]:
        if term["name"] == name:
            told = f"{fmt(term['seconds'], 's')}, {percent(term['step_share'])}, {term['bound']}"
            if near and term["bound"] != "latency":
                told += f" at {100 * term['bound_seconds'] / term['seconds']:.0f} %"
            return told
    return "none"


def _served(load, what):
    """The time of a step or a token, and where the middle 80 % of servers lay around such a one."""
    seconds = load[f"{what}_seconds"]
    told, low = fmt(seconds, "s"), load[f"{what}_low_seconds"]
    if low is None:
        return told
    number, _, _ = told.partition(" ")
    ends = (end * float(number) / seconds for end in (low, load[f"{what}_high_seconds"]))
    return f"{told} (served {' to '.join(map(_three, ends))})"


def _energy(load):
    """Energy of a token of the decode step on all GPUs, marked where it was not measured."""
    scaled = " scaled from B200" if load["energy_note"] else ""
    return fmt(load["token_joules"], "J") + scaled


def _memory(load):
    used, room = _amount(load["memory_bytes"]), _amount(load["usable_bytes"])
    return f"{used} of {room} GB{'' if load['fits'] else ', DOES NOT FIT'}"


def _amount(size):
    """Bytes as GB with three digits, or whole."""
    size = size / 1e9
    return f"{size:.3g}" if size < 1000 else f"{size:.0f}"


def _three(value):
    """A number with three digits, or whole."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def head(report):
    """What was judged and how, as pairs of a label and a text."""
    facts, case = report.facts, report.case
    said = {name: " (default)" if name in report.defaults else "" for name in (*OPTIONS, "limits")}
    gpus = f": {case.gpus} GPUs" if case.gpus > 1 else ""
    yield "config", facts["config"]
    size = f"{len(case.model.blocks)} layers, hidden size {case.model.hidden_size}"
    yield "size", f"{fmt(case.model.parameters, ' parameters')}, {size}"
    yield "device", case.device.name + said["device"]
    yield "engine", case.engine.title + said["engine"]
    yield "recipe", f"{case.recipe.name} ({ORIGIN[report.formats.recipe_from]})"
    if case.recipe.weight_only:
        yield "kernel", _kernel(report)
    yield "cache", _cache(report)
    yield "plans", plan_text(case.attention, case.ffn) + gpus + said["attention"]
    if case.answer is None:
        told = f"batch {case.batch}{said['batch']}, context {case.context} tokens{said['context']}"
    else:
        names = [load["load"] for load in facts["loads"]]
        told = f"prompt/answer/users {', '.join(names)}, judged at half of the answer"
    yield "load", told
    warn, fail = 100 * facts["warn_share"], 100 * facts["fail_share"]
    limits = f"warning from {warn:g} %, failure from {fail:g} % of the step"
    yield "limits", limits + said["limits"]
    if report.ignored:
        noun = "guidelines" if len(report.ignored) > 1 else "guideline"
        yield "ignored", f"{noun} {', '.join(map(str, report.ignored))}, as asked"


def _kernel(report):
    """Which path of the kernels is assumed where weights alone are in few bits, in words."""
    recipe = report.case.recipe
    told = f"weight-only: {recipe.weights.label} weights are expanded to {recipe.math.label} inside"
    told += " the kernel"
    if any(f"recipe {recipe.name} takes" in note for note in report.facts["notes"]):
        told += "; a stand-in, no table times that kernel here"
    return told


def _cache(report):
    """Format of the cache and where it comes from, in words."""
    case, origin = report.case, report.formats.cache_from
    if origin == "engine":
        return f"{case.cache.name} (default of {case.engine.label})"
    return f"{case.cache.name} ({ORIGIN[origin]})"


def summary(report):
    """Whether it does not fit, how many verdicts have which status, ignored ones apart, and how
    many guidelines of those that apply were judged, in words.
    """
    counted, ignored = [], []
    for verdict in report.verdicts:
        group = ignored if verdict["guideline"] in report.ignored else counted
        group.append(verdict["status"])
    parts = []
    if unfit(report):
        parts.append("does not fit")
    if counted:
        parts.append(_counts(counted))
    if ignored:
        parts.append(f"ignored: {_counts(ignored)}")
    applicable = [status for status in counted if status != "not applicable"]
    judged = len(applicable) - applicable.count("not modelled")
    parts.append(f"judged {judged} of {len(applicable)}")
    return "; ".join(parts)


def _counts(statuses):
    """How many have which status, in words."""
    told = [f"{statuses.count(status)} {status}" for status in SUMMED if status in statuses]
    return ", ".join(told)


def mark(report, guideline):
    """ " (ignored)" after the words about a guideline that does not count, else nothing."""
    return " (ignored)" if guideline in report.ignored else ""


def rest(report):
    """The facts of the verdicts without findings, as a list."""
    blamed = {blame.verdict["guideline"] for blame in report.blames}
    return [verdict for verdict in report.verdicts if verdict["guideline"] not in blamed]


def why(report, verdict):
    """The reason of a verdict; why plans cannot run is told before."""
    if report.facts["refusal"] and verdict["status"] == "not modelled":
        return "the plans cannot run this model"
    return verdict["reason"]


def details(report, blame):
    """A finding's reason, rule, cost and fixes with what each saves and adds, as pairs of a label
    and a text.
    """
    finding, guideline = blame.finding, blame.verdict["guideline"]
    yield "why", f"{blame.verdict['title']} - {blame.verdict['reason']}"
    yield "rule", finding["rule"]
    for refusal in finding["refused_by"]:
        yield "engine", f"{refusal['engine']}: {refusal['says']}"
        yield "source", refusal["source_url"]
    yield "cost", _cost(report, blame)
    cures = {}
    for load, told in blame.at:
        for fix in told["fixes"]:
            cures.setdefault(fix["text"], []).append((load, fix))
    for places in cures.values():
        yield from _fix(report, places)
    if not cures:
        yield "fix", "none found"
    puzzle = GUIDELINES[guideline].puzzle
    if puzzle and any(_puzzles(finding["cost_share"], fix) for fix in finding["fixes"]):
        yield "note", puzzle


def _cost(report, blame):
    """What a finding costs, at each load where it holds."""
    share_of, parts = GUIDELINES[blame.verdict["guideline"]].share_of, []
    for load, finding in blame.at:
        share = finding["cost_share"]
        told = "unknown" if share is None else percent(share)
        if share is not None and not parts:
            told += f" of {share_of}"
        parts.append(told + _at(report, load))
    found = {load for load, _ in blame.at}
    without = [load["load"] for load in report.facts["loads"] if load["load"] not in found]
    if without:
        parts.append(f"no finding at {', '.join(without)}")
    share, status = blame.finding["cost_share"], blame.finding["status"]
    if status == "break" or share is not None and share < report.facts[f"{status}_share"]:
        parts[-1] += SHAPE[status]
    return ", ".join(parts)


def _at(report, load):
    """At which load, in words; nothing where there is only one."""
    return f" at {load}" if len(report.loads) > 1 else ""


def _puzzles(cost, fix):
    """Whether a fix saves something else than what the finding costs."""
    known = cost is not None and fix["step_share"] is not None
    return known and abs(cost + fix["step_share"]) >= VISIBLE


def _fix(report, places):
    """One fix: what it changes, saves, adds and makes worse; `places` are pairs of a load and the
    facts of the fix there, the load where the finding is worst first.
    """
    fix = places[0][1]
    large = f", more than {100 * MARKED:g} % of the parameters" if fix["large"] else ""
    yield "fix", f"{PLACES[fix['place']]}{large}: {fix['text']}{_engines(report, fix)}"
    changed = changes(fix)
    if changed:
        yield "change", changed
    yield from _effects(report, places)
    worse = {}
    for load, told in places:
        for worsened in told["worsens"]:
            words = "guideline {guideline}: {before} -> {after}".format(**worsened)
            worse.setdefault(words, []).append(load)
    if worse:
        told = [words + _at(report, ", ".join(loads)) for words, loads in worse.items()]
        yield "worse", "; ".join(told)
    known = " ".join(report.facts["notes"])
    new = [note for note in fix["notes"] if note not in known]
    if new:
        yield "note", uncalibrated(new)


def _engines(report, fix):
    """Which engines run the plans of a fix, in words; nothing where it changes none."""
    if not {"attention", "ffn"} & set(fix["change"]):
        return ""
    chosen = report.case.engine
    run = [as_engine(name).label for name in fix["engines"]]
    if not run:
        return " (no engine that is known here runs it)"
    told = f" ({', '.join(run)} {'run' if len(run) > 1 else 'runs'} it"
    return told + (")" if chosen.name in fix["engines"] else f", {chosen.label} does not)")


EXPECTED = "the middle half of published pairs of servers"
UNSURE = f"below {percent(SURE_GAIN)} most published pairs of servers do not show even its sign"


def _effects(report, places):
    """What a fix saves and adds: a step shorter or longer, parameters and width."""
    fix, less, more = places[0][1], [], []
    for name in ("width", "parameters"):
        share = fix[f"{name}_share"]
        if share:
            (more if share > 0 else less).append(f"{name} {signed(share)}")
    if fix["step_share"] is None:
        yield "then", f"step {fmt(fix['step_seconds'], 's')}"
    else:
        steps = [signed(told["step_share"]) + _at(report, load) for load, told in places]
        shorter = fix["step_share"] <= -VISIBLE
        (less if shorter else more).insert(0, f"step {', '.join(steps)}")
    if less:
        yield "saves", "; ".join(less)
    if fix["expected_shares"]:
        low, high = fix["expected_shares"]
        yield "expect", f"{percent(low)} to {percent(high)} on a server: {EXPECTED}"
    elif fix["sure"] is False:
        yield "expect", f"unsure: {UNSURE}"
    if more:
        yield "adds", "; ".join(more)


def changes(fix):
    """Each size before and after a fix (as in report.schema.json), plans apart; empty where the
    text of the fix names them all.

    Each number in the text stands for one change, so that equal numbers hide nothing.

    >>> layers = {"before": 48, "after": 29}
    >>> sizes = {"layers": layers, "query_heads": {"before": [32], "after": [40]}}
    >>> changes({"text": "29 layers", "change": sizes})
    'layers 48 -> 29, query heads 32 -> 40'
    >>> changes({"text": "29 layers, 40 heads", "change": sizes})
    ''
    """
    untold = Counter(re.findall(r"\w+", fix["text"]))
    words, all_named = [], True
    for name, change in fix["change"].items():
        if name in ("attention", "ffn", "layer_kinds"):
            continue
        before, after = _as_list(change["before"]), _as_list(change["after"])
        new = Counter(str(value) for value in after if value not in before)
        if not new or not new <= untold:
            all_named = False
        untold -= new
        words.append(f"{size_label(name)} {_values(before)} -> {_values(after)}")
    return "" if all_named else ", ".join(words)


def size_label(name):
    """A size by its name in the JSON report, in words.

    >>> size_label("vocab_size"), size_label("query_heads")
    ('vocabulary', 'query heads')
    """
    return LABELS.get(name, name.replace("_", " "))


def _as_list(value):
    return value if isinstance(value, list) else [value]


def _values(values):
    return " and ".join(map(str, values)) or "none"


def signed(share):
    """A change as a share, in words.

    >>> signed(-0.05), signed(1e-5), signed(0.0)
    ('-5.0 %', 'within 0.1 %', 'unchanged')
    """
    if abs(share) >= VISIBLE:
        return f"{100 * share:+.1f} %"
    return "within 0.1 %" if share else "unchanged"
