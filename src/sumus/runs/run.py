"""A whole training run: plan in, run folder out; can be stopped at any moment and continued
exactly.

run = sumus.train(plan) run = sumus.train(plan, model=my_torch_module, silos={"Bergen": (x0, y0),
"Oslo": (x1, y1)}, name="visits", classes=3)
"""

from __future__ import annotations

import hmac
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import nn

from sumus.books import DatasetTotal, ReleaseLog, RoundRecord, RunFolder
from sumus.data import FederatedData, data_folder
from sumus.errors import GuaranteeError, StorageError
from sumus.guarantee import (
    Account,
    LiveEpsilon,
    NoiseDesign,
    as_table,
    calibrated,
    certify,
    labelled,
)
from sumus.parties import (
    Federation,
    RoundFacts,
    RoundOutcome,
    Vanishing,
    record_of,
    restore,
    round_identifier,
    summary_of,
    write_model,
)
from sumus.plan import DEFAULT_PLAN, TrainingPlan
from sumus.purity import own_copy, released_model
from sumus.runs.baselines import baselines, constant_baseline
from sumus.runs.given_in_python import class_of, with_model, with_records
from sumus.runs.resuming import as_it_began, how_to_resume, plan_to_resume
from sumus.training import (
    Workbench,
    arithmetic,
    bound_to,
    flat_parameters,
    load_flat,
    named_model,
    prepare,
)

__all__ = ["DEFAULT_PLAN", "RunOptions", "TrainedRun", "train"]


@final
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Speed and paths: nothing here changes what is promised, except a public seed, which voids it.

    Args:
        root: where run folders go.
        name: first part of the folder's name.
        resume: a run folder to continue.
        threads: silos that compute at the same time.
        seed: public seed of a reproducible simulation. It voids the guarantee, and the record says
            so.
        vanishing: drop-outs to simulate; of a round that is repeated the same again, or its sum is
            one over other silos.
        compare: also train without privacy, together and each silo alone.
        ledger: enter every release into the ledger of the data set, in `state` or the default
            folder.
        policy: file with a silo's own policy, enforced before the first round.
    """

    root: Path = Path("runs")
    name: str | None = None
    resume: Path | None = None
    threads: int = field(default_factory=lambda: max(1, os.cpu_count() or 1))
    seed: int | None = None
    vanishing: Vanishing = field(default_factory=dict)
    compare: bool = False
    ledger: bool = True
    state: Path | None = None
    policy: Path | None = None


@final
@dataclass(frozen=True)
class TrainedRun:
    """What a finished run leaves in memory; everything is also in `path`."""

    path: Path
    plan: TrainingPlan
    account: Account | None
    model: nn.Module
    rounds: tuple[RoundRecord, ...]
    baselines: dict[str, float]
    assumptions: tuple[str, ...]
    seconds: float
    void: str | None = None  # why the guarantee does not hold for this run, if it does not
    # of the data set on its ledger, this run included; None if the run was not entered
    spent: DatasetTotal | None = None

    @property
    def metrics(self) -> Mapping[str, float]:
        """The task's measures of the released model by name, as far as the plan measures it."""
        return self.rounds[-1].metrics if self.rounds else {}

    @property
    def score(self) -> str:
        """The task's headline measure of the released model with its half-width, or why there is
        none.
        """
        measure = self.plan.task.headline
        if measure.name not in self.metrics:
            return self.why_not_measured
        width = self.rounds[-1].metrics_plus_minus.get(measure.name)
        return measure.text(self.metrics[measure.name], width)

    @property
    def accuracy(self) -> float | None:
        """Of the released model, where the task is classification."""
        return self.metrics.get("accuracy")

    @property
    def why_not_measured(self) -> str:
        """What stands in the place of a measure that is not there; a simulation measures whenever
        it has records for it.
        """
        return (
            "not measured: no test records"
            if self.plan.evaluation.metrics == "simulation"
            else "not measured"
        )

    @property
    def accuracy_plus_minus(self) -> float | None:
        """Half-width of the accuracy's 95 % interval; None where it is exact, or not measured."""
        return self.rounds[-1].metrics_plus_minus.get("accuracy") if self.rounds else None

    @property
    def loss(self) -> float | None:
        """Of the released model."""
        return self.metrics.get("loss")

    def summary(self) -> dict[str, Any]:
        """Plain values for `--json` and `summary.json`; a void run has no ε."""
        ended = summary_of(
            self.plan.task, self.account, self.rounds, void=self.void, seconds=self.seconds
        )
        ended |= {
            "run": str(self.path),
            "baselines": self.baselines,
            "assumptions": list(self.assumptions),
        }
        return ended | {"ledger": None if self.spent is None else asdict(self.spent)}

    def _repr_html_(self) -> str:
        bound = (
            "no privacy guarantee"
            if self.account is None
            else f"VOID: {self.void}"
            if self.void
            else str(self.account).splitlines()[0]
        )
        lines = [] if self.account is None else labelled(str(self.account).splitlines()[1:])
        measured = f"{self.plan.task.headline.name} {self.score}"
        title = f"{len(self.rounds)} rounds, {measured}, {' '.join(bound.split())}"
        return as_table(title, [*lines, ("run", str(self.path))])


Progress = Callable[[NoiseDesign, RoundRecord], None]


def train(
    plan: TrainingPlan | None = None,
    *,
    model: nn.Module | None = None,
    silos: Sequence[Any] | Mapping[str, Any] | FederatedData | None = None,
    name: str | None = None,
    classes: int | None = None,
    options: RunOptions | None = None,
    progress: Progress | None = None,
    begun: Callable[[NoiseDesign, Account | None, FederatedData], None] | None = None,
) -> TrainedRun:
    """Run the whole federation in this process with the real protocol and the real noise.

    Guarantee: nothing is released unless the plan's ε is certified; every release is on the ledger
        before it happens; a run that was interrupted continues with the same randomness, on the
        same records, model and floating-point arithmetic only, so no round is ever noised twice.

    Args:
        plan: defaults to the embedded digits plan; ignored when resuming.
        model: any module whose forward pass is a pure function of one record, instead of the plan's
            named model; a copy is trained, and what cannot be certified is refused.
        silos: python objects (arrays, tensors or datasets), one per silo or by the silo's name,
            instead of the plan's data section.
        name: of these records, for their ledger; omitted: `data.objects` of the plan, or made of
            public facts (`from_arrays`).
        classes: number of their labels, public; omitted: read off the labels, which is an
            assumption.
        progress: called after every round.
        begun: called once the guarantee is certified.
    """
    options = options or RunOptions()
    began = time.perf_counter()
    if options.resume:
        plan = plan_to_resume(options.resume, seed=options.seed, silos=silos, model=model)
    with as_it_began(options.resume):
        plan, data = with_records(
            plan or TrainingPlan.load(DEFAULT_PLAN), silos, name=name, classes=classes
        )
    plan, facts = with_model(plan, model), data.facts()
    if plan.training.dimension is None and (model is not None or ":" in plan.training.model):
        sized = named_model(plan, facts.shape, facts.labels) if model is None else own_copy(model)
        plan = plan.replace("training", dimension=len(flat_parameters(sized)))
    built = calibrated(plan, facts)
    account = certify(built) if built.resolved.rules.private else None
    if begun is not None:
        begun(built, account, data)
    bench = prepare(built.plan, data, model=model)
    if len(bench.first_parameters) != built.plan.training.dimension:
        rule = (
            f"{built.plan.training.dimension} parameters, the model has "
            f"{len(bench.first_parameters)}"
        )
        raise GuaranteeError(f"training.dimension promises {rule}. Omit it to have it counted.")
    resumed = options.resume.resolve().name if options.resume else None
    releases = (
        ReleaseLog.open(
            built.plan, account, state=options.state, policy=options.policy, resumed=resumed
        )
        if options.ledger and options.seed is None
        else None
    )
    names = tuple(silo.name for silo in data.silos)
    void = "the noise comes from a public seed (simulation)" if options.seed is not None else None
    run = (
        RunFolder.open(options.resume, resume=True)
        if options.resume
        else RunFolder.create(
            built.plan,
            account,
            options.root,
            name=options.name,
            silos=names,
            void=void,
            own_model=None if model is None else class_of(model),
            arithmetic=arithmetic(),
        )
    )
    if silos is None and not options.resume:
        run.note_data_folder(data_folder(plan))
    epsilon: Callable[[int], float] = (
        LiveEpsilon(built) if account is not None else lambda rounds: math.inf
    )
    with _kept(run):
        secret = _secret(run, options, data, bench, built.plan)
        federation = Federation(
            built, bench, secret, options.seed, options.threads, options.vanishing
        )
        restore(federation.server, run)
        loggers = _loggers(built.plan, run.path)
        for number in range(run.last_round, built.plan.federation.rounds):
            if releases is not None:
                identifier = round_identifier(built.plan, number, federation.invited(number))
                releases.enter(run, number + 1, identifier.hex(), epsilon(number + 1))
            outcome = federation.round(number)
            record = _record(
                federation, outcome, names, math.inf if run.void else epsilon(number + 1)
            )
            record = run.commit(record, federation.server.state(), {"round": number + 1})
            for logger in loggers:
                logger.log_round(record)
            if progress is not None:
                progress(built, record)
        for logger in loggers:
            logger.close()
        in_the_clear = options.compare or built.plan.evaluation.metrics == "simulation"
        compared = constant_baseline(built.plan, data) if in_the_clear else {}
        compared |= baselines(built.plan, bench, threads=options.threads) if options.compare else {}
        load_flat(
            bench.model, torch.from_numpy(np.array(federation.server.released, dtype=np.float64))
        )
        seconds = time.perf_counter() - began
        rounds = tuple(run.rounds())
        total = None if releases is None else releases.total()
        released = released_model(bench.model)
        result = TrainedRun(
            run.path,
            built.plan,
            account,
            released,
            rounds,
            compared,
            data.assumptions,
            seconds,
            run.void,
            total,
        )
        write_model(run, released)
        if run.summary is None:
            run.finish(result.summary())
    return result


@contextmanager
def _kept(run: RunFolder) -> Iterator[None]:
    """The open run; whoever interrupts it is told how far it came and how it goes on."""
    try:
        with run:
            yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"after round {run.last_round}; go on with: {how_to_resume(run)}"
        ) from None


def _loggers(plan: TrainingPlan, path: Path) -> list[Any]:
    """The loggers that the plan names; their packages are imported only then."""
    if not plan.report.loggers:
        return []
    from sumus.report import open_loggers

    return list(open_loggers(plan, path))


def fresh_secret() -> bytes:
    """32 bytes from the operating system."""
    return os.urandom(32)


def _secret(
    run: RunFolder, options: RunOptions, data: FederatedData, bench: Workbench, plan: TrainingPlan
) -> bytes | None:
    """The run's 32 secret bytes: drawn once, readable by their owner only, destroyed when the run
    is finished.

    Guarantee: a run goes on only with the records and the model that it began with. The noise of a
        round that is repeated is the same again, so on anything else the two releases would differ
        by what it was to hide.
    """
    if options.seed is not None:
        return None
    if options.resume is None:
        secret = fresh_secret()
        run.write_secret(secret + bound_to(secret, data, bench, plan))
        return secret
    if run.summary is not None:
        return fresh_secret()  # nothing is left to repeat
    stored = run.read_secret()
    if len(stored) != 64:
        raise StorageError(
            f"{run.path / 'secret.key'} must hold 64 bytes, got {len(stored)}. Start a new run."
        )
    secret, bound = stored[:32], stored[32:]
    if not hmac.compare_digest(bound, bound_to(secret, data, bench, plan)):
        began = f"{run.path} began with other records, another feature map or another model"
        raise GuaranteeError(
            f"{began}, which its noise belongs to. Resume it with those, or start a new run."
        )
    return secret


def _record(
    federation: Federation, outcome: RoundOutcome, names: tuple[str, ...], epsilon: float
) -> RoundRecord:
    """What the record keeps of a round, with what only a simulation can know."""
    plan, local = federation.design.plan, outcome.local.values()
    taken = sum(each.records for each in local)
    simulated = plan.evaluation.metrics == "simulation" and outcome.metrics is not None
    facts = RoundFacts(
        number=outcome.number,
        round_id=round_identifier(plan, outcome.number, outcome.invited),
        epsilon=epsilon,
        names=names,
        survivors=outcome.aggregated.survivors,
        total=outcome.aggregated.total,
        update=outcome.update,
        metrics=outcome.metrics,
        seconds=outcome.seconds,
        bytes_up=outcome.aggregated.bytes_up,
        bytes_down=outcome.aggregated.bytes_down,
    )
    headline = federation.design.plan.task.headline.name
    return replace(
        record_of(federation.design, facts),
        silo_scores=tuple(
            part[headline] if part.records else None for part in federation.evaluate_silos()
        )
        if simulated
        else None,
        clipped_fraction=sum(each.clipped for each in local) / taken if taken else None,
        nonfinite=sum(each.nonfinite for each in local),
        saturated=sum(each.saturated for each in local),
        counts_are="simulation-only",
    )
