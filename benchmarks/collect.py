"""Runs the benchmarks one after the other; keeps their figures, or compares with what is kept.

    python benchmarks/collect.py                       make bench: all in full, stored.json and the page
    python benchmarks/collect.py --only noise secagg   some of them; the others stay as they are
    python benchmarks/collect.py --check               make bench-check: quickly, against stored.json
    python benchmarks/collect.py --check --full        the same with all sizes and repeats
    python benchmarks/collect.py --page                writes page and figures from stored.json

A figure that is worse than the stored one by more than 20 % fails the check, if it is so in three
runs, the last of them in full, of each of which the best counts: machines are noisy.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench_page import draw_curves, page_with
from measuring import BenchmarkError, Measured, measure
from regressions import Regression, best_of, regressions
from suite import BENCHMARKS, Benchmark

ROOT = Path(__file__).parent.parent
STORED = ROOT / "benchmarks" / "stored.json"
PAGE = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "docs" / "figures"

Measuring = Callable[[Benchmark, bool], Measured]


def read(stored: Path) -> dict[str, Measured]:
    """What was measured before, by benchmark; nothing where nothing was."""
    if not stored.exists():
        return {}
    kept = json.loads(stored.read_text(encoding="utf-8"))
    return {name: Measured.from_json(entry) for name, entry in kept.items()}


def write(stored: Path, measured: Mapping[str, Measured]) -> None:
    """All of it, in the order of the suite."""
    kept = {
        each.name: measured[each.name].as_json() for each in BENCHMARKS if each.name in measured
    }
    stored.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_page(page: Path, figures: Path, measured: Mapping[str, Measured]) -> None:
    """The page between its markers, and a figure for every benchmark that has curves."""
    page.write_text(page_with(page.read_text(encoding="utf-8"), measured), encoding="utf-8")
    for benchmark in BENCHMARKS:
        if benchmark.name in measured:
            draw_curves(figures, benchmark, measured[benchmark.name])


def checked(
    benchmark: Benchmark, stored: Measured, *, full: bool, measuring: Measuring
) -> list[Regression]:
    """What is worse than stored in three runs, the last of them in full."""
    runs: list[Measured] = []
    worse: list[Regression] = []
    for quick in (not full, not full, False):
        if runs:
            print(f"  again, because of {len(worse)} figures that are worse", flush=True)
        runs.append(measuring(benchmark, quick))
        worse = regressions(stored, best_of(runs), all_rows=not quick)
        if not worse:
            return []
    return worse


def check(
    benchmarks: Sequence[Benchmark],
    stored: Mapping[str, Measured],
    *,
    full: bool,
    measuring: Measuring,
) -> int:
    """Prints what is worse; the exit code."""
    faults: list[str] = []
    for benchmark in benchmarks:
        print(f"{benchmark.name}: {benchmark.title}", flush=True)
        if benchmark.name not in stored:
            print("  not in stored.json: nothing to compare with. Run: make bench")
            continue
        try:
            worse = checked(benchmark, stored[benchmark.name], full=full, measuring=measuring)
            faults += [f"worse: {each}" for each in worse]
        except BenchmarkError as failed:
            faults.append(f"failed: {failed}")
    return _told("bench-check: no figure is worse", faults)


def collect(benchmarks: Sequence[Benchmark], *, measuring: Measuring) -> int:
    """Measure, keep after each benchmark, and write the page; the exit code, which does not mind a
    bound that is not held.
    """
    missed, faults = 0, []
    for benchmark in benchmarks:
        print(f"{benchmark.name}: {benchmark.title}", flush=True)
        try:
            measured = measuring(benchmark, False)
        except BenchmarkError as failed:
            faults.append(f"failed: {failed}; its stored figures are as they were")
            continue
        for row in measured.rows:
            missed += not row.met
            print(
                f"  {'held' if row.met else 'NOT HELD'}: {row.name}: {row.ratio:.4g} {row.unit} "
                f"({'at most' if row.better == 'less' else 'at least'} {row.target:g})"
            )
        write(STORED, read(STORED) | {benchmark.name: measured})
    write_page(PAGE, FIGURES, read(STORED))
    print(f"bench: {missed} bounds are not held; the table is in {PAGE.relative_to(ROOT)}")
    return _told("bench: every benchmark ran", faults)


def _told(good: str, faults: Sequence[str]) -> int:
    """Prints the faults, or that there is none; the exit code."""
    print("\n".join(faults) or good)
    return 1 if faults else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="compare with stored.json")
    what.add_argument("--page", action="store_true", help="write page and figures again")
    parser.add_argument("--full", action="store_true", help="with --check: all sizes and repeats")
    options = parser.parse_args()
    if options.page:
        write_page(PAGE, FIGURES, read(STORED))
        return 0
    chosen = [each for each in BENCHMARKS if options.only is None or each.name in options.only]

    def measuring(benchmark: Benchmark, quick: bool) -> Measured:
        return measure(benchmark, quick=quick)

    if options.check:
        return check(chosen, read(STORED), full=options.full, measuring=measuring)
    return collect(chosen, measuring=measuring)


if __name__ == "__main__":
    sys.exit(main())
