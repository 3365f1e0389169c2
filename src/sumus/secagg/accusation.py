"""Proof, for whoever was not there, of who disagreed with whom in a round.

    accusation = certificate | inputs without their vectors | revealed shares

All of it is signed: the certificate by the server and a quorum of silos, each input and each answer
by its silo. Examining it opens the same secrets with the same code as the server did, so it says the
same of the same silos, and neither server nor silo can make it say anything of a silo that did not
sign what is in it. An input's vector is under its signature as a hash, so the vector is not needed;
the shares open seeds that the server knows already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

from sumus.errors import PeerProtocolError
from sumus.secagg.envelope import SIGNATURE_BYTES, signed_part
from sumus.secagg.graph import Topology, topology_of
from sumus.secagg.keys import Roster, session_digest
from sumus.secagg.messages import (
    DroppedSet,
    MaskedInput,
    RevealedShares,
    SetCertificate,
    decode,
    decode_any,
)
from sumus.secagg.recovery import Disagreements, Recovery, Sealed, pads_by_owner
from sumus.secagg.secrets import SecretLayout
from sumus.secagg.terms import Terms

__all__ = ["Accusation", "without_vector"]

_DIGEST_BYTES = 32
_SIZE_BYTES = 8


def without_vector(message: MaskedInput, data: bytes | memoryview) -> bytes:
    """What stays of a signed input as evidence: everything before the vector, the vector's hash, the
    signature.
    """
    view = memoryview(data)
    end = len(view) - SIGNATURE_BYTES
    start = view[: end - len(message.vector)]
    return bytes(start) + message.bulk_digest + bytes(view[end:])


@final
@dataclass(frozen=True, kw_only=True)
class Accusation:
    """The signed messages that a disagreement follows from.

    Args:
        certificate: of the round's survivors, whole.
        inputs: of the owners in question, see `without_vector`.
        shares: whole messages of everybody who revealed shares.
    """

    certificate: bytes
    inputs: tuple[bytes, ...]
    shares: tuple[bytes, ...]

    def as_json(self) -> dict[str, Any]:
        """Hexadecimal strings, for a journal."""
        return {
            "certificate": self.certificate.hex(),
            "inputs": [part.hex() for part in self.inputs],
            "shares": [part.hex() for part in self.shares],
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Accusation:
        """The inverse of `as_json`; a `PeerProtocolError` for anything else."""
        try:
            return cls(
                certificate=bytes.fromhex(stored["certificate"]),
                inputs=tuple(map(bytes.fromhex, stored["inputs"])),
                shares=tuple(map(bytes.fromhex, stored["shares"])),
            )
        except (KeyError, TypeError, ValueError):
            raise PeerProtocolError(
                "an accusation is damaged: it lacks certificate, inputs or shares. Discard it."
            ) from None

    def examined(self, roster: Roster, terms: Terms) -> Disagreements:
        """What the messages prove, by numbers on the roster; raises unless all are signed, of one
        round and of this roster and plan.
        """
        session = session_digest(terms, roster)
        topology = topology_of(terms, session)
        certificate = decode(self.certificate, SetCertificate, roster=roster)
        if certificate.session != session:
            raise PeerProtocolError("an accusation is of another plan or roster. Discard it.")
        _require_quorum(certificate, roster, topology)
        header, dropped = certificate.header, certificate.dropped
        survivors = header.participants - dropped
        layouts = {
            owner: SecretLayout.of(
                topology, owner=owner, participants=header.participants, removable=terms.removable
            )
            for owner in survivors
        }
        opened = {
            owner: layout.opened(dropped, missing=terms.silos - len(survivors))
            for owner, layout in layouts.items()
        }
        pads: dict[int, dict[int, bytes]] = {owner: {} for owner in survivors}
        for data in self.shares:
            answer = decode(data, RevealedShares, roster=roster)
            _require_of_round(answer, header.transcript, survivors)
            counts = {owner: len(indices) for owner, indices in opened.items()}
            for owner, part in pads_by_owner(topology, counts, answer.sender, answer.shares):
                pads[owner][answer.sender] = part
        recovery = Recovery(threshold=topology.threshold, liars=terms.colluding)
        recovery.bind(part for owner in sorted(pads) for part in pads[owner].values())
        for owner, sealed in self._owners(roster, certificate, survivors):
            if len(pads[owner]) < topology.threshold:
                raise PeerProtocolError(
                    f"an accusation has {len(pads[owner])} shares of silo {owner}'s secrets, "
                    f"{topology.threshold} open them. Discard it."
                )
            recovery.open(
                owner, layouts[owner].holders, pads[owner], sealed=sealed, opened=opened[owner]
            )
        return recovery.disagreements

    def _owners(
        self, roster: Roster, certificate: SetCertificate, survivors: frozenset[int]
    ) -> Iterable[tuple[int, Sealed]]:
        for data in self.inputs:
            end = len(data) - SIGNATURE_BYTES - _DIGEST_BYTES
            start, digest, signature = (
                data[: max(end, 0)],
                data[end:-SIGNATURE_BYTES],
                data[-SIGNATURE_BYTES:],
            )
            # the same message with an empty vector can be read
            empty = start[:-_SIZE_BYTES] + bytes(_SIZE_BYTES) + signature
            sent = decode_any(empty)
            if not isinstance(sent, MaskedInput):
                raise PeerProtocolError("an accusation holds no masked input. Discard it.")
            roster.verify(sent.sender, signature=signature, message=signed_part(start, digest))
            _require_of_round(sent, certificate.header.transcript, survivors)
            if certificate.salts[sent.sender] != sent.salt:
                raise PeerProtocolError(
                    f"silo {sent.sender}'s shares are of another submission. Discard it."
                )
            yield sent.sender, Sealed(sent.salt, bytes(sent.corrections), bytes(sent.tags))


def _require_quorum(certificate: SetCertificate, roster: Roster, topology: Topology) -> None:
    signed = DroppedSet.signed_part(certificate.header, certificate.dropped)
    for silo, signature in certificate.signatures.items():
        roster.verify(silo, signature=signature, message=signed)
    if len(set(certificate.signatures) & topology.committee) < topology.quorum:
        raise PeerProtocolError("an accusation's certificate lacks a quorum. Discard it.")


def _require_of_round(
    message: MaskedInput | RevealedShares, transcript: bytes, survivors: frozenset[int]
) -> None:
    if message.transcript != transcript or message.sender not in survivors:
        raise PeerProtocolError(
            f"an accusation mixes rounds: a message of silo {message.sender} belongs elsewhere. "
            "Discard it."
        )
