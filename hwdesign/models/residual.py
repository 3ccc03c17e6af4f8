"""What joins the layers of a model where it is more than a sum: hyper-connections and attention
over the outputs of earlier layers.

Sources: manifold-constrained hyper-connections, arXiv 2512.24880, and `modeling_deepseek_v4.py` of
transformers 5.24; attention residuals as mlx-lm 0.32.2 builds them for Kimi-K3.
"""

from dataclasses import dataclass

from hwdesign._check import check_fields
from hwdesign.models.parts import linear, vector

PART = "residual"


@dataclass(frozen=True, kw_only=True)
class HyperConnections:
    """Several residual streams, mixed before and after each of the two parts of a block by a matrix
    that is made from all of them.

    Examples
    --------
    >>> HyperConnections(streams=4).rows
    24
    """

    streams: int

    def __post_init__(self):
        check_fields(self, whole=("streams",))

    @property
    def rows(self):
        """Numbers that one connection makes for a token: what goes in, what comes out, and how the
        streams are mixed.
        """
        return (2 + self.streams) * self.streams

    def weights(self, hidden):
        """Weights of a block for a hidden size [element]."""
        one = linear("hyper-connection", PART, self.rows, self.streams * hidden)
        one += [vector("hyper-connection base", PART, self.rows)]
        return 2 * [*one, vector("hyper-connection scale", PART, 3)]

    def head(self, hidden):
        """Weights that sum the streams after the last block [element]."""
        out = linear("hyper-connection head", PART, self.streams, self.streams * hidden)
        out += [vector("hyper-connection head base", PART, self.streams)]
        return (*out, vector("hyper-connection head scale", PART, 1))

    def operations(self, run):
        """Adds both connections of one layer, which every GPU works out for itself."""
        width = self.streams * run.hidden
        run.gemm("hyper-connection", run.tokens, self.rows, width, PART, 2.0)
        run.small(4, run.tokens * width)  # mixed before and after each part


@dataclass(frozen=True, kw_only=True)
class AttentionResidual:
    """Each part of a block weighs the outputs of earlier blocks by scores against a learned query.

    Examples
    --------
    >>> [w.elements for w in AttentionResidual().head(64)]
    [64, 64]
    """

    streams = 1

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
