"""What each part of a model takes of a served token: a sum over parts, so that a search over shapes
times a part once and adds it up in many designs.

A decode step, the prompt that comes alone and the prompt that joins a step are sums over the
mixers, the feed-forward parts and the rest of a model (embedding, norms, head), but for the largest
live activation, which is a maximum. Engine, load and batches are fixed; parts of one kind and one
hidden size are timed together, one row each.
"""

from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from hwdesign._check import count, vector
from hwdesign.catalogue.device import device as as_device
from hwdesign.catalogue.engine import engine as as_engine
from hwdesign.catalogue.precision import BF16, RECIPES
from hwdesign.catalogue.precision import recipe as as_recipe
from hwdesign.models.blocks import Block
from hwdesign.models.model import Model
from hwdesign.models.parts import PlanError
from hwdesign.models.steps import (
    AttentionRun,
    FeedForwardRun,
    Step,
    collect_attention,
)
from hwdesign.timing.clock import Clock
from hwdesign.timing.estimate import ENGINE, StepTimer
from hwdesign.timing.intervals import engine_seconds
from hwdesign.timing.serving import MIXED, SHARED_TERMS

# Sizes that may differ between the operations of parts that are timed together; all else is equal.
SIZES = {
    "m", "n", "k", "count", "flops", "cache_elements", "batch", "context", "heads", "kv_heads",
    "size", "queries", "state", "ends", "kept", "tokens", "pairs", "touched", "local", "hidden",
    "width", "slots", "elements",
}  # fmt: skip
LISTS = ("gemms", "work", "scans", "experts", "exchanges")


class Times(NamedTuple):
    """What parts take, a row each: B batches, p parts. All but `live` and `prompt_live` add up over
    the layers of a model.

    >>> Times(*np.zeros((7, 2, 1))).times(3).decode.shape
    (2, 1)
    """

    decode: np.ndarray  # of a decode step, shape (p, B) [s]
    added: np.ndarray  # what a prompt adds to a step, shape (p, B) [s]
    alone: np.ndarray  # of a prompt that comes alone, shape (p, 1) [s]
    weights: np.ndarray  # stored on a GPU, vectors included, shape (p, 1) [byte]
    sequence: np.ndarray  # cache and state of a sequence on a GPU, shape (p, 1) [byte]
    live: np.ndarray  # largest activations of a decode step, shape (p, B) [byte]
    prompt_live: np.ndarray  # largest activations of a prompt alone, shape (p, 1) [byte]

    def times(self, count):
        """The same of so many equal layers; `count` of shape (p, 1) or a number."""
        return Times(*(count * each for each in self[:5]), *self[5:])

    def plus(self, other):
        """Both together."""
        added = (mine + theirs for mine, theirs in zip(self[:5], other[:5], strict=True))
        live = (np.maximum(a, b) for a, b in zip(self[5:], other[5:], strict=True))
        return Times(*added, *live)

    def rows(self, places):
        """Those of the parts at these places, shape (places,)."""
        return Times(*(each[places] for each in self))


class Served(NamedTuple):
    """What designs give at each batch: d designs, B batches."""

    token: np.ndarray  # time per output token, shape (d, B) [s]
    first: np.ndarray  # time of a prompt alone, shape (d, 1) [s]
    memory: np.ndarray  # weights and cache on a GPU, shape (d, B) [byte]
    fits: np.ndarray  # whether they fit beside the activations, shape (d, B)


class PartTimes:
    """Times the parts of models on one device in one engine, at one load and some batches.

    Parameters
    ----------
    device : str or Device
        Accelerator.
    prompt, answer : int
        Length of a prompt, at least 2, and of an answer [token].
    batches : sequence of int
        Sequences in flight over all GPUs, B of them.
    engine : str or Engine
        Whose kernels are taken, and whose share of the memory is kept back.

    Raises
    ------
    ValueError
        If a name is unknown or a number is below 1 or not whole.

    Notes
    -----
    The sums are those of `hwdesign.timing.serving.time_per_output_token`, `prefill_step` and
    `Breakdown`, to the rounding of float64. Models are stored in BF16 or converted by the recipe;
    plans have no pipeline stages.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> from hwdesign.models.steps import Plan
    >>> from hwdesign.timing.serving import time_per_output_token
    >>> times = PartTimes("H200", prompt=1000, answer=100, batches=[1, 8])
    >>> llama = config.load("llama-3.1-8b")
    >>> found = times.model(llama, Plan(), Plan(), "fp8")
    >>> load = {"concurrency": [1, 8], "input_tokens": 1000, "output_tokens": 100}
    >>> bool(np.allclose(found.token, time_per_output_token(llama, "H200", "fp8", **load)))
    True
    """

    def __init__(self, device, *, prompt, answer, batches, engine=ENGINE):
        self.prompt = count("prompt", prompt, least=2)  # one token alone would be a decode step
        self.answer = count("answer", answer)
        self.batches = vector("batches", batches).astype(float)
        self.device, self.engine, self.timers = as_device(device), as_engine(engine), {}
        self.mixes = self.engine.name in MIXED
        self.several = 1 + len(self.batches) * self.mixes  # prompts that are timed
        self.context = np.ceil(self.prompt + self.answer / 2)

    def timer(self, recipe):
        """What times operations under a recipe."""
        if recipe not in self.timers:
            clock = Clock(self.device, recipe, engine=self.engine)
            self.timers[recipe] = StepTimer(_model(1, 1), clock, self.engine)
        return self.timers[recipe]

    def sequences(self, groups):
        """Sequences of each of so many groups at each batch, shape (B,)."""
        return np.ceil(self.batches / groups)

    def prompts(self, groups):
        """Prompts that each of so many groups takes in a step, shape (B,)."""
        return (self.batches - 1) / self.answer / groups

    def _loads(self, groups):
        """(batch, context, new tokens) over all GPUs of a decode step, and of the prompt alone and
        those that join a step.
        """
        decode = self.sequences(groups) * groups, np.float64(self.context), np.float64(1.0)
        prompts = np.array([float(self.prompt)])
        if self.mixes:
            many = np.maximum(self.prompts(groups), 1)
            joined = np.ceil(many * self.prompt + self.sequences(groups))
            prompts = np.concatenate([prompts, joined])
        return decode, (np.float64(groups), prompts, prompts)

    def mixers(self, hidden, blocks, plan):
        """The mixers and norms of some blocks under a plan, as `Collected`.

        Parameters
        ----------
        hidden : int
            Hidden size [element].
        blocks : sequence of Block
            Their feed-forward parts are not looked at.
        plan : Plan
            Of the attention part.

        Returns
        -------
        Collected
            Of the blocks whose mixer the plan divides.
        """

        def collect(block, load):
            run = AttentionRun(hidden, plan, *load)
            run.small(block.norms, run.tokens * hidden)
            for part in (block.mixer, block.residual):
                if part:
                    part.operations(run)
            return run.step()

        alone = [replace(block, ffn=None) for block in blocks]
        models = [_model(hidden, 1, block) for block in alone]
        vectors = [_vectors(block.weights(hidden)) for block in alone]
        loads = self._loads(plan.dp)
        return _collected(collect, blocks, loads, plan, plan.dp, vectors, models)

    def feeds(self, hidden, feeds, plan, groups):
        """Some feed-forward parts under a plan, where so many groups of GPUs bring tokens of their
        own, as `Collected`; they look at the number of tokens alone.
        """

        def collect(ffn, load):
            run = FeedForwardRun(hidden, plan, groups, *load)
            run.feed(ffn)
            return run.step()

        (batch, _, one), (group, _, new) = self._loads(groups)
        loads = (
            np.concatenate([batch, np.broadcast_to(group, new.shape)]),
            np.concatenate([np.broadcast_to(one, batch.shape), new]),
        )
        vectors = [_vectors(ffn.weights(hidden)) for ffn in feeds]
        return _collected(collect, feeds, (loads,), plan, groups, vectors)

    def rest(self, model, plan):
        """The embedding, the last norm and the head of a model under a plan, as `Collected`."""

        def collect(model, load):
            run = AttentionRun(model.hidden_size, plan, *load)
            collect_attention(model, run)
            return run.step()

        bare = replace(model, blocks=NOTHING)
        timer = StepTimer(bare, self.timer(RECIPES["bf16"]).clock, self.engine)
        vectors = [timer.vectors(plan) / BF16.bytes]
        return _collected(collect, [bare], self._loads(plan.dp), plan, plan.dp, vectors)

    def times(self, collected, recipe):
        """What parts take under a recipe.

        Parameters
        ----------
        collected : Collected
            From `mixers`, `feeds` or `rest`.
        recipe : Recipe
            Formats, that of the cache among them.

        Returns
        -------
        Times
            A row for each part that is kept [s] and [byte].
        """
        found = [self._timed(collected, *stack, recipe) for stack in collected.stacks]
        back = np.argsort(np.concatenate([places for places, _ in collected.stacks]))
        columns = [np.concatenate(each)[back] for each in zip(*found, strict=True)]
        decode, added, alone, matrices, live, prompt_live = columns
        weights = matrices + BF16.bytes * collected.vectors
        kept = collected.held(self.context, recipe.kv_cache)
        return Times(decode, added, alone, weights, kept, live, prompt_live)

    def _timed(self, collected, places, steps, recipe):
        """(decode, added, alone, matrices, live, live of a prompt) of parts that run the same
        operations in other sizes, a row each.
        """
        timer, sizes, rows = self.timer(recipe), len(self.batches), len(places)
        beside = timer.beside(collected.plan)
        parts = [timer.part(step, beside=beside) for step in steps]
        timer.forget()  # the arrays would fill the memory

        def split(values):
            """A value of decode steps, and of prompts."""
            if len(values) == 2:
                return _filled(values[0], rows, sizes), _filled(values[1], rows, self.several)
            both = _filled(values[0], rows, sizes + self.several)
            return both[:, :sizes], both[:, sizes:]

        terms = {name: split([part.terms[name] for part in parts]) for name in parts[0].terms}
        decode = sum(each[0] for each in terms.values())
        alone = sum(each[1][:, :1] for each in terms.values())
        added = np.broadcast_to(alone, decode.shape)
        if self.mixes:
            many = np.maximum(self.prompts(collected.groups), 1)
            added = many * terms["attention"][1][:, :1]
            for name in SHARED_TERMS:
                added = added + (terms[name][1][:, 1:] - terms[name][0])
        live, prompt_live = split([part.live for part in parts])
        matrices = _filled(parts[0].amounts["weights"], rows, 1)
        live, prompt_live = (BF16.bytes * each for each in (live, prompt_live[:, :1]))
        return decode, added, alone, matrices, live, prompt_live

    def served(self, total, layers, hidden, groups):
        """What designs give, from the sum of their parts.

        Parameters
        ----------
        total : Times
            Sums over the layers of d designs.
        layers, hidden : array_like of float, shape (d, 1)
            Layers and hidden sizes [element] of the designs.
        groups : int
            Data-parallel groups of attention.

        Returns
        -------
        Served
            Times [s] and memory [byte] at each batch.
        """
        sequences, prompts = self.sequences(groups), self.prompts(groups)
        share = np.minimum(prompts, 1) if self.mixes else prompts
        token = total.decode + share * np.maximum(total.added, 0)
        token = token + engine_seconds(self.engine.name, layers, sequences)
        cache = sequences * total.sequence
        stream = BF16.bytes * np.asarray(hidden, float)
        live = np.maximum(total.live + sequences * stream, total.prompt_live + self.prompt * stream)
        room = self.engine.cache_room(self.device.memory_capacity, total.weights + live)
        return Served(token, total.alone, total.weights + cache, cache <= room)

    def model(self, model, attention, ffn, recipe):
        """What a whole model gives under two plans: the sum of its parts, a `Served` of one row."""
        if attention.pp > 1:
            raise ValueError(f"attention must have no pipeline stages, got pp = {attention.pp}")
        recipe, hidden, groups = as_recipe(recipe), model.hidden_size, attention.dp
        total = self.times(self.rest(model, attention), recipe)
        for block, layers in model.block_counts.items():
            found = self.times(self.mixers(hidden, [block], attention), recipe)
            total = total.plus(found.times(layers))
            if block.ffn:
                found = self.times(self.feeds(hidden, [block.ffn], ffn, groups), recipe)
                total = total.plus(found.times(layers))
        return self.served(total, len(model.blocks), hidden, groups)


class Collected:
    """Operations of parts under one plan, those of one structure as one step of more rows.

    `kept` are the places of the parts that the plan divides, `stacks` pairs of places among these
    and their steps, one for each load; `vectors` stored elements that no matrix product takes.
    """

    def __init__(self, plan, groups, kept, stacks, vectors, models):
        self.plan, self.groups, self.kept, self.stacks = plan, groups, kept, stacks
        self.vectors = np.reshape(np.asarray(vectors, float), (-1, 1))
        self.models, self.sizes = models, {}

    def held(self, context, cache):
        """Bytes that a sequence keeps of each part on a GPU, shape (p, 1); what `StepTimer`
        says of a whole model.
        """
        if self.models is None:
            return np.zeros((len(self.kept), 1))
        if cache not in self.sizes:
            plan, found = self.plan, []
            for model in self.models:
                kept = model.kv_bytes_per_gpu(context, plan.tp, cache) / plan.kvp
                found.append(kept + model.state_bytes_per_gpu(plan))
            self.sizes[cache] = np.reshape(np.asarray(found, float), (-1, 1))
        return self.sizes[cache]


def _collected(collect, parts, loads, plan, groups, vectors, models=None):
    """`Collected` of parts at some loads; without those that the plan does not divide."""
    kept, steps, places = [], [], {}
    for place, part in enumerate(parts):
        try:
            found = [collect(part, load) for load in loads]
        except PlanError:
            continue
        places.setdefault(_structure(found[0]), []).append(len(kept))
        kept.append(place)
        steps.append(found)
    stacks = []
    for same in places.values():
        columns = zip(*(steps[place] for place in same), strict=True)
        stacks.append((same, [_stacked(column) for column in columns]))
    vectors = [vectors[place] for place in kept]
    models = models and [models[place] for place in kept]
    return Collected(plan, groups, kept, stacks, vectors, models)


NOTHING = (Block(mixer=None, ffn=None, norms=0),)


def _model(hidden, vocabulary, *blocks):
    """A model of these blocks, an embedding and a head."""
    return Model(name="part", hidden_size=hidden, vocab_size=vocabulary, blocks=blocks or NOTHING)


def _vectors(weights):
    """Stored elements that no matrix product takes [element]."""
    return sum(weight.stored * weight.elements for weight in weights if not weight.matmul)


def _filled(value, rows, columns):
    return np.broadcast_to(np.asarray(value, float), (rows, columns))


def _structure(step):
    """What two steps must have in common to be timed as one of more rows."""
    found = [step.small_kernels, tuple(part for part, _ in step.held)]
    for name in LISTS:
        for one in getattr(step, name):
            equal = (getattr(one, field.name) for field in fields(one) if field.name not in SIZES)
            found.append((name, *equal))
    return tuple(found)


def _stacked(steps):
    """Steps of one structure as one step whose sizes have a row for each of them."""
    first = steps[0]
    values = {"small_kernels": first.small_kernels}
    values["small_elements"] = _row([step.small_elements for step in steps])
    for name in LISTS:
        columns = zip(*(getattr(step, name) for step in steps), strict=True)
        values[name] = [_joined(column) for column in columns]
    held = zip(*(step.held for step in steps), strict=True)
    values["held"] = [(column[0][0], _row([each for _, each in column])) for column in held]
    return Step(**values)


def _joined(column):
    """Equal operations of several parts as one."""
    first, values = column[0], {}
    for field in fields(first):
        name = field.name
        if name not in SIZES or all(getattr(one, name) is getattr(first, name) for one in column):
            values[name] = getattr(first, name)
        else:
            values[name] = _row([getattr(one, name) for one in column])
    return type(first)(**values)


def _row(values):
    """Numbers or arrays of batches as one array with a row for each; one that all share stays
    one.
    """
    first = values[0]
    if all(np.array_equal(value, first) for value in values):
        return first
    if all(np.ndim(value) == 0 for value in values):
        return np.reshape(np.asarray(values, float), (-1, 1))
    return np.stack(np.broadcast_arrays(*map(np.atleast_1d, values)))
