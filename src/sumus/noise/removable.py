"""Noise that is drawn for the worst drop-out and taken back for the actual one.

Noise shares sized for the fewest survivors cost a federation without drop-outs a factor N/(N − D)
in variance. Instead each silo draws D + 1 independent components, component 0 kept for good and
components 1 … D each from a secret seed of its own, with variances

    v_0 = V / (N − c),      v_l = V / (N − c − l) − V / (N − c − l + 1)      (l = 1 … D).

If j ≤ D silos are missing from the sum, the seeds of components l > j are opened and those
components subtracted.

Guarantee: with j missing, the noise of the honest silos in the sum has variance at least V, with
    equality if no colluder is among the missing. Proof: the components 0 … j of one silo telescope
    to V / (N − c − j). At least N − j − c honest silos are in the sum and each keeps exactly those,
    so their total is at least (N − c − j) · V / (N − c − j) = V. ∎ It holds for any law whose
    variances add under convolution within the family (Gaussian, Skellam).

What could go wrong, and why it does not:
- A silo vanishes after its vector was counted: its components are in the sum and stay there; j
  counts only vectors that are missing, and the survivor set is signed before any seed is opened. If
  its unneeded seeds cannot be recovered, noise stays too high.
- Colluders know their own seeds of *all* components: their noise was never counted (c above).
- A server declares more silos dropped than are: j grows, fewer components are opened, and the
  missing vectors stay masked.
- Two survivor sets in one round would open different components: excluded by the quorum of
  signatures.

Reference: Jiang, Wang, Chen 2024, "Dordis" (arXiv:2209.12528), section 4 (there without colluders
    in the formula).
"""

from __future__ import annotations

from fractions import Fraction

from sumus.errors import PlanError

__all__ = ["component_shares"]


def component_shares(*, silos: int, dropouts: int, colluding: int = 0) -> tuple[Fraction, ...]:
    """v_0/V … v_D/V: each component's variance as an exact fraction of the target variance V of the
    sum.

    Args:
        silos: N, silos that the plan counts.
        dropouts: D, silos that may be missing.
        colluding: c, silos whose noise is not counted.
    """
    _require_contributors(silos=silos, dropouts=dropouts, colluding=colluding)
    honest = silos - colluding
    first = Fraction(1, honest)
    return (
        first,
        *(
            Fraction(1, honest - lost) - Fraction(1, honest - lost + 1)
            for lost in range(1, dropouts + 1)
        ),
    )


def _require_contributors(*, silos: int, dropouts: int, colluding: int) -> None:
    """Somebody honest has to be left."""
    if silos < 1 or dropouts < 0 or colluding < 0 or silos - dropouts - colluding < 1:
        raise PlanError(
            "dropouts",
            dropouts,
            f"must leave at least one honest silo (silos = {silos}, colluding = {colluding})",
            "Tolerate fewer drop-outs or colluders.",
        )
