"""Attack trials on the silos' own code: real local steps, real clipping, real noise, and the real
secure sum; only the sum is looked at.

A model with d weights and records with one feature each is d regressions that never meet: a
    record's gradient lies in one coordinate,
clipping looks at that record alone, and noise is drawn for each coordinate. So one round is d
trials, and some thousands of rounds' worth of trials take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from torch import nn

from sumus.books import NoLedger
from sumus.data import Records
from sumus.gradients import one_torch_thread
from sumus.paper.theorem.attacks import Attack
from sumus.paper.theorem.regression import Integers
from sumus.parties import Agreement, Invited, RunSecret, SumsInProcess
from sumus.randomness import RandomSource
from sumus.training import LocalUpdate, LocalUpdater, local_updater

__all__ = ["records_of", "released_by_silos"]


def records_of(attack: Attack, silo: int, inside: npt.NDArray[np.bool_]) -> Records:
    """One silo's records in all coordinates; `inside` says in which of them the record in question
    is there.
    """
    held = [
        (coordinate, group)
        for coordinate, is_inside in enumerate(inside)
        for group in attack.groups(silo, with_record=bool(is_inside))
    ]
    copies = np.array([group.copies for _, group in held], dtype=np.int64)
    rows = np.zeros((len(held), len(inside)), dtype=np.float32)
    for row, (coordinate, group) in zip(rows, held, strict=True):
        row[coordinate] = group.feature
    labels = np.array([group.label for _, group in held], dtype=np.int64)
    return Records(np.repeat(rows, copies, axis=0), np.repeat(labels, copies))


def released_by_silos(
    attack: Attack,
    inside: npt.NDArray[np.bool_],
    *,
    rounds: int,
    source: RandomSource,
    sources: Callable[[int, int], RandomSource] | None = None,
) -> Integers:
    """(rounds, d) numbers that the attack sees in independent rounds, each from the public start.

    Args:
        inside: (d,) whether the record is there, for each coordinate.
        sources: (round, silo) to the random bits of one silo; by default each gets a key of its own
            from `source`.
    """
    design = attack.design
    model = nn.Sequential(nn.Linear(len(inside), 1, bias=False)).double()
    held = [
        records_of(attack, 0, inside),
        *[records_of(attack, 1, inside)] * (len(design.silos) - 1),
    ]
    updaters: list[LocalUpdater] = [
        local_updater(design, silo, records, model, loss=attack.regression.loss)
        for silo, records in zip(design.silos, held, strict=True)
    ]
    keyed = sources or (lambda _round, _silo: RandomSource.from_key(source.bytes(32)))
    number = 0

    def updated(
        silo: int, parameters: npt.NDArray[np.float64], seeds: Sequence[bytes]
    ) -> LocalUpdate:
        return updaters[silo](parameters, keyed(number, silo), seeds)

    sums = SumsInProcess(
        Agreement(design=design, certified=None, asked=rounds),
        [_AttackedWork(updated, silo) for silo in range(len(updaters))],
        RunSecret(RandomSource().bytes(32), design.plan.hash),
        releases=NoLedger("attack on made-up records"),
    )
    start = np.full(len(inside), attack.first_weight)
    everybody = Invited(frozenset(range(len(updaters))))
    out = np.empty((rounds, len(inside)), dtype=np.int64)
    with one_torch_thread():
        for number in range(rounds):
            total = np.asarray(sums.sum(number, everybody, start).total_grid, dtype=np.int64)
            out[number] = attack.seen(total)
    return out


@final
@dataclass(frozen=True)
class _AttackedWork:
    """What a silo under attack computes, with the bits of the attack."""

    updated: Callable[[int, npt.NDArray[np.float64], Sequence[bytes]], LocalUpdate]
    silo: int

    def update(
        self,
        parameters: npt.NDArray[np.float64],
        source: RandomSource,
        seeds: Sequence[bytes],
        number: int,
    ) -> LocalUpdate:
        """See `LocalWork.update`."""
        return self.updated(self.silo, parameters, seeds)

    def counts(self, parameters: npt.NDArray[np.float64], source: RandomSource) -> Integers:
        """Nothing is measured."""
        raise NotImplementedError
