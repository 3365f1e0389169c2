"""Whoever makes the kits certifies the keys that silos made themselves, and never holds one; a
certificate is renewed without any secret travelling.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from sumus.cli import main
from sumus.engines import FederationFolder, new_request
from sumus.engines.nvflare import certificates
from sumus.engines.nvflare.authority import Authority, certificate_of
from sumus.engines.transport_keys import read_key, requested_key
from sumus.errors import DataError, EngineError

ASKING, SILENT = "Graz", "Oulu"


@dataclass
class Made:
    """A federation in which one silo sent a request and the other did not."""

    folder: Path
    federation: FederationFolder

    @property
    def key(self) -> Path:
        return self.folder / f"{ASKING}.tls.key"

    def certificate(self, party: str) -> x509.Certificate:
        name = "server.crt" if party == "server" else "client.crt"
        return certificate_of(self.federation.kit(party) / "startup" / name)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("requests")
    (folder / "pubs").mkdir()
    for name in (ASKING, SILENT):
        assert main(["keys", "new", name, "--out", str(folder)]) == 0
        (folder / f"{name}.pub").rename(folder / "pubs" / f"{name}.pub")
    (folder / f"{ASKING}.csr").rename(folder / "pubs" / f"{ASKING}.csr")
    root, silos = str(folder / "federation"), f"{ASKING},{SILENT}"
    assert main(["federation", "init", root, "--silos", silos, "--keys", str(folder / "pubs")]) == 0
    return Made(folder, FederationFolder.open(folder / "federation"))


def private_keys(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and b"PRIVATE KEY" in path.read_bytes()
    }


def test_the_coordinators_folder_holds_no_key_of_a_silo_that_sent_a_request(made: Made) -> None:
    """The control is the silo that sent none: its key was made there."""
    assert private_keys(made.federation.folder) == {
        "authority/ca.key",
        "kits/server/startup/server.key",
        "kits/admin/startup/client.key",
        f"kits/{SILENT}/startup/client.key",
    }
    assert made.certificate(ASKING).public_key() == read_key(made.key).public_key()


def test_the_coordinator_is_told_whose_key_it_made(
    tmp_path: Path, made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--silos", f"{ASKING},{SILENT}", "--keys", str(made.folder / "pubs")]
    assert main(["federation", "init", str(tmp_path / "again"), *words]) == 0
    said = capsys.readouterr().out
    assert f"TLS keys of {SILENT} were made here" in said
    assert f"TLS keys of {ASKING}" not in said


@pytest.mark.parametrize("party", ["server", ASKING, SILENT, "admin"])
def test_every_certificate_is_of_the_federations_authority_and_of_3072_bits(
    made: Made, party: str
) -> None:
    certificate = made.certificate(party)
    root = certificate_of(made.federation.folder / "authority" / "ca.crt")
    certificate.verify_directly_issued_by(root)
    assert certificate.public_key().key_size == 3072
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert [name.value for name in names] == [{"admin": "operator@sumus.local"}.get(party, party)]
    kept = made.federation.kit(party) / "startup" / "rootCA.pem"
    assert kept.read_bytes() == root.public_bytes(Encoding.PEM)


# -- the silo completes its kit


def test_a_kit_is_completed_with_the_silos_own_key_and_no_other(made: Made) -> None:
    kit = made.federation.kit(ASKING)
    with pytest.raises(EngineError, match=r"is for another key than any here.*--tls-key"):
        certificates.complete(kit, ASKING, None, write=True)
    with pytest.raises(EngineError, match="is for another key"):
        certificates.complete(kit, ASKING, made.folder / f"{SILENT}.tls.key", write=True)
    assert certificates.complete(kit, ASKING, made.key, write=False) is None
    assert not (kit / "startup" / "client.key").exists()
    assert certificates.complete(kit, ASKING, made.key, write=True) is None
    assert (kit / "startup" / "client.key").read_bytes() == made.key.read_bytes()
    assert (kit / "startup" / "client.key").stat().st_mode & 0o777 == 0o600
    assert certificates.complete(kit, ASKING, None, write=True) is None
    (kit / "startup" / "client.key").unlink()


@pytest.mark.parametrize(("days", "outcome"), [(-1, "ended"), (20, "soon"), (200, "fine")])
def test_a_certificate_that_ends_is_noticed_before_anything_starts(
    made: Made, monkeypatch: pytest.MonkeyPatch, days: int, outcome: str
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, zone: object = None) -> datetime:
            return made.certificate(SILENT).not_valid_after_utc - timedelta(days=days, minutes=-1)

    monkeypatch.setattr(certificates, "datetime", Clock)
    kit = made.federation.kit(SILENT)
    if outcome == "ended":
        with pytest.raises(EngineError, match=r"ended on .*sumus federation renew"):
            certificates.complete(kit, SILENT, None, write=True)
        return
    remark = certificates.complete(kit, SILENT, None, write=True)
    assert (remark is None) == (outcome == "fine")
    assert remark is None or "sumus federation renew" in remark


# -- renewal


def test_renewing_needs_no_secret_of_anybody_and_changes_no_key(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    before = private_keys(made.federation.folder)
    folder = made.federation.folder
    assert main(["federation", "renew", str(folder), "--days", "700"]) == 0
    assert "nothing secret" in capsys.readouterr().out
    assert private_keys(folder) == before
    root = certificate_of(folder / "authority" / "ca.crt")
    for party in made.federation.parties:
        new, old = certificate_of(folder / "renewed" / f"{party}.crt"), made.certificate(party)
        assert new.public_key() == old.public_key()
        assert new.subject == old.subject
        assert new.serial_number != old.serial_number
        assert new.not_valid_after_utc > old.not_valid_after_utc + timedelta(days=300)
        new.verify_directly_issued_by(root)


def test_a_new_request_has_the_new_key_certified(made: Made, tmp_path: Path) -> None:
    key, request = new_request(ASKING)
    (tmp_path / f"{ASKING}.csr").write_bytes(request)
    (tmp_path / "new.key").write_bytes(key)
    folder = made.federation.folder
    assert main(["federation", "renew", str(folder), "--keys", str(tmp_path)]) == 0
    new = certificate_of(folder / "renewed" / f"{ASKING}.crt")
    assert new.public_key() == read_key(tmp_path / "new.key").public_key()
    assert new.public_key() != made.certificate(ASKING).public_key()


def test_no_certificate_outlives_its_authority(made: Made) -> None:
    authority = Authority.open(made.federation.folder / "authority")
    issued = authority.issue("server", days=100_000, public_key=authority.issued_key("server"))
    ends = x509.load_pem_x509_certificate(issued.certificate).not_valid_after_utc
    assert ends == certificate_of(authority.folder / "ca.crt").not_valid_after_utc
    assert ends < datetime.now(UTC) + timedelta(days=3651)


# -- requests that are none


def signed(key: object, name: str) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


def test_a_request_is_of_the_silo_and_of_a_key_that_the_engine_takes() -> None:
    own = new_request(ASKING)[1]
    requested_key(own, ASKING)
    forged = x509.load_pem_x509_csr(own).public_bytes(Encoding.DER)
    forged = ssl.DER_cert_to_PEM_cert(forged[:-1] + bytes((forged[-1] ^ 1,)))
    forged = forged.replace("CERTIFICATE", "CERTIFICATE REQUEST").encode()
    assert not x509.load_pem_x509_csr(forged).is_signature_valid
    for request in (b"", b"no request", forged, new_request(SILENT)[1]):
        with pytest.raises(DataError, match="is no request of Graz"):
            requested_key(request, ASKING)
    for weak in (
        rsa.generate_private_key(public_exponent=65537, key_size=2048),
        ec.generate_private_key(ec.SECP256R1()),
    ):
        with pytest.raises(DataError, match="RSA with 3072 bits"):
            requested_key(signed(weak, ASKING), ASKING)


def test_a_request_of_nobody_is_refused(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stranger.csr").write_bytes(new_request("stranger")[1])
    folder = str(made.federation.folder)
    assert main(["federation", "renew", folder, "--keys", str(tmp_path)]) == 2
    assert "is of none of" in capsys.readouterr().err
