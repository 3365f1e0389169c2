"""A server that wants one silo's vector, and colluding silos that give it all they know.

It speaks the real messages, signs with its own and the colluders' keys, pools every share it is given under
whatever survivor set, and tries to take both masks off its victim's vector. `steal` returns the
vector if the pooled shares suffice: the tests call it with the defences on, where it must fail, and
with one defence taken out, where it must succeed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from oracles.secagg_federation import Federation, read, round_id
from sumus.errors import ProtocolError
from sumus.secagg import DroppedSet, Invitation, SiloSubmitted
from sumus.secagg.masking import add_masks, unpack
from sumus.secagg.messages import (
    SERVER,
    MaskedInput,
    RevealedShares,
    RoundHeader,
    SetCertificate,
    SetSignature,
)
from sumus.secagg.schedule import PairKey, seed_tag
from sumus.secagg.secrets import SecretLayout, pair_sign
from sumus.secagg.sharing import ELEMENT_BYTES, recover


class MaliciousServer:
    def __init__(
        self,
        world: Federation,
        label: object,
        *,
        colluders: Iterable[int] = (),
        absent: Iterable[int] = (),
    ) -> None:
        self.world = world
        self.colluders = frozenset(colluders)
        _, self.invitation = world.server.invite(round_id(label))
        self.header: RoundHeader = read(self.invitation, Invitation).header
        self.inputs = world.inputs(7)
        present = {silo: vector for silo, vector in self.inputs.items() if silo not in set(absent)}
        self.rings = {silo: session.keys.ring for silo, session in world.silos.items()}
        states, messages = world.submit_all(self.invitation, present)
        self.states: dict[int, SiloSubmitted] = states
        self.masked = {silo: read(message, MaskedInput) for silo, message in messages.items()}
        self.pads: dict[tuple[int, bytes, int, int], bytes] = {}
        for colluder in self.colluders:
            self._pool_colluder(colluder)

    def layout(self, owner: int) -> SecretLayout:
        terms = self.world.terms
        return SecretLayout.of(
            self.world.server.topology,
            owner=owner,
            participants=self.header.participants,
            removable=terms.removable,
        )

    def _pool_colluder(self, colluder: int) -> None:
        """Everything a colluder can derive about the others' secrets."""
        for owner in self.rings[colluder].key_set(self.header.keys_digest).roots:
            if owner not in self.masked:
                continue
            count, salt = self.layout(owner).count, self.masked[owner].salt
            stream = self.pair_key(colluder, owner).pads(owner, salt=salt, count=count)
            for index in range(count):
                self.pads[owner, salt, index, colluder] = stream[
                    index * ELEMENT_BYTES : (index + 1) * ELEMENT_BYTES
                ]

    def pair_key(self, colluder: int, other: int) -> PairKey:
        """What a colluder shares with another silo in this round, from what it kept before it."""
        key_set = self.rings[colluder].key_set(self.header.keys_digest)
        root = key_set.at(self.header.sequence).roots[other]
        return PairKey.derive(root, self.header.transcript)

    def envelope(self) -> dict[str, Any]:
        return {
            "sender": SERVER,
            "session": self.header.session,
            "round_id": self.header.round_id,
            "header": self.header,
        }

    def collect_signatures(self, dropped: set[int], asked: Iterable[int]) -> dict[int, bytes]:
        """Ask honest silos to sign this set; colluders sign anything."""
        proposal = DroppedSet(**self.envelope(), dropped=frozenset(dropped)).encode(
            self.world.server.identity
        )
        signed = DroppedSet.signed_part(self.header, frozenset(dropped))
        signatures = {c: self.world.identities[c].sign(signed) for c in self.colluders - dropped}
        for silo in asked:
            try:
                signatures[silo] = read(self.states[silo].sign(proposal)[1], SetSignature).signature
            except ProtocolError:
                continue
        return signatures

    def collect_shares(
        self,
        dropped: set[int],
        signatures: dict[int, bytes],
        asked: Iterable[int],
        *,
        other_salts: Mapping[int, bytes] | None = None,
    ) -> int:
        """Show honest silos a certificate and pool what they reveal; returns how many were taken
        in.
        """
        survivors = sorted(self.header.participants - dropped)
        salts = {
            silo: self.masked[silo].salt if silo in self.masked else bytes(8) for silo in survivors
        }
        salts |= other_salts or {}
        quorum = self.world.server.topology.quorum
        chosen = dict(sorted(signatures.items())[:quorum])
        certificate = SetCertificate(
            **self.envelope(), dropped=frozenset(dropped), salts=salts, signatures=chosen
        ).encode(self.world.server.identity)
        fooled = 0
        for silo in asked:
            try:
                reply = read(self.states[silo].reveal(certificate)[1], RevealedShares)
            except ProtocolError:
                continue
            fooled += 1
            self._pool(silo, frozenset(dropped), salts, bytes(reply.shares))
        return fooled

    def _pool(
        self, holder: int, dropped: frozenset[int], salts: Mapping[int, bytes], shares: bytes
    ) -> None:
        """Sort revealed pads by secret, however many removable ones the holder was talked into."""
        owners = self.world.server.topology.holders(holder, self.header.participants - dropped)
        for missing in range(self.world.terms.silos + 1):
            secrets = [
                (owner, index)
                for owner in owners
                for index in self.layout(owner).opened(dropped, missing=missing)
            ]
            if len(secrets) * ELEMENT_BYTES == len(shares):
                for place, (owner, index) in enumerate(secrets):
                    self.pads[owner, salts[owner], index, holder] = shares[
                        place * ELEMENT_BYTES : (place + 1) * ELEMENT_BYTES
                    ]
                return

    def open_secret(
        self, owner: int, index: int, *, message: MaskedInput | None = None
    ) -> bytes | None:
        """The secret of a submission, if t of its pads are in the pool."""
        layout, threshold = self.layout(owner), self.world.server.topology.threshold
        if message is None and owner not in self.masked:
            return None
        message = message or self.masked[owner]
        pads = {
            layout.holders.index(holder) + 1: pad
            for (whose, salt, which, holder), pad in self.pads.items()
            if (whose, salt, which) == (owner, message.salt, index)
        }
        if len(pads) < threshold:
            return None
        size = (len(layout.holders) - threshold + 1) * ELEMENT_BYTES
        corrections = bytes(message.corrections[index * size : (index + 1) * size])
        seed = recover(dict(list(pads.items())[:threshold]), corrections, threshold=threshold)
        return (
            seed if seed_tag(seed) == bytes(message.tags[index * 16 : (index + 1) * 16]) else None
        )

    def pair_seed(self, victim: int, other: int) -> bytes | None:
        """s_uv from the victim's shares, from the other end's shares, or from a colluder at the
        other end.
        """
        if other in self.colluders:
            return self.pair_key(other, victim).mask_seed()
        for owner, partner in ((victim, other), (other, victim)):
            seed = self.open_secret(owner, 1 + self.layout(owner).partners.index(partner))
            if seed is not None:
                return seed
        return None

    def steal(self, victim: int) -> list[int] | None:
        """The victim's vector, or None if a mask is left on it."""
        terms = self.world.terms
        words = unpack(
            self.masked[victim].vector, modulus_bits=terms.modulus_bits, length=terms.length
        ).copy()
        self_seed = self.open_secret(victim, 0)
        if self_seed is None:
            return None
        add_masks(words, [(self_seed, -1)])
        for other in self.layout(victim).partners:
            seed = self.pair_seed(victim, other)
            if seed is None:
                return None
            add_masks(words, [(seed, -pair_sign(victim, other))])
        return [int(word) % (1 << terms.modulus_bits) for word in words]

    def truth(self, victim: int) -> list[int]:
        return [int(value) for value in np.asarray(self.inputs[victim])]
