"""What joins the layers of a model where it is more than a sum: hyper-connections, attention over
the outputs of earlier layers, alternating updates, and inputs of each layer's own.

Sources: manifold-constrained hyper-connections, arXiv 2512.24880, and `modeling_deepseek_v4.py` of
transformers 5.24; attention residuals as mlx-lm 0.32.2 builds them for Kimi-K3; alternating
updates, arXiv 2301.13310, learned augmented residuals, arXiv 2411.07501, and `modeling_gemma3n.py`
and `modeling_gemma4.py` of transformers 5.24.
"""

from dataclasses import dataclass

from hwdesign._check import check_fields, instance
from hwdesign.models.parts import Weight, linear, vector

PART = "residual"


class Residual:
    """What joins the layers: its weights in a block, its operations, and how many vectors of the
    hidden size a token has between two blocks.
    """

    streams = 1


@dataclass(frozen=True, kw_only=True)
class HyperConnections(Residual):
    """Several residual streams, mixed before and after each of the two parts of a block by a matrix
    that is made from all of them; not `mixed`, each stream stays itself in between.

    Examples
    --------
    >>> HyperConnections(streams=4).numbers
    24
    """

    streams: int
    mixed: bool = True

    def __post_init__(self):
        check_fields(self, whole=("streams",), flags=("mixed",))

    @property
    def numbers(self):
        """Numbers that one connection makes for a token: what goes in, what comes out, and how the
        streams are mixed.
        """
        return (2 + self.streams * self.mixed) * self.streams

    def weights(self, hidden):
        """Weights of a block for a hidden size [element]."""
        one = linear("hyper-connection", PART, self.numbers, self.streams * hidden)
        one += [vector("hyper-connection base", PART, self.numbers)]
        return 2 * [*one, vector("hyper-connection scale", PART, 2 + self.mixed)]

    def head(self, hidden):
        """Weights that sum the streams after the last block [element]."""
        out = linear("hyper-connection head", PART, self.streams, self.streams * hidden)
        out += [vector("hyper-connection head base", PART, self.streams)]
        return (*out, vector("hyper-connection head scale", PART, 1))

    def operations(self, run):
        """Adds both connections of one layer, which every GPU works out for itself."""
        width = self.streams * run.hidden
        run.gemm("hyper-connection", run.tokens, self.numbers, width, PART, 2.0)
        # before and after each part: the streams in, what goes in, what comes out, the streams out
        run.mix("mhc", 2.0 * (3 * width + 2 * run.hidden))


@dataclass(frozen=True, kw_only=True)
class Engram(HyperConnections):
    """Hyper-connections into which a block writes what it finds in a table of n-grams: `columns`
    rows of `row_size` a token, out of `rows`, projected to a key for each stream and a value.

    Examples
    --------
    >>> engram = Engram(streams=4, rows=1000, row_size=256, columns=24)
    >>> [w.elements for w in engram.weights(5120)][-4:]
    [256000, 157286400, 20480, 20480]
    """

    rows: int
    row_size: int  # [element]
    columns: int

    def __post_init__(self):
        super().__post_init__()
        check_fields(self, sizes=("row_size", "columns"), whole=("rows",))

    def weights(self, hidden):
        """Weights of a block for a hidden size [element]."""
        table = Weight(
            name="engram table",
            part="embedding",
            n=self.rows,
            k=self.row_size,
            used=0,
            matmul=False,
        )
        out = [*super().weights(hidden), table]
        wide = (1 + self.streams) * hidden
        out += linear("engram kv", PART, wide, self.columns * self.row_size)
        each = self.streams * hidden
        return [*out, vector("engram q", PART, each), vector("engram k", PART, each)]

    def operations(self, run):
        """Adds both connections, the projection of the rows and the gates of one layer."""
        super().operations(run)
        wide, inside = (1 + self.streams) * run.hidden, self.columns * self.row_size
        run.gemm("engram kv", run.tokens, wide, inside, PART)
        run.small(2, run.tokens * self.streams * run.hidden)  # lookup and gates


@dataclass(frozen=True, kw_only=True)
class AttentionResidual(Residual):
    """Each part of a block weighs the outputs of earlier blocks by scores against a learned query.

    Examples
    --------
    >>> [w.elements for w in AttentionResidual().head(64)]
    [64, 64]
    """

    def head(self, hidden):
        """The query and the norm after the last block [element]."""
        out = linear("residual query", PART, 1, hidden)
        return (*out, vector("residual norm", "norm", hidden))

    def weights(self, hidden):
        """Weights of a block for a hidden size [element]: a query and a norm for each part."""
        return 2 * list(self.head(hidden))

    def operations(self, run):
        """Adds the scores of both parts of one layer."""
        run.gemm("residual query", run.tokens, 1, run.hidden, PART, 2.0)
        run.small(2, run.tokens * run.hidden)


@dataclass(frozen=True, kw_only=True)
class LowRankConnections(Residual):
    """Several residual streams, which each of the two parts of a block takes in through a norm and
    weights that two matrices of a low `rank` make, and to which one number a stream adds what the
    part returns; the norms of the parts are among these.

    Examples
    --------
    >>> sum(w.elements for w in LowRankConnections(streams=4, rank=8).weights(64))
    10752
    """

    streams: int
    rank: int  # [element]

    def __post_init__(self):
        check_fields(self, whole=("streams",), sizes=("rank",))

    def head(self, hidden):
        """Weights that sum the streams after the last block [element]."""
        wide = self.streams * hidden
        out = [vector("stream norm", "norm", wide)]
        out += linear("stream weights down", PART, self.rank, wide)
        return (*out, *linear("stream weights up", PART, wide, self.rank))

    def weights(self, hidden):
        """Weights of a block for a hidden size [element]."""
        one = linear("stream injection", PART, self.streams, self.streams * hidden)
        return 2 * [*self.head(hidden), *one]

    def operations(self, run):
        """Adds both connections of one layer, which every GPU works out for itself."""
        wide = self.streams * run.hidden
        down = self.rank + self.streams
        run.gemm("stream weights down", run.tokens, down, wide, PART, 2.0)
        run.gemm("stream weights up", run.tokens, wide, self.rank, PART, 2.0)
        run.small(6, run.tokens * wide)  # norm, weights and sum of each part


@dataclass(frozen=True, kw_only=True)
class GatedNorms(Residual):
    """`gates` of the norms of a block scale each element of what they return by a gate that two
    matrices of a low `rank` make of it.

    Examples
    --------
    >>> sum(w.elements for w in GatedNorms(rank=16, gates=2).weights(64))
    4096
    """

    rank: int  # [element]
    gates: int = 2

    def __post_init__(self):
        check_fields(self, sizes=("rank",), whole=("gates",))

    def weights(self, hidden):
        """Weights of a block for a hidden size [element]."""
        one = linear("norm gate down", PART, self.rank, hidden)
        return self.gates * [*one, *linear("norm gate up", PART, hidden, self.rank)]

    def operations(self, run):
        """Adds the gates of one layer, which every GPU works out for itself."""
        run.gemm("norm gate down", run.tokens, self.rank, run.hidden, PART, float(self.gates))
        run.gemm("norm gate up", run.tokens, run.hidden, self.rank, PART, float(self.gates))
        run.small(self.gates, run.tokens * run.hidden)


@dataclass(frozen=True, kw_only=True)
class SharedInput(Residual):
    """What a shared block returns is projected before a block adds it to what it takes in. The
    shared block has adapters of a low `rank` for this place: from the hidden size to the `width` of
    its feed-forward part, and `attention_adapters` from twice the hidden size to as much; 0 where
    there are none.

    Examples
    --------
    >>> sum(w.elements for w in SharedInput().weights(64))
    4096
    """

    rank: int = 0  # [element]
    width: int = 0  # [element]
    attention_adapters: int = 0

    def __post_init__(self):
        check_fields(self, counts=("rank", "width", "attention_adapters"))

    def weights(self, hidden):
        """Weights of a block for a hidden size [element]."""
        out = linear("shared input", PART, hidden, hidden)
        if self.rank and self.width:
            out += linear("adapter down", PART, self.rank, hidden)
            out += linear("adapter up", PART, self.width, self.rank)
        if self.rank and self.attention_adapters:
            one = linear("attention adapter down", PART, self.rank, 2 * hidden)
            one += linear("attention adapter up", PART, 2 * hidden, self.rank)
            out += self.attention_adapters * one
        return out

    def operations(self, run):
        """Adds the projection and the adapters of one layer, which every GPU works out for
        itself.
        """
        for weight in self.weights(run.hidden):
            run.gemm(weight.name, run.tokens, weight.n, weight.k, PART)


@dataclass(frozen=True, kw_only=True)
class PerLayerInputs(Residual):
    """A vector of `width` for each token and each layer, from a table and from the embedding, which
    a gate lets into the layer's output.

    Examples
    --------
    >>> sum(w.elements for w in PerLayerInputs(width=256).weights(2048))
    1050624
    """

    width: int  # [element]

    def __post_init__(self):
        check_fields(self, sizes=("width",))

    def weights(self, hidden):
        """Weights of a block for a hidden size [element]."""
        out = linear("per-layer gate", PART, self.width, hidden)
        out += linear("per-layer projection", PART, hidden, self.width)
        return [*out, vector("per-layer norm", "norm", hidden)]

    def tables(self, hidden, layers, rows):
        """Weights that make the inputs of all layers [element]: a table with a row for each token
        of the vocabulary, of which a token reads one, a projection of the embedding, and a norm.
        """
        size = layers * self.width
        table = Weight(
            name="per-layer embedding", part="embedding", n=rows, k=size, used=0, matmul=False
        )
        made = linear("per-layer inputs", PART, size, hidden)
        return (table, *made, vector("per-layer input norm", "norm", self.width))

    def operations(self, run):
        """Adds the gate and the projection of one layer, which every GPU works out for itself."""
        run.gemm("per-layer gate", run.tokens, self.width, run.hidden, PART)
        run.gemm("per-layer projection", run.tokens, run.hidden, self.width, PART)
        run.small(2, run.tokens * run.hidden)  # gate, norm


@dataclass(frozen=True, kw_only=True)
class AlternatingUpdates(Residual):
    """Several residual streams (AltUp), of which a block computes one and predicts the others; a
    path of a low `rank` beside each block (Laurel); and `inputs` of each layer's own.

    Examples
    --------
    >>> updates = AlternatingUpdates(streams=4, rank=64, inputs=None)
    >>> sum(w.elements for w in updates.weights(2048))
    276560
    """

    streams: int
    rank: int  # [element]
    inputs: PerLayerInputs | None

    def __post_init__(self):
        check_fields(self, whole=("streams",), sizes=("rank",))
        instance("inputs", self.inputs, PerLayerInputs | None, "PerLayerInputs or None")

    def weights(self, hidden):
        """Weights of a block for a hidden size [element]."""
        n = self.streams
        out = linear("update router", PART, n, hidden)
        out += [vector("update prediction", PART, n**3), vector("update correction", PART, n**2)]
        out += [vector("update scale", PART, hidden), vector("update norm", "norm", hidden)]
        out += linear("laurel down", PART, self.rank, hidden)
        out += linear("laurel up", PART, hidden, self.rank)
        out += [vector("laurel norm", "norm", hidden)]
        return out + (self.inputs.weights(hidden) if self.inputs else [])

    def head(self, hidden):
        """Weights that make the streams before the first block and sum them after the last one
        [element].
        """
        one = linear("streams", PART, hidden, hidden)
        return tuple(2 * (self.streams - 1) * one)

    def operations(self, run):
        """Adds prediction, correction, the path beside the block and the inputs of one layer, which
        every GPU works out for itself.
        """
        n, tokens = self.streams, run.tokens
        run.gemm("update router", tokens, n, run.hidden, PART)
        run.gemm("laurel down", tokens, self.rank, run.hidden, PART)
        run.gemm("laurel up", tokens, run.hidden, self.rank, PART)
        run.small(2, tokens * n * run.hidden)  # predicted and corrected
        run.small(2, tokens * run.hidden)  # two norms
        if self.inputs:
            self.inputs.operations(run)
