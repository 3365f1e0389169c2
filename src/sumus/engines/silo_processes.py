"""A silo's two processes, kept alive together: the vault, then the engine that relays to it.

    python -m sumus.engines.silo_processes KIT VAULT [USER] [--watch-port=PORT]

`sumus join` turns into this program when it has checked everything, so that the process that stays
holds no key and no record; of a protected key it holds the passphrase, which it reads from its
standard input and hands to the vault. The engine's process gets the socket's path and nothing else of the
vault.

VAULT/join.log      what this process has to say
VAULT/vault.log     what the vault's process writes
VAULT/engine.log    what the engine's process writes
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sumus.engines.kit import Kit
from sumus.engines.processes import KeptProcess, NewLines, until_stopped
from sumus.engines.refusal_log import reason_of
from sumus.engines.relay import VARIABLE
from sumus.engines.unix_user import UnixUser
from sumus.errors import SumusError
from sumus.events import (
    LogChoice,
    Piped,
    ProcessRestarted,
    SiloConnected,
    configure,
    log_file,
    plain_text,
    tell,
)
from sumus.files import FolderLock
from sumus.service import Signs, exit_code_of

if TYPE_CHECKING:
    from sumus.watching import Board

__all__ = [
    "keep_silo",
    "relay_command",
    "relay_service_command",
    "require_free",
    "silo_command",
    "vault_command",
]

SOCKET = "vault"
_NOT_FOR_THE_ENGINE = ("SUMUS_STATE", "SUMUS_DATA", "CREDENTIALS_DIRECTORY")
"""Variables that say where the silo keeps things."""
_LONGEST_FOLDER = 100
_LONGEST_LINE = 2000
_WATCH = "--watch-port="
_NOTIFY, _WHEN = "SUMUS_NOTIFY", "SUMUS_ALERT"
"""Variables of `alerting`, for this process alone."""


def silo_command(
    kit: Path, vault: Path, *, user: str | None = None, watch_port: int | None = None
) -> list[str]:
    """The command line that keeps both processes.

    Args:
        user: who runs the engine; None: whoever runs the command.
        watch_port: of the live page for the silo's own people; None: none is served.
    """
    options = [] if user is None else [user]
    options += [] if watch_port is None else [f"{_WATCH}{watch_port}"]
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


def relay_service_command(kit: Path) -> list[str]:
    """The command line of the service that keeps the engine's process where the vault is a service
    of its own.
    """
    return _python("sumus.engines.relaying", str(kit.resolve()))


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
    tended: Callable[..., None] = lambda **processes: None,
) -> int:
    """Run vault and engine until this process is asked to stop, and start again what dies.

    Args:
        user: who runs the engine; None: this process's own.
        passphrase: of the vault's key, handed to the vault whenever it is started.
        say: told what the silo's people should know.
        tended: told several times a second that `vault` and `relay` are looked after.
    """
    engine, name = Kit.open(kit, "silo").engine, None if user is None else user.name
    files = {
        "vault": log_file(vault / "vault.log", party="silo", process="vault"),
        "engine": log_file(vault / "engine.log", party="relay", process="engine"),
    }
    guards, carries = Piped(files["vault"]), Piped(files["engine"])
    refusals, signs = NewLines(vault / "refusals.log"), Signs.of_environment()
    with until_stopped() as stopped, _runtime_folder(user) as runtime:
        path = runtime / SOCKET
        guarded = KeptProcess(vault_command(vault, path, user=name), log=guards, given=passphrase)
        relaying = KeptProcess(
            relay_command(kit),
            log=carries,
            environment={VARIABLE: str(path)} | ({} if user is None else {"HOME": str(kit)}),
            without=_NOT_FOR_THE_ENGINE,
            cwd=kit,
            **({} if user is None else user.options),
        )
        begun = False
        try:
            while not stopped():
                if guarded.tend():
                    tell(ProcessRestarted(child="vault"))
                    say(f"the vault ended ({guarded.why}) and is started again")
                begun = begun or _answers(path)
                for line in carries:
                    if engine.CONNECTED in line:
                        tell(SiloConnected())
                        say("connected to the server")
                if begun and relaying.tend():
                    tell(ProcessRestarted(child="engine"))
                    say(f"the engine ended ({relaying.why}) and is started again")
                for line in refusals:
                    say(f"refused: {_reason(line)}")
                tended(vault=guarded, relay=relaying)
                both = guarded.ready and relaying.ready
                signs.turned("vault and engine run" if both else "starting", ready=both)
                time.sleep(0.2)
        finally:
            signs.stopping()
            relaying.stop()
            guarded.stop()
            for file in files.values():
                file.close()
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


def _handed(vault: Path) -> bytes | None:
    """The passphrase that `sumus join` asked for; this process keeps it for the vault's next
    start, and its memory from others.
    """
    from sumus.parties import handed_passphrase, needs_passphrase
    from sumus.service import seal_process

    if not needs_passphrase(vault):
        return None
    seal_process()
    return handed_passphrase(vault)


@contextlib.contextmanager
def _watched(kit: Path, vault: Path, port: int | None) -> Iterator[Callable[..., None]]:
    """A live page for the silo's own people, where one is wanted, and a command that is run for
    alerts, where there is one; the page's address stays the same when the silo is started again on
    the same port.
    """
    command, when = os.environ.pop(_NOTIFY, ""), os.environ.pop(_WHEN, "")
    if port is None and not command:
        yield lambda **processes: None
        return
    from sumus.alerting import Hook, Lookout, Thresholds, command_of
    from sumus.engines.health import silo_health
    from sumus.engines.watched_silo import SiloWatch, silo_board

    opened = Kit.open(kit, "silo")
    board = silo_board(opened.party)
    hook = None if not command else Hook(command_of(command), party="silo", process="join")
    limits, health = Thresholds.of_environment(when), silo_health(opened, vault)
    page = contextlib.nullcontext() if port is None else _page(board, vault, port)
    with page, Lookout(board, told=hook, limits=limits, health=health):
        watch = SiloWatch(opened, vault, board)
        watch.start()
        yield watch.tended


@contextlib.contextmanager
def _page(board: Board, vault: Path, port: int) -> Iterator[None]:
    from sumus.watching import TOKEN_FILE, LivePage, kept_token

    kept = vault / TOKEN_FILE
    with LivePage(board, token=kept_token(kept), port=port) as page:
        _say(f"live    {page.told_address(kept, terminal=sys.stdout.isatty())}")
        yield


def _say(line: str) -> None:
    """Words of a server or an engine may be in it, which no terminal must act on."""
    sys.stdout.write(f"{plain_text(line, _LONGEST_LINE)}\n")
    sys.stdout.flush()


def _reason(line: str) -> str:
    """Why the silo refused, for whoever sits before it; a service's output is read by more people,
    and the reason may quote a record.
    """
    return reason_of(line) if sys.stdout.isatty() else "the reason is in refusals.log"


if __name__ == "__main__":
    try:
        wanted = [
            int(each.removeprefix(_WATCH)) for each in sys.argv[3:] if each.startswith(_WATCH)
        ]
        users = [each for each in sys.argv[3:] if not each.startswith(_WATCH)]
        account = UnixUser.named(users[0]) if users else None
        places = Path(sys.argv[1]), Path(sys.argv[2])
        chosen = LogChoice.of_environment()
        configure(chosen, party="silo", process="join", by_default=places[1] / "join.log")
        passphrase = _handed(places[1])
        with _watched(*places, wanted[0] if wanted else None) as told:
            sys.exit(keep_silo(*places, user=account, passphrase=passphrase, say=_say, tended=told))
    except SumusError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(exit_code_of(error))
