"""How a notebook shows things: a figure with its alt text, a sentence with computed numbers, a
label for its kind of number.
"""

import base64
import html
import io
import os
import re

from IPython.display import Markdown, display
from matplotlib import rc_context
from PIL import Image

from hwdesign._check import choice
from hwdesign.lessons.style import RC

KINDS = {
    "modelled": "a formula's result",
    "published": "printed or released by somebody; has a source",
    "measured": "timed on a machine; has device, software and date",
}


def badge(kind):
    """Label that says what kind of number is shown, as HTML.

    Parameters
    ----------
    kind : str
        "modelled", "published" or "measured".

    Returns
    -------
    str
        HTML.

    Raises
    ------
    ValueError
        If the kind is none of the three.

    Notes
    -----
    Source: the three words of this book.

    Examples
    --------
    >>> badge("modelled")
    '<span class="hw-label hw-modelled" title="a formula&#x27;s result">modelled</span>'
    """
    meaning = choice("kind", kind, KINDS)
    return f'<span class="hw-label hw-{kind}" title="{html.escape(meaning)}">{kind}</span>'


def svg_uri(ax):
    """A figure as a data URI: SVG, opaque, the same bytes for the same figure, without what no
    viewer needs.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Any axes of the figure.

    Returns
    -------
    str
        ``data:image/svg+xml;base64,...``.

    Notes
    -----
    Source: RFC 2397.

    Examples
    --------
    >>> from hwdesign.lessons.style import axes
    >>> svg_uri(axes()) == svg_uri(axes())
    True
    """
    return (
        "data:image/svg+xml;base64,"
        + base64.b64encode(_slim(_image(ax, "svg").decode()).encode()).decode()
    )


def save_svg(ax, path):
    """Write a figure as an SVG file, the same bytes for the same figure.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Any axes of the figure.
    path : pathlib.Path
        File to write.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from hwdesign.lessons.style import axes
    >>> save_svg(axes(), pathlib.Path(tempfile.mkdtemp()) / "figure.svg")
    """
    path.write_bytes(_image(ax, "svg"))


def webp_uri(ax):
    """A figure as a data URI: WebP of 128 colours at twice the display size, half of the SVG's
    weight or less.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Any axes of the figure.

    Returns
    -------
    str
        ``data:image/webp;base64,...``.

    Notes
    -----
    Source: RFC 2397. For the frames of a slider, of which a page holds up to 24.

    Examples
    --------
    >>> from hwdesign.lessons.style import axes
    >>> len(webp_uri(axes())) < len(svg_uri(axes()))
    True
    """
    picture = Image.open(io.BytesIO(_image(ax, "png"))).convert("RGB").quantize(128).convert("RGB")
    buffer = io.BytesIO()
    picture.save(buffer, "webp", lossless=True)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def figure_html(ax, *, alt, caption, kinds=()):
    """A figure as one self-contained HTML element with alt text and caption.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Any axes of the figure.
    alt : str
        What a reader who cannot see it must know: the quantities of both axes and at least one
        number.
    caption : str
        HTML.
    kinds : sequence of str
        Kinds of number in the figure, shown as labels before the caption.

    Returns
    -------
    str
        HTML.

    Raises
    ------
    ValueError
        If the alt text is short or holds no number.

    Notes
    -----
    Source: WCAG 2.2, 1.1.1.

    Examples
    --------
    >>> from hwdesign.lessons.style import axes
    >>> figure_html(axes(), alt="time [s] against size, 3 points", caption="")[:25]
    '<figure class="hw-figure"'
    """
    if len(alt) < 20 or not any(c.isdigit() for c in alt):
        raise ValueError(f"alt must describe the axes and name a number, got {alt!r}")
    labels = " ".join(badge(kind) for kind in kinds)
    image = f'<img alt="{html.escape(alt)}" src="{svg_uri(ax)}">'
    return f'<figure class="hw-figure">{image}<figcaption>{labels} {caption}</figcaption></figure>'


def show(ax, *, alt, caption, kinds=()):
    """Display a figure: HTML with alt text for the book, Jupyter and Colab, and a PNG for viewers
    that strip HTML.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Any axes of the figure.
    alt, caption : str
        See `figure_html`.
    kinds : sequence of str
        See `figure_html`.

    Raises
    ------
    ValueError
        If the alt text is short or holds no number.

    Notes
    -----
    Source: design choice; no quantity is computed, so there is no unit.

    Examples
    --------
    >>> from hwdesign.lessons.style import axes
    >>> show(axes(), alt="time [s] against size, 3 points", caption="Example.")
    <Figure: time [s] against size, 3 points>
    """
    display(Shown(figure_html(ax, alt=alt, caption=caption, kinds=kinds), ax, alt))


def say(text):
    """Display a sentence whose numbers were computed just above, as Markdown.

    Parameters
    ----------
    text : str
        Markdown; units stand in the text.

    Examples
    --------
    >>> say("The ridge lies at 1875 FLOP/byte.")
    <IPython.core.display.Markdown object>
    """
    display(Markdown(text))


class Shown:
    """A displayed figure: the viewer picks HTML, PNG (none while the site is built) or text."""

    def __init__(self, markup, ax, alt):
        self.markup, self.ax, self.alt = markup, ax, alt

    def __repr__(self):
        return f"<Figure: {self.alt}>"

    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle = {"text/plain": repr(self), "text/html": self.markup}
        if os.environ.get("HWDESIGN_STATIC") != "1":  # the site takes the HTML
            bundle["image/png"] = _image(self.ax, "png")
        return bundle


def _slim(svg):
    """SVG without metadata and idle blanks, coordinates to a hundredth of a point: a third less
    weight on a page.
    """
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.S)
    svg = re.sub(r"scale\([^)]*\)|\d+\.\d{3,}", _shorter, svg)
    svg = re.sub(r'(?<= d=")[^"]*', lambda m: re.sub(r"\s*([A-Za-z])\s*", r"\1", m[0]), svg)
    return re.sub(r">\s+<", "><", re.sub(r"\s+", " ", svg))


def _shorter(found):
    """A number with two decimals; the size of glyphs keeps all of them."""
    text = found[0]
    return text if text.startswith("scale") else f"{float(text):.2f}".rstrip("0").rstrip(".")


def _image(ax, kind):
    buffer = io.BytesIO()
    with rc_context(RC):
        ax.figure.savefig(
            buffer, format=kind, dpi=192, metadata={"Date": None} if kind == "svg" else None
        )
    return buffer.getvalue()
