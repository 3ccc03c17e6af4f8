"""Command line: ``hwdesign show config.json``, ``hwdesign check config.json``,
``hwdesign fix config.json``, ``hwdesign diff A B``, ``hwdesign measure``, ``hwdesign design``.
"""

import argparse
import gc
import json
import os
import re
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import hwdesign

# A module that one command needs is imported there, so that `show` starts without the others'.

WAYS = {
    "tp": "ways of tensor parallelism",
    "kvp": "ways in which the cache is cut along the context",
    "dp": "data-parallel groups of attention",
    "ep": "ways in which the experts are spread over these GPUs",
    "pp": "pipeline stages, also with --attention and --ffn",
}
HELP = {
    "show": "the sheet of a model: parameters by part, active parameters, KV cache, FLOP a token",
    "check": "the design checklist: a verdict of each guideline on a model, with costs and fixes",
    "fix": "the smallest changes of a config, or of the server, that clear what check finds",
    "diff": "what differs between two configs, or two reports of check, and which verdicts change",
    "measure": "time GEMMs, copies and attention on this machine",
    "design": "the designs of a budget that serve best on a device: shapes, plans, formats",
}
REPEATED = ("load", "measured")  # options that may stand several times
CHOICES = (
    ("format", ("text", "markdown", "json", "sarif", "html"), "of the report"),
    ("fail-on", ("fail", "warn", "never"), "from which verdict on the exit code is 1"),
    ("color", ("auto", "always", "never"), "of text; auto: on a terminal"),
)
DIFF_CHOICES = (
    ("format", ("text", "markdown", "json"), "of what is told"),
    ("fail-on", ("never", "worse"), "worse: exit code 1 where a verdict of B is worse"),
)
FAILURES = {"fail": ("fail", "break"), "warn": ("warn", "fail", "break"), "never": ()}


def main(arguments=None):
    """Run the command line.

    Parameters
    ----------
    arguments : list of str, optional
        Words after the program's name; by default those of the process.

    Returns
    -------
    int
        Exit status [dimensionless]: 0; 1 where a verdict of `check` is a failure or one of `diff`
        is worse, as far as --fail-on asks; 2 for bad input, which is told in one line on standard
        error; 3 where `check` could judge too little. A reader who leaves early, as `head` does, is
        no error.

    Notes
    -----
    Source: POSIX conventions.

    Examples
    --------
    >>> main(["show", "no-such.json"])
    2
    """
    collected = gc.isenabled()
    gc.disable()  # what is loaded stays; to look for garbage in it takes a tenth of the time
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments), collected)
    finally:
        if collected:
            gc.enable()


def _run(words, collected):
    """Exit status of a command line; `collected` says whether garbage was."""
    chosen = _parser(words).parse_args(words)
    if collected and chosen.command != "show":
        gc.enable()
    commands = {"show": _show, "check": _check, "fix": _fix, "diff": _diff, "measure": _measure}
    commands["design"] = _design
    try:
        status = commands[chosen.command](chosen)
        _flush()
    except BrokenPipeError:
        _nobody_reads()
        return 0
    return status


def _parser(words):
    """Parser of a command line; options of commands that do not stand in it are left out."""
    parser = _Parser(prog="hwdesign", description="Language models and the hardware they run on.")
    parser.add_argument("--version", action="version", version=f"hwdesign {hwdesign.__version__}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Mixed
    )
    adders = _add_show, _add_check, _add_fix, _add_diff, _add_measure, _add_design
    for name, add in zip(HELP, adders, strict=True):
        if name in words:
            add(commands)
        else:
            commands.add_parser(name, help=HELP[name])
    return parser


class _Parser(argparse.ArgumentParser):
    """Bad arguments are told in one line, too, without anything that a terminal would obey."""

    def error(self, message):
        """Leave with 2 and the message in one line."""
        self.exit(_refuse(f"{message} (see {self.prog} --help)"))

    def _print_message(self, message, file=None):
        _write(message or "", None)


class _Mixed(_Parser):
    """What is judged may stand before, between and after options."""

    inside = False

    def parse_known_args(self, args=None, namespace=None):
        """Options and what is judged, in any order."""
        if self.inside:
            return super().parse_known_args(args, namespace)
        words = list(args)
        if "--" in words:  # what follows are names, which argparse would forget here
            end = words.index("--")
            names = words[end + 1 :]
            words = words[:end]
            for name in names:
                words.append(os.path.join(".", name) if name.startswith("-") else name)
        self.inside = True  # the parser of argparse for this calls back
        try:
            return self.parse_known_intermixed_args(words, namespace)
        finally:
            self.inside = False


def _add_show(commands):
    from hwdesign.models import config

    show = commands.add_parser(
        "show",
        help=HELP["show"],
        description="Reads a Hugging Face config.json and counts the model exactly, or says "
        "which key it does not understand.",
        epilog="examples: hwdesign show deepseek-r1 (a shipped config); hwdesign show "
        "path/to/config.json --format json; hwdesign show llama-3.1-8b --format blocks > mine.json",
    )
    show.add_argument(
        "config",
        help="a model's folder, its config.json, a file of blocks, or one of: "
        + ", ".join(config.names()),
    )
    show.add_argument(
        "--format",
        choices=("text", "json", "blocks"),
        default="text",
        help="text for people (default), json, or blocks: a file that show, check and diff read "
        "back, to be changed by hand",
    )
    show.add_argument(
        "--weights",
        metavar="PATH",
        help="a folder of .safetensors files, one of them or their index: says whether they hold "
        "what the sheet counts, to the last parameter, or which tensors differ (exit code 1)",
    )


def _add_measure(commands):
    measure = commands.add_parser(
        "measure",
        help=HELP["measure"],
        description="Times this machine: on a GPU or CPU with torch, on a CPU with NumPy "
        "alone. Less than a minute on a CPU.",
        epilog="Close other programs first. GPU to GPU: torchrun --nproc-per-node 2 -m "
        "hwdesign.measure.collectives",
    )
    measure.add_argument("--quick", action="store_true", help="a short list")
    measure.add_argument("--json", metavar="FILE", type=Path, help="write the run to this file")
    picture = "draw the roofline: .svg or .png, needs matplotlib"
    measure.add_argument("--picture", metavar="FILE", type=Path, help=picture)
    measure.add_argument("--no-torch", action="store_true", help="use NumPy even if torch is here")


def _add_check(commands):
    told = (Path(__file__).parent / "advice" / "check_help.txt").read_text(encoding="utf-8")
    head, _, foot = told.partition("\n\n\n")
    check = commands.add_parser(
        "check",
        help=HELP["check"],
        description=head,
        epilog=foot,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    configs = "a model's folder, its config.json, a file of blocks, or a shipped model "
    configs += "(hwdesign show --help)"
    check.add_argument("configs", metavar="CONFIG", nargs="+", help=configs)
    _add_options(check, _setting_options() + REPORT_OPTIONS, CHOICES)


def _add_fix(commands):
    from hwdesign.advice.fix_command import ABOUT, add_own

    fix = commands.add_parser("fix", help=HELP["fix"], allow_abbrev=False, **ABOUT)
    _add_options(fix, _setting_options() + LIMIT_OPTIONS, ())
    add_own(fix, _guidelines)


def _add_diff(commands):
    diff = commands.add_parser(
        "diff",
        help=HELP["diff"],
        description="Judges two configs at the same options, or reads two reports that check "
        "--format json wrote, and says what differs: sizes, formats, plans, times, verdicts.",
        epilog="exit codes: 0; 1 with --fail-on worse where a verdict of B is worse; 2 bad input",
        allow_abbrev=False,
    )
    sides = "a config.json, a file of blocks, a shipped model, or a report of check --format json"
    for side in ("A", "B"):
        diff.add_argument(side.lower(), metavar=side, help=sides)
    _add_options(diff, _setting_options() + LIMIT_OPTIONS, DIFF_CHOICES)


def _add_design(commands):
    from hwdesign.advice.design_command import add

    add(commands, HELP["design"])


def _add_options(parser, options, choices):
    """Options that take a value, and those with a choice of values, the first by default."""
    for name, shape, read, what in options:
        action = "append" if name in REPEATED else "store"
        parser.add_argument(f"--{name}", metavar=shape, type=read, help=what, action=action)
    for name, known, what in choices:
        told = f"{what} ({known[0]})"
        parser.add_argument(f"--{name}", choices=known, default=known[0], help=told)


def _setting_options():
    """Options that say how the model runs, as (name, shape, type, help)."""
    from hwdesign.catalogue.engine import engine_names

    names = ", ".join(hwdesign.device_names())
    devices = f"accelerator: {names} (GB300); or a .json file with its datasheet"
    recipes = "bf16, fp8, fp8_block, nvfp4, mxfp4, w4a16 (the checkpoint's, else bf16)"
    formats = f"formats of weights and activations: {recipes}"
    attention = "plan of attention, as in tp=8,kvp=4; with --ffn instead of --tp"
    ffn = "plan of the feed-forward part over as many GPUs, as in ep=32"
    ways = tuple((way, "N", _whole, f"{what} (1)") for way, what in WAYS.items())
    runs = "run of hwdesign measure --json on this device, whose constants it takes; repeatable"
    return (
        ("device", "NAME", str, devices),
        ("measured", "FILE", str, runs),
        ("engine", "NAME", str, f"whose defaults are taken: {', '.join(engine_names())} (vllm)"),
        ("recipe", "NAME", str, formats),
        (
            "cache",
            "NAME",
            str,
            "format of the cache: bf16, fp8 (the checkpoint's, else the engine's)",
        ),
        *ways,
        ("attention", "PLAN", str, attention),
        ("ffn", "PLAN", str, ffn),
        ("batch", "N", _whole, "sequences in flight over all GPUs (64)"),
        ("context", "N", _whole, "tokens that each new token sees (8192)"),
        ("load", "P/A/U", _load, LOAD),
    )


def _whole(text):
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 1 to 999999999, got {text!r}"
        )
    return int(text)


def _load(text):
    words = text.split("/")
    if len(words) != 3 or not all(re.fullmatch("[1-9][0-9]{0,8}", word) for word in words):
        raise argparse.ArgumentTypeError(
            "must be prompt/answer/users, three whole numbers from 1 to 999999999 as in "
            f"8192/1024/64, got {text!r}"
        )
    return tuple(map(int, words))


def _guidelines(text):
    from hwdesign.advice.guidelines import GUIDELINES

    words = text.split(",")
    known = {str(number): number for number in GUIDELINES}
    if not set(words) <= set(known):
        raise argparse.ArgumentTypeError(
            f"must be numbers of guidelines from 1 to {max(GUIDELINES)}, as in 4,7, got {text!r}"
        )
    return tuple(sorted({known[word] for word in words}))


def _share(text):
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]+)?", text) or not 0 < float(text) <= 100:
        raise argparse.ArgumentTypeError(f"must be per cent, above 0 and up to 100, got {text!r}")
    return float(text) / 100


LOAD = (
    "prompt/answer/users instead of --batch and --context, as in 8192/1024/64: lengths in tokens, "
    "users over all GPUs; several times for several loads"
)
LIMIT_OPTIONS = (
    ("warn-at", "P", _share, "per cent of the step from which a cost is a warning (5)"),
    ("fail-at", "P", _share, "per cent of the step from which a cost is a failure (20)"),
)
REPORT_OPTIONS = (
    *LIMIT_OPTIONS,
    ("ignore", "N,N", _guidelines, "guidelines that do not count for the status, as in 4,7"),
    ("output", "FILE", Path, "write the report to this file (-: standard output)"),
)


def _check(chosen):
    from hwdesign.advice.judge import judge
    from hwdesign.safe import visible

    try:
        options = _check_options(chosen)
    except ValueError as error:
        return _refuse(error)
    reports, errors = [], []
    for source in chosen.configs:
        try:
            reports.append(judge(source, **options))
        except (ValueError, OSError) as error:
            errors.append(visible(f"{source}: {' '.join(str(error).split())}", 1000))
            _refuse(errors[-1])
    if reports or chosen.format != "text":
        try:
            _write(_rendered(chosen, reports, errors), chosen.output)
        except OSError as error:
            return _refuse(
                "--output must be a file that can be written, got "
                f"{chosen.output or 'standard output'}: {error.strerror}"
            )
    if errors:
        return 2
    if any(report.worst in FAILURES[chosen.fail_on] for report in reports):
        return 1
    enough = all(report.judged for report in reports)
    return 0 if enough or chosen.fail_on == "never" else 3


def _fix(chosen):
    from hwdesign.advice.fix_command import fix_config

    try:
        told, status = fix_config(chosen, _output(chosen), _setting(chosen))
    except (ValueError, OSError) as error:
        return _refuse(error)
    _write(told, None)
    return status


def _diff(chosen):
    from hwdesign.advice.diff import difference, render_difference

    try:
        found = difference(chosen.a, chosen.b, **_setting(chosen))
    except (ValueError, OSError) as error:
        return _refuse(error)
    _write(render_difference(found, chosen.format), None)
    return int(chosen.fail_on == "worse" and found["worse"])


def _design(chosen):
    from hwdesign.advice.design_command import run

    return run(chosen, _write, _refuse)


def _rendered(chosen, reports, errors):
    """The report in the format that is asked for, as wide as the terminal up to 100 columns."""
    import shutil

    from hwdesign.advice.report import render

    width, stream = 100, None
    if not chosen.output:
        width = max(60, min(100, shutil.get_terminal_size((100, 24)).columns))
        stream = sys.stdout
    colour = chosen.format == "text" and _coloured(chosen.color, stream)
    return render(reports, chosen.format, errors=errors, width=width, colour=colour)


def _check_options(chosen):
    """Options of `judge`; what is wrong for every config is refused here, once."""
    chosen.output = _output(chosen)
    return _setting(chosen) | {"ignore": chosen.ignore or ()}


def _setting(chosen):
    """Options of `judge` that say how a model runs; what is wrong for every config is refused."""
    from hwdesign.catalogue.engine import engine
    from hwdesign.catalogue.precision import named_precision

    attention, ffn = _plans(chosen)
    for name in ("batch", "context"):
        if chosen.load and getattr(chosen, name):
            raise ValueError(
                f"--load and --{name} exclude each other: --load gives prompt, answer and users"
            )
    with warnings.catch_warnings(action="ignore"):  # the report says it
        device = _device(chosen)
        hwdesign.recipe(chosen.recipe or "bf16")
        named_precision("cache", chosen.cache or "bf16")
        if chosen.engine:
            engine(chosen.engine)
    return {
        "device": device,
        "recipe": chosen.recipe,
        "cache": chosen.cache,
        "engine": chosen.engine,
        "batch": chosen.batch,
        "context": chosen.context,
        "attention": attention,
        "ffn": ffn,
        "limits": _limits(chosen),
        "loads": chosen.load or (),
    }


def _device(chosen):
    """Device as asked, with constants of runs where --measured names some; None: the default."""
    if chosen.measured:
        from hwdesign.measure.constants import measured_device

        return measured_device(chosen.device, *chosen.measured)
    if chosen.device:
        hwdesign.device(chosen.device)
    return chosen.device


def _plans(chosen):
    """Plans of attention and ffn as asked, in full or by one number for each way; None where
    neither is.
    """
    from hwdesign.advice.case import parse_plan, short_plans

    ways = {way: getattr(chosen, way) for way in WAYS if getattr(chosen, way)}
    plans = {}
    for name in ("attention", "ffn"):
        if getattr(chosen, name) is not None:
            plans[name] = getattr(chosen, name)
    if not plans:
        return short_plans(**ways) if ways else (None, None)
    long = next(iter(plans))
    for short in ways:
        if short != "pp":
            raise ValueError(
                f"--{short} and --{long} exclude each other: give both plans in full, or "
                "numbers for both at once"
            )
    if len(plans) == 1:
        raise ValueError(
            f"--attention and --ffn must be given together, got only --{long} {plans[long]}"
        )
    return [
        replace(parse_plan(f"--{name}", plan), pp=chosen.pp or 1) for name, plan in plans.items()
    ]


def _output(chosen):
    """The file to write to, None for standard output; never a config that is read, nor what a link
    leads to.
    """
    from hwdesign.advice.case import config_path

    path = chosen.output
    if path is None or str(path) == "-":
        return None
    if not os.path.isdir(path.absolute().parent):
        raise ValueError(f"--output must lie in a folder that exists, got {path}")
    if path.is_symlink():
        raise ValueError(f"--output must be no symbolic link, got {path}")
    for source in chosen.configs:
        try:
            same = os.path.samefile(path, config_path(source))
        except (OSError, ValueError):  # one of the two is not there
            continue
        if same:
            raise ValueError(f"--output must be no config that is read, got {path}")
    return path


def _limits(chosen):
    """Limits as asked, None where neither is."""
    from hwdesign.advice.verdict import Limits

    given = {}
    if chosen.warn_at:
        given["warn"] = chosen.warn_at
    if chosen.fail_at:
        given["fail"] = chosen.fail_at
    if not given:
        return None
    shares = {"warn": Limits.warn, "fail": Limits.fail} | given
    if shares["warn"] > shares["fail"]:
        warn, fail = [
            f"{100 * share:g} %" if name in given else f"{100 * share:g} % (the default)"
            for name, share in shares.items()
        ]
        raise ValueError(f"--warn-at must be at most --fail-at, got {warn} and {fail}")
    return Limits(**given)


def _coloured(wish, stream):
    """Whether to colour: as asked, else by NO_COLOR, FORCE_COLOR and TERM, else on a terminal."""
    if wish != "auto" or not stream:
        return wish == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("FORCE_COLOR") == "0":
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return os.environ.get("TERM") != "dumb" and stream.isatty()


def _write(text, path):
    """Text to a file as UTF-8, or to standard output in what that can show; a reader who left early
    is no error.
    """
    if path:
        path.write_text(text, encoding="utf-8", newline="\n")
        return
    if not sys.stdout:  # closed
        return
    coding = sys.stdout.encoding or "utf-8"
    shown = text.encode(coding, "backslashreplace").decode(coding).replace(r"\xb5s", "us")
    try:
        sys.stdout.write(shown)
        _flush()
    except BrokenPipeError:
        _nobody_reads()


def _flush():
    if sys.stdout:
        sys.stdout.flush()


def _nobody_reads():
    """Later output goes nowhere, so that Python does not complain when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show(chosen):
    try:
        model = _model(chosen.config)
        proof = _proof(chosen, model) if chosen.weights is not None else None
    except (ValueError, OSError) as error:
        return _refuse(error)
    from hwdesign.models.sheet import sheet, sheet_text

    if chosen.format == "text":
        told = "\n".join([sheet_text(model), *(proof.lines if proof else ())])
    elif chosen.format == "json":
        figures = {"weights": proof.figures} if proof else {}
        told = json.dumps(sheet(model) | figures, indent=1)
    else:
        from hwdesign.models.blocks_text import blocks_text

        told = blocks_text(model).rstrip()
    _write(f"{told}\n", None)
    return int(bool(proof) and not proof.equal)


def _proof(chosen, model):
    """The model held against the files that --weights names."""
    from hwdesign.advice.case import config_path
    from hwdesign.models.proof import prove

    if chosen.format == "blocks":
        raise ValueError("--weights must be given with --format text or json, got blocks")
    written = json.loads(config_path(chosen.config).read_text(encoding="utf-8-sig"))
    return prove(model, chosen.weights, written)


def _model(source):
    """Model of a config; the modules of the checker, which take longer to load than a config to
    read, are asked for the name that is meant alone.
    """
    from hwdesign.models import config

    try:
        return config.load(source)
    except FileNotFoundError:
        from hwdesign.advice.case import as_model

        return as_model(source)


def _measure(chosen):
    from hwdesign.measure.backends import as_backend
    from hwdesign.measure.runs import Measurement, save_run
    from hwdesign.measure.suite import run_suite, summary, summary_lines

    for option, path in (("--json", chosen.json), ("--picture", chosen.picture)):
        if path and not os.path.isdir(path.absolute().parent):
            return _refuse(f"{option} must lie in a folder that exists, got {path}")
    if chosen.picture and chosen.picture.suffix not in (".svg", ".png"):
        return _refuse(f"--picture must end in .svg or .png, got {chosen.picture}")
    backend = as_backend("numpy" if chosen.no_torch else None)
    software = ", ".join(f"{name} {version}" for name, version in backend.software.items())
    print(f"{backend.name} on {backend.device}; {software}")
    watched = sys.stderr.isatty()
    found = run_suite(backend, quick=chosen.quick, progress=_progress if watched else None)
    if watched:
        _progress("")
    flags = set()
    for measured in found:
        print(str(measured).split("\n    disturbed")[0])
        if isinstance(measured, Measurement):
            flags.update(measured.flags)
    print("\n".join(summary_lines(summary(found), flags)))
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


def _progress(text):
    print(f"\r{text[:78]:<78}", end="\r", file=sys.stderr, flush=True)


def _refuse(why):
    from hwdesign.safe import visible

    if sys.stderr:  # print would take standard output instead
        print(f"hwdesign: {visible(' '.join(str(why).split()), 1100)}", file=sys.stderr)
    return 2
