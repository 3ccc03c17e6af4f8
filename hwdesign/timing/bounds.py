"""What bounds each term of a decode step: memory, math, the link, or a fixed time."""

from dataclasses import dataclass, replace

from hwdesign._check import check_fields, choice
from hwdesign.catalogue.device import device as as_device
from hwdesign.timing.estimate import decode_step

BOUNDS = ("memory", "math", "link", "latency")
ENDLESS = 1e9  # times a rate: what it bounds then takes no time
FIXED = 0.5  # share of a term in fixed times from which latency bounds it


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What bounds a term of a step.

    Parameters
    ----------
    name : str
        "memory", "math", "link" or "latency".
    seconds : float
        What the term takes at the datasheet's rate of that, or in fixed times [s].

    Examples
    --------
    >>> Bound(name="memory", seconds=1e-3).name
    'memory'
    """

    name: str
    seconds: float  # [s]

    def __post_init__(self):
        choice("name", self.name, BOUNDS)
        check_fields(self, amounts=("seconds",))


def term_bounds(terms, model, device, recipe, **load):
    """What bounds each term of a decode step.

    Latency, where half of the term would be left on a device whose memory, math and link take no
    time, and its bytes or FLOP at the datasheet's rates take less than half: fixed times of kernels
    and exchanges. Else memory or math, whichever of its bytes at the
    datasheet's bandwidth and its FLOP at the dense peak takes longer in sum; the link for
    exchanges. A term may still run far from its bound.

    Parameters
    ----------
    terms : dict of str to float
        Times of the step, as in `Breakdown.terms` [s].
    model : Model
        What runs.
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats.
    **load
        batch, context, attention, ffn and engine, as for `decode_step`.

    Returns
    -------
    dict of str to Bound
        For each term that takes time [s].

    Raises
    ------
    ValueError
        As `decode_step`.

    Notes
    -----
    Source: `decode_step` on devices without one or all of the three, `ideal` where one is left.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> llama, load = config.load("llama-3.1-8b"), {"batch": 1, "context": 8192}
    >>> terms = decode_step(llama, "H100_SXM", "bf16", **load).terms
    >>> found = term_bounds(terms, llama, "H100_SXM", "bf16", **load)
    >>> found["ffn"].name, found["small kernels"].name
    ('memory', 'latency')
    """
    device = as_device(device)
    endless = {
        "memory_bandwidth": device.memory_bandwidth * ENDLESS,
        "dense_peak": {name: peak * ENDLESS for name, peak in device.dense_peak.items()},
    }
    if device.link_bandwidth:
        endless["link_bandwidth"] = device.link_bandwidth * ENDLESS
    no_math = replace(device, dense_peak=endless["dense_peak"])
    no_memory = replace(device, memory_bandwidth=endless["memory_bandwidth"])
    memory = decode_step(model, no_math, recipe, ideal=True, **load).terms
    math = decode_step(model, no_memory, recipe, ideal=True, **load).terms
    fixed = decode_step(model, replace(device, **endless), recipe, **load).terms
    found = {}
    for name, seconds in terms.items():
        if not seconds:
            continue
        ideal = max(memory[name], math[name])
        if ideal < FIXED * seconds <= fixed[name]:
            found[name] = Bound(name="latency", seconds=float(fixed[name]))
        elif name == "communication":
            found[name] = Bound(name="link", seconds=float(memory[name]))
        elif math[name] > memory[name]:
            found[name] = Bound(name="math", seconds=float(math[name]))
        else:  # the ideal of small kernels is nothing
            read = memory[name] or seconds - fixed[name]
            found[name] = Bound(name="memory", seconds=float(read))
    return found
