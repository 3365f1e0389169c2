"""What is drawn and what is proved, a file per algorithm.

| statement     | what is composed                                 | proved                          |
|---------------|--------------------------------------------------|---------------------------------|
| `single-step` | T × subsampled(noise of all counted silos)       | S = 1                           |
| `last-step`   | T·(S−1) × subsampled(the silo's own noise alone) | always                          |
|               |   ∘ T × subsampled(noise of all counted silos)   |                                 |
| `local`       | T·S × subsampled(the silo's own noise alone)     | always                          |
| `per-step`    | T·S × subsampled(noise of all counted silos)     | S = 1 only (Heikkilä 2025,      |
|               |                                                  |   theorem 4.5)                  |
| `split-noise` | T·(S−1) × subsampled(σ_eff)                      | always, with unsent state noise |
|               |   ∘ T × subsampled(noise of all counted silos)   |   in all steps but the last     |
| `convex-pass` | T × one draw per round, sensitivity P·γC/b       | convex smooth losses            |
| `tangent-pass` | the same, on the network linearised at θ_t     | losses convex in the outputs    |
| `normal-equations` | one draw, sensitivity √(R⁴ + R²B²)          | bounded records and targets     |
| `newton`      | T × one draw, moments and gradient together      | any loss of bounded records     |
| `silo`        | T × noise of all counted silos, unit one silo    | always                          |

For S > 1 the per-step accounting of Heikkilä 2025 is reported for comparison, never as a guarantee:
the state at which a later gradient is taken carries only the silo's own noise. After the last step
of a round no gradient is taken at the state any more, so that step may count with everybody's noise
(docs/mathematics.md, theorem 7).

`ALGORITHMS` follows the plan's list: each entry of `plan.RULES` names the module here that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from sumus.accounting import Release
from sumus.errors import PlanError
from sumus.files import closest
from sumus.guarantee.algorithms.algorithm import Algorithm
from sumus.guarantee.claims import Setting, Statement
from sumus.plan import RULES

__all__ = [
    "ALGORITHMS",
    "STATEMENTS",
    "algorithm_of",
    "applicable",
    "calibrated_analysis",
    "counts_on_others",
    "release_of",
]


def _registered() -> dict[str, Algorithm]:
    modules = dict.fromkeys(rules.guarantee for rules in RULES.values())
    kinds = [kind for name in modules for kind in import_module(f"{__name__}.{name}").ALGORITHMS]
    known: dict[str, Algorithm] = {kind.rules.name: kind() for kind in kinds}
    return {name: known[name] for name in RULES}


def _first_of_each_name() -> dict[str, Statement]:
    statements: dict[str, Statement] = {}
    for algorithm in ALGORITHMS.values():
        for statement in algorithm.statements:
            statements.setdefault(statement.name, statement)
    return statements


ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(_registered())
"""By `training.algorithm`, in the order of the plan's list."""

STATEMENTS: Mapping[str, Statement] = MappingProxyType(_first_of_each_name())
"""Every analysis by name; of those that several algorithms share, the first one's words."""


def algorithm_of(name: str) -> Algorithm:
    """The algorithm with the plan's name for it."""
    if name not in ALGORITHMS:
        rule = "must name an algorithm"
        raise PlanError("training.algorithm", name, rule, closest(name, tuple(ALGORITHMS)))
    return ALGORITHMS[name]


def applicable(setting: Setting) -> dict[str, bool]:
    """The analyses that say something about this setting, with whether each is proved for it."""
    claims = algorithm_of(setting.algorithm).claims(setting)
    if not claims:
        rule, fix = "has no privacy analysis", 'Use "convex-pass", "split-noise" or "dp-sgd".'
        raise PlanError("training.algorithm", setting.algorithm, rule, fix)
    return {claim.name: claim.proved for claim in claims}


def calibrated_analysis(calibrate_to: str, setting: Setting) -> str:
    """The analysis that a plan's target is compared with: `privacy.calibrate_to` where it applies,
    else the first that is proved.
    """
    analyses = applicable(setting)
    return (
        calibrate_to
        if calibrate_to in analyses
        else next(name for name, proved in analyses.items() if proved)
    )


def counts_on_others(name: str) -> bool:
    """Whether the named analysis needs the noise of other silos."""
    return STATEMENTS[name].counts != "own"


def release_of(name: str, setting: Setting) -> Release:
    """What the named analysis composes for this setting; one of another algorithm may be set beside
    the algorithm's own.
    """
    own = {statement.name: statement for statement in algorithm_of(setting.algorithm).statements}
    return own.get(name, STATEMENTS[name]).release(setting)
