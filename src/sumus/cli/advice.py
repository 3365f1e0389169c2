"""`sumus plan --advise`: which algorithm suits a plan, and the words that take it up."""

from __future__ import annotations

import dataclasses

from sumus.cli.options import console, print_json
from sumus.data import public_facts
from sumus.drafting import advise
from sumus.plan import TrainingPlan

__all__ = ["show_advice"]


def show_advice(plan: TrainingPlan, skew: str | None, *, path: str, as_json: bool) -> None:
    """Say which algorithm the rules name, why, and how to take it up.

    Args:
        skew: `--skew` of the command.
        path: of the plan's file, for the command that is shown.
    """
    advice = advise(plan, public_facts(plan), skew)
    if as_json:
        print_json(dataclasses.asdict(advice) | {"options": advice.options})
        return
    screen = console()
    has = ", which the plan has" if advice.taken else ""
    screen.print(f"[bold]{advice.algorithm}[/bold]{has}: {advice.reason}.", soft_wrap=True)
    screen.print(f"measured in {advice.measured}", soft_wrap=True)
    if advice.settings:
        screen.print(f"sumus plan {path} {advice.options}", soft_wrap=True, markup=False)
