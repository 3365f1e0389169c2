"""What holds for all tests: the outcome does not depend on the machine, its speed, its user or the
day.

Property tests try the same examples in every run, and no machine is too slow for them; `pytest
--hypothesis-profile=default` looks for new examples, `--hypothesis-profile=quick` tries a few.
"""

from __future__ import annotations

import fcntl
import functools
import gc
import hashlib
import itertools
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Self

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from hypothesis import settings

from support.provisioning import EngineCommands

gc.disable()  # until all is imported and collected: of a million objects hardly one is garbage
pytest_plugins = ("support.small_federation",)  # a fixture of many rooms

_KEYS = 24  # more than one federation has parties

settings.register_profile("quick", settings.get_profile("ci"), max_examples=10)
settings.load_profile("ci")
_SHARED = Path(__file__).parents[2] / "shared" / "data"
if _SHARED.is_dir():  # data sets beside the checkout, for tests that need one that is not embedded
    os.environ.setdefault("SUMUS_DATA", str(_SHARED.resolve()))

# Folders whose tests all train, start processes or calibrate: `make quick` does not even import them.
DEEP_FOLDERS = frozenset(
    {
        "attacks",
        "audit",
        "end_to_end",
        "engines",
        "features",
        "goldens",
        "gradients",
        "growth",
        "paper",
        "parties",
        "purity",
        "runs",
        "training",
        "tuning",
    }
)


@functools.lru_cache  # nine thousand tests stand in three hundred files
def _folder(path: Path, config: pytest.Config) -> str:
    inside = path.relative_to(config.rootpath / "tests")
    return inside.parts[0] if inside.parts else ""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if "not deep" not in config.getoption("markexpr"):
        return None
    return _folder(collection_path, config) in DEEP_FOLDERS or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what is deep, and lets files with real engines begin and files without anything deep
    end, so that no worker is left alone with a long file.
    """
    turns: dict[Path, int] = {}
    for item in items:
        if _folder(item.path, config) in DEEP_FOLDERS:
            item.add_marker("deep")
        marks = [item.get_closest_marker(name) is not None for name in ("network", "deep")]
        turn = [*marks, True].index(True)
        turns[item.path] = min(turn, turns.get(item.path, turn))
    items.sort(key=lambda item: turns[item.path])


def pytest_collection_finish() -> None:
    """Garbage is looked for among what tests leave, not among what they import."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _transport_keys_from_a_stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Federations are made a hundred times, and making an RSA key takes a tenth of a second: all
    take theirs from two dozen, which all workers share, each of which comes again after all the
    others.
    """
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    stocks: dict[int, list[rsa.RSAPrivateKey]] = {}
    turns = itertools.count()
    fresh = rsa.generate_private_key

    def shared_key(public_exponent: int, key_size: int, number: int) -> rsa.RSAPrivateKey:
        path = folder / f"rsa-{key_size}-{number}.pem"
        with open(folder / "rsa.lock", "a", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                key = fresh(public_exponent=public_exponent, key_size=key_size)
                path.write_bytes(
                    key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
                )
        return load_pem_private_key(path.read_bytes(), password=None)

    def next_key(public_exponent: int, key_size: int) -> rsa.RSAPrivateKey:
        stock = stocks.setdefault(key_size, [])
        if len(stock) < _KEYS:
            stock.append(shared_key(public_exponent, key_size, len(stock)))
            return stock[-1]
        return stock[next(turns) % _KEYS]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rsa, "generate_private_key", next_key)
        yield


class _KeyThatRemembers:
    """An Ed25519 key that verifies a signature once: what it refused it looks at again."""

    _verified: ClassVar[set[bytes]] = set()

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    @classmethod
    def from_public_bytes(cls, raw: bytes) -> Self:
        return cls(raw)

    def verify(self, signature: bytes, message: bytes) -> None:
        asked = hashlib.blake2b(struct.pack("<2Q", len(self._raw), len(signature)))
        for part in (self._raw, signature, message):
            asked.update(part)
        if (digest := asked.digest()) not in self._verified:
            Ed25519PublicKey.from_public_bytes(self._raw).verify(signature, message)
            self._verified.add(digest)


@pytest.fixture(scope="session", autouse=True)
def _what_every_party_of_a_process_does_is_done_once() -> Iterator[None]:
    """All parties of a test verify the same messages; the engine that makes kits is imported once;
    and no test pulls the plug, so files need not be on the disk. Processes that tests start do all
    of it as ever.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sumus.secagg.keys.Ed25519PublicKey", _KeyThatRemembers)
        patch.setattr(os, "fsync", lambda descriptor: os.fstat(descriptor) and None)
        patch.setattr("sumus.engines.nvflare.kits.subprocess", EngineCommands())
        yield


@pytest.fixture(scope="session", autouse=True)
def _ledgers_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test writes into the ledgers of whoever runs it, or stumbles over what is there."""
    state = tmp_path_factory.mktemp("state")
    (state / "budget.toml").write_text(
        "no_limit = true\n"
    )  # tests share ledgers of made-up records
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUMUS_STATE", str(state))
        yield


@pytest.fixture(autouse=True)
def _unnamed_records_of_its_own() -> None:
    """Records that nobody named share one ledger; those of two tests are not the same records."""
    for kind in ("jsonl", "head.json"):
        (Path(os.environ["SUMUS_STATE"]) / f"ledger-own-data.{kind}").unlink(missing_ok=True)
