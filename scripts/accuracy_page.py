"""The page Accuracy: how far the calibrated model is from published times that it has not seen, for `generate_pages.py`."""

import csv
import functools
import re
from collections import Counter
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
from calibration_cases import GEMM_BF16, GEMM_QUANTIZED, HELD_EP, attention_case, gemm_case
from fit_calibration import fitted

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import BF16
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.models import config
from hwdesign.models.steps import Plan
from hwdesign.timing.calibration import constants
from hwdesign.timing.estimate import decode_step, gemm_time, prefill_step
from hwdesign.timing.formats import engine_formats
from hwdesign.timing.gemm_kernel import TILES
from hwdesign.timing.served import WAITING, point_recipe, served_plans, served_points
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
        "overlap": "1: math and memory one after the other; large: both fully at the same time",
        "balance": "1: a last wave that is half full costs half a wave; 0: it costs a whole one",
        "wave": "time each wave of tiles costs besides its multiplications (BF16)",
        "split": "a split gives each part at least this much of K (BF16)",
        "chain": "least time a tile takes for one element of K, even alone on an SM (low precision)",
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
# Steps composed from kernel tables by aiconfigurator 0.12.0, database trtllm 1.3.0rc20 [ms], read 2026-11-30; `ffn`: how the
# 8 GPUs share the experts (moe_tp or moe_ep of the tool)
COMPOSED = (
    {"model": "llama-3.1-8b", "tp": 1, "ffn": "tp", "formats": "bf16", "batch": 64, "context": 8192, "ms": 20.7},
    {"model": "deepseek-r1", "tp": 8, "ffn": "ep", "formats": "fp8_block, BF16 cache", "batch": 1, "context": 1024, "ms": 6.9},
    {"model": "deepseek-r1", "tp": 8, "ffn": "ep", "formats": "fp8_block, BF16 cache", "batch": 64, "context": 1024, "ms": 27.2},
    {"model": "deepseek-r1", "tp": 8, "ffn": "tp", "formats": "fp8_block, BF16 cache", "batch": 1, "context": 1024, "ms": 10.5},
    {"model": "deepseek-r1", "tp": 8, "ffn": "tp", "formats": "fp8_block, BF16 cache", "batch": 64, "context": 1024, "ms": 33.7},
)


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
    count = {n: ", ".join(dict.fromkeys(r["constants"] for r in rows if r["model"] == n)) for n in names}
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
        out.append([f"`{name}`", meaning, f"{low} to {high}", middle])
    return out


def at_a_bound():
    """(number of GEMM constants that rest at a bound of their fit, number of all)."""
    bounds = GEMM_BF16 | GEMM_QUANTIZED
    rows = [(r["constant"], float(r["value"])) for r in data("constants.csv") if r["operation"] == "gemm"]
    return sum(any(np.isclose(value, edge, rtol=1e-3, atol=0) for edge in bounds[name][1:]) for name, value in rows), len(rows)


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
    """Panels of the error map: every slice of SGLang."""
    return [error_panel(row) for row in slices() if row["framework"] == "sglang"]


def switch_lines(n=8192, k=8192):
    """(m, lines) of the kernel switch on H100."""
    grid = gemm_grid("H100_SXM", "fp8_block", "sglang")
    m = grid.m[(grid.m >= 32) & (grid.m <= 8192)]
    lines = {}
    for precision in ("fp8_block", "bf16"):
        lines[precision] = (gemm_grid("H100_SXM", precision, "sglang").at(m, n, k), gemm_time(m, n, k, "H100_SXM", precision))
    return m, lines


def served():
    """Columns of the serving points that can be compared."""
    return served_points(matched=True)


def served_groups():
    """{model: (published, modelled)} of the serving points that can be compared."""
    rows = served()
    chosen = {config.load(str(name)).name: rows["model"] == name for name in np.unique(rows["model"])}
    return {label: (rows["tpot"][keep], rows["modelled"][keep]) for label, keep in chosen.items()}


def served_error(chosen=slice(None)):
    """(median absolute, median signed) error of the serving points that can be compared [%]."""
    rows = served()
    error = 100 * (rows["modelled"][chosen] / rows["tpot"][chosen] - 1)
    return np.median(np.abs(error)), np.median(error)


def served_rows():
    """One row a model, device and engine."""
    rows, out = served(), []
    for (model, device, engine), count in sorted(
        Counter(zip(rows["model"], rows["device"], rows["framework"], strict=True)).items()
    ):
        absolute, signed = served_error((rows["model"] == model) & (rows["device"] == device) & (rows["framework"] == engine))
        out.append([config.load(str(model)).name, device, FRAMEWORKS[str(engine)], count, f"{absolute:.0f}", f"{signed:+.0f}"])
    return out


def concurrency_rows():
    """One row a range of concurrency."""
    rows, out = served(), []
    for low, high in ((1, 4), (5, 16), (17, 64), (65, 256), (257, 10**9)):
        chosen = (rows["concurrency"] >= low) & (rows["concurrency"] <= high)
        absolute, signed = served_error(chosen)
        out.append([f"{low} to {high}" if high < 10**9 else f"{low} and more", chosen.sum(), f"{absolute:.0f}", f"{signed:+.0f}"])
    return out


def plain_bound(i):
    """The time per output token of a matched point by the plain bound with an FP8 cache: no server can be faster [s]."""
    rows = served()
    one = {name: values[i] for name, values in rows.items()}
    model, (attention, ffn) = config.load(str(one["model"])), served_plans(one)
    recipe = point_recipe(str(one["model"]), str(one["precision"]))
    formats = engine_formats(model, str(one["device"]), str(one["framework"]), recipe=recipe, cache="fp8")
    what, plans = (model, str(one["device"]), formats.recipe), {"attention": attention, "ffn": ffn, "ideal": True}
    users, prompt, answer = (int(one[name]) for name in ("concurrency", "input_tokens", "output_tokens"))
    step = decode_step(*what, batch=users, context=prompt + answer // 2, **plans)
    prefill = prefill_step(*what, batch=1, context=prompt, **plans)
    return float(step.seconds + (users - 1) / answer * prefill.seconds)


FAR = 1.6  # times, beyond which the page says why a point is off
WHY = (  # what the points of a cluster have in common, and the reason
    ({"model": "qwen3-235b-a22b", "device": "H200", "framework": "vllm"}, "steady"),
    ({"model": "gpt-oss-120b", "device": "H200", "framework": "trtllm", "tp": 4, "moe_ep": 2}, "sliced"),
    ({"model": "gpt-oss-120b", "device": "H100_SXM", "framework": "trtllm"}, "paced"),
    ({"model": "gpt-oss-120b", "device": "H100_SXM", "framework": "vllm"}, "alone"),
    ({"model": "llama-3.1-8b", "device": "H200", "framework": "vllm"}, "cached"),
    ({"model": "llama-3.1-8b", "device": ["H200", "H100_SXM"], "framework": ["sglang", "trtllm"]}, "host"),
    ({"model": "qwen3-235b-a22b", "device": "H100_SXM", "framework": "trtllm", "input_tokens": 128}, "batched"),
    ({"model": "deepseek-r1", "device": "B300", "framework": "sglang", "tp": 4}, "prefill"),
)


def far_clusters():
    """Points that are off by more than `FAR` times, as a dict of the name of their reason to their indices; each has one."""
    rows = served()
    ratio = rows["modelled"] / rows["tpot"]
    far, found = np.maximum(ratio, 1 / ratio) > FAR, {}
    for kind, name in WHY:
        chosen = np.logical_and.reduce([np.isin(rows[column], value) for column, value in kind.items()])
        found[name] = np.flatnonzero(far & chosen)
    told = np.concatenate(list(found.values()))
    if sorted(told) != np.flatnonzero(far).tolist():
        raise ValueError(f"points that are off by more than {FAR} times must each have one reason, got {cluster_list(far)}")
    return found


def far_reasons(found):
    """Why each cluster of `far_clusters` is off, in words; the numbers are those of the points."""
    rows = served()

    def ends(name, column, scale=1):
        values = scale * rows[column][found[name]]
        return f"{values.min():.0f} to {values.max():.0f}"

    bound = np.array([plain_bound(i) for i in found["cached"]]) / rows["tpot"][found["cached"]]
    load = {"model": "deepseek-r1", "framework": "sglang", "precision": "fp8", "tp": 4, "concurrency": 4, "input_tokens": 8192}
    b300, b200 = (served_points(device=card, **load)["ttft"].item() for card in ("B300", "B200"))
    steady = served_points(matched=True, model="qwen3-235b-a22b", device="H200", framework="vllm", tp=2)
    (one,) = found["alone"]
    beside = {"model": "gpt-oss-120b", "device": "H100_SXM", "framework": "vllm", "tp": 4, "input_tokens": 1024}
    near = served_points(matched=True, **beside, output_tokens=1024, concurrency=[16, 64])["tpot"]
    return {
        "steady": f"The time follows no load: on 2 GPUs {1e3 * steady['tpot'].min():.0f} to {1e3 * steady['tpot'].max():.0f} ms for "
        f"{steady['concurrency'].min():.0f} to {steady['concurrency'].max():.0f} requests and prompts of "
        f"{steady['input_tokens'].min():.0f} to {steady['input_tokens'].max():.0f} tokens. Something that the sample does not name sets it.",
        "sliced": f"{np.median(rows['tpot'][found['sliced']] / rows['modelled'][found['sliced']]):.1f} times slower at every load where "
        "experts are split two ways by tensor and two by expert parallelism. The kernel for MXFP4 weights on BF16 tokens has no table.",
        "paced": f"The time follows no load here either: {ends('paced', 'tpot', 1e3)} ms for {ends('paced', 'concurrency')} requests.",
        "alone": f"One point of {1e3 * rows['tpot'][one]:.1f} ms at {rows['concurrency'][one]:.0f} requests between {1e3 * near.min():.1f} ms "
        f"at 16 and {1e3 * near.max():.1f} ms at 64: a disturbed run.",
        "cached": f"Faster than this hardware reads such prompts: {(bound > 1).sum()} points lie below the plain bound at the full peak, the "
        f"others within {1 / bound.min():.1f} times of it. Prompts from a cache would explain it; the source does not say.",
        "host": "A model of 8 billion parameters on 4 or 8 GPUs: a step of some milliseconds, in which the host's work for each request "
        "shows. It is not modelled.",
        "batched": "Prompts of 128 tokens: the model lets each prompt read all experts alone, servers put several into one step.",
        "prefill": f"{b300:.1f} s to the first token with 4 requests of 8192 tokens, where 4 B200 with an older version need {b200:.1f} s: a "
        "slow prefill, which weighs on every token.",
    }


def far_rows():
    """One row a cluster of points that are off by more than `FAR` times."""
    rows, found, out = served(), far_clusters(), []
    for name, why in far_reasons(found).items():
        chosen = found[name]
        ratio = rows["modelled"][chosen] / rows["tpot"][chosen]
        names = [dict.fromkeys(rows[column][chosen].tolist()) for column in ("model", "device", "framework")]
        models, devices = ", ".join(names[0]), ", ".join(names[1])
        engines = ", ".join(FRAMEWORKS[engine] for engine in names[2])
        span = f"{ratio.min():.2f}" if len(ratio) == 1 else f"{ratio.min():.2f} to {ratio.max():.2f}"
        out.append([f"{models} on {devices}, {engines}", len(chosen), span, why])
    return out


def left_out():
    """(rows, points after merging, with MTP, of unknown recipe, that wait, and of these with long answers) of the sample."""
    points = served_points()
    label, waits = points["speculative"], points["waiting"] > WAITING
    waits &= label == ""
    long = waits & (points["output_tokens"] >= 1000)
    return points["runs"].sum(), len(label), (label == "mtp").sum(), (label == "unknown").sum(), waits.sum(), long.sum()


def cluster_list(chosen, most=3):
    """The points chosen as a phrase: how many, and whose most of them are."""
    rows = served()
    names = Counter(zip(*(rows[name][chosen].tolist() for name in ("model", "device", "framework")), strict=True))
    parts = [
        f"{n} of {config.load(m).name} on {device} by {FRAMEWORKS[engine]}" for (m, device, engine), n in names.most_common(most)
    ]
    return f"{chosen.sum()} points ({', '.join(parts)})"


PAIR = ("1.2.0rc6.post2", "1.2.0rc6.post3", "0.5.9")  # images that served DeepSeek-R1 on B200 without MTP, with it, both


def mtp_pairs():
    """{(engine, format, tp, dp, moe_tp, moe_ep, concurrency, tokens in, tokens out): {label: seconds}} where both were served."""
    rows = measurements("serving", "B200", model="deepseek-r1", version=PAIR)
    names = ("framework", "precision", "tp", "dp", "moe_tp", "moe_ep", "concurrency", "input_tokens", "output_tokens")
    found = {}
    for key, label, t in zip(
        zip(*(rows[n].tolist() for n in names), strict=True), rows["speculative"], rows["tpot"], strict=True
    ):
        found.setdefault(key, {})[str(label)] = t
    return {key: times for key, times in sorted(found.items()) if len(times) == 2}


def mtp_rows():
    """One row a concurrency: DeepSeek-R1 in FP8 on 8 B200 by TensorRT-LLM, 1024 tokens in and out, without and with MTP."""
    out = []
    for (*plan, concurrency, tokens, answer), times in mtp_pairs().items():
        if plan == ["trtllm", "fp8", 8, 1, 8, 1] and tokens == answer == 1024:
            kind = {
                "model": "deepseek-r1",
                "device": "B200",
                "framework": "trtllm",
                "precision": "fp8",
                "speculative": "",
                "tp": 8,
            }
            load = {"moe_tp": 8, "concurrency": concurrency, "input_tokens": tokens, "output_tokens": answer}
            cells = [f"{1e3 * t:.1f}" for t in (times[""], times["mtp"], served_points(**kind, **load)["modelled"].item())]
            out.append([f"{concurrency:.0f}", *cells, f"{times[''] / times['mtp']:.2f}"])
    return out


def llama_rows():
    """The three published points of Llama-3.1-70B, with where the time goes."""
    rows, model, out = served(), config.load("llama-3.1-70b"), []
    chosen = (rows["model"] == "llama-3.1-70b") & (rows["device"] == "H100_SXM") & (rows["concurrency"] == 4)
    chosen &= (rows["input_tokens"] == 1024) & (rows["output_tokens"] == 1024)
    for i in np.flatnonzero(chosen)[np.argsort(rows["tp"][chosen])]:
        plan = Plan(tp=int(rows["tp"][i]))
        recipe = engine_formats(model, "H100_SXM", "vllm", recipe="fp8").recipe
        context = 922 + 461  # 0.9 of the prompt and of half the answer
        b = decode_step(model, "H100_SXM", recipe, batch=4, context=context, attention=plan, ffn=plan)
        matrices = sum(b.terms[t] for t in ("projections", "ffn", "head"))
        terms = [matrices, b.terms["attention"], b.terms["communication"], b.terms["small kernels"]]
        terms.append(rows["modelled"][i] - b.seconds)  # what the others' prompts add
        cells = [f"{x * 1e3:.1f}" for x in (rows["tpot"][i], rows["modelled"][i])]
        out.append(
            [plan.tp, *cells, f"{100 * (rows['modelled'][i] / rows['tpot'][i] - 1):+.0f}", *(f"{t * 1e3:.1f}" for t in terms)]
        )
    return out


def composed_rows():
    """Steps that another tool composed from its kernel tables, ours beside them [ms]."""
    recipes = {"bf16": as_recipe("bf16"), "fp8_block, BF16 cache": replace(as_recipe("fp8_block"), kv_cache=BF16)}
    out = []
    for r in COMPOSED:
        model, plan = config.load(r["model"]), Plan(tp=r["tp"])
        load = {"batch": r["batch"], "context": r["context"], "attention": plan, "ffn": Plan(**{r["ffn"]: r["tp"]})}
        ours, ideal = (decode_step(model, "H200", recipes[r["formats"]], **load, ideal=ideal) for ideal in (False, True))
        shared = {"tp": "experts in slices", "ep": "whole experts"}[r["ffn"]] if r["tp"] > 1 else "one GPU"
        what = f"{model.name}, {r['tp']} x H200, {shared}, {r['formats']}, batch {r['batch']}, context {r['context']:,}"
        times = [f"{t * 1e3:.1f}" for t in (ours.seconds, ours.terms["experts"], ideal.seconds)]
        out.append([what, f"{r['ms']:.1f}", times[0], f"{100 * (ours.seconds * 1e3 / r['ms'] - 1):+.0f}", *times[1:]])
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
    roof = {
        (r["device"], r["precision"]): f"{float(r['large']):.0f} / {float(r['all']):.0f}"
        for r in data("ablation.csv")
        if r["model"] == "datasheet roofline"
    }
    body.append(["datasheet roofline", "The bound of this book, all held-out shapes.", *(roof.get(c, "–") for c in columns)])
    body.append(
        ["**hwdesign**", "The model of this page, fitted on other shapes of the same tables; all held-out shapes.", *ours]
    )
    return ["package", "its model", *(f"{d} `{p}`" for d, p in columns)], body


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


def ruled(table, header, body):
    """A Markdown table whose columns of numbers are set right and never broken."""
    lines = table(header, body).split("\n")
    number = re.compile(r"[-+–\d.,/ %]*( ?(µs|ns|element|to) ?[-+–\d.,/ ]*)*")
    numeric = [all(number.fullmatch(str(row[i])) for row in body) for i in range(len(header))]
    lines[1] = "| " + " | ".join("---:" if right else "---" for right in numeric) + " |"
    return "\n".join(lines)


def accuracy_page(table):
    """The page as Markdown; `table` makes a table of a header and rows."""

    def ruler(header, body):
        return ruled(table, header, body)

    head, models = ablation_table()
    kept = [
        row
        for row in models
        if row[0].strip("*")
        in ("full", "smooth roofline", "roofline", "datasheet roofline", "local lookup (no model)", "one tile, 128 x 128")
    ]
    cell = {(r["model"], r["device"], r["precision"]): (float(r["large"]), float(r["all"])) for r in data("ablation.csv")}
    slice_names = list(dict.fromkeys(key[1:] for key in cell))
    gain = {name: max(c - f for s in slice_names if ("full", *s) in cell and (name, *s) in cell for c, f in zip(cell[name, *s], cell["full", *s], strict=True))
            for name in dict.fromkeys(key[0] for key in cell)}  # fmt: skip
    hot = max(
        f - h for s in slice_names for f, h in zip(cell["full", *s], cell["operands hot below 0.1 of the L2", *s], strict=True)
    )
    better = [(s, cell["full", *s][0] - cell["local lookup (no model)", *s][0]) for s in slice_names]
    roof = [cell["datasheet roofline", *s] for s in slice_names]
    smooth = {s: cell["smooth roofline", *s][1] - cell["full", *s][1] for s in slice_names}
    most = max(smooth, key=smooth.get)
    nvfp4 = [points for (_, precision), points in smooth.items() if precision == "nvfp4"]
    counts = Counter((r["operation"], r["device"], r["precision"]) for r in data("constants.csv"))
    sizes = [n for (operation, *_), n in counts.items() if operation in OPERATIONS]
    tokens = np.array([1, 2, 4, 8, 16])
    small = [
        1e6 * t
        for s in slices()
        if s["framework"] == "sglang"
        for t in gemm_grid(s["device"], s["precision"], "sglang").at(tokens, 512, 512)
        if t > 0
    ]
    libraries, runs = noise_rows()[:5], noise_rows()[5:]
    absolute, signed = served_error()
    ratio = served()["modelled"] / served()["tpot"]
    error = 100 * np.abs(ratio - 1)
    slow, fast = (cluster_list(chosen) for chosen in (ratio > 1.7, ratio < 1 / 1.7))
    speed = 100 * (1 / ratio - 1)  # of the modelled tokens/s/user
    sampled, once, mtp, unknown, waiting, long = left_out()
    gains = [pair[""] / pair["mtp"] for pair in mtp_pairs().values()]
    labels = "".join(LABEL.format(word) for word in ("published", "modelled"))
    s256, s257, s512, s513 = switch_numbers()
    bf16 = 100 * (
        gemm_time(np.array([256, 257, 512, 1024]), 8192, 8192, "H100_SXM", "bf16")
        / gemm_grid("H100_SXM", "bf16").at([256, 257, 512, 1024], 8192, 8192)
        - 1
    )
    below, rows, half = floor_numbers()
    llama, composed = llama_rows(), composed_rows()
    large = [float(r["mape"]) for r in accuracy("gemm", subset="large")]
    fitted_shapes = [int(s["rows"]) for s in slices()]
    bound, every = at_a_bound()
    fused = {d: [float(r["mape"]) for r in accuracy("moe_fused", device=d)] for d in DEVICES}
    blackwell = [x for d in ("GB300", "GB200", "B200") for x in fused[d]]
    ring = [float(r["mape"]) for r in accuracy("ring")]
    grouped = {d: float(accuracy("moe", device=d, precision="nvfp4", subset="all")[0]["mape"]) for d in ("B200", "GB200")}
    constant_head = ["constant", "meaning", "range", "middle"]
    parts = [
        f"""# Accuracy

<!-- written by scripts/generate_pages.py; do not edit -->

How far is a modelled time from the published one? This page gives the error for every device, format and operation with a published table, on shapes that
the model did not see. {labels}

- The *error* of one shape is |modelled time / published time - 1|. Means are over shapes, each counted once.
- {{term}}`Held out <held out>` means that the shape took no part in the fit. *In sample* is the error on the shapes that did.
- A *slice* is one device, format and library.

The constants that ship with the package are those of the fit without the held-out shapes, so the errors are theirs. Anyone can repeat it:
`python scripts/fit_calibration.py` takes about a minute, needs NumPy, and writes the same files.

In short, held out: large matrix multiplications {min(large):.0f} to {max(large):.0f} %, half of the slices below {np.median(large):.1f} %, where the datasheet's roofline
misses by {min(r[0] for r in roof):.0f} to {max(r[0] for r in roof):.0f} %. Whole steps of served models, on which nothing was fitted: {absolute:.0f} % in the median.""",
        f"""## Matrix multiplications

A third of all pairs N, K is held out whole, with all their token counts; the random seed is fixed. Shapes with N and K from 512 up count.
*Large* are those with at least 256 tokens and N, K from 1024 up; they count double in the fit. One set of constants a slice serves both.
A held-out pair lies between pairs that were fitted, so this tests interpolation: N and K up to 65,536, M up to 32,768.

Mean error on large shapes and on all [%]:

{ruler(["device", "library", *(f"`{f}`" for f in FORMATS)], gemm_rows())}

:::{{dropdown}} Medians, and the error in sample
{ruler(["device", "format", "library", *(f"{x} [%]" for x in ("large: mean", "median", "in sample", "all: mean", "median", "in sample")), "held-out shapes"], gemm_details())}
:::

Held-out and in-sample errors are nearly equal: {len(GEMM_BF16)} constants on {2 * min(fitted_shapes) // 3:,} to {2 * max(fitted_shapes) // 3:,} shapes do not overfit. Most of what remains is
structure that the model lacks.

![Held-out error of the GEMM model by tokens and weights: one map for each device and format of SGLang, in steps from 0 to over 32 per cent](accuracy_map.svg)

**Read the figure.** Light is good. On H100 and H200 the FP8 maps are dark in the middle, at 256 to 1024 tokens; there the library changes kernels (see below). In BF16 the dark
corner is bottom left: small matrices, few tokens. With block scales, small matrices are dark at many tokens. The large products of BF16, top right, are light.
The very largest of FP8 and NVFP4 are not.""",
        f"""## What the model says, and what each part earns

The time of a GEMM is the time on the chip and the time off the chip, partly overlapped, plus a fixed time, plus the pass that quantizes the inputs.
On the chip, the best of {len(TILES)} {{term}}`tile` shapes runs in waves (a {{term}}`wave` is one tile on each {{term}}`SM`). Off the chip, A, B and C cross the memory once, and again where
they do not fit in the {{term}}`L2 cache`. {{doc}}`api` has the formulas, under `timing.gemm_kernel`. A slice has {len(GEMM_BF16)} constants: the first six, then `wave` and `split` in BF16,
`chain` and `quantize` in low precision, whose kernels are taken not to {{term}}`split K`.

{ruler(constant_head, constant_rows("gemm"))}

The range is over all slices. {bound} of {every} constants rest at a bound of the fit; there the number says only "as much as allowed".

Each smaller model below was fitted again from scratch on the same training shapes. Held-out error on large shapes and on all [%], SGLang:

{ruler(head, kept)}

:::{{dropdown}} Without one constant, and other variants
{ruler(head, [row for row in models if row not in kept])}
:::

- The **roofline of the datasheet** is not a model of time: on all shapes it misses by {min(r[1] for r in roof):.0f} to {max(r[1] for r in roof):.0f} %. A share of both rates and a fixed time (*roofline*) repair
  most of that. Letting math and memory overlap only in part (*smooth roofline*) is the next step; in low precision both hold the quantizing pass already.
- From there to the full model, {most[0]} in {most[1].upper()} gains most, {smooth[most]:.0f} points over all shapes: its BF16 kernels split K when tokens are few (`split`).
  NVFP4 gains {min(nvfp4):.0f} to {max(nvfp4):.0f}, in part by `chain`: few tiles mean a long row of steps on few SMs.
- Without `quantize`, large products get up to {gain["no quantize"]:.0f} points worse; without a `fixed` time, small ones up to {gain["no fixed"]:.0f}. `wave` matters on A100 alone, `balance` on A100 and in NVFP4.
  The same form serves every device.
- Operands that stay **hot in the L2 cache** are not a missing part. The collector's present source times several copies of the operands in turn, so that only products
  well below the size of the cache can stay hot. One constant more for those gains {hot:.1f} points at most.
- A **local lookup**, a plane through the nearest measured shapes in the logarithms, is better on {sum(b > 0 for _, b in better)} of {len(better)} slices, by {min(b for _, b in better if b > 0):.1f} to {max(b for _, b in better):.1f} points on large shapes.
  It knows nothing outside its table.""",
        f"""## How small can an error get?

{ruler(["device", "what is compared", "mean difference [%]", "median [%]"], libraries + runs)}

Two libraries differ by {min(float(r[3]) for r in libraries):.1f} to {max(float(r[3]) for r in libraries):.1f} % in the median on BF16 GEMMs. Two runs of one attention or expert table differ by
{min(float(r[2]) for r in runs):.1f} to {max(float(r[2]) for r in runs):.1f} % in the mean; no GEMM table was taken twice. A smaller error than that would be chance.""",
        f"""## Attention, experts, exchanges

Mean held-out error [%], for each format in turn:

{ruler(["operation", "formats", *(f"`{d}`" for d in DEVICES)], other_rows())}

What is held out, and whose kernels they are:

{held_list()}

*Latent attention* is {{term}}`MLA`. *Grouped* kernels work through the experts as a list of products, a *fused* kernel does the whole layer in one. The models have {min(sizes)} to {max(sizes)}
constants each.

:::{{dropdown}} The constants, over all devices and formats
**Attention, decode**

{ruler(constant_head, constant_rows("attention_decode"))}

**Attention, prefill**

{ruler(constant_head, constant_rows("attention_prefill"))}

**Experts, grouped kernels**

{ruler(constant_head, constant_rows("moe"))}

**All-reduce**

{ruler(constant_head, constant_rows("all-reduce"))}
:::

For latent attention the (batch, context) pairs are held out, not the heads. A number of heads that the fit never saw is harder: with 128 held out, of which the largest seen
is then 64, the error of decode on GB300 in BF16 is {unseen_heads():.0f} %.""",
        f"""## Whole steps, served

No constant was fitted on a serving point, but choices of the model were checked against them. The sample holds {sampled:,} different points of servers that prefill and decode on the same GPUs,
of models whose config ships. Others collected it from several benchmark runs; versions and settings differ, and many are not published. The model adds up one decode step and
the share of the other sequences' prefill that each step carries ({{term}}`time per output token`).

Every engine is modelled with the default constants: SGLang's for GEMMs and attention, TensorRT-LLM's for all-reduce, for experts the faster of the two kernels. The format of the
cache is not published; each engine's default is assumed. The benchmark InferenceX draws each prompt and answer between 0.8 and 1 of its nominal length, so the model gets 0.9 of them.

Not every point can be compared. Left out are:

- *Copies:* the source lists many points two or three times, some of DeepSeek-R1 as DeepSeek-V3. They are not among the {sampled:,}.
- *Speculative:* in {mtp} points one step gives several tokens, by multi-token prediction (MTP). The source has no column for it; the recipes of InferenceX tell which they are.
- *Unknown:* for {unknown} points of DeepSeek-R1 nothing published proves that they did without.
- *Waiting:* in {waiting} more points the first token takes over a tenth of a request's life, so fewer sequences are decoded than were sent. In {long} of them the answers have 1000 tokens or more: the
  requests queued, for memory or for prefill. In the others the answers are short beside the prompt.
- *Repeated:* points that differ only in version and date count once, with their median; that takes away {sampled - once}.

The remaining **{len(ratio):,} points** are compared below.

The median error is **{absolute:.0f} %** ({signed:+.0f} % with its sign), the mean {np.mean(error):.0f} %. One point in ten is off by more than {np.quantile(error, 0.9):.0f} %. Counted in tokens per second of a user, the inverse, the
median error is {np.median(np.abs(speed)):.0f} % ({np.median(speed):+.0f} % with its sign).

![Modelled against published time per output token for {len(served_groups())} families of models, on logarithmic axes in milliseconds; {np.mean(error <= 25):.0%} of the points lie within 25 per cent](accuracy_served.svg)

**Read the figure.** Points on the line are exact; the band is 25 %, and {np.mean(error <= 25):.0%} of the points lie in it. The model is more than 1.7 times too slow
for {slow}, and more than 1.7 times too fast for {fast}. The {sum(row[1] for row in far_rows())} points that are off by more than {FAR} times, each with what is known of why:

{ruler(["points of", "points", "modelled over published", "why"], far_rows())}

{ruler(["concurrency", "points", "median error [%]", "with sign [%]"], concurrency_rows())}

:::{{dropdown}} By model, device and engine
{ruler(["model", "device", "engine", "points", "median error [%]", "with sign [%]"], served_rows())}
:::

### What multi-token prediction hides

DeepSeek-R1 in FP8 on 8 B200, tensor parallel, TensorRT-LLM, 1024 tokens in and 1024 out, time per output token [ms]:

{ruler(["concurrency", "one token a step", "with MTP", "modelled, one token a step", "gain"], mtp_rows())}

The source lists both under the same key. Over all {len(gains)} keys of B200 that were served both ways, MTP makes the token {min(gains):.2f} to {max(gains):.2f} times faster, {np.median(gains):.2f} times in the median. Taken for
plain decoding, such a point looks like an engine twice as good.

### Where the time goes

Llama-3.1-70B in FP8 on H100, four sequences, 1024 tokens in and 1024 out, vLLM, split over 2, 4 and 8 GPUs by {{term}}`tensor parallelism` [ms]:

{ruler(["GPUs", "published", "modelled", "error [%]", "matrices", "attention", "all-reduce", "small kernels", "others' prefill"], llama)}

Four times the GPUs make the token {float(llama[0][1]) / float(llama[2][1]):.1f} times faster. The matrices shrink from {llama[0][4]} to {llama[2][4]} ms. Attention's {llama[0][5]} ms and the {llama[0][7]} ms of small kernels hardly
shrink, because most of their time is fixed, for each of {len(config.load("llama-3.1-70b").blocks)} layers. The model is more optimistic the more GPUs share the work: the host, and waiting for the slowest GPU, are not in it.

### Beside another tool

Steps that aiconfigurator composed from its kernel tables [ms]:

{ruler(["step", "composed", "ours", "difference [%]", "of ours, experts", "plain bound"], composed)}

At 64 tokens both agree within {max(abs(float(row[3])) for row in composed if "batch 64" in row[0]):.0f} %, whichever way the experts are shared. At one token ours is {composed[1][3].strip("+")} % above with whole
experts and {composed[3][3].strip("-")} % below with slices: slicing one token's experts costs half as much again in the other tool, and nearly nothing in ours. We do not know which of the two an engine would find.""",
        f"""## Where it fails, and why

- **Libraries switch kernels.** On H100, FP8 with block scales, N = K = 8192: {s256} µs at 256 tokens and {s257} at 257, {s512} at 512 and {s513} at
  513. A smooth model cannot follow this.
- **Small matrices at few tokens** (N = K = 512, up to 16 tokens) take {min(small):.0f} to {max(small):.0f} µs, most of it `fixed`, and differ from one slice to the next.
- **The routing of a table.** If round-robin routing reached all experts it could, {below} of {rows} rows of SGLang's fused kernel on H200 would be faster than the memory allows. If only half of
  the experts are read, {"none is" if half == 0 else f"{half} are"}. We took the half from the times. The collector's source (ai-dynamo/aiconfigurator, commit 095f58a) agrees: its artificial scores tie all
  eight groups of experts, so the router keeps the same four for every token. A few experts may then receive every token, so the constants for many tokens carry an imbalance.
- **The largest errors** are those of the grouped NVFP4 kernel on B200 ({grouped["B200"]:.0f} %; {grouped["GB200"]:.0f} % on GB200), all-gather and reduce-scatter ({min(ring):.0f} to {max(ring):.0f} %) and fused experts on Blackwell
  ({min(blackwell):.0f} to {max(blackwell):.0f} %). We do not know why.
- **Devices without a table** take the constants of another device, scaled by the datasheets. `Breakdown.notes` names it; its error is unknown.
- **Outside the fit**: N or K below 512, head sizes other than 128, more GPUs than were measured.

![Published and modelled time at N = K = 8192 on H100: with block scales two published points, at 257 and 512 tokens, lie far above the modelled line](accuracy_switch.svg)

**Read the figure.** In FP8 the published time jumps from {s256} to {s257} µs at 257 tokens and falls from {s512} to {s513} µs at 513. In BF16 there is no such jump; the model is {bf16[0]:.0f} % too slow at
256 tokens and {-bf16[3]:.0f} % too fast at 1024.""",
        f"""## Other public models

Packages that can be installed and asked for the time of a GEMM without owning the GPU, on 2,000 held-out shapes of SGLang's tables drawn at random. Mean error on large shapes and on all [%]:

{ruler(*others_table())}

None of them was fitted on these libraries, and some mean something else: mlsysim counts steps, not kernels, and no FP8 or FP4 entry counts the pass that
quantizes the inputs, which the published times hold. In BF16 on H100, torchao's measured share of the peak beats a datasheet by far; in NVFP4 it gains almost nothing.
`scripts/compare_models.py` repeats the comparison.""",
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
