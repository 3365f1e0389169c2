"""The server's end of a run, whatever carries the bytes: it repeats rounds or gives them up,
measures the model and keeps the journal.

A round number is used once: the silos count every input they send as released, because they cannot
know that it was not. A round that was interrupted is asked for again word for word (the silos
answer with the very same bytes); if it cannot be finished so, its number is lost and training goes
on with the next. So no fault ever costs privacy; it may cost a round, or the measurement of a
model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from sumus.books import Measurement, RoundEntry, RunFolder
from sumus.errors import EngineError, ProtocolError, RoundAborted
from sumus.guarantee import LiveEpsilon
from sumus.parties.agreement import Agreement
from sumus.parties.entries import restore
from sumus.parties.logged import Logged
from sumus.parties.round import Invited, RoundOutcome, Summed, Summing, Watching, one_round
from sumus.parties.secure_sum import RoundLostError, SpoiledRoundError, TooFewSilosError
from sumus.parties.server_model import preconditioner_of, prepared_without_records
from sumus.parties.spans import spans
from sumus.parties.watchers import Journal, Stopwatch, Telling, Watchers
from sumus.tasks import Metrics
from sumus.training import Prepared, SecureMetrics, Server

__all__ = ["ServerParty", "measurement_asked"]


@final
class ServerParty:
    """Runs one plan.

    Guarantee: what it learns of the silos' records are the sums that `summing` returns; a round is
        in the journal before the next one is asked for.

    Args:
        agreement: the plan, as this server computes it.
        summing: the silos, and what carries bytes to them and back.
        prepared: the model; None: made from the plan alone, as by a server that holds no record.
        start: parameters to begin with instead of the model's first ones.
        attempts: at a sum before the run is given up; a round is repeated once.
        epsilon: rounds → what they have spent; None: computed here.
        measuring: watchers that add to a round's outcome.
    """

    def __init__(
        self,
        agreement: Agreement,
        summing: Summing,
        *,
        prepared: Prepared | None = None,
        start: npt.NDArray[np.float64] | None = None,
        attempts: int = 3,
        epsilon: Callable[[int], float] | None = None,
        measuring: Callable[[Server], tuple[Watching, ...]] = lambda server: (Stopwatch(),),
    ) -> None:
        self.agreement, self.summing, self._attempts = agreement, summing, attempts
        self._prepared = prepared or prepared_without_records(agreement)
        first = self._prepared.first_parameters if start is None else start
        asked = agreement.plan.training.preconditioner != "none"
        mapping = preconditioner_of(agreement, self._prepared) if asked else None
        self.server = Server(agreement.design, first, mapping.at if mapping else None)
        self._epsilon = epsilon or (
            LiveEpsilon(agreement.design) if agreement.certified is not None else _nothing_promised
        )
        self.measuring = measuring(self.server)

    @property
    def model(self) -> Any:
        """The model's module, with its first parameters."""
        return self._prepared.model

    @property
    def simulated(self) -> bool:
        """Whether a silo admits that its noise comes from a public seed."""
        return self.summing.simulated

    @property
    def present(self) -> tuple[str, ...]:
        """Names of the silos that take part at the moment."""
        return tuple(self.agreement.names[place] for place in sorted(self.summing.present))

    @property
    def refusals(self) -> Mapping[str, str]:
        """Why silos do not take part, by name."""
        return self.summing.refusals

    def greet(self) -> None:
        """Have every silo agree to the plan; raises unless enough do."""
        self.summing.greet()

    # -- without a journal

    def rounds(self, done: int = 0) -> Iterator[RoundOutcome]:
        """The rounds that are left, for whoever keeps no journal: tuning, audits, experiments."""
        for number in range(done, self.agreement.rounds):
            yield self.round(number)

    def round(self, number: int) -> RoundOutcome:
        """One round (from 0), measured as the plan says."""
        outcome = one_round(number, self.server, self.summing, Watchers(self.measuring))
        if self._measures_after(number):
            outcome.metrics, counted = self._counted(number, outcome.invited)
            outcome.summed = replace(
                outcome.summed,
                bytes_up=outcome.summed.bytes_up + counted.bytes_up,
                bytes_down=outcome.summed.bytes_down + counted.bytes_down,
            )
        return outcome

    # -- with a journal

    def train(
        self, run: RunFolder, *, rounds: int | None = None, telling: tuple[Telling, ...] = ()
    ) -> Iterator[RoundEntry]:
        """Run the rounds that are missing in the run folder, at most `rounds` of them, and yield
        each when it is committed.
        """
        if self.simulated and run.void is None:
            raise EngineError(
                "a silo draws its noise from a public seed, so this run would promise too much. "
                "Start a new run."
            )
        restore(self.server, run)
        if run.summary is not None:
            return
        self.summing.blame.recall(run.events)
        self.summing.witness(run.path)
        journal = Journal(
            run,
            self.agreement.design,
            self.server,
            _nothing_promised if run.void else self._epsilon,
            self.agreement.names,
        )
        watch = Watchers((*self.measuring, *spans()), journal, (Logged(), *telling))
        self._go_on_measuring(journal)
        number, again = self._where_to_go_on(run)
        aborts = finished = 0
        while number < self.agreement.rounds and (rounds is None or finished < rounds):
            try:
                one_round(number, self.server, self.summing, watch, again=again)
            except TooFewSilosError:
                raise
            except ProtocolError as error:
                spoiled = isinstance(error, SpoiledRoundError)
                if isinstance(error, RoundLostError) and not spoiled:
                    number, again = number + 1, None
                    continue
                run.note("aborted", {"round": number + 1, "reason": str(error)})
                self._note_blame(run)
                aborts += 1
                if aborts >= self._attempts:
                    raise self._given_up(error, aborts) from None
                _, asked = self._where_to_go_on(run)
                repeated = again is None and not spoiled
                number, again = (number, asked) if repeated else (number + 1, None)
                continue
            measured = self._measure(journal, number)
            self._note_blame(run)
            number, again, aborts, finished = number + 1, None, 0, finished + 1
            entry = journal.committed if measured is None else measured.added_to(journal.committed)
            watch.tell(entry)
            yield entry
        if (
            number == self.agreement.rounds
            and run.last_round
            and not measurement_asked(run, number)
        ):
            # the last round was lost: what is released is the model of an earlier one
            self._measure(journal, number - 1)

    def _note_blame(self, run: RunFolder) -> None:
        """Whoever resumes the run must know who is left out."""
        for event, detail in self.summing.blame.unwritten():
            run.note(event, detail)

    def _given_up(self, error: ProtocolError, attempts: int) -> ProtocolError:
        if attempts == 1:
            return error
        refused = "; ".join(f"{name}: {reason}" for name, reason in sorted(self.refusals.items()))
        why = f" Refused: {refused}" if refused else ""
        return RoundAborted(f"{attempts} attempts in a row ended without a sum: {error}{why}")

    def _where_to_go_on(self, run: RunFolder) -> tuple[int, Invited | None]:
        """The next round (from 0) and, if it was asked for already and not finished, how."""
        invited = [
            detail
            for event, detail in run.events
            if event == "invited" and detail.get("purpose") != "metrics"
        ]
        if not invited or int(invited[-1]["round"]) <= run.last_round:
            return run.last_round, None
        return int(invited[-1]["round"]) - 1, self._noted(invited[-1])

    def _noted(self, asked: Mapping[str, Any]) -> Invited:
        """An invitation as the journal has it."""
        places = frozenset(map(self.agreement.names.index, asked["silos"]))
        return Invited(places, bytes.fromhex(asked.get("keys", "")))

    # -- measurements

    def _measures_after(self, number: int) -> bool:
        plan = self.agreement.plan
        return plan.evaluation.metrics == "secure" and plan.measures_after(number)

    def _counted(self, number: int, invited: Invited) -> tuple[Metrics, Summed]:
        """Accuracy and loss of the released model, as a secure sum of noisy counts over test
        records.
        """
        counted = self.summing.sum(number, invited, self.server.released, "metrics")
        secure = SecureMetrics(self.agreement.design)
        refused = secure.refusal(counted.total_grid, len(counted.survivors))
        if refused is not None:
            raise SpoiledRoundError(f"the measurement after round {number + 1} is lost: {refused}.")
        return secure.decode(counted.total_grid, len(counted.survivors)), counted

    def _go_on_measuring(self, journal: Journal) -> None:
        """Finish, word for word, the measurement that another process began; or begin the one that
        is due.
        """
        run = journal.run
        invited = [detail for event, detail in run.events if event == "invited"]
        if not invited or (
            int(invited[-1]["round"]) > run.last_round and invited[-1].get("purpose") != "metrics"
        ):
            return
        number = int(invited[-1]["round"]) - 1
        if invited[-1].get("purpose") != "metrics":
            self._measure(journal, number)
        elif all(measured.round != number + 1 for measured in run.measurements()):
            self._measure(journal, number, self._noted(invited[-1]))

    def _measure(
        self, journal: Journal, number: int, again: Invited | None = None
    ) -> Measurement | None:
        """Measure the released model under a round's number, if the plan says so; a model whose
        measurement is lost stays unmeasured.

        Args:
            again: how a measurement was asked for that is asked for again.
        """
        if not self._measures_after(number):
            return None
        run, asked = journal.run, {"round": number + 1, "purpose": "metrics"}
        try:
            invited = self.summing.there(number, again=again)
            journal.note_invited(asked | journal.named(invited))
            for _ in range(2):
                try:
                    metrics, counted = self._counted(number, invited)
                except SpoiledRoundError:  # the same silos would send the same again
                    raise
                except ProtocolError as error:
                    run.note("aborted", asked | {"reason": str(error)})
                    self.summing.invite(number, again=invited)
                    continue
                measurement = _measurement(number + 1, run.last_round, metrics, counted)
                run.note("measured", asdict(measurement))
                return measurement
        except (RoundLostError, TooFewSilosError) as error:  # no repetition word for word
            run.note("aborted", asked | {"reason": str(error)})
        return None


def _nothing_promised(rounds: int) -> float:
    return math.inf


def _measurement(number: int, of_round: int, metrics: Metrics, counted: Summed) -> Measurement:
    return Measurement(
        round=number,
        of_round=of_round,
        metrics=metrics.numbers,
        metrics_plus_minus=metrics.plus_minus,
        seconds=sum(counted.seconds),
        bytes_up=counted.bytes_up,
        bytes_down=counted.bytes_down,
        metrics_of_constant=metrics.baseline,
        metrics_tables=metrics.tables,
    )


def measurement_asked(run: RunFolder, round_number: int) -> bool:
    """Whether the measurement after this round (from 1) is done, was asked for or was given up."""
    asked = [
        detail
        for event, detail in run.events
        if event in ("invited", "aborted") and detail.get("purpose") == "metrics"
    ]
    return any(int(detail["round"]) == round_number for detail in asked)
