"""Every schedule of one round of a small federation under a hostile server, and which sums it can
open at the end of each.

A state is what every honest silo remembers and what has left it so far. From each state the server
may send each silo every message that it can make: any form of the round, any dropped set, any
certificate for which it has a quorum of signatures (colluders sign everything). A silo that is sent
nothing more has dropped out, so every reachable state is also the end of a schedule with drop-outs.
Early, late, repeated and reordered messages are among those that are tried everywhere. What a silo
answers comes from the real code (`SiloTable`).

A vector y_u = x_u + b_u ± Σ s_uv is free of masks only together with every v whose s_uv is unknown,
and not at all while b_u is unknown or the other end of an unknown mask has sent nothing.

`python benchmarks/schedules.py 5` does so for all terms of up to five silos.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import combinations

from oracles.secagg_federation import federation, terms_for
from oracles.silo_table import (
    Certify,
    Claims,
    Form,
    Invite,
    Message,
    Output,
    Propose,
    Revealed,
    Silos,
    SiloTable,
    layout_of,
    subsets,
)
from sumus.secagg import Terms

World = tuple[int, ...]
"""Of every honest silo, the number of its view."""
Step = tuple[int, Message]
Story = tuple[Form, Silos]
"""A form of the round and a dropped set."""


@dataclass(frozen=True)
class View:
    """What one silo remembers, and what has left it so far."""

    claims: Claims = frozenset()
    outputs: frozenset[Output] = frozenset()

    @property
    def sent(self) -> frozenset[Form]:
        return frozenset(output for output in self.outputs if isinstance(output, Form))

    @property
    def signed(self) -> frozenset[Story]:
        return frozenset(
            (output.form, output.dropped) for output in self.outputs if isinstance(output, Propose)
        )

    @property
    def revealed(self) -> frozenset[Revealed]:
        return frozenset(output for output in self.outputs if isinstance(output, Revealed))


class _Views:
    """The views of one silo, numbered as they are met, and the steps between them."""

    def __init__(self, table: SiloTable) -> None:
        self._table = table
        self._numbers: dict[View, int] = {View(): 0}
        self.views = [View()]
        self.sent, self.signed, self.revealed = [View().sent], [View().signed], [View().revealed]
        self.certified = cache(self._certified)
        self.unasked = cache(self._unasked)

    def _after(self, number: int, message: Message) -> int:
        """The view after a message; the same one if it is refused or changes nothing."""
        view = self.views[number]
        claims, output = self._table.answer(view.claims, message)
        if output is None:
            return number
        after = View(claims, view.outputs | {output})
        if after not in self._numbers:
            self._numbers[after] = len(self.views)
            self.views.append(after)
            self.sent.append(after.sent)
            self.signed.append(after.signed)
            self.revealed.append(after.revealed)
        return self._numbers[after]

    def _unasked(self, number: int) -> list[tuple[Message, int]]:
        """Steps by messages that a server can always send."""
        messages = [Invite(form) for form in self._table.forms] + [
            Propose(form, dropped)
            for form in self._table.forms
            for dropped in subsets(form.participants)
        ]
        steps = [(message, self._after(number, message)) for message in messages]
        return [(message, after) for message, after in steps if after != number]

    def _certified(self, number: int, story: Story, false_salts: Silos) -> int:
        """The view after a certificate."""
        return self._after(number, Certify(*story, false_salts))


@dataclass(frozen=True)
class Explored:
    """What an exhaustive search found.

    Args:
        states: number of states reached.
        sums: survivor sets of the sums that could be opened somewhere.
        violation: a schedule after which the server knows what it must not, None if there is none.
        reason: what it knows then.
    """

    states: int
    sums: frozenset[Silos]
    violation: tuple[Step, ...] | None = None
    reason: str = ""


def forms_of(silos: int, *, least: int, most: int) -> tuple[Form, ...]:
    """What a server calls the round: everybody, another payload, and without the last silo."""
    everybody = frozenset(range(silos))
    forms = [Form(everybody), Form(everybody, b"another payload")]
    if silos - 1 >= least:
        forms.insert(1, Form(everybody - {silos - 1}))
    return tuple(forms[:most])


class Schedules:
    """All schedules of one round.

    Args:
        terms: of the federation; silos 0 … colluding − 1 collude.
        forms: how many things the server calls the round.
        forgets: steps that the guards forget, for controls.
        threshold: signatures and shares that silos ask for in place of the terms', for controls.
        lies: certificates with a wrong salt for a silo that has sent one are tried too.
    """

    def __init__(
        self,
        terms: Terms,
        *,
        forms: int = 1,
        forgets: frozenset[str] = frozenset(),
        threshold: int | None = None,
        lies: bool = False,
    ) -> None:
        self.terms, self._lies = terms, lies
        world = federation(terms)
        topology = world.server.topology
        if threshold is not None:
            topology = replace(topology, quorum=threshold, threshold=threshold)
            world.silos = {
                number: replace(silo, topology=topology) for number, silo in world.silos.items()
            }
        self.quorum, self.threshold = topology.quorum, topology.threshold
        self.forms = forms_of(terms.silos, least=terms.minimum_survivors, most=forms)
        self.colluders = frozenset(range(terms.colluding))
        self.honest = tuple(range(terms.colluding, terms.silos))
        tables = [SiloTable(world, silo, self.forms, forgets=forgets) for silo in self.honest]
        self._views = [_Views(table) for table in tables]
        self._stories = [
            (form, dropped) for form in self.forms for dropped in subsets(form.participants)
        ]
        self._layouts = {
            (form, owner): layout_of(world.silos[owner], tables[0].header(form), owner)
            for form in self.forms
            for owner in form.participants
        }
        self._learnt = cache(self._sums)
        self._came_from: dict[World, tuple[World, Step] | None] = {}

    # -- what the server can do

    def explore(self, *, most: int | None = None) -> Explored:
        """Follow every schedule, breadth first; stop at the first violation or after `most`
        states.
        """
        start: World = (0,) * len(self.honest)
        came_from = self._came_from = {start: None}
        frontier, sums = [start], set()
        while frontier and (most is None or len(came_from) < most):
            following = []
            for world in frontier:
                for place, message, view in self._steps(world):
                    after = (*world[:place], view, *world[place + 1 :])
                    if after in came_from:
                        continue
                    came_from[after] = world, (self.honest[place], message)
                    following.append(after)
                    if not isinstance(message, Certify):
                        continue
                    found = self.opened(after)
                    sums |= {silos | self.colluders for _, silos, _ in found}
                    if reason := self._violation(found):
                        return Explored(
                            len(came_from), frozenset(sums), self.path_to(after), reason
                        )
            frontier = following
        return Explored(len(came_from), frozenset(sums))

    def _steps(self, world: World) -> list[tuple[int, Message, int]]:
        """Every message to every silo that changes something: its place, the message, its next
        view.
        """
        steps: list[tuple[int, Message, int]] = []
        certified = self._certified(world)
        for place, (silo, number) in enumerate(zip(self.honest, world, strict=True)):
            views = self._views[place]
            steps += ((place, message, after) for message, after in views.unasked(number))
            for story, unsent in certified:
                for lies in self._lies_about(silo, story, unsent):
                    after = views.certified(number, story, lies - {silo})
                    if after != number:
                        steps.append((place, Certify(*story, lies - {silo}), after))
        return steps

    def _certified(self, world: World) -> list[tuple[Story, Silos]]:
        """Stories with a quorum of signatures, colluders' included, and the honest survivors that
        have sent no input to them.
        """
        signers = Counter(
            story
            for views, number in zip(self._views, world, strict=True)
            for story in views.signed[number]
        )
        if self.terms.colluding >= self.quorum:  # a control may ask for so few
            signers |= Counter(dict.fromkeys(self._stories, 0))
        return [
            (
                (form, dropped),
                form.participants - dropped - self._senders(world, form) - self.colluders,
            )
            for (form, dropped), honest in signers.items()
            if honest + len(self.colluders & form.participants - dropped) >= self.quorum
        ]

    def _lies_about(self, silo: int, story: Story, unsent: Silos) -> list[Silos]:
        """Survivors whose salts are wrong in a certificate: those without an input always."""
        if not self._lies:
            return [unsent]
        form, dropped = story
        return [unsent | lies for lies in subsets(form.participants - dropped - unsent - {silo})]

    def _senders(self, world: World, form: Form) -> Silos:
        """Honest silos whose masked input the server has."""
        return frozenset(
            silo
            for silo, views, number in zip(self.honest, self._views, world, strict=True)
            if form in views.sent[number]
        )

    def worlds(self) -> Iterator[World]:
        """Every state that `explore` has reached."""
        return iter(self._came_from)

    def path_to(self, world: World) -> tuple[Step, ...]:
        """A shortest schedule that ends there."""
        steps = []
        while (origin := self._came_from[world]) is not None:
            world, step = origin
            steps.append(step)
        return tuple(reversed(steps))

    # -- what it knows

    def opened(self, world: World) -> tuple[tuple[Form, Silos, Fraction], ...]:
        """Every sum without masks: its form, its honest silos, and the noise that is left in it in
        units of the target.
        """
        return tuple(
            result
            for form in self.forms
            for result in self._learnt(
                form,
                self._senders(world, form),
                frozenset(
                    (silo, revealed.pads)
                    for silo, views, number in zip(self.honest, self._views, world, strict=True)
                    for revealed in views.revealed[number]
                    if revealed.form == form
                ),
            )
        )

    def _sums(
        self, form: Form, sent: Silos, revealed: frozenset[tuple[int, frozenset[tuple[int, int]]]]
    ) -> tuple[tuple[Form, Silos, Fraction], ...]:
        def is_open(owner: int, index: int) -> bool:
            holders = {holder for holder, pads in revealed if (owner, index) in pads}
            return owner in sent and len(holders | self.colluders) >= self.threshold

        def is_known(one: int, other: int) -> bool:
            return any(
                is_open(owner, 1 + self._layouts[form, owner].partners.index(partner))
                for owner, partner in ((one, other), (other, one))
            )

        honest = sorted(form.participants - self.colluders)
        group = {silo: {silo} for silo in honest}
        for one, other in combinations(honest, 2):
            if group[one] is not group[other] and not is_known(one, other):
                group[one] |= group[other]
                group |= dict.fromkeys(group[other], group[one])
        free = {
            frozenset(silos) for silos in group.values() if all(is_open(silo, 0) for silo in silos)
        }
        return tuple(
            (form, silos, self._noise(form, silos, is_open)) for silos in sorted(free, key=sorted)
        )

    def _noise(self, form: Form, silos: Silos, is_open) -> Fraction:  # type: ignore[no-untyped-def]
        """Variance that the server cannot subtract: v_0 and each v_l whose seed is closed."""
        honest, total = self.terms.silos - self.terms.colluding, Fraction(0)
        for silo in silos:
            first = len(self._layouts[form, silo].holders)
            total += Fraction(1, honest)
            for lost in range(1, self.terms.removable + 1):
                if not is_open(silo, first + lost - 1):
                    total += Fraction(1, honest - lost) - Fraction(1, honest - lost + 1)
        return total

    def _violation(self, found: tuple[tuple[Form, Silos, Fraction], ...]) -> str:
        """Why a silo would not have agreed to this; empty if it would."""
        least = self.terms.minimum_survivors - self.terms.colluding
        if len(found) > 1:
            return f"{len(found)} sums of one round: {[sorted(silos) for _, silos, _ in found]}"
        for _, silos, noise in found:
            if len(silos) < least:
                return f"a sum of {len(silos)} honest silos, {least} were promised"
            if noise < 1:
                return f"a sum with {noise} of the noise"
        return ""


def small_terms(most: int, *, least: int = 2) -> Iterator[Terms]:
    """Every threshold and number of colluders of small federations, with all noise removable that
    can be.
    """
    for silos in range(least, most + 1):
        for dropouts in range((silos + 1) // 2):
            for colluding in range(silos - 2 * dropouts):
                yield terms_for(
                    silos,
                    length=1,
                    dropouts=dropouts,
                    colluding=colluding,
                    noise_contributors=silos - dropouts - colluding,
                    removable=dropouts,
                )
