"""A silo's two processes, kept alive together: the vault, then the engine that relays to it.

    python -m sumus.engines.silo_processes KIT VAULT [USER]

`sumus join` turns into this program when it has checked everything, so that the process that stays
holds no key and no record; of a protected key it holds the passphrase, which it reads from its
standard input and hands to the vault. The engine's process gets the socket's path and nothing else of the
vault.

VAULT/vault.log     what the vault's process writes
VAULT/engine.log    what the engine's process writes
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sumus.engines.kit import Kit
from sumus.engines.processes import KeptProcess, NewLines, until_stopped
from sumus.engines.relay import VARIABLE
from sumus.engines.unix_user import UnixUser
from sumus.errors import SumusError
from sumus.files import FolderLock

__all__ = ["keep_silo", "relay_command", "require_free", "silo_command", "vault_command"]

SOCKET = "vault"
_NOT_FOR_THE_ENGINE = ("SUMUS_STATE", "SUMUS_DATA", "CREDENTIALS_DIRECTORY")
"""Variables that say where the silo keeps things."""
_LONGEST_FOLDER = 100


def silo_command(kit: Path, vault: Path, *, user: str | None = None) -> list[str]:
    """The command line that keeps both processes."""
    options = [] if user is None else [user]
    return _python("sumus.engines.silo_processes", str(kit.resolve()), str(vault), *options)


def vault_command(vault: Path, path: Path, *, user: str | None = None) -> list[str]:
    """The command line of the vault's process.

    Args:
        path: of its socket.
        user: who runs the engine.
    """
    options = [] if user is None else [user]
    return _python("sumus.parties.vault", str(vault), str(path), *options)


def relay_command(kit: Path) -> list[str]:
    """The command line of the engine's process."""
    return _python("sumus.engines.carrier", str(kit.resolve()))


def _python(module: str, *arguments: str) -> list[str]:
    # -P: no module is looked for in the working directory, which may be somebody else's
    return [sys.executable, "-P", "-u", "-m", module, *arguments]


def require_free(kit: Path, vault: Path) -> None:
    """Refuse a kit or a vault that another process holds: one `join` at a time."""
    for folder in (kit, vault):
        if folder.is_dir():
            with FolderLock(folder):
                pass


def keep_silo(
    kit: Path,
    vault: Path,
    *,
    user: UnixUser | None = None,
    passphrase: bytes | None = None,
    say: Callable[[str], None],
) -> int:
    """Run vault and engine until this process is asked to stop, and start again what dies.

    Args:
        user: who runs the engine; None: this process's own.
        passphrase: of the vault's key, handed to the vault whenever it is started.
        say: told what the silo's people should know.
    """
    engine, name = Kit.open(kit, "silo").engine, None if user is None else user.name
    logs = vault / "vault.log", vault / "engine.log"
    for log in logs:
        log.touch(mode=0o600)
    spoken, refusals = NewLines(logs[1]), NewLines(vault / "refusals.log")
    with until_stopped() as stopped, _runtime_folder(user) as runtime:
        path = runtime / SOCKET
        guarded = KeptProcess(vault_command(vault, path, user=name), log=logs[0], given=passphrase)
        relaying = KeptProcess(
            relay_command(kit),
            log=logs[1],
            environment={VARIABLE: str(path)} | ({} if user is None else {"HOME": str(kit)}),
            without=_NOT_FOR_THE_ENGINE,
            cwd=kit,
            **({} if user is None else user.options),
        )
        begun = False
        try:
            while not stopped():
                if guarded.tend():
                    say(f"the vault ended ({_last_line(logs[0])}) and is started again")
                begun = begun or _answers(path)
                if begun and relaying.tend():
                    say(f"the engine ended ({_last_line(logs[1])}) and is started again")
                for line in spoken:
                    if engine.CONNECTED in line:
                        say("connected to the server")
                for line in refusals:
                    say(f"refused: {_reason(line)}")
                time.sleep(0.2)
        finally:
            relaying.stop()
            guarded.stop()
    return 0


@contextlib.contextmanager
def _runtime_folder(user: UnixUser | None) -> Iterator[Path]:
    """A folder for the socket that others may pass but not list, gone afterwards; its path is short,
    because that of a socket must be.
    """
    own = os.environ.get("XDG_RUNTIME_DIR") if user is None or user.is_this_one else None
    places = [own, tempfile.gettempdir(), "/tmp"]  # noqa: S108
    place = next(
        place
        for place in places
        if place and len(place) < _LONGEST_FOLDER - 20 and os.access(place, os.W_OK)
    )
    folder = Path(tempfile.mkdtemp(prefix="sumus-", dir=place))
    try:
        folder.chmod(0o711)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answers(path: Path) -> bool:
    """Whether the vault listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 2000))
        lines = file.read().decode(errors="replace").splitlines()
    return lines[-1] if lines else "it wrote nothing"


def _handed(vault: Path) -> bytes | None:
    """The passphrase that `sumus join` asked for; this process keeps it for the vault's next
    start, and its memory from others.
    """
    from sumus.parties import handed_passphrase, needs_passphrase, seal_process

    if not needs_passphrase(vault):
        return None
    seal_process()
    return handed_passphrase(vault)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _reason(line: str) -> str:
    try:
        return str(json.loads(line)["reason"]).splitlines()[-1]
    except (ValueError, KeyError, IndexError):
        return line


if __name__ == "__main__":
    try:
        account = UnixUser.named(sys.argv[3]) if sys.argv[3:] else None
        places = Path(sys.argv[1]), Path(sys.argv[2])
        sys.exit(keep_silo(*places, user=account, passphrase=_handed(places[1]), say=_say))
    except SumusError as error:
        sys.exit(f"error: {error}")
