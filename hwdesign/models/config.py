"""A Hugging Face `config.json` as a `Model`, or an error that names the key, its value and what
would be accepted.

A reader takes the keys it understands and marks them. What is left and looks as if it changed a
count (an expert, head, rank, layer, window, ... key) is refused: a number nobody read is a number
silently guessed. No code of a model repository is run; the file is parsed as JSON and nothing else.
"""

import json
import os
import re
from importlib import resources
from pathlib import Path

from hwdesign.models.architectures import ALIASES, READERS, TIED
from hwdesign.models.model import Model

MAX_BYTES = 2_000_000  # a config is some kilobytes
NESTED = ("text_config", "language_config", "llm_config", "thinker_config")
SIDE = re.compile(
    "vision|visual|image|audio|video|speech|talker|code2wav|token2wav|dit_|vit", re.I
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
        "act|activation|coeff?|dropout|pdrop|dtype|eps|epsilon|init|initializer|kernels|loss|"
        "mtp|nextn"
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
UNTOUCHED = re.compile(
    r"lm_head|embed|norm|gate$|gate\.|router|conv1d|visual|vision|image|audio", re.I
)  # not quantized anyway
MODULES = {
    r"attn\W*$": ("attention",),
    r"shared_experts?\W*$": ("shared experts",),
    r"experts\W*$": ("experts",),
    r"mlp\W*$": ("experts", "ffn", "shared experts"),
}
LIMITS = {"num_hidden_layers": 10_000, "vocab_size": 20_000_000}
LIMIT = 2_000_000  # of any other size or count


class Reader:
    """A config dict that remembers which keys were read; every complaint names key, value and what
    is accepted.
    """

    def __init__(self, values, where=""):
        self.values, self.where, self.used = values, where, {"model_type", "architectures"}
        if odd := [k for k in values if not isinstance(k, str)]:
            raise ValueError(f"config keys must be text, got {_shown(odd[0])}")

    def complain(self, key, accepted):
        """A `ValueError` about a key."""
        value = _shown(self.values[key]) if key in self.values else "nothing"
        return ValueError(f"config key {self.where + key!r} must be {accepted}, got {value}")

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
        return found[0] if found else (keys[0], None)

    def given(self, key, accepted):
        """Refuse a key that is missing; null counts as given."""
        if key not in self.values:
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
        for key in [k for k, v in self.values.items() if k not in self.used and not _off(v)]:
            if not SHAPING.search(key) or NUMERICS.search(key) or HARMLESS.fullmatch(key):
                continue
            if SPECIAL.search(key) or not SWITCHES.search(key):
                raise self.complain(
                    key,
                    f"absent: the reader of {kind!r} does not know this key, and it may change "
                    "the counts",
                )


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
        The parsed config, the path of a JSON file, or the name of a config that ships with the
        package (`names()`).

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
        text = (
            resources.files("hwdesign.models")
            .joinpath("configs", f"{source}.json")
            .read_text(encoding="utf-8")
        )
        return _model(_parse(text, source), source)
    if not isinstance(source, str | os.PathLike):
        raise ValueError(f"source must be a dict, a path or a name, got {_shown(source)}")
    path = Path(source)
    try:
        found, size = path.is_file(), path.stat().st_size
    except (OSError, ValueError):  # missing, too long a name, a null character
        found, size = False, 0
    if not found:
        raise FileNotFoundError(
            f"source must be a config.json or one of {', '.join(names())}; there is no file "
            f"{_shown(str(source))}"
        )
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
    name = path.parent.name if path.stem == "config" and path.parent.name else path.stem
    return _model(_parse(text, path.name), name)


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
    folder = resources.files("hwdesign.models").joinpath("configs")
    return tuple(
        sorted(f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json"))
    )


def _parse(text, name):
    def pairs(found):
        out = {}
        for key, value in found:
            if key in out and _shown(out[key]) != _shown(value):
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


def _model(values, name):
    outer, values, where = Reader(values), values, ""
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
    read = Reader(values, where)
    kind = values.get("model_type") or outer.values.get("model_type")
    kind = ALIASES.get(kind, kind) if isinstance(kind, str) else kind
    if not isinstance(kind, str) or kind not in READERS:
        key = where + "model_type" if values.get("model_type") else "model_type"
        known = ", ".join((*READERS, *ALIASES))
        raise ValueError(f"config key {key!r} must be one of {known}, got {_shown(kind)}")
    if where:  # what a wrapper says for the whole model
        said = {k: v for k, v in outer.values.items() if v is not None and WRAPPED.search(k)}
        values = {**values, **{k: v for k, v in said.items() if values.get(k) is None}}
        if odd := [k for k, v in said.items() if _shown(values[k]) != _shown(v)]:
            raise ValueError(
                f"config keys {odd[0]!r} and {where + odd[0]!r} contradict each other: give "
                "one, or the same value"
            )
        read = Reader(values, where)
    hidden = read.integer("hidden_size", "n_embd", "d_model")
    specific = READERS[kind](read, hidden, kind)
    common = {
        "name": name,
        "hidden_size": hidden,
        "vocab_size": read.integer("vocab_size"),
        "tied_embeddings": read.flag("tie_word_embeddings", default=kind in TIED),
    }
    quantization, kept = _quantization(read, len(specific["blocks"]))
    read.used.update(
        ("num_nextn_predict_layers", "max_position_embeddings")
    )  # extra prediction layers are left out
    read.finish(kind)
    return Model(**common, **specific, quantization=quantization, unquantized=kept)


def _quantization(read, layers):
    """(recipe or None, parts kept in BF16) of the checkpoint."""
    if read.raw("quantization_config")[1] is None:
        return None, ()
    quant = read.inside("quantization_config")
    inner = quant.inside("quantization") if quant.values.get("quantization") else quant
    method, algo, kept = (
        quant.values.get("quant_method"),
        inner.values.get("quant_algo"),
        _kept(inner, layers),
    )
    if method == "fp8":
        block = quant.values.get("weight_block_size")
        if block not in (None, [128, 128]):
            raise quant.complain("weight_block_size", "[128, 128] or absent")
        return "fp8_block" if block else "fp8", kept
    if method == "mxfp4":
        return "mxfp4", kept
    if method == "modelopt" and algo in ("NVFP4", "FP8"):
        return algo.lower(), kept
    if method in ("awq", "gptq"):
        for key, value in (("bits", 4), ("group_size", 128)):
            if quant.values.get(key) != value:
                raise quant.complain(key, f"{value}: 4 bits in groups of 128")
        return "w4a16", kept
    accepted = "fp8, mxfp4, modelopt (quant_algo NVFP4 or FP8), awq or gptq (4 bits, groups of 128)"
    raise quant.complain("quant_algo" if method == "modelopt" else "quant_method", accepted)


def _kept(quant, layers):
    """Parts that stay in BF16 in all layers; a part that is kept in some layers only is refused."""
    seen = {}
    for key in ("modules_to_not_convert", "ignore", "exclude_modules"):
        for entry in quant.items(key, str, "names of modules") or []:
            parts = (
                ()
                if UNTOUCHED.search(entry)
                else next((p for sign, p in MODULES.items() if re.search(sign, entry)), None)
            )
            layer = re.search(r"layers\.(\d+)", entry)
            if layer and int(layer[1][:9]) >= layers:  # an extra prediction layer
                continue
            if parts is None:
                raise ValueError(
                    f"config key {quant.where + key!r} must name lm_head, embeddings, norms, "
                    "routers, or whole self_attn, mlp or "
                    f"experts modules, got {entry[:80]!r}; without quantization_config the "
                    "parameters are counted all the same"
                )
            for part in parts:
                seen.setdefault(part, set()).update([int(layer[1])] if layer else range(layers))
        if odd := [part for part, where in seen.items() if len(where) < layers]:
            raise quant.complain(
                key, f"the same for all {layers} layers ({odd[0]} is kept in {len(seen[odd[0]])})"
            )
    return tuple(sorted(seen))
