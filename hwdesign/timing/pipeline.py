"""Times of single blocks of a model, and of the stages of a pipeline into which they are split."""

from dataclasses import replace

import numpy as np

from hwdesign._check import dims, scalar_or_array, whole
from hwdesign.catalogue.engine import engine as as_engine
from hwdesign.models.steps import Exchange, Plan
from hwdesign.timing.clock import Clock
from hwdesign.timing.estimate import ENGINE, exchange_time, prefill_step


def block_times(model, device, recipe, *, context, cached=0, batch=1, **options):
    """Time of each block of a model, alone.

    Parameters
    ----------
    model : Model
        What runs.
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats.
    context : array_like of int
        Tokens that are there at the end of the step, the new ones included [token].
    cached : array_like of int, broadcastable
        Tokens of it that are in the cache already [token]; all but one of them for a decode step.
    batch : array_like of int, broadcastable
        Sequences over all GPUs of a stage.
    **options
        Of `prefill_step`: plans of the GPUs of one stage (``pp = 1``), ``ideal`` and so on.

    Returns
    -------
    tuple of ndarray of float
        Times of the blocks [s], shape (layers, ...), and of what lies outside of them (embedding,
        head, sampling), shape (...).

    Raises
    ------
    ValueError
        As for `prefill_step`.

    Notes
    -----
    Source: a step's time is a sum over blocks and what lies outside of them, and a model that holds
    a block twice differs from one that holds it once by the block alone.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> blocks, rest = block_times(
    ...     config.load("llama-3.1-8b"), "H100_SXM", "fp8", context=8192, ideal=True
    ... )
    >>> round(float(blocks.sum() + rest) * 1e3)  # as `prefill_step` says
    67
    """

    if options.get("clock") is None:  # what one block has timed the next ones share
        options["clock"] = Clock(
            device,
            recipe,
            options.pop("ideal", False),
            options.pop("framework", None),
            as_engine(options.get("engine", ENGINE)),
        )

    def step(*blocks):
        return prefill_step(
            replace(model, blocks=blocks),
            device,
            recipe,
            batch=batch,
            context=context,
            cached=cached,
            **options,
        ).seconds

    first, once = model.blocks[0], {block: step(block) for block in dict.fromkeys(model.blocks)}
    rest = 2 * once[first] - step(first, first)
    blocks = np.array([once[block] - rest for block in model.blocks])
    return blocks, scalar_or_array(rest)


def stage_times(
    model, device, recipe, *, sizes, split, batch=1, attention=None, ffn=None, **options
):
    """Time of each chunk of a prompt in each stage of a pipeline, and the time to hand it over.

    Parameters
    ----------
    model : Model
        What runs.
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats.
    sizes : sequence of int, shape (C,)
        Tokens of each chunk [token], in order.
    split : sequence of int, shape (P,)
        Layers of each stage [layer], in order; they sum to the model's.
    batch : int
        Sequences that take the same way at the same time, over all GPUs of a stage.
    attention, ffn : Plan, optional
        Plans of the GPUs of one stage (``pp = 1``); by default one GPU.
    **options
        Of `prefill_step`.

    Returns
    -------
    tuple of ndarray of float
        Times [s], shape (C, P), and the times to hand a chunk over [s], shape (C,): both for
        `schedule`.

    Raises
    ------
    ValueError
        If the split does not hold every layer once, a plan has stages of its own, or as for
        `prefill_step`.

    Notes
    -----
    What lies outside of the blocks counts with the last stage: in prefill the head sees one token
    of each sequence. Source: `block_times`.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> m = config.load("llama-3.1-8b")
    >>> stage_times(m, "H100_SXM", "fp8", sizes=[4096, 4096], split=[16, 16], ideal=True)[0].shape
    (2, 2)
    """
    attention, ffn = attention or Plan(), ffn or Plan()
    if attention.pp != 1 or ffn.pp != 1:
        raise ValueError(
            f"attention and ffn must be plans of one stage, pp = 1, got pp = {attention.pp} "
            f"and {ffn.pp}"
        )
    split = whole(**{f"split[{i}]": layers for i, layers in enumerate(split)})
    if sum(split) != len(model.blocks):
        raise ValueError(
            f"split must sum to the {len(model.blocks)} layers of {model.name}, got "
            f"{sum(split)} for {split}"
        )
    (sizes,) = dims(sizes=sizes)
    ends = np.cumsum(sizes)
    plans = {"attention": attention, "ffn": ffn, **options}
    blocks, rest = block_times(
        model, device, recipe, context=ends, cached=ends - sizes, batch=batch, **plans
    )
    times = np.array([part.sum(axis=0) for part in np.split(blocks, np.cumsum(split)[:-1])]).T
    times[:, -1] += rest
    if len(split) == 1:
        return times, np.zeros_like(sizes)
    handed = Exchange(
        kind="send",
        elements=np.ceil(batch / attention.dp) * sizes * model.hidden_size / attention.tp,
        ranks=2,
    )
    return times, exchange_time(handed, device, recipe, ideal=options.get("ideal", False))
