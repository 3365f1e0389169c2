"""Vaults that are served in this process: the real socket, without a process of their own."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from pathlib import Path

from sumus.parties import Vault, listen


class VaultInThread:
    """A silo's folder behind a socket, until it is closed."""

    def __init__(
        self, folder: Path, *, uids: frozenset[int] | None = None, seconds: float = 60.0
    ) -> None:
        allowed = frozenset({os.getuid()}) if uids is None else uids
        # the path of a socket is short, which pytest's folders are not
        self._runtime = Path(tempfile.mkdtemp(prefix="sumus-"))
        self.path = self._runtime / "vault"
        self.vault = Vault(folder, uids=allowed, seconds=seconds)
        self._listener = listen(self.path, uids=allowed)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self.vault.serve(self._listener)

    def close(self) -> None:
        if self._listener.fileno() < 0:
            return
        self._listener.shutdown(2)
        self._listener.close()
        self._thread.join(timeout=10.0)
        self.vault.close()
        shutil.rmtree(self._runtime, ignore_errors=True)
