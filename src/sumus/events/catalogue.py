"""Every event that there is. What is not here is not logged.

To add one: declare it below, put it into `EVENTS`, run `python docs/gen_events.py`, and emit it from
the code that does the thing; `tests/events/test_every_event.py` wants to see that once.

- `NAME.changed` with `before` and `after` is what `Trail.notice` writes when a fact of that name
  differs from the one that the trail knows.
- Audited are acts that somebody may have to answer for years later. Whoever can be made to write one
  by somebody else, again and again, goes through `Seldom`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sumus.events.declaring import Event, event
from sumus.events.kinds import (
    Build,
    Count,
    Digest,
    Epsilon,
    Flag,
    Level,
    Name,
    Names,
    Seconds,
    Spoken,
    Word,
)

__all__ = ["EVENTS", "make"]

# -- the trail itself


@event("trail.gap", at="silo server", level=logging.ERROR, audited=True)
class TrailGap(Event):
    """The trail ends before the line that was remembered elsewhere: lines are missing here."""

    lines: Count
    last: Digest


@event("backup.made", at="silo server", audited=True)
class BackupMade(Event):
    """A copy was made of what the party keeps."""

    digest: Digest


@event("backup.restored", at="silo server", level=logging.WARNING, audited=True)
class BackupRestored(Event):
    """What the party keeps was replaced by a copy; a gap beside this line is the copy's age."""

    digest: Digest


# -- facts that are compared at every start


@event("build.changed", at="silo server", audited=True)
class BuildChanged(Event):
    """Another version of Sumus, or other files of the same version."""

    before: Build | None
    after: Build


@event("roster.changed", at="silo server", audited=True)
class RosterChanged(Event):
    """Another roster is trusted."""

    before: Digest | None
    after: Digest


@event("identity.changed", at="silo server", audited=True)
class IdentityChanged(Event):
    """The party signs with another key; digests of the public halves."""

    before: Digest | None
    after: Digest


@event("certificates.changed", at="silo server", audited=True)
class CertificatesChanged(Event):
    """The transport has other certificates: a renewal, or a new key; digests of the public files."""

    before: Digest | None
    after: Digest


@event("policy.changed", at="silo", audited=True)
class PolicyChanged(Event):
    """The silo's policy reads otherwise; digests of the file."""

    before: Digest | None
    after: Digest


@event("limit.changed", at="silo", audited=True)
class LimitChanged(Event):
    """The ε that all runs on the data set may add up to was set, raised or lowered; infinite: none."""

    before: Epsilon | None
    after: Epsilon


# -- a silo's people


@event("plan.approved", at="silo", audited=True)
class PlanApproved(Event):
    """A plan is among those that the silo runs."""

    plan: Digest


@event("plan.withdrawn", at="silo", audited=True)
class PlanWithdrawn(Event):
    """A plan is no longer among them."""

    plan: Digest


@event("ledger.begun", at="silo", level=logging.WARNING, audited=True)
class LedgerBegun(Event):
    """The silo's people began a ledger at ε = 0 although the vault remembers another."""

    entries: Count


@event("vault.retired", at="silo", audited=True)
class VaultRetired(Event):
    """The vault's secrets are destroyed."""

    destroyed: Count


# -- a silo's vault


@event("vault.started", at="silo", audited=True)
class VaultStarted(Event):
    """The vault's process opened its folder."""

    build: Build


@event("vault.stopped", at="silo", audited=True)
class VaultStopped(Event):
    """The vault's process ended in order; a start without one before it was a kill or a power cut."""


@event("release", at="silo", audited=True)
class Release(Event):
    """A vector is about to be noised, masked and sent: written after the ledger's entry and before
    anything is drawn; or it may have been sent before a backup was restored (`presumed`).
    """

    plan: Digest
    round: Count
    purpose: Word
    round_id: Digest
    ledger: Digest
    entries: Count
    presumed: Flag | None = None


@event("refusal", at="silo", level=logging.WARNING, audited=True)
class Refused(Event):
    """The silo refused a message; the reason stands in its refusals.log under the same entry."""

    cause: Word
    entry: Digest | None
    unwritten: Count


# -- a silo's processes


@event("silo.connected", at="silo")
class SiloConnected(Event):
    """The server has let the silo in."""


@event("relay.unanswered", at="relay", level=logging.WARNING)
class RelayUnanswered(Event):
    """The vault gave no answer to a message."""

    cause: Word


# -- the server


@event("server.started", at="server", audited=True)
class ServerStarted(Event):
    """`sumus federation start` began."""

    build: Build


@event("server.serving", at="server")
class ServerServing(Event):
    """The server's port is open."""


@event("server.stopped", at="server", audited=True)
class ServerStopped(Event):
    """`sumus federation start` ended in order."""


@event("sum.opened", at="server", audited=True)
class SumOpened(Event):
    """A secure sum is open, its certificate in the run's evidence; written before it is used."""

    plan: Digest
    round: Count
    purpose: Word
    round_id: Digest
    evidence: Digest


@event("silo.refused", at="server operator", level=logging.WARNING, audited=True)
class SiloRefused(Event):
    """A silo refused, in words that it signed: made of what the server sent and what all share."""

    silo: Name
    reason: Spoken
    unwritten: Count


@event("job.started", at="server")
class JobStarted(Event):
    """A job of the engine begins or goes on with a plan."""

    plan: Digest


@event("job.ended", at="server")
class JobEnded(Event):
    """A job ended: finished, paused, or failed."""

    phase: Word
    cause: Spoken | None = None


@event("gate.refused", at="server relay", level=logging.WARNING)
class GateRefused(Event):
    """A message to the engine was refused before it was unpacked."""

    neighbour: Name
    origin: Name
    channel: Name
    topic: Name


@event("control.refused", at="relay", level=logging.WARNING)
class ControlRefused(Event):
    """A request to the silo's engine was refused."""

    origin: Name
    reason: Spoken


# -- training


@event("round.committed", at="server operator")
class RoundCommitted(Event):
    """A round is in the journal."""

    round: Count
    survivors: Count
    dropped: Names
    seconds: Seconds


@event("run.received", at="silo", audited=True)
class RunReceived(Event):
    """The silo was handed a run, believes it and keeps it: its last round, whether nothing follows,
    the model's hash and that of the journal's last line.
    """

    plan: Digest
    round: Count
    finished: Flag
    model: Digest
    journal: Digest


@event("run.delivered", at="server operator")
class RunDelivered(Event):
    """Silos have signed that they keep the run; the others were away, or refused it."""

    plan: Digest
    received: Names
    missing: Names


@event("training.started", at="operator")
class TrainingStarted(Event):
    """A command trains a plan."""

    plan: Digest
    rounds: Count


@event("training.ended", at="operator")
class TrainingEnded(Event):
    """It has trained it."""

    rounds: Count
    seconds: Seconds


@event("queue.set_aside", at="operator", level=logging.WARNING)
class QueueSetAside(Event):
    """A plan of the queue is not run any more: silos refuse it, or job after job ended without a
    round.
    """

    plan: Digest
    number: Count
    reason: Spoken


# -- alerts


@event("alert.raised", at="server silo operator", level=logging.WARNING)
class AlertRaised(Event):
    """Something that somebody should be told of has begun, or has happened; `says` in the table of
    alerts what it is.
    """

    alert: Word
    severity: Level
    plan: Digest | None = None
    silo: Name | None = None
    round: Count | None = None
    stage: Word | None = None
    part: Word | None = None
    count: Count | None = None
    percent: Count | None = None
    days: Count | None = None
    free: Count | None = None
    seconds: Seconds | None = None


@event("alert.cleared", at="server silo operator")
class AlertCleared(Event):
    """It has ended."""

    alert: Word
    severity: Level
    plan: Digest | None = None
    silo: Name | None = None
    round: Count | None = None
    stage: Word | None = None
    part: Word | None = None
    count: Count | None = None
    percent: Count | None = None
    days: Count | None = None
    free: Count | None = None
    seconds: Seconds | None = None


@event("hook.failed", at="server silo operator", level=logging.WARNING)
class HookFailed(Event):
    """The command of `--notify` could not be run, failed, or took too long; the alert is in the
    log.
    """

    cause: Word
    status: Count | None = None


# -- every process


@event("process.restarted", at="server silo relay", level=logging.WARNING)
class ProcessRestarted(Event):
    """A process that this one keeps alive ended, and is started again."""

    child: Word


@event("process.failed", at="server silo relay operator", level=logging.ERROR)
class ProcessFailed(Event):
    """The process ends by an error, whose words its caller shows."""

    cause: Word


@event("log.lost", at="server silo relay operator", level=logging.ERROR)
class LogLost(Event):
    """Lines could not be written: a full disk, most likely."""

    lines: Count


@event("event.withheld", at="server silo relay operator", level=logging.ERROR)
class EventWithheld(Event):
    """An event was not written because this party must not: a fault of the program."""

    withheld: Word


@event("library.said", at="server silo relay operator")
class LibrarySaid(Event):
    """A remark of another package, a warning once a minute; at a silo's vault without its words, which
    could be a record's.
    """

    package: Name
    said: Spoken | None = None
    severity: Level
    repeated: Count | None = None


@event("output", at="server silo relay operator")
class Output(Event):
    """A line that a process printed past the log."""

    said: Spoken


_ALL: tuple[type[Event], ...] = (
    *(TrailGap, BackupMade, BackupRestored),
    *(BuildChanged, RosterChanged, IdentityChanged, CertificatesChanged),
    *(PolicyChanged, LimitChanged, PlanApproved, PlanWithdrawn, LedgerBegun, VaultRetired),
    *(VaultStarted, VaultStopped, Release, Refused, SiloConnected, RelayUnanswered),
    *(ServerStarted, ServerServing, ServerStopped, SumOpened, SiloRefused),
    *(JobStarted, JobEnded, GateRefused, ControlRefused),
    *(RoundCommitted, RunDelivered, RunReceived),
    *(TrainingStarted, TrainingEnded, QueueSetAside),
    *(AlertRaised, AlertCleared, HookFailed),
    *(ProcessRestarted, ProcessFailed, LogLost, EventWithheld, LibrarySaid, Output),
)
EVENTS: Mapping[str, type[Event]] = MappingProxyType({each.name: each for each in _ALL})
"""By name."""


def make(name: str, **values: Any) -> Event:
    """An event by its name."""
    declared: Any = EVENTS[name]
    made: Event = declared(**values)
    return made
