"""Files that survive a power cut: whole-file replacement, appends that are undone when they fail,
and locks.

A reader of a replaced file sees the old version or the new one, never a mixture; what a call has
written when it returns is on the disk. Every failure is a `StorageError` that names the file and
says what to do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import final

from sumus.errors import AccessError, StorageError

__all__ = [
    "FileLock",
    "FolderLock",
    "append_durably",
    "kind_of_failure",
    "name_of_file",
    "read_bytes",
    "replace_atomically",
]

_PACKED = (".gz", ".zst", ".bz2", ".xz", ".zip")

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_CLOSED = {errno.EACCES, errno.EPERM, errno.EROFS}


def write_failure(path: Path, error: OSError, *, kept: str) -> StorageError:
    """The error for a write that failed, saying what is still intact."""
    if error.errno in _FULL:
        return StorageError(
            f"{path} cannot be written: no space left for it ({error.strerror}). {kept} Free some "
            "space and try again."
        )
    return kind_of_failure(error)(
        f"{path} cannot be written: {error.strerror or error}. {kept} Check the path and its "
        "permissions."
    )


def kind_of_failure(error: OSError) -> type[StorageError]:
    """Whether a file is closed to this user, or something else is the matter."""
    return AccessError if error.errno in _CLOSED else StorageError


def read_bytes(path: Path, *, after: int = 0) -> bytes:
    """The whole file, but for its first `after` bytes."""
    try:
        with path.open("rb") as file:
            file.seek(after)
            return file.read()
    except OSError as error:
        raise kind_of_failure(error)(
            f"{path} cannot be read: {error.strerror or error}. Check the path and its permissions."
        ) from None


def replace_atomically(path: Path, content: bytes | memoryview, *, secret: bool = False) -> None:
    """Write a whole file so that it is either entirely old or entirely new, whatever happens.

    Guarantee: when the call returns the new content is on the disk; when it raises, the old content
        is intact. The content goes to a hidden neighbour that is synchronised before it takes the
        name, and the directory is synchronised after.

    Args:
        secret: nobody but the owner may read the file.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        # what is left of a killed process may have other permissions
        temporary.unlink(missing_ok=True)
        descriptor = os.open(
            temporary,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
            0o600 if secret else 0o666,
        )
        try:
            _write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        there = os.path.lexists(path)
        kept = "The previous version is intact." if there else "Nothing was written."
        raise write_failure(path, error, kept=kept) from None


def append_durably(path: Path, content: bytes, *, at: int) -> None:
    """Append bytes at a known end of file, cutting off whatever an earlier, interrupted append left
    beyond it.

    Guarantee: when the call returns the bytes are on the disk; when it raises, the first `at` bytes
        are intact and the rest is cut off again (or, if even that fails, is a partial line that
        readers recognise).

    Args:
        at: length of the file up to the end of its last complete line, bytes.
    """
    try:
        fresh = not path.exists()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.ftruncate(descriptor, at)
            os.lseek(descriptor, at, os.SEEK_SET)
            try:
                _write_all(descriptor, content)
                os.fsync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, at)
                    os.fsync(descriptor)
                raise
        finally:
            os.close(descriptor)
        if fresh:
            sync_directory(path.parent)
    except OSError as error:
        raise write_failure(path, error, kept="Its earlier lines are intact.") from None


def sync_directory(path: Path) -> None:
    """Put the names in a directory on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, *, fresh: bool = False) -> None:
    """Create a directory and its parents, durably; with `fresh` it must not exist yet
    (FileExistsError).
    """
    there = path.is_dir()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(exist_ok=not fresh)
        # what somebody else has made may lie in a folder that can be passed and not read
        with contextlib.suppress(*([PermissionError] if there else [])):
            sync_directory(path.parent)
    except FileExistsError:
        if fresh and path.parent.is_dir():
            raise
        taken = path if path.parent.is_dir() else path.parent
        raise StorageError(
            f"{taken} must be a directory, but a file has that name. Move it away, or choose "
            "another folder."
        ) from None
    except OSError as error:
        raise write_failure(path, error, kept="Nothing was created.") from None


def _write_all(descriptor: int, content: bytes | memoryview) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


# -- one writer at a time


@final
class FileLock:
    """An advisory lock held through an open file; the kernel lets go of it when the process dies,
    however it dies.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, *, wait: bool) -> None:
        """Take the lock; without `wait` a lock that somebody else holds is an error."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise write_failure(self.path, error, kept="Nothing was changed.") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            os.close(descriptor)
            raise StorageError(
                f"{self.path.parent} is in use by another process. Wait until it ends, or stop it."
            ) from None
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go of the lock; harmless if it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Hold the lock for the duration of a block, waiting for whoever holds it now."""
        self.acquire(wait=True)
        try:
            yield
        finally:
            self.release()


@final
class FolderLock:
    """A folder held by one process at a time, without a file in it; let go of when the block ends
    or the process dies.

    Args:
        kept: over the start of another program in this process.
    """

    def __init__(self, path: Path, *, kept: bool = False) -> None:
        self.path, self._kept = path, kept

    def __enter__(self) -> None:
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise kind_of_failure(error)(
                f"{self.path} cannot be opened: {error.strerror}. Check the path and its "
                "permissions."
            ) from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise StorageError(
                f"{self.path} is in use by another process. Wait until it ends, or stop it."
            ) from None
        os.set_inheritable(self._descriptor, self._kept)

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def name_of_file(path: str | Path) -> str:
    """What a file of records is called, whatever its format is and however it is packed: `visits`
    for `visits.csv.gz`.
    """
    name = Path(path)
    while name.suffix.lower() in _PACKED:
        name = name.with_suffix("")
    return name.stem
