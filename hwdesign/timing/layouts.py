"""All ways to lay the two parts of a model over some GPUs, their decode steps at many batches, and
the best of them.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hwdesign._check import count, dims, instance, members, same_shape, shown, vector
from hwdesign.models.model import need_model
from hwdesign.models.steps import Plan, attention_refusal, feed_forward_refusal
from hwdesign.timing.estimate import ENGINE, decode_steps

MOST_GPUS = 100_000  # whose layouts are tried one by one
MOST_STEPS = 10_000_000  # of a sweep: layouts times batches and contexts
KINDS = ("tensor", "data", "cache")  # of attention plans


def attention_kind(plan):
    """What a plan does with the cache: "tensor", "data" or "cache" parallel.

    Parameters
    ----------
    plan : Plan
        Of the attention part.

    Returns
    -------
    str
        "cache" if sequences are cut, else "data" if they are spread over groups, else "tensor".

    Examples
    --------
    >>> [attention_kind(p) for p in (Plan(tp=8), Plan(dp=4, tp=2), Plan(dp=2, kvp=4))]
    ['tensor', 'data', 'cache']
    """
    return "cache" if plan.kvp > 1 else "data" if plan.dp > 1 else "tensor"


def layouts(model, gpus):
    """Pairs of plans for attention and feed-forward that use exactly these GPUs, without pipeline
    stages.

    Parameters
    ----------
    model : Model
        What runs.
    gpus : int
        GPUs, at most 100,000.

    Returns
    -------
    list of (Plan, Plan)
        Every product of ways that makes up `gpus`: tensor, data and cache parallel for attention,
        tensor and expert parallel for the rest, with tokens sent to their experts or gathered.
        Pairs that the model refuses (heads or experts that do not divide) are left out.

    Raises
    ------
    ValueError
        If `gpus` is no whole number from 1 to 100,000.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> [(a.tp, a.dp, a.kvp, f.tp) for a, f in layouts(config.load("llama-3.1-8b"), 2)]
    [(1, 1, 2, 2), (1, 2, 1, 2), (2, 1, 1, 2)]
    """
    need_model(model)
    gpus = count("gpus", gpus, MOST_GPUS)
    pairs, plans = [], {}
    for attention in attention_plans(gpus):
        if attention_refusal(model, attention) is None:
            groups = attention.dp
            if groups not in plans:
                plans[groups] = _feed_forward_plans(model, gpus, groups)
            pairs += [(attention, ffn) for ffn in plans[groups]]
    return pairs


def attention_plans(gpus):
    """Every product of tensor, data and cache parallel ways that makes up `gpus`, as a list."""
    found = []
    for tp in _divisors(gpus):
        for dp in _divisors(gpus // tp):
            found.append(Plan(tp=tp, dp=dp, kvp=gpus // (tp * dp)))
    return found


def _feed_forward_plans(model, gpus, groups):
    """Feed-forward plans that the model takes where so many groups bring tokens of their own; those
    that gather the tokens last.
    """
    spread = _divisors(gpus) if any(block.routed for block in model.block_counts) else [1]
    plans = [Plan(tp=gpus // ep, ep=ep) for ep in spread]
    plans = [plan for plan in plans if feed_forward_refusal(model, plan, groups) is None]
    gathered = [replace(plan, gather=True) for plan in plans if min(plan.ep, groups) > 1]
    return plans + gathered


def _divisors(number):
    """All divisors, ascending."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    large = [number // n for n in reversed(small) if n * n != number]
    return small + large


def decode_sweep(
    model, device, recipe, *, batch, context, gpus, kinds=KINDS, wide=(), engine=ENGINE
):
    """Decode steps of every layout over these numbers of GPUs, at every batch.

    Parameters
    ----------
    model : Model
        What runs.
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats.
    batch : array_like of int
        Sequences in flight over all GPUs.
    context : array_like of int, broadcastable
        Tokens that each sees [token].
    gpus : sequence of int
        Numbers of GPUs, each at most 100,000.
    kinds : sequence of str
        Kinds of attention plans, see `attention_kind`.
    wide : sequence of str
        Parts of the model whose matrices stay in BF16 besides, as for `decode_step`.
    engine : str or Engine
        Whose kernels are taken, and whose share of the memory is kept back, as for `decode_step`.

    Returns
    -------
    dict
        layouts, a list of l pairs of plans; kinds and gpus, shape (l,); seconds of a step and
        feasible, shape (l, ...) with the broadcast shape of batch and context [s]; steps, a list of
        l breakdowns.

    Raises
    ------
    ValueError
        If a number is out of range, a name is unknown, or there are more than ten million steps.

    Notes
    -----
    Source: `decode_steps`.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> found = decode_sweep(
    ...     config.load("llama-3.1-8b"), "H100_SXM", "fp8", batch=[1, 8], context=1000, gpus=(1, 2)
    ... )
    >>> found["seconds"].shape
    (4, 2)
    """
    kinds = members("kinds", kinds, KINDS)
    pairs = [
        pair
        for n in vector("gpus", gpus)
        for pair in layouts(model, n)
        if attention_kind(pair[0]) in kinds
    ]
    batch, context = dims(batch=batch, context=context)
    points = same_shape(batch=batch, context=context)[0].size
    if len(pairs) * points > MOST_STEPS:
        raise ValueError(
            f"gpus, batch and context must make at most {MOST_STEPS} steps, got {len(pairs)} "
            f"layouts of {points} points"
        )
    load = {"batch": batch, "context": context}
    steps = decode_steps(model, device, recipe, pairs, **load, wide=wide, engine=engine)
    found = {"kinds": [attention_kind(a) for a, _ in pairs], "gpus": [a.gpus for a, _ in pairs]}
    found |= {"seconds": [s.seconds for s in steps], "feasible": [s.feasible for s in steps]}
    return {"layouts": pairs, "steps": steps} | {
        name: np.array(values) for name, values in found.items()
    }


def best_steps(sweep, allowed):
    """Fastest feasible layout at each batch and context among those allowed.

    Parameters
    ----------
    sweep : dict
        From `decode_sweep`, l layouts.
    allowed : array_like of bool, shape (l,)
        Layouts to look at.

    Returns
    -------
    tuple of ndarray
        Index of the layout, -1 where none fits, and time of its step, NaN there [s].

    Raises
    ------
    ValueError
        If `sweep` is no sweep, or `allowed` has not one truth value for each layout.

    Examples
    --------
    >>> found = {"seconds": np.array([[2.0], [1.0]]), "feasible": np.array([[True], [False]])}
    >>> [x.tolist() for x in best_steps(found, [True, True])]
    [[0], [2.0]]
    """
    instance("sweep", sweep, Mapping, "what decode_sweep returns")
    if not {"seconds", "feasible"} <= set(sweep):
        raise ValueError(f"sweep must be what decode_sweep returns, got {shown(sweep)}")
    rows, allowed = len(sweep["seconds"]), _truths("allowed", allowed)
    if allowed.shape != (rows,):
        raise ValueError(
            f"allowed must have one truth value for each of {rows} layouts, got shape "
            f"{allowed.shape}"
        )
    inside = allowed.reshape(-1, *[1] * (sweep["seconds"].ndim - 1)) & sweep["feasible"]
    seconds = np.where(inside, sweep["seconds"], np.inf)
    chosen, least = seconds.argmin(axis=0), seconds.min(axis=0)
    return np.where(np.isinf(least), -1, chosen), np.where(np.isinf(least), np.nan, least)


def _truths(name, values):
    try:
        array = np.asarray(values)
    except ValueError:  # a ragged list
        array = np.asarray(None)
    if array.dtype.kind != "b":
        raise ValueError(f"{name} must be a list of truth values, got {shown(values)}")
    return array
