"""A Hugging Face `config.json` as a `Model`, or an error that names the key, its value and what
would be accepted.

A reader takes the keys it understands and marks them. What is left and looks as if it changed a
count (an expert, head, rank, layer, window, ... key) is refused: a number nobody read is a number
silently guessed. No code of a model repository is run; the file is parsed as JSON and nothing else.
"""

import functools
import itertools
import json
import os
import re
from pathlib import Path

from hwdesign.models import checkpoint
from hwdesign.models.architectures import ALIASES, DEFAULTS, GIVEN, READERS
from hwdesign.models.model import Model
from hwdesign.models.reading import BLOCKS_KEY, LIMIT, LIMITS, LONGEST, NESTED, refusal

SHIPPED = Path(__file__).parent / "configs"
MAX_BYTES = 16_000_000  # some kilobytes, but for lists of quantized modules
SIDE = re.compile(
    "vision|visual|image|audio|video|speech|talker|tts|code2wav|token2wav|dit_|vit|qformer", re.I
)  # towers left out
# A key with a SHAPING part is refused when nobody read it, unless it has a word of training or
# numerics, or one of
# positions, tokens or switches and no part that only experts, latents and state spaces have.
SHAPING = re.compile(
    "(?<![a-z])(n|num|d)_|expert|moe|lora|rank|head|hidden|intermediate|layer|window|mamba|ssm|"
    "conv|block|pattern|mlp|ffn|ff_|_ff|"
    "dense|dim|kv|meta_|vocab|embd|inner|state|shared|sparse|sliding|attention|attn|quant|"
    "compress|bias|tie|group|expand|mult|step|"
    "norm|width|depth|size|router|gate|gating|linear|qk|adapter|memory|index|latent|hybrid",
    re.I,
)
SPECIAL = re.compile(
    "expert|moe|lora|rank|mamba|ssm|latent|hybrid|nope|head_dim|meta_|memory", re.I
)
WORD = r"(?<![a-z])(?:{})(?![a-z])"
NUMERICS = re.compile(
    WORD.format(
        "act|activation|coeff?|dropout|pdrop|dtype|eps|epsilon|init|initializer|jitter|kernels|"
        "loss|mtp|nextn"
    ),
    re.I,
)
SWITCHES = re.compile(
    WORD.format(
        "alpha|auto|batch|beams?|beta|cache|classifier|context|ctx|flash|gradient|ids?|"
        "implementation|logits|name|ngram|pad|"
        "positions?|prob|reorder|rope|rotary|scalar|scaling|scored|scoring|softcapping|softmax|"
        "task|temperature|theta|"
        "time|tokens?|tokenizer|torch|transformers|upcast|version"
    ),
    re.I,
)
HARMLESS = re.compile(
    "chunk_size_feed_forward|ep_size|n_group|norm_topk_prob|num_beam_groups|"
    "num_return_sequences|output_attentions|"
    "output_hidden_states|output_router_logits|rescale_prenorm_residual|topk_group|"
    "moe_shared_expert_overlap|full_attn_mod|"
    "scale_attn_weights|scale_attn_by_inverse_layer_idx"
)
WRAPPED = re.compile(
    "^tie_word_embeddings$|quant|compress", re.I
)  # keys of a wrapper that hold for the model inside it
ALIKE = 0.85  # how near a misspelt key is to the right one
TYPED = 200  # keys that are looked at for it
DISPUTED = "class and published configs of this type disagree without it"
MOST_KEYS = 100_000
POOLED = "config_sentence_transformers.json"  # beside the config of an embedding model
HUB_NAME = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", re.A)


class Reader:
    """A config dict that remembers which keys were read; every complaint names key, value and what
    is accepted.

    `defaults` holds what a missing key means; null is as it is.
    """

    outer = None  # that of the wrapper, where a config has one

    def __init__(self, values, where="", defaults=None):
        self.values, self.where, self.used = values, where, {"model_type", "architectures"}
        self.defaults = defaults or {}
        if odd := [k for k in values if not isinstance(k, str)]:
            raise ValueError(f"config keys must be text, got {_shown(odd[0])}")

    def complain(self, key, accepted):
        """A `ValueError` about a key."""
        if key in self.values:
            return self.complain_about(key, accepted, self.values[key])
        near = [k for k in self._unread() if _alike(k, key)]
        meant = f" (is {near[0]!r} meant?)" if near else ""
        where = self.where + key
        if key in self.defaults:
            meant = f", which means {_shown(self.defaults[key])}"
        return refusal(f"config key {where!r} must be {accepted}, got nothing{meant}")

    def complain_about(self, key, accepted, value):
        """A `ValueError` about a value that stands under a key."""
        where = self.where + key
        text = f"config key {where!r} must be {accepted}, got {_shown(value)}"
        return refusal(text, where)

    def _unread(self):
        """Keys that nobody read and that a hand may have typed."""
        keys = (k for k in self.values if k not in self.used and len(k) <= 60)
        return list(itertools.islice(keys, TYPED))

    def check_spelling(self):
        """Refuse a key that nobody read and that is nearly one which was looked for in vain."""
        missing = [key for key in self.used if key not in self.values]
        for key in self._unread():
            if near := [known for known in missing if _alike(key, known)]:
                raise refusal(
                    f"config key {self.where + key!r} must be a known key: did you mean "
                    f"{max(near, key=lambda known: _likeness(key, known))!r}? Got "
                    f"{_shown(self.values[key])}",
                    self.where + key,
                )

    def raw(self, *keys):
        """(key, value) of the first alias that is present and not null; two aliases that disagree
        are refused.
        """
        self.used.update(keys)
        found = [(k, self.values[k]) for k in keys if self.values.get(k) is not None]
        if found[1:] and len({_shown(v) for _, v in found}) > 1:
            names = " and ".join(f"{self.where + k!r} = {_shown(v)}" for k, v in found)
            raise ValueError(
                f"config keys {names} contradict each other: give one of them, or the same value"
            )
        if found or any(k in self.values for k in keys):
            return found[0] if found else (keys[0], None)
        known = next((k for k in keys if k in self.defaults), keys[0])
        return known, self.defaults.get(known)

    def given(self, key, accepted):
        """Refuse a key that is missing; null counts as given."""
        if key not in self.values and key not in self.defaults:
            raise self.complain(key, f"given: {accepted}")

    def integer(self, *keys, default=None, least=1, most=None):
        """A whole number under any of its aliases; missing or null gives the default, or an error
        without one.
        """
        key, value = self.raw(*keys)
        if value is None:
            if default is None:
                raise self.complain(
                    key,
                    f"a whole number (also known as {', '.join(keys[1:])})"
                    if keys[1:]
                    else "a whole number",
                )
            return default
        most = LIMITS.get(keys[0], LIMIT) if most is None else most
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.complain(key, f"a whole number from {least} to {most}")
        return value

    def optional(self, *keys):
        """A whole number, or None where the key is missing or null."""
        return self.integer(*keys) if self.raw(*keys)[1] is not None else None

    def flag(self, *keys, default=False):
        """True or false; missing or null gives the default."""
        key, value = self.raw(*keys)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.complain(key, "true or false")
        return value

    def items(self, key, kind, what):
        """A list whose entries are of a kind; missing or null gives None."""
        value = self.raw(key)[1]
        if value is None:
            return None
        if not isinstance(value, list) or not all(
            isinstance(v, kind) and not isinstance(v, bool) for v in value
        ):
            raise self.complain(key, f"a list of {what}")
        return value

    def inside(self, key, index=None):
        """Reader of the object under a key, or of one entry of the list there."""
        value, where = self.raw(key)[1], key if index is None else f"{key}[{index}]"
        value = value if index is None else value[index]
        if not isinstance(value, dict):
            raise self.complain(key, "an object")
        return Reader(value, f"{self.where}{where}.")

    def finish(self, kind):
        """Refuse what was not read and looks as if it changed a count; null, false, 0 and empty
        switch nothing on.
        """
        if len(self.values) > MOST_KEYS:
            raise ValueError(f"config must have at most {MOST_KEYS} keys, got {len(self.values)}")
        self.check_spelling()
        unread = (k for k, v in self.values.items() if k not in self.used and not _off(v))
        if found := list(filter(_shapes, unread)):
            error = self.complain(
                found[0],
                f"absent: the reader of {kind!r} does not know this key, and it may change the "
                "counts",
            )
            keys = [self.where + key for key in found]
            from hwdesign.models.nearest import way_on

            raise refusal(f"{error}; {way_on(kind, self.values)}", *keys)


@functools.lru_cache(maxsize=65536)
def _likeness(key, known):
    import difflib  # few configs need it, and it takes a millisecond

    return difflib.SequenceMatcher(None, key, known, autojunk=False).ratio()


def _alike(key, known):
    """Whether two keys differ by a slip of the hand: two letters exchanged, or a letter or two in a
    long name.

    Letters that stand in one of them alone have no partner, so many of them settle it at once.
    """
    letters = len(key) + len(known)
    if abs(len(key) - len(known)) > 2 or len(_letters(key) ^ _letters(known)) > letters * (
        1 - ALIKE
    ):
        return False
    exchanged = [i for i, (a, b) in enumerate(zip(key, known, strict=False)) if a != b]
    if len(key) == len(known) and len(exchanged) == 2:
        i, j = exchanged
        if j == i + 1 and key[i] + key[j] == known[j] + known[i]:
            return True
    return _likeness(key, known) >= ALIKE


@functools.lru_cache(maxsize=4096)
def _letters(key):
    return frozenset(key)


def _shapes(key):
    """Whether a key that nobody read looks as if it changed a count."""
    if not SHAPING.search(key) or NUMERICS.search(key) or HARMLESS.fullmatch(key):
        return False
    return bool(SPECIAL.search(key) or not SWITCHES.search(key))


def _off(value):
    return value is None or (
        isinstance(value, bool | int | float | str | list | dict) and not value
    )


def _shown(value):
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits or of brackets
        return f"a {type(value).__name__} too large to print"
    return text if len(text) <= 120 else f"{text[:80]} ... ({len(text)} characters)"


def load(source):
    """Model of a Hugging Face config.

    Parameters
    ----------
    source : dict, str or path
        The parsed config, a model's folder, the path of its config.json, or the name of a config
        that ships with the package (`names()`). Beside a file, hf_quant_config.json is read, too;
        beside X.json also X.hf_quant_config.json. A file of blocks stands for a config, see
        `hwdesign.models.blocks_file`.

    Returns
    -------
    Model
        Counts in [element], caches in [byte].

    Raises
    ------
    ValueError
        If the file is no config or a key is not understood, contradictory or out of range; one line
        that names it.
    FileNotFoundError
        If there is neither a file nor a shipped config of that name.

    Notes
    -----
    Source: the `configuration_*.py` and `modeling_*.py` of each architecture in transformers, or
    the paper of the model.

    Examples
    --------
    >>> load("llama-3.1-8b").parameters
    8030261248
    """
    try:
        return _load(source)
    except RecursionError:
        raise ValueError("source must be a config, got one nested too deeply") from None


def _load(source):
    if isinstance(source, dict):
        name = source.get("_name_or_path") or source.get("model_type")
        return _model(source, name if isinstance(name, str) else "model")
    if isinstance(source, str) and source in names():
        text = (SHIPPED / f"{source}.json").read_text(encoding="utf-8")
        return _model(_parse(text, source), source)
    if not isinstance(source, str | os.PathLike):
        raise ValueError(f"source must be a dict, a path or a name, got {_shown(source)}")
    path = Path(source)
    try:
        path = path / "config.json" if path.is_dir() else path
        found = bool(str(source)) and path.is_file()
    except (OSError, ValueError):  # too long a name, a null character
        found = False
    if not found:
        fetch = fetch_command(source)
        hint = f"; fetch a model of the Hugging Face hub with '{fetch}'" if fetch else ""
        raise FileNotFoundError(
            f"source must be a model's folder, a config.json or one of {', '.join(names())}; "
            f"there is no file {_shown(str(path))}{hint}"
        )
    named = Path(os.path.abspath(path)) if path.stem == "config" else path  # no link is followed
    name = (path.stem == "config" and named.parent.name) or path.stem
    pooled = (path.parent / POOLED).is_file() and path.stem == "config"
    return _model(_file(path), name, sidecar=_sidecar(path), pooled=pooled)


def fetch_command(source):
    """The command that fetches the files of a model from the hub, None where a text is no name of
    one.

    >>> fetch_command("Qwen/Qwen3-8B")
    'hf download Qwen/Qwen3-8B --include "*config.json" --local-dir Qwen3-8B'
    """
    name = str(source)
    if not HUB_NAME.fullmatch(name) or name.endswith(".json"):
        return None
    import shlex

    folder = shlex.quote(name.partition("/")[2])
    # A pattern, since a file that is named and not there would be an error: few have a sidecar.
    return f'hf download {name} --include "*config.json" --local-dir {folder}'


def _sidecar(path):
    """Reader of what ModelOpt says of the quantization in a file beside a config, or None."""
    for beside in (path.with_name(f"{path.stem}.{checkpoint.SIDECAR}"), None):
        file = beside or path.with_name(checkpoint.SIDECAR)
        if (beside or path.stem == "config") and file.is_file():
            return Reader(_file(file), f"{file.name}: ")
    return None


def _file(path):
    """The object that a JSON file holds."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ValueError(
            f"{path.name!r} must be at most {MAX_BYTES} bytes, as a config is; got {size}"
        )
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path.name!r} must be UTF-8 text, got byte 0x{error.object[error.start]:02x} at "
            f"{error.start}"
        ) from None
    return _parse(text, path.name)


def names():
    """Names of the configs that ship with the package.

    Returns
    -------
    tuple of str
        Names, sorted; each config says in `_source` where it is from.

    Notes
    -----
    Source: the key `_source` of each file.

    Examples
    --------
    >>> "gpt2" in names()
    True
    """
    return tuple(
        sorted(f.removesuffix(".json") for f in os.listdir(SHIPPED) if f.endswith(".json"))
    )


def _parse(text, name):
    def pairs(found):
        out = {}
        for key, value in found:
            if key in out and (out[key] != value or _shown(out[key]) != _shown(value)):
                raise ValueError(
                    f"{name!r}: config key {key!r} stands twice, as {_shown(out[key])} and "
                    f"{_shown(value)}; give it once"
                )
            out[key] = value
        return out

    def whole(digits):
        return (
            int(digits) if len(digits) < 40 else float(digits)
        )  # a size that long is refused, by name

    try:
        value = json.loads(
            text, object_pairs_hook=pairs, parse_int=whole
        )  # Infinity and NaN are read; no size may be one
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{name!r} must be JSON, got an error at line {error.lineno}: {error.msg}"
        ) from None
    if not isinstance(value, dict):
        raise ValueError(f"{name!r} must hold a JSON object, got {_shown(value)}")
    return value


def _language_model(values):
    """(what a config holds of its language model, where that stands in it)."""
    where = ""
    for _ in range(3):  # thinker_config holds a text_config
        nest = [k for k in NESTED if not _off(values.get(k))]
        if len(nest) > 1:
            raise ValueError(
                f"config must nest one language model, got {' and '.join(map(repr, nest))}"
            )
        odd = [
            k
            for k, v in values.items()
            if isinstance(v, dict) and {"num_hidden_layers", "n_layer"} & set(v)
        ]
        if odd := [k for k in odd if k not in nest and not SIDE.search(str(k))]:
            raise ValueError(
                f"config key {where + str(odd[0])!r} must be one of {', '.join(NESTED)} to "
                "hold the language model"
            )
        if not nest:
            break
        values, where = Reader(values, where).inside(nest[0]).values, f"{where}{nest[0]}."
    return values, where


def _model(values, name, *, sidecar=None, pooled=False):
    if BLOCKS_KEY in values or ("blocks" in values and not values.get("model_type")):
        from hwdesign.models import blocks_file

        if sidecar:
            raise ValueError(
                f"{checkpoint.SIDECAR} must be absent beside a file of blocks, which says its own "
                "quantization"
            )
        return blocks_file.model_of(values, name)
    outer = Reader(values)
    values, where = _language_model(values)
    Reader(values, where)  # whose keys are text
    own = values.get("model_type") or outer.values.get("model_type")
    kind = ALIASES.get(own, own) if isinstance(own, str) else own
    if not isinstance(kind, str) or kind not in READERS:
        key = where + "model_type" if values.get("model_type") else "model_type"
        raise _unknown(key, kind, values)
    if where:  # what a wrapper says for the whole model
        said = {k: v for k, v in outer.values.items() if v is not None and WRAPPED.search(k)}
        values = {**values, **{k: v for k, v in said.items() if values.get(k) is None}}
        if odd := [k for k, v in said.items() if _shown(values[k]) != _shown(v)]:
            raise ValueError(
                f"config keys {odd[0]!r} and {where + odd[0]!r} contradict each other: give "
                "one, or the same value"
            )
    disputed = {key for key, kinds in GIVEN.items() if own in kinds}  # of another type's class
    known = DEFAULTS.get(kind, {}) | DEFAULTS.get(own, {})
    read = Reader(values, where, {k: v for k, v in known.items() if k not in disputed})
    read.outer = outer
    return _built(outer, read, name, kind, own, sidecar=sidecar, pooled=pooled)


def _unknown(key, kind, values):
    """A `ValueError` about an unknown model type, with the nearest reader and the way on."""

    def attempt(known, values):
        read = Reader(values, defaults=DEFAULTS.get(known, {}))
        _built(Reader(values), read, "", known, known)
        return len(read.used & values.keys())

    from hwdesign.models.nearest import unknown

    alike, told = unknown(kind, values, attempt)
    count = len({*READERS, *ALIASES})
    accepted = f"one of the {count} model types that are read, as {', '.join(alike)}"
    given = "nothing" if kind is None else _shown(kind)
    return ValueError(f"config key {key!r} must be {accepted}, got {given}; {told}")


def _built(outer, read, name, kind, own, *, sidecar=None, pooled=False):
    """The model that a reader makes of a config."""
    for key in (key for key, kinds in GIVEN.items() if own in kinds):
        read.given(key, DISPUTED)
        if (
            key.endswith("_types") and read.raw(key)[1] is None
        ):  # null is what the class makes of it
            raise read.complain(key, f"a list: {DISPUTED}")
    headed, apart = checkpoint.head(outer, read, pooled=pooled)
    hidden = read.integer("hidden_size", "n_embd", "d_model", "n_embed")
    specific = READERS[kind](read, hidden, kind)
    prediction, besides = specific.pop("prediction", None), specific.pop("apart", ())
    blocks, lm_head = specific["blocks"], headed.get("lm_head", True)
    tied = read.defaults.get("tie_word_embeddings", False)
    tied = read.flag("tie_word_embeddings", "tie_embedding", default=tied)
    tied = tied and lm_head
    longest = read.raw("max_position_embeddings")[1]
    if longest is not None:
        longest = read.integer("max_position_embeddings", most=LONGEST)
    headed_alone = lm_head and not tied
    stored = checkpoint.quantization(read, sidecar, blocks, hidden, kind, headed=headed_alone)
    model = Model(
        name=name,
        hidden_size=hidden,
        vocab_size=read.integer("vocab_size"),
        tied_embeddings=tied,
        max_positions=longest or specific.get("positions") or None,
        left_out=(*apart, *besides, *checkpoint.left_out(outer, read, blocks, hidden, prediction)),
        **specific,
        **headed,
        **stored,
    )
    read.finish(kind)
    return model
