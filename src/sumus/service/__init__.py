"""What a process that runs for long says to whoever keeps it: ready, alive, what it does, how it
ended.

`signs` is what a loop calls, `channels` where it is said (a service manager's socket, a file for
probes, a pipe to the process that started it), `heard` that process's end of the pipe, `sealing`
closes a process to its neighbours, `exit_codes` is what every code means and whether a restart
helps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.service.channels import HEALTH as HEALTH, is_well as is_well
    from sumus.service.exit_codes import (
        EXIT_CODES as EXIT_CODES,
        ExitCode as ExitCode,
        beyond_restart as beyond_restart,
        exit_code_of as exit_code_of,
    )
    from sumus.service.heard import Heard as Heard
    from sumus.service.sealing import seal_process as seal_process
    from sumus.service.signs import PATIENCE_SECONDS as PATIENCE_SECONDS, Signs as Signs

__getattr__, __dir__, __all__ = door(
    __name__,
    channels="HEALTH is_well",
    exit_codes="EXIT_CODES ExitCode beyond_restart exit_code_of",
    heard="Heard",
    sealing="seal_process",
    signs="PATIENCE_SECONDS Signs",
)
