"""From a plan to a finished run: job after job until every round is done, each going on where the
last one ended; and from a run to its silos.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sumus.engines.engine import NoProgressError, Operator, Outcome, Watch
from sumus.errors import EngineError
from sumus.events import RoundCommitted, RunDelivered, SiloRefused, tell
from sumus.parties import Agreement
from sumus.runs import Start

__all__ = ["deliver_across", "train_across"]

_MOST_IDLE_JOBS = 3
_LONGEST_START = 12 << 20
"""Characters: a silo takes no job above 16 MiB."""


def train_across(
    operator: Operator,
    agreement: Agreement,
    *,
    out: Path,
    watch: Watch,
    rounds_per_job: int = 50,
    patience: Mapping[str, float] | None = None,
    start: Start | None = None,
) -> Path:
    """Train a plan to its end and return the run folder, copied to `out`.

    Guarantee: a job that fails costs no privacy (the silos answer every round once) and no finished
        round; after three jobs in a row without a new round the last reason is raised, and at once
        when the silos refuse the plan.

    Args:
        start: the released model to begin with, where the server does not hold it.
    """
    sent = "" if start is None else start.to_text()
    if len(sent) > _LONGEST_START:
        raise EngineError(
            f"a starting model of {len(sent) >> 20} MiB does not go with a job "
            f"(at most {_LONGEST_START >> 20}). Copy its run folder below sumus/runs of the "
            "server's kit, and leave --start-from out."
        )
    idle = best = reached = 0
    refused: dict[str, str] = {}

    def watching(news: Mapping[str, Any]) -> None:
        nonlocal reached  # a job that is killed leaves no result, but it may have finished rounds
        for record in news["rounds"]:
            if int(record["round"]) > reached:
                tell(_committed(record))
        reached = max([reached, *(int(record["round"]) for record in news["rounds"])])
        for name, reason in (news.get("refusals") or {}).items():
            if refused.get(name) != reason:
                tell(SiloRefused(silo=name, reason=reason, unwritten=0))
                refused[name] = reason
        watch(news)

    while True:
        outcome = operator.run(
            agreement,
            rounds=rounds_per_job,
            patience=operator.PATIENCE if patience is None else patience,
            out=out,
            watch=watching,
            start=sent,
        )
        if outcome.finished and outcome.run is not None:
            _tell_delivered(agreement, outcome)
            return outcome.run
        if outcome.refused:
            raise EngineError(f"the silos refuse this plan. {outcome.reason}")
        idle, best = (0 if reached > best else idle + 1), reached
        if idle >= _MOST_IDLE_JOBS:
            raise NoProgressError(
                f"{idle} jobs in a row finished no round. The last one: {outcome.reason}"
            )


def deliver_across(
    operator: Operator,
    agreement: Agreement,
    *,
    out: Path,
    watch: Watch,
    patience: Mapping[str, float] | None = None,
) -> Outcome:
    """Have the server hand a plan's run to the silos that are there, finished or with the model of
    its last round; nothing is trained, and nobody spends anything.
    """
    outcome = operator.run(
        agreement,
        rounds=0,
        patience=operator.PATIENCE if patience is None else patience,
        out=out,
        watch=watch,
    )
    if outcome.delivered is None:
        raise EngineError(f"nothing was handed out: {outcome.reason}")
    if outcome.delivered["error"]:
        raise EngineError(f"nothing was handed out: {outcome.delivered['error']}")
    _tell_delivered(agreement, outcome)
    return outcome


def _tell_delivered(agreement: Agreement, outcome: Outcome) -> None:
    said = outcome.delivered
    if said is not None:
        received, missing = tuple(said["received"]), tuple(said["missing"])
        tell(RunDelivered(plan=agreement.plan.hash, received=received, missing=missing))


def _committed(record: Mapping[str, Any]) -> RoundCommitted:
    return RoundCommitted(
        round=int(record["round"]),
        survivors=len(record.get("survivors", ())),
        dropped=tuple(record.get("dropped", ())),
        seconds=sum(record.get("seconds", {}).values()),
    )
