"""Facts of a run at a glance: the figures everybody asks for first, the best and worst silos, and
what an engineer looks at when something seems wrong.
"""

from __future__ import annotations

import json
import statistics

from sumus.books import RoundEntry, RunFolder
from sumus.report import scales
from sumus.tasks import CONFIDENCE, Measure

__all__ = ["class_names", "extremes_of", "health_of", "tiles_of", "told_as", "value_of"]

_EXACT = "exact: simulation only"  # no guarantee covers an exact count


def tiles_of(run: RunFolder, rounds: list[RoundEntry]) -> list[tuple[str, str, str]]:
    """The figures everybody asks for first: (name, value, remark)."""
    seconds = sum(sum(entry.seconds.values()) for entry in rounds)
    traffic = sum(entry.bytes_up + entry.bytes_down for entry in rounds)
    planned = run.plan.federation.silos
    silos = len(run.silos) if run.silos or planned is None else planned
    tiles = []
    measured = next((entry for entry in reversed(rounds) if entry.metrics), None)
    if measured is not None:
        last = run.summary is not None and measured.round == rounds[-1].round
        model = "the released model" if last else f"the model of round {measured.round}"
        how = (
            f"{CONFIDENCE}, noisy count"
            if measured.metrics_are == "secure"
            else measured.metrics_are
        )
        names = class_names(run)
        tiles += [
            (measure.among(names).title, value_of(measure, measured), f"of {model}, {how}")
            for measure in _first_measures(run, measured)
        ]
    tiles.append(("Rounds", f"{len(rounds)}", f"of {run.plan.federation.rounds} planned"))
    tiles.append(
        (
            "Silos",
            f"{silos}",
            f"{run.plan.noise_contributors} counted for noise"
            if run.plan.federation.silos
            else "from the data",
        )
    )
    tiles.append(
        (
            "Traffic",
            scales.as_bytes(traffic),
            f"{scales.as_bytes(traffic / max(silos, 1))} per silo",
        )
    )
    tiles.append(
        (
            "Time",
            scales.as_seconds(seconds),
            f"{scales.as_seconds(seconds / max(len(rounds), 1))} per round",
        )
    )
    return tiles


def _first_measures(run: RunFolder, entry: RoundEntry) -> list[Measure]:
    """The measure to read first, and the headline and loss or the like beside it."""
    task = run.plan.task
    first = task.leading(entry.metrics, entry.metrics_of_constant)
    wanted = [first, *(measure for measure in task.measures[:2] if measure is not first)]
    return [measure for measure in wanted if measure.name in entry.metrics]


def class_names(run: RunFolder) -> tuple[str, ...]:
    """Names of the classes: those that the plan declares, or what the finished run says of its
    model; none where neither is there.

    Guarantee: of `model.json` as the run wrote it, or a `StorageError`.
    """
    data = run.plan.data
    declared = (data.categories or {}).get(data.label_column or "", ())
    if declared:
        return tuple(declared)
    content = run.read_model_facts()
    labels = {} if content is None else json.loads(content).get("labels") or {}
    return tuple(map(str, labels.get("names") or ()))


def extremes_of(run: RunFolder, rounds: list[RoundEntry]) -> list[tuple[str, float]]:
    """The last headline measure of each silo, worst first; only the ends of a long list."""
    last = next((entry.silo_scores for entry in reversed(rounds) if entry.silo_scores), None) or ()
    names = (
        run.silos
        if len(run.silos) == len(last)
        else tuple(f"silo {index + 1}" for index in range(len(last)))
    )
    known = [(name, score) for name, score in zip(names, last, strict=True) if score is not None]
    better = run.plan.task.headline.larger_is_better
    ordered = sorted(known, key=lambda pair: pair[1], reverse=not better)
    return ordered if len(ordered) <= 12 else ordered[:5] + ordered[-5:]


def value_of(measure: Measure, entry: RoundEntry) -> str:
    """A measure of a round with its half-width, a dash where it was not measured."""
    if measure.name not in entry.metrics:
        return "–"
    return told_as(measure, entry.metrics[measure.name], entry.metrics_plus_minus.get(measure.name))


def told_as(measure: Measure, value: float, plus_minus: float | None = None) -> str:
    if measure.at_zero and measure.text(value, plus_minus).startswith(measure.at_zero):
        return measure.text(value, plus_minus).replace("%", "\u00a0%")
    formatter = scales.as_percent if measure.is_share else scales.as_number
    return formatter(value, plus_minus)


def health_of(run: RunFolder, rounds: list[RoundEntry]) -> list[tuple[str, str]]:
    """What an engineer looks at when something seems wrong."""
    dropped = [name for entry in rounds for name in entry.dropped]
    headroom = [entry.headroom_bits for entry in rounds if entry.headroom_bits is not None]
    clipped = [entry.clipped_fraction for entry in rounds if entry.clipped_fraction is not None]
    clamped = [entry.saturated for entry in rounds if entry.saturated is not None]
    nonfinite = [entry.nonfinite for entry in rounds if entry.nonfinite is not None]
    resumed = sum(1 for name, _ in run.events if name == "resumed")
    lost = (
        f"{len(dropped)} in {sum(1 for entry in rounds if entry.dropped)} rounds"
        if dropped
        else "none"
    )
    rows = [
        ("Drop-outs", f"{lost}; {run.plan.federation.dropouts or 'none'} tolerated in a round"),
        ("Overflow margin", f"at least {min(headroom):.1f} bits" if headroom else "not measured"),
        (
            "Clamped coordinates",
            f"{sum(clamped):,} ({_EXACT})" if clamped else "known to the silos only",
        ),
        (
            "Gradients not finite",
            f"{sum(nonfinite):,}, counted as zero ({_EXACT})"
            if nonfinite
            else "known to the silos only",
        ),
        (
            "Clipped records",
            f"{100.0 * statistics.fmean(clipped):.1f} % on average ({_EXACT})"
            if clipped
            else "not measured",
        ),
        ("Resumed", f"{resumed} times" if resumed > 1 else "once" if resumed else "never"),
    ]
    others = sorted({name for name, _ in run.events if name not in ("resumed", "records")})
    return [*rows, ("Events", ", ".join(others))] if others else rows
