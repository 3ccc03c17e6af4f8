"""What a checkpoint says of itself besides its sizes: the number formats of its matrices and of its
cache, which head it has, and what is in it that no count includes.

Where the config is in order, but no config tells how many bytes are stored (a method whose codes
depend on the weights, a list that names no module), the model says so and why, and its parameters
are counted all the same. Sources: those of `hwdesign.models.quantization_methods`.
"""

import re
from collections import Counter, defaultdict
from itertools import product
from typing import NamedTuple

from hwdesign.models.blocks import SelfAttention
from hwdesign.models.latent import LatentAttention
from hwdesign.models.linear import KimiDelta, LightningAttention
from hwdesign.models.module_names import NEW_LEAVES, NEW_STYLES, PER_LAYER, PLACES, PLACES_DENSE
from hwdesign.models.module_rules import UnknownBytes
from hwdesign.models.parts import QUANTIZED
from hwdesign.models.quantization_methods import cache_of, formats_of, method_of
from hwdesign.models.reading import prediction_parameters

SIDECAR = "hf_quant_config.json"  # what ModelOpt writes beside a config.json
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
LEAVES = (
    {  # weight -> names of its module, fused or under another style
        "attention output": ("o_proj", "c_proj", "dense", "out_proj"),
        "attention gate": ("g_proj", "gate_proj"),
        "q": ("q_proj",),
        "q down": ("q_a_proj",),
        "q up": ("q_b_proj",),
        "kv down": ("kv_a_proj_with_mqa",),
        "kv up": ("kv_b_proj",),
    }
    | NEW_LEAVES
    | {
        "router": ("gate", "router", "proj", "wg"),
        "shared gate": ("shared_expert_gate",),
    }
)
OUTER = {  # part outside the blocks -> names of its module
    "head": ("lm_head", "head", "output"),
    "embedding": ("model.embed_tokens", "embed_tokens", "wte", "word_embeddings", "embeddings"),
}
GATE = ("gate_proj", "gate_up_proj", "w1")
UP = ("up_proj", "gate_up_proj", "w3", "c_fc", "dense_h_to_4h", "fc1", "fc_in")
DOWN = ("down_proj", "c_proj", "w2", "dense_4h_to_h", "fc2", "fc_out")
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


class Module(NamedTuple):
    """A matrix of a layer: its part, the names of its module in the layer, how many there are."""

    part: str
    names: tuple[str, ...]
    elements: int  # [element], of one copy
    copies: int
    inputs: int  # [element]


def modules(block, hidden, kind, more=()):
    """Matrices of a block that a recipe converts, as a list of `Module`; where `more` names parts,
    theirs and gates of one row, too.
    """
    _, mixer, feed = STYLES.get(kind, STYLE)
    parents = {
        "ffn": (feed,),
        "experts": (f"{feed}.experts", f"{feed}.switch_mlp"),
        "router": (feed, f"{feed}.router"),
        "shared experts": (f"{feed}.shared_experts", f"{feed}.shared_expert"),
    } | (PLACES if block.routed else PLACES_DENSE).get(kind, {})
    found = []
    for weight in block.weights(hidden):
        usual = weight.part in QUANTIZED and weight.n > 1  # no gate of one row
        if weight.matmul and (usual or (more and (weight.n == 1 or weight.part in more))):
            above = parents.get(weight.part, (_module(block.mixer, weight.part, mixer),))
            above = (feed,) if weight.name.startswith(("latent ", "shared gate")) else above
            for leaves, elements in _pieces(weight, block.mixer):
                if weight.name == "attention gate" and kind.startswith("qwen3"):
                    leaves = ("q_proj",)
                names = product(above, leaves)
                names = tuple(".".join(filter(None, pair)) for pair in names)
                found.append(Module(weight.part, names, elements, weight.stored, weight.k))
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


def quantization(read, sidecar, blocks, hidden, kind, *, headed):
    """Fields of a `Model` about number formats, as a dict: `quantization`, `formats`, `kv_cache`,
    `quant_method`, `bytes_unknown`.

    Read from what a config says of quantization and a `Reader` of the sidecar, either or None;
    `headed` says whether there is a head of its own.
    """
    sources = [read.inside(key) for key in _said(read)]
    if sidecar is not None:
        sources.append(sidecar)
    fields = {"quantization": None, "kv_cache": _cache([read, *sources])}
    if sources:
        fields["quant_method"] = method_of(sources[0])
    experts = _experts(read, sources)
    try:
        found = [
            _stored_shares(source, experts, blocks, hidden, kind, headed) for source in sources
        ]
    except UnknownBytes as why:
        return fields | {"bytes_unknown": str(why)}
    names = [_main(shares) for shares in found]
    if names[1:] and names[0] != names[1]:
        raise ValueError(
            f"config key 'quantization_config' and {SIDECAR} must agree on the format, got "
            f"{names[0] or 'bf16'} and {names[1] or 'bf16'}"
        )
    if names and names[0]:
        fields["quantization"] = names[0]
        fields["formats"] = tuple(
            (part, tuple((name, n / counts.total()) for name, n in counts.most_common()))
            for part, counts in found[0].items()
        )
    return fields


def _said(read):
    """The keys of a config that say something of quantization, once where two say the same."""
    keys = ("quantization_config", "quantization")
    found = [key for key in keys if read.raw(key)[1] is not None]
    if found[1:] and read.values[found[0]] != read.values[found[1]]:
        raise ValueError(
            f"config keys {read.where + found[0]!r} and {read.where + found[1]!r} contradict each "
            "other: give one of them, or the same value"
        )
    return found[:1]


def _stored_shares(source, experts, blocks, hidden, kind, headed):
    """`_shares` by a source."""
    form = formats_of(source, kind, routed=any(block.routed for block in blocks))
    return _shares(form._replace(experts=experts), blocks, hidden, kind, headed)


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
    more = ("router",) if formats.router else ()
    made = {block: modules(block, hidden, kind, more) for block in dict.fromkeys(blocks)}
    heads, word = _heads(kind)
    for rules in formats.rules:
        each = {block: _names_to_look_at(made[block], rules) for block in made}
        rules.check(layers, sum(each[block] for block in blocks) * (1 + len(heads)))
    per_layer, alike = PER_LAYER.get(kind, 1), {}
    for i, block in enumerate(blocks):
        number, own = str(i // per_layer), made[block]
        key = id(own), *(rules.likeness(number) for rules in formats.rules)
        if key not in alike:
            alike[key] = number, _block_shares(formats, own, f"{word}.{number}", heads)
        other, shares = alike[key]
        for rules in formats.rules:
            rules.use_alike(number, other)
        for part, recipe, elements in shares:
            found[part][recipe] += elements
    for part, names in OUTER.items():
        recipe = _outside(formats, part, names, heads) if hidden % formats.divisor == 0 else "bf16"
        if recipe != "bf16" and (headed or part == "embedding"):
            found[part][recipe] = 1
    if found["embedding"] and not headed:
        found["head"] = found["embedding"]  # the same matrix
    for rules in formats.rules:
        rules.finish(layers)
    return {part: counts for part, counts in found.items() if counts}


def _block_shares(formats, found, layer, heads):
    """(part, recipe, elements) of the modules of a block."""
    shares = []
    for module in found:
        whole = module.inputs % formats.divisor == 0
        stored = _stored(formats, module, layer, heads) if whole else {"bf16": module.copies}
        shares += [(module.part, name, module.elements * n) for name, n in stored.items()]
    return shares


def _outside(formats, part, names, heads):
    """Recipe of a matrix outside the blocks."""
    said = (rules.outside(names, ("model", *heads)) for rules in formats.rules)
    return next(filter(None, said), None) or formats.plain(part)


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
        if read is not sources[0] and (form := cache_of(read)):
            named[read.where + "kv_cache_group"] = form
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
        if prediction is None and isinstance(blocks[-1].mixer, LatentAttention):
            prediction = prediction_parameters(hidden, blocks[-1])
        found.append(prediction_words(layers, prediction))
    levels = (outer.values, outer.values.get("thinker_config") or {}, inner.values)
    keys = {key for values in levels for key, value in values.items() if value}
    towers = [name for word, name in TOWERS.items() if {word, f"{word}_config"} & keys]
    return found + list(dict.fromkeys(towers))


def prediction_words(layers, each=None):
    """What is said of so many prediction layers that are left out, with the parameters of `each`
    where they are known [element].

    >>> prediction_words(2, 1000)
    '2 prediction layers (2,000 parameters)'
    """
    text = f"{layers} prediction layer{'s' if layers > 1 else ''}"
    return f"{text} ({layers * each:,} parameters)" if each else text
