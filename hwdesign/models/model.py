"""A language model as its blocks, counted exactly.

Every parameter belongs to one `Weight` of `hwdesign.models.blocks`. All counts (parameters, active
parameters, bytes, FLOP) are sums over that one list, so they cannot disagree.

Names are those of Hugging Face configs. What is counted: `num_hidden_layers` blocks, embeddings,
head, norms, biases, attention sinks, router weights and router corrections. What is not:
multi-token-prediction layers and vision or audio towers.
"""

import functools
import importlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hwdesign._check import (
    check_fields,
    choice,
    dims,
    flag,
    instance,
    listed,
    scalar_or_array,
    shown,
    single,
    whole,
)
from hwdesign.catalogue.precision import (
    BF16,
    PRECISIONS,
    RECIPES,
    named_precision,
    named_recipe,
)
from hwdesign.catalogue.precision import precision as as_precision
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.models.blocks import Block, DenseFFN, SelfAttention
from hwdesign.models.parts import PARTS, QUANTIZED, TERM_OF, Weight, vector


@dataclass(frozen=True, kw_only=True)
class Model:
    """A language model: blocks, embeddings and head.

    Parameters
    ----------
    name : str
        What it is called.
    hidden_size, vocab_size : int
        H and the number of rows of the embedding [element], padding rows included.
    blocks : tuple of Block
        In order; there is no other count of layers.
    tied_embeddings : bool
        Whether the head is the input embedding used again.
    positions : int
        Rows of a learned position embedding [token], 0 without one.
    norm_bias : bool
        Whether the norms before and after the blocks have a bias.
    embedding_norm, final_norm : bool
        Whether there is a norm with weights before the first block, and after the last one.
    head_bias : bool
        Whether the head has a bias.
    lm_head : bool
        Whether there is a head over the vocabulary; an embedding model has none.
    labels : int
        Rows of a classification head [element], 0 without one.
    quantization : str or None
        Recipe that most of the checkpoint's converted weights are stored in; None for BF16.
    formats : tuple of (str, tuple of (str, float))
        For each part that the checkpoint stores otherwise than `quantization` says: the part, and
        for each of its recipes the share of its matrices [dimensionless]; the shares add up to 1.
    quant_method : str or None
        What converted the checkpoint, as its config names it; None where nothing did.
    bytes_unknown : str or None
        Why nobody can tell from the config what the weights take as they are stored; None where
        that is known.
    kv_cache : str or None
        Format of the cache that the checkpoint names, None where it names none.
    max_positions : int or None
        Longest context that the config names [token].
    left_out : tuple of str
        What the checkpoint holds besides and no count includes, in words.
    closing : tuple of Weight
        What follows the last block besides the final norm and the head.
    embedding_size : int or None
        Width of the embedding and of the head where it is not the hidden size [element]; `closing`
        holds what projects between the two.

    Raises
    ------
    ValueError
        If a size is below 1, there is no block, or formats contradict each other.

    Examples
    --------
    >>> block = Block(
    ...     mixer=SelfAttention(num_heads=32, num_kv_heads=8, head_dim=128),
    ...     ffn=DenseFFN(width=14336),
    ... )
    >>> Model(
    ...     name="Llama-3.1-8B", hidden_size=4096, vocab_size=128256, blocks=(block,) * 32
    ... ).parameters
    8030261248
    """

    name: str
    hidden_size: int  # [element]
    vocab_size: int  # [element]
    blocks: tuple[Block, ...] = field(repr=False)
    tied_embeddings: bool = False
    positions: int = 0  # [token]
    norm_bias: bool = False
    embedding_norm: bool = False
    final_norm: bool = True
    head_bias: bool = False
    lm_head: bool = True
    labels: int = 0  # [element]
    quantization: str | None = None
    formats: tuple = ()
    quant_method: str | None = None
    bytes_unknown: str | None = None
    kv_cache: str | None = None
    max_positions: int | None = None  # [token]
    left_out: tuple[str, ...] = ()
    closing: tuple[Weight, ...] = ()
    embedding_size: int | None = None  # [element]

    def __post_init__(self):
        sizes = ("hidden_size", "vocab_size", "embedding_size")
        counts, none = ("positions", "labels"), ("embedding_size",)
        flags = ("tied_embeddings", "norm_bias", "embedding_norm", "final_norm")
        flags += ("head_bias", "lm_head")
        check_fields(self, texts=("name",), sizes=sizes, counts=counts, none=none, flags=flags)
        if self.tied_embeddings and not self.lm_head:
            raise ValueError("tied_embeddings must be False without lm_head, got True")
        blocks = listed("blocks", self.blocks, Block, "at least one Block")
        if not blocks:
            raise ValueError("blocks must be a list of at least one Block, got none")
        if self.quantization is not None:
            named_recipe("quantization", self.quantization)
        for name in ("quant_method", "bytes_unknown"):
            if getattr(self, name) is not None:
                check_fields(self, texts=(name,))
        if self.bytes_unknown and self.quantization:
            raise ValueError(
                f"bytes_unknown must be None with quantization {self.quantization!r}, got "
                f"{shown(self.bytes_unknown)}"
            )
        if self.kv_cache is not None:
            choice("kv_cache", self.kv_cache, PRECISIONS)
        if self.max_positions is not None:
            whole(max_positions=self.max_positions)
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "left_out", listed("left_out", self.left_out, str, "texts"))
        object.__setattr__(self, "closing", listed("closing", self.closing, Weight, "Weights"))
        object.__setattr__(self, "formats", _checked_formats(self.formats, self.quantization))

    @functools.cached_property
    def block_counts(self):
        """How often each different block occurs, as a dict."""
        return Counter(self.blocks)

    @property
    def streams(self):
        """Residual streams, each of the hidden size."""
        found = [block.residual.streams for block in self.block_counts if block.residual]
        return max(found, default=1)

    @property
    def embedding_width(self):
        """Width of the embedding and of the head [element]."""
        return self.embedding_size or self.hidden_size

    @property
    def weights(self):
        """All weights, embedding to head, as a list of `Weight`."""
        seen = {block: block.weights(self.hidden_size) for block in self.block_counts}
        inside = [weight for block in self.blocks for weight in seen[block]]
        return self._weights_before + inside + self._weights_after

    @property
    def _weights_before(self):
        """Weights before the first block, as a list."""
        hidden, vocab = self.hidden_size, self.vocab_size
        out = [
            Weight(
                name="embedding",
                part="embedding",
                n=vocab,
                k=self.embedding_width,
                matmul=self.tied_embeddings,
            )
        ]
        if self.positions:
            out.append(
                Weight(name="positions", part="embedding", n=self.positions, k=hidden, matmul=False)
            )
        return out + self._norm("embedding norm", self.embedding_norm)

    def _norm(self, name, there):
        """A norm outside the blocks as a list, empty where it is not there."""
        size = self.hidden_size * (2 if self.norm_bias else 1)
        return [vector(name, "norm", size)] if there else []

    @property
    def _weights_after(self):
        """Weights after the last block, as a list."""
        hidden = self.hidden_size
        out = self._norm("final norm", self.final_norm) + list(self.closing)
        if self.lm_head and not self.tied_embeddings:
            width = self.embedding_width
            out.append(Weight(name="lm_head", part="head", n=self.vocab_size, k=width))
        if self.lm_head and self.head_bias:
            out.append(vector("head bias", "head", self.vocab_size))
        if self.labels:
            out.append(Weight(name="score", part="head", n=self.labels, k=hidden))
        return out

    @functools.cached_property
    def _counted_weights(self):
        """Each weight of a kind of block once, with how often it is there, as a list of pairs."""
        found = [(weight, 1) for weight in self._weights_before + self._weights_after]
        for block, times in self.block_counts.items():
            found += [(weight, times) for weight in block.weights(self.hidden_size)]
        return found

    @property
    def head_rows(self):
        """Rows of the head, or of the embedding that works as one [element]."""
        return self.vocab_size if self.lm_head else self.labels

    @property
    def parameters(self):
        """Parameters [element], exact; a tied embedding counts once."""
        return sum(times * w.stored * w.elements for w, times in self._counted_weights)

    def active_parameters(self, *, include_embedding):
        """Parameters one token uses [element], exact.

        Both conventions are in use and differ by the input embedding, so the choice must be made:
        DeepSeek and Qwen include it, gpt-oss leaves it out. A tied embedding works as the head and
        always counts.
        """
        total = sum(times * w.used * w.elements for w, times in self._counted_weights)
        if flag("include_embedding", include_embedding) or self.tied_embeddings:
            return total
        more = sum(w.used * w.elements for w in self.closing if w.part == "embedding")
        return total - self.vocab_size * self.embedding_width - more

    @property
    def matmul_parameters(self):
        """Parameters one token is multiplied by as a matrix [element]: twice this is its FLOP
        without attention scores.
        """
        return sum(times * w.used * w.elements for w, times in self._counted_weights if w.matmul)

    def parameters_by_part(self, *, active=False):
        """Parameters of each part [element], as a dict in the order of `PARTS`; only those a token
        uses if `active`.
        """
        flag("active", active)
        out = dict.fromkeys(PARTS, 0)
        for w, times in self._counted_weights:
            out[w.part] += times * (w.used if active else w.stored) * w.elements
        return {part: n for part, n in out.items() if n}

    def part_formats(self, part, recipe=None):
        """How a part's matrices are stored and multiplied, as a tuple of (`Recipe`, share of them).

        Where weights are in the checkpoint's own format, as without a recipe, those are its
        `formats`. Another recipe converts all parts but embeddings, norms, router and head, which
        stay in BF16. The shares [dimensionless] add up to 1, the largest first.

        Examples
        --------
        >>> from hwdesign.models import config
        >>> model = config.load("gpt-oss-120b")
        >>> [(r.name, share) for r, share in model.part_formats("attention")]
        [('bf16', 1.0)]
        >>> [(r.name, share) for r, share in model.part_formats("attention", "fp8")]
        [('fp8', 1.0)]
        """
        choice("part", part, PARTS)
        if recipe is None and self.bytes_unknown:
            raise ValueError(
                "recipe must be given, since the bytes of the checkpoint are not known: "
                f"{self.bytes_unknown}"
            )
        main = named_recipe("quantization", self.quantization or "bf16")
        asked = main if recipe is None else as_recipe(recipe)
        own = dict(self.formats) if asked.weights == main.weights else {}
        if part in own:
            return tuple(
                (asked if name == main.name else as_recipe(name), share)
                for name, share in own[part]
            )
        return ((asked if part in QUANTIZED else RECIPES["bf16"], 1.0),)

    def weight_bytes(self, recipe=None):
        """Bytes of the stored weights by part [byte], as a dict; matrices in their `part_formats`,
        the rest in BF16.

        Without a recipe the checkpoint's is used, else BF16.

        Raises
        ------
        ValueError
            Without a recipe, if `bytes_unknown` says that the checkpoint's bytes are not known.
        """
        size = {}
        for part in PARTS:
            formats = self.part_formats(part, recipe)
            size[part] = sum(share * stored.weights.bytes for stored, share in formats)
        out = dict.fromkeys(PARTS, 0.0)
        for w in self.weights:
            matrix = w.matmul or (w.part == "embedding" and w.k > 1)
            out[w.part] += w.stored * w.elements * (size[w.part] if matrix else BF16.bytes)
        return {part: n for part, n in out.items() if n}

    def kv_bytes_per_token(self, precision="bf16"):
        """Bytes one more token takes in the cache of all layers [byte], while no window is full;
        what indexers keep is not in it.
        """
        return (
            sum(b.mixer.cache_elements for b in self.blocks if b.mixer)
            * as_precision(precision).bytes
        )

    def indexer_bytes_per_token(self, precision="bf16"):
        """Bytes one more token takes in the caches of the indexers of sparse attention [byte]."""
        return (
            sum(b.mixer.indexer_elements for b in self.blocks if b.mixer)
            * as_precision(precision).bytes
        )

    def growth_bytes_per_token(self, precision="bf16"):
        """Bytes that one more token adds to a sequence whose windows are full [byte], indexers
        included.
        """
        caches = [cache for block in self.blocks if block.mixer for cache in block.mixer.caches]
        kept = sum(elements for elements, window in caches if not window)
        size = as_precision(precision).bytes
        return kept * size + self.indexer_bytes_per_token(precision)

    def kv_bytes(self, context, precision="bf16", *, reserved=False):
        """Bytes of the cache of one sequence of `context` tokens [byte], indexers included.

        What the model needs: a windowed layer keeps its window. With `reserved`, what an engine
        takes that reserves pages for the full context in every layer.
        """
        (context,), reserved = dims(context=context), flag("reserved", reserved)
        return scalar_or_array(self._cached(context, precision, reserved=reserved))

    def kv_bytes_per_gpu(self, context, tp, precision="bf16"):
        """Bytes of the cache of one sequence on each of `tp` GPUs [byte], indexers included.

        Key-value heads are divided until one is left; beyond that they are replicated. A latent and
        the keys of an indexer are never divided.
        """
        context, tp = dims(context=context, tp=tp)
        return scalar_or_array(self._cached(context, precision, tp))

    def _cached(self, context, precision, tp=1, reserved=False):
        size, total = as_precision(precision).bytes, 0.0
        for block, count in self.block_counts.items():
            if mixer := block.mixer:
                kept = mixer.kept(context, share=mixer.cache_share(tp), reserved=reserved)
                total = total + count * kept * size
        return total

    def state_bytes(self, *, ssm="fp32", conv="bf16"):
        """Bytes of the constant state of one sequence in the state-space layers [byte]."""
        return self._state_bytes(lambda mixer: 1, ssm, conv)

    def state_bytes_per_gpu(self, plan, *, ssm="fp32", conv="bf16"):
        """Bytes of that state on each GPU under a plan [byte]: it is split like the heads."""
        return self._state_bytes(lambda mixer: mixer.head_ways(plan), ssm, conv)

    def _state_bytes(self, ways, ssm, conv):
        sizes = named_precision("ssm", ssm).bytes, named_precision("conv", conv).bytes
        total = 0
        for block, count in self.block_counts.items():
            if block.mixer and any(block.mixer.state_elements):
                state, convolution = block.mixer.state_elements
                whole = state * sizes[0] + convolution * sizes[1]
                total = total + count * whole / ways(block.mixer)
        return total

    @classmethod
    def from_config(cls, source):
        """Model of a Hugging Face config: a path, a dict or the name of a shipped config; see
        `hwdesign.models.config`.
        """
        # it builds on this file
        return importlib.import_module("hwdesign.models.config").load(source)


def _checked_formats(formats, quantization):
    """The field `formats` as nested tuples, or an error that names it."""
    like = 'pairs like ("attention", (("bf16", 1.0),)) of a part and shares that add up to 1'
    try:
        found = tuple(
            (part, tuple((name, single("formats", share)) for name, share in shares))
            for part, shares in listed("formats", formats, tuple, like)
        )
    except (TypeError, ValueError):
        raise ValueError(f"formats must be {like}, got {shown(formats)}") from None
    for part, shares in found:
        choice("formats", part, (*TERM_OF, "embedding"))
        for name, _ in shares:
            named_recipe("formats", name)
        whole_part = abs(sum(share for _, share in shares) - 1) < 1e-9
        if not whole_part or min(share for _, share in shares) <= 0:
            raise ValueError(f"formats must be {like}, got {shown(formats)}")
    if found and quantization is None:
        raise ValueError(f"formats must be empty without quantization, got {shown(formats)}")
    return found


class Same(NamedTuple):
    """A model, equal to itself alone: what is looked up by it need not compare all its blocks.

    >>> from hwdesign.models import config
    >>> Same(config.load("gpt2")) == Same(config.load("gpt2"))
    False
    """

    model: Model

    def __hash__(self):
        return id(self.model)

    def __eq__(self, other):
        return self.model is other.model


def need_model(model):
    """The model that an argument `model` gives.

    >>> need_model("gpt2")
    Traceback (most recent call last):
    ...
    ValueError: model must be a Model, as from Model.from_config('llama-3.1-8b'), got 'gpt2'
    """
    return instance("model", model, Model, "a Model, as from Model.from_config('llama-3.1-8b')")


def same_parameters(model, *, layers):
    """A wider or deeper sibling with about the same number of parameters in its blocks.

    All widths (hidden size, feed-forward width, heads) scale with
    ``sqrt(old layers / new layers)``: parameters of a block grow with the square of its width.
    Head size and group structure stay.

    Parameters
    ----------
    model : Model
        Uniform model: all blocks equal, self-attention and a dense feed-forward part.
    layers : int
        Layers of the sibling, >= 1.

    Returns
    -------
    Model
        Sibling; its widths [element] are multiples of the head size, so the count matches within
        the rounding.

    Raises
    ------
    ValueError
        If the model is not uniform or a width would round to nothing.

    Notes
    -----
    Source: P = L (4 H^2 + 3 H H') scales as L H^2.

    Examples
    --------
    >>> block = Block(
    ...     mixer=SelfAttention(num_heads=32, num_kv_heads=32, head_dim=128),
    ...     ffn=DenseFFN(width=16384, gated=False),
    ... )
    >>> deep = Model(name="deep", hidden_size=4096, vocab_size=32000, blocks=(block,) * 32)
    >>> wide = same_parameters(deep, layers=8)
    >>> wide.hidden_size, wide.blocks[0].mixer.num_heads, wide.blocks[0].ffn.width
    (8192, 64, 32768)
    """
    dims(layers=layers)
    kinds = set(model.blocks)
    block = model.blocks[0]
    if (
        len(kinds) > 1
        or not isinstance(block.mixer, SelfAttention)
        or not isinstance(block.ffn, DenseFFN)
    ):
        raise ValueError(
            "model must have equal blocks of self-attention and a dense FFN, got "
            f"{sorted(b.kind for b in kinds)}"
        )
    factor = (len(model.blocks) / layers) ** 0.5
    groups = block.mixer.num_heads // block.mixer.num_kv_heads
    kv_heads = round(block.mixer.num_kv_heads * factor)
    hidden = round(model.hidden_size * factor / block.mixer.head_dim) * block.mixer.head_dim
    width = round(block.ffn.width * factor / 128) * 128
    if not (kv_heads and hidden and width):
        raise ValueError(f"layers must leave a width of at least one head, got {layers}")
    mixer = replace(block.mixer, num_heads=kv_heads * groups, num_kv_heads=kv_heads)
    sibling = replace(block, mixer=mixer, ffn=replace(block.ffn, width=width))
    return replace(
        model,
        name=f"{model.name} x {layers} layers",
        hidden_size=hidden,
        blocks=(sibling,) * int(layers),
    )
