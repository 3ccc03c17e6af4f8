"""Where the built site is, and what its tests share: a local server, one browser, the list of pages."""

import functools
import http.server
import os
import re
import shutil
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("book", deadline=None)  # a busy machine is no fault of the code
settings.load_profile("book")
for size in ("COLUMNS", "LINES"):
    os.environ.pop(size, None)  # a worker of pytest-xdist is told 80 columns; a test says itself how wide its terminal is

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
CHROMIUM_ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
                 "--disable-background-networking", "--disable-component-update"]  # it calls home otherwise

sys.path.insert(0, str(ROOT / "scripts"))  # the scripts are no package; their functions are tested all the same


SLOW = ["test_colab.py", "test_browser.py"]  # start first under `pytest -n 2`, so that no worker is left with one at the end


def part(nodeid):
    """What one worker runs as a whole: a file, whose tests share fixtures; of the browser's tests, those of one page."""
    file = nodeid.split("::")[0]
    page = re.search(r"[\w/]+\.html(?=\]$)", nodeid) if file.endswith("test_browser.py") else None
    return page[0] if page else file


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist nobody asks
def pytest_xdist_make_scheduler(config, log):
    """Hands out the parts in the order they are collected."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # most tests first would be the quickest files first
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = part
    return scheduler


def pytest_collection_modifyitems(config, items):
    """A worker collects the slow files first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: SLOW.index(item.path.name) if item.path.name in SLOW else len(SLOW))


def required(variable):
    """Whether the environment makes a check mandatory that otherwise skips."""
    return os.environ.get(variable, "0") not in ("", "0")


def skip_or_fail(reason, variable):
    """Skip with one line, or fail where ``variable`` makes the check mandatory."""
    (pytest.fail if required(variable) else pytest.skip)(reason)


def site_pages():
    """Every page of the built site, relative to its root, but the redirect at ``index.html``."""
    pages = (page.relative_to(SITE).as_posix() for page in SITE.rglob("*.html") if "_static" not in page.parts)
    return sorted(page for page in pages if page != "index.html")


@pytest.fixture(scope="session")
def site():
    """Folder of the built site."""
    if not (SITE / "index.html").is_file():
        skip_or_fail("no site in _build/html: run `make book`", "HWDESIGN_REQUIRE_SITE")
    return SITE


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        """Say nothing: the browser's own record of requests is what the tests read."""


@pytest.fixture(scope="session")
def site_url(site):
    """Address under which the site is served while the tests run."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def chromium_path():
    """First Chromium or Chrome on this machine, None without one."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "/usr/bin/chromium")
    return next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="session")
def browser():
    """One headless Chromium for all browser tests."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = chromium_path()
    if path is None:
        skip_or_fail("no Chromium found: install it to run the browser tests", "HWDESIGN_REQUIRE_BROWSER")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=CHROMIUM_ARGS)
        yield chromium
        chromium.close()


@pytest.fixture
def small(monkeypatch):
    """Sizes of a live measurement so small that it takes no time, in a notebook's mode; returns what sets the backend."""
    from hwdesign.lessons import live
    from hwdesign.measure import machine
    from hwdesign.measure.backends import Backend

    sizes = {"m": 16, "n": 32, "k": 32, "sweep": [16, 32], "fine": [16, 20], "copy": [4096], "layer": [(2, 16), (2, 32)]}
    both = [(2, 96, 64), (16, 32, 32)]
    formats = {"cpu": {"fp16": both, "fp8": both[:1]}, "cuda": {"fp8": both, "nvfp4": both}}
    monkeypatch.delenv("HWDESIGN_STATIC", raising=False)
    monkeypatch.setattr(machine, "cpu_cache", lambda: (2.0**22, "set by the test"))
    monkeypatch.setattr(Backend, "arenas", {})
    for kind in ("cpu", "cuda"):
        monkeypatch.setitem(live.SIZES, kind, sizes | {"formats": formats[kind]})
    return lambda backend: monkeypatch.setattr(live, "as_backend", lambda: backend)
