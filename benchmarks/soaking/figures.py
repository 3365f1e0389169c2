"""The figures of a soak as numbers and as plots, in the style of reports."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from soaking.faults import Blow
from soaking.sampling import Round
from soaking.slopes import Growth, Life, growth_of
from sumus.report.plots import INK, SOFT, blank_figure, save, tidy

__all__ = ["blow_table", "disk_growth", "draw", "process_growth", "round_growth", "rounded"]

_WARM_SECONDS = 60.0
"""Of a process's life that are left out: it loads and compiles."""
_FEWEST_ROUNDS = 200
"""Of a life that is judged: of fewer a slope per 1,000 is the noise of a few samples."""
_COLOURS = ("#2563eb", "#d97706", "#059669", "#db2777", "#7c3aed", "#0891b2", "#65a30d")
_MEBIBYTE = 1 << 20
_MOST_DRAWN = 60
"""Points of a line."""


def process_growth(samples: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Growth]]:
    """By kind of process, how memory, handles and threads grow in 1,000 rounds."""
    lives: dict[str, dict[str, dict[Any, list[tuple[float, float]]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for each in samples:
        if each["age"] >= _WARM_SECONDS:
            for what in ("rss", "handles", "threads"):
                value = each[what] / _MEBIBYTE if what == "rss" else each[what]
                lives[each["kind"]][what][each["party"], each["pid"]].append(
                    (each["rounds"], value)
                )
    grown = {}
    for kind, by_what in sorted(lives.items()):
        found = {
            what: growth_of([life for life in by_life.values() if _is_long(life)])
            for what, by_life in by_what.items()
        }
        if all(found.values()):
            grown[kind] = {what: each for what, each in found.items() if each is not None}
    return grown


def _is_long(life: Life) -> bool:
    return life[-1][0] - life[0][0] >= _FEWEST_ROUNDS


def disk_growth(samples: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Growth]]:
    """By kind of folder, how books and the rest grow in 1,000 rounds, in MiB; without the first half
    of the rounds, in which the folders of jobs that are kept reach their number.
    """
    half = max((each["rounds"] for each in samples), default=0) / 2.0
    lives: dict[str, dict[str, dict[str, list[tuple[float, float]]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for each in samples:
        if each["rounds"] < half:
            continue
        kind = _kind_of(each["place"])
        for what in ("books", "rest"):
            point = each["rounds"], each[what] / _MEBIBYTE
            lives[kind][what][each["place"]].append(point)
    grown = {}
    for kind, by_what in sorted(lives.items()):
        found = {what: growth_of(list(by_life.values())) for what, by_life in by_what.items()}
        if all(found.values()):
            grown[kind] = {what: each for what, each in found.items() if each is not None}
    return grown


def _kind_of(place: str) -> str:
    known = ("kit of server", "kit of operator", "runs of operator")
    return place if place in known else f"{place.rpartition(' of ')[0]} of a silo"


def round_growth(rounds: Sequence[Round]) -> Growth | None:
    """How the time of a round grows in 1,000 rounds, in seconds."""
    life: Life = [(float(number), each.seconds) for number, each in enumerate(rounds)]
    return growth_of([life])


def blow_table(blows: Sequence[Blow]) -> list[dict[str, Any]]:
    """By kind: how often, how many recovered, and the seconds until rounds went on."""
    kinds = dict.fromkeys(blow.kind for blow in blows)
    table = []
    for kind in kinds:
        own = [blow for blow in blows if blow.kind == kind]
        seconds = sorted(blow.next_round for blow in own if blow.next_round is not None)
        back = sorted(blow.back for blow in own if blow.back is not None)
        table.append(
            {
                "what": kind,
                "times": len(own),
                "recovered": sum(blow.recovered for blow in own),
                "next_round_median": median(seconds) if seconds else None,
                "next_round_longest": max(seconds) if seconds else None,
                "back_median": median(back) if back else None,
                "back_longest": max(back) if back else None,
            }
        )
    return table


# -- plots


def draw(
    folder: Path,
    *,
    rounds: Sequence[Round],
    processes: Sequence[Mapping[str, Any]],
    disks: Sequence[Mapping[str, Any]],
    blows: Sequence[Blow],
    title: str,
) -> list[Path]:
    """Memory and handles, disks, rounds with what was done to them: three figures."""
    made = save(folder, "soak-processes", lambda: _processes(processes, title))
    made += save(folder, "soak-disks", lambda: _disks(disks, title))
    made += save(folder, "soak-rounds", lambda: _rounds(rounds, blows, title))
    for path in made:
        if path.suffix != ".svg":
            path.unlink()
    return [path for path in made if path.suffix == ".svg"]


def _processes(samples: Sequence[Mapping[str, Any]], title: str) -> Any:
    figure, (memory, handles) = blank_figure(f"Processes. {title}", 2)
    kinds = sorted({each["kind"] for each in samples})
    for colour, kind in zip(_cycle(), kinds, strict=False):
        for life in _lives(samples, kind):
            at = [each["at"] / 60.0 for each in life]
            memory.plot(at, [each["rss"] / _MEBIBYTE for each in life], color=colour, lw=0.9)
            handles.plot(at, [each["handles"] for each in life], color=colour, lw=0.9)
        handles.plot([], [], color=colour, label=kind)
    for axes, name in ((memory, "memory, MiB"), (handles, "open handles")):
        axes.set_ylim(bottom=0)
        axes.set_xlabel("minutes", color=SOFT)
        axes.set_ylabel(name, color=SOFT)
    handles.legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


def _disks(samples: Sequence[Mapping[str, Any]], title: str) -> Any:
    figure, (books, rest) = blank_figure(f"Folders. {title}", 2)
    places = sorted({each["place"] for each in samples})
    kinds = list(dict.fromkeys(map(_kind_of, places)))
    colours = dict(zip(kinds, _cycle(), strict=False))
    for place in places:
        own = [each for each in samples if each["place"] == place]
        own = own[:: max(1, len(own) // _MOST_DRAWN)]
        at, colour = [each["rounds"] for each in own], colours[_kind_of(place)]
        books.plot(at, [each["books"] / _MEBIBYTE for each in own], color=colour, lw=1.0)
        rest.plot(at, [each["rest"] / _MEBIBYTE for each in own], color=colour, lw=1.0)
    for kind in kinds:
        rest.plot([], [], color=colours[kind], label=kind)
    for axes, name in ((books, "books, MiB"), (rest, "everything else, MiB")):
        axes.set_ylim(bottom=0)
        axes.set_xlabel("rounds", color=SOFT)
        axes.set_ylabel(name, color=SOFT)
    rest.legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


def _rounds(rounds: Sequence[Round], blows: Sequence[Blow], title: str) -> Any:
    figure, (seconds, recovery) = blank_figure(f"Rounds and recoveries. {title}", 2)
    spans = _spans(rounds)
    for colour, name, share in zip(_cycle(), ("median", "95 %"), (0.5, 0.95), strict=False):
        values = [own[int(share * (len(own) - 1))] for _, own in spans]
        seconds.plot(
            [at for at, _ in spans], values, ".-", ms=3.0, lw=0.9, color=colour, label=name
        )
    seconds.legend(frameon=False, fontsize=8, labelcolor=INK)
    seconds.set_yscale("log")
    seconds.set_xlabel("minutes", color=SOFT)
    seconds.set_ylabel("seconds of a round", color=SOFT)
    table = [row for row in blow_table(blows) if row["next_round_median"] is not None]
    table.sort(key=lambda row: row["next_round_longest"])
    for place, row in enumerate(table):
        ends = [row["next_round_median"], row["next_round_longest"]]
        recovery.plot(ends, [place, place], color=_COLOURS[1], lw=2.0, solid_capstyle="round")
        recovery.plot(ends[:1], [place], "o", ms=4.0, color=_COLOURS[1])
    recovery.set_yticks(range(len(table)), [row["what"] for row in table], fontsize=7.5)
    recovery.set_xscale("log")
    recovery.set_xlabel("seconds until the next round: median, longest", color=SOFT)
    tidy(recovery)
    return figure


def _spans(rounds: Sequence[Round]) -> list[tuple[float, list[float]]]:
    """Half minutes in which rounds ended: when, and the seconds of each in order."""
    spans: dict[int, list[float]] = defaultdict(list)
    for each in rounds:
        spans[int(each.at // 30.0)].append(each.seconds)
    return [(0.5 * span + 0.25, sorted(own)) for span, own in sorted(spans.items())]


def _lives(samples: Sequence[Mapping[str, Any]], kind: str) -> Iterator[list[Mapping[str, Any]]]:
    by_life: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for each in samples:
        if each["kind"] == kind:
            by_life[each["party"], each["pid"]].append(each)
    for life in by_life.values():
        yield life[:: max(1, len(life) // _MOST_DRAWN)]


def _cycle() -> Iterator[str]:
    while True:
        yield from _COLOURS


def rounded(value: float | None, digits: int = 3) -> float | None:
    """A figure with so many digits that count."""
    if value is None or not math.isfinite(value) or value == 0.0:
        return value
    return round(value, digits - 1 - math.floor(math.log10(abs(value))))
