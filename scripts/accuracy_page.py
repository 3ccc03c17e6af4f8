"""The page Accuracy: how far the calibrated model is from published times that it has not seen, for `generate_pages.py`."""

import csv
import functools
from collections import Counter
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
from calibration_cases import HELD_EP, attention_case, gemm_case
from fit_calibration import fitted
from serving_error import served, served_recipe

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import BF16
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.models import config
from hwdesign.models.steps import Plan
from hwdesign.timing.calibration import constants
from hwdesign.timing.estimate import decode_step
from hwdesign.timing.silicon import gemm_grid, measurements, slices, tables

LABEL = '<span class="hw-label hw-{0}">{0}</span>'
FRAMEWORKS = {"sglang": "SGLang", "trtllm": "TensorRT-LLM", "vllm": "vLLM", "nccl": "NCCL"}
OPERATIONS = {
    "attention_decode": "attention, decode",
    "attention_prefill": "attention, prefill",
    "mla_decode": "latent attention, decode",
    "mla_prefill": "latent attention, prefill",
    "moe": "experts, grouped kernels",
    "moe_fused": "experts, fused kernel",
    "all-reduce": "all-reduce",
    "ring": "all-gather, reduce-scatter",
    "dispatch": "all-to-all, dispatch",
    "combine": "all-to-all, combine",
}
HELD = {
    "attention": "a third of the (query heads, key-value heads) pairs",
    "mla": "a third of the (batch, context) pairs",
    "moe": f"the EP widths {', '.join(map(str, HELD_EP))}",
    "moe_fused": "every third token count",
    "all-reduce": "every third size",
    "ring": "every third size",
    "dispatch": "every third token count",
    "combine": "every third token count",
}
MEANING = {
    "gemm": {
        "peak": "math rate that full tiles reach, as a share of the dense peak",
        "bandwidth": "memory rate reached, as a share of the datasheet's",
        "feed": "rate at which all SMs together take operands from the L2 cache, in units of the memory bandwidth",
        "fixed": "time of a GEMM that does nothing: launch in a CUDA graph, start, drain",
        "overlap": "how far math and memory overlap: 1 one after the other, large the roofline",
        "balance": "share of the empty places of the last wave that is filled",
        "wave": "time of a wave of tiles beside its main loop (BF16)",
        "split": "shortest part of K that a split produces [element] (BF16)",
        "chain": "least time a tile takes for one element of K, however few tiles there are (low precision)",
        "quantize": "rate of the pass that quantizes the inputs, as a share of the memory bandwidth (low precision)",
    },
    "attention_decode": {
        "fixed": "time of a kernel with next to no cache",
        "bandwidth": "rate at which the cache is read, as a share of the memory bandwidth",
        "l2": "how much faster it is read when it fits in the L2 cache",
        "wave": "time of one more round of (sequence, key-value head) pairs on the SMs",
        "row": "time of one query row of a group",
        "chain": "time of splitting and merging one sequence of 128 tokens; it grows with the square root of the length",
    },
    "attention_prefill": {
        "fixed": "time of a kernel with next to no tokens",
        "rate": "math rate inside a tile, as a share of the dense peak",
        "tile": "time an SM spends on a tile beside its math",
        "chain": "latency of the longest tile, in units of its math",
        "bandwidth": "rate of reading and writing, as a share of the memory bandwidth",
    },
    "moe": {
        "fixed": "time of a layer with next to no tokens: routing, sorting, launches",
        "bandwidth": "rate of reading the weights of the experts touched, as a share of the memory bandwidth",
        "rate": "math rate, as a share of the dense peak",
        "pairs": "rate of moving a (token, expert) pair in and out, as a share of the memory bandwidth",
        "tokens": "the same for a token that arrives",
        "local": "bookkeeping for each expert that lives on the GPU",
        "touched": "start of each expert that has work",
    },
    "all-reduce": {
        "latency": "time of an empty exchange",
        "doubling": "more latency for each doubling of the ranks",
        "second": "latency of a second exchange, where two are worth it",
        "bandwidth": "rate, as a share of the link's",
    },
}


@functools.cache
def data(name):
    """Rows of a CSV file of the package's data."""
    text = resources.files("hwdesign.timing").joinpath("data", name).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def accuracy(operation, **equal):
    """Rows of accuracy.csv."""
    return [r for r in data("accuracy.csv") if r["operation"] == operation and all(r[k] == v for k, v in equal.items())]


FORMATS = ("bf16", "fp8", "fp8_block", "nvfp4")


def gemm_rows():
    """One row a device and library: held-out error on large shapes and on all, a column a format."""
    out = []
    for device, framework, version in dict.fromkeys((s["device"], s["framework"], s["version"]) for s in slices()):
        cells = []
        for precision in FORMATS:
            found = accuracy("gemm", device=device, framework=framework, precision=precision)
            cells.append(" / ".join(f"{float(row['mape']):.1f}" for row in found) or "–")
        out.append([device, f"{FRAMEWORKS[framework]} {version}", *cells])
    return out


def gemm_details():
    """One row a slice: mean and median, held out and in sample."""
    out = []
    for s in slices():
        found = accuracy("gemm", **{name: s[name] for name in ("device", "precision", "framework")})
        errors = [row[name] for row in found for name in ("mape", "median", "in_sample")]
        out.append([s["device"], f"`{s['precision']}`", FRAMEWORKS[s["framework"]], *errors, f"{int(found[1]['held_out']):,}"])
    return out


def held_rule(operation):
    """What is held out of an operation's table."""
    return HELD.get(operation) or HELD[operation.split("_")[0]]


DEVICES = ("GB300", "GB200", "B200", "H200", "H100_SXM", "A100_SXM")


def other_rows():
    """One row an operation for everything that is no GEMM: held-out error, a column a device, formats one after the other."""
    out = []
    for operation, name in OPERATIONS.items():
        found = accuracy(operation, subset="all")
        formats = list(dict.fromkeys(row["precision"] for row in found))
        error = {(row["device"], row["precision"]): f"{float(row['mape']):.1f}" for row in found}
        cells = [" / ".join(error[d, f] for f in formats if (d, f) in error) or "–" for d in DEVICES]
        out.append([name, " / ".join(f"`{f}`" for f in formats if f), *cells])
    return out


def held_list():
    """What is held out of each table, and whose kernels it holds, as a list."""
    lines = {}
    for operation, name in OPERATIONS.items():
        libraries = ", ".join(dict.fromkeys(f"{FRAMEWORKS[row['framework']]} {row['version']}" for row in accuracy(operation)))
        lines.setdefault(f"{held_rule(operation)}; {libraries}", []).append(name)
    return "\n".join(f"- {'; '.join(names)}: {what}." for what, names in lines.items())


def ablation_table():
    """(header, rows): one row a model, one column a slice: held-out error on large shapes and on all."""
    rows = data("ablation.csv")
    columns = list(dict.fromkeys((r["device"], r["precision"]) for r in rows))
    names = list(dict.fromkeys(r["model"] for r in rows))
    order = ["full", "smooth roofline", "roofline", "datasheet roofline", "local lookup (no model)"]
    cell = {(r["model"], r["device"], r["precision"]): f"{float(r['large']):.1f} / {float(r['all']):.1f}" for r in rows}
    count = {r["model"]: r["constants"] for r in rows}
    body = []
    for name in order + [n for n in names if n not in order]:
        label = f"**{name}**" if name == "full" else name
        body.append([label, count[name] or "–", *(cell.get((name, *c), "–") for c in columns)])
    return ["model", "fitted", *(f"{d} `{p}`" for d, p in columns)], body


def spread(device):
    """How far two libraries' BF16 times of one GPU are apart: mean and median absolute difference [%]."""
    one, two = (gemm_grid(device, "bf16", framework) for framework in ("sglang", "trtllm"))
    axes = [np.intersect1d(getattr(one, a), getattr(two, a)) for a in "mnk"]
    m, n, k = np.meshgrid(*axes, indexing="ij")
    a, b = one.at(m, n, k), two.at(m, n, k)
    keep = ~np.isnan(a) & ~np.isnan(b) & (n >= 512) & (k >= 512)
    apart = 100 * np.abs(a[keep] / b[keep] - 1)
    return apart.mean(), np.median(apart)


def repeats(table, device):
    """How far two runs of one collection are apart: mean and median absolute difference [%], and the shapes."""
    rows = measurements(table, device)
    names = [n for n in rows if n not in ("run", "seconds")]
    keys = list(zip(*(rows[n].tolist() for n in names), strict=True))
    first = {key: t for key, run, t in zip(keys, rows["run"], rows["seconds"], strict=True) if run == 0}
    apart = [100 * abs(t / first[key] - 1) for key, run, t in zip(keys, rows["run"], rows["seconds"], strict=True) if run == 1]
    return (np.mean(apart), np.median(apart), len(apart)) if apart else None


def noise_rows():
    """Rows of the noise floor."""
    out = []
    for device in dict.fromkeys(s["device"] for s in slices()):
        mean, median = spread(device)
        out.append([device, "BF16 GEMM, SGLang against TensorRT-LLM", f"{mean:.1f}", f"{median:.1f}"])
    for row in tables():
        if row["operation"] in ("mla_decode", "mla_prefill", "moe_fused"):
            found = repeats(row["operation"], row["device"])
            if found:
                what = f"{OPERATIONS[row['operation']]}, two runs of one table, {found[2]:,} shapes"
                out.append([row["device"], what, f"{found[0]:.1f}", f"{found[1]:.1f}"])
    return out


def quantity(value, unit):
    """A constant with its unit; times in µs or ns."""
    if unit == "s":
        return f"{value * 1e6:.2g} µs" if value > 5e-8 else f"{value * 1e9:.2g} ns"
    return f"{value:,.0f} {unit}" if unit == "element" else f"{value:.2f}"


def constant_rows(operation):
    """One row a constant: meaning, range over devices and formats, and the value in the middle."""
    out = []
    for name, meaning in MEANING[operation].items():
        found = [r for r in data("constants.csv") if r["operation"] == operation and r["constant"] == name]
        values, unit = sorted(float(r["value"]) for r in found), found[0]["unit"]
        low, middle, high = (quantity(values[i], unit) for i in (0, len(values) // 2, -1))
        out.append([f"`{name}`", meaning, low, middle, high])
    return out


def error_panel(row):
    """Map of one slice: mean absolute held-out error [%] by tokens and by N K, in steps of a factor of 4."""
    case = gemm_case(row["device"], row["precision"], row["framework"])
    error = 100 * np.abs(case.error(constants("gemm", row["device"], row["precision"], row["framework"])))
    m_bin = np.floor(np.log2(case.shape["m"]) / 2).astype(int)
    area_bin = np.floor((np.log2(case.shape["n"] * case.shape["k"]) - 18) / 2).astype(int)
    counts, sums = np.zeros((2, area_bin.max() + 1, m_bin.max() + 1))
    np.add.at(counts, (area_bin[case.held], m_bin[case.held]), 1)
    np.add.at(sums, (area_bin[case.held], m_bin[case.held]), error[case.held])
    with np.errstate(invalid="ignore"):
        means = (sums / counts)[counts.any(axis=1)]
    return (
        f"{row['device']} {row['precision']}",
        4.0 ** np.arange(means.shape[1]),
        2.0**18 * 4.0 ** np.arange(means.shape[0]),
        means,
    )


def map_panels():
    """Panels of the error map: a row a device, a column a format, SGLang."""
    out = []
    for device in dict.fromkeys(s["device"] for s in slices()):
        for precision in ("bf16", "fp8", "fp8_block", "nvfp4"):
            row = [s for s in slices() if (s["device"], s["precision"], s["framework"]) == (device, precision, "sglang")]
            out.append(error_panel(row[0]) if row else None)
    return out


def switch_lines(n=8192, k=8192):
    """(m, lines) of the kernel switch on H100."""
    from hwdesign.timing.estimate import gemm_time

    grid = gemm_grid("H100_SXM", "fp8_block", "sglang")
    m = grid.m[(grid.m >= 32) & (grid.m <= 8192)]
    lines = {}
    for precision in ("fp8_block", "bf16"):
        lines[precision] = (gemm_grid("H100_SXM", precision, "sglang").at(m, n, k), gemm_time(m, n, k, "H100_SXM", precision))
    return m, lines


def served_groups():
    """{model: (published, modelled)} of the serving sample."""
    rows = served()
    names = {name: config.load(str(name)).name for name in np.unique(rows["model"])}
    merged = {}
    for name, label in names.items():
        label = "DeepSeek-V3 and R1" if name.startswith("deepseek") else label
        chosen = rows["model"] == name
        both = merged.setdefault(label, ([], []))
        both[0].extend(rows["tpot"][chosen])
        both[1].extend(rows["modelled"][chosen])
    return merged


def served_error(chosen=slice(None)):
    """(median absolute, median signed) error of the serving sample [%]."""
    rows = served()
    error = 100 * (rows["modelled"][chosen] / rows["tpot"][chosen] - 1)
    return np.median(np.abs(error)), np.median(error)


def served_rows():
    """One row a model and device, then one a range of concurrency."""
    rows, out = served(), []
    for (model, device), count in sorted(Counter(zip(rows["model"], rows["device"], strict=True)).items()):
        absolute, signed = served_error((rows["model"] == model) & (rows["device"] == device))
        out.append([config.load(str(model)).name, device, count, f"{absolute:.0f}", f"{signed:+.0f}"])
    return out


def concurrency_rows():
    """One row a range of concurrency."""
    rows, out = served(), []
    for low, high in ((1, 4), (5, 16), (17, 64), (65, 256), (257, 10**9)):
        chosen = (rows["concurrency"] >= low) & (rows["concurrency"] <= high)
        absolute, signed = served_error(chosen)
        out.append([f"{low} to {high}" if high < 10**9 else f"{low} and more", chosen.sum(), f"{absolute:.0f}", f"{signed:+.0f}"])
    return out


def llama_rows():
    """The three published points of Llama-3.1-70B, with where the time goes."""
    rows, model, out = served(), config.load("llama-3.1-70b"), []
    chosen = (rows["model"] == "llama-3.1-70b") & (rows["device"] == "H100_SXM") & (rows["concurrency"] == 4)
    chosen &= (rows["input_tokens"] == 1024) & (rows["output_tokens"] == 1024)
    for i in np.flatnonzero(chosen)[np.argsort(rows["tp"][chosen])]:
        plan = Plan(tp=int(rows["tp"][i]))
        recipe = served_recipe("llama-3.1-70b", "H100_SXM", "vllm", "fp8")
        b = decode_step(model, "H100_SXM", recipe, batch=4, context=1536, attention=plan, ffn=plan)
        matrices = sum(b.terms[t] for t in ("projections", "ffn", "head"))
        terms = [matrices, b.terms["attention"], b.terms["communication"], b.terms["small kernels"]]
        cells = [f"{x * 1e3:.1f}" for x in (rows["tpot"][i], rows["modelled"][i])]
        out.append(
            [plan.tp, *cells, f"{100 * (rows['modelled'][i] / rows['tpot'][i] - 1):+.0f}", *(f"{t * 1e3:.1f}" for t in terms)]
        )
    return out


def composed_rows():
    """Three steps that another tool composed from kernel tables, ours beside them."""
    eight = {"attention": Plan(tp=8), "ffn": Plan(tp=8)}
    r1 = replace(as_recipe("fp8_block"), kv_cache=BF16)
    points = (
        ("llama-3.1-8b", "bf16", {"batch": 64, "context": 8192}, 20.7),
        ("deepseek-r1", r1, {"batch": 1, "context": 1024, **eight}, 6.9),
        ("deepseek-r1", r1, {"batch": 64, "context": 1024, **eight}, 27.2),
    )
    out = []
    for name, recipe, load, theirs in points:
        model = config.load(name)
        ours = decode_step(model, "H200", recipe, **load)
        ideal = decode_step(model, "H200", recipe, **load, ideal=True)
        gpus = load.get("attention", Plan()).gpus
        what = f"{model.name}, {gpus} x H200, batch {load['batch']}, context {load['context']:,}"
        out.append(
            [
                what,
                f"{theirs:.1f}",
                f"{ours.seconds * 1e3:.1f}",
                f"{ideal.seconds * 1e3:.1f}",
                f"{ours.terms['experts'] * 1e3:.1f}",
            ]
        )
    return out


def others_table():
    """(header, rows) of other public models on the same shapes: held-out error on large shapes and on all [%]."""
    with open(Path(__file__).with_name("other_models.csv"), encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    columns = list(dict.fromkeys((r["device"], r["precision"]) for r in rows))
    cell = {(r["package"], r["device"], r["precision"]): f"{r['large']} / {r['all']}" for r in rows}
    body = []
    for package in dict.fromkeys(r["package"] for r in rows):
        first = next(r for r in rows if r["package"] == package)
        body.append([f"{package} {first['version']}", first["model"], *(cell.get((package, *c), "–") for c in columns)])
    ours = []
    for device, precision in columns:
        pair = [
            accuracy("gemm", device=device, precision=precision, framework="sglang", subset=x)[0]["mape"]
            for x in ("large", "all")
        ]
        ours.append(" / ".join(f"{float(x):.0f}" for x in pair))
    body.append(["**hwdesign**", "The model of this page, fitted on other shapes of the same tables.", *ours])
    return ["package", "its model", *(f"{d} `{p}`" for d, p in columns)], body


def best_and_worst(operation, subset):
    """(smallest, largest) held-out error of an operation's cases, as text."""
    errors = sorted(float(r["mape"]) for r in accuracy(operation, subset=subset))
    return f"{errors[0]:.1f} to {errors[-1]:.1f} %"


def unseen_heads(heads=128):
    """Error [%] of latent attention in decode on GB300 in BF16 for a number of heads that the fit never saw."""
    case = attention_case("mla_decode", "GB300", "bf16")
    case = replace(case, held=case.shape["heads"] == heads)
    return 100 * np.mean(np.abs(case.error(fitted(case))[case.held]))


def switch_numbers():
    """Published times at 8192 x 8192 on H100, FP8 with block scales: at 256, 257, 512 and 513 tokens [µs]."""
    grid = gemm_grid("H100_SXM", "fp8_block", "sglang")
    return [round(float(grid.at(m, 8192, 8192)) * 1e6) for m in (256, 257, 512, 513)]


def floor_numbers():
    """Fused experts on H200: rows below the memory's floor, if round-robin routing touched all it could; and of all rows."""
    rows = measurements("moe_fused", "H200", precision="fp8_block", run=0)
    touched = np.minimum(256, 8 * rows["tokens"])
    floor = touched * 3 * 7168 * 2048 / rows["tp"] / as_device("H200").memory_bandwidth
    return int((floor > rows["seconds"]).sum()), len(floor), int((floor / 2 > rows["seconds"]).sum())


def accuracy_page(table):
    """The page as Markdown; `table` makes a table of a header and rows."""
    model, lookup = ablation_table()
    noise = noise_rows()
    absolute, signed = served_error()
    ratio = served()["modelled"] / served()["tpot"]
    inside, far = np.mean(np.abs(ratio - 1) <= 0.25), ((ratio > 1.7).sum(), (ratio < 0.55).sum())
    published = "".join(LABEL.format(word) for word in ("published", "modelled"))
    s256, s257, s512, s513 = switch_numbers()
    unseen = unseen_heads()
    below, rows, half = floor_numbers()
    llama = llama_rows()
    composed = composed_rows()
    columns = ("large: mean", "median", "in sample", "all: mean", "median", "in sample")
    detail_head = ["device", "format", "library", *(f"{x} [%]" for x in columns), "shapes"]
    large = [float(r["mape"]) for r in accuracy("gemm", subset="large")]
    roof = [float(r["large"]) for r in data("ablation.csv") if r["model"] == "datasheet roofline"]
    shapes = int(accuracy("gemm", device="GB300", subset="all")[0]["held_out"])
    constant_head = ["constant", "meaning", "lowest", "middle", "highest"]
    parts = [
        f"""# Accuracy

<!-- written by scripts/generate_pages.py; do not edit -->

A model that predicts a time owes its reader the error of that prediction. This page gives it, for every device, format and operation of the
book, on shapes that the model did not see. {published}

Three words are used throughout. The *error* of one shape is |modelled time / published time - 1|. The *mean* is taken over shapes, each counted
once. *Held out* means that the shape took no part in the fit. The constants that ship with the package are those of that fit, so the errors are
theirs. Anyone can repeat it: `python scripts/fit_calibration.py` takes about a minute, needs NumPy, and writes the same files.

In short, on what was held out: large matrix multiplications {min(large):.0f} to {max(large):.0f} %, half of the slices below {np.median(large):.1f} %; the datasheet's roofline
misses such shapes by {min(roof):.0f} to {max(roof):.0f} %. Whole steps of served models, on which nothing was fitted: {absolute:.0f} % in the median.""",
        f"""## Matrix multiplications

A third of all pairs N, K is held out whole, with all their token counts; the random seed is fixed. Shapes with N and K from 512 up count.
*Large* are those with at least 256 tokens and N, K from 1024 up. One set of eight constants serves both.

A cell gives the mean error on large shapes and on all [%].

{table(["device", "library", *(f"`{f}`" for f in FORMATS)], gemm_rows())}

:::{{dropdown}} Medians, and the error in sample
{table(detail_head, gemm_details())}
:::

Held-out and in-sample errors are nearly equal everywhere: eight constants on some {3 * shapes:,} shapes do not overfit. What remains is not chance but
structure that the model lacks.

![Held-out error of the GEMM model by tokens and weights: fifteen maps, one for each device and format, from 0 to over 32 per cent](accuracy_map.svg)

**Read the figure.** Light is good. The dark column in the FP8 maps of H100 and H200 lies at 64 to 1024 tokens: there the library switches between
kernels (see below). The dark lower rows are small matrices, under a million weights, where the time is a few microseconds and every detail of a
kernel counts. In BF16 the large products of prefill, top right, are mostly within 8 %; in FP8 the very largest are not.""",
        f"""## What the model says, and what each part earns

The time of a GEMM is the time on the chip and the time off the chip, partly overlapped, plus a fixed time, plus the pass that quantizes the inputs.
On the chip, the best of six tile shapes runs in waves over the SMs. Off the chip, A, B and C cross the memory once, and again where they do not fit
in the L2 cache. {{doc}}`api` has the formulas, under `timing.gemm_kernel`. The eight constants:

{table(constant_head, constant_rows("gemm"))}

Each smaller model below was fitted again from scratch on the same training shapes. A cell gives the held-out error on large shapes and on all [%],
SGLang.

{table(model, lookup)}

- The **roofline of the datasheet** is not a model of time: it misses by a third to three quarters. Fitting a share of both rates and a fixed time
  (*roofline*) repairs most of that. Letting math and memory overlap only in part (*smooth roofline*) is the next step.
- From there to the full model, the low-precision formats gain most over all shapes. Their kernels do not split K, so few tiles mean a long chain of steps on a few SMs
  (`chain`), and they must quantize their inputs first (`quantize`).
- In BF16, `split` earns its place at few tokens on all three devices: without it the error over all shapes is about a quarter higher, on A100 nearly
  double. `wave` and `balance` matter on A100 alone. One set of constants for every device has to carry both.
- We expected operands that stay **hot in the L2 cache** to be the largest missing part, because the tables are taken without emptying it. They are
  not: a ninth constant for it gains at most half a point, and only for products below a tenth of the cache.
- A **local lookup**, a plane through the nearest measured shapes in the logarithms, is better than the model on most slices. It knows nothing
  outside its table and explains nothing. The difference is the price of explaining.""",
        f"""## How small can an error get?

{table(["device", "what is compared", "mean difference [%]", "median [%]"], noise)}

Two libraries run nearly the same BF16 kernels on the same GPU and still differ by {min(float(r[3]) for r in noise[:5]):.1f} to
{max(float(r[3]) for r in noise[:5]):.1f} % in the median. Two runs of one table differ by about 1 %. An error below that would be memory, not
understanding.""",
        f"""## Attention, experts, exchanges

Mean held-out error [%], for each format in turn:

{table(["operation", "formats", *(f"`{d}`" for d in DEVICES)], other_rows())}

What is held out, and whose kernels they are:

{held_list()}

The models are as small as that of the GEMM: three to seven constants each.

:::{{dropdown}} The constants, over all devices and formats
**Attention, decode**

{table(constant_head, constant_rows("attention_decode"))}

**Attention, prefill**

{table(constant_head, constant_rows("attention_prefill"))}

**Experts, grouped kernels**

{table(constant_head, constant_rows("moe"))}

**All-reduce**

{table(constant_head, constant_rows("all-reduce"))}
:::

For latent attention the (batch, context) pairs are held out, not the heads. Holding out the rows of 128 heads instead is an extrapolation, since 64 is
then the largest number seen: the error of decode on GB300 in BF16 rises to {unseen:.0f} %.""",
        f"""## Whole steps, served

No constant of the package was fitted on a serving point. The sample holds {len(served()["tpot"]):,} points of aggregated serving of models whose
config ships, collected by others from several benchmark runs; it is good for trends. The model adds up one decode step and the share of the other
sequences' prefill that each step carries (`time_per_output_token`). The median error over all points is **{absolute:.0f} %**
({signed:+.0f} % with its sign).

![Modelled against published time per output token for five families of models, both from 2 to 200 milliseconds; most points lie within 25 per cent](accuracy_served.svg)

**Read the figure.** Points on the line are exact; the band is 25 %. {100 * inside:.0f} % of the points lie in it, over two decades. {far[0]} points are modelled
more than 1.7 times too slow, half of them DeepSeek-R1 on B200 by one engine; {far[1]} are modelled at less than 0.55 of the published time.

{table(["model", "device", "points", "median error [%]", "with sign [%]"], served_rows())}

{table(["concurrency", "points", "median error [%]", "with sign [%]"], concurrency_rows())}

### Where the time goes

Llama-3.1-70B in FP8 on H100, four sequences, 1024 tokens in and 1024 out, vLLM [ms]:

{table(["TP", "published", "modelled", "error [%]", "matrices", "attention", "all-reduce", "small kernels"], llama)}

Four times the GPUs make the token {float(llama[0][1]) / float(llama[2][1]):.1f} times faster. The matrices shrink from {llama[0][4]} to {llama[2][4]} ms;
attention's {llama[0][5]} ms and the {llama[0][7]} ms of small kernels do not shrink at all, because each is a fixed time of a kernel, 80 layers over.

### Beside another tool

Three steps that aiconfigurator composed from its kernel tables [ms]:

{table(["step", "composed", "ours", "plain bound", "of ours, experts"], composed)}

The last row differs most, and the reason is in the experts. At 64 tokens uniform routing touches 222 of 256 experts. The table of fused kernels was
taken with a routing that touches about half of them, as the next section shows; a time composed from that table inherits it.""",
        f"""## Where it fails, and why

- **Libraries switch kernels.** On H100, FP8 with block scales, N = K = 8192: {s256} µs at 256 tokens and {s257} at 257, {s512} at 512 and {s513} at
  513. One token more can quarter the speed or double it. No smooth model follows this, and none should: the fault is the library's.
- **Small matrices at few tokens** take 2 to 5 µs, of which the model knows one average.
- **The routing of a table.** {below} of {rows} rows of SGLang's fused expert kernel on H200 are faster than the memory allows, if all experts were read
  that round-robin routing touches. None is ({half} rows) if only half of the experts are touched. The router of this model lets a token choose from half of its groups
  of experts; with artificial scores all tokens choose the same half. We infer this from the times; nothing states it. With it, five constants fit the
  rows of H100 to {accuracy("moe_fused", device="H100_SXM")[0]["mape"]} %, held out, and the served times of DeepSeek on B200, which took no part, come out near
  the published ones; without these rows they come out about half too slow.
- **Fused experts on Blackwell** are modelled worst of all ({best_and_worst("moe_fused", "all")} over all devices and formats), with the grouped NVFP4 kernel on
  B200 ({accuracy("moe", device="B200", precision="nvfp4", subset="all")[0]["mape"]} %): these kernels change their tiles with the tokens of an expert.
- **Devices without a table** take the constants of a stand-in, scaled by the datasheets. `Breakdown.notes` names it; its error is unknown.
- **Outside the fit**: N or K below 512, head sizes other than 128 (192 is bad), more ranks than were measured.

![Published and modelled time at N = K = 8192 on H100: with block scales two published points at 257 and 512 tokens lie far above the modelled line](accuracy_switch.svg)

**Read the figure.** Two crosses of the FP8 series, at 257 and 512 tokens, lie {s257 / s256:.1f} and {s512 / s513:.1f} times above the neighbour on their other side.
In BF16, the same shapes follow the line.""",
        f"""## Other public models

The held-out shapes of SGLang's tables, through other packages that can be installed and asked for the time of a GEMM without owning the GPU. A cell gives the error on large shapes and on all [%]:

{table(*others_table())}

None of them was fitted on these libraries, and some mean something else: mlsysim counts steps, not kernels, and no FP8 or FP4 entry counts the pass that
quantizes the inputs, which the published times hold. The comparison shows what a reader gets who takes a tool as it is. A share of the peak that
somebody measured once (torchao's) is already worth more than a datasheet. `scripts/compare_models.py` repeats it.""",
    ]
    return "\n\n".join(parts) + "\n"


def pictures():
    """{file name: axes} of the page's figures."""
    from hwdesign.lessons import figures

    return {
        "accuracy_map.svg": figures.error_maps(map_panels()),
        "accuracy_switch.svg": figures.kernel_switch(*switch_lines()),
        "accuracy_served.svg": figures.served_times(served_groups()),
    }
