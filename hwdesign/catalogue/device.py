"""Accelerators as the data of `devices.csv`: one number a row, each with unit, source, date read
and status.

Status says how much to trust a number: *datasheet* (a vendor's figure, quoted by the named source),
*derived* (worked out from other rows), *reported* (read off a device or a tool by somebody),
*unverified* (one weak source). A number nobody published is absent. Peaks are dense, links are
one-way; sparse peaks are kept in rows of their own and no formula of the package reads them.
"""

import csv
import functools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from types import MappingProxyType

from hwdesign._check import check_fields, choice, instance, positive, text
from hwdesign.catalogue.precision import precision as as_precision
from hwdesign.formulas import roofline

TEXTS = ("form_factor", "reported_name")  # fields that are no numbers
AMBIGUOUS = {
    "A100": ("A100_SXM", "the PCIe card has less bandwidth and is not in the catalogue"),
    "H100": ("H100_SXM", "H100_PCIE has 24 % less math and 40 % less bandwidth"),
}


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
        [byte], decimal
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
    sparse_peak: Mapping = field(hash=False)  # [FLOP/s]
    memory_bandwidth: float  # [byte/s]
    memory_capacity: float  # [byte]
    link_bandwidth: float | None = None  # [byte/s], one way
    link_latency: float | None = None  # [s]
    link_domain: int | None = None  # [device]
    sms: int | None = None  # [SM]
    l2: float | None = None  # [byte]

    def __post_init__(self):
        optional = ("link_bandwidth", "link_latency", "l2")
        check_fields(
            self,
            none=(*optional, "link_domain", "sms"),
            texts=("name", "form_factor"),
            positive=("memory_bandwidth", "memory_capacity", *optional),
            whole=("link_domain", "sms"),
        )
        for name in ("dense_peak", "sparse_peak"):
            peaks = instance(name, getattr(self, name), Mapping, "a mapping of format to FLOP/s")
            for fmt, peak in peaks.items():
                positive(**{f"{name} of {text(name, fmt)}": peak})
            object.__setattr__(self, name, MappingProxyType(dict(peaks)))

    def __reduce__(self):  # a read-only mapping cannot be pickled
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return _revive, (
            values | {name: dict(values[name]) for name in ("dense_peak", "sparse_peak")},
        )

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
        if row["field"] in ("dense_peak", "sparse_peak"):
            values[row["field"]][row["precision"]] = float(row["value"])
        elif row["field"] in TEXTS:
            values[row["field"]] = row["value"]
        else:
            number = float(row["value"])
            values[row["field"]] = int(number) if row["field"] in ("sms", "link_domain") else number
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
    """Device by name; a `Device` is returned as it is.

    Parameters
    ----------
    device : str or Device
        Name as in `device_names()`, upper or lower case, with blank, hyphen or underscore. "H100"
        and "A100" do not say which form factor is meant: they give the SXM module with a
        `UserWarning` that says so.

    Returns
    -------
    Device
        Its fields carry their units.

    Raises
    ------
    ValueError
        If the name is unknown; the message lists the known ones.

    Notes
    -----
    Source: `devices.csv`, one source per number.

    Examples
    --------
    >>> device("h100 sxm").peak_flops("bf16") / 1e12
    989.0
    """
    if isinstance(device, Device):
        return device
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


def _key(name):
    return name.strip().upper().replace("-", "_").replace(" ", "_")


def __getattr__(name):
    """The catalogue's names as constants: ``from hwdesign.catalogue.device import GB300``."""
    if name in _devices():
        return _devices()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
