"""`sumus keys endorse`: a silo's own people sign the next roster, once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sumus.cli.options import AsJson, print_json
from sumus.cli.passphrases import PassphraseFile
from sumus.errors import DataError, StorageError
from sumus.files import append_durably, make_directory, read_bytes, replace_atomically

if TYPE_CHECKING:
    from sumus.secagg import Roster

__all__ = ["keys_app"]

keys_app = typer.Typer(add_completion=False)


@keys_app.command("endorse")
def endorse(
    proposal: Annotated[
        Path, typer.Argument(help="The next roster (epoch-N.toml), as the coordinator sent it.")
    ],
    identity: Annotated[Path, typer.Option(help="NAME.key of this silo.")],
    roster: Annotated[
        Path,
        typer.Option(
            help="The roster that this silo trusts now: roster.toml or epochs.toml of its kit."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for NAME.endorsement.")] = Path(),
    instead: Annotated[
        bool,
        typer.Option(
            "--instead",
            help="Sign although another next roster was signed already. Only if no silo has begun "
            "to use that one.",
        ),
    ] = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Sign the next roster for this silo: compare its changes with those whom they are about, by
    telephone, first.
    """
    from sumus.cli.keys import fingerprint
    from sumus.cli.passphrases import opened_identity
    from sumus.parties import rosters_of
    from sumus.secagg import Endorsement, Roster, changes_between, quorum_of

    me, _ = opened_identity(_text(identity), passphrase_file)
    current, proposed = rosters_of(_text(roster))[-1], Roster.parse(_text(proposal))
    if (proposed.epoch, proposed.previous) != (current.epoch + 1, current.digest()):
        raise DataError(
            f"{proposal} is roster {proposed.epoch} and follows {proposed.previous.hex()[:16]}…, "
            f"this silo has roster {current.epoch}, {current.digest().hex()[:16]}…. Ask the "
            "coordinator for one that follows it."
        )
    if current.public_keys.get(me.name) != me.public_key:
        raise DataError(
            f"{identity} is not the key of {me.name!r} on roster {current.epoch}. Sign with the "
            "key that is on it."
        )
    _require_first(identity, me.name, current, proposed, instead=instead)
    made = Endorsement.sign(me, proposed)
    path = out / f"{me.name}.endorsement"
    make_directory(out)
    replace_atomically(path, made.to_text().encode())
    changes = changes_between(current, proposed)
    if as_json:
        print_json(
            {
                "endorsement": str(path),
                "roster": proposed.epoch,
                "changes": changes,
                "fingerprint": fingerprint(proposed),
                "needed": quorum_of(current),
            }
        )
        return
    typer.echo(f"roster {proposed.epoch}: {', '.join(changes) or 'no change'}")
    typer.echo(f"fingerprint {fingerprint(proposed)}")
    typer.echo(
        f"wrote {path}: send it to the coordinator, who needs {quorum_of(current)} of "
        f"{len(current)}"
    )


def _require_first(
    identity: Path, name: str, current: Roster, proposed: Roster, *, instead: bool
) -> None:
    """Write down what is signed before it is: an honest silo signs one next roster at most, or two
    of them could be believed.
    """
    path = identity.with_name(f"{name}.endorsed")
    line = f"{current.digest().hex()} {proposed.digest().hex()}\n"
    kept = _text(path) if path.exists() else ""
    signed = [entry.split()[1] for entry in kept.splitlines() if entry.startswith(line[:64])]
    if proposed.digest().hex() in signed:
        return
    if signed and not instead:
        raise StorageError(
            f"{path}: this silo has signed another roster {proposed.epoch} already, "
            f"{signed[-1][:16]}…. If that one was withdrawn and no silo has begun to use it, sign "
            "with --instead."
        )
    append_durably(path, line.encode(), at=len(kept.encode()))


def _text(path: Path) -> str:
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise DataError(f"{path} is not a text file. Check its name.") from None
