"""What a consortium does in a year: certificates, keys, a silo that leaves and one that comes, disks
that are lost, a new release.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from soaking.faults import Blow, Blows
from soaking.federation import Federation
from soaking.office import Office
from soaking.sampling import Sampler

__all__ = ["Changes"]

_YEAR = 370 * 86400
_PASSPHRASE = "correct horse battery staple"  # noqa: S105 - of made-up vaults


class Changes:
    """Carries changes out by the commands that people type.

    Args:
        wait_seconds: for a plan that runs to its end.
    """

    def __init__(
        self,
        federation: Federation,
        office: Office,
        sampler: Sampler,
        blows: Blows,
        *,
        wait_seconds: float,
    ) -> None:
        self._federation, self._office, self._sampler = federation, office, sampler
        self._blows, self._wait = blows, wait_seconds
        self._epoch = 0
        self._passphrase = federation.root / "passphrase"
        self._passphrase.write_text(_PASSPHRASE + "\n")
        self._passphrase.chmod(0o600)
        self.lost_ledgers: list[str] = []
        self.all: dict[str, Callable[[], str]] = {
            "certificates renewed, and a year later": self.renew,
            "key of a silo rotated": self.rotate,
            "vault lost and restored, ledger survived": lambda: self.restore(ledger_lost=False),
            "vault and ledger lost and restored": lambda: self.restore(ledger_lost=True),
            "a silo retired and one admitted": self.replace_silo,
            "upgraded to another release": self.upgrade,
        }

    def carry_out(self, name: str) -> Blow:
        """One of them, and wait until rounds go on with whom it was about."""
        at = self._sampler.clock()
        victim = self.all[name]()
        blow = self._blows.ended(name, at, victim)
        self._blows.wait_for(blow)
        return blow

    # -- each returns whose part in a round shows that it is done

    def renew(self) -> str:
        """New certificates for two years, party by party; then a year passes, after which the old
        ones would not be good any more.
        """
        federation = self._federation
        federation.sumus("federation", "renew", federation.folder, "--days", 800)
        for path in sorted((federation.folder / "renewed").glob("*.crt")):
            name = path.stem
            place = federation.kit(name) / "startup"
            file = place / ("server.crt" if name == "server" else "client.crt")
            service = "operator" if name == "admin" else name
            with federation.services.resting(service):
                shutil.copyfile(path, file)
        if federation.clocks is not None:
            federation.base_clock = _YEAR
            for party in ("operator", *federation.silos, federation.spare, "server"):
                federation.set_clock(party, 0)
        return federation.silos[0]

    def rotate(self) -> str:
        """A silo signs with another key from now on; its run goes on."""
        federation = self._federation
        name = federation.silos[1]
        fresh = self._new_key(name)
        federation.sumus("federation", "rotate", federation.folder, fresh / f"{name}.pub")
        self._next_epoch(federation.silos)
        plan = self._office.write(federation.silos)
        federation.services.drop(*federation.silos)
        with federation.services.resting("server"):
            pass  # everybody starts again with the new roster
        for silo in federation.silos:
            key = ("--identity", fresh / f"{name}.key") if silo == name else ()
            federation.join(silo, plan, *key, *self._office.assured(silo))
        return name

    def replace_silo(self) -> str:
        """One silo leaves and another comes, between two plans."""
        federation, office = self._federation, self._office
        self.drain()
        leaves, comes = federation.silos[-1], federation.spare
        fresh = self._new_key(comes)
        federation.sumus("federation", "retire", federation.folder, leaves)
        federation.sumus("federation", "admit", federation.folder, fresh / f"{comes}.pub")
        federation.silos = sorted({*federation.silos, comes} - {leaves})
        plan = office.write(federation.silos)
        staying = [name for name in federation.silos if name != comes]
        self._next_epoch(staying, "--keys", fresh, "--plan", plan)
        federation.services.drop(leaves, *staying)
        with federation.services.resting("server"):
            pass
        for silo in staying:
            federation.join(silo, plan, *self._office.assured(silo))
        key = ("--identity", fresh / f"{comes}.key", "--tls-key", fresh / f"{comes}.tls.key")
        federation.join(comes, plan, *key)
        office.fill()
        return comes

    def restore(self, *, ledger_lost: bool) -> str:
        """A backup is made while the silo runs, rounds later its disk is gone, and it comes back."""
        federation = self._federation
        name = federation.silos[2] if ledger_lost else federation.silos[0]
        vault, backup = federation.vault(name), federation.root / f"{name}-{ledger_lost}.backup"
        passphrase = ("--passphrase-file", self._passphrase)
        self._office.fill()
        federation.sumus("silo", "backup", vault, backup, *passphrase, party=name)
        self._wait_for_rounds(5)
        plan = self._office.write(federation.silos)
        survived = () if ledger_lost else ("--ledger-survived",)
        with federation.services.resting(name):
            shutil.rmtree(vault)
            if ledger_lost:
                for path in federation.state(name).glob("ledger-*"):
                    path.unlink()
                for path in federation.state(name).glob("audit-*"):
                    path.unlink()
            federation.sumus("silo", "restore", backup, vault, *survived, *passphrase, party=name)
        federation.services.drop(name)
        self._office.restored.add(name)
        federation.join(name, plan, *self._office.assured(name))
        if ledger_lost:
            self.lost_ledgers.append(name)
            self._office.take_back()  # what was approved before counts as answered there
            self._office.fill()
        return name

    def upgrade(self) -> str:
        """Everybody stops, has another release, and goes on."""
        federation = self._federation
        names = ["operator", "server", *federation.silos]
        with federation.services.resting(*names):
            federation.tree = federation.other_tree
            for name in names:
                federation.services[name].environment = federation.environment(name)
        return federation.silos[3]

    def drain(self) -> None:
        """Take out what waits, and wait for what runs."""
        self._office.retry()
        self._office.take_back()
        self.wait_for_all()

    def wait_for_all(self) -> None:
        """Wait for every plan of the queue."""
        until = time.monotonic() + self._wait
        while any(each.state in ("running", "waiting") for each in self._office.queue.entries()):
            if time.monotonic() > until:
                raise TimeoutError("a plan of the queue did not end")
            time.sleep(1.0)

    # -- inside

    def _new_key(self, name: str) -> Path:
        place = self._federation.root / f"key-{self._epoch}-{name}"
        self._federation.sumus("keys", "new", name, "--out", place, party=name)
        return place

    def _next_epoch(self, signers: list[str], *options: object) -> None:
        """Everybody signs the next roster, and it is put into effect."""
        federation, number = self._federation, self._epoch + 1
        rosters = "epochs.toml" if self._epoch else "roster.toml"
        signatures = federation.root / f"signatures-{number}"
        for name in signers:
            federation.sumus(
                *("keys", "endorse", federation.folder / f"epoch-{number}.toml"),
                *("--identity", federation.vault(name) / "identity.key"),
                *("--roster", federation.folder / rosters, "--out", signatures),
                party=name,
            )
        words = ("--signatures", signatures, *options)
        federation.sumus("federation", "epoch", federation.folder, *words)
        self._epoch = number

    def _wait_for_rounds(self, count: int) -> None:
        seen, until = len(self._sampler.rounds), time.monotonic() + self._wait
        while len(self._sampler.rounds) < seen + count and time.monotonic() < until:
            self._blows.meanwhile()
            time.sleep(0.5)
