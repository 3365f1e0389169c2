"""What an engine is: one folder below `engines/` whose `__init__` offers the functions of `Engine`.

An engine carries bytes between the parties and decides nothing. It imports its package only when
one of its functions is called, so that every other command runs without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, final

from sumus.errors import DataError, EngineError

if TYPE_CHECKING:
    from sumus.engines.federation_folder import FederationFolder
    from sumus.parties import Agreement

__all__ = [
    "Address",
    "Engine",
    "Look",
    "NoProgressError",
    "Operator",
    "Outcome",
    "ServerAwayError",
    "Watch",
    "told_outcome",
    "too_many_refused",
]


class ServerAwayError(EngineError):
    """The server does not answer; it may come back."""


class NoProgressError(EngineError):
    """Job after job ended without a new round, and not because silos refuse."""


Watch = Callable[[Mapping[str, Any]], None]
"""Called with the news of a job: phase, new rounds, who is present, who refused, who is awaited."""


@final
@dataclass(frozen=True)
class Address:
    """Where the silos find the server."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`host:port`."""
        host, _, port = text.rpartition(":")
        if (
            not re.fullmatch(r"[A-Za-z0-9.-]+", host)
            or not re.fullmatch(r"[0-9]{1,5}", port)
            or not 0 < int(port) < 65536
        ):
            raise DataError(
                f"--server must be host:port, got {text!r}. For example fl.example.org:8002."
            )
        return cls(host, int(port))

    @property
    def is_this_machine(self) -> bool:
        """Whether nobody but processes of this machine can reach it."""
        return self.host in ("localhost", "127.0.0.1")

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended.

    Args:
        finished: whether the plan's last round is done.
        reason: otherwise, why the job ended.
        run: the run folder as it was fetched, if the job left one.
        refused: whether so many silos refused the plan that another job would end the same way.
        delivered: who was handed the run: `received`, `missing` with reasons, `error`; None: nobody
            was to be.
    """

    finished: bool
    reason: str
    run: Path | None
    refused: bool = False
    delivered: Mapping[str, Any] | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Look:
    """What an operator sees when it looks once.

    Args:
        silos: that are connected.
        job: the latest one; None: there was none.
        running: whether it goes on.
        news: how far it is, as `Watch` is told; None: it does not say.
    """

    silos: tuple[str, ...]
    job: str | None = None
    running: bool = False
    news: Mapping[str, Any] | None = None


def told_outcome(state: Mapping[str, Any]) -> str:
    """How a job ended, in words that do not say more than what happened."""
    refusals = state.get("refusals") or {}
    if state["phase"] == "finished":
        return "finished"
    if state["phase"] == "failed" and refusals:
        name, reason = min(refusals.items())
        return f"refused by {', '.join(sorted(refusals))} ({name}: {reason})"
    if state["phase"] == "failed":
        return f"lost: {state.get('error')}"
    return f"{state['phase']} after {len(state['rounds'])} rounds"


def too_many_refused(state: Mapping[str, Any], agreement: Agreement) -> bool:
    """Whether a job failed because too few silos are willing."""
    willing = len(agreement.design.silos) - len(state.get("refusals") or {})
    return state["phase"] == "failed" and willing < agreement.terms.minimum_survivors


class Operator(Protocol):
    """Whoever starts training: submits a plan, follows it, and fetches its run folder."""

    PATIENCE: ClassVar[Mapping[str, float]]
    """set_up_seconds for silos that join, update_seconds for local steps, stage_seconds for answers
    that need no computation, where nothing else is asked for.
    """

    def run(
        self,
        agreement: Agreement,
        *,
        rounds: int,
        patience: Mapping[str, float],
        out: Path,
        watch: Watch,
        start: str = "",
    ) -> Outcome:
        """Train at most `rounds` rounds of a plan in one job, going on after the last finished one;
        of 0 rounds hand its run out to the silos that are there.

        Args:
            patience: see `PATIENCE`.
            start: the model to begin with, for `ServerJob`; empty: the server finds it.
            out: where the run folder is copied to.
            watch: is told of every change.
        """
        ...

    def system(self) -> dict[str, Any]:
        """What the server says of itself: `server` in words, `silos` that are connected with the
        time they were last heard of, its latest `jobs`.
        """
        ...

    def look(self, known: str | None, after: int) -> Look:
        """Look once, without waiting for a server that is away: raises `EngineError` then.

        Args:
            known: the job that was seen last; a later one is told with its plan (`plan`, TOML).
            after: rounds of the run that are known already, of any job of its plan.
        """
        ...

    def wait_for_sites(self, count: int, *, seconds: float) -> list[str]:
        """Wait until so many silos are connected, or the time is over; returns those who are."""
        ...

    def close(self) -> None:
        """End the session with the server."""
        ...


class Engine(Protocol):
    """A transport. A process that it starts relays bytes and decides nothing."""

    PACKAGE: str
    """What must be installed for it; `pip install 'sumus[NAME]'` brings it."""
    CONNECTED: str
    """What a silo's log says when the server has let it in."""

    def make_kits(
        self, folder: FederationFolder, address: Address, requests: Mapping[str, bytes]
    ) -> None:
        """Make a kit for every party, at `folder.kit(party)`, without any secret of a silo.

        Args:
            requests: certificate requests of parties that keep their transport key to themselves.
        """
        ...

    def add_kit(
        self, folder: FederationFolder, address: Address, silo: str, requests: Mapping[str, bytes]
    ) -> None:
        """Make the kit of a silo that comes later, let in by what `make_kits` left.

        Args:
            folder: with the roster that names the silo.
            requests: see `make_kits`.
        """
        ...

    def drop_kit(self, folder: FederationFolder, silo: str) -> None:
        """Have the server let a silo in no longer, from its next start on.

        Args:
            folder: with the roster that does not name the silo any more.
        """
        ...

    def complete(self, kit: Path, party: str, key: Path | None, *, write: bool) -> str | None:
        """Look whether a kit's certificate is good and for its party's own transport key; returns a
        remark if it ends soon.

        Args:
            key: the file of the key; None: the kit has it.
            write: whether a key that the kit lacks is put into it.
        """
        ...

    def renew(
        self, folder: FederationFolder, days: int, requests: Mapping[str, bytes]
    ) -> Mapping[str, Path]:
        """New certificates by party, in files without a secret.

        Args:
            days: how long they hold.
            requests: of parties with a new transport key; the others keep theirs.
        """
        ...

    def serve(self, kit: Path, *, listen: str | None = None) -> list[str]:
        """Close the server's kit down, and return the command line of the server's process.

        Args:
            listen: address of the interface that it listens on; None: the loopback where silos find
                the server on this machine, otherwise all.
        """
        ...

    def join(self, kit: Path) -> list[str]:
        """Close a silo's kit down, and return the command line of the silo's process."""
        ...

    def present(self, kit: Path) -> Mapping[str, float] | None:
        """The silos that the server of this kit is connected with, and since when (Unix time), as
        its own process says; None: it does not say.
        """
        ...

    def operator(self, kit: Path, *, first_contact_seconds: float = 30.0) -> Operator:
        """The operator of a kit.

        Args:
            first_contact_seconds: patience with a server that was never there; more for one that
                has just been started.
        """
        ...
