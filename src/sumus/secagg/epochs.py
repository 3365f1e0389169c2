"""A consortium that changes: a later roster counts if a quorum of the roster before has signed it.

    roster 0 ──signed by a quorum of roster 0──► roster 1 ──signed by a quorum of roster 1──► …

Whoever trusts one roster of the chain, because its fingerprint was compared by telephone, can follow
it to the latest one and needs nobody's word for it, the coordinator's least of all. Why a quorum has
the size that it has is proved in docs/protocol.md, "Rosters that follow each other".
"""

from __future__ import annotations

import base64
import binascii
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from sumus.errors import DataError
from sumus.files import toml_value
from sumus.secagg.keys import SERVER_NAME, Identity, Roster

__all__ = ["Endorsement", "Epoch", "RosterHistory", "changes_between", "quorum_of", "successor"]

_DOMAIN = b"sumus epoch 1"
_SIGNATURE = "ed25519-signature:"


def quorum_of(roster: Roster) -> int:
    """How many silos of a roster must sign the next one.

        Q = ⌊(N + c)/2⌋ + 1

    Guarantee: two different rosters cannot both follow this one with Q signatures each, if all but
        c of its N silos sign one next roster at most; and no plan on this roster needs more silos
        for a round than N − D ≥ Q, so whoever can train can also agree.
    """
    return (len(roster) + roster.assumed_colluding) // 2 + 1


def successor(
    roster: Roster,
    *,
    admitted: Mapping[str, bytes] | None = None,
    retired: Iterable[str] = (),
    rotated: Mapping[str, bytes] | None = None,
    draft: Roster | None = None,
) -> Roster:
    """The roster that would follow, for the silos of this one to sign.

    Args:
        admitted: silo → key, of silos that are new.
        retired: silos that leave.
        rotated: silo, or "server", → its new key.
        draft: a proposal that follows this roster already, to change further.
    """
    base = roster if draft is None else draft
    if draft is not None:
        _require_linked(roster, draft)
    admitted, rotated, gone = admitted or {}, dict(rotated or {}), frozenset(retired)
    for name in admitted:
        if name in base.public_keys:
            raise DataError(
                f"silo {name!r} is on the roster already. To change its key, rotate it."
            )
    for name in [*sorted(gone), *rotated]:
        if name != SERVER_NAME:
            base.number(name)
    keys = {SERVER_NAME: base.server_key, **base.public_keys}
    for name, key in rotated.items():
        if keys[name] == key:
            raise DataError(f"{name!r} has that key already. Give the .pub of its new one.")
    keys |= {**rotated, **admitted}
    return replace(
        roster,
        server_key=keys.pop(SERVER_NAME),
        public_keys={name: key for name, key in keys.items() if name not in gone},
        epoch=roster.epoch + 1,
        previous=roster.digest(),
    )


def changes_between(before: Roster, after: Roster) -> list[str]:
    """What the next roster changes, in words."""
    old, new = before.public_keys, after.public_keys
    lines = [f"admits {name}" for name in new if name not in old]
    lines += [f"retires {name}" for name in old if name not in new]
    lines += [f"new key of {name}" for name in new if name in old and new[name] != old[name]]
    if after.server_key != before.server_key:
        lines.append("new key of the server")
    if after.assumed_colluding != before.assumed_colluding:
        lines.append(
            f"counts on at most {after.assumed_colluding} colluding silos instead of "
            f"{before.assumed_colluding}"
        )
    return lines


@final
@dataclass(frozen=True)
class Endorsement:
    """One silo's signature under the next roster.

    Guarantee: what is signed names the whole roster, its number and the roster before, so it counts
        for nothing else.
    """

    silo: str
    roster: bytes
    signature: bytes

    @classmethod
    def sign(cls, identity: Identity, roster: Roster) -> Endorsement:
        """Endorse a roster; whoever does must have compared its changes with their owners."""
        return cls(identity.name, roster.digest(), identity.sign(_DOMAIN + roster.digest()))

    def to_text(self) -> str:
        """One line for whoever collects them."""
        signature = base64.b64encode(self.signature).decode()
        return f"{self.silo} {self.roster.hex()} {_SIGNATURE}{signature}\n"

    @classmethod
    def parse(cls, text: str) -> Endorsement:
        """Read what `to_text` wrote."""
        fix = "Ask the silo for the file that `sumus keys endorse` wrote."
        try:
            silo, digest, signature = text.split()
            signed = base64.b64decode(signature.removeprefix(_SIGNATURE), validate=True)
            if not signature.startswith(_SIGNATURE) or (len(digest), len(signed)) != (64, 64):
                raise ValueError
            return cls(silo, bytes.fromhex(digest), signed)
        except (ValueError, binascii.Error):
            raise DataError(f"an endorsement names silo, roster and signature. {fix}") from None


@final
@dataclass(frozen=True)
class Epoch:
    """A roster and the signatures of the silos before it.

    Args:
        endorsements: silo of the roster before → signature; empty for the first roster.
    """

    roster: Roster
    endorsements: Mapping[str, bytes]

    def require_after(self, before: Roster) -> None:
        """Refuse a roster that a quorum of the one before has not signed."""
        _require_linked(before, self.roster)
        signed = [name for name in self.endorsements if self._signed_by(name, before)]
        needed = quorum_of(before)
        if len(signed) < needed:
            raise DataError(
                f"roster {self.roster.epoch} is signed by {len(signed)} of the {len(before)} silos "
                f"of roster {before.epoch} ({', '.join(sorted(signed)) or 'nobody'}), and needs "
                f"{needed}. Keep the roster you have, and ask the others by telephone."
            )

    def _signed_by(self, name: str, before: Roster) -> bool:
        if name not in before.public_keys:
            return False
        try:
            key = Ed25519PublicKey.from_public_bytes(before.public_keys[name])
            key.verify(self.endorsements[name], _DOMAIN + self.roster.digest())
        except (InvalidSignature, ValueError):
            return False
        return True


@final
@dataclass(frozen=True)
class RosterHistory:
    """All rosters of a federation, from the first to the latest, with what proves each step.

    Guarantee: each names the digest of the one before, so the digest of any of them fixes all
        before it; signatures are checked by `since`.
    """

    epochs: tuple[Epoch, ...]

    def __post_init__(self) -> None:
        first = self.first
        if first.epoch or first.previous != bytes(32):
            raise DataError(
                f"the first roster must be roster 0 and follow none, got {first.epoch}. Ask for the "
                "whole epochs.toml."
            )
        for before, after in pairwise(self.epochs):
            _require_linked(before.roster, after.roster)

    @classmethod
    def of(cls, roster: Roster) -> RosterHistory:
        """Of a federation that has not changed yet."""
        return cls((Epoch(roster, {}),))

    @property
    def first(self) -> Roster:
        """The roster that the federation began with; its digest names the federation."""
        return self.epochs[0].roster

    @property
    def current(self) -> Roster:
        """The latest roster."""
        return self.epochs[-1].roster

    def since(self, trusted: bytes) -> Roster:
        """The latest roster, if quorum after quorum has led to it from one that is trusted.

        Args:
            trusted: the digest of a roster that was compared, or accepted before.
        """
        places = [
            place for place, epoch in enumerate(self.epochs) if epoch.roster.digest() == trusted
        ]
        if not places:
            raise DataError(
                f"none of the rosters 0 to {self.current.epoch} is the one that is trusted here, "
                f"{trusted.hex()[:16]}…: it is of another federation, or an older or another one was "
                "put in its place. Ask the other silos for their epochs.toml."
            )
        for before, after in pairwise(self.epochs[places[0] :]):
            after.require_after(before.roster)
        return self.current

    def extended(self, roster: Roster, endorsements: Iterable[Endorsement]) -> RosterHistory:
        """With one roster more; raises unless a quorum has signed it."""
        signatures = {
            each.silo: each.signature for each in endorsements if each.roster == roster.digest()
        }
        epoch = Epoch(roster, dict(sorted(signatures.items())))
        epoch.require_after(self.current)
        return RosterHistory((*self.epochs, epoch))

    # -- files

    def to_text(self) -> str:
        """The file `epochs.toml`; `parse` reads it back."""
        lines: list[str] = []
        for epoch in self.epochs:
            signatures = {
                name: base64.b64encode(signature).decode()
                for name, signature in epoch.endorsements.items()
            }
            table = epoch.roster.as_table() | {"endorsements": signatures}
            lines += [
                "[[epochs]]",
                *(f"{key} = {toml_value(value)}" for key, value in table.items()),
            ]
            lines += [""]
        return "\n".join(lines)

    @classmethod
    def parse(cls, text: str) -> RosterHistory:
        """Read what `to_text` wrote."""
        fix = "Ask for the epochs.toml that `sumus federation epoch` wrote."
        try:
            content = tomllib.loads(text)
            epochs = tuple(
                Epoch(
                    Roster.from_table(
                        {key: value for key, value in table.items() if key != "endorsements"}
                    ),
                    {
                        str(name): base64.b64decode(signature, validate=True)
                        for name, signature in table["endorsements"].items()
                    },
                )
                for table in content["epochs"]
            )
            if not epochs or set(content) != {"epochs"}:
                raise ValueError
        except (
            tomllib.TOMLDecodeError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            binascii.Error,
        ):
            raise DataError(f"epochs.toml lists no rosters with their signatures. {fix}") from None
        return cls(epochs)


def _require_linked(before: Roster, after: Roster) -> None:
    if after.epoch != before.epoch + 1 or after.previous != before.digest():
        raise DataError(
            f"roster {after.epoch} does not follow roster {before.epoch} "
            f"{before.digest().hex()[:16]}…. Ask the coordinator for one that does."
        )
