"""A copy of a running silo's memory is restored, or its process forked: both copies are asked for
the same round, and their answers must share no self mask.
"""

from __future__ import annotations

import os

import pytest

from oracles.secagg_federation import Federation, federation, round_id, terms_for
from sumus.randomness import RandomSource
from sumus.secagg import MemoryKeyStore, MemoryRoundGuard, SiloSession


def drawn(session: SiloSession, invitation: bytes) -> bytes:
    invited = session.receive(invitation)
    return invited._salt + invited._own_key


def in_two_processes(session: SiloSession, invitation: bytes) -> tuple[bytes, bytes]:
    """What this process draws for an invitation, and what a copy of it draws."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, drawn(session, invitation))
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reader, 100)
    os.close(reader)
    os.close(writer)
    return drawn(session, invitation), theirs


def session_with(world: Federation, random: RandomSource | None) -> SiloSession:
    keys = MemoryKeyStore()
    keys.keep(world.silos[0].keys.ring)
    return SiloSession.open(
        world.identities[0],
        world.roster,
        terms=world.terms,
        guard=MemoryRoundGuard(),
        keys=keys,
        random=random,
    )


@pytest.mark.parametrize("stream", [False, True])
def test_by_forking_the_process(stream: bool) -> None:
    """The control: with a stream that began before the fork both copies draw the same."""
    world = federation(terms_for(3))
    session = session_with(world, RandomSource() if stream else None)
    mine, theirs = in_two_processes(session, world.server.invite(round_id("fork"))[1])
    assert len(mine) == len(theirs) == 40
    assert (mine[:8] == theirs[:8]) is stream
    assert (mine[8:] == theirs[8:]) is stream
