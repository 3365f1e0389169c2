"""Which Sumus is installed, to the byte."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import sumus
from sumus.files import build_of, files_digest

PACKAGE = Path(sumus.__file__).parent


def test_a_build_is_the_release_and_a_digest_of_the_files() -> None:
    assert re.fullmatch(rf"{re.escape(sumus.__version__)}\+[0-9a-f]{{12}}", build_of())
    assert files_digest(PACKAGE).startswith(build_of().partition("+")[2])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(
        shutil.copytree(
            PACKAGE / "files", tmp_path / "files", ignore=shutil.ignore_patterns("__pycache__")
        )
    )


def test_where_the_files_are_and_what_python_made_of_them_does_not_matter(copy: Path) -> None:
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "build.cpython-311.pyc").write_bytes(b"compiled")
    assert files_digest(copy) == files_digest(PACKAGE / "files")


@pytest.mark.parametrize("change", ["a byte", "a new file", "a lost file", "a renamed file"])
def test_any_change_is_noticed(copy: Path, change: str) -> None:
    before, file = files_digest(copy), copy / "chain.py"
    if change == "a byte":
        file.write_bytes(file.read_bytes().replace(b"SHA", b"SHB", 1) + b" ")
    elif change == "a new file":
        (copy / "new.py").touch()
    elif change == "a lost file":
        file.unlink()
    else:
        file.rename(copy / "chains.py")
    assert files_digest(copy) != before
