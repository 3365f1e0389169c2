"""`make soak`: a year of a federation in an hour, with real processes.

Server, five silos (vault and relay each) and an operator's queue run a tiny model for thousands of
rounds. On the way processes are killed and stopped, disks fill up, clocks jump; certificates are
renewed and a year passes, a key is rotated, a silo leaves and another comes, vaults are lost and
restored, everybody upgrades. Memory, handles, threads, disks and rounds are measured; afterwards
every ledger is compared with every journal, bit for bit, and ε with its closed form.

    make soak
    python benchmarks/soak.py --minutes 5 --changes none

Root may mount the small disks that fill up, and a C compiler makes the clock that jumps; without
them those blows are left out, and the figures say so.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from soaking.page import page_of
from soaking.run import Options, Verdict, soak


def main() -> int:
    """Run it and say what came of it; 1 if something does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=250, help="of a plan")
    parser.add_argument("--calm-rounds", type=int, default=2000, help="of the last plan")
    parser.add_argument("--batch", type=int, default=4, help="plans that are queued together")
    parser.add_argument(
        "--patience", type=float, default=20.0, help="seconds silos have for an answer"
    )
    parser.add_argument("--gap", type=float, default=8.0, help="seconds between two blows")
    parser.add_argument("--blows", help="kinds, separated by semicolons; none: none")
    parser.add_argument("--changes", help="kinds, separated by semicolons; none: none")
    parser.add_argument("--out", type=Path, default=Path("build/soak"), help="figures and plots")
    parser.add_argument("--page", type=Path, help="the page about it, if everything holds")
    parser.add_argument("--work", type=Path, help="folder for the federation; kept")
    given = parser.parse_args()
    options = Options(
        minutes=given.minutes,
        seed=given.seed,
        rounds=given.rounds,
        batch=given.batch,
        calm_rounds=given.calm_rounds,
        patience=given.patience,
        gap=given.gap,
        kinds=_listed(given.blows),
        changes=_listed(given.changes),
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # everybody is stopped on the way out
    root = given.work or Path(tempfile.mkdtemp(prefix="soak-"))
    root.mkdir(parents=True, exist_ok=True)
    try:
        verdict = soak(options, root, given.out)
    finally:
        if given.work is None:
            shutil.rmtree(root, ignore_errors=True)
    show(verdict)
    if given.page is not None and verdict.passed:
        given.page.write_text(page_of(verdict.figures), encoding="utf-8")
    return 0 if verdict.passed else 1


def _listed(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [] if text == "none" else [each.strip() for each in text.split(";")]


def show(verdict: Verdict) -> None:
    """The figures in words."""
    figures = verdict.figures
    print(f"{figures['rounds']} rounds in {figures['seconds'] / 60.0:.1f} minutes")
    for row in figures["blows"]:
        times = f"{row['recovered']} of {row['times']}"
        print(
            f"  {row['what']:<44} {times:>9}  next round {row['next_round_median']} s, at most {row['next_round_longest']} s"
        )
    for name, lines in verdict.wrong.items():
        print(f"{'FAIL' if lines else 'ok':<5} {name}")
        for line in lines[:20]:
            print(f"      {line}")


if __name__ == "__main__":
    sys.exit(main())
