"""What is learned and how well: labels, loss, prediction, measures with their uncertainty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.tasks.uncertainty import CONFIDENCE, Measured, noisy_share, number_text, percent_text

__all__ = [
    "CONFIDENCE",
    "Measured",
    "noisy_share",
    "number_text",
    "percent_text",
]

__getattr__, __dir__ = door(
    __name__,
    uncertainty="CONFIDENCE Measured noisy_share number_text percent_text",
)
