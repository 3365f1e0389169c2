"""What proves a run to somebody who trusts neither server nor journal: every sum's certificate.

A run folder of a server holds `evidence.jsonl`, a hash chain: the roster, and for every secure sum
the server's signed certificate with a quorum of the silos' signatures. Together with `plan.toml` it
says which silos were in which round under which plan, and nobody but a quorum of them could have
made it up. Where silos disagreed about shares, the signed messages that prove it stand there too.

    audit_evidence(run, rosters)      checks all of it against journal and plan, offline
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from sumus.books import EVIDENCE, RunFolder
from sumus.errors import DataError, PeerProtocolError, StorageError
from sumus.files import FORMATS, Chain, Link
from sumus.guarantee import LiveEpsilon
from sumus.parties.agreement import Agreement
from sumus.parties.blame import DISAGREED
from sumus.parties.sums import round_identifier
from sumus.secagg import Accusation, Roster, SetCertificate, Terms, certified

__all__ = [
    "Evidence",
    "EvidenceAudit",
    "ProvedSum",
    "audit_evidence",
    "certificate_lines",
    "survivors_of",
]

_Blamed = tuple[int, str, str | None]
"""Round, owner, and the holder that disagrees with it; None: the owner is a liar by itself."""

_FORMAT = FORMATS["run's evidence"]


@final
class Evidence:
    """The certificates of one run, each on the disk before the server uses its sum.

    Args:
        folder: of the run.
        roster: of the silos that sign from now on.
    """

    def __init__(self, folder: Path, roster: Roster) -> None:
        self._chain = Chain.of(_FORMAT, folder / EVIDENCE).refreshed()
        rosters = [link.body["text"] for link in self._chain.links if link.kind == "roster"]
        if roster.to_text() not in rosters[-1:]:
            self._chain = self._chain.appended("roster", {"text": roster.to_text()})

    @staticmethod
    def last_roster(folder: Path) -> Roster | None:
        """Whose silos signed last in a run; None before the first sum."""
        rosters = Evidence.rosters(folder)
        return rosters[-1] if rosters else None

    @staticmethod
    def rosters(folder: Path) -> list[Roster]:
        """Those under which the sums of a run were signed, in order."""
        links = Chain.of(_FORMAT, folder / EVIDENCE).refreshed().links
        return [Roster.parse(str(link.body["text"])) for link in links if link.kind == "roster"]

    def keep(self, number: int, purpose: str, certificate: bytes) -> str:
        """Add the certificate of round `number` (from 0); a sum that is repeated word for word has
        one already. Returns the hash of its line.
        """
        body = {
            "round": number + 1,
            "purpose": purpose,
            "message": base64.b64encode(certificate).decode(),
        }
        return self._add("certificate", body)

    def accuse(self, number: int, purpose: str, accusation: Mapping[str, Any]) -> None:
        """Add the signed messages that prove who disagreed in round `number` (from 0)."""
        self._add(
            "accusation", {"round": number + 1, "purpose": purpose, "messages": dict(accusation)}
        )

    def _add(self, kind: str, body: dict[str, Any]) -> str:
        known = [link for link in self._chain.links if link.body == body]
        if not known:
            self._chain = self._chain.appended(kind, body)
        return (known or self._chain.links)[-1].hash


@final
@dataclass(frozen=True, kw_only=True)
class ProvedSum:
    """A secure sum whose certificate holds.

    Args:
        round: counted from 1.
        purpose: of the sum.
        survivors: names, in order.
        payload: SHA-256 of the model that every silo of the sum was sent.
    """

    round: int
    purpose: str
    survivors: tuple[str, ...]
    payload: str


@final
@dataclass(frozen=True, kw_only=True)
class EvidenceAudit:
    """What a run's evidence proves.

    Args:
        fingerprints: of the rosters that signed, in order.
        signers: silos whose signatures stand under a certificate that holds, by name.
        certificates: that hold.
        rounds: of the journal.
        accused: who is proved to have disagreed with whom, a line each.
        findings: what contradicts, a line each; none: everything is proved.
        sums: that the certificates are of, by round id.
    """

    fingerprints: tuple[str, ...]
    signers: tuple[str, ...]
    certificates: int
    rounds: int
    accused: tuple[str, ...]
    findings: tuple[str, ...]
    sums: Mapping[str, ProvedSum] = field(default_factory=dict, repr=False)

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts."""
        return not self.findings


def audit_evidence(
    run: RunFolder, agreement: Agreement, rosters: Sequence[Roster] = ()
) -> EvidenceAudit:
    """Check journal, plan, rosters and certificates of a run against each other.

    Guarantee: without findings every round of the journal was summed over exactly its survivors,
        by signatures of the server and of a quorum of the silos on the rosters, under the run's
        plan, the journal's ε is what that plan has spent by then, and whom the journal blames is
        proved to have disagreed by what the silos themselves signed.

    Args:
        agreement: of the run's plan, computed here.
        rosters: the only ones that may have signed; none: those that the run names, whose
            fingerprints the reader compares.
    """
    run.verify()
    path = run.path / EVIDENCE
    if not path.exists():
        raise StorageError(
            f"{path} is missing. Only a server's run across machines has evidence: a process that "
            "plays all silos could sign anything."
        )
    if agreement.plan.hash != run.plan_hash:
        began = run.versions.get("sumus", "another version")
        raise StorageError(
            f"{run.path} was signed as plan {run.plan_hash[:8]}, which is "
            f"{agreement.plan.hash[:8]} here: sumus {began} knows other plan keys. Audit it with "
            "that version."
        )
    reading = _Reading(agreement, rosters, [])
    for link in Chain.of(_FORMAT, path).refreshed().links:
        reading.take(link)
    reading.compare(run)
    return EvidenceAudit(
        fingerprints=tuple(roster.digest().hex() for roster in reading.signing),
        signers=tuple(sorted(reading.signers)),
        certificates=len(reading.proved),
        rounds=len(run.rounds()),
        accused=tuple(reading.accused()),
        findings=tuple(reading.findings),
        sums=reading.proved,
    )


def certificate_lines(folder: Path) -> list[str]:
    """The hashes of a run's certificates."""
    links = Chain.of(_FORMAT, folder / EVIDENCE).refreshed().links
    return [link.hash for link in links if link.kind == "certificate"]


class _Reading:
    """Goes through the evidence from its first line."""

    def __init__(
        self, agreement: Agreement, rosters: Sequence[Roster], findings: list[str]
    ) -> None:
        self._agreement, self.findings = agreement, findings
        self._trusted = {roster.digest() for roster in rosters}
        self.signing: list[Roster] = []
        self.proved: dict[str, ProvedSum] = {}
        self.signers: set[str] = set()
        self._blamed: set[_Blamed] = set()

    def take(self, link: Link) -> None:
        """One line."""
        try:
            if link.kind == "roster":
                self._roster(Roster.parse(str(link.body["text"])))
            elif link.kind == "accusation":
                self._accusation(int(link.body["round"]), link.body["messages"])
            else:
                message = base64.b64decode(link.body["message"], validate=True)
                self._certificate(int(link.body["round"]), str(link.body["purpose"]), message)
        except (DataError, PeerProtocolError) as error:
            self.findings.append(f"{link.kind} of round {link.body.get('round', '-')}: {error}")
        except (KeyError, ValueError, TypeError, binascii.Error):
            self.findings.append(f"a line of kind {link.kind!r} is not one of ours")

    def _roster(self, roster: Roster) -> None:
        if self._trusted and roster.digest() not in self._trusted:
            raise DataError(
                f"the roster {roster.digest().hex()[:16]} is not one that was given. Compare "
                "fingerprints."
            )
        if sorted(self._agreement.names) != list(roster.names):
            raise DataError("the roster names other silos than the plan.")
        self.signing.append(roster)

    def _in_force(self) -> tuple[Roster, Terms]:
        if not self.signing:
            raise DataError("no roster stands before it.")
        return self.signing[-1], self._agreement.terms_for(len(self.signing[-1]))

    def _accusation(self, number: int, messages: Mapping[str, Any]) -> None:
        roster, terms = self._in_force()
        found, named = Accusation.from_json(messages).examined(roster, terms), roster.names
        self._blamed |= {(number, named[one], named[other]) for one, other in found.pairs}
        self._blamed |= {(number, named[silo], None) for silo in found.liars}

    def accused(self) -> Iterator[str]:
        """Who is proved to have disagreed with whom."""
        for number, one, other in sorted(self._blamed, key=repr):
            alone = other is None or other == one
            yield f"round {number}: " + (f"{one} lied" if alone else f"{one} or {other} lied")

    def _certificate(self, number: int, purpose: str, message: bytes) -> None:
        roster, terms = self._in_force()
        certificate = certified(message, roster=roster, terms=terms)
        names = self._agreement.names
        invited = frozenset(
            names.index(roster.names[silo]) for silo in certificate.header.participants
        )
        identifier = round_identifier(self._agreement.plan, number - 1, invited, purpose)
        if certificate.header.round_id != identifier:
            raise DataError("it is the certificate of another round.")
        self.signers |= {roster.names[silo] for silo in certificate.signatures}
        self.proved[identifier.hex()] = ProvedSum(
            round=number,
            purpose=purpose,
            survivors=survivors_of(certificate, roster),
            payload=certificate.header.payload_digest.hex(),
        )

    def compare(self, run: RunFolder) -> None:
        """The journal says what was proved, and no more."""
        spent = LiveEpsilon(self._agreement.design)
        for entry in run.rounds():
            proof = self.proved.get(entry.round_id)
            if proof is None or (proof.round, proof.purpose) != (entry.round, "model"):
                self.findings.append(f"round {entry.round} has no certificate")
            elif proof.survivors != tuple(sorted(entry.survivors)):
                self.findings.append(
                    f"round {entry.round}: the journal names other survivors than were certified"
                )
            right = math.inf if run.void is not None else spent(entry.round)
            if not _equal(entry.epsilon_spent, right):
                self.findings.append(
                    f"round {entry.round}: the journal says ε = {entry.epsilon_spent:g}, the plan "
                    f"has spent {right:g}"
                )
        certified_sums = {(proof.round, proof.purpose) for proof in self.proved.values()}
        for measurement in run.measurements():
            if (measurement.round, "metrics") not in certified_sums:
                self.findings.append(
                    f"the measurement after round {measurement.round} has no certificate"
                )
        self.findings += [
            f"round {number}: the journal blames {one if other is None else f'{one} and {other}'}, "
            "which no signed message proves"
            for number, one, other in sorted(_blamed_in(run) - self._blamed, key=repr)
        ]
        asked = {
            (int(detail["round"]), str(detail.get("purpose", "model")))
            for event, detail in run.events
            if event == "invited"
        }
        for number, purpose in sorted(certified_sums - asked):
            self.findings.append(
                f"a certificate of round {number} ({purpose}), which the journal never asked for"
            )


def _blamed_in(run: RunFolder) -> set[_Blamed]:
    """Whom the journal blames; a silo whose secrets stayed closed is not blamed."""
    noted = [detail for event, detail in run.events if event == DISAGREED]
    pairs = {(int(note["round"]), one, other) for note in noted for one, other in note["pairs"]}
    return pairs | {(int(note["round"]), name, None) for note in noted for name in note["liars"]}


def survivors_of(certificate: SetCertificate, roster: Roster) -> tuple[str, ...]:
    """Names of the silos that are in a sum, in order."""
    members = certificate.header.participants - certificate.dropped
    return tuple(sorted(roster.names[silo] for silo in members))


def _equal(first: float, second: float) -> bool:
    return first == second or math.isclose(first, second, rel_tol=1e-9)
