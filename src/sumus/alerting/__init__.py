"""What somebody should be told of while nobody looks: alerts, and a command that is run for each.

    sumus join kits/Graz … --notify "/usr/local/bin/page-us --team fl"

| module | has |
|---|---|
| `alerts` | every alert: when it holds of a `LiveState`, in words, and as a rule for Prometheus |
| `thresholds` | the numbers that they compare with |
| `lookout` | looks at a board again and again, and tells of what begins and ends |
| `hook` | runs the command: no shell, bounded in time and number, and nobody waits for it |
| `rules` | the same alerts as a file of alerting rules |

An alert is an event of the catalogue, so it says what its party may know and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.alerting.alerts import ALERTS as ALERTS, Alert as Alert, Condition as Condition
    from sumus.alerting.hook import (
        VARIABLE as VARIABLE,
        Hook as Hook,
        command_of as command_of,
    )
    from sumus.alerting.lookout import Lookout as Lookout
    from sumus.alerting.rules import rules_text as rules_text
    from sumus.alerting.thresholds import (
        THRESHOLDS_VARIABLE as THRESHOLDS_VARIABLE,
        Thresholds as Thresholds,
    )

__getattr__, __dir__, __all__ = door(
    __name__,
    alerts="ALERTS Alert Condition",
    hook="VARIABLE Hook command_of",
    lookout="Lookout",
    rules="rules_text",
    thresholds="THRESHOLDS_VARIABLE Thresholds",
)
