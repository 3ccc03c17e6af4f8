"""Command line: ``hwdesign show config.json``."""

import argparse
import json
import sys

import hwdesign


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
    chosen = parser.parse_args(arguments)
    try:
        model = hwdesign.Model.from_config(chosen.config)
    except (ValueError, OSError) as error:
        print(f"hwdesign: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    from hwdesign.models.sheet import sheet, sheet_text

    print(json.dumps(sheet(model), indent=1) if chosen.format == "json" else sheet_text(model))
    return 0
