"""The silo's end of a round, whoever carries the bytes: a message in, an answer out.

A silo decides for itself. It runs only plans that its own people put into its folder, recomputes ε
with its own Sumus, checks its own policy and enters every release into its own ledger before
anything leaves. All that it takes from the server is a model (a vector of finite numbers of the
right length), the number of a round and the messages of the secure sum.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import numpy.typing as npt

from sumus.books import Releases
from sumus.errors import (
    GuaranteeError,
    PeerProtocolError,
    PlanError,
    PolicyError,
    ProtocolError,
    StorageError,
    SumusError,
)
from sumus.files import build_of
from sumus.guarantee import padded, sum_length
from sumus.parties.agreement import Agreement, agree_on
from sumus.parties.asked import Asked
from sumus.parties.delivery_messages import DELIVERY
from sumus.parties.inbox import Inbox
from sumus.parties.memory import Memory, SessionNotes
from sumus.parties.parcel import UnbelievedError
from sumus.parties.sums import last_sequence, model_bytes, require_start
from sumus.parties.wire import pack_vector, plain, plain_body
from sumus.parties.work import OpenWork, WatchUpdate, Work
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.secagg import (
    SERVER,
    CipherTexts,
    DroppedSet,
    Greeting,
    Head,
    Invitation,
    KeyDirectory,
    Refusal,
    SiloAgreeing,
    SiloSession,
    SiloSetup,
    Welcome,
    decode,
    decode_any,
    head_of,
    request_digest,
    session_digest,
    verify,
)

__all__ = ["SiloParty"]

_SEE_LOG = "Its own people find the reason in its refusals.log."
_MOST_SESSIONS, _MOST_WORKS = 4, 2
"""Kept in memory at a time, so that plan after plan takes no more of it; what is left is on the disk."""


_NOTHING = b"", b"", b""
OpenReleases = Callable[[Agreement], Releases]
"""Check the silo's policy against what a plan guarantees and open its ledger; raises if the policy
forbids the plan.
"""


TellRefusal = Callable[[str, str | None], None]
"""Told the cause of a refusal in one word, and the name of its entry in refusals.log."""


@final
@dataclass(frozen=True, kw_only=True)
class _Admitted:
    """A plan that this silo has agreed to, with everything it takes to be part of its secure
    sums.
    """

    agreement: Agreement
    memory: SessionNotes
    session: SiloSession
    releases: Releases = field(repr=False)


@final
class SiloParty:
    """Answers the server's messages one at a time.

    Guarantee: `handle` always returns bytes and never raises; what it returns is a message of the
        secure sum under a plan that this silo approved and certified, or a refusal. Nothing but a
        refusal answers a message that the server's key on the silo's own roster did not sign, and
        such a message changes nothing. A plan that the silo's people have withdrawn is answered with
        refusals from the next message on. A refusal tells the server why only where the reason is made
        of what the server sent and what all parties share; of the silo's policy, ledger, data and
        disk it learns that one of them is the reason, and no number or name.

    Args:
        memory: the silo's folder; in a simulation what derives from the run's secret.
        work: what the silo computes, opened when it is first needed.
        releases: the silo's policy and ledger.
        agree: from a plan to what follows from it.
        require_post_quantum: refuse keys of pairs that rest on X25519 alone.
        watch_update: simulation only; None: a local update never leaves the silo.
        refused: told of every refusal; must not raise.
        inbox: takes the runs that a server hands out; None: the silo keeps none.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        work: OpenWork,
        releases: OpenReleases,
        agree: Callable[[TrainingPlan], Agreement] = agree_on,
        require_post_quantum: bool = False,
        watch_update: WatchUpdate | None = None,
        refused: TellRefusal = lambda cause, entry: None,
        inbox: Inbox | None = None,
    ) -> None:
        self._refused, self._inbox = refused, inbox
        self._memory, self._open_work, self._open_releases = memory, work, releases
        self._agree, self._watch_update = agree, watch_update
        self._require_post_quantum = require_post_quantum
        self._name = memory.name
        self._lock = threading.Lock()
        self._admitted: dict[bytes, _Admitted] = {}
        self._trusting: tuple[Agreement, Releases] | None = None
        self._works: dict[str, Work] = {}
        self._set_up: tuple[bytes, bytes, bytes] = _NOTHING
        self._misled: set[str] = set()  # plans that a server began with another model

    def handle(self, message: bytes) -> bytes:
        """The answer to one message of the server."""
        try:
            return self.answer(message)
        except UnbelievedError as error:
            told = f"silo {self._name!r} does not believe this run. {_SEE_LOG}"
            return self._refuse(message, told, str(error), "delivery")
        except ProtocolError as error:
            return self._refuse(message, str(error), str(error), "protocol")
        except PolicyError as error:
            told = f"this is over the policy of silo {self._name!r}. {_SEE_LOG}"
            return self._refuse(message, told, str(error), "policy")
        except (
            PlanError,
            GuaranteeError,
        ) as error:  # raised over the silo's own records too, so their numbers stay here
            told = f"silo {self._name!r} cannot run this plan. {_SEE_LOG}"
            return self._refuse(message, told, str(error), "plan")
        except SumusError as error:
            told = f"silo {self._name!r} cannot use its own data or disk. {_SEE_LOG}"
            return self._refuse(message, told, str(error), "data")
        except Exception:  # a silo's process must outlive whatever a server can provoke
            told = f"silo {self._name!r} failed. {_SEE_LOG}"
            return self._refuse(message, told, traceback.format_exc(), "failure")

    def answer(self, message: bytes) -> bytes:
        """The same; what is wrong is an exception with its fix. For whoever plays the silo."""
        with self._lock:
            return self._answer(message)

    def close(self) -> None:
        """Let another process take over the silo's folder."""
        with self._lock:
            self._admitted.clear()
            self._works.clear()
            self._set_up = _NOTHING
            self._memory.close()

    def note_refusal(self, reason: str, cause: str) -> bool:
        """Write a refusal down for the silo's own people; returns whether the reason is on the
        disk.
        """
        try:
            entry, kept = self._memory.log_refusal(reason), True
        except (StorageError, OSError):
            entry, kept = None, False
        self._refused(cause, entry)
        return kept

    def _refuse(self, message: bytes, told: str, reason: str, cause: str) -> bytes:
        if not self.note_refusal(reason, cause):
            told += " Its refusals.log cannot be written."
        try:
            identity, roster = self._memory.identity, self._memory.roster
            number = roster.number(identity.name)
        except (SumusError, OSError):
            return b""  # who cannot sign has nothing to say that anybody would believe
        try:
            head = head_of(message)
            session, round_id = head.session, head.round_id
        except PeerProtocolError:
            session = round_id = bytes(32)
        refusal = Refusal.of(message, told, sender=number, session=session, round_id=round_id)
        return refusal.encode(identity)

    def _answer(self, message: bytes) -> bytes:
        self._drop_withdrawn()
        body = plain_body(message)
        if body is not None:
            return plain(self._plain(body))
        head = head_of(message)
        if head.sender != SERVER:
            raise PeerProtocolError(
                f"a message to a silo must come from the server, got sender {head.sender}. Refuse "
                "it."
            )
        if head.kind in DELIVERY:
            return self._receive(message)
        if head.kind in (Greeting.kind, KeyDirectory.kind, CipherTexts.kind):
            # a transport that delivers twice must not make a silo forget what it advertised
            digest = request_digest(message)
            if self._set_up[1] != digest:
                self._set_up = head.session, digest, self._key_message(head, message)
            return self._set_up[2]
        admitted = self._agreed(head.session, message)
        if head.kind == Invitation.kind:
            return self._submit(admitted, message)
        submitted = admitted.session.resume(message)
        if head.kind == DroppedSet.kind:
            return submitted.sign(message)[1]
        reply = submitted.reveal(message)[1]
        self._admitted[head.session].memory.keep_certificate(head.round_id, message)
        return reply

    def _receive(self, message: bytes) -> bytes:
        """A receipt for a part of a run that the server hands out."""
        if self._inbox is None:
            raise PeerProtocolError(f"silo {self._name!r} keeps no runs.")
        return self._inbox.answer(message, self._agree)

    def _key_message(self, head: Head, message: bytes) -> bytes:
        """The answer to a message by which keys go round."""
        if head.kind == Greeting.kind:
            return self._welcome(decode(message, Greeting, roster=self._memory.roster))
        verify(decode_any(message), message, self._memory.roster)  # before any state is looked at
        admitted = self._agreed(head.session, message)
        if head.kind == KeyDirectory.kind:
            return self._accept_directory(admitted, message)
        return self._accept_ciphertexts(admitted, message)

    # -- agreeing on a plan

    def _welcome(self, greeting: Greeting) -> bytes:
        if greeting.version != build_of():
            rule = f"silo {self._name!r} runs Sumus {build_of()}, the server {greeting.version}"
            raise PeerProtocolError(
                f"{rule}. Install the same version everywhere; what follows the + is a digest of "
                "its files."
            )
        if greeting.session not in self._admitted:
            self._keep(
                greeting.session,
                self._admit(self._memory.plan(greeting.plan_hash), greeting.session),
            )
        admitted = self._admitted[greeting.session]
        if bytes.fromhex(admitted.agreement.plan.hash) != greeting.plan_hash:
            raise PeerProtocolError(
                "the greeting names a plan and a session that do not belong together. Refuse the "
                "server."
            )
        self._work(admitted.agreement)
        notes, session = admitted.memory, admitted.session
        setup, advert = SiloSetup.start(
            session.identity,
            session.roster,
            terms=session.terms,
            random=notes.random or RandomSource(),
            post_quantum=None if notes.random is None else False,
        )
        notes.keys.keep(notes.keys.ring.with_pending(setup.pending))
        welcome = Welcome(
            sender=session.number,
            session=greeting.session,
            nonce=greeting.nonce,
            simulation=self._memory.simulated,
            advert=advert,
        )
        return welcome.encode(session.identity)

    def _accept_directory(self, admitted: _Admitted, message: bytes) -> bytes:
        """Agree with everybody in the directory; the private half of X25519 has then served."""
        session, keys = admitted.session, admitted.memory.keys
        setup = SiloSetup.restore(
            session.identity, session.roster, terms=session.terms, pending=keys.ring.pending
        )
        agreeing, reply = setup.receive(message, require_post_quantum=self._require_post_quantum)
        keys.keep(keys.ring.with_pending(agreeing.pending))
        return reply

    def _accept_ciphertexts(self, admitted: _Admitted, message: bytes) -> bytes:
        """The key set is complete, and no private half is kept."""
        session, keys = admitted.session, admitted.memory.keys
        agreeing = SiloAgreeing.restore(
            session.identity, session.roster, terms=session.terms, pending=keys.ring.pending
        )
        return agreeing.receive(message, admitted.memory.guard, keys)[1]

    def _admit(self, plan: TrainingPlan, session: bytes) -> _Admitted:
        """Agree to an approved plan, or raise: terms, roster, ε, policy."""
        self._memory.require_runnable(plan)
        agreement = self._agree(plan)
        identity, roster = self._memory.enrolled(session, agreement.names)
        terms = agreement.terms_for(len(roster))
        if session_digest(terms, roster) != session:
            raise PeerProtocolError(
                f"silo {self._name!r} computes other terms, or holds another roster, than the "
                "server. Compare plan and roster fingerprints."
            )
        releases, plan_hash = self._open_releases(agreement), bytes.fromhex(plan.hash)
        memory, last = (
            self._memory.session(session, plan_hash),
            self._memory.last_answered(plan_hash),
        )
        if last is None or last < last_sequence(plan):
            releases.reserve()
        return _Admitted(
            agreement=agreement,
            memory=memory,
            session=SiloSession.open(
                identity,
                roster,
                terms=terms,
                guard=memory.guard,
                keys=memory.keys,
                random=memory.random,
            ),
            releases=releases,
        )

    def _work(self, agreement: Agreement) -> Work:
        """The silo's records and model, loaded when they are first needed: a process that only
        helps to unmask does without.
        """
        plan_hash = agreement.plan.hash
        if plan_hash not in self._works:
            while len(self._works) >= _MOST_WORKS:
                del self._works[next(iter(self._works))]
            self._works[plan_hash] = self._open_work(agreement, self._name)
        return self._works[plan_hash]

    def _agreed(self, session: bytes, message: bytes) -> _Admitted:
        """The plan of a session; agreed to again by a process that has just started."""
        if session not in self._admitted:
            # the states check every signature; a process that does not know the session yet must
            # not set it up for the first who names it
            verify(decode_any(message), message, self._memory.roster)
            self._keep(session, self._admit(self._plan_of(session), session))
        return self._admitted[session]

    def _keep(self, session: bytes, admitted: _Admitted) -> None:
        """Remember a plan, and no more of them than there is memory for: one that is dropped is
        agreed to again when it is asked for, as by a process that has just started.
        """
        self._admitted[session] = admitted
        while len(self._admitted) > _MOST_SESSIONS:
            self._drop(next(iter(self._admitted)))

    def _drop(self, session: bytes) -> None:
        admitted = self._admitted.pop(session)
        self._works.pop(admitted.agreement.plan.hash, None)
        if self._set_up[0] == session:
            self._set_up = _NOTHING
        self._memory.leave(session)

    def _drop_withdrawn(self) -> None:
        """Agree no longer to what the silo's people have withdrawn since the last message."""
        for session, admitted in list(self._admitted.items()):
            if not self._memory.approves(admitted.agreement.plan.hash):
                self._drop(session)

    def _plan_of(self, session: bytes) -> TrainingPlan:
        """The approved plan whose terms and this roster make up the session."""
        for plan in self._memory.plans():
            try:
                agreement = self._agree(plan)
                _, roster = self._memory.enrolled(session, agreement.names)
                if session_digest(agreement.terms_for(len(roster)), roster) == session:
                    return plan
            except SumusError:
                continue  # another plan of this silo is none of this session's business
        raise PeerProtocolError(
            f"silo {self._name!r} has approved no plan of this session, or has withdrawn it. Send "
            "its people the plan file: `sumus silo approve`."
        )

    # -- one round

    def _submit(self, admitted: _Admitted, message: bytes) -> bytes:
        """The masked input for an invitation: its noise is drawn once, and the same invitation gets
        the very same bytes again.
        """
        agreement, session = admitted.agreement, admitted.session
        invited = session.receive(
            message, payload_bytes=model_bytes(agreement.design.resolved.dimension)
        )
        if invited.reply:
            return invited.reply
        asked = Asked.read(invited.payload, agreement)
        if asked.order != invited.header.sequence:
            raise PeerProtocolError(
                f"sum {invited.header.sequence} is said to be that of round {asked.number + 1}, "
                f"which is sum {asked.order}. Refuse the server."
            )
        last = self._memory.last_answered(bytes.fromhex(agreement.plan.hash))
        if last is not None and asked.order <= last:
            raise PeerProtocolError(
                f"silo {self._name!r} has answered round {last // 2 + 1} already, and a round is "
                "answered once. Go on with the next."
            )
        self._require_start(agreement, asked)
        work = self._work(agreement)  # before the round counts: records that do not load cost none
        admitted.releases.require_near(asked.number, -1 if last is None else last // 2)
        # from here on this round's noise counts as drawn, and no earlier round can be opened
        invited.claim()
        admitted.releases.enter(asked.number, invited.header.round_id, asked.purpose)
        vector = self._vector(agreement, work, asked, invited.removable_seeds)
        # negative numbers stand for their residues; the ring is entered where the masks are added
        reply = invited.submit(np.asarray(vector, dtype=np.int64))[1]
        session.keep_answer(reply)
        if asked.order >= last_sequence(agreement.plan):
            admitted.releases.end("every sum of the plan is answered")
        return reply

    def _require_start(self, agreement: Agreement, asked: Asked) -> None:
        """A plan that starts from a released model is begun with that one; a server that began with
        another is refused until it does.
        """
        plan_hash, first = agreement.plan.hash, (asked.number, asked.purpose) == (0, "model")
        if agreement.asked is None and (first or plan_hash in self._misled):
            self._misled.add(plan_hash)
            require_start(agreement.plan, asked.parameters)
            self._misled.discard(plan_hash)

    def _plain(self, body: bytes) -> bytes:
        """The vector itself, where the plan trusts whoever adds up."""
        if self._trusting is None:
            agreement = self._agree(self._memory.plan(body[:32]))
            if not agreement.trusted:
                raise PeerProtocolError(
                    f"silo {self._name!r} sends its vector through the secure sum only. Refuse the "
                    "server."
                )
            self._trusting = agreement, self._open_releases(agreement)
        agreement, releases = self._trusting
        asked = Asked.read(body[64:], agreement)
        self._require_start(agreement, asked)
        releases.enter(asked.number, body[32:64], asked.purpose)
        return pack_vector(self._vector(agreement, self._work(agreement), asked))

    def _vector(
        self, agreement: Agreement, work: Work, asked: Asked, seeds: Sequence[bytes] = ()
    ) -> npt.NDArray[np.int64] | npt.NDArray[np.float64]:
        """Local steps and noise, or noisy counts: what goes into the sum, in grid steps."""
        place = agreement.names.index(self._name)
        source = self._memory.source(asked.number, asked.purpose, place)
        if asked.purpose == "metrics":
            return work.counts(asked.parameters, source)
        begin = time.perf_counter()
        update = work.update(asked.parameters, source, seeds, asked.number)
        if self._watch_update is not None:
            self._watch_update(place, update, time.perf_counter() - begin)
        return padded(update.vector, sum_length(agreement.design.resolved))
