"""The guarantee of a run in words that somebody without a degree in privacy can check, question and
sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sumus.books import RoundEntry, RunFolder, rounded_up
from sumus.guarantee import Account, against_participant
from sumus.report.assumptions import assumptions_of
from sumus.report.meaning import Attack, attacks_on, meaning_of

__all__ = ["Statement", "brief_of", "in_the_clear", "statement_of"]

_ACCOUNTANTS = {
    "pld": "privacy-loss distributions",
    "renyi": "Rényi divergences (conversion of Canonne, Kamath and Steinke)",
    "renyi-mironov": "Rényi divergences (conversion of Mironov)",
}


@final
@dataclass(frozen=True, kw_only=True)
class Statement:
    """What a run guarantees, in words.

    Args:
        verdict: "proved", "not proved", "void" or "none".
        headline: the bound.
        terms: what must stand beside every ε: (name, value).
        brief: the same in one line, for the caption of a chart or the cell of a table.
        meaning: paragraphs.
        attacks: what any test for one unit can find; none where nothing is guaranteed.
        gaps: what is not protected.
        assumptions: what must hold for the bound to hold: (name, value).
    """

    verdict: str
    headline: str
    terms: tuple[tuple[str, str], ...]
    brief: str
    meaning: tuple[str, ...]
    gaps: tuple[str, ...]
    attacks: tuple[Attack, ...] = ()
    assumptions: tuple[tuple[str, str], ...] = ()


def statement_of(run: RunFolder) -> Statement:
    """The statement for a run as it stands on the disk."""
    guarantee, rounds = run.guarantee, run.rounds()
    if guarantee is None:
        return _without_guarantee(run)
    if run.void is not None:
        return _void(run, guarantee, rounds, run.void)
    spent = rounds[-1].epsilon_spent if rounds else 0.0
    verdict = "proved" if guarantee.proved else "not proved"
    headline = _bound(guarantee)
    analysis = next(
        (
            f"{analysis.name}: {analysis.statement}"
            for analysis in guarantee.analyses
            if analysis.name == guarantee.analysis
        ),
        guarantee.analysis,
    )
    terms: tuple[tuple[str, str], ...] = (
        ("Protects", guarantee.neighbours),
        ("Counts on", guarantee.trust),
        ("Analysis", analysis),
        ("Proved", {"proved": "yes, for the algorithm that ran", "not proved": "NO"}[verdict]),
        ("Accountant", _ACCOUNTANTS.get(guarantee.accountant, guarantee.accountant)),
        ("Releases", guarantee.releases),
        (
            "Spent so far",
            f"ε\u00a0≤\u00a0{rounded_up(spent)} after {len(rounds)} of "
            f"{run.plan.federation.rounds} rounds",
        ),
        (
            "Noise",
            f"{guarantee.noise_multiplier:.4g} {guarantee.noise_in} in the sum, "
            f"{guarantee.local_noise_multiplier:.4g} from each silo",
        ),
    )
    if guarantee.delta_times_units is not None:
        whose = guarantee.protected_kind or (
            "silos" if guarantee.unit == "silo" else f"training {guarantee.unit}s"
        )
        terms += (
            (
                "δ times n",
                f"{guarantee.delta_times_units:.2g} of {guarantee.protected_units:,} {whose}",
            ),
        )
    runs = "" if guarantee.tuning_epsilon is None else ", with the accounted tuning runs"
    if guarantee.participant_epsilon is not None:
        against = f"{against_participant(guarantee.unit)}{runs}"
        terms += (
            ("Participant", f"ε\u00a0≤\u00a0{rounded_up(guarantee.participant_epsilon)} {against}"),
        )
    if guarantee.metrics_epsilon is not None:
        bound = (
            f"ε\u00a0≤\u00a0{rounded_up(guarantee.metrics_epsilon)} at the same δ for one test "
            f"record, add or remove{runs}"
        )
        if guarantee.metrics_trust not in (None, guarantee.trust):
            bound += f"; counts on {guarantee.metrics_trust}"
        terms += (("Metrics", f"secure sums of their own: {bound}"),)
    return Statement(
        verdict=verdict,
        headline=headline,
        terms=terms,
        brief=brief_of(guarantee),
        meaning=meaning_of(run, guarantee, verdict),
        gaps=_gaps(run, guarantee, rounds),
        attacks=attacks_on(guarantee),
        assumptions=assumptions_of(run),
    )


def brief_of(guarantee: Account) -> str:
    """What stands beside an ε, in one line."""
    status = "proved" if guarantee.proved else "NOT PROVED"
    return (
        f"{guarantee.neighbours.split(';')[0]}; counts on {guarantee.trust}; analysis "
        f"{guarantee.analysis}, {status}"
    )


def _bound(guarantee: Account) -> str:
    return f"ε\u00a0≤\u00a0{rounded_up(guarantee.epsilon)} at δ\u00a0=\u00a0{guarantee.delta:g}"


def _void(run: RunFolder, guarantee: Account, rounds: list[RoundEntry], reason: str) -> Statement:
    """A run that does not keep what its plan promises: no ε stands beside it but in the words that
    say so.
    """
    done = f"{len(rounds)} of {run.plan.federation.rounds} rounds"
    promise = (
        f"{_bound(guarantee)} for {guarantee.neighbours}, counting on {guarantee.trust} "
        f"({guarantee.analysis})"
    )
    return Statement(
        verdict="void",
        headline="No privacy guarantee",
        terms=(
            ("Protects", "nothing, in this run"),
            ("Void because", reason),
            ("Spent so far", f"no bound holds, after {done}"),
            ("The plan otherwise", promise),
        ),
        brief=f"void for this run: {reason}",
        meaning=meaning_of(run, guarantee, "void"),
        gaps=(
            "Everything: what this run released may reveal any record that was used. Treat the "
            "model like the data.",
        ),
        assumptions=assumptions_of(run),
    )


def _without_guarantee(run: RunFolder) -> Statement:
    text = (
        "This run added no noise. What it released may reveal any record that was used; treat the "
        "model like the data."
    )
    return Statement(
        verdict="none",
        headline="No privacy guarantee",
        terms=(
            ("Protects", "nothing"),
            ("Analysis", f'none applies to "{run.plan.training.algorithm}"'),
        ),
        brief="no noise, no guarantee",
        meaning=(text,),
        gaps=("Everything: this run is for comparison only.",),
        assumptions=assumptions_of(run),
    )


def _gaps(run: RunFolder, guarantee: Account, rounds: list[RoundEntry]) -> tuple[str, ...]:
    one = "person" if guarantee.unit == "person" else "record"
    gaps = [
        f"What is true of the population whether or not one {one} is included: that is what "
        f"{'statistics are for' if run.plan.describes else 'the model is meant to learn'}."
    ]
    silos = run.plan.privacy.silos_per_person
    if guarantee.unit == "person":
        beyond = f"more than {silos} silos" if silos > 1 else "several silos"
        gaps.append(
            f"A person with rows in {beyond}: the bound is for {silos} of them at a time, whatever "
            "the number of rows there."
            if silos > 1
            else f"A person with rows in {beyond}: the bound is for each silo by itself, whatever "
            "the number of rows there (privacy.silos_per_person)."
        )
        gaps.append(
            "Facts about a whole organisation: which silos take part, how large they may be, how "
            "they differ from the others."
        )
    if guarantee.unit == "record":
        twice = rounded_up(2.0 * guarantee.epsilon)
        gaps.append(
            "A person with several records: two records together have twice the bound "
            f"(ε\u00a0≤\u00a0{twice}, and a larger δ), and so on."
        )
        gaps.append(
            "Facts about a whole organisation: which silos take part, how large they may be, how "
            "they differ from the others."
        )
    gaps.append("The plan itself: every number in it, and the names of the silos, are public.")
    if guarantee.analysis != "local":
        gaps.append(
            f"Parties worse than assumed. The bound counts on {guarantee.trust}; with fewer such "
            "silos there is less noise than counted."
        )
    if run.plan.noise.mechanism == "gaussian":
        gaps.append(
            "Rounding of floating-point numbers: continuous Gaussian noise is a simulation of an "
            "ideal, not what a silo may release."
        )
    gaps.append("The records against their own silo, and against whoever breaks into it.")
    if guarantee.tuning_epsilon is not None:
        gaps.append(
            "With the accounted tuning runs on the same records the bound is "
            f"ε\u00a0≤\u00a0{rounded_up(guarantee.tuning_epsilon)}."
        )
    else:
        gaps.append("Tuning runs on the same records, if there were any: they were not accounted.")
    gaps.append(
        "Other releases from the same data: what they spend adds up; “sumus ledger show” has the "
        "total."
    )
    if any(entry.metrics_are == "simulation-only" for entry in rounds):
        gaps.append(
            "Accuracy and loss on this page: they were measured in the clear (simulation only). Do "
            "not publish them for private data."
        )
    elif (run.summary or {}).get("baselines"):
        gaps.append(
            "The accuracies of training without privacy on this page: they were measured in the "
            "clear (simulation only)."
        )
    if any(entry.counts_are == "simulation-only" for entry in rounds):
        gaps.append(
            "Counts of clipped records, clamped coordinates and gradients that were not finite: "
            "exact, so for a simulation only."
        )
    return tuple(gaps)


def in_the_clear(fitted: bool) -> str:
    """What numbers without noise were measured on.

    Args:
        fitted: silos fit parameters of their own, to records that they train on.
    """
    beside = ", with what silos fitted to their training records" if fitted else ""
    rule = "simulation only, not covered by the guarantee."
    return f"Measured in the clear on test records{beside}: {rule}"
