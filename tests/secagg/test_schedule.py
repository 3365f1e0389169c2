from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from sumus.errors import PeerProtocolError
from sumus.secagg.schedule import (
    OwnKey,
    OwnRoot,
    PairKey,
    agree,
    expand,
    refuse_low_order,
    seed_tag,
)


def key(byte: int) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(bytes([byte]) * 32)


def test_expand_is_hkdf_expand() -> None:
    oracle = HKDFExpand(algorithm=SHA256(), length=32, info=b"label").derive(b"k" * 32)
    assert expand(b"k" * 32, b"label") == oracle


def test_both_ends_agree_and_no_other_session_does() -> None:
    left, right = key(1), key(2)
    there = agree(left, right.public_key().public_bytes_raw(), session=bytes(32), peer="right")
    back = agree(right, left.public_key().public_bytes_raw(), session=bytes(32), peer="left")
    elsewhere = agree(right, left.public_key().public_bytes_raw(), session=b"\1" * 32, peer="left")
    assert there == back != elsewhere


P = 2**255 - 19
ORDER_EIGHT = 325606250916557431795983626356110631294008115727848805560023387167927233504
"""u-coordinate of a point of order 8; u = 0, 1 and −1 have order 1, 2 or 4, and p, p + 1, 2^255 and
2^255 + 1 spell 0 and 1 again.
"""


@pytest.mark.parametrize("u", [0, 1, ORDER_EIGHT, P - 1, P, P + 1, 2**255, 2**255 + 1], ids=hex)
def test_a_key_of_low_order_is_refused_by_whoever_sees_it_and_its_owner_named(u: int) -> None:
    low_order = u.to_bytes(32, "little")
    with pytest.raises(PeerProtocolError, match="silo 'Graz' has low order"):
        agree(key(1), low_order, session=bytes(32), peer="silo 'Graz'")
    with pytest.raises(PeerProtocolError, match="silo 'Graz' has low order"):
        refuse_low_order(low_order, owner="silo 'Graz'")


def test_no_other_key_is_refused_on_the_curve_or_its_twist() -> None:
    for u in range(2, 200):
        refuse_low_order(u.to_bytes(32, "little"), owner="silo 'Graz'")


def test_all_leaves_differ_and_change_with_transcript_and_salt() -> None:
    leaves: list[bytes] = []
    for transcript, salt in ((bytes(32), bytes(8)), (b"\1" * 32, bytes(8)), (bytes(32), b"\1" * 8)):
        pair, own = (
            PairKey.derive(b"p" * 32, transcript),
            OwnRoot(b"o" * 32).submission(transcript, salt),
        )
        leaves += [pair.pads(0, salt=salt, count=2)[:32], pair.pads(1, salt=salt, count=2)[:32]]
        leaves += [own.self_seed(), own.pads(1), *own.removable_seeds(3)]
    leaves += [
        PairKey.derive(b"p" * 32, transcript).mask_seed() for transcript in (bytes(32), b"\1" * 32)
    ]
    assert len(set(leaves)) == len(leaves) == 23
    assert len({seed_tag(leaf) for leaf in leaves}) == 23


def test_secrets_do_not_show_themselves() -> None:
    for shown in (
        repr(PairKey(b"secret" * 5)),
        repr(OwnRoot(b"secret" * 5)),
        repr(OwnKey(b"secret" * 5)),
    ):
        assert "secret" not in shown
