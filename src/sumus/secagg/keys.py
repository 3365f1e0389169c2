"""Who is who: long-lived Ed25519 identities and the roster every silo holds a copy of.

The roster is agreed outside the protocol (paper, phone, version control). It is the only root of
trust: whoever runs the server, or its certificate authority, cannot add a silo to it or swap a key
in it unnoticed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sumus.errors import DataError, LocalProtocolError, PeerProtocolError
from sumus.randomness import RandomSource
from sumus.secagg.terms import Terms

__all__ = ["Roster", "SiloIdentity", "session_digest"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PUBLIC = "ed25519:"
_SECRET = "ed25519-secret:"  # noqa: S105  a prefix, not a secret


@final
@dataclass(frozen=True, eq=False)
class SiloIdentity:
    """A silo's name and its long-lived signing key.

    Guarantee: the secret half is never printed, compared or hashed; it leaves the object only
        through `secret_text`.
    """

    name: str
    _signing: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls, name: str, random: RandomSource) -> SiloIdentity:
        """A fresh identity from 256 random bits."""
        _require_name(name)
        return cls(name, Ed25519PrivateKey.from_private_bytes(random.bytes(32)))

    @classmethod
    def parse(cls, text: str) -> SiloIdentity:
        """Read what `secret_text` wrote."""
        name, _, secret = text.strip().partition(" ")
        _require_name(name)
        return cls(
            name,
            Ed25519PrivateKey.from_private_bytes(_decode_key(secret, prefix=_SECRET, owner=name)),
        )

    @property
    def public_key(self) -> bytes:
        """The 32 bytes that go into the roster."""
        return self._signing.public_key().public_bytes_raw()

    def public_text(self) -> str:
        """One line for the colleague who assembles the roster."""
        return f"{self.name} {_PUBLIC}{base64.b64encode(self.public_key).decode()}\n"

    def secret_text(self) -> str:
        """One line for a file that only this silo can read."""
        return (
            f"{self.name} {_SECRET}{base64.b64encode(self._signing.private_bytes_raw()).decode()}\n"
        )

    def sign(self, message: bytes) -> bytes:
        """A 64-byte Ed25519 signature."""
        return self._signing.sign(message)


@final
@dataclass(frozen=True)
class Roster:
    """The silos of a federation, each with its public signing key; a silo's number is its place in
    the order of names.

    Guarantee: names and keys are all different, so a signature names exactly one silo.
    """

    public_keys: Mapping[str, bytes]

    def __post_init__(self) -> None:
        ordered = dict(sorted(self.public_keys.items()))
        if not ordered:
            raise DataError(
                "a roster must name at least one silo, got none. Collect the silos' .pub files."
            )
        owners: dict[bytes, str] = {}
        for name, key in ordered.items():
            _require_name(name)
            if len(key) != 32:
                raise DataError(
                    f"the key of silo {name!r} must have 32 bytes, got {len(key)}. Ask the silo "
                    "for its .pub file."
                )
            if key in owners:
                raise DataError(
                    f"silos {owners[key]!r} and {name!r} have the same key. Every silo needs a key "
                    "of its own."
                )
            owners[key] = name
        object.__setattr__(self, "public_keys", ordered)

    @classmethod
    def parse(cls, text: str) -> Roster:
        """Read a roster file (TOML, one table `silos`)."""
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise DataError(
                f"the roster is not TOML ({error}). Make it with `sumus keys roster`."
            ) from None
        silos = table.get("silos")
        if set(table) != {"silos"} or not isinstance(silos, dict):
            raise DataError(
                f"a roster holds one table [silos], got {sorted(table)}. Make it with `sumus keys "
                "roster`."
            )
        return cls(
            {name: _decode_key(str(key), prefix=_PUBLIC, owner=name) for name, key in silos.items()}
        )

    @classmethod
    def from_public_texts(cls, lines: list[str]) -> Roster:
        """Assemble a roster from the silos' public lines."""
        keys: dict[str, bytes] = {}
        for line in lines:
            name, _, key = line.strip().partition(" ")
            if name in keys:
                raise DataError(
                    f"silo {name!r} appears twice. Keep the line you have checked with that silo."
                )
            keys[name] = _decode_key(key, prefix=_PUBLIC, owner=name)
        return cls(keys)

    def to_text(self) -> str:
        """The roster file; `parse` reads it back."""
        lines = [
            f'"{name}" = "{_PUBLIC}{base64.b64encode(key).decode()}"'
            for name, key in self.public_keys.items()
        ]
        return "\n".join(["[silos]", *lines, ""])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Silo number i is `names[i]`."""
        return tuple(self.public_keys)

    def __len__(self) -> int:
        return len(self.public_keys)

    def number(self, name: str) -> int:
        """The silo's number in every message."""
        if name not in self.public_keys:
            raise DataError(
                f"silo {name!r} is not on the roster. It must be enrolled before it can take part."
            )
        return self.names.index(name)

    def digest(self) -> bytes:
        """SHA-256 over names and keys; read it out to each other before the first run."""
        return self._digest

    @cached_property
    def _digest(self) -> bytes:
        summary = hashlib.sha256(b"sumus roster 1")
        for name, key in self.public_keys.items():
            summary.update(len(name).to_bytes(2, "little") + name.encode() + key)
        return summary.digest()

    def verify(self, silo: int, *, signature: bytes, message: bytes) -> None:
        """Refuse a message that this silo did not sign."""
        name = self.names[silo]
        try:
            Ed25519PublicKey.from_public_bytes(self.public_keys[name]).verify(signature, message)
        except (InvalidSignature, ValueError):
            raise PeerProtocolError(
                f"the signature of silo {name!r} does not verify. Someone spoke in its name."
            ) from None


def session_digest(terms: Terms, roster: Roster) -> bytes:
    """Names a session: terms and roster, hashed."""
    if len(roster) != terms.silos:
        raise LocalProtocolError(
            f"the terms are for {terms.silos} silos, the roster names {len(roster)}. Use the same "
            "roster everywhere."
        )
    return hashlib.sha256(b"sumus session 1" + terms.digest() + roster.digest()).digest()


def _require_name(name: str) -> None:
    """Names are short and plain so that they can be file names and log fields."""
    if not _NAME.fullmatch(name):
        raise DataError(
            "silo name must be 1 to 64 of A-Z a-z 0-9 . _ - and start with a letter or digit, got "
            f"{name!r}."
        )


def _decode_key(text: str, *, prefix: str, owner: str) -> bytes:
    """32 bytes from a prefixed base64 string."""
    try:
        if not text.startswith(prefix):
            raise ValueError(prefix)
        key = base64.b64decode(text[len(prefix) :], validate=True)
        if len(key) != 32:
            raise ValueError(len(key))
    except (ValueError, binascii.Error):
        raise DataError(
            f"the key of silo {owner!r} must be {prefix!r} and 32 bytes in base64. Make it with "
            "`sumus keys new`."
        ) from None
    return key
