"""Text of a peer, from a peer that sends whatever it likes, and the sum that trusts everybody."""

from __future__ import annotations

from hypothesis import example, given, settings, strategies as st

from oracles.secagg_federation import read
from sumus.parties.wire import plain, plain_body, readable
from sumus.randomness import RandomSource
from sumus.secagg import Identity, Refusal, request_digest

WIDE = settings(max_examples=300, deadline=None)
SIGNER = Identity.generate("a", RandomSource.simulation(1))


@given(st.binary(max_size=120))
@example(b"")
@WIDE
def test_a_plain_message_is_told_from_one_of_the_protocol(body: bytes) -> None:
    assert plain_body(plain(body)) == body
    assert plain_body(b"SUMU" + body) is None


@given(st.binary(max_size=2_000))
@example("\x1b[2J \u202e \u2028 \x00 \x9b".encode())
@example(b"\xff" * 2_000)
@WIDE
def test_text_of_a_peer_cannot_move_a_cursor_or_fill_a_log(text: bytes) -> None:
    shown = readable(text)
    assert len(shown) <= 600
    assert shown.isprintable()


@given(st.binary(max_size=50), st.text(max_size=1_500))
@example(b"", "a path that is no UTF-8: \udcff")
@example(b"a request", "é" * 400)
@WIDE
def test_any_request_can_be_refused_for_any_reason(request: bytes, reason: str) -> None:
    refusal = Refusal.of(request, reason, sender=1, session=bytes(32), round_id=bytes(32))
    again = read(refusal.encode(SIGNER), Refusal)
    assert again.answers == request_digest(request)
    assert len(again.reason) <= 600
    assert reason.encode(errors="replace").startswith(again.reason)
