"""The page Exam: published serving points against this model and two public planners, for `generate_pages.py`."""

import csv
import functools
import re

import ask_peers
import exam
import numpy as np

from hwdesign.lessons import style
from hwdesign.models import config
from hwdesign.timing.served import WAITING, point_recipe, served_points
from hwdesign.timing.silicon import measurements

ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
FEWEST, HIGH = 20, 15.0  # points of a slice from which on its median error [%] must have a cause
CAUSES = {  # by model, device, engine and format
    ("qwen3-235b-a22b", "H200", "vllm", "fp8"): "No tool explains it: something that the sample does not name.",
    ("qwen3-32b", "H100_SXM", "trtllm", "fp8"): "NVIDIA's own run of 1.0.0rc3, behind a Dynamo frontend. What is left grows by 20 to 30 µs "
    "with each sequence, and a prefill takes longer than its kernels.",
    ("gpt-oss-120b", "B200", "trtllm", "nvfp4"): "Its recipe launches each kernel before the one in front has ended, which no table holds; and "
    "with uniform routing more experts are read than by a real router.",
    ("gpt-oss-120b", "H100_SXM", "vllm", "nvfp4"): "The model is too slow by the same share at every number of users and under every "
    "plan, on H200 and B200, too. The routed experts are most of the step, and with uniform routing more of them are read than by a "
    "real router.",
    ("deepseek-r1", "B300", "sglang", "nvfp4"): "One run, of 0.5.10.post1, whose prefill is slow: with 8192 tokens in "
    "each further sequence adds 1.5 ms to a token, five times what is modelled; with 1024 tokens in the model is near.",
}  # fmt: skip


def ruled(table, header, body):
    """A Markdown table whose columns of numbers are set right and never broken."""
    lines = table(header, body).split("\n")
    number = re.compile(r"[-+–\d.,/ %]*( ?(µs|ns|element|to) ?[-+–\d.,/ ]*)*")
    numeric = [all(number.fullmatch(str(row[i])) for row in body) for i in range(len(header))]
    lines[1] = "| " + " | ".join("---:" if right else "---" for right in numeric) + " |"
    return "\n".join(lines)


def signed(value, digits=0):
    """A number with its sign, none where it rounds to 0."""
    told = f"{value:+.{digits}f}"
    return told if float(told) else told[1:]


@functools.cache
def points():
    """The points of the exam, with every tool's answer."""
    return exam.exam_points()


def name_of(title, value):
    """A group's value for a reader."""
    if title == "framework":
        return ENGINES[value]
    return config.load(value).name if title == "model" else value.replace("_", " ")


def level_order(value):
    """Sort key of a range of sequences in flight; other names as they are."""
    first = value.removeprefix("from ").split(" ")[0]
    return (0, int(first), "") if first.isdigit() else (1, 0, value)


def cell(row, *names):
    """Numbers of a summary, as one cell; a dash where nothing was answered."""
    return (
        " / ".join(f"{row[name]:.0f}" if name == "within 25 %" else f"{row[name]:.1f}" for name in names) if len(row) > 1 else "–"
    )


def grouped(titles=("framework", "device", "model", "in flight")):
    """(title, value, {tool: summary}) of each group of the points that every tool answers."""
    rows = points()
    every, groups = exam.common(rows), exam.groups(rows)
    for title in titles:
        for value in sorted(set(groups[title].tolist()), key=level_order):
            here = every & (groups[title] == value)
            if here.any():
                yield title, value, {tool: exam.summary(exam.ratio(rows, tool)[here]) for tool in exam.TOOLS}


TITLES = {"framework": "engine", "device": "device", "model": "model", "in flight": "sequences in flight"}


def group_rows():
    """One row a group: median, mean and share within 25 % of the three tools."""
    shown = ("median", "mean", "within 25 %")
    return [
        [TITLES[title], name_of(title, value), found[exam.OURS]["points"], *(cell(found[tool], *shown) for tool in exam.TOOLS)]
        for title, value, found in grouped()
    ]


def better_rows():
    """Groups where another tool has the lower median or mean, the largest difference of the medians first."""
    out = []
    for title, value, found in grouped():
        ours, peers = found[exam.OURS], [(tool, found[tool]) for tool in exam.PEERS]
        ahead = [(tool, r) for tool, r in peers if r["median"] < ours["median"] or r["mean"] < ours["mean"]]
        if ahead:
            tool, best = min(ahead, key=lambda pair: pair[1]["median"])
            shown = [cell(row, "median", "mean") for row in (ours, best)]
            row = [TITLES[title], name_of(title, value), ours["points"], shown[0], tool, shown[1]]
            out.append((best["median"] - ours["median"], row))
    return [row for _, row in sorted(out, key=lambda pair: pair[0])]


def overall_rows():
    """One row a tool over all points that every tool answers."""
    rows, names = points(), ("median", "mean", "p90", "within 25 %", "sign")
    every = exam.common(rows)
    out = []
    for tool in exam.TOOLS:
        found, answered = exam.summary(exam.ratio(rows, tool)[every]), int((~np.isnan(rows[tool])).sum())
        version = f" {ask_peers.TOOLS[tool][0]}" if tool in ask_peers.TOOLS else ""
        out.append(
            [f"{tool}{version}", f"{answered:,}", *(signed(found[n], 1) if n == "sign" else f"{found[n]:.1f}" for n in names)]
        )
    return out


def high_slices(rows=None):
    """(key, errors of each tool) of slices of 20 points or more whose median error is above 15 %; each must have a cause."""
    rows = points() if rows is None else rows
    keys = list(zip(*(rows[name].tolist() for name in ("model", "device", "framework", "precision")), strict=True))
    found = {}
    for key in sorted(set(keys)):
        here = np.array([one == key for one in keys])
        errors = {tool: exam.summary(exam.ratio(rows, tool)[here]) for tool in exam.TOOLS}
        if errors[exam.OURS]["points"] >= FEWEST and errors[exam.OURS]["median"] > HIGH:
            found[key] = errors
    lacking = [" ".join(key) for key in found if key not in CAUSES]
    if lacking:
        raise ValueError(
            f"each slice above {HIGH:g} % in the median must have a cause in exam_page.CAUSES, got none of {', '.join(lacking)}"
        )
    return dict(sorted(found.items(), key=lambda item: -item[1][exam.OURS]["median"]))


def slice_name(key):
    """A slice for a reader."""
    model, device, framework, precision = key
    read = config.load(model)
    recipe = point_recipe(model, precision, device) or read.quantization
    return f"{read.name} on {device.replace('_', ' ')} in {ENGINES[framework]}, `{recipe}`"


def slice_rows():
    """One row a slice that is far off, with its cause."""
    return [
        [slice_name(key), found[exam.OURS]["points"], signed(found[exam.OURS]["sign"]),
         *(cell(found[tool], "median") for tool in exam.TOOLS), CAUSES[key]]
        for key, found in high_slices().items()
    ]  # fmt: skip


def slices_count():
    """(slices of 20 points or more, of all slices)."""
    _, counts = np.unique(exam.groups(points())["slice"], return_counts=True)
    return int((counts >= FEWEST).sum()), len(counts)


def engine_rows():
    """One row an engine for this model alone: points, errors, interval, and its coverage when a model is left out."""
    rows, out = points(), []
    coverage = exam.left_out_coverage(rows)
    for engine, label in ENGINES.items():
        found = exam.summary(exam.ratio(rows)[rows["framework"] == engine])
        out.append([label, found["points"], *(f"{found[n]:.1f}" for n in ("median", "mean")), f"{found['within 25 %']:.0f}",
                    signed(found["sign"], 1), f"{100 * coverage[engine]:.0f}"])  # fmt: skip
    return out


ENGINE_HEAD = [
    "engine",
    "points",
    "median [%]",
    "mean [%]",
    "within 25 % [%]",
    "with sign [%]",
    "inside the interval, model left out [%]",
]
SUMMARY_HEAD = ["points", "median", "mean", "p90", "within 25 %", "with sign"]


def summary_cells(error):
    """A summary as cells of `SUMMARY_HEAD`."""
    found = exam.summary(error)
    if not found["points"]:
        return [0, *["–"] * 5]
    return [found["points"], *(f"{found[n]:.0f}" for n in ("median", "mean", "p90", "within 25 %")), signed(found["sign"])]


def named_rows():
    """One row a tool for the models that the constants of their engine were fitted on, and for the others."""
    rows = points()
    named, every, out = exam.named(rows), exam.common(rows), []
    for title, chosen in (("models of the constants", named), ("other models", ~named)):
        out += [[title, tool, *summary_cells(exam.ratio(rows, tool)[every & chosen])] for tool in exam.TOOLS]
    return out


def constant_rows():
    """One row an engine: what its steps take besides their kernels, and the models that told."""
    with open(exam.DATA / "served_constants.csv", newline="", encoding="utf-8") as handle:
        return [
            [ENGINES[row["engine"]], *(f"{float(row[n]) * 1e6:.1f}" for n in ("layer", "sequence")),
             ", ".join(config.load(name).name for name in row["models"].split())]
            for row in csv.DictReader(handle)
        ]  # fmt: skip


def first_token_rows():
    """One row an engine and one a range of sequences in flight: time to the first token."""
    rows = points()
    error, groups = exam.first_tokens(rows) / rows["ttft"] - 1, exam.groups(rows)
    return [
        [TITLES[title], name_of(title, value), *summary_cells(error[groups[title] == value])]
        for title in ("framework", "in flight")
        for value in sorted(set(groups[title].tolist()), key=level_order)
    ]


def disaggregated_rows():
    """One row a device, engine and format: decode on workers of their own."""
    rows = exam.disaggregated_points()
    error, keys = exam.ratio(rows), list(zip(*(rows[n].tolist() for n in ("device", "framework", "precision")), strict=True))
    body = [["all", "", "", *summary_cells(error)]]
    for key in sorted(set(keys)):
        here = np.array([one == key for one in keys])
        body.append([key[0], ENGINES[key[1]], f"`{key[2]}`", *summary_cells(error[here])])
    return body


def blind_section(ruler):
    """What the models that nobody looked at gave, or that it was not run yet."""
    rows = exam.blind_points()
    told = """## Blind

The points of Qwen3.5-397B and GLM-5 are never looked at, plotted or used in any choice until everything else is frozen, the rules of matching included. Then all
three tools are asked once, and the numbers are printed as they fall."""
    if rows is None:
        return f"{told}\n\nIt was **not run yet**."
    body = []
    for model in ("all", *sorted(set(rows["model"].tolist()))):
        here = (rows["model"] == model) | (model == "all")
        inside = (rows["tpot"] >= rows["low"]) & (rows["tpot"] <= rows["high"])
        for tool in exam.TOOLS:
            covered = f"{100 * inside[here].mean():.0f}" if tool == exam.OURS else "–"
            name = config.load(model).name if model != "all" else model
            body.append([name, tool, *summary_cells(exam.ratio({n: v[here] for n, v in rows.items()}, tool)), covered])
    commits = ", ".join(f"`{commit}`" for commit in dict.fromkeys(rows["commit"].tolist()))
    head = ["model", "tool", *SUMMARY_HEAD, "inside the 80 % interval"]
    slips = (
        "Two things to know. An error message had shown one of the times before (Qwen3.5 in BF16 on B200, 64 sequences); nothing was "
        "chosen by it. After the freeze vLLM's block-FP8 products on Blackwell changed, and the numbers above with them; these points "
        "are all SGLang's."
    )
    return f"{told}\n\nFrozen at commit {commits}. Errors and shares in %:\n\n{ruler(head, body)}\n\n{slips}"


def left_out():
    """Points of the sample that are not compared, by reason: (all, with MTP, unknown, waiting)."""
    rows = served_points()
    label, waits = rows["speculative"], (rows["speculative"] == "") & (rows["waiting"] > WAITING)
    return len(label), int((label == "mtp").sum()), int((label == "unknown").sum()), int(waits.sum())


def level_sentence(errors):
    """Whether another tool's median over all points is, as printed, no higher than this model's; `errors` by tool."""
    shown = {tool: f"{row['median']:.1f}" for tool, row in errors.items()}
    level = [tool for tool in exam.PEERS if float(shown[tool]) <= float(shown[exam.OURS])]
    if not level:
        return "Over all points no other tool has as low a median."
    ours = errors[exam.OURS]
    told = [f"{tool} has {errors[tool]['median']:.1f} % (mean {errors[tool]['mean']:.1f} %)" for tool in level]
    return (
        f"Over all points another tool's median is as low as ours or lower: {' and '.join(told)}, "
        f"this model {ours['median']:.1f} % (mean {ours['mean']:.1f} %)."
    )


def apart_sentence(medians):
    """Which tools have the lower median on the models that no constant was fitted on; `medians` by tool."""
    ahead = [tool for tool in exam.PEERS if medians[tool] < medians[exam.OURS]]
    if not ahead:
        return "On the models that no constant of ours was fitted on, no other tool has the lower median."
    told = " and ".join(f"{medians[tool]:.1f} % ({tool})" for tool in ahead)
    who = "both planners have" if len(ahead) == len(exam.PEERS) else "another tool has"
    return f"On the models that no constant of ours was fitted on, {who} the lower median: {told} against {medians[exam.OURS]:.1f} %."


def exam_page(table):
    """The page as Markdown; `table` makes a table of a header and rows."""
    ruler = functools.partial(ruled, table)
    rows = points()
    every, (sampled, mtp, unknown, waiting) = exam.common(rows), left_out()
    errors = {tool: exam.summary(exam.ratio(rows, tool)[every]) for tool in exam.TOOLS}
    ours, *peers = errors.values()
    better, overall, far = better_rows(), overall_rows(), slice_rows()
    versions = " and ".join(f"{tool} {version}" for tool, (version, _) in ask_peers.TOOLS.items())
    ahead = [r for r in better if r[0] == "engine"]
    refused = {tool: int(np.isnan(rows[tool]).sum()) for tool in exam.PEERS}
    many, slices = slices_count()
    low, high = exam.interval(rows)
    apart = {tool: exam.summary(exam.ratio(rows, tool)[every & ~exam.named(rows)])["median"] for tool in exam.TOOLS}
    parts = [
        f"""# Exam

<!-- written by scripts/generate_pages.py; do not edit -->

How well do three tools predict what servers were published to do? {int(every.sum()):,} points of {len(set(rows["model"].tolist()))} models, the same question to each tool: the
{{term}}`time per output token`. Everything is printed, the groups where another tool is better first. <span class="hw-label hw-published">published</span><span class="hw-label hw-modelled">modelled</span>

## Where another tool is better

{level_sentence(errors)} {f"In {', '.join(r[1] for r in ahead)} another tool has the lower median or mean." if ahead else "In no engine has another tool the lower median or mean."} All {len(better)} such groups by engine, device,
model and sequences in flight, median and mean error [%]. {apart_sentence(apart)}

{ruler(["by", "group", "points", "hwdesign", "better", "its errors"], better)}

## All points

Over the {int(every.sum()):,} points that all three answer, the median error is {ours["median"]:.1f} % here, {" and ".join(f"{p['median']:.1f} % by {tool}" for tool, p in zip(exam.PEERS, peers, strict=True))}. Errors and shares [%]:

{ruler(["tool", "answers", "median", "mean", "p90", "within 25 %", "with sign"], overall)}

![Share of points against the absolute error of three tools, a panel an engine: within 25 per cent lie {ours["within 25 %"]:.0f} per cent of all points for hwdesign](exam_errors.svg)

**Read the figure.** A curve further left and higher is better: it says what share of an engine's points a tool predicts within an error. The line marks 25 %.""",
        f"""## By engine, device, model, sequences in flight

Median / mean / share within 25 % [%], on the points that all three answer:

{ruler(["by", "group", "points", *exam.TOOLS], group_rows())}

## Slices that are far off

Of {slices} slices (a model, a device, an engine, a format) {many} have {FEWEST} points or more. In {len(far)} of them the median error is above {HIGH:g} % [%]:

{ruler(["slice", "points", "with sign", *exam.TOOLS, "cause"], far)}

The page is not written while such a slice has no cause.""",
        f"""## Intervals

A modelled step carries an interval (`Breakdown.interval`): published times lay between {low:.2f} and {high:.2f} of the modelled ones in the middle 80 % of the points, each run of a
model in an engine counting as much as another. The last column is the share of points in the interval from all *other* models:

{ruler(ENGINE_HEAD, engine_rows())}

It is one interval for all engines: those of one engine alone held 66 to 95 % of the points of a model that was left out.

## What was asked

- **Whom.** {versions}, each in an environment of its own, by its documented call for one deployment: measured tables only, the newest for device and engine.
  `scripts/ask_peers.py` asks, `hwdesign/timing/data/peers.csv` holds the answers and, where a tool answered nothing, its own words
  ({", ".join(f"{n} of {tool}" for tool, n in refused.items())}).
- **What.** Model, device, engine, formats of products, experts and cache, plan, sequences in flight, mean lengths of prompt and answer. FP8 per tensor
  is asked with static scales of the activations, for which both planners have tables: the served checkpoints hold them
  (nobody tells which one of Qwen3-32B was served; we take the planners' own). This model takes kernels of the engines'
  versions that were served.
- **Which points.** The sample has {sampled:,} different ones; points that differ only in version and date count once, with their median. Compared are those with one token a step
  ({mtp} have multi-token prediction, of {unknown} nobody knows) in which the first token comes within a tenth of a request's life; in {waiting} more it comes later, so that requests
  queued and fewer were decoded than sent. {len(rows["tpot"]):,} remain, {int(every.sum()):,} with three answers. `served_points` in {{doc}}`api` says the rule in full.

**Two constants an engine are fitted on served points**, all others on kernels: what a step takes besides its kernels, for each layer and for each sequence
(`served_constants.csv`). They were fitted on the points of two models an engine; the others stand apart, errors and shares [%]:

{ruler(["points of", "tool", *SUMMARY_HEAD], named_rows())}

{ruler(["engine", "for each layer [µs]", "for each sequence [µs]", "fitted on"], constant_rows())}

`python scripts/exam.py` prints these numbers and those of every slice.""",
        f"""## Time to the first token

Modelled as the prefill of one prompt and one decode step. A server that gets many requests at once lets them wait for each other, which this does not hold, and published times
include it: the more sequences in flight, the more is missing. There is no target. Errors and shares [%]:

{ruler(["by", "group", *SUMMARY_HEAD], first_token_rows())}

## Prefill on other GPUs

DeepSeek-R1 with workers that only decode: the decode step of a worker at its share of the sequences, by the same rule of matching, from {len(measurements("serving_disaggregated")["tpot"])} rows of the sample. Errors
and shares [%]:

{ruler(["device", "engine", "format", *SUMMARY_HEAD], disaggregated_rows())}""",
        blind_section(ruler),
    ]
    return "\n\n".join(parts) + "\n"


@style.styled
def errors_figure():
    """One panel an engine: share of the points that all tools answer against the absolute error of each tool."""
    rows, first = points(), style.axes(width=6.4, height=3.0)
    figure, every = first.figure, exam.common(rows)
    first.remove()
    panels = figure.subplots(1, len(ENGINES), sharey=True)
    looks = dict(zip(exam.TOOLS, ((style.BLUE, "-"), (style.ORANGE, "--"), (style.GREEN, ":")), strict=True))
    for ax, (engine, label) in zip(panels, ENGINES.items(), strict=True):
        here = every & (rows["framework"] == engine)
        for tool, (color, line) in looks.items():
            error = np.sort(100 * np.abs(exam.ratio(rows, tool)[here]))
            ax.plot(error, 100 * np.arange(1, len(error) + 1) / len(error), line, color=color, label=tool)
        ax.axvline(25, color=style.GREY, lw=1)
        ax.set_title(f"{label}, {here.sum()} points", fontsize=9.5)
        ax.set_xlim(0, 60)
        ax.set_ylim(0, 100)
        style.plain_ticks(ax.xaxis, (0, 25, 50))
    panels[0].set_ylabel("share of points [%]")
    panels[1].set_xlabel("absolute error [%], at most")
    panels[-1].legend(loc="lower right", fontsize=8.5)
    return panels[0]


def pictures():
    """{file name: axes} of the page's figure."""
    return {"exam_errors.svg": errors_figure()}
