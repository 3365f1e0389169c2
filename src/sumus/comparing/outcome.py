"""What a comparison found, as it is written down and as it is said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self, final

from sumus.files import from_json, plain_json
from sumus.tasks import Measure

__all__ = [
    "Comparison",
    "Contender",
    "SiloAlone",
    "baselines_of",
    "difference_text",
    "stored_comparisons",
]


@final
@dataclass(frozen=True, kw_only=True)
class Contender:
    """One model beside the run's.

    Args:
        key: constant, non_private, alone, alone_home.
        value: of the measure, on the test records of all silos.
        plus_minus: what the choice of test records leaves open, 95 %; None: nothing was left to
            estimate it from.
        gain: the run's value minus this one's; `gain_plus_minus`: of that, paired.
    """

    key: str
    title: str
    remark: str
    value: float
    plus_minus: float | None
    gain: float
    gain_plus_minus: float | None

    @property
    def within_chance(self) -> bool:
        """Whether the choice of test records may explain the whole difference."""
        return self.gain_plus_minus is None or abs(self.gain) <= self.gain_plus_minus


@final
@dataclass(frozen=True, kw_only=True)
class SiloAlone:
    """A silo's own model, measured on the test records of all silos.

    Args:
        value: None: it has no training record.
        gain: the run's value minus the silo's.
    """

    name: str
    train: int
    test: int
    value: float | None = None
    plus_minus: float | None = None
    gain: float | None = None
    gain_plus_minus: float | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The run's model beside others, by one measure. Every number but those of the run was made
    without privacy: it belongs to a simulation.

    Args:
        measure: its name.
        value: of the run's model; `plus_minus` as for contenders.
        unit: that test records are counted in.
        large: training units from which on a silo is among those whose mean is told; 0: all are.
        seconds: that the comparison took.
    """

    measure: str
    value: float
    plus_minus: float | None
    contenders: tuple[Contender, ...]
    silos: tuple[SiloAlone, ...]
    unit: str
    private: bool
    large: int
    seconds: float

    def contender(self, key: str) -> Contender | None:
        """By its key; None where it was not there to be measured."""
        return next((each for each in self.contenders if each.key == key), None)

    def told_alone(self) -> list[float]:
        """Of silos that are large enough to train alone, what each reaches."""
        return [
            silo.value for silo in self.silos if silo.value is not None and silo.train >= self.large
        ]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        values: dict[str, Any] = plain_json(asdict(self))
        return values

    @classmethod
    def from_json(cls, stored: object, where: str) -> Self:
        """Of a run's summary."""
        return from_json(cls, stored, where=where)

    def sentences(self, measure: Measure) -> list[str]:
        """What the numbers say, and no more than they do."""
        said = []
        plain, alone = self.contender("non_private"), self.contender("alone")
        if plain is not None:
            said.append(_cost(plain, measure, private=self.private))
        if alone is not None:
            said.append(self._joining(alone, measure))
        return said

    def _joining(self, alone: Contender, measure: Measure) -> str:
        sign = 1.0 if measure.larger_is_better else -1.0
        gains = [
            (sign * silo.gain, math.inf if silo.gain_plus_minus is None else silo.gain_plus_minus)
            for silo in self.silos
            if silo.gain is not None
        ]
        told = f"{difference_text(alone, measure)} against a silo alone, on average"
        if alone.within_chance:
            first = f"joining: {told}, a difference within chance"
        elif sign * alone.gain > 0.0:
            first = f"joining brings {told}"
        else:
            first = f"joining does not pay here: {told}"
        ahead = sum(gain > width for gain, width in gains)
        behind = sum(-gain > width for gain, width in gains)
        return (
            f"{first}; beyond chance better than {ahead} of {len(gains)} silos alone, worse than "
            f"{behind}"
        )


def difference_text(other: Contender, measure: Measure) -> str:
    """The run's value minus another's, with its sign; a share in percentage points."""
    scale, unit = (100.0, " points") if measure.is_share else (1.0, "")
    width = other.gain_plus_minus
    if width is None:
        return f"{scale * other.gain:+.3g}{unit}"
    fine = 1 - math.floor(math.log10(width)) if width > 0.0 else 2
    decimals = 1 if measure.is_share else max(2, min(4, fine))
    step = 10.0**-decimals
    shown = math.ceil(scale * width / step - 1e-9) * step
    return f"{scale * other.gain:+.{decimals}f} ± {shown:.{decimals}f}{unit}"


def _cost(plain: Contender, measure: Measure, *, private: bool) -> str:
    told = f"{difference_text(plain, measure)} against the tuned model without privacy"
    if plain.within_chance:
        return f"{'privacy' if private else 'this run'}: {told}, a difference within chance"
    if (plain.gain > 0.0) == measure.larger_is_better:
        return (
            f"this run: {told}; the two are trained differently, and noise is not what makes the "
            "difference"
        )
    return f"{'privacy costs' if private else 'this run'}: {told}"


def stored_comparisons(summary: Mapping[str, Any]) -> list[Comparison]:
    """Of a run's summary."""
    stored = summary.get("comparison")
    if not isinstance(stored, list):
        return []
    return [Comparison.from_json(each, "comparison") for each in stored]


def baselines_of(comparisons: Sequence[Comparison]) -> dict[str, float]:
    """The headline measure of models without privacy, by name."""
    if not comparisons:
        return {}
    first, found = comparisons[0], {}
    plain, alone = first.contender("non_private"), first.told_alone()
    if plain is not None:
        found["non_private"] = plain.value
    if alone:
        found["alone_mean"] = math.fsum(alone) / len(alone)
        found["alone_min"], found["alone_max"] = min(alone), max(alone)
    return found
