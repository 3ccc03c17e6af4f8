"""Time of one operation and of one step: each operation of `hwdesign.models.steps`, by the
calibrated models or the plain bound.

``ideal=True`` is the bound: each operation takes the longer of its FLOP at the dense peak and its
bytes at the datasheet's bandwidth, exchanges their bytes at the link's, everything else nothing.
Calibrated is what a library reaches, with the floors that a small batch meets: fixed times, small
kernels, latencies of exchanges.
"""

import functools
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace

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
from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.device import device_names
from hwdesign.catalogue.engine import Engine
from hwdesign.catalogue.engine import engine as as_engine
from hwdesign.catalogue.precision import BF16, FP32, RECIPES, multiplied
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.formulas.pipeline import stage_layers
from hwdesign.models.layers import Gemm
from hwdesign.models.model import Same, need_model
from hwdesign.models.parts import QUANTIZED, TERM_OF
from hwdesign.models.steps import (
    AttentionRun,
    Exchange,
    Experts,
    collect_attention,
    feed_forward_part,
    same_gpus,
)
from hwdesign.timing.clock import EXPERT_ENGINES, Clock, Timed
from hwdesign.timing.energy import StepEnergy
from hwdesign.timing.intervals import engine_seconds, interval_factors
from hwdesign.timing.one_step import OneStep
from hwdesign.timing.spent import Kept, Part

ENGINE = "vllm"  # by default
MOST_SETTINGS = 16  # of which the steps are remembered
MOST_PARTS = 4096  # of steps under many plans


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

    @classmethod
    def unchecked(cls, **values):
        """A breakdown of fields that need no look, since the package has made them."""
        made = object.__new__(cls)
        made.__dict__.update(values)
        return made

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

    @property
    def interval(self):
        """Where the middle 80 % of served points lay around modelled decode steps [s], as (least,
        most), with what the engine takes besides the kernels; None for prefill, which was not
        compared, and for the plain bound.
        """
        if self.ideal or self.engine is None or self.joules is None:
            return None
        batch, _, new = self.joules.load
        if np.any(np.asarray(new) != 1):
            return None
        sequences = np.ceil(np.asarray(batch) / self.joules.plans[0].dp)
        layers = len(self.joules.timer.model.blocks)
        served = self.seconds + engine_seconds(self.engine.name, layers, sequences)
        return tuple(scalar_or_array(served * factor) for factor in interval_factors())

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


def expert_time(experts, device, recipe, *, engine=ENGINE):
    """Time of the routed experts of one layer on one GPU.

    Parameters
    ----------
    experts : Experts
        What the GPU has to do; its fields may be arrays. `count` is not looked at.
    device : str or Device
        Accelerator.
    recipe : str or Recipe
        Formats of the operands.
    engine : str
        Whose kernels: "vllm", "sglang" or "trtllm".

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
    Source: `hwdesign.timing.kernels.expert_seconds`; the errors on layers which the fits did not
    see are on the page Accuracy.

    Examples
    --------
    >>> from hwdesign.models.steps import Experts
    >>> e = Experts(tokens=128.0, pairs=128.0, touched=32.0, local=32, hidden=7168, width=2048)
    >>> bool(
    ...     130e-6 < expert_time(e, "GB300", "nvfp4", engine="trtllm") < 165e-6
    ... )  # published: 162 us
    True
    """
    instance("experts", experts, Experts, "Experts, as a Step lists them")
    engine = choice("engine", engine, EXPERT_ENGINES, normal=str.lower)
    return _single(
        device, recipe, lambda clock: clock.experts(experts, clock.recipe), engine=engine
    )


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


def _single(device, recipe, seconds, ideal=False, framework=None, engine=None):
    """Time of one operation [s]; a warning says where its constants were not fitted on this device
    and format.
    """
    clock = Clock(device, recipe, ideal, framework, engine)
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
    engine : str or Engine
        Whose kernels are taken, as far as they were measured, and whose share of the memory is kept
        back in `Breakdown.feasible`.

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
    Source: the models of `hwdesign.timing`; routing is uniform. Not modelled: the host's work
    between two steps.

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
    how = (wide, ideal, framework, engine)
    if not batch.ndim and not context.ndim:
        steps = _remembered(_one_steps, model, device, recipe, attention, ffn, *how)
        if steps:
            return steps.time(batch[()], context[()])
    must_fit(batch=batch, context=context)
    return _timer(model, device, recipe, *how).time(attention, ffn, batch, context, 1)


def _timer(model, device, recipe, wide, ideal, framework, engine):
    """The `StepTimer` that the arguments of `decode_step` describe."""
    clock = Clock(device, recipe, ideal, framework, as_engine(engine))
    return StepTimer(model, clock, engine, wide)


def _remembered(kept, model, device, recipe, *how):
    """What `kept` has of the arguments of `decode_step`; None where they cannot be looked up."""
    *plans, wide, ideal, framework, engine = how
    wide = tuple(wide) if type(wide) is list else wide
    if type(wide) not in (tuple, str):
        return None
    if not (type(device) is str and device in device_names()):
        as_engine(engine)  # in the order in which a clock refuses
        device = as_device(device)  # a file may have changed, and a warning is due each time
    try:
        return kept(Same(model), device, recipe, *plans, wide, ideal, framework, engine)
    except TypeError:  # a list, which is no name
        return None


@functools.lru_cache(maxsize=MOST_SETTINGS, typed=True)
def _one_timer(same, device, recipe, *how):
    return _timer(same.model, device, recipe, *how)


@functools.lru_cache(maxsize=MOST_SETTINGS, typed=True)
def _one_steps(same, device, recipe, attention, ffn, *how):
    return OneStep(_timer(same.model, device, recipe, *how), attention, ffn)


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
        Whose kernels are taken, as far as they were measured, and whose share of the memory is kept
        back in `Breakdown.feasible`.

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
    one = np.ndim(batch) == np.ndim(context) == 0  # what few numbers take may be kept
    timer = one and _remembered(_one_timer, model, device, recipe, wide, False, None, engine)
    timer = timer or _timer(model, device, recipe, wide, False, None, engine)
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
        Whose kernels are taken, as far as they were measured, and whose share of the memory is kept
        back in `Breakdown.feasible`.

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
    clock = Clock(device, recipe, engine=as_engine(engine))
    timer, context = StepTimer(model, clock, engine), np.asarray(context)
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
    clock : Clock, optional
        Of this device and recipe, from an earlier step: what it has timed is not timed again.
    engine : str or Engine
        Whose kernels are taken, as far as they were measured, and whose share of the memory is kept
        back in `Breakdown.feasible`.

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
    clock = clock or Clock(device, recipe, ideal, framework, as_engine(engine))
    timer = StepTimer(model, clock, engine, wide)
    return timer.time(attention, ffn, batch, context, new)


class StepTimer:
    """Times steps of one model in one format. A step is its attention part, which knows one plan,
    and its feed-forward part; for one load each is timed once, however many pairs of plans share
    it.

    Parameters
    ----------
    model : Model
        What runs.
    clock : Clock
        What times single operations.
    engine : str or Engine
        Whose share of the memory is kept back.
    wide : sequence of str
        Parts of the model whose matrices stay in BF16 besides.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> from hwdesign.models.steps import Plan
    >>> timer = StepTimer(config.load("gpt2"), Clock("H200", "bf16"), "vllm")
    >>> bool(timer.time(Plan(), Plan(), 8, 1000, 1).seconds > 0)
    True
    """

    def __init__(self, model, clock, engine, wide=()):
        self.model, self.clock = need_model(model), clock
        self.engine = as_engine(engine)
        bf16 = ((as_recipe("bf16"), 1.0),)
        kept = members("wide", wide, QUANTIZED)
        self.formats = {part: bf16 if part in kept else self._formats(part) for part in TERM_OF}
        self.parts, self.stages = {}, {}

    def forget(self):
        """Nothing of earlier loads is kept."""
        self.parts.clear()
        self.clock.known.clear()

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
        return self.breakdown(outer.joined(inner), kept, load, (attention, ffn), zeros)

    def breakdown(self, spent, kept, load, plans, zeros=None):
        """The `Breakdown` of a step from its `Part` and what is held, at a load of batch, context
        and new tokens under two plans; `zeros` have its shape, without them all are single numbers.
        """

        def shaped(value):
            return value[()] if zeros is None else scalar_or_array(value + zeros)

        weights = spent.amounts["weights"] + kept.vectors
        stored, cache = self._fullest(weights, kept.cache, load[1], plans[0].pp)
        return Breakdown.unchecked(
            terms={name: shaped(seconds) for name, seconds in spent.terms.items()},
            memory=shaped(stored),
            cache=shaped(cache),
            engine=self.engine,
            activations=shaped(kept.stream + spent.live * BF16.bytes),
            capacity=self.clock.device.memory_capacity,
            notes=spent.notes,
            ideal=self.clock.ideal,
            joules=StepEnergy(timer=self, load=load, plans=plans),
        )

    def _fullest(self, weights, cache, context, stages):
        """What the fullest stage holds, and the cache in it, of the weights and the cache of all
        stages [byte]; layers are cut as the engine cuts them.
        """
        if stages == 1:
            return weights + cache, cache
        if stages not in self.stages:
            self.stages[stages] = _Stages(self.model, stages, self.engine)
        size, most, in_it = self.clock.recipe.kv_cache.bytes, -np.inf, 0.0
        for weight, cached in self.stages[stages].shares(context, size):
            held = weights * weight + cache * cached
            in_it = np.where(held > most, cache * cached, in_it)
            most = np.maximum(most, held)
        return most, in_it

    def _once(self, key, load, timed, *arguments):
        """A part of a step that another pair of plans may have had, too, at the same load."""
        key = (*key, *((x.shape, x.tobytes()) for x in load))
        found = self.parts.get(key)
        if found is None:
            found = timed(load, *arguments)
            if len(self.parts) >= MOST_PARTS:
                self.parts.clear()
            self.parts[key] = found
        return found

    def _attention(self, load, plan):
        return self.part(self.attention_run(load, plan).step())

    def attention_run(self, load, plan, runs=AttentionRun):
        """The attention part's operations, collected by a kind of run."""
        batch, context, new = load
        micro = np.ceil(batch / plan.pp)  # with pipeline stages a batch is cut into as many
        sizes = dims(batch=micro, context=context, new_tokens=new)
        run = runs(self.model.hidden_size, plan, *sizes)
        collect_attention(self.model, run)
        run.exchanges.extend(_sends(self.model, micro, new, plan))
        return run

    def _feed_forward(self, load, plan, attention):
        return self.part(self.feed_forward_step(load, plan, attention), beside=self.beside(plan))

    def feed_forward_step(self, load, plan, attention):
        """The feed-forward part's operations."""
        batch, context, new = load
        sizes = {"batch": np.ceil(batch / plan.pp), "context": context, "new_tokens": new}
        return feed_forward_part(self.model, plan, attention.dp, **sizes)

    def beside(self, plan):
        """Whether shared experts run in the kernel of the routed ones: in SGLang they are one more
        expert, unless experts are spread (deepseek_v2.py, determine_num_fused_shared_experts).
        """
        return self.engine.name == "sglang" and plan.ep == 1

    def _beside(self, gemm, recipe):
        """Time of a shared expert that is one more expert: its bytes and operations alone."""
        timed = self.clock.gemm(gemm, recipe)
        bound = self.clock.bound(gemm.flops, gemm.bytes(recipe), recipe.math)
        return Timed(np.minimum(bound.seconds, timed.seconds), timed.notes)

    def part(self, done, apart=(), small=True, beside=False):
        """What a part of a step takes and holds, as a `Part`; `apart`, what is said of scores that
        are timed by themselves, as small kernels may be, too; `beside`, see there.
        """
        clock, routed = self.clock, self.formats["experts"]
        spent = Part()
        for gemm in _multiplied_at_once(done.gemms):
            if gemm.part != "experts" or clock.ideal:
                timed = clock.gemm
                if beside and gemm.part == "shared experts" and not clock.ideal:
                    timed = self._beside
                for recipe, share in self.formats[gemm.part]:
                    spent.add(TERM_OF[gemm.part], timed(gemm, recipe), share)
        self.score(spent, done.work)
        spent.note(apart)
        for scan in done.scans:
            spent.add("attention", clock.scan(scan), scan.count)
        for experts in () if clock.ideal else done.experts:
            for recipe, share in routed:
                timed = clock.experts(experts, recipe)
                spent.add("experts", timed, share * experts.count)
        for exchange in done.exchanges:  # tokens are sent in the format of most experts
            spent.add("communication", clock.exchange(exchange, routed[0][0]), exchange.count)
        spent.add("small kernels", clock.small(done), float(small))
        spent.amounts["weights"] = self._weights(done)
        spent.live = done.live_elements
        return spent

    def score(self, spent, works):
        """Adds the time of scores and values to a `Part`; their notes, in order."""
        notes = ()
        for work in works:
            timed = self.clock.attention(work)
            spent.add("attention", timed, work.count)
            notes += timed.notes
        return notes

    def _kept(self, load, plan):
        batch, context, new = load
        held = np.ceil(batch / plan.dp) * self.sequence(context, plan)
        return Kept(self.vectors(plan), held, self.stream(batch, new, plan))

    def vectors(self, plan):
        """Vectors (norms, biases) are on every GPU, the input embedding is cut like the head
        [byte].
        """
        model = self.model
        same = plan.tp * plan.kvp  # GPUs with the same tokens
        vectors = _cut_tables(model.closing, same)
        for block, times in model.block_counts.items():
            vectors += times * _cut_tables(block.weights(model.hidden_size), same)
        table = 0 if model.tied_embeddings else -(-model.vocab_size // same) * model.embedding_width
        norms = model.final_norm + model.embedding_norm
        rows = model.positions + norms * (1 + model.norm_bias)  # positions, and norms
        bias = model.vocab_size * model.head_bias
        return (vectors + table + bias + rows * model.hidden_size) * BF16.bytes

    def sequence(self, context, plan):
        """What a sequence keeps on a GPU, cache and state [byte]."""
        cache = self.model.kv_bytes_per_gpu(context, plan.tp, self.clock.recipe.kv_cache)
        return cache / plan.kvp + self.model.state_bytes_per_gpu(plan)

    def stream(self, batch, new, plan):
        """The residual stream of a micro-batch [byte]."""
        tokens = np.ceil(np.ceil(batch / plan.pp) / plan.dp) * new
        return tokens * self.model.streams * self.model.hidden_size * BF16.bytes

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


def _multiplied_at_once(gemms):
    """The GEMMs as engines run them: the down projections of a latent attention share their input
    and are one product.
    """
    waiting, found = {}, []
    for gemm in gemms:
        key = gemm.count, gemm.k
        if gemm.name == "q down":
            waiting[key] = gemm
        elif gemm.name == "kv down" and key in waiting:
            found.append(replace(gemm, name="down", n=gemm.n + waiting.pop(key).n))
        else:
            found.append(gemm)
    return found + list(waiting.values())


def _cut_tables(weights, same):
    """Elements on one GPU of what no matrix is multiplied by [element]: tables are cut over the
    GPUs with the same tokens, vectors are on each.
    """
    kept = [w for w in weights if not w.matmul]
    tables = sum(-(-w.n // same) * w.k for w in kept if w.part == "embedding")
    return tables + sum(w.stored * w.elements for w in kept if w.part != "embedding")


class _Stages:
    """Shares of the weights and of cache and state in each stage: the embedding is in the first
    stage, the head in the last; layers are cut as the engine cuts them.
    """

    def __init__(self, model, stages, engine):
        sizes = {}
        for block in model.block_counts:
            sizes[block] = sum(w.stored * w.elements for w in block.weights(model.hidden_size))
        split = stage_layers(len(model.blocks), stages, extra=engine.extra_layers)
        ends = np.cumsum(split)
        parts = [model.blocks[end - layers : end] for end, layers in zip(ends, split, strict=True)]
        weights = [float(sum(sizes[block] for block in part)) for part in parts]
        weights[0] += model.vocab_size * model.embedding_width
        weights[0] += sum(w.elements for w in model.closing if w.part == "embedding")
        weights[-1] += model.head_rows * model.embedding_width
        self.weights = [weight / sum(weights) for weight in weights]
        self.mixers = [Counter(block.mixer for block in part if block.mixer) for part in parts]
        self.kinds = list(dict.fromkeys(mixer for part in self.mixers for mixer in part))

    def shares(self, context, size):
        """A pair for each stage [dimensionless]; `size` is that of a cached element [byte]."""
        caches = {}
        for mixer in self.kinds:
            state, conv = mixer.state_elements
            constant = state * FP32.bytes + conv * BF16.bytes
            caches[mixer] = mixer.kept(context) * size + constant
        none = 0.0 * np.asarray(context, float)
        cached = [sum((n * caches[m] for m, n in part.items()), none) for part in self.mixers]
        every = np.maximum(sum(cached), 1e-9)
        return [(w, c / every) for w, c in zip(self.weights, cached, strict=True)]


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
