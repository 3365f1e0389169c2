"""`sumus average`: N separately trained private models, the ε of their average, and the average
itself (post-hoc averaging of Heikkilä 2025).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from sumus.accounting import AveragedModels, average
from sumus.books import rounded_up
from sumus.cli.options import AsJson, console, print_json
from sumus.errors import DataError, PlanError, StorageError

__all__ = ["average_app"]

average_app = typer.Typer(add_completion=False)


@average_app.command(name="average")
def average_command(
    local_epsilon: Annotated[float, typer.Option(help="ε of every model on its own.")] = 5.0,
    delta: Annotated[float, typer.Option(help="δ of every model and of their average.")] = 1e-5,
    sampling_rate: Annotated[
        float, typer.Option(help="Poisson probability that a record joins a step.")
    ] = 1.0,
    steps: Annotated[int, typer.Option(help="Noisy steps that trained each model.")] = 1,
    parties: Annotated[
        str, typer.Option(help="Numbers of models to average, separated by commas.")
    ] = "1,2,5,10",
    accountant: Annotated[
        str, typer.Option(help="pld, renyi or renyi-mironov (the paper's).")
    ] = "pld",
    mechanism: Annotated[
        str, typer.Option(help="skellam, discrete-gaussian or gaussian.")
    ] = "skellam",
    checkpoints: Annotated[
        str | None,
        typer.Option(help="Files to average (.pt state dicts or .npz), separated by commas."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where the averaged checkpoint goes.")] = None,
    as_json: AsJson = False,
) -> None:
    """Account for the average of N models that were trained apart, and average their
    checkpoints.
    """
    files = [Path(each.strip()) for each in checkpoints.split(",")] if checkpoints else []
    if bool(files) != (out is not None):
        raise PlanError(
            "--out",
            str(out),
            "must come with --checkpoints, and --checkpoints with --out",
            "Give both or neither.",
        )
    counts = [len(files)] if files else _counts(parties)
    rows = average(
        local_epsilon=local_epsilon,
        delta=delta,
        sampling_rate=sampling_rate,
        steps=steps,
        parties=counts,
        accountant=accountant,
        mechanism=mechanism,
        rounded=bool(files),
    )
    if files and out is not None:
        average_checkpoints(files, out)
    if as_json:
        print_json(
            {
                "rows": [dataclasses.asdict(row) for row in rows],
                "out": None if out is None else str(out),
            }
        )
        return
    _show(rows, delta=delta, steps=steps, accountant=accountant)
    if out is not None:
        console().print(f"wrote {out}: the mean of {len(files)} checkpoints", style="green")


def _counts(parties: str) -> list[int]:
    try:
        return [int(each) for each in parties.split(",")]
    except ValueError:
        raise PlanError(
            "--parties",
            parties,
            "must be whole numbers separated by commas",
            "For example 1,2,5,10.",
        ) from None


def _show(rows: list[AveragedModels], *, delta: float, steps: int, accountant: str) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("models", "noise multiplier", "ε of the average", "guarantee", "proved ε"):
        table.add_column(heading, justify="left" if heading == "guarantee" else "right")
    for row in rows:
        reason = "files are rounded" if row.rounded else "paper's theorem 4.5"
        verdict = "[green]proved[/green]" if row.proved else f"[red]not proved[/red]: {reason}"
        noise, found, proved = (
            f"{row.noise_multiplier:.4g}",
            rounded_up(row.epsilon),
            rounded_up(row.proved_epsilon),
        )
        table.add_row(str(row.parties), noise, found, verdict, proved)
    table.caption = (
        f"δ = {delta:g}; one record of one model's data, add or remove; {steps} "
        f"step{'s' if steps > 1 else ''}; all parties honest, "
        f"only the average is released; accountant {accountant}"
    )
    table.caption_justify = "left"
    console().print(table)


# -- real checkpoints


def average_checkpoints(files: list[Path], out: Path) -> None:
    """The coordinate-wise mean of checkpoints with equal names and shapes, in float64, stored in
    the type they came in.

    Integer buffers (step counters and the like) must agree and are copied.
    """
    loaded = [_read(path) for path in files]
    for path, each in zip(files[1:], loaded[1:], strict=True):
        if _shapes(each) != _shapes(loaded[0]):
            differing = sorted(set(_shapes(each).items()) ^ set(_shapes(loaded[0]).items()))[0][0]
            raise DataError(
                f"{path} does not fit {files[0]}: {differing!r} differs in name, shape or type. "
                "Average models of one kind."
            )
    averaged: dict[str, Any] = {}
    for name, first in loaded[0].items():
        stack = np.stack([each[name] for each in loaded])
        if np.issubdtype(first.dtype, np.floating):
            averaged[name] = stack.astype(np.float64).mean(axis=0).astype(first.dtype)
        elif (stack == first).all():
            averaged[name] = first
        else:
            raise DataError(
                f"{name!r} is not a real number and differs between the checkpoints, so it has no "
                "average. Remove it."
            )
    _store(out, averaged)


def _shapes(tensors: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {name: (tuple(each.shape), str(each.dtype)) for name, each in tensors.items()}


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise StorageError(f"{path} does not exist. Give the checkpoint files separated by commas.")
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return _only_arrays(path, {name: archive[name] for name in archive.files})
        import torch

        state = torch.load(path, map_location="cpu", weights_only=True)
        return {name: each.detach().numpy() for name, each in state.items()}
    except (ModuleNotFoundError, StorageError):
        raise
    except Exception as error:
        raise StorageError(
            f"{path} is not a readable checkpoint ({type(error).__name__}). Give a torch state "
            "dict or an .npz file."
        ) from None


def _only_arrays(path: Path, found: dict[str, Any]) -> dict[str, Any]:
    """What numpy found in an archive, unless some of it is no array: then it is no model but, for
    example, the state of a run.
    """
    for name, each in found.items():
        if not isinstance(each, np.ndarray):
            raise StorageError(
                f"{path} holds {name!r}, which is no array. Give models; that of a run is its "
                "model.pt."
            )
    return found


def _store(out: Path, tensors: dict[str, Any]) -> None:
    try:
        if out.suffix == ".npz":
            with out.open("wb") as file:
                np.savez(file, **tensors)
            return
        import torch

        torch.save({name: torch.from_numpy(np.array(each)) for name, each in tensors.items()}, out)
    except OSError as error:
        raise StorageError(
            f"{out} cannot be written: {error.strerror}. Choose another file for --out."
        ) from None
