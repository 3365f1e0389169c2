"""Loading through a door looks for no garbage, and leaves the collector as it was."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sumus.cli import main
from sumus.files import door, doors

ROOM = "a_room_of_a_test"


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package whose modules say whether garbage was collected while they were loaded."""
    folder = tmp_path / ROOM
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from sumus.files import door\n"
        "__getattr__, __dir__, __all__ = door("
        "__name__, outer='outer', inner='inner', broken='broken')\n"
    )
    (folder / "inner.py").write_text("import gc\ninner = gc.isenabled()\n")
    (folder / "outer.py").write_text(
        f"import gc\nfrom {ROOM} import inner\nouter = (inner, gc.isenabled())\n"
    )
    (folder / "broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(doors._Loading, "kept", False)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == ROOM]:
        del sys.modules[name]


def loaded(name: str) -> object:
    """What the door of the package gives."""
    return getattr(__import__(ROOM), name)


def test_nothing_is_collected_while_modules_are_loaded(room: Path) -> None:
    assert gc.isenabled()
    assert loaded("outer") == (False, False)  # also behind a load inside it
    assert gc.isenabled()


def test_garbage_is_collected_again_after_a_module_that_fails(room: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        loaded("broken")
    assert gc.isenabled()
    assert doors._Loading.depth == 0


def test_a_collector_that_was_off_stays_off(room: Path) -> None:
    gc.disable()
    try:
        assert loaded("inner") is False
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_last_of_several_threads_turns_it_on_again(room: Path) -> None:
    first, seen = threading.Event(), []

    def load_later() -> None:
        with doors._no_collection():
            first.set()
            second.wait(10.0)
            seen.append(gc.isenabled())

    second = threading.Event()
    thread = threading.Thread(target=load_later)
    thread.start()
    assert first.wait(10.0)
    loaded("inner")  # begins and ends while the other goes on
    second.set()
    thread.join()
    assert seen == [False]
    assert gc.isenabled()


def test_what_is_loaded_is_set_aside_in_a_process_of_its_own_alone(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asides: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: asides.append("aside"))
    main(["--version"])
    loaded("inner")
    assert asides == []  # of whoever calls a command from Python, nothing is set aside
    monkeypatch.setattr(sys, "argv", ["sumus", "--version"])
    main()
    loaded("outer")
    assert asides == ["aside"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    load, _, names = door(ROOM, inner="inner")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        load("nothing")
    assert names == ["inner"]
