"""The secure sum as the server drives it over any engine: who takes part, keys, three exchanges.

    greet      every silo agrees to the plan, or says why not; keys go round          (3 exchanges)
    sum        invite and collect, have the survivor set signed, unmask               (3 exchanges)

Whoever misses an exchange is left out of the next round until it answers a greeting again; then all
are greeted, and fresh keys go round. A round that was interrupted is asked for again under the keys
that it was first asked for, whichever went round since. Whoever lied is left out for good
(`blame`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, final

import numpy as np
import numpy.typing as npt

from sumus.errors import EngineError, PeerProtocolError, ProtocolError, RoundAborted
from sumus.files import build_of
from sumus.parties.agreement import Agreement
from sumus.parties.blame import Blame
from sumus.parties.driver import Counting, Driver
from sumus.parties.evidence import Evidence
from sumus.parties.round import Invited, Stages, Summed, nobody
from sumus.parties.sums import pack_model, round_identifier, sequence_of
from sumus.parties.wire import readable
from sumus.randomness import RandomSource
from sumus.secagg import (
    SERVER,
    Disagreements,
    Encapsulations,
    Greeting,
    Identity,
    Message,
    Ready,
    Refusal,
    Roster,
    RoundSum,
    ServerSession,
    ServerSetup,
    UnopenedError,
    Welcome,
    decode,
    head_of,
    request_digest,
    session_digest,
)
from sumus.training import lifted_sum

__all__ = [
    "Patience",
    "RoundLostError",
    "SecureSum",
    "SpoiledRoundError",
    "TooFewSilosError",
    "secure_round",
]

Exchange = Callable[[Mapping[int, bytes]], Mapping[int, bytes]]
"""Send each silo its message and return the replies that arrived in time."""
_MOST_GREETINGS = 3
_STAGES = ("local", "survivors", "unmasking")
M = TypeVar("M", bound=Message)


class TooFewSilosError(RoundAborted):
    """A round cannot begin: not enough silos are there."""


class RoundLostError(RoundAborted):
    """A round cannot be asked for again word for word: a silo of it is gone."""


class SpoiledRoundError(RoundLostError):
    """Silos spoiled a sum by wrong shares or counts; asked again they would send the same again."""


@final
@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long the server waits for silos that do not answer, seconds.

    Args:
        set_up: for all silos to agree to the plan (they load their data meanwhile).
        update: for the slowest silo's local steps.
        stage: for an answer that takes no computation.
        retry: between two greetings of a silo that refused or is not there; a process of its that is
            about to end may still hold its folder.
    """

    set_up: float = 120.0
    update: float = 600.0
    stage: float = 60.0
    retry: float = 1.0


@final
class SecureSum:
    """Sums of one roster's silos over one engine.

    Guarantee: what the server learns of the silos' records are the sums that `secure_round` returns
        and the silos' answers to the greeting.

    Args:
        agreement: the plan, as this server computes it.
        roster: who is who; a silo's number in messages is its place on it.
        driver: the engine.
        identity: the server's, whose key is on the roster.
        patience: deadlines.
        places: of the roster's silos in the plan; None: found by name.
        opened: told of every sum that is in the evidence, before it is used: the number of its
            round (from 0), purpose, round id, and the hash of its line.
        stages: is told what a sum is at.
    """

    def __init__(
        self,
        agreement: Agreement,
        roster: Roster,
        driver: Driver,
        *,
        identity: Identity,
        patience: Patience | None = None,
        places: tuple[int, ...] | None = None,
        opened: Callable[[int, str, bytes, str], None] = lambda *_: None,
        stages: Stages = nobody,
    ) -> None:
        roster.require_server(identity)
        self._opened = opened
        self._agreement, self._roster, self._driver = agreement, roster, Counting(driver)
        self._identity, self._stages = identity, stages
        self._patience = patience or Patience()
        self._terms = agreement.terms_for(len(roster))
        self._digest = session_digest(self._terms, roster)
        self._places = places or tuple(map(agreement.names.index, roster.names))
        self._adverts: dict[int, bytes] = {}
        self._session: ServerSession | None = None
        self._evidence: Evidence | None = None
        self._present: frozenset[int] = frozenset()
        self._absences: dict[int, int] = {}
        self._untold: tuple[str, ...] = ()
        self.refusals: dict[str, str] = {}
        self.blame = Blame(agreement.names, colluding=agreement.plan.colluding)
        self.simulated = False

    @property
    def present(self) -> frozenset[int]:
        """Places of the silos that take part at the moment."""
        return self._in_plan(self._present)

    def witness(self, folder: Path) -> None:
        """See `Summing.witness`."""
        self._evidence = Evidence(folder, self._roster)

    # -- who takes part

    def greet(self) -> None:
        """Have every silo agree to the plan, and pass the keys round; silos that refuse or stay
        away are left out.

        Guarantee: returns only if enough silos are there for a round; otherwise raises with every
            refusal.
        """
        self._adverts = {}
        self._stages("greeting")
        until = time.monotonic() + self._patience.set_up
        tries: dict[int, int] = dict.fromkeys(range(self._terms.silos), 0)
        missing = frozenset(range(self._terms.silos))
        while missing:
            left = until - time.monotonic()
            if left <= 0.0 or all(tries[silo] >= _MOST_GREETINGS for silo in missing):
                break
            refused = self._hello(missing, deadline_seconds=left)
            for silo in refused:
                tries[silo] += 1
            missing -= set(self._adverts)
            if missing:  # an engine may say at once that a silo is not there
                time.sleep(min(self._patience.retry, max(0.0, until - time.monotonic())))
        self._pass_keys_round(deadline_seconds=max(self._patience.stage, until - time.monotonic()))
        if len(self._present) < self._terms.minimum_survivors:
            raise EngineError(self._too_few())

    def invite(self, number: int, *, again: Invited | None = None) -> Invited:
        """See `Summing.invite`: everybody who is there, absent silos having been greeted again."""
        self._welcome_back()
        return self.there(number, again=again)

    def there(self, number: int, *, again: Invited | None = None) -> Invited:
        """See `Summing.there`."""
        least = self._terms.minimum_survivors
        if again is not None and not again.silos <= self.present - self.blame.liars:
            raise RoundLostError(f"round {number + 1} cannot be repeated: not all silos are there.")
        newest = b"" if self._session is None else self._session.keys_digest
        chosen = self.blame.invited(self.present, number, least=least)
        invited = again or Invited(chosen, newest)
        if len(invited.silos) < least:
            raise TooFewSilosError(self._too_few())
        return invited

    def _hello(self, silos: frozenset[int], *, deadline_seconds: float) -> frozenset[int]:
        """Greet some silos; returns those that refused."""
        if not silos:
            return frozenset()
        nonce = RandomSource().bytes(32)
        greeting = Greeting(
            sender=SERVER,
            session=self._digest,
            nonce=nonce,
            plan_hash=bytes.fromhex(self._agreement.plan.hash),
            version=build_of(),
        ).encode(self._identity)
        replies = self._driver.exchange(
            dict.fromkeys(silos, greeting), deadline_seconds=deadline_seconds
        )
        setup, refused = self._setup(), set()
        for silo, reply in replies.items():
            try:
                welcome = self._read(silo, reply, Welcome, answers=greeting)
                if welcome.nonce != nonce:
                    raise PeerProtocolError(
                        f"silo {self._name(silo)!r} answers another greeting than this one. "
                        "Somebody repeats an old answer; ignore it."
                    )
                setup.receive(welcome.advert, sender=silo)
            except ProtocolError as error:
                self.refusals[self._name(silo)] = str(error)
                refused.add(silo)
                continue
            self._adverts[silo] = welcome.advert
            self.simulated |= welcome.simulation
            self.refusals.pop(self._name(silo), None)
        return frozenset(refused)

    def _setup(self) -> ServerSetup:
        """The set-up with the keys that were accepted so far, so that a new one is checked against
        all of them.
        """
        setup = ServerSetup(self._identity, self._roster, self._terms)
        for silo, advert in self._adverts.items():
            setup.receive(advert, sender=silo)
        return setup

    def _pass_keys_round(self, *, deadline_seconds: float) -> None:
        """Have the greeted silos agree on keys; where too few do, the keys that there are stay in
        use.
        """
        if len(self._adverts) < self._terms.minimum_survivors:
            return
        agreeing, directories = self._setup().close()
        for silo, reply in self._exchange(directories, deadline_seconds).items():
            with self._noting(silo):
                self._read(silo, reply, Encapsulations, answers=directories[silo])
                agreeing.receive(reply, sender=silo)
        try:
            session, ciphertexts = agreeing.close()
        except RoundAborted:
            return
        ready = set()
        for silo, reply in self._exchange(ciphertexts, deadline_seconds).items():
            with self._noting(silo):
                answer = self._read(silo, reply, Ready, answers=ciphertexts[silo])
                if answer.answers == request_digest(ciphertexts[silo]):
                    ready.add(silo)
        if len(ready) >= self._terms.minimum_survivors:
            self._session, self._present = session, frozenset(ready)

    def _exchange(self, messages: Mapping[int, bytes], deadline: float) -> Mapping[int, bytes]:
        return self._driver.exchange(messages, deadline_seconds=deadline)

    @contextmanager
    def _noting(self, silo: int) -> Iterator[None]:
        """A silo that does not answer as it should is left out, and the operator told why."""
        try:
            yield
        except PeerProtocolError as error:
            self.refusals[self._name(silo)] = str(error)

    def _welcome_back(self) -> None:
        """Greet absent silos again, less and less often; if one is back, all are greeted and fresh
        keys go round.
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
        self._adverts = {}
        self._hello(due, deadline_seconds=min(5.0, self._patience.stage))
        if not self._adverts:
            return
        self._hello(self._present, deadline_seconds=self._patience.stage)
        self._pass_keys_round(deadline_seconds=self._patience.stage)
        self._absences = {
            silo: count for silo, count in self._absences.items() if silo not in self._present
        }

    def _too_few(self) -> str:
        there = len(self.present - self.blame.liars) if self._session else len(self._adverts)
        refused = "; ".join(f"{name}: {reason}" for name, reason in sorted(self.refusals.items()))
        liars = ", ".join(self._agreement.names[place] for place in sorted(self.blame.liars))
        why = "; ".join(
            [
                *([f"Refused: {refused}"] if refused else []),
                *([f"left out because they lied: {liars}"] if liars else []),
            ]
        )
        why = why or "Nobody refused; check that the silos have joined."
        return (
            f"{there} of {self._terms.silos} silos take part, a round needs "
            f"{self._terms.minimum_survivors}. {why}"
        )

    # -- one secure sum

    def sum(
        self,
        number: int,
        invited: Invited,
        parameters: npt.NDArray[np.float64],
        purpose: str = "model",
    ) -> Summed:
        """See `Summing.sum`."""
        if self._session is None:
            raise EngineError("the silos have not been greeted. Call greet() first.")
        identifier = round_identifier(self._agreement.plan, number, invited.silos, purpose)
        participants = frozenset(
            silo for silo, place in enumerate(self._places) if place in invited.silos
        )
        answering, deadlines = participants, iter((self._patience.update,))
        stages = iter(_STAGES if purpose == "model" else ())
        self._driver.reset()

        def exchange(messages: Mapping[int, bytes]) -> Mapping[int, bytes]:
            nonlocal answering
            # whoever missed a stage is not waited for in the next one, unless the round needs it
            asked = answering if len(answering) >= self._terms.threshold else participants
            sent = {silo: message for silo, message in messages.items() if silo in asked}
            self._stages(next(stages, _STAGES[-1] if purpose == "model" else "measuring"))
            replies = self._driver.exchange(
                sent, deadline_seconds=next(deadlines, self._patience.stage)
            )
            good = {
                silo: reply
                for silo, reply in replies.items()
                if not self._refuses(silo, reply, sent[silo])
            }
            answering -= frozenset(sent) - frozenset(good)
            return good

        try:
            opened = secure_round(
                self._session,
                exchange,
                round_id=identifier,
                payload=pack_model(number, parameters, purpose),
                participants=participants,
                sequence=sequence_of(number, purpose),
                keys_digest=invited.keys or None,
            )
        except UnopenedError as error:
            lines = self._note(number, purpose, error.disagreements, error.accusation)
            self._untold += lines
            raise SpoiledRoundError(f"round {number + 1} is lost: {'; '.join(lines)}.") from error
        finally:
            self._present = (self._present - participants) | answering
        if self._evidence is not None:
            proof = self._evidence.keep(number, purpose, opened.certificate)
            self._opened(number, purpose, identifier, proof)
        told = self._note(number, purpose, opened.disagreements, opened.accusation)
        notes = self._untold + told
        self._untold = ()
        # removable noise is the model's alone
        removed = opened.removed_seeds if purpose == "model" else {}
        return Summed(
            round_id=identifier,
            total_grid=lifted_sum(self._agreement.design_of(number), opened.total, removed),
            survivors=self._in_plan(opened.survivors),
            notes=notes,
            bytes_up=self._driver.bytes_up,
            bytes_down=self._driver.bytes_down,
            seconds=tuple(self._driver.seconds),
        )

    def _refuses(self, silo: int, reply: bytes, request: bytes) -> bool:
        """Whether a silo's answer is no message of the round; a refusal is kept for the operator,
        if the silo signed it and it is one of this request.
        """
        try:
            if head_of(reply).kind != Refusal.kind:
                return False
            self._read(silo, reply, Refusal, answers=request)
        except PeerProtocolError as error:
            self.refusals[self._name(silo)] = str(error)
        return True

    def _read(self, silo: int, reply: bytes, expected: type[M], *, answers: bytes) -> M:
        """A silo's signed reply to a request; its refusal is raised as an error."""
        if head_of(reply).kind == Refusal.kind:
            refusal = decode(reply, Refusal, roster=self._roster)
            if (refusal.sender, refusal.answers) != (silo, request_digest(answers)):
                raise PeerProtocolError(
                    f"silo {self._name(silo)!r} refuses another message than this one. Ignore it."
                )
            raise PeerProtocolError(readable(refusal.reason))
        message = decode(reply, expected, roster=self._roster)
        if (message.sender, message.session) != (silo, self._digest):
            raise PeerProtocolError(
                f"the answer of silo {self._name(silo)!r} is another silo's or of another session. "
                "Ignore it."
            )
        return message

    def _in_plan(self, silos: frozenset[int]) -> frozenset[int]:
        return frozenset(self._places[silo] for silo in silos)

    def _note(
        self,
        number: int,
        purpose: str,
        noticed: Disagreements,
        accusation: Mapping[str, Any] | None,
    ) -> tuple[str, ...]:
        """Keep what proves a disagreement, and who is left out for it."""
        if self._evidence is not None and accusation is not None:
            self._evidence.accuse(number, purpose, accusation)
        return self.blame.note(number, self._placed(noticed))

    def _placed(self, noticed: Disagreements) -> Disagreements:
        return Disagreements(
            pairs=frozenset((self._places[a], self._places[b]) for a, b in noticed.pairs),
            liars=self._in_plan(noticed.liars),
            unopened=self._in_plan(noticed.unopened),
        )

    def _name(self, silo: int) -> str:
        return self._agreement.names[self._places[silo]]


def secure_round(
    session: ServerSession,
    exchange: Exchange,
    *,
    round_id: bytes,
    payload: bytes,
    participants: frozenset[int] | None = None,
    sequence: int | None = None,
    keys_digest: bytes | None = None,
) -> RoundSum:
    """One round of the protocol over any transport: three exchanges, each ending when the replies
    that will come have come.

    Guarantee: returns the sum of exactly the survivors that a quorum of silos signed for, or
        raises; a reply that does not fit counts as no reply.
    """
    collecting, invitation = session.invite(
        round_id,
        payload=payload,
        participants=participants,
        sequence=sequence,
        keys_digest=keys_digest,
    )
    _collect(collecting, exchange(dict.fromkeys(collecting.waiting_for, invitation)))
    certifying, proposal = collecting.close()
    _collect(certifying, exchange(dict.fromkeys(certifying.waiting_for, proposal)))
    unmasking, certificate = certifying.close()
    _collect(unmasking, exchange(dict.fromkeys(unmasking.waiting_for, certificate)))
    return unmasking.close()


class _Receiving(Protocol):
    def receive(self, message: bytes, *, sender: int | None = None) -> None: ...


def _collect(state: _Receiving, replies: Mapping[int, bytes]) -> None:
    for silo, message in replies.items():
        try:
            state.receive(message, sender=silo)
        except PeerProtocolError:
            continue  # a broken reply is a drop-out, not the end of the round
