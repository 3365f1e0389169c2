"""The server collects the silos' signed keys once and hands each silo its directory.

ServerSetup ──close──► ServerSession
"""

from __future__ import annotations

from typing import final

from sumus.errors import PeerProtocolError, RoundAborted
from sumus.secagg.graph import topology_of
from sumus.secagg.keys import Identity, Roster, session_digest
from sumus.secagg.messages import SERVER, KeyAdvert, KeyDirectory, decode
from sumus.secagg.schedule import refuse_low_order
from sumus.secagg.server import ServerSession, require_sender
from sumus.secagg.terms import Terms

__all__ = ["ServerSetup"]


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
        owner = self._owners.setdefault(advert.agreement_key, advert.sender)
        if owner != advert.sender:
            first = self._roster.names[owner]
            raise PeerProtocolError(
                f"silo {name!r} advertises the key of silo {first!r}, which came first. Leave it "
                "out."
            )
        self._adverts[advert.sender] = message

    def close(self) -> tuple[ServerSession, dict[int, bytes]]:
        """A directory for each silo: the keys of those it masks with."""
        if len(self._adverts) < self._terms.minimum_survivors:
            raise RoundAborted(
                f"{len(self._adverts)} silos sent keys, a sum needs "
                f"{self._terms.minimum_survivors}. Wait for more silos."
            )
        topology = topology_of(self._terms, self._session)
        directories = {}
        for silo in self._adverts:
            adverts = tuple(
                self._adverts[other] for other in sorted(topology.circle(silo) & set(self._adverts))
            )
            directories[silo] = KeyDirectory(
                sender=SERVER, session=self._session, adverts=adverts
            ).encode(self._identity)
        session = ServerSession(
            identity=self._identity,
            roster=self._roster,
            terms=self._terms,
            session=self._session,
            topology=topology,
            members=frozenset(self._adverts),
        )
        return session, directories
