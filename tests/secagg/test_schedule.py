from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from sumus.errors import PeerProtocolError
from sumus.secagg.schedule import OwnRoot, PairKey, agree, expand, seed_tag


def key(byte: int) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(bytes([byte]) * 32)


def test_expand_is_hkdf_expand() -> None:
    oracle = HKDFExpand(algorithm=SHA256(), length=32, info=b"label").derive(b"k" * 32)
    assert expand(b"k" * 32, b"label") == oracle


def test_both_ends_agree_and_no_other_session_does() -> None:
    left, right = key(1), key(2)
    there = agree(left, right.public_key().public_bytes_raw(), session=bytes(32))
    back = agree(right, left.public_key().public_bytes_raw(), session=bytes(32))
    elsewhere = agree(right, left.public_key().public_bytes_raw(), session=b"\1" * 32)
    assert there == back != elsewhere


@pytest.mark.parametrize("low_order", [bytes(32), b"\1" + bytes(31)])
def test_a_key_of_low_order_is_refused(low_order: bytes) -> None:
    with pytest.raises(PeerProtocolError, match="low order"):
        agree(key(1), low_order, session=bytes(32))


def test_all_leaves_differ_and_change_with_the_transcript() -> None:
    leaves: list[bytes] = []
    for transcript in (bytes(32), b"\1" * 32):
        pair = PairKey.derive(b"p" * 32, transcript)
        own = OwnRoot(b"o" * 32)
        leaves += [pair.mask_seed(), pair.share_key(0), pair.share_key(1)]
        leaves += [own.self_seed(transcript), own.share_key(transcript), *own.removable_seeds(transcript, 3)]
    assert len(set(leaves)) == len(leaves) == 16
    assert len({seed_tag(leaf) for leaf in leaves}) == 16


def test_the_memory_of_an_input_is_keyed() -> None:
    one, other = OwnRoot(b"o" * 32), OwnRoot(b"q" * 32)
    words = memoryview(b"input")
    assert one.input_digest(bytes(32), words) == one.input_digest(bytes(32), words)
    assert one.input_digest(bytes(32), words) != other.input_digest(bytes(32), words)
    assert one.input_digest(bytes(32), words) != one.input_digest(bytes(32), memoryview(b"inpuT"))


def test_secrets_do_not_show_themselves() -> None:
    for shown in (repr(PairKey(b"secret" * 5)), repr(OwnRoot(b"secret" * 5))):
        assert "secret" not in shown
