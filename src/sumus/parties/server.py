"""The server's side of a federation across machines, whatever the engine.

    greet      every silo agrees to the plan, or says why not; keys go round                     (2 exchanges, once per process)
    train      per round: invite and collect, have the survivor set signed, unmask               (3 exchanges)
               then move the model and commit the round to the run folder; where the plan measures
               it securely, the same three exchanges for noisy counts of test records

A round number is used once: the silos count every input they send as released, because they cannot
    know that it was not. A round that was
interrupted is asked for again word for word (the silos answer with the very same bytes); if it
cannot be finished so, its number is lost and training goes on with the next. So no fault ever costs
privacy; it may cost a round, or the measurement of a model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, final

from sumus import __version__
from sumus.books import Measurement, RoundRecord, RunFolder
from sumus.errors import EngineError, PeerProtocolError, ProtocolError, RoundAborted
from sumus.guarantee import LiveEpsilon
from sumus.parties.agreement import Agreement
from sumus.parties.driver import Driver
from sumus.parties.entries import RoundFacts, record_of, restore
from sumus.parties.server_model import workbench_without_records
from sumus.parties.sums import pack_model, round_identifier, secure_round
from sumus.parties.wire import Hello, Kind, Welcome, frame, readable, unframe
from sumus.secagg import Roster, RoundSum, ServerSession, ServerSetup, session_digest
from sumus.tasks import Metrics
from sumus.training import SecureMetrics, Server, lifted_sum

__all__ = ["Patience", "ServerParty", "measurement_asked"]

_STAGES = ("local steps and masked inputs", "survivor set", "unmasking")
_MOST_ABORTS = 3


@final
@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long the server waits for silos that do not answer, seconds.

    Args:
        set_up: for all silos to agree to the plan (they load their data meanwhile).
        update: for the slowest silo's local steps.
        stage: for an answer that takes no computation.
        retry: between two greetings of a silo that refused; a process of its that is about to end
            may still hold its folder.
    """

    set_up: float = 120.0
    update: float = 600.0
    stage: float = 60.0
    retry: float = 1.0


@final
class ServerParty:
    """Drives one plan over one engine.

    Guarantee: what it learns of the silos' records are the sums that `secure_round` returns and the
        silos' answers to the greeting; a round is in the run folder before the next one is asked
        for.

    Args:
        agreement: the plan, as this server computes it.
        roster: who is who; silo numbers are places on it.
        driver: the engine.
        patience: deadlines.
    """

    def __init__(
        self,
        agreement: Agreement,
        roster: Roster,
        driver: Driver,
        *,
        patience: Patience | None = None,
    ) -> None:
        self._agreement, self._roster, self._driver = agreement, roster, driver
        self._patience = patience or Patience()
        self._terms, self._spent = agreement.terms, LiveEpsilon(agreement.design)
        self._bench = workbench_without_records(agreement)
        self._server = Server(agreement.design, self._bench.first_parameters)
        self._adverts: dict[int, bytes] = {}
        self._session: ServerSession | None = None
        self._present: frozenset[int] = frozenset()
        self._absences: dict[int, int] = {}
        self._stage_seconds: dict[str, float] = {}
        self._bytes_up = self._bytes_down = 0
        self.refusals: dict[str, str] = {}
        self.simulated = False

    @property
    def server(self) -> Server:
        """The global model."""
        return self._server

    @property
    def model(self) -> Any:
        """The model's module, with its first parameters."""
        return self._bench.model

    @property
    def present(self) -> tuple[str, ...]:
        """Names of the silos that take part at the moment."""
        return tuple(self._roster.names[silo] for silo in sorted(self._present))

    # -- set-up

    def greet(self) -> None:
        """Have every silo agree to the plan, and pass the keys round; silos that refuse or stay
        away are left out.

        Guarantee: returns only if enough silos are there for a round; otherwise raises with every
            refusal.
        """
        until = time.monotonic() + self._patience.set_up
        tries: dict[int, int] = dict.fromkeys(range(self._terms.silos), 0)
        missing = frozenset(range(self._terms.silos)) - set(self._adverts)
        while missing:
            left = until - time.monotonic()
            if left <= 0.0 or all(tries[silo] >= 3 for silo in missing):
                break
            refused = self._hello(missing, deadline_seconds=left)
            for silo in refused:
                tries[silo] += 1
            missing -= set(self._adverts)
            if refused & missing:
                time.sleep(min(self._patience.retry, max(0.0, until - time.monotonic())))
        self._pass_keys_round(deadline_seconds=max(self._patience.stage, until - time.monotonic()))
        if len(self._present) < self._terms.minimum_survivors:
            raise EngineError(self._too_few())

    def _hello(self, silos: frozenset[int], *, deadline_seconds: float) -> frozenset[int]:
        """Greet some silos; returns those that refused."""
        digest = session_digest(self._terms, self._roster)
        hello = Hello(
            plan_hash=bytes.fromhex(self._agreement.plan.hash), session=digest, version=__version__
        )
        replies = self._driver.exchange(
            dict.fromkeys(silos, hello.encode()), deadline_seconds=deadline_seconds
        )
        setup, refused = self._setup(), set()
        for silo, reply in replies.items():
            try:
                kind, body = unframe(reply)
                if kind is not Kind.WELCOME:
                    raise PeerProtocolError(
                        readable(body)
                        if kind is Kind.REFUSED
                        else f"answered a greeting with {kind.name}"
                    )
                welcome = Welcome.decode(body)
                setup.receive(welcome.advert, sender=silo)
            except ProtocolError as error:
                self.refusals[self._roster.names[silo]] = str(error)
                refused.add(silo)
                continue
            self._adverts[silo] = welcome.advert
            self.simulated |= welcome.simulation
            self.refusals.pop(self._roster.names[silo], None)
        return frozenset(refused)

    def _setup(self) -> ServerSetup:
        """The set-up with the keys that were accepted so far, so that a new one is checked against
        all of them.
        """
        setup = ServerSetup(self._roster, self._terms)
        for silo, advert in self._adverts.items():
            setup.receive(advert, sender=silo)
        return setup

    def _pass_keys_round(self, *, deadline_seconds: float) -> None:
        if len(self._adverts) < self._terms.minimum_survivors:
            raise EngineError(self._too_few())
        self._session, directories = self._setup().close()
        framed = {silo: frame(Kind.PROTOCOL, directory) for silo, directory in directories.items()}
        replies = self._driver.exchange(framed, deadline_seconds=deadline_seconds)
        self._present = frozenset(
            silo for silo, reply in replies.items() if self._kind(silo, reply) is Kind.READY
        )

    def _too_few(self) -> str:
        there = len(self._present if self._session else self._adverts)
        why = self._reasons() or " Nobody refused; check that the silos have joined."
        return (
            f"{there} of {self._terms.silos} silos take part, a round needs "
            f"{self._terms.minimum_survivors}.{why}"
        )

    def _reasons(self) -> str:
        refused = "; ".join(f"{name}: {reason}" for name, reason in sorted(self.refusals.items()))
        return f" Refused: {refused}" if refused else ""

    # -- rounds

    def train(self, run: RunFolder, *, rounds: int | None = None) -> Iterator[RoundRecord]:
        """Run the rounds that are missing in the run folder, at most `rounds` of them, and yield
        each when it is committed.
        """
        if self.simulated and run.void is None:
            raise EngineError(
                "a silo draws its noise from a public seed, so this run would promise too much. "
                "Start a new run."
            )
        restore(self._server, run)
        self._go_on_measuring(run)
        number, replay = _where_to_go_on(run)
        aborts = finished = 0
        while number < self._agreement.plan.federation.rounds and (
            rounds is None or finished < rounds
        ):
            self._welcome_back()
            participants = frozenset(map(self._roster.number, replay)) if replay else self._present
            if replay and not participants <= self._present:
                number, replay = number + 1, ()  # it cannot be repeated word for word
                continue
            if len(participants) < self._terms.minimum_survivors:
                raise RoundAborted(self._too_few())
            if not replay:
                run.note(
                    "invited",
                    {
                        "round": number + 1,
                        "silos": [self._roster.names[silo] for silo in sorted(participants)],
                    },
                )
            try:
                found = self._secure_round(number, participants)
            except ProtocolError as error:
                run.note("aborted", {"round": number + 1, "reason": str(error)})
                aborts += 1
                if aborts >= _MOST_ABORTS:
                    raise RoundAborted(
                        f"{aborts} attempts in a row ended without a sum: {error}{self._reasons()}"
                    ) from None
                again = (
                    ()
                    if replay
                    else tuple(self._roster.names[silo] for silo in sorted(participants))
                )
                number, replay = (number, again) if again else (number + 1, ())
                continue
            epsilon = math.inf if run.void else self._spent(number + 1)
            record = run.commit(
                self._applied(number, found, participants, epsilon),
                self._server.state(),
                {"round": number + 1},
            )
            measured = self._measure(run, number)
            number, replay, aborts, finished = number + 1, (), 0, finished + 1
            yield record if measured is None else measured.added_to(record)
        if (
            number == self._agreement.plan.federation.rounds
            and run.last_round
            and not measurement_asked(run, number)
        ):
            # the last round was lost: what is released is the model of an earlier one
            self._measure(run, number - 1)

    def _welcome_back(self) -> None:
        """Greet absent silos again, less and less often; if one is back, the keys go round
        again.
        """
        for silo in frozenset(range(self._terms.silos)) - self._present:
            self._absences[silo] = self._absences.get(silo, 0) + 1
        due = frozenset(
            silo
            for silo, count in self._absences.items()
            if silo not in self._present and count & (count - 1) == 0
        )
        if not due:
            return
        for silo in due:
            self._adverts.pop(silo, None)
        self._hello(due, deadline_seconds=min(5.0, self._patience.stage))
        back = due & set(self._adverts)
        if back:
            self._absences = {
                silo: count for silo, count in self._absences.items() if silo not in back
            }
            self._pass_keys_round(deadline_seconds=self._patience.stage)

    # -- measurements

    def _go_on_measuring(self, run: RunFolder) -> None:
        """Finish, word for word, the measurement that another process began; or begin the one that
        is due.
        """
        invited = [detail for event, detail in run.events if event == "invited"]
        if not invited or (
            int(invited[-1]["round"]) > run.last_round and invited[-1].get("purpose") != "metrics"
        ):
            return
        number = int(invited[-1]["round"]) - 1
        if invited[-1].get("purpose") != "metrics":
            self._measure(run, number)
        elif all(each.round != number + 1 for each in run.measurements()):
            self._measure(run, number, tuple(map(str, invited[-1]["silos"])))

    def _measure(
        self, run: RunFolder, number: int, replay: tuple[str, ...] = ()
    ) -> Measurement | None:
        """Measure the released model under a round's number, if the plan says so; a model whose
        measurement is lost stays unmeasured.

        Args:
            replay: the silos of a measurement that is asked for again.
        """
        plan = self._agreement.plan
        if not (plan.evaluation.metrics == "secure" and plan.measures_after(number)):
            return None
        participants = frozenset(map(self._roster.number, replay)) if replay else self._present
        asked = {"round": number + 1, "purpose": "metrics"}
        if not participants <= self._present or len(participants) < self._terms.minimum_survivors:
            run.note("aborted", asked | {"reason": self._too_few()})
            return None
        if not replay:
            run.note(
                "invited",
                asked | {"silos": [self._roster.names[silo] for silo in sorted(participants)]},
            )
        for _ in range(2):
            try:
                found = self._secure_round(number, participants, "metrics")
            except ProtocolError as error:
                run.note("aborted", asked | {"reason": str(error)})
                self._welcome_back()
                if not participants <= self._present:
                    break  # it cannot be repeated word for word
                continue
            # removable noise is the model's alone
            total = lifted_sum(self._agreement.design, found.total, {})
            metrics = SecureMetrics(self._agreement.design).decode(total, len(found.survivors))
            measurement = self._measurement(number, run.last_round, metrics)
            run.note("measured", asdict(measurement))
            return measurement
        return None

    def _measurement(self, number: int, of_round: int, metrics: Metrics) -> Measurement:
        return Measurement(
            round=number + 1,
            of_round=of_round,
            metrics=metrics.numbers,
            metrics_plus_minus=metrics.plus_minus,
            seconds=sum(self._stage_seconds.values()),
            bytes_up=self._bytes_up,
            bytes_down=self._bytes_down,
        )

    # -- one secure sum

    def _secure_round(
        self, number: int, participants: frozenset[int], purpose: str = "model"
    ) -> RoundSum:
        if self._session is None:
            raise EngineError("the silos have not been greeted. Call greet() first.")
        stages = iter(_STAGES)
        self._stage_seconds, self._bytes_up, self._bytes_down = {}, 0, 0
        answering = participants

        def exchange(messages: Mapping[int, bytes]) -> Mapping[int, bytes]:
            nonlocal answering
            stage, begin = next(stages), time.perf_counter()
            deadline = self._patience.update if stage == _STAGES[0] else self._patience.stage
            # whoever missed a stage is not waited for in the next one, unless the round needs it
            asked = answering if len(answering) >= self._terms.threshold else participants
            framed = {
                silo: frame(Kind.PROTOCOL, message)
                for silo, message in messages.items()
                if silo in asked
            }
            replies = self._driver.exchange(framed, deadline_seconds=deadline)
            self._stage_seconds[stage] = time.perf_counter() - begin
            self._bytes_down += sum(map(len, framed.values()))
            self._bytes_up += sum(map(len, replies.values()))
            good = {
                silo: reply[1:]
                for silo, reply in replies.items()
                if self._kind(silo, reply) is Kind.PROTOCOL
            }
            answering &= frozenset(good)
            return good

        try:
            return secure_round(
                self._session,
                exchange,
                round_id=round_identifier(self._agreement.plan, number, participants, purpose),
                payload=pack_model(
                    number,
                    self._server.parameters if purpose == "model" else self._server.released,
                    purpose,
                ),
                participants=participants,
            )
        finally:
            self._present = (self._present - participants) | answering

    def _kind(self, silo: int, reply: bytes) -> Kind | None:
        """What a silo answered; a refusal is kept for the operator."""
        try:
            kind, body = unframe(reply)
        except PeerProtocolError:
            return None
        if kind is Kind.REFUSED:
            self.refusals[self._roster.names[silo]] = readable(body)
        return kind

    def _applied(
        self, number: int, found: RoundSum, participants: frozenset[int], epsilon: float
    ) -> RoundRecord:
        """Move the model by a round's sum, and what the record keeps of the round."""
        begin, plan = time.perf_counter(), self._agreement.plan
        total = lifted_sum(self._agreement.design, found.total, found.removed_seeds)
        total = total[: plan.training.dimension]
        facts = RoundFacts(
            number=number,
            round_id=round_identifier(plan, number, participants),
            epsilon=epsilon,
            names=self._roster.names,
            survivors=found.survivors,
            total=total,
            update=self._server.apply(total, len(found.survivors)),
            metrics=None,
            seconds={**self._stage_seconds, "server": time.perf_counter() - begin},
            bytes_up=self._bytes_up,
            bytes_down=self._bytes_down,
        )
        return record_of(self._agreement.design, facts)


def measurement_asked(run: RunFolder, round_number: int) -> bool:
    """Whether the measurement after this round (from 1) is done, was asked for or was given up."""
    asked = [
        detail
        for event, detail in run.events
        if event in ("invited", "aborted") and detail.get("purpose") == "metrics"
    ]
    return any(int(detail["round"]) == round_number for detail in asked)


def _where_to_go_on(run: RunFolder) -> tuple[int, tuple[str, ...]]:
    """The next round (from 0) and, if it was asked for already and not finished, the silos that
    were.
    """
    invited = [
        detail
        for event, detail in run.events
        if event == "invited" and detail.get("purpose") != "metrics"
    ]
    if not invited or int(invited[-1]["round"]) <= run.last_round:
        return run.last_round, ()
    return int(invited[-1]["round"]) - 1, tuple(map(str, invited[-1]["silos"]))
