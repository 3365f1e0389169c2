"""A certificate authority for one SuperLink, and the keys by which SuperNodes are known to it."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

__all__ = ["make_certificates", "make_node_key"]

_VALID = timedelta(days=365)


def make_certificates(folder: Path, *, host: str) -> None:
    """ca.crt, server.crt and server.key for a SuperLink that silos reach under `host`; the
    authority's key is thrown away.
    """
    authority, key = (
        ec.generate_private_key(ec.SECP384R1()),
        ec.generate_private_key(ec.SECP384R1()),
    )
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Sumus federation")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    names: list[x509.GeneralName] = [x509.DNSName(host)]
    if host in ("localhost", "127.0.0.1"):
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    root = _builder(issuer, issuer, authority.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    leaf = _builder(subject, issuer, key.public_key()).add_extension(
        x509.SubjectAlternativeName(names), critical=False
    )
    _write(folder / "ca.crt", root.sign(authority, SHA256()).public_bytes(Encoding.PEM), 0o644)
    _write(folder / "server.crt", leaf.sign(authority, SHA256()).public_bytes(Encoding.PEM), 0o644)
    _write(
        folder / "server.key",
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        0o600,
    )


def make_node_key(path: Path) -> None:
    """An ECDSA key pair in the form SuperNodes want: `path` and `path`.pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), 0o600)
    _write(
        path.with_name(f"{path.name}.pub"),
        key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n",
        0o644,
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + _VALID)
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    path.touch(mode=mode)
    path.write_bytes(content)
    path.chmod(mode)
