"""What is written down of a round and of a run, the same whether silos are played in one process or
answer across machines.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from sumus.books import RoundEntry, RunFolder
from sumus.errors import StorageError
from sumus.files import replace_atomically
from sumus.guarantee import Account, NoiseDesign
from sumus.parties.round import RoundOutcome
from sumus.plan import TrainingPlan
from sumus.tasks import Task
from sumus.training import Server

__all__ = [
    "NO_LEDGER_HERE",
    "PUBLIC_SEED",
    "entry_of",
    "restore",
    "summary_of",
    "write_model",
]

NO_LEDGER_HERE = "entered by every silo on a ledger of its own"
"""Why a server's run is on no ledger of the server's."""
PUBLIC_SEED = "the silos' noise comes from a public seed (simulation)"
"""Why the guarantee of a run across machines may be void."""

_METRICS = {"simulation": "simulation-only", "secure": "secure"}


def entry_of(
    design: NoiseDesign, outcome: RoundOutcome, names: Sequence[str], *, epsilon: float
) -> RoundEntry:
    """The journal's entry of a round; what only a simulation can know is in it where the outcome
    has it.

    Args:
        names: of all silos, by their places in the plan.
        epsilon: spent with this round; infinite where nothing is promised.
    """
    plan, rules = design.plan, design.resolved.rules
    noisy = rules.private and rules.sums == "updates"  # of moments it is in other units
    summed, metrics, local = outcome.summed, outcome.metrics, outcome.local.values()
    ends = summed.total_grid.min(initial=-1), summed.total_grid.max(initial=1)
    largest = float(max(abs(end) for end in ends))
    gradients = sum(update.records for update in local)
    return RoundEntry(
        round=outcome.number + 1,
        round_id=summed.round_id.hex(),
        epsilon_spent=epsilon,
        delta=plan.privacy.delta,
        survivors=tuple(names[place] for place in sorted(summed.survivors)),
        dropped=tuple(name for place, name in enumerate(names) if place not in summed.survivors),
        metrics={} if metrics is None else metrics.numbers,
        metrics_plus_minus={} if metrics is None else metrics.plus_minus,
        metrics_of_constant={} if metrics is None else metrics.baseline,
        metrics_tables={} if metrics is None else metrics.tables,
        silo_scores=outcome.silo_scores,
        clipped_fraction=sum(update.clipped for update in local) / gradients if gradients else None,
        nonfinite=sum(update.nonfinite for update in local) if local else None,
        saturated=sum(update.saturated for update in local) if local else None,
        headroom_bits=plan.aggregation.modulus_bits - 1 - float(np.log2(largest)),
        update_norm=float(np.linalg.norm(outcome.update)),
        noise_norm_expected=_expected_noise_norm(
            design.in_round(outcome.number), len(summed.survivors)
        )
        if noisy
        else None,
        seconds=dict(outcome.seconds),
        bytes_up=summed.bytes_up,
        bytes_down=summed.bytes_down,
        metrics_are="none" if metrics is None else _METRICS[plan.evaluation.metrics],
        counts_are="simulation-only" if local else "none",
        notes=summed.notes + (() if outcome.refused is None else (outcome.refused,)),
    )


def _expected_noise_norm(design: NoiseDesign, survivors: int) -> float:
    """√(d·Var) of the noise in the averaged update, in parameter units."""
    return design.mechanism.noise_norm(survivors) * abs(design.update_scale)


def summary_of(
    plan: TrainingPlan,
    account: Account | None,
    rounds: Sequence[RoundEntry],
    *,
    void: str | None,
    seconds: float,
) -> dict[str, Any]:
    """How a run ended, as plain values; a run whose guarantee is void has no ε."""
    promised = None if void is not None else account
    # what an earlier model reached is not what the released one does
    last = rounds[-1] if rounds else None
    return {
        **_measured(plan.task, last),
        "metrics_are": "none" if last is None else last.metrics_are,
        "epsilon": None if promised is None else promised.epsilon,
        "delta": None if promised is None else promised.delta,
        "proved": promised is not None and promised.proved,
        "analysis": None if promised is None else promised.analysis,
        "void": void,
        "rounds": len(rounds),
        "lost_rounds": plan.federation.rounds - len(rounds),
        "seconds": seconds,
        "records_per_silo": [] if account is None else list(account.records_per_silo),
        "columns": [] if account is None else list(account.columns),
        "assumptions": [] if account is None else list(account.assumptions),
    }


def _measured(task: Task, last: RoundEntry | None) -> dict[str, Any]:
    """The metrics as one object, and each by its own name, None where it was not measured."""
    values: Mapping[str, float] = {} if last is None else last.metrics
    widths: Mapping[str, float] = {} if last is None else last.metrics_plus_minus
    alone: dict[str, float | None] = {}
    for measure in (*task.measures, *([] if task.spread is None else [task.spread])):
        alone[measure.name] = values.get(measure.name)
        alone[f"{measure.name}_plus_minus"] = widths.get(measure.name)
    return {
        "metrics": dict(values),
        "plus_minus": dict(widths),
        "metrics_of_constant": {} if last is None else dict(last.metrics_of_constant),
        "metrics_tables": {} if last is None else dict(last.metrics_tables),
        **alone,
    }


def restore(server: Server, run: RunFolder) -> None:
    """Put the server where the run's last round left it.

    Guarantee: a run that has released something never goes on from elsewhere, nor from a model that
        its journal does not end with.
    """
    file, stored = run.path / "checkpoint.npz", run.read_checkpoint()
    if stored is None:
        if run.last_round:
            raise StorageError(
                f"{file} is missing after round {run.last_round}. Restore it from a backup."
            )
        # a model of one's own may begin elsewhere the next time
        run.write_checkpoint(server.state(), {"round": 0})
        return
    arrays, meta = stored
    if int(meta["round"]) != run.last_round:
        raise StorageError(
            f"{file} is of round {meta['round']}, the journal of round {run.last_round}. Restore "
            "both."
        )
    server.restore(arrays)


def write_model(run: RunFolder, model: nn.Module) -> None:
    """The released weights as model.pt: whole, or as they were."""
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    replace_atomically(run.path / "model.pt", buffer.getbuffer())
