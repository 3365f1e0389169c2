"""A server keeps everything of past rounds and wants to use it on the next."""

from __future__ import annotations

import pytest

from oracles.malicious_server import MaliciousServer
from oracles.secagg_federation import Federation, federation, read, round_id, terms_for
from sumus.errors import PeerProtocolError
from sumus.secagg import Invitation
from sumus.secagg.schedule import PairKey


@pytest.fixture(scope="module")
def world() -> Federation:
    return federation(terms_for(5, length=4))


def run(world: Federation, label: object, dropped: set[int]) -> MaliciousServer:
    server = MaliciousServer(world, label)
    alive = [silo for silo in range(5) if silo not in dropped]
    signatures = server.collect_signatures(dropped, alive)
    assert server.collect_shares(dropped, signatures, alive) == len(alive)
    return server


def test_by_reusing_opened_pair_seeds(world: Federation) -> None:
    """Silo 4 drops out of one round: its pair seeds of that round are known, those of the next are
    others.
    """
    kept = world.silos[4].keys.ring.sets[-1]
    first = run(world, "one", {4})
    second = run(world, "two", set())
    for silo in range(4):
        opened = first.pair_seed(4, silo)
        assert opened is not None
        root = kept.at(first.header.sequence).roots[silo]
        assert opened == PairKey.derive(root, first.header.transcript).mask_seed()
        assert opened != PairKey.derive(root, second.header.transcript).mask_seed()
        assert second.pair_seed(4, silo) is None


def test_by_subtracting_two_masked_vectors_of_equal_inputs(world: Federation) -> None:
    """After both rounds ended well the server knows both self masks; the pair masks still
    differ.
    """
    first, second = run(world, "three", set()), run(world, "four", set())
    assert first.truth(0) == second.truth(0)
    vectors = [bytes(server.masked[0].vector) for server in (first, second)]
    assert vectors[0] != vectors[1]
    assert first.open_secret(0, 0) not in (None, second.open_secret(0, 0))
    assert second.steal(0) is None


def test_by_feeding_shares_of_one_round_into_another(world: Federation) -> None:
    first, second = run(world, "five", {0}), MaliciousServer(world, "six")
    second.pads |= first.pads
    assert second.steal(0) is None
    assert all(second.open_secret(owner, 0) is None for owner in range(5))


def test_by_sending_an_old_message_to_a_new_state(world: Federation) -> None:
    collecting, invitation = world.server.invite(round_id("seven"))
    old, _ = world.server.invite(round_id("eight"))
    message = world.silos[1].receive(invitation).submit(world.inputs()[1])[1]
    with pytest.raises(PeerProtocolError, match="another round"):
        old.receive(message)
    collecting.receive(message)


def test_by_swapping_the_payload_under_a_header(world: Federation) -> None:
    header = read(world.server.invite(round_id("nine"), payload=b"model A")[1], Invitation)
    swapped = Invitation(
        sender=header.sender,
        session=header.session,
        round_id=header.round_id,
        header=header.header,
        payload=b"model B",
    )
    with pytest.raises(PeerProtocolError, match="payload"):
        world.silos[0].receive(swapped.encode(world.server.identity))
