"""Build the site into ``_build/html``: copy, generate, execute, render, check. Run by ``make book``.

Sources are copied to ``_build/src`` so that executing a notebook never touches the committed file. A notebook is
executed once and its result kept under a key of everything that can change it, so an edit of prose does not execute
anything and an edit of a formula does. Where nothing at all changed since the last good build, nothing is done.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "_build"
SRC, HTML, EXECUTED, BUILT = BUILD / "src", BUILD / "html", BUILD / "executed", BUILD / "built"
SOURCES = ["_config.yml", "_toc.yml", "book", "notebooks", "site_assets"]
PINS = ["requirements.txt", "constraints.txt", "pyproject.toml"]
# Files of MathJax that the pages load; the other 23 MB (SVG output, speech rules, full builds) are removed.
MATHJAX_KEPT = ("tex-chtml.js", "output/chtml/fonts/", "input/tex/extensions/")


class BuildError(Exception):
    """A failure whose message is the one line that says what to do."""


@contextmanager
def step(name, seconds):
    """Announce a step and note how long it took in ``seconds``."""
    print(f"==> {name}", flush=True)
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def run(command, advice, cwd=ROOT):
    """Run a command with its output visible; a failure becomes the one line ``advice``."""
    env = os.environ | ({} if sys.stdout.isatty() else {"NO_COLOR": "1"})
    env |= {"HWDESIGN_STATIC": "1"}  # no live widgets
    env |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # two notebooks at a time, a core each
    if subprocess.run([str(part) for part in command], cwd=cwd, env=env).returncode:
        raise BuildError(advice)


def project():
    """The ``[project]`` table of pyproject.toml, the one home of version, author and repository address."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def toc_files(toc):
    """Every page that ``_toc.yml`` names, without suffix, in reading order."""
    if isinstance(toc, list):
        return [page for item in toc for page in toc_files(item)]
    pages = [toc[key] for key in ("root", "file") if key in toc]
    return pages + [page for value in toc.values() if isinstance(value, list) for page in toc_files(value)]


def source_files(root, folders):
    """Files below ``folders`` of ``root`` that belong to the project: no caches, nothing hidden."""
    for folder in folders:
        path = root / folder
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            parts = file.relative_to(root).parts
            if file.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in parts):
                yield file


def write_if_changed(path, data):
    """Write bytes only where they differ: Sphinx reads a page again when its file is newer."""
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def configured(text):
    """``_config.yml`` with the values that live in pyproject.toml."""
    meta = project()
    text = text.replace("{author}", meta["authors"][0]["name"]).replace("{version}", meta["version"])
    return text.replace("{repository}", meta["urls"]["Repository"])


def copy_sources():
    """Bring ``_build/src`` up to date with the sources; executed notebooks come later."""
    wanted = {file.relative_to(ROOT): file for file in source_files(ROOT, SOURCES)}
    for relative, file in wanted.items():
        data = file.read_bytes()
        if relative.name == "_config.yml":
            data = configured(data.decode()).encode()
        if relative.suffix != ".ipynb":
            write_if_changed(SRC / relative, data)
    generated = generate_pages(SRC / "book")
    for file in source_files(SRC, SOURCES):
        if file.relative_to(SRC) not in wanted and file not in generated:
            file.unlink()


def generate_pages(folder):
    """Run ``generate_pages.py`` into a folder of its own, then take over what changed; returns the paths."""
    out = BUILD / "generated"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    run([sys.executable, ROOT / "scripts/generate_pages.py", "--out", out], "generate_pages.py failed: see above")
    pages = {file: folder / file.relative_to(out) for file in out.rglob("*") if file.is_file()}
    for file, page in pages.items():
        write_if_changed(page, file.read_bytes())
    return set(pages.values())


def execution_key(notebook, root=ROOT):
    """Digest of all that an executed notebook depends on: itself, the package, the pins, Python."""
    digest = hashlib.sha256(".".join(map(str, sys.version_info[:3])).encode())
    for file in [notebook, root / "requirements.txt", root / "constraints.txt", *source_files(root, ["hwdesign"])]:
        digest.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def files_digest(root, folders):
    """Digest of the names and the content of files; a folder or file that is not there counts as empty."""
    digest = hashlib.sha256()
    for file in source_files(root, folders):
        data = file.read_bytes()
        digest.update(f"\0{file.relative_to(root).as_posix()}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def site_key(root=ROOT, html=HTML):
    """Key of a finished site: all that it is made of, Python, and the site itself, so that a lost page is noticed."""
    made_of = files_digest(root, [*SOURCES, "hwdesign", "scripts", *PINS])
    return f"{made_of} {sys.version.split()[0]} {files_digest(html, ['.'])}"


def unchanged(key, stamp=BUILT, html=HTML):
    """Whether the last good build left this key; the file for GitHub Pages is hidden and has no part in it."""
    return stamp.is_file() and stamp.read_text() == key and (html / ".nojekyll").is_file()


def run_notebooks(results, timeout):
    """Execute each notebook in an empty folder and keep its result; nbmake skips any path with ``_build`` in it."""
    EXECUTED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        largest_first = sorted(results, key=lambda notebook: -notebook.stat().st_size)  # so that none is left alone at the end
        copies = {notebook: shutil.copy(notebook, work) for notebook in largest_first}
        run(
            [
                sys.executable,
                "-m",
                "pytest",
                "--nbmake",
                "--overwrite",
                f"--nbmake-timeout={timeout}",
                "-v",
                "-n",
                "2",
                "-c",
                os.devnull,
                "--rootdir",
                work,
                "-p",
                "no:cacheprovider",
                *copies.values(),
            ],
            "a notebook failed: its cell and error are above; open it in Jupyter to try it",
        )
        for notebook, copy in copies.items():
            shutil.move(copy, results[notebook])


def execute_notebooks(timeout):
    """Execute through nbmake the notebooks whose key is new; returns the slowest cell's (seconds, place)."""
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    kept = {notebook: EXECUTED / f"{notebook.stem}.{execution_key(notebook)}.ipynb" for notebook in notebooks}
    stale = [notebook for notebook, result in kept.items() if not result.exists()]
    if stale:
        print(f"    {len(stale)} of {len(notebooks)} notebooks", flush=True)
        run_notebooks({notebook: kept[notebook] for notebook in stale}, timeout)
    for old in set(EXECUTED.glob("*.ipynb")) - set(kept.values()):
        old.unlink()
    return max((place_executed(notebook, result) for notebook, result in kept.items()), default=(0.0, "no notebook"))


def place_executed(notebook, result):
    """Put one executed notebook where Sphinx reads it, without its timestamps; returns its slowest cell."""
    content = json.loads(result.read_text())
    slowest = max(cell_seconds(cell, f"{notebook.name} cell {i}") for i, cell in enumerate(content["cells"]))
    for cell in content["cells"]:
        cell["metadata"].pop("execution", None)
    write_if_changed(SRC / "notebooks" / notebook.name, json.dumps(content, indent=1).encode())
    return slowest


def cell_seconds(cell, place):
    """Seconds one cell ran, from the times nbclient stores in it."""
    times = cell["metadata"].get("execution", {})
    start, end = (times.get(f"iopub.status.{state}") for state in ("busy", "idle"))
    if not (start and end):
        return 0.0, place
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds(), place


def render():
    """Jupyter Book with warnings as errors; ``--all`` so that every page's menu is current.

    Into an empty folder: where files of an earlier build lie, Sphinx gives some addresses a version and others none, and
    a page whose bytes change is looked at again.
    """
    shutil.rmtree(HTML, ignore_errors=True)
    run(
        [
            Path(sys.executable).with_name("jupyter-book"),
            "build",
            SRC,
            "--path-output",
            ROOT,
            "-W",
            "-n",
            "--keep-going",
            "--all",
        ],
        "Sphinx warned (lines above): mend each, then run `make book` again",
    )


def finish(pages):
    """Prune what no page loads, mark the site for GitHub Pages, drop pages of an older contents list."""
    mathjax = HTML / "_static" / "mathjax"
    for file in [file for file in mathjax.rglob("*") if file.is_file()]:
        if not file.relative_to(mathjax).as_posix().startswith(MATHJAX_KEPT):
            file.unlink()
    for folder in sorted((f for f in mathjax.rglob("*") if f.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    (HTML / ".nojekyll").touch()
    for page in [*HTML.glob("book/*.html"), *HTML.glob("notebooks/*.html")]:
        if page.relative_to(HTML).with_suffix("").as_posix() not in pages:
            page.unlink()


def check(pages, slowest, timeout):
    """Fail on a page of the contents list that was not built, and on a cell too slow for its time limit."""
    missing = [page for page in pages if not (HTML / f"{page}.html").is_file()]
    if missing:
        raise BuildError(f"_toc.yml names pages that were not built: {', '.join(missing)}")
    if slowest[0] > timeout / 2:
        raise BuildError(f"{slowest[1]} took {slowest[0]:.0f} s, over half of the {timeout} s limit in _config.yml")


def main():
    if unchanged(site_key()):
        print(f"nothing changed since the last build of {HTML.relative_to(ROOT)}/index.html; `make serve` shows it")
        return
    BUILT.unlink(missing_ok=True)
    build()
    BUILT.write_text(site_key())


def build():
    """Every step, with the seconds that each took."""
    seconds = {}
    pages = toc_files(yaml.safe_load((ROOT / "_toc.yml").read_text()))
    timeout = yaml.safe_load((ROOT / "_config.yml").read_text())["execute"]["timeout"]
    try:
        with step("copy sources, generate pages", seconds):
            copy_sources()
        with step("execute notebooks", seconds):
            slowest = execute_notebooks(timeout)
        with step("render pages", seconds):
            render()
        with step("prune and check", seconds):
            finish(pages)
            check(pages, slowest, timeout)
    except BuildError as error:
        sys.exit(f"make book: {error}")
    for name, taken in seconds.items():
        print(f"{taken:6.1f} s  {name}")
    print(f"{slowest[0]:6.1f} s  slowest cell ({slowest[1]})")
    print(f"{len(pages)} pages in {HTML.relative_to(ROOT)}/index.html; `make serve` shows them")


if __name__ == "__main__":
    main()
