"""Does *your* plan leak more than it says? Canaries, membership attacks, samplers against their
law.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.audit.confidence import Counts, best_test, epsilon_lower_bound, gaussian_epsilon
    from sumus.audit.membership import audit_membership, released_of
    from sumus.audit.noise import audit_noise, usual_laws
    from sumus.audit.plan_samplers import audit_samplers, described
    from sumus.audit.plots import RocCurve, RocPoint, draw_bounds, draw_membership, draw_roc
    from sumus.audit.run import RunAudit, audit_run

__all__ = [
    "Counts",
    "RocCurve",
    "RocPoint",
    "RunAudit",
    "audit_membership",
    "audit_noise",
    "audit_run",
    "audit_samplers",
    "best_test",
    "described",
    "draw_bounds",
    "draw_membership",
    "draw_roc",
    "epsilon_lower_bound",
    "gaussian_epsilon",
    "released_of",
    "usual_laws",
]

__getattr__, __dir__ = door(
    __name__,
    confidence="Counts best_test epsilon_lower_bound gaussian_epsilon",
    membership="audit_membership released_of",
    noise="audit_noise usual_laws",
    plan_samplers="audit_samplers described",
    plots="RocCurve RocPoint draw_bounds draw_membership draw_roc",
    run="RunAudit audit_run",
)
