"""`sumus tune`: hyper-parameter search on the validation split, resumable; accounted only if asked
to.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sumus.cli.options import (
    AsJson,
    MaxEpsilon,
    Overrides,
    console,
    guarantee_text,
    load_plan,
    modules_of_current_folder,
    print_json,
)
from sumus.errors import PlanError
from sumus.files import replace_atomically

if TYPE_CHECKING:
    from sumus.plan import TrainingPlan
    from sumus.tuning import SearchSpace, Tuned, TuneOptions

__all__ = ["tune_app"]

tune_app = typer.Typer(add_completion=False)

_WARNING = (
    "the search is not accounted: the chosen numbers tell something about the validation records. "
    "--account E accounts for it"
)


@tune_app.command(name="tune")
def tune_command(
    plan: Annotated[Path, typer.Argument(help="Plan file: everything that does not vary.")],
    space: Annotated[
        Path | None,
        typer.Option(
            help="Search space in TOML; omitted: the default space of the plan's algorithm."
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(min=1, help="Runs in all; an interrupted search goes on where it stopped."),
    ] = 50,
    sampler: Annotated[str, typer.Option(help="tpe, gp or random.")] = "tpe",
    objective: Annotated[
        str,
        typer.Option(help="A measure of the task (accuracy or loss), on the validation records."),
    ] = "accuracy",
    prune: Annotated[
        bool, typer.Option(help="Stop runs early that are worse than the median.")
    ] = True,
    jobs: Annotated[
        int, typer.Option(min=1, help="Runs at the same time. More processes may share --out.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Public seed of the simulation.")] = 0,
    out: Annotated[Path, typer.Option(help="Storage, plots and the best plan go here.")] = Path(
        "tuning"
    ),
    account: Annotated[
        float | None,
        typer.Option(
            help="Account for the search: expected number of runs, drawn from secret randomness."
        ),
    ] = None,
    candidates: Annotated[
        int,
        typer.Option(
            min=1, help="With --account: plans drawn from the space beforehand, in public."
        ),
    ] = 16,
    max_epsilon: MaxEpsilon = None,
    set_: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Search hyper-parameters on the training records alone: 70 % train, 30 % score, test records
    stay unseen.
    """
    from sumus.cli.dataset_total import spent_so_far, spent_text
    from sumus.tuning import SearchSpace, default_space

    chosen = load_plan(plan, set_).moved_to(out)
    modules_of_current_folder()
    searched = default_space(chosen) if space is None else SearchSpace.load(space)
    if account is not None:
        _accounted(
            chosen,
            searched,
            out,
            expected_runs=account,
            candidates=candidates,
            seed=seed,
            max_epsilon=max_epsilon,
            as_json=as_json,
        )
        return
    from sumus.tuning import TuneOptions

    options = TuneOptions(
        out=out, runs=runs, sampler=sampler, objective=objective, prune=prune, jobs=jobs, seed=seed
    )
    found = _search(chosen, searched, options, quiet=as_json)
    files = _write(found.plan, out) + _plots(found, out, objective)
    if as_json:
        summary = {
            "plan": str(out / "best.toml"),
            "values": found.values,
            objective: found.score,
            "accounted": False,
            "ledger": spent_so_far(chosen),
        }
        print_json(
            summary
            | {
                "finished": found.finished,
                "pruned": found.pruned,
                "files": [str(each) for each in files],
            }
        )
        return
    screen = console()
    screen.print(
        f"[bold]best {objective} {found.score:.4f}[/bold] on the validation records, "
        f"{found.finished} runs, {found.pruned} pruned"
    )
    for key, value in found.values.items():
        screen.print(f"  {key} = {value}")
    for path in files:
        screen.print(f"wrote {path}", style="green", soft_wrap=True)
    screen.print(f"warning: {_WARNING}", style="bold red", soft_wrap=True)
    screen.print(spent_text(chosen))


def _search(plan: TrainingPlan, space: SearchSpace, options: TuneOptions, *, quiet: bool) -> Tuned:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from sumus.tuning import tune

    screen = console()
    columns = (
        TextColumn("run"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, disable=quiet or not screen.is_terminal) as bar:
        task = bar.add_task("run", total=options.runs, state="")
        best: list[float] = []
        measure = plan.task.measure(options.objective, field="--objective")

        def progress(number: int, score: float | None) -> None:
            if score is not None:
                best.append(score)
            top = measure.best(best) if best else float("nan")
            bar.update(task, completed=number, state=f"best {options.objective} {top:.4f}")
            if not screen.is_terminal and not quiet:
                screen.print(
                    f"run {number:>3}  "
                    + ("pruned" if score is None else f"{options.objective} {score:.4f}")
                )

        return tune(plan, space, options, progress=progress)


def _accounted(
    plan: TrainingPlan,
    space: SearchSpace,
    out: Path,
    *,
    expected_runs: float,
    candidates: int,
    seed: int,
    max_epsilon: float | None,
    as_json: bool,
) -> None:
    import numpy as np

    from sumus.books import Ledger, dataset_of, rounded_up
    from sumus.cli.dataset_total import spent_so_far, spent_text
    from sumus.tuning import accounted_tuning

    if not plan.rules.private:
        raise PlanError(
            "--account",
            expected_runs,
            "needs a private algorithm",
            "fedavg has no guarantee to account for.",
        )
    ledger = Ledger.of_dataset(dataset_of(plan))
    if not as_json:
        console().print(spent_text(plan))
    found = accounted_tuning(
        plan,
        space,
        expected_runs=expected_runs,
        candidates=candidates,
        seed=seed,
        ledger=ledger,
        max_epsilon=max_epsilon,
    )
    files = _write(found.plan, out)
    np.savez(out / "model.npz", parameters=found.parameters)
    files.append(out / "model.npz")
    if as_json:
        body = {"plan": str(out / "best.toml"), "values": found.values, "accounted": True}
        name = f"noisy_{plan.task.headline.name}"
        body |= {name: found.score, f"{name}_plus_minus": found.score_plus_minus}
        print_json(
            body
            | {
                "epsilon": found.epsilon,
                "delta": found.account.delta,
                "account": found.account.as_json(),
                "ledger": spent_so_far(plan),
            }
        )
        return
    screen = console()
    training, validation = (
        rounded_up(found.account.tuning_epsilon or found.epsilon),
        rounded_up(found.validation_epsilon),
    )
    unit = found.account.unit
    screen.print(
        f"[bold]search and best model together: ε ≤ {rounded_up(found.epsilon)} at δ = "
        f"{found.account.delta:g}[/bold], proved; one {unit}, "
        f"add or remove (training {unit}s {training}, validation {unit}s {validation})",
        soft_wrap=True,
    )
    screen.print("Every run of the search, of which only the best is shown:")
    screen.print(guarantee_text(found.account))
    measure = plan.task.headline
    score = measure.text(found.score, found.score_plus_minus)
    screen.print(
        f"noisy validation {measure.shown} {score} of this model, rather too high: it was chosen "
        "for it",
        highlight=False,
    )
    for key, value in found.values.items():
        screen.print(f"  {key} = {value}")
    for path in files:
        screen.print(f"wrote {path}", style="green", soft_wrap=True)
    screen.print(
        "model.npz is covered by this ε. Training best.toml again costs its own ε on top.",
        soft_wrap=True,
    )
    screen.print(spent_text(plan))


def _write(plan: TrainingPlan, out: Path) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    path = out / "best.toml"
    replace_atomically(path, plan.to_toml().encode())
    return [path]


def _plots(found: Tuned, out: Path, objective: str) -> list[Path]:
    from sumus.tuning import draw_tuning

    return draw_tuning(found.study, out, objective)
