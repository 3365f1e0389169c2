"""`sumus silo`: a vault in one file, and out of it again; and what was handed to it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sumus.cli.options import AsJson, print_json
from sumus.cli.received import received_command
from sumus.files import read_bytes

if TYPE_CHECKING:
    from sumus.books import RunSpending
    from sumus.care import Charge, Restoration

__all__ = ["silo_app"]

silo_app = typer.Typer(add_completion=False)
silo_app.command("received")(received_command)

_PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        help="File with the backup's passphrase (or /dev/fd/N). Omitted: a question.",
    ),
]


@silo_app.command("backup")
def backup_vault(
    vault: Annotated[
        str, typer.Argument(help="The silo's vault, or its name if it has one vault only.")
    ],
    file: Annotated[Path, typer.Argument(help="The backup to write; must not exist.")],
    without_key: Annotated[
        bool, typer.Option("--without-key", help="Leave the silo's signing key out.")
    ] = False,
    passphrase_file: _PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Write a silo's vault and its ledger into one file under a passphrase, also while it runs:
    everything but the keys of rounds, so that no round can be opened with it or answered again.
    """
    from sumus.care import back_up
    from sumus.cli.passphrases import new_passphrase
    from sumus.cli.vaults import vault_of

    folder = vault_of(vault)
    backup = back_up(folder, file, new_passphrase(passphrase_file), with_key=not without_key)
    facts = {
        "file": str(file),
        "backup": backup.name,
        "silo": backup.manifest.silo,
        "made": backup.manifest.made,
        "key": backup.has_key,
        "plans": len(backup.plans),
        "dataset": backup.manifest.dataset,
    }
    if as_json:
        print_json(facts)
        return
    key = "with its key" if backup.has_key else "WITHOUT its key: keep that elsewhere"
    typer.echo(f"{file}: {facts['silo']}, {key}, {facts['plans']} approved plans, its ledger")
    typer.echo(
        "make the next one after every `sumus join`; releases after this moment are not in it"
    )


@silo_app.command("restore")
def restore_silo(
    file: Annotated[Path, typer.Argument(help="A file that `sumus silo backup` wrote.")],
    vault: Annotated[
        Path | None,
        typer.Argument(help="The folder to make. Omitted: where `sumus join` looks for it."),
    ] = None,
    identity: Annotated[
        Path | None, typer.Option(help="NAME.key, where the backup was made without it.")
    ] = None,
    ledger_survived: Annotated[
        bool,
        typer.Option(
            "--ledger-survived",
            help="The ledger here is the one that the silo wrote to until the end, no copy: it "
            "says what was released, and the silo goes on behind it.",
        ),
    ] = False,
    plan: Annotated[
        list[Path] | None,
        typer.Option(help="A plan approved after the backup was made; repeatable. Charged too."),
    ] = None,
    passphrase_file: _PassphraseFile = None,
    check: Annotated[
        bool, typer.Option("--check", help="Say what it would come to, and write nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a lost vault anew. Every round that is left of its plans counts as released and is not
    answered, because nobody else can say how many were answered since the backup; a ledger that
    survived can.
    """
    from sumus.books import state_directory
    from sumus.care import read_backup, rehearse, require_backup, require_empty, restore_vault
    from sumus.cli.passphrases import asked_passphrase
    from sumus.plan import TrainingPlan

    require_backup(file)
    if vault is not None:
        require_empty(vault)
    backup = read_backup(file, asked_passphrase(passphrase_file, "Passphrase of the backup"))
    folder = vault or backup.usual_vault(state_directory())
    require_empty(folder)
    key_text = None if identity is None else read_bytes(identity).decode(errors="replace")
    also = [TrainingPlan.load(path) for path in plan or ()]
    state = state_directory().absolute()
    if check:
        restored = rehearse(
            backup, state=state, key_text=key_text, ledger_survived=ledger_survived, also=also
        )
    else:
        restored = restore_vault(
            backup,
            folder.absolute(),
            state=state,
            key_text=key_text,
            ledger_survived=ledger_survived,
            also=also,
        )
    if as_json:
        print_json(_facts(restored, folder, check=check))
        return
    for line in _lines(restored, folder, check=check):
        typer.echo(line)


def _facts(restored: Restoration, folder: Path, *, check: bool) -> dict[str, object]:
    manifest = restored.backup.manifest
    return {
        "vault": str(folder),
        "silo": manifest.silo,
        "backup": restored.backup.name,
        "made": manifest.made,
        "ledger_survived": restored.ledger_survived,
        "ledger_entries_from_backup": restored.entries,
        "written": not check,
        "plans": [
            {
                "plan_hash": charge.plan_hash,
                "rounds_answered": (charge.answered + 2) // 2,
                "is_over": charge.is_over,
                "presumed_releases": charge.presumed,
                "spent": [asdict(spent) for spent in charge.spent],
            }
            for charge in restored.charges
        ],
    }


def _lines(restored: Restoration, folder: Path, *, check: bool) -> list[str]:
    manifest = restored.backup.manifest
    lines = [
        f"{manifest.silo}: backup of {manifest.made}, made by Sumus {manifest.sumus}",
        *(line for charge in restored.charges for line in _charged(charge)),
    ]
    if not restored.ledger_survived:
        lines.append(
            "the ledger has what the backup knew and the worst of what it did not; releases of "
            "other runs on these records since then are not on it"
        )
    if check:
        return [*lines, "nothing was written"]
    return [
        *lines,
        f"restored to {folder}; destroy what is left of the old vault, then run `sumus join` again",
    ]


def _charged(charge: Charge) -> list[str]:
    begin = f"plan {charge.plan_hash[:8]}"
    if charge.presumed:
        first = f"{begin}: {charge.presumed} releases presumed, no round of it is answered any more"
    elif charge.is_over:
        first = f"{begin}: over, no round of it is answered any more"
    else:
        first = f"{begin}: goes on after round {(charge.answered + 2) // 2}"
    return [first, *(f"  on the ledger  {_told(spent)}" for spent in charge.spent)]


def _told(spent: RunSpending) -> str:
    from sumus.books import rounded_up

    proved = "proved" if spent.proved else "NOT PROVED"
    return (
        f"{spent.purpose}, {spent.releases} sums: ε ≤ {rounded_up(spent.epsilon)} at δ = "
        f"{spent.delta:.3g} for one {spent.unit} ({spent.neighbours}; counts on {spent.trust}; "
        f"{proved}, {spent.analysis})"
    )
