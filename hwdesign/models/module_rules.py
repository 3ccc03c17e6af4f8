"""Lists of modules in quantization configs, and what holds for the modules that they name.

An entry may be a name, a name with ``*``, or a regular expression after ``re:``. A name stands for
the modules inside it. Where an entry names no module of the model, nobody knows what is stored how.
"""

import fnmatch
import functools
import math
import re
import warnings
from collections import defaultdict
from itertools import product
from typing import NamedTuple

from hwdesign._check import shown
from hwdesign.catalogue.precision import MOST_GROUPED
from hwdesign.models.module_names import OUTSIDE

# Modules that stay in BF16 without being named, or that no count includes.
UNTOUCHED = re.compile(
    r"lm_head|^head$|embed|norm|gate\W*$|gate\W|router|conv|bias|visual|vision|image|audio|altup|"
    r"talker|projector|mtp|nextn|eh_proj|shared_head|indexer|score|classifier|laurel|per_layer|"
    r"A_log|rotary|inv_freq|hyper_connection|\bhc_|mapping_proj|weights_proj|attn_m[hq]a$|"
    r"fused_\w+_a_proj",
    re.I,
)
LISTS = (
    "ignored_layers",
    "ignore",
    "exclude_modules",
    "modules_to_not_convert",
    "llm_int8_skip_modules",
    "exclude",
)
EFFORT = 500_000_000  # steps that a list may take on the names of a model
LONGEST_REASON = 1000  # letters
PLAIN_EFFORT, MOST_LETTERS, MOST_PATTERNS = 60, 1000, 5000
# Of a regular expression: what repeats, of it runs of digits, and what may take for ever.
REPEATED = re.compile(r"(?:[*+]|\{\d*,\d*\}|(?<!\()\?)\??")
DIGITS = re.compile(r"(?:\\d|\[0-9\])(?:[*+?]|\{\d*,)")
UNBOUNDED = re.compile(r"\)[*+{]|\(\?P?[=<#(]|\\[1-9]")
ONE_EXPERT = re.compile(r"experts\D{0,20}\d")
NUMBERED = re.compile(r"(?:layers|h)\.(\d+)")
BEFORE_LAYER = re.compile(r"(?:^|\.)((?:layers|h)\.\d+(?:\.|$))")
ONE_LAYER = re.compile(r"(?:layers|h)\.(\d+)\.")  # a module of one layer, or a pattern for one
NUMBER = re.compile(r"(?:layers|h)\.(\d+)(?=([.*])|$)")  # of a layer, in an entry


class UnknownBytes(ValueError):
    """What a checkpoint stores cannot be told from its config, though nothing in it is wrong."""

    def __init__(self, why):
        text = "".join(letter if letter.isprintable() else "?" for letter in why[:LONGEST_REASON])
        super().__init__(text)


class Rules:
    """Entries of a list of modules, each with what holds for the modules it names."""

    def __init__(self, read, key):
        self.read, self.key = read, key
        self.entries, self.plain, self.patterns = [], {}, []
        self.firsts, self.lasts, self.used, self.known = set(), set(), set(), {}
        self.individual, self.effort = False, PLAIN_EFFORT
        # Entries for one layer, beginnings of numbers, and whether other digits tell layers apart.
        self.of_layer, self.starts, self.numbered = defaultdict(list), [], False
        self.shared = 0  # entries that are not for one layer alone
        self.looked_at = {}

    def add(self, entry, value, *, regex=False):
        """One more entry; the first of several that match a module holds."""
        self.entries.append(entry)
        if OUTSIDE.match(entry):
            self.used.add(entry)
            return
        self.individual |= "experts" in entry and bool(ONE_EXPERT.search(entry))
        number = self._note_layers(entry, value, regex or entry.startswith("re:"))
        if regex or entry.startswith("re:"):
            self._pattern(entry.removeprefix("re:"), value, entry)
        elif "*" in entry:
            start = re.sub(r"^[\w.]*?((?:layers|h)\.)", r"\1", entry[:MOST_LETTERS])
            self._pattern(start, value, entry, effort=60)
        else:
            whole_word = number and entry[number.start() - 1 : number.start()] in ("", ".")
            name = entry[number.start() :] if whole_word else _canonical(entry)
            self.plain.setdefault(name, (value, entry))
            self.firsts.add(name.partition(".")[0])
            self.lasts.add(name.rpartition(".")[2])

    def _note_layers(self, entry, value, regex):
        """Note which layers an entry tells apart; gives the match of a layer's number or None."""
        found = None if regex else NUMBER.search(entry)
        rest = f"{entry[: found.start(1)]}{entry[found.end(1) :]}" if found else entry
        words = rest if regex or "*" in entry else rest.split(".")  # a name stands for whole words
        if any(map(str.isdigit, words)):
            self.numbered = True
        elif found and found[2] == "*":
            self.starts.append(found[1])
        elif found:
            self.of_layer[found[1]].append((rest, value, self.shared, entry))
            return found
        self.shared += 1
        return found

    def likeness(self, number):
        """What is equal for the numbers of two layers that no entry tells apart."""
        if self.numbered:
            return number
        own = tuple(entry[:3] for entry in self.of_layer.get(number, ()))
        return len(number), own, tuple(filter(number.startswith, self.starts))

    def use_alike(self, number, other):
        """Note that the entries for a layer name what those for another one do that is alike."""
        if not self.numbered:
            both = zip(self.of_layer.get(number, ()), self.of_layer.get(other, ()), strict=True)
            self.used.update(mine[-1] for mine, its in both if its[-1] in self.used)

    def _pattern(self, text, value, entry, effort=None):
        """A name with * or, without an effort, a regular expression, whose time is bounded: in it
        no group may be repeated.
        """
        wildcard = effort is not None
        if not wildcard:
            body = text[:MOST_LETTERS].removesuffix("$").removesuffix(".*")
            digits = len(DIGITS.findall(body))
            wild = len(REPEATED.findall(body)) - digits
            effort = 60**wild // math.factorial(wild) * math.comb(digits + 5, 5)
            if UNBOUNDED.search(body):
                raise self._no_pattern(entry)
        if len(entry) >= MOST_LETTERS or len(self.patterns) >= MOST_PATTERNS:
            raise self._no_pattern(entry)
        self.effort += effort
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                match = _wildcard(text) if wildcard else re.compile(text).match
        except (re.error, OverflowError, RecursionError, Warning):
            raise self._no_pattern(entry) from None
        only = None if entry.startswith("re:") else ONE_LAYER.search(entry)
        self.patterns.append((match, value, entry, only and only[1]))

    def _no_pattern(self, entry):
        accepted = (
            f"names of modules, names with *, or regular expressions that repeat no group, at most "
            f"{MOST_PATTERNS} of them of {MOST_LETTERS} letters"
        )
        return self.read.complain_about(self.key, accepted, entry)

    def value(self, names, heads):
        """What holds for a module of these names, after one of the heads; None without a rule."""
        if names not in self.known:
            self.known[names] = self._found(names, heads)
        return self.known[names]

    def outside(self, names, heads):
        """What holds for a module outside the layers; None without a rule."""
        for value, entry in self.plain.values():
            if entry.rpartition(".")[2] in names:
                self.used.add(entry)
                return value
        return self._found(names, heads)

    def _found(self, names, heads):
        plain = [found for name in names if (found := self._plain(name))]
        self.used.update(entry for _, entry in plain)  # a module may be named in two styles
        if plain:
            return plain[0][0]
        if not self.patterns:
            return None
        whole = (*names, *(f"{head}.{name}" for head in heads for name in names))
        held, layer = None, ONE_LAYER.search(names[0] + ".")
        for match, value, entry in self._patterns_for(layer and layer[1]):
            if (held is None or entry not in self.used) and any(map(match, whole)):
                self.used.add(entry)
                held = value if held is None else held
        return held

    def _plain(self, name):
        """(value, entry) of the longest name without a pattern that a module's name holds, or
        None.
        """
        runs = _runs(name, self.firsts, self.lasts)
        return next((self.plain[run] for run in runs if run in self.plain), None)

    def _patterns_for(self, layer):
        """Patterns in their order without those for another layer."""
        if layer not in self.looked_at:
            own = [p[:3] for p in self.patterns if layer is None or p[3] in (None, layer)]
            self.looked_at[layer] = own
        return self.looked_at[layer]

    def check(self, layers, count):
        """Refuse patterns that take too long on so many names."""
        if self.effort * count > EFFORT:
            accepted = f"fewer names or simpler patterns for a model of {layers} layers"
            raise self.read.complain(self.key, accepted)

    def finish(self, layers):
        """Where an entry names nothing of the model, what is stored is not known."""
        for entry in self.entries:
            if entry in self.used:
                continue
            layer = NUMBERED.search(entry)
            if _untouched(entry[layer.end() :] if layer else entry) or UNTOUCHED.search(entry):
                continue
            if layer and int(layer[1][:9]) >= layers:  # an extra prediction layer
                continue
            accepted = "names of modules of the model, as lm_head or model.layers.0.self_attn"
            raise UnknownBytes(str(self.read.complain_about(self.key, accepted, entry)))


@functools.lru_cache(maxsize=4096)
def _untouched(words):
    """Whether the words after a layer's number name what stays in BF16 or no count includes."""
    return bool(UNTOUCHED.search(words))


def _wildcard(text):
    """What tells whether a name with * matches a module's name, or one from a dot on or up to one.

    A text that only ends with one, as most do, needs no regular expression, which takes longer.
    """
    if re.search(r"[*?[]", text[:-1]):
        texts = (f"{before}{text}{after}" for before, after in product(("", "*."), ("", ".*")))
        return re.compile("|".join(map(fnmatch.translate, texts))).match
    return functools.partial(_stands_in, f".{text[:-1]}")


def _stands_in(start, name):
    return start in f".{name}"


def _canonical(name):
    """A module's name from the word before its layer on."""
    start = BEFORE_LAYER.search(name)
    return name[start.start(1) :] if start else name


def _runs(name, firsts, lasts):
    """Runs of words of a name that begin and end with one of some words, the longest first."""
    words = name.split(".")
    ends = [j for j, word in enumerate(words, 1) if word in lasts]
    if not ends:
        return []
    starts = [i for i, word in enumerate(words) if word in firsts]
    spans = sorted((i - j, i, j) for i in starts for j in ends if i < j)
    return [".".join(words[i:j]) for _, i, j in spans]


class Formats(NamedTuple):
    """How a checkpoint stores its matrices: without another rule in the recipe `rest`."""

    rest: str
    rules: tuple[Rules, ...] = ()  # the first that says something of a module holds
    experts: str | None = None  # of routed experts, where that is another than the rest
    # Recipes of what most methods leave in BF16.
    head: str | None = None
    embedding: str | None = None
    router: str | None = None
    divisor: int = 1  # of the inputs of a matrix that is converted at all [element]

    def plain(self, part):
        """The recipe of a part of which no rule says anything."""
        if part in ("head", "embedding", "router"):
            return getattr(self, part) or "bf16"
        return self.experts if self.experts and part == "experts" else self.rest


def inside(quant):
    """Reader of the object `quantization` in a sidecar, or of the config itself."""
    return quant.inside("quantization") if quant.values.get("quantization") else quant


def unknown(read, key, words):
    """An `UnknownBytes` about a key."""
    value = read.values.get(key)
    said = f" {shown(value)}" if value is not None else ""
    return UnknownBytes(f"{read.where}{key}{said} {words}")


def kept(quant):
    """Rules about the modules that stay in BF16."""
    found = []
    for key in LISTS:
        rules = Rules(quant, key)
        for entry in quant.items(key, str, "names of modules") or []:
            rules.add(entry, "bf16")
        if rules.entries:
            found.append(rules)
    return tuple(found)


def whole_bits(read, *keys, least=2, most=8):
    """Bits of a weight [bit]."""
    key, bits = read.raw(*keys)
    if type(bits) is not int or not least <= bits <= most:
        raise read.complain(key, f"a whole number from {least} to {most}")
    return bits


def group_size(read, *keys, default=None):
    """Elements of a group, None for a whole row."""
    key, size = read.raw(*keys)
    size = default if size is None else size
    if type(size) is not int or not (size == -1 or 1 <= size <= MOST_GROUPED):
        raise read.complain(key, f"a whole number from 1 to {MOST_GROUPED}, or -1 for a whole row")
    return None if size == -1 else size
