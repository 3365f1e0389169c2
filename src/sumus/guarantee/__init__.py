"""What is drawn and what is proved: `NoiseDesign` and `Account`.

`design` turns a resolved plan into the public numbers of its noise, `claims` holds every analysis,
`account` certifies and prints ε, `exactness` pays for samplers and rounding, `metrics` and `counts`
protect test records, `compare` sets algorithms side by side, `joint` composes runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.guarantee.accounts import (
        Account,
        account,
        account_of,
        calibrate_design,
        calibrated,
        certify,
        search_epsilon,
    )
    from sumus.guarantee.claims import release_of
    from sumus.guarantee.comparison import AlgorithmCost, Comparison, compare
    from sumus.guarantee.counts import (
        METRIC_COORDINATES,
        clamp_of,
        count_noise,
        counts_of,
        decoded_counts,
        padded,
        sum_length,
    )
    from sumus.guarantee.delta import refuse_large_delta
    from sumus.guarantee.design import (
        LARGEST_WEIGHT_NORM,
        NoiseDesign,
        SiloDesign,
        convex_bounds,
        noise_design,
    )
    from sumus.guarantee.joint import PastRun, joint_epsilon
    from sumus.guarantee.live import LiveEpsilon
    from sumus.guarantee.metrics import measurements_until, metrics_epsilon, metrics_spent
    from sumus.guarantee.notebook import as_table, labelled
    from sumus.guarantee.words import records_in_words

__all__ = [
    "LARGEST_WEIGHT_NORM",
    "METRIC_COORDINATES",
    "Account",
    "AlgorithmCost",
    "Comparison",
    "LiveEpsilon",
    "NoiseDesign",
    "PastRun",
    "SiloDesign",
    "account",
    "account_of",
    "as_table",
    "calibrate_design",
    "calibrated",
    "certify",
    "clamp_of",
    "compare",
    "convex_bounds",
    "count_noise",
    "counts_of",
    "decoded_counts",
    "joint_epsilon",
    "labelled",
    "measurements_until",
    "metrics_epsilon",
    "metrics_spent",
    "noise_design",
    "padded",
    "records_in_words",
    "refuse_large_delta",
    "release_of",
    "search_epsilon",
    "sum_length",
]

__getattr__, __dir__ = door(
    __name__,
    accounts="Account account account_of calibrate_design calibrated certify search_epsilon",
    claims="release_of",
    comparison="AlgorithmCost Comparison compare",
    counts="METRIC_COORDINATES clamp_of count_noise counts_of decoded_counts padded sum_length",
    delta="refuse_large_delta",
    design="LARGEST_WEIGHT_NORM NoiseDesign SiloDesign convex_bounds noise_design",
    joint="PastRun joint_epsilon",
    live="LiveEpsilon",
    metrics="measurements_until metrics_epsilon metrics_spent",
    notebook="as_table labelled",
    words="records_in_words",
)
