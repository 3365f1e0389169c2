"""Somebody who can write to a run's folder wants its model to say something else: classes swapped in
`model.json`, bounds moved, weights replaced. Every prediction is refused.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sumus.books.stored_run import StoredRun
from sumus.errors import StorageError
from sumus.predicting import Model, model as model_module
from sumus.predicting.facts import odd_state, state_hash
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
    assert not np.array_equal(Model.of_run(run).predict(ROW, warn=False), honest)


def test_damaged_weights_are_one_line(run: Path) -> None:
    file = run / "model.pt"
    whole = file.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"not a model"):
        file.write_bytes(damaged)
        with pytest.raises(StorageError, match="was changed since"):
            Model.of_run(run)


class Steep(nn.Linear):
    """A layer whose slope is no tensor."""

    def __init__(self, slope: Any) -> None:
        super().__init__(3, 2)
        self.slope = slope

    def get_extra_state(self) -> Any:
        return {"slope": self.slope}

    def set_extra_state(self, state: Any) -> None:
        self.slope = state["slope"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1.0, -1.0),
        (1, True),
        ("1", 1),
        ([1, [2]], [[1], 2]),
        ((1,), [1]),
        ({"a": 1}, {"a": 2}),
        (torch.ones(2), torch.zeros(2)),
        ([torch.ones(2)], [torch.ones(1, 2)]),
        (b"a", b"b"),
        (None, 0),
    ],
    ids=str,
)
def test_what_a_module_keeps_beside_its_tensors_is_hashed(one: Any, other: Any) -> None:
    module = Steep(one)
    state = module.state_dict()
    kept = io.BytesIO()
    torch.save(state, kept)
    again = torch.load(io.BytesIO(kept.getvalue()), weights_only=True)
    assert state_hash(again) == state_hash(state)
    assert state_hash({**state, "_extra_state": {"slope": other}}) != state_hash(state)
    assert odd_state(state) is None


def test_a_state_whose_values_no_hash_stands_for_predicts_nothing(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Steep(torch.float32)
    torch.save(module.state_dict(), tmp_path / "model.pt")
    facts = SimpleNamespace(state_hash=state_hash(module.state_dict()))
    with pytest.raises(StorageError, match="_extra_state holds a dict of values that no hash"):
        model_module._load(module, tmp_path / "model.pt", facts)
    plain = Steep(2.0)
    torch.save(plain.state_dict(), tmp_path / "model.pt")
    facts = SimpleNamespace(state_hash=state_hash(plain.state_dict()))
    model_module._load(module, tmp_path / "model.pt", facts)
    assert module.slope == 2.0
    torch.save({**plain.state_dict(), "_extra_state": {"slope": 3.0}}, tmp_path / "model.pt")
    with pytest.raises(StorageError, match="was changed since"):
        model_module._load(module, tmp_path / "model.pt", facts)
