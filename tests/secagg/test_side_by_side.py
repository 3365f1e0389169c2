"""Silos that mask on all cores answer as they do one after the other."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from sumus.errors import LocalProtocolError
from sumus.randomness import RandomSource
from sumus.secagg import InProcessFederation, Terms
from sumus.secagg.in_process import _LONG

SILOS, LENGTH, ROUND = 7, _LONG + 3, bytes([1]) * 32
VECTORS = [
    np.random.default_rng(silo).integers(0, 2**32, LENGTH, dtype=np.uint32) for silo in range(SILOS)
]


def federation() -> InProcessFederation:
    """Seven silos of which two may vanish, always with the same keys."""
    terms = Terms(plan_hash=bytes(32), silos=SILOS, length=LENGTH, dropouts=2)
    return InProcessFederation(terms, random=RandomSource.simulation(1))


def test_the_sum_is_exact_with_silos_that_vanish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    asked: list[tuple[int, threading.Thread]] = []

    def vector_for(silo: int, _: object) -> np.ndarray:
        asked.append((silo, threading.current_thread()))
        return VECTORS[silo]

    outcome = federation().run_round(ROUND, vector_for, drop={"masked": {2}, "unmask": {5}})
    expected = sum((VECTORS[silo] for silo in (1, 3, 4, 5, 6)), start=VECTORS[0])
    assert np.array_equal(outcome.total, expected)
    assert outcome.survivors == {0, 1, 3, 4, 5, 6}
    # vectors are made in the caller's thread, in order: what makes them need not be thread-safe
    assert asked == [(silo, threading.main_thread()) for silo in (0, 1, 3, 4, 5, 6)]


def test_messages_are_the_same_on_one_core_and_on_several(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[int, list[tuple[int, bytes]]] = {}
    for cores in (1, 3):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        made = federation()
        _, invitation = made.server.invite(ROUND, payload=b"")
        masked = made._masked(list(made.silos.items()), invitation, lambda silo, _: VECTORS[silo])
        sent[cores] = [(number, reply) for number, _, reply in masked]
    assert [number for number, _ in sent[3]] == list(range(SILOS))
    assert sent[1] == sent[3]


def test_a_silo_that_fails_ends_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    with pytest.raises(LocalProtocolError, match="must have shape"):
        federation().run_round(ROUND, lambda silo, _: VECTORS[silo][: 5 if silo == 4 else LENGTH])
