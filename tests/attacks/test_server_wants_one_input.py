"""A lying server, alone or with colluding silos, goes after the vector of one honest silo."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from oracles.malicious_server import MaliciousServer
from oracles.secagg_federation import Federation, federation, read, round_id, terms_for
from sumus.errors import PeerProtocolError, PlanError
from sumus.randomness import RandomSource
from sumus.secagg import (
    DroppedSet,
    Identity,
    Invitation,
    KeyDirectory,
    Terms,
    head_of,
)
from sumus.secagg.masking import add_masks
from sumus.secagg.messages import (
    SERVER,
    KeyAdvert,
    MaskedInput,
    SetCertificate,
    SetSignature,
)
from sumus.secagg.setup_messages import keys_digest_of

VICTIM = 0
SALTS = dict.fromkeys(range(5), bytes(8))


@pytest.fixture
def world() -> Federation:
    return federation(terms_for(5, length=4))


def forget(world: Federation, silos: Iterable[int], *, steps: set[str]) -> None:
    """Take a defence out: these silos lose their memory of these steps."""
    for silo in silos:
        claims = world.silos[silo].guard._claims  # type: ignore[attr-defined]
        for key in [key for key in claims if key[1] in steps]:
            del claims[key]


def test_by_asking_for_both_masks_of_the_victim(world: Federation) -> None:
    """First the self mask (nobody dropped), then the pair masks (the victim dropped), from the same
    silos.
    """
    server = MaliciousServer(world, "both masks")
    signatures = server.collect_signatures(set(), range(5))
    assert server.collect_shares(set(), signatures, range(5)) == 5
    again = server.collect_signatures({VICTIM}, range(5))
    assert again == {}
    assert server.collect_shares({VICTIM}, signatures, range(5)) == 0
    assert server.steal(VICTIM) is None


def test_that_attack_works_on_silos_that_forget(world: Federation) -> None:
    """The control: without their memory of the survivor set the same silos give the victim away."""
    server = MaliciousServer(world, "forgetful")
    for dropped in (set(), {VICTIM}):
        forget(world, range(5), steps={"survivor-set", "release"})
        signatures = server.collect_signatures(dropped, range(5))
        server.collect_shares(dropped, signatures, range(5))
    assert server.steal(VICTIM) == server.truth(VICTIM)


def test_by_telling_two_groups_two_survivor_sets(world: Federation) -> None:
    server = MaliciousServer(world, "split")
    for dropped, group in ((set(), (0, 1)), ({VICTIM}, (2, 3, 4))):
        signatures = server.collect_signatures(dropped, group)
        server.collect_shares(dropped, signatures, range(5))
    assert server.steal(VICTIM) is None


def test_by_having_more_colluders_than_agreed_certify_another_set(world: Federation) -> None:
    """Even a certificate with a full quorum does not make a silo reveal under another set than it
    signed, nor sign after revealing.
    """
    server = MaliciousServer(world, "too many colluders", colluders={2, 3, 4})
    assert 0 in server.collect_signatures(set(), [0])
    forged = {
        c: world.identities[c].sign(DroppedSet.signed_part(server.header, frozenset({1})))
        for c in (2, 3, 4)
    }
    assert server.collect_shares({1}, forged, [0]) == 0
    late = MaliciousServer(world, "late signature", colluders={2, 3, 4})
    forged = {
        c: world.identities[c].sign(DroppedSet.signed_part(late.header, frozenset({1})))
        for c in (2, 3, 4)
    }
    assert late.collect_shares({1}, forged, [0]) == 1
    assert 0 not in late.collect_signatures(set(), [0])


def split_with_a_colluder(terms: Terms) -> MaliciousServer:
    """Seven silos, silo 6 colludes and signs everything: three honest ones are told one set and
    three the other.
    """
    server = MaliciousServer(federation(terms), "split with a colluder", colluders={6})
    for dropped, group in ((set(), (VICTIM, 1, 2)), ({VICTIM}, (3, 4, 5))):
        signatures = server.collect_signatures(dropped, group)
        server.collect_shares(dropped, signatures, group)
    return server


def test_by_splitting_the_silos_with_a_colluder_who_signs_twice() -> None:
    assert split_with_a_colluder(terms_for(7, dropouts=2, colluding=1)).steal(VICTIM) is None


def test_the_threshold_rule_is_tight() -> None:
    """With t = 4 of 7 and one colluder (2t = n + c) the split works, which is why such terms are
    refused.
    """
    with pytest.raises(PlanError, match="2·dropouts"):
        terms_for(7, dropouts=3, colluding=1)
    unsafe = terms_for(7, dropouts=2, colluding=1)
    object.__setattr__(unsafe, "dropouts", 3)
    server = split_with_a_colluder(unsafe)
    assert server.steal(VICTIM) == server.truth(VICTIM)


def test_by_calling_a_silo_dropped_whose_vector_arrived(world: Federation) -> None:
    """Its pair masks are opened, its self mask never."""
    server = MaliciousServer(world, "pretended drop-out")
    signatures = server.collect_signatures({VICTIM}, range(1, 5))
    assert server.collect_shares({VICTIM}, signatures, range(1, 5)) == 4
    assert all(server.pair_seed(VICTIM, other) is not None for other in range(1, 5))
    assert server.open_secret(VICTIM, 0) is None
    assert server.steal(VICTIM) is None


def test_by_calling_everyone_else_dropped(world: Federation) -> None:
    server = MaliciousServer(world, "alone")
    assert server.collect_signatures({1, 2, 3, 4}, range(5)) == {}
    assert server.collect_signatures({2, 3, 4}, range(5)) == {}
    assert server.steal(VICTIM) is None


def test_by_unmasking_without_a_quorum(world: Federation) -> None:
    server = MaliciousServer(world, "no quorum")
    signatures = server.collect_signatures(set(), (0, 1))
    assert server.collect_shares(set(), signatures, range(5)) == 0
    stranger = Identity.generate("stranger", RandomSource.simulation(4))
    forged = stranger.sign(DroppedSet.signed_part(server.header, frozenset()))
    assert server.collect_shares(set(), signatures | {2: forged}, range(5)) == 0
    assert server.collect_shares(set(), signatures | {2: signatures[1]}, range(5)) == 0


def test_by_counting_signatures_of_the_dropped_or_of_strangers(world: Federation) -> None:
    server = MaliciousServer(world, "wrong signers", colluders={4})
    signed = DroppedSet.signed_part(server.header, frozenset({4}))
    signatures = server.collect_signatures({4}, (0, 1)) | {4: world.identities[4].sign(signed)}
    assert len(signatures) == 3
    assert server.collect_shares({4}, signatures, range(4)) == 0
    outside = signatures | {70: signatures[0]}
    outside.pop(4)
    assert server.collect_shares({4}, outside, range(4)) == 0


def test_by_replaying_a_certificate_of_another_round(world: Federation) -> None:
    first = MaliciousServer(world, "first")
    signatures = first.collect_signatures({VICTIM}, range(1, 5))
    second = MaliciousServer(world, "second")
    assert second.collect_shares({VICTIM}, signatures, range(1, 5)) == 0
    old = SetCertificate(
        **first.envelope(),
        dropped=frozenset({VICTIM}),
        salts=SALTS,
        signatures=dict(list(signatures.items())[:3]),
    )
    with pytest.raises(PeerProtocolError, match="another round"):
        second.states[1].reveal(old.encode(world.server.identity))


def test_by_inviting_to_the_same_round_twice(world: Federation) -> None:
    """Two rounds with one id but other participants would reuse nothing, and are refused all the
    same.
    """
    invite = world.server.invite
    world.silos[VICTIM].receive(invite(round_id("twice"))[1]).submit(world.inputs()[VICTIM])
    for other in (
        invite(round_id("twice"), payload=b"x")[1],
        invite(round_id("twice"), participants=frozenset({0, 1, 2}))[1],
    ):
        with pytest.raises(PeerProtocolError, match="another transcript"):
            world.silos[VICTIM].receive(other)


def test_by_inviting_to_the_same_round_twice_before_the_first_is_answered(
    world: Federation,
) -> None:
    """Both invitations are accepted while the round is free; one of them is answered, and no part
    of the other after that.
    """
    invite = world.server.invite
    first = world.silos[VICTIM].receive(invite(round_id("both"))[1])
    second = world.silos[VICTIM].receive(invite(round_id("both"), payload=b"x")[1])
    second.submit(world.inputs()[VICTIM])
    with pytest.raises(PeerProtocolError, match="answered already"):
        first.submit(world.inputs()[VICTIM])
    header = first.header
    proposal = DroppedSet(
        sender=SERVER,
        session=header.session,
        round_id=header.round_id,
        header=header,
        dropped=frozenset(),
    )
    with pytest.raises(PeerProtocolError, match="never invited to this round, or to another form"):
        world.silos[VICTIM].resume(proposal.encode(world.server.identity))


def test_by_telling_silos_different_participants_or_payloads(world: Federation) -> None:
    """The victim alone is told of a small round: its signature counts for nobody else, nor theirs
    for it.
    """
    small = MaliciousServer(world, "views")
    _, narrow = world.server.invite(round_id("views 2"), participants=frozenset({0, 1, 2}))
    _, wide = world.server.invite(round_id("views 2"))
    state, _ = world.silos[VICTIM].receive(narrow).submit(world.inputs()[VICTIM])
    others = {
        silo: world.silos[silo].receive(wide).submit(world.inputs()[silo])[0]
        for silo in range(1, 5)
    }
    narrow_header, wide_header = read(narrow, Invitation).header, read(wide, Invitation).header
    envelope = small.envelope() | {"round_id": wide_header.round_id}
    proposal = DroppedSet(**(envelope | {"header": wide_header}), dropped=frozenset()).encode(
        world.server.identity
    )
    signatures = {
        silo: read(state_.sign(proposal)[1], SetSignature).signature
        for silo, state_ in others.items()
    }
    with pytest.raises(PeerProtocolError, match="another round, payload or set"):
        state.sign(proposal)
    chosen = dict(list(signatures.items())[:2]) | {
        0: world.identities[0].sign(DroppedSet.signed_part(wide_header, frozenset()))
    }
    mixed = SetCertificate(
        **(envelope | {"header": narrow_header}),
        dropped=frozenset(),
        salts=SALTS,
        signatures=chosen,
    )
    with pytest.raises(PeerProtocolError, match="does not verify"):
        state.reveal(mixed.encode(world.server.identity))


def directory_with(world: Federation, change: dict[int, bytes]) -> bytes:
    honest = read(world.directories[VICTIM], KeyDirectory)
    adverts = {head_of(advert).sender: advert for advert in honest.adverts} | change
    chosen = tuple(adverts[s] for s in sorted(adverts))
    return KeyDirectory(
        sender=honest.sender,
        session=honest.session,
        keys_digest=keys_digest_of(chosen),
        adverts=chosen,
    ).encode(world.server.identity)


def advert(world: Federation, silo: int, key: bytes, signer: Identity) -> bytes:
    return KeyAdvert(sender=silo, session=world.server.session, agreement_key=key).encode(signer)


def test_by_putting_its_own_keys_in_the_directory(world: Federation) -> None:
    """The man in the middle: a key the server knows, under the name of an honest silo."""
    middle = Identity.generate("silo-001", RandomSource.simulation(8))
    forged = advert(world, 1, b"\x09" * 32, middle)
    stuck_on = forged[:-64] + world.adverts[1][-64:]
    for hostile in (forged, stuck_on, advert(world, 1, b"\x09" * 32, world.server.identity)):
        with pytest.raises(PeerProtocolError, match="does not verify"):
            world.setups[VICTIM].receive(directory_with(world, {1: hostile}))


def test_by_giving_two_silos_one_key(world: Federation) -> None:
    """A colluder who copies another silo's key would cancel that silo's masks."""
    honest = read(world.adverts[1], KeyAdvert)
    copied = advert(world, 2, honest.agreement_key, world.identities[2])
    with pytest.raises(PeerProtocolError, match="same agreement key"):
        world.setups[VICTIM].receive(directory_with(world, {2: copied}))


def test_by_spelling_one_key_in_two_ways(world: Federation) -> None:
    """X25519 ignores the top bit of a key, so a colluder can copy another's key unnoticed; it
    agrees on a root of its own all the same.
    """
    honest = read(world.adverts[1], KeyAdvert)
    spelt = honest.agreement_key[:31] + bytes([honest.agreement_key[31] | 0x80])
    again = advert(world, 2, spelt, world.identities[2])
    roots = world.agreed(VICTIM, directory_with(world, {2: again})).keys.ring.sets[-1].roots
    assert len(set(roots.values())) == 4


def test_by_reflecting_the_victims_own_key(world: Federation) -> None:
    own = read(world.adverts[VICTIM], KeyAdvert)
    reflected = advert(world, 3, own.agreement_key, world.identities[3])
    with pytest.raises(PeerProtocolError, match="same agreement key"):
        world.setups[VICTIM].receive(directory_with(world, {3: reflected}))
    other_own = advert(
        world, 0, read(world.adverts[1], KeyAdvert).agreement_key, world.server.identity
    )
    renamed = advert(world, 1, own.agreement_key, world.server.identity)
    with pytest.raises(PeerProtocolError, match="does not verify"):
        world.setups[VICTIM].receive(directory_with(world, {0: other_own, 1: renamed}))


def test_by_replaying_a_key_of_another_session(world: Federation) -> None:
    other = federation(terms_for(5, length=5))
    with pytest.raises(PeerProtocolError, match="other terms"):
        world.setups[VICTIM].receive(directory_with(world, {1: other.adverts[1]}))


def test_by_inviting_silos_that_the_victim_shares_no_key_with(world: Federation) -> None:
    """Participants without masks towards the victim would count as survivors and protect
    nothing.
    """
    honest = read(world.directories[VICTIM], KeyDirectory)
    few = honest.adverts[:3]
    cut = KeyDirectory(
        sender=honest.sender, session=honest.session, keys_digest=keys_digest_of(few), adverts=few
    ).encode(world.server.identity)
    lonely = world.agreed(0, cut)
    invite = world.server.invite
    with pytest.raises(PeerProtocolError, match="no agreed key"):
        lonely.receive(invite(round_id("lonely"), keys_digest=keys_digest_of(few))[1])
    with pytest.raises(PeerProtocolError, match="not one that this silo has agreed on"):
        lonely.receive(invite(round_id("lonely"))[1])


@pytest.mark.parametrize("colluders", [1, 2])
def test_by_pooling_what_colluding_silos_derive(colluders: int) -> None:
    """An honest run to the end, every share revealed, plus all keys of c colluders: the honest pair
    masks stay closed.
    """
    terms = terms_for(7, dropouts=2, colluding=colluders)
    server = MaliciousServer(federation(terms), "pool", colluders=range(7 - colluders, 7))
    signatures = server.collect_signatures(set(), range(7 - colluders))
    server.collect_shares(set(), signatures, range(7 - colluders))
    assert server.open_secret(VICTIM, 0) is not None
    assert server.steal(VICTIM) is None


def test_when_all_the_others_collude_nothing_can_help() -> None:
    """The control: six of seven pooling their keys get the seventh, so the attack code does what it
    says.
    """
    server = MaliciousServer(
        federation(terms_for(7, dropouts=2)), "everyone", colluders=range(1, 7)
    )
    assert server.steal(VICTIM) == server.truth(VICTIM)


def second_submission(server: MaliciousServer) -> MaskedInput:
    """The victim's disk is rolled back to before the round, and it answers the same invitation with
    another vector.
    """
    forget(server.world, [VICTIM], steps={"transcript", "input"})
    server.world.silos[VICTIM].keys.keep(server.rings[VICTIM])
    vector = server.inputs[VICTIM] + np.uint64(1)
    return read(
        server.world.silos[VICTIM].receive(server.invitation).submit(vector)[1], MaskedInput
    )


def test_by_rolling_the_victims_disk_back(world: Federation) -> None:
    """Two submissions under one transcript share their pair masks. Opening both self masks would
    give their difference.
    """
    server = MaliciousServer(world, "rollback")
    second = second_submission(server)
    first = server.masked[VICTIM]
    assert bytes(first.corrections) != bytes(second.corrections)
    signatures = server.collect_signatures(set(), range(1, 5))
    assert server.collect_shares(set(), signatures, (1, 2)) == 2
    assert (
        server.collect_shares(set(), signatures, range(1, 5), other_salts={VICTIM: second.salt})
        == 2
    )
    assert server.collect_shares(set(), signatures, range(1, 5)) == 2
    opened = [server.open_secret(VICTIM, 0, message=message) for message in (first, second)]
    assert opened == [None, None]


def test_at_most_one_of_two_submissions_is_ever_opened(world: Federation) -> None:
    server = MaliciousServer(world, "rollback 2")
    second = second_submission(server)
    signatures = server.collect_signatures(set(), range(1, 5))
    assert (
        server.collect_shares(set(), signatures, range(1, 5), other_salts={VICTIM: second.salt})
        == 4
    )
    assert server.collect_shares(set(), signatures, range(1, 5)) == 0
    assert server.open_secret(VICTIM, 0, message=second) is not None
    assert server.open_secret(VICTIM, 0) is None


def test_rolling_everybody_back_gives_the_difference_of_the_two_vectors(world: Federation) -> None:
    """The control: if all holders forget too, both self masks are opened and the masked vectors
    differ by the inputs alone.
    """
    server = MaliciousServer(world, "rollback 3")
    second = second_submission(server)
    for salt in (server.masked[VICTIM].salt, second.salt):
        forget(world, range(1, 5), steps={"release"})
        signatures = server.collect_signatures(set(), range(1, 5))
        assert (
            server.collect_shares(set(), signatures, range(1, 5), other_salts={VICTIM: salt}) == 4
        )
    plain = []
    for message in (server.masked[VICTIM], second):
        words = np.frombuffer(message.vector, dtype=np.uint32).copy()
        seed = server.open_secret(VICTIM, 0, message=message)
        assert seed is not None
        add_masks(words, [(seed, -1)])
        plain.append(words)
    assert (plain[1] - plain[0]).tolist() == [1] * 4


def test_by_pretending_to_be_another_silo_towards_the_victim(world: Federation) -> None:
    server = MaliciousServer(world, "sender")
    message = bytearray(
        DroppedSet(**server.envelope(), dropped=frozenset()).encode(world.server.identity)
    )
    message[6:8] = (3).to_bytes(2, "little")
    with pytest.raises(PeerProtocolError, match="only the server sends DroppedSet"):
        server.states[VICTIM].sign(bytes(message))
