"""What is calibrated: each case is a slice of a published table, a model of its times, and the part that is held out.

Used by `fit_calibration.py`, which computes the error that is printed. The cases themselves are in `cases_gemm.py`,
`cases_attention.py`, ...: each module names its `OPERATIONS` and yields its `cases`.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hwdesign.timing.silicon import tables

PARTS = ("gemm", "small", "attention", "sparse", "state", "experts", "links")
SEED = 0

# Bounds: start, lowest, highest. Shares of the datasheet's rates stop at 1.
SECONDS = {"fixed": (8e-6, 3e-7, 5e-5)}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One calibration: where the times come from, the model, its constants' bounds, and which times are held out."""

    operation: str
    device: str
    precision: str
    framework: str
    version: str
    seconds: np.ndarray  # [s]
    predict: Callable  # from constants, and rows to take, to seconds
    bounds: dict
    held: np.ndarray
    subsets: dict
    starts: tuple = ({},)
    weights: np.ndarray | float = 1.0
    shape: dict = field(default_factory=dict)  # what the package's function of these times takes, in columns
    beside: np.ndarray | float = 0.0  # what a row holds beside the time of that function [s]

    @property
    def label(self):
        """Operation, device, precision and framework, for messages."""
        return " ".join(x for x in (self.operation, self.device, self.precision, self.framework, self.version) if x)

    def error(self, constants, rows=slice(None)):
        """Relative error of the model: modelled over measured, minus 1 [dimensionless]."""
        return self.predict(constants, rows) / self.seconds[rows] - 1


def third(*keys):
    """True where the combination of keys is among the third that is held out whole; the seed is fixed."""
    rows = np.stack([np.asarray(key, float) for key in keys], axis=1)
    groups, index = np.unique(rows, axis=0, return_inverse=True)
    order = np.random.default_rng(SEED).permutation(len(groups))
    return np.isin(index.ravel(), order[: round(len(groups) / 3)])


def every_third(key):
    """True where the key is the third, sixth, ... of its sorted values."""
    return np.isin(key, np.unique(key)[2::3])


def version_of(operation, device):
    """(framework, version) of a long table."""
    return next((r["framework"], r["version"]) for r in tables() if (r["operation"], r["device"]) == (operation, device))


def part(name):
    """The module of one part."""
    return importlib.import_module(f"cases_{name}")


def cases(source, parts=PARTS):
    """Every case of these parts, one after the other."""
    for name in parts:
        yield from part(name).cases(source)
