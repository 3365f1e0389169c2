"""The Kronecker preconditioner of a plan: what the server does with a sum, what is refused, and the
public start that goes with it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import sumus
from sumus.books import StartedFrom
from sumus.errors import DataError, PlanError
from sumus.features import made_up_pictures
from sumus.gradients import preconditioning
from sumus.guarantee import calibrated
from sumus.plan import TrainingPlan
from sumus.runs import RunOptions, Simulation, Start
from sumus.training.models import build_model, flat_parameters, load_flat
from sumus.training.preconditioner import Preconditioner
from sumus.training.pretraining import public_start
from sumus.training.server import Server

_PLAN = """
[privacy]
epsilon = 20.0
[federation]
silos = 2
rounds = 6
local_steps = 2
colluding = 0
[training]
algorithm = "split-noise"
model = "mlp"
features = "centred"
hidden = [16]
sampling_rate = 0.5
learning_rate = 2.0
server_momentum = 0.5
preconditioner = "kronecker"
[aggregation]
modulus_bits = 40
[data]
name = "digits"
"""


def test_a_preconditioned_run_learns_through_the_secure_sum(tmp_path: Path) -> None:
    run = sumus.train(
        TrainingPlan.from_toml(_PLAN),
        options=RunOptions(root=tmp_path, ledger=False),
        simulation=Simulation(seed=1),
    )
    assert run.accuracy is not None
    assert run.accuracy > 0.6


def test_a_sum_goes_back_through_the_map() -> None:
    """The server moves the model along the transpose of what the silos' gradients went through."""
    design = calibrated(TrainingPlan.from_toml(_PLAN))
    model = build_model("mlp", shape=(64,), outputs=10, hidden=(16,))
    found = Preconditioner.of(design.plan, model, (64,))
    assert found is not None
    first = flat_parameters(model).double().numpy()
    total = np.random.default_rng(0).integers(-(1 << 20), 1 << 20, len(first))
    with_map, without = Server(design, first, found.at), Server(design, first)
    moved = found.at(with_map.parameters).transpose(without.apply(total, 2))
    assert np.allclose(with_map.apply(total, 2), moved)
    assert not np.allclose(moved, without.apply(total, 2), rtol=0.01)


def test_a_map_has_the_same_bits_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A round that is repeated has the same noise again, so its map must not differ by a bit."""
    seen, root = [], preconditioning._root
    monkeypatch.setattr(
        preconditioning,
        "_root",
        lambda *given: (seen.append(torch.get_num_threads()), root(*given))[1],
    )
    model = build_model("mlp", shape=(64,), outputs=10, hidden=(16,))
    first = flat_parameters(model).double().numpy()
    found = Preconditioner.of(TrainingPlan.from_toml(_PLAN), model, (64,))
    assert found is not None
    moved, before = [], torch.get_num_threads()
    for threads in (1, 2):
        Preconditioner.forget()
        torch.set_num_threads(threads)
        try:
            moved.append(found.at(first).transpose(np.arange(float(len(first)))))
        finally:
            torch.set_num_threads(before)
    np.testing.assert_array_equal(*moved)
    assert set(seen) == {1}


def test_only_algorithms_of_clipped_gradients_have_one() -> None:
    """Elsewhere the key means nothing, and a sum stays in the order of the model."""
    model = build_model("mlp", shape=(64,), outputs=10, hidden=(16,))
    for algorithm, has in (("dp-sgd", True), ("split-noise", True), ("fedavg", False)):
        plan = TrainingPlan.from_toml(_PLAN.replace("split-noise", algorithm))
        assert (Preconditioner.of(plan, model, (64,)) is not None) == has


def test_a_public_start_is_the_same_for_everybody_and_begins_at_zero() -> None:
    plan = TrainingPlan.from_toml(_PLAN.replace('"mlp"', '"cnn"'))
    model = build_model("cnn", shape=(1, 28, 28), outputs=10)
    once, twice = (public_start(plan, model, (1, 28, 28), pictures=200, passes=1) for _ in range(2))
    assert torch.equal(once, twice)
    assert not torch.equal(once[:1040], flat_parameters(model)[:1040])
    load_flat(model, once)
    with torch.no_grad():
        outputs = model(2.0 * made_up_pictures(3, (1, 28, 28)) - 1.0)
    assert (outputs == 0.0).all()


def test_a_public_start_needs_a_chain_with_two_linear_layers() -> None:
    plan = TrainingPlan.from_toml(_PLAN)
    with pytest.raises(PlanError, match="ends with two linear"):
        public_start(plan, nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), (1, 8, 8))


def test_the_file_of_a_public_start_says_that_it_costs_nothing(tmp_path: Path) -> None:
    origin = StartedFrom(model="", public="made-up pictures, seed 3")
    made = Start.of_vector(np.linspace(0.0, 1.0, 7), origin)
    (tmp_path / "start.json").write_text(made.to_text())
    read = Start.read(tmp_path / "start.json")
    assert read.hash == made.hash
    assert "made-up pictures, seed 3" in str(read.origin)
    assert "costs nothing" in str(read.origin)


def test_a_file_of_something_else_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "start.json").write_text("{}")
    with pytest.raises(DataError, match="sumus pretrain"):
        Start.read(tmp_path / "start.json")
