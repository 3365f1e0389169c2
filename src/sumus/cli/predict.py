"""`sumus predict`: what a run's model says of the rows of a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sumus.cli.options import AsJson, known_encoding, modules_of_current_folder, print_json
from sumus.cli.terminal import screen
from sumus.errors import DataError, PlanError

if TYPE_CHECKING:
    from sumus.predicting import Model, Predictions

__all__ = ["predict_command"]


def predict_command(
    run: Annotated[Path, typer.Argument(help="A finished run folder of `sumus train`.")],
    table: Annotated[
        Path,
        typer.Argument(help="New rows: CSV, Excel, Parquet or Arrow, or a folder of such files."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write .csv or .parquet; omitted: CSV to the screen."
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep", metavar="COLUMN", help="Copy a column of the table in front; repeatable."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="PACKAGE.MODULE:CLASS",
            help="The class of a model that was given in Python.",
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Of a text table, such as utf-8 or cp1252. Default: the run's."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace --out if it is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Predict new rows: a line a row with `prediction` and `probability:<class>`; of times `risk` and
    `survival:<time>`. Rows outside the public bounds, unknown categories and missing values are
    counted and said.
    """
    if as_json and out is None:
        raise PlanError("--json", None, "must stand beside --out", "Add --out FILE.")
    _check_out(out, table, force=force)
    modules_of_current_folder()
    from sumus.predicting import Model

    chosen = Model.of_run(run, model)
    said = _predicted(chosen, table, tuple(keep or ()), encoding)
    if out is None:
        typer.echo(said.to_csv(), nl=False)
    else:
        said.write(out)
    if as_json:
        print_json(
            {
                "run": str(run),
                "table": str(table),
                "out": str(out),
                "columns": list(said.columns),
                "notes": list(said.notes),
                "void": chosen.void,
                **said.counts.as_json(),
            }
        )
        return
    console = screen(stderr=out is None)
    if out is not None:
        rows = "1 row" if len(said) == 1 else f"{len(said):,} rows"
        console.print(f"{out}  {rows}", soft_wrap=True, markup=False)
    for line in said.lines():
        console.print(line, soft_wrap=True, markup=False)


def _check_out(out: Path | None, table: Path, *, force: bool) -> None:
    """Refuse a result that could not be written, or would take the place of its input or of a file
    that is there, before anything is computed.
    """
    if out is None:
        return
    from sumus.predicting import require_kind

    require_kind(out)
    if not out.parent.is_dir():
        raise DataError(f"--out {out}: there is no folder {out.parent}. Make it first.")
    if out.exists() and table.exists() and out.samefile(table):
        raise DataError(f"--out {out} is the table itself. Name another file.")
    if out.exists() and not force:
        raise DataError(f"{out} exists. Name another file, or replace it with --force.")


def _predicted(
    model: Model, table: Path, keep: tuple[str, ...], encoding: str | None
) -> Predictions:
    from sumus.data import ReadingRules, read_table

    if not table.exists():
        raise DataError(f"{table} does not exist. Name the table whose rows are to be predicted.")
    rules = ReadingRules.of(model.plan.data)
    if encoding is not None:
        rules = replace(rules, encoding=known_encoding(encoding))
    try:
        columns, _ = read_table(table, rules, as_asked=True)  # a line a row, in that order
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"{table} cannot be read: {reason}. Give another file.") from None
    if rules.encoding is not None and encoding is None:
        _require_names(model, columns, table, rules.encoding)
    return model.predictions(columns).beside(columns, keep)


def _require_names(model: Model, columns: Iterable[str], table: Path, encoding: str) -> None:
    """Refuse a table in which a name beyond ASCII is missing, as in text read by another encoding
    than it was written in.
    """
    present = set(columns)
    for name in () if model.encoding is None else model.encoding.names:
        if name not in present and not name.isascii():
            raise DataError(
                f"{table} has no column {name!r} if it is read as {encoding}, which the run's plan "
                "declares. Say how it is written with --encoding, such as --encoding utf-8."
            )
