"""From sizes and a target to an algorithm, rounds, noise and δ, each with its reason.

    μ       of (ε, δ): the distance of two unit Gaussians that are no easier to tell apart
    n·μ     what the records of all silos weigh against the noise of one sum
    d^1.5   what d features ask of normal equations: the noise in their matrix grows with √d, and
            spreads over d directions

    n·μ ≥ 2·d^1.5      normal equations: one round, no rate
    n·μ ≥ 20·d^1.5     the same with a matrix for each of two classes
    otherwise          a convex pass: few rounds, noise on d numbers instead of d²/2

n is rounded down to 1, 2 or 5 times a power of ten first, so that a choice tells little about how
many records there are.

Reference for μ: Dong, Roth, Su 2022 (arXiv:1905.02383), corollary 2.13.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

from scipy.optimize import brentq
from scipy.special import log_ndtr

__all__ = [
    "Choice",
    "Size",
    "choices_for",
    "convex_pass",
    "gaussian_distance",
    "normal_equations",
    "rounded_down",
]

_ENOUGH = 2.0  # n·μ over d^1.5 from which on normal equations are ahead of a pass
_PLENTY = 20.0  # the same for a matrix of each class, of which one may be rare
_MOST_FEATURES = 1000  # of normal equations: the sum has d²/2 numbers for each matrix
_ROUNDS, _BIN = 5, 5.0
# a quarter over the largest curvature of the loss: 1/4, 1/2, 1; of survival what its page has
_RATES = {"logistic": 1.0, "softmax": 0.5, "regression": 0.25, "counts": 0.25, "survival": 2.0}
_MOST_DELTA = 1e-5
_MODULUS_BITS = 48  # moments of 10⁸ records on a grid of 2¹⁶ steps


@final
@dataclass(frozen=True)
class Size:
    """What the choice rests on.

    Args:
        units: training records of all silos, or persons where these are protected.
        smallest: of the silo with the fewest.
        features: of a record, after public encoding.
        classes: of a classification, otherwise 0.
    """

    units: int
    smallest: int
    silos: int
    features: int
    classes: int = 0


@final
@dataclass(frozen=True)
class Choice:
    """A key of the plan, its value and why it has this one."""

    key: str
    value: Any
    reason: str

    @property
    def section(self) -> str:
        """The table of the plan that holds it."""
        return self.key.partition(".")[0]

    @property
    def name(self) -> str:
        """Of the key within its table."""
        return self.key.partition(".")[2]


_DROPOUTS = Choice(
    "federation.dropouts", 0, "silos that may vanish in a round: each costs the noise of one more"
)
_LAW = Choice("noise.mechanism", "skellam", "integers that add up exactly; calibrated to ε and δ")


def rounded_down(count: int) -> int:
    """The next of 1, 2, 5, 10, 20, 50, … that is not above a count; 1 for nothing."""
    power: int = 10 ** int(math.log10(max(count, 1)))
    return max(step * power for step in (1, 2, 5) if step * power <= max(count, 1))


def gaussian_distance(epsilon: float, delta: float) -> float:
    """μ of the Gaussian pair that is (ε, δ)-private and no more.

    δ = Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2)
    """

    def beyond(mu: float) -> float:
        first = math.exp(log_ndtr(-epsilon / mu + mu / 2.0))
        return first - math.exp(epsilon + log_ndtr(-epsilon / mu - mu / 2.0)) - delta

    return float(brentq(beyond, 1e-9, 100.0 + 2.0 * epsilon, xtol=1e-12))


def delta_for(units: int) -> float:
    """A power of ten, at most a tenth of one over the number of records."""
    return min(_MOST_DELTA, 10.0 ** -(math.ceil(math.log10(max(units, 1))) + 1))


def choices_for(
    task: str, size: Size, *, epsilon: float, delta: float | None, unit: str
) -> tuple[Choice, ...]:
    """The sections of a plan that follow from sizes, with reasons.

    Args:
        task: `training.task`.
        delta: given, or None to choose it.
        unit: `privacy.unit`.
    """
    chosen = delta_for(size.units) if delta is None else delta
    return (
        *_privacy(epsilon, chosen, unit, given=delta is not None),
        *_training(task, size, gaussian_distance(epsilon, chosen)),
    )


def _privacy(epsilon: float, delta: float, unit: str, *, given: bool) -> tuple[Choice, ...]:
    protected = "all rows of one person" if unit == "person" else "one row of one silo"
    whence = (
        "as given"
        if given
        else "a power of ten, at most a tenth of one over the number of training records"
    )
    return (
        Choice("privacy.epsilon", epsilon, "the target for everything that training releases"),
        Choice("privacy.delta", delta, whence),
        Choice("privacy.unit", unit, f"{protected}, added or removed"),
    )


def _training(task: str, size: Size, mu: float) -> tuple[Choice, ...]:
    features = size.features + 1  # and the bias
    weighs = rounded_down(size.units) * mu
    solvable = task in ("classification", "regression") and features <= _MOST_FEATURES
    if solvable and weighs >= _ENOUGH * features**1.5:
        return normal_equations(task, size, plenty=weighs >= _PLENTY * features**1.5)
    return convex_pass(task, size)


def normal_equations(task: str, size: Size, *, plenty: bool) -> tuple[Choice, ...]:
    """One sum of second moments, from which the server solves for the model."""
    if task == "regression":
        model = Choice("training.model", "linear", "least squares")
    elif size.classes != 2:
        model = Choice("training.model", "softmax", "a row of weights for each class")
    elif plenty:
        model = Choice("training.model", "logistic", "a matrix for each class: good probabilities")
    else:
        model = Choice(
            "training.model", "linear", 'least squares; "logistic" asks for ten times the records'
        )
    return (
        Choice("federation.rounds", 1, "one secure sum, from which the server solves"),
        _DROPOUTS,
        Choice(
            "training.algorithm",
            "normal-equations",
            f"many records for {size.features} features: one round, and no rate to tune",
        ),
        model,
        _LAW,
        Choice(
            "aggregation.modulus_bits",
            _MODULUS_BITS,
            "moments add up over the records of the largest silo",
        ),
    )


def convex_pass(task: str, size: Size) -> tuple[Choice, ...]:
    """Noiseless passes over bins, one noisy sum a round."""
    name = "linear"
    if task == "classification":
        name = "logistic" if size.classes == 2 else "softmax"
    return (
        Choice("federation.rounds", _ROUNDS, "the ε is shared by so many sums"),
        _DROPOUTS,
        Choice(
            "training.algorithm",
            "convex-pass",
            "noise on the model alone, whatever the number of local steps"
            if task in ("classification", "regression")
            else f"what is proved for {task} with all silos' noise",
        ),
        Choice("training.model", name, "linear: what few records can carry at this ε"),
        Choice("training.batch_size", _BIN, "records of a local step"),
        Choice(
            "training.learning_rate",
            _RATES[name if task == "classification" else task],
            "for the curvature of this loss; `sumus tune` finds better ones, at a cost in ε",
        ),
        _LAW,
    )
