"""How long a comparison takes: 131 silos with 31,000 rows, 40 columns and five classes.

python benchmarks/compare.py [--silos 131] [--rows 31000] [--columns 40] [--classes 5]
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

from sumus.comparing import compare
from sumus.data import from_arrays
from sumus.guarantee import calibrated
from sumus.plan import TrainingPlan
from sumus.training import prepare


def main() -> None:
    """Measure wall-clock and processor time of the comparison alone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("silos", 131), ("rows", 31_000), ("columns", 40), ("classes", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(options.rows, options.columns)).astype(np.float32)
    weights = 0.4 * rng.normal(size=(options.columns, options.classes))
    y = (x @ weights + rng.gumbel(size=(options.rows, options.classes))).argmax(axis=1)
    parts = [
        (x[place :: options.silos], y[place :: options.silos]) for place in range(options.silos)
    ]
    data = from_arrays(parts, classes=options.classes)
    plan = TrainingPlan().with_overrides(
        {"training.algorithm": "convex-pass", "federation.rounds": 1, "federation.local_steps": 10}
    )
    design = calibrated(plan, data.facts())
    prepared = prepare(design.plan, data)
    begin, worked = time.perf_counter(), time.process_time()
    (found,) = compare(
        design.plan, data, prepared, prepared.first_parameters, threads=os.cpu_count() or 1
    )
    print(
        f"{options.silos} silos, {options.rows:,} rows, {options.columns} columns, "
        f"{options.classes} classes: {time.perf_counter() - begin:.1f} s, "
        f"{time.process_time() - worked:.1f} s of processor time"
    )
    for each in found.contenders:
        print(f"  {each.title}: {each.value:.3f} ± {each.plus_minus or 0.0:.3f}")


if __name__ == "__main__":
    main()
