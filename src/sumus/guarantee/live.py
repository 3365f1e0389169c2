"""ε after so many rounds, with the next value already on its way: accounting must not hold up a
round.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import final

from sumus.guarantee.accounts import spent
from sumus.guarantee.design import NoiseDesign
from sumus.plan import noise_ratios

__all__ = ["LiveEpsilon"]


@final
class LiveEpsilon:
    """`spent` of one design, remembered, and computed ahead in a thread of its own."""

    def __init__(self, design: NoiseDesign) -> None:
        self._design = design
        self._known: dict[tuple[int, ...] | int, Future[float]] = {}
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="epsilon")

    def __call__(self, rounds: int) -> float:
        """ε of the headline analysis after the first `rounds` rounds."""
        value = self._of(rounds).result()
        if rounds < self._design.plan.federation.rounds:
            self._of(rounds + 1)
        return value

    def of_rounds(self, numbers: Sequence[int]) -> float:
        """ε of the rounds with these numbers (from 1): any so many, where all rounds are alike."""
        places = tuple(number - 1 for number in numbers)
        alike = not noise_ratios(self._design.plan) or places == tuple(range(len(places)))
        return self(len(places)) if alike else self._of(places).result()

    def _of(self, rounds: tuple[int, ...] | int) -> Future[float]:
        if rounds not in self._known:
            self._known[rounds] = self._pool.submit(spent, self._design, rounds)
        return self._known[rounds]
