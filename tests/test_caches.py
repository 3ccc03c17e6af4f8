"""What is remembered of an earlier run: keys change when they must, and only a pass is kept."""

import shutil

import build_book
import pytest
import test_browser
import test_colab
from conftest import CHECKED, ROOT, UNCHANGED, digest

pytest_plugins = ["pytester"]


@pytest.fixture
def small_site(tmp_path):
    """Two pages of a site, a style sheet, a script and a picture."""
    files = {
        "book/a.html": '<link href="../_static/book.css"><img src="../_images/a.svg"><a href="b.html#x">',
        "book/b.html": "<p>two</p>",
        "search.html": '<script src="searchindex.js"></script>',
        "searchindex.js": "index",
        "_static/book.css": "p {color: red}",
        "_static/fonts/one.woff": "font",
        "_images/a.svg": "<svg>",
        "_images/b.svg": "<svg>",
    }
    write(tmp_path / "html", files)
    write(tmp_path, {"checks.py": "assert True"})
    return tmp_path


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def flip(file):
    """Change one bit of a file."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def page_key(folder, name="book/a.html", versions=("playwright 1", "axe 4", "chromium 150")):
    return test_browser.page_key(name, folder / "html", versions, (folder / "checks.py",))


@pytest.mark.parametrize(("file", "page", "looked_at_again"), [
    ("html/book/a.html", "book/a.html", True), ("html/_static/book.css", "book/a.html", True),
    ("html/_static/fonts/one.woff", "book/a.html", True), ("html/_images/a.svg", "book/a.html", True),
    ("checks.py", "book/a.html", True), ("html/_static/book.css", "book/b.html", True),
    ("html/book/b.html", "book/a.html", False), ("html/_images/b.svg", "book/a.html", False),
    ("html/searchindex.js", "book/a.html", False), ("html/searchindex.js", "search.html", True),
    ("html/book/b.html", "search.html", True),
])  # fmt: skip
def test_what_makes_a_page_be_looked_at_again(small_site, file, page, looked_at_again):
    before = page_key(small_site, page)
    assert page_key(small_site, page) == before
    flip(small_site / file)
    assert (page_key(small_site, page) != before) is looked_at_again


def test_a_new_file_of_the_theme_and_a_new_name_count(small_site):
    keys = [page_key(small_site)]
    write(small_site / "html", {"_static/new.js": ""})
    keys.append(page_key(small_site))
    (small_site / "html/_static/new.js").rename(small_site / "html/_static/newer.js")
    keys.append(page_key(small_site))
    assert len(set(keys)) == 3


@pytest.mark.parametrize("which", range(3))
def test_a_new_browser_playwright_or_axe_looks_at_every_page_again(small_site, which):
    versions = ["playwright 1", "axe 4", "chromium 150"]
    before = page_key(small_site, versions=versions)
    versions[which] += ".1"
    assert page_key(small_site, versions=versions) != before


def test_no_page_has_no_key(small_site):
    assert page_key(small_site, "no site") is None


@pytest.fixture
def small_project(tmp_path):
    """A notebook, a package and a file of checks."""
    write(tmp_path, {"a.ipynb": "{}", "hwdesign/one.py": "x = 1", "hwdesign/data.csv": "1", "pyproject.toml": "[project]",
                     "book/a.md": "# A", "_toc.yml": "root: a", "requirements.txt": "numpy", "scripts/build.py": "y = 2",
                     "checks.py": "assert True", "html/a.html": "<p>", "html/.nojekyll": "-"})  # fmt: skip
    return tmp_path


def notebook_key(folder, libraries=("numpy==2.1.*",), python="3.12.1"):
    return test_colab.notebook_key(folder / "a.ipynb", folder, libraries, python, (folder / "checks.py",))


@pytest.mark.parametrize(("file", "runs_again"), [
    ("a.ipynb", True), ("hwdesign/one.py", True), ("hwdesign/data.csv", True), ("pyproject.toml", True), ("checks.py", True),
    ("book/a.md", False),
])  # fmt: skip
def test_what_makes_a_notebook_run_in_colab_again(small_project, file, runs_again):
    before = notebook_key(small_project)
    assert notebook_key(small_project) == before
    flip(small_project / file)
    assert (notebook_key(small_project) != before) is runs_again


def test_other_libraries_or_another_python_run_every_notebook_again(small_project):
    before = notebook_key(small_project)
    assert notebook_key(small_project, libraries=("numpy==2.2.*",)) != before
    assert notebook_key(small_project, python="3.12.2") != before


@pytest.mark.parametrize(("file", "built_again"), [
    ("book/a.md", True), ("_toc.yml", True), ("hwdesign/one.py", True), ("hwdesign/data.csv", True), ("requirements.txt", True),
    ("pyproject.toml", True), ("scripts/build.py", True), ("html/a.html", True), ("checks.py", False),
])  # fmt: skip
def test_what_makes_the_site_be_built_again(small_project, file, built_again):
    key, stamp, html = build_book.site_key(small_project, small_project / "html"), small_project / "built", small_project / "html"
    assert not build_book.unchanged(key, stamp, html)
    stamp.write_text(key)
    assert build_book.unchanged(key, stamp, html)
    flip(small_project / file)
    again = build_book.unchanged(build_book.site_key(small_project, html), stamp, html)
    assert again is not built_again
    (html / ".nojekyll").unlink()
    assert not build_book.unchanged(key, stamp, html)


def test_every_folder_of_the_site_is_in_its_key():
    parts = {*build_book.SOURCES, *build_book.PINS, "hwdesign", "scripts"}
    assert parts >= {name for name in ("_config.yml", "_toc.yml", "constraints.txt") if (ROOT / name).is_file()}
    assert CHECKED.is_relative_to(ROOT / "_build") and "_build/" in (ROOT / ".gitignore").read_text().split()


def test_a_digest_tells_where_one_part_ends(tmp_path):
    assert len({digest("ab", "c"), digest("a", "bc"), digest("abc"), digest(b"abc", b"")}) == 4
    write(tmp_path, {"a": "ab"})
    assert digest(tmp_path / "a") == digest("ab")


# A project of its own -----------------------------------------------------------------------------------------------------


CASES = """
import pathlib
import pytest

@pytest.mark.remembered(key=lambda name: pathlib.Path("key").read_text() or None)
@pytest.mark.parametrize("name", ["good", "bad", "left"])
def test_it(name):
    if name == "left":
        pytest.skip("for a reason")
    assert name == "good" or pathlib.Path("mended").exists()

@pytest.mark.weekly
def test_long():
    raise AssertionError
"""


@pytest.fixture
def project(pytester):
    """``project(key)`` runs three remembered tests with this key, and returns how many ended in which way."""
    (pytester.path / "tests").mkdir()
    shutil.copy(ROOT / "tests/conftest.py", pytester.path / "tests")
    shutil.copy(ROOT / "pyproject.toml", pytester.path)
    (pytester.path / "tests/test_cases.py").write_text(CASES)

    def run(key, *options):
        (pytester.path / "key").write_text(key)
        result = pytester.runpytest_subprocess("tests", "-m", "not weekly", *options)
        return result, {name: count for name, count in result.parseoutcomes().items() if name != "deselected"}

    return run


def test_only_a_pass_with_the_same_key_is_kept_and_no_weekly_test_runs(project, pytester):
    (pytester.path / "mended").touch()
    result, found = project("one")
    assert found == {"passed": 2, "skipped": 1} and result.parseoutcomes()["deselected"] == 1
    (pytester.path / "mended").unlink()
    assert project("one")[1] == {"unchanged": 2, "skipped": 1}
    assert project("two")[1] == {"passed": 1, "failed": 1, "skipped": 1}
    assert project("one")[1] == {"passed": 1, "failed": 1, "skipped": 1}  # the pass with this key is long gone
    assert project("")[1] == {"passed": 1, "failed": 1, "skipped": 1}  # without a key nothing is remembered


def test_what_is_left_out_is_said_with_two_workers(project):
    assert project("one", "-n", "2")[1] == {"passed": 1, "failed": 1, "skipped": 1}
    result, found = project("one", "-n", "2")
    assert found == {"unchanged": 1, "failed": 1, "skipped": 1}
    result.stdout.fnmatch_lines([f"tests/test_cases.py: 1 of 3 tests {UNCHANGED}*"])


def test_the_weekly_tests_are_left_to_make_weekly():
    makefile = (ROOT / "Makefile").read_text()
    assert makefile.count("not weekly") == 3 and "-m weekly tests" in makefile
    assert "make weekly" in (ROOT / ".github/workflows/weekly.yml").read_text()
