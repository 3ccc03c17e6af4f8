"""A config written anew, so that it reads back as another model: few keys change, all else stays.

No table says which key of which architecture carries a size. A key that may carry it is changed,
the config is read, and it is taken if the model is the wanted one. Source: the readers of this
package.
"""

import copy
import functools
import itertools
import re
from dataclasses import fields, is_dataclass, replace
from typing import NamedTuple

from hwdesign._check import instance
from hwdesign.models import config as reader
from hwdesign.models.architectures import ALIASES, DEFAULTS
from hwdesign.models.blocks_text import blocks_of
from hwdesign.models.model import Model, need_model
from hwdesign.models.reading import BLOCKS_KEY, EXPERTS, NESTED, TOP_K, refusal

LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
# Layers before which something holds: they move with the layers.
LEADING = (
    "first_k_dense_replace",
    "num_dense_layers",
    "moe_layer_start_index",
    "dense_mlp_idx",
    "max_window_layers",
    "num_hash_layers",
)
# Size of a model or of a part of a block -> keys that may carry it, the usual one first.
KEYS = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "n_embed"),
    "vocab_size": ("vocab_size", "padded_vocab_size", "unpadded_vocab_size"),
    "num_heads": (
        "num_attention_heads",
        "n_head",
        "n_heads",
        "num_heads",
        "num_attention_heads_per_layer",
        "num_sliding_attention_heads",
        "swa_num_attention_heads",
        "attention_heads",
        "mamba_num_heads",
        "mamba_n_heads",
        "n_mamba_heads",
        "linear_num_value_heads",
        "linear_num_heads",
    ),
    "num_kv_heads": (
        "num_key_value_heads",
        "n_head_kv",
        "num_kv_heads",
        "num_query_groups",
        "num_attention_groups",
        "multi_query_group_num",
        "num_global_key_value_heads",
        "swa_num_key_value_heads",
        "kv_n_heads",
        "n_heads_in_group",
    ),
    "head_dim": (
        "head_dim",
        "attention_head_dim",
        "kv_channels",
        "swa_head_dim",
        "global_head_dim",
        "mamba_head_dim",
        "mamba_d_head",
        "linear_value_head_dim",
        "linear_head_dim",
    ),
    "value_dim": ("v_head_dim", "swa_v_head_dim"),
    "v_dim": ("v_head_dim",),
    "key_heads": ("linear_num_key_heads",),
    "key_dim": ("linear_key_head_dim",),
    "q_rank": ("q_lora_rank",),
    "kv_rank": ("kv_lora_rank",),
    "groups": ("n_groups", "mamba_n_groups", "mamba_ngroups"),
    "index_heads": ("index_n_heads", "indexer_n_heads", "sparse_num_index_heads"),
    "indexer.num_heads": ("index_n_heads", "indexer_n_heads", "sparse_num_index_heads"),
    "width": (
        "intermediate_size",
        "moe_intermediate_size",
        "n_inner",
        "ffn_dim",
        "ffn_hidden_size",
        "intermediate_size_mlp",
        "dense_intermediate_size",
        "prefix_dense_intermediate_size",
        "mlp_intermediate_size",
        "expert_ffn_hidden_size",
        "expert_hidden_dim",
        "moe_hidden_size",
        "block_ff_dim",
        "ffn_mult",
        "dff",
    ),
    "shared_width": (
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "shared_experts_intermediate_size",
        "shared_intermediate_size",
        "share_expert_dim",
        "share_expert_dims",
        "n_shared_experts",
        "num_shared_experts",
        "num_shared_expert",
        "moe_num_shared_experts",
        "intermediate_size",
    ),
    "num_experts": EXPERTS,
    "top_k": TOP_K,
    "latent": ("moe_latent_size", "routed_expert_hidden_size"),
}
# Keys that may be added besides those whose default is known -> model types whose code reads them:
# what it falls back on is derived from other sizes (modeling_*.py in transformers).
ADDED = {
    "head_dim": (
        "cohere",
        "granite",
        "granitemoe",
        "llama",
        "mistral",
        "mixtral",
        "nemotron-nas",
        "olmo",
        "olmo2",
        "phi3",
        "qwen2",
        "qwen2_moe",
        "smollm3",
        "starcoder2",
    ),
    "n_inner": ("codegen", "gpt2", "gpt_bigcode", "gptj"),
    "num_key_value_heads": ("llama", "mistral", "olmo", "olmo2", "phi3", "qwen2"),
}
WORDS = {  # where a field's name is not what people call it
    "num_heads": "heads",
    "num_kv_heads": "key-value heads",
    "head_dim": "head size",
    "value_dim": "size of a value",
    "v_dim": "size of a value",
    "key_dim": "size of a key",
    "q_rank": "query latent",
    "kv_rank": "latent",
    "width": "feed-forward width",
    "shared_width": "shared expert width",
    "num_experts": "experts",
    "top_k": "experts per token",
    "latent": "expert latent",
}
# Objects and lists of a config that say nothing about the blocks.
APART = re.compile(f"^_|quant|rope|token|{reader.SIDE.pattern}", re.I)
INDICES = re.compile("layer|idx|indices|block", re.I)  # keys of lists of layer numbers
OUTSIDE = (  # fields of a model besides its blocks that must be as wanted
    "hidden_size",
    "vocab_size",
    "tied_embeddings",
    "positions",
    "norm_bias",
    "embedding_norm",
    "final_norm",
    "head_bias",
    "lm_head",
    "labels",
    "closing",
    "embedding_size",
)
TOWERS = ("out_hidden_size", "text_hidden_size")  # keys of a tower for the model that it feeds
MOST_READS = 60  # of a config while it is written
ROUNDS = 4  # of changes, each where the one before left a difference
WAY_ON = "write it as blocks (hwdesign show --format blocks)"


class _Need(NamedTuple):
    """A size that differs: its field, before and after, and in which layers; none of them where it
    is one of the model.
    """

    size: str
    old: int | None
    new: int | None
    layers: frozenset = frozenset()

    @property
    def keys(self):
        """Keys that may carry it."""
        return KEYS.get(self.size) or KEYS[self.size.rpartition(".")[2]]

    @property
    def words(self):
        """What differs, in words."""
        name = self.size.rpartition(".")[2]
        if self.old == self.new:
            return f"the order of the {self.old} layers"
        return f"{WORDS.get(name, name.replace('_', ' '))} {self.old} -> {self.new}"


def rewritten(config, model, wanted):
    """A config that reads back as another model, with as few keys changed as possible.

    Parameters
    ----------
    config : dict
        A parsed config.json or file of blocks; it is not changed.
    model : Model
        What it reads as; sizes in [element].
    wanted : Model
        What it is to read as; names and stored formats are not looked at.

    Returns
    -------
    dict
        The new config. Keys that stay keep their values, order and nesting; a file of blocks is
        written anew as blocks.

    Raises
    ------
    ValueError
        If the config is not that of `model`, or a size cannot be written; the message names it and
        the way on.

    Notes
    -----
    Source: the readers of this package, by which each attempt is read.

    Examples
    --------
    >>> from dataclasses import replace
    >>> config = {
    ...     "model_type": "gpt2",
    ...     "n_embd": 768,
    ...     "n_layer": 12,
    ...     "n_head": 12,
    ...     "n_positions": 1024,
    ...     "vocab_size": 50257,
    ... }
    >>> model = reader.load(config)
    >>> rewritten(config, model, replace(model, vocab_size=50304))["vocab_size"]
    50304
    """
    return _Writer(config, model, wanted).exact()


def nearest(config, model, wanted):
    """A config as `rewritten` gives it, or, where that is none, one with the wanted sizes in which
    others had to move with them, as the width of shared experts that is so many times that of one.

    Parameters
    ----------
    config : dict
        A parsed config.json or file of blocks.
    model, wanted : Model
        What it reads as, and what it is to read as; sizes in [element].

    Returns
    -------
    tuple of (dict, Model)
        The new config and the model that it reads as.

    Raises
    ------
    ValueError
        As of `rewritten`.

    Notes
    -----
    Source: see `rewritten`.

    Examples
    --------
    >>> import json
    >>> config = json.loads((reader.SHIPPED / "qwen2.5-7b.json").read_text())
    >>> model = reader.load(config)
    >>> nearest(config, model, replace(model, hidden_size=3840))[1].hidden_size
    3840
    """
    writer = _Writer(config, model, wanted)
    try:
        found = writer.exact()
    except ValueError:
        if not writer.partial:
            raise
        return writer.partial[0]
    return found, _as_read(reader.load(found), wanted)


def _as_read(read, wanted):
    """A model that was read, by the name of the wanted one; stored formats are those of the config
    where this says any.
    """
    if read.quantization != wanted.quantization:  # another file beside it says them
        names = ("quantization", "formats", "quant_method", "bytes_unknown", "kv_cache")
        read = replace(read, **{name: getattr(wanted, name) for name in names})
    return replace(read, name=wanted.name, max_positions=wanted.max_positions)


class _Writer:
    """The search for the keys that make a config read as a wanted model."""

    def __init__(self, config, model, wanted):
        instance("config", config, dict, "a parsed config.json")
        need_model(model)
        instance("wanted", wanted, Model, "a Model")
        self.config, self.wanted, self.partial, self.reads = config, wanted, [], 0
        self.base = reader.load(config)
        self.kept = {name: getattr(self.base, name) for name in ("quantization", "kv_cache")}
        if not _alike(self.base, model):
            raise ValueError(
                f"config must be that of model, got one of {self.base.parameters} parameters and a "
                f"model of {model.parameters}"
            )

    def exact(self):
        """The config of exactly the wanted model."""
        if self._done(self.base):
            return copy.deepcopy(self.config)
        if BLOCKS_KEY in self.config or "blocks" in self.config:
            return self._as_blocks()
        found = self._explored(self.config, self.base, ROUNDS)
        if found is None:
            raise self._refusal()
        return found

    def _refusal(self):
        needs = _needs(self.base, self.wanted)
        told = ", ".join(need.words for need in needs[:3]) or "what is between the blocks"
        return refusal(
            f"config must have keys that say {told}, and nothing else with them: {WAY_ON}",
            *(need.keys[0] for need in needs if need.size != "layers"),
        )

    def _as_blocks(self):
        """A file of blocks anew; notes of its writer stay."""
        found = blocks_of(replace(self.wanted, **self.kept))
        if "name" in self.config:
            found["name"] = self.config["name"]
        else:
            del found["name"]
        notes = {key: copy.deepcopy(v) for key, v in self.config.items() if key.startswith("_")}
        found = {key: found[key] for key in (BLOCKS_KEY, *found) if key in found} | notes
        if not self._done(reader.load(found)):
            raise self._refusal()
        return found

    def _done(self, read):
        """Whether a model that was read is the wanted one."""
        kept = all(getattr(read, name) == value for name, value in self.kept.items())
        return kept and _alike(read, self.wanted)

    def _explored(self, config, now, rounds):
        """The config after the change of few keys; None where nothing was found."""
        needs, loaded = _needs(now, self.wanted), []
        for edits in _changes(config, now, self.wanted, needs):
            made = _edited(config, edits)
            read = self._read(made)
            if read is None:
                continue
            if self._done(read):
                return made
            loaded.append((made, read))
            if now is self.base and _met(read, needs, self.wanted):
                self.partial.append((made, _as_read(read, self.wanted)))
        for made, read in loaded[:ROUNDS] if rounds else ():
            found = self._explored(made, read, rounds - 1)
            if found is not None:
                return found
        return None

    def _read(self, config):
        """The model of a config, None where a reader refuses it or too many were read."""
        self.reads += 1
        if self.reads > MOST_READS:
            return None
        try:
            return reader.load(config)
        except ValueError:
            return None


def _alike(model, other):
    """Whether two models have the same blocks and sizes."""
    if any(getattr(model, name) != getattr(other, name) for name in OUTSIDE):
        return False
    return model.blocks == other.blocks


@functools.lru_cache(maxsize=4096)
def _flat(part, before=""):
    """Sizes of a block or a part by name, as a dict, and all else that it is, as a tuple."""
    sizes, rest = {}, [type(part).__name__]
    for field in fields(part):
        name, value = before + field.name, getattr(part, field.name)
        if is_dataclass(value):
            inside, more = _flat(value, f"{name}.")
            sizes |= inside
            rest.append(more)
        elif (field.name in KEYS or name in KEYS) and not isinstance(value, bool | str):
            sizes[name] = value
        else:
            rest.append(value)
    return sizes, tuple(rest)


def _needs(now, wanted):
    """What differs between two models: the layers, else sizes."""
    pairs = list(zip(now.blocks, wanted.blocks, strict=False))
    same = {old: _flat(old)[1] for old in now.block_counts}
    kinds = {new: _flat(new)[1] for new in wanted.block_counts}
    if len(now.blocks) != len(wanted.blocks) or any(same[old] != kinds[new] for old, new in pairs):
        return [_Need("layers", len(now.blocks), len(wanted.blocks))]
    found = {}
    for name in ("hidden_size", "vocab_size"):
        if getattr(now, name) != getattr(wanted, name):
            found[name, getattr(now, name), getattr(wanted, name)] = []
    for layer, (old, new) in enumerate(pairs):
        if old != new:
            before, after = _flat(old)[0], _flat(new)[0]
            for name in before:
                if before[name] != after[name]:
                    size = name.partition(".")[2]  # without mixer or ffn
                    key = size.rpartition(".")[2] if size not in KEYS else size
                    found.setdefault((key, before[name], after[name]), []).append(layer)
    return [_Need(*key, frozenset(layers)) for key, layers in found.items()]


def _met(read, needs, wanted):
    """Whether a model has what was needed, whatever moved with it."""
    if len(read.blocks) != len(wanted.blocks):
        return False
    left = _needs(read, wanted)
    if any(need.size == "layers" for need in left):
        return False
    asked = {(need.size, need.new) for need in needs}
    return not any((need.size, need.new) in asked for need in left)


def _changes(config, now, wanted, needs):
    """Changes of a config that may meet the needs, those of few keys first; each a dict of a path
    to a value.
    """
    place = _language_place(config)
    if any(need.size == "layers" for need in needs):
        yield from sorted(_layer_changes(config, place, now, wanted), key=len)
        return
    # What no key carries may move with what another one carries.
    choices = [_size_changes(config, place, need, len(now.blocks)) or [{}] for need in needs]
    if pin := _head_size(config, place, needs, wanted):
        choices.append([{}, pin])
    found = []
    for chosen in itertools.islice(itertools.product(*choices), MOST_READS):
        edits = {}
        for edit in chosen:
            edits |= edit
        if edits:
            found.append(edits)
    yield from sorted(found, key=len)


def _head_size(config, place, needs, wanted):
    """The size of a head as a key where none says it, so that other sizes do not move it."""
    inner = _at(config, place)
    if not {"num_heads", "hidden_size"} & {need.size for need in needs}:
        return None
    if any(inner.get(key) is not None for key in KEYS["head_dim"]) or not _may_add(
        inner, "head_dim"
    ):
        return None
    sizes = {getattr(block.mixer, "head_dim", None) for block in wanted.block_counts} - {None}
    return {(*place, "head_dim"): sizes.pop()} if len(sizes) == 1 else None


def _language_place(config):
    """Where the language model stands in a config, as a path."""
    place = ()
    while nest := [key for key in NESTED if isinstance(_at(config, place).get(key), dict)]:
        place = (*place, nest[0])
    return place


def _at(config, path):
    """What stands at a path."""
    for key in path:
        config = config[key]
    return config


def _edited(config, edits):
    """A copy of a config with other values at some paths."""
    made = copy.deepcopy(config)
    for path, value in edits.items():
        _at(made, path[:-1])[path[-1]] = value
    return made


def _places(values, path):
    """(path, value) of what stands in a config, without what says nothing about blocks."""
    for key, value in values.items():
        if APART.search(str(key)):
            continue
        here = (*path, key)
        if isinstance(value, dict):
            yield from _places(value, here)
        elif isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
            for index, inside in enumerate(value):
                yield from _places(inside, (*here, index))
        else:
            yield here, value


def _size_changes(config, place, need, layers):
    """Changes that may write a size: of one key, of all that carry it, or of one that is added."""
    inner, equal, derived = _at(config, place), {}, {}
    for path, value in _places(inner, place):
        if path[-1] not in need.keys:
            continue
        index = next((step for step in path if isinstance(step, int)), None)
        if index is not None and need.layers and index not in need.layers:
            continue
        new, same = _new_value(path[-1], value, need, layers)
        if new is not None:
            named = tuple(step for step in path if not isinstance(step, int))
            (equal if same else derived).setdefault(named, {})[path] = new
    found = [{**edit, **_outside(config, place, edit, need)} for edit in equal.values()]
    if found[1:]:
        found.append({path: new for edit in found for path, new in edit.items()})
    found += derived.values()
    if need.size == "num_heads" and inner.get("kv_lora_rank"):
        found = [edit | _latent_heads(inner, place, need) for edit in found]
    if need.size == "hidden_size":
        found = [edit | _towers(config, need, len(place)) for edit in found]
    absent = [key for key in need.keys if inner.get(key) is None and _may_add(inner, key)]
    return found + [{(*place, key): need.new} for key in absent]


def _may_add(inner, key):
    """Whether code that reads such a config knows a key: it is there without a value, has a
    default, or is one of `ADDED`.
    """
    own = inner.get("model_type")
    kinds = (own, ALIASES.get(own)) if isinstance(own, str) else ()
    known = any(key in DEFAULTS.get(kind, {}) or kind in ADDED.get(key, ()) for kind in kinds)
    return key in inner or known


def _outside(config, place, edit, need):
    """The same keys of the wrappers around the language model, where they say the same."""
    found = {}
    for depth in range(len(place)):
        for path in edit:
            outer = _at(config, place[:depth])
            if len(path) == len(place) + 1 and outer.get(path[-1]) == need.old:
                found[(*place[:depth], path[-1])] = need.new
    return found


def _latent_heads(inner, place, need):
    """The key-value heads of latent attention, which no count reads and which are as many as the
    query heads.
    """
    same = inner.get("num_key_value_heads") == need.old
    return {(*place, "num_key_value_heads"): need.new} if same else {}


def _towers(config, need, deep):
    """Keys beside the language model that say the hidden size to a tower, with the new one."""
    found = {}
    for name, value in config.items() if deep else ():
        if isinstance(value, dict) and reader.SIDE.search(name):
            for key in TOWERS:
                if value.get(key) == need.old:
                    found[name, key] = need.new
    return found


def _new_value(key, value, need, layers):
    """What a key is to hold, None where it says nothing about the size, and whether it holds the
    size itself; else it is so many times that of one, or a ratio.
    """
    old, new = need.old, need.new
    if isinstance(value, list):
        if len(value) < layers or old not in value:
            return None, True
        places = need.layers or range(layers)
        return [new if v == old and i in places else v for i, v in enumerate(value)], True
    if isinstance(value, bool) or not isinstance(value, int | float) or not old or not new:
        return (new, True) if value == old and value is not None else (None, True)
    if value == old:
        return new, True
    if key == "n_heads_in_group":  # heads over key-value heads
        return (old * value // new if old * value % new == 0 else None), False
    if isinstance(value, float) or key == "ffn_mult":
        return value * new / old, False
    if value and old % value == 0 and new % (old // value) == 0:
        return new // (old // value), False
    return None, False


def _sources(now, wanted):
    """For each layer that is wanted the layer of now that it is taken from: the nearest of the kind
    that is most alike.
    """
    places = {}
    for index, block in enumerate(now.blocks):
        places.setdefault(block, []).append(index)

    def likeness(old, new):
        (before, kind), (after, other) = _flat(old), _flat(new)
        same = sum(before.get(name) == value for name, value in after.items())
        return old == new, kind == other, same

    found = []
    nearest_kind = {
        new: max(places, key=functools.partial(likeness, new=new)) for new in wanted.block_counts
    }
    for index, block in enumerate(wanted.blocks):
        found.append(min(places[nearest_kind[block]], key=lambda place: abs(place - index)))
    return found


def _layer_changes(config, place, now, wanted):
    """Changes that may write other layers: their number, lists and letters with an entry a layer,
    lists of layer numbers, and how many layers come before something.
    """
    inner, layers, sources = _at(config, place), len(now.blocks), _sources(now, wanted)
    ahead = inner.get("num_nextn_predict_layers")
    lengths = {layers, layers + (ahead if isinstance(ahead, int) else 0)}
    sure, choices = {}, []
    for path, value in _places(inner, place):
        key = path[-1]
        if key in LAYERS and value == layers:
            sure[path] = len(wanted.blocks)
        elif isinstance(value, list) and layers > 1 and len(value) in lengths:
            sure[path] = [value[source] for source in sources] + value[layers:]
        elif isinstance(value, str) and "pattern" in key and len(value) == layers:
            sure[path] = "".join(value[source] for source in sources)
        elif isinstance(value, list) and value and INDICES.search(key):
            if all(type(v) is int for v in value) and value == sorted(set(value)):
                choices.append(_index_choices(path, value, sources))
        elif key in LEADING and type(value) is int:
            moved = sum(source < value for source in sources)
            choices.append([{}, {path: moved}] if moved != value else [{}])
    sure |= _object_lists(inner, place, layers, sources)
    for path, new in list(sure.items()):
        sure |= _outside(config, place, {path: new}, _Need("layers", layers, new))
    sure = {path: new for path, new in sure.items() if _at(config, path) != new}
    for chosen in itertools.islice(itertools.product(*choices), MOST_READS):
        edits = dict(sure)
        for edit in chosen:
            edits |= edit
        if edits:
            yield edits


def _index_choices(path, value, sources):
    """A list of layer numbers after the layers have moved, counted from 0 or from 1; or as it
    is.
    """
    found = [{}]
    for first in (0, 1):
        moved = [i + first for i, source in enumerate(sources) if source + first in value]
        if moved != value:
            found.append({path: moved})
    return found


def _object_lists(inner, place, layers, sources):
    """Lists with an object a layer after the layers have moved."""
    found = {}
    for key, value in inner.items():
        objects = isinstance(value, list) and all(isinstance(v, dict) for v in value)
        if objects and len(value) == layers and not APART.search(key):
            found[(*place, key)] = [copy.deepcopy(value[source]) for source in sources]
    return found
