"""Storage: a file is whole or untouched, on a full disk too; checkpoints notice every changed
byte.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sumus.errors import StorageError
from sumus.files import (
    FileLock,
    append_durably,
    decode_arrays,
    encode_arrays,
    read_bytes,
    replace_atomically,
)

ARRAYS = {
    "weights": np.arange(12, dtype=np.float64).reshape(3, 4),
    "momentum": np.zeros((0, 4), dtype=np.float32),
    "counter": np.array(7, dtype=np.int64),
}


def under_file_limit(limit: int, body: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process in which no file may grow beyond `limit` bytes: writes fail in the
    middle, as on a full disk.
    """
    source = textwrap.dedent(body)

    def restrict() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-B", "-c", source],  # a compiled module must not be cut either
        preexec_fn=restrict,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_replaced_file_is_new_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    replace_atomically(file, b"one")
    replace_atomically(file, b"two")
    assert file.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_full_disk_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.npz"
    file.write_bytes(b"the old version")
    done = under_file_limit(
        1000,
        f"""
        from pathlib import Path
        from sumus.errors import StorageError
        from sumus.files import replace_atomically
        try:
            replace_atomically(Path({str(file)!r}), b"x" * 5000)
        except StorageError as error:
            print(error)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert "checkpoint.npz cannot be written: no space left" in done.stdout
    assert "previous version is intact" in done.stdout
    assert file.read_bytes() == b"the old version"
    assert os.listdir(tmp_path) == ["checkpoint.npz"]


def test_where_there_was_no_file_none_is_called_intact(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot be written: .*Nothing was written\."):
        replace_atomically(tmp_path / "none" / "a.bin", b"x")


def test_a_full_disk_takes_back_a_half_appended_line(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    file.write_bytes(b"line one\n")
    done = under_file_limit(
        1000,
        f"""
        from pathlib import Path
        from sumus.errors import StorageError
        from sumus.files import append_durably
        try:
            append_durably(Path({str(file)!r}), b"y" * 5000 + b"\\n", at=9)
        except StorageError as error:
            print(error)
        """,
    )
    assert "journal.jsonl cannot be written: no space left" in done.stdout, done.stderr
    assert file.read_bytes() == b"line one\n"


def test_a_process_killed_before_the_rename_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.bin"
    replace_atomically(file, b"old")

    class Killed(BaseException):
        pass

    def dies(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(os, "replace", dies)
    with pytest.raises(Killed):
        replace_atomically(file, b"new")
    monkeypatch.undo()
    assert file.read_bytes() == b"old"
    replace_atomically(file, b"newer")  # what the killed process left is no obstacle
    assert os.listdir(tmp_path) == ["a.bin"]


def test_content_is_synchronised_before_it_takes_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: (calls.append("fsync"), fsync(descriptor))[1]
    )
    monkeypatch.setattr(
        os, "replace", lambda old, new: (calls.append("replace"), rename(old, new))[1]
    )
    replace_atomically(tmp_path / "a.bin", b"new")
    assert calls == ["fsync", "replace", "fsync"]  # file, name, directory


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data[:3])))
    replace_atomically(tmp_path / "a.bin", b"0123456789")
    append_durably(tmp_path / "a.bin", b"abcdefgh", at=10)
    assert (tmp_path / "a.bin").read_bytes() == b"0123456789abcdefgh"


def test_missing_folder_and_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"nowhere/a\.bin cannot be written"):
        replace_atomically(tmp_path / "nowhere" / "a.bin", b"")
    with pytest.raises(StorageError, match=r"b\.bin cannot be read"):
        read_bytes(tmp_path / "b.bin")


def _try_lock(path: Path, answer: multiprocessing.SimpleQueue[str]) -> None:
    try:
        FileLock(path).acquire(wait=False)
        answer.put("taken")
    except StorageError as error:
        answer.put(str(error))


def test_a_lock_keeps_a_second_process_out_and_dies_with_its_holder(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "run.lock")
    lock.acquire(wait=False)
    context = multiprocessing.get_context("fork")
    answer: multiprocessing.SimpleQueue[str] = context.SimpleQueue()
    for expected in ("in use by another process", "taken"):
        child = context.Process(target=_try_lock, args=(tmp_path / "run.lock", answer))
        child.start()
        child.join()
        assert expected in answer.get()
        lock.release()
    lock.acquire(wait=False)  # the second child took it and died
    lock.release()


def test_arrays_come_back_with_type_and_shape() -> None:
    arrays, meta = decode_arrays(encode_arrays(ARRAYS, {"round": 3, "name": "é"}), Path("c.npz"))
    assert meta == {"round": 3, "name": "é"}
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        np.testing.assert_array_equal(arrays[name], array)


def test_numpy_alone_reads_a_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "c.npz"
    file.write_bytes(encode_arrays(ARRAYS, {}))
    with np.load(file, allow_pickle=False) as loaded:
        np.testing.assert_array_equal(loaded["weights"], ARRAYS["weights"])


def test_the_same_values_give_the_same_bytes() -> None:
    assert encode_arrays(ARRAYS, {"a": 1}) == encode_arrays(dict(ARRAYS), {"a": 1})


def test_python_objects_are_refused_so_that_reading_never_runs_code() -> None:
    with pytest.raises(StorageError, match="holds Python objects"):
        encode_arrays({"bad": np.array([object()])}, {})


@pytest.mark.deep
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_changed_byte_of_a_checkpoint_is_noticed(data: st.DataObject) -> None:
    content = bytearray(encode_arrays(ARRAYS, {"round": 3}))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(StorageError, match=r"c\.npz"):
        decode_arrays(bytes(content), Path("c.npz"))


def test_every_truncated_checkpoint_is_noticed() -> None:
    content = encode_arrays(ARRAYS, {"round": 3})
    for length in range(len(content)):
        with pytest.raises(StorageError, match=r"c\.npz"):
            decode_arrays(content[:length], Path("c.npz"))
    with pytest.raises(StorageError, match=r"c\.npz"):
        decode_arrays(content + b"\0", Path("c.npz"))
