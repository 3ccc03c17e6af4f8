"""The mutation script: operators on small sources, the sample, toy mutants that live or die."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import mutate
import pytest
from mutate import Source, sample, shares, sites, statement


def mutated(text):
    """All texts that one edit makes of a text."""
    source = Source(text)
    found = [m for place in sites(source, "x.py") for m in place]
    return {source.edited(m.start, m.end, m.text) for m in found}


@pytest.mark.parametrize(("text", "expected"), [
    ("a + b", ["a - b", "a", "b"]),
    ("a - b", ["a + b", "a"]),
    ("(a + b) * c", ["(a + b) / c", "(a + b)", "c", "(a - b) * c", "(a) * c", "(b) * c"]),
    ("a * (b + c)", ["a / (b + c)", "a", "(b + c)", "a * (b - c)", "a * (b)", "a * (c)"]),
    ("a // b % c", ["a // b // c", "a / b % c"]),
    ("a**b", ["a*b"]),
    ("x & ~y", ["x | ~y", "x & y"]),
    ("a < b <= c", ["a <= b <= c", "a < b < c"]),
    ("a == b", ["a != b"]),
    ("a is not b", ["a is b"]),
    ("a not in b", ["a in b"]),
    ("a and b", ["a or b"]),
    ("f(7)", ["f(8)", "f(14)"]),
    ("f(0, 0.5)", ["f(1, 0.5)", "f(0, 1.0)"]),
    ("f(keep=True)", ["f(keep=False)"]),
    ("range(n)", ["range(n + 1)"]),
    ("range(a, n)", ["range(a, n + 1)"]),
    ("x[n:]", ["x[n + 1:]"]),
    ("x[:-1]", ["x[:-2]", "x[:1]"]),
    ("np.ceil(x)", ["np.floor(x)"]),
    ("max(a, b)", ["min(a, b)"]),
    ("x.max()", ["x.min()"]),
    ("plan.tp", ["1"]),
    ("n / plan.gather", ["n * plan.gather", "n", "n / False"]),
    ("a if b else c", ["a if not b else c"]),
    ("[a for a in b if a]", ["[a for a in b if not a]"]),
    ("not a", ["a"]),
    ("-a", ["a"]),
    ("if a:\n    b", ["if not a:\n    b"]),
    ("def f(x=0): pass", ["def f(x=1): pass"]),
    ("class A:\n    n: int = 0", ["class A:\n    n: int = 1"]),
    ("é * b  # ü", ["é / b  # ü", "é  # ü", "b  # ü"]),
])  # fmt: skip
def test_operators(text, expected):
    assert mutated(text) == set(expected)
    assert all(ast.parse(new) for new in mutated(text))


@pytest.mark.parametrize("text", [
    '"""1 + 1"""', "# 1 + 1", "import a", "raise ValueError(a + 1)", "f'{a + 1}'", "'a' + b",
    "__all__ = ['a', *(b or c)]", "def f(x: a + 1) -> 1: pass", "@cache(maxsize=3)\ndef f(): pass",
    "class A:\n    def __repr__(self): return 1", "zip(a, strict=True)", "warnings.warn(a + b)",
    "self.tp = x", "assert a < 1",
])  # fmt: skip
def test_what_is_no_computation_stays(text):
    assert mutated(text) == set()


def test_a_mutant_knows_its_lines_its_function_and_what_it_binds():
    text = "A = 2\n\n\n@cache\ndef f(x):\n    return (x\n            < A)\n"
    found = {m.operator: m for place in sites(Source(text), "x.py") for m in place}
    constant, comparison = found["constant"], found["comparison"]
    assert (constant.line, constant.names, constant.function) == (1, ("A",), None)
    assert (comparison.line, comparison.names, comparison.function) == (7, (), 4)
    assert (comparison.before, comparison.after) == ("< A)", "<= A)")
    assert statement(text, comparison.start) == "return x < A"
    assert statement("if a < 1:\n    b = 2\nelse:\n    c", 3) == "if a < 1:"


def test_mutants_of_the_same_code_are_dropped():
    source = Source("a = 2 - 0")  # a compiler's 2; so are 2 + 0 and 2
    kept = [m for place in sites(source, "x.py") for m in place if mutate.differs(source, m)]
    assert {m.after for m in kept} == {"a = 3 - 0", "a = 4 - 0", "a = 2 - 1"}


def test_shares_are_in_proportion_and_complete():
    assert shares({"a": 60, "b": 30, "c": 10}, 10) == {"a": 6, "b": 3, "c": 1}
    for count in range(1, 40):
        found = shares({"a": 7, "b": 11, "c": 23}, count)
        assert sum(found.values()) == count and abs(found["c"] - count * 23 / 41) < 1


def test_a_sample_depends_on_the_seed_alone_and_takes_a_place_once():
    package = mutate.ROOT / "hwdesign"
    names = mutate.modules(package, ["formulas"])
    one, two = (sample(package, names[1:5], 30, 5) for _ in range(2))
    other = sample(package, names[1:5], 30, 6)
    assert one == two != other
    assert len(set(one)) == len(one) == 30
    assert {m.module for m in one} == set(names[1:5])


def statements(path):
    """First lines of all statements of a module, as a compiler would print them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    return {ast.unparse(node).splitlines()[0] for node in nodes}


def test_what_is_said_to_be_equivalent_is_there_and_argued():
    package = mutate.ROOT / "hwdesign"
    for (module, before, after), argument in mutate.equivalents(mutate.EQUIVALENT).items():
        found = [path for path in package.rglob("*.py") if path.name == module]
        assert any(before in statements(path) for path in found), f"{module}: {before}"
        assert after != before and len(argument) > 40


TOY = '''"""A toy."""

SIZE = 3


def double(x):
    """Twice x: 2 * x.

    >>> double(0)
    0
    """
    return 2 * x


def untested(x):
    return x + 1


def endless(n):
    while n > SIZE:
        n = n - 1
    return n
'''
TEST = """
from toy.room.module import double, endless

def test_double():
    assert double(3) == 6

def test_endless():
    assert endless(5) == 3
"""


# In a process of its own: a fork of this one would spend its time limit on what pytest has loaded.
ALONE = "import sys, mutate; mutate.GRACE = 0.5; sys.exit(mutate.main(sys.argv[1:]))"


def test_toy_mutants_live_and_die(tmp_path):
    room = tmp_path / "toy" / "room"
    room.mkdir(parents=True)
    for folder in (room, room.parent):
        (folder / "__init__.py").write_text("")
    (room / "module.py").write_text(TOY)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_toy.py").write_text(TEST)
    where = ["--root", str(tmp_path), "--package", "toy", "--rooms", "room"]
    where += ["--count", "9", "--json", str(tmp_path / "out.json"), "--workers", "2"]
    command = [sys.executable, "-c", ALONE, *where, "--least", "99"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(mutate.__file__).parent)
    assert done.returncode == 1, done.stderr
    assert mutate.main([*where, "--list"]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    ends = {m["before"]: (m["status"], m["test"]) for m in found["mutants"]}
    assert ends["return x + 1"] == ("survived", "")
    assert ends["return 2 * x"][0] == ends["SIZE = 3"][0] == ends["while n > SIZE:"][0] == "killed"
    assert ends["SIZE = 3"][1] == "tests/test_toy.py::test_endless"
    said = done.stdout
    assert "survived: room/module.py:" in said and "- return x + 1" in said
    assert (tmp_path / "toy" / "room" / "module.py").read_text() == TOY  # the copy alone is mutated


@pytest.mark.parametrize(("options", "says"), [
    (["--count", "0"], "--count must be at least 1, got 0"),
    (["--workers", "-1"], "--workers must be at least 1, got -1"),
    (["--least", "101"], "--least must be from 0 to 100, got 101"),
    (["--rooms", "cellar"], "--rooms must be of .*formulas.* got cellar"),
    (["--module", "nothing"], "--module must be a module of formulas, .* got nothing"),
])  # fmt: skip
def test_wrong_options_are_named(options, says, capsys):
    with pytest.raises(SystemExit) as stopped:
        mutate.main(options)
    assert stopped.value.code == 2
    assert mutate.re.search(says, capsys.readouterr().err)
