"""Which engines run a pair of plans: what each accepts for attention and the feed-forward part."""

from hwdesign.catalogue.engine import engine as as_engine
from hwdesign.catalogue.engine import engine_names


def engine_plan_refusal(engine, model, attention, ffn):
    """Why an engine does not run a model under these plans.

    Parameters
    ----------
    engine : str or Engine
        Which one.
    model : Model
        What is served.
    attention, ffn : Plan
        Plans of the two parts over the same GPUs.

    Returns
    -------
    str or None
        In words; None where it runs them.

    Notes
    -----
    Source: PLANS below [GPU].

    Examples
    --------
    >>> from hwdesign.models import config
    >>> from hwdesign.models.steps import Plan
    >>> llama = config.load("llama-3.1-8b")
    >>> engine_plan_refusal("vllm", llama, Plan(tp=8), Plan(tp=8)) is None
    True
    >>> engine_plan_refusal("vllm", llama, Plan(dp=8), Plan(tp=8))
    'data-parallel groups of a dense model are whole copies of it'
    """
    engine = as_engine(engine)
    routed = any(block.routed for block in model.block_counts)
    for refuses in PLANS[engine.name]:
        why = refuses(model, attention, ffn, routed)
        if why:
            return why
    return None


def plan_engines(model, attention, ffn):
    """Names of the engines that run a pair of plans.

    Parameters
    ----------
    model : Model
        What is served.
    attention, ffn : Plan
        Plans of the two parts over the same GPUs [GPU].

    Returns
    -------
    tuple of str
        Names as in `hwdesign.catalogue.engine.engine_names`.

    Notes
    -----
    Source: `engine_plan_refusal`.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> from hwdesign.models.steps import Plan
    >>> plan_engines(config.load("gpt2"), Plan(tp=2), Plan(tp=2))
    ('vllm', 'sglang', 'trtllm')
    """
    names = engine_names()
    return tuple(n for n in names if engine_plan_refusal(n, model, attention, ffn) is None)


def _dense_copies(model, attention, ffn, routed):
    if not routed and attention.dp > 1 and ffn.dp != attention.dp:
        return "data-parallel groups of a dense model are whole copies of it"


def _whole_or_sliced(model, attention, ffn, routed):
    if routed and ffn.ep > 1 and ffn.tp > 1:
        return "experts are spread over all GPUs or sliced over all, not both"


PLANS = {
    "vllm": (_dense_copies, _whole_or_sliced),
    "sglang": (),
    "trtllm": (),
}
