"""A party's certificate in its kit: put there, checked before anything starts, and renewed.

A new certificate is for the key that the party has, so nothing secret travels when it is renewed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from sumus.engines.key_files import REQUEST, TRANSPORT_KEY
from sumus.engines.kit import SERVER
from sumus.engines.nvflare.authority import Authority, certificate_of
from sumus.engines.transport_keys import read_key, requested_key
from sumus.errors import EngineError
from sumus.files import read_bytes, replace_atomically

if TYPE_CHECKING:
    from sumus.engines.federation_folder import FederationFolder

__all__ = ["complete", "put_certificate", "renew"]

_DAYS = 365
_SOON_DAYS = 30


def put_certificate(
    authority: Authority, kit: Path, party: str, *, public_key: RSAPublicKey | None
) -> None:
    """Put a certificate into a new kit, and a key if the party sent no request for its own."""
    path = _certificate(kit, party)
    certified = authority.issue(party, days=_DAYS, public_key=public_key)
    path.write_bytes(certified.certificate)
    path.with_name("rootCA.pem").write_bytes(authority.root)
    if certified.key is not None:
        replace_atomically(path.with_suffix(".key"), certified.key, secret=True)


def _certificate(kit: Path, party: str) -> Path:
    return kit / "startup" / ("server.crt" if party == SERVER else "client.crt")


def renew(folder: FederationFolder, *, days: int, requests: Mapping[str, bytes]) -> dict[str, Path]:
    """New certificates for everybody, for the keys that they have or, where a party sent a new
    request, for that one; returns the files, none of which is secret.
    """
    authority = Authority.open(folder.folder / "authority")
    place = folder.folder / "renewed"
    place.mkdir(exist_ok=True)
    made = {}
    for party in folder.parties:
        key = (
            requested_key(requests[party], party)
            if party in requests
            else authority.issued_key(party)
        )
        made[party] = place / f"{party}.crt"
        certified = authority.issue(party, days=days, public_key=key)
        replace_atomically(made[party], certified.certificate)
    return made


def complete(kit: Path, party: str, key: Path | None, *, write: bool) -> str | None:
    """Put a party's own transport key into its kit; returns a remark if its certificate ends soon.

    Args:
        key: the file; None: the kit has it already, from whoever made it or from an earlier time.
        write: otherwise only look whether it fits.
    """
    path = _certificate(kit, party)
    certificate, place = certificate_of(path), path.with_suffix(".key")
    left = certificate.not_valid_after_utc - datetime.now(UTC)
    renewal = "Ask the coordinator for `sumus federation renew`, and copy the file it makes there."
    if left <= timedelta(0):
        raise EngineError(f"{path} ended on {certificate.not_valid_after_utc:%Y-%m-%d}. {renewal}")
    candidates = [file for file in (place, key) if file is not None and file.is_file()]
    fitting = [
        file for file in candidates if read_key(file).public_key() == certificate.public_key()
    ]
    if not fitting:
        raise EngineError(
            f"{path} is for another key than {' and '.join(map(str, candidates)) or 'any here'}. "
            f"Give the {party}{TRANSPORT_KEY} whose {party}{REQUEST} the coordinator has: --tls-key "
            "FILE."
        )
    if write and fitting[0] != place:
        if place.parent.stat().st_uid != os.getuid():  # whose links could lead the key elsewhere
            raise EngineError(
                f"{place} belongs to another user, so it is not written. Copy {fitting[0]} there as "
                "that user."
            )
        replace_atomically(place, read_bytes(fitting[0]), secret=True)
    if left < timedelta(days=_SOON_DAYS):
        return f"{path} ends in {left.days} days. {renewal}"
    return None
