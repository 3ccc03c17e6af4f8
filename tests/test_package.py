"""Package: import order of the rooms, a light import, docstrings with units, errors, source and a runnable example."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import hwdesign

ROOT = Path(hwdesign.__file__).parent
# Rooms from the ground up, and the files of each in order; a file imports only from files that stand before it.
ORDER = [
    "units", "_check",
    "formulas.roofline", "formulas.tiling", "formulas.attention", "formulas.experts", "formulas.routing", "formulas.pipeline",
    "formulas.chunks", "formulas.cache_parallel",
    "formulas.collectives",
    "formulas.number_formats", "formulas.quantization",
    "catalogue.precision", "catalogue.device", "catalogue.benchmarks", "catalogue.published",
    "catalogue.expert_parallel", "catalogue.chunked_pipeline", "catalogue.decoupled", "catalogue.landscape",
    "models.blocks", "models.model", "models.architectures", "models.config", "models.sharding", "models.layers", "models.steps",
    "models.sheet",
    "timing.silicon", "timing.staircase", "timing.depth", "timing.calibration", "timing.gemm", "timing.gemm_kernel",
    "timing.kernels", "timing.clock", "timing.estimate", "timing.pipeline", "timing.serving", "timing.served", "timing.layouts",
    "timing.frontier", "timing.search",
    "advice.safe", "advice.case", "advice.shapes", "advice.verdict", "advice.widths", "advice.rules", "advice.checklist",
    "advice.report_words", "advice.report_facts", "advice.report_text", "advice.report_html", "advice.report_sarif",
    "advice.report",
    "measure.timer", "measure.machine", "measure.runs", "measure.backends", "measure.gemm", "measure.attention",
    "measure.collectives", "measure.pipeline",
    "measure.suite",
    "lessons.style", "lessons.show", "lessons.claims", "lessons.tables", "lessons.explore",
    "lessons.live_parallel", "lessons.live", "lessons.samples", "lessons.levers", "lessons.verdicts", "lessons.game",
    "lessons.exercises.base", "lessons.exercises.near_square", "lessons.exercises.tile_alignment", "lessons.exercises.wide_deep",
    "lessons.exercises.low_precision", "lessons.exercises.expert_parallel", "lessons.exercises.pipeline",
    "lessons.exercises.decoupled", "lessons.exercises.landscape", "lessons.exercises.checklist", "lessons.exercises",
    "lessons.practice",
    "lessons.figures.roofline", "lessons.figures.accuracy", "lessons.figures.near_square", "lessons.figures.near_square_sliders",
    "lessons.figures.tile_alignment", "lessons.figures.tile_published", "lessons.figures.tile_sliders", "lessons.figures.machine",
    "lessons.figures.wide_deep", "lessons.figures.wide_deep_sliders", "lessons.figures.low_precision",
    "lessons.figures.low_precision_speed", "lessons.figures.low_precision_sliders", "lessons.figures.charts",
    "lessons.figures.expert_parallel", "lessons.figures.expert_parallel_published", "lessons.figures.expert_parallel_sliders",
    "lessons.figures.pipeline", "lessons.figures.pipeline_own", "lessons.figures.pipeline_sliders",
    "lessons.figures.decoupled", "lessons.figures.decoupled_sliders", "lessons.figures.landscape",
    "lessons.figures.landscape_sliders", "lessons.figures.checklist",
    "lessons.figures",
    "cli",
]  # fmt: skip
PLOTTING = {"matplotlib", "IPython", "ipywidgets", "PIL"}


def modules():
    paths = {p for p in ROOT.rglob("*.py") if p.name != "__init__.py" or p.parent.name in ("figures", "exercises")}
    return {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in paths}


def imports(path):
    """Absolute names of the modules that a file imports, at any depth of it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_file_has_its_place_in_the_order():
    assert set(modules()) == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_a_file_imports_only_from_files_before_it(name):
    allowed = set(ORDER[: ORDER.index(name)])
    inside = {i.removeprefix("hwdesign.") for i in imports(modules()[name]) if i.startswith("hwdesign.")}
    assert inside & set(ORDER) <= allowed, f"{name} imports {sorted(inside & set(ORDER) - allowed)}"


@pytest.mark.parametrize("name", ORDER)
def test_only_lessons_need_more_than_numpy(name):
    heavy = {i.split(".")[0] for i in imports(modules()[name])} - set(sys.stdlib_module_names) - {"hwdesign", "numpy"}
    assert heavy <= (PLOTTING if name.startswith("lessons") else set()), heavy


def fresh(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_is_light():
    loaded = fresh("import sys, numpy; before = set(sys.modules); import hwdesign; print(sorted(set(sys.modules) - before))")
    assert ast.literal_eval(loaded) == ["hwdesign"]
    used = fresh("import sys, hwdesign as h; h.gemm_grid; h.GB300; h.gemm_seconds; print(sorted(sys.modules))")
    assert not {"torch", "matplotlib", "IPython", "scipy", "pandas", "ipywidgets"} & set(ast.literal_eval(used))


@pytest.mark.alone
def test_import_adds_less_than_a_tenth_of_a_second_to_numpy():
    code = "import numpy, time; t = time.process_time(); import hwdesign; hwdesign.GB300; print(time.process_time() - t)"
    assert min(float(fresh(code)) for _ in range(3)) < 0.1


def test_public_names_exist_and_unknown_ones_are_refused():
    for name in hwdesign.__all__:
        assert getattr(hwdesign, name) is not None
    assert set(dir(hwdesign)) == set(hwdesign.__all__)
    with pytest.raises(AttributeError, match="public names are"):
        hwdesign.gemm_flop  # noqa: B018


def public_functions():
    for name in ORDER:
        module = importlib.import_module(f"hwdesign.{name}")
        for label, item in vars(module).items():
            if inspect.isfunction(item) and item.__module__ == module.__name__ and not label.startswith("_"):
                yield pytest.param(item, id=f"{name}.{label}")


@pytest.mark.parametrize("function", [p for p in public_functions() if not p.id.startswith("_check")])
def test_docstring_has_units_errors_source_and_example(function):
    if function.__qualname__ in ("styled", "plain_ticks", "vector"):
        return  # a decorator and one-line helpers
    text = inspect.getdoc(function) or ""
    sections = set(re.findall(r"^(\w+)\n-+$", text, re.M))
    assert {"Notes", "Examples"} <= sections and "Source:" in text and ">>> " in text
    if inspect.signature(function).parameters:
        assert "Parameters" in sections
        for name in inspect.signature(function).parameters:
            assert re.search(rf"\b{name}\b", text.split("Parameters")[1]), f"{name} is not described"
    assert re.search(r"\[[^\]]+\]|unit|inch|axes|HTML", text), "no unit"
    raises = any(isinstance(n, ast.Raise) for n in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))))
    assert not raises or "Raises" in sections


def test_the_package_can_be_read_in_an_afternoon():
    def code_lines(path):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node, clean=False) is not None:
                first = node.body[0]
                docs |= set(range(first.lineno, first.end_lineno + 1))
        lines = path.read_text(encoding="utf-8").splitlines()
        return sum(1 for i, line in enumerate(lines, 1) if line.strip() and i not in docs and not line.strip().startswith("#"))

    counts = {name: code_lines(path) for name, path in modules().items()}
    core = ("formulas", "catalogue", "models", "timing")  # what a chapter computes with; other rooms draw, ask and time
    rooms = {room: sum(n for name, n in counts.items() if name.startswith(f"{room}.")) for room in (*core, "advice", "measure")}
    assert sum(rooms[room] for room in core) < 3000 and max(counts.values()) < 300, counts
    assert rooms["advice"] < 1300 and rooms["measure"] < 1000, rooms  # half of the first writes reports
