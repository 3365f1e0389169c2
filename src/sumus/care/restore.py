"""A vault out of a backup, which answers no round that it may have answered before.

Between the backup and the loss the silo may have answered more rounds, and the entries of these
releases may be lost with the vault. Nobody else can say how many there were: a server may have
asked this silo alone. So

- if the **ledger** was lost too, every round that is left of every plan in the backup counts as
  released and as answered: it is entered into the ledger, and never answered;
- if the ledger **survived**, it says exactly what left, because an answer leaves after its entry:
  the silo goes on behind the last of them.

Either way the vault comes back without any key of a session. The next round needs keys that go
round anew, so no mask of before is ever made again.

Guarantee: whatever was answered before, under whatever plan of the backup, (1) no sum of it is
    answered again, and (2) the ledger counts its release. With a ledger that survived this holds
    for every plan; without one, a plan that the backup does not know is not run until the silo's people
    say that it never was (`Restored`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import final

from sumus.books import Ledger, Policy, RunSpending
from sumus.care.backup import KEY, LEDGER, Backup
from sumus.errors import DataError, StorageError
from sumus.events import BackupRestored, Trail
from sumus.files import make_directory, replace_atomically, sync_directory
from sumus.parties import (
    Restored,
    SeenLedger,
    SiloState,
    Site,
    agree_on,
    last_sum,
    releases_on,
    run_on_ledger,
    sequence_of,
    sums_of,
    vault_memory,
)
from sumus.plan import TrainingPlan
from sumus.secagg import public_key_of

__all__ = ["Charge", "Restoration", "rehearse", "require_empty", "restore_vault"]


@final
@dataclass(frozen=True, kw_only=True)
class Charge:
    """What a plan of the backup comes to.

    Args:
        plan_hash: of the plan.
        answered: number of the last sum that counts as answered; −1: none.
        last: number of its last sum.
        presumed: releases that were entered because they may have happened.
        spent: the plan's releases on the ledger afterwards, by purpose.
    """

    plan_hash: str
    answered: int
    last: int
    presumed: int
    spent: tuple[RunSpending, ...]

    @property
    def is_over(self) -> bool:
        """Whether no round of it will be answered."""
        return self.answered >= self.last


@final
@dataclass(frozen=True, kw_only=True)
class Restoration:
    """What was restored, or would be.

    Args:
        ledger_survived: as the silo's people said.
        entries: of the ledger that came from the backup.
        charges: by plan.
    """

    backup: Backup
    vault: Path
    ledger: Path
    ledger_survived: bool
    entries: int
    charges: tuple[Charge, ...]


def restore_vault(
    backup: Backup,
    vault: Path,
    *,
    state: Path,
    key_text: str | None = None,
    ledger_survived: bool = False,
    also: Sequence[TrainingPlan] = (),
) -> Restoration:
    """Make a vault that was lost anew.

    Guarantee: see above; the vault is there, whole and on the disk, when the call returns, or it is
        not there. A call that was interrupted may be made again, and charges nothing twice.

    Args:
        vault: must not exist, or be empty.
        state: the organisation's folder of ledgers.
        key_text: of the silo's key, where the backup has none.
        ledger_survived: the silo's people know that the ledger in `state` is the one that the vault
            has written to until the end, and no copy of it.
        also: plans that were approved after the backup was made; they are charged like its own.
    """
    require_empty(vault)
    key = _key_of(backup, key_text)
    make_directory(vault.parent)
    staging = Path(tempfile.mkdtemp(prefix=f".{vault.name}.", dir=vault.parent))
    try:
        _unpack(backup, staging, state=state, key=key)
        ledger = Ledger.of_dataset(backup.manifest.dataset, state=state)
        entries = _restored_ledger(backup, ledger, staging, survived=ledger_survived)
        plans = _plans(staging, also)
        past = _Past(backup.manifest.silo, ledger, state)
        if ledger_survived:
            charges = [_exact(plan, past) for plan in plans]
            known = past.answered_by_plan()
        else:
            policy = Policy.load(staging / "policy.toml")
            charges = [_worst(plan, past, policy, backup) for plan in plans]
            known = {}
        floors = {**known, **{charge.plan_hash: charge.answered for charge in charges}}
        _write_restored(staging, backup, floors, known_only=not ledger_survived)
        SeenLedger(staging, ledger).note()
        trail = Trail(staging, party="silo", memory=vault_memory(staging, name=vault.name))
        trail.append(BackupRestored(digest=backup.name))
        if vault.exists():
            vault.rmdir()
        os.rename(staging, vault)
        sync_directory(vault.parent)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return Restoration(
        backup=backup,
        vault=vault,
        ledger=ledger.path,
        ledger_survived=ledger_survived,
        entries=entries,
        charges=tuple(charges),
    )


def rehearse(
    backup: Backup,
    *,
    state: Path,
    key_text: str | None = None,
    ledger_survived: bool = False,
    also: Sequence[TrainingPlan] = (),
) -> Restoration:
    """What `restore_vault` would come to, on copies of the ledgers that are gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        copies = Path(name) / "state"
        copies.mkdir()
        for path in sorted(state.glob("ledger-*")):  # heads first: a writer may be between the two
            if not path.name.endswith(".lock"):
                shutil.copy(path, copies)
        return restore_vault(
            backup,
            Path(name) / "vault",
            state=copies,
            key_text=key_text,
            ledger_survived=ledger_survived,
            also=also,
        )


def require_empty(vault: Path) -> None:
    """Refuse to restore over a vault."""
    if vault.exists() and (not vault.is_dir() or any(vault.iterdir())):
        raise StorageError(
            f"{vault} must not exist, or be an empty folder: what is there may know of later "
            "rounds than the backup. Move it away."
        )


def _key_of(backup: Backup, key_text: str | None) -> bytes:
    """The silo's key, from the backup or as it was given; must be the one on the roster."""
    stored = backup.files.get(KEY)
    text = stored.decode() if stored is not None else key_text
    silo = backup.manifest.silo
    if text is None:
        raise DataError(
            f"the backup was made without the key of {silo!r}. Give it with --identity {silo}.key."
        )
    if text.partition(" ")[0] != silo:
        raise DataError(f"the backup is of {silo!r}. Give --identity {silo}.key.")
    if public_key_of(text) != backup.roster.public_keys.get(silo):
        raise DataError(
            f"the key is not the one of {silo!r} on the backup's roster. Give the key that the "
            "silo joined with."
        )
    return text.encode()


def _unpack(backup: Backup, folder: Path, *, state: Path, key: bytes) -> None:
    """The backup's files; the ledger's copy beside them under its own name."""
    for name, content in backup.files.items():
        path = folder / name
        for above in reversed(path.relative_to(folder).parents[:-1]):
            (folder / above).mkdir(mode=0o700, exist_ok=True)
        if name != "site.toml":
            replace_atomically(path, content, secret=True)
    (folder / "site.toml").write_bytes(backup.files["site.toml"])
    Site(data=Site.of_folder(folder).data, ledgers=state).write(folder)
    replace_atomically(folder / KEY, key, secret=True)
    (folder / "plans").mkdir(mode=0o700, exist_ok=True)


def _restored_ledger(backup: Backup, ledger: Ledger, folder: Path, *, survived: bool) -> int:
    """Bring the ledger to where the backup's copy is, at least; returns how many entries it took
    from there.
    """
    copy = folder / LEDGER
    if survived and not ledger.contains(copy):
        raise StorageError(
            f"{ledger.path} lacks entries that the backup has: it is not the ledger that this "
            "vault wrote to until the end. Restore without --ledger-survived."
        )
    taken = 0 if survived else ledger.take_in(copy)
    copy.unlink()
    return taken


def _plans(folder: Path, also: Iterable[TrainingPlan]) -> list[TrainingPlan]:
    """The approved plans of the vault, and others."""
    plans = {plan.hash: plan for plan in SiloState(folder).plans()}
    for plan in also:
        resolved = agree_on(plan).plan
        plans[resolved.hash] = resolved
    return list(plans.values())


@final
class _Past:
    """What the ledgers of an organisation say of one silo's answers.

    Args:
        ledger: of the silo's data set.
        state: the folder of all ledgers: the silo may have had other records for a while.
    """

    def __init__(self, silo: str, ledger: Ledger, state: Path) -> None:
        self.silo, self.ledger = silo, ledger
        others = [each for each in Ledger.all(state=state) if each.path != ledger.path]
        self._ledgers = [ledger, *others]

    def answered_by_plan(self) -> dict[str, int]:
        """Of every plan that the silo was part of, the last sum that has an entry."""
        last: dict[str, int] = {}
        for ledger in self._ledgers:
            for entry in ledger.entries():
                if entry.run == run_on_ledger(entry.plan_hash, self.silo):
                    number = sequence_of(entry.round - 1, entry.purpose)
                    last[entry.plan_hash] = max(number, last.get(entry.plan_hash, -1))
        return last

    def latest(self, plan_hash: str) -> int:
        """The sum of a plan that was entered last into the ledger of these records; −1: none.

        Not the largest: a plan that runs again after its vault was lost begins anew.
        """
        numbers = [
            sequence_of(entry.round - 1, entry.purpose)
            for entry in self.ledger.entries()
            if entry.run == run_on_ledger(plan_hash, self.silo)
        ]
        return numbers[-1] if numbers else -1

    def spent(self, plan_hash: str) -> tuple[RunSpending, ...]:
        """The plan's releases from these records."""
        name = run_on_ledger(plan_hash, self.silo)
        return tuple(spent for spent in self.ledger.runs() if spent.run == name)


def _exact(plan: TrainingPlan, past: _Past) -> Charge:
    """What the surviving ledger says of a plan: an answer leaves after its entry."""
    return Charge(
        plan_hash=plan.hash,
        answered=past.answered_by_plan().get(plan.hash, -1),
        last=last_sum(plan),
        presumed=0,
        spent=past.spent(plan.hash),
    )


def _worst(plan: TrainingPlan, past: _Past, policy: Policy, backup: Backup) -> Charge:
    """Enter whatever is left of a plan: all of it may have left since."""
    policy.check_imports(plan)
    agreement = agree_on(plan)
    behind = past.latest(plan.hash)
    left = [each for each in sums_of(plan) if sequence_of(*each) > behind]
    presumed = 0
    if left:
        releases = releases_on(agreement, past.ledger, None, silo=past.silo)
        presumed = releases.presume(left, reason=backup.name)
    return Charge(
        plan_hash=plan.hash,
        answered=last_sum(plan),
        last=last_sum(plan),
        presumed=presumed,
        spent=past.spent(plan.hash),
    )


def _write_restored(
    folder: Path, backup: Backup, answered: dict[str, int], *, known_only: bool
) -> None:
    later = Restored(
        backup=backup.name,
        made=backup.manifest.made,
        restored=datetime.now(UTC).isoformat(timespec="seconds"),
        answered=answered,
        known_only=known_only,
    )
    earlier = Restored.of_folder(folder)
    (later if earlier is None else earlier.merged(later)).write(folder)
