from __future__ import annotations

import hashlib
import time
import timeit
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given, settings, strategies as st

from oracles.secagg_federation import read
from sumus.errors import LocalProtocolError, PeerProtocolError
from sumus.randomness import RandomSource
from sumus.secagg import SERVER_NAME, Identity, Roster
from sumus.secagg.kem import CIPHERTEXT_BYTES, KEM_KEY_BYTES
from sumus.secagg.messages import (
    _KINDS,
    SERVER,
    CipherTexts,
    DroppedSet,
    Encapsulation,
    Encapsulations,
    Greeting,
    Invitation,
    KeyAdvert,
    KeyDirectory,
    MaskedInput,
    Message,
    Ready,
    Refusal,
    RevealedShares,
    RoundHeader,
    SetCertificate,
    SetSignature,
    Welcome,
    decode,
    decode_any,
)

digests = st.binary(min_size=32, max_size=32)
round_ids = digests.filter(lambda value: value != bytes(32))
salts = st.binary(min_size=8, max_size=8)
signatures = st.binary(min_size=64, max_size=64)
silo_numbers = st.integers(0, 2)
IDENTITIES = [
    Identity.generate(name, RandomSource.simulation(number))
    for number, name in enumerate(("a", "b", "c", SERVER_NAME))
]
ROSTER = Roster.of(IDENTITIES[-1], IDENTITIES[:-1])
fields = st.binary(max_size=200)


@st.composite
def headers(draw: Callable[..., object]) -> RoundHeader:
    silos = draw(st.integers(1, 70))
    return RoundHeader(
        session=draw(digests),
        round_id=draw(round_ids),
        keys_digest=draw(digests),
        sequence=draw(st.integers(0, 2**64 - 1)),
        payload_digest=draw(digests),
        silos=silos,
        participants=draw(st.frozensets(st.integers(0, silos - 1))),
    )


@st.composite
def messages(draw: Callable[..., object]) -> Message:
    header = draw(headers())
    some = draw(st.frozensets(st.integers(0, header.silos - 1)))
    kind = draw(st.sampled_from([cls.kind for cls in _KINDS.values()]))
    sender = SERVER if _KINDS[kind].from_server else draw(silo_numbers)
    envelope = {"sender": sender, "session": header.session}
    in_round = envelope | {"round_id": header.round_id}
    silos = sorted(draw(st.frozensets(st.integers(0, 500), max_size=5)))
    if kind == 1:
        kem_key = draw(st.sampled_from([b"", bytes(KEM_KEY_BYTES), b"\7" * KEM_KEY_BYTES]))
        return KeyAdvert(**envelope, agreement_key=draw(digests), kem_key=kem_key)
    if kind == 2:
        adverts = [
            KeyAdvert(sender=silo, session=header.session, agreement_key=draw(digests))
            for silo in silos
        ]
        return KeyDirectory(
            **envelope,
            keys_digest=draw(digests),
            adverts=tuple(advert.encode(IDENTITIES[0]) for advert in adverts),
        )
    if kind == 13:
        return Encapsulation(
            **envelope,
            keys_digest=draw(digests),
            recipient=draw(st.integers(0, 500)),
            ciphertext=bytes(CIPHERTEXT_BYTES),
        )
    if kind in (14, 15):
        whole = tuple(
            Encapsulation(
                sender=silo,
                session=header.session,
                keys_digest=draw(digests),
                recipient=0,
                ciphertext=bytes(CIPHERTEXT_BYTES),
            ).encode(IDENTITIES[0])
            for silo in silos
        )
        of_kind = Encapsulations if kind == 14 else CipherTexts
        return of_kind(**envelope, keys_digest=draw(digests), sealed=whole)
    if kind == 9:
        version = draw(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1))
        return Greeting(
            **envelope, nonce=draw(digests), plan_hash=draw(digests), version=version[:40]
        )
    if kind == 10:
        return Welcome(
            **envelope, nonce=draw(digests), simulation=draw(st.booleans()), advert=draw(fields)
        )
    if kind == 11:
        return Ready(**envelope, answers=draw(digests))
    if kind == 12:
        asked = draw(st.sampled_from([envelope, in_round]))
        return Refusal(**asked, answers=draw(digests), reason=draw(fields))
    if kind == 3:
        return Invitation(**in_round, header=header, payload=draw(fields))
    if kind == 4:
        return MaskedInput(
            **in_round,
            transcript=draw(digests),
            salt=draw(salts),
            corrections=draw(fields),
            tags=draw(fields),
            vector=draw(fields),
        )
    if kind == 5:
        return DroppedSet(**in_round, header=header, dropped=some)
    if kind == 6:
        return SetSignature(**in_round, transcript=draw(digests), signature=draw(signatures))
    if kind == 7:
        return SetCertificate(
            **in_round,
            header=header,
            dropped=some,
            salts={silo: draw(salts) for silo in header.participants - some},
            signatures={silo: draw(signatures) for silo in silos},
        )
    return RevealedShares(**in_round, transcript=draw(digests), shares=draw(fields))


def signer_of(message: Message) -> Identity:
    return IDENTITIES[-1 if message.sender == SERVER else message.sender]


def signed(message: Message) -> bytes:
    return message.encode(signer_of(message))


@pytest.mark.deep
@given(messages())
@settings(max_examples=300, deadline=None)
def test_every_message_survives_its_own_encoding(message: Message) -> None:
    assert decode(signed(message), type(message), roster=ROSTER) == message


@given(messages())
@settings(max_examples=100, deadline=None)
def test_the_signature_is_ed25519_of_what_the_documentation_says(message: Message) -> None:
    """Checked with the library alone: the digest is built here again, from the bytes."""
    raw = signed(message)
    body, signature = raw[:-64], raw[-64:]
    if isinstance(message, Invitation | MaskedInput):
        bulk = bytes(message.payload if isinstance(message, Invitation) else message.vector)
        assert body.endswith(bulk)
        body = body[: len(body) - len(bulk)] + hashlib.sha256(bulk).digest()
    key = Ed25519PublicKey.from_public_bytes(signer_of(message).public_key)
    key.verify(signature, b"sumus message 2" + hashlib.sha256(body).digest())


@pytest.mark.deep
@given(messages(), st.data())
@settings(max_examples=300, deadline=None)
def test_no_changed_byte_passes_for_the_senders(message: Message, data: st.DataObject) -> None:
    raw = bytearray(signed(message))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(PeerProtocolError):
        decode(bytes(raw), type(message), roster=ROSTER)


@given(messages(), st.data())
@settings(max_examples=100, deadline=None)
def test_nobody_signs_for_another(message: Message, data: st.DataObject) -> None:
    others = [identity for identity in IDENTITIES if identity is not signer_of(message)]
    forged = message.encode(data.draw(st.sampled_from(others)))
    with pytest.raises(PeerProtocolError, match="does not verify"):
        decode(forged, type(message), roster=ROSTER)


@given(headers(), fields, fields, fields)
def test_a_vector_written_in_place_gives_the_same_bytes(
    header: RoundHeader, corrections: bytes, tags: bytes, vector: bytes
) -> None:
    message = MaskedInput(
        sender=1,
        session=header.session,
        round_id=header.round_id,
        transcript=header.transcript,
        salt=bytes(8),
        corrections=corrections,
        tags=tags,
        vector=vector,
    )

    def write(room: memoryview) -> None:
        room[:] = vector

    empty = replace(message, vector=b"")
    assert empty.encode_with(write, IDENTITIES[1], size=len(vector)) == signed(message)


@pytest.mark.deep
@given(messages(), st.data())
@settings(max_examples=500, deadline=None)
def test_a_changed_byte_string_is_refused_or_canonical(
    message: Message, data: st.DataObject
) -> None:
    """Cut, extend, flip, splice: what still decodes encodes to exactly the bytes that came in."""
    raw = bytearray(signed(message))
    match data.draw(st.sampled_from(["cut", "extend", "flip", "splice"])):
        case "cut":
            raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
        case "extend":
            raw += data.draw(st.binary(min_size=1, max_size=40))
        case "flip":
            raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
        case "splice":
            place = data.draw(st.integers(0, len(raw)))
            raw[place:place] = data.draw(st.binary(min_size=1, max_size=20))
    try:
        again = decode_any(bytes(raw))
    except PeerProtocolError:
        return
    assert again.encode(_Repeats(raw[-64:])) == bytes(raw)


class _Repeats:
    """Signs whatever it is given with a signature that is there already."""

    def __init__(self, signature: bytes) -> None:
        self._signature = signature

    def sign(self, message: bytes) -> bytes:
        return bytes(self._signature)


@given(st.binary(max_size=300))
@settings(max_examples=500, deadline=None)
def test_arbitrary_bytes_behind_a_right_start_never_crash(noise: bytes) -> None:
    for start in (
        b"",
        b"SUMU",
        b"SUMU\x02",
        *(b"SUMU\x02" + bytes([kind]) for kind in range(1, 13)),
    ):
        try:
            again = decode_any(start + noise)
        except PeerProtocolError:
            continue
        whole = start + noise
        assert again.encode(_Repeats(whole[-64:])) == whole


def test_a_length_of_2_to_the_63_costs_nothing() -> None:
    envelope = b"SUMU\x02\x08" + bytes(2) + bytes(32) + b"\1" * 32
    with pytest.raises(PeerProtocolError, match="ends after"):
        decode_any(envelope + bytes(32) + (2**63).to_bytes(8, "little") + bytes(64))


def test_a_bitmap_costs_its_length_and_not_the_square() -> None:
    """Eight times the silos may cost three times as much as eight times the time (measured: 8
    times; a square: 64 times).
    """
    envelope = {"sender": SERVER, "session": bytes(32), "round_id": b"\1" * 32}
    least = []
    for silos in (8_000, 64_000):
        everyone = frozenset(range(silos))
        header = RoundHeader(
            session=bytes(32),
            round_id=b"\1" * 32,
            keys_digest=bytes(32),
            sequence=0,
            payload_digest=bytes(32),
            silos=silos,
            participants=everyone,
        )
        message = signed(DroppedSet(**envelope, header=header, dropped=everyone))
        assert read(message, DroppedSet).dropped == everyone
        least.append(
            min(
                timeit.repeat(
                    partial(decode_any, message), timer=time.process_time, repeat=7, number=1
                )
            )
        )
    assert least[1] < 24 * least[0]


@pytest.mark.parametrize("silos", [1, 7, 8, 9, 16, 17])
def test_a_bitmap_names_exactly_its_silos_and_nobody_off_the_roster(silos: int) -> None:
    """Against the definition: bit i of the little-endian number is silo i."""
    size = (silos + 7) // 8
    start = (
        b"SUMU\x02\x05"
        + SERVER.to_bytes(2, "little")
        + bytes(32)
        + b"\1" * 32
        + bytes(32 + 8 + 32)
        + silos.to_bytes(2, "little")
    )
    for bits in {0, 1, 1 << silos >> 1, (1 << silos) - 1, 0x5A5A5 % (1 << silos)}:
        fields = start + bits.to_bytes(size, "little") + bytes(size)
        message = read(fields + bytes(64), DroppedSet)
        assert message.header.participants == {silo for silo in range(silos) if bits >> silo & 1}
    for bit in range(silos, 8 * size):
        with pytest.raises(PeerProtocolError, match="not on the roster"):
            decode_any(start + bytes(size) + (1 << bit).to_bytes(size, "little") + bytes(64))


def test_other_versions_kinds_and_stray_rounds_are_refused() -> None:
    good = signed(KeyAdvert(sender=0, session=bytes(32), agreement_key=bytes(32)))
    decode_any(good)
    for change in ({4: 1}, {4: 3}, {5: 99}, {0: 0}, {44: 1}, {6: 255, 7: 255}):
        raw = bytearray(good)
        for place, value in change.items():
            raw[place] = value
        with pytest.raises(PeerProtocolError):
            decode_any(bytes(raw))


def test_the_transcript_covers_every_field_of_the_header() -> None:
    base = {
        "session": bytes(32),
        "round_id": b"\1" * 32,
        "keys_digest": bytes(32),
        "sequence": 7,
        "payload_digest": hashlib.sha256(b"").digest(),
        "silos": 5,
        "participants": frozenset({0, 1, 2}),
    }
    changes: list[dict[str, object]] = [
        {},
        {"session": b"\2" * 32},
        {"round_id": b"\2" * 32},
        {"keys_digest": b"\2" * 32},
        {"sequence": 8},
        {"payload_digest": bytes(32)},
        {"silos": 6},
        {"participants": frozenset({0, 1, 3})},
    ]
    assert len({RoundHeader(**(base | change)).transcript for change in changes}) == len(changes)


@pytest.mark.parametrize("bad", [b"", bytes(32), b"\1" * 31])
def test_a_round_id_is_32_bytes_and_not_zero(bad: bytes) -> None:
    with pytest.raises(LocalProtocolError, match="round id"):
        RoundHeader(
            session=bytes(32),
            round_id=bad,
            keys_digest=bytes(32),
            sequence=0,
            payload_digest=bytes(32),
            silos=1,
            participants=frozenset({0}),
        )
