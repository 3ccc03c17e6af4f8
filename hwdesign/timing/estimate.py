"""Time of one operation and of one step: each operation of `hwdesign.models.steps`, by the
calibrated models or the plain bound.

``ideal=True`` is the bound: each operation takes the longer of its FLOP at the dense peak and its
bytes at the datasheet's bandwidth, exchanges their bytes at the link's, everything else nothing.
Calibrated is what a library reaches, with the floors that a small batch meets: fixed times, small
kernels, latencies of exchanges.
"""

import warnings
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hwdesign._check import (
    check_fields,
    choice,
    count,
    dims,
    instance,
    listed,
    members,
    must_fit,
    numbers,
    positive,
    scalar_or_array,
    shown,
)
from hwdesign.catalogue.engine import Engine
from hwdesign.catalogue.engine import engine as as_engine
from hwdesign.catalogue.precision import BF16, FP32, RECIPES, multiplied
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.formulas.pipeline import stage_layers
from hwdesign.models.layers import Gemm
from hwdesign.models.model import need_model
from hwdesign.models.parts import QUANTIZED, TERM_OF
from hwdesign.models.steps import Exchange, Experts, attention_part, feed_forward_part, same_gpus
from hwdesign.timing.clock import EXPERT_KERNELS, Clock
from hwdesign.timing.energy import StepEnergy

ENGINE = "vllm"  # by default
TERMS = ("projections", "attention", "ffn", "experts", "head", "communication", "small kernels")


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """Time of a step, by what it is spent on.

    Parameters
    ----------
    terms : dict of str to float or ndarray
        projections, attention (scores, values and state-space scans), ffn, experts, head,
        communication, small kernels [s].
    memory : float or ndarray
        Weights and cache on the fullest GPU [byte].
    capacity : float
        Memory of a GPU [byte].
    cache : float or ndarray
        The cache's part of `memory` [byte].
    activations : float or ndarray
        What a step holds besides: the residual stream, input and output of its largest operation
        [byte].
    engine : Engine or None
        Whose share of the memory is kept back; without one nothing is.
    notes : tuple of str
        Which constants were taken from another device or format: such a time is uncalibrated.
    ideal : bool
        Whether it is the plain bound.
    joules : StepEnergy or None
        The step's energy, worked out when it is asked for.

    Examples
    --------
    >>> b = Breakdown(terms={"attention": 1e-3, "ffn": 3e-3}, memory=1e9, capacity=80e9)
    >>> float(b.seconds), float(b.share("ffn")), bool(b.feasible)
    (0.004, 0.75, True)
    """

    terms: dict  # [s]
    memory: float  # [byte]
    capacity: float  # [byte]
    cache: float = 0.0  # [byte]
    activations: float = 0.0  # [byte]
    engine: Engine | None = None
    notes: tuple = ()
    ideal: bool = False
    joules: StepEnergy | None = field(default=None, repr=False, compare=False)

    def __post_init__(self):
        instance("terms", self.terms, dict, "a dict of part to time")
        for seconds in self.terms.values():
            numbers("terms", seconds)
        amounts = ("memory", "capacity", "cache", "activations")
        check_fields(self, amounts=amounts, flags=("ideal",))
        instance("engine", self.engine, Engine | None, "an Engine, as engine('vllm')")
        instance("joules", self.joules, StepEnergy | None, "a StepEnergy or None")
        object.__setattr__(self, "notes", listed("notes", self.notes, str, "texts"))

    @property
    def seconds(self):
        """Time of the step [s]: the sum of its terms."""
        return scalar_or_array(sum(self.terms.values()))

    @property
    def usable(self):
        """What weights and cache may take of the memory of a GPU beside the activations and what
        the engine keeps [byte].
        """
        if self.engine is None:
            return scalar_or_array(self.capacity - np.asarray(self.activations))
        held = np.asarray(self.memory) - self.cache
        room = self.engine.cache_room(self.capacity, held + self.activations)
        return scalar_or_array(np.maximum(held + room, 0.0))

    @property
    def feasible(self):
        """Whether weights and cache fit into what the engine leaves them on each GPU."""
        return scalar_or_array(np.asarray(self.memory) <= self.usable)

    @property
    def calibrated(self):
        """Whether every constant was fitted on this device and format; never so for the plain
        bound.
        """
        return not self.notes and not self.ideal

    def share(self, term):
        """Share of a term in the time [dimensionless]."""
        return choice("term", term, self.terms) / self.seconds

    @property
    def energy(self):
        """Energy of the step on one GPU [J], its idle power included; None where `energy_note` says
        why.
        """
        terms = self.energy_terms
        return None if terms is None else scalar_or_array(sum(terms.values()))

    @property
    def energy_terms(self):
        """Energy on one GPU by what it is spent on [J], as `terms`; None where there is none."""
        return None if self.joules is None else self.joules.terms

    @property
    def energy_note(self):
        """Empty where the joules were fitted on this device; else that they are scaled from another
        or why there are none.
        """
        return "no energy: only terms are known" if self.joules is None else self.joules.note

    def joules_per_token(self, tokens, gpus=1):
        """Energy of all GPUs for each token that the step makes, in decode the batch [J/token];
        None where the step has no energy.
        """
        (tokens,), gpus = positive(tokens=tokens), count("gpus", gpus)
        return None if self.energy is None else scalar_or_array(self.energy * gpus / tokens)

    def __str__(self):
        if np.ndim(self.seconds):
            ends = np.min(self.seconds) * 1e3, np.max(self.seconds) * 1e3
            return f"Breakdown of shape {np.shape(self.seconds)}: {ends[0]:.3g} to {ends[1]:.3g} ms"
        spent = {name: value for name, value in self.terms.items() if value}
        lines = [
            f"{name:<14}{value * 1e3:9.3f} ms {100 * self.share(name):5.1f} %"
            for name, value in spent.items()
        ]
        fits = "fits" if self.feasible else "DOES NOT FIT"
        lines += [
            f"{'step':<14}{self.seconds * 1e3:9.3f} ms",
            f"memory {self.memory / 1e9:.1f} of {self.usable / 1e9:.1f} GB usable: {fits}",
        ]
        return "\n".join(
            [
                *lines,
                *(("plain bound",) if self.ideal else ()),
                *(f"uncalibrated: {note}" for note in self.notes),
            ]
        )


def gemm_time(m, n, k, device, recipe, *, ideal=False, framework=None):
    """Time of ``C[m, n] = A[m, k] @ B[k, n]`` on a device.

    Parameters
    ----------
    m : array_like of float
        Rows: tokens [element], > 0.
    n, k : array_like of int, broadcastable
        Output and input features [element], >= 1.
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats of the operands.
    ideal : bool
        Whether to return the plain bound, ``max(FLOP / peak, byte / bandwidth)``.
    framework : str, optional
        Whose kernels: "sglang", "trtllm" or "vllm"; by default the first that was measured.

    Returns
    -------
    float or ndarray of float, broadcast shape
        Time [s].

    Raises
    ------
    ValueError
        If a dimension is out of range, a name is unknown, or the device has no peak for the format.

    Notes
    -----
    Source: `hwdesign.timing.gemm_kernel`; its error on held-out shapes is on the page Accuracy.
    Devices and formats that nobody measured take the constants of a stand-in; a `UserWarning` says
    which.

    Examples
    --------
    >>> round(float(gemm_time(8192, 8192, 8192, "GB300", "bf16", ideal=True)) * 1e6)
    440
    >>> gemm_time(16, 8192, [1024, 8192], "H100_SXM", "fp8").shape
    (2,)
    """
    gemm = Gemm(name="gemm", m=m, n=n, k=k)
    return _single(device, recipe, lambda clock: clock.gemm(gemm, clock.recipe), ideal, framework)


def expert_time(experts, device, recipe, *, kernel=None):
    """Time of the routed experts of one layer on one GPU.

    Parameters
    ----------
    experts : Experts
        What the GPU has to do; its fields may be arrays. `count` is not looked at.
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats of the operands.
    kernel : str, optional
        "grouped" (TensorRT-LLM) or "fused" (SGLang); by default the faster one.

    Returns
    -------
    float or ndarray of float, broadcast shape of the fields
        Time [s].

    Raises
    ------
    ValueError
        If a name is unknown or the device has no peak for the format.

    Notes
    -----
    Source: `hwdesign.timing.kernels.expert_seconds`; the errors of both kernels are on the page
    Accuracy, that of the grouped one on EP widths which its fit did not see.

    Examples
    --------
    >>> from hwdesign.models.steps import Experts
    >>> e = Experts(tokens=128.0, pairs=128.0, touched=32.0, local=32, hidden=7168, width=2048)
    >>> bool(
    ...     140e-6 < expert_time(e, "GB300", "nvfp4", kernel="grouped") < 180e-6
    ... )  # published: 162 us
    True
    """
    instance("experts", experts, Experts, "Experts, as a Step lists them")
    return _single(device, recipe, lambda clock: clock.experts(experts, clock.recipe, kernel))


def exchange_time(exchange, device, recipe, *, ideal=False):
    """Time of one exchange between GPUs.

    Parameters
    ----------
    exchange : Exchange
        Kind, elements and ranks; elements may be an array. `count` is not looked at.
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats; a dispatch travels in that of the activations, everything else in BF16.
    ideal : bool
        Whether to return the bytes over the link's bandwidth.

    Returns
    -------
    float or ndarray of float, shape of the elements
        Time [s].

    Raises
    ------
    ValueError
        If a name is unknown or the device has no link.

    Notes
    -----
    Source: `hwdesign.timing.kernels`; the errors are on the page Accuracy.

    Examples
    --------
    >>> from hwdesign.models.steps import Exchange
    >>> x = Exchange(kind="dispatch", elements=128 * 7.75 * 7168, ranks=32)
    >>> bool(24e-6 < exchange_time(x, "GB200", "nvfp4") < 34e-6)  # published: 28.6 us
    True
    """
    instance("exchange", exchange, Exchange, "an Exchange, as a Step lists them")
    return _single(device, recipe, lambda clock: clock.exchange(exchange, clock.recipe), ideal)


def _single(device, recipe, seconds, ideal=False, framework=None):
    """Time of one operation [s]; a warning says where its constants were not fitted on this device
    and format.
    """
    clock = Clock(device, recipe, ideal, framework)
    timed = seconds(clock)
    if timed.notes:
        notes = "; ".join(dict.fromkeys(timed.notes))
        warnings.warn(
            f"uncalibrated on {clock.device.name}: {notes}",
            UserWarning,
            stacklevel=3,
        )
    return scalar_or_array(timed.seconds)


def decode_step(
    model,
    device,
    recipe,
    *,
    batch,
    context,
    attention=None,
    ffn=None,
    wide=(),
    ideal=False,
    framework=None,
    expert_kernel=None,
    engine=ENGINE,
):
    """Time of one decode step: one new token for each sequence in flight.

    Parameters
    ----------
    model : Model
        What runs.
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats; under the checkpoint's own each part runs in its `Model.part_formats`.
    batch : array_like of int
        Sequences in flight over all GPUs.
    context : array_like of int, broadcastable
        Tokens a new token sees, itself included [token].
    attention, ffn : Plan, optional
        Plans of the two parts over the same GPUs; by default one GPU.
    wide : sequence of str
        Parts of the model whose matrices stay in BF16 besides: "attention", "mamba", "ffn",
        "experts", "shared experts".
    ideal : bool
        Whether to return the plain bound.
    framework : str, optional
        Whose GEMM kernels; by default the first that was measured.
    expert_kernel : str, optional
        Kernel of the experts, as for `expert_time`; by default the faster one.
    engine : str or Engine
        Whose share of the memory is kept back in `Breakdown.feasible`.

    Returns
    -------
    Breakdown
        Terms [s], shape of batch and context broadcast. With pipeline stages the batch is cut into
        as many micro-batches, and the time is that of one of them through all stages: the time
        between two tokens of a sequence.

    Raises
    ------
    ValueError
        If the plans use different numbers of GPUs, a way does not divide what it splits, or the
        device lacks a format or a link. A step that does not fit into memory is no error:
        `Breakdown.feasible` says so.

    Notes
    -----
    Source: the models of `hwdesign.timing`; routing is uniform. The fused kernel was timed with
    slices of all experts alone; that it is taken for spread experts, too, rests on served times
    (chapter 5). Not modelled: the host's work between two steps.

    Examples
    --------
    >>> from hwdesign.models.steps import Plan
    >>> from hwdesign.models import config
    >>> eight = Plan(tp=8)
    >>> m = config.load("llama-3.1-70b")
    >>> b = decode_step(
    ...     m, "H100_SXM", "fp8", batch=4, context=1536, attention=eight, ffn=eight, ideal=True
    ... )
    >>> round(float(b.seconds) * 1e3, 1), bool(b.feasible)
    (2.7, True)
    """
    batch, context = dims(batch=batch, context=context)
    must_fit(batch=batch, context=context)
    clock = Clock(device, recipe, ideal, framework, as_engine(engine).name)
    timer = _StepTimer(model, clock, engine, wide, expert_kernel)
    return timer.time(attention, ffn, batch, context, 1)


def decode_steps(model, device, recipe, plans, *, batch, context, wide=(), engine=ENGINE):
    """Decode steps under many pairs of plans; what they have in common is timed once.

    Parameters
    ----------
    model : Model
        What runs.
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats.
    plans : sequence of (Plan, Plan)
        Pairs for attention and feed-forward.
    batch, context : array_like of int, broadcastable
        Sequences in flight over all GPUs; tokens that each sees [token].
    wide : sequence of str
        Parts of the model whose matrices stay in BF16 besides, as for `decode_step`.
    engine : str or Engine
        Whose share of the memory is kept back in `Breakdown.feasible`.

    Returns
    -------
    list of Breakdown
        As by `decode_step`, in the order of the plans [s].

    Raises
    ------
    ValueError
        As `decode_step`.

    Notes
    -----
    Source: `decode_step`.

    Examples
    --------
    >>> from hwdesign.models.steps import Plan
    >>> from hwdesign.models import config
    >>> plans = [(Plan(tp=2), Plan(tp=2)), (Plan(dp=2), Plan(tp=2))]
    >>> len(
    ...     decode_steps(
    ...         config.load("llama-3.1-8b"), "H100_SXM", "fp8", plans, batch=2, context=1000
    ...     )
    ... )
    2
    """
    clock = Clock(device, recipe, engine=as_engine(engine).name)
    timer = _StepTimer(model, clock, engine, wide)
    return [timer.time(attention, ffn, batch, context, 1) for attention, ffn in plans]


def prefill_steps(model, device, recipe, plans, *, context, engine=ENGINE):
    """Prefill steps under many pairs of plans, with one prompt in each data-parallel group; what
    they share is timed once.

    Parameters
    ----------
    model : Model
        What runs.
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats.
    plans : sequence of (Plan, Plan)
        Pairs for attention and feed-forward.
    context : array_like of int
        Tokens of each prompt [token].
    engine : str or Engine
        Whose share of the memory is kept back in `Breakdown.feasible`.

    Returns
    -------
    list of Breakdown
        As by `prefill_step` with ``batch`` the ways of data parallelism, in the order of the plans
        [s].

    Raises
    ------
    ValueError
        As `prefill_step`.

    Notes
    -----
    Source: `prefill_step`.

    Examples
    --------
    >>> from hwdesign.models.steps import Plan
    >>> from hwdesign.models import config
    >>> plans = [(Plan(tp=2), Plan(tp=2)), (Plan(dp=2), Plan(tp=2))]
    >>> len(prefill_steps(config.load("llama-3.1-8b"), "H100_SXM", "fp8", plans, context=1000))
    2
    """
    clock = Clock(device, recipe, engine=as_engine(engine).name)
    timer, context = _StepTimer(model, clock, engine), np.asarray(context)
    return [timer.time(a, f, a.dp * a.pp, context, context) for a, f in plans]


def prefill_step(
    model,
    device,
    recipe,
    *,
    batch,
    context,
    cached=0,
    attention=None,
    ffn=None,
    wide=(),
    ideal=False,
    framework=None,
    expert_kernel=None,
    clock=None,
    engine=ENGINE,
):
    """Time of one prefill step: the prompts of `batch` sequences, whole or from `cached` tokens on.

    Parameters
    ----------
    model : Model
        What runs.
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats; under the checkpoint's own each part runs in its `Model.part_formats`.
    batch : array_like of int
        Sequences over all GPUs.
    context : array_like of int, broadcastable
        Tokens of each prompt [token].
    cached : array_like of int, broadcastable
        Tokens of it that are in the cache already [token].
    attention, ffn : Plan, optional
        Plans of the two parts over the same GPUs; by default one GPU.
    wide : sequence of str
        Parts of the model whose matrices stay in BF16 besides, as for `decode_step`.
    ideal : bool
        Whether to return the plain bound.
    framework : str, optional
        Whose GEMM kernels; by default the first that was measured.
    expert_kernel : str, optional
        Kernel of the experts, as for `expert_time`; by default the faster one.
    clock : Clock, optional
        Of this device and recipe, from an earlier step: what it has timed is not timed again.
    engine : str or Engine
        Whose share of the memory is kept back in `Breakdown.feasible`.

    Returns
    -------
    Breakdown
        Terms [s], shape of batch, context and cached broadcast.

    Raises
    ------
    ValueError
        If `cached` is not below `context`, the plans use different numbers of GPUs, a way does not
        divide what it splits, or the device lacks a format or a link.

    Notes
    -----
    Source: the models of `hwdesign.timing`; routing is uniform.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> b = prefill_step(
    ...     config.load("llama-3.1-8b"), "H100_SXM", "fp8", batch=1, context=8192, ideal=True
    ... )
    >>> round(float(b.seconds) * 1e3)
    67
    """
    (batch, context), before = dims(batch=batch, context=context), numbers("cached", cached)
    if not (before >= 0).all() or (before % 1).any():
        raise ValueError(f"cached must be a whole number >= 0, got {shown(cached)}")
    must_fit(batch=batch, context=context, cached=before)
    new = context - before
    if (new < 1).any():
        raise ValueError(f"cached must be below context, got {shown(cached)} and {context}")
    instance("clock", clock, Clock | None, "a Clock or None")
    clock = clock or Clock(device, recipe, ideal, framework, as_engine(engine).name)
    timer = _StepTimer(model, clock, engine, wide, expert_kernel)
    return timer.time(attention, ffn, batch, context, new)


class _Part:
    """What a part of a step takes: terms [s], stored weights [byte], live activations [element]."""

    def __init__(self):
        self.terms, self.notes = dict.fromkeys(TERMS, 0.0), ()
        self.weights, self.live, self.done = 0.0, 0.0, None

    def add(self, term, timed, times=None):
        """One more operation, run so many times."""
        seconds = timed.seconds if times is None else times * timed.seconds
        self.terms[term] = self.terms[term] + seconds
        self.notes += tuple(note for note in timed.notes if note not in self.notes)


class _Kept(NamedTuple):
    """What is held besides the matrices on the fullest GPU [byte]; stages share the first two."""

    vectors: float  # norms, biases, embedding, positions
    cache: float
    stream: float  # the residual stream of a micro-batch


class _StepTimer:
    """Times steps of one model in one format. A step is its attention part, which knows one plan,
    and its feed-forward part; for one load each is timed once, however many pairs of plans share
    it.
    """

    def __init__(self, model, clock, engine, wide=(), expert_kernel=None):
        self.model, self.clock, self.expert_kernel = need_model(model), clock, expert_kernel
        self.engine = as_engine(engine)
        if expert_kernel is not None:
            choice("expert_kernel", expert_kernel, EXPERT_KERNELS)
        bf16 = ((as_recipe("bf16"), 1.0),)
        kept = members("wide", wide, QUANTIZED)
        self.formats = {part: bf16 if part in kept else self._formats(part) for part in TERM_OF}
        self.parts = {}

    def _formats(self, part):
        """(recipe, share) of a part's matrices; what the checkpoint stores in a format of its own
        is multiplied as the device can.
        """
        asked, peaks, found = self.clock.recipe, self.clock.device.dense_peak, []
        for form, share in self.model.part_formats(part, asked):
            own = form in (asked, RECIPES["bf16"])
            found.append((form if own else multiplied(form, peaks), share))
        return tuple(found)

    def time(self, attention, ffn, batch, context, new):
        """A `Breakdown` of one step."""
        attention, ffn = same_gpus(attention, ffn)
        load = tuple(map(np.asarray, (batch, context, new)))
        outer = self._once(("attention", attention), load, self._attention, attention)
        key = ("ffn", ffn, attention.dp, attention.pp)
        inner = self._once(key, load, self._feed_forward, ffn, attention)
        kept = self._once(("kept", attention), load, self._kept, attention)
        zeros = np.zeros(np.broadcast_shapes(*(np.shape(x) for x in load)))
        terms = {
            name: scalar_or_array(outer.terms[name] + inner.terms[name] + zeros) for name in TERMS
        }
        weights = outer.weights + kept.vectors + inner.weights
        stored, cache = self._fullest(weights, kept.cache, context, attention.pp)
        live = np.maximum(outer.live, inner.live) * BF16.bytes
        done = {"parts": (outer.done, inner.done), "shape": zeros.shape}
        how = {"clock": self.clock, "formats": self.formats, "kernel": self.expert_kernel}
        return Breakdown(
            terms=terms,
            memory=scalar_or_array(stored + zeros),
            cache=scalar_or_array(cache + zeros),
            engine=self.engine,
            activations=scalar_or_array(kept.stream + live + zeros),
            capacity=self.clock.device.memory_capacity,
            notes=tuple(dict.fromkeys((*outer.notes, *inner.notes))),
            ideal=self.clock.ideal,
            joules=StepEnergy(**done, **how),
        )

    def _fullest(self, weights, cache, context, stages):
        """What the fullest stage holds, and the cache in it, of the weights and the cache of all
        stages [byte]; layers are cut as the engine cuts them.
        """
        if stages == 1:
            return weights + cache, cache
        key = ("stages", stages, np.shape(context), np.asarray(context).tobytes())
        if key not in self.parts:
            size = self.clock.recipe.kv_cache.bytes
            self.parts[key] = _stage_shares(self.model, context, stages, self.engine, size)
        most, in_it = -np.inf, 0.0
        for weight, cached in self.parts[key]:
            held = weights * weight + cache * cached
            in_it = np.where(held > most, cache * cached, in_it)
            most = np.maximum(most, held)
        return most, in_it

    def _once(self, key, load, timed, *arguments):
        """A part of a step that another pair of plans may have had, too, at the same load."""
        key = (*key, *((x.shape, x.tobytes()) for x in load))
        if key not in self.parts:
            self.parts[key] = timed(load, *arguments)
        return self.parts[key]

    def _attention(self, load, plan):
        batch, context, new = load
        micro = np.ceil(batch / plan.pp)  # with pipeline stages a batch is cut into as many
        done = attention_part(self.model, plan, batch=micro, context=context, new_tokens=new)
        done.exchanges.extend(_sends(self.model, micro, new, plan))
        return self._part(done)

    def _feed_forward(self, load, plan, attention):
        batch, context, new = load
        sizes = {"batch": np.ceil(batch / plan.pp), "context": context, "new_tokens": new}
        return self._part(feed_forward_part(self.model, plan, attention.dp, **sizes))

    def _part(self, done):
        """What a part of a step takes and holds, as a `_Part`."""
        clock, routed = self.clock, self.formats["experts"]
        spent = _Part()
        spent.done = done
        for gemm in done.gemms:
            if gemm.part != "experts" or clock.ideal:
                for recipe, share in self.formats[gemm.part]:
                    spent.add(TERM_OF[gemm.part], clock.gemm(gemm, recipe), share)
        for work in done.work:
            spent.add("attention", clock.attention(work), work.count)
        for scan in done.scans:
            spent.add("attention", clock.scan(scan), scan.count)
        for experts in () if clock.ideal else done.experts:
            for recipe, share in routed:
                timed = clock.experts(experts, recipe, self.expert_kernel)
                spent.add("experts", timed, share * experts.count)
        for exchange in done.exchanges:  # tokens are sent in the format of most experts
            spent.add("communication", clock.exchange(exchange, routed[0][0]), exchange.count)
        spent.add("small kernels", clock.small(done))
        spent.weights = self._weights(done)
        spent.live = done.live_elements
        return spent

    def _kept(self, load, plan):
        """Vectors (norms, biases) are on every GPU, the input embedding is cut like the head."""
        model, (batch, context, new) = self.model, load
        same = plan.tp * plan.kvp  # GPUs with the same tokens
        vectors = _cut_tables(model.closing, same)
        for block, times in model.block_counts.items():
            vectors += times * _cut_tables(block.weights(model.hidden_size), same)
        table = 0 if model.tied_embeddings else -(-model.vocab_size // same) * model.embedding_width
        norms = model.final_norm + model.embedding_norm
        rows = model.positions + norms * (1 + model.norm_bias)  # positions, and norms
        bias = model.vocab_size * model.head_bias
        cache = model.kv_bytes_per_gpu(context, plan.tp, self.clock.recipe.kv_cache) / plan.kvp
        held = np.ceil(batch / plan.dp) * (cache + model.state_bytes_per_gpu(plan))
        tokens = np.ceil(np.ceil(batch / plan.pp) / plan.dp) * new
        return _Kept(
            vectors=(vectors + table + bias + rows * model.hidden_size) * BF16.bytes,
            cache=held,
            stream=tokens * model.streams * model.hidden_size * BF16.bytes,
        )

    def _weights(self, done):
        """Stored weights of the matrices of a part on one GPU [byte]."""
        size = {
            part: sum(share * recipe.weights.bytes for recipe, share in formats)
            for part, formats in self.formats.items()
        }
        dense = [gemm for gemm in done.gemms if gemm.part != "experts" and gemm.stored]
        total = sum(gemm.count * gemm.n * gemm.k * size[gemm.part] for gemm in dense)
        routed = [experts for experts in done.experts if experts.stored]
        total += sum(e.count * e.stored_elements * size["experts"] for e in routed)
        return total + sum(elements * size[part] for part, elements in done.held)


def _cut_tables(weights, same):
    """Elements on one GPU of what no matrix is multiplied by [element]: tables are cut over the
    GPUs with the same tokens, vectors are on each.
    """
    kept = [w for w in weights if not w.matmul]
    tables = sum(-(-w.n // same) * w.k for w in kept if w.part == "embedding")
    return tables + sum(w.stored * w.elements for w in kept if w.part != "embedding")


def _stage_shares(model, context, stages, engine, size):
    """Shares of the weights and of cache and state in each stage [dimensionless], as a list of
    pairs: the embedding is in the first stage, the head in the last. `size` is that of a cached
    element [byte].
    """
    sizes, caches = {}, {}
    for block in model.block_counts:
        sizes[block] = sum(w.stored * w.elements for w in block.weights(model.hidden_size))
        mixer = block.mixer
        caches[block] = 0.0 * np.asarray(context, float)
        if mixer:
            state, conv = mixer.state_elements
            constant = state * FP32.bytes + conv * BF16.bytes
            caches[block] = mixer.kept(context) * size + constant
    split = stage_layers(len(model.blocks), stages, extra=engine.extra_layers)
    ends = np.cumsum(split)
    parts = [model.blocks[end - layers : end] for end, layers in zip(ends, split, strict=True)]
    weights = [float(sum(sizes[block] for block in part)) for part in parts]
    weights[0] += model.vocab_size * model.embedding_width
    weights[0] += sum(w.elements for w in model.closing if w.part == "embedding")
    weights[-1] += model.head_rows * model.embedding_width
    cached = [sum(caches[block] for block in part) for part in parts]
    every = np.maximum(sum(cached), 1e-9)
    return [(w / sum(weights), c / every) for w, c in zip(weights, cached, strict=True)]


def _sends(model, batch, new, plan):
    """What a micro-batch hands from stage to stage: a hidden vector a token, and from the last to
    the first a token alone.
    """
    if plan.pp == 1:
        return []
    tokens = np.ceil(batch / plan.dp) * new
    vectors = tokens * model.streams * model.hidden_size / plan.tp
    between = Exchange(kind="send", elements=vectors, ranks=2, count=plan.pp - 1)
    return [between, Exchange(kind="send", elements=tokens, ranks=2)]
