"""The silo's side of a federation across machines, whatever the engine: bytes in, bytes out.

A silo decides for itself. It runs only plans that its own people put into its folder, recomputes ε
with its own Sumus, checks its own policy and enters every release into its own ledger before
anything leaves. All that it takes from the server is a model (a vector of finite numbers of the
right length), the number of a round and the messages of the secure sum.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, final

from sumus import __version__
from sumus.data import FederatedData
from sumus.errors import (
    GuaranteeError,
    PeerProtocolError,
    PlanError,
    PolicyError,
    ProtocolError,
    StorageError,
    SumusError,
)
from sumus.noise import to_ring
from sumus.parties.agreement import Agreement, agree_on
from sumus.parties.memory import InFlight, SessionMemory, SiloState
from sumus.parties.sums import PURPOSES, unpack_model
from sumus.parties.wire import Hello, Kind, Welcome, frame, refusal, unframe
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.secagg import (
    DroppedSet,
    Invitation,
    KeyDirectory,
    SiloSession,
    SiloSetup,
    decode_any,
    session_digest,
)

if TYPE_CHECKING:
    from sumus.parties.work import LocalWork

__all__ = ["Releases", "SiloParty"]

_SEE_LOG = "Its own people find the reason in its refusals.log."


class Releases(Protocol):
    """A silo's policy and ledger, bound to one plan."""

    def enter(self, number: int, round_id: bytes, purpose: str = "model") -> None:
        """Write down that round `number` (from 0), or its measurement, is about to be released;
        raises if the policy forbids it.
        """
        ...


LoadData = Callable[[TrainingPlan, str], FederatedData]
"""A plan and the silo's name to the silo's own records; the plan's paths are ignored."""
OpenReleases = Callable[[Agreement], Releases]
"""Check the silo's policy against what a plan guarantees and open its ledger; raises if the policy
forbids the plan.
"""


@final
@dataclass(frozen=True, kw_only=True)
class _Admitted:
    """A plan that this silo has agreed to, with everything it takes to be part of its secure
    sums.
    """

    agreement: Agreement
    memory: SessionMemory
    setup: SiloSetup
    advert: bytes
    place: int
    releases: Releases = field(repr=False)


@final
class SiloParty:
    """Answers the server's messages one at a time.

    Guarantee: `handle` always returns bytes and never raises; what it returns is a message of the
        secure sum under a plan that this silo approved and certified, or a refusal. A refusal tells
        the server why only where the reason is made of what the server sent and what all parties
        share; of the silo's policy, ledger, data and disk it learns that one of them is the reason,
        and no number or name.

    Args:
        state: the silo's folder.
        load: the silo's own records for a plan.
        releases: the silo's policy and ledger.
    """

    def __init__(self, state: SiloState, *, load: LoadData, releases: OpenReleases) -> None:
        self._state, self._load, self._open_releases = state, load, releases
        self._name = state.identity.name
        self._lock = threading.Lock()
        self._admitted: dict[bytes, _Admitted] = {}
        self._works: dict[bytes, LocalWork] = {}
        self._sessions: dict[bytes, SiloSession] = {}

    def handle(self, message: bytes) -> bytes:
        """The answer to one message of the server."""
        with self._lock:
            try:
                return self._answer(message)
            except ProtocolError as error:
                return self._refuse(str(error), str(error))
            except PolicyError as error:
                return self._refuse(
                    f"this is over the policy of silo {self._name!r}. {_SEE_LOG}", str(error)
                )
            except (
                PlanError,
                GuaranteeError,
            ) as error:  # raised over the silo's own records too, so their numbers stay here
                return self._refuse(
                    f"silo {self._name!r} cannot run this plan. {_SEE_LOG}", str(error)
                )
            except SumusError as error:
                return self._refuse(
                    f"silo {self._name!r} cannot use its own data or disk. {_SEE_LOG}", str(error)
                )
            except Exception:  # a silo's process must outlive whatever a server can provoke
                return self._refuse(
                    f"silo {self._name!r} failed. {_SEE_LOG}", traceback.format_exc()
                )

    def close(self) -> None:
        """Let another process take over the silo's folder."""
        with self._lock:
            self._admitted.clear()
            self._works.clear()
            self._sessions.clear()
            self._state.close()

    def _refuse(self, told: str, reason: str) -> bytes:
        try:
            self._state.log_refusal(reason)
        except (StorageError, OSError):
            told += " Its refusals.log cannot be written."
        return refusal(told)

    def _answer(self, message: bytes) -> bytes:
        kind, body = unframe(message)
        if kind is Kind.HELLO:
            return self._welcome(Hello.decode(body))
        if kind is not Kind.PROTOCOL:
            raise PeerProtocolError(
                f"a server does not send {kind.name}. Run the same release everywhere."
            )
        received = decode_any(body)
        if isinstance(received, KeyDirectory):
            admitted = self._agreed(received.session)
            self._sessions[received.session] = admitted.setup.receive(body, admitted.memory.guard)
            admitted.memory.keep_directory(body)
            return frame(Kind.READY)
        session = self._sessions.get(received.session) or self._restored(received.session)
        if isinstance(received, Invitation):
            admitted = self._admitted[received.session]
            return frame(
                Kind.PROTOCOL,
                self._submit(admitted, self._work(admitted, received.session), session, body),
            )
        submitted = session.resume(body)
        reply = (
            submitted.sign(body)[1]
            if isinstance(received, DroppedSet)
            else submitted.reveal(body)[1]
        )
        return frame(Kind.PROTOCOL, reply)

    # -- agreeing on a plan

    def _welcome(self, hello: Hello) -> bytes:
        if hello.version != __version__:
            rule = f"silo {self._name!r} runs Sumus {__version__}, the server {hello.version}"
            raise PeerProtocolError(f"{rule}. Install the same release everywhere.")
        if hello.session not in self._admitted:
            self._admitted[hello.session] = self._admit(
                self._state.plan(hello.plan_hash), hello.session
            )
        admitted = self._admitted[hello.session]
        if bytes.fromhex(admitted.agreement.plan.hash) != hello.plan_hash:
            raise PeerProtocolError(
                "the greeting names a plan and a session that do not belong together. Refuse the "
                "server."
            )
        self._work(admitted, hello.session)
        return Welcome(admitted.advert, self._state.simulation_seed is not None).encode()

    def _admit(self, plan: TrainingPlan, session: bytes) -> _Admitted:
        """Agree to an approved plan, or raise: terms, roster, ε, policy."""
        agreement, roster, identity = agree_on(plan), self._state.roster, self._state.identity
        names = [silo.name for silo in agreement.design.silos]
        if sorted(names) != list(roster.names):
            raise PeerProtocolError(
                f"the plan has other silos than the roster of silo {self._name!r}. Compare plan "
                "and roster."
            )
        if session_digest(agreement.terms, roster) != session:
            raise PeerProtocolError(
                f"silo {self._name!r} computes other terms, or holds another roster, than the "
                "server. Compare plan and roster fingerprints."
            )
        releases = self._open_releases(agreement)
        memory = self._state.session(session)
        setup, advert = SiloSetup.restore(
            identity,
            roster,
            terms=agreement.terms,
            secret=memory.secret(RandomSource()),
            random=RandomSource(),
        )
        return _Admitted(
            agreement=agreement,
            memory=memory,
            setup=setup,
            advert=advert,
            place=names.index(self._name),
            releases=releases,
        )

    def _work(self, admitted: _Admitted, session: bytes) -> LocalWork:
        """The silo's records and model, loaded when they are first needed: a process that only
        helps to unmask does without.
        """
        if session not in self._works:
            from sumus.parties.work import LocalWork

            agreement = admitted.agreement
            self._works[session] = LocalWork(
                agreement, self._name, self._load(agreement.plan, self._name)
            )
        return self._works[session]

    def _restored(self, session: bytes) -> SiloSession:
        """The session that another process of this silo set up before it ended."""
        if not self._state.knows(session):
            raise PeerProtocolError(
                f"silo {self._name!r} has not set up this session. Pass it the keys first."
            )
        admitted = self._agreed(session)
        self._sessions[session] = admitted.setup.receive(
            admitted.memory.directory or b"", admitted.memory.guard
        )
        return self._sessions[session]

    def _agreed(self, session: bytes) -> _Admitted:
        """The plan of a session; agreed to again by a process that has just started."""
        if session not in self._admitted:
            self._admitted[session] = self._admit(self._plan_of(session), session)
        return self._admitted[session]

    def _plan_of(self, session: bytes) -> TrainingPlan:
        """The approved plan whose terms and this roster make up the session."""
        roster = self._state.roster
        for plan in self._state.plans():
            try:
                if session_digest(agree_on(plan).terms, roster) == session:
                    return plan
            except SumusError:
                continue  # another plan of this silo is none of this session's business
        raise PeerProtocolError(
            f"silo {self._name!r} has withdrawn the plan of this session. Send it the plan file to "
            "join with."
        )

    # -- one round

    def _submit(
        self, admitted: _Admitted, work: LocalWork, session: SiloSession, message: bytes
    ) -> bytes:
        """The masked input for an invitation: its noise is drawn once, and the same invitation gets
        the very same bytes again.
        """
        plan, memory = admitted.agreement.plan, admitted.memory
        invited = session.receive(message)
        number, purpose, parameters = unpack_model(invited.payload)
        self._check_asked(plan, number, purpose, len(parameters))
        transcript, last = invited.header.transcript, memory.in_flight
        place = 2 * number + PURPOSES.index(purpose)  # a round's model comes before its measurement
        if last is not None and place <= last.number:
            if place == last.number and transcript == last.transcript and last.reply:
                return last.reply
            raise PeerProtocolError(
                f"silo {self._name!r} has answered round {last.number // 2 + 1} already, and a "
                "round is answered once. Go on with the next."
            )
        # from here on this round's noise counts as drawn
        memory.keep_in_flight(InFlight(place, transcript))
        admitted.releases.enter(number, invited.header.round_id, purpose)
        seed, label = self._state.simulation_seed, "silo" if purpose == "model" else purpose
        source = (
            RandomSource()
            if seed is None
            else RandomSource.simulation(seed, number, label, admitted.place)
        )
        model = purpose == "model"
        vector = (
            work.vector(parameters, source, invited.removable_seeds)
            if model
            else work.counts(parameters, source)
        )
        reply = invited.submit(to_ring(vector, plan.aggregation.modulus_bits))[1]
        memory.keep_in_flight(InFlight(place, transcript, reply))
        return reply

    @staticmethod
    def _check_asked(plan: TrainingPlan, number: int, purpose: str, parameters: int) -> None:
        """Refuse whatever the plan does not ask for: what is accounted are its rounds and its
        measurements, and no others.
        """
        if parameters != plan.training.dimension:
            rule = (
                f"the model that arrived has {parameters} parameters, the plan "
                f"{plan.training.dimension}"
            )
            raise PeerProtocolError(f"{rule}. Refuse the server.")
        if number >= plan.federation.rounds:
            raise PeerProtocolError(
                f"round {number + 1} is beyond the {plan.federation.rounds} rounds of the plan. "
                "Agree on a new plan."
            )
        if purpose == "metrics" and not (
            plan.evaluation.metrics == "secure" and plan.measures_after(number)
        ):
            raise PeerProtocolError(
                f"the plan does not measure the model of round {number + 1}. Agree on a new plan."
            )
