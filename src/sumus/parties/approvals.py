"""The plans that a silo's people have approved, also while their silo runs.

VAULT/plans/HASH.toml     one a file: a plan counts from the moment that its file is there, and no
                          longer than that; under a version of Sumus that knows other keys, and so
                          gives it another hash, it does not count
VAULT/plans.lock          one approval or withdrawal at a time

A vault that runs looks into the folder before every answer (`SiloParty`), so nobody has to start it
again. A plan is on the audit trail before its file is there, and gone before the trail says so: what
a process that was killed leaves behind is a plan that does not run.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import final

from sumus.books import Policy
from sumus.errors import StorageError, SumusError
from sumus.events import PlanApproved, PlanWithdrawn, Trail
from sumus.files import FileLock, replace_atomically, sync_directory
from sumus.parties.agreement import Agreement, agree_on
from sumus.parties.restored import Restored
from sumus.parties.retiring import require_not_retired
from sumus.parties.trails import digest_of, silo_trail
from sumus.plan import TrainingPlan

__all__ = [
    "ApprovedPlans",
    "approve",
    "notice_plans",
    "of_other_versions",
    "replace_policy",
    "require_known",
    "withdraw",
]

_Stamp = tuple[int, int, int, int]


@final
class ApprovedPlans:
    """The folder of plans, read again only where it has changed.

    Args:
        vault: whose people have approved them.
    """

    def __init__(self, vault: Path) -> None:
        self._folder = vault / "plans"
        self._read: dict[Path, tuple[_Stamp, TrainingPlan]] = {}

    def __iter__(self) -> Iterator[TrainingPlan]:
        """All of them; raises if one cannot be read."""
        for path in sorted(self._folder.glob("*.toml")):
            if _is_of_this_version(path, plan := self._at(path)):
                yield plan

    def named(self, plan_hash: str) -> TrainingPlan | None:
        """The one with this hash; a file that cannot be read approves nothing."""
        for path in sorted(self._folder.glob("*.toml")):
            with contextlib.suppress(SumusError, OSError):
                plan = self._at(path)
                if plan.hash == plan_hash and _is_of_this_version(path, plan):
                    return plan
        return None

    def file_of(self, plan_hash: str) -> Path | None:
        """Where the one with this hash stands."""
        plan = self.named(plan_hash)
        return next((path for path, (_, each) in self._read.items() if each is plan), None)

    def _at(self, path: Path) -> TrainingPlan:
        about = path.stat()
        stamp = (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        known = self._read.get(path)
        if known is None or known[0] != stamp:
            self._read = {each: kept for each, kept in self._read.items() if each.exists()}
            known = self._read[path] = stamp, TrainingPlan.load(path)
        return known[1]


def of_other_versions(vault: Path) -> list[str]:
    """The hashes under which plans were approved that this version of Sumus hashes otherwise: what
    was answered of them is remembered under these, so they must not run under another.
    """
    found = []
    for path in sorted((vault / "plans").glob("*.toml")):
        with contextlib.suppress(SumusError, OSError):
            if not _is_of_this_version(path, TrainingPlan.load(path)):
                found.append(path.stem)
    return found


def _is_of_this_version(path: Path, plan: TrainingPlan) -> bool:
    """Whether a plan still has the hash under which it was approved, where its file's name says
    so.
    """
    return re.fullmatch("[0-9a-f]{64}", path.stem) is None or path.stem == plan.hash


def approve(
    folder: Path, plans: Iterable[TrainingPlan], *, never_run: bool = False
) -> list[Agreement]:
    """Put plans among those that this silo runs, each certified by this silo's own Sumus.

    Guarantee: a plan is approved when the call returns and on the audit trail before it is; when it
        raises, those that were not approved before may be on the trail and are not approved.

    Args:
        never_run: the silo's people know that none of them was run here before the vault was
            restored from a backup that does not know it.
    """
    agreements = [agree_on(plan) for plan in plans]
    with _one_at_a_time(folder) as trail:
        require_known(folder, [agreement.plan for agreement in agreements], never_run=never_run)
        for agreement in agreements:
            plan = agreement.plan
            if f"plan {plan.hash}" not in trail.known:
                trail.append(PlanApproved(plan=plan.hash))
            replace_atomically(folder / "plans" / f"{plan.hash}.toml", plan.to_toml().encode())
    return agreements


def withdraw(folder: Path, plan_hash: str) -> None:
    """Take a plan from those that this silo runs.

    Guarantee: when the call returns, or raises after the plan's file is gone, no further message of
        the plan is answered with anything but a refusal, by a vault that runs or by one that starts.
    """
    with _one_at_a_time(folder) as trail:
        approved = ApprovedPlans(folder)
        if approved.named(plan_hash) is None:
            raise StorageError(
                f"plan {plan_hash[:8]} is not one that {folder} has approved. `sumus silo plans` "
                "lists them."
            )
        while (path := approved.file_of(plan_hash)) is not None:  # whoever copied it here twice
            path.unlink()
            sync_directory(path.parent)
        trail.append(PlanWithdrawn(plan=plan_hash))


def replace_policy(folder: Path, text: str) -> None:
    """Give a vault another policy, which counts from its next message on.

    Args:
        text: of a policy that names the vault's roster, as a file has it.
    """
    limit, content = Policy.from_toml(text).max_epsilon, text.encode()
    with _one_at_a_time(folder) as trail:
        trail.notice(policy=digest_of(content), limit=math.inf if limit is None else limit)
        replace_atomically(folder / "policy.toml", content)


def require_known(
    folder: Path, plans: Sequence[TrainingPlan], *, never_run: bool, write: bool = True
) -> None:
    """Refuse plans that a restored vault may have answered and forgotten, unless its people know
    better.
    """
    restored = Restored.of_folder(folder)
    unknown = [] if restored is None else restored.unknown(plans)
    if restored is None or not unknown:
        return
    if not never_run:
        raise StorageError(
            f"plan {unknown[0][:8]} is not in the backup of {restored.made[:10]} that {folder} "
            "came from: it may have been answered since, and forgotten. If this silo has never run it, "
            "say so with --never-run; otherwise agree on a new plan."
        )
    if write:
        restored.vouched(plans).write(folder)


def notice_plans(trail: Trail) -> None:
    """Write down which plans were approved or withdrawn since the trail was written to, by whatever
    hand.
    """
    with _held(trail.folder):
        there = set()
        for path in (trail.folder / "plans").glob("*.toml"):
            with contextlib.suppress(SumusError):  # a plan that cannot be read cannot run
                if _is_of_this_version(path, plan := TrainingPlan.load(path)):
                    there.add(plan.hash)
        known = {fact.removeprefix("plan ") for fact in trail.known if fact.startswith("plan ")}
        changes = [
            *(PlanApproved(plan=plan) for plan in sorted(there - known)),
            *(PlanWithdrawn(plan=plan) for plan in sorted(known - there)),
        ]
        if changes:
            trail.append(*changes)


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[Trail]:
    """The trail of a vault whose plans nobody else changes meanwhile."""
    with _held(folder):
        require_not_retired(folder)
        yield silo_trail(folder)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    with FileLock(folder / "plans.lock").waiting():
        yield
