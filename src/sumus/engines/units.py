"""Units for systemd: the vault and the engine of a silo as two services of two users.

sumus-vault-NAME.service     opens the vault; sees no network, writes its folder and the ledger only
sumus-relay-NAME.service     runs the engine; sees neither vault, ledger nor records, writes the kit only
"""

from __future__ import annotations

import pwd
from collections.abc import Sequence
from pathlib import Path

from sumus.engines.kit import Kit
from sumus.engines.relay import VARIABLE
from sumus.engines.silo_processes import SOCKET, relay_command, vault_command
from sumus.errors import DataError
from sumus.files import make_directory, replace_atomically
from sumus.parties import CREDENTIAL

__all__ = ["write_units"]

_HARDENED = (
    "Restart=always",
    "RestartSec=2",
    "UMask=0077",
    "LimitCORE=0",
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "ProtectSystem=strict",
    "ProtectHome=read-only",
    "ProtectProc=invisible",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "LockPersonality=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
)


def write_units(
    folder: Path,
    *,
    kit: Path,
    vault: Path,
    ledgers: Path,
    records: Path | None,
    user: str | None,
    protected: bool = False,
) -> list[str]:
    """Write both units; returns what is left to do, in lines.

    Args:
        folder: for the two files.
        vault: everything secret of the silo; its owner runs the vault.
        ledgers: the organisation's state folder.
        records: the silo's file; None for an embedded data set.
        user: who runs the engine.
        protected: whether the vault's key has a passphrase, which is then a credential.
    """
    name, owner = Kit.open(kit, "silo").party, pwd.getpwuid(vault.stat().st_uid).pw_name
    if user is None or user == owner:
        raise DataError(
            f"--units needs --user: another user than {owner}, who owns the vault, runs the engine. "
            "For example: --user sumus-relay."
        )
    kit, runtime = kit.resolve(), Path(f"/run/sumus-{name}")
    path, place = runtime / SOCKET, f"/etc/sumus/{name}.passphrase"
    secret = [vault, ledgers, *([] if records is None else [records])]
    guarded = [
        f"User={owner}",
        f"RuntimeDirectory={runtime.name}",
        "RuntimeDirectoryMode=0711",
        f"ExecStart={_line(vault_command(vault, path, user=user))}",
        f"ReadWritePaths={_line([str(vault), str(ledgers)])}",
        "PrivateNetwork=yes",
        "RestrictAddressFamilies=AF_UNIX",
        *([f"LoadCredential={CREDENTIAL}:{place}"] if protected else []),
    ]
    relaying = [
        f"User={user}",
        f"Environment={_line([f'{VARIABLE}={path}', f'HOME={kit}'])}",
        f"WorkingDirectory={_quoted(str(kit), spaces=False)}",
        f"ExecStart={_line(relay_command(kit))}",
        f"ReadWritePaths={_line([str(kit)])}",
        f"InaccessiblePaths={_line(['-' + str(place) for place in secret])}",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
    ]
    make_directory(folder)
    units = {
        f"sumus-vault-{name}.service": _unit(f"Sumus: the vault of silo {name}", (), guarded),
        f"sumus-relay-{name}.service": _unit(
            f"Sumus: the engine of silo {name}",
            (f"Wants=sumus-vault-{name}.service", f"After=sumus-vault-{name}.service"),
            relaying,
        ),
    }
    for file, text in units.items():
        replace_atomically(folder / file, text.encode())
    services = " ".join(units)
    return [
        f"wrote {', '.join(str(folder / file) for file in units)}; as root:",
        f"  chown -R {user} {kit}",
        *([f"  put the passphrase into {place} (owner root, mode 600)"] if protected else []),
        f"  cp {' '.join(str(folder / file) for file in units)} /etc/systemd/system/",
        f"  systemctl daemon-reload && systemctl enable --now {services}",
        "the relay's user cannot reach the vault, the ledger and the records; check the latter with: "
        f"sudo -u {user} cat FILE",
    ]


def _unit(description: str, order: Sequence[str], service: Sequence[str]) -> str:
    sections = {
        "Unit": [f"Description={description}", "After=network-online.target", *order],
        "Service": [*service, *_HARDENED],
        "Install": ["WantedBy=multi-user.target"],
    }
    return "\n".join(
        f"[{section}]\n" + "".join(f"{line}\n" for line in lines)
        for section, lines in sections.items()
    )


def _line(words: Sequence[str]) -> str:
    """Words as systemd reads them."""
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str, *, spaces: bool = True) -> str:
    if any(ord(character) < 32 for character in word):
        raise DataError(f"a unit cannot name {word!r}: it has a line break. Rename it.")
    escaped = word.replace("%", "%%")
    if not spaces:  # a setting that takes one path as it stands
        return escaped
    escaped = escaped.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"' if set(word) & set(" '\"\\") else escaped
