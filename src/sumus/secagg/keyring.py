"""What a silo keeps of its keys: pair roots that only ever move forward, and the round in flight.

    pending ──keys went round──► key set ──claim of sum i──► key set at i + 1   and   round in flight
    private halves                roots r_0                  roots r_(i+1)            keys of sum i

A `KeyRing` is one value, and a `KeyStore` keeps it in one durable place: what opens a round and what
will open the next ones change together, in one write.

Guarantee: the ring after the claim of sum i holds nothing from which a secret of an earlier sum
    follows: roots were hashed i + 1 times, the keys of the round before are gone, and private
    halves went when the key set was accepted. With what it holds the sum in flight is finished
    after any crash, also when the keys went round again meanwhile.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, final

from sumus.errors import PeerProtocolError, StorageError
from sumus.files import FORMATS
from sumus.secagg.envelope import Reader, size_of
from sumus.secagg.schedule import PairKey, ratchet

__all__ = [
    "KeyRing",
    "KeySet",
    "KeyStore",
    "MemoryKeyStore",
    "RoundInFlight",
    "encode_table",
    "read_table",
]

_FORMAT = FORMATS["key ring"]
_MAGIC = _FORMAT.marked().encode()
_MOST_SETS = 8
_MOST_STEPS = 1 << 20


@final
@dataclass(frozen=True, eq=False)
class KeySet:
    """The pair roots that a silo agreed on when the keys went round.

    Args:
        digest: of all adverts; names the key set.
        sequence: of the earliest sum that these roots can serve.
        roots: one for each neighbour.
    """

    digest: bytes
    sequence: int
    roots: Mapping[int, bytes] = field(repr=False)

    def at(self, sequence: int) -> KeySet:
        """The roots of a later sum; those of an earlier one are gone."""
        steps = sequence - self.sequence
        if steps < 0:
            raise PeerProtocolError(
                f"the keys of sum {sequence} are gone: this key set serves sum {self.sequence} and "
                "later ones. Go on with the next round."
            )
        if steps > _MOST_STEPS:
            raise PeerProtocolError(
                f"sum {sequence} is {steps} sums ahead of this key set, at most {_MOST_STEPS} may "
                "be skipped. Refuse the server."
            )
        roots = dict(self.roots)
        for silo, root in roots.items():
            for _ in range(steps):
                root = ratchet(root)
            roots[silo] = root
        return KeySet(self.digest, sequence, roots)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class RoundInFlight:
    """The latest sum that this silo claimed, and all that it takes to finish it.

    Args:
        sequence: of the sum; no sum with this number or a smaller one is claimed again.
        transcript: everything that identifies the round: id, key set, participants, payload.
        salt: of this silo's submission.
        own_key: of this silo's submission.
        pair_keys: one for each neighbour that takes part.
        reply: the masked answer; empty if the silo's process ended without one, and the round is
            then lost for this silo.
    """

    sequence: int
    transcript: bytes
    salt: bytes
    own_key: bytes = field(repr=False)
    pair_keys: Mapping[int, bytes] = field(repr=False)
    reply: bytes = field(default=b"", repr=False)


@final
@dataclass(frozen=True, eq=False)
class KeyRing:
    """Everything that a silo keeps of its keys in one session.

    Args:
        sets: key sets that may still be used, the newest last. An older one is kept until a round
            is claimed under a newer one: a round that it was first asked for under may yet be
            asked for again.
        round: in flight.
        pending: private halves that were advertised and not used yet.
    """

    sets: tuple[KeySet, ...] = ()
    round: RoundInFlight | None = None
    pending: bytes = field(default=b"", repr=False)

    def key_set(self, digest: bytes) -> KeySet:
        """The key set with this name."""
        for known in self.sets:
            if known.digest == digest:
                return known
        raise PeerProtocolError(
            f"key set {digest.hex()[:8]}… is not one that this silo has agreed on, or it was used "
            "up. Pass the keys round again."
        )

    def with_set(self, agreed: KeySet) -> KeyRing:
        """Keys went round: the private halves have served.

        However often that happens without a round, eight key sets are kept.
        """
        others = tuple(known for known in self.sets if known.digest != agreed.digest)
        return KeyRing((*others, agreed)[-_MOST_SETS:], self.round)

    def with_pending(self, pending: bytes) -> KeyRing:
        """Keys are going round: private halves that this silo advertised."""
        return replace(self, pending=pending)

    def claimed(
        self,
        digest: bytes,
        *,
        sequence: int,
        transcript: bytes,
        salt: bytes,
        own_key: bytes,
        partners: tuple[int, ...],
    ) -> KeyRing:
        """The ring when a sum counts as answered: its own keys stay, all roots move behind it.

        Args:
            digest: of the key set that the round names.
            sequence: of the sum.
            transcript: of the round.
            salt: of the submission.
            own_key: of the submission.
            partners: the neighbours that take part.
        """
        if self.round is not None and sequence <= self.round.sequence:
            raise PeerProtocolError(
                f"sum {self.round.sequence} was answered already, and none goes back behind it "
                f"(asked for: {sequence}). Go on with the next round."
            )
        now = self.key_set(digest).at(sequence)
        newer = self.sets[[known.digest for known in self.sets].index(digest) + 1 :]
        in_flight = RoundInFlight(
            sequence=sequence,
            transcript=transcript,
            salt=salt,
            own_key=own_key,
            pair_keys={silo: PairKey.derive(now.roots[silo], transcript).key for silo in partners},
        )
        behind = tuple(known.at(max(sequence + 1, known.sequence)) for known in (now, *newer))
        return KeyRing(behind, in_flight, self.pending)

    def answered(self, reply: bytes) -> KeyRing:
        """The ring with the masked answer of the round in flight."""
        if self.round is None:
            raise StorageError("no round is in flight. Claim it before it is answered.")
        return replace(self, round=replace(self.round, reply=reply))

    def spent(self) -> KeyRing:
        """The ring of a session that is over: the number of its last sum, and nothing that opens
        anything.
        """
        flight = self.round
        if flight is not None:
            flight = RoundInFlight(
                sequence=flight.sequence,
                transcript=flight.transcript,
                salt=b"",
                own_key=b"",
                pair_keys={},
            )
        return KeyRing((), flight)

    # -- as bytes

    def encode(self) -> bytes:
        """The ring as one file; `decode` reads it back."""
        parts = [struct.pack("<H", len(self.sets))]
        for known in self.sets:
            parts += [known.digest, struct.pack("<Q", known.sequence), encode_table(known.roots)]
        parts += [size_of(self.pending), self.pending]
        flight = self.round
        parts.append(bytes((flight is not None,)))
        if flight is not None:
            parts += [
                struct.pack("<Q", flight.sequence),
                flight.transcript,
                size_of(flight.salt),
                flight.salt,
                size_of(flight.own_key),
                flight.own_key,
                encode_table(flight.pair_keys),
            ]
        body = b"".join(parts)
        reply = b"" if flight is None else flight.reply
        check = hashlib.sha256(body + size_of(reply)).digest()
        return b"".join((_MAGIC, check, size_of(body), body, size_of(reply), reply))

    @classmethod
    def decode(cls, content: bytes, *, where: str) -> KeyRing:
        """The inverse of `encode`; `where` names the file should it be damaged."""
        fix = "Start a new session with a new roster; do not edit it."
        _FORMAT.require_beginning(where, content)
        if not content.startswith(_MAGIC):
            raise StorageError(f"{where} is no key ring of this version. {fix}")
        try:
            reader = Reader(content)
            reader.take(len(_MAGIC))
            check, body = reader.take(32), reader.sized()
            reply = bytes(reader.sized())
            reader.finish()
            if hashlib.sha256(bytes(body) + size_of(reply)).digest() != check:
                raise StorageError(f"{where} is damaged. {fix}")
            return cls._read(Reader(body), reply)
        except PeerProtocolError:
            raise StorageError(f"{where} is damaged. {fix}") from None

    @classmethod
    def _read(cls, reader: Reader, reply: bytes) -> KeyRing:
        sets = tuple(
            KeySet(reader.take(32), reader.number(8), read_table(reader))
            for _ in range(reader.number(2))
        )
        pending, flight = bytes(reader.sized()), None
        if reader.number(1):
            flight = RoundInFlight(
                sequence=reader.number(8),
                transcript=reader.take(32),
                salt=bytes(reader.sized()),
                own_key=bytes(reader.sized()),
                pair_keys=read_table(reader),
                reply=reply,
            )
        reader.finish()
        return cls(sets, flight, pending)


def encode_table(keys: Mapping[int, bytes]) -> bytes:
    """32 bytes for each of some silos."""
    rows = [silo.to_bytes(2, "little") + key for silo, key in sorted(keys.items())]
    return b"".join((len(rows).to_bytes(2, "little"), *rows))


def read_table(reader: Reader) -> dict[int, bytes]:
    """The inverse of `encode_table`."""
    return {reader.number(2): reader.take(32) for _ in range(reader.number(2))}


class KeyStore(Protocol):
    """Where a silo keeps its ring."""

    @property
    def ring(self) -> KeyRing:
        """The ring as last kept."""
        ...

    def keep(self, ring: KeyRing) -> None:
        """Replace the ring; nothing that follows from the new one may leave before this returns,
        and what only the old one held is gone.
        """
        ...


@final
class MemoryKeyStore:
    """A ring that ends with its process."""

    def __init__(self) -> None:
        self.ring = KeyRing()

    def keep(self, ring: KeyRing) -> None:
        """See `KeyStore.keep`."""
        self.ring = ring
