"""A silo wants rounds to fail, or another silo to be blamed: by wrong shares, wrong corrections, wrong
tags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pytest

from oracles.lying_silo import with_wrong_corrections, with_wrong_shares, with_wrong_tags
from oracles.secagg_federation import Federation, federation, modular_sum, round_id, terms_for
from sumus.errors import RoundAborted
from sumus.parties.blame import Blame
from sumus.secagg import Disagreements, RoundSum, UnopenedError
from sumus.secagg.recovery import Recovery

Change = Callable[[Federation, int, bytes], bytes]
NAMES = tuple(f"silo-{number}" for number in range(9))


def play(
    world: Federation,
    *,
    inputs: Mapping[int, Change] | None = None,
    shares: Mapping[int, Change] | None = None,
    gone: Iterable[int] = (),
) -> RoundSum:
    """One round in which some silos change what they send; `gone` vanish before they reveal."""
    collecting, invitation = world.server.invite(round_id("spoiled"))
    submitted, messages = world.submit_all(invitation, world.inputs())
    for silo, message in messages.items():
        change = (inputs or {}).get(silo)
        collecting.receive(message if change is None else change(world, silo, message))
    certifying, proposal = collecting.close()
    for state in submitted.values():
        certifying.receive(state.sign(proposal)[1])
    unmasking, certificate = certifying.close()
    for silo, state in submitted.items():
        if silo not in set(gone):
            reply, change = state.reveal(certificate)[1], (shares or {}).get(silo)
            unmasking.receive(reply if change is None else change(world, silo, reply))
    return unmasking.close()


def lying(about: Iterable[int], by: int = 1) -> Change:
    owners = set(about)
    return lambda world, silo, reply: with_wrong_shares(world, silo, reply, about=owners, by=by)


def right_sum(world: Federation) -> list[int]:
    return modular_sum(list(world.inputs().values()), world.terms.modulus_bits)


def without_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the first t shares, and nothing is tried if they do not fit."""

    def give_up(self: Recovery, shares: object, tag: bytes, owner: int) -> None:
        self._unopened.add(owner)

    monkeypatch.setattr(Recovery, "_search", give_up)


def test_by_one_wrong_share_of_anothers_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    attack: dict[int, Change] = {0: lying({3})}
    world = federation(terms_for(5, length=4))
    outcome = play(world, shares=attack)
    assert outcome.total.tolist() == right_sum(world)
    assert outcome.disagreements == Disagreements(pairs=frozenset({(3, 0)}))
    without_search(monkeypatch)
    with pytest.raises(UnopenedError):
        play(federation(terms_for(5, length=4)), shares=attack)


def test_by_wrong_shares_of_everybodys_secrets() -> None:
    world = federation(terms_for(5, length=4))
    outcome = play(world, shares={1: lying(range(5))})
    assert outcome.total.tolist() == right_sum(world)
    # its own as well: a silo that disagrees with itself lied
    assert outcome.disagreements.pairs == {(owner, 1) for owner in range(5)}
    blame = Blame(NAMES, colluding=1)
    assert blame.note(0, outcome.disagreements) == (
        "silo-1 lied about shares: it is left out from the next round on",
    )
    assert blame.liars == {1}
    assert blame.invited(frozenset(range(5)), 1, least=3) == {0, 2, 3, 4}


@pytest.mark.parametrize("liars", [(0, 1), (2, 4), (5, 6), (0, 6)])
def test_by_two_liars_of_seven(liars: tuple[int, int]) -> None:
    world = federation(terms_for(7, length=4, dropouts=2, colluding=2))
    outcome = play(world, shares={liar: lying(range(7), by=liar + 3) for liar in liars})
    assert outcome.total.tolist() == right_sum(world)
    blame = Blame(NAMES, colluding=2)
    blame.note(0, outcome.disagreements)
    assert blame.liars <= set(liars)


def test_by_as_many_liars_as_may_drop_out() -> None:
    """Half of the spare shares wrong is what decoding takes; here all of them are."""
    world = federation(terms_for(9, length=4, dropouts=4, colluding=0))
    liars = (0, 2, 3, 7)
    outcome = play(world, shares={liar: lying(range(9), by=liar + 1) for liar in liars})
    assert outcome.total.tolist() == right_sum(world)


def test_by_two_errors_that_cancel_at_zero_nobody_honest_is_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two liars shift the polynomial and leave the secret where it is: the tag fits, and the honest
    holders' shares do not lie on what fits.
    """
    world = federation(terms_for(9, length=4, dropouts=3, colluding=2))
    threshold = world.server.topology.threshold
    from sumus.secagg.sharing import FIELD_PRIME, _weights_at_zero

    first, second, *_ = _weights_at_zero(tuple(range(1, threshold + 1)))
    shift = -first * pow(second, -1, FIELD_PRIME) % FIELD_PRIME
    attack: dict[int, Change] = {0: lying({8}), 1: lying({8}, by=shift)}
    outcome = play(world, shares=attack)
    assert outcome.total.tolist() == right_sum(world)
    assert outcome.disagreements.pairs <= {(8, 0), (8, 1)}
    # the control: whatever fits the tag is taken for the owner's polynomial
    monkeypatch.setattr(Recovery, "_is_agreed", lambda self, polynomial, shares: True)
    fooled = play(
        federation(terms_for(9, length=4, dropouts=3, colluding=2)), shares=attack
    ).disagreements
    assert fooled.pairs & {(8, holder) for holder in range(threshold, 9)}


def test_by_tags_that_fit_nothing() -> None:
    world = federation(terms_for(5, length=4))
    with pytest.raises(UnopenedError) as lost:
        play(world, inputs={3: with_wrong_tags})
    assert lost.value.disagreements == Disagreements(liars=frozenset({3}))
    blame = Blame(NAMES, colluding=1)
    blame.note(0, lost.value.disagreements)
    assert blame.invited(frozenset(range(5)), 1, least=3) == {0, 1, 2, 4}


def test_an_owner_that_makes_many_holders_wrong_is_named() -> None:
    world = federation(terms_for(7, length=4, dropouts=3, colluding=0))

    def unfair(world: Federation, silo: int, message: bytes) -> bytes:
        return with_wrong_corrections(world, silo, message, against=(4, 5))

    outcome = play(world, inputs={3: unfair})
    assert outcome.total.tolist() == right_sum(world)
    assert outcome.disagreements.pairs == {(3, 4), (3, 5)}
    blame = Blame(NAMES, colluding=0)
    blame.note(0, outcome.disagreements)
    assert blame.liars == {3}


def test_an_owner_that_makes_one_holder_wrong_does_not_get_it_expelled() -> None:
    """Owner and holder alone know the pad, so nobody can tell: they take turns."""
    world = federation(terms_for(5, length=4))

    def unfair(world: Federation, silo: int, message: bytes) -> bytes:
        return with_wrong_corrections(world, silo, message, against=(4,))

    outcome = play(world, inputs={1: unfair})
    assert outcome.total.tolist() == right_sum(world)
    blame = Blame(NAMES, colluding=1)
    (line,) = blame.note(0, outcome.disagreements)
    assert line == "silo-1 and silo-4 disagree about a share: one of the two lied"
    assert blame.liars == set()
    everybody = frozenset(range(5))
    rounds = [blame.invited(everybody, number, least=3) for number in range(4)]
    assert rounds == [everybody - {1}, everybody - {4}] * 2


def test_at_the_threshold_a_liar_stops_a_round_and_nobody_is_blamed_for_it() -> None:
    """Three of five answer and one of them lies: two right shares open nothing, as if the liar had
    stayed away too. It is not the owner's fault and is not called so.
    """
    world = federation(terms_for(5, length=4))
    with pytest.raises(UnopenedError) as lost:
        play(world, shares={0: lying({3})}, gone=(1, 2))
    assert lost.value.disagreements == Disagreements(unopened=frozenset({3}))
    with pytest.raises(RoundAborted, match="2 silos helped"):
        play(federation(terms_for(5, length=4)), gone=(0, 1, 2))


def test_a_liar_and_a_drop_out_together_within_the_threshold() -> None:
    world = federation(terms_for(5, length=4))
    outcome = play(world, shares={0: lying({3})}, gone=(2,))
    assert outcome.total.tolist() == right_sum(world)
    assert outcome.disagreements.pairs == {(3, 0)}


def test_by_making_the_server_search_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty liars of fifty, each wrong about everybody: more sets than anybody can try."""
    import sumus.secagg.recovery as recovery

    tried: list[int] = []
    honest = recovery.recover_shares

    def counting(points: tuple[int, ...], shares: object) -> bytes:
        tried.append(len(points))
        return honest(points, shares)  # type: ignore[arg-type]

    monkeypatch.setattr(recovery, "recover_shares", counting)
    world = federation(terms_for(50, length=2, dropouts=24))
    with pytest.raises(UnopenedError):
        play(world, shares={liar: lying(range(50), by=liar + 1) for liar in range(20)})
    assert len(tried) <= recovery.MOST_SETS + 50 * 2


def test_over_rounds_an_honest_silo_is_never_named() -> None:
    """Every graph of disagreements that two liars of seven can make."""
    generator = np.random.default_rng(3)
    for _ in range(200):
        liars = set(generator.choice(7, 2, replace=False).tolist())
        blame = Blame(NAMES, colluding=2)
        for number in range(5):
            pairs = {
                (int(a), int(b))
                for a, b in generator.integers(0, 7, (6, 2))
                if ({int(a), int(b)} & liars and a != b) or (a == b and int(a) in liars)
            }
            blame.note(number, Disagreements(pairs=frozenset(pairs)))
        assert blame.liars <= liars
