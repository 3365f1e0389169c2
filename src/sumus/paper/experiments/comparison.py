"""What an experiment of Heikkilä 2025 compares: settings (a plan, a name, a group), and at which
rounds, ε and silos each of them is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast, final

from sumus.errors import PlanError
from sumus.plan import TrainingPlan

__all__ = ["GROUPS", "Experiment", "Line", "PaperLine"]

GROUPS = ("paper", "proved", "no privacy")
_Number = TypeVar("_Number", int, float)


@final
@dataclass(frozen=True, kw_only=True)
class PaperLine:
    """One line of a table and one curve of a figure.

    Args:
        experiment: name of the experiment.
        name: short, fit for a file name.
        key: the same with rounds, and with ε and silos where they are not the experiment's own;
            unique in the experiment.
        label: shown to people.
        group: one of `GROUPS`.
        plan: everything public; its noise is calibrated when it is measured.
        alone: every silo trains by itself instead (no federation, no privacy).
    """

    experiment: str
    name: str
    key: str
    label: str
    group: str
    plan: TrainingPlan
    alone: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Line:
    """A setting before rounds, ε and silos are known; `by_…` are further changes at some of their
    values.
    """

    name: str
    label: str
    group: str
    changes: Mapping[str, object]
    by_rounds: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    by_epsilon: Mapping[float, Mapping[str, object]] = field(default_factory=dict)
    by_silos: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    alone: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class _Point:
    """Where a setting is measured."""

    rounds: int
    epsilon: float
    silos: int


@final
@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A data set, its federation, and the settings that are compared on it.

    Args:
        name: on the command line and in file names.
        title: for tables and figures.
        base: what all settings share, ε and silos among it.
        rounds: numbers of rounds by default; the first is the paper's headline.
        fewer: of these settings only, further numbers of rounds.
    """

    name: str
    title: str
    base: Mapping[str, object]
    rounds: tuple[int, ...]
    lines: tuple[Line, ...]
    fewer: Mapping[str, tuple[int, ...]]
    quick_rounds: int = 2

    @property
    def epsilon(self) -> float:
        return cast(float, self.base["privacy.epsilon"])

    @property
    def silos(self) -> int:
        return cast(int, self.base["federation.silos"])

    def settings(
        self,
        *,
        rounds: Sequence[int] = (),
        epsilons: Sequence[float] = (),
        silos: Sequence[int] = (),
        quick: bool = False,
        only: Sequence[str] = (),
    ) -> list[PaperLine]:
        """All settings, the headline number of rounds first.

        Where several lists are given, each of them varies while the others stay at the experiment's
        own value, or at their first value if they do not hold it: a star, not a grid.

        Args:
            rounds: instead of the experiment's own numbers of rounds, for every setting.
            epsilons: instead of the experiment's own ε, for every setting with privacy.
            silos: instead of the experiment's own number of silos; bins of a pass keep their size.
            quick: a few rounds only, to see that everything runs.
            only: names of settings to keep; all if empty.
        """
        unknown = sorted(set(only) - {line.name for line in self.lines})
        if unknown:
            known = f"must be one of {', '.join(line.name for line in self.lines)}"
            raise PlanError("--only", unknown[0], known, "Name a setting of the experiment.")
        if silos and self.base.get("data.partition") == "natural":
            rule = f"must be left out for {self.name}, whose {self.silos} silos are the data's own"
            raise PlanError("--silos", silos[0], rule, "Remove it.")
        own_rounds = (self.quick_rounds,) if quick else self.rounds
        centre = _Point(
            rounds=_centre(rounds, own_rounds[0]),
            epsilon=_centre(epsilons, self.epsilon),
            silos=_centre(silos, self.silos),
        )
        plain = not (rounds or epsilons or silos or quick)
        points = [
            replace(centre, rounds=each)
            for each in rounds or (own_rounds if plain else (centre.rounds,))
        ]
        points += [replace(centre, epsilon=each) for each in epsilons] + [
            replace(centre, silos=each) for each in silos
        ]
        made = [self._setting(line, point) for point in points[:1] for line in self.lines]
        if plain:
            fewer = [(line, each) for line in self.lines for each in self.fewer.get(line.name, ())]
            made += [self._setting(line, replace(centre, rounds=each)) for line, each in fewer]
        made += [self._setting(line, point) for point in points[1:] for line in self.lines]
        # the middle of the star lies on every list
        kept = {each.key: each for each in made if not only or each.name in only}
        return list(kept.values())

    def _setting(self, line: Line, point: _Point) -> PaperLine:
        changes: dict[str, Any] = {**self.base, "privacy.epsilon": point.epsilon, **line.changes}
        changes |= {"federation.rounds": point.rounds, "federation.silos": point.silos}
        key = f"{line.name}-{point.rounds}-rounds"
        if line.group == "no privacy":
            changes["privacy.epsilon"] = line.changes.get("privacy.epsilon", self.epsilon)
        elif point.epsilon != self.epsilon:
            key += f"-epsilon-{point.epsilon:g}"
        if point.silos != self.silos:
            key += f"-{point.silos}-silos"
            if "federation.local_steps" in changes:
                changes["federation.local_steps"] = max(
                    1, round(changes["federation.local_steps"] * self.silos / point.silos)
                )
        for tuned in (
            line.by_rounds.get(point.rounds),
            line.by_epsilon.get(point.epsilon),
            line.by_silos.get(point.silos),
        ):
            changes |= tuned or {}
        plan = TrainingPlan().with_overrides(changes)
        return PaperLine(
            experiment=self.name,
            name=line.name,
            key=key,
            label=line.label,
            group=line.group,
            plan=plan,
            alone=line.alone,
        )


def _centre(given: Sequence[_Number], own: _Number) -> _Number:
    return own if not given or own in given else given[0]
