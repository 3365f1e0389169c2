"""Follow every schedule of one round in every small federation, and count the sums that a hostile
server can open: `python benchmarks/schedules.py 5` (a minute; 4 takes seconds).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from oracles.schedules import Schedules, small_terms


def explore(*, most: int, forms: int) -> bool:
    """Whether no schedule of at most so many silos gives away more than one sum."""
    total, broken = 0, 0
    for terms in small_terms(most):
        begin = time.perf_counter()
        found = Schedules(terms, forms=forms).explore()
        total, broken = total + found.states, broken + bool(found.reason)
        print(
            f"{terms.silos} silos, {terms.dropouts} drop-outs, {terms.colluding} colluders: "
            f"{found.states:,} states, {len(found.sums)} survivor sets, "
            f"{time.perf_counter() - begin:.1f} s"
        )
        if found.reason:
            print(f"  VIOLATION: {found.reason}", *(found.violation or ()), sep="\n    ")
    print(f"{total:,} states of one round: {'BROKEN' if broken else 'never more than one sum'}")
    return not broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("silos", type=int, nargs="?", default=4, help="at most so many silos")
    parser.add_argument("--forms", type=int, default=2, help="things that the round is called")
    options = parser.parse_args()
    return 0 if explore(most=options.silos, forms=options.forms) else 1


if __name__ == "__main__":
    raise SystemExit(main())
