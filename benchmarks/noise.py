"""What one integer draw costs, against two Poisson draws of NumPy in the same run.

    python benchmarks/noise.py [--draws 2000000] [--repeats 7] [--quick]

Prints a table and ends with one JSON line. Times are processor time of one thread, the least of
several repeats that alternate between the contenders, so that a busy machine disturbs neither; ours
includes the AES-CTR keystream, NumPy's generator is not cryptographic. `floor_ns` is the keystream
alone: one or two 64-bit words a draw.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from rows import Curve, Row, at_least, at_most, last_line
from sumus.noise import DiscreteGaussian, Law, Skellam
from sumus.noise.sampler import block_table
from sumus.randomness import RandomSource

VARIANCES = (1e2, 1e4, 1e5, 1e6, 1e8, 1e10, 1e12, 2.0**46)
FIRST_DRAW = """
import time
from sumus.noise import Skellam
from sumus.randomness import RandomSource
start = time.process_time()
Skellam(1e6).sample(1000, RandomSource())
print(time.process_time() - start)
"""


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def compare(law: Law, draws: int, repeats: int) -> dict[str, float]:
    """Least nanoseconds a draw of our sampler, of NumPy's two Poisson draws and of the keystream
    alone.
    """
    source, generator = RandomSource(), np.random.default_rng()
    rate = law.variance_grid / 2.0
    words = np.empty(draws * (2 if block_table(law).offset_bits else 1), dtype=np.uint64)
    work: dict[str, Callable[[], object]] = {
        "sumus_ns": lambda: law.sample(draws, source),
        "numpy_ns": lambda: generator.poisson(rate, draws) - generator.poisson(rate, draws),
        "floor_ns": lambda: source.fill(words),
    }
    law.sample(1000, source)
    least = dict.fromkeys(work, float("inf"))
    for _ in range(repeats):
        for name, job in work.items():
            least[name] = min(least[name], seconds(job) / draws * 1e9)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--quick", action="store_true", help="a quarter of the draws, three repeats"
    )
    options = parser.parse_args()
    if options.quick:
        options.draws, options.repeats = 500_000, 3

    print(
        f"{'law':<34}{'sumus':>9}{'keystream':>11}{'2 x numpy':>11}{'ratio':>8}   ns a draw, least "
        f"of {options.repeats}"
    )
    typical: list[dict[str, float]] = []
    every: dict[str, dict[str, float]] = {}
    for law in [*map(Skellam, VARIANCES), *map(DiscreteGaussian, (1e4, 1e8))]:
        row = compare(law, options.draws, options.repeats)
        name = f"{type(law).__name__} {law.variance_grid:.3g}"
        every[name] = row
        if isinstance(law, Skellam) and 1e4 <= law.variance_grid <= 1e8:
            typical.append(row)
        ratio = row["numpy_ns"] / row["sumus_ns"]
        print(
            f"{name:<34}{row['sumus_ns']:>9.1f}{row['floor_ns']:>11.1f}{row['numpy_ns']:>11.1f}{ratio:>8.1f}"
        )

    block_table.cache_clear()
    table_ms = seconds(lambda: block_table(Skellam(1e6))) * 1e3
    first = float(
        subprocess.run(
            [sys.executable, "-c", FIRST_DRAW], check=True, capture_output=True, text=True
        ).stdout
    )
    print(
        f"table of a law: {table_ms:.1f} ms once; first draw of a process, numba import included: "
        f"{first:.2f} s"
    )
    laws = [row for name, row in every.items() if name.startswith("Skellam")]
    print(last_line(*figures(typical, laws), benchmark="noise", table_ms=table_ms, first_s=first))


def figures(
    typical: list[dict[str, float]], skellam: list[dict[str, float]]
) -> tuple[list[Row], list[Curve]]:
    """Rows of the variances that plans have, and curves over all."""
    floor = max(row["floor_ns"] for row in typical)
    keystream = f"{floor:.1f} ns a draw: the keystream alone"
    where = f"keystream {floor / max(row['sumus_ns'] for row in typical):.0%}"
    rows = [
        at_most(
            "a Skellam draw, variance 1e4 to 1e8",
            max(row["sumus_ns"] for row in typical),
            20.0,
            "ns",
            floor=keystream,
            where=where,
        ),
        at_least(
            "two Poisson draws of NumPy over a Skellam draw",
            min(row["numpy_ns"] / row["sumus_ns"] for row in typical),
            4.0,
            "×",
            floor=keystream,
            where=where,
        ),
    ]
    names = {
        "Sumus": "sumus_ns",
        "NumPy, two Poisson draws": "numpy_ns",
        "keystream alone": "floor_ns",
    }
    curves = [
        Curve(name, "variance", "ns a draw", VARIANCES, tuple(row[key] for row in skellam))
        for name, key in names.items()
    ]
    return rows, curves


if __name__ == "__main__":
    main()
