"""A server sends an invitation far larger than the plan's model, to exhaust a silo's memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sumus.books import Ledger
from sumus.parties.sums import pack_model, unpack_model
from support.local_federation import LocalFederation, plan, refused

WORDS = 4 << 20


@pytest.fixture
def across(tmp_path: Path) -> Iterator[LocalFederation]:
    federation = LocalFederation(tmp_path, plan())
    yield federation
    federation.close()


def oversized(across: LocalFederation) -> bytes:
    server = across.server()
    server.greet()
    session = server.summing._session
    assert session is not None
    payload = pack_model(0, np.zeros(WORDS))
    return session.invite(b"r" * 32, payload=payload, sequence=0)[1]


def peak(work) -> int:
    """Bytes that a call needs on top of what was there, at its worst."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_by_sending_a_model_of_a_thousand_times_the_size(across: LocalFederation) -> None:
    """The message itself and less than a fifth of it."""
    message = oversized(across)
    answers = []
    needed = peak(lambda: answers.append(across.ask(0, message)))
    assert "has 16777228 bytes, the plan's model has 2612" in refused(answers[0])
    assert len(message) + needed < 1.2 * len(message)
    assert not Ledger.of_dataset("digits", state=across.folder("silo-0")).entries()


def test_that_works_on_a_silo_that_reads_before_it_measures(across: LocalFederation) -> None:
    """The control: copying and widening such a payload takes more than twice its size again."""
    message = oversized(across)
    needed = peak(lambda: unpack_model(bytes(message)[-64 - 12 - 4 * WORDS : -64]))
    assert len(message) + needed > 3.0 * len(message)
