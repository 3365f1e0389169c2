"""`sumus audit evidence`: what a run, a vault or a server's kit proves, offline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sumus.cli.options import AsJson, console, print_json
from sumus.errors import PlanError, StorageError

if TYPE_CHECKING:
    from sumus.events import TrailReading
    from sumus.parties import TrailAudit

__all__ = ["audit_app"]

audit_app = typer.Typer(add_completion=False)


@audit_app.command("evidence")
def evidence_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|VAULT|KIT",
            help="Run folder of a federation across machines, a silo's vault, the server's kit, or "
            "a folder with archived segments of an audit trail.",
        ),
    ],
    roster: Annotated[
        list[Path] | None,
        typer.Option(
            help="Your own copy of the roster, or epochs.toml with all of them: no other may have "
            "signed. For a run."
        ),
    ] = None,
    archive: Annotated[
        Path | None, typer.Option(help="Folder with older segments. For a vault or a kit.")
    ] = None,
    head: Annotated[
        list[str] | None,
        typer.Option(
            help="Hash of a line that you noted down: the trail must have it. For a vault or a kit."
        ),
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            help="Your own copy of a run, whose journal remembers the server's trail. For a kit."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check offline what a party left: that the silos themselves signed for every round of a run, or
    that an audit trail is whole and says the same as the books that it names.
    """
    for option, given, kinds in (
        ("--roster", roster, ("run",)),
        ("--archive", archive, ("vault", "kit")),
        ("--head", head, ("vault", "kit", "segments")),
        ("--run", run, ("kit",)),
    ):
        if given and _kind_of(folder) not in kinds:
            rule = f"is for a {' or a '.join(kinds)}, and {folder} is a {_kind_of(folder)}"
            raise PlanError(option, str(given), rule, "Leave it out.")
    passed = {
        "run": lambda: _audit_run(folder, roster or (), as_json=as_json),
        "vault": lambda: _audit_trail(folder, archive, head or (), as_json=as_json),
        "kit": lambda: _audit_trail(folder, archive, head or (), run or (), as_json=as_json),
        "segments": lambda: _audit_segments(folder, head or (), as_json=as_json),
    }[_kind_of(folder)]()
    if not passed:
        raise typer.Exit(3)


def _kind_of(folder: Path) -> str:
    """What a folder is."""
    marks = {"journal.jsonl": "run", "site.toml": "vault", "kit.toml": "kit"}
    for name, kind in marks.items():
        if (folder / name).is_file():
            return kind
    if any(folder.glob("audit*.jsonl")):
        return "segments"
    raise StorageError(
        f"{folder} is neither a run folder nor a vault nor a kit, and has no segment of an audit "
        "trail. Give the folder that `sumus federation train`, `sumus join` or `sumus federation "
        "start` named."
    )


def _audit_run(folder: Path, roster: Sequence[Path], *, as_json: bool) -> bool:
    from sumus.books import RunFolder
    from sumus.cli.keys import read_public
    from sumus.parties import (
        Evidence,
        agree_on,
        audit_evidence,
        noted_heads,
        received_by,
        rosters_of,
    )

    stored = RunFolder.open(folder)
    rosters = [each for path in roster for each in rosters_of(read_public(path))]
    audit = audit_evidence(stored, agree_on(stored.plan), rosters)
    heads = noted_heads(stored)
    received = received_by(folder, rosters or Evidence.rosters(folder))
    if as_json:
        noted = [asdict(head) for head in heads]
        facts = {key: value for key, value in asdict(audit).items() if key != "sums"}
        more = {"server_trail": noted, "received_by": received}
        print_json({**facts, "passed": audit.passed, **more})
        return audit.passed
    screen = console()
    for fingerprint in audit.fingerprints:
        known = "as given" if rosters else "compare it with your own copy"
        screen.print(f"signed by roster  {fingerprint}  ({known})", soft_wrap=True)
    screen.print(f"{audit.certificates} certificates hold, {audit.rounds} rounds in the journal")
    for head in heads[-1:]:
        screen.print(
            f"the server's audit trail had {head.lines} lines, the last {head.last}", soft_wrap=True
        )
    for parcel, names in received.items():
        line = f"received  by {', '.join(names)}, who signed for parcel {parcel[:16]}"
        screen.print(line, markup=False, soft_wrap=True)
    for line in audit.accused:
        screen.print(f"proved  {line}", markup=False, soft_wrap=True)
    _show_findings(screen, audit.findings)
    if audit.passed:
        screen.print("[green]every round was signed for, and the journal says the same[/green]")
    return audit.passed


def _audit_trail(
    folder: Path,
    archive: Path | None,
    heads: Sequence[str],
    runs: Sequence[Path] = (),
    *,
    as_json: bool,
) -> bool:
    from sumus.books import RunFolder
    from sumus.engines import Kit
    from sumus.parties import audit_server, audit_vault, noted_heads

    if _kind_of(folder) == "vault":
        audit, book = audit_vault(folder, archive=archive), "entries of the ledger"
    else:
        seen = [head for path in runs for head in noted_heads(RunFolder.open(path))]
        state = Kit.open(folder, "server").state
        audit, book = audit_server(state, archive=archive, seen=seen), "certificates of runs"
    return _show_trail(audit, book, _unknown(audit.reading, heads), as_json=as_json)


def _show_trail(audit: TrailAudit, book: str, unknown: Sequence[str], *, as_json: bool) -> bool:
    findings = [*audit.findings, *unknown]
    if as_json:
        print_json({**audit.as_json(), "findings": findings, "passed": not findings})
        return not findings
    screen = console()
    _show_reading(screen, audit.reading)
    screen.print(f"compared with  {audit.releases} {book}")
    screen.print(f"remembered     {audit.remembered} heads elsewhere")
    _show_findings(screen, findings)
    if not findings:
        screen.print("[green]the trail is whole, and the books say the same[/green]")
    return not findings


def _audit_segments(folder: Path, heads: Sequence[str], *, as_json: bool) -> bool:
    from sumus.events import read_trail

    reading = read_trail(folder)
    findings = [*reading.findings, *_unknown(reading, heads)]
    if as_json:
        body: dict[str, Any] = {"lines": len(reading.links), "events": reading.counts}
        print_json({**body, "findings": findings, "passed": not findings})
        return not findings
    screen = console()
    _show_reading(screen, reading)
    _show_findings(screen, findings)
    if not findings:
        screen.print("[green]these segments are one chain[/green]")
    return not findings


def _unknown(reading: TrailReading, heads: Sequence[str]) -> list[str]:
    """Heads that somebody noted down and that no line has."""
    for head in heads:
        if not re.fullmatch("[0-9a-f]{64}", head):
            rule = "must be 64 hexadecimal digits in lower case"
            raise PlanError("--head", head, rule, "Copy the hash that this command printed.")
    lines = {link.hash for link in reading.links}
    return [f"no line has the hash {head}" for head in heads if head not in lines]


def _show_reading(screen: Console, reading: TrailReading) -> None:
    if reading.head is None:
        screen.print("the trail has no line yet")
        return
    times = [str(link.body["time"]) for link in reading.links if "time" in link.body]
    screen.print(f"trail          {reading.head.trail}")
    screen.print(f"head           {reading.head.last}", soft_wrap=True)
    screen.print(f"lines          {reading.head.lines}, from {times[0]} to {times[-1]}")
    if reading.missing:
        screen.print(f"archived       {reading.missing} segments before these (--archive FOLDER)")
    counted = ", ".join(f"{name} {count}" for name, count in reading.counts.items())
    screen.print(f"events         {counted}", soft_wrap=True, highlight=False)


def _show_findings(screen: Console, findings: Sequence[str]) -> None:
    for finding in findings:
        screen.print("[bold red]contradiction:[/bold red] ", end="")
        screen.print(finding, markup=False, soft_wrap=True)
