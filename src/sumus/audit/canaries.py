"""Gradient canaries in the released-sum view: worst-case records in otherwise empty silos, on the
silos' own code.

The adversary of the proof may choose the other records, the models and the canaries, so the audit
    does: all silos are empty but for the
first, which holds each of m canaries or not by a secret fair coin. A canary's gradient is far
longer than the clip norm and lies in a direction of its own, so that after honest clipping it moves
the sum by exactly what is accounted for one record. Sampling, clipping, rounding, noise, weights,
saturation and the secure sum are the real ones. The score of a canary is the released sum in its
direction, over all rounds, in standard deviations of the accounted noise; directions without a
canary are pure noise and are checked as such.

Where persons are the unit, a canary is a person whose rows are all the worst one, in as many silos
as the plan allows a person to be in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumus.books import NoLedger
from sumus.data import Records
from sumus.errors import PlanError
from sumus.guarantee import LARGEST_WEIGHT_NORM, NoiseDesign, newton_parts, tangent_bounds
from sumus.parties import Agreement, Invited, RunSecret, SumsInProcess
from sumus.plan import cells_of
from sumus.randomness import RandomSource
from sumus.tasks import TASKS, Link, Task
from sumus.training import LocalUpdate, LocalUpdater, in_round, local_updater

__all__ = ["CanaryModel", "CanaryRounds", "CanaryScores"]

_LOUD = 1e4  # times the residual ½ of an undecided logistic loss: far above any clip norm in use
_ENDLESS = 1 << 62  # an audit asks for as many rounds as it needs
_ROWS = 4  # of a canary who counts with the mean of its rows: all alike, so that more add nothing
_MOST_ROWS = 1 << 18  # of all canaries together
_CERTAIN = 40.0  # a logit at which the softmax is wrong with probability 1 − 4e-18

Floats = npt.NDArray[np.float64]


class CanaryModel(nn.Module):
    """A model whose record j has the gradient ± _LOUD/2 in the coordinate that the record names,
    whatever the parameters.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(dimension))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logit 0 with a gradient of _LOUD in one weight."""
        chosen = self.weights[x[:, 0].long() % len(self.weights)]
        return (_LOUD * (chosen - chosen.detach()))[:, None]


@final
@dataclass(frozen=True)
class CanaryScores:
    """What one training run showed.

    Args:
        included: the secret coins.
        scores: one per canary, in standard deviations of the accounted noise.
        silent: (rounds, directions) released sums where no canary was, in the same unit.
    """

    included: npt.NDArray[np.bool_]
    scores: Floats
    silent: Floats


@final
class CanaryRounds:
    """Training runs of a design on canaries only.

    Args:
        design: of the plan under audit.
        canaries: m.
        view: "sum" (the server and its colluders) or "silo" (everybody else colludes: what `local`
            promises).
        new_source: one call gives the random bits of one silo for one round.
    """

    def __init__(
        self,
        design: NoiseDesign,
        canaries: int,
        *,
        view: str,
        new_source: Callable[[], RandomSource] = RandomSource,
    ) -> None:
        rules = design.plan.rules
        if rules.protects != "records":
            raise PlanError(
                "training.algorithm",
                rules.name,
                "must protect single records to be audited",
                'For example "convex-pass".',
            )
        if design.resolved.local_dimension and (
            not rules.bounded_records or rules.sums == "moments"
        ):
            why = (
                "moments about a mean have no directions of single records"
                if rules.sums == "moments"
                else "their gradients leave no local part"
            )
            rule = f"has no canaries under {rules.name} ({why})"
            raise PlanError(
                "training.local_parameters",
                design.plan.training.local_parameters,
                rule,
                "Audit the plan without it: the noise and Δ₂ of a step are the same.",
            )
        self._design, self._view, self._new_source = design, view, new_source
        plan = design.plan
        most = plan.rows_per_person
        self._rows = most if plan.data.person_weighting == "sum" else min(most, _ROWS)
        canaries = max(1, min(canaries, _MOST_ROWS // self._rows))
        # a view of one silo promises nothing about what a person does in another one
        silos = plan.privacy.silos_per_person if plan.protects_persons and view == "sum" else 1
        self._silos = min(silos, plan.noise_contributors)
        self._dimension = design.resolved.coordinates
        self._directions: _Gradients | _Features | _Moments | _Bent | _Cells = (
            _Cells(design, canaries)
            if plan.describes
            else _Bent(design, canaries)
            if rules.sums == "curvature"
            else _Moments(design, canaries)
            if rules.sums == "moments"
            else _Features(design, canaries)
            if rules.bounded_records
            else _Gradients(design, canaries)
        )
        self.canaries = self._directions.canaries
        # one model a silo for all runs: what is recorded of a model is kept with it
        self._models = [self._directions.model() for _ in design.silos]
        self._updaters: list[LocalUpdater] = []
        self._vectors: dict[int, npt.NDArray[np.int64]] = {}
        self._number = 0
        works = [_CanaryWork(self, place) for place in range(len(design.silos))]
        self._sums = SumsInProcess(
            Agreement(design=design, certified=None, asked=_ENDLESS),
            works,
            RunSecret(RandomSource().bytes(32), design.plan.hash),
            releases=NoLedger("audit: nothing leaves this process"),
        )

    @property
    def separation(self) -> float:
        """Expected score of an included canary."""
        design, silo = self._design, self._design.silos[0]
        weights = design.step_weights if design.queries_per_round > 1 else (1,)
        signal = (
            self._directions.signal_grid * silo.sampling_rate * sum(weights[: silo.local_steps])
        )
        return self._silos * float(self._round_weights.sum()) * signal / self._noise_std

    @property
    def _round_weights(self) -> Floats:
        """How much each round counts in a score: as its noise allows, where rounds differ."""
        variances = np.array([self._noise_variance(number) for number in self._rounds])
        return np.asarray(variances.min() / variances)

    @property
    def _rounds(self) -> range:
        return range(self._design.plan.federation.rounds)

    @property
    def _noise_std(self) -> float:
        """Of the accounted noise in a score: all rounds, all counted silos."""
        variances = [self._noise_variance(number) for number in self._rounds]
        return math.sqrt(float((self._round_weights**2) @ np.array(variances)))

    def _noise_variance(self, number: int) -> float:
        """Of the accounted noise in one number of a round's sum (from 0), all counted silos."""
        design = self._design.in_round(number)
        counted = (
            design.silos[: design.plan.noise_contributors]
            if self._view == "sum"
            else design.silos[:1]
        )
        weights = design.step_weights[: design.queries_per_round]
        return sum(design.drawn_by(silo).variance_grid for silo in counted) * sum(
            weight**2 for weight in weights
        )

    def run(self) -> CanaryScores:
        """One training run with fresh coins."""
        design, rounds = self._design, self._design.plan.federation.rounds
        included = self._new_source().coins(0.5, self.canaries)
        empty = self._held(np.zeros(self.canaries, dtype=np.bool_))
        others = len(design.silos) - self._silos
        held = [*[self._held(included)] * self._silos, *[empty] * others]
        self._updaters = [
            local_updater(design, silo, records, model, loss=TASKS["classification"])
            for silo, records, model in zip(design.silos, held, self._models, strict=True)
        ]
        seen = np.stack([self._round() for _ in range(rounds)])
        projected = self._round_weights @ self._directions.project(seen)
        scores = projected / self._noise_std
        stds = np.sqrt([self._noise_variance(number) for number in self._rounds])
        silent = seen[:, self._directions.silent] / stds[:, None]
        return CanaryScores(included, scores, silent)

    def _held(self, included: npt.NDArray[np.bool_]) -> Records:
        """The canaries that are in, as records or as persons with all their rows."""
        records = self._directions.records(included)
        if not self._design.plan.protects_persons:
            return records
        x, y = (np.repeat(each, self._rows, axis=0) for each in (records.x, records.y))
        return Records(x, y, np.repeat(np.arange(len(records)), self._rows))

    def _round(self) -> Floats:
        """What the adversary sees of one round: the sum, less what its colluders sent."""
        self._vectors = {}
        everybody = Invited(frozenset(range(len(self._design.silos))))
        summed = self._sums.sum(self._number, everybody, self._directions.parameters)
        total = summed.total_grid[: self._dimension].astype(np.float64)
        self._number += 1
        if self._design.plan.noise.removable:  # what nobody needed is out of the sum already
            return np.asarray(total)
        counted = self._design.plan.noise_contributors if self._view == "sum" else 1
        for silo in range(counted, len(self._design.silos)):
            total = total - self._vectors[silo]
        return np.asarray(total)

    def updated(self, silo: int, parameters: Floats, seeds: Sequence[bytes]) -> LocalUpdate:
        """One silo's update, kept for its colluders."""
        updater, design = self._updaters[silo], self._design
        drawn = design.in_round(self._number % design.plan.federation.rounds)
        update = in_round(updater, design, drawn)(parameters, self._new_source(), seeds)
        self._vectors[silo] = np.asarray(update.vector)
        return update


@final
@dataclass(frozen=True)
class _CanaryWork:
    """What a silo of the audit computes: canaries instead of records, bits of the audit."""

    rounds: CanaryRounds
    place: int

    def update(
        self, parameters: Floats, source: RandomSource, seeds: Sequence[bytes], number: int
    ) -> LocalUpdate:
        """See `LocalWork.update`."""
        return self.rounds.updated(self.place, parameters, seeds)

    def counts(self, parameters: Floats, source: RandomSource) -> npt.NDArray[np.int64]:
        """Nothing is measured."""
        raise NotImplementedError


def _linearised_signal_grid(design: NoiseDesign) -> float:
    """Tangent pass: logit 0 is half wrong, and the loud Jacobian is shortened to its bound."""
    training, silo = design.plan.training, design.silos[0]
    bounds = tangent_bounds(design.resolved, silo.learning_rate)
    wrong = min(0.5, bounds.convex.residual_cap)
    moved = silo.learning_rate * bounds.reach(Link.LOGISTIC, 1) * wrong / design.resolved.divisor
    return training.passes * moved / design.grid.granularity


def _most(design: NoiseDesign, canaries: int, room: int) -> int:
    """As many canaries as are wanted, fit into the directions and into the silo's public record
    bound.
    """
    bound = design.silos[0].records or canaries
    return max(1, min(canaries, room, bound))


@final
class _Gradients:
    """A canary per coordinate, spread over the vector; the other coordinates are silent."""

    def __init__(self, design: NoiseDesign, canaries: int) -> None:
        self._dimension = design.resolved.dimension
        self.canaries = _most(design, canaries, max(1, self._dimension // 2))
        self.coordinates = np.arange(self.canaries) * (self._dimension // self.canaries)
        self.silent = np.setdiff1d(np.arange(self._dimension), self.coordinates)[:4096]
        self.parameters = np.zeros(self._dimension)
        # an update goes against the gradient, a sum of gradients along it
        moves = design.plan.rules.steps == "bins"
        self._sign = -1.0 if moves else 1.0
        self.signal_grid = (
            _linearised_signal_grid(design) if moves else float(design.silos[0].resolution)
        )

    def model(self) -> nn.Module:
        return CanaryModel(self._dimension)

    def records(self, included: npt.NDArray[np.bool_]) -> Records:
        x = self.coordinates[included].astype(np.float32)[:, None]
        return Records(x, np.zeros(len(x), dtype=np.int64))

    def project(self, seen: Floats) -> Floats:
        return self._sign * seen[:, self.coordinates]


@final
class _Features:
    """Convex pass: canary j is the record R·e_j, at weights that are certain of a wrong class for
    it.
    """

    def __init__(self, design: NoiseDesign, canaries: int) -> None:
        training, task = design.plan.training, design.plan.task
        rows = task.linear_outputs(training.model, 1)
        # every row of weights by itself: two classes, numbers; a softmax compares its rows
        self._apart = task.link(rows) is not Link.SOFTMAX
        self._bound, self._label = training.feature_bound, _canary_label(task)
        dimension = design.resolved.dimension
        # a softmax has as many rows as classes; the canaries need to know the number of features
        # only
        self._classes = rows if self._apart else _classes(design)
        self._outputs = self._classes if self._apart else 2
        self._features = dimension // self._classes
        # a record has one bias feature, whichever of the intercepts it stands for
        self._width = self._features - (task.rows_per_record - 1)
        # the bias feature of an intercept that is not sent
        self._kept = 0 if training.local_parameters is None else 1
        # with three classes or more the other rows stay silent; with two, half of the features do
        self.canaries = _most(
            design,
            canaries,
            max(1, self._width // 2) if self._apart or self._classes == 2 else self._features,
        )
        columns = np.arange(self.canaries)
        weights = np.zeros((self._classes, self._features))
        # as certain as the ball that silos accept weights from allows
        certain = min(
            _CERTAIN / self._bound,
            LARGEST_WEIGHT_NORM
            * (1.0 - 2.0**-20)
            / math.sqrt(self.canaries * (self._classes if self._apart else 1)),
        )
        wrong = np.arange(self._classes) if self._apart else np.array([1])
        weights[np.ix_(wrong, columns)] = certain
        self.parameters = weights.reshape(-1)
        self._columns = columns
        used = (np.arange(self._outputs)[:, None] * self._features + columns[None, :]).reshape(-1)
        self.silent = np.setdiff1d(np.arange(dimension), used)[:4096]
        reach = design.silos[0].learning_rate * design.silos[0].clip_norm / design.resolved.divisor
        self.signal_grid = training.passes * reach / design.grid.granularity

    def model(self) -> nn.Module:
        return nn.Identity()  # a convex pass has its own arithmetic

    def records(self, included: npt.NDArray[np.bool_]) -> Records:
        columns = self._columns[included]
        x = np.zeros((len(columns), self._width + self._kept), dtype=np.float32)
        x[np.arange(len(columns)), columns] = self._bound
        return Records(x, np.repeat(self._label, len(columns), axis=0))

    def project(self, seen: Floats) -> Floats:
        table = seen.reshape(len(seen), self._classes, self._features)[:, :, self._columns]
        if self._apart:
            apart: Floats = -table.sum(axis=1) / math.sqrt(self._classes)
            return apart
        return (table[:, 0] - table[:, 1]) / math.sqrt(2.0)


@final
class _Cells:
    """Descriptions: canary j is in cell j of every column that has a cell for each canary and one
    more, in none of the others.
    """

    def __init__(self, design: NoiseDesign, canaries: int) -> None:
        self._cells = cells_of(design.plan)
        room = max(column.count for column in self._cells) - 1
        self.canaries = _most(design, canaries, room)
        self._kept = [column.count > self.canaries for column in self._cells]
        starts = [
            column.start for column, kept in zip(self._cells, self._kept, strict=True) if kept
        ]
        self._places = np.array(starts)[:, None] + np.arange(self.canaries)[None, :]
        self.parameters = np.zeros(design.resolved.dimension)
        self.silent = np.setdiff1d(np.arange(design.resolved.dimension), self._places)[:4096]
        self.signal_grid = math.sqrt(len(starts)) * design.grid.resolution

    def model(self) -> nn.Module:
        return nn.Identity()  # there is none

    def records(self, included: npt.NDArray[np.bool_]) -> Records:
        cells = np.flatnonzero(included)[:, None]
        x = np.where(np.array(self._kept)[None, :], cells, -1).astype(np.int64)
        return Records(x, np.zeros(len(x), dtype=np.int64))

    def project(self, seen: Floats) -> Floats:
        """Along the canary's own direction, the same cell of all columns."""
        return np.asarray(seen[:, self._places].sum(axis=1)) / math.sqrt(len(self._places))


@final
class _Moments:
    """Normal equations: canary j is the record R·e_j, whose moments are two coordinates or few more
    of the whole declared length.
    """

    def __init__(self, design: NoiseDesign, canaries: int) -> None:
        resolved, task = design.resolved, design.plan.task
        shape = resolved.moments
        self._features = shape.features
        self._bound, self._type = design.plan.training.feature_bound, task.label_type
        self.canaries = _most(design, canaries, max(1, self._features // 2))
        self.parameters = np.zeros(resolved.dimension)
        columns = np.arange(self.canaries)
        # label 1 where it names the second of two matrices
        several = shape.matrices > 1 or shape.outputs == 1
        self._label = (np.ones if several else np.zeros)((1, *task.label_shape), dtype=self._type)
        first = (shape.matrices - 1) * shape.triangle
        diagonal = first + columns * self._features - columns * (columns - 1) // 2
        behind = shape.matrices * shape.triangle
        rows = behind + np.arange(shape.targets)[:, None] * self._features + columns[None, :]
        self._places = np.vstack([diagonal[None], rows])
        targets = task.targets(self._label, shape.outputs)[0] if shape.targets else ()
        lengths = np.array([self._bound, *targets])
        self._weights = self._bound * lengths / design.grid.clip_norm
        self.silent = np.setdiff1d(np.arange(resolved.coordinates), self._places)[:4096]
        self.signal_grid = float(np.linalg.norm(self._weights)) * design.grid.resolution

    def model(self) -> nn.Module:
        return nn.Identity()  # moments have their own arithmetic

    def records(self, included: npt.NDArray[np.bool_]) -> Records:
        columns = np.flatnonzero(included)
        x = np.zeros((len(columns), self._features), dtype=np.float32)
        x[np.arange(len(columns)), columns] = self._bound
        return Records(x, np.repeat(self._label, len(columns), axis=0))

    def project(self, seen: Floats) -> Floats:
        """Along the canary's own direction, of length 1 or what its targets leave of it."""
        length = math.sqrt(float(self._weights @ self._weights))
        projected = np.tensordot(seen[:, self._places], self._weights, axes=([1], [0]))
        return np.asarray(projected) / length


@final
class _Bent:
    """Newton: canary j is the record R·e_j, whose second moment is one coordinate of its part of
    the declared length and whose gradient, at weights that are certain of a wrong class for it, is
    one a row of weights.
    """

    def __init__(self, design: NoiseDesign, canaries: int) -> None:
        resolved, task, training = design.resolved, design.plan.task, design.plan.training
        shape, parts = resolved.moments, newton_parts(resolved, design.grid.resolution)
        self._shape, self._bound = shape, training.feature_bound
        self.canaries = _most(design, canaries, max(1, shape.features // 2))
        self._label = _canary_label(task)
        columns = np.arange(self.canaries)
        apart = task.link(shape.outputs) is not Link.SOFTMAX
        certain = np.full(shape.outputs, _CERTAIN) if apart else np.eye(shape.outputs)[1] * _CERTAIN
        weights = np.zeros((shape.outputs, shape.features))
        weights[:, columns] = certain[:, None] / self._bound
        self.parameters = weights.reshape(-1)
        diagonal = columns * shape.features - columns * (columns - 1) // 2
        rows = shape.triangle + np.arange(shape.outputs)[:, None] * shape.features + columns[None]
        self._places = np.vstack([diagonal[None], rows])
        outputs = torch.from_numpy(certain)[None]
        slopes = task.output_gradient(outputs, torch.from_numpy(self._label)).numpy()[0]
        gradient = self._bound * slopes
        gradient = gradient * min(1.0, training.clip_norm / float(np.linalg.norm(gradient)))
        added = np.array([parts.matrix, *(gradient * parts.gradient / training.clip_norm)])
        self.signal_grid = float(np.linalg.norm(added))
        self._weights = added / self.signal_grid
        self.silent = np.setdiff1d(np.arange(resolved.coordinates), self._places)[:4096]

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(self._shape.features, self._shape.outputs, bias=False))

    def records(self, included: npt.NDArray[np.bool_]) -> Records:
        columns = np.flatnonzero(included)
        x = np.zeros((len(columns), self._shape.features), dtype=np.float32)
        x[np.arange(len(columns)), columns] = self._bound
        return Records(x, np.repeat(self._label, len(columns), axis=0))

    def project(self, seen: Floats) -> Floats:
        """Along the canary's own direction."""
        return np.asarray(np.tensordot(seen[:, self._places], self._weights, axes=([1], [0])))


def _canary_label(task: Task) -> npt.NDArray[Any]:
    """The label of every canary, as the task stores it."""
    return np.full((1, *task.label_shape), task.canary_label, dtype=task.label_type)


def _classes(design: NoiseDesign) -> int:
    """Rows of a softmax; public, but the plan holds only the product with the features."""
    from sumus.data import public_facts

    return len(public_facts(design.plan).labels.names)
