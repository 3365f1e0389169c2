"""What one silo does with the global model: private local steps, and an integer vector that is
ready for the secure sum.

| algorithm      | local state moves by               | the silo sends                                   |
|----------------|------------------------------------|--------------------------------------------------|
| `dp-sgd`       | γ/b·(g_s + ξ_s)                    | Σ_s w_s·(g_s + ξ_s)        (S = 1: `single-step`) |
| `split-noise`  | γ/b·(g_s + ξ_s + ζ_s), s < S       | Σ_s w_s·(g_s + ξ_s)                              |
| `convex-pass`  | a noiseless pass over bins         | round(θ_S − θ₀) + ξ                              |
| `silo`         | noiseless SGD                      | trunc(clip(θ_S − θ₀)) + ξ                        |
| `fedavg`       | noiseless SGD (no privacy)         | round(θ_S − θ₀)                                  |

g_s is an integer vector (clipped per-record gradients on the grid), ξ and ζ are integer noise.
State and velocity begin anew in every round, and nothing is done with them after the last step: the
accounts of `last-step` and `split-noise` rest on both. Everything stays an integer until the server
decodes the sum. An empty batch adds its noise as always; divisors are public constants of the plan.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumus.data import Records
from sumus.errors import DataError, GuaranteeError, PlanError
from sumus.gradients import PerRecordGradients
from sumus.guarantee import NoiseDesign, SiloDesign, convex_bounds
from sumus.noise import Grid
from sumus.purity import InputKind, is_chain
from sumus.randomness import RandomSource
from sumus.training.local.convex_pass import convex_pass
from sumus.training.local.plain_steps import plain_steps
from sumus.training.models import flat_parameters
from sumus.training.noise import draw_noise
from sumus.training.sampling import poisson_batch

__all__ = ["LocalUpdate", "LocalUpdater", "local_updater"]

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
    """One silo's side of an algorithm, bound to its records."""

    def __call__(
        self, parameters: npt.NDArray[np.float64], source: RandomSource, seeds: Sequence[bytes] = ()
    ) -> LocalUpdate:
        """The answer to the global `parameters` of a round, all its randomness from `source` and,
        for removable noise, `seeds`.
        """
        ...


def local_updater(
    design: NoiseDesign,
    silo: SiloDesign,
    records: Records,
    model: nn.Module,
    *,
    loss: str = "cross-entropy",
) -> LocalUpdater:
    """The updater that the plan's algorithm asks for.

    Guarantee: what it returns has the sensitivity and the noise that `design` declares for this
        silo, and hence `design`'s account. More records than the public bound, or a model of
        another size than the plan's, are refused: both enter the sensitivity.

    Args:
        loss: of the algorithms that clip single records, which hold for any loss; the others know
            their own.
    """
    if len(records) > silo.records:
        raise DataError(
            f"silo {silo.name} has {len(records)} records, more than the public bound "
            f"{silo.records} of data.records_per_silo."
        )
    algorithm = design.plan.training.algorithm
    if algorithm in ("dp-sgd", "single-step", "split-noise"):
        return NoisySteps(design, silo, records, model, loss=loss)
    if algorithm == "convex-pass":
        return ConvexPass(design, silo, records)
    if algorithm in ("silo", "fedavg"):
        return WholeUpdate(design, silo, records, model)
    raise PlanError(
        "training.algorithm",
        algorithm,
        "has no local update",
        "Choose one of the plan's algorithms.",
    )


@final
class NoisySteps:
    """`dp-sgd`, `single-step` and `split-noise`: S private steps, their integers added up
    (algorithm 2 of the paper).
    """

    def __init__(
        self,
        design: NoiseDesign,
        silo: SiloDesign,
        records: Records,
        model: nn.Module,
        *,
        loss: str = "cross-entropy",
    ) -> None:
        self._design, self._silo = design, silo
        self._x, self._y = torch.from_numpy(records.x), torch.from_numpy(records.y)
        self._gradients = PerRecordGradients(
            model, loss=loss, vocabulary=design.plan.training.vocabulary
        )
        _require_dimension(design, self._gradients.dimension)

    def __call__(
        self, parameters: npt.NDArray[np.float64], source: RandomSource, seeds: Sequence[bytes] = ()
    ) -> LocalUpdate:
        design, silo, training = self._design, self._silo, self._design.plan.training
        share, unsent = design.drawn_by(silo), design.state_noise
        step_length = training.learning_rate / design.resolved.divisor * design.grid.granularity
        state, velocity = np.array(parameters, dtype=np.float64), np.zeros(len(parameters))
        released: npt.NDArray[Any] = np.zeros(
            len(parameters), dtype=np.int64 if share.discrete else np.float64
        )
        taken = clipped = nonfinite = saturated = 0
        noise_seconds = 0.0
        for step in range(silo.local_steps):
            batch = torch.from_numpy(poisson_batch(len(self._y), silo.sampling_rate, source))
            found = self._gradients.clipped_sum(
                torch.from_numpy(state),
                self._x[batch],
                self._y[batch],
                clip_norm=silo.clip_norm,
                resolution=silo.resolution,
                rounding=design.plan.noise.rounding,
                source=source,
            )
            gradient, clamped = _saturate(found.integers.numpy(), design.saturation_grid)
            # no gradient is taken at the state after the last step
            another = step + 1 < silo.local_steps
            begin = time.perf_counter()
            noisy = gradient + draw_noise(design, silo, source=source, seeds=seeds)
            hidden = unsent.sample(len(gradient), source) if another and unsent is not None else 0
            noise_seconds += time.perf_counter() - begin
            released += design.step_weights[step] * noisy
            if another:
                velocity = training.local_momentum * velocity + (noisy + hidden)
                rate = (
                    training.learning_rates[step] / training.learning_rate
                    if training.learning_rates
                    else 1.0
                )
                state = state - step_length * rate * velocity
            taken, clipped = taken + found.records, clipped + found.clipped
            nonfinite, saturated = nonfinite + found.nonfinite, saturated + clamped
        return LocalUpdate(
            released,
            records=taken,
            clipped=clipped,
            nonfinite=nonfinite,
            saturated=saturated,
            noise_seconds=noise_seconds,
        )


@final
class ConvexPass:
    """`convex-pass`: a noiseless non-expansive pass, one draw of noise for the whole update."""

    def __init__(self, design: NoiseDesign, silo: SiloDesign, records: Records) -> None:
        self._design, self._silo = design, silo
        flat = records.x.reshape(len(records), math.prod(records.x.shape[1:]))
        self._x = np.ascontiguousarray(flat, dtype=np.float32)
        self._y = records.y
        self._bounds = convex_bounds(design.resolved, silo.learning_rate)
        width, training = self._x.shape[1], design.plan.training
        # one row of weights is logistic regression, more are softmax: each has the constants of its
        # own loss
        outputs = (
            1 if training.model == "logistic" else max(2, round(design.resolved.dimension / width))
        )
        _require_dimension(design, outputs * width)

    def __call__(
        self, parameters: npt.NDArray[np.float64], source: RandomSource, seeds: Sequence[bytes] = ()
    ) -> LocalUpdate:
        design, silo, training = self._design, self._silo, self._design.plan.training
        before = np.asarray(parameters, dtype=np.float64).reshape(-1, self._x.shape[1])
        after = convex_pass(
            before,
            self._x,
            self._y,
            bins=silo.local_steps,
            passes=training.passes,
            step=silo.learning_rate / design.resolved.divisor,
            decay=silo.learning_rate * training.l2_penalty,
            bin_cap=self._bounds.bin_cap,
            feature_bound=training.feature_bound,
            residual_cap=self._bounds.residual_cap,
            source=source,
        )
        update, clamped = _saturate(
            design.grid.encode_summed((after - before).reshape(-1)), design.saturation_grid
        )
        begin = time.perf_counter()
        noise = draw_noise(design, silo, source=source, seeds=seeds)
        seconds = time.perf_counter() - begin
        return LocalUpdate(
            update + noise,
            records=training.passes * len(self._y),
            saturated=clamped,
            noise_seconds=seconds,
        )


@final
class WholeUpdate:
    """`silo` (algorithm 3 of the paper: noiseless SGD, the whole update clipped) and `fedavg` (the
    same without clip and noise).
    """

    def __init__(
        self, design: NoiseDesign, silo: SiloDesign, records: Records, model: nn.Module
    ) -> None:
        _require_dimension(design, len(flat_parameters(model)))
        self._design, self._silo, self._model = design, silo, model
        kind = InputKind.of(model, design.plan.training.vocabulary)
        self._x, self._y = kind.cast(torch.from_numpy(records.x)), torch.from_numpy(records.y)
        # a user's code that saw one silo's records could carry them to the next silo of this
        # process
        recorded = design.plan.training.algorithm != "fedavg" and not is_chain(model)
        vocabulary = design.plan.training.vocabulary
        self._recorded = PerRecordGradients(model, vocabulary=vocabulary) if recorded else None

    def __call__(
        self, parameters: npt.NDArray[np.float64], source: RandomSource, seeds: Sequence[bytes] = ()
    ) -> LocalUpdate:
        design, silo, training = self._design, self._silo, self._design.plan.training
        update = plain_steps(
            self._model,
            parameters,
            self._x,
            self._y,
            steps=silo.local_steps,
            sampling_rate=silo.sampling_rate,
            learning_rate=silo.learning_rate,
            momentum=training.local_momentum,
            l2_penalty=training.l2_penalty,
            source=source,
            mean_gradient=self._recorded and self._recorded.mean,
        )
        taken = round(silo.local_steps * silo.sampling_rate * len(self._y))
        if training.algorithm == "fedavg":
            return LocalUpdate(design.grid.encode_summed(update), records=taken)
        length = float(np.linalg.norm(update))
        if design.coins is not None:
            return LocalUpdate(
                design.coins.encode(update, source),
                records=taken,
                nonfinite=0 if np.isfinite(length) else taken,
            )
        if not np.isfinite(length):
            return LocalUpdate(
                draw_noise(design, silo, source=source, seeds=seeds), nonfinite=taken
            )
        integers = Grid(silo.clip_norm, silo.resolution).encode_truncated(update)
        bounded, clamped = _saturate(integers, design.saturation_grid)
        noisy = bounded + draw_noise(design, silo, source=source, seeds=seeds)
        return LocalUpdate(
            noisy, records=taken, clipped=taken if length > silo.clip_norm else 0, saturated=clamped
        )


def _require_dimension(design: NoiseDesign, found: int) -> None:
    """The size of the model is part of the accounted sensitivity, so a silo counts it for
    itself.
    """
    if found != design.resolved.dimension:
        rule, fix = f"must be the model's {found} parameters", "Omit it to have it counted."
        raise PlanError("training.dimension", design.resolved.dimension, rule, fix)


def _saturate(values: npt.NDArray[np.int64], limit: int) -> tuple[npt.NDArray[np.int64], int]:
    """Clamp every coordinate to ± limit. Clamping is 1-Lipschitz per coordinate, so it never raises
    a sensitivity.
    """
    if limit <= 0:
        raise GuaranteeError(
            "the ring leaves no room for this silo's vector. Raise aggregation.modulus_bits."
        )
    over = int(np.count_nonzero(np.abs(values) > limit))
    return (np.clip(values, -limit, limit), over) if over else (values, 0)
