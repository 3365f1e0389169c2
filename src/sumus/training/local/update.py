"""A silo's answer to one round, and what every way to compute it has in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, final, runtime_checkable

import numpy as np
import numpy.typing as npt
from torch import nn

from sumus.data import Records
from sumus.errors import GuaranteeError, PlanError
from sumus.guarantee import NoiseDesign, SiloDesign
from sumus.randomness import RandomSource
from sumus.tasks import Loss

__all__ = [
    "LocalUpdate",
    "LocalUpdater",
    "Vector",
    "clamp",
    "in_round",
    "require_dimension",
    "same_silo",
]

Vector = npt.NDArray[np.int64] | npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class LocalUpdate:
    """A silo's answer to one round. Only `vector` may leave, and only through the secure sum; the
    counts stay in the silo.

    Args:
        vector: grid steps, integer (float only for the simulated continuous Gaussian).
        records: record gradients that were taken.
        clipped: of these, how many were clipped.
        nonfinite: of these, how many were not finite and contributed zero.
        saturated: coordinates that had to be clamped to keep the ring from wrapping.
        noise_seconds: time spent on drawing noise.
    """

    vector: Vector
    records: int = 0
    clipped: int = 0
    nonfinite: int = 0
    saturated: int = 0
    noise_seconds: float = 0.0


class LocalUpdater(Protocol):
    """One silo's side of some algorithms, bound to its records.

    Attributes:
        algorithms: that it computes.
        per_record: gradients of single records are taken, whatever the model is.
    """

    algorithms: ClassVar[tuple[str, ...]]
    per_record: ClassVar[bool]

    def __init__(
        self,
        design: NoiseDesign,
        silo: SiloDesign,
        records: Records,
        model: nn.Module,
        *,
        loss: Loss | None = None,
    ) -> None: ...

    def __call__(
        self, parameters: npt.NDArray[np.float64], source: RandomSource, seeds: Sequence[bytes] = ()
    ) -> LocalUpdate:
        """The answer to the global `parameters` of a round, all its randomness from `source` and,
        for removable noise, `seeds`.
        """
        ...


@runtime_checkable
class ByRound(Protocol):
    """An updater of an algorithm whose plans may have schedules."""

    def in_round(self, design: NoiseDesign) -> LocalUpdater:
        """The same records under the design of one round."""
        ...


def in_round(updater: LocalUpdater, planned: NoiseDesign, drawn: NoiseDesign) -> LocalUpdater:
    """The updater of a round; refuses one that cannot change from round to round.

    Args:
        planned: the design that it was made with.
        drawn: that of the round.
    """
    if drawn is planned:
        return updater
    if not isinstance(updater, ByRound):
        raise GuaranteeError(
            f"{planned.plan.training.algorithm} has no rounds of their own. Remove the schedules."
        )
    return updater.in_round(drawn)


def require_dimension(design: NoiseDesign, parameters: int, kept: int = 0) -> None:
    """The size of the model is part of the accounted sensitivity, so a silo counts it for
    itself.

    Args:
        parameters: that are sent.
        kept: that are not.
    """
    if kept != design.resolved.local_dimension:
        rule, fix = f"must be {kept} as the model has them", "Omit it to have it counted."
        raise PlanError("training.local_dimension", design.resolved.local_dimension, rule, fix)
    if parameters != design.resolved.dimension:
        rule, fix = f"must be the model's {parameters} parameters", "Omit it to have it counted."
        raise PlanError("training.dimension", design.resolved.dimension, rule, fix)


def same_silo(design: NoiseDesign, silo: SiloDesign) -> SiloDesign:
    """The silo of this name in another round's design."""
    return next(each for each in design.silos if each.name == silo.name)


def clamp(values: npt.NDArray[np.int64], limit: int) -> tuple[npt.NDArray[np.int64], int]:
    """Clamp every coordinate to ± limit. Clamping is 1-Lipschitz per coordinate, so it never raises
    a sensitivity.
    """
    if limit <= 0:
        raise GuaranteeError(
            "the ring leaves no room for this silo's vector. Raise aggregation.modulus_bits."
        )
    # the two ends first: no copy of a vector that needs no clamping
    if -limit <= int(values.min(initial=0)) and int(values.max(initial=0)) <= limit:
        return values, 0
    over = int(np.count_nonzero((values > limit) | (values < -limit)))
    return np.clip(values, -limit, limit), over
