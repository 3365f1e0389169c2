"""One SQLite file through which the parties exchange bytes; every function is one transaction."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, final

__all__ = ["Mailbox"]

_TABLES = """
CREATE TABLE IF NOT EXISTS letters (id INTEGER PRIMARY KEY AUTOINCREMENT, silo TEXT, body BLOB, answer BLOB);
CREATE TABLE IF NOT EXISTS silos (name TEXT PRIMARY KEY, heard REAL);
CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, request TEXT, state TEXT, ended INTEGER);
"""
_BUSY_SECONDS = 30.0


@final
class Mailbox:
    """The file, opened anew for every transaction, so that no process holds it when it dies."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self) -> None:
        """Make it, for this user alone; what is in it stays."""
        self.path.touch(mode=0o600)
        with closing(sqlite3.connect(self.path, timeout=_BUSY_SECONDS)) as connection:
            connection.executescript(_TABLES)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=_BUSY_SECONDS)) as connection, connection:
            yield connection

    def send(self, messages: Mapping[str, bytes]) -> dict[int, str]:
        """Leave each silo its message; returns letter → silo."""
        with self._transaction() as connection:
            return {
                int(
                    connection.execute(
                        "INSERT INTO letters (silo, body) VALUES (?, ?)", (silo, body)
                    ).lastrowid
                    or 0
                ): silo
                for silo, body in messages.items()
            }

    def answers(self, letters: Mapping[int, str]) -> dict[int, bytes]:
        """The answers to these letters that are there."""
        with self._transaction() as connection:
            rows = connection.execute("SELECT id, answer FROM letters WHERE answer IS NOT NULL")
            return {number: bytes(answer) for number, answer in rows if number in letters}

    def discard(self, letters: Mapping[int, str]) -> None:
        """Take letters away, with what answers they have; a later answer goes nowhere."""
        with self._transaction() as connection:
            connection.executemany("DELETE FROM letters WHERE id = ?", [(key,) for key in letters])

    def waiting(self, silo: str) -> list[tuple[int, bytes]]:
        """A silo's letters without an answer; also says that the silo is there."""
        with self._transaction() as connection:
            connection.execute("REPLACE INTO silos VALUES (?, ?)", (silo, time.time()))
            rows = connection.execute(
                "SELECT id, body FROM letters WHERE silo = ? AND answer IS NULL", (silo,)
            )
            return [(number, bytes(body)) for number, body in rows]

    def answer(self, letter: int, body: bytes) -> None:
        """Answer a letter, if it is still there."""
        with self._transaction() as connection:
            connection.execute("UPDATE letters SET answer = ? WHERE id = ?", (body, letter))

    def heard(self) -> dict[str, float]:
        """When each silo was last there, in seconds since 1970."""
        with self._transaction() as connection:
            return dict(connection.execute("SELECT name, heard FROM silos").fetchall())

    def submit(self, request: Mapping[str, Any]) -> int:
        """A new job."""
        with self._transaction() as connection:
            text = json.dumps(request)
            row = connection.execute("INSERT INTO jobs (request, ended) VALUES (?, 0)", (text,))
            return int(row.lastrowid or 0)

    def next_job(self) -> tuple[int, dict[str, Any]] | None:
        """The oldest job that has not begun."""
        with self._transaction() as connection:
            row = connection.execute(
                "SELECT id, request FROM jobs WHERE state IS NULL AND NOT ended ORDER BY id"
            ).fetchone()
            return None if row is None else (row[0], json.loads(row[1]))

    def tell(self, job: int, state: Mapping[str, Any], *, ended: bool) -> None:
        """How far a job is."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE jobs SET state = ?, ended = ? WHERE id = ?", (json.dumps(state), ended, job)
            )

    def abandon(self) -> None:
        """End the jobs and letters of a server that is no more."""
        with self._transaction() as connection:
            connection.execute("UPDATE jobs SET ended = 1 WHERE state IS NOT NULL")
            connection.execute("DELETE FROM letters")

    def jobs(self) -> list[tuple[int, dict[str, Any] | None, bool]]:
        """Number, state and end of every job, the latest first."""
        with self._transaction() as connection:
            rows = connection.execute("SELECT id, state, ended FROM jobs ORDER BY id DESC")
            return [(row[0], json.loads(row[1]) if row[1] else None, bool(row[2])) for row in rows]
