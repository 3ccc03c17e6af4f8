"""The page Accuracy: how far the calibrated model is from published times that it has not seen, for `generate_pages.py`."""

import ast
import csv
import functools
import importlib
import inspect
import io
import re
import tokenize
from importlib import resources

import exam
import exam_page
import numpy as np
from calibration_cases import PARTS, third
from exam_page import ENGINES, HIGH, ruled

from hwdesign.timing import gemm_kernel, kernels, sparse_kernels, state_kernels
from hwdesign.timing.estimate import gemm_time
from hwdesign.timing.silicon import gemm_grid, measurements, slices, tables

LABEL = '<span class="hw-label hw-{0}">{0}</span>'
LIBRARIES = ENGINES | {"nccl": "NCCL"}
HELD = {  # what is held out of each part's tables
    "gemm": "a third of the pairs N, K with all their M",
    "small": "every third token count",
    "attention": "a third of the (query heads, key-value heads, head size); for latent attention of (batch, context)",
    "sparse": "a third of the (sequences, new tokens, cached tokens), over all heads and models",
    "state": "a third of the (sequences, tokens), in decode of (heads, sequences); for residual streams every third token count",
    "experts": "a third of the layers' shapes (of plans, where a table has fewer than five shapes)",
    "links": "every third size; for DeepEP a third of the layers",
    "energy": "a third of the pairs N, K, and of the layers' shapes",
}
GROUPS = {  # rows of the table: operations, and the subset of their held-out times
    "matrix products, large": (("gemm",), "large"),
    "matrix products, up to 256 tokens": (("gemm",), "decode"),
    "attention, decode": (("attention_decode",), "all"),
    "attention, prefill": (("attention_prefill",), "all"),
    "latent attention, decode": (("mla_decode",), "all"),
    "latent attention, prefill": (("mla_prefill",), "all"),
    "experts, unseen shapes": (("moe",), "all"),
    "all-reduce": (("all-reduce",), "all"),
    "all-gather, reduce-scatter": (("ring",), "all"),
    "all-to-all of experts": (("dispatch", "combine", *(f"{phase} {kernel}" for phase in ("dispatch", "combine") for kernel in ("low latency", "high throughput"))), "all"),
    "sparse attention, decode": (("dsa_decode", "csa_decode", "hca_decode", "msa_decode"), "all"),
    "sparse attention, prefill": (("dsa_prefill", "csa_prefill", "hca_prefill", "msa_prefill"), "all"),
    "linear attention, decode": (("gdn_decode", "kda_decode"), "all"),
    "linear attention, prefill": (("gdn_prefill", "kda_prefill"), "all"),
    "mixing of residual streams": (("mhc",), "all"),
    "small kernels": (("small kernel",), "all"),
}  # fmt: skip
ENERGY = {"energy of matrix products": "energy gemm", "energy of experts": "energy experts"}
FUNCTIONS = {  # whose docstring says what the constants of an operation mean
    "gemm": gemm_kernel.gemm_kernel_terms,
    "small kernel": kernels.small_seconds,
    "attention_decode": kernels.decode_attention_seconds,
    "attention_prefill": kernels.prefill_attention_seconds,
    "mla_decode": kernels.decode_attention_seconds,
    "mla_prefill": kernels.prefill_attention_seconds,
    "moe": kernels.expert_seconds,
    "all-reduce": kernels.all_reduce_seconds,
    "ring": kernels.ring_seconds,
    "mhc": state_kernels.mixing_seconds,
}
LEFT_OUT = {  # names in cases_*.py that say what is left out, beside the docstring
    "gemm": ("LEFT_OUT", "EAGER", "LEAST"),
    "attention": ("KERNELS", "MOST_TO_A_HEAD", "FITTED", "LEFT_OUT"),
    "sparse": ("HOST", "AT_TOP", "NO_GRAPH", "EAGER", "FEW_HEADS"),
    "state": ("OTHER_STATE", "OLDER", "HELD_BACK"),
    "experts": ("RARE", "NO_FIT", "SWINGS", "ECHO"),
}


@functools.cache
def data(name):
    """Rows of a CSV file of the package's data."""
    text = resources.files("hwdesign.timing").joinpath("data", name).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def medians(rows):
    """Median over slices of their held-out medians, and the range, as text; a dash where there is none."""
    found = sorted(float(row["median"]) for row in rows)
    if not found:
        return "–"
    middle = f"{np.median(found):.1f}"
    return middle if len(found) == 1 else f"{middle} ({found[0]:.1f} to {found[-1]:.1f})"


def current(framework):
    """Whether a label is an engine's newest tables, not those of the versions that were served."""
    return framework in LIBRARIES


def kernel_rows():
    """One row an operation: held-out medians by engine."""
    out = []
    for label, (operations, subset) in GROUPS.items():
        rows = [r for r in data("accuracy.csv") if r["operation"] in operations and r["subset"] == subset]
        shared = [r for r in rows if r["framework"] == "nccl"]
        if shared:
            out.append([label, *[f"{medians(shared)}, NCCL"] * len(ENGINES), len(shared)])
            continue
        cells = [medians([r for r in rows if r["framework"] == engine]) for engine in ENGINES]
        out.append([label, *cells, sum(current(r["framework"]) for r in rows)])
    for label, operation in ENERGY.items():
        rows = [r for r in data("energy_accuracy.csv") if r["operation"] == operation and r["subset"] == "all"]
        out.append([label, *(medians([r for r in rows if r["framework"] == engine]) for engine in ENGINES), len(rows)])
    known = {operation for operations, _ in GROUPS.values() for operation in operations}
    lacking = {r["operation"] for r in data("accuracy.csv")} - known
    if lacking:
        raise ValueError(
            f"each operation of accuracy.csv must be in accuracy_page.GROUPS, got none for {', '.join(sorted(lacking))}"
        )
    return out


def slice_rows(operations, source="accuracy.csv"):
    """One row a slice: what it is, the rows held out, and median / mean of each subset."""
    found = {}
    for row in data(source):
        if row["operation"] in operations:
            key = tuple(row[n] for n in ("operation", "device", "precision", "framework", "version"))
            found.setdefault(key, []).append(row)
    out = []
    for (operation, device, precision, framework, version), rows in found.items():
        errors = "; ".join(f"{r['subset']} {float(r['median']):.1f} / {float(r['mape']):.1f}" for r in rows)
        engine, _, then = framework.partition("-")
        library = f"{LIBRARIES[engine]} {version}" + (", as served" if then else "")
        out.append([operation, device.replace("_", " "), precision and f"`{precision}`", library, rows[-1]["held_out"], errors])
    return out


def quantity(value, unit):
    """A constant with its unit; times in µs or ns."""
    scale, unit = ((1e6, "µs") if value > 5e-8 else (1e9, "ns")) if unit == "s" else (1, unit)
    told = f"{value * scale:,.0f}" if value * scale >= 99.5 else f"{value * scale:.2g}"
    return told if unit == "1" else f"{told} {unit}"


def function_of(operation):
    """The functions whose constants an operation has."""
    kind, phase = operation.split("_") if "_" in operation else (operation, "")
    if operation in FUNCTIONS:
        return (FUNCTIONS[operation],)
    if kind in ("dispatch", "combine") or operation.startswith(("dispatch ", "combine ")):
        return (kernels.all_to_all_seconds,)
    if kind in ("gdn", "kda"):
        return (getattr(state_kernels, f"state_{phase}_seconds"),)
    attend = getattr(sparse_kernels, f"sparse_{phase}_seconds")
    return (attend,) if kind == "hca" else (getattr(sparse_kernels, f"index_{phase}_seconds"), attend)


def formula(function):
    """First paragraph of a function's docstring, and what it says of its constants, as one text."""
    text = inspect.getdoc(function)
    first = " ".join(text.split("\n\n")[0].split())
    told = re.search(r"\nc : [^\n]*\n((?:    [^\n]*\n)+)", text).group(1)
    return re.sub("``([^`]+)``", r"`\1`", f"{first} Constants: {' '.join(told.split())}")


def constants_part(ruler):
    """What the constants mean, and the range of each over the slices."""
    operations = dict.fromkeys(r["operation"] for r in data("constants.csv"))
    by_functions = {}
    for operation in operations:
        by_functions.setdefault(function_of(operation), []).append(operation)
    parts = []
    for functions, some in by_functions.items():
        body = []
        for name in dict.fromkeys(r["constant"] for r in data("constants.csv") if r["operation"] in some):
            rows = [r for r in data("constants.csv") if r["operation"] in some and r["constant"] == name]
            values, unit = sorted(float(r["value"]) for r in rows), rows[0]["unit"]
            low, middle, high = (quantity(values[i], unit) for i in (0, len(values) // 2, -1))
            body.append([f"`{name}`", len(rows), f"{low} to {high}", middle])
        told = "\n\n".join(f"`{function.__name__}`: {formula(function)}" for function in functions)
        parts.append(f"**{', '.join(some)}.** {told}\n\n{ruler(['constant', 'slices', 'range', 'middle'], body)}")
    return "\n\n".join(parts)


def coded(text):
    """A comment or docstring as Markdown: names of files as code."""
    return re.sub(r"(?<![`\w/])([\w/]+\.py)\b(?!`)", r"`\1`", text)


def comments(module, names):
    """{name: its comment} of assignments at the top of a module: the lines above, beside and inside."""
    source = inspect.getsource(module)
    at = {t.start[0]: t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT}
    lines, found = source.splitlines(), {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and (name := getattr(node.targets[0], "id", "")) in names:
            first = node.lineno
            while first - 1 in at and lines[first - 2].startswith("#"):
                first -= 1
            told = []
            for i in range(first, node.end_lineno + 1):
                if i in at and not re.search("fmt:|and why", at[i].string):
                    goes_on = told and lines[i - 1].lstrip().startswith("#") and lines[i - 2].lstrip().startswith("#")
                    text = at[i].string.lstrip("# ").removeprefix("Left out. ")
                    told = [*told[:-1], f"{told[-1]} {text}"] if goes_on else [*told, text]
            told += [f"{' '.join(key)}: {why}" for key, why in reasons(node.value)]
            found[name] = coded("; ".join(told))
    return found


def reasons(value):
    """(key, reason) of a dict of tuples to texts."""
    try:
        given = ast.literal_eval(value)
    except ValueError:
        return []
    if not isinstance(given, dict):
        return []
    return [(key, why) for key, why in given.items() if isinstance(key, tuple) and isinstance(why, str)]


def left_out_part():
    """What is held out and left out of each part's tables, from the scripts that read them."""
    out = []
    for part in (*PARTS, "energy"):
        module = importlib.import_module(f"cases_{part}")
        told = coded(inspect.getdoc(module))
        lines = [f"- `{name}`: {text}" for name, text in comments(module, LEFT_OUT.get(part, ())).items() if text]
        out += [f"**{part}** Held out: {HELD[part]}.", told, *(["\n".join(lines)] if lines else [])]
    return "\n\n".join(out)


def spread(device):
    """How far two engines' BF16 times of one GPU are apart: mean and median absolute difference [%]."""
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
    if "run" not in rows:
        return None
    names = [n for n in rows if n not in ("run", "seconds")]
    keys = list(zip(*(rows[n].tolist() for n in names), strict=True))
    first = {key: t for key, run, t in zip(keys, rows["run"], rows["seconds"], strict=True) if run == 0}
    apart = [100 * abs(t / first[key] - 1) for key, run, t in zip(keys, rows["run"], rows["seconds"], strict=True) if run == 1]
    return (np.mean(apart), np.median(apart), len(apart)) if apart else None


def noise_rows():
    """(rows of two engines, rows of two runs) of the noise floor."""
    libraries, runs = [], []
    for device in dict.fromkeys(s["device"] for s in slices()):
        mean, median = spread(device)
        libraries.append([device, "BF16 products, SGLang against TensorRT-LLM", f"{mean:.1f}", f"{median:.1f}"])
    for row in tables():
        found = (
            repeats(row["operation"], row["device"]) if row["operation"] in ("mla_decode", "mla_prefill", "moe_fused") else None
        )
        if found:
            what = f"{row['operation']}, two runs of one table, {found[2]:,} shapes"
            runs.append([row["device"], what, f"{found[0]:.1f}", f"{found[1]:.1f}"])
    return libraries, runs


def ablation_table():
    """(header, rows): one row a model, one column a slice: held-out error on large shapes and on all."""
    rows = data("ablation.csv")
    columns = list(dict.fromkeys((r["device"], r["precision"]) for r in rows))
    names = list(dict.fromkeys(r["model"] for r in rows))
    order = ["full", "smooth roofline", "roofline", "datasheet roofline", "local lookup (no model)"]
    cell = {(r["model"], r["device"], r["precision"]): f"{float(r['large']):.1f} / {float(r['all']):.1f}" for r in rows}
    body = [
        [f"**{name}**" if name == "full" else name, *(cell.get((name, *c), "–") for c in columns)]
        for name in order + [n for n in names if n not in order]
    ]
    return ["model", *(f"{d.replace('_', ' ')} `{p}`" for d, p in columns)], body


MAPPED = "B200"


def error_panel(row):
    """Map of one slice: mean absolute held-out error [%] by tokens and by N K, in steps of a factor of 4."""
    grid = gemm_grid(row["device"], row["precision"], row["framework"])
    m, n, k = np.meshgrid(grid.m, grid.n, grid.k, indexing="ij")
    seconds = grid.at(m, n, k)
    keep = ~np.isnan(seconds) & (n >= 512) & (k >= 512)
    m, n, k, seconds = (x[keep] for x in (m, n, k, seconds))
    held = third(n, k)
    error = 100 * np.abs(gemm_time(m, n, k, row["device"], row["precision"], framework=row["framework"]) / seconds - 1)
    m_bin = np.floor(np.log2(m) / 2).astype(int)
    area_bin = np.floor((np.log2(n * k) - 18) / 2).astype(int)
    counts, sums = np.zeros((2, area_bin.max() + 1, m_bin.max() + 1))
    np.add.at(counts, (area_bin[held], m_bin[held]), 1)
    np.add.at(sums, (area_bin[held], m_bin[held]), error[held])
    with np.errstate(invalid="ignore"):
        means = (sums / counts)[counts.any(axis=1)]
    corners = 4.0 ** np.arange(means.shape[1]), 2.0**18 * 4.0 ** np.arange(means.shape[0])
    return f"{row['device']} {row['precision']}", *corners, means


def map_panels():
    """Panels of the error map: SGLang's slices of one device."""
    return [error_panel(row) for row in slices() if (row["framework"], row["device"]) == ("sglang", MAPPED)]


SWITCH = (256, 257, 512, 513)  # tokens around which DeepGEMM changes its kernel


def switch_lines(n=8192, k=8192):
    """(m, lines) of the kernel switch on H100."""
    grid = gemm_grid("H100_SXM", "fp8_block", "sglang")
    m = grid.m[(grid.m >= 32) & (grid.m <= 8192)]
    lines = {}
    for precision in ("fp8_block", "bf16"):
        times = gemm_time(m, n, k, "H100_SXM", precision, framework="sglang")
        lines[precision] = (gemm_grid("H100_SXM", precision, "sglang").at(m, n, k), times)
    return m, lines


def switch_numbers():
    """Published times at 8192 x 8192 on H100, FP8 with block scales, at `SWITCH` tokens [µs]."""
    grid = gemm_grid("H100_SXM", "fp8_block", "sglang")
    return [round(float(grid.at(m, 8192, 8192)) * 1e6) for m in SWITCH]


def served_by_engine():
    """{engine: (published, modelled)} of the served points that can be compared."""
    rows = exam_page.points()
    chosen = {ENGINES[engine]: rows["framework"] == engine for engine in ("trtllm", "vllm", "sglang")}  # few points on top
    return {label: (rows["tpot"][keep], rows["modelled"][keep]) for label, keep in chosen.items()}


def spoken(operation):
    """An operation for a reader."""
    kind, _, phase = operation.partition("_")
    name = {"mla": "latent attention", "moe": "experts"}.get(kind, kind.upper() if len(kind) == 3 else kind)
    return f"{name} in {phase}" if phase else name


def worst_kernels():
    """The three worst slices of the newest tables by their held-out median, as a phrase."""
    rows = [r for r in data("accuracy.csv") if r["subset"] == "all" and current(r["framework"])]
    worst, seen = [], set()
    for row in sorted(rows, key=lambda r: -float(r["median"])):
        kind = row["operation"], row["framework"]
        if kind not in seen:
            seen.add(kind)
            where = f"{LIBRARIES[row['framework']]} on {row['device'].replace('_', ' ')}"
            worst.append(f"{spoken(row['operation'])} in {where} ({float(row['median']):.0f} %)")
        if len(worst) == 3:
            return ", ".join(worst)
    return ", ".join(worst)


def failures():
    """Where served times are missed most and why, as a list."""
    told = []
    for key, errors in exam_page.high_slices().items():
        sign = errors[exam.OURS]["sign"]
        off, way = errors[exam.OURS]["median"], "short" if sign < 0 else "long"
        told.append(f"- {exam_page.slice_name(key)}: off by {off:.0f} % in the median, mostly too {way}. {exam_page.CAUSES[key]}")
    return "\n".join(told)


def accuracy_page(table):
    """The page as Markdown; `table` makes a table of a header and rows."""
    ruler = functools.partial(ruled, table)
    rows = exam_page.points()
    total = exam.summary(exam.ratio(rows))
    libraries, runs = noise_rows()
    s256, s257, s512, s513 = switch_numbers()
    detail = ["operation", "device", "format", "kernels of", "held out", "median / mean [%]"]
    large = [float(r["mape"]) for r in data("accuracy.csv") if r["operation"] == "gemm" and r["subset"] == "large"]
    roof = [float(r["all"]) for r in data("ablation.csv") if r["model"] == "datasheet roofline"]
    slice_count = len({tuple(r.values())[:4] for r in data("accuracy.csv")})
    labels = "".join(LABEL.format(word) for word in ("published", "modelled"))
    dropdowns = []
    for label, (operations, subset) in GROUPS.items():
        if subset != "decode":
            title = label.removesuffix(", large")
            dropdowns.append(f":::{{dropdown}} {title[0].upper()}{title[1:]}\n{ruler(detail, slice_rows(operations))}\n:::")
    dropdowns.append(f":::{{dropdown}} Energy\n{ruler(detail, slice_rows(ENERGY.values(), 'energy_accuracy.csv'))}\n:::")
    parts = [
        f"""# Accuracy

<!-- written by scripts/generate_pages.py; do not edit -->

## How far can I trust this?

Against {len(rows["tpot"]):,} published times of served models the modelled {{term}}`time per output token` is off by {total["median"]:.1f} % in the median, {total["mean"]:.1f} % in the mean, and within
25 % for {total["within 25 %"]:.0f} % of the points. Its constants were fitted on single kernels, but for two an engine ({{doc}}`exam`). {labels}

![Modelled against published time per output token for {len(ENGINES)} engines, on logarithmic axes in milliseconds; {total["within 25 %"]:.0f} per cent of the points lie within 25 per cent](accuracy_served.svg)

{ruler(exam_page.ENGINE_HEAD, exam_page.engine_rows())}

The *interval* around a modelled step (`Breakdown.interval`) is to hold 80 % of published times; the last column is the share that it held of the points of a model when that model had
no say in it. Two other tools answer the same questions on the page {{doc}}`exam`, and two models that were set aside to judge are there.

**Where it fails worst.** Slices of {exam_page.FEWEST} points or more (a model, a device, an engine, a format) that are off by more than {HIGH:g} %:

{failures()}

Of the kernels the worst are {worst_kernels()}.""",
        f"""## Kernels, on shapes that the fit did not see

Constants are fitted on a part of each table; the rest is {{term}}`held out`. A *slice* is one device, format and engine. The median over slices of their median errors, and the range
over slices [%]:

{ruler(["operation", *ENGINES.values(), "slices"], kernel_rows())}

Energy is that of B200 alone, the only device with published power; the error is that of joules at the measured time. `python scripts/fit_calibration.py WHEEL` fits all of it again and
writes the same files.

### Every slice

Median / mean held-out error [%] of each subset, {slice_count} slices. *As served*: the newest versions of April 2026, which the served points above ran.

{chr(10).join(f"{x}{chr(10)}" for x in dropdowns).strip()}

:::{{dropdown}} What is held out, what is left out, and why
{left_out_part()}
:::

:::{{dropdown}} What a constant means
The constants that ship are those fitted without the held-out part. {constants_part(ruler)}
:::""",
        f"""## How small can an error get?

Two engines differ by {min(float(r[3]) for r in libraries):.1f} to {max(float(r[3]) for r in libraries):.1f} % in the median on the same BF16 products; two runs of one table differ by
{min(float(r[2]) for r in runs):.1f} to {max(float(r[2]) for r in runs):.1f} % in the mean.

:::{{dropdown}} The noise floor
{ruler(["device", "what is compared", "mean difference [%]", "median [%]"], libraries + runs)}
:::

Large products are missed by {min(large):.1f} to {max(large):.1f} % in the mean of a slice; the roofline of the datasheet misses all shapes by {min(roof):.0f} to {max(roof):.0f} %.

:::{{dropdown}} What each part of the GEMM model earns
Each smaller model was fitted again on the same shapes of SGLang. Held-out mean error on large shapes and on all [%]:

{ruler(*ablation_table())}
:::

:::{{dropdown}} Where engines switch kernels
![Published and modelled time at N = K = 8192 on H100 over the tokens: with block scales the published times jump around 256 and 512 tokens, off the modelled line](accuracy_switch.svg)

**Read the figure.** In FP8 with block scales SGLang's time is {s256} µs at {SWITCH[0]} tokens, {s257} at {SWITCH[1]}, {s512} at {SWITCH[2]} and {s513} at {SWITCH[3]}. A smooth model cannot follow this.

![Held-out error of the GEMM model by tokens and weights on {MAPPED} in SGLang: one map a format, in steps from 0 to over 32 per cent](accuracy_map.svg)

**Read the figure.** Light is good. Each square is the mean over held-out shapes of that many tokens and weights.
:::

**Outside the tables.** A device without a table takes the constants of another one, scaled by the datasheets; `Breakdown.notes` names it, and its error is unknown. So is that of
products with N or K below 512, and of more GPUs than were measured.""",
    ]
    return "\n\n".join(parts) + "\n"


def pictures():
    """{file name: axes} of the page's figures."""
    from hwdesign.lessons import figures

    return {
        "accuracy_map.svg": figures.error_maps(map_panels()),
        "accuracy_switch.svg": figures.kernel_switch(*switch_lines()),
        "accuracy_served.svg": figures.served_times(served_by_engine()),
    }
