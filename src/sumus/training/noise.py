"""Noise for the worst drop-out, taken back for the actual one (`noise.removable`).

A silo's share is drawn in components: the first from its own secret bits, the others from secret
seeds that the protocol can open. Once the survivor set is signed, the seeds of the components that
turned out not to be needed are revealed, and whoever decodes the sum subtracts them. What stays has
exactly the accounted variance (sumus.noise.removable).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from sumus.errors import LocalProtocolError
from sumus.guarantee import NoiseDesign, SiloDesign
from sumus.noise import lift, to_ring
from sumus.randomness import RandomSource

__all__ = ["draw_noise", "lifted_sum"]


def draw_noise(
    design: NoiseDesign, silo: SiloDesign, *, source: RandomSource, seeds: Sequence[bytes] = ()
) -> npt.NDArray[np.int64] | npt.NDArray[np.float64]:
    """The noise of one query of one silo, over all d coordinates of the sum.

    Guarantee: has the law that `design.drawn_by(silo)` declares; the part that depends on `seeds`
        is removable, the rest is not.
    """
    dimension = design.resolved.coordinates
    if not seeds:
        return design.drawn_by(silo).sample(dimension, source)
    components = design.removable_components
    if len(seeds) != len(components) - 1:
        raise LocalProtocolError(
            f"{len(components) - 1} removable seeds are planned, the round has {len(seeds)}. "
            "Compare the plans."
        )
    noise = components[0].sample(dimension, source)
    for component, seed in zip(components[1:], seeds, strict=True):
        noise = noise + component.sample(dimension, RandomSource.from_key(seed))
    return noise


def lifted_sum(
    design: NoiseDesign,
    total: npt.NDArray[np.unsignedinteger],
    removed_seeds: Mapping[int, Mapping[int, bytes]],
) -> npt.NDArray[np.int64]:
    """The sum as centred integers, less every noise component whose seed was opened.

    Args:
        total: residues of the ring, the coordinates of the round's sum first.
        removed_seeds: of each survivor, the opened seeds by component, counted from 0 for the first
            removable one.
    """
    bits, dimension = design.plan.aggregation.modulus_bits, design.resolved.coordinates
    if not any(removed_seeds.values()):
        return lift(total, bits)
    residues = np.asarray(total).astype(np.uint64)
    components = design.removable_components
    for seeds in removed_seeds.values():
        for index, seed in seeds.items():
            unneeded = (
                components[index + 1]
                .sample(dimension, RandomSource.from_key(seed))
                .astype(np.int64)
            )
            residues[:dimension] -= to_ring(unneeded, bits)  # modulo 2^64, hence modulo the ring
    return lift(residues & np.uint64((1 << bits) - 1), bits)
