"""An identity's file under a passphrase: what is on the disk signs nothing by itself.

    NAME ed25519-protected:public key:salt | nonce | ciphertext and tag        base64, one line

Sealed as `sealing` says, with name and public key as associated data.
The public key is readable, so that a file can be compared with a roster without its passphrase.
"""

from __future__ import annotations

import base64
import binascii

from sumus.errors import DataError
from sumus.secagg.keys import Identity
from sumus.secagg.sealing import OVERHEAD, seal, unseal

__all__ = ["is_protected", "open_identity", "protect", "public_key_of"]

_PREFIX = "ed25519-protected:"
_SECRET_BYTES = 32


def is_protected(text: str) -> bool:
    """Whether the text of a key's file asks for a passphrase."""
    return text.strip().partition(" ")[2].startswith(_PREFIX)


def protect(identity: Identity, passphrase: bytes) -> str:
    """The text of a key's file that opens with the passphrase only."""
    secret = base64.b64decode(identity.secret_text().rpartition(":")[2])
    sealed = seal(passphrase, secret, bound=identity.name.encode() + identity.public_key)
    words = (identity.public_key, sealed)
    return f"{identity.name} {_PREFIX}{':'.join(base64.b64encode(w).decode() for w in words)}\n"


def open_identity(text: str, passphrase: bytes | None) -> Identity:
    """The identity of a key's file, protected or not.

    Args:
        passphrase: not looked at where the file is not protected.
    """
    if not is_protected(text):
        return Identity.parse(text)
    name, public, sealed = _parts(text)
    if passphrase is None:
        raise DataError(
            f"the key of {name!r} is protected by a passphrase, and none was given. Start the silo "
            "with `sumus join`, which asks for it, or give --passphrase-file."
        )
    secret = unseal(passphrase, sealed, bound=name.encode() + public)
    if secret is None:
        raise DataError(
            f"the passphrase does not open the key of {name!r}. Try again; nobody can recover it."
        )
    return Identity.parse(f"{name} ed25519-secret:{base64.b64encode(secret).decode()}")


def public_key_of(text: str) -> bytes:
    """The public half of a key's file; needs no passphrase."""
    return _parts(text)[1] if is_protected(text) else Identity.parse(text).public_key


def _parts(text: str) -> tuple[str, bytes, bytes]:
    name, _, rest = text.strip().partition(" ")
    try:
        public, sealed = (
            base64.b64decode(word, validate=True) for word in rest[len(_PREFIX) :].split(":")
        )
        if (len(public), len(sealed)) != (32, _SECRET_BYTES + OVERHEAD):
            raise ValueError(len(sealed))
    except (ValueError, binascii.Error):
        raise DataError(
            f"the protected key of {name!r} is damaged. Restore the file from a backup."
        ) from None
    return name, public, sealed
