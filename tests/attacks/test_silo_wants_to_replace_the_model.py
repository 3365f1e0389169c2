"""A silo wants the model to be what it likes, by adding a vector to the sum that no records make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sumus.books import Ledger
from sumus.data import load_silo
from sumus.guarantee import NormGate
from sumus.parties import work_on
from sumus.training import LocalUpdate
from support.local_federation import LocalFederation, plan

_STEPS = {
    "federation.local_steps": 2,
    "training.sampling_rate": 0.5,
    "aggregation.modulus_bits": 40,
}
ALGORITHMS = {
    "convex-pass": {},
    "dp-sgd": {"training.algorithm": "dp-sgd", **_STEPS},
    "silo": {"training.algorithm": "silo", "privacy.unit": "silo", **_STEPS},
}


@dataclass(frozen=True)
class Poison:
    """Work of a silo that sends what it likes."""

    honest: Any
    vector: Callable[[np.ndarray], np.ndarray]

    def update(self, parameters: Any, source: Any, seeds: Any, number: int) -> LocalUpdate:
        return LocalUpdate(
            self.vector(self.honest.update(parameters, source, seeds, number).vector)
        )

    def counts(self, parameters: Any, source: Any) -> np.ndarray:
        return self.vector(self.honest.counts(parameters, source))


def everywhere(vector: np.ndarray) -> np.ndarray:
    return np.full(len(vector), 1 << 27, dtype=np.int64)


@pytest.fixture
def poisoned(tmp_path: Path):
    built: list[LocalFederation] = []

    def build(overrides: dict[str, object], vector=everywhere) -> LocalFederation:
        across = LocalFederation(tmp_path / str(len(built)), plan(overrides))
        built.append(across)
        honest = work_on(load_silo)
        across.parties[0]._open_work = lambda agreement, name: Poison(
            honest(agreement, name), vector
        )
        return across

    yield build
    for each in built:
        each.close()


def trained(across: LocalFederation):
    server = across.server()
    server.greet()
    with across.run_folder() as run:
        return server, list(server.train(run)), run.events


@pytest.mark.parametrize("name", ALGORITHMS)
def test_by_a_vector_that_no_records_make(poisoned, name: str, monkeypatch) -> None:
    across = poisoned(ALGORITHMS[name])
    server, entries, _ = trained(across)
    assert [entry.round for entry in entries] == [1, 2, 3]
    for entry in entries:
        (note,) = entry.notes
        assert note.startswith("the sum was refused: it is ")
        assert note.endswith(" times as long as honest silos can make it, so a silo poisoned it")
        assert entry.update_norm == 0.0
    assert not server.server.parameters.any()  # where it began
    # the round counts: number and ε are used, at every silo
    for silo in across.roster.names:
        spent = [
            entry.epsilon
            for entry in Ledger.of_dataset("digits", state=across.folder(silo)).entries()
        ]
        assert spent == [entry.epsilon_spent for entry in entries]
    # the control: without the gate one silo of four makes the model what it likes
    monkeypatch.setattr(NormGate, "refusal", lambda self, total, survivors, *, weight_norm: None)
    replaced, _, _ = trained(poisoned(ALGORITHMS[name]))
    parameters = replaced.server.parameters
    assert np.linalg.norm(parameters) > 10.0
    assert np.allclose(parameters, parameters[0], rtol=0.1)


def test_by_counts_that_no_records_make(poisoned) -> None:
    overrides = {"evaluation.metrics": "secure", "federation.rounds": 1}

    def only_counts(vector: np.ndarray) -> np.ndarray:
        # a measuring vector is zero behind its counts, an update is noisy everywhere
        return vector if vector[-1] else everywhere(vector)

    _, (entry,), events = trained(poisoned(overrides, only_counts))
    assert entry.metrics == {}
    (lost,) = [detail["reason"] for event, detail in events if event == "aborted"]
    assert "the measurement after round 1 is lost: the sum was refused" in lost


def test_within_the_bound_a_silo_moves_the_sum_as_far_as_all_of_them_could(poisoned) -> None:
    """What the gate does not do: below the bound a poisoned sum looks like an honest one."""
    across = poisoned({"federation.rounds": 1}, lambda vector: vector)
    gate = NormGate(across.agreement.design)
    most = gate.largest_update_grid(range(4), weight_norm=0.0)
    pushed = poisoned(
        {"federation.rounds": 1},
        lambda vector: np.full(len(vector), int(0.7 * most / np.sqrt(len(vector)))),
    )
    _, (entry,), _ = trained(pushed)
    assert entry.notes == ()
    assert entry.update_norm is not None
    _, (honest,), _ = trained(across)
    assert honest.update_norm is not None
    assert entry.update_norm > 3.0 * honest.update_norm
