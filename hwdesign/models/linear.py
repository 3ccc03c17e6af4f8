"""Mixers whose memory does not grow: delta rules, lightning attention, short convolutions, Mamba-1,
and two mixers side by side.

Each keeps a state of constant size a sequence: matrices in FP32 and the last rows of a short
convolution. A token reads and writes the matrices once; FLOP are those of the recurrence, which
kernels that work in chunks exceed. Sources: gated delta net, arXiv 2412.06464, and
`modeling_qwen3_next.py`; Kimi Linear, arXiv 2510.26692, and `modeling_kimi_linear.py`; MiniMax-01,
arXiv 2501.08313, and `modeling_minimax.py`; `modeling_lfm2.py`; `modeling_jamba.py`, all of
transformers 5.24.
"""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np

from hwdesign._check import check_fields
from hwdesign.models.parts import (
    Mixer,
    Side,
    Weight,
    divided,
    linear,
    multiples_near,
    scaled_size,
    vector,
)


class StateMixer(Mixer):
    """What mixers with a state and no cache have in common: GPUs that share a cache split their
    heads, too, and each projection out ends in an all-reduce.

    A kind says `inner`, its width, and `part`, that of its weights.
    """

    head_ways_name = "attention tp * kvp"
    part = "attention"
    kernel = ""  # fitted, of its convolution and recurrence

    @property
    def inner(self):
        """Width of what the projection out takes in [element]."""
        return self.num_heads * self.head_dim

    @property
    def sizes(self):
        """Heads."""
        return {"linear_heads": self.num_heads}

    @property
    def ends(self):
        """Elements that a token reads and writes in the convolution and in the recurrence
        [element].
        """
        return 3 * self.conv_width + self.inner

    def head_ways(self, plan):
        """There is no cache to cut, so GPUs that share a cache split the heads, too."""
        return plan.tp * plan.kvp

    def _finish(self, run, flops=0.0):
        """The projection out, the state (`flops` on it for each token of all heads) and the
        element-wise kernels.
        """
        ways = self.head_ways(run.plan)
        inner = self.inner // ways
        run.gemm("linear out", run.tokens, run.hidden, inner, self.part)
        state, kept = self.state_elements
        if state:
            found = {"heads": self.num_heads // ways, "kernel": self.kernel}
            found |= {"kept": kept / ways, "ends": self.ends / ways} if self.kernel else {}
            run.keep_state(state, ways, flops=flops, kind=self.kind, **found)
        run.small(2 if self.kernel else 3, run.tokens * inner)  # convolution, norm, gate
        run.exchange("all-reduce", run.tokens * run.hidden, ways)

    def shards(self, attention, ffn):
        """None that a verdict looks at."""
        return []

    def sides(self, attention, ffn):
        """Heads, and their width as K of the way out."""
        ways = self.head_ways(attention)
        common = {"name": self.heads_name, "ways": ways, "part": self.part}
        found = Side(kind="input", size=self.inner, **common)
        return [*self.head_sides(attention, self.part), found]

    def scaled(self, factor, ways):
        """More or fewer heads."""
        return replace(self, num_heads=scaled_size(self.num_heads, factor, ways))


@dataclass(frozen=True, kw_only=True)
class GatedDeltaNet(StateMixer):
    """A gated delta rule: `num_heads` value heads, in groups over `key_heads`, each with a state of
    key size x value size.

    Examples
    --------
    >>> net = GatedDeltaNet(num_heads=32, key_heads=16, key_dim=128, head_dim=128, conv=4)
    >>> net.state_elements
    (524288, 24576)
    """

    num_heads: int
    key_heads: int
    key_dim: int  # [element]
    head_dim: int  # [element]
    conv: int  # [token]
    kind, module, kernel = "gated delta net", "linear_attn", "gdn"
    heads_name = "linear heads"

    def __post_init__(self):
        sizes = ("num_heads", "key_heads", "key_dim", "head_dim", "conv")
        check_fields(self, sizes=sizes)
        if self.num_heads % self.key_heads:
            raise ValueError(
                f"num_heads must be a multiple of key_heads {self.key_heads}, got {self.num_heads}"
            )

    @property
    def conv_width(self):
        """Channels of the short convolution [element]: keys, queries and values."""
        return 2 * self.key_heads * self.key_dim + self.inner

    @property
    def state_elements(self):
        """(matrices, convolution) of one sequence [element]."""
        return self.num_heads * self.key_dim * self.head_dim, self.conv_width * (self.conv - 1)

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        part, heads = self.part, self.num_heads
        out = linear("linear qkv", part, self.conv_width, hidden)
        out += linear("linear z", part, self.inner, hidden)
        out += linear("linear b", part, heads, hidden) + linear("linear a", part, heads, hidden)
        out += [_convolution(part, self.conv_width, self.conv)]
        out += [vector("A", part, heads), vector("dt bias", part, heads)]
        out += [vector("linear norm", "norm", self.head_dim)]
        return out + linear("linear out", part, hidden, self.inner)

    def operations(self, run):
        """Adds the projections, the delta rule and the state of one layer."""
        heads = self.local_heads(run.plan)
        ways = self.head_ways(run.plan)
        keys = divided("linear key heads", self.key_heads, ways, self.head_ways_name) * self.key_dim
        width = 2 * keys + 2 * heads * self.head_dim
        run.gemm("linear qkvz", run.tokens, width, run.hidden, self.part)
        run.gemm("linear ba", run.tokens, 2 * heads, run.hidden, self.part)
        self._finish(run, _delta_flops(self.state_elements[0]))

    def heads_spread(self, ways):
        """Whether key and value heads spread evenly."""
        return self.key_heads % ways == 0

    @property
    def head_counts(self):
        """(value heads, key heads)."""
        return self.num_heads, self.key_heads

    def heads_near(self, ways):
        """The two siblings whose key heads spread over so many GPUs, in groups of the same size."""
        group = self.num_heads // self.key_heads
        counts = multiples_near(self.key_heads, ways)
        return [replace(self, key_heads=count, num_heads=count * group) for count in counts]

    def scaled(self, factor, ways):
        """More or fewer value heads, in whole groups."""
        unit = int(np.lcm(self.key_heads, ways))
        return replace(self, num_heads=scaled_size(self.num_heads, factor, unit))


@dataclass(frozen=True, kw_only=True)
class KimiDelta(StateMixer):
    """Kimi delta attention: a delta rule whose decay has a value for each channel of a key.

    `gate_rank` is that of the output gate, None where it is one full matrix; `full_decay` says
    whether the decay is made by one, too.

    Examples
    --------
    >>> KimiDelta(num_heads=32, head_dim=128, conv=4, gate_rank=128).state_elements
    (524288, 36864)
    """

    num_heads: int
    head_dim: int  # [element]
    conv: int  # [token]
    gate_rank: int | None = None  # [element]
    full_decay: bool = False
    kind, kernel = "Kimi delta attention", "kda"
    heads_name = "linear heads"

    def __post_init__(self):
        sizes = ("num_heads", "head_dim", "conv", "gate_rank")
        check_fields(self, sizes=sizes, none=("gate_rank",), flags=("full_decay",))

    @property
    def conv_width(self):
        """Channels of the short convolutions [element]: queries, keys and values."""
        return 3 * self.inner

    @property
    def state_elements(self):
        """(matrices, convolution) of one sequence [element]."""
        return self.num_heads * self.head_dim**2, self.conv_width * (self.conv - 1)

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        part, inner, rank = self.part, self.inner, self.gate_rank
        out = linear("linear qkv", part, 3 * inner, hidden)
        out += [_convolution(part, 3 * inner, self.conv)]
        if self.full_decay:
            out += linear("linear f", part, inner, hidden)
        else:
            out += linear("linear f down", part, self.head_dim, hidden)
            out += linear("linear f up", part, inner, self.head_dim)
        out += linear("linear b", part, self.num_heads, hidden)
        if rank is None:
            out += linear("linear gate", part, inner, hidden)
        else:
            out += linear("linear gate down", part, rank, hidden)
            out += linear("linear gate up", part, inner, rank)
        out += [vector("A", part, self.num_heads), vector("dt bias", part, inner)]
        out += [vector("linear norm", "norm", self.head_dim)]
        return out + linear("linear out", part, hidden, inner)

    def operations(self, run):
        """Adds the projections, the delta rule and the state of one layer; the ways down to the
        small ranks are on every GPU.
        """
        heads, part = self.local_heads(run.plan), self.part
        inner = heads * self.head_dim
        run.gemm("linear qkv", run.tokens, 3 * inner, run.hidden, part)
        down = heads + (self.gate_rank or 0) + (0 if self.full_decay else self.head_dim)
        run.gemm("linear down", run.tokens, down, run.hidden, part)
        inside = run.hidden if self.full_decay else self.head_dim
        run.gemm("linear f", run.tokens, inner, inside, part)
        run.gemm("linear gate", run.tokens, inner, self.gate_rank or run.hidden, part)
        self._finish(run, _delta_flops(self.state_elements[0]))


@dataclass(frozen=True, kw_only=True)
class LightningAttention(StateMixer):
    """Linear attention with a decay for each head, a norm and an output gate; `qk_norm` adds a norm
    of the head size for queries and one for keys.

    Examples
    --------
    >>> LightningAttention(num_heads=64, head_dim=128).state_elements
    (1048576, 0)
    """

    num_heads: int
    head_dim: int  # [element]
    qk_norm: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    kind = "lightning attention"
    heads_name = "linear heads"

    def __post_init__(self):
        flags = ("qk_norm", "qkv_bias", "out_bias")
        check_fields(self, sizes=("num_heads", "head_dim"), flags=flags)

    @property
    def state_elements(self):
        """(matrices, nothing) of one sequence [element]."""
        return self.num_heads * self.head_dim**2, 0

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        part, inner = self.part, self.inner
        out = linear("linear qkv", part, 3 * inner, hidden, self.qkv_bias)
        out += [vector("linear qk norms", "norm", 2 * self.head_dim)] if self.qk_norm else []
        out += linear("linear gate", part, inner, hidden) + [vector("linear norm", "norm", inner)]
        return out + linear("linear out", part, hidden, inner, self.out_bias)

    def operations(self, run):
        """Adds the projections, the recurrence and the state of one layer."""
        width = 4 * self.local_heads(run.plan) * self.head_dim
        run.gemm("linear qkv and gate", run.tokens, width, run.hidden, self.part)
        self._finish(run, 4 * self.state_elements[0])  # a state is written and read


@dataclass(frozen=True, kw_only=True)
class ShortConvolution(StateMixer):
    """A gated short convolution: three projections, of which two gate what goes in and comes out.

    `num_heads` are its channels, as many as the hidden size has elements.

    Examples
    --------
    >>> ShortConvolution(num_heads=2048, conv=3).state_elements
    (0, 4096)
    """

    num_heads: int
    conv: int  # [token]
    bias: bool = False
    head_dim = 1
    kind, module = "short convolution", "conv"
    heads_name = "channels"

    def __post_init__(self):
        check_fields(self, sizes=("num_heads", "conv"), flags=("bias",))

    @property
    def state_elements(self):
        """(nothing, convolution) of one sequence [element]."""
        return 0, self.num_heads * (self.conv - 1)

    @property
    def sizes(self):
        """None: its channels are the hidden size."""
        return {}

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        part, inner = self.part, self.inner
        out = linear("linear in", part, 3 * inner, hidden, self.bias)
        out += [_convolution(part, inner, self.conv)]
        out += [vector("convolution bias", part, inner)] if self.bias else []
        return out + linear("linear out", part, hidden, inner, self.bias)

    def operations(self, run):
        """Adds the projections and the convolution of one layer."""
        width = 3 * self.local_heads(run.plan)
        run.gemm("linear in", run.tokens, width, run.hidden, self.part)
        self._finish(run)

    def scaled(self, factor, ways):
        """More or fewer channels."""
        unit = int(np.lcm(128, ways))
        return replace(self, num_heads=scaled_size(self.num_heads, factor, unit))


@dataclass(frozen=True, kw_only=True)
class Mamba1(StateMixer):
    """A Mamba-1 state-space mixer: a state for each of its `num_heads` channels; with norms of
    steps and matrices, as in Jamba, or without.

    Examples
    --------
    >>> Mamba1(num_heads=8192, state=16, conv=4, rank=256).state_elements
    (131072, 24576)
    """

    num_heads: int
    state: int  # [element]
    conv: int  # [token]
    rank: int  # [element]
    bias: bool = False
    conv_bias: bool = True
    norm: bool = True
    head_dim = 1
    kind, part, module = "Mamba-1", "mamba", "mamba"
    heads_name = "Mamba channels"

    def __post_init__(self):
        sizes = ("num_heads", "state", "conv", "rank")
        check_fields(self, sizes=sizes, flags=("bias", "conv_bias", "norm"))

    @property
    def state_elements(self):
        """(SSM state, convolution) of one sequence [element]."""
        return self.inner * self.state, self.inner * (self.conv - 1)

    @property
    def sizes(self):
        """Channels."""
        return {"mamba_heads": self.num_heads}

    def weights(self, hidden):
        """Weights of the layer for a hidden size [element]."""
        part, inner, state = self.part, self.inner, self.state
        out = linear("mamba in", part, 2 * inner, hidden, self.bias)
        out += [_convolution(part, inner, self.conv)]
        out += [vector("convolution bias", part, inner)] if self.conv_bias else []
        out += linear("mamba x", part, self.rank + 2 * state, inner)
        out += linear("mamba dt", part, inner, self.rank, True)
        out += [vector("A", part, inner * state), vector("D", part, inner)]
        out += [vector("mamba norms", "norm", self.rank + 2 * state)] if self.norm else []
        return out + linear("mamba out", part, hidden, inner, self.bias)

    def operations(self, run):
        """Adds the projections, the scan and the state of one layer; steps and matrices of the scan
        are made of all channels, hence one more all-reduce.
        """
        inner, part = self.local_heads(run.plan), self.part
        made = self.rank + 2 * self.state
        run.gemm("mamba in", run.tokens, 2 * inner, run.hidden, part)
        run.gemm("mamba x", run.tokens, made, inner, part)
        run.exchange("all-reduce", run.tokens * made, self.head_ways(run.plan))
        run.gemm("mamba dt", run.tokens, inner, self.rank, part)
        self._finish(run, 6 * self.state_elements[0])  # decay, input, output

    def scaled(self, factor, ways):
        """More or fewer channels."""
        unit = int(np.lcm(128, ways))
        return replace(self, num_heads=scaled_size(self.num_heads, factor, unit))


@dataclass(frozen=True, kw_only=True)
class ParallelMixers(Mixer):
    """Two mixers that see the same input and whose outputs are summed, as attention and Mamba-2.

    Examples
    --------
    >>> from hwdesign.models.blocks import SelfAttention
    >>> from hwdesign.models.mamba import Mamba2
    >>> heads = SelfAttention(num_heads=8, num_kv_heads=2, head_dim=64)
    >>> mamba = Mamba2(num_heads=8, head_dim=64, groups=1, state=64, conv=4)
    >>> ParallelMixers(first=heads, second=mamba).kind
    'GQA beside Mamba-2'
    """

    first: Mixer
    second: Mixer

    def __post_init__(self):
        for name in ("first", "second"):
            if not isinstance(getattr(self, name), Mixer):
                raise ValueError(f"{name} must be a Mixer, got {getattr(self, name)!r}")

    @property
    def both(self):
        """The two mixers."""
        return self.first, self.second

    @property
    def kind(self):
        """Both."""
        return f"{self.first.kind} beside {self.second.kind}"

    @property
    def num_heads(self):
        """Heads of the first [dimensionless]."""
        return self.first.num_heads

    @property
    def head_counts(self):
        """Those of the first."""
        return self.first.head_counts

    @property
    def num_kv_heads(self):
        """Key-value heads of the first."""
        return self.first.head_counts[1]

    @property
    def sizes(self):
        """Those of both."""
        return self.second.sizes | self.first.sizes

    @property
    def cache_elements(self):
        """Elements a token leaves in the caches [element]."""
        return sum(mixer.cache_elements for mixer in self.both)

    @property
    def caches(self):
        """What both keep."""
        return (*self.first.caches, *self.second.caches)

    def cache_share(self, tp):
        """That of the first."""
        return self.first.cache_share(tp)

    @property
    def state_elements(self):
        """(state, convolution state) of both [element]."""
        pairs = zip(*(mixer.state_elements for mixer in self.both), strict=True)
        return tuple(map(sum, pairs))

    def head_ways(self, plan):
        """Ways that split the state."""
        return self.second.head_ways(plan)

    def heads_spread(self, ways):
        """Whether the heads of both spread evenly."""
        return all(mixer.heads_spread(ways) for mixer in self.both)

    def heads_near(self, ways):
        """The two siblings whose heads spread, the nearer first."""
        pairs = zip(*(mixer.heads_near(ways) for mixer in self.both), strict=False)
        return [replace(self, first=first, second=second) for first, second in pairs]

    def weights(self, hidden):
        """Weights of both for a hidden size [element]."""
        return [weight for mixer in self.both for weight in mixer.weights(hidden)]

    def operations(self, run):
        """Adds the operations of both."""
        for mixer in self.both:
            mixer.operations(run)

    def shards(self, attention, ffn):
        """Those of both."""
        return [shard for mixer in self.both for shard in mixer.shards(attention, ffn)]

    def sides(self, attention, ffn):
        """Those of both."""
        return [side for mixer in self.both for side in mixer.sides(attention, ffn)]

    def resized(self, shard, multiple):
        """Siblings in which a shard of one of the two is a multiple."""
        ways = SimpleNamespace(tp=shard.ways, ep=1, pp=1, kvp=1, dp=1, gather=False)
        for name in ("first", "second"):
            mixer = getattr(self, name)
            own = [(one.field, one.width) for one in mixer.shards(ways, ways)]
            if (shard.field, shard.width) in own:
                found = mixer.resized(shard, multiple)
                return {way: replace(self, **{name: other}) for way, other in found.items()}
        return {}

    def scaled(self, factor, ways):
        """Both, larger or smaller."""
        first, second = (mixer.scaled(factor, ways) for mixer in self.both)
        return replace(self, first=first, second=second)


def _convolution(part, width, kernel):
    return Weight(name="convolution", part=part, n=width, k=kernel, matmul=False)


def _delta_flops(state):
    """FLOP of one token on states of so many elements [FLOP]: read with the key, written, read with
    the query, a product and a sum each, and the decay.
    """
    return 7 * state
