"""The picture of `sumus audit theorem`: the ROC curves of both attacks with every model, and the
proved analyses beside them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from scipy.stats import beta

from sumus.audit import RocCurve, RocPoint, draw_roc
from sumus.paper.theorem.attacks import forgetting_attack, threshold_attack
from sumus.paper.theorem.convex_attack import ConvexAttack
from sumus.paper.theorem.measure import Maker, count_hits
from sumus.paper.theorem.regression import REGRESSIONS
from sumus.paper.theorem.theorem import TheoremAudit
from sumus.randomness import RandomSource

__all__ = ["draw_theorem"]

_THRESHOLDS = (-1.0, 0.0, 0.8, 1.6, 2.4, 3.1)
_STAGGER = 0.12  # from curve to curve, so that their points do not cover each other
_RISK = 0.001  # of every bar
_RED, _ORANGE, _BLUE, _GREEN, _VIOLET, _PINK = (
    "#b91c1c",
    "#c2410c",
    "#1d4ed8",
    "#15803d",
    "#7c3aed",
    "#be185d",
)


def draw_theorem(
    folder: Path, audit: TheoremAudit, *, trials: int = 500_000, source: RandomSource | None = None
) -> list[Path]:
    """ROC curves of the recursion, `trials` with and as many without the record for every point."""
    source = source or RandomSource()
    designs, first = audit.designs, REGRESSIONS[audit.models[0]]
    wanted: list[tuple[str, str, str, Maker]] = [
        (
            f"per-step claim, attack {letter}, {model}",
            colour,
            marker,
            partial(make, designs["per-step"], REGRESSIONS[model]),
        )
        for make, letter, colour in (
            (threshold_attack, "A", _RED),
            (forgetting_attack, "B", _ORANGE),
        )
        for model, marker in zip(audit.models, "os", strict=False)
    ]
    claimed = len(wanted)
    wanted += [
        ("last-step, attack A", _PINK, "p", partial(threshold_attack, designs["last-step"], first)),
        ("local, attack A", _BLUE, "^", partial(threshold_attack, designs["local"], first)),
        (
            "split-noise, attack A",
            _GREEN,
            "D",
            partial(threshold_attack, designs["split-noise"], first),
        ),
        (
            "convex-pass, the same records",
            _VIOLET,
            "v",
            partial(ConvexAttack, designs["convex-pass"]),
        ),
    ]
    curves = [
        _curve(each, _STAGGER * (number % 4), trials, source) for number, each in enumerate(wanted)
    ]
    return draw_roc(
        folder,
        title="Was the record there? What was claimed, what is measured",
        subtitle=f"{audit.silos} silos, {audit.local_steps} local steps, one released sum. "
        f"Points: {2 * trials:,} trials each, bars 99.9 %. Lines: exact.",
        epsilon=audit.claimed_epsilon,
        delta=audit.delta,
        curves=curves[:claimed],
        others=curves[claimed:],
    )


def _curve(
    wanted: tuple[str, str, str, Maker], shift: float, trials: int, source: RandomSource
) -> RocCurve:
    name, colour, marker, make = wanted
    attacks = [make(threshold + shift) for threshold in _THRESHOLDS]
    # a test on the sum: one set of trials serves all
    if all(attack.first_weight == attacks[0].first_weight for attack in attacks):
        true_hits, false_hits = (
            count_hits(attacks[0], trials, source, with_record=inside, tests=attacks)
            for inside in (True, False)
        )
    else:
        true_hits, false_hits = (
            [
                hits
                for attack in attacks
                for hits in count_hits(attack, trials, source, with_record=inside)
            ]
            for inside in (True, False)
        )
    points = tuple(_point(*hits, trials) for hits in zip(true_hits, false_hits, strict=True))
    return RocCurve(name, colour, marker, attacks[0].separation, points)


def _point(true_hits: int, false_hits: int, trials: int) -> RocPoint:
    return RocPoint(
        false_hits / trials,
        _limits(false_hits, trials),
        true_hits / trials,
        _limits(true_hits, trials),
    )


def _limits(hits: int, trials: int) -> tuple[float, float]:
    """Clopper–Pearson."""
    low = float(beta.ppf(_RISK / 2.0, hits, trials - hits + 1)) if hits else 0.0
    return low, float(
        beta.ppf(1.0 - _RISK / 2.0, hits + 1, trials - hits)
    ) if hits < trials else 1.0
