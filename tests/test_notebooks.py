"""What a notebook must keep to be read on the site, in Colab and in Binder alike."""

import ast
import json
import re

import build_book
import pytest
from conftest import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
pytestmark = pytest.mark.parametrize("path", NOTEBOOKS or [pytest.param(None, marks=pytest.mark.skip("no notebook"))],
                                     ids=lambda path: path and path.stem)

BOOTSTRAP = '''\
# Install the book's package where it is missing (Colab); does nothing elsewhere.
import importlib.util
import os

if importlib.util.find_spec("hwdesign") is None:
    spec = os.environ.get("HWDESIGN_SPEC", "git+{repository}@v{version}")
    %pip install -q --no-deps {{spec}}'''


def notebook(path):
    return json.loads(path.read_text("utf8"))


def cells(path, kind):
    """``(position, source)`` of the cells of one kind."""
    found = enumerate(notebook(path)["cells"])
    return [(i, "".join(cell["source"])) for i, cell in found if cell["cell_type"] == kind]


def without_magics(source):
    """Source that Python can parse: IPython's own lines become ``pass``."""
    return re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.M)


def functions(path):
    """``(position, function)`` of each ``def`` in the notebook."""
    for i, source in cells(path, "code"):
        for node in ast.walk(ast.parse(without_magics(source))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield i, node


def test_no_outputs_are_stored(path):
    code = [cell for cell in notebook(path)["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)


def test_format_is_current_and_kernel_is_python3(path):
    content = notebook(path)
    assert content["metadata"]["kernelspec"]["name"] == "python3"
    assert (content["nbformat"], content["nbformat_minor"]) >= (4, 5)
    ids = [cell["id"] for cell in content["cells"]]
    assert len(set(ids)) == len(ids)


def test_claim_is_asserted(path):
    assert any(isinstance(node, ast.Assert) for _, source in cells(path, "code")
               for node in ast.walk(ast.parse(without_magics(source))))


def counted_lines(source):
    """Lines of a cell, but for imports, which name each source, and for claims, each of which takes a line."""
    source = "" if source.startswith("claims({") else source.partition("\nclaims({")[0]
    imports = [node for node in ast.parse(without_magics(source)).body if isinstance(node, ast.Import | ast.ImportFrom)]
    return len(source.splitlines()) - sum(node.end_lineno - node.lineno + 1 for node in imports)


def test_cells_and_functions_are_short(path):
    assert [i for i, source in cells(path, "code") if counted_lines(source) > 20] == []
    long_functions = [node.name for _, node in functions(path) if node.end_lineno - node.body[0].lineno + 1 > 5]
    assert not long_functions


@pytest.mark.parametrize("pattern", [
    r"\.\./", r"sys\.path", r"os\.chdir", r"(open|load\w*|read_\w+|Path)\(\s*[\"'](?!https?:)[\w.]+/"])
def test_no_path_depends_on_the_folder(path, pattern):
    assert [i for i, source in cells(path, "code") if re.search(pattern, source)] == []


def test_prose_needs_no_myst(path):
    for i, source in cells(path, "markdown"):
        raw = re.search(r"^\s*(```|:::)\s*\{|\{[\w:-]+\}`|^\(\w[\w-]*\)=$|^%\s", source, re.M)
        assert raw is None, f"cell {i}: Colab shows {raw.group()!r} as it stands"


def test_first_code_cell_installs_the_package_where_it_is_missing(path):
    position, source = cells(path, "code")[0]
    meta = build_book.project()
    assert source == BOOTSTRAP.format(repository=meta["urls"]["Repository"], version=meta["version"])
    assert {"hide-input", "hide-cell", "remove-cell"} & set(notebook(path)["cells"][position]["metadata"]["tags"])


def test_nothing_else_installs_anything(path):
    later = cells(path, "code")[1:]
    assert [i for i, source in later if re.search(r"pip3? install|conda install|apt(-get)? install", source)] == []


def test_every_exercise_has_a_hidden_solution_that_ran(path):
    content = notebook(path)["cells"]
    start = next((i for i, cell in enumerate(content) if re.match(r"#+ (\d+\. )?Exercises", "".join(cell["source"]))), None)
    assert start is not None, "no exercises"
    text = "\n".join("".join(cell["source"]) for cell in content[start:] if cell["cell_type"] == "markdown")
    solutions = [cell for cell in content[start:] if {"hide-cell", "solution"} <= set(cell["metadata"].get("tags", []))]
    exercises = len(re.findall(r"^### Exercise", text, re.M))
    assert exercises and text.count("<details>") == exercises == len(solutions), "exercises without a solution"
    assert all("practice.grade(" in "".join(cell["source"]) for cell in solutions), "a solution that its checker does not see"
