"""Is a kit well: its files, its certificates, and the way to the server."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from sumus.care.finding import Finding, fail, ok, warn
from sumus.care.machine import open_to_others
from sumus.engines import Kit, certificates_in
from sumus.files import read_bytes

__all__ = ["certificates", "certificates_of", "connection", "kit_found", "kit_keys", "private"]

SOON_DAYS = 30
_PATIENCE_SECONDS = 5.0
_REFUSAL_SECONDS = 2.0
_KEYS = ("*.key", "node")
_RENEW = "Ask the coordinator for `sumus federation renew`, and copy the file it makes there."


def kit_found(kit: Kit) -> Finding:
    """Whose kit it is, and whether its engine is installed."""
    return ok(
        "kit", f"of {kit.party}, {kit.engine_name}, server {kit.address}, {kit.engine.PACKAGE}"
    )


def kit_keys(kit: Kit) -> list[Path]:
    """Files of a kit that only its owner may read."""
    places = (kit.path, kit.path / "startup", kit.state)
    return [path for place in places for name in _KEYS for path in sorted(place.glob(name))]


def private(paths: list[Path], secret: str) -> Finding:
    """Whether files and folders are for their owner only.

    Args:
        secret: what they are, in words.
    """
    wide = [path for path in paths if open_to_others(path)]
    if wide:
        return fail(
            "permissions",
            f"{wide[0]} is open to others than its owner{_more(wide)}.",
            f"Run: chmod go-rwx {' '.join(map(str, wide))}",
        )
    return ok("permissions", f"{secret} are for their owner only")


def _more(paths: list[Path]) -> str:
    return f", and {len(paths) - 1} more" if len(paths) > 1 else ""


def certificates_of(kit: Path) -> Iterator[tuple[Path, x509.Certificate]]:
    """Every certificate of a kit; public keys that are none are left out."""
    for path in certificates_in(kit):
        if path.suffix != ".pub":
            try:
                yield path, x509.load_pem_x509_certificate(read_bytes(path))
            except ValueError:
                raise OSError(0, "it is no certificate", str(path)) from None


def certificates(kit: Kit) -> Finding:
    """Whether every certificate holds now and for a while, and the party's own is for its key."""
    now, shortest = datetime.now(UTC), None
    for path, certificate in certificates_of(kit.path):
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if now < begin:
            said = f"{path} begins on {begin:%Y-%m-%d %H:%M} UTC only."
            return fail("certificates", said, "Set this machine's clock, or the coordinator's.")
        if end <= now:
            return fail("certificates", f"{path} ended on {end:%Y-%m-%d}.", _RENEW)
        if shortest is None or end < shortest[1]:
            shortest = path, end
    kit.engine.complete(kit.path, kit.party, None, write=False)
    if shortest is None:
        return fail("certificates", f"{kit.path} has none.", "Ask the coordinator for the kit.")
    path, end = shortest
    days = (end - now).days
    if days < SOON_DAYS:
        return warn("certificates", f"{path} ends in {days} days.", _RENEW)
    return ok("certificates", f"hold for {days} days at least")


def connection(kit: Kit) -> Finding:
    """Whether the server is there, is the one that the kit names, and lets this party in."""
    address = kit.address
    try:
        raw = socket.create_connection((address.host, address.port), timeout=_PATIENCE_SECONDS)
    except OSError as error:
        return fail(
            "connection",
            f"nobody answers at {address}: {error.strerror or error}.",
            "Ask whether `sumus federation start` runs there, and let this machine's firewall out.",
        )
    with raw:
        try:
            with _context(kit.path).wrap_socket(raw, server_hostname=address.host) as secured:
                _require_welcome(secured)
        except ssl.SSLCertVerificationError as error:
            return fail(
                "connection",
                f"whoever answers at {address} is not this federation's server: "
                f"{error.verify_message}.",
                "Check the address and the clock; a renewed authority needs a new kit.",
            )
        except (ssl.SSLError, ConnectionError) as error:
            said = getattr(error, "reason", None) or error.strerror or type(error).__name__
            return fail(
                "connection",
                f"the server at {address} refuses this kit's certificate: {said}.",
                "Ask the coordinator for a new one, or for a kit of this federation.",
            )
        except TimeoutError:
            return fail(
                "connection",
                f"{address} answers, and speaks no TLS.",
                "Check the port: something else listens there.",
            )
    return ok("connection", f"{address} answers as this federation's server")


def _context(kit: Path) -> ssl.SSLContext:
    """TLS as the engine speaks it: the kit's authority, and its certificate where it has one."""
    places = (kit / "startup" / "rootCA.pem", kit / "ca.crt")
    authority = next((path for path in places if path.is_file()), places[0])
    context = ssl.create_default_context(cafile=str(authority))
    context.set_alpn_protocols(["h2"])
    own = kit / "startup" / "client.crt"
    if own.is_file() and own.with_suffix(".key").is_file():
        context.load_cert_chain(str(own), str(own.with_suffix(".key")))
    return context


def _require_welcome(secured: ssl.SSLSocket) -> None:
    """A server says after the handshake that it does not want a certificate; one that says nothing
    wants it.
    """
    secured.settimeout(_REFUSAL_SECONDS)
    try:
        if not secured.recv(1):
            raise ConnectionResetError(0, "it hung up")
    except TimeoutError:
        return
