"""What a user of a running server sees, from the times of single steps."""

import numpy as np

from hwdesign._check import dims, scalar_or_array
from hwdesign.models.steps import same_gpus
from hwdesign.timing.estimate import ENGINE, decode_step, prefill_step


def time_per_output_token(
    model,
    device,
    recipe,
    *,
    concurrency,
    input_tokens,
    output_tokens,
    attention=None,
    ffn=None,
    wide=(),
    engine=ENGINE,
):
    """Mean time between two tokens of a sequence on a server that also prefills: a decode step and
    its share of prefill.

    ``decode(context = input + output / 2)
    + (concurrency - 1) / output_tokens * prefill(input_tokens)``:
    while a sequence is decoded, every other sequence in flight is replaced once, so each step
    carries that share of one prompt.

    Parameters
    ----------
    model : Model
        What runs.
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats.
    concurrency : array_like of int
        Sequences in flight over all GPUs.
    input_tokens, output_tokens : array_like of int, broadcastable
        Length of a prompt and of an answer [token].
    attention, ffn : Plan, optional
        Plans of the two parts over the same GPUs; by default one GPU.
    wide : sequence of str
        Parts of the model whose matrices stay in BF16 besides, as for `decode_step`.
    engine : str or Engine
        Whose kernels are taken, as for `decode_step`.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Time [s].

    Raises
    ------
    ValueError
        If a number is below 1 or not whole, or a plan is refused, see `decode_step`.

    Notes
    -----
    Source: steady state of continuous batching with closed-loop users. Not modelled: the scheduler,
    queueing, the host.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> from hwdesign.models.steps import Plan
    >>> two, load = Plan(tp=2), {"concurrency": 4, "input_tokens": 1024, "output_tokens": 1024}
    >>> t = time_per_output_token(
    ...     config.load("llama-3.1-70b"), "H100_SXM", "fp8", **load, attention=two, ffn=two
    ... )
    >>> bool(0.75 * 17.4e-3 < t < 1.25 * 17.4e-3)  # served by vLLM: 17.4 ms
    True
    """
    concurrency, input_tokens, output_tokens = dims(
        concurrency=concurrency, input_tokens=input_tokens, output_tokens=output_tokens
    )
    attention, ffn = same_gpus(attention, ffn)
    plans = {"attention": attention, "ffn": ffn, "wide": wide, "engine": engine}
    group = attention.dp * attention.pp
    full = (
        np.ceil(concurrency / group) * group
    )  # each group of GPUs has the same number of sequences
    decode = decode_step(
        model,
        device,
        recipe,
        batch=full,
        context=np.ceil(input_tokens + output_tokens / 2),
        **plans,
    )
    prefill = prefill_step(model, device, recipe, batch=group, context=input_tokens, **plans)
    return scalar_or_array(
        decode.seconds + (concurrency - 1) / output_tokens * prefill.seconds / group
    )  # a prompt for each group
