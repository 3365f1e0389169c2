"""How good is what `sumus new` suggests? Drafts plans for tables and trains them as they are.

    sumus data prepare randhie --out FOLDER      # and covid-tests, dialysis
    python benchmarks/drafted_plans.py --tables FOLDER --splits 3

A line for every table and every way of knowing its columns: nothing declared, bounds learned by
`sumus describe --fill` (a quarter of ε more), bounds and categories declared. Real noise, the real
secure sum, ε = 1, one split of the records a run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from sumus.cli import main as sumus
from sumus.data import write_patients

PATIENTS = ["--silo", "hospital", "--label", "readmitted"]
DECLARED = [
    *("--list", "sex,ward,smoker"),
    *("--bounds", "age=18,99", "--bounds", "stay_days=0,25", "--bounds", "blood_pressure=90,155"),
    *("--bounds", "creatinine=0.3,2.5", "--bounds", "earlier_visits=0,7"),
]
EXPENSE = ["--silo", "site", "--label", "log_expense", "--leave-out", "visits,year"]
COVID = ["--silo", "clinic", "--label", "result", "--leave-out", "gender,day"]
TIMES = ["--silo", "centre", "--time", "months", "--event", "died", "--intervals", "3,9,18,30"]


def told(*arguments: str) -> dict[str, Any]:
    """The JSON of a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = sumus([*arguments, "--json"])
    if code:
        raise SystemExit(f"sumus {' '.join(arguments)} ended with {code}")
    return dict(json.loads(out.getvalue().splitlines()[-1]))


def measured(
    title: str, table: Path, asked: list[str], measure: str, splits: int, *, fill: bool
) -> None:
    """Draft, maybe describe, train; one line."""
    values = []
    for split in range(splits):
        drafted = told("new", str(table), *asked, "--out", "plan.toml", "--force")
        if fill:
            told("describe", "plan.toml", "--fill", "--no-report", "--no-ledger")
        quiet = ("--no-report", "--no-ledger", "--set", f"data.split_seed={split}")
        values.append(told("train", "plan.toml", *quiet)["metrics"][measure])
    algorithm = drafted["choices"]["training.algorithm"]["value"]
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    unit = drafted["choices"]["privacy.unit"]["value"]
    print(
        f"{title} | {unit} | {algorithm} | {measure} {np.mean(values):.3f} ± {error:.3f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, help="Folder of `sumus data prepare`.")
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    tables = None if options.tables is None else options.tables.absolute()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["SUMUS_STATE"] = folder
        for records in (2000, 6000, 30000):
            table = write_patients(Path(f"patients-{records}.csv"), records=records, seed=5)
            for how, asked, fill in (
                ("nothing declared", PATIENTS, False),
                ("bounds learned", PATIENTS, True),
                ("all declared", [*PATIENTS, *DECLARED], False),
            ):
                title = f"{records} patients, {how}"
                measured(title, table, asked, "accuracy", options.splits, fill=fill)
        if tables is None:
            return
        for name, asked, target, measure in (
            ("randhie", EXPENSE, ["--bounds", "log_expense=0,9", "--person", "person"], "r2"),
            ("covid-tests", COVID, [], "auroc"),
            ("dialysis", TIMES, ["--person", "patient"], "c_index"),
        ):
            table, plan = tables / f"{name}.parquet", str(tables / f"{name}.toml")
            for how, more in (
                ("nothing declared", []),
                ("all declared", ["--schema", plan]),
            ):
                title, all_asked = f"{name}, {how}", [*asked, *target, *more]
                measured(title, table, all_asked, measure, options.splits, fill=False)


if __name__ == "__main__":
    main()
