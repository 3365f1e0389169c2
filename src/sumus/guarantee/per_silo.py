"""Every analysis of a design for the records of every kind of silo, with all that samplers and
protocol cost paid for.
"""

from __future__ import annotations

import math
from dataclasses import replace

from sumus.accounting import Release, epsilon_of
from sumus.errors import GuaranteeError
from sumus.guarantee.algorithms import counts_on_others
from sumus.guarantee.claims import Analysis, Claim
from sumus.guarantee.design import NoiseDesign
from sumus.guarantee.layout import SiloDesign
from sumus.guarantee.words import in_units
from sumus.plan import TrainingPlan

__all__ = [
    "analyses_of",
    "certified_epsilon",
    "distinct_silos",
    "headline",
    "headline_of",
    "headlines",
    "is_no_worse",
    "kind_of",
    "participant_epsilon",
]


def analyses_of(design: NoiseDesign, silo: SiloDesign, *, known: int = 0) -> list[Analysis]:
    """What every analysis says about a record of one silo.

    Args:
        known: counted silos whose noise the adversary knows after all.
    """
    return [
        _analysis(design, claim, claim.release())
        for claim in design.mechanism.claims(silo, known=known)
    ]


def _analysis(design: NoiseDesign, claim: Claim, release: Release) -> Analysis:
    return Analysis(
        name=claim.name,
        epsilon=certified_epsilon(design, release),
        delta=design.plan.privacy.delta,
        proved=claim.proved,
        statement=in_units(design.plan, claim.statement),
    )


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
    return min(
        (analysis for analysis in analyses if _may_be_headline(analysis, plan)),
        key=lambda analysis: analysis.epsilon,
    )


def _may_be_headline(analysis: Analysis | Claim, plan: TrainingPlan) -> bool:
    alone = plan.privacy.calibrate_to == "local"
    return analysis.proved and not (alone and counts_on_others(analysis.name))


def headline_of(design: NoiseDesign, silo: SiloDesign, *, known: int = 0) -> Analysis:
    """The headline of one silo, without the analyses that cannot be it.

    Guarantee: a proved analysis, whichever are left out. With loss distributions, which read noise,
        rates and counts alone, an analysis is left out if another has no less noise, no higher rate
        and no more queries.
    """
    plan = design.plan
    claims = [
        claim
        for claim in design.mechanism.claims(silo, known=known)
        if _may_be_headline(claim, plan)
    ]
    releases = [claim.release() for claim in claims]
    if plan.privacy.accountant == "pld":
        least = [
            place
            for place, release in enumerate(releases)
            if not any(
                is_no_worse(other, release) and (before < place or not is_no_worse(release, other))
                for before, other in enumerate(releases)
                if before != place
            )
        ]
    else:
        least = list(range(len(claims)))
    return headline([_analysis(design, claims[place], releases[place]) for place in least], plan)


def is_no_worse(release: Release, other: Release) -> bool:
    """Whether every query of a release has no less noise, no higher rate of sampling and of
    doubling than every query of the other, and there are no more of them.
    """
    ours, theirs = tuple(release), tuple(other)
    if any(each.gaussian_multiplier is None or each.parts != 1 for each in (*ours, *theirs)):
        return False
    return (
        min(each.dominating_multiplier for each in ours)
        >= max(each.dominating_multiplier for each in theirs)
        and max(each.sampling_rate for each in ours) <= min(each.sampling_rate for each in theirs)
        and max(each.doubling_rate for each in ours) <= min(each.doubling_rate for each in theirs)
        and sum(each.count for each in ours) <= sum(each.count for each in theirs)
    )


def headlines(design: NoiseDesign, *, known: int = 0) -> list[Analysis]:
    """The headline of every kind of silo."""
    return [headline_of(design, silo, known=known) for silo in distinct_silos(design)]


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
