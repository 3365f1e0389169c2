"""One table that every task can learn from, and which of its rows a run tests on."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from sumus.data import FederatedData, ReadingRules, load, read_table
from sumus.plan import TrainingPlan

RECORDS = 240
CUTS = [6.0, 12.0, 24.0]
FEATURES = '["age", "dose", "sex", "word"]'


def write_table(path: Path, records: int = RECORDS) -> list[dict[str, str]]:
    """Columns of every kind and labels of every task; returns the rows as text."""
    rng = np.random.default_rng(5)
    rows = []
    for record in range(records):
        age = round(float(rng.uniform(-10, 130)), 3)
        level = age / 60 - 1 + rng.normal(0, 0.3)
        rows.append(
            {
                "silo": "abc"[record % 3],
                "person": f"p{record // 2 * 3 + record % 3}",
                "age": f"{age}",
                "dose": "" if record % 9 == 0 and 0 < age < 120 else f"{rng.normal(0, 100):.4f}",
                "sex": ("f", "m", "x")[record % 3 if record % 5 else 2],
                "word": f"w{rng.integers(6)}",
                "state": "ill" if level > 0.4 else "well" if level < -0.4 else "so so",
                "sick": "yes" if level > 0 else "no",
                "tall": "yes" if rng.random() < 0.5 else "no",
                "weight": f"{50 + 20 * level:.3f}",
                "height": f"{170 + 5 * level:.3f}",
                "visits": f"{int(np.clip(np.exp(level), 0, 9))}",
                "months": f"{rng.exponential(12 * np.exp(-level)):.4f}",
                "died": "yes" if rng.random() < 0.6 else "no",
            }
        )
    write_rows(path, rows)
    return rows


def write_rows(path: Path, rows: list[dict[str, str]]) -> Path:
    """Rows as a CSV file."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def plan_of(path: Path, **sections: str) -> TrainingPlan:
    """A plan for that table; keyword arguments are further lines of the sections."""
    given = {
        "data": "",
        "training": "",
        "privacy": "",
        "federation": "rounds = 2",
        "evaluation": "",
    }
    given |= sections
    return TrainingPlan.from_toml(
        f"""
[data]
path = "{path}"
silo_column = "silo"
columns = {FEATURES}
{given["data"]}
[federation]
{given["federation"]}
[privacy]
epsilon = 8.0
delta = 1e-4
{given["privacy"]}
[training]
{given["training"]}
[evaluation]
{given["evaluation"]}
"""
    )


def test_rows(plan: TrainingPlan, path: Path) -> tuple[np.ndarray, np.ndarray, FederatedData]:
    """Positions in the file of all test rows, and what each of them weighs in the run's measures."""
    data = load(plan)
    assert data.encoding is not None
    columns, _ = read_table(path, ReadingRules.of(plan.data))
    place = {row.tobytes(): at for at, row in enumerate(data.encoding.encode(columns))}
    assert len(place) == len(next(iter(columns.values()))), "rows must differ"
    rows, weights = [], []
    for silo in data.silos:
        rows += [place[row.tobytes()] for row in silo.test.x]
        weights += silo.test.weights("mean").tolist()
    return np.array(rows), np.array(weights), data


test_rows.__test__ = False  # type: ignore[attr-defined]
