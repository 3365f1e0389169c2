"""Every alert: it is silent while all is well, told once when its condition really comes about, by
the command of `--notify` and by its rule for Prometheus, and told again when it is over.

A scenario brings a party that is well, then makes the condition happen, then mends it. Conditions
are made where they come from: files, clocks, connections, what a job says; not in the alert.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from sumus.alerting import ALERTS
from sumus.books import plan_words
from sumus.cli.queue_progress import listed
from sumus.engines import Address, Kit, PlanQueue
from sumus.engines.health import MachineHealth, operator_health, server_health, silo_health
from sumus.engines.watched_server import ServerWatch, server_board
from sumus.engines.watched_silo import SiloWatch, silo_board
from sumus.parties import Site, open_party, server_trail
from sumus.watching import Board, FederationWatcher, federation_board
from sumus.watching.state import Books
from support.alerting import BY_NAME, Observed
from support.delivering import DeliveringFederation, small_plan
from support.kits import made_certificate
from support.synthetic_runs import made_account, made_plan

SILOS = ("Bergen", "Graz", "Oulu", "Riga", "Turku")


class Place(NamedTuple):
    """Where a scenario happens."""

    folder: Path
    patch: pytest.MonkeyPatch
    files: Path  # of a federation that nobody has trained, to be copied
    closing: ExitStack


Scenario = Callable[[Place], Iterator[Observed]]


# -- a federation, as its operator sees it


class Operated:
    """An operator who watches a federation of five silos."""

    def __init__(self, place: Place) -> None:
        self.board = federation_board("operator", "fl.example.org:8002", patience_seconds=120.0)
        self.watcher = FederationWatcher(self.board, names=SILOS)
        plan = made_plan()
        self.watcher.agreed(plan, made_account(plan), names=SILOS, needed=4)
        self.watcher.answered()
        self.watcher.connected(dict.fromkeys(SILOS))
        self.hear()
        self.observed = Observed(self.board, place.folder)

    def hear(self, phase: str = "training", **news: Any) -> None:
        self.watcher.told({"phase": phase, "stage": "local", "rounds": [], "refusals": {}} | news)


def run_finished(place: Place) -> Iterator[Observed]:
    operated = Operated(place)
    yield operated.observed
    operated.hear("finished")
    yield operated.observed
    operated.hear()  # the next run
    yield operated.observed


def run_failed(place: Place) -> Iterator[Observed]:
    operated = Operated(place)
    yield operated.observed
    operated.hear("failed", error="three attempts in a row ended without a sum")
    yield operated.observed
    operated.hear()
    yield operated.observed


def run_paused(place: Place) -> Iterator[Observed]:
    operated = Operated(place)
    yield operated.observed
    operated.hear("paused")
    yield operated.observed
    operated.hear()
    yield operated.observed


def plan_set_aside(place: Place) -> Iterator[Observed]:
    operated, queue = Operated(place), PlanQueue(place.folder / "queue")
    (entry,) = queue.add(small_plan(), words=plan_words)

    def look() -> Observed:
        operated.watcher.follow.change(queue=listed(queue.entries()))
        return operated.observed

    yield look()
    queue.set_aside(entry.number, "silo 'Graz' refuses it")
    yield look()
    queue.remove(entry.number)
    yield look()


def round_lost(place: Place) -> Iterator[Observed]:
    operated = Operated(place)
    yield operated.observed
    line = {"round": 2, "epsilon_spent": 0.4, "delta": 1e-5}
    operated.hear(rounds=[line], aborted={"1": "a silo lied"})
    yield operated.observed


def refused(place: Place) -> Iterator[Observed]:
    operated = Operated(place)
    yield operated.observed
    operated.hear(refusals={"Graz": "this is over the policy of silo 'Graz'."})
    yield operated.observed


def silo_lost(place: Place) -> Iterator[Observed]:
    operated = Operated(place)
    yield operated.observed
    operated.watcher.connected(dict.fromkeys(SILOS[:4]))
    yield operated.observed
    operated.watcher.connected(dict.fromkeys(SILOS))
    yield operated.observed


def too_few_silos(place: Place) -> Iterator[Observed]:
    operated = Operated(place)
    yield operated.observed
    operated.watcher.connected(dict.fromkeys(SILOS[:3]))
    yield operated.observed
    operated.watcher.connected(dict.fromkeys(SILOS[:4]))
    yield operated.observed


def server_away(place: Place) -> Iterator[Observed]:
    operated = Operated(place)
    yield operated.observed
    operated.watcher.unanswered("connection refused", next_try=time.time() + 15.0)
    yield operated.observed
    operated.watcher.answered()
    operated.hear()
    yield operated.observed


def stuck(place: Place) -> Iterator[Observed]:
    now = [0.0]
    operated = Operated(place)
    board = Board(operated.board.state, patience_seconds=120.0, clock=lambda: now[0])
    observed = Observed(board, place.folder)
    yield observed
    now[0] = 121.0
    yield observed
    board.beat()
    yield observed


# -- a silo, as its own people see it


class Kept:
    """A process that is kept alive: this one."""

    running, since = True, time.time()

    def __init__(self, pid: int, restarts: int = 0) -> None:
        self.pid, self.restarts = pid, restarts


class Joined:
    """A silo with a real vault, a kit with a certificate, and a server that it is connected to."""

    def __init__(self, place: Place) -> None:
        shutil.copytree(place.files, place.folder / "silo")
        self.vault = place.folder / "silo" / "silos" / "silo-0"
        site = f'data = "digits"\nledgers = "{self.vault}"\n'
        (self.vault / "site.toml").write_text(site)
        plans = self.vault / "plans"
        (plans / "plan.toml").rename(plans / f"{small_plan().hash}.toml")
        kit = place.folder / "kit"
        (kit / "startup").mkdir(parents=True)
        self.certificate = kit / "startup" / "client.crt"
        self.certificate.write_bytes(made_certificate(200)[1])
        self.back_up(days=1)
        open_party(self.vault).close()  # its trail begins
        self._closing = place.closing
        self.listener = place.closing.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.connect()
        address = Address("localhost", self.listener.getsockname()[1])
        self.kit, self.pid = Kit(kit, "nvflare", "silo-0", address), os.getpid()
        self.board = silo_board("silo-0")
        self.watch = SiloWatch(self.kit, self.vault, self.board)
        self.look()
        self.health: MachineHealth = silo_health(self.kit, self.vault)
        self.observed = Observed(self.board, place.folder, health=self.health)

    def connect(self) -> None:
        self.line = self._closing.enter_context(
            socket.create_connection(self.listener.getsockname())
        )

    def back_up(self, days: float) -> None:
        made = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds")
        (self.vault / "backup.json").write_text(json.dumps({"made": made}))

    def look(self, **processes: Any) -> None:
        kept = {"vault": Kept(self.pid), "relay": Kept(self.pid)} | processes
        self.watch.tended(**kept)
        self.watch.look()


def server_away_from_a_silo(place: Place) -> Iterator[Observed]:
    joined = Joined(place)
    yield joined.observed
    joined.line.close()
    joined.look()
    yield joined.observed
    joined.connect()
    joined.look()
    yield joined.observed


def refused_by_this_silo(place: Place) -> Iterator[Observed]:
    joined = Joined(place)
    yield joined.observed
    party = open_party(joined.vault)
    party.handle(b"nothing that a server says")
    party.close()
    joined.look()
    yield joined.observed


def process_down(place: Place) -> Iterator[Observed]:
    joined = Joined(place)
    yield joined.observed
    joined.look(vault=SimpleNamespace(running=False, since=0.0, restarts=0, pid=None))
    yield joined.observed
    joined.look()
    yield joined.observed


def process_restarted(place: Place) -> Iterator[Observed]:
    joined = Joined(place)
    yield joined.observed
    joined.look(relay=Kept(joined.pid, restarts=1))
    yield joined.observed


def run_received(place: Place) -> Iterator[Observed]:
    joined = Joined(place)
    yield joined.observed
    delivered = joined.vault / "received" / "digits-0123456789abcdef"
    delivered.mkdir(parents=True)
    note = {
        **dict.fromkeys(("parcel", "plan_hash", "model", "head"), "0" * 64),
        "received": "2026-01-01T00:00:00+00:00",
        "round": 2,
        "finished": True,
        "certified": True,
        "unopened": 0,
        "format": 1,
    }
    (delivered / "delivery.json").write_text(json.dumps(note))
    yield joined.observed


def _spending(percent: float) -> Scenario:
    def scenario(place: Place) -> Iterator[Observed]:
        joined = Joined(place)

        def spend(part: float) -> None:
            books = Books(
                dataset="digits",
                spent=4.0 * part / 100,
                limit=4.0,
                delta=1e-5,
                unit="record",
                runs=2,
                proved=True,
                neighbours="one record of one silo, add or remove",
                trust="2 of 3 silos present and honest",
            )
            joined.watch._follow.change(books=books)

        spend(75.0)
        yield joined.observed
        spend(percent + 0.1)
        yield joined.observed
        spend(75.0)  # of a higher limit
        yield joined.observed

    return scenario


def certificate_ends(place: Place) -> Iterator[Observed]:
    joined = Joined(place)
    yield joined.observed
    joined.certificate.write_bytes(made_certificate(20)[1])
    yield joined.observed
    joined.certificate.write_bytes(made_certificate(400)[1])
    yield joined.observed


def certificate_of_the_operator_ends(place: Place) -> Iterator[Observed]:
    operated = Operated(place)
    kit = place.folder / "admin"
    (kit / "startup").mkdir(parents=True)
    certificate = kit / "startup" / "client.crt"
    certificate.write_bytes(made_certificate(200)[1])
    opened = Kit(kit, "nvflare", "admin", Address("localhost", 8002))
    health = operator_health(opened, place.folder)
    observed = Observed(operated.board, place.folder, health=health)
    yield observed
    certificate.write_bytes(made_certificate(-0.5)[1])
    yield observed
    certificate.write_bytes(made_certificate(400)[1])
    yield observed


def disk_low(place: Place) -> Iterator[Observed]:
    joined = Joined(place)
    for used in (940, 960, 500):
        place.patch.setattr(shutil, "disk_usage", lambda path, used=used: (1000, used, 1000 - used))
        yield joined.observed


def backup_old(place: Place) -> Iterator[Observed]:
    joined = Joined(place)
    yield joined.observed
    joined.back_up(days=31)
    yield joined.observed
    joined.back_up(days=0)
    yield joined.observed


def backup_never_made(place: Place) -> Iterator[Observed]:
    joined = Joined(place)
    yield joined.observed
    (joined.vault / "backup.json").unlink()
    yield joined.observed
    joined.back_up(days=0)
    yield joined.observed


def ledger_broken(place: Place) -> Iterator[Observed]:
    """The ledger reads otherwise than it was written; noticed at the next hourly look."""
    joined = Joined(place)
    joined.health._sleep = lambda seconds: None
    path = Site.of_folder(joined.vault).ledger.path
    entry = {"body": {"a": 1}, "hash": "0" * 64, "kind": "entry", "previous": "0" * 64}
    yield joined.observed
    path.write_text(json.dumps(entry) + "\n")
    joined.health._looked = None
    yield joined.observed
    path.unlink()
    yield joined.observed


def trail_broken(place: Place) -> Iterator[Observed]:
    """A line is taken out of the silo's audit trail."""
    joined = Joined(place)
    joined.health._sleep = lambda seconds: None
    trail = joined.vault / "audit.jsonl"
    good = trail.read_bytes()
    yield joined.observed
    lines = good.splitlines(keepends=True)
    trail.write_bytes(b"".join([*lines[:1], *lines[2:]]))
    joined.health._looked = None
    yield joined.observed
    trail.write_bytes(good)
    yield joined.observed


def journal_broken(place: Place) -> Iterator[Observed]:
    """A run of the server reads otherwise than it was written."""
    shutil.copytree(place.files / "server", place.folder / "kit" / "sumus")
    kit = Kit(place.folder / "kit", "nvflare", "server", Address("localhost", 8002))
    server_trail(kit.state)
    board = server_board(kit)
    ServerWatch(kit, board)
    health = server_health(kit)
    health._sleep = lambda seconds: None
    observed = Observed(board, place.folder, health=health)
    yield observed
    run = kit.state / "runs" / "plan" / "run"
    run.mkdir(parents=True)
    (run / "journal.jsonl").write_text("{}\n")
    (run / "plan.toml").write_text(small_plan().to_toml())
    health._looked = None
    yield observed
    shutil.rmtree(run)
    yield observed


def clock_jumped(place: Place) -> Iterator[Observed]:
    joined = Joined(place)
    yield joined.observed
    joined.observed.now += 3600.0
    yield joined.observed


SCENARIOS: Mapping[str, tuple[Scenario, ...]] = {
    "run-finished": (run_finished,),
    "run-failed": (run_failed,),
    "run-paused": (run_paused,),
    "plan-set-aside": (plan_set_aside,),
    "run-received": (run_received,),
    "round-lost": (round_lost,),
    "refused": (refused, refused_by_this_silo),
    "silo-lost": (silo_lost,),
    "too-few-silos": (too_few_silos,),
    "server-away": (server_away, server_away_from_a_silo),
    "process-down": (process_down,),
    "process-restarted": (process_restarted,),
    "stuck": (stuck,),
    "budget-low": (_spending(80.0),),
    "budget-spent": (_spending(99.0),),
    "certificate-ends": (certificate_ends, certificate_of_the_operator_ends),
    "disk-low": (disk_low,),
    "backup-old": (backup_old, backup_never_made),
    "book-broken": (ledger_broken, trail_broken, journal_broken),
    "clock-jumped": (clock_jumped,),
}
ALSO = {"too-few-silos": {"silo-lost"}, "budget-spent": {"budget-low"}}
"""Alerts that come with another."""


@pytest.fixture
def place(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with ExitStack() as closing:
        yield Place(tmp_path, monkeypatch, files, closing)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    DeliveringFederation(root, small_plan()).close()
    return root


def test_every_alert_has_a_scenario() -> None:
    assert set(SCENARIOS) == {alert.name for alert in ALERTS}


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "number"),
    [(name, place) for name in SCENARIOS for place in range(len(SCENARIOS[name]))],
)
def test_it_is_silent_fires_once_and_ends(name: str, number: int, place: Place) -> None:
    alert, steps = BY_NAME[name], SCENARIOS[name][number](place)
    observed = next(steps)
    observed.look(minutes=20.0, looks=5)
    assert observed.told.heard == []  # all is well
    assert not observed.fires(alert)
    assert next(steps) is observed
    observed.look(minutes=2.0)
    assert not observed.heard(name) or alert.minutes(observed.lookout._limits) <= 2.0
    observed.look(minutes=alert.rule_minutes + 1.0, looks=2)
    told = observed.heard(name, "alert.raised")
    # once for each silo, process or book: a broken ledger breaks the trail that names its entries
    things = [(each.get("silo"), each.get("part")) for each in told]
    assert len(things) == len(set(things)) >= 1
    assert observed.fires(alert)
    assert told[0]["says"] == alert.says
    assert told[0]["severity"] == alert.severity
    others = {each["alert"] for each in observed.told.heard} - {name}
    assert others <= ALSO.get(name, set())
    if next(steps, None) is None:
        observed.look(minutes=20.0, looks=5)
        assert not observed.fires(alert)
        assert observed.heard(name) == told
        observed.told.close()
        return
    observed.look(minutes=2.0)
    assert not observed.fires(alert)
    if alert.news:
        assert observed.heard(name, "alert.cleared") == []
    else:
        over = observed.heard(name, "alert.cleared")
        assert len(over) == len(told)
        assert min(each["seconds"] for each in over) > 0.0
    assert observed.heard(name) == told
    observed.told.close()


def test_an_alert_that_comes_and_goes_before_its_time_is_not_told(place: Place) -> None:
    operated = Operated(place)
    for _ in range(5):
        operated.watcher.connected(dict.fromkeys(SILOS[:4]))
        operated.observed.look(minutes=3.0)
        operated.watcher.connected(dict.fromkeys(SILOS))
        operated.observed.look(minutes=3.0)
    assert operated.observed.told.heard == []
    assert not operated.observed.fires(BY_NAME["silo-lost"])
    operated.observed.told.close()


def test_what_was_so_before_the_watching_began_is_no_news(place: Place) -> None:
    """Whoever restarts a watcher is not told of yesterday's end, refusals and runs again."""
    operated = Operated(place)
    operated.hear("finished", refusals={"Graz": "no"})
    again = Observed(operated.board, place.folder)
    again.look(minutes=5.0, looks=3)
    assert again.told.heard == []
    again.told.close()
    operated.observed.told.close()


def test_at_a_silo_nothing_is_told_that_a_record_could_have_moved(place: Place) -> None:
    """The words of a refusal, which may quote a record, stay in refusals.log."""
    joined = Joined(place)
    joined.observed.look()
    with (joined.vault / "refusals.log").open("a") as log:
        log.write(json.dumps({"time": "now", "reason": "row 17: Smith is no number"}) + "\n")
    joined.look()
    joined.observed.look(minutes=1.0)
    (told,) = joined.observed.heard("refused")
    assert "Smith" not in json.dumps(told)
    assert "silo" not in told
    joined.observed.told.close()
