"""A federation of real processes with mutual TLS: server and three silos on loopback, over NVIDIA
FLARE.

One federation serves all tests of this file, because bringing it up is most of their cost. Its
operator is hostile: the server's own controls on jobs are switched off, so whatever is refused here
is refused by the silos themselves.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

pytest.importorskip("nvflare")

from sumus.books import Ledger, RunFolder
from sumus.data import load
from sumus.engines import LocalProcesses, train_across
from sumus.engines.nvflare.jobs import NvflareOperator, job_folder
from sumus.engines.nvflare.kits import close_down_server, server_command
from sumus.noise import to_ring
from sumus.parties import approve, audit_server, audit_vault
from sumus.training import prepare
from support.notes import LOOPBACK, Notes, agreed
from support.running import PATIENCE, job_process
from support.secrets import leaks, logs_in, numbers, spellings
from support.small_federation import simulated

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]

SEED = 11
THREE = {"federation__silos": 3, "federation__rounds": 40}


class HostileFederation:
    """The federation that the tests share."""

    def __init__(self, root: Path) -> None:
        self.agreement, self.notes = agreed(**THREE), Notes(root.parent / "notes")
        policies = dict.fromkeys(
            [silo.name for silo in self.agreement.design.silos], "max_epsilon_per_run = 2.0\n"
        )
        self.processes = LocalProcesses(
            root,
            self.agreement,
            data="digits",
            policies=policies,
            environment={"SUMUS_SIMULATION_SEED": str(SEED), **self.notes.environment},
        )
        federation = self.processes.federation
        self.names = federation.roster.names
        for name in self.names:
            (self.processes.vault(name) / "SIMULATION").touch()
        kit = federation.kit("server")
        close_down_server(kit)
        for file, change in (
            ("resources.json", {"class_allow_list": ["*"]}),
            ("authorization.json", {}),
        ):
            content = json.loads((kit / "local" / file).read_text()) | change
            if file == "authorization.json":
                content["permissions"]["project_admin"] = "any"
            (kit / "local" / file).write_text(json.dumps(content))
        self.processes._run("server", server_command(kit))
        for name in self.names:
            self.processes.start(name)
        self.operator = NvflareOperator(federation.kit("admin"), first_contact_seconds=120.0)
        assert len(self.operator.wait_for_sites(3, seconds=120.0)) == 3

    def close(self) -> None:
        self.operator.close()
        self.processes.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileFederation]:
    made = HostileFederation(tmp_path_factory.mktemp("nvflare") / "federation")
    yield made
    made.close()


# -- the whole run, and what the server sees of it


def memory_of(pids: list[int]) -> bytes:
    """Everything that can be read of some processes' memory."""
    found = bytearray()
    for pid in pids:
        with open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                match = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
                if match:
                    start, stop = (int(part, 16) for part in match.groups())
                    try:
                        memory.seek(start)
                        found += memory.read(stop - start)
                    except (OSError, ValueError):
                        continue
    return bytes(found)


def holds(content: bytes, *vectors: np.ndarray) -> bool:
    """Whether bytes hold the middle of one of the vectors as 32-bit words or as 64-bit integers, at
    any alignment. One pass for all vectors: only where the lower half of a first word fits is more
    looked at.
    """
    middles = [vector[len(vector) // 2 :][:12].astype(np.int64) for vector in vectors]
    sought = [to_ring(middle, 32).astype(np.uint32) for middle in middles]
    firsts = np.array([words[0] for words in sought])
    fits = np.zeros(1 << 16, dtype=bool)
    fits[firsts & 0xFFFF] = True
    for shift in range(4):
        count = (len(content) - shift) // 4
        view = np.frombuffer(content, dtype="<u4", offset=shift, count=count)
        halves = np.frombuffer(content, dtype="<u2", offset=shift, count=2 * count)
        places = np.flatnonzero(fits[halves[::2]])
        for place in places[np.isin(view[places], firsts)]:
            if any(
                np.array_equal(view[place : place + step * len(words) : step], words)
                for words in sought
                for step in (1, 2)
            ):
                return True
    return False


def test_the_search_for_vectors_finds_them() -> None:
    vector = np.arange(-300_000, 300_000, 7001)
    for kind in ("<i4", "<i8"):
        assert holds(b"x" * 13 + vector.astype(kind).tobytes() + b"y" * 40, vector)
        assert holds(b"x" * 13 + vector.astype(kind).tobytes() + b"y" * 40, vector + 1, vector)
    assert holds(bytes(6) + to_ring(vector, 32).astype("<u8").tobytes(), vector)
    assert not holds((vector + 1).astype("<i8").tobytes(), vector, vector + 2)


def test_the_model_is_bit_identical_and_the_server_holds_no_silos_vector(
    running: HostileFederation, tmp_path: Path
) -> None:
    alone = simulated(
        running.agreement.design,
        prepare(running.agreement.plan, load(running.agreement.plan)),
        SEED,
    )
    plain = [
        [outcome.local[silo].vector for silo in sorted(outcome.local)] for outcome in alone.rounds()
    ]
    dumped: list[tuple[int, bytes]] = []
    server = running.processes.processes["server"]

    def watch(news: Mapping[str, Any]) -> None:
        job = job_process(running.processes, "server")
        if news["phase"] == "training" and news["rounds"] and not dumped and job is not None:
            job.suspend()
            memory = memory_of([server.pid, job.pid])
            job.resume()
            if b"sumus.parties.server" in memory:
                dumped.append((news["rounds"][-1]["round"], memory))

    path = train_across(
        running.operator, running.agreement, out=tmp_path, watch=watch, patience=PATIENCE
    )
    run = RunFolder.open(path)
    run.verify()
    assert run.void is not None  # a public seed never looks like a private run
    assert run.summary is not None
    assert run.summary["lost_rounds"] == 0
    checkpoint = run.read_checkpoint()
    assert checkpoint is not None
    assert np.array_equal(checkpoint[0]["iterate"], alone.server.parameters)

    stored = [
        file.read_bytes()
        for file in running.processes.federation.kit("server").rglob("*")
        if file.is_file()
    ]
    stored.append((running.processes.federation.folder / "server.log").read_bytes())
    model = alone.server.parameters[300:312].astype("<f4").tobytes()
    assert any(model in content for content in stored)  # the search finds what is there
    everything = b"".join(stored)
    assert not holds(everything, *(vector for vectors in plain for vector in vectors))
    assert dumped, "the server's memory was never read"
    reached, memory = dumped[0]
    # it had gone on when it was stopped
    around = plain[reached - 1 : reached + 2]
    assert not holds(memory, *(vector for vectors in around for vector in vectors))
    for name in running.names:
        assert running.processes.vault(name).stat().st_mode & 0o777 == 0o700
        state = running.processes.state(name)
        own = b"".join(file.read_bytes() for file in state.rglob("*") if file.is_file())
        # not even on the silo's own disk
        assert not holds(own, *plain[-1])
        assert len(Ledger.of_dataset("digits", state=state).entries()) == 40
    require_logs_without_secrets(running, plain[-1])


def require_logs_without_secrets(running: HostileFederation, vectors: list[np.ndarray]) -> None:
    """No log or audit trail of any party, of real processes after a whole run, holds a key, a
    record or a vector in any spelling; and all of them are there and whole.
    """
    folder, prepared = running.processes.federation.folder, load(running.agreement.plan)
    secrets: dict[str, list[bytes]] = {}
    for path in folder.rglob("*.key"):  # lines of base64, of PEM or behind a name
        lines = [line.split(b":")[-1].split(b" ")[-1] for line in path.read_bytes().splitlines()]
        secrets[str(path)] = [line[:40] for line in lines if len(line) >= 40]
    for path in folder.rglob("sessions/*/keys"):
        secrets[str(path)] = spellings(path.read_bytes()[-48:])
    for place, silo in enumerate(prepared.silos):
        secrets[f"records of {silo.name}"] = numbers(
            np.asarray(silo.train.x[0], dtype=float).flatten()[8:24]
        )
        secrets[f"vector of {silo.name}"] = numbers(vectors[place][300:306].astype(float))
    assert all(secrets.values())
    assert all(len(form) >= 16 for forms in secrets.values() for form in forms)
    logs = logs_in(folder)
    kinds = {Path(path).name for path in logs}
    assert {"server.log", "vault.log", "engine.log", "join.log", "audit.jsonl"} <= kinds
    assert leaks(logs, secrets) == []
    planted = {path: b"said: " + forms[-1] + b"!" for path, forms in secrets.items()}
    assert len(leaks(planted, secrets)) >= len(secrets)  # the search finds what is there
    for name in running.names:
        audit = audit_vault(running.processes.vault(name))
        assert audit.passed, audit.findings
        assert audit.reading.counts["release"] == 40
    server = audit_server(running.processes.federation.state("server"))
    assert server.passed, server.findings
    assert server.reading.counts["sum.opened"] == 40
    for path, content in logs.items():
        if Path(path).name in ("vault.log", "engine.log", "join.log", "server.log"):
            lines = [json.loads(line) for line in content.splitlines()]
            assert len(content) < 1 << 20, path
            assert all("event" in line for line in lines)


# -- what a hostile operator submits


def submit(running: HostileFederation, job: Path) -> dict[str, Any]:
    return running.operator.run_job(job, lambda news: None)


def test_a_job_that_carries_code_is_refused_by_every_silo(
    running: HostileFederation, tmp_path: Path
) -> None:
    marker = tmp_path / "code-ran"
    with job_folder(running.agreement, rounds=1, patience=PATIENCE) as job:
        (job / "app" / "custom").mkdir()
        (job / "app" / "custom" / "evil.py").write_text(
            f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n"
        )
        config = job / "app" / "config" / "config_fed_client.json"
        config.write_text(
            config.read_text().replace(
                "sumus.engines.nvflare.executor.SiloExecutor", "evil.Executor"
            )
        )
        outcome = submit(running, job)
    assert outcome["phase"] != "finished"
    assert not marker.exists()
    assert not outcome["rounds"]


def test_a_job_that_names_a_foreign_class_is_refused_by_every_silo(
    running: HostileFederation, tmp_path: Path
) -> None:
    marker = tmp_path / "class-ran"
    with job_folder(
        running.agreement, rounds=1, patience=PATIENCE | {"set_up_seconds": 3.0}
    ) as job:
        config = job / "app" / "config" / "config_fed_client.json"
        content = json.loads(config.read_text())
        content["components"] = [
            {"id": "evil", "path": "subprocess.Popen", "args": {"args": ["touch", str(marker)]}}
        ]
        config.write_text(json.dumps(content))
        outcome = submit(running, job)
    if outcome["phase"] == "failed":
        assert not outcome["rounds"]
    else:  # an earlier job had finished the run, so this one ends without silos: nobody took a copy
        assert outcome["delivered"]["received"] == []
    assert not marker.exists()


def test_a_job_runs_no_command_by_naming_what_sumus_can_do(
    running: HostileFederation, tmp_path: Path
) -> None:
    """Three JSON files that name a callable of ours. The control is a silo that allows all that
    begins with `sumus.`: it obeys.
    """
    trusting = running.names[2]
    secret = running.processes.vault(trusting) / "identity.key"
    resources = running.processes.federation.kit(trusting) / "local" / "resources.json"
    closed = resources.read_text()
    resources.write_text(json.dumps(json.loads(closed) | {"class_allow_list": ["sumus."]}))
    (tmp_path / "log").touch()
    theft = {
        "id": "gadget",
        "path": "sumus.engines.processes.OwnedProcess",
        "args": {
            "command": [
                "/bin/sh",
                "-c",
                f'cp {secret} {tmp_path}/stolen-$(basename "$PWD")',
            ],
            "log": {
                "path": "sumus.data.locations.find",
                "args": {"relative": str(tmp_path / "log")},
            },
        },
    }
    try:
        with job_folder(
            running.agreement, rounds=1, patience=PATIENCE | {"set_up_seconds": 3.0}
        ) as job:
            config = job / "app" / "config" / "config_fed_client.json"
            config.write_text(json.dumps(json.loads(config.read_text()) | {"components": [theft]}))
            submit(running, job)
    finally:
        resources.write_text(closed)
    assert [path.name for path in tmp_path.glob("stolen-*")] == [f"stolen-{trusting}"]
    assert (tmp_path / f"stolen-{trusting}").read_text() == secret.read_text()


def test_plans_that_the_silos_did_not_approve_or_their_policy_forbids_are_refused_with_reasons(
    running: HostileFederation,
) -> None:
    unknown = agreed(federation__silos=3, federation__rounds=2, training__init_seed=1)
    with job_folder(unknown, rounds=2, patience=PATIENCE) as job:
        outcome = submit(running, job)
    assert set(outcome["refusals"]) == set(running.names)
    assert all("not one that silo" in reason for reason in outcome["refusals"].values())

    greedy = agreed(federation__silos=3, federation__rounds=2, privacy__epsilon=4.0)
    for name in running.names:
        approve(running.processes.vault(name), [greedy.plan])
    with job_folder(greedy, rounds=2, patience=PATIENCE) as job:
        outcome = submit(running, job)
    assert outcome["phase"] == "failed"
    assert "over the policy of silo" in outcome["error"]
    assert "max_epsilon" not in outcome["error"]
    assert set(outcome["refusals"]) == set(running.names)


# -- a kill


def test_a_killed_job_process_of_a_silo_is_back_in_the_same_job(
    running: HostileFederation, tmp_path: Path
) -> None:
    # seconds in which to be killed and come back
    again = agreed(federation__silos=3, federation__rounds=48, training__init_seed=2)
    for name in running.names:
        approve(running.processes.vault(name), [again.plan])
    killed: list[int] = []

    def watch(news: Mapping[str, Any]) -> None:
        process = job_process(running.processes, running.names[1])
        if news["phase"] == "training" and not killed and process is not None:
            killed.append(process.pid)
            process.kill()

    path = train_across(running.operator, again, out=tmp_path, watch=watch, patience=PATIENCE)
    run = RunFolder.open(path)
    assert killed
    assert run.summary is not None
    assert run.summary["lost_rounds"] == 0
    records = run.rounds()
    assert records[-1].survivors == running.names
    entries = Ledger.of_dataset("digits", state=running.processes.state(running.names[1])).entries()
    ids = [entry.round_id for entry in entries if entry.plan_hash == again.plan.hash]
    assert len(ids) == len(set(ids))


# -- who is called


def test_nothing_phones_home(running: HostileFederation) -> None:
    """No process of the federation, its training and its jobs above tried to reach or look up
    anything but this machine.
    """
    assert running.notes.called, "nobody took notes"
    assert running.notes.called <= LOOPBACK
    parties = running.processes.processes.values()
    family = [psutil.Process(party.pid) for party in parties] + [
        each for party in parties for each in party.descendants()
    ]
    open_now = {
        connection.raddr.ip
        for each in family
        for connection in each.net_connections("inet")
        if connection.raddr
    }
    assert open_now  # connections that compiled code made are seen here only
    assert all(ipaddress.ip_address(address).is_loopback for address in open_now)
