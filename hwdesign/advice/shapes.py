"""Siblings of a model that keep one guideline better: other widths, fewer and wider experts, fewer
layers, a regular pattern.
"""

import csv
import functools
import itertools
from dataclasses import replace
from importlib import resources

import numpy as np

from hwdesign._check import positive, whole
from hwdesign.formulas.tiling import pad
from hwdesign.models import config  # noqa: F401  (examples below load models)

CHOICES = 10  # kinds of blocks for which both multiples are tried
MIXED = 4  # experts for a token from which on half as many are still a mixture
LARGE = 7e9  # parameters from which on models show how wide is wide [element]
ROUND = 256  # of the widths that are made equal [element]


def mapped(model, change, **values):
    """A model whose blocks are changed one by one.

    Parameters
    ----------
    model : Model
        Where to start.
    change : callable
        From a block to a block.
    **values
        Other fields of the model, sizes in [element].

    Returns
    -------
    Model
        The sibling.

    Examples
    --------
    >>> mapped(config.load("gpt2"), lambda block: block, vocab_size=50304).vocab_size
    50304
    """
    new = {block: change(block) for block in model.block_counts}
    return replace(model, blocks=tuple(new[block] for block in model.blocks), **values)


def has_experts(model):
    """Whether a token chooses its experts in some layer.

    >>> has_experts(config.load("deepseek-r1")), has_experts(config.load("gpt2"))
    (True, False)
    """
    return any(block.routed for block in model.block_counts)


def first_ffn(model, routed):
    """The first feed-forward part of a model that has experts, or the first that has none.

    >>> first_ffn(config.load("deepseek-r1"), routed=True).num_experts
    256
    """
    return next(b.ffn for b in model.blocks if b.ffn and b.ffn.routed == routed)


def merged_experts(model):
    """Half as many experts of twice the width, of which a token uses half as many: the same
    parameters, total and active.

    Parameters
    ----------
    model : Model
        With experts, or without.

    Returns
    -------
    Model or None
        None where twice the width would be no nearer to the hidden size, or a number is odd; widths
        in [element].

    Notes
    -----
    Source: guideline 1 of the post, on experts.

    Examples
    --------
    >>> r1 = config.load("deepseek-r1")
    >>> merged_experts(r1).blocks[-1].ffn.width
    4096
    """
    experts = [block.ffn for block in model.block_counts if block.routed]
    if not experts or any(
        e.num_experts % 2 or e.top_k % 2 or e.top_k < MIXED or e.width * 2**0.5 >= model.hidden_size
        for e in experts
    ):
        return None

    def change(block):
        if not block.routed:
            return block
        ffn = block.ffn
        return replace(
            block,
            ffn=replace(
                ffn, num_experts=ffn.num_experts // 2, top_k=ffn.top_k // 2, width=2 * ffn.width
            ),
        )

    return mapped(model, change)


def squarer(model):
    """A dense model with half as much feed-forward width on twice the hidden size, or the reverse,
    whichever is nearer to square.

    Parameters
    ----------
    model : Model
        All of whose feed-forward parts are dense.

    Returns
    -------
    Model or None
        With about the same parameters in its blocks: the attention's share is taken out of the
        feed-forward width. None where the widest feed-forward part is within four times of the
        hidden size already, or there are experts; widths in [element].

    Notes
    -----
    Source: guideline 1 of the post. Four times the hidden size is the usual shape.

    Examples
    --------
    >>> from hwdesign.models.blocks import Block, DenseFFN, SelfAttention
    >>> from hwdesign.models.model import Model
    >>> block = Block(
    ...     mixer=SelfAttention(num_heads=8, num_kv_heads=8, head_dim=128),
    ...     ffn=DenseFFN(width=65536),
    ... )
    >>> new = squarer(Model(name="flat", hidden_size=1024, vocab_size=32000, blocks=(block,)))
    >>> new.hidden_size, new.blocks[0].ffn.width
    (2048, 32128)
    """
    dense = [block.ffn for block in model.block_counts if block.ffn]
    if not dense or any(block.routed for block in model.block_counts):
        return None
    ratio = max(f.width for f in dense) / model.hidden_size
    if 0.25 <= ratio <= 4:
        return None
    hidden = int(pad(round(model.hidden_size * (2 if ratio > 4 else 0.5)), 128))

    def change(block):
        if not block.ffn:
            return block
        mixer, matrices = block.mixer, block.ffn.gate + 1
        spent = 0
        if mixer:
            before, after = (
                sum(w.elements for w in mixer.weights(h) if w.matmul)
                for h in (model.hidden_size, hidden)
            )
            spent = after - before
        width = (block.ffn.width * model.hidden_size - spent / matrices) / hidden
        return replace(block, ffn=replace(block.ffn, width=max(128, round(width / 128) * 128)))

    return mapped(model, change, hidden_size=hidden)


@functools.cache
def known_models():
    """All rows of bands.csv: trained models with their sizes, each with its source and the day on
    which its config was read.

    `scripts/trained_models.py` counts them from the configs. Sizes are in [element], counts are
    numbers, and what a model lacks is None. `layers` are those of the config, `depth` counts as
    `depth` does.

    Examples
    --------
    >>> row = next(row for row in known_models() if row["model"] == "llama-3.1-70b")
    >>> row["hidden_size"], row["depth"], row["family"]
    (8192, 80, 'dense')
    """
    path = resources.files("hwdesign.advice").joinpath("bands.csv")
    found = []
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        for name, value in row.items():
            if name not in ("model", "family", "verdicts", "book", "source", "read"):
                row[name] = int(value) if value else None
        found.append(row)
    return tuple(found)


@functools.cache
def trained_models():
    """The models that verdicts take their bands from: those of `known_models` that say so.

    A mark in a table and no folder, so that a config which is added moves no verdict.

    Examples
    --------
    >>> trained_models()[0]["model"], trained_models()[0]["experts"]
    ('deepseek-r1', 256)
    """
    return tuple(row for row in known_models() if row["verdicts"])


@functools.cache
def compared_models():
    """Those of `trained_models` that the chapters compare: their configs come with the package.

    >>> len(compared_models()) < len(trained_models())
    True
    """
    return tuple(row for row in trained_models() if row["book"])


@functools.cache
def aspect_band(experts=False):
    """Smallest and largest hidden size over layers of trained models from 7 billion parameters on
    [element a layer]: the dense ones of the book, which chapter 3 draws, or mixtures of experts.

    >>> [round(x) for x in aspect_band()], [round(x) for x in aspect_band(experts=True)]
    ([87, 140], [43, 128])
    """
    aspects = [
        row["hidden_size"] / row["depth"]
        for row in trained_models()
        if bool(row["experts"]) == experts and row["parameters"] > LARGE
    ]
    return min(aspects), max(aspects)


def depth(model):
    """Layers of a model as others count them: a mixer and a feed-forward part that stand apart are
    one.

    Parameters
    ----------
    model : Model
        Any.

    Returns
    -------
    int
        The number of mixers or that of feed-forward parts, whichever is larger [layer].

    Examples
    --------
    >>> nano = config.load("nemotron-3-nano-30b-a3b")
    >>> len(nano.blocks), depth(nano)
    (52, 29)
    """
    return max(
        sum(block.mixer is not None for block in model.blocks),
        sum(block.ffn is not None for block in model.blocks),
    )


def wider(model, aspect, *, ways=1):
    """A sibling of about the same parameters whose hidden size over layers reaches `aspect`.

    Parameters
    ----------
    model : Model
        Where to start.
    aspect : float
        Hidden size over layers to reach [element a layer].
    ways : int
        What query heads must stay divisible by.

    Returns
    -------
    Model
        Fewer layers, of each kind in proportion; widths and query heads grow with the root of what
        the layers lose. Key-value heads stay. Sizes in [element].

    Raises
    ------
    ValueError
        If `aspect` is not positive or `ways` no whole number >= 1.

    Notes
    -----
    Source: P = L (4 H^2 + 3 H H'), see `hwdesign.models.model.same_parameters`, which keeps the
    groups of heads instead.

    Examples
    --------
    >>> new = wider(config.load("qwen3-235b-a22b"), 87)
    >>> len(new.blocks), new.hidden_size, round(new.parameters / 1e9)
    (59, 5248, 237)
    """
    positive(aspect=aspect)
    (ways,) = whole(ways=ways)
    layers = len(model.blocks)
    target = max(1, int(layers * min(1.0, model.hidden_size / depth(model) / aspect) ** (2 / 3)))
    while True:
        blocks = _thinned(model, target)
        factor = (layers / len(blocks)) ** 0.5
        hidden = max(128, int(np.ceil(model.hidden_size * factor / 128)) * 128)
        if (
            hidden / depth(replace(model, blocks=blocks)) >= aspect
            or len(blocks) <= len(model.block_counts)
            or target == 1
        ):
            break
        target -= 1

    def change(block):
        mixer = block.mixer and block.mixer.scaled(factor, ways)
        ffn = block.ffn and block.ffn.scaled(factor, ways)
        return replace(block, mixer=mixer, ffn=ffn)

    return mapped(replace(model, blocks=blocks), change, hidden_size=hidden)


def _thinned(model, layers):
    """About so many blocks, of each kind in proportion and at least one, spread as before."""
    kept = []
    for kind, count in model.block_counts.items():
        places = [i for i, block in enumerate(model.blocks) if block == kind]
        wanted = max(1, round(count * layers / len(model.blocks)))
        kept += [places[int((j + 0.5) * count / wanted)] for j in range(wanted)]
    return tuple(model.blocks[i] for i in sorted(kept))


def regular(model, stages):
    """A sibling whose layers fall into equal stages: of each kind of block a multiple of `stages`,
    dealt evenly.

    Parameters
    ----------
    model : Model
        Where to start.
    stages : int
        Pipeline stages.

    Returns
    -------
    Model
        Each stage holds the same blocks in the same order; no kind vanishes. Sizes in [element]
        stay.

    Raises
    ------
    ValueError
        If `stages` is no whole number >= 1.

    Notes
    -----
    Of the multiples around each count those are taken that keep the sum of the parameters nearest;
    kinds that weigh least take the nearer multiple. Caches are not looked at. Source: guideline 6
    of the post.

    Examples
    --------
    >>> new = regular(config.load("deepseek-r1"), 4)
    >>> len(new.blocks), [b.ffn.kind for b in new.blocks[:2]]
    (60, ['dense', 'MoE 8 of 256'])
    """
    (stages,) = whole(stages=stages)
    size = {
        block: sum(w.stored * w.elements for w in block.weights(model.hidden_size))
        for block in model.block_counts
    }
    kinds = sorted(size, key=lambda block: -size[block] * model.block_counts[block])
    each = [
        _multiples(model.block_counts[block], stages)[: 2 if place < CHOICES else 1]
        for place, block in enumerate(kinds)
    ]

    def change(counts):
        more = [n - model.block_counts[block] for block, n in zip(kinds, counts, strict=True)]
        return (
            abs(sum(n * size[block] for block, n in zip(kinds, more, strict=True))),
            sum(map(abs, more)),
            counts,
        )

    counts = dict(zip(kinds, min(itertools.product(*each), key=change), strict=True))
    order = {block: model.blocks.index(block) for block in counts}
    places = [
        (j * stages / n, order[block], block)
        for block, n in counts.items()
        for j in range(n // stages)
    ]
    stage = tuple(block for *_, block in sorted(places, key=lambda place: place[:2]))
    return replace(model, blocks=stage * stages)


def _multiples(count, stages):
    """The two multiples around a count, the nearer first, none of them 0."""
    near = {max(1, count // stages) * stages, -(-count // stages) * stages}
    return sorted(near, key=lambda n: (abs(n - count), n))


def alike(model):
    """A sibling whose layers of one kind are equal: the same mixer in all, and one width.

    Parameters
    ----------
    model : Model
        Where to start.

    Returns
    -------
    Model
        Layers with the same mixer, or all without one, that have dense feed-forward parts get the
        mean of their widths, a multiple of 256; other layers stay. Sizes in [element].

    Notes
    -----
    A search that gives each layer a width of its own leaves kinds that no number of stages divides.
    Source: chapter 6, which repairs Nemotron-Super-49B so.

    Examples
    --------
    >>> new = alike(config.load("llama-3.3-nemotron-super-49b"))
    >>> [(n, block.kind, block.ffn.width) for block, n in new.block_counts.items()]
    [(49, 'GQA + dense', 28416), (31, 'dense', 8192)]
    """

    def key(block):
        dense = block.ffn is not None and not block.routed
        return (block.mixer, replace(block.ffn, width=ROUND)) if dense else (block, None)

    widths = {}
    for block in model.blocks:
        if key(block)[1]:
            widths.setdefault(key(block), []).append(block.ffn.width)

    def change(block):
        found = widths.get(key(block))
        if not found or len(set(found)) == 1:
            return block
        width = max(1, round(np.mean(found) / ROUND)) * ROUND
        return replace(block, ffn=replace(block.ffn, width=width))

    return mapped(model, change)


def stage_blocks(model, split):
    """How often each kind of block stands in each stage.

    Parameters
    ----------
    model : Model
        What is split.
    split : sequence of int
        Layers of each stage [layer].

    Returns
    -------
    list of tuple of int
        Counts of a stage, in the order of `Model.block_counts`.

    Examples
    --------
    >>> stage_blocks(config.load("deepseek-r1"), (16, 15, 15, 15))
    [(3, 13), (0, 15), (0, 15), (0, 15)]
    """
    ends = np.cumsum(split)
    parts = [model.blocks[end - layers : end] for end, layers in zip(ends, split, strict=True)]
    return [tuple(part.count(block) for block in model.block_counts) for part in parts]
