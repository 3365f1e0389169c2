"""SQLite's driver, with a thread in this process that answers for the silos."""

from __future__ import annotations

import threading

from sumus.engines.sqlite.driver import SqliteDriver
from sumus.engines.sqlite.mailbox import Mailbox
from sumus.engines.sqlite.processes import answer_letters
from sumus.parties import open_party
from support.local_federation import LocalFederation


class DriverWithSilos(SqliteDriver):
    """The driver; closing it ends the silos too."""

    def __init__(self, mailbox: Mailbox, federation: LocalFederation) -> None:
        super().__init__(mailbox, federation.roster.names)
        self._closed = threading.Event()
        self._silos = threading.Thread(target=self._answer, args=(federation,), daemon=True)
        self._silos.start()

    def _answer(self, federation: LocalFederation) -> None:
        parties = {name: open_party(federation.folder(name)) for name in self._names}
        while not self._closed.wait(0.01):
            for name, party in parties.items():
                answer_letters(self._mailbox, name, party)
        for party in parties.values():
            party.close()

    def close(self) -> None:
        self._closed.set()
        self._silos.join()


def driver(federation: LocalFederation) -> SqliteDriver:
    """The driver to silos that are opened from their folders."""
    mailbox = Mailbox(federation.root / "mailbox.sqlite")
    mailbox.create()
    return DriverWithSilos(mailbox, federation)
