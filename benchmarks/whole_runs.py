"""Whole runs against the least that they could take, and a search beside Optuna's.

    python benchmarks/whole_runs.py [--quick]

`sumus train` from the command to its end, as the shipped plans say: Fashion-MNIST behind public
features (20 rounds) and Income (10 rounds). The floor is the processor time of what nobody can leave
out, each measured here: loading torch and numba; reading the file; every record's features, written
once; and in every round the training records read twice (outputs, then the step) and the test
records once, at the speed at which this machine reads memory. Noise, protocol, journal and
measures are not in the floor.

A search of 50 runs of `sumus tune` on the digits stands beside 50 trials of Optuna with
scikit-learn's logistic regression by stochastic gradients on the same records: no silos, no noise,
no secure sums. All are processes of their own, processor time from beginning to end; memory is the
peak resident set. What is not installed is left out. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rows import Row, at_most, last_line
from sumus.data import load
from sumus.data.locations import find
from sumus.errors import DataError
from sumus.plan import TrainingPlan
from sumus.training import PublicFeatures

ROOT = Path(__file__).parent.parent
PLANS = {"Fashion-MNIST, features, 20 rounds": "fashion-mnist", "Income, 10 rounds": "income"}
SAMPLE = 2000  # records whose features are timed
OPTUNA = """
import optuna
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
optuna.logging.set_verbosity(optuna.logging.WARNING)
x, y = load_digits(return_X_y=True)
x, kept, y, kept_y = train_test_split(x / 16.0, y, test_size=0.3, random_state=0)
def trial(asked):
    model = SGDClassifier(
        loss="log_loss", learning_rate="constant", max_iter=asked.suggest_int("passes", 1, 16),
        eta0=asked.suggest_float("rate", 1e-3, 10.0, log=True), tol=None,
        alpha=asked.suggest_float("penalty", 1e-6, 1e-1, log=True), random_state=0)
    return model.fit(x, y).score(kept, kept_y)
study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(trial, n_trials=50)
print(study.best_value)
"""


# what the system counts as a process's peak includes that of whoever started it
WATCHED = """
import atexit, os, runpy, sys
def tell():
    told = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
    open(os.environ["PEAK_KIB"], "w").write(told)
atexit.register(tell)
kind, what, *sys.argv[1:] = sys.argv[1:]
exec(what) if kind == "-c" else runpy.run_module(what, run_name="__main__", alter_sys=True)
"""


def measured(arguments: list[str], folder: Path) -> tuple[float, int]:
    """Processor seconds and peak bytes of a Python process from beginning to end."""
    told = folder / "peak"
    environment = os.environ | {
        "XDG_STATE_HOME": str(folder),
        "PYTHONPATH": str(ROOT / "src"),
        "PEAK_KIB": str(told),
    }
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-c", WATCHED, *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if process.returncode:
            sys.exit(f"{' '.join(arguments[:4])}: {said.read().decode().strip()[-500:]}")
    return used.ru_utime + used.ru_stime, 1024 * int(told.read_text())


def least_seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The least processor time of several runs."""
    took = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        took.append(time.process_time() - begin)
    return min(took)


def bytes_a_second() -> float:
    """How fast one core reads memory that no cache holds."""
    numbers = np.ones(1 << 26, np.float32)
    return numbers.nbytes / least_seconds(lambda: numbers.sum(), 5)


def reading_seconds(name: str) -> float:
    """The file's bytes as numbers, and nothing else."""
    if name == "income":
        from pyarrow import parquet

        from sumus.data.sets.income import FILE

        return least_seconds(lambda: parquet.ParquetFile(find(FILE)).read(), 2)
    import gzip

    folder = find("fashion-mnist", also=(Path("/usr/share/datasets/fashion-mnist"),))
    assert folder is not None  # it was loaded before
    return least_seconds(
        lambda: [gzip.decompress(path.read_bytes()) for path in folder.glob("*.gz")], 2
    )


def floor(name: str, folder: Path) -> tuple[dict[str, float], int, int]:
    """Seconds that a run of a shipped plan cannot do without, by what they are for; the bytes of its
    records behind the features, and those of the libraries alone.
    """
    plan = TrainingPlan.load(ROOT / "plans" / f"{name}.toml")
    data = load(plan)
    features = PublicFeatures.of(plan, data.shape)
    sample = data.silos[0].train.x[:SAMPLE]
    width = int(np.prod(features.shape))
    train = sum(len(silo.train) for silo in data.silos)
    test = sum(len(silo.test) for silo in data.silos)
    speed = bytes_a_second()
    if plan.training.features == "none":  # written once
        made = 4 * width * (train + test) / speed
    else:
        features(sample[:100])
        made = least_seconds(lambda: features(sample)) / len(sample) * (train + test)
    read = 4 * width * (2 * train + test) / speed
    libraries, bare = measured(["-c", "import torch, numba"], folder)
    seconds = {
        "libraries": libraries,
        "reading": reading_seconds(name),
        "features": made,
        "arithmetic": plan.federation.rounds * read,
    }
    return seconds, 4 * width * (train + test), bare


def run_rows(title: str, name: str, folder: Path) -> list[Row]:
    """A shipped plan, end to end; nothing where its data is not here."""
    try:
        least, encoded, bare = floor(name, folder)
    except DataError as missing:
        print(f"not measured: {title}: {missing}")
        return []
    plan = str(ROOT / "plans" / f"{name}.toml")
    run = ["-m", "sumus", "train", plan, "--no-report", "--no-ledger", "--out", str(folder)]
    (took, peak), bottom = measured(run, folder), sum(least.values())
    spent = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in least.items())
    print(f"{title}: {took:.1f} s, floor {bottom:.1f} s ({spent})", flush=True)
    sizes = f"{peak / 1e9:.2f} GB in all, encoded {encoded / 1e9:.2f} GB"
    print(f"{title}: {sizes}, libraries {bare / 1e9:.2f} GB", flush=True)
    return [
        at_most(
            f"whole run over its floor: {title}",
            took / bottom,
            2.0,
            "floors",
            floor=f"{bottom:.1f} s: {spent}",
            where=f"{took:.1f} s in all",
        ),
        at_most(
            f"peak memory over the encoded records: {title}",
            peak / encoded,
            1.5,
            "×",
            floor=f"{1.0 + bare / encoded:.2g}: the records behind their features, and the libraries",
            where=sizes,
        ),
    ]


def search_row(folder: Path) -> Row:
    """50 runs of a search on the digits, and 50 trials without silos, noise and protocol."""
    plan = str(ROOT / "src" / "sumus" / "plan" / "plans" / "digits.toml")
    search = ["-m", "sumus", "tune", plan, "--runs", "50", "--no-prune", "--out"]
    ours, _ = measured([*search, str(folder / "search")], folder)
    theirs, _ = measured(["-c", OPTUNA], folder)
    print(f"50 trials on the digits: {ours:.1f} s, Optuna with scikit-learn {theirs:.1f} s")
    return at_most(
        "search of 50 runs on the digits over Optuna with scikit-learn",
        ours / theirs,
        10.0,
        "×",
        floor="scikit-learn adds no noise, sums nothing securely and measures once",
        where=f"{ours / 50:.2f} s a run of 8 rounds and 5 silos",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the search alone")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as scratch:
        rows = [search_row(Path(scratch))]
        if not quick:
            for title, name in PLANS.items():
                rows += run_rows(title, name, Path(scratch))
    print(last_line(rows))


if __name__ == "__main__":
    main()
