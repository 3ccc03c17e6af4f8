"""Measurements and the files that keep them.

A time means nothing without the device, the software and the day: a cliff of 3x at one size has
come and gone with the version of a library. So a measurement without them cannot be made, and a
file without them cannot be loaded.
"""

import datetime
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from hwdesign._check import choice, instance, listed, shown, text
from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import PRECISIONS
from hwdesign.formulas import attention, collectives, roofline
from hwdesign.units import fmt

FORMAT = "hwdesign run 1"
SPREAD = "from the best round to the worst, at least the spread within the best"
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SHAPE = {
    "gemm": ("m", "n", "k"),
    "copy": ("elements",),
    "launch": ("elements",),
    "attention_decode": ("batch", "context", "heads", "kv_heads", "head_dim"),
    **dict.fromkeys(COLLECTIVES, ("nbytes", "ranks")),
    "pipeline": ("stages", "chunks", "tokens", "hidden", "layers", "largest"),
}
# on datasheets, which name a lower clock than the highest and no reduction inside a switch
HEADROOM = 1.15
COMMON = (
    "device",
    "device_name",
    "taken_on",
    "source",
)  # fields that stand once at the top where all rows share them
ELEMENT_BYTES = {
    "fp64": 8.0,
    **{name: p.bytes for name, p in PRECISIONS.items()},
}  # FP64 stands in no accelerator's catalogue
OUTPUT_BYTES = {
    name: max(size, 2.0) for name, size in ELEMENT_BYTES.items()
}  # low precisions write BF16, as engines do


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One timed operation, with all that makes the time worth keeping.

    Parameters
    ----------
    operation : str
        "gemm", "copy", "launch", "attention_decode", "all_reduce", "all_gather", "reduce_scatter",
        "all_to_all" or "pipeline".
    shape : mapping of str to int
        gemm: m, n, k; copy and launch: elements; attention_decode: batch, context, heads, kv_heads,
        head_dim; collectives: nbytes (of the whole tensor), ranks; pipeline: stages, chunks,
        tokens, hidden, layers, largest (layers of that stage).
    precision : str
        Number format of the operands.
    seconds, spread : float
        Time of one call [s] and how far it scatters [s]: see `combine`.
    repeats : int
        Readings behind it.
    device : str
        The name the device reports.
    device_name : str or None
        Its name in the catalogue, if it is there.
    backend : str
        "torch-cuda", "torch-cpu" or "numpy"; "gloo" or "nccl" for collectives.
    software : mapping of str to str
        Versions: python, numpy, and where used torch, cuda, driver, blas, threads.
    taken_on : str
        ISO date.
    flags : tuple of str
        Doubts, each a sentence: "impossible: ...", "wrong result: ...", "working set: ...",
        "suspect slower path: ...", ...
    source : str
        Who measured.

    Raises
    ------
    ValueError
        If device, software or date is missing, the time is not positive, or the operation or its
        shape is unknown.

    Examples
    --------
    >>> m = Measurement(
    ...     operation="gemm",
    ...     shape={"m": 512, "n": 512, "k": 512},
    ...     precision="fp32",
    ...     seconds=1e-3,
    ...     spread=1e-5,
    ...     repeats=25,
    ...     device="a CPU",
    ...     backend="numpy",
    ...     software={"python": "3.11", "numpy": "2.0"},
    ...     taken_on="2026-01-31",
    ... )
    >>> m.flops, m.nbytes, round(m.rate / 1e9, 1), m.flags
    (268435456.0, 3145728.0, 268.4, ())
    """

    operation: str
    shape: Mapping = field(hash=False)  # [element], [byte], [token]
    precision: str
    seconds: float  # [s]
    spread: float  # [s]
    repeats: int
    device: str
    device_name: str | None = None
    backend: str
    software: Mapping = field(hash=False)
    taken_on: str
    flags: tuple[str, ...] = ()
    source: str = "own machine"

    def __post_init__(self):
        shape, software = self.shape or {}, self.software or {}
        if SHAPE.get(self.operation) != tuple(shape):
            known = "; ".join(f"{name}: {', '.join(keys)}" for name, keys in SHAPE.items())
            raise ValueError(
                f"operation and shape must be one of {known}; got {self.operation!r} with "
                f"{', '.join(shape)}"
            )
        if not str(self.device or "").strip():
            raise ValueError(
                "device must be the name the device reports, got none: a time without its "
                "device cannot be compared"
            )
        wanted = ("python", "torch" if "numpy" not in str(self.backend) else "numpy")
        missing = [name for name in wanted if not software.get(name)]
        if missing:
            raise ValueError(
                f"software must name the version of {' and '.join(missing)}, got "
                f"{dict(software) or 'nothing'}: "
                "the same GEMM has changed by 3x from one library version to the next"
            )
        try:
            datetime.date.fromisoformat(self.taken_on)
        except (TypeError, ValueError):
            raise ValueError(
                f"taken_on must be an ISO date such as '2026-01-31', got {self.taken_on!r}"
            ) from None
        for name, least in (("seconds", 1e-12), ("spread", 0), ("repeats", 1)):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not math.isfinite(value)
                or value < least
            ):
                raise ValueError(f"{name} must be {'> 0' if least else '>= 0'}, got {value!r}")
        choice("precision", self.precision, ELEMENT_BYTES)
        object.__setattr__(self, "flags", tuple(self.flags))
        for name in ("shape", "software"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def flops(self):
        """Operations of one call [FLOP]; 0 for what only moves data."""
        s = self.shape
        if self.operation == "gemm":
            return float(roofline.gemm_flops(**s))
        if self.operation == "pipeline":
            return float(s["layers"] * roofline.gemm_flops(s["tokens"], s["hidden"], s["hidden"]))
        if self.operation == "attention_decode":
            return float(
                s["batch"] * attention.attention_flops(1, s["context"], s["heads"], s["head_dim"])
            )
        return 0.0

    @property
    def nbytes(self):
        """Bytes one call reads and writes at least; for a collective, the bytes each rank sends
        [byte].
        """
        s, size, out = self.shape, ELEMENT_BYTES[self.precision], OUTPUT_BYTES[self.precision]
        if self.operation == "gemm":
            return float(roofline.gemm_bytes(**s, a=size, b=size, c=out))
        if self.operation == "attention_decode":
            cache = attention.cache_read_bytes(
                s["context"], 2 * s["kv_heads"] * s["head_dim"], size
            )
            return float(s["batch"] * (cache + s["heads"] * s["head_dim"] * (size + out)))
        if self.operation in COLLECTIVES:
            sent = (
                collectives.all_reduce_bytes
                if self.operation == "all_reduce"
                else collectives.all_gather_bytes
            )
            return float(sent(s["nbytes"], s["ranks"]))
        if self.operation == "pipeline":
            return s["hidden"] * (s["layers"] * s["hidden"] * size + s["tokens"] * (size + out))
        return 2.0 * s["elements"] * size

    @property
    def rate(self):
        """Operations per time [FLOP/s]."""
        return self.flops / self.seconds

    @property
    def bandwidth(self):
        """Bytes per time [byte/s]."""
        return self.nbytes / self.seconds

    def __str__(self):
        s = self.shape
        shape = {
            "gemm": lambda: f"{s['m']} x {s['n']} x {s['k']}",
            "attention_decode": lambda: (
                f"{s['batch']} x {s['context']}, {s['heads']}/{s['kv_heads']} heads"
            ),
            "pipeline": lambda: (
                f"{s['chunks']} x {s['tokens'] // s['chunks']}, {s['largest']}/{s['layers']} layers"
            ),
        }.get(self.operation, lambda: ", ".join(f"{name} {value}" for name, value in s.items()))()
        rate = (
            fmt(self.rate, "FLOP/s")
            if self.operation in ("gemm", "pipeline")
            else fmt(self.bandwidth, "byte/s")
        )
        rate = "" if self.operation == "launch" else rate
        time = f"{fmt(self.seconds, 's'):>8} ± {fmt(self.spread, 's'):<8}"
        text = f"{self.operation:<16} {self.precision:<5} {shape:<22} {time} {rate}"
        return "\n    ".join([text.rstrip(), *self.flags])


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """An operation that was not timed, and why, in one line.

    Examples
    --------
    >>> print(Skipped(operation="gemm fp8", reason="this GPU is too old"))
    gemm fp8: skipped, this GPU is too old
    """

    operation: str
    reason: str

    def __str__(self):
        return f"{self.operation}: skipped, {self.reason}"


@dataclass(frozen=True, kw_only=True)
class Run:
    """The measurements of one file: the machine in words, what was timed, what was skipped.

    Examples
    --------
    >>> Run(machine="a laptop", measurements=()).select("gemm", precision="bf16")
    ()
    """

    machine: str
    measurements: tuple[Measurement, ...]
    skipped: tuple[Skipped, ...] = ()

    def select(self, operation, **equal):
        """Measurements of one operation whose fields or shape have these values, for example
        ``backend="numpy"`` or ``m=512``.
        """

        def has(m, name, value):
            return value == (m.shape[name] if name in m.shape else getattr(m, name))

        of_kind = (m for m in self.measurements if m.operation == operation)
        return tuple(m for m in of_kind if all(has(m, *wanted) for wanted in equal.items()))


def combine(rounds):
    """Several measurements of one thing, taken at different moments, as one.

    Parameters
    ----------
    rounds : sequence of Measurement
        At least one; the same operation and shape.

    Returns
    -------
    Measurement
        The smallest time [s]; spread: from there to the largest, at least the spread within the
        best round [s].

    Notes
    -----
    Source: own choice. What disturbs a computer (other programs, interrupts) only ever adds time,
    for seconds on end; so the best round is the cleanest, and the way from it to the worst one says
    how much was disturbed.

    Examples
    --------
    >>> m = Measurement(
    ...     operation="launch",
    ...     shape={"elements": 1},
    ...     precision="fp32",
    ...     seconds=2e-6,
    ...     spread=1e-8,
    ...     repeats=5,
    ...     device="a CPU",
    ...     backend="numpy",
    ...     software={"python": "3.11", "numpy": "2.0"},
    ...     taken_on="2026-01-31",
    ... )
    >>> both = combine([m, replace(m, seconds=3e-6), replace(m, seconds=2.5e-6)])
    >>> both.seconds, both.spread, both.repeats
    (2e-06, 1e-06, 15)
    """
    best = min(rounds, key=lambda m: m.seconds)
    spread = max(max(m.seconds for m in rounds) - best.seconds, best.spread)
    flags = tuple(dict.fromkeys(flag for m in rounds for flag in m.flags))
    return judged(
        replace(best, spread=round(spread, 15), repeats=sum(m.repeats for m in rounds), flags=flags)
    )


def trusted(measurements):
    """Those that were taken and have no flag "impossible" or "wrong result", as a list.

    >>> trusted([Skipped(operation="gemm fp8", reason="this GPU is too old")])
    []
    """
    taken = [m for m in measurements if isinstance(m, Measurement)]
    return [m for m in taken if not any(f.startswith(("impossible", "wrong")) for f in m.flags)]


def judged(measurement):
    """The measurement, flagged where it beats its device's datasheet.

    Parameters
    ----------
    measurement : Measurement
        Of a device of the catalogue; others are returned as they are.

    Returns
    -------
    Measurement
        With a flag "impossible: ..." if its rate [FLOP/s] exceeds the dense peak by 15 %, or its
        bandwidth [byte/s] that of the memory or, for a collective, that of the links by 15 %.

    Notes
    -----
    Source: the device catalogue. A bandwidth of 3868 GB/s was once reported for a card of 1008
    GB/s: all data lay in its cache. The peaks of a datasheet hold at a boost clock that some
    devices exceed. Switches that reduce (NVLink SHARP) let each rank of an all-reduce send its
    tensor once, not 2 (n - 1) / n times.

    Examples
    --------
    >>> m = Measurement(
    ...     operation="copy",
    ...     shape={"elements": 2**22},
    ...     precision="fp32",
    ...     seconds=8.7e-6,
    ...     spread=0.0,
    ...     repeats=5,
    ...     device="NVIDIA GeForce RTX 4090",
    ...     device_name="RTX_4090",
    ...     backend="torch-cuda",
    ...     software={"python": "3.11", "torch": "2.5"},
    ...     taken_on="2026-01-31",
    ... )
    >>> judged(m).flags[0][:73]
    'impossible: 3.86 TB/s is above the 1.01 TB/s of the datasheet of RTX_4090'
    """
    m, flags = measurement, list(measurement.flags)
    if m.device_name is None:
        return m
    device = as_device(m.device_name)
    linked = m.operation in COLLECTIVES
    limit, headroom = (
        (device.link_bandwidth, HEADROOM) if linked else (device.memory_bandwidth, 1.0)
    )
    bandwidth = m.shape["nbytes"] / m.seconds if m.operation == "all_reduce" else m.bandwidth
    if limit and bandwidth > headroom * limit and m.operation != "launch":
        flags.append(
            f"impossible: {fmt(bandwidth, 'byte/s')} is above the {fmt(limit, 'byte/s')} of "
            f"the datasheet of {device.name}: "
            "the data came from a cache, or the clock is wrong"
        )
    peak = device.dense_peak.get(
        PRECISIONS[m.precision].rate if m.precision in PRECISIONS else None
    )
    if peak and m.rate > HEADROOM * peak:
        flags.append(
            f"impossible: {fmt(m.rate, 'FLOP/s')} is above the dense {m.precision} peak of "
            f"{device.name}, {fmt(peak, 'FLOP/s')}: "
            "work was left out, or the clock is wrong"
        )
    return replace(m, flags=tuple(dict.fromkeys(flags)))


def save_run(path, measurements, *, machine):
    """Write measurements to a JSON file.

    Parameters
    ----------
    path : str or Path
        File to write.
    measurements : sequence of Measurement or Skipped
        Times are written in [s]; what was skipped is kept with its reason.
    machine : str
        The machine in words a reader understands; no host name, no path.

    Raises
    ------
    ValueError
        If nothing was measured, the machine has no name or the file cannot be written.

    Notes
    -----
    Source: the format is this package's own. What all rows share stands once, at the top, as does
    the software of each backend.

    Examples
    --------
    >>> save_run("unused.json", [], machine="a laptop")
    Traceback (most recent call last):
    ...
    ValueError: measurements must hold at least one Measurement, got none
    """
    instance("path", path, str | os.PathLike, "a path")
    kinds = Measurement | Skipped
    measurements = listed("measurements", measurements, kinds, "Measurement or Skipped")
    taken = [m for m in measurements if isinstance(m, Measurement)]
    left = [s for s in measurements if isinstance(s, Skipped)]
    if not taken:
        raise ValueError("measurements must hold at least one Measurement, got none")
    if not text("machine", machine).strip():
        raise ValueError("machine must be a name in words, got an empty one")
    rows = [{f.name: _plain(getattr(m, f.name)) for f in fields(m)} for m in taken]
    common = {
        name: rows[0][name] for name in COMMON if all(row[name] == rows[0][name] for row in rows)
    }
    software = {row["backend"]: row["software"] for row in reversed(rows)}
    for row in rows:
        for name in (
            *common,
            *(["software"] if row["software"] == software[row["backend"]] else []),
        ):
            row.pop(name)
    head = {
        "format": FORMAT,
        "machine": machine,
        "spread": SPREAD,
        **common,
        "software": software,
    }
    lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows)
    skips = json.dumps([vars(s) for s in left], ensure_ascii=False)
    start = json.dumps(head, indent=1, ensure_ascii=False).removesuffix("\n}")
    full = f'{start},\n "skipped": {skips},\n "measurements": [\n  {lines}\n ]\n}}\n'
    try:
        Path(path).write_text(full, encoding="utf-8")
    except (OSError, ValueError) as error:  # a folder, no rights, a null character
        why = getattr(error, "strerror", None) or error
        raise ValueError(
            f"path must be a file that can be written, got {shown(str(path))}: {why}"
        ) from None


def _plain(value):
    if isinstance(value, float):
        return float(f"{value:.5g}")
    return (
        dict(value)
        if isinstance(value, Mapping)
        else list(value)
        if isinstance(value, tuple)
        else value
    )


def shipped_runs():
    """Names of the runs that ship with the package.

    Returns
    -------
    tuple of str
        Names that `load_run` takes.

    Notes
    -----
    Source: `scripts/record_measurements.py` wrote them.

    Examples
    --------
    >>> all(name.startswith("run_") for name in shipped_runs())
    True
    """
    folder = resources.files("hwdesign.measure").joinpath("data")
    return tuple(
        sorted(f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json"))
    )


def load_run(path):
    """Read a file that `save_run` wrote.

    Parameters
    ----------
    path : str or Path
        A file, or one of `shipped_runs()`.

    Returns
    -------
    Run
        Machine, measurements [s] and what was skipped.

    Raises
    ------
    ValueError
        If the file is no run, or a measurement lacks its device, its software or its date; the
        message names it.

    Notes
    -----
    Source: the format is this package's own.

    Examples
    --------
    >>> run = load_run(shipped_runs()[0])
    >>> len(run.select("gemm")) > 0
    True
    """
    instance("path", path, str | os.PathLike, f"a file or one of {', '.join(shipped_runs())}")
    shipped = str(path) in shipped_runs()
    file = (
        resources.files("hwdesign.measure").joinpath("data", f"{path}.json")
        if shipped
        else Path(str(path))
    )
    label = Path(str(path)).name
    if not _is_file(file):
        raise ValueError(
            f"path must be a file or one of {', '.join(shipped_runs())}, got {shown(str(path))}"
        )
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        rows = data["measurements"] if data["format"] == FORMAT else None
        common = {name: data[name] for name in COMMON if name in data}
        software = dict(data["software"])
        machine, skipped = data["machine"], tuple(Skipped(**s) for s in data.get("skipped", ()))
    except (ValueError, KeyError, TypeError):
        rows = None
    if not isinstance(rows, list):
        raise ValueError(
            f"{label}: not a run of this package (format {FORMAT!r}, with machine and measurements)"
        )
    measurements = tuple(_read(label, i, common, software, row) for i, row in enumerate(rows, 1))
    return Run(machine=machine, measurements=measurements, skipped=skipped)


def _is_file(path):
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long a name, a null character
        return False


def _read(label, i, common, software, row):
    known = {f.name for f in fields(Measurement)}
    try:
        row = (
            common
            | {"software": software.get(row.get("backend"))}
            | {name: value for name, value in row.items() if name in known}
        )
        required = [n for n in ("device", "software", "taken_on") if not row.get(n)]
        if required:
            raise ValueError(
                f"lacks {', '.join(required)}: a time without them cannot be compared with any "
                "other"
            )
        return Measurement(**row)
    except (TypeError, AttributeError, ValueError) as error:
        operation = row.get("operation", "?") if isinstance(row, dict) else "?"
        raise ValueError(f"{label}: measurement {i} ({operation}): {error}") from None
