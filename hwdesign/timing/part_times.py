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

from hwdesign._check import vector, whole
from hwdesign.catalogue.engine import engine as as_engine
from hwdesign.catalogue.precision import BF16
from hwdesign.models.blocks import Block
from hwdesign.models.model import Model
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
        Length of a prompt and of an answer [token].
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
        self.prompt, self.answer = whole(prompt=prompt, answer=answer)
        self.batches = vector("batches", batches).astype(float)
        self.engine, self.device, self.timers = as_engine(engine), device, {}
        self.mixes = self.engine.name in MIXED

    def timer(self, recipe):
        """What times operations under a recipe."""
        if recipe not in self.timers:
            clock = Clock(self.device, recipe, engine=self.engine)
            self.timers[recipe] = StepTimer(_bare(1, 1), clock, self.engine)
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
        context = np.ceil(self.prompt + self.answer / 2)
        decode = self.sequences(groups) * groups, np.float64(context), np.float64(1.0)
        prompts = np.array([float(self.prompt)])
        if self.mixes:
            many = np.maximum(self.prompts(groups), 1)
            joined = np.ceil(many * self.prompt + self.sequences(groups))
            prompts = np.concatenate([prompts, joined])
        return decode, (np.float64(groups), prompts, prompts)

    def mixers(self, hidden, blocks, plan):
        """Operations of the mixers and norms of some blocks, as a list of (decode, prompt) steps;
        None in the place of a mixer that the plan does not divide.
        """

        def collect(block, load):
            run = AttentionRun(hidden, plan, *load)
            run.small(block.norms, run.tokens * hidden)
            for part in (block.mixer, block.residual):
                if part:
                    part.operations(run)
            return run.step()

        return [self._collected(collect, block, plan.dp) for block in blocks]

    def feeds(self, hidden, feeds, plan, groups):
        """The same of some feed-forward parts, where so many groups bring tokens of their own."""

        def collect(ffn, load):
            batch, _, new = load
            run = FeedForwardRun(hidden, plan, groups, batch, new)
            run.feed(ffn)
            return run.step()

        return [self._collected(collect, ffn, groups) for ffn in feeds]

    def rest(self, model, plan):
        """The same of the embedding, the last norm and the head of a model, as a list of one."""

        def collect(model, load):
            run = AttentionRun(model.hidden_size, plan, *load)
            collect_attention(model, run)
            return run.step()

        bare = replace(model, blocks=(Block(mixer=None, ffn=None, norms=0),))
        return [self._collected(collect, bare, plan.dp)]

    def _collected(self, collect, part, groups):
        try:
            return tuple(collect(part, load) for load in self._loads(groups))
        except ValueError:  # a way does not divide what it splits
            return None

    def times(self, steps, recipe, groups, *, vectors, sequence, beside=False):
        """`Times` of parts from their steps, of which none is None.

        `vectors`, stored elements that no matrix product takes, and `sequence`, bytes of a
        sequence, are one number a part; `beside` as in `StepTimer.part`.
        """
        places = {}
        for place, (decode, _) in enumerate(steps):
            places.setdefault(_structure(decode), []).append(place)
        found, order = [], []
        for same in places.values():
            some = [steps[place] for place in same]
            found.append(self._timed(some, recipe, groups, beside))
            order += same
        back = np.argsort(order)
        columns = [np.concatenate([each[name] for each in found])[back] for name in range(6)]
        decode, added, alone, matrices, live, prompt_live = columns
        weights = matrices + BF16.bytes * np.reshape(np.asarray(vectors, float), (-1, 1))
        kept = np.reshape(np.asarray(sequence, float), (-1, 1))
        return Times(decode, added, alone, weights, kept, live, prompt_live)

    def _timed(self, steps, recipe, groups, beside):
        """(decode, added, alone, matrices, live, live of a prompt) of parts that run the same
        operations in other sizes, a row each.
        """
        timer, count, shape = self.timer(recipe), len(steps), (len(steps), len(self.batches))
        decode, prompt = (
            timer.part(_stacked(each), beside=beside) for each in zip(*steps, strict=True)
        )
        timer.forget()  # the arrays would fill the memory
        size = len(self.batches) + 1 if self.mixes else 1
        spent = _filled(sum(prompt.terms.values()), (count, size))
        if self.mixes:
            many = np.maximum(self.prompts(groups), 1)
            scores = _filled(prompt.terms["attention"], (count, size))[:, :1]
            added = many * scores
            for name in SHARED_TERMS:
                joined = _filled(prompt.terms[name], (count, size))[:, 1:]
                added = added + (joined - _filled(decode.terms[name], shape))
        else:
            added = np.broadcast_to(spent, shape)
        return (
            _filled(sum(decode.terms.values()), shape),
            added,
            spent[:, :1],
            _filled(decode.amounts["weights"], (count, 1)),
            _filled(decode.live, shape) * BF16.bytes,
            _filled(prompt.live, (count, size))[:, :1] * BF16.bytes,
        )

    def mixer_times(self, hidden, blocks, plan, recipe):
        """`Times` of blocks without their feed-forward parts, and the places of those that the plan
        divides.
        """
        timer, steps = self.timer(recipe), self.mixers(hidden, blocks, plan)
        kept = [place for place, step in enumerate(steps) if step]
        if not kept:
            return None, kept
        alone = [replace(blocks[place], ffn=None) for place in kept]
        context = np.ceil(self.prompt + self.answer / 2)
        found = self.times(
            [steps[place] for place in kept],
            recipe,
            plan.dp,
            vectors=[_vectors(block.weights(hidden)) for block in alone],
            sequence=[_held(timer, block, hidden, context, plan) for block in alone],
        )
        return found, kept

    def feed_times(self, hidden, feeds, plan, groups, recipe):
        """`Times` of some feed-forward parts, and the places of those that the plan divides."""
        steps = self.feeds(hidden, feeds, plan, groups)
        kept = [place for place, step in enumerate(steps) if step]
        if not kept:
            return None, kept
        found = self.times(
            [steps[place] for place in kept],
            recipe,
            groups,
            vectors=[_vectors(feeds[place].weights(hidden)) for place in kept],
            sequence=np.zeros(len(kept)),
            beside=self.timer(recipe).beside(plan),
        )
        return found, kept

    def rest_times(self, model, plan, recipe):
        """`Times` of what a model has beside its layers, one row."""
        bare = replace(model, blocks=(Block(mixer=None, ffn=None, norms=0),))
        timer = self.timer(recipe)
        whole_model = StepTimer(bare, timer.clock, self.engine)
        elements = whole_model.vectors(plan) / BF16.bytes
        steps = self.rest(model, plan)
        return self.times(steps, recipe, plan.dp, vectors=[elements], sequence=[0.0])

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
        live = np.maximum(
            total.live + sequences * stream, total.prompt_live + self.prompt * stream
        )
        capacity = self.timer(next(iter(self.timers))).clock.device.memory_capacity
        room = self.engine.cache_room(capacity, total.weights + live)
        return Served(token, total.alone, total.weights + cache, cache <= room)

    def model(self, model, attention, ffn, recipe):
        """What a whole model gives under two plans: the sum of its parts, a `Served` of one row."""
        hidden, groups = model.hidden_size, attention.dp
        total = self.rest_times(model, attention, recipe)
        for block, count in model.block_counts.items():
            found, _ = self.mixer_times(hidden, [block], attention, recipe)
            total = total.plus(found.times(count))
            if block.ffn:
                found, _ = self.feed_times(hidden, [block.ffn], ffn, groups, recipe)
                total = total.plus(found.times(count))
        return self.served(total, len(model.blocks), hidden, groups)


def _bare(hidden, vocabulary):
    """A model of nothing but an embedding and a head."""
    blocks = (Block(mixer=None, ffn=None, norms=0),)
    return Model(name="rest", hidden_size=hidden, vocab_size=vocabulary, blocks=blocks)


def _held(timer, block, hidden, context, plan):
    """Bytes that a sequence keeps of a layer on a GPU."""
    model = Model(name="part", hidden_size=hidden, vocab_size=1, blocks=(block,))
    return float(StepTimer(model, timer.clock, timer.engine).sequence(context, plan))


def _vectors(weights):
    """Stored elements that no matrix product takes [element]."""
    return sum(weight.stored * weight.elements for weight in weights if not weight.matmul)


def _filled(value, shape):
    return np.broadcast_to(np.asarray(value, float), shape)


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
    """Numbers or arrays of batches as one array with a row for each; a number that all share stays
    one.
    """
    if all(np.ndim(value) == 0 for value in values):
        if all(value == values[0] for value in values):
            return values[0]
        return np.reshape(np.asarray(values, float), (-1, 1))
    return np.stack(np.broadcast_arrays(*map(np.atleast_1d, values)))

