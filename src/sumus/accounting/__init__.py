"""What is composed becomes ε: releases, accountants, calibration. Knows no plan and no algorithm.

A release is described apart from who computes with it (`release`, compare `DpEvent` of
dp_accounting); `accountant` computes ε of one, `calibration` the least noise for a target,
`calculator` answers `sumus.epsilon` and `sumus.calibrate`, `search` prices hyper-parameter
searches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.accounting.accountant import (
        ACCOUNTANTS as ACCOUNTANTS,
        epsilon_of as epsilon_of,
        renyi_values as renyi_values,
        tightest as tightest,
    )
    from sumus.accounting.averaging import AveragedModels as AveragedModels, average as average
    from sumus.accounting.calculator import calibrate as calibrate, epsilon as epsilon
    from sumus.accounting.calibration import least_noise as least_noise
    from sumus.accounting.dominating import TAIL_LOG_MASS as TAIL_LOG_MASS, unit_shift as unit_shift
    from sumus.accounting.fused_steps import (
        even_groups as even_groups,
        joining_rate as joining_rate,
    )
    from sumus.accounting.loss_distribution import epsilon_gaussian as epsilon_gaussian
    from sumus.accounting.poisson_binomial import (
        LARGEST_COINS as LARGEST_COINS,
        poisson_binomial_curve as poisson_binomial_curve,
    )
    from sumus.accounting.release import (
        Queries as Queries,
        Release as Release,
        noisy_queries as noisy_queries,
    )
    from sumus.accounting.renyi import ORDERS as ORDERS
    from sumus.accounting.search import epsilon_of_search as epsilon_of_search

__getattr__, __dir__, __all__ = door(
    __name__,
    accountant="ACCOUNTANTS epsilon_of renyi_values tightest",
    averaging="AveragedModels average",
    calculator="calibrate epsilon",
    calibration="least_noise",
    dominating="TAIL_LOG_MASS unit_shift",
    fused_steps="even_groups joining_rate",
    loss_distribution="epsilon_gaussian",
    poisson_binomial="LARGEST_COINS poisson_binomial_curve",
    release="Queries Release noisy_queries",
    renyi="ORDERS",
    search="epsilon_of_search",
)
