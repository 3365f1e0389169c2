"""A plan names the task, is accounted, trains, and is measured by the task's own measures."""

import tempfile
from pathlib import Path

import pytest

from sumus import RunOptions, SumusError, TrainingPlan, account, train
from sumus.runs import Simulation

PUBLIC = {
    "data.name": "digits",
    "training.task": "ordinal",
    "training.model": "linear",
    "federation.rounds": 20,
    "privacy.epsilon": 8.0,
}
plan = TrainingPlan().with_overrides(
    PUBLIC | {"training.algorithm": "dp-sgd", "training.sampling_rate": 0.2}
)
assert account(plan).proved

with pytest.raises(SumusError, match="convex and smooth in ordinal"):
    account(TrainingPlan().with_overrides(PUBLIC | {"training.algorithm": "convex-pass"}))

with tempfile.TemporaryDirectory() as folder:
    options = RunOptions(root=Path(folder), ledger=False)
    run = train(plan, options=options, simulation=Simulation(1))
    assert list(run.metrics) == ["accuracy", "within one"]
    assert run.metrics["accuracy"] > run.baselines["majority"]
    assert run.metrics["within one"] > run.metrics["accuracy"]
    nine_thresholds = run.module.state_dict()["0.bias"]
    assert nine_thresholds.shape == (9,)
