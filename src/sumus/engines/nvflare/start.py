"""Starts a process of the engine with our gate before it: `python -m sumus.engines.nvflare.start
PROGRAM …`; after `server` comes the address of the interface that it listens on.

The engine makes its cells and its agent itself, from names in its modules; these are replaced
before it starts. Where the names are is known of one release only, so any other is refused.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from pathlib import Path

import nvflare

from sumus.engines.kit import STATE_FOLDER
from sumus.engines.nvflare.clients import WatchedClients
from sumus.engines.nvflare.control import SiloAgent
from sumus.engines.nvflare.gate import GatedCell
from sumus.engines.nvflare.orphans import end_with_parent
from sumus.engines.nvflare.tidying import tidy_every
from sumus.engines.nvflare.unaudited import NoAuditFile
from sumus.errors import EngineError
from sumus.events import PROCESS
from sumus.service import Signs

__all__ = ["SERVER", "SERVER_JOB", "SILO", "SILO_JOB", "stand_before"]

SERVER, SERVER_JOB, SILO, SILO_JOB = "server", "server-job", "silo", "silo-job"
_RELEASE = "2.9.0"
_PRIVATE = "nvflare.private.fed"
_PROGRAMS = {
    SERVER: f"{_PRIVATE}.app.server.server_train",
    SERVER_JOB: f"{_PRIVATE}.app.server.runner_process",
    SILO: f"{_PRIVATE}.app.client.client_train",
    SILO_JOB: f"{_PRIVATE}.app.client.worker_process",
}
_NAMES: dict[str, dict[str, dict[str, type]]] = {
    SERVER: {f"{_PRIVATE}.server.fed_server": {"Cell": GatedCell, "ClientManager": WatchedClients}},
    SERVER_JOB: {f"{_PRIVATE}.server.fed_server": {"Cell": GatedCell}},
    SILO: {
        f"{_PRIVATE}.client.fed_client_base": {"Cell": GatedCell},
        f"{_PRIVATE}.client.admin": {"FedAdminAgent": SiloAgent},
    },
    SILO_JOB: {f"{_PRIVATE}.client.fed_client_base": {"Cell": GatedCell}},
}
_QUIET: dict[str, dict[str, type]] = {"nvflare.fuel.sec.audit": {"Auditor": NoAuditFile}}


def stand_before(program: str) -> str:
    """Put our classes in the place of the engine's; returns the module to run."""
    if nvflare.__version__ != _RELEASE:
        raise EngineError(
            f"nvflare must be {_RELEASE}, got {nvflare.__version__}. Install sumus[nvflare]."
        )
    for module, names in (_NAMES[program] | _QUIET).items():
        for name, ours in names.items():
            setattr(importlib.import_module(module), name, ours)
    return _PROGRAMS[program]


if __name__ == "__main__":
    name = sys.argv.pop(1)
    os.environ[PROCESS] = name  # in the lines of its log
    GatedCell.signs = WatchedClients.signs = Signs.of_environment()
    if name in (SERVER_JOB, SILO_JOB):
        end_with_parent()  # before the engine begins: it would wait for its site for ever
    if name == SERVER:
        from sumus.parties import read_rosters  # a silo's relay knows no party

        GatedCell.interface = sys.argv.pop(1)
        kit = Path(sys.argv[sys.argv.index("-m") + 1])
        WatchedClients.kit = kit
        GatedCell.members = frozenset(read_rosters(kit / STATE_FOLDER).current.names)
    module = stand_before(name)
    tidy_every()
    runpy.run_module(module, run_name="__main__", alter_sys=True)
