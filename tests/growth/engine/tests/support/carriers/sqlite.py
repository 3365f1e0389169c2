"""SQLite's driver, with a thread in this process that relays for the silos."""

from __future__ import annotations

import threading

from sumus.engines.relay import Relay
from sumus.engines.sqlite.driver import SqliteDriver
from sumus.engines.sqlite.mailbox import Mailbox
from sumus.engines.sqlite.processes import answer_letters
from support.local_federation import LocalFederation
from support.vaults import VaultInThread


class DriverWithSilos(SqliteDriver):
    """The driver; closing it ends the silos too."""

    def __init__(self, mailbox: Mailbox, federation: LocalFederation) -> None:
        super().__init__(mailbox, federation.roster.names)
        self._closed = threading.Event()
        self._silos = threading.Thread(target=self._answer, args=(federation,), daemon=True)
        self._silos.start()

    def _answer(self, federation: LocalFederation) -> None:
        vaults = {name: VaultInThread(federation.folder(name)) for name in self._names}
        relays = {name: Relay(str(vault.path)) for name, vault in vaults.items()}
        while not self._closed.wait(0.01):
            for name, relay in relays.items():
                answer_letters(self._mailbox, name, relay)
        for vault in vaults.values():
            vault.close()

    def close(self) -> None:
        self._closed.set()
        self._silos.join()


def driver(federation: LocalFederation) -> SqliteDriver:
    """The driver to silos that are opened from their folders."""
    mailbox = Mailbox(federation.root / "mailbox.sqlite")
    mailbox.create()
    return DriverWithSilos(mailbox, federation)
