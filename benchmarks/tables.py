"""Seconds and memory from a large table to the first round of training.

    python benchmarks/tables.py [--csv-rows 1000000] [--parquet-rows 10000000] [--only csv|parquet] [--quick]

Writes a table of 12 columns (silo, label, 8 numbers with decimals of which one has gaps, 2
categories) and trains a plan that declares them for one round by the command line, each in a process
of its own: nothing but the plan and the file is given. Seconds are wall clock from the start of the
process to its end, one round later; processor seconds are what a machine with nothing else to do
needs at most; memory is the process's peak resident set. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from rows import at_most, last_line

SILOS = tuple(f"clinic {number}" for number in range(8))
WARDS = ("surgery", "medicine", "children", "other")
NUMBERS = 8

PLAN = """
[data]
path = "{path}"
silo_column = "clinic"
label_column = "ill"
columns = {columns}
records_per_silo = {counts}
bounds = {{ {bounds} }}
categories = {{ clinic = {silos}, ill = ["0", "1"], ward = {wards}, sex = ["f", "m"] }}

[privacy]
epsilon = 1.0
delta = 1e-8

[federation]
rounds = 1
local_steps = 4

[evaluation]
metrics = "none"
"""

WATCHER = """
import json, resource, sys
from sumus.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    code = end.code
else:
    code = 0
used = resource.getrusage(resource.RUSAGE_SELF)
told = {"processor_seconds": used.ru_utime + used.ru_stime, "peak_gb": used.ru_maxrss * 1024 / 1e9}
print(json.dumps({**told, "code": code}))
"""


def columns(rows: int, source: np.random.Generator) -> dict[str, Any]:
    """A block of made-up visits."""
    numbers = {
        f"x{place}": np.round(source.normal(50.0, 15.0, rows), 3) for place in range(NUMBERS)
    }
    odds = numbers["x0"] - 50.0 + source.normal(0.0, 10.0, rows)
    numbers["x1"][source.random(rows) < 0.05] = np.nan
    return {
        "clinic": np.array(SILOS)[source.integers(len(SILOS), size=rows)],
        **numbers,
        "ward": np.array(WARDS)[source.integers(len(WARDS), size=rows)],
        "sex": np.array(["f", "m"])[source.integers(2, size=rows)],
        "ill": (odds > 0.0).astype(np.int64),
    }


def write(folder: Path, kind: str, rows: int) -> Path:
    """The table as one file, written in blocks."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    path, source = folder / f"visits.{kind}", np.random.default_rng(0)
    first = pyarrow.table(columns(10, source)).schema
    writer = pyarrow.csv.CSVWriter if kind == "csv" else pyarrow.parquet.ParquetWriter
    with writer(path, first) as out:
        for start in range(0, rows, 500_000):
            block = columns(min(500_000, rows - start), source)
            table = pyarrow.table(
                {name: pyarrow.array(values, from_pandas=True) for name, values in block.items()}
            )
            out.write_table(table.cast(first))
    return path


def measure(path: Path, rows: int) -> dict[str, float]:
    """One round of training, in a process of its own."""
    names = [f"x{place}" for place in range(NUMBERS)]
    plan = path.with_suffix(".toml")
    plan.write_text(
        PLAN.format(
            path=path.name,
            columns=json.dumps([*names, "ward", "sex"]),
            counts=json.dumps([rows] * len(SILOS)),
            bounds=", ".join(f"{name} = [0, 100]" for name in names),
            silos=json.dumps(SILOS),
            wards=json.dumps(WARDS),
        )
    )
    arguments = ["train", str(plan), "--out", str(path.parent / "runs"), "--json"]
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", WATCHER, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "XDG_STATE_HOME": str(path.parent / "state"),
            "SUMUS_STATE": str(path.parent / "state"),
        },
    )
    told = json.loads(done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else {}
    if told.pop("code", 1) not in (0, None):
        sys.exit(f"{path.name}: {done.stderr.strip()[-2000:]} {done.stdout[-500:]}")
    return {"seconds": time.perf_counter() - begun, **told}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--csv-rows", type=int, default=1_000_000)
    parser.add_argument("--parquet-rows", type=int, default=10_000_000)
    parser.add_argument("--only", choices=("csv", "parquet"))
    parser.add_argument("--quick", action="store_true", help="the CSV file alone")
    chosen = parser.parse_args()
    chosen.only = "csv" if chosen.quick else chosen.only
    results: dict[str, dict[str, float]] = {}
    print("| table | rows | file | s to the first round | processor s | peak resident set |")
    print("|---|---:|---:|---:|---:|---:|")
    for kind, rows in (("csv", chosen.csv_rows), ("parquet", chosen.parquet_rows)):
        if chosen.only not in (None, kind):
            continue
        with tempfile.TemporaryDirectory(prefix="sumus-tables-") as folder:
            path = write(Path(folder), kind, rows)
            size = path.stat().st_size / 1e6
            results[kind] = {"rows": rows, **measure(path, rows)}
        told = results[kind]
        times = f"{told['seconds']:.1f} | {told['processor_seconds']:.1f}"
        peak = f"{told['peak_gb']:.2f} GB"
        print(f"| {kind} | {rows:,} | {size:,.0f} MB | {times} | {peak} |", flush=True)
    bounds = {"csv": 1.2, "parquet": 4.0}  # GB, of the sizes that are the defaults
    rows = [
        at_most(
            f"peak memory, {kind} of {told['rows']:,} rows", told["peak_gb"], bounds[kind], "GB"
        )
        for kind, told in results.items()
    ]
    print(last_line(rows, tables=results))


if __name__ == "__main__":
    main()
