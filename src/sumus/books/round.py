"""A round as the journal keeps it, and what was measured of its model afterwards."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any, final

__all__ = ["Measurement", "RoundEntry", "round_body", "rounded_up"]


@final
@dataclass(frozen=True, kw_only=True)
class RoundEntry:
    """One round as it happened.

    Args:
        round: counted from 1.
        round_id: binds the round's protocol messages and its ledger entry.
        epsilon_spent: of everything released up to and including this round, in the analysis of the
            run's guarantee; infinite without one, and where it is void.
        metrics: the task's measures of the model that this round released, on test records, by
            name; empty where it was not measured.
        metrics_plus_minus: half-widths of 95 % intervals, of those that are noisy sums.
        metrics_of_constant: what the best constant answer would reach, by name.
        metrics_tables: curves and the like that the same counts tell, columns by name.
        silo_scores: the task's headline measure, one per silo, in the order of the run's silos,
            None for one without test records; known only where silos are simulated.
        clipped_fraction: share of sampled records whose gradient was clipped; exact, see
            `counts_are`.
        nonfinite: records whose gradient was not finite and therefore counted as zero; likewise.
        saturated: coordinates that a silo had to clamp so that the ring cannot wrap; likewise.
        headroom_bits: log₂ of half the ring over the largest coordinate of the decoded sum: the
            overflow margin.
        update_norm: L2 norm of the averaged update that the server applied, noise included.
        noise_norm_expected: L2 norm that the noise in that update is expected to have.
        seconds: wall-clock time by stage: local, protocol, server, and evaluate where the model is
            measured; noise apart from local where silos are simulated.
        bytes_up: sent by all silos together; `bytes_down`: received by them.
        metrics_are: how the metrics left the silos: "simulation-only", "secure" (noisy sums
            that are accounted) or "none".
        notes: what the operator should know, a line each: silos that disagree about shares, a sum
            that was refused.
        counts_are: where the three exact counts come from: "simulation-only" (this process plays
            all silos; no guarantee covers the counts, do not publish them for private data) or
            "none" (a real server never sees them, and they are not set).
        previous: hash of the line before, filled in by `RunFolder`.
    """

    round: int
    round_id: str
    epsilon_spent: float
    delta: float
    survivors: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    metrics_plus_minus: Mapping[str, float] = field(default_factory=dict)
    metrics_of_constant: Mapping[str, float] = field(default_factory=dict)
    metrics_tables: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    silo_scores: tuple[float | None, ...] | None = None
    clipped_fraction: float | None = None
    nonfinite: int | None = None
    saturated: int | None = None
    headroom_bits: float | None = None
    update_norm: float | None = None
    noise_norm_expected: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0
    metrics_are: str = "none"
    counts_are: str = "none"
    notes: tuple[str, ...] = ()
    previous: str = ""

    @property
    def known_silo_scores(self) -> tuple[float, ...]:
        """Of the silos that have test records."""
        return tuple(score for score in self.silo_scores or () if score is not None)


@final
@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The metrics of a released model through a secure sum of its own, which ended after the round
    was in the journal.

    Args:
        round: under whose number the sum was asked for.
        of_round: the round that released the model; an earlier one where `round` was lost.
    """

    round: int
    of_round: int
    metrics: Mapping[str, float]
    metrics_plus_minus: Mapping[str, float]
    seconds: float
    bytes_up: int
    bytes_down: int
    metrics_of_constant: Mapping[str, float] = field(default_factory=dict)
    metrics_tables: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)

    def added_to(self, entry: RoundEntry) -> RoundEntry:
        """The round with what was measured of its model, and what that took."""
        return replace(
            entry,
            metrics=self.metrics,
            metrics_plus_minus=self.metrics_plus_minus,
            metrics_of_constant=self.metrics_of_constant,
            metrics_tables=self.metrics_tables,
            seconds={
                **entry.seconds,
                "evaluate": entry.seconds.get("evaluate", 0.0) + self.seconds,
            },
            bytes_up=entry.bytes_up + self.bytes_up,
            bytes_down=entry.bytes_down + self.bytes_down,
            metrics_are="secure",
        )


def round_body(entry: RoundEntry) -> dict[str, Any]:
    """A round as it is stored; `previous` lives in the chain."""
    return {key: value for key, value in asdict(entry).items() if key != "previous"}


def rounded_up(value: float) -> str:
    """Four significant digits, never rounded down: a printed bound must still be one."""
    if not math.isfinite(value) or value <= 0.0:
        return f"{value:g}"
    unit = Fraction(10) ** (math.floor(math.log10(value)) - 3)
    return f"{float(math.ceil(Fraction(value) / unit) * unit):.4g}"
