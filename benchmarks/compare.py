"""How long a comparison takes: 131 silos with 31,000 rows, 40 columns and five classes.

    python benchmarks/compare.py [--silos 131] [--rows 31000] [--columns 40] [--classes 5] [--quick]

In full also with fewer silos. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

from rows import Curve, at_most, last_line
from sumus.comparing import compare
from sumus.data import from_arrays
from sumus.guarantee import calibrated
from sumus.plan import TrainingPlan
from sumus.training import prepare


def seconds(silos: int, rows: int, columns: int, classes: int) -> tuple[float, float]:
    """On the clock and of the processor, of the comparison alone."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    weights = 0.4 * rng.normal(size=(columns, classes))
    y = (x @ weights + rng.gumbel(size=(rows, classes))).argmax(axis=1)
    data = from_arrays(
        [(x[place::silos], y[place::silos]) for place in range(silos)], classes=classes
    )
    plan = TrainingPlan().with_overrides(
        {"training.algorithm": "convex-pass", "federation.rounds": 1, "federation.local_steps": 10}
    )
    design = calibrated(plan, data.facts())
    prepared = prepare(design.plan, data)
    begin, worked = time.perf_counter(), time.process_time()
    (found,) = compare(
        design.plan, data, prepared, prepared.first_parameters, threads=os.cpu_count() or 1
    )
    clock, processor = time.perf_counter() - begin, time.process_time() - worked
    print(
        f"{silos} silos, {rows:,} rows, {columns} columns, {classes} classes: {clock:.1f} s, "
        f"{processor:.1f} s of processor time"
    )
    for each in found.contenders:
        print(f"  {each.title}: {each.value:.3f} ± {each.plus_minus or 0.0:.3f}")
    return clock, processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("silos", 131), ("rows", 31_000), ("columns", 40), ("classes", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--quick", action="store_true", help="the one size")
    options = parser.parse_args()
    fewer = () if options.quick else (options.silos // 16, options.silos // 4)
    times = {
        silos: seconds(silos, options.rows, options.columns, options.classes)
        for silos in (*fewer, options.silos)
    }
    clock, processor = times[options.silos]
    rows = [
        at_most(
            f"comparison of {options.silos} silos",
            clock,
            30.0,
            "s",
            floor=f"{processor / (os.cpu_count() or 1):.1f} s: its processor time on all cores",
        )
    ]
    sizes = tuple(map(float, times))
    curves = [
        Curve(name, "silos", "s", sizes, tuple(each[place] for each in times.values()))
        for place, name in enumerate(("on the clock", "processor time"))
    ]
    print(last_line(rows, curves if fewer else ()))


if __name__ == "__main__":
    main()
