"""What an ε means, for somebody who has to decide with it: in words, and as what any attack can find
at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from sumus.books import RunFolder, rounded_up
from sumus.guarantee import Account

__all__ = ["Attack", "attacks_on", "meaning_of", "most_detected"]

_FALSE_ALARMS = (0.001, 0.01, 0.1)
_UNITS = {
    "record": ("any single record", "was used", "one particular record"),
    "person": ("all rows of any single person", "were used", "one particular person"),
    "silo": (
        "all records of any single silo together",
        "were used",
        "the records of one particular silo",
    ),
}


@final
@dataclass(frozen=True, kw_only=True)
class Attack:
    """What the best test for one unit can find.

    Args:
        false_alarms: share of cases in which it says yes and should not.
        found: share of true cases that it finds at most.
    """

    false_alarms: float
    found: float

    @property
    def alarms_text(self) -> str:
        """In per cent."""
        return f"{100.0 * self.false_alarms:g}\u00a0%"

    @property
    def found_text(self) -> str:
        """In per cent, rounded up."""
        return f"{rounded_up(100.0 * self.found)}\u00a0%"


def most_detected(epsilon: float, delta: float, *, false_alarms: float = 0.05) -> float:
    """The largest share of true cases that any test finds at this share of false alarms.

        power ≤ min(1, e^ε·α + δ, 1 − e^(−ε)·(1 − δ − α))

    Guarantee: holds for every test under (ε, δ)-differential privacy (Wasserman and Zhou 2010,
        arXiv:0811.2501; Kairouz, Oh and Viswanath 2015, arXiv:1311.0776).
    """
    if math.isinf(epsilon):
        return 1.0
    bounds = (
        math.exp(min(epsilon, 700.0)) * false_alarms + delta,
        1.0 - math.exp(-epsilon) * (1.0 - delta - false_alarms),
    )
    return min(1.0, max(false_alarms, min(bounds)))


def attacks_on(guarantee: Account) -> tuple[Attack, ...]:
    """At a few rates of false alarms: from the whole curve, or from ε and δ of a journal that has
    none.
    """
    meaning = guarantee.meaning
    if meaning is None:
        rates = [
            (alarms, most_detected(guarantee.epsilon, guarantee.delta, false_alarms=alarms))
            for alarms in _FALSE_ALARMS
        ]
    else:
        rates = list(zip(meaning.false_positive_rates, meaning.true_positive_rates, strict=True))
    return tuple(Attack(false_alarms=alarms, found=found) for alarms, found in rates)


def meaning_of(run: RunFolder, guarantee: Account, verdict: str) -> tuple[str, ...]:
    """Paragraphs.

    Args:
        verdict: "proved", "not proved" or "void".
    """
    epsilon, delta = guarantee.epsilon, guarantee.delta
    whose, was, _ = _words(guarantee.unit)
    factor = rounded_up(math.exp(min(epsilon, 700.0)))
    first = (
        f"Whoever sees everything that this run releases ({guarantee.releases}, and every "
        f"{'number' if run.plan.describes else 'model'} computed from them) {_strength(epsilon)} "
        f"whether {whose} {was}. Whatever they conclude, the probability of that conclusion is at "
        f"most {factor} times what it would be "
        "otherwise (e to the power ε), apart from an additional probability of at most "
        f"{_one_in(delta)} (δ)."
    )
    warning = {
        "proved": (
            "The analysis behind the bound is proved for the algorithm that ran, integer rounding "
            "and drawn noise included."
        ),
        "not proved": (
            "The analysis behind the bound is NOT PROVED for the algorithm that ran. Do not rely "
            "on it for a release."
        ),
        "void": (
            f"THE GUARANTEE DOES NOT HOLD FOR THIS RUN: {run.void}. The following is what the plan "
            "would guarantee otherwise."
        ),
    }[verdict]
    second = _example(guarantee)
    return (first, second, warning) if verdict == "proved" else (warning, first, second)


def _example(guarantee: Account) -> str:
    subject, attacks = _words(guarantee.unit)[2], attacks_on(guarantee)
    middle = attacks[len(attacks) // 2]
    example = (
        f"For example, a test for {subject} that raises a false alarm in {middle.alarms_text} of "
        f"all cases finds a true case at most {middle.found_text} of the time. Blind guessing "
        f"finds {middle.alarms_text}; no protection allows 100\u00a0%."
    )
    if guarantee.meaning is None:
        return example
    gain = rounded_up(100.0 * guarantee.meaning.advantage)
    return (
        f"{example} At no rate of false alarms does it gain more than {gain}\u00a0% over guessing."
    )


def _words(unit: str) -> tuple[str, str, str]:
    return _UNITS.get(unit, _UNITS["silo"])


def _strength(epsilon: float) -> str:
    """How strong a bound is, in a verb: nobody should sign "can hardly tell" for an ε at which a
    good guess is nearly certain.
    """
    if epsilon <= 1.0:
        return "can hardly tell"
    if epsilon <= 3.0:
        return "can tell only with limited confidence"
    return (
        "may in the worst case tell with some confidence"
        if epsilon <= 6.0
        else "may in the worst case tell almost for certain"
    )


def _one_in(delta: float) -> str:
    return f"1 in {1.0 / delta:,.0f}" if 0.0 < delta < 0.5 else f"{delta:g}"
