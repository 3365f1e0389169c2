from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from oracles.secagg_federation import modular_sum
from sumus.errors import LocalProtocolError, PlanError, ProtocolError, RoundAborted
from sumus.randomness import RandomSource
from sumus.secagg import secure_sum
from sumus.secagg.in_process import STAGES

EARLY = ("keys", "shares", "masked")


def random_vectors(silos: int, length: int, bits: int, seed: int) -> list[npt.NDArray[np.uint64]]:
    generator = np.random.default_rng(seed)
    return [
        generator.integers(0, 2**64, length, dtype=np.uint64) >> np.uint64(64 - bits)
        for _ in range(silos)
    ]


@pytest.mark.deep
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_sum_is_exact_for_all_moduli_and_tolerated_drop_outs(data: st.DataObject) -> None:
    silos = data.draw(st.integers(1, 16), label="silos")
    bits = data.draw(st.integers(1, 64), label="modulus_bits")
    colluding = data.draw(st.integers(0, max(0, silos // 3)), label="colluding")
    least = (silos + colluding) // 2 + 1
    threshold = data.draw(st.none() | st.integers(min(least, silos), silos), label="threshold")
    if least > silos:
        return
    tolerated = silos - (least if threshold is None else threshold)
    gone = data.draw(
        st.lists(st.integers(0, silos - 1), max_size=tolerated, unique=True), label="gone"
    )
    drop: dict[str, set[int]] = {}
    for silo in gone:
        drop.setdefault(data.draw(st.sampled_from(STAGES)), set()).add(silo)
    vectors = random_vectors(
        silos, data.draw(st.integers(1, 40)), bits, data.draw(st.integers(0, 2**32))
    )
    result = secure_sum(
        vectors, modulus_bits=bits, threshold=threshold, drop=drop, colluding=colluding
    )
    early = {silo for stage in EARLY for silo in drop.get(stage, ())}
    assert result.survivors == frozenset(range(silos)) - early
    assert result.total.tolist() == modular_sum(
        [vectors[silo] for silo in sorted(result.survivors)], bits
    )


def test_every_stage_alone_and_every_pair_of_stages_is_survived() -> None:
    vectors = random_vectors(5, 6, 32, seed=1)
    for first, second in itertools.product(STAGES, repeat=2):
        drop: dict[str, set[int]] = {}
        drop.setdefault(first, set()).add(1)
        drop.setdefault(second, set()).add(4)
        result = secure_sum(vectors, drop=drop)
        alive = [vectors[silo] for silo in sorted(result.survivors)]
        assert result.total.tolist() == modular_sum(alive, 32), (first, second)


@pytest.mark.parametrize("stage", STAGES)
def test_one_drop_out_too_many_aborts_cleanly(stage: str) -> None:
    vectors = random_vectors(5, 6, 32, seed=1)
    with pytest.raises(RoundAborted):
        secure_sum(vectors, drop={stage: {0, 2, 4}})


@pytest.mark.deep
@pytest.mark.parametrize(("silos", "dropouts", "graph"), [(20, 3, "sparse"), (160, 12, "auto")])
def test_the_sparse_graph_gives_the_same_sum(silos: int, dropouts: int, graph: str) -> None:
    vectors = random_vectors(silos, 5, 32, seed=silos)
    drop = {"keys": {3}, "masked": {silos - 1}, "consistency": {7}}
    result = secure_sum(vectors, threshold=silos - dropouts, drop=drop, graph=graph)
    alive = [vectors[silo] for silo in sorted(result.survivors)]
    assert len(alive) == silos - 2
    assert result.total.tolist() == modular_sum(alive, 32)


def test_masks_are_long_enough_for_long_vectors() -> None:
    """More words than one piece of keystream; neighbouring pieces must not repeat."""
    vectors = random_vectors(3, 100_003, 32, seed=5)
    result = secure_sum(vectors)
    assert np.array_equal(result.total, sum(vectors).astype(np.uint32))


def test_one_silo_and_one_word() -> None:
    result = secure_sum([np.array([-3])], modulus_bits=16)
    assert result.total.tolist() == [2**16 - 3]
    assert result.survivors == frozenset({0})


def test_traffic_is_within_a_tenth_of_the_packed_vector() -> None:
    vectors = [np.zeros(100_000, dtype=np.uint32)] * 10
    result = secure_sum(vectors, modulus_bits=20)
    packed = 100_000 * 20 / 8
    for silo in range(10):
        assert packed < result.bytes_up[silo] + result.bytes_down[silo] < 1.1 * packed


def test_a_seeded_run_repeats_and_an_unseeded_one_does_not_need_a_seed() -> None:
    vectors = random_vectors(4, 3, 32, seed=0)
    runs = [secure_sum(vectors, random=RandomSource.simulation(3)) for _ in range(2)]
    assert runs[0].bytes_up == runs[1].bytes_up
    assert runs[0].total.tolist() == runs[1].total.tolist() == secure_sum(vectors).total.tolist()


def test_calls_that_make_no_sense_say_so() -> None:
    vectors = random_vectors(4, 3, 32, seed=0)
    for wrong in (
        {"modulus_bits": 65},
        {"threshold": 2},
        {"threshold": 5},
        {"drop": {"later": {1}}},
        {"drop": {"masked": {4}}},
        {"colluding": 4},
        {"noise_contributors": 5},
    ):
        with pytest.raises(PlanError):
            secure_sum(vectors, **wrong)
    with pytest.raises(PlanError):
        secure_sum([])
    with pytest.raises(LocalProtocolError, match="shape"):
        secure_sum([np.zeros(3, dtype=int), np.zeros(4, dtype=int)])
    for no_vectors in ([1, 2, 3], [np.zeros((2, 2), dtype=int)] * 3):
        with pytest.raises(LocalProtocolError, match="shape"):
            secure_sum(no_vectors)
    with pytest.raises(LocalProtocolError, match="integers"):
        secure_sum([np.zeros(3), np.zeros(3)])


@pytest.mark.deep
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_whatever_the_drop_outs_the_answer_is_right_or_refused(data: st.DataObject) -> None:
    """Also beyond the tolerated number."""
    silos = data.draw(st.integers(1, 12))
    drop: dict[str, set[int]] = {}
    for silo in range(silos):
        if data.draw(st.booleans()):
            drop.setdefault(data.draw(st.sampled_from(STAGES)), set()).add(silo)
    vectors = random_vectors(silos, 4, 20, seed=silos)
    try:
        result = secure_sum(vectors, modulus_bits=20, drop=drop)
    except ProtocolError:
        return
    early = {silo for stage in EARLY for silo in drop.get(stage, ())}
    assert result.survivors == frozenset(range(silos)) - early
    assert result.total.tolist() == modular_sum(
        [vectors[silo] for silo in sorted(result.survivors)], 20
    )
