"""Kits as far as `sumus join` looks at them, without an engine."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from sumus.engines.transport_keys import key_text, new_key
from sumus.randomness import RandomSource
from sumus.secagg import SERVER_NAME, Identity, Roster

__all__ = ["bare_kit", "made_certificate", "made_roster"]


def made_roster(names: Sequence[str], me: Identity) -> Roster:
    """A roster with this silo, a server and others that nobody has met."""
    others = [Identity.generate(name, RandomSource()) for name in names if name != me.name]
    return Roster.of(Identity.generate(SERVER_NAME, RandomSource()), [me, *others])


def bare_kit(path: Path, party: str, roster: Roster) -> Path:
    """A kit of NVIDIA FLARE that brings a roster and nothing else, made anew."""
    shutil.rmtree(path, ignore_errors=True)
    (path / "sumus").mkdir(parents=True, mode=0o700)
    path.chmod(0o700)
    (path / "kit.toml").write_text(
        f'engine = "nvflare"\nparty = "{party}"\nserver = "localhost:8002"\n'
    )
    (path / "sumus" / "roster.toml").write_text(roster.to_text())
    (path / "startup").mkdir(mode=0o700)
    key, certificate = _transport()
    (path / "startup" / "client.key").write_bytes(key)
    (path / "startup" / "client.crt").write_bytes(certificate)
    return path


@functools.cache
def _transport() -> tuple[bytes, bytes]:
    """A transport key and a certificate of nobody in particular."""
    return made_certificate(100)


@functools.cache
def _key() -> RSAPrivateKey:
    """One for all certificates: making one takes a second at times."""
    return new_key()


def made_certificate(days: float) -> tuple[bytes, bytes]:
    """The same, for so many days from now."""
    key, name = _key(), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    certificate = (
        builder.public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, SHA256())
    )
    return key_text(key), certificate.public_bytes(Encoding.PEM)
