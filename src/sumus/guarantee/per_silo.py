"""Every analysis of a design for the records of every kind of silo, with all that samplers and
protocol cost paid for.
"""

from __future__ import annotations

import math
from dataclasses import replace

from sumus.accounting import Release, epsilon_of
from sumus.errors import GuaranteeError
from sumus.guarantee.algorithms import counts_on_others
from sumus.guarantee.claims import Analysis
from sumus.guarantee.design import NoiseDesign
from sumus.guarantee.layout import SiloDesign
from sumus.guarantee.words import in_units
from sumus.plan import TrainingPlan

__all__ = [
    "analyses_of",
    "certified_epsilon",
    "distinct_silos",
    "headline",
    "headlines",
    "kind_of",
    "participant_epsilon",
]


def analyses_of(design: NoiseDesign, silo: SiloDesign, *, known: int = 0) -> list[Analysis]:
    """What every analysis says about a record of one silo.

    Args:
        known: counted silos whose noise the adversary knows after all.
    """
    delta = design.plan.privacy.delta
    return [
        Analysis(
            name=claim.name,
            epsilon=certified_epsilon(design, claim.release()),
            delta=delta,
            proved=claim.proved,
            statement=in_units(design.plan, claim.statement),
        )
        for claim in design.mechanism.claims(silo, known=known)
    ]


def certified_epsilon(design: NoiseDesign, release: Release) -> float:
    """ε of a release with everything paid for; infinite where the noise, or the sampler's
    exactness, cannot carry a finite one.
    """
    privacy = design.plan.privacy
    try:
        return design.mechanism.inexactness().paid_for(
            lambda delta: epsilon_of(release, delta=delta, accountant=privacy.accountant),
            delta=privacy.delta,
            assumed=1.0 if privacy.epsilon is None else privacy.epsilon,
        )
    except GuaranteeError:
        return math.inf


def headline(analyses: list[Analysis], plan: TrainingPlan) -> Analysis:
    """The smallest proved ε, or that of the silo's own noise where the plan counts on nobody; an
    unproved one is never the headline.
    """
    alone = plan.privacy.calibrate_to == "local"
    return min(
        (
            analysis
            for analysis in analyses
            if analysis.proved and not (alone and counts_on_others(analysis.name))
        ),
        key=lambda analysis: analysis.epsilon,
    )


def headlines(design: NoiseDesign, *, known: int = 0) -> list[Analysis]:
    """The headline of every kind of silo."""
    return [
        headline(analyses_of(design, silo, known=known), design.plan)
        for silo in distinct_silos(design)
    ]


def participant_epsilon(design: NoiseDesign) -> float | None:
    """ε against one other silo, who sees every model and knows its own noise, where the plan counts
    on all of them; None elsewhere.

    Guarantee: as the headline's, with the noise of k − 1 counted silos: any one but the record's
        own is known. Of a person in several silos it is against one that has none of its rows, and
        where all silos may have some there is None.
    """
    privacy = design.plan.privacy
    everywhere = design.plan.protects_persons and 1 < privacy.silos_per_person >= len(design.silos)
    if (
        everywhere
        or design.plan.colluding > 0
        or design.resolved.contributors < 2
        or privacy.calibrate_to == "local"
    ):
        return None
    return max(each.epsilon for each in headlines(design, known=1))


def distinct_silos(design: NoiseDesign) -> list[SiloDesign]:
    """One silo of every kind: silos with the same public numbers have the same ε."""
    kinds: dict[SiloDesign, SiloDesign] = {}
    for silo in design.silos:
        kinds.setdefault(kind_of(silo), silo)
    return list(kinds.values())


def kind_of(silo: SiloDesign) -> SiloDesign:
    """The silo without what its ε does not depend on."""
    return replace(silo, name="", learning_rate=0.0, clip_norm=0.0, resolution=1, records=0)
