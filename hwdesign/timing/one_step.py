"""Decode steps of one model under one pair of plans, one load after another.

In a decode step the projections, experts, exchanges and small kernels depend on the number of
sequences alone; the context sizes the scores, the choice of an indexer and the cache. What depends
on the sequences is timed once, for many neighbouring numbers of them in one go; with each load only
the rest is. Which operations these are is not listed anywhere: all are collected for two contexts
at once, and an array that spans both shows what the context has sized. Where anything but scores
does, every step is timed whole.
"""

import threading
from collections import Counter
from dataclasses import fields
from typing import NamedTuple

import numpy as np

from hwdesign.models.steps import AttentionRun, Plan, Step, same_gpus
from hwdesign.timing.spent import Kept, Part

BLOCK = 64  # neighbouring numbers of sequences that are timed together
LENGTHS = 1024  # neighbouring lengths of a sequence whose sizes are worked out together
MOST_BLOCKS = 128  # of each that are remembered
FEW = 3  # loads that are timed one by one, as cheaply as what lies around them is learnt
MOST_SCORES = 256  # that the clock remembers; another load has others
CONTEXTS = np.array([[1.0, 2.0**20]])  # two, by whose axis a size shows that it depends on them
ONE = np.float64(1.0)  # new token of a sequence


class _Noted(AttentionRun):
    """Collects operations; scores, and the small kernels beside them, it keeps apart with the calls
    that made them.
    """

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.calls, self.apart, self.inside = Counter(), [], False
        self.beside = [0, 0.0]  # small kernels and their elements

    def attend(self, **sizes):
        self._note(AttentionRun.attend, sizes)

    def score(self, **sizes):
        self._note(AttentionRun.score, sizes)

    def small(self, kernels, elements):
        if not self.inside:
            super().small(kernels, elements)
            return
        kernels = kernels * self.count
        self.beside[0] += kernels
        self.beside[1] = self.beside[1] + 2 * kernels * elements

    def _merge(self, *sizes):
        inside, self.inside = self.inside, False
        super()._merge(*sizes)  # of the projection, whatever calls it
        self.inside = inside

    def _note(self, method, sizes):
        before, self.inside = len(self.work), True
        method(self, **sizes)
        self.inside = False
        self.apart += self.work[before:]
        if any(np.ndim(size) for size in sizes.values()):
            raise ValueError("scores depend on the load by more than their sizes")
        self.calls[method, tuple(sorted(sizes.items()))] += self.count

    def step(self):
        """What is not kept apart."""
        rest = [work for work in self.work if not any(work is one for one in self.apart)]
        if len(rest) + len(self.apart) != len(self.work):
            raise ValueError("scores were changed after their call")
        self.work = rest
        return super().step()

    def noted(self):
        """(method, count, arguments) of the calls, equal ones once."""
        return [(method, count, dict(sizes)) for (method, sizes), count in self.calls.items()]


class _Scores(AttentionRun):
    """Makes the scores of noted calls again, with what a sequence sees in their order; of what else
    they add only the small kernels are looked at.
    """

    def __init__(self, seen, *sizes):
        super().__init__(*sizes)
        self.rest = iter(seen)

    def seen(self, *sizes):
        rest = self.rest
        return next(rest), next(rest), next(rest)

    def gemm(self, *sizes, **more):
        """Known already."""

    exchange = _merge = gemm


class _Lengths(_Scores):
    """Notes what one sequence of each of many lengths sees."""

    def __init__(self, *sizes):
        super().__init__((), *sizes)
        self.columns = []

    def seen(self, *sizes):
        found = AttentionRun.seen(self, *sizes)
        self.columns += found
        return found


class _Known(NamedTuple):
    """What no load changes."""

    attention: Plan
    ffn: Plan
    calls: list  # (method, count, arguments) of the scores
    chooses: bool  # whether small kernels depend on the context, too
    vectors: float  # [byte]
    said: tuple  # notes of the scores

    def again(self, run):
        """A run after the calls."""
        for method, run.count, sizes in self.calls:
            method(run, **sizes)
        return run


class OneStep:
    """Times single decode steps of one setting fast, from the fourth load on.

    Parameters
    ----------
    timer : object
        What times the parts of a step, as `hwdesign.timing.estimate` makes it.
    attention, ffn : Plan or None
        Plans of the two parts.

    Examples
    --------
    >>> from hwdesign.models import config
    >>> from hwdesign.timing.estimate import decode_step
    >>> llama = config.load("llama-3.1-8b")
    >>> steps = [decode_step(llama, "H200", "fp8", batch=b, context=99) for b in (1, 2, 3)]
    >>> [bool(step.seconds > 0) for step in steps]
    [True, True, True]
    """

    def __init__(self, timer, attention, ffn):
        self.timer, self.lock = timer, threading.Lock()
        self.asked, self.plans = (attention, ffn), ()
        timer.clock.most_known = MOST_SCORES
        self.first, self.whole = {}, False  # the first steps; whether all are timed whole
        self.known, self.blocks, self.singles, self.lengths = None, {}, {}, {}

    def time(self, batch, context):
        """The `Breakdown` of one load, two floats."""
        step = self.first.get((batch, context))
        if step is None and len(self.first) < FEW:
            step = self.first[batch, context] = self._plain(batch, context)
        if step is not None:
            return step.unchecked(**vars(step) | {"terms": dict(step.terms)})
        if self.whole:
            return self._plain(batch, context)
        try:
            return self._quick(batch, context) or self._plain(batch, context)
        except Exception:  # a mixer may be anybody's, and do what no part of the package does
            step = self._plain(batch, context)  # says what is wrong with the load, if anything is
            self.whole = True
            return step

    def _plain(self, batch, context):
        with self.lock:
            try:
                return self.timer.time(*self.asked, batch, context, 1)
            finally:
                self.timer.forget()

    def _quick(self, batch, context):
        """The same with what is known of so many sequences; None where a note is another one."""
        if self.known is None:
            with self.lock:
                self.known = self._learnt(batch, context)
        timer, known, plan = self.timer, self.known, self.known.attention
        row, notes = self._row(batch)
        sequence, *seen = self._length(context)
        sizes = timer.model.hidden_size, plan, np.ceil(batch / plan.pp), context, ONE
        run, spent = known.again(_Scores(seen, *sizes)), Part.of_row(row, notes)
        if timer.score(spent, run.work) != known.said:
            return None
        if known.chooses:
            kernels, elements = row[-2] + run.small_kernels, row[-1] + run.small_elements
            done = Step(small_kernels=kernels, small_elements=elements)
            spent.add("small kernels", timer.clock.small(done))
            if spent.notes != notes:
                return None
        held = np.ceil(batch / plan.dp) * sequence
        kept = Kept(known.vectors, held, row[-3])
        return timer.breakdown(spent, kept, (batch, context, ONE), self.plans)

    def _learnt(self, batch, context):
        """What no load changes."""
        timer, (attention, ffn) = self.timer, same_gpus(*self.asked)
        self.plans = attention, ffn
        run = timer.attention_run((np.array([[batch]]), CONTEXTS, ONE), attention, _Noted)
        calls, chooses = run.noted(), np.shape(run.beside[1])[-1:] == CONTEXTS.shape[1:]
        known = _Known(attention, ffn, calls, chooses, timer.vectors(attention), ())
        sizes = timer.model.hidden_size, attention, np.float64(batch), context, ONE
        return known._replace(said=timer.score(Part(), known.again(_Lengths(*sizes)).work))

    def _length(self, context):
        """Numbers of a sequence of so many tokens: what it keeps on a GPU, what it sees."""
        index = int(context - 1) // LENGTHS
        first = index * LENGTHS + 1
        rows = self.lengths.get(index)
        if rows is None:
            with self.lock:
                rows = self._lengths(np.arange(first, first + LENGTHS, dtype=float))
                _keep(self.lengths, index, rows)
        return rows[int(context) - first]

    def _lengths(self, contexts):
        """A row for each of these lengths."""
        timer, plan = self.timer, self.known.attention
        any_batch = np.float64(np.nan)  # shows up where a number depends on it
        run = _Lengths(timer.model.hidden_size, plan, any_batch, contexts, ONE)
        columns = [timer.sequence(contexts, plan), *self.known.again(run).columns]
        rows = np.stack([np.broadcast_to(column, contexts.shape) for column in columns], axis=1)
        if np.isnan(rows).any():
            raise ValueError("a sequence depends on how many there are")
        return rows

    def _row(self, batch):
        """(numbers, notes) of so many sequences; neighbours are timed with the second of them."""
        index = int(batch - 1) // BLOCK
        first = index * BLOCK + 1
        if block := self.blocks.get(index):
            return block[0][int(batch) - first], block[1]
        with self.lock:
            single = self.singles.get(index)
            if single is None:
                rows, notes = self._rows(np.array([[batch]]))
                single = batch, rows[0], notes
                _keep(self.singles, index, single)
            if single[0] == batch:
                return single[1:]
            rows, notes = self._rows(np.arange(first, first + BLOCK, dtype=float)[:, None])
            _keep(self.blocks, index, (rows, notes))
            return rows[int(batch) - first], notes

    def _rows(self, batches):
        """(numbers, a row for each of these numbers of sequences; notes)."""
        timer, known, load = self.timer, self.known, (batches, CONTEXTS, ONE)
        run = timer.attention_run(load, known.attention, _Noted)
        if run.noted() != known.calls:
            raise ValueError("scores depend on the number of sequences")
        outer, inner = run.step(), timer.feed_forward_step(load, known.ffn, known.attention)
        if not known.chooses:
            outer = outer + Step(small_kernels=run.beside[0], small_elements=run.beside[1])
        if _spans(outer) or _spans(inner):
            raise ValueError("more than the scores depends on the context")
        spent = timer.part(outer, known.said, not known.chooses).joined(
            timer.part(inner, beside=timer.beside(known.ffn))
        )
        timer.forget()
        more = (timer.stream(batches, ONE, known.attention), outer.small_kernels)
        return spent.rows(len(batches), *more, outer.small_elements), spent.notes


def _keep(known, key, value):
    """One more thing that is known, in the place of the oldest if need be."""
    if len(known) >= MOST_BLOCKS:
        del known[next(iter(known))]
    known[key] = value


def _spans(step):
    """Whether a size of a step spans both contexts."""
    for field in fields(step):
        value = getattr(step, field.name)
        for one in value if isinstance(value, list) else [(value,)]:
            sizes = one if isinstance(one, tuple) else vars(one).values()
            if any(getattr(size, "shape", ())[-1:] not in ((), (1,)) for size in sizes):
                return True
    return False
