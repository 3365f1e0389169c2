"""A federation of real processes over NVIDIA FLARE that can be hurt."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from sumus.books import Ledger, RunFolder
from sumus.engines import LocalProcesses, Operator, train_across
from sumus.engines.processes import PartyProcesses
from sumus.parties import approve
from support.notes import Notes, agreed

PATIENCE = {"set_up_seconds": 120.0, "update_seconds": 60.0, "stage_seconds": 60.0}


def job_process(processes: PartyProcesses, party: str) -> Any:
    """A party's process of the running job, over NVIDIA FLARE."""
    wanted = "runner_process" if party == "server" else "silo-job"
    return next(
        (
            each
            for each in processes.processes[party].descendants()
            if wanted in " ".join(each.cmdline())
        ),
        None,
    )


def vault_process(processes: PartyProcesses, silo: str) -> Any:
    """A silo's vault."""
    for each in processes.processes[silo].descendants():
        with contextlib.suppress(psutil.Error):  # it has just ended
            if "sumus.parties.vault" in each.cmdline():
                return each
    return None


class Running:
    """A federation of real processes over NVIDIA FLARE that can be hurt."""

    def __init__(self, root: Path) -> None:
        self._seed, self._root = 0, root
        self.notes = Notes(root / "notes")
        self.processes = LocalProcesses(
            root / "federation", agreed(), data="digits", environment=self.notes.environment
        )
        self.names = self.processes.federation.roster.names
        self.operator: Operator = self.processes.start_all(seconds=180.0)

    def vault(self, silo: str) -> Path:
        return self.processes.vault(silo)

    def train(
        self,
        watch: Callable[[Mapping[str, Any]], None],
        *,
        rounds: int = 24,
        rounds_per_job: int = 50,
        patience: Mapping[str, float] = PATIENCE,
    ) -> RunFolder:
        """Train a plan that was never run before, and check what must hold whatever happened
        meanwhile.
        """
        self._seed += 1
        agreement = agreed(training__init_seed=self._seed, federation__rounds=rounds)
        for name in self.names:
            approve(self.vault(name), [agreement.plan])
        for old in self.notes.folder.iterdir():
            if old.name in ("rounds", "blows", "held") or old.name.startswith(("strike-", "hold-")):
                old.unlink()
        path = train_across(
            self.operator,
            agreement,
            out=self._root / "runs",
            watch=watch,
            patience=patience,
            rounds_per_job=rounds_per_job,
        )
        run = RunFolder.open(path)
        run.verify()
        for name in self.names:  # no round id and no round number was ever answered twice
            entries = Ledger.of_dataset("digits", state=self.processes.state(name)).entries()
            mine = [
                (entry.round, entry.round_id)
                for entry in entries
                if entry.plan_hash == agreement.plan.hash
            ]
            assert (
                len({number for number, _ in mine})
                == len({identifier for _, identifier in mine})
                == len(mine)
            )
            assert len(mine) <= rounds
        for record in run.rounds():  # never less noise than accounted
            assert len(record.survivors) >= agreement.terms.minimum_survivors
        assert run.summary is not None
        assert run.summary["rounds"] + run.summary["lost_rounds"] == rounds
        return run

    def close(self) -> None:
        self.operator.close()
        self.processes.close()
