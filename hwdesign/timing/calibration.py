"""Constants fitted on the published tables, and the fit itself.

`scripts/fit_calibration.py` fits them on a part of each table and writes `data/constants.csv`, with
the error on the part that was held out in `data/accuracy.csv`. Constants are shares of the
datasheet's numbers, or seconds, so that they carry over: a device or format without a table takes
those of a stand-in, and the result says so.
"""

import csv
import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from types import MappingProxyType

import numpy as np

from hwdesign._check import choice, numbers, positive
from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.device import device_names

# Measured devices whose constants a device takes where it has no table: the same chip first, then
# those that multiply FP4 as it does, or do not: their kernels are of one kind.
STAND_INS = {
    "GB200": ("B200", "GB300"),
    "B300": ("GB300", "B200"),
    "B200": ("GB200", "GB300"),
    "GB300": ("GB200", "B200"),
}
OTHERS = {True: ("B200", "GB300", "GB200"), False: ("H100_SXM", "B200", "GB200")}  # by FP4
NEAREST = {
    "bf16": "fp8_block",
    "fp8": "fp8_block",
    "nvfp4": "fp8_block",
    "fp8_block": "fp8",
    "mxfp4_w4a8": "mxfp4_w4a16",
    "mxfp4_w4a16": "w4a16",
    "w4a16": "bf16",
}  # formats, where one is missing
FRAMEWORKS = ("sglang", "trtllm", "vllm", "nccl")  # default: the first that was measured
BLACKWELL = ("B200", "GB200", "B300", "GB300")
# Timed without what a server does before it serves. Only by name.
UNTUNED = {
    # The collector tunes MoE layers and not GEMMs: up to 128 tokens any GEMM with K = 8192 takes
    # 22 us on B200.
    ("gemm", device, "nvfp4", "trtllm")
    for device in (*BLACKWELL, "RTX_PRO_6000")
} | {
    # DeepGEMM's kernel, as in SGLang, and 4 to 9 us and a share of the bytes beside it. Whole
    # modules of DeepSeek-V3.2, V4 and GLM-5.2 in the same engine take less time than these rows say
    # of their products; with SGLang's rows for the products the fits err by 5 to 7 %, with these by
    # up to 37 %.
    ("gemm", device, "fp8_block", framework)
    for device in BLACKWELL
    for framework in ("vllm", "vllm-2026-04")
} | {
    # FlashInfer's CUTLASS kernel: 2.3 times as long as BF16 in the median of 16 to 256 tokens,
    # 4.2 times as long as blocks of FP8 (H200: 2.8 and 4.7 times).
    ("moe", device, "fp8", "vllm")
    for device in ("H100_SXM", "H200")
}


@dataclass(frozen=True, kw_only=True)
class Constants(Mapping):
    """Fitted constants of one operation, by name.

    `measured` says whether they were fitted on published tables of this device and format, `notes`
    what must be said if they were not.

    Examples
    --------
    >>> c = constants("gemm", "H100_SXM", "bf16")
    >>> c.framework, c.measured, 0 < c["bandwidth"] <= 1
    ('sglang', True, True)
    """

    operation: str
    device: str
    precision: str
    framework: str
    measured: bool
    fitted: Mapping[str, float]
    notes: tuple = ()

    def __getitem__(self, name):
        return self.fitted[name]

    def __iter__(self):
        return iter(self.fitted)

    def __len__(self):
        return len(self.fitted)


@functools.cache
def _rows(name):
    text = resources.files("hwdesign.timing").joinpath("data", name).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@functools.cache
def _fitted():
    """{(operation, device, precision, framework): {constant: value}} of the shipped file."""
    out = {}
    for row in _rows("constants.csv"):
        key = tuple(row[name] for name in ("operation", "device", "precision", "framework"))
        out.setdefault(key, {})[row["constant"]] = float(row["value"])
    return {key: MappingProxyType(values) for key, values in out.items()}


@functools.cache
def _frameworks():
    """{operation: those that have constants of it} of the shipped file, in its order."""
    out = {}
    for operation, _, _, framework in _fitted():
        out.setdefault(operation, {})[framework] = framework
    return {operation: MappingProxyType(names) for operation, names in out.items()}


def constants(operation, device, precision, framework=None, *, engine=None):
    """Fitted constants of an operation on a device, or of the nearest stand-in.

    Parameters
    ----------
    operation : str
        "gemm", "attention_decode", "attention_prefill", "mla_decode", "mla_prefill", "moe",
        "all-reduce", "ring", "dispatch" or "combine".
    device : str or Device
        Accelerator.
    precision : str
        Name of a recipe for GEMMs and experts, "bf16" or "fp8" cache for attention, "" for
        collectives.
    framework : str, optional
        "sglang", "trtllm", "vllm" or "nccl"; by default the first of these that was measured. One
        that is named must have been measured on this device: there is no stand-in for it.
    engine : str, optional
        Whose are preferred: the first engine where a device has tables of several.

    Returns
    -------
    Constants
        Shares [dimensionless] and times [s]; the page Accuracy explains each.

    Raises
    ------
    ValueError
        If the operation is unknown, or the framework was not measured on the device.

    Notes
    -----
    Source: `hwdesign/timing/data/constants.csv`, written by `scripts/fit_calibration.py`.

    Examples
    --------
    >>> c = constants("moe", "RTX_5090", "nvfp4")
    >>> c.device, c.precision, c.measured
    ('B200', 'nvfp4', False)
    """
    operation = choice("operation", operation, tuple(_frameworks()), normal=str.lower)
    device = as_device(device)
    if framework is not None:
        framework = choice("framework", framework, _frameworks()[operation], normal=str.lower)
        return _nearest(operation, (device.name,), precision, (framework,))
    named = (engine, engine.partition("-")[0]) if engine else ()
    order = tuple(dict.fromkeys((*named, *FRAMEWORKS)))
    places = (device.name, *STAND_INS.get(device.name, ()), *OTHERS["fp4" in device.dense_peak])
    found = _nearest(operation, places, precision, order)
    if (operation, precision) in device.measured:
        return _with_run(found, *device.measured[operation, precision])
    if device.name not in device_names():
        return replace(found, notes=(*found.notes, _why(device, found)))
    return found


def _with_run(found, own, run):
    """Constants of a stand-in, those apart that were fitted on a run."""
    note = f"{found.operation} takes {', '.join(own)} from the {run}"
    if set(own) < set(found):
        note += f", the rest from {' '.join((found.device, found.precision)).strip()}"
    return replace(found, measured=False, fitted=found.fitted | own, notes=(note,))


def _why(device, found):
    """Why a device that the catalogue lacks takes these constants."""
    has = "fp4" in device.dense_peak
    if has != ("fp4" in as_device(found.device).dense_peak):
        return f"{device.name} has no table, {found.device} has the nearest"
    kind = "with" if has else "without"
    return f"{device.name} has no table, {found.device} is the first measured device {kind} FP4"


@functools.cache
def _nearest(operation, places, precision, frameworks):
    """Constants of the first of these devices that has any, in the nearest format."""
    precisions = [precision]
    while precisions[-1] in NEAREST and NEAREST[precisions[-1]] not in precisions:
        precisions.append(NEAREST[precisions[-1]])
    for key in itertools.product((operation,), places, precisions, frameworks):
        skipped = len(frameworks) > 1 and key in UNTUNED
        if key in _fitted() and not skipped:
            what = dict(zip(("operation", "device", "precision", "framework"), key, strict=True))
            measured = key[1:3] == (places[0], precision)
            taken = " ".join(key[1:3]).strip()
            notes = () if measured else (f"{operation} takes the constants of {taken}",)
            return Constants(**what, measured=measured, fitted=_fitted()[key], notes=notes)
    device = places[0]
    have = sorted(
        {f"{key[2]} {key[3]}" for key in _fitted() if key[:2] == (operation, device)}
    ) or ["nothing"]
    raise ValueError(
        f"framework must have been measured for {operation} on {device} ({', '.join(have)}), "
        f"got {precision} {frameworks[0]}"
    )


def held_out_error(operation, device, precision, framework=None, *, subset="all"):
    """Mean absolute error of the calibrated model on published times that its fit did not see.

    Parameters
    ----------
    operation : str
        As for `constants`.
    device : str or Device
        Accelerator.
    precision : str
        As for `constants`.
    framework : str, optional
        By default the first that was measured.
    subset : str
        "all", for GEMMs also "large" (at least 256 tokens, N and K from 1024), for experts also
        "decode" (at most 256 tokens on a GPU), "ep 1" (all experts on it) and "decode ep 1".

    Returns
    -------
    float
        Mean of |modelled / published - 1| [dimensionless].

    Raises
    ------
    ValueError
        If nothing of the kind was measured on this device and in this format; a stand-in has no
        error of its own.

    Notes
    -----
    Source: `hwdesign/timing/data/accuracy.csv`, written by `scripts/fit_calibration.py`.

    Examples
    --------
    >>> held_out_error("gemm", "GB300", "bf16", subset="large") < 0.06
    True
    """
    found = constants(operation, device, precision, framework)
    key = (found.operation, as_device(device).name, str(precision), found.framework)
    rows = {row["subset"]: row for row in _rows("accuracy.csv") if tuple(row.values())[:4] == key}
    if not rows:
        raise ValueError(
            f"device and precision must have been measured for {found.operation}, got {key[1]} "
            f"and {precision!r}"
        )
    return float(choice("subset", subset, rows)["mape"]) / 100


def fit(predict, seconds, bounds, *, weights=1.0, scale=None, steps=200):
    """Constants that make the log error of a model smallest, within bounds; deterministic.

    Parameters
    ----------
    predict : callable
        From a dict of constants to modelled times [s], an array of the shape of `seconds`.
    seconds : array_like of float
        Measured times [s].
    bounds : dict of str to tuple of float
        Start, lowest and highest value of each constant, in its own unit.
    weights : array_like of float
        Weight of each time [dimensionless].
    scale : float, optional
        Log error above which the loss grows linearly instead of with the square, so that single
        outliers do not steer; without it, plain least squares [dimensionless].
    steps : int
        Most steps to take.

    Returns
    -------
    dict of str to float
        Constants.

    Raises
    ------
    ValueError
        If a time is not positive and finite, or there are fewer times than constants.

    Notes
    -----
    Source: Levenberg 1944, Marquardt 1963: damped Gauss-Newton steps in the logarithms of the
    constants; Charbonnier's loss ``sqrt(1 + (error / scale)**2)`` where a scale is given.

    Examples
    --------
    >>> x = np.array([1.0, 2.0, 8.0])
    >>> found = fit(
    ...     lambda c: c["a"] + c["b"] * x, 3 + 0.5 * x, {"a": (1, 0.1, 10), "b": (1, 0.1, 10)}
    ... )
    >>> {name: round(value, 4) for name, value in found.items()}
    {'a': 3.0, 'b': 0.5}
    """
    (seconds,) = positive(seconds=seconds)
    if np.isinf(seconds).any() or seconds.size < len(bounds) or not numbers("steps", steps) >= 1:
        raise ValueError(
            f"seconds must be finite and at least {len(bounds)}, got {seconds.size} times up "
            f"to {seconds.max():g} s"
        )
    start, low, high = np.log([bounds[name] for name in bounds]).T

    def named(x):
        return dict(zip(bounds, np.exp(x).tolist(), strict=True))

    def loss(error):
        return np.sum(
            weights
            * (np.square(error) if scale is None else np.sqrt(1 + np.square(error / scale)) - 1)
        )

    def slopes(error):
        return (
            weights * np.ones_like(error)
            if scale is None
            else weights / np.sqrt(1 + np.square(error / scale))
        )

    return named(
        _descend(
            lambda x: np.log(predict(named(x)) / seconds),
            loss,
            slopes,
            start,
            low,
            high,
            int(steps),
        )
    )


def _descend(errors, loss, slopes, x, low, high, steps):
    """The x in [low, high] with the smallest loss of errors(x), by damped Gauss-Newton steps."""
    error, damping = errors(x), 1e-2
    now = loss(error)
    for _ in range(steps):
        side = np.where(x + 1e-5 <= high, 1e-5, -1e-5)
        jacobian = np.stack(
            [(errors(x + h * e) - error) / h for h, e in zip(side, np.eye(len(x)), strict=True)],
            axis=1,
        )
        weighted = jacobian * slopes(error)[:, None]
        slope = weighted.T @ error
        held = ((x >= high) & (slope < 0)) | (
            (x <= low) & (slope > 0)
        )  # at a limit and pushed beyond it
        jacobian[:, held], weighted[:, held], slope[held] = 0, 0, 0
        normal = weighted.T @ jacobian
        while damping < 1e12:
            move = np.linalg.solve(
                normal + damping * np.diag(np.diag(normal)) + 1e-9 * np.eye(len(x)), -slope
            )
            trial = np.clip(x + np.clip(move, -1, 1), low, high)
            there = errors(trial)
            then = loss(there)
            if then < now:
                break
            damping *= 4
        else:
            break
        done = now - then < 1e-9 * now
        x, error, now, damping = trial, there, then, damping / 3
        if done:
            break
    return x
