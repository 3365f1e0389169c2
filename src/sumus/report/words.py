"""The guarantee of a run in words that somebody without a degree in privacy can check, question and
sign.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from sumus.books import RoundEntry, RunFolder, rounded_up, without_bound
from sumus.guarantee import Account, against_participant, records_in_words

__all__ = ["Statement", "in_the_clear", "most_detected", "statement_of"]

_FALSE_ALARMS = 0.05
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
        gaps: what is not protected.
    """

    verdict: str
    headline: str
    terms: tuple[tuple[str, str], ...]
    brief: str
    meaning: tuple[str, ...]
    gaps: tuple[str, ...]


def most_detected(epsilon: float, delta: float, *, false_alarms: float = _FALSE_ALARMS) -> float:
    """The largest share of true cases that any test finds at this share of false alarms.

        power ≤ min(1, e^ε·α + δ, 1 − e^(−ε)·(1 − δ − α))

    Guarantee: holds for every test under (ε, δ)-differential privacy (Wasserman and Zhou 2010,
        arXiv:0811.2501; Kairouz, Oh and Viswanath 2015, arXiv:1311.0776).
    """
    if math.isinf(epsilon):
        return 1.0
    bounds = (
        math.exp(min(epsilon, 700.0)) * false_alarms + delta,
        1.0 - math.exp(-epsilon) * (1.0 - delta - false_alarms),
    )
    return min(1.0, max(false_alarms, min(bounds)))


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
    status = {"proved": "proved", "not proved": "NOT PROVED"}[verdict]
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
    if guarantee.meaning is not None:
        terms += (("Means", str(guarantee.meaning)),)
    runs = "" if guarantee.tuning_epsilon is None else ", with the accounted tuning runs"
    if guarantee.participant_epsilon is not None:
        against = f"{against_participant(guarantee.unit)}{runs}"
        terms += (
            ("Participant", f"ε\u00a0≤\u00a0{rounded_up(guarantee.participant_epsilon)} {against}"),
        )
    terms += tuple(("Caution", line) for line in guarantee.cautions)
    if guarantee.metrics_epsilon is not None:
        bound = (
            f"ε\u00a0≤\u00a0{rounded_up(guarantee.metrics_epsilon)} at the same δ for one test "
            f"record, add or remove{runs}"
        )
        if guarantee.metrics_trust not in (None, guarantee.trust):
            bound += f"; counts on {guarantee.metrics_trust}"
        terms += (("Metrics", f"secure sums of their own: {bound}"),)
    terms += _records(run, guarantee)
    brief = (
        f"{guarantee.neighbours}; counts on {guarantee.trust}; analysis {guarantee.analysis}, "
        f"{status}"
    )
    return Statement(
        verdict=verdict,
        headline=headline,
        terms=terms,
        brief=brief,
        meaning=_meaning(run, guarantee, verdict),
        gaps=_gaps(run, guarantee, rounds),
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
            *_started(run),
        ),
        brief=f"void for this run: {reason}",
        meaning=_meaning(run, guarantee, "void"),
        gaps=(
            "Everything: what this run released may reveal any record that was used. Treat the "
            "model like the data.",
        ),
    )


def _records(run: RunFolder, guarantee: Account) -> tuple[tuple[str, str], ...]:
    """What the guarantee is about, what was assumed about it, and what else was released from it:
    whoever signs must see it.
    """
    known = records_in_words(guarantee.records_per_silo, guarantee.columns, guarantee.unit)
    terms = tuple((name.capitalize(), value) for name, value in known)
    doubts = [line.startswith("warning: ") for line in guarantee.assumptions]
    shown = [line.removeprefix("warning: ") for line in guarantee.assumptions]
    terms += tuple(
        ("Warning" if doubt else "Assumed", line) for doubt, line in zip(doubts, shown, strict=True)
    )
    terms += _started(run)
    total = (run.summary or {}).get("ledger")
    if isinstance(total, dict):
        terms += (("All runs", _spent_by_all_runs(total)),)
    return terms


def _started(run: RunFolder) -> tuple[tuple[str, str], ...]:
    """The released model that the run began with."""
    return () if run.start is None else (("Starts from", str(run.start)),)


def _spent_by_all_runs(total: Mapping[str, Any]) -> str:
    epsilon, runs = float(total["epsilon"]), int(total["runs"])
    after = f"on {total['dataset']} after {runs} run{'' if runs == 1 else 's'}, this one included"
    if math.isinf(epsilon):
        unit = str(total["unit"])
        return f"no bound for one {unit} {after}: {without_bound(unit)}"
    proved = "" if total["proved"] else ", NOT PROVED in part"
    return (
        f"ε\u00a0≤\u00a0{rounded_up(epsilon)} at δ\u00a0=\u00a0{float(total['delta']):.3g} "
        f"{after}, by simple addition{proved}"
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
            *_started(run),
        ),
        brief="no noise, no guarantee",
        meaning=(text,),
        gaps=("Everything: this run is for comparison only.",),
    )


def _meaning(run: RunFolder, guarantee: Account, verdict: str) -> tuple[str, ...]:
    epsilon, delta = guarantee.epsilon, guarantee.delta
    whose, was, subject = {
        "record": ("any single record", "was used", "one particular record"),
        "person": ("all rows of any single person", "were used", "one particular person"),
    }.get(
        guarantee.unit,
        (
            "all records of any single silo together",
            "were used",
            "the records of one particular silo",
        ),
    )
    factor = rounded_up(math.exp(min(epsilon, 700.0)))
    first = (
        f"Whoever sees everything that this run releases ({guarantee.releases}, and every "
        f"{'number' if run.plan.describes else 'model'} computed from them) {_strength(epsilon)} "
        f"whether {whose} {was}. Whatever they conclude, the probability of that conclusion is at "
        f"most {factor} times what it would be "
        "otherwise (e to the power ε), apart from an additional probability of at most "
        f"{_one_in(delta)} (δ)."
    )
    second = _example(guarantee, subject)
    third = f"This counts on {guarantee.trust}."
    if "honest-but-curious" in guarantee.trust:
        third += (
            " Honest-but-curious means that the server follows the protocol but may keep and study "
            "everything it receives."
        )
    warning = {
        "proved": (
            "The analysis behind the bound is proved for the algorithm that ran, integer rounding "
            "and drawn noise included."
        ),
        "not proved": (
            "The analysis behind the bound is NOT PROVED for the algorithm that ran. Do not rely "
            "on it for a release."
        ),
        "void": (
            f"THE GUARANTEE DOES NOT HOLD FOR THIS RUN: {run.void}. The following is what the plan "
            "would guarantee otherwise."
        ),
    }[verdict]
    return (
        (warning, first, second, third) if verdict != "proved" else (first, second, third, warning)
    )


def _example(guarantee: Account, subject: str) -> str:
    """What a test for one unit can find: from the whole curve, or from ε and δ of a journal that has
    none.
    """
    meaning = guarantee.meaning
    if meaning is None:
        found, alarms = [most_detected(guarantee.epsilon, guarantee.delta)], [_FALSE_ALARMS]
    else:
        found, alarms = list(meaning.true_positive_rates), list(meaning.false_positive_rates)
    rates = " / ".join(f"{100.0 * alarm:g}" for alarm in alarms) + "\u00a0%"
    hits = " / ".join(rounded_up(100.0 * hit) for hit in found) + "\u00a0%"
    example = (
        f"For example, a test for {subject} that raises a false alarm in {rates} of all cases "
        f"finds a true case at most {hits} of the time. Blind guessing finds {rates}; no "
        "protection allows 100\u00a0%."
    )
    if meaning is None:
        return example
    return (
        f"{example} At no rate of false alarms does it gain more than "
        f"{rounded_up(100.0 * meaning.advantage)}\u00a0% over guessing."
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


def _strength(epsilon: float) -> str:
    """How strong a bound is, in a verb: nobody should sign "can hardly tell" for an ε at which a
    good guess is nearly certain.
    """
    if epsilon <= 1.0:
        return "can hardly tell"
    if epsilon <= 3.0:
        return "can tell only with limited confidence"
    return (
        "may in the worst case tell with some confidence"
        if epsilon <= 6.0
        else "may in the worst case tell almost for certain"
    )


def _one_in(delta: float) -> str:
    return f"1 in {1.0 / delta:,.0f}" if 0.0 < delta < 0.5 else f"{delta:g}"


def in_the_clear(fitted: bool) -> str:
    """What numbers without noise were measured on.

    Args:
        fitted: silos fit parameters of their own, to records that they train on.
    """
    beside = ", with what silos fitted to their training records" if fitted else ""
    rule = "simulation only, not covered by the guarantee."
    return f"Measured in the clear on test records{beside}: {rule}"
