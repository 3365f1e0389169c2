"""Writes docs/vectors/protocol.json: a whole set-up and a whole round with a drop-out, with every
key, seed and message on the way, for whoever implements docs/protocol.md.

    python docs/gen_vectors.py

Everything follows from public seeds, so the file is the same whenever it is made; only the ML-KEM
ciphertext, which a library draws for itself, is kept from the file that is there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sumus.randomness import RandomSource
from sumus.secagg.graph import topology_of
from sumus.secagg.guard import MemoryRoundGuard
from sumus.secagg.kem import decapsulate, encapsulate, has_kem, public_of
from sumus.secagg.keyring import MemoryKeyStore
from sumus.secagg.keys import SERVER_NAME, Identity, Roster, session_digest
from sumus.secagg.masking import add_masks, pack, reduce_words, word_type
from sumus.secagg.messages import SERVER, decode_any
from sumus.secagg.schedule import OwnKey, PairKey, mixed, ratchet, seed_tag
from sumus.secagg.server_setup import ServerSetup
from sumus.secagg.setup_messages import Encapsulation, Greeting, Refusal, Welcome
from sumus.secagg.sharing import corrections
from sumus.secagg.silo import SiloSession
from sumus.secagg.silo_setup import SiloSetup
from sumus.secagg.terms import Terms

FILE = Path(__file__).parent / "vectors" / "protocol.json"
SILOS, DROPPED, SEQUENCE = 4, 2, 3
TERMS = Terms(
    plan_hash=hashlib.sha256(b"the plan of the vectors").digest(),
    silos=SILOS,
    length=5,
    modulus_bits=20,
    dropouts=1,
    noise_contributors=3,
    removable=1,
)

Json = dict[str, Any]


def bits(*label: str | int) -> RandomSource:
    """Public random bits."""
    return RandomSource.simulation(0, "vectors", *label)


def plain(value: object) -> object:
    """As JSON: bytes in hexadecimal, sets in order."""
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    if dataclasses.is_dataclass(value):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    return value


def shown(message: bytes) -> Json:
    """One message with its fields."""
    decoded = decode_any(message)
    fields = plain(decoded)
    assert isinstance(fields, dict)
    return {
        "name": type(decoded).__name__,
        "kind": decoded.kind,
        "bytes": message.hex(),
        "fields": fields,
    }


class Federation:
    """Silos and a server that have agreed on keys, and what they said to each other."""

    def __init__(self) -> None:
        self.identities = [
            Identity.generate(f"silo-{number}", bits("identity", number)) for number in range(SILOS)
        ]
        self.own = Identity.generate(SERVER_NAME, bits("identity", "server"))
        self.roster = Roster.of(self.own, self.identities)
        self.session = session_digest(TERMS, self.roster)
        self.setup = ServerSetup(self.own, self.roster, TERMS)
        self.setups, self.adverts = [], []
        for number, identity in enumerate(self.identities):
            setup, advert = SiloSetup.start(
                identity,
                self.roster,
                terms=TERMS,
                random=bits("set-up", number),
                post_quantum=False,
            )
            self.setup.receive(advert)
            self.setups.append(setup)
            self.adverts.append(advert)
        agreeing, self.directories = self.setup.close()
        self.encapsulations, states = [], []
        for number, setup in enumerate(self.setups):
            state, reply = setup.receive(self.directories[number])
            agreeing.receive(reply)
            states.append(state)
            self.encapsulations.append(reply)
        self.server, self.ciphertexts = agreeing.close()
        self.silos: list[SiloSession] = []
        self.ready = []
        for number, state in enumerate(states):
            silo, reply = state.receive(
                self.ciphertexts[number],
                MemoryRoundGuard(),
                MemoryKeyStore(),
                random=bits("round", number),
            )
            self.silos.append(silo)
            self.ready.append(reply)

    def secret(self, identity: Identity) -> str:
        return identity._signing.private_bytes_raw().hex()


def agreed(world: Federation) -> Json:
    """Terms, roster, session and the set-up."""
    fields = plain(TERMS)
    assert isinstance(fields, dict)
    roots = {
        f"{one}-{other}": world.silos[one].keys.ring.sets[0].roots[other]
        for one in range(SILOS)
        for other in range(one + 1, SILOS)
    }
    return {
        "terms": {**fields, "digest": TERMS.digest().hex()},
        "roster": {
            "file": world.roster.to_text(),
            "digest": world.roster.digest().hex(),
            "private keys": {
                identity.name: world.secret(identity) for identity in [world.own, *world.identities]
            },
        },
        "session": world.session.hex(),
        "set-up": {
            "X25519 private keys": [setup._secret.hex() for setup in world.setups],
            "keys digest": world.server.keys_digest.hex(),
            "pair roots of sum 0": plain(roots),
            "pair root 0-1 of sums 0 to 3": [root.hex() for root in ratcheted(roots["0-1"])],
        },
    }


def ratcheted(root: bytes) -> list[bytes]:
    chain = [root]
    for _ in range(3):
        chain.append(ratchet(chain[-1]))
    return chain


def one_round(world: Federation, say: list[bytes]) -> Json:
    """A round in which one silo never sends its input; every message goes into `say`."""
    payload = b"what the application tells every silo"
    round_id = hashlib.sha256(b"the round of the vectors").digest()
    collecting, invitation = world.server.invite(round_id, payload=payload, sequence=SEQUENCE)
    say.append(invitation)
    states, silos = {}, []
    for number, silo in enumerate(world.silos):
        if number == DROPPED:
            continue
        vector = np.array([1000 * number + place - 2 for place in range(TERMS.length)])
        invited = silo.receive(invitation)
        states[number], reply = invited.submit(vector)
        flight = silo.keys.ring.round
        assert flight is not None
        collecting.receive(reply)
        say.append(reply)
        own = OwnKey(flight.own_key)
        partners = [other for other in range(SILOS) if other != number]
        seeds = [
            own.self_seed(),
            *(PairKey(flight.pair_keys[other]).mask_seed() for other in partners),
            *own.removable_seeds(TERMS.removable),
        ]
        silos.append(
            {
                "number": number,
                "vector": [int(value) % (1 << TERMS.modulus_bits) for value in vector],
                "salt": flight.salt.hex(),
                "own key": flight.own_key.hex(),
                "pair keys": plain(dict(flight.pair_keys)),
                "secrets": [seed.hex() for seed in seeds],
                "tags": [seed_tag(seed).hex() for seed in seeds],
                "pads at itself": own.pads(len(seeds)).hex(),
                "pads at the others": {
                    str(other): PairKey(flight.pair_keys[other])
                    .pads(number, salt=flight.salt, count=len(seeds))
                    .hex()
                    for other in partners
                },
            }
        )
    certifying, proposal = collecting.close()
    say.append(proposal)
    for state in states.values():
        reply = state.sign(proposal)[1]
        certifying.receive(reply)
        say.append(reply)
    unmasking, certificate = certifying.close()
    say.append(certificate)
    for state in states.values():
        reply = state.reveal(certificate)[1]
        unmasking.receive(reply)
        say.append(reply)
    outcome = unmasking.close()
    return {
        "payload": payload.hex(),
        "sequence": SEQUENCE,
        "silos": silos,
        "survivors": sorted(outcome.survivors),
        "sum": [int(word) for word in outcome.total],
        "removed seeds": plain(outcome.removed_seeds),
    }


def hybrid(world: Federation, say: list[bytes]) -> Json:
    """One pair that also shares a secret by ML-KEM."""
    if not has_kem():
        raise SystemExit(
            "this installation of cryptography has no ML-KEM. Install cryptography 47."
        )
    seed = bits("kem").bytes(64)
    public = public_of(seed)
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if kept.get("hybrid", {}).get("public key") == public.hex():
        ciphertext = bytes.fromhex(kept["hybrid"]["ciphertext"])
    else:
        ciphertext = encapsulate(public, owner="silo 1")[1]
    shared = decapsulate(seed, ciphertext)
    root = world.silos[0].keys.ring.sets[0].roots[1]
    say.append(
        Encapsulation(
            sender=0,
            session=world.session,
            keys_digest=world.server.keys_digest,
            recipient=1,
            ciphertext=ciphertext,
        ).encode(world.identities[0])
    )
    return {
        "seed of the private key": seed.hex(),
        "public key": public.hex(),
        "ciphertext": ciphertext.hex(),
        "shared secret": shared.hex(),
        "root before": root.hex(),
        "root": mixed(root, shared, ciphertext).hex(),
    }


def sharing() -> list[Json]:
    """Corrections of one secret for several thresholds, pads of all ones (above p) included."""
    cases = []
    for holders, threshold in ((1, 1), (3, 2), (5, 4), (7, 4)):
        source = bits("sharing", holders)
        secret = source.bytes(31) + b"\0"
        pads = [source.bytes(32) for _ in range(holders - 1)] + [b"\xff" * 32]
        cases.append(
            {
                "threshold": threshold,
                "secret": secret.hex(),
                "pads": [pad.hex() for pad in pads],
                "corrections": corrections([secret], pads, threshold=threshold).hex(),
            }
        )
    return cases


def masks() -> list[Json]:
    """Words of one seed in rings of several sizes, and as they are packed."""
    seed, cases = bits("mask").bytes(32), []
    for modulus_bits in (1, 7, 16, 20, 32, 33, 64):
        words = np.zeros(9, dtype=word_type(modulus_bits))
        add_masks(words, [(seed, 1)])
        reduce_words(words, modulus_bits)
        cases.append(
            {
                "seed": seed.hex(),
                "modulus_bits": modulus_bits,
                "words": [int(word) for word in words],
                "packed": bytes(pack(words, modulus_bits)).hex(),
            }
        )
    return cases


def sparse() -> list[Json]:
    """Numbers and circles of sparse graphs."""
    cases = []
    for silos, dropouts, colluding, kind in (
        (150, 7, 0, "auto"),
        (300, 15, 15, "auto"),
        (20, 4, 0, "sparse"),
    ):
        terms = dataclasses.replace(
            TERMS,
            silos=silos,
            dropouts=dropouts,
            colluding=colluding,
            graph=kind,
            noise_contributors=1,
            removable=0,
        )
        session = hashlib.sha256(terms.digest()).digest()
        topology = topology_of(terms, session)
        fields = plain(terms)
        assert isinstance(fields, dict)
        cases.append(
            {
                "terms": fields,
                "session": session.hex(),
                "degree": topology.degree,
                "threshold": topology.threshold,
                "quorum": topology.quorum,
                "committee": sorted(topology.committee),
                "circle of silo 0": sorted(topology.circle(0)),
            }
        )
    return cases


def around(world: Federation, say: list[bytes]) -> None:
    """Greeting, welcome and a refusal."""
    nonce = bits("nonce").bytes(32)
    greeting = Greeting(
        sender=SERVER,
        session=world.session,
        nonce=nonce,
        plan_hash=TERMS.plan_hash,
        version="vectors",
    ).encode(world.own)
    welcome = Welcome(
        sender=0, session=world.session, nonce=nonce, simulation=True, advert=world.adverts[0]
    )
    refusal = Refusal.of(
        greeting, "no such plan", sender=1, session=world.session, round_id=bytes(32)
    )
    say += [greeting, welcome.encode(world.identities[0]), refusal.encode(world.identities[1])]


def vectors() -> Json:
    """The whole file."""
    world, say = Federation(), []
    around(world, say)
    say += [*world.adverts, *(world.directories[number] for number in range(SILOS))]
    say += [*world.encapsulations, *(world.ciphertexts[number] for number in range(SILOS))]
    say += world.ready
    content = agreed(world)
    content["hybrid"] = hybrid(world, say)
    content["sharing"], content["masks"], content["sparse graphs"] = sharing(), masks(), sparse()
    content["round"] = one_round(world, say)
    content["messages"] = [shown(message) for message in say]
    return content


def render() -> str:
    """The file's text."""
    return json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
