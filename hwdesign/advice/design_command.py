"""The command ``hwdesign design``: its options, its progress and what it writes."""

import argparse
import os
import re
import sys
import time
import warnings
from pathlib import Path

from hwdesign.advice.bands import RATIOS
from hwdesign.advice.design_families import FAMILIES
from hwdesign.advice.design_space import VOCABULARY
from hwdesign.advice.designing import design
from hwdesign.catalogue.device import device_names
from hwdesign.catalogue.engine import engine_names

PATIENCE = 2.0  # after which progress is told [s]
OFTEN = 0.2  # between two lines of it [s]
LETTERS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
STOPPED = 130  # exit status after an interrupt
ABOUT = (
    "Searches the shapes of a budget, with every plan that the engine runs and every format that "
    "the device multiplies, and prints the designs that no other beats both in tokens per second "
    "of a user and of a GPU. Proportions stay inside the bands of trained models; nothing is said "
    "of how well a model answers. Ctrl-C ends the search and prints what was found."
)
EXAMPLE = (
    "example: hwdesign design --parameters 30e9 --active 3e9 --context 32768 --device H200 "
    "--gpus 8 --tpot 20ms --output design.json --pick 3. Exit codes: 0; 1 where no design keeps "
    "to the targets; 2 bad input; 130 after Ctrl-C"
)


def elements(text):
    """A number of parameters, as 30e9 or 30B.

    >>> elements("30B"), elements("3e9")
    (30000000000.0, 3000000000.0)
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:[eE][+]?[0-9]{1,2})?)([KMBTkmbt]?)", text)
    value = float(found[1]) * LETTERS[found[2].upper()] if found else 0.0
    if not value >= 1:
        raise argparse.ArgumentTypeError(
            f"must be a number of parameters, as 30e9 or 30B, got {text!r}"
        )
    return value


def seconds(text):
    """A time with its unit, as 20ms or 1.5s [s].

    >>> seconds("20ms"), seconds("1.5s")
    (0.02, 1.5)
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(s|ms|us)", text)
    if not found or not float(found[1]) > 0:
        raise argparse.ArgumentTypeError(
            f"must be a time above 0 with its unit, us, ms or s, as in 20ms, got {text!r}"
        )
    return float(found[1]) * SECONDS[found[2]]


def load(text):
    """Lengths of prompt and answer, as 32000/1000 [token].

    >>> load("32000/1000")
    (32000, 1000)
    """
    words = text.split("/")
    if len(words) != 2 or not all(re.fullmatch("[1-9][0-9]{0,8}", word) for word in words):
        raise argparse.ArgumentTypeError(
            "must be prompt/answer, two whole numbers from 1 to 999999999 as in 32000/1000, got "
            f"{text!r}"
        )
    return tuple(map(int, words))


def number(text):
    """A whole number.

    >>> number("8")
    8
    """
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 1 to 999999999, got {text!r}"
        )
    return int(text)


def ratios(text):
    """Names of ratios, as aspect,granularity.

    >>> ratios("aspect,granularity")
    ('aspect', 'granularity')
    """
    found = tuple(text.split(","))
    if not set(found) <= set(RATIOS):
        raise argparse.ArgumentTypeError(
            f"must be names out of {', '.join(RATIOS)}, as in aspect,granularity, got {text!r}"
        )
    return found


def add(commands, told):
    """Adds the command to a parser's commands; `told` is its line of help."""
    parser = commands.add_parser(
        "design", help=told, description=ABOUT, epilog=EXAMPLE, allow_abbrev=False
    )
    must, several = {"required": True}, {"action": "append", "default": []}
    devices = f"accelerator: {', '.join(device_names())}; repeatable"
    families = f"{', '.join(FAMILIES)} (all that the budget allows); repeatable"
    engines = f"whose plans and kernels are taken: {', '.join(engine_names())} (vllm)"
    names = f"bands of trained models that may be left: {', '.join(RATIOS)}"
    options = (
        ("parameters", "N", elements, "total, as 30e9 or 30B, met within 3 per cent", must),
        ("active", "N", elements, "used by a token, the embedding included (all: dense)", {}),
        ("context", "N", number, "tokens that a new token sees; the answer has 1024", {}),
        ("load", "P/A", load, "tokens of prompt and answer instead; repeatable", several),
        ("device", "NAME", str, devices, must | several),
        ("gpus", "N", number, "GPUs over all copies of the model (8)", {"default": 8}),
        ("tpot", "TIME", seconds, "longest time per output token, as 20ms", must),
        ("ttft", "TIME", seconds, "longest time of a prompt alone, as 1s", {}),
        ("family", "NAME", str, families, several),
        ("engine", "NAME", str, engines, {"default": "vllm"}),
        ("leave", "RATIO", ratios, names, {"default": ()}),
        ("compare", "CONFIG", str, "a published model, served the same way; repeatable", several),
        ("pick", "N", number, "number of the design that --output writes", {}),
    )
    for name, shape, read, what, more in options:
        parser.add_argument(f"--{name}", metavar=shape, type=read, help=what, **more)
    rows = f"rows of the embedding ({VOCABULARY})"
    parser.add_argument("--vocabulary", metavar="N", type=number, default=VOCABULARY, help=rows)
    file = "write the picked design as a config.json"
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help=file)


class Progress:
    """Tells on standard error how much is done, once the search takes longer than a moment."""

    def __init__(self):
        self.start, self.last = time.monotonic(), 0.0

    def __call__(self, share):
        """Tells a share that is done."""
        now = time.monotonic()
        if sys.stderr and now - self.start > PATIENCE and now - self.last > OFTEN:
            self.last = now
            print(f"\rsearched {100 * share:3.0f} %", end="", file=sys.stderr, flush=True)

    def done(self):
        """Ends its line, if there is one."""
        if sys.stderr and self.last:
            print("\r" + " " * 20, end="\r", file=sys.stderr, flush=True)


def run(chosen, write, refuse, progress=None):
    """Runs the command.

    Parameters
    ----------
    chosen : argparse.Namespace
        Its options.
    write : callable
        Writes a text to a file, or to standard output where that is None.
    refuse : callable
        Tells an error and returns the exit status.
    progress : Progress, optional
        What is told while it runs.

    Returns
    -------
    int
        Exit status [dimensionless].
    """
    progress = progress or Progress()
    try:
        _check_output(chosen)
        with warnings.catch_warnings(action="ignore"):  # the report says it
            found = design(
                **{name: getattr(chosen, name) for name in ("parameters", "active", "context")},
                **{name: getattr(chosen, name) for name in ("load", "device", "gpus", "tpot")},
                **{name: getattr(chosen, name) for name in ("ttft", "family", "engine", "leave")},
                **{name: getattr(chosen, name) for name in ("vocabulary", "compare")},
                progress=progress,
            )
            progress.done()
            write(f"{found}\n", None)
        if chosen.output:
            write(found.config(chosen.pick), chosen.output)
    except (ValueError, OSError) as error:
        progress.done()
        return refuse(error)
    if not found.complete:
        return STOPPED
    return 0 if found.points else 1


def _check_output(chosen):
    """Refuses an output that cannot be written before anything is searched."""
    if (chosen.output is None) != (chosen.pick is None):
        raise ValueError(
            "--output and --pick must be given together, as in --output design.json --pick 3, got "
            f"{'--pick ' + str(chosen.pick) if chosen.pick else '--output ' + str(chosen.output)}"
        )
    if chosen.output and not os.path.isdir(chosen.output.absolute().parent):
        raise ValueError(f"--output must lie in a folder that exists, got {chosen.output}")
    if chosen.output and chosen.output.is_symlink():
        raise ValueError(f"--output must be no symbolic link, got {chosen.output}")
