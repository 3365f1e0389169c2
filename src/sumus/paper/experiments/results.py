"""What experiments of Heikkilä 2025 leave on the disk: one JSON file per finished (setting, seed), and their means
over seeds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from sumus.errors import StorageError
from sumus.files import from_json, plain_json, replace_atomically

__all__ = ["Measurement", "Store", "Summary", "summarise"]


@final
@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One setting trained with one seed.

    Args:
        plan_hash: of the setting's plan before calibration; a stored measurement of another plan is
            measured again.
        plan: the resolved and calibrated plan.
        accuracies: on all silos' test records, after each round (a single value where each silo
            trains alone).
        bytes_up_per_silo: over all rounds, protocol included.
        epsilon: proved, of everything released; None without privacy.
        claimed_epsilon: by the paper's theorem 4.5 where the plan is calibrated to it and it is not
            proved.
        epsilon_smallest_silo: ε of the records of the silo with the fewest records, where silos
            differ.
        cpu_seconds: processor time of the training, all threads together; `train_seconds` is what
            the clock on the wall says.
    """

    experiment: str
    setting: str
    label: str
    group: str
    seed: int
    rounds: int
    plan_hash: str
    plan: Mapping[str, Any]
    accuracies: tuple[float, ...]
    losses: tuple[float, ...]
    silo_accuracies: tuple[float, ...]
    bytes_up_per_silo: float
    protocol: str
    prepare_seconds: float
    train_seconds: float
    epsilon: float | None = None
    delta: float | None = None
    analysis: str | None = None
    accountant: str | None = None
    noise_multiplier: float | None = None
    claimed_epsilon: float | None = None
    epsilon_smallest_silo: float | None = None
    epsilon_largest_silo: float | None = None
    cpu_seconds: float | None = None

    @property
    def accuracy(self) -> float:
        """Of the final model."""
        return self.accuracies[-1]

    @property
    def silos(self) -> int:
        """Of the federation."""
        return int(self.plan["federation"]["silos"])

    @property
    def target_epsilon(self) -> float | None:
        """What the noise was calibrated to; None without privacy."""
        return None if self.epsilon is None else float(self.plan["privacy"]["epsilon"])


@final
@dataclass(frozen=True)
class Store:
    """A folder of measurements.

    Guarantee: a file is there completely or not at all; a measurement is found again only for the
        very plan that it was made with.
    """

    root: Path

    def path(self, experiment: str, setting: str, seed: int) -> Path:
        return self.root / experiment / "measurements" / f"{setting}-seed-{seed}.json"

    def find(
        self, experiment: str, setting: str, seed: int, *, plan_hash: str
    ) -> Measurement | None:
        """The finished measurement of this plan, if there is one."""
        path = self.path(experiment, setting, seed)
        if not path.is_file():
            return None
        found = self._read(path)
        return found if found.plan_hash == plan_hash else None

    def write(self, measurement: Measurement) -> Path:
        """Store a finished measurement."""
        path = self.path(measurement.experiment, measurement.setting, measurement.seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        body = json.dumps(
            plain_json(asdict(measurement)),
            indent=1,
            sort_keys=True,
            ensure_ascii=False,
            allow_nan=False,
        )
        replace_atomically(path, (body + "\n").encode())
        return path

    def all(self, experiment: str) -> list[Measurement]:
        """Every stored measurement of an experiment."""
        return [
            self._read(path)
            for path in sorted((self.root / experiment / "measurements").glob("*.json"))
        ]

    def _read(self, path: Path) -> Measurement:
        try:
            return from_json(
                Measurement, json.loads(path.read_text(encoding="utf-8")), where=str(path)
            )
        except (OSError, ValueError) as error:
            raise StorageError(
                f"{path} is not a readable measurement ({error}). Delete it to measure again."
            ) from None


@final
@dataclass(frozen=True, kw_only=True)
class Summary:
    """The measurements of one setting over seeds, as mean and standard error of the mean (SEM; NaN
    for one seed).
    """

    first: Measurement
    seeds: int
    accuracy: float
    accuracy_sem: float
    best_accuracy: float
    best_accuracy_sem: float
    accuracies: tuple[float, ...]
    accuracies_sem: tuple[float, ...]
    losses: tuple[float, ...]
    losses_sem: tuple[float, ...]
    worst_silo: float
    train_seconds: float
    cpu_seconds: float

    def as_json(self) -> dict[str, Any]:
        """Plain values, the plan left out."""
        body = asdict(self)
        body["first"] = {
            key: value
            for key, value in body["first"].items()
            if key not in ("plan", "accuracies", "losses", "silo_accuracies")
        }
        return dict(plain_json(body))


def summarise(measurements: Iterable[Measurement]) -> list[Summary]:
    """One summary per setting, in the order in which settings first appear."""
    grouped: dict[str, list[Measurement]] = {}
    for each in measurements:
        grouped.setdefault(each.setting, []).append(each)
    return [_summary(group) for group in grouped.values()]


def _summary(group: list[Measurement]) -> Summary:
    accuracies, losses = (
        _columns([each.accuracies for each in group]),
        _columns([each.losses for each in group]),
    )
    final, final_sem = mean_and_sem([each.accuracy for each in group])
    best, best_sem = mean_and_sem([max(each.accuracies) for each in group])
    return Summary(
        first=group[0],
        seeds=len(group),
        accuracy=final,
        accuracy_sem=final_sem,
        best_accuracy=best,
        best_accuracy_sem=best_sem,
        accuracies=tuple(mean for mean, _ in accuracies),
        accuracies_sem=tuple(sem for _, sem in accuracies),
        losses=tuple(mean for mean, _ in losses),
        losses_sem=tuple(sem for _, sem in losses),
        worst_silo=mean_and_sem([min(each.silo_accuracies) for each in group])[0],
        train_seconds=mean_and_sem([each.train_seconds for each in group])[0],
        cpu_seconds=mean_and_sem(
            [math.nan if each.cpu_seconds is None else each.cpu_seconds for each in group]
        )[0],
    )


def _columns(rows: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    return [mean_and_sem(column) for column in zip(*rows, strict=True)]


def mean_and_sem(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error of the mean, s/√n with the n − 1 estimate of s; the error of one
    value is NaN.
    """
    sem = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
    return float(np.mean(values)), sem
