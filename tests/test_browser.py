"""Every page in a real browser: nothing fetched from elsewhere, no error, readable and usable by everyone."""

import json
from urllib.parse import urlsplit

import pytest

from conftest import site_pages

PAGES = site_pages()
pytestmark = pytest.mark.parametrize("name", PAGES or ["no site"])

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
HEADINGS = "article :is(h1, h2, h3, h4)"
TEX = ".math:is(span, div)"


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


def test_page_loads_cleanly_from_this_host_alone(visit, name):
    asked, wrong = [], []

    def listen(page):
        page.on("request", lambda request: asked.append(request.url))
        page.on("requestfailed", lambda request: wrong.append(f"failed: {request.url}"))
        page.on("response", lambda reply: reply.status >= 400 and wrong.append(f"{reply.status}: {reply.url}"))
        page.on("pageerror", lambda error: wrong.append(f"script error: {error}"))
        page.on("console", lambda message: message.type == "error" and wrong.append(f"console: {message.text}"))

    page = visit(name, listen=listen)
    elsewhere = {url for url in asked if urlsplit(url).hostname not in ("127.0.0.1", None)}  # None: data addresses
    assert not elsewhere
    assert not wrong
    assert_maths_rendered(page)
    last = page.locator("#search-results li" if name == "search.html" else HEADINGS).last
    last.scroll_into_view_if_needed()
    assert last.is_visible()


def wait_for_maths(page):
    """Half-set equations are wider than the finished ones: wait for MathJax and its fonts."""
    if page.locator(TEX).count():
        page.wait_for_function("window.MathJax?.startup?.promise.then(() => document.fonts.ready).then(() => true)")


def assert_maths_rendered(page):
    """Each TeX formula of the page became a MathJax container, and none of them is MathJax's error box."""
    formulas = page.locator(TEX).count()
    if formulas:
        wait_for_maths(page)
        assert page.locator(f"{TEX} mjx-container").count() == formulas
        assert page.locator("mjx-merror").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_accessibility_violation(visit, name, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    page = visit(name, color_scheme=scheme, reduced_motion="reduce")
    page.wait_for_function(f"document.documentElement.dataset.theme === '{scheme}'")
    wait_for_maths(page)
    options = {"resultTypes": ["violations"]}  # to describe each node that passes takes as long as all rules
    found = axe.Axe().run(page, options=options).response["violations"]
    assert [f"{rule['id']}: {node['html'][:160]}" for rule in found for node in rule["nodes"]] == []


def test_phone_width_needs_no_sideways_scroll(visit, name):
    page = visit(name, viewport=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    wait_for_maths(page)
    unreached = "[...document.querySelectorAll('div.math')].some(e => e.scrollWidth > e.clientWidth && e.tabIndex < 0)"
    page.wait_for_function(f"!{unreached}")  # the keyboard scrolls every equation that is wider than the page


def test_captions_of_tables_are_seen_whole(visit, name):
    page = visit(name)
    for box in page.locator(".hw-table-wrap").all():
        seen, caption = box.bounding_box(), box.locator("caption").bounding_box()
        assert caption["x"] + caption["width"] <= seen["x"] + seen["width"] + 1


def test_readable_without_javascript(visit, name):
    page = visit(name, java_script_enabled=False)
    if name == "search.html":  # Sphinx's search is a script; the page says so
        assert page.locator("noscript").count() or page.get_by_text("JavaScript").count()
        return
    assert page.locator(HEADINGS).first.is_visible()
    if page.locator(TEX).count():
        assert "\\(" in page.content() or "\\[" in page.content()
    for frame in page.locator("figure.hw-explorer img.hw-frame").all():
        assert frame.is_visible() and frame.bounding_box()["width"] > 200


def test_sliders_answer_to_the_keyboard(visit, name):
    page = visit(name)
    for figure in page.locator("figure.hw-explorer").all():
        frames = json.loads(figure.locator(".hw-frames").text_content())
        slider = figure.get_by_role("slider")
        slider.focus()
        for key, index in [("ArrowRight", 1), ("End", -1), ("ArrowLeft", -2), ("Home", 0)]:
            page.keyboard.press(key)
            assert_shows(figure, frames[index])
        assert len({frame["src"] for frame in frames}) == len(frames), "two frames show the same picture"


def assert_shows(figure, frame):
    """The explorer shows this frame, to the eye and to a screen reader."""
    image = figure.locator("img.hw-frame")
    assert image.get_attribute("src") == frame["src"]
    assert image.get_attribute("alt") == frame["alt"]
    assert figure.get_by_role("slider").get_attribute("aria-valuetext") == frame["value"]
    assert figure.locator("output").inner_text() == frame["text"]
