"""The page about a soak: its words stand here, its numbers are those of `soak.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["page_of"]

_PAGE = """# A year in an hour

A consortium runs a federation for months: machines fail, certificates end, people change keys, everybody upgrades.
`make soak` has all of that happen to real processes, measures them meanwhile, and looks at every book afterwards.
It takes an hour; this page and its figures are written by that command, and below are those of a run of {minutes} (`MINUTES` says how many).

## What ran

| what | figure |
|---|---:|
{ran}

Server, operator and silos are processes as `sumus federation start`, `sumus federation queue run` and `sumus join` start them: a silo is a process that keeps the others alive, a vault, a relay and a process for the job.
Whatever ends is started again after two seconds, as a service manager would.
Plans are queued and approved by the commands that people type, {batch} at a time: the second with secure metrics, the last one from the model that the first will have released.

![Seconds of a round over time, and how long rounds took to go on](figures/soak-rounds.svg)

## What was done to it

A blow falls at a random moment of a round, on a silo that is drawn.
It counts as recovered when a round was finished with whom it hit; the columns are seconds from the end of the blow until the next finished round, whoever is in it.
A silo that misses the start of a job comes back with the next one.{unmeasured}

| what | times | recovered | median | longest |
|---|---:|---:|---:|---:|
{blows}

- **Hangs** are SIGSTOP for {hang:g} seconds, twice what silos have for an answer.
- **Full disks** are {disk}
- **Clocks** are {clock}
- **Certificates** are renewed with `sumus federation renew` for 800 days; then every clock is set 370 days ahead, when the first ones have ended.
- **Keys**: a silo's new key is endorsed by everybody, `sumus federation rotate` and `epoch` put it into effect, and its run goes on.
- **Upgrade**: everybody stops and comes back with a copy of the package under another version number, which silos and server compare before every run; its code is otherwise the same.
- **Lost disks**: vaults come back from a backup that is some rounds old; where the ledger is lost too, what was approved counts as released, all of it.

## What grows

Slopes are medians over all pairs of samples within the life of a process (Theil–Sen), with 95 % of resampled lives, and without the first minute of a life.
Lives of fewer than 200 rounds after it are left out: extrapolated to 1,000 they would be noise.
The last plan has {calm:,} rounds and is left alone, so that the engine's processes for a job, which end with it, live long enough to be judged too.
They are per 1,000 rounds.
In the processes of the engine every message of the last minute has a thread, so there the number of threads follows the rounds of a minute and is not judged.
{judged}

| process | memory, MiB | growth of it | 95 % | handles | growth of them | threads | growth of them |
|---|---:|---:|---:|---:|---:|---:|---:|
{processes}

![Memory and open handles of every process](figures/soak-processes.svg)

Books are written for good and grow with what was done: ledgers, journals, trails, evidence, approved plans.
Everything else must stay: logs, which rotate, and what the latest jobs have left.
Its growth is that of the second half of the rounds.

| folder | books, MiB per 1,000 rounds | the rest, MiB | growth of it |
|---|---:|---:|---:|
{folders}

![Sizes of folders](figures/soak-disks.svg)

## What holds afterwards

The checks share no code with what they check: chains by hashing each line, ε by the closed form of composed Gaussian mechanisms, rounds by counting lines.

| check | holds |
|---|---|
{checks}

{epsilon}

## What it does not show

All parties share one machine, its disk and its loopback network: nothing is lost or delayed on the way.
The model is tiny, so that rounds are many; [performance](performance.md) has the figures of large ones.
The machine had {cores} cores and other work: its load was {before} before and {after} afterwards, so times are no measure of speed.
"""


def page_of(figures: Mapping[str, Any]) -> str:
    """`docs/soak.md` for the figures of a soak."""
    options, machine = figures["options"], figures["machine"]
    growth = figures["growth_per_1000_rounds"]
    return _PAGE.format(
        minutes=f"{figures['seconds'] / 60.0:.0f} minutes",
        ran=_rows(_ran(figures)),
        blows=_rows(
            (
                row["what"],
                row["times"],
                row["recovered"],
                _number(row["next_round_median"]),
                _number(row["next_round_longest"]),
            )
            for row in figures["blows"]
        ),
        unmeasured=_unmeasured(figures),
        judged=_judged(figures),
        batch=options["batch"],
        calm=options["calm_rounds"],
        hang=2.0 * options["patience"],
        disk=_disk(figures),
        clock=_clock(figures),
        processes=_rows(_process(kind, by) for kind, by in growth["processes"].items()),
        folders=_rows(
            (
                kind,
                _number(by["books"]["slope"]),
                _number(by["rest"]["level"]),
                _number(by["rest"]["slope"]),
            )
            for kind, by in growth["folders, MiB"].items()
        ),
        checks=_rows((name, "yes" if holds else "**no**") for name, holds in _checks(figures)),
        epsilon=_epsilon(figures),
        cores=machine["cores"],
        before=f"{machine['load_before'][0]:.1f}",
        after=f"{machine['load_after'][0]:.1f}",
    )


def _ran(figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    options, seconds = figures["options"], figures["round_seconds"]
    growth = figures["growth_per_1000_rounds"]["seconds of a round"]
    grown = "too few to say" if growth is None else f"{_number(growth['slope'])} s"
    return [
        ("minutes, from the first finished round", f"{figures['seconds'] / 60.0:.1f}"),
        ("rounds finished", f"{figures['rounds']:,}"),
        (
            f"plans finished, of {options['rounds']} rounds each and the last of "
            f"{options['calm_rounds']:,}",
            f"{figures['plans finished']}",
        ),
        ("plans set aside, as they should be", f"{figures['plans set aside']}"),
        ("releases on the ledgers of all silos", f"{figures['releases on all ledgers']:,}"),
        ("blows and changes", f"{sum(row['times'] for row in figures['blows'])}"),
        ("seconds of a round: median", _number(seconds["median"])),
        ("seconds of a round: 95 %", _number(seconds["95 %"])),
        ("seconds of a round: longest", _number(seconds["longest"])),
        ("growth of a round's seconds in 1,000 rounds", grown),
    ]


def _process(kind: str, by: Mapping[str, Any]) -> tuple[object, ...]:
    memory, handles, threads = by["rss"], by["handles"], by["threads"]
    return (
        f"{kind} ({memory['lives']} {'life' if memory['lives'] == 1 else 'lives'})",
        _number(memory["level"]),
        _number(memory["slope"]),
        f"{_number(memory['low'])} to {_number(memory['high'])}",
        _number(handles["level"]),
        _number(handles["slope"]),
        _number(threads["level"]),
        _number(threads["slope"]),
    )


def _checks(figures: Mapping[str, Any]) -> Iterable[tuple[str, bool]]:
    checks: Mapping[str, bool] = figures["checks"]
    return checks.items()


def _unmeasured(figures: Mapping[str, Any]) -> str:
    missing = any(row["next_round_median"] is None for row in figures["blows"])
    told = "A dash: it was not measured; that whoever was hit came back shows in the last run."
    return f"\n{told}" if missing else ""


def _judged(figures: Mapping[str, Any]) -> str:
    if "nothing grows that should not" in figures["checks"]:
        return (
            "A soak of 1,000 rounds or more fails where memory grows by more than 10 MiB, and in a "
            "job's processes, which end with it, by more than 100 MiB: 5 MiB in a job of 50 rounds."
        )
    return (
        "**Not shown by this run:** that memory and folders stay level.\n"
        f"With {figures['rounds']:,} rounds it is too short to judge that: these slopes are mostly "
        "what processes take up while they begin."
    )


def _disk(figures: Mapping[str, Any]) -> str:
    if not figures["small_disks"]:
        return "left out here, because mounting a small one needs root."
    return (
        f"those of a silo's organisation, {figures['small_disks']} MiB each, filled to the last byte "
        "for as long as a hang lasts."
    )


def _clock(figures: Mapping[str, Any]) -> str:
    if not figures["clocks"]:
        return "left out here, because there is no C compiler."
    return (
        "the wall clocks of one party's processes, set hours ahead or back for as long as a hang "
        "lasts by a library that is loaded in front of the C library; monotonic clocks stay."
    )


def _epsilon(figures: Mapping[str, Any]) -> str:
    compared = figures["entries of ledgers compared with journals"]
    distance = figures["largest relative distance of ε from the closed form"]
    return (
        "Every plan has ε ≤ 1 at δ = 1e-06, proved (convex-pass): it protects one record of one "
        "silo, add or remove, and counts on 3 of 5 silos present and honest and on a server that is "
        "honest but curious.\n"
        f"{compared:,} entries of ledgers are, bit for bit, the ε that the server's journals say "
        "after as many releases.\n"
        "Computed anew from the number of releases alone, ε is never below the closed form and at "
        f"most {distance:.1e} of it above.\n"
        f"Chains had {figures['lines of chains']:,} lines."
    )


def _rows(rows: Iterable[tuple[object, ...]]) -> str:
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)


def _number(value: float | None) -> str:
    """A figure as people write it."""
    if value is None:
        return "–"
    if value == 0 or abs(value) < 5e-4:
        return "0"
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return text.replace("-", "−")
