"""Privacy losses on a grid: composed by Fourier transforms, mixed, and read as ε or δ.

For worlds P and Q the privacy loss is log(P(o)/Q(o)) of an output o ~ P, and

    δ(ε) = P[loss = ∞] + Σ_{loss > ε} (1 − e^{ε − loss})·P[loss].

Guarantee: losses are only moved up here, tails that are cut off count as infinite losses, and what
    transforms in float64 lose is the caller's to add (`loss_distribution`); so every δ is an upper
    bound where the given masses dominate.

Reference: Koskela, Jälkö, Honkela 2020 (arXiv:1906.03049), composition by Fourier transforms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from scipy import fft

from sumus.noise import Values

__all__ = ["GriddedLoss", "GriddedLosses"]

_CUT_OFF = 1e-15  # of a composition's mass, at most, at both ends together
_CHERNOFF = 20  # orders of the bound on tails, on each side
_LARGEST_EXPONENT = 700.0
_SMALL = 1000  # products of masses that are summed one by one


@final
@dataclass(frozen=True, eq=False)
class GriddedLoss:
    """P[loss = (lowest + i)·width] = masses[i], P[loss = ∞] = infinite.

    Args:
        width: of a bucket.
        lowest: the first loss, in buckets.
        masses: of all losses, without gaps.
        infinite: mass of what one world excludes.
    """

    width: float
    lowest: int
    masses: Values
    infinite: float

    def repeated(self, times: int) -> GriddedLoss:
        """The loss of `times` independent outputs."""
        if times == 1 and len(self.masses) <= _SMALL:
            return self
        if times * math.log(len(self.masses)) <= math.log(_SMALL):
            return self.repeated(times - 1).composed(self)
        first, last = _reach(self.masses, times)
        length = last - first + 1
        padded = fft.next_fast_len(max(length, len(self.masses)))
        whole = np.real(fft.ifft(_to_the_power(fft.fft(self.masses, padded), times)))
        # a transform wraps around: take the part where the mass is
        return GriddedLoss(
            self.width,
            self.lowest * times + first,
            np.roll(whole, -first)[:length],
            _CUT_OFF - math.expm1(times * math.log1p(-self.infinite)),
        )

    def composed(self, other: GriddedLoss) -> GriddedLoss:
        """The loss of an output of each."""
        first, masses, beyond = _without_tails(_convolved(self.masses, other.masses))
        both = self.infinite + other.infinite - self.infinite * other.infinite
        return GriddedLoss(self.width, self.lowest + other.lowest + first, masses, both + beyond)

    def mixed(self, other: GriddedLoss, weight: float) -> GriddedLoss:
        """The loss where a coin that both worlds share chose this one, with probability `weight`, or
        the other.
        """
        if weight in (0.0, 1.0):
            return self if weight else other
        lowest = min(self.lowest, other.lowest)
        end = max(self.lowest + len(self.masses), other.lowest + len(other.masses))
        masses = np.zeros(end - lowest)
        for loss, share in ((self, weight), (other, 1.0 - weight)):
            begin = loss.lowest - lowest
            masses[begin : begin + len(loss.masses)] += share * loss.masses
        infinite = self.infinite * weight + other.infinite * (1.0 - weight)
        return GriddedLoss(self.width, lowest, masses, infinite)

    def epsilon(self, delta: float) -> float:
        """The least ε ≥ 0 with δ(ε) ≤ delta; infinite where there is none.

        With m(x) = P[loss > x] and n(x) = Σ_{loss > x} e^{−loss}·P[loss] it is log((m − δ)/n), summed
        from the top until it lies above the next loss.
        """
        if self.infinite > delta:
            return math.inf
        top = (self.lowest + len(self.masses) - 1) * self.width
        losses = np.cumsum(np.append(top, np.full(len(self.masses) - 1, -self.width)))
        masses = self.masses[::-1]
        above = np.cumsum(np.append(self.infinite, masses))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            about = np.append(0.0, np.cumsum(np.exp(-losses) * masses))
            reached = np.log((above[:-1] - delta) / about[:-1]) >= losses
        reached &= (above[:-1] > delta) & (about[:-1] > 0.0)
        end = int(np.argmax(reached)) if reached.any() else len(losses)
        # again in the arithmetic of `math`, which is the same on every processor
        summed = min(end + 1, len(losses))
        factors = [math.exp(-loss) for loss in losses[:summed].tolist()]
        below = np.append(0.0, np.cumsum(np.array(factors) * masses[:summed]))
        first = int(np.argmax(above[1:] >= delta)) if (above[1:] >= delta).any() else summed
        if first < summed and below[first + 1] == 0.0:
            return max(0.0, float(losses[first]))  # e^{−loss} is zero in float64
        for place in range(max(end - 1, 0), summed):
            mass, tilted = float(above[place]), float(below[place])
            if mass > delta and tilted > 0.0 and math.log((mass - delta) / tilted) >= losses[place]:
                end = place
                break
        else:
            end = summed
        mass, tilted = float(above[end]), float(below[end])
        return 0.0 if mass <= tilted + delta else math.log((mass - delta) / tilted)

    def deltas(self, epsilons: Values) -> Values:
        """δ at every ε, ascending."""
        losses = (np.arange(len(self.masses)) + self.lowest) * self.width
        masses = self.masses[::-1]
        above = np.cumsum(np.append(self.infinite, masses))
        with np.errstate(over="ignore"):
            below = np.append(0.0, np.cumsum(masses * np.exp(-losses[::-1])))
        counted = len(losses) - np.searchsorted(losses, epsilons, side="right")
        # where e^ε is beyond float64 nothing is taken off
        factors = np.where(
            epsilons < _LARGEST_EXPONENT, np.exp(np.minimum(epsilons, _LARGEST_EXPONENT)), 0.0
        )
        return np.asarray(above[counted] - factors * below[counted])


@final
@dataclass(frozen=True, eq=False)
class GriddedLosses:
    """The losses of a mechanism for a unit that is removed and for one that is added.

    Args:
        removed: P with the unit, Q without it.
        added: P without the unit, Q with it; the same object where both are the same.
    """

    removed: GriddedLoss
    added: GriddedLoss

    def repeated(self, times: int) -> GriddedLosses:
        """Of `times` independent outputs."""
        removed = self.removed.repeated(times)
        alike = self.added is self.removed
        return GriddedLosses(removed, removed if alike else self.added.repeated(times))

    def composed(self, other: GriddedLosses) -> GriddedLosses:
        """Of an output of each."""
        removed = self.removed.composed(other.removed)
        alike = self.added is self.removed and other.added is other.removed
        return GriddedLosses(removed, removed if alike else self.added.composed(other.added))

    def mixed(self, other: GriddedLosses, weight: float) -> GriddedLosses:
        """Of a shared coin's choice."""
        removed = self.removed.mixed(other.removed, weight)
        alike = self.added is self.removed and other.added is other.removed
        return GriddedLosses(removed, removed if alike else self.added.mixed(other.added, weight))

    def epsilon(self, delta: float) -> float:
        """ε at δ, whichever way the worlds differ."""
        removed = self.removed.epsilon(delta)
        return removed if self.added is self.removed else max(removed, self.added.epsilon(delta))

    def deltas(self, epsilons: Values) -> Values:
        """δ at every ε, ascending, whichever way the worlds differ."""
        removed = self.removed.deltas(epsilons)
        if self.added is self.removed:
            return removed
        return np.maximum(removed, self.added.deltas(epsilons))


def _reach(masses: Values, times: int) -> tuple[int, int]:
    """The first and the last sum of `times` places outside of which at most `_CUT_OFF` lies, by
    Chernoff's bound: P[sum ≥ b] ≤ E[e^{tX}]^times·e^{−tb}.
    """
    first, last = 0, (len(masses) - 1) * times
    factor = np.exp(np.arange(len(masses)) / len(masses))
    up, down = masses, masses
    for order in range(1, _CHERNOFF + 1):
        up, down = up * factor, down / factor
        rate, slack = order / len(masses), math.log(2.0 / _CUT_OFF)
        above, below = float(up.sum()), float(down.sum())
        if 0.0 < above < math.inf:
            last = min(last, math.ceil((times * math.log(above) + slack) / rate))
        if 0.0 < below < math.inf:
            first = max(first, math.floor((times * math.log(below) + slack) / -rate))
    return first, last


def _to_the_power(spectrum: npt.NDArray[np.complex128], times: int) -> npt.NDArray[np.complex128]:
    """The spectrum of `times` convolutions; its second half mirrors the first."""
    half = spectrum[: len(spectrum) // 2 + 1] ** times
    mirrored = half[1 : (len(spectrum) + 1) // 2][::-1]
    return np.concatenate([half, np.conj(mirrored)])


def _convolved(one: Values, other: Values) -> Values:
    length = len(one) + len(other) - 1
    if len(one) * len(other) <= _SMALL or min(len(one), len(other)) == 1:
        summed = np.zeros(length)
        for place, mass in enumerate(one):
            summed[place : place + len(other)] += mass * other
        return summed
    padded = fft.next_fast_len(length, True)
    spectrum = fft.rfft(one, padded) * fft.rfft(other, padded)
    return np.asarray(fft.irfft(spectrum, padded)[:length])


def _without_tails(masses: Values) -> tuple[int, Values, float]:
    """How many of the lowest losses are moved up to the next, the masses that are left, and what
    becomes infinite of the highest; each tail holds at most half of `_CUT_OFF`.
    """
    left = _light(masses)
    right = max(len(masses) - _light(masses[::-1]), left + 1)
    kept = masses[left:right].copy()
    kept[0] += np.sum(masses[:left])
    return left, kept, float(np.sum(masses[right:]))


def _light(masses: Values) -> int:
    """How many masses from the first on add up to no more than half of `_CUT_OFF`."""
    heavy = np.cumsum(masses) > _CUT_OFF / 2.0
    return int(np.argmax(heavy)) if heavy.any() else len(masses)
