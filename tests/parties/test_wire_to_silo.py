"""A server sends a silo real messages with changed bytes, in any order: the silo answers or
refuses, and answers a round once.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from oracles.secagg_federation import read
from sumus.errors import PeerProtocolError
from sumus.parties import round_identifier
from sumus.parties.driver import Counting
from sumus.parties.sums import pack_model
from sumus.secagg import (
    CipherTexts,
    DroppedSet,
    Greeting,
    Invitation,
    KeyDirectory,
    Ready,
    Refusal,
    SetCertificate,
    Welcome,
    decode_any,
    verify,
)
from sumus.secagg.messages import MaskedInput, RevealedShares, SetSignature
from support.local_federation import LocalFederation, plan

VICTIM = 0


class Recorder:
    """A driver that keeps what the server sends to one silo."""

    def __init__(self, federation: LocalFederation) -> None:
        self._federation, self.sent = federation, []

    def exchange(self, messages: dict[int, bytes], *, deadline_seconds: float) -> dict[int, bytes]:
        self.sent += [messages[VICTIM]] if VICTIM in messages else []
        return dict(self._federation.driver.exchange(messages, deadline_seconds=deadline_seconds))

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def attacked(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[LocalFederation, list[bytes]]]:
    """A federation after its first round, everything the victim was sent in it, and an invitation
    to the second.
    """
    folder: Path = tmp_path_factory.mktemp("fuzz")
    federation = LocalFederation(folder, plan())
    recorder, server = Recorder(federation), federation.server()
    server.summing._driver = Counting(recorder)
    server.greet()
    run = federation.run_folder()
    next(iter(server.train(run, rounds=1)))
    assert server.summing._session is not None
    payload = pack_model(1, np.zeros(federation.agreement.plan.training.dimension or 0))
    identifier = round_identifier(federation.agreement.plan, 1, frozenset(range(4)))
    _, second = server.summing._session.invite(identifier, payload=payload, sequence=2)
    yield federation, [*recorder.sent, second]
    federation.close()


def test_the_recording_has_a_message_of_every_kind(
    attacked: tuple[LocalFederation, list[bytes]],
) -> None:
    kinds = [type(decode_any(message)) for message in attacked[1]]
    assert kinds == [
        Greeting,
        KeyDirectory,
        CipherTexts,
        Invitation,
        DroppedSet,
        SetCertificate,
        Invitation,
    ]


ANSWERED: dict[int, bytes] = {}
"""By round number, the one masked input that has left."""
SIGNED: dict[bytes, bytes] = {}
REVEALED: dict[bytes, bytes] = {}


@given(data=st.data())
@settings(max_examples=250, deadline=None)
def test_no_bytes_make_a_silo_fail_or_answer_a_round_twice(
    attacked: tuple[LocalFederation, list[bytes]], data: st.DataObject
) -> None:
    federation, messages = attacked
    raw = bytearray(data.draw(st.sampled_from(messages)))
    for _ in range(data.draw(st.integers(0, 3))):
        # most of the bytes are the model; the first 150 decide what a message means
        place = data.draw(st.integers(0, min(150, len(raw) - 1)) | st.integers(0, len(raw) - 1))
        raw[place] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.just(len(raw)) | st.integers(0, len(raw)))]
    if data.draw(st.booleans()):  # a server that signs what it changed
        with contextlib.suppress(PeerProtocolError):
            raw = bytearray(decode_any(bytes(raw)).encode(federation.identity))
    body = federation.parties[VICTIM].handle(bytes(raw))
    reply = decode_any(body)
    verify(reply, body, federation.roster)
    if isinstance(reply, Refusal):
        assert b"failed" not in reply.reason, "an error that nobody declared"
    elif isinstance(reply, MaskedInput):
        (number,) = struct.unpack_from("<Q", read(bytes(raw), Invitation).payload)
        assert ANSWERED.setdefault(number, body) == body
    elif not isinstance(reply, Welcome | Ready):
        assert isinstance(reply, SetSignature | RevealedShares)
        kept = SIGNED if isinstance(reply, SetSignature) else REVEALED
        assert kept.setdefault(reply.round_id, body) == body
