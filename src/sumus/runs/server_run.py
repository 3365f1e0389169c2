"""The server's run folder: one per plan, below the plan's hash, opened again by every process that
goes on with it.
"""

from __future__ import annotations

from pathlib import Path

from sumus.books import JOURNAL, RunFolder
from sumus.errors import EngineError
from sumus.parties import Agreement, ServerParty, measurement_asked, summary_of
from sumus.runs import finishing
from sumus.secagg import Roster

__all__ = ["existing_run", "finish", "is_over", "open_run"]

_VOID = "the silos' noise comes from a public seed (simulation)"


def existing_run(agreement: Agreement, runs: Path) -> Path | None:
    """The folder of this plan's run, if there is one."""
    folders = sorted(path.parent for path in (runs / agreement.plan.hash).glob(f"*/{JOURNAL}"))
    return folders[-1] if folders else None


def open_run(agreement: Agreement, roster: Roster, runs: Path, *, simulated: bool) -> RunFolder:
    """Go on with the plan's run, or begin it. A plan is run once in a federation: its silos answer
    each of its rounds once.
    """
    folder = existing_run(agreement, runs)
    if folder is None:
        void = _VOID if simulated else None
        return RunFolder.create(
            agreement.plan,
            agreement.account,
            runs / agreement.plan.hash,
            silos=agreement.names,
            void=void,
            no_ledger="entered by every silo on a ledger of its own",
        )
    finished = RunFolder.open(folder)
    run = finished if finished.summary is not None else RunFolder.open(folder, resume=True)
    if simulated and run.void is None:
        run.close()
        raise EngineError(
            f"{folder} is a private run, but a silo draws its noise from a public seed. Remove "
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
    rounds = run.rounds()
    summary = summary_of(
        run.plan,
        run.guarantee,
        rounds,
        void=run.void,
        seconds=sum(sum(entry.seconds.values()) for entry in rounds),
    )
    finishing.finish(run, finishing.loaded_model(party), summary)
