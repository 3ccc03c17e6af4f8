"""The built pages as files: all there, links that lead somewhere, nothing remote, images described and light."""

import base64
import copy
import functools
import io
import json
import re
from urllib.parse import unquote, urlsplit

import build_book
import pytest
import yaml
from conftest import ROOT, SITE, site_pages

bs4 = pytest.importorskip("bs4", reason="beautifulsoup4 is not installed")

TOC_PAGES = build_book.toc_files(yaml.safe_load((ROOT / "_toc.yml").read_text()))
PAGES = site_pages()
MEGABYTE = 1_000_000
each_page = pytest.mark.parametrize("name", PAGES or ["no site"])
pytestmark = pytest.mark.usefixtures("site")


@functools.cache
def soup(path):
    """Parsed HTML of one page."""
    return bs4.BeautifulSoup(path.read_text("utf8"), "html.parser")


@functools.cache
def anchors(path):
    """Every target a link into this page may name."""
    return {tag["id"] for tag in soup(path).select("[id]")} | {tag["name"] for tag in soup(path).select("a[name]")}


def content_images(name):
    """Images of the text, not of the theme."""
    return soup(SITE / name).select("article img:not(.toggler)")


def image_bytes(name, image):
    """The file an ``<img>`` shows, from its data address or from disk."""
    source = image["src"]
    if source.startswith("data:"):
        return base64.b64decode(source.partition(",")[2])
    return ((SITE / name).parent / unquote(urlsplit(source).path)).read_bytes()


@pytest.mark.parametrize("page", TOC_PAGES)
def test_every_toc_entry_is_a_page_with_text(page):
    path = SITE / f"{page}.html"
    assert path.is_file(), f"{page} of _toc.yml was not built"
    assert len(soup(path).select_one("article").get_text()) > 100


def test_first_page_redirects_to_the_preface():
    assert f"{TOC_PAGES[0]}.html" in (SITE / "index.html").read_text()


@each_page
def test_links_and_anchors_lead_somewhere(name):
    page = SITE / name
    tags = soup(page).select("[href], [src]")
    links = {tag.get("href") or tag.get("src") for tag in tags}
    assert [link for link in sorted(filter(None, links)) if not leads_somewhere(page, link)] == []


def leads_somewhere(page, link):
    """Whether a link inside the site has its file and its anchor; one to another host is taken on trust."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_file():
        return False
    return not parts.fragment or target.suffix != ".html" or unquote(parts.fragment) in anchors(target)


@each_page
def test_nothing_is_loaded_from_another_host(name):
    loading = soup(SITE / name).select("script[src], img[src], iframe[src], source[src], link[rel=stylesheet]")
    addresses = [tag.get("src") or tag.get("href") for tag in loading]
    assert [address for address in addresses if re.match(r"(https?:)?//", address)] == []


def test_mathjax_is_local_and_pruned():
    page = (SITE / "notebooks/01_near_square.html").read_text()
    assert re.search(r'src="\.\./_static/mathjax/tex-chtml\.js', page)
    files = [file for file in (SITE / "_static/mathjax").rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 4 * MEGABYTE


@each_page
def test_no_unfilled_field_stands_in_the_text(name):
    article = copy.copy(soup(SITE / name).select_one("article") or soup(SITE / name))  # the page is cached and shared
    for tag in article.select("pre, code, script, style, .math, svg"):
        tag.decompose()
    assert re.findall(r"\{[^{}\n]{1,60}\}", article.get_text(" ")) == []


@each_page
def test_images_say_what_they_show(name):
    for image in content_images(name):
        alt = image.get("alt", "")
        assert len(alt) >= 20 and re.search(r"\d", alt), f"alt text too thin: {alt!r}"
        assert not re.match(r"<?Figure size|.*\.(png|svg|jpe?g)$|_?images/", alt), f"alt text is a file name: {alt!r}"


@each_page
def test_images_are_opaque_and_light(name):
    for image in content_images(name):
        data = image_bytes(name, image)
        assert len(data) <= MEGABYTE
        assert opaque(data), f"transparent background, unreadable in dark mode: {image.get('alt')}"


def opaque(data):
    """Whether a picture paints its own background: the corner pixel of a PNG, a full-size shape in an SVG."""
    if b"<svg" in data[:2000]:
        drawn = re.search(rb'<g id="patch_1">.*?fill: *(#\w+)', data, re.S) or re.search(rb"<rect[^>]*fill=", data)
        return bool(drawn) and b"opacity: 0" not in drawn.group()
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(data)).convert("RGBA")
    return image.getpixel((0, 0))[3] == 255


@each_page
def test_page_weighs_under_one_and_a_half_megabytes(name):
    images = {image["src"]: image_bytes(name, image) for image in content_images(name)}
    files = sum(len(data) for source, data in images.items() if not source.startswith("data:"))
    assert (SITE / name).stat().st_size + files < 1.5 * MEGABYTE


def test_site_weighs_under_sixty_megabytes():
    assert sum(file.stat().st_size for file in SITE.rglob("*") if file.is_file()) < 60 * MEGABYTE


def test_site_is_ready_for_github_pages():
    assert (SITE / ".nojekyll").is_file()


@pytest.mark.parametrize("page", [page for page in TOC_PAGES if page.startswith("notebooks/")])
def test_notebook_pages_open_in_colab_and_binder(page):
    links = {a["href"] for a in soup(SITE / f"{page}.html").select("a[href]")}
    repository = build_book.project()["urls"]["Repository"].removeprefix("https://github.com/")
    assert f"https://colab.research.google.com/github/{repository}/blob/main/{page}.ipynb" in links
    assert any(link.startswith(f"https://mybinder.org/v2/gh/{repository}/main") and page in link for link in links)


@each_page
def test_sliders_work_and_explain_themselves_without_a_kernel(name):
    figures = soup(SITE / name).select("figure.hw-explorer")
    for figure in figures:
        assert re.search(r"without a kernel.*(Colab|Binder)", figure.select_one(".hw-explorer-note").get_text(), re.S)
        assert figure.select_one("img.hw-frame")["src"], "the first frame shows before any script runs"
        assert figure.select_one("figcaption").get_text(strip=True)
    frames = sum(int(slider["max"]) + 1 for figure in figures for slider in figure.select("input[type=range]"))
    assert frames <= 24


@each_page
def test_no_live_widget_or_unrendered_output(name):
    page = soup(SITE / name)
    assert not page.select('script[type="application/vnd.jupyter.widget-view+json"], .thebe, .output.traceback')
    text = page.select_one("main").get_text()
    assert "<Figure size" not in text and "VBox(" not in text and "interactive(" not in text


@each_page
def test_copyright_and_licences_are_named(name):
    text = " ".join(footer.get_text() for footer in soup(SITE / name).select("footer"))
    assert "Copyright" in text and "CC BY 4.0" in text


def frames(page, explorer):
    """The frames a slider carries on a page."""
    figure = soup(SITE / page).select_one(f'[data-explorer="{explorer}"]')
    return json.loads(figure.select_one("script.hw-frames").string)


def test_slider_frames_hold_the_numbers_of_the_package():
    import hwdesign as hw

    size = hw.recipe("nvfp4").operand_bytes
    for frame in (frames("notebooks/01_near_square.html", "reduction-dimension")[i] for i in (2, 9)):
        shape = 8192, 10240, frame["data"]["k"]
        flops, moved = hw.gemm_flops(*shape), hw.gemm_bytes(*shape, **size)
        assert frame["data"]["intensity"] == pytest.approx(flops / moved)
        assert frame["data"]["bound"] == pytest.approx(max(flops / 15e15, moved / 8e12))
        for engine, seconds in frame["data"]["measured"].items():
            assert seconds == hw.gemm_grid("GB300", "nvfp4", engine).at(*shape)
    for frame in (frames("notebooks/01_near_square.html", "same-area")[i] for i in (2, 7)):
        m = frame["data"]["m"]
        n, k = (1024, 4096, 8192, 16384, 65536), (65536, 16384, 8192, 4096, 1024)
        assert frame["data"]["measured"]["sglang"] == hw.gemm_grid("GB300", "nvfp4", "sglang").at(m, n, k).tolist()
