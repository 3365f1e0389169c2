"""The server passes the keys round: it collects the silos' signed adverts, hands each silo its
directory, and carries what they encapsulate to each other.

    ServerSetup ──close──► ServerAgreeing ──close──► ServerSession
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sumus.errors import PeerProtocolError, RoundAborted
from sumus.secagg.graph import Topology, topology_of
from sumus.secagg.kem import refuse_malformed
from sumus.secagg.keys import Identity, Roster, session_digest
from sumus.secagg.messages import (
    SERVER,
    CipherTexts,
    Encapsulation,
    Encapsulations,
    KeyAdvert,
    KeyDirectory,
    decode,
)
from sumus.secagg.schedule import refuse_low_order
from sumus.secagg.server import ServerSession, require_sender
from sumus.secagg.setup_messages import keys_digest_of
from sumus.secagg.terms import Terms

__all__ = ["ServerAgreeing", "ServerSetup"]


@final
class ServerSetup:
    """Collects the silos' signed keys.

    Args:
        identity: of the server.
        roster: who is who.
        terms: the public numbers.
    """

    def __init__(self, identity: Identity, roster: Roster, terms: Terms) -> None:
        roster.require_server(identity)
        self._identity, self._roster, self._terms = identity, roster, terms
        self._session = session_digest(terms, roster)
        self._adverts: dict[int, bytes] = {}
        self._with_kem: set[int] = set()
        self._owners: dict[bytes, int] = {}

    @property
    def waiting_for(self) -> frozenset[int]:
        """Silos that have not advertised a key yet."""
        return frozenset(range(self._terms.silos)) - set(self._adverts)

    def receive(self, message: bytes, *, sender: int | None = None) -> None:
        """Take one silo's advert, unless its key would make every other silo refuse the
        directory.
        """
        advert = decode(message, KeyAdvert, roster=self._roster)
        require_sender(
            advert.sender,
            session=self._session,
            given=advert.session,
            claimed=sender,
        )
        if advert.sender in self._adverts:
            return
        name = self._roster.names[advert.sender]
        refuse_low_order(advert.agreement_key, owner=f"silo {name!r}")
        if advert.kem_key:
            refuse_malformed(advert.kem_key, owner=f"silo {name!r}")
        owner = self._owners.setdefault(advert.agreement_key, advert.sender)
        if owner != advert.sender:
            first = self._roster.names[owner]
            raise PeerProtocolError(
                f"silo {name!r} advertises the key of silo {first!r}, which came first. Leave it "
                "out."
            )
        self._adverts[advert.sender] = message
        if advert.kem_key:
            self._with_kem.add(advert.sender)

    def close(self) -> tuple[ServerAgreeing, dict[int, bytes]]:
        """A directory for each silo: the keys of those it masks with."""
        if len(self._adverts) < self._terms.minimum_survivors:
            raise RoundAborted(
                f"{len(self._adverts)} silos sent keys, a sum needs "
                f"{self._terms.minimum_survivors}. Wait for more silos."
            )
        topology, there = topology_of(self._terms, self._session), set(self._adverts)
        keys_digest = keys_digest_of(self._adverts[silo] for silo in sorted(there))
        directories, owed = {}, {}
        for silo in self._adverts:
            circle = sorted(topology.circle(silo) & there)
            directories[silo] = KeyDirectory(
                sender=SERVER,
                session=self._session,
                keys_digest=keys_digest,
                adverts=tuple(self._adverts[other] for other in circle),
            ).encode(self._identity)
            hybrid = self._with_kem if silo in self._with_kem else set()
            owed[silo] = [other for other in circle if other > silo and other in hybrid]
        agreeing = ServerAgreeing(
            self._identity,
            self._roster,
            self._terms,
            session=self._session,
            topology=topology,
            keys_digest=keys_digest,
            owed=owed,
        )
        return agreeing, directories


@final
class ServerAgreeing:
    """Collects what silos encapsulate to their neighbours.

    Args:
        identity: of the server.
        roster: who is who.
        terms: the public numbers.
        session: hash of terms and roster.
        topology: who masks with whom.
        keys_digest: the key set's name.
        owed: silo → the neighbours that it has to encapsulate a secret to.
    """

    def __init__(
        self,
        identity: Identity,
        roster: Roster,
        terms: Terms,
        *,
        session: bytes,
        topology: Topology,
        keys_digest: bytes,
        owed: Mapping[int, list[int]],
    ) -> None:
        self._identity, self._roster, self._terms = identity, roster, terms
        self.session, self._topology, self._keys_digest = session, topology, keys_digest
        self._owed = owed
        self._sealed: dict[int, dict[int, bytes]] = {}

    @property
    def waiting_for(self) -> frozenset[int]:
        """Silos that have not accepted their directory yet."""
        return frozenset(self._owed) - set(self._sealed)

    def receive(self, message: bytes, *, sender: int | None = None) -> None:
        """Take one silo's encapsulations, if nobody whom it owes one would go without."""
        given = decode(message, Encapsulations, roster=self._roster)
        require_sender(given.sender, session=self.session, given=given.session, claimed=sender)
        if given.keys_digest != self._keys_digest or given.sender not in self._owed:
            raise PeerProtocolError(f"silo {given.sender} speaks of another key set. Ignore it.")
        if given.sender in self._sealed:
            return
        sealed: dict[int, bytes] = {}
        for signed in given.sealed:
            each = decode(signed, Encapsulation, roster=self._roster)
            require_sender(
                each.sender, session=self.session, given=each.session, claimed=given.sender
            )
            if each.keys_digest == self._keys_digest:
                sealed[each.recipient] = signed
        if sorted(sealed) != self._owed[given.sender] or len(sealed) != len(given.sealed):
            raise PeerProtocolError(
                f"silo {given.sender} did not encapsulate one secret to each neighbour it owes "
                "one. Leave it out."
            )
        self._sealed[given.sender] = sealed

    def close(self) -> tuple[ServerSession, dict[int, bytes]]:
        """For each silo the secrets that were encapsulated to it."""
        if len(self._sealed) < self._terms.minimum_survivors:
            raise RoundAborted(
                f"{len(self._sealed)} silos accepted the keys, a sum needs "
                f"{self._terms.minimum_survivors}. Wait for more silos."
            )
        carried = {
            silo: CipherTexts(
                sender=SERVER,
                session=self.session,
                keys_digest=self._keys_digest,
                sealed=tuple(
                    sealed[silo] for _, sealed in sorted(self._sealed.items()) if silo in sealed
                ),
            ).encode(self._identity)
            for silo in self._sealed
        }
        session = ServerSession(
            identity=self._identity,
            roster=self._roster,
            terms=self._terms,
            session=self.session,
            topology=self._topology,
            members=frozenset(self._sealed),
            keys_digest=self._keys_digest,
        )
        return session, carried
