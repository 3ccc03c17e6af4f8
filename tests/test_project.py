"""Rules of the repository: bounds, one version everywhere, what stays out, what a cache key covers."""

import re
import shutil
import subprocess
import sys

import build_book
import pytest
import yaml
from conftest import ROOT

VERSION = build_book.project()["version"]
REPOSITORY = build_book.project()["urls"]["Repository"]
TEXT = {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".cff", ".ipynb", ".css", ".js", ".svg", ".bib", ".csv", ""}
FOLDERS = [".ci", ".github", "binder", "book", "hwdesign", "notebooks", "scripts", "site_assets", "tests"]


def read(name):
    path = ROOT / name
    if not path.is_file():
        pytest.fail(f"{name} is missing")
    return path.read_text("utf8")


def pins(name):
    """``{package: specifier}`` of a requirements file, its own lines only."""
    lines = (line.split("#")[0].strip() for line in read(name).splitlines())
    found = (re.match(r"([\w.-]+)\s*([<>=!~].*)?$", line) for line in lines if line and not line.startswith("-"))
    return {match[1].lower(): match[2] or "" for match in found}


def project_files():
    """Text files of the project, at the root and in its folders."""
    root_files = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]  # of a work tree
    nested = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [path for path in root_files + nested if path.suffix in TEXT and "__pycache__" not in path.parts]


def test_jupyter_book_stays_below_two():
    assert re.fullmatch(r"==1\.\d+\.\d+(\.post\d+)?", pins("requirements.txt")["jupyter-book"])


@pytest.mark.parametrize("name", [
    "requirements.txt", "requirements-test.txt", "requirements-torch.txt", "constraints.txt",
    "binder/requirements.txt"])
def test_builds_are_pinned_exactly(name):
    assert [package for package, pin in pins(name).items() if not pin.startswith("==")] == []


def test_pins_do_not_disagree():
    constraints = pins("constraints.txt")
    for name in ("requirements.txt", "requirements-test.txt", "binder/requirements.txt"):
        mine = pins(name)
        assert not {package for package in mine if package in constraints and mine[package] != constraints[package]}
    book, binder = pins("requirements.txt"), pins("binder/requirements.txt")
    assert {package: pin for package, pin in binder.items() if book.get(package, pin) != pin} == {}


def test_notebook_kernel_is_pinned():
    assert pins("requirements.txt")["ipykernel"].startswith("==")
    assert "ipykernel" in pins("binder/requirements.txt")


def test_torch_stays_out_of_the_book_and_of_binder():
    for name in ("requirements.txt", "constraints.txt", "binder/requirements.txt", "binder/postBuild"):
        assert not re.search(r"^\s*(pip install )?(torch|nvidia)", read(name), re.M), name


def test_binder_installs_the_package_without_its_dependencies():
    assert re.search(r"pip install --no-deps .*\.$", read("binder/postBuild"), re.M)
    assert (ROOT / "binder/postBuild").stat().st_mode & 0o111
    assert re.fullmatch(r"python-3\.1[1-3]\n", read("binder/runtime.txt"))


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_repo2docker_accepts_the_repository(tmp_path):
    pytest.importorskip("repo2docker", reason="jupyter-repo2docker is not installed")
    for name in ("binder", "hwdesign", "pyproject.toml"):
        source = ROOT / name
        shutil.copytree(source, tmp_path / name) if source.is_dir() else shutil.copy(source, tmp_path)
    done = subprocess.run([sys.executable, "-m", "repo2docker", "--no-build", "--debug", str(tmp_path)],
                          capture_output=True, text=True, timeout=120, check=False)
    dockerfile = done.stdout + done.stderr
    assert done.returncode == 0, dockerfile[-2000:]
    assert "binder/requirements.txt" in dockerfile and "./binder/postBuild" in dockerfile


def test_one_version_everywhere():
    assert re.search(rf"^version: [\"']?{re.escape(VERSION)}[\"']?$", read("CITATION.cff"), re.M)
    newest = re.search(r"^## \[?v?(\d+\.\d+\.\d+)", read("CHANGELOG.md"), re.M)
    assert newest and newest[1] == VERSION
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        assert set(re.findall(r"hwdesign@v([\d.]+\d)", notebook.read_text())) == {VERSION}


def test_repository_address_has_one_home():
    config = build_book.configured(read("_config.yml"))
    assert yaml.safe_load(config)["repository"]["url"] == REPOSITORY
    assert "github.com" not in read("_config.yml")
    for name in ("README.md", "CITATION.cff"):
        assert REPOSITORY in read(name), f"{name} names another repository than pyproject.toml"


def test_readme_gives_the_two_commands_first():
    text = read("README.md")
    assert "make book" in text and "make test" in text and "TORCH=0" in text
    assert text.index("make book") < 2500


def test_config_keeps_what_was_learned():
    config = yaml.safe_load(build_book.configured(read("_config.yml")))
    assert config["launch_buttons"]["thebe"] is False
    assert "sphinx_thebe" not in config["sphinx"]["config"]["extensions"]
    assert config["execute"]["execute_notebooks"] == "off" and config["execute"]["timeout"] >= 60
    assert config["copyright"]


def test_toc_names_files_that_exist():
    pages = build_book.toc_files(yaml.safe_load(read("_toc.yml")))
    sources = {page for page in pages if any((ROOT / f"{page}{suffix}").is_file() for suffix in (".md", ".ipynb"))}
    generated = re.findall(r"[\w/]+\.md", read("scripts/generate_pages.py"))
    assert {page for page in set(pages) - sources if not any(page.endswith(name[:-3]) for name in generated)} == set()


def test_published_site_keeps_its_static_files():
    workflow = read(".github/workflows/publish.yml")
    assert ".nojekyll" in workflow and "upload-pages-artifact" in workflow and "deploy-pages" in workflow
    assert {"3.11", "3.12", "3.13"} <= set(re.findall(r"3\.1\d", read(".github/workflows/test.yml")))


def test_make_lists_its_targets():
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {"book", "quick", "test", "weekly", "lint", "serve", "clean"} <= set(re.findall(r"^make (\w+)", listed, re.M))


def test_make_refuses_another_python(tmp_path):
    fake = tmp_path / "python2"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("requirements.txt", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    done = subprocess.run(["make", "book", f"PYTHON={fake}"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode and "is not Python 3.11, 3.12 or 3.13" in done.stdout


def test_no_private_path_is_left():
    private = re.compile(r"(?<![\w.])/(work|root|home/\w+|opt/\w+)/")
    found = [f"{path.relative_to(ROOT)}: {match.group()}" for path in project_files() if path.name != "test_project.py"
             for match in [private.search(path.read_text("utf8"))] if match]
    assert found == []


@pytest.fixture
def small_project(tmp_path):
    """A project of one notebook, one formula and one page of prose."""
    for name, text in {"hwdesign/formulas/roofline.py": "def ridge(): return 1", "hwdesign/timing/data/grid.npz": "1",
                       "notebooks/a.ipynb": "{}", "book/preface.md": "# Preface", "requirements.txt": "numpy==2.4.6",
                       "constraints.txt": "zipp==4.1.2"}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(("name", "runs_again"), [
    ("hwdesign/formulas/roofline.py", True), ("hwdesign/timing/data/grid.npz", True), ("notebooks/a.ipynb", True),
    ("requirements.txt", True), ("constraints.txt", True), ("book/preface.md", False),
    ("hwdesign/__pycache__/roofline.pyc", False),
])
def test_what_makes_a_notebook_run_again(small_project, name, runs_again):
    notebook = small_project / "notebooks/a.ipynb"
    before = build_book.execution_key(notebook, small_project)
    (small_project / name).parent.mkdir(exist_ok=True)
    (small_project / name).write_text("changed")
    assert (build_book.execution_key(notebook, small_project) != before) is runs_again


def test_toc_is_read_in_order_at_any_depth():
    toc = {"root": "a", "parts": [{"chapters": [{"file": "b", "sections": [{"file": "c"}]}, {"file": "d"}]}]}
    assert build_book.toc_files(toc) == ["a", "b", "c", "d"]


def test_missing_page_fails_the_build(tmp_path, monkeypatch):
    monkeypatch.setattr(build_book, "HTML", tmp_path)
    with pytest.raises(build_book.BuildError, match="book/lost"):
        build_book.check(["book/lost"], (0.0, "cell"), 120)


def test_slow_cell_fails_the_build():
    with pytest.raises(build_book.BuildError, match="over half"):
        build_book.check([], (61.0, "a.ipynb cell 3"), 120)


@pytest.fixture
def one_page(tmp_path):
    """A copy of the project whose book is one page of two lines and whose code writes no page."""
    for name in ("scripts", "site_assets"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("_config.yml", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/preface\n")
    (tmp_path / "book").mkdir()
    (tmp_path / "book/preface.md").write_text("# Preface\n\nOne page.\n")
    shutil.copy(ROOT / "book/references.bib", tmp_path / "book")
    (tmp_path / "scripts/generate_pages.py").write_text("")
    return tmp_path


def test_a_build_from_another_folder_and_when_it_is_done_again(one_page):
    def build():
        command = [sys.executable, one_page / "scripts/build_book.py"]
        done = subprocess.run(command, cwd=one_page / "book", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return "nothing changed" in done.stdout

    html = one_page / "_build/html"
    assert not build() and "One page." in (html / "book/preface.html").read_text()
    before = build_book.files_digest(html, ["."])
    assert build()
    (one_page / "_build/built").unlink()
    assert not build() and build_book.files_digest(html, ["."]) == before, "the same sources gave another site"


def test_everything_the_book_needs_installs_in_under_a_gigabyte():
    from importlib import metadata

    sizes = {}
    for package in {**pins("requirements.txt"), **pins("constraints.txt")}:
        try:
            files = metadata.distribution(package).files or []
        except metadata.PackageNotFoundError:  # a pin for another platform or Python
            continue
        sizes[package] = sum(path.stat().st_size for file in files if (path := file.locate()).is_file())
    assert len(sizes) > 50 and sum(sizes.values()) < 1e9, sorted(sizes.items(), key=lambda item: -item[1])[:5]
