"""What a silo agrees to with a plan, for its people to read before they do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from sumus.cli.options import guarantee_text

if TYPE_CHECKING:
    from sumus.books import Policy
    from sumus.parties import Site
    from sumus.plan import TrainingPlan

__all__ = ["show_plan"]


def show_plan(
    console: Console,
    plan: TrainingPlan,
    *,
    silo: str,
    members: Sequence[str],
    where: str,
    site: Site,
    rules: Policy,
) -> TrainingPlan:
    """Show a plan as this silo computes it, and return it as it runs; raises if it must not.

    Args:
        members: the silos of the roster; `where`: that it stands in, in words.
    """
    from sumus.cli.keys import require_silos_of
    from sumus.data import left_out_lines
    from sumus.parties import agree_on, own_releases

    training = plan.training
    console.print(f"model, features     {training.model}, {training.features}", markup=False)
    rules.check_imports(plan)
    agreement = agree_on(plan)
    console.print(f"plan hash           {agreement.plan.hash}", soft_wrap=True)
    console.print(guarantee_text(agreement.account))
    require_silos_of([each.name for each in agreement.design.silos], named=members, where=where)
    own_releases(agreement, site.ledger, rules, silo=silo)
    loaded = site.load(agreement.plan, silo)
    records = loaded.silos[0]
    console.print(
        f"  {records.counted}      {records.train.units} for training, {records.test.units} for "
        "tests, all stay here"
    )
    for line in left_out_lines(loaded):
        console.print(f"  left out     {line}; nobody else is told", markup=False)
    for line in loaded.remarks:
        console.print(f"  notice       {line}; nobody else is told", markup=False)
    return agreement.plan
