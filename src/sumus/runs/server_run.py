"""The server's run folder: one per plan, below the plan's hash, opened again by every process that
goes on with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sumus.books import JOURNAL, RunFolder
from sumus.data import Encoding
from sumus.errors import EngineError
from sumus.parties import (
    NO_LEDGER_HERE,
    PUBLIC_SEED,
    Agreement,
    Evidence,
    ServerParty,
    declared_facts,
    measurement_asked,
    parcel_of,
    restore,
    summary_of,
    weights_of,
    write_model,
)
from sumus.runs import finishing
from sumus.runs.starting import Start, find_start
from sumus.secagg import Roster, RosterHistory
from sumus.training import frozen_hash, keep_frozen

if TYPE_CHECKING:
    from torch import nn

    from sumus.parties import Parcel
    from sumus.predicting import ModelFacts

__all__ = [
    "existing_run",
    "finish",
    "is_finished",
    "is_over",
    "open_run",
    "parcel_of_run",
    "release",
    "start_of",
]


def existing_run(agreement: Agreement, runs: Path) -> Path | None:
    """The folder of this plan's run, if there is one."""
    folders = sorted(path.parent for path in (runs / agreement.plan.hash).glob(f"*/{JOURNAL}"))
    return folders[-1] if folders else None


def is_finished(agreement: Agreement, runs: Path) -> bool:
    """Whether the plan's run is there, with nothing left to train."""
    folder = existing_run(agreement, runs)
    return folder is not None and RunFolder.open(folder).summary is not None


def start_of(agreement: Agreement, runs: Path, sent: str) -> Start | None:
    """The released model that the plan's run begins with; None where it has begun, or begins with a
    fresh one.

    Args:
        sent: the model as the operator sent it; empty: looked for among the server's own runs.
    """
    folder = existing_run(agreement, runs)
    if agreement.plan.training.start_from is None or (
        folder is not None and RunFolder.open(folder).read_checkpoint() is not None
    ):
        return None
    start = Start.from_text(sent) if sent else find_start(agreement.plan, runs)
    if start.frozen is not None and frozen_hash(start.frozen) == (
        agreement.plan.training.frozen_layers
    ):
        keep_frozen(start.frozen)  # later jobs of the run bring them no more
    return start


def open_run(
    agreement: Agreement,
    roster: Roster,
    runs: Path,
    *,
    simulated: bool,
    start: Start | None = None,
    rosters: RosterHistory | None = None,
) -> RunFolder:
    """Go on with the plan's run, or begin it. A plan is run once in a federation: its silos answer
    each of its rounds once.

    Args:
        roster: whose silos take part from now on.
        start: see `start_of`.
        rosters: that lead to it; a run goes on under the roster that signed last, or under one that
            follows it.
    """
    folder, void = existing_run(agreement, runs), PUBLIC_SEED if simulated else None
    if start is not None:
        start.require_fit(agreement.design, void=void)
    if folder is None:
        return RunFolder.create(
            agreement.plan,
            agreement.account,
            runs / agreement.plan.hash,
            silos=agreement.names,
            void=void,
            no_ledger=NO_LEDGER_HERE,
            start=None if start is None else start.origin,
        )
    signed = Evidence.last_roster(folder)
    if signed is not None and signed != roster:
        (RosterHistory.of(roster) if rosters is None else rosters).since(signed.digest())
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
    module, facts = _released(run, party)
    finishing.finish(run, module, facts, summary | {"model_hash": finishing.hash_of(module)})


def release(run: RunFolder, party: ServerParty) -> None:
    """Write the model of the last round into a run that is not finished, and say so in its
    journal, unless it says so already.
    """
    handed = run.released
    if handed is not None and handed.round == run.last_round:
        return
    module, facts = _released(run, party)
    write_model(run, module)
    run.release(finishing.hash_of(module), None if facts is None else facts.to_bytes())


def _released(run: RunFolder, party: ServerParty) -> tuple[nn.Module, ModelFacts | None]:
    """The module with the released parameters, and what predictions need beside it."""
    module = finishing.loaded_model(party)
    known = party.agreement.design.facts or declared_facts(run.plan)
    facts = finishing.facts_of(
        run.plan,
        module,
        labels=known.labels,
        shape=known.shape,
        encoding=Encoding.of_plan(run.plan.data),
    )
    return module, facts


def parcel_of_run(run: RunFolder, party: ServerParty) -> Parcel:
    """A run as silos receive it; the party stands where the run's last round left it."""
    restore(party.server, run)
    return parcel_of(run, weights_of(finishing.loaded_model(party)))
