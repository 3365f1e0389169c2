"""Field, masks, packing and fields of messages, from docs/protocol.md ("Byte by byte") alone: plain
integers, hashlib and `cryptography`, not a line of the package.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from hashlib import sha256

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

P = 2**256 - 189


def h(*parts: bytes) -> bytes:
    return sha256(b"".join(parts)).digest()


def u(value: int, width: int) -> bytes:
    return value.to_bytes(width, "little")


def sized(field: bytes) -> bytes:
    return u(len(field), 8) + field


def expand(key: bytes, label: bytes) -> bytes:
    return hmac.digest(key, label + b"\1", "sha256")


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt, info).derive(secret)


def seed(key: bytes, label: bytes) -> bytes:
    return u(int.from_bytes(expand(key, label), "little") % P, 32)


def counter(key: bytes, count: int, *, first: int) -> bytes:
    mode = modes.CTR(first.to_bytes(16, "big"))
    return Cipher(algorithms.AES(key), mode).encryptor().update(bytes(count))


def mask(key: bytes, count: int, bits: int) -> list[int]:
    width = 2 if bits <= 16 else 4 if bits <= 32 else 8
    stream = counter(key, width * count, first=0)
    return [int.from_bytes(stream[i : i + width], "little") for i in range(0, len(stream), width)]


def pack(words: Sequence[int], bits: int) -> bytes:
    whole = sum(word % (1 << bits) << bits * place for place, word in enumerate(words))
    return u(whole, (len(words) * bits + 7) // 8)


def bitmap(silos: int, members: Sequence[int]) -> bytes:
    return u(sum(1 << silo for silo in members), (silos + 7) // 8)


def value_at(point: int, values: Sequence[int]) -> int:
    """f(point) of the polynomial through f(0), f(1), …"""
    total = 0
    for i, value in enumerate(values):
        over, under = 1, 1
        for j in range(len(values)):
            if j != i:
                over, under = over * (point - j) % P, under * (i - j) % P
        total += value * over * pow(under, -1, P)
    return total % P


def corrections(secret: bytes, pads: Sequence[bytes], threshold: int) -> bytes:
    numbers = [int.from_bytes(pad, "little") for pad in pads]
    known = [int.from_bytes(secret, "little"), *numbers[: threshold - 1]]
    later = range(threshold, len(pads) + 1)
    return b"".join(u((value_at(i, known) - numbers[i - 1]) % P, 32) for i in later)


class Fields:
    """The fields of a message, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        self.at += count
        assert self.at <= len(self.data)
        return self.data[self.at - count : self.at]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def sized(self) -> bytes:
        return self.take(self.number(8))

    def listed(self) -> list[bytes]:
        return [self.sized() for _ in range(self.number(2))]

    def bitmap(self, silos: int) -> list[int]:
        field = int.from_bytes(self.take((silos + 7) // 8), "little")
        return [silo for silo in range(silos) if field >> silo & 1]
