"""A model as a file of blocks: JSON that says what each layer is made of, for models that no reader
knows or that do not exist yet. Source: `Model` and the kinds of blocks of this package.

What may stand in a file follows from the fields of `Model`, `Block` and the kinds of mixers and
feed-forward parts: a new kind or field is in the format by itself. `blocks_text` writes such files.
"""

import difflib
import functools
import itertools
import re
import typing
from dataclasses import MISSING, fields
from types import NoneType

from hwdesign._check import choice, shown
from hwdesign.models import compressed, factored, jet, linear, rarer_blocks, shared_cache
from hwdesign.models.blocks import Block, MoE, SelfAttention
from hwdesign.models.checkpoint import prediction_words
from hwdesign.models.mamba import Mamba2
from hwdesign.models.model import Model
from hwdesign.models.parts import PARTS, Part, Weight
from hwdesign.models.reading import BLOCKS_KEY, LIMIT, LIMITS, LONGEST, prediction_parameters

VERSION = 1
OTHERS = ("parts", "prediction_layers")  # keys that are no fields of a Model
MOST_BLOCKS = LIMITS["num_hidden_layers"]
MOST_NORMS = 64  # of a block
LONGEST_TEXT = 300  # [character]
TYPED = 200  # keys that are looked at for a misspelt one
LARGEST = {"vocab_size": LIMITS["vocab_size"], "max_positions": LONGEST, "rows": 10**11}
PLAIN = {int: "a whole number", bool: "true or false", str: "text in one line"}
# Whose kinds no module above imports.
MODULES = (compressed, factored, jet, linear, rarer_blocks, shared_cache)
HOME = "hwdesign.models."
# What the classes leave to those who read: field, whether it fits, and what would.
FIT = {
    Block: [("norms", lambda b: b.norms <= MOST_NORMS, f"at most {MOST_NORMS}")],
    SelfAttention: [
        ("num_kv_heads", lambda m: m.num_heads % m.num_kv_heads == 0, "a divisor of num_heads")
    ],
    MoE: [("top_k", lambda m: m.top_k <= m.choices, "at most the number of experts")],
    Mamba2: [("groups", lambda m: m.num_heads % m.groups == 0, "a divisor of num_heads")],
    Weight: [
        ("part", lambda w: w.part in PARTS, f"one of {', '.join(PARTS)}"),
        *(
            (name, lambda w, name=name: getattr(w, name) >= 1, "at least 1")
            for name in ("n", "k", "stored")
        ),
    ],
}


def kind_name(cls):
    """What a file calls a class.

    >>> from hwdesign.models.blocks import DenseFFN, MoE, SelfAttention
    >>> kind_name(SelfAttention), kind_name(DenseFFN), kind_name(MoE)
    ('self_attention', 'dense_ffn', 'moe')
    """
    return re.sub("(?<=[a-z])(?=[A-Z][a-z]|[A-Z]{2})", "_", cls.__name__).lower()


@functools.cache
def kinds(accepted):
    """Classes that a field of this type takes, by their names in a file, as a dict.

    >>> from hwdesign.models.parts import FeedForward
    >>> list(kinds(FeedForward | None))
    ['deep_router_moe', 'dense_ffn', 'image_moe', 'moe', 'weighed_moe']
    """
    found, waiting = {}, [option for option in _options(accepted) if isinstance(option, type)]
    while waiting:
        cls = waiting.pop(0)
        waiting += cls.__subclasses__()
        if "__dataclass_fields__" in vars(cls) and cls.__module__.startswith(HOME):
            found[kind_name(cls)] = cls
    return dict(sorted(found.items()))


def _options(accepted):
    """Types that an annotation names."""
    return typing.get_args(accepted) or (accepted,)


def must_be_given(field):
    """Whether a field has no default of its own; a null that its type does not take is that of a
    class above.
    """
    no_null = field.default is None and NoneType not in _options(field.type)
    return field.default is MISSING or no_null


def model_of(values, name="model"):
    """The model that a file of blocks describes.

    Parameters
    ----------
    values : dict
        The parsed file. Sizes in [element], windows and contexts in [token].
    name : str
        What the model is called where the file does not say it.

    Returns
    -------
    Model
        Counted like any other.

    Raises
    ------
    ValueError
        If a key is unknown, missing, of another type or out of range; one line with its path.

    Notes
    -----
    Source: fields and checks of `Model`, `Block` and the kinds of blocks.

    Examples
    --------
    >>> heads = {"kind": "self_attention", "num_heads": 8, "num_kv_heads": 2, "head_dim": 64}
    >>> block = {"times": 4, "mixer": heads, "ffn": {"kind": "dense_ffn", "width": 2048}}
    >>> file = {"hwdesign_blocks": 1, "hidden_size": 512, "vocab_size": 1000, "blocks": [block]}
    >>> model_of(file).parameters == 4 * (512 * 64 * 20 + 3 * 512 * 2048 + 1024) + 2001 * 512
    True
    """
    if odd := [key for key in values if not isinstance(key, str)]:
        raise ValueError(f"config keys must be text, got {shown(odd[0])}")
    version = values.get(BLOCKS_KEY, MISSING)
    if type(version) is not int or version != VERSION:
        some = [key[:60] for key in itertools.islice(values, TYPED)]
        near = difflib.get_close_matches(BLOCKS_KEY, some, 1, 0.8)
        hint = f" (is {near[0]!r} meant?)" if near and version is MISSING else ""
        raise _refused(BLOCKS_KEY, f"{VERSION}, the version of a file of blocks", version, hint)
    values = {k: v for k, v in values.items() if k != BLOCKS_KEY and not k.startswith("_")}
    reading = _Reading(values.get("parts", {}))
    given = reading.fields(Model, {"name": name, **values}, "", OTHERS)
    if (ahead := values.get("prediction_layers")) is not None:
        told = reading.prediction(ahead, given["hidden_size"])
        given["left_out"] = (*given.get("left_out", ()), told)
    reading.refuse_idle_parts()
    if not any(block.parts for block in given["blocks"]):
        raise _refused("blocks", "layers of which one has a mixer or an ffn", values["blocks"])
    return _at("", Model, **given)


class _Reading:
    """A file while it is read: its parts by name, what was made of them, what is being made."""

    def __init__(self, parts):
        named = isinstance(parts, dict) and all(isinstance(name, str) for name in parts)
        if not named or len(parts) > MOST_BLOCKS:
            raise _refused("parts", f"an object of at most {MOST_BLOCKS} parts by names", parts)
        self.parts, self.made, self.open = parts, {}, []

    def refuse_idle_parts(self):
        """Refuse a part that nothing names."""
        used = {name for name, _ in self.made}
        for name in self.parts:
            if name not in used:
                raise _refused(f"parts.{name}", "named by a block or absent", self.parts[name])

    def fields(self, cls, value, where, others=()):
        """Fields of a class from an object of the file, as a dict; `others` are further keys."""
        known = {field.name: field for field in fields(cls)}
        what = kind_name(cls) if where else "a file of blocks"
        _refuse_unknown(value, (*others, *known), where, what)
        if cls in self.open:  # also where a part names itself
            raise _refused(where, f"no {what} inside another one", value)
        self.open.append(cls)
        found = {}
        for name, field in known.items():
            place = _below(where, name)
            if name in value:
                read = SPECIAL.get((cls, name), _Reading.value)
                found[name] = read(self, field.type, value[name], place)
            elif must_be_given(field):
                raise _refused(place, _words(field.type), MISSING)
        self.open.pop()
        return found

    def value(self, accepted, value, where):
        """What stands at a place, as a field of a type takes it."""
        options = _options(accepted)
        if value is None and NoneType in options:
            return None
        if typing.get_origin(accepted) is tuple:
            if not isinstance(value, list) or len(value) > MOST_BLOCKS:
                raise _refused(where, _words(accepted), value)
            return tuple(self.value(options[0], v, f"{where}[{i}]") for i, v in enumerate(value))
        for kind in PLAIN:
            if kind in options:
                most = LARGEST.get(where.rpartition(".")[2], LIMIT)
                fits = type(value) is kind and (kind is not int or value <= most)
                if fits and kind is str:  # that a terminal shows and does not obey
                    fits = value.isprintable() and len(value) <= LONGEST_TEXT
                if not fits:
                    raise _refused(where, _words(accepted, most), value)
                return value
        return self.thing(accepted, value, where)

    def thing(self, accepted, value, where):
        """The object at a place, or that of the part which is named there."""
        if isinstance(value, str):
            return self.part(accepted, value, where)
        if not isinstance(value, dict):
            raise _refused(where, _words(accepted), value)
        found, kind = kinds(accepted), next(iter(kinds(accepted)))
        several = len(found) > 1
        if several and "kind" not in value:
            raise _refused(_below(where, "kind"), f"one of {', '.join(found)}", MISSING)
        cls = _at(where, choice, "kind", value["kind"] if several else kind, found)
        given = self.fields(cls, value, where, ("kind",) if several else ())
        made = _at(where, cls, **given)
        for name, fits, accepted in FIT.get(cls, ()):
            if not fits(made):
                raise _refused(_below(where, name), accepted, getattr(made, name))
        return made

    def part(self, accepted, name, where):
        """A part by its name, made once for each type that is asked for."""
        key = name, accepted
        if key not in self.made:
            if name not in self.parts:
                near = difflib.get_close_matches(name[:60], list(self.parts), 1, 0.5)
                hint = f"; did you mean {shown(near[0])}?" if near else ""
                raise _refused(where, _words(accepted), name, hint)
            place, value, found = f"parts.{name}", self.parts[name], kinds(accepted)
            if not isinstance(value, dict):
                raise _refused(place, "an object", value)
            if "kind" in value and (len(found) == 1 or _kind_of_others(value["kind"], found)):
                raise _refused(where, f"a part of kind {' or '.join(found)}", name)
            self.made[key] = self.thing(accepted, value, place)
        return self.made[key]

    def times(self, value, where):
        """How often what stands at a place is repeated."""
        times = value.get("times", 1)
        if type(times) is not int or not 1 <= times <= MOST_BLOCKS:
            raise _refused(f"{where}.times", f"a whole number from 1 to {MOST_BLOCKS}", times)
        return times

    def blocks(self, accepted, values, where):
        """Blocks from a list of blocks, their names and groups, each so many times; as a tuple."""
        if not isinstance(values, list) or not 1 <= len(values) <= MOST_BLOCKS:
            raise _refused(where, f"a list of 1 to {MOST_BLOCKS} blocks", values)
        found = []
        for index, value in enumerate(values):
            place = f"{where}[{index}]"
            times, inside = 1, value
            if isinstance(value, dict):
                times = self.times(value, place)
                inside = {key: v for key, v in value.items() if key != "times"}
            if isinstance(inside, dict) and "blocks" in inside:
                _refuse_unknown(inside, ("times", "blocks"), place, "a group of blocks")
                made = self.blocks(accepted, inside["blocks"], f"{place}.blocks")
            else:
                made = (self.thing(Block, inside, place),)
            if len(found) + times * len(made) > MOST_BLOCKS:
                raise _refused(place, f"at most {MOST_BLOCKS} blocks with those before", value)
            found += made * times
        return tuple(found)

    def formats(self, accepted, value, where):
        """Formats of parts, {"attention": {"fp8": 0.75, "bf16": 0.25}}, as a `Model` holds them."""
        like = 'an object as {"attention": {"fp8": 0.75, "bf16": 0.25}}'
        if not isinstance(value, dict) or not all(isinstance(v, dict) for v in value.values()):
            raise _refused(where, like, value)
        return tuple((part, tuple(shares.items())) for part, shares in value.items())

    def prediction(self, value, hidden):
        """What is said of prediction layers, which no count includes."""
        where = "prediction_layers"
        if not isinstance(value, dict):
            raise _refused(where, "an object with times and blocks", value)
        _refuse_unknown(value, ("times", "blocks", "closing"), where, "prediction layers")
        times = self.times(value, where)
        blocks = self.blocks(None, value.get("blocks", []), f"{where}.blocks")
        closing = self.value(tuple[Weight, ...], value.get("closing", []), f"{where}.closing")
        return prediction_words(times, prediction_parameters(hidden, *blocks, closing=closing))


SPECIAL = {(Model, "blocks"): _Reading.blocks, (Model, "formats"): _Reading.formats}


def _refused(where, accepted, value, hint=""):
    """A `ValueError` about what stands at a place of a file."""
    got = "nothing" if value is MISSING else shown(value)
    return ValueError(f"config key {shown(where, 200)} must be {accepted}, got {got}{hint}")


def _below(where, key):
    return f"{where}.{key}" if where else key


def _at(where, call, *given, **named):
    """What a call gives; where it complains about a field, the error names the place."""
    try:
        return call(*given, **named)
    except ValueError as error:
        name, must, rest = str(error).partition(" must ")
        place = shown(_below(where, name), 200)
        raise ValueError(f"config key {place}{must}{rest}") from None


def _refuse_unknown(value, known, where, what):
    """Refuse a key that is none of those known, with the one that may be meant."""
    for key in value:
        if key not in known:
            near = difflib.get_close_matches(str(key)[:60], known, 1, 0.7)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            accepted = f"a key of {what}{'' if near else ', which takes ' + ', '.join(known)}"
            raise _refused(_below(where, key), accepted, value[key], hint)


def _kind_of_others(name, found):
    """Whether a name is that of a kind, but of none of these."""
    return isinstance(name, str) and name in kinds(Part) and name not in found


def _words(accepted, most=LIMIT):
    """What a field of a type takes, in words."""
    options = _options(accepted)
    told = next((words for kind, words in PLAIN.items() if kind in options), None)
    if typing.get_origin(accepted) is tuple:
        return f"a list of at most {MOST_BLOCKS}"
    told = told or "an object or the name of a part"
    told += f" up to {most}" if int in options else ""
    return f"{told} or null" if NoneType in options else told
