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
no secure sums. Both are processes of their own, processor time from beginning to end. What is not
installed is left out. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import os
import resource
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


def processor_seconds(arguments: list[str], folder: Path) -> float:
    """Of a Python process from beginning to end, its threads and children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"XDG_STATE_HOME": str(folder), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(arguments[:4])}: {done.stderr.strip()[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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


def floor(name: str, folder: Path) -> dict[str, float]:
    """Seconds that a run of a shipped plan cannot do without, by what they are for."""
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
    return {
        "libraries": processor_seconds(["-c", "import torch, numba"], folder),
        "reading": reading_seconds(name),
        "features": made,
        "arithmetic": plan.federation.rounds * read,
    }


def run_row(title: str, name: str, folder: Path) -> Row | None:
    """A shipped plan, end to end; None where its data is not here."""
    try:
        least = floor(name, folder)
    except DataError as missing:
        print(f"not measured: {title}: {missing}")
        return None
    plan = str(ROOT / "plans" / f"{name}.toml")
    run = ["-m", "sumus", "train", plan, "--no-report", "--no-ledger", "--out", str(folder)]
    took, bottom = processor_seconds(run, folder), sum(least.values())
    spent = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in least.items())
    print(f"{title}: {took:.1f} s, floor {bottom:.1f} s ({spent})", flush=True)
    return at_most(
        f"whole run over its floor: {title}",
        took / bottom,
        2.0,
        "floors",
        floor=f"{bottom:.1f} s: {spent}",
        where=f"{took:.1f} s in all",
    )


def search_row(folder: Path) -> Row:
    """50 runs of a search on the digits, and 50 trials without silos, noise and protocol."""
    plan = str(ROOT / "src" / "sumus" / "plan" / "plans" / "digits.toml")
    search = ["-m", "sumus", "tune", plan, "--runs", "50", "--no-prune", "--out"]
    ours = processor_seconds([*search, str(folder / "search")], folder)
    theirs = processor_seconds(["-c", OPTUNA], folder)
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
            found = [run_row(title, name, Path(scratch)) for title, name in PLANS.items()]
            rows += [row for row in found if row is not None]
    print(last_line(rows))


if __name__ == "__main__":
    main()
