from __future__ import annotations

import hashlib
import itertools
import math
import random
from fractions import Fraction

import pytest
from scipy.stats import hypergeom

from oracles.secagg_federation import terms_for
from sumus.errors import PlanError
from sumus.secagg import Terms
from sumus.secagg.graph import GRINDING_BITS, sparse_numbers, tail, topology_of

SESSION = hashlib.sha256(b"session").digest()


def sparse_terms(silos: int = 300, *, dropouts: int = 15, colluding: int = 15) -> Terms:
    return terms_for(silos, dropouts=dropouts, colluding=colluding, graph="sparse")


@pytest.mark.parametrize(
    ("population", "marked", "drawn", "more"), [(50, 7, 12, 2), (1000, 50, 53, 27), (10, 0, 5, 0)]
)
def test_the_tail_is_hypergeometric(population: int, marked: int, drawn: int, more: int) -> None:
    assert float(tail(population, marked, drawn, more)) == pytest.approx(
        hypergeom.sf(more, population, marked, drawn), rel=1e-9
    )


@pytest.mark.parametrize(
    ("silos", "dropouts", "colluding"), [(150, 7, 0), (150, 7, 7), (300, 15, 15), (1000, 50, 50)]
)
def test_sparse_numbers_meet_both_parameters_by_another_road(
    silos: int, dropouts: int, colluding: int
) -> None:
    """Security and correctness recomputed with SciPy from the numbers alone."""
    numbers = sparse_numbers(silos, dropouts=dropouts, colluding=colluding)
    assert numbers is not None
    corrupt_in_window = numbers.threshold - numbers.degree // 2 - 2
    bad_window = silos * hypergeom.sf(corrupt_in_window, silos, colluding, numbers.degree // 2)
    corrupt_on_committee = 2 * numbers.quorum - numbers.committee - 1
    bad_committee = hypergeom.sf(corrupt_on_committee, silos, colluding, numbers.committee)
    assert bad_window + bad_committee <= 2.0 ** -(40 + GRINDING_BITS)
    stuck = silos * hypergeom.sf(
        numbers.degree + 1 - numbers.threshold, silos, dropouts, numbers.degree + 1
    )
    unsigned = hypergeom.sf(numbers.committee - numbers.quorum, silos, dropouts, numbers.committee)
    assert stuck + unsigned <= 2.0**-30
    assert numbers.threshold <= numbers.degree + 1 <= silos


def test_the_degree_grows_like_a_logarithm() -> None:
    degrees = [sparse_numbers(n, dropouts=n // 20, colluding=0) for n in (200, 2_000, 20_000)]
    assert all(
        numbers is not None and numbers.degree <= 12 * math.log2(20_000) for numbers in degrees
    )
    assert degrees[2] is not None
    assert degrees[1] is not None
    assert degrees[2].degree < 1.2 * degrees[1].degree


def test_neighbourhood_is_mutual_and_regular() -> None:
    topology = topology_of(sparse_terms(), SESSION)
    for silo in range(300):
        circle = topology.circle(silo)
        assert len(circle) == topology.degree + 1
        assert all(silo in topology.circle(other) for other in circle)


def test_the_order_depends_on_roster_and_terms_only() -> None:
    assert topology_of(sparse_terms(), SESSION).ring == topology_of(sparse_terms(), SESSION).ring
    assert topology_of(sparse_terms(), SESSION).ring != topology_of(sparse_terms(), bytes(32)).ring


def test_complete_below_and_sparse_from_150_silos() -> None:
    assert topology_of(terms_for(149, dropouts=7), SESSION).ring is None
    assert topology_of(terms_for(150, dropouts=7), SESSION).ring is not None


def test_a_sparse_graph_that_cannot_be_secure_is_refused_or_replaced() -> None:
    with pytest.raises(PlanError, match="cannot be secure"):
        topology_of(terms_for(20, dropouts=5, colluding=6, graph="sparse"), SESSION)
    assert topology_of(terms_for(160, dropouts=79), SESSION).ring is None


def components(alive: set[int], circles: dict[int, frozenset[int]]) -> list[set[int]]:
    """Connected parts of the mask graph among honest survivors."""
    left, parts = set(alive), []
    while left:
        part, todo = set(), [left.pop()]
        while todo:
            silo = todo.pop()
            part.add(silo)
            more = circles[silo] & left
            left -= more
            todo += more
        parts.append(part)
    return parts


@pytest.mark.parametrize("seed", range(6))
def test_no_choice_of_dropped_silos_splits_the_sum(seed: int) -> None:
    """The theorem of graph.py on small rings with every window within its bound: if all survivors
    can be opened, they are tied together.
    """
    generator = random.Random(seed)
    silos, degree, corrupt_in_window = 18, 6, 1
    threshold = degree // 2 + corrupt_in_window + 2
    ring = list(range(silos))
    circles = {
        s: frozenset((s + o) % silos for o in range(-degree // 2, degree // 2 + 1)) for s in ring
    }
    corrupt = set()
    for silo in generator.sample(ring, silos):
        trial = corrupt | {silo}
        windows = ({(start + o) % silos for o in range(degree // 2)} for start in ring)
        if all(len(trial & window) <= corrupt_in_window for window in windows):
            corrupt = trial
    honest = set(ring) - corrupt
    seen_split = 0
    for _ in range(4000):
        dropped = set(generator.sample(sorted(honest), generator.randint(0, 9)))
        alive = honest - dropped
        opened = {s for s in alive if len(circles[s] & (alive | corrupt)) >= threshold}
        parts = components(alive, circles)
        seen_split += len(parts) > 1
        for part in parts:
            assert len(parts) == 1 or not part <= opened
    assert seen_split > 0, "the attack must be tried for the test to mean anything"


def test_probabilities_are_exact_fractions() -> None:
    total = sum(
        (tail(9, 4, 3, more - 1) - tail(9, 4, 3, more) for more in range(1, 4)), Fraction(0)
    )
    assert total == 1 - Fraction(
        len(list(itertools.combinations(range(5), 3))),
        len(list(itertools.combinations(range(9), 3))),
    )


def more_than(population: int, marked: int, drawn: int, limit: int) -> Fraction:
    """P[more than `limit` marked ones], by drawing one after the other: no binomial coefficient."""
    law = {0: Fraction(1)}
    for turn in range(drawn):
        after: dict[int, Fraction] = {}
        for hit, mass in law.items():
            chance = Fraction(max(marked - hit, 0), population - turn)
            for gained, share in ((0, 1 - chance), (1, chance)):
                if share:
                    after[hit + gained] = after.get(hit + gained, Fraction(0)) + mass * share
        law = after
    return sum((mass for hit, mass in law.items() if hit > limit), Fraction(0))


@pytest.mark.parametrize(
    ("silos", "dropouts", "colluding"),
    [
        (150, 0, 0),
        (150, 7, 0),
        (150, 7, 1),
        (150, 7, 7),
        (151, 10, 0),
        (200, 0, 0),
        (200, 10, 2),
        (200, 20, 10),
        (250, 12, 0),
        (300, 0, 3),
        (300, 15, 0),
        (300, 15, 15),
        (400, 20, 0),
        (500, 25, 5),
    ],
)
def test_a_graph_that_is_left_to_sumus_holds_against_two_per_cent_and_a_committee_of_21(
    silos: int, dropouts: int, colluding: int
) -> None:
    topology = topology_of(terms_for(silos, dropouts=dropouts, colluding=colluding), SESSION)
    assert topology.ring is not None
    assert len(topology.committee) >= 21
    counted = max(colluding, math.ceil(silos * Fraction(2, 100)))
    half, size = topology.degree // 2, len(topology.committee)
    breach = silos * more_than(silos, counted, half, topology.threshold - half - 2)
    breach += more_than(silos, counted, size, 2 * topology.quorum - size - 1)
    assert breach <= Fraction(1, 1 << (40 + GRINDING_BITS))
    stuck = silos * more_than(
        silos, dropouts, topology.degree + 1, topology.degree + 1 - topology.threshold
    )
    stuck += more_than(silos, dropouts, size, size - topology.quorum)
    assert stuck <= Fraction(1, 1 << 30)


def test_without_the_floor_one_undeclared_colluder_signs_two_survivor_sets() -> None:
    """The control: what the declared numbers alone would have given."""
    numbers = sparse_numbers(150, dropouts=0, colluding=0)
    assert numbers is not None
    assert (numbers.degree, numbers.committee, numbers.quorum) == (2, 1, 1)
    floored = topology_of(terms_for(150, dropouts=0), SESSION)
    assert floored.degree >= 8
    assert 2 * floored.quorum > len(floored.committee) + 3  # 2 % of 150
    # whoever asks for the graph by name has chosen its numbers
    named = topology_of(terms_for(150, dropouts=0, graph="sparse"), SESSION)
    assert (named.degree, len(named.committee)) == (2, 1)
