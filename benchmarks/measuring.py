"""Runs one benchmark in a process of its own and says how busy the machine was meanwhile."""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rows import Curve, Row, read_last_line
from suite import Benchmark

__all__ = ["BenchmarkError", "Measured", "machine_milliseconds", "measure"]

FOLDER = Path(__file__).parent


class BenchmarkError(Exception):
    """A benchmark ended with an error or without rows; the message says which."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one run of a benchmark gave.

    Args:
        load_before, load_after: average numbers of running processes over a minute; the benchmark's
            own are in the second.
        others: cores that other processes kept busy meanwhile, on average.
        machine_ms: processor time of a fixed piece of work, for comparing seconds across machines.
        seconds: on the clock.
    """

    rows: tuple[Row, ...]
    curves: tuple[Curve, ...]
    load_before: float
    load_after: float
    others: float
    machine_ms: float
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """For stored.json; figures to four digits, which is more than a machine repeats."""
        kept = asdict(self)
        for row in kept["rows"]:
            row["ratio"] = _short(row["ratio"])
        for curve in kept["curves"]:
            curve["costs"] = [_short(cost) for cost in curve["costs"]]
            curve["sizes"] = list(curve["sizes"])
        return kept | {
            key: _short(kept[key])
            for key in ("load_before", "load_after", "others", "machine_ms", "seconds")
        }

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Measured:
        """Of an entry of stored.json."""
        rows = tuple(Row(**row) for row in kept["rows"])
        curves = tuple(
            Curve(
                curve["name"],
                curve["size"],
                curve["cost"],
                tuple(curve["sizes"]),
                tuple(curve["costs"]),
            )
            for curve in kept["curves"]
        )
        return cls(**{**kept, "rows": rows, "curves": curves})


def measure(benchmark: Benchmark, *, quick: bool) -> Measured:
    """Run a benchmark to its end, showing what it prints.

    Raises:
        BenchmarkError: it ended with an error or without rows.
    """
    command = [sys.executable, str(FOLDER / f"{benchmark.name}.py")]
    command += benchmark.quick if quick else benchmark.full
    machine, load_before = machine_milliseconds(), os.getloadavg()[0]
    begin, busy, own = time.perf_counter(), _busy_seconds(), _own_seconds()
    printed = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            printed.append(line)
            if not line.startswith(("{", "[")):
                print(f"  {line}", end="", flush=True)
    seconds = time.perf_counter() - begin
    others = (_busy_seconds() - busy - (_own_seconds() - own)) / seconds
    if process.returncode:
        raise BenchmarkError(f"{benchmark.name}.py ended with {process.returncode}")
    try:
        rows, curves = read_last_line("".join(printed))
    except ValueError as reason:
        raise BenchmarkError(f"{benchmark.name}.py: {reason}") from None
    return Measured(
        rows=tuple(rows),
        curves=tuple(curves),
        load_before=load_before,
        load_after=os.getloadavg()[0],
        others=max(0.0, others),
        machine_ms=min(machine, machine_milliseconds()),
        seconds=seconds,
    )


def machine_milliseconds(repeats: int = 5) -> float:
    """Least processor time of a fixed piece of work on one core: an interpreted loop, a digest, a
    sort and sums in memory, about equally long.
    """
    values = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint64)
    wide, text = np.zeros(2_000_000), bytes(6_000_000)
    least = float("inf")
    for _ in range(repeats):
        begin, total = time.process_time(), 0
        for number in range(80_000):
            total += number * number % 7
        hashlib.sha256(text).digest()
        np.sort(values)
        for _ in range(4):
            wide += 1.0
        least = min(least, 1e3 * (time.process_time() - begin))
    return least


def _busy_seconds() -> float:
    """Processor seconds of all processes since the machine started."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, interrupts, soft, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Processor seconds of this process and of its children that have ended."""
    spent = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in spent)


def _short(value: float) -> float:
    return float(f"{value:.4g}")
