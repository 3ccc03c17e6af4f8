"""What ``hwdesign fix`` does: a config is judged, fixed, told of and, if asked, written."""

import argparse
import json
import re
import shutil
import sys
import textwrap
import time
from pathlib import Path

from hwdesign.advice.case import config_path
from hwdesign.advice.fixing import fix_watched
from hwdesign.advice.judge import cases_of
from hwdesign.advice.verdict import MOST, RANK
from hwdesign.models.checkpoint import SIDECAR
from hwdesign.safe import visible

NARROWEST, WIDEST = 60, 100  # of a terminal [character]
PATIENCE = 2.0  # after which it is told what is looked at, and how often [s]
ABOUT = {
    "description": "Changes a config as little as clears what check finds at the same options, at "
    "all loads, and says what each change costs and what is left, and why. Nothing is written "
    "without --output.",
    "epilog": "examples: hwdesign fix config.json --device H200 --tp 8 -o fixed.json; hwdesign fix "
    "config.json --tp 8 --server-only. Exit codes: 0; 1 where a break or a failure is left; 2 bad "
    "input",
}


def _budget(text):
    """A share of the parameters."""
    if not re.fullmatch(r"0?\.[0-9]+|0", text) or float(text) > MOST:
        raise argparse.ArgumentTypeError(f"must be a share from 0 to {MOST}, got {text!r}")
    return float(text)


def _names(text):
    """Names between commas."""
    return tuple(text.split(","))


def add_own(parser, guidelines):
    """Adds to a parser what is fixed and the options that `check` has not; `guidelines` reads their
    numbers from a text.
    """
    kept = "what must not move: heads, kv_heads, layers, hidden, width, experts, vocabulary"
    parser.add_argument("configs", metavar="CONFIG", nargs=1, help="as of check")
    for name, shape, read, what in (
        ("guidelines", "N,N", guidelines, "whose findings are to be cleared (all)"),
        ("budget", "S", _budget, "share by which the parameters may change, as in 0.01 (0.02)"),
        ("keep", "NAME,NAME", _names, kept),
    ):
        parser.add_argument(f"--{name}", metavar=shape, type=read, help=what)
    told = "plans, recipe and cache are changed, and printed as options; the model stays"
    parser.add_argument("--server-only", action="store_true", help=told)
    told = "write the new config here"
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help=told)


def fix_config(chosen, output, setting):
    """The report on a config that was fixed, and the exit status.

    Parameters
    ----------
    chosen : argparse.Namespace
        A command line: configs, of which there is one, guidelines, budget, keep, server_only,
        output.
    output : path or None
        Where the new config is written.
    setting : dict
        How the model runs: loads, limits and fields of `Case`, None for their defaults; lengths in
        [token].

    Returns
    -------
    tuple of (str, int)
        Text, and 1 where a break or a failure is left, else 0.

    Raises
    ------
    ValueError
        If the config or an option is refused.
    OSError
        If the new config cannot be written.

    Notes
    -----
    Source: `hwdesign.advice.fixing.fix`.

    Examples
    --------
    >>> names = dict.fromkeys(("budget", "keep", "output"))
    >>> chosen = argparse.Namespace(configs=["gpt2"], guidelines=(2,), server_only=False, **names)
    >>> told, status = fix_config(chosen, None, {"loads": (), "limits": None})
    >>> print(told.splitlines()[0], status)
    gpt2 on GB300: 1 change, no findings left 0
    """
    if chosen.output and (chosen.server_only or str(chosen.output) == "-"):
        raise ValueError(
            "--output must be a file for the config, and absent with --server-only, got "
            f"{chosen.output}"
        )
    (source,), options = chosen.configs, {"limits": setting["limits"]}
    for name in ("guidelines", "budget", "keep", "server_only"):
        if getattr(chosen, name) is not None:
            options[name] = getattr(chosen, name)
    cases = cases_of(source, **{name: v for name, v in setting.items() if name != "limits"})
    path = config_path(source)
    values = json.loads(path.read_text(encoding="utf-8-sig"))
    fixed = fix_watched(cases, values, watch=_Watch(), **options)
    width = max(NARROWEST, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))
    lines = [broken_at(str(fixed), width)]
    if output is not None:
        text = json.dumps(fixed.config, indent=2, ensure_ascii=False) + "\n"
        Path(output).write_text(text, encoding="utf-8", newline="\n")
        lines += ["", f"written to {visible(str(output), 200)}", *_beside(path, Path(output))]
    return "\n".join([*lines, ""]), int(RANK[fixed.status] >= RANK["fail"])


def broken_at(text, width):
    """A text whose lines are broken at a width [character], the rest of each indented by two more;
    options stay whole, to be pasted.

    >>> print(broken_at("  one two three", 10))
      one two
        three
    """
    lines = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        if len(line) <= width or line.startswith("--", len(indent)):
            lines.append(line)
            continue
        shape = {"initial_indent": indent, "subsequent_indent": f"{indent}  "}
        whole = {"break_long_words": False, "break_on_hyphens": False}
        lines += textwrap.wrap(line.strip(), width, **shape, **whole)
    return "\n".join(lines)


def _beside(path, output):
    """What to copy where another file says the formats of the weights, in a line, as a list."""
    own = path.with_name(f"{path.stem}.{SIDECAR}")
    shared = path.with_name(SIDECAR)
    found = own if own.is_file() else shared
    if not found.is_file() or (found == shared and path.stem != "config"):
        return []
    name = f"{output.stem}.{SIDECAR}"
    return [f"its formats stand in {found.name}: put a copy beside it, as {visible(name, 200)}"]


class _Watch:
    """Says on standard error what is looked at, where it takes long."""

    def __init__(self):
        self.told = time.monotonic()

    def __call__(self, text):
        if sys.stderr and time.monotonic() - self.told > PATIENCE:
            self.told = time.monotonic()
            print(f"hwdesign: looking at {text}", file=sys.stderr, flush=True)
