"""Silos that differ in their labels: how much the deal of the same records costs each algorithm.

    python benchmarks/unequal_silos.py --out FOLDER
    python benchmarks/unequal_silos.py --out FOLDER --seeds 1 --rounds 5 --deals shards --lines newton

Fashion-MNIST behind Gabor features, 10 silos, ε = 1 proved, noise drawn, through the secure sum.
Every run is kept in FOLDER; what is there already is not run again, and the table is printed after
each. A seed is that of the deal, the split and the simulation.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import sumus
from sumus.plan import TrainingPlan

BASE: Final[dict[str, Any]] = {
    "privacy.epsilon": 1.0,
    "privacy.delta": 1e-5,
    "federation.silos": 10,
    "federation.colluding": 0,
    "training.features": "gabor",
    "data.name": "fashion-mnist",
}
DEALS: Final[dict[str, dict[str, Any]]] = {
    "iid": {"data.partition": "iid"},
    **{
        f"dirichlet-{alpha:g}": {"data.partition": "dirichlet", "data.dirichlet_alpha": alpha}
        for alpha in (1.0, 0.3, 0.1)
    },
    "shards": {"data.partition": "shards"},
}
_NEWTON: Final[dict[str, Any]] = {
    "training.algorithm": "newton",
    "training.components": 500,
    "aggregation.modulus_bits": 42,
}
_SINGLE: Final[dict[str, Any]] = {
    "training.algorithm": "single-step",
    "training.sampling_rate": 1.0,
    "aggregation.modulus_bits": 40,
}
LINES: Final[dict[str, dict[int, dict[str, Any]]]] = {
    "newton": {
        20: _NEWTON
        | {
            "training.matrix_share": 0.1,
            "training.learning_rate": 1.5,
            "training.server_momentum": 0.5,
        },
        5: _NEWTON | {"training.matrix_share": 0.3, "training.learning_rate": 2.0},
    },
    "convex-pass": {
        rounds: {
            "training.algorithm": "convex-pass",
            "federation.local_steps": 1400,
            "training.residual_cap": cap,
            "training.learning_rate": rate,
        }
        for rounds, cap, rate in ((20, 0.5, 0.8), (5, 0.7, 1.2))
    },
    "single-step": {
        20: _SINGLE
        | {
            "training.learning_rate": 16.0,
            "training.clip_norm": 0.25,
            "training.server_optimizer": "adam",
            "training.server_learning_rate": 0.1,
            "training.server_momentum": 0.5,
        },
        5: _SINGLE | {"training.learning_rate": 48.0, "training.clip_norm": 0.5},
    },
}


def main() -> None:
    """Measure what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, nargs="+", default=[20, 5])
    parser.add_argument("--deals", nargs="+", default=list(DEALS), choices=list(DEALS))
    parser.add_argument("--lines", nargs="+", default=list(LINES), choices=list(LINES))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "unequal_silos.json"
    found: dict[str, float] = json.loads(kept.read_text()) if kept.exists() else {}
    for seed in range(1, options.seeds + 1):
        for rounds in options.rounds:
            for deal in options.deals:
                for line in options.lines:
                    name = f"{line} {deal} {rounds} {seed}"
                    if name not in found:
                        found[name] = _accuracy(
                            LINES[line][rounds] | DEALS[deal], rounds=rounds, seed=seed
                        )
                        kept.write_text(json.dumps(found, indent=2) + "\n")
                        print(f"{name}: {100.0 * found[name]:.2f} %", flush=True)
    print(table(found))


def _accuracy(changes: Mapping[str, Any], *, rounds: int, seed: int) -> float:
    """On test records, of one run."""
    own = {"federation.rounds": rounds, "data.split_seed": seed}
    plan = TrainingPlan().with_overrides({**BASE, **changes, **own})
    with tempfile.TemporaryDirectory() as folder:
        run = sumus.train(
            plan,
            options=sumus.RunOptions(root=Path(folder), ledger=False),
            simulation=sumus.Simulation(seed),
        )
    return float(run.metrics["accuracy"])


def table(found: Mapping[str, float]) -> str:
    """Mean ± standard error of the mean over seeds, with how many there are."""
    cells: dict[tuple[str, str], dict[str, list[float]]] = {}
    for name, accuracy in found.items():
        line, deal, rounds, _ = name.rsplit(" ", 3)
        cells.setdefault((line, rounds), {}).setdefault(deal, []).append(100.0 * accuracy)
    lines = ["| | " + " | ".join(DEALS) + " |", "|---|" + "---:|" * len(DEALS)]
    for (line, rounds), by_deal in cells.items():
        texts = [_cell(by_deal.get(deal, [])) for deal in DEALS]
        lines.append(f"| {line}, {rounds} rounds | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    if not values:
        return "–"
    mean = f"{statistics.fmean(values):.2f}"
    if len(values) > 1:
        mean += f" ± {statistics.stdev(values) / math.sqrt(len(values)):.2f}"
    return f"{mean} % ({len(values)})"


if __name__ == "__main__":
    main()
