"""The guarantee of a plan: ε with unit, neighbour relation, trust assumption, analysis, and whether
it is proved for what runs.

account = sumus.account(plan)
account.epsilon, account.analysis, account.proved
print(account)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, final

import numpy as np

from sumus.accounting import ORDERS, renyi_values
from sumus.errors import GuaranteeError, PlanError
from sumus.guarantee.algorithms import STATEMENTS, release_of
from sumus.guarantee.calibrate import calibrated
from sumus.guarantee.claims import Analysis
from sumus.guarantee.delta import delta_caution, protected_units, refuse_large_delta, units_in_words
from sumus.guarantee.design import NoiseDesign
from sumus.guarantee.exactness import Inexactness
from sumus.guarantee.meaning import Meaning, meaning_of, worst_of
from sumus.guarantee.mechanisms import draws_are_exact
from sumus.guarantee.metrics import (
    least_metrics_noise,
    measurements_until,
    metrics_epsilon,
)
from sumus.guarantee.notebook import as_table, labelled
from sumus.guarantee.per_silo import (
    analyses_of,
    distinct_silos,
    headline,
    headline_of,
    headlines,
    kind_of,
    participant_epsilon,
)
from sumus.guarantee.search import is_one_run, searched_epsilon
from sumus.guarantee.trust import collusion_caution, trust_of
from sumus.guarantee.words import against_participant, in_units, neighbours, records_in_words
from sumus.plan import TrainingPlan, noise_ratios

__all__ = [
    "Account",
    "account",
    "account_of",
    "certify",
    "metrics_epsilon",
    "search_epsilon",
    "spent",
]


@final
@dataclass(frozen=True, kw_only=True)
class Account:
    """What a plan guarantees.

    Args:
        epsilon: of the best proved analysis, for the worst silo.
        analyses: every analysis that says something about the plan, proved or not.
        epsilon_per_silo: the same headline analysis for each silo, where silos differ.
        target_epsilon: what the plan asks for, if it does.
        metrics_epsilon: for one *test* record, at the same δ, where metrics leave the silos through
            the secure sum, of all tuning runs together where the plan accounts for them; the rest
            of the account is about training records.
        metrics_trust: whom `metrics_epsilon` counts on, whatever the headline analysis does.
        unit: what is protected: one "record", one "person" with all its rows, or one "silo".
        records_per_silo: public counts of training records (or persons), or bounds on them; empty
            where the account is not about records.
        columns: of a table, those that make features.
        assumptions: what is assumed to be public about the records, one line each; every front end
            shows them.
        participant_epsilon: for any record, training or test, against one other silo, which knows
            its own noise, where `federation.colluding` is 0; of all tuning runs together where the
            plan accounts for them.
        protected_units: n, records of all silos by the public bounds, or silos where a silo is the
            unit.
        protected_kind: what n counts: "training records" (or persons), "test records" where these
            are more and are measured securely, or "silos".
        delta_times_units: δ·n, how many of them δ allows to be exposed whole.
        cautions: what whoever relies on the account should heed.
        meaning: what any membership attack can reach, for the worst silo, by the headline analysis
            of one run.
    """

    epsilon: float
    delta: float
    proved: bool
    analysis: str
    accountant: str
    noise_multiplier: float
    local_noise_multiplier: float
    unit: str
    neighbours: str
    trust: str
    releases: str
    analyses: tuple[Analysis, ...]
    epsilon_per_silo: dict[str, float]
    target_epsilon: float | None
    tuning_epsilon: float | None
    metrics_epsilon: float | None
    plan_hash: str
    records_per_silo: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    metrics_trust: str | None = None
    participant_epsilon: float | None = None
    protected_units: int | None = None
    protected_kind: str | None = None
    delta_times_units: float | None = None
    cautions: tuple[str, ...] = ()
    meaning: Meaning | None = None

    @property
    def noise_in(self) -> str:
        """The unit of the noise multiplier, in words."""
        first = self.analyses[0].name if self.analyses else self.analysis
        return STATEMENTS[first].noise_in if first in STATEMENTS else "clip norms"

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"ε ≤ {_round_up(self.epsilon)} at δ = {self.delta:g}".ljust(34)
            + f"{'proved' if self.proved else 'NOT PROVED'} ({self.analysis})",
            f"  protects     {self.neighbours}",
            f"  counts on    {self.trust}",
            f"  releases     {self.releases}",
            f"  accountant   {_ACCOUNTANT_NAMES[self.accountant]}",
            f"  noise        {self.noise_multiplier:.4g} {self.noise_in} in the sum, "
            f"{self.local_noise_multiplier:.4g} per silo",
        ]
        if self.meaning is not None:
            lines.append(f"  means        {self.meaning}")
        if self.delta_times_units is not None:
            lines.append(
                f"  δ times n    {self.delta_times_units:.2g} of {self.protected_units:,} "
                f"{self.protected_kind}"
            )
        runs = "" if self.tuning_epsilon is None else ", with the accounted tuning runs"
        if self.participant_epsilon is not None:
            against = f"{against_participant(self.unit)}{runs}"
            lines.append(f"  participant  ε ≤ {_round_up(self.participant_epsilon)} {against}")
        if self.metrics_epsilon is not None:
            whom = (
                ""
                if self.metrics_trust in (None, self.trust)
                else f"; counts on {self.metrics_trust}"
            )
            tested = "person" if self.unit == "person" else "record"
            whose = f"for one test {tested}, add or remove{runs}{whom}"
            lines.append(
                f"  metrics      ε ≤ {_round_up(self.metrics_epsilon)} at δ = {self.delta:g} "
                f"{whose}"
            )
        for each in self.analyses:
            if each.name != self.analysis:
                mark = (
                    ""
                    if each.proved
                    else "  (paper's theorem 4.5, not proved for several local steps)"
                )
                lines.append(
                    f"  for comparison: {STATEMENTS[each.name].brief} ε ≤ "
                    f"{_round_up(each.epsilon)}{mark}"
                )
        if self.tuning_epsilon is not None:
            lines.append(f"  with the accounted tuning runs: ε ≤ {_round_up(self.tuning_epsilon)}")
        lines += [
            f"  {name:12} {value}"
            for name, value in records_in_words(self.records_per_silo, self.columns, self.unit)
        ]
        for line in self.assumptions:
            doubt = line.startswith("warning: ")
            lines.append(
                f"  {'warning' if doubt else 'assumed'}      {line.removeprefix('warning: ')}"
            )
        lines += [f"  caution      {line}" for line in self.cautions]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        title, *lines = str(self).splitlines()
        return as_table(" ".join(title.split()), labelled(lines))


START_IS_ACCOUNTED = (
    "the starting model is public or its ε is accounted elsewhere: a run on the same records is on "
    "their ledger, which adds up"
)
"""Of a plan with `training.start_from`: what follows from a released model costs nothing more."""
ONE_IDENTIFIER = (
    "a person has one identifier in all silos, and so trains or tests in all of them, never both"
)
"""Of persons in several silos: the ε of the model and that of the counts speak of different people."""
_ACCOUNTANT_NAMES = {
    "pld": "privacy-loss distribution",
    "renyi": "Rényi, integer orders, conversion of Canonne, Kamath and Steinke",
    "renyi-mironov": "Rényi, integer orders, conversion of Mironov",
}


def account(plan: TrainingPlan) -> Account:
    """ε of a plan, every analysis side by side; calibrates the noise first if the plan gives only a
    target.

    Guarantee: `epsilon` is an upper bound, at `delta`, for every record, person or silo, of
        everything released in all rounds: float rounding, integer rounding, the sampler's distance
        from its declared law and overflowing bins are included. Refuses a δ of one over the records
        or more.
    """
    design = calibrated(plan)
    refuse_large_delta(design.plan)
    return account_of(design)


def certify(design: NoiseDesign) -> Account:
    """The account of a design about to be run; refuses one that exceeds the plan's own target.

    Guarantee: returns only if the headline ε is proved and at most `privacy.epsilon` (unless the
        plan calibrates to what is not proved), the ε of secure metrics for test records is at most
        that too, and δ is below one over the records it speaks of. The target is that of one run,
        for both.
    """
    refuse_large_delta(design.plan)
    made = account_of(design)
    target = design.plan.privacy.epsilon
    if (
        target is not None
        and design.plan.privacy.calibrate_to != "per-step"
        and made.epsilon > target
    ):
        fix = "Remove noise.noise_multiplier to calibrate it, or raise privacy.epsilon."
        raise GuaranteeError(
            f"privacy.epsilon = {target:g} is not met: the plan's noise gives ε ≤ "
            f"{_round_up(made.epsilon)}. {fix}"
        )
    measured = metrics_epsilon(design.plan) if made.metrics_epsilon is not None else 0.0
    if target is not None and measured > target:
        rule = (
            f"is too little for privacy.epsilon = {target:g}: the metrics cost test records ε ≤ "
            f"{_round_up(measured)}"
        )
        fix = (
            f"Use {_round_up(least_metrics_noise(design.plan))}, or omit it to have it calibrated."
        )
        raise GuaranteeError(
            f"evaluation.noise_multiplier = {design.plan.evaluation.noise_multiplier:g} {rule}. "
            f"{fix}"
        )
    return made


def account_of(design: NoiseDesign) -> Account:
    """The account of a design with known noise, of a run that is over too: a large δ is cautioned
    about here and refused elsewhere.
    """
    plan = design.plan
    searched, measured = plan.privacy.tuning_runs is not None, plan.evaluation.metrics == "secure"
    if not design.resolved.rules.private:
        raise GuaranteeError(
            f'training.algorithm "{plan.training.algorithm}" adds no noise: there is no guarantee. Use "convex-pass", '
            '"split-noise" or "dp-sgd".'
        )
    kinds = distinct_silos(design)
    differing = kinds if len(kinds) > 1 else ()
    epsilons = {kind_of(silo): headline_of(design, silo).epsilon for silo in differing}
    worst = max(differing, key=lambda silo: epsilons[kind_of(silo)]) if differing else kinds[0]
    analyses = analyses_of(design, worst)
    head = headline(analyses, plan)
    if not math.isfinite(head.epsilon):
        raise GuaranteeError(
            f"no finite ε can be certified at δ = {plan.privacy.delta:g} with so little noise. Add "
            "noise."
        )
    units = protected_units(plan)
    return Account(
        epsilon=head.epsilon,
        delta=plan.privacy.delta,
        # floating-point draws carry no guarantee
        proved=head.proved and draws_are_exact(plan),
        analysis=head.name,
        accountant=plan.privacy.accountant,
        noise_multiplier=design.noise_multiplier,
        local_noise_multiplier=design.mechanism.local_multiplier,
        unit=plan.privacy.unit,
        neighbours=neighbours(plan),
        trust=trust_of(plan, head.name),
        releases=_releases(plan),
        analyses=tuple(analyses),
        epsilon_per_silo={silo.name: epsilons[kind_of(silo)] for silo in design.silos if differing},
        target_epsilon=plan.privacy.epsilon,
        tuning_epsilon=search_epsilon([design]) if searched else None,
        metrics_epsilon=metrics_epsilon(plan, search=searched) if measured else None,
        metrics_trust=trust_of(plan, "counts") if measured else None,
        participant_epsilon=_participant_epsilon(design),
        protected_units=units,
        protected_kind=None if units is None else units_in_words(plan),
        delta_times_units=None if units is None else plan.privacy.delta * units,
        cautions=tuple(
            line for line in (delta_caution(plan), collusion_caution(plan)) if line is not None
        ),
        meaning=_meaning(design, head.name),
        plan_hash=plan.hash,
        records_per_silo=() if design.facts is None else design.facts.records_per_silo,
        columns=() if design.facts is None else design.facts.columns,
        assumptions=_assumptions(design),
    )


def _assumptions(design: NoiseDesign) -> tuple[str, ...]:
    known = () if design.facts is None else design.facts.assumptions
    plan = design.plan
    if plan.protects_persons and plan.privacy.silos_per_person > 1:
        known = (*known, ONE_IDENTIFIER)
    return known if plan.training.start_from is None else (*known, START_IS_ACCOUNTED)


def _meaning(design: NoiseDesign, analysis: str) -> Meaning:
    """What one analysis of a design means for the units of every silo."""
    drawn, accountant = design.mechanism.inexactness(), design.plan.privacy.accountant
    return worst_of(
        [
            meaning_of(claim.release(), accountant=accountant, drawn=drawn)
            for silo in distinct_silos(design)
            for claim in design.mechanism.claims(silo)
            if claim.name == analysis
        ]
    )


def spent(design: NoiseDesign, rounds: int | Sequence[int]) -> float:
    """ε of the headline analysis, for the worst silo, after some rounds.

    Args:
        rounds: how many, from the first one on; or the numbers (from 0) of those that were
            released, where some may be lost.
    """
    numbers = range(rounds) if isinstance(rounds, int) else rounds
    if not numbers:
        return 0.0
    return max(each.epsilon for each in headlines(design.after(numbers)))


def _participant_epsilon(design: NoiseDesign) -> float | None:
    """ε against one other silo of all that the plan accounts for: the model, the metrics, and the
    search for either.
    """
    training, plan = participant_epsilon(design), design.plan
    if training is None:
        return None
    searched = plan.privacy.tuning_runs is not None
    tested = (
        metrics_epsilon(plan, search=searched, known=1)
        if plan.evaluation.metrics == "secure"
        else 0.0
    )
    return max(search_epsilon([design], known=1) if searched else training, tested)


def search_epsilon(candidates: Sequence[NoiseDesign], *, known: int = 0) -> float:
    """ε of releasing the best of a random number of runs (`privacy.tuning_runs`), each of any one
    of the candidates.

    Guarantee: upper bound for the training records of every silo: the Rényi curve that is charged
        lies above that of every silo under every candidate, at every order. One run (`tuning_runs`
        = 1) selects nothing, and its candidate is drawn without a look at the records: it costs
        what the dearest candidate costs.

    Args:
        known: counted silos whose noise the adversary knows after all.
    """
    dearest, curves, drawn = 0.0, [], Inexactness()
    for design in candidates:
        if not design.mechanism.composes_in_searches:
            rule = f"cannot be accounted for {design.plan.noise.mechanism}"
            raise PlanError(
                "privacy.tuning_runs", design.plan.privacy.tuning_runs, rule, "Remove the key."
            )
        own = design.mechanism.inexactness()
        drawn = drawn.or_worse(own)
        for silo in distinct_silos(design):
            head = headline_of(design, silo, known=known)
            dearest = max(dearest, head.epsilon)
            curves.append(
                renyi_values(release_of(head.name, design.setting(silo, known=known)), ORDERS)
            )
    privacy = candidates[0].plan.privacy
    return (
        dearest if is_one_run(privacy) else searched_epsilon(np.max(curves, axis=0), drawn, privacy)
    )


def _releases(plan: TrainingPlan) -> str:
    rounds = plan.federation.rounds
    sums = "1 sum, in one round" if rounds == 1 else f"{rounds} sums, one per round"
    training, ratios = plan.training, noise_ratios(plan)
    if ratios:
        sums += f" with noise of its own, {min(ratios):.4g} to {max(ratios):.4g} times the plan's"
    if training.local_parameters is not None:
        sums += (
            f" ({training.local_parameters}: {training.local_dimension} numbers stay with each "
            "silo, begun anew every round)"
        )
    if plan.evaluation.metrics != "secure":
        return sums
    count = measurements_until(plan, plan.federation.rounds)
    return (
        f"{sums}; {in_units(plan, 'counts of test records')} for "
        f"{'the last model' if count == 1 else f'{count} of the models'}"
    )


def _round_up(value: float) -> str:
    """Four significant digits, never rounded down: a printed bound must still be one."""
    if not math.isfinite(value) or value == 0.0:
        return f"{value:g}"
    unit = Fraction(10) ** (math.floor(math.log10(abs(value))) - 3)
    return f"{float(math.ceil(Fraction(value) / unit) * unit):.4g}"
