"""A config and options judged: the report on it."""

import os
import warnings

from hwdesign.advice.case import Case, as_model, plan_text
from hwdesign.advice.checklist import checklist
from hwdesign.advice.report_facts import OPTIONS, Report
from hwdesign.advice.safe import visible
from hwdesign.catalogue.device import device as as_device
from hwdesign.timing.formats import engine_formats


def judge(source, *, limits=None, ignore=(), **options):
    """The report on a config: its checklist, and where each setting came from.

    Parameters
    ----------
    source : str or path or dict
        A config.json, the name of a shipped config, or the parsed config.
    limits : Limits, optional
        From which cost on [dimensionless] a verdict is a warning and a failure.
    ignore : sequence of int
        Guidelines that are judged, but do not count for the status.
    **options
        Fields of `Case`; None stands for its default.

    Raises
    ------
    ValueError
        If a config, a name or a plan is refused, or the plans cannot run the model and no guideline
        says why.

    Examples
    --------
    >>> judge("llama-3.1-8b", device="H100_SXM", recipe="fp8").facts["defaults"]
    ['attention', 'ffn', 'batch', 'context', 'limits']
    """
    given = {name: value for name, value in options.items() if value is not None}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, device = as_model(source), as_device(given.get("device", Case.device))
        case = Case(**{**given, "model": model, "device": device})
        chosen = {name: given.get(name) for name in ("recipe", "cache")}
        formats = engine_formats(model, device, case.engine, **chosen)
        found = checklist(case, limits)
    if case.refusal and not found.findings:
        raise ValueError(
            f"plans must be able to run the model, got {plan_text(case.attention, case.ffn)}: "
            f"{case.refusal}"
        )
    named = os.fspath(source) if isinstance(source, str | os.PathLike) else visible(model.name)
    defaults = [name for name in OPTIONS if name not in given]
    if not limits:
        defaults.append("limits")
    return Report(
        source=named,
        checklist=found,
        formats=formats,
        defaults=tuple(defaults),
        ignored=tuple(ignore),
        warned=tuple(dict.fromkeys(str(warning.message) for warning in caught)),
    )
