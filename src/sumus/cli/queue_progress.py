"""How a queue of plans is shown while it runs: at the terminal, and on a live page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from rich.console import Console

from sumus.cli.federation_progress import progress
from sumus.cli.finished_run import finished_page
from sumus.cli.watching import served

if TYPE_CHECKING:
    from sumus.engines import Kit, PlanQueue, QueuedPlan, QueueWatcher
    from sumus.parties import Agreement

__all__ = ["listed", "queue_watchers"]

_MOST_OVER = 20
"""Finished plans that a live page lists."""


@contextmanager
def queue_watchers(
    queue: PlanQueue, kit: Kit, console: Console, *, quiet: bool, watch: bool, port: int
) -> Iterator[QueueWatcher]:
    """Who is told how the queue goes: the terminal, and a live page where one is wanted, whose
    address stays the same when the queue is run again on the same port.
    """
    shown = _AtTheTerminal(console, quiet=quiet)
    with ExitStack() as opened:
        opened.callback(shown.close)
        if not watch:
            yield shown
            return
        from sumus.watching import TOKEN_FILE, FederationWatcher, federation_board

        board = federation_board("operator", str(kit.address))
        page = _OnAPage(queue, FederationWatcher(board))

        def say(line: str) -> None:
            console.print(line, highlight=False, soft_wrap=True, markup=False)

        opened.enter_context(served(board, port=port, say=say, kept=kit.state / TOKEN_FILE))
        try:
            yield _Both(shown, page, say)
        except BaseException as error:
            page.follows.failed(str(error), stopped=isinstance(error, KeyboardInterrupt))
            raise


@final
class _AtTheTerminal:
    """A bar for the plan that runs, a line for each that ended."""

    def __init__(self, console: Console, *, quiet: bool) -> None:
        self._console, self._quiet = console, quiet
        self._bar = ExitStack()
        self._watch: Any = lambda news: None
        self._waiting = ""

    def begins(self, entry: QueuedPlan, agreement: Agreement) -> None:
        """See `QueueWatcher.begins`."""
        self.close()
        self._say(f"plan {entry.number}  {entry.plan_hash[:16]}  {entry.words}")
        shown = progress(agreement, self._console, quiet=self._quiet)
        self._watch = self._bar.enter_context(shown)

    def told(self, news: Mapping[str, Any]) -> None:
        """See `QueueWatcher.told`."""
        self._waiting = ""
        self._watch(news)

    def waits(self, why: str) -> None:
        """See `QueueWatcher.waits`: the same reason is told once."""
        if why != self._waiting:
            self._say(f"waiting: {why}")
        self._waiting = why

    def ended(self, entry: QueuedPlan) -> None:
        """See `QueueWatcher.ended`."""
        self.close()
        if entry.state == "finished":
            page = finished_page(Path(entry.run), None)
            self._say(f"plan {entry.number}  finished  {entry.run if page is None else page}")
        else:
            again = "is tried again later" if entry.state == "waiting" else entry.state
            self._say(f"plan {entry.number}  {again}: {entry.why}")

    def idle(self) -> None:
        """See `QueueWatcher.idle`."""

    def close(self) -> None:
        """End the bar of the last plan."""
        self._bar.close()
        self._watch = lambda news: None

    def _say(self, line: str) -> None:
        if not self._quiet:
            self._console.print(line, soft_wrap=True, markup=False, highlight=False)


@final
class _OnAPage:
    """The live page of the plan that runs, with the list of all."""

    def __init__(self, queue: PlanQueue, follows: Any) -> None:
        self._queue, self.follows = queue, follows
        self._list()

    def begins(self, entry: QueuedPlan, agreement: Agreement) -> None:
        """See `QueueWatcher.begins`."""
        self.follows.agreed(
            agreement.plan,
            agreement.certified,
            names=agreement.names,
            needed=agreement.terms.minimum_survivors,
        )
        self.follows.answered()
        self._list()

    def told(self, news: Mapping[str, Any]) -> None:
        """See `QueueWatcher.told`."""
        self.follows.answered()
        self.follows.told(news)
        self._list()

    def waits(self, why: str) -> None:
        """See `QueueWatcher.waits`."""
        self.follows.follow.stage("waiting", why, ready=False, unready=why)

    def ended(self, entry: QueuedPlan) -> None:
        """See `QueueWatcher.ended`."""
        from sumus.watching import Result

        if entry.state == "finished":
            self.follows.finished(Result(run=entry.run))
        else:
            self.follows.failed(entry.why)
        self._list()

    def idle(self) -> None:
        """See `QueueWatcher.idle`."""
        self.follows.follow.stage("idle", "the queue has nothing to run")
        self._list()

    def _list(self) -> None:
        self.follows.follow.change(queue=listed(self._queue.entries()))


def listed(entries: Sequence[QueuedPlan]) -> tuple[Any, ...]:
    """As much of a queue as a page shows: the latest that are over, and what is left."""
    from sumus.watching import MOST_LISTED, Queued, short

    over = [each for each in entries if each.state == "finished"]
    rest = [each for each in entries if each.state != "finished"]
    return tuple(
        Queued(
            number=each.number,
            hash=each.plan_hash,
            words=each.words,
            state=each.state,
            done=each.done,
            rounds=each.rounds,
            why=short(each.why),
        )
        for each in (*over[-_MOST_OVER:], *rest)[:MOST_LISTED]
    )


@final
class _Both:
    """The terminal and the page; a page that stumbles stands still, and stops nothing."""

    def __init__(self, shown: _AtTheTerminal, page: _OnAPage, say: Any) -> None:
        self._shown, self._page, self._say = shown, page, say
        self._stands_still = False

    def begins(self, entry: QueuedPlan, agreement: Agreement) -> None:
        """See `QueueWatcher.begins`."""
        self._tell("begins", entry, agreement)

    def told(self, news: Mapping[str, Any]) -> None:
        """See `QueueWatcher.told`."""
        self._tell("told", news)

    def waits(self, why: str) -> None:
        """See `QueueWatcher.waits`."""
        self._tell("waits", why)

    def ended(self, entry: QueuedPlan) -> None:
        """See `QueueWatcher.ended`."""
        self._tell("ended", entry)

    def idle(self) -> None:
        """See `QueueWatcher.idle`."""
        self._tell("idle")

    def _tell(self, what: str, *arguments: Any) -> None:
        getattr(self._shown, what)(*arguments)
        if self._stands_still:
            return
        try:
            getattr(self._page, what)(*arguments)
        except Exception as error:  # whoever watches cannot stop a queue
            self._stands_still = True
            self._say(f"the live page stands still: {type(error).__name__}: {error}")
