"""Will a width or a head count shard? Each tier is reported apart, with the remainder and the next
good width.

Three tiers of a width under `ways` of tensor parallelism, strictest last: *format* (no scale
block is cut), *kernel* (rows in pieces of 16 bytes, which are 8 elements in BF16, 16 in FP8, 32
in NVFP4; left out where the scale block is that large already), *tile* (128 is the floor, 256 and
512 fill the larger cooperative tiles). A head count shards *clean*, *replicated*, *uneven* or not
at all.

A tier is what makes a kernel fast; whether an engine refuses a shape is another question, which
`hwdesign.advice.breaks` answers engine by engine: rows of odd length in BF16 run, slowly, and many
engines pad experts.

Source: NVIDIA CUTLASS 7107b05, media/docs/cpp/blackwell_functionality.md (16 bytes); Qwen3 issue
578 (29568 and groups of 128); vLLM issue 17569 (FP8 blocks under TP8), pull 31099 (multiples of 32
in NVFP4), issue 11797 (28 heads); transformers issue 48307 (4 key-value heads under TP8). The tiles
are the post's guideline 2.
"""

from dataclasses import dataclass

from hwdesign._check import choice, count, whole
from hwdesign.catalogue.precision import precision as as_precision
from hwdesign.formulas.tiling import pad

TILES = (128, 256, 512)
MOST_WAYS = 1024  # that are tried one by one
PIECE = 16  # multiple at which the copy engines of a GPU want rows to begin [byte]


def _set_whole(target, *names):
    """Fields of a frozen dataclass, checked and turned into ints."""
    for name, value in zip(
        names, whole(**{name: getattr(target, name) for name in names}), strict=True
    ):
        object.__setattr__(target, name, value)


@dataclass(frozen=True, kw_only=True)
class Tier:
    """Verdict of one tier on one dimension.

    `ok` says whether the local size is a multiple of `multiple`; `remainder` is what is left over,
    `next_width` the next whole width that passes for this number of ways, `extra` the price in
    width as a share.

    Examples
    --------
    >>> Tier(name="tile 128", width=29568, ways=2, multiple=128).remainder
    64.0
    """

    name: str
    width: int  # [element]
    ways: int
    multiple: int  # [element]

    def __post_init__(self):
        _set_whole(self, "width", "ways", "multiple")

    @property
    def local(self):
        """Share of one GPU [element]; not whole where the ways do not divide the width."""
        return self.width / self.ways

    @property
    def remainder(self):
        """What the local size leaves over a multiple [element]."""
        return self.local % self.multiple

    @property
    def ok(self):
        """Whether the local size is a multiple."""
        return self.remainder == 0

    @property
    def next_width(self):
        """The next width that passes [element], the width itself if it does."""
        return int(pad(self.width, self.multiple * self.ways))

    @property
    def extra(self):
        """Price of that width, as a share of this one [dimensionless]."""
        return self.next_width / self.width - 1

    def extra_parameters(self, per_column):
        """Price in parameters [element], for a dimension whose every column carries `per_column` of
        them.
        """
        return (self.next_width - self.width) * per_column

    def __str__(self):
        verdict = (
            "ok"
            if self.ok
            else f"remainder {self.remainder:g}, next width {self.next_width} ({self.extra:+.2%})"
        )
        return f"{self.name}: {self.width} / {self.ways} = {self.local:g}: {verdict}"


def width_tiers(width, ways, precision="bf16"):
    """Tiers of a width under tensor parallelism.

    Parameters
    ----------
    width : int
        Dimension that is split [element].
    ways : int
        Tensor-parallel ways.
    precision : str or Precision
        Format of the weights; its scale block and its kernels set the first tiers.

    Returns
    -------
    dict of str to Tier
        "format" and "kernel" where the format has such a rule of its own, then "tile 128", "tile
        256", "tile 512" [element].

    Raises
    ------
    ValueError
        If a number is below 1 or the format is unknown.

    Notes
    -----
    The scale blocks of NVFP4, MXFP4 and grouped INT4 lie along K, so a split of N does not cut
    them; those of FP8 128 x 128 are cut either way. A feed-forward width is N on the way up and K
    on the way down, so both rules hold for it. Source: the issues named at the head of this module.

    Examples
    --------
    >>> {name: tier.ok for name, tier in width_tiers(1856, 4, "nvfp4").items()}
    {'format': True, 'kernel': False, 'tile 128': False, 'tile 256': False, 'tile 512': False}
    """
    width, ways = whole(width=width, ways=ways)
    form = as_precision(precision)
    rules = {"format": form.block[-1]} if form.block else {}
    piece = PIECE * 8 // form.bits
    if piece > rules.get("format", 1):
        rules["kernel"] = piece
    rules |= {f"tile {t}": t for t in TILES}
    return {name: Tier(name=name, width=width, ways=ways, multiple=m) for name, m in rules.items()}


def good_ways(width, precision="bf16", *, tier="tile 128", most=8):
    """Numbers of tensor-parallel ways up to `most` under which a width passes a tier.

    Parameters
    ----------
    width : int
        Dimension that is split [element].
    precision : str or Precision
        Format of the weights.
    tier : str
        Name of the tier, as in `width_tiers`.
    most : int
        Largest number of ways to try, at most 1024.

    Returns
    -------
    tuple of int
        Ways.

    Raises
    ------
    ValueError
        If the format has no such tier.

    Notes
    -----
    Source: Qwen3 issue 578 for the first example.

    Examples
    --------
    >>> good_ways(29568), good_ways(29696)
    ((1, 3, 7), (1, 2, 4, 8))
    """
    most = count("most", most, MOST_WAYS)
    tiers = [width_tiers(width, ways, precision) for ways in range(1, most + 1)]
    choice("tier", tier, tuple(tiers[0]))
    return tuple(ways for ways, found in enumerate(tiers, 1) if found[tier].ok)


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """The widths nearest to a wish whose shards are multiples of `multiple` under `ways`.

    `lower` is None where the wish lies below the smallest such width.

    Examples
    --------
    >>> Neighbours(wish=11000, ways=8, multiple=256).lower
    10240
    """

    wish: int  # [element]
    ways: int
    multiple: int  # [element]

    def __post_init__(self):
        _set_whole(self, "wish", "ways", "multiple")

    @property
    def step(self):
        """Distance from one such width to the next [element]."""
        return self.multiple * self.ways

    @property
    def lower(self):
        """Largest such width that is not above the wish [element]."""
        return self.wish // self.step * self.step or None

    @property
    def upper(self):
        """Smallest such width that is not below the wish [element]."""
        return int(pad(self.wish, self.step))

    @property
    def prices(self):
        """What `lower` and `upper` add to the width, as shares of the wish [dimensionless]; the
        first may be None.
        """
        return tuple(
            None if width is None else width / self.wish - 1 for width in (self.lower, self.upper)
        )

    @property
    def nearest(self):
        """The one nearer to the wish [element], the lower of two equally near."""
        return min(
            (w for w in (self.lower, self.upper) if w),
            key=lambda width: (abs(width - self.wish), width),
        )

    def __str__(self):
        told = [
            f"{w} ({p:+.2%})"
            for w, p in zip((self.lower, self.upper), self.prices, strict=True)
            if w
        ]
        return f"multiples of {self.multiple} x {self.ways} = {self.step}: " + " or ".join(
            dict.fromkeys(told)
        )


def widths_near(wish, ways, precision="bf16"):
    """The nearest widths, below and above a wish, whose shards pass each tier.

    Parameters
    ----------
    wish : int
        Dimension that would be liked [element].
    ways : int
        Tensor-parallel ways that will split it.
    precision : str or Precision
        Format of the weights; its scale block and its kernels set the first tiers.

    Returns
    -------
    dict of str to Neighbours
        Tiers as in `width_tiers`, the strictest last; widths in [element].

    Raises
    ------
    ValueError
        If a number is below 1 or the format is unknown.

    Notes
    -----
    Source: the rules named at the head of this module.

    Examples
    --------
    >>> for tier, found in widths_near(11000, 8, "nvfp4").items():
    ...     print(f"{tier:9}{found}")
    format   multiples of 16 x 8 = 128: 10880 (-1.09%) or 11008 (+0.07%)
    kernel   multiples of 32 x 8 = 256: 10752 (-2.25%) or 11008 (+0.07%)
    tile 128 multiples of 128 x 8 = 1024: 10240 (-6.91%) or 11264 (+2.40%)
    tile 256 multiples of 256 x 8 = 2048: 10240 (-6.91%) or 12288 (+11.71%)
    tile 512 multiples of 512 x 8 = 4096: 8192 (-25.53%) or 12288 (+11.71%)
    """
    wish, ways = whole(wish=wish, ways=ways)
    tiers = width_tiers(wish, ways, precision)
    return {
        name: Neighbours(wish=wish, ways=ways, multiple=tier.multiple)
        for name, tier in tiers.items()
    }


def best_tier(width, ways, precision="bf16"):
    """Name of the strictest tier that a width passes under tensor parallelism.

    Parameters
    ----------
    width : int
        Dimension that is split [element].
    ways : int
        Tensor-parallel ways.
    precision : str or Precision
        Format of the weights.

    Returns
    -------
    str
        A tier of `width_tiers`; "whole" where the ways divide the width and no more, "cut" where a
        scale block would be cut, "uneven" where the ways do not divide the width.

    Raises
    ------
    ValueError
        If a number is below 1 or the format is unknown.

    Notes
    -----
    Source: the rules named at the head of this module.

    Examples
    --------
    >>> [best_tier(1856, ways, "nvfp4") for ways in (1, 4, 8, 3)], best_tier(2880, 4)
    (['kernel', 'format', 'cut', 'uneven'], 'kernel')
    """
    tiers = width_tiers(width, ways, precision)
    if width % ways:
        return "uneven"
    passed = [name for name, tier in tiers.items() if tier.ok]
    return passed[-1] if passed else "cut" if "format" in tiers else "whole"
