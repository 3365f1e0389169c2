"""How long the sum of honest silos can be: what is longer was poisoned, and is refused.

A secure sum hides who sent what, so a silo can add any vector whatsoever. But what honest silos can
send has public bounds: the clip norm, how many records a batch holds, the noise. The bound is

    B = Σ_{survivors i} U_i + R,

U_i the longest update of silo i before its noise (`Algorithm.longest_update_grid`), R what the noise
of all of them together exceeds with probability 2^−42 (`sumus.noise.norms`).

Guarantee: honest silos' sums are refused with probability at most 2^−40 a round; a refused sum moves
    nothing. One silo among N can still move a sum by as much as all N honest ones together could:
    the gate bounds what a poisoner adds by 2B, and no more. It reads released sums only, so it costs
    no privacy.

Without clipping (`fedavg`) no bound holds, and nothing is refused. Counts of test records have no
public bound either, but no test records give counts that are longer than so many records' can be.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.special import betainc

from sumus.guarantee.counts import count_noise
from sumus.guarantee.design import NoiseDesign
from sumus.guarantee.layout import SiloDesign
from sumus.noise import Law, noise_norm_bound

__all__ = ["NormGate"]

_BITS = 42
"""Of each of the events that an honest sum is refused for: long noise, a large batch."""


@final
class NormGate:
    """The bounds of one design's sums.

    Args:
        design: of the plan.
    """

    def __init__(self, design: NoiseDesign) -> None:
        self._design = design

    def largest_update_grid(self, survivors: Iterable[int], *, weight_norm: float) -> float:
        """B of a sum that moves the model, grid steps; of coins, from the middle of their range.

        Args:
            survivors: places in the plan of the silos that are in the sum.
            weight_norm: ‖θ‖ of the model that they were sent.
        """
        design = self._design
        silos = [design.silos[place] for place in survivors]
        coins, dimension = design.coins, design.resolved.coordinates
        if not design.resolved.rules.private or not silos:
            return math.inf
        if coins is not None:
            # a sum of coins is within its mean by Hoeffding's lemma as a normal of variance m/4 is
            spread = math.sqrt(len(silos) * coins.trials / 4.0)
            excess = _BITS * math.log(2.0)
            tail = dimension + 2.0 * math.sqrt(dimension * excess) + 2.0 * excess
            leaning = len(silos) * coins.trials * coins.theta * math.sqrt(dimension)
            return leaning + spread * math.sqrt(tail)
        batches = math.fsum(
            design.algorithm.longest_update_grid(
                design.resolved,
                silo,
                step_weights=design.step_weights,
                batch=_largest_batch(silo, steps=sum(each.local_steps for each in silos)),
                weight_norm=weight_norm,
            )
            for silo in silos
        )
        weights = design.step_weights
        draws: Counter[tuple[Law, float]] = Counter()
        for silo in silos:
            law = design.drawn_by(silo)
            for weight in weights[: design.algorithm.queries(silo.local_steps)]:
                draws[law, float(weight)] += 1
        return batches + noise_norm_bound(draws, dimension, bits=_BITS)

    def largest_counts_grid(self, survivors: int, records_grid: float) -> float:
        """B of a sum of counts in which the coordinate that counts records is `records_grid`.

        Every record adds a row of norm at most Δ₂ and exactly u to that coordinate, so n rows are at
        most Δ₂/u times as long as it is; noise moves each side by at most its norm.
        """
        plan, shape = self._design.plan, self._design.plan.task.counts
        if shape.record_place is None:
            return math.inf
        noise = noise_norm_bound({(count_noise(plan), 1.0): survivors}, shape.length, bits=_BITS)
        slope = shape.l2_grid / shape.record_grid
        return max(0.0, slope * records_grid) + (1.0 + slope) * noise

    def refusal(
        self, total_grid: npt.NDArray[Any], survivors: Iterable[int], *, weight_norm: float
    ) -> str | None:
        """Why a sum of these silos may not move the model; None if it may."""
        places, coins = list(survivors), self._design.coins
        middle = 0.0 if coins is None else len(places) * coins.trials / 2.0
        return _longer(
            np.asarray(total_grid, dtype=np.float64) - middle,
            self.largest_update_grid(places, weight_norm=weight_norm),
        )

    def counts_refusal(self, total_grid: npt.NDArray[Any], survivors: int) -> str | None:
        """Why a sum of so many silos' counts may not be read; None if it may."""
        shape = self._design.plan.task.counts
        counts = np.asarray(total_grid[: shape.length], dtype=np.float64)
        records = 0.0 if shape.record_place is None else float(counts[shape.record_place])
        return _longer(counts, self.largest_counts_grid(survivors, records))


def _longer(vector: npt.NDArray[np.float64], most: float) -> str | None:
    norm = float(np.linalg.norm(vector))
    if norm <= most:
        return None
    return (
        f"the sum was refused: it is {norm / most:.3g} times as long as honest silos can make it, so "
        "a silo poisoned it"
    )


def _largest_batch(silo: SiloDesign, *, steps: int) -> int:
    """What a batch of this silo exceeds with probability at most 2^−42 in all `steps` of a round:
    P[Bin(n, q) > b] ≤ 2^−42/steps.
    """
    records, rate, limit = silo.records, silo.sampling_rate, 2.0**-_BITS / max(steps, 1)
    low, high = 0, records  # P[Bin > records] = 0
    while low < high:
        middle = (low + high) // 2
        exceeds = 1.0 if rate >= 1.0 else float(betainc(middle + 1, records - middle, rate))
        low, high = (low, middle) if exceeds <= limit else (middle + 1, high)
    return low
