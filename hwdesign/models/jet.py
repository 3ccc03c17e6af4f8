"""A gated delta net whose short convolution has another kernel for each token.

Sources: Jet-Nemotron, arXiv 2508.15884, and `jet_nemotron.py` of SGLang 0.5.23.
"""

from dataclasses import dataclass

from hwdesign._check import check_fields
from hwdesign.models.linear import GatedDeltaNet
from hwdesign.models.parts import linear, vector


@dataclass(frozen=True, kw_only=True)
class DynamicDeltaNet(GatedDeltaNet):
    """A gated delta net in which two matrices, with `generator` rows between them, make the kernel
    of a convolution of the values for each token; queries and keys have none.

    Examples
    --------
    >>> net = DynamicDeltaNet(
    ...     num_heads=12, key_heads=12, key_dim=96, head_dim=192, conv=4, generator=288
    ... )
    >>> net.state_elements
    (221184, 6912)
    """

    generator: int  # [element]
    kind, kernel = "dynamic delta net", ""  # none was fitted with such a convolution

    def __post_init__(self):
        super().__post_init__()
        check_fields(self, sizes=("generator",))

    @property
    def state_elements(self):
        """(matrices, convolution of the values) of one sequence [element]."""
        return self.num_heads * self.key_dim * self.head_dim, self.inner * (self.conv - 1)

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        part, heads = self.part, self.num_heads
        out = linear("linear qkv", part, self.conv_width, hidden)
        out += linear("linear z", part, self.inner, hidden)
        out += linear("linear b", part, heads, hidden) + linear("linear a", part, heads, hidden)
        out += linear("kernel down", part, self.generator, hidden)
        out += linear("kernel up", part, self.inner * self.conv, self.generator, True)
        out += [vector("A", part, heads), vector("dt bias", part, heads)]
        out += [vector("linear norm", "norm", self.head_dim)]
        return out + linear("linear out", part, hidden, self.inner)

    def operations(self, run):
        """Adds the projections, the kernels, the delta rule and the state of one layer."""
        super().operations(run)
        kernels = self.local_heads(run.plan) * self.head_dim * self.conv
        run.gemm("kernel down", run.tokens, self.generator, run.hidden, self.part)
        run.gemm("kernel up", run.tokens, kernels, self.generator, self.part)
