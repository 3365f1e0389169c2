"""What a silo does when it is told to, in the engine's own request processors: its agent before and
after ours stands in its place.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nvflare")

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.workspace import Workspace
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.sec.audit import AuditService
from nvflare.private.admin_defs import Message, MsgHeader, ReturnCode, ok_reply
from nvflare.private.defs import RequestHeader, SysCommandTopic, TrainingTopic, new_cell_message
from nvflare.private.fed.client.admin import FedAdminAgent, RequestProcessor
from nvflare.private.fed.client.client_engine import ClientEngine
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.privacy_manager import PrivacyManager, PrivacyService

from sumus.engines.nvflare.control import KEPT_TOPICS, SiloAgent
from sumus.engines.nvflare.job_folders import tidy_jobs, tidy_server

SECRET = "silo-0 ed25519-secret:0123"
JOB = "99bcdc83-f763-40d3-89f2-801e7f0ea752"
FOREIGN: list[Any] = [
    "sumus",
    "local",
    "startup",
    "",
    ".",
    "..",
    "../sumus",
    JOB.upper(),
    f"{JOB} ",
    f"{{{JOB}}}",
    7,
    ["x"],
    {},
]
FORBIDDEN = "refused: this silo does not do that"


class Cell:
    """Takes the place of the engine's: the agent only registers at it and asks for its name."""

    def register_request_cb(self, **ignored: Any) -> None: ...

    def get_fqcn(self) -> str:
        return "silo-0"


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Path]:
    """A silo's kit, with the engine's services as a process of it would set them up."""
    for folder in ("sumus", "local", "startup"):
        (tmp_path / folder).mkdir()
    (tmp_path / "sumus" / "identity.key").write_text(SECRET)
    (tmp_path / "startup" / "fed_client.json").write_text("{}")
    (tmp_path / "local" / "log_config.json").write_text(
        '{"version": 1, "disable_existing_loggers": false}'
    )
    before, level = AuditService.the_auditor, logging.getLogger().level
    AuditService.the_auditor = None
    AuditService.initialize(str(tmp_path / "audit.log"))
    PrivacyService.initialize(PrivacyManager(scopes=None, default_scope_name=None, components=None))
    yield tmp_path
    AuditService.close()
    AuditService.the_auditor = before
    logging.getLogger().setLevel(level)


def agent_of(
    kind: type[FedAdminAgent], kit: Path, processors: list[Any] | None = None
) -> FedAdminAgent:
    """The engine's own client engine and request processors behind an agent."""
    client = SimpleNamespace(
        client_name="silo-0", client_args={}, components={}, secure_train=False, cell=None
    )
    engine = ClientEngine(client, argparse.Namespace(workspace=str(kit), set=[]), 0)
    workspace = Workspace(root_dir=str(kit), site_name="silo-0")
    engine.fl_ctx_mgr.private_stickers[FLContextKey.WORKSPACE_OBJECT] = workspace
    agent = kind(client_name="admin_agent", cell=Cell(), app_ctx=engine)
    for processor in (
        ClientRequestProcessors.request_processors if processors is None else processors
    ):
        agent.register_processor(processor)
    return agent


def request(topic: str, body: Any = "", *, origin: str, **headers: Any) -> Any:
    """A request that does not ask for authorisation, as whoever writes it may choose."""
    asked = Message(topic=topic, body=body)
    asked.set_headers({getattr(RequestHeader, name): value for name, value in headers.items()})
    return new_cell_message({MessageHeaderKey.ORIGIN: origin}, asked)


def answer(agent: FedAdminAgent, message: Any) -> Message:
    return agent._dispatch_request(message).payload


def refused(reply: Message) -> bool:
    return reply.get_header(MsgHeader.RETURN_CODE) == ReturnCode.ERROR and str(
        reply.body
    ).startswith("refused: ")


def archive(*names: str, size: int = 2) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for name in names:
            made.writestr(name, b" " * (size - 2) + b"{}")
    return buffer.getvalue()


OURS = archive(
    "config/config_fed_client.json",
    "config/config_fed_server.json",
    ".__nvfl_sig.json",
    "config/.__nvfl_submitter.crt",
)


def attacks(kit: Path) -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Name of an attack → topic, body and headers."""
    meta = {"job_id": "sumus", "submitter_role": "project_admin"}
    return {
        "shell": ((SysCommandTopic.SHELL, f"cat {kit / 'sumus' / 'identity.key'}"), {}),
        "delete": ((TrainingTopic.DELETE_RUN,), {"JOB_ID": "sumus"}),
        "deploy": (
            (TrainingTopic.DEPLOY, OURS),
            {"JOB_ID": "sumus", "JOB_META": meta, "APP_NAME": "app"},
        ),
        "log configuration": ((SysCommandTopic.CONFIGURE_SITE_LOG, "DEBUG"), {}),
    }


@pytest.mark.parametrize("attack", ["shell", "delete", "deploy", "log configuration"])
@pytest.mark.parametrize("origin", ["server", "silo-1"])
def test_no_message_reads_deletes_overwrites_or_reconfigures_at_a_silo(
    kit: Path, attack: str, origin: str
) -> None:
    content, headers = attacks(kit)[attack]
    reply = answer(agent_of(SiloAgent, kit), request(*content, origin=origin, **headers))
    assert refused(reply)
    assert SECRET not in str(reply.body)
    assert [path.name for path in (kit / "sumus").iterdir()] == ["identity.key"]
    assert (kit / "sumus" / "identity.key").read_text() == SECRET
    assert not (kit / "log.txt").exists()


@pytest.mark.parametrize("attack", ["shell", "delete", "deploy", "log configuration"])
def test_the_engines_own_agent_obeys_any_silo(kit: Path, attack: str) -> None:
    """The control of the test above: what ours keeps away is real."""
    content, headers = attacks(kit)[attack]
    reply = answer(agent_of(FedAdminAgent, kit), request(*content, origin="silo-1", **headers))
    if attack == "shell":
        assert SECRET in reply.body
    elif attack == "log configuration":
        assert reply.body == "successfully configured silo-0 log"
    else:
        assert not (kit / "sumus" / "identity.key").exists()


def test_eight_of_the_engines_request_processors_are_left(kit: Path) -> None:
    stock = {
        topic
        for processor in ClientRequestProcessors.request_processors
        for topic in processor.get_topics()
    }
    kept = set(agent_of(SiloAgent, kit).processors)
    assert kept == KEPT_TOPICS < stock
    assert len(kept) == 8
    for topic in stock - kept:
        assert (
            answer(agent_of(SiloAgent, kit), request(topic, origin="server", JOB_ID=JOB)).body
            == FORBIDDEN
        )


class Obedient(RequestProcessor):
    """Does whatever reaches it, and says so."""

    def get_topics(self) -> list[str]:
        return sorted(KEPT_TOPICS)

    def process(self, req: Message, app_ctx: Any) -> Message:
        return ok_reply(body="done")


def proper(topic: str, **changes: Any) -> Any:
    """A request as an honest server, or the silo's own job process, sends it."""
    content: dict[str, Any] = {"origin": "server", "JOB_ID": JOB, "body": ""}
    if topic in (TrainingTopic.DEPLOY, TrainingTopic.START_JOB):
        content["JOB_META"] = {"job_id": changes.get("JOB_ID", JOB)}
    if topic == TrainingTopic.DEPLOY:
        content["body"] = OURS
    if topic == TrainingTopic.NOTIFY_JOB_STATUS:
        content["origin"] = f"silo-0.{JOB}"
    return request(topic, **(content | changes))


@pytest.mark.parametrize("topic", sorted(KEPT_TOPICS))
def test_what_a_job_needs_is_done_for_the_server_and_for_nobody_else(kit: Path, topic: str) -> None:
    agent = agent_of(SiloAgent, kit, [Obedient()])
    assert answer(agent, proper(topic)).body == "done"
    for origin in (
        "silo-1",
        f"silo-1.{JOB}",
        f"server.{JOB}",
        f"silo-0.{uuid.uuid4()}",
        "silo-0",
        "Server",
        "",
        None,
    ):
        assert refused(answer(agent, proper(topic, origin=origin)))
    other = "server" if topic == TrainingTopic.NOTIFY_JOB_STATUS else f"silo-0.{JOB}"
    assert refused(answer(agent, proper(topic, origin=other)))


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("topic", sorted(KEPT_TOPICS))
def test_a_job_is_known_by_a_uuid_so_that_it_names_no_other_folder(
    kit: Path, topic: str, name: Any
) -> None:
    agent = agent_of(SiloAgent, kit, [Obedient()])
    reply = answer(agent, proper(topic, JOB_ID=name, JOB_META={"job_id": name}))
    assert refused(reply)


def test_a_request_about_no_job_is_refused_where_it_needs_one(kit: Path) -> None:
    agent = agent_of(SiloAgent, kit, [Obedient()])
    for topic in KEPT_TOPICS:
        done = answer(agent, proper(topic, JOB_ID=None)).body == "done"
        assert done == (
            topic
            in (
                TrainingTopic.CANCEL_RESOURCE,
                TrainingTopic.CHECK_STATUS,
                SysCommandTopic.REPORT_VERSION,
            )
        )


@pytest.mark.parametrize("topic", [TrainingTopic.DEPLOY, TrainingTopic.START_JOB])
@pytest.mark.parametrize(
    "meta", [None, {}, {"job_id": "sumus"}, "job_id", {"job_id": str(uuid.UUID(int=1))}]
)
def test_a_jobs_description_is_of_that_job(kit: Path, topic: str, meta: Any) -> None:
    assert refused(answer(agent_of(SiloAgent, kit, [Obedient()]), proper(topic, JOB_META=meta)))


@pytest.mark.parametrize(
    "body",
    [
        archive("config/config_fed_client.json", "custom/evil.py"),
        # the engine's parser would fetch addresses that it includes
        archive("config/config_fed_client.conf"),
        archive("config/config_fed_client.json", "../../sumus/identity.key"),
        archive("config/config_fed_client.json", size=17 << 20),
        archive("config/config_fed_client.json", "more/"),
        archive("config/config_fed_client.json", *(f"{number}/" for number in range(1000))),
        b"not an archive",
        "text",
        None,
    ],
)
def test_a_job_is_made_of_our_json_files(kit: Path, body: Any) -> None:
    assert refused(
        answer(agent_of(SiloAgent, kit, [Obedient()]), proper(TrainingTopic.DEPLOY, body=body))
    )


def test_a_payload_that_is_no_request_is_refused(
    kit: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = agent_of(SiloAgent, kit)
    assert refused(
        answer(agent, new_cell_message({MessageHeaderKey.ORIGIN: "server"}, {"topic": "sys.shell"}))
    )
    assert 'control.refused origin=server reason="this silo does not do that"' in caplog.messages


# -- folders of jobs


def job_folders(place: Path, count: int) -> list[str]:
    """Folders of jobs, oldest first."""
    names = [str(uuid.UUID(int=number + 1)) for number in range(count)]
    for age, name in enumerate(names):
        (place / name).mkdir(parents=True)
        (place / name / "log.txt").write_text("x")
        os.utime(place / name, (age, age))
    return names


def test_only_the_latest_jobs_are_kept_and_nothing_else_is_removed(tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "kit", tmp_path / "elsewhere"
    names = job_folders(place, 8)
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (place / str(uuid.UUID(int=99))).symlink_to(elsewhere)
    for other in ("sumus", "startup", "local", JOB.upper()):
        (place / other).mkdir()
        os.utime(place / other, (0, 0))
    assert sorted(tidy_jobs(place)) == names[:3]
    assert {path.name for path in place.iterdir()} >= {*names[3:], "sumus", "startup", "local"}
    assert (elsewhere / "kept").exists()
    assert tidy_jobs(place) == []
    assert tidy_jobs(tmp_path / "none") == []


def test_a_server_that_runs_keeps_every_job_that_has_not_ended(tmp_path: Path) -> None:
    kept, downloads = tmp_path / "storage" / "jobs", tmp_path / "transfer"
    names, fetched = job_folders(kept, 12), job_folders(downloads, 7)
    told = [b'{"status": "RUNNING"}', b'{"status": "SUBMITTED"}', b"{", b"[]", b"{}"]
    for name, text in zip(names, told + [b'{"status": "FINISHED:COMPLETED"}'] * 7, strict=True):
        (kept / name / "meta").write_bytes(text)
    for age, name in enumerate(names):
        os.utime(kept / name, (age, age))
    tidy_server(tmp_path)
    assert sorted(path.name for path in kept.iterdir()) == [*names[:5], *names[7:]]
    assert sorted(path.name for path in downloads.iterdir()) == fetched[2:]
    tidy_server(tmp_path / "none")


@pytest.mark.parametrize("kind", [SiloAgent, FedAdminAgent])
def test_a_sequence_of_jobs_does_not_fill_the_disk(kit: Path, kind: type) -> None:
    """The control: the engine's own agent keeps every folder."""
    names = job_folders(kit, 8)
    answer(agent_of(kind, kit, [Obedient()]), proper(TrainingTopic.DEPLOY))
    assert len([name for name in names if (kit / name).exists()]) == (5 if kind is SiloAgent else 8)
