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
from hwdesign.formulas.tiling import pad
from hwdesign.models.layers import Gemm
from hwdesign.models.model import Same, need_model
from hwdesign.models.parts import PlanError, divided

MOST_WAYS = 100_000  # of one kind of parallelism
MOST_REFUSALS = 4096  # that are remembered, and plans that run
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
    none; `pieces` into which each sequence is cut, of which this GPU has one; `count` runs. `kind`
    is what it is called where it is no attention over all keys, else empty.

    A fitted `kernel` of such a kind ("dsa", "csa", "hca", "msa"; with " index" that of its indexer,
    empty without one) has more to it: `top`, most entries that a query picks, 0 for all; `beside`,
    most tokens of a window that it sees in the same kernel [token]; `every`, tokens of one entry
    [token]. "inside" is work that the kernel of another does.

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
    kind: str = ""
    kernel: str = ""
    top: int = 0
    beside: int = 0  # [token]
    every: int = 1  # [token]


@dataclass(frozen=True, kw_only=True)
class Scan:
    """A recurrence over the tokens of a layer on one GPU: `state` elements are read and written
    [element], `flops` on them [FLOP]; `kind` as in `Work`; `count` runs.

    A fitted `kernel` ("gdn", "kda", "mamba2", or "mhc" for the mixing of residual streams, empty
    without one) works on `batch` sequences of `queries` new tokens [token] and `heads` heads, each
    with a matrix of its own; a token reads and writes `ends` elements besides [element], a sequence
    `kept` of a convolution [element].

    Examples
    --------
    >>> Scan(state=8.0).count
    1
    """

    state: float  # [element]
    flops: float = 0.0  # [FLOP]
    kind: str = ""
    count: int = 1
    kernel: str = ""
    batch: float = 1
    queries: float = 1  # [token]
    heads: int = 1
    ends: float = 0.0  # [element]
    kept: float = 0.0  # [element]


@dataclass(frozen=True, kw_only=True)
class Experts:
    """The routed experts of one layer on one GPU: `tokens` that arrive, `pairs` of a token and an
    expert, experts `touched`.

    `local` experts live on the GPU, each ``gate * width`` x `hidden` up and `hidden` x `width` down
    [element]. `slots` are all pairs of the tokens that arrive, those of experts elsewhere among
    them, where there are more than `pairs`. Not `stored`, their weights are those of an earlier
    layer.

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
    stored: bool = True
    slots: float = 0.0

    def __post_init__(self):
        amounts = ("tokens", "pairs", "touched", "local", "slots")
        sizes = ("hidden", "width", "gate")
        check_fields(self, amounts=amounts, sizes=sizes, whole=("count",), flags=("stored",))

    @property
    def elements(self):
        """Weight elements of the experts touched, read once [element]."""
        return self.touched * (self.gate + 1) * self.width * self.hidden

    @property
    def stored_elements(self):
        """Weight elements of all experts that live here [element]."""
        return self.local * (self.gate + 1) * self.width * self.hidden

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

    `gemms` (those of experts among them), attention `work`, `scans` of layers with a state,
    `experts`, `exchanges`; `held`, pairs of a part and elements of its weights that are stored and
    not used [element]; `small_kernels`, how many norms, rotations, activations and routings
    run, and `small_elements` that they read and write [element].

    Examples
    --------
    >>> float(Step(gemms=[Gemm(name="x", m=1, n=2, k=3)]).gemm_flops)
    12.0
    """

    gemms: list = field(default_factory=list)
    work: list = field(default_factory=list)
    scans: list = field(default_factory=list)
    experts: list = field(default_factory=list)
    exchanges: list = field(default_factory=list)
    held: list = field(default_factory=list)
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
    def state_elements(self):
        """Elements of constant states that are read and written [element]."""
        return np.asarray(sum(scan.count * scan.state for scan in self.scans))[()]

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
    counted: FLOP of norms, softmax, rotary and the scan of Mamba-2. Sparse attention scores every
    token with its indexer and reads the tokens that it picks. Source: Table 1 of the post;
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
    >>> llama = config.load("llama-3.1-8b")
    >>> done = attention_part(llama, Plan(tp=2), batch=1, context=1000)
    >>> [gemm.part for gemm in done.gemms]
    ['attention', 'attention', 'head']
    """
    load = dims(batch=batch, context=context, new_tokens=new_tokens)
    run = AttentionRun(model.hidden_size, plan, *load)
    collect_attention(model, run)
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
    >>> llama = config.load("llama-3.1-8b")
    >>> done = feed_forward_part(llama, Plan(tp=2), 1, batch=1, context=1000)
    >>> [gemm.name for gemm in done.gemms]
    ['up', 'down']
    """
    load = dims(batch=batch, new_tokens=new_tokens, context=context)
    run = FeedForwardRun(model.hidden_size, plan, groups, *load[:2])
    for block, run.count in model.block_counts.items():
        run.stored = not block.repeated
        if block.ffn:
            run.feed(block.ffn)
    return run.step()


def plan_refusal(model, attention, ffn):
    """Why two plans over the same GPUs cannot run a model, as a `PlanError`; None if they can."""
    return attention_refusal(model, attention) or feed_forward_refusal(model, ffn, attention.dp)


def attention_refusal(model, plan):
    """Why a plan cannot run the parts outside the feed-forward ones; None if it can."""
    return _refusal(attention_part, Same(model), plan, batch=1)


def feed_forward_refusal(model, plan, groups):
    """Why a plan cannot run the feed-forward parts of so many groups with tokens of their own; None
    if it can.
    """
    return _refusal(feed_forward_part, Same(model), plan, groups, batch=groups)


@functools.lru_cache(maxsize=MOST_REFUSALS)
def _refusal(part, same, *arguments, batch):
    try:
        part(same.model, *arguments, batch=batch, context=1)
    except PlanError as error:
        return error.with_traceback(None)  # which would keep all that was collected
    return None


class Run:
    """Collects the operations of a part of a step on one GPU; `count` is how many equal layers are
    being added, `stored` whether their weights are. A block's `operations` are told in its words.
    """

    def __init__(self, hidden, plan):
        self.hidden, self.plan, self.count, self.stored, self.held = hidden, plan, 1, True, []
        self.gemms, self.work, self.scans, self.experts, self.exchanges = [], [], [], [], []
        self.small_kernels, self.small_elements = 0, 0.0

    def step(self):
        """What was collected."""
        return Step(**{field.name: getattr(self, field.name) for field in fields(Step)})

    def small(self, kernels, elements):
        """Kernels that work element by element: each reads `elements` and writes as many."""
        kernels = kernels * self.count
        self.small_kernels += kernels
        self.small_elements = self.small_elements + 2 * kernels * elements

    def gemm(self, name, m, n, k, part, count=1.0):
        """A product with weights, `count` of them a layer."""
        count = count * self.count
        gemm = Gemm(name=name, m=m, n=n, k=k, count=count, part=part, stored=self.stored)
        self.gemms.append(gemm)

    def hold(self, part, elements):
        """Weights of a layer that are stored and not used [element]."""
        self.held.append((part, elements * self.count * self.stored))

    def exchange(self, kind, elements, ranks):
        """A collective, which one rank alone does without."""
        if ranks > 1:
            exchange = Exchange(kind=kind, elements=elements, ranks=ranks, count=self.count)
            self.exchanges.append(exchange)


class AttentionRun(Run):
    """The run of mixers, norms, embedding and head.

    `batch` sequences and `tokens` tokens are those of the fullest GPU, for which the others wait.
    """

    def __init__(self, hidden, plan, batch, context, new_tokens):
        super().__init__(hidden, plan)
        self.context, self.new_tokens = context, new_tokens
        self.batch = np.ceil(batch / plan.dp)
        self.tokens = self.batch * new_tokens

    @property
    def decodes(self):
        """Whether every sequence gets one token."""
        return (self.new_tokens == 1).all()

    def keep_state(self, elements, ways, *, flops=0.0, kind="", **kernel):
        """A state of each sequence that is read and written, in so many shares; `flops` on it for
        each token [FLOP]; `kind`, and what its kernel takes, as in `Scan`.
        """
        moved = 2 * self.batch * elements / ways
        load = {"batch": self.batch, "queries": self.new_tokens, "count": self.count}
        flops = self.tokens * flops / ways
        self.scans.append(Scan(state=moved, flops=flops, kind=kind, **load, **kernel))

    def mix(self, kernel, ends):
        """A fitted kernel that mixes what lies between the layers: each token reads and writes so
        many elements.
        """
        load = {"batch": self.batch, "queries": self.new_tokens, "count": self.count}
        self.scans.append(Scan(state=0.0, kernel=kernel, ends=ends, **load))

    def score(self, *, heads, size, cached, kind, every=1, kernel="", top=0):
        """Scores of an indexer: `heads` small heads of `size` against one key of `cached` elements
        for each token, or for each `every` of them; `kernel` and `top` as in `Work`.
        """
        plan = self.plan
        flops, read, reach = self.seen(heads, 1, 1, cached)
        work = Work(
            flops=self.batch * flops * size / 2 / every / plan.kvp,
            cache_elements=self.batch * read / every / plan.kvp,
            batch=self.batch,
            context=reach / every / plan.kvp,
            heads=heads,
            kv_heads=1,
            size=size,
            queries=self.new_tokens,
            pieces=plan.kvp,
            count=self.count,
            kind=kind,
            kernel=kernel,
            top=top,
            every=every,
        )
        self.work.append(work)
        if not kernel:  # a fitted one has it inside
            self.small(1, self.tokens * self.context / every)  # choice of the tokens

    def attend(
        self,
        *,
        heads,
        kv_heads,
        key,
        value,
        cached,
        output=0,
        window=None,
        latent=0,
        kind="",
        every=1,
        outside=None,
        kernel="",
        top=0,
        beside=0,
    ):
        """Scores and values of a layer, the merge of pieces of the cache, the output projection.

        `heads` and `kv_heads` on this GPU, of sizes `key` and `value`; `cached` elements of a
        token here, or of each `every` tokens together; `output`, the width that the output
        projection takes in, 0 where the mixer adds one of its own; `latent` and `kind` as in
        `Work`, as are `kernel`, `top` and `beside`; `window`, most tokens that a query sees
        [token]; `outside`, tokens that are no part of the text and that each query sees instead.
        """
        plan, tokens = self.plan, self.tokens
        flops, read, reach = self.seen(heads, key, value, cached, window, outside)
        work = Work(
            flops=self.batch * flops / every / plan.kvp,
            cache_elements=self.batch * read / every / plan.kvp,
            batch=self.batch,
            context=reach / every / plan.kvp,
            heads=heads,
            kv_heads=kv_heads,
            size=key + value,
            queries=self.new_tokens,
            window=window,
            latent=latent,
            pieces=plan.kvp,
            count=self.count,
            kind=kind,
            kernel=kernel,
            top=top,
            beside=beside,
            every=every,
        )
        self.work.append(work)
        if every == 1 and not kernel:  # a fitted one has it inside
            self.small(1, tokens * (heads + 2 * kv_heads) * value)  # rotation, write of the cache
        self._merge(heads * (value + STATISTICS), output)

    def seen(self, heads, key, value, cached, window=None, outside=None):
        """(operations [FLOP], elements of the cache that are read [element], tokens [token]) of the
        scores and values of one sequence, in the arguments of `attend`.
        """
        if outside is None:
            reach, seen = self.context, {"causal": True, "window": window}
            flops = attention_flops(self.new_tokens, reach, heads, key, value, **seen)
        else:  # each query sees them all, and there may be fewer of them than queries
            reach = np.asarray(max(outside, 1), float)
            flops = self.new_tokens * attention_flops(1, reach, heads, key, value)
        if window:
            reach = np.minimum(self.context, window + self.new_tokens - 1)
        return flops, cache_read_bytes(reach, cached, 1.0), reach

    def _merge(self, partial, output):
        """The merge of pieces of the cache, each `partial` elements a token, and the output
        projection.
        """
        plan, tokens = self.plan, self.tokens
        if plan.kvp > 1:
            partial = tokens * partial
            self.exchange("combine", partial * (1 - 1 / plan.kvp), plan.kvp)
            self.small(1, partial)
        if output:
            share = int(pad(output, plan.kvp)) // plan.kvp
            self.gemm("attention output", tokens, self.hidden, share, "attention")
            self.exchange("all-reduce", tokens * self.hidden, plan.tp * plan.kvp)


def collect_attention(model, run):
    """Adds the mixers, norms, embedding and head of a model to an `AttentionRun`."""
    for block, run.count in model.block_counts.items():
        run.stored = not block.repeated
        run.small(block.norms, run.tokens * model.hidden_size)
        if block.mixer:
            block.mixer.operations(run)
        if block.residual:
            block.residual.operations(run)
    run.count, run.stored = 1, True
    run.small(2, run.tokens * model.hidden_size)  # embedding, final norm
    for weight in model.closing:
        if weight.matmul:
            run.gemm(weight.name, run.tokens, weight.n, weight.k, weight.part)
    if model.head_rows:
        ways = run.plan.tp * run.plan.kvp
        rows = int(pad(model.head_rows, ways)) // ways
        run.gemm("head", run.batch, rows, model.embedding_width, "head")
        run.small(1, run.batch * rows)  # sampling


class FeedForwardRun(Run):
    """The run of feed-forward parts.

    Groups of GPUs with different tokens meet `owners` times among the `ep` ranks of one expert
    set, which works on `here` tokens; `mine` of them are a rank's own. Where tokens are replicated,
    weights are split instead, in `ways` shares.
    """

    def __init__(self, hidden, plan, groups, batch, new_tokens):
        super().__init__(hidden, plan)
        gathers = 1
        if groups > plan.dp:
            gathers = divided("attention dp", groups, plan.dp, "ffn dp")
        fewer, more = (plan.ep, "ffn ep"), (gathers, "attention dp / ffn dp")
        if more < fewer:
            fewer, more = more, fewer
        divided(more[1], more[0], *fewer)
        self.owners = 1 if plan.gather else fewer[0]
        self.here = batch * new_tokens / plan.dp
        self.mine = self.here / self.owners
        self.ways = plan.tp * (plan.ep // self.owners)
        self.gathered = max(1, groups // (plan.dp * self.owners))

    def feed(self, ffn):
        """A feed-forward part between the exchanges that give every rank its tokens."""
        self.exchange("all-gather", self.mine * self.hidden, self.gathered)
        ffn.operations(self)
        reduce = "reduce-scatter" if self.gathered > 1 else "all-reduce"
        self.exchange(reduce, self.mine * self.hidden, self.ways)

    def route(self, **sizes):
        """The routed experts of a layer, in the fields of `Experts`."""
        own = {"hidden": self.hidden, "count": self.count, "stored": self.stored}
        self.experts.append(Experts(**own | sizes))
