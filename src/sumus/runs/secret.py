"""The secret that all noise of a run derives from."""

from __future__ import annotations

import hmac
import os

from sumus.books import RunFolder
from sumus.errors import GuaranteeError, StorageError
from sumus.plan import TrainingPlan
from sumus.training import Prepared, bound_to

__all__ = ["fresh_secret", "secret_of"]


def fresh_secret() -> bytes:
    """32 bytes from the operating system."""
    return os.urandom(32)


def secret_of(run: RunFolder, prepared: Prepared, plan: TrainingPlan, *, resumed: bool) -> bytes:
    """The run's 32 secret bytes: drawn once, readable by their owner only, destroyed when the run
    is finished.

    Guarantee: a run goes on only with the records and the model that it began with. The noise of a
        round that is repeated is the same again, so on anything else the two releases would differ
        by what it was to hide.

    Args:
        prepared: records behind the feature map, and the model.
        plan: resolved.
        resumed: the run began in another process.
    """
    if not resumed:
        secret = fresh_secret()
        run.write_secret(secret + bound_to(secret, prepared, plan))
        return secret
    if run.summary is not None:
        return fresh_secret()  # nothing is left to repeat
    stored = run.read_secret()
    if len(stored) != 64:
        raise StorageError(
            f"{run.path / 'secret.key'} must hold 64 bytes, got {len(stored)}. Start a new run."
        )
    secret, bound = stored[:32], stored[32:]
    if not hmac.compare_digest(bound, bound_to(secret, prepared, plan)):
        began = f"{run.path} began with other records, another feature map or another model"
        raise GuaranteeError(
            f"{began}, which its noise belongs to. Resume it with those, or start a new run."
        )
    return secret
