"""Command line: ``hwdesign show config.json``, ``hwdesign measure``."""

import argparse
import json
import sys
from pathlib import Path

import hwdesign
from hwdesign.units import fmt


def main(arguments=None):
    """Run the command line.

    Parameters
    ----------
    arguments : list of str, optional
        Words after the program's name; by default those of the process.

    Returns
    -------
    int
        Exit status [dimensionless]: 0, or 2 for bad input, which is told in one line on standard error.

    Notes
    -----
    Source: POSIX conventions.

    Examples
    --------
    >>> main(["show", "no-such.json"])
    2
    """
    parser = argparse.ArgumentParser(prog="hwdesign", description="Language models and the hardware they run on.")
    parser.add_argument("--version", action="version", version=f"hwdesign {hwdesign.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    show = commands.add_parser(
        "show",
        help="the sheet of a model: parameters by part, active parameters, KV cache, FLOP a token",
        description="Reads a Hugging Face config.json and counts the model exactly, or says which key it does not understand.",
        epilog="example: hwdesign show deepseek-r1    (a shipped config)   hwdesign show path/to/config.json --format json",
    )
    show.add_argument("config", help=f"a config.json, or one of: {', '.join(hwdesign.config.names())}")
    show.add_argument("--format", choices=("text", "json"), default="text", help="text for people (default) or json")
    measure = commands.add_parser(
        "measure",
        help="time GEMMs, copies and attention on this machine",
        description="Times this machine: on a GPU or CPU with torch, on a CPU with NumPy alone. Less than a minute on a CPU.",
        epilog="Close other programs first. GPU to GPU: torchrun --nproc-per-node 2 -m hwdesign.measure.collectives",
    )
    measure.add_argument("--quick", action="store_true", help="a short list")
    measure.add_argument("--json", metavar="FILE", type=Path, help="write the run to this file")
    measure.add_argument("--picture", metavar="FILE", type=Path, help="draw the roofline: .svg or .png, needs matplotlib")
    measure.add_argument("--no-torch", action="store_true", help="use NumPy even if torch is here")
    chosen = parser.parse_args(arguments)
    return _measure(chosen) if chosen.command == "measure" else _show(chosen)


def _show(chosen):
    try:
        model = hwdesign.Model.from_config(chosen.config)
    except (ValueError, OSError) as error:
        return _refuse(error)
    from hwdesign.models.sheet import sheet, sheet_text

    print(json.dumps(sheet(model), indent=1) if chosen.format == "json" else sheet_text(model))
    return 0


def _measure(chosen):
    from hwdesign.measure.backends import as_backend
    from hwdesign.measure.runs import Measurement, save_run
    from hwdesign.measure.suite import run_suite, summary

    for option, path in (("--json", chosen.json), ("--picture", chosen.picture)):
        if path and not path.absolute().parent.is_dir():
            return _refuse(f"{option} must lie in a folder that exists, got {path}")
    if chosen.picture and chosen.picture.suffix not in (".svg", ".png"):
        return _refuse(f"--picture must end in .svg or .png, got {chosen.picture}")
    backend = as_backend("numpy" if chosen.no_torch else None)
    print(f"{backend.name} on {backend.device}; {', '.join(f'{k} {v}' for k, v in backend.software.items())}")
    found = run_suite(backend, quick=chosen.quick, progress=_progress if sys.stderr.isatty() else None)
    if sys.stderr.isatty():
        _progress("")
    taken = [m for m in found if isinstance(m, Measurement)]
    for m in found:
        print(str(m).split("\n    disturbed")[0])
    print("\n".join(_summary_lines(summary(found), {f for m in taken for f in m.flags})))
    try:
        if chosen.json:
            save_run(chosen.json, found, machine=backend.device)
        if chosen.picture:
            from hwdesign.lessons.figures.machine import machine_roofline

            machine_roofline(found).figure.savefig(chosen.picture)
    except ImportError:
        print("no picture: matplotlib is not installed (pip install matplotlib)")
    except (ValueError, OSError) as error:
        return _refuse(error)
    return 0


def _summary_lines(found, flags):
    rates = (f"best {name} GEMM {fmt(rate, 'FLOP/s')}" for name, rate in found["rate"].items())
    ridges = (f"{name} {fmt(ridge, 'FLOP/byte')}" for name, ridge in found["ridge"].items())
    yield "" if not found["bandwidth"] else f"\nbandwidth of a copy {fmt(found['bandwidth'], 'byte/s')}"
    yield from rates
    yield from ([f"ridge: {', '.join(ridges)}"] if found["ridge"] else [])
    yield from ([f"shortest kernel {fmt(found['launch'], 's')}"] if found["launch"] else [])
    yield "± is the way from the best round, which is shown, to the worst"
    yield from (f"{flag}: close them and measure again" for flag in flags if flag.startswith("disturbed"))


def _progress(text):
    print(f"\r{text[:78]:<78}", end="\r", file=sys.stderr, flush=True)


def _refuse(why):
    print(f"hwdesign: {' '.join(str(why).split())}", file=sys.stderr)
    return 2
