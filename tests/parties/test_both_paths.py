"""A run in one process and a run across machines say the same: what is void, missing, half-written,
and what a round is called.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sumus.books import Ledger, Policy, RoundEntry, RunFolder
from sumus.errors import PolicyError, StorageError
from sumus.parties import own_releases, round_identifier, secure_sum
from sumus.plan import TrainingPlan
from sumus.runs import RunOptions, Simulation, finish, open_run, train
from support.local_federation import PLAN, LocalFederation, plan

EXACT_COUNTS = {"silo_scores", "clipped_fraction", "nonfinite", "saturated", "counts_are"}


@pytest.fixture
def across(tmp_path: Path) -> Iterator[Callable[..., LocalFederation]]:
    """Makes federations of real parties that are closed when the test ends."""
    made: list[LocalFederation] = []

    def make(overrides: dict[str, object] | None = None, **options: Any) -> LocalFederation:
        made.append(LocalFederation(tmp_path / f"across-{len(made)}", plan(overrides), **options))
        return made[-1]

    yield make
    for federation in made:
        federation.close()


def trained_across(federation: LocalFederation, *, rounds: int | None = None) -> RunFolder:
    """The run of a federation's plan, as a server's process leaves it; the summary is there if all
    rounds are.
    """
    server = federation.server()
    server.greet()
    with open_run(
        federation.agreement,
        federation.roster,
        federation.root / "runs",
        simulated=server.simulated,
    ) as run:
        list(server.train(run, rounds=rounds))
        if rounds is None:
            finish(run, server)
    return RunFolder.open(run.path)


def options(tmp_path: Path, **more: Any) -> RunOptions:
    return RunOptions(root=tmp_path / "runs", state=tmp_path / "state", threads=1, **more)


# -- void


@pytest.mark.parametrize("path", ["in process", "across machines"])
def test_a_void_run_has_no_epsilon(
    tmp_path: Path, across: Callable[..., LocalFederation], monkeypatch, path: str
) -> None:
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", "1")
    run = (
        RunFolder.open(train(plan(), options=options(tmp_path), simulation=Simulation(1)).path)
        if path == "in process"
        else trained_across(across(seed=1))
    )
    summary = json.loads((run.path / "summary.json").read_text())
    assert (summary["epsilon"], summary["delta"], summary["analysis"], summary["proved"]) == (
        None,
        None,
        None,
        False,
    )
    assert "public seed" in summary["void"]
    assert {record.epsilon_spent for record in run.rounds()} == {math.inf}


def test_a_private_run_keeps_its_epsilon(
    tmp_path: Path, across: Callable[..., LocalFederation]
) -> None:
    summaries = [
        RunFolder.open(train(plan(), options=options(tmp_path)).path).summary,
        trained_across(across()).summary,
    ]
    for summary in summaries:
        assert summary is not None
        assert 1.9 < summary["epsilon"] <= 2.0
        assert summary["void"] is None
        assert summary["proved"]
    shared = set(summaries[0] or {}) & set(summaries[1] or {})
    assert shared >= {
        "accuracy",
        "loss",
        "epsilon",
        "delta",
        "proved",
        "analysis",
        "void",
        "rounds",
        "seconds",
    }


# -- what is missing or half-written


def test_a_missing_checkpoint_is_refused_across_machines_too(
    across: Callable[..., LocalFederation],
) -> None:
    federation = across()
    run = trained_across(federation, rounds=2)
    (run.path / "checkpoint.npz").unlink()
    with pytest.raises(
        StorageError, match=r"checkpoint\.npz is missing after round 2\. Restore it from a backup\."
    ):
        trained_across(federation)


def test_a_crash_while_the_model_is_written_keeps_the_old_file(
    tmp_path: Path, across: Callable[..., LocalFederation], monkeypatch
) -> None:
    federation = across({"federation.rounds": 1})
    server = federation.server()
    server.greet()
    with open_run(
        federation.agreement, federation.roster, tmp_path / "runs", simulated=False
    ) as run:
        list(server.train(run))
        (run.path / "model.pt").write_bytes(b"old")

        def crash(state: object, target: Any) -> None:
            if isinstance(target, Path):
                target.write_bytes(b"half")
            raise OSError("no space left on device")

        monkeypatch.setattr(torch, "save", crash)
        with pytest.raises(OSError, match="no space"):
            finish(run, server)
        assert (run.path / "model.pt").read_bytes() == b"old"
        assert run.summary is None


# -- what a round is called, and what is kept of it

SELECTIONS = {
    "all": {},
    "fixed": {
        "federation.selection": "fixed",
        "federation.selected": 3,
        "federation.silos": 5,
        "federation.dropouts": 0,
    },
    # never too few
    "poisson": {
        "federation.selection": "poisson",
        "federation.selection_rate": 1.0,
        "federation.dropouts": 0,
    },
}


@pytest.mark.parametrize("selection", SELECTIONS)
def test_protocol_record_and_ledger_call_a_round_by_one_name(
    tmp_path: Path, monkeypatch, selection: str
) -> None:
    spoken: list[str] = []
    protocol = secure_sum.secure_round

    def listening(*arguments: Any, round_id: bytes, **more: Any) -> Any:
        spoken.append(round_id.hex())
        return protocol(*arguments, round_id=round_id, **more)

    monkeypatch.setattr(secure_sum, "secure_round", listening)
    run = train(
        TrainingPlan.from_toml(PLAN).with_overrides(SELECTIONS[selection]),
        options=options(tmp_path),
    )
    entries = Ledger.of_dataset("digits", state=tmp_path / "state").entries()
    names = RunFolder.open(run.path).silos
    invited = [
        frozenset(map(names.index, detail["silos"]))
        for event, detail in RunFolder.open(run.path).events
        if event == "invited"
    ]
    assert len(set(spoken)) == 3
    assert spoken == [
        round_identifier(run.plan, number, places).hex() for number, places in enumerate(invited)
    ]
    assert [record.round_id for record in run.rounds] == spoken
    assert [entry.round_id for entry in entries] == spoken


def fields_of(record: RoundEntry) -> set[str]:
    return {name for name, value in asdict(record).items() if value is not None} - EXACT_COUNTS


@pytest.mark.parametrize("metrics", ["none", "secure"])
def test_a_record_has_the_same_fields_on_both_paths(
    tmp_path: Path, across: Callable[..., LocalFederation], metrics: str
) -> None:
    overrides: dict[str, object] = {"evaluation.metrics": metrics, "federation.rounds": 1}
    alone = train(plan(overrides), options=options(tmp_path)).rounds[0]
    together = trained_across(across(overrides)).rounds()[0]
    assert fields_of(alone) == fields_of(together)
    assert "noise_norm_expected" in fields_of(together)
    for name in (
        "round_id",
        "epsilon_spent",
        "noise_norm_expected",
        "survivors",
        "dropped",
        "delta",
        "metrics_are",
    ):
        assert getattr(alone, name) == getattr(together, name)


def entered(run: RunFolder) -> list[tuple[str, dict[str, Any]]]:
    """A journal without its times and key sets, and without what only a simulation can know."""
    rounds = [
        {
            name: value
            for name, value in asdict(entry).items()
            if name not in EXACT_COUNTS | {"seconds", "previous"}
        }
        for entry in run.rounds()
    ]
    events = [
        (event, {name: value for name, value in detail.items() if name not in ("seconds", "keys")})
        for event, detail in run.events
    ]
    return [("round", entry) for entry in rounds] + events


@pytest.mark.parametrize("metrics", ["none", "secure"])
@pytest.mark.parametrize("removable", [False, True])
def test_one_seed_gives_the_same_journal_on_both_paths(
    tmp_path: Path,
    across: Callable[..., LocalFederation],
    monkeypatch: pytest.MonkeyPatch,
    metrics: str,
    removable: bool,
) -> None:
    """Rounds, sums, bytes, names and events. Removable noise hangs on the protocol's keys, which
    every federation draws for itself: there the sums differ, and all else is the same.
    """
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", "5")
    overrides: dict[str, object] = {
        "evaluation.metrics": metrics,
        "federation.rounds": 2,
        "noise.removable": removable,
    }
    alone = train(plan(overrides), options=options(tmp_path), simulation=Simulation(5))
    journals = [
        entered(RunFolder.open(alone.path)),
        entered(trained_across(across(overrides, seed=5))),
    ]
    if removable:
        for journal in journals:
            for _, entry in journal:
                for drawn in ("update_norm", "headroom_bits", "metrics", "metrics_plus_minus"):
                    entry.pop(drawn, None)
    assert journals[0] == journals[1]
    assert "invited" in {kind for kind, _ in journals[0]}
    assert len(journals[0]) >= 4


def test_epsilon_of_a_round_is_computed_once(tmp_path: Path, monkeypatch) -> None:
    from sumus.guarantee import accounts as guarantee, live as live_epsilon

    asked: list[int] = []

    def counting(design: Any, rounds: int) -> float:
        asked.append(rounds)
        return guarantee.spent(design, rounds)

    monkeypatch.setattr(live_epsilon, "spent", counting)
    train(plan(), options=options(tmp_path))
    assert sorted(asked) == [1, 2, 3]


# -- the ledger

WITH_METRICS = {"evaluation.metrics": "secure", "evaluation.every": 1, "federation.rounds": 2}


@pytest.mark.parametrize("threads", [1, 3])
def test_every_release_is_entered_once_with_its_own_epsilon(tmp_path: Path, threads: int) -> None:
    """Four silos of one process share a ledger; a measurement is charged for itself."""
    run = train(plan(WITH_METRICS), options=replace(options(tmp_path), threads=threads))
    entries = Ledger.of_dataset("digits", state=tmp_path / "state").entries()
    assert [(entry.round, entry.purpose) for entry in entries] == [
        (1, "metrics"),
        (1, "model"),
        (2, "metrics"),
        (2, "model"),
    ]
    assert run.account is not None
    assert [entry.epsilon for entry in entries[1::2]] == [
        entry.epsilon_spent for entry in run.rounds
    ]
    assert entries[0].epsilon < entries[2].epsilon == run.account.metrics_epsilon
    assert {entry.run for entry in entries} == {run.path.name}


def test_a_refused_release_leaves_the_ledger_as_it_was_across_machines(tmp_path: Path) -> None:
    agreement = LocalFederation(tmp_path / "f", plan(WITH_METRICS)).agreement
    ledger = Ledger.of_dataset("digits", state=tmp_path)
    free = own_releases(agreement, ledger, Policy())
    too_little = replace(free, policy=Policy(max_epsilon=free.spent([1]) / 2))
    with pytest.raises(PolicyError, match="max_epsilon"):
        too_little.enter(0, bytes(32))
    assert ledger.entries() == []
    room_for_the_model_only = replace(free, policy=Policy(max_epsilon=free.spent([1]) * 1.001))
    room_for_the_model_only.enter(0, bytes(32))
    with pytest.raises(PolicyError, match="max_epsilon"):
        room_for_the_model_only.enter(0, bytes([1]) * 32, "metrics")
    assert [(entry.purpose, entry.round) for entry in ledger.entries()] == [("model", 1)]
    free.enter(0, bytes([1]) * 32, "metrics")
    assert [entry.purpose for entry in ledger.entries()] == ["model", "metrics"]


def test_a_refused_round_leaves_the_ledger_as_it_was_in_process(
    tmp_path: Path, monkeypatch
) -> None:
    rules, limit = tmp_path / "policy.toml", [math.inf]
    rules.write_text("max_epsilon = 100.0\n")

    def check_total(self: Policy, total: Any) -> None:
        if total.epsilon > limit[0]:
            raise PolicyError(f"max_epsilon = {limit[0]}")

    monkeypatch.setattr(Policy, "check_total", check_total)
    chosen = plan(WITH_METRICS)
    first = train(chosen, options=options(tmp_path, policy=rules))
    assert first.account is not None
    assert first.account.metrics_epsilon is not None
    ledger = Ledger.of_dataset("digits", state=tmp_path / "state")
    before = ledger.entries()
    # room for the metrics of another run, which used to be entered first, and not for its model
    # beside them
    limit[0] = ledger.total("record").epsilon + first.account.metrics_epsilon + 1e-3
    with pytest.raises(PolicyError, match="max_epsilon"):
        train(chosen, options=options(tmp_path, policy=rules))
    assert ledger.entries() == before
    assert np.isfinite(ledger.total("record").epsilon)
