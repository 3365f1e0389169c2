"""`sumus describe`: what it shows, writes, enters into the ledger, refuses and goes on with."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

import sumus
from sumus.books import Ledger, RunFolder
from sumus.cli import main
from sumus.data import write_patients
from sumus.describing import Description, describing_plan, written
from sumus.errors import DataError, PlanError
from sumus.plan import cells_of
from sumus.runs import RunOptions, Simulation, describe

PLAN = """
[privacy]
epsilon = 4.0
[data]
path = "patients.csv"
silo_column = "hospital"
label_column = "readmitted"
bounds = {age = [18, 99]}
categories = {ward = ["cardiology", "general", "oncology"]}
"""
DECLARED = """
[privacy]
epsilon = 4.0
[data]
path = "patients.csv"
silo_column = "hospital"
label_column = "readmitted"
columns = ["age", "ward"]
records_per_silo = [3000, 3000, 3000, 3000, 3000, 3000]
bounds = {age = [18, 99]}
[data.categories]
ward = ["cardiology", "general", "oncology", "surgery"]
readmitted = ["no", "yes"]
hospital = ["Bergen", "Graz", "Leuven", "Oulu", "Padova", "Toledo"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))
    write_patients(tmp_path / "patients.csv", records=3000)
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "declared.toml").write_text(DECLARED)
    return tmp_path


def last_json(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    out = capsys.readouterr().out
    return dict(json.loads(out.strip().splitlines()[-1]))


def test_a_description_end_to_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "plan.toml"]) == 0
    shown = capsys.readouterr().out
    assert "ε ≤ 1 at δ = 1e-05" in shown
    assert "proved (describe)" in shown
    assert "records of 6 silos" in shown
    (run,) = (folder / "runs").iterdir()
    assert (run / "description.html").is_file()
    bounds = tomllib.loads((run / "bounds.toml").read_text())["data"]["bounds"]
    assert bounds["age"] == [18.0, 99.0]
    assert bounds["blood_pressure"][0] <= 90.0
    assert 150.0 <= bounds["blood_pressure"][1] <= 1000.0
    # the bounds are a piece of a plan
    assert sumus.TrainingPlan.from_table(
        {"data": {"path": "x.csv", "silo_column": "s", "label_column": "l", "bounds": bounds}}
    )
    ledger = Ledger.of_dataset("patients")
    assert [entry.analysis for entry in ledger.entries()] == ["describe"]


def test_json_has_every_column_with_its_intervals(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["describe", "plan.toml", "--json", "--epsilon", "2", "--columns", "age,ward"]) == 0
    told = last_json(capsys)
    assert told["epsilon"] == pytest.approx(2.0, rel=1e-3)
    assert told["proved"] is True
    columns = told["columns"]
    assert isinstance(columns, dict)
    assert list(columns) == ["age", "ward"]
    assert columns["age"]["mean"]["low"] <= 57.5 <= columns["age"]["mean"]["high"]
    assert set(columns["ward"]["shares"]) == {"cardiology", "general", "oncology", "other"}
    assert abs(columns["ward"]["shares"]["other"]["value"] - 0.25) < 0.05, "surgery is not listed"
    records = told["records"]
    assert isinstance(records, dict)
    assert records["low"] - 60 <= 3000 <= records["high"] + 60
    assert Path(str(told["page"])).is_file()


def test_a_void_run_has_no_epsilon(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "plan.toml", "--json", "--seed", "1", "--no-report"]) == 0
    told = last_json(capsys)
    assert told["epsilon"] is None
    assert told["page"] is None
    assert "public seed" in str(told["void"])


def test_counts_with_little_noise_are_those_of_the_file(folder: Path) -> None:
    """The real secure sum with half a record of noise, against numpy."""
    made = describing_plan(
        sumus.TrainingPlan.load(folder / "plan.toml"), columns=["age", "ward"], numbers=[]
    )
    made = made.replace("privacy", epsilon=None)
    made = made.replace("noise", noise_multiplier=0.5)
    found = describe(made, options=RunOptions(ledger=False), simulation=Simulation(0))
    rows = [line.split(",") for line in (folder / "patients.csv").read_text().splitlines()]
    header, body = rows[0], rows[1:]
    wards = [row[header.index("ward")] for row in body]
    counts = dict(found.columns["ward"].cells)
    for name in ("cardiology", "general", "oncology"):
        assert counts[name] == pytest.approx(wards.count(name), abs=3.0)
    assert counts["other"] == pytest.approx(wards.count("surgery"), abs=3.0)
    ages = np.array([float(row[header.index("age")] or "nan") for row in body])
    edges = np.array(found.columns["age"].edges)
    expected = np.histogram(ages[~np.isnan(ages)], bins=edges)[0]
    np.testing.assert_allclose(found.columns["age"].counts[1:-2], expected, atol=3.0)
    assert found.records.value == pytest.approx(3000, abs=5.0)
    assert found.noise_std == pytest.approx(0.5 * (6 / 5) ** 0.5)


def test_a_run_is_read_again_from_its_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["describe", "plan.toml", "--no-report", "--json"]) == 0
    first = last_json(capsys)
    (run,) = (folder / "runs").iterdir()
    (run / "bounds.toml").unlink()
    assert main(["describe", str(run), "--json"]) == 0
    again = last_json(capsys)
    assert again["columns"] == first["columns"]
    assert (run / "bounds.toml").is_file()
    assert (run / "description.html").is_file()


def test_resuming_does_not_spend_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped between the ledger's entry and the end: the same noise, one entry."""

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    plan = sumus.TrainingPlan.load(folder / "plan.toml")
    with monkeypatch.context() as patched:
        patched.setattr("sumus.runs.run.finish", stop)
        with pytest.raises(KeyboardInterrupt):
            describe(plan)
    (run,) = (folder / "runs").iterdir()
    before = RunFolder.open(run).read_checkpoint()
    assert before is not None
    spent = Ledger.of_dataset("patients").total("record")
    assert main(["describe", "--resume", str(run), "--no-report"]) == 0
    after = RunFolder.open(run).read_checkpoint()
    assert after is not None
    np.testing.assert_array_equal(before[0]["iterate"], after[0]["iterate"])
    assert Ledger.of_dataset("patients").total("record") == spent


def test_describing_and_training_add_up_on_one_ledger(folder: Path) -> None:
    assert main(["describe", "plan.toml", "--no-report"]) == 0
    assert main(["train", "plan.toml", "--no-report", "--set", "federation.rounds=1"]) == 0
    total = Ledger.of_dataset("patients").total("record")
    assert total.epsilon == pytest.approx(5.0, rel=1e-2)


def test_a_policy_is_enforced_before_anything_is_counted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "policy.toml").write_text("max_epsilon_per_run = 0.5\n")
    assert main(["describe", "plan.toml", "--policy", "policy.toml"]) == 3
    assert "max_epsilon_per_run" in capsys.readouterr().err
    (folder / "policy.toml").write_text('allowed_analyses = ["convex-pass"]\n')
    assert main(["describe", "plan.toml", "--policy", "policy.toml"]) == 3
    assert not Ledger.of_dataset("patients").entries()
    (folder / "policy.toml").write_text('allowed_analyses = ["describe"]\n')
    assert main(["describe", "plan.toml", "--policy", "policy.toml", "--no-report"]) == 0


# -- across machines


def test_a_written_plan_is_complete_without_any_record(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every party works out the same design, whether it holds records or not."""
    from sumus.parties import agree_on

    assert main(["describe", "declared.toml", "--write", "d.toml", "--numbers", "creatinine"]) == 0
    assert capsys.readouterr().err == ""
    plan = sumus.TrainingPlan.load("d.toml")
    assert plan.describe.columns == ("age", "ward", "readmitted", "creatinine")
    with_file = agree_on(plan)
    (folder / "patients.csv").unlink()
    agreement = agree_on(plan)
    assert agreement.plan.hash == with_file.plan.hash
    assert agreement.account.analysis == "describe"
    kinds = {each.name: each.kind for each in cells_of(agreement.plan)}
    assert kinds == {
        "age": "bounded",
        "ward": "categories",
        "readmitted": "categories",
        "creatinine": "wide",
    }


def test_what_had_to_be_read_off_the_file_is_said_when_a_plan_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["describe", "plan.toml", "--write", "d.toml"]) == 0
    assert "hold numbers or text was read off the file" in capsys.readouterr().err
    assert main(["describe", "plan.toml", "--write", "d.toml"]) == 5
    assert "is there already" in capsys.readouterr().err


def test_an_incomplete_plan_is_refused_across_machines(folder: Path) -> None:
    from sumus.parties import agree_on

    plan = describing_plan(sumus.TrainingPlan.load(folder / "declared.toml"))
    with pytest.raises(PlanError, match=r"describe\.columns must be listed across machines"):
        agree_on(plan)
    complete, assumed = written(plan)
    assert not assumed
    agree_on(complete)
    with pytest.raises(PlanError, match=r"describe\.numbers must be listed across machines"):
        agree_on(complete.replace("describe", numbers=None))


def test_bounds_of_training_records_grow_to_all_records(folder: Path) -> None:
    plan = sumus.TrainingPlan.load(folder / "declared.toml")
    made = describing_plan(plan)
    assert made.data.test_fraction == 0.0
    assert made.data.records_per_silo is not None
    assert min(made.data.records_per_silo) >= 3000 / 0.8 + 6 * 50
    assert made.privacy.epsilon == 1.0, "a quarter of the plan's"
    assert describing_plan(made).hash == made.hash, "a plan that describes stays as it is"


# -- objects given in Python


def test_python_objects_go_by_their_places(folder: Path) -> None:
    draw = np.random.default_rng(0)
    silos = [(draw.normal(50.0, 10.0, (400, 2)), draw.integers(0, 2, 400)) for _ in range(4)]
    plan = sumus.TrainingPlan().with_overrides({"data.bounds.x0": [0, 100]})
    found = sumus.describe(plan, epsilon=3.0, silos=silos, name="visits", classes=2)
    assert list(found.columns) == ["x0", "x1", "label"]
    assert found.columns["x0"].kind == "bounded"
    assert found.columns["x0"].mean is not None
    assert found.columns["x0"].mean.low <= 50.5
    assert found.columns["x0"].mean.high >= 49.5
    assert found.columns["x1"].learned
    assert set(found.columns["label"].shares) == {"0", "1", "other"}
    assert Ledger.of_dataset("visits").total("record").epsilon == pytest.approx(3.0, rel=1e-3)
    assert "visits" not in str(found)
    assert "records of 4 silos" in str(found)
    assert "<table" in found._repr_html_()


@pytest.mark.parametrize("task", ["regression", "counts"])
def test_numbers_given_in_python_are_told_in_their_own_units(folder: Path, task: str) -> None:
    draw = np.random.default_rng(0)
    silos = [(draw.normal(size=(400, 2)), draw.binomial(40, 0.2, 400)) for _ in range(4)]
    plan = sumus.TrainingPlan().with_overrides(
        {
            "training.task": task,
            "training.algorithm": "convex-pass",
            "training.model": "linear",
            "training.learning_rate": 0.5,
            "data.bounds.label": [0, 40],
        }
    )
    mean = sumus.describe(plan, epsilon=4.0, silos=silos, name=task).columns["label"].mean
    assert mean is not None
    assert mean.low <= 8.0 <= mean.high <= 12.0


def test_times_given_in_python_are_described(folder: Path) -> None:
    draw = np.random.default_rng(0)
    silos = [
        (draw.normal(size=(60, 2)), np.stack([draw.exponential(2.0, 60), np.ones(60)], 1))
        for _ in range(3)
    ]
    plan = sumus.TrainingPlan().with_overrides(
        {
            "training.task": "survival",
            "training.algorithm": "convex-pass",
            "training.learning_rate": 0.5,
            "data.intervals": [1.0, 2.0],
        }
    )
    assert list(sumus.describe(plan, silos=silos, name="times").columns) == ["x0", "x1", "label"]


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_several_labels_given_in_python_are_refused_in_one_line(folder: Path, task: str) -> None:
    draw = np.random.default_rng(0)
    silos = [(draw.normal(size=(60, 2)), draw.integers(0, 2, (60, 2))) for _ in range(3)]
    plan = sumus.TrainingPlan().with_overrides(
        {
            "training.task": task,
            "training.algorithm": "convex-pass",
            "training.learning_rate": 0.5,
            "data.label_columns": ["a", "b"],
            **({"data.bounds": {"a": [0, 1], "b": [0, 1]}} if task == "regression" else {}),
        }
    )
    with pytest.raises(DataError, match=r"has 2 labels a record.*Name features only"):
        sumus.describe(plan, silos=silos, name="two")
    found = sumus.describe(plan, silos=silos, name="two", columns=["x0", "x1"])
    assert list(found.columns) == ["x0", "x1"]


def test_persons_given_in_python_are_described(folder: Path) -> None:
    draw = np.random.default_rng(0)
    silos = [(draw.normal(size=(90, 2)), draw.integers(0, 2, 90)) for _ in range(3)]
    groups = [np.arange(90) // 3 for _ in silos]
    plan = sumus.TrainingPlan().with_overrides({"privacy.unit": "person"})
    sumus.describe(plan, epsilon=2.0, silos=silos, name="people", classes=2, groups=groups)
    assert Ledger.of_dataset("people").total("person").epsilon == pytest.approx(2.0, rel=1e-3)


def test_records_that_were_encoded_for_training_are_refused(folder: Path) -> None:
    plan = sumus.TrainingPlan.load(folder / "plan.toml")
    data = sumus.load_data(plan)
    with pytest.raises(DataError, match="encoded for training"):
        sumus.describe(plan, silos=data)


# -- bad input


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["describe", "missing.toml"], 2, "must be a readable TOML file"),
        (["describe", "plan.toml", "--columns", "ages"], 2, "Did you mean 'age'?"),
        (["describe", "plan.toml", "--columns", "hospital"], 2, "never told"),
        (["describe", "plan.toml", "--epsilon", "0"], 2, "privacy.epsilon"),
        (["describe", "plan.toml", "--bins", "0"], 2, "describe.bins"),
        (["describe", "plan.toml", "--numbers", "age,age"], 2, "none of them twice"),
        (["describe", "plan.toml", "--resume", "x"], 2, "cannot stand beside"),
        (["describe", ".", "--epsilon", "1"], 2, "The run folder holds its plan"),
        (["describe", "."], 5, "journal.jsonl"),
        (["describe", "plan.toml", "--set", "data.bounds.age=[1,1]"], 2, "low < high"),
    ],
)
def test_wrong_input_is_one_line_and_spends_nothing(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    words: str,
) -> None:
    assert main(arguments) == code
    (line,) = [
        line for line in capsys.readouterr().err.strip().splitlines() if line.startswith("error")
    ]
    assert words in line
    assert not Ledger.of_dataset("patients").entries()


def test_training_commands_say_where_descriptions_are(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["describe", "plan.toml", "--no-report"]) == 0
    (run,) = (folder / "runs").iterdir()
    capsys.readouterr()
    assert main(["report", str(run)]) == 2
    assert "Use `sumus describe RUN`" in capsys.readouterr().err
    assert main(["train", str(run / "plan.toml")]) == 2
    assert "Run `sumus describe`" in capsys.readouterr().err
    assert main(["account", str(run)]) == 0
    assert "records a count in the sum" in capsys.readouterr().out


def test_a_training_run_is_no_description(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "plan.toml", "--no-report", "--set", "federation.rounds=1"]) == 0
    (run,) = (folder / "runs").iterdir()
    assert main(["describe", str(run)]) == 2
    assert "a training run has a model" in capsys.readouterr().err


def test_a_refused_sum_is_no_description(folder: Path) -> None:
    """The gate lets nothing in: there is no histogram of zeros."""
    found = describe(
        sumus.TrainingPlan.load(folder / "plan.toml"), options=RunOptions(ledger=False)
    )
    run = RunFolder.open(found.path)
    stored = run.read_checkpoint()
    assert stored is not None

    class Empty(RunFolder):
        def read_checkpoint(self) -> object:  # type: ignore[override]
            return {"iterate": np.zeros_like(stored[0]["iterate"])}, {}

    run.__class__ = Empty
    with pytest.raises(DataError, match="has no statistics"):
        Description.of_run(run)


# -- times, and persons


def test_times_are_described_with_their_events(tmp_path: Path) -> None:
    """A record whose time or event cannot be read is missing, never an error."""
    draw = np.random.default_rng(0)
    rows = [f"{'ABC'[i % 3]},{draw.integers(1, 400)},{('yes', 'no')[i % 2]}" for i in range(900)]
    rows += ["A,-4,yes", "A,,no", "B,12,maybe", "C,soon,1"]
    (tmp_path / "t.csv").write_text("\n".join(["site,days,died", *rows, ""]))
    plan = sumus.TrainingPlan().with_overrides(
        {
            "training.task": "survival",
            "data.path": str(tmp_path / "t.csv"),
            "data.silo_column": "site",
            "data.time_column": "days",
            "data.event_column": "died",
            "data.intervals": [30, 90, 365],
        }
    )
    options = RunOptions(root=tmp_path, ledger=False)
    made = describing_plan(plan, epsilon=20.0)
    found = describe(made, options=options, simulation=Simulation(1))
    assert list(found.columns) == ["days"], "times bring their events along, in one cell a record"
    assert found.columns["days"].kind == "survival"
    assert dict(found.columns["days"].cells)["missing"] == pytest.approx(4.0, abs=2.0)
    curve = [each.value for _, each in found.columns["days"].survival]
    assert curve == sorted(curve, reverse=True)
    complete, _ = written(describing_plan(plan))
    assert complete.describe.columns == ("days",)


def test_ten_times_the_same_rows_of_a_person_change_neither_noise_nor_statistics(
    tmp_path: Path,
) -> None:
    draw = np.random.default_rng(0)
    people = [(f"{'ABC'[i % 3]},p{i}", draw.integers(0, 100)) for i in range(600)]
    found = []
    for copies in (1, 10):
        rows = [f"{who},{age}" for who, age in people for _ in range(copies)]
        (tmp_path / "t.csv").write_text("\n".join(["site,who,age", *rows, ""]))
        plan = sumus.TrainingPlan().with_overrides(
            {
                "privacy.unit": "person",
                "data.person_column": "who",
                "data.path": str(tmp_path / "t.csv"),
                "data.silo_column": "site",
                "data.label_column": "age",
                "data.bounds.age": [0, 100],
                "training.task": "regression",
            }
        )
        options = RunOptions(root=tmp_path / str(copies), ledger=False)
        found.append(describe(plan, epsilon=1.0, options=options, simulation=Simulation(1)))
    once, often = found
    assert once.unit == "persons"
    assert once.account is not None
    assert often.account is not None
    assert once.noise_std == often.noise_std
    assert once.account.epsilon == often.account.epsilon
    assert once.columns["age"].cells == often.columns["age"].cells
    assert list(once.columns) == ["age"], "whose row it is is never described"


# -- silos that are gone, and objects that come back


def test_a_silo_that_drops_out_is_not_in_it_and_brings_no_noise(folder: Path) -> None:
    made = describing_plan(
        sumus.TrainingPlan.load(folder / "plan.toml").with_overrides({"federation.dropouts": 1}),
        columns=["ward"],
        numbers=[],
    )
    options = RunOptions(ledger=False, vanishing={0: {"masked": frozenset({0})}})
    found = describe(made, options=options, simulation=Simulation(0))
    whole = describe(made, options=RunOptions(ledger=False), simulation=Simulation(0))
    assert (found.survivors, found.silos) == (5, 6)
    assert found.noise_std == pytest.approx(whole.noise_std * (5 / 6) ** 0.5)
    rows = (folder / "patients.csv").read_text().splitlines()[1:]
    there = sum(not row.startswith("Bergen,") for row in rows)
    assert found.records.low <= there <= found.records.high
    assert "of 5 silos" in found.headline


def test_objects_given_in_python_are_resumed_with_the_same_objects(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    silos = [(draw.normal(0.0, 1.0, (200, 1)), draw.integers(0, 2, 200)) for _ in range(3)]

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("sumus.runs.run.finish", stop)
        with pytest.raises(KeyboardInterrupt, match=r"sumus\.describe\(silos=…"):
            sumus.describe(sumus.TrainingPlan(), epsilon=1.0, silos=silos, name="v", classes=2)
    (run,) = (folder / "runs").iterdir()
    found = sumus.describe(silos=silos, classes=2, options=RunOptions(resume=run))
    assert list(found.columns) == ["x0", "label"]
    assert len(Ledger.of_dataset("v").entries()) == 1
