"""The run's model beside a constant answer, all silos together without privacy, and every silo
alone.

Everything here sees records in the clear, so it belongs to a simulation: a plan with other metrics
is refused, and nothing of it is ever sent by a silo.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt
import torch

from sumus.comparing.intervals import Groups, Replicates
from sumus.comparing.networks import NetworkFamily
from sumus.comparing.outcome import Comparison, Contender, SiloAlone
from sumus.comparing.tuned import Family, LinearFamily, PlainModel
from sumus.data import FederatedData, Records, SiloRecords
from sumus.errors import PlanError
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.tasks import Measure, Measured
from sumus.training import (
    LocalPart,
    Prepared,
    at_home,
    evaluate,
    knows_its_code,
    linear_outputs,
    load_flat,
)

__all__ = ["compare", "constant_baseline", "require_simulation"]

LEAST_ALONE: Final = 20
"""Training units that a silo must have to be among those whose mean is told."""
_SUMS: Final = ("accuracy", "r2", "mae", "loss")
"""Measures that are made of sums over records, so that several models can share one."""
Progress = Callable[[int, int], None]
Scores = tuple[npt.NDArray[Any], ...]


def require_simulation(plan: TrainingPlan) -> None:
    """Refuse to compare where test records are counted behind noise or not at all: the comparison
    would tell of them in the clear, beside an account that knows nothing of it.
    """
    metrics = plan.evaluation.metrics
    if metrics != "simulation":
        raise PlanError(
            "--compare",
            "true",
            f'is for evaluation.metrics = "simulation", and the plan\'s is "{metrics}": its figures '
            "are exact",
            'Leave it out, or set evaluation.metrics = "simulation".',
        )


def constant_baseline(plan: TrainingPlan, data: FederatedData) -> dict[str, float]:
    """What the best constant prediction reaches on the test records of all silos, under the task's
    name for it; empty without records.
    """
    train, test = (
        np.concatenate([getattr(silo, part).y for silo in data.silos]) for part in ("train", "test")
    )
    if not len(train) or not len(test):
        return {}
    return {plan.task.constant[0]: plan.task.baseline(train, test)}


def compare(
    plan: TrainingPlan,
    data: FederatedData,
    prepared: Prepared,
    released: npt.NDArray[np.float64],
    *,
    threads: int = 1,
    progress: Progress | None = None,
) -> tuple[Comparison, ...]:
    """By the task's headline measure, and by the one to read first where that is another; nothing
    without test or training records.

    Models without privacy are of the plan's kind (linear ones are fitted to the end), tuned on
    training records alone; all are measured on the same test records.

    Args:
        data: records before the plan's features.
        released: parameters of the run's model.
        progress: called with silos done and all silos.
    """
    if plan.describes or not any(len(silo.test) for silo in data.silos):
        return ()
    if not any(len(silo.train) for silo in data.silos):
        return ()
    begin = time.perf_counter()
    family, silos = _family(plan, data, prepared)
    bench = _Bench.of(plan, silos)
    own = bench.measured(_released_scores(plan, prepared, released))
    fitted = _Fitted.of(family, silos, threads=threads, progress=progress)
    return tuple(
        _compared(plan, bench, own, fitted, family, measure, begin)
        for measure in bench.measures(own)
    )


@final
@dataclass(frozen=True, eq=False)
class _Bench:
    """The test records of all silos, on which every model is measured."""

    plan: TrainingPlan
    silos: tuple[SiloRecords, ...]
    test: Records
    groups: Groups

    @classmethod
    def of(cls, plan: TrainingPlan, silos: tuple[SiloRecords, ...]) -> _Bench:
        test = Records.joined([silo.test for silo in silos])
        return cls(plan, silos, test, Groups.of(test, RandomSource.simulation(0, "test groups")))

    @property
    def weights(self) -> npt.NDArray[np.float64] | None:
        """Of the test rows."""
        return None if self.test.persons is None else self.test.weights("mean")

    def scores(self, model: PlainModel, records: Records) -> Scores:
        """What the task measures of each record; without privacy models are fitted by its loss."""
        outputs = model.outputs(records.x)
        with torch.no_grad():
            scored = self.plan.task.by_loss().scores(outputs, torch.from_numpy(records.y))
        return tuple(column.numpy() for column in scored)

    def measured(self, scores: Scores) -> dict[str, Replicates]:
        """The headline measure and the one to read first, on all test units and without each
        group.
        """
        task, weights = self.plan.task, self.weights
        whole = task.metrics(*scores, weights=weights)
        first = task.leading(whole.numbers, whole.baseline)
        wanted = {
            measure.name for measure in (task.headline, first) if measure.name in whole.values
        }
        return {name: self._replicates(name, scores, weights) for name in wanted}

    def by(self, name: str, scores: Scores) -> Replicates:
        """One measure."""
        return self._replicates(name, scores, self.weights)

    def _replicates(
        self, name: str, scores: Scores, weights: npt.NDArray[np.float64] | None
    ) -> Replicates:
        def on(rows: Any) -> float:
            part = tuple(column[rows] for column in scores)
            return self.plan.task.one(
                name, *part, weights=None if weights is None else weights[rows]
            )

        return self.groups.replicates(on)

    def measures(self, own: dict[str, Replicates]) -> list[Measure]:
        """Those of the run's model, the headline first."""
        task = self.plan.task
        return [measure for measure in task.measures if measure.name in own]

    def constant(self, measure: Measure, own_constant: float | None) -> Replicates | None:
        """The best constant answer; its headline measure follows from labels alone."""
        task = self.plan.task
        if measure.name != task.headline.name:
            if own_constant is None:
                return None
            return Replicates(own_constant, np.full(max(len(self.groups.rows), 1), own_constant))
        train = np.concatenate([silo.train.y for silo in self.silos])
        return self.groups.replicates(lambda rows: task.baseline(train, self.test.y[rows]))


@final
@dataclass(frozen=True, eq=False)
class _Fitted:
    """Models without privacy: of all silos together, and of each alone (None: no record)."""

    together: PlainModel
    alone: tuple[PlainModel | None, ...]

    @classmethod
    def of(
        cls,
        family: Family,
        silos: Sequence[SiloRecords],
        *,
        threads: int,
        progress: Progress | None,
    ) -> _Fitted:
        done, steps = 0, len(silos) + 1

        def tell() -> None:
            nonlocal done
            done += 1
            if progress is not None:
                progress(done, steps)

        pooled = Records.joined([silo.train for silo in silos])
        together = family.fitted(pooled, RandomSource.simulation(0, "together"))
        tell()

        def one(place: int) -> PlainModel | None:
            if not len(silos[place].train):
                return None
            return family.fitted(silos[place].train, RandomSource.simulation(0, "alone", place))

        alone: list[PlainModel | None] = []
        several = threads if isinstance(family, LinearFamily) else 1
        with ThreadPoolExecutor(max_workers=max(1, several)) as pool:
            for model in pool.map(one, range(len(silos))):
                alone.append(model)
                tell()
        return cls(together, tuple(alone))


def _family(
    plan: TrainingPlan, data: FederatedData, prepared: Prepared
) -> tuple[Family, tuple[SiloRecords, ...]]:
    """How models are fitted, and the records that they take: without privacy no row has to be
    shortened, and nothing has to stay with a silo.
    """
    local = LocalPart.of(plan, prepared.model)
    model = prepared.model if local is None else local.model
    outputs = linear_outputs(model)
    if outputs is not None and LinearFamily.fits(plan.task, outputs):
        plain = plan.training.features == "none"
        return LinearFamily(plan.task, outputs), (data if plain else prepared.data).silos
    first, model = prepared.first_parameters, copy.deepcopy(model)
    load_flat(model, torch.tensor(first if local is None else local.joined(first)))
    family = NetworkFamily(plan.task, model, plan.training.vocabulary)
    return family, prepared.data.silos


def _released_scores(
    plan: TrainingPlan, prepared: Prepared, released: npt.NDArray[np.float64]
) -> Scores:
    """Of the run's model, with what silos fit at home where they keep parameters of their own."""
    kept = plan.training.local_parameters is not None and knows_its_code(prepared.model)
    parts = []
    for silo in prepared.data.silos:
        if not len(silo.test):
            continue
        model = at_home(plan, prepared.model, released, silo.train) if kept else prepared.model
        measured = evaluate(
            model, released, silo.test, task=plan.task, vocabulary=plan.training.vocabulary
        )
        parts.append(measured.scores)
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _compared(
    plan: TrainingPlan,
    bench: _Bench,
    own: dict[str, Replicates],
    fitted: _Fitted,
    family: Family,
    measure: Measure,
    begin: float,
) -> Comparison:
    """By one measure."""
    mine, groups = own[measure.name], bench.groups
    scores_together = bench.scores(fitted.together, bench.test)
    whole = plan.task.metrics(*scores_together, weights=bench.weights)
    rows = []

    def add(key: str, title: str, remark: str, found: Replicates) -> None:
        if not math.isfinite(found.value):
            return
        value, gain = groups.interval(found, measure), groups.difference(mine, found, measure)
        rows.append(
            Contender(
                key=key,
                title=title,
                remark=remark,
                value=value.value,
                plus_minus=_finite(value),
                gain=gain.value,
                gain_plus_minus=_finite(gain),
            )
        )

    constant = bench.constant(measure, whole.baseline.get(measure.name))
    if constant is not None:
        title = plan.task.constant[1]
        add("constant", title, _constant_words(plan, measure), constant)
    add(
        "non_private",
        "all silos together, no privacy",
        family.words,
        bench.by(measure.name, scores_together),
    )
    alone = [
        None if model is None else bench.by(measure.name, bench.scores(model, bench.test))
        for model in fitted.alone
    ]
    large = _large(bench.silos, alone)
    if large:
        add(
            "alone",
            "each silo alone, no privacy",
            _mean_words(bench, len(large), measure, large),
            Replicates.mean(large),
        )
    if measure.name in _SUMS and all(model is not None for model in fitted.alone):
        at_home = _at_home(bench, fitted)
        remark = "each silo's own model on its own test records"
        add("alone_home", "each silo alone, at home", remark, bench.by(measure.name, at_home))
    value = groups.interval(mine, measure)
    return Comparison(
        measure=measure.name,
        value=value.value,
        plus_minus=_finite(value),
        contenders=tuple(rows),
        silos=tuple(
            _silo(bench, silo, found, mine, measure)
            for silo, found in zip(bench.silos, alone, strict=True)
        ),
        unit="person" if bench.test.persons is not None else "record",
        private=plan.rules.private,
        large=LEAST_ALONE if any(silo.train.units >= LEAST_ALONE for silo in bench.silos) else 0,
        seconds=time.perf_counter() - begin,
    )


def _constant_words(plan: TrainingPlan, measure: Measure) -> str:
    """Which constant answer: training records choose that of the headline, since it is compared."""
    reach = "what always answering the same would reach"
    if measure.name != plan.task.headline.name:
        return reach
    return f"{reach}, the answer chosen on training rows (in the table of measures on test records)"


def _large(silos: Sequence[SiloRecords], alone: Sequence[Replicates | None]) -> list[Replicates]:
    """Of silos with enough records to train alone; of all that have any where none has."""
    known = [(silo, found) for silo, found in zip(silos, alone, strict=True) if found is not None]
    large = [found for silo, found in known if silo.train.units >= LEAST_ALONE]
    return large or [found for _, found in known]


def _mean_words(bench: _Bench, many: int, measure: Measure, found: Sequence[Replicates]) -> str:
    values = [each.value for each in found]
    low, high = (measure.text(end) for end in (min(values), max(values)))
    which = "" if many == len(bench.silos) else f" with {LEAST_ALONE} training units or more"
    return (
        f"mean over {many} silos{which}, each tuned by itself and measured on everybody's test "
        f"records, from {low} to {high}"
    )


def _at_home(bench: _Bench, fitted: _Fitted) -> Scores:
    """Every silo's own model on its own test records, in the order of the bench."""
    parts = [
        bench.scores(model, silo.test)
        for silo, model in zip(bench.silos, fitted.alone, strict=True)
        if model is not None and len(silo.test)
    ]
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _silo(
    bench: _Bench,
    silo: SiloRecords,
    found: Replicates | None,
    mine: Replicates,
    measure: Measure,
) -> SiloAlone:
    if found is None:
        return SiloAlone(name=silo.name, train=silo.train.units, test=silo.test.units)
    value = bench.groups.interval(found, measure)
    gain = bench.groups.difference(mine, found, measure)
    return SiloAlone(
        name=silo.name,
        train=silo.train.units,
        test=silo.test.units,
        value=value.value,
        plus_minus=_finite(value),
        gain=gain.value,
        gain_plus_minus=_finite(gain),
    )


def _finite(found: Measured) -> float | None:
    width = found.plus_minus
    return width if width is not None and math.isfinite(width) else None
