"""`sumus federation admit | retire | rotate | epoch`: the coordinator proposes the next roster, and
puts it into effect when a quorum of the silos has signed it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sumus.cli.options import AsJson, Overrides, guarantee_text, load_plan, print_json
from sumus.cli.terminal import screen
from sumus.errors import DataError
from sumus.files import read_bytes, replace_atomically

if TYPE_CHECKING:
    from sumus.secagg import Roster

__all__ = ["federation_app"]

federation_app = typer.Typer(add_completion=False)
Folder = Annotated[Path, typer.Argument(help="The coordinator's folder, as `init` made it.")]


@federation_app.command("admit")
def admit_command(
    folder: Folder,
    public: Annotated[list[Path], typer.Argument(help="NAME.pub of every silo that comes.")],
    json_: AsJson = False,
) -> None:
    """Propose a roster with more silos; several proposals become one."""
    _propose(folder, json_, admitted=_keys(public))


@federation_app.command("retire")
def retire_command(
    folder: Folder,
    names: Annotated[list[str], typer.Argument(help="Names of the silos that leave.")],
    json_: AsJson = False,
) -> None:
    """Propose a roster without some silos; several proposals become one."""
    _propose(folder, json_, retired=names)


@federation_app.command("rotate")
def rotate_command(
    folder: Folder,
    public: Annotated[
        list[Path], typer.Argument(help="The new NAME.pub of silos that are there, or server.pub.")
    ],
    json_: AsJson = False,
) -> None:
    """Propose a roster with new keys; several proposals become one."""
    _propose(folder, json_, rotated=_keys(public))


def _propose(
    folder: Path,
    json_: bool,
    *,
    admitted: Mapping[str, bytes] | None = None,
    retired: Sequence[str] = (),
    rotated: Mapping[str, bytes] | None = None,
) -> None:
    from sumus.cli.keys import fingerprint
    from sumus.engines import FederationFolder, require_silo_name
    from sumus.secagg import Roster, changes_between, quorum_of, successor

    current = FederationFolder.open(folder).roster
    path = _proposal(folder, current)
    draft = Roster.parse(read_bytes(path).decode()) if path.exists() else None
    proposed = successor(current, admitted=admitted, retired=retired, rotated=rotated, draft=draft)
    for name in admitted or ():
        require_silo_name(name)
    replace_atomically(path, proposed.to_text().encode())
    changes, needed = changes_between(current, proposed), quorum_of(current)
    if json_:
        print_json(
            {
                "proposal": str(path),
                "roster": proposed.epoch,
                "changes": changes,
                "roster_fingerprint": fingerprint(proposed),
                "needed": needed,
            }
        )
        return
    console = screen()
    console.print(f"roster {proposed.epoch}: {', '.join(changes)}", soft_wrap=True)
    console.print(f"fingerprint  {fingerprint(proposed)}", soft_wrap=True)
    if draft is not None:
        console.print("the proposal has changed: what was signed before does not count")
    console.print(
        f"next: send {path} to the silos; {needed} of {len(current)} must sign it (`sumus keys "
        f"endorse`), then `sumus federation epoch {folder} --signatures FOLDER`",
        soft_wrap=True,
    )


@federation_app.command("epoch")
def epoch_command(
    folder: Folder,
    signatures: Annotated[Path, typer.Option(help="Folder with the silos' .endorsement files.")],
    keys: Annotated[
        Path | None,
        typer.Option(help="Folder with certificate requests (.csr) of the silos that come."),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            help="The plan of the silos that are there from now on; it is resolved, calibrated and "
            "put into the kits."
        ),
    ] = None,
    set_: Overrides = None,
    json_: AsJson = False,
) -> None:
    """Put the proposed roster into effect: checks that a quorum has signed it, and makes the kits of
    the silos that come.
    """
    from sumus.cli.keys import fingerprint, require_silos_of
    from sumus.engines import FederationFolder, change_roster, requests_in
    from sumus.parties import EPOCHS, agree_on
    from sumus.secagg import Endorsement, Roster, changes_between

    federation = FederationFolder.open(folder)
    current, path = federation.roster, _proposal(folder, federation.roster)
    if not path.exists():
        raise DataError(
            f"{path} is missing: nothing is proposed. Begin with `sumus federation admit`, "
            "`retire` or `rotate`."
        )
    proposed = Roster.parse(read_bytes(path).decode())
    endorsements = [
        Endorsement.parse(read_bytes(file).decode(errors="replace"))
        for file in sorted(signatures.glob("*.endorsement"))
    ]
    agreement = None if plan is None else agree_on(load_plan(str(plan), set_))
    if agreement is not None:
        require_silos_of(agreement.names, named=proposed.names, where="the proposed roster")
    history = federation.rosters.extended(proposed, endorsements)
    came = [name for name in proposed.names if name not in current.public_keys]
    requests = {} if keys is None else requests_in(keys, tuple(came))
    change_roster(federation, history, agreement=agreement, requests=requests)
    signed = sorted(history.epochs[-1].endorsements)
    if json_:
        print_json(
            {
                "roster": proposed.epoch,
                "roster_fingerprint": fingerprint(proposed),
                "signed_by": signed,
                "kits": {name: str(federation.kit(name)) for name in came},
                "epochs": str(folder / EPOCHS),
                "plan_hash": None if agreement is None else agreement.plan.hash,
            }
        )
        return
    console = screen()
    console.print(f"roster {proposed.epoch}: {', '.join(changes_between(current, proposed))}")
    console.print(f"signed by           {', '.join(signed)}")
    console.print(f"roster fingerprint  {fingerprint(proposed)}", soft_wrap=True)
    if agreement is not None:
        console.print(f"plan hash           {agreement.plan.hash}", soft_wrap=True)
        console.print(guarantee_text(agreement.account))
    for name in came:
        console.print(f"kit for {name} is in {federation.kit(name)}", soft_wrap=True)
    console.print(
        f"next: everybody copies {folder / EPOCHS} into KIT/sumus, then `sumus federation start` "
        "and `sumus join` again",
        soft_wrap=True,
    )


def _proposal(folder: Path, current: Roster) -> Path:
    return folder / f"epoch-{current.epoch + 1}.toml"


def _keys(files: Sequence[Path]) -> dict[str, bytes]:
    """Keys by name, from .pub files."""
    from sumus.cli.keys import read_public
    from sumus.secagg import public_keys

    return public_keys([read_public(path) for path in files])
