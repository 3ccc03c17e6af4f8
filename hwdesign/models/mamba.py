"""Mamba-2, a mixer with a state instead of a cache. Source: arXiv 2405.21060."""

from dataclasses import dataclass, replace

import numpy as np

from hwdesign._check import check_fields
from hwdesign.models.parts import Mixer, Side, Weight, linear, multiples_near, scaled_size, vector


@dataclass(frozen=True, kw_only=True)
class Mamba2(Mixer):
    """A Mamba-2 state-space mixer: no cache that grows, but a state of constant size a sequence.

    Examples
    --------
    >>> Mamba2(num_heads=64, head_dim=64, groups=8, state=128, conv=4).inner
    4096
    """

    num_heads: int
    head_dim: int  # [element]
    groups: int
    state: int  # [element]
    conv: int  # [token]
    bias: bool = False
    conv_bias: bool = True
    norm: bool = True
    out_bias: bool | None = None  # None: as `bias`
    heads_name, head_ways_name = "Mamba heads", "attention tp * kvp"

    def __post_init__(self):
        sizes = ("num_heads", "head_dim", "groups", "state", "conv")
        flags = ("bias", "conv_bias", "norm", "out_bias")
        check_fields(self, sizes=sizes, none=("out_bias",), flags=flags)

    @property
    def kind(self):
        """Mamba-2."""
        return "Mamba-2"

    @property
    def inner(self):
        """Width of the mixer, heads x head size [element]."""
        return self.num_heads * self.head_dim

    @property
    def conv_width(self):
        """Channels of the short convolution [element]: the inner width and the two group
        projections.
        """
        return self.inner + 2 * self.groups * self.state

    @property
    def state_elements(self):
        """(SSM state, convolution state) of one sequence [element]."""
        return self.num_heads * self.head_dim * self.state, self.conv_width * (self.conv - 1)

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        out = linear(
            "mamba in", "mamba", self.inner + self.conv_width + self.num_heads, hidden, self.bias
        )
        out += [
            Weight(
                name="mamba convolution", part="mamba", n=self.conv_width, k=self.conv, matmul=False
            )
        ]
        out += [vector("convolution bias", "mamba", self.conv_width)] if self.conv_bias else []
        out += [vector(name, "mamba", self.num_heads) for name in ("A", "D", "dt bias")]
        out += [vector("mamba norm", "norm", self.inner)] if self.norm else []
        bias = self.bias if self.out_bias is None else self.out_bias
        return out + linear("mamba out", "mamba", hidden, self.inner, bias)

    @property
    def sizes(self):
        """Heads."""
        return {"mamba_heads": self.num_heads}

    def head_ways(self, plan):
        """There is no cache to cut, so GPUs that share a cache split the heads, too."""
        return plan.tp * plan.kvp

    def operations(self, run):
        """Adds the projections, the scan and the state of one layer."""
        ways = self.head_ways(run.plan)
        heads = self.local_heads(run.plan)
        inner = heads * self.head_dim
        groups = max(1, self.groups // ways) * self.state
        run.gemm("mamba in", run.tokens, 2 * inner + 2 * groups + heads, run.hidden, "mamba")
        run.gemm("mamba out", run.tokens, run.hidden, inner, "mamba")
        state, kept = self.state_elements
        ends = (3 * self.conv_width + self.inner) / ways
        run.keep_state(state, ways, kernel="mamba2", heads=heads, ends=ends, kept=kept / ways)
        run.small(1, run.tokens * inner)  # gated norm
        run.exchange("all-reduce", run.tokens * run.hidden, ways)

    def shards(self, attention, ffn):
        """None that a verdict looks at."""
        return []

    def sides(self, attention, ffn):
        """Heads, and their width as K of the way out."""
        ways = self.head_ways(attention)
        inner = Side(kind="input", name=self.heads_name, size=self.inner, ways=ways, part="mamba")
        return [*self.head_sides(attention, "mamba"), inner]

    def heads_near(self, ways):
        """The two siblings whose heads spread over so many GPUs, in whole groups."""
        counts = multiples_near(self.num_heads, int(np.lcm(self.groups, ways)))
        return [replace(self, num_heads=count) for count in counts]

    def scaled(self, factor, ways):
        """More or fewer heads, in whole groups."""
        unit = int(np.lcm(self.groups, ways))
        return replace(self, num_heads=scaled_size(self.num_heads, factor, unit))
