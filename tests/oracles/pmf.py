"""Slow, obvious probabilities of the noise laws in many digits. They share no formula with the
package.

- Skellam: inverse of its generating function e^{v(cosh s − 1)} by the trapezoid rule on a contour
through the saddle point. - Discrete Gaussian: its defining sum. - Sums of independent copies:
powers of the characteristic function, inverted on a finite circle.
"""

from __future__ import annotations

from collections.abc import Sequence

import mpmath as mp

DIGITS = 60


def skellam_log_pmf(point: int, variance: float) -> mp.mpf:
    """log P[X = k] = log (1/2π) ∫ exp(v(cosh(η + it) − 1) − k(η + it)) dt with sinh η = k/v."""
    with mp.workdps(DIGITS):
        v, k = mp.mpf(variance), mp.mpf(abs(point))
        saddle = mp.asinh(k / v)
        width = 1 / mp.sqrt(mp.hypot(k, v))  # the integrand is a bell of this width
        peak = v * (mp.cosh(saddle) - 1) - k * saddle
        if 16 * width < mp.pi:
            step = width * mp.mpf("0.35")
            angles = [step * j for j in range(-46, 47)]
        else:
            step = 2 * mp.pi / 512
            angles = [step * j for j in range(-256, 256)]
        total = sum(
            mp.re(mp.exp(v * (mp.cosh(mp.mpc(saddle, t)) - 1) - k * mp.mpc(saddle, t) - peak))
            for t in angles
        )
        return peak + mp.log(total * step / (2 * mp.pi))


def discrete_gaussian_log_pmf(point: int, scale2: float) -> mp.mpf:
    """log of exp(−k²/2σ²) / Σ_j exp(−j²/2σ²)."""
    with mp.workdps(DIGITS):
        return -(mp.mpf(point) ** 2) / (2 * mp.mpf(scale2)) - mp.log(_theta(mp.mpf(scale2)))


def discrete_gaussian_variance(scale2: float) -> mp.mpf:
    """Σ j² exp(−j²/2σ²) / Σ exp(−j²/2σ²)."""
    with mp.workdps(DIGITS):
        s2 = mp.mpf(scale2)
        return (
            2
            * sum(
                mp.mpf(j) ** 2 * mp.exp(-(mp.mpf(j) ** 2) / (2 * s2)) for j in range(1, _reach(s2))
            )
            / _theta(s2)
        )


def discrete_gaussian_sum_log_pmf(points: Sequence[int], scale2: float, count: int) -> list[mp.mpf]:
    """log P[X_1 + … + X_count = k] from the count-th power of the characteristic function, on a
    circle that cannot alias.
    """
    with mp.workdps(2 * DIGITS):
        s2 = mp.mpf(scale2)
        reach = _reach(s2)
        weights = [mp.exp(-(mp.mpf(j) ** 2) / (2 * s2)) for j in range(reach)]
        size = 2 * max(max(map(abs, points)), int(24 * mp.sqrt(s2 * count))) + 2
        theta = weights[0] + 2 * sum(weights[1:])
        powers = []
        for m in range(size):
            angle = 2 * mp.pi * m / size
            powers.append(
                (
                    (
                        weights[0]
                        + 2 * sum(w * mp.cos(j * angle) for j, w in enumerate(weights) if j)
                    )
                    / theta
                )
                ** count
            )
        return [
            mp.log(sum(p * mp.cos(2 * mp.pi * m * k / size) for m, p in enumerate(powers)) / size)
            for k in points
        ]


def _reach(scale2: mp.mpf) -> int:
    return int(mp.ceil(mp.sqrt(2 * scale2 * 320))) + 2


def _theta(scale2: mp.mpf) -> mp.mpf:
    """Σ_j exp(−j²/2σ²): the sum itself where it is short, else its Poisson transform (one identity
    of Jacobi).
    """
    if scale2 < 10**4:
        return 1 + 2 * sum(
            mp.exp(-(mp.mpf(j) ** 2) / (2 * scale2)) for j in range(1, _reach(scale2))
        )
    return mp.sqrt(2 * mp.pi * scale2)
