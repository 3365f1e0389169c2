"""Is a silo well: its vault, what it trusts and allows, its books, its records."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import final

from sumus.books import Policy
from sumus.care.backup import last_backup
from sumus.care.finding import Finding, fail, looked, ok, warn
from sumus.care.kit_health import certificates_of, kit_keys, private
from sumus.care.machine import clock, disk, is_held, last_line, open_to_others, owner
from sumus.data import named_set
from sumus.engines import Kit
from sumus.errors import SumusError
from sumus.files import parse_toml, read_bytes
from sumus.parties import (
    Agreement,
    SeenLedger,
    Site,
    agree_on,
    audit_vault,
    most_bytes,
    of_other_versions,
    own_releases,
    pinned,
    read_rosters,
    require_not_retired,
)
from sumus.plan import TrainingPlan
from sumus.secagg import Identity, is_protected, public_key_of

__all__ = ["SiloHealth"]

_LOGS_BYTES = 64 << 20
"""Logs of three processes, 10 MiB each, and refusals, at most."""
_ROUND_BYTES = 8 << 10
_SILO_BYTES = 1 << 10
"""Ledger, trail and claims of a round, and what a certificate has of one silo."""


@final
@dataclass(frozen=True)
class SiloHealth:
    """Looks at a silo, and changes nothing.

    Args:
        vault: its folder.
        kit: None: only the vault is looked at.
    """

    vault: Path
    kit: Kit | None = None

    def examine(self) -> list[Finding]:
        """Every look, in the order in which somebody would mend things."""
        looks: dict[str, Callable[[], Finding]] = {
            "vault": self.found,
            "permissions": self.permissions,
            "separation": self.separation,
            "key": self.key,
            "roster": self.roster,
            "policy": self.policy,
            "plans": self.plans,
            "records": self.records,
            "ledger": self.ledger,
            "trail": self.trail,
            "backup": self.backup,
            "disk": self.disk,
            "running": self.running,
            "clock": self.clock,
        }
        first = looked("vault", looks.pop("vault"))
        if first.state == "fail":
            return [first]
        return [first, *(looked(check, look) for check, look in looks.items())]

    def found(self) -> Finding:
        """Whether there is a vault at all."""
        if not (self.vault / "roster.toml").is_file() or not (self.vault / "site.toml").is_file():
            return fail(
                "vault",
                f"{self.vault} is no silo's vault.",
                "Run `sumus join`, or name the vault: --vault FOLDER.",
            )
        require_not_retired(self.vault)
        return ok("vault", str(self.vault))

    def permissions(self) -> Finding:
        """Whether only the silo's own user can read what is secret."""
        keeper = owner(self.vault)
        if os.getuid() not in (0, keeper):
            return fail(
                "permissions",
                f"{self.vault} belongs to {_user(keeper)}, this is {_user(os.getuid())}.",
                f"Run it as {_user(keeper)}.",
            )
        secrets = [self.vault, *sorted(self.vault.glob("*.key"))]
        secrets += sorted(self.vault.glob("sessions/*/keys"))
        own = [] if self.kit is None else [self.kit.path, *kit_keys(self.kit)]
        return private([*secrets, *own], "vault, keys and kit")

    def separation(self) -> Finding:
        """Whether the engine runs as somebody who cannot read the vault."""
        if self.kit is None:
            return ok("separation", "not looked at: give the kit instead of the vault")
        keeper, engine = owner(self.vault), owner(self.kit.path)
        if keeper == engine:
            return warn(
                "separation",
                f"vault and kit belong to {_user(keeper)}: the engine runs as whoever holds the keys.",
                "Join with --user NAME, another user.",
            )
        if open_to_others(self.vault):
            return fail(
                "separation",
                f"{_user(engine)}, who runs the engine, may enter {self.vault}.",
                f"Run: chmod go-rwx {self.vault}",
            )
        return ok("separation", f"the vault is {_user(keeper)}'s, the engine {_user(engine)}'s")

    def key(self) -> Finding:
        """Whether the silo's key can be read and is the one on the roster."""
        text = read_bytes(self.vault / "identity.key").decode()
        protected = is_protected(text)
        name = text.partition(" ")[0] if protected else Identity.parse(text).name
        roster = read_rosters(self.vault).current
        if self.kit is not None and name != self.kit.party:
            return fail(
                "key",
                f"the key is {name}'s, the kit {self.kit.party}'s.",
                f"Join with {self.kit.party}.key, or with the kit of {name}.",
            )
        if roster.public_keys.get(name) != public_key_of(text):
            return fail(
                "key",
                f"the roster has no {name} with this key.",
                f"Join with the key whose {name}.pub is on the roster.",
            )
        kept = "under a passphrase" if protected else "without a passphrase"
        return ok("key", f"{name}'s, {kept}, on the roster")

    def roster(self) -> Finding:
        """Whether the roster is the one that the silo's people compared, and the kit's."""
        rosters = read_rosters(self.vault)
        digest = rosters.current.digest().hex()
        if not pinned(Policy.load(self.vault / "policy.toml"), rosters):
            return fail(
                "roster",
                f"the policy does not name roster {digest[:16]}… or one that leads to it.",
                "Compare the fingerprint with the other silos (`sumus keys fingerprint`), then join "
                "with --fingerprint.",
            )
        if self.kit is not None:
            brought = read_rosters(self.kit.state).current.digest().hex()
            if brought != digest:
                return warn(
                    "roster",
                    f"the vault trusts {digest[:16]}…, the kit brings {brought[:16]}….",
                    "Join again to take over the later one.",
                )
        return ok(
            "roster", f"{digest[:16]}…, {len(rosters.current.names)} silos, as the policy says"
        )

    def policy(self) -> Finding:
        """Whether the policy can be read, and the approved plans fit it and what was spent."""
        rules, site = Policy.load(self.vault / "policy.toml"), Site.of_folder(self.vault)
        for agreement in self._agreements:
            own_releases(agreement, site.ledger, rules, silo=self._name)
        limit = "no limit of ε" if rules.max_epsilon is None else f"ε ≤ {rules.max_epsilon:g}"
        return ok("policy", f"{limit}; every approved plan fits it")

    def plans(self) -> Finding:
        """Whether the approved plans can be read, and agreed to by this Sumus."""
        for path in sorted((self.vault / "plans").glob("*.toml")):
            try:
                TrainingPlan.load(path)
            except SumusError as error:
                said = f"{path} cannot be read: {error}"
                return fail("plans", said, "Remove it, and join with --plan again.")
        others = of_other_versions(self.vault)
        if others:
            said = f"plan {others[0][:8]} was approved under a version that knows other keys."
            fix = "It is not run by this one: finish it with that version, or agree on a new plan."
            return fail("plans", said, fix)
        if not self._agreements:
            return fail(
                "plans", "no plan is approved: every round is refused.", "Join with --plan FILE."
            )
        return ok("plans", f"{len(self._agreements)} approved")

    def records(self) -> Finding:
        """Whether the records are where the silo said; none is read."""
        site = Site.of_folder(self.vault)
        if not site.is_file:
            return ok("records", f"the data set {named_set(site.data).name}")
        path = Path(site.data)
        if not path.exists():
            return fail(
                "records", f"{path} is gone.", "Put it back, or join with --data and its new place."
            )
        if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
            said = f"{path} cannot be read by {_user(os.getuid())}."
            return fail("records", said, "Give this user the right to read it.")
        empty = not any(path.iterdir()) if path.is_dir() else path.stat().st_size == 0
        if empty:
            return fail("records", f"{path} is empty.", "Put the records there.")
        if path.suffix == ".toml":
            parse_toml(read_bytes(path).decode(), str(path))
        if path.stat().st_mode & 0o007:
            said = f"{path} can be used by every user of this machine."
            return warn("records", said, f"Run: chmod o-rwx {path}")
        return ok("records", f"{path} is there")

    def ledger(self) -> Finding:
        """Whether the ledger is whole, and has all that the vault remembers."""
        ledger = Site.of_folder(self.vault).ledger
        head = ledger.verify()
        SeenLedger(self.vault, ledger).require_whole()
        return ok("ledger", f"{ledger.lines} lines, head {head[:16]}…")

    def trail(self) -> Finding:
        """Whether the audit trail is whole, and names what the ledger has."""
        audit = audit_vault(self.vault)
        if audit.findings:
            return fail(
                "trail",
                f"{audit.findings[0]}{_others(len(audit.findings))}.",
                "See `sumus audit evidence`; somebody, or a restored copy, has changed files.",
            )
        return ok("trail", f"{0 if audit.reading.head is None else audit.reading.head.lines} lines")

    def backup(self) -> Finding:
        """Whether there is a backup that knows what the vault knows."""
        note = last_backup(self.vault)
        fix = "Run: sumus silo backup"
        if note is None:
            return warn("backup", "this vault was never backed up.", fix)
        if note.is_behind(self.vault):
            return warn("backup", f"the backup of {note.made[:10]} lacks a plan or a setting.", fix)
        return ok("backup", f"of {note.made[:10]}")

    def disk(self) -> Finding:
        """Whether the rounds of the approved plans have room."""
        ledgers = Site.of_folder(self.vault).ledger.path.parent
        return disk({"the vault": self.vault, "the ledger": ledgers}, self._need)

    def running(self) -> Finding:
        """Whether the silo's processes run."""
        vault = is_held(self.vault)
        engine = self.kit is not None and is_held(self.kit.path)
        if engine and not vault:
            return warn(
                "running", "the engine runs, and the vault does not.", f"See {self.vault}/join.log."
            )
        return ok("running", "the vault runs" if vault else "it does not run")

    def clock(self) -> Finding:
        """Whether the clock is behind what has happened."""
        past = last_line(self.vault)
        entries = Site.of_folder(self.vault).ledger.entries()
        if entries:
            past["the last entry of the ledger"] = datetime.fromisoformat(entries[-1].time)
        if self.kit is not None:
            past |= {
                f"the beginning of {path.name}": certificate.not_valid_before_utc
                for path, certificate in certificates_of(self.kit.path)
            }
        return clock(past)

    # -- inside

    @property
    def _name(self) -> str:
        return read_bytes(self.vault / "identity.key").decode().partition(" ")[0]

    @cached_property
    def _agreements(self) -> list[Agreement]:
        paths = sorted((self.vault / "plans").glob("*.toml"))
        return [agree_on(TrainingPlan.load(path)) for path in paths]

    @property
    def _need(self) -> int:
        """The most that the approved plans write."""
        needs = [
            4 * most_bytes(agreement)
            + 2
            * agreement.plan.federation.rounds
            * (_ROUND_BYTES + _SILO_BYTES * agreement.terms.silos)
            for agreement in self._agreements
        ]
        return _LOGS_BYTES + sum(needs)


def _others(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
