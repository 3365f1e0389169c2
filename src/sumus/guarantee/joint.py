"""The ε of several runs on the same records, composed instead of added up.

    joint_epsilon([PastRun(plan=…, silos=…, rounds=10), PastRun(plan=…, silos=…, rounds=20)],
    delta=2e-5)

Ten runs of ε = 1 add up to 10; composed they are nearer to 4. Composition needs to know what each
run released, so it works for runs whose plans are at hand, and it assumes that no plan was chosen
by looking at what an earlier run released (simple addition does not).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from sumus.accounting import Release, tightest
from sumus.errors import GuaranteeError
from sumus.guarantee.algorithms import calibrated_analysis, release_of
from sumus.guarantee.claims import Setting
from sumus.guarantee.counts import count_release
from sumus.guarantee.design import NoiseDesign
from sumus.guarantee.exactness import Inexactness
from sumus.guarantee.metrics import inexactness_of_counts
from sumus.plan import ResolvedPlan, TrainingPlan

__all__ = ["PastRun", "joint_epsilon"]


@final
@dataclass(frozen=True, kw_only=True)
class PastRun:
    """What one run released.

    Args:
        plan: as it ran, resolved and with its noise.
        silos: names, in the order of the plan.
        rounds: models released so far; at most the plan's.
        measurements: secure sums of test counts released so far.
        numbers: of those rounds (from 1); omitted: the first ones, where none was lost.
    """

    plan: TrainingPlan
    silos: tuple[str, ...]
    rounds: int
    measurements: int = 0
    numbers: tuple[int, ...] | None = None


def joint_epsilon(runs: Sequence[PastRun], *, delta: float) -> float:
    """ε at δ of everything that the runs released together, for any one record in any silo of each.

        ε = Σ 2·ρ_i + ε_declared((δ − Σ (1 + e^ε)·τ_i)·e^(−Σ ρ_i))

    with ρ_i and τ_i the log-ratio and the mass by which run i's drawn noise may differ from its
    declared law, and ε_declared of the runs' declared releases composed with each other.

    Guarantee: an upper bound if the plans do not depend on what was released, whichever silo of
        each run the record was in: every run is taken with the most sensitive, most often sampled
        and least noisy of its silos, and a record that trained one model may have measured another,
        so it is taken to have done both. Refuses what is not proved.
    """
    units = {run.plan.privacy.unit for run in runs}
    if len(units) > 1:
        raise GuaranteeError(
            "runs that protect records, persons and silos cannot be composed with each other. "
            "Account for each unit by itself."
        )
    designs = [_shortened(run) for run in runs if run.rounds]
    measured = [run for run in runs if run.measurements]
    if not designs and not measured:
        return 0.0
    counts = [count_release(run.plan, measurements=run.measurements) for run in measured]
    composed = Release(
        tuple(
            queries for release in [*map(_proved_release, designs), *counts] for queries in release
        )
    )
    accountant = tightest(composed)
    drawn = sum((design.mechanism.inexactness() for design in designs), Inexactness())
    drawn = sum((inexactness_of_counts(run.plan, run.measurements) for run in measured), drawn)
    return drawn.paid_for(lambda left: accountant.epsilon(composed, delta=left), delta=delta)


def _shortened(run: PastRun) -> NoiseDesign:
    """The design of a run that stopped after some of its rounds."""
    if not 0 <= run.rounds <= run.plan.federation.rounds:
        raise GuaranteeError(
            f"a run of {run.plan.federation.rounds} rounds cannot have released {run.rounds}. "
            "Check its ledger entries."
        )
    design = NoiseDesign.of(ResolvedPlan.of(run.plan, run.silos))
    numbers = range(1, run.rounds + 1) if run.numbers is None else run.numbers
    every = range(1, run.plan.federation.rounds + 1)
    if len(set(numbers)) != run.rounds or any(number not in every for number in numbers):
        raise GuaranteeError(
            f"{run.rounds} rounds cannot have the numbers {sorted(numbers)}. Check its ledger "
            "entries."
        )
    return design.after([number - 1 for number in numbers])


def _proved_release(design: NoiseDesign) -> Release:
    """What the plan's own proved analysis composes, for its worst silo."""
    setting, wanted = _worst(design), design.plan.privacy.calibrate_to
    return release_of(
        calibrated_analysis("local" if wanted == "local" else "proved", setting), setting
    )


def _worst(design: NoiseDesign) -> Setting:
    """A setting that dominates that of every silo: more influence, more often, more steps, less
    noise.
    """
    settings = [design.setting(silo) for silo in design.silos]
    others = [each.other_shares for each in settings if each.other_shares is not None]
    return replace(
        settings[0],
        local_steps=max(each.local_steps for each in settings),
        sampling_rate=max(each.sampling_rate for each in settings),
        l2_grid=max(each.l2_grid for each in settings),
        overfull_rate=max(each.overfull_rate for each in settings),
        own_share=min(each.own_share for each in settings),
        other_shares=min(others) if others else None,
    )
