"""`sumus keys`: a silo's long-lived identity, and the roster that says who is who."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from sumus.cli.options import AsJson, print_json
from sumus.errors import StorageError
from sumus.randomness import RandomSource
from sumus.secagg import Roster, SiloIdentity

__all__ = ["keys_app"]

keys_app = typer.Typer(help="Make a silo's identity and the federation's roster.", no_args_is_help=True, add_completion=False)


@keys_app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="The silo's name: letters, digits, dot, underscore, dash.")],
    folder: Annotated[Path, typer.Option("--out", help="Folder for the two files.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Make a new identity: NAME.key stays secret with this silo, NAME.pub goes to whoever assembles the roster."""
    identity = SiloIdentity.generate(name, RandomSource())
    secret, public = folder / f"{name}.key", folder / f"{name}.pub"
    _write_new(secret, identity.secret_text(), mode=0o600)
    _write_new(public, identity.public_text(), mode=0o644)
    if as_json:
        print_json({"name": name, "secret": str(secret), "public": str(public)})
    else:
        typer.echo(f"wrote {secret} (keep it secret) and {public} (send it to the roster)")


@keys_app.command("roster")
def roster(
    public_files: Annotated[list[Path], typer.Argument(help="The .pub files of all silos.")],
    out: Annotated[Path, typer.Option("--out", help="The roster file to write.")] = Path("roster.toml"),
    as_json: AsJson = False,
) -> None:
    """Assemble the roster from the silos' .pub files and print its fingerprint, to be compared by every silo."""
    assembled = Roster.from_public_texts([_read(path) for path in public_files])
    _write_new(out, assembled.to_text(), mode=0o644)
    if as_json:
        print_json({"roster": str(out), "silos": assembled.names, "fingerprint": fingerprint(assembled)})
        return
    typer.echo(f"wrote {out} with {len(assembled)} silos: {', '.join(assembled.names)}")
    typer.echo(f"fingerprint {fingerprint(assembled)}")


def fingerprint(assembled: Roster) -> str:
    """A roster's digest in groups that can be read out over a telephone."""
    text = assembled.digest().hex()
    return " ".join(text[start : start + 8] for start in range(0, len(text), 8))


def _read(path: Path) -> str:
    """A small text file."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} cannot be read: {error}. Give the .pub files that `sumus keys new` wrote.") from None


def _write_new(path: Path, text: str, *, mode: int) -> None:
    """Write a file that did not exist before: a key that is overwritten is a silo locked out."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise StorageError(f"{path} exists already. Move it away first; overwriting a key locks the silo out.") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error}. Choose another folder with --out.") from None
    with os.fdopen(handle, "w") as file:
        file.write(text)
