"""What ``hwdesign fix`` does: a config is judged, fixed, told of and, if asked, written."""

import json
import sys
import time
from pathlib import Path

from hwdesign.advice.case import config_path
from hwdesign.advice.fixing import fix_watched
from hwdesign.advice.judge import cases_of
from hwdesign.advice.verdict import RANK
from hwdesign.models.checkpoint import SIDECAR
from hwdesign.safe import visible

PATIENCE = 2.0  # after which it is told what is looked at, and how often [s]


def fix_config(source, *, output=None, asked=None, loads=(), limits=None, **options):
    """The report on a config that was fixed, and the exit status.

    Parameters
    ----------
    source : str or path
        A config.json, a folder with one, or the name of a shipped config.
    output : path, optional
        Where the new config is written.
    asked : dict, optional
        Options of `hwdesign.advice.fixing.fix`: guidelines, budget, keep, server_only.
    loads : sequence of (int, int, int)
        Lengths of prompt and answer [token] and users over all GPUs.
    limits : Limits, optional
        From which cost on a verdict is a warning and a failure [dimensionless].
    **options
        Fields of `Case`; None stands for its default.

    Returns
    -------
    tuple of (str, int)
        Text that ends without a new line, and 1 where a break or a failure is left, else 0.

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
    >>> told, status = fix_config("gpt2", asked={"guidelines": [2]})
    >>> print(told.splitlines()[0], status)
    gpt2 on GB300: 1 change, no findings left 0
    """
    cases = cases_of(source, loads=loads, **options)
    path = config_path(source)
    values = json.loads(path.read_text(encoding="utf-8-sig"))
    fixed = fix_watched(cases, values, watch=_Watch(), limits=limits, **(asked or {}))
    lines = [str(fixed)]
    if output is not None:
        text = json.dumps(fixed.config, indent=2, ensure_ascii=False) + "\n"
        Path(output).write_text(text, encoding="utf-8", newline="\n")
        lines += ["", f"written to {visible(str(output), 200)}", *_beside(path, Path(output))]
    return "\n".join(lines), int(RANK[fixed.status] >= RANK["fail"])


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
