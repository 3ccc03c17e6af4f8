"""All ways to lay the two parts of a model over some GPUs, their decode steps at many batches, and
the best of them.
"""

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hwdesign._check import count, dims, instance, members, same_shape, shown, vector
from hwdesign.models.model import need_model
from hwdesign.models.steps import Plan, attention_part, feed_forward_part
from hwdesign.timing.estimate import decode_steps

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
    ways = [n for n in range(1, gpus + 1) if gpus % n == 0]
    attention = [
        Plan(tp=t, dp=d, kvp=gpus // (t * d))
        for t, d in itertools.product(ways, ways)
        if gpus % (t * d) == 0
    ]
    ffn = [
        Plan(tp=gpus // e, ep=e)
        for e in (ways if any(hasattr(b.ffn, "num_experts") for b in model.blocks) else (1,))
    ]
    attention = [a for a in attention if _accepted(attention_part, model, a, batch=1, context=1)]
    inner = {
        groups: [
            f
            for f in ffn
            if _accepted(feed_forward_part, model, f, groups, batch=groups, context=1)
        ]
        for groups in {a.dp for a in attention}
    }
    gathered = {g: [replace(f, gather=True) for f in inner[g] if min(f.ep, g) > 1] for g in inner}
    return [(a, f) for a in attention for f in (*inner[a.dp], *gathered[a.dp])]


def _accepted(part, *arguments, **load):
    try:
        part(*arguments, **load)
    except ValueError:
        return False
    return True


def decode_sweep(model, device, recipe, *, batch, context, gpus, kinds=KINDS, wide=()):
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
    steps = decode_steps(model, device, recipe, pairs, batch=batch, context=context, wide=wide)
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
