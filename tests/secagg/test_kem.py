"""ML-KEM-768 where the library has it, and what happens where it does not."""

from __future__ import annotations

import pytest

from sumus.errors import PeerProtocolError
from sumus.randomness import RandomSource
from sumus.secagg import kem

needs_kem = pytest.mark.skipif(not kem.has_kem(), reason="cryptography without ML-KEM-768")


@needs_kem
def test_both_ends_share_a_secret_and_a_changed_ciphertext_gives_another() -> None:
    seed = RandomSource.simulation(1).bytes(kem.KEM_SEED_BYTES)
    public = kem.public_of(seed)
    assert len(public) == kem.KEM_KEY_BYTES
    shared, ciphertext = kem.encapsulate(public, owner="silo 'Graz'")
    assert len(ciphertext) == kem.CIPHERTEXT_BYTES
    assert kem.decapsulate(seed, ciphertext) == shared
    changed = bytes([ciphertext[0] ^ 1]) + ciphertext[1:]
    assert kem.decapsulate(seed, changed) != shared
    assert kem.encapsulate(public, owner="silo 'Graz'")[0] != shared


@needs_kem
def test_a_key_that_the_library_refuses_is_refused_and_no_other() -> None:
    """Coefficient by coefficient against the library: 12 bits, below 3329."""
    public = kem.public_of(bytes(kem.KEM_SEED_BYTES))
    kem.refuse_malformed(public, owner="silo 'Graz'")
    for place in (0, 1, 382, 767):
        for value in (0, 3328, 3329, 4095):
            changed = bytearray(public)
            start, odd = 3 * (place // 2), place % 2
            three = int.from_bytes(changed[start : start + 3], "little")
            three = three & ~(0xFFF << 12 * odd) | value << 12 * odd
            changed[start : start + 3] = three.to_bytes(3, "little")
            if value < 3329:
                kem.encapsulate(bytes(changed), owner="silo 'Graz'")
            else:
                with pytest.raises(PeerProtocolError, match="silo 'Graz' is malformed"):
                    kem.refuse_malformed(bytes(changed), owner="silo 'Graz'")
                with pytest.raises(ValueError, match="ML-KEM"):
                    kem._mlkem.MLKEM768PublicKey.from_public_bytes(bytes(changed))
    with pytest.raises(PeerProtocolError, match="malformed"):
        kem.refuse_malformed(public[:-1], owner="silo 'Graz'")


def test_a_library_without_it_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from cryptography.exceptions import UnsupportedAlgorithm

    class Refusing:
        class MLKEM768PrivateKey:
            @staticmethod
            def from_seed_bytes(seed: bytes) -> None:
                raise UnsupportedAlgorithm("built without it")

    for library in (None, Refusing):
        monkeypatch.setattr(kem, "_mlkem", library)
        kem.has_kem.cache_clear()
        assert not kem.has_kem()
    monkeypatch.undo()
    kem.has_kem.cache_clear()
