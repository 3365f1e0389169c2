"""The vault: a silo's party as a process of its own, behind a Unix socket.

    engine's process (relay) ──8-byte length, message──► vault (records, keys, ledger, policy)
                             ◄─8-byte length, answer────

Nothing else is spoken: one message and its answer a connection, one connection at a time. The
answer is what `SiloParty.handle` returns, so all that ever leaves the vault is signed, masked or a
refusal. Started by `sumus join` or by a unit that it wrote: `python -m sumus.parties.vault FOLDER
SOCKET [RELAY]`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import final

from sumus.books import Policy
from sumus.errors import DataError, PeerProtocolError, SumusError
from sumus.events import (
    LogChoice,
    ProcessFailed,
    VaultStarted,
    VaultStopped,
    configure,
    tell,
)
from sumus.files import (
    FolderLock,
    build_of,
    kind_of_failure,
    receive_sized,
    send_sized,
)
from sumus.parties.agreement import Agreement, agree_on
from sumus.parties.memory import SiloState
from sumus.parties.parcel import piece_bytes
from sumus.parties.site import open_party
from sumus.parties.trails import silo_trail
from sumus.parties.unlocking import handed_passphrase
from sumus.plan import TrainingPlan
from sumus.service import Signs, exit_code_of, seal_process

__all__ = ["Vault", "listen", "most_bytes", "serve_folder", "uid_of", "vault_arguments"]

_MESSAGE_SECONDS = 60.0
_WAITING = 64
_AROUND_BYTES = 64 << 10
_SILO_BYTES = 4 << 10
_LONGEST_PATH = 107
"""The most bytes that the path of a Unix socket may have."""
_LOOK_SECONDS = 1.0


def most_bytes(agreement: Agreement) -> int:
    """The most bytes that a server's message of a plan has.

        max(4·d, 1 MiB) + 4 KiB·N + 64 KiB      d numbers of the model or of the sum, N silos

    The keys, ciphertexts, salts and signatures that a message has of one silo are below 4 KiB; a
    piece of a run that is handed out has 1 MiB, or as much as the model.
    """
    most = max(4 * agreement.terms.length, piece_bytes(agreement))
    return most + _SILO_BYTES * agreement.terms.silos + _AROUND_BYTES


@final
class Vault:
    """Answers connections with what the silo's party says.

    Guarantee: a message is read only from a process of one of `uids` (as the kernel says), and only
        if it is no longer than the approved plans allow; whatever one connection does, the next is
        served. Plans and policy are those that stand in the folder when a message comes: with a
        policy that cannot be read, nothing is answered.

    Args:
        folder: of the vault, as `settle` wrote it.
        uids: Unix users whose processes may speak.
        seconds: patience with a peer that sends or takes slowly.
        passphrase: of the silo's key, if that is protected.
    """

    def __init__(
        self,
        folder: Path,
        *,
        uids: frozenset[int],
        seconds: float = _MESSAGE_SECONDS,
        passphrase: bytes | None = None,
    ) -> None:
        self._state, self._uids, self._seconds = SiloState(folder), uids, seconds
        self._passphrase = passphrase
        self._agreements: dict[str, Agreement] = {}
        self._bounds: dict[tuple[str, int, int], int] = {}
        self._opened = self._written()
        self._policy = Policy.load(folder / "policy.toml")
        self._party = open_party(folder, agree=self._agreed, passphrase=passphrase)

    def serve(self, listener: socket.socket, signs: Signs | None = None) -> None:
        """Answer one connection after the other until the listener is closed.

        Args:
            signs: of the process, given by this very loop.
        """
        signs = signs or Signs()
        signs.turned("waits for the relay", ready=True)
        while True:
            try:
                listener.settimeout(_LOOK_SECONDS)  # refused too where it is closed by now
                connection, _ = listener.accept()
            except TimeoutError:
                if listener.fileno() < 0:
                    return
                signs.turned()
                continue
            except OSError:
                return
            with connection, signs.working("answers a message"):
                self._answer(connection)

    def close(self) -> None:
        """Let another process take over the folder."""
        self._party.close()

    def _answer(self, connection: socket.socket) -> None:
        try:
            self._require_known(connection)
            self._follow_policy()
            message = receive_sized(connection, most=self.most_bytes(), seconds=self._seconds)
        except ConnectionResetError:
            return  # somebody looked whether the vault is there
        except (OSError, PeerProtocolError) as error:
            self._party.note_refusal(f"the relay was not heard: {error}", "relay")
            return
        except SumusError as error:
            self._party.note_refusal(f"the vault does not open with its policy: {error}", "policy")
            return
        answer = self._party.handle(message)
        with contextlib.suppress(OSError):  # whoever asked is gone; it may ask again
            send_sized(connection, answer, seconds=self._seconds)

    def _require_known(self, connection: socket.socket) -> None:
        """Refuse processes of other users, where the kernel says whose they are."""
        if not hasattr(socket, "SO_PEERCRED"):
            return  # the socket's own mode keeps others away
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, uid, _ = struct.unpack("iII", credentials)
        if uid not in self._uids:
            raise PeerProtocolError(
                f"a process of user {uid} may not speak to this vault. Start the engine with `sumus "
                "join`."
            )

    def _follow_policy(self) -> None:
        """Open the folder anew, as at a start, if the silo's people have given it another policy."""
        written = self._written()
        if written != self._opened:
            folder = self._state.folder
            self._party.close()
            self._policy = Policy.load(folder / "policy.toml")
            self._party = open_party(folder, agree=self._agreed, passphrase=self._passphrase)
            self._opened = written

    def _written(self) -> tuple[int, ...]:
        """When the policy's file was written, as far as the disk says; none: it is gone."""
        try:
            about = (self._state.folder / "policy.toml").stat()
        except OSError:
            return ()
        return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns

    def most_bytes(self) -> int:
        """The longest message that any approved plan can bring; plans may be approved while the
        vault runs.
        """
        most = _AROUND_BYTES
        for path in (self._state.folder / "plans").glob("*.toml"):
            with contextlib.suppress(SumusError, OSError):  # a plan that cannot run brings nothing
                about = path.stat()
                key = (path.name, about.st_mtime_ns, about.st_size)
                if key not in self._bounds:
                    self._bounds[key] = most_bytes(self._agreed(TrainingPlan.load(path)))
                most = max(most, self._bounds[key])
        return most

    def _agreed(self, plan: TrainingPlan) -> Agreement:
        self._policy.check_imports(plan)
        if plan.hash not in self._agreements:
            self._agreements[plan.hash] = agree_on(plan)
        return self._agreements[plan.hash]


def listen(path: Path, *, uids: frozenset[int]) -> socket.socket:
    """A socket at `path` that processes of these users can reach; a stale one is replaced."""
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise DataError(
            f"the socket's path {path} must have at most {_LONGEST_PATH} bytes. Choose a folder "
            "with a shorter path."
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise kind_of_failure(error)(
            f"{path} cannot be made: {error.strerror}. Check the folder and its permissions."
        ) from None
    finally:
        os.umask(before)
    others = sorted(uids - {os.getuid()})
    if others and os.getuid() == 0 and len(others) == 1:
        os.chown(path, others[0], -1)
    elif others:
        path.chmod(0o666)  # who may speak is decided by the kernel's word on every connection
    listener.listen(_WAITING)
    return listener


def uid_of(user: str) -> int:
    """The number of a Unix user, by name or number."""
    try:
        return int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise DataError(
            f"there is no user {user!r} on this machine. Make one: useradd --system "
            f"--no-create-home {user}"
        ) from None


def serve_folder(folder: Path, path: Path, *, relay: str | None = None) -> None:
    """Serve a vault's folder until this process is ended; the passphrase of a protected key comes
    as `handed_passphrase` says.

    Args:
        path: of the socket.
        relay: Unix user of the engine's process; None: this one's.
    """
    signs = Signs.of_environment()
    seal_process()
    passphrase = handed_passphrase(folder)
    uids = frozenset({os.getuid(), os.getuid() if relay is None else uid_of(relay)})
    with FolderLock(folder):
        vault, trail = Vault(folder, uids=uids, passphrase=passphrase), silo_trail(folder)
        with signs.working("agrees to its plans"):
            vault.most_bytes()  # before anybody waits
        with listen(path, uids=uids) as listener:
            # whoever is asked to stop finishes the message that it answers
            signal.signal(signal.SIGTERM, lambda number, frame: listener.close())
            trail.append(VaultStarted(build=build_of()))
            vault.serve(listener, signs)
            signs.stopping()
            path.unlink(missing_ok=True)
            trail.append(VaultStopped())


def vault_arguments(words: Sequence[str]) -> argparse.Namespace:
    """What the vault's command line says: `folder`, `socket` and `relay`."""
    parser = argparse.ArgumentParser(
        prog="python -m sumus.parties.vault", description="A silo's vault, as a process."
    )
    parser.add_argument("folder", type=Path, help="as `sumus join` wrote it")
    parser.add_argument("socket", type=Path, help="where it listens")
    parser.add_argument("relay", nargs="?", help="Unix user of the relay, by name or number")
    return parser.parse_args(words)


def _main(words: Sequence[str]) -> int:
    given = vault_arguments(words)
    configure(LogChoice.of_environment(), party="silo", process="vault", by_default=True)
    try:
        serve_folder(given.folder, given.socket, relay=given.relay)
        return 0
    except Exception as error:
        tell(ProcessFailed(cause=type(error).__name__))
        said = str(error)
        if not isinstance(error, SumusError):  # its words may be a record's
            SiloState(given.folder).log_refusal(traceback.format_exc())
            said = f"the vault failed by {type(error).__name__}, see refusals.log."
        sys.stderr.write(f"error: {said}\n")
        return exit_code_of(error)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
