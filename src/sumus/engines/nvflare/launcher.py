"""Start a party's job process with our gate before it; a silo's is started again when it is killed
(by default NVIDIA FLARE ends the whole job).

The new process finds everything it needs in the silo's folder and goes on in the middle of the
round.
"""

from __future__ import annotations

import os
import threading
from typing import Any, final

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.job_launcher_spec import JobHandleSpec, JobProcessArgs, JobReturnCode
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher

from sumus.engines.nvflare import start
from sumus.engines.nvflare.orphans import PARENT

__all__ = ["GatedServerLauncher", "RestartingHandle", "RestartingLauncher"]

_MOST_RESTARTS = 20


@final
class RestartingHandle(JobHandleSpec):  # type: ignore[misc]
    """A job process that comes back when a signal ends it, unless the site itself ended it."""

    def __init__(self, start: Any) -> None:
        super().__init__()
        self._start, self._lock, self._ended = start, threading.Lock(), False
        self._handle = start()

    def terminate(self) -> None:
        """End the process for good."""
        with self._lock:
            self._ended = True
            self._handle.terminate()

    def poll(self) -> Any:
        """The return code; running while a new process is on its way."""
        code = self._handle.adapter.poll()
        if code is not None and code < 0 and not self._ended:
            return JobReturnCode.UNKNOWN
        return self._handle.poll()

    def wait(self) -> None:
        """Return when the process has ended and will not come back."""
        for _ in range(_MOST_RESTARTS):
            self._handle.wait()
            with self._lock:
                code = self._handle.adapter.poll()
                if self._ended or code is None or code >= 0:
                    break
                self._handle = self._start()
        self._handle.wait()
        self._ended = True


@final
class RestartingLauncher(ClientProcessJobLauncher):  # type: ignore[misc]
    """What a hardened kit names as its process launcher."""

    def get_command(self, job_meta: dict[str, Any], fl_ctx: Any) -> str:
        """The engine's command line, for our program."""
        _run_ours(start.SILO_JOB, fl_ctx)
        return str(super().get_command(job_meta, fl_ctx))

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: Any) -> RestartingHandle:
        """Start the site's process of a job."""
        return RestartingHandle(
            lambda: super(RestartingLauncher, self).launch_job(job_meta, fl_ctx)
        )


@final
class GatedServerLauncher(ServerProcessJobLauncher):  # type: ignore[misc]
    """What the server's kit names as its process launcher."""

    def get_command(self, job_meta: dict[str, Any], fl_ctx: Any) -> str:
        """The engine's command line, for our program."""
        _run_ours(start.SERVER_JOB, fl_ctx)
        return str(super().get_command(job_meta, fl_ctx))


def _run_ours(program: str, fl_ctx: Any) -> None:
    arguments = fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS)
    arguments[JobProcessArgs.EXE_MODULE] = ("-m", f"{start.__name__} {program}")
    os.environ[PARENT] = str(os.getpid())
