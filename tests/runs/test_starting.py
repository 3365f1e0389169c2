"""A run begins with what another released, pays for its own sums, and says where it began."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from sumus.books import Ledger, RunFolder, StartedFrom
from sumus.cli.data import data_app
from sumus.data import load
from sumus.engines.server_job import ServerJob
from sumus.errors import DataError, GuaranteeError, PlanError, StorageError
from sumus.parties import InProcess, declared_facts
from sumus.plan import TrainingPlan
from sumus.report import write_report
from sumus.runs import RunOptions, Simulation, Start, TrainedRun, find_start, start_of, train
from sumus.runs.starting import with_start
from sumus.training import flat_parameters, frozen_parameters, named_model, prepare
from support.local_federation import QUICK, LocalFederation, plan as agreed_plan

PLAN = """
[privacy]
epsilon = 1.0
delta = 1e-4
[federation]
rounds = 2
local_steps = 6
[training]
algorithm = "convex-pass"
learning_rate = 0.3
"""


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))


def trained(
    tmp_path: Path,
    overrides: dict[str, object] | None = None,
    *,
    seed: int | None = None,
    **options: object,
) -> TrainedRun:
    chosen = RunOptions(**({"root": tmp_path / "runs", "threads": 1} | options))  # type: ignore[arg-type]
    plan = TrainingPlan.from_toml(PLAN).with_overrides(overrides or {})
    simulation = None if seed is None else Simulation(seed)
    return train(plan, options=chosen, simulation=simulation)


def parameters_of(path: Path) -> np.ndarray:
    """The flat vector of a model.pt, read without any code of ours."""
    state = torch.load(path, weights_only=True)
    return np.concatenate([value.numpy().reshape(-1) for value in state.values()])


def test_a_model_is_named_by_the_hash_of_its_float32_numbers(tmp_path: Path) -> None:
    run = trained(tmp_path, {"training.iterate_average": 0.5})
    numbers = parameters_of(run.path / "model.pt").astype("<f4").tobytes()
    expected = f"sha256:{hashlib.sha256(numbers).hexdigest()}"
    assert run.model_hash == expected
    assert json.loads((run.path / "summary.json").read_text())["model_hash"] == expected
    assert Start.read(run.path).hash == expected
    assert Start.read(run.path / "model.pt").hash == expected


def test_the_first_round_begins_with_the_released_model(tmp_path: Path) -> None:
    """With hardly any learning the second model is the first one and a little noise."""
    first = trained(tmp_path)
    second = trained(
        tmp_path,
        {"training.learning_rate": 1e-6, "training.start_from": first.model_hash},
        start_from=first.path,
    )
    released = parameters_of(first.path / "model.pt")
    assert np.linalg.norm(released) > 0.1
    assert np.linalg.norm(parameters_of(second.path / "model.pt") - released) < 1e-3


def test_the_ledger_goes_on_and_journal_account_and_report_say_where_it_began(
    tmp_path: Path,
) -> None:
    first = trained(tmp_path)
    second = trained(tmp_path, start_from=first.path)
    assert second.plan.training.start_from == first.model_hash
    start = RunFolder.open(second.path).start
    assert start is not None
    assert (start.model, start.run, start.round) == (first.model_hash, first.path.name, 2)
    assert start.dataset == "digits"
    assert "ε ≤ 1 at δ = 0.0001, proved" in (start.guarantee or "")
    total = Ledger.of_dataset("digits").total("record")
    assert total.runs == 2
    assert total.epsilon == pytest.approx(2.0, rel=1e-3)
    assert second.spent is not None
    assert second.spent.epsilon == total.epsilon
    assert any("ε is accounted elsewhere" in line for line in second.assumptions)
    assert any("ε is accounted elsewhere" in line for line in second.account.assumptions)  # type: ignore[union-attr]
    page = tmp_path / "page.html"
    write_report([RunFolder.open(second.path)], page)
    text = page.read_text()
    assert f"released by {first.path.name} after round 2" in text
    assert "Ledger of digits" in text
    assert re.search(
        r"With this run</th><td class=\"n\">ε\u00a0≤\u00a02[^<]*</td><td class=\"n\">2</td>", text
    )


def test_a_plan_finds_the_model_that_it_names_among_the_runs(tmp_path: Path) -> None:
    trained(tmp_path)
    first = trained(tmp_path)
    trained(tmp_path)
    second = trained(tmp_path, {"training.start_from": first.model_hash})
    start = RunFolder.open(second.path).start
    assert start is not None
    assert start.run == first.path.name
    shutil.move(first.path, tmp_path / "elsewhere")
    with pytest.raises(
        PlanError, match=r"is released by no run below .* Give it with --start-from"
    ):
        trained(tmp_path, {"training.start_from": first.model_hash})


def test_a_model_other_than_the_plans_is_refused(tmp_path: Path) -> None:
    first, other = trained(tmp_path), trained(tmp_path)
    with pytest.raises(PlanError, match="is another model than that of --start-from"):
        trained(tmp_path, {"training.start_from": other.model_hash}, start_from=first.path)
    wide = tmp_path / "wide.npy"
    np.save(wide, np.zeros(7))
    with pytest.raises(PlanError, match="has 7 parameters, the plan's model 650"):
        trained(tmp_path, start_from=wide)
    np.save(wide, np.full(650, 100.0))
    with pytest.raises(PlanError, match="must have norm at most 1000 for convex-pass"):
        trained(tmp_path, start_from=wide)
    for broken in (np.full(650, np.nan), np.zeros((650, 1))):
        np.save(wide, broken)
        with pytest.raises(DataError, match="one vector of finite numbers"):
            trained(tmp_path, start_from=wide)
    for missing in (tmp_path / "nothing", tmp_path / "runs"):
        with pytest.raises(DataError, match="neither a run folder nor a file"):
            trained(tmp_path, start_from=missing)
    (tmp_path / "text.pt").write_text("no model")
    with pytest.raises(DataError, match="cannot be read as a model"):
        trained(tmp_path, start_from=tmp_path / "text.pt")
    assert Ledger.of_dataset("digits").total("record").runs == 2


@pytest.mark.parametrize(
    ("overrides", "seed"),
    [({}, 3), ({"training.algorithm": "fedavg", "training.sampling_rate": 1.0}, None)],
    ids=["a public seed", "no noise"],
)
def test_a_run_without_a_guarantee_is_no_start_unless_its_model_is_declared_public(
    tmp_path: Path, overrides: dict[str, object], seed: int | None
) -> None:
    void = trained(tmp_path, overrides, seed=seed, ledger=False)
    with pytest.raises(GuaranteeError, match=r"has no guarantee.*if that model is public"):
        trained(tmp_path, start_from=void.path)
    with pytest.raises(GuaranteeError, match="has no guarantee"):
        trained(tmp_path, {"training.start_from": void.model_hash})
    assert not Ledger.of_dataset("digits").path.exists()
    declared = trained(tmp_path, start_from=void.path / "model.pt")
    start = RunFolder.open(declared.path).start
    assert start is not None
    assert (start.run, start.guarantee) == (None, None)
    assert "the starting model is public or its ε is accounted elsewhere" in str(start)
    # what promises nothing may start from what promised nothing
    simulated = trained(tmp_path, start_from=void.path, seed=4)
    assert "NO GUARANTEE" in str(RunFolder.open(simulated.path).start)


def test_a_run_goes_on_without_the_one_that_it_began_with(tmp_path: Path) -> None:
    first = trained(tmp_path)
    plan = TrainingPlan.from_toml(PLAN)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    chosen = RunOptions(root=tmp_path / "runs", threads=1, start_from=first.path, name="second")
    with pytest.raises(KeyboardInterrupt):
        train(plan, options=chosen, progress=stop)
    shutil.move(first.path, tmp_path / "elsewhere")
    begun = next((tmp_path / "runs").glob("second-*"))
    again = train(options=RunOptions(root=tmp_path / "runs", threads=1, resume=begun))
    assert len(again.rounds) == 2
    start = RunFolder.open(begun).start
    assert start is not None
    assert start.run == first.path.name
    with pytest.raises(PlanError, match="cannot stand beside resume"):
        train(options=RunOptions(resume=begun, start_from=tmp_path / "elsewhere"))


def test_a_run_that_has_released_nothing_is_no_start(tmp_path: Path) -> None:
    first = trained(tmp_path)
    empty = RunFolder.create(first.plan, first.account, tmp_path / "runs", name="empty")
    empty.close()
    with pytest.raises(StorageError, match="has released no model yet"):
        Start.read(empty.path)


def test_a_changed_run_is_no_start(tmp_path: Path) -> None:
    """Whoever changes a run's checkpoint changes the hash, and the plan names another model."""
    first = trained(tmp_path)
    plan = first.plan.replace("training", start_from=first.model_hash)
    assert find_start(plan, tmp_path / "runs").hash == first.model_hash
    file = first.path / "checkpoint.npz"
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    with pytest.raises(PlanError, match="is released by no run"):
        find_start(plan, tmp_path / "runs")


def test_what_an_operator_sends_is_hashed_anew(tmp_path: Path) -> None:
    start = Start.read(trained(tmp_path).path)
    again = Start.from_text(start.to_text())
    assert np.array_equal(again.parameters, start.parameters)
    assert again.origin == start.origin
    entries = json.loads(start.to_text())
    other = Start.of_vector(start.parameters + 1.0)
    entries["parameters"] = json.loads(other.to_text())["parameters"]
    assert Start.from_text(json.dumps(entries)).hash == other.hash != start.hash
    for broken in ("", "{}", '{"parameters": "?", "origin": {}}', "[]"):
        with pytest.raises((DataError, StorageError)):
            Start.from_text(broken)


def test_a_server_begins_with_a_model_of_its_own_runs_or_with_one_that_is_sent(
    tmp_path: Path,
) -> None:
    """Another plan of the same federation goes on where the first one ended."""
    first = LocalFederation(tmp_path / "first", agreed_plan({"federation.rounds": 2}))
    runs = served(tmp_path / "server", first)
    first.close()
    start = Start.read(runs)
    going_on = agreed_plan({"federation.rounds": 1, "training.start_from": start.hash})
    second = LocalFederation(tmp_path / "second", going_on)
    found = RunFolder.open(served(tmp_path / "server", second))
    second.close()
    assert found.start is not None
    assert (found.start.run, found.start.round) == (runs.name, 2)
    assert found.start.no_ledger == "entered by every silo on a ledger of its own"
    third = LocalFederation(tmp_path / "third", going_on)
    with pytest.raises(AssertionError, match="is released by no run below"):
        served(tmp_path / "other", third)
    sent = RunFolder.open(served(tmp_path / "other", third, start=start.to_text()))
    third.close()
    assert sent.start == start.origin


LINEARISED = {
    "federation.rounds": 1,
    "training.algorithm": "tangent-pass",
    "training.model": "mlp",
    "training.hidden": (12, 8),
    "training.features": "centred",
    "training.tangent_layers": "3,5",
    "training.preconditioner": "inputs",
}


def test_silos_of_other_machines_keep_the_layers_of_a_public_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A party without them refuses, one that keeps other numbers under their name refuses too, and
    a federation that keeps them trains the other layers.
    """
    monkeypatch.setenv("SUMUS_DATA", str(tmp_path / "data"))
    facts = declared_facts(agreed_plan())
    model = named_model(agreed_plan(LINEARISED), facts.shape, facts.labels)
    frozen = np.random.default_rng(1).normal(size=len(frozen_parameters(model)))
    start = Start.of_vector(
        np.asarray(flat_parameters(model).double()),
        StartedFrom(model="", public="a test's"),
        frozen=frozen,
    )
    file = tmp_path / "start.json"
    file.write_text(start.to_text())
    going_on = with_start(agreed_plan(LINEARISED), start)
    with pytest.raises(PlanError, match=r"not on this machine.*Run: sumus data keep FILE"):
        prepare(going_on, load(going_on))

    kept = CliRunner().invoke(data_app, ["keep", str(file), "--json"])
    place = Path(json.loads(kept.stdout)["place"])
    federation = LocalFederation(tmp_path / "kept", going_on)
    place.unlink()
    start_of(federation.agreement, tmp_path / "none", start.to_text())
    assert place.exists()  # the server keeps what a job brought, for the jobs that come
    run = served(tmp_path / "server", federation, start=start.to_text())
    federation.close()
    released = parameters_of(run / "model.pt")
    assert start.frozen is not None
    np.testing.assert_array_equal(released[: len(start.frozen)], start.frozen)
    assert not np.array_equal(released[len(start.frozen) :], start.parameters)

    place.write_bytes(place.read_bytes()[:-1] + b"?")
    with pytest.raises(PlanError, match="other layers than those that were given"):
        prepare(going_on, load(going_on))


def test_a_start_without_layers_need_not_be_kept(tmp_path: Path) -> None:
    file = tmp_path / "start.json"
    file.write_text(Start.of_vector(np.ones(3), StartedFrom(model="", public="a test's")).to_text())
    refused = CliRunner().invoke(data_app, ["keep", str(file)])
    assert isinstance(refused.exception, PlanError)
    assert "nothing has to be kept" in str(refused.exception)


def served(folder: Path, federation: LocalFederation, start: str = "") -> Path:
    """What a job leaves below the server's folder."""
    folder.mkdir(exist_ok=True)
    (folder / "roster.toml").write_text(federation.roster.to_text())
    (folder / "server.key").write_text(federation.identity.secret_text())
    plan = federation.agreement.plan.to_toml()
    job = ServerJob(plan, rounds=10, patience=QUICK, start=start)
    job.run(folder, lambda names: InProcess(federation.driver.silos))
    state = job.state()
    assert state["phase"] == "finished", state["error"]
    return Path(state["run"])


# -- from the run of another plan, whose model is not known yet


def test_a_plan_may_name_the_plan_whose_released_model_it_starts_from(tmp_path: Path) -> None:
    first = trained(tmp_path)
    earlier = RunFolder.open(first.path)
    named = f"plan:{earlier.plan_hash}"
    second = trained(tmp_path, {"training.start_from": named, "training.init_seed": 1})
    run = RunFolder.open(second.path)
    assert run.plan.training.start_from == named  # known, and approved, beforehand
    assert run.start is not None
    assert run.start.model == first.model_hash
    assert (run.start.run, run.start.plan_hash) == (earlier.name, earlier.plan_hash)


def test_a_plan_is_no_start_before_its_run_is_over(tmp_path: Path) -> None:
    run = trained(tmp_path, {"federation.rounds": 3})
    journal = run.path / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    wanted = TrainingPlan.from_toml(PLAN).with_overrides(
        {"training.start_from": f"plan:{RunFolder.open(run.path).plan_hash}"}
    )
    assert find_start(wanted, tmp_path / "runs").hash == run.model_hash
    assert json.loads(lines[-1])["kind"] == "summary"
    journal.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(PlanError, match="is finished by no run below"):
        find_start(wanted, tmp_path / "runs")


def test_another_plans_run_is_refused_as_the_start_that_a_plan_names(tmp_path: Path) -> None:
    first = trained(tmp_path)
    wanted = TrainingPlan.from_toml(PLAN).with_overrides(
        {"training.start_from": f"plan:{'0' * 64}"}
    )
    with pytest.raises(PlanError, match="is finished by no run below"):
        find_start(wanted, tmp_path / "runs")
    with pytest.raises(PlanError, match="is another model"):
        with_start(wanted, Start.read(first.path))


@pytest.mark.parametrize("named", ["plan:", "plan:ab", f"plan:{'G' * 64}", f"Plan:{'0' * 64}"])
def test_a_start_is_named_by_a_whole_hash(named: str) -> None:
    with pytest.raises(PlanError, match='must be "sha256:" or "plan:" and 64 hexadecimal digits'):
        TrainingPlan.from_toml(PLAN).with_overrides({"training.start_from": named})
