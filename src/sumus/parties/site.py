"""A silo's vault, filled in by its own people: identity, roster, approved plans, where its records
and its ledger are, and its policy.

`sumus join` writes it, the vault's process opens it, and nothing that comes from a server is ever
written to it. It is outside of the kit, and the ledger is outside of it: kits and rosters come and
go, what a data set has spent stays.
"""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from sumus.books import Ledger, LedgerReleases, Policy, state_directory
from sumus.data import FeaturesFor, FederatedData, load_silo
from sumus.errors import DataError, StorageError
from sumus.events import Refused, RunReceived, Seldom
from sumus.files import name_of_file, read_bytes, replace_atomically
from sumus.guarantee import LiveEpsilon
from sumus.parties.agreement import Agreement, agree_on
from sumus.parties.approvals import notice_plans
from sumus.parties.inbox import Inbox
from sumus.parties.memory import SiloState
from sumus.parties.received import DeliveryNote, Shelf
from sumus.parties.retiring import require_not_retired
from sumus.parties.rosters import ROSTER, pinned, read_rosters, write_rosters
from sumus.parties.seen_ledger import Noted, SeenLedger, tell_releases
from sumus.parties.silo import SiloParty
from sumus.parties.trails import notice_vault, silo_trail
from sumus.parties.work import work_on
from sumus.plan import TrainingPlan
from sumus.secagg import Identity, Roster, RosterHistory, public_key_of

__all__ = [
    "Site",
    "open_party",
    "own_releases",
    "releases_on",
    "require_unchanged",
    "run_on_ledger",
    "settle",
    "silo_of",
    "vault_folder",
]

_TABLES = (
    *(".csv", ".tsv", ".txt", ".gz", ".bz2", ".xz", ".zst", ".xlsx", ".toml"),
    *(".parquet", ".pq", ".feather", ".arrow", ".arrows"),
)


def vault_folder(roster: Roster, silo: str, *, state: Path | None = None) -> Path:
    """Where a silo of a federation keeps its vault: below the organisation's state folder, apart
    from those of other federations.

    Args:
        roster: the first of the federation, which later ones follow.
    """
    return (state or state_directory()) / "silos" / roster.digest().hex()[:16] / silo


@final
@dataclass(frozen=True, kw_only=True)
class Site:
    """Where a silo's records are and which ledger counts them.

    Args:
        data: a file or folder of this silo's records, a file with its own query, or the name of an
            embedded data set for trials.
        ledgers: the organisation's state folder; None: as the environment says.
        received: where the silo's people find runs that were handed out; None: in the vault.
    """

    data: str
    ledgers: Path | None = None
    received: Path | None = None

    @classmethod
    def of_folder(cls, folder: Path) -> Site:
        """What `settle` wrote."""
        path = folder / "site.toml"
        try:
            entries = tomllib.loads(read_bytes(path).decode())
            received = entries.get("received")
            return cls(
                data=str(entries["data"]),
                ledgers=Path(str(entries["ledgers"])),
                received=None if received is None else Path(str(received)),
            )
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError):
            raise StorageError(
                f'{path} must say data = "…" and ledgers = "…". Run `sumus join` again.'
            ) from None

    def write(self, folder: Path) -> None:
        """Put it into a vault."""
        ledgers = (self.ledgers or state_directory()).absolute()
        places = {"data": self.data, "ledgers": str(ledgers)}
        if self.received is not None:
            places["received"] = str(self.received.absolute())
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in places.items())
        replace_atomically(folder / "site.toml", lines.encode())

    def shelf(self, vault: Path) -> Shelf:
        """Where runs lie that were handed out to this silo."""
        return Shelf(vault / "received" if self.received is None else self.received)

    @property
    def ledger(self) -> Ledger:
        """Of the data set, in the organisation's state folder."""
        return Ledger.of_dataset(self.dataset, state=self.ledgers)

    @property
    def is_file(self) -> bool:
        return Path(self.data).suffix.lower() in _TABLES or Path(self.data).exists()

    @property
    def dataset(self) -> str:
        """The ledger that every release of these records is entered into."""
        return name_of_file(self.data) if self.is_file else self.data

    def load(
        self, plan: TrainingPlan, silo: str, *, features: FeaturesFor | None = None
    ) -> FederatedData:
        """This silo's records as the plan encodes them; the plan's own path is never opened, and
        which sheet of a workbook is read is the silo's choice too.
        """
        if self.is_file:
            if plan.data.path is None:
                raise DataError(
                    f"the plan uses the data set {plan.data.name!r}, this silo joined with a file. "
                    "Join with --data NAME."
                )
            plan = plan.replace("data", path=self.data, sheet=None)
            return load_silo(plan, silo, features=features)
        if (plan.data.name or "digits") != self.data or plan.data.path is not None:
            wanted = plan.data.name or plan.data.path
            raise DataError(
                f"the plan uses {wanted!r}, this silo joined with {self.data!r}. Join with the "
                "file of its records."
            )
        return load_silo(plan, silo, features=features)


def settle(
    folder: Path,
    *,
    identity: Identity,
    roster: Roster | RosterHistory,
    data: str,
    policy: Policy | None,
    policy_text: str,
    ledgers: Path | None = None,
    received: Path | None = None,
    key_text: str | None = None,
) -> SiloState:
    """Write who this silo is, whom it trusts to be who, where its records and its ledger are and
    what it allows.

    A roster that is there already must be the same, or one from which a quorum of its silos has led
        to this one: a silo does not change it by accident, and goes back to no earlier one.

    Args:
        received: for runs that are handed out; None: in the vault.
        key_text: what the key's file says, where that is protected by a passphrase.
    """
    state = SiloState(folder)
    require_unchanged(folder, identity=identity, roster=roster)
    if (folder / ROSTER).exists() and state.roster != _history(roster).current:
        state.end_sessions()
    text = key_text or identity.secret_text()
    replace_atomically(folder / "identity.key", text.encode(), secret=True)
    write_rosters(folder, _history(roster))
    Site(data=data, ledgers=ledgers, received=received).write(folder)
    if policy is not None:
        replace_atomically(folder / "policy.toml", policy_text.encode())
    (folder / "plans").mkdir(exist_ok=True, mode=0o700)
    if (folder / "policy.toml").exists():
        trail = silo_trail(folder)
        notice_vault(trail, identity=identity, roster=_history(roster).current)
        notice_plans(trail)
    return state


def require_unchanged(folder: Path, *, identity: Identity, roster: Roster | RosterHistory) -> None:
    """Refuse an identity that the roster does not name, and a roster that does not follow the one
    which the folder trusts.
    """
    require_not_retired(folder)
    rosters = _history(roster)
    current, path = rosters.current, folder / ROSTER
    current.number(identity.name)
    if current.public_keys[identity.name] != identity.public_key:
        fix = f"Join with the key whose {identity.name}.pub is on the roster."
        raise StorageError(f"the roster has another key for silo {identity.name!r}. {fix}")
    if path.exists():
        trusted = Roster.parse(read_bytes(path).decode())
        try:
            rosters.since(trusted.digest())
        except DataError as error:
            raise StorageError(f"{path} is another one already: {error}") from None


def _history(roster: Roster | RosterHistory) -> RosterHistory:
    return RosterHistory.of(roster) if isinstance(roster, Roster) else roster


def own_releases(
    agreement: Agreement, ledger: Ledger, policy: Policy, *, silo: str = ""
) -> LedgerReleases:
    """A silo's own ledger for one plan; refuses a plan whose whole run, measurements included,
    would not fit the silo's policy.

    Args:
        silo: tells the runs of several silos that share a ledger apart.
    """
    releases = releases_on(agreement, ledger, policy, silo=silo)
    policy.check(agreement.account, agreement.plan, ledger, run=releases.run)
    return releases


def releases_on(
    agreement: Agreement, ledger: Ledger, policy: Policy | None, *, silo: str = ""
) -> LedgerReleases:
    """A silo's own ledger for one plan, whatever is on it.

    Args:
        policy: that every release is checked against; None: what has happened asks nobody.
        silo: see `own_releases`.
    """
    return LedgerReleases(
        ledger=ledger,
        policy=policy,
        plan=agreement.plan,
        account=agreement.account,
        run=run_on_ledger(agreement.plan.hash, silo),
        spent=LiveEpsilon(agreement.design).of_rounds,
    )


def silo_of(folder: Path) -> str:
    """The name of a vault's silo; needs no passphrase."""
    public = public_key_of(read_bytes(folder / "identity.key").decode(errors="replace"))
    keys = Roster.parse(read_bytes(folder / ROSTER).decode()).public_keys
    for name, key in keys.items():
        if key == public:
            return name
    raise StorageError(f"the key in {folder} is not on its roster. Run `sumus join` again.")


def run_on_ledger(plan_hash: str, silo: str = "") -> str:
    """What the releases of a plan are called on a silo's ledger: a plan runs once in a
    federation.
    """
    return f"federation-{plan_hash[:16]}" + (f"-{silo}" if silo else "")


def open_party(
    folder: Path,
    *,
    agree: Callable[[TrainingPlan], Agreement] = agree_on,
    passphrase: bytes | None = None,
) -> SiloParty:
    """The silo's party, from what its own people wrote.

    Args:
        agree: from a plan to what follows from it.
        passphrase: of its key, if that is protected.
    """
    require_not_retired(folder)
    state, site = SiloState(folder, passphrase=passphrase), Site.of_folder(folder)
    name = state.name  # opens the key: a wrong passphrase is noticed before anybody asks
    policy, seen = Policy.load(folder / "policy.toml"), SeenLedger(folder, site.ledger)
    if policy.roster_fingerprint is not None and not pinned(policy, read_rosters(folder)):
        raise StorageError(
            f"{folder / 'roster.toml'} is not the roster that {folder / 'policy.toml'} names. Run "
            "`sumus join` again."
        )
    seen.require_whole()
    trail = silo_trail(folder)
    tell_releases(trail, seen.ledger, name)
    notice_vault(trail, identity=state.identity, roster=state.roster)
    notice_plans(trail)
    refusals = Seldom(trail)

    def refused(cause: str, entry: str | None) -> None:
        refusals.append(lambda count: Refused(cause=cause, entry=entry, unwritten=count))

    def kept(note: DeliveryNote, place: Path) -> None:
        told = RunReceived(
            plan=note.plan_hash,
            round=note.round,
            finished=note.finished,
            model=note.model.removeprefix("sha256:"),
            journal=note.head,
        )
        with contextlib.suppress(StorageError, OSError):  # the run is there all the same
            trail.append(told)

    def allowed(plan: TrainingPlan) -> Agreement:
        policy.check_imports(plan)
        return agree(plan)

    def releases(agreement: Agreement) -> Noted:
        notice_plans(trail)  # no release of a plan whose approval the trail does not know
        entered = own_releases(agreement, seen.ledger, policy, silo=name)
        return Noted(entered, seen, trail, name)

    return SiloParty(
        state,
        work=work_on(site.load),
        releases=releases,
        agree=allowed,
        require_post_quantum=policy.require_post_quantum,
        refused=refused,
        inbox=Inbox(state, site.shelf(folder), kept=kept),
    )
