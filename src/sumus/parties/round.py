"""START HERE. One round of Heikkilä 2025, algorithm 1, whoever carries the bytes.

    for every round:
        the server invites silos and sends them the model
        every silo takes its private local steps and adds its share of noise, all in integers
                                                                            (silo, training.local)
        the vectors meet in a secure sum; the server learns the sum of the survivors and no more
                                                                            (sums, sumus.secagg)
        the server decodes the sum and moves the global model, unless it is longer than honest
        silos can make it                                                   (training.server)
    where the plan measures the model securely, a noisy count of test records follows as a secure
    sum of its own                                                          (server)

The noise of all silos protects every record of every silo; what that guarantees is in
`sumus.guarantee`, computed from the same `NoiseDesign` that the silos draw from.

Mikko A. Heikkilä, "On Using Secure Aggregation in Differentially Private Federated Learning with
Multiple Local Steps", Transactions on Machine Learning Research, 2025.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, final

import numpy as np
import numpy.typing as npt

from sumus.parties.blame import Blame
from sumus.tasks import Metrics
from sumus.training import LocalUpdate, Server

__all__ = [
    "Invited",
    "RoundOutcome",
    "Stages",
    "Summed",
    "Summing",
    "Watching",
    "nobody",
    "one_round",
]

Vector = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Stages = Callable[[str], None]
"""Is told what a sum is at: "greeting", "local" steps, "survivors", "unmasking"; "measuring" of a
sum that counts test records."""


def nobody(stage: str) -> None:
    """Whoever does not want to know."""


@final
@dataclass(frozen=True)
class Invited:
    """Whom a sum is asked of and under which keys: with round number and model, all that it takes
    to ask for it again word for word.

    Args:
        silos: places in the plan.
        keys: the name of their key set; empty: the newest, where nothing is asked for again.
    """

    silos: frozenset[int]
    keys: bytes = b""


@final
@dataclass(frozen=True)
class Summed:
    """The sum of one round and what it cost.

    Args:
        round_id: the sum's name in messages, journal and ledger.
        total_grid: Σ of the survivors' vectors, lifted to centred integers, noise that nobody
            needed taken off.
        survivors: places in the plan of the silos that are in the sum.
        notes: what the operator should know of the silos' shares, a line each.
        bytes_up: sent by all silos together; `bytes_down`: received by them.
        seconds: of each exchange, in order.
    """

    round_id: bytes
    total_grid: Vector
    survivors: frozenset[int]
    notes: tuple[str, ...] = ()
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: tuple[float, ...] = ()


class Summing(Protocol):
    """The one thing that a server cannot do alone: add up vectors that it must not see. A silo is
    named by its place in the plan.
    """

    @property
    def simulated(self) -> bool:
        """Whether a silo admits that its noise comes from a public seed."""
        ...

    @property
    def present(self) -> frozenset[int]:
        """Silos that take part at the moment."""
        ...

    @property
    def refusals(self) -> Mapping[str, str]:
        """Why silos do not take part, by name."""
        ...

    @property
    def blame(self) -> Blame:
        """Who disagreed with whom in the rounds of this run."""
        ...

    def witness(self, folder: Path) -> None:
        """Keep from now on what proves the sums in a run's folder, where silos sign for
        themselves.
        """
        ...

    def greet(self) -> None:
        """Have every silo agree to the plan; raises unless enough do."""
        ...

    def invite(self, number: int, *, again: Invited | None = None) -> Invited:
        """The silos of round `number` (from 0); raises `TooFewSilosError` if they cannot be enough.

        Args:
            again: how this very sum was asked for before; raises `RoundLostError` unless all of its
                silos are there.
        """
        ...

    def there(self, number: int, *, again: Invited | None = None) -> Invited:
        """The same without another chance for silos that are absent: for the measurement that
        follows a round.
        """
        ...

    def sum(
        self,
        number: int,
        invited: Invited,
        parameters: npt.NDArray[np.float64],
        purpose: str = "model",
    ) -> Summed:
        """One secure sum of the silos' vectors for these parameters, or a `ProtocolError`."""
        ...


@final
@dataclass
class RoundOutcome:
    """What one round did.

    Args:
        number: counted from 0.
        invited: the silos that were asked.
        summed: all that the server learnt of them.
        update: the averaged update that moved the model; zero if the sum was refused.
        refused: why the sum was not let near the model; the round counts all the same.
        metrics: measures of the released model, where they are known already.
        silo_scores: headline measure of each silo, None without test records; simulation only.
        local: the silos' updates by place; simulation only, a real server never sees one.
        seconds: wall-clock time by stage.
    """

    number: int
    invited: Invited
    summed: Summed
    update: npt.NDArray[np.float64]
    refused: str | None = None
    metrics: Metrics | None = None
    silo_scores: tuple[float | None, ...] | None = None
    local: Mapping[int, LocalUpdate] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class Watching(Protocol):
    """What is told of a round while it happens; `watchers` has those that there are."""

    def round_begins(self, number: int, invited: Invited) -> None:
        """Nothing has been sent yet."""
        ...

    def round_ends(self, outcome: RoundOutcome) -> None:
        """The model has moved, or the sum was refused."""
        ...


def one_round(
    number: int,
    server: Server,
    summing: Summing,
    watch: Watching,
    *,
    again: Invited | None = None,
) -> RoundOutcome:
    """Invite, compute locally, sum securely, move the model unless the sum cannot be honest silos'.

    Guarantee: what is sent depends on the round's number, the invited silos and the model alone;
        no watcher can change it.

    Args:
        number: counted from 0.
        server: the global model.
        summing: silos and what carries bytes to them and back.
        watch: told before anything is sent and after the model has moved.
        again: how this round was asked for, if that was before and it did not end.
    """
    invited = summing.invite(number, again=again)
    watch.round_begins(number, invited)
    summed = summing.sum(number, invited, server.parameters)
    model_grid = summed.total_grid[: server.coordinates]
    refused = server.refusal(model_grid, summed.survivors, number)
    update = (
        server.apply(model_grid, len(summed.survivors), number)
        if refused is None
        else np.zeros(len(server.parameters))
    )
    outcome = RoundOutcome(number, invited, summed, update, refused)
    watch.round_ends(outcome)
    return outcome
