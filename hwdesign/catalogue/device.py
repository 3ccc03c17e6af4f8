"""Accelerators as the data of `devices.csv`: one number a row, each with unit, source, date read
and status.

Status says how much to trust a number: *datasheet* (a vendor's figure, quoted by the named source),
*derived* (worked out from other rows), *reported* (read off a device or a tool by somebody),
*unverified* (one weak source). A number nobody published is absent. Peaks are dense, links are
one-way; sparse peaks are kept in rows of their own and no formula of the package reads them. A
memory is as large as the driver's tool reports it, not as its maker rounds it.

A device that the catalogue lacks is read from a JSON file; see `device`.
"""

import csv
import functools
import json
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from hwdesign._check import check_fields, choice, instance, positive, shown, text
from hwdesign.catalogue.precision import PRECISIONS
from hwdesign.catalogue.precision import precision as as_precision
from hwdesign.formulas import roofline

TEXTS = ("form_factor", "reported_name")  # fields that are no numbers
AMBIGUOUS = {
    "A100": ("A100_SXM", "the PCIe card has less bandwidth and is not in the catalogue"),
    "H100": ("H100_SXM", "H100_PCIE has 24 % less math and 40 % less bandwidth"),
}
PEAKS = ("dense_peak", "sparse_peak")
# What a file may say of a device, so wide that only a forgotten prefix lies outside.
RANGES = {
    "dense_peak": (1e9, 1e19, "FLOP/s"),
    "sparse_peak": (1e9, 1e19, "FLOP/s"),
    "memory_bandwidth": (1e9, 1e15, "byte/s"),
    "memory_capacity": (1e8, 1e14, "byte"),
    "link_bandwidth": (1e7, 1e15, "byte/s, one way"),
    "link_latency": (1e-9, 1e-2, "s"),
    "link_domain": (2, 1e6, "devices"),
    "sms": (1, 1e6, "multiprocessors"),
    "l2": (1e3, 1e12, "byte"),
    "power_limit": (1, 1e5, "W"),
}
COUNTS = ("link_domain", "sms")
NEEDED = ("name", "form_factor", "dense_peak", "memory_bandwidth", "memory_capacity")
MOST_BYTES = 1_000_000  # of a file


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator. Fields that no source states are `None`.

    Parameters
    ----------
    name, form_factor : str
        Catalogue name and what kind of part it is (SXM, PCIe, NVL72 superchip, ...).
    reported_name : str or None
        What its driver calls it, without the vendor, as a regular expression.
    dense_peak, sparse_peak : mapping of str to float
        Peak rate by number format [FLOP/s]. `sparse_peak` needs 2:4 structured sparsity and is
        never a default.
    memory_bandwidth : float
        [byte/s]
    memory_capacity : float
        What the driver's tool (nvidia-smi, rocm-smi) reports [byte]; the CUDA runtime hands out up
        to 1 % less.
    link_bandwidth : float or None
        To other devices of the domain, one way [byte/s].
    link_latency : float or None
        [s]
    link_domain : int or None
        Devices that reach each other at `link_bandwidth`.
    sms : int or None
        Streaming multiprocessors (compute units on AMD).
    l2 : float or None
        Last-level cache shared by the chip [byte].
    power_limit : float or None
        What it may draw in the long run (TDP) [W].
    measured : mapping of (str, str) to (mapping, str)
        By operation and format, constants that were fitted on a run and the run in words; see
        `hwdesign.measured_device`.

    Examples
    --------
    >>> GB300 = device("GB300")
    >>> GB300.ridge("nvfp4"), GB300.form_factor
    (1875.0, 'NVL72 superchip')
    """

    name: str
    form_factor: str
    reported_name: str | None = None  # what a driver calls it, as a regular expression
    dense_peak: Mapping = field(hash=False)  # [FLOP/s]
    sparse_peak: Mapping = field(default_factory=dict, hash=False)  # [FLOP/s]
    memory_bandwidth: float  # [byte/s]
    memory_capacity: float  # [byte]
    link_bandwidth: float | None = None  # [byte/s], one way
    link_latency: float | None = None  # [s]
    link_domain: int | None = None  # [device]
    sms: int | None = None  # [SM]
    l2: float | None = None  # [byte]
    power_limit: float | None = None  # [W]
    measured: Mapping = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self):
        optional = ("link_bandwidth", "link_latency", "l2", "power_limit")
        check_fields(
            self,
            none=(*optional, "link_domain", "sms"),
            texts=("name", "form_factor"),
            positive=("memory_bandwidth", "memory_capacity", *optional),
            whole=("link_domain", "sms"),
        )
        for name in PEAKS:
            peaks = instance(name, getattr(self, name), Mapping, "a mapping of format to FLOP/s")
            for fmt, peak in peaks.items():
                positive(**{f"{name} of {text(name, fmt)}": peak})
            object.__setattr__(self, name, MappingProxyType(dict(peaks)))
        instance("measured", self.measured, Mapping, "a mapping, as measured_device makes it")
        object.__setattr__(self, "measured", MappingProxyType(dict(self.measured)))

    def __reduce__(self):  # a read-only mapping cannot be pickled
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        mappings = {name: dict(values[name]) for name in (*PEAKS, "measured")}
        return _revive, (values | mappings,)

    def peak_flops(self, precision):
        """Dense peak of a number format [FLOP/s]; a `ValueError` lists the formats this device
        multiplies.
        """
        fmt = as_precision(precision)
        if fmt.rate not in self.dense_peak:
            raise ValueError(
                f"precision must be one {self.name} has a dense peak for "
                f"({', '.join(self.dense_peak)}), "
                f"got {fmt.name!r}, which multiplies at the {fmt.rate!r} rate"
            )
        return self.dense_peak[fmt.rate]

    def ridge(self, precision):
        """Ridge point of a number format: dense peak over memory bandwidth [FLOP/byte]."""
        return float(roofline.ridge(self.peak_flops(precision), self.memory_bandwidth))


def _revive(values):
    return Device(**values)


@functools.cache
def rows():
    """All rows of `devices.csv`, as a tuple of read-only mappings of column to text.

    Returns
    -------
    tuple of mapping
        Columns device, field, precision, value, unit, source, accessed, status; the unit of each
        value is in `unit`.

    Notes
    -----
    Source: the column `source` of each row.

    Examples
    --------
    >>> sorted({row["status"] for row in rows()})
    ['datasheet', 'derived', 'reported', 'unverified']
    """
    text = resources.files("hwdesign.catalogue").joinpath("devices.csv").read_text(encoding="utf-8")
    return tuple(MappingProxyType(row) for row in csv.DictReader(text.splitlines()))


@functools.cache
def _devices():
    names = dict.fromkeys(row["device"] for row in rows())
    return {name: _device(name) for name in names}


def _device(name):
    values = {"dense_peak": {}, "sparse_peak": {}}
    for row in rows():
        if row["device"] != name:
            continue
        if row["field"] in PEAKS:
            values[row["field"]][row["precision"]] = float(row["value"])
        elif row["field"] in TEXTS:
            values[row["field"]] = row["value"]
        else:
            number = float(row["value"])
            values[row["field"]] = int(number) if row["field"] in COUNTS else number
    return Device(name=name, **values)


def device_names():
    """Names of the devices of the catalogue.

    Returns
    -------
    tuple of str
        Names, in the order of `devices.csv`.

    Notes
    -----
    Source: `devices.csv`.

    Examples
    --------
    >>> device_names()[:3]
    ('A100_SXM', 'H100_SXM', 'H100_PCIE')
    """
    return tuple(_devices())


def device(device):
    """Device by name or from a JSON file; a `Device` is returned as it is.

    Parameters
    ----------
    device : str, path or Device
        Name as in `device_names()`, upper or lower case, with blank, hyphen or underscore. "H100"
        and "A100" do not say which form factor is meant: they give the SXM module with a
        `UserWarning` that says so. What ends in ".json" is the path of a file.

    Returns
    -------
    Device
        Its fields carry their units.

    Raises
    ------
    ValueError
        If the name is unknown, with the known ones; or the file is no device, with the key, its
        value and what is accepted.

    Notes
    -----
    Source: `devices.csv`, one source per number; of a file, whoever wrote it.

    A file holds one JSON object with the fields of `Device`, in base units: ``name`` (none of the
    catalogue's), ``form_factor``, ``dense_peak`` (an object of format to FLOP/s),
    ``memory_bandwidth`` [byte/s] and ``memory_capacity`` [byte]; and if they are known
    ``sparse_peak``, ``link_bandwidth`` (one way), ``link_latency``, ``link_domain``, ``sms`` (132
    are taken without it), ``l2`` (no cache without it), ``power_limit`` [W] (no energy without it)
    and ``reported_name``. For example::

        {
            "name": "my card",
            "form_factor": "PCIe",
            "dense_peak": {"bf16": 2e14, "fp8": 4e14},
            "memory_bandwidth": 1.5e12,
            "memory_capacity": 48e9,
            "link_bandwidth": 64e9,
        }

    Examples
    --------
    >>> device("h100 sxm").peak_flops("bf16") / 1e12
    989.0
    """
    if isinstance(device, Device):
        return device
    if isinstance(device, os.PathLike) or (
        isinstance(device, str) and device.lower().endswith(".json")
    ):
        return _from_file(Path(device))
    key = _key(device) if isinstance(device, str) else device
    if isinstance(key, str) and key in AMBIGUOUS:
        taken, why = AMBIGUOUS[key]
        warnings.warn(
            f"device {device!r} does not name a form factor: taking {taken} ({why})",
            UserWarning,
            stacklevel=2,
        )
        device = taken
    return choice("device", device, _devices(), normal=_key)


def _from_file(path):
    """Device of a JSON file; every complaint names the file, the key, its value and what is
    accepted.
    """
    label, found = path.name, {}
    for name, value in _json_object(path).items():
        known = [f.name for f in fields(Device) if f.name != "measured"]
        choice(f"{label}: a key", name, known)
        if value is not None:
            found[name] = _file_value(f"{label}: {name}", name, value)
    for name in NEEDED:
        if name not in found:
            like = f"a number [{RANGES[name][2]}]" if name in RANGES else "text"
            like = "an object of format to FLOP/s" if name in PEAKS else like
            raise ValueError(f"{label}: {name} must be given, {like}, got nothing")
    if _key(found["name"]) in {*_devices(), *AMBIGUOUS}:
        raise ValueError(
            f"{label}: name must be none of the catalogue's, which has numbers of its own, got "
            f"{found['name']!r}"
        )
    return Device(**found)


def _file_value(where, name, value):
    """The value of a key of a device file, checked."""
    if name in PEAKS:
        if not isinstance(value, dict) or not value:
            raise ValueError(f"{where} must be an object of format to FLOP/s, got {shown(value)}")
        rates = dict.fromkeys(form.rate for form in PRECISIONS.values())
        return {
            choice(f"{where}: a format", form, list(rates)): _number(
                f"{where} of {form}", name, peak
            )
            for form, peak in value.items()
        }
    if name in RANGES:
        return _number(where, name, value)
    if not isinstance(value, str) or not value.isprintable() or not 1 <= len(value) <= 60:
        raise ValueError(
            f"{where} must be text of 1 to 60 printable characters, got {shown(value)}"
        )
    if name == "reported_name":
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(
                f"{where} must be a regular expression, got {value!r}: {error}"
            ) from None
    return value


def _number(where, name, value):
    """A number of a device file within the range of its field."""
    low, high, unit = RANGES[name]
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not low <= value <= high:
        raise ValueError(
            f"{where} must be a number from {low:g} to {high:g} [{unit}], got {shown(value)}"
        )
    if name not in COUNTS:
        return float(value)
    if value != int(value):
        raise ValueError(f"{where} must be a whole number, got {value!r}")
    return int(value)


def _json_object(path):
    """The one object of a JSON file, in which no key stands twice."""

    def once(pairs):
        found = {}
        for name, value in pairs:
            if name in found:
                raise ValueError(f"{path.name}: key {shown(name)} must stand once")
            found[name] = value
        return found

    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # missing, a folder, a null character
        why = getattr(error, "strerror", None) or error
        raise ValueError(
            f"device must be a name or a JSON file that can be read, got {shown(str(path))}: {why}"
        ) from None
    if len(data) > MOST_BYTES:
        raise ValueError(f"{path.name} must be at most {MOST_BYTES} bytes, as a device is")
    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=once, parse_int=float)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path.name} must be JSON, got an error: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} must hold one JSON object, got {shown(value)}")
    return value


def _key(name):
    return name.strip().upper().replace("-", "_").replace(" ", "_")


def __getattr__(name):
    """The catalogue's names as constants: ``from hwdesign.catalogue.device import GB300``."""
    if name in _devices():
        return _devices()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
