"""Silos that differ in their labels: how much the deal of the same records costs each algorithm.

    python benchmarks/unequal_silos.py --out FOLDER
    python benchmarks/unequal_silos.py --out FOLDER --seeds 1 --rounds 5 --deals shards --lines newton
    python benchmarks/unequal_silos.py --out FOLDER --deals covid-tests randhie flights --tables TABLES

Fashion-MNIST behind Gabor features, 10 silos, or tables whose rows belong to silos of their own
accord, which `sumus data prepare NAME --out TABLES` writes; ε = 1 proved, noise drawn, through the
secure sum.
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
from itertools import product
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
        **{
            rounds: _NEWTON | {"training.matrix_share": 0.3, "training.learning_rate": 2.0}
            for rounds in (5, 2, 1)
        },
    },
    "convex-pass": {
        rounds: {
            "training.algorithm": "convex-pass",
            "federation.local_steps": 1400,
            "training.residual_cap": cap,
            "training.learning_rate": rate,
        }
        for rounds, cap, rate in ((20, 0.5, 0.8), (5, 0.7, 1.2), (2, 0.7, 1.2), (1, 0.7, 1.2))
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
_ONE_STEP: Final[dict[str, Any]] = {
    "training.algorithm": "single-step",
    "training.sampling_rate": 1.0,
    "training.server_momentum": 0.5,
}
_ONE_PASS: Final[dict[str, Any]] = {
    "training.algorithm": "convex-pass",
    "training.batch_size": 16.0,
}
NATURAL: Final[dict[str, tuple[str, dict[str, dict[str, Any]]]]] = {
    "covid-tests": (
        "auroc",
        {
            "newton": {
                "training.algorithm": "newton",
                "training.learning_rate": 2.0,
                "training.matrix_share": 0.1,
                "training.clip_norm": 0.5,
            },
            "convex-pass": _ONE_PASS | {"training.learning_rate": 4.0},
            "single-step": _ONE_STEP | {"training.learning_rate": 4.0, "training.clip_norm": 0.5},
        },
    ),
    "randhie": (
        "r2",
        {
            "newton": {
                "training.algorithm": "newton",
                "training.matrix_share": 0.3,
                "training.clip_norm": 0.5,
            },
            "convex-pass": _ONE_PASS
            | {"training.learning_rate": 0.5, "training.residual_cap": 0.3},
            "single-step": _ONE_STEP | {"training.learning_rate": 1.0, "training.clip_norm": 0.5},
        },
    ),
    "flights": (
        "r2",
        {
            "newton": {
                "training.algorithm": "newton",
                "training.matrix_share": 0.3,
                "training.clip_norm": 1.0,
            },
            "convex-pass": _ONE_PASS | {"training.learning_rate": 0.5},
            "single-step": _ONE_STEP | {"training.learning_rate": 4.0, "training.clip_norm": 0.5},
        },
    ),
}
"""Tables with silos of their own: the measure, and settings in 5 rounds, chosen on validation records;
`normal-equations` is what the table's own plan says, in one round."""
PLANNED: Final = "normal-equations"


def main() -> None:
    """Measure what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, nargs="+", default=[20, 5])
    parser.add_argument(
        "--deals", nargs="+", default=list(DEALS), choices=[*DEALS, *NATURAL], metavar="DEAL"
    )
    parser.add_argument("--lines", nargs="+", default=[*LINES, PLANNED], metavar="LINE")
    parser.add_argument("--tables", type=Path, default=Path(), help="folder of natural tables")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "unequal_silos.json"
    found: dict[str, float] = json.loads(kept.read_text()) if kept.exists() else {}
    for seed in range(1, options.seeds + 1):
        for deal, rounds, line in product(options.deals, options.rounds, options.lines):
            plan = _plan(line, deal, rounds, options.tables)
            name = f"{line} {deal} {rounds} {seed}"
            if plan is None or name in found:
                continue
            measure = NATURAL[deal][0] if deal in NATURAL else "accuracy"
            found[name] = _measured(plan, measure, seed=seed)
            kept.write_text(json.dumps(found, indent=2) + "\n")
            print(f"{name}: {found[name]:.4f}", flush=True)
    print(table(found))


def _plan(line: str, deal: str, rounds: int, tables: Path) -> TrainingPlan | None:
    """None where a line has no settings for a deal in so many rounds."""
    if deal in NATURAL:
        planned = TrainingPlan.load(tables / f"{deal}.toml").replace(
            "data", path=str(tables / f"{deal}.parquet")
        )
        if line == PLANNED:
            return planned if rounds == 1 else None
        own = NATURAL[deal][1].get(line) if rounds == 5 else None
        model = "logistic" if deal == "covid-tests" else "linear"
        changes = {"training.model": model, "aggregation.modulus_bits": 48}
        return (
            None
            if own is None
            else planned.with_overrides({**changes, **own, "federation.rounds": rounds})
        )
    settings = LINES.get(line, {}).get(rounds)
    if settings is None:
        return None
    return TrainingPlan().with_overrides(
        {**BASE, **settings, **DEALS[deal], "federation.rounds": rounds}
    )


def _measured(plan: TrainingPlan, measure: str, *, seed: int) -> float:
    """On test records, of one run."""
    plan = plan.replace("data", split_seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        run = sumus.train(
            plan,
            options=sumus.RunOptions(root=Path(folder), ledger=False),
            simulation=sumus.Simulation(seed),
        )
    return float(run.metrics[measure])


def table(found: Mapping[str, float]) -> str:
    """Mean ± standard error of the mean over seeds, in hundredths, with how many there are."""
    cells: dict[tuple[str, str], dict[str, list[float]]] = {}
    for name, accuracy in found.items():
        line, deal, rounds, _ = name.rsplit(" ", 3)
        cells.setdefault((line, rounds), {}).setdefault(deal, []).append(100.0 * accuracy)
    measured = {deal for by_deal in cells.values() for deal in by_deal}
    deals = [deal for deal in (*DEALS, *NATURAL) if deal in measured]
    lines = ["| | " + " | ".join(deals) + " |", "|---|" + "---:|" * len(deals)]
    for (line, rounds), by_deal in cells.items():
        texts = [_cell(by_deal.get(deal, [])) for deal in deals]
        lines.append(f"| {line}, {rounds} rounds | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    if not values:
        return "–"
    mean = f"{statistics.fmean(values):.2f}"
    if len(values) > 1:
        mean += f" ± {statistics.stdev(values) / math.sqrt(len(values)):.2f}"
    return f"{mean} ({len(values)})"


if __name__ == "__main__":
    main()
