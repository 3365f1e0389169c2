"""`--watch`: the options of the commands that can be watched, and the page that they serve."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sumus.cli.notifying import looked_out, wants_notices

if TYPE_CHECKING:
    from sumus.runs import RunOptions
    from sumus.watching import Board, Health, LivePage, TrainingWatcher

__all__ = ["Watch", "WatchPort", "served", "watched_training"]

Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        help="Serve a live page on this machine's loopback interface, and print its address.",
    ),
]
WatchPort = Annotated[
    int,
    typer.Option(
        help="With --watch: port of the live page; 0: one that is free.", min=0, max=65535
    ),
]


@contextmanager
def served(
    board: Board, *, port: int, say: Callable[[str], None], kept: Path | None = None
) -> Iterator[LivePage]:
    """A live page for as long as the block lasts.

    Args:
        say: told where the page is.
        kept: the file of the token that readers must know; None: a new one for nobody else.
    """
    from sumus.watching import LivePage, kept_token, new_token

    token = new_token() if kept is None else kept_token(kept)
    with LivePage(board, token=token, port=port) as page:
        if kept is None:
            say(f"live    {page.address}")
        else:
            say(f"live    {page.told_address(kept, terminal=sys.stderr.isatty())}")
        yield page


@contextmanager
def watched_training(
    wanted: bool,
    *,
    port: int,
    say: Callable[[str], None],
    options: RunOptions,
    simulated: bool,
    notify: str | None = None,
    when: Sequence[str] | None = None,
) -> Iterator[tuple[TrainingWatcher, ...]]:
    """The callback of a run that is watched, none if nobody asks for it; its page goes with the
    block, after it has said how the run ended.

    Args:
        say: told where the page is.
        simulated: the noise comes from a public seed.
        notify: a command that is run for alerts; `when`: they are told.
    """
    if not wanted and not wants_notices(notify):
        yield ()
        return
    from sumus.books import RunFolder
    from sumus.watching import TrainingWatcher, training_board

    stored = None if options.resume is None else RunFolder.open(options.resume)
    board = training_board("" if stored is None else stored.name)
    void = "the noise comes from a public seed (simulation)" if simulated else None
    watcher = TrainingWatcher(
        board,
        void=void if stored is None else stored.void,
        ledger=options.ledger,
        max_epsilon=options.max_epsilon,
        policy=options.policy,
        before=() if stored is None else stored.rounds(),
    )
    page = served(board, port=port, say=say) if wanted else nullcontext()
    health = _training_health(options.root)
    told = looked_out(board, notify, when, party="operator", process="train", health=health)
    with page, told:
        try:
            yield (watcher,)
        except BaseException as error:
            watcher.ends(error)
            raise


def _training_health(root: Path) -> Callable[[], Health]:
    """Where a run in this process writes to, and whether the ledgers of its organisation hold."""
    from sumus.books import Ledger, state_directory
    from sumus.engines.health import MachineHealth

    def ledgers() -> bool:
        for ledger in Ledger.all():
            ledger.verify()
        return True

    return MachineHealth(places=(root, state_directory()), books={"ledger": ledgers})
