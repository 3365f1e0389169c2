"""Check the model of a silo (guard × crash × ratchet) with spin, and follow every schedule of one
round: `make verify`, a few minutes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import schedules

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from oracles.model_checker import FAULTS, LARGE, check, missing, seeded


def model() -> bool:
    """Whether the model holds in every size and each seeded fault is found."""
    sound = True
    for sizes in LARGE:
        begin = time.perf_counter()
        verdict = check(*sizes)
        sound &= verdict.violated is None
        outcome = "every assertion holds" if verdict.violated is None else verdict.violated
        seconds = time.perf_counter() - begin
        print(f"model {' '.join(sizes)}: {verdict.states:,} states, {seconds:.0f} s: {outcome}")
    for fault, expected in FAULTS.items():
        verdict = check(*seeded(fault), shortest=True)
        caught = verdict.violated is not None and expected in verdict.violated
        sound &= caught
        print(f"seeded {fault}: {'found' if caught else 'NOT FOUND'} ({verdict.violated})")
    return sound


def main() -> int:
    reason = missing()
    if reason is not None:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    return 0 if model() and schedules.explore(most=5, forms=2) else 1


if __name__ == "__main__":
    raise SystemExit(main())
