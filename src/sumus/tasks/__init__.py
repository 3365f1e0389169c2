"""What is learned and how well: labels, loss, prediction, measures with their uncertainty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.tasks.uncertainty import (
        CONFIDENCE as CONFIDENCE,
        Measured as Measured,
        noisy_share as noisy_share,
        number_text as number_text,
        percent_text as percent_text,
    )

__getattr__, __dir__, __all__ = door(
    __name__,
    uncertainty="CONFIDENCE Measured noisy_share number_text percent_text",
)
