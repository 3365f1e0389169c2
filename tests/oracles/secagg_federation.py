"""A small federation whose wires the test holds in its hands."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from sumus.randomness import RandomSource
from sumus.secagg import (
    SERVER,
    SERVER_NAME,
    CipherTexts,
    Identity,
    MemoryKeyStore,
    MemoryRoundGuard,
    Roster,
    ServerSession,
    ServerSetup,
    SiloSession,
    SiloSetup,
    SiloSubmitted,
    Terms,
    decode_any,
)
from sumus.secagg.envelope import Message

M = TypeVar("M", bound=Message)
PLAN_HASH = hashlib.sha256(b"a plan").digest()


def terms_for(
    silos: int, *, length: int = 8, dropouts: int | None = None, **changes: object
) -> Terms:
    most = (silos - 1) // 2
    fields: dict[str, object] = {
        "plan_hash": PLAN_HASH,
        "silos": silos,
        "length": length,
        "dropouts": most if dropouts is None else dropouts,
    }
    return Terms(**(fields | changes))  # type: ignore[arg-type]


def round_id(label: object) -> bytes:
    return hashlib.sha256(repr(label).encode()).digest()


@dataclass
class Federation:
    """Identities, roster, set-up secrets, sessions and the honest server's session."""

    terms: Terms
    identities: list[Identity]
    roster: Roster
    setups: dict[int, SiloSetup]
    adverts: dict[int, bytes]
    directories: dict[int, bytes]
    ciphertexts: dict[int, bytes]
    silos: dict[int, SiloSession]
    server: ServerSession
    random: RandomSource = field(repr=False)

    def setup(self) -> ServerSetup:
        """An honest server that has no keys yet."""
        return ServerSetup(self.server.identity, self.roster, self.terms)

    def agreed(self, silo: int, directory: bytes) -> SiloSession:
        """The session of a silo that was shown another directory, and is sent no ciphertexts."""
        waiting, _ = self.setups[silo].receive(directory)
        empty = CipherTexts(
            sender=SERVER,
            session=self.server.session,
            keys_digest=waiting.keys_digest,
            sealed=(),
        )
        return waiting.receive(
            empty.encode(self.server.identity), MemoryRoundGuard(), MemoryKeyStore()
        )[0]

    def inputs(self, seed: int = 0) -> dict[int, npt.NDArray[np.uint64]]:
        generator = np.random.default_rng(seed)
        top = np.uint64((1 << self.terms.modulus_bits) - 1)
        return {
            silo: generator.integers(0, 2**64, self.terms.length, dtype=np.uint64) & top
            for silo in range(self.terms.silos)
        }

    def submit_all(
        self, invitation: bytes, inputs: dict[int, npt.NDArray[np.uint64]]
    ) -> tuple[dict[int, SiloSubmitted], dict[int, bytes]]:
        states, messages = {}, {}
        for silo, vector in inputs.items():
            if silo in self.silos:
                states[silo], messages[silo] = self.silos[silo].receive(invitation).submit(vector)
        return states, messages


def federation(
    terms: Terms,
    *,
    seed: int = 1,
    absent: frozenset[int] = frozenset(),
    with_kem: frozenset[int] = frozenset(),
) -> Federation:
    """Silos that have agreed on keys; those of `with_kem` have ML-KEM keys as well."""
    random = RandomSource.simulation(seed, "federation")
    identities = [Identity.generate(f"silo-{number:03d}", random) for number in range(terms.silos)]
    own = Identity.generate(SERVER_NAME, random)
    roster = Roster.of(own, identities)
    collecting = ServerSetup(own, roster, terms)
    setups, adverts = {}, {}
    for number, identity in enumerate(identities):
        if number not in absent:
            setups[number], adverts[number] = SiloSetup.start(
                identity,
                roster,
                terms=terms,
                random=random,
                post_quantum=number in with_kem,
            )
            collecting.receive(adverts[number])
    carrying, directories = collecting.close()
    waiting = {}
    for number, setup in setups.items():
        waiting[number], reply = setup.receive(directories[number])
        carrying.receive(reply)
    server, ciphertexts = carrying.close()
    silos = {
        number: state.receive(ciphertexts[number], MemoryRoundGuard(), MemoryKeyStore())[0]
        for number, state in waiting.items()
    }
    return Federation(
        terms,
        identities,
        roster,
        setups,
        adverts,
        directories,
        ciphertexts,
        silos,
        server,
        random,
    )


def read(message: bytes, expected: type[M]) -> M:
    """What a message says, whoever signed it."""
    decoded = decode_any(message)
    assert isinstance(decoded, expected)
    return decoded


def modular_sum(vectors: list[npt.NDArray[np.uint64]], modulus_bits: int) -> list[int]:
    """The oracle: Python integers, no words."""
    return [
        sum(int(vector[place]) for vector in vectors) % (1 << modulus_bits)
        for place in range(len(vectors[0]))
    ]
