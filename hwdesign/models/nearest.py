"""What to say of a config that no reader takes: the reader that comes nearest by its keys, and the
shipped config to begin from in blocks. Source: the keys that each reader reads.
"""

import difflib
import functools
import heapq
import json
import re
from pathlib import Path

from hwdesign._check import shown
from hwdesign.models.architectures import ALIASES, READERS
from hwdesign.models.reading import NESTED

MOST_APART = 6  # keys in which a config may differ and still be near
MOST_TOLD = 4
FEWEST = 5  # keys that a reader must take to come near
LONGEST_KEY = 60  # [character]
MOST_VALUES = 4000  # entries of a config that is tried
MOST_LAYERS = 300
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
ALIKE = 0.75  # from which likeness of a name counts before the keys
# Keys that no block follows from.
OTHERS = re.compile("(quantization|compression)(_config)?|architectures|.*dtype")
# What stands in a key -> the reader whose shipped config has blocks of that sort.
SORTS = {
    "kv_lora": "deepseek_v3",
    "mamba_num": "nemotron_h",
    "ssm_state": "nemotron_h",
    "expert": "qwen3_moe",
    "": "llama",
}


def nearest(kind, values, attempt):
    """(model type, keys apart) of the reader that takes most of a config, None where each asks for
    other keys or more than `MOST_APART` stand in the way of it.

    `attempt(kind, values)` gives how many keys a reader took, or raises a `refusal`.
    """
    waiting = [(0, index, known, []) for index, known in enumerate(READERS)]  # is a heap
    found = []
    while waiting and (not found or waiting[0][0] <= found[0][0][0]):
        _, index, known, apart = heapq.heappop(waiting)
        left = {key: value for key, value in values.items() if key not in apart}
        try:
            taken = attempt(known, left)
        except ValueError as error:
            tops = (re.split(r"[.\[]", key)[0] for key in getattr(error, "keys", ()))
            keys = [key for key in dict.fromkeys(tops) if key in left and len(key) <= LONGEST_KEY]
            if keys and len(apart) + len(keys) <= MOST_APART:
                apart = [*apart, *keys]
                heapq.heappush(waiting, (len(apart), index, known, apart))
        else:
            if taken < FEWEST:
                continue
            likeness = difflib.SequenceMatcher(None, str(kind)[:60], known).ratio()
            same = likeness if likeness > ALIKE else 0
            order = (len(apart), -same, -taken, known not in SORTS.values(), -likeness)
            found.append((order, known, apart))
    return min(found)[1:] if found else None


def _large(values):
    """Whether a config would take long to try."""
    waiting, seen = [values], 0
    while waiting:
        held = waiting.pop()
        seen += len(held)
        if seen > MOST_VALUES:
            return True
        inside = held.values() if isinstance(held, dict) else held
        waiting += [value for value in inside if isinstance(value, dict | list)]
    layers = [values.get(key) for key in LAYERS]
    return any(type(count) is int and count > MOST_LAYERS for count in layers)


@functools.cache
def _shipped():
    """(model type, its reader) of each shipped config, by the name of the config."""
    found = {}
    for file in Path(__file__).with_name("configs").iterdir():
        if file.suffix == ".json":
            values = json.loads(file.read_text(encoding="utf-8"))
            inside = next((values[key] for key in NESTED if key in values), values)
            kind = inside.get("model_type") or values.get("model_type")
            found[file.stem] = kind, ALIASES.get(kind, kind)
    return dict(sorted(found.items(), reverse=True))


def way_on(kind, values):
    """The command that writes blocks to begin from: those of a shipped config of this reader, of
    one with the same code, or else of one with the same sort of keys.

    >>> way_on("deepseek_v3", {})
    'describe it in blocks: hwdesign show deepseek-v3 --format blocks'
    """
    keys = " ".join(map(str, values))
    sort = next(known for word, known in SORTS.items() if word in keys)
    code = READERS.get(kind, READERS[sort])
    fits = (
        lambda own, known: own == kind,
        lambda own, known: known == kind,
        lambda own, known: READERS.get(known) is code,
        lambda own, known: known == sort,
    )
    for fit in fits:
        for name, kinds in _shipped().items():
            if fit(*kinds):
                return f"describe it in blocks: hwdesign show {name} --format blocks"
    return "describe it in blocks: hwdesign show --help"


def unknown(kind, values, attempt):
    """What to say of an unknown model type: types that are spelt alike as a list, and in words the
    nearest reader and the way on. A config of many layers or entries is not tried.
    """
    known = sorted({*READERS, *ALIASES})
    alike = difflib.get_close_matches(str(kind)[:60], known, 4, 0.4) or ["llama", "qwen3"]
    values = {key: value for key, value in values.items() if not OTHERS.fullmatch(key)}
    found = None if _large(values) else nearest(kind, values, attempt)
    if not found:
        return alike, way_on(alike[0], values)
    name, apart = found
    told = way_on(name, values)
    if not apart:
        return alike, f"its keys read as {name}; {told}"
    keys = ", ".join(key if key.isidentifier() else shown(key) for key in apart[:MOST_TOLD])
    more = f" and {len(apart) - MOST_TOLD} more" if len(apart) > MOST_TOLD else ""
    return alike, f"reads as {name} apart from: {keys}{more}; {told}"
