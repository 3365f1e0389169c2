"""The messages around the secure sum, from a peer that sends whatever it likes."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings, strategies as st

from sumus.errors import PeerProtocolError
from sumus.parties.wire import Hello, Kind, Welcome, frame, readable, refusal, unframe

digests = st.binary(min_size=32, max_size=32)
versions = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
WIDE = settings(max_examples=300, deadline=None)


@given(digests, digests, versions)
@WIDE
def test_a_greeting_comes_back(plan_hash: bytes, session: bytes, version: str) -> None:
    hello = Hello(plan_hash=plan_hash, session=session, version=version)
    kind, body = unframe(hello.encode())
    assert (kind, Hello.decode(body)) == (Kind.HELLO, hello)


@given(st.binary(max_size=200), st.booleans())
@WIDE
def test_a_welcome_comes_back(advert: bytes, simulation: bool) -> None:
    welcome = Welcome(advert, simulation)
    kind, body = unframe(welcome.encode())
    assert (kind, Welcome.decode(body)) == (Kind.WELCOME, welcome)


@given(st.binary(max_size=120))
@example(b"")
@example(bytes([Kind.HELLO]))
@example(bytes([Kind.HELLO]) + bytes(64))
@example(bytes([Kind.HELLO]) + bytes(105))
@example(bytes([Kind.WELCOME]) + b"\x02")
@WIDE
def test_whatever_arrives_is_understood_or_refused(message: bytes) -> None:
    """What is understood means the bytes that came: nothing is left over and nothing made up."""
    try:
        kind, body = unframe(message)
    except PeerProtocolError:
        assert not message or message[0] not in range(1, 6)
        return
    assert frame(kind, body) == message
    try:
        hello = Hello.decode(body)
    except PeerProtocolError:
        assert not 65 <= len(body) <= 104
    else:
        assert hello.plan_hash + hello.session == body[:64]
        assert hello.version.isprintable()
    try:
        welcome = Welcome.decode(body)
    except PeerProtocolError:
        assert body[:1] not in (b"\0", b"\1")
    else:
        assert welcome.encode() == frame(Kind.WELCOME, body)


@pytest.mark.parametrize("kind", [0, 7, 255])
def test_a_kind_that_does_not_exist_is_refused(kind: int) -> None:
    with pytest.raises(PeerProtocolError, match="no known kind"):
        unframe(bytes([kind]) + b"body")


@given(st.binary(max_size=2_000))
@example("\x1b[2J \u202e \u2028 \x00 \x9b".encode())
@example(b"\xff" * 2_000)
@WIDE
def test_text_of_a_peer_cannot_move_a_cursor_or_fill_a_log(text: bytes) -> None:
    shown = readable(text)
    assert len(shown) <= 600
    assert shown.isprintable()


@given(st.text(max_size=1_500))
@example("a path that is no UTF-8: \udcff")
@example("é" * 400)
@WIDE
def test_any_reason_can_be_told(reason: str) -> None:
    kind, body = unframe(refusal(reason))
    assert kind is Kind.REFUSED
    assert len(body) <= 600
    assert reason.encode(errors="replace").startswith(body)
