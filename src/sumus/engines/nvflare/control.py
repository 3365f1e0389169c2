"""What a silo does when it is told to: the engine's own agent, less everything that our jobs do not
need.

The engine's agent asks `authorization.json` only if the message says that it should, and does not
look at who sent it. This one takes requests

    from the server           deploy, start, abort a job; check, cancel its resources; say status
                              and version
    from its own job process  the job's status

A job is known by a UUID, so that no message can name another folder of the kit (a run folder is
KIT/job id), and is made of our JSON files.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any, final

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE
from nvflare.private.admin_defs import Message, error_reply
from nvflare.private.defs import RequestHeader, SysCommandTopic, TrainingTopic, new_cell_message
from nvflare.private.fed.client.admin import FedAdminAgent

from sumus.engines.nvflare.job_folders import is_job_id, tidy_jobs
from sumus.events import ControlRefused, tell

__all__ = ["KEPT_TOPICS", "SiloAgent"]

_ABOUT_A_JOB = frozenset(
    {
        TrainingTopic.DEPLOY,
        TrainingTopic.START_JOB,
        TrainingTopic.ABORT,
        TrainingTopic.CHECK_RESOURCE,
        TrainingTopic.NOTIFY_JOB_STATUS,
    }
)
KEPT_TOPICS = _ABOUT_A_JOB | {
    TrainingTopic.CANCEL_RESOURCE,
    TrainingTopic.CHECK_STATUS,
    SysCommandTopic.REPORT_VERSION,
}
_WITH_META = frozenset({TrainingTopic.DEPLOY, TrainingTopic.START_JOB})
_JOB_FILES = frozenset(
    {
        f"{folder}{name}"
        for folder in ("", "config/")
        for name in (NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE)
    }
    | {"config/", "config/config_fed_client.json", "config/config_fed_server.json"}
)
_MOST_JOB_BYTES = 16 << 20


@final
class SiloAgent(FedAdminAgent):  # type: ignore[misc]
    """Answers the requests above and refuses all others.

    Guarantee: no request reads, writes or deletes a file of the kit outside of the folders of jobs.
    """

    def register_processor(self, processor: Any) -> None:
        """Keep a processor of the engine if our jobs need it."""
        if KEPT_TOPICS.issuperset(processor.get_topics()):
            super().register_processor(processor)

    def _dispatch_request(self, request: Any) -> Any:
        reason = self._objection(request)
        if reason is None:
            if request.payload.topic == TrainingTopic.DEPLOY:
                tidy_jobs(Path(self.app_ctx.args.workspace))
            return super()._dispatch_request(request)
        origin = request.get_header(MessageHeaderKey.ORIGIN)
        tell(ControlRefused(origin=str(origin), reason=reason))
        return new_cell_message({}, error_reply(f"refused: {reason}"))

    def _objection(self, request: Any) -> str | None:
        """Why a request is refused, in words that show nothing of the silo."""
        asked = request.payload
        if not isinstance(asked, Message) or asked.topic not in KEPT_TOPICS:
            return "this silo does not do that"
        job = asked.get_header(RequestHeader.JOB_ID)
        if not (is_job_id(job) or (job is None and asked.topic not in _ABOUT_A_JOB)):
            return "a job is known by a UUID"
        reports = asked.topic == TrainingTopic.NOTIFY_JOB_STATUS
        speaker = FQCN.join([self.cell.get_fqcn(), job]) if reports else FQCN.ROOT_SERVER
        if request.get_header(MessageHeaderKey.ORIGIN) != speaker:
            return "it comes from somebody else than it must"
        if asked.topic in _WITH_META and not _is_of(asked.get_header(RequestHeader.JOB_META), job):
            return "its description is of another job"
        if asked.topic == TrainingTopic.DEPLOY and not _holds_our_files(asked.body):
            return "a job is made of our JSON files"
        return None


def _is_of(meta: object, job: object) -> bool:
    return isinstance(meta, dict) and meta.get("job_id") == job


def _holds_our_files(body: object) -> bool:
    """Whether a job's archive has the files of `write_job` and the operator's signatures, and
    nothing more.
    """
    if not isinstance(body, bytes | bytearray):
        return False
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            entries = archive.infolist()
    except zipfile.BadZipFile:
        return False
    # what is unpacked is no longer than an entry says, and a folder is an entry too
    names = [entry.filename for entry in entries]
    size = sum(entry.file_size for entry in entries)
    return (
        len(set(names)) == len(names) and _JOB_FILES.issuperset(names) and size <= _MOST_JOB_BYTES
    )
