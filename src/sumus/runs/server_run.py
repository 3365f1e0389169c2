"""The server's run folder: one per plan, below the plan's hash, opened again by every process that
goes on with it.
"""

from __future__ import annotations

from pathlib import Path

import torch

from sumus.books import RunFolder
from sumus.errors import EngineError
from sumus.parties import Agreement, ServerParty, measurement_asked, summary_of, write_model
from sumus.secagg import Roster
from sumus.training import load_flat

__all__ = ["existing_run", "finish", "is_over", "open_run"]

_VOID = "the silos' noise comes from a public seed (simulation)"


def existing_run(agreement: Agreement, runs: Path) -> Path | None:
    """The folder of this plan's run, if there is one."""
    found = sorted(path.parent for path in (runs / agreement.plan.hash).glob("*/record.jsonl"))
    return found[-1] if found else None


def open_run(agreement: Agreement, roster: Roster, runs: Path, *, simulated: bool) -> RunFolder:
    """Go on with the plan's run, or begin it. A plan is run once in a federation: its silos answer
    each of its rounds once.
    """
    found = existing_run(agreement, runs)
    if found is None:
        void = _VOID if simulated else None
        return RunFolder.create(
            agreement.plan,
            agreement.account,
            runs / agreement.plan.hash,
            silos=roster.names,
            void=void,
        )
    finished = RunFolder.open(found)
    run = finished if finished.summary is not None else RunFolder.open(found, resume=True)
    if simulated and run.void is None:
        run.close()
        raise EngineError(
            f"{found} is a private run, but a silo now draws its noise from a public seed. Remove "
            "its SIMULATION file."
        )
    return run


def is_over(run: RunFolder) -> bool:
    """Whether no round number is left, finished or lost, and the last model was measured if the
    plan says so.
    """
    rounds = run.plan.federation.rounds
    measured = (
        run.plan.evaluation.metrics != "secure"
        or not run.last_round
        or measurement_asked(run, rounds)
    )
    return run.last_asked >= rounds and measured


def finish(run: RunFolder, party: ServerParty) -> None:
    """Write the released model and the summary."""
    load_flat(party.model, torch.tensor(party.server.released, dtype=torch.float64))
    write_model(run, party.model)
    rounds = run.rounds()
    seconds = sum(sum(record.seconds.values()) for record in rounds)
    ended = summary_of(run.plan.task, run.guarantee, rounds, void=run.void, seconds=seconds)
    run.finish(ended | {"lost_rounds": run.plan.federation.rounds - len(rounds)})
