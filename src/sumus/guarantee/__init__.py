"""What is drawn and what is proved: `NoiseDesign` and `Account`.

`algorithms` says what every algorithm draws and what is proved for it, `design` turns a resolved
plan into the public numbers of its noise, `calibrate` finds the least noise for a target,
`accounts` certifies and prints ε, `exactness` pays for samplers and rounding, `metrics` and
`counts` protect test records, `comparison` sets algorithms side by side, `joint` composes runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.guarantee.accounts import (
        Account as Account,
        account as account,
        account_of as account_of,
        certify as certify,
        search_epsilon as search_epsilon,
    )
    from sumus.guarantee.algorithms import (
        ALGORITHMS as ALGORITHMS,
        STATEMENTS as STATEMENTS,
        release_of as release_of,
    )
    from sumus.guarantee.algorithms.convex_pass import (
        LARGEST_WEIGHT_NORM as LARGEST_WEIGHT_NORM,
        convex_bounds as convex_bounds,
    )
    from sumus.guarantee.algorithms.newton import (
        NewtonParts as NewtonParts,
        newton_parts as newton_parts,
    )
    from sumus.guarantee.algorithms.normal_equations import centred_bounds as centred_bounds
    from sumus.guarantee.algorithms.tangent_pass import (
        TangentBounds as TangentBounds,
        tangent_bounds as tangent_bounds,
    )
    from sumus.guarantee.calibrate import calibrated as calibrated
    from sumus.guarantee.comparison import (
        AlgorithmCost as AlgorithmCost,
        Comparison as Comparison,
        compare as compare,
    )
    from sumus.guarantee.counts import (
        clamp_of as clamp_of,
        count_noise as count_noise,
        decoded_counts as decoded_counts,
        padded as padded,
        sum_length as sum_length,
    )
    from sumus.guarantee.delta import refuse_large_delta as refuse_large_delta
    from sumus.guarantee.design import NoiseDesign as NoiseDesign
    from sumus.guarantee.gate import NormGate as NormGate
    from sumus.guarantee.joint import PastRun as PastRun, joint_epsilon as joint_epsilon
    from sumus.guarantee.layout import SiloDesign as SiloDesign
    from sumus.guarantee.live import LiveEpsilon as LiveEpsilon
    from sumus.guarantee.meaning import Meaning as Meaning
    from sumus.guarantee.mechanisms import draws_are_exact as draws_are_exact
    from sumus.guarantee.metrics import (
        measurements_until as measurements_until,
        metrics_epsilon as metrics_epsilon,
        metrics_spent as metrics_spent,
    )
    from sumus.guarantee.notebook import as_table as as_table, labelled as labelled
    from sumus.guarantee.words import (
        against_participant as against_participant,
        records_in_words as records_in_words,
    )

__getattr__, __dir__, __all__ = door(
    __name__,
    accounts="Account account account_of certify search_epsilon",
    algorithms="ALGORITHMS STATEMENTS release_of",
    algorithms__convex_pass="LARGEST_WEIGHT_NORM convex_bounds",  # noqa: S106 - no password
    algorithms__newton="NewtonParts newton_parts",
    algorithms__normal_equations="centred_bounds",
    algorithms__tangent_pass="TangentBounds tangent_bounds",  # noqa: S106 - no password
    calibrate="calibrated",
    comparison="AlgorithmCost Comparison compare",
    counts="clamp_of count_noise decoded_counts padded sum_length",
    delta="refuse_large_delta",
    design="NoiseDesign",
    gate="NormGate",
    joint="PastRun joint_epsilon",
    layout="SiloDesign",
    live="LiveEpsilon",
    meaning="Meaning",
    mechanisms="draws_are_exact",
    metrics="measurements_until metrics_epsilon metrics_spent",
    notebook="as_table labelled",
    words="against_participant records_in_words",
)
