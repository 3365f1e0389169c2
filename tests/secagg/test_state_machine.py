"""Random drop-outs, restarts, reorderings and duplicates: every schedule ends in the right sum or a
clean refusal.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from oracles.secagg_federation import Federation, federation, modular_sum, round_id, terms_for
from sumus.errors import PeerProtocolError, ProtocolError
from sumus.secagg import (
    RoundSum,
    ServerCertifying,
    ServerCollecting,
    ServerUnmasking,
    SiloInvited,
    answer,
)

pytestmark = pytest.mark.deep


class RoundUnderFire(RuleBasedStateMachine):
    """The test is the network: it holds every message ever sent and delivers any of them to anyone,
    as often as it likes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world: Federation
        self.server: ServerCollecting | ServerCertifying | ServerUnmasking | None = None
        self.broadcasts: list[bytes] = []
        self.replies: list[bytes] = []
        self.gone: set[int] = set()
        self.counted: set[int] = set()
        self.label = b""
        self.inputs: dict[bytes, dict[int, np.ndarray]] = {}
        self.rounds = 0
        self.sums = 0

    @initialize(
        silos=st.integers(3, 20),
        bits=st.sampled_from([16, 20, 32, 64]),
        sparse=st.booleans(),
        seed=st.integers(0, 99),
    )
    def set_up(self, silos: int, bits: int, sparse: bool, seed: int) -> None:
        graph = "sparse" if sparse and silos >= 16 else "complete"
        dropouts = 3 if graph == "sparse" else (silos - 1) // 2
        self.world = federation(
            terms_for(silos, length=3, modulus_bits=bits, dropouts=dropouts, graph=graph), seed=seed
        )
        self.start_round()

    @precondition(lambda self: self.server is None)
    @rule()
    def start_round(self) -> None:
        self.rounds += 1
        self.label = round_id(self.rounds)
        self.server, invitation = self.world.server.invite(
            self.label, payload=bytes([self.rounds % 256])
        )
        self.broadcasts.append(invitation)
        self.inputs[self.label] = self.world.inputs(self.rounds)
        self.counted = set()

    @precondition(lambda self: self.broadcasts)
    @rule(data=st.data(), newest=st.booleans())
    def deliver_a_broadcast(self, data: st.DataObject, newest: bool) -> None:
        silo = data.draw(st.sampled_from(sorted(self.world.silos)))
        message = self.broadcasts[-1] if newest else data.draw(st.sampled_from(self.broadcasts))
        if silo not in self.gone:
            self._answer(silo, message)

    @precondition(lambda self: self.broadcasts)
    @rule(data=st.data())
    def deliver_the_newest_to_everyone(self, data: st.DataObject) -> None:
        for silo in data.draw(st.permutations(sorted(self.world.silos))):
            if silo not in self.gone:
                self._answer(silo, self.broadcasts[-1])

    @precondition(lambda self: self.server is not None)
    @rule(data=st.data())
    def one_exchange_goes_well(self, data: st.DataObject) -> None:
        before = len(self.replies)
        self.deliver_the_newest_to_everyone(data)
        for message in data.draw(st.permutations(self.replies[before:])):
            self._deliver(message)
        self.the_server_closes_its_state()

    @precondition(lambda self: self.broadcasts)
    @rule(data=st.data())
    def a_silo_restarts_and_computes_another_vector(self, data: st.DataObject) -> None:
        silo = data.draw(st.sampled_from(sorted(self.world.silos)))
        message = data.draw(st.sampled_from(self.broadcasts))
        self._answer(silo, message, change=1)

    def _answer(self, silo: int, message: bytes, *, change: int = 0) -> None:
        """The silo has no memory but its guard; an old invitation finds its old vector or a
        refusal.
        """
        computed: dict[bytes, np.ndarray] = {}

        def vector(invited: SiloInvited) -> np.ndarray:
            label = invited.header.round_id
            computed[label] = self.inputs[label][silo] + np.uint64(change)
            return computed[label]

        try:
            self.replies.append(answer(self.world.silos[silo], message, vector))
        except ProtocolError:
            return
        for label, value in computed.items():
            self.inputs[label][silo] = value

    @precondition(lambda self: self.replies and self.server is not None)
    @rule(data=st.data())
    def deliver_a_reply(self, data: st.DataObject) -> None:
        self._deliver(data.draw(st.sampled_from(self.replies)))

    @precondition(lambda self: self.replies and self.server is not None)
    @rule(data=st.data(), share=st.floats(0.5, 1.0))
    def deliver_many_replies(self, data: st.DataObject, share: float) -> None:
        recent = self.replies[-2 * len(self.world.silos) :]
        for message in data.draw(st.permutations(recent))[: int(share * len(recent)) + 1]:
            self._deliver(message)

    def _deliver(self, message: bytes) -> None:
        assert self.server is not None
        waiting = self.server.waiting_for
        try:
            self.server.receive(message)
        except PeerProtocolError:
            return
        if isinstance(self.server, ServerCollecting):
            self.counted |= waiting - self.server.waiting_for

    @rule(data=st.data())
    def a_silo_vanishes(self, data: st.DataObject) -> None:
        self.gone.add(data.draw(st.sampled_from(sorted(self.world.silos))))

    @rule()
    def everybody_comes_back(self) -> None:
        self.gone.clear()

    @precondition(lambda self: self.server is not None)
    @rule()
    def the_server_closes_its_state(self) -> None:
        assert self.server is not None
        try:
            outcome = self.server.close()
        except ProtocolError:
            self.server = None
            return
        if isinstance(outcome, RoundSum):
            self._check(outcome)
            self.server = None
        else:
            self.server, message = outcome
            self.broadcasts.append(message)

    def _check(self, outcome: RoundSum) -> None:
        self.sums += 1
        assert outcome.survivors == self.counted
        assert len(outcome.survivors) >= self.world.terms.minimum_survivors
        bits = self.world.terms.modulus_bits
        alive = [self.inputs[self.label][silo] for silo in sorted(outcome.survivors)]
        assert outcome.total.tolist() == modular_sum(alive, bits)

    def teardown(self) -> None:
        """Whatever happened before, the next round with everyone present gives the sum of all."""
        before = self.sums
        self.gone.clear()
        self.start_round()
        for _ in range(3):
            for silo in self.world.silos:
                self._answer(silo, self.broadcasts[-1])
                self._deliver(self.replies[-1])
            self.the_server_closes_its_state()
        assert self.server is None
        assert self.counted == set(self.world.silos)
        assert self.sums > before


RoundUnderFire.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestRoundUnderFire = RoundUnderFire.TestCase
