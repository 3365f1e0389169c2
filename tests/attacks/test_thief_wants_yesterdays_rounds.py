"""A thief has recorded all traffic, has the server on his side, and steals a silo's folder.

What protects a silo's vector once its self mask was opened are its pair masks; their seeds follow
from what the folder held when the round was claimed, and from nothing that it holds later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from oracles.secagg_federation import read
from sumus.errors import PeerProtocolError
from sumus.parties.memory import stored_session
from sumus.secagg import Invitation, KeyRing, SiloInvited, decode_any
from sumus.secagg.masking import add_masks, unpack
from sumus.secagg.messages import MaskedInput, RoundHeader
from sumus.secagg.schedule import OwnKey, PairKey
from sumus.secagg.secrets import pair_sign
from support.local_federation import LocalFederation, plan

VICTIM = 1


@dataclass
class Recorded:
    """One round as the thief and his server saw it, and the truth."""

    header: RoundHeader
    masked: MaskedInput
    self_seed: bytes
    truth: list[int]


@dataclass
class Loot:
    """The recorded rounds, and the victim's folder as it was at different times."""

    federation: LocalFederation
    rounds: list[Recorded]
    folders: list[bytes]

    def opens(self, ring: KeyRing, recorded: Recorded) -> bool:
        """Whether some secret of the folder takes the pair masks off."""
        terms = self.federation.agreement.terms
        for seeds in self._seeds(ring, recorded.header):
            words = unpack(
                recorded.masked.vector, modulus_bits=terms.modulus_bits, length=terms.length
            ).copy()
            masks = [(seed, -pair_sign(VICTIM, other)) for other, seed in seeds.items()]
            add_masks(words, [(recorded.self_seed, -1), *masks])
            values = [int(word) % (1 << terms.modulus_bits) for word in words]
            if values == recorded.truth:
                return True
        return False

    def _seeds(self, ring: KeyRing, header: RoundHeader) -> Iterator[dict[int, bytes]]:
        """Everything that could be the pair seeds of a round."""
        if ring.round is not None:
            yield {v: PairKey(key).mask_seed() for v, key in ring.round.pair_keys.items()}
        for known in ring.sets:
            try:
                roots = known.at(header.sequence).roots
            except PeerProtocolError:  # they have moved on; perhaps they fit as they are
                roots = known.roots
            yield {
                v: PairKey.derive(root, header.transcript).mask_seed() for v, root in roots.items()
            }


@pytest.fixture(scope="module")
def loot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loot]:
    """Three rounds; the folder is looked at before the first and after each."""
    federation = LocalFederation(tmp_path_factory.mktemp("loot"), plan())
    loot, exchange = Loot(federation, [], []), federation.driver.exchange
    submit = SiloInvited.submit
    submitted: list[tuple[bytes, list[int]]] = []

    def watched(self: SiloInvited, vector: np.ndarray) -> object:
        if self.session.number == VICTIM:
            bits = self.session.terms.modulus_bits
            values = [int(value) % (1 << bits) for value in np.asarray(vector)]
            # the server opens this seed in the same round, since the victim survives
            submitted.append((OwnKey(self._own_key).self_seed(), values))
        return submit(self, vector)

    def recording(messages, *, deadline_seconds: float):
        answers = exchange(messages, deadline_seconds=deadline_seconds)
        first = decode_any(messages[VICTIM]) if VICTIM in messages else None
        if isinstance(first, Invitation):
            masked = read(answers[VICTIM], MaskedInput)
            loot.rounds.append(Recorded(first.header, masked, *submitted[-1]))
        return answers

    federation.driver.exchange = recording
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SiloInvited, "submit", watched)
        server = federation.server()
        server.greet()
        loot.folders.append(stolen(federation))
        for _ in server.train(federation.run_folder()):
            loot.folders.append(stolen(federation))
    yield loot
    federation.close()


def stolen(federation: LocalFederation) -> bytes:
    (path,) = (federation.folder(f"silo-{VICTIM}") / "sessions").glob("*/keys")
    return path.read_bytes()


def ring_of(content: bytes, tmp_path: Path) -> KeyRing:
    path = tmp_path / "keys"
    path.write_bytes(content)
    return stored_session(path)[1]


def test_by_stealing_the_folder_after_a_later_round(loot: Loot, tmp_path: Path) -> None:
    assert len(loot.rounds) == 3
    for after, content in enumerate(loot.folders[1:], start=1):
        ring = ring_of(content, tmp_path)
        opened = [loot.opens(ring, recorded) for recorded in loot.rounds[:after]]
        # the round in flight can be finished after a crash, so its keys are there
        assert opened == [False] * (after - 1) + [True]


def test_that_theft_works_on_a_silo_that_keeps_its_roots(loot: Loot, tmp_path: Path) -> None:
    """The control: the folder as it was when the keys had gone round opens every round since."""
    ring = ring_of(loot.folders[0], tmp_path)
    assert [loot.opens(ring, recorded) for recorded in loot.rounds] == [True, True, True]


def test_by_looking_for_any_secret_of_an_earlier_time_in_the_whole_folder(
    loot: Loot, tmp_path: Path
) -> None:
    """No file below the silo's folder holds a root, round key or private half of before."""
    gone: list[bytes] = []
    for content in loot.folders[:-1]:
        ring = ring_of(content, tmp_path)
        gone += [root for known in ring.sets for root in known.roots.values()]
        if ring.round is not None:
            gone += [ring.round.own_key, *ring.round.pair_keys.values()]
    assert len(gone) == len(set(gone)) == 3 * 3 + 2 * 4
    files = [
        path.read_bytes()
        for path in loot.federation.folder(f"silo-{VICTIM}").rglob("*")
        if path.is_file()
    ]
    assert files
    for secret in gone:
        assert all(
            secret not in content and secret.hex().encode() not in content for content in files
        )


def test_by_stealing_private_halves_that_have_served(loot: Loot, tmp_path: Path) -> None:
    """They are on the disk only while keys go round."""
    for content in loot.folders:
        assert ring_of(content, tmp_path).pending == b""
    waiting = loot.federation
    waiting.ask(VICTIM, waiting.greeting())
    assert ring_of(stolen(waiting), tmp_path).pending != b""
    waiting.server().greet()
    assert ring_of(stolen(waiting), tmp_path).pending == b""
