"""This Python for every user of the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534
_READABLE = """
set -e
place=$(mktemp -d)
mount --bind {prefix} $place
mount -t tmpfs -o mode=755 none {hidden}
(umask 022 && mkdir -p {prefix})
mount --bind $place {prefix}
exec "$@"
"""


def open_to(uid: int = NOBODY) -> list[str]:
    """What a command of root's begins with so that this Python runs for another user, whom the
    command becomes: nothing, or, where Python is installed below a closed folder, a view of the disk
    in which the way to it is open.
    """
    probe = [sys.executable, "-I", "-c", "import numpy"]
    options: dict[str, Any] = {"user": uid, "group": uid, "extra_groups": [], "cwd": "/"}
    try:
        subprocess.run(probe, check=True, capture_output=True, **options)
    except (OSError, subprocess.CalledProcessError):
        prefix = Path(sys.base_prefix)
        hidden = next(each for each in reversed(prefix.parents) if not each.stat().st_mode & 0o001)
        script = _READABLE.format(prefix=prefix, hidden=hidden)
        command = ["unshare", "--mount", "sh", "-c", script, "sh"]
        tried = subprocess.run(
            [*command, *become(uid), *probe], capture_output=True, text=True, check=False
        )
        if tried.returncode:
            pytest.skip(f"another user cannot run this Python ({tried.stderr.strip()[-200:]})")
        return command
    return []


def become(uid: int) -> list[str]:
    """What a command of root's begins with to run as another user."""
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
