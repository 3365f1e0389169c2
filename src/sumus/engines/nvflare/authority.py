"""Who may connect: a certificate authority of the federation's own, kept by whoever ran `init`.

authority/               mode 700, of the coordinator
  ca.key                 signs certificates; whoever has it can let sites connect (not into the sum,
                         whose keys the roster authenticates)
  ca.crt                 in every kit, as startup/rootCA.pem
  hosts.json             under which names silos reach the server
  issued/PARTY.crt       the latest certificate of every party: renewing needs no secret of theirs

A silo that sends a request keeps the private half to itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from sumus.engines.kit import ADMIN, SERVER
from sumus.engines.transport_keys import key_text, new_key, read_key
from sumus.errors import EngineError, StorageError
from sumus.files import read_bytes, replace_atomically

__all__ = ["OPERATOR", "ROLE", "Authority", "Issued", "certificate_of", "subject_of"]

OPERATOR = "operator@sumus.local"
ROLE = "project_admin"
"""The operator's name and role with the engine."""
_ORGANISATION = "sumus"
_NAME = "sumus"
_AUTHORITY_DAYS = 3650


def subject_of(party: str) -> str:
    """A party's name with the engine."""
    return OPERATOR if party == ADMIN else party


def certificate_of(path: Path) -> x509.Certificate:
    """The certificate in a file."""
    try:
        return x509.load_pem_x509_certificate(read_bytes(path))
    except ValueError:
        raise EngineError(f"{path} is no certificate. Ask the coordinator for the kit.") from None


@final
@dataclass(frozen=True)
class Issued:
    """A certificate and, where the authority made it, the key."""

    certificate: bytes
    key: bytes | None


@final
@dataclass(frozen=True)
class Authority:
    """Signs the certificates of one federation."""

    folder: Path
    hosts: tuple[str, ...]
    _key: rsa.RSAPrivateKey
    _certificate: x509.Certificate

    @classmethod
    def make(cls, folder: Path, hosts: Sequence[str]) -> Authority:
        """A new authority, its key readable by its owner only.

        Args:
            hosts: names and addresses of the server, the one that silos use first.
        """
        from nvflare.lighter.utils import Identity, generate_cert

        key = new_key()
        myself = Identity(_NAME)
        certificate = generate_cert(
            myself, myself, key, key.public_key(), valid_days=_AUTHORITY_DAYS, ca=True
        )
        (folder / "issued").mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        replace_atomically(folder / "ca.key", key_text(key), secret=True)
        replace_atomically(folder / "ca.crt", certificate.public_bytes(Encoding.PEM))
        replace_atomically(folder / "hosts.json", json.dumps(list(hosts)).encode())
        return cls(folder, tuple(hosts), key, certificate)

    @classmethod
    def open(cls, folder: Path) -> Authority:
        """The authority that `make` left."""
        try:
            hosts = tuple(map(str, json.loads(read_bytes(folder / "hosts.json"))))
        except (ValueError, TypeError):
            raise StorageError(
                f"{folder} is damaged. Restore it from a backup, or make a new federation."
            ) from None
        root = certificate_of(folder / "ca.crt")
        return cls(folder, hosts, read_key(folder / "ca.key"), root)

    @property
    def root(self) -> bytes:
        """What every party trusts."""
        return self._certificate.public_bytes(Encoding.PEM)

    def issue(self, party: str, *, days: int, public_key: rsa.RSAPublicKey | None) -> Issued:
        """A certificate for a party.

        Args:
            days: from now, and not beyond the authority's own.
            public_key: the party's; None makes a key here.
        """
        from nvflare.lighter.utils import Identity, generate_cert

        key = None if public_key is not None else new_key()
        owner = public_key if key is None else key.public_key()
        now = datetime.now(UTC)
        hosts: dict[str, Any] = {}
        if party == SERVER:
            hosts = {
                "server_default_host": self.hosts[0],
                "server_additional_hosts": list(self.hosts[1:]),
            }
        certificate = generate_cert(
            Identity(subject_of(party), _ORGANISATION, ROLE if party == ADMIN else None),
            Identity(_NAME),
            self._key,
            owner,
            not_valid_before=now - timedelta(minutes=5),
            not_valid_after=min(now + timedelta(days=days), self._certificate.not_valid_after_utc),
            **hosts,
        )
        text = certificate.public_bytes(Encoding.PEM)
        replace_atomically(self.folder / "issued" / f"{party}.crt", text)
        return Issued(text, None if key is None else key_text(key))

    def issued_key(self, party: str) -> rsa.RSAPublicKey:
        """The public key of a party's latest certificate."""
        path = self.folder / "issued" / f"{party}.crt"
        if not path.is_file():
            raise EngineError(
                f"{path} is missing: this authority has no certificate of {party}. Give the folder "
                "of `sumus federation init`."
            )
        key = certificate_of(path).public_key()
        if not isinstance(key, rsa.RSAPublicKey):
            raise EngineError(f"{path} is of no RSA key. Restore it from a backup.")
        return key
