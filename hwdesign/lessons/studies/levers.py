"""DeepSeek-R1 built and served against all seven guidelines, and the seven levers that bring it
back, one after the other.
"""

import functools
from dataclasses import replace

import numpy as np

from hwdesign._check import choice
from hwdesign.formulas.frontier import area_under, matched_rate, pareto_front
from hwdesign.models import config
from hwdesign.models.blocks import MoE
from hwdesign.timing.estimate import ENGINE
from hwdesign.timing.layouts import KINDS
from hwdesign.timing.search import decode_candidates, prefill_workers

STAGES = (1, 2, 4, 8)  # of a prefill pipeline
START = {
    "experts": 1024,
    "width": 512,
    "top_k": 32,
    "hidden": 3600,
    "copies": 2,
    "heads": 64,
    "latent": 288,
    "recipe": "fp8_block",
    "gpus": (8,),
    "data": False,
    "cache": False,
    "stages": (1,),
}
LEVERS = {
    "near-square experts": {"experts": 256, "width": 2048, "top_k": 8},
    "a multiple of 512": {"hidden": 3584},
    "wide, not deep": {"hidden": 7168, "copies": 1, "heads": 128, "latent": 576},
    "NVFP4": {"recipe": "nvfp4"},
    "wide expert parallelism": {"gpus": (1, 2, 4, 8, 16, 32, 64), "data": True},
    "pipelined prefill": {"stages": STAGES},
    "cut cache": {"cache": True},
}  # what each guideline changes, in their order
SHAPE = (
    "experts",
    "width",
    "top_k",
    "hidden",
    "copies",
    "heads",
    "latent",
)  # what is the model's, not the service's
BATCHES = np.unique(np.round(2 ** np.arange(0, 16.01, 0.25))).astype(
    int
)  # four for each doubling, from 1 to 65536
PREFILL_GPUS = (1, 2, 4, 8)  # of one stage
WORKLOADS = {
    "short": (8192, 1024, 1.0),
    "long": (131072, 8192, 5.0),
}  # prompt, answer [token], longest first token [s]


def lever_states(without=None):
    """Settings after each lever, all earlier ones kept.

    Parameters
    ----------
    without : str, optional
        A lever that is never pulled.

    Returns
    -------
    dict of str to dict
        "none", then the names of the levers, to their settings; sizes in [element], the rest
        without unit.

    Notes
    -----
    Source: the seven guidelines of the post.

    Examples
    --------
    >>> [s["hidden"] for s in lever_states().values()]
    [3600, 3600, 3584, 7168, 7168, 7168, 7168, 7168]
    """
    if without is not None:
        choice("without", without, LEVERS)
    settings = dict(START)
    states = {"none": dict(settings)}
    for name, change in LEVERS.items():
        if name != without:
            settings |= change
            states[name] = dict(settings)
    return states


def shaped(settings):
    """DeepSeek-R1 with the shape of these settings; with all levers pulled it is DeepSeek-R1.

    Parameters
    ----------
    settings : dict
        experts, width and top_k of a layer; hidden size, query heads and latent; copies, how many
        layers stand for one of R1's.

    Returns
    -------
    Model
        Sizes in [element].

    Notes
    -----
    Half the hidden size in twice as many layers keeps the experts' and the dense layers' parameters
    exactly, and half the latent the cache of a token. Source: `hwdesign.models.configs`,
    deepseek-r1.

    Examples
    --------
    >>> states = lever_states()
    >>> [
    ...     round(shaped(s).parameters / 1e9)
    ...     for s in (states["none"], states["a multiple of 512"], states["cut cache"])
    ... ]
    [669, 665, 671]
    """
    r1 = config.load("deepseek-r1")

    def change(block):
        experts = {
            "num_experts": settings["experts"],
            "width": settings["width"],
            "top_k": settings["top_k"],
        }
        ffn = replace(block.ffn, **experts) if isinstance(block.ffn, MoE) else block.ffn
        parts = {
            "kv_rank": settings["latent"] * 8 // 9,
            "rope_dim": settings["latent"] // 9,
        }  # 512 and 64 of 576
        return replace(
            block, mixer=replace(block.mixer, num_heads=settings["heads"], **parts), ffn=ffn
        )

    blocks = tuple(change(block) for block in r1.blocks for _ in range(settings["copies"]))
    return replace(r1, hidden_size=settings["hidden"], blocks=blocks)


def deployment(settings, workload):
    """The front of a model under some settings on GB300s, with its prefill on other ones.

    Parameters
    ----------
    settings : dict
        From `lever_states`; "engine" in it, if any, is whose kernels run.
    workload : str or tuple of (int, int, float)
        "short" or "long", or the lengths of prompt and answer [token] and the longest time to first
        token [s].

    Returns
    -------
    dict
        candidates that fit, from `decode_candidates`, with total_rate, output tokens per second and
        GPU of both pools [token/s]; front, their indices by falling user rate; area [token^2/s^2];
        prefill, the cheapest worker that meets the limit.

    Raises
    ------
    ValueError
        If the workload is unknown or no prefill worker brings the first token in time.

    Notes
    -----
    Source: `hwdesign.timing.search`.

    Examples
    --------
    >>> found = deployment(START, "short")
    >>> round(float(found["prefill"]["gpu_seconds"]), 2), round(found["area"], -2)
    (0.67, 19900.0)
    """
    prompt, answer, limit = (
        choice("workload", workload, WORKLOADS) if isinstance(workload, str) else workload
    )
    shape, form = tuple(settings[name] for name in SHAPE), settings["recipe"]
    engine = settings.get("engine", ENGINE)
    workers = _prefill(shape, form, prompt, engine)
    there = workers["fits"] & np.isin(workers["stages"], settings["stages"])
    cost = np.where(there & (workers["first_token"] <= limit), workers["gpu_seconds"], np.inf)
    if np.isinf(cost.min()):
        least = workers["first_token"][there].min(initial=np.inf)
        raise ValueError(f"first token must be allowed {least:.2f} s, got {limit} s")
    kinds = tuple(kind for kind in KINDS if settings.get(kind, True))
    found = _decode(shape, form, prompt, answer, settings["gpus"], kinds, engine)
    found = found | {"total_rate": matched_rate(found["gpu_rate"], cost.min(), answer)}
    rates = found["user_rate"], found["total_rate"]
    prefill = {name: values[cost.argmin()] for name, values in workers.items()}
    return {
        "candidates": found,
        "front": pareto_front(*rates),
        "area": area_under(*rates),
        "prefill": prefill,
    }


@functools.lru_cache(maxsize=32)
def _prefill(shape, form, prompt, engine):
    """Prefill workers with and without stages; states that differ in decode alone share them."""
    model = shaped(dict(zip(SHAPE, shape, strict=True)))
    given = {"tokens": prompt, "gpus": PREFILL_GPUS, "stages": STAGES, "engine": engine}
    return prefill_workers(model, "GB300", form, **given)


@functools.lru_cache(maxsize=32)
def _decode(shape, form, prompt, answer, gpus, kinds, engine):
    """Candidates that fit; states that differ in prefill alone share them."""
    model = shaped(dict(zip(SHAPE, shape, strict=True)))
    load = {"batch": BATCHES, "input_tokens": prompt, "output_tokens": answer, "engine": engine}
    found = decode_candidates(model, "GB300", form, gpus=gpus, kinds=kinds, **load)
    return {name: values[found["fits"]] for name, values in found.items()}
