"""From the name of an experiment of Heikkilä 2025 to a folder of results: measurements (resumable),
a table, a summary and figures.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

from sumus.data import named_set
from sumus.errors import GuaranteeError, PlanError
from sumus.files import replace_atomically
from sumus.paper.experiments.averaging import (
    averaging_rows,
    averaging_table,
    train_and_average,
    trained_table,
)
from sumus.paper.experiments.comparison import PaperLine
from sumus.paper.experiments.figures import draw_averaging, draw_final, draw_frontier, draw_rounds
from sumus.paper.experiments.measure import Benches, measure
from sumus.paper.experiments.results import Measurement, Store, Summary, summarise
from sumus.paper.experiments.settings import EXPERIMENTS
from sumus.paper.experiments.tables import experiment_table
from sumus.report import save

__all__ = ["Options", "Reproduction", "reproduce", "reproduce_averaging", "reproduce_table1"]


@final
@dataclass(frozen=True, kw_only=True)
class Options:
    """How much to measure, and where it goes.

    Args:
        seeds: of every setting, 0 … seeds − 1.
        rounds: instead of the experiment's own numbers of rounds.
        epsilons: instead of the experiment's own ε.
        silos: instead of the experiment's own number of silos.
        quick: one seed and a few rounds, to see that everything runs.
        only: names of settings; all if empty.
        out: results go to `out`/experiment.
        threads: silos that compute at the same time.
    """

    out: Path
    seeds: int = 5
    rounds: tuple[int, ...] = ()
    epsilons: tuple[float, ...] = ()
    silos: tuple[int, ...] = ()
    quick: bool = False
    only: tuple[str, ...] = ()
    threads: int = 1

    @property
    def seeds_wanted(self) -> int:
        return 1 if self.quick else self.seeds


@final
@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What a command left behind."""

    name: str
    table: str
    files: tuple[Path, ...]
    summary: dict[str, Any]
    left_out: tuple[str, ...] = ()


Watch = Callable[[PaperLine, int, int, float | None], None]
"""Called with setting, seed, round and accuracy; round 0 before the first."""


def reproduce(name: str, options: Options, *, watch: Watch | None = None) -> Reproduction:
    """Measure every setting of an experiment that is not on the disk yet, then write table, summary
    and figures.

    A setting that cannot be certified is left out, with the reason, and costs the others nothing.

    Guarantee: what is finished survives an interruption; a stored measurement is used only for the
        plan that it was made with.
    """
    settings = EXPERIMENTS[name].settings(
        rounds=options.rounds,
        epsilons=options.epsilons,
        silos=options.silos,
        quick=options.quick,
        only=options.only,
    )
    # a missing data set is reported before anything runs
    named_set(str(settings[0].plan.data.name)).place(None)
    store, benches = Store(options.out), Benches()
    found: list[Measurement] = []
    left_out: list[str] = []
    for setting in _by_features(settings):
        for seed in range(options.seeds_wanted):
            known = store.find(name, setting.key, seed, plan_hash=setting.plan.hash)
            if known is None:
                if watch is not None:
                    watch(setting, seed, 0, None)

                def progress(
                    number: int,
                    accuracy: float | None,
                    setting: PaperLine = setting,
                    seed: int = seed,
                ) -> None:
                    if watch is not None:
                        watch(setting, seed, number, accuracy)

                try:
                    known = measure(
                        setting, seed, benches=benches, threads=options.threads, progress=progress
                    )
                except (
                    GuaranteeError,
                    PlanError,
                ) as error:  # PlanError: more noise than the sampler is proved for
                    left_out.append(f"{setting.key}: {error}")
                    break
                store.write(known)
            elif watch is not None:
                watch(setting, seed, setting.plan.federation.rounds, known.accuracy)
            found.append(known)
    if not found:
        raise GuaranteeError(f"no setting of {name} can be certified. {left_out[0]}")
    order = {setting.key: position for position, setting in enumerate(settings)}
    summaries = sorted(summarise(found), key=lambda each: order[each.first.setting])
    return replace(_write(name, summaries, options), left_out=tuple(left_out))


def _by_features(settings: Sequence[PaperLine]) -> list[PaperLine]:
    """Settings that share prepared records one after the other."""
    groups = list(dict.fromkeys(_records(each) for each in settings))
    return sorted(settings, key=lambda each: groups.index(_records(each)))


def _records(setting: PaperLine) -> tuple[object, ...]:
    plan = setting.plan
    return plan.federation.silos, plan.training.features, plan.rules.bounded_records


def _write(name: str, summaries: Sequence[Summary], options: Options) -> Reproduction:
    folder = options.out / name
    table = experiment_table(summaries)
    files = [_store_text(folder / "table.md", table)]
    body = {
        "experiment": name,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "settings": [s.as_json() for s in summaries],
    }
    files.append(
        _store_text(
            folder / "summary.json",
            json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False) + "\n",
        )
    )
    files += _figures(name, summaries, folder)
    return Reproduction(name=name, table=table, files=tuple(files), summary=body)


def _figures(name: str, summaries: Sequence[Summary], folder: Path) -> list[Path]:
    """Curves over rounds and their best points; where ε or silos vary, the final accuracies against
    ε, rounds and silos instead.
    """
    title, seeds = EXPERIMENTS[name].title, sorted({each.seeds for each in summaries})
    counted = (
        f"{seeds[0]} to {seeds[-1]} seeds"
        if len(seeds) > 1
        else f"{seeds[0]} seeds"
        if seeds[0] > 1
        else "1 seed"
    )
    meaning = (
        "δ = 1e-5, one record, add or remove; "
        f"{'mean and SEM of ' if seeds[-1] > 1 else ''}{counted}"
    )
    if (
        len(
            {
                (each.first.target_epsilon, each.first.silos)
                for each in summaries
                if each.first.target_epsilon is not None
            }
        )
        > 1
    ):
        return save(
            folder, f"{name}-frontier", lambda: draw_frontier(f"{title} ({meaning})", summaries)
        )
    files, by_rounds = [], sorted({each.first.rounds for each in summaries})
    for rounds in by_rounds:
        chosen = [each for each in summaries if each.first.rounds == rounds]
        shown = f"{title}, {rounds} rounds ({meaning})"
        files += save(folder, f"{name}-{rounds}-rounds", partial(draw_rounds, shown, chosen))
    if len(by_rounds) > 2:
        curves = [each for each in summaries if len(each.losses) > 1]
        files += save(
            folder,
            f"{name}-against-rounds",
            lambda: draw_final(f"{title}: best round ({meaning})", curves),
        )
    return files


def reproduce_table1(options: Options) -> Reproduction:
    """Table 1 of the paper to the digit, next to what is proved."""
    rows = averaging_rows()
    table, folder = averaging_table(rows), options.out / "table1"
    body = {"experiment": "table1", "rows": [row.as_json() for row in rows]}
    files = [
        _store_text(folder / "table.md", table),
        _store_text(folder / "summary.json", json.dumps(body, indent=1) + "\n"),
    ]
    return Reproduction(name="table1", table=table, files=tuple(files), summary=body)


def reproduce_averaging(options: Options) -> Reproduction:
    """ε against the number of averaged models, and digits models that are really trained apart and
    averaged.
    """
    rows, folder = averaging_rows(), options.out / "averaging"
    seeds = 2 if options.quick else max(options.seeds, 2)
    trained = [train_and_average(row, seeds=seeds) for row in rows]
    table = trained_table(trained)
    body = {
        "experiment": "averaging",
        "rows": [row.as_json() for row in rows],
        "trained": [row.as_json() for row in trained],
    }
    files = [
        _store_text(folder / "table.md", table),
        _store_text(folder / "summary.json", json.dumps(body, indent=1) + "\n"),
    ]
    files += save(folder, "averaging", lambda: draw_averaging(rows))
    return Reproduction(name="averaging", table=table, files=tuple(files), summary=body)


def _store_text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_atomically(path, text.encode())
    return path
