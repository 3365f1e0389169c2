"""Runs of a folder, one line each: what ran, what it promised, what came of it, where it began.

history = History.of_folder(Path("runs"))
write_history(history, Path("history.html"))                        # `history_page`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

from sumus.books import JOURNAL, Ledger, RunFolder, Step, dataset_of, limit_of, steps_of
from sumus.errors import SumusError
from sumus.report.scales import as_number

__all__ = ["History", "Kind", "PastRun", "Spending", "runs_below"]

_DEEPEST = 2
"""A server keeps the run of a plan below the plan's hash."""


@final
@dataclass(frozen=True)
class Kind:
    """All that an ε must carry: runs that share it can be listed below one sentence.

    Args:
        verdict: "proved", "not proved", "void" or "none".
    """

    verdict: str
    protects: str
    trust: str
    analysis: str
    delta: float


@final
@dataclass(frozen=True, kw_only=True)
class PastRun:
    """One run.

    Args:
        words: what was trained on what, in a few words.
        finished: when; empty while it is under way.
        rounds: finished; `lost`: whose number was used up without a sum; `planned`: of the plan.
        epsilon: that was promised for all of it; None where nothing is.
        metrics_epsilon: of secure measurements, where they have one of their own.
        measure: the task's headline measure; `measured`: of the released model, with its half-width;
            empty where it is not known.
        model: "sha256:…"; empty before the end.
        start: "sha256:…" of the model that it began with; empty: a fresh one.
        started_from: name of the run that released that model, where it is known.
        took_part: the fewest and the most silos of a finished round.
    """

    path: Path
    name: str
    started: str
    finished: str
    plan_hash: str
    dataset: str
    words: str
    rounds: int
    lost: int
    planned: int
    epsilon: float | None
    metrics_epsilon: float | None
    delta: float
    unit: str
    kind: Kind
    measure: str
    measured: str
    model: str
    start: str
    started_from: str
    silos: int
    took_part: tuple[int, int] | None
    on_ledger: bool

    @classmethod
    def of(cls, run: RunFolder) -> PastRun:
        """What its folder says; a changed journal is a `StorageError`."""
        plan, summary, account = run.plan, run.summary or {}, run.guarantee
        promised = None if run.void is not None else account
        bodies = [link.body for link in run.links if link.kind == "round"]
        there = [len(body["survivors"]) for body in bodies]
        start = run.start
        return cls(
            path=run.path,
            name=run.name,
            started=run.started,
            finished=str(summary.get("finished", "")),
            plan_hash=run.plan_hash,
            dataset=dataset_of(plan),
            words=_words(run),
            rounds=len(bodies),
            lost=int(summary.get("lost_rounds", max(0, run.last_asked - len(bodies)))),
            planned=plan.federation.rounds,
            epsilon=None if promised is None else promised.epsilon,
            metrics_epsilon=None if promised is None else promised.metrics_epsilon,
            delta=plan.privacy.delta,
            unit=plan.privacy.unit,
            kind=_kind(run),
            measure="" if plan.describes else plan.task.headline.shown,
            measured=_measured(run, summary),
            model=str(summary.get("model_hash", "")),
            start="" if start is None else start.model,
            started_from="" if start is None else start.run or "",
            silos=len(run.silos),
            took_part=(min(there), max(there)) if there else None,
            on_ledger=run.header.no_ledger is None,
        )


@final
@dataclass(frozen=True, kw_only=True)
class Spending:
    """What a data set has spent over time.

    Args:
        limit: infinite: none.
        source: of the numbers, in words.
    """

    dataset: str
    unit: str
    steps: tuple[Step, ...]
    limit: float
    proved: bool
    source: str


@final
@dataclass(frozen=True, kw_only=True)
class History:
    """The runs of a folder, oldest first, and what their data sets have spent.

    Args:
        unread: folders that hold a run which cannot be read, and why.
    """

    folder: Path
    runs: tuple[PastRun, ...]
    spent: tuple[Spending, ...]
    unread: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_folder(cls, folder: Path, *, state: Path | None = None) -> History:
        """Read every run below a folder.

        Args:
            state: folder of the ledgers; omitted: as the environment says.
        """
        runs, unread = [], []
        for path in runs_below(folder):
            try:
                runs.append(PastRun.of(RunFolder.open(path)))
            except SumusError as error:
                unread.append((path.name, str(error)))
        runs.sort(key=lambda run: (run.started, run.name))
        return cls(
            folder=folder,
            runs=tuple(runs),
            spent=tuple(_spent(runs, state)),
            unread=tuple(unread),
        )

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """Of all runs, in the order in which they first occur."""
        return tuple(dict.fromkeys(run.kind for run in self.runs))

    @cached_property
    def parents(self) -> dict[str, str]:
        """Name of a run → name of the run in this folder whose released model it began with."""
        by_model = {run.model: run.name for run in reversed(self.runs) if run.model}
        names = {run.name for run in self.runs}
        found: dict[str, str] = {}
        for run in self.runs:
            parent = run.started_from if run.started_from in names else by_model.get(run.start, "")
            if run.start and parent and parent != run.name:
                found[run.name] = parent
        return found


def runs_below(folder: Path, depth: int = _DEEPEST) -> Iterator[Path]:
    """Folders that hold a run."""
    if (folder / JOURNAL).is_file():
        yield folder
        return
    if depth and folder.is_dir():
        for below in sorted(each for each in folder.iterdir() if each.is_dir()):
            yield from runs_below(below, depth - 1)


def _words(run: RunFolder) -> str:
    plan = run.plan
    if plan.describes:
        return f"statistics of {dataset_of(plan)}"
    model = run.own_model or plan.training.model
    mapped = "" if plan.training.features == "none" else f" on {plan.training.features}"
    return f"{plan.training.algorithm}, {model}{mapped}, {dataset_of(plan)}"


def _kind(run: RunFolder) -> Kind:
    account = run.guarantee
    if account is None:
        return Kind("none", "nothing", "nobody", "none", run.plan.privacy.delta)
    verdict = "void" if run.void is not None else "proved" if account.proved else "not proved"
    return Kind(verdict, account.neighbours, account.trust, account.analysis, account.delta)


def _measured(run: RunFolder, summary: dict[str, Any]) -> str:
    """The headline measure, and how it left the silos."""
    if run.plan.describes:
        return ""
    measure = run.plan.task.headline
    value = (summary.get("metrics") or {}).get(measure.name)
    if value is None:
        return ""
    width = (summary.get("plus_minus") or {}).get(measure.name)
    clear = " in the clear" if summary.get("metrics_are") == "simulation-only" else ""
    return f"{measure.text(value, width)}{clear}"


def _spent(runs: Sequence[PastRun], state: Path | None) -> Iterator[Spending]:
    """By data set: as its ledger says, or where silos keep their own, what the runs here promise."""
    for dataset in dict.fromkeys(run.dataset for run in runs):
        own = [run for run in runs if run.dataset == dataset]
        ledger = Ledger.of_dataset(dataset, state=state)
        if ledger.path.exists() and any(run.on_ledger for run in own):
            for unit in sorted({spent.unit for spent in ledger.runs()}):
                yield Spending(
                    dataset=dataset,
                    unit=unit,
                    steps=tuple(steps_of(ledger, unit)),
                    limit=limit_of(ledger),
                    proved=ledger.total(unit).proved,
                    source="every release on the ledger here, by simple addition over runs",
                )
            continue
        for unit in sorted({run.unit for run in own}):
            yield _promised(dataset, unit, own)


def _promised(dataset: str, unit: str, runs: Sequence[PastRun]) -> Spending:
    steps: list[Step] = []
    counted = [run for run in runs if run.unit == unit and run.epsilon is not None]
    for run in counted:
        spent = sum(part for part in (run.epsilon, run.metrics_epsilon) if part is not None)
        before = steps[-1].after if steps else 0.0
        steps.append(Step(run=run.name, before=before, spent=spent, when=run.started))
    left_out = len(runs) - len(counted)
    more = f"; {as_number(left_out)} without a bound are left out" if left_out else ""
    return Spending(
        dataset=dataset,
        unit=unit,
        steps=tuple(steps),
        limit=float("inf"),
        proved=all(run.kind.verdict == "proved" for run in counted),
        source="what the runs of this folder promise, by simple addition; the ledgers are with "
        f"the silos{more}",
    )
