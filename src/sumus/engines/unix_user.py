"""The Unix user of the engine's process: made the owner of the kit, and tried out on what it must
not read.
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from sumus.errors import AccessError, DataError, EngineError, StorageError

__all__ = ["UnixUser"]

_TRY = """
import os, sys
for path in sys.argv[1:]:
    if os.access(path, os.R_OK) or (os.path.isdir(path) and os.access(path, os.X_OK)):
        print(path)
"""


@final
@dataclass(frozen=True)
class UnixUser:
    """A user of this machine that another process can be started as."""

    name: str
    uid: int
    gid: int

    @classmethod
    def named(cls, name: str) -> UnixUser:
        """A user by name, whom this process may start processes as."""
        try:
            known = pwd.getpwnam(name)
        except KeyError:
            raise DataError(
                f"--user must be a user of this machine, got {name!r}. Make one: useradd --system "
                f"--no-create-home {name}"
            ) from None
        if os.getuid() not in (0, known.pw_uid):
            raise EngineError(
                f"--user {name} needs root: only root starts processes of another user. Run this "
                "with sudo, or let systemd do it: --units DIR."
            )
        return cls(known.pw_name, known.pw_uid, known.pw_gid)

    @property
    def is_this_one(self) -> bool:
        """Whether it is the user of this process, so that nothing is separated."""
        return self.uid == os.getuid()

    @property
    def options(self) -> dict[str, Any]:
        """For `subprocess`: a process of this user and of none of our groups."""
        if self.is_this_one:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def readable(self, paths: Sequence[Path]) -> list[Path]:
        """Which of these files and folders this user can read or enter, found out by trying; raises if it
        cannot run this Python at all.
        """
        command = [sys.executable, "-I", "-c", _TRY, *map(str, paths)]
        try:
            tried = subprocess.run(
                command, capture_output=True, text=True, check=True, cwd="/", **self.options
            )
        except (OSError, subprocess.CalledProcessError):
            raise EngineError(
                f"user {self.name} cannot run {sys.executable}. Install Sumus where every user may "
                "read it, for example in /opt/sumus."
            ) from None
        return [path for path in paths if str(path) in tried.stdout.splitlines()]

    def require_blind(self, paths: Sequence[Path]) -> None:
        """Refuse to go on if this user can read or enter any of these."""
        for path in self.readable(paths):
            raise AccessError(
                f"{path} is readable for user {self.name}, who runs the engine. Run: chmod -R "
                f"go-rwx {path}"
            )

    def take_over(self, kit: Path) -> None:
        """Make the user the owner of a kit.

        Guarantee: nothing outside of the kit changes its owner, whatever links are in it.
        """
        for folder, _, names, descriptor in os.fwalk(kit, follow_symlinks=False):
            for name in names:
                about = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISREG(about.st_mode) and about.st_nlink > 1 and about.st_uid != self.uid:
                    raise StorageError(
                        f"{Path(folder) / name} has another name elsewhere (a hard link). Take the "
                        "kit as it came from the coordinator."
                    )
                os.chown(name, self.uid, self.gid, dir_fd=descriptor, follow_symlinks=False)
            os.chown(descriptor, self.uid, self.gid)
        if not self.readable([kit / "kit.toml"]):
            raise AccessError(
                f"user {self.name}, who runs the engine, cannot reach {kit}. Move the kit to a "
                f"folder that others may enter, for example /srv/sumus/{kit.name}."
            )
