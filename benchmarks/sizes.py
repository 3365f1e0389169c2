"""What a model's size costs: seconds, memory and disk of a run in process, per parameter.

    python benchmarks/sizes.py                        # 10⁵, 10⁶ and 10⁷ parameters: a minute
    python benchmarks/sizes.py --parameters 1e7       # one size
    python benchmarks/sizes.py --quick                # 10⁵ and 10⁶
    python benchmarks/sizes.py --against OTHER/src    # beside another version of the sources

3 silos, a network of two hidden layers on the embedded digits, one step of about 24 records a round,
real noise and the real protocol, one silo after the other. Every figure is of a process of its own.
Processor seconds do not depend on who else uses the machine as wall-clock time does, so ratios are
of the former; the versions take turns. A round is the difference between runs of three rounds and of
one; what is left of the run of one is start, examination, first checkpoint and end. `memory` is what
the process holds at most beyond one that trains 1,000 parameters. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from rows import Curve, Row, at_most, last_line

PLAN = """
[privacy]
epsilon = 4.0
delta = 1e-4
[federation]
silos = 3
rounds = {rounds}
[training]
algorithm = "single-step"
model = "mlp"
hidden = [{width}, {width}]
sampling_rate = 0.05
[data]
name = "digits"
[evaluation]
metrics = "none"
"""
_SMALL = 1_000


def width_of(parameters: int) -> int:
    """Of two equal hidden layers between 64 inputs and 10 classes."""
    return max(1, round((math.sqrt(76**2 + 4 * parameters) - 76) / 2))


def one_run(parameters: int, rounds: int) -> dict[str, float]:
    """Train in this process and say what it took."""
    from sumus import RunOptions, TrainingPlan, train

    plan = TrainingPlan.from_toml(PLAN.format(rounds=rounds, width=width_of(parameters)))
    with tempfile.TemporaryDirectory() as folder:
        wall, processor = time.perf_counter(), time.process_time()
        options = RunOptions(root=Path(folder), ledger=False, threads=1)
        run = train(plan, options=options, progress=False)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        stored = sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())
    return {
        "parameters": float(run.plan.training.dimension or 0),
        "wall": wall,
        "processor": processor,
        "memory": 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "disk": float(stored),
    }


def measured(sources: Path, parameters: int, rounds: int) -> dict[str, float]:
    """The same in a process of its own, with these sources."""
    command = [sys.executable, __file__, "--child", str(parameters), str(rounds)]
    environment = {**os.environ, "PYTHONPATH": str(sources), "OMP_NUM_THREADS": "1"}
    answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    values: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return values


def costs(sources: dict[str, Path], parameters: int, repeats: int) -> dict[str, dict[str, float]]:
    """Of each version: medians over repetitions that take turns."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
    for folder in sources.values():
        measured(folder, _SMALL, 1)  # compiles what a fresh tree has not compiled yet
    for _ in range(repeats):
        for name, folder in sources.items():
            small, one, three = (
                measured(folder, *asked)
                for asked in ((_SMALL, 1), (parameters, 1), (parameters, 3))
            )
            runs[name].append(
                {
                    "parameters": one["parameters"],
                    "round": (three["processor"] - one["processor"]) / 2.0,
                    "all": one["processor"],
                    "beyond": one["processor"] - small["processor"],
                    "wall": one["wall"],
                    "memory": one["memory"] - small["memory"],
                    "disk": one["disk"],
                }
            )
    return {
        name: {key: median(each[key] for each in found) for key in found[0]}
        for name, found in runs.items()
    }


def printed(name: str, values: dict[str, float]) -> str:
    """One line."""
    model = 4.0 * values["parameters"]
    return (
        f"{values['parameters']:>12,.0f}  {name:<8} {values['round']:>7.2f} s {values['all']:>7.2f} s "
        f"{values['beyond']:>7.2f} s {values['wall']:>7.2f} s "
        f"{values['memory'] / 1e6:>7.0f} MB ({values['memory'] / model:>4.1f}) "
        f"{values['disk'] / 1e6:>6.1f} MB ({values['disk'] / model:>4.1f})"
    )


def figures(table: list[dict[str, Any]]) -> tuple[list[Row], list[Curve]]:
    """Bytes of memory and disk in models of float32, at every size that is not small; curves over
    all sizes.
    """
    rows = []
    for values in table:
        if values["parameters"] < 5e5:
            continue
        model, name = 4.0 * values["parameters"], f"{values['parameters']:.0e} parameters"
        ways = "weights, sums and masks of all parties, in one process"
        rows += [
            at_most(
                f"memory of a run, {name}", values["memory"] / model, 25.0, "models", where=ways
            ),
            at_most(f"run folder, {name}", values["disk"] / model, 2.5, "models"),
        ]
    sizes = tuple(values["parameters"] for values in table)
    kinds = {"round": "processor s", "memory": "bytes", "disk": "bytes"}
    return rows, [
        Curve(name, "parameters", unit, sizes, tuple(values[name] for values in table))
        for name, unit in kinds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameters", default="1e5,1e6,1e7")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="10⁵ and 10⁶ parameters")
    parser.add_argument("--against", type=Path, help="sources of another version")
    parser.add_argument("--child", nargs=2, type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(one_run(*asked.child)))
        return
    sources = {"this": Path(__file__).resolve().parents[1] / "src"}
    if asked.against:
        sources = {"other": asked.against.resolve(), **sources}
    asked.parameters = "1e5,1e6" if asked.quick else asked.parameters
    print("processor seconds, but for `wall`; in brackets: times the model in float32")
    print(
        f"{'parameters':>12}  {'sources':<8} {'round':>9} {'all':>9} {'beyond':>9} {'wall':>9} memory disk"
    )
    table: list[dict[str, Any]] = []
    for size in (int(float(each)) for each in asked.parameters.split(",")):
        found = costs(sources, size, asked.repeats)
        for name, values in found.items():
            print(printed(name, values), flush=True)
            table.append({"sources": name, **values})
        if "other" in found:
            ratios = {key: found["this"][key] / found["other"][key] for key in found["this"]}
            shown = ("round", "all", "beyond", "wall", "memory", "disk")
            print("  this / other: " + ", ".join(f"{key} {ratios[key]:.2f}" for key in shown))
    print(last_line(*figures([each for each in table if each["sources"] == "this"]), table=table))


if __name__ == "__main__":
    main()
