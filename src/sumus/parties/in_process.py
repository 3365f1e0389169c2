"""The engine without a network: one process plays all silos.

`federation_in_process` ties the parties of a simulation together: the same `SiloParty` and `ServerParty` as
across machines, which differ in what they are given:

| given        | in process                                      | across machines                   |
|--------------|-------------------------------------------------|-----------------------------------|
| driver       | `InProcess`, in `Vanishing`                     | the engine's                      |
| memory       | `KeyedMemory`: a repeated round is the same     | the silo's folder; noise drawn    |
|              | again                                           | once, the answer kept             |
| agreement    | computed once and shared                        | by every party for itself         |
| releases     | the data set's ledger, an entry a sum           | the silo's own ledger and policy  |
| summing      | `SecureSum` or `TrustedSum`                     | `SecureSum`                       |
| selection    | whatever the plan says                          | all silos                         |
| watch_update | exact counts, marked as simulation-only         | None: no update leaves its silo   |
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from sumus.books import EnteredOnce, Releases
from sumus.guarantee import NoiseDesign
from sumus.parties.agreement import Agreement
from sumus.parties.blame import Blame
from sumus.parties.driver import Driver
from sumus.parties.keyed_memory import Bits, KeyedMemory, enrol
from sumus.parties.round import Invited, Stages, Summed, nobody
from sumus.parties.secure_sum import Patience, RoundLostError, SecureSum, TooFewSilosError
from sumus.parties.server import ServerParty
from sumus.parties.silo import SiloParty
from sumus.parties.trusted_sum import TrustedSum, too_few
from sumus.parties.vanishing import DropOuts, Vanishing
from sumus.parties.watchers import LocalUpdates, SimulationMetrics, Stopwatch
from sumus.parties.work import WatchUpdate, Work
from sumus.randomness import RandomSource
from sumus.training import LocalWork, Prepared, select_silos

__all__ = ["InProcess", "SumsInProcess", "federation_in_process"]

Handler = Callable[[bytes], bytes | None]
"""A silo: message to answer; None is a silo that does not answer, an exception ends the
exchange."""
_ENDLESS = Patience(set_up=math.inf, update=math.inf, stage=math.inf)


@final
class InProcess:
    """Calls the silos' handlers, some of them at the same time.

    Args:
        silos: silo number → its handler: `SiloParty.handle`, which never raises, or
            `SiloParty.answer`, whose exceptions are the caller's. May be changed between exchanges:
            a silo leaves or comes back.
        threads: silos that compute at the same time; None: all of them. 1: in the caller's own
            thread, and no deadline is kept.
    """

    def __init__(self, silos: Mapping[int, Handler], threads: int | None = None) -> None:
        self.silos = dict(silos)
        workers = len(self.silos) if threads is None else threads
        self._pool = (
            None
            if threads == 1
            else ThreadPoolExecutor(max_workers=max(1, workers), thread_name_prefix="silo")
        )

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_seconds: float
    ) -> Mapping[int, bytes]:
        """See `Driver.exchange`."""
        asked = {silo: message for silo, message in messages.items() if silo in self.silos}
        if self._pool is None:
            answers = {silo: self.silos[silo](message) for silo, message in asked.items()}
        else:
            answers = self._at_once(self._pool, asked, deadline_seconds)
        return {silo: answer for silo, answer in answers.items() if answer is not None}

    def _at_once(
        self, pool: ThreadPoolExecutor, messages: Mapping[int, bytes], deadline_seconds: float
    ) -> dict[int, bytes | None]:
        until = time.monotonic() + deadline_seconds
        running: dict[Future[bytes | None], int] = {
            pool.submit(self.silos[silo], message): silo for silo, message in messages.items()
        }
        endless = math.isinf(deadline_seconds)
        try:
            done, _ = wait(running, timeout=None if endless else max(0.0, until - time.monotonic()))
        except BaseException:  # whoever interrupts the run does not wait for silos in the queue
            for future in running:
                future.cancel()
            raise
        return {running[future]: future.result() for future in done}

    def close(self) -> None:
        """See `Driver.close`."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


@final
class _Seated:
    """A driver for the silos of a roster: their numbers on it, their places in the plan below."""

    def __init__(self, driver: Driver, places: Sequence[int]) -> None:
        self._driver, self._places = driver, places

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_seconds: float
    ) -> Mapping[int, bytes]:
        """See `Driver.exchange`."""
        placed = {self._places[number]: message for number, message in messages.items()}
        answers = self._driver.exchange(placed, deadline_seconds=deadline_seconds)
        return {
            number: answers[place] for number, place in enumerate(self._places) if place in answers
        }

    def close(self) -> None:
        """See `Driver.close`."""
        self._driver.close()


@final
class SumsInProcess:
    """Sums of all silos in this process, selected as the plan says.

    A threshold is silos − drop-outs, so keys belong to a set of invited silos: other silos, other
    keys. With removable noise the seeds hang on the keys, so every sum has keys of its own, which
    derive from the run's bits and are the same again if the sum is repeated.

    Args:
        agreement: shared by all parties.
        works: what each silo computes, by place.
        bits: of the run.
        releases: one ledger for all silos.
        threads: silos that compute at the same time.
        vanishing: drop-outs to simulate.
        watch_update: is told every silo's update.
        stages: is told what a sum is at.
    """

    def __init__(
        self,
        agreement: Agreement,
        works: Sequence[Work],
        bits: Bits,
        *,
        releases: Releases,
        threads: int = 1,
        vanishing: DropOuts | None = None,
        watch_update: WatchUpdate | None = None,
        stages: Stages = nobody,
    ) -> None:
        self._agreement, self._works, self._bits = agreement, works, bits
        self._releases, self._watch_update = EnteredOnce(releases), watch_update
        self._silos, self._stages = InProcess({}, threads), stages
        self._driver: Driver = Vanishing(self._silos, vanishing) if vanishing else self._silos
        self._keyed: tuple[object, SecureSum | TrustedSum] | None = None
        self.refusals: dict[str, str] = {}
        # everybody in this process is honest
        self.blame = Blame(agreement.names, colluding=agreement.plan.colluding)

    @property
    def simulated(self) -> bool:
        """See `Summing.simulated`."""
        return self._bits.public

    @property
    def present(self) -> frozenset[int]:
        """See `Summing.present`."""
        return frozenset(range(len(self._works)))

    def witness(self, folder: Path) -> None:
        """See `Summing.witness`: who plays all silos could sign anything, and proves nothing."""

    def greet(self) -> None:
        """See `Summing.greet`: in one process everybody agrees."""

    def invite(self, number: int, *, again: Invited | None = None) -> Invited:
        """See `Summing.invite`: known before the round begins, and the same if it is repeated."""
        selected = select_silos(
            self._agreement.design.resolved, self._bits.source(number, "selection")
        )
        if again is not None and again.silos != selected:
            raise RoundLostError(f"round {number + 1} was asked of other silos.")
        reason = too_few(self._agreement, len(selected))
        if reason is not None:
            raise TooFewSilosError(reason)
        return Invited(selected)

    there = invite

    def sum(
        self,
        number: int,
        invited: Invited,
        parameters: npt.NDArray[np.float64],
        purpose: str = "model",
    ) -> Summed:
        """See `Summing.sum`."""
        return self._sums_of(number, invited.silos, purpose).sum(
            number, invited, parameters, purpose
        )

    def _sums_of(
        self, number: int, invited: frozenset[int], purpose: str
    ) -> SecureSum | TrustedSum:
        removable = self._agreement.plan.noise.removable
        key = (invited, number, purpose) if removable else (invited,)
        if self._keyed is None or self._keyed[0] != key:
            random = self._bits.source(number, "protocol", purpose) if removable else RandomSource()
            self._keyed = key, self._among(sorted(invited), random)
        return self._keyed[1]

    def _among(self, places: list[int], random: RandomSource) -> SecureSum | TrustedSum:
        """Fresh parties for some silos, greeted."""
        agreement = self._agreement
        if agreement.trusted:
            self._seat({place: KeyedMemory(agreement, place, self._bits) for place in places})
            return TrustedSum(agreement, self._driver, stages=self._stages)
        identity, roster, memories = enrol(agreement, places, self._bits, random)
        self._seat(memories)
        summing = SecureSum(
            agreement,
            roster,
            _Seated(self._driver, places),
            identity=identity,
            patience=_ENDLESS,
            places=tuple(places),
            stages=self._stages,
        )
        summing.greet()
        return summing

    def _seat(self, memories: Mapping[int, KeyedMemory]) -> None:
        self._silos.silos = {place: self._silo(place, memories[place]) for place in memories}

    def _silo(self, place: int, memory: KeyedMemory) -> Handler:
        return SiloParty(
            memory,
            work=lambda agreement, name: self._works[place],
            releases=lambda agreement: self._releases,
            agree=lambda plan: self._agreement,
            watch_update=self._watch_update,
        ).answer


def federation_in_process(
    design: NoiseDesign,
    prepared: Prepared,
    bits: Bits,
    *,
    releases: Releases,
    threads: int = 1,
    vanishing: DropOuts | None = None,
    epsilon: Callable[[int], float] | None = None,
    stages: Stages = nobody,
) -> ServerParty:
    """The server of a federation whose silos are all in this process.

    Args:
        design: what is drawn and what is accounted, one value.
        prepared: records and model.
        bits: where all random bits come from: the run's secret, or a public seed.
        releases: the ledger of the data set, or why there is none.
        threads: silos that compute at the same time.
        vanishing: drop-outs to simulate.
        epsilon: rounds → what they have spent; None: nothing is promised.
        stages: is told what a round is at.
    """
    agreement, updates = Agreement(design=design, certified=None), LocalUpdates(threads)
    works = [
        LocalWork(design, silo, records, prepared.model, prepared.loss)
        for silo, records in zip(design.silos, prepared.data.silos, strict=True)
    ]
    summing = SumsInProcess(
        agreement,
        works,
        bits,
        releases=releases,
        threads=threads,
        vanishing=vanishing,
        watch_update=updates.watch_update,
        stages=stages,
    )
    return ServerParty(
        agreement,
        summing,
        prepared=prepared,
        attempts=1,
        epsilon=epsilon,
        measuring=lambda server: (
            Stopwatch(),
            updates,
            SimulationMetrics(design, prepared, server),
        ),
    )
