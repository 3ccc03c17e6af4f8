"""Published GEMM measurements that ship with the package: time of ``C[m, n] = A[m, k] @ B[k, n]`` on a grid of shapes.

Source: the wheel aiconfigurator-core 0.12.0 on PyPI (Apache-2.0, NVIDIA); `scripts/extract_silicon.py` made the files,
`data/manifest.csv` names the path, the framework version and the kernel of each. How they were taken: CUDA-graph replay,
mean of six, no flush of the L2 cache; outputs are BF16; the low-precision rows include quantizing the activations.
"""

import csv
import functools
from dataclasses import dataclass
from importlib import resources

import numpy as np

from hwdesign._check import positive, scalar_or_array
from hwdesign.catalogue.device import device as as_device

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
        """Measured time of shapes on the grid [s]; a `ValueError` names a dimension that was not measured and its neighbours."""
        index = [self._index(axis, value) for axis, value in zip("mnk", (m, n, k), strict=True)]
        found = self.seconds[tuple(index)].astype(np.float64)
        return scalar_or_array(found)

    def _index(self, axis, value):
        grid, wanted = getattr(self, axis), np.asarray(value)
        place = np.clip(np.searchsorted(grid, wanted), 0, len(grid) - 1)
        off = grid[place] != wanted
        if off.any():
            bad = wanted[off].flat[0] if wanted.ndim else wanted
            near = sorted(int(grid[i]) for i in np.argsort(np.abs(grid - bad))[:2])
            raise ValueError(f"{axis} must be a measured size of {self.label}, got {bad}; nearest are {near[0]} and {near[1]}")
        return place

    @property
    def label(self):
        """Device, precision and framework with its version, for captions."""
        return f"{self.device} {self.precision}, {self.framework} {self.version}"


@functools.cache
def slices():
    """The slices that ship, as a tuple of mappings of the columns of `manifest.csv`.

    Returns
    -------
    tuple of dict
        Columns device, framework, precision, version, kernel, gpu, rows [shape], file, sha256, source.

    Notes
    -----
    Source: `hwdesign/timing/data/manifest.csv`.

    Examples
    --------
    >>> len(slices()), slices()[0]["device"]
    (31, 'GB300')
    """
    text = resources.files("hwdesign.timing").joinpath("data/manifest.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


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
    Source: aiconfigurator-core 0.12.0, newest version of each slice.

    Examples
    --------
    >>> gemm_grid("H100_SXM", "bf16").label
    'H100_SXM bf16, sglang 0.5.14'
    """
    return _load(as_device(device).name, str(getattr(precision, "name", precision)).lower(), framework)


@functools.cache
def _load(device, precision, framework):
    order = PREFERENCE if framework is None else (framework,)
    for name in order:
        for row in slices():
            if (row["device"], row["precision"], row["framework"]) == (device, precision, name):
                return _read(row)
    have = [f"{r['precision']}/{r['framework']}" for r in slices() if r["device"] == device]
    known = ", ".join(have) or "none; measured devices are " + ", ".join(dict.fromkeys(r["device"] for r in slices()))
    asked = f"{precision}/{framework or 'any framework'}"
    raise ValueError(f"precision and framework must be a measured slice of {device} ({known}), got {asked}")


def _read(row):
    with resources.files("hwdesign.timing").joinpath("data", row["file"]).open("rb") as handle, np.load(handle) as file:
        arrays = {name: file[name].astype(np.int64) for name in "mnk"} | {"seconds": file["seconds"]}
    for array in arrays.values():
        array.setflags(write=False)  # the grid is cached and shared
    text = {key: row[key] for key in ("device", "precision", "framework", "version", "kernel", "source")}
    return GemmGrid(**text, **arrays)


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
        If no measured point lies in the range.

    Notes
    -----
    Source: the rule of this book; the post prints no rule for "sustained".

    Examples
    --------
    >>> float(sustained([1024, 8192, 10240], [1.0, 4.0, 6.0]))
    5.0
    """
    (x,) = positive(x=x)
    rate = np.asarray(rate, dtype=np.float64)
    large = rate[(x >= low) & (x <= high) & ~np.isnan(rate)]
    if large.size == 0:
        raise ValueError(f"x must have a measured point between {low} and {high}, got {x.min():g} to {x.max():g}")
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
        Smallest dimension [element] that reaches the share; the first point of `x` if the sweep starts above it.

    Raises
    ------
    ValueError
        If `share` is not between 0 and 1.

    Notes
    -----
    Source: the rule of this book.

    Examples
    --------
    >>> x = np.array([128, 1024, 8192])
    >>> round(float(saturation_point(x, [1.0, 6.0, 10.0])))
    2896
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be > 0 and <= 1, got {share}")
    goal = share * sustained(x, rate, low=low, high=high)
    x, rate = np.asarray(x, dtype=np.float64), np.asarray(rate, dtype=np.float64)
    x, rate = x[~np.isnan(rate)], rate[~np.isnan(rate)]
    first = int(np.argmax(rate >= goal))
    if first == 0:
        return x[0]
    return np.exp(np.interp(goal, rate[first - 1 : first + 1], np.log(x[first - 1 : first + 1])))
