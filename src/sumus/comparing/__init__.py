"""What the same records give without privacy, for simulations: a constant answer, all silos
together and every silo alone, tuned, with intervals.

`design` is a linear model's rows, `linear` fits them exactly, `networks` trains any other module,
`tuned` chooses on training records alone, `intervals` says what the choice of test records leaves
open, `comparison` is all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.comparing.comparison import (
        compare as compare,
        constant_baseline as constant_baseline,
        require_simulation as require_simulation,
    )
    from sumus.comparing.outcome import (
        Comparison as Comparison,
        Contender as Contender,
        SiloAlone as SiloAlone,
        baselines_of as baselines_of,
        difference_text as difference_text,
        stored_comparisons as stored_comparisons,
    )

__getattr__, __dir__, __all__ = door(
    __name__,
    comparison="compare constant_baseline require_simulation",
    outcome="Comparison Contender SiloAlone baselines_of difference_text stored_comparisons",
)
