"""A server wants a sum that a silo does not count as released, or two sums for the price of one."""

from __future__ import annotations

import numpy as np
import pytest

from oracles.secagg_federation import Federation, federation, modular_sum, read, round_id, terms_for
from sumus.errors import LocalProtocolError
from sumus.secagg.messages import MaskedInput

VICTIM = 0


@pytest.fixture
def world() -> Federation:
    return federation(terms_for(5, length=4))


def test_by_opening_the_sum_behind_the_victims_back(world: Federation) -> None:
    """The victim is never asked to sign or to reveal and is told that the round was aborted; its
    vector is in the sum all the same.
    """
    inputs, label = world.inputs(3), round_id("behind the back")
    collecting, invitation = world.server.invite(label)
    assert not world.silos[VICTIM].released(label)
    states, messages = world.submit_all(invitation, inputs)
    for message in messages.values():
        collecting.receive(message)
    helpers = [silo for silo in states if silo != VICTIM]
    certifying, proposal = collecting.close()
    for silo in helpers:
        certifying.receive(states[silo].sign(proposal)[1])
    unmasking, certificate = certifying.close()
    for silo in helpers:
        unmasking.receive(states[silo].reveal(certificate)[1])
    outcome = unmasking.close()
    assert VICTIM in outcome.survivors
    assert outcome.total.tolist() == modular_sum(list(inputs.values()), 32)
    assert world.silos[VICTIM].released(label)


def test_by_having_the_application_answer_one_invitation_twice(world: Federation) -> None:
    """The retry of a failed send: a second vector under the masks of the first would give away
    their difference.
    """
    _, invitation = world.server.invite(round_id("retry"))
    invited = world.silos[VICTIM].receive(invitation)
    first = read(invited.submit(np.zeros(4, dtype=np.uint32))[1], MaskedInput)
    for vector in (np.ones(4, dtype=np.uint32), np.zeros(4, dtype=np.uint32)):
        with pytest.raises(LocalProtocolError, match="answered already"):
            invited.submit(vector)
    assert world.silos[VICTIM].guard.claimed(round_id("retry"), "input") == first.salt
