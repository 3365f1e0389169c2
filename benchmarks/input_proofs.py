"""What a proof that a silo's vector is short would cost a round: a working prototype.

After ACORN-detect (Bell et al. 2023, eprint 2022/1461), with the prime-order group of libsodium:

    commit    C = h^r · ∏ g_j^(x_j), a Pedersen commitment to the whole vector
    project   v = R·x for 128 rows of {−1, 0, 1} that are hashed from C; a long x has a long v
    range     every v_l in [−2^(b−1), 2^(b−1)): its bits are committed to, each proved to be 0 or 1
    link      a Schnorr proof that the x in C is the x of the projections, all rows at once
    sum       the server compares ∏ C_i with the sum that the secure aggregation gave it (Σ r_i goes
              through it too), so nobody can prove one vector and send another

Run: python benchmarks/input_proofs.py [--length 26010] [--silos 10]
"""

from __future__ import annotations

import argparse
import ctypes
import ctypes.util
import hashlib
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

ORDER = 2**252 + 27742317777372353535851937790883648493
ROWS = 128
T = TypeVar("T")
Vector = npt.NDArray[np.int64]


class Group:
    """The ristretto255 group: points are 32 bytes; operations are counted."""

    def __init__(self) -> None:
        name = ctypes.util.find_library("sodium")
        if name is None:
            sys.exit("libsodium is not on this machine. Run: apt install libsodium23")
        self._sodium: Any = ctypes.CDLL(name)
        if self._sodium.sodium_init() < 0:
            sys.exit("libsodium cannot be initialised.")
        self.powers = 0

    def hashed(self, label: bytes) -> bytes:
        point = ctypes.create_string_buffer(32)
        self._sodium.crypto_core_ristretto255_from_hash(point, hashlib.sha512(label).digest())
        return point.raw

    def power(self, point: bytes, scalar: int) -> bytes:
        self.powers += 1
        result = ctypes.create_string_buffer(32)
        exponent = (scalar % ORDER).to_bytes(32, "little")
        # zero times a point is reported as an error and is the neutral element
        self._sodium.crypto_scalarmult_ristretto255(result, exponent, point)
        return result.raw

    def add(self, left: bytes, right: bytes) -> bytes:
        result = ctypes.create_string_buffer(32)
        self._sodium.crypto_core_ristretto255_add(result, left, right)
        return result.raw

    def less(self, left: bytes, right: bytes) -> bytes:
        result = ctypes.create_string_buffer(32)
        self._sodium.crypto_core_ristretto255_sub(result, left, right)
        return result.raw

    def product(self, points: Iterable[bytes], scalars: Iterable[int]) -> bytes:
        total = bytes(32)
        for point, scalar in zip(points, scalars, strict=True):
            if scalar % ORDER:
                total = self.add(total, self.power(point, scalar))
        return total


GROUP = Group()
G, H = GROUP.hashed(b"value"), GROUP.hashed(b"blinding")


@lru_cache(maxsize=2)
def generators(length: int) -> tuple[bytes, ...]:
    """g_1 … g_d; nobody knows a relation between them."""
    return tuple(GROUP.hashed(b"coordinate %d" % place) for place in range(length))


def random_scalar() -> int:
    return secrets.randbelow(ORDER)


def challenge(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % ORDER


def committed(value: int, blinding: int) -> bytes:
    return GROUP.product((G, H), (value, blinding))


# -- a bit is 0 or 1: one of two Schnorr proofs is simulated (Cramer, Damgård, Schoenmakers 1994)


@dataclass(frozen=True)
class BitProof:
    commitment: bytes
    answers: tuple[tuple[int, int], tuple[int, int]]  # (challenge, response) for 0 and for 1


def prove_bit(bit: int, blinding: int) -> BitProof:
    point = committed(bit, blinding)
    nonce, other = random_scalar(), (random_scalar(), random_scalar())
    claims = (point, GROUP.less(point, G))
    made = [b"", b""]
    made[bit] = GROUP.power(H, nonce)
    made[1 - bit] = GROUP.less(GROUP.power(H, other[1]), GROUP.power(claims[1 - bit], other[0]))
    own = (challenge(point, *made) - other[0]) % ORDER
    mine = (own, (nonce + own * blinding) % ORDER)
    return BitProof(point, (mine, other) if bit == 0 else (other, mine))


def holds_bit(proof: BitProof) -> bool:
    claims = (proof.commitment, GROUP.less(proof.commitment, G))
    made = [
        GROUP.less(GROUP.power(H, response), GROUP.power(claim, asked))
        for claim, (asked, response) in zip(claims, proof.answers, strict=True)
    ]
    total = sum(asked for asked, _ in proof.answers) % ORDER
    return total == challenge(proof.commitment, *made)


# -- the whole proof


@dataclass(frozen=True)
class NormProof:
    commitment: bytes
    projected: tuple[tuple[BitProof, ...], ...]
    nonces: tuple[bytes, bytes]
    response: tuple[int, ...]
    blindings: tuple[int, int]

    @property
    def size(self) -> int:
        """Bytes that are sent."""
        bits = sum(map(len, self.projected))
        return 32 * (1 + 5 * bits + 2 + len(self.response) + 2)


def projection(commitment: bytes, length: int) -> npt.NDArray[np.int8]:
    """128 rows of −1, 0, 0, 1."""
    stream = hashlib.shake_256(b"rows" + commitment).digest(ROWS * length)
    drawn = np.frombuffer(stream, dtype=np.uint8).reshape(ROWS, length) & 3
    return np.asarray(np.array([-1, 0, 0, 1], dtype=np.int8)[drawn])


def combined(rows: npt.NDArray[np.int8], weights: Sequence[int]) -> list[int]:
    """Σ_l weights_l · rows_l, by limbs of 16 bits."""
    limbs = np.array([[weight >> 16 * k & 0xFFFF for k in range(16)] for weight in weights])
    columns = rows.T.astype(np.int64) @ limbs
    return [sum(int(part) << 16 * k for k, part in enumerate(row)) % ORDER for row in columns]


def row_points(proof: Sequence[Sequence[BitProof]], bits: int) -> list[bytes]:
    """Commitments to the projections, put together from those to their bits."""
    shift = GROUP.power(G, 1 << (bits - 1))
    return [
        GROUP.less(
            GROUP.product((bit.commitment for bit in row), (1 << place for place in range(bits))),
            shift,
        )
        for row in proof
    ]


def prove(vector: Vector, *, bits: int) -> tuple[NormProof, int]:
    """The proof and the blinding of its commitment."""
    points, blinding = generators(len(vector)), random_scalar()
    commitment = GROUP.product((H, *points), (blinding, *map(int, vector)))
    rows = projection(commitment, len(vector))
    values = rows.astype(np.int64) @ vector
    projected, row_blindings = [], []
    for value in values:
        shifted = int(value) + (1 << (bits - 1))
        if not 0 <= shifted < 1 << bits:
            raise ValueError("the vector is too long to be proved short")
        own = [random_scalar() for _ in range(bits)]
        projected.append(
            tuple(prove_bit(shifted >> place & 1, own[place]) for place in range(bits))
        )
        row_blindings.append(sum(part << place for place, part in enumerate(own)) % ORDER)
    transcript = commitment + b"".join(bit.commitment for row in projected for bit in row)
    weights = [challenge(transcript, b"row %d" % row) for row in range(ROWS)]
    form = combined(rows, weights)
    hidden = [random_scalar() for _ in vector]
    covers = random_scalar(), random_scalar()
    nonces = (
        GROUP.product((H, *points), (covers[0], *hidden)),
        committed(sum(a * u for a, u in zip(form, hidden, strict=True)), covers[1]),
    )
    asked = challenge(transcript, *nonces)
    response = tuple((u + asked * int(x)) % ORDER for u, x in zip(hidden, vector, strict=True))
    together = sum(w * r for w, r in zip(weights, row_blindings, strict=True))
    blindings = (
        (covers[0] + asked * blinding) % ORDER,
        (covers[1] + asked * together) % ORDER,
    )
    return NormProof(commitment, tuple(projected), nonces, response, blindings), blinding


def holds(proof: NormProof, *, length: int, bits: int) -> bool:
    """Whether the committed vector is proved to be short."""
    if len(proof.response) != length or any(len(row) != bits for row in proof.projected):
        return False
    if len(proof.projected) != ROWS or not all(
        holds_bit(bit) for row in proof.projected for bit in row
    ):
        return False
    rows = projection(proof.commitment, length)
    transcript = proof.commitment + b"".join(
        bit.commitment for row in proof.projected for bit in row
    )
    weights = [challenge(transcript, b"row %d" % row) for row in range(ROWS)]
    form, asked = combined(rows, weights), challenge(transcript, *proof.nonces)
    opened = GROUP.product((H, *generators(length)), (proof.blindings[0], *proof.response))
    if opened != GROUP.add(proof.nonces[0], GROUP.power(proof.commitment, asked)):
        return False
    linear = sum(a * z for a, z in zip(form, proof.response, strict=True))
    together = GROUP.product(row_points(proof.projected, bits), weights)
    return committed(linear, proof.blindings[1]) == GROUP.add(
        proof.nonces[1], GROUP.power(together, asked)
    )


def sum_fits(commitments: Sequence[bytes], total: Vector, blinding: int) -> bool:
    """Whether the sum of the secure aggregation is the sum of what was committed to."""
    whole = bytes(32)
    for commitment in commitments:
        whole = GROUP.add(whole, commitment)
    return whole == GROUP.product((H, *generators(len(total))), (blinding, *map(int, total)))


# -- measurements


def timed(call: Callable[[], T]) -> tuple[T, float, int]:
    """Result, processor seconds and powers."""
    powers, begin = GROUP.powers, time.process_time()
    result = call()
    return result, time.process_time() - begin, GROUP.powers - powers


def main() -> int:
    parser = argparse.ArgumentParser(description="What norm proofs of the silos' vectors cost.")
    parser.add_argument("--length", type=int, default=26_010)
    parser.add_argument("--silos", type=int, default=10)
    parser.add_argument("--bits", type=int, default=24, help="of a projection of the vector")
    options = parser.parse_args()
    length, bits = options.length, options.bits
    generator = np.random.default_rng(1)
    # nine standard deviations of a projection, ‖x‖/√2 each, are half of 2^bits
    std = 2.0 ** (bits - 1) / 9.0 * (2.0 / length) ** 0.5
    vector = np.rint(generator.normal(size=length) * std).astype(np.int64)
    generators(length)
    _, unit, _ = timed(lambda: [GROUP.power(H, random_scalar()) for _ in range(2000)])
    (proof, blinding), proving, powers = timed(lambda: prove(vector, bits=bits))
    good, verifying, checked = timed(lambda: holds(proof, length=length, bits=bits))
    fits, summing, _ = timed(lambda: sum_fits([proof.commitment], vector, blinding))
    moved = vector.copy()
    moved[0] += 1
    other = sum_fits([proof.commitment], moved, blinding)
    swapped = NormProof(
        proof.commitment,
        proof.projected,
        proof.nonces,
        (proof.response[0] + 1, *proof.response[1:]),
        proof.blindings,
    )
    refused = not holds(swapped, length=length, bits=bits)
    try:
        prove(vector * 100, bits=bits)
        short = False
    except ValueError:
        short = True
    if not (good and fits and not other and refused and short):
        print("the prototype is broken", file=sys.stderr)
        return 1
    words = 4 * length
    print(f"{length} words, {options.silos} silos, {bits} bits a projection, {ROWS} projections")
    print(f"one power                {1e6 * unit / 2000:8.1f} µs")
    print(f"silo: commit and prove   {proving:8.2f} s   {powers} powers")
    print(f"server: verify one       {verifying:8.2f} s   {checked} powers")
    print(f"server: compare the sum  {summing:8.2f} s")
    print(f"server: a whole round    {options.silos * verifying + summing:8.2f} s")
    print(f"a proof                  {proof.size / 1e6:8.2f} MB, {proof.size / words:.1f} vectors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
