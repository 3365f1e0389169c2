"""Where data sets are looked for, and what a user is told when one is missing. Nothing is ever
downloaded silently.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sumus.errors import DataError

__all__ = ["cache_folder", "find", "missing", "search_path"]

_VARIABLE = "SUMUS_DATA"


def cache_folder() -> Path:
    """The folder that prepared data is written to: $SUMUS_DATA if set, otherwise ~/.cache/sumus."""
    folder = os.environ.get(_VARIABLE)
    return Path(folder).expanduser() if folder else Path.home() / ".cache" / "sumus"


def search_path(cache: Path | None = None) -> tuple[Path, ...]:
    """Folders that are searched, first match wins: `cache`, $SUMUS_DATA, ~/.cache/sumus, ./data."""
    return tuple(dict.fromkeys(_folders(cache)))


def _folders(cache: Path | None) -> Iterator[Path]:
    if cache is not None:
        yield cache
    yield cache_folder()
    yield Path.home() / ".cache" / "sumus"
    yield Path("data")


def find(relative: str, *, cache: Path | None = None, also: tuple[Path, ...] = ()) -> Path | None:
    """The first existing file or folder of that relative name, or None.

    Args:
        relative: name below one of the folders of the search path.
        cache: a folder to search before all others.
        also: complete paths to try last, such as where a system package puts the file.
    """
    candidates = [folder / relative for folder in search_path(cache)] + list(also)
    return next((path for path in candidates if path.exists()), None)


def missing(name: str, how: str) -> DataError:
    """The error for a data set that is not on this machine; `how` is the exact command or step that
    gets it.
    """
    return DataError(f"data set {name!r} is not on this machine. {how}")
