"""Search over everything a deployment can choose: formats, GPUs, plans of both parts and how many
sequences are in flight.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hwdesign._check import count, every, flag, instance, share, shown, vector, whole
from hwdesign.catalogue.precision import named_recipe
from hwdesign.formulas.pipeline import schedule, stage_layers
from hwdesign.models.model import need_model
from hwdesign.timing.clock import Clock
from hwdesign.timing.estimate import prefill_step, prefill_steps
from hwdesign.timing.layouts import KINDS, decode_sweep, layouts
from hwdesign.timing.pipeline import block_times, stage_times

# share of the memory that engines leave free by default: vLLM 0.11, gpu_memory_utilization = 0.9
RESERVE = 0.1
MOST_CHUNKS = 10_000  # of a prompt


def decode_candidates(
    model,
    device,
    recipes,
    *,
    gpus,
    batch,
    input_tokens,
    output_tokens,
    kinds=KINDS,
    wide=(),
    together=False,
    reserve=RESERVE,
):
    """Every way to decode: all layouts over these numbers of GPUs, in all formats, at all batches.

    Parameters
    ----------
    model : Model
        What runs.
    device : str or Device
        Accelerator.
    recipes : str, Recipe or sequence of them
        Formats to try.
    gpus : sequence of int
        Numbers of GPUs of one worker, each at most 100,000.
    batch : sequence of int
        Sequences in flight over the GPUs of a worker.
    input_tokens, output_tokens : int
        Length of a prompt and of an answer [token]; a step sees the prompt and half the answer.
    kinds : sequence of str
        Kinds of attention plans, see `attention_kind`.
    wide : sequence of str
        Parts of the model whose matrices stay in BF16 besides, as for `decode_step`; in decode
        alone.
    together : bool
        Whether the same GPUs prefill, too: each step then carries its share of the other sequences'
        prompts, as in `time_per_output_token`. By default other GPUs do.
    reserve : float
        Share of the memory that stays free.

    Returns
    -------
    dict of str to ndarray, each of shape (candidates,)
        recipe, attention and ffn (objects), gpus, batch, context [token]; seconds between two
        tokens of a sequence [s]; user_rate, its inverse [token/s]; gpu_rate, tokens per second and
        GPU [token/s]; memory with activations [byte]; fits.

    Raises
    ------
    ValueError
        If a number is out of range, a name is unknown, or there are more than ten million
        candidates of one recipe.

    Notes
    -----
    Source: `decode_sweep`.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> load = {"gpus": (1, 2), "batch": [1, 8], "input_tokens": 1000, "output_tokens": 100}
    >>> found = decode_candidates(config.load("llama-3.1-8b"), "H100_SXM", ["bf16", "fp8"], **load)
    >>> found["fits"].shape, candidate_text(found, 0)
    ((16,), 'bf16, 1 GPU, batch 1: attention tp 1, ffn tp 1')
    """
    input_tokens, output_tokens = whole(input_tokens=input_tokens, output_tokens=output_tokens)
    batch, reserve = vector("batch", batch), share("reserve", reserve)
    forms, together = every("recipes", recipes, named_recipe), flag("together", together)
    if not forms:
        raise ValueError("recipes must be a recipe or a list of recipes, got none")
    context, parts = int(np.ceil(input_tokens + output_tokens / 2)), []
    for form in forms:
        found = decode_sweep(
            model, device, form, batch=batch, context=context, gpus=gpus, kinds=kinds, wide=wide
        )
        seconds, pairs, steps = found["seconds"], found["layouts"], found["steps"]
        shape = len(pairs), len(batch)
        if together:  # a prompt's activations beside the cache of all sequences
            first = prefill_steps(model, device, form, pairs, context=input_tokens)
            each = np.array([s.seconds / a.dp for s, (a, _) in zip(first, pairs, strict=True)])
            seconds = seconds.reshape(shape) + (batch - 1) / output_tokens * each[:, None]
            wider = (
                np.maximum(s.activations, f.activations) for s, f in zip(steps, first, strict=True)
            )
            steps = [replace(s, activations=most) for s, most in zip(steps, wider, strict=True)]
        memory = np.array([s.memory + s.activations for s in steps]).reshape(shape)
        fits = np.array([s.fits(reserve) for s in steps], dtype=bool).reshape(shape)
        objects = np.empty((3, len(pairs)), dtype=object)
        objects[0], objects[1:] = form, np.array([*pairs, (None, None)], dtype=object)[:-1].T
        repeated = [np.repeat(x, len(batch)) for x in (*objects, found["gpus"])]
        parts.append(
            [*repeated, np.tile(batch, len(pairs)), seconds.ravel(), memory.ravel(), fits.ravel()]
        )
    names = ("recipe", "attention", "ffn", "gpus", "batch", "seconds", "memory", "fits")
    table = dict(zip(names, map(np.concatenate, zip(*parts, strict=True)), strict=True))
    table["context"] = np.full(len(table["batch"]), context)
    return table | {
        "user_rate": 1 / table["seconds"],
        "gpu_rate": table["batch"] / table["seconds"] / table["gpus"],
    }


def candidate_text(candidates, i):
    """What it takes to run a candidate again, in words.

    Parameters
    ----------
    candidates : dict
        From `decode_candidates`.
    i : int
        Which of them; -1 is the last one.

    Returns
    -------
    str
        Formats, GPUs, batch and the two plans; ways of 1 are left out.

    Raises
    ------
    ValueError
        If `candidates` are none, or `i` is not the number of one.

    Examples
    --------
    >>> from hwdesign.models.steps import Plan
    >>> one = {
    ...     "recipe": ["fp8"],
    ...     "gpus": [8],
    ...     "batch": [64],
    ...     "attention": [Plan(dp=8)],
    ...     "ffn": [Plan(ep=8, gather=True)],
    ... }
    >>> candidate_text(one, 0)
    'fp8, 8 GPUs, batch 64: attention dp 8, ffn ep 8 gather'
    """
    columns = {"recipe", "gpus", "batch", "attention", "ffn"}
    instance("candidates", candidates, Mapping, "what decode_candidates returns")
    if not columns <= set(candidates):
        raise ValueError(
            f"candidates must have {', '.join(sorted(columns))}, got {shown(candidates)}"
        )
    rows = len(candidates["gpus"])
    i = count("i", i, rows - 1, least=-rows)
    gpus, (a, f) = (
        int(candidates["gpus"][i]),
        (candidates[part][i] for part in ("attention", "ffn")),
    )
    ways = [
        " ".join(
            [f"{n} {getattr(p, n)}" for n in ("tp", "dp", "kvp", "ep") if getattr(p, n) > 1]
            or ["tp 1"]
        )
        for p in (a, f)
    ]
    name = getattr(candidates["recipe"][i], "name", candidates["recipe"][i])
    head = f"{name}, {gpus} GPU{'s' if gpus > 1 else ''}, batch {candidates['batch'][i]:.0f}"
    return f"{head}: attention {ways[0]}, ffn {ways[1]}{' gather' if f.gather else ''}"


def prefill_workers(
    model, device, recipe, *, tokens, gpus, stages=(1,), chunk=8192, reserve=RESERVE
):
    """Ways to prefill: groups of GPUs, each prompt on one data-parallel group of them, in chunks
    through pipeline stages.

    Parameters
    ----------
    model : Model
        What runs.
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats.
    tokens : int
        Length of a prompt [token].
    gpus : sequence of int
        Numbers of GPUs of one stage.
    stages : sequence of int
        Numbers of stages.
    chunk : int
        Largest chunk [token]; the prompt is cut into at most 10,000 chunks of this size and a
        rest.
    reserve : float
        Share of the memory that stays free.

    Returns
    -------
    dict of str to ndarray, each of shape (workers,)
        attention and ffn (objects), of one stage; stages; gpus of the worker; first_token, from the
        first chunk to the first token [s]; gpu_seconds of a prompt when prompts follow each other
        without a gap [s]; fits.

    Raises
    ------
    ValueError
        If a number is out of range, a name is unknown, or there are more stages than layers.

    Notes
    -----
    Attention is tensor or data parallel, the rest tensor or expert parallel: mixed plans are left
    out. Stages hold equally many layers. Source: `stage_times`, `schedule`.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> m = config.load("llama-3.1-8b")
    >>> found = prefill_workers(m, "H100_SXM", "fp8", tokens=32768, gpus=(1, 2), stages=(1, 4))
    >>> found["gpus"].tolist(), bool(found["first_token"][1] < found["first_token"][0] / 2)
    ([1, 4, 2, 8, 2, 8], True)
    """
    tokens, chunk = whole(tokens=tokens, chunk=chunk)
    if tokens > MOST_CHUNKS * chunk:
        raise ValueError(
            f"tokens must be at most {MOST_CHUNKS} chunks of chunk = {chunk}, got {tokens}"
        )
    reserve, layers = share("reserve", reserve), len(need_model(model).blocks)
    gpus, stages = vector("gpus", gpus), every("stages", vector("stages", stages), count)
    if max(stages) > layers:
        raise ValueError(f"stages must be <= the {layers} layers of the model, got {max(stages)}")
    sizes = np.diff([*range(0, tokens, chunk), tokens])
    clock, rows = Clock(device, recipe), []
    for attention, ffn in [pair for n in gpus for pair in layouts(model, n) if _pure(*pair)]:
        plans = {"attention": attention, "ffn": ffn, "batch": attention.dp, "clock": clock}
        layers, sent = _layer_times(model, device, recipe, sizes, stages, plans)
        ends = np.cumsum(sizes)
        chunks = prefill_step(model, device, recipe, context=ends, cached=ends - sizes, **plans)
        for p in stages:
            cuts = np.cumsum(stage_layers(len(model.blocks), p))[:-1]
            times = np.stack([part.sum(axis=1) for part in np.split(layers, cuts, axis=1)], axis=1)
            done = schedule(times, send=sent if p > 1 else 0.0)[1][-1, -1]
            cost = times.sum(axis=0).max() * attention.gpus * p / attention.dp
            room = (
                np.max(chunks.memory) / p + np.max(chunks.activations)
                <= (1 - reserve) * chunks.capacity
            )
            rows.append((attention, ffn, p, attention.gpus * p, done, cost, room))
    names = ("attention", "ffn", "stages", "gpus", "first_token", "gpu_seconds", "fits")
    kinds = (object, object, int, int, float, float, bool)
    return {
        n: np.array(x, dtype=kind)
        for n, x, kind in zip(names, zip(*rows, strict=True), kinds, strict=True)
    }


def _layer_times(model, device, recipe, sizes, stages, plans):
    """Times of the chunks in each layer, and to hand them over; without stages nothing is sent, so
    no link is needed.
    """
    if np.max(stages) > 1:
        return stage_times(
            model, device, recipe, sizes=sizes, split=(1,) * len(model.blocks), **plans
        )
    ends = np.cumsum(sizes)
    blocks, rest = block_times(model, device, recipe, context=ends, cached=ends - sizes, **plans)
    blocks[-1] += rest
    return blocks.T, 0.0


def _pure(attention, ffn):
    """Whether each part is spread in one way, and nothing is cut or gathered."""
    return (
        attention.kvp == 1
        and min(attention.tp, attention.dp) == 1
        and min(ffn.tp, ffn.ep) == 1
        and not ffn.gather
    )
