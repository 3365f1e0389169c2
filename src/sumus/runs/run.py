"""A whole training run: plan in, run folder out; can be stopped at any moment and continued
exactly.

    run = sumus.train(plan)
    run = sumus.train(plan, model=my_torch_module,
                      silos={"Bergen": (x0, y0), "Oslo": (x1, y1)}, name="visits", classes=3)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from torch import nn

from sumus.books import (
    Budget,
    Ledger,
    LedgerReleases,
    NoLedger,
    Policy,
    RoundEntry,
    RunFolder,
    dataset_of,
)
from sumus.comparing import baselines_of, compare, constant_baseline, require_simulation
from sumus.data import FederatedData, data_folder
from sumus.errors import GuaranteeError, PlanError
from sumus.events import TrainingEnded, TrainingStarted, tell
from sumus.files import replace_atomically
from sumus.guarantee import Account, LiveEpsilon, NoiseDesign, calibrated, certify
from sumus.parties import RunSecret, Simulation, Telling, federation_in_process
from sumus.plan import DEFAULT_PLAN, TrainingPlan
from sumus.purity import RecordLoss, own_copy
from sumus.runs.callbacks import Callbacks, Told
from sumus.runs.finishing import facts_of, finish, loaded_model
from sumus.runs.given_in_python import Given, class_of, with_loss, with_model, with_records
from sumus.runs.options import RunOptions
from sumus.runs.own_evaluation import Evaluate, OwnEvaluation, require_simulation_of
from sumus.runs.progress import shown
from sumus.runs.resuming import as_it_began, how_to_resume, plan_to_resume
from sumus.runs.room import require_room
from sumus.runs.secret import secret_of
from sumus.runs.starting import FROZEN_START, Start, find_start, with_start
from sumus.runs.trained import TrainedRun
from sumus.training import (
    LocalPart,
    Prepared,
    arithmetic,
    flat_parameters,
    freeze_untrained,
    named_model,
    prepare,
    require_device_of,
)

if TYPE_CHECKING:
    from sumus.report import Logger

__all__ = ["DEFAULT_PLAN", "Simulation", "train"]

Progress = Callable[[NoiseDesign, RoundEntry], None]
_VOID = "the noise comes from a public seed (simulation)"


def train(
    plan: TrainingPlan | None = None,
    *,
    model: nn.Module | None = None,
    silos: Any = None,
    silo: str | None = None,
    label: str | None = None,
    name: str | None = None,
    classes: int | Sequence[str] | None = None,
    groups: Sequence[Any] | Mapping[str, Any] | str | None = None,
    missing: str | None = None,
    options: RunOptions | None = None,
    simulation: Simulation | None = None,
    loss: RecordLoss | None = None,
    callbacks: Callbacks | None = None,
    evaluate: Evaluate | None = None,
    progress: Progress | bool | None = None,
    begun: Callable[[NoiseDesign, Account | None, FederatedData], None] | None = None,
    comparing: Callable[[int, int], None] | None = None,
) -> TrainedRun:
    """Run the whole federation in this process with the real protocol and the real noise.

    Guarantee: nothing is released unless the plan's ε is certified; every release is on the ledger
        before it happens; a run that was interrupted continues with the same randomness, on the
        same records, model and floating-point arithmetic only, so no round is ever noised twice.

    Args:
        plan: defaults to the embedded digits plan; ignored when resuming.
        model: any module whose forward pass is a pure function of one record, instead of the plan's
            named model; a copy is trained, and what cannot be certified is refused.
        silos: records of one's own instead of those that the plan names: one table (a frame of
            pandas, Polars or Arrow, rows by name, …) with a column of silos, or one object per silo
            in a list or by the silo's name: tables, pairs (x, y) of arrays or tensors, datasets,
            loaders.
        silo: the column of one table that says whose record it is; omitted: `data.silo_column`.
        label: the column of tables that is learned; omitted: `data.label_column`.
        name: of these records, for their ledger; omitted: `data.objects` of the plan, or that of
            everything unnamed, which may count too much.
        classes: how many classes their labels have, or the names of the classes, public; omitted:
            read off the labels, which is an assumption.
        groups: whose every row of them is, for `privacy.unit = "person"`: one array of identifiers
            per silo (or by its name), or the name of a table's column.
        missing: "flag" where arrays may hold NaN (`data.missing`).
        options: speed, paths and books.
        simulation: a public seed for all noise. It voids the guarantee, and the journal says so.
        loss: instead of the task's, for algorithms that clip single records: a pure function of one
            record's outputs (1, K) and label (1, …), which returns one number; what cannot be
            certified is refused. Measures stay the task's.
        callbacks: a `Callback`, a function of a round's entry, or several of them; what they raise
            costs no round.
        evaluate: simulations only: a function of the released model and the test records that
            returns numbers by name, called after every measured round. It sees records in the
            clear, and no guarantee covers what it returns.
        progress: True shows the rounds, False does not, None shows them in notebooks; a function is
            called with design and entry after every round, and what it raises stops the run.
        begun: called once the guarantee is certified.
        comparing: called with models done and all models, while others are trained for comparison.
    """
    options, began = options or RunOptions(), time.perf_counter()
    if options.resume:
        seed = None if simulation is None else simulation.seed
        plan = plan_to_resume(options.resume, seed=seed, silos=silos, model=model, loss=loss)
    with as_it_began(options.resume):
        plan, data = with_records(
            plan or TrainingPlan.load(DEFAULT_PLAN),
            silos,
            Given(
                name=name,
                classes=classes,
                groups=groups,
                silo=silo,
                label=label,
                missing=missing,
            ),
            records_too=options.compare or evaluate is not None,
        )
    if options.compare:
        require_simulation(plan)
    start = _start(plan, options)
    plan = plan if start is None else with_start(plan, start)
    design = _designed(with_loss(with_model(plan, model), loss), data, model)
    require_room(design)
    require_simulation_of(design.plan, evaluate)
    if start is not None:
        start.require_fit(design, void=None if simulation is None else _VOID)
    account = certify(design) if design.resolved.rules.private else None
    if begun is not None:
        begun(design, account, data)
    prepared = _prepared(design, data, model, start, loss)
    epsilon = LiveEpsilon(design) if account is not None else _nothing_promised
    open_releases = _releases(design, account, options, simulation, epsilon)
    run = _opened(design, account, options, simulation, open_releases, data, model, start)
    if silos is None and not options.resume:
        run.note_data_folder(data_folder(plan))
    told = Told(callbacks)
    releases = open_releases if isinstance(open_releases, NoLedger) else open_releases(run.name)
    with _kept(run), _set_aside(run, releases), _progress_shown(progress, told):
        told.run_begins(design.plan, account)
        tell(TrainingStarted(plan=design.plan.hash, rounds=design.plan.federation.rounds))
        resumed = options.resume is not None
        party = federation_in_process(
            design,
            prepared,
            simulation
            or RunSecret(secret_of(run, prepared, design.plan, resumed=resumed), run.plan_hash),
            releases=releases,
            threads=options.threads,
            vanishing=options.vanishing,
            epsilon=epsilon,
            stages=told.stage,
        )
        measured = OwnEvaluation(evaluate, party, data, run, told)
        telling = (*_telling(design, run, progress), measured, told)
        for _ in party.train(run, telling=telling):
            pass
        in_the_clear = design.plan.evaluation.metrics == "simulation"
        compared = constant_baseline(design.plan, data) if in_the_clear else {}
        if options.compare:
            told.stage("comparing")
        beside = (
            compare(
                design.plan,
                data,
                prepared,
                party.server.released,
                threads=options.threads,
                progress=comparing,
            )
            if options.compare
            else ()
        )
        module = loaded_model(party)
        facts = facts_of(
            design.plan, module, labels=data.labels, shape=data.shape, encoding=data.encoding
        )
        result = TrainedRun(
            run.path,
            design.plan,
            account,
            module,
            facts,
            tuple(run.rounds()),
            compared | baselines_of(beside),
            data.assumptions if account is None else account.assumptions,
            time.perf_counter() - began,
            run.void,
            None if isinstance(releases, NoLedger) else releases.total(),
            beside,
        )
        finish(run, module, facts, result.summary(), telling)
        tell(TrainingEnded(rounds=len(result.rounds), seconds=result.seconds))
    told.finished(result)
    return result


def _designed(plan: TrainingPlan, data: FederatedData, model: nn.Module | None) -> NoiseDesign:
    """The calibrated design; parameters of a model of one's own are counted."""
    facts = data.facts()
    training = plan.training
    by_name = training.local_parameters not in (None, "intercept")
    by_name = by_name or training.tangent_layers is not None
    if training.dimension is None and (model is not None or ":" in training.model or by_name):
        sized = (
            named_model(plan, facts.shape, facts.labels)
            if model is None
            else freeze_untrained(plan, own_copy(model))
        )
        plan = plan.replace("training", dimension=len(flat_parameters(sized)))
        local = LocalPart.of(plan, sized)
        if local is not None:
            plan = plan.replace("training", local_dimension=len(local.first))
    return calibrated(plan, facts)


def _start(plan: TrainingPlan, options: RunOptions) -> Start | None:
    """The released model to begin with, if the plan or the options name one; a run that goes on
    has it in its checkpoint.
    """
    if options.resume is not None:
        if options.start_from is not None:
            rule = "cannot stand beside resume: a run begins once"
            raise PlanError("start_from", str(options.start_from), rule, "Leave it out.")
        if plan.training.frozen_layers is not None:
            return Start.read(options.resume / FROZEN_START)
        if RunFolder.open(options.resume).read_checkpoint() is not None:
            return None
    if options.start_from is not None:
        return Start.read(options.start_from)
    return None if plan.training.start_from is None else find_start(plan, options.root)


def _prepared(
    design: NoiseDesign,
    data: FederatedData,
    model: nn.Module | None,
    start: Start | None,
    loss: RecordLoss | None,
) -> Prepared:
    """Records and model, ready; refuses a model of another size than the plan accounts for."""
    require_device_of(design.plan)
    frozen = None if start is None else start.frozen
    prepared = prepare(design.plan, data, model=model, loss=loss, frozen=frozen)
    if len(prepared.first_parameters) != design.resolved.dimension:
        rule = (
            f"{design.resolved.dimension} parameters, the model has "
            f"{len(prepared.first_parameters)}"
        )
        raise GuaranteeError(f"training.dimension promises {rule}. Omit it to have it counted.")
    return prepared if start is None else replace(prepared, first_parameters=start.parameters)


def _releases(
    design: NoiseDesign,
    account: Account | None,
    options: RunOptions,
    simulation: Simulation | None,
    epsilon: Callable[[int], float],
) -> NoLedger | Callable[[str], LedgerReleases]:
    """The ledger of the data set, given the run's name, once the policy has agreed to the plan; or
    why there is none.
    """
    if simulation is not None:
        return NoLedger(_VOID)
    if not options.ledger:
        return NoLedger("switched off by whoever ran it")
    ledger = Ledger.of_dataset(dataset_of(design.plan), state=options.state)
    policy = None if options.policy is None else Policy.load(options.policy)
    budget = Budget.of(design.plan, ledger, asked=options.max_epsilon)
    resumed = options.resume.resolve().name if options.resume else None
    if policy is not None:
        policy.check(account, design.plan, ledger, run=resumed)
    elif budget is not None:
        budget.check(account, run=resumed)
    return lambda run: LedgerReleases(
        ledger=ledger,
        policy=policy,
        plan=design.plan,
        account=account,
        run=run,
        spent=epsilon.of_rounds if isinstance(epsilon, LiveEpsilon) else _unbounded,
        repeatable=True,
        budget=budget,
    )


def _opened(
    design: NoiseDesign,
    account: Account | None,
    options: RunOptions,
    simulation: Simulation | None,
    releases: object,
    data: FederatedData,
    model: nn.Module | None,
    start: Start | None,
) -> RunFolder:
    """The run's folder, new or to go on with."""
    if options.resume:
        return RunFolder.open(options.resume, resume=True)
    run = RunFolder.create(
        design.plan,
        account,
        options.root,
        name=options.name,
        silos=tuple(silo.name for silo in data.silos),
        void=None if simulation is None else _VOID,
        own_model=None if model is None else class_of(model),
        arithmetic=arithmetic(design.plan.training.device),
        no_ledger=releases.reason if isinstance(releases, NoLedger) else None,
        start=None if start is None else start.origin,
    )
    if start is not None and start.frozen is not None:
        replace_atomically(run.path / FROZEN_START, start.to_text().encode())
    return run


def _nothing_promised(rounds: int) -> float:
    return math.inf


def _unbounded(numbers: Sequence[int]) -> float:
    return math.inf


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


def _set_aside(run: RunFolder, releases: NoLedger | LedgerReleases) -> AbstractContextManager[None]:
    """What the rounds that are left may spend, kept from other runs until this one ends."""
    if isinstance(releases, NoLedger) or run.summary is not None:
        return nullcontext()
    return releases.reserved()


@final
@dataclass(frozen=True)
class _Logging:
    """Tells a logger of the report."""

    logger: Logger

    def round_entered(self, entry: RoundEntry) -> None:
        """See `Telling.round_entered`."""
        self.logger.log_round(entry)

    def run_ends(self, summary: Mapping[str, Any]) -> None:
        """See `Telling.run_ends`."""
        self.logger.close()


@final
@dataclass(frozen=True)
class _Calling:
    """Tells a function of every round."""

    design: NoiseDesign
    progress: Progress

    def round_entered(self, entry: RoundEntry) -> None:
        """See `Telling.round_entered`."""
        self.progress(self.design, entry)

    def run_ends(self, summary: Mapping[str, Any]) -> None:
        """See `Telling.run_ends`."""


def _telling(
    design: NoiseDesign, run: RunFolder, progress: Progress | bool | None
) -> tuple[Telling, ...]:
    """The loggers that the plan names, whose packages are imported only then, and `progress`."""
    loggers: tuple[Telling, ...] = ()
    if design.plan.report.loggers:
        from sumus.report import open_loggers

        loggers = tuple(map(_Logging, open_loggers(design.plan, run.path)))
    return (*loggers, _Calling(design, progress)) if callable(progress) else loggers


@contextmanager
def _progress_shown(progress: Progress | bool | None, told: Told) -> Iterator[None]:
    """A bar among the callbacks, where it is wanted, which goes away however the run ends."""
    bar = None if callable(progress) else shown(progress)
    if bar is not None:
        told.add(bar)
    try:
        yield
    finally:
        if bar is not None:
            bar.close()
