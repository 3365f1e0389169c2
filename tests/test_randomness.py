"""The one door for random bits: what it promises about keys, children and where they came from."""

from __future__ import annotations

import pytest

from sumus.randomness import RandomSource


def test_sources_of_the_operating_system_are_independent_and_secret() -> None:
    one, other = RandomSource(), RandomSource()
    assert one.bytes(32) != other.bytes(32)
    assert one.secure
    assert repr(one) == "RandomSource(secure=True)"


def test_a_key_gives_its_stream_again() -> None:
    assert RandomSource.from_key(b"k" * 32).bytes(64) == RandomSource.from_key(b"k" * 32).bytes(64)
    with pytest.raises(ValueError, match="32 bytes, got 31"):
        RandomSource.from_key(b"k" * 31)


@pytest.mark.parametrize(
    "parent",
    [lambda: RandomSource.from_key(b"k" * 32), lambda: RandomSource.simulation(3, "child")],
)
def test_children_are_repeated_with_their_parent_and_no_more_secret_than_it(parent) -> None:  # type: ignore[no-untyped-def]
    source, again = parent(), parent()
    children = [source.child() for _ in range(3)]
    streams = [child.bytes(32) for child in children]
    assert streams == [again.child().bytes(32) for _ in range(3)]
    assert len({*streams, source.bytes(32)}) == 4
    assert all(child.secure == source.secure for child in children)


def test_a_public_seed_is_marked_as_one() -> None:
    assert not RandomSource.simulation(1).secure
    assert RandomSource.simulation(1, "a").bytes(16) != RandomSource.simulation(1, "b").bytes(16)
