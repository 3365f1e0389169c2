"""`sumus audit membership`: who was in the training data of a released model? A likelihood-ratio
attack with a few shadow models.

Shadow models are trained by the same plan on random halves of each silo's records. For every record
the attack compares the target's confidence with the shadows that had the record and with those that
did not, both taken as normal with one common spread (few shadows):

    score = log N(φ; mean_in, s²) − log N(φ; mean_out, s²),   φ = log p_y − log(1 − p_y)

The same is done for a model trained without privacy, for comparison. This shows what an attack
*finds*; it is no bound on what there is.

Reference: Carlini et al. 2022 (arXiv:2112.03570), the online attack with global variance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch

from sumus.books import NoLedger
from sumus.data import FederatedData, Records
from sumus.errors import DataError
from sumus.gradients import one_torch_thread
from sumus.guarantee import NoiseDesign
from sumus.parties import RunSecret, federation_in_process
from sumus.plan import ResolvedPlan
from sumus.randomness import RandomSource
from sumus.runs import without_noise
from sumus.training import Prepared, load_flat, prepare

__all__ = ["MembershipAudit", "MembershipCurve", "audit_membership", "roc"]

Floats = npt.NDArray[np.float64]
_RATES = (0.001, 0.01, 0.1)
_LEAST_PLAIN_BATCH = 16.0


@final
@dataclass(frozen=True)
class MembershipCurve:
    """How well members are told from others."""

    name: str
    area: float
    true_rate_at: dict[str, float]
    false_rates: Floats = field(repr=False)
    true_rates: Floats = field(repr=False)

    def as_json(self) -> dict[str, Any]:
        """Plain values; the curve itself stays out."""
        return {"name": self.name, "area": self.area, "true_rate_at_false_rate": self.true_rate_at}


@final
@dataclass(frozen=True)
class MembershipAudit:
    """The attack on the released model, and on one trained without privacy."""

    curves: tuple[MembershipCurve, ...]
    members: int
    others: int
    shadows: int

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "members": self.members,
            "others": self.others,
            "shadows": self.shadows,
            "attacks": [curve.as_json() for curve in self.curves],
        }


def audit_membership(
    design: NoiseDesign,
    data: FederatedData,
    released: Floats | None,
    *,
    shadows: int = 16,
    source: RandomSource | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> MembershipAudit:
    """Attack a released model of this design on this data.

    Args:
        data: its training records are the members, its test and validation records the others.
        released: parameters of the model; trained here if omitted.
        shadows: models per attack, half of the records in each.
    """
    if shadows < 2:
        raise DataError(
            f"shadows must be at least 2, got {shadows}. A record needs models with and without it."
        )
    source = source or RandomSource()
    quiet = design.resolved.replace("evaluation", metrics="none")
    private = NoiseDesign.of(quiet.replace("aggregation", protocol="trusted"))
    curves = []
    for name, chosen in (
        (f"with privacy ({design.plan.training.algorithm})", private),
        ("without privacy (fedavg)", _plain(private, data)),
    ):
        bench = prepare(chosen.plan, data)
        pool = _pool(bench)
        if not pool.member.any() or pool.member.all():
            raise DataError(
                f"{data.name} needs both training and test records to tell them apart. Set "
                "data.test_fraction."
            )
        target = (
            released
            if released is not None and chosen is private
            else _train(chosen, bench, source)
        )
        confidence = _confidence(bench, target, pool.records)
        shadow_confidences, held = [], []
        for number in range(shadows):
            progress(f"{name}: shadow {number + 1} of {shadows}")
            half, had = _half(bench, pool, source)
            shadow_confidences.append(
                _confidence(bench, _train(chosen, half, source), pool.records)
            )
            held.append(had)
        scores = _scores(confidence, np.stack(shadow_confidences), np.stack(held))
        curves.append(_curve(name, scores, pool.member))
    members = int(pool.member.sum())
    return MembershipAudit(tuple(curves), members, len(pool.member) - members, shadows)


@final
@dataclass(frozen=True)
class _Pool:
    """All records of all silos in one row, with whose and what they are, unit by unit."""

    records: Records
    silo: npt.NDArray[np.int64]
    member: npt.NDArray[np.bool_]


def _pool(bench: Prepared) -> _Pool:
    parts = [
        (number, part, part is silo.train)
        for number, silo in enumerate(bench.data.silos)
        for part in (silo.train, silo.validation, silo.test)
    ]
    return _Pool(
        Records.joined([part for _, part, _ in parts]),
        np.concatenate([np.full(part.units, number) for number, part, _ in parts]),
        np.concatenate([np.full(part.units, member) for _, part, member in parts]),
    )


def _half(
    bench: Prepared, pool: _Pool, source: RandomSource
) -> tuple[Prepared, npt.NDArray[np.bool_]]:
    """Every record, or person, in or out by a fair coin; no silo gets more than it had for
    training.
    """
    had = source.coins(0.5, len(pool.member))
    nothing = pool.records.take(np.zeros(0, dtype=np.int64))
    silos = []
    for number, silo in enumerate(bench.data.silos):
        chosen, most = np.flatnonzero(had & (pool.silo == number)), silo.train.units
        had[chosen[most:]] = False
        train = pool.records.take(chosen[:most])
        silos.append(replace(silo, train=train, validation=nothing, test=nothing))
    return Prepared(
        replace(bench.data, silos=tuple(silos)), bench.model, bench.first_parameters, bench.loss
    ), had


def _train(design: NoiseDesign, bench: Prepared, source: RandomSource) -> Floats:
    federation = federation_in_process(
        design,
        bench,
        RunSecret(source.bytes(32), design.plan.hash),
        releases=NoLedger("audit: nothing leaves this process"),
    )
    with one_torch_thread():
        for _ in federation.rounds():
            pass
    return federation.server.released


def _plain(design: NoiseDesign, data: FederatedData) -> NoiseDesign:
    """The same federation without noise: FedAvg with batches of about the plan's size, an epoch a
    round.
    """
    mean = float(np.mean([len(silo.train) for silo in data.silos]))
    batch = min(max(design.resolved.divisor, _LEAST_PLAIN_BATCH), mean)
    plan = without_noise(
        design.plan, sampling_rate=batch / mean, local_steps=max(1, round(mean / batch))
    )
    return NoiseDesign.of(ResolvedPlan.of(plan, design.resolved.silo_names))


def _confidence(bench: Prepared, parameters: Floats, records: Records) -> Floats:
    """φ = log p_y − log(1 − p_y), finite; of a person the mean over its rows."""
    load_flat(bench.model, torch.tensor(parameters, dtype=torch.float32))
    with torch.no_grad():
        logits = bench.model(torch.from_numpy(records.x)).double()
        if logits.shape[1] == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        own = logits.gather(1, torch.from_numpy(records.y)[:, None])
        others = logits.scatter(1, torch.from_numpy(records.y)[:, None], -torch.inf).logsumexp(
            1, keepdim=True
        )
        rows = np.asarray((own - others)[:, 0].clamp(-50.0, 50.0).numpy(), dtype=np.float64)
    if records.persons is None:
        return rows
    return np.add.reduceat(records.weights("mean") * rows, records.edges[:-1])


def _scores(target: Floats, shadows: Floats, held: npt.NDArray[np.bool_]) -> Floats:
    """Log-likelihood ratio of every record; a record that all or no shadows had scores zero."""
    counts_in, counts_out = held.sum(axis=0), (~held).sum(axis=0)
    mean_in = np.where(held, shadows, 0.0).sum(axis=0) / np.maximum(counts_in, 1)
    mean_out = np.where(~held, shadows, 0.0).sum(axis=0) / np.maximum(counts_out, 1)
    residual = shadows - np.where(held, mean_in, mean_out)
    spread2 = max(float(np.square(residual).mean()), 1e-12)
    ratio = (np.square(target - mean_out) - np.square(target - mean_in)) / (2.0 * spread2)
    return np.asarray(np.where((counts_in > 0) & (counts_out > 0), ratio, 0.0))


def roc(scores: Floats, member: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """False and true positive rates over all thresholds, ties taken together."""
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.diff(scores[order]) != 0.0, True)
    true_rates = np.cumsum(member[order])[last] / member.sum()
    false_rates = np.cumsum(~member[order])[last] / (~member).sum()
    return np.concatenate([[0.0], false_rates]), np.concatenate([[0.0], true_rates])


def _curve(name: str, scores: Floats, member: npt.NDArray[np.bool_]) -> MembershipCurve:
    false_rates, true_rates = roc(scores, member)
    at = {f"{rate:g}": _at(false_rates, true_rates, rate) for rate in _RATES}
    return MembershipCurve(
        name, float(np.trapezoid(true_rates, false_rates)), at, false_rates, true_rates
    )


def _at(false_rates: Floats, true_rates: Floats, rate: float) -> float:
    return float(true_rates[np.searchsorted(false_rates, rate, side="right") - 1])


def released_of(arrays: dict[str, npt.NDArray[Any]], weight: float) -> Floats:
    """The released parameters of a checkpoint: its iterate, or the running mean that the plan asks
    for.
    """
    needed = ("iterate", "mean") if weight > 0.0 else ("iterate",)
    missing: Sequence[str] = [name for name in needed if name not in arrays]
    if missing:
        raise DataError(
            f"checkpoint lacks {missing[0]!r}; it is not one of a finished run. Name a run folder."
        )
    iterate = np.asarray(arrays["iterate"], dtype=np.float64)
    return iterate if weight == 0.0 else (1.0 - weight) * iterate + weight * arrays["mean"]
