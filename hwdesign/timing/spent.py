"""What a part of a step takes and holds, added up operation by operation."""

from typing import NamedTuple

import numpy as np

TERMS = ("projections", "attention", "ffn", "experts", "head", "communication", "small kernels")
AMOUNTS = ("weights",)  # [byte], what else adds up


class Part:
    """What a part of a step takes: terms [s], other amounts that add up (stored weights [byte]),
    live activations [element].
    """

    def __init__(self, terms=None, amounts=None, live=0.0, notes=()):
        self.terms = dict.fromkeys(TERMS, 0.0) if terms is None else terms
        self.amounts = dict.fromkeys(AMOUNTS, 0.0) if amounts is None else amounts
        self.live, self.notes = live, notes

    def add(self, term, timed, times=None):
        """One more operation, run so many times."""
        seconds = timed.seconds if times is None else times * timed.seconds
        self.terms[term] = self.terms[term] + seconds
        self.note(timed.notes)

    def note(self, notes):
        """What must be said, once."""
        if notes:
            self.notes += tuple(note for note in notes if note not in self.notes)

    def joined(self, other):
        """Both parts together."""
        return Part(
            {name: seconds + other.terms[name] for name, seconds in self.terms.items()},
            {name: amount + other.amounts[name] for name, amount in self.amounts.items()},
            np.maximum(self.live, other.live),
            tuple(dict.fromkeys((*self.notes, *other.notes))),
        )

    def rows(self, loads, *more):
        """All numbers, and `more`, in a row for each of so many loads."""
        numbers = (*self.terms.values(), *self.amounts.values(), self.live, *more)
        columns = [np.broadcast_to(number, (loads, 1)) for number in numbers]
        return np.hstack(columns).astype(float)

    @classmethod
    def of_row(cls, row, notes):
        """The part whose row this is."""
        ends = len(TERMS), len(TERMS) + len(AMOUNTS)
        terms = dict(zip(TERMS, row, strict=False))
        amounts = dict(zip(AMOUNTS, row[ends[0] : ends[1]], strict=True))
        return cls(terms, amounts, row[ends[1]], notes)


class Kept(NamedTuple):
    """What is held besides the matrices on the fullest GPU [byte]; stages share the first two."""

    vectors: float  # norms, biases, embedding, positions
    cache: float
    stream: float  # the residual stream of a micro-batch
