"""What a silo keeps on its own disk, and nobody else ever sees.

state/                        mode 0700
  identity.key                the silo's long-lived signing key, under a passphrase if its people want it so
  roster.toml                 who is who, as agreed outside the protocol
  plans/*.toml                the plans that this silo's people have approved
  sessions/<digest>/          one per plan and roster
    secret                    what all masks of the session are derived from
    directory                 the other silos' signed keys, as last received
    rounds.log                round ids that were used, and for what (`FileRoundGuard`): four lines at most for each secure sum of the plan
    in_flight                 the latest round: written before its noise is drawn, and again with the masked answer before that is sent
    certificates/<round id>   who was in a sum that this silo helped to open, signed by a quorum: its own evidence
  refusals.log                every refusal with its full reason; when it is full it becomes refusals.old.log, in place of the one before

Guarantee: a round's noise is drawn once. The round is on the disk before noise is drawn and its
    masked answer before anything leaves; the same invitation gets the very same bytes again after
    any crash, and no other invitation with the same or a smaller round number is ever answered. An
    unmasked vector never touches the disk.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, final

from sumus.errors import PeerProtocolError, StorageError
from sumus.files import append_durably, read_bytes, replace_atomically
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.secagg import FileRoundGuard, Identity, Roster, RoundGuard, open_identity

__all__ = ["InFlight", "Memory", "SessionMemory", "SessionNotes", "SiloState", "path_of"]

_MAGIC = b"sumus in flight 2\n"
# its number counted rounds, so it may stand for a later secure sum than it says
_ROUNDS_MAGIC = b"sumus in flight 1\n"
_LOG_BYTES = 1 << 20
_REASON_CHARACTERS = 10_000


@final
@dataclass(frozen=True, eq=False)
class InFlight:
    """The latest round that this silo drew noise for.

    Args:
        number: of the secure sum, counted from 0: twice the round's for its model, one more for its
            measurement.
        transcript: everything that identifies the round: id, participants, model.
        reply: the masked answer; empty if the silo's process ended without one, and the
            round is then lost for this silo.
    """

    number: int
    transcript: bytes
    reply: bytes = field(default=b"", repr=False)


class SessionNotes(Protocol):
    """What a silo must not forget of one session."""

    @property
    def guard(self) -> RoundGuard:
        """What the silo has committed to."""
        ...

    @property
    def random(self) -> RandomSource:
        """Random bits of the protocol."""
        ...

    def secret(self) -> bytes:
        """What the session's masks are derived from: the same for as long as the session lasts."""
        ...

    @property
    def directory(self) -> bytes | None:
        """The key directory as last accepted."""
        ...

    def keep_directory(self, message: bytes) -> None:
        """Remember an accepted key directory."""
        ...

    def keep_certificate(self, round_id: bytes, message: bytes) -> None:
        """Remember who was in a round that this silo helped to open."""
        ...

    @property
    def in_flight(self) -> InFlight | None:
        """The latest round; None before the first."""
        ...

    def keep_in_flight(self, round_: InFlight) -> None:
        """Remember the latest round; nothing of it may leave before this returns."""
        ...


class Memory(Protocol):
    """What a silo keeps: its folder, or in a simulation what derives from the run's secret."""

    @property
    def name(self) -> str:
        """The silo's name in plans."""
        ...

    @property
    def simulated(self) -> bool:
        """Whether this silo's noise comes from a public seed."""
        ...

    @property
    def identity(self) -> Identity:
        """The silo's signing key."""
        ...

    @property
    def roster(self) -> Roster:
        """Who is who, as this silo's people have checked."""
        ...

    def enrolled(self, session: bytes, names: Sequence[str]) -> tuple[Identity, Roster]:
        """Who this silo is in a session, and who the others are."""
        ...

    def source(self, number: int, purpose: str, place: int) -> RandomSource:
        """The random bits of one vector.

        Args:
            number: of the round, from 0.
            purpose: of the sum.
            place: of the silo in the plan.
        """
        ...

    def plan(self, plan_hash: bytes) -> TrainingPlan:
        """The approved plan with this hash."""
        ...

    def plans(self) -> Iterator[TrainingPlan]:
        """All approved plans."""
        ...

    def knows(self, digest: bytes) -> bool:
        """Whether another process of this silo set up that session."""
        ...

    def session(self, digest: bytes) -> SessionNotes:
        """The memory of one session."""
        ...

    def log_refusal(self, reason: str) -> None:
        """Write a refusal down for this silo's own people."""
        ...

    def close(self) -> None:
        """Let another process take over."""
        ...


def path_of(purpose: str, place: int) -> tuple[str, int]:
    """What tells the random bits of one vector from those of the others in a round."""
    return ("silo" if purpose == "model" else purpose), place


@final
class SessionMemory:
    """One session's folder."""

    def __init__(self, folder: Path) -> None:
        _private_folder(folder)
        self._folder = folder
        self.guard = FileRoundGuard(folder / "rounds.log")

    @property
    def random(self) -> RandomSource:
        """Random bits of the protocol."""
        return RandomSource()

    def secret(self) -> bytes:
        """The set-up secret; drawn the first time, and on the disk before it is used."""
        path = self._folder / "secret"
        if not path.exists():
            replace_atomically(path, RandomSource().bytes(32), secret=True)
        secret = read_bytes(path)
        if len(secret) != 32:
            raise StorageError(
                f"{path} must hold 32 bytes, got {len(secret)}. Restore it from a backup, or agree "
                "on a new roster."
            )
        return secret

    @property
    def directory(self) -> bytes | None:
        """The key directory as last accepted."""
        path = self._folder / "directory"
        return read_bytes(path) if path.exists() else None

    def keep_directory(self, message: bytes) -> None:
        """Remember an accepted key directory, so that a restarted process can go on in the middle
        of a round.
        """
        if self.directory != message:
            replace_atomically(self._folder / "directory", message)

    def keep_certificate(self, round_id: bytes, message: bytes) -> None:
        """Put a certificate, by which a quorum of silos and the server answer for a survivor set,
        on the disk: this silo's own evidence.
        """
        _private_folder(self._folder / "certificates")
        replace_atomically(self._folder / "certificates" / round_id.hex(), message)

    @property
    def in_flight(self) -> InFlight | None:
        """The latest round; None before the first."""
        path = self._folder / "in_flight"
        if not path.exists():
            return None
        content = read_bytes(path)
        head = len(_MAGIC) + 40
        if content.startswith(_ROUNDS_MAGIC):
            raise StorageError(
                f"{path} was written by an earlier version, which counted rounds. Start a new "
                "session with a new roster."
            )
        if not content.startswith(_MAGIC) or len(content) < head:
            raise StorageError(
                f"{path} is damaged. Start a new session with a new roster; do not edit it."
            )
        (number,) = struct.unpack_from("<Q", content, len(_MAGIC))
        return InFlight(number, content[len(_MAGIC) + 8 : head], content[head:])

    def keep_in_flight(self, round_: InFlight) -> None:
        """Put the latest round on the disk; nothing of it may leave before this returns."""
        body = struct.pack("<Q", round_.number) + round_.transcript + round_.reply
        replace_atomically(self._folder / "in_flight", _MAGIC + body)

    def close(self) -> None:
        """Let another process take over."""
        self.guard.close()


@final
class SiloState:
    """A silo's folder.

    Args:
        folder: made with mode 0700 if it does not exist; one that others may read is refused.
        passphrase: of its key, if that is protected; kept in memory only.
    """

    def __init__(self, folder: Path, *, passphrase: bytes | None = None) -> None:
        _private_folder(folder)
        self.folder, self._passphrase = folder, passphrase
        self._opened: tuple[str, Identity] | None = None
        self._sessions: dict[bytes, SessionMemory] = {}

    @property
    def name(self) -> str:
        """The silo's name, on the roster and in plans."""
        return self.identity.name

    @property
    def identity(self) -> Identity:
        """The silo's name and signing key."""
        text = read_bytes(self.folder / "identity.key").decode()
        if self._opened is None or self._opened[0] != text:  # opening takes a while on purpose
            self._opened = text, open_identity(text, self._passphrase)
        return self._opened[1]

    @property
    def roster(self) -> Roster:
        """The roster that this silo's people have checked."""
        return Roster.parse(read_bytes(self.folder / "roster.toml").decode())

    def enrolled(self, session: bytes, names: Sequence[str]) -> tuple[Identity, Roster]:
        """Who this silo is in a session, and who the others are; refuses a plan with other
        silos.
        """
        roster = self.roster
        if sorted(names) != list(roster.names):
            raise PeerProtocolError(
                f"the plan has other silos than the roster of silo {self.name!r}. Compare plan and "
                "roster."
            )
        return self.identity, roster

    def source(self, number: int, purpose: str, place: int) -> RandomSource:
        """The random bits of one vector: from the operating system, new in every call; from the
        public seed in a simulation.
        """
        seed = self.simulation_seed
        return (
            RandomSource()
            if seed is None
            else RandomSource.simulation(seed, number, *path_of(purpose, place))
        )

    def plans(self) -> Iterator[TrainingPlan]:
        """The plans that this silo has approved."""
        for path in sorted((self.folder / "plans").glob("*.toml")):
            yield TrainingPlan.load(path)

    def plan(self, plan_hash: bytes) -> TrainingPlan:
        """The approved plan with this hash; a server can name a plan but never bring one."""
        for plan in self.plans():
            if bytes.fromhex(plan.hash) == plan_hash:
                return plan
        raise PeerProtocolError(
            f"plan {plan_hash.hex()[:8]} is not one that silo {self.identity.name!r} has approved. "
            "Send it the plan file to join with."
        )

    def session(self, digest: bytes) -> SessionMemory:
        """The memory of one session; opened once per process."""
        if digest not in self._sessions:
            self._sessions[digest] = SessionMemory(self.folder / "sessions" / digest.hex())
        return self._sessions[digest]

    def knows(self, digest: bytes) -> bool:
        """See `Memory.knows`."""
        return (self.folder / "sessions" / digest.hex() / "directory").exists()

    def log_refusal(self, reason: str) -> None:
        """Write a refusal down for this silo's own people.

        Guarantee: however many refusals a server provokes, they take at most two files of 1 MiB;
            the latest are kept.
        """
        path = self.folder / "refusals.log"
        entry = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "reason": reason[:_REASON_CHARACTERS],
        }
        line = json.dumps(entry, ensure_ascii=False).encode(errors="replace") + b"\n"
        size = path.stat().st_size if path.exists() else 0
        if size + len(line) > _LOG_BYTES:
            path.replace(path.with_name("refusals.old.log"))
            size = 0
        append_durably(path, line, at=size)

    @property
    def simulated(self) -> bool:
        """Whether this silo's noise comes from a public seed."""
        return self.simulation_seed is not None

    @property
    def simulation_seed(self) -> int | None:
        """A public seed for tests: only where the folder holds a file named SIMULATION, and
        everything then says that it simulates.
        """
        seed = os.environ.get("SUMUS_SIMULATION_SEED")
        return int(seed) if seed is not None and (self.folder / "SIMULATION").exists() else None

    def close(self) -> None:
        """Let another process take over."""
        for memory in self._sessions.values():
            memory.close()
        self._sessions.clear()


def _private_folder(folder: Path) -> None:
    """Make a folder that only its owner can enter; refuse one that others can read."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = folder.stat().st_mode & 0o777
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be made: {error.strerror}. Check the path and its permissions."
        ) from None
    if mode & 0o077:
        raise StorageError(
            f"{folder} must be closed to others (mode 700), has mode {mode:o}. Run: chmod 700 "
            f"{folder}"
        )
