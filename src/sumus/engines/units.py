"""Units for systemd: server, vault, relay and the operator's watch as services of their own users.

sumus-server.service         serves the federation; writes its kit only
sumus-vault-NAME.service     opens a silo's vault; sees no network, writes its folder and the ledger only
sumus-relay-NAME.service     runs a silo's engine; sees neither vault, ledger nor records, writes the kit only
sumus-watch.service          the operator's live page and metrics, on the loopback interface
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from sumus.engines.federation_folder import require_silo_name
from sumus.engines.kit import Kit
from sumus.engines.relay import VARIABLE
from sumus.engines.silo_processes import SOCKET, relay_service_command, vault_command
from sumus.engines.unit_file import ServiceUnit, credential, inaccessible, put_units
from sumus.errors import DataError, StorageError
from sumus.files import make_directory
from sumus.parties import CREDENTIAL

__all__ = ["write_server_unit", "write_units", "write_watch_unit"]

_LOCAL, _NETWORK = "AF_UNIX", "AF_UNIX AF_INET AF_INET6"
_NO_WRITABLE_CODE = "MemoryDenyWriteExecute=yes"
_OWN_USERS = "PrivateUsers=yes"
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")


def write_units(
    folder: Path,
    *,
    kit: Path,
    vault: Path,
    ledgers: Path,
    records: Path | None,
    user: str | None,
    received: Path | None = None,
    protected: bool = False,
) -> list[str]:
    """Write the two units of a silo; returns what is left to do, in lines.

    Args:
        folder: for the two files.
        vault: everything secret of the silo; its owner runs the vault.
        ledgers: the organisation's state folder.
        records: the silo's file; None for an embedded data set.
        user: who runs the engine.
        received: for runs that are handed out; None: in the vault.
        protected: whether the vault's key has a passphrase, which is then a credential.
    """
    opened, owner = Kit.open(kit, "silo"), pwd.getpwuid(vault.stat().st_uid).pw_name
    name = opened.party
    require_silo_name(name)  # somebody else wrote the kit, and root reads the units
    if user is None or user == owner:
        raise DataError(
            f"--units needs --user: another user than {owner}, who owns the vault, runs the engine. "
            "For example: --user sumus-relay."
        )
    _require_user_name(user)
    kit, runtime = kit.resolve(), Path(f"/run/sumus-{name}")
    path, place = runtime / SOCKET, f"/etc/sumus/{name}.passphrase"
    secret = [vault, ledgers, *([] if records is None else [records])]
    handed = [] if received is None else [received.resolve()]
    for place_of_runs in handed:
        make_directory(place_of_runs)  # a service whose folder is missing does not start
    guarding = ServiceUnit(
        name=f"sumus-vault-{name}",
        description=f"Sumus: the vault of silo {name}",
        user=owner,
        command=vault_command(vault, path, user=user),
        environment=_datasets(),
        writes=[vault, ledgers, *handed],
        needs=[] if records is None else [records],
        start_seconds=900,  # agrees to its plans first
        addresses=_LOCAL,
        more=[
            f"RuntimeDirectory={runtime.name}",
            "RuntimeDirectoryMode=0711",
            "PrivateNetwork=yes",
            "IPAddressDeny=any",
            *([credential(CREDENTIAL, place)] if protected else []),
        ],
    )
    relaying = ServiceUnit(
        name=f"sumus-relay-{name}",
        description=f"Sumus: the relay of silo {name}",
        user=user,
        command=relay_service_command(kit),
        environment={VARIABLE: str(path), **_home(kit)},
        folder=kit,
        writes=[kit],
        after=[guarding.file],
        addresses=_NETWORK,
        here=opened.address.is_this_machine,
        more=[inaccessible(secret), _NO_WRITABLE_CODE, _OWN_USERS],
    )
    before = [
        *_new_user(user),
        _gives(kit, user),
        *([f"put the passphrase into {place} (owner root, mode 600)"] if protected else []),
    ]
    return [
        *put_units(folder, [guarding, relaying], before),
        "the relay's user cannot reach the vault, the ledger and the records; check the latter with: "
        f"sudo -u {user} cat FILE",
    ]


def write_server_unit(
    folder: Path, *, kit: Kit, user: str | None, listen: str | None, options: Sequence[str]
) -> list[str]:
    """Write the server's unit; returns what is left to do, in lines.

    Args:
        user: who runs it; None: who owns the kit.
        listen: as of `serve_kit`.
        options: further words of `sumus federation start`.
    """
    path = kit.path.resolve()
    here = kit.address.is_this_machine and (listen is None or listen.startswith("127."))
    unit = ServiceUnit(
        name="sumus-server",
        description="Sumus: the server of a federation",
        user=_runs(path, user),
        command=_sumus("federation", "start", str(path), *_option("--listen", listen), *options),
        environment=_home(path),
        folder=path,
        writes=[path],
        addresses=_NETWORK,
        here=here,
        more=[_OWN_USERS],
    )
    return put_units(folder, [unit], [*_new_user(unit.user), _gives(path, unit.user)])


def write_watch_unit(
    folder: Path, *, kit: Kit, user: str | None, options: Sequence[str]
) -> list[str]:
    """Write the unit of the operator's live page; returns what is left to do, in lines.

    Args:
        user: who runs it; None: who owns the kit.
        options: further words of `sumus federation watch`.
    """
    path = kit.path.resolve()
    unit = ServiceUnit(
        name="sumus-watch",
        description="Sumus: the live page of a federation's operator",
        user=_runs(path, user),
        command=_sumus("federation", "watch", "--kit", str(path), *options),
        environment=_home(path),
        folder=path,
        writes=[path],
        addresses=_NETWORK,
        here=kit.address.is_this_machine,
        more=[_OWN_USERS],
    )
    return put_units(folder, [unit], [*_new_user(unit.user), _gives(path, unit.user)])


def _sumus(*words: str) -> list[str]:
    return [sys.executable, "-P", "-u", "-m", "sumus", *words]


def _option(name: str, value: str | None) -> list[str]:
    return [] if value is None else [name, value]


def _home(kit: Path) -> dict[str, str]:
    """A home that the service can write: Python takes no code from there."""
    return {"HOME": str(kit), "PYTHONNOUSERSITE": "1"}


def _datasets() -> dict[str, str]:
    """Where prepared data lie, if somebody has said so."""
    place = os.environ.get("SUMUS_DATA")
    return {} if not place else {"SUMUS_DATA": str(Path(place).expanduser().resolve())}


def _runs(kit: Path, user: str | None) -> str:
    owner = pwd.getpwuid(kit.stat().st_uid).pw_name
    if user is None and owner == "root":
        raise DataError(
            "--units needs --user: a service does not run as root, who owns the kit. For example: "
            "--user sumus-server."
        )
    name = owner if user is None else user
    _require_user_name(name)
    return name


def _require_user_name(name: str) -> None:
    if not _USER.fullmatch(name) or name in ("root", "nobody"):
        raise DataError(
            f"--user must be the name of a Unix user, and neither root nor nobody, got {name!r}. "
            "Make one for this service."
        )


def _gives(kit: Path, user: str) -> str:
    """What makes a user the owner of a kit and of nothing else: links are not followed, and a file
    with another name elsewhere is refused here.
    """
    for path in kit.rglob("*"):
        about = path.lstat()
        if stat.S_ISREG(about.st_mode) and about.st_nlink > 1:
            raise StorageError(
                f"{path} has another name elsewhere (a hard link). Take the kit as it came from the "
                "coordinator."
            )
    return f"chown -hR {user} {shlex.quote(str(kit))}"


def _new_user(name: str) -> list[str]:
    """What makes a user who is not there yet."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return [f"useradd --system --no-create-home --shell /usr/sbin/nologin {name}"]
    return []
