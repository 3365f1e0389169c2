"""Whom a guarantee counts on, in words; the paper is Heikkilä 2025."""

from __future__ import annotations

from sumus.guarantee.algorithms import STATEMENTS, counts_on_others
from sumus.plan import TrainingPlan

__all__ = ["collusion_caution", "trust_of"]


def trust_of(plan: TrainingPlan, analysis: str) -> str:
    """Whose noise and whose honesty an analysis needs; "counts" is that of secure metrics."""
    if analysis in STATEMENTS and not counts_on_others(analysis):
        return "no other silo: the silo's own noise alone protects its records"
    kept = f"{plan.noise_contributors} of {plan.least_invited} silos present and honest"
    if plan.colluding and plan.protects_persons and plan.privacy.silos_per_person > 1:
        kept += "; no row of the person in a silo that colludes"
    if plan.aggregation.protocol == "trusted":
        return f"{kept}; a trusted aggregator (simulation of the paper's ideal)"
    return f"{kept}; server honest-but-curious"


def collusion_caution(plan: TrainingPlan) -> str | None:
    """What to say where tolerated drop-outs leave no room for a silo that shares what it knows;
    None where they do.

    Of two silos there never is room, and the account's line about a participant says what that
    means.
    """
    federation = plan.federation
    silos = federation.silos if federation.selection == "all" else federation.selected
    if plan.colluding or silos is None or silos < 3 or silos > 2 * federation.dropouts + 1:
        return None
    most = (silos - 2) // 2
    rule = (
        f"federation.dropouts = {federation.dropouts} of {silos} silos leaves no room for one that "
        "shares what it knows"
    )
    return f"{rule} (federation.colluding = 0); with at most {most} there is"
