"""`sumus export`: a run's model in a file that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sumus.cli.options import AsJson, modules_of_current_folder, print_json
from sumus.cli.terminal import screen

__all__ = ["export_command"]


def export_command(
    run: Annotated[Path, typer.Argument(help="A finished run folder of `sumus train`.")],
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="safetensors, onnx, sklearn, torch, or card for the model card alone.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Omitted: named after the run, in the current folder."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="PACKAGE.MODULE:CLASS",
            help="The class of a model that was given in Python.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a run's model for other programs, with a model card (Markdown) beside it: what it
    guarantees, how well it does, what it reads and how to load it.
    """
    modules_of_current_folder()
    from sumus.exporting import export_run

    done = export_run(run, format_name, out, force=force, module=model)
    if as_json:
        print_json(
            {
                "run": str(run),
                "format": format_name,
                "file": None if done.file is None else str(done.file),
                "sha256": done.sha256,
                "card": str(done.card),
                "notes": list(done.notes),
                "void": done.void,
            }
        )
        return
    console = screen()
    if done.file is not None:
        console.print(f"model  {done.file}  sha256:{done.sha256}", soft_wrap=True, markup=False)
    console.print(f"card   {done.card}", soft_wrap=True, markup=False)
    for line in done.notes:
        console.print(line, soft_wrap=True, markup=False)
