"""The audit trails of both parties: where they are, and what is compared at every start.

VAULT/audit.jsonl             of a silo; its head is remembered beside the ledgers
KIT/sumus/audit.jsonl         of a server; its head is remembered beside it, and in the journal of
                              every run, which others have a copy of

A trail holds acts and no numbers of theirs: a release names the ledger's entry, a refusal the entry
in refusals.log, a sum the certificate in the run's evidence.
"""

from __future__ import annotations

import hashlib
import math
import tomllib
from collections.abc import Iterable
from pathlib import Path

from sumus.books import Policy
from sumus.events import Trail
from sumus.files import build_of, read_bytes
from sumus.parties.rosters import read_rosters
from sumus.secagg import Identity, Roster

__all__ = [
    "digest_of",
    "notice_server",
    "notice_vault",
    "server_memory",
    "server_trail",
    "silo_trail",
    "vault_memory",
]


def silo_trail(vault: Path) -> Trail:
    """The trail of a silo's vault."""
    return Trail(vault, party="silo", memory=vault_memory(vault))


def server_trail(state: Path) -> Trail:
    """The trail of a server.

    Args:
        state: KIT/sumus of its kit.
    """
    return Trail(state, party="server", memory=server_memory(state))


def notice_vault(trail: Trail, *, identity: Identity, roster: Roster) -> None:
    """Write down what has changed in a vault since its trail was written to, by whatever hand: its
    program, key, roster, policy and limit.
    """
    text = read_bytes(trail.folder / "policy.toml")
    limit = Policy.from_toml(text.decode()).max_epsilon
    trail.notice(
        build=build_of(),
        identity=digest_of(identity.public_key),
        roster=roster.digest().hex(),
        policy=digest_of(text),
        limit=math.inf if limit is None else limit,
    )


def notice_server(trail: Trail, *, identity: Identity | None, certificates: Iterable[Path]) -> None:
    """The same of a server: its program, key, roster and certificates."""
    keys = {} if identity is None else {"identity": digest_of(identity.public_key)}
    trail.notice(
        build=build_of(),
        roster=read_rosters(trail.folder).current.digest().hex(),
        certificates=digest_of(*map(read_bytes, sorted(certificates))),
        **keys,
    )


def digest_of(*contents: bytes) -> str:
    """SHA-256 over the digests of some bytes, in hexadecimal."""
    if len(contents) == 1:
        return hashlib.sha256(contents[0]).hexdigest()
    return hashlib.sha256(b"".join(hashlib.sha256(each).digest() for each in contents)).hexdigest()


def vault_memory(vault: Path, *, name: str | None = None) -> Path | None:
    """Where the head of a vault's trail is remembered; None of a vault that is not settled.

    Args:
        name: that the folder will have; None: its own.
    """
    if not (vault / "site.toml").is_file() or not (vault / "roster.toml").is_file():
        return None
    ledgers = Path(str(tomllib.loads(read_bytes(vault / "site.toml").decode())["ledgers"]))
    federation = read_rosters(vault).first.digest().hex()[:16]
    return ledgers / f"audit-{federation}-{name or vault.name}.head.json"


def server_memory(state: Path) -> Path:
    """Where the head of a server's trail is remembered."""
    return state / "audit.head.json"
