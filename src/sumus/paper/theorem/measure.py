"""One attack, measured: verdicts counted on the vectorised recursion and on the silos' own code,
and the lower bounds on ε that follow.

Both have a test and a number of trials fixed beforehand. The tests show that recursion and code
give the same integers for the same noise; here their rates are compared once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from scipy.stats import fisher_exact

from sumus.audit import Counts, best_test, epsilon_lower_bound, gaussian_epsilon
from sumus.paper.theorem.attacks import Attack
from sumus.paper.theorem.silos_code import released_by_silos
from sumus.randomness import RandomSource

__all__ = ["AttackResult", "Effort", "Maker", "count_hits", "measure"]

_CHUNK = 1 << 18  # draws of one silo and step that are held in memory at a time
_DISAGREE = 5e-10  # p-value, per hypothesis, below which code and recursion are said to differ

Maker = Callable[[float], Attack]
"""From a threshold to the attack that tests at it."""


@final
@dataclass(frozen=True, kw_only=True)
class AttackResult:
    """One attack on one algorithm.

    Args:
        exact_epsilon: ε at δ of the attack's score in the Gaussian limit.
        lower_bound: what the counted verdicts of the recursion prove, at the confidence of the
            audit.
        trials: of the recursion, both hypotheses together.
        code_lower_bound: what the verdicts on the silos' own code prove by themselves.
        code_trials: of the silos' code.
        code_agrees: whether recursion and code have the same rates at the code's test (false alarm
            below 1e-9).
    """

    attack: str
    model: str
    exact_epsilon: float
    lower_bound: float
    true_rate: float
    false_rate: float
    trials: int
    code_lower_bound: float
    code_trials: int
    code_agrees: bool

    @property
    def best(self) -> float:
        """The larger of the two bounds; all bounds of an analysis hold together."""
        return max(self.lower_bound, self.code_lower_bound)


@final
@dataclass(frozen=True)
class Effort:
    """How many trials an attack gets, and how sure each of its bounds has to be."""

    trials: int
    code_trials: int
    delta: float
    confidence: float

    def part(self, of_trials: int, of_code_trials: int) -> Effort:
        """A fraction of the trials, but always some."""
        return replace(
            self,
            trials=max(self.trials // of_trials, 1000),
            code_trials=max(self.code_trials // of_code_trials, 2),
        )

    def shared_by(self, bounds: int) -> Effort:
        """Confidence for each of several bounds that are to hold together."""
        return replace(self, confidence=1.0 - (1.0 - self.confidence) / bounds)


def measure(make: Maker, effort: Effort, source: RandomSource) -> AttackResult:
    """Count verdicts, of the recursion and of the silos' code, each with its own test."""
    separation = make(0.0).separation
    test = best_test(
        separation, trials=effort.trials, delta=effort.delta, confidence=effort.confidence
    )
    attack = make(test.threshold)
    counts = _count(attack, test.with_record, test.without_record, source)
    code_test = best_test(
        separation, trials=effort.code_trials, delta=effort.delta, confidence=effort.confidence
    )
    attack = make(code_test.threshold)
    by_code = _count_on_code(
        attack, code_test.with_record / effort.code_trials, effort.code_trials, source
    )
    alike = _count(attack, 4 * by_code.with_record, 4 * by_code.without_record, source)
    return AttackResult(
        attack=attack.name,
        model=attack.regression.name,
        exact_epsilon=gaussian_epsilon(separation, effort.delta),
        lower_bound=epsilon_lower_bound(counts, delta=effort.delta, confidence=effort.confidence),
        true_rate=counts.true_hits / counts.with_record,
        false_rate=counts.false_hits / counts.without_record,
        trials=counts.with_record + counts.without_record,
        code_lower_bound=epsilon_lower_bound(
            by_code, delta=effort.delta, confidence=effort.confidence
        ),
        code_trials=by_code.with_record + by_code.without_record,
        code_agrees=_agree(by_code, alike),
    )


def count_hits(
    attack: Attack,
    trials: int,
    source: RandomSource,
    *,
    with_record: bool,
    tests: Sequence[Attack] = (),
) -> list[int]:
    """How often the recursion's trials are called "in".

    Args:
        tests: attacks that differ in their verdict only; each judges the same trials. By default
            `attack` itself.
    """
    chunk = max(1, _CHUNK // max(1, len(attack.design.silos) // 8))
    hits = np.zeros(max(len(tests), 1), dtype=np.int64)
    for start in range(0, trials, chunk):
        totals = attack.totals(
            attack.draw(min(chunk, trials - start), source), with_record=with_record
        )
        hits += [int(test.says_in(totals).sum()) for test in tests or (attack,)]
    return hits.tolist()


def _count(attack: Attack, with_record: int, without_record: int, source: RandomSource) -> Counts:
    return Counts(
        true_hits=count_hits(attack, with_record, source, with_record=True)[0],
        with_record=with_record,
        false_hits=count_hits(attack, without_record, source, with_record=False)[0],
        without_record=without_record,
    )


def _count_on_code(
    attack: Attack, share_inside: float, trials: int, source: RandomSource
) -> Counts:
    """Verdicts on the silos' code; every round has the record in the first coordinates and not in
    the others.
    """
    width = attack.design.resolved.dimension
    rounds, first = -(-trials // width), min(max(round(width * share_inside), 1), width - 1)
    said = attack.says_in(
        released_by_silos(attack, np.arange(width) < first, rounds=rounds, source=source)
    )
    return Counts(
        true_hits=int(said[:, :first].sum()),
        with_record=rounds * first,
        false_hits=int(said[:, first:].sum()),
        without_record=rounds * (width - first),
    )


def _agree(code: Counts, recursion: Counts) -> bool:
    """Fisher's exact test of equal rates, for either hypothesis."""
    tables = (
        [[each.true_hits, each.with_record - each.true_hits] for each in (code, recursion)],
        [[each.false_hits, each.without_record - each.false_hits] for each in (code, recursion)],
    )
    return all(float(fisher_exact(np.array(table)).pvalue) >= _DISAGREE for table in tables)
