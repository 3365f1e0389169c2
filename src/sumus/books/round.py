"""The lines of a run's record as frozen values: what was promised, and every round as it
happened.
"""

from __future__ import annotations

import importlib.metadata
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, final

from sumus import __version__
from sumus.files import from_json

if TYPE_CHECKING:
    from sumus.guarantee import Account

__all__ = [
    "Guarantee",
    "GuaranteeAnalysis",
    "Header",
    "Measurement",
    "RoundRecord",
    "round_body",
    "rounded_up",
    "software_versions",
    "stored_guarantee",
]

_VERSIONED = ("numpy", "scipy", "dp-accounting", "cryptography", "torch")


@final
@dataclass(frozen=True, kw_only=True)
class RoundRecord:
    """One round as it happened.

    Args:
        round: counted from 1.
        round_id: binds the round's protocol messages and its ledger entry.
        epsilon_spent: of everything released up to and including this round, in the analysis of the
            run's guarantee; infinite without one, and where it is void.
        metrics: the task's measures of the model that this round released, on test records, by
            name; empty where it was not measured.
        metrics_plus_minus: half-widths of 95 % intervals, of those that are noisy sums.
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
        seconds: wall-clock time by stage: local, noise, protocol, evaluate, server.
        bytes_up: sent by all silos together; `bytes_down`: received by them.
        metrics_are: how the metrics left the silos: "simulation-only", "secure" (noisy sums
            that are accounted) or "none".
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
    previous: str = ""

    @property
    def known_silo_scores(self) -> tuple[float, ...]:
        """Of the silos that have test records."""
        return tuple(score for score in self.silo_scores or () if score is not None)


@final
@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The metrics of a released model through a secure sum of its own, which ended after the round
    was on record.

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

    def added_to(self, record: RoundRecord) -> RoundRecord:
        """The round with what was measured of its model, and what that took."""
        return replace(
            record,
            metrics=self.metrics,
            metrics_plus_minus=self.metrics_plus_minus,
            seconds={
                **record.seconds,
                "evaluate": record.seconds.get("evaluate", 0.0) + self.seconds,
            },
            bytes_up=record.bytes_up + self.bytes_up,
            bytes_down=record.bytes_down + self.bytes_down,
            metrics_are="secure",
        )


@final
@dataclass(frozen=True, kw_only=True)
class GuaranteeAnalysis:
    """One analysis of the plan, for comparison."""

    name: str
    epsilon: float
    delta: float
    proved: bool
    statement: str


@final
@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What was promised when the run began: the account of its plan, as stored."""

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
    plan_hash: str
    target_epsilon: float | None = None
    tuning_epsilon: float | None = None
    metrics_epsilon: float | None = None
    metrics_trust: str | None = None
    participant_epsilon: float | None = None
    protected_units: int | None = None
    protected_kind: str | None = None
    delta_times_units: float | None = None
    cautions: tuple[str, ...] = ()
    epsilon_per_silo: Mapping[str, float] = field(default_factory=dict)
    analyses: tuple[Any, ...] = ()
    records_per_silo: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()

    @property
    def compared(self) -> tuple[GuaranteeAnalysis, ...]:
        """Every analysis that says something about the plan."""
        return tuple(from_json(GuaranteeAnalysis, each, where="analyses") for each in self.analyses)


@final
@dataclass(frozen=True, kw_only=True)
class Header:
    """The first line of a record: what was promised, by whom it was run and with what.

    Args:
        records_are: "given in Python" where no plan leads to the records; None where the plan does.
        own_model: class of a module that was given in Python instead of the model that the plan
            names.
        arithmetic: what the silos' floats depend on besides plan, records and model; empty where
            nobody repeats a round.
    """

    guarantee: Any
    plan_file: str
    plan_hash: str
    silos: tuple[str, ...]
    started: str
    versions: Mapping[str, str]
    void: str | None
    records_are: str | None = None
    own_model: str | None = None
    arithmetic: Mapping[str, str] = field(default_factory=dict)


def software_versions() -> dict[str, str]:
    """Versions of what a result depends on, without importing any of it."""
    found = {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "sumus": __version__,
    }
    for name in _VERSIONED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def round_body(record: RoundRecord) -> dict[str, Any]:
    """A round as it is stored; `previous` lives in the chain."""
    return {key: value for key, value in asdict(record).items() if key != "previous"}


def stored_guarantee(account: Account) -> dict[str, Any]:
    """The fields of an account that a record keeps."""
    known = set(Guarantee.__dataclass_fields__)
    return {key: value for key, value in account.as_json().items() if key in known}


def rounded_up(value: float) -> str:
    """Four significant digits, never rounded down: a printed bound must still be one."""
    if not math.isfinite(value) or value <= 0.0:
        return f"{value:g}"
    unit = Fraction(10) ** (math.floor(math.log10(value)) - 3)
    return f"{float(math.ceil(Fraction(value) / unit) * unit):.4g}"
