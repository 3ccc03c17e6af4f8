"""What published experiments say of a change of a shape: which of them bear on it, and what an
architect would pay. No quality is computed here.

Source: `ablations.csv`, published experiments that were read where each row says.
"""

import csv
import functools
from collections import Counter
from dataclasses import dataclass, field
from importlib import resources

from hwdesign._check import check_fields, choice, flag, instance, shown, single, text
from hwdesign.advice.bands import RATIOS, STATE, attention_counts, ratios, sees_all, sizes
from hwdesign.catalogue.precision import RECIPES
from hwdesign.models import config  # noqa: F401  (examples below load models)
from hwdesign.models.latent import LatentAttention
from hwdesign.models.model import Model
from hwdesign.models.shared_cache import SharedCacheAttention

# What experiments change: the ratios, and traits of a model that are no ratio of two widths.
TRAITS = RATIOS | {
    "expert_latent": "dimensionless",
    "latent_attention": "dimensionless",
    "shared_cache": "dimensionless",
    "linear_layers": "dimensionless",
    "window_layers": "dimensionless",
    "window": "token",
    "vocabulary": "element",
    "weight_bits": "bit",
}
TOPICS = (
    "depth and width",
    "feed-forward width",
    "granularity",
    "sparsity",
    "shared experts",
    "sharing of keys and values",
    "heads",
    "hybrids",
    "windows",
    "vocabulary",
    "low precision",
)
DIRECTIONS = ("up", "down")
OUTCOMES = ("better", "worse", "same", "mixed")
REVERSED = {"better": "worse", "worse": "better"}  # the same experiment read backwards
STATUSES = ("read", "second-hand", "not verified")
NONE = "no evidence"
PRICED = ("depth", *RATIOS)


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """What a published experiment found when one trait of a model was changed: a row of
    `ablations.csv`.

    Parameters
    ----------
    id : str
        A short name, by which other rows refer to it.
    topic, trait, direction : str
        One of `TOPICS`; one of `TRAITS`, and which way the experiment moves it, "up" or "down".
    change : str
        What was changed, in words.
    scale : str
        Which models were trained, in words.
    least_parameters, most_parameters : float or None
        Smallest and largest of them [element]; None where the source does not say.
    effect : float or None
        The number that the source gives, in `unit`; None where it gives words only.
    unit : str
        What `effect` is measured in, and of what.
    outcome : str
        What the change did to quality: "better", "worse", "same" or "mixed".
    study : str
        How large the experiment was.
    who, date, source : str
        By whom, when, and the address.
    status, where, read : str
        One of `STATUSES`, what was read (abstract, text, notes of others), and the day.
    note : str
        What limits it.
    agrees_with, contradicts : tuple of str
        Names of other rows.

    Raises
    ------
    ValueError
        If a name is unknown, a source or a date is missing, or an effect has no unit.

    Examples
    --------
    >>> row = next(row for row in ablations() if row.id == "vocabulary-3b")
    >>> row.effect, row.unit, row.outcome
    (2.9, 'points of ARC-Challenge', 'better')
    """

    id: str
    topic: str
    trait: str
    direction: str
    change: str
    scale: str
    least_parameters: float | None = None  # [element]
    most_parameters: float | None = None  # [element]
    effect: float | None = None
    unit: str = ""
    outcome: str
    study: str
    who: str
    date: str
    source: str
    status: str
    where: str
    read: str
    note: str = ""
    agrees_with: tuple[str, ...] = ()
    contradicts: tuple[str, ...] = ()

    def __post_init__(self):
        names = {"topic": TOPICS, "trait": TRAITS, "direction": DIRECTIONS}
        for name, known in (names | {"outcome": OUTCOMES, "status": STATUSES}).items():
            choice(name, getattr(self, name), known)
        texts = ("id", "change", "scale", "unit", "study", "who", "date", "source", "where", "read")
        amounts = ("least_parameters", "most_parameters")
        check_fields(self, texts=(*texts, "note"), amounts=amounts, none=amounts)
        needed = ("id", "change", "who", "date", "source", "where", "read")
        for name in needed + (("unit",) if self.effect is not None else ()):
            if not getattr(self, name):
                raise ValueError(f"{name} must be given in row {shown(self.id)}, got ''")

    def outcome_for(self, direction):
        """What the change did to quality where a trait moves "up" or "down": backwards, better and
        worse change places.
        """
        choice("direction", direction, DIRECTIONS)
        if direction == self.direction:
            return self.outcome
        return REVERSED.get(self.outcome, self.outcome)


@functools.cache
def _all_ablations():
    """All rows of ablations.csv."""
    path = resources.files("hwdesign.advice").joinpath("ablations.csv")
    numbers = ("least_parameters", "most_parameters", "effect")
    found = []
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        row |= {name: float(row[name]) if row[name] else None for name in numbers}
        row |= {name: tuple(row[name].split()) for name in ("agrees_with", "contradicts")}
        found.append(Ablation(**row))
    return tuple(found)


def ablations(topic=None, *, unverified=False):
    """Published experiments on a topic.

    Parameters
    ----------
    topic : str or None
        One of `TOPICS`; None for all.
    unverified : bool
        Whether rows whose numbers nobody here could read are among them.

    Returns
    -------
    tuple of Ablation
        In the order of the table; effects in the unit that each row names.

    Raises
    ------
    ValueError
        If the topic is unknown.

    Notes
    -----
    Source: each row's own.

    Examples
    --------
    >>> sorted({row.outcome_for("up") for row in ablations("depth and width")})
    ['better', 'mixed', 'same', 'worse']
    """
    if topic is not None:
        choice("topic", topic, TOPICS)
    flag("unverified", unverified)
    return tuple(
        row
        for row in _all_ablations()
        if topic in (None, row.topic) and (unverified or row.status != "not verified")
    )


def traits(model):
    """The traits of a model that experiments change, as a dict in the order of `TRAITS`.

    Parameters
    ----------
    model : Model
        Any.

    Returns
    -------
    dict of str to float
        The ratios; the size of the vectors that experts work on over the hidden size, the shares of
        layers with latent attention, without a cache of their own, with a linear or state-space
        mixer and with a window [dimensionless]; the smallest window [token], the rows of the
        vocabulary [element] and the bits of a weight as the checkpoint stores most of them [bit].
        Only those that the model has.

    Raises
    ------
    ValueError
        If `model` is no Model.

    Notes
    -----
    Source: the blocks of the model.

    Examples
    --------
    >>> found = traits(config.load("gpt-oss-120b"))
    >>> found["window_layers"], found["window"], found["vocabulary"]
    (0.5, 128.0, 201088.0)
    """
    row, mixers = sizes(model), attention_counts(model)
    found = ratios(model)
    if row["experts"]:
        found["expert_latent"] = (row["expert_latent"] or row["hidden_size"]) / row["hidden_size"]

    def share(holds, counts):
        return sum(times for one, times in counts.items() if holds(one)) / row["depth"]

    found["latent_attention"] = share(lambda mixer: isinstance(mixer, LatentAttention), mixers)
    found["shared_cache"] = share(lambda mixer: isinstance(mixer, SharedCacheAttention), mixers)
    blocks = model.block_counts
    found["linear_layers"] = share(lambda block: isinstance(block.mixer, STATE), blocks)
    found["window_layers"] = share(lambda mixer: not sees_all(mixer), mixers)
    windows = [mixer.window for mixer in mixers if mixer.window]
    if windows:
        found["window"] = float(min(windows))
    found["vocabulary"] = float(model.vocab_size)
    if not model.bytes_unknown:
        found["weight_bits"] = 8 * RECIPES[model.quantization or "bf16"].weights.bytes
    return found


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What published experiments say about one trait that differs between two models.

    Parameters
    ----------
    trait : str
        One of `TRAITS`.
    before, after : float or None
        Its values, in the unit of the trait; None where a model has no such part.
    parameters : int
        Those of the model after the change [element].
    rows : tuple of Ablation
        Experiments that changed the same trait, either way.

    Examples
    --------
    >>> deep, wide = config.load("qwen3-32b"), config.load("llama-3.1-8b")
    >>> evidence_for(deep, wide)[0].trait
    'aspect'
    """

    trait: str
    before: float | None
    after: float | None
    parameters: int = field(repr=False)
    rows: tuple[Ablation, ...] = field(repr=False)

    @property
    def direction(self):
        """Which way the trait moves: "up" or "down"; None where a part appears or vanishes."""
        if None in (self.before, self.after):
            return None
        return "up" if self.after > self.before else "down"

    @property
    def outcomes(self):
        """How many experiments found what about this direction, as a dict by outcome."""
        found = Counter(row.outcome_for(self.direction) for row in self.rows)
        return {name: found[name] for name in OUTCOMES if found[name]}

    @property
    def extrapolated(self):
        """How many times the model is larger than the largest that was trained [dimensionless], of
        the rows that say a size; None where none does, or it is not larger.
        """
        largest = max((row.most_parameters or 0 for row in self.rows), default=0)
        return self.parameters / largest if largest and self.parameters > largest else None

    @property
    def says(self):
        """In words: what was found, at which size; "no evidence" without a row."""
        if not self.rows:
            return NONE
        found = ", ".join(f"{count} {name}" for name, count in self.outcomes.items())
        words = f"{self.direction}, {len(self.rows)} published: {found}"
        if self.extrapolated:
            words += f"; the model is {self.extrapolated:.2g} times the largest of them"
        return words


def evidence_for(before, after, *, unverified=False):
    """Which published experiments apply to the difference of two models.

    Parameters
    ----------
    before, after : Model
        The change is from the one to the other.
    unverified : bool
        Whether rows whose numbers nobody here could read count.

    Returns
    -------
    tuple of Evidence
        One for each trait that differs, in the order of `TRAITS`, values in its unit; its `says` is
        "no evidence" where no experiment changed that trait, or a part appears or vanishes.

    Raises
    ------
    ValueError
        If an argument is no Model.

    Notes
    -----
    Source: `ablations.csv`. Each experiment changed one trait at other sizes than these; nothing
    here adds them up.

    Examples
    --------
    >>> from dataclasses import replace
    >>> r1 = config.load("deepseek-r1")
    >>> [(e.trait, e.says) for e in evidence_for(r1, replace(r1, vocab_size=2 * r1.vocab_size))]
    [('vocabulary', 'up, 2 published: 2 better; the model is 2.2e+02 times the largest of them')]
    """
    instance("before", before, Model, "a Model")
    instance("after", after, Model, "a Model")
    old, new = traits(before), traits(after)
    rows, found = ablations(unverified=unverified), []
    for name in TRAITS:
        if old.get(name) == new.get(name):
            continue
        both = name in old and name in new
        found.append(
            Evidence(
                trait=name,
                before=old.get(name),
                after=new.get(name),
                parameters=after.parameters,
                rows=tuple(row for row in rows if both and row.trait == name),
            )
        )
    return tuple(found)


def evidence_lines(before, after):
    """What published experiments say of each trait that differs between two models, in words.

    Parameters
    ----------
    before, after : Model
        The change is from the one to the other.

    Returns
    -------
    list of str
        A line for each trait, with its values in the trait's unit.

    Raises
    ------
    ValueError
        If an argument is no Model.

    Notes
    -----
    Source: `evidence_for`.

    Examples
    --------
    >>> from dataclasses import replace
    >>> r1 = config.load("deepseek-r1")
    >>> evidence_lines(r1, replace(r1, vocab_size=2 * r1.vocab_size))[0][:38]
    'vocabulary 1.29e+05 -> 2.59e+05: up, 2'
    """
    lines = []
    for one in evidence_for(before, after):
        ends = one.before, one.after
        old, new = ("none" if value is None else f"{value:.3g}" for value in ends)
        lines.append(f"{one.trait.replace('_', ' ')} {old} -> {new}: {one.says}")
    return lines


@dataclass(frozen=True, kw_only=True)
class ExchangeRate:
    """What an architect would pay: a share of the step's time for a share of something.

    Parameters
    ----------
    what : str
        "depth", or one of `RATIOS`.
    rate : float
        Share of step time for each share of `what` [dimensionless], >= 0.

    Examples
    --------
    >>> round(ExchangeRate(what="depth", rate=0.5).worth(80, 88), 3)
    0.05
    """

    what: str
    rate: float  # [dimensionless]

    def __post_init__(self):
        choice("what", self.what, PRICED)
        check_fields(self, amounts=("rate",))

    def worth(self, before, after):
        """Share of step time that a change is worth to the architect [dimensionless]: the rate
        times the relative change, negative where `what` falls; both > 0 and in the same unit.
        """
        before, after = single("before", before), single("after", after)
        for name, value in (("before", before), ("after", after)):
            if value <= 0:
                raise ValueError(f"{name} must be > 0, got {value:g}")
        return self.rate * (after / before - 1)


def exchange_rate(price):
    """An exchange rate from a text, as ``--price depth=0.5`` has it.

    Parameters
    ----------
    price : str
        What is bought, an equals sign, and the share of step time that a share of it is worth
        [dimensionless]: with ``depth=0.5``, 10 % more layers may cost 5 % of a step.

    Returns
    -------
    ExchangeRate
        Checked; its rate is [dimensionless].

    Raises
    ------
    ValueError
        If the text has another form, the name is unknown, or the number is not finite and >= 0.

    Notes
    -----
    Source: the architect. Nobody publishes such a rate, so there is no default.

    Examples
    --------
    >>> exchange_rate("depth=0.5")
    ExchangeRate(what='depth', rate=0.5)
    """
    what, equals, number = (part.strip() for part in text("price", price).partition("="))
    if not equals or what not in PRICED:
        raise ValueError(
            f"price must be a name, an equals sign and a number, as 'depth=0.5', with one of "
            f"{', '.join(PRICED)}; got {shown(price)}"
        )
    try:
        rate = float(number)
    except ValueError:
        rate = -1.0
    if not 0 <= rate < float("inf"):
        raise ValueError(
            f"price must be a share of step time that is finite and >= 0 for a share of {what}, "
            f"got {shown(price)}"
        )
    return ExchangeRate(what=what, rate=rate)
