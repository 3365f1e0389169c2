"""A silo agrees on keys: fresh public halves go out, those of the others come in, and every pair
ends with a root that nobody else knows.

    SiloSetup ──directory──► SiloAgreeing ──ciphertexts──► SiloSession

That happens anew whenever a silo of the federation comes back. The private halves serve once: of
X25519 until the directory is accepted, of ML-KEM until the ciphertexts are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from sumus.errors import LocalProtocolError, PeerProtocolError
from sumus.randomness import RandomSource
from sumus.secagg.envelope import Reader, size_of
from sumus.secagg.graph import Topology, topology_of
from sumus.secagg.guard import RoundGuard
from sumus.secagg.kem import KEM_SEED_BYTES, decapsulate, encapsulate, has_kem, public_of
from sumus.secagg.keyring import KeySet, KeyStore, encode_table, read_table
from sumus.secagg.keys import Identity, Roster, session_digest
from sumus.secagg.messages import (
    CipherTexts,
    Encapsulation,
    Encapsulations,
    KeyAdvert,
    KeyDirectory,
    Ready,
    decode,
)
from sumus.secagg.schedule import PublicHalf, agree, mixed
from sumus.secagg.setup_messages import keys_digest_of, request_digest
from sumus.secagg.silo import SiloSession, require_session
from sumus.secagg.terms import Terms

__all__ = ["SiloAgreeing", "SiloSetup"]

_ADVERTISED = b"advertised"
_AGREEING = b"agreeing  "


@final
@dataclass(frozen=True, eq=False)
class SiloSetup:
    """The silo has advertised fresh keys and waits for those of the others."""

    identity: Identity
    roster: Roster
    terms: Terms
    _secret: bytes = field(repr=False)
    _kem_seed: bytes = field(repr=False)

    @classmethod
    def start(
        cls,
        identity: Identity,
        roster: Roster,
        *,
        terms: Terms,
        random: RandomSource,
        post_quantum: bool | None = None,
    ) -> tuple[SiloSetup, bytes]:
        """Draw fresh private halves and advertise the public ones.

        Args:
            random: where the private halves come from.
            post_quantum: whether to advertise an ML-KEM key; None: where the library has it.
        """
        roster.number(identity.name)
        if roster.public_keys[identity.name] != identity.public_key:
            raise LocalProtocolError(
                f"the roster has another key for silo {identity.name!r}. Send the current .pub "
                "file to the roster."
            )
        hybrid = has_kem() if post_quantum is None else post_quantum
        seed = random.bytes(KEM_SEED_BYTES) if hybrid else b""
        state = cls(identity, roster, terms, random.bytes(32), seed)
        return state, state.advert.encode(identity)

    @classmethod
    def restore(
        cls, identity: Identity, roster: Roster, *, terms: Terms, pending: bytes
    ) -> SiloSetup:
        """The same state from what `pending` stored, after a restart."""
        reader = _pending(pending, _ADVERTISED)
        return cls(identity, roster, terms, reader.take(32), bytes(reader.sized()))

    @property
    def pending(self) -> bytes:
        """What to store (readable by this silo only) until the directory is there."""
        return _ADVERTISED + self._secret + size_of(self._kem_seed) + self._kem_seed

    @cached_property
    def _agreement_key(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self._secret)

    @cached_property
    def advert(self) -> KeyAdvert:
        """The public halves."""
        return KeyAdvert(
            sender=self.roster.number(self.identity.name),
            session=session_digest(self.terms, self.roster),
            agreement_key=self._agreement_key.public_key().public_bytes_raw(),
            kem_key=public_of(self._kem_seed) if self._kem_seed else b"",
        )

    def receive(
        self, message: bytes, *, require_post_quantum: bool = False
    ) -> tuple[SiloAgreeing, bytes]:
        """Check the directory against the roster and agree with every silo in it.

        Guarantee: the server signed the directory, and every key in it was signed by the roster key
            of the silo it is said to belong to, for this session; no two silos have the same key;
            the silo's own keys are the ones it just sent. A pair whose two adverts both have an
            ML-KEM key gets a root that rests on it as well, whatever the server does.

        Args:
            require_post_quantum: refuse a directory with a pair that rests on X25519 alone.
        """
        own = self.advert
        directory = decode(message, KeyDirectory, roster=self.roster)
        require_session(own.session, given=directory.session)
        topology = topology_of(self.terms, own.session)
        adverts = self._checked(directory, topology)
        if require_post_quantum:
            _require_kem([own, *adverts.values()], self.roster)
        mine = _half(own)
        roots: dict[int, bytes] = {}
        waiting: dict[int, bytes] = {}
        sealed: list[bytes] = []
        for silo, advert in adverts.items():
            owner = f"silo {self.roster.names[silo]!r}"
            root = agree(
                self._agreement_key,
                mine,
                _half(advert),
                session=own.session,
                keys_digest=directory.keys_digest,
                owner=owner,
            )
            if not (self._kem_seed and advert.kem_key):
                roots[silo] = root
            elif silo < own.sender:
                waiting[silo] = root
            else:
                shared, ciphertext = encapsulate(advert.kem_key, owner=owner)
                roots[silo] = mixed(root, shared, ciphertext)
                encapsulation = Encapsulation(
                    sender=own.sender,
                    session=own.session,
                    keys_digest=directory.keys_digest,
                    recipient=silo,
                    ciphertext=ciphertext,
                )
                sealed.append(encapsulation.encode(self.identity))
        reply = Encapsulations(
            sender=own.sender,
            session=own.session,
            keys_digest=directory.keys_digest,
            sealed=tuple(sealed),
        )
        state = SiloAgreeing(
            identity=self.identity,
            roster=self.roster,
            terms=self.terms,
            keys_digest=directory.keys_digest,
            _roots=roots,
            _waiting=waiting,
            _kem_seed=self._kem_seed,
        )
        return state, reply.encode(self.identity)

    def _checked(self, directory: KeyDirectory, topology: Topology) -> dict[int, KeyAdvert]:
        """The other silos' adverts, each as its owner signed it."""
        own = self.advert
        if topology.ring is None and directory.keys_digest != keys_digest_of(directory.adverts):
            raise PeerProtocolError(
                "the directory does not hold the adverts that it is named after. Refuse the server."
            )
        seen: dict[bytes, int] = {}
        adverts: dict[int, KeyAdvert] = {}
        for signed in directory.adverts:
            advert = decode(signed, KeyAdvert, roster=self.roster)
            silo, key = advert.sender, advert.agreement_key
            require_session(own.session, given=advert.session)
            if silo not in topology.circle(own.sender):
                raise PeerProtocolError(
                    f"the directory holds silo {silo}, which is no neighbour of silo "
                    f"{own.sender}. Refuse the server."
                )
            if key in seen:
                pair = f"{self.roster.names[seen[key]]!r} and {self.roster.names[silo]!r}"
                raise PeerProtocolError(
                    f"silos {pair} have the same agreement key. One of them is an impostor."
                )
            seen[key] = silo
            adverts[silo] = advert
        if own.sender not in adverts:
            raise PeerProtocolError(
                f"the directory lacks silo {own.sender} itself. Ask the server to send the set-up "
                "again."
            )
        if adverts.pop(own.sender) != own:
            raise PeerProtocolError(
                f"the directory shows other keys for silo {own.sender} than it sent. Refuse the "
                "server."
            )
        return adverts


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class SiloAgreeing:
    """The silo knows everybody's keys and waits for what its neighbours with smaller numbers have
    encapsulated to it.
    """

    identity: Identity
    roster: Roster
    terms: Terms
    keys_digest: bytes
    _roots: Mapping[int, bytes] = field(repr=False)
    _waiting: Mapping[int, bytes] = field(repr=False)
    _kem_seed: bytes = field(repr=False)

    @classmethod
    def restore(
        cls, identity: Identity, roster: Roster, *, terms: Terms, pending: bytes
    ) -> SiloAgreeing:
        """The same state from what `pending` stored, after a restart."""
        reader = _pending(pending, _AGREEING)
        return cls(
            identity=identity,
            roster=roster,
            terms=terms,
            keys_digest=reader.take(32),
            _roots=read_table(reader),
            _waiting=read_table(reader),
            _kem_seed=bytes(reader.sized()),
        )

    @property
    def pending(self) -> bytes:
        """What to store (readable by this silo only) until the ciphertexts are there."""
        tables = encode_table(self._roots) + encode_table(self._waiting)
        return _AGREEING + self.keys_digest + tables + size_of(self._kem_seed) + self._kem_seed

    def receive(
        self,
        message: bytes,
        guard: RoundGuard,
        keys: KeyStore,
        *,
        random: RandomSource | None = None,
    ) -> tuple[SiloSession, bytes]:
        """Open the secrets that were encapsulated to this silo; its key set is complete.

        Guarantee: each was signed by the silo it is said to come from, for this key set. A
            neighbour whose secret is missing gets no root: nothing falls back to X25519 alone.

        Args:
            guard: what the silo has committed to.
            keys: where it keeps its roots; they are there when this returns, and no private half.
            random: see `SiloSession`.
        """
        session = SiloSession.open(
            self.identity, self.roster, terms=self.terms, guard=guard, keys=keys, random=random
        )
        given = decode(message, CipherTexts, roster=self.roster)
        require_session(session.session, given=given.session)
        _require_key_set(self.keys_digest, given.keys_digest)
        roots = dict(self._roots)
        for signed in given.sealed:
            sealed = decode(signed, Encapsulation, roster=self.roster)
            require_session(session.session, given=sealed.session)
            _require_key_set(self.keys_digest, sealed.keys_digest)
            if sealed.recipient != session.number or sealed.sender not in self._waiting:
                raise PeerProtocolError(
                    f"silo {sealed.sender} encapsulated nothing to silo {session.number} that it "
                    "waits for. Refuse the server."
                )
            shared = decapsulate(self._kem_seed, sealed.ciphertext)
            roots[sealed.sender] = mixed(self._waiting[sealed.sender], shared, sealed.ciphertext)
        keys.keep(keys.ring.with_set(KeySet(self.keys_digest, 0, roots)))
        ready = Ready(
            sender=session.number, session=session.session, answers=request_digest(message)
        )
        return session, ready.encode(self.identity)


def _pending(stored: bytes, state: bytes) -> Reader:
    """What was stored of a state, behind the state's name."""
    if not stored.startswith(state):
        raise PeerProtocolError(
            "this silo does not wait for keys at this point of the set-up. Greet it again."
        )
    return Reader(memoryview(stored)[len(state) :])


def _half(advert: KeyAdvert) -> PublicHalf:
    return PublicHalf(advert.sender, advert.agreement_key, advert.kem_key)


def _require_key_set(expected: bytes, given: bytes) -> None:
    if given != expected:
        raise PeerProtocolError(
            "the ciphertexts belong to another key set than the directory. Ask the server to send "
            "the set-up again."
        )


def _require_kem(adverts: list[KeyAdvert], roster: Roster) -> None:
    """Refuse silos whose pairs would rest on X25519 alone."""
    classical = [roster.names[advert.sender] for advert in adverts if not advert.kem_key]
    if classical:
        raise PeerProtocolError(
            f"silos {', '.join(classical)} have no ML-KEM-768 key, and a policy requires it "
            "(require_post_quantum). Install cryptography with ML-KEM there."
        )
