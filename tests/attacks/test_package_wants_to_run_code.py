"""Whoever made a package's pickle wants code to run on the machine that prepares a table.

The pickle is read in a process of its own that knows tables and nothing else; what it names beyond
is not called.
"""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path

import pytest

from sumus.data.fetched import frame_reader, isolation
from sumus.data.fetched.isolation import read_pickle
from sumus.errors import DataError
from support.packages import frame, recipe, wheel

TABLE = {"age": [1.0, 2.0]}


class _Poison:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.mkdir, (str(self.mark),))


@pytest.fixture
def made(tmp_path):
    return recipe(wheel(tmp_path / "index", b""), TABLE)


def test_control_a_plain_unpickler_runs_it(tmp_path):
    pickle.loads(pickle.dumps(_Poison(tmp_path / "ran")))  # noqa: S301 - that is the attack
    assert (tmp_path / "ran").exists()


def test_the_reader_refuses_it_and_nothing_ran(made, tmp_path):
    path = tmp_path / "frame.pickle"
    path.write_bytes(pickle.dumps([_Poison(tmp_path / "ran")]))
    with pytest.raises(DataError, match=r"was refused, it names posix\.mkdir, which is no part"):
        read_pickle(made, path, ("age",))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content", [b"", b"\x80\x05.", b"not a pickle", pickle.dumps({"age": [1.0]})], ids=repr
)
def test_what_is_no_table_is_refused_in_one_line(made, tmp_path, content):
    path = tmp_path / "frame.pickle"
    path.write_bytes(content)
    with pytest.raises(DataError, match="was refused, it ") as caught:
        read_pickle(made, path, ("age",))
    assert "\n" not in str(caught.value)


def test_this_process_unpickles_nothing(made, tmp_path, monkeypatch):
    path = tmp_path / "frame.pickle"
    path.write_bytes(frame(TABLE))
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, None)
    monkeypatch.setattr(frame_reader, "_TableUnpickler", None)
    assert read_pickle(made, path, ("age",)) == TABLE


def test_the_reader_sees_no_environment_and_no_site_packages(made, tmp_path, monkeypatch):
    path = tmp_path / "frame.pickle"
    path.write_bytes(frame(TABLE))
    seen = {}
    real = subprocess.run

    def watched(command, **options):
        seen.update(command=command, **options)
        return real(command, **options)

    monkeypatch.setattr(isolation.subprocess, "run", watched)
    monkeypatch.setenv("SECRET_OF_THE_USER", "42")
    read_pickle(made, path, ("age",))
    assert set(seen["env"]) == {"LC_ALL"}
    assert {"-I", "-S"} <= set(seen["command"])
    assert seen["cwd"] == tmp_path
