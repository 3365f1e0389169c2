"""A tangent pass behind a public map: the derivatives that torch says, bounds and isolation as
without it, and layers of a public start that the plan names by their hash.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev

import sumus
from sumus.books import StartedFrom
from sumus.data import Records
from sumus.errors import DataError, PlanError
from sumus.gradients import KroneckerMap, Tangents, blocks_of
from sumus.gradients.mapped_tangents import mapped_parts, tensors_of
from sumus.guarantee import calibrated
from sumus.noise import Skellam
from sumus.plan import PublicFacts, TrainingPlan
from sumus.purity import Form, InputKind
from sumus.randomness import RandomSource
from sumus.runs import RunOptions, Simulation, Start
from sumus.runs.starting import FROZEN_START, with_start
from sumus.tasks import TASKS, LabelFacts
from sumus.training import frozen_hash, frozen_parameters, local_updater, named_model, prepare
from sumus.training.models import flat_parameters


def _network() -> nn.Module:
    """Convolution in a table, linear layers in factors, one of them without a bias."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(1, 2, 3),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(8, 5),
            nn.Tanh(),
            nn.Linear(5, 3, bias=False),
        )


def _map_of(model: nn.Module) -> KroneckerMap:
    generator = torch.Generator().manual_seed(0)

    def symmetric(size: int) -> torch.Tensor:
        matrix = torch.randn(size, size, generator=generator, dtype=torch.float64)
        return (matrix + matrix.T) / math.sqrt(8.0 * size) + torch.eye(size).double()

    blocks = blocks_of(model)
    return KroneckerMap(blocks, [(symmetric(b.outputs), symmetric(b.columns)) for b in blocks])


def _tangents(model: nn.Module) -> Tangents:
    return Tangents(model, TASKS["classification"], InputKind.of(model), Form((1, 4, 4)))


def test_a_move_in_front_of_the_map_is_its_transpose_of_the_parameters() -> None:
    model = _network()
    tangents, mapped, x = _tangents(model), _map_of(model), torch.randn(3, 1, 4, 4)
    tangents.behind(mapped)
    flat = flat_parameters(model)
    outputs, parts = tangents.of(flat.double().numpy(), x)
    named = dict(model.named_parameters())

    def of_flat(vector: torch.Tensor) -> torch.Tensor:
        pieces = vector.split([each.numel() for each in named.values()])
        own = {key: p.view_as(named[key]) for key, p in zip(named, pieces, strict=True)}
        result: torch.Tensor = functional_call(model, own, (x,))
        return result

    jacobian = jacrev(of_flat)(flat).detach().double().numpy()
    np.testing.assert_allclose(outputs, of_flat(flat).detach().numpy(), atol=1e-5)
    rng = np.random.default_rng(1)
    for move in rng.normal(size=(4, len(flat))):
        ours = sum(part.apply(move, slice(0, 3)) for part in parts)
        np.testing.assert_allclose(ours, jacobian @ mapped.transpose(move), atol=1e-4)
    residuals, gradient = rng.normal(size=(3, 3)), np.zeros(len(flat))
    for part in parts:
        part.add_pulled(residuals, slice(0, 3), gradient)
    pulled = np.einsum("rk,rkd->d", residuals, jacobian)
    probe = rng.normal(size=len(flat))
    assert gradient @ probe == pytest.approx(pulled @ mapped.transpose(probe), rel=1e-4)
    for tensor in tensors_of(outputs, parts):
        assert torch.equal(tensor, tensor.float().double())


def test_a_record_behind_the_map_has_the_same_bits_in_any_company() -> None:
    model = _network()
    tangents = _tangents(model)
    tangents.behind(_map_of(model))
    flat = flat_parameters(model).double().numpy()
    x = torch.randn(tangents.chunk, 1, 4, 4)
    whole = tensors_of(*tangents.of(flat, x))
    for chosen in ([5, 0], [tangents.chunk - 1], [3, 2, 1]):
        loud = x[chosen].clone()
        loud[1:] *= 1e30
        alone = tensors_of(*tangents.of(flat, loud))
        for some, every in zip(alone, whole, strict=True):
            assert torch.equal(some[0], every[chosen[0]])


def test_where_bits_depend_on_company_records_are_taken_one_by_one() -> None:
    """A map whose sums run over the chunk, as a matrix kernel's might by its blocks."""

    class Mixing:
        def part(self, start, part):
            for tensor in part.tensors():
                tensor += 1e-3 * tensor.nan_to_num().sum()
            return part

        def transpose(self, released):
            return released

    tangents = _tangents(_network())
    assert tangents.chunk > 1
    tangents.behind(Mixing())
    assert tangents.chunk == 1


FACTS = PublicFacts("test", ("a", "b", "c"), (40, 40, 40), (1, 18, 18), LabelFacts(("x", "y", "z")))
PLAN = TrainingPlan().with_overrides(
    {
        "privacy.epsilon": 2.0,
        "privacy.delta": 1e-3,
        "federation.rounds": 2,
        "federation.local_steps": 12,
        "training.algorithm": "tangent-pass",
        "training.model": "cnn",
        "training.tangent_layers": "7,9",
        "training.preconditioner": "kronecker",
        "training.damping": 0.1,
        "training.learning_rate": 0.5,
        "training.feature_bound": 2.0,
    }
)


def test_a_loud_record_behind_the_map_moves_no_more_than_is_accounted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Skellam, "sample", lambda self, size, source: np.zeros(size, np.int64))
    design = calibrated(PLAN, FACTS)
    model = named_model(design.plan, FACTS.shape, FACTS.labels)
    first = 3.0 * flat_parameters(model).double().numpy()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(21, 1, 18, 18)).astype(np.float32)
    x[-1] *= 1e3
    y = rng.integers(0, 3, 21)
    sent = [
        local_updater(design, design.silos[0], Records(x[:count], y[:count]), model)(
            first, RandomSource.simulation(4)
        ).vector
        for count in (20, 21)
    ]
    apart = float(np.linalg.norm((sent[1] - sent[0]).astype(np.float64)))
    assert 0.0 < apart <= design.silos[0].l2_grid


# -- layers of a public start

_RUN = """
[privacy]
epsilon = 20.0
[federation]
silos = 2
rounds = 2
local_steps = 8
colluding = 0
[training]
algorithm = "tangent-pass"
model = "mlp"
features = "centred"
hidden = [12, 8]
tangent_layers = "3,5"
preconditioner = "kronecker"
learning_rate = 0.5
feature_bound = 2.0
[data]
name = "digits"
"""


def _start(plan: TrainingPlan, seed: int) -> Start:
    facts = PublicFacts("digits", ("a",), (1,), (1, 8, 8), LabelFacts(tuple("0123456789")))
    model = named_model(plan, facts.shape, facts.labels)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) / 4
    origin = StartedFrom(model="", public="a test's")
    own = flat_parameters(model).double().numpy()
    return Start.of_vector(own, origin, frozen=frozen_parameters(model))


def test_a_run_keeps_the_layers_of_its_public_start(tmp_path: Path) -> None:
    plan = TrainingPlan.from_toml(_RUN)
    start = _start(plan, 1)
    assert start.frozen is not None
    path = tmp_path / "start.json"
    path.write_text(start.to_text())
    run = sumus.train(
        plan,
        options=RunOptions(root=tmp_path, ledger=False, start_from=path),
        simulation=Simulation(seed=1),
    )
    assert run.plan.training.frozen_layers == frozen_hash(start.frozen)
    flat = torch.cat([each.detach().reshape(-1) for each in run.model.module.parameters()]).double()
    np.testing.assert_array_equal(flat[: len(start.frozen)].numpy(), start.frozen)
    assert not np.array_equal(flat[len(start.frozen) :].numpy(), start.parameters)
    kept = Start.read(run.path / FROZEN_START)
    np.testing.assert_array_equal(kept.frozen, start.frozen)


def test_layers_that_the_plan_does_not_name_are_refused() -> None:
    plan = TrainingPlan.from_toml(_RUN)
    start, other = _start(plan, 1), _start(plan, 2)
    named = with_start(plan, start)
    data = _blank()
    prepare(named, data, frozen=start.frozen)
    with pytest.raises(PlanError, match="other layers"):
        prepare(named, data, frozen=other.frozen)
    with pytest.raises(PlanError, match="not on this machine"):
        prepare(named, data)
    with pytest.raises(PlanError, match="frozen_layers"):
        with_start(plan.replace("training", frozen_layers=frozen_hash(other.frozen)), start)
    with pytest.raises(PlanError, match="trains all"):
        with_start(TrainingPlan.from_toml(_RUN.replace('tangent_layers = "3,5"\n', "")), start)


def test_a_released_start_brings_no_layers() -> None:
    own = np.ones(3)
    with pytest.raises(DataError, match="must be a public one"):
        Start.of_vector(own, StartedFrom(model="", run="r", round=1), frozen=own)


def _blank():
    from sumus.data import FederatedData, SiloRecords

    one = Records(np.zeros((1, 1, 8, 8), np.float32), np.zeros(1, np.int64))
    silo = SiloRecords("a", one, one, one)
    return FederatedData("digits", (silo,), (1, 8, 8), LabelFacts(tuple("0123456789")))


def test_neighbouring_tables_of_a_layer_go_through_its_map_together() -> None:
    model = _network()
    parts = _tangents(model).of(flat_parameters(model).double().numpy(), torch.zeros(1, 1, 4, 4))[1]
    assert len(mapped_parts(parts, _map_of(model))) == len(parts) - 1
