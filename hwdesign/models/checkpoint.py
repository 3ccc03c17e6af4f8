"""What a checkpoint says of itself besides its sizes: the number formats of its matrices and of its
cache, which head it has, and what is in it that no count includes.

A list of modules may hold names, names with ``*``, and regular expressions after ``re:``. A name
stands for the modules inside it, and a list that names no module of the model is refused.

Sources: the quantization documents and code of ModelOpt (`hf_quant_config.json`),
compressed-tensors, AutoAWQ, GPTQModel (`dynamic`) and transformers, and the loaders of vLLM.
"""

import fnmatch
import math
import re
import warnings
from collections import Counter, defaultdict
from itertools import product
from typing import NamedTuple

from hwdesign.models.blocks import LatentAttention, SelfAttention
from hwdesign.models.linear import KimiDelta, LightningAttention
from hwdesign.models.module_names import (
    NEW_LEAVES,
    NEW_STYLES,
    OUTSIDE,
    PER_LAYER,
    PLACES,
    PLACES_DENSE,
)
from hwdesign.models.parts import QUANTIZED
from hwdesign.models.reading import prediction_parameters

SIDECAR = "hf_quant_config.json"  # what ModelOpt writes beside a config.json
LISTS = ("ignored_layers", "ignore", "exclude_modules", "modules_to_not_convert")
FLOATS = ("fp8", "fbgemm_fp8")
INTEGERS = ("awq", "gptq")
ALGORITHMS = {  # quant_algo of ModelOpt -> recipe
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "FP8_PB_WO": "fp8_block_w8a16",
    "MXFP8": "mxfp8",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4_w4a16",
    "W4A16_MXFP4": "mxfp4_w4a16",
    "W4A16_AWQ": "w4a16",
    "W8A16": "w8a16_row",
    "W8A8_SQ_PER_CHANNEL": "int8",
}
GROUPED = {32: "_g32", 64: "_g64", 128: "_g128", -1: "_row"}  # group size -> end of a recipe's name
CACHES = {  # what the cache is called -> format; None is the engine's choice
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "nvfp4": "nvfp4",
    "int8": "int8",
    "int4": "int4",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "fp16",
    "float16": "fp16",
    "auto": None,
    "none": None,
}
# Modules that stay in BF16 without being named, or that no count includes.
UNTOUCHED = re.compile(
    r"lm_head|^head$|embed|norm|gate\W*$|gate\W|router|conv|bias|visual|vision|image|audio|altup|"
    r"talker|projector|mtp|nextn|eh_proj|shared_head|indexer|score|classifier|laurel|per_layer",
    re.I,
)
# Model type -> (what comes before the number of a layer, its mixer, its feed-forward part).
STYLES = {
    "gpt2": ("transformer.h", "attn", "mlp"),
    "gpt_bigcode": ("transformer.h", "attn", "mlp"),
    "gpt_neox": ("gpt_neox.layers", "attention", "mlp"),
    "mixtral": ("model.layers", "self_attn", "block_sparse_moe"),
    "nemotron_h": ("backbone.layers", "mixer", "mixer"),
    "bloom": ("transformer.h", "self_attention", "mlp"),
    "falcon": ("transformer.h", "self_attention", "mlp"),
    "gptj": ("transformer.h", "attn", "mlp"),
    "opt": ("model.decoder.layers", "self_attn", ""),
    "dbrx": ("transformer.blocks", "norm_attn_norm.attn", "ffn"),
    **dict.fromkeys(("llama4", "llama4_text"), ("model.layers", "self_attn", "feed_forward")),
    **dict.fromkeys(
        ("minimax_m2", "phimoe", "granitemoe", "granitemoeshared"),
        ("model.layers", "self_attn", "block_sparse_moe"),
    ),
    **NEW_STYLES,
}
STYLE = ("model.layers", "self_attn", "mlp")
WRAPPERS = ("model", "language_model.model", "model.language_model")
FUSED = ("qkv_proj", "c_attn", "query_key_value")
LEAVES = {  # weight -> names of its module, fused or under another style
    "attention output": ("o_proj", "c_proj", "dense", "out_proj"),
    "attention gate": ("g_proj", "gate_proj"),
    "q": ("q_proj",),
    "q down": ("q_a_proj",),
    "q up": ("q_b_proj",),
    "kv down": ("kv_a_proj_with_mqa",),
    "kv up": ("kv_b_proj",),
} | NEW_LEAVES
GATE = ("gate_proj", "gate_up_proj", "w1")
UP = ("up_proj", "gate_up_proj", "w3", "c_fc", "dense_h_to_4h", "fc1", "fc_in")
DOWN = ("down_proj", "c_proj", "w2", "dense_4h_to_h", "fc2", "fc_out")
EFFORT = 500_000_000  # steps that a list may take on the names of a model
PLAIN_EFFORT, MOST_LETTERS, MOST_PATTERNS = 60, 1000, 5000
# Of a regular expression: what repeats, of it runs of digits, and what may take for ever.
REPEATED = re.compile(r"(?:[*+]|\{\d*,\d*\}|(?<!\()\?)\??")
DIGITS = re.compile(r"(?:\\d|\[0-9\])(?:[*+?]|\{\d*,)")
UNBOUNDED = re.compile(r"\)[*+{]|\(\?P?[=<#(]|\\[1-9]")
PREDICTION = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
DRAFT = re.compile("eagle|medusa|speculator|draft|mtp|nextn", re.I)
GENERATES = re.compile("ForCausalLM|ForConditionalGeneration|LMHead|DoubleHeads|Chat")
TOWERS = {
    "vision": "vision tower",
    "visual": "vision tower",
    "audio": "audio tower",
    "speech": "audio tower",
    "talker": "talker",
}
ONE_LAYER = re.compile(r"(?:layers|h)\.(\d+)\.")  # a module of one layer, or a pattern for one


class Module(NamedTuple):
    """A matrix of a layer: its part, the names of its module in the layer, how many there are."""

    part: str
    names: tuple[str, ...]
    elements: int  # [element], of one copy
    copies: int


def modules(block, hidden, kind):
    """Matrices of a block that a recipe converts, as a list of `Module`."""
    _, mixer, feed = STYLES.get(kind, STYLE)
    parents = {
        "ffn": (feed,),
        "experts": (f"{feed}.experts",),
        "shared experts": (f"{feed}.shared_experts", f"{feed}.shared_expert"),
    } | (PLACES if block.routed else PLACES_DENSE).get(kind, {})
    found = []
    for weight in block.weights(hidden):
        if weight.matmul and weight.part in QUANTIZED and weight.n > 1:  # no gate of one row
            above = parents.get(weight.part, (_module(block.mixer, weight.part, mixer),))
            above = (feed,) if weight.name.startswith("latent ") else above
            for leaves, elements in _pieces(weight, block.mixer):
                if weight.name == "attention gate" and kind.startswith("qwen3"):
                    leaves = ("q_proj",)
                names = product(above, leaves)
                names = tuple(".".join(filter(None, pair)) for pair in names)
                found.append(Module(weight.part, names, elements, weight.stored))
    return found


def _module(mixer, part, usual):
    """Name of the module that holds the weights of a mixer."""
    return (mixer and mixer.module) or ("mamba" if part == "mamba" and usual == STYLE[1] else usual)


def _pieces(weight, mixer):
    """(names, elements) of the modules that a weight is stored as."""
    if weight.name == "qkv" and isinstance(mixer, SelfAttention):
        rows = {
            "q": mixer.num_heads * mixer.head_dim,
            "k": mixer.num_kv_heads * mixer.head_dim,
            "v": mixer.num_kv_heads * mixer.value_size * mixer.value_weight,
        }
        return [((f"{x}_proj", *FUSED), n * weight.k) for x, n in rows.items() if n]
    if weight.name == "linear qkv" and isinstance(mixer, KimiDelta | LightningAttention):
        return [((f"{x}_proj", *FUSED), weight.elements // 3) for x in "qkv"]
    last = weight.name.rpartition(" ")[2]
    if weight.name in LEAVES or weight.part in ("attention", "mamba") or last not in ("up", "down"):
        return [(LEAVES.get(weight.name, (weight.name.replace(" ", "_"),)), weight.elements)]
    if weight.name.startswith("gate and "):
        return [(GATE, weight.elements // 2), (UP, weight.elements // 2)]
    return [(UP if last == "up" else DOWN, weight.elements)]


class Rules:
    """Entries of a list of modules, each with what holds for the modules it names."""

    def __init__(self, read, key):
        self.read, self.key = read, key
        self.entries, self.plain, self.patterns = [], {}, []
        self.firsts, self.lasts, self.used, self.known = set(), set(), set(), {}
        self.individual, self.effort = False, PLAIN_EFFORT

    def add(self, entry, value, *, regex=False):
        """One more entry; the first of several that match a module holds."""
        self.entries.append(entry)
        if OUTSIDE.match(entry):
            self.used.add(entry)
            return
        self.individual |= bool(re.search(r"experts\D{0,20}\d", entry))
        if regex or entry.startswith("re:"):
            self._pattern(entry.removeprefix("re:"), value, entry)
        elif "*" in entry:
            start = re.sub(r"^[\w.]*?((?:layers|h)\.)", r"\1", entry[:MOST_LETTERS])
            texts = (f"{before}{start}{after}" for before, after in product(("", "*."), ("", ".*")))
            self._pattern("|".join(map(fnmatch.translate, texts)), value, entry, effort=60)
        else:
            name = _canonical(entry)
            self.plain.setdefault(name, (value, entry))
            self.firsts.add(name.partition(".")[0])
            self.lasts.add(name.rpartition(".")[2])

    def _pattern(self, text, value, entry, effort=None):
        """A pattern whose time is bounded: in it no group may be repeated."""
        if effort is None:
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
                only = None if entry.startswith("re:") else ONE_LAYER.search(entry)
                self.patterns.append((re.compile(text), value, entry, only))
        except (re.error, OverflowError, RecursionError, Warning):
            raise self._no_pattern(entry) from None

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

    def _found(self, names, heads):
        for name in names:
            for run in _runs(name, self.firsts, self.lasts):
                if run in self.plain:
                    value, entry = self.plain[run]
                    self.used.add(entry)
                    return value
        if not self.patterns:
            return None
        whole = (*names, *(f"{head}.{name}" for head in heads for name in names))
        held, layer = None, ONE_LAYER.search(names[0] + ".")
        for pattern, value, entry, only in self.patterns:
            if only and layer and only[1] != layer[1]:  # it names another layer
                continue
            if (held is None or entry not in self.used) and any(map(pattern.match, whole)):
                self.used.add(entry)
                held = value if held is None else held
        return held

    def check(self, layers, count):
        """Refuse patterns that take too long on so many names."""
        if self.effort * count > EFFORT:
            accepted = f"fewer names or simpler patterns for a model of {layers} layers"
            raise self.read.complain(self.key, accepted)

    def finish(self, layers):
        """Refuse an entry that names nothing of the model."""
        for entry in self.entries:
            if entry in self.used or UNTOUCHED.search(entry):
                continue
            layer = re.search(r"(?:layers|h)\.(\d+)", entry)
            if layer and int(layer[1][:9]) >= layers:  # an extra prediction layer
                continue
            raise self.read.complain_about(
                self.key,
                "names of modules of the model, as lm_head or model.layers.0.self_attn; without "
                "the quantization the parameters are counted all the same",
                entry,
            )


def _canonical(name):
    """A module's name from the word before its layer on."""
    start = re.search(r"(?:^|\.)((?:layers|h)\.\d+(?:\.|$))", name)
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

    def plain(self, part):
        """The recipe of a part of which no rule says anything."""
        return self.experts if self.experts and part == "experts" else self.rest


def quantization(read, sidecar, blocks, hidden, kind, *, headed):
    """Fields of a `Model` about number formats, as a dict: `quantization`, `formats`, `kv_cache`.

    Read from the `quantization_config` of a config and a `Reader` of the sidecar, either or None;
    `headed` says whether there is a head of its own.
    """
    sources = []
    if read.raw("quantization_config")[1] is not None:
        sources.append(read.inside("quantization_config"))
    if sidecar is not None:
        sources.append(sidecar)
    experts = _experts(read, sources)
    forms = [_formats(source)._replace(experts=experts) for source in sources]
    found = [_shares(form, blocks, hidden, kind, headed) for form in forms]
    names = [_main(shares) for shares in found]
    if names[1:] and names[0] != names[1]:
        raise ValueError(
            f"config key 'quantization_config' and {SIDECAR} must agree on the format, got "
            f"{names[0] or 'bf16'} and {names[1] or 'bf16'}"
        )
    fields = {"quantization": None, "kv_cache": _cache([read, *sources])}
    if names and names[0]:
        fields["quantization"] = names[0]
        fields["formats"] = tuple(
            (part, tuple((name, n / counts.total()) for name, n in counts.most_common()))
            for part, counts in found[0].items()
        )
    return fields


def _experts(read, sources):
    """Recipe of routed experts where a key of its own names their format, else None."""
    named = read.raw("expert_dtype")[1]
    if named not in (None, "fp4", "fp8", "bf16") or (named and not sources):
        like = "fp4, fp8 or bf16, beside a quantization_config" if named else "absent"
        raise read.complain("expert_dtype", like)
    return {"fp4": "mxfp4_w4a8", "bf16": "bf16"}.get(named)


def _main(shares):
    """The recipe of the most parameters, None where all are in BF16."""
    total = sum(shares.values(), Counter())
    del total["bf16"]
    return total.most_common(1)[0][0] if total else None


def _shares(formats, blocks, hidden, kind, headed):
    """Elements of each part in each recipe, as a dict of `Counter`s."""
    found, layers = defaultdict(Counter), len(blocks)
    made = {block: modules(block, hidden, kind) for block in dict.fromkeys(blocks)}
    heads, word = _heads(kind)
    for rules in formats.rules:
        each = {block: _names_to_look_at(made[block], rules) for block in made}
        rules.check(layers, sum(each[block] for block in blocks) * (1 + len(heads)))
    per_layer = PER_LAYER.get(kind, 1)
    for i, block in enumerate(blocks):
        layer = f"{word}.{i // per_layer}"
        for module in made[block]:
            for recipe, copies in _stored(formats, module, layer, heads).items():
                found[module.part][recipe] += module.elements * copies
    for rules in formats.rules:
        for name, (recipe, _) in rules.plain.items():
            if headed and name.rpartition(".")[2] == "lm_head" and recipe != "bf16":
                found["head"][recipe] = 1
        rules.finish(layers)
    return dict(found)


def _heads(kind):
    """(what may stand before the word for a layer, that word)."""
    path, word = STYLES.get(kind, STYLE)[0].rsplit(".", 1)
    return tuple(dict.fromkeys((path, *WRAPPERS))), word


def _names_to_look_at(found, rules):
    """Names of modules that rules look at, experts one by one where a rule names one."""
    return sum(len(m.names) * (m.copies if rules.individual else 1) for m in found)


def _stored(formats, module, layer, heads):
    """How many copies of a module are stored in each recipe, as a `Counter`."""
    if not formats.rules:
        return Counter({formats.plain(module.part): module.copies})
    one_by_one = module.copies > 1 and any(rules.individual for rules in formats.rules)
    found = Counter()
    for expert in range(module.copies if one_by_one else 1):
        recipe = None
        for rules in formats.rules:
            names = _names(module, layer, expert if rules.individual else 0)
            recipe = recipe or rules.value(names, heads)
        found[recipe or formats.plain(module.part)] += 1 if one_by_one else module.copies
    return found


def _names(module, layer, expert):
    """Names of a module from its layer on."""
    if module.copies == 1:
        return tuple(f"{layer}.{name}" for name in module.names)
    parts = (name.rpartition(".") for name in module.names)
    return tuple(f"{layer}.{parent}.{expert}.{leaf}" for parent, _, leaf in parts)


def _formats(quant):
    """`Formats` of a quantization config or a sidecar."""
    inner = quant.inside("quantization") if quant.values.get("quantization") else quant
    method, algo = quant.raw("quant_method")[1], inner.raw("quant_algo")[1]
    if method is None and algo is not None:
        method = "modelopt"
    mixed = algo == "MIXED_PRECISION"
    if mixed and method in ("modelopt", "fp8"):
        rest = _float(quant) if method == "fp8" else "bf16"
        kept = () if method == "fp8" else _kept(inner)  # what is no NVFP4 there stays FP8
        return Formats(rest, (*kept, _layers(inner)))
    if method in FLOATS:
        return Formats(_float(quant), _kept(inner))
    if method == "mxfp4":
        return Formats("mxfp4", _kept(inner))
    if method == "modelopt" and isinstance(algo, str) and algo in ALGORITHMS:
        return Formats(ALGORITHMS[algo], _kept(inner))
    if method in INTEGERS:
        bits = quant.raw("bits", "w_bit")[1]
        size = quant.raw("group_size", "q_group_size")[1]
        rest = _integer(quant, bits, size)
        return Formats(rest, (*_kept(inner), *_dynamic(quant, bits, size)))
    if method == "compressed-tensors":
        return _groups(inner)
    accepted = (
        f"{', '.join(FLOATS)}, mxfp4, modelopt (with a quant_algo), compressed-tensors, "
        f"{' or '.join(INTEGERS)}"
    )
    if method == "modelopt":
        raise inner.complain("quant_algo", f"MIXED_PRECISION or one of {', '.join(ALGORITHMS)}")
    raise quant.complain("quant_method", accepted)


def _float(quant):
    block = quant.raw("weight_block_size")[1]
    if block not in (None, [128, 128]):
        raise quant.complain("weight_block_size", "[128, 128] or absent")
    return "fp8_block" if block else "fp8"


def _integer(quant, bits, size):
    """Recipe of AWQ and GPTQ: integers in groups, multiplied in BF16."""
    if type(bits) is not int or bits not in (4, 8):
        raise quant.complain("bits", "4 or 8")
    if type(size) is not int or size not in GROUPED:
        raise quant.complain("group_size", f"one of {', '.join(map(str, GROUPED))}")
    return _grouped(bits, size)


def _grouped(bits, size):
    name = f"w{bits}a16{GROUPED[size]}"
    return "w4a16" if name == "w4a16_g128" else name


def _kept(quant):
    """Rules about the modules that stay in BF16."""
    found = []
    for key in LISTS:
        rules = Rules(quant, key)
        for entry in quant.items(key, str, "names of modules") or []:
            rules.add(entry, "bf16")
        if rules.entries:
            found.append(rules)
    return tuple(found)


def _dynamic(quant, bits, size):
    """Rules of GPTQModel: regular expressions with other bits and groups, or after ``-:`` none."""
    if not quant.raw("dynamic")[1]:
        return ()
    inner, rules = quant.inside("dynamic"), Rules(quant, "dynamic")
    for entry in inner.values:
        if entry.startswith("-:"):
            rules.add(entry.removeprefix("-:"), "bf16", regex=True)
            continue
        own = inner.inside(entry)
        own.values = {"bits": bits, "group_size": size, **own.values}
        recipe = _integer(own, own.values["bits"], own.values["group_size"])
        rules.add(entry.removeprefix("+:"), recipe, regex=True)
    return (rules,)


def _layers(quant):
    """Rules of a mixed checkpoint: the algorithm of each module."""
    listed, rules = quant.inside("quantized_layers"), Rules(quant, "quantized_layers")
    for entry, said in listed.values.items():
        algo = said.get("quant_algo") if isinstance(said, dict) else None
        if not isinstance(algo, str) or algo not in ALGORITHMS:
            like = f"objects with a quant_algo out of {', '.join(ALGORITHMS)}"
            raise listed.complain(entry, like)
        rules.add(entry, ALGORITHMS[algo])
    return rules


def _groups(quant):
    """`Formats` of compressed-tensors: groups of modules, and what is ignored."""
    listed, rules, rest = quant.inside("config_groups"), Rules(quant, "config_groups"), "bf16"
    for name in listed.values:
        group = listed.inside(name)
        recipe = _group(group)
        for target in group.items("targets", str, "names of modules") or ["Linear"]:
            if target == "Linear":
                rest = recipe
            else:
                rules.add(target, recipe)
    return Formats(rest, (*_kept(quant), rules))


def _group(group):
    """Recipe of a group: the format of its weights, and whether its inputs are converted, too."""
    weights = group.inside("weights")
    given = weights.raw("num_bits")[1], weights.raw("type")[1]
    size, strategy = weights.integer("group_size", default=-1, least=-1), weights.raw("strategy")[1]
    alone = group.raw("input_activations")[1] is None
    inputs = None if alone else group.inside("input_activations").raw("num_bits")[1]
    alike = alone or inputs == given[0]  # no 8-bit inputs of 4-bit weights
    if given == (8, "float") and alike:
        block = weights.raw("block_structure")[1]
        if strategy == "block" and block in (None, [128, 128], "128x128"):
            return "fp8_block_w8a16" if alone else "fp8_block"
        if strategy in (None, "group") and size == 32 and not alone:
            return "mxfp8"
        if strategy in ("tensor", "channel") or (strategy is None and size == -1):
            return "fp8_w8a16" if alone else "fp8"
    if given == (4, "float") and size in (16, 32) and alike:
        return ("nvfp4" if size == 16 else "mxfp4") + ("_w4a16" if alone else "")
    if given[1] == "int" and given[0] in (4, 8):
        size = -1 if strategy in ("tensor", "channel") else size
        if alone and size in GROUPED:
            return _grouped(given[0], size)
        if given[0] == 8 and size == -1 and alike:
            return "int8"
    raise group.complain(
        "weights",
        "8 or 4 bits of type float (per tensor or channel, blocks of 128 x 128, groups of 16 or "
        "32) or int (per channel, groups of 32, 64 or 128; with inputs only 8 bits a channel), and "
        "inputs of as many bits or none",
    )


def _cache(sources):
    """Format of the cache that config or sidecar name; None where they name none."""
    named = {}
    for read in sources:  # the config itself, then what it or the sidecar says of quantization
        nested = read is not sources[0] and read.values.get("quantization")
        inner = read.inside("quantization") if nested else read
        for key in ("kv_cache_quant_algo", "kv_cache_scheme", "kv_cache_dtype"):
            value = inner.raw(key)[1]
            if isinstance(value, dict):
                kind = "fp" if value.get("type") == "float" else value.get("type")
                value = f"{kind}{value.get('num_bits')}".replace("fp4", "nvfp4")
            if value is None:
                continue
            if not isinstance(value, str) or value.lower() not in CACHES:
                raise inner.complain(key, f"one of {', '.join(CACHES)}")
            if CACHES[value.lower()]:
                named[inner.where + key] = CACHES[value.lower()]
    if len(set(named.values())) > 1:
        said = " and ".join(f"{key!r} = {value}" for key, value in named.items())
        raise ValueError(f"config keys {said} contradict each other: give one of them")
    return next(iter(named.values()), None)


def head(outer, inner, *, pooled=False):
    """Fields of a `Model` about its head, and what is left out of it, by its `architectures`.

    A checkpoint that is read by a class without a language-model head has none; `pooled` says that
    its folder is that of an embedding model. A draft model is refused.
    """
    names = []
    inner.used.update(("id2label", "num_labels"))  # of a classifier alone
    for read in (outer, inner):
        for name in read.items("architectures", str, "names of classes") or []:
            if DRAFT.search(name):
                raise read.complain(
                    "architectures",
                    "the class of a whole model: a draft for speculative decoding takes the "
                    "hidden states of another one, and is not counted",
                )
            names.append(name)
    if "draft_vocab_size" in inner.values:
        raise inner.complain("draft_vocab_size", "absent: a draft model is not counted")
    last = names[-1] if names else ""
    whole = any(map(GENERATES.search, names)) or not re.search(r"(Model|For[A-Z]\w*)$", last)
    if whole and not pooled:
        return {}, []
    if last.endswith("ForSequenceClassification"):
        return {"lm_head": False, "labels": _labels(inner)}, []
    if re.search(r"For[A-Z]", last) and not re.search("Embedding|ForCausalLM|Retrieval", last):
        return {"lm_head": False}, ["the head of its task"]
    return {"lm_head": False}, []


def _labels(read):
    """Rows of a classifier: as many as there are labels, 2 where none are named."""
    labels = read.raw("id2label")[1]
    if isinstance(labels, dict) and labels:
        return len(labels)
    return read.integer("num_labels", default=2)


def left_out(outer, inner, blocks, hidden, prediction=None):
    """What the checkpoint holds besides, and no count includes, as a list of texts; `prediction`
    are the parameters of a prediction layer where a reader knows them [element].
    """
    found = []
    if layers := inner.integer(*PREDICTION, default=0, least=0):
        text = f"{layers} prediction layer{'s' if layers > 1 else ''}"
        if prediction is None and isinstance(blocks[-1].mixer, LatentAttention):
            prediction = prediction_parameters(hidden, blocks[-1])
        if prediction:
            text += f" ({layers * prediction:,} parameters)"
        found.append(text)
    levels = (outer.values, outer.values.get("thinker_config") or {}, inner.values)
    keys = {key for values in levels for key, value in values.items() if value}
    towers = [name for word, name in TOWERS.items() if {word, f"{word}_config"} & keys]
    return found + list(dict.fromkeys(towers))
