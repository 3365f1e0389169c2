"""Runs watched while they go: one value that says what a viewer may know, and a page on this machine
that shows it.

    sumus train PLAN --watch
    sumus federation watch --kit kits/admin

| module | has |
|---|---|
| `state`, `health` | `LiveState`: everything that may be shown; what has no place in it cannot be |
| `history` | the rounds, thinned while they come |
| `board` | where whoever runs something posts, and readers read |
| `following` | what is told of a run, folded into the next state |
| `words`, `books` | plan and guarantee in words; the ledger as it grows |
| `training` | a callback of `sumus.train` |
| `federation` | what a job and its engine say, for operator and server |
| `access`, `listener`, `answers` | who may read; the HTTP server on the loopback; its addresses |
| `page`, `metrics` | the page, and the same numbers for Prometheus |

Whoever is watched is told nothing by its watchers and waits for none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.watching.access import (
        TOKEN_FILE as TOKEN_FILE,
        kept_token as kept_token,
        new_token as new_token,
    )
    from sumus.watching.board import Board as Board
    from sumus.watching.books import LedgerReader as LedgerReader
    from sumus.watching.federation import (
        FederationWatcher as FederationWatcher,
        federation_board as federation_board,
    )
    from sumus.watching.following import Following as Following, RoundTold as RoundTold
    from sumus.watching.health import BOOKS as BOOKS, Health as Health
    from sumus.watching.listener import LivePage as LivePage
    from sumus.watching.state import (
        MOST_LISTED as MOST_LISTED,
        Connection as Connection,
        LiveState as LiveState,
        Part as Part,
        Queued as Queued,
        Result as Result,
        short as short,
    )
    from sumus.watching.training import (
        TrainingWatcher as TrainingWatcher,
        training_board as training_board,
    )

__getattr__, __dir__, __all__ = door(
    __name__,
    access="TOKEN_FILE kept_token new_token",
    board="Board",
    books="LedgerReader",
    federation="FederationWatcher federation_board",
    following="Following RoundTold",
    health="BOOKS Health",
    listener="LivePage",
    state="MOST_LISTED Connection LiveState Part Queued Result short",
    training="TrainingWatcher training_board",
)
