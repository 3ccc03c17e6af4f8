"""A model written as a file of blocks, which `hwdesign.models.blocks_file` reads: parts that stand
in several blocks get names, and patterns that repeat are folded. Source: the fields of `Model`.
"""

import json
from collections import Counter
from dataclasses import fields

from hwdesign._check import shown
from hwdesign.models.blocks import Block
from hwdesign.models.blocks_file import VERSION, kind_name, kinds
from hwdesign.models.model import Model, need_model
from hwdesign.models.parts import FeedForward, Mixer
from hwdesign.models.reading import BLOCKS_KEY
from hwdesign.safe import visible

LINE = 100  # [character]
LONGEST_PERIOD = 64  # of a pattern that is folded [layer]


def blocks_of(model):
    """A model as plain data that `hwdesign.models.blocks_file.model_of` reads back.

    Parameters
    ----------
    model : Model
        Of the package's own kinds of blocks.

    Returns
    -------
    dict
        Fields that differ from their defaults, parts with names, and blocks; sizes in [element].

    Raises
    ------
    ValueError
        If a block is of a kind that the package does not hold.

    Notes
    -----
    Source: the fields of `Model` and of its blocks.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> blocks_of(config.load("gpt2"))["blocks"][0]["times"]
    12
    """
    need_model(model)
    different = list(model.block_counts)
    number = {block: index for index, block in enumerate(different)}
    pattern = folded([number[block] for block in model.blocks])
    names = _names(different, pattern)
    parts = {name: _plain(_base(part), part, names, part) for part, name in names.items()}
    found = {BLOCKS_KEY: VERSION, **_fields(model, names)}
    found["name"] = visible(model.name)
    blocks = _entries(pattern, different, names)
    return found | ({"parts": parts} if parts else {}) | {"blocks": blocks}


def blocks_text(model):
    """A model as the text of a file of blocks.

    Parameters
    ----------
    model : Model
        Of the package's own kinds of blocks.

    Returns
    -------
    str
        JSON in lines of up to 100 characters where names allow it; sizes in [element].

    Notes
    -----
    Source: `blocks_of`.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> print(blocks_text(config.load("gpt2")).splitlines()[1])
     "hwdesign_blocks": 1, "name": "gpt2", "hidden_size": 768, "vocab_size": 50257,
    """
    return "\n".join(_laid(blocks_of(model))) + "\n"


def folded(items):
    """A sequence as a list of pairs: how often, and an item or such a list.

    >>> folded([0, 1, 1, 2, 1, 1, 2])
    [(1, 0), (2, [(2, 1), (1, 2)])]
    """
    size, periods = len(items), range(1, min(LONGEST_PERIOD, len(items) // 2) + 1)
    changes = [0]  # of one item to the next, before each place
    for before, after in zip(items, items[1:], strict=False):
        changes.append(changes[-1] + (before != after))
    same = dict.fromkeys(periods, 0)  # items from here on that equal those a period later
    best = [None] * size + [(0, 0, 0)]  # (entries to write from here on, period, times)
    for place in range(size - 1, -1, -1):
        best[place] = best[place + 1][0] + 1, 1, 1
        for period in periods:
            equal = place + period < size and items[place] == items[place + period]
            same[period] = same[period] + 1 if equal else 0
            if times := same[period] // period:
                inside = changes[place + period - 1] - changes[place] + 1 + (period > 1)
                cost = inside + best[place + period * (times + 1)][0]
                best[place] = min(best[place], (cost, period, times + 1))
    found, place = [], 0
    while place < size:
        _, period, times = best[place]
        inside = items[place : place + period]
        found.append((times, inside[0] if period == 1 else folded(inside)))
        place += period * times
    return found


def _leaves(pattern):
    """Items of a folded pattern, each as often as it is written."""
    for _, inside in pattern:
        yield from _leaves(inside) if isinstance(inside, list) else [inside]


def _names(different, pattern):
    """Names of what is written more than once, as a dict: mixers and feed-forward parts of several
    blocks, then blocks that stand at several places of the pattern.
    """
    found, taken = {}, Counter()

    def add(part, name):
        taken[name] += 1
        found[part] = name if taken[name] == 1 else f"{name}_{taken[name]}"

    for part, times in Counter(part for block in different for part in block.parts).items():
        if times > 1:
            add(part, kind_name(type(part)))
    for index, times in Counter(_leaves(pattern)).items():
        if times > 1:
            kinds_inside = [kind_name(type(part)) for part in different[index].parts]
            add(different[index], "_".join([*kinds_inside, "block"]))
    return found


def _base(part):
    """What a place takes where a part of this kind stands."""
    return next(base for base in (Mixer, FeedForward, Block) if isinstance(part, base))


def _entries(pattern, different, names):
    """A folded pattern as a file writes it."""
    found = []
    for times, inside in pattern:
        if isinstance(inside, list):
            entry = {"blocks": _entries(inside, different, names)}
        else:
            entry = _plain(Block, different[inside], names)
        if times > 1:
            entry = {"blocks": [entry]} if isinstance(entry, str) else entry
            entry = {"times": times, **entry}
        found.append(entry)
    return found


def _plain(accepted, value, names, inside=None):
    """A value of a field of some type as plain data; parts by their names but for `inside`."""
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, tuple):
        return [_plain(type(entry), entry, names) for entry in value]
    if value in names and value is not inside:
        return names[value]
    known = kinds(accepted)
    if type(value) not in known.values():
        raise ValueError(
            f"model must have blocks of the kinds of a file of blocks, got {shown(value)}"
        )
    kind = {"kind": kind_name(type(value))} if len(known) > 1 else {}
    return kind | _fields(value, names)


def _fields(target, names):
    """Fields of a dataclass that differ from their defaults, but for the blocks of a model."""
    found = {}
    for field in fields(target):
        value = getattr(target, field.name)
        if value == field.default or (isinstance(target, Model) and field.name == "blocks"):
            continue
        if isinstance(target, Model) and field.name == "formats":
            found[field.name] = {part: dict(shares) for part, shares in value}
        else:
            found[field.name] = _plain(field.type, value, names)
    return found


def _laid(value, before="", room=""):
    """JSON in lines after what stands before it: what fits in one line, in one."""
    flat = before + json.dumps(value)
    if (len(flat) < LINE and before) or not value or not isinstance(value, dict | list):
        return [flat]
    deeper, lines, packed = f"{room} ", [], False
    pairs = value.items() if isinstance(value, dict) else [(None, entry) for entry in value]
    for key, entry in pairs:
        head = "" if key is None else f"{json.dumps(key)}: "
        made = _laid(entry, f"{deeper}{head}", deeper)
        plain = not isinstance(entry, dict | list)
        fits = packed and plain and len(lines[-1]) + len(made[0]) < LINE
        if fits:  # beside the plain values before it
            lines[-1] += f" {made[0].lstrip()},"
        else:
            lines += [*made[:-1], f"{made[-1]},"]
        packed = plain
    first, last = "{}" if isinstance(value, dict) else "[]"
    return [before + first, *lines[:-1], lines[-1][:-1], room + last]
