"""The families that designs are made in, and the bands of trained models that bound them: those of
`hwdesign.advice.bands`. A design outside a band may be good; nobody has shown it.
"""

import functools
from typing import NamedTuple

from hwdesign._check import choice
from hwdesign.advice.bands import RATIOS, ratio_band


class Family(NamedTuple):
    """What a family has, and the kind of trained models whose bands it takes.

    >>> FAMILIES["deepseek_v3"].latent
    True
    """

    kind: str  # as in `hwdesign.advice.bands.FAMILIES`
    experts: bool = False
    latent: bool = False
    linear: bool = False


FAMILIES = {
    "llama": Family("dense"),
    "qwen3_moe": Family("moe_gqa", experts=True),
    "deepseek_v3": Family("moe_mla", experts=True, latent=True),
    "qwen3_next": Family("hybrid", experts=True, linear=True),
}


@functools.cache
def band(ratio, family):
    """(least, most) of a ratio among trained models that are built like a family; None where these
    do not have it.

    >>> [round(end) for end in band("aspect", "qwen3_moe")]
    [43, 128]
    """
    choice("ratio", ratio, RATIOS)
    try:
        found = ratio_band(ratio, choice("family", family, FAMILIES).kind)
    except ValueError:
        return None
    return found.least, found.most


def inside(value, ends):
    """Whether a ratio, or each of an array of them, lies in a band, its ends included; a ratio
    without a band lies in it.

    >>> inside(2.0, (2.0, 3.0)), inside(2.0, None)
    (True, True)
    """
    if ends is None:
        return True
    return (value >= ends[0]) & (value <= ends[1])
