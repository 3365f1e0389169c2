"""Secure metrics across machines: of the model that is released, once, whatever stops in between;
real parties, in-process engine.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parties.test_parties import Crash, invitation, kill_server
from sumus.books import Ledger, RunFolder
from sumus.data import load
from sumus.noise import Skellam
from sumus.parties import ServerParty
from sumus.runs import finish, is_over
from sumus.secagg.messages import MaskedInput
from sumus.training import evaluate, prepare
from support.local_federation import QUICK, LocalFederation, plan, refused
from support.small_federation import simulated

SECURE = {"evaluation.metrics": "secure"}


@pytest.fixture
def federation(tmp_path: Path):
    made: list[LocalFederation] = []

    def build(overrides=None, **options) -> LocalFederation:
        made.append(
            LocalFederation(tmp_path / str(len(made)), plan(SECURE | (overrides or {})), **options)
        )
        return made[-1]

    yield build
    for each in made:
        each.close()


def exact(across: LocalFederation, parameters: np.ndarray) -> tuple[float, float]:
    """Accuracy and loss of a model on all silos' test records, in the clear."""
    bench = prepare(across.agreement.plan, load(across.agreement.plan))
    found = [
        evaluate(
            bench.model,
            parameters.astype(np.float32).astype(np.float64),
            silo.test,
            task=across.agreement.plan.task,
        )
        for silo in bench.data.silos
    ]
    records = sum(each.records for each in found)
    return sum(each["accuracy"] * each.records for each in found) / records, sum(
        each["loss"] * each.records for each in found
    ) / records


def metrics_rounds(across: LocalFederation, name: str) -> list[int]:
    entries = Ledger.of_dataset("digits", state=across.folder(name)).entries()
    return [entry.round for entry in entries if entry.purpose == "metrics"]


@pytest.mark.parametrize(
    "overrides",
    [{}, {"training.iterate_average": 0.7}, {"noise.removable": True}, {"evaluation.every": 1}],
)
def test_the_accuracy_that_is_told_is_that_of_the_released_model(
    federation, monkeypatch, overrides
) -> None:
    """Without noise it is exact, up to the grid of the loss; the other models that are about have
    other losses.
    """
    monkeypatch.setattr(
        Skellam, "sample", lambda self, size, source: np.zeros(size, dtype=np.int64)
    )
    across = federation(overrides | {"federation.rounds": 2})
    server = across.server()
    server.greet()
    told, truth = [], []
    with across.run_folder() as run:
        for record in server.train(run):
            told.append((record.metrics.get("accuracy"), record.metrics.get("loss")))
            truth.append(exact(across, server.server.released))
        finish(run, server)
        summary = run.summary
    assert abs(truth[1][1] - truth[0][1]) > 0.02
    if "training.iterate_average" in overrides:
        assert abs(truth[1][1] - exact(across, server.server.parameters)[1]) > 0.02
    if "evaluation.every" not in overrides:
        assert told.pop(0) == (None, None)
    for one, other in zip(reversed(told), reversed(truth), strict=False):
        assert one[0] == pytest.approx(other[0], abs=1e-12)
        assert one[1] == pytest.approx(other[1], abs=4.0 / 1024)
    assert (summary["accuracy"], summary["loss"], summary["metrics_are"]) == (*told[-1], "secure")
    assert summary["accuracy_plus_minus"] > 0.0


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_server_killed_while_it_measures_asks_again_word_for_word(
    federation, stage, monkeypatch
) -> None:
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", "3")
    across = federation(seed=3)
    server = across.server()
    server.greet()
    run = across.run_folder(void="public seed")
    # three rounds of three exchanges come before
    kill_server(across, server, run, after=10 + stage)
    again = across.server()
    again.greet()
    with RunFolder.open(run.path, resume=True) as resumed:
        assert resumed.last_round == 3
        assert not resumed.rounds()[-1].metrics
        assert not is_over(resumed) or stage < 3
        assert list(again.train(resumed)) == []
        finish(resumed, again)
        last = resumed.rounds()[-1]
    design = across.agreement.design
    alone = simulated(design, prepare(design.plan, load(design.plan)), 3)
    *_, outcome = alone.rounds()
    assert last.metrics == outcome.metrics.numbers
    assert all(metrics_rounds(across, name) == [3] for name in across.roster.names)


def test_a_server_that_ends_before_it_measures_does_so_when_it_is_back(
    federation, monkeypatch
) -> None:
    across = federation()
    server = across.server()
    server.greet()
    run = across.run_folder()
    with monkeypatch.context() as patch:
        patch.setattr(ServerParty, "_measure", lambda *arguments: (_ for _ in ()).throw(Crash))
        with pytest.raises(Crash):
            list(server.train(run))
    run.close()
    with RunFolder.open(run.path, resume=True) as resumed:
        assert not is_over(resumed)
        again = across.server()
        again.greet()
        assert [record.round for record in again.train(resumed)] == [2, 3]
        assert is_over(resumed)
        assert resumed.rounds()[-1].metrics


def test_when_the_last_round_is_lost_the_model_before_it_is_measured(federation) -> None:
    across = federation({"federation.rounds": 2})
    server = across.server()
    server.greet()
    run = across.run_folder()
    kill_server(across, server, run, after=4)
    across.stop(3)
    again = across.server(QUICK.__class__(set_up=6.0, update=60.0, stage=60.0, retry=0.05))
    again.greet()
    with RunFolder.open(run.path, resume=True) as resumed:
        assert list(again.train(resumed)) == []
        assert is_over(resumed)
        finish(resumed, again)
        (measured,) = resumed.measurements()
        assert (measured.round, measured.of_round) == (2, 1)
        assert resumed.rounds()[-1].metrics == resumed.summary["metrics"] == measured.metrics
        assert resumed.summary["lost_rounds"] == 1


def test_a_model_does_not_wait_for_a_measurement_that_cannot_be_made(
    federation, monkeypatch
) -> None:
    """Nor does it take the accuracy of the model before."""
    across = federation({"evaluation.every": 1})
    server = across.server()
    server.greet()
    with across.run_folder() as run:
        for record in server.train(run):
            if record.round == 2:
                summing = server.summing
                add_up = summing.sum

                def left(*arguments, add_up=add_up, summing=summing):
                    summed = add_up(*arguments)
                    across.stop(0)
                    across.stop(1)
                    summing._present = frozenset({2, 3})
                    return summed

                monkeypatch.setattr(summing, "sum", left)
        assert run.last_round == 3
        assert is_over(run)
        finish(run, server)
        assert [not record.metrics for record in run.rounds()] == [False, False, True]
        assert (run.summary["accuracy"], run.summary["metrics_are"]) == (None, "none")
        assert any(
            event == "aborted" and detail["purpose"] == "metrics" for event, detail in run.events
        )


def test_attack_more_measurements_than_the_plan_pays_for(federation) -> None:
    across = federation()
    zeros = np.zeros(across.agreement.plan.training.dimension)
    for number in (0, 1, 3):
        asked = invitation(across, number, zeros, purpose=1, round_id=bytes([number + 1]) * 32)
        told = refused(across.ask(0, asked))
        assert "does not measure" in told or "beyond the 3 rounds" in told
    assert isinstance(across.ask(0, invitation(across, 2, zeros, purpose=1)), MaskedInput)
    again = invitation(across, 2, zeros, purpose=1, round_id=b"s" * 32)
    assert "answered" in refused(across.ask(0, again))
    # its turn is over
    late = invitation(across, 2, zeros, purpose=0, round_id=b"t" * 32)
    assert "answered" in refused(across.ask(0, late))
    unknown = invitation(across, 2, zeros, purpose=2, round_id=b"u" * 32)
    assert "no purpose 2" in refused(across.ask(0, unknown))
    assert metrics_rounds(across, "silo-0") == [3]


@pytest.mark.parametrize("metrics", ["none", "simulation"])
def test_attack_a_measurement_under_a_plan_without_secure_metrics(federation, metrics) -> None:
    across = federation({"evaluation.metrics": metrics})
    zeros = np.zeros(across.agreement.plan.training.dimension)
    asked = invitation(across, 2, zeros, purpose=1)
    assert "does not measure" in refused(across.ask(0, asked))
    assert not Ledger.of_dataset("digits", state=across.folder("silo-0")).entries()
