"""What a silo keeps of its keys moves forward only, and survives its own encoding."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from sumus.errors import PeerProtocolError, StorageError
from sumus.secagg import KeyRing, KeySet, RoundInFlight
from sumus.secagg.schedule import PairKey, ratchet

digests = st.binary(min_size=32, max_size=32)
tables = st.dictionaries(st.integers(0, 500), digests, max_size=5)
rounds = st.builds(
    RoundInFlight,
    sequence=st.integers(0, 2**64 - 1),
    transcript=digests,
    salt=st.binary(max_size=8),
    own_key=st.sampled_from([b"", b"o" * 32]),
    pair_keys=tables,
    reply=st.binary(max_size=100),
)
rings = st.builds(
    KeyRing,
    st.lists(st.builds(KeySet, digests, st.integers(0, 2**64 - 1), tables), max_size=3).map(tuple),
    st.none() | rounds,
    st.binary(max_size=100),
)


def claim(ring: KeyRing, digest: bytes, sequence: int, partners: tuple[int, ...] = (1,)) -> KeyRing:
    return ring.claimed(
        digest,
        sequence=sequence,
        transcript=sequence.to_bytes(32, "little"),
        salt=bytes(8),
        own_key=b"o" * 32,
        partners=partners,
    )


def key_set(byte: int) -> KeySet:
    return KeySet(bytes([byte]) * 32, 0, {1: bytes([byte]) * 32, 2: bytes([byte + 100]) * 32})


@given(rings)
def test_a_ring_survives_its_own_encoding(ring: KeyRing) -> None:
    stored = ring.encode()
    again = KeyRing.decode(stored, where="the test")
    assert again.encode() == stored
    assert [known.roots for known in again.sets] == [dict(known.roots) for known in ring.sets]
    assert (again.round is None) == (ring.round is None)


@pytest.mark.deep
@given(rings, st.data())
@settings(max_examples=200)
def test_a_damaged_ring_is_an_error_of_this_silos_disk(ring: KeyRing, data: st.DataObject) -> None:
    """Everything but the answer itself, which its readers check, is under a hash."""
    reply = len(ring.round.reply) if ring.round is not None else 0
    raw = bytearray(ring.encode())
    place = data.draw(st.integers(0, len(raw) - 1 - reply))
    raw[place] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(raw), ring.encode()[:place], ring.encode() + b"x"):
        with pytest.raises(StorageError, match="the test"):
            KeyRing.decode(damaged, where="the test")


def test_a_claim_leaves_the_rounds_own_keys_and_roots_behind_it() -> None:
    ring = claim(KeyRing((key_set(1),)), b"\1" * 32, 2)
    root = ratchet(ratchet(b"\1" * 32))
    assert ring.round is not None
    assert ring.round.pair_keys == {
        1: PairKey.derive(root, (2).to_bytes(32, "little")).key,
    }
    assert ring.sets[0].sequence == 3
    assert ring.sets[0].roots[1] == ratchet(root)
    for sequence in (0, 1, 2):
        with pytest.raises(PeerProtocolError, match="answered already"):
            claim(ring, b"\1" * 32, sequence)
        with pytest.raises(PeerProtocolError, match="are gone"):
            ring.sets[0].at(sequence)


def test_two_silos_meet_at_a_sum_whichever_they_missed() -> None:
    often = KeyRing((key_set(1),))
    for sequence in (0, 1, 4):
        often = claim(often, b"\1" * 32, sequence)
    seldom = claim(KeyRing((key_set(1),)), b"\1" * 32, 4)
    assert often.round is not None
    assert seldom.round is not None
    assert often.round.pair_keys == seldom.round.pair_keys
    assert often.sets[0].roots == seldom.sets[0].roots


def test_an_older_key_set_serves_until_a_round_is_claimed_under_a_newer_one() -> None:
    """A round that was first asked for under the older one may yet be asked for again."""
    ring = KeyRing((key_set(1), key_set(2)))
    again = claim(ring, b"\1" * 32, 4)
    assert [known.digest[0] for known in again.sets] == [1, 2]
    assert {known.sequence for known in again.sets} == {5}
    on = claim(again, b"\2" * 32, 6)
    assert [known.digest[0] for known in on.sets] == [2]
    with pytest.raises(PeerProtocolError, match="not one that this silo has agreed on"):
        claim(on, b"\1" * 32, 8)


def test_keys_that_go_round_without_end_take_no_more_room() -> None:
    ring = KeyRing().with_pending(b"private halves")
    for byte in range(1, 60):
        ring = ring.with_set(key_set(byte))
    assert len(ring.sets) == 8
    assert ring.sets[-1].digest[0] == 59
    assert ring.pending == b""


def test_no_sum_is_so_far_ahead_that_a_server_can_keep_a_silo_busy() -> None:
    with pytest.raises(PeerProtocolError, match="at most 1048576 may be skipped"):
        claim(KeyRing((key_set(1),)), b"\1" * 32, 2**63)


def test_keys_do_not_show_themselves() -> None:
    ring = claim(KeyRing((KeySet(b"d" * 32, 0, {1: b"secret" * 5 + b"ab"}),)), b"d" * 32, 0)
    assert "secret" not in repr(ring.answered(b"secret").with_pending(b"secret"))
    assert repr(ring.sets[0].roots[1]) not in repr(ring)
