"""Somebody who can write to a run's folder wants its model to say something else: classes swapped in
`model.json`, bounds moved, weights replaced. Every prediction is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from sumus.books.stored_run import StoredRun
from sumus.errors import StorageError
from sumus.predicting import Model, model as model_module
from sumus.runs import RunOptions, Simulation, train
from support.predicted_table import plan_of, write_table

ROW = [{"age": str(age), "dose": "1", "sex": "f", "word": "w1"} for age in (0, 40, 80, 120)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_table(tmp_path / "t.csv")
    data = 'label_column = "sick"\nbounds = {age = [0, 120]}\ncategories = {sick = ["no", "yes"]}'
    plan = plan_of(tmp_path / "t.csv", data=data, federation="rounds = 1")
    options = RunOptions(root=tmp_path / "runs", ledger=False, threads=1)
    return train(plan, options=options, simulation=Simulation(3)).path


def swapped_classes(run: Path) -> None:
    """Whoever is ill is well."""
    file = run / "model.json"
    facts = json.loads(file.read_text())
    facts["labels"]["names"].reverse()
    file.write_text(json.dumps(facts))


def moved_bounds(run: Path) -> None:
    """Everybody is as old as can be."""
    file = run / "model.json"
    facts = json.loads(file.read_text())
    facts["encoding"]["columns"][0] |= {"low": -1e6, "high": -1e5}
    file.write_text(json.dumps(facts))


def other_weights(run: Path) -> None:
    """The opposite of what was learned."""
    state = torch.load(run / "model.pt", weights_only=True)
    torch.save({name: -tensor for name, tensor in state.items()}, run / "model.pt")


@pytest.mark.parametrize("forge", [swapped_classes, moved_bounds, other_weights])
def test_a_forged_model_predicts_nothing(run: Path, forge: Callable[[Path], None]) -> None:
    forge(run)
    with pytest.raises(StorageError, match="was changed since"):
        Model.of_run(run)


@pytest.mark.parametrize("forge", [swapped_classes, moved_bounds, other_weights])
def test_without_the_hashes_it_would(
    run: Path, forge: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Model.of_run(run).predict(ROW)
    facts = json.loads((run / "model.json").read_text())
    forge(run)
    monkeypatch.setattr(
        StoredRun, "read_model_facts", lambda self: (self.path / "model.json").read_bytes()
    )
    monkeypatch.setattr(model_module, "state_hash", lambda state: facts["state_hash"])
    assert not np.array_equal(Model.of_run(run).predict(ROW), honest)


def test_damaged_weights_are_one_line(run: Path) -> None:
    file = run / "model.pt"
    whole = file.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"not a model"):
        file.write_bytes(damaged)
        with pytest.raises(StorageError, match="was changed since"):
            Model.of_run(run)
