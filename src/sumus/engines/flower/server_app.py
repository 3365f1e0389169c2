"""The server's process of a Flower run: the same server party, the same run folder."""

from __future__ import annotations

import json
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from sumus.engines.flower.driver import FlowerDriver
from sumus.errors import SumusError
from sumus.files import read_bytes, replace_atomically
from sumus.parties import Patience, SecureSum, ServerParty, agree_on
from sumus.plan import TrainingPlan
from sumus.runs import finish, is_over, open_run
from sumus.secagg import Roster

__all__ = ["app"]

app = ServerApp()


@app.main()  # type: ignore[untyped-decorator]
def main(grid: Grid, context: Context) -> None:
    """Train the plan that the operator's app names; a run that was interrupted goes on."""
    config = context.run_config
    folder = Path(str(config["folder"]))
    agreement = agree_on(TrainingPlan.from_toml(str(config["plan"])))
    roster = Roster.parse(read_bytes(folder / "roster.toml").decode())
    patience = Patience(
        set_up=float(config["set-up"]),
        update=float(config["update"]),
        stage=float(config["stage"]),
        retry=0.5,
    )
    outcome: dict[str, object] = {"error": None, "run": None, "refusals": {}}
    driver = FlowerDriver(grid, roster.names)
    party = ServerParty(agreement, SecureSum(agreement, roster, driver, patience=patience))
    try:
        party.greet()
        with open_run(agreement, roster, folder / "runs", simulated=party.simulated) as run:
            outcome["run"] = str(run.path)
            if run.summary is None:
                for _ in party.train(run):
                    continue
                if is_over(run):
                    finish(run, party)
    except SumusError as error:
        outcome["error"] = str(error)
    finally:
        outcome["refusals"] = dict(party.refusals)
        replace_atomically(folder / "outcome.json", json.dumps(outcome).encode())
