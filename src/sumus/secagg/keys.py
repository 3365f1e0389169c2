"""Who is who: long-lived Ed25519 identities and the roster every party holds a copy of.

The roster is agreed outside the protocol (paper, phone, version control). It is the only root of
trust: whoever runs the server, or its certificate authority, cannot add a silo to it or swap a key
in it unnoticed. The server is on it too, so no silo can speak in the server's name.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sumus.errors import DataError, LocalProtocolError, PeerProtocolError
from sumus.files import toml_value
from sumus.randomness import RandomSource
from sumus.secagg.envelope import SERVER
from sumus.secagg.terms import Terms

__all__ = ["SERVER_NAME", "Identity", "Roster", "public_keys", "session_digest"]

SERVER_NAME = "server"
"""What the server's identity is called; no silo may have the name."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PUBLIC = "ed25519:"
_CHANGED = ("epoch", "previous", "colluding")
_SECRET = "ed25519-secret:"  # noqa: S105  a prefix, not a secret


@final
@dataclass(frozen=True, eq=False)
class Identity:
    """The name of a silo, or of the server, and its long-lived signing key.

    Guarantee: the secret half is never printed, compared or hashed; it leaves the object only
        through `secret_text`.
    """

    name: str
    _signing: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls, name: str, random: RandomSource) -> Identity:
        """A fresh identity from 256 random bits."""
        _require_name(name)
        return cls(name, Ed25519PrivateKey.from_private_bytes(random.bytes(32)))

    @classmethod
    def parse(cls, text: str) -> Identity:
        """Read what `secret_text` wrote; for a file that may be protected see `protected`."""
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
    """The silos of a federation and its server, each with its public signing key; a silo's number
    is its place in the order of names.

    Guarantee: names and keys are all different, so a signature names exactly one party.

    Args:
        public_keys: silo → its key.
        server_key: of the server.
        epoch: how many rosters of the federation came before.
        previous: digest of the roster before; zeros for the first.
        colluding: silos that may sign more than one next roster; None: as plans assume, 1 from
            three silos up.
    """

    public_keys: Mapping[str, bytes]
    server_key: bytes
    epoch: int = 0
    previous: bytes = bytes(32)
    colluding: int | None = None

    def __post_init__(self) -> None:
        ordered = dict(sorted(self.public_keys.items()))
        if not ordered:
            raise DataError(
                "a roster must name at least one silo, got none. Collect the silos' .pub files."
            )
        if SERVER_NAME in ordered:
            raise DataError(
                f"no silo can be called {SERVER_NAME!r}: that name is the server's. Rename the silo."
            )
        owners: dict[bytes, str] = {}
        for name, key in {**ordered, SERVER_NAME: self.server_key}.items():
            _require_name(name)
            if len(key) != 32:
                raise DataError(
                    f"the key of {name!r} must have 32 bytes, got {len(key)}. Ask for its .pub file."
                )
            if key in owners:
                raise DataError(
                    f"{owners[key]!r} and {name!r} have the same key. Everybody needs a key of "
                    "their own."
                )
            owners[key] = name
        object.__setattr__(self, "public_keys", ordered)
        _require_count("epoch", self.epoch, below=1 << 64)
        if self.colluding is not None:
            _require_count("colluding", self.colluding, below=len(ordered))
        if len(self.previous) != 32:
            raise DataError(
                f"previous must be 64 hexadecimal digits, got {self.previous.hex()!r}. Make the "
                "roster with `sumus federation`."
            )

    @classmethod
    def of(cls, server: Identity, silos: Iterable[Identity]) -> Roster:
        """The roster of these identities, for whoever holds all of them."""
        return cls({silo.name: silo.public_key for silo in silos}, server.public_key)

    @classmethod
    def parse(cls, text: str) -> Roster:
        """Read a roster file (TOML: the key `server` and one table `silos`)."""
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise DataError(
                f"the roster is not TOML ({error}). Make it with `sumus keys roster`."
            ) from None
        return cls.from_table(table)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Roster:
        """Read what `as_table` gives."""
        silos, known = table.get("silos"), {SERVER_NAME, "silos"}
        if not known <= set(table) <= known | set(_CHANGED) or not isinstance(silos, dict):
            raise DataError(
                f"a roster holds the key server and one table [silos], got {sorted(table)}. Make "
                "it with `sumus keys roster`."
            )
        changed = {key: table[key] for key in _CHANGED if key in table}
        if "previous" in changed:
            try:
                changed["previous"] = bytes.fromhex(changed["previous"])
            except (TypeError, ValueError):
                raise DataError(
                    "previous must be 64 hexadecimal digits. Make the roster with `sumus "
                    "federation`."
                ) from None
        return cls(
            {
                name: _decode_key(str(key), prefix=_PUBLIC, owner=name)
                for name, key in silos.items()
            },
            _decode_key(str(table[SERVER_NAME]), prefix=_PUBLIC, owner=SERVER_NAME),
            **changed,
        )

    @classmethod
    def from_public_texts(cls, lines: list[str]) -> Roster:
        """Assemble a roster from the public lines of silos and server."""
        keys = public_keys(lines)
        if SERVER_NAME not in keys:
            raise DataError(
                "the server has no key. Make one with `sumus keys new server` and add server.pub."
            )
        return cls(
            {name: key for name, key in keys.items() if name != SERVER_NAME}, keys[SERVER_NAME]
        )

    def to_text(self) -> str:
        """The roster file; `parse` reads it back."""
        table = self.as_table()
        silos = table.pop("silos")
        lines = [f"{key} = {toml_value(value)}" for key, value in table.items()]
        named = [f"{toml_value(name)} = {toml_value(key)}" for name, key in silos.items()]
        return "\n".join([*lines, "[silos]", *named, ""])

    def as_table(self) -> dict[str, Any]:
        """As plain values; what the first roster of a federation does not need is left out."""
        changed = {"epoch": self.epoch, "previous": self.previous.hex()} if self.epoch else {}
        if self.colluding is not None:
            changed["colluding"] = self.colluding
        shown = {
            name: f"{_PUBLIC}{base64.b64encode(key).decode()}"
            for name, key in {SERVER_NAME: self.server_key, **self.public_keys}.items()
        }
        return changed | {SERVER_NAME: shown.pop(SERVER_NAME), "silos": shown}

    @property
    def assumed_colluding(self) -> int:
        """c: silos of which more than this do not sign two next rosters."""
        return (1 if len(self) >= 3 else 0) if self.colluding is None else self.colluding

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
        """SHA-256 over the server's key, names and keys, and which roster this one follows; read it
        out to each other before the first run.
        """
        return self._digest

    @cached_property
    def _digest(self) -> bytes:
        assumed = 0 if self.colluding is None else self.colluding + 1
        summary = hashlib.sha256(b"sumus roster 2" + self.server_key + self.previous)
        summary.update(struct.pack("<QQ", self.epoch, assumed))
        for name, key in self.public_keys.items():
            summary.update(len(name).to_bytes(2, "little") + name.encode() + key)
        return summary.digest()

    def verify(self, sender: int, *, signature: bytes, message: bytes) -> None:
        """Refuse a message that this silo, or the server, did not sign.

        Args:
            sender: a silo's number, or `SERVER`.
        """
        if sender != SERVER and sender >= len(self):
            raise PeerProtocolError(
                f"sender {sender} is not on the roster of {len(self)} silos. Ignore it."
            )
        name = SERVER_NAME if sender == SERVER else self.names[sender]
        key = self.server_key if sender == SERVER else self.public_keys[name]
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
        except (InvalidSignature, ValueError):
            whose = "the server" if sender == SERVER else f"silo {name!r}"
            raise PeerProtocolError(
                f"the signature of {whose} does not verify: someone spoke in its name, or it holds "
                "another roster. Compare roster fingerprints."
            ) from None

    def require_server(self, identity: Identity) -> None:
        """Refuse to serve with another key than the roster's."""
        if identity.public_key != self.server_key:
            raise LocalProtocolError(
                "the roster has another key for the server. Serve with the server.key whose "
                "server.pub is on it."
            )


def public_keys(lines: Iterable[str]) -> dict[str, bytes]:
    """Keys by name, from the public lines of silos and server."""
    keys: dict[str, bytes] = {}
    for line in lines:
        name, _, key = line.strip().partition(" ")
        if name in keys:
            raise DataError(
                f"{name!r} appears twice. Keep the line that you have checked with its owner."
            )
        keys[name] = _decode_key(key, prefix=_PUBLIC, owner=name)
    return keys


def session_digest(terms: Terms, roster: Roster) -> bytes:
    """Names a session: terms and roster, hashed."""
    if len(roster) != terms.silos:
        raise LocalProtocolError(
            f"the terms are for {terms.silos} silos, the roster names {len(roster)}. Use the same "
            "roster everywhere."
        )
    return hashlib.sha256(b"sumus session 1" + terms.digest() + roster.digest()).digest()


def _require_count(field: str, value: object, *, below: int) -> None:
    """Refuse what is no whole number from 0 up."""
    if type(value) is not int or not 0 <= value < below:
        raise DataError(
            f"{field} of a roster must be a whole number from 0 to {below - 1}, got {value!r}. Make "
            "the roster with `sumus federation`."
        )


def _require_name(name: str) -> None:
    """Names are short and plain so that they can be file names and log fields."""
    if not _NAME.fullmatch(name):
        raise DataError(
            "name must be 1 to 64 of A-Z a-z 0-9 . _ - and start with a letter or digit, got "
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
            f"the key of {owner!r} must be {prefix!r} and 32 bytes in base64. Make it with "
            "`sumus keys new`."
        ) from None
    return key
