"""The published serving points beside the model: no constant was fitted on them."""

import functools
from dataclasses import replace

import numpy as np

from hwdesign.catalogue.precision import BF16, MXFP4, Recipe
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.models import config
from hwdesign.models.steps import Plan
from hwdesign.timing.serving import time_per_output_token
from hwdesign.timing.silicon import measurements

GROUP = ("model", "device", "framework", "precision", "moe_precision", "tp", "dp", "moe_tp", "moe_ep")
BLOCKWISE = ("deepseek", "qwen3")  # their FP8 checkpoints carry scales of 128 x 128 blocks, whatever the point's column says


def served_recipe(model, device, framework, precision):
    """Formats of a serving point. The cache's is not stated by the source, so the engines' defaults are taken.

    TensorRT-LLM runs the checkpoints that NVIDIA quantized, whose caches are FP8; everything else defaults to BF16.
    """
    if model.startswith("gpt-oss"):  # its experts are MXFP4; Hopper has no FP4 math and multiplies them in BF16
        math = BF16 if device.startswith("H") else MXFP4
        return Recipe(name="mxfp4", weights=MXFP4, activations=math, outputs=BF16, kv_cache=BF16, math=math)
    if precision == "fp8" and model.startswith(BLOCKWISE):
        precision = "fp8_block"
    recipe = as_recipe(precision)
    return recipe if framework == "trtllm" and precision != "fp8_block" else replace(recipe, kv_cache=BF16)


def plans(row):
    """(attention, FFN) plans of a serving point; a dense model has one plan."""
    tp, dp = int(row["tp"]), int(row["dp"])
    if np.isnan(row["moe_tp"]):
        return Plan(tp=tp, dp=dp), Plan(tp=tp, dp=dp)
    return Plan(tp=tp, dp=dp), Plan(tp=int(row["moe_tp"]), ep=int(row["moe_ep"]))


@functools.cache
def served():
    """Columns of the serving sample with `modelled`, the time per output token [s]."""
    rows = measurements("serving")
    keys = list(zip(*(rows[name].tolist() for name in GROUP), strict=True))
    modelled = np.full(len(keys), np.nan)
    groups = {}
    for i, key in enumerate(keys):
        groups.setdefault(str(key), []).append(i)
    for chosen in groups.values():
        first = {name: values[chosen[0]] for name, values in rows.items()}
        model, device = str(first["model"]), str(first["device"])
        attention, ffn = plans(first)
        load = {name: rows[name][chosen] for name in ("concurrency", "input_tokens", "output_tokens")}
        recipe = served_recipe(model, device, str(first["framework"]), str(first["precision"]))
        modelled[chosen] = time_per_output_token(config.load(model), device, recipe, **load, attention=attention, ffn=ffn)
    return rows | {"modelled": modelled}
