"""What a user of a running server sees, from the times of single steps."""

import numpy as np

from hwdesign._check import dims, scalar_or_array
from hwdesign.catalogue.engine import engine as as_engine
from hwdesign.models.steps import same_gpus
from hwdesign.timing.estimate import ENGINE, decode_step, prefill_step
from hwdesign.timing.intervals import engine_seconds

# Engines whose steps hold both decoding sequences and pieces of prompts, so that both share what
# the matrices cost. SGLang does it on request (--enable-mixed-chunk) and prefills in steps between.
MIXED = ("vllm", "trtllm")
SHARED_TERMS = ("projections", "ffn", "experts", "communication", "small kernels")


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

    While a sequence is decoded, every other sequence in flight is replaced once, so each step
    carries ``(concurrency - 1) / output_tokens`` of a prompt. vLLM and TensorRT-LLM run a prompt in
    one step with the sequences that decode, and the matrices are read for both; in SGLang it is a
    step of its own. The decode step sees ``input + output / 2`` tokens; what the engine takes
    besides its kernels is added.

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
    Source: steady state of continuous batching with closed-loop users; `engine_seconds` for the
    engine's part. Not modelled: queueing.

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
    prompt = {"batch": group, **plans}
    alone = prefill_step(model, device, recipe, context=input_tokens, **prompt)
    prompts = (concurrency - 1) / output_tokens / group  # that each group takes in a step
    name, layers = as_engine(engine).name, len(model.blocks)
    step = decode.seconds + engine_seconds(name, layers, full / group)
    if name not in MIXED or attention.pp > 1:
        return scalar_or_array(step + prompts * alone.seconds)
    many = np.maximum(prompts, 1)
    tokens = np.ceil(many * input_tokens + full / group)
    joined = prefill_step(model, device, recipe, context=tokens, **prompt)
    added = many * alone.terms["attention"] + sum(
        joined.terms[name] - decode.terms[name] for name in SHARED_TERMS
    )
    return scalar_or_array(step + np.minimum(prompts, 1) * np.maximum(added, 0))
