"""The operations of a model: Table 1 for a plain block, and one prefill or decode step of any `Model` under two plans.

Attention and feed-forward parts may be spread over the same GPUs in different ways, so a step takes two plans.
"""

from dataclasses import dataclass, field

import numpy as np

from hwdesign._check import dims, positive
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.formulas.attention import attention_flops, cache_read_bytes
from hwdesign.formulas.experts import distinct_experts, expert_ranks
from hwdesign.formulas.tiling import pad
from hwdesign.models.blocks import Block, DenseFFN, Mamba2, MoE, SelfAttention


@dataclass(frozen=True, kw_only=True)
class Gemm:
    """One matrix multiplication ``C[m, n] = A[m, k] @ B[k, n]``, run `count` times.

    Parameters
    ----------
    name : str
        Name of the linear layer.
    m : float or ndarray
        Tokens [element], > 0; a mean over experts need not be whole.
    n, k : float or ndarray
        Output and input features [element], whole, >= 1.
    count : float
        How often it runs [dimensionless]; the mean number of experts touched need not be whole.

    Raises
    ------
    ValueError
        If a dimension is out of range.

    Examples
    --------
    >>> float(Gemm(name="down", m=256, n=8192, k=512).flops)
    2147483648.0
    """

    name: str
    m: np.ndarray  # [element]
    n: np.ndarray  # [element]
    k: np.ndarray  # [element]
    count: float = 1.0

    def __post_init__(self):
        (m, count), (n, k) = positive(m=self.m, count=self.count), dims(n=self.n, k=self.k)
        for name, value in (("m", m), ("n", n), ("k", k), ("count", count)):
            object.__setattr__(self, name, value[()])

    @property
    def weights(self):
        """Elements of B that are read [element]."""
        return self.count * self.n * self.k

    @property
    def flops(self):
        """Operations [FLOP]."""
        return 2 * self.count * self.m * self.n * self.k

    def bytes(self, recipe):
        """Bytes that must move through memory under a recipe [byte]."""
        size = as_recipe(recipe).operand_bytes
        moved = self.m * self.k * size["a"] + self.k * self.n * size["b"] + self.m * self.n * size["c"]
        return self.count * moved


def transformer_gemms(tokens, *, hidden_size, intermediate_size, num_heads=None, num_kv_heads=None, head_dim=None, gated=False):
    """The linear layers of one dense transformer block as GEMMs: Table 1, and what it leaves out.

    Parameters
    ----------
    tokens : array_like of int
        GEMM-M [element]: concurrency x length in prefill, concurrency in decode.
    hidden_size, intermediate_size : int
        H and H' [element].
    num_heads, num_kv_heads, head_dim : int, optional
        Query heads, key-value heads, features per head [element]. Without them attention is multi-head with
        ``num_heads * head_dim = hidden_size``, the case of Table 1.
    gated : bool
        Whether the up-projection is a fused gate and up pair, N = 2 H'.

    Returns
    -------
    list of Gemm
        QKV, attention output, up, down; dimensions in elements.

    Raises
    ------
    ValueError
        If a dimension is below 1, only some of the head arguments are given, or the heads do not divide evenly.

    Notes
    -----
    Source: Table 1 of NVIDIA's post on hardware-friendly model design; grouped-query attention after Ainslie et al. 2023.

    Examples
    --------
    >>> [(g.name, int(g.n), int(g.k)) for g in transformer_gemms(1, hidden_size=4096, intermediate_size=16384)]
    [('qkv', 12288, 4096), ('attention output', 4096, 4096), ('up', 16384, 4096), ('down', 4096, 16384)]
    """
    if not isinstance(gated, bool):
        raise ValueError(f"gated must be True or False, got {gated!r}")
    heads = (num_heads, num_kv_heads, head_dim)
    if any(h is None for h in heads) and any(h is not None for h in heads):
        raise ValueError(f"num_heads, num_kv_heads and head_dim must be given together, got {heads}")
    tokens, hidden_size, intermediate_size = dims(tokens=tokens, hidden_size=hidden_size, intermediate_size=intermediate_size)
    if num_heads is None:
        num_heads, num_kv_heads, head_dim = 1, 1, hidden_size
    num_heads, num_kv_heads, head_dim = dims(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
    if (num_heads % num_kv_heads).any():
        raise ValueError(f"num_heads must be a multiple of num_kv_heads, got {heads[0]} and {heads[1]}")
    mixer = SelfAttention(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
    block = Block(mixer=mixer, ffn=DenseFFN(width=intermediate_size, gated=gated))
    matrices = [weight for weight in block.weights(hidden_size) if weight.matmul]
    names = ("qkv", "attention output", "up", "down")
    return [Gemm(name=name, m=tokens, n=w.n, k=w.k) for name, w in zip(names, matrices, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a part of the model is spread over GPUs: ways of tensor, expert, pipeline, cache and data parallelism.

    Examples
    --------
    >>> Plan(tp=8, kvp=4).gpus
    32
    """

    tp: int = 1
    ep: int = 1
    pp: int = 1
    kvp: int = 1
    dp: int = 1

    def __post_init__(self):
        dims(tp=self.tp, ep=self.ep, pp=self.pp, kvp=self.kvp, dp=self.dp)

    @property
    def gpus(self):
        """GPUs of the plan."""
        return self.tp * self.ep * self.pp * self.kvp * self.dp


@dataclass(frozen=True, kw_only=True)
class Work:
    """Work that is no GEMM with weights: attention scores and values, on one GPU.

    `flops` [FLOP]; `cache_elements` read [element].

    Examples
    --------
    >>> Work(name="scores", flops=64.0, cache_elements=8.0).name
    'scores'
    """

    name: str
    flops: float  # [FLOP]
    cache_elements: float  # [element]


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A collective that each GPU takes part in: `kind`, `elements` it contributes [element], `ranks`, and how often.

    Examples
    --------
    >>> Exchange(kind="all-reduce", elements=8192.0, ranks=8, count=2).ranks
    8
    """

    kind: str
    elements: float  # [element]
    ranks: int
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class Step:
    """All operations of one step on one GPU: `gemms`, attention `work`, `exchanges`.

    Examples
    --------
    >>> Step(gemms=[Gemm(name="x", m=1, n=2, k=3)]).gemm_flops
    12.0
    """

    gemms: list = field(default_factory=list)
    work: list = field(default_factory=list)
    exchanges: list = field(default_factory=list)

    @property
    def gemm_flops(self):
        """FLOP of the matrix multiplications [FLOP]."""
        return float(sum(g.flops for g in self.gemms))

    @property
    def attention_flops(self):
        """FLOP of scores and values [FLOP]."""
        return float(sum(w.flops for w in self.work))


def step(model, *, batch, context, new_tokens=1, attention=None, ffn=None):
    """Operations of one step on one GPU: decode with ``new_tokens=1``, prefill of whole prompts with ``new_tokens=context``.

    Parameters
    ----------
    model : Model
        What runs.
    batch : int
        Sequences in flight over all GPUs.
    context : int
        Tokens a query can see, new ones included [token].
    new_tokens : int
        Tokens of each sequence that are processed [token].
    attention, ffn : Plan, optional
        Plans of the two parts, over the same GPUs; by default one GPU. Pipeline stages are not cut here: a stage has its
        blocks' share of the operations.

    Returns
    -------
    Step
        Dimensions in [element], exchanges in [element].

    Raises
    ------
    ValueError
        If the plans use different numbers of GPUs, or a way does not divide what it splits.

    Notes
    -----
    Scores are causal. Latent attention is absorbed (scores against the latent) in decode and expanded in prefill. The head
    sees one token of each sequence. Not counted: norms, softmax, rotary, the scan of Mamba-2.
    Source: Table 1 of the post; DeepSeek-V2, arXiv 2405.04434, for latent attention.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> m = config.load("llama-3.1-8b")
    >>> step(m, batch=1, context=1000).gemm_flops == 2 * m.matmul_parameters
    True
    """
    attention, ffn = attention or Plan(), ffn or Plan()
    dims(batch=batch, context=context, new_tokens=new_tokens)
    if attention.gpus != ffn.gpus:
        raise ValueError(f"attention and ffn must use the same GPUs, got {attention.gpus} and {ffn.gpus}: {attention} and {ffn}")
    out, hidden, tokens = Step(), model.hidden_size, batch * new_tokens
    for block in model.blocks:
        if block.mixer:
            _mix(out, block.mixer, hidden, tokens / attention.dp, batch / attention.dp, context, new_tokens, attention)
        if block.ffn:
            _feed(out, block.ffn, hidden, tokens, ffn)
    rows = _part(model.vocab_size, attention.tp)
    out.gemms.append(Gemm(name="head", m=batch / attention.dp, n=rows, k=hidden))
    return out


def _part(size, ways):
    """One of `ways` equal parts of a dimension that is padded to divide [element]."""
    return int(pad(size, ways)) // ways


def _divided(name, size, ways, what):
    if size % ways:
        raise ValueError(f"{what} must divide {name} = {size}, got {ways}")
    return size // ways


def _mix(out, mixer, hidden, tokens, batch, context, new_tokens, plan):
    if isinstance(mixer, Mamba2):
        inner = _divided("mamba heads", mixer.num_heads, plan.tp, "attention tp") * mixer.head_dim
        groups = max(1, mixer.groups // plan.tp) * mixer.state
        heads = mixer.num_heads // plan.tp
        out.gemms.append(Gemm(name="mamba in", m=tokens, n=2 * inner + 2 * groups + heads, k=hidden))
        out.gemms.append(Gemm(name="mamba out", m=tokens, n=hidden, k=inner))
        return _reduce(out, tokens * hidden, plan.tp)
    heads = _divided("query heads", mixer.num_heads, plan.tp, "attention tp")
    if isinstance(mixer, SelfAttention):
        kv, size = -(-mixer.num_kv_heads // plan.tp), mixer.head_dim
        out.gemms.append(Gemm(name="qkv", m=tokens, n=(heads + 2 * kv) * size, k=hidden))
        out.gemms.append(Gemm(name="attention output", m=tokens, n=hidden, k=heads * size))
        sizes, kept = (size, size), 2 * kv * size
    else:
        sizes, kept = _latent(out, mixer, hidden, tokens, heads, new_tokens), mixer.cache_elements
    pairs = attention_flops(new_tokens, context, heads, sizes[0], sizes[1], causal=True, window=mixer.window)
    reach = min(context, mixer.window + new_tokens - 1) if mixer.window else context
    read = cache_read_bytes(reach, kept, 1.0)
    out.work.append(Work(name="scores", flops=float(batch * pairs / plan.kvp), cache_elements=float(batch * read / plan.kvp)))
    return _reduce(out, tokens * hidden, plan.tp)


def _latent(out, mixer, hidden, tokens, heads, new_tokens):
    """GEMMs of latent attention; returns (key size, value size) that the scores work with."""
    query = heads * (mixer.nope_dim + mixer.rope_dim)
    if mixer.q_rank is None:
        out.gemms.append(Gemm(name="q", m=tokens, n=query, k=hidden))
    else:
        out.gemms.append(Gemm(name="q down", m=tokens, n=mixer.q_rank, k=hidden))
        out.gemms.append(Gemm(name="q up", m=tokens, n=query, k=mixer.q_rank))
    out.gemms.append(Gemm(name="kv down", m=tokens, n=mixer.kv_rank + mixer.rope_dim, k=hidden))
    out.gemms.append(Gemm(name="kv up", m=tokens, n=heads * (mixer.nope_dim + mixer.v_dim), k=mixer.kv_rank))
    out.gemms.append(Gemm(name="attention output", m=tokens, n=hidden, k=heads * mixer.v_dim))
    if new_tokens == 1:
        return mixer.kv_rank + mixer.rope_dim, mixer.kv_rank
    return mixer.nope_dim + mixer.rope_dim, mixer.v_dim


def _feed(out, ffn, hidden, tokens, plan):
    here = tokens / plan.dp  # over the ranks that hold one set of experts
    mine = here / plan.ep  # each of them has its own tokens
    gate = 2 if ffn.gated else 1
    width = _part(ffn.width, plan.tp)
    if not isinstance(ffn, MoE):
        out.gemms.append(Gemm(name="up", m=mine, n=gate * width, k=hidden))
        out.gemms.append(Gemm(name="down", m=mine, n=hidden, k=width))
        return _reduce(out, mine * hidden, plan.tp)
    local = _divided("experts", ffn.num_experts, plan.ep, "ffn ep")
    touched = float(distinct_experts(here, ffn.top_k, ffn.num_experts)) * local / ffn.num_experts
    share = mine * ffn.top_k / touched  # tokens of one touched expert
    out.gemms.append(Gemm(name="router", m=mine, n=ffn.num_experts, k=hidden))
    out.gemms.append(Gemm(name="expert up", m=share, n=gate * width, k=hidden, count=touched))
    out.gemms.append(Gemm(name="expert down", m=share, n=hidden, k=width, count=touched))
    if ffn.shared_width:
        shared = _part(ffn.shared_width, plan.tp)
        out.gemms.append(Gemm(name="shared up", m=mine, n=gate * shared, k=hidden))
        out.gemms.append(Gemm(name="shared down", m=mine, n=hidden, k=shared))
    if ffn.shared_gate:
        out.gemms.append(Gemm(name="shared gate", m=mine, n=1, k=hidden))
    if plan.ep > 1:
        copies = mine * expert_ranks(ffn.top_k, ffn.num_experts, plan.ep) * (1 - 1 / plan.ep)
        out.exchanges.append(Exchange(kind="all-to-all", elements=float(copies * hidden), ranks=plan.ep, count=2))
    return _reduce(out, mine * hidden, plan.tp)


def _reduce(out, elements, ways):
    if ways > 1:
        out.exchanges.append(Exchange(kind="all-reduce", elements=float(elements), ranks=ways))
