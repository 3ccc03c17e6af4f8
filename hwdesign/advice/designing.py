"""Designs models for a budget on a device: every shape of some families, with every plan and format
that an engine runs, and of these the front of two rates.
"""

import os
import time

import numpy as np

from hwdesign._check import count, every, listed, members, shown, single, vector
from hwdesign.advice.bands import RATIOS
from hwdesign.advice.case import as_model
from hwdesign.advice.design_families import FAMILIES
from hwdesign.advice.design_front import DesignFront, Designs, Point, plain
from hwdesign.advice.design_search import NO_LIMIT, Loader, Search, Setting, plan_pairs
from hwdesign.advice.design_space import ROUND_POSITIONS, TOLERANCE, VOCABULARY, Bounds, Space
from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.engine import engine as as_engine
from hwdesign.models.engine_plans import engine_plan_refusal
from hwdesign.models.model import Model
from hwdesign.models.steps import plan_refusal
from hwdesign.timing.estimate import ENGINE
from hwdesign.timing.part_times import PartTimes

ANSWER = 1024  # of a load that a context alone gives [token]
BATCHES, MOST_BATCH = 40, 512  # numbers of sequences, and the largest for a GPU
MOST_GPUS = 1024
MOST_PARAMETERS = 1e14
MOST_TOKENS = 10**9
MOST_SEQUENCES = 10**9
LEAST_BAD = 3  # shapes that are told where there are several settings


def design(
    *,
    parameters,
    active=None,
    device,
    gpus=8,
    context=None,
    load=(),
    tpot,
    ttft=None,
    family=(),
    engine=ENGINE,
    leave=(),
    vocabulary=VOCABULARY,
    compare=(),
    batches=None,
    progress=None,
):
    """Designs of a budget that serve best: the front of tokens per second of a GPU against those of
    a user.

    Shapes times plans times formats, each at every batch whose time per output token is within
    `tpot`. The proportions of a shape stay inside the bands of trained models, the plans are those
    that the engine runs, the formats those that the device multiplies. Nothing here knows how well
    a model answers.

    Parameters
    ----------
    parameters, active : float
        Total parameters, and those that a token uses, the input embedding included; both are met
        within 3 % [element]. Without `active`, or with as many, models are dense.
    device : str, Device or sequence of them
        Accelerators.
    gpus : int
        GPUs over all copies of a model, at most 1024.
    context : int, optional
        Tokens that a new token sees [token]: a prompt of all but 512 and an answer of 1024.
    load : (int, int) or sequence of them
        Lengths of prompt and answer [token], instead of `context`.
    tpot : float
        Longest time per output token, as `time_per_output_token` gives it [s].
    ttft : float, optional
        Longest time of a prompt that comes alone [s].
    family : str or sequence of str
        "llama" (dense), "qwen3_moe" (experts), "deepseek_v3" (experts and latent attention),
        "qwen3_next" (experts and a linear mixer); by default all that the budget allows.
    engine : str or Engine
        Which plans and shapes it runs, whose kernels are taken.
    leave : str or sequence of str
        Ratios that may lie outside the bands, by their names in `hwdesign.advice.bands.RATIOS`,
        as "aspect" or "granularity".
    vocabulary : int
        Rows of the embedding [element].
    compare : Model, str or sequence of them
        Models to compare with: each is served as the designs are.
    batches : sequence of int, optional
        Sequences in flight over all GPUs; by default 40 from 1 to 512 a GPU.
    progress : callable, optional
        Called with the share that is done [dimensionless]; an interrupt from it, as from the
        keyboard, ends the search, and what was found is returned.

    Returns
    -------
    Designs
        A front for each device and load; with several of them also the shapes that are least bad
        in all.

    Raises
    ------
    ValueError
        If a number is out of range, a name is unknown, or no shape has the budget.

    Notes
    -----
    Source: `hwdesign.timing.part_times`, whose sums are those of `time_per_output_token`; bands by
    `hwdesign.advice.bands`; refusals by `hwdesign.advice.breaks`. Plans without stages.

    Examples
    --------
    >>> found = design(
    ...     parameters=1.5e9, device="H200", gpus=1, load=(1000, 100), tpot=0.005, batches=[1, 8]
    ... )
    >>> all(point.token_seconds <= 0.005 for point in found.points)
    True
    """
    parameters, active = _budget(parameters, active)
    families = _families(family, active < parameters)
    settings = _settings(device, gpus, _loads(context, load), tpot, ttft, engine)
    longest = max(where.prompt + where.answer for where in settings)
    models = _models(compare)
    if progress is not None and not callable(progress):
        raise ValueError(f"progress must be a function of a share, or None, got {shown(progress)}")
    batches = _batches(batches, settings[0].gpus)
    bounds = Bounds(
        parameters=parameters,
        active=active,
        leave=members("leave", leave, tuple(RATIOS)),
        vocabulary=count("vocabulary", vocabulary, 10_000_000),
        positions=-(-longest // ROUND_POSITIONS) * ROUND_POSITIONS,
    )
    space = Space(families, bounds)
    if not len(space):
        raise ValueError(
            f"parameters and active must be those of some shape of {', '.join(families)} within "
            f"{TOLERANCE:.0%} and inside the bands of trained models, got {parameters:g} and "
            f"{active:g}; leave names a band that may be left"
        )
    return _searched(space, settings, batches, models, progress)


def _budget(parameters, active):
    """Both numbers of parameters, checked."""
    active = parameters if active is None else active
    for name, value in (("parameters", parameters), ("active", active)):
        if not 1 <= single(name, value) <= MOST_PARAMETERS:
            raise ValueError(f"{name} must be from 1 to {MOST_PARAMETERS:g}, got {shown(value)}")
    if active > parameters:
        raise ValueError(f"active must be at most parameters = {parameters:g}, got {active:g}")
    return float(parameters), float(active)


def _families(family, sparse):
    """Families as asked, by default those that the budget allows."""
    asked = members("family", family, tuple(FAMILIES))
    allowed = [name for name, kind in FAMILIES.items() if kind.experts == sparse]
    for name in asked:
        if name not in allowed:
            told = "active below parameters" if not sparse else "active equal to parameters"
            raise ValueError(
                f"family must be one of {', '.join(allowed)} with this budget, got {name!r}, "
                f"which needs {told}"
            )
    return tuple(dict.fromkeys(asked)) or tuple(allowed)


def _loads(context, load):
    """(prompt, answer) of each load."""
    like = "(prompt, answer), as in (32000, 1000), or a list of them"
    pair = isinstance(load, tuple | list) and any(isinstance(each, int) for each in load)
    found = listed("load", [load] if pair else load, tuple | list, like)
    if found and context is not None:
        raise ValueError(f"load must be empty where context is given, got {shown(load)}")
    if not found:
        if context is None:
            raise ValueError(f"context must be given, or load must be {like}, got neither")
        tokens = count("context", context, MOST_TOKENS, least=ANSWER // 2 + 1)
        return [(tokens - ANSWER // 2, ANSWER)]
    for each in found:
        if len(each) != 2:
            raise ValueError(f"load must be {like}, got {shown(load)}")
    loads = []
    for prompt, answer in found:
        prompt = count("load", prompt, MOST_TOKENS, least=2)
        loads.append((prompt, count("load", answer, MOST_TOKENS)))
    return list(dict.fromkeys(loads))


def _settings(device, gpus, loads, tpot, ttft, engine):
    """A `Setting` for each device and load."""
    ttft = NO_LIMIT if ttft is None else ttft
    for name, value in (("tpot", tpot), ("ttft", ttft)):
        if not 0 < single(name, value) <= NO_LIMIT:
            raise ValueError(f"{name} must be above 0 and up to {NO_LIMIT:g} s, got {shown(value)}")
    gpus, engine = count("gpus", gpus, MOST_GPUS), as_engine(engine)
    devices = every("device", device, lambda name, one: as_device(one))
    if not devices:
        raise ValueError("device must be a device or a list of them, got none")
    for one in devices:
        if "bf16" not in one.dense_peak:
            raise ValueError(f"device must multiply BF16, got {one.name}")
        if gpus > 1 and not one.link_bandwidth:
            raise ValueError(
                f"device must have a link to share a model over {gpus} GPUs, got {one.name} "
                "without one"
            )
    targets = {"engine": engine, "gpus": gpus, "tpot": float(tpot), "ttft": float(ttft)}
    return [
        Setting(device=one, prompt=prompt, answer=answer, **targets)
        for one in dict.fromkeys(devices)
        for prompt, answer in loads
    ]


def _batches(batches, gpus):
    """Batches as asked, ascending, by default `BATCHES` of them."""
    if batches is None:
        found = np.geomspace(1, MOST_BATCH * gpus, BATCHES)
        return np.unique(np.round(found)).astype(int)
    found = [count("batches", number, MOST_SEQUENCES) for number in vector("batches", batches)]
    return np.unique(np.array(found, int))


def _models(compare):
    """Models to compare with, without the formats of their checkpoints."""
    found = [compare] if isinstance(compare, str | os.PathLike | dict | Model) else compare
    try:
        return [plain(as_model(model)) for model in found]
    except (TypeError, ValueError, OSError) as error:
        raise ValueError(f"compare must name models: {error}") from None


def _searched(space, settings, batches, models, progress):
    """`Designs` of all settings; an interrupt ends the search and keeps what was found."""
    fronts, searches = [], []
    for place, where in enumerate(settings):
        start, share, compared = time.perf_counter(), 0.0, ()
        search = Search(space, where, batches)
        try:
            for share in search.run():
                if progress:
                    progress((place + share) / len(settings))
            compared = [_compared(model, where, batches) for model in models]
        except KeyboardInterrupt:
            pass
        searches.append(search)
        fronts.append(
            DesignFront(
                setting=where,
                points=tuple(_points(space, search, batches)),
                compared=tuple(point for point in compared if point),
                shapes=len(space),
                triples=search.triples,
                share=share,
                seconds=time.perf_counter() - start,
                fastest=search.fastest,
            )
        )
        if share < 1:
            break
    several = len(searches) == len(settings) > 1
    least = _least_bad(space, searches, batches) if several and share == 1 else ()
    return Designs(fronts=tuple(fronts), least_bad=least)


def _points(space, search, batches):
    """The points of a front, the fastest for a user first."""
    for place, pair, recipe, column in () if search.front.keys is None else search.front.keys:
        yield _point(space, search, place, pair, recipe, batches[column])


def _point(space, search, place, pair, recipe, batch):
    attention, ffn = search.pairs[pair][1]
    return Point(
        setting=search.setting,
        attention=attention,
        ffn=ffn,
        recipe=search.setting.recipes[recipe],
        batch=int(batch),
        shape=space.shape(place),
    )


def _compared(model, where, batches):
    """The point at which a GPU makes most tokens of a model within the targets; None without one.
    Plans are those of whole models that the engine loads.
    """
    load = {"prompt": where.prompt, "answer": where.answer, "batches": batches}
    times = PartTimes(where.device, **load, engine=where.engine)
    loader, best, found = Loader(where.engine, where.device), 0.0, None
    routed = any(block.routed for block in model.block_counts)
    for attention, ffn in plan_pairs(where.gpus, routed):
        plans = model, attention, ffn
        if plan_refusal(*plans) or engine_plan_refusal(where.engine, *plans):
            continue
        for recipe in where.recipes:
            if not loader.model(*plans, recipe):
                continue
            served = times.model(*plans, recipe)
            good = where.meets(served)[0]
            rates = np.where(good, batches / served.token[0] / where.gpus, 0.0)
            if rates.max() > best:
                best, batch = rates.max(), int(batches[rates.argmax()])
                found = Point(
                    setting=where,
                    attention=attention,
                    ffn=ffn,
                    recipe=recipe,
                    batch=batch,
                    known=model,
                )
    return found


def _least_bad(space, searches, batches):
    """(points, losses) of the shapes whose largest loss over the settings is least, one point and
    one loss for each setting.
    """
    best = np.array([search.best for search in searches])
    if not best.max(axis=1).all():
        return ()
    losses = 1 - best / best.max(axis=1, keepdims=True)
    order = np.argsort(losses.max(axis=0), kind="stable")[:LEAST_BAD]
    found = []
    for place in order:
        if not best[:, place].all():
            continue
        points = []
        for search in searches:
            pair, recipe, column = search.best_keys[place]
            points.append(_point(space, search, place, pair, recipe, batches[column]))
        found.append((tuple(points), tuple(losses[:, place].tolist())))
    return tuple(found)
