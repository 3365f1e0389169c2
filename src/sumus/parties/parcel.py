"""A run as it is sent to silos: the lines of its journal and evidence, what `model.json` says, and
the weights as bare numbers. No archive, no pickle, no page and no file name is in it.

    parcel = "sumus parcel 1" | for journal, evidence, facts: u64 length | bytes | weights to the end

A silo knows from its own copy of the plan how long one may be at most, so nothing is taken in for
the sake of a length that a server claims.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import numpy.typing as npt

from sumus.errors import PeerProtocolError, ProtocolError
from sumus.files import FORMATS
from sumus.parties.agreement import Agreement
from sumus.parties.restored import sums_of

__all__ = ["Parcel", "UnbelievedError", "most_parcel_bytes", "piece_bytes"]

_FORMAT = FORMATS["parcel"]
_BEGIN = _FORMAT.marked().encode()
_LEAST_PIECE = 1 << 20
_AROUND_BYTES = 4 << 20
_SUM_BYTES = 16 << 10
_SILO_BYTES = 512
_WIDTHS = {4: "<f4", 8: "<f8"}


class UnbelievedError(ProtocolError):
    """A run that was delivered contradicts what this silo knows; nothing of it is kept."""


def piece_bytes(agreement: Agreement) -> int:
    """How much of a parcel is sent at once: as much as a model takes, and 1 MiB at least."""
    return max(_LEAST_PIECE, 4 * agreement.design.resolved.dimension)


def most_parcel_bytes(agreement: Agreement) -> int:
    """The most bytes that the parcel of a plan has.

        8·d + sums·(16 KiB + 512·N) + 4 MiB      d weights, N silos, every secure sum of the plan

    A sum leaves some 2 KiB, and 250 bytes a silo, in journal and evidence.
    """
    sums = len(sums_of(agreement.plan))
    each = _SUM_BYTES + _SILO_BYTES * agreement.terms.silos
    return 8 * agreement.design.resolved.dimension + sums * each + _AROUND_BYTES


@final
@dataclass(frozen=True, kw_only=True)
class Parcel:
    """What is sent of a run.

    Args:
        journal: lines of `journal.jsonl`; `evidence`: of `evidence.jsonl`.
        facts: content of `model.json`; empty of a run that describes.
        weights: the model's trained parameters, little-endian floats of its own precision.
    """

    journal: bytes
    evidence: bytes
    facts: bytes
    weights: bytes

    def encode(self) -> bytes:
        """The bytes that are sent."""
        parts = [_BEGIN]
        for part in (self.journal, self.evidence, self.facts):
            parts += [len(part).to_bytes(8, "little"), part]
        return b"".join([*parts, self.weights])

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of what is sent."""
        return hashlib.sha256(self.encode()).digest()

    @classmethod
    def decode(cls, content: bytes | bytearray) -> Parcel:
        """The inverse of `encode`; refuses everything else."""
        view, at = memoryview(content), len(_BEGIN)
        if bytes(view[:at]) != _BEGIN:
            other = _FORMAT.other(lambda mark: bytes(view[: len(mark)]) == mark.encode())
            if other is not None:
                raise PeerProtocolError(str(_FORMAT.refusal("what was delivered", other)))
            raise PeerProtocolError("what was delivered is no parcel. Refuse the server.")
        parts: list[bytes] = []
        for _ in range(3):
            size = int.from_bytes(view[at : at + 8], "little")
            if len(view) < at + 8 or size > len(view) - at - 8:
                raise PeerProtocolError("a parcel ends in the middle of a part. Refuse the server.")
            parts.append(bytes(view[at + 8 : at + 8 + size]))
            at += 8 + size
        return cls(journal=parts[0], evidence=parts[1], facts=parts[2], weights=bytes(view[at:]))

    def vector(self, dimension: int) -> npt.NDArray[np.floating]:
        """The weights as numbers; refuses another count than `dimension`, and what is not finite."""
        kind = next(
            (kind for width, kind in _WIDTHS.items() if len(self.weights) == width * dimension),
            None,
        )
        if kind is None:
            raise PeerProtocolError(
                f"a parcel has {len(self.weights)} bytes of weights, the plan's model "
                f"{dimension} numbers. Refuse the server."
            )
        numbers = np.frombuffer(self.weights, dtype=kind)
        if not np.isfinite(numbers).all():
            raise PeerProtocolError("the delivered model holds NaN or infinity. Refuse the server.")
        return numbers
