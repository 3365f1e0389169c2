"""Who masks with whom, from docs/protocol.md ("Byte by byte") alone, in plain Python integers."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from hashlib import scrypt
from math import comb
from typing import Any, NamedTuple

from oracles.plain_bytes import counter


class Graph(NamedTuple):
    threshold: int
    quorum: int
    committee: frozenset[int]
    circles: list[frozenset[int]]
    complete: bool


def more_than(most: int, drawn: int, marked: int, silos: int) -> Fraction:
    """P[more than `most` marked ones among `drawn` of all silos]."""
    hits = range(most + 1, min(drawn, marked) + 1)
    ways = sum(comb(marked, hit) * comb(silos - marked, drawn - hit) for hit in hits)
    return Fraction(ways, comb(silos, drawn))


def least(drawn: int, marked: int, silos: int, limit: Fraction) -> int:
    return next(m for m in range(drawn + 1) if more_than(m, drawn, marked, silos) <= limit)


def sparse_numbers(terms: Mapping[str, Any]) -> tuple[int, int, int, int] | None:
    """k, t, size of the committee, quorum; None: only the complete graph will do."""
    n, dropouts, auto = terms["silos"], terms["dropouts"], terms["graph"] == "auto"
    colluding = max(terms["colluding"], -(-n // 50)) if auto else terms["colluding"]
    insecure = Fraction(1, 2 ** (terms["security_bits"] + 33))
    stopped = Fraction(1, 2 ** (terms["correctness_bits"] + 1))
    signing = None
    for size in range(21 if auto else 1, n + 1):
        quorum = (size + least(size, colluding, n, insecure)) // 2 + 1
        if quorum <= size and more_than(size - quorum, size, dropouts, n) <= stopped:
            signing = size, quorum
            break
    for k in range(2, n - 1, 2):
        t = k // 2 + least(k // 2, colluding, n, insecure / n) + 2
        if t <= k + 1 and more_than(k + 1 - t, k + 1, dropouts, n) <= stopped / n:
            return None if signing is None else (k, t, *signing)
    return None


def ring_order(session: bytes, silos: int) -> list[int]:
    key = scrypt(session, salt=b"sumus ring order", n=2**15, r=8, p=1, maxmem=2**26, dklen=32)
    stream = counter(key, 8 * silos, first=0)
    return sorted(
        range(silos), key=lambda silo: int.from_bytes(stream[8 * silo : 8 * silo + 8], "little")
    )


def graph_of(terms: Mapping[str, Any], session: bytes) -> Graph:
    n = terms["silos"]
    wanted = terms["graph"] == "sparse" or (terms["graph"] == "auto" and n >= 150)
    numbers = sparse_numbers(terms) if wanted else None
    if numbers is None:
        everybody, t = frozenset(range(n)), n - terms["dropouts"]
        return Graph(t, t, everybody, [everybody] * n, complete=True)
    k, t, size, quorum = numbers
    ring = ring_order(session, n)
    circles: list[frozenset[int]] = [frozenset()] * n
    for place, silo in enumerate(ring):
        circles[silo] = frozenset(ring[(place + step) % n] for step in range(-k // 2, k // 2 + 1))
    return Graph(t, quorum, frozenset(ring[:size]), circles, complete=False)
