"""Every public number: `TrainingPlan` as it is written, resolved against public facts.

`plan` is the TOML file as one frozen value with a canonical hash, `sections` its keys with a rule
each, `checks` the rules that join several keys, `algorithms` what every algorithm knows and refuses,
`facts` what everybody may know about the records, `resolved` the plan with every number filled in
from them, `sizes` are shapes and numbers of parameters, `cells` what a description counts,
`moments` how second moments lie in a sum, `schedules` what changes from round to round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.plan.algorithms import RULES as RULES, AlgorithmRules as AlgorithmRules
    from sumus.plan.cells import (
        ColumnCells as ColumnCells,
        cells_of as cells_of,
        described_labels as described_labels,
        with_columns as with_columns,
    )
    from sumus.plan.facts import PublicFacts as PublicFacts
    from sumus.plan.moments import MomentShape as MomentShape
    from sumus.plan.plan import (
        DEFAULT_PLAN as DEFAULT_PLAN,
        DEFAULT_ROWS_PER_PERSON as DEFAULT_ROWS_PER_PERSON,
        UNNAMED as UNNAMED,
        DataPlan as DataPlan,
        PrivacyPlan as PrivacyPlan,
        SiloPlan as SiloPlan,
        TrainingPlan as TrainingPlan,
    )
    from sumus.plan.resolved import (
        DEFAULT_EPSILON as DEFAULT_EPSILON,
        ResolvedPlan as ResolvedPlan,
        ResolvedSilo as ResolvedSilo,
        feature_norm_of as feature_norm_of,
        resolve as resolve,
    )
    from sumus.plan.schedules import (
        has_schedule as has_schedule,
        noise_ratios as noise_ratios,
        plan_of_round as plan_of_round,
        plans_of_rates as plans_of_rates,
        rate_factor as rate_factor,
    )
    from sumus.plan.sections import ENCODINGS as ENCODINGS, PLAN_START as PLAN_START
    from sumus.plan.sizes import (
        CNN_CONVOLUTIONS as CNN_CONVOLUTIONS,
        CNN_HIDDEN as CNN_HIDDEN,
        LINEAR_MODELS as LINEAR_MODELS,
        MODELS as MODELS,
        RANDOM_FILTERS as RANDOM_FILTERS,
        RANDOM_WIDTH as RANDOM_WIDTH,
        WHITENED_FEATURES as WHITENED_FEATURES,
        cnn_flat_features as cnn_flat_features,
        feature_shape as feature_shape,
        float_sum_terms as float_sum_terms,
    )

__getattr__, __dir__, __all__ = door(
    __name__,
    algorithms="RULES AlgorithmRules",
    cells="ColumnCells cells_of described_labels with_columns",
    facts="PublicFacts",
    moments="MomentShape",
    plan="DEFAULT_PLAN DEFAULT_ROWS_PER_PERSON UNNAMED DataPlan PrivacyPlan SiloPlan TrainingPlan",
    resolved="DEFAULT_EPSILON ResolvedPlan ResolvedSilo feature_norm_of resolve",
    schedules="has_schedule noise_ratios plan_of_round plans_of_rates rate_factor",
    sections="ENCODINGS PLAN_START",
    sizes=(
        "CNN_CONVOLUTIONS CNN_HIDDEN LINEAR_MODELS MODELS RANDOM_FILTERS RANDOM_WIDTH "
        "WHITENED_FEATURES cnn_flat_features feature_shape float_sum_terms"
    ),
)
