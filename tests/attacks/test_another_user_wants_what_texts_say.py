"""Another user of the machine wants to know what a silo's texts say, or to choose what they become.

Vectors of texts are cached, and a vector tells much of its text. The cache stands in a folder that
only its owner can enter, and a folder that somebody else made is not used.
"""

from __future__ import annotations

import os
import sqlite3
import stat

import numpy as np
import pytest

from sumus.data import text_vectors as module
from sumus.data.text_vectors import text_vectors
from sumus.errors import DataError
from support.made_up_network import in_place_of_minilm

pytest.importorskip("torch")
NOTE = "short of breath since Monday"


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A folder of prepared data that several users have in common."""
    in_place_of_minilm(tmp_path, monkeypatch)
    tmp_path.chmod(0o777)
    before = os.umask(0)
    yield tmp_path
    os.umask(before)


def test_control_what_is_cached_tells_the_text(shared):
    text_vectors("minilm", [NOTE])
    path = next((shared / f"texts-{os.getuid()}").glob("*.sqlite"))
    with sqlite3.connect(path) as cache:
        ((held,),) = cache.execute("SELECT vector FROM vectors").fetchall()
    guesses = ["no fever", NOTE, "bad knee"]
    scores = module._sentences("minilm", module.WEIGHTS["minilm"].digest)(guesses)
    assert int(np.argmax(scores @ np.frombuffer(held, np.float32))) == 1


def test_nobody_else_can_enter_the_folder_or_read_the_file(shared):
    text_vectors("minilm", [NOTE])
    folder = shared / f"texts-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_can_enter_is_refused(shared, mode):
    folder = shared / f"texts-{os.getuid()}"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(DataError, match="must be a folder that only you can enter"):
        text_vectors("minilm", [NOTE])
    assert list(folder.iterdir()) == []


def test_a_link_in_its_place_is_refused(shared):
    (shared / "planted").mkdir(mode=0o700)
    (shared / f"texts-{os.getuid()}").symlink_to(shared / "planted")
    with pytest.raises(DataError, match="must be a folder that only you can enter"):
        text_vectors("minilm", [NOTE])
    assert list((shared / "planted").iterdir()) == []


def test_a_folder_that_somebody_else_made_is_refused(shared, monkeypatch):
    own = os.getuid()
    monkeypatch.setattr(module.os, "getuid", lambda: own + 1)
    (shared / f"texts-{own + 1}").mkdir(mode=0o700)
    with pytest.raises(DataError, match="must be a folder that only you can enter"):
        text_vectors("minilm", [NOTE])
