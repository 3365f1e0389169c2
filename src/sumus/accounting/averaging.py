"""Post-hoc averaging (Heikkilä 2025, section 5 and table 1): N models trained apart under local DP,
released only as their average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from sumus.accounting.calculator import calibrate, epsilon
from sumus.files import whole

__all__ = ["AveragedModels", "average"]


@final
@dataclass(frozen=True, kw_only=True)
class AveragedModels:
    """What averaging `parties` models buys against an adversary who sees the average only.

    `epsilon` follows the paper's theorem 4.5; `proved_epsilon` is what is proved: the same for a
    single party, and for the exact sum of one local step each; the parties' own ε (post-processing)
    otherwise. `rounded`: the models were rounded party by party, as files are.
    """

    parties: int
    noise_multiplier: float
    epsilon: float
    proved: bool
    proved_epsilon: float
    rounded: bool = False


def average(
    *,
    local_epsilon: float,
    delta: float,
    sampling_rate: float,
    steps: int,
    parties: Sequence[int],
    accountant: str = "pld",
    mechanism: str = "skellam",
    rounded: bool = False,
) -> list[AveragedModels]:
    """ε of the average of N models, each trained with the noise that makes it (local_epsilon, δ)-DP
    on its own.

    Guarantee: `proved_epsilon` holds for the average. The noise of all parties counts only where
        their exact vectors are added: a float that is rounded after its noise was added may lose
        that noise, and then says nothing of the others' either.

    Args:
        rounded: the models are floating-point numbers that were rounded one by one, for example
            checkpoint files.
    """
    options = {
        "delta": delta,
        "steps": steps,
        "sampling_rate": sampling_rate,
        "accountant": accountant,
        "mechanism": mechanism,
    }
    local = calibrate(epsilon=local_epsilon, **options)  # type: ignore[arg-type]
    rows = []
    for count in parties:
        whole(low=1).check("parties", count)
        total = local * math.sqrt(count)
        claimed = epsilon(noise_multiplier=total, **options)  # type: ignore[arg-type]
        proved = count == 1 or (steps == 1 and not rounded)
        rows.append(
            AveragedModels(
                parties=count,
                noise_multiplier=total,
                epsilon=claimed,
                proved=proved,
                proved_epsilon=claimed if proved else local_epsilon,
                rounded=rounded,
            )
        )
    return rows
