"""Published measurements that ship with the package: GEMMs on a grid of shapes, and long tables of
everything else.

Source: the wheel aisimulate 0.13.0.dev202610270000000085 on PyPI (Apache-2.0, NVIDIA);
`scripts/extract_silicon.py` made the files, `data/manifest.csv` and `data/tables.csv` name the
path, the framework version and the kernel of each. How they were taken: CUDA-graph replay, mean of
six; no flush of the L2 cache, but (in the collector's present source, ai-dynamo/aiconfigurator
commit 095f58a) several copies of the operands in turn; GEMM outputs are BF16; the low-precision
rows include quantizing the activations. Serving points were collected from several benchmark runs:
good for trends, of medium trust.
"""

import csv
import functools
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType

import numpy as np

from hwdesign._check import (
    choice,
    dims,
    numbers,
    positive,
    same_shape,
    scalar_or_array,
    shown,
    text,
)
from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import Precision

PREFERENCE = ("sglang", "trtllm", "vllm")  # default framework: the first that has the slice


@dataclass(frozen=True, kw_only=True)
class GemmGrid:
    """One measured slice: the times of one device, precision and framework.

    Parameters
    ----------
    device, precision, framework, version, kernel, source : str
        What was measured, with which software, and the file it was read from.
    m, n, k : ndarray of int
        Axes [element].
    seconds : ndarray of float32, shape (m, n, k)
        Times [s]; NaN where a shape was not measured.

    Examples
    --------
    >>> grid = gemm_grid("GB300", "nvfp4", "trtllm")
    >>> grid.seconds.shape, round(float(grid.at(8192, 10240, 128)) * 1e6, 1)
    ((74, 20, 20), 100.9)
    """

    device: str
    precision: str
    framework: str
    version: str
    kernel: str
    source: str
    m: np.ndarray  # [element]
    n: np.ndarray  # [element]
    k: np.ndarray  # [element]
    seconds: np.ndarray  # [s]

    def at(self, m, n, k):
        """Measured time of shapes on the grid [s]; NaN for a shape of the grid that was not
        measured.

        A `ValueError` names a dimension that is not on the grid, and its neighbours.
        """
        m, n, k = same_shape(**dict(zip("mnk", dims(m=m, n=n, k=k), strict=True)))
        index = tuple(self._index(axis, value) for axis, value in (("m", m), ("n", n), ("k", k)))
        return scalar_or_array(self.seconds[index].astype(np.float64))

    def _index(self, axis, wanted):
        grid = getattr(self, axis)
        place = np.clip(np.searchsorted(grid, wanted), 0, len(grid) - 1)
        off = grid[place] != wanted
        if off.any():
            bad = wanted[off].flat[0]
            near = sorted(int(grid[i]) for i in np.argsort(np.abs(grid - bad))[:2])
            raise ValueError(
                f"{axis} must be a size of {self.label}, got {bad:.16g}; nearest are {near[0]} "
                f"and {near[1]}"
            )
        return place

    @property
    def label(self):
        """Device, precision and framework with its version, for captions."""
        return f"{self.device} {self.precision}, {self.framework} {self.version}"


@functools.cache
def slices():
    """The slices that ship, as a tuple of read-only mappings of the columns of `manifest.csv`.

    Returns
    -------
    tuple of mapping
        Columns device, framework, precision, version, kernel, gpu, rows [shape], file, sha256,
        source.

    Notes
    -----
    Source: `hwdesign/timing/data/manifest.csv`.

    Examples
    --------
    >>> len(slices()), slices()[0]["device"]
    (31, 'GB300')
    """
    return _records("manifest.csv")


def gemm_grid(device, precision, framework=None):
    """Measured GEMM times of a device, precision and framework.

    Parameters
    ----------
    device : str or Device
        "GB300", "B200", "H200", "H100_SXM" or "A100_SXM".
    precision : str
        "bf16", "fp8", "fp8_block" or "nvfp4", where measured.
    framework : str, optional
        "sglang", "trtllm" or "vllm"; by default the first of these that has the slice.

    Returns
    -------
    GemmGrid
        Axes [element] and times [s].

    Raises
    ------
    ValueError
        If nothing of the kind was measured; the message names the slices that exist for the device.

    Notes
    -----
    Source: aisimulate 0.13.0.dev202610270000000085, newest released version of each slice.

    Examples
    --------
    >>> gemm_grid("H100_SXM", "bf16").label
    'H100_SXM bf16, sglang 0.5.20'
    """
    if framework is not None:
        framework = choice("framework", framework, PREFERENCE, normal=str.lower)
    if isinstance(precision, Precision):
        precision = precision.name
    return _load(as_device(device).name, text("precision", precision).lower(), framework)


@functools.cache
def _load(device, precision, framework):
    order = PREFERENCE if framework is None else (framework,)
    for name in order:
        for row in slices():
            if (row["device"], row["precision"], row["framework"]) == (device, precision, name):
                return _read(row)
    have = [f"{r['precision']}/{r['framework']}" for r in slices() if r["device"] == device]
    known = ", ".join(have) or "none; measured devices are " + ", ".join(
        dict.fromkeys(r["device"] for r in slices())
    )
    asked = f"{shown(precision)[1:-1]}/{framework or 'any framework'}"
    raise ValueError(
        f"precision and framework must be a measured slice of {device} ({known}), got {asked}"
    )


def _read(row):
    with (
        resources.files("hwdesign.timing").joinpath("data", row["file"]).open("rb") as handle,
        np.load(handle) as file,
    ):
        arrays = {name: file[name].astype(np.int64) for name in "mnk"} | {
            "seconds": file["seconds"]
        }
    for array in arrays.values():
        array.setflags(write=False)  # the grid is cached and shared
    text = {
        key: row[key] for key in ("device", "precision", "framework", "version", "kernel", "source")
    }
    return GemmGrid(**text, **arrays)


@functools.cache
def tables():
    """The long tables that ship, as a tuple of read-only mappings of the columns of `tables.csv`.

    Returns
    -------
    tuple of mapping
        Columns operation, device, framework, version, gpu, rows [row], file, sha256, source.

    Notes
    -----
    Source: `hwdesign/timing/data/tables.csv`.

    Examples
    --------
    >>> sorted({row["file"].split("_")[0] for row in tables()})
    ['all', 'attention', 'collectives.csv', 'gemm', 'mla', 'moe', 'serving', 'serving.csv']
    """
    return _records("tables.csv")


def measurements(table, device=None, **equal):
    """Rows of a long table, as one array a column.

    Parameters
    ----------
    table : str
        "attention_decode", "attention_prefill", "mla_decode", "mla_decode_trtllm" (an FP8 cache on
        Hopper), "mla_prefill", "moe", "moe_fused", "collectives", "all_to_all", "serving",
        "serving_disaggregated" (DeepSeek-R1 with workers apart for prefill and decode;
        `speculative` is "mtp" where a step gives several tokens, see `served_points`) or
        "gemm_versions" (two versions of one engine, for chapter 3).
    device : str or Device, optional
        The first seven are one file per device and need it; the others are filtered by it.
    **equal
        Column and the value, or list of values, that it must have.

    Returns
    -------
    dict of str to ndarray, shape (rows,)
        Columns of the table: counts [element, token, rank], `bytes` [byte], `seconds`, `ttft` and
        `tpot` [s].

    Raises
    ------
    ValueError
        If the table, the device or a column does not exist; the message lists those that do.

    Notes
    -----
    Source: aisimulate 0.13.0.dev202610270000000085; `tables()` names the file and version of each.

    Examples
    --------
    >>> r1 = measurements(
    ...     "moe", "GB300", precision="nvfp4", routing="balanced", tokens=128, tp=1, ep=[8, 64]
    ... )
    >>> np.round(r1["seconds"] * 1e6).tolist()
    [162.0, 48.0]
    """
    files = {
        row["file"].removesuffix(".csv").removesuffix(f"_{row['device']}.npz") for row in tables()
    }
    table = choice("table", table, sorted(files), normal=str.lower)
    name = None if device is None else as_device(device).name
    have = list(dict.fromkeys(r["device"] for r in tables() if r["file"].startswith(table)))
    if table + ".csv" in (row["file"] for row in tables()):
        rows, equal = _read_csv(table), equal | ({} if name is None else {"device": name})
    elif name in have:
        rows = _read_npz(f"{table}_{name}.npz")
    else:
        raise ValueError(f"device must be one of {', '.join(have)} for {table}, got {device!r}")
    keep = np.ones(len(next(iter(rows.values()))), bool)
    for column, value in equal.items():
        keep &= np.isin(choice("column", column, rows), value)
    return {column: values[keep] for column, values in rows.items()}


@functools.cache
def _read_npz(file):
    path = resources.files("hwdesign.timing").joinpath("data", file)
    with path.open("rb") as handle, np.load(handle) as arrays:
        return {
            name: arrays[name].astype(np.float64)
            if arrays[name].dtype.kind in "uif"
            else arrays[name]
            for name in arrays
        }


@functools.cache
def _read_csv(table):
    records = _records(f"{table}.csv")
    return {name: _column([row[name] for row in records]) for name in records[0]}


def _column(texts):
    """Numbers as float64, with NaN for an empty cell; anything else stays text."""
    try:
        return np.array([float(text or "nan") for text in texts])
    except ValueError:
        return np.array(texts)


def _records(file):
    text = resources.files("hwdesign.timing").joinpath("data", file).read_text(encoding="utf-8")
    return tuple(MappingProxyType(row) for row in csv.DictReader(text.splitlines()))


def sustained(x, rate, *, low=6144, high=16384):
    """Sustained rate of a sweep: the median where the swept dimension is large.

    Parameters
    ----------
    x : array_like of float, shape (s,)
        Swept dimension [element].
    rate : array_like of float, shape (s,)
        Throughput [any unit]; NaN is skipped.
    low, high : float
        Range that counts as large [element].

    Returns
    -------
    float
        Median rate [unit of `rate`].

    Raises
    ------
    ValueError
        If no measured point lies in the range, `x` does not increase, or the lengths differ.

    Notes
    -----
    Source: the rule of this book; the post prints no rule for "sustained".

    Examples
    --------
    >>> float(sustained([1024, 8192, 10240], [1.0, 4.0, 6.0]))
    5.0
    """
    x, rate = _sweep(x, rate)
    large = rate[(x >= low) & (x <= high)]
    if large.size == 0:
        got = f"{x.min():g} to {x.max():g}" if x.size else "none"
        raise ValueError(f"x must have a measured point between {low} and {high}, got {got}")
    return np.median(large)


def saturation_point(x, rate, *, share=0.8, low=6144, high=16384):
    """Where a sweep first reaches a share of its sustained rate, interpolated in log x.

    Parameters
    ----------
    x : array_like of float, shape (s,)
        Swept dimension [element], increasing.
    rate : array_like of float, shape (s,)
        Throughput [any unit]; NaN is skipped.
    share : float
        Share of the sustained rate [dimensionless], between 0 and 1.
    low, high : float
        Range of the sustained rate [element].

    Returns
    -------
    float
        Smallest dimension [element] that reaches the share; the first point of `x` if the sweep
        starts above it.

    Raises
    ------
    ValueError
        If `share` is not between 0 and 1, `x` does not increase, or the lengths differ.

    Notes
    -----
    Source: the rule of this book.

    Examples
    --------
    >>> x = np.array([128, 1024, 8192])
    >>> round(float(saturation_point(x, [1.0, 6.0, 10.0])))
    2896
    """
    if not 0 < numbers("share", share) <= 1:
        raise ValueError(f"share must be > 0 and <= 1, got {share}")
    goal = share * sustained(x, rate, low=low, high=high)
    x, rate = _sweep(x, rate)
    first = int(np.argmax(rate >= goal))
    if first == 0:
        return x[0]
    return np.exp(np.interp(goal, rate[first - 1 : first + 1], np.log(x[first - 1 : first + 1])))


def _sweep(x, rate):
    """A sweep without its unmeasured points; x must increase and match the rates."""
    (x,), rate = positive(x=x), numbers("rate", rate)
    if x.ndim != 1 or x.shape != rate.shape:
        raise ValueError(
            f"x and rate must be two lists of one length, got shapes {x.shape} and {rate.shape}"
        )
    if (np.diff(x) <= 0).any():
        raise ValueError(f"x must increase, got {x.tolist()[:8]}")
    return x[~np.isnan(rate)], rate[~np.isnan(rate)]
