"""How the passphrase of a protected key reaches the vault's process: from the service manager's
credentials, or over the standard input from whoever started it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sumus.files import read_bytes
from sumus.secagg import is_protected

__all__ = ["CREDENTIAL", "credential_passphrase", "handed_passphrase", "needs_passphrase"]

CREDENTIAL = "sumus-passphrase"
"""Its name among systemd's credentials."""
_LONGEST = 4096


def credential_passphrase() -> bytes | None:
    """What the service manager has put beside this process, if anything."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    path = None if folder is None else Path(folder) / CREDENTIAL
    return read_bytes(path).rstrip(b"\r\n") if path is not None and path.is_file() else None


def needs_passphrase(folder: Path) -> bool:
    """Whether the key in a silo's folder is protected."""
    key = folder / "identity.key"
    return key.is_file() and is_protected(read_bytes(key).decode(errors="replace"))


def handed_passphrase(folder: Path) -> bytes | None:
    """The passphrase that this process was started with; None where the folder needs none or none
    came.
    """
    if not needs_passphrase(folder):
        return None
    return credential_passphrase() or sys.stdin.buffer.read(_LONGEST) or None
