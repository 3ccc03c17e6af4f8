"""A config and options judged: the report on it."""

import os
import warnings

from hwdesign._check import listed, whole
from hwdesign.advice.case import Case, as_model, plan_text
from hwdesign.advice.checklist import checklist
from hwdesign.advice.report_facts import OPTIONS, Report
from hwdesign.catalogue.device import device as as_device
from hwdesign.safe import visible
from hwdesign.timing.formats import engine_formats


def judge(source, *, limits=None, ignore=(), loads=(), **options):
    """The report on a config: its checklist at each load, and where each setting came from.

    Parameters
    ----------
    source : str or path or dict
        A config.json, the name of a shipped config, or the parsed config.
    limits : Limits, optional
        From which cost on [dimensionless] a verdict is a warning and a failure.
    ignore : sequence of int
        Guidelines that are judged, but do not count for the status.
    loads : sequence of (int, int, int)
        Lengths of prompt and answer [token] and users over all GPUs, instead of `batch` and
        `context`; each is judged where half of the answer is there.
    **options
        Fields of `Case`; None stands for its default.

    Raises
    ------
    ValueError
        If a config, a name, a load or a plan is refused, or the plans cannot run the model and no
        guideline says why.

    Examples
    --------
    >>> judge("llama-3.1-8b", device="H100_SXM", recipe="fp8").facts["defaults"]
    ['engine', 'cache', 'attention', 'ffn', 'batch', 'context', 'limits']
    """
    given = {name: value for name, value in options.items() if value is not None}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cases = cases_of(source, loads=loads, **given)
        model, device = cases[0].model, cases[0].device
        chosen = {name: given.get(name) for name in ("recipe", "cache")}
        formats = engine_formats(model, device, cases[0].engine, **chosen)
        found = tuple(checklist(case, limits) for case in cases)
    first = cases[0]
    if first.refusal and not found[0].findings:
        raise ValueError(
            f"plans must be able to run the model, got {plan_text(first.attention, first.ffn)}: "
            f"{first.refusal}"
        )
    named = os.fspath(source) if isinstance(source, str | os.PathLike) else visible(model.name)
    known = ("batch", "context") if loads else ()
    defaults = [name for name in OPTIONS if name not in (*given, *known)]
    if not limits:
        defaults.append("limits")
    return Report(
        source=named,
        loads=found,
        formats=formats,
        defaults=tuple(defaults),
        ignored=tuple(listed("ignore", ignore, int, "numbers of guidelines, as in (4, 7)")),
        warned=tuple(dict.fromkeys(str(warning.message) for warning in caught)),
    )


def cases_of(source, *, loads=(), **options):
    """The cases that `judge` judges: one for each load, as a list; see there.

    >>> [case.batch for case in cases_of("gpt2", loads=[(512, 128, 8), (512, 128, 64)])]
    [8, 64]
    """
    given = {name: value for name, value in options.items() if value is not None}
    model, device = as_model(source), as_device(given.get("device", Case.device))
    settings = {**given, "model": model, "device": device}
    return [Case(**settings, **load) for load in _loads(loads, given)]


def _loads(loads, given):
    """Fields of `Case` for each load, once; one empty set of them without loads."""
    excluded = [name for name in ("batch", "context", "prompt", "answer") if name in given]
    if loads and excluded:
        raise ValueError(f"loads and {excluded[0]} exclude each other: loads say both")
    like = "(prompt, answer, users), as in (8192, 1024, 64)"
    fields = []
    for load in dict.fromkeys(listed("loads", loads, tuple | list, like)):
        if len(load) != 3:
            raise ValueError(f"loads must be of {like}, got {load}")
        prompt, answer, users = whole(**dict(zip(("prompt", "answer", "users"), load, strict=True)))
        context = prompt + (answer + 1) // 2
        fields.append({"batch": users, "context": context, "prompt": prompt, "answer": answer})
    return fields or [{}]
