"""The page From verdict to design, for `generate_pages.py`: sessions of fix, run anew, and designs from stored searches.

worked_designs.csv and retrodiction.csv are written by the scripts of these names, since a search takes minutes; tests time
their rows anew.
"""

import contextlib
import csv
import functools
import io
import json
import os
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import unbuilt_shapes

from hwdesign import cli
from hwdesign.advice.evidence import evidence_for
from hwdesign.catalogue.device import device
from hwdesign.catalogue.precision import RECIPES
from hwdesign.lessons import style
from hwdesign.models import config
from hwdesign.models.model import Model
from hwdesign.timing.intervals import interval_factors
from hwdesign.units import GIGA

HERE = Path(__file__).parent
FAST, PUBLISHED = "GB300", "qwen3-30b-a3b"
MODELLED = '<span class="hw-label hw-modelled">modelled</span>'
SESSIONS = {
    "width": "qwen2.5-72b --device H200 --recipe fp8_block --tp 8 --load 8192/1024/64",
    "experts": "experts180.json --device H200 --recipe fp8_block --engine sglang --dp 8 --ep 8 --load 8192/1024/64 --budget 0.025",
    "layers": "deepseek-r1 --device H200 --tp 8 --pp 4 --load 8192/1024/64",
}
TRAITS = 8  # of the evidence that are printed


@functools.cache
def stored(name):
    """Rows of a stored table, as a tuple of dicts."""
    with (HERE / f"{name}.csv").open(encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def session(name):
    """A command and what it prints, as a block of a console."""
    told = io.StringIO()
    before, width = os.getcwd(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "84"  # as wide as the page
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
        wide = json.loads((Path(config.__file__).parent / "configs/qwen3-30b-a3b.json").read_text(encoding="utf-8"))
        (Path(folder) / "experts180.json").write_text(json.dumps(wide | {"num_experts": 180}), encoding="utf-8")
        os.chdir(folder)
        try:
            cli.main(["fix", *SESSIONS[name].split()])
        finally:
            os.chdir(before)
            os.environ.pop("COLUMNS") if width is None else os.environ.update(COLUMNS=width)
    asked = " \\\n    ".join(textwrap.wrap(SESSIONS[name], 66, break_on_hyphens=False))
    return f"```console\n$ hwdesign fix {asked}\n{told.getvalue().rstrip()}\n```"


def number(text):
    """A stored number in few digits."""
    value = float(text)
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def deployment(row):
    """Formats, plans and batch of a row."""
    return f"{row['recipe']}, cache {row['cache']}; attention {row['attention']}; ffn {row['ffn']}; {row['batch']} users"


def design_rows(machine):
    """One row a speed and kind on a machine: what a GPU makes, and what of."""
    rows = []
    for row in stored("worked_designs"):
        if row["device"] == machine:
            rate = f"{number(row['gpu_rate'])} ({number(row['low'])} to {number(row['high'])})"
            energy = f"{1e3 * float(row['joules']):.0f}" if row["joules"] else "–"
            rows.append([row["speed"], row["name"], deployment(row), row["binds"], rate, energy])
    return rows


@style.styled
def fronts_figure():
    """What a GPU makes at four speeds of a user: the designs of both machines and the published model, with intervals."""
    ax = style.axes(width=6.4, height=3.8)
    looks = {"H200": (style.BLUE, "8 H200"), FAST: (style.ORANGE, f"72 {FAST}")}
    for machine, (color, label) in looks.items():
        for known, line, mark in ((False, "-", "o"), (True, "--", "x")):
            rows = [row for row in stored("worked_designs") if row["device"] == machine and (not row["config"]) is known]
            users, rates, low, high = (np.array([float(r[n]) for r in rows]) for n in ("user_rate", "gpu_rate", "low", "high"))
            name = f"{PUBLISHED} on {label}" if known else f"best design on {label}"
            ax.errorbar(users, rates, yerr=(rates - low, high - rates), fmt=line + mark, color=color, capsize=2, label=name)
    ax.set_xscale("log")
    ax.set_yscale("log")
    style.plain_ticks(ax.xaxis, (50, 100, 200, 400))
    style.plain_ticks(ax.yaxis, (100, 300, 1000, 3000, 10000))
    ax.set_ylim(30, 12_000)
    ax.set_xlabel("rate of a user [token/s]")
    ax.set_ylabel("rate of a GPU [token/s]")
    ax.legend(loc="lower left", fontsize=8.5)
    return ax


def pictures():
    """{file name: axes} of the page's figure."""
    return {"designing_fronts.svg": fronts_figure()}


def at(machine, speed, published=False):
    """The stored row of a machine at a speed: the design, or the published model."""
    return next(
        row
        for row in stored("worked_designs")
        if (row["device"], row["speed"], not row["config"]) == (machine, str(speed), published)
    )


def share_rows():
    """One row a published model: its share of the front at three speeds, and the term that differs most at the second."""
    rows, seen = [], {}
    for row in stored("retrodiction"):
        seen.setdefault(row["model"], {})[row["user_rate"]] = row
    for name, by_speed in seen.items():
        shares = [f"{100 * float(by_speed[s]['share']):.0f}" if s in by_speed else "–" for s in ("25", "50", "100")]
        middle = by_speed["50"]
        term = f"{middle['term']}: {1e3 * float(middle['term_model']):.2g} and {1e3 * float(middle['term_design']):.2g} ms"
        rows.append([name, middle["design"], term, *shares])
    return rows


def share(model, speed):
    """What a model makes of its front at a speed [%]."""
    (found,) = [r for r in stored("retrodiction") if (r["model"], r["user_rate"]) == (model, str(speed))]
    return f"{100 * float(found['share']):.0f}"


def kv_heads(name):
    """Key-value heads and layers of a model, in words."""
    model = config.load(name)
    return f"{model.blocks[0].mixer.num_kv_heads} key-value heads in {len(model.blocks)} layers"


def unbuilt_differences():
    """By how much a planner's answer differs from ours, for each shape that nobody built [dimensionless]."""
    rows = unbuilt_shapes.read(HERE.parent / "tests/data/unbuilt_shapes.csv")
    return np.array([float(row["seconds"]) for row in rows]) / unbuilt_shapes.modelled_seconds(rows) - 1


def terms(model, speed):
    """The term that differs most between a model and its design, with both times."""
    (found,) = [r for r in stored("retrodiction") if (r["model"], r["user_rate"]) == (model, str(speed))]
    return f"{found['term']} ({1e3 * float(found['term_model']):.2g} ms against {1e3 * float(found['term_design']):.2g})"


def evidence_rows():
    """What published experiments say of the step from the published model to the design of 8 H200 at 100 tokens per second."""
    before = config.load(PUBLISHED)
    after = Model.from_config(json.loads(at("H200", 100)["config"]))
    found = [one for one in evidence_for(before, after) if None not in (one.before, one.after)]
    return [[one.trait.replace("_", " "), f"{one.before:.3g}", f"{one.after:.3g}", one.says] for one in found][:TRAITS]


def design_page(table):
    """From verdict to design."""
    small, rack = at("H200", 100), at("GB300", 100)
    known_small, known_rack = at("H200", 100, published=True), at("GB300", 100, published=True)
    times = {name: float(a["gpu_rate"]) / float(b["gpu_rate"]) for name, a, b in
             (("H200", small, known_small), ("GB300", rack, known_rack), ("rack", rack, small))}  # fmt: skip
    slow, fast = device("H200"), device(FAST)
    faster, capacity = fast.memory_bandwidth / slow.memory_bandwidth, fast.memory_capacity / GIGA
    weights = 30e9 * RECIPES["nvfp4"].weights.bytes / GIGA
    off = unbuilt_differences()
    least, most = interval_factors()
    within = int(((off >= least - 1) & (off <= most - 1)).sum())
    for machine, speeds in (("H200", (50, 200)), (FAST, (50, 200))):
        slow_user, hasty_user = (float(at(machine, v)["gpu_rate"]) / float(at(machine, v, published=True)["gpu_rate"]) for v in speeds)
        if not 1 < slow_user < hasty_user:
            raise ValueError(f"the page must be rewritten: on {machine} the gain does not grow with the haste of a user")
    for speed, same in ((50, True), (100, True), (200, False), (400, False)):
        if (at("H200", speed)["name"] == at(FAST, speed)["name"]) is not same:
            raise ValueError(f"the page must be rewritten: shapes for {speed} token/s are not as it says")
    return f"""# From verdict to design

<!-- written by scripts/generate_pages.py; do not edit -->

A verdict says what is wrong. What you need is the next `config.json`. `hwdesign fix` mends the one you have; `hwdesign
design` searches for one you do not have yet. Neither knows how well a model answers: both keep to what trained models
look like, and say where they leave it. {MODELLED}

## Mend a config

**Predict first.** Qwen2.5-72B has a feed-forward width of 29568. On eight GPUs an engine with FP8 blocks of 128 refuses it.
By how much must the width change, and what does a step then cost?

{session("width")}

The width grows by one block a GPU, and the step pays for what it multiplies: no more. The cache is a setting of the
server, so a change of the model leaves it alone; `--server-only` mends that side. With `-o fixed.json` the config is
written: keys that nothing changes stay as they are, and a note under `_hwdesign` says what was changed and why.

**180 experts on eight GPUs.** SGLang wants the GPUs to divide the experts. The nearest counts are 176 and 184, and either
changes the parameters by a little more than the 2 % that `fix` may spend unless told otherwise.

{session("experts")}

**61 layers in four stages.** DeepSeek-R1 has 3 dense layers and 58 with experts. Predict: does one layer less end the wait?

{session("layers")}

It halves it and no more: with 60 layers the stages are equally long, but not alike, since the dense layers all lie in the first. What
would make them alike costs more than it saves, and the report says by how much.

## Design for a budget

```bash
hwdesign design --parameters 30e9 --active 3e9 --context 32768 \\
    --device H200 --gpus 8 --tpot 20ms --compare {PUBLISHED}
```

Every shape of four families that has the budget within 3 % and keeps each of its proportions inside the band of trained
models, under every pair of plans that vLLM runs, in every format that the device multiplies: {int(small["triples"]):,} triples on 8 H200,
{int(rack["triples"]):,} on a rack of 72 GB300, each at its best batch. The rows are what a GPU makes when each user wants so many
tokens per second; in brackets lies the middle 80 % of published points around such a modelled time. The energy is that of a decode step, scaled from
power that was measured on B200 ({{doc}}`accuracy`).

![Tokens per second of a GPU against tokens per second of a user, both on logarithmic axes, for the best designs and for {PUBLISHED} on 8 H200 and on 72 {FAST}: at 100 tokens per second of a user {number(small["gpu_rate"])} against {number(known_small["gpu_rate"])} on H200](designing_fronts.svg)

**Read the figure.** Up and to the right is better; bars hold the middle 80 % of published points around such times. On both machines the designs lie far above the
published model of the same budget, and the more so, the hastier the user.

**8 H200**

{table(["user [token/s]", "model", "deployment", "guideline that binds", "GPU [token/s]", "energy [mJ/token]"], design_rows("H200"), 2)}

**72 GB300**

{table(["user [token/s]", "model", "deployment", "guideline that binds", "GPU [token/s]", "energy [mJ/token]"], design_rows("GB300"), 2)}

**Read the tables.** For users who want 100 tokens per second, the design makes {times["H200"]:.1f} times what the published model makes on
H200, and {times["GB300"]:.1f} times on the rack. A GPU of the rack makes {times["rack"]:.1f} times what an H200 makes.

**Why the two differ.** For 50 and for 100 tokens per second the best shape is the same on both machines; what differs is the format and how
the experts lie. NVFP4 halves the bytes of the weights against FP8, and the memory of a {FAST} is {faster:.1f} times as fast. The rack is not one
machine to the search: {small["name"].split(";")[1].split(" experts")[0].split(" of ")[1]} experts do not divide over {rack["gpus"]} GPUs and need not, since all weights are {weights:.0f} GB in NVFP4 and a GPU
holds {capacity:.0f}. So each group of a few GPUs serves a copy. From 200 tokens per second on the shapes part: the hastier the user, the fewer
sequences share a step, and the more it counts how few bytes one token touches.

## Where published models lie

The same search, with the budget, vocabulary and family of ten published models, on 8 H200 with prompts of 8192 and
answers of 1024 tokens. The last columns are what a GPU makes of the model, in per cent of the best design of its front,
for users of 25, 50 and 100 tokens per second. Between them stands the term of a step that differs most at the batch of the design
for 50.

{table(["model", "design for 50 token/s", "largest difference", "25 [%]", "50 [%]", "100 [%]"], share_rows(), 3)}

Three surprises, each with its term:

- **DeepSeek-R1 lies on its front** ({share("deepseek-r1", 100)} % at 100 token/s, {share("deepseek-r1", 50)} % at 50). A latent cache leaves little to gain by fewer heads or
  layers: at 50 it is the {terms("deepseek-r1", 50)} that differ most.
- **Llama-3.1-70B is near it for patient users** ({share("llama-3.1-70b", 25)} % at 25 token/s) and far for hasty ones ({share("llama-3.1-70b", 100)} % at 100). There the scores of its 80 layers
  count: {terms("llama-3.1-70b", 100)}, and every layer more ends in two more sums over the GPUs.
- **The mixtures with grouped heads are furthest away** (Qwen3-30B {share("qwen3-30b-a3b", 50)} %, MiniMax-M2.5 {share("minimax-m2.5", 50)} % at 50). It is attention, not the experts: {kv_heads("qwen3-30b-a3b")} and
  {kv_heads("minimax-m2.5")} leave several times the cache of the one or two in half as many layers of their designs. Whether so few answer as well is the next section.

## What nobody has shown

The front lies on the edges of the bands: few layers, few key-value heads, wide experts. A band says that somebody trained
such a ratio, not that all of them go together. For the step from Qwen3-30B-A3B to the design for 100 token/s on H200,
published experiments on single changes say:

{table(["what changes", "from", "to", "published experiments"], evidence_rows())}

"No evidence" is an answer: then a small training run is worth more than a search. And most experiments are far smaller than
the model they are asked about; the last column says by how much.

**How sure are the times of a shape that nobody built?** Kernel constants are held out by shape ({{doc}}`accuracy`). Another
planner, in the mode in which it extrapolates, was asked for {len(off)} such shapes drawn by a seed: {within} of its answers lie inside our
80 % interval, half of them within {100 * np.median(abs(off)):.0f} %. It counts a kernel for the norms of queries and keys that we do not.
"""
