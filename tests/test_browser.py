"""Every page in a real browser: nothing fetched from elsewhere, no error, readable and usable by everyone.

A page is visited three times: at a desk, on a phone and without JavaScript. A visit that passed is not made again until
the page, a file that it loads, these checks, axe, Playwright or the browser changes.
"""

import functools
import json
import re
import subprocess
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from conftest import SITE, chromium_path, digest, site_pages, skip_or_fail

PAGES = site_pages()
CHECKS = [Path(__file__).with_name(name).read_bytes() for name in ("test_browser.py", "conftest.py")]  # as they run now
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
HEADINGS = "article :is(h1, h2, h3, h4)"
TEX = ".math:is(span, div)"
WHOLE = "notebooks/01_near_square.html"  # axe judges this page with all its maths and code, in both schemes
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
# Most of a page's nodes are maths, coloured code and plain text, and axe's time grows faster than their number. The maths
# goes. Of coloured spans the first of each kind stays, and so do the first twelve of paragraphs, items and cells of plain
# text that stand alike in alike parents: axe has nothing to say of them but their contrast, which is that of their kind.
THIN_OUT = """() => {
  const seen = new Set();
  for (const span of document.querySelectorAll(".highlight span")) {
    const kind = `${span.className} in ${span.closest(".highlight").parentElement.className}`;
    if (seen.has(kind)) span.replaceWith(span.textContent); else seen.add(kind);
  }
  document.querySelectorAll("code.literal span.pre").forEach(word => word.replaceWith(word.textContent));
  document.querySelectorAll(".highlight pre, code.literal").forEach(code => code.normalize());
  document.querySelectorAll("mjx-container").forEach(container => container.remove());
  const path = node => node.tagName === "ARTICLE" ? "" : `${path(node.parentElement)}>${node.tagName}.${node.className}`;
  const alike = new Map();
  for (const part of document.querySelectorAll("article :is(p, li, dd, dt, td, pre)")) {
    if (!part.isConnected || part.closest("summary, figure, a, button, th")) continue;  // these need a name
    if (part.querySelector("a, img, svg, button, input, details, table, [role], [tabindex], [aria-label]")) continue;
    const kind = path(part);
    alike.set(kind, (alike.get(kind) ?? 0) + 1);
    if (alike.get(kind) > 12) part.textContent = "";
  }
}"""
HIDDEN_CAPTIONS = """() => [...document.querySelectorAll(".hw-table-wrap")].filter(box => {
  const caption = box.querySelector("caption");
  return !caption || caption.getBoundingClientRect().right > box.getBoundingClientRect().right + 1;
}).map(box => box.textContent.trim().slice(0, 60))"""
SHOWN = """figure => {
  const image = figure.querySelector("img.hw-frame"), slider = figure.querySelector("input[type=range]");
  return {src: image.getAttribute("src"), alt: image.getAttribute("alt"),
          value: slider.getAttribute("aria-valuetext"), text: figure.querySelector("output").innerText};
}"""
UNREACHED = "[...document.querySelectorAll('div.math')].some(e => e.scrollWidth > e.clientWidth && e.tabIndex < 0)"


# When a page is looked at -------------------------------------------------------------------------------------------------


@functools.cache
def tools():
    """Versions of what looks at the pages; None where a part is missing."""
    path = chromium_path()
    try:
        found = [metadata.version(name) for name in ("playwright", "axe-playwright-python")]
    except metadata.PackageNotFoundError:
        return None
    return path and (*found, subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout)


def loaded(page, site):
    """Files that a page may load: all of ``_static`` and those it names; search also reads the pages that it finds."""
    named = re.findall(r'(?:src|href)="([^":#?]+)', page.read_text("utf8"))
    files = {(page.parent / unquote(name)).resolve() for name in named}
    found = {file for file in files if file.is_file() and file.suffix != ".html"}
    if page.name == "search.html":
        found |= {file.resolve() for file in site.rglob("*.html")}
    return sorted(found | {file.resolve() for file in (site / "_static").rglob("*") if file.is_file()})


def page_key(name, site=SITE, versions=None, checks=CHECKS):
    """Key of all that the result of a visit depends on; None where nothing can be visited."""
    page, versions = site / name, versions or tools()
    if not (page.is_file() and versions):
        return None
    files = loaded(page, site)
    names = [file.relative_to(site.resolve()).as_posix() for file in files]
    return digest(*versions, *checks, page, *names, *files)


pytestmark = [
    pytest.mark.parametrize("name", PAGES or ["no site"]),
    pytest.mark.remembered(key=functools.cache(page_key)),  # the three visits of a page share it
]


# Visits -------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def axe():
    """The accessibility checker."""
    try:
        from axe_playwright_python import sync_playwright
    except ImportError:
        skip_or_fail("axe is not installed", "HWDESIGN_REQUIRE_BROWSER")
    return sync_playwright.Axe()


@pytest.fixture(scope="session")
def contexts(browser):
    """Browser contexts by their options: pages that share one share its cache, as a reader's would."""
    opened = {}

    def context(**options):
        key = json.dumps(options, sort_keys=True)
        if key not in opened:
            opened[key] = browser.new_context(**{"viewport": DESKTOP, **options})
        return opened[key]

    return context


@pytest.fixture
def visit(contexts, site_url):
    """``visit(name, **context options)`` opens a page of the site and returns it; it closes after the test."""
    pages = []

    def open_page(name, *, listen=None, **options):
        page = contexts(**options).new_page()
        pages.append(page)
        if listen:
            listen(page)
        query = "?q=gemm" if name == "search.html" else ""  # the search page is empty until it is asked
        page.goto(f"{site_url}/{name}{query}", wait_until="networkidle" if listen else "load")
        return page

    yield open_page
    for page in pages:
        page.close()


def test_at_a_desk(visit, axe, name):
    """Loads cleanly, from this host alone; maths, headings, captions and sliders are whole; no accessibility violation."""
    heard = []
    page = visit(name, listen=lambda page: note_what_goes_wrong(page, heard))
    wrong = [*maths_problems(page)]
    last = page.locator("#search-results li" if name == "search.html" else HEADINGS).last
    last.scroll_into_view_if_needed()
    if not last.is_visible():
        wrong.append("the last heading is not visible")
    wrong += [f"caption not seen whole: {text}" for text in page.evaluate(HIDDEN_CAPTIONS)]
    for figure in page.locator("figure.hw-explorer").all():
        wrong += slider_problems(page, figure)
    for table in page.locator("table.hw-sortable").all():
        wrong += sorting_problems(page, table)
    wrong += heard  # what comes after it is asked for by axe, which reads style sheets again
    if name != WHOLE:
        page.evaluate(THIN_OUT)
    wrong += violations(axe, page, "light")
    if name == WHOLE:
        page = visit(name, color_scheme="dark", reduced_motion="reduce")
        wait_for_maths(page)
    wrong += violations(axe, page, "dark", **({} if name == WHOLE else CONTRAST))
    assert wrong == []


def test_on_a_phone(visit, name):
    """The page needs no sideways scroll, and the keyboard scrolls every equation that is wider than it."""
    page = visit(name, viewport=PHONE)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"], f"the page is {width} pixels wide on a phone of {PHONE['width']}"
    for cell in page.locator("table.hw-sortable tr > :nth-child(-n+3)").all():  # the name and the two numbers that matter most
        box = cell.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"], f"not seen whole: {cell.inner_text()}"
    wait_for_maths(page)
    page.wait_for_function(f"!{UNREACHED}")  # times out where an equation that is too wide takes no focus


def test_without_javascript(visit, name):
    """Headings, formulas as TeX and the first picture of each slider are there."""
    page, wrong = visit(name, java_script_enabled=False), []
    if name == "search.html":  # Sphinx's search is a script; the page says so
        assert page.locator("noscript").count() or page.get_by_text("JavaScript").count()
        return
    if not page.locator(HEADINGS).first.is_visible():
        wrong.append("the first heading is not visible")
    if page.locator(TEX).count() and not re.search(r"\\[(\[]", page.content()):
        wrong.append("formulas do not stand as TeX")
    for frame in page.locator("figure.hw-explorer img.hw-frame").all():
        if not (frame.is_visible() and frame.bounding_box()["width"] > 200):
            wrong.append(f"the first picture of a slider is not seen: {frame.get_attribute('alt')[:60]}")
    assert page.locator("table.hw-sortable button").count() == 0, "a heading is a button that does nothing"
    assert wrong == []


# What is looked for -------------------------------------------------------------------------------------------------------


def note_what_goes_wrong(page, wrong):
    """Note every request to another host, every failed one and every error of a script."""

    def asked(request):
        if urlsplit(request.url).hostname not in ("127.0.0.1", None):  # None: data addresses
            wrong.append(f"asked another host: {request.url}")

    page.on("request", asked)
    page.on("requestfailed", lambda request: wrong.append(f"failed: {request.url}"))
    page.on("response", lambda reply: reply.status >= 400 and wrong.append(f"{reply.status}: {reply.url}"))
    page.on("pageerror", lambda error: wrong.append(f"script error: {error}"))
    page.on("console", lambda message: message.type == "error" and wrong.append(f"console: {message.text}"))


def wait_for_maths(page):
    """Half-set equations are wider than the finished ones: wait for MathJax and its fonts."""
    if page.locator(TEX).count():
        page.wait_for_function("window.MathJax?.startup?.promise.then(() => document.fonts.ready).then(() => true)")


def maths_problems(page):
    """Each TeX formula of the page became a MathJax container, and none of them is MathJax's error box."""
    wait_for_maths(page)
    formulas, errors = page.locator(TEX).count(), page.locator("mjx-merror").count()
    if (rendered := page.locator(f"{TEX} mjx-container").count()) != formulas:
        yield f"{rendered} of {formulas} formulas were rendered"
    if errors:
        yield f"{errors} formulas show MathJax's error box"


def slider_problems(page, figure):
    """The keyboard moves a slider, and it then shows that frame to the eye and to a screen reader."""
    frames = json.loads(figure.locator(".hw-frames").text_content())
    name = figure.get_attribute("data-explorer")
    figure.get_by_role("slider").focus()
    for key, index in [("ArrowRight", 1), ("End", -1), ("ArrowLeft", -2), ("Home", 0)]:
        page.keyboard.press(key)
        shown = figure.evaluate(SHOWN)
        if shown != {part: frames[index][part] for part in shown}:
            yield f"slider {name}: {key} does not show frame {index}, but {shown['value']}"
    if len({frame["src"] for frame in frames}) != len(frames):
        yield f"slider {name}: two frames show the same picture"


def sorting_problems(page, table):
    """The keyboard sorts a table by each column and back, numbers as numbers and dashes last; the heading says which way."""
    heads, rows = table.locator("thead th"), table.locator("tbody tr")
    before = sorted(rows.all_inner_texts())
    for column in range(heads.count()):
        heads.nth(column).get_by_role("button").focus()
        for key, way in [("Enter", "ascending"), ("Space", "descending")]:
            page.keyboard.press(key)
            said = heads.evaluate_all("heads => heads.map(head => head.ariaSort)")
            if {i: word for i, word in enumerate(said) if word} != {column: way}:
                yield f"column {column}: {key} does not say {way}, and that alone, but {said}"
            cells = [cell.strip() for cell in table.locator(f"tbody td:nth-child({column + 1})").all_inner_texts()]
            known = [sizes(cell) for cell in cells if cell != "–"]
            if known != sorted(known, reverse=way == "descending") or "–" in cells[: len(known)] or known[0] == known[-1]:
                yield f"column {column}: {key} does not sort {way}: {cells[:5]}"
    if sorted(rows.all_inner_texts()) != before:
        yield "sorting loses or changes a row"


def sizes(cell):
    """What a cell is sorted by: a number, or words and the numbers in them."""
    if re.fullmatch(r"[0-9,.]+", cell):
        return float(cell.replace(",", ""))
    return [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", cell)]


def violations(axe, page, scheme, **options):
    """What axe finds on a page in one colour scheme."""
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.wait_for_function(f"document.documentElement.dataset.theme === '{scheme}'")
    # To describe each node that passes takes as long as all rules.
    found = axe.run(page, options={"resultTypes": ["violations"], **options}).response["violations"]
    return [f"{scheme}, {rule['id']}: {node['html'][:160]}" for rule in found for node in rule["nodes"]]
