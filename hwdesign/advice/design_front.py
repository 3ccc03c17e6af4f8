"""What a search over designs found: the designs on the front of two rates, with intervals, as text,
as a table and as a picture.

All figures are modelled. A rate's interval holds the middle 80 % of published points around such
times; it says how far the model is off on a server, not how the designs differ from each other:
what moves one moves its neighbours, too.
"""

import functools
import html
import json
from dataclasses import dataclass, field, replace

import numpy as np

from hwdesign._check import count, instance
from hwdesign.advice.case import Case, plan_text
from hwdesign.advice.checklist import checklist
from hwdesign.advice.design_search import NO_LIMIT, Setting
from hwdesign.advice.design_space import Shape
from hwdesign.advice.evidence import evidence_lines
from hwdesign.advice.guidelines import GUIDELINES
from hwdesign.advice.verdict import RANK, percent
from hwdesign.catalogue.precision import Recipe
from hwdesign.models.steps import Plan
from hwdesign.safe import visible
from hwdesign.timing.estimate import prefill_step
from hwdesign.timing.intervals import interval_factors
from hwdesign.timing.serving import time_per_output_token
from hwdesign.units import fmt

UNSAID = (
    "how well a design answers no time model knows; a model to compare with (--compare) is laid "
    "beside what published experiments say of the change"
)
MOST_SHOWN = 12  # designs of a front that are printed
WIDTH, HEIGHT, LEFT, BELOW, MARGIN = 640, 420, 70, 50, 20  # of the picture [pixel]


@dataclass(frozen=True, kw_only=True)
class Point:
    """A model under two plans and in one format, at a batch in a setting.

    Parameters
    ----------
    setting : Setting
        Where it serves.
    attention, ffn : Plan
        Plans of the two parts over all GPUs.
    recipe : Recipe
        Formats, that of the cache among them.
    batch : int
        Sequences in flight over all GPUs.
    shape : Shape or None
        Of a design.
    known : Model or None
        Of a model that is compared.
    """

    setting: Setting = field(repr=False)
    attention: Plan
    ffn: Plan
    recipe: Recipe = field(repr=False)
    batch: int
    shape: Shape | None = None
    known: object = field(default=None, repr=False)

    @property
    def model(self):
        """The `Model`."""
        return self.known or self.shape.model

    @property
    def name(self):
        """The sizes of a design, or the name of a model that is compared."""
        return visible(self.known.name) if self.known else str(self.shape)

    @property
    def _plans(self):
        plans = {"attention": self.attention, "ffn": self.ffn}
        return plans | {"engine": self.setting.engine}

    @functools.cached_property
    def token_seconds(self):
        """Time per output token on a server that also prefills [s]."""
        where, load = self.setting, {"concurrency": self.batch}
        load |= {"input_tokens": where.prompt, "output_tokens": where.answer}
        model, device = self.model, where.device
        return float(time_per_output_token(model, device, self.recipe, **load, **self._plans))

    @functools.cached_property
    def first_seconds(self):
        """Time of a prompt that comes alone [s]."""
        where, load = self.setting, {"batch": self.attention.dp}
        load["context"] = where.prompt
        step = prefill_step(self.model, where.device, self.recipe, **load, **self._plans)
        return float(step.seconds)

    @functools.cached_property
    def case(self):
        """The same as a `Case`, which `checklist` judges."""
        where = self.setting
        return Case(
            model=self.model,
            device=where.device,
            recipe=self.recipe,
            cache=self.recipe.kv_cache,
            engine=where.engine,
            attention=self.attention,
            ffn=self.ffn,
            batch=self.batch,
            context=where.context,
            prompt=where.prompt,
            answer=where.answer,
        )

    @property
    def user_rate(self):
        """Tokens per second of a user [token/s]."""
        return 1 / self.token_seconds

    @property
    def gpu_rate(self):
        """Tokens per second of a GPU [token/s]."""
        return self.batch / self.token_seconds / self.setting.gpus

    def interval(self, rate):
        """Where the middle 80 % of published points lay around such a rate, as (least, most)
        [token/s].
        """
        least, most = interval_factors()
        return rate / most, rate / least

    @property
    def memory(self):
        """Weights and cache on a GPU [byte]."""
        return float(self.case.breakdown.memory)

    @property
    def joules(self):
        """Energy of all GPUs for a token of a decode step [J/token]; None where it is not known."""
        joules = self.case.breakdown.joules_per_token(self.batch, self.setting.gpus)
        return None if joules is None else float(joules)

    @functools.cached_property
    def binding(self):
        """The finding of the checklist that binds the most: the worst, then that of the highest
        cost; None where every guideline is kept.
        """
        found = checklist(self.case).findings
        return max(found, key=lambda f: (RANK[f.status], f.cost or 0.0), default=None)

    @property
    def binding_text(self):
        """The guideline that binds, in words."""
        finding = self.binding
        if finding is None:
            return "none"
        cost = f", {percent(finding.cost)}" if finding.cost else ""
        short = GUIDELINES[finding.guideline].short
        return f"{finding.guideline} {short}: {finding.dimension} {finding.value}{cost}"

    @property
    def outside(self):
        """Names of the ratios outside the bands of trained models, as a tuple."""
        return self.shape.outside() if self.shape else ()

    @property
    def formats(self):
        """Recipe and format of the cache, in words."""
        return f"{self.recipe.name}, cache {self.recipe.kv_cache.name}"

    @property
    def plans(self):
        """Both plans as the command line takes them."""
        return plan_text(self.attention, self.ffn)

    @property
    def cells(self):
        """Figures by the name of their column, as a dict of texts."""
        joules = self.joules
        return {
            "user [token/s]": _rate(self.user_rate, self.interval(self.user_rate)),
            "GPU [token/s]": _rate(self.gpu_rate, self.interval(self.gpu_rate)),
            "batch": str(self.batch),
            "tpot": fmt(self.token_seconds, "s"),
            "ttft": fmt(self.first_seconds, "s"),
            "memory": fmt(self.memory, "byte"),
            "energy": "not known" if joules is None else fmt(joules, "J/token"),
            "formats": self.formats,
            "plans": self.plans,
            "shape": self.name,
            "outside the bands": ", ".join(self.outside) or "nothing",
            "guideline that binds": self.binding_text,
        }

    @property
    def lines(self):
        """The same as lines of a report."""
        cell = self.cells
        head = f"user {cell['user [token/s]']} token/s, GPU {cell['GPU [token/s]']} token/s"
        figures = (f"{name} {cell[name]}" for name in ("batch", "tpot", "ttft", "memory"))
        lines = [head, f"{', '.join(figures)}, energy {cell['energy']}", cell["shape"]]
        lines.append(f"{cell['formats']}; {cell['plans']}")
        if self.outside:
            lines.append(f"outside the bands of trained models: {', '.join(self.outside)}")
        return [*lines, f"guideline that binds: {cell['guideline that binds']}"]


def _rate(rate, ends):
    return f"{rate:.0f} ({ends[0]:.0f} to {ends[1]:.0f})"


@dataclass(frozen=True, kw_only=True, repr=False)
class DesignFront:
    """The front of one setting.

    Parameters
    ----------
    setting : Setting
        Where the designs serve.
    points : tuple of Point
        Designs that no other beats in both rates, the fastest for a user first.
    compared : tuple of Point
        Models that are compared, each where a GPU makes most tokens within the targets.
    shapes, triples : int
        Shapes that were searched; triples of a shape, a pair of plans and a format that were timed
        at every batch.
    share : float
        Share of the search that was done [dimensionless].
    seconds : float
        Time of the search [s].
    fastest : float
        Least time per output token of any triple that fits and keeps the ttft [s]; inf without one.
    """

    setting: Setting
    points: tuple
    compared: tuple = ()
    shapes: int = 0
    triples: int = 0
    share: float = 1.0
    seconds: float = 0.0
    fastest: float = np.inf

    def __repr__(self):
        return f"<DesignFront {self.setting.title}: {len(self.points)} designs>"

    @property
    def title(self):
        """What was searched, in a line."""
        done = f"{self.triples} triples of {self.shapes} shapes in {self.seconds:.1f} s"
        if self.share < 1:
            done += f", stopped at {100 * self.share:.0f} % of the plans"
        return f"{self.setting.title}: {done}"

    @property
    def nothing(self):
        """Why there is no design, in a sentence."""
        where = self.setting
        if self.share < 1:
            return "the search was stopped before a triple met the targets"
        if self.fastest == np.inf:
            timely = where.ttft < NO_LIMIT
            limit = f" with a prompt alone within {fmt(where.ttft, 's')}" if timely else ""
            return f"no triple fits into memory{limit}"
        return (
            f"no triple makes a token within {fmt(where.tpot, 's')}: the fastest that fits takes "
            f"{fmt(self.fastest, 's')}"
        )

    def shown(self):
        """Places of the designs that are printed: all, or `MOST_SHOWN` from end to end."""
        places = np.linspace(0, len(self.points) - 1, min(MOST_SHOWN, len(self.points)))
        return sorted(set(np.round(places).astype(int).tolist()))

    def said_of(self, known):
        """(place of the design of which a GPU makes most for users as fast as those of a compared
        model, what published experiments say of the change to it, as a list of lines).
        """
        fast = [i for i, p in enumerate(self.points) if p.user_rate >= known.user_rate]
        if not fast:
            return 0, []
        best = max(fast, key=lambda place: self.points[place].gpu_rate)
        return best, evidence_lines(known.model, self.points[best].model)

    def svg(self):
        """The front as a picture: tokens per second of a GPU over those of a user, on log axes,
        with intervals as bars; crosses are the compared models.
        """
        every = [*self.points, *self.compared]
        if not every:
            return ""
        users = [rate for p in every for rate in p.interval(p.user_rate)]
        gpus = [rate for p in every for rate in p.interval(p.gpu_rate)]
        x = _Axis(min(users), max(users), LEFT, WIDTH - MARGIN)
        y = _Axis(min(gpus), max(gpus), HEIGHT - BELOW, MARGIN)
        drawn = [*_frame(x, y), *(_bars(p, x, y) for p in every)]
        line = " ".join(f"{x(p.user_rate):.1f},{y(p.gpu_rate):.1f}" for p in self.points)
        drawn.append(f'<polyline points="{line}" fill="none" stroke="#0072b2"/>')
        drawn += [_dot(p, x, y) for p in self.points] + [_cross(p, x, y) for p in self.compared]
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        head += f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12" '
        label = html.escape(f"Modelled front, {self.setting.title}")
        return "\n".join([f'{head}role="img" aria-label="{label}">', *drawn, "</svg>"])


class _Axis:
    """A log axis from a least and a most value to pixels."""

    def __init__(self, least, most, start, end):
        self.ends = np.log10([least * 0.95, most * 1.05])
        self.start, self.end = start, end

    def __call__(self, value):
        low, high = self.ends
        return self.start + (np.log10(value) - low) / (high - low) * (self.end - self.start)

    @property
    def ticks(self):
        """Values of 1, 2 and 5 times a power of ten within the axis."""
        low, high = self.ends
        found = [m * 10.0**n for n in range(int(low) - 1, int(high) + 2) for m in (1, 2, 5)]
        return [value for value in found if low <= np.log10(value) <= high]


def _frame(x, y):
    """Axes with ticks and labels, as elements."""
    base, side = HEIGHT - BELOW, LEFT
    yield f'<path d="M{side},{MARGIN}V{base}H{WIDTH - MARGIN}" fill="none" stroke="#555"/>'
    for value in x.ticks:
        at = f"{x(value):.1f}"
        yield f'<line x1="{at}" x2="{at}" y1="{base}" y2="{base + 4}" stroke="#555"/>'
        yield f'<text x="{at}" y="{base + 17}" text-anchor="middle" fill="#555">{value:g}</text>'
    for value in y.ticks:
        at = f"{y(value):.1f}"
        yield f'<line x1="{side - 4}" x2="{side}" y1="{at}" y2="{at}" stroke="#555"/>'
        yield f'<text x="{side - 7}" y="{at}" dy="4" text-anchor="end" fill="#555">{value:g}</text>'
    middle, height = (side + WIDTH - MARGIN) / 2, (base + MARGIN) / 2
    words = "tokens per second of a {} [token/s]"
    label = '<text x="{}" y="{}" text-anchor="middle" fill="#555"{}>{}</text>'
    yield label.format(middle, HEIGHT - 12, "", words.format("user"))
    turned = f' transform="rotate(-90 16 {height})"'
    yield label.format(16, height, turned, words.format("GPU"))


def _bars(point, x, y):
    """The intervals of both rates as thin bars."""
    at, up = x(point.user_rate), y(point.gpu_rate)
    left, right = map(x, point.interval(point.user_rate))
    low, high = map(y, point.interval(point.gpu_rate))
    path = f"M{left:.1f},{up:.1f}H{right:.1f}M{at:.1f},{low:.1f}V{high:.1f}"
    return f'<path d="{path}" stroke="#999" stroke-opacity="0.5" stroke-width="1"/>'


def _dot(point, x, y):
    at, up = x(point.user_rate), y(point.gpu_rate)
    title = html.escape(f"{point.name}; {point.formats}; {point.plans}; batch {point.batch}")
    mark = f'<circle cx="{at:.1f}" cy="{up:.1f}" r="4" fill="#0072b2">'
    return f"{mark}<title>{title}</title></circle>"


def _cross(point, x, y):
    at, up, arm = x(point.user_rate), y(point.gpu_rate), 5
    path = f"M{at - arm:.1f},{up - arm:.1f}l{2 * arm},{2 * arm}m0,-{2 * arm}l-{2 * arm},{2 * arm}"
    mark = f'<path d="{path}" stroke="#d55e00" stroke-width="2"/>'
    words = html.escape(point.name)
    return f'{mark}<text x="{at + 9:.1f}" y="{up - 6:.1f}" fill="#d55e00">{words}</text>'


@dataclass(frozen=True, kw_only=True, repr=False)
class Designs:
    """The designs that `hwdesign.design` found; `print` shows them, a notebook their picture.

    Parameters
    ----------
    fronts : tuple of DesignFront
        One for each setting.
    least_bad : tuple of (tuple of Point, tuple of float)
        Where there are several settings, the shapes that lose least in the setting where they lose
        most: where a GPU makes most tokens in each setting, and what it makes less than with the
        best design of that setting, as a share [dimensionless].

    Examples
    --------
    >>> from hwdesign.advice.designing import design
    >>> budget = {"parameters": 1.5e9, "device": "H200", "gpus": 1}
    >>> found = design(**budget, load=(1000, 100), tpot=0.005, batches=[1, 8])
    >>> found.points[0].shape.family, len(found.fronts)
    ('llama', 1)
    """

    fronts: tuple
    least_bad: tuple = ()

    @functools.cached_property
    def points(self):
        """All designs, as they are numbered from 1: the fronts in turn, then the least bad."""
        found = [point for front in self.fronts for point in front.points]
        return (*found, *(points[0] for points, _ in self.least_bad))

    def __repr__(self):
        where = "; ".join(front.setting.title for front in self.fronts)
        return f"<Designs {len(self.points)} on {where}>"

    @property
    def complete(self):
        """Whether the search went to its end."""
        return all(front.share == 1 for front in self.fronts)

    def pick(self, number):
        """The `Point` of a number, from 1."""
        if not self.points:
            raise ValueError(f"pick must be the number of a design, got {number}: there is none")
        return self.points[count("pick", number, len(self.points)) - 1]

    def config(self, number):
        """The config.json of a design as text; its weights are in BF16, formats are served."""
        return json.dumps(self.pick(number).shape.config, indent=1) + "\n"

    def _numbered(self):
        """(front, number of its first design) of each front."""
        first = 1
        for front in self.fronts:
            yield front, first
            first += len(front.points)

    def __str__(self):
        lines = []
        for front, first in self._numbered():
            lines += [*_front_lines(front, first), ""]
        if self.least_bad:
            first = len(self.points) - len(self.least_bad) + 1
            lines.append("least bad in all settings: loss of tokens a GPU against the best in each")
            for number, (points, losses) in enumerate(self.least_bad, first):
                lines.append(f"{number:>3}  {points[0].name}")
                for point, loss in zip(points, losses, strict=True):
                    lines.append(f"     {percent(loss)} on {point.setting.title}:")
                    lines.append(f"       batch {point.batch}, {point.formats}; {point.plans}")
            lines.append("")
        lines.append("modelled; in brackets where the middle 80 % of published points lay")
        lines.append(UNSAID)
        return "\n".join(lines)

    def _repr_html_(self):
        parts = []
        for front, first in self._numbered():
            parts.append(f"<p>{html.escape(front.title)}</p>")
            if not front.points:
                parts.append(f"<p>{html.escape(front.nothing)}</p>")
            parts += [front.svg(), _table(front, first)]
            for point in front.compared:
                place, said = front.said_of(point)
                told = "".join(f"<li>{html.escape(line)}</li>" for line in said)
                name = f"{html.escape(point.name)} to {first + place}"
                if said:
                    parts.append(f"<p>Published experiments from {name}:</p><ul>{told}</ul>")
        if self.least_bad:
            parts.append("<p>Least bad in all settings, with the loss in each</p><ul>")
            for points, losses in self.least_bad:
                told = ", ".join(map(percent, losses))
                parts.append(f"<li>{html.escape(points[0].name)}: {told}</li>")
            parts.append("</ul>")
        parts.append("<p>Modelled; bars and brackets: the middle 80 % of published points.</p>")
        parts.append(f"<p>{html.escape(UNSAID)}</p>")
        return "\n".join(parts)


def _front_lines(front, first):
    lines = [front.title, ""]
    if not front.points:
        return [*lines, front.nothing]
    for place in front.shown():
        head, *more = front.points[place].lines
        lines += [f"{first + place:>3}  {head}", *(f"     {line}" for line in more)]
    hidden = len(front.points) - len(front.shown())
    if hidden:
        lines.append(f"     {hidden} more designs lie between these")
    for point in front.compared:
        head, *more = point.lines
        lines += [f"  x  {head}", *(f"     {line}" for line in more)]
        place, said = front.said_of(point)
        if said:
            lines.append(f"     published experiments on what changes from it to {first + place}:")
            lines += [f"       {line}" for line in said]
    notes = dict.fromkeys(n for p in front.points for n in p.case.breakdown.notes)
    return [*lines, *(f"uncalibrated: {note}" for note in notes)]


def _table(front, first):
    """The designs that are printed as a table."""
    chosen = [(str(first + place), front.points[place]) for place in front.shown()]
    chosen += [("x", point) for point in front.compared]
    if not chosen:
        return ""
    names = "".join(f"<th>{html.escape(name)}</th>" for name in chosen[0][1].cells)
    rows = [f"<table><thead><tr><th>#</th>{names}</tr></thead><tbody>"]
    for number, point in chosen:
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in point.cells.values())
        rows.append(f"<tr><td>{number}</td>{cells}</tr>")
    return "\n".join([*rows, "</tbody></table>"])


def plain(model):
    """A model without the formats of its checkpoint, as a design is served.

    >>> from hwdesign.models import config
    >>> plain(config.load("deepseek-v3")).quantization is None
    True
    """
    instance("model", model, object, "a Model")
    return replace(model, quantization=None, formats=(), quant_method=None, kv_cache=None)
