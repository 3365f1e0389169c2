"""A trail is one chain over its segments: what is changed in it is seen, and no crash breaks it."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from sumus.errors import StorageError
from sumus.events import (
    BackupRestored,
    PlanApproved,
    PlanWithdrawn,
    Refused,
    RoundCommitted,
    Seldom,
    SumOpened,
    Trail,
    read_head,
    read_trail,
    trail as writing,
)
from sumus.events.segments import audit_files

SMALL = 900
"""Bytes of a segment: three to five lines."""


def approved(number: int) -> PlanApproved:
    return PlanApproved(plan=f"{number:064x}")


def trail_in(folder: Path, *, memory: bool = True, bytes_: int = SMALL) -> Trail:
    folder.mkdir(exist_ok=True)
    remembered = folder.parent / f"{folder.name}.head.json" if memory else None
    return Trail(folder, party="silo", memory=remembered, segment_bytes=bytes_)


def filled(folder: Path, lines: int = 12) -> Trail:
    trail = trail_in(folder)
    for number in range(lines):
        trail.append(approved(number))
    return trail


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trail") / "vault"
    filled(folder)
    assert len(audit_files(folder)) > 3
    return folder


def test_events_are_read_back_in_order_with_what_is_known(tmp_path: Path) -> None:
    trail = filled(tmp_path / "vault")
    trail.append(PlanWithdrawn(plan=f"{3:064x}"))
    trail.notice(policy="ab" * 32, build="0.2.0+1")
    trail.notice(policy="ab" * 32, build="0.2.0+2")
    reading = read_trail(tmp_path / "vault")
    assert reading.passed
    assert reading.head == trail.head
    assert not reading.missing
    assert [body["plan"] for body in reading.of("plan.approved")] == [
        f"{number:064x}" for number in range(12)
    ]
    assert reading.counts["policy.changed"] == 1
    assert [(body.get("before"), body["after"]) for body in reading.of("build.changed")] == [
        (None, "0.2.0+1"),
        ("0.2.0+1", "0.2.0+2"),
    ]
    plans = {key for key in reading.known if key.startswith("plan ")}
    assert plans == {f"plan {number:064x}" for number in range(12) if number != 3}
    assert reading.known == trail.known == trail_in(tmp_path / "vault").known


def test_every_line_is_json_that_names_event_and_time(original: Path) -> None:
    for path in audit_files(original):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            assert entry["kind"] in ("segment", "plan.approved")
            assert entry["body"]["time"].endswith("+00:00")


def test_files_are_closed_to_others_and_segments_are_bounded(original: Path) -> None:
    longest = max(
        len(line)
        for path in audit_files(original)
        for line in path.read_bytes().splitlines(keepends=True)
    )
    for path in audit_files(original):
        assert path.stat().st_mode & 0o077 == 0
        assert path.stat().st_size <= SMALL + longest


def test_an_archived_segment_is_missed_by_name_and_verified_later(
    original: Path, tmp_path: Path
) -> None:
    folder, archive = tmp_path / "vault", tmp_path / "archive"
    shutil.copytree(original, folder)
    archive.mkdir()
    for path in audit_files(folder)[:2]:
        path.rename(archive / path.name)
    trail = trail_in(folder)
    head = trail.append(approved(99))
    alone = read_trail(folder)
    assert alone.passed
    assert alone.missing == 2
    assert alone.head == head
    whole = read_trail(folder, archive=archive)
    assert whole.passed
    assert not whole.missing
    assert len(whole.of("plan.approved")) == 13
    assert whole.known == alone.known


# -- whoever changes it is seen


def lines_of(folder: Path) -> list[tuple[Path, bytes]]:
    return [
        (path, line)
        for path in audit_files(folder)
        for line in path.read_bytes().splitlines(keepends=True)
    ]


def written(folder: Path, lines: list[tuple[Path, bytes]]) -> None:
    for path in audit_files(folder):
        path.write_bytes(b"".join(line for home, line in lines if home == path))


def edited(line: bytes, place: int, value: int) -> bytes:
    place %= len(line)
    return line[:place] + bytes([line[place] ^ (1 + value % 255)]) + line[place + 1 :]


@pytest.mark.deep
@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["edit", "drop", "double", "swap", "cut", "move"]),
    st.integers(0, 10_000),
    st.integers(0, 10_000),
)
def test_any_edit_drop_copy_swap_or_cut_is_noticed(
    original: Path, tmp_path_factory: pytest.TempPathFactory, how: str, one: int, other: int
) -> None:
    folder = tmp_path_factory.mktemp("changed") / "vault"
    shutil.copytree(original, folder)
    head = trail_in(original).head
    lines = lines_of(folder)
    place, second = one % len(lines), other % len(lines)
    if how == "edit":
        home, line = lines[place]
        lines[place] = home, edited(line, other, one)
    elif how == "drop":
        del lines[place]
    elif how == "double":
        lines.insert(second, lines[place])
    elif how == "swap":
        (home, line), (there, last) = lines[place], lines[second]
        lines[place], lines[second] = (home, last), (there, line)
    elif how == "move":
        home, line = lines.pop(place)
        lines.insert(second, (lines[min(second, len(lines) - 1)][0], line))
    else:
        lines = lines[:place]
    changed = lines != lines_of(folder)
    written(folder, lines)
    assert read_trail(folder, remembered=[head]).passed == (not changed)


def test_a_cut_tail_passes_where_nobody_remembers_the_head(original: Path, tmp_path: Path) -> None:
    """The control: the memory is what notices."""
    folder = tmp_path / "vault"
    shutil.copytree(original, folder)
    written(folder, lines_of(folder)[:-1])
    assert read_trail(folder).passed
    assert not read_trail(folder, remembered=[trail_in(original).head]).passed


@pytest.mark.parametrize("what", ["tail", "trail", "segment"])
def test_a_trail_that_lost_lines_says_so_for_ever(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "vault"
    before = filled(folder).head
    if what == "trail":
        shutil.rmtree(folder)
    elif what == "segment":
        audit_files(folder)[-1].unlink()
    else:
        written(folder, lines_of(folder)[:-1])
    trail = trail_in(folder)
    for number in range(20, 30):
        trail.append(approved(number))
    reading = read_trail(folder)
    assert [(gap["lines"], gap["last"]) for gap in reading.of("trail.gap")] == [
        (before.lines, before.last)
    ]
    assert len(reading.findings) == 1
    assert f"{before.lines} had been written" in reading.findings[0]
    assert read_head(tmp_path / "vault.head.json") == trail.head


def test_lines_that_are_cut_while_the_writer_runs_are_noticed_too(tmp_path: Path) -> None:
    folder = tmp_path / "vault"
    trail = filled(folder)
    written(folder, lines_of(folder)[:-1])
    trail.append(approved(50))
    assert len(read_trail(folder).of("trail.gap")) == 1


def test_a_gap_that_a_restored_backup_explains_is_no_contradiction(tmp_path: Path) -> None:
    folder = tmp_path / "vault"
    filled(folder, 5)
    shutil.copytree(folder, tmp_path / "backup")
    filled(folder, 3)
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "backup", folder)
    trail_in(folder).append(BackupRestored(digest="ab" * 32))
    reading = read_trail(folder)
    assert reading.passed
    assert reading.counts["trail.gap"] == reading.counts["backup.restored"] == 1


def test_a_damaged_line_stops_the_writer_and_names_the_way_on(tmp_path: Path) -> None:
    folder = tmp_path / "vault"
    filled(folder, 2)
    path = folder / "audit.jsonl"
    path.write_bytes(path.read_bytes().replace(b"plan.approved", b"plan.withdraw", 1))
    with pytest.raises(StorageError, match="Move the trail's files to a safe place"):
        trail_in(folder).append(approved(1))
    path.unlink()
    trail_in(folder).append(approved(1))
    assert read_trail(folder).counts == {"plan.approved": 1, "trail.gap": 1}


# -- whatever moment it dies at


class Killed(BaseException):
    """A power cut."""


def kill_at(moment: int, patch: pytest.MonkeyPatch) -> None:
    """Let the process die before its n-th write or rename, half of the write done."""
    count = itertools.count()

    def dying(real: Callable[..., Any], half: Callable[..., None]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(count) == moment:
                half(*arguments, **options)
                raise Killed
            return real(*arguments, **options)

        return call

    def nothing(*arguments: Any, **options: Any) -> None: ...

    def half_a_line(path: Path, content: bytes, *, at: int) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(descriptor, content[: len(content) // 2], at)
        os.close(descriptor)

    from sumus.files import chain

    patch.setattr(chain, "append_durably", dying(chain.append_durably, half_a_line))
    patch.setattr(writing.os, "replace", dying(os.replace, nothing))
    patch.setattr(writing, "replace_atomically", dying(writing.replace_atomically, nothing))


@pytest.mark.parametrize("moment", range(40))
def test_a_kill_at_any_write_leaves_a_chain_that_goes_on(tmp_path: Path, moment: int) -> None:
    folder = tmp_path / "vault"
    done = 0
    with pytest.MonkeyPatch.context() as patch:
        kill_at(moment, patch)
        try:
            trail = trail_in(folder)
            for number in range(12):
                trail.append(approved(number))
                done = number + 1
        except Killed:
            pass
    again = trail_in(folder)
    again.append(approved(99))
    reading = read_trail(folder)
    assert reading.passed, reading.findings
    plans = [int(body["plan"], 16) for body in reading.of("plan.approved")]
    # what append returned for is there; the one that was killed may be
    assert plans in ([*range(done), 99], [*range(done + 1), 99])


def test_a_full_disk_is_an_error_and_the_chain_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail = filled(tmp_path / "vault", 3)
    real = os.fsync
    with monkeypatch.context() as patch:

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match=r"(?i)no space left"):
            trail.append(approved(3))
    assert os.fsync is real
    trail.append(approved(4))
    assert [
        int(body["plan"], 16) for body in read_trail(tmp_path / "vault").of("plan.approved")
    ] == [
        *range(3),
        4,
    ]


def _write_many(folder: Path, first: int) -> None:
    trail = trail_in(folder)
    for number in range(first, first + 20):
        trail.append(approved(number))


def test_two_processes_write_one_chain(tmp_path: Path) -> None:
    folder = tmp_path / "vault"
    trail_in(folder).append(approved(0))
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(folder, first)) for first in (100, 200)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    reading = read_trail(folder)
    assert reading.passed
    assert len(reading.of("plan.approved")) == 41


# -- what belongs into it


def test_a_trail_takes_events_of_its_own_party_that_are_audited(tmp_path: Path) -> None:
    trail = trail_in(tmp_path / "vault")
    of_the_server = SumOpened(
        plan="ab" * 32, round=1, purpose="model", round_id="cd" * 32, evidence="ef" * 32
    )
    log_only = RoundCommitted(round=1, survivors=3, dropped=(), seconds=1.0)
    for foreign in (of_the_server, log_only):
        with pytest.raises(TypeError, match="does not belong into the trail of a silo"):
            trail.append(foreign)
    assert not audit_files(tmp_path / "vault")


def test_whoever_provokes_refusals_fills_no_trail(tmp_path: Path) -> None:
    clock = [0.0]
    trail = trail_in(tmp_path / "vault", bytes_=1 << 20)
    seldom = Seldom(trail, burst=5, seconds=600.0, clock=lambda: clock[0])

    def refused(unwritten: int) -> Refused:
        return Refused(cause="policy", entry=None, unwritten=unwritten)

    for _ in range(1000):
        seldom.append(refused)
    clock[0] = 1250.0
    for _ in range(10):
        seldom.append(refused)
    counted = [body["unwritten"] for body in read_trail(tmp_path / "vault").of("refusal")]
    assert counted == [0, 0, 0, 0, 0, 995, 0]


def test_a_refusal_that_cannot_be_written_is_counted_and_raises_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "vault"
    trail = filled(folder, 1)
    (folder / "audit.jsonl").write_bytes(b"not ours\n")
    seldom = Seldom(trail, burst=5)
    for _ in range(3):
        seldom.append(lambda count: Refused(cause="policy", entry=None, unwritten=count))
    assert (folder / "audit.jsonl").read_bytes() == b"not ours\n"
