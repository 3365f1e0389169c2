"""A server wants to show a run that did not happen so: other survivors, a round more, less ε, other
silos. What its silos signed says otherwise, offline, to anybody with the roster.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from oracles.secagg_federation import read
from parties.test_blame import lies, wrong_share_of_the_last
from sumus.books import EVIDENCE, RunFolder
from sumus.cli import main
from sumus.errors import StorageError
from sumus.files import FORMATS, Chain
from sumus.parties import audit_evidence
from sumus.parties.evidence import EvidenceAudit
from sumus.randomness import RandomSource
from sumus.secagg import DroppedSet, Identity, Roster, SetCertificate
from support.local_federation import LocalFederation, plan

ORIGIN = FORMATS["run's evidence"].marked()
Lines = list[tuple[str, dict[str, object]]]


@pytest.fixture(scope="module")
def across(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalFederation, Path]]:
    """A federation after its run, one silo of which was away in the second round."""
    made = LocalFederation(tmp_path_factory.mktemp("history"), plan())
    with made.run_folder() as run:
        server = made.server()
        server.greet()
        rounds = server.train(run)
        next(rounds)
        away = made.driver.silos.pop(3)
        next(rounds)
        made.driver.silos[3] = away
        list(rounds)
    yield made, run.path
    made.close()


def audited(across: LocalFederation, folder: Path, *rosters: Roster) -> EvidenceAudit:
    return audit_evidence(RunFolder.open(folder), across.agreement, rosters)


def rewritten(folder: Path, change: Callable[[Lines], Lines]) -> None:
    """Evidence made anew, its chain right: hashes keep nobody from writing all lines again."""
    chain = Chain.read(folder / EVIDENCE, origin=ORIGIN)
    lines: Lines = [(link.kind, dict(link.body)) for link in chain.links]
    (folder / EVIDENCE).unlink()
    again = Chain(path=folder / EVIDENCE, origin=ORIGIN)
    for kind, body in change(lines):
        again = again.appended(kind, body)


@pytest.fixture
def copy(across: tuple[LocalFederation, Path], tmp_path: Path) -> tuple[LocalFederation, Path]:
    federation, folder = across
    place = tmp_path / folder.name
    place.mkdir()
    for path in folder.iterdir():
        if path.is_file():
            (place / path.name).write_bytes(path.read_bytes())
    return federation, place


def test_an_honest_run_is_proved_from_its_folder_and_the_roster(
    copy: tuple[LocalFederation, Path],
) -> None:
    federation, folder = copy
    audit = audited(federation, folder, federation.roster)
    assert audit.findings == ()
    assert (audit.certificates, audit.rounds) == (3, 3)
    assert audit.fingerprints == (federation.roster.digest().hex(),)
    survivors = [entry.survivors for entry in RunFolder.open(folder).rounds()]
    assert survivors[1] == ("silo-0", "silo-1", "silo-2")


def test_the_signatures_are_the_silos_own(copy: tuple[LocalFederation, Path]) -> None:
    """Checked with the library alone."""
    federation, folder = copy
    for link in Chain.read(folder / EVIDENCE, origin=ORIGIN).links[1:]:
        raw = base64.b64decode(link.body["message"])
        certificate = read(raw, SetCertificate)
        signed = DroppedSet.signed_part(certificate.header, certificate.dropped)
        assert len(certificate.signatures) >= 3
        for silo, signature in certificate.signatures.items():
            name = federation.roster.names[silo]
            key = Ed25519PublicKey.from_public_bytes(federation.roster.public_keys[name])
            key.verify(signature, signed)


def certificates(lines: Lines) -> Lines:
    return [line for line in lines if line[0] == "certificate"]


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda lines: lines[:-1], "round 3 has no certificate"),
        (lambda lines: lines[1:], "no roster stands before it"),
        (
            lambda lines: [*lines[:-1], (lines[-1][0], lines[-2][1] | {"round": 3})],
            "the certificate of another round",
        ),
        (
            lambda lines: [*lines, ("certificate", {"round": 4, "purpose": "model"})],
            "not one of ours",
        ),
    ],
)
def test_by_leaving_out_or_swapping_certificates(
    copy: tuple[LocalFederation, Path], change: Callable[[Lines], Lines], finding: str
) -> None:
    federation, folder = copy
    rewritten(folder, change)
    assert any(finding in each for each in audited(federation, folder).findings)


def test_by_certifying_other_survivors_itself(copy: tuple[LocalFederation, Path]) -> None:
    """The server signs anew, but no quorum of silos does."""
    federation, folder = copy

    def change(lines: Lines) -> Lines:
        kind, body = lines[2]
        honest = read(base64.b64decode(str(body["message"])), SetCertificate)
        more = replace(
            honest, dropped=frozenset(), salts={silo: bytes(8) for silo in range(4)}
        ).encode(federation.identity)
        return [*lines[:2], (kind, body | {"message": base64.b64encode(more).decode()}), lines[3]]

    rewritten(folder, change)
    findings = audited(federation, folder).findings
    assert any("does not verify" in each for each in findings)
    assert "round 2 has no certificate" in findings


def test_by_a_roster_of_its_own(copy: tuple[LocalFederation, Path]) -> None:
    """It can sign everything with keys of its own; not under the fingerprint that was compared."""
    federation, folder = copy
    own = [Identity.generate(name, RandomSource()) for name in federation.roster.names]
    made_up = Roster.of(federation.identity, own)
    rewritten(folder, lambda lines: [("roster", {"text": made_up.to_text()}), *lines[1:]])
    findings = audited(federation, folder, federation.roster).findings
    assert any("not one that was given" in each for each in findings)
    assert audited(federation, folder).fingerprints != (federation.roster.digest().hex(),)


def test_by_a_journal_that_says_otherwise(copy: tuple[LocalFederation, Path]) -> None:
    federation, folder = copy
    path, said = folder / "journal.jsonl", []
    chain = Chain.read(path, origin=RunFolder.open(folder).links[0].previous)
    path.unlink()
    again = Chain(path=path, origin=chain.origin)
    for link in chain.links:
        body = dict(link.body)
        if link.kind == "round" and body["round"] == 2:
            body |= {"survivors": list(federation.roster.names), "dropped": []}
        if link.kind == "round" and body["round"] == 3:
            said.append(body["epsilon_spent"])
            body["epsilon_spent"] = 1.9
        again = again.appended(link.kind, body)
    (folder / "checkpoint.npz").unlink()
    findings = audited(federation, folder).findings
    assert "round 2: the journal names other survivors than were certified" in findings
    assert any(each.startswith("round 3: the journal says ε = 1.9") for each in findings)
    assert said[0] > 1.9


def test_by_accusing_a_silo_that_did_not_disagree(tmp_path: Path) -> None:
    """What proves a disagreement is kept; another silo's name is not in it."""
    federation = LocalFederation(tmp_path, plan())
    lies(federation, 0, wrong_share_of_the_last)
    with federation.run_folder() as run:
        server = federation.server()
        server.greet()
        list(server.train(run))
    federation.close()
    events = [detail for event, detail in run.events if event == "disagreed"]
    assert events
    assert audited(federation, run.path, federation.roster).findings == ()
    path = run.path / "journal.jsonl"
    chain = Chain.read(path, origin=run.links[0].previous)
    path.unlink()
    (run.path / "checkpoint.npz").unlink()
    again = Chain(path=path, origin=chain.origin)
    for link in chain.links:
        body = json.loads(json.dumps(dict(link.body)))
        if body.get("event") == "disagreed":
            body["detail"]["pairs"] = [["silo-3", "silo-1"]]
        again = again.appended(link.kind, body)
    findings = audited(federation, run.path, federation.roster).findings
    blamed = f"round {events[0]['round']}: the journal blames silo-3 and silo-1"
    assert any(each.startswith(blamed) for each in findings)


def test_a_changed_byte_is_noticed(copy: tuple[LocalFederation, Path]) -> None:
    federation, folder = copy
    raw = bytearray((folder / EVIDENCE).read_bytes())
    raw[len(raw) // 2] ^= 1
    (folder / EVIDENCE).write_bytes(raw)
    with pytest.raises(StorageError, match="changed or damaged"):
        audited(federation, folder)


def test_silos_keep_the_certificates_that_they_saw(
    across: tuple[LocalFederation, Path],
) -> None:
    federation, folder = across
    kept = sorted(federation.folder("silo-0").glob("sessions/*/certificates/*"))
    rounds = [entry.round_id for entry in RunFolder.open(folder).rounds()]
    assert [path.name for path in kept] == sorted(rounds)
    stored = {
        base64.b64decode(link.body["message"])
        for link in Chain.read(folder / EVIDENCE, origin=ORIGIN).links[1:]
    }
    assert {path.read_bytes() for path in kept} == stored


def test_the_command_says_it_and_ends_with_3(
    copy: tuple[LocalFederation, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    federation, folder = copy
    (tmp_path / "roster.toml").write_text(federation.roster.to_text())
    words = ["audit", "evidence", str(folder), "--roster", str(tmp_path / "roster.toml")]
    assert main(words) == 0
    assert "every round was signed for" in capsys.readouterr().out
    rewritten(folder, lambda lines: lines[:-1])
    assert main([*words, "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert (told["passed"], told["findings"]) == (False, ["round 3 has no certificate"])


def test_the_report_names_who_signed_and_a_changed_run_is_not_for_signing(
    copy: tuple[LocalFederation, Path],
) -> None:
    federation, folder = copy
    page = folder / "report.html"
    assert main(["report", str(folder)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "3 certificates hold for 3 rounds" in text
    assert federation.roster.digest().hex() in text
    assert "<dt>Signed by</dt><dd>silo-0, silo-1" in text
    assert "Do not sign" not in text
    rewritten(folder, lambda lines: lines[:-1])
    assert main(["report", str(folder)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "THE SIGNATURES DO NOT BEAR THIS RECORD OUT. Do not sign." in text
    assert "round 3 has no certificate" in text
    assert "certificates hold" not in text


def test_a_run_of_one_process_has_no_evidence(
    copy: tuple[LocalFederation, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, folder = copy
    (folder / EVIDENCE).unlink()
    assert main(["audit", "evidence", str(folder)]) != 0
    assert "plays all silos could sign anything" in capsys.readouterr().err
