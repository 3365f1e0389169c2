"""What a silo keeps on its own disk, and nobody else ever sees.

state/                        mode 0700
  identity.key                the silo's long-lived signing key, under a passphrase if its people want it so
  roster.toml                 who is who, as agreed outside the protocol
  plans/*.toml                the plans that this silo's people have approved
  sessions/<digest>/          one per plan and roster
    keys                      pair roots and the round in flight (`KeyRing`): written whenever keys go round, before a round's noise is drawn, and again with the masked answer before that is sent
    rounds.log                round ids that were used, and for what (`FileRoundGuard`): four lines at most for each secure sum of the plan
    certificates/<round id>   who was in a sum that this silo helped to open, signed by a quorum: its own evidence
  restored.json               after a restore: what may have been answered before (`Restored`)
  refusals.log                every refusal with its full reason; when it is full it becomes refusals.old.log, in place of the one before

Guarantee: a round's noise is drawn once. The round is on the disk before noise is drawn and its
    masked answer before anything leaves; the same invitation gets the very same bytes again after
    any crash, and no other invitation with the same or a smaller round number is ever answered,
    under whatever roster the plan runs. What is on the disk opens no round before the one in
    flight (a file that was replaced may linger in the blocks of a disk or in its snapshots). An
    unmasked vector never touches the disk.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, final

from sumus.errors import AccessError, PeerProtocolError, StorageError
from sumus.files import FORMATS, append_durably, kind_of_failure, read_bytes, replace_atomically
from sumus.parties.approvals import ApprovedPlans
from sumus.parties.restored import Restored
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.secagg import (
    FileRoundGuard,
    Identity,
    KeyRing,
    KeyStore,
    Roster,
    RoundGuard,
    open_identity,
)

__all__ = [
    "Memory",
    "SessionMemory",
    "SessionNotes",
    "SiloState",
    "path_of",
    "spent_session",
    "stored_session",
]

_FORMAT = FORMATS["session's file"]
_MAGIC = _FORMAT.marked().encode()
_LOG_BYTES = 1 << 20
_REASON_CHARACTERS = 10_000


class SessionNotes(Protocol):
    """What a silo must not forget of one session."""

    @property
    def guard(self) -> RoundGuard:
        """What the silo has committed to."""
        ...

    @property
    def random(self) -> RandomSource | None:
        """Random bits of the protocol where one process plays all silos; None: the operating
        system's.
        """
        ...

    @property
    def keys(self) -> KeyStore:
        """Pair roots, and the keys and the answer of the round in flight."""
        ...

    def keep_certificate(self, round_id: bytes, message: bytes) -> None:
        """Remember who was in a round that this silo helped to open."""
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

    def approves(self, plan_hash: str) -> bool:
        """Whether a plan is approved at this moment."""
        ...

    def session(self, digest: bytes, plan_hash: bytes) -> SessionNotes:
        """The memory of one session of a plan."""
        ...

    def leave(self, digest: bytes) -> None:
        """Keep nothing of a session in memory; on the disk it stays."""
        ...

    def last_answered(self, plan_hash: bytes) -> int | None:
        """The number of the last secure sum of a plan that this silo claimed, in whatever session;
        None before the first.
        """
        ...

    def require_runnable(self, plan: TrainingPlan) -> None:
        """Refuse a plan of which the silo has forgotten what it answered, or has answered all."""
        ...

    def log_refusal(self, reason: str) -> str | None:
        """Write a refusal down for this silo's own people; returns the name of its entry."""
        ...

    def close(self) -> None:
        """Let another process take over."""
        ...


def path_of(purpose: str, place: int) -> tuple[str, int]:
    """What tells the random bits of one vector from those of the others in a round."""
    return ("silo" if purpose == "model" else purpose), place


@final
class SessionMemory:
    """One session's folder, and the `KeyStore` in it.

    Args:
        folder: of the session.
        plan_hash: of its plan.
    """

    random = None

    def __init__(self, folder: Path, plan_hash: bytes) -> None:
        _private_folder(folder)
        self._path, self.plan_hash = folder / "keys", plan_hash
        self.guard = FileRoundGuard(folder / "rounds.log")
        try:
            self._ring = stored_session(self._path)[1] if self._path.exists() else KeyRing()
        except StorageError:
            self.guard.close()
            raise

    @property
    def keys(self) -> KeyStore:
        """See `SessionNotes.keys`."""
        return self

    @property
    def ring(self) -> KeyRing:
        """See `KeyStore.ring`."""
        return self._ring

    def keep(self, ring: KeyRing) -> None:
        """Put the ring on the disk; nothing that follows from it may leave before this returns."""
        replace_atomically(self._path, _MAGIC + self.plan_hash + ring.encode(), secret=True)
        self._ring = ring

    def keep_certificate(self, round_id: bytes, message: bytes) -> None:
        """Put a certificate, by which a quorum of silos and the server answer for a survivor set,
        on the disk: this silo's own evidence.
        """
        folder = self._path.with_name("certificates")
        _private_folder(folder)
        replace_atomically(folder / round_id.hex(), message)

    def close(self) -> None:
        """Let another process take over."""
        self.guard.close()


def stored_session(path: Path) -> tuple[bytes, KeyRing]:
    """The plan's hash and the ring of a session's file."""
    content = read_bytes(path)
    _FORMAT.require_beginning(path, content)
    start = len(_MAGIC) + 32
    if not content.startswith(_MAGIC) or len(content) < start:
        raise StorageError(
            f"{path} is damaged. Start a new session with a new roster; do not edit it."
        )
    return content[len(_MAGIC) : start], KeyRing.decode(content[start:], where=str(path))


def spent_session(path: Path) -> bytes:
    """A session's file without anything that opens anything: its plan, and the number of the last
    sum that was claimed.
    """
    plan_hash, ring = stored_session(path)
    return _MAGIC + plan_hash + ring.spent().encode()


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
        self._approved = ApprovedPlans(folder)
        self._sessions: dict[bytes, SessionMemory] = {}
        self._stored_sums: dict[bytes, tuple[bytes, int]] | None = None

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
        yield from self._approved

    def plan(self, plan_hash: bytes) -> TrainingPlan:
        """The approved plan with this hash; a server can name a plan but never bring one."""
        plan = self._approved.named(plan_hash.hex())
        if plan is None:
            raise PeerProtocolError(
                f"plan {plan_hash.hex()[:8]} is not one that silo {self.identity.name!r} has "
                "approved. Send its people the plan file: `sumus silo approve`."
            )
        return plan

    def approves(self, plan_hash: str) -> bool:
        """See `Memory.approves`."""
        return self._approved.named(plan_hash) is not None

    def session(self, digest: bytes, plan_hash: bytes) -> SessionMemory:
        """The memory of one session; opened once per process."""
        if digest not in self._sessions:
            folder = self.folder / "sessions" / digest.hex()
            self._sessions[digest] = SessionMemory(folder, plan_hash)
        return self._sessions[digest]

    def leave(self, digest: bytes) -> None:
        """See `Memory.leave`: another process could open it from now on."""
        memory = self._sessions.pop(digest, None)
        if memory is None:
            return
        if self._stored_sums is not None and memory.ring.round is not None:
            self._stored_sums[digest] = memory.plan_hash, memory.ring.round.sequence
        memory.close()

    def last_answered(self, plan_hash: bytes) -> int | None:
        """See `Memory.last_answered`: sessions under earlier rosters count, and so does what a
        vault that was restored may have forgotten.
        """
        if self._stored_sums is None:
            self._stored_sums = dict(self._read_sums())
        sums = [
            number
            for digest, (plan, number) in self._stored_sums.items()
            if plan == plan_hash and digest not in self._sessions
        ]
        for memory in self._sessions.values():
            if memory.plan_hash == plan_hash and memory.ring.round is not None:
                sums.append(memory.ring.round.sequence)
        restored = Restored.of_folder(self.folder)
        forgotten = -1 if restored is None else restored.answered.get(plan_hash.hex(), -1)
        last = max([*sums, forgotten])
        return None if last < 0 else last

    def require_runnable(self, plan: TrainingPlan) -> None:
        """See `Memory.require_runnable`."""
        restored = Restored.of_folder(self.folder)
        if restored is not None:
            restored.require_runnable(plan, self.name)

    def _read_sums(self) -> Iterator[tuple[bytes, tuple[bytes, int]]]:
        """Of every session on the disk, its plan and the last sum that was claimed."""
        for path in (self.folder / "sessions").glob("*/keys"):
            plan_hash, ring = stored_session(path)
            if ring.round is not None:
                yield bytes.fromhex(path.parent.name), (plan_hash, ring.round.sequence)

    def end_sessions(self) -> None:
        """Another roster follows: destroy what opens anything that was sent under this one; which
        sums were answered stays known.
        """
        for path in (self.folder / "sessions").glob("*/keys"):
            replace_atomically(path, spent_session(path), secret=True)

    def log_refusal(self, reason: str) -> str:
        """Write a refusal down for this silo's own people; returns the name of its entry, which
        says nothing of it.

        Guarantee: however many refusals a server provokes, they take at most two files of 1 MiB;
            the latest are kept.
        """
        path = self.folder / "refusals.log"
        entry = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "entry": RandomSource().bytes(8).hex(),
            "reason": reason[:_REASON_CHARACTERS],
        }
        line = json.dumps(entry, ensure_ascii=False).encode(errors="replace") + b"\n"
        size = path.stat().st_size if path.exists() else 0
        if size + len(line) > _LOG_BYTES:
            path.replace(path.with_name("refusals.old.log"))
            size = 0
        append_durably(path, line, at=size)
        return entry["entry"]

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
        self._stored_sums = None


def _private_folder(folder: Path) -> None:
    """Make a folder that only its owner can enter; refuse one that others can read."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = folder.stat().st_mode & 0o777
    except OSError as error:
        raise kind_of_failure(error)(
            f"{folder} cannot be made: {error.strerror}. Check the path and its permissions."
        ) from None
    if mode & 0o077:
        raise AccessError(
            f"{folder} must be closed to others (mode 700), has mode {mode:o}. Run: chmod 700 "
            f"{folder}"
        )
