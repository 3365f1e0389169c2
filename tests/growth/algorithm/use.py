"""A plan names the algorithm, costs less than dp-sgd with as many steps, and trains."""

import tempfile
from pathlib import Path

from sumus import RunOptions, TrainingPlan, account, train
from sumus.runs import Simulation

PUBLIC = {
    "data.name": "digits",
    "training.sampling_rate": 0.1,
    "federation.rounds": 3,
    "federation.local_steps": 4,
    "noise.noise_multiplier": 3.0,
}
plan, stepping = (
    TrainingPlan().with_overrides(PUBLIC | {"training.algorithm": algorithm})
    for algorithm in ("accumulated", "dp-sgd")
)
promise = account(plan)
assert promise.proved
assert promise.analysis == "accumulated"
# of dp-sgd's steps only the last of a round counts with the noise of all silos
assert promise.epsilon < account(stepping).epsilon

with tempfile.TemporaryDirectory() as folder:
    options = RunOptions(root=Path(folder), ledger=False)
    run = train(plan, options=options, simulation=Simulation(1))
    assert run.metrics["accuracy"] > run.baselines["majority"]
