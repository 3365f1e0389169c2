"""What a silo itself remembers of a plan's sums, against which it holds what a server says of them:
the rounds that it claimed, and the certificates of sums that it helped to open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from sumus.errors import SumusError
from sumus.files import read_bytes
from sumus.parties.agreement import Agreement
from sumus.parties.evidence import ProvedSum, survivors_of
from sumus.parties.memory import stored_session
from sumus.parties.restored import Restored
from sumus.parties.sums import sequence_of
from sumus.secagg import Roster, RosterHistory, certified, claimed_rounds, session_digest

__all__ = ["OwnMemory"]


@final
@dataclass(frozen=True, kw_only=True)
class OwnMemory:
    """Of one plan.

    Args:
        claimed: ids of the rounds that this silo began to answer.
        certificates: session → round id → the certificate as it came.
        forgotten: up to this sum the vault may have answered without knowing it any more, because
            it came from a backup; −1: it remembers everything.
    """

    claimed: frozenset[str]
    certificates: Mapping[bytes, Mapping[str, bytes]] = field(repr=False)
    forgotten: int = -1

    @classmethod
    def of_folder(cls, vault: Path, plan_hash: str) -> OwnMemory:
        """What a vault remembers of a plan, under whatever roster."""
        claimed: set[str] = set()
        certificates: dict[bytes, dict[str, bytes]] = {}
        for keys in sorted((vault / "sessions").glob("*/keys")):
            if stored_session(keys)[0].hex() != plan_hash:
                continue
            claimed |= {each.hex() for each in claimed_rounds(keys.with_name("rounds.log"))}
            kept = sorted(keys.with_name("certificates").glob("*"))
            certificates[bytes.fromhex(keys.parent.name)] = {
                path.name: read_bytes(path) for path in kept if not path.name.startswith(".")
            }
        restored = Restored.of_folder(vault)
        forgotten = -1 if restored is None else restored.answered.get(plan_hash, -1)
        return cls(claimed=frozenset(claimed), certificates=certificates, forgotten=forgotten)

    def contradictions(
        self,
        sums: Mapping[str, ProvedSum],
        *,
        silo: str,
        agreement: Agreement,
        rosters: RosterHistory,
    ) -> Iterator[str]:
        """What a server's evidence says otherwise than this silo remembers, a line each.

        Args:
            sums: that the evidence proves, by round id.
            silo: its name.
            rosters: that it trusts, and has trusted.
        """
        for round_id, proved in sums.items():
            number = sequence_of(proved.round - 1, proved.purpose)
            if silo in proved.survivors and not (
                round_id in self.claimed or number <= self.forgotten
            ):
                yield f"round {proved.round} counts this silo in, which has not answered it"
        for round_id, own in self._own_sums(agreement, rosters):
            told = sums.get(round_id)
            if told is not None and told.survivors != own.survivors:
                yield f"round {told.round} names other survivors than were certified here"
            elif told is not None and told.payload != own.payload:
                yield f"round {told.round} had another model at this silo"

    def unopened(self, told: Collection[str]) -> int:
        """How many sums this silo helped to open of which the server says nothing: lost, as it may
        happen, or kept from the silos; ε of them is spent either way.

        Args:
            told: ids of the sums that a journal has.
        """
        own = {round_id for kept in self.certificates.values() for round_id in kept}
        return len(own.difference(told))

    def _own_sums(
        self, agreement: Agreement, rosters: RosterHistory
    ) -> Iterator[tuple[str, ProvedSum]]:
        for session, kept in self.certificates.items():
            roster = _roster_of(session, agreement, rosters)
            if roster is None:
                continue
            for round_id, message in kept.items():
                try:
                    certificate = certified(
                        message, roster=roster, terms=agreement.terms_for(len(roster))
                    )
                except SumusError:
                    continue  # of another version: it proves nothing, and contradicts nothing
                header = certificate.header
                purpose = ("model", "metrics")[header.sequence % 2]
                yield (
                    round_id,
                    ProvedSum(
                        round=header.sequence // 2 + 1,
                        purpose=purpose,
                        survivors=survivors_of(certificate, roster),
                        payload=header.payload_digest.hex(),
                    ),
                )


def _roster_of(session: bytes, agreement: Agreement, rosters: RosterHistory) -> Roster | None:
    """The roster under which a session ran."""
    for epoch in rosters.epochs:
        if session_digest(agreement.terms_for(len(epoch.roster)), epoch.roster) == session:
            return epoch.roster
    return None
