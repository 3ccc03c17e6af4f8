"""The operations of one prefill or decode step of any `Model` under two plans, as one GPU meets
them.

Attention and feed-forward parts may be spread over the same GPUs in different ways, so a step takes
two plans. Equal layers are listed once, with a count. Batch and context may be arrays; every size
follows their broadcast shape.
"""

import functools
from dataclasses import dataclass, field, fields

import numpy as np

from hwdesign._check import check_fields, choice, count, dims, flag, instance, must_fit
from hwdesign.formulas.attention import attention_flops, cache_read_bytes
from hwdesign.formulas.collectives import remote_copies
from hwdesign.formulas.experts import distinct_experts, expert_ranks
from hwdesign.formulas.tiling import pad
from hwdesign.models.blocks import Mamba2, MoE, SelfAttention
from hwdesign.models.layers import Gemm
from hwdesign.models.model import need_model

MOST_WAYS = 100_000  # of one kind of parallelism
EXCHANGES = ("all-reduce", "all-gather", "reduce-scatter", "dispatch", "combine", "send")
STATISTICS = 4  # maximum and sum of a partial softmax in FP32, in elements of BF16


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a part of the model is spread over GPUs: ways of tensor, expert, pipeline, cache and data
    parallelism, at most 100,000 of each.

    `gather` matters for the feed-forward part where groups of GPUs come with tokens of their own:
    all tokens are gathered and the outputs reduced and scattered, instead of a dispatch and a
    combine that send each token to its experts alone.

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
    gather: bool = False

    def __post_init__(self):
        for name in ("tp", "ep", "pp", "kvp", "dp"):
            object.__setattr__(self, name, count(name, getattr(self, name), MOST_WAYS))
        flag("gather", self.gather)

    @property
    def gpus(self):
        """GPUs of the plan."""
        return self.tp * self.ep * self.pp * self.kvp * self.dp


@dataclass(frozen=True, kw_only=True)
class Work:
    """Scores and values of one attention layer on one GPU: no GEMM with weights.

    `flops` [FLOP] and `cache_elements` read [element] of one run; `batch` sequences of `context`
    cached tokens [token] each, `heads` query heads over `kv_heads`; `size` of a key plus a value
    [element]; `queries`, the new tokens of a sequence [token]; `window`, most tokens a query sees
    [token]; `latent`, the size of a key plus a value against the latent [element], 0 where there is
    none; `pieces` into which each sequence is cut, of which this GPU has one; `count` runs.

    Examples
    --------
    >>> Work(flops=64.0, cache_elements=8.0, batch=1, context=2, heads=2, kv_heads=2, size=8).count
    1
    """

    flops: float  # [FLOP]
    cache_elements: float  # [element]
    batch: float
    context: float  # [token]
    heads: int
    kv_heads: int
    size: int  # [element]
    queries: float = 1  # [token]
    window: int | None = None  # [token]
    latent: int = 0  # [element]
    pieces: int = 1
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class Experts:
    """The routed experts of one layer on one GPU: `tokens` that arrive, `pairs` of a token and an
    expert, experts `touched`.

    `local` experts live on the GPU, each ``gate * width`` x `hidden` up and `hidden` x `width` down
    [element].

    Examples
    --------
    >>> Experts(tokens=4.0, pairs=8.0, touched=6.0, local=8, hidden=16, width=32, gate=2).elements
    9216.0
    """

    tokens: float  # [token]
    pairs: float
    touched: float
    local: int
    hidden: int  # [element]
    width: int  # [element]
    gate: int = 2
    count: int = 1

    def __post_init__(self):
        amounts, sizes = ("tokens", "pairs", "touched"), ("local", "hidden", "width", "gate")
        check_fields(self, positive=amounts, sizes=sizes, whole=("count",))

    @property
    def elements(self):
        """Weight elements of the experts touched, read once [element]."""
        return self.touched * (self.gate + 1) * self.width * self.hidden

    @property
    def flops(self):
        """Operations [FLOP]."""
        return 2 * self.pairs * (self.gate + 1) * self.width * self.hidden


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A collective each GPU takes part in.

    `kind` is "all-reduce", "all-gather", "reduce-scatter", "dispatch", "combine" or "send".
    `elements` are the tensor that is reduced or gathered, for the rest what one GPU sends
    [element].

    Examples
    --------
    >>> Exchange(kind="all-reduce", elements=8192.0, ranks=8, count=2).ranks
    8
    """

    kind: str
    elements: float  # [element]
    ranks: int
    count: int = 1

    def __post_init__(self):
        choice("kind", self.kind, EXCHANGES)
        check_fields(self, amounts=("elements",), whole=("ranks", "count"))


@dataclass(frozen=True, kw_only=True)
class Step:
    """All operations of one step on one GPU.

    `gemms` (those of experts among them), attention `work`, `experts`, `exchanges`;
    `state_elements` of state-space layers read and written [element]; `small_kernels`, how many
    norms, rotations, activations and routings run, and `small_elements` that they read and write
    [element].

    Examples
    --------
    >>> float(Step(gemms=[Gemm(name="x", m=1, n=2, k=3)]).gemm_flops)
    12.0
    """

    gemms: list = field(default_factory=list)
    work: list = field(default_factory=list)
    experts: list = field(default_factory=list)
    exchanges: list = field(default_factory=list)
    state_elements: float = 0.0  # [element]
    small_kernels: int = 0
    small_elements: float = 0.0  # [element]

    def __add__(self, other):
        """The operations of both."""
        return Step(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )

    @property
    def kernels(self):
        """Kernels that the step starts: one a GEMM (with the quantization of its inputs), an
        attention, an exchange or a small
        operation, two a layer of experts; of all stages together."""
        parts = [g.count for g in self.gemms if g.part != "experts"] + [w.count for w in self.work]
        return int(
            sum(parts)
            + sum(2 * e.count for e in self.experts)
            + sum(x.count for x in self.exchanges)
            + self.small_kernels
        )

    @property
    def gemm_flops(self):
        """FLOP of the matrix multiplications [FLOP]."""
        return np.asarray(sum(g.flops for g in self.gemms))[()]

    @property
    def attention_flops(self):
        """FLOP of scores and values [FLOP]."""
        return np.asarray(sum(w.count * w.flops for w in self.work))[()]

    @property
    def live_elements(self):
        """Largest input and output of one operation together [element]: what must be held besides
        weights and cache.
        """
        each = [g.m * (g.k + g.n) for g in self.gemms if g.part != "experts"]
        each += [
            e.tokens * e.hidden + e.pairs * (e.gate * e.width + e.hidden) for e in self.experts
        ]
        return functools.reduce(np.maximum, each, 0.0)

    @property
    def cache_elements(self):
        """Elements of the cache that are read [element]."""
        return np.asarray(sum(w.count * w.cache_elements for w in self.work))[()]


def step(model, *, batch, context, new_tokens=1, attention=None, ffn=None):
    """Operations of one step on one GPU: decode with ``new_tokens=1``, prefill of whole prompts
    with ``new_tokens=context``.

    Parameters
    ----------
    model : Model
        What runs.
    batch : array_like of int
        Sequences in flight over all GPUs.
    context : array_like of int
        Tokens a query can see, new ones included [token].
    new_tokens : array_like of int
        Tokens of each sequence that are processed [token].
    attention, ffn : Plan, optional
        Plans of the two parts, over the same GPUs; by default one GPU. Pipeline stages are not cut
        here: a stage has its blocks' share of the operations.

    Returns
    -------
    Step
        Dimensions in [element], exchanges in [element].

    Raises
    ------
    ValueError
        If the plans use different numbers of GPUs or of stages, or a way does not divide what it
        splits.

    Notes
    -----
    Scores are causal. Latent attention is absorbed (scores against the latent) in decode and
    expanded in prefill, cached tokens once more with each chunk; the latent is on every GPU of a
    tensor-parallel group. Routing is uniform. The head sees one token of each sequence.
    Cache-parallel GPUs hold pieces of each sequence and all projections up to the scores; they
    exchange partial outputs (latents, where there are latents) with two statistics a head in FP32,
    merge them and share the output projection and the head. State-space layers, which have no cache
    to cut, are tensor parallel over the same GPUs. Where every GPU already has every token
    (attention is tensor parallel), experts need no dispatch: an all-reduce sums their outputs. Not
    counted: FLOP of norms, softmax, rotary and the scan of Mamba-2. Source: Table 1 of the post;
    DeepSeek-V2, arXiv 2405.04434, for latent attention; Helix, arXiv 2507.07120.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> m = config.load("llama-3.1-8b")
    >>> bool(step(m, batch=1, context=1000).gemm_flops == 2 * m.matmul_parameters)
    True
    """
    need_model(model)
    attention, ffn = same_gpus(attention, ffn)
    batch, context, new_tokens = dims(batch=batch, context=context, new_tokens=new_tokens)
    must_fit(batch=batch, context=context, new_tokens=new_tokens)
    if (new_tokens > context).any():
        raise ValueError(
            f"new_tokens must be <= context, got {new_tokens.max():g} and {context.min():g}"
        )
    load = {"batch": batch, "context": context, "new_tokens": new_tokens}
    return attention_part(model, attention, **load) + feed_forward_part(
        model, ffn, attention.dp, **load
    )


def same_gpus(attention, ffn):
    """Both plans, one GPU where there is none.

    Parameters
    ----------
    attention, ffn : Plan or None
        Plans of the two parts.

    Returns
    -------
    tuple of Plan
        Both.

    Raises
    ------
    ValueError
        If one is no Plan, or they use different numbers of GPUs or of stages.

    Examples
    --------
    >>> same_gpus(Plan(), None)[1].gpus
    1
    """
    attention, ffn = _plan("attention", attention), _plan("ffn", ffn)
    if attention.gpus != ffn.gpus:
        raise ValueError(
            f"attention and ffn must use the same GPUs, got {attention.gpus} and {ffn.gpus}: "
            f"{attention} and {ffn}"
        )
    if attention.pp != ffn.pp:
        raise ValueError(
            f"attention and ffn must have the same stages, got pp = {attention.pp} and {ffn.pp}"
        )
    return attention, ffn


def _plan(name, plan):
    if plan is None:
        return Plan()
    return instance(name, plan, Plan, "a Plan, as Plan(tp=8)")


def attention_part(model, plan, *, batch, context, new_tokens=1):
    """Operations of a step outside the feed-forward parts, which depend on one plan alone.

    Parameters
    ----------
    model : Model
        What runs.
    plan : Plan
        Of the attention part.
    batch, context, new_tokens : array_like of int
        As for `step`: sequences over all GPUs, tokens [token].

    Returns
    -------
    Step
        Mixers, norms, embedding and head; dimensions in [element].

    Raises
    ------
    ValueError
        If a way does not divide what it splits.

    Notes
    -----
    Source: as `step`, of which it is one of two parts.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> [
    ...     g.part
    ...     for g in attention_part(
    ...         config.load("llama-3.1-8b"), Plan(tp=2), batch=1, context=1000
    ...     ).gemms
    ... ]
    ['attention', 'attention', 'head']
    """
    run = _Step(
        model.hidden_size, *dims(batch=batch, context=context, new_tokens=new_tokens), plan, Plan()
    )
    for block, run.count in model.block_counts.items():
        run.small(block.norms, run.tokens * model.hidden_size)
        if block.mixer:
            run.mix(block.mixer)
    run.count = 1
    share = _part(model.vocab_size, plan.tp * plan.kvp)
    run.gemm("head", run.batch, share, model.hidden_size, "head")
    run.small(2, run.tokens * model.hidden_size)  # embedding, final norm
    run.small(1, run.batch * share)  # sampling
    return run.step()


def feed_forward_part(model, plan, groups, *, batch, context, new_tokens=1):
    """Operations of a step in the feed-forward parts.

    Parameters
    ----------
    model : Model
        What runs.
    plan : Plan
        Of the feed-forward part.
    groups : int
        Groups of GPUs with tokens of their own: the data-parallel ways of the attention part.
    batch, context, new_tokens : array_like of int
        As for `step`: sequences over all GPUs, tokens [token].

    Returns
    -------
    Step
        Feed-forward layers; dimensions in [element].

    Raises
    ------
    ValueError
        If a way does not divide what it splits.

    Notes
    -----
    Source: as `step`, of which it is one of two parts.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> [
    ...     g.name
    ...     for g in feed_forward_part(
    ...         config.load("llama-3.1-8b"), Plan(tp=2), 1, batch=1, context=1000
    ...     ).gemms
    ... ]
    ['up', 'down']
    """
    run = _Step(
        model.hidden_size,
        *dims(batch=batch, context=context, new_tokens=new_tokens),
        Plan(dp=groups),
        plan,
    )
    for block, run.count in model.block_counts.items():
        if block.ffn:
            run.feed(block.ffn)
    return run.step()


def _part(size, ways):
    """One of `ways` equal parts of a dimension that is padded to divide [element]."""
    return int(pad(size, ways)) // ways


def _divided(name, size, ways, what):
    if size % ways:
        raise ValueError(f"{what} must divide {name} = {size}, got {ways}")
    return size // ways


class _Step:
    """Collects the operations of a step; `count` is how many equal layers are being added."""

    def __init__(self, hidden, batch, context, new_tokens, attention, ffn):
        self.hidden, self.context, self.new_tokens, self.attention, self.ffn = (
            hidden,
            context,
            new_tokens,
            attention,
            ffn,
        )
        self.batch = np.ceil(
            batch / attention.dp
        )  # sequences of the fullest attention GPU: the others wait for it
        self.tokens = self.batch * new_tokens
        self.all_tokens = batch * new_tokens
        self.gemms, self.work, self.experts, self.exchanges, self.count = [], [], [], [], 1
        self.state, self.kernels, self.moved = 0.0, 0, 0.0

    def step(self):
        lists = {name: getattr(self, name) for name in ("gemms", "work", "experts", "exchanges")}
        return Step(
            **lists,
            state_elements=self.state,
            small_kernels=self.kernels,
            small_elements=self.moved,
        )

    def small(self, kernels, elements):
        """Kernels that work element by element: each reads `elements` and writes as many."""
        self.kernels += kernels * self.count
        self.moved = self.moved + 2 * kernels * self.count * elements

    def gemm(self, name, m, n, k, part, count=1.0):
        self.gemms.append(Gemm(name=name, m=m, n=n, k=k, count=count * self.count, part=part))

    def exchange(self, kind, elements, ranks):
        if ranks > 1:
            self.exchanges.append(
                Exchange(kind=kind, elements=elements, ranks=ranks, count=self.count)
            )

    def mix(self, mixer):
        plan, tokens, hidden = self.attention, self.tokens, self.hidden
        if isinstance(mixer, Mamba2):
            return self.scan(mixer)
        heads = _divided("query heads", mixer.num_heads, plan.tp, "attention tp")
        if isinstance(mixer, SelfAttention):
            kv, size = -(-mixer.num_kv_heads // plan.tp), mixer.head_dim
            self.gemm("qkv", tokens, (heads + 2 * kv) * size, hidden, "attention")
            sizes, kept, out, absorbed = (size, size), 2 * kv * size, heads * size, 0
        else:
            kv, kept, out, absorbed = (
                1,
                mixer.cache_elements,
                heads * mixer.v_dim,
                mixer.cache_elements + mixer.kv_rank,
            )
            sizes = self.latent(mixer, heads)
        pairs = attention_flops(
            self.new_tokens, self.context, heads, *sizes, causal=True, window=mixer.window
        )
        reach = (
            np.minimum(self.context, mixer.window + self.new_tokens - 1)
            if mixer.window
            else self.context
        )
        read = cache_read_bytes(reach, kept, 1.0)
        self.work.append(
            Work(
                flops=self.batch * pairs / plan.kvp,
                cache_elements=self.batch * read / plan.kvp,
                batch=self.batch,
                context=reach / plan.kvp,
                heads=heads,
                kv_heads=kv,
                size=sum(sizes),
                queries=self.new_tokens,
                window=mixer.window,
                latent=absorbed,
                pieces=plan.kvp,
                count=self.count,
            )
        )
        self.small(1, tokens * (heads + 2 * kv) * sizes[1])  # rotation and the write of the cache
        if plan.kvp > 1:
            partial = tokens * heads * (sizes[1] + STATISTICS)
            self.exchange("combine", partial * (1 - 1 / plan.kvp), plan.kvp)
            self.small(1, partial)  # the merge
        self.gemm("attention output", tokens, hidden, _part(out, plan.kvp), "attention")
        self.exchange("all-reduce", tokens * hidden, plan.tp * plan.kvp)

    def scan(self, mixer):
        tokens, hidden, ways = (
            self.tokens,
            self.hidden,
            self.attention.tp * self.attention.kvp,
        )  # no cache: heads are cut instead
        heads = _divided("mamba heads", mixer.num_heads, ways, "attention tp * kvp")
        inner, groups = heads * mixer.head_dim, max(1, mixer.groups // ways) * mixer.state
        self.gemm("mamba in", tokens, 2 * inner + 2 * groups + heads, hidden, "mamba")
        self.gemm("mamba out", tokens, hidden, inner, "mamba")
        self.state = (
            self.state + 2 * self.count * self.batch * mixer.state_elements[0] / ways
        )  # read and written
        self.small(3, tokens * inner)  # convolution, scan, gated norm
        self.exchange("all-reduce", tokens * hidden, ways)

    def latent(self, mixer, heads):
        """GEMMs of latent attention; returns (key size, value size) that the scores work with."""
        tokens, hidden, query = self.tokens, self.hidden, heads * (mixer.nope_dim + mixer.rope_dim)
        if mixer.q_rank is None:
            self.gemm("q", tokens, query, hidden, "attention")
        else:
            self.gemm("q down", tokens, mixer.q_rank, hidden, "attention")
            self.gemm("q up", tokens, query, mixer.q_rank, "attention")
        self.gemm("kv down", tokens, mixer.kv_rank + mixer.rope_dim, hidden, "attention")
        absorbed = (self.new_tokens == 1).all()
        seen = (
            tokens if absorbed else self.batch * self.context
        )  # expanded anew for each chunk of a prompt
        values = _part(
            heads * mixer.v_dim, self.attention.kvp if absorbed else 1
        )  # of the heads merged here
        self.gemm("kv up", seen, heads * mixer.nope_dim + values, mixer.kv_rank, "attention")
        if absorbed:
            return mixer.kv_rank + mixer.rope_dim, mixer.kv_rank
        return mixer.nope_dim + mixer.rope_dim, mixer.v_dim

    def feed(self, ffn):
        """Feed-forward part. Groups of GPUs with different tokens meet `owners` times among the
        `ep` ranks of one expert set.
        """
        plan, hidden = self.ffn, self.hidden
        groups = (
            _divided("attention dp", self.attention.dp, plan.dp, "ffn dp")
            if self.attention.dp > plan.dp
            else 1
        )
        (owners, fewer), (most, more) = sorted(
            ((plan.ep, "ffn ep"), (groups, "attention dp / ffn dp"))
        )
        _divided(more, most, owners, fewer)
        owners = 1 if plan.gather else owners
        here = self.all_tokens / plan.dp  # tokens of one set of experts
        mine, ways = (
            here / owners,
            plan.tp * (plan.ep // owners),
        )  # where tokens are replicated, weights are split instead
        gate = 2 if ffn.gated else 1
        gathered = max(1, self.attention.dp // (plan.dp * owners))
        self.exchange("all-gather", mine * hidden, gathered)
        reduce = "reduce-scatter" if gathered > 1 else "all-reduce"
        if isinstance(ffn, MoE):
            self.route(ffn, here, mine, ways, owners, gate)
        else:
            width = _part(ffn.width, ways)
            self.gemm("up", mine, gate * width, hidden, "ffn")
            self.gemm("down", mine, hidden, width, "ffn")
            self.small(1, mine * width)  # activation
        self.exchange(reduce, mine * hidden, ways)

    def route(self, ffn, here, mine, ways, owners, gate):
        """A mixture of experts: router, routed experts with their dispatch and combine, shared
        experts.
        """
        plan, hidden = self.ffn, self.hidden
        local, width = (
            _divided("experts", ffn.num_experts, plan.ep, "ffn ep"),
            _part(ffn.width, plan.tp),
        )
        touched = distinct_experts(here, ffn.top_k, ffn.num_experts) * local / ffn.num_experts
        pairs, ranks = here * ffn.top_k / plan.ep, expert_ranks(ffn.top_k, ffn.num_experts, plan.ep)
        arrive = here if owners == 1 else here * ranks / plan.ep
        self.gemm("router", mine, ffn.num_experts, hidden, "router")
        self.gemm("expert up", pairs / touched, gate * width, hidden, "experts", touched)
        self.gemm("expert down", pairs / touched, hidden, width, "experts", touched)
        self.experts.append(
            Experts(
                tokens=arrive,
                pairs=pairs,
                touched=touched,
                local=local,
                hidden=hidden,
                width=width,
                gate=gate,
                count=self.count,
            )
        )
        self.small(1, mine * ffn.num_experts)  # choice of the experts
        if ffn.shared_width:
            shared = _part(ffn.shared_width, ways)
            self.gemm("shared up", mine, gate * shared, hidden, "shared experts")
            self.gemm("shared down", mine, hidden, shared, "shared experts")
            self.small(1, mine * shared)  # activation
        if ffn.shared_gate:
            self.gemm("shared gate", mine, 1, hidden, "shared experts")
        if owners > 1:
            sent = here / plan.ep * remote_copies(ffn.top_k, ffn.num_experts, plan.ep) * hidden
            self.exchange("dispatch", sent, plan.ep)
            self.exchange("combine", sent, plan.ep)
