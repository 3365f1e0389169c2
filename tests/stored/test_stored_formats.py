"""Files of another format: named as such in one line, whatever they are, and left as they are.

Whoever goes back to an earlier Sumus must not be told that a ledger is damaged: the next thing that
people do with a damaged file is to throw it away.
"""

from __future__ import annotations

import hashlib
import json
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sumus import __version__
from sumus.books import Ledger, RunFolder, plan_words
from sumus.care import read_backup
from sumus.care.vault_health import SiloHealth
from sumus.engines import PlanQueue
from sumus.errors import PeerProtocolError, StorageError
from sumus.files import FORMATS, Format
from sumus.parties import Evidence, open_party
from sumus.parties.memory import stored_session
from sumus.parties.parcel import Parcel
from sumus.parties.receipts import received_by
from sumus.parties.received import DeliveryNote
from sumus.predicting.facts import ModelFacts
from sumus.secagg import claimed_rounds, head_of
from support.stored import PASSPHRASE, StoredFederation

ROOT = Path(__file__).parents[2]
GENERATED = runpy.run_path(str(ROOT / "docs" / "gen_upgrading.py"))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredFederation:
    return StoredFederation(__version__, tmp_path_factory.mktemp("stored"))


def rechained(content: bytes, origin: str) -> bytes:
    """The lines of a chain with another beginning, hashed anew by the chain's formula."""
    lines, previous = [], origin
    for line in content.decode().splitlines():
        entry = json.loads(line)
        body = json.dumps(entry["body"], sort_keys=True, separators=(",", ":"))
        parts = ["sumus-chain-v1", previous, entry["kind"], body]
        entry["previous"], entry["hash"] = (
            previous,
            hashlib.sha256(b"\0".join(part.encode() for part in parts)).hexdigest(),
        )
        previous = entry["hash"]
        lines.append(json.dumps(entry, sort_keys=True, separators=(",", ":")) + "\n")
    return "".join(lines).encode()


def _hashed(mark: str) -> str:
    return hashlib.sha256(mark.encode()).hexdigest()


def _of_digits(mark: str) -> str:
    return hashlib.sha256(f"{mark}\0digits".encode()).hexdigest()


Changed = Callable[[bytes, str, str], bytes]
Case = tuple[Path, Changed, Callable[[Path], object]]


def _chained(origin_of: Callable[[str], str]) -> Changed:
    return lambda content, was, now: rechained(content, origin_of(now))


def _replaced(content: bytes, was: str, now: str) -> bytes:
    assert content.count(was.encode()) == 1
    return content.replace(was.encode(), now.encode())


def _checkpoint(content: bytes, was: str, now: str) -> bytes:
    """The checksum is of all that stands before it."""
    body = content[:-64]
    assert body.endswith(was.encode())
    body = body[: -len(was)] + now.encode()
    return body + hashlib.sha256(body[: -len(now)]).hexdigest().encode()


def _queued(stored: StoredFederation) -> Path:
    queue = PlanQueue(stored.backup.parent / "queue")
    if not queue.entries():
        queue.add(stored.agreement.plan, words=plan_words)
    return queue.folder / "queue.json"


def case_of(name: str, stored: StoredFederation) -> Case:
    """A file of this version, how another version would have begun it, and who reads it."""
    vault, run = stored.folder("silo-0"), stored.received
    (keys,) = vault.glob("sessions/*/keys")
    digits = vault / "ledger-digits.jsonl"
    return {
        "journal": (run / "journal.jsonl", _chained(_hashed), lambda path: RunFolder.open(run)),
        "run's evidence": (
            run / "evidence.jsonl",
            _chained(str),
            lambda path: Evidence.rosters(path.parent),
        ),
        "list of receipts": (
            run / "receipts.jsonl",
            _chained(str),
            lambda path: received_by(path.parent, []),
        ),
        "checkpoint": (
            run / "checkpoint.npz",
            _checkpoint,
            lambda path: RunFolder.open(run).verify(),
        ),
        "model's facts": (
            run / "model.json",
            _replaced,
            lambda path: ModelFacts.from_bytes(path.read_bytes(), path),
        ),
        "delivery note": (
            run / "delivery.json",
            _replaced,
            lambda path: DeliveryNote.of_folder(path.parent),
        ),
        "ledger": (
            digits,
            _chained(_of_digits),
            lambda path: Ledger.of_dataset("digits", state=vault).entries(),
        ),
        "audit trail": (
            vault / "audit.jsonl",
            _chained(str),
            lambda path: open_party(vault).close(),
        ),
        "session's file": (keys, _replaced, stored_session),
        "key ring": (keys, _replaced, stored_session),
        "round memory": (keys.with_name("rounds.log"), _chained(str), claimed_rounds),
        "queue": (_queued(stored), _replaced, lambda path: PlanQueue(path.parent).entries()),
        "backup": (stored.backup, _replaced, lambda path: read_backup(path, PASSPHRASE)),
    }[name]


@pytest.fixture(params=[name for name in FORMATS if name != "parcel"])
def case(request: pytest.FixtureRequest, stored: StoredFederation) -> Iterator[tuple[str, Case]]:
    found = case_of(request.param, stored)
    path, before = found[0], found[0].read_bytes()
    yield request.param, found
    path.write_bytes(before)


def test_a_file_of_another_version_is_named_as_such_and_not_touched(
    case: tuple[str, Case],
) -> None:
    name, (path, changed, read) = case
    form, content = FORMATS[name], path.read_bytes()
    read(path)  # as it is
    for version in {form.version + 1, form.version - 1} - {0}:
        path.write_bytes(changed(content, form.marked(), form.marked(version)))
        before = path.read_bytes()
        with pytest.raises(StorageError) as caught:
            read(path)
        said = str(caught.value)
        assert "\n" not in said
        assert (
            f"has format {version} of a {name}, this version of Sumus reads {form.version}" in said
        )
        assert "damaged" not in said
        assert path.read_bytes() == before


@pytest.mark.parametrize(("name", "check"), [("ledger", "ledger"), ("audit trail", "trail")])
def test_the_doctor_says_so_too(name: str, check: str, stored: StoredFederation) -> None:
    path, changed, _ = case_of(name, stored)
    form, content = FORMATS[name], path.read_bytes()
    path.write_bytes(changed(content, form.marked(), form.marked(2)))
    (finding,) = (
        each for each in SiloHealth(stored.folder("silo-0")).examine() if each.check == check
    )
    path.write_bytes(content)
    assert f"has format 2 of a {name}" in finding.said


def test_a_parcel_of_another_version_is_named_as_such() -> None:
    parcel = Parcel(journal=b"{}\n", evidence=b"", facts=b"", weights=b"\0" * 8).encode()
    assert Parcel.decode(parcel).journal == b"{}\n"
    with pytest.raises(PeerProtocolError, match=r"has format 2 of a parcel, .* reads 1\."):
        Parcel.decode(_replaced(parcel, "sumus parcel 1\n", "sumus parcel 2\n"))
    with pytest.raises(PeerProtocolError, match="is no parcel"):
        Parcel.decode(_replaced(parcel, "sumus parcel 1\n", "something els\n"))


def test_what_says_no_format_is_damaged_and_not_of_another_version(
    stored: StoredFederation, tmp_path: Path
) -> None:
    """A chain that begins with anything else is what it always was."""
    path = tmp_path / "rounds.log"
    (kept,) = stored.folder("silo-0").glob("sessions/*/rounds.log")
    path.write_bytes(rechained(kept.read_bytes(), "sumus round memory 1x"))
    with pytest.raises(StorageError, match="line 1 does not continue the line before it"):
        claimed_rounds(path)
    for content in ("[]", "{", "{}", '{"format": true}', '{"format": "1"}'):
        with pytest.raises(StorageError, match=r"is damaged|does not say its format"):
            FORMATS["model's facts"].require_field(path, content.encode(), fix="Restore it.")


def test_a_message_of_another_protocol_is_refused_by_its_number() -> None:
    with pytest.raises(
        PeerProtocolError, match=r"protocol version must be 2, got 3\. Run the same"
    ):
        head_of(b"SUMU\x03" + bytes(100))


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_mark_is_of_one_version_of_one_format(form: Format) -> None:
    later = form.marked(form.version + 1)
    assert form.other(lambda mark: mark == form.marked()) is None
    assert form.other(lambda mark: mark == later) == form.version + 1
    others = [each.mark for each in FORMATS.values() if each.says != "the field `format`"]
    assert others.count(form.mark) <= 1


def test_the_page_has_the_formats_of_the_code() -> None:
    page = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")
    assert page == GENERATED["written"](page)
