"""A slider that moves a figure with and without a kernel.

On the static page: all frames are drawn beforehand and a few lines of script swap them. In a live
kernel: an ipywidgets slider that draws anew at each move. The same object is both; the viewer takes
the form it can run.
"""

import html
import json
import math
import os
from dataclasses import dataclass, field

from hwdesign.lessons.show import badge, webp_uri

MAX_FRAMES = 24  # a page's weight

_SCRIPT = """
(() => {
  const box = document.getElementById("%s");
  const frames = JSON.parse(box.querySelector("script.hw-frames").textContent);
  const image = box.querySelector("img.hw-frame"), slider = box.querySelector("input");
  const text = box.querySelector("output");
  slider.addEventListener("input", () => {
    const frame = frames[slider.value];
    image.src = frame.src; image.alt = frame.alt;
    slider.setAttribute("aria-valuetext", frame.value); text.textContent = frame.text;
  });
})();
"""


def _finite(value):
    """The same numbers in lists and mappings, with None for what JSON cannot hold: NaN and
    infinity.
    """
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One position of a slider: its axes, alt text, one sentence, and the numbers behind them in SI
    units.
    """

    ax: object
    alt: str
    text: str
    data: dict = field(default_factory=dict)


class Explorer:
    """A figure with a slider.

    Parameters
    ----------
    name : str
        Identifier, unique on the page.
    control : str
        What the slider changes, with unit.
    values : sequence of str
        Names of the positions, as they are announced.
    draw : callable
        Position (0, 1, ...) to `Frame`.
    caption : str
        HTML.
    kinds : sequence of str
        Kinds of number in the figure.

    Raises
    ------
    ValueError
        If there are fewer than 2 or more than 24 positions.

    Examples
    --------
    >>> from hwdesign.lessons.style import axes
    >>> Explorer(
    ...     "demo",
    ...     "size",
    ...     ["1", "2"],
    ...     lambda i: Frame(ax=axes(), alt=f"a {i}", text=""),
    ...     caption="",
    ... )
    <Explorer demo: size over 1 to 2>
    """

    def __init__(self, name, control, values, draw, *, caption, kinds=()):
        if not 2 <= len(values) <= MAX_FRAMES:
            raise ValueError(f"values must hold 2 to {MAX_FRAMES} positions, got {len(values)}")
        self.name, self.control, self.values, self.draw = (
            name,
            control,
            list(map(str, values)),
            draw,
        )
        self.caption, self.kinds = caption, tuple(kinds)

    def __repr__(self):
        return f"<Explorer {self.name}: {self.control} over {self.values[0]} to {self.values[-1]}>"

    def frames(self):
        """All positions as mappings: src (data URI), alt, value, text, data (SI units)."""
        drawn = ((value, self.draw(i)) for i, value in enumerate(self.values))
        return [
            {"src": webp_uri(f.ax), "alt": f.alt, "value": value, "text": f.text, "data": f.data}
            for value, f in drawn
        ]

    def html(self):
        """The static form: every frame inline, no kernel and no library needed."""
        frames = self.frames()
        first, last = frames[0], len(frames) - 1
        key = f"hw-explorer-{self.name}"
        data = json.dumps(
            [frame | {"data": _finite(frame["data"])} for frame in frames], allow_nan=False
        ).replace("</", "<\\/")
        labels = " ".join(badge(kind) for kind in self.kinds)
        return (
            f'<figure class="hw-explorer" id="{key}" data-explorer="{self.name}">'
            '<div class="hw-explorer-stage"><img class="hw-frame" '
            f'alt="{html.escape(first["alt"])}" src="{first["src"]}"></div>'
            f'<label class="hw-explorer-control"><span>{html.escape(self.control)}</span> '
            f'<input type="range" min="0" max="{last}" value="0" step="1" '
            f'aria-valuetext="{html.escape(first["value"])}">'
            f'</label> <output aria-live="polite">{html.escape(first["text"])}</output>'
            '<p class="hw-explorer-note">The slider works on this page without a kernel: drag '
            "it, or focus it and use the "
            "arrow keys. To change the numbers behind it, open the notebook in Colab or Binder.</p>"
            f"<figcaption>{labels} {self.caption}</figcaption>"
            '<script type="application/json" '
            f'class="hw-frames">{data}</script><script>{_SCRIPT % key}</script></figure>'
        )

    def widget(self):
        """The live form: an ipywidgets box whose slider calls `draw` at each move."""
        import ipywidgets

        options = [(value, i) for i, value in enumerate(self.values)]
        slider = ipywidgets.SelectionSlider(
            options=options,
            description=self.control,
            continuous_update=False,
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="95%"),
        )
        picture = ipywidgets.HTML()

        def redraw(_=None):
            frame = self.draw(slider.value)
            image = (
                f'<img alt="{html.escape(frame.alt)}" style="max-width:100%" '
                f'src="{webp_uri(frame.ax)}">'
            )
            picture.value = f"{image}<p>{html.escape(frame.text)}</p>"

        slider.observe(redraw, names="value")
        redraw()
        return ipywidgets.VBox([picture, slider])

    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle = {"text/plain": repr(self), "text/html": self.html()}
        if (
            os.environ.get("HWDESIGN_STATIC") != "1"
        ):  # set while the site is built: widgets need a kernel
            bundle |= self._live()
        return bundle

    def _live(self):
        try:
            widget = self.widget()
        except ImportError:
            return {}
        # Written out because ipywidgets 7, which Colab has, offers no mimebundle.
        view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
        return {"application/vnd.jupyter.widget-view+json": view}
