"""The plan of an estimator: what its user says, and where nothing is said, what sizes suggest.

Nothing here looks at a value of a record. Sizes are taken as public, like those of every table whose
plan does not bound them, and are rounded down before anything is chosen by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sumus.data import Column, ColumnRule, NumberColumn
from sumus.drafting import Size, choices_for
from sumus.estimators.manners import InputError
from sumus.plan import DataPlan, TrainingPlan

__all__ = ["bounds_of", "encoded_width", "plan_of"]

_MANY = 10**12  # records with which normal equations are chosen
_HAVE_CHOICES = {"normal-equations": _MANY, "convex-pass": 1}


def plan_of(
    task: str,
    size: Size,
    *,
    epsilon: float,
    delta: float | None,
    unit: str,
    algorithm: str,
    rounds: int | None,
    fixed: Mapping[str, Any],
    overrides: Mapping[str, Any] | None,
) -> TrainingPlan:
    """The plan that an estimator trains by.

    Args:
        size: of the records, public.
        algorithm: a name, or "auto".
        fixed: keys that follow from what is fitted, as `section.key`.
        overrides: keys of the user's own, which come last.
    """
    own = dict(overrides or {})
    wanted = {"epsilon": epsilon, **({} if delta is None else {"delta": delta})}
    TrainingPlan.from_table({"privacy": wanted})  # before anything is chosen by them
    algorithm = own.get("training.algorithm", algorithm)
    chosen = _chosen(task, size, epsilon, delta, unit)
    if algorithm in _HAVE_CHOICES and algorithm != chosen.get("training.algorithm"):
        as_if = replace(size, units=_HAVE_CHOICES[algorithm])
        chosen = _chosen(task, as_if, epsilon, chosen["privacy.delta"], unit)
    elif algorithm not in ("auto", chosen.get("training.algorithm")):
        chosen = {key: value for key, value in chosen.items() if key.startswith("privacy.")}
        chosen["training.algorithm"] = algorithm
    if rounds is not None:
        chosen["federation.rounds"] = rounds
    entries: dict[str, Any] = {}
    for key, value in {**chosen, **fixed, **own}.items():
        section, dot, name = key.partition(".")
        if not dot:
            raise InputError(
                f"plan must hold keys such as 'training.learning_rate', got {key!r}. Name the "
                "section, too."
            )
        table = entries.setdefault(section, {})
        steps = name.split(".", 1)
        for step in steps[:-1]:
            table = table.setdefault(step, {})
        table[steps[-1]] = value
    return TrainingPlan.from_table(entries)


def _chosen(
    task: str, size: Size, epsilon: float, delta: float | None, unit: str
) -> dict[str, Any]:
    found = choices_for(task, size, epsilon=epsilon, delta=delta, unit=unit)
    return {choice.key: choice.value for choice in found}


def bounds_of(given: Any, names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Public bounds by column: as they are given, or one pair for all columns."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        unknown = [name for name in given if str(name) not in names]
        if unknown:
            raise InputError(
                f"bounds names {unknown[0]!r}, which is no column of X. There are "
                f"{', '.join(names[:8])}."
            )
        return {str(name): _pair(pair, str(name)) for name, pair in given.items()}
    return dict.fromkeys(names, _pair(given, "all columns"))


def _pair(given: Any, what: str) -> tuple[float, float]:
    try:
        low, high = (float(value) for value in given)
    except (TypeError, ValueError):
        raise InputError(
            f"bounds of {what} must be a pair (low, high) of numbers, got {given!r:.60}. Declare "
            "them so."
        ) from None
    return low, high


def encoded_width(columns: Mapping[str, Column], data: DataPlan) -> int:
    """Features of a record after public encoding."""
    return sum(_rule(name, column, data).width for name, column in columns.items())


def _rule(name: str, column: Column, data: DataPlan) -> ColumnRule:
    declared = ColumnRule.declared(name, data)
    if declared is not None:
        return declared
    if isinstance(column, NumberColumn):
        low, high = column.bounds or (None, None)
        return ColumnRule(name, "knotted" if low is None else "scaled", low=low, high=high)
    if column.declared and column.values:
        return ColumnRule(name, "one-hot", categories=tuple(column.values))
    return ColumnRule(name, "hashed")
