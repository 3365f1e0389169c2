"""The numbers that alerts compare with."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import final

from sumus.errors import PlanError
from sumus.files import closest

__all__ = ["THRESHOLDS_VARIABLE", "Thresholds"]

THRESHOLDS_VARIABLE = "SUMUS_ALERT"
"""Variable by which a command passes `--alert` on to the program that it turns into."""


@final
@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """When an alert is worth telling.

    Args:
        silo_away_minutes: a silo was not there for so long.
        server_away_minutes: the server was not reached for so long.
        process_down_minutes: a process of this party was down for so long.
        paused_minutes: a run went on with no job for so long.
        budget_percent: of the ε that is allowed were spent.
        certificate_days: until one ends.
        disk_percent: of the disk are free at most.
        backup_days: since the last one.
    """

    silo_away_minutes: float = 5.0
    server_away_minutes: float = 10.0
    process_down_minutes: float = 1.0
    paused_minutes: float = 10.0
    budget_percent: float = 80.0
    certificate_days: float = 30.0
    disk_percent: float = 5.0
    backup_days: float = 30.0

    @classmethod
    def parse(cls, given: Iterable[str]) -> Thresholds:
        """From `NAME=NUMBER`, each; the rest stays as it is."""
        known = [item.name for item in fields(cls)]
        chosen: dict[str, float] = {}
        for each in given:
            name, sign, text = each.partition("=")
            if name not in known or not sign:
                rule = f"must read NAME=NUMBER with a name of {', '.join(known)}"
                raise PlanError("--alert", each, rule, closest(name, known))
            try:
                chosen[name] = float(text)
            except ValueError:
                chosen[name] = math.nan
            if not 0.0 <= chosen[name] < 1e6:
                rule = "must be a number from 0 to a million"
                raise PlanError(f"--alert {name}", text, rule, "Correct it.")
        return cls(**chosen)

    @classmethod
    def of_environment(cls, text: str) -> Thresholds:
        """From the variable's value."""
        return cls.parse(each for each in text.split(",") if each)
