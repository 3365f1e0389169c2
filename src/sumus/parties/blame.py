"""Who lied in the rounds of a run, as far as it can be told, and who is therefore left out.

A disagreement about a share proves that one of two silos lied (sumus.secagg.recovery has the proof);
two honest silos never have one. Let at most c silos lie. Then

    a silo that disagrees with more than c others, or with itself, or whose own tags fit nothing,
        is a liar: it is never invited again;
    of a pair that disagrees without that, one lied: the two take turns, so whoever it is spoils at
        most every other round, and the honest one stays in the training;
    a silo whose secrets stayed closed without proof against anybody rests, twice as long each time.

Turns and rests are kept only where c shares more than the threshold are left without them: with a
spare share a wrong one does no harm, and without one the liar of a pair would stop every round that
the other sits out. A liar is left out even so, since its share is lost anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

from sumus.secagg import Disagreements

__all__ = ["DISAGREED", "Blame"]

DISAGREED = "disagreed"
"""The journal's event of a round in which silos disagreed."""


@final
class Blame:
    """Disagreements of one run; silos are named by their places in the plan.

    Guarantee: while at most `colluding` silos lie (one, if the plan says 0), no honest silo is among
        `liars`.

    Args:
        names: of all silos, by their places in the plan.
        colluding: c.
    """

    def __init__(self, names: Sequence[str], *, colluding: int) -> None:
        self._names, self._most_liars = tuple(names), max(1, colluding)
        self._pairs: dict[tuple[int, int], int] = {}  # in the order in which they came up
        self._proved: set[int] = set()
        self._rests: dict[
            int, tuple[int, int]
        ] = {}  # times so far, first round that it is in again
        self._unwritten: list[dict[str, Any]] = []

    @property
    def liars(self) -> frozenset[int]:
        """Silos that certainly lied."""
        others: dict[int, set[int]] = {}
        for one, other in self._pairs:
            others.setdefault(one, set()).add(other)
            others.setdefault(other, set()).add(one)
        return frozenset(self._proved) | {
            silo for silo, against in others.items() if len(against) > self._most_liars
        }

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs of which one lied and neither is known to be the one."""
        liars = self.liars
        return tuple(pair for pair in self._pairs if not liars & set(pair))

    def note(self, number: int, noticed: Disagreements) -> tuple[str, ...]:
        """Take in what a round (from 0) showed; returns it in words, one line each."""
        if not noticed:
            return ()
        before = self.liars
        for owner, holder in sorted(noticed.pairs):
            if owner == holder:
                self._proved.add(owner)
            else:
                self._pairs.setdefault((min(owner, holder), max(owner, holder)), number)
        self._proved |= noticed.liars
        for silo in noticed.unopened:
            times = self._rests.get(silo, (0, 0))[0] + 1
            self._rests[silo] = times, number + 1 + 2 ** (times - 1)
        self._unwritten.append(
            {
                "round": number + 1,
                "pairs": [[self._names[a], self._names[b]] for a, b in sorted(noticed.pairs)],
                "liars": self._named(noticed.liars),
                "unopened": self._named(noticed.unopened),
            }
        )
        return tuple(self._lines(noticed, self.liars - before))

    def invited(self, present: frozenset[int], number: int, *, least: int) -> frozenset[int]:
        """Whom to invite to a round (from 0).

        Args:
            present: silos that are there.
            least: a round needs so many.
        """
        chosen, enough = set(present - self.liars), least + self._most_liars
        for silo, (_, until) in sorted(self._rests.items()):
            if number < until and len(chosen) > enough:
                chosen.discard(silo)
        for pair in self.pairs:
            if chosen.issuperset(pair) and len(chosen) > enough:
                chosen.discard(pair[number % 2])
        return frozenset(chosen)

    # -- the journal

    def unwritten(self) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Events for the journal, each once."""
        events, self._unwritten = self._unwritten, []
        return [(DISAGREED, event) for event in events]

    def recall(self, events: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Take in what the journal of the run says of earlier rounds."""
        place = self._names.index
        for event, detail in events:
            if event == DISAGREED:
                noticed = Disagreements(
                    pairs=frozenset((place(a), place(b)) for a, b in detail["pairs"]),
                    liars=frozenset(map(place, detail["liars"])),
                    unopened=frozenset(map(place, detail["unopened"])),
                )
                self.note(int(detail["round"]) - 1, noticed)
        self._unwritten = []

    # -- in words

    def _named(self, silos: Iterable[int]) -> list[str]:
        return [self._names[silo] for silo in sorted(silos)]

    def _lines(self, noticed: Disagreements, found: frozenset[int]) -> Iterable[str]:
        for name in self._named(found):
            yield f"{name} lied about shares: it is left out from the next round on"
        for one, other in sorted({(min(pair), max(pair)) for pair in noticed.pairs}):
            if not self.liars & {one, other}:
                yield (
                    f"{self._names[one]} and {self._names[other]} disagree about a share: one of "
                    "the two lied"
                )
        for name in self._named(noticed.unopened):
            yield f"the secrets of {name} could not be opened: somebody lied, or too many were gone"
