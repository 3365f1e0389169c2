"""`sumus keys`: long-lived identities of silos and server, and the roster that says who is who."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sumus.cli.options import AsJson, print_json
from sumus.cli.passphrases import PassphraseFile
from sumus.errors import PlanError, StorageError
from sumus.files import read_bytes, replace_atomically

if TYPE_CHECKING:
    from sumus.secagg import Roster

__all__ = ["fingerprint", "grouped", "keys_app", "read_public", "require_silos_of"]

keys_app = typer.Typer(
    help="Make a silo's identity and the federation's roster.",
    no_args_is_help=True,
    add_completion=False,
)


@keys_app.command("new")
def new(
    name: Annotated[
        str,
        typer.Argument(
            help="The silo's name (letters, digits, dot, underscore, dash), or `server` for the "
            "server's key."
        ),
    ],
    folder: Annotated[Path, typer.Option("--out", help="Folder for the files.")] = Path(),
    passphrase: Annotated[
        bool, typer.Option("--passphrase", help="Protect NAME.key with a passphrase.")
    ] = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a new identity and a key for the transport: NAME.key and NAME.tls.key stay secret with
    this silo, NAME.pub and NAME.csr go to the coordinator.
    """
    from sumus.cli.passphrases import new_passphrase
    from sumus.engines import REQUEST, TRANSPORT_KEY, new_request
    from sumus.randomness import RandomSource
    from sumus.secagg import Identity, protect

    identity = Identity.generate(name, RandomSource())
    text = identity.secret_text()
    if passphrase or passphrase_file is not None:
        text = protect(identity, new_passphrase(passphrase_file))
    files = {
        "secret": (folder / f"{name}.key", text.encode()),
        "public": (folder / f"{name}.pub", identity.public_text().encode()),
    }
    key, request = new_request(name)
    files["tls_secret"] = (folder / f"{name}{TRANSPORT_KEY}", key)
    files["request"] = (folder / f"{name}{REQUEST}", request)
    _write_new(files)
    paths = {role: str(path) for role, (path, _) in files.items()}
    shown = grouped(hashlib.sha256(identity.public_key).hexdigest())
    if as_json:
        print_json({"name": name, "key_fingerprint": shown, **paths})
        return
    typer.echo(f"keep secret    {paths['secret']}, {paths['tls_secret']}")
    typer.echo(f"to coordinator {paths['public']}, {paths['request']}")
    typer.echo(f"fingerprint of this key  {shown}")


@keys_app.command("protect")
def protect_command(
    file: Annotated[Path, typer.Argument(help="NAME.key of `sumus keys new`.")],
    passphrase_file: PassphraseFile = None,
    old_passphrase_file: Annotated[
        Path | None, typer.Option(help="File with the passphrase that the key has already.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Protect a key with a passphrase, or give it another one."""
    from sumus.cli.passphrases import new_passphrase, opened_identity
    from sumus.secagg import protect

    text = read_bytes(file).decode(errors="replace")
    identity, _ = opened_identity(text, old_passphrase_file)
    replace_atomically(
        file, protect(identity, new_passphrase(passphrase_file)).encode(), secret=True
    )
    typer.echo(
        f"{file} opens with the passphrase only; copies that were made before do not need it"
    )


@keys_app.command("roster")
def roster(
    public_files: Annotated[
        list[Path],
        typer.Argument(
            help="The .pub files of all silos, and server.pub; without it the server's key is made "
            "beside the roster."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The roster file to write.")] = Path(
        "roster.toml"
    ),
    as_json: AsJson = False,
) -> None:
    """Assemble the roster from the .pub files of silos and server, and print its fingerprint, to be
    compared by every silo.
    """
    from sumus.randomness import RandomSource
    from sumus.secagg import SERVER_NAME, Identity, Roster

    lines = [read_public(path) for path in public_files]
    made = None
    if not any(line.split(" ")[0] == SERVER_NAME for line in lines):
        made = Identity.generate(SERVER_NAME, RandomSource())
        lines.append(made.public_text())
    assembled = Roster.from_public_texts(lines)
    secret = out.parent / f"{SERVER_NAME}.key"
    files = {"public": (out, assembled.to_text().encode())}
    if made is not None:
        files["secret"] = (secret, made.secret_text().encode())
    _write_new(files)
    if as_json:
        print_json(
            {
                "roster": str(out),
                "silos": assembled.names,
                "server_key": None if made is None else str(secret),
                "fingerprint": fingerprint(assembled),
            }
        )
        return
    if made is not None:
        typer.echo(f"wrote {secret} (the server signs with it; keep it secret)")
    typer.echo(f"wrote {out} with {len(assembled)} silos: {', '.join(assembled.names)}")
    typer.echo(f"fingerprint {fingerprint(assembled)}")


def fingerprint(assembled: Roster) -> str:
    """A roster's digest in groups that can be read out over a telephone."""
    return grouped(assembled.digest().hex())


def grouped(text: str) -> str:
    """Hexadecimal digits in groups of eight."""
    return " ".join(text[start : start + 8] for start in range(0, len(text), 8))


def require_silos_of(plan: Sequence[str], *, named: Sequence[str], where: str) -> None:
    """A plan is for the silos of its roster and no others: each of them would refuse it once
    training begins.
    """
    if sorted(plan) != sorted(named):
        rule = f"must be the silos of the plan, {', '.join(sorted(plan))}"
        raise PlanError(
            where, ", ".join(sorted(named)), rule, "Make plan and roster for the same silos."
        )


def read_public(path: Path) -> str:
    """The text of a .pub file."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = "not a text file" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise StorageError(
            f"{path} cannot be read: {reason}. Give the .pub files that `sumus keys new` wrote."
        ) from None


def _write_new(files: Mapping[str, tuple[Path, bytes]]) -> None:
    """Write files that did not exist before, by their role: a key that is overwritten is a silo
    locked out.
    """
    for path, _ in files.values():
        if path.exists():
            raise StorageError(
                f"{path} exists already. Move it away first; overwriting a key locks the silo out."
            )
    for role, (path, content) in files.items():
        mode = 0o600 if role.endswith("secret") else 0o644
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except OSError as error:
            raise StorageError(
                f"{path} cannot be written: {error.strerror}. Choose another folder with --out."
            ) from None
        with os.fdopen(handle, "wb") as file:
            file.write(content)
