"""A federation of real parties in one process that is watched: a job of the server's in a thread,
silos from their vaults, and an operator whose server can be away.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from sumus.engines import Look
from sumus.engines.server_job import ServerJob
from sumus.errors import EngineError
from sumus.parties import InProcess, SiloParty, open_party
from support.local_federation import QUICK, LocalFederation, plan


class Gated:
    """A driver whose exchanges pass one by one, as a test lets them, or all."""

    def __init__(self, silos: InProcess) -> None:
        self._silos, self._tickets = silos, threading.Semaphore(0)
        self.waiting, self.open = threading.Event(), False

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_seconds: float
    ) -> Mapping[int, bytes]:
        if not self.open:
            self.waiting.set()
            self._tickets.acquire()
        return self._silos.exchange(messages, deadline_seconds=deadline_seconds)

    def let(self, exchanges: int) -> None:
        """Let so many exchanges pass."""
        self.waiting.clear()
        self._tickets.release(exchanges)

    def let_all(self) -> None:
        self.open = True
        self._tickets.release(1000)

    def close(self) -> None:
        self._silos.close()


class WatchedFederation:
    """Three silos and a server; see the module.

    Args:
        root: an empty folder.
        rounds: of the plan.
        policy: of every silo.
    """

    def __init__(self, root: Path, *, rounds: int = 5, policy: str = "") -> None:
        numbers = {"federation.silos": 3, "federation.rounds": rounds}
        agreed = plan(numbers | {"evaluation.metrics": "secure", "federation.local_steps": 4})
        self.federation = LocalFederation(root, agreed)
        self.agreement, self.names = self.federation.agreement, self.federation.roster.names
        self.state = root / "server" / "sumus"
        self.state.mkdir(parents=True, mode=0o700)
        (self.state / "roster.toml").write_text(self.federation.roster.to_text())
        (self.state / "server.key").write_text(self.federation.identity.secret_text())
        for number, name in enumerate(self.names):
            self.federation.stop(number)
            folder = self.vault(name)
            (folder / "plans" / "plan.toml").rename(
                folder / "plans" / f"{self.agreement.plan.hash}.toml"
            )
            (folder / "site.toml").write_text(f'data = "digits"\nledgers = "{folder}"\n')
            (folder / "policy.toml").write_text(policy)
        self._parties: dict[int, SiloParty] = {}
        self._thread: threading.Thread | None = None
        self._driver: Gated | None = None
        self.job: ServerJob | None = None
        self.jobs = 0
        self.away = False

    def vault(self, silo: str) -> Path:
        return self.federation.folder(silo)

    def start_job(self, *, rounds: int = 50) -> Gated:
        """Begin a job; nothing passes until its driver lets it."""
        self._parties = self._parties or {
            number: open_party(self.vault(name)) for number, name in enumerate(self.names)
        }
        driver = self._driver = Gated(
            InProcess({n: party.handle for n, party in self._parties.items()})
        )
        self.job = job = ServerJob(self.agreement.plan.to_toml(), rounds=rounds, patience=QUICK)
        self.jobs += 1
        self._thread = threading.Thread(target=lambda: job.run(self.state, lambda names: driver))
        self._thread.start()
        return driver

    def wait(self) -> None:
        """Until the job has ended."""
        assert self._thread is not None
        self._thread.join(timeout=300)
        assert not self._thread.is_alive()

    def close(self) -> None:
        if self._driver is not None:
            self._driver.let_all()
            self.wait()
        for party in self._parties.values():
            party.close()

    # -- as an operator

    def look(self, known: str | None, after: int) -> Look:
        """See `Operator.look`."""
        if self.away:
            raise EngineError("the server does not answer (connection refused).")
        if self.job is None:
            return Look(silos=self.names)
        running = self._thread is not None and self._thread.is_alive()
        name = str(self.jobs)
        news = self.job.state(after=after, most=500, about=name != known)
        return Look(silos=self.names, job=name, running=running, news=news)
