"""Ratios of a model's sizes, and the bands in which those of trained models lie.

Source: `bands.csv`, whose rows `scripts/trained_models.py` counts from published configs.
"""

import functools
from collections import Counter
from dataclasses import dataclass

from hwdesign._check import choice, instance, shown, single
from hwdesign.advice.shapes import depth, known_models
from hwdesign.models import config  # noqa: F401  (examples below load models)
from hwdesign.models.blocks import DenseFFN, MoE, SelfAttention
from hwdesign.models.compressed import CompressedAttention
from hwdesign.models.latent import LatentAttention
from hwdesign.models.linear import ParallelMixers, StateMixer
from hwdesign.models.mamba import Mamba2
from hwdesign.models.model import Model

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


def attention_counts(model):
    """How often each attention stands in a model, as a `Counter` [layer]; of two mixers side by
    side the first counts.

    >>> attention_counts(config.load("gpt2")).total()
    12
    """
    found = Counter()
    for block, times in model.block_counts.items():
        mixer = block.mixer
        mixer = mixer.first if isinstance(mixer, ParallelMixers) else mixer
        if isinstance(mixer, ATTENTION):
            found[mixer] += times
    return found


def sees_all(mixer):
    """Whether an attention sees every token, if only as compressed entries.

    >>> sees_all(SelfAttention(num_heads=1, num_kv_heads=1, head_dim=1, window=8))
    False
    """
    return bool(mixer.ratio) if isinstance(mixer, CompressedAttention) else not mixer.window


def _attention_sizes(model):
    """Heads, their size, and layers that see every token, as a dict."""
    found = attention_counts(model)
    full = Counter({mixer: times for mixer, times in found.items() if sees_all(mixer)})
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
    kinds = attention_counts(model)
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
