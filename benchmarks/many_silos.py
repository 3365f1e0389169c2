"""Seconds to account for many silos that all differ, and for the ε that is shown after a round.

    python benchmarks/many_silos.py [--quick]

Every silo has a number of records of its own (500 to 20,000), so every silo has an ε of its own:
nothing is shared between them. An account is everything from the plan to what `sumus account`
prints: calibration of the noise, every analysis for every silo, and what they mean. The ε of a
further round is what a run shows; it is computed ahead, while the round before it runs. Processor
time, the least of several runs, everything imported before. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import time

from accounting import forget
from rows import Curve, at_most, last_line
from sumus.guarantee import NoiseDesign, account_of, calibrated
from sumus.guarantee.accounts import spent
from sumus.plan import PublicFacts, TrainingPlan
from sumus.tasks import LabelFacts

PLAN = """
[privacy]
epsilon = 1.0
delta = 1e-7
[federation]
silos = {silos}
rounds = 10
dropouts = 1
colluding = 1
{steps}
[training]
algorithm = "{algorithm}"
model = "logistic"
batch_size = {batch}
[aggregation]
modulus_bits = 48
[noise]
resolution_bits = 12
[evaluation]
metrics = "none"
"""
ALGORITHMS = {
    "convex-pass": {"steps": "", "batch": 8.0},
    "split-noise": {"steps": "local_epochs = 1", "batch": 64},
}
_FLOOR = "an ε of its own for every silo, and the curve of attacks on it"
_WHERE = "two loss distributions, one for ε and one for the curve"
SIZES = {"convex-pass": (10, 100, 1000), "split-noise": (10, 100, 1000)}


def facts(silos: int, *, alike: bool = False) -> PublicFacts:
    """Public numbers of so many silos, each with its own number of records."""
    ratio = 40.0 ** (1.0 / max(1, silos - 1))
    counts = tuple(5000 if alike else place + round(500 * ratio**place) for place in range(silos))
    names = tuple(f"silo {place}" for place in range(silos))
    return PublicFacts("made up", names, counts, (20,), LabelFacts(("no", "yes")))


def accounted(
    algorithm: str, silos: int, *, repeats: int, alike: bool = False
) -> tuple[float, NoiseDesign]:
    """Least processor seconds from the plan to its account, and the design."""
    plan = TrainingPlan.from_toml(
        PLAN.format(silos=silos, algorithm=algorithm, **ALGORITHMS[algorithm])
    )
    took = []
    for _ in range(repeats):
        forget()
        begin = time.process_time()
        design = calibrated(plan, facts(silos, alike=alike))
        account_of(design)
        took.append(time.process_time() - begin)
    return min(took), design


def further_round(design: NoiseDesign) -> float:
    """Least processor milliseconds of ε after some more rounds."""
    took = []
    for rounds in (3, 5, 7, 9):
        begin = time.process_time()
        spent(design, rounds)
        took.append(1e3 * (time.process_time() - begin))
    return min(took)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="no more than 100 silos")
    quick = parser.parse_args().quick
    rows, curves = [], []
    for algorithm in ALGORITHMS:
        accounted(algorithm, 5, repeats=1)
        _, alike = accounted(algorithm, 10, repeats=1, alike=True)
        wait = further_round(alike)
        print(f"{algorithm}: ε of a further round, 10 silos alike: {wait:.2f} ms")
        rows.append(
            at_most(
                f"ε of a further round of {algorithm}, silos alike",
                wait,
                5.0,
                "ms",
                floor="one loss distribution, composed",
                where="two kinds of queries: four transforms each way, and the powers between them",
            )
        )
        sizes = [silos for silos in SIZES[algorithm] if silos <= (100 if quick else 1000)]
        costs = []
        for silos in sizes:
            took, design = accounted(algorithm, silos, repeats=3 if silos < 1000 else 1)
            costs.append(took)
            later = further_round(design) if silos <= 100 else float("nan")
            print(f"{algorithm}: {silos:>5} silos {took:8.3f} s, a further round {later:8.2f} ms")
        curves.append(
            Curve(
                f"account of {algorithm}",
                "silos that differ",
                "s",
                tuple(map(float, sizes)),
                tuple(costs),
            )
        )
        # linear from the largest size on: each silo has analyses of its own
        rows.append(
            at_most(
                f"account of 100 silos that differ, {algorithm}",
                costs[sizes.index(100)],
                0.5,
                "s",
                floor=_FLOOR,
                where=f"{1e3 * costs[-1] / sizes[-1]:.2g} ms a silo: {_WHERE}",
            )
        )
        if 1000 in sizes:
            rows.append(
                at_most(
                    f"account of 1,000 silos that differ, {algorithm}",
                    costs[-1],
                    5.0,
                    "s",
                    floor=_FLOOR,
                    where=f"{1e3 * costs[-1] / sizes[-1]:.2g} ms a silo: {_WHERE}",
                )
            )
    print(last_line(rows, curves))


if __name__ == "__main__":
    main()
