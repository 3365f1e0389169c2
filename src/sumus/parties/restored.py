"""What a vault that came back from a backup may not answer: everything that it may have answered
since the backup was made, and has forgotten.

VAULT/restored.json     backup, when it was made and restored, and by plan how far it was answered

A server may have asked this silo alone for a round, so neither its journal nor what the other silos
remember says how far the silo went. Only two things do: the silo's own ledger, if it was not lost
(an answer leaves after its entry), and the plan, which has a last sum.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import final

from sumus.errors import PeerProtocolError, StorageError
from sumus.files import from_json, read_bytes, replace_atomically
from sumus.parties.sums import sequence_of
from sumus.plan import TrainingPlan

__all__ = ["RESTORED", "Restored", "last_sum", "sums_of"]

RESTORED = "restored.json"
_FIX = "Restore the backup again, into a new folder."


@final
@dataclass(frozen=True, kw_only=True)
class Restored:
    """What `restored.json` says.

    Guarantee: no sum up to `answered` of its plan is answered, under whatever roster; where
        `known_only`, no plan that is not listed is run.

    Args:
        backup: SHA-256 of what was restored; names the backup.
        made: when the backup was; `restored`: when it came back.
        answered: plan's hash → number of the last sum that counts as answered, −1: none.
        known_only: the ledger was lost with the vault, so a plan that the backup does not know may
            have been answered too.
    """

    backup: str
    made: str
    restored: str
    answered: Mapping[str, int]
    known_only: bool

    @classmethod
    def of_folder(cls, vault: Path) -> Restored | None:
        """Of a vault; None if it never came from a backup."""
        path = vault / RESTORED
        if not path.exists():
            return None
        try:
            return from_json(cls, json.loads(read_bytes(path)), where=str(path))
        except (ValueError, RecursionError):
            raise StorageError(f"{path} is damaged: not a JSON object. {_FIX}") from None

    def write(self, vault: Path) -> None:
        """Put it on the disk."""
        content = json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"
        replace_atomically(vault / RESTORED, content.encode(), secret=True)

    def merged(self, later: Restored) -> Restored:
        """What holds after a second restore: no number falls, and nothing unknown becomes known."""
        answered = {
            plan: max(known.get(plan, -1) for known in (self.answered, later.answered))
            for plan in {**self.answered, **later.answered}
        }
        return replace(later, answered=answered, known_only=self.known_only or later.known_only)

    def vouched(self, plans: Iterable[TrainingPlan]) -> Restored:
        """The silo's own people say of plans that are not listed that they were never run here."""
        return replace(self, answered={plan.hash: -1 for plan in plans} | dict(self.answered))

    def unknown(self, plans: Iterable[TrainingPlan]) -> list[str]:
        """Hashes of those plans that may have been answered and forgotten."""
        hashes = [plan.hash for plan in plans]
        return [each for each in hashes if self.known_only and each not in self.answered]

    def require_runnable(self, plan: TrainingPlan, silo: str) -> None:
        """Refuse a plan that this silo has answered to its end, or may have."""
        if self.unknown([plan]):
            raise PeerProtocolError(
                f"silo {silo!r} was restored from a backup that does not know plan "
                f"{plan.hash[:8]}, and may have answered it before. Its people decide: `sumus join "
                "--never-run`."
            )
        if self.answered.get(plan.hash, -1) >= last_sum(plan):
            raise PeerProtocolError(
                f"silo {silo!r} was restored from a backup and counts every round of plan "
                f"{plan.hash[:8]} as answered. Go on without it, or agree on a new plan with "
                "training.start_from."
            )


def sums_of(plan: TrainingPlan) -> list[tuple[int, str]]:
    """Every secure sum that a silo answers under a plan, in order: number of the round from 0, and
    purpose.
    """
    secure = plan.evaluation.metrics == "secure"
    return [
        (number, purpose)
        for number in range(plan.federation.rounds)
        for purpose in ("model", "metrics")
        if purpose == "model" or (secure and plan.measures_after(number))
    ]


def last_sum(plan: TrainingPlan) -> int:
    """The number of the last secure sum of a plan."""
    return sequence_of(*sums_of(plan)[-1])
