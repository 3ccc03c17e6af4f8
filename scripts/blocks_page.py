"""The page on files of blocks: every key, kind and field, from the classes and their docstrings, for `generate_pages.py`."""

import inspect
import re
from dataclasses import fields
from types import NoneType

from hwdesign.models.blocks import Block, SelfAttention
from hwdesign.models.blocks_file import PLAIN, kind_name, kinds, must_be_given
from hwdesign.models.indexer import Indexer
from hwdesign.models.model import Model
from hwdesign.models.parts import PARTS, FeedForward, Mixer, Weight

RESIDUALS = Block.__dataclass_fields__["residual"].type
SPECIAL = {  # fields that a file writes in a way of their own
    (Model, "blocks"): "a list of blocks, names of them and groups",
    (Model, "quantization"): "the name of a recipe, as `fp8` or `nvfp4`, or null",
    (Model, "kv_cache"): "the name of a format, as `fp8`, or null",
    (Weight, "part"): f"one of {', '.join(PARTS)}",
    (SelfAttention, "qk_norm"): '`"head"`, `"full"` or null',
    (SelfAttention, "output_gate"): '`"element"`, `"head"` or null',
    (Model, "formats"): 'an object of parts, each with the shares of its formats, as `{"ffn": {"fp8": 0.75, "bf16": 0.25}}`',
}
FIXED = {Mixer: "a mixer", FeedForward: "a feed-forward part", tuple: "a list"}
INTRODUCTION = """# Blocks, kind by kind

<!-- written by scripts/generate_pages.py from hwdesign/models; do not edit -->

What may stand in a file of blocks, which {doc}`checking` explains. The tables follow from the classes of the package: a field that is in the code is in the format.
A field without a default must be given; sizes are in elements, windows in tokens."""
FILE = """## The file

| key | what it takes |
|---|---|
| `hwdesign_blocks` | 1, the version of the format |
| `parts` | an object: names of your own, each with a mixer, a feed-forward part, a block or an indexer. Wherever one may stand, its name may; a part that nothing names is refused |
| `prediction_layers` | an object: `times`, `blocks` and `closing` of layers that predict more than the next token. They are counted beside the model and said under *left out*, each with a projection of state and embedding and three norms |
| a key that begins with `_` | a note, which nobody reads |

Besides, the fields of the model:"""
ENTRIES = """## Blocks

An entry of `blocks` is a block, the name of a part that is one, or a group: `{"times": 12, "blocks": [...]}`. A block may have `times`, too."""


def units(cls):
    """What the source says of each field beside it: its unit or a word."""
    return dict(re.findall(r"^    (\w+): [^#\n]*# (.+)$", inspect.getsource(cls), re.M))


def told(cls):
    """Docstring of a class as paragraphs without its examples and sections."""
    text = inspect.cleandoc(cls.__doc__)
    return re.sub(r"\bNone\b", "null", re.split(r"\n\n(?=[A-Z]\w+\n-+\n)", text)[0])


def parameters(cls):
    """What the section on parameters says of each field, in one line."""
    section = re.search(r"Parameters\n-+\n(.*?)\n\n", inspect.cleandoc(cls.__doc__), re.S)
    found = {}
    for names, text in re.findall(r"^(\w[\w, ]*) : .*\n((?:    .*\n?)+)", section[1], re.M):
        found |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return found


def accepted(cls, field):
    """What a file may say for a field, in words."""
    if (cls, field.name) in SPECIAL:
        return SPECIAL[cls, field.name]
    options = getattr(field.type, "__args__", None) or (field.type,)
    origin = getattr(field.type, "__origin__", None)
    if origin is tuple:
        return "a list of texts" if options[0] is str else f"a list of {kind_name(options[0])}s"
    one = [PLAIN.get(option) or FIXED.get(option) or f"`{kind_name(option)}`" for option in options if option is not NoneType]
    return " or ".join([*one, *(["null"] if NoneType in options else [])])


def default(field):
    """The default of a field as JSON."""
    if must_be_given(field):
        return "must be given"
    words = {None: "null", True: "true", False: "false", (): "none"}
    return words[field.default] if field.default in words and type(field.default) is not int else str(field.default)


def fields_table(cls, table, words):
    """A table of the fields of a class."""
    told = {name: re.sub(r"\bNone\b", "null", text).replace("|", "/") for name, text in words.items()}
    body = [[f"`{f.name}`", accepted(cls, f), default(f), told.get(f.name, "")] for f in fields(cls)]
    return table(["field", "takes", "default", "unit or meaning"], body) if body else "It has no fields."


def blocks_page(table):
    """The page as Markdown; `table` makes a table of a header and rows."""
    parts = [INTRODUCTION, FILE, fields_table(Model, table, parameters(Model))]
    parts += [ENTRIES, fields_table(Block, table, units(Block))]
    headings = (("Mixers", Mixer), ("Feed-forward parts", FeedForward), ("What joins layers", RESIDUALS), ("Parts of others", Indexer | Weight))
    for heading, base in headings:
        parts.append(f"## {heading}")
        for name, cls in kinds(base).items():
            parts += [f"### {name}", told(cls), fields_table(cls, table, units(cls))]
    return "\n\n".join(parts) + "\n"
