"""An audit trail against the books that its lines name: what was done is in both, or told.

audit_vault(vault)        a silo's trail against its ledger, and the head beside the ledgers
audit_server(state)       a server's trail against the evidence and the journals of its runs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from sumus.books import EVIDENCE, JOURNAL, Ledger, RunFolder
from sumus.errors import SumusError
from sumus.events import Head, TrailReading, read_head, read_trail
from sumus.files import from_json, read_bytes
from sumus.parties.evidence import certificate_lines
from sumus.parties.site import Site
from sumus.parties.trails import server_memory, vault_memory

__all__ = ["TrailAudit", "audit_server", "audit_vault", "noted_heads"]


@final
@dataclass(frozen=True, kw_only=True)
class TrailAudit:
    """What a trail proves.

    Args:
        reading: its lines.
        remembered: heads elsewhere that it reaches, or does not.
        releases: entries of the ledger, or certificates of runs, that it was compared with.
        findings: what contradicts, a line each.
    """

    reading: TrailReading
    remembered: int
    releases: int
    findings: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts."""
        return not self.findings

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        head = self.reading.head
        return {
            "lines": 0 if head is None else head.lines,
            "head": None if head is None else head.last,
            "trail": None if head is None else head.trail,
            "events": self.reading.counts,
            "missing_segments": self.reading.missing,
            "remembered": self.remembered,
            "releases": self.releases,
            "findings": list(self.findings),
            "passed": self.passed,
        }


def audit_vault(
    vault: Path, *, archive: Path | None = None, seen: Sequence[Head] = ()
) -> TrailAudit:
    """Check a silo's trail.

    Guarantee: without findings the trail is whole as far as it is here and as anybody remembers it,
        and names every release of this silo on its ledger, as often as the ledger has it.

    Args:
        archive: folder with older segments.
        seen: heads that somebody noted down.
    """
    remembered = [*_present(vault_memory(vault)), *seen]
    reading = read_trail(vault, archive=archive, remembered=remembered)
    findings, ledger = list(reading.findings), Site.of_folder(vault).ledger
    begun = [place for place, link in enumerate(reading.links) if link.kind == "ledger.begun"]
    lines = [
        link.body for link in reading.links[begun[-1] if begun else 0 :] if link.kind == "release"
    ]
    named = {str(line["ledger"]) for line in lines}
    try:
        entered = _entered(
            ledger, _name_of(vault), {str(line["plan"]) for line in lines} | _plans(reading)
        )
        there = {ledger.hash_of(number) for number in range(1, len(ledger.entries()) + 1)}
    except SumusError as error:
        return TrailAudit(
            reading=reading,
            remembered=len(remembered),
            releases=0,
            findings=(*findings, str(error)),
        )
    findings += [
        f"release of {line['time']} (round {line['round']}) is not on {ledger.path}"
        for line in lines
        if str(line["ledger"]) not in there
    ]
    if not reading.missing:  # an archived segment may name it
        findings += [
            f"entry {number} of {ledger.path} is in no line of the trail"
            for number, hash_ in entered
            if hash_ not in named
        ]
    return TrailAudit(
        reading=reading,
        remembered=len(remembered),
        releases=len(entered),
        findings=tuple(findings),
    )


def _entered(ledger: Ledger, silo: str, plans: set[str]) -> list[tuple[int, str]]:
    """Number and hash of every release that this silo has entered under plans of this federation."""
    return [
        (number, ledger.hash_of(number))
        for number, entry in enumerate(ledger.entries(), start=1)
        if entry.run.endswith(f"-{silo}") and entry.plan_hash in plans
    ]


def _plans(reading: TrailReading) -> set[str]:
    return {str(body["plan"]) for body in reading.of("plan.approved")}


def _name_of(vault: Path) -> str:
    """The silo's name: the first word of its key's file, protected or not."""
    key = vault / "identity.key"
    return read_bytes(key).decode().split(" ")[0] if key.exists() else vault.name


def audit_server(
    state: Path, *, archive: Path | None = None, seen: Sequence[Head] = ()
) -> TrailAudit:
    """Check a server's trail.

    Guarantee: without findings the trail is whole as far as it is here and as its own memory and
        the journals of its runs remember it, and names every certificate of them.

    Args:
        state: KIT/sumus.
        archive: folder with older segments.
        seen: heads that somebody noted down, or that a copy of a run holds.
    """
    runs = sorted(path.parent for path in (state / "runs").glob(f"*/*/{JOURNAL}"))
    findings: list[str] = []
    remembered = [*_present(server_memory(state)), *seen]
    certified: dict[str, str] = {}
    for path in runs:
        try:
            remembered += noted_heads(RunFolder.open(path))
            certified |= {hash_: str(path / EVIDENCE) for hash_ in certificate_lines(path)}
        except SumusError as error:
            findings.append(str(error))
    reading = read_trail(state, archive=archive, remembered=remembered)
    opened = {str(body["evidence"]) for body in reading.of("sum.opened")}
    findings = [*reading.findings, *findings]
    if not reading.missing:
        findings += [
            f"certificate {hash_[:16]}… of {path} is in no line of the trail"
            for hash_, path in certified.items()
            if hash_ not in opened
        ]
    plans = {path.parent.name for path in runs}
    findings += [
        f"sum of {body['time']} (round {body['round']}) has no certificate in the run's evidence"
        for body in reading.of("sum.opened")
        if str(body["evidence"]) not in certified and str(body["plan"]) in plans
    ]
    return TrailAudit(
        reading=reading,
        remembered=len(remembered),
        releases=len(certified),
        findings=tuple(findings),
    )


def noted_heads(run: RunFolder) -> list[Head]:
    """What a run's journal remembers of the server's trail."""
    return [
        from_json(Head, detail, where=str(run.path / JOURNAL))
        for event, detail in run.events
        if event == "audit"
    ]


def _present(memory: Path | None) -> list[Head]:
    head = None if memory is None else read_head(memory)
    return [] if head is None else [head]
