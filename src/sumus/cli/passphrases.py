"""Where a passphrase comes from: a file, the service manager's credentials, or a question at the
terminal. Never an argument or a variable, which other processes could read.
"""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sumus.errors import DataError, StorageError
from sumus.files import read_bytes

if TYPE_CHECKING:
    from sumus.secagg import Identity

__all__ = ["PassphraseFile", "asked_passphrase", "new_passphrase", "opened_identity"]

_SHORTEST = 8

PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        help="File with the passphrase of a protected key (or /dev/fd/N). Omitted: systemd's "
        "credential sumus-passphrase, or a question.",
    ),
]


def opened_identity(text: str, file: Path | None) -> tuple[Identity, bytes | None]:
    """An identity, and the passphrase if it took one."""
    from sumus.secagg import Identity, is_protected, open_identity

    if not is_protected(text):
        return Identity.parse(text), None
    passphrase = asked_passphrase(file, "Passphrase of the key")
    return open_identity(text, passphrase), passphrase


def asked_passphrase(file: Path | None, question: str) -> bytes:
    """A passphrase that exists already."""
    from sumus.parties import credential_passphrase

    given = _from_file(file) if file is not None else credential_passphrase()
    return given if given is not None else _prompted(question, confirm=False)


def new_passphrase(file: Path | None) -> bytes:
    """A passphrase for a key; asked for twice."""
    given = _from_file(file) if file is not None else _prompted("New passphrase", confirm=True)
    if len(given.decode(errors="replace")) < _SHORTEST:
        raise DataError(f"a passphrase must have at least {_SHORTEST} characters. Choose another.")
    return given


def _prompted(question: str, *, confirm: bool) -> bytes:
    if not sys.stdin.isatty():
        raise DataError(
            "the key is protected by a passphrase, and there is no terminal to ask at. Give "
            "--passphrase-file."
        )
    answer: str = typer.prompt(question, hide_input=True, confirmation_prompt=confirm, err=True)
    return answer.encode()


def _from_file(path: Path) -> bytes:
    content = read_bytes(path)
    about = path.stat()
    if stat.S_ISREG(about.st_mode) and about.st_mode & 0o077:
        raise StorageError(f"{path} is readable for others. Run: chmod 600 {path}")
    passphrase = content.removesuffix(b"\n").removesuffix(b"\r")
    if not passphrase:
        raise DataError(f"{path} is empty. Write the passphrase into it.")
    return passphrase
