"""Everything that a viewer of a live page may know, as one frozen value: `LiveState`.

What has no place here cannot be shown: of a silo there is its name, whether it is there and the
reason it gave in public, and nothing that its records could move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, final

from sumus.errors import StorageError
from sumus.files import from_json, plain_json
from sumus.watching.health import Health

__all__ = [
    "ENDED",
    "MOST_LISTED",
    "QUEUED",
    "STAGES",
    "Books",
    "Connection",
    "Costs",
    "History",
    "LiveState",
    "Lost",
    "Measured",
    "Part",
    "PlanInWords",
    "Presence",
    "Promise",
    "Queued",
    "Refused",
    "Result",
    "finite",
    "short",
]

STAGES: Mapping[str, str] = {
    "starting": "Getting ready",
    "connecting": "Connecting to the server",
    "idle": "Nothing runs",
    "waiting": "Waiting for silos",
    "greeting": "Silos agree to the plan",
    "local": "Silos take their local steps",
    "survivors": "Survivors are agreed on",
    "unmasking": "The sum is unmasked",
    "measuring": "The model is measured",
    "delivering": "Silos are handed the run",
    "comparing": "Models without privacy, for comparison",
    "ready": "Ready for the next round",
    "answering": "Answers the server",
    "paused": "Paused between two jobs",
    "finished": "Finished",
    "failed": "Failed",
    "refused": "Refused",
    "stopped": "Stopped",
}
"""What may be going on, with the words for it."""
ENDED = frozenset({"finished", "failed", "refused", "stopped"})
"""Stages that nothing follows."""
WATCHED = ("train", "operator", "server", "silo")
VERDICTS = ("proved", "not proved", "void", "none")
PRESENCES = ("connected", "waited for", "away", "refused")
MEASURED_HOW = ("secure", "simulation-only")
QUEUED = ("waiting", "running", "finished", "set aside")
MOST_LISTED = 200
"""Entries of any list."""
_MOST_CHARACTERS = 400


def short(text: object) -> str:
    """A text that somebody else wrote, on one line and no longer than a line is read."""
    line = " ".join(str(text).split())
    return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 1] + "…"


@final
@dataclass(frozen=True, kw_only=True)
class PlanInWords:
    """The plan as people say it.

    Args:
        title: what is learned from, in a word or two.
        hash: SHA-256 of its canonical form.
        terms: (name, value).
    """

    title: str
    hash: str
    terms: tuple[tuple[str, str], ...] = ()


@final
@dataclass(frozen=True, kw_only=True)
class Promise:
    """What a run guarantees and what it has spent of it, with all that stands beside an ε.

    Guarantee: there is no ε where nothing is promised.

    Args:
        verdict: "proved", "not proved", "void" or "none".
        why: the guarantee is void, or there is none.
        spent: ε of everything released so far.
        epsilon: of the whole plan.
        analysis: that both rest on.
        neighbours: which data sets they compare; `trust`: whom they count on.
    """

    verdict: str
    why: str = ""
    spent: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    unit: str = ""
    neighbours: str = ""
    trust: str = ""
    analysis: str = ""

    def __post_init__(self) -> None:
        _one_of("verdict", self.verdict, VERDICTS)
        bounds = (self.spent, self.epsilon, self.delta)
        if self.verdict in ("void", "none"):
            if any(value is not None for value in bounds):
                raise StorageError(f"a guarantee that is {self.verdict} has no ε and no δ.")
            return
        if self.epsilon is None or self.delta is None:
            raise StorageError(f"a guarantee that is {self.verdict} has an ε and a δ.")
        for name in ("unit", "neighbours", "trust", "analysis"):
            if not getattr(self, name):
                raise StorageError(f"no ε is shown without {name}.")


@final
@dataclass(frozen=True, kw_only=True)
class Books:
    """What a data set has spent in all its runs, by its ledger.

    Args:
        spent: ε for one `unit`, by simple addition over runs; infinite: no bound holds.
        limit: the most that is allowed; None: nobody has set a limit.
        said_by: who has set it.
        neighbours: of this run's releases, as `trust`; every run on the ledger has its own.
        proved: whether every part is.
    """

    dataset: str
    spent: float
    delta: float
    unit: str
    runs: int
    proved: bool
    neighbours: str
    trust: str
    limit: float | None = None
    said_by: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Measured:
    """The headline measure of the released model.

    Args:
        text: as the task writes it, with its half-width where it has one.
        how: "secure" (noisy counts that are accounted, ± of 95 %) or "simulation-only" (in the
            clear, covered by no guarantee).
        round: that released the model.
        share: shown in per cent.
    """

    name: str
    title: str
    text: str
    value: float
    how: str
    round: int
    plus_minus: float | None = None
    share: bool = True
    larger_is_better: bool = True

    def __post_init__(self) -> None:
        _one_of("how", self.how, MEASURED_HOW)


@final
@dataclass(frozen=True, kw_only=True)
class History:
    """Rounds that are drawn, a column of values each.

    Args:
        every: one in so many rounds is here, and the first, the last and the extremes.
        epsilon: spent up to the round; None: nothing is promised.
        value: of the headline measure, None where the model was not measured.
    """

    every: int = 1
    round: tuple[int, ...] = ()
    epsilon: tuple[float | None, ...] = ()
    value: tuple[float | None, ...] = ()
    plus_minus: tuple[float | None, ...] = ()
    bytes: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        columns = {len(getattr(self, item.name)) for item in fields(self) if item.name != "every"}
        if len(columns) > 1:
            raise StorageError("a history has one value of each kind for every round.")


@final
@dataclass(frozen=True, kw_only=True)
class Costs:
    """What rounds cost: of the last one, and of all.

    Args:
        bytes_up: sent by all silos together; `bytes_down`: received by them.
        seconds: of the last round by part.
    """

    bytes_up: int = 0
    bytes_down: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    total_bytes_up: int = 0
    total_bytes_down: int = 0
    total_seconds: float = 0.0


@final
@dataclass(frozen=True, kw_only=True)
class Presence:
    """Whether a silo is there: all that a server knows of one.

    Args:
        since: Unix time; None: not known.
        why: what it said, if it refused.
    """

    name: str
    presence: str
    since: float | None = None
    why: str = ""

    def __post_init__(self) -> None:
        _one_of("presence", self.presence, PRESENCES)


@final
@dataclass(frozen=True, kw_only=True)
class Refused:
    """A refusal with its public reason."""

    who: str
    reason: str
    when: float
    times: int = 1


@final
@dataclass(frozen=True, kw_only=True)
class Lost:
    """A round that did not end with a sum."""

    round: int
    reason: str
    when: float


@final
@dataclass(frozen=True, kw_only=True)
class Queued:
    """A plan of the operator's queue, or one that a silo has approved.

    Args:
        number: in the queue; 0: there is none.
        words: what it learns from what.
        done: the last round that ended, of `rounds`.
        why: it was set aside.
    """

    number: int
    hash: str
    words: str
    state: str
    done: int
    rounds: int
    why: str = ""

    def __post_init__(self) -> None:
        _one_of("state", self.state, QUEUED)


@final
@dataclass(frozen=True, kw_only=True)
class Connection:
    """To the server, of whoever has one.

    Args:
        since: Unix time of the last change; `next_try`: when it is tried again.
        tries: that failed in a row.
    """

    up: bool
    since: float
    why: str = ""
    tries: int = 0
    next_try: float | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Part:
    """A process that is kept alive.

    Args:
        since: it is up or down, Unix time.
        restarts: how often it was started again.
    """

    name: str
    up: bool
    since: float
    restarts: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run left on the disk of the machine that serves the page."""

    run: str = ""
    report: str = ""
    model: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class LiveState:
    """What is going on.

    Args:
        watched: "train", "operator", "server" or "silo".
        name: of what is watched: a silo, a federation's address, a run.
        began: Unix time, like every other time here; `at`: of the last change.
        stage: one of `STAGES`; `since`: when it began.
        said: a line about it: why it failed, whom it waits for.
        ready: whether it can do its work now; `unready`: otherwise, why not.
        round: the last one that ended; `rounds`: of the plan.
        needed: silos that a round needs; 0: not known.
        lost_rounds, refused: how many there were in all; the lists have the latest.
        queue: plans that run one after the other.
        remarks: what whoever runs it should know.
        health: of the machine that it runs on.
    """

    watched: str
    began: float
    at: float
    stage: str = "starting"
    since: float = 0.0
    name: str = ""
    said: str = ""
    ready: bool = False
    unready: str = ""
    plan: PlanInWords | None = None
    round: int = 0
    rounds: int = 0
    promise: Promise | None = None
    books: Books | None = None
    measured: Measured | None = None
    history: History = field(default_factory=History)
    costs: Costs = field(default_factory=Costs)
    silos: int = 0
    connected: int = 0
    needed: int = 0
    presences: tuple[Presence, ...] = ()
    refused: int = 0
    refusals: tuple[Refused, ...] = ()
    lost_rounds: int = 0
    lost: tuple[Lost, ...] = ()
    connection: Connection | None = None
    parts: tuple[Part, ...] = ()
    result: Result | None = None
    queue: tuple[Queued, ...] = ()
    remarks: tuple[str, ...] = ()
    health: Health | None = None
    form: int = 1

    def __post_init__(self) -> None:
        _one_of("watched", self.watched, WATCHED)
        _one_of("stage", self.stage, tuple(STAGES))
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, tuple) and len(value) > MOST_LISTED:
                raise StorageError(f"{item.name} has at most {MOST_LISTED} entries.")

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        return self.stage in ENDED

    def as_json(self) -> dict[str, Any]:
        """In plain JSON, with infinite numbers as words."""
        return dict(plain_json(asdict(self)))

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> LiveState:
        """What `as_json` gave; anything else is refused."""
        return from_json(cls, entries, where="the state")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise StorageError(f"{name} must be one of {', '.join(known)}, got {value!r:.40}.")


def finite(value: float | None) -> float | None:
    """None for what is no number: a bound that does not hold is not shown."""
    return value if value is not None and math.isfinite(value) else None
