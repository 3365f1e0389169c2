"""Heikkilä 2025 reproduced: experiments, the attack on its theorem 4.5, its aggregators.

Mikko A. Heikkilä, "On Using Secure Aggregation in Differentially Private Federated Learning with
Multiple Local Steps", Transactions on Machine Learning Research, 2025.
Nothing imports this room; the command line loads `commands` by its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.paper.aggregators.comparison import (
        AGGREGATORS as AGGREGATORS,
        compare_aggregators as compare_aggregators,
        sum_with as sum_with,
    )
    from sumus.paper.experiments.comparison import PaperLine as PaperLine
    from sumus.paper.experiments.reproduce import (
        Options as Options,
        Reproduction as Reproduction,
        Watch as Watch,
        reproduce as reproduce,
        reproduce_averaging as reproduce_averaging,
        reproduce_table1 as reproduce_table1,
    )
    from sumus.paper.theorem.regression import REGRESSIONS as REGRESSIONS
    from sumus.paper.theorem.theorem import (
        TheoremAudit as TheoremAudit,
        audit_theorem as audit_theorem,
    )
    from sumus.paper.theorem.theorem_plot import draw_theorem as draw_theorem

__getattr__, __dir__, __all__ = door(
    __name__,
    aggregators__comparison="AGGREGATORS compare_aggregators sum_with",
    experiments__comparison="PaperLine",
    experiments__reproduce="Options Reproduction Watch reproduce reproduce_averaging reproduce_table1",
    theorem__regression="REGRESSIONS",
    theorem__theorem="TheoremAudit audit_theorem",
    theorem__theorem_plot="draw_theorem",
)
