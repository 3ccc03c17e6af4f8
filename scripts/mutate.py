"""Mutates the library, one place at a time, and reports the mutants that no test notices.

    python scripts/mutate.py --count 50 --seed 1       # a seeded sample, spread over the rooms
    python scripts/mutate.py --module steps --list     # what would be mutated in one module

A mutant is one small change of the source: an operator swapped, a term dropped, a constant moved.
First every test runs once, unmutated and traced: a map says which functions each test calls and
how long it takes (some minutes; `--map FILE` keeps it while package and tests stay as they are).
Then each mutant runs, in a copy of the repository, the tests that call the mutated function: the
quickest first, until one fails. A parent process that has loaded NumPy, pytest and Matplotlib, but
nothing of the package, forks a child for each mutant. Tests with a clock, a browser, the site or
torch are left out. Survivors that `scripts/equivalent_mutants.csv` argues to be equivalent are
listed apart.
"""

import argparse
import ast
import contextlib
import csv
import hashlib
import importlib
import inspect
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("formulas", "models", "timing", "advice", "check")  # those of them that exist
EQUIVALENT = ROOT / "scripts" / "equivalent_mutants.csv"
NOT_COPIED = (".*", "_build", "build", "dist", "*.egg-info")
PRELOADED = ("numpy", "hypothesis", "matplotlib.pyplot", "IPython.display", "ipywidgets")
SLOW = 10.0  # no test takes part that computes for longer [s]
FILE = 60.0  # tests of one file that take part take no longer together [s]
LIMIT = 90.0  # tests of one mutant together, at their unmutated times [s]
GRACE = 5.0  # a test may take ten times its unmutated time and so much more [s]
QUICK, FEW = 0.25, 60  # a first pass takes so many tests of a file that are quicker than this [s]

# Which tests take part ------------------------------------------------------------------------

NEVER = re.compile(
    r"test_(site|browser|colab|project|notebooks|measure|pipeline_measure|mutate)\.py"
)
MARKS = {"alone", "weekly", "slow", "site", "browser", "colab", "torch", "clock", "network"}
FIXTURES = {"site", "site_url", "browser"}
CLOCK = re.compile(r"perf_counter|process_time|timeit|monotonic|subprocess|fresh\(")


# Mutation operators ---------------------------------------------------------------------------

BINARY = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"), ast.Mod: ("%", "//"), ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
}  # fmt: skip
COMPARE = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
SWAPPED = {"ceil": "floor", "maximum": "minimum", "max": "min", "argmax": "argmin", "any": "all"}
SWAPPED |= {new: old for old, new in SWAPPED.items()}
FACTORS = dict.fromkeys(("tp", "ep", "pp", "kvp", "dp"), "1") | {"gather": "False"}
DROPPED = (ast.Add, ast.Sub, ast.Mult, ast.Div)
TEXTS = {"__repr__", "__str__", "__dir__"}
KEYWORDS = {"strict", "stacklevel", "maxsize", "encoding", "kw_only", "frozen", "indent"}
ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)


@dataclass(frozen=True)
class Mutant:
    """One edit of a module: bytes `start` to `end` become `text`."""

    module: str  # path inside the package
    line: int
    operator: str
    start: int
    end: int
    text: str
    before: str  # the lines that change, stripped
    after: str
    function: int | None  # first line of the function around it
    names: tuple  # what a statement outside functions binds

    def room(self):
        """Room of the module."""
        return self.module.split("/")[0]


class Source:
    """A module's text and tree, and where the nodes of the tree lie in the text."""

    def __init__(self, text):
        self.data = text.encode()
        self.tree = ast.parse(text)
        lines = self.data.splitlines(keepends=True)
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line))

    def span(self, node):
        """First byte of a node and the byte behind it."""
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node):
        """Text of a node, in parentheses where it needs them elsewhere."""
        start, end = self.span(node)
        text = self.data[start:end].decode()
        return text if isinstance(node, ATOMS) else f"({text})"

    def symbol(self, left, right, symbol):
        """Bytes of an operator between two operands, None where a comment lies between."""
        start, end = self.span(left)[1], self.span(right)[0]
        between = self.data[start:end]
        at = between.find(symbol.encode())
        if at < 0 or b"#" in between:
            return None
        return start + at, start + at + len(symbol)

    def edited(self, start, end, text):
        """The whole text after an edit."""
        return (self.data[:start] + text.encode() + self.data[end:]).decode()

    def lines(self, start, end, text):
        """The lines around an edit, before and after it, each as one stripped line."""
        first = self.data.rfind(b"\n", 0, start) + 1
        last = self.data.find(b"\n", end)
        last = len(self.data) if last < 0 else last
        new = self.data[first:start] + text.encode() + self.data[end:last]
        return " ".join(self.data[first:last].decode().split()), " ".join(new.decode().split())


def edits(source, node):
    """Edits of one node as (operator, start, end, new text)."""
    found = []
    for kind, operators in OPERATORS.items():
        if isinstance(node, kind):
            for operator in operators:
                found += operator(source, node)
    return found


def swapped_binary(source, node):
    """The operator swapped, and either term or the second factor dropped."""
    old, new = BINARY.get(type(node.op), (None, None))
    if old is None or is_text(node.left) or is_text(node.right):
        return []
    at = source.symbol(node.left, node.right, old)
    found = [("operator", *at, new)] if at else []
    if isinstance(node.op, DROPPED):
        whole = source.span(node)
        found.append(("dropped term", *whole, source.text(node.left)))
        if isinstance(node.op, ast.Add | ast.Mult):
            found.append(("dropped term", *whole, source.text(node.right)))
    return found


def is_text(node):
    """Whether a node is a string."""
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)


def swapped_comparison(source, node):
    """One comparison of a chain on the other side of its border, or turned round."""
    found, left = [], node.left
    for op, right in zip(node.ops, node.comparators, strict=True):
        old, new = COMPARE[type(op)]
        at = source.symbol(left, right, old)
        found += [("comparison", *at, new)] if at else []
        left = right
    return found


def swapped_boolean(source, node):
    """`and` for `or` between the first two of its terms."""
    old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    at = source.symbol(node.values[0], node.values[1], old)
    return [("and/or", *at, new)] if at else []


def changed_constant(source, node):
    """A number moved by one or doubled; True and False exchanged."""
    span = source.span(node)
    if isinstance(node.value, bool):
        return [("constant", *span, str(not node.value))]
    if not isinstance(node.value, int | float):
        return []
    found = []
    if isinstance(node.value, int):
        found.append(("constant", *span, str(node.value + 1)))
    if node.value > 1 or (isinstance(node.value, float) and node.value):
        found.append(("constant", *span, repr(2 * node.value)))
    return found or [("constant", *span, "1.0")]


def longer_range(source, node):
    """A range that goes one further."""
    if not isinstance(node.func, ast.Name) or node.func.id != "range" or node.keywords:
        return []
    stop = node.args[0] if len(node.args) == 1 else node.args[1]
    return one_more(source, stop, "range")


def shifted_slice(source, node):
    """A slice that begins or ends one further on."""
    bounds = [bound for bound in (node.lower, node.upper) if bound is not None]
    return [edit for bound in bounds for edit in one_more(source, bound, "slice")]


def one_more(source, node, operator):
    """An expression plus one; a constant is moved elsewhere, also with its sign."""
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    if isinstance(inner, ast.Constant | ast.Starred):
        return []
    return [(operator, *source.span(node), f"{source.text(node)} + 1")]


def swapped_function(source, node):
    """`ceil` for `floor`, `max` for `min`, and the other way round; a plan's factor dropped."""
    name = node.id if isinstance(node, ast.Name) else node.attr
    start, end = source.span(node)
    if not isinstance(node.ctx, ast.Load):
        return []
    if name in SWAPPED:
        return [("function", end - len(name), end, SWAPPED[name])]
    if isinstance(node, ast.Attribute) and name in FACTORS:
        return [("dropped factor", start, end, FACTORS[name])]
    return []


def negated_test(source, node):
    """A condition turned round."""
    tests = node.ifs if isinstance(node, ast.comprehension) else [node.test]
    plain = [test for test in tests if not is_not(test)]
    return [("negated", *source.span(test), f"not {source.text(test)}") for test in plain]


def is_not(node):
    """Whether a node is `not ...`."""
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def dropped_sign(source, node):
    """`not`, `~` or a minus dropped."""
    if isinstance(node.op, ast.UAdd):
        return []
    return [("dropped sign", *source.span(node), source.text(node.operand))]


OPERATORS = {
    ast.BinOp: [swapped_binary],
    ast.Compare: [swapped_comparison],
    ast.BoolOp: [swapped_boolean],
    ast.Constant: [changed_constant],
    ast.Call: [longer_range],
    ast.Slice: [shifted_slice],
    (ast.Name, ast.Attribute): [swapped_function],
    (ast.If, ast.While, ast.IfExp, ast.comprehension): [negated_test],
    ast.UnaryOp: [dropped_sign],
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def code_children(node):
    """Children of a node that compute something: no annotation, decorator, message or text."""
    for name, value in ast.iter_fields(node):
        if name in ("decorator_list", "annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not is_skipped(child):
                yield child


def is_skipped(node):
    """Whether nothing in a node is mutated: errors, warnings, imports, texts."""
    if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr):
        return True
    if isinstance(node, FUNCTIONS):
        return node.name in TEXTS
    if isinstance(node, ast.keyword):
        return node.arg in KEYWORDS
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "warn"
    return isinstance(node, ast.Assign) and "__all__" in bound(node)


def bound(statement):
    """Names that a statement binds."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return {statement.name}
    stored = (n for n in ast.walk(statement) if isinstance(n, ast.Name))
    return {n.id for n in stored if isinstance(n.ctx, ast.Store)}


def sites(source, module):
    """Lists of the mutants of each place of a module that can be mutated."""
    queue = [(child, None, bound(child)) for child in code_children(source.tree)]
    while queue:
        node, function, names = queue.pop()
        if isinstance(node, FUNCTIONS):
            function = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        queue += [
            (child, function, names | bound(child) if isinstance(node, ast.ClassDef) else names)
            for child in code_children(node)
        ]
        found = edits(source, node)
        if found:
            yield [
                mutant(source, module, operator, (start, end, text), function, names)
                for operator, start, end, text in found
            ]


def mutant(source, module, operator, edit, function, names):
    """The mutant of an edit."""
    start, end, text = edit
    line = source.data[:start].count(b"\n") + 1
    before, after = source.lines(start, end, text)
    names = () if function else tuple(sorted(names))
    return Mutant(module, line, operator, start, end, text, before, after, function, names)


def essence(code):
    """What a code object does, without line numbers."""
    inner = [essence(c) if inspect.iscode(c) else (type(c), repr(c)) for c in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, inner


def differs(source, m):
    """Whether a mutant compiles, and to other code."""
    try:
        mutated = compile(source.edited(m.start, m.end, m.text), m.module, "exec")
    except (SyntaxError, ValueError):
        return False
    return essence(mutated) != essence(compile(source.data, m.module, "exec"))


# The sample --------------------------------------------------------------------------------------


def modules(package, rooms):
    """Paths of a package's modules in the rooms, inside the package."""
    paths = (path for room in rooms for path in (package / room).rglob("*.py"))
    return sorted(path.relative_to(package).as_posix() for path in paths)


def shares(sizes, count):
    """How much of `count` falls on each name, in proportion to the sizes, by largest remainder."""
    total = sum(sizes.values())
    exact = {name: count * size / total for name, size in sizes.items()}
    given = {name: int(share) for name, share in exact.items()}
    rest = sorted(exact, key=lambda name: (given[name] - exact[name], name))
    for name in rest[: count - sum(given.values())]:
        given[name] += 1
    return given


def sample(package, names, count, seed):
    """A seeded sample of mutants, at most one a place, spread over the modules by their size."""
    sources, places = {}, {}
    for name in names:
        sources[name] = Source((package / name).read_text(encoding="utf-8"))
        places[name] = sorted(sites(sources[name], name), key=lambda s: (s[0].start, s[0].end))
    sizes = {name: sum(len(place) for place in found) for name, found in places.items()}
    drawn = []
    for name, share in shares(sizes, min(count, sum(sizes.values()))).items():
        rng = random.Random(f"{seed} {name}")
        order = rng.sample(places[name], len(places[name]))
        choices = (rng.choice(place) for place in order)
        valid = (m for m in choices if differs(sources[name], m))
        drawn += [m for m, _ in zip(valid, range(share), strict=False)]
    return sorted(drawn, key=lambda m: (m.module, m.start))


# In a child: the copy of the package, and one file of tests after the other ---------------------


def enter(copy, package, log):
    """Make this process one that imports the copy and writes to a file."""
    os.setsid()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    sys.path[:] = [str(copy), *(p for p in sys.path if p not in ("", str(ROOT / "scripts")))]
    for name in list(sys.modules):
        if re.match(rf"({package}|conftest|test_\w+)(\.|$)", name):
            del sys.modules[name]
    sys.modules["torch"] = None  # its import fails: tests with it skip
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
    importlib.invalidate_caches()
    module = importlib.import_module(package)
    if not Path(module.__file__).is_relative_to(copy):
        raise ImportError(f"{package} comes from {module.__file__}, not from {copy}")


def run_pytest(files, plugin, *options):
    """Exit code of pytest on files of tests, or on modules for their doctests."""
    quiet = ["-q", "--tb=no", "--no-header", "--hypothesis-seed=0"]
    quiet += ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist"]
    if not Path(files[0]).name.startswith("test_"):
        quiet.append("--doctest-modules")
    return int(pytest.main([*quiet, *options, *files], plugins=[plugin]))


def wanted(item):
    """Whether a test takes part: none with a clock, a process, a browser or the site."""
    if MARKS & {mark.name for mark in item.iter_markers()}:
        return False
    if FIXTURES & set(getattr(item, "fixturenames", ())):
        return False
    function = getattr(item, "function", None)
    if function is None:
        return True
    try:
        return not CLOCK.search(inspect.getsource(inspect.unwrap(function)))
    except (OSError, TypeError):
        return True


class Chosen:
    """Plugin of both runs: which tests run; examples of hypothesis are not shrunk."""

    def takes(self, item):
        """Whether a test takes part."""
        return wanted(item)

    def pytest_collection(self, session):
        """Settings of hypothesis, after the tests' own and before they are read."""
        with contextlib.suppress(ImportError):
            from hypothesis import Phase, settings

            phases = (Phase.explicit, Phase.generate)
            settings.register_profile("mutate", deadline=None, database=None, phases=phases)
            settings.load_profile("mutate")

    def pytest_collection_modifyitems(self, items):
        """Leave out what does not take part."""
        items[:] = [item for item in items if self.takes(item)]


class Recorder(Chosen):
    """Plugin that records which functions each test calls, and its time."""

    def __init__(self, files):
        self.files, self.seen, self.imported = files, set(), set()
        self.fixtures, self.tests, self.failed, self.spent = {}, {}, set(), 0.0
        self.collected = []

    def trace(self, frame, event, argument):
        """Note a call of one of the package's functions."""
        code = frame.f_code
        if code.co_filename in self.files:
            self.seen.add((code.co_filename, code.co_firstlineno))

    def pytest_collection_finish(self, session):
        """What importing and parametrizing called stands for all tests of a file."""
        self.imported = self.seen
        self.collected = [item.nodeid for item in session.items]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """What a shared fixture calls counts for every test that uses it."""
        before, self.seen = self.seen, set()
        value = yield
        self.fixtures.setdefault(fixturedef, set()).update(self.seen)
        self.seen |= before
        return value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """Trace one test, with all caches empty."""
        clear_caches(self.files)
        self.seen = set()
        start = time.process_time()
        signal.signal(signal.SIGPROF, too_slow)
        signal.setitimer(signal.ITIMER_PROF, SLOW)
        sys.settrace(self.trace)
        result = yield
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.spent += time.process_time() - start
        if self.spent > FILE:
            item.session.shouldstop = "enough"
        info = getattr(item, "_fixtureinfo", None)
        used = [d for ds in info.name2fixturedefs.values() for d in ds] if info else []
        calls = self.seen.union(*(self.fixtures.get(d, ()) for d in used))
        self.tests[item.nodeid] = time.process_time() - start, calls
        return result

    def pytest_runtest_logreport(self, report):
        """Remember what does not pass: it can kill no mutant."""
        if report.outcome != "passed":
            self.failed.add(report.nodeid)


def too_slow(number, frame):
    """Let a test fail that computes for too long to be asked about mutants."""
    raise TimeoutError(f"more than {SLOW} s")


def clear_caches(files):
    """Empty the caches of all functions, so that a test calls what it needs by itself."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) in files:
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def record(copy, package, files, out):
    """Run the tests of some files, traced, and write what they call."""
    enter(copy, package, f"{out}.log")
    recorder = Recorder({str(path) for path in (copy / package).rglob("*.py")})
    start = time.process_time()
    sys.settrace(recorder.trace)
    run_pytest(files, recorder)
    sys.settrace(None)
    collecting = (time.process_time() - start - recorder.spent) / len(files)
    base = len(str(copy / package)) + 1

    def names(calls):
        return [f"{path[base:]}:{line}" for path, line in sorted(calls)]

    facts = {"collecting": collecting, "imported": names(recorder.imported)}
    found = {file: facts | {"tests": {}, "collected": []} for file in files}
    for test in recorder.collected:
        found[test.split("::")[0]]["collected"].append(test)
    for test, (seconds, calls) in recorder.tests.items():
        if test not in recorder.failed:
            found[test.split("::")[0]]["tests"][test] = {"seconds": seconds, "calls": names(calls)}
    Path(out).write_text(json.dumps(found))


class Killer(Chosen):
    """Plugin that runs the chosen tests of a file, each with a time limit, until one fails."""

    def __init__(self, chosen, known, out):
        self.chosen, self.known, self.out, self.failed = chosen, known, Path(out), None

    def takes(self, item):
        """Whether a test is chosen; one that the unmutated code did not have is, too."""
        return item.nodeid in self.chosen or (item.nodeid not in self.known and wanted(item))

    def pytest_collection_modifyitems(self, items):
        """The chosen tests, the slow ones last."""
        super().pytest_collection_modifyitems(items)
        items.sort(key=lambda item: self.chosen.get(item.nodeid, 0) > QUICK)

    def pytest_runtest_logstart(self, nodeid):
        """Say which test runs, and set its time limit."""
        self.out.write_text(json.dumps({"status": "timeout", "test": nodeid}))
        set_alarm(self.chosen.get(nodeid, 1))

    def pytest_runtest_logreport(self, report):
        """Remember the test that failed."""
        if report.failed:
            self.failed = report.nodeid


def set_alarm(seconds):
    """End this process when it has computed for much longer than a test takes without a mutant."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, GRACE + 10 * seconds)


def attempt(copy, package, m, steps, known, out):
    """Run a mutant's tests, step by step, and write how it ended."""
    result = {"status": "timeout", "test": "import"}
    Path(out).write_text(json.dumps(result))
    set_alarm(1)
    try:
        enter(copy, package, f"{out}.log")
        importlib.import_module(".".join((package, *Path(m.module).with_suffix("").parts)))
        result = run_steps(steps, known, out)
    except Exception as error:  # whatever a mutant raises while its module is imported
        result = {"status": "killed", "test": f"import: {type(error).__name__}"}
    Path(out).write_text(json.dumps(result))


def run_steps(steps, known, out):
    """How a mutant ended: killed by a test, or survived all."""
    for file, chosen in steps:
        killer = Killer(chosen, known, out)
        Path(out).write_text(json.dumps({"status": "timeout", "test": file}))
        set_alarm(2)
        code = run_pytest([file], killer, "-x")
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return {"status": "killed", "test": killer.failed or f"{file}: collection"}
    return {"status": "survived", "test": ""}


# In the parent: children, the map of tests, and which of them a mutant runs -----------------------


def fork(function, *arguments):
    """Process id of a child that runs a function and ends."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    with contextlib.suppress(BaseException):
        function(*arguments)
        status = 0
    os._exit(status)


def children(jobs, slots, start, limit):
    """Run a child for each job, as many at a time as there are slots; yields (job, slot, seconds).

    `start(job, slot)` returns the child's process id; a child lives for `limit(job)` seconds.
    """
    waiting, free, running = list(reversed(jobs)), list(slots), {}
    while waiting or running:
        while waiting and free:
            job, slot = waiting.pop(), free.pop()
            running[start(job, slot)] = job, slot, time.monotonic()
        for child, (job, slot, since) in list(running.items()):
            done, _ = os.waitpid(child, os.WNOHANG)
            seconds = time.monotonic() - since
            if done:
                del running[child]
                free.append(slot)
                yield job, slot, seconds
            elif seconds > limit(job):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGKILL)
        time.sleep(0.02)


def copy_repository(root, to):
    """Copy what tests read, without what is built."""
    return Path(shutil.copytree(root, to, ignore=shutil.ignore_patterns(*NOT_COPIED)))


def digest(folder):
    """Checksum of the sources and data in a folder, or of a file."""
    found, paths = hashlib.sha256(), [folder] if folder.is_file() else sorted(folder.rglob("*"))
    for path in paths:
        if path.is_file() and "__pycache__" not in path.parts:
            found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def test_files(copy, package, rooms):
    """Files of tests, and the modules of the rooms for their doctests."""
    files = sorted(f"tests/{path.name}" for path in (copy / "tests").glob("test_*.py"))
    files = [file for file in files if not NEVER.search(file)]
    return files + [f"{package}/{name}" for name in modules(copy / package, rooms)]


def test_map(copy, package, files, workers):
    """file -> (time to collect, tests with their time and the functions that they call)."""
    found, out = {}, copy.parent / "map"
    out.mkdir()
    jobs = {}  # a child for each file of tests, and for the doctests of each room
    for file in files:
        parts = Path(file).parts
        jobs.setdefault(file if parts[0] == "tests" else "/".join(parts[:2]), []).append(file)

    def start(name, slot):
        return fork(record, copy, package, jobs[name], out / name.replace("/", "."))

    for name, _, seconds in children(list(jobs), range(workers), start, lambda name: 1200):
        path = out / name.replace("/", ".")
        new = json.loads(path.read_text()) if path.exists() else {}
        found |= {file: facts | {"digest": digest(copy / file)} for file, facts in new.items()}
        count = sum(len(facts["tests"]) for facts in new.values())
        print(f"map: {name}, {count} tests, {seconds:.1f} s", flush=True)
    return found


def load_map(args, copy, rooms):
    """The map of tests, as far as it is kept in a file and right: same package, same tests."""
    kept, stamp = {}, digest(copy / args.package)
    files = test_files(copy, args.package, rooms)
    if args.map and args.map.exists():
        old = json.loads(args.map.read_text())
        right = old["files"] if old["package"] == stamp else {}
        kept = {f: facts for f, facts in right.items() if f in files}
        kept = {f: facts for f, facts in kept.items() if facts["digest"] == digest(copy / f)}
    new = [file for file in files if file not in kept]
    kept |= test_map(copy, args.package, new, args.workers)
    if args.map:
        args.map.write_text(json.dumps({"package": stamp, "files": kept}))
    return kept


class Tests:
    """What the map says, the other way round: which tests call a function or name a name."""

    def __init__(self, copy, package, files):
        self.package, self.files = package, files
        self.callers, self.importers = {}, {}
        self.known = {test for facts in files.values() for test in facts["collected"]}
        self.texts = {file: (copy / file).read_text(encoding="utf-8") for file in files}
        self.uses = name_uses(copy / package)
        for file, facts in files.items():
            for call in facts["imported"]:
                self.importers.setdefault(call, set()).add(file)
            for test, found in facts["tests"].items():
                for call in found["calls"]:
                    self.callers.setdefault(call, set()).add((file, test))

    def calling(self, m):
        """Tests that call a mutant's function, or one that uses the name it binds, by file.

        A file that calls it while it is imported is there, too, if need be without a test.
        """
        functions = {f"{m.module}:{m.function}"} if m.function else set()
        functions = functions.union(*(self.uses.get(name, ()) for name in m.names))
        found = {}
        for function in functions:
            for file in self.importers.get(function, ()):
                found.setdefault(file, {})
            for file, test in self.callers.get(function, ()):
                found.setdefault(file, {})[test] = self.files[file]["tests"][test]["seconds"]
        for file, text in self.texts.items():
            if any(re.search(rf"\b{name}\b", text) for name in m.names):
                found.setdefault(file, {})
        return found

    def steps(self, m, limit):
        """Tests of a mutant as (file, {id: seconds}), in the order in which they run.

        First the doctests of its module, then the files that name it, then the others, quick
        tests before slow ones; last what else these files hold.
        """
        chosen = self.calling(m)

        def rank(file):
            named = re.search(rf"\b{Path(m.module).stem}\b", self.texts[file])
            cost = sum(chosen[file].values()) + self.files[file]["collecting"]
            return file != f"{self.package}/{m.module}", not named, cost, file

        order = sorted(chosen, key=rank)
        first = {file: few_quick(chosen[file]) for file in order}
        steps = [(file, first[file]) for file in order]
        steps += [(file, without(chosen[file], first[file])) for file in order]
        for file in order:
            every = {t: facts["seconds"] for t, facts in self.files[file]["tests"].items()}
            steps.append((file, without(every, chosen[file])))
        return self.within(limit, steps)

    def within(self, limit, steps):
        """The steps cut to what takes no longer than a limit together."""
        left, kept = limit, []
        for file, tests in steps:
            taken = {}
            left -= self.files[file]["collecting"] if tests else 0
            for test, seconds in tests.items():
                if seconds <= left:
                    taken[test] = seconds
                    left -= seconds
            kept += [(file, taken)] if taken else []
        return kept


def few_quick(tests):
    """A few of the quick tests, evenly over the file."""
    quick = [test for test, seconds in tests.items() if seconds < QUICK]
    every = max(1, len(quick) // FEW)
    return {test: tests[test] for test in quick[::every]}


def without(tests, others):
    """Tests that are not among the others."""
    return {test: seconds for test, seconds in tests.items() if test not in others}


def name_uses(package):
    """name -> functions of the package ("path:line") that use it, or a name made from it."""
    uses, derived = {}, {}
    for path in sorted(package.rglob("*.py")):
        tree, module = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(package)
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                line = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                for name in named(node):
                    uses.setdefault(name, set()).add(f"{module.as_posix()}:{line}")
        for statement in tree.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                for name in named(statement):
                    derived.setdefault(name, set()).update(bound(statement))
    for name, made in derived.items():
        for other in made:
            uses.setdefault(name, set()).update(uses.get(other, ()))
    return uses


def named(node):
    """Names and attributes in a node."""
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


# The run and its report -------------------------------------------------------------------------


def run(mutants, copies, args, tests):
    """Run the mutants; yields (mutant, result with status, test and seconds)."""
    package = args.package
    steps = {m: tests.steps(m, args.limit) for m in mutants}

    def start(m, copy):
        path = copy / package / m.module
        source = Source(path.read_text(encoding="utf-8"))
        (copy / "original").write_bytes(source.data)
        path.write_text(source.edited(m.start, m.end, m.text), encoding="utf-8")
        for cached in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            cached.unlink()
        sys.dont_write_bytecode = True  # a source of the same size and second would be taken as is
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        return fork(attempt, copy, package, m, steps[m], tests.known, copy / "result")

    def limit(m):
        return 60 + 20 * sum(sum(chosen.values()) for _, chosen in steps[m])

    for m, copy, seconds in children(mutants, copies, start, limit):
        (copy / package / m.module).write_bytes((copy / "original").read_bytes())
        result = json.loads((copy / "result").read_text())
        yield m, result | {"seconds": round(seconds, 1)}


def statement(text, offset):
    """The innermost statement around a byte, in one line and without what is indented under it."""
    source, found = Source(text), None
    for node in ast.walk(source.tree):
        if isinstance(node, ast.stmt):
            start, end = source.span(node)
            if start <= offset < end and (found is None or start >= source.span(found)[0]):
                found = node
    for name in ("body", "orelse", "finalbody", "handlers", "decorator_list", "cases"):
        if isinstance(getattr(found, name, None), list):
            setattr(found, name, [ast.Pass()] if name == "body" else [])
    return ast.unparse(found).removesuffix("\n    pass")


def statements(package, m):
    """Statement of a mutant, before and after."""
    source = Source((package / m.module).read_text(encoding="utf-8"))
    after = source.edited(m.start, m.end, m.text)
    return statement(source.data.decode(), m.start), statement(after, m.start)


def equivalents(path):
    """(module's file name, statement before, statement after) -> why both do the same."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (Path(row["module"]).name, row["before"], row["after"]): row["argument"]
            for row in csv.DictReader(file)
        }


def diff(m):
    """A mutant's lines, before and after."""
    return f"{m.module}:{m.line} ({m.operator})\n  - {m.before}\n  + {m.after}"


def progress(m, result, place):
    """One line for a mutant."""
    test = f" by {result['test']}" if result["test"] else ""
    change = f"{m.before} -> {m.after}"
    end = f"{result['status']}{test}, {result['seconds']} s"
    print(f"{place} {m.module}:{m.line}  {change}  {end}", flush=True)


def summary(results):
    """Lines of a table: mutants killed of each room, and of all."""
    total, killed = Counter(), Counter()
    for m, result in results:
        for room in (m.room(), "all"):
            total[room] += 1
            killed[room] += result["status"] != "survived"
    lines = []
    for room in sorted(total, key=lambda room: (room == "all", room)):
        share = 100 * killed[room] / total[room]
        lines.append(f"{room:<10}{killed[room]:4d} of {total[room]:4d} killed, {share:5.1f} %")
    return lines


def report(results, equal):
    """Print survivors, equivalent mutants and the table."""
    survivors = [m for m, result in results if result["status"] == "survived"]
    for m in survivors:
        print(f"\nsurvived: {diff(m)}")
    for m, argument in equal:
        print(f"\nequivalent: {diff(m)}\n  {argument}")
    print("\n" + "\n".join(summary(results)))
    print(f"{len(survivors)} survived, {len(equal)} known to be equivalent")


def as_json(results, equal, said):
    """All results as one object."""
    rows = []
    for m, result in [*results, *((m, {"status": "equivalent", "test": ""}) for m, _ in equal)]:
        before, after = said[m]
        rows.append(asdict(m) | result | {"statement": before, "mutated": after})
    killed = sum(result["status"] != "survived" for _, result in results)
    return {"total": len(results), "killed": killed, "equivalent": len(equal), "mutants": rows}


def parsed(arguments):
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--count", type=int, default=50, help="mutants (50)")
    add("--seed", type=int, default=0, help="of the sample (0)")
    add("--workers", type=int, default=os.cpu_count(), help="processes (one a core)")
    add("--rooms", nargs="+", default=None, help=f"rooms of the package ({', '.join(ROOMS)})")
    add("--module", help="mutate this module alone: a name or the end of a path")
    add("--least", type=float, default=0.0, help="exit status 1 if fewer are killed [%%]")
    add("--limit", type=float, default=LIMIT, help=f"tests of one mutant [s] ({LIMIT:g})")
    add("--json", type=Path, help="write the results to a file, too")
    add("--map", type=Path, help="keep the map of tests in a file, and use it while it is right")
    add("--list", action="store_true", help="print the mutants and run nothing")
    add("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    add("--package", default="hwdesign", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    args.root = args.root.resolve()
    try:
        return args, *chosen_modules(args)
    except ValueError as error:
        parser.error(str(error))


def chosen_modules(args):
    """(rooms, modules) that the options name."""
    for option in ("count", "workers"):
        if getattr(args, option) < 1:
            raise ValueError(f"--{option} must be at least 1, got {getattr(args, option)}")
    if not args.limit > 0:
        raise ValueError(f"--limit must be above 0, got {args.limit:g}")
    if not 0 <= args.least <= 100:
        raise ValueError(f"--least must be from 0 to 100, got {args.least:g}")
    package = args.root / args.package
    there = sorted(path.name for path in package.iterdir() if (path / "__init__.py").exists())
    for room in args.rooms or ():
        if room not in there:
            raise ValueError(f"--rooms must be of {', '.join(there)}, got {room}")
    rooms = args.rooms or [room for room in ROOMS if room in there]
    names = modules(package, rooms)
    if args.module:
        end = "/" + args.module.removesuffix(".py").replace(".", "/") + ".py"
        names = [name for name in names if f"/{name}".endswith(end)]
        if not names:
            raise ValueError(f"--module must be a module of {', '.join(rooms)}, got {args.module}")
    return rooms, names


def preload():
    """Load what the children have in common; one thread each, as forks and threads do not mix."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["MPLBACKEND"] = "agg"
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def execute(args, rooms, mutants):
    """Run the mutants in copies of the repository; returns their results."""
    results = []
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        copy = copy_repository(args.root, Path(folder).resolve() / "0")
        tests = Tests(copy, args.package, load_map(args, copy, rooms))
        copies = [copy]
        for i in range(1, args.workers):
            copies.append(copy_repository(copy, copy.parent / f"{i}"))
        for m, result in run(mutants, copies, args, tests):
            results.append((m, result))
            progress(m, result, f"{len(results)}/{len(mutants)}")
    return sorted(results, key=lambda pair: (pair[0].module, pair[0].start))


def main(arguments=None):
    """Sample, run and report; the exit status."""
    args, rooms, names = parsed(arguments)
    package, known = args.root / args.package, equivalents(EQUIVALENT)
    mutants, equal, said = [], [], {}
    for m in sample(package, names, args.count, args.seed):
        said[m] = statements(package, m)  # now: the sources may be edited while the tests run
        argument = known.get((Path(m.module).name, *said[m]))
        if argument:
            equal.append((m, argument))
        else:
            mutants.append(m)
    if args.list:
        print("\n".join(diff(m) for m in [*mutants, *(m for m, _ in equal)]))
        return 0
    preload()
    results = execute(args, rooms, mutants)
    report(results, equal)
    if args.json:
        args.json.write_text(json.dumps(as_json(results, equal, said), indent=1))
    killed = sum(result["status"] != "survived" for _, result in results)
    return int(100 * killed < args.least * len(results))


if __name__ == "__main__":
    sys.exit(main())
