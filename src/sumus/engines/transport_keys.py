"""Keys of the transport: a party makes its own and has it certified by a request, so that nobody else
ever holds it.

They let machines connect and say nothing in the secure sum, whose keys are on the roster.
RSA, because NVIDIA FLARE signs with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from sumus.engines.key_files import REQUEST, TRANSPORT_KEY
from sumus.errors import DataError
from sumus.files import read_bytes

__all__ = [
    "key_text",
    "new_key",
    "new_request",
    "read_key",
    "requested_key",
    "requests_in",
]

_BITS = 3072


def new_key() -> rsa.RSAPrivateKey:
    """A fresh transport key."""
    return rsa.generate_private_key(public_exponent=65537, key_size=_BITS)


def key_text(key: rsa.RSAPrivateKey) -> bytes:
    """A transport key as engines read it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())


def new_request(party: str) -> tuple[bytes, bytes]:
    """A fresh key and the request that its public half be certified."""
    key = new_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, party)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, SHA256())
    return key_text(key), request.public_bytes(Encoding.PEM)


def requested_key(request: bytes, party: str) -> rsa.RSAPublicKey:
    """The public key of a request that it signs itself; all else that it asks for is ignored."""
    fix = f"Ask {party} for the file that `sumus keys new {party}` wrote."
    try:
        asked = x509.load_pem_x509_csr(request)
        key = asked.public_key()
        names = [each.value for each in asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        sound = asked.is_signature_valid and names == [party]
    except (ValueError, InvalidSignature):
        sound = False
    if not sound:
        raise DataError(f"{party}{REQUEST} is no request of {party} that its key has signed. {fix}")
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < _BITS:
        raise DataError(f"the key of {party}{REQUEST} must be RSA with {_BITS} bits or more. {fix}")
    return key


def requests_in(folder: Path, parties: tuple[str, ...]) -> Mapping[str, bytes]:
    """The requests that parties have sent; a request of nobody is refused."""
    found = {path.name.removesuffix(REQUEST): path for path in folder.glob(f"*{REQUEST}")}
    for stranger in sorted(set(found) - set(parties)):
        raise DataError(
            f"{found[stranger]} is of none of {', '.join(parties)}. Remove it, or name the silo."
        )
    return {party: read_bytes(path) for party, path in sorted(found.items())}


def read_key(path: Path) -> rsa.RSAPrivateKey:
    """A transport key of a file."""
    try:
        key = load_pem_private_key(read_bytes(path), None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise DataError(
            f"{path} is no transport key. Give the NAME{TRANSPORT_KEY} that `sumus keys new` wrote."
        )
    return key
