"""One soak from its first plan to its verdict."""

from __future__ import annotations

import json
import platform
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from soaking.changes import Changes
from soaking.faults import Blow, Blows
from soaking.federation import DISK_MEBIBYTES, Federation
from soaking.figures import (
    blow_table,
    disk_growth,
    draw,
    process_growth,
    round_growth,
    rounded,
)
from soaking.office import Office
from soaking.sampling import Sampler
from soaking.slopes import Growth
from soaking.verifying import Verifier
from sumus.files import build_of

__all__ = ["Options", "Verdict", "soak"]

_SILOS = ("Bergen", "Graz", "Leuven", "Oulu", "Padova")
_SPARE = "Vaasa"
_MOST_MEBIBYTES, _MOST_HANDLES, _MOST_THREADS = 10.0, 2.0, 1.0
"""By which a process may grow in 1,000 rounds and still count as flat."""
_OF_A_JOB = ("server-job", "silo-job")
_MOST_OF_A_JOB = 100.0
"""Mebibytes in 1,000 rounds; a job's processes end with it, after 50 rounds if nobody says more."""
_OWN = ("keeper", "vault")
"""Whose threads are ours; in the others the engine has one for every message of the last minute."""
_MOST_REST_MEBIBYTES = 10.0
_MOST_ROUND_SECONDS = 0.5
_FEWEST_ROUNDS = 1000
"""Of a soak that may say whether something grows."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How long and how hard.

    Args:
        minutes: in all, about; the last fifth is calm.
        rounds: of a plan; `batch`: plans that are queued together.
        calm_rounds: of the last plan, which nobody disturbs.
        patience: seconds that silos have for an answer.
        gap: seconds between two blows, on average.
        kinds: of blows; None: all. `changes` likewise.
    """

    minutes: float = 60.0
    seed: int = 0
    rounds: int = 250
    batch: int = 4
    calm_rounds: int = 2000
    patience: float = 20.0
    gap: float = 8.0
    kinds: Sequence[str] | None = None
    changes: Sequence[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What came of it.

    Args:
        wrong: by check, what does not hold; nothing at all: passed.
        figures: everything that was measured, in plain JSON.
    """

    wrong: dict[str, list[str]]
    figures: dict[str, Any]

    @property
    def passed(self) -> bool:
        """Whether everything holds."""
        return not any(self.wrong.values())


def soak(options: Options, root: Path, out: Path) -> Verdict:
    """Run a federation for a while, hurt it, and look at what is left.

    Args:
        root: an empty folder for everything, the samples too.
        out: folder for figures and plots.
    """
    out.mkdir(parents=True, exist_ok=True)
    federation = Federation(root, _SILOS, spare=_SPARE, seed=options.seed)
    try:
        return _Soak(options, federation, out).run()
    finally:
        federation.close()
        federation.unmount()


class _Soak:
    def __init__(self, options: Options, federation: Federation, out: Path) -> None:
        self._options, self._federation, self._out = options, federation, out
        self._random = random.Random(options.seed)
        self._broken: list[str] = []
        self._office = Office(federation, rounds=options.rounds, batch=options.batch)
        self._sampler = Sampler(federation, federation.root)
        hang, wait = 2.0 * options.patience, 600.0
        self._blows = Blows(
            federation,
            self._sampler,
            seed=options.seed,
            hang_seconds=hang,
            wait_seconds=wait,
            meanwhile=self._keep_filled,
        )
        self._changes = Changes(
            federation, self._office, self._sampler, self._blows, wait_seconds=1800.0
        )

    def run(self) -> Verdict:
        """All of it."""
        before = _machine()
        federation, office, sampler = self._federation, self._office, self._sampler
        federation.begin(office.first_plan())
        office.fill()
        if self._options.changes is None:
            office.fill_in_vain()
        federation.run_queue(
            self._options.patience,
            rounds_per_job=max(self._options.rounds, self._options.calm_rounds),
        )
        sampler.wait_for_first_round(seconds=900.0)
        sampler.start()
        self._say("the first round is done")
        self._hurt()
        self._say("calm")
        self._calm()
        sampler.close()
        seconds = sampler.clock()
        federation.close()
        return self._judged(before, seconds)

    # -- while it runs

    def _hurt(self) -> None:
        """Blows and changes until it is time to be calm."""
        end = 0.8 * 60.0 * self._options.minutes
        wanted = self._changes.all if self._options.changes is None else self._options.changes
        due = (
            [(end * (n + 0.5) / len(wanted), name) for n, name in enumerate(wanted)]
            if wanted
            else []
        )
        kinds = self._blows.order()
        while self._sampler.clock() < end or due:
            self._keep_filled()
            if due and self._sampler.clock() >= due[0][0]:
                _, name = due.pop(0)
                self._say(f"change: {name}")
                try:
                    self._tell(self._changes.carry_out(name))
                except (RuntimeError, TimeoutError, OSError) as error:
                    self._broken.append(f"{name}: {error}")
                    self._say(f"BROKEN: {name}: {error}")
                continue
            kind = next(kinds)
            if self._options.kinds is None or kind in self._options.kinds:
                self._tell(self._blows.strike(kind))
                time.sleep(self._random.uniform(0.5, 1.5) * self._options.gap)
            elif not self._options.kinds:
                time.sleep(1.0)

    def _calm(self) -> None:
        """One long plan: what short jobs' processes take up while they begin says nothing about how
        they would grow.
        """
        try:
            self._changes.drain()
            self._office.fill_long(self._options.calm_rounds)
            self._changes.wait_for_all()
        except (RuntimeError, TimeoutError) as error:
            self._broken.append(f"the long plan at the end: {error}")
            self._say(f"BROKEN: {error}")

    def _keep_filled(self) -> None:
        """People do not wait until the queue is empty."""
        try:
            self._office.retry()
            if self._office.waiting() < 2:
                self._office.fill()
        except RuntimeError as error:
            self._broken.append(f"plans queued and approved: {error}")
            self._say(f"BROKEN: {error}")

    def _tell(self, blow: Blow | None) -> None:
        if blow is not None:
            told = (
                "not recovered"
                if not blow.recovered
                else f"next round after {blow.next_round:.1f} s"
            )
            self._say(f"{blow.kind} ({blow.victim or 'no silo'}): {told}")

    def _say(self, line: str) -> None:
        rounds = len(self._sampler.rounds)
        sys.stderr.write(f"{self._sampler.clock():7.0f} s  {rounds:6d} rounds  {line}\n")
        sys.stderr.flush()

    # -- afterwards

    def _judged(self, before: dict[str, Any], elapsed: float) -> Verdict:
        sampler, blows = self._sampler, self._blows.done
        verifier = Verifier(
            self._federation,
            silos=[*_SILOS, *({_SPARE} & set(self._federation.silos))],
            lost_ledgers=self._changes.lost_ledgers,
            expected=self._office.expected,
        )
        wrong = {"every change was carried out": self._broken}
        for name, check in verifier.checks().items():
            self._say(f"checking: {name}")
            wrong[name] = check()
        wrong["every blow was recovered from"] = [
            f"{blow.kind} at {blow.at:.0f} s" for blow in blows if not blow.recovered
        ]
        processes, disks = process_growth(sampler.processes), disk_growth(sampler.disks)
        rounds = round_growth(sampler.rounds)
        if len(sampler.rounds) >= _FEWEST_ROUNDS:
            wrong["nothing grows that should not"] = [*_growing(processes, disks, rounds)]
        title = (
            f"{elapsed / 60.0:.0f} minutes, {len(sampler.rounds):,} rounds, "
            f"{len(blows)} blows and changes"
        )
        draw(
            self._out,
            rounds=sampler.rounds,
            processes=sampler.processes,
            disks=sampler.disks,
            blows=blows,
            title=title,
        )
        figures = self._figures(before, elapsed, verifier.figures) | {
            "growth_per_1000_rounds": {
                "processes": _told_of(processes),
                "folders, MiB": _told_of(disks),
                "seconds of a round": None if rounds is None else _told(rounds),
            },
            "wrong": {name: lines for name, lines in wrong.items() if lines},
            "checks": {name: not lines for name, lines in wrong.items()},
        }
        (self._out / "soak.json").write_text(
            json.dumps(figures, indent=1, ensure_ascii=False) + "\n"
        )
        return Verdict(wrong=wrong, figures=figures)

    def _figures(
        self, before: dict[str, Any], elapsed: float, counted: dict[str, Any]
    ) -> dict[str, Any]:
        """What ran, on what, and what was done to it."""
        rounds = self._sampler.rounds
        return {
            "options": asdict(self._options),
            "machine": before | {"load_after": psutil.getloadavg()},
            "build": build_of(),
            "small_disks": DISK_MEBIBYTES if self._federation.mounted else 0,
            "clocks": self._federation.clocks is not None,
            "seconds": rounded(elapsed, 4),
            "rounds": len(rounds),
            "started_again": {each.name: each.starts - 1 for each in self._federation.services},
            **counted,
            "plans tried again": sum(self._office.retried.values()),
            "round_seconds": _spread([each.seconds for each in rounds]),
            "blows": [
                {
                    key: rounded(value, 3) if isinstance(value, float) else value
                    for key, value in row.items()
                }
                for row in blow_table(self._blows.done)
            ],
        }


def _growing(
    processes: dict[str, dict[str, Growth]],
    disks: dict[str, dict[str, Growth]],
    rounds: Growth | None,
) -> list[str]:
    most = {"rss": _MOST_MEBIBYTES, "handles": _MOST_HANDLES, "threads": _MOST_THREADS}
    of_a_job = most | {"rss": _MOST_OF_A_JOB}
    lines = [
        f"{kind}: {what} by {each.slope:.3g} in 1,000 rounds (at least {each.low:.3g})"
        for kind, by in processes.items()
        for what, each in by.items()
        if not each.is_flat((of_a_job if kind in _OF_A_JOB else most)[what])
        and (what != "threads" or kind in _OWN)
    ]
    lines += [
        f"{kind}: {by['rest'].slope:.3g} MiB in 1,000 rounds beside its books"
        for kind, by in disks.items()
        if not by["rest"].is_flat(_MOST_REST_MEBIBYTES) and kind != "runs of operator"
    ]
    if rounds is not None and not rounds.is_flat(_MOST_ROUND_SECONDS):
        lines.append(f"a round takes {rounds.slope:.3g} s more after 1,000 rounds")
    return lines


def _told_of(kinds: dict[str, dict[str, Growth]]) -> dict[str, Any]:
    return {kind: {what: _told(each) for what, each in by.items()} for kind, by in kinds.items()}


def _told(growth: Growth) -> dict[str, float | int | None]:
    return {
        "slope": rounded(growth.slope),
        "low": rounded(growth.low),
        "high": rounded(growth.high),
        "level": rounded(growth.level),
        "lives": growth.lives,
    }


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    ordered = sorted(values)
    if not ordered:
        return {}
    places = {"median": 0.5, "95 %": 0.95, "longest": 1.0}
    return {
        name: rounded(ordered[min(len(ordered) - 1, int(share * len(ordered)))])
        for name, share in places.items()
    }


def _machine() -> dict[str, Any]:
    """What it ran on, and how busy that was."""
    return {
        "cores": psutil.cpu_count(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "load_before": psutil.getloadavg(),
    }
