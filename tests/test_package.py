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
    "units", "safe", "_check",
    "formulas.roofline", "formulas.tiling", "formulas.attention", "formulas.experts", "formulas.routing",
    "formulas.pipeline", "formulas.chunks", "formulas.cache_parallel", "formulas.collectives",
    "formulas.number_formats", "formulas.quantization", "formulas.frontier",
    "catalogue.precision", "catalogue.device", "catalogue.engine", "catalogue.published",
    "models.parts", "models.indexer", "models.residual", "models.latent", "models.blocks", "models.mamba", "models.linear",
    "models.compressed", "models.shared_cache", "models.factored", "models.jet", "models.rarer_blocks",
    "models.model", "models.reading",
    "models.dense_readers", "models.expert_readers", "models.gpt_readers", "models.mixed_readers",
    "models.sparse_readers", "models.state_readers", "models.hybrid_readers", "models.shared_cache_readers",
    "models.newer_readers", "models.engine_readers", "models.further_readers", "models.served_readers",
    "models.rarer_readers", "models.own_kind_readers",
    "models.architectures", "models.nearest", "models.module_names", "models.module_rules", "models.compressed_tensors",
    "models.quantization_methods", "models.checkpoint",
    "models.blocks_file", "models.blocks_text", "models.config", "models.rewrite",
    "models.sharding", "models.layers", "models.steps", "models.engine_plans", "models.sheet",
    "models.safetensors", "models.packed", "models.partners", "models.proof",
    "timing.silicon", "timing.calibration", "timing.intervals", "timing.gemm_kernel", "timing.kernels",
    "timing.sparse_kernels", "timing.state_kernels", "timing.clock",
    "timing.energy", "timing.spent", "timing.one_step", "timing.estimate",
    "timing.bounds", "timing.pipeline", "timing.serving", "timing.part_times",
    "timing.formats", "timing.served", "timing.layouts", "timing.search",
    "advice.case", "advice.shapes", "advice.bands", "advice.evidence", "advice.breaks", "advice.verdict", "advice.widths",
    "advice.rules",
    "advice.plan_rules",
    "advice.guidelines", "advice.checklist", "advice.report_facts", "advice.judge", "advice.report_words",
    "advice.report_text", "advice.report_html", "advice.report_sarif", "advice.report", "advice.diff",
    "advice.alternatives", "advice.fixed", "advice.fixing", "advice.fix_command",
    "advice.design_families", "advice.design_space", "advice.design_search", "advice.design_front", "advice.designing",
    "advice.design_command",
    "measure.timer", "measure.machine", "measure.runs", "measure.backends", "measure.gemm", "measure.attention",
    "measure.collectives", "measure.pipeline", "measure.suite", "measure.constants",
    "lessons.style", "lessons.show", "lessons.claims", "lessons.tables", "lessons.explore",
    "lessons.live_parallel", "lessons.live",
    "lessons.studies.four_constants", "lessons.studies.staircase", "lessons.studies.depth", "lessons.studies.scores",
    "lessons.studies.samples", "lessons.studies.levers", "lessons.studies.verdicts", "lessons.studies.game",
    "lessons.exercises.base", "lessons.exercises.near_square", "lessons.exercises.tile_alignment",
    "lessons.exercises.wide_deep", "lessons.exercises.low_precision", "lessons.exercises.expert_parallel",
    "lessons.exercises.pipeline", "lessons.exercises.decoupled", "lessons.exercises.landscape",
    "lessons.exercises.checklist", "lessons.exercises", "lessons.practice",
    "lessons.figures.roofline", "lessons.figures.accuracy", "lessons.figures.near_square",
    "lessons.figures.near_square_sliders", "lessons.figures.tile_alignment", "lessons.figures.tile_published",
    "lessons.figures.tile_sliders", "lessons.figures.machine", "lessons.figures.wide_deep",
    "lessons.figures.wide_deep_sliders", "lessons.figures.low_precision", "lessons.figures.low_precision_speed",
    "lessons.figures.low_precision_sliders", "lessons.figures.charts", "lessons.figures.expert_parallel",
    "lessons.figures.expert_parallel_published", "lessons.figures.expert_parallel_sliders",
    "lessons.figures.pipeline", "lessons.figures.pipeline_own", "lessons.figures.pipeline_sliders",
    "lessons.figures.decoupled", "lessons.figures.decoupled_sliders", "lessons.figures.landscape",
    "lessons.figures.landscape_sliders", "lessons.figures.checklist", "lessons.figures",
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
    used = fresh("import sys, hwdesign as h; h.gemm_grid; h.GB300; h.gemm_time; print(sorted(sys.modules))")
    assert not {"torch", "matplotlib", "IPython", "scipy", "pandas", "ipywidgets"} & set(ast.literal_eval(used))


@pytest.mark.alone
def test_import_adds_less_than_a_tenth_of_a_second_to_numpy():
    code = "import numpy, time; t = time.process_time(); import hwdesign; hwdesign.GB300; print(time.process_time() - t)"
    assert min(float(fresh(code)) for _ in range(3)) < 0.1


def test_public_names_exist_and_are_few():
    for name in hwdesign.__all__:
        assert getattr(hwdesign, name) is not None
    assert {*hwdesign.__all__, "GB300", "NVFP4", "FP8_1X128"} <= set(dir(hwdesign))
    assert len(hwdesign.__all__) <= 80


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("schedule", "from hwdesign.formulas.pipeline import schedule"),
        ("gemm_seconds", "from hwdesign.lessons.studies.four_constants import gemm_seconds"),
        ("config", "from hwdesign.models import config"),
        ("SCHEMES", "from hwdesign.formulas.quantization import SCHEMES"),
    ],
)
def test_an_old_name_says_where_it_went(name, home):
    with pytest.raises(AttributeError, match=re.escape(home)):
        getattr(hwdesign, name)
    with pytest.raises(ImportError, match=re.escape(home)):
        exec(f"from hwdesign import {name}", {})
    exec(home, {})


def test_an_unknown_name_is_refused_with_the_public_ones():
    with pytest.raises(AttributeError, match="did you mean 'gemm_flops'.*public names are .*gemm_flops"):
        hwdesign.gemm_flop  # noqa: B018


def functions_of(name):
    """Functions and methods that a module defines, also those inside its classes."""
    module = importlib.import_module(f"hwdesign.{name}")
    own = [item for item in vars(module).values() if getattr(item, "__module__", None) == module.__name__]
    for item in own:
        if inspect.isfunction(item):
            yield item
        elif inspect.isclass(item):
            yield from (method for method in vars(item).values() if inspect.isfunction(method))


def described(function):
    return inspect.getdoc(function) or ""


NO_QUANTITY = {"layouts", "best_steps", "candidate_text", "save_run"}  # they list, choose, tell and write
PUBLIC_FUNCTIONS = [name for name in hwdesign.__all__ if inspect.isfunction(getattr(hwdesign, name))]


@pytest.mark.parametrize("name", PUBLIC_FUNCTIONS)
def test_docstring_of_a_public_function_has_units_errors_source_and_example(name):
    function = getattr(hwdesign, name)
    text = described(function)
    sections = set(re.findall(r"^(\w+)\n-+$", text, re.M))
    assert "Examples" in sections and ">>> " in text
    assert "Returns" in sections or name in ("save_run",)
    for parameter in inspect.signature(function).parameters:
        assert re.search(rf"\b{parameter}\b", text.split("Parameters")[1]), f"{parameter} is not described"
    assert name in NO_QUANTITY or re.search(r"\[[^\]]+\]|unit|Breakdown|Checklist|Run|str", text), "no unit"
    raises = any(isinstance(n, ast.Raise) for n in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))))
    assert not raises or "Raises" in sections


@pytest.mark.parametrize("name", sorted(set(PUBLIC_FUNCTIONS) - NO_QUANTITY))
def test_a_public_quantity_has_a_source(name):
    function = getattr(hwdesign, name)
    home = inspect.getsource(inspect.getmodule(function))
    assert re.search(r"Sources?:", described(function) + (ast.get_docstring(ast.parse(home)) or "")), "no source"


@pytest.mark.parametrize("name", ORDER)
def test_every_public_function_of_a_module_has_a_line(name):
    missing = [f.__qualname__ for f in functions_of(name) if not f.__name__.startswith("_") and not described(f)]
    assert not missing


def code_lines(node_or_tree, lines):
    """Lines of code of a piece of source: no docstring, no comment, no blank line."""
    docs = set()
    for node in ast.walk(node_or_tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node, clean=False) is not None:
            docs |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    first = getattr(node_or_tree, "body", [node_or_tree])[0].lineno
    last = getattr(node_or_tree, "body", [node_or_tree])[-1].end_lineno
    kept = (i for i in range(first, last + 1) if i not in docs)
    return sum(1 for i in kept if lines[i - 1].strip() and not lines[i - 1].strip().startswith("#"))


@pytest.mark.parametrize("name", ORDER)
def test_modules_and_function_bodies_stay_readable(name):
    """At most 500 lines of code a module and 50 a function body, none over 100 columns."""
    source = modules()[name].read_text(encoding="utf-8")
    lines, tree = source.splitlines(), ast.parse(source)
    assert [i for i, line in enumerate(lines, 1) if len(line) > 100] == []
    assert not tree.body or code_lines(tree, lines) <= 500
    bodies = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert [node.name for node in bodies if code_lines(node, lines) > 50] == []
