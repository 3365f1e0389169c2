"""A silo written from docs/protocol.md ("Byte by byte") alone: plain integers, hashlib and
`cryptography`, not a line of the package. It forgets everything when its process ends.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from oracles.plain_bytes import (
    Fields,
    bitmap,
    corrections,
    counter,
    expand,
    h,
    hkdf,
    mask,
    pack,
    seed,
    sized,
    u,
)
from oracles.plain_graph import graph_of

SERVER = 0xFFFF
TERMS = """silos length modulus_bits dropouts colluding noise_contributors removable graph
security_bits correctness_bits""".split()  # noqa: SIM905  as the page lists them

VectorFor = Callable[[bytes, list[bytes]], Sequence[int]]
"""Payload and removable seeds to the silo's words."""


class PlainSilo:
    """Answers the server of one federation, and checks what it is told."""

    def __init__(
        self,
        private: bytes,
        roster: dict[str, bytes],
        server_key: bytes,
        terms: dict[str, Any],
        vector_for: VectorFor,
        *,
        epoch: tuple[bytes, int, int] = (bytes(32), 0, 0),
        kem: Any = None,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.signing = Ed25519PrivateKey.from_private_bytes(private)
        own = self.signing.public_key().public_bytes_raw()
        self.keys = {SERVER: server_key, **dict(enumerate(roster[name] for name in sorted(roster)))}
        self.me = next(number for number, key in self.keys.items() if key == own)
        self.terms, self.vector_for, self.kem, self.random = terms, vector_for, kem, random
        graph = ("auto", "complete", "sparse").index(terms["graph"])
        threshold = terms["silos"] - terms["dropouts"]
        numbers = [*(graph if name == "graph" else terms[name] for name in TERMS), threshold]
        terms_digest = h(b"sumus terms 1", terms["plan_hash"], *(u(n, 8) for n in numbers))
        parties = (u(len(name), 2) + name.encode() + roster[name] for name in sorted(roster))
        previous, number, colluding = epoch
        history = previous + u(number, 8) + u(colluding, 8)
        roster_digest = h(b"sumus roster 2", server_key, history, *parties)
        self.session = h(b"sumus session 1", terms_digest, roster_digest)
        self.graph = graph_of(terms, self.session)
        self.sets: dict[bytes, tuple[int, dict[int, bytes]]] = {}
        self.flight: dict[str, Any] = {"sequence": -1, "transcript": b""}

    # -- the envelope

    def say(
        self, kind: int, body: bytes, round_id: bytes = bytes(32), bulk: bytes | None = None
    ) -> bytes:
        start = b"SUMU" + bytes((2, kind)) + u(self.me, 2) + self.session + round_id + body
        digest = h(start) if bulk is None else h(start, h(bulk))
        return start + (bulk or b"") + self.signing.sign(b"sumus message 2" + digest)

    def checked(self, message: bytes, kind: int, sender: int, bulk: int | None = None) -> Fields:
        """The body of a message that its sender signed; `bulk` is the length of its last field."""
        assert message[:6] == b"SUMU" + bytes((2, kind))
        assert message[6:8] == u(sender, 2)
        assert message[8:40] == self.session
        end = len(message) - 64
        digest = h(message[:end])
        if bulk is not None:
            digest = h(message[: end - bulk], h(message[end - bulk : end]))
        key = Ed25519PublicKey.from_public_bytes(self.keys[sender])
        key.verify(message[end:], b"sumus message 2" + digest)
        return Fields(message[72:end])

    def handle(self, message: bytes) -> bytes:
        answers = {9: self.greeting, 2: self.directory, 15: self.ciphertexts}
        answers |= {3: self.invitation, 5: self.dropped_set, 7: self.certificate}
        return answers[message[5]](message)

    # -- keys go round

    def advert(self) -> bytes:
        self.private = X25519PrivateKey.from_private_bytes(self.random(32))
        self.kem_private: Any = self.kem.generate() if self.kem else None
        kem_key = self.kem_private.public_key().public_bytes_raw() if self.kem_private else b""
        public = self.private.public_key().public_bytes_raw()
        self.own_advert = self.say(1, public + sized(kem_key))
        return self.own_advert

    def greeting(self, message: bytes) -> bytes:
        fields = self.checked(message, 9, SERVER)
        nonce, plan_hash = fields.take(32), fields.take(32)
        assert plan_hash == self.terms["plan_hash"]
        return self.say(10, nonce + b"\0" + sized(self.advert()))

    def directory(self, message: bytes) -> bytes:
        fields = self.checked(message, 2, SERVER)
        self.keys_digest, adverts = fields.take(32), fields.listed()
        assert self.own_advert in adverts
        if self.graph.complete:
            assert self.keys_digest == h(b"sumus key set 2", *map(sized, adverts))
        halves, keys, kem_keys = {}, {}, {}
        for advert in adverts:
            silo = int.from_bytes(advert[6:8], "little")
            shown = self.checked(advert, 1, silo)
            assert silo in self.graph.circles[self.me]
            keys[silo], kem_keys[silo] = shown.take(32), shown.sized()
            halves[silo] = u(silo, 2) + keys[silo] + h(kem_keys[silo])
        assert len(set(keys.values())) == len(keys)
        self.roots, self.owed, sealed = {}, set(), []
        for silo in sorted(set(keys) - {self.me}):
            shared = self.private.exchange(X25519PublicKey.from_public_bytes(keys[silo]))
            pair = halves[min(silo, self.me)] + halves[max(silo, self.me)]
            info = b"sumus pair root 2" + self.keys_digest + pair
            self.roots[silo] = hkdf(shared, self.session, info)
            if not (self.kem and kem_keys[silo]):
                continue
            if silo < self.me:
                self.owed.add(silo)
                continue
            shared, ciphertext = self.kem.encapsulate(kem_keys[silo])
            self.mix(silo, shared, ciphertext)
            sealed.append(self.say(13, self.keys_digest + u(silo, 2) + ciphertext))
        return self.say(14, self.keys_digest + u(len(sealed), 2) + b"".join(map(sized, sealed)))

    def mix(self, silo: int, shared: bytes, ciphertext: bytes) -> None:
        info = b"sumus hybrid root 2" + h(ciphertext)
        self.roots[silo] = hkdf(shared, self.roots[silo], info)

    def ciphertexts(self, message: bytes) -> bytes:
        fields = self.checked(message, 15, SERVER)
        assert fields.take(32) == self.keys_digest
        for each in fields.listed():
            silo = int.from_bytes(each[6:8], "little")
            shown = self.checked(each, 13, silo)
            assert (shown.take(32), shown.number(2)) == (self.keys_digest, self.me)
            ciphertext = shown.take(1088)
            self.mix(silo, self.kem_private.decapsulate(ciphertext), ciphertext)
            self.owed.remove(silo)
        for silo in self.owed:
            del self.roots[silo]
        self.sets[self.keys_digest] = 0, self.roots
        del self.private, self.kem_private, self.roots
        return self.say(11, h(message))

    # -- a round

    def header(self, message: bytes, kind: int, bulk: int | None = None) -> tuple[Fields, bytes]:
        fields = self.checked(message, kind, SERVER, bulk)
        silos = self.terms["silos"]
        fields.take(32 + 8 + 32)
        assert fields.number(2) == silos
        fields.bitmap(silos)
        body = fields.data[: fields.at]
        return fields, h(b"sumus transcript 2", self.session, message[40:72], body)

    def invitation(self, message: bytes) -> bytes:
        silos, length, bits = (self.terms[name] for name in ("silos", "length", "modulus_bits"))
        start = 72 + 32 + 8 + 32 + 2 + (silos + 7) // 8
        fields, transcript = self.header(message, 3, len(message) - start - 8 - 64)
        payload, at = fields.sized(), Fields(fields.data)
        if transcript == self.flight["transcript"]:
            return bytes(self.flight["reply"])
        digest, sequence = at.take(32), at.number(8)
        assert at.take(32) == h(payload)
        at.number(2)
        people = at.bitmap(silos)
        assert sequence > self.flight["sequence"]
        reached, roots = self.sets[digest]
        for _ in range(sequence - reached):
            roots = {silo: expand(root, b"ratchet") for silo, root in roots.items()}
        holders = self.holders(self.me, people)
        pairs = {v: expand(roots[v], b"sumus round" + transcript) for v in holders if v != self.me}
        later = {silo: expand(root, b"ratchet") for silo, root in roots.items()}
        self.sets = {digest: (sequence + 1, later)}
        salt, own = self.random(8), self.random(32)
        removable = [seed(own, b"removable" + u(j, 2)) for j in range(self.terms["removable"])]
        masks = [seed(own, b"self mask"), *(seed(pairs[v], b"mask") for v in sorted(pairs))]
        secrets = masks + removable
        self.flight = {
            "sequence": sequence,
            "transcript": transcript,
            "people": people,
            "pairs": pairs,
            "own": own,
            "salt": salt,
        }
        pads = [self.pads(self.me, holder, salt) for holder in holders]
        fixed = b"".join(
            corrections(secret, [pad[32 * s : 32 * s + 32] for pad in pads], self.graph.threshold)
            for s, secret in enumerate(secrets)
        )
        tags = b"".join(hmac.digest(s, b"sumus seed tag", "sha256")[:16] for s in secrets)
        words = list(self.vector_for(payload, removable))
        signs = [1, *(1 if self.me < v else -1 for v in sorted(pairs))]
        for key, sign in zip(masks, signs, strict=True):
            words = [w + sign * m for w, m in zip(words, mask(key, length, bits), strict=True)]
        vector = pack(words, bits)
        body = transcript + salt + sized(fixed) + sized(tags) + u(len(vector), 8)
        self.flight["reply"] = self.say(4, body, message[40:72], bulk=vector)
        return bytes(self.flight["reply"])

    def pads(self, owner: int, holder: int, salt: bytes) -> bytes:
        if owner == holder:
            key = expand(self.flight["own"], b"own pads")
        else:
            pair = self.flight["pairs"][holder if owner == self.me else owner]
            key = expand(pair, b"pads" + u(owner, 2) + salt)
        count = len(self.holders(owner, self.flight["people"])) + self.terms["removable"]
        return counter(key, 32 * count, first=2)

    def holders(self, owner: int, people: list[int]) -> list[int]:
        return [silo for silo in people if silo in self.graph.circles[owner]]

    def agreed(self, transcript: bytes, dropped: list[int]) -> bytes:
        """What a silo signs, if it may survive in this set and has agreed to no other."""
        people = self.flight["people"]
        least = max(
            self.terms["silos"] - self.terms["dropouts"],
            self.terms["noise_contributors"] + self.terms["colluding"],
        )
        assert transcript == self.flight["transcript"]
        assert set(dropped) < set(people)
        assert self.me not in dropped
        assert len(people) - len(dropped) >= least
        assert self.flight.setdefault("dropped", dropped) == dropped
        return b"sumus dropped set 1" + transcript + bitmap(self.terms["silos"], dropped)

    def dropped_set(self, message: bytes) -> bytes:
        fields, transcript = self.header(message, 5)
        signed = self.agreed(transcript, fields.bitmap(self.terms["silos"]))
        return self.say(6, transcript + self.signing.sign(signed), message[40:72])

    def certificate(self, message: bytes) -> bytes:
        fields, transcript = self.header(message, 7)
        silos, people = self.terms["silos"], self.flight["people"]
        dropped = fields.bitmap(silos)
        survivors = [silo for silo in people if silo not in dropped]
        salts = {silo: fields.take(8) for silo in survivors}
        signatures = {fields.number(2): fields.take(64) for _ in range(fields.number(2))}
        signed = self.agreed(transcript, dropped)
        assert len(signatures) == self.graph.quorum
        assert set(signatures) <= set(survivors) & self.graph.committee
        for silo, signature in signatures.items():
            Ed25519PublicKey.from_public_bytes(self.keys[silo]).verify(signature, signed)
        assert salts[self.me] == self.flight["salt"]
        assert self.flight.setdefault("salts", salts) == salts
        shares = b"".join(
            self.pads(owner, self.me, salts[owner])[32 * s : 32 * s + 32]
            for owner in self.holders(self.me, survivors)
            for s in self.opened(owner, dropped, silos - len(survivors))
        )
        return self.say(8, transcript + sized(shares), message[40:72])

    def opened(self, owner: int, dropped: list[int], missing: int) -> Iterator[int]:
        """Places of the owner's secrets that the survivor set opens."""
        holders = self.holders(owner, self.flight["people"])
        partners = [silo for silo in holders if silo != owner]
        yield 0
        yield from (1 + place for place, silo in enumerate(partners) if silo in dropped)
        first = len(holders)
        yield from range(first + missing, first + self.terms["removable"])
