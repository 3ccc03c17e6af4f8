"""Fit the energy of kernels on measured power, and measure the error on what was held out.

    python scripts/fit_energy.py WHEEL

Writes `energy.csv` (the constants that ship, fitted on the training part) and `energy_accuracy.csv` into `hwdesign/timing/data/`.
Held out are a third of the (n, k) pairs of GEMMs, with all their m, and a third of the shapes of expert layers, in every format.
The error is that of the joules at the measured time, that is of the watts. Deterministic: the same tables give the same files.
"""

import argparse
import csv
import sys
from pathlib import Path

import cases_energy as measured
import numpy as np
from silicon_source import WHEEL, Source

from hwdesign.timing.calibration import fit
from hwdesign.timing.energy import watts

OUT = Path(__file__).parents[1] / "hwdesign" / "timing" / "data"
SCALE = 0.05
FORMS = tuple(measured.FORMATS.values())
BOUNDS = {
    "byte": (8e-11, 1e-12, 1e-9),
    "tile": (64, 1, 256),
    "small tile": (16, 1, 256),
    "knee": (3, 1, 30),
    **dict.fromkeys(FORMS, (5e-13, 1e-14, 3e-12)),
}
UNITS = {"idle": "W", "limit": "W", "byte": "J/byte", "link": "J/byte", "tile": "row", "small tile": "row", "knee": "1"}
GIVEN = {  # not fitted
    "idle": (measured.IDLE, "custom_allreduce: one reading on an idle GPU, up to 64 KiB"),
    "limit": (measured.LIMIT, "power_limit of the tables"),
    "link": (1e-10, "custom_allreduce: between 4e-11 and 3e-10, the readings lag; not fitted"),
}


def predicted(c, rows):
    """Watts of rows of the tables under constants."""
    flop = np.array([c[form] for form in FORMS])[[FORMS.index(form) for form in rows["form"]]]
    fixed = {name: value for name, (value, _) in GIVEN.items()}
    tile = np.where(rows["kind"] == "gemm", c["tile"], c["small tile"])
    return watts(rows["flops"], rows["bytes"], rows["seconds"], rows["rows"], c | fixed | {"flop": flop, "tile": tile})


def errors(rows, c):
    """Rows of energy_accuracy.csv: mean and median error [%] by table and format, of all and of those below the limit."""
    error = 100 * np.abs(predicted(c, rows) / rows["power"] - 1)
    for kind in ("gemm", "experts"):
        for form in FORMS:
            for name, some in (
                ("all", rows["power"] > 0),
                ("few rows", rows["rows"] <= measured.FEW),
                ("below 850 W", rows["power"] < 850),
            ):
                mine = (rows["kind"] == kind) & (rows["form"] == form) & some
                held, train = error[mine & rows["held"]], error[mine & ~rows["held"]]
                spread = (f"{held.mean():.2f}", f"{np.median(held):.2f}", f"{train.mean():.2f}")
                yield f"energy {kind}", measured.DEVICE, form, measured.FRAMEWORK, measured.VERSION, name, len(held), *spread


def write(name, columns, rows):
    with open(OUT / name, "w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerows([columns, *rows])


def main(wheel):
    rows = measured.rows(Source(wheel))
    train = {name: values[~rows["held"]] for name, values in rows.items()}
    c = fit(lambda c: predicted(c, train), train["power"], BOUNDS, weights=train["weight"], scale=SCALE)
    c = {name: float(f"{value:.4g}") for name, value in c.items()}
    place = (measured.DEVICE, measured.FRAMEWORK, measured.VERSION)
    found = [(name, "", f"{value:g}", UNITS[name], *place, source) for name, (value, source) in GIVEN.items()]
    for name, value in c.items():
        form = name if name in FORMS else ""
        found.append(("flop" if form else name, form, f"{value:g}", UNITS.get(name, "J/FLOP"), *place, "fitted on gemm and moe"))
    write("energy.csv", ("constant", "precision", "value", "unit", "device", "framework", "version", "source"), found)
    told = list(errors(rows, c))
    columns = ("operation", "device", "precision", "framework", "version", "subset", "held_out", "mape", "median", "in_sample")
    write("energy_accuracy.csv", columns, told)
    for row in told:
        print(f"{row[0]} {row[2]} {row[5]}: {row[7]} % of {row[6]}", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", help=f"the wheel of {WHEEL}")
    main(parser.parse_args().wheel)
