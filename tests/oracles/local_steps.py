"""Two silos, two local steps, one released sum: its exact law when everybody's records but one are
the adversary's.

In step 1 silo 1 sends b + ξ and silo 2 sends ξ, where b ∈ {0, Δ} is what the record in question
adds when it joins. In step 2 the other records answer to the states z_j = (what was sent) + ζ_j
with integers of the adversary's choice, and the record may join once more:

    R = (b + ξ₁ + answer₁(z₁)) + (ξ₂ + answer₂(z₂)) + (b′ + ξ₁′ + ξ₂′)

The three brackets are independent, so the law of R is a convolution of enumerated ones. ζ = 0 is
dp-sgd.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np

from oracles.divergences import Array

Law = dict[int, float]
Answer = Callable[[int], int]


def as_law(array: Array) -> Law:
    """A law on −reach … reach as a table."""
    reach = len(array) // 2
    return {place - reach: float(weight) for place, weight in enumerate(array) if weight > 0.0}


NOTHING: Law = {0: 1.0}


def joining(rate: float, reach: int) -> Law:
    """What a record adds to a step that it joins with probability `rate`."""
    return {0: 1.0 - rate, reach: rate} if rate < 1.0 else {reach: 1.0}


def first_step_and_answer(sent: Law, unsent: Law, record: Law, answer: Answer) -> Law:
    """The law of b + ξ + answer(b + ξ + ζ): what one silo's first step leaves in the sum."""
    out: dict[int, float] = defaultdict(float)
    for b, of_record in record.items():
        for xi, of_sent in sent.items():
            for zeta, of_unsent in unsent.items():
                out[b + xi + answer(b + xi + zeta)] += of_record * of_sent * of_unsent
    return out


def added(first: Mapping[int, float], second: Mapping[int, float]) -> Law:
    """The law of the sum of two independent integers."""
    lows = [min(each) for each in (first, second)]
    dense = [np.zeros(max(each) - low + 1) for each, low in zip((first, second), lows, strict=True)]
    for law, array, low in zip((first, second), dense, lows, strict=True):
        for value, weight in law.items():
            array[value - low] += weight
    return {
        sum(lows) + place: float(weight)
        for place, weight in enumerate(np.convolve(dense[0], dense[1]))
        if weight > 0.0
    }


def released_sum(*, sent: Law, unsent: Law, record: Law, answers: tuple[Answer, Answer]) -> Law:
    """The law of R; `record` is `NOTHING` where the record is not there."""
    first = first_step_and_answer(sent, unsent, record, answers[0])
    second = first_step_and_answer(sent, unsent, NOTHING, answers[1])
    return added(added(first, second), added(record, added(sent, sent)))


def hockey_stick(p: Law, q: Law, alpha: float) -> float:
    return sum(max(weight - alpha * q.get(value, 0.0), 0.0) for value, weight in p.items())
