"""From a table that no plan was made for to a model in use, command by command: new, describe,
train, report, predict, export.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from sumus.cli import main
from sumus.data import load
from sumus.plan import TrainingPlan

CLINICS = ("Åbo", "Brno", "Cork", "Delft")
HEADER = ("patient_no", "clinic", "seen", "age", "creatinine", "ward", "remark", "system", "died")
ROWS = 12_000  # so many that the noise of a description leaves the bounds of every column
_Z = 5.8  # both-sided: one false alarm in 1.5e8 runs


def rows(count: int, seed: int, first: int) -> list[tuple[object, ...]]:
    """A messy table: decimal commas, dates, identifiers, missing values, a constant column.

    The chance to die rises with age, creatinine and on one ward.
    """
    rng = random.Random(seed)
    out: list[tuple[object, ...]] = []
    for number in range(count):
        age, creatinine = rng.randrange(20, 95), math.exp(rng.gauss(0.0, 0.4))
        ward = rng.choice(("general", "intensive", "surgery"))
        score = (
            0.06 * (age - 60) + 1.6 * (creatinine - 1.0) + (1.5 if ward == "intensive" else -0.7)
        )
        out.append(
            (
                f"N{first + number:06d}",
                rng.choice(CLINICS),
                f"{rng.randrange(1, 29):02d}.{rng.randrange(1, 13):02d}.2024",
                age if rng.random() > 0.03 else "",
                f"{creatinine:.2f}".replace(".", ","),
                ward,
                f"seen by doctor {number}, nothing else to note",
                "v7",
                "yes" if rng.random() < 1.0 / (1.0 + math.exp(-1.5 * score)) else "no",
            )
        )
    return out


def write(path: Path, table: list[tuple[object, ...]], *, label: bool = True) -> None:
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        out = csv.writer(file, delimiter=";")
        out.writerows([HEADER, *table] if label else [row[:-1] for row in (HEADER, *table)])


class Walk:
    """A folder in which somebody types commands."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys

    def told(self, *arguments: str) -> dict[str, Any]:
        code, said = main([*arguments, "--json"]), self._capsys.readouterr()
        assert code == 0, f"{arguments}: {said.err}"
        return dict(json.loads(said.out.strip().splitlines()[-1]))


@pytest.fixture
def walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Walk:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))
    write(tmp_path / "patients.csv", rows(ROWS, 1, 0))
    return Walk(tmp_path, capsys)


def test_from_a_messy_table_to_a_model_in_use(walk: Walk) -> None:
    drafted = walk.told("new", "patients.csv", "--silo", "clinic", "--label", "died")
    assert {name: each["kind"] for name, each in drafted["left_out"].items()} == {
        "patient_no": "identifier",
        "seen": "date",
        "remark": "free text",
        "system": "constant",
    }
    assert drafted["columns"]["creatinine"]["kind"] == "decimal comma"
    assert drafted["unbounded"] == ["age", "creatinine"]

    described = walk.told("describe", "plan.toml", "--fill")
    assert set(described["filled"]) == {"age", "creatinine"}

    trained = walk.told("train", "plan.toml")
    assert trained["epsilon"] <= 1.0
    run, accuracy = trained["run"], trained["metrics"]["accuracy"]
    plan = TrainingPlan.load(walk.folder / "plan.toml")
    tested = sum(len(silo.test) for silo in load(plan).silos)
    assert accuracy > trained["metrics_of_constant"]["accuracy"] + 0.1

    page = Path(walk.told("report", run)["page"])
    assert "died" in (walk.folder / page).read_text(encoding="utf-8")

    fresh = rows(ROWS, 2, ROWS)
    write(walk.folder / "new.csv", fresh, label=False)
    said = walk.told("predict", run, "new.csv", "--out", "said.csv")
    assert said["rows"] == ROWS
    with (walk.folder / "said.csv").open(encoding="utf-8", newline="") as file:
        answers = list(csv.DictReader(file))
    right = sum(answer["prediction"] == row[-1] for answer, row in zip(answers, fresh, strict=True))
    # two shares of independent rows of one law, right with the same chance under one model
    share = (right + accuracy * tested) / (ROWS + tested)
    spread = math.sqrt(share * (1.0 - share) * (1.0 / ROWS + 1.0 / tested))
    assert abs(right / ROWS - accuracy) <= _Z * spread
    for answer in answers[:50]:
        chances = [float(answer[f"probability:{name}"]) for name in ("no", "yes")]
        assert sum(chances) == pytest.approx(1.0, abs=1e-5)
        assert (chances[1] > 0.5) == (answer["prediction"] == "yes")

    exported = walk.told("export", run, "--format", "onnx")
    content = (walk.folder / exported["file"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == exported["sha256"]
    assert "died" in (walk.folder / exported["card"]).read_text(encoding="utf-8")
