"""Every aggregator behind one call: what it costs and what it reveals."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, final

import numpy as np
import numpy.typing as npt

from sumus.errors import PlanError
from sumus.files import closest
from sumus.paper.aggregators.gopa import gopa_sum
from sumus.paper.aggregators.trusted import trusted_sum
from sumus.paper.aggregators.turbo import turbo_groups, turbo_sum
from sumus.randomness import RandomSource
from sumus.secagg import (
    Drop,
    SecureSum,
    Terms,
    Traffic,
    Words,
    check_drop,
    secure_sum,
    terms_of,
)

__all__ = ["AGGREGATORS", "Aggregator", "AggregatorCost", "compare_aggregators", "sum_with"]

_Summing = Callable[..., tuple[Words, frozenset[int], Traffic]]


@final
@dataclass(frozen=True)
class Aggregator:
    """One way to add up, in words that hold for a given federation.

    Args:
        sums: Σ of (vectors, terms, drop, random); None: the protocol of `sumus.secagg`.
        exchanges: messages that follow one another in a round, and once before.
        reveals: what a server that lies learns of one silo's vector.
        tolerates: silos that may vanish.
    """

    name: str
    sums: _Summing | None
    exchanges: Callable[[Terms], str]
    reveals: Callable[[Terms], str]
    tolerates: Callable[[Terms], str]


def _smallest_group(terms: Terms) -> int:
    return min(map(len, turbo_groups(terms.silos)))


_AGGREGATORS = (
    Aggregator(
        "secagg",
        None,
        exchanges=lambda _: "3, and 1 once",
        reveals=lambda _: "nothing",
        tolerates=lambda terms: f"{terms.dropouts} of {terms.silos}",
    ),
    Aggregator(
        "gopa",
        gopa_sum,
        exchanges=lambda _: "1 or 2, and 1 once",
        reveals=lambda _: "the vector, but for the silo's own noise",
        tolerates=lambda _: "any, if all their neighbours help",
    ),
    Aggregator(
        "turbo",
        turbo_sum,
        exchanges=lambda terms: f"{len(turbo_groups(terms.silos)) + 1}, and 1 once",
        reveals=lambda terms: (
            f"nothing with fewer than {_smallest_group(terms) // 2 + 1} colluders in a group"
        ),
        tolerates=lambda terms: (
            f"{(_smallest_group(terms) - 1) // 2} in each group of {_smallest_group(terms)}"
        ),
    ),
    Aggregator(
        "trusted",
        trusted_sum,
        exchanges=lambda _: "1",
        reveals=lambda _: "the vector",
        tolerates=lambda _: "any",
    ),
)

AGGREGATORS: Mapping[str, Aggregator] = MappingProxyType(
    {aggregator.name: aggregator for aggregator in _AGGREGATORS}
)
"""By name; the first is the one that federations use."""


def sum_with(
    name: str,
    vectors: Sequence[npt.ArrayLike],
    *,
    modulus_bits: int = 32,
    drop: Drop | None = None,
    random: RandomSource | None = None,
) -> SecureSum:
    """`sumus.secagg.secure_sum` by any of the aggregators, all parties in this process.

    Guarantee: `total` is exactly the modular sum over `survivors`, or a `ProtocolError` is raised.
    """
    if name not in AGGREGATORS:
        raise PlanError(
            "aggregator", name, "must name an aggregator", closest(name, tuple(AGGREGATORS))
        )
    sums = AGGREGATORS[name].sums
    if sums is None:
        return secure_sum(vectors, modulus_bits=modulus_bits, drop=drop, random=random)
    terms = terms_of(vectors, modulus_bits=modulus_bits)
    check_drop(drop or {}, terms.silos)
    total, survivors, traffic = sums(
        vectors, terms, drop=drop or {}, random=random or RandomSource()
    )
    return SecureSum.of(total, survivors, traffic, silos=terms.silos)


@final
@dataclass(frozen=True, kw_only=True)
class AggregatorCost:
    """A row of the comparison.

    Args:
        milliseconds: wall-clock time of one sum, key set-up included, all parties in turn.
        vectors_up: the most that a silo sends, in packed vectors.
        vectors_down: the most that is sent to a silo, in packed vectors.
    """

    name: str
    silos: int
    length: int
    milliseconds: float
    vectors_up: float
    vectors_down: float
    exchanges: str
    reveals: str
    tolerates: str

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return asdict(self)


def compare_aggregators(
    *, silos: int, length: int, modulus_bits: int = 32, random: RandomSource | None = None
) -> list[AggregatorCost]:
    """Every aggregator on the same vectors of uniform words, run once each.

    Guarantee: all of them gave the same sum, or this raises.
    """
    source = random or RandomSource()
    mask = np.uint64((1 << modulus_bits) - 1)
    vectors = [source.words(length) & mask for _ in range(silos)]
    terms = terms_of(vectors, modulus_bits=modulus_bits)
    packed = -(-length * modulus_bits // 8)
    expected = np.add.reduce(vectors, dtype=np.uint64) & mask
    rows = []
    for aggregator in AGGREGATORS.values():
        # the first call loads and compiles; its time is nobody's cost
        sum_with(aggregator.name, [vector[:1] for vector in vectors], modulus_bits=modulus_bits)
        start = time.perf_counter()
        result = sum_with(aggregator.name, vectors, modulus_bits=modulus_bits, random=source)
        taken = time.perf_counter() - start
        if not np.array_equal(result.total.astype(np.uint64), expected):
            raise ArithmeticError(f"{aggregator.name} did not give the sum")
        rows.append(
            AggregatorCost(
                name=aggregator.name,
                silos=silos,
                length=length,
                milliseconds=1e3 * taken,
                vectors_up=max(result.bytes_up.values()) / packed,
                vectors_down=max(result.bytes_down.values()) / packed,
                exchanges=aggregator.exchanges(terms),
                reveals=aggregator.reveals(terms),
                tolerates=aggregator.tolerates(terms),
            )
        )
    return rows
