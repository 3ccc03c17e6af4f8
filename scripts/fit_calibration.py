"""Fit the constants of the calibrated time model on the shipped tables, and measure the error on what was held out.

    python scripts/fit_calibration.py WHEEL                 # constants.csv, accuracy.csv, held_out.csv: about ten minutes
    python scripts/fit_calibration.py WHEEL --only experts  # only the rows of one part
    python scripts/fit_calibration.py WHEEL --sample        # held_out.csv alone, with the constants that ship
    python scripts/fit_calibration.py WHEEL --ablation      # also ablation.csv: about ten minutes more

Writes into `hwdesign/timing/data/`, and a sample of what was held out, on which the tests time the package, into `tests/data/`.
The constants that ship are those fitted on the training part, so the error that is printed is theirs. Deterministic: the same
tables give the same files. Parts that time products take the GEMM constants that ship: after a change of those run it twice.
"""

import argparse
import contextlib
import csv
import sys
import time
import zlib
from pathlib import Path

import numpy as np
from calibration_cases import PARTS, cases, part
from cases_gemm import gemm_case
from silicon_source import WHEEL, Source

from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.formulas.roofline import gemm_bytes
from hwdesign.timing import gemm_kernel
from hwdesign.timing.calibration import constants as shipped
from hwdesign.timing.calibration import fit
from hwdesign.timing.kernels import HOT, cold_share

OUT = Path(__file__).parents[1] / "hwdesign" / "timing" / "data"
SAMPLE_OUT = Path(__file__).parents[1] / "tests" / "data"
SAMPLED = 12  # held-out rows of each case in held_out.csv
SCALE = 0.03  # log errors beyond this count linearly: the error that is reported is the mean absolute one
UNITS = {"fixed": "s", "wave": "s", "chain": "s", "row": "s", "tile": "s", "local": "s", "touched": "s"}
UNITS |= dict.fromkeys(("merge", "softmax"), "s") | {"edge": "token"}  # of attention
DIMENSIONLESS = ("attention_prefill", "mla_prefill")  # whose chain is in units of a tile's math
UNITS |= {"latency": "s", "doubling": "s", "second": "s", "step": "s", "split": "element"}
UNITS |= {"fill": "s", "far": "s", "reach": "byte"}
UNITS |= {"chunk": "s", "token": "s", "start": "s", "until": "entry"}
IN_DECODE = {"pick": "s", "fill": "1"}  # in prefill a share and a time
ABLATED = (
    ("GB300", "bf16"),
    ("A100_SXM", "bf16"),
    ("H100_SXM", "bf16"),
    ("GB300", "fp8_block"),
    ("GB300", "nvfp4"),
    ("B200", "nvfp4"),
)
NEUTRAL = {  # the value that switches a constant's effect off
    "feed": 1e9,
    "overlap": 50.0,
    "balance": 1.0,
    "wave": 1e-15,
    "split": 1e9,
    "chain": 1e-18,
    "quantize": 1e9,
    "fixed": 1e-12,
}


def fitted(case, *, bounds=None, predict=None):
    """Constants of a case: each start on every fifth training time, the best one refined on all of them."""
    predict, bounds = predict or case.predict, bounds or case.bounds
    train = np.flatnonzero(~case.held)
    few = train[:: 5 if len(train) > 5000 else 1]
    weights = np.broadcast_to(case.weights, case.seconds.shape)

    def solve(rows, limits, steps):
        return fit(lambda c: predict(c, rows), case.seconds[rows], limits, weights=weights[rows], scale=SCALE, steps=steps)

    def loss(c):
        error = np.log(predict(c, few) / case.seconds[few])
        return np.sum(weights[few] * np.sqrt(1 + np.square(error / SCALE)))

    def limited(start):
        return {name: (np.clip(start.get(name, first), low, high), low, high) for name, (first, low, high) in bounds.items()}

    best = min((solve(few, limited(start), 80) for start in case.starts), key=loss)
    return solve(train, limited(best), 40)


def accuracy(case, constants):
    """Rows of accuracy.csv: mean and median absolute error [%] of each subset on what was held out, and on the rest."""
    error = 100 * np.abs(case.error(constants))
    for name, subset in case.subsets.items():
        held, train = error[subset & case.held], error[subset & ~case.held]
        yield name, len(held), f"{held.mean():.2f}", f"{np.median(held):.2f}", f"{train.mean():.2f}"


def sampled(case, constants):
    """Rows of held_out.csv: some of what was held out, one from each of as many stretches of the table, with the time by these
    constants.

    What was timed stands as name=value, without the zeros.
    """
    held = np.flatnonzero(case.held)
    ends = np.unique(np.linspace(0, len(held), SAMPLED + 1).astype(int))
    # not every n-th row, since tables repeat themselves, and others in each case, since cases share their shapes
    rows = held[np.random.default_rng(zlib.crc32(case.label.encode())).integers(ends[:-1], ends[1:])]
    beside = np.broadcast_to(case.beside, case.seconds.shape)
    for i, seconds in zip(rows.tolist(), case.predict(constants, rows), strict=True):
        told = ";".join(f"{name}={values[i]:.10g}" for name, values in case.shape.items() if values[i])
        yield told, f"{beside[i]:.9g}", f"{case.seconds[i]:.6g}", f"{seconds:.6g}"


def check_bounds(case, constants):
    """Raise where a constant lies outside of its bounds."""
    for name, (_, low, high) in case.bounds.items():
        if not low * 0.999 <= constants[name] <= high * 1.001:
            raise AssertionError(f"{case.label}: {name} must be within {low:g} and {high:g}, got {constants[name]:g}")
    if set(constants) != set(case.bounds):
        raise AssertionError(f"{case.label}: constants must be {sorted(case.bounds)}, got {sorted(constants)}")


def nearby(case):
    """Error of a plain local lookup [%]: the time of the nearest training pair (n, k), scaled by the ratio of the bounds."""
    m, n, k = (case.shape[x] for x in "mnk")
    pairs = np.unique(np.stack([n, k], 1)[~case.held], axis=0)
    times = {(a, b): {} for a, b in pairs.tolist()}
    for a, b, rows, t, out in zip(n, k, m, case.seconds, case.held, strict=True):
        if not out:
            times[a, b][rows] = t
    logs, out = np.log(pairs), np.full(len(m), np.nan)
    for i in np.flatnonzero(case.held):
        distance = np.hypot(*(logs - np.log([n[i], k[i]])).T)
        near = [j for j in np.argsort(distance)[:12] if m[i] in times[tuple(pairs[j])]][:6]
        x = np.column_stack([np.ones(len(near)), logs[near]])
        y = np.log([times[tuple(pairs[j])][m[i]] for j in near])
        weight = 1 / (distance[near] + 0.05)
        plane = np.linalg.lstsq(x * weight[:, None], y * weight, rcond=None)[0]
        out[i] = np.exp(plane @ [1, np.log(n[i]), np.log(k[i])])
    return 100 * np.abs(out / case.seconds - 1)


def hot(case, edge):
    """The model with operands hot where all of them fit in a share `edge` of the L2 cache: one constant more, how much faster."""
    device, recipe = as_device(case.device), as_recipe(case.precision)
    cold = cold_share(gemm_bytes(*case.shape.values(), **recipe.operand_bytes) * HOT / edge, device)

    def predict(c, rows=slice(None)):
        shape = (x[rows] for x in case.shape.values())
        bandwidth = c["bandwidth"] / (cold[rows] + (1 - cold[rows]) / c["hot"])
        return sum(gemm_kernel.gemm_kernel_terms(*shape, device, recipe, c | {"bandwidth": bandwidth}).values())

    return predict


@contextlib.contextmanager
def patched(name, value):
    """A number of the GEMM model that is not fitted, changed for a while."""
    before = getattr(gemm_kernel, name)
    setattr(gemm_kernel, name, value)
    try:
        yield
    finally:
        setattr(gemm_kernel, name, before)


def ablation(source):
    """Rows of ablation.csv: the held-out error [%] of the full model and of each smaller or different one, refitted."""
    for device, precision in ABLATED:
        case = gemm_case(source, device, precision, "sglang")

        def errors(name, count, error, case=case, device=device, precision=precision):
            means = [f"{np.mean(error[subset & case.held]):.2f}" for subset in case.subsets.values()]
            print(f"  {device} {precision} {name}: {' / '.join(means)} %", file=sys.stderr)
            return device, precision, name, count, *means

        def refitted(name, bounds, case=case, errors=errors):
            free = sum(low < high for _, low, high in bounds.values())
            return errors(name, free, 100 * np.abs(case.error(fitted(case, bounds=bounds))))

        yield refitted("full", case.bounds)
        for constant in case.bounds:
            if constant in NEUTRAL:
                yield refitted(f"no {constant}", case.bounds | {constant: (NEUTRAL[constant],) * 3})
        off = {
            name: (NEUTRAL[name],) * 3 for name in case.bounds if name in NEUTRAL and name not in ("fixed", "quantize", "overlap")
        }
        yield refitted("smooth roofline", case.bounds | off)
        yield refitted("roofline", case.bounds | off | {"overlap": (NEUTRAL["overlap"],) * 3})
        datasheet = {name: NEUTRAL.get(name, 1.0) for name in case.bounds}
        yield errors("datasheet roofline", 0, 100 * np.abs(case.error(datasheet)))
        for name, what, value in (
            ("one tile, 128 x 128", "TILES", ((128, 128),)),
            ("one tile, 256 x 128", "TILES", ((256, 128),)),
            ("operands read once", "ROOM", np.inf),
            ("C written beside the main loop", "LATE", 0.0),
        ):
            with patched(what, value):
                yield refitted(name, case.bounds)
        for edge in (HOT, 0.1):
            predict = hot(case, edge)
            constants = fitted(case, bounds=case.bounds | {"hot": (2, 1, 12)}, predict=predict)
            error = 100 * np.abs(predict(constants) / case.seconds - 1)
            yield errors(f"operands hot below {edge} of the L2", len(constants), error)
        yield errors("local lookup (no model)", "", nearby(case))


def write(name, header, rows, folder=OUT):
    """Write a CSV file."""
    with open(folder / name, "w", newline="", encoding="utf-8") as handle:
        csv.writer(handle, lineterminator="\n").writerows([header, *rows])


def kept(name, parts, folder=OUT):
    """Rows of a CSV file that belong to other parts; none where there is no such file."""
    mine = {operation for one in parts for operation in part(one).OPERATIONS}
    if not (folder / name).exists():
        return []
    with open(folder / name, newline="", encoding="utf-8") as handle:
        return [row for row in list(csv.reader(handle))[1:] if row[0] not in mine]


KEY = ("operation", "device", "precision", "framework")
COLUMNS = {
    "constants.csv": (*KEY, "constant", "value", "unit"),
    "accuracy.csv": (*KEY, "version", "subset", "held_out", "mape", "median", "in_sample"),
    "held_out.csv": (*KEY, "shape", "beside", "seconds", "modelled"),
}


def main(wheel, parts, with_ablation, only_sample):
    found, start = {name: [] for name in COLUMNS}, time.perf_counter()
    for case in cases(Source(wheel), parts):
        key = (case.operation, case.device, case.precision, case.framework)
        constants = dict(shipped(*key)) if only_sample else {n: float(f"{value:.4g}") for n, value in fitted(case).items()}
        check_bounds(case, constants)
        units = UNITS | ({"chain": "1"} if case.operation in DIMENSIONLESS else {})
        units |= IN_DECODE if case.operation.endswith("decode") else {}
        found["constants.csv"] += [(*key, name, f"{value:g}", units.get(name, "1")) for name, value in constants.items()]
        found["held_out.csv"] += [(*key, *row) for row in sampled(case, constants)]
        if only_sample:
            continue
        rows = [(*key, case.version, *row) for row in accuracy(case, constants)]
        found["accuracy.csv"] += rows
        errors = ", ".join(f"{row[5]} {row[7]} %" for row in rows)
        print(f"{case.label}: {errors} after {time.perf_counter() - start:.0f} s", file=sys.stderr)
    order = [operation for one in PARTS for operation in part(one).OPERATIONS]
    for name in ("held_out.csv",) if only_sample else COLUMNS:
        folder = SAMPLE_OUT if name == "held_out.csv" else OUT
        rows = found[name] + (kept(name, parts, folder) if parts != PARTS else [])
        write(name, COLUMNS[name], sorted(rows, key=lambda row: order.index(row[0])), folder)
    if with_ablation:
        write(
            "ablation.csv", ("device", "precision", "model", "constants", "large", "decode", "all"), list(ablation(Source(wheel)))
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", help=f"the wheel of {WHEEL}")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="fit these parts and keep the rows of the others")
    parser.add_argument("--sample", action="store_true", help="write the sample alone, with the constants that ship")
    parser.add_argument("--ablation", action="store_true", help="also refit every smaller model")
    arguments = parser.parse_args()
    main(arguments.wheel, tuple(arguments.only or PARTS), arguments.ablation, arguments.sample)
