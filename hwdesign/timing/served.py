"""Published serving points beside the model: which of them can be compared, with which formats and
plans, and the modelled time.

No constant was fitted on a serving point.
"""

import functools
from dataclasses import replace

import numpy as np

from hwdesign._check import choice, shown, single
from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.engine import engine as as_engine
from hwdesign.models import config
from hwdesign.models.steps import Plan
from hwdesign.timing.formats import engine_formats
from hwdesign.timing.serving import time_per_output_token
from hwdesign.timing.silicon import measurements

GROUP = (
    "model",
    "device",
    "framework",
    "precision",
    "moe_precision",
    "tp",
    "dp",
    "moe_tp",
    "moe_ep",
    "cache",
    "wide",
)
LOAD = ("concurrency", "input_tokens", "output_tokens")
KEY = (*GROUP, *LOAD, "speculative")
# their FP8 checkpoints carry scales of 128 x 128 blocks, whatever the point's column says
BLOCKWISE = ("deepseek", "qwen3-235b", "minimax", "qwen3.5", "glm-5")
OWN = ("gpt-oss", "int4")  # a model or a format whose checkpoint names its recipe
# whose module in TensorRT-LLM fuses no quantization (modeling_qwen3.py, commit 010bb95fbad3)
PLAIN = ("qwen3-32b",)
OUTPUT_NARROW = "attention but its output"  # what such a checkpoint leaves in BF16
# share of a request's life before its first token, above which its sequences in flight are not its
# concurrency
WAITING = 0.1
# InferenceX draws each length between 0.8 and 1 of the nominal (SemiAnalysisAI/InferenceX, commit
# 843c625, read 2026-11-30:
# RANDOM_RANGE_RATIO in .github/workflows/benchmark-tmpl.yml, and benchmark_serving.py); only its
# runs have these lengths here, but for some of Qwen3-32B, a model that it does not serve
DRAWN, MEAN = ((1024, 1024), (1024, 8192), (8192, 1024)), 0.9
NOT_DRAWN = ("qwen3-32b",)

# From which modelled gain on its sign is called sure, and what share of such a gain servers show
# where they differ in one choice: the middle half of 21 published pairs of plans and of 194 of
# formats of the weights. It is the least per cent from which 90 % of the signs are right in either
# kind: 94 % of the sure ones are, and 46 % of the others (chapter 8; the tests hold all of it to
# the points).
SURE_GAIN = 0.05
SHOWN = {"plan": (1.11, 1.93), "format": (0.56, 1.11)}


def sure_gain(gain):
    """Whether the sign of a modelled gain is called sure.

    Parameters
    ----------
    gain : float
        Share of a step that an alternative saves by the model [dimensionless], below 1.

    Returns
    -------
    bool
        Whether it is at least `SURE_GAIN`.

    Raises
    ------
    ValueError
        If it is no share below 1.

    Notes
    -----
    Source: published pairs of servers that differ in one choice; chapter 8.

    Examples
    --------
    >>> sure_gain(0.04), sure_gain(0.2)
    (False, True)
    """
    if single("gain", gain) >= 1:
        raise ValueError(f"gain must be a share below 1, got {gain}")
    return gain >= SURE_GAIN


def expected_gain(gain, differ):
    """What a server is expected to show of a modelled gain.

    Parameters
    ----------
    gain : float
        Share of a step that an alternative saves by the model [dimensionless], below 1.
    differ : str
        What the alternative changes: the "plan" or the "format" of the weights.

    Returns
    -------
    tuple of float, or None
        From and to: the middle half of what published pairs showed, at most the whole step
        [dimensionless]; None where not even the sign is sure.

    Raises
    ------
    ValueError
        If `gain` is no share below 1, or `differ` neither of the two.

    Notes
    -----
    Source: published pairs of servers that differ in one choice; chapter 8.

    Examples
    --------
    >>> expected_gain(0.5, "format"), expected_gain(0.04, "plan")
    ((0.28, 0.555), None)
    """
    low, high = choice("differ", differ, SHOWN)
    if not sure_gain(gain):
        return None
    return low * gain, min(high * gain, 1.0)


def point_recipe(model, precision, device=None):
    """Recipe of a serving point's products by its label; None where the checkpoint's is meant.

    Parameters
    ----------
    model : str
        Name of a config.
    precision : str
        Format of the weights, as in the column `precision` of the serving points.
    device : str or Device, optional
        What it runs on.

    Returns
    -------
    str or None
        Name of a recipe: FP8 of DeepSeek, Qwen3-235B and MiniMax comes in blocks; gpt-oss is in
        MXFP4 and Kimi-K2.5 in INT4 as their checkpoints say.

    Notes
    -----
    Source: the checkpoints' quantization configs. With `engine_formats` it gives all formats
    [bit].

    Examples
    --------
    >>> [point_recipe(model, "fp8") for model in ("llama-3.1-70b", "deepseek-r1", "gpt-oss-120b")]
    ['fp8', 'fp8_block', None]
    """
    if model.startswith("gpt-oss") and device and "fp4" in as_device(device).dense_peak:
        return "mxfp4_w4a8"  # every recipe of the sample asks for MXFP8 inputs there
    if model.startswith(OWN) or precision.startswith(OWN):
        return None
    if precision == "fp8" and model.startswith(BLOCKWISE):
        return "fp8_block"
    return precision


def served_plans(row):
    """Plans of attention and of the FFN of a serving point; a dense model has one plan.

    Parameters
    ----------
    row : mapping
        `tp`, `dp`, `moe_tp` and `moe_ep` of the point [GPU]; `moe_tp` is NaN for a dense model.

    Returns
    -------
    tuple of Plan
        (attention, FFN), over the same GPUs.

    Notes
    -----
    Source: the columns of the serving points.

    Examples
    --------
    >>> served_plans({"tp": 1, "dp": 8, "moe_tp": 1, "moe_ep": 8})[1].ep
    8
    """
    tp, dp = int(row["tp"]), int(row["dp"])
    if np.isnan(row["moe_tp"]):
        return Plan(tp=tp, dp=dp), Plan(tp=tp, dp=dp)
    return Plan(tp=tp, dp=dp), Plan(tp=int(row["moe_tp"]), ep=int(row["moe_ep"]))


@functools.cache
def engine_of_then(name, model):
    """The engine in the kernels of the versions that the sample ran, the newest of April 2026; in
    TensorRT-LLM a model of `PLAIN` is quantized in kernels apart.

    >>> engine_of_then("vllm", "qwen3-32b").tables
    'vllm-2026-04'
    """
    engine = as_engine(name)
    plain = engine.name == "trtllm" and model.startswith(PLAIN)
    return replace(engine, tables=f"{engine.name}-{'plain' if plain else '2026-04'}")


def served_checkpoint(model, wide):
    """(Model, parts that stay in BF16) of a checkpoint by the point's columns `model` and `wide`.

    Checkpoints of DeepSeek-R1 in NVFP4 leave all of the attention but its output projection in
    BF16: the model then says so in its `formats`.

    >>> served_checkpoint("deepseek-r1", "attention; shared experts")[1]
    ['attention', 'shared experts']
    >>> r1 = served_checkpoint("deepseek-r1", "attention but its output")[0]
    >>> [(form.name, round(share, 2)) for form, share in r1.part_formats("attention")]
    [('nvfp4', 0.63), ('bf16', 0.37)]
    """
    served = config.load(model)
    if wide != OUTPUT_NARROW:
        return served, wide.split("; ") if wide else []
    size = {True: 0, False: 0}
    for block, count in served.block_counts.items():
        for weight in block.weights(served.hidden_size):
            if weight.part == "attention" and weight.matmul:
                size[weight.name == "attention output"] += count * weight.elements
    share = size[True] / sum(size.values())
    formats = (("attention", (("nvfp4", share), ("bf16", 1 - share))),)
    return replace(served, quantization="nvfp4", formats=formats), []


def served_points(**equal):
    """Published serving points, one of each kind, with the modelled time per output token and
    whether the two can be compared.

    The match rule. Repeated points are merged first: rows with the same model, device, engine,
    formats, ways of splitting, concurrency, lengths and label `speculative` become one, with the
    median of their `ttft` and `tpot`; versions and dates may differ, and `runs` counts them.
    `matched` is true where

    - one step gives one token: `speculative` is "", not "mtp" (multi-token prediction) or
      "unknown";
    - the requests decode rather than wait: the first token comes within a tenth of a request's
      life, which is ``ttft + tpot * (output_tokens - 1)``. By Little's law
      ``concurrency * (1 - ttft / life)`` sequences decode on average, so the batch of a matched
      point is its concurrency within 10 %. Others queue, for memory or for prefill, or have
      answers that are short beside the prompt.

    The model gets the mean lengths: 0.9 of the nominal where the benchmark draws each length
    between 0.8 and 1 of it.

    Parameters
    ----------
    **equal
        Column and the value, or list of values, that it must have.

    Returns
    -------
    dict of str to ndarray, shape (points,)
        The columns of `measurements("serving")` without version and date, and `runs`, `modelled`
        [s], `waiting` (share of the life before the first token [dimensionless]) and `matched`
        [bool]. Tokens/s/user are `1 / tpot` and `1 / modelled`.

    Raises
    ------
    ValueError
        If a column does not exist, and the message lists those that do; or a value is of another
        kind.

    Notes
    -----
    Source: `measurements("serving")`; the rule is this book's.

    Examples
    --------
    >>> points = served_points(
    ...     model="llama-3.1-70b",
    ...     device="H100_SXM",
    ...     matched=True,
    ...     concurrency=4,
    ...     output_tokens=1024,
    ...     tp=2,
    ... )
    >>> [
    ...     (round(float(1 / t)), round(float(1 / m)))
    ...     for t, m in zip(points["tpot"], points["modelled"])
    ... ][0]  # tokens/s/user
    (57, 55)
    """
    rows = _points()
    keep = np.ones(len(rows["tpot"]), bool)
    for column, value in equal.items():
        value = (
            as_device(value).name
            if column == "device" and not isinstance(value, list | tuple)
            else value
        )
        keep &= np.isin(choice("column", column, rows), _values(column, value))
    return {name: values[keep] for name, values in rows.items()}


def _values(column, value):
    """A value or a list of values of a column, as an array."""
    try:
        wanted = np.asarray(value)
    except ValueError:  # a ragged list
        wanted = np.asarray(None)
    if wanted.dtype.kind not in "Ubiuf":
        like = "a text, a number, a truth value or a list of them"
        raise ValueError(f"{column} must be {like}, got {shown(value)}")
    return wanted


@functools.cache
def _points():
    return compared(measurements("serving"))


def compared(rows):
    """Serving points merged, modelled and matched, as `served_points` says.

    Parameters
    ----------
    rows : dict of str to ndarray
        Columns as of `measurements("serving")`, times in [s].

    Returns
    -------
    dict of str to ndarray, shape (points,)
        Columns as of `served_points`.

    Raises
    ------
    ValueError
        If a plan, a model or a format is refused.

    Notes
    -----
    Source: the rule of `served_points`.

    Examples
    --------
    >>> rows = measurements("serving", "H100_SXM", model="llama-3.1-70b", tp=2, concurrency=4)
    >>> set(compared(rows)["runs"].tolist())
    {1}
    """
    groups = {}
    for i, key in enumerate(zip(*(rows[name].tolist() for name in KEY), strict=True)):
        groups.setdefault(str(key), []).append(i)
    first, runs = (
        np.array([g[0] for g in groups.values()]),
        np.array([len(g) for g in groups.values()]),
    )
    out = {name: rows[name][first] for name in KEY} | {"runs": runs}
    out |= {
        name: np.array([np.median(rows[name][g]) for g in groups.values()])
        for name in ("ttft", "tpot")
    }
    life = out["ttft"] + out["tpot"] * (out["output_tokens"] - 1)
    out |= {"modelled": _modelled(out), "waiting": out["ttft"] / life}
    return out | {"matched": (out["speculative"] == "") & (out["waiting"] <= WAITING)}


def _modelled(rows):
    """Time per output token of each row [s]."""
    seconds, groups = np.empty(len(rows["tpot"])), {}
    for i, key in enumerate(zip(*(rows[name].tolist() for name in GROUP), strict=True)):
        groups.setdefault(str(key), []).append(i)
    lengths = mean_lengths(rows)
    for chosen in groups.values():
        one = {name: rows[name][chosen[0]] for name in GROUP}
        model, device, framework, precision = (
            str(one[name]) for name in ("model", "device", "framework", "precision")
        )
        attention, ffn = served_plans(one)
        load = {
            name: values[chosen]
            for name, values in (lengths | {"concurrency": rows["concurrency"]}).items()
        }
        served, wide = served_checkpoint(model, str(one["wide"]))
        recipe, cache = point_recipe(model, precision, device), str(one["cache"]) or None
        formats = engine_formats(served, device, framework, recipe=recipe, cache=cache)
        seconds[chosen] = time_per_output_token(
            served,
            device,
            formats.recipe,
            **load,
            attention=attention,
            ffn=ffn,
            wide=wide,
            engine=engine_of_then(framework, model),
        )
    return seconds


def mean_lengths(rows):
    """Mean lengths of prompts and answers of serving points, as a dict of columns [token].

    >>> one = {name: np.array([1024.0]) for name in ("input_tokens", "output_tokens")}
    >>> mean_lengths(one | {"model": np.array(["deepseek-r1"])})["input_tokens"].tolist()
    [922.0]
    """
    drawn = np.isin(
        rows["input_tokens"] * 1e6 + rows["output_tokens"], [i * 1e6 + o for i, o in DRAWN]
    ) & ~np.isin(rows["model"], NOT_DRAWN)
    return {name: np.where(drawn, np.round(MEAN * rows[name]), rows[name]) for name in LOAD[1:]}
