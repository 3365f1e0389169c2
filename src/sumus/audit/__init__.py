"""Does *your* plan leak more than it says? Canaries, membership attacks, samplers against their
law.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.audit.confidence import (
        Counts as Counts,
        best_test as best_test,
        epsilon_lower_bound as epsilon_lower_bound,
        gaussian_epsilon as gaussian_epsilon,
    )
    from sumus.audit.membership import (
        audit_membership as audit_membership,
        released_of as released_of,
    )
    from sumus.audit.noise import audit_noise as audit_noise, usual_laws as usual_laws
    from sumus.audit.plan_samplers import audit_samplers as audit_samplers, described as described
    from sumus.audit.plots import (
        RocCurve as RocCurve,
        RocPoint as RocPoint,
        draw_bounds as draw_bounds,
        draw_membership as draw_membership,
        draw_roc as draw_roc,
    )
    from sumus.audit.run import RunAudit as RunAudit, audit_run as audit_run

__getattr__, __dir__, __all__ = door(
    __name__,
    confidence="Counts best_test epsilon_lower_bound gaussian_epsilon",
    membership="audit_membership released_of",
    noise="audit_noise usual_laws",
    plan_samplers="audit_samplers described",
    plots="RocCurve RocPoint draw_bounds draw_membership draw_roc",
    run="RunAudit audit_run",
)
