"""What is logged and what is kept as an audit trail: typed events, and nothing else.

**To emit an event** that is in the catalogue:

    from sumus.events import PlanApproved, tell
    tell(PlanApproved(plan=plan.hash))               # a log line; goes nowhere unless configured

    from sumus.parties import silo_trail             # of a vault; `server_trail` of a server's state
    silo_trail(vault).append(PlanApproved(plan=plan.hash))    # durable and chained, and a log line

`append` raises `StorageError` if the line is not on the disk: append *before* an act that must not
happen unseen. A fact that is compared with the last one (a key, a file's digest, a version) is
`trail.notice(policy=digest)`, which writes `policy.changed` if it differs. What somebody else can
provoke at will goes through `Seldom`.

**To add an event**: `catalogue` says how.

Only entry points configure logging (`configure`, once a process); library code tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.events.catalogue import (
        EVENTS as EVENTS,
        AlertCleared as AlertCleared,
        AlertRaised as AlertRaised,
        BackupMade as BackupMade,
        BackupRestored as BackupRestored,
        ControlRefused as ControlRefused,
        GateRefused as GateRefused,
        HookFailed as HookFailed,
        JobEnded as JobEnded,
        JobStarted as JobStarted,
        LedgerBegun as LedgerBegun,
        PlanApproved as PlanApproved,
        PlanWithdrawn as PlanWithdrawn,
        ProcessFailed as ProcessFailed,
        ProcessRestarted as ProcessRestarted,
        QueueSetAside as QueueSetAside,
        Refused as Refused,
        RelayUnanswered as RelayUnanswered,
        Release as Release,
        RoundCommitted as RoundCommitted,
        RunDelivered as RunDelivered,
        RunReceived as RunReceived,
        ServerServing as ServerServing,
        ServerStarted as ServerStarted,
        ServerStopped as ServerStopped,
        SiloConnected as SiloConnected,
        SiloRefused as SiloRefused,
        SumOpened as SumOpened,
        TrainingEnded as TrainingEnded,
        TrainingStarted as TrainingStarted,
        VaultRetired as VaultRetired,
        VaultStarted as VaultStarted,
        VaultStopped as VaultStopped,
    )
    from sumus.events.declaring import (
        Event as Event,
        event as event,
        kinds_of as kinds_of,
        tell as tell,
    )
    from sumus.events.formatting import PROCESS as PROCESS, LineFormatter as LineFormatter
    from sumus.events.kinds import plain_text as plain_text
    from sumus.events.piping import Piped as Piped
    from sumus.events.reading import TrailReading as TrailReading, read_trail as read_trail
    from sumus.events.segments import (
        Head as Head,
        audit_files as audit_files,
        read_head as read_head,
    )
    from sumus.events.seldom import Seldom as Seldom
    from sumus.events.trail import Trail as Trail
    from sumus.events.writing import (
        AUDIT_PLACES as AUDIT_PLACES,
        LEVELS as LEVELS,
        BoundedFile as BoundedFile,
        LogChoice as LogChoice,
        configure as configure,
        log_file as log_file,
    )

__getattr__, __dir__, __all__ = door(
    __name__,
    catalogue=(
        "EVENTS AlertCleared AlertRaised BackupMade BackupRestored ControlRefused GateRefused "
        "HookFailed JobEnded JobStarted LedgerBegun PlanApproved PlanWithdrawn ProcessFailed "
        "ProcessRestarted QueueSetAside Refused RelayUnanswered Release RoundCommitted "
        "RunDelivered RunReceived ServerServing ServerStarted ServerStopped "
        "SiloConnected SiloRefused SumOpened TrainingEnded TrainingStarted VaultRetired "
        "VaultStarted VaultStopped"
    ),
    declaring="Event event kinds_of tell",
    formatting="PROCESS LineFormatter",
    kinds="plain_text",
    piping="Piped",
    reading="TrailReading read_trail",
    seldom="Seldom",
    segments="Head audit_files read_head",
    trail="Trail",
    writing="AUDIT_PLACES LEVELS BoundedFile LogChoice configure log_file",
)
