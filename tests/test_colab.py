"""A notebook opened alone, as Colab opens it: an empty folder, Colab's libraries, the package not installed.

The package comes from a local wheel through the notebook's own first cell, which must not replace a library. A notebook
that passed does not run again until it, the package, the list of libraries, Python or this file changes; `make test`
runs three of the others, `.ci/run` and `make weekly` all.
"""

import functools
import glob
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import build_book
import pytest
from conftest import ROOT, digest, required, skip_or_fail

CHECKS = [Path(__file__).read_bytes()]  # as it runs now
VENV = ROOT / "_build" / "colab-venv"
PYTHON = VENV / "bin" / "python"
# Colab's image. ipywidgets 7 asks for the whole classic notebook server, hence without its dependencies.
LIBRARIES = ["numpy==2.1.*", "matplotlib==3.10.*", "ipykernel==6.17.1", "ipython==7.34.0", "nbclient", "setuptools<81"]
WIDGETS = ["ipywidgets==7.7.1", "ipython-genutils==0.2.0", "widgetsnbextension==3.6.10", "jupyterlab-widgets==1.1.11"]
EXECUTE = """
import sys, nbformat, nbclient
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
outputs = [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]
# A display that fails prints a traceback and goes on: the cell counts as run.
broken = [o.text for o in outputs if o.output_type == "stream" and "Traceback" in o.text]
assert not broken, broken
sliders = [o.data for o in outputs if "hw-explorer" in o.get("data", {}).get("text/html", "")]
print(len(sliders), sum("application/vnd.jupyter.widget-view+json" in data for data in sliders))
"""


def run(*command, **options):
    """Run a command; its output becomes the message of a failure."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@functools.cache
def interpreter():
    """Python 3.12, which Colab runs, or this one where there is none."""
    pyenv = glob.glob(os.path.expanduser("~/.pyenv/versions/3.12.*/bin/python3.12"))
    for candidate in [shutil.which("python3.12"), *pyenv]:
        if candidate and subprocess.run([candidate, "--version"], capture_output=True, check=False).returncode == 0:
            return candidate
    return sys.executable


@functools.cache
def python_version():
    """What the interpreter says of itself."""
    return run(interpreter(), "-c", "import sys; print(sys.version)")


def notebook_key(path, root=ROOT, libraries=(LIBRARIES, WIDGETS), python=None, checks=CHECKS):
    """Key of all that the result of a notebook depends on."""
    package = list(build_book.source_files(root, ["hwdesign", "pyproject.toml"]))
    names = [file.relative_to(root).as_posix() for file in package]
    return digest(python or python_version(), repr(libraries), *checks, path, *names, *package)


# In an order that an edit of the package changes, since `make test` takes only the first of them.
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"), key=notebook_key)
A_RUN = 3  # notebooks; all of them take longer than the rest of the tests together


@pytest.fixture
def turn(path):
    """Leaves a notebook to ``.ci/run`` and ``make weekly``, which make all of them mandatory."""
    if NOTEBOOKS.index(path) >= A_RUN and not required("HWDESIGN_REQUIRE_COLAB"):
        pytest.skip(f"left to .ci/run and make weekly: {A_RUN} notebooks here, which ones an edit of the package changes")


@pytest.fixture(scope="module")
def colab():
    """Python of an environment with Colab's libraries, kept between runs until the list changes."""
    key = hashlib.sha256(repr((LIBRARIES, WIDGETS, interpreter())).encode()).hexdigest()
    stamp = VENV / "key"
    if not (stamp.is_file() and stamp.read_text() == key):
        shutil.rmtree(VENV, ignore_errors=True)
        try:
            run(interpreter(), "-m", "venv", VENV)
            run(PYTHON, "-m", "pip", "install", "-q", *LIBRARIES)
            run(PYTHON, "-m", "pip", "install", "-q", "--no-deps", *WIDGETS)
        except AssertionError as error:
            if required("HWDESIGN_REQUIRE_COLAB"):
                raise
            skip_or_fail(f"Colab's libraries could not be installed: {str(error).splitlines()[-1]}", "")
        stamp.write_text(key)
    return PYTHON


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The package as a wheel, built from a copy so that no build folder is left behind."""
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "hwdesign", source / "hwdesign", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", out, source)
    return next(out.glob("hwdesign-*.whl"))


def installed():
    """Distributions of the environment with their versions, by the folders that hold their records."""
    return {folder.name for folder in VENV.glob("lib/python*/site-packages/*.dist-info")}


def remove_package():
    """What ``pip uninstall hwdesign`` removes, in no time."""
    for folder in VENV.glob("lib/python*/site-packages/hwdesign*"):
        shutil.rmtree(folder)
    (VENV / "bin" / "hwdesign").unlink(missing_ok=True)


@pytest.mark.remembered(key=notebook_key)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_alone_and_replaces_no_library(turn, colab, wheel, path, tmp_path):
    remove_package()
    before = installed()
    assert before and not any(name.startswith("hwdesign") for name in before)
    shutil.copy(path, tmp_path)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    env |= {"HWDESIGN_SPEC": str(wheel), "PATH": f"{PYTHON.parent}{os.pathsep}{env['PATH']}"}
    env.pop("HWDESIGN_STATIC", None)
    shown, live = map(int, run(colab, "-c", EXECUTE, path.name, cwd=tmp_path, env=env).split())
    assert shown == live > 0, "a slider offers the page's form and a live one"
    assert installed() == before | {f"hwdesign-{build_book.project()['version']}.dist-info"}


CHECK = """
import sys, time
started, start = set(sys.modules), time.perf_counter()
sys.path.insert(0, sys.argv[1])
from hwdesign.cli import main
code = main(["check", "deepseek-r1", "--tp", "8", "--ep", "8", "--recipe", "nvfp4"])
files = {name: getattr(module, "__file__", "") or "" for name, module in sys.modules.items() if name not in started}
homes = {name.split(".")[0] for name, file in files.items() if "site-packages" in file}
print(code, sorted(homes - {"numpy"}), time.perf_counter() - start < 10)
"""


def test_the_wheel_checks_a_config_with_numpy_alone(wheel, tmp_path):
    alone = tmp_path / "alone"
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", alone, wheel)
    told = run(sys.executable, "-c", CHECK, alone, cwd=tmp_path)
    assert told.startswith("deepseek-r1 on 8 x GB300") and told.splitlines()[-1] == "1 [] True"
