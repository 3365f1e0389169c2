"""Whether a certificate proves what it says, for somebody who was not there.

A quorum of the committee signed one survivor set of one round, and the server signed the whole: with
terms and roster, and nothing else, anybody can tell.
"""

from __future__ import annotations

from sumus.errors import PeerProtocolError
from sumus.secagg.graph import topology_of
from sumus.secagg.keys import Roster, session_digest
from sumus.secagg.messages import DroppedSet, SetCertificate, decode
from sumus.secagg.terms import Terms

__all__ = ["certified"]


def certified(message: bytes, *, roster: Roster, terms: Terms) -> SetCertificate:
    """The certificate that these bytes are; anything that proves nothing is a `PeerProtocolError`.

    Guarantee: the server of the roster signed it, in the session of these terms; a quorum of
        surviving committee members signed its survivor set, which is as large as the terms ask for.
    """
    certificate = decode(message, SetCertificate, roster=roster)
    session = session_digest(terms, roster)
    topology, header = topology_of(terms, session), certificate.header
    if certificate.session != session or header.silos != terms.silos:
        raise PeerProtocolError(
            "a certificate is of other terms or another roster. Compare plan and roster."
        )
    survivors, signers = header.participants - certificate.dropped, set(certificate.signatures)
    if not certificate.dropped <= header.participants or len(survivors) < terms.minimum_survivors:
        raise PeerProtocolError(
            f"a certificate leaves {len(survivors)} survivors, {terms.minimum_survivors} must be. "
            "It proves nothing."
        )
    if len(signers) != topology.quorum or not signers <= topology.committee & survivors:
        raise PeerProtocolError(
            f"a certificate needs {topology.quorum} signatures of surviving committee members, got "
            f"{len(signers)}. It proves nothing."
        )
    signed = DroppedSet.signed_part(header, certificate.dropped)
    for silo, signature in certificate.signatures.items():
        roster.verify(silo, signature=signature, message=signed)
    return certificate
