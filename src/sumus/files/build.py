"""Which Sumus is installed, to the byte: its release and a digest of its files.

Two parties whose files differ may compute different things under one release number; they notice
when they greet each other.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

from sumus import __version__

__all__ = ["build_of", "files_digest"]


@cache
def build_of() -> str:
    """The release and 12 hexadecimal digits of the installed files' digest, as in
    "0.2.0+3f2a90b1c4de".
    """
    return f"{__version__}+{files_digest(Path(__file__).parents[1])[:12]}"


def files_digest(package: Path) -> str:
    """SHA-256 over names and contents of a package's files; what Python compiles of them is left
    out.
    """
    summary = hashlib.sha256()
    files = []
    for folder, folders, names in os.walk(package):
        folders[:] = [name for name in folders if name != "__pycache__"]
        files += [os.path.join(folder, name) for name in names]
    for path in sorted(files):
        name = os.path.relpath(path, package).replace(os.sep, "/").encode()
        with open(path, "rb") as file:
            content = file.read()
        summary.update(len(name).to_bytes(4, "little") + name)
        summary.update(len(content).to_bytes(8, "little") + content)
    return summary.hexdigest()
