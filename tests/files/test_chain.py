"""Hash chain: every change is noticed, every interrupted append is survived."""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sumus.errors import StorageError
from sumus.files import Chain

ORIGIN = "00" * 32


def made_chain(path: Path, count: int = 4) -> Chain:
    chain = Chain(path=path, origin=ORIGIN)
    for number in range(count):
        chain = chain.appended(
            "round", {"number": number, "name": 'é "quoted" \n', "loss": math.inf}
        )
    return chain


def test_the_hash_is_sha256_of_previous_kind_and_body(tmp_path: Path) -> None:
    """Recomputed from the stored text alone, so that others can check a chain without Sumus."""
    made_chain(tmp_path / "c.jsonl")
    previous = ORIGIN
    for line in (tmp_path / "c.jsonl").read_text().splitlines():
        entry = json.loads(line)
        body = json.dumps(entry["body"], sort_keys=True, separators=(",", ":"))
        expected = hashlib.sha256(
            b"\0".join([b"sumus-chain-v1", previous.encode(), b"round", body.encode()])
        ).hexdigest()
        assert entry["hash"] == expected
        assert entry["previous"] == previous
        previous = expected


def test_a_chain_read_back_is_the_chain_written(tmp_path: Path) -> None:
    written = made_chain(tmp_path / "c.jsonl")
    read = Chain.read(tmp_path / "c.jsonl", origin=ORIGIN)
    assert read.links == written.links
    assert read.head == written.head
    assert read.links[0].body["loss"] == "inf"


def test_another_origin_is_refused(tmp_path: Path) -> None:
    made_chain(tmp_path / "c.jsonl")
    with pytest.raises(StorageError, match=r"c\.jsonl, line 1 does not continue"):
        Chain.read(tmp_path / "c.jsonl", origin="11" * 32)


@pytest.mark.deep
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_every_changed_byte_is_noticed(tmp_path: Path, data: st.DataObject) -> None:
    original, file = tmp_path / "original.jsonl", tmp_path / "c.jsonl"
    if not original.exists():
        made_chain(original)
    content = bytearray(original.read_bytes())
    place = data.draw(st.one_of(st.integers(0, len(content) - 1), st.just(len(content) - 1)))
    content[place] ^= data.draw(st.integers(1, 255))
    file.write_bytes(bytes(content))
    with pytest.raises(StorageError, match=r"c\.jsonl"):
        Chain.read(file, origin=ORIGIN)


@pytest.mark.parametrize("change", ["remove first", "remove middle", "swap", "repeat"])
def test_lines_cannot_be_removed_swapped_or_repeated(tmp_path: Path, change: str) -> None:
    file = tmp_path / "c.jsonl"
    made_chain(file)
    a, b, c, d = file.read_bytes().splitlines(keepends=True)
    changed = {
        "remove first": [b, c, d],
        "remove middle": [a, c, d],
        "swap": [a, c, b, d],
        "repeat": [a, b, b, c, d],
    }[change]
    file.write_bytes(b"".join(changed))
    with pytest.raises(StorageError):
        Chain.read(file, origin=ORIGIN)


def test_a_chain_cut_at_any_byte_keeps_every_complete_line_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a thousand real ones would take seconds
    file = tmp_path / "c.jsonl"
    whole = made_chain(file)
    content = file.read_bytes()
    for length in range(len(content)):
        file.write_bytes(content[:length])
        chain = Chain.read(file, origin=ORIGIN)
        # a line that lacks only its line feed counts
        assert len(chain.links) == (content[: length + 1].count(b"\n"))
        assert chain.links == whole.links[: len(chain.links)]
        longer = chain.appended("round", {"after": length})
        assert Chain.read(file, origin=ORIGIN).links == longer.links
        assert len(longer.links) == len(chain.links) + 1


def test_a_refreshed_chain_sees_what_others_appended(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    mine = made_chain(file)
    theirs = Chain.read(file, origin=ORIGIN).appended("round", {"theirs": 1})
    assert mine.refreshed().links == theirs.links
    file.write_bytes(file.read_bytes()[:-1])
    unfed = mine.refreshed()
    assert unfed.links == theirs.links
    last = Chain.read(file, origin=ORIGIN).appended("round", {"theirs": 2})
    assert unfed.refreshed().links == last.links


def test_a_chain_that_shrank_or_vanished_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    chain = made_chain(file)
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(StorageError, match="lost bytes"):
        chain.refreshed()
    file.unlink()
    with pytest.raises(StorageError, match="disappeared"):
        chain.refreshed()
