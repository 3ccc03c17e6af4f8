"""Bands of the proportions of trained models, by the ratio and the family of a design.

A design outside a band may be good; nobody has shown it. Source: the models of bands.csv.
"""

import functools

from hwdesign._check import choice
from hwdesign.advice.shapes import LARGE, trained_models
from hwdesign.models import config
from hwdesign.models.blocks import SelfAttention
from hwdesign.models.latent import LatentAttention

FAMILIES = {  # what a family has: experts, latents, a linear mixer
    "llama": (False, False, False),
    "qwen3_moe": (True, False, False),
    "deepseek_v3": (True, True, False),
    "qwen3_next": (True, False, True),
}
RATIOS = {
    "aspect": "hidden size over layers",
    "expansion": "feed-forward width over hidden size",
    "granularity": "width of a token's experts over hidden size",
    "sparsity": "experts over those of a token",
    "head_size": "size of a head",
    "group": "query heads of a key-value head",
    "attention_width": "width of all heads over hidden size",
    "full_share": "share of layers with full attention",
}


def ratios_of(family):
    """Names of the ratios that a family has, as a tuple.

    >>> ratios_of("llama")
    ('aspect', 'head_size', 'group', 'attention_width', 'expansion')
    """
    experts, latent, linear = choice("family", family, FAMILIES)
    names = ["aspect", "head_size", "group", "attention_width"]
    if latent:
        names.remove("group")
        names.remove("head_size")
    names += ["granularity", "sparsity"] if experts else ["expansion"]
    return tuple(names + (["full_share"] if linear else []))


@functools.lru_cache(maxsize=256)
def ratio_band(ratio, family):
    """Least and most of a ratio among trained models that are built like a family.

    Parameters
    ----------
    ratio : str
        One of `RATIOS`.
    family : str
        One of `FAMILIES`.

    Returns
    -------
    tuple
        Least and most [element per element], and the names of the models at the two ends.

    Raises
    ------
    ValueError
        If a name is unknown or the family has no such ratio.

    Notes
    -----
    Source: bands.csv for what it lists, else the shipped configs of its models; those above seven
    billion parameters. Aspect, granularity and sparsity are of dense models or of mixtures, heads
    of those with the same kind of attention.

    Examples
    --------
    >>> [round(end) for end in ratio_band("aspect", "qwen3_moe")[:2]]
    [43, 128]
    """
    choice("family", family, FAMILIES)
    choice("ratio", ratio, ratios_of(family))
    found = []
    for row in trained_models():
        if row["parameters"] > LARGE:
            found += [(value, row["model"]) for value in _values(row, ratio, family)]
    least, most = min(found), max(found)
    return least[0], most[0], (least[1], most[1])


def _values(row, ratio, family):
    """Values of a ratio of one trained model, as a list; empty where it has none."""
    experts, latent, linear = FAMILIES[family]
    if ratio in ("aspect", "granularity", "sparsity"):
        if bool(row["experts"]) != experts:
            return []
        used = row["experts_per_token"]
        return [
            {
                "aspect": lambda: row["hidden_size"] / row["depth"],
                "granularity": lambda: used * row["expert_width"] / row["hidden_size"],
                "sparsity": lambda: row["experts"] / used,
            }[ratio]()
        ]
    return _built(row["model"], ratio, LatentAttention if latent else SelfAttention)


@functools.cache
def _built(name, ratio, attention):
    """Values of a ratio that a shipped config tells, as a list."""
    if name not in config.names():
        return []
    model = config.load(name)
    blocks, hidden = model.block_counts, model.hidden_size
    mixers = [b.mixer for b in blocks if type(b.mixer) is attention]
    if ratio == "expansion":
        return [b.ffn.width / hidden for b in blocks if b.ffn and not b.routed]
    if ratio == "head_size":
        return [float(mixer.value_size) for mixer in mixers]
    if ratio == "group":
        return [mixer.num_heads / mixer.num_kv_heads for mixer in mixers]
    if ratio == "attention_width":
        size = "v_dim" if attention is LatentAttention else "head_dim"
        return [mixer.num_heads * getattr(mixer, size) / hidden for mixer in mixers]
    states = sum(n for b, n in blocks.items() if b.mixer and any(b.mixer.state_elements))
    full = sum(n for b, n in blocks.items() if type(b.mixer) is attention)
    return [full / (full + states)] if states and full else []
