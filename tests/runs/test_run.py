"""Runs that are stopped at any moment continue exactly, release nothing twice and never
under-count.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sumus.books import Ledger, RunFolder
from sumus.data import FederatedData, Records
from sumus.errors import (
    GuaranteeError,
    PlanError,
    PolicyError,
    RoundAborted,
    StorageError,
    SumusError,
)
from sumus.parties import SumsInProcess
from sumus.plan import TrainingPlan
from sumus.runs import RunOptions, Simulation, train
from sumus.training import Preconditioner
from support.small_data import small_data

PLAN = """
[privacy]
epsilon = 1.0
delta = 1e-4
[federation]
rounds = 4
local_steps = 6
[training]
algorithm = "convex-pass"
learning_rate = 0.3
"""


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))


def options(tmp_path: Path, **changes: object) -> RunOptions:
    return RunOptions(**({"root": tmp_path / "runs", "threads": 1} | changes))  # type: ignore[arg-type]


def test_a_run_leaves_plan_record_checkpoint_model_and_ledger(tmp_path: Path) -> None:
    run = train(
        TrainingPlan.from_toml(PLAN), silos=small_data(), options=options(tmp_path, compare=True)
    )
    folder = RunFolder.open(run.path)
    folder.verify()
    assert [each.round for each in folder.rounds()] == [1, 2, 3, 4]
    assert folder.rounds()[-1].epsilon_spent == pytest.approx(run.account.epsilon)
    assert run.account.epsilon <= 1.0
    # exact counts that no guarantee covers
    assert {each.counts_are for each in folder.rounds()} == {"simulation-only"}
    assert folder.plan.noise.noise_multiplier == run.account.noise_multiplier
    assert {"majority", "non_private", "alone_mean", "alone_min", "alone_max"} == set(run.baselines)
    saved = torch.load(run.path / "model.pt", weights_only=True)
    assert torch.equal(next(iter(saved.values())), next(run.module.parameters()))
    ledger = Ledger.of_dataset("own data")
    assert len(ledger.entries()) == 4
    assert ledger.total("record").epsilon == pytest.approx(run.account.epsilon)
    assert not list(run.path.glob("*.key")), "the secret outlives the run"


def test_a_run_sets_its_epsilon_aside_while_it_runs(tmp_path: Path) -> None:
    """Another one of the same records that would not fit beside it does not begin."""
    refused: list[str] = []
    given = TrainingPlan.from_toml(PLAN.replace("rounds = 4", "rounds = 2"))

    def meanwhile(entry: object) -> None:
        held = Ledger.of_dataset("own data").committed("record")
        assert held.epsilon == pytest.approx(1.0, rel=1e-3)
        try:
            train(given, silos=small_data(), options=options(tmp_path, max_epsilon=1.5))
        except PolicyError as error:
            refused.append(str(error))

    run = train(given, silos=small_data(), options=options(tmp_path), callbacks=meanwhile)
    assert len(refused) == 2
    assert "set aside by runs that have not ended" in refused[0]
    ledger = Ledger.of_dataset("own data")
    assert ledger.reservations() == []
    assert ledger.committed("record").epsilon == ledger.total("record").epsilon
    assert {entry.run for entry in ledger.entries()} == {run.path.name}


_STEPS = {
    "training.algorithm": "split-noise",
    "training.sampling_rate": 0.3,
    "federation.local_steps": 2,
}
_WHOLE_SILOS = {
    "privacy.unit": "silo",
    "training.algorithm": "silo",
    "training.sampling_rate": 0.5,
    "privacy.epsilon": 20.0,
}
KINDS_OF_PLANS: dict[str, dict[str, object]] = {
    "removable noise": {"noise.removable": True, "federation.dropouts": 1},
    "coins": _WHOLE_SILOS | {"noise.mechanism": "poisson-binomial", "privacy.accountant": "renyi"},
    "a rate per step": _STEPS | {"training.learning_rates": [0.2, 0.1]},
    "a silo that differs": _STEPS | {"silo.silo-1.clip_norm": 0.5},
    "some silos a round": _STEPS | {"federation.selection": "fixed", "federation.selected": 3},
}


@pytest.mark.parametrize("kind", KINDS_OF_PLANS)
def test_every_kind_of_plan_can_be_compared_with_no_privacy(kind: str, tmp_path: Path) -> None:
    """The comparison comes after the training: a plan that it cannot handle would lose a run that
    is already paid for.
    """
    plan = TrainingPlan.from_toml(PLAN).with_overrides(
        {"federation.rounds": 1} | KINDS_OF_PLANS[kind]
    )
    run = train(plan, silos=small_data(silos=5), options=options(tmp_path, compare=True))
    assert set(run.baselines) == {"majority", "non_private", "alone_mean", "alone_min", "alone_max"}


def test_an_interrupted_run_continues_to_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secret is the same, so the continued run must end with the very same bits as an
    undisturbed one.
    """
    monkeypatch.setattr("sumus.runs.secret.fresh_secret", lambda: b"\7" * 32)
    whole = train(TrainingPlan.from_toml(PLAN), silos=small_data(), options=options(tmp_path))

    class StopError(Exception):
        pass

    def stop_after_two(design: object, record: object) -> None:
        if record.round == 2:  # type: ignore[attr-defined]
            raise StopError

    with pytest.raises(StopError):
        train(
            TrainingPlan.from_toml(PLAN),
            silos=small_data(),
            options=options(tmp_path, name="stopped"),
            progress=stop_after_two,
        )
    (path,) = (tmp_path / "runs").glob("stopped-*")
    resumed = train(silos=small_data(), options=options(tmp_path, resume=path))
    assert torch.equal(next(resumed.module.parameters()), next(whole.module.parameters()))
    assert len(resumed.rounds) == 4


_MAPPED = {
    "training.model": "mlp",
    "training.hidden": (6,),
    "training.preconditioner": "kronecker",
    "aggregation.modulus_bits": 48,
}
REPEATED: dict[str, dict[str, object]] = {
    "fixed": {},
    "removable": {"noise.removable": True},
    "newton": {
        "training.algorithm": "newton",
        "federation.local_steps": 1,
        "aggregation.modulus_bits": 48,
    },
    "tangent-pass behind a map": {"training.algorithm": "tangent-pass"} | _MAPPED,
    "split-noise behind a map": _STEPS | _MAPPED,
}


@pytest.mark.parametrize(
    ("kind", "threads"),
    [
        *itertools.product(("fixed", "removable"), (1, 3)),
        *((kind, 3) for kind in list(REPEATED)[2:]),
    ],
)
def test_a_crash_between_release_and_checkpoint_repeats_the_same_vector(
    kind: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the server may have seen before the crash is what it sees again: no second noise for the
    same round.

    A silo drops out of the round, so that the removable noise that stands in for it stays in the
    sum.
    """
    seen: list[np.ndarray] = []
    real = SumsInProcess.sum

    def crash_in_round_three(self: SumsInProcess, number: int, *others: object) -> object:
        summed = real(self, number, *others)
        seen.append(np.array(summed.total_grid))
        if number == 2 and len(seen) == 3:
            raise KeyboardInterrupt
        return summed

    monkeypatch.setattr(SumsInProcess, "sum", crash_in_round_three)
    plan = TrainingPlan.from_toml(PLAN).with_overrides({"federation.dropouts": 1} | REPEATED[kind])
    chosen = options(tmp_path, threads=threads, vanishing={2: {"masked": frozenset({0})}})
    with pytest.raises(KeyboardInterrupt, match=r"RunOptions\(resume="):
        train(plan, silos=small_data(silos=4), options=chosen)
    (path,) = (tmp_path / "runs").iterdir()
    Preconditioner.forget()
    train(silos=small_data(silos=4), options=replace(chosen, resume=path, threads=1))
    assert np.array_equal(seen[2], seen[3])
    entries = Ledger.of_dataset("own data").entries()
    assert [entry.round for entry in entries] == [1, 2, 3, 4], (
        "the release was entered once, before it happened"
    )


def test_a_resumed_run_without_its_secret_is_refused(tmp_path: Path) -> None:
    def stop(design: object, record: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            TrainingPlan.from_toml(PLAN),
            silos=small_data(),
            options=options(tmp_path),
            progress=stop,
        )
    (path,) = (tmp_path / "runs").iterdir()
    next(path.glob("*.key")).unlink()
    with pytest.raises(StorageError, match=r"secret\.key"):
        train(silos=small_data(), options=options(tmp_path, resume=path))


def test_the_secret_of_a_run_that_died_at_its_very_end_is_destroyed_later(tmp_path: Path) -> None:
    run = train(TrainingPlan.from_toml(PLAN), silos=small_data(), options=options(tmp_path))
    # as after a crash between the summary and the end
    (run.path / "secret.key").write_bytes(bytes(64))
    train(silos=small_data(), options=options(tmp_path, resume=run.path))
    assert not (run.path / "secret.key").exists()


def test_a_corrupted_checkpoint_is_refused_in_one_line(tmp_path: Path) -> None:
    def stop(design: object, record: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            TrainingPlan.from_toml(PLAN),
            silos=small_data(),
            options=options(tmp_path),
            progress=stop,
        )
    (path,) = (tmp_path / "runs").iterdir()
    file = path / "checkpoint.npz"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(StorageError, match=r"checkpoint\.npz") as caught:
        train(silos=small_data(), options=options(tmp_path, resume=path))
    assert "\n" not in str(caught.value)


def test_noise_below_the_target_is_refused_before_anything_is_released(tmp_path: Path) -> None:
    plan = TrainingPlan.from_toml(PLAN).with_overrides({"noise.noise_multiplier": 0.5})
    with pytest.raises(GuaranteeError, match=r"privacy\.epsilon = 1 is not met"):
        train(plan, silos=small_data(), options=options(tmp_path))
    assert not (tmp_path / "runs").exists()


def test_a_policy_stops_the_run_that_would_exceed_it(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("max_epsilon = 1.5\n")
    train(
        TrainingPlan.from_toml(PLAN), silos=small_data(), options=options(tmp_path, policy=policy)
    )
    with pytest.raises(PolicyError):
        train(
            TrainingPlan.from_toml(PLAN),
            silos=small_data(),
            options=options(tmp_path, policy=policy),
        )
    assert Ledger.of_dataset("own data").total("record").epsilon <= 1.5


def test_a_simulation_with_a_public_seed_says_that_its_guarantee_is_void(tmp_path: Path) -> None:
    first = train(
        TrainingPlan.from_toml(PLAN),
        silos=small_data(),
        options=options(tmp_path),
        simulation=Simulation(3),
    )
    second = train(
        TrainingPlan.from_toml(PLAN),
        silos=small_data(),
        options=options(tmp_path),
        simulation=Simulation(3),
    )
    assert torch.equal(next(first.module.parameters()), next(second.module.parameters()))
    assert "public seed" in (RunFolder.open(first.path).void or "")
    summary = first.summary()
    assert (summary["epsilon"], summary["proved"]) == (None, False), (
        "a script must not read an ε that does not hold"
    )
    assert "public seed" in summary["void"]


def _stopped(tmp_path: Path, simulation: Simulation | None = None) -> Path:
    def stop(design: object, record: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            TrainingPlan.from_toml(PLAN),
            silos=small_data(),
            options=options(tmp_path),
            simulation=simulation,
            progress=stop,
        )
    (path,) = (tmp_path / "runs").iterdir()
    return path


def _one_record_other(data: FederatedData) -> FederatedData:
    first = data.silos[0]
    x = first.train.x.copy()
    x[3] = -x[3]
    return replace(data, silos=(replace(first, train=Records(x, first.train.y)), *data.silos[1:]))


def _one_label_other(data: FederatedData) -> FederatedData:
    first = data.silos[0]
    y = first.train.y.copy()
    y[3] = (y[3] + 1) % 3
    return replace(data, silos=(replace(first, train=Records(first.train.x, y)), *data.silos[1:]))


def _one_test_record_other(data: FederatedData) -> FederatedData:
    first = data.silos[0]
    return replace(
        data, silos=(replace(first, test=Records(-first.test.x, first.test.y)), *data.silos[1:])
    )


@pytest.mark.parametrize("changed", [_one_record_other, _one_label_other, _one_test_record_other])
def test_an_open_round_is_never_repeated_on_other_records(
    changed: Callable[[FederatedData], FederatedData], tmp_path: Path
) -> None:
    """Its noise would be the same, and the difference of the two sums what one record changes,
    without any.
    """
    path = _stopped(tmp_path)
    ledger = len(Ledger.of_dataset("own data").entries())
    with pytest.raises(GuaranteeError, match="began with other records"):
        train(silos=changed(small_data()), options=options(tmp_path, resume=path))
    assert RunFolder.open(path).last_round == 1
    assert len(Ledger.of_dataset("own data").entries()) == ledger
    assert len(train(silos=small_data(), options=options(tmp_path, resume=path)).rounds) == 4


def _own_net(seed: int, *, activation: torch.nn.Module, frozen: float = 1.0) -> torch.nn.Module:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 5), activation, torch.nn.Linear(5, 3, bias=False), torch.nn.LayerNorm(3)
    )
    torch.nn.init.constant_(model[3].weight, frozen).requires_grad_(False)
    return model


def test_an_open_round_is_never_repeated_with_another_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with other layers, nor other weights that stay fixed; the weights that are trained are
    the run's own, from the first round on.
    """
    seen: list[np.ndarray] = []
    real = SumsInProcess.sum

    def crash_once(self: SumsInProcess, number: int, *others: object) -> object:
        summed = real(self, number, *others)
        seen.append(np.array(summed.total_grid))
        if len(seen) == 1:
            raise KeyboardInterrupt
        return summed

    monkeypatch.setattr(SumsInProcess, "sum", crash_once)
    plan = TrainingPlan.from_toml(PLAN).with_overrides(_OWN)
    with pytest.raises(KeyboardInterrupt):
        train(
            plan,
            model=_own_net(0, activation=torch.nn.Tanh()),
            silos=small_data(),
            options=options(tmp_path),
        )
    (path,) = (tmp_path / "runs").iterdir()
    again = options(tmp_path, resume=path)
    for other in (
        _own_net(0, activation=torch.nn.ReLU()),
        _own_net(0, activation=torch.nn.Tanh(), frozen=2.0),
    ):
        with pytest.raises(GuaranteeError, match="another model"):
            train(model=other, silos=small_data(), options=again)
    train(model=_own_net(1, activation=torch.nn.Tanh()), silos=small_data(), options=again)
    assert np.array_equal(seen[0], seen[1])


def test_a_run_with_secret_noise_is_never_continued_with_a_public_seed(tmp_path: Path) -> None:
    """The record would go on claiming the guarantee, and the rest of the run would be on no
    ledger.
    """
    path = _stopped(tmp_path)
    with pytest.raises(
        PlanError, match=r"seed must be left out: .* began without a public seed, got 5"
    ):
        train(silos=small_data(), options=options(tmp_path, resume=path), simulation=Simulation(5))
    assert RunFolder.open(path).last_round == 1
    assert (
        train(silos=small_data(), options=options(tmp_path, resume=path)).summary()["void"] is None
    )


def test_a_simulation_is_continued_with_a_public_seed_only(tmp_path: Path) -> None:
    path = _stopped(tmp_path, Simulation(5))
    with pytest.raises(PlanError, match="seed must be given"):
        train(silos=small_data(), options=options(tmp_path, resume=path))
    again = train(
        silos=small_data(), options=options(tmp_path, resume=path), simulation=Simulation(5)
    )
    assert len(again.rounds) == 4
    assert again.summary()["void"]


def test_a_run_without_noise_spends_everything(tmp_path: Path) -> None:
    plan = TrainingPlan.from_toml(PLAN).with_overrides(
        {"training.algorithm": "fedavg", "training.sampling_rate": 0.5}
    )
    run = train(plan, silos=small_data(), options=options(tmp_path))
    assert {each.epsilon_spent for each in RunFolder.open(run.path).rounds()} == {math.inf}
    assert run.summary()["epsilon"] is None


def test_two_runs_of_the_same_plan_draw_different_noise(tmp_path: Path) -> None:
    models = [
        train(TrainingPlan.from_toml(PLAN), silos=small_data(), options=options(tmp_path)).module
        for _ in range(2)
    ]
    assert not torch.equal(next(models[0].parameters()), next(models[1].parameters()))


def test_an_own_model_trains_and_batch_norm_is_refused(tmp_path: Path) -> None:
    plan = TrainingPlan.from_toml(PLAN).with_overrides(
        {
            "training.algorithm": "split-noise",
            "training.sampling_rate": 0.5,
            "federation.local_steps": 2,
            "federation.rounds": 1,
        }
    )
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    before = model[0].weight.detach().clone()
    run = train(plan, model=model, silos=small_data(), options=options(tmp_path))
    assert run.plan.training.dimension == 6 * 5 + 5 + 5 * 3 + 3
    assert not torch.equal(run.module[0].weight, before)
    mixing = torch.nn.Sequential(
        torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3)
    )
    with pytest.raises((GuaranteeError, PlanError), match="GroupNorm"):
        train(plan, model=mixing, silos=small_data(), options=options(tmp_path))
    with pytest.raises(PlanError, match="convex-pass"):
        train(
            TrainingPlan.from_toml(PLAN), model=model, silos=small_data(), options=options(tmp_path)
        )


class OwnNet(torch.nn.Sequential):
    """A model that a plan names by its path."""

    def __init__(self, in_features: int, classes: int) -> None:
        super().__init__(
            torch.nn.Linear(in_features, 5), torch.nn.Tanh(), torch.nn.Linear(5, classes)
        )


_OWN = {
    "training.algorithm": "split-noise",
    "training.sampling_rate": 0.5,
    "federation.local_steps": 2,
    "federation.rounds": 1,
}


def test_the_parameters_of_a_model_named_by_its_path_are_counted(tmp_path: Path) -> None:
    plan = TrainingPlan.from_toml(PLAN).with_overrides(
        _OWN | {"training.model": f"{__name__}:OwnNet"}
    )
    run = train(plan, silos=small_data(), options=options(tmp_path))
    assert isinstance(run.module, OwnNet)
    assert run.plan.training.dimension == 6 * 5 + 5 + 5 * 3 + 3


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (torch.nn.Linear(7, 3), r"records of shape \(6,\) do not fit the model"),
        (torch.nn.Linear(6, 2), "one number for each of 3 classes, got 2"),
        (
            torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Unflatten(1, (3, 1))),
            r"must return \(records, classes\)",
        ),
        (torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.BatchNorm1d(3)), "GroupNorm"),
    ],
)
def test_a_model_that_does_not_fit_costs_nothing(
    model: torch.nn.Module, said: str, tmp_path: Path
) -> None:
    """A slip in one's own model must not use up the budget of the records: nothing was released."""
    with pytest.raises(SumusError, match=said):
        train(
            TrainingPlan.from_toml(PLAN).with_overrides(_OWN),
            model=model,
            silos=small_data(),
            options=options(tmp_path),
        )
    assert not Ledger.of_dataset("own data").entries()
    assert not (tmp_path / "runs").exists()


def test_losing_too_many_silos_ends_the_run_where_it_can_be_resumed(tmp_path: Path) -> None:
    gone = {1: {"masked": frozenset({0, 1})}}
    with pytest.raises(RoundAborted):
        train(
            TrainingPlan.from_toml(PLAN),
            silos=small_data(),
            options=options(tmp_path, vanishing=gone),
        )
    (path,) = (tmp_path / "runs").iterdir()
    assert RunFolder.open(path).last_round == 1
    assert len(train(silos=small_data(), options=options(tmp_path, resume=path)).rounds) == 4


@pytest.mark.long
@pytest.mark.deep
def test_kill_dash_nine_at_random_moments_then_resume(tmp_path: Path) -> None:
    """A real process, killed again and again, still ends with every round released once.

    The rounds take seconds in all, so that a test that looks late still finds the process at work.
    """
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "[privacy]\nepsilon = 1.0\ndelta = 1e-4\n[federation]\nsilos = 3\nrounds = "
        '120\nlocal_steps = 40\n[data]\nname = "digits"\n'
    )
    environment = os.environ | {"SUMUS_STATE": str(tmp_path / "state"), "OMP_NUM_THREADS": "1"}
    base = [sys.executable, "-m", "sumus", "train"]
    arguments = [str(plan), "--out", str(tmp_path / "runs"), "--no-report"]
    kills = 0
    for attempt in range(30):
        process = subprocess.Popen(
            [*base, *arguments, "--json"], stdout=subprocess.PIPE, env=environment
        )
        if attempt < 3:
            _wait_for_rounds(tmp_path, 10 * (attempt + 1), process)
            process.send_signal(signal.SIGKILL)
        out, _ = process.communicate(timeout=240)
        if process.returncode == 0:
            break
        kills += 1
        (folder,) = (tmp_path / "runs").iterdir()
        arguments = ["--resume", str(folder), "--no-report"]
    assert kills >= 1
    assert json.loads(out.splitlines()[-1])["rounds"] == 120
    (folder,) = (tmp_path / "runs").iterdir()
    RunFolder.open(folder).verify()
    rounds = [
        entry.round for entry in Ledger.of_dataset("digits", state=tmp_path / "state").entries()
    ]
    assert sorted(set(rounds)) == list(range(1, 121))
    assert len(rounds) == 120


def _wait_for_rounds(tmp_path: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(2400):
        files = list((tmp_path / "runs").glob("*/journal.jsonl"))
        if process.poll() is not None or (
            files and files[0].read_bytes().count(b'"round_id"') >= count
        ):
            return
        time.sleep(0.05)


def test_a_run_without_noise_spends_everything_on_the_ledger(tmp_path: Path) -> None:
    plan = TrainingPlan.from_toml(
        '[federation]\nsilos=3\nrounds=1\nlocal_steps=1\n[training]\nalgorithm="fedavg"\nsampling_rate=0.1\n[data]\nname="digits"\n'
    )
    train(plan, options=RunOptions(root=tmp_path / "runs", state=tmp_path / "state", threads=1))
    spent = Ledger.of_dataset("digits", state=tmp_path / "state").total("record")
    assert spent.epsilon == float("inf")
    assert not spent.proved


def test_secure_metrics_are_charged_to_test_records_and_must_meet_the_target(
    tmp_path: Path,
) -> None:
    plan = TrainingPlan.from_toml(
        "[privacy]\nepsilon=3.0\ndelta=1e-4\n[federation]\nsilos=3\nrounds=2\nlocal_steps=40\n"
        '[evaluation]\nmetrics="secure"\nnoise_multiplier=2.0\n[data]\nname="digits"\n'
    )
    options = RunOptions(root=tmp_path / "runs", state=tmp_path / "state", threads=1)
    with pytest.raises(GuaranteeError, match="test records"):
        train(
            plan.with_overrides({"evaluation.every": 1, "evaluation.noise_multiplier": 1.2}),
            options=options,
        )
    run = train(
        plan.with_overrides({"evaluation.every": 1, "evaluation.noise_multiplier": None}),
        options=options,
    )
    lines = "".join(
        path.read_text(encoding="utf-8") for path in (tmp_path / "state").rglob("*.jsonl")
    )
    assert lines.count('"purpose":"metrics"') == 2
    assert lines.count('"purpose":"model"') == 2
    assert run.account is not None
    assert run.account.epsilon <= 3.0
