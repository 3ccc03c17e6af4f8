"""What trained models and published experiments say about a shape: bands of ratios, and which
experiments bear on a change. No quality is computed here.

Sources: `bands.csv`, whose rows `scripts/trained_models.py` counts from published configs, and
`ablations.csv`, published experiments that were read where each row says.
"""

import csv
import functools
from collections import Counter
from dataclasses import dataclass, field
from importlib import resources

from hwdesign._check import check_fields, choice, flag, instance, shown, single, text
from hwdesign.advice.shapes import depth, known_models
from hwdesign.catalogue.precision import RECIPES
from hwdesign.models import config  # noqa: F401  (examples below load models)
from hwdesign.models.blocks import DenseFFN, MoE, SelfAttention
from hwdesign.models.compressed import CompressedAttention
from hwdesign.models.latent import LatentAttention
from hwdesign.models.linear import ParallelMixers, StateMixer
from hwdesign.models.mamba import Mamba2
from hwdesign.models.model import Model
from hwdesign.models.shared_cache import SharedCacheAttention

FAMILIES = ("dense", "moe_gqa", "moe_mla", "hybrid")
# Each ratio and its unit; what it is a ratio of, `ratios` says.
RATIOS = {
    "aspect": "element a layer",
    "expansion": "dimensionless",
    "granularity": "dimensionless",
    "expert_width": "dimensionless",
    "sparsity": "dimensionless",
    "head_size": "element",
    "heads_per_kv": "dimensionless",
    "query_width": "dimensionless",
    "full_attention": "dimensionless",
    "shared_expert": "dimensionless",
}
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
# Sizes that make two rows of bands.csv the same shape.
SHAPE = (
    "depth",
    "hidden_size",
    "experts",
    "experts_per_token",
    "expert_width",
    "expert_latent",
    "shared_expert_width",
    "dense_width",
    "query_heads",
    "key_value_heads",
    "head_size",
    "full_attention_layers",
)
ATTENTION = SelfAttention | LatentAttention | CompressedAttention
STATE = StateMixer | Mamba2 | ParallelMixers


@dataclass(frozen=True, kw_only=True)
class Band:
    """Smallest and largest value of a ratio in the trained models of a family.

    Parameters
    ----------
    ratio, family : str
        One of `RATIOS`, and one of `FAMILIES`.
    least, most : float
        The two ends, in the unit of the ratio.
    least_model, most_model : str
        The model at each end; of several the first in the table.
    count : int
        Shapes that the band is taken from; models of the same sizes count once.

    Examples
    --------
    >>> ratio_band("aspect", "dense").most_model
    'gpt-neox-20b'
    """

    ratio: str
    family: str
    least: float
    most: float
    least_model: str
    most_model: str
    count: int


@dataclass(frozen=True, kw_only=True)
class Departure:
    """A ratio of a model that no trained model of a family has.

    Parameters
    ----------
    ratio : str
        One of `RATIOS`.
    value : float
        The model's, in the unit of the ratio.
    band : Band or None
        What trained models have; None where none of the family has this ratio.
    by : float or None
        How far outside, as a share of the nearer end [dimensionless], negative below the band; None
        without a band.

    Examples
    --------
    >>> [(d.ratio, round(d.by, 2)) for d in outside(config.load("gpt2"), "moe_gqa") if d.by]
    [('heads_per_kv', -0.75)]
    """

    ratio: str
    value: float
    band: Band | None
    by: float | None

    @property
    def text(self):
        """In words, as a report shows it.

        >>> outside(config.load("gpt2"), "moe_gqa")[0].text
        'heads_per_kv 1 is 75 % below 4, the least of 15 shapes (mixtral-8x7b)'
        """
        if self.band is None:
            return f"{self.ratio} {self.value:.3g}: no trained model of the family has it"
        above = self.by > 0
        end, way = (self.band.most, "above") if above else (self.band.least, "below")
        name = self.band.most_model if above else self.band.least_model
        return (
            f"{self.ratio} {self.value:.3g} is {abs(self.by):.0%} {way} {end:.3g}, the "
            f"{'most' if above else 'least'} of {self.band.count} shapes ({name})"
        ).replace("%", " %")


def sizes(model):
    """Whole numbers that the ratios of a model are made of, as a dict: a row of `bands.csv`.

    Parameters
    ----------
    model : Model
        Any.

    Returns
    -------
    dict of str to int or None
        Sizes [element], counts [dimensionless] and layers [layer]; None where the model has no such
        part. `depth` counts as `hwdesign.advice.shapes.depth` does. Of several kinds of
        feed-forward parts of one sort, and of several attentions, the one that most layers have
        counts; of attentions those that see every token go first. A head of latent attention is as
        wide as its query. `shared_expert_width` is the sum of the shared experts.

    Raises
    ------
    ValueError
        If `model` is no Model.

    Notes
    -----
    Source: `Model` counts; the names are those of Hugging Face configs.

    Examples
    --------
    >>> found = sizes(config.load("deepseek-r1"))
    >>> found["hidden_size"], found["depth"], found["experts"], found["head_size"]
    (7168, 61, 256, 192)
    """
    instance("model", model, Model, "a Model")
    found = {"layers": len(model.blocks), "depth": depth(model), "hidden_size": model.hidden_size}
    found["parameters"] = model.parameters
    parts = Counter()
    for block, times in model.block_counts.items():
        if block.ffn:
            parts[block.ffn] += times
    found |= _expert_sizes(_commonest(parts, MoE))
    dense = _commonest(parts, DenseFFN)
    found["dense_width"] = dense.width if dense else None
    return found | _attention_sizes(model)


def _commonest(counts, kind):
    """Of counted parts the one of a kind that is there most often, the first of several; or
    None."""
    found = {part: times for part, times in counts.items() if isinstance(part, kind)}
    return max(found, key=found.get, default=None)


def _expert_sizes(moe):
    """Sizes of a mixture of experts as a dict, each None without one."""
    names = ("experts", "experts_per_token", "expert_width", "expert_latent", "shared_expert_width")
    if moe is None:
        return dict.fromkeys(names)
    values = (moe.num_experts, moe.used, moe.width, moe.latent, moe.shared_width)
    return dict(zip(names, values, strict=True))


def _mixers(model):
    """How often each attention stands in a model; of two mixers side by side the first counts."""
    found = Counter()
    for block, times in model.block_counts.items():
        mixer = block.mixer
        mixer = mixer.first if isinstance(mixer, ParallelMixers) else mixer
        if isinstance(mixer, ATTENTION):
            found[mixer] += times
    return found


def _sees_all(mixer):
    """Whether an attention sees every token, if only as compressed entries."""
    return bool(mixer.ratio) if isinstance(mixer, CompressedAttention) else not mixer.window


def _attention_sizes(model):
    """Heads, their size, and layers that see every token, as a dict."""
    found = _mixers(model)
    full = Counter({mixer: times for mixer, times in found.items() if _sees_all(mixer)})
    mixer = _commonest(full or found, ATTENTION)
    heads = kv_heads = size = None
    if mixer:
        heads, size = mixer.num_heads, getattr(mixer, "head_dim", None)
    if isinstance(mixer, SelfAttention):
        kv_heads = mixer.num_kv_heads
    if isinstance(mixer, LatentAttention):
        size = mixer.nope_dim + mixer.rope_dim
    return {
        "query_heads": heads,
        "key_value_heads": kv_heads,
        "head_size": size,
        "full_attention_layers": full.total(),
    }


def family_of(model):
    """Which kind of model it is, as bands are taken.

    Parameters
    ----------
    model : Model
        Any.

    Returns
    -------
    str
        "hybrid" with a linear mixer or a state-space mixer in some layer, beside attention or
        beside experts; else by its feed-forward parts and its attention "dense", "moe_gqa" or
        "moe_mla"; "other" where neither fits, as for compressed attention.

    Raises
    ------
    ValueError
        If `model` is no Model.

    Notes
    -----
    Source: the kinds of blocks in `hwdesign.models`.

    Examples
    --------
    >>> [family_of(config.load(name)) for name in ("qwen3-32b", "kimi-k2.5", "kimi-k3")]
    ['dense', 'moe_mla', 'hybrid']
    """
    instance("model", model, Model, "a Model")
    if any(isinstance(block.mixer, STATE) for block in model.block_counts):
        return "hybrid"
    kinds = _mixers(model)
    grouped = bool(kinds) and all(isinstance(mixer, SelfAttention) for mixer in kinds)
    latent = bool(kinds) and all(isinstance(mixer, LatentAttention) for mixer in kinds)
    if any(block.routed for block in model.block_counts):
        return "moe_gqa" if grouped else "moe_mla" if latent else "other"
    return "dense" if grouped else "other"


def ratios(model):
    """The ratios of a model, as a dict in the order of `RATIOS`.

    Parameters
    ----------
    model : Model
        Any.

    Returns
    -------
    dict of str to float
        Only those that the model has. `aspect` is hidden size over depth [element a layer];
        `expansion` the width of dense feed-forward parts over the hidden size; `granularity` the
        experts of a token times their width over the hidden size, times latent over hidden size
        where experts work in a latent, so that it is the width that a token is multiplied by;
        `expert_width` the width of one expert over the size of the vectors it works on; `sparsity`
        experts over experts of a token; `head_size` [element]; `heads_per_kv` query heads over
        key-value heads, absent with latent attention; `query_width` the width of all query heads
        over the hidden size; `full_attention` the share of layers whose attention sees every token;
        `shared_expert` the width of shared experts over that of a routed one, 0 without them. All
        others are [dimensionless].

    Raises
    ------
    ValueError
        If `model` is no Model.

    Notes
    -----
    Source: `sizes`, and the definitions above.

    Examples
    --------
    >>> found = ratios(config.load("qwen3-235b-a22b"))
    >>> found["sparsity"], found["heads_per_kv"], found["granularity"]
    (16.0, 16.0, 3.0)
    """
    return _ratios(sizes(model))


def _ratios(row):
    """Ratios of a dict of sizes, those that it has, in the order of `RATIOS`."""
    hidden, width = row["hidden_size"], row["expert_width"]
    found = {"aspect": hidden / row["depth"]}
    if row["dense_width"]:
        found["expansion"] = row["dense_width"] / hidden
    if row["experts"]:
        inside, used = row["expert_latent"] or hidden, row["experts_per_token"]
        found["granularity"] = used * width * inside / hidden**2
        found["expert_width"] = width / inside
        found["sparsity"] = row["experts"] / used
        found["shared_expert"] = row["shared_expert_width"] / width
    if row["head_size"]:
        found["head_size"] = float(row["head_size"])
        found["query_width"] = row["query_heads"] * row["head_size"] / hidden
    if row["key_value_heads"]:
        found["heads_per_kv"] = row["query_heads"] / row["key_value_heads"]
    found["full_attention"] = row["full_attention_layers"] / row["depth"]
    return {name: found[name] for name in RATIOS if name in found}


def ratio_band(ratio, family, *, above=0.0):
    """Smallest and largest value of a ratio in the trained models of a family.

    Parameters
    ----------
    ratio : str
        One of `RATIOS`.
    family : str
        One of `FAMILIES`.
    above : float
        Only models of more parameters than this [element].

    Returns
    -------
    Band
        Both ends in the unit of the ratio, the model at each, and how many shapes there are.

    Raises
    ------
    ValueError
        If a name is unknown, or no such model has the ratio.

    Notes
    -----
    Source: `bands.csv`, each row with the address of its config. A band says what somebody trained,
    not what is good.

    Examples
    --------
    >>> band = ratio_band("sparsity", "moe_mla")
    >>> band.least, band.least_model, band.most, band.most_model, band.count
    (16.0, 'glm-4.7-flash', 48.0, 'kimi-k2', 4)
    """
    choice("ratio", ratio, RATIOS)
    choice("family", family, FAMILIES)
    above = single("above", above)
    found = _band(ratio, family, above)
    if found is None:
        having = [name for name in RATIOS if _band(name, family, above)]
        accepted = f"one that trained models of {family} have: {', '.join(having)}"
        if not having:
            raise ValueError(f"above must leave a model of {family}, got {above:g}")
        raise ValueError(f"ratio must be {accepted}, got {shown(ratio)}")
    return found


@functools.cache
def _shapes(family, above):
    """Names of models and their ratios, of each shape the first, as a tuple of pairs."""
    seen = {}
    for row in known_models():
        if row["family"] == family and row["parameters"] > above:
            shape = tuple(row[name] for name in SHAPE)
            seen.setdefault(shape, (row["model"], _ratios(row)))
    return tuple(seen.values())


@functools.cache
def _band(ratio, family, above):
    """The band of a ratio, None where no model has it."""
    found = [(own[ratio], name) for name, own in _shapes(family, above) if ratio in own]
    if not found:
        return None
    least = min(found, key=lambda pair: pair[0])
    most = max(found, key=lambda pair: pair[0])
    return Band(
        ratio=ratio,
        family=family,
        least=least[0],
        most=most[0],
        least_model=least[1],
        most_model=most[1],
        count=len(found),
    )


def outside(model, family=None, *, above=0.0):
    """Which ratios of a model leave the band of a family, and by how much.

    Parameters
    ----------
    model : Model
        Any.
    family : str or None
        One of `FAMILIES`; None for the model's own.
    above : float
        Compare with models of more parameters than this only [element].

    Returns
    -------
    tuple of Departure
        In the order of `RATIOS`, shares [dimensionless]; empty where all ratios lie in their bands.

    Raises
    ------
    ValueError
        If `model` is no Model, or the family is unknown, as that of compressed attention is.

    Notes
    -----
    Source: `bands.csv`. Outside a band nobody whose config is known trained a model; that is no
    verdict on its quality.

    Examples
    --------
    >>> outside(config.load("qwen3-235b-a22b"))
    ()
    >>> [d.ratio for d in outside(config.load("qwen3-0.6b"), above=7e9)]
    ['aspect', 'query_width']
    """
    own = ratios(model)
    chosen = choice("family", family_of(model) if family is None else family, FAMILIES)
    above, found = single("above", above), []
    for name, value in own.items():
        band = _band(name, chosen, above)
        by = None
        if band and band.least <= value <= band.most:
            continue
        if band:
            by = value / (band.most if value > band.most else band.least) - 1
        found.append(Departure(ratio=name, value=value, band=band, by=by))
    return tuple(found)


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
    row, mixers = sizes(model), _mixers(model)
    found = _ratios(row)
    if row["experts"]:
        found["expert_latent"] = (row["expert_latent"] or row["hidden_size"]) / row["hidden_size"]

    def share(holds, counts):
        return sum(times for one, times in counts.items() if holds(one)) / row["depth"]

    found["latent_attention"] = share(lambda mixer: isinstance(mixer, LatentAttention), mixers)
    found["shared_cache"] = share(lambda mixer: isinstance(mixer, SharedCacheAttention), mixers)
    blocks = model.block_counts
    found["linear_layers"] = share(lambda block: isinstance(block.mixer, STATE), blocks)
    found["window_layers"] = share(lambda mixer: not _sees_all(mixer), mixers)
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
