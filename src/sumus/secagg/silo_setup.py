"""A silo agrees on keys once: its advert goes out, the directory comes in, and a session begins.

SiloSetup ──directory──► SiloSession
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from sumus.errors import LocalProtocolError, PeerProtocolError
from sumus.randomness import RandomSource
from sumus.secagg.graph import topology_of
from sumus.secagg.guard import RoundGuard
from sumus.secagg.keys import Identity, Roster, session_digest
from sumus.secagg.messages import KeyAdvert, KeyDirectory, decode
from sumus.secagg.schedule import OwnRoot, agree, expand
from sumus.secagg.silo import SiloSession, require_session
from sumus.secagg.terms import Terms

__all__ = ["SiloSetup"]


@final
@dataclass(frozen=True, eq=False)
class SiloSetup:
    """The silo has advertised its key of this session and waits for those of the others."""

    identity: Identity
    roster: Roster
    terms: Terms
    _secret: bytes = field(repr=False)
    _random: RandomSource = field(repr=False)

    @classmethod
    def start(
        cls, identity: Identity, roster: Roster, *, terms: Terms, random: RandomSource
    ) -> tuple[SiloSetup, bytes]:
        """Draw a fresh set-up secret and advertise the key that follows from it."""
        return cls.restore(identity, roster, terms=terms, secret=random.bytes(32), random=random)

    @classmethod
    def restore(
        cls,
        identity: Identity,
        roster: Roster,
        *,
        terms: Terms,
        secret: bytes,
        random: RandomSource,
    ) -> tuple[SiloSetup, bytes]:
        """The same from a set-up secret that this silo stored, after a restart."""
        number = roster.number(identity.name)
        if roster.public_keys[identity.name] != identity.public_key:
            raise LocalProtocolError(
                f"the roster has another key for silo {identity.name!r}. Send the current .pub "
                "file to the roster."
            )
        state = cls(identity, roster, terms, secret, random)
        session = session_digest(terms, roster)
        public = state._agreement_key.public_key().public_bytes_raw()
        advert = KeyAdvert(sender=number, session=session, agreement_key=public)
        return state, advert.encode(identity)

    @property
    def secret(self) -> bytes:
        """What to store (readable by this silo only) in order to survive a restart; destroy it when
        the federation ends.
        """
        return self._secret

    @cached_property
    def _agreement_key(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(expand(self._secret, b"agreement key"))

    def receive(self, message: bytes, guard: RoundGuard) -> SiloSession:
        """Check the directory against the roster and agree on a root with every silo in it.

        Guarantee: the server signed the directory, and every key in it was signed by the roster key
            of the silo it is said to belong to, for this session; no two silos have the same key;
            the silo's own key is the one it sent.
        """
        directory = decode(message, KeyDirectory, roster=self.roster)
        session, number = (
            session_digest(self.terms, self.roster),
            self.roster.number(self.identity.name),
        )
        require_session(session, given=directory.session)
        topology = topology_of(self.terms, session)
        own = self._agreement_key
        own_public = own.public_key().public_bytes_raw()
        seen: dict[bytes, int] = {}
        roots: dict[int, bytes] = {}
        for signed in directory.adverts:
            advert = decode(signed, KeyAdvert, roster=self.roster)
            silo, key = advert.sender, advert.agreement_key
            require_session(session, given=advert.session)
            if silo not in topology.circle(number):
                raise PeerProtocolError(
                    f"the directory holds silo {silo}, which is no neighbour of silo {number}. "
                    "Refuse the server."
                )
            if key in seen:
                pair = f"{self.roster.names[seen[key]]!r} and {self.roster.names[silo]!r}"
                raise PeerProtocolError(
                    f"silos {pair} have the same agreement key. One of them is an impostor."
                )
            seen[key] = silo
            if silo == number:
                if key != own_public:
                    raise PeerProtocolError(
                        f"the directory shows another key for silo {number} than it sent. Refuse "
                        "the server."
                    )
                continue
            roots[silo] = agree(own, key, session=session, peer=f"silo {self.roster.names[silo]!r}")
        if own_public not in seen:
            raise PeerProtocolError(
                f"the directory lacks silo {number} itself. Ask the server to send the set-up "
                "again."
            )
        return SiloSession(
            identity=self.identity,
            roster=self.roster,
            terms=self.terms,
            number=number,
            session=session,
            topology=topology,
            guard=guard,
            _pair_roots=roots,
            _own_root=OwnRoot(expand(self._secret, b"own root")),
            _random=self._random,
        )
