"""Whoever reads logs: a server's operator wants a silo's limits, totals and counts; somebody with a
silo's log wants its records.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from books.test_ledger import made_entry
from sumus.errors import DataError
from sumus.events import LineFormatter, LogChoice, configure, log_file
from sumus.events.sifting import Sieve
from sumus.parties import SiloParty, Site
from support.loggers import loggers as loggers
from support.secrets import leaks, logs_in
from support.trails import AuditedRun

pytestmark = pytest.mark.deep
LIMIT, SPENT = "0.0634765625", 0.0302734375
RECORD = "Smith, John; 1951-02-01; HIV+"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loggers: None) -> Iterator[AuditedRun]:
    """Silo 2 allows little and has spent some of it already."""
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", "3")
    run = AuditedRun(tmp_path / "federation")
    (run.vault(2) / "policy.toml").write_text(f"max_epsilon = {LIMIT}\n")
    Site.of_folder(run.vault(2)).ledger.enter(made_entry(run="earlier", epsilon=SPENT))
    yield run
    run.close()


def trained(run: AuditedRun, folder: Path) -> dict[str, bytes]:
    """The log of a server in whose process everything happens, and all that the server keeps."""
    configure(LogChoice(level="debug"), party="server", process="job", by_default=folder / "a.log")
    text = log_file(folder / "b.log", party="server", process="job", style="text")
    logging.getLogger().addHandler(text)
    assert run.train(rounds=1)["phase"] == "paused"
    logs = logs_in(folder) | logs_in(run.state)
    assert any(b"silo.refused" in content for content in logs.values())
    return logs


NUMBERS = {"limit": [LIMIT.encode()], "total": [str(SPENT).encode()]}


def test_an_operator_who_reads_all_server_logs_learns_no_number_of_a_silo(
    run: AuditedRun, tmp_path: Path
) -> None:
    logs = trained(run, tmp_path / "logs")
    assert leaks(logs, NUMBERS) == []
    own = {"refusals": (run.vault(2) / "refusals.log").read_bytes()}
    assert leaks(own, NUMBERS) == ["limit in refusals"]  # the search finds what is there


def test_without_the_parties_of_events_the_limit_is_in_the_servers_log(
    run: AuditedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: one process tells events of all parties, and nobody sorts them."""
    monkeypatch.setattr(Sieve, "filter", lambda sieve, record: True)
    monkeypatch.setattr(LineFormatter, "_event", lambda lines, record: record.happened)
    logging.getLogger().setLevel(logging.CRITICAL)  # only what is told
    assert "limit" in str(leaks(trained(run, tmp_path / "logs"), NUMBERS))


# -- a silo's log

Failing = Callable[[Any, Any], Any]


def refuse(*_: Any) -> Any:
    raise DataError(f"row 17: {RECORD!r} cannot be read. Correct the row.")


def crash(*_: Any) -> Any:
    raise ValueError(f"could not convert string to float: {RECORD!r}")


def warn(*_: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(f"dropping {RECORD!r}", stacklevel=1)
    logging.getLogger("pyarrow.csv").error("bad row: %s", RECORD)
    raise DataError("nothing is left.")


def logged_at_silo(
    run: AuditedRun, folder: Path, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> dict[str, bytes]:
    """The silo's logs after its records could not be used."""
    for style in ("json", "text"):
        configure(
            LogChoice(file=folder / f"{style}.log", level="debug", style=style),
            party="silo",
            process="vault",
        )
    monkeypatch.setattr(SiloParty, "_work", failing)
    run.open()
    answer = run.parties[0].handle(run.federation.greeting())
    assert RECORD.encode() not in answer
    return logs_in(folder) | logs_in(run.vault(0))


@pytest.mark.parametrize("failing", [refuse, crash, warn])
def test_whoever_reads_a_silos_log_finds_no_record_in_it(
    run: AuditedRun, tmp_path: Path, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = logged_at_silo(run, tmp_path / "logs", failing, monkeypatch)
    assert sum(b"refusal" in content for content in logs.values()) == 3
    if failing is warn:
        assert sum(b"library.said" in content for content in logs.values()) == 2
    assert leaks(logs, {"record": [RECORD.encode(), b"Smith"]}) == []
    kept = (run.vault(0) / "refusals.log").read_text()
    assert (RECORD in kept) == (failing is not warn)  # its own people are told


def test_a_log_that_quotes_other_packages_has_the_record(
    run: AuditedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the same lines by the formatter of a party that holds no records."""
    real = LineFormatter.__init__

    def as_relay(lines: LineFormatter, **options: Any) -> None:
        real(lines, **(options | {"party": "relay"}))

    monkeypatch.setattr(LineFormatter, "__init__", as_relay)
    logs = logged_at_silo(run, tmp_path / "logs", warn, monkeypatch)
    assert leaks(logs, {"record": [RECORD.encode()]})
