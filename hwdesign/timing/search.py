"""Search over everything a deployment can choose: formats, GPUs, plans of both parts and how many
sequences are in flight.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hwdesign._check import count, every, flag, instance, shown, vector, whole
from hwdesign.catalogue.engine import engine as as_engine
from hwdesign.catalogue.precision import named_recipe
from hwdesign.formulas.pipeline import schedule, stage_layers
from hwdesign.models.model import need_model
from hwdesign.timing.clock import Clock
from hwdesign.timing.estimate import ENGINE, prefill_step, prefill_steps
from hwdesign.timing.layouts import KINDS, decode_sweep, layouts
from hwdesign.timing.pipeline import block_times, stage_times

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
    engine=ENGINE,
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
        Whether the same GPUs prefill, too, in steps of their own: each step then carries its share
        of the other sequences' prompts. By default other GPUs do. `time_per_output_token` adds
        what servers were seen to take, and to save by mixing the two.
    engine : str or Engine
        Whose kernels are taken, and whose share of the memory is kept back, as for `decode_step`.

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
    batch, together = vector("batch", batch), flag("together", together)
    recipes = every("recipes", recipes, named_recipe)
    if not recipes:
        raise ValueError("recipes must be a recipe or a list of recipes, got none")
    context = int(np.ceil(input_tokens + output_tokens / 2))
    search = {"batch": batch, "context": context, "gpus": gpus, "kinds": kinds, "wide": wide}
    tables = []
    for recipe in recipes:
        found = decode_sweep(model, device, recipe, **search, engine=engine)
        if together:
            plans = found["layouts"]
            prompts = prefill_steps(
                model, device, recipe, plans, context=input_tokens, engine=engine
            )
            found = _with_prefill(found, prompts, batch, output_tokens)
        tables.append(_candidates(found, recipe, batch))
    table = {name: np.concatenate([each[name] for each in tables]) for name in tables[0]}
    table["context"] = np.full(len(table["batch"]), context)
    table["user_rate"] = 1 / table["seconds"]
    table["gpu_rate"] = table["batch"] / table["seconds"] / table["gpus"]
    return table


def _with_prefill(found, prompts, batch, output_tokens):
    """A sweep whose GPUs prefill, too: each step carries its share of the other sequences' prompts,
    and a prompt's activations lie beside the cache of all sequences.
    """
    shape, shares, steps = (len(found["layouts"]), len(batch)), [], []
    for (attention, _), step, prompt in zip(found["layouts"], found["steps"], prompts, strict=True):
        shares.append(prompt.seconds / attention.dp)
        live = np.maximum(step.activations, prompt.activations)
        steps.append(replace(step, activations=live))
    more = (batch - 1) / output_tokens * np.array(shares)[:, None]
    return {**found, "seconds": found["seconds"].reshape(shape) + more, "steps": steps}


def _candidates(found, recipe, batch):
    """A sweep as columns, one row a layout and batch."""
    pairs, steps, times = found["layouts"], found["steps"], len(batch)
    memory = np.array([step.memory + step.activations for step in steps])
    fits = np.array([step.feasible for step in steps], dtype=bool)
    return {
        "recipe": _objects([recipe] * (len(pairs) * times)),
        "attention": np.repeat(_objects([attention for attention, _ in pairs]), times),
        "ffn": np.repeat(_objects([ffn for _, ffn in pairs]), times),
        "gpus": np.repeat(found["gpus"], times),
        "batch": np.tile(batch, len(pairs)),
        "seconds": found["seconds"].ravel(),
        "memory": memory.ravel(),
        "fits": fits.ravel(),
    }


def _objects(values):
    """A list as an array of objects, which NumPy does not look into."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


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
        needed = ", ".join(sorted(columns))
        raise ValueError(f"candidates must have {needed}, got {shown(candidates)}")
    rows = len(candidates["gpus"])
    i = count("i", i, rows - 1, least=-rows)
    attention, ffn = candidates["attention"][i], candidates["ffn"][i]
    recipe, gpus = candidates["recipe"][i], int(candidates["gpus"][i])
    name, several = getattr(recipe, "name", recipe), "s" if gpus > 1 else ""
    head = f"{name}, {gpus} GPU{several}, batch {candidates['batch'][i]:.0f}"
    gather = " gather" if ffn.gather else ""
    return f"{head}: attention {_ways(attention)}, ffn {_ways(ffn)}{gather}"


def _ways(plan):
    """Ways of a plan in words, but for those of 1 and for stages."""
    named = [way for way in ("tp", "dp", "kvp", "ep") if getattr(plan, way) > 1]
    return " ".join(f"{way} {getattr(plan, way)}" for way in named) or "tp 1"


def prefill_workers(model, device, recipe, *, tokens, gpus, stages=(1,), chunk=8192, engine=ENGINE):
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
    engine : str or Engine
        Whose kernels are taken, and whose share of the memory is kept back, as for `decode_step`.

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
    >>> found = prefill_workers(m, "H100_SXM", "fp8", tokens=65536, gpus=(1, 2), stages=(1, 4))
    >>> found["gpus"].tolist(), bool(found["first_token"][1] < found["first_token"][0] / 2)
    ([1, 4, 2, 8, 2, 8], True)
    """
    tokens, chunk = whole(tokens=tokens, chunk=chunk)
    if tokens > MOST_CHUNKS * chunk:
        raise ValueError(
            f"tokens must be at most {MOST_CHUNKS} chunks of chunk = {chunk}, got {tokens}"
        )
    layers = len(need_model(model).blocks)
    gpus, stages = vector("gpus", gpus), every("stages", vector("stages", stages), count)
    if max(stages) > layers:
        raise ValueError(f"stages must be <= the {layers} layers of the model, got {max(stages)}")
    sizes = np.diff([*range(0, tokens, chunk), tokens])
    clock, found = Clock(device, recipe, engine=as_engine(engine)), []
    for ranks in gpus:
        for attention, ffn in filter(_pure, layouts(model, ranks)):
            plans = {"attention": attention, "ffn": ffn, "batch": attention.dp, "clock": clock}
            found += _staged(model, device, recipe, sizes, stages, engine, plans)
    kinds = {"attention": object, "ffn": object, "stages": int, "gpus": int}
    kinds |= {"first_token": float, "gpu_seconds": float, "fits": bool}
    return {
        name: np.array([worker[name] for worker in found], dtype=kind)
        for name, kind in kinds.items()
    }


def _staged(model, device, recipe, sizes, stages, engine, plans):
    """One worker for each number of stages, with these plans inside a stage, as a list of dicts."""
    attention, ends = plans["attention"], np.cumsum(sizes)
    layers, sent = _layer_times(model, device, recipe, sizes, stages, plans)
    load = {"context": ends, "cached": ends - sizes, "engine": engine}
    chunks = prefill_step(model, device, recipe, **load, **plans)
    most = {name: np.max(getattr(chunks, name)) for name in ("memory", "cache", "activations")}
    workers = []
    for pp in stages:
        cuts = np.cumsum(stage_layers(len(model.blocks), pp))[:-1]
        parts = [part.sum(axis=1) for part in np.split(layers, cuts, axis=1)]
        times = np.stack(parts, axis=1)
        done = schedule(times, send=sent if pp > 1 else 0.0)[1][-1, -1]
        gpus = attention.gpus * pp
        worker = {"attention": attention, "ffn": plans["ffn"], "stages": pp, "gpus": gpus}
        held = most | {"memory": most["memory"] / pp, "cache": most["cache"] / pp}
        worker |= {"first_token": done, "fits": replace(chunks, **held).feasible}
        worker["gpu_seconds"] = times.sum(axis=0).max() * gpus / attention.dp
        workers.append(worker)
    return workers


def _layer_times(model, device, recipe, sizes, stages, plans):
    """Times of the chunks in each layer, and to hand them over; without stages nothing is sent, so
    no link is needed.
    """
    if max(stages) > 1:
        split = (1,) * len(model.blocks)
        return stage_times(model, device, recipe, sizes=sizes, split=split, **plans)
    ends = np.cumsum(sizes)
    blocks, rest = block_times(model, device, recipe, context=ends, cached=ends - sizes, **plans)
    blocks[-1] += rest
    return blocks.T, 0.0


def _pure(pair):
    """Whether each part is spread in one way, and nothing is cut or gathered."""
    attention, ffn = pair
    one_way = min(attention.tp, attention.dp) == 1 and min(ffn.tp, ffn.ep) == 1
    return one_way and attention.kvp == 1 and not ffn.gather
