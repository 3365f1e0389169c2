"""Transports, a folder each: they move bytes between the parties.

`engine` says what an engine offers, `registry` finds them by their folders, `federation_folder` has
the folder of whoever makes kits, `kit` one of them, `transport_keys` keys and certificate requests
of the parties. A silo is two processes (`silo_processes`): its
vault, which no engine enters, and the engine's own (`carrier`), which relays bytes to it (`relay`)
and may run as another user (`unix_user`) or as a service of its own (`relaying`; `units` and
`unit_file` write what systemd reads). `server_job` is what the server does in one job,
`training` goes from job to job, `plan_queue` and `queue_running` from plan to plan,
`on_this_machine` brings up a whole federation, `processes` keeps
processes alive, `serving` the server's. `live_file` and `presence` are what a server's own process
says to whoever watches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.engines.engine import (
        Address as Address,
        Engine as Engine,
        Look as Look,
        Operator as Operator,
        Outcome as Outcome,
        Watch as Watch,
    )
    from sumus.engines.epochs import change_roster as change_roster
    from sumus.engines.federation_folder import (
        FederationFolder as FederationFolder,
        make_federation as make_federation,
        require_silo_name as require_silo_name,
    )
    from sumus.engines.key_files import REQUEST as REQUEST, TRANSPORT_KEY as TRANSPORT_KEY
    from sumus.engines.kit import Kit as Kit, certificates_in as certificates_in
    from sumus.engines.on_this_machine import LocalProcesses as LocalProcesses
    from sumus.engines.plan_queue import PlanQueue as PlanQueue, QueuedPlan as QueuedPlan
    from sumus.engines.processes import supervise as supervise, until_stopped as until_stopped
    from sumus.engines.queue_running import QueueRunner as QueueRunner, QueueWatcher as QueueWatcher
    from sumus.engines.registry import (
        DEFAULT_ENGINE as DEFAULT_ENGINE,
        ENGINES as ENGINES,
        engine_named as engine_named,
    )
    from sumus.engines.relay import Relay as Relay
    from sumus.engines.relaying import relay_arguments as relay_arguments
    from sumus.engines.serving import serve_kit as serve_kit
    from sumus.engines.silo_processes import (
        require_free as require_free,
        silo_command as silo_command,
    )
    from sumus.engines.training import (
        deliver_across as deliver_across,
        train_across as train_across,
    )
    from sumus.engines.transport_keys import (
        new_request as new_request,
        requests_in as requests_in,
    )
    from sumus.engines.units import (
        write_server_unit as write_server_unit,
        write_units as write_units,
        write_watch_unit as write_watch_unit,
    )
    from sumus.engines.unix_user import UnixUser as UnixUser
    from sumus.engines.watched import Looking as Looking

__getattr__, __dir__, __all__ = door(
    __name__,
    engine="Address Engine Look Operator Outcome Watch",
    epochs="change_roster",
    federation_folder="FederationFolder make_federation require_silo_name",
    key_files="REQUEST TRANSPORT_KEY",
    kit="Kit certificates_in",
    on_this_machine="LocalProcesses",
    plan_queue="PlanQueue QueuedPlan",
    processes="supervise until_stopped",
    queue_running="QueueRunner QueueWatcher",
    registry="DEFAULT_ENGINE ENGINES engine_named",
    relay="Relay",
    relaying="relay_arguments",
    serving="serve_kit",
    silo_processes="require_free silo_command",
    training="deliver_across train_across",
    transport_keys="new_request requests_in",
    units="write_server_unit write_units write_watch_unit",
    unix_user="UnixUser",
    watched="Looking",
)
