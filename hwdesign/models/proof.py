"""A model held against its checkpoint: do the files hold as many parameters as the model has, layer
by layer, and if not, which tensors differ?

No scheme of names is needed for an architecture. Every tensor is put into its layer or outside of
all layers; there the parameters are counted and compared with the weights of that block. Layers of
one kind of block must hold the same tensors, so what is odd in one of them is found by name. What
all of them lack is found by what the names and sizes of tensors and weights have in common.
"""

import functools
import re
from collections import Counter, defaultdict
from dataclasses import dataclass

from hwdesign.models.model import need_model
from hwdesign.models.packed import Parameter, is_scale, unpack
from hwdesign.models.partners import partners
from hwdesign.models.safetensors import read_checkpoint
from hwdesign.safe import visible
from hwdesign.units import fmt

SHOWN = 10  # differences that a text names
LONGEST_LINE = 1000  # [character]
CLOSE = 0.01  # how near the bytes of a packed checkpoint are to the sheet's [dimensionless]
UNKNOWN = "not known to the sheet"
NAMED = Parameter((), "")  # of which only the name is known
LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|layer|block)\.(\d{1,6})\.(.+)$")
TOWER = re.compile(
    r"(?:^|\.)(?:\w*(?:vision|visual|audio|speech|image|sound|projector)\w*|talker|code2wav|"
    r"token2wav|mm_\w+|vit\w*|aligner|patch_merge\w*|multi_modal\w*)(?:\.|$)"
)
PREDICTION = re.compile(r"(?:^|\.)(?:mtp\w*|nextn\w*|eagle\w*)(?:\.|$)")
PREDICTS = re.compile(r"eh_proj|(?:^|\.)[eh]norm\.|shared_head|mtp|nextn|embed_tokens")
NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
EXPERT = re.compile(r"(?<!shared_)experts\.(\d+)\.")
HEAD = re.compile(r"(?:lm_head|embed_out|output|head)\.weight$")
SPELT = re.compile(r"\(([\d,]+) parameters\)")


def place(name):
    """Where a tensor is, the match of its layer or None, and what stands before its number."""
    layer = LAYER.search(name)
    before = name[: layer.start(1)] if layer else name
    return _apart(before) or ("layers" if layer else "outside"), layer, before


@functools.lru_cache(10_000)
def _apart(before):
    """Gives "towers" or "prediction" where a name begins like one of these, else None."""
    if TOWER.search(before):
        return "towers"
    return "prediction" if PREDICTION.search(before) else None


@dataclass(frozen=True)
class Proof:
    """What came of it: whether nothing differs, the lines that say so, and the figures."""

    equal: bool
    lines: tuple[str, ...]
    figures: dict

    def __str__(self):
        return "\n".join(self.lines)


def prove(model, source, config=None):
    """Compare a model with the headers of its checkpoint, or with an index alone.

    Parameters
    ----------
    model : Model
        What the config says.
    source : str or path
        The checkpoint's folder, one .safetensors file, or an index.
    config : dict, optional
        The parsed config.json, of which only the bits of packed integers are read.

    Returns
    -------
    Proof
        `equal` says that every layer holds as many parameters [element] as its block has, in the
        same tensors as its like; with an index alone, that names and bytes agree.

    Raises
    ------
    ValueError
        If the files contradict themselves, or are packed in a way that is not known.
    """
    return compare(need_model(model), read_checkpoint(source), config)


def compare(model, found, config=None):
    """The same of a `Checkpoint` that was read already."""
    if again := sum(block.repeated for block in model.blocks):
        raise ValueError(
            "model must have layers that run once, since files hold the others' weights once, got "
            f"{again} blocks that run again"
        )
    if not found.tensors:
        return _by_names(model, found)
    parameters, others = unpack(found.tensors, config)
    held = Held(model, Places(parameters, model))
    return _told(model, found, held, held.differences(), others)


class Places:
    """Parameters by where they are: `layers`, `outside`, `prediction`, `towers`; each holds
    ``{name: Parameter}``, and `layers` one of these a layer by the end of the name.
    """

    def __init__(self, parameters, model):
        self.layers, self.heads = defaultdict(dict), {}
        self.outside, self.prediction, self.towers = {}, {}, {}
        stacks = defaultdict(list)  # what stands before the number of a layer -> its tensors
        for name, parameter in parameters.items():
            where, layer, before = place(name)
            if where == "layers":
                stacks[before].append((int(layer[1]), layer[2], name, parameter))
            else:
                getattr(self, where)[name] = parameter
        text = max(
            stacks, key=lambda before: sum(p.elements for *_, p in stacks[before]), default=""
        )
        for before, members in stacks.items():
            for number, rest, name, parameter in members:
                if before == text:
                    self.layers[number][rest], self.heads[number] = parameter, before
                else:  # a second stack of layers is none of the text model's
                    self.outside[name] = parameter
        # LongCat: two attentions in a layer, which a model counts as two blocks
        double = any(
            rest.startswith("self_attn.1.") for rest in next(iter(self.layers.values()), ())
        )
        self.per_layer = 1 + (double and len(model.blocks) % 2 == 0)
        self.count = len(model.blocks) // self.per_layer
        self.beyond = {}  # layers after the model's last one that predict nothing
        for number in sorted(self.layers):
            if number >= self.count and any(map(PREDICTS.search, self.layers[number])):
                for rest, parameter in self.layers.pop(number).items():
                    self.prediction[self.name(number, rest)] = parameter
            elif number >= self.count:
                self.beyond[number] = self.layers.pop(number)

    def name(self, number, rest):
        """Whole name of a tensor of a layer."""
        before = self.heads.get(number) or next(iter(self.heads.values()), "layers.")
        return f"{before}{number}.{rest}"


class Held:
    """A model and the places of its tensors."""

    def __init__(self, model, places):
        self.model, self.places = model, places
        hidden, per = model.hidden_size, places.per_layer
        runs = [model.blocks[i : i + per] for i in range(0, len(model.blocks), per)]
        self.kinds = defaultdict(list)  # kind of layer -> its numbers
        for number, run in enumerate(runs):
            self.kinds[run].append(number)
        self.weights = {
            run: [weight for block in run for weight in block.weights(hidden)] for run in self.kinds
        }
        inside = Counter()
        for run, numbers in self.kinds.items():
            for weight in self.weights[run]:
                inside[weight] += len(numbers)
        self.outer = list((Counter(model.weights) - inside).elements())
        self.again = self._head_again()
        self.doubts = []  # where a sum is right and its parts are not told apart

    def _head_again(self):
        """Name of a tied head that is stored once more, None where there is none."""
        size = self.model.vocab_size * self.model.embedding_width
        alike = [n for n, p in self.places.outside.items() if p is NAMED or p.elements == size]
        heads = [name for name in alike if HEAD.search(name)]
        return heads[0] if self.model.tied_embeddings and len(alike) > len(heads) == 1 else None

    @property
    def parameters(self):
        """Parameters of the text part, a tied head counted once [element]."""
        layers = [*self.places.layers.values(), *self.places.beyond.values()]
        inside = sum(count(layer.values()) for layer in layers)
        return inside + sum(p.elements for p in self.outside.values())

    @property
    def outside(self):
        """Parameters outside the layers, without a tied head that is stored once more."""
        return {name: p for name, p in self.places.outside.items() if name != self.again}

    def unlike_names(self):
        """What differs where only names are known, a line each."""
        layers, model = self.places.layers, self.model
        yield from self._beyond()
        for run, numbers in self.kinds.items():
            yield from self._layers(run, numbers, sizes=False)
            first = next((layers[n] for n in numbers if n in layers), {})
            experts = {int(e[1]) for e in map(EXPERT.search, first) if e}
            most = max((w.stored for w in self.weights[run]), default=1)
            if experts and len(experts) != most:
                where = f"layer{'s' if numbers[1:] else ''} {runs_of(numbers)}"
                yield f"{where}: {len(experts)} experts are named, the config means {most}"
        heads = [name for name in self.places.outside if "head" in name or HEAD.search(name)]
        if model.lm_head and not model.tied_embeddings and not heads:
            yield "lm_head: not named, though the config means a separate head"

    def differences(self):
        """What differs, a line each, as a list."""
        found = list(self._beyond())
        for kind, numbers in self.kinds.items():
            found += self._layers(kind, numbers)
        shapes = Counter((name, p.shape) for name, p in self.outside.items())
        left = partners(shapes, self.outer, "outside the layers", str)
        equal = count(self.outside.values()) == needed(self.outer)
        (self.doubts if equal else found).extend(left)
        return found

    def _beyond(self):
        """A line about layers that the model has not."""
        if beyond := self.places.beyond:
            many = "s" if len(beyond) > 1 else ""
            size = sum(count(layer.values()) for layer in beyond.values())
            said = (
                f" ({size:,} parameters)"
                if NAMED not in next(iter(beyond.values())).values()
                else ""
            )
            yield f"layer{many} {runs_of(beyond)}: in the files, not in the model{said}"

    def _layers(self, kind, numbers, *, sizes=True):
        """Differences of the layers of one kind of block; without `sizes` by names alone."""
        weights, layers = self.weights[kind], self.places.layers
        absent = [number for number in numbers if number not in layers]
        found = []
        if absent:
            many = "s" if absent[1:] else ""
            lost = f"{len(absent) * needed(weights):,} parameters"
            found.append(f"layer{many} {runs_of(absent)}: no tensor in the files, {lost}")
        groups = defaultdict(list)
        for number in numbers:
            if number in layers:
                groups[_signature(layers[number])].append(number)
        if not groups:
            return found
        right = [g for g in groups if _size(g) == needed(weights)]
        usual = max(right or groups, key=lambda group: len(groups[group]))
        first = groups[usual][0]
        if sizes:
            where = f"layer{'s' if groups[usual][1:] else ''} {runs_of(groups[usual])}"
            shapes = Counter(dict(usual))
            left = partners(shapes, weights, where, lambda rest: self.places.name(first, rest))
            (self.doubts if right else found).extend(left)
        odd = defaultdict(list)
        for group, members in groups.items():
            for number in members if group != usual else ():
                for line in _unlike(layers[number], layers[first]):
                    odd[line].append(number)
        return found + [self._odd(line, members) for line, members in odd.items()]

    def _odd(self, line, numbers):
        """One line about a tensor of some layers."""
        rest, shape, said = line
        number = numbers[0] if len(numbers) == 1 else f"[{runs_of(numbers)}]"
        name = f"{self.places.heads[numbers[0]]}{number}.{rest}"
        return f"{name}{f' {list(shape)}' if shape else ''}: {said}"


def needed(weights):
    """Parameters of weights [element]."""
    return sum(weight.stored * weight.elements for weight in weights)


def count(parameters):
    """Parameters of tensors [element]."""
    return sum(parameter.elements for parameter in parameters)


def _signature(layer):
    """Names and shapes of the tensors of a layer with how often they are there; experts alike."""
    return tuple(sorted(Counter((NUMBER.sub("*", k), p.shape) for k, p in layer.items()).items()))


def _size(signature):
    total = 0
    for (_, shape), copies in signature:
        for size in shape:
            copies *= size
        total += copies
    return total


def _unlike(layer, usual):
    """What a layer holds otherwise than its like, as (end of a name, shape, words)."""
    for rest in sorted(layer.keys() | usual.keys()):
        mine, theirs = layer.get(rest), usual.get(rest)
        if mine is None:
            yield rest, theirs.shape, "not in the files, other layers have it"
        elif theirs is None:
            yield rest, mine.shape, "in the files, not in the model nor in other layers"
        elif mine.shape != theirs.shape:
            yield rest, mine.shape, f"other layers have {list(theirs.shape)}"


def runs_of(numbers):
    """Whole numbers as ranges.

    >>> runs_of([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    runs = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    said = [f"{a}-{b}" if b > a else str(a) for a, b in runs]
    return ", ".join(said[:8]) + (f" and {len(said) - 8} more runs" if said[8:] else "")


def _told(model, found, held, differences, others):
    """The `Proof` of a whole checkpoint."""
    here, mine = held.parameters, model.parameters
    equal = here == mine and not differences
    lines = [
        f"weights: {_files(found.files)}, {len(found.tensors):,} tensors, headers alone were read"
    ]
    if equal:
        how = "" if held.doubts else ", weight by weight"
        lines.append(f"  equal to the last parameter: {here:,}{how}")
        if held.doubts:
            lines.append("  of each layer the sum; not told apart by name and size:")
            lines += [f"    {line}" for line in listed(held.doubts)]
    else:
        lines.append(
            f"  NOT equal: the files hold {here:,} parameters of the text model, the config means "
            f"{mine:,} ({here - mine:+,})"
        )
    lines += [f"  {line}" for line in listed(differences)]
    lines += [f"  {line}" for line in _besides(model, held, others)]
    size = _bytes(found.tensors, held, others)
    said = sheet_bytes(model)
    by = f"{fmt(said, 'byte', digits=5)} by the sheet ({size / said - 1:+.2%})" if said else UNKNOWN
    lines.append(f"  bytes of the text model: {fmt(size, 'byte', digits=5)} in the files, {by}")
    figures = {
        "proof": "headers",
        "equal": equal,
        "files": found.files,
        "tensors": len(found.tensors),
        "parameters": here,
        "differences": differences,
        "bytes": size,
    }
    return Proof(equal, tuple(visible(line, LONGEST_LINE) for line in lines), figures)


def _files(number):
    return f"{number} file{'s' if number > 1 else ''}"


def sheet_bytes(model):
    """Bytes of the weights as the sheet has them [byte]; None where it does not know them."""
    try:
        return sum(model.weight_bytes().values())
    except ValueError:  # a format whose bytes no config tells
        return None


def listed(differences):
    """Lines about differences, of many the first ones."""
    more = len(differences) - SHOWN
    return differences[:SHOWN] + ([f"and {more} more"] if more > 0 else [])


def _besides(model, held, others):
    """Lines about what is in the files and no parameter of the text model."""
    if held.again:
        yield f"the head {held.again} is the embedding, stored once more"
    places = held.places
    if places.towers:
        many, size = len(places.towers), count(places.towers.values())
        yield f"towers and projectors: {size:,} parameters in {many:,} tensors, not in the sheet"
    if places.prediction:
        yield _prediction(model, places.prediction)
    kinds = Counter(others.values())
    for kind, words in (
        ("scale", "scales, zero points and shapes of packed matrices"),
        ("buffer", "buffers (rotary frequencies, masks)"),
        ("table", "tables of whole numbers"),
    ):
        if kinds[kind]:
            name = next(name for name, said in others.items() if said == kind)
            yield f"no parameters: {kinds[kind]:,} {words}, as {name}"


def _prediction(model, found):
    """A line about prediction layers, held against what the sheet leaves out where it says that."""
    size = model.vocab_size * model.embedding_width
    copies = [name for name, p in found.items() if p.elements == size]
    own = count(found.values()) - size * len(copies)
    line = f"prediction layers: {own:,} parameters"
    if copies:
        line += f", and {len(copies)} x {size:,} of embeddings and heads"
    said = next(filter(None, map(SPELT.search, model.left_out)), None)
    if said is None:
        return f"{line}, not in the sheet"
    mine = int(said[1].replace(",", ""))
    return f"{line}; the sheet leaves out {mine:,}" + (", the same" if mine == own else "")


def _bytes(tensors, held, others):
    """Bytes of the text model with its scales, without buffers and tables [byte]."""
    total = 0
    for name, tensor in tensors.items():
        where, layer, _ = place(name)
        inside = where == "outside" or (where == "layers" and int(layer[1]) < held.places.count)
        if inside and name != held.again and others.get(name, "scale") == "scale":
            total += tensor.bytes
    return total


def _by_names(model, found):
    """The `Proof` of an index alone: names and bytes."""
    plain = {name: NAMED for name in found.index if not is_scale(name, found.index)}
    held = Held(model, Places(plain, model))
    differences = list(held.unlike_names())
    lines = [f"weights: an index of {_files(found.files)}, {len(found.index):,} tensors"]
    if found.missing:
        lines[0] += f"; {_files(found.missing)} of it not there"
    agreed, said = _total_bytes(model, held, found)
    equal = agreed and not differences
    lines.append(f"  names {'differ' if differences else 'agree'}" + (":" if differences else ""))
    lines += [f"  {line}" for line in listed(differences) + said]
    lines.append("  an index knows no shapes: this proves less than the headers of the files")
    figures = {
        "proof": "index",
        "equal": equal,
        "files": found.files,
        "missing_files": found.missing,
        "tensors": len(found.index),
        "differences": differences,
        "bytes": found.total_size,
    }
    return Proof(equal, tuple(visible(line, LONGEST_LINE) for line in lines), figures)


def _total_bytes(model, held, found):
    """(whether the bytes agree, lines about them) of an index."""
    if not found.total_size:
        return True, ["the index gives no total_size, so bytes are not compared"]
    again = model.vocab_size * model.embedding_width if held.again else 0
    apart = bool(held.places.towers or held.places.prediction)
    total, lines = found.total_size, []
    if held.again:
        lines.append(f"the head {held.again} is the embedding, stored once more")
    for bytes_each in (2, 4):
        if model.quantization is None and total == bytes_each * (model.parameters + again):
            more = " and the head once more" if again else ""
            text = f"bytes agree: {bytes_each} for each of {model.parameters:,} parameters{more}"
            return True, [*lines, f"{text} are {total:,}"]
    said = sheet_bytes(model)
    if said is None:
        return True, [*lines, f"bytes: {total:,} by the index, {UNKNOWN}"]
    said += 2 * again
    if model.quantization is None and abs(total - 2 * said) < abs(total - said):
        said *= 2  # in FP32
    rest = total - said
    near = abs(rest) <= CLOSE * said or (apart and 0 < rest <= said)
    how = f"{total:,} by the index, {said:,.0f} by the sheet ({rest / said:+.2%})"
    if near and rest > CLOSE * said:
        names = "towers" if held.places.towers else "prediction layers"
        how += f"; the rest is for {names}, whose size no index tells"
    return near, [*lines, f"bytes {'agree' if near else 'DIFFER'}: {how}"]
