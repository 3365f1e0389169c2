from __future__ import annotations

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from sumus.errors import PeerProtocolError
from sumus.secagg.schedule import (
    OwnKey,
    PairKey,
    PublicHalf,
    agree,
    expand,
    mixed,
    ratchet,
    refuse_low_order,
    seed_tag,
)


def key(byte: int) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(bytes([byte]) * 32)


def test_expand_is_hkdf_expand() -> None:
    oracle = HKDFExpand(algorithm=SHA256(), length=32, info=b"label").derive(b"k" * 32)
    assert expand(b"k" * 32, b"label") == oracle


def half(number: int, byte: int, kem_key: bytes = b"") -> PublicHalf:
    return PublicHalf(number, key(byte).public_key().public_bytes_raw(), kem_key)


def root(own: int, mine: PublicHalf, other: PublicHalf, **changes: bytes) -> bytes:
    names = {"session": bytes(32), "keys_digest": bytes(32)} | changes
    return agree(key(own), mine, other, owner="the other", **names)


def test_both_ends_agree_and_nothing_that_names_the_pair_can_be_changed() -> None:
    one, two = half(3, 1), half(8, 2)
    there = root(1, one, two)
    assert there == root(2, two, one)
    others = [
        root(1, one, two, session=b"\1" * 32),
        root(1, one, two, keys_digest=b"\1" * 32),
        root(1, half(4, 1), two),
        root(1, one, half(9, 2)),
        root(1, half(8, 1), half(3, 2)),  # the same two keys, and the silos' numbers swapped
        root(1, half(3, 1, b"kem"), two),
        root(1, one, half(8, 2, b"kem")),
    ]
    assert len({there, *others}) == 8


def test_the_root_is_what_the_documentation_says() -> None:
    """Against HKDF of the library, field by field."""
    one, two = half(3, 1, b"a kem key"), half(8, 2)
    shared = key(1).exchange(key(2).public_key())
    info = b"sumus pair root 2" + b"k" * 32
    for number, public, kem_key in (
        (3, one.agreement_key, b"a kem key"),
        (8, two.agreement_key, b""),
    ):
        info += number.to_bytes(2, "little") + public + hashlib.sha256(kem_key).digest()
    oracle = HKDF(algorithm=SHA256(), length=32, salt=b"s" * 32, info=info).derive(shared)
    assert root(2, two, one, session=b"s" * 32, keys_digest=b"k" * 32) == oracle
    info = b"sumus hybrid root 2" + hashlib.sha256(b"ciphertext").digest()
    hybrid = HKDF(algorithm=SHA256(), length=32, salt=oracle, info=info).derive(b"kem secret")
    assert mixed(oracle, b"kem secret", b"ciphertext") == hybrid


def test_both_secrets_and_the_ciphertext_are_needed_for_a_hybrid_root() -> None:
    right = mixed(b"c" * 32, b"k" * 32, b"ciphertext")
    wrong = {
        mixed(b"d" * 32, b"k" * 32, b"ciphertext"),
        mixed(b"c" * 32, b"l" * 32, b"ciphertext"),
        mixed(b"c" * 32, b"k" * 32, b"another"),
        b"c" * 32,
        b"k" * 32,
    }
    assert len(wrong) == 5
    assert right not in wrong


def test_the_ratchet_is_hkdf_expand_and_no_round_key_continues_it() -> None:
    oracle = HKDFExpand(algorithm=SHA256(), length=32, info=b"ratchet").derive(b"r" * 32)
    assert ratchet(b"r" * 32) == oracle
    assert PairKey.derive(b"r" * 32, b"t" * 32).key != oracle


P = 2**255 - 19
ORDER_EIGHT = 325606250916557431795983626356110631294008115727848805560023387167927233504
"""u-coordinate of a point of order 8; u = 0, 1 and −1 have order 1, 2 or 4, and p, p + 1, 2^255 and
2^255 + 1 spell 0 and 1 again.
"""


@pytest.mark.parametrize("u", [0, 1, ORDER_EIGHT, P - 1, P, P + 1, 2**255, 2**255 + 1], ids=hex)
def test_a_key_of_low_order_is_refused_by_whoever_sees_it_and_its_owner_named(u: int) -> None:
    low_order = u.to_bytes(32, "little")
    with pytest.raises(PeerProtocolError, match="silo 'Graz' has low order"):
        agree(
            key(1),
            half(0, 1),
            PublicHalf(1, low_order),
            session=bytes(32),
            owner="silo 'Graz'",
        )
    with pytest.raises(PeerProtocolError, match="silo 'Graz' has low order"):
        refuse_low_order(low_order, owner="silo 'Graz'")


def test_no_other_key_is_refused_on_the_curve_or_its_twist() -> None:
    for u in range(2, 200):
        refuse_low_order(u.to_bytes(32, "little"), owner="silo 'Graz'")


def test_all_leaves_differ_and_change_with_transcript_and_salt() -> None:
    leaves: list[bytes] = []
    for transcript, salt in ((bytes(32), bytes(8)), (b"\1" * 32, bytes(8)), (bytes(32), b"\1" * 8)):
        pair = PairKey.derive(b"p" * 32, transcript)
        leaves += [pair.pads(0, salt=salt, count=2)[:32], pair.pads(1, salt=salt, count=2)[:32]]
    for own in (OwnKey(b"o" * 32), OwnKey(b"q" * 32)):
        leaves += [own.self_seed(), own.pads(1), *own.removable_seeds(3)]
    leaves += [
        PairKey.derive(b"p" * 32, transcript).mask_seed() for transcript in (bytes(32), b"\1" * 32)
    ]
    assert len(set(leaves)) == len(leaves) == 18
    assert len({seed_tag(leaf) for leaf in leaves}) == 18


def test_secrets_do_not_show_themselves() -> None:
    for shown in (
        repr(PairKey(b"secret" * 5)),
        repr(OwnKey(b"secret" * 5)),
    ):
        assert "secret" not in shown
