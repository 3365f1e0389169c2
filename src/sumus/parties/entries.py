"""What is written down of a round and of a run, the same whether silos are played in one process or
answer across machines.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumus.books import Guarantee, RoundRecord, RunFolder
from sumus.errors import StorageError
from sumus.files import replace_atomically
from sumus.guarantee import Account, NoiseDesign
from sumus.tasks import Metrics, Task
from sumus.training import Server

__all__ = ["RoundFacts", "record_of", "restore", "summary_of", "write_model"]


@final
@dataclass(frozen=True, kw_only=True)
class RoundFacts:
    """What a server knows when a round is over.

    Args:
        number: counted from 0.
        round_id: the name of the round in the protocol's messages.
        epsilon: spent with this round; infinite where nothing is promised.
        names: of all silos, in the order of their numbers.
        survivors: numbers of the silos that are in the sum.
        total: the decoded sum.
        update: the averaged update that moved the model.
        metrics: of the released model, if they are known when the round is written down.
    """

    number: int
    round_id: bytes
    epsilon: float
    names: Sequence[str]
    survivors: frozenset[int]
    total: npt.NDArray[Any]
    update: npt.NDArray[np.float64]
    metrics: Metrics | None
    seconds: Mapping[str, float] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0


_METRICS = {"simulation": "simulation-only", "secure": "secure"}


def record_of(design: NoiseDesign, facts: RoundFacts) -> RoundRecord:
    """The line of a round; what only a simulation can know is not in it."""
    plan, noisy = design.plan, design.resolved.rules.private
    largest = max(float(np.abs(facts.total).max(initial=1.0)), 1.0)
    return RoundRecord(
        round=facts.number + 1,
        round_id=facts.round_id.hex(),
        epsilon_spent=facts.epsilon,
        delta=plan.privacy.delta,
        survivors=tuple(facts.names[silo] for silo in sorted(facts.survivors)),
        dropped=tuple(name for silo, name in enumerate(facts.names) if silo not in facts.survivors),
        metrics={} if facts.metrics is None else facts.metrics.numbers,
        metrics_plus_minus={} if facts.metrics is None else facts.metrics.plus_minus,
        headroom_bits=plan.aggregation.modulus_bits - 1 - float(np.log2(largest)),
        update_norm=float(np.linalg.norm(facts.update)),
        noise_norm_expected=_expected_noise_norm(design, len(facts.survivors)) if noisy else None,
        seconds=dict(facts.seconds),
        bytes_up=facts.bytes_up,
        bytes_down=facts.bytes_down,
        metrics_are="none" if facts.metrics is None else _METRICS[plan.evaluation.metrics],
    )


def _expected_noise_norm(design: NoiseDesign, survivors: int) -> float:
    """√(d·Var) of the noise in the averaged update, in parameter units."""
    return design.mechanism.noise_norm(survivors) * abs(design.update_scale)


def summary_of(
    task: Task,
    guarantee: Account | Guarantee | None,
    rounds: Sequence[RoundRecord],
    *,
    void: str | None,
    seconds: float,
) -> dict[str, Any]:
    """How a run ended, as plain values; a run whose guarantee is void has no ε."""
    promised = None if void is not None else guarantee
    # what an earlier model reached is not what the released one does
    last = rounds[-1] if rounds else None
    return {
        **_measured(task, last),
        "metrics_are": "none" if last is None else last.metrics_are,
        "epsilon": None if promised is None else promised.epsilon,
        "delta": None if promised is None else promised.delta,
        "proved": promised is not None and promised.proved,
        "analysis": None if promised is None else promised.analysis,
        "void": void,
        "rounds": len(rounds),
        "seconds": seconds,
        "records_per_silo": [] if guarantee is None else list(guarantee.records_per_silo),
        "columns": [] if guarantee is None else list(guarantee.columns),
        "assumptions": [] if guarantee is None else list(guarantee.assumptions),
    }


def _measured(task: Task, last: RoundRecord | None) -> dict[str, Any]:
    """The metrics as one object, and each by its own name, None where it was not measured."""
    values: Mapping[str, float] = {} if last is None else last.metrics
    widths: Mapping[str, float] = {} if last is None else last.metrics_plus_minus
    alone: dict[str, float | None] = {}
    for measure in task.measures:
        alone[measure.name] = values.get(measure.name)
        alone[f"{measure.name}_plus_minus"] = widths.get(measure.name)
    return {"metrics": dict(values), **alone}


def restore(server: Server, run: RunFolder) -> None:
    """Put the server where the run's last round left it.

    Guarantee: a run that has released something never goes on from elsewhere, nor from a model that
        its record does not end with.
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
            f"{file} is of round {meta['round']}, the record of round {run.last_round}. Restore "
            "both."
        )
    server.restore(arrays)


def write_model(run: RunFolder, model: nn.Module) -> None:
    """The released weights as model.pt: whole, or as they were."""
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    replace_atomically(run.path / "model.pt", buffer.getvalue())
