"""Which benchmarks `make bench` runs, in which order, and with which options.

A benchmark is a script of this folder that ends with `print(last_line(...))` (rows.py). Whoever adds
one adds it here; what is no benchmark of time or memory says in ELSEWHERE what it is.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BENCHMARKS", "ELSEWHERE", "Benchmark"]


@dataclass(frozen=True)
class Benchmark:
    """A script and its two sizes.

    Args:
        name: of the script, without `.py`.
        title: what it measures, in words.
        quick: options with which it takes a minute at most; a row of the same name measures the
            same as in full, with fewer repeats, and rows may be left out.
        full: options for the table of the documentation.
    """

    name: str
    title: str
    quick: tuple[str, ...] = ("--quick",)
    full: tuple[str, ...] = ()


BENCHMARKS = (
    Benchmark("noise", "draws of integer noise"),
    Benchmark("accounting", "calibration of noise"),
    Benchmark("many_silos", "accounts of silos that differ"),
    Benchmark("gradients", "clipped sums of per-record gradients"),
    Benchmark("secagg", "secure sums", full=("--full", "--figure")),
    Benchmark("federation", "one round of Fashion-MNIST"),
    Benchmark("whole_runs", "runs from beginning to end"),
    Benchmark("cold_start", "from the command to something seen"),
    Benchmark("sizes", "parameters of a model"),
    Benchmark("tables", "rows of a table"),
    Benchmark("compare", "a run beside other models"),
    Benchmark("engines", "rounds across processes"),
)

ELSEWHERE = {
    "architectures": "the networks of gradients.py",
    "drafted_plans": "accuracy of drafted plans",
    "input_proofs": "a prototype, for docs/protocol.md",
    "mutate": "make mutate",
    "natural_silos": "accuracy, for docs/natural-silos.md",
    "schedules": "part of make verify",
    "soak": "make soak",
    "unequal_silos": "accuracy, for docs/unequal-silos.md",
    "verify": "make verify",
    # parts of make bench
    "bench_page": "writes docs/performance.md",
    "collect": "runs the benchmarks",
    "measuring": "runs one benchmark",
    "regressions": "compares with benchmarks/stored.json",
    "rows": "what a benchmark says in its last line",
    "secagg_peer": "Flower's side of secagg.py",
    "suite": "this list",
}
