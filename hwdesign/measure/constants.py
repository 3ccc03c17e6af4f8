"""Constants of the timing models fitted on stored runs, for a device that no published table
covers, or in place of those that were published.

What a run does not tell stays that of the stand-in. Plain shares of the best rates would be worse
than the stand-in alone: the models have terms besides, so a few constants are fitted on all times
of an operation instead.
"""

import os
from dataclasses import replace

import numpy as np

from hwdesign._check import instance
from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import precision as as_precision
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.measure.machine import is_called
from hwdesign.measure.runs import HEADROOM, Run, load_run, trusted
from hwdesign.timing.calibration import constants, fit
from hwdesign.timing.clock import MEASURED_RECIPES
from hwdesign.timing.gemm_kernel import gemm_kernel_seconds
from hwdesign.timing.kernels import all_reduce_seconds, ring_seconds

# Fitted constants: lowest and highest; the start is the stand-in's.
GEMM = {"peak": (0.02, HEADROOM), "bandwidth": (0.02, 1.0), "fixed": (1e-7, 1e-3)}
LINK = {"latency": (1e-7, 1e-2), "bandwidth": (0.001, HEADROOM)}
COLLECTIVES = {
    "all-reduce": (("all_reduce",), all_reduce_seconds, LINK),
    "ring": (("all_gather", "reduce_scatter"), ring_seconds, LINK | {"fill": (1e-9, 1e-2)}),
}
OUTLIER = 0.1  # log error above which the loss of a fit grows linearly


def measured_device(device, *runs):
    """A device whose timing constants are, as far as runs of `hwdesign measure` go, its own.

    Parameters
    ----------
    device : str, path, Device or None
        Accelerator, also by name or JSON file; None takes the catalogue's device that the first
        run was taken on.
    *runs : str, path or Run
        Files that `save_run` wrote, or names of shipped runs. Of two that time the same, the last
        counts.

    Returns
    -------
    Device
        The same datasheet, with constants in `Device.measured` [share of the datasheet's number, or
        s]: of GEMMs in each format the reachable shares of peak and bandwidth and the fixed time;
        of a small kernel the time of the shortest one; of all-reduces and rings latency and
        bandwidth. Each time that uses them says so.

    Raises
    ------
    ValueError
        If the device is not the one that was measured or has no name, a run tells none of these, or
        it beats the datasheet.

    Notes
    -----
    Source: the runs. Not taken are times of attention, since engines do not run torch's kernel, and
    the bandwidth of copies, which write as much as they read. On published GEMMs of an A100, 40 of
    which were fitted, this has a mean error of 11 %, the stand-in's constants 13 %, plain shares of
    the best rates 23 %.

    Examples
    --------
    >>> card = as_device("A100_SXM")
    >>> cpu = replace(card, name="a CPU", reported_name=None, dense_peak={"bf16": 1.3e12})
    >>> mine = measured_device(cpu, "run_cpu_intel_xeon_processor_2_cores")
    >>> sorted(key[0] for key in mine.measured)
    ['all-reduce', 'gemm', 'ring', 'small kernel']
    """
    found = [run if isinstance(run, Run) else _loaded(run) for run in runs]
    if not found:
        raise ValueError("runs must be at least one file of hwdesign measure, got none")
    device = _named(found[0]) if device is None else as_device(device)
    measured = dict(device.measured)
    for run in found:
        taken = trusted(run.measurements)
        _refuse_another(device, taken)
        own = _gemms(device, taken) | _shortest(taken) | _collectives(device, taken)
        if not own:
            raise ValueError(
                f"runs must time GEMMs in {', '.join(MEASURED_RECIPES)}, the shortest kernel or "
                f"collectives, got none of them from {run.machine}"
            )
        label = f"run of {max(m.taken_on for m in taken)} on {run.machine}"
        measured |= {key: (values, label) for key, values in own.items()}
    return replace(device, measured=measured)


def _loaded(run):
    instance("runs", run, str | os.PathLike, "a Run, a file of hwdesign measure or a shipped name")
    try:
        return load_run(run)
    except ValueError as error:
        raise ValueError(f"runs must be files of hwdesign measure: {error}") from None


def _named(run):
    """The catalogue's device that a run was taken on."""
    names = {m.device_name for m in run.measurements}
    if len(names) != 1 or None in names:
        told = " and ".join(sorted({m.device for m in run.measurements}))
        raise ValueError(
            "device must be named or be a JSON file, since the catalogue lacks what was measured, "
            f"got None for {told}"
        )
    return as_device(names.pop())


def _refuse_another(device, taken):
    """Refuse times of another device, and those that beat the datasheet of this one."""
    for m in taken:
        other = m.device_name not in (None, device.name)
        if other or (device.reported_name and not is_called(device, m.device)):
            raise ValueError(
                f"device must be the one that was measured, {m.device_name or m.device!r}, got "
                f"{device.name}"
            )
        if m.operation == "copy" and m.bandwidth > device.memory_bandwidth:
            raise ValueError(
                f"memory_bandwidth of {device.name} must be at least the {m.bandwidth:.3g} byte/s "
                f"that a copy reached, got {device.memory_bandwidth:.3g}"
            )


def _gemms(device, taken):
    """Constants of GEMMs in each format that the device and the run have."""
    out = {}
    for form in MEASURED_RECIPES:
        mine = [m for m in taken if m.operation == "gemm" and m.precision == form]
        if not mine or as_precision(form).rate not in device.dense_peak:
            continue
        peak, best = device.peak_flops(form), max(m.rate for m in mine)
        if best > HEADROOM * peak:
            raise ValueError(
                f"dense_peak of {device.name} in {form} must be at least {best / HEADROOM:.3g} "
                f"FLOP/s, since a GEMM reached {best:.3g}, got {peak:.3g}"
            )
        out["gemm", form] = _fitted_gemm(device, form, mine)
    return {key: values for key, values in out.items() if values}


def _fitted_gemm(device, form, mine):
    """Peak, bandwidth and fixed time, fitted; operands were in their format when the clock ran."""
    stand_in = dict(constants("gemm", device, form))
    kept = {name: value for name, value in stand_in.items() if name != "quantize"}
    sizes = [np.array([float(m.shape[name]) for m in mine]) for name in "mnk"]
    seconds = np.array([m.seconds for m in mine])
    recipe = as_recipe(form)

    def predict(c):
        return gemm_kernel_seconds(*sizes, device, recipe, kept | c)

    return _fit(predict, seconds, stand_in, GEMM)


def _shortest(taken):
    """Time of a kernel that does almost nothing."""
    seconds = [m.seconds for m in taken if m.operation == "launch"]
    return {("small kernel", ""): {"fixed": min(seconds)}} if seconds else {}


def _collectives(device, taken):
    """Latency and bandwidth of the collectives that the run has, where the device has a link."""
    out = {}
    for name, (operations, model, limits) in COLLECTIVES.items():
        mine = [m for m in taken if m.operation in operations]
        if not mine or not device.link_bandwidth:
            continue
        stand_in = dict(constants(name, device, ""))
        nbytes, ranks = (
            np.array([float(m.shape[size]) for m in mine]) for size in ("nbytes", "ranks")
        )
        seconds = np.array([m.seconds for m in mine])

        def predict(c, model=model, stand_in=stand_in, nbytes=nbytes, ranks=ranks):
            return model(nbytes, ranks, device.link_bandwidth, stand_in | c)

        out[name, ""] = _fit(predict, seconds, stand_in, limits)
    return {key: values for key, values in out.items() if values}


def _fit(predict, seconds, start, limits):
    """Constants within limits, from where the stand-in's are; none without more times than that."""
    if len(seconds) <= len(limits):
        return {}
    bounds = {
        name: (float(np.clip(start[name], low, high)), low, high)
        for name, (low, high) in limits.items()
    }
    return fit(predict, seconds, bounds, scale=OUTLIER)
