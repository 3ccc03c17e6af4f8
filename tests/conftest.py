"""Where the built site is, and what its tests share: a local server, one browser, the list of pages."""

import functools
import hashlib
import http.server
import os
import re
import shutil
import sys
import threading
from collections import Counter
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


CHECKED = ROOT / "_build" / "checked"  # one file a test that takes long: the key of what it looked at when it last passed
UNCHANGED = "unchanged since the last pass"
KEY = pytest.StashKey()
# The longest first, by seconds of the processor, so that neither of two workers is left with a long one at the end.
SLOW = ["test_browser.py", "test_colab.py", "test_practice.py", "test_game.py", "test_measure.py", "test_checklist.py",
        "test_check_cli.py", "test_site.py", "test_landscape.py", "test_lessons_tiles.py", "test_depth.py"]


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


def digest(*parts):
    """Key of texts, bytes and files: another one as soon as any of them changes."""
    found = hashlib.sha256()
    for item in parts:
        if isinstance(item, Path):
            item = item.read_bytes()
        data = item.encode() if isinstance(item, str) else item
        found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()


def remembered(item):
    """``(file, key)`` of a test marked ``remembered(key)`` whose parameters have a key, else None."""
    mark = item.get_closest_marker("remembered")
    if mark is None:
        return None
    key = mark.kwargs["key"](**item.callspec.params)
    return key and (CHECKED / re.sub(r"[^\w.-]+", "-", item.nodeid), key)


@pytest.hookimpl(tryfirst=True)  # before any fixture: an unchanged page starts no browser
def pytest_runtest_setup(item):
    """Leave out a remembered test whose key is the one it passed with."""
    item.stash[KEY] = remembered(item)
    if item.stash[KEY]:
        file, key = item.stash[KEY]
        if file.is_file() and file.read_text() == key:
            pytest.skip(UNCHANGED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Store the key of a remembered test that passed, and forget that of one that did not."""
    report = yield
    if call.when != "setup" and item.stash.get(KEY, None):
        file, key = item.stash[KEY]
        file.parent.mkdir(parents=True, exist_ok=True)
        if call.when == "call" and report.passed:
            file.write_text(key)
        elif not report.passed:
            file.unlink(missing_ok=True)
    return report


def pytest_report_teststatus(report):
    """A test left out because nothing changed is counted as ``unchanged``, neither as passed nor as skipped."""
    if report.skipped and isinstance(report.longrepr, tuple) and report.longrepr[2].endswith(UNCHANGED):
        return "unchanged", "u", "UNCHANGED"
    return None


def pytest_terminal_summary(terminalreporter):
    """One line a file whose tests were left out, so that nobody takes them for run."""
    reports = [report for found in terminalreporter.stats.values() for report in found if isinstance(report, pytest.TestReport)]
    left_out = Counter(report.nodeid.split("::")[0] for report in terminalreporter.stats.get("unchanged", []))
    for file, count in sorted(left_out.items()):
        total = len({report.nodeid for report in reports if report.nodeid.startswith(f"{file}::")})
        folder = CHECKED.relative_to(ROOT)
        terminalreporter.write_line(f"{file}: {count} of {total} tests {UNCHANGED} (without {folder} all of them run)")


def start_seconds(rounds=5):
    """Seconds of the processor that the start of Python and NumPy takes, the least of some."""
    import resource
    import subprocess

    found = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", "import numpy"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def slowness():
    """How many times slower this machine is now than that of the limits, on which that start takes 70 ms; at least 1."""
    return max(1.0, start_seconds() / 0.070)


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
    try:
        from playwright import sync_api as playwright
    except ImportError:
        skip_or_fail("playwright is not installed", "HWDESIGN_REQUIRE_BROWSER")
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


# Configs of data/params_2026.csv that ship with the package, by their names there; the others are in data/configs_2026.
SHIPPED_AS = {
    "zai-org--GLM-5": "glm-5",
    "zai-org--GLM-5.3": "glm-5.3",
    "moonshotai--Kimi-K2.5": "kimi-k2.5",
    "MiniMaxAI--MiniMax-M2.5": "minimax-m2.5",
    "MiniMaxAI--MiniMax-M3": "minimax-m3",
    "deepseek-ai--DeepSeek-V4-Flash": "deepseek-v4-flash",
    "deepseek-ai--DeepSeek-V3.2": "deepseek-v3.2",
    "Qwen--Qwen3.5-397B-A17B": "qwen3.5-397b-a17b",
    "Qwen--Qwen3.5-35B-A3B": "qwen3.5-35b-a3b",
    "Qwen--Qwen3.5-27B": "qwen3.5-27b",
    "google--gemma-4-26B-A4B": "gemma-4-26b-a4b",
    "Qwen--Qwen3-Coder-480B-A35B-Instruct": "qwen3-coder-480b-a35b",
    "meta-llama--Llama-4-Maverick-17B-128E-Instruct": "llama-4-maverick",
    "XiaomiMiMo--MiMo-V2-Flash": "mimo-v2-flash",
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8": "nemotron-3-super-120b-a12b",
    "stepfun-ai--Step-3.7-Flash--released-shape": "step-3.7-flash",
    "moonshotai--Kimi-K3": "kimi-k3",
}


def config_2026(name):
    """Where the config of a row of data/params_2026.csv lies: in the package or, where it does not ship, with the tests."""
    if name in SHIPPED_AS:
        return ROOT / "hwdesign" / "models" / "configs" / f"{SHIPPED_AS[name]}.json"
    return ROOT / "tests" / "data" / "configs_2026" / f"{name}.json"


def configs_2026():
    """All configs of 2025 and 2026 that ship or lie with the tests: name to path, in the order of the names."""
    here = {path.stem: path for path in (ROOT / "tests" / "data" / "configs_2026").glob("*.json")}
    return dict(sorted((here | {name: config_2026(name) for name in SHIPPED_AS}).items()))


def is_plain(name):
    """Whether a shipped model has no kind that test_new_kinds.py holds: those have other products, and copies of their own."""
    from hwdesign.models import config
    from hwdesign.models.blocks import SelfAttention
    from hwdesign.models.latent import LatentAttention
    from hwdesign.models.mamba import Mamba2

    kinds = SelfAttention | LatentAttention | Mamba2 | None
    blocks = config.load(name).block_counts
    return not any(
        block.residual or getattr(block.ffn, "latent", None) or getattr(block.mixer, "output_gate", None)
        or getattr(block.mixer, "indexer", None) or not isinstance(block.mixer, kinds)
        for block in blocks
    )  # fmt: skip


def fastest(case, pairs):
    """A case under the fastest of some pairs of plans, None where none fits."""
    return next(case.ranked(pairs), None)
