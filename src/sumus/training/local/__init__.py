"""What one silo does with the global model: private local steps, and an integer vector that is
ready for the secure sum.

| algorithm      | local state moves by               | the silo sends                                   |
|----------------|------------------------------------|--------------------------------------------------|
| `dp-sgd`       | γ/b·(g_s + ξ_s)                    | Σ_s w_s·(g_s + ξ_s)        (S = 1: `single-step`) |
| `split-noise`  | γ/b·(g_s + ξ_s + ζ_s), s < S       | Σ_s w_s·(g_s + ξ_s)                              |
| `convex-pass`  | a noiseless pass over bins         | round(θ_S − θ₀) + ξ                              |
| `tangent-pass` | such a pass, linearised at θ₀      | round(u_S) + ξ                                   |
| `normal-equations` | nothing                        | Σ_j trunc(x_j·x_jᵀ, x_j·y_jᵀ) + ξ                |
| `newton`       | nothing                            | Σ_j trunc(x_j·x_jᵀ), Σ_j trunc(clip(∇f_j)), + ξ  |
| `silo`         | noiseless SGD                      | trunc(clip(θ_S − θ₀)) + ξ                        |
| `fedavg`       | noiseless SGD (no privacy)         | round(θ_S − θ₀)                                  |

g_s is an integer vector (clipped per-record gradients on the grid), ξ and ζ are integer noise.
State and velocity begin anew in every round, and nothing is done with them after the last step: the
accounts of `last-step` and `split-noise` rest on both. Everything stays an integer until the server
decodes the sum. An empty batch adds its noise as always; divisors are public constants of the plan.

`UPDATERS` follows the plan's list: each entry of `plan.RULES` names the module here that computes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from torch import nn

from sumus.data import Records
from sumus.errors import DataError
from sumus.guarantee import NoiseDesign, SiloDesign
from sumus.plan import RULES
from sumus.tasks import Loss
from sumus.training.local.update import LocalUpdater
from sumus.training.own_loss import own_loss
from sumus.training.preparation import units_of

__all__ = ["UPDATERS", "local_updater"]


def _registered() -> dict[str, type[LocalUpdater]]:
    modules = dict.fromkeys(rules.local for rules in RULES.values())
    kinds: list[type[LocalUpdater]] = [
        import_module(f"{__name__}.{name}").UPDATER for name in modules
    ]
    return {algorithm: kind for kind in kinds for algorithm in kind.algorithms}


UPDATERS: Mapping[str, type[LocalUpdater]] = MappingProxyType(_registered())
"""By `training.algorithm`."""


def local_updater(
    design: NoiseDesign,
    silo: SiloDesign,
    records: Records,
    model: nn.Module,
    *,
    loss: Loss | None = None,
) -> LocalUpdater:
    """The updater that the plan's algorithm asks for.

    Guarantee: what it returns has the sensitivity and the noise that `design` declares for this
        silo, and hence `design`'s account. More records (persons) than the public bound, a person
        with more rows than its bound, records of nobody where persons are protected, or a model of
        another size than the plan's, are refused: all of it enters the sensitivity.

    Args:
        loss: instead of what the plan says, for the algorithms that clip single records, which
            hold for any.
    """
    units = units_of(design.plan, records)
    count, counted = units.count, "persons" if design.plan.protects_persons else "records"
    if count > silo.records:
        raise DataError(
            f"silo {silo.name} has {count} {counted}, more than the public bound "
            f"{silo.records} of data.records_per_silo."
        )
    return UPDATERS[design.resolved.rules.name](
        design, silo, records, model, loss=loss or own_loss(design.plan)
    )
