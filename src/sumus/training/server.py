"""What the server does with a decoded sum: FedAvg, momentum, an adaptive optimiser, or solving for
the model; and which sums it refuses. Post-processing, so it costs no privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, final

import numpy as np
import numpy.typing as npt

from sumus.errors import StorageError
from sumus.guarantee import NoiseDesign, NormGate
from sumus.plan import rate_factor
from sumus.training.bending import Bending
from sumus.training.solving import solved_model

if TYPE_CHECKING:  # a server without preconditioner needs no torch
    from sumus.gradients import PublicMap

__all__ = ["Server", "released_from"]

Vector = npt.NDArray[np.float64]
_KEPT = 0.9  # of adam-bc's squares, per round
_LEAST_SIGNAL = 10.0  # squares below so many variances of the noise count as this many
_SMALL = 1e-8
_NONE: Vector = np.zeros(1)
_SHRUNK = 1.0 - 2.0**-20  # rounding to float32 moves a norm by at most 2^-24 of it


@final
class Server:
    """The global model and its optimiser (algorithm 1 of Heikkilä 2025; Reddi et al. 2021, arXiv
    2003.00295, for adam and yogi).

    adam-bc knows the variance Φ of the noise in an update u and takes it off the squares:

        m ← β₁m + (1−β₁)u     v ← β₂v + (1−β₂)(u² − Φ)     step = m̂ / √max(v̂, 10Φ)

    with m̂ and v̂ free of the start's zeros and β₁ the plan's `server_momentum`.

    Args:
        design: of the plan.
        parameters: θ₀, public.
        public_map: the map in front of clipping at a round's model; None: there is none.
    """

    def __init__(
        self,
        design: NoiseDesign,
        parameters: Vector,
        public_map: Callable[[Vector], PublicMap] | None = None,
    ) -> None:
        self._design, self._public_map = design, public_map
        self._iterate = _as_sent(np.asarray(parameters, dtype=np.float64))
        # one number where the plan does not look at them, so that they cost no memory
        remembered = self._remembered
        self._mean = self._iterate.copy() if "mean" in remembered else _NONE
        self._first = np.zeros_like(self._iterate) if "first" in remembered else _NONE
        self._second = np.zeros_like(self._iterate) if "second" in remembered else _NONE
        self._rounds = 0
        self._bending = Bending(design) if design.resolved.rules.sums == "curvature" else None

    @property
    def _remembered(self) -> frozenset[str]:
        """What the plan's later rounds depend on beside the iterate."""
        training = self._design.plan.training
        return frozenset(
            name
            for name, needed in {
                "mean": training.iterate_average > 0.0,
                "first": training.server_momentum > 0.0,
                "second": training.server_optimizer != "sgd",
            }.items()
            if needed
        )

    @property
    def parameters(self) -> Vector:
        """The iterate that the next round starts from."""
        return self._iterate

    @property
    def released(self) -> Vector:
        """The model that users get: the iterate, or its running mean where the plan asks for it."""
        weight = self._design.plan.training.iterate_average
        return released_from({"iterate": self._iterate, "mean": self._mean}, weight)

    @property
    def coordinates(self) -> int:
        """Numbers of a round's sum."""
        return self._design.resolved.coordinates

    def refusal(
        self, total_grid: npt.NDArray[np.int64] | Vector, survivors: Iterable[int], number: int = 0
    ) -> str | None:
        """Why the sum of these silos (places in the plan) in round `number` (from 0) must not move
        the model; None if it may.
        """
        norm = float(np.linalg.norm(self._iterate))
        gate = NormGate(self._design.in_round(number))
        return gate.refusal(total_grid, survivors, weight_norm=norm)

    def apply(
        self, total_grid: npt.NDArray[np.int64] | Vector, survivors: int, number: int = 0
    ) -> Vector:
        """Decode the sum of `survivors` silos in round `number` (from 0) and take one server step;
        returns the averaged update.
        """
        design = self._design.in_round(number)
        decoded = design.mechanism.decode(np.asarray(total_grid), survivors)
        if design.resolved.rules.sums == "moments":
            return self._solve(decoded, survivors)
        if design.plan.describes:
            return self._take(decoded - self._iterate)
        if self._public_map is not None:
            decoded = self._public_map(self._iterate).transpose(decoded)
        if self._bending is not None:
            rate = design.plan.training.learning_rate
            update = rate * self._bending.direction(decoded, survivors)
        else:
            update = decoded
            update *= design.update_scale
            # the number of survivors is public
            update *= design.resolved.invited / max(survivors, 1)
        self._rounds += 1
        moved = self._rate(number) * self._step(update, design, survivors)
        moved += self._iterate
        self._iterate = _as_sent(_within(moved, design.algorithm.largest_weight_norm * _SHRUNK))
        if "mean" in self._remembered:
            # all rounds alike at first, then an exponential mean
            forgotten = 1.0 - design.plan.training.average_decay
            counted = self._rounds if forgotten * self._rounds <= 1.0 else 1.0 / forgotten
            self._mean = self._mean + (self._iterate - self._mean) / counted
        return update

    def _rate(self, number: int) -> float:
        """The server's learning rate in a round (from 0)."""
        training, rounds = self._design.plan.training, self._design.plan.federation.rounds
        return training.server_learning_rate * rate_factor(
            training.server_rate_schedule, number, rounds
        )

    def _step(self, update: Vector, design: NoiseDesign, survivors: int) -> Vector:
        """What the update of a round becomes before the rate: the optimiser's step along it."""
        training, kept = design.plan.training, "first" in self._remembered
        name, momentum = training.server_optimizer, training.server_momentum
        if name == "sgd":
            step = momentum * self._first + update if kept else update
            self._first = step if kept else _NONE
            return step
        first = momentum * self._first + (1.0 - momentum) * update if kept else update
        self._first = first if kept else _NONE
        squared = update**2
        if name == "adam-bc":
            # so much of the squares is noise (Tang et al. 2023, arXiv 2312.14334)
            noise = _noise_variance(design, survivors)
            self._second = _KEPT * self._second + (1.0 - _KEPT) * (squared - noise)
            unbiased = self._second / (1.0 - _KEPT**self._rounds)
            floor = _LEAST_SIGNAL * noise + _SMALL**2
            started = 1.0 - momentum**self._rounds
            return np.asarray(first / started / np.sqrt(np.maximum(unbiased, floor)))
        if name == "adam":
            self._second = 0.99 * self._second + 0.01 * squared
        else:
            self._second = self._second - 0.01 * squared * np.sign(self._second - squared)
        return np.asarray(first / (np.sqrt(self._second) + 1e-3))

    def _solve(self, decoded: Vector, survivors: int) -> Vector:
        """The model that a sum of moments stands for, in the place of the iterate."""
        return self._take(solved_model(self._design, decoded, survivors) - self._iterate)

    def _take(self, update: Vector) -> Vector:
        """Move the iterate by an update as it is."""
        self._rounds += 1
        self._iterate = _as_sent(self._iterate + update)
        if "mean" in self._remembered:
            self._mean = self._iterate.copy()
        return update

    def state(self) -> dict[str, Vector]:
        """Everything a checkpoint must hold, and no more: the iterate as silos receive it, and what
        later rounds depend on.
        """
        kept = {"mean": self._mean, "first": self._first, "second": self._second}
        bent = {} if self._bending is None else {"moments": self._bending.state()}
        return bent | {
            "iterate": self._iterate.astype(np.float32),
            **{name: kept[name] for name in kept if name in self._remembered},
            "rounds": np.array([float(self._rounds)]),
        }

    def restore(self, state: dict[str, Vector]) -> None:
        """Continue from a checkpoint."""
        for name in ("iterate", *sorted(self._remembered), "rounds"):
            if name not in state or (name != "rounds" and state[name].shape != self._iterate.shape):
                raise StorageError(
                    f"checkpoint lacks a fitting {name!r}: it was written for another model. Start "
                    "a new run."
                )
        if self._bending is not None and not self._bending.restore(
            state.get("moments", np.zeros(0))
        ):
            raise StorageError(
                "checkpoint lacks fitting 'moments': it was written for another model. Start a "
                "new run."
            )
        self._iterate = state["iterate"].astype(np.float64)
        if "mean" in self._remembered:
            self._mean = state["mean"].copy()
        if "first" in self._remembered:
            self._first = state["first"].copy()
        if "second" in self._remembered:
            self._second = state["second"].copy()
        self._rounds = round(float(state["rounds"][0]))


def released_from(state: Mapping[str, Vector], weight: float) -> Vector:
    """The model that users get, from what a checkpoint holds.

    Args:
        weight: `training.iterate_average` of the plan.
    """
    iterate = np.asarray(state["iterate"], dtype=np.float64)
    return (1.0 - weight) * iterate + weight * state["mean"] if weight > 0.0 else iterate


def _noise_variance(design: NoiseDesign, survivors: int) -> float:
    """Of one coordinate of the averaged update of so many silos, as drawn in its round."""
    if not design.resolved.rules.private:
        return 0.0
    # of noise that is taken back the counted part stays
    kept = design.resolved.contributors if design.plan.noise.removable else survivors
    scale = design.update_scale * design.resolved.invited / max(survivors, 1)
    return (design.mechanism.noise_norm(kept) * scale) ** 2 / design.resolved.coordinates


def _within(parameters: Vector, radius: float) -> Vector:
    """The nearest point of a ball: a function of released sums, so it costs nothing, and no silo
    has to refuse the model.
    """
    norm = 0.0 if radius == np.inf else float(np.linalg.norm(parameters))
    return parameters * (radius / norm) if norm > radius else parameters


def _as_sent(parameters: Vector) -> Vector:
    """Rounded to the float32 values that silos receive, so that server and silos hold the same
    model.
    """
    return parameters.astype(np.float32).astype(np.float64)
