"""Which secrets a silo has in a round, and which of them a survivor set opens.

The one place that decides what may be revealed; silos and server both read it.

    secret 0              b_u, the seed of u's self mask          opened if u survives
    secrets 1 … n         s_uv, one per participant v it masks with   opened if u survives and v dropped out
    secrets n+1 … n+R     removable seeds                         opened, if u survives, for indices above the number missing

A silo that dropped out has no secret opened on its own behalf, so nobody is ever asked for both
masks of one input.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

from sumus.secagg.graph import Topology

__all__ = ["SecretLayout", "pair_sign"]


def pair_sign(owner: int, other: int) -> int:
    """+1 for the end of a pair that adds the common mask, −1 for the end that subtracts it."""
    return 1 if owner < other else -1


@final
@dataclass(frozen=True, kw_only=True)
class SecretLayout:
    """The secrets of one owner in one round.

    Args:
        owner: the silo whose secrets these are.
        holders: participants that hold shares of them, the owner included, in order; position + 1
            is the share's point.
        removable: R, number of removable seeds.
    """

    owner: int
    holders: tuple[int, ...]
    removable: int

    @classmethod
    def of(
        cls, topology: Topology, *, owner: int, participants: frozenset[int], removable: int
    ) -> SecretLayout:
        """The layout that follows from the topology and the participants of the round."""
        return cls(owner=owner, holders=topology.holders(owner, participants), removable=removable)

    @cached_property
    def partners(self) -> tuple[int, ...]:
        """The silos that the owner masks with."""
        return tuple(holder for holder in self.holders if holder != self.owner)

    @property
    def count(self) -> int:
        """Number of secrets."""
        return len(self.holders) + self.removable

    def opened_pairs(self, dropped: frozenset[int]) -> list[tuple[int, int]]:
        """(index of the secret, silo that dropped out) for every pair mask that has to be taken
        off.
        """
        if dropped.isdisjoint(self.holders):  # as a rule, and quickly told
            return []
        return [
            (1 + place, partner)
            for place, partner in enumerate(self.partners)
            if partner in dropped
        ]

    def opened_removable(self, missing: int) -> range:
        """Indices of the removable seeds that are not needed when `missing` silos of the roster are
        not in the sum.
        """
        first = len(self.holders)
        return range(first + min(missing, self.removable), first + self.removable)

    def opened(self, dropped: frozenset[int], *, missing: int) -> list[int]:
        """Indices of all secrets of a surviving owner that are opened, in order."""
        if self.owner in dropped:
            return []
        return [
            0,
            *(index for index, _ in self.opened_pairs(dropped)),
            *self.opened_removable(missing),
        ]
