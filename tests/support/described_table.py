"""A small table to describe, with a column whose name is markup."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sumus.plan import TrainingPlan
from sumus.runs import RunOptions

__all__ = ["NASTY", "described_plan", "description_options"]

NASTY = "<b>x</b>&\"'"


def described_plan(folder: Path, *, more: int = 0) -> TrainingPlan:
    """A plan about 900 records of three silos, which it writes into the folder.

    Args:
        more: columns of numbers, beside the four that are always there.
    """
    draw = np.random.default_rng(0)
    rows = [
        f"{'ABC'[i % 3]},{draw.normal(50, 9):.1f},{draw.exponential(9):.2f},{'uv'[i % 2]},t{i}"
        + "".join(f",{value:.2f}" for value in draw.normal(50, 9, more))
        for i in range(900)
    ]
    header = f'site,age,"{NASTY.replace(chr(34), chr(34) * 2)}",ward,note'
    header += "".join(f",measure {place}" for place in range(more))
    (folder / "t.csv").write_text("\n".join([header, *rows, ""]))
    return TrainingPlan().with_overrides(
        {
            "data.path": str(folder / "t.csv"),
            "data.silo_column": "site",
            "data.label_column": "ward",
            "data.bounds.age": [0, 100],
            "data.categories.ward": ["u", "w"],
        }
    )


def description_options(folder: Path) -> RunOptions:
    """On no ledger."""
    return RunOptions(root=folder, ledger=False)
